//! Products of few rows and a right operand that is contiguous along the depth: every element of the result
//! is a dot product of two rows in memory, and the right operand is read once.

use std::mem::MaybeUninit;

use super::simd::Simd;
#[cfg(target_arch = "x86_64")]
use crate::kernels::isa::Avx2;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
use crate::kernels::isa::Avx512;
#[cfg(target_arch = "aarch64")]
use crate::kernels::isa::Neon;
use crate::kernels::isa::{Portable, with_features};
use crate::kernels::prefetch_l1;
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
        unsafe { all::<Portable, L, 1>(dots) }
    }
}

#[cfg(target_arch = "aarch64")]
with_features! {
    neon
    unsafe fn neon<L: LoadRight>(dots: &Dots) {
        // SAFETY: as the caller promises.
        unsafe { all::<Neon, L, 4>(dots) }
    }
}

#[cfg(target_arch = "x86_64")]
with_features! {
    avx2
    unsafe fn avx2<L: LoadRight>(dots: &Dots) {
        // SAFETY: as the caller promises.
        unsafe { all::<Avx2, L, 2>(dots) }
    }
}

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
with_features! {
    avx512
    unsafe fn avx512<L: LoadRight>(dots: &Dots) {
        // SAFETY: as the caller promises.
        unsafe { all::<Avx512, L, 4>(dots) }
    }
}

/// Columns whose sums are computed side by side.
const COLUMNS: usize = 4;

/// Rows that take part after part of the depth together.
const PART_ROWS: usize = 16;

/// Bytes of the right rows' parts of the depth, some vectors of every level (decision: dot-parts).
const PART_BYTES: usize = 2048;

/// Sums of rows and columns, a vector each.
type Sums<S, const R: usize, const C: usize> = [[<S as Simd>::Vector; C]; R];

/// A part of the depth.
#[derive(Clone, Copy)]
struct Part {
    from: usize,
    to: usize,
    is_last: bool,
    /// Bytes from an element of the right rows to the one that is prefetched meanwhile.
    distance: isize,
}

/// `R` rows have their sums computed side by side, as many as the level has registers for.
///
/// # Safety
///
/// As [`DotKernel`].
#[inline(always)]
unsafe fn all<S: Simd, L: LoadRight, const R: usize>(dots: &Dots) {
    let mut column = 0;
    // Columns outside, so that the right rows are read from memory once and then come from the caches.
    while column < dots.columns {
        let columns = if dots.columns - column >= COLUMNS { COLUMNS } else { 1 };
        for row in (0..dots.rows).step_by(PART_ROWS) {
            // SAFETY: the rows and columns are a part of the caller's.
            unsafe {
                match columns {
                    COLUMNS => by_parts::<S, L, R, COLUMNS>(dots, row, column),
                    _ => by_parts::<S, L, R, 1>(dots, row, column),
                }
            }
        }
        column += columns;
    }
}

/// Multiplies up to [`PART_ROWS`] rows part by part of the depth, so that the right rows come from the
/// first-level cache for all rows but the first, and the next part is prefetched meanwhile. Where there are
/// more rows, the right rows are few: they take the depth as a whole, and the left rows are read in order.
///
/// # Safety
///
/// As [`DotKernel`], for the rows and columns that start at the given ones.
#[inline(always)]
unsafe fn by_parts<S: Simd, L: LoadRight, const R: usize, const C: usize>(
    dots: &Dots,
    first: usize,
    column: usize,
) {
    let rows = PART_ROWS.min(dots.rows - first);
    let is_in_parts = dots.rows <= PART_ROWS;
    let most = if is_in_parts { PART_BYTES / L::WIDTH } else { dots.depth };
    // From the end of the depth to the next columns, where there are as many.
    let has_next = is_in_parts && column + 2 * C <= dots.columns;
    let to_next = dots.right_row * C as isize - (dots.depth * L::WIDTH) as isize;
    let mut sums = [MaybeUninit::<Sums<S, 1, C>>::uninit(); PART_ROWS];
    let mut part = Part { from: 0, to: 0, is_last: false, distance: 0 };
    while !part.is_last {
        let to = dots.depth.min(part.to + most);
        let is_last = to == dots.depth;
        let bytes = ((to - part.to) * L::WIDTH) as isize;
        let distance = match is_last {
            false => bytes,
            true if has_next => bytes + to_next,
            true => 0,
        };
        part = Part { from: part.to, to, is_last, distance };
        let mut row = 0;
        while row < rows {
            let saved = sums[row..].as_mut_ptr();
            // One column has few rows left.
            let taken = if C == 1 && rows - row < R { 1 } else { R.min(rows - row) };
            // SAFETY: as the caller promises; the sums of the block's rows follow each other.
            unsafe {
                match taken {
                    1 => block::<S, L, 1, C>(dots, first + row, column, part, saved.cast()),
                    2 if C > 1 => block::<S, L, 2, C>(dots, first + row, column, part, saved.cast()),
                    3 if C > 1 => block::<S, L, 3, C>(dots, first + row, column, part, saved.cast()),
                    _ => block::<S, L, R, C>(dots, first + row, column, part, saved.cast()),
                }
            }
            row += taken;
        }
    }
}

/// Adds a part of the depth to the sums of a block, which are saved, and writes the result if the part is the
/// last one. The order of a sum depends on the depth and the level alone: a lane of a
/// vector takes every so many of the products, and the lanes are added up as a tree, half to half.
///
/// # Safety
///
/// As [`DotKernel`], for the rows and columns that start at the given ones; the part before has saved its
/// sums.
#[inline(always)]
unsafe fn block<S: Simd, L: LoadRight, const R: usize, const C: usize>(
    dots: &Dots,
    row: usize,
    column: usize,
    part: Part,
    saved: *mut Sums<S, R, C>,
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
        let mut sums = if part.from == 0 { [[S::zero(); C]; R] } else { saved.read() };
        let all = S::mask(S::LANES);
        let mut at = part.from;
        macro_rules! step {
            ($mask:expr) => {
                let ys: [S::Vector; C] = std::array::from_fn(
                    #[inline(always)]
                    |c| {
                        let right = right[c].wrapping_add(at * L::WIDTH);
                        prefetch_l1(right.wrapping_offset(part.distance), 1);
                        L::load::<S>(right, $mask)
                    },
                );
                for r in 0..R {
                    let x = S::load_part(left[r].wrapping_add(at), $mask);
                    for c in 0..C {
                        sums[r][c] = S::mul_add(x, ys[c], sums[r][c]);
                    }
                }
            };
        }
        while at + 2 * S::LANES <= part.to {
            step!(all);
            at += S::LANES;
            step!(all);
            at += S::LANES;
        }
        while at < part.to {
            let some = S::mask(S::LANES.min(part.to - at));
            step!(some);
            at += S::LANES;
        }
        saved.write(sums);
        if !part.is_last {
            return;
        }
        for r in 0..R {
            for c in 0..C {
                let to = dots.to.wrapping_byte_offset(dots.to_row * (row + r) as isize);
                let sum = sum_of_lanes::<S>(saved.cast::<S::Vector>().add(r * C + c));
                to.wrapping_add(column + c).write_unaligned(sum);
            }
        }
    }
}

/// Adds up the lanes of a vector, half to half.
///
/// # Safety
///
/// The vector can be read.
#[inline(never)]
unsafe fn sum_of_lanes<S: Simd>(of: *const S::Vector) -> f32 {
    let mut lanes = [0.0f32; 16];
    // SAFETY: as the caller promises; a vector has so many numbers.
    unsafe { lanes.as_mut_ptr().copy_from_nonoverlapping(of.cast(), S::LANES) };
    let mut width = S::LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}
