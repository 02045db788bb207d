//! Bodies in plain Rust, which the compiler vectorises for the level for which it compiles them.

use std::hint::select_unpredictable;
use std::ops::Range;

use super::mask::{MaskClass, PrefetchDistance};
use crate::kernels::simd::{CacheLine, LaneBits};
use crate::kernels::{BLOCK, Extent, Source, StorePolicy, Target};

/// One element of a row: the `i`-th of a contiguous row, else the repeated one.
///
/// # Safety
///
/// That element can be read.
#[inline(always)]
unsafe fn element<U: LaneBits, const CONTIGUOUS: bool>(row: *const U, i: usize) -> U {
    // SAFETY: as the caller promises.
    unsafe { row.add(if CONTIGUOUS { i } else { 0 }).read_unaligned() }
}

/// # Safety
///
/// As [`Blend`](super::Blend).
#[inline(always)]
pub(super) unsafe fn blend<U: LaneBits, const THEN: bool, const ELSE: bool, const NON_TEMPORAL: bool>(
    extent: Extent,
    cond: Source,
    then: Source,
    else_: Source,
    to: Target,
    _: PrefetchDistance,
) {
    for row in 0..extent.rows {
        let (cond, then, else_) = (cond.row::<u8>(row), then.row(row), else_.row(row));
        // SAFETY: the caller promises that every element of the tile can be read and written.
        unsafe {
            write_row::<U, NON_TEMPORAL>(
                extent.columns,
                to.row(row),
                #[inline(always)]
                |i| U::blend(*cond.add(i), element::<U, THEN>(then, i), element::<U, ELSE>(else_, i)),
            );
        }
    }
}

/// Writes a row element by element, or with `NON_TEMPORAL` line by line with non-temporal stores.
///
/// # Safety
///
/// The row can be written, and `element` be called for each of its elements.
#[inline(always)]
unsafe fn write_row<U: LaneBits, const NON_TEMPORAL: bool>(
    columns: usize,
    to: *mut U,
    element: impl Fn(usize) -> U,
) {
    let of_line = size_of::<CacheLine>() / size_of::<U>();
    let before = to.addr().wrapping_neg() % size_of::<CacheLine>();
    let peel = before / size_of::<U>();
    // SAFETY: as the caller promises; a line holds the elements of a line, and each has an aligned address
    // within the row.
    unsafe {
        if !NON_TEMPORAL || !before.is_multiple_of(size_of::<U>()) || peel + of_line > columns {
            return write_each(0..columns, to, &element);
        }
        let lines = (columns - peel) / of_line;
        write_each(0..peel, to, &element);
        for first in (0..lines).map(|line| peel + line * of_line) {
            let mut line = CacheLine::default();
            for i in 0..of_line {
                line.0.as_mut_ptr().cast::<U>().add(i).write(element(first + i));
            }
            line.store_non_temporal(to.add(first).cast());
        }
        write_each(peel + lines * of_line..columns, to, &element);
    }
}

/// # Safety
///
/// The elements can be written, and `element` be called for each of them.
#[inline(always)]
unsafe fn write_each<U: LaneBits>(elements: Range<usize>, to: *mut U, element: &impl Fn(usize) -> U) {
    for i in elements {
        // SAFETY: as the caller promises.
        unsafe { to.add(i).write_unaligned(element(i)) };
    }
}

/// # Safety
///
/// As [`SelectInPlace`](super::SelectInPlace).
#[inline(always)]
pub(super) unsafe fn select_in_place<U: LaneBits, const REPLACED: bool, const OTHER: bool>(
    extent: Extent,
    cond: Source,
    other: Source,
    to: Target,
    _: StorePolicy,
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

/// Repeats the first element of each row.
///
/// # Safety
///
/// As [`Move`](super::Move).
#[inline(always)]
pub(super) unsafe fn fill<U: LaneBits, const NON_TEMPORAL: bool>(extent: Extent, from: Source, to: Target) {
    for row in 0..extent.rows {
        // SAFETY: the caller promises that the element of the row can be read, and that the row can be
        // written.
        unsafe {
            let first = element::<U, false>(from.row(row), 0);
            write_row::<U, NON_TEMPORAL>(
                extent.columns,
                to.row(row),
                #[inline(always)]
                |_| first,
            );
        }
    }
}

/// # Safety
///
/// As [`Move`](super::Move), of bytes.
#[inline(always)]
pub(super) unsafe fn copy<const NON_TEMPORAL: bool>(extent: Extent, from: Source, to: Target) {
    for row in 0..extent.rows {
        let (from, to) = (from.row::<u8>(row), to.row::<u8>(row));
        // SAFETY: the caller promises that the row can be read and written; `copy_to` allows the same
        // address.
        unsafe {
            if NON_TEMPORAL {
                write_row::<u8, true>(
                    extent.columns,
                    to,
                    #[inline(always)]
                    |i| element::<u8, true>(from, i),
                );
            } else {
                from.copy_to(to, extent.columns);
            }
        }
    }
}

/// # Safety
///
/// As [`Blend`](super::Blend), of bytes, with one condition a row.
#[inline(always)]
pub(super) unsafe fn blend_rows<const NON_TEMPORAL: bool>(
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
            copy::<NON_TEMPORAL>(Extent { rows: 1, ..extent }, from, to.at_row(row));
        }
    }
}

/// # Safety
///
/// As [`MaskTest`](super::MaskTest).
#[inline(always)]
pub(super) unsafe fn classify_mask(extent: Extent, cond: Source) -> MaskClass {
    let (mut some_true, mut some_false) = (false, false);
    for row in 0..extent.rows {
        // SAFETY: the caller promises that the conditions of the row can be read.
        let row = unsafe { std::slice::from_raw_parts(cond.row::<u8>(row), extent.columns) };
        let mut blocks = row.chunks_exact(BLOCK);
        for block in blocks.by_ref() {
            some_true |= block.iter().fold(0, |or, &byte| or | byte) != 0;
            some_false |= block.iter().fold(u8::MAX, |min, &byte| min.min(byte)) == 0;
            if some_true && some_false {
                return MaskClass::Mixed;
            }
        }
        for &byte in blocks.remainder() {
            some_true |= byte != 0;
            some_false |= byte == 0;
        }
    }
    MaskClass::of(some_true, some_false)
}
