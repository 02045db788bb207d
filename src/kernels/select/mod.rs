//! Select moves bits: `to[i] = cond[i] != 0 ? then[i] : else[i]`.
//!
//! The bodies in plain Rust stand in [`generic`]; at level Avx512 those in [`avx512`] take their place.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod generic;

use super::{ByLevel, ByWidth, Extent, Inner, Source, Stores, Target, Width, kernel};
use crate::types::kind::Level;

/// Chooses element by element. The condition is dense along a row. What lies some bytes ahead of each branch is asked for.
///
/// # Safety
///
/// Every element of the tile can be read from the sources and written to the target, the machine runs the kernel's
/// level, and the target is at the very address and pitch of a source or overlaps it nowhere. A kernel that streams
/// is followed by a [`fence`](super::simd::StoreFence) on the same thread.
pub(crate) type Blend =
    unsafe fn(extent: Extent, cond: Source, then: Source, else_: Source, to: Target, ahead: Ahead);

/// How many bytes before they are read the elements of each branch are asked for; 0 where they are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ahead {
    pub(crate) then: isize,
    pub(crate) else_: isize,
}

/// Chooses whole rows of dense branches by the first condition of each row. No branch of the program hangs on a
/// condition: with conditions that nothing can predict, rows of 1 and 2 KiB went
/// 1.1 times as fast as with one on one thread, up to 1.4 times on two.
///
/// # Safety
///
/// As for [`Blend`]; the condition has one element a row.
pub(crate) type BlendRows = unsafe fn(extent: Extent, cond: Source, then: Source, else_: Source, to: Target);

/// Chooses element by element between what the target holds already and another source. The condition is dense along
/// a row. Groups of elements that all choose the other source, of which nobody has read what the target held, may go past
/// the caches: beyond those of a Zen 5, a causal mask took 0.6 of its time for it, padding 0.57, a copy of all 0.77.
///
/// # Safety
///
/// As for [`Blend`].
pub(crate) type Merge = unsafe fn(extent: Extent, cond: Source, other: Source, to: Target, groups: Stores);

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

impl Verdict {
    /// From whether some condition is true, and whether some is false.
    fn of(some_true: bool, some_false: bool) -> Self {
        match (some_true, some_false) {
            (true, true) => Self::Mixed,
            (false, true) => Self::AllFalse,
            (_, false) => Self::AllTrue,
        }
    }
}

/// Reads the conditions of a tile, dense along a row, until two differ. An empty tile is all true.
///
/// # Safety
///
/// Every condition can be read, and the machine runs the kernel's level.
pub(crate) type Judge = unsafe fn(extent: Extent, cond: Source) -> Verdict;

/// The kernel that chooses between two sources.
pub(crate) fn blend(level: Level, width: Width, then: Inner, else_: Inner, stores: Stores) -> Blend {
    BLEND[stores as usize][then as usize][else_ as usize].get(level, width)
}

/// The kernel that chooses whole rows of dense branches.
pub(crate) fn blend_rows(level: Level, width: Width, stores: Stores) -> BlendRows {
    BLEND_ROWS[stores as usize].get(level, width)
}

/// The kernel that replaces elements of the target where the condition is `replaced`.
pub(crate) fn merge(level: Level, width: Width, replaced: bool, other: Inner) -> Merge {
    MERGE[usize::from(replaced)][other as usize].get(level, width)
}

/// The kernel that copies a source.
pub(crate) fn copy(level: Level, width: Width, from: Inner, stores: Stores) -> Move {
    COPY[stores as usize][from as usize].get(level, width)
}

/// The kernel that judges conditions.
pub(crate) fn judge(level: Level) -> Judge {
    JUDGE[level as usize]
}

/// The four ways in which two branches run along a row: by `then`, then by `else`.
macro_rules! by_inner {
    ($row:ident, $stream:expr) => {
        [
            [$row!(false, false, $stream), $row!(false, true, $stream)],
            [$row!(true, false, $stream), $row!(true, true, $stream)],
        ]
    };
}

macro_rules! blend_row {
    ($then:expr, $else_:expr, $stream:expr) => {
        kernel!(
            (extent: Extent, cond: Source, then: Source, else_: Source, to: Target, ahead: Ahead),
            generic::blend[$then, $else_, $stream],
            avx512::blend[$then, $else_, $stream]
        )
    };
}

/// By how the target is stored, then by how `then` and `else` run along a row.
static BLEND: [[[ByWidth<Blend>; 2]; 2]; 2] = [by_inner!(blend_row, false), by_inner!(blend_row, true)];

macro_rules! blend_rows_row {
    ($stream:expr) => {
        kernel!(
            (extent: Extent, cond: Source, then: Source, else_: Source, to: Target),
            generic::blend_rows[$stream],
            avx512::blend_rows[$stream]
        )
    };
}

/// By how the target is stored.
static BLEND_ROWS: [ByWidth<BlendRows>; 2] = [blend_rows_row!(false), blend_rows_row!(true)];

macro_rules! merge_row {
    ($replaced:expr, $other:expr) => {
        kernel!(
            (extent: Extent, cond: Source, other: Source, to: Target, groups: Stores),
            generic::merge[$replaced, $other],
            avx512::merge[$replaced, $other]
        )
    };
}

/// By what is replaced, then by how the other source runs along a row.
static MERGE: [[ByWidth<Merge>; 2]; 2] =
    [[merge_row!(false, false), merge_row!(false, true)], [merge_row!(true, false), merge_row!(true, true)]];

macro_rules! copy_row {
    ($dense:expr, $stream:expr) => {
        kernel!((extent: Extent, from: Source, to: Target), generic::copy[$dense, $stream], avx512::copy[$dense, $stream])
    };
}

/// By how the target is stored, then by how the source runs along a row.
static COPY: [[ByWidth<Move>; 2]; 2] =
    [[copy_row!(false, false), copy_row!(true, false)], [copy_row!(false, true), copy_row!(true, true)]];

/// By level.
static JUDGE: ByLevel<Judge> = {
    unsafe fn portable(extent: Extent, cond: Source) -> Verdict {
        // SAFETY: as the caller promises.
        unsafe { generic::judge(extent, cond) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    unsafe fn avx2(extent: Extent, cond: Source) -> Verdict {
        // SAFETY: as the caller promises.
        unsafe { generic::judge(extent, cond) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn avx512(extent: Extent, cond: Source) -> Verdict {
        // SAFETY: as the caller promises.
        unsafe { avx512::judge(extent, cond) }
    }

    #[cfg(not(target_arch = "x86_64"))]
    use {portable as avx2, portable as avx512};

    [portable, avx2, avx512]
};
