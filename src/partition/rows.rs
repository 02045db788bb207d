//! Which ops work on rows and have kernels.

use crate::graph::op::Op;
use crate::types::dtype::DataType;
use crate::types::kind::OpKind;

/// Whether kernels over rows run an op on its types.
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
        | K::PReLUBackward => true,
        // Axes that are a tensor are known only when it runs, so no shape can be planned.
        K::ReduceSum
        | K::ReduceMean
        | K::ReduceMax
        | K::ReduceMin
        | K::ReduceProd
        | K::ReduceL1
        | K::ReduceL2 => op.inputs().len() == 1,
        _ => false,
    };
    let is_float = |t: DataType| [DataType::F32, DataType::Bf16, DataType::F16].contains(&t);
    is_kind && op.inputs().iter().chain(op.outputs()).all(|tensor| is_float(tensor.data_type()))
}
