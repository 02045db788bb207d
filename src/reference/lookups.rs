//! Lookups at the places that indices name, and the places of elements in order of size.

use std::cmp::Ordering;

use super::functions::{maximum, minimum};
use super::number::{floats, integers, is_integer, numbers_of, store_arithmetic, store_integers};
use super::odometer::Odometer;
use super::value::{Value, count, one, reserve, zeroed};
use crate::error::{Error, Result, TensorFault};
use crate::graph::lookup::{self, LookupSpace};
use crate::graph::op::Op;
use crate::types::dtype::DataType;
use crate::types::kind::Attr;
use crate::types::shape::Dims;

/// The elements of `src` that `indices` name: in `Gather` whole slices along `axis`, for each element of the
/// first `batch_dims` dims by its own indices; in `GatherElements` each element of the result by an index of
/// its own along `axis`; in `GatherND` by tuples of indices, which are the last dim of `indices`.
///
/// A negative index counts from the end of its dim. An index beyond the dim is an error that names the tensor
/// and the place, and nothing is written; with `clamp_indices` it stands for the nearest element. A result
/// without elements reads no index.
pub(super) fn gather(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let space = space(op, inputs)?;
    let src = &inputs[0];
    let size = src.data_type().size().unwrap_or(1);
    let mut bytes = reserve(count(&shapes[0]).saturating_mul(size))?;
    for place in places(op, &space, &inputs[1])? {
        bytes.extend_from_slice(&src.bytes()[place * size..][..size]);
    }
    one(Value::new(src.data_type(), &shapes[0], bytes))
}

/// A copy of `src` in which `updates` stand at the places that `indices` name: in `ScatterElements` each by
/// an index of its own along `axis`, in `ScatterND` whole slices by tuples of indices, which are the last dim
/// of `indices`. Under a `reduction` the old element and the update are combined.
///
/// Updates are taken in row-major order, so that of several at one place the last one stands, and sums and
/// products have a defined order; each step is rounded to the type, integers wrap around. Indices are read as
/// in `Gather`.
pub(super) fn scatter(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let space = space(op, inputs)?;
    let (src, updates) = (&inputs[0], &inputs[2]);
    let mut bytes = reserve(src.bytes().len())?;
    bytes.extend_from_slice(src.bytes());
    let reduction = op.str_attr(Attr::Reduction).unwrap_or("none");
    put(reduction, src.data_type(), &mut bytes, &places(op, &space, &inputs[1])?, updates)?;
    one(Value::new(src.data_type(), &shapes[0], bytes))
}

/// The gradient of the source of `Gather`: at each place of a source of shape `src_shape`, the sum of the
/// elements of `diff_dst` that were gathered from it, 0 where none was.
///
/// The sum starts from 0 and is taken in the row-major order of `diff_dst`, each step rounded to the type.
/// Indices are read as in `Gather`.
pub(super) fn gather_backward(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let space = space(op, inputs)?;
    let data_type = inputs[0].data_type();
    let mut bytes = zeroed(count(&shapes[0]).saturating_mul(data_type.size().unwrap_or(1)))?;
    put("add", data_type, &mut bytes, &places(op, &space, &inputs[1])?, &inputs[0])?;
    one(Value::new(data_type, &shapes[0], bytes))
}

fn space(op: &Op, inputs: &[Value]) -> Result<LookupSpace> {
    let dims: Vec<&[i64]> = inputs.iter().map(Value::dims).collect();
    lookup::space(op, &dims)
}

/// For each place in row-major order, the element of the table that belongs to it.
fn places(op: &Op, space: &LookupSpace, indices: &Value) -> Result<Vec<usize>> {
    let numbers = all_integers(indices)?;
    let sizes: Vec<i64> = space.dims.iter().map(|dim| dim.size).collect();
    let mut places = reserve(count(&sizes))?;
    for place in 0..count(&sizes) {
        let digits = digits_of(place, &sizes);
        let mut at = vec![0; space.table.len()];
        let mut index = Vec::new();
        for (dim, &digit) in space.dims.iter().zip(&digits) {
            if let Some(table) = dim.table {
                at[table] = digit;
            }
            if dim.indices.is_some() {
                index.push(digit);
            }
        }
        for (k, &axis) in space.axes.iter().enumerate() {
            let tuple = space.has_tuples.then_some(k as i64);
            let digits: Vec<i64> = index.iter().copied().chain(tuple).collect();
            let element = element_at(&digits, indices.dims());
            let index = numbers[element] as i64;
            at[axis] = index_in(op, index, space.table[axis]).ok_or_else(|| {
                let fault = TensorFault::IndexOutOfRange { place: element, index, size: space.table[axis] };
                Error::Tensor { id: op.inputs()[1].id(), fault }
            })?;
        }
        places.push(element_at(&at, &space.table));
    }
    Ok(places)
}

/// The element of a dim that an index stands for.
fn index_in(op: &Op, index: i64, size: i64) -> Option<i64> {
    let from_front = if index < 0 { index.saturating_add(size) } else { index };
    match op.bool_attr(Attr::ClampIndices) {
        true => Some(from_front.clamp(0, size - 1)),
        false => Some(from_front).filter(|index| (0..size).contains(index)),
    }
}

/// The index along each dim of an element, which is counted in row-major order.
fn digits_of(element: usize, dims: &[i64]) -> Vec<i64> {
    let mut rest = element as i64;
    let mut digits: Vec<i64> = dims.iter().rev().map(|&dim| (rest % dim, rest /= dim).0).collect();
    digits.reverse();
    digits
}

/// The element at an index along each dim, counted in row-major order.
fn element_at(digits: &[i64], dims: &[i64]) -> usize {
    digits.iter().zip(dims).fold(0, |element, (&digit, &dim)| element * dim as usize + digit as usize)
}

/// Puts updates, one after the other, at places of a table of elements of a type.
fn put(
    reduction: &str,
    data_type: DataType,
    table: &mut [u8],
    places: &[usize],
    updates: &Value,
) -> Result<()> {
    let size = data_type.size().unwrap_or(1);
    for (number, &place) in places.iter().enumerate() {
        let update = &updates.bytes()[number * size..][..size];
        let old = table[place * size..][..size].to_vec();
        let new = match reduction {
            "none" => update.to_vec(),
            _ => combined(reduction, data_type, old, update.to_vec())?,
        };
        table[place * size..][..size].copy_from_slice(&new);
    }
    Ok(())
}

/// The bytes of an element and of an update, combined to those of one element.
fn combined(reduction: &str, data_type: DataType, old: Vec<u8>, update: Vec<u8>) -> Result<Vec<u8>> {
    let mut bytes = vec![0; old.len()];
    let (old, update) = (Value::new(data_type, &[1], old)?, Value::new(data_type, &[1], update)?);
    let one = Odometer::dense(&[1]);
    if is_integer(data_type) {
        let (mut x, mut y) = ([0i128], [0i128]);
        integers(&old, &one, 0..1, &mut x);
        integers(&update, &one, 0..1, &mut y);
        let [x, y] = [x[0], y[0]];
        let result = match reduction {
            "add" => x + y,
            "mul" => x.wrapping_mul(y),
            "min" => x.min(y),
            _ => x.max(y),
        };
        store_integers(&[result], data_type, &mut bytes);
    } else {
        let (mut x, mut y) = ([0.0], [0.0]);
        floats(&old, &one, 0..1, &mut x);
        floats(&update, &one, 0..1, &mut y);
        let [x, y] = [x[0], y[0]];
        let result = match reduction {
            "add" => x + y,
            "mul" => x * y,
            "min" => minimum(x, y),
            _ => maximum(x, y),
        };
        store_arithmetic(&mut [result], data_type, &mut bytes);
    }
    Ok(bytes)
}

/// The `k` largest elements of each line along `axis`, the largest one first, and their indices along the
/// axis; without `largest` the `k` smallest, the smallest one first.
///
/// A NaN counts as larger than every number, and 0 is equal to −0. Of equal elements that with the smaller
/// index comes first.
pub(super) fn top_k(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let src = &inputs[0];
    let order = if op.bool_attr(Attr::Largest) { SizeRank::Largest } else { SizeRank::Smallest };
    let (elements, indices) = first_along(op, src, order)?;
    let size = src.data_type().size().unwrap_or(1);
    let bytes = elements.iter().flat_map(|&element| &src.bytes()[element * size..][..size]).copied();
    let bytes: Vec<u8> = bytes.collect();
    Ok(vec![
        Value::new(src.data_type(), &shapes[0], bytes)?,
        index_value(&indices, op.outputs()[1].data_type(), &shapes[1])?,
    ])
}

/// The index of the largest element of each line along `axis`; of several the first, or with
/// `select_last_index` the last.
///
/// A NaN counts as larger than every number, and 0 is equal to −0.
pub(super) fn arg_max(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let (_, indices) = first_along(op, &inputs[0], SizeRank::Largest)?;
    one(index_value(&indices, op.outputs()[0].data_type(), &shapes[0]))
}

/// The index of the smallest element of each line along `axis`; of several the first, or with
/// `select_last_index` the last.
///
/// A NaN counts as smaller than every number, and 0 is equal to −0.
pub(super) fn arg_min(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let (_, indices) = first_along(op, &inputs[0], SizeRank::NanAndSmallest)?;
    one(index_value(&indices, op.outputs()[0].data_type(), &shapes[0]))
}

/// Which elements come first.
#[derive(Clone, Copy, PartialEq)]
enum SizeRank {
    /// NaN, then the largest ones.
    Largest,
    /// The smallest ones, NaN last.
    Smallest,
    NanAndSmallest,
}

/// The first elements of each line along the axis, as elements of the source and as indices along the axis,
/// both in the row-major order of the result.
fn first_along(op: &Op, src: &Value, order: SizeRank) -> Result<(Vec<usize>, Vec<i128>)> {
    match is_integer(src.data_type()) {
        true => first_of(op, src.dims(), order, &all_integers(src)?),
        false => first_of(op, src.dims(), order, &numbers_of(src, &Odometer::dense(src.dims()))?),
    }
}

fn first_of<T: PartialOrd + Copy>(
    op: &Op,
    dims: &[i64],
    order: SizeRank,
    numbers: &[T],
) -> Result<(Vec<usize>, Vec<i128>)> {
    let first = lookup::first_along(op, dims)?;
    let (length, behind) = (dims[first.axis] as usize, count(&dims[first.axis + 1..]));
    let taken = first.count as usize;
    let is_last_first = op.bool_attr(Attr::SelectLastIndex);
    let size = count(&dims[..first.axis]) * taken * behind;
    let (mut elements, mut indices) = (zeroed(size)?, zeroed(size)?);
    for line in 0..count(&dims[..first.axis]) * behind {
        let (outer, inner) = (line / behind, line % behind);
        let at = |index: usize| (outer * length + index) * behind + inner;
        let mut places: Vec<usize> = (0..length).collect();
        places.sort_by(|&i, &j| {
            let by_size = compare(numbers[at(i)], numbers[at(j)], order);
            let by_place = if is_last_first { j.cmp(&i) } else { i.cmp(&j) };
            by_size.then(by_place)
        });
        for (rank, &index) in places[..taken].iter().enumerate() {
            let to = (outer * taken + rank) * behind + inner;
            (elements[to], indices[to]) = (at(index), index as i128);
        }
    }
    Ok((elements, indices))
}

/// Which of two numbers comes first.
fn compare<T: PartialOrd + Copy>(x: T, y: T, order: SizeRank) -> Ordering {
    let is_nan = |x: T| x.partial_cmp(&x).is_none();
    match (x.partial_cmp(&y), order) {
        (Some(by_size), SizeRank::Largest) => by_size.reverse(),
        (Some(by_size), _) => by_size,
        (None, SizeRank::Smallest) => is_nan(x).cmp(&is_nan(y)),
        (None, _) => is_nan(y).cmp(&is_nan(x)),
    }
}

fn index_value(indices: &[i128], data_type: DataType, dims: &[i64]) -> Result<Value> {
    Value::compute(data_type, dims, |range, bytes| store_integers(&indices[range], data_type, bytes))
}

pub(super) fn all_integers(value: &Value) -> Result<Vec<i128>> {
    let mut numbers = zeroed(count(value.dims()))?;
    integers(value, &Odometer::dense(value.dims()), 0..numbers.len(), &mut numbers);
    Ok(numbers)
}
