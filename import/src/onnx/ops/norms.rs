//! Nodes that combine elements by way of several ops: norms, means over all places, losses and places of
//! extremes.

use sterna::{Attr, DataType, OpKind, TensorId};

use super::arithmetic::{converted, floats};
use super::call::Call;
use crate::compose::{resolved_axes, stored};
use crate::constant::Constant;
use crate::error::Fault;
use crate::onnx::tensors;
use crate::steps::Reduction;
use crate::weights::{element_count, one_float};

use DataType as D;
use OpKind as K;

const CHANNELS: &str = "one number for each channel of data of two dims or more";

/// A number for each channel, laid beside the data.
fn of_channels(node: &mut Call<'_, '_>, input: usize) -> Result<TensorId, Fault> {
    let (rank, own) = (node.rank(0)?, node.known_dims(input, "known dims")?);
    match *own {
        [channels] if rank >= 2 => {
            let along: Vec<i64> = (0..rank).map(|dim| if dim == 1 { channels } else { 1 }).collect();
            node.steps.in_shape(node.input(input), &along)
        }
        _ => Err(node.unfit(input, CHANNELS)),
    }
}

/// By the means and variances that are given; while a model is trained by those of the batch, which the means
/// and variances then follow.
pub(super) fn batch(node: &mut Call<'_, '_>) -> Result<Vec<TensorId>, Fault> {
    let (x, data_type, rank) = (node.input(0), floats(node)?, node.rank(0)?);
    let (epsilon, trained) = (node.float("epsilon", 1e-5), node.flag("training_mode", false));
    if node.outputs > if trained { 3 } else { 1 } {
        return Err(Fault::of_attribute("training_mode", "1 for more than one output, which are three then"));
    }
    if !trained {
        let mut operands = [x; 5];
        for (at, operand) in operands.iter_mut().enumerate().skip(1) {
            if rank < 2 || node.known_dims(at, "known dims")?.len() != 1 {
                return Err(node.unfit(at, CHANNELS));
            }
            *operand = node.steps.cast(node.input(at), D::F32)?;
        }
        return Ok(vec![node.steps.batch_norm(&operands, epsilon)?]);
    }
    let mut factors = [x; 4];
    for (at, factor) in factors.iter_mut().enumerate() {
        *factor = of_channels(node, at + 1)?;
    }
    let [scale, shift, mean, variance] = factors;
    let axes: Vec<i64> = (0..rank as i64).filter(|axis| *axis != 1).collect();
    let momentum = node.float("momentum", 0.9);
    let steps = &mut node.steps;
    let of_batch = steps.moments(x, &axes)?;
    let (old, new) = (steps.float(momentum)?, steps.float(1.0 - momentum)?);
    let mut outputs = Vec::new();
    for (place, (given, own)) in
        [(mean, of_batch.mean), (variance, of_batch.variance)].into_iter().enumerate()
    {
        let kept = steps.emit(K::Multiply, &[], &[given, old], D::F32)?;
        let added = steps.both(K::Multiply, own, new)?;
        let follows = steps.both(K::Add, kept, added)?;
        let channels = element_count(&steps.dims(follows)?).unwrap_or(i64::MAX);
        let follows = steps.in_shape(follows, &[channels])?;
        outputs.push((3 + place, follows));
    }
    let affine = [Some(scale), Some(shift)];
    let result = steps.standardized(of_batch.centred, of_batch.variance, epsilon, affine)?;
    let mut all = vec![node.steps.cast(result, data_type)?];
    for (input, follows) in outputs {
        all.push(node.steps.cast(follows, node.data_type(input))?);
    }
    all.truncate(node.outputs.max(1));
    Ok(all)
}

pub(super) fn group(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    if node.int("stash_type", 1) != 1 {
        return Err(Fault::of_attribute("stash_type", "1, which is f32"));
    }
    in_groups(node, node.int("num_groups", 0))
}

/// Each channel is a group of its own.
pub(super) fn instance(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let dims = node.known_dims(0, "known dims, of which the second is the number of channels")?;
    in_groups(node, dims.get(1).copied().unwrap_or(0))
}

fn in_groups(node: &mut Call<'_, '_>, groups: i64) -> Result<TensorId, Fault> {
    node.known_dims(0, "known dims, of which the channels are divided into groups")?;
    let (x, affine, epsilon) = (node.input(0), [node.input(1), node.input(2)], node.float("epsilon", 1e-5));
    let result = node.steps.grouped_norm(x, groups, epsilon, Some(affine))?;
    result.ok_or_else(|| {
        node.unfit(0, "floating point of three dims or more, the second a multiple of the groups")
    })
}

/// `(x − mean) / (√variance + 10⁻⁹)`.
pub(super) fn mean_variance(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let (x, data_type, rank) = (node.input(0), floats(node)?, node.rank(0)?);
    let axes = resolved_axes(node.ints("axes").unwrap_or(&[0, 2, 3]), rank);
    let axes = axes.ok_or_else(|| Fault::of_attribute("axes", "axes of dims, each once"))?;
    let axes: Vec<i64> = axes.into_iter().map(|axis| axis as i64).collect();
    let steps = &mut node.steps;
    let moments = steps.moments(x, &axes)?;
    let deviation = steps.same(K::Sqrt, moments.variance)?;
    let least = steps.float(1e-9)?;
    let deviation = steps.both(K::Add, deviation, least)?;
    steps.emit(K::Divide, &[], &[moments.centred, deviation], data_type)
}

/// Over the sum of the sizes, or the root of the sum of the squares; 0 over 0 is 0.
pub(super) fn by_length(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let (x, data_type, rank) = (node.input(0), floats(node)?, node.rank(0)?);
    let axis = node.axis(-1, rank)? as i64;
    let kind = match node.int("p", 2) {
        1 => K::ReduceL1,
        2 => K::ReduceL2,
        _ => return Err(Fault::of_attribute("p", "1, 2")),
    };
    let steps = &mut node.steps;
    let wide = steps.cast(x, D::F32)?;
    let length = steps.reduced(Reduction::One(kind), wide, &[axis], true)?;
    let (zero, share) = (steps.float(0.0)?, steps.both(K::Divide, wide, length)?);
    let none = steps.predicate(K::Equal, length, zero)?;
    let result = steps.select(none, zero, share)?;
    steps.cast(result, data_type)
}

/// One number for all places of a channel.
pub(super) fn over_all(node: &mut Call<'_, '_>, kind: OpKind) -> Result<TensorId, Fault> {
    let (x, rank) = (node.input(0), node.rank(0)?);
    floats(node)?;
    let axes: Vec<i64> = (2..rank as i64).collect();
    node.steps.reduced(Reduction::One(kind), x, &axes, true)
}

/// 1 at the first of the largest elements along an axis, elsewhere 0.
pub(super) fn hardmax(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let (x, data_type) = (node.input(0), node.data_type(0));
    let axis = node.axis(-1, node.rank(0)?)?;
    let steps = &mut node.steps;
    let place = steps.place_of(K::ArgMax, x, axis, [true, false], D::S32)?;
    let index = steps.emit(K::GenIndex, &[(Attr::Axis, (axis as i64).into())], &[x], D::S32)?;
    let here = steps.predicate(K::Equal, index, place)?;
    let (one, zero) = (steps.number(data_type, 1.0)?, steps.number(data_type, 0.0)?);
    steps.select(here, one, zero)
}

/// The reduction of the losses of all targets to the result.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Summary {
    None,
    Sum,
    Mean,
}

/// `−weight · x` at the class of each target, or their sum or weighted mean.
pub(super) fn likelihood(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let x = node.input(0);
    loss(node, x)
}

/// The same of the logarithm of SoftMax, which is the second output.
pub(super) fn cross_entropy(node: &mut Call<'_, '_>) -> Result<Vec<TensorId>, Fault> {
    let data_type = floats(node)?;
    let x = node.steps.emit(K::LogSoftmax, &[(Attr::Axis, 1i64.into())], &[node.input(0)], data_type)?;
    let mut outputs = vec![loss(node, x)?, x];
    outputs.truncate(node.outputs.max(1));
    Ok(outputs)
}

fn loss(node: &mut Call<'_, '_>, x: TensorId) -> Result<TensorId, Fault> {
    let data_type = floats(node)?;
    let words = [("none", Summary::None), ("sum", Summary::Sum), ("mean", Summary::Mean)];
    let summary = node.word("reduction", &words, Summary::Mean)?;
    let (dims, own) = (node.known_dims(0, "known dims")?, node.known_dims(1, "known dims")?);
    let fits = dims.len() >= 2 && own.len() + 1 == dims.len() && own[0] == dims[0] && own[1..] == dims[2..];
    if !fits || !matches!(node.data_type(1), D::S32 | D::S64) {
        return Err(node.unfit(1, "the dims of the first input without the classes, and whole numbers"));
    }
    let ignored = node.attribute("ignore_index").map(|attribute| attribute.int);
    let weight = node.optional(2);
    if let Some(weight) = weight
        && node.steps.builder.known_dims(weight) != Some(&[dims[1]])
    {
        return Err(node.unfit(2, "one number for each class"));
    }
    let target = node.input(1);
    let steps = &mut node.steps;
    let [losses, weights] = steps.likelihoods(x, target, weight, ignored)?;
    let axes: Vec<i64> = (0..own.len() as i64).collect();
    let result = match summary {
        Summary::None => losses,
        Summary::Sum => steps.reduced(Reduction::One(K::ReduceSum), losses, &axes, false)?,
        Summary::Mean => {
            let losses = steps.reduced(Reduction::One(K::ReduceSum), losses, &axes, false)?;
            let weights = steps.reduced(Reduction::One(K::ReduceSum), weights, &axes, false)?;
            steps.both(K::Divide, losses, weights)?
        }
    };
    steps.cast(result, data_type)
}

/// As it is, unless the model is being trained; then only with a share of 0.
pub(super) fn dropout(node: &mut Call<'_, '_>) -> Result<Vec<TensorId>, Fault> {
    if node.optional(2).is_some() {
        let trained = node.value(2, "a constant")?.bytes().iter().any(|byte| *byte != 0);
        let share = match node.optional(1) {
            Some(_) if trained => one_float(node.value(1, "a constant number")?),
            Some(_) => Some(0.0),
            None => Some(0.5),
        };
        if trained && share != Some(0.0) {
            return Err(node.bad_value(2, "false, or a `ratio` of 0: no op draws at random as ONNX does"));
        }
    }
    let mut outputs = vec![node.input(0)];
    if node.outputs > 1 {
        let dims = node.known_dims(0, "known dims, which those of the mask are")?;
        let kept = node.steps.number(D::Boolean, 1.0)?;
        outputs.push(node.steps.enlarged(kept, &dims)?);
    }
    Ok(outputs)
}

/// `x + bias` below −lambd, `x − bias` above lambd, else 0.
pub(super) fn shrink(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let (x, data_type) = (node.input(0), floats(node)?);
    let (bias, edge) = (node.float("bias", 0.0), node.float("lambd", 0.5));
    let steps = &mut node.steps;
    let wide = steps.cast(x, D::F32)?;
    let (bias, most, least, zero) =
        (steps.float(bias)?, steps.float(edge)?, steps.float(-edge)?, steps.float(0.0)?);
    let (below, above) = (steps.predicate(K::Less, wide, least)?, steps.predicate(K::Greater, wide, most)?);
    let (less, more) = (steps.both(K::Subtract, wide, bias)?, steps.both(K::Add, wide, bias)?);
    let result = steps.select(above, less, zero)?;
    let result = steps.select(below, more, result)?;
    steps.cast(result, data_type)
}

/// `a · σ(alpha · a) · b`.
pub(super) fn swiglu(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let (a, b, data_type) = (node.input(0), node.input(1), floats(node)?);
    node.one_type(0, 1)?;
    let alpha = node.float("alpha", 1.0);
    let steps = &mut node.steps;
    let (wide, alpha) = (steps.cast(a, D::F32)?, steps.float(alpha)?);
    let scaled = steps.both(K::Multiply, wide, alpha)?;
    let gate = steps.same(K::Sigmoid, scaled)?;
    let bent = steps.both(K::Multiply, wide, gate)?;
    steps.emit(K::Multiply, &[], &[bent, b], data_type)
}

/// u8 by a scale and a zero point that the data give: the result, the scale and the zero point.
pub(super) fn dynamic_quantize(node: &mut Call<'_, '_>) -> Result<Vec<TensorId>, Fault> {
    let (x, rank) = (node.input(0), node.rank(0)?);
    if node.data_type(0) != D::F32 {
        return Err(node.bad_type(0, "f32"));
    }
    let axes: Vec<i64> = (0..rank as i64).collect();
    let mut all = node.steps.dynamically_quantized(x, &axes, false)?.to_vec();
    all.truncate(node.outputs.max(1));
    Ok(all)
}

/// 1 on a diagonal, elsewhere 0.
pub(super) fn eye(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let dims = node.known_dims(0, "known dims, which those of the result are")?;
    let to = match node.attribute("dtype") {
        Some(number) => tensors::data_type(number.int).map_err(|refused| refused.in_attribute("dtype"))?,
        None => node.data_type(0),
    };
    let [rows, columns] = *dims else { return Err(node.unfit(0, "two dims")) };
    let offset = node.int("k", 0).clamp(-(1 << 30), 1 << 30);
    let steps = &mut node.steps;
    let nothing = steps.number(D::U8, 0.0)?;
    let shape = steps.enlarged(nothing, &[rows, columns])?;
    let index = |axis: i64| [(Attr::Axis, axis.into())];
    let row = steps.emit(K::GenIndex, &index(0), &[shape], D::S32)?;
    let column = steps.emit(K::GenIndex, &index(1), &[shape], D::S32)?;
    let offset = steps.number(D::S32, offset as f64)?;
    let diagonal = steps.both(K::Add, row, offset)?;
    let here = steps.predicate(K::Equal, column, diagonal)?;
    let (one, zero) = (steps.number(to, 1.0)?, steps.number(to, 0.0)?);
    steps.select(here, one, zero)
}

/// The weights of a window of a constant length: sums of cosines, by their factors.
pub(super) fn window(node: &mut Call<'_, '_>, factors: [f64; 3]) -> Result<TensorId, Fault> {
    let length = match *node.numbers(0)? {
        [length @ 0..=16_777_216] => length,
        _ => return Err(node.bad_value(0, "a length up to 2^24")),
    };
    let to = tensors::data_type(node.int("output_datatype", 1));
    let to = to.map_err(|refused| refused.in_attribute("output_datatype"))?;
    let period = if node.flag("periodic", true) { length } else { (length - 1).max(1) };
    let weight = |at: i64| -> f32 {
        let angle = std::f64::consts::TAU * at as f64 / period as f64;
        (factors[0] - factors[1] * angle.cos() + factors[2] * (2.0 * angle).cos()) as f32
    };
    let weights: Vec<f32> = (0..length).map(weight).collect();
    let weights = stored(node.steps.builder, Constant::from_slice(&[length], &weights)?)?;
    converted(node, weights, to)
}
