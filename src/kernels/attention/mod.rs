//! Attention: SoftMax over tiles of scores, and the scaling of results by it.
//!
//! A tile has keys down and queries across: a lane of a vector belongs to one query. So maxima, sums and
//! factors are vectors too, nothing is added up across lanes, and the result of a query depends on no other
//! query. All numbers are f32 in the scratch of a thread.
//!
//! SoftMax is online: [`accumulate`](AttentionKernels::accumulate) subtracts the largest score so far from
//! the scores of a tile, and says when earlier results must be multiplied by a factor because a maximum grew.
//! Or it takes two passes over all tiles: [`maxima`](AttentionKernels::maxima), then
//! [`exponentials`](AttentionKernels::exponentials).

mod backward;
mod decode;
mod lanes;
mod mask;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
mod pairs;
mod quads;
mod results;
mod softmax;
#[cfg(test)]
mod tests;
mod tile;

pub(crate) use self::decode::DecodeKernels;
pub(crate) use self::mask::TileConditions;
pub(crate) use self::quads::{QUAD, QuadKernels, QuadSums, WeightRounding};
pub(crate) use self::results::statistic;
pub(crate) use self::tile::{KEYS, QUERIES, ROW, ScoreTile, SoftmaxState};
use super::gemm::{
    Form, GemmKernel, Matrix, OperandRows, Panels, Product, RowProduct, RowScaling, add_rows_with_holes,
    is_finite,
};
use super::isa::{self, shells};
use super::{Extent, Source, Target};
use crate::types::dtype::DataType;
use crate::types::kind::Level;

shells! {
    I:
    fn accumulate[](tile: ScoreTile, to: *mut f32, state: &mut SoftmaxState) -> bool {
        softmax::accumulate::<I>(tile, to, state)
    }

    fn maxima[](tile: ScoreTile, state: &mut SoftmaxState) {
        softmax::maxima::<I>(tile, state)
    }

    fn exponentials[](tile: ScoreTile, state: &mut SoftmaxState) {
        softmax::exponentials::<I>(tile, state)
    }

    fn mask[](tile: ScoreTile, conditions: TileConditions, fill: f32) {
        mask::mask::<I>(tile, conditions, fill)
    }

    fn mask_bits[](tile: ScoreTile, bits: &mut [u64; QUERIES], fill: f32) {
        mask::mask_bits::<I>(tile, bits, fill)
    }

    fn divide[](at: *mut f32, rows: usize, queries: usize, state: &SoftmaxState, inf_as_zero: bool) -> bool {
        results::divide::<I>(at, rows, queries, state, inf_as_zero)
    }

    fn rescale[](at: *mut f32, rows: usize, queries: usize, factors: &[f32; QUERIES]) {
        results::rescale::<I>(at, rows, queries, factors)
    }

    fn weights[](tile: ScoreTile, state: &SoftmaxState) {
        backward::weights::<I>(tile, state)
    }

    fn clear_masked[](weights: ScoreTile, to: *mut f32) {
        backward::clear_masked::<I>(weights, to)
    }

    fn softmax_gradients[](weights: ScoreTile, to: *mut f32, means: &[f32; QUERIES]) {
        backward::softmax_gradients::<I>(weights, to, means)
    }

    fn weighted_sums[](weights: ScoreTile, gradients: *const f32, sums: &mut [f32; QUERIES]) {
        backward::weighted_sums::<I>(weights, gradients, sums)
    }
}

/// The kernels of attention at a level.
///
/// # Safety of the methods
///
/// The machine runs the level. A tile, and rows that are called so, have [`QUERIES`] elements from one row to
/// the next; the columns of at most as many queries are used; these can be read, and written through
/// a pointer that is not `const`. Operands of one call do not overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AttentionKernels {
    level: Level,
}

/// Calls the shell of a level.
macro_rules! at_level {
    ($kernels:expr, $shell:ident($($argument:expr),*)) => {{
        // SAFETY: as the caller promises.
        unsafe {
            isa::at_level!($kernels.level, $shell($($argument),*))
        }
    }};
}

impl AttentionKernels {
    pub(crate) fn new(level: Level) -> Self {
        Self { level }
    }

    /// Turns a tile of scores into the exponentials of the distances from the state's maxima;
    /// these are added to the sums. A score becomes the maximum if it is the first above −∞, or if it grew by
    /// more than 8 powers of 2 (the largest score of the tile counts). Returns whether some maximum changed.
    /// If so, `state.factor` is what earlier results must be multiplied by, 0 if there are none and 1 if the
    /// maximum stays; the sums have been multiplied already.
    ///
    /// A tile of −∞ becomes 0 and changes nothing. A score of NaN or +∞ makes the query's sum NaN.
    /// Exponentials and factors below 1.7e-38 are 0, so that none is a subnormal number
    /// (decision: attention-subnormal).
    ///
    /// # Safety
    ///
    /// See the type.
    pub(crate) unsafe fn accumulate(&self, tile: ScoreTile, state: &mut SoftmaxState) -> bool {
        // SAFETY: as the caller promises; a kernel may write over the tile.
        unsafe { self.accumulate_to(tile, tile.at, state) }
    }

    /// As [`accumulate`](Self::accumulate), with the exponentials in rows at another place.
    ///
    /// # Safety
    ///
    /// See the type; the place may be that of the tile.
    pub(crate) unsafe fn accumulate_to(
        &self,
        tile: ScoreTile,
        to: *mut f32,
        state: &mut SoftmaxState,
    ) -> bool {
        debug_assert!(tile.queries <= QUERIES);
        at_level!(self, accumulate(tile, to, state))
    }

    /// As [`accumulate`](Self::accumulate), of scores that are multiplied by a positive number first, with
    /// the exponentials rounded to bf16: those of two keys are neighbours, and a row of pairs has
    /// [`QUERIES`]. Behind the last of an odd number of keys, 0 stands in the place of a key. Exponentials
    /// have a relative error of 3e-6 before they are rounded, and 0 at the maximum.
    ///
    /// # Safety
    ///
    /// See the type; the machine has the instructions for pairs of bf16, and there is room for the rows.
    pub(crate) unsafe fn accumulate_pairs(
        &self,
        tile: ScoreTile,
        factor: f32,
        to: *mut u8,
        state: &mut SoftmaxState,
    ) -> bool {
        debug_assert!(tile.queries <= QUERIES);
        #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
        // SAFETY: as the caller promises.
        return unsafe { pairs::accumulate(tile, factor, to.cast(), state) };
        #[cfg(not(all(target_arch = "x86_64", feature = "avx512")))]
        unreachable!("no level has pairs of bf16: {tile:?}, {factor}, {to:?}, {state:?}")
    }

    /// Raises the maxima to the largest scores of a tile, for the first of two passes. Scores that are NaN
    /// do not count.
    ///
    /// # Safety
    ///
    /// See the type.
    pub(crate) unsafe fn maxima(&self, tile: ScoreTile, state: &mut SoftmaxState) {
        debug_assert!(tile.queries <= QUERIES);
        at_level!(self, maxima(tile, state))
    }

    /// Turns a tile of scores into exponentials under the maxima of all keys, and adds them to the sums: the
    /// second of two passes. Subnormal exponentials are kept: they are 0 only where they are 0 in f32.
    ///
    /// # Safety
    ///
    /// See the type.
    pub(crate) unsafe fn exponentials(&self, tile: ScoreTile, state: &mut SoftmaxState) {
        debug_assert!(tile.queries <= QUERIES);
        at_level!(self, exponentials(tile, state))
    }

    /// Puts a number in the place of the scores of a tile that a mask of booleans does not keep.
    ///
    /// # Safety
    ///
    /// See the type; the tile has at most [`KEYS`] keys, and the boolean of each key of each query can be
    /// read.
    pub(crate) unsafe fn mask(&self, tile: ScoreTile, conditions: TileConditions, fill: f32) {
        debug_assert!(tile.queries <= QUERIES && tile.keys <= KEYS);
        at_level!(self, mask(tile, conditions, fill))
    }

    /// Puts a number in the place of the scores of a tile whose bits are set: a word for each query, a bit
    /// for each key. The words are used up.
    ///
    /// # Safety
    ///
    /// See the type; the tile has at most [`KEYS`] keys.
    pub(crate) unsafe fn mask_bits(&self, tile: ScoreTile, bits: &mut [u64; QUERIES], fill: f32) {
        debug_assert!(tile.queries <= QUERIES && tile.keys <= KEYS);
        at_level!(self, mask_bits(tile, bits, fill))
    }

    /// Divides rows, of a result or of exponentials, by the sums. A query whose sum is 0, so that it has no
    /// key, gets 0 if `inf_as_zero` is set, else NaN, whatever stands there. NaN becomes the canonical one.
    /// Returns whether all numbers were finite before.
    ///
    /// # Safety
    ///
    /// See the type.
    pub(crate) unsafe fn divide(
        &self,
        at: *mut f32,
        rows: usize,
        queries: usize,
        state: &SoftmaxState,
        inf_as_zero: bool,
    ) -> bool {
        debug_assert!(queries <= QUERIES);
        at_level!(self, divide(at, rows, queries, state, inf_as_zero))
    }

    /// Multiplies rows by a factor for each query.
    ///
    /// # Safety
    ///
    /// See the type.
    pub(crate) unsafe fn rescale(&self, at: *mut f32, rows: usize, queries: usize, factors: &[f32; QUERIES]) {
        debug_assert!(queries <= QUERIES);
        at_level!(self, rescale(at, rows, queries, factors))
    }

    /// Adds to each row `d` of the result the product of column `d` of V and a tile of probabilities, key by
    /// key, but nothing where a probability is 0. So an element of V that is not finite does not reach a
    /// query that masks its key. NaN is not 0.
    ///
    /// V has a row for each key and a column for each of `dims`, in f32. The result has as many rows.
    ///
    /// # Safety
    ///
    /// See the type; V can be read.
    pub(crate) unsafe fn masked_product(&self, tile: ScoreTile, v: Matrix, dims: usize, result: *mut f32) {
        debug_assert!(tile.queries <= QUERIES);
        let kernel = GemmKernel::new(self.level, Form::Holes);
        let panel_stride = 4 * kernel.panel_columns() as isize;
        let product = Product {
            rows: dims,
            columns: tile.queries,
            depth: tile.keys,
            left: v.transposed(),
            right: Panels { at: tile.at.cast_const().cast(), row_stride: ROW, panel_stride },
            to: result,
            to_row: ROW,
            accumulate: true,
            bias: std::ptr::null(),
        };
        // SAFETY: as the caller promises.
        unsafe { kernel.run(&product) };
    }

    /// Turns a tile of logits into weights, under the maxima and sums of all keys. −∞ becomes
    /// 0, whatever the other keys of the query hold; weights below 1.7e-38 may become 0.
    ///
    /// # Safety
    ///
    /// See the type.
    pub(crate) unsafe fn weights(&self, tile: ScoreTile, state: &SoftmaxState) {
        debug_assert!(tile.queries <= QUERIES);
        at_level!(self, weights(tile, state))
    }

    /// Puts 0 into a tile where a weight is 0, and NaN where a weight is NaN; `to` has the rows of the
    /// weights.
    ///
    /// # Safety
    ///
    /// See the type.
    pub(crate) unsafe fn clear_masked(&self, weights: ScoreTile, to: *mut f32) {
        debug_assert!(weights.queries <= QUERIES);
        at_level!(self, clear_masked(weights, to))
    }

    /// Turns gradients of the results of a SoftMax into gradients of its input: `w · (x − mean)`, where
    /// `mean` is the sum of `w · x` over all keys of the query. Where the weight is 0, the result is 0.
    ///
    /// # Safety
    ///
    /// See the type.
    pub(crate) unsafe fn softmax_gradients(&self, weights: ScoreTile, to: *mut f32, means: &[f32; QUERIES]) {
        debug_assert!(weights.queries <= QUERIES);
        at_level!(self, softmax_gradients(weights, to, means))
    }

    /// Adds the products of weights and gradients to the sums of their queries, but nothing where a weight is
    /// 0.
    ///
    /// # Safety
    ///
    /// See the type.
    pub(crate) unsafe fn weighted_sums(
        &self,
        weights: ScoreTile,
        gradients: *const f32,
        sums: &mut [f32; QUERIES],
    ) {
        debug_assert!(weights.queries <= QUERIES);
        at_level!(self, weighted_sums(weights, gradients, sums))
    }

    /// Adds to row `k` of `to` the product of row `k` of a tile of factors and a row for each query, query by
    /// query, but nothing where a factor is 0. So a row that is not finite does not reach a key that its
    /// query masks.
    ///
    /// # Safety
    ///
    /// See the type; `rows` has `columns` contiguous elements of f32 in a row, `to` as many.
    pub(crate) unsafe fn masked_rows(&self, factors: ScoreTile, rows: Source, columns: usize, to: Target) {
        debug_assert!(factors.queries <= QUERIES);
        let Source { at, row_stride } = rows;
        let right = OperandRows { at, row_stride, rows: factors.queries, columns, later: None };
        let left = Source { at: factors.at.cast_const().cast(), row_stride: ROW };
        let product = RowProduct { rows: factors.keys, left, right, scaling: RowScaling::NONE, to };
        // SAFETY: as the caller promises.
        unsafe { add_rows_with_holes(self.level, &product) }
    }

    /// True if all elements of a matrix of f32, bf16 or f16 are finite.
    ///
    /// # Safety
    ///
    /// All elements can be read, and the machine runs the level.
    pub(crate) unsafe fn is_finite(&self, extent: Extent, from: Matrix, data_type: DataType) -> bool {
        // SAFETY: as the caller promises.
        unsafe { is_finite(self.level, extent, from, data_type) }
    }

    /// Writes the maximum plus the logarithm of the sum of each query. A query whose sum is 0 gets 0 if
    /// `inf_as_zero` is set, else NaN.
    ///
    /// # Safety
    ///
    /// `to` takes as many numbers as there are queries, at most [`QUERIES`].
    pub(crate) unsafe fn stats(&self, queries: usize, state: &SoftmaxState, inf_as_zero: bool, to: *mut f32) {
        for (query, (&max, &sum)) in state.max.iter().zip(&state.sum).enumerate().take(queries) {
            // SAFETY: as the caller promises.
            unsafe { to.add(query).write_unaligned(results::statistic(max, sum, inf_as_zero)) };
        }
    }
}
