//! Select moves bits: `to[i] = cond[i] != 0 ? then[i] : else[i]`.

use super::{ByWidth, Extent, Inner, Lane, Source, Target, Width, kernel};
use crate::types::kind::Level;

/// Chooses element by element. The condition is dense along a row.
///
/// # Safety
///
/// Every element of the tile can be read from the sources and written to the target, the machine runs the kernel's
/// level, and the target is at the very address and pitch of a source or overlaps it nowhere.
pub(crate) type Blend = unsafe fn(extent: Extent, cond: Source, then: Source, else_: Source, to: Target);

/// Chooses element by element between what the target holds already and another source. The condition is dense along
/// a row.
///
/// # Safety
///
/// As for [`Blend`].
pub(crate) type Merge = unsafe fn(extent: Extent, cond: Source, other: Source, to: Target);

/// Copies a source to a target.
///
/// # Safety
///
/// As for [`Blend`].
pub(crate) type Move = unsafe fn(extent: Extent, from: Source, to: Target);

/// What the conditions of a tile have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    AllTrue,
    AllFalse,
    Mixed,
}

/// Reads the conditions of a tile, dense along a row, until two differ. An empty tile is all true.
///
/// # Safety
///
/// Every condition can be read, and the machine runs the kernel's level.
pub(crate) type Judge = unsafe fn(extent: Extent, cond: Source) -> Verdict;

/// The kernel that chooses between two sources.
pub(crate) fn blend(level: Level, width: Width, then: Inner, else_: Inner) -> Blend {
    let table: &ByWidth<Blend> = match (then, else_) {
        (Inner::Dense, Inner::Dense) => &BLEND_DENSE_DENSE,
        (Inner::Dense, Inner::Repeated) => &BLEND_DENSE_REPEATED,
        (Inner::Repeated, Inner::Dense) => &BLEND_REPEATED_DENSE,
        (Inner::Repeated, Inner::Repeated) => &BLEND_REPEATED_REPEATED,
    };
    table.get(level, width)
}

/// The kernel that replaces elements of the target where the condition is `replaced`.
pub(crate) fn merge(level: Level, width: Width, replaced: bool, other: Inner) -> Merge {
    let table: &ByWidth<Merge> = match (replaced, other) {
        (true, Inner::Dense) => &MERGE_TRUE_DENSE,
        (true, Inner::Repeated) => &MERGE_TRUE_REPEATED,
        (false, Inner::Dense) => &MERGE_FALSE_DENSE,
        (false, Inner::Repeated) => &MERGE_FALSE_REPEATED,
    };
    table.get(level, width)
}

/// The kernel that copies a source.
pub(crate) fn copy(level: Level, width: Width, from: Inner) -> Move {
    let table: &ByWidth<Move> = match from {
        Inner::Dense => &COPY_DENSE,
        Inner::Repeated => &COPY_REPEATED,
    };
    table.get(level, width)
}

/// The kernel that judges conditions.
pub(crate) fn judge(level: Level) -> Judge {
    JUDGE.get(level, Width::W1)
}

kernel! { BLEND_DENSE_DENSE: Blend = blend_body[true, true](extent: Extent, cond: Source, then: Source, else_: Source, to: Target) }
kernel! { BLEND_DENSE_REPEATED: Blend = blend_body[true, false](extent: Extent, cond: Source, then: Source, else_: Source, to: Target) }
kernel! { BLEND_REPEATED_DENSE: Blend = blend_body[false, true](extent: Extent, cond: Source, then: Source, else_: Source, to: Target) }
kernel! { BLEND_REPEATED_REPEATED: Blend = blend_body[false, false](extent: Extent, cond: Source, then: Source, else_: Source, to: Target) }
kernel! { MERGE_TRUE_DENSE: Merge = merge_body[true, true](extent: Extent, cond: Source, other: Source, to: Target) }
kernel! { MERGE_TRUE_REPEATED: Merge = merge_body[true, false](extent: Extent, cond: Source, other: Source, to: Target) }
kernel! { MERGE_FALSE_DENSE: Merge = merge_body[false, true](extent: Extent, cond: Source, other: Source, to: Target) }
kernel! { MERGE_FALSE_REPEATED: Merge = merge_body[false, false](extent: Extent, cond: Source, other: Source, to: Target) }
kernel! { COPY_DENSE: Move = copy_body[true](extent: Extent, from: Source, to: Target) }
kernel! { COPY_REPEATED: Move = copy_body[false](extent: Extent, from: Source, to: Target) }
kernel! { JUDGE: Judge = judge_body[](extent: Extent, cond: Source) -> Verdict }

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
/// As [`Blend`].
#[inline(always)]
unsafe fn blend_body<U: Lane, const THEN: bool, const ELSE: bool>(
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
/// As [`Merge`].
#[inline(always)]
unsafe fn merge_body<U: Lane, const REPLACED: bool, const OTHER: bool>(
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
/// As [`Move`].
#[inline(always)]
unsafe fn copy_body<U: Lane, const DENSE: bool>(extent: Extent, from: Source, to: Target) {
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
/// As [`Judge`].
#[inline(always)]
unsafe fn judge_body<U: Lane>(extent: Extent, cond: Source) -> Verdict {
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
    match (some_true, some_false) {
        (true, true) => Verdict::Mixed,
        (false, true) => Verdict::AllFalse,
        (_, false) => Verdict::AllTrue,
    }
}
