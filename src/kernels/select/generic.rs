//! The bodies in plain Rust, which the compiler turns into the vectors of whichever level they are compiled for.

use std::hint::select_unpredictable;

use super::Verdict;
use crate::kernels::{Extent, Lane, Source, Target};

/// One element of a row: the `i`-th where it is dense, else its first.
///
/// # Safety
///
/// That element can be read.
#[inline(always)]
unsafe fn element<U: Lane, const DENSE: bool>(row: *const U, i: usize) -> U {
    // SAFETY: as the caller promises.
    unsafe { row.add(if DENSE { i } else { 0 }).read_unaligned() }
}

/// # Safety
///
/// As [`Blend`](super::Blend).
#[inline(always)]
pub(super) unsafe fn blend<U: Lane, const THEN: bool, const ELSE: bool>(
    extent: Extent,
    cond: Source,
    then: Source,
    else_: Source,
    to: Target,
) {
    for row in 0..extent.rows {
        let (cond, then, else_, to) = (cond.row::<u8>(row), then.row(row), else_.row(row), to.row::<U>(row));
        for i in 0..extent.columns {
            // SAFETY: the caller promises that every element of the tile can be read and written.
            unsafe {
                let chosen =
                    U::blend(*cond.add(i), element::<U, THEN>(then, i), element::<U, ELSE>(else_, i));
                to.add(i).write_unaligned(chosen);
            }
        }
    }
}

/// # Safety
///
/// As [`Merge`](super::Merge).
#[inline(always)]
pub(super) unsafe fn merge<U: Lane, const REPLACED: bool, const OTHER: bool>(
    extent: Extent,
    cond: Source,
    other: Source,
    to: Target,
) {
    for row in 0..extent.rows {
        let (cond, other, to) = (cond.row::<u8>(row), other.row(row), to.row::<U>(row));
        for i in 0..extent.columns {
            // SAFETY: the caller promises that every element of the tile can be read and written.
            unsafe {
                let (kept, other) = (to.add(i).read_unaligned(), element::<U, OTHER>(other, i));
                let (then, else_) = if REPLACED { (other, kept) } else { (kept, other) };
                to.add(i).write_unaligned(U::blend(*cond.add(i), then, else_));
            }
        }
    }
}

/// # Safety
///
/// As [`Move`](super::Move).
#[inline(always)]
pub(super) unsafe fn copy<U: Lane, const DENSE: bool>(extent: Extent, from: Source, to: Target) {
    for row in 0..extent.rows {
        let (from, to) = (from.row::<U>(row), to.row::<U>(row));
        if DENSE {
            // SAFETY: the caller promises that the row can be read and written; `copy` allows the same address.
            unsafe { from.cast::<u8>().copy_to(to.cast(), extent.columns * size_of::<U>()) };
        } else {
            // SAFETY: the caller promises that one element can be read, and the row be written.
            unsafe {
                let value = from.read_unaligned();
                (0..extent.columns).for_each(|i| to.add(i).write_unaligned(value));
            }
        }
    }
}

/// # Safety
///
/// As [`Blend`](super::Blend), with one condition a row.
#[inline(always)]
pub(super) unsafe fn blend_rows<U: Lane>(
    extent: Extent,
    cond: Source,
    then: Source,
    else_: Source,
    to: Target,
) {
    for row in 0..extent.rows {
        // SAFETY: the caller promises that every element of the tile can be read and written.
        unsafe {
            let from = select_unpredictable(cond.is_true(row), then.at_row(row), else_.at_row(row));
            copy::<U, true>(Extent { rows: 1, ..extent }, from, to.at_row(row));
        }
    }
}

/// # Safety
///
/// As [`Judge`](super::Judge).
#[inline(always)]
pub(super) unsafe fn judge(extent: Extent, cond: Source) -> Verdict {
    const BLOCK: usize = 64;
    let (mut some_true, mut some_false) = (false, false);
    for row in 0..extent.rows {
        // SAFETY: the caller promises that the conditions of the row can be read.
        let row = unsafe { std::slice::from_raw_parts(cond.row::<u8>(row), extent.columns) };
        let mut blocks = row.chunks_exact(BLOCK);
        for block in blocks.by_ref() {
            some_true |= block.iter().fold(0, |or, &byte| or | byte) != 0;
            some_false |= block.iter().fold(u8::MAX, |min, &byte| min.min(byte)) == 0;
            if some_true && some_false {
                return Verdict::Mixed;
            }
        }
        for &byte in blocks.remainder() {
            some_true |= byte != 0;
            some_false |= byte == 0;
        }
    }
    Verdict::of(some_true, some_false)
}
