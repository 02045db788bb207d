//! Kernels that move elements: one for each level and width of elements.

use super::Width;
use super::isa::ByLevel;
use crate::types::kind::Level;

/// A kernel at every level and width: a row of the table of kernels.
pub(crate) struct ByWidth<K: 'static>(pub(super) ByLevel<[K; 4]>);

impl<K: Copy> ByWidth<K> {
    /// The kernel for a level and a width.
    pub(crate) fn get(&self, level: Level, width: Width) -> K {
        self.0[level as usize][width as usize]
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

        $crate::kernels::by_width::ByWidth([
            [
                portable::kernel::<u8>,
                portable::kernel::<u16>,
                portable::kernel::<u32>,
                portable::kernel::<u64>,
            ],
            [avx2::kernel::<u8>, avx2::kernel::<u16>, avx2::kernel::<u32>, avx2::kernel::<u64>],
            [avx512::kernel::<u8>, avx512::kernel::<u16>, avx512::kernel::<u32>, avx512::kernel::<u64>],
        ])
    }};
}

pub(in crate::kernels) use kernel;
