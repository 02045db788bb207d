//! Vectors of 16 numbers at each level, as kernels of rows compute with them: loads from and stores to any
//! float type, arithmetic in f32 and f64, and sums and maxima over the numbers of a vector.
//!
//! A sum over a vector adds up halves: number `i` and number `i + 8`, then `i + 4` and so on. So the bits are
//! the same at every level.

use crate::kernels::isa::Isa;
use crate::kernels::pointwise::conversion::To;
use crate::kernels::pointwise::half::{Bf16, F16};
use crate::kernels::prefetch_l1;
use crate::types::dtype::DataType;

/// An array of the values of an expression for all indices below a number. The methods of arrays would do,
/// but they are not compiled for the level, nor are the instructions inside them.
macro_rules! each {
    (2, |$i:ident| $value:expr) => {
        [each!(@ $i = 0, $value), each!(@ $i = 1, $value)]
    };
    (4, |$i:ident| $value:expr) => {
        [each!(@ $i = 0, $value), each!(@ $i = 1, $value), each!(@ $i = 2, $value), each!(@ $i = 3, $value)]
    };
    (@ $i:ident = $index:literal, $value:expr) => {{
        let $i: usize = $index;
        $value
    }};
}

pub(super) use each;

/// Applies an instruction to each part of a vector made of several registers.
#[cfg(target_arch = "x86_64")]
macro_rules! of_parts {
    ($($name:ident($($x:ident),*) -> $Ret:ident = $instruction:ident, $n:tt;)*) => {
        $(#[inline(always)]
        unsafe fn $name($($x: Self::$Ret),*) -> Self::$Ret {
            // SAFETY: as the caller promises.
            unsafe { each!($n, |i| $instruction($($x[i]),*)) }
        })*
    };
}

mod arrays;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
mod avx512;

/// Numbers of a vector.
pub(in crate::kernels) const LANES: usize = 16;

/// Numbers of a step of a loop along a row: four vectors.
pub(super) const STEP: usize = 4 * LANES;

/// The type of the elements of rows in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowType {
    F32,
    Bf16,
    F16,
}

impl RowType {
    /// The float type of this name, if kernels of rows read and write it.
    pub(crate) fn of(data_type: DataType) -> Option<Self> {
        match data_type {
            DataType::F32 => Some(Self::F32),
            DataType::Bf16 => Some(Self::Bf16),
            DataType::F16 => Some(Self::F16),
            _ => None,
        }
    }

    /// Bytes of an element.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }
}

/// Vectors of a level.
///
/// # Safety
///
/// The machine runs the level; loads and stores reach elements that can be read or written.
pub(in crate::kernels) trait Lanes: Isa + Sized {
    /// 16 numbers of f32, and of f64.
    type F: Copy;
    type D: Copy;

    unsafe fn splat(x: f32) -> Self::F;
    unsafe fn load(from: *const f32) -> Self::F;
    unsafe fn load_bf16(from: *const u16) -> Self::F;
    unsafe fn load_f16(from: *const u16) -> Self::F;
    unsafe fn store(to: *mut f32, x: Self::F);
    /// Rounds numbers that are no NaN, or the canonical one.
    unsafe fn store_bf16(to: *mut u16, x: Self::F);
    /// As [`store_bf16`](Self::store_bf16), of two vectors in a row (decision: bf16-store-pairs).
    #[inline(always)]
    unsafe fn store_bf16_pair(to: *mut u16, x: Self::F, y: Self::F) {
        // SAFETY: as the caller promises.
        unsafe {
            Self::store_bf16(to, x);
            Self::store_bf16(to.add(LANES), y);
        }
    }
    unsafe fn store_f16(to: *mut u16, x: Self::F);
    unsafe fn add(x: Self::F, y: Self::F) -> Self::F;
    unsafe fn sub(x: Self::F, y: Self::F) -> Self::F;
    unsafe fn mul(x: Self::F, y: Self::F) -> Self::F;
    /// `x · y + z`, rounded once if the level has the instruction.
    unsafe fn fma(x: Self::F, y: Self::F, z: Self::F) -> Self::F;
    /// `x` where it is larger than `y`, else `y`.
    unsafe fn larger(x: Self::F, y: Self::F) -> Self::F;
    /// The larger number of each pair; NaN if one is NaN, +0 above −0.
    unsafe fn maximum(x: Self::F, y: Self::F) -> Self::F;
    /// The smaller number of each pair; NaN if one is NaN, −0 below +0.
    unsafe fn minimum(x: Self::F, y: Self::F) -> Self::F;
    /// The first where `x` is above 0, else the second.
    unsafe fn if_positive(x: Self::F, then: Self::F, else_: Self::F) -> Self::F;
    unsafe fn exp(x: Self::F) -> Self::F;
    /// exp for inputs ≤ 0, −∞ and NaN; above 0 unspecified.
    #[inline(always)]
    unsafe fn exp_of_distance(x: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { Self::exp(x) }
    }
    /// The numbers, with any NaN replaced by the canonical one.
    unsafe fn canonical_vector(x: Self::F) -> Self::F;
    unsafe fn sum(x: Self::F) -> f32;
    unsafe fn largest(x: Self::F) -> f32;
    /// The sum of each vector, with the bits of [`sum`](Self::sum).
    #[inline(always)]
    unsafe fn sum_of_each(x: [Self::F; 4]) -> [f32; 4] {
        // SAFETY: as the caller promises.
        unsafe { each!(4, |i| Self::sum(x[i])) }
    }
    /// The largest number of each vector.
    #[inline(always)]
    unsafe fn largest_of_each(x: [Self::F; 4]) -> [f32; 4] {
        // SAFETY: as the caller promises.
        unsafe { each!(4, |i| Self::largest(x[i])) }
    }
    unsafe fn first(x: Self::F) -> f32;
    unsafe fn first_64(x: Self::D) -> f64;
    /// The numbers from number `N` on, which is half of those that matter: 8, 4, 2 or 1.
    unsafe fn from_on<const N: usize>(x: Self::F) -> Self::F;
    unsafe fn from_on_64<const N: usize>(x: Self::D) -> Self::D;

    unsafe fn splat_64(x: f64) -> Self::D;
    unsafe fn widen(x: Self::F) -> Self::D;
    unsafe fn narrow(x: Self::D) -> Self::F;
    unsafe fn load_64(from: *const f64) -> Self::D;
    /// 16 numbers of f32 in memory, in f64.
    unsafe fn load_wide(from: *const f32) -> Self::D;
    unsafe fn store_64(to: *mut f64, x: Self::D);
    unsafe fn abs_64(x: Self::D) -> Self::D;
    unsafe fn add_64(x: Self::D, y: Self::D) -> Self::D;
    unsafe fn sub_64(x: Self::D, y: Self::D) -> Self::D;
    unsafe fn mul_64(x: Self::D, y: Self::D) -> Self::D;

    /// The first numbers of a vector of elements of a type; the others are `pad`.
    #[inline(always)]
    unsafe fn load_part(from: *const u8, float: RowType, count: usize, pad: f32) -> Self::F {
        let mut part = [pad; LANES];
        // SAFETY: as the caller promises; the part is a vector.
        unsafe {
            for (i, x) in part.iter_mut().enumerate().take(count) {
                *x = read_one::<Self>(from, float, i);
            }
            Self::load(part.as_ptr())
        }
    }

    /// Stores the first numbers of a vector.
    #[inline(always)]
    unsafe fn store_part(to: *mut u8, float: RowType, count: usize, x: Self::F) {
        let mut part = [0.0; LANES];
        // SAFETY: as the caller promises; the part is a vector.
        unsafe {
            Self::store(part.as_mut_ptr(), x);
            for (i, &x) in part.iter().enumerate().take(count) {
                write_one::<Self>(to, float, i, x);
            }
        }
    }
}

/// # Safety
///
/// The element can be read.
#[inline(always)]
pub(super) unsafe fn read_one<I: Isa>(row: *const u8, float: RowType, column: usize) -> f32 {
    // SAFETY: as the caller promises; a float of 16 bits is its bits.
    unsafe {
        match float {
            RowType::F32 => row.cast::<f32>().add(column).read_unaligned(),
            RowType::Bf16 => row.cast::<Bf16>().add(column).read_unaligned().to::<I>(),
            RowType::F16 => row.cast::<F16>().add(column).read_unaligned().to::<I>(),
        }
    }
}

/// # Safety
///
/// The element can be written.
#[inline(always)]
unsafe fn write_one<I: Isa>(row: *mut u8, float: RowType, column: usize, x: f32) {
    // SAFETY: as the caller promises.
    unsafe {
        match float {
            RowType::F32 => row.cast::<f32>().add(column).write_unaligned(x),
            RowType::Bf16 => row.cast::<Bf16>().add(column).write_unaligned(x.to::<I>()),
            RowType::F16 => row.cast::<F16>().add(column).write_unaligned(x.to::<I>()),
        }
    }
}

/// The vector that starts at a column.
///
/// # Safety
///
/// Its elements can be read, and the machine runs the level.
#[inline(always)]
pub(in crate::kernels) unsafe fn load_at<I: Lanes>(row: *const u8, float: RowType, column: usize) -> I::F {
    // SAFETY: as the caller promises.
    unsafe {
        match float {
            RowType::F32 => I::load(row.cast::<f32>().add(column)),
            RowType::Bf16 => I::load_bf16(row.cast::<u16>().add(column)),
            RowType::F16 => I::load_f16(row.cast::<u16>().add(column)),
        }
    }
}

/// The four vectors that start at a column.
///
/// # Safety
///
/// As [`load_at`].
#[inline(always)]
pub(super) unsafe fn load_step<I: Lanes>(row: *const u8, float: RowType, column: usize) -> [I::F; 4] {
    // SAFETY: as the caller promises.
    unsafe {
        match float {
            RowType::F32 => {
                let from = row.cast::<f32>().add(column);
                [I::load(from), I::load(from.add(16)), I::load(from.add(32)), I::load(from.add(48))]
            }
            RowType::Bf16 => {
                let from = row.cast::<u16>().add(column);
                [
                    I::load_bf16(from),
                    I::load_bf16(from.add(16)),
                    I::load_bf16(from.add(32)),
                    I::load_bf16(from.add(48)),
                ]
            }
            RowType::F16 => {
                let from = row.cast::<u16>().add(column);
                [
                    I::load_f16(from),
                    I::load_f16(from.add(16)),
                    I::load_f16(from.add(32)),
                    I::load_f16(from.add(48)),
                ]
            }
        }
    }
}

/// The vector that starts at a column and has `count` elements within the row; the others are `pad`.
///
/// # Safety
///
/// As [`load_at`].
#[inline(always)]
pub(super) unsafe fn load_end<I: Lanes>(
    row: *const u8,
    float: RowType,
    column: usize,
    count: usize,
    pad: f32,
) -> I::F {
    // SAFETY: as the caller promises.
    unsafe {
        match count < LANES {
            true => I::load_part(row.add(column * float.bytes()), float, count, pad),
            false => load_at::<I>(row, float, column),
        }
    }
}

/// The four vectors that start at a column and have `count` elements within the row; the others are `pad`.
///
/// # Safety
///
/// As [`load_at`].
#[inline(always)]
pub(super) unsafe fn load_rest<I: Lanes>(
    row: *const u8,
    float: RowType,
    column: usize,
    count: usize,
    pad: f32,
) -> [I::F; 4] {
    // SAFETY: as the caller promises.
    unsafe {
        each!(4, |i| match count.saturating_sub(i * LANES) {
            0 => I::splat(pad),
            rest => load_end::<I>(row, float, column + i * LANES, rest, pad),
        })
    }
}

/// Stores the four vectors that start at a column.
///
/// # Safety
///
/// Their elements can be written, and the machine runs the level.
#[inline(always)]
pub(super) unsafe fn store_step<I: Lanes>(row: *mut u8, float: RowType, column: usize, x: [I::F; 4]) {
    // SAFETY: as the caller promises.
    unsafe {
        let x = [
            I::canonical_vector(x[0]),
            I::canonical_vector(x[1]),
            I::canonical_vector(x[2]),
            I::canonical_vector(x[3]),
        ];
        match float {
            RowType::F32 => {
                let to = row.cast::<f32>().add(column);
                I::store(to, x[0]);
                I::store(to.add(16), x[1]);
                I::store(to.add(32), x[2]);
                I::store(to.add(48), x[3]);
            }
            RowType::Bf16 => {
                let to = row.cast::<u16>().add(column);
                I::store_bf16_pair(to, x[0], x[1]);
                I::store_bf16_pair(to.add(32), x[2], x[3]);
            }
            RowType::F16 => {
                let to = row.cast::<u16>().add(column);
                I::store_f16(to, x[0]);
                I::store_f16(to.add(16), x[1]);
                I::store_f16(to.add(32), x[2]);
                I::store_f16(to.add(48), x[3]);
            }
        }
    }
}

/// Stores the vector that starts at a column and has `count` elements within the row.
///
/// # Safety
///
/// As [`store_step`].
#[inline(always)]
pub(super) unsafe fn store_end<I: Lanes>(row: *mut u8, float: RowType, column: usize, count: usize, x: I::F) {
    // SAFETY: as the caller promises.
    unsafe {
        let x = I::canonical_vector(x);
        if count < LANES {
            return I::store_part(row.add(column * float.bytes()), float, count, x);
        }
        match float {
            RowType::F32 => I::store(row.cast::<f32>().add(column), x),
            RowType::Bf16 => I::store_bf16(row.cast::<u16>().add(column), x),
            RowType::F16 => I::store_f16(row.cast::<u16>().add(column), x),
        }
    }
}

/// Longest row, in bytes, for which the next row is prefetched (decision: row-prefetch): both fit into the
/// first level.
const PREFETCHED: usize = 16 << 10;

/// Prefetches the same step of the next row if rows are short.
#[inline(always)]
pub(super) fn prefetch_next(row: *const u8, row_stride: isize, float: RowType, column: usize) {
    if row_stride.unsigned_abs() <= PREFETCHED {
        let at = row.wrapping_offset(row_stride).wrapping_add(column * float.bytes());
        prefetch_l1(at, STEP * float.bytes());
    }
}
