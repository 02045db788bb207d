//! Dims, strides and the broadcasting rules, as pure functions of numbers.

use std::fmt;

use smallvec::SmallVec;

/// Sizes or strides, one for each dim; up to six are stored without an allocation.
///
/// ```
/// use sterna::Dims;
/// let dims: Dims = [2, 3, 4][..].into();
/// assert_eq!(dims.iter().product::<i64>(), 24);
/// ```
pub type Dims = SmallVec<[i64; 6]>;

/// The largest rank of a tensor.
///
/// ```
/// use sterna::{DataType, LogicalTensor, MAX_RANK};
/// assert!(LogicalTensor::strided(0, DataType::U8, &[1; MAX_RANK]).is_ok());
/// assert!(LogicalTensor::strided(0, DataType::U8, &[1; MAX_RANK + 1]).is_err());
/// ```
pub const MAX_RANK: usize = 12;

/// An unknown dim or stride in a list of numbers.
pub(crate) const UNKNOWN_DIM: i64 = i64::MIN;

/// A dim or stride; `None` if it is unknown.
pub(crate) fn known(number: i64) -> Option<i64> {
    (number != UNKNOWN_DIM).then_some(number)
}

/// A dim or stride as it stands in a list of numbers. The number that stands for an unknown one becomes its
/// neighbour, which is refused alike.
pub(crate) fn or_unknown(number: Option<i64>) -> i64 {
    number.map_or(UNKNOWN_DIM, |number| number.max(UNKNOWN_DIM + 1))
}

/// How two shapes fail to broadcast.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BroadcastFault {
    /// Mode `none` needs equal shapes.
    #[error("{} is not equal to {}", Braced(shape), Braced(onto))]
    NotEqual {
        /// The shape that differs.
        shape: Dims,
        /// The shape that it should equal.
        onto: Dims,
    },
    /// One dim is neither equal to its counterpart nor 1.
    #[error(
        "{} does not broadcast onto {}: {dim} against {onto_dim} at axis {axis}",
        Braced(shape),
        Braced(onto)
    )]
    Dim {
        /// The shape that does not fit.
        shape: Dims,
        /// The shape that it should fit.
        onto: Dims,
        /// The axis of the result at which they clash.
        axis: usize,
        /// The dim of `shape` there.
        dim: i64,
        /// The dim of `onto` there.
        onto_dim: i64,
    },
    /// A one-way broadcast of more dims onto fewer.
    #[error("{} has a larger rank than {}, onto which it must broadcast", Braced(shape), Braced(onto))]
    Rank {
        /// The shape that does not fit.
        shape: Dims,
        /// The shape that it should fit.
        onto: Dims,
    },
    /// `axis` places the operand beyond the last dim, or before the first.
    #[error("axis {axis} does not place {} within {}", Braced(shape), Braced(onto))]
    Axis {
        /// The shape that does not fit.
        shape: Dims,
        /// The shape that it should fit.
        onto: Dims,
        /// The attribute `axis`.
        axis: i64,
    },
}

/// Writes dims as the op specification does: `{2,3,?}`, with `?` for an unknown dim.
pub(crate) struct Braced<'a>(pub(crate) &'a [i64]);

impl fmt::Display for Braced<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        braced(self.0.iter().map(|&dim| known(dim)), f)
    }
}

/// As [`Braced`], of dims that are known or not.
pub(crate) struct BracedPartial<'a>(pub(crate) &'a [Option<i64>]);

impl fmt::Display for BracedPartial<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        braced(self.0.iter().copied(), f)
    }
}

fn braced(dims: impl Iterator<Item = Option<i64>>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("{")?;
    for (i, dim) in dims.enumerate() {
        let comma = if i == 0 { "" } else { "," };
        match dim {
            None => write!(f, "{comma}?")?,
            Some(dim) => write!(f, "{comma}{dim}")?,
        }
    }
    f.write_str("}")
}

/// True if every dim is known.
pub(crate) fn is_known(dims: &[i64]) -> bool {
    dims.iter().all(|&dim| dim != UNKNOWN_DIM)
}

/// The number of elements; `None` if it exceeds i64. A dim of 0 makes it 0 whatever the others are.
pub(crate) fn element_count(dims: &[i64]) -> Option<i64> {
    if dims.contains(&0) {
        return Some(0);
    }
    dims.iter().try_fold(1i64, |product, &dim| product.checked_mul(dim))
}

/// The number of elements; `i64::MAX` if it is larger.
pub(crate) fn saturating_count(dims: &[i64]) -> i64 {
    element_count(dims).unwrap_or(i64::MAX)
}

/// Products of sizes.
pub(crate) trait SaturatingProduct: Iterator<Item = usize> + Sized {
    /// The product; `usize::MAX` if it is larger. A size of 0 makes it 0 whatever the others are.
    fn saturating_product(self) -> usize {
        self.fold(1, usize::saturating_mul)
    }
}

impl<I: Iterator<Item = usize>> SaturatingProduct for I {}

/// Contiguous row-major strides, as [`dense_strides`] gives them.
pub(crate) fn row_major_strides(dims: &[i64]) -> Option<Dims> {
    let order: SmallVec<[usize; 6]> = (0..dims.len()).collect();
    dense_strides(dims, &order)
}

/// Contiguous strides for dims in a given memory order, outermost first, with a dim of 0 counted as 1; `None`
/// if one exceeds i64. A tensor without elements has none to find, so a stride that exceeds i64 is
/// `i64::MAX`.
pub(crate) fn dense_strides(dims: &[i64], order: &[usize]) -> Option<Dims> {
    let mut strides = Dims::from_elem(0, dims.len());
    let is_empty = dims.contains(&0);
    // The outermost dim is a factor of no stride.
    let mut stride = Some(1i64);
    for &axis in order.iter().rev() {
        strides[axis] = stride?;
        let (stride_inside, dim) = (strides[axis], dims[axis].max(1));
        stride = match is_empty {
            true => Some(stride_inside.saturating_mul(dim)),
            false => stride_inside.checked_mul(dim),
        };
    }
    Some(strides)
}

/// Row-major strides for a value of the library's own, whose bytes can be counted; 0 for one without
/// elements.
pub(crate) fn own_strides(dims: &[i64]) -> Dims {
    own_strides_in(dims, &(0..dims.len()).collect::<SmallVec<[usize; 6]>>())
}

/// [`own_strides`] with the dims in an order, the outermost one first.
pub(crate) fn own_strides_in(dims: &[i64], order: &[usize]) -> Dims {
    let strides = if dims.contains(&0) { None } else { dense_strides(dims, order) };
    strides.unwrap_or_else(|| Dims::from_elem(0, dims.len()))
}

/// The axes from the outermost to the innermost in memory.
///
/// If strides do not decide (a dim of 1, a stride of 0, equal strides), an axis keeps its place among its
/// neighbours, so a row-major tensor with repeated dims stays row-major.
pub(crate) fn memory_order(dims: &[i64], strides: &[i64]) -> SmallVec<[usize; 6]> {
    let decides = |axis: usize| dims[axis] != 1 && strides[axis] != 0;
    let mut order: SmallVec<[usize; 6]> = SmallVec::new();
    for axis in 0..dims.len() {
        let mut place = order.len();
        if decides(axis) {
            for (i, &other) in order.iter().enumerate().rev() {
                if !decides(other) || strides[other] == strides[axis] {
                    continue;
                }
                if strides[other] > strides[axis] {
                    break;
                }
                place = i;
            }
        }
        order.insert(place, axis);
    }
    order
}

/// Number of elements from the first to the last, both included; 0 for an empty tensor, `None` if it exceeds
/// i64.
#[inline]
pub(crate) fn span(dims: &[i64], strides: &[i64]) -> Option<i64> {
    let (mut span, mut is_empty, mut overflows) = (1i64, false, false);
    for (&dim, &stride) in dims.iter().zip(strides) {
        let (extent, too_long) = (dim - 1).overflowing_mul(stride);
        let (sum, too_large) = span.overflowing_add(extent);
        span = sum;
        overflows |= too_long | too_large;
        is_empty |= dim == 0;
    }
    if is_empty { Some(0) } else { (!overflows).then_some(span) }
}

/// True if two different index tuples may have one address: with the dims above 1 ordered by stride, some
/// stride is not larger than the extent inside it.
pub(crate) fn overlaps_itself(dims: &[i64], strides: &[i64]) -> bool {
    let mut inside = 0i64;
    for axis in memory_order(dims, strides).into_iter().rev().filter(|&axis| dims[axis] > 1) {
        if strides[axis] <= inside {
            return true;
        }
        inside = inside.saturating_add((dims[axis] - 1).saturating_mul(strides[axis]));
    }
    false
}

/// The common shape of two shapes that broadcast to each other: right-aligned, each pair of dims equal or one
/// of them 1, a missing dim is 1.
pub(crate) fn broadcast_pair(a: &[i64], b: &[i64]) -> Result<Dims, BroadcastFault> {
    let rank = a.len().max(b.len());
    let at = |dims: &[i64], axis: usize| match (axis + dims.len()).checked_sub(rank) {
        Some(own) => dims[own],
        None => 1,
    };
    (0..rank)
        .map(|axis| match (at(a, axis), at(b, axis)) {
            (x, y) if x == y => Ok(x),
            (1, y) => Ok(y),
            (x, 1) => Ok(x),
            (x, y) => Err(BroadcastFault::Dim { shape: b.into(), onto: a.into(), axis, dim: y, onto_dim: x }),
        })
        .collect()
}

/// The dim of a result at which an operand starts that broadcasts onto it one way, right-aligned.
pub(crate) fn right_aligned(shape: &[i64], onto: &[i64]) -> Result<usize, BroadcastFault> {
    onto.len()
        .checked_sub(shape.len())
        .ok_or_else(|| BroadcastFault::Rank { shape: shape.into(), onto: onto.into() })
}

/// The dim of a result at which an operand starts under mode `pdpd`; `axis` −1 means right-aligned.
pub(crate) fn aligned_at(shape: &[i64], onto: &[i64], axis: i64) -> Result<usize, BroadcastFault> {
    let room = right_aligned(shape, onto)?;
    match axis {
        -1 => Ok(room),
        0.. if axis as u64 <= room as u64 => Ok(axis as usize),
        _ => Err(BroadcastFault::Axis { shape: shape.into(), onto: onto.into(), axis }),
    }
}

/// Checks that each dim of an operand that starts at dim `start` of the result equals its counterpart or is
/// 1.
pub(crate) fn fits_onto(shape: &[i64], onto: &[i64], start: usize) -> Result<(), BroadcastFault> {
    for (i, (&dim, &onto_dim)) in shape.iter().zip(&onto[start..]).enumerate() {
        if dim != onto_dim && dim != 1 {
            let (shape, onto) = (shape.into(), onto.into());
            return Err(BroadcastFault::Dim { shape, onto, axis: start + i, dim, onto_dim });
        }
    }
    Ok(())
}

/// The strides of an operand in the index space of a result onto which it broadcasts, starting at dim
/// `start`: 0 along every dim that it lacks or repeats.
pub(crate) fn access_strides(shape: &[i64], strides: &[i64], onto: &[i64], start: usize) -> Dims {
    let mut access = Dims::from_elem(0, onto.len());
    for (i, (&dim, &stride)) in shape.iter().zip(strides).enumerate() {
        if dim != 1 {
            access[start + i] = stride;
        }
    }
    access
}

/// The strides of the elements of a tensor in other dims, row by row; `None` if no strides lead to them. The
/// tensor has elements.
pub(crate) fn split_strides(dims: &[i64], strides: &[i64], other: &[i64]) -> Option<Dims> {
    // Neighbours without a gap are one dim.
    let mut merged: SmallVec<[(i64, i64); 6]> = SmallVec::new();
    for (&dim, &stride) in dims.iter().zip(strides).filter(|&(&dim, _)| dim != 1) {
        match merged.last_mut() {
            Some((count, inner)) if *inner == dim * stride => (*count, *inner) = (*count * dim, stride),
            _ => merged.push((dim, stride)),
        }
    }
    let mut split = Dims::from_elem(0, other.len());
    let mut given = merged.into_iter().rev();
    let (mut rest, mut next) = (1, 0);
    for (place, &dim) in other.iter().enumerate().rev().filter(|&(_, &dim)| dim != 1) {
        if rest == 1 {
            (rest, next) = given.next()?;
        }
        if rest % dim != 0 {
            return None;
        }
        split[place] = next;
        (rest, next) = (rest / dim, next * dim);
    }
    (rest == 1 && given.next().is_none()).then_some(split)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_are_split_and_merged_if_they_lead_to_the_elements() {
        type Row<'a> = (&'a [i64], &'a [i64], &'a [i64], Option<&'a [i64]>);
        let rows: &[Row<'_>] = &[
            (&[2, 3, 4], &[12, 4, 1], &[2, 12], Some(&[12, 1])),
            (&[2, 12], &[12, 1], &[2, 3, 4], Some(&[12, 4, 1])),
            (&[2, 12], &[100, 2], &[2, 3, 4], Some(&[100, 8, 2])),
            (&[2, 3, 4], &[12, 8, 1], &[2, 12], None),
            (&[2, 1, 3], &[5, 7, 1], &[1, 2, 3], Some(&[0, 5, 1])),
            (&[6], &[0], &[2, 3], Some(&[0, 0])),
            (&[4, 3], &[3, 1], &[6, 2], Some(&[2, 1])),
            (&[4, 3], &[4, 1], &[6, 2], None),
            (&[], &[], &[1, 1], Some(&[0, 0])),
            (&[1], &[9], &[], Some(&[])),
        ];
        let wrong: Vec<_> = rows
            .iter()
            .filter(|(dims, strides, other, split)| split_strides(dims, strides, other).as_deref() != *split)
            .collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn memory_order_follows_strides_and_keeps_what_they_leave_open() {
        let rows: &[(&[i64], &[i64], &[usize])] = &[
            (&[2, 3, 4], &[12, 4, 1], &[0, 1, 2]),
            (&[2, 3, 4], &[1, 8, 2], &[1, 2, 0]),
            (&[8, 3, 4], &[0, 4, 1], &[0, 1, 2]),
            (&[3, 8, 4], &[1, 0, 3], &[2, 0, 1]),
            (&[3, 1, 4], &[1, 1, 3], &[2, 0, 1]),
            (&[1, 1, 1], &[1, 5, 9], &[0, 1, 2]),
            (&[], &[], &[]),
        ];
        let wrong: Vec<_> = rows
            .iter()
            .filter(|(dims, strides, order)| memory_order(dims, strides)[..] != **order)
            .map(|(dims, strides, order)| (dims, strides, order, memory_order(dims, strides)))
            .collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn overlap_is_a_stride_within_the_extent_inside_it() {
        let rows: &[(&[i64], &[i64], bool)] = &[
            (&[4, 5], &[5, 1], false),
            (&[4, 5], &[4, 1], true),
            (&[4, 5], &[1, 4], false),
            (&[4, 5], &[1, 3], true),
            (&[4, 5], &[0, 1], true),
            (&[1, 5], &[0, 1], false),
            (&[2, 2, 2], &[4, 2, 1], false),
            (&[2, 2, 2], &[3, 2, 1], true),
            (&[3, 1, 2], &[2, 9, 1], false),
            (&[2, 3, 4], &[1, 8, 2], false),
            (&[2, 3, 2], &[2, 0, 1], true),
            (&[], &[], false),
        ];
        let wrong: Vec<_> =
            rows.iter().filter(|(d, s, expected)| overlaps_itself(d, s) != *expected).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
