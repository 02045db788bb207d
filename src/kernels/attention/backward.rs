//! The kernels of the gradients of attention apart from products. With P the weights that the SoftMax gives,
//! dO the gradient of the result and dP = dO·Vᵀ, the gradient of the logits is dS = P ⊙ (dP − Σ P ⊙ dP), with
//! the sum over the keys of a query. A tile of each has a row for each key and a column for each query.
//!
//! P is 0 where a query masks a key. Such a pair adds nothing to any gradient, even if the other factor is
//! not finite.

use super::lanes::{by_columns, read, write};
use super::tile::{QUERIES, ScoreTile, SoftmaxState};
use crate::kernels::vector::{LANES, Lanes};

/// Turns logits into P.
///
/// # Safety
///
/// As [`weights`](super::AttentionKernels::weights).
#[inline(always)]
pub(super) unsafe fn weights<I: Lanes>(tile: ScoreTile, state: &SoftmaxState) {
    let inverse = state.sum.map(|sum| 1.0 / sum);
    // SAFETY: as the caller promises.
    unsafe { by_columns!(I, tile.queries, weights_columns(tile, state, &inverse)) };
}

/// # Safety
///
/// As [`weights`]; the columns are within the tile.
#[inline(always)]
unsafe fn weights_columns<I: Lanes, const N: usize, const PART: bool>(
    tile: ScoreTile,
    state: &SoftmaxState,
    inverse: &[f32; QUERIES],
    first: usize,
    count: usize,
) {
    // SAFETY: as the caller promises; vectors of the state are whole.
    unsafe {
        let mut max = read::<I, N, false>(state.max.as_ptr().add(first), LANES, 0.0);
        let inverse = read::<I, N, false>(inverse.as_ptr().add(first), LANES, 0.0);
        for max in &mut max {
            *max = I::larger(*max, I::splat(f32::MIN));
        }
        for key in 0..tile.keys {
            let at = tile.at.add(key * QUERIES + first);
            let mut x = read::<I, N, PART>(at, count, f32::NEG_INFINITY);
            for i in 0..N {
                // Positive for each number from the lowest finite one on, not for −∞ and NaN.
                let is_seen = I::add(I::add(x[i], I::splat(f32::MAX)), I::splat(1.0));
                let exp = I::exp_of_score::<false>(I::sub(x[i], max[i]));
                x[i] = I::if_positive(is_seen, I::mul(exp, inverse[i]), exp);
            }
            write::<I, N, PART>(at, count, x);
        }
    }
}

/// Writes 0 where P is 0, and NaN where P is NaN.
///
/// # Safety
///
/// As [`clear_masked`](super::AttentionKernels::clear_masked).
#[inline(always)]
pub(super) unsafe fn clear_masked<I: Lanes>(weights: ScoreTile, to: *mut f32) {
    // SAFETY: as the caller promises.
    unsafe { by_columns!(I, weights.queries, clear_columns(weights, to)) };
}

/// # Safety
///
/// As [`clear_masked`]; the columns are within the tiles.
#[inline(always)]
unsafe fn clear_columns<I: Lanes, const N: usize, const PART: bool>(
    weights: ScoreTile,
    to: *mut f32,
    first: usize,
    count: usize,
) {
    // SAFETY: as the caller promises.
    unsafe {
        for key in 0..weights.keys {
            let at = key * QUERIES + first;
            let w = read::<I, N, PART>(weights.at.add(at), count, 0.0);
            let mut x = read::<I, N, PART>(to.add(at), count, 0.0);
            for i in 0..N {
                x[i] = I::if_positive(w[i], x[i], w[i]);
            }
            write::<I, N, PART>(to.add(at), count, x);
        }
    }
}

/// Turns dP into dS.
///
/// # Safety
///
/// As [`softmax_gradients`](super::AttentionKernels::softmax_gradients).
#[inline(always)]
pub(super) unsafe fn softmax_gradients<I: Lanes>(weights: ScoreTile, to: *mut f32, means: &[f32; QUERIES]) {
    // SAFETY: as the caller promises.
    unsafe { by_columns!(I, weights.queries, gradients_columns(weights, to, means)) };
}

/// # Safety
///
/// As [`softmax_gradients`]; the columns are within the tiles.
#[inline(always)]
unsafe fn gradients_columns<I: Lanes, const N: usize, const PART: bool>(
    weights: ScoreTile,
    to: *mut f32,
    means: &[f32; QUERIES],
    first: usize,
    count: usize,
) {
    // SAFETY: as the caller promises; vectors of the means are whole.
    unsafe {
        let means = read::<I, N, false>(means.as_ptr().add(first), LANES, 0.0);
        for key in 0..weights.keys {
            let at = key * QUERIES + first;
            let w = read::<I, N, PART>(weights.at.add(at), count, 0.0);
            let mut x = read::<I, N, PART>(to.add(at), count, 0.0);
            for i in 0..N {
                x[i] = I::if_positive(w[i], I::mul(w[i], I::sub(x[i], means[i])), w[i]);
            }
            write::<I, N, PART>(to.add(at), count, x);
        }
    }
}

/// Adds P ⊙ dP of a tile to the sum of each query.
///
/// # Safety
///
/// As [`weighted_sums`](super::AttentionKernels::weighted_sums).
#[inline(always)]
pub(super) unsafe fn weighted_sums<I: Lanes>(
    weights: ScoreTile,
    gradients: *const f32,
    sums: &mut [f32; QUERIES],
) {
    // SAFETY: as the caller promises.
    unsafe { by_columns!(I, weights.queries, sums_columns(weights, gradients, sums)) };
}

/// # Safety
///
/// As [`weighted_sums`]; the columns are within the tiles.
#[inline(always)]
unsafe fn sums_columns<I: Lanes, const N: usize, const PART: bool>(
    weights: ScoreTile,
    gradients: *const f32,
    sums: &mut [f32; QUERIES],
    first: usize,
    count: usize,
) {
    // SAFETY: as the caller promises; vectors of the sums are whole.
    unsafe {
        let mut of_tile = [I::splat(0.0); N];
        for key in 0..weights.keys {
            let at = key * QUERIES + first;
            let w = read::<I, N, PART>(weights.at.add(at), count, 0.0);
            let x = read::<I, N, PART>(gradients.add(at), count, 0.0);
            for i in 0..N {
                of_tile[i] = I::add_product(x[i], w[i], of_tile[i]);
            }
        }
        for (i, &of_tile) in of_tile.iter().enumerate() {
            let sum = sums.as_mut_ptr().add(first + i * LANES);
            I::store(sum, I::add(I::load(sum), of_tile));
        }
    }
}
