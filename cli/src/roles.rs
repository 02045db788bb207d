//! The values that suit the role of an input: those at which the ops that use it are defined, and give
//! results that tell a right computation from a wrong one.

use std::collections::BTreeMap;

use sterna::{Attr, AttrValue, DataType, Graph, LogicalTensor, Op, OpKind, Schema, TensorId};

use OpKind as K;

/// The random elements that suit the ops that use a tensor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Range {
    Any,
    /// Of a normal distribution of this size, if they are floats.
    Normal(f64),
    /// Between two numbers.
    Between(f64, f64),
    /// About 1, and above 0.
    Positive,
    /// Between 0 and 1, neither included.
    Probability,
    /// About 0: what is subtracted before something is scaled.
    ZeroPoint,
    /// These numbers, over and over.
    Given(Vec<i64>),
}

/// The range of values for an input of an op of a graph.
type RangeOf = fn(&Op, &Graph) -> Range;

/// Inputs by the kinds of their ops and the number of the port.
const ROLES: &[(&[OpKind], usize, RangeOf)] = &[
    (&[K::Log, K::Sqrt, K::SqrtBackward, K::Pow, K::Power], 0, |_, _| Range::Positive),
    // A quotient of what may be about 0 is of any size.
    (&[K::Divide], 1, |_, _| Range::Positive),
    (&[K::Clamp, K::ClampBackward], 0, |op, _| around_bounds(op)),
    (&[K::SigmoidBackward], 0, |op, _| of_result(op, Range::Probability)),
    (&[K::TanhBackward], 0, |op, _| of_result(op, Range::Between(-0.9, 0.9))),
    (&[K::EluBackward], 0, |op, _| of_result(op, Range::Between(-0.9 * number(op, Attr::Alpha, 1.0), 2.0))),
    (&[K::SoftMaxBackward], 1, |_, _| Range::Probability),
    (&[K::LogSoftmaxBackward], 1, |_, _| Range::Between(-8.0, -0.1)),
    (&[K::Quantize], 0, |op, _| quantizable(op)),
    (&[K::DynamicQuantize], 0, |op, _| steps_of(op, 1.0, 0.0)),
    (&[K::Dequantize, K::DynamicDequantize], 1, scales_of_numbers),
    (&[K::MatMul], 1, |op, _| weights(op)),
    (&[K::ReduceProd], 0, |op, _| factors(op)),
];

impl Range {
    /// The ranges of the tensors that ops of a graph use in a role; the first op counts.
    pub(crate) fn all(graph: &Graph) -> BTreeMap<TensorId, Self> {
        let mut ranges = BTreeMap::new();
        for op in graph.ops() {
            for (index, input) in op.inputs().iter().enumerate() {
                let range = Self::of(op, index, graph);
                if range != Self::Any {
                    ranges.entry(input.id()).or_insert(range);
                }
            }
        }
        // Indices may come from an input by ops that keep each number.
        for _ in graph.ops() {
            let before = ranges.len();
            for op in graph.ops().iter().filter(|op| KEEP_NUMBERS.contains(&op.kind())) {
                let Some(range @ Self::Between(0.0, _)) =
                    op.outputs().first().and_then(|output| ranges.get(&output.id())).cloned()
                else {
                    continue;
                };
                for input in op.inputs().iter().filter(|input| is_integer(input.data_type())) {
                    ranges.entry(input.id()).or_insert_with(|| range.clone());
                }
            }
            if ranges.len() == before {
                break;
            }
        }
        ranges
    }

    /// The range of values for an input of an op.
    fn of(op: &Op, input: usize, graph: &Graph) -> Self {
        let is_role =
            |(kinds, port, _): &&(&[OpKind], usize, RangeOf)| kinds.contains(&op.kind()) && *port == input;
        if let Some((.., range)) = ROLES.iter().find(is_role) {
            return range(op, graph);
        }
        let ports = Schema::of(op.kind()).inputs;
        // The last port stands for all further ones.
        let Some(port) = ports.get(input).or(ports.last()) else { return Self::Any };
        let dims = |tensor: Option<&LogicalTensor>| {
            tensor.and_then(LogicalTensor::dims).map_or_else(|| vec![1], <[i64]>::to_vec)
        };
        match port.name {
            "scales" | "variance" => Self::Positive,
            "probability" => Self::Probability,
            "zps" => Self::ZeroPoint,
            "axes" => Self::Given(reduced_axes(op)),
            "indices" => indices_of(op),
            "block_table" | "lengths" | "slots" => of_pages(op, port.name),
            "src_shape" | "dst_shape" | "weights_shape" => Self::Given(dims(op.outputs().first())),
            "sizes" => Self::Given(spatial(op, &dims(op.outputs().first()))),
            _ => Self::Any,
        }
    }
}

/// Ops whose integers are those of their inputs.
const KEEP_NUMBERS: &[OpKind] = &[
    K::Identity,
    K::Cast,
    K::Select,
    K::Concat,
    K::Slice,
    K::StaticReshape,
    K::StaticTranspose,
    K::Gather,
    K::GatherElements,
    K::GatherND,
];

/// The indices of the dims that a lookup looks up.
fn indices_of(op: &Op) -> Range {
    let dims = |tensor: &LogicalTensor| tensor.dims().map(<[i64]>::to_vec);
    let (table, indices) = (op.inputs().first().and_then(dims), op.inputs().get(1).and_then(dims));
    let table = match op.get_attr(Attr::SrcShape) {
        Some(AttrValue::S64s(shape)) => Some(shape.clone()),
        _ => table,
    };
    let Some(table) = table else { return Range::Any };
    let integer = |attr| match op.get_attr(attr) {
        Some(&AttrValue::S64(number)) => number,
        _ => 0,
    };
    let rank = table.len() as i64;
    let axes = match op.kind() {
        K::GatherND | K::ScatterND => {
            let (first, count) = (integer(Attr::BatchDims), indices.as_ref().and_then(|dims| dims.last()));
            first..first.saturating_add(count.copied().unwrap_or(rank))
        }
        _ => {
            let axis = integer(Attr::Axis);
            let axis = if axis < 0 { axis.saturating_add(rank) } else { axis };
            axis..axis.saturating_add(1)
        }
    };
    let sizes = axes.start.max(0)..axes.end.min(rank);
    match sizes.map(|axis| table[axis as usize]).min() {
        Some(least @ 1..) => Range::Between(0.0, least as f64 - 1.0),
        _ => Range::Any,
    }
}

/// The pages, lengths or slots of a cache in pages.
fn of_pages(op: &Op, name: &str) -> Range {
    let dims = |at: usize| op.inputs().get(at).and_then(LogicalTensor::dims).unwrap_or_default();
    let &[pages, _, page, _] = dims(0) else { return Range::Any };
    let last = match (name, dims(1)) {
        ("block_table", _) => pages.saturating_sub(1),
        ("lengths", &[_, entries]) => entries.saturating_mul(page),
        ("slots", _) => pages.saturating_mul(page).saturating_sub(1),
        _ => return Range::Any,
    };
    if last < 0 { Range::Any } else { Range::Between(0.0, last as f64) }
}

/// An attribute that is a number.
fn number(op: &Op, attr: Attr, otherwise: f64) -> f64 {
    match op.get_attr(attr) {
        Some(&AttrValue::F32(number)) => number.into(),
        _ => otherwise,
    }
}

/// Numbers on both sides of the bounds of a Clamp.
fn around_bounds(op: &Op) -> Range {
    let (least, most) = (number(op, Attr::Min, -1.0), number(op, Attr::Max, 1.0));
    match (least.is_finite(), most.is_finite()) {
        (true, true) => {
            let room = ((most - least) / 2.0).abs().max(1.0);
            Range::Between(least.min(most) - room, least.max(most) + room)
        }
        (true, false) => Range::Between(least - 2.0, least + 2.0),
        (false, true) => Range::Between(most - 2.0, most + 2.0),
        (false, false) => Range::Any,
    }
}

/// The range of a result of the forward op, if the gradient takes that.
fn of_result(op: &Op, range: Range) -> Range {
    match op.get_attr(Attr::UseDst) {
        Some(&AttrValue::Bool(false)) => Range::Any,
        _ => range,
    }
}

/// The numbers that the steps of a Quantize stand for.
fn quantizable(op: &Op) -> Range {
    let scale = match op.get_attr(Attr::Scales) {
        Some(AttrValue::F32s(scales)) => {
            scales.iter().fold(0.0, |most, &scale| f64::from(scale.abs()).max(most))
        }
        _ => 1.0,
    };
    let zero_point = match op.get_attr(Attr::Zps) {
        Some(AttrValue::S64s(points)) => points.first().map_or(0.0, |&point| point as f64),
        _ => 0.0,
    };
    steps_of(op, scale, zero_point)
}

/// The numbers that the steps of the type of a result stand for.
fn steps_of(op: &Op, scale: f64, zero_point: f64) -> Range {
    match op.outputs().first().and_then(|output| steps(output.data_type())) {
        Some((least, most)) if scale.is_finite() && scale > 0.0 => {
            Range::Between((least - zero_point) * scale, (most - zero_point) * scale)
        }
        _ => Range::Any,
    }
}

/// The least and the largest integer of a type of few bits.
fn steps(data_type: DataType) -> Option<(f64, f64)> {
    Some(match data_type {
        DataType::U4 => (0.0, 15.0),
        DataType::S4 => (-8.0, 7.0),
        DataType::U8 => (0.0, 255.0),
        DataType::S8 => (-128.0, 127.0),
        _ => return None,
    })
}

/// Scales under which any integers stand for numbers of about 1; if a product takes these as weights, its
/// sums are of about 1.
fn scales_of_numbers(op: &Op, graph: &Graph) -> Range {
    let of = op.inputs().first().and_then(|input| steps(input.data_type()));
    let size = of.map_or(1.0, |(least, most)| (most - least) / 2.0);
    let terms = op.outputs().first().map_or(1.0, |output| terms_of_weights(output.id(), graph));
    Range::Between(0.5 / size / terms.sqrt(), 2.0 / size / terms.sqrt())
}

/// The number of terms of the sums of a product that takes a tensor, or its elements in other places, as
/// weights; 1 if there is none.
fn terms_of_weights(tensor: TensorId, graph: &Graph) -> f64 {
    const MOVES: &[OpKind] = &[K::TypeCast, K::Reorder, K::StaticReshape, K::StaticTranspose];
    let mut tensor = tensor;
    // A chain is no longer than the graph.
    for _ in graph.ops() {
        let takes = |op: &&Op| op.inputs().iter().any(|input| input.id() == tensor);
        let Some(op) = graph.ops().iter().find(takes) else { break };
        match op.kind() {
            K::MatMul if op.inputs().get(1).is_some_and(|input| input.id() == tensor) => {
                return terms(op).unwrap_or(1.0);
            }
            kind if MOVES.contains(&kind) => match op.outputs().first() {
                Some(output) => tensor = output.id(),
                None => break,
            },
            _ => break,
        }
    }
    1.0
}

/// The number of terms of each sum of a product, if its right operand tells.
fn terms(op: &Op) -> Option<f64> {
    let dims = op.inputs().get(1)?.dims()?;
    let is_transposed = op.get_attr(Attr::TransposeB) == Some(&AttrValue::Bool(true));
    let terms = match dims {
        [.., _, columns] if is_transposed => *columns,
        [.., rows, _] => *rows,
        [all] => *all,
        [] => return None,
    };
    (terms > 0).then_some(terms as f64)
}

/// Weights of two dims, whose sums are of about the size of what they multiply. Operands of more dims are as
/// often data themselves.
fn weights(op: &Op) -> Range {
    let is_matrix = op.inputs().get(1).and_then(LogicalTensor::rank) == Some(2);
    match terms(op) {
        Some(terms) if is_matrix => Range::Normal(1.0 / terms.sqrt()),
        _ => Range::Any,
    }
}

/// Factors about 1, so that the product of many of them stays about 1.
fn factors(op: &Op) -> Range {
    let count = |tensor: Option<&LogicalTensor>| {
        tensor.and_then(LogicalTensor::element_count).map_or(1, |n| n.max(1))
    };
    let terms = (count(op.inputs().first()) / count(op.outputs().first())).max(1) as f64;
    let room = (2.0 / terms.sqrt()).min(0.9);
    Range::Between(1.0 - room, 1.0 + room)
}

/// The axes that a reduction removes, if its shapes tell; else all axes.
fn reduced_axes(op: &Op) -> Vec<i64> {
    let dims = |tensor: Option<&LogicalTensor>| tensor.and_then(LogicalTensor::dims).map(<[i64]>::to_vec);
    let (from, to) = (dims(op.inputs().first()), dims(op.outputs().first()));
    let rank = op.inputs().first().and_then(LogicalTensor::rank).unwrap_or(1);
    let mut axes: Vec<i64> = match (from, to) {
        (Some(from), Some(to)) if from.len() == to.len() => {
            // Dims that had more than one element come first; a reduction may have kept the others.
            let mut ones: Vec<usize> = (0..rank).filter(|&axis| to[axis] == 1).collect();
            ones.sort_by_key(|&axis| from[axis] == 1);
            ones.into_iter().map(|axis| axis as i64).collect()
        }
        (Some(from), Some(to)) => {
            let mut kept = to.iter().peekable();
            let is_reduced = |&axis: &usize| kept.next_if(|&&dim| dim == from[axis]).is_none();
            (0..rank).filter(is_reduced).map(|axis| axis as i64).collect()
        }
        _ => Vec::new(),
    };
    if axes.is_empty() {
        axes.extend(0..rank.max(1) as i64);
    }
    axes
}

/// The dims between batch and channels, or behind them.
fn spatial(op: &Op, dims: &[i64]) -> Vec<i64> {
    let channels_last = op.get_attr(Attr::DataFormat) != Some(&AttrValue::from("NCX"));
    let spatial = match (channels_last, dims) {
        (true, [_, spatial @ .., _]) | (false, [_, _, spatial @ ..]) => spatial,
        _ => dims,
    };
    if spatial.is_empty() { vec![1] } else { spatial.to_vec() }
}

pub(crate) fn is_integer(data_type: DataType) -> bool {
    use DataType as D;
    matches!(data_type, D::S4 | D::U4 | D::S8 | D::U8 | D::S16 | D::U16 | D::S32 | D::U32 | D::S64 | D::U64)
}

pub(crate) fn is_signed(data_type: DataType) -> bool {
    use DataType as D;
    !matches!(data_type, D::U4 | D::U8 | D::U16 | D::U32 | D::U64 | D::E8m0 | D::Boolean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_get_what_their_ops_can_take() {
        let tensor = |id, dims: &[i64]| LogicalTensor::strided(id, DataType::F32, dims).unwrap();
        let op = |kind, inputs: &[&[i64]]| {
            let inputs = inputs.iter().enumerate().map(|(id, dims)| tensor(id, dims));
            Op::new(0, kind).inputs_from(inputs).output(tensor(9, &[1, 5, 6, 3]))
        };
        let dims: &[i64] = &[1, 4, 4, 3];
        let four = &[dims; 5];
        let rows = [
            (op(K::DynamicDequantize, four), 1, Range::Between(0.5, 2.0)),
            (op(K::DynamicQuantize, four), 1, Range::Positive),
            (op(K::Log, four), 0, Range::Positive),
            (
                op(K::Clamp, four).attr(Attr::Min, 3.0f32).attr(Attr::Max, 9.0f32),
                0,
                Range::Between(0.0, 12.0),
            ),
            (
                op(K::Clamp, four).attr(Attr::Min, f32::NEG_INFINITY).attr(Attr::Max, 6.0f32),
                0,
                Range::Between(4.0, 8.0),
            ),
            (op(K::SigmoidBackward, four), 0, Range::Probability),
            (op(K::SigmoidBackward, four).attr(Attr::UseDst, false), 0, Range::Any),
            (op(K::SoftMaxBackward, four), 1, Range::Probability),
            (op(K::MatMul, &[&[2, 64], &[64, 3]]), 1, Range::Normal(0.125)),
            (
                op(K::MatMul, &[&[2, 3], &[64, 3]]).attr(Attr::TransposeB, true),
                1,
                Range::Normal(1.0 / 3f64.sqrt()),
            ),
            (op(K::MatMul, &[&[2, 3, 64], &[2, 64, 3]]), 1, Range::Any),
            (op(K::DynamicDequantize, four), 2, Range::ZeroPoint),
            (op(K::BatchNormInference, four), 4, Range::Positive),
            (op(K::BatchNormInference, four), 3, Range::Any),
            (op(K::Dropout, four), 3, Range::Probability),
            (op(K::Gather, four).attr(Attr::Axis, -1i64), 1, Range::Between(0.0, 2.0)),
            (op(K::GatherND, &[&[7, 5, 6], &[9, 2]]), 1, Range::Between(0.0, 4.0)),
            (op(K::PagedLoad, &[&[7, 2, 16, 8], &[3, 4], &[3]]), 1, Range::Between(0.0, 6.0)),
            (op(K::PagedLoad, &[&[7, 2, 16, 8], &[3, 4], &[3]]), 2, Range::Between(0.0, 64.0)),
            (op(K::CacheStore, &[&[7, 2, 16, 8], &[3, 2, 8], &[3]]), 2, Range::Between(0.0, 111.0)),
            (op(K::ReduceSum, four), 1, Range::Given(vec![0])),
            (op(K::ReduceSum, &[&[1, 7, 5, 6, 8, 3], &[2]]), 1, Range::Given(vec![1, 4])),
            (op(K::ReduceSum, &[&[5, 6], &[2]]), 1, Range::Given(vec![0, 1])),
            (op(K::Interpolate, four), 1, Range::Given(vec![5, 6])),
            (op(K::Interpolate, four).attr(Attr::DataFormat, "NCX"), 1, Range::Given(vec![6, 3])),
            (op(K::ConvolutionBackwardData, four), 2, Range::Given(vec![1, 5, 6, 3])),
            (op(K::Concat, four), 4, Range::Any),
        ];
        let wrong: Vec<_> =
            rows.iter().filter(|(op, input, range)| Range::of(op, *input, &Graph::new()) != *range).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
