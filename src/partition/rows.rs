//! Which ops work on rows and have kernels.

use super::fusion::{FusionVerdict, GroupView};
use super::pointwise::Pointwise;
use crate::graph::infer;
use crate::graph::op::Op;
use crate::types::dtype::DataType;
use crate::types::kind::OpKind;

/// True if kernels over rows run an op on its types.
pub(crate) fn is_on_rows(op: &Op) -> bool {
    use OpKind as K;
    let is_kind = match op.kind() {
        K::SoftMax
        | K::SoftMaxBackward
        | K::LogSoftmax
        | K::LogSoftmaxBackward
        | K::LayerNorm
        | K::LayerNormBackward
        | K::RMSNorm
        | K::GroupNorm
        | K::BiasAddBackward
        | K::PReLUBackward
        | K::BatchNormForwardTraining
        | K::BatchNormTrainingBackward => true,
        // Axes that are a tensor are known only when it runs, so no shape can be planned.
        _ if infer::is_reduction(op) => op.inputs().len() == 1,
        _ => false,
    };
    let is_float = |t: DataType| [DataType::F32, DataType::Bf16, DataType::F16].contains(&t);
    // The schema lets sums have the types that kernels have.
    let is_sum = op.kind() == K::CumSum;
    is_sum || is_kind && op.inputs().iter().chain(op.outputs()).all(|tensor| is_float(tensor.data_type()))
}

/// Matched if a group around an op on rows absorbs an op: a pointwise op that uses a result of a member; or
/// one that computes the first input of the op on rows, or an operand of another pointwise member, and that
/// no op outside uses.
pub(super) fn grow(group: &GroupView<'_>, op: usize, most: usize) -> FusionVerdict {
    let graph = group.graph;
    if Pointwise::of(graph.ops[op]).is_none() {
        return FusionVerdict::NoMatch;
    }
    if group.is_full(most) {
        return FusionVerdict::Rejected("the group has as many ops as a group may have");
    }
    if graph.uses_any(op, group.members) {
        return FusionVerdict::Matched;
    }
    if !graph.feeds_only(op, group.members) {
        return FusionVerdict::Rejected("an op outside of the group uses the result");
    }
    let result = graph.ops[op].outputs()[0].id();
    let is_parameter = graph
        .consumers(op)
        .map(|&user| graph.ops[user])
        .any(|user| is_on_rows(user) && user.inputs().iter().skip(1).any(|input| input.id() == result));
    match is_parameter {
        true => FusionVerdict::Rejected("the op on rows uses the result for all rows"),
        false => FusionVerdict::Matched,
    }
}
