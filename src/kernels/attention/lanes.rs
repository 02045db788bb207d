//! Vectors of attention: what its kernels need beside [`Lanes`], and how they walk the columns of a tile.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use crate::kernels::isa::Portable;
#[cfg(target_arch = "x86_64")]
use crate::kernels::isa::{Avx2, Avx512};
use crate::kernels::rows::RowType;
use crate::kernels::rows::lanes::Lanes;

/// `2ʳ` for r from 0 to 1, with a relative error of 2.1e-9, and without one at 0.
#[cfg(target_arch = "x86_64")]
const EXP_2: [f32; 7] = [1.0, 0.69314706, 0.24022909, 0.055486184, 0.009673775, 0.0012482288, 0.00021565985];

/// Vectors of a level.
///
/// # Safety of the methods
///
/// As for [`Lanes`].
pub(super) trait ScoreLanes: Lanes {
    /// Whether a row of a tile and the running values of its columns fit into registers.
    const WHOLE_ROWS: bool;

    /// The exponentials of numbers up to 88: exact at 0; 0 for what is below all numbers, −∞ among them.
    unsafe fn exp_of_score(x: Self::F) -> Self::F;

    /// `x · p + sum` if p is not 0, else the sum.
    unsafe fn add_product(x: Self::F, p: Self::F, sum: Self::F) -> Self::F;

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

impl ScoreLanes for Portable {
    const WHOLE_ROWS: bool = false;

    #[inline(always)]
    unsafe fn exp_of_score(x: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { Self::exp(x) }
    }

    #[inline(always)]
    unsafe fn add_product(x: Self::F, p: Self::F, sum: Self::F) -> Self::F {
        let mut to = sum;
        for i in 0..to.len() {
            to[i] = if p[i] == 0.0 { sum[i] } else { x[i] * p[i] + sum[i] };
        }
        to
    }
}

#[cfg(target_arch = "x86_64")]
impl ScoreLanes for Avx2 {
    const WHOLE_ROWS: bool = false;

    #[inline(always)]
    unsafe fn exp_of_score(x: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { [exp_256(x[0]), exp_256(x[1])] }
    }

    #[inline(always)]
    unsafe fn add_product(x: Self::F, p: Self::F, sum: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { [add_product_256(x[0], p[0], sum[0]), add_product_256(x[1], p[1], sum[1])] }
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

#[cfg(target_arch = "x86_64")]
impl ScoreLanes for Avx512 {
    const WHOLE_ROWS: bool = true;

    #[inline(always)]
    unsafe fn exp_of_score(x: Self::F) -> Self::F {
        // SAFETY: as the caller promises. The distance of −∞ from the integer below it is 0, and scaling by
        // 2 to the power of −∞ gives 0; scaling goes by the integer below, and rounds once.
        unsafe {
            let x = _mm512_mul_ps(x, _mm512_set1_ps(std::f32::consts::LOG2_E));
            let r = _mm512_reduce_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(x);
            let mut y = _mm512_set1_ps(EXP_2[6]);
            for c in [EXP_2[5], EXP_2[4], EXP_2[3], EXP_2[2], EXP_2[1], EXP_2[0]] {
                y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(c));
            }
            _mm512_scalef_ps(y, x)
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
}

/// Half a vector of [`ScoreLanes::exp_of_score`].
///
/// # Safety
///
/// The machine runs level Avx2.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn exp_256(x: __m256) -> __m256 {
    /// A power of 2 at which every result is 0.
    const LEAST: f32 = -151.0;
    // SAFETY: as the caller promises. If one operand is NaN, the maximum is the second operand.
    unsafe {
        let x = _mm256_mul_ps(x, _mm256_set1_ps(std::f32::consts::LOG2_E));
        let x = _mm256_max_ps(_mm256_set1_ps(LEAST), x);
        let n = _mm256_floor_ps(x);
        let r = _mm256_sub_ps(x, n);
        let mut y = _mm256_set1_ps(EXP_2[6]);
        for c in [EXP_2[5], EXP_2[4], EXP_2[3], EXP_2[2], EXP_2[1], EXP_2[0]] {
            y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(c));
        }
        // Two factors, since the power may be below all normal numbers; only the last product rounds.
        let n = _mm256_cvtps_epi32(n);
        let half = _mm256_srai_epi32::<1>(n);
        let power = |n| {
            let biased = _mm256_add_epi32(n, _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
        };
        _mm256_mul_ps(_mm256_mul_ps(y, power(half)), power(_mm256_sub_epi32(n, half)))
    }
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

/// Consecutive vectors of a row, of which the last has `count` numbers if they are a `PART`; the others are
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
        for i in 0..N {
            let at = row.add(i * LANES);
            x[i] = if PART && i == N - 1 { I::load_first(at, count, pad) } else { I::load(at) };
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
        for i in 0..N {
            let at = row.add(i * LANES);
            if PART && i == N - 1 { I::store_first(at, count, x[i]) } else { I::store(at, x[i]) }
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
