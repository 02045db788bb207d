//! The types and dims of the results of a node that becomes an op `Wildcard`, as far as they follow from its
//! inputs.

mod facts;
mod windows;

use sterna::{DataType, Dims, LogicalTensor, TensorId};

use self::facts::Facts;
use super::proto::NodeText;
use super::tensors;
use crate::builder::Builder;
use crate::compose::resolved_axes;
use crate::dims::UNKNOWN_DIM;

use DataType as D;
use TypeRule::{Attribute, Fixed, Input};

/// The type of a result.
#[derive(Debug, Clone, Copy)]
enum TypeRule {
    /// That of an input.
    Input(usize),
    Fixed(DataType),
    /// The one that an attribute names, or else that of the first input.
    Attribute(&'static str),
}

/// The dims of a result.
#[derive(Debug, Clone, Copy)]
enum DimRule {
    /// Those of an input.
    Same(usize),
    /// As many as an input has.
    Rank(usize),
    /// So many, all open.
    Open(usize),
    /// Those of a convolution, whose filters are an input.
    Filtered(usize),
    /// Those of a convolution that is transposed.
    Transposed,
    /// Those of a pooling.
    Pooled,
    /// Batch and channels, and ones.
    PooledWhole,
    /// Those of what a pooling was made of.
    Unpooled,
    /// A row for each region that an input has, channels, and dims that attributes name.
    Regions(usize),
    /// Those of data that is enlarged or shrunk.
    Resized,
    /// Batch and channels, and the dims of a grid.
    Grid,
    /// Those of the inputs, which broadcast to each other.
    Broadcast,
    /// Those of two inputs, which broadcast to each other.
    BroadcastOf(usize, usize),
    /// Those of the data with those of indices in place of an axis.
    Gathered,
    /// Those of the data without the last of the indices, behind those of the indices.
    GatheredBlocks,
    /// Those of the data, but for an axis.
    ButAxis,
    /// Those of the data, but for the last, which is an attribute or else open.
    Last(&'static str),
    /// Those of the data, but for the last, which is that of an input.
    LastOf(usize),
    /// {batch, positions, width of the values of all heads}.
    Heads,
    /// {batch, heads, positions, width}, the last but open.
    Cache,
    /// Those of the product of the first two inputs, or of those at two places.
    Product(usize, usize),
    /// A row for each dim of the data.
    Places,
    /// {steps, directions, batch, hidden}, or without the steps.
    Recurrent { steps: bool },
    /// As many as the numbers of an input.
    Numbers(usize),
}

/// The type and dims of each result of a node; the last ones are those of all that are left.
struct ResultRow {
    names: &'static [&'static str],
    results: &'static [(TypeRule, DimRule)],
}

const fn row(names: &'static [&'static str], results: &'static [(TypeRule, DimRule)]) -> ResultRow {
    ResultRow { names, results }
}

/// Ops of ONNX and of `com.microsoft`, whose names do not contradict each other here.
const ROWS: &[ResultRow] = &[
    row(&["Conv", "FusedConv", "DeformConv"], &[(Input(0), DimRule::Filtered(1))]),
    row(&["ConvInteger"], &[(Fixed(D::S32), DimRule::Filtered(1))]),
    row(&["QLinearConv"], &[(Input(7), DimRule::Filtered(3))]),
    row(&["ConvTranspose"], &[(Input(0), DimRule::Transposed)]),
    row(&["Upsample", "Resize"], &[(Input(0), DimRule::Resized)]),
    row(&["GridSample"], &[(Input(0), DimRule::Grid)]),
    row(&["MaxPool"], &[(Input(0), DimRule::Pooled), (Fixed(D::S64), DimRule::Pooled)]),
    row(&["AveragePool", "LpPool"], &[(Input(0), DimRule::Pooled)]),
    row(&["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"], &[(Input(0), DimRule::PooledWhole)]),
    row(&["MaxRoiPool", "RoiAlign"], &[(Input(0), DimRule::Regions(1))]),
    row(&["MaxUnpool"], &[(Input(0), DimRule::Unpooled)]),
    row(
        &["LSTM", "GRU", "RNN"],
        &[(Input(0), DimRule::Recurrent { steps: true }), (Input(0), DimRule::Recurrent { steps: false })],
    ),
    row(&["NonZero"], &[(Fixed(D::S64), DimRule::Places)]),
    row(&["Unique"], &[(Input(0), DimRule::Open(1)), (Fixed(D::S64), DimRule::Open(1))]),
    row(&["NonMaxSuppression"], &[(Fixed(D::S64), DimRule::Open(2))]),
    row(&["TopK"], &[(Input(0), DimRule::ButAxis), (Fixed(D::S64), DimRule::ButAxis)]),
    row(&["Gather"], &[(Input(0), DimRule::Gathered)]),
    row(&["GatherElements"], &[(Input(0), DimRule::Same(1))]),
    row(&["GatherND"], &[(Input(0), DimRule::GatheredBlocks)]),
    row(
        &[
            "Scatter",
            "ScatterElements",
            "ScatterND",
            "TensorScatter",
            "ReverseSequence",
            "LRN",
            "CumSum",
            "Softmax",
            "LogSoftmax",
            "Hardmax",
            "LpNormalization",
            "LayerNormalization",
            "Relu",
            "Abs",
            "Neg",
            "Sign",
            "Exp",
            "Log",
            "Sqrt",
            "Reciprocal",
            "Floor",
            "Ceil",
            "Round",
            "Erf",
            "Sin",
            "Cos",
            "Tan",
            "Tanh",
            "Sigmoid",
            "Clip",
            "Identity",
            "Dropout",
            "Trilu",
            "BitwiseNot",
            "Bernoulli",
            "BiasGelu",
            "FastGelu",
            "QuickGelu",
            "RotaryEmbedding",
            "SimplifiedLayerNormalization",
            "BiasSplitGelu",
            "SkipLayerNormalization",
            "SkipSimplifiedLayerNormalization",
            "GroupNorm",
            "BiasAdd",
            "BiasSoftmax",
            "Inverse",
            "MoE",
            "QMoE",
            "QLinearSigmoid",
            "QLinearLeakyRelu",
            "QLinearSoftmax",
        ],
        &[(Input(0), DimRule::Same(0))],
    ),
    row(
        &[
            "Add",
            "Sub",
            "Mul",
            "Div",
            "Mod",
            "Pow",
            "Max",
            "Min",
            "Mean",
            "Sum",
            "BitShift",
            "BitwiseAnd",
            "BitwiseOr",
            "BitwiseXor",
            "PRelu",
        ],
        &[(Input(0), DimRule::Broadcast)],
    ),
    row(
        &["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor"],
        &[(Fixed(D::Boolean), DimRule::Broadcast)],
    ),
    row(&["Not", "IsNaN", "IsInf"], &[(Fixed(D::Boolean), DimRule::Same(0))]),
    row(&["Cast"], &[(Attribute("to"), DimRule::Same(0))]),
    row(&["RandomNormalLike", "RandomUniformLike", "EyeLike"], &[(Attribute("dtype"), DimRule::Same(0))]),
    row(&["Pad", "Slice", "Tile", "CenterCropPad"], &[(Input(0), DimRule::Rank(0))]),
    row(&["Reshape", "Expand"], &[(Input(0), DimRule::Numbers(1))]),
    row(&["ConstantOfShape"], &[(Fixed(D::Undef), DimRule::Numbers(0))]),
    row(&["Range", "Compress"], &[(Input(0), DimRule::Open(1))]),
    row(&["Det"], &[(Input(0), DimRule::Open(0))]),
    row(
        &["MultiHeadAttention", "GroupQueryAttention"],
        &[(Input(0), DimRule::Heads), (Input(0), DimRule::Cache)],
    ),
    row(
        &["Attention", "PackedAttention", "PackedMultiHeadAttention", "DecoderMaskedMultiHeadAttention"],
        &[(Input(0), DimRule::Last("")), (Input(0), DimRule::Open(4))],
    ),
    row(&["MatMulNBits", "MatMulBnb4"], &[(Input(0), DimRule::Last("N"))]),
    row(&["EmbedLayerNormalization"], &[(Input(2), DimRule::LastOf(2)), (Fixed(D::S32), DimRule::Open(1))]),
    row(
        &[
            "MatMul",
            "FusedMatMul",
            "TransposeMatMul",
            "Gemm",
            "FusedGemm",
            "GemmFastGelu",
            "DynamicQuantizeMatMul",
        ],
        &[(Input(0), DimRule::Product(0, 1))],
    ),
    row(&["MatMulIntegerToFloat"], &[(Input(2), DimRule::Product(0, 1))]),
    row(&["MatMulInteger"], &[(Fixed(D::S32), DimRule::Product(0, 1))]),
    row(&["QLinearMatMul"], &[(Input(7), DimRule::Product(0, 3))]),
    row(&["QLinearAdd", "QLinearMul"], &[(Input(0), DimRule::BroadcastOf(0, 3))]),
    row(&["DequantizeLinear"], &[(Input(1), DimRule::Same(0))]),
    row(&["QuantizeLinear"], &[(Input(2), DimRule::Same(0))]),
];

/// The types and dims of the results of a node, as far as they follow from its inputs.
pub(super) fn results(
    node: &NodeText,
    inputs: &[Option<TensorId>],
    builder: &Builder<'_>,
) -> Vec<(DataType, Option<Dims>)> {
    let is_known = ["", "ai.onnx", "com.microsoft"].contains(&&*node.domain);
    let row = ROWS.iter().find(|row| is_known && row.names.contains(&&*node.op_type));
    let Some(row) = row else { return vec![(D::Undef, None); node.outputs.len()] };
    let known = Facts { node, inputs, builder };
    let of = |index: usize| {
        let (type_rule, dim_rule) = row.results[index.min(row.results.len() - 1)];
        let data_type = data_type(&known, type_rule);
        let dims = dims(&known, dim_rule, index).filter(|dims| is_possible(data_type, dims));
        (data_type, dims.map(|dims| dims.as_slice().into()))
    };
    (0..node.outputs.len()).map(of).collect()
}

/// True if a tensor may have the dims.
fn is_possible(data_type: DataType, dims: &[i64]) -> bool {
    let known: Vec<Option<i64>> =
        dims.iter().map(|&dim| Some(dim).filter(|dim| *dim != UNKNOWN_DIM)).collect();
    LogicalTensor::partial(0, data_type, &known).is_ok()
}

fn data_type(known: &Facts<'_, '_>, of: TypeRule) -> DataType {
    match of {
        Input(index) => known.data_type(index),
        Fixed(data_type) => data_type,
        Attribute(name) => match known.int(name, 0) {
            0 => known.data_type(0),
            number => tensors::data_type(number).unwrap_or(D::Undef),
        },
    }
}

fn dims(known: &Facts<'_, '_>, dims: DimRule, output: usize) -> Option<Vec<i64>> {
    match dims {
        DimRule::Same(input) => known.dims_of(input),
        DimRule::Rank(input) => Some(open(known.dims_of(input)?.len())),
        DimRule::Open(count) => Some(open(count)),
        DimRule::Filtered(filters) => windows::filtered(known, filters),
        DimRule::Transposed => windows::transposed(known),
        DimRule::Pooled => windows::pooled(known),
        DimRule::Unpooled => windows::unpooled(known),
        DimRule::Resized => windows::resized(known),
        DimRule::PooledWhole => {
            let data = known.dims_of(0)?;
            Some((0..data.len()).map(|axis| if axis < 2 { data[axis] } else { 1 }).collect())
        }
        DimRule::Regions(regions) => {
            let length = |name, axis| match known.attribute("pooled_shape") {
                Some(shape) => shape.ints.get(axis).copied().unwrap_or(UNKNOWN_DIM),
                None => known.int(name, 1),
            };
            let rows = *known.dims_of(regions)?.first()?;
            let channels = *known.dims_of(0)?.get(1)?;
            Some(vec![rows, channels, length("output_height", 0), length("output_width", 1)])
        }
        DimRule::Grid => {
            let (data, grid) = (known.dims_of(0)?, known.dims_of(1)?);
            let (front, behind) = (data.get(..2)?, grid.get(1..grid.len().checked_sub(1)?)?);
            Some([front, behind].concat())
        }
        DimRule::Broadcast => {
            let all: Option<Vec<Vec<i64>>> =
                (0..known.inputs.len()).map(|input| known.dims_of(input)).collect();
            Some(broadcast(&all?))
        }
        DimRule::BroadcastOf(a, b) => Some(broadcast(&[known.dims_of(a)?, known.dims_of(b)?])),
        DimRule::Last(attribute) => with_last(known.dims_of(0)?, known.int(attribute, UNKNOWN_DIM)),
        DimRule::LastOf(input) => {
            let data = [known.dims_of(0)?, vec![UNKNOWN_DIM]].concat();
            with_last(data, known.dim_from_end(input, 0))
        }
        DimRule::Heads => heads(known),
        DimRule::Cache => {
            let count = match &*known.node.op_type {
                "GroupQueryAttention" => "kv_num_heads",
                _ => "num_heads",
            };
            let batch = known.dims_of(0).and_then(|dims| dims.first().copied()).unwrap_or(UNKNOWN_DIM);
            Some(vec![batch, known.int(count, UNKNOWN_DIM), UNKNOWN_DIM, UNKNOWN_DIM])
        }
        DimRule::Product(a, b) => product(known, a, b),
        DimRule::Recurrent { steps } => recurrent(known, steps && output == 0),
        other => of_places(known, other),
    }
}

/// Dims that depend on places in the data, or on numbers at an input.
fn of_places(known: &Facts<'_, '_>, dims: DimRule) -> Option<Vec<i64>> {
    match dims {
        DimRule::Gathered => {
            let data = known.dims_of(0)?;
            let axis = axis(known, 0, data.len())?;
            Some([&data[..axis], &*known.dims_of(1)?, &data[axis + 1..]].concat())
        }
        DimRule::GatheredBlocks => {
            let (data, indices) = (known.dims_of(0)?, known.dims_of(1)?);
            let (&depth, front) = indices.split_last()?;
            let batch = usize::try_from(known.int("batch_dims", 0)).ok()?;
            let from = usize::try_from(depth).ok()?.checked_add(batch)?;
            Some([front, data.get(from..)?].concat())
        }
        DimRule::ButAxis => {
            let mut data = known.dims_of(0)?;
            let axis = axis(known, -1, data.len())?;
            data[axis] = UNKNOWN_DIM;
            Some(data)
        }
        DimRule::Places => Some(vec![known.dims_of(0)?.len() as i64, UNKNOWN_DIM]),
        DimRule::Numbers(input) => {
            let [count] = *known.dims_of(input)? else { return None };
            let count = usize::try_from(count).ok().filter(|count| *count <= sterna::MAX_RANK)?;
            let numbers = known.numbers(input).filter(|all| all.iter().all(|&dim| dim > 0));
            let is_whole = known.node.op_type != "Expand";
            numbers.filter(|all| all.len() == count && is_whole).or_else(|| Some(open(count)))
        }
        _ => None,
    }
}

fn open(count: usize) -> Vec<i64> {
    vec![UNKNOWN_DIM; count]
}

/// The axis of an attribute among so many dims.
fn axis(known: &Facts<'_, '_>, default: i64, rank: usize) -> Option<usize> {
    resolved_axes(&[known.int("axis", default)], rank)?.first().copied()
}

/// Dims with another last one.
fn with_last(mut dims: Vec<i64>, last: i64) -> Option<Vec<i64>> {
    *dims.last_mut()? = last;
    Some(dims)
}

/// The product of two lengths, open if one of them is.
fn times(a: i64, b: i64) -> i64 {
    if a < 0 || b < 0 { UNKNOWN_DIM } else { a.checked_mul(b).unwrap_or(UNKNOWN_DIM) }
}

/// The dims of attention: those of the queries, with the width of the values of all heads.
fn heads(known: &Facts<'_, '_>) -> Option<Vec<i64>> {
    let queries = known.dims_of(0)?;
    let front = queries.get(..2)?;
    let count = known.int("num_heads", UNKNOWN_DIM);
    let has_keys = known.input(1).is_some();
    let width = match (&*known.node.op_type, queries.len(), known.dims_of(2)) {
        ("GroupQueryAttention", 3, _) if has_keys => queries[2],
        ("GroupQueryAttention", 3, _) => {
            let all = count.checked_add(known.int("kv_num_heads", UNKNOWN_DIM).checked_mul(2)?)?;
            let each = if queries[2] >= 0 && all > 0 { queries[2] / all } else { UNKNOWN_DIM };
            times(count, each)
        }
        (_, 3, Some(values)) if values.len() == 3 => values[2],
        (_, 3, Some(values)) if values.len() == 4 => times(count, values[3]),
        // Keys and values lie in one tensor, or all three do.
        (_, 3, None) if has_keys => times(count, known.dim_from_end(1, 0)),
        (_, 5, _) => times(count, queries[4]),
        _ => UNKNOWN_DIM,
    };
    Some([front, &[width]].concat())
}

/// The dims of a product of matrices, one of which may be transposed.
fn product(known: &Facts<'_, '_>, a: usize, b: usize) -> Option<Vec<i64>> {
    let (mut a, mut b) = (known.dims_of(a)?, known.dims_of(b)?);
    if a.len() < 2 || b.len() < 2 {
        let rank = (a.len().max(b.len())).checked_sub(1)?;
        return Some(open(rank));
    }
    for (dims, flag) in [(&mut a, "transA"), (&mut b, "transB")] {
        if known.int(flag, 0) != 0 {
            let last = dims.len() - 1;
            dims.swap(last - 1, last);
        }
    }
    if ["transBatchA", "transBatchB"].iter().any(|flag| known.int(flag, 0) != 0) {
        return Some(open(a.len().max(b.len())));
    }
    let ((front_a, own_a), (front_b, own_b)) = (a.split_at(a.len() - 2), b.split_at(b.len() - 2));
    let front = broadcast(&[front_a.to_vec(), front_b.to_vec()]);
    Some([&*front, &[own_a[0], own_b[1]]].concat())
}

/// The dims of all steps of a recurrent network, or of the last one.
fn recurrent(known: &Facts<'_, '_>, steps: bool) -> Option<Vec<i64>> {
    let data = known.dims_of(0)?;
    let hidden = known.int("hidden_size", known.dim_from_end(2, 0));
    let directions = *known.dims_of(1)?.first()?;
    let [first, second, _] = *data else { return Some(open(if steps { 4 } else { 3 })) };
    Some(match (known.int("layout", 0) == 0, steps) {
        (true, true) => vec![first, directions, second, hidden],
        (true, false) => vec![directions, second, hidden],
        (false, true) => vec![first, second, directions, hidden],
        (false, false) => vec![first, directions, hidden],
    })
}

/// The dims of tensors that broadcast to each other; open where one of several is.
fn broadcast(all: &[Vec<i64>]) -> Vec<i64> {
    let rank = all.iter().map(Vec::len).max().unwrap_or(0);
    let along = |axis: usize| {
        let own = all.iter().filter_map(|dims| dims.get((dims.len() + axis).checked_sub(rank)?));
        let others: Vec<i64> = own.copied().filter(|&dim| dim != 1).collect();
        match &*others {
            [] => 1,
            [first, rest @ ..] if rest.iter().all(|dim| dim == first) => *first,
            _ => others.iter().copied().find(|&dim| dim != UNKNOWN_DIM).unwrap_or(UNKNOWN_DIM),
        }
    };
    (0..rank).map(along).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_name_each_op_once() {
        let names: Vec<&str> = ROWS.iter().flat_map(|row| row.names).copied().collect();
        let twice: Vec<&&str> = names
            .iter()
            .enumerate()
            .filter(|(at, name)| names[..*at].contains(name))
            .map(|(_, n)| n)
            .collect();
        assert!(twice.is_empty(), "{twice:?}");
        assert!(ROWS.iter().all(|row| !row.results.is_empty()));
    }

    #[test]
    fn dims_broadcast_from_the_right() {
        let open = UNKNOWN_DIM;
        assert_eq!(broadcast(&[vec![2, 1, open], vec![3, 1]]), [2, 3, open]);
        assert_eq!(broadcast(&[vec![open], vec![4]]), [4]);
        assert_eq!(broadcast(&[vec![], vec![1]]), [1]);
    }
}
