//! Select moves bits: `to[i] = cond[i] != 0 ? then[i] : else[i]`.
//!
//! [`generic`] has the bodies in plain Rust; at level Avx512 those of [`avx512`] replace them.

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
mod avx512;
mod generic;
mod mask;
mod moves;

pub(crate) use mask::{MaskClass, PrefetchDistance};
pub(crate) use moves::{BlendRows, Move};

use super::by_width::{ByWidth, kernel};
use super::isa::{ByLevel, by_level, shells};
use super::{Extent, InnerStride, Source, StorePolicy, Target, Width};
use crate::types::kind::Level;

/// Selects element by element. The condition is contiguous along a row. Prefetches each branch by a distance
/// in bytes.
///
/// # Safety
///
/// Every element of the tile can be read from the sources and written to the target. The machine runs the
/// kernel's level. The target has the address and row stride of a source, or overlaps none. If the kernel
/// stores non-temporally, a [`fence`](super::simd::StoreFence) follows on the same thread.
pub(crate) type Blend = unsafe fn(
    extent: Extent,
    cond: Source,
    then: Source,
    else_: Source,
    to: Target,
    distance: PrefetchDistance,
);

/// Selects element by element between what the target holds and another source. The condition is contiguous
/// along a row. Chunks that all choose the other source may be stored non-temporally, because nobody has read
/// what the target held (decision: groups-in-place).
///
/// # Safety
///
/// As for [`Blend`].
pub(crate) type SelectInPlace =
    unsafe fn(extent: Extent, cond: Source, other: Source, to: Target, chunk_stores: StorePolicy);

/// Reads the conditions of a tile, contiguous along a row, until two differ. An empty tile is all true.
///
/// # Safety
///
/// Every condition can be read, and the machine runs the kernel's level.
pub(crate) type MaskTest = unsafe fn(extent: Extent, cond: Source) -> MaskClass;

/// The kernel that selects between two sources.
pub(crate) fn blend(
    level: Level,
    width: Width,
    then: InnerStride,
    else_: InnerStride,
    stores: StorePolicy,
) -> Blend {
    BLEND[stores as usize][then as usize][else_ as usize].get(level, width)
}

/// The kernel that selects whole rows of contiguous branches.
pub(crate) fn blend_rows(level: Level, width: Width, stores: StorePolicy) -> BlendRows {
    moves::BLEND_ROWS[stores as usize].get(level, width)
}

/// The kernel that replaces elements of the target where the condition is `replaced`.
pub(crate) fn select_in_place(
    level: Level,
    width: Width,
    replaced: bool,
    other: InnerStride,
) -> SelectInPlace {
    SELECT_IN_PLACE[usize::from(replaced)][other as usize].get(level, width)
}

/// The kernel that copies a source.
pub(crate) fn copy(level: Level, width: Width, from: InnerStride, stores: StorePolicy) -> Move {
    moves::COPY[stores as usize][from as usize].get(level, width)
}

/// The kernel that classifies conditions.
pub(crate) fn classify_mask(level: Level) -> MaskTest {
    CLASSIFY_MASK[level.row()]
}

/// Kernels by the inner stride of `then`, then of `else`.
macro_rules! by_inner {
    ($row:ident, $non_temporal:expr) => {
        [
            [$row!(false, false, $non_temporal), $row!(false, true, $non_temporal)],
            [$row!(true, false, $non_temporal), $row!(true, true, $non_temporal)],
        ]
    };
}

macro_rules! blend_row {
    ($then:expr, $else_:expr, $non_temporal:expr) => {
        kernel!(
            (
                extent: Extent, cond: Source, then: Source, else_: Source, to: Target,
                distance: PrefetchDistance
            ),
            generic::blend[$then, $else_, $non_temporal],
            avx512::blend[$then, $else_, $non_temporal]
        )
    };
}

/// By the store policy, then by the inner strides of `then` and `else`.
static BLEND: [[[ByWidth<Blend>; 2]; 2]; 2] = [by_inner!(blend_row, false), by_inner!(blend_row, true)];

macro_rules! select_in_place_row {
    ($replaced:expr, $other:expr) => {
        kernel!(
            (extent: Extent, cond: Source, other: Source, to: Target, chunk_stores: StorePolicy),
            generic::select_in_place[$replaced, $other],
            avx512::select_in_place[$replaced, $other]
        )
    };
}

/// By the replaced value, then by the inner stride of the other source.
static SELECT_IN_PLACE: [[ByWidth<SelectInPlace>; 2]; 2] = [
    [select_in_place_row!(false, false), select_in_place_row!(false, true)],
    [select_in_place_row!(true, false), select_in_place_row!(true, true)],
];

/// By level.
static CLASSIFY_MASK: ByLevel<MaskTest> = {
    shells! {
        I:
        fn kernel[](extent: Extent, cond: Source) -> MaskClass {
            generic::classify_mask(extent, cond)
        } or {
            avx512::classify_mask(extent, cond)
        }
    }

    by_level!(kernel)
};
