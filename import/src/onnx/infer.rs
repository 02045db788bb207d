//! The types and dims of the results of a node that becomes an op `Wildcard`, as far as they follow from its
//! inputs.

use sterna::{DataType, Dims, TensorId};

use super::proto::NodeText;
use super::tensors;
use crate::builder::Builder;
use crate::compose::resolved_axes;
use crate::dims::UNKNOWN_DIM;
use crate::weights::integers;

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
    /// The batch, as many channels as there are filters, and open dims.
    Filtered,
    /// Batch and channels, and open dims.
    Pooled,
    /// Those of the inputs, which broadcast to each other.
    Broadcast,
    /// Those of the data with those of indices in place of an axis.
    Gathered,
    /// Those of the data without the last of the indices, behind those of the indices.
    GatheredBlocks,
    /// Those of the data, but for an axis.
    ButAxis,
    /// Those of the data but for the last.
    ButLast,
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
    row(&["Conv", "FusedConv", "DeformConv"], &[(Input(0), DimRule::Filtered)]),
    row(&["ConvInteger"], &[(Fixed(D::S32), DimRule::Filtered)]),
    row(&["QLinearConv"], &[(Input(7), DimRule::Rank(0))]),
    row(&["ConvTranspose", "Upsample", "Resize", "GridSample"], &[(Input(0), DimRule::Rank(0))]),
    row(&["MaxPool"], &[(Input(0), DimRule::Pooled), (Fixed(D::S64), DimRule::Pooled)]),
    row(
        &["AveragePool", "LpPool", "GlobalLpPool", "MaxRoiPool", "RoiAlign", "MaxUnpool"],
        &[(Input(0), DimRule::Pooled)],
    ),
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
        &["Attention", "MultiHeadAttention", "GroupQueryAttention", "PackedAttention", "MatMulNBits", "MoE"],
        &[(Input(0), DimRule::ButLast), (Input(0), DimRule::Open(4))],
    ),
    row(&["MatMul", "FusedMatMul", "Gemm"], &[(Input(0), DimRule::Rank(0))]),
    row(&["MatMulInteger"], &[(Fixed(D::S32), DimRule::Rank(0))]),
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
    let known = NodeFacts { node, inputs, builder };
    let of = |index: usize| {
        let (data_type, dims) = row.results[index.min(row.results.len() - 1)];
        let dims = known.dims(dims, index).filter(|dims| dims.len() <= sterna::MAX_RANK);
        (known.data_type(data_type), dims)
    };
    (0..node.outputs.len()).map(of).collect()
}

/// A node, and what is known of its inputs.
struct NodeFacts<'a, 'b> {
    node: &'a NodeText,
    inputs: &'a [Option<TensorId>],
    builder: &'a Builder<'b>,
}

impl NodeFacts<'_, '_> {
    fn input(&self, index: usize) -> Option<TensorId> {
        self.inputs.get(index).copied().flatten()
    }

    fn dims_of(&self, index: usize) -> Option<Vec<i64>> {
        self.builder.dims(self.input(index)?).map(<[i64]>::to_vec)
    }

    fn int(&self, name: &str, default: i64) -> i64 {
        let attribute = self.node.attributes.iter().find(|attribute| attribute.name == name);
        attribute.map_or(default, |attribute| attribute.int)
    }

    fn data_type(&self, of: TypeRule) -> DataType {
        let of_input = |index| self.input(index).map_or(D::Undef, |input| self.builder.data_type(input));
        match of {
            Input(index) => of_input(index),
            Fixed(data_type) => data_type,
            Attribute(name) => match self.int(name, 0) {
                0 => of_input(0),
                number => tensors::data_type(number).unwrap_or(D::Undef),
            },
        }
    }

    /// The axis of an attribute among so many dims.
    fn axis(&self, default: i64, rank: usize) -> Option<usize> {
        resolved_axes(&[self.int("axis", default)], rank)?.first().copied()
    }

    fn dims(&self, dims: DimRule, output: usize) -> Option<Dims> {
        let open = |count: usize| vec![UNKNOWN_DIM; count];
        let dims = match dims {
            DimRule::Same(input) => self.dims_of(input)?,
            DimRule::Rank(input) => open(self.dims_of(input)?.len()),
            DimRule::Open(count) => open(count),
            DimRule::Filtered | DimRule::Pooled => {
                let data = self.dims_of(0)?;
                let mut result = open(data.len());
                let channels = match dims {
                    DimRule::Filtered => self.dims_of(1).and_then(|filters| filters.first().copied()),
                    _ => data.get(1).copied(),
                };
                let known = [data.first().copied(), channels];
                result.iter_mut().zip(known).for_each(|(dim, known)| *dim = known.unwrap_or(UNKNOWN_DIM));
                result
            }
            DimRule::Broadcast => {
                let all: Option<Vec<Vec<i64>>> =
                    (0..self.inputs.len()).map(|input| self.dims_of(input)).collect();
                broadcast(&all?)
            }
            DimRule::Gathered => {
                let data = self.dims_of(0)?;
                let axis = self.axis(0, data.len())?;
                [&data[..axis], &*self.dims_of(1)?, &data[axis + 1..]].concat()
            }
            DimRule::GatheredBlocks => {
                let (data, indices) = (self.dims_of(0)?, self.dims_of(1)?);
                let (&depth, front) = indices.split_last()?;
                let batch = usize::try_from(self.int("batch_dims", 0)).ok()?;
                let from = usize::try_from(depth).ok()?.checked_add(batch)?;
                [front, data.get(from..)?].concat()
            }
            DimRule::ButAxis | DimRule::ButLast => {
                let mut data = self.dims_of(0)?;
                let axis = match dims {
                    DimRule::ButAxis => self.axis(-1, data.len())?,
                    _ => data.len().checked_sub(1)?,
                };
                data[axis] = UNKNOWN_DIM;
                data
            }
            DimRule::Places => vec![self.dims_of(0)?.len() as i64, UNKNOWN_DIM],
            DimRule::Recurrent { steps } => {
                let (data, hidden) = (self.dims_of(0)?, self.int("hidden_size", UNKNOWN_DIM));
                let directions = *self.dims_of(1)?.first()?;
                let in_front = self.int("layout", 0) == 0 && data.len() == 3;
                match (steps && output == 0, in_front) {
                    (true, true) => vec![data[0], directions, data[1], hidden],
                    (false, true) => vec![directions, data[1], hidden],
                    (full, false) => open(if full { 4 } else { 3 }),
                }
            }
            DimRule::Numbers(input) => {
                let count = match *self.dims_of(input)? {
                    [count] => usize::try_from(count).ok()?,
                    _ => return None,
                };
                let value = self.input(input).and_then(|input| self.builder.value(input));
                let known = value.and_then(integers).filter(|all| all.iter().all(|&dim| dim > 0));
                known.filter(|all| all.len() == count && self.node.op_type != "Expand").unwrap_or(open(
                    match count <= sterna::MAX_RANK {
                        true => count,
                        false => return None,
                    },
                ))
            }
        };
        Some(dims.as_slice().into())
    }
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
