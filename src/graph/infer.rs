//! The shape rules of schema rows: output shapes from input shapes.

use smallvec::{SmallVec, smallvec};

use super::op::Op;
use super::row::{Schema, ShapeRule};
use crate::error::{Error, Result, ShapeFault};
use crate::types::kind::{Attr, AutoBroadcast};
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
        ShapeRule::StaticTranspose => smallvec![transposed_shape(op, inputs[0])?],
        ShapeRule::StaticReshape => smallvec![reshaped_shape(op, inputs[0])?],
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
        ShapeRule::Identity if inputs.len() == 1 => onto_first(smallvec![0]),
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
        let fits =
            shape::right_aligned(bias, &result).and_then(|start| shape::fits_onto(bias, &result, start));
        fits.map_err(|fault| broadcast_error(op, 2, AutoBroadcast::Numpy, fault))?;
    }
    Ok(result)
}

fn same_shapes(op: &Op, inputs: &[&[i64]]) -> Result<()> {
    match (1..inputs.len()).find(|&port| inputs[port] != inputs[0]) {
        Some(port) => Err(unfit(op, port, inputs[port], "it has the shape of input 0")),
        None => Ok(()),
    }
}

/// Start of the bias: the channel dim, whose size it must have.
fn bias_start(op: &Op, inputs: &[&[i64]]) -> Result<usize> {
    let axis = channel_axis(op, inputs[0])?;
    if inputs[1] != [inputs[0][axis]] {
        return Err(unfit(op, 1, inputs[1], "it holds one number for each channel of `src`"));
    }
    Ok(axis)
}

/// Start of the slope: the channel dim for a slope of rank 1, unless `per_channel_broadcast` is false; any
/// other slope is right-aligned. A slope of one number fits any number of channels.
fn slope_start(op: &Op, inputs: &[&[i64]]) -> Result<usize> {
    match inputs[1] {
        &[slopes] if slopes != 1 && op.bool_attr(Attr::PerChannelBroadcast) => bias_start(op, inputs),
        slope => shape::right_aligned(slope, inputs[0])
            .and_then(|start| shape::fits_onto(slope, inputs[0], start).map(|()| start))
            .map_err(|fault| broadcast_error(op, 1, AutoBroadcast::Numpy, fault)),
    }
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

/// The attribute `axis` as an index of a dim: negative values count from the end.
pub(crate) fn resolved_axis(op: &Op, dims: &[i64]) -> Result<usize> {
    let axis = op.s64_attr(Attr::Axis).unwrap_or(-1);
    let rank = dims.len() as i64;
    if !(-rank..rank).contains(&axis) {
        return Err(unfit(op, 0, dims, "the attribute `axis` is not one of its dims"));
    }
    Ok(axis.rem_euclid(rank) as usize)
}

/// The attribute `order` as indices of dims: negative values count from the end.
pub(crate) fn resolved_order(op: &Op, dims: &[i64]) -> Result<SmallVec<[usize; 6]>> {
    let rank = dims.len() as i64;
    let order = op.s64s_attr(Attr::Order);
    let resolved: SmallVec<[usize; 6]> = order
        .iter()
        .filter(|axis| (-rank..rank).contains(*axis))
        .map(|axis| axis.rem_euclid(rank) as usize)
        .collect();
    let is_permutation = (0..dims.len()).all(|axis| resolved.contains(&axis));
    if order.len() != dims.len() || !is_permutation {
        return Err(unfit(op, 0, dims, "the attribute `order` is no permutation of its dims"));
    }
    Ok(resolved)
}

fn transposed_shape(op: &Op, dims: &[i64]) -> Result<Dims> {
    Ok(resolved_order(op, dims)?.iter().map(|&axis| dims[axis]).collect())
}

/// The attribute `shape`, in which one −1 stands for the remaining elements and, with `special_zero`, a 0 for
/// the dim of the input.
fn reshaped_shape(op: &Op, dims: &[i64]) -> Result<Dims> {
    let no_fit = || unfit(op, 0, dims, "its elements are not as many as those of the attribute `shape`");
    let mut result: Dims = op.s64s_attr(Attr::Shape).into();
    if result.len() > MAX_RANK {
        return Err(unfit(op, 0, dims, "the attribute `shape` has more dims than a tensor can have"));
    }
    if op.bool_attr(Attr::SpecialZero) {
        for (axis, dim) in result.iter_mut().enumerate().filter(|(_, dim)| **dim == 0) {
            *dim = *dims.get(axis).ok_or_else(no_fit)?;
        }
    }
    let given = shape::element_count(dims).ok_or_else(no_fit)?;
    if let Some(rest) = result.iter().position(|&dim| dim == -1) {
        result[rest] = 1;
        let others = shape::element_count(&result).filter(|&n| n > 0 && given % n == 0).ok_or_else(no_fit)?;
        result[rest] = given / others;
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

fn unfit(op: &Op, port: usize, given: &[i64], why: &'static str) -> Error {
    shape_error(op, ShapeFault::Unfit { port: op.input_ref(port), given: given.into(), why })
}

fn shape_error(op: &Op, fault: ShapeFault) -> Error {
    Error::Shape { op: op.op_ref(), fault: Box::new(fault) }
}
