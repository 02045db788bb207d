//! Vectors of 16 numbers at each level, as kernels of rows compute with them: loads from and stores to any
//! float type, arithmetic in f32 and f64, and sums and maxima over the numbers of a vector.
//!
//! A sum over a vector adds up halves: number `i` and number `i + 8`, then `i + 4` and so on. So the bits are
//! the same at every level.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

#[cfg(target_arch = "x86_64")]
use crate::kernels::floats::NAN;
use crate::kernels::floats::{self, canonical};
#[cfg(target_arch = "x86_64")]
use crate::kernels::isa::Avx2;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
use crate::kernels::isa::Avx512;
#[cfg(target_arch = "aarch64")]
use crate::kernels::isa::Neon;
use crate::kernels::isa::{Isa, Portable};
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
use crate::kernels::math::avx512::{self, OfVector};
use crate::kernels::math::single;
use crate::kernels::pointwise::conversion::To;
use crate::kernels::pointwise::half::{Bf16, F16};
use crate::kernels::prefetch_l1;
use crate::types::dtype::DataType;

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
    /// The numbers, with any NaN replaced by the canonical one.
    unsafe fn canonical_vector(x: Self::F) -> Self::F;
    unsafe fn sum(x: Self::F) -> f32;
    unsafe fn largest(x: Self::F) -> f32;

    unsafe fn splat_64(x: f64) -> Self::D;
    unsafe fn widen(x: Self::F) -> Self::D;
    unsafe fn narrow(x: Self::D) -> Self::F;
    unsafe fn load_64(from: *const f64) -> Self::D;
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
pub(super) unsafe fn load_at<I: Lanes>(row: *const u8, float: RowType, column: usize) -> I::F {
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
                I::store_bf16(to, x[0]);
                I::store_bf16(to.add(16), x[1]);
                I::store_bf16(to.add(32), x[2]);
                I::store_bf16(to.add(48), x[3]);
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

/// The exponential of each number, for levels without vectors of their own for it.
#[inline(always)]
fn exp_of_each<I: Isa>(x: [f32; LANES]) -> [f32; LANES] {
    let mut to = [0.0; LANES];
    for i in 0..LANES {
        to[i] = single::exp::<I>(x[i]);
    }
    to
}

/// Longest row, in bytes, for which the next row is prefetched: both fit into the first level.
const PREFETCHED: usize = 16 << 10;

/// Prefetches the elements of a step, a row further on than these, if rows are short enough.
#[inline(always)]
pub(super) fn prefetch_next(row: *const u8, row_stride: isize, float: RowType, column: usize) {
    if row_stride.unsigned_abs() <= PREFETCHED {
        let at = row.wrapping_offset(row_stride).wrapping_add(column * float.bytes());
        prefetch_l1(at, STEP * float.bytes());
    }
}

/// A function of each pair of numbers of two arrays.
#[inline(always)]
fn zip<T: Copy, const N: usize>(x: [T; N], y: [T; N], f: impl Fn(T, T) -> T) -> [T; N] {
    let mut to = x;
    for i in 0..N {
        to[i] = f(x[i], y[i]);
    }
    to
}

/// A function of each number of an array.
#[inline(always)]
fn of_each<T: Copy, U: Copy + Default>(x: [T; LANES], f: impl Fn(T) -> U) -> [U; LANES] {
    let mut to = [U::default(); LANES];
    for i in 0..LANES {
        to[i] = f(x[i]);
    }
    to
}

/// Combines halves until one number is left.
#[inline(always)]
fn halved(mut x: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            x[i] = f(x[i], x[i + half]);
        }
        half /= 2;
    }
    x[0]
}

/// Vectors that the compiler makes of arrays.
macro_rules! arrays {
    ($($(#[$attribute:meta])* $Isa:ident, long $inline:ident,
        fma = |$x:ident, $y:ident, $z:ident| $fma:expr;)*) => {
        $(
        $(#[$attribute])*
        impl Lanes for $Isa {
            type F = [f32; LANES];
            type D = [f64; LANES];

            #[inline(always)]
            unsafe fn splat(x: f32) -> Self::F {
                [x; LANES]
            }
            #[inline(always)]
            unsafe fn load(from: *const f32) -> Self::F {
                // SAFETY: as the caller promises.
                unsafe { from.cast::<[f32; LANES]>().read_unaligned() }
            }
            #[inline(always)]
            unsafe fn load_bf16(from: *const u16) -> Self::F {
                // SAFETY: as the caller promises.
                let block = unsafe { from.cast::<[u16; LANES]>().read_unaligned() };
                of_each(block, |bits| f32::from_bits(u32::from(bits) << 16))
            }
            #[inline($inline)]
            unsafe fn load_f16(from: *const u16) -> Self::F {
                // SAFETY: as the caller promises.
                let block = unsafe { from.cast::<[F16; LANES]>().read_unaligned() };
                F16::block_to::<Self, LANES>(&block)
            }
            #[inline(always)]
            unsafe fn store(to: *mut f32, x: Self::F) {
                // SAFETY: as the caller promises.
                unsafe { to.cast::<[f32; LANES]>().write_unaligned(x) }
            }
            #[inline($inline)]
            unsafe fn store_bf16(to: *mut u16, x: Self::F) {
                // SAFETY: as the caller promises.
                unsafe { to.cast::<[Bf16; LANES]>().write_unaligned(f32::block_to::<Self, LANES>(&x)) }
            }
            #[inline($inline)]
            unsafe fn store_f16(to: *mut u16, x: Self::F) {
                // SAFETY: as the caller promises.
                unsafe { to.cast::<[F16; LANES]>().write_unaligned(f32::block_to::<Self, LANES>(&x)) }
            }
            #[inline(always)]
            unsafe fn add(x: Self::F, y: Self::F) -> Self::F {
                zip(x, y, |x, y| x + y)
            }
            #[inline(always)]
            unsafe fn sub(x: Self::F, y: Self::F) -> Self::F {
                zip(x, y, |x, y| x - y)
            }
            #[inline(always)]
            unsafe fn mul(x: Self::F, y: Self::F) -> Self::F {
                zip(x, y, |x, y| x * y)
            }
            #[inline(always)]
            unsafe fn fma($x: Self::F, $y: Self::F, $z: Self::F) -> Self::F {
                $fma
            }
            #[inline(always)]
            unsafe fn larger(x: Self::F, y: Self::F) -> Self::F {
                zip(x, y, |x, y| if x > y { x } else { y })
            }
            #[inline(always)]
            unsafe fn maximum(x: Self::F, y: Self::F) -> Self::F {
                zip(x, y, floats::maximum)
            }
            #[inline(always)]
            unsafe fn minimum(x: Self::F, y: Self::F) -> Self::F {
                zip(x, y, floats::minimum)
            }
            #[inline(always)]
            unsafe fn if_positive(x: Self::F, then: Self::F, else_: Self::F) -> Self::F {
                let mut to = else_;
                for i in 0..LANES {
                    to[i] = if x[i] > 0.0 { then[i] } else { else_[i] };
                }
                to
            }
            #[inline($inline)]
            unsafe fn exp(x: Self::F) -> Self::F {
                exp_of_each::<Self>(x)
            }
            #[inline(always)]
            unsafe fn canonical_vector(x: Self::F) -> Self::F {
                of_each(x, canonical)
            }
            #[inline(always)]
            unsafe fn sum(x: Self::F) -> f32 {
                halved(x, |x, y| x + y)
            }
            #[inline(always)]
            unsafe fn largest(x: Self::F) -> f32 {
                halved(x, |x, y| if x > y { x } else { y })
            }
            #[inline(always)]
            unsafe fn splat_64(x: f64) -> Self::D {
                [x; LANES]
            }
            #[inline(always)]
            unsafe fn widen(x: Self::F) -> Self::D {
                of_each(x, f64::from)
            }
            #[inline(always)]
            unsafe fn narrow(x: Self::D) -> Self::F {
                of_each(x, |x| x as f32)
            }
            #[inline(always)]
            unsafe fn load_64(from: *const f64) -> Self::D {
                // SAFETY: as the caller promises.
                unsafe { from.cast::<[f64; LANES]>().read_unaligned() }
            }
            #[inline(always)]
            unsafe fn store_64(to: *mut f64, x: Self::D) {
                // SAFETY: as the caller promises.
                unsafe { to.cast::<[f64; LANES]>().write_unaligned(x) }
            }
            #[inline(always)]
            unsafe fn abs_64(x: Self::D) -> Self::D {
                of_each(x, f64::abs)
            }
            #[inline(always)]
            unsafe fn add_64(x: Self::D, y: Self::D) -> Self::D {
                zip(x, y, |x, y| x + y)
            }
            #[inline(always)]
            unsafe fn sub_64(x: Self::D, y: Self::D) -> Self::D {
                zip(x, y, |x, y| x - y)
            }
            #[inline(always)]
            unsafe fn mul_64(x: Self::D, y: Self::D) -> Self::D {
                zip(x, y, |x, y| x * y)
            }
        }
        )*
    };
}

arrays! {
    // What takes many instructions without vectors for it is a call: it would be most of every kernel
    // (decision: portable-block).
    Portable, long never, fma = |x, y, z| zip(zip(x, y, |x, y| x * y), z, |x, z| x + z);
    #[cfg(target_arch = "aarch64")]
    Neon, long always, fma = |x, y, z| {
        let mut to = z;
        for i in 0..LANES {
            to[i] = Self::mul_add(x[i], y[i], z[i]);
        }
        to
    };
}

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

/// The instructions behind an operation of each number of a vector that has several parts.
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

/// The sum of four numbers, and the largest, as the last halves of a vector.
///
/// # Safety
///
/// The machine runs level Avx2.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn sum_4(x: __m128) -> f32 {
    // SAFETY: as the caller promises.
    unsafe {
        let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
        _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps::<1>(x, x)))
    }
}

/// # Safety
///
/// The machine runs level Avx2.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn largest_4(x: __m128) -> f32 {
    // SAFETY: as the caller promises.
    unsafe {
        let x = _mm_max_ps(x, _mm_movehl_ps(x, x));
        _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps::<1>(x, x)))
    }
}

#[cfg(target_arch = "x86_64")]
impl Lanes for Avx2 {
    type F = [__m256; 2];
    type D = [__m256d; 4];

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { [_mm256_set1_ps(x); 2] }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))] }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe {
            each!(2, |i| {
                let bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.add(8 * i).cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits))
            })
        }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { each!(2, |i| _mm256_cvtph_ps(_mm_loadu_si128(from.add(8 * i).cast()))) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, x: Self::F) {
        // SAFETY: as the caller promises.
        unsafe {
            _mm256_storeu_ps(to, x[0]);
            _mm256_storeu_ps(to.add(8), x[1]);
        }
    }
    #[inline(always)]
    unsafe fn store_bf16(to: *mut u16, x: Self::F) {
        // SAFETY: as the caller promises.
        unsafe {
            let [low, high] = each!(2, |i| {
                let bits = _mm256_castps_si256(x[i]);
                let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
                let half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
                _mm256_srli_epi32::<16>(_mm256_add_epi32(bits, half))
            });
            let packed = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(low, high));
            _mm256_storeu_si256(to.cast(), packed);
        }
    }
    #[inline(always)]
    unsafe fn store_f16(to: *mut u16, x: Self::F) {
        // SAFETY: as the caller promises.
        unsafe {
            each!(2, |i| _mm_storeu_si128(
                to.add(8 * i).cast(),
                _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x[i])
            ));
        }
    }
    of_parts! {
        add(x, y) -> F = _mm256_add_ps, 2;
        sub(x, y) -> F = _mm256_sub_ps, 2;
        mul(x, y) -> F = _mm256_mul_ps, 2;
        fma(x, y, z) -> F = _mm256_fmadd_ps, 2;
        larger(x, y) -> F = _mm256_max_ps, 2;
        add_64(x, y) -> D = _mm256_add_pd, 4;
        sub_64(x, y) -> D = _mm256_sub_pd, 4;
        mul_64(x, y) -> D = _mm256_mul_pd, 4;
    }
    #[inline(always)]
    unsafe fn maximum(x: Self::F, y: Self::F) -> Self::F {
        // SAFETY: as the caller promises. Of equal operands the instruction gives the second, so the two
        // results differ for zeros alone.
        unsafe {
            each!(2, |i| {
                let (x, y) = (x[i], y[i]);
                let larger = _mm256_and_ps(_mm256_max_ps(x, y), _mm256_max_ps(y, x));
                _mm256_blendv_ps(larger, _mm256_set1_ps(NAN), _mm256_cmp_ps::<_CMP_UNORD_Q>(x, y))
            })
        }
    }
    #[inline(always)]
    unsafe fn minimum(x: Self::F, y: Self::F) -> Self::F {
        // SAFETY: as for `maximum`.
        unsafe {
            each!(2, |i| {
                let (x, y) = (x[i], y[i]);
                let smaller = _mm256_or_ps(_mm256_min_ps(x, y), _mm256_min_ps(y, x));
                _mm256_blendv_ps(smaller, _mm256_set1_ps(NAN), _mm256_cmp_ps::<_CMP_UNORD_Q>(x, y))
            })
        }
    }
    #[inline(always)]
    unsafe fn if_positive(x: Self::F, then: Self::F, else_: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe {
            each!(2, |i| {
                let is_positive = _mm256_cmp_ps::<_CMP_GT_OQ>(x[i], _mm256_setzero_ps());
                _mm256_blendv_ps(else_[i], then[i], is_positive)
            })
        }
    }
    #[inline(always)]
    unsafe fn exp(x: Self::F) -> Self::F {
        let mut block = [0.0; LANES];
        // SAFETY: as the caller promises; the block is a vector.
        unsafe {
            Self::store(block.as_mut_ptr(), x);
            Self::load(exp_of_each::<Self>(block).as_ptr())
        }
    }
    #[inline(always)]
    unsafe fn canonical_vector(x: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe {
            each!(2, |i| {
                _mm256_blendv_ps(x[i], _mm256_set1_ps(NAN), _mm256_cmp_ps::<_CMP_UNORD_Q>(x[i], x[i]))
            })
        }
    }
    #[inline(always)]
    unsafe fn sum(x: Self::F) -> f32 {
        // SAFETY: as the caller promises.
        unsafe {
            let x = _mm256_add_ps(x[0], x[1]);
            sum_4(_mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x)))
        }
    }
    #[inline(always)]
    unsafe fn largest(x: Self::F) -> f32 {
        // SAFETY: as the caller promises.
        unsafe {
            let x = _mm256_max_ps(x[0], x[1]);
            largest_4(_mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x)))
        }
    }
    #[inline(always)]
    unsafe fn splat_64(x: f64) -> Self::D {
        // SAFETY: as the caller promises.
        unsafe { [_mm256_set1_pd(x); 4] }
    }
    #[inline(always)]
    unsafe fn widen(x: Self::F) -> Self::D {
        // SAFETY: as the caller promises.
        unsafe {
            [
                _mm256_cvtps_pd(_mm256_castps256_ps128(x[0])),
                _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(x[0])),
                _mm256_cvtps_pd(_mm256_castps256_ps128(x[1])),
                _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(x[1])),
            ]
        }
    }
    #[inline(always)]
    unsafe fn narrow(x: Self::D) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe {
            [
                _mm256_set_m128(_mm256_cvtpd_ps(x[1]), _mm256_cvtpd_ps(x[0])),
                _mm256_set_m128(_mm256_cvtpd_ps(x[3]), _mm256_cvtpd_ps(x[2])),
            ]
        }
    }
    #[inline(always)]
    unsafe fn abs_64(x: Self::D) -> Self::D {
        // SAFETY: as the caller promises.
        unsafe { each!(4, |i| _mm256_andnot_pd(_mm256_set1_pd(-0.0), x[i])) }
    }
    #[inline(always)]
    unsafe fn load_64(from: *const f64) -> Self::D {
        // SAFETY: as the caller promises.
        unsafe { each!(4, |i| _mm256_loadu_pd(from.add(4 * i))) }
    }
    #[inline(always)]
    unsafe fn store_64(to: *mut f64, x: Self::D) {
        // SAFETY: as the caller promises.
        unsafe {
            each!(4, |i| _mm256_storeu_pd(to.add(4 * i), x[i]));
        }
    }
}

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
impl Lanes for Avx512 {
    type F = __m512;
    type D = [__m512d; 2];

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { bf16_to_f32(_mm256_loadu_si256(from.cast())) }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, x: Self::F) {
        // SAFETY: as the caller promises.
        unsafe { _mm512_storeu_ps(to, x) }
    }
    #[inline(always)]
    unsafe fn store_bf16(to: *mut u16, x: Self::F) {
        // SAFETY: as the caller promises.
        unsafe { _mm256_storeu_si256(to.cast(), f32_to_bf16(x)) }
    }
    #[inline(always)]
    unsafe fn store_f16(to: *mut u16, x: Self::F) {
        // SAFETY: as the caller promises.
        unsafe { _mm256_storeu_si256(to.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x)) }
    }
    #[inline(always)]
    unsafe fn add(x: Self::F, y: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { _mm512_add_ps(x, y) }
    }
    #[inline(always)]
    unsafe fn sub(x: Self::F, y: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { _mm512_sub_ps(x, y) }
    }
    #[inline(always)]
    unsafe fn mul(x: Self::F, y: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { _mm512_mul_ps(x, y) }
    }
    #[inline(always)]
    unsafe fn fma(x: Self::F, y: Self::F, z: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { _mm512_fmadd_ps(x, y, z) }
    }
    #[inline(always)]
    unsafe fn larger(x: Self::F, y: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { _mm512_max_ps(x, y) }
    }
    #[inline(always)]
    unsafe fn maximum(x: Self::F, y: Self::F) -> Self::F {
        // SAFETY: as the caller promises. Of equal operands the instruction gives the second, so the two
        // results differ for zeros alone.
        unsafe {
            let larger = _mm512_and_ps(_mm512_max_ps(x, y), _mm512_max_ps(y, x));
            let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, y);
            _mm512_mask_blend_ps(is_nan, larger, _mm512_set1_ps(NAN))
        }
    }
    #[inline(always)]
    unsafe fn minimum(x: Self::F, y: Self::F) -> Self::F {
        // SAFETY: as for `maximum`.
        unsafe {
            let smaller = _mm512_or_ps(_mm512_min_ps(x, y), _mm512_min_ps(y, x));
            let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, y);
            _mm512_mask_blend_ps(is_nan, smaller, _mm512_set1_ps(NAN))
        }
    }
    of_parts! {
        add_64(x, y) -> D = _mm512_add_pd, 2;
        sub_64(x, y) -> D = _mm512_sub_pd, 2;
        mul_64(x, y) -> D = _mm512_mul_pd, 2;
    }
    #[inline(always)]
    unsafe fn if_positive(x: Self::F, then: Self::F, else_: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe {
            let is_positive = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(x, _mm512_setzero_ps());
            _mm512_mask_blend_ps(is_positive, else_, then)
        }
    }
    #[inline(always)]
    unsafe fn exp(x: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { avx512::Exp::of(x) }
    }
    #[inline(always)]
    unsafe fn canonical_vector(x: Self::F) -> Self::F {
        /// By class of a number, starting at quiet and signalling NaN: 0 takes the other operand, 1 the
        /// number itself.
        const KINDS: i32 = 0x1111_1100;
        // SAFETY: as the caller promises.
        unsafe { _mm512_fixupimm_ps::<0>(_mm512_set1_ps(NAN), x, _mm512_set1_epi32(KINDS)) }
    }
    #[inline(always)]
    unsafe fn sum(x: Self::F) -> f32 {
        // SAFETY: as the caller promises.
        unsafe {
            let x = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps::<1>(x));
            sum_4(_mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x)))
        }
    }
    #[inline(always)]
    unsafe fn largest(x: Self::F) -> f32 {
        // SAFETY: as the caller promises.
        unsafe {
            let x = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps::<1>(x));
            largest_4(_mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x)))
        }
    }
    #[inline(always)]
    unsafe fn splat_64(x: f64) -> Self::D {
        // SAFETY: as the caller promises.
        unsafe { [_mm512_set1_pd(x); 2] }
    }
    #[inline(always)]
    unsafe fn widen(x: Self::F) -> Self::D {
        // SAFETY: as the caller promises.
        unsafe {
            [_mm512_cvtps_pd(_mm512_castps512_ps256(x)), _mm512_cvtps_pd(_mm512_extractf32x8_ps::<1>(x))]
        }
    }
    #[inline(always)]
    unsafe fn narrow(x: Self::D) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe {
            let low = _mm512_castps256_ps512(_mm512_cvtpd_ps(x[0]));
            _mm512_insertf32x8::<1>(low, _mm512_cvtpd_ps(x[1]))
        }
    }
    #[inline(always)]
    unsafe fn abs_64(x: Self::D) -> Self::D {
        // SAFETY: as the caller promises.
        unsafe { [_mm512_abs_pd(x[0]), _mm512_abs_pd(x[1])] }
    }
    #[inline(always)]
    unsafe fn load_64(from: *const f64) -> Self::D {
        // SAFETY: as the caller promises.
        unsafe { [_mm512_loadu_pd(from), _mm512_loadu_pd(from.add(8))] }
    }
    #[inline(always)]
    unsafe fn store_64(to: *mut f64, x: Self::D) {
        // SAFETY: as the caller promises.
        unsafe {
            _mm512_storeu_pd(to, x[0]);
            _mm512_storeu_pd(to.add(8), x[1]);
        }
    }

    #[inline(always)]
    unsafe fn load_part(from: *const u8, float: RowType, count: usize, pad: f32) -> Self::F {
        let mask = first_of(count);
        // SAFETY: as the caller promises; elements beyond the mask are not read.
        unsafe {
            let x = match float {
                RowType::F32 => _mm512_maskz_loadu_ps(mask, from.cast()),
                RowType::Bf16 => bf16_to_f32(_mm256_maskz_loadu_epi16(mask, from.cast())),
                RowType::F16 => _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from.cast())),
            };
            _mm512_mask_blend_ps(mask, _mm512_set1_ps(pad), x)
        }
    }

    #[inline(always)]
    unsafe fn store_part(to: *mut u8, float: RowType, count: usize, x: Self::F) {
        let mask = first_of(count);
        // SAFETY: as the caller promises; elements beyond the mask are not written.
        unsafe {
            match float {
                RowType::F32 => _mm512_mask_storeu_ps(to.cast(), mask, x),
                RowType::Bf16 => _mm256_mask_storeu_epi16(to.cast(), mask, f32_to_bf16(x)),
                RowType::F16 => {
                    let bits = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x);
                    _mm256_mask_storeu_epi16(to.cast(), mask, bits);
                }
            }
        }
    }
}

/// The mask of the first numbers of a vector.
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
#[inline(always)]
fn first_of(count: usize) -> u16 {
    ((1u32 << count.min(LANES)) - 1) as u16
}

/// # Safety
///
/// The machine runs level Avx512.
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
#[inline(always)]
unsafe fn bf16_to_f32(bits: __m256i) -> __m512 {
    // SAFETY: as the caller promises.
    unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(bits))) }
}

/// Rounds to nearest, ties to even; the machine's instruction would flush subnormal numbers.
///
/// # Safety
///
/// The machine runs level Avx512.
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
#[inline(always)]
unsafe fn f32_to_bf16(x: __m512) -> __m256i {
    // SAFETY: as the caller promises.
    unsafe {
        let bits = _mm512_castps_si512(x);
        let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
        let half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
        _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(_mm512_add_epi32(bits, half)))
    }
}
