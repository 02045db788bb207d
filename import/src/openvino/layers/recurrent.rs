//! Layers that go along a sequence step by step, with a state, and their single steps.

use sterna::{DataType, TensorId};

use super::context::{Class, Context, Input};
use super::layer_row::{LayerMap, LayerRow, input, row};
use super::rows::floats;
use crate::error::{Braced, Fault};
use crate::steps::{Activation, Cell, CellWeights, Lengths, MAX_STEPS, Network, Sequence, activation};

use Class::Value;
use DataType as D;

const X: Input = input("X", Value);
const STATE: Input = input("initial_hidden_state", Value);
const OF_CELL: Input = input("initial_cell_state", Value);
const LENGTHS: Input = input("sequence_lengths", Value);
const W: Input = input("W", Value);
const R: Input = input("R", Value);
const B: Input = input("B", Value);
pub(super) const OF_LSTM_CELL: &[Input] = &[X, STATE, OF_CELL, W, R, B];
pub(super) const OF_STEP: &[Input] = &[X, STATE, W, R, B];
pub(super) const OF_LSTM: &[Input] = &[X, STATE, OF_CELL, LENGTHS, W, R, B];
pub(super) const OF_SEQUENCE: &[Input] = &[X, STATE, LENGTHS, W, R, B];

/// Attributes of all, and one of a GRU at the end.
const ATTRIBUTES: &[&str] = &[
    "hidden_size",
    "activations",
    "activations_alpha",
    "activations_beta",
    "clip",
    "direction",
    "input_forget",
    "linear_before_reset",
];

/// A row of a layer that goes along steps.
pub(super) const fn along_steps(
    names: &'static [&'static str],
    inputs: &'static [Input],
    map: fn(&mut Context<'_, '_>) -> Result<Vec<TensorId>, Fault>,
) -> LayerRow {
    row(names, inputs, ATTRIBUTES, LayerMap::Several(map))
}

/// The inputs of a layer, by their places.
struct Ports {
    /// Of the state of the cell of an LSTM.
    of_cell: Option<usize>,
    /// Of the lengths of a sequence; a single step has none.
    lengths: Option<usize>,
    /// Of the first weights, behind which those of the state and the bias stand.
    weights: usize,
}

/// The lengths that the inputs agree about.
struct Extents {
    batch: i64,
    steps: i64,
    hidden: i64,
}

pub(super) fn lstm(layer: &mut Context<'_, '_>, is_sequence: bool) -> Result<Vec<TensorId>, Fault> {
    // Gates for forgetting, input, the cell and output.
    let cell = Cell::Lstm { order: [1, 3, 0, 2], is_coupled: layer.truth("input_forget", false)? };
    network(layer, cell, is_sequence)
}

pub(super) fn gru(layer: &mut Context<'_, '_>, is_sequence: bool) -> Result<Vec<TensorId>, Fault> {
    let resets_product = layer.truth("linear_before_reset", false)?;
    network(layer, Cell::Gru { resets_product }, is_sequence)
}

pub(super) fn plain(layer: &mut Context<'_, '_>, is_sequence: bool) -> Result<Vec<TensorId>, Fault> {
    network(layer, Cell::Plain, is_sequence)
}

fn network(layer: &mut Context<'_, '_>, cell: Cell, is_sequence: bool) -> Result<Vec<TensorId>, Fault> {
    floats(layer, 0)?;
    let of_cell = matches!(cell, Cell::Lstm { .. }).then_some(2);
    let lengths = is_sequence.then_some(if of_cell.is_some() { 3 } else { 2 });
    let weights = lengths.or(of_cell).unwrap_or(1) + 1;
    let ports = Ports { of_cell, lengths, weights };
    let ways = [("forward", (1, false)), ("reverse", (1, true)), ("bidirectional", (2, false))];
    let (directions, is_reverse) =
        if is_sequence { layer.word("direction", &ways, ways[0].1)? } else { ways[0].1 };
    let sizes = sizes(layer, cell, &ports, directions)?;
    let activations = activations(layer, cell)?;
    let clip = match layer.layer.attr("clip") {
        None => 0.0,
        Some(_) => layer.float("clip")?,
    };
    let clip = if clip == f64::INFINITY { 0.0 } else { clip };
    if !(clip >= 0.0 && clip.is_finite()) {
        return Err(Fault::of_attribute("clip", "a number from 0 on"));
    }
    let clip = (clip > 0.0).then_some(clip as f32);
    let Extents { batch, hidden, .. } = sizes;
    let declared = layer.steps.declared.take();
    let x = layer.inputs[0];
    let x = match is_sequence {
        true => layer.steps.transposed(x, &[1, 0, 2])?,
        false => {
            let own = layer.steps.dims(x)?;
            layer.steps.in_shape(x, &[&[1], &*own].concat())?
        }
    };
    let sequence = Sequence { x, lengths: lengths_of(layer, &ports, &sizes)? };
    let mut networks = Vec::new();
    for direction in 0..directions {
        let is_backward = is_reverse || direction == 1;
        let bent = (activations.clone(), clip);
        networks.push(of_one(layer, cell, (&ports, &sizes), (direction, is_backward), bent)?);
    }
    let unrolled = layer.steps.recurrent_ways(&sequence, &networks)?;
    let mut outputs = Vec::new();
    let states = [Some(unrolled.state), unrolled.of_cell];
    if is_sequence {
        outputs.push(layer.steps.transposed(unrolled.all, &[2, 1, 0, 3])?);
        for state in states.into_iter().flatten() {
            outputs.push(layer.steps.transposed(state, &[1, 0, 2])?);
        }
    } else {
        for state in states.into_iter().flatten() {
            outputs.push(layer.steps.in_shape(state, &[batch, hidden])?);
        }
    }
    layer.steps.declared = declared;
    Ok(outputs)
}

/// The lengths of a layer, which its inputs agree about.
fn sizes(layer: &Context<'_, '_>, cell: Cell, ports: &Ports, directions: i64) -> Result<Extents, Fault> {
    let x = layer.known_dims(0, "known dims, one of which is the number of steps")?;
    let is_sequence = ports.lengths.is_some();
    let (batch, steps, width) = match *x {
        [batch, steps, width] if is_sequence => (batch, steps, width),
        [batch, width] if !is_sequence => (batch, 1, width),
        _ => return Err(layer.unfit(0, if is_sequence { "three dims" } else { "two dims" })),
    };
    if steps > MAX_STEPS {
        let needed = format!("at most {MAX_STEPS} steps, each of which becomes ops of its own");
        return Err(layer.unfit(0, needed));
    }
    let hidden = layer.int("hidden_size", None)?;
    if hidden < 1 || hidden.checked_mul(8).is_none() || steps.checked_mul(batch).is_none() {
        return Err(Fault::of_attribute("hidden_size", "a number from 1 on"));
    }
    let rows = cell.gates() * hidden;
    // The product of the state has a bias of its own in the candidate.
    let biases = if cell == (Cell::Gru { resets_product: true }) { rows + hidden } else { rows };
    let ahead = |dims: &[i64]| if is_sequence { [&[directions], dims].concat() } else { dims.to_vec() };
    let of_state = if is_sequence { vec![batch, directions, hidden] } else { vec![batch, hidden] };
    let mut needed = vec![
        (1, of_state.clone()),
        (ports.weights, ahead(&[rows, width])),
        (ports.weights + 1, ahead(&[rows, hidden])),
        (ports.weights + 2, ahead(&[biases])),
    ];
    needed.extend(ports.of_cell.map(|input| (input, of_state)));
    for (input, needed) in needed {
        if input >= layer.inputs.len() {
            continue;
        }
        if layer.known_dims(input, "known dims")? != needed {
            return Err(layer.unfit(input, Braced(&needed).to_string()));
        }
        if layer.data_type(input) != layer.data_type(0) {
            return Err(Fault::of_type(
                layer.port(input),
                layer.data_type(input),
                layer.data_type(0).to_string(),
            ));
        }
    }
    Ok(Extents { batch, steps, hidden })
}

/// The functions of one direction, which are those of each.
fn activations(layer: &Context<'_, '_>, cell: Cell) -> Result<Vec<Activation>, Fault> {
    let list = |name: &'static str| -> Result<Vec<f32>, Fault> {
        let text = layer.layer.attr(name).unwrap_or_default();
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let numbers: Result<Vec<f32>, _> = parts.map(str::parse).collect();
        numbers.map_err(|_| Fault::of_attribute(name, "numbers"))
    };
    let (alpha, beta) = (list("activations_alpha")?, list("activations_beta")?);
    let mut numbers = [&*alpha, &*beta];
    let count = cell.activations();
    let default = if cell == Cell::Plain { "tanh" } else { "sigmoid,tanh,tanh" };
    let names = layer.layer.attr("activations").unwrap_or(default);
    let names: Vec<&str> = names.split(',').map(str::trim).collect();
    if names.len() < count {
        return Err(Fault::of_attribute("activations", format!("{count} functions")));
    }
    names[..count].iter().map(|name| activation(name.as_bytes(), &mut numbers)).collect()
}

/// The lengths of the sequences, if they are not those of the data.
fn lengths_of(layer: &Context<'_, '_>, ports: &Ports, sizes: &Extents) -> Result<Option<Lengths>, Fault> {
    let Some(input) = ports.lengths else { return Ok(None) };
    if layer.known_dims(input, "known dims")? != [sizes.batch] {
        return Err(layer.unfit(input, Braced(&[sizes.batch]).to_string()));
    }
    if !matches!(layer.data_type(input), D::S32 | D::S64) {
        return Err(Fault::of_type(layer.port(input), layer.data_type(input), "s32, s64"));
    }
    let lengths = layer.steps.lengths(layer.inputs[input], sizes.steps);
    lengths.map_err(|needed| layer.bad_value(input, needed))
}

/// The network along a direction, with its functions and the bound of what they are given.
fn of_one(
    layer: &mut Context<'_, '_>,
    cell: Cell,
    (ports, sizes): (&Ports, &Extents),
    (direction, is_backward): (i64, bool),
    (activations, clip): (Vec<Activation>, Option<f32>),
) -> Result<Network, Fault> {
    let (hidden, rows) = (sizes.hidden, cell.gates() * sizes.hidden);
    let is_sequence = ports.lengths.is_some();
    // The part of an input that belongs to the direction; a single step has one.
    let part = |layer: &mut Context<'_, '_>, at: usize| -> Result<TensorId, Fault> {
        let tensor = layer.inputs[ports.weights + at];
        if is_sequence { layer.steps.slice(tensor, 0, direction) } else { Ok(tensor) }
    };
    let (weights, of_state) = (CellWeights::Floats(part(layer, 0)?), CellWeights::Floats(part(layer, 1)?));
    let (mut bias, mut of_reset) = (None, None);
    if ports.weights + 2 < layer.inputs.len() {
        let own = part(layer, 2)?;
        let own = layer.steps.cast(own, D::F32)?;
        bias = Some(layer.steps.rows(own, [0, rows])?);
        if cell == (Cell::Gru { resets_product: true }) {
            of_reset = Some(layer.steps.rows(own, [rows, rows + hidden])?);
        }
    }
    let mut states = [Some(1), ports.of_cell].map(|input| input.map(|input| layer.inputs[input]));
    for state in states.iter_mut().flatten() {
        if is_sequence {
            *state = layer.steps.slice(*state, 1, direction)?;
        }
    }
    let [state, of_cell] = states;
    let of_cell = of_cell.map(|of_cell| layer.steps.cast(of_cell, D::F32)).transpose()?;
    Ok(Network {
        cell,
        activations,
        clip,
        is_backward,
        hidden,
        weights,
        of_state,
        bias,
        of_reset,
        peepholes: None,
        state,
        of_cell,
    })
}
