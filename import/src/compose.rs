//! Steps that the mappings of several formats share: what one layer becomes, said in ops.

use sterna::{Attr, AttrValue, AutoBroadcast, DataType, OpKind, TensorId};

use crate::builder::Builder;
use crate::constant::Constant;
use crate::error::Fault;
use crate::fold;
use crate::weights::{byte_count, element_count, scalar};

use DataType as D;
use OpKind as K;

/// The whole numbers.
pub(crate) fn is_integer(data_type: DataType) -> bool {
    matches!(data_type, D::S8 | D::S16 | D::S32 | D::S64 | D::U8 | D::U16 | D::U32 | D::U64)
}

/// The type in which steps between are computed: f64 of f64, else f32.
pub(crate) fn wide_float(data_type: DataType) -> DataType {
    if data_type == D::F64 { D::F64 } else { D::F32 }
}

/// The floating-point types that arithmetic takes.
pub(crate) fn is_float(data_type: DataType) -> bool {
    matches!(data_type, D::F32 | D::F16 | D::Bf16)
}

/// A number of rank 0: made by an op if the number has an exact form in f32, else a constant. `None` if the
/// type does not hold the number.
pub(crate) fn number(
    builder: &mut Builder<'_>,
    data_type: DataType,
    number: f64,
) -> Result<Option<TensorId>, Fault> {
    let value = match data_type {
        D::Boolean => Constant::from_slice(&[], &[number != 0.0]).ok(),
        _ => scalar(data_type, number),
    };
    let Some(value) = value else { return Ok(None) };
    let narrow = number as f32;
    Ok(Some(match f64::from(narrow) == number {
        true => builder.number(value, narrow)?,
        false => builder.constant(value)?,
    }))
}

/// A tensor of numbers in another numeric type.
pub(crate) fn cast(
    builder: &mut Builder<'_>,
    name: &str,
    source: TensorId,
    to: DataType,
) -> Result<TensorId, Fault> {
    let from = builder.data_type(source);
    if from == to {
        return Ok(source);
    }
    // A kind of oneDNN, if it has these types.
    let is_known_elsewhere = is_float(from) && is_float(to) && (from == D::F32 || to == D::F32);
    let kind = if is_known_elsewhere { K::TypeCast } else { K::Cast };
    builder.op(name, kind, &[], &[source], to, None)
}

/// A tensor in another shape of as many elements.
pub(crate) fn in_shape(
    builder: &mut Builder<'_>,
    name: &str,
    source: TensorId,
    dims: &[i64],
) -> Result<TensorId, Fault> {
    if builder.known_dims(source) == Some(dims) {
        return Ok(source);
    }
    if let Some(value) = builder.value(source) {
        let value = value.reshaped(dims)?;
        return stored(builder, value);
    }
    let attrs: [(Attr, AttrValue); 2] = [(Attr::Shape, dims.into()), (Attr::SpecialZero, false.into())];
    builder.op(name, K::StaticReshape, &attrs, &[source], builder.data_type(source), None)
}

/// A tensor repeated to a shape, along dims of 1 and in front of its own dims. The dims must fit.
///
/// Of a tensor that is no constant, a select does so whose condition alone has the shape and chooses between
/// twice the same: the elements are read by strides of 0.
pub(crate) fn enlarged(
    builder: &mut Builder<'_>,
    name: &str,
    source: TensorId,
    dims: &[i64],
) -> Result<TensorId, Fault> {
    if builder.known_dims(source) == Some(dims) {
        return Ok(source);
    }
    let data_type = builder.data_type(source);
    let size = byte_count(data_type, dims)?.unwrap_or(usize::MAX);
    if builder.value(source).is_some()
        && builder.charge_folded(size).is_ok()
        && let Some(value) = builder.value(source)
    {
        let own = value.dims();
        let view: Vec<i64> =
            std::iter::repeat_n(1, dims.len().saturating_sub(own.len())).chain(own.iter().copied()).collect();
        let value = fold::repeated(value, &view, dims)?;
        return Ok(builder.constant(value)?);
    }
    let attrs = [(Attr::Shape, dims.into()), (Attr::Value, 1.0f32.into())];
    let everywhere = builder.op(name, K::Fill, &attrs, &[], D::Boolean, None)?;
    let mode = [(Attr::AutoBroadcast, AutoBroadcast::Multidirectional.into())];
    builder.op(name, K::Select, &mode, &[everywhere, source, source], data_type, None)
}

/// A constant as large as one that is stored.
pub(crate) fn stored(builder: &mut Builder<'_>, value: Constant) -> Result<TensorId, Fault> {
    builder.charge_stored(value.bytes().len())?;
    Ok(builder.constant(value)?)
}

/// A constant that is computed.
pub(crate) fn folded(builder: &mut Builder<'_>, value: Constant) -> Result<TensorId, Fault> {
    builder.charge_folded(value.bytes().len())?;
    Ok(builder.constant(value)?)
}

/// Axes as indices of dims; negative ones count from the end. `None` if one lies beyond, or comes twice.
pub(crate) fn resolved_axes(axes: &[i64], rank: usize) -> Option<Vec<usize>> {
    let rank = rank as i64;
    let resolved: Vec<usize> = axes
        .iter()
        .filter(|axis| (-rank..rank).contains(*axis))
        .map(|axis| axis.rem_euclid(rank) as usize)
        .collect();
    let repeats = resolved.iter().enumerate().any(|(i, axis)| resolved[..i].contains(axis));
    (resolved.len() == axes.len() && !repeats).then_some(resolved)
}

/// The shape that a pattern asks for, whose 0 stands for the dim of the source at its place if `special_zero`
/// says so, and whose −1 for the rest. `None` if there is no such shape of as many elements.
pub(crate) fn resolved_shape(dims: &[i64], pattern: &[i64], special_zero: bool) -> Option<Vec<i64>> {
    let mut result = pattern.to_vec();
    if special_zero {
        for (axis, dim) in result.iter_mut().enumerate().filter(|(_, dim)| **dim == 0) {
            *dim = *dims.get(axis)?;
        }
    }
    let count = element_count(dims)?;
    if let Some(rest) = result.iter().position(|&dim| dim == -1) {
        result[rest] = 1;
        let others = element_count(&result).filter(|&others| others > 0 && count % others == 0)?;
        result[rest] = count / others;
    }
    (element_count(&result) == Some(count)).then_some(result)
}

/// The dims with dims of 1 put in at axes of the result.
pub(crate) fn with_ones(dims: &[i64], axes: &[usize]) -> Vec<i64> {
    let mut rest = dims.iter().copied();
    let count = dims.len() + axes.len();
    (0..count).filter_map(|axis| if axes.contains(&axis) { Some(1) } else { rest.next() }).collect()
}

/// The dims without those at axes.
pub(crate) fn without(dims: &[i64], axes: &[usize]) -> Vec<i64> {
    let kept = dims.iter().enumerate().filter(|(axis, _)| !axes.contains(axis));
    kept.map(|(_, &dim)| dim).collect()
}
