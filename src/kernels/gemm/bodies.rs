//! The micro-kernel, once for all levels, and its instances.

#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::*;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use super::form::Form;
use super::simd::Simd;
#[cfg(target_arch = "x86_64")]
use crate::kernels::isa::Avx2;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
use crate::kernels::isa::Avx512;
#[cfg(target_arch = "aarch64")]
use crate::kernels::isa::Neon;
use crate::kernels::isa::{Portable, with_features};
use crate::types::kind::Level;

/// A tile of a product; strides count in bytes.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "other architectures prefetch nothing"))]
pub(super) struct Tile {
    /// Multiplications that each element sums up.
    pub(super) steps: usize,
    /// Half a pair is left after them.
    pub(super) half_step: bool,
    pub(super) left: *const u8,
    pub(super) left_row: isize,
    pub(super) left_step: isize,
    pub(super) right: *const u8,
    pub(super) right_row: isize,
    pub(super) to: *mut f32,
    pub(super) to_row: isize,
    /// Columns in the last vector.
    pub(super) last_lanes: usize,
    /// The sums start with the numbers in the result.
    pub(super) accumulate: bool,
    /// Bytes from what a step reads of the right operand to what it prefetches.
    pub(super) distance: isize,
    /// An address to prefetch at the first step, and the bytes from it to the prefetch of the next step.
    pub(super) next: *const u8,
    pub(super) next_step: isize,
    /// The result is prefetched before the first step.
    pub(super) prefetches_result: bool,
}

/// Computes one tile.
///
/// # Safety
///
/// As [`GemmKernel::run`](super::GemmKernel::run).
pub(super) type Micro = unsafe fn(&Tile);

/// How a micro-kernel reads and multiplies elements: one for each [`Form`].
trait Multiply<S: Simd> {
    /// The form in which one element of the left operand and a vector of the right one are multiplied.
    type Operand: Copy;

    /// The lanes of a mask of a vector of the right operand.
    unsafe fn right(at: *const u8, vector: usize, mask: S::Mask) -> Self::Operand;

    /// As [`right`](Self::right), for all lanes.
    unsafe fn right_whole(at: *const u8, vector: usize) -> Self::Operand;

    /// An element of the left operand, for all lanes.
    unsafe fn left(at: *const u8) -> Self::Operand;

    /// Half a pair of the left operand; the other half is 0.
    unsafe fn left_half(at: *const u8) -> Self::Operand;

    unsafe fn mul_add(x: Self::Operand, y: Self::Operand, sum: S::Vector) -> S::Vector;
}

/// Widens the right operand to f32 when it is read.
macro_rules! widened {
    ($($Form:ident, $Element:ty, $whole:expr, $part:expr;)*) => {
        $(
            struct $Form;

            impl<S: Simd> Multiply<S> for $Form {
                type Operand = S::Vector;

                #[inline(always)]
                unsafe fn right(at: *const u8, vector: usize, mask: S::Mask) -> S::Vector {
                    // SAFETY: as the caller promises.
                    unsafe { $part(at.cast::<$Element>().add(vector * S::LANES), mask) }
                }

                #[inline(always)]
                unsafe fn right_whole(at: *const u8, vector: usize) -> S::Vector {
                    // SAFETY: as the caller promises.
                    unsafe { $whole(at.cast::<$Element>().add(vector * S::LANES)) }
                }

                #[inline(always)]
                unsafe fn left(at: *const u8) -> S::Vector {
                    // SAFETY: as the caller promises.
                    unsafe { S::splat(at.cast()) }
                }

                #[inline(always)]
                unsafe fn left_half(at: *const u8) -> S::Vector {
                    // SAFETY: as the caller promises.
                    unsafe { S::splat(at.cast()) }
                }

                #[inline(always)]
                unsafe fn mul_add(x: S::Vector, y: S::Vector, sum: S::Vector) -> S::Vector {
                    // SAFETY: as the caller promises.
                    unsafe { S::mul_add(x, y, sum) }
                }
            }
        )*
    };
}

widened! {
    F32, f32, S::load, S::load_part;
    Bf16, u16, |at| S::load_bf16(at, S::mask(S::LANES)), S::load_bf16;
    F16, u16, |at| S::load_f16(at, S::mask(S::LANES)), S::load_f16;
}

/// Pairs of bf16, multiplied and added by one instruction.
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
struct Bf16Pairs;

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
impl Multiply<Avx512> for Bf16Pairs {
    type Operand = __m512i;

    #[inline(always)]
    unsafe fn right(at: *const u8, vector: usize, mask: __mmask16) -> __m512i {
        // SAFETY: as the caller promises; lanes outside of the mask are not read.
        unsafe { _mm512_maskz_loadu_epi32(mask, at.cast::<i32>().add(vector * 16)) }
    }

    #[inline(always)]
    unsafe fn right_whole(at: *const u8, vector: usize) -> __m512i {
        // SAFETY: as the caller promises.
        unsafe { _mm512_loadu_epi32(at.cast::<i32>().add(vector * 16)) }
    }

    #[inline(always)]
    unsafe fn left(at: *const u8) -> __m512i {
        // SAFETY: as the caller promises.
        unsafe { _mm512_set1_epi32(at.cast::<i32>().read_unaligned()) }
    }

    #[inline(always)]
    unsafe fn left_half(at: *const u8) -> __m512i {
        // SAFETY: as the caller promises.
        unsafe { _mm512_set1_epi32(i32::from(at.cast::<u16>().read_unaligned())) }
    }

    #[inline(always)]
    unsafe fn mul_add(x: __m512i, y: __m512i, sum: __m512) -> __m512 {
        // SAFETY: as the caller promises. The vectors are of one size, and every bit pattern is a pair.
        unsafe {
            _mm512_dpbf16_ps(
                sum,
                std::mem::transmute::<__m512i, __m512bh>(x),
                std::mem::transmute::<__m512i, __m512bh>(y),
            )
        }
    }
}

/// Integers, whose sums are s32 in the bits of vectors of f32. Both operands are packed up to whole steps of
/// the depth, and the right one up to whole vectors.
macro_rules! integers {
    ($($(#[$attribute:meta])* $Form:ident for $Isa:ident: $Operand:ty,
        |$at:ident| $load:expr, |$element:ident| $splat:expr,
        |$x:ident, $y:ident, $sum:ident| $mul_add:expr;)*) => {
        $(
            $(#[$attribute])*
            impl Multiply<$Isa> for $Form {
                type Operand = $Operand;

                #[inline(always)]
                unsafe fn right(at: *const u8, vector: usize, _: <$Isa as Simd>::Mask) -> $Operand {
                    // SAFETY: as the caller promises.
                    unsafe { <Self as Multiply<$Isa>>::right_whole(at, vector) }
                }

                #[inline(always)]
                unsafe fn right_whole(at: *const u8, vector: usize) -> $Operand {
                    let $at = at.cast::<i32>().wrapping_add(vector * <$Isa as Simd>::LANES);
                    // SAFETY: as the caller promises.
                    unsafe { $load }
                }

                #[inline(always)]
                unsafe fn left(at: *const u8) -> $Operand {
                    // SAFETY: as the caller promises.
                    unsafe {
                        let $element = at.cast::<i32>().read_unaligned();
                        $splat
                    }
                }

                #[inline(always)]
                unsafe fn left_half(at: *const u8) -> $Operand {
                    // SAFETY: as the caller promises.
                    unsafe { <Self as Multiply<$Isa>>::left(at) }
                }

                #[inline(always)]
                unsafe fn mul_add(
                    $x: $Operand,
                    $y: $Operand,
                    $sum: <$Isa as Simd>::Vector,
                ) -> <$Isa as Simd>::Vector {
                    #[allow(unused_unsafe, reason = "plain Rust needs none")]
                    // SAFETY: as the caller promises.
                    unsafe {
                        $mul_add
                    }
                }
            }
        )*
    };
}

/// Four products of u8 and s8 in one instruction.
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
struct S8Quads;

/// Two products of 16-bit integers in one instruction.
struct S16Pairs;

integers! {
    #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
    S8Quads for Avx512: __m512i, |at| _mm512_loadu_epi32(at), |x| _mm512_set1_epi32(x),
        |x, y, sum| _mm512_castsi512_ps(_mm512_dpbusd_epi32(_mm512_castps_si512(sum), x, y));
    #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
    S16Pairs for Avx512: __m512i, |at| _mm512_loadu_epi32(at), |x| _mm512_set1_epi32(x),
        |x, y, sum| _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(sum), _mm512_madd_epi16(x, y)));
    #[cfg(target_arch = "x86_64")]
    S16Pairs for Avx2: __m256i, |at| _mm256_loadu_si256(at.cast()), |x| _mm256_set1_epi32(x),
        |x, y, sum| _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(sum), _mm256_madd_epi16(x, y)));
    #[cfg(target_arch = "aarch64")]
    S16Pairs for Neon: [int32x4_t; 2], |at| neon_halves(vld1q_s32(at)),
        |x| [vdupq_n_s32(i32::from(x as i16)), vdupq_n_s32(x >> 16)],
        |x, y, sum| neon_pairs(x, y, sum);
    S16Pairs for Portable: [i32; 4], |at| at.cast::<[i32; 4]>().read_unaligned(), |x| [x; 4],
        |x, y, sum| portable_pairs(x, y, sum);
}

/// `x · y + sum` for the two halves of each element.
#[inline(always)]
fn portable_pairs(x: [i32; 4], y: [i32; 4], sum: [f32; 4]) -> [f32; 4] {
    std::array::from_fn(
        #[inline(always)]
        |lane| {
            let (low, high) =
                (i32::from(x[lane] as i16) * i32::from(y[lane] as i16), (x[lane] >> 16) * (y[lane] >> 16));
            f32::from_bits((sum[lane].to_bits() as i32).wrapping_add(low).wrapping_add(high) as u32)
        },
    )
}

/// The low and the high half of each element, widened: so they are widened once for all products of a step.
///
/// # Safety
///
/// The machine runs level Neon.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
unsafe fn neon_halves(x: int32x4_t) -> [int32x4_t; 2] {
    // SAFETY: as the caller promises.
    unsafe { [vshrq_n_s32::<16>(vshlq_n_s32::<16>(x)), vshrq_n_s32::<16>(x)] }
}

/// `x · y + sum` for the two halves of each element.
///
/// # Safety
///
/// The machine runs level Neon.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
unsafe fn neon_pairs(x: [int32x4_t; 2], y: [int32x4_t; 2], sum: float32x4_t) -> float32x4_t {
    // SAFETY: as the caller promises.
    unsafe {
        let sum = vmlaq_s32(vreinterpretq_s32_f32(sum), x[0], y[0]);
        vreinterpretq_f32_s32(vmlaq_s32(sum, x[1], y[1]))
    }
}

/// # Safety
///
/// As [`Micro`].
#[inline(always)]
#[allow(
    clippy::needless_range_loop,
    reason = "the loops run over rows and vectors of a tile, not over an array"
)]
unsafe fn tile<S: Simd, M: Multiply<S>, const ROWS: usize, const VECTORS: usize>(tile: &Tile) {
    let mask = S::mask(tile.last_lanes);
    let last = VECTORS - 1;
    let to = |row: usize, vector: usize| {
        tile.to.wrapping_byte_offset(tile.to_row * row as isize).wrapping_add(vector * S::LANES)
    };
    // SAFETY: the caller promises that operands can be read and the result written; the last vector of a row
    // takes part only with the lanes that are columns.
    unsafe {
        let mut sums = [[S::zero(); VECTORS]; ROWS];
        if tile.accumulate {
            for row in 0..ROWS {
                for vector in 0..last {
                    sums[row][vector] = S::load(to(row, vector));
                }
                sums[row][last] = S::load_part(to(row, last), mask);
            }
        }
        #[cfg(target_arch = "x86_64")]
        if tile.prefetches_result {
            for row in 0..ROWS {
                for vector in 0..VECTORS {
                    _mm_prefetch::<_MM_HINT_T0>(to(row, vector).cast());
                }
            }
        }
        let (mut left, mut right) = (tile.left, tile.right);
        #[cfg(target_arch = "x86_64")]
        let mut next = tile.next;
        let rows: [isize; ROWS] = std::array::from_fn(
            #[inline(always)]
            |row| tile.left_row * row as isize,
        );
        macro_rules! step {
            ($element:ident) => {
                let mut operands = [M::right(right, last, mask); VECTORS];
                for vector in 0..last {
                    operands[vector] = M::right_whole(right, vector);
                }
                for row in 0..ROWS {
                    let x = M::$element(left.wrapping_offset(rows[row]));
                    for vector in 0..VECTORS {
                        sums[row][vector] = M::mul_add(x, operands[vector], sums[row][vector]);
                    }
                }
            };
        }
        for _ in 0..tile.steps {
            step!(left);
            #[cfg(target_arch = "x86_64")]
            if VECTORS > 1 {
                let prefetched = right.wrapping_offset(tile.distance);
                for vector in 0..VECTORS {
                    _mm_prefetch::<_MM_HINT_T0>(prefetched.wrapping_add(vector * S::LANES * 4).cast());
                }
                _mm_prefetch::<_MM_HINT_T1>(next.cast());
                next = next.wrapping_offset(tile.next_step);
            }
            left = left.wrapping_offset(tile.left_step);
            right = right.wrapping_offset(tile.right_row);
        }
        if tile.half_step {
            step!(left_half);
        }
        for row in 0..ROWS {
            for vector in 0..last {
                S::store(to(row, vector), sums[row][vector]);
            }
            S::store_part(to(row, last), mask, sums[row][last]);
        }
    }
}

/// The instances for a level and a form: a function of rows and vectors, both counted from 1.
macro_rules! instances {
    ($($(#[$attribute:meta])* $name:ident: $level:ident $S:ident $M:ident
        $([$vectors:literal: $($rows:literal)*])*;)*) => {
        $(
            $(#[$attribute])*
            fn $name(rows: usize, vectors: usize) -> Micro {
                with_features! {
                    $level
                    unsafe fn kernel<const ROWS: usize, const VECTORS: usize>(of: &Tile) {
                        // SAFETY: as the caller promises.
                        unsafe { tile::<$S, $M, ROWS, VECTORS>(of) }
                    }
                }
                match (vectors, rows) {
                    $($(($vectors, $rows) => kernel::<$rows, $vectors>,)*)*
                    _ => unreachable!("{rows} rows of {vectors} vectors are no tile"),
                }
            }
        )*
    };
}

instances! {
    portable_f32: portable Portable F32 [1: 1 2 3 4] [2: 1 2 3 4];
    portable_bf16: portable Portable Bf16 [1: 1 2 3 4] [2: 1 2 3 4];
    portable_f16: portable Portable F16 [1: 1 2 3 4] [2: 1 2 3 4];
    #[cfg(target_arch = "aarch64")]
    neon_f32: neon Neon F32
        [1: 1 2 3 4 5 6 7 8] [2: 1 2 3 4 5 6 7 8] [3: 1 2 3 4 5 6 7 8] [4: 1 2 3 4 5 6];
    #[cfg(target_arch = "aarch64")]
    neon_bf16: neon Neon Bf16 [1: 1 2 3 4] [2: 1 2 3 4] [3: 1 2 3 4] [4: 1 2 3 4];
    #[cfg(target_arch = "aarch64")]
    neon_f16: neon Neon F16 [1: 1 2 3 4] [2: 1 2 3 4] [3: 1 2 3 4] [4: 1 2 3 4];
    #[cfg(target_arch = "aarch64")]
    neon_s16_pairs: neon Neon S16Pairs [1: 1 2 3 4] [2: 1 2 3 4] [3: 1 2 3 4] [4: 1 2 3 4];
    #[cfg(target_arch = "x86_64")]
    avx2_f32: avx2 Avx2 F32 [1: 1 2 3 4 5 6] [2: 1 2 3 4 5 6];
    #[cfg(target_arch = "x86_64")]
    avx2_bf16: avx2 Avx2 Bf16 [1: 1 2 3 4] [2: 1 2 3 4];
    #[cfg(target_arch = "x86_64")]
    avx2_f16: avx2 Avx2 F16 [1: 1 2 3 4] [2: 1 2 3 4];
    #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
    avx512_f32: avx512 Avx512 F32
        [1: 1 2 3 4 5 6 7 8] [2: 1 2 3 4 5 6 7 8] [3: 1 2 3 4 5 6 7 8] [4: 1 2 3 4 5 6];
    #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
    avx512_bf16: avx512 Avx512 Bf16 [1: 1 2 3 4] [2: 1 2 3 4] [3: 1 2 3 4] [4: 1 2 3 4];
    #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
    avx512_f16: avx512 Avx512 F16 [1: 1 2 3 4] [2: 1 2 3 4] [3: 1 2 3 4] [4: 1 2 3 4];
    #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
    avx512_pairs: avx512_bf16 Avx512 Bf16Pairs
        [1: 1 2 3 4 5 6 7 8] [2: 1 2 3 4 5 6 7 8] [3: 1 2 3 4 5 6 7 8] [4: 1 2 3 4 5 6];
    portable_s16_pairs: portable Portable S16Pairs [1: 1 2 3 4] [2: 1 2 3 4];
    #[cfg(target_arch = "x86_64")]
    avx2_s16_pairs: avx2 Avx2 S16Pairs [1: 1 2 3 4 5 6] [2: 1 2 3 4 5 6];
    #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
    avx512_s16_pairs: avx512 Avx512 S16Pairs [1: 1 2 3 4] [2: 1 2 3 4] [3: 1 2 3 4] [4: 1 2 3 4];
    #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
    avx512_s8_quads: avx512_vnni Avx512 S8Quads
        [1: 1 2 3 4 5 6 7 8] [2: 1 2 3 4 5 6 7 8] [3: 1 2 3 4 5 6 7 8] [4: 1 2 3 4 5 6];
}

/// The micro-kernel for a tile of a number of rows and vectors.
#[inline]
pub(super) fn micro_kernel(level: Level, form: Form, rows: usize, vectors: usize) -> Micro {
    #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
    if level == Level::Avx512 {
        return match form {
            Form::F32 => avx512_f32(rows, vectors),
            Form::Bf16Pairs => avx512_pairs(rows, vectors),
            Form::Bf16 => avx512_bf16(rows, vectors),
            Form::F16 => avx512_f16(rows, vectors),
            Form::S8Quads => avx512_s8_quads(rows, vectors),
            Form::S16Pairs => avx512_s16_pairs(rows, vectors),
            Form::Bf16Tiles | Form::S8Tiles => unreachable!("tiles have loops of their own"),
        };
    }
    #[cfg(target_arch = "x86_64")]
    if level == Level::Avx2 {
        return match form {
            Form::S16Pairs => avx2_s16_pairs(rows, vectors),
            Form::Bf16 => avx2_bf16(rows, vectors),
            Form::F16 => avx2_f16(rows, vectors),
            _ => avx2_f32(rows, vectors),
        };
    }
    #[cfg(target_arch = "aarch64")]
    if level == Level::Neon {
        return match form {
            Form::S16Pairs => neon_s16_pairs(rows, vectors),
            Form::Bf16 => neon_bf16(rows, vectors),
            Form::F16 => neon_f16(rows, vectors),
            _ => neon_f32(rows, vectors),
        };
    }
    match (level, form) {
        (_, Form::Bf16) => portable_bf16(rows, vectors),
        (_, Form::F16) => portable_f16(rows, vectors),
        (_, Form::S16Pairs) => portable_s16_pairs(rows, vectors),
        _ => portable_f32(rows, vectors),
    }
}
