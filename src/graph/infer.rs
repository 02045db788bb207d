//! The shape rules of schema rows: output shapes from input shapes.

use smallvec::{SmallVec, smallvec};

pub(crate) use super::axis::resolved_axis;
use super::axis::{dim_of, shape_error, unfit};
use super::interpolate;
use super::lookup;
use super::op::Op;
use super::paged::{LoadedRows, stored_shape};
use super::row::{Schema, ShapeRule};
use super::windows;
use crate::error::{Error, Result, ShapeFault};
use crate::types::kind::{Attr, AutoBroadcast, OpKind};
use crate::types::shape::{self, BroadcastFault, Dims, MAX_RANK};

/// The shapes of an op's outputs, by index; `None` if the rule of its kind is not implemented.
///
/// # Errors
///
/// [`Error::Shape`] if the input shapes contradict the rule, or if the result has more elements than i64
/// counts.
pub(crate) fn output_shapes(op: &Op, inputs: &[&[i64]]) -> Result<Option<SmallVec<[Dims; 1]>>> {
    let shapes: SmallVec<[Dims; 1]> = match Schema::of(op.kind()).shape_rule {
        ShapeRule::Identity => smallvec![inputs[0].into(); op.outputs().len()],
        ShapeRule::Matmul => smallvec![matmul_shape(op, inputs)?],
        ShapeRule::Softmax => softmax_shapes(op, inputs)?,
        ShapeRule::AlongAxis => {
            resolved_axis(op, inputs[0])?;
            smallvec![inputs[0].into()]
        }
        ShapeRule::Gather
        | ShapeRule::GatherElements
        | ShapeRule::GatherNd
        | ShapeRule::GatherBackward
        | ShapeRule::ScatterElements
        | ShapeRule::ScatterNd => smallvec![lookup::space(op, inputs)?.result],
        ShapeRule::TopK => {
            let of = lookup::first_along(op, inputs[0])?;
            smallvec![of.shape(inputs[0], true); op.outputs().len()]
        }
        ShapeRule::PlaceAlongAxis => {
            let keep_dims = op.bool_attr(Attr::KeepDims);
            smallvec![lookup::first_along(op, inputs[0])?.shape(inputs[0], keep_dims)]
        }
        ShapeRule::PagedLoad => smallvec![LoadedRows::new(op, inputs)?.shape()],
        ShapeRule::CacheStore => smallvec![stored_shape(op, inputs)?],
        ShapeRule::StaticTranspose => smallvec![transposed_shape(op, inputs[0])?],
        ShapeRule::StaticReshape => smallvec![reshaped_shape(op, inputs[0])?],
        ShapeRule::Slice => smallvec![sliced_shape(op, inputs[0])?],
        ShapeRule::Concat => smallvec![concat_shape(op, inputs)?],
        // Axes that are an input are not known before its data are.
        ShapeRule::Reduce if inputs.len() > 1 => return Ok(None),
        ShapeRule::Reduce => smallvec![reduced_shape(op, inputs[0])?],
        ShapeRule::BiasBackprop => smallvec![smallvec![inputs[0][channel_axis(op, inputs[0])?]]],
        ShapeRule::PreluBwd => {
            slope_start(op, inputs)?;
            same_shape(op, inputs, 2)?;
            smallvec![inputs[0].into(), inputs[1].into()]
        }
        ShapeRule::SoftmaxBackward => {
            same_shapes(op, inputs)?;
            resolved_axis(op, inputs[0])?;
            smallvec![inputs[0].into()]
        }
        ShapeRule::Norm => norm_shapes(op, inputs)?,
        ShapeRule::NormBprop => norm_backward_shapes(op, inputs)?,
        ShapeRule::Groupnorm => group_norm_shapes(op, inputs)?,
        ShapeRule::BatchNorm | ShapeRule::BnFwdTrain => batch_norm_shapes(op, inputs, 1)?,
        ShapeRule::BnBwd => {
            same_shape(op, inputs, 1)?;
            batch_norm_shapes(op, inputs, 2)?
        }
        ShapeRule::Interpolate => smallvec![interpolate::result_shape(op, inputs[0])?],
        ShapeRule::InterpolateBackward => smallvec![interpolate::source_shape(op, inputs)?],
        ShapeRule::Quantization => {
            parameter_counts(op, inputs)?;
            smallvec![inputs[0].into()]
        }
        ShapeRule::Dropout => dropout_shapes(op, inputs)?,
        ShapeRule::Conv
        | ShapeRule::ConvBpropData
        | ShapeRule::ConvBpropFilters
        | ShapeRule::Convtranspose
        | ShapeRule::ConvtransposeBpropData
        | ShapeRule::ConvtransposeBpropFilters
        | ShapeRule::Pool
        | ShapeRule::PoolBwd => match windows::result(op, inputs)? {
            Some(result) => smallvec![result],
            None => return Ok(None),
        },
        _ => match placement(op, inputs)? {
            Some(placement) => smallvec![placement.result],
            None => return Ok(None),
        },
    };
    match shapes.iter().find(|dims| shape::element_count(dims).is_none()) {
        Some(dims) => Err(shape_error(op, ShapeFault::TooLarge { dims: dims.clone() })),
        None => Ok(Some(shapes)),
    }
}

/// The shape of a pointwise op's result, and the place of each input in it.
pub(crate) struct Placement {
    /// The shape of the result.
    pub(crate) result: Dims,
    /// For each input, the dim of the result at which its first dim starts. Its dims are those of the result
    /// from there on, or 1 if repeated; beyond its last dim it is repeated.
    pub(crate) starts: SmallVec<[usize; 3]>,
}

/// Combines the shapes of a pointwise op's inputs; `None` if an element of the result needs more than one
/// element of an input.
///
/// [`output_shapes`] checks whether the elements of the result can be counted.
pub(crate) fn placement(op: &Op, inputs: &[&[i64]]) -> Result<Option<Placement>> {
    let onto_first = |starts| Placement { result: inputs[0].into(), starts };
    let placement = match Schema::of(op.kind()).shape_rule {
        ShapeRule::Identity | ShapeRule::Quantization if inputs.len() == 1 => onto_first(smallvec![0]),
        ShapeRule::SameShapes => {
            same_shapes(op, inputs)?;
            onto_first(smallvec![0; inputs.len()])
        }
        ShapeRule::BiasAdd => onto_first(smallvec![0, bias_start(op, inputs)?]),
        ShapeRule::Prelu => onto_first(smallvec![0, slope_start(op, inputs)?]),
        ShapeRule::ElemwiseArithmetic => {
            let result = pair_shape(op, inputs)?;
            let starts = inputs.iter().map(|dims| result.len() - dims.len()).collect();
            Placement { result, starts }
        }
        ShapeRule::Select => {
            let SelectShapes { result, starts } = select_shapes(op, inputs)?;
            Placement { result, starts: starts.into() }
        }
        ShapeRule::Fill => Placement { result: op.s64s_attr(Attr::Shape).into(), starts: smallvec![] },
        _ => return Ok(None),
    };
    Ok(Some(placement))
}

/// The shape of a select's result, and the place of each operand in it.
pub(crate) struct SelectShapes {
    /// The shape of the result.
    pub(crate) result: Dims,
    /// For `cond`, `then` and `else`: the dim of the result at which the first dim of the operand starts.
    pub(crate) starts: [usize; 3],
}

/// Combines the shapes of `cond`, `then` and `else` as `auto_broadcast` and `axis` say.
pub(crate) fn select_shapes(op: &Op, inputs: &[&[i64]]) -> Result<SelectShapes> {
    const COND: usize = 0;
    const THEN: usize = 1;
    const ELSE: usize = 2;
    let mode = op.broadcast_mode();
    let blame = |port: usize| move |fault| broadcast_error(op, port, mode, fault);
    let one_way = |port: usize, onto: &[i64], axis: i64| {
        let start = shape::aligned_at(inputs[port], onto, axis)?;
        shape::fits_onto(inputs[port], onto, start)?;
        Ok(start)
    };
    let right_aligned = |result: &Dims, port: usize| result.len() - inputs[port].len();

    match mode {
        AutoBroadcast::None => {
            for port in [THEN, ELSE] {
                equal(inputs[port], inputs[COND]).map_err(blame(port))?;
            }
            Ok(SelectShapes { result: inputs[THEN].into(), starts: [0; 3] })
        }
        AutoBroadcast::Numpy => {
            let result = shape::broadcast_pair(inputs[THEN], inputs[ELSE]).map_err(blame(ELSE))?;
            let cond = one_way(COND, &result, -1).map_err(blame(COND))?;
            let starts = [cond, right_aligned(&result, THEN), right_aligned(&result, ELSE)];
            Ok(SelectShapes { result, starts })
        }
        AutoBroadcast::Pdpd => {
            let axis = op.s64_attr(Attr::Axis).unwrap_or(-1);
            let else_ = one_way(ELSE, inputs[THEN], axis).map_err(blame(ELSE))?;
            let cond = one_way(COND, inputs[THEN], axis).map_err(blame(COND))?;
            Ok(SelectShapes { result: inputs[THEN].into(), starts: [cond, 0, else_] })
        }
        AutoBroadcast::Multidirectional => {
            let branches = shape::broadcast_pair(inputs[THEN], inputs[ELSE]).map_err(blame(ELSE))?;
            let result = shape::broadcast_pair(&branches, inputs[COND]).map_err(blame(COND))?;
            let starts = [COND, THEN, ELSE].map(|port| right_aligned(&result, port));
            Ok(SelectShapes { result, starts })
        }
    }
}

fn pair_shape(op: &Op, inputs: &[&[i64]]) -> Result<Dims> {
    let mode = op.broadcast_mode();
    match mode {
        AutoBroadcast::None => equal(inputs[1], inputs[0]).map(|()| inputs[0].into()),
        _ => shape::broadcast_pair(inputs[0], inputs[1]),
    }
    .map_err(|fault| broadcast_error(op, 1, mode, fault))
}

/// `[.., m, k] × [.., k, n]`. A matrix of rank 1 is a row on the left and a column on the right, and its dim
/// is missing in the result. Leading dims broadcast.
fn matmul_shape(op: &Op, inputs: &[&[i64]]) -> Result<Dims> {
    let matrix = |port: usize, transpose: Attr| -> Result<(Dims, i64, i64)> {
        match inputs[port] {
            [] => Err(unfit(op, port, inputs[port], "a matrix has rank 1 or more")),
            &[k] if port == 0 => Ok((Dims::new(), 1, k)),
            &[k] => Ok((Dims::new(), k, 1)),
            [batch @ .., rows, columns] if op.bool_attr(transpose) => Ok((batch.into(), *columns, *rows)),
            [batch @ .., rows, columns] => Ok((batch.into(), *rows, *columns)),
        }
    };
    let (batch_a, m, k) = matrix(0, Attr::TransposeA)?;
    let (batch_b, k_b, n) = matrix(1, Attr::TransposeB)?;
    if k != k_b {
        return Err(unfit(op, 1, inputs[1], "its rows are not as many as the columns of `src`"));
    }
    let mut result = shape::broadcast_pair(&batch_a, &batch_b)
        .map_err(|fault| broadcast_error(op, 1, AutoBroadcast::Numpy, fault))?;
    if inputs[0].len() > 1 {
        result.push(m);
    }
    if inputs[1].len() > 1 {
        result.push(n);
    }
    if let Some(&bias) = inputs.get(2) {
        fits_onto(op, 2, bias, &result)?;
    }
    Ok(result)
}

fn same_shapes(op: &Op, inputs: &[&[i64]]) -> Result<()> {
    (1..inputs.len()).try_for_each(|port| same_shape(op, inputs, port))
}

fn same_shape(op: &Op, inputs: &[&[i64]], port: usize) -> Result<()> {
    if inputs[port] == inputs[0] {
        return Ok(());
    }
    Err(unfit(op, port, inputs[port], "it has the shape of input 0"))
}

/// Start of the bias: the channel dim, whose size it must have.
fn bias_start(op: &Op, inputs: &[&[i64]]) -> Result<usize> {
    let axis = channel_axis(op, inputs[0])?;
    if inputs[1] != [inputs[0][axis]] {
        return Err(unfit(op, 1, inputs[1], "it holds one number for each channel of `src`"));
    }
    Ok(axis)
}

/// Start of the slope: the channel dim for a slope of rank 1, unless `per_channel_broadcast` is false or the
/// source has rank 1, which has no choice of dims; any other slope is right-aligned. A slope of one number
/// fits any number of channels. The backward form has no such attribute.
pub(crate) fn slope_start(op: &Op, inputs: &[&[i64]]) -> Result<usize> {
    let per_channel =
        op.get_attr(Attr::PerChannelBroadcast).is_none() || op.bool_attr(Attr::PerChannelBroadcast);
    match inputs[1] {
        &[slopes] if slopes != 1 && per_channel && inputs[0].len() != 1 => bias_start(op, inputs),
        slope => fits_onto(op, 1, slope, inputs[0]),
    }
}

/// Where an input stands, aligned on the right, in a shape that it broadcasts onto one way.
fn fits_onto(op: &Op, port: usize, dims: &[i64], onto: &[i64]) -> Result<usize> {
    shape::right_aligned(dims, onto)
        .and_then(|start| shape::fits_onto(dims, onto, start).map(|()| start))
        .map_err(|fault| broadcast_error(op, port, AutoBroadcast::Numpy, fault))
}

/// The dim that the attribute `data_format` calls C: the last of `NXC`, the second of `NCX`.
pub(crate) fn channel_axis(op: &Op, dims: &[i64]) -> Result<usize> {
    let axis = match op.str_attr(Attr::DataFormat) {
        Some("NCX") => (dims.len() > 1).then_some(1),
        _ => dims.len().checked_sub(1),
    };
    axis.ok_or_else(|| unfit(op, 0, dims, "it has no dim of channels"))
}

/// The result has the shape of the input; the statistics have 1 along the axis.
fn softmax_shapes(op: &Op, inputs: &[&[i64]]) -> Result<SmallVec<[Dims; 1]>> {
    let axis = resolved_axis(op, inputs[0])?;
    let mut shapes: SmallVec<[Dims; 1]> = smallvec![inputs[0].into()];
    if op.outputs().len() > 1 {
        let mut stats: Dims = inputs[0].into();
        stats[axis] = 1;
        shapes.push(stats);
    }
    Ok(shapes)
}

/// True if an op reduces a tensor along axes.
pub(crate) fn is_reduction(op: &Op) -> bool {
    matches!(Schema::of(op.kind()).shape_rule, ShapeRule::Reduce)
}

/// The attribute `axes` as indices of dims, in order: negative values count from the end.
pub(crate) fn reduced_axes(op: &Op, dims: &[i64]) -> Result<SmallVec<[usize; 6]>> {
    let axes = op.s64s_attr(Attr::Axes);
    let mut resolved: SmallVec<[usize; 6]> = axes.iter().filter_map(|&axis| dim_of(axis, dims)).collect();
    resolved.sort_unstable();
    resolved.dedup();
    if resolved.len() != axes.len() {
        return Err(unfit(op, 0, dims, "the numbers in `axes` are not different dims of it"));
    }
    Ok(resolved)
}

/// The shape without the reduced dims, or with 1 in their place.
fn reduced_shape(op: &Op, dims: &[i64]) -> Result<Dims> {
    let axes = reduced_axes(op, dims)?;
    let keep_dims = op.bool_attr(Attr::KeepDims);
    let dim = |(axis, &dim): (usize, &i64)| match (axes.contains(&axis), keep_dims) {
        (false, _) => Some(dim),
        (true, true) => Some(1),
        (true, false) => None,
    };
    Ok(dims.iter().enumerate().filter_map(dim).collect())
}

/// All dims are equal but that along `axis`, which is the sum.
fn concat_shape(op: &Op, inputs: &[&[i64]]) -> Result<Dims> {
    let axis = resolved_axis(op, inputs[0])?;
    let mut result: Dims = inputs[0].into();
    for (port, &dims) in inputs.iter().enumerate().skip(1) {
        let fits = dims.len() == result.len()
            && (0..dims.len()).all(|other| other == axis || dims[other] == result[other]);
        if !fits {
            return Err(unfit(op, port, dims, "it has the shape of input 0 but for the dim `axis`"));
        }
        result[axis] = result[axis].checked_add(dims[axis]).ok_or_else(|| {
            unfit(op, port, dims, "the sum of the dims along `axis` leaves the address space")
        })?;
    }
    Ok(result)
}

/// The first dim of those that are normalised: negative values of `begin_norm_axis` count from the end.
pub(crate) fn norm_axis(op: &Op, dims: &[i64]) -> Result<usize> {
    let begin = op.s64_attr(Attr::BeginNormAxis).unwrap_or(-1);
    dim_of(begin, dims)
        .ok_or_else(|| unfit(op, 0, dims, "the attribute `begin_norm_axis` is not one of its dims"))
}

/// The result has the shape of the input, the statistics its dims before `begin_norm_axis`; gamma and beta
/// broadcast one way onto the remaining dims; the gamma of RMSNorm, onto all dims.
fn norm_shapes(op: &Op, inputs: &[&[i64]]) -> Result<SmallVec<[Dims; 1]>> {
    let begin = norm_axis(op, inputs[0])?;
    let (onto, affine) = match op.kind() {
        OpKind::RMSNorm => (inputs[0], true),
        _ => (&inputs[0][begin..], op.bool_attr(Attr::UseAffine)),
    };
    for (port, &dims) in inputs.iter().enumerate().skip(1).filter(|_| affine) {
        fits_onto(op, port, dims, onto)?;
    }
    let mut shapes: SmallVec<[Dims; 1]> = smallvec![inputs[0].into()];
    shapes.resize(op.outputs().len(), inputs[0][..begin].into());
    Ok(shapes)
}

/// The gradient of the source has its shape, that of gamma and beta the shape of gamma; without gamma, the
/// dims from `begin_norm_axis` on.
fn norm_backward_shapes(op: &Op, inputs: &[&[i64]]) -> Result<SmallVec<[Dims; 1]>> {
    let begin = norm_axis(op, inputs[0])?;
    same_shape(op, inputs, 1)?;
    let (statistics, normalised) = inputs[0].split_at(begin);
    for port in [2, 3] {
        if inputs[port] != statistics {
            return Err(unfit(op, port, inputs[port], "it has the dims of `src` before `begin_norm_axis`"));
        }
    }
    let affine = op.bool_attr(Attr::UseAffine);
    for (port, &dims) in inputs.iter().enumerate().skip(4).filter(|_| affine) {
        fits_onto(op, port, dims, normalised)?;
    }
    let of_gamma = inputs.get(4).filter(|_| affine).copied().unwrap_or(normalised);
    let mut shapes: SmallVec<[Dims; 1]> = smallvec![inputs[0].into()];
    shapes.resize(op.outputs().len(), of_gamma.into());
    Ok(shapes)
}

/// How GroupNorm divides the channels.
pub(crate) struct ChannelGroups {
    /// The dim of the channels.
    pub(crate) axis: usize,
    /// The number of groups.
    pub(crate) groups: i64,
    /// The number of channels in each.
    pub(crate) channels: i64,
}

pub(crate) fn channel_groups(op: &Op, dims: &[i64]) -> Result<ChannelGroups> {
    let axis = channel_axis(op, dims)?;
    let groups = op.s64_attr(Attr::Groups).unwrap_or(1);
    if axis == 0 || groups < 1 || dims[axis] % groups != 0 {
        return Err(unfit(op, 0, dims, "its channels are not divided by the attribute `groups`"));
    }
    Ok(ChannelGroups { axis, groups, channels: dims[axis] / groups })
}

/// The result has the shape of the input, the statistics have a number for each group of each of its first
/// dim.
fn group_norm_shapes(op: &Op, inputs: &[&[i64]]) -> Result<SmallVec<[Dims; 1]>> {
    let ChannelGroups { axis, groups, .. } = channel_groups(op, inputs[0])?;
    for (port, &dims) in inputs.iter().enumerate().skip(1).filter(|_| op.bool_attr(Attr::UseAffine)) {
        if dims != [inputs[0][axis]] {
            return Err(unfit(op, port, dims, "it holds one number for each channel of `src`"));
        }
    }
    let mut shapes: SmallVec<[Dims; 1]> = smallvec![inputs[0].into()];
    shapes.resize(op.outputs().len(), smallvec![inputs[0][0], groups]);
    Ok(shapes)
}

/// The first result has the shape of the input, all others hold one number for each channel, as do the inputs
/// from one on.
fn batch_norm_shapes(op: &Op, inputs: &[&[i64]], first: usize) -> Result<SmallVec<[Dims; 1]>> {
    let channels = [inputs[0][channel_axis(op, inputs[0])?]];
    for (port, &dims) in inputs.iter().enumerate().skip(first) {
        if *dims != channels {
            return Err(unfit(op, port, dims, "it holds one number for each channel of `src`"));
        }
    }
    let mut shapes: SmallVec<[Dims; 1]> = smallvec![inputs[0].into()];
    shapes.resize(op.outputs().len(), channels.as_slice().into());
    Ok(shapes)
}

/// How many scales there are along each dim of the source: one, one for each element, or one for each group
/// of neighbours, all of one size.
pub(crate) fn parameter_counts(op: &Op, inputs: &[&[i64]]) -> Result<Dims> {
    let dims = inputs[0];
    let mut counts = Dims::from_elem(1, dims.len());
    let qtype = op.str_attr(Attr::Qtype).unwrap_or("per_tensor");
    match qtype {
        "per_tensor" => {}
        "per_channel" => {
            let axis = resolved_axis(op, dims)?;
            counts[axis] = dims[axis];
            if let Some((dim, groups)) = scale_groups(op, dims, axis) {
                counts[dim] = groups;
            }
        }
        "per_group" if Schema::of(op.kind()).attributes.iter().any(|row| row.attr == Attr::GroupShape) => {
            let sizes = op.s64s_attr(Attr::GroupShape);
            let divides = |(&dim, &size): (&i64, &i64)| size > 0 && dim % size == 0;
            if sizes.len() != dims.len() || !dims.iter().zip(sizes).all(divides) {
                return Err(unfit(
                    op,
                    0,
                    dims,
                    "the attribute `group_shape` does not divide each of its dims",
                ));
            }
            counts = dims.iter().zip(sizes).map(|(dim, size)| dim / size).collect();
        }
        _ => return Err(unfit(op, 0, dims, "the attribute `qtype` is none that the op knows")),
    }
    let needed = shape::element_count(&counts);
    let given = op.f32s_attr(Attr::Scales);
    if inputs.len() == 1 && needed != Some(given.len() as i64) {
        return Err(unfit(op, 0, dims, "the attribute `scales` holds one number for each channel"));
    }
    for (port, &parameters) in inputs.iter().enumerate().skip(1) {
        let count = shape::element_count(parameters);
        let fits = match qtype {
            "per_group" => parameters == &counts[..],
            _ => count == needed || (port == 2 && count == Some(1)),
        };
        if !fits {
            return Err(unfit(op, port, parameters, "it holds one number for each group, channel or tensor"));
        }
    }
    Ok(counts)
}

/// The dim that the scales of weights of a transposed convolution divide into groups, and the number of
/// groups: such weights have along `axis` the output channels of one group, and the scales are those of all.
/// The dim is that of the input channels: of `IOX` the first, of `XOI` the last, where the order of the
/// scales is that of the groups for one output channel in each alone. Scales as many as the last dim has
/// elements are along it if `axis` names a dim of one element: oneDNN takes the scales of weights of a
/// convolution for those of its output channels, and clients name a spatial dim of `XIO`.
fn scale_groups(op: &Op, dims: &[i64], axis: usize) -> Option<(usize, i64)> {
    let (count, rank) = (op.f32s_attr(Attr::Scales).len() as i64, dims.len());
    let groups = if dims[axis] > 0 && count % dims[axis] == 0 { count / dims[axis] } else { 0 };
    let is_of_last = dims[axis] == 1 && (axis + 2 == rank || Some(&count) == dims.last());
    let candidates = [(axis == 1).then_some(0), is_of_last.then_some(rank - 1)];
    let divided = candidates.into_iter().flatten().find(|&dim| groups > 1 && dims[dim] % groups == 0);
    divided.filter(|_| rank > 2).map(|dim| (dim, groups))
}

/// Results and mask have the shape of the input; seed, offset and probability are one number each.
fn dropout_shapes(op: &Op, inputs: &[&[i64]]) -> Result<SmallVec<[Dims; 1]>> {
    match (1..inputs.len()).find(|&port| shape::element_count(inputs[port]) != Some(1)) {
        Some(port) => Err(unfit(op, port, inputs[port], "it is a single number")),
        None => Ok(smallvec![inputs[0].into(); op.outputs().len()]),
    }
}

/// The attribute `order` as indices of dims: negative values count from the end, and none reverse the dims.
pub(crate) fn resolved_order(op: &Op, dims: &[i64]) -> Result<SmallVec<[usize; 6]>> {
    let order = op.s64s_attr(Attr::Order);
    if order.is_empty() {
        return Ok((0..dims.len()).rev().collect());
    }
    let resolved: SmallVec<[usize; 6]> = order.iter().filter_map(|&axis| dim_of(axis, dims)).collect();
    let is_permutation = (0..dims.len()).all(|axis| resolved.contains(&axis));
    if order.len() != dims.len() || !is_permutation {
        return Err(unfit(op, 0, dims, "the attribute `order` is no permutation of its dims"));
    }
    Ok(resolved)
}

fn transposed_shape(op: &Op, dims: &[i64]) -> Result<Dims> {
    Ok(resolved_order(op, dims)?.iter().map(|&axis| dims[axis]).collect())
}

/// The range of a dim that a slice takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DimRange {
    /// The first element; 0 if there is none.
    pub(crate) start: i64,
    /// From one element to the next.
    pub(crate) step: i64,
    /// The number of elements.
    pub(crate) count: i64,
}

/// The range of each dim: those that `starts`, `ends`, `steps` and `axes` name, all of the others. A negative
/// start or end counts from the end of its dim; one beyond the dim is moved to its edge.
pub(crate) fn slice_ranges(op: &Op, dims: &[i64]) -> Result<SmallVec<[DimRange; 6]>> {
    let (starts, ends, steps) =
        (op.s64s_attr(Attr::Starts), op.s64s_attr(Attr::Ends), op.s64s_attr(Attr::Steps));
    let axes: SmallVec<[Option<usize>; 6]> = match op.s64s_attr(Attr::Axes) {
        [] => (0..starts.len()).map(|axis| (axis < dims.len()).then_some(axis)).collect(),
        axes => axes.iter().map(|&axis| dim_of(axis, dims)).collect(),
    };
    let is_again = |i: usize| axes[..i].contains(&axes[i]);
    if (0..axes.len()).any(|i| axes[i].is_none() || is_again(i)) {
        return Err(unfit(op, 0, dims, "the numbers in `axes` are not different dims of it"));
    }
    let mut ranges: SmallVec<[DimRange; 6]> =
        dims.iter().map(|&count| DimRange { start: 0, step: 1, count }).collect();
    for (i, axis) in axes.iter().enumerate() {
        let Some(axis) = *axis else { continue };
        ranges[axis] = dim_range(dims[axis], starts[i], ends[i], steps.get(i).copied().unwrap_or(1));
    }
    Ok(ranges)
}

fn dim_range(dim: i64, start: i64, end: i64, step: i64) -> DimRange {
    let from_front = |place: i64| if place < 0 { place.saturating_add(dim) } else { place };
    // Backwards, the end may lie before the first element.
    let (first, last) = if step > 0 { (0, dim) } else { (-1, dim - 1) };
    let (start, end) = (from_front(start).clamp(first, last), from_front(end).clamp(first, last));
    let distance = if step > 0 { end - start } else { start - end };
    let stride = step.unsigned_abs().min(i64::MAX as u64) as i64;
    match distance > 0 {
        true => DimRange { start, step, count: (distance - 1) / stride + 1 },
        false => DimRange { start: 0, step, count: 0 },
    }
}

fn sliced_shape(op: &Op, dims: &[i64]) -> Result<Dims> {
    Ok(slice_ranges(op, dims)?.iter().map(|range| range.count).collect())
}

/// The attribute `shape`, in which one −1 stands for the remaining elements and, with `special_zero`, a 0 for
/// the dim of the input, which then counts on neither side of what remains.
fn reshaped_shape(op: &Op, dims: &[i64]) -> Result<Dims> {
    let no_fit = || unfit(op, 0, dims, "its elements are not as many as those of the attribute `shape`");
    let mut result: Dims = op.s64s_attr(Attr::Shape).into();
    if result.len() > MAX_RANK {
        return Err(unfit(op, 0, dims, "the attribute `shape` has more dims than a tensor can have"));
    }
    let (mut own, mut others) = (Dims::from(dims), result.clone());
    if op.bool_attr(Attr::SpecialZero) {
        for (axis, dim) in result.iter_mut().enumerate().filter(|(_, dim)| **dim == 0) {
            *dim = *dims.get(axis).ok_or_else(no_fit)?;
            (own[axis], others[axis]) = (1, 1);
        }
    }
    let given = shape::element_count(dims).ok_or_else(no_fit)?;
    if let Some(rest) = result.iter().position(|&dim| dim == -1) {
        others[rest] = 1;
        let count = shape::element_count(&own).ok_or_else(no_fit)?;
        let others = shape::element_count(&others).filter(|&n| n > 0 && count % n == 0).ok_or_else(no_fit)?;
        result[rest] = count / others;
    }
    let fits = result.iter().all(|&dim| dim >= 0) && shape::element_count(&result) == Some(given);
    if fits { Ok(result) } else { Err(no_fit()) }
}

fn equal(shape: &[i64], onto: &[i64]) -> Result<(), BroadcastFault> {
    if shape == onto {
        return Ok(());
    }
    Err(BroadcastFault::NotEqual { shape: shape.into(), onto: onto.into() })
}

fn broadcast_error(op: &Op, port: usize, mode: AutoBroadcast, fault: BroadcastFault) -> Error {
    shape_error(op, ShapeFault::Broadcast { port: op.input_ref(port), mode, fault })
}
