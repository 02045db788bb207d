//! Masks over tiles of scores: of booleans, and of bits.
//!
//! In memory the keys of a query are neighbours, but a row of a tile belongs to one key. So the booleans of
//! a tile become bits, a word for each query, and the bits are transposed: this takes a small part of the
//! time in which bytes are.

use super::lanes::{by_columns, read, write};
use super::tile::{QUERIES, ScoreTile};
use crate::kernels::vector::{LANES, Lanes};

/// The booleans of a tile in memory: a byte for each key of a query, without gaps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TileConditions {
    pub(crate) at: *const u8,
    /// Bytes from query to query.
    pub(crate) query_stride: isize,
    /// If true, a score is kept where its boolean is true; else where it is false.
    pub(crate) keeps: bool,
}

/// Puts a number in the place of scores that are not kept.
///
/// # Safety
///
/// As [`mask`](super::AttentionKernels::mask).
#[inline(always)]
pub(super) unsafe fn mask<I: Lanes>(tile: ScoreTile, conditions: TileConditions, fill: f32) {
    let flipped = if conditions.keeps { u64::MAX } else { 0 };
    let mut bits = [0; QUERIES];
    for (query, bits) in bits.iter_mut().enumerate().take(tile.queries) {
        let at = conditions.at.wrapping_offset(conditions.query_stride * query as isize);
        // SAFETY: as the caller promises.
        *bits = unsafe { I::lane_mask(at, tile.keys) } ^ flipped;
    }
    // SAFETY: as the caller promises.
    unsafe { mask_bits::<I>(tile, &mut bits, fill) };
}

/// Puts a number in the place of scores whose bits are set: a word for each query, a bit for each key.
///
/// # Safety
///
/// As [`mask_bits`](super::AttentionKernels::mask_bits).
#[inline(always)]
pub(super) unsafe fn mask_bits<I: Lanes>(tile: ScoreTile, bits: &mut [u64; QUERIES], fill: f32) {
    transpose(bits);
    let bits = &*bits;
    // SAFETY: as the caller promises.
    unsafe { by_columns!(I, tile.queries, mask_columns(tile, bits, fill)) };
}

/// # Safety
///
/// As [`mask`]; the columns are within the tile.
#[inline(always)]
unsafe fn mask_columns<I: Lanes, const N: usize, const PART: bool>(
    tile: ScoreTile,
    bits: &[u64; QUERIES],
    fill: f32,
    first: usize,
    count: usize,
) {
    // SAFETY: as the caller promises.
    unsafe {
        let fill = I::splat(fill);
        for (key, bits) in bits.iter().enumerate().take(tile.keys) {
            let row = tile.at.add(key * QUERIES + first);
            let mut x = read::<I, N, PART>(row, count, 0.0);
            for (i, x) in x.iter_mut().enumerate() {
                *x = I::replaced(*x, (bits >> (first + i * LANES)) as u16, fill);
            }
            write::<I, N, PART>(row, count, x);
        }
    }
}

/// Transposes a square of bits: bit `i` of word `k` becomes bit `k` of word `i`.
#[inline(always)]
fn transpose(bits: &mut [u64; QUERIES]) {
    exchange::<32>(bits, 0x0000_0000_ffff_ffff);
    exchange::<16>(bits, 0x0000_ffff_0000_ffff);
    exchange::<8>(bits, 0x00ff_00ff_00ff_00ff);
    exchange::<4>(bits, 0x0f0f_0f0f_0f0f_0f0f);
    exchange::<2>(bits, 0x3333_3333_3333_3333);
    exchange::<1>(bits, 0x5555_5555_5555_5555);
}

/// Exchanges squares of bits of this size on both sides of the diagonal; `low` are the bits of the left ones.
#[inline(always)]
fn exchange<const SIZE: usize>(bits: &mut [u64; QUERIES], low: u64) {
    for first in (0..QUERIES).step_by(2 * SIZE) {
        for word in first..first + SIZE {
            let changed = (bits[word] >> SIZE ^ bits[word + SIZE]) & low;
            bits[word + SIZE] ^= changed;
            bits[word] ^= changed << SIZE;
        }
    }
}
