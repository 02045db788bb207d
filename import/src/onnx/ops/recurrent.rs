//! Nodes that go along a sequence step by step, with a state.

use sterna::{DataType, OpKind, TensorId};

use super::arithmetic::floats;
use super::call::Call;
use super::node_row::Contents;
use super::places::check_whole;
use crate::error::{Braced, Fault};
use crate::steps::{Activation, Cell, CellWeights, Lengths, MAX_STEPS, Network, Sequence, activation};

use Contents::{Float, Floats, Int, Text, Texts};
use DataType as D;
use OpKind as K;

pub(super) const OF_STATES: &[&str] = &["X", "W", "R", "B", "sequence_lens", "initial_h"];
pub(super) const OF_CELLS: &[&str] = &["X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P"];

pub(super) const OF_QUANTIZED_CELLS: &[&str] = &[
    "X",
    "W",
    "R",
    "B",
    "sequence_lens",
    "initial_h",
    "initial_c",
    "P",
    "W_scale",
    "W_zero_point",
    "R_scale",
    "R_zero_point",
];

/// Attributes of all, and one of an LSTM at the end.
pub(super) const OF_LSTM: &[(&str, Contents)] = &[
    ("activation_alpha", Floats),
    ("activation_beta", Floats),
    ("activations", Texts),
    ("clip", Float),
    ("direction", Text),
    ("hidden_size", Int),
    ("layout", Int),
    ("input_forget", Int),
];
pub(super) const OF_RNN: &[(&str, Contents)] = OF_LSTM.split_at(7).0;
pub(super) const OF_GRU: &[(&str, Contents)] = &[
    OF_LSTM[0],
    OF_LSTM[1],
    OF_LSTM[2],
    OF_LSTM[3],
    OF_LSTM[4],
    OF_LSTM[5],
    OF_LSTM[6],
    ("linear_before_reset", Int),
];

pub(super) fn lstm(node: &mut Call<'_, '_>) -> Result<Vec<TensorId>, Fault> {
    let is_coupled = node.flag("input_forget", false);
    network(node, Cell::Lstm { order: [0, 1, 2, 3], is_coupled })
}

pub(super) fn gru(node: &mut Call<'_, '_>) -> Result<Vec<TensorId>, Fault> {
    let resets_product = node.flag("linear_before_reset", false);
    network(node, Cell::Gru { resets_product })
}

pub(super) fn plain(node: &mut Call<'_, '_>) -> Result<Vec<TensorId>, Fault> {
    network(node, Cell::Plain)
}

/// `DynamicQuantizeLSTM` of ONNX Runtime: weights in 8 bits, by which data of 8 bits are multiplied.
pub(super) fn quantized_lstm(node: &mut Call<'_, '_>) -> Result<Vec<TensorId>, Fault> {
    if node.data_type(0) != D::F32 {
        return Err(node.bad_type(0, "f32"));
    }
    for (weights, point) in [(1, 9), (2, 11)] {
        check_whole(node, weights, point)?;
    }
    lstm(node)
}

/// The lengths of a node: of its data, of its directions, and of its states.
struct Sizes {
    steps: i64,
    directions: i64,
    hidden: i64,
    /// The batch is the first dim.
    is_batch_first: bool,
    /// Weights are in 8 bits, and their rows are rows of their tensors.
    is_quantized: bool,
}

/// The way of a node along its sequence: both ways, or backward if not.
#[derive(Debug, Clone, Copy)]
struct Way {
    is_both: bool,
    is_backward: bool,
}

const WAYS: [(&str, Way); 3] = [
    ("forward", Way { is_both: false, is_backward: false }),
    ("reverse", Way { is_both: false, is_backward: true }),
    ("bidirectional", Way { is_both: true, is_backward: false }),
];

fn network(node: &mut Call<'_, '_>, cell: Cell) -> Result<Vec<TensorId>, Fault> {
    floats(node)?;
    let way = node.word("direction", &WAYS, WAYS[0].1)?;
    let sizes = sizes(node, cell, way)?;
    let (activations, clip) = (activations(node, cell, sizes.directions as usize)?, clip(node)?);
    node.steps.declared = None;
    let mut sequence = Sequence { x: node.input(0), lengths: lengths(node, &sizes)? };
    if sizes.is_batch_first {
        sequence.x = node.steps.transposed(sequence.x, &[1, 0, 2])?;
    }
    let mut networks = Vec::new();
    for direction in 0..sizes.directions {
        let count = cell.activations();
        let of_direction = activations[direction as usize * count..][..count].to_vec();
        let is_backward = way.is_backward || direction == 1;
        networks.push(of_one(node, cell, &sizes, (direction, is_backward), (of_direction, clip))?);
    }
    let unrolled = node.steps.recurrent_ways(&sequence, &networks)?;
    let steps = &mut node.steps;
    let mut outputs = vec![unrolled.all, unrolled.state];
    outputs.extend(unrolled.of_cell);
    if sizes.is_batch_first {
        for (output, order) in outputs.iter_mut().zip([&[2, 0, 1, 3][..], &[1, 0, 2], &[1, 0, 2]]) {
            *output = steps.transposed(*output, order)?;
        }
    }
    outputs.truncate(node.outputs.max(1));
    Ok(outputs)
}

/// The lengths of a node, which its inputs agree about.
fn sizes(node: &Call<'_, '_>, cell: Cell, way: Way) -> Result<Sizes, Fault> {
    let is_batch_first = node.flag("layout", false);
    let x = node.known_dims(0, "known dims, one of which is the number of steps")?;
    let [first, second, width] = *x else { return Err(node.unfit(0, "three dims")) };
    let (steps, batch) = if is_batch_first { (second, first) } else { (first, second) };
    if steps > MAX_STEPS {
        let needed = format!("at most {MAX_STEPS} steps, each of which becomes ops of its own");
        return Err(node.unfit(0, needed));
    }
    let directions = if way.is_both { 2 } else { 1 };
    let of_state = node.known_dims(2, "known dims, the last of which is the size of the state")?;
    let is_quantized = node.kind == "DynamicQuantizeLSTM";
    let hidden = if is_quantized { of_state.get(1) } else { of_state.last() };
    let hidden = hidden.copied().filter(|hidden| *hidden > 0 && hidden.checked_mul(8).is_some());
    let hidden = hidden.ok_or_else(|| node.unfit(2, "a size of the state of 1 or more"))?;
    let rows = cell.gates() * hidden;
    if steps.checked_mul(batch).is_none() {
        return Err(node.unfit(0, "as many rows as can be counted"));
    }
    if node.int("hidden_size", hidden) != hidden {
        return Err(Fault::of_attribute("hidden_size", format!("{hidden}, the last dim of `R`")));
    }
    let of_states =
        if is_batch_first { vec![batch, directions, hidden] } else { vec![directions, batch, hidden] };
    let laid_out = |depth| match is_quantized {
        true => vec![directions, depth, rows],
        false => vec![directions, rows, depth],
    };
    let needed: [(usize, Vec<i64>); 7] = [
        (1, laid_out(width)),
        (2, laid_out(hidden)),
        (3, vec![directions, 2 * rows]),
        (4, vec![batch]),
        (5, of_states.clone()),
        (6, of_states),
        (7, vec![directions, 3 * hidden]),
    ];
    for (input, needed) in needed {
        if node.optional(input).is_none() {
            continue;
        }
        if node.known_dims(input, "known dims")? != needed {
            return Err(node.unfit(input, Braced(&needed).to_string()));
        }
        match input {
            4 if node.data_type(4) != D::S32 => return Err(node.bad_type(4, "s32")),
            4 => {}
            1 | 2 if is_quantized => {}
            _ => node.one_type(0, input)?,
        }
    }
    Ok(Sizes { steps, directions, hidden, is_batch_first, is_quantized })
}

/// The functions of all directions.
fn activations(node: &Call<'_, '_>, cell: Cell, directions: usize) -> Result<Vec<Activation>, Fault> {
    let list = |name: &str| node.attribute(name).map_or(&[][..], |attribute| &*attribute.floats);
    let mut numbers = [list("activation_alpha"), list("activation_beta")];
    let defaults: &[&[u8]] = match cell {
        Cell::Plain => &[b"Tanh"],
        _ => &[b"Sigmoid", b"Tanh", b"Tanh"],
    };
    let count = cell.activations();
    let names: Vec<&[u8]> = match node.attribute("activations") {
        Some(attribute) => attribute.strings.iter().map(|name| &**name).collect(),
        None => defaults[..count].repeat(directions),
    };
    // The default of an RNN names one for each direction that it might have.
    let is_spare = cell == Cell::Plain && names.len() == 2;
    if names.len() != count * directions && !is_spare {
        let needed = format!("{count} functions for each direction");
        return Err(Fault::of_attribute("activations", needed));
    }
    names[..count * directions].iter().map(|name| activation(name, &mut numbers)).collect()
}

/// The bound of what functions are given.
fn clip(node: &Call<'_, '_>) -> Result<Option<f32>, Fault> {
    match node.attribute("clip") {
        Some(attribute) if attribute.float > 0.0 => Ok(Some(attribute.float)),
        Some(_) => Err(Fault::of_attribute("clip", "a positive number")),
        None => Ok(None),
    }
}

/// The lengths of the sequences, if they are not those of the data.
fn lengths(node: &Call<'_, '_>, sizes: &Sizes) -> Result<Option<Lengths>, Fault> {
    let Some(lengths) = node.optional(4) else { return Ok(None) };
    node.steps.lengths(lengths, sizes.steps).map_err(|needed| node.bad_value(4, needed))
}

/// The network along a direction, with its functions and the bound of what they are given.
fn of_one(
    node: &mut Call<'_, '_>,
    cell: Cell,
    sizes: &Sizes,
    (direction, is_backward): (i64, bool),
    (activations, clip): (Vec<Activation>, Option<f32>),
) -> Result<Network, Fault> {
    let hidden = sizes.hidden;
    let rows = cell.gates() * hidden;
    let of_inputs = weights(node, 1, sizes, direction, rows)?;
    let of_state = weights(node, 2, sizes, direction, rows)?;
    let (mut bias, mut of_reset) = (None, None);
    if node.optional(3).is_some() {
        let both = of_direction(node, 3, direction)?;
        let steps = &mut node.steps;
        let both = steps.cast(both, D::F32)?;
        let [own, mut other] = [steps.rows(both, [0, rows])?, steps.rows(both, [rows, 2 * rows])?];
        if cell == (Cell::Gru { resets_product: true }) {
            of_reset = Some(steps.rows(other, [2 * hidden, rows])?);
            let (gates, nothing) = (steps.rows(other, [0, 2 * hidden])?, steps.float(0.0)?);
            let nothing = steps.enlarged(nothing, &[hidden])?;
            other = steps.joined(vec![gates, nothing], 0)?;
        }
        bias = Some(steps.both(K::Add, own, other)?);
    }
    let mut peepholes = None;
    if node.optional(7).is_some() {
        let all = of_direction(node, 7, direction)?;
        let all = node.steps.cast(all, D::F32)?;
        let mut parts = [all; 3];
        for (at, part) in (0..).zip(&mut parts) {
            *part = node.steps.rows(all, [at * hidden, (at + 1) * hidden])?;
        }
        peepholes = Some(parts);
    }
    let mut states = [None; 2];
    for (input, state) in [5, 6].into_iter().zip(&mut states) {
        if node.optional(input).is_some() {
            *state = Some(node.steps.slice(
                node.input(input),
                if sizes.is_batch_first { 1 } else { 0 },
                direction,
            )?);
        }
    }
    let [state, of_cell] = states;
    let of_cell = of_cell.map(|of_cell| node.steps.cast(of_cell, D::F32)).transpose()?;
    Ok(Network {
        cell,
        activations,
        clip,
        is_backward,
        hidden,
        weights: of_inputs,
        of_state,
        bias,
        of_reset,
        peepholes,
        state,
        of_cell,
    })
}

/// The weights of a direction, which are columns of products.
fn weights(
    node: &mut Call<'_, '_>,
    input: usize,
    sizes: &Sizes,
    direction: i64,
    columns: i64,
) -> Result<CellWeights, Fault> {
    let numbers = of_direction(node, input, direction)?;
    if !sizes.is_quantized {
        return Ok(CellWeights::Floats(numbers));
    }
    // Behind the inputs that other networks have, a scale and a zero point for each of both weights.
    let scale = 6 + 2 * input;
    if node.data_type(scale) != D::F32 {
        return Err(node.bad_type(scale, "f32"));
    }
    let mut parts = [numbers; 2];
    for (input, part) in (scale..).zip(&mut parts) {
        let fits = match *node.known_dims(input, "known dims")? {
            [count] => count == sizes.directions,
            [count, of_columns] => count == sizes.directions && of_columns == columns,
            _ => false,
        };
        if !fits {
            return Err(node.unfit(input, "for each direction one number, or one for each column"));
        }
        *part = of_direction(node, input, direction)?;
    }
    let [scale, zero] = parts;
    Ok(CellWeights::Quantized { numbers, scale, zero })
}

/// The part of an input that belongs to a direction.
fn of_direction(node: &mut Call<'_, '_>, input: usize, direction: i64) -> Result<TensorId, Fault> {
    node.steps.slice(node.input(input), 0, direction)
}
