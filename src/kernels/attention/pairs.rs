//! Online SoftMax whose exponentials become pairs of bf16: one pass scales scores, takes exponentials, adds
//! them up, and writes them as products in pairs read them.
//!
//! The sums are those of the exponentials before they are rounded. These have a relative error far below
//! that of the rounding, so their polynomial is shorter than [`Lanes::exp_of_score`]'s.

use std::arch::x86_64::*;

use super::softmax::{Raised, finish, maxima_of, raise};
use super::tile::{QUERIES, ScoreTile, SoftmaxState};
use crate::kernels::gemm::pack::paired;
use crate::kernels::isa::{Avx512, with_features};
use crate::kernels::vector::{LANES, Lanes};
use crate::types::function::EXP_IS_SUBNORMAL;

/// `2ʳ` for r from 0 to 1, with a relative error of 3e-6, and without one at 0.
const POWER: [f32; 5] = [1.0, 0.693_044_84, 0.241_280_2, 0.052_242_473, 0.013_426_684];

/// Keys that are neighbours of a pair.
const PAIR: usize = 2;

/// Maxima from which on the distance of another score is 0 or so large that its exponential is 0, whatever
/// the distance is multiplied by. Their product with log₂ e may overflow, unlike that with [`OF_HUGE`].
const HUGE: f32 = 1e30;
const OF_HUGE: f32 = 1.0 / 1024.0;

with_features! {
    avx512_bf16
    /// As [`accumulate_pairs`](super::AttentionKernels::accumulate_pairs).
    ///
    /// # Safety
    ///
    /// As there.
    pub(super) unsafe fn accumulate(
        tile: ScoreTile,
        factor: f32,
        to: *mut u32,
        state: &mut SoftmaxState,
    ) -> bool {
        const WIDE: usize = 2 * LANES;
        let mut factors = [1.0; QUERIES];
        let mut changes = false;
        let mut first = 0;
        // SAFETY: as the caller promises.
        unsafe {
            while first + WIDE <= tile.queries {
                changes |= columns::<2, false>(tile, factor, to, state, &mut factors, (first, LANES));
                first += WIDE;
            }
            while first < tile.queries {
                let count = LANES.min(tile.queries - first);
                changes |= columns::<1, true>(tile, factor, to, state, &mut factors, (first, count));
                first += LANES;
            }
        }
        if changes {
            state.factor = factors;
        }
        changes
    }
}

/// # Safety
///
/// As [`accumulate`]; the columns are within the tile.
#[inline(always)]
unsafe fn columns<const N: usize, const PART: bool>(
    tile: ScoreTile,
    factor: f32,
    to: *mut u32,
    state: &mut SoftmaxState,
    factors: &mut [f32; QUERIES],
    (first, count): (usize, usize),
) -> bool {
    // SAFETY: as the caller promises; vectors of the state and of the panel are whole.
    unsafe {
        let factor = Avx512::splat(factor);
        let mut largest = maxima_of::<Avx512, N, PART>(tile, first, count);
        for largest in &mut largest {
            *largest = _mm512_mul_ps(*largest, factor);
        }
        let raised: Raised<Avx512, N> = raise(state, first, largest);
        let (mut scale, mut base) = (raised.max, raised.max);
        for i in 0..N {
            [scale[i], base[i]] = scaled(raised.max[i]);
        }
        let mut sums = [Avx512::splat(0.0); N];
        for key in (0..tile.keys).step_by(PAIR) {
            let row = tile.at.add(key * QUERIES + first);
            let second = row.wrapping_add(QUERIES);
            let mut x = [[Avx512::splat(f32::NEG_INFINITY); N]; PAIR];
            for (i, x) in x[0].iter_mut().enumerate() {
                *x = load::<PART>(row.add(i * LANES), count);
            }
            if key + 1 < tile.keys {
                for (i, x) in x[1].iter_mut().enumerate() {
                    *x = load::<PART>(second.wrapping_add(i * LANES), count);
                }
            }
            // Vectors take each step together: a chain of one would fill the queues of the CPU with steps
            // that wait (decision: softmax-in-pairs).
            let mut powers = x;
            for x in &mut x {
                for i in 0..N {
                    x[i] = _mm512_fmsub_ps(_mm512_mul_ps(x[i], factor), scale[i], base[i]);
                }
            }
            let mut rests = x;
            let mut is_kept = [[0; N]; PAIR];
            for key in 0..PAIR {
                for i in 0..N {
                    const GONE: f32 = EXP_IS_SUBNORMAL * std::f32::consts::LOG2_E;
                    is_kept[key][i] = _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(x[key][i], Avx512::splat(GONE));
                    rests[key][i] =
                        _mm512_reduce_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(x[key][i]);
                    powers[key][i] = Avx512::splat(POWER[4]);
                }
            }
            for coefficient in [POWER[3], POWER[2], POWER[1], POWER[0]] {
                for key in 0..PAIR {
                    for i in 0..N {
                        let c = Avx512::splat(coefficient);
                        powers[key][i] = _mm512_fmadd_ps(powers[key][i], rests[key][i], c);
                    }
                }
            }
            for key in 0..PAIR {
                for i in 0..N {
                    let power = _mm512_maskz_scalef_ps(is_kept[key][i], powers[key][i], x[key][i]);
                    powers[key][i] = power;
                    sums[i] = _mm512_add_ps(sums[i], power);
                }
            }
            let to = to.add(key / PAIR * QUERIES + first);
            for (i, (low, high)) in powers[0].into_iter().zip(powers[1]).enumerate() {
                _mm512_storeu_si512(to.add(i * LANES).cast(), paired(low, high));
            }
        }
        finish(raised, sums, state, factors, first)
    }
}

/// The numbers by which scores are multiplied, and maxima times these.
///
/// # Safety
///
/// The machine has the instructions.
#[inline(always)]
unsafe fn scaled(max: __m512) -> [__m512; 2] {
    // SAFETY: as the caller promises.
    unsafe {
        let is_none = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(max, Avx512::splat(f32::NEG_INFINITY));
        let is_huge = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(_mm512_abs_ps(max), Avx512::splat(HUGE));
        let log = Avx512::splat(std::f32::consts::LOG2_E);
        let scale = _mm512_mask_mov_ps(log, is_huge, Avx512::splat(OF_HUGE));
        // The distance from the maximum of a query without keys so far would be NaN.
        [scale, _mm512_maskz_mul_ps(!is_none, max, scale)]
    }
}

/// Scores of a row; those that a part lacks are −∞.
///
/// # Safety
///
/// The scores can be read, and the machine runs the level.
#[inline(always)]
unsafe fn load<const PART: bool>(at: *const f32, count: usize) -> __m512 {
    // SAFETY: as the caller promises.
    unsafe {
        match PART {
            true => Avx512::load_first(at, count, f32::NEG_INFINITY),
            false => _mm512_loadu_ps(at),
        }
    }
}
