//! The table of ops on rows. To add an op whose work a phase knows is to add a row.

use super::lowering::RowsLowering;
use super::ops;
use crate::compile::row_axes::RowAxes;
use crate::error::Result;
use crate::graph::infer;
use crate::graph::op::Op;
use crate::types::kind::OpKind as K;
use crate::types::shape::Dims;

/// The axes of places and those along rows, by the dims of the source.
type AxesRule = fn(&Op, &Dims) -> Result<RowAxes>;

/// Adds the phases of an op; `None` if no kernel takes the types.
type LowerRule = fn(&mut RowsLowering<'_, '_>) -> Result<Option<()>>;

/// An op on rows.
#[derive(Clone, Copy)]
pub(super) struct RowOp {
    pub(super) kind: K,
    pub(super) axes: AxesRule,
    pub(super) lower: LowerRule,
    pub(super) parts: RowParts,
    pub(super) programs: ProgramSpace,
    /// Time for an element, in bytes that could be moved in the same time.
    pub(super) cost: usize,
    /// True if the source is read along any strides from any first element on.
    pub(super) is_strided: bool,
    /// True if the first result may take the memory of the source.
    pub(super) is_in_place: bool,
    /// True if phases of their own compute the other results, from the source in memory.
    pub(super) reads_again: bool,
}

/// The parts of a row that are worked on one after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowParts {
    /// Results depend on the whole row: parts are measured by a phase before.
    Measured,
    /// A part is combined to a number.
    Combined,
    /// No element depends on another part but the part before.
    Apart,
}

/// The space of the programs that run before and behind the work on a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProgramSpace {
    /// None run there.
    None,
    /// The dims of the source.
    Source,
    /// The dims of the source, with those of groups apart.
    Groups,
}

const fn row(kind: K, axes: AxesRule, lower: LowerRule) -> RowOp {
    RowOp {
        kind,
        axes,
        lower,
        parts: RowParts::Measured,
        programs: ProgramSpace::Source,
        cost: 8,
        is_strided: false,
        is_in_place: false,
        reads_again: false,
    }
}

const fn reduction(kind: K) -> RowOp {
    RowOp { parts: RowParts::Combined, is_strided: true, ..row(kind, reduced, ops::reduction) }
}

/// An op whose result has the places of its only operand in rows.
const fn strided(row: RowOp) -> RowOp {
    RowOp { is_strided: true, is_in_place: true, ..row }
}

/// Every op on rows.
pub(super) const ROW_OPS: &[RowOp] = &[
    strided(RowOp { cost: 16, ..row(K::SoftMax, one_axis, ops::softmax) }),
    strided(RowOp { cost: 16, ..row(K::LogSoftmax, one_axis, ops::softmax) }),
    row(K::SoftMaxBackward, one_axis, ops::softmax_backward),
    RowOp { cost: 16, ..row(K::LogSoftmaxBackward, one_axis, ops::softmax_backward) },
    strided(row(K::LayerNorm, normalised, ops::norm)),
    strided(row(K::RMSNorm, normalised, ops::norm)),
    RowOp { programs: ProgramSpace::Groups, ..strided(row(K::GroupNorm, groups, ops::group_norm)) },
    RowOp { cost: 16, reads_again: true, ..row(K::LayerNormBackward, normalised, ops::layer_norm_backward) },
    strided(RowOp { parts: RowParts::Apart, ..row(K::CumSum, one_axis, ops::cum_sum) }),
    RowOp {
        parts: RowParts::Apart,
        reads_again: true,
        ..row(K::PReLUBackward, last_axis, ops::prelu_backward)
    },
    RowOp {
        parts: RowParts::Combined,
        programs: ProgramSpace::None,
        is_strided: true,
        ..row(K::BiasAddBackward, all_but_channels, ops::bias_gradient)
    },
    RowOp {
        parts: RowParts::Combined,
        programs: ProgramSpace::None,
        ..row(K::BatchNormTrainingBackward, all_but_channels, ops::batch_norm_sums)
    },
    reduction(K::ReduceSum),
    reduction(K::ReduceMean),
    reduction(K::ReduceMax),
    reduction(K::ReduceMin),
    reduction(K::ReduceProd),
    reduction(K::ReduceL1),
    reduction(K::ReduceL2),
];

impl RowOp {
    /// The row of an op; `None` if it is no op on rows.
    pub(super) fn of(op: &Op) -> Option<&'static Self> {
        ROW_OPS.iter().find(|row| row.kind == op.kind())
    }
}

fn one_axis(op: &Op, dims: &Dims) -> Result<RowAxes> {
    let along = infer::resolved_axis(op, dims)?;
    Ok(RowAxes::new(dims, |axis| axis == along))
}

fn normalised(op: &Op, dims: &Dims) -> Result<RowAxes> {
    let begin = infer::norm_axis(op, dims)?;
    Ok(RowAxes::new(dims, |axis| axis >= begin))
}

fn last_axis(_: &Op, dims: &Dims) -> Result<RowAxes> {
    Ok(RowAxes::new(dims, |axis| axis + 1 == dims.len()))
}

fn reduced(op: &Op, dims: &Dims) -> Result<RowAxes> {
    let along = infer::reduced_axes(op, dims)?;
    Ok(RowAxes::new(dims, |axis| along.contains(&axis)))
}

fn groups(op: &Op, dims: &Dims) -> Result<RowAxes> {
    Ok(RowAxes::of_groups(&infer::channel_groups(op, dims)?, dims))
}

fn all_but_channels(op: &Op, dims: &Dims) -> Result<RowAxes> {
    let channels = infer::channel_axis(op, dims)?;
    Ok(RowAxes::new(dims, |axis| axis != channels))
}
