//! SoftMax over the rows of tiles: maxima, exponentials and sums of columns.
//!
//! The exponentials of a tile are added up in the order of its keys, and their sum is added to the sum of the
//! tiles before. So sums depend on where tiles begin, and rounding errors grow with the number of tiles, not
//! with that of keys. A tile of −∞ changes nothing.

use super::lanes::{by_columns, read, write};
use super::tile::{QUERIES, ScoreTile, SoftmaxState};
use crate::kernels::vector::{LANES, Lanes};

/// The largest distance by which a score may exceed the maximum before it becomes the maximum: 8 powers of 2.
/// Exponentials and their sums stay far from overflow, and few tiles change a maximum.
const GROWTH: f32 = 8.0 * std::f32::consts::LN_2;

/// Chains of maxima, so that an instruction need not wait for the one before.
const CHAINS: usize = 2;

/// Writes the exponentials of a tile and adds them to the state; returns whether a maximum changed.
///
/// # Safety
///
/// As [`accumulate`](super::AttentionKernels::accumulate).
#[inline(always)]
pub(super) unsafe fn accumulate<I: Lanes>(tile: ScoreTile, to: *mut f32, state: &mut SoftmaxState) -> bool {
    let mut factors = [1.0; QUERIES];
    let mut changes = false;
    // SAFETY: as the caller promises.
    unsafe { by_columns!(I, tile.queries, accumulate_columns(tile, to, state, &mut factors, &mut changes)) };
    if changes {
        state.factor = factors;
    }
    changes
}

/// # Safety
///
/// As [`accumulate`]; the columns are within the tile.
#[inline(always)]
unsafe fn accumulate_columns<I: Lanes, const N: usize, const PART: bool>(
    tile: ScoreTile,
    to: *mut f32,
    state: &mut SoftmaxState,
    factors: &mut [f32; QUERIES],
    changes: &mut bool,
    first: usize,
    count: usize,
) {
    // SAFETY: as the caller promises; vectors of the state are whole.
    unsafe {
        let raised: Raised<I, N> = raise(state, first, maxima_of::<I, N, PART>(tile, first, count));
        let sums = exponentials_of::<I, N, PART, false>(tile, to, first, count, raised.max);
        *changes |= finish(raised, sums, state, factors, first);
    }
}

/// The maxima of columns before and after a tile.
pub(super) struct Raised<I: Lanes, const N: usize> {
    before: [I::F; N],
    /// The numbers under which the exponentials of the tile are taken.
    pub(super) max: [I::F; N],
    /// 1 where the two differ.
    is_new: [I::F; N],
}

/// Puts the largest scores of a tile in the place of maxima that they exceed by more than the growth.
///
/// # Safety
///
/// As [`accumulate_columns`].
#[inline(always)]
pub(super) unsafe fn raise<I: Lanes, const N: usize>(
    state: &SoftmaxState,
    first: usize,
    largest: [I::F; N],
) -> Raised<I, N> {
    // SAFETY: as the caller promises; vectors of the state are whole.
    unsafe {
        let (zero, one) = (I::splat(0.0), I::splat(1.0));
        let before = read::<I, N, false>(state.max.as_ptr().add(first), LANES, 0.0);
        let (mut max, mut is_new) = (before, before);
        for i in 0..N {
            // This is NaN, and so not positive, if both are −∞ or +∞.
            let growth = I::sub(largest[i], I::add(before[i], I::splat(GROWTH)));
            max[i] = I::if_positive(growth, largest[i], before[i]);
            is_new[i] = I::if_positive(growth, one, zero);
        }
        Raised { before, max, is_new }
    }
}

/// Adds the sums of a tile to the state, with factors for earlier results where maxima changed; returns
/// whether one did.
///
/// # Safety
///
/// As [`accumulate_columns`].
#[inline(always)]
pub(super) unsafe fn finish<I: Lanes, const N: usize>(
    Raised { before, max, is_new }: Raised<I, N>,
    sums: [I::F; N],
    state: &mut SoftmaxState,
    factors: &mut [f32; QUERIES],
    first: usize,
) -> bool {
    // SAFETY: as the caller promises; vectors of the state are whole.
    unsafe {
        let one = I::splat(1.0);
        let mut any_new = is_new[0];
        for is_new in is_new {
            any_new = I::larger(is_new, any_new);
        }
        let is_any_new = I::largest(any_new) > 0.0;
        for i in 0..N {
            let column = first + i * LANES;
            let mut factor = one;
            if is_any_new {
                let of_new = I::exp_of_score::<false>(I::sub(before[i], finite::<I>(max[i])));
                factor = I::if_positive(is_new[i], of_new, one);
                I::store(factors.as_mut_ptr().add(column), factor);
                I::store(state.max.as_mut_ptr().add(column), max[i]);
            }
            let sum = state.sum.as_mut_ptr().add(column);
            I::store(sum, I::fma(I::load(sum), factor, sums[i]));
        }
        is_any_new
    }
}

/// Raises the maxima to those of a tile.
///
/// # Safety
///
/// As [`maxima`](super::AttentionKernels::maxima).
#[inline(always)]
pub(super) unsafe fn maxima<I: Lanes>(tile: ScoreTile, state: &mut SoftmaxState) {
    // SAFETY: as the caller promises.
    unsafe { by_columns!(I, tile.queries, maxima_columns(tile, state)) };
}

/// # Safety
///
/// As [`maxima`]; the columns are within the tile.
#[inline(always)]
unsafe fn maxima_columns<I: Lanes, const N: usize, const PART: bool>(
    tile: ScoreTile,
    state: &mut SoftmaxState,
    first: usize,
    count: usize,
) {
    // SAFETY: as the caller promises; vectors of the state are whole.
    unsafe {
        let largest = maxima_of::<I, N, PART>(tile, first, count);
        for (i, &largest) in largest.iter().enumerate() {
            let max = state.max.as_mut_ptr().add(first + i * LANES);
            I::store(max, I::larger(largest, I::load(max)));
        }
    }
}

/// Turns a tile into exponentials, under maxima that are final.
///
/// # Safety
///
/// As [`exponentials`](super::AttentionKernels::exponentials).
#[inline(always)]
pub(super) unsafe fn exponentials<I: Lanes>(tile: ScoreTile, state: &mut SoftmaxState) {
    // SAFETY: as the caller promises.
    unsafe { by_columns!(I, tile.queries, exponentials_columns(tile, state)) };
}

/// # Safety
///
/// As [`exponentials`]; the columns are within the tile.
#[inline(always)]
unsafe fn exponentials_columns<I: Lanes, const N: usize, const PART: bool>(
    tile: ScoreTile,
    state: &mut SoftmaxState,
    first: usize,
    count: usize,
) {
    // SAFETY: as the caller promises; vectors of the state are whole.
    unsafe {
        let max = read::<I, N, false>(state.max.as_ptr().add(first), LANES, 0.0);
        let sums = exponentials_of::<I, N, PART, true>(tile, tile.at, first, count, max);
        for (i, &of_tile) in sums.iter().enumerate() {
            let sum = state.sum.as_mut_ptr().add(first + i * LANES);
            I::store(sum, I::add(I::load(sum), of_tile));
        }
    }
}

/// The largest score of each column that is no NaN, or −∞.
///
/// # Safety
///
/// As [`accumulate_columns`].
#[inline(always)]
pub(super) unsafe fn maxima_of<I: Lanes, const N: usize, const PART: bool>(
    tile: ScoreTile,
    first: usize,
    count: usize,
) -> [I::F; N] {
    const PAD: f32 = f32::NEG_INFINITY;
    let at = tile.at.wrapping_add(first);
    // SAFETY: as the caller promises. The second operand of the maximum, which is the result if the first
    // is NaN, never is NaN.
    unsafe {
        let mut largest = [[I::splat(PAD); N]; CHAINS];
        let mut key = 0;
        while key + CHAINS <= tile.keys {
            for (chain, largest) in largest.iter_mut().enumerate() {
                let x = read::<I, N, PART>(at.add((key + chain) * QUERIES), count, PAD);
                for i in 0..N {
                    largest[i] = I::larger(x[i], largest[i]);
                }
            }
            key += CHAINS;
        }
        let [mut of_all, other] = largest;
        if key < tile.keys {
            let x = read::<I, N, PART>(at.add(key * QUERIES), count, PAD);
            for i in 0..N {
                of_all[i] = I::larger(x[i], of_all[i]);
            }
        }
        for i in 0..N {
            of_all[i] = I::larger(other[i], of_all[i]);
        }
        of_all
    }
}

/// Writes the exponentials of the columns' distances from the maxima, and returns their sums.
///
/// # Safety
///
/// As [`accumulate_columns`].
#[inline(always)]
unsafe fn exponentials_of<I: Lanes, const N: usize, const PART: bool, const SUBNORMAL: bool>(
    tile: ScoreTile,
    to: *mut f32,
    first: usize,
    count: usize,
    max: [I::F; N],
) -> [I::F; N] {
    let at = tile.at.wrapping_add(first);
    // SAFETY: as the caller promises.
    unsafe {
        let (mut base, mut sums) = (max, [I::splat(0.0); N]);
        for i in 0..N {
            base[i] = finite::<I>(max[i]);
        }
        for key in 0..tile.keys {
            let row = at.add(key * QUERIES);
            let mut x = read::<I, N, PART>(row, count, f32::NEG_INFINITY);
            for i in 0..N {
                x[i] = I::exp_of_score::<SUBNORMAL>(I::sub(x[i], base[i]));
                sums[i] = I::add(sums[i], x[i]);
            }
            write::<I, N, PART>(to.add(key * QUERIES + first), count, x);
        }
        sums
    }
}

/// The maximum, or a finite number in place of −∞, so that subtracting it from −∞ gives −∞, not NaN.
///
/// # Safety
///
/// The machine runs the level.
#[inline(always)]
unsafe fn finite<I: Lanes>(max: I::F) -> I::F {
    // SAFETY: as the caller promises.
    unsafe { I::larger(max, I::splat(f32::MIN)) }
}
