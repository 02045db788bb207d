//! The roles of tensors and the work of each op on rows. The rows of `table.rs` name these functions.

use smallvec::{SmallVec, smallvec};

use super::lowering::{RowCall, RowsLowering};
use super::phase::{Fused, Roles};
use crate::compile::phases::PlacedTensor;
use crate::compile::row_axes::{Along, AxisOperand, RowAxes, along};
use crate::error::Result;
use crate::graph::infer;
use crate::graph::op::Op;
use crate::kernels::rows::{self, Fold, ScanOrder};
use crate::plan::{FoldFinish, RowMap, RowWork};
use crate::types::kind::{Attr, OpKind};

/// A sum without a last step.
const SUM: (Fold, FoldFinish) = (Fold::Sum, FoldFinish::AsItIs);

fn epsilon(op: &Op) -> f64 {
    f64::from(op.f32_attr(Attr::Epsilon).unwrap_or(0.0))
}

/// SoftMax and LogSoftmax.
pub(super) fn softmax(lowering: &mut RowsLowering<'_, '_>) -> Result<Option<()>> {
    let RowsLowering { call, axes, .. } = *lowering;
    let op = call.op;
    let work = RowWork::SoftMax {
        kernel: rows::softmax(lowering.builder.level),
        inf_as_zero: op.str_attr(Attr::Mode) == Some("inf_as_zero"),
        is_logarithm: op.kind() == OpKind::LogSoftmax,
    };
    let stats = call.result(1).map(|stats| call.whole(stats));
    lowering.add_results(op, work, axes, Roles { numbers: smallvec![stats], ..call.roles() });
    Ok(Some(()))
}

/// The gradients of SoftMax and LogSoftmax.
pub(super) fn softmax_backward(lowering: &mut RowsLowering<'_, '_>) -> Result<Option<()>> {
    let RowsLowering { call, axes, .. } = *lowering;
    let level = lowering.builder.level;
    let kernel = match call.op.kind() {
        OpKind::SoftMaxBackward => rows::softmax_backward(level),
        _ => rows::log_softmax_backward(level),
    };
    let operands = call.inputs[..2].iter().map(|input| call.whole(input)).collect();
    let roles = Roles { operands, ..call.roles() };
    lowering.add_results(call.op, RowWork::SoftMaxBackward(kernel), axes, roles);
    Ok(Some(()))
}

/// LayerNorm and RMSNorm.
pub(super) fn norm(lowering: &mut RowsLowering<'_, '_>) -> Result<Option<()>> {
    let RowsLowering { call, axes, .. } = *lowering;
    let op = call.op;
    let begin = infer::norm_axis(op, call.dims())?;
    let is_centred = op.kind() == OpKind::LayerNorm;
    let is_affine = op.get_attr(Attr::UseAffine).is_none() || op.bool_attr(Attr::UseAffine);
    let parameters = if is_affine || !is_centred { &call.inputs[1..] } else { &[] };
    let statistics = |index: usize| call.result(index).map(|to| call.leading(to, begin));
    let roles = Roles {
        parameters: parameters.iter().map(|parameter| call.trailing(parameter)).collect(),
        numbers: smallvec![statistics(1), statistics(2)],
        ..call.roles()
    };
    let work = RowWork::Norm { kernel: rows::norm(lowering.builder.level), is_centred, epsilon: epsilon(op) };
    lowering.add_results(op, work, axes, roles);
    Ok(Some(()))
}

/// CumSum.
pub(super) fn cum_sum(lowering: &mut RowsLowering<'_, '_>) -> Result<Option<()>> {
    let RowsLowering { call, axes, .. } = *lowering;
    let Some(kernels) = rows::scan(lowering.builder.level, call.inputs[0].data_type) else { return Ok(None) };
    let order = ScanOrder {
        is_exclusive: call.op.bool_attr(Attr::Exclusive),
        is_reverse: call.op.bool_attr(Attr::Reverse),
    };
    lowering.add(call.op, RowWork::Scan { kernels, order, by_columns: false }, axes, call.roles());
    Ok(Some(()))
}

/// Reductions along axes; without any, the elements as they are.
pub(super) fn reduction(lowering: &mut RowsLowering<'_, '_>) -> Result<Option<()>> {
    let RowsLowering { call, axes, .. } = *lowering;
    let (op, dims, rank) = (call.op, call.dims(), call.dims().len());
    let Some(to) = call.result(0) else { return Ok(None) };
    if axes.along.is_empty() {
        let axes = RowAxes::new(dims, |axis| axis + 1 == rank);
        lowering.add(op, RowWork::Copy, &axes, call.roles());
        return Ok(Some(()));
    }
    let keeps = op.bool_attr(Attr::KeepDims);
    let dim = |axis: usize| match keeps {
        true => Some(axis).filter(|axis| !axes.along.contains(axis)),
        false => axes.places.iter().position(|&place| place == axis),
    };
    let to = to.along((0..rank).map(dim));
    let fold = match op.kind() {
        OpKind::ReduceMean => (Fold::Sum, FoldFinish::Mean(axes.length() as f64)),
        OpKind::ReduceMax => (Fold::Maximum, FoldFinish::AsItIs),
        OpKind::ReduceMin => (Fold::Minimum, FoldFinish::AsItIs),
        OpKind::ReduceProd => (Fold::Product, FoldFinish::AsItIs),
        OpKind::ReduceL1 => (Fold::SumOfSizes, FoldFinish::AsItIs),
        OpKind::ReduceL2 => (Fold::SumOfSquares, FoldFinish::Root),
        _ => SUM,
    };
    let fold = if call.is_squared { (Fold::SumOfRoundedSquares, fold.1) } else { fold };
    let roles = Roles { operands: smallvec![call.source()], ..Roles::default() };
    lowering.reduce(op, fold, RowMap::None, axes, roles, to);
    Ok(Some(()))
}

/// BiasAddBackward: sums over all but the channels.
pub(super) fn bias_gradient(lowering: &mut RowsLowering<'_, '_>) -> Result<Option<()>> {
    let RowsLowering { call, axes, .. } = *lowering;
    let Some(to) = call.result(0) else { return Ok(None) };
    let to = to.along((0..call.dims().len()).map(|axis| axes.places.contains(&axis).then_some(0)));
    let roles = Roles { operands: smallvec![call.source()], ..Roles::default() };
    lowering.reduce(call.op, SUM, RowMap::None, axes, roles, to);
    Ok(Some(()))
}

/// PReLUBackward: the gradient of the source element by element, that of the slopes as sums.
pub(super) fn prelu_backward(lowering: &mut RowsLowering<'_, '_>) -> Result<Option<()>> {
    let RowsLowering { call, axes, .. } = *lowering;
    let (op, dims, level) = (call.op, call.dims(), lowering.builder.level);
    let [source, slope, gradient] = call.inputs else { return Ok(None) };
    let start = infer::slope_start(op, &[dims, &slope.dims])?;
    let onto = |tensor: &PlacedTensor| tensor.onto(dims.len(), start);
    let [source, gradient] = [source, gradient].map(|tensor| call.whole(tensor));
    if let Some(to) = call.result(0) {
        let operands = smallvec![source.clone(), onto(slope), gradient.clone()];
        let roles = Roles { operands, result: Some(call.whole(to)), ..Roles::default() };
        lowering.add(op, RowWork::PreluBackward(rows::prelu_backward(level)), axes, roles);
        lowering.fused = Fused::default();
    }
    if let Some(to) = call.result(1) {
        let repeated = |axis: usize| {
            axis.checked_sub(start).is_none_or(|dim| slope.dims.get(dim).is_none_or(|&dim| dim == 1))
        };
        let roles = Roles { operands: smallvec![source, gradient], ..Roles::default() };
        let map = RowMap::Prelu(rows::prelu_products(level));
        lowering.reduce(op, SUM, map, &RowAxes::new(dims, repeated), roles, onto(to));
    }
    Ok(Some(()))
}

/// LayerNormBackward: the gradient of the source by rows; those of gamma and beta are sums over all rows.
pub(super) fn layer_norm_backward(lowering: &mut RowsLowering<'_, '_>) -> Result<Option<()>> {
    let RowsLowering { call, axes, .. } = *lowering;
    let (op, inputs, dims) = (call.op, call.inputs, call.dims());
    let (level, rank, epsilon) = (lowering.builder.level, dims.len(), epsilon(call.op));
    let begin = infer::norm_axis(op, dims)?;
    let operands: SmallVec<[AxisOperand; 3]> = inputs[..2].iter().map(|input| call.whole(input)).collect();
    let given: SmallVec<[AxisOperand; 2]> =
        inputs[2..4].iter().map(|statistics| call.leading(statistics, begin)).collect();
    if let Some(to) = call.result(0) {
        let gamma = inputs.get(4).filter(|_| op.bool_attr(Attr::UseAffine));
        let roles = Roles {
            operands: operands.clone(),
            result: Some(call.whole(to)),
            parameters: gamma.map(|gamma| call.trailing(gamma)).into_iter().collect(),
            given: given.clone(),
            ..Roles::default()
        };
        let work = RowWork::NormBackward { kernel: rows::norm_backward(level), epsilon };
        lowering.add_results(op, work, axes, roles);
        lowering.fused = Fused::default();
    }
    for (index, operands) in [(1, operands), (2, smallvec![call.whole(&inputs[1])])] {
        let Some(to) = call.result(index) else { continue };
        let start = rank - to.dims.len();
        let is_repeated = |axis: usize| axis < start.max(begin) || to.dims[axis - start] == 1;
        let (map, given) = match index {
            1 => {
                let kernel = rows::norm_products(level);
                (RowMap::Norm { kernel, epsilon, is_by_place: false }, given.clone())
            }
            _ => (RowMap::None, SmallVec::new()),
        };
        let roles = Roles { operands, given, ..Roles::default() };
        lowering.reduce(op, SUM, map, &RowAxes::new(dims, is_repeated), roles, call.trailing(to));
    }
    Ok(Some(()))
}

/// The sums of BatchNormTrainingBackward: the gradients of gamma and beta. Other ops have that of the source.
pub(super) fn batch_norm_sums(lowering: &mut RowsLowering<'_, '_>) -> Result<Option<()>> {
    let RowsLowering { call, axes, .. } = *lowering;
    let (op, level, epsilon) = (call.op, lowering.builder.level, epsilon(call.op));
    let [source, gradient] = [0, 1].map(|index| call.whole(&call.inputs[index]));
    let of_channels = |tensor: &PlacedTensor| {
        tensor.along((0..call.dims().len()).map(|axis| axes.places.contains(&axis).then_some(0)))
    };
    if let Some(to) = call.result(1) {
        let roles = Roles {
            operands: smallvec![source, gradient.clone()],
            given: call.inputs[2..4].iter().map(of_channels).collect(),
            ..Roles::default()
        };
        let map = RowMap::Norm { kernel: rows::norm_products(level), epsilon, is_by_place: true };
        lowering.reduce(op, SUM, map, axes, roles, of_channels(to));
    }
    if let Some(to) = call.result(2) {
        let roles = Roles { operands: smallvec![gradient], ..Roles::default() };
        lowering.reduce(op, SUM, RowMap::None, axes, roles, of_channels(to));
    }
    Ok(Some(()))
}

/// GroupNorm: the channels of a group and all that lies beside them are a row.
pub(super) fn group_norm(lowering: &mut RowsLowering<'_, '_>) -> Result<Option<()>> {
    let RowsLowering { call, axes, .. } = *lowering;
    let (op, source) = (call.op, &call.inputs[0]);
    let groups = infer::channel_groups(op, &source.dims)?;
    let infer::ChannelGroups { axis, channels, .. } = groups;
    let roles = roles_of_groups(call, axis, channels as isize);
    let level = lowering.builder.level;
    let by_rows = RowWork::Norm { kernel: rows::norm(level), is_centred: true, epsilon: epsilon(op) };
    let count = groups.groups as usize;
    let [of_source, of_result] = [roles.operands.first(), roles.result.as_ref()]
        .map(|operand| operand.is_some_and(|operand| lies_by_channels(operand, axes, axis)));
    if !of_source {
        lowering.add_results(op, by_rows, axes, roles);
        return Ok(Some(()));
    }
    // The source alone decides how it is measured, so that no bit depends on what else is in the group.
    let channels = channels as usize;
    let by_channels = RowWork::ChannelNorm { kernels: rows::channels(level), channels, epsilon: epsilon(op) };
    let of_channels = RowAxes::of_groups(&groups, &source.dims).with_last_along(axis + 1);
    let part = of_channels.part_of_channels(channels, count);
    let [measuring, roles] = lowering.split(roles, axes, part);
    // Programs hand over one row a place (decision: norm-channels-alone).
    let mut alone = Fused { tile: Some((count, Some(1))), ..Fused::default() };
    lowering.add_fused(op, by_channels, &of_channels, measuring, &mut alone);
    match of_result {
        true => lowering.add_fused(op, by_channels, &of_channels, roles, &mut alone),
        false => lowering.add(op, by_rows, axes, Roles { part: None, ..roles }),
    }
    Ok(Some(()))
}

/// The roles of GroupNorm, with the dim of channels as that of groups and that of the channels of a group.
fn roles_of_groups(call: &RowCall<'_>, axis: usize, channels: isize) -> Roles {
    let rank = call.dims().len();
    let split = |mut operand: AxisOperand| {
        let stride = operand.strides[axis];
        operand.strides.insert(axis, stride * channels);
        operand
    };
    let of_channels =
        |tensor: &PlacedTensor| split(tensor.along((0..rank).map(|other| (other == axis).then_some(0))));
    let of_groups = |tensor: &PlacedTensor| {
        tensor.along((0..=rank).map(|other| match other {
            0 => Some(0),
            _ => (other == axis).then_some(1),
        }))
    };
    let is_affine = call.op.bool_attr(Attr::UseAffine);
    Roles {
        operands: smallvec![split(call.source())],
        result: call.result(0).map(|to| split(call.whole(to))),
        parameters: call.inputs[1..].iter().filter(|_| is_affine).map(of_channels).collect(),
        numbers: smallvec![call.result(1).map(of_groups), call.result(2).map(of_groups)],
        ..Roles::default()
    }
}

/// True if the channels of all groups lie beside each other, and positions at one stride. `axis` is that of
/// groups, and the next one that of the channels of a group.
fn lies_by_channels(operand: &AxisOperand, axes: &RowAxes, axis: usize) -> bool {
    let (bytes, channels) = (operand.bytes() as isize, axes.dims[axis + 1] as isize);
    let of_positions = RowAxes::new(&axes.dims, |other| axes.along.contains(&other) && other != axis + 1);
    !operand.is_of_program()
        && axes.dims[axis] > 1
        && channels > 0
        && operand.strides[axis] == bytes * channels
        && (channels == 1 || operand.strides[axis + 1] == bytes)
        && matches!(along(&of_positions, operand)[..], [(positions, _)] if positions > 1)
}
