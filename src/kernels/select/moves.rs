//! Rows that are copied, or filled with one element.

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
use super::avx512 as wide;
use super::generic;
use crate::kernels::by_width::ByWidth;
use crate::kernels::isa::{by_level, shells};
use crate::kernels::simd::LaneBits;
use crate::kernels::{Extent, Source, Target};

/// Selects whole rows of contiguous branches by the first condition of each row. No branch of the program
/// depends on a condition, so unpredictable conditions cost nothing (decision: row-select-no-branch).
///
/// # Safety
///
/// As for [`Blend`](super::Blend); the condition has one element a row.
pub(crate) type BlendRows = unsafe fn(extent: Extent, cond: Source, then: Source, else_: Source, to: Target);

/// Copies a source to a target.
///
/// # Safety
///
/// As for [`Blend`](super::Blend).
pub(crate) type Move = unsafe fn(extent: Extent, from: Source, to: Target);

shells! {
    I:
    // Bits are copied in the same way whatever the width, so all widths share the code.
    #[inline(never)]
    fn copy_bytes[const NON_TEMPORAL: bool](extent: Extent, from: Source, to: Target) {
        generic::copy::<NON_TEMPORAL>(extent, from, to)
    } or {
        wide::copy::<NON_TEMPORAL>(extent, from, to)
    }

    #[inline(never)]
    fn blend_rows_of_bytes[const NON_TEMPORAL: bool](
        extent: Extent, cond: Source, then: Source, else_: Source, to: Target,
    ) {
        generic::blend_rows::<NON_TEMPORAL>(extent, cond, then, else_, to)
    } or {
        wide::blend_rows::<NON_TEMPORAL>(extent, cond, then, else_, to)
    }

    fn copied[U: LaneBits, const NON_TEMPORAL: bool](extent: Extent, from: Source, to: Target) {
        copy_bytes::<NON_TEMPORAL>(in_bytes::<U>(extent), from, to)
    }

    fn filled[U: LaneBits, const NON_TEMPORAL: bool](extent: Extent, from: Source, to: Target) {
        generic::fill::<U, NON_TEMPORAL>(extent, from, to)
    } or {
        wide::fill::<U, NON_TEMPORAL>(extent, from, to)
    }

    fn rows_blended[U: LaneBits, const NON_TEMPORAL: bool](
        extent: Extent, cond: Source, then: Source, else_: Source, to: Target,
    ) {
        blend_rows_of_bytes::<NON_TEMPORAL>(in_bytes::<U>(extent), cond, then, else_, to)
    }
}

#[inline(always)]
fn in_bytes<U>(extent: Extent) -> Extent {
    Extent { columns: extent.columns * size_of::<U>(), ..extent }
}

macro_rules! by_width {
    ($shell:ident, $non_temporal:literal) => {
        ByWidth::of(
            by_level!($shell::<u8, $non_temporal>),
            by_level!($shell::<u16, $non_temporal>),
            by_level!($shell::<u32, $non_temporal>),
            by_level!($shell::<u64, $non_temporal>),
        )
    };
}

/// By the store policy.
pub(super) static BLEND_ROWS: [ByWidth<BlendRows>; 2] =
    [by_width!(rows_blended, false), by_width!(rows_blended, true)];

/// By the store policy, then by the inner stride of the source.
pub(super) static COPY: [[ByWidth<Move>; 2]; 2] = [
    [by_width!(filled, false), by_width!(copied, false)],
    [by_width!(filled, true), by_width!(copied, true)],
];
