//! Vectors of attention: operations that its kernels need beside [`Lanes`], and how they traverse the columns
//! of a tile.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

#[cfg(target_arch = "x86_64")]
use crate::kernels::isa::Avx2;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
use crate::kernels::isa::Avx512;
#[cfg(target_arch = "aarch64")]
use crate::kernels::isa::Neon;
use crate::kernels::isa::{Isa, Portable};
use crate::kernels::rows::RowType;
use crate::kernels::rows::lanes::Lanes;

/// `2ʳ` for r from 0 to 1, with a relative error of 2.1e-9, and without one at 0.
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
const UPPER: [f32; 7] = [1.0, 0.69314706, 0.24022909, 0.055486184, 0.009673775, 0.0012482288, 0.00021565985];

/// The same for r from −½ to ½, with a relative error of 1.3e-8.
const CENTRED: [f32; 7] =
    [1.0, std::f32::consts::LN_2, 0.24022594, 0.055503663, 0.009625445, 0.0013387942, 0.00013332852];

/// The number below which exponentials are 0. If subnormal results are kept, the exponential below it rounds
/// to 0 in f32; else the exponential at it is still a normal number.
const fn gone(has_subnormal: bool) -> f32 {
    if has_subnormal { -104.0 } else { -87.0 }
}

/// Vectors of a level.
///
/// # Safety of the methods
///
/// As for [`Lanes`].
pub(super) trait ScoreLanes: Lanes {
    /// A row of a tile and the running values of its columns fit into registers.
    const WHOLE_ROWS: bool;

    /// exp for inputs ≤ 40: exact at 0, and 0 for inputs ≤ −104. Multiples of ln 2 are subtracted in one
    /// step, so that the relative error grows with |x|, to 1e-5 at −104.
    ///
    /// Results that would be subnormal numbers, or nearly so, are 0 unless `SUBNORMAL`: products with them
    /// take far longer than others (decision: attention-subnormal).
    unsafe fn exp_of_score<const SUBNORMAL: bool>(x: Self::F) -> Self::F;

    /// `x` with a number in the place of the lanes whose bits are set, the first in the lowest bit.
    #[inline(always)]
    unsafe fn replaced(x: Self::F, bits: u16, with: Self::F) -> Self::F {
        let (mut numbers, mut replaced) = ([0.0f32; LANES], [0.0f32; LANES]);
        // SAFETY: as the caller promises; an array of 16 numbers is a vector.
        unsafe {
            Self::store(numbers.as_mut_ptr(), x);
            Self::store(replaced.as_mut_ptr(), with);
            for lane in 0..LANES {
                let is_replaced = 0u32.wrapping_sub(u32::from(bits) >> lane & 1);
                let (old, new) = (numbers[lane].to_bits(), replaced[lane].to_bits());
                replaced[lane] = f32::from_bits(new & is_replaced | old & !is_replaced);
            }
            Self::load(replaced.as_ptr())
        }
    }

    /// A bit for each of up to 64 bytes, the first in the lowest bit: whether the byte is not 0. The bits of
    /// bytes beyond `count` are 0.
    #[inline(always)]
    unsafe fn lane_mask(from: *const u8, count: usize) -> u64 {
        /// The lowest bit of each byte, and the product with it that moves such bits to the highest byte.
        const LOWEST: u64 = 0x0101_0101_0101_0101;
        const TOGETHER: u64 = 0x0102_0408_1020_4080;
        let mut lane_mask = 0;
        for first in (0..count).step_by(8) {
            let mut bytes = [0; 8];
            // SAFETY: as the caller promises.
            unsafe {
                match count - first {
                    8.. => bytes = from.add(first).cast::<[u8; 8]>().read(),
                    rest => from.add(first).copy_to_nonoverlapping(bytes.as_mut_ptr(), rest),
                }
            }
            let bytes = u64::from_le_bytes(bytes);
            let low = !(LOWEST << 7);
            let is_true = (((bytes & low) + low) | bytes) >> 7 & LOWEST;
            lane_mask |= (is_true.wrapping_mul(TOGETHER) >> 56) << first;
        }
        lane_mask
    }

    /// `x · p + sum` if p is not 0, else the sum.
    unsafe fn add_product(x: Self::F, p: Self::F, sum: Self::F) -> Self::F;

    /// Integers of a byte.
    unsafe fn load_u8(from: *const u8) -> Self::F;
    unsafe fn load_s8(from: *const u8) -> Self::F;

    /// The entries of a table for 16 integers of four bits in 8 bytes, two in a byte, the first in the low
    /// half.
    #[inline(always)]
    unsafe fn chosen(from: *const u8, table: Self::F) -> Self::F {
        let (mut numbers, mut chosen) = ([0.0; LANES], [0.0; LANES]);
        // SAFETY: as the caller promises; an array of 16 numbers is a vector.
        unsafe {
            Self::store(numbers.as_mut_ptr(), table);
            let bits = u64::from_le_bytes(from.cast::<[u8; LANES / 2]>().read());
            for (lane, number) in chosen.iter_mut().enumerate() {
                *number = numbers[(bits >> (4 * lane) & 0xf) as usize];
            }
            Self::load(chosen.as_ptr())
        }
    }

    /// The first numbers of a vector; the others are `pad`.
    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize, pad: f32) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { Self::load_part(from.cast(), RowType::F32, count, pad) }
    }

    /// Stores the first numbers of a vector.
    #[inline(always)]
    unsafe fn store_first(to: *mut f32, count: usize, x: Self::F) {
        // SAFETY: as the caller promises.
        unsafe { Self::store_part(to.cast(), RowType::F32, count, x) };
    }
}

/// Vectors that the compiler makes of arrays.
macro_rules! arrays {
    ($($(#[$attribute:meta])* $Isa:ident)*) => {
        $(
        $(#[$attribute])*
        impl ScoreLanes for $Isa {
            const WHOLE_ROWS: bool = false;

            #[inline(always)]
            unsafe fn exp_of_score<const SUBNORMAL: bool>(x: Self::F) -> Self::F {
                let mut to = x;
                for i in 0..to.len() {
                    to[i] = exp_of_one::<Self, SUBNORMAL>(x[i]);
                }
                to
            }

            #[inline(always)]
            unsafe fn add_product(x: Self::F, p: Self::F, sum: Self::F) -> Self::F {
                let mut to = sum;
                for i in 0..to.len() {
                    to[i] = if p[i] == 0.0 { sum[i] } else { Self::mul_add(x[i], p[i], sum[i]) };
                }
                to
            }

            #[inline(always)]
            unsafe fn load_u8(from: *const u8) -> Self::F {
                // SAFETY: as the caller promises.
                unsafe { from.cast::<[u8; LANES]>().read_unaligned() }.map(f32::from)
            }

            #[inline(always)]
            unsafe fn load_s8(from: *const u8) -> Self::F {
                // SAFETY: as the caller promises.
                unsafe { from.cast::<[i8; LANES]>().read_unaligned() }.map(f32::from)
            }
        }
        )*
    };
}

arrays! {
    Portable
    #[cfg(target_arch = "aarch64")]
    Neon
}

#[cfg(target_arch = "x86_64")]
impl ScoreLanes for Avx2 {
    const WHOLE_ROWS: bool = false;

    #[inline(always)]
    unsafe fn exp_of_score<const SUBNORMAL: bool>(x: Self::F) -> Self::F {
        // SAFETY: as the caller promises; an array of 16 numbers is a vector.
        unsafe {
            let mut to = [0.0; LANES];
            Self::store(to.as_mut_ptr(), x);
            for x in &mut to {
                *x = exp_of_one::<Self, SUBNORMAL>(*x);
            }
            Self::load(to.as_ptr())
        }
    }

    #[inline(always)]
    unsafe fn add_product(x: Self::F, p: Self::F, sum: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { [add_product_256(x[0], p[0], sum[0]), add_product_256(x[1], p[1], sum[1])] }
    }

    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe {
            let (low, high) = (_mm_loadl_epi64(from.cast()), _mm_loadl_epi64(from.add(8).cast()));
            [_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(low)), _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(high))]
        }
    }

    #[inline(always)]
    unsafe fn load_s8(from: *const u8) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe {
            let (low, high) = (_mm_loadl_epi64(from.cast()), _mm_loadl_epi64(from.add(8).cast()));
            [_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(low)), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(high))]
        }
    }

    #[inline(always)]
    unsafe fn chosen(from: *const u8, table: Self::F) -> Self::F {
        // SAFETY: as the caller promises. A permutation reads the lowest 3 bits of an index, a blend the
        // sign.
        unsafe {
            let shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
            [0, 4].map(|at| {
                let bits = _mm256_set1_epi32(from.add(at).cast::<i32>().read_unaligned());
                let index = _mm256_srlv_epi32(bits, shifts);
                let low = _mm256_permutevar8x32_ps(table[0], index);
                let high = _mm256_permutevar8x32_ps(table[1], index);
                _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32::<28>(index)))
            })
        }
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize, pad: f32) -> Self::F {
        // SAFETY: as the caller promises; lanes outside of a mask are not read.
        unsafe {
            let pad = _mm256_castps_si256(_mm256_set1_ps(pad));
            let [low, high] = masks_256(count);
            let load = |from: *const f32, mask| {
                let x = _mm256_castps_si256(_mm256_maskload_ps(from, mask));
                _mm256_castsi256_ps(_mm256_blendv_epi8(pad, x, mask))
            };
            [load(from, low), load(from.wrapping_add(8), high)]
        }
    }

    #[inline(always)]
    unsafe fn store_first(to: *mut f32, count: usize, x: Self::F) {
        let [low, high] = masks_256(count);
        // SAFETY: as the caller promises; lanes outside of a mask are not written.
        unsafe {
            _mm256_maskstore_ps(to, low, x[0]);
            _mm256_maskstore_ps(to.wrapping_add(8), high, x[1]);
        }
    }
}

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
impl ScoreLanes for Avx512 {
    const WHOLE_ROWS: bool = true;

    #[inline(always)]
    unsafe fn replaced(x: Self::F, bits: u16, with: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { _mm512_mask_mov_ps(x, bits, with) }
    }

    #[inline(always)]
    unsafe fn lane_mask(from: *const u8, count: usize) -> u64 {
        let first = u64::MAX.checked_shr(64 - count as u32).unwrap_or(0);
        // SAFETY: as the caller promises; bytes outside of the mask are not read.
        unsafe {
            let bytes = _mm512_maskz_loadu_epi8(first, from.cast());
            _mm512_test_epi8_mask(bytes, bytes)
        }
    }

    #[inline(always)]
    unsafe fn exp_of_score<const SUBNORMAL: bool>(x: Self::F) -> Self::F {
        // SAFETY: as the caller promises. The distance of −∞ from the integer below it is 0, and scaling by
        // 2 to the power of −∞ gives 0; scaling goes by the integer below, and rounds once.
        unsafe {
            let is_kept = _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(x, _mm512_set1_ps(gone(SUBNORMAL)));
            let x = _mm512_mul_ps(x, _mm512_set1_ps(std::f32::consts::LOG2_E));
            let r = _mm512_reduce_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(x);
            let mut y = _mm512_set1_ps(UPPER[6]);
            for c in [UPPER[5], UPPER[4], UPPER[3], UPPER[2], UPPER[1], UPPER[0]] {
                y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(c));
            }
            match SUBNORMAL {
                true => _mm512_scalef_ps(y, x),
                false => _mm512_maskz_scalef_ps(is_kept, y, x),
            }
        }
    }

    #[inline(always)]
    unsafe fn add_product(x: Self::F, p: Self::F, sum: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe {
            let is_kept = _mm512_cmp_ps_mask::<_CMP_NEQ_UQ>(p, _mm512_setzero_ps());
            _mm512_mask3_fmadd_ps(x, p, sum, is_kept)
        }
    }

    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_s8(from: *const u8) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast()))) }
    }

    #[inline(always)]
    unsafe fn chosen(from: *const u8, table: Self::F) -> Self::F {
        // SAFETY: as the caller promises. A permutation reads the lowest 4 bits of an index.
        unsafe {
            let shifts = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
            let half = |at: usize| from.add(at).cast::<i32>().read_unaligned();
            let bits = _mm512_mask_set1_epi32(_mm512_set1_epi32(half(0)), 0xff00, half(4));
            _mm512_permutexvar_ps(_mm512_srlv_epi32(bits, shifts), table)
        }
    }
}

/// [`ScoreLanes::exp_of_score`] of one number.
#[inline(always)]
fn exp_of_one<I: Isa, const SUBNORMAL: bool>(x: f32) -> f32 {
    const BIAS: u32 = 127;
    // The power of 2 is a normal number for each n: one that is higher by this, if results may be subnormal.
    let up = if SUBNORMAL { 64 } else { 0 };
    // Adding this leaves the nearest integer n, and the exponent of the power in the low bits.
    let shifter = (3 << 22) as f32 + (BIAS + up) as f32;
    // A product that is subnormal takes long even if it is not used.
    let is_gone = x <= gone(SUBNORMAL);
    let x = if is_gone { 0.0 } else { x };
    let shifted = I::mul_add(x, std::f32::consts::LOG2_E, shifter);
    let r = I::mul_add(x, std::f32::consts::LOG2_E, shifter - shifted);
    let mut y = CENTRED[6];
    for c in [CENTRED[5], CENTRED[4], CENTRED[3], CENTRED[2], CENTRED[1], CENTRED[0]] {
        y = I::mul_add(y, r, c);
    }
    let y = y * f32::from_bits(shifted.to_bits() << 23);
    // Only this rounds a subnormal result.
    let y = if SUBNORMAL { y * f32::from_bits((BIAS - up) << 23) } else { y };
    if is_gone { 0.0 } else { y }
}

/// Half a vector of [`ScoreLanes::add_product`].
///
/// # Safety
///
/// The machine runs level Avx2.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn add_product_256(x: __m256, p: __m256, sum: __m256) -> __m256 {
    // SAFETY: as the caller promises.
    unsafe {
        let is_masked = _mm256_cmp_ps::<_CMP_EQ_OQ>(p, _mm256_setzero_ps());
        _mm256_blendv_ps(_mm256_fmadd_ps(x, p, sum), sum, is_masked)
    }
}

/// All bits of the first lanes of a vector, as halves.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn masks_256(count: usize) -> [__m256i; 2] {
    const LANES: usize = 16;
    static BITS: [i32; 2 * LANES] = {
        let mut bits = [0; 2 * LANES];
        let mut lane = 0;
        while lane < LANES {
            bits[lane] = -1;
            lane += 1;
        }
        bits
    };
    let at = BITS[LANES - count.min(LANES)..].as_ptr();
    // SAFETY: 16 elements are within the table from each index up to 16 on; only kernels of the level call
    // this.
    unsafe { [_mm256_loadu_si256(at.cast()), _mm256_loadu_si256(at.add(8).cast())] }
}

/// Consecutive vectors of a row; the last has `count` numbers if they are a `PART`; the others are
/// `pad`.
///
/// # Safety
///
/// The numbers can be read, and the machine runs the level.
#[inline(always)]
pub(super) unsafe fn read<I: ScoreLanes, const N: usize, const PART: bool>(
    row: *const f32,
    count: usize,
    pad: f32,
) -> [I::F; N] {
    // SAFETY: as the caller promises.
    unsafe {
        let mut x = [I::splat(pad); N];
        for (i, x) in x.iter_mut().enumerate() {
            let at = row.add(i * LANES);
            *x = if PART && i == N - 1 { I::load_first(at, count, pad) } else { I::load(at) };
        }
        x
    }
}

/// Writes what [`read`] reads.
///
/// # Safety
///
/// The numbers can be written, and the machine runs the level.
#[inline(always)]
pub(super) unsafe fn write<I: ScoreLanes, const N: usize, const PART: bool>(
    row: *mut f32,
    count: usize,
    x: [I::F; N],
) {
    // SAFETY: as the caller promises.
    unsafe {
        for (i, &x) in x.iter().enumerate() {
            let at = row.add(i * LANES);
            if PART && i == N - 1 { I::store_first(at, count, x) } else { I::store(at, x) }
        }
    }
}

/// Calls a function for groups of columns of a tile, with the column of the first vector and the numbers of
/// the last vector as its last arguments. Its generics are the level, the vectors of a group, and whether the
/// last one may be a part.
macro_rules! by_columns {
    ($I:ident, $queries:expr, $function:ident($($argument:expr),*)) => {{
        let queries: usize = $queries;
        if $I::WHOLE_ROWS && queries == QUERIES {
            $function::<$I, { QUERIES / LANES }, false>($($argument,)* 0, LANES);
        } else {
            for first in (0..queries).step_by(LANES) {
                match queries - first {
                    LANES.. if !$I::WHOLE_ROWS => $function::<$I, 1, false>($($argument,)* first, LANES),
                    count => $function::<$I, 1, true>($($argument,)* first, count.min(LANES)),
                }
            }
        }
    }};
}

pub(super) use crate::kernels::rows::lanes::LANES;
pub(super) use by_columns;
