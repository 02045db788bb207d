//! The bodies in plain Rust, which the compiler turns into the vectors of whichever level they are compiled for.

use std::hint::select_unpredictable;
use std::ops::Range;

use super::{Ahead, Verdict};
use crate::kernels::simd::Line;
use crate::kernels::{Extent, Lane, Source, Stores, Target};

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
pub(super) unsafe fn blend<U: Lane, const THEN: bool, const ELSE: bool, const STREAM: bool>(
    extent: Extent,
    cond: Source,
    then: Source,
    else_: Source,
    to: Target,
    _: Ahead,
) {
    for row in 0..extent.rows {
        let (cond, then, else_) = (cond.row::<u8>(row), then.row(row), else_.row(row));
        // SAFETY: the caller promises that every element of the tile can be read and written.
        unsafe {
            write_row::<U, STREAM>(
                extent.columns,
                to.row(row),
                #[inline(always)]
                |i| U::blend(*cond.add(i), element::<U, THEN>(then, i), element::<U, ELSE>(else_, i)),
            );
        }
    }
}

/// Writes a row, element by element, or with `STREAM` line by line past the caches where it can.
///
/// # Safety
///
/// The row can be written, and `element` be called for each of its elements.
#[inline(always)]
unsafe fn write_row<U: Lane, const STREAM: bool>(columns: usize, to: *mut U, element: impl Fn(usize) -> U) {
    let of_line = size_of::<Line>() / size_of::<U>();
    let before = to.addr().wrapping_neg() % size_of::<Line>();
    let head = before / size_of::<U>();
    // SAFETY: as the caller promises; a line has room for the elements of a line, and each stands at an aligned address
    // within the row.
    unsafe {
        if !STREAM || !before.is_multiple_of(size_of::<U>()) || head + of_line > columns {
            return write_each(0..columns, to, &element);
        }
        let lines = (columns - head) / of_line;
        write_each(0..head, to, &element);
        for first in (0..lines).map(|line| head + line * of_line) {
            let mut line = Line::default();
            for i in 0..of_line {
                line.0.as_mut_ptr().cast::<U>().add(i).write(element(first + i));
            }
            line.stream(to.add(first).cast());
        }
        write_each(head + lines * of_line..columns, to, &element);
    }
}

/// # Safety
///
/// The elements can be written, and `element` be called for each of them.
#[inline(always)]
unsafe fn write_each<U: Lane>(elements: Range<usize>, to: *mut U, element: &impl Fn(usize) -> U) {
    for i in elements {
        // SAFETY: as the caller promises.
        unsafe { to.add(i).write_unaligned(element(i)) };
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
    _: Stores,
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
pub(super) unsafe fn copy<U: Lane, const DENSE: bool, const STREAM: bool>(
    extent: Extent,
    from: Source,
    to: Target,
) {
    for row in 0..extent.rows {
        let (from, to) = (from.row::<U>(row), to.row::<U>(row));
        // SAFETY: the caller promises that the row, or its one element, can be read, and the row be written; `copy_to`
        // allows the same address.
        unsafe {
            if DENSE && !STREAM {
                from.cast::<u8>().copy_to(to.cast(), extent.columns * size_of::<U>());
            } else {
                let first = element::<U, false>(from, 0);
                write_row::<U, STREAM>(
                    extent.columns,
                    to,
                    #[inline(always)]
                    |i| if DENSE { element::<U, true>(from, i) } else { first },
                );
            }
        }
    }
}

/// # Safety
///
/// As [`Blend`](super::Blend), with one condition a row.
#[inline(always)]
pub(super) unsafe fn blend_rows<U: Lane, const STREAM: bool>(
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
            copy::<U, true, STREAM>(Extent { rows: 1, ..extent }, from, to.at_row(row));
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
