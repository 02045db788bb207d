//! Kernels that move elements: one for each level and width of elements.

use super::isa::{ByLevel, LEVELS};
use super::{Extent, Source, Target, Width};
use crate::types::kind::Level;

/// Reads elements that lie `col_stride` bytes apart along a row, and writes them contiguously. May prefetch
/// `distance` bytes ahead, unless that is 0.
///
/// # Safety
///
/// Every element of the tile can be read from the source and written to the target, the machine runs the
/// kernel's level, and source and target do not overlap.
pub(crate) type PackTile =
    unsafe fn(extent: Extent, from: Source, col_stride: isize, distance: isize, to: Target);

/// A kernel at every level and width: a row of the table of kernels.
pub(crate) struct ByWidth<K: 'static>(ByLevel<[K; 4]>);

impl<K: Copy> ByWidth<K> {
    /// The kernels for elements of 1, 2, 4 and 8 bytes.
    pub(super) const fn of(w1: ByLevel<K>, w2: ByLevel<K>, w4: ByLevel<K>, w8: ByLevel<K>) -> Self {
        let mut table = [[w1[0]; 4]; LEVELS.len()];
        let mut row = 0;
        while row < table.len() {
            table[row] = [w1[row], w2[row], w4[row], w8[row]];
            row += 1;
        }
        Self(table)
    }

    /// The kernel for a level and a width.
    pub(crate) fn get(&self, level: Level, width: Width) -> K {
        self.0[level.row()][width as usize]
    }
}

/// A kernel at every level and width. The first body is for the levels that plain Rust serves well, the
/// second for Avx512.
macro_rules! kernel {
    (
        ($($arg:ident: $Arg:ty),*) $(-> $Ret:ty)?,
        $plain:ident :: $plain_body:ident [$($c:expr),*],
        $wide:ident :: $wide_body:ident [$($d:expr),*]
    ) => {{
        $crate::kernels::isa::shells! {
            I:
            fn kernel[U: $crate::kernels::simd::LaneBits]($($arg: $Arg),*) $(-> $Ret)? {
                $plain::$plain_body::<U, $($c),*>($($arg),*)
            } or {
                $wide::$wide_body::<U, $($d),*>($($arg),*)
            }
        }

        $crate::kernels::by_width::ByWidth::of(
            $crate::kernels::isa::by_level!(kernel::<u8>),
            $crate::kernels::isa::by_level!(kernel::<u16>),
            $crate::kernels::isa::by_level!(kernel::<u32>),
            $crate::kernels::isa::by_level!(kernel::<u64>),
        )
    }};
}

pub(in crate::kernels) use kernel;
