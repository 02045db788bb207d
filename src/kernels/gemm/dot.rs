//! Products of few rows and a right operand that is contiguous along the depth: every element of the result
//! is a dot product of two rows in memory, and the right operand is read once.

use super::simd::Simd;
#[cfg(target_arch = "x86_64")]
use crate::kernels::isa::Avx2;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
use crate::kernels::isa::Avx512;
#[cfg(target_arch = "aarch64")]
use crate::kernels::isa::Neon;
use crate::kernels::isa::{Portable, with_features};
use crate::types::dtype::DataType;
use crate::types::kind::Level;

/// Dot products of rows, whose elements are contiguous.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dots {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) depth: usize,
    /// The left rows, in f32.
    pub(crate) left: *const f32,
    pub(crate) left_row: isize,
    /// The right rows: one for each column of the result.
    pub(crate) right: *const u8,
    pub(crate) right_row: isize,
    /// The result, whose columns are contiguous.
    pub(crate) to: *mut f32,
    pub(crate) to_row: isize,
}

/// Computes dot products.
///
/// # Safety
///
/// The operands can be read and the result can be written, which overlaps neither; the machine runs the
/// level.
pub(crate) type DotKernel = unsafe fn(&Dots);

/// The kernel for right rows of a type.
pub(crate) fn dot_kernel(level: Level, right: DataType) -> DotKernel {
    match (level, right) {
        #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
        (Level::Avx512, DataType::Bf16) => avx512::<Bf16>,
        #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
        (Level::Avx512, DataType::F16) => avx512::<F16>,
        #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
        (Level::Avx512, _) => avx512::<F32>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2, DataType::Bf16) => avx2::<Bf16>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2, DataType::F16) => avx2::<F16>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2, _) => avx2::<F32>,
        #[cfg(target_arch = "aarch64")]
        (Level::Neon, DataType::Bf16) => neon::<Bf16>,
        #[cfg(target_arch = "aarch64")]
        (Level::Neon, DataType::F16) => neon::<F16>,
        #[cfg(target_arch = "aarch64")]
        (Level::Neon, _) => neon::<F32>,
        (_, DataType::Bf16) => portable::<Bf16>,
        (_, DataType::F16) => portable::<F16>,
        _ => portable::<F32>,
    }
}

/// How elements of the right rows are read.
trait LoadRight {
    const WIDTH: usize;

    /// The lanes of a mask of a vector.
    unsafe fn load<S: Simd>(at: *const u8, mask: S::Mask) -> S::Vector;
}

macro_rules! loads {
    ($($Name:ident $Element:ty, $load:ident;)*) => {
        $(
            struct $Name;

            impl LoadRight for $Name {
                const WIDTH: usize = size_of::<$Element>();

                #[inline(always)]
                unsafe fn load<S: Simd>(at: *const u8, mask: S::Mask) -> S::Vector {
                    // SAFETY: as the caller promises.
                    unsafe { S::$load(at.cast::<$Element>(), mask) }
                }
            }
        )*
    };
}

loads! {
    F32 f32, load_part;
    Bf16 u16, load_bf16;
    F16 u16, load_f16;
}

with_features! {
    portable
    unsafe fn portable<L: LoadRight>(dots: &Dots) {
        // SAFETY: as the caller promises.
        unsafe { all::<Portable, L>(dots) }
    }
}

#[cfg(target_arch = "aarch64")]
with_features! {
    neon
    unsafe fn neon<L: LoadRight>(dots: &Dots) {
        // SAFETY: as the caller promises.
        unsafe { all::<Neon, L>(dots) }
    }
}

#[cfg(target_arch = "x86_64")]
with_features! {
    avx2
    unsafe fn avx2<L: LoadRight>(dots: &Dots) {
        // SAFETY: as the caller promises.
        unsafe { all::<Avx2, L>(dots) }
    }
}

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
with_features! {
    avx512
    unsafe fn avx512<L: LoadRight>(dots: &Dots) {
        // SAFETY: as the caller promises.
        unsafe { all::<Avx512, L>(dots) }
    }
}

/// Columns, and rows, whose sums are computed side by side.
const COLUMNS: usize = 4;
const ROWS: usize = 2;

/// # Safety
///
/// As [`DotKernel`].
#[inline(always)]
unsafe fn all<S: Simd, L: LoadRight>(dots: &Dots) {
    let mut column = 0;
    // Columns outside, so that the right rows are read from memory once and then come from the caches.
    while column < dots.columns {
        let columns = if dots.columns - column >= COLUMNS { COLUMNS } else { 1 };
        let mut row = 0;
        while row < dots.rows {
            let rows = if dots.rows - row >= ROWS { ROWS } else { 1 };
            // SAFETY: the rows and columns are a part of the caller's.
            unsafe {
                match (rows, columns) {
                    (ROWS, COLUMNS) => block::<S, L, ROWS, COLUMNS>(dots, row, column),
                    (ROWS, _) => block::<S, L, ROWS, 1>(dots, row, column),
                    (_, COLUMNS) => block::<S, L, 1, COLUMNS>(dots, row, column),
                    _ => block::<S, L, 1, 1>(dots, row, column),
                }
            }
            row += rows;
        }
        column += columns;
    }
}

/// The order of a sum depends on the depth and the level alone: two vectors take turns, and their lanes are
/// added up as a tree.
///
/// # Safety
///
/// As [`DotKernel`], for the rows and columns that start at the given ones.
#[inline(always)]
unsafe fn block<S: Simd, L: LoadRight, const R: usize, const C: usize>(
    dots: &Dots,
    row: usize,
    column: usize,
) {
    let left: [*const f32; R] = std::array::from_fn(
        #[inline(always)]
        |r| dots.left.wrapping_byte_offset(dots.left_row * (row + r) as isize),
    );
    let right: [*const u8; C] = std::array::from_fn(
        #[inline(always)]
        |c| dots.right.wrapping_offset(dots.right_row * (column + c) as isize),
    );
    // SAFETY: as the caller promises; the last vector is read as far as the depth goes.
    unsafe {
        let mut sums = [[[S::zero(); 2]; C]; R];
        let all = S::mask(S::LANES);
        let mut at = 0;
        macro_rules! step {
            ($half:literal, $mask:expr) => {
                let ys: [S::Vector; C] = std::array::from_fn(
                    #[inline(always)]
                    |c| L::load::<S>(right[c].wrapping_add(at * L::WIDTH), $mask),
                );
                for r in 0..R {
                    let x = S::load_part(left[r].wrapping_add(at), $mask);
                    for c in 0..C {
                        sums[r][c][$half] = S::mul_add(x, ys[c], sums[r][c][$half]);
                    }
                }
            };
        }
        while at + 2 * S::LANES <= dots.depth {
            step!(0, all);
            at += S::LANES;
            step!(1, all);
            at += S::LANES;
        }
        if at + S::LANES <= dots.depth {
            step!(0, all);
            at += S::LANES;
        }
        if at < dots.depth {
            let part = S::mask(dots.depth - at);
            step!(1, part);
        }
        for (r, sums) in sums.into_iter().enumerate() {
            for (c, sums) in sums.into_iter().enumerate() {
                let mut lanes = [0.0f32; 32];
                S::store(lanes.as_mut_ptr(), sums[0]);
                S::store(lanes.as_mut_ptr().add(S::LANES), sums[1]);
                let mut width = S::LANES;
                while width > 0 {
                    for lane in 0..width {
                        lanes[lane] += lanes[lane + width];
                    }
                    width /= 2;
                }
                let to = dots.to.wrapping_byte_offset(dots.to_row * (row + r) as isize);
                to.wrapping_add(column + c).write_unaligned(lanes[0]);
            }
        }
    }
}
