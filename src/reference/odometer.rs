//! The way from the elements of a result to those of an operand.

use std::ops::Range;

#[cfg(feature = "threads")]
use rayon::prelude::*;
use smallvec::SmallVec;

use crate::types::shape::{self, Dims};

/// How many elements one task works out.
pub(super) const CHUNK: usize = 4096;

/// Where the elements of an operand lie, in the order of the elements of a result.
///
/// It has a wheel for each dim: a step turns the innermost, and one that comes round turns the next. No index
/// is divided into its digits but the first of a range.
#[derive(Debug)]
pub(super) struct Odometer {
    /// From the outermost to the innermost; there is at least one.
    wheels: SmallVec<[Wheel; 6]>,
    /// The place of the first element.
    start: usize,
}

/// A number of steps, each of a number of elements of the operand.
#[derive(Debug, Clone, Copy)]
struct Wheel {
    count: usize,
    stride: usize,
}

impl Odometer {
    /// The odometer over dims, whose strides are given; neighbours that turn as one become one.
    pub(super) fn new(dims: impl IntoIterator<Item = (usize, usize)>) -> Self {
        let mut wheels: SmallVec<[Wheel; 6]> = SmallVec::new();
        for (count, stride) in dims.into_iter().filter(|&(count, _)| count != 1) {
            match wheels.last_mut() {
                Some(outer) if outer.stride == stride.wrapping_mul(count) => {
                    *outer = Wheel { count: outer.count.wrapping_mul(count), stride };
                }
                _ => wheels.push(Wheel { count, stride }),
            }
        }
        if wheels.is_empty() {
            wheels.push(Wheel { count: 1, stride: 0 });
        }
        Self { wheels, start: 0 }
    }

    /// The same elements with the two innermost wheels the other way round.
    pub(super) fn swapped(mut self) -> Self {
        let inner = self.wheels.len();
        if inner > 1 {
            self.wheels.swap(inner - 2, inner - 1);
        }
        self
    }

    /// The same steps from another element on.
    pub(super) fn starting_at(self, start: usize) -> Self {
        Self { start, ..self }
    }

    /// The odometer over a dense operand in the order of a result that it broadcasts onto, its first dim
    /// standing at dim `start` of the result.
    pub(super) fn broadcast(operand: &[i64], onto: &[i64], start: usize) -> Self {
        let strides = shape::access_strides(operand, &dense(operand), onto, start);
        Self::of(onto, &strides)
    }

    /// The odometer over dense elements in their own order.
    pub(super) fn dense(dims: &[i64]) -> Self {
        Self::new([(shape::element_count(dims).unwrap_or(0) as usize, 1)])
    }

    /// The odometer over a dense operand whose dims are taken in another order.
    pub(super) fn permuted(operand: &[i64], order: &[usize]) -> Self {
        let strides = dense(operand);
        Self::new(order.iter().map(|&axis| (operand[axis] as usize, strides[axis] as usize)))
    }

    /// The odometer over dims by strides that fit them.
    pub(super) fn of(dims: &[i64], strides: &[i64]) -> Self {
        Self::new(dims.iter().zip(strides).map(|(&dim, &stride)| (dim as usize, stride as usize)))
    }

    /// Reads the elements of a range into a slice of as many.
    #[inline]
    pub(super) fn read<T>(&self, range: Range<usize>, into: &mut [T], read: impl Fn(usize) -> T) {
        let mut into = into;
        self.each_run(range, |first, stride, length| {
            let (now, rest) = std::mem::take(&mut into).split_at_mut(length);
            into = rest;
            match stride {
                1 => now.iter_mut().zip(first..).for_each(|(slot, at)| *slot = read(at)),
                _ => now.iter_mut().enumerate().for_each(|(i, slot)| *slot = read(first + i * stride)),
            }
        });
    }

    /// Calls a function for each stretch of a range along the innermost wheel: with the place of its first
    /// element, the stride and the number of elements.
    pub(super) fn each_run(&self, range: Range<usize>, mut run: impl FnMut(usize, usize, usize)) {
        let Some((inner, outer)) = self.wheels.split_last() else { return };
        if range.is_empty() {
            return;
        }
        let (mut rest, mut column) = (range.start / inner.count, range.start % inner.count);
        let mut place = self.start;
        let mut index: SmallVec<[usize; 6]> = SmallVec::from_elem(0, outer.len());
        for (i, wheel) in index.iter_mut().zip(outer).rev() {
            *i = rest % wheel.count;
            rest /= wheel.count;
            place += *i * wheel.stride;
        }
        let mut left = range.len();
        loop {
            let length = left.min(inner.count - column);
            run(place + column * inner.stride, inner.stride, length);
            left -= length;
            if left == 0 {
                return;
            }
            column = 0;
            for (i, wheel) in index.iter_mut().zip(outer).rev() {
                *i += 1;
                place += wheel.stride;
                if *i < wheel.count {
                    break;
                }
                place -= wheel.count * wheel.stride;
                *i = 0;
            }
        }
    }
}

/// The strides of dense elements in row-major order; of no elements, any.
pub(super) fn dense(dims: &[i64]) -> Dims {
    let mut stride = 1i64;
    let mut strides: Dims =
        dims.iter().rev().map(|&dim| (stride, stride = stride.wrapping_mul(dim)).0).collect();
    strides.reverse();
    strides
}

/// Calls a function with the number and the elements of each piece of a given length, on all threads if there
/// are more than one.
pub(super) fn in_pieces<T: Send>(all: &mut [T], size: usize, work: impl Fn(usize, &mut [T]) + Sync) {
    if all.len() <= size {
        if !all.is_empty() {
            work(0, all);
        }
        return;
    }
    #[cfg(feature = "threads")]
    let pieces = all.par_chunks_mut(size);
    #[cfg(not(feature = "threads"))]
    let pieces = all.chunks_mut(size);
    pieces.enumerate().for_each(|(n, piece)| work(n, piece));
}
