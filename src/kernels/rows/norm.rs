//! Normalisation of rows: the mean is subtracted, and the deviation divides.

use std::marker::PhantomData;
use std::ops::Range;

use super::pass::RowPass;
use super::short::{
    BLOCK_ROWS, RowLanes, RowPipeline, SHORT, ShortRow, is_full, is_short, join_rows, load_short,
    prefetch_next_block, run_pipeline, store_short,
};
use super::steps::{STEP, load_end, load_rest, load_step, prefetch_next, store_end, store_step};
use crate::kernels::isa::{ByLevel, by_level, shells};
use crate::kernels::vector::{LANES, Lanes, RowType, each, read_one};
use crate::kernels::{Extent, Source, Target, prefetch_l1};
use crate::types::kind::Level;

/// The operands of [`NormRows`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Norm {
    pub(crate) extent: Extent,
    pub(crate) source: Source,
    pub(crate) source_type: RowType,
    pub(crate) to: Target,
    pub(crate) to_type: RowType,
    /// The mean is subtracted, and the deviation is that from the mean.
    pub(crate) is_centred: bool,
    pub(crate) epsilon: f64,
    /// Rows of f32 by which results are multiplied, and which are then added.
    pub(crate) gamma: Option<Source>,
    pub(crate) beta: Option<Source>,
    /// Where the mean and the variance of each row go; may be null.
    pub(crate) means: *mut f64,
    pub(crate) variances: *mut f64,
    pub(crate) pass: RowPass,
    /// The mean and the variance of each row, or of each part of a row, as for
    /// [`SoftMax`](super::SoftMax::measured).
    pub(crate) measured: [*mut f64; 2],
}

/// The mean and the variance of a part of a row; 0 and the mean of the squares without a centre.
type PartMoments = [f64; 2];

/// The moments of a row of some elements from those of its parts, which have so many each, but for the last.
pub(crate) fn join_moments(
    parts: impl Iterator<Item = PartMoments> + Clone,
    elements: usize,
    of_part: usize,
) -> PartMoments {
    let share = move |part: usize| {
        let count = of_part.min(elements - part * of_part);
        count as f64 / elements as f64
    };
    // Parts of one mean have it together, whatever their shares add up to.
    let first = parts.clone().next().map_or(0.0, |[mean, _]| mean);
    let origin = if first.is_finite() { first } else { 0.0 };
    let distances = parts.clone().enumerate().map(|(part, [mean, _])| share(part) * (mean - origin));
    let mean = origin + distances.sum::<f64>();
    let about = |(part, [of_part, variance]): (usize, PartMoments)| {
        let distance = of_part - mean;
        share(part) * (variance + distance * distance)
    };
    [mean, parts.enumerate().map(about).sum()]
}

/// Normalises the rows of a tile.
///
/// # Safety
///
/// As for [`SoftMaxRows`](super::SoftMaxRows).
pub(crate) type NormRows = unsafe fn(operands: &Norm);

/// The kernel for a level.
pub(crate) fn norm(level: Level) -> NormRows {
    const TABLE: ByLevel<NormRows> = by_level!(rows);
    TABLE[level.row()]
}

shells! {
    I:
    fn rows[](operands: &Norm) {
        norm_rows::<I>(operands)
    }
}

/// Numbers that are added up in f32 before their sum is added to one in f64.
const SEGMENT: usize = 16 * STEP;

/// Below this mean, squares may have lost bits to underflow.
const SMALL: f64 = 1e-30;

/// Means beyond so many deviations have lost bits that a third pass makes up for (decision: norm-far).
const FAR: f64 = 4.0;

/// The sum of the numbers of a row, or of their squares; with `DISTANCES`, of their distances from a number.
///
/// # Safety
///
/// The row can be read, and the machine runs the level.
#[inline(always)]
unsafe fn sum<I: Lanes, const DISTANCES: bool, const SQUARES: bool>(
    from: *const u8,
    float: RowType,
    columns: usize,
    near: f32,
) -> f64 {
    let (mut sum, mut column) = (0.0, 0);
    // Numbers beyond the row add nothing.
    let pad = if DISTANCES { near } else { 0.0 };
    // SAFETY: as the caller promises.
    unsafe {
        let near = I::splat(near);
        while column < columns {
            let end = columns.min(column + SEGMENT);
            let mut sums = [I::splat(0.0); 4];
            while column + STEP <= end {
                let x = load_step::<I>(from, float, column);
                sums = each!(4, |i| add::<I, DISTANCES, SQUARES>(sums[i], x[i], near));
                column += STEP;
            }
            if column < end {
                let x = load_rest::<I>(from, float, column, end - column, pad);
                sums = each!(4, |i| add::<I, DISTANCES, SQUARES>(sums[i], x[i], near));
                column = end;
            }
            let [a, b, c, d] = sums;
            sum += f64::from(I::sum(I::add(I::add(a, b), I::add(c, d))));
        }
    }
    sum
}

/// A sum plus numbers, as [`sum`] says.
///
/// # Safety
///
/// The machine runs the level.
#[inline(always)]
unsafe fn add<I: Lanes, const DISTANCES: bool, const SQUARES: bool>(sum: I::F, x: I::F, near: I::F) -> I::F {
    // SAFETY: as the caller promises.
    unsafe {
        let x = if DISTANCES { I::sub(x, near) } else { x };
        if SQUARES { I::fma(x, x, sum) } else { I::add(sum, x) }
    }
}

/// The sum of the numbers of a row, or of the squares of their distances from a number, in f64 throughout:
/// nothing overflows or underflows.
///
/// # Safety
///
/// As [`sum`].
#[inline(never)]
unsafe fn sum_64<I: Lanes, const SQUARES: bool>(
    from: *const u8,
    float: RowType,
    columns: usize,
    mean: f64,
) -> f64 {
    let mut sum = 0.0;
    for column in 0..columns {
        // SAFETY: as the caller promises.
        let x = f64::from(unsafe { read_one::<I>(from, float, column) });
        sum += if SQUARES { (x - mean) * (x - mean) } else { x };
    }
    sum
}

/// The mean and the variance of `n` numbers from a first mean, and from the squares of the distances from it,
/// rounded.
#[inline(always)]
fn about(mean: f64, squares: f64, n: f64) -> [f64; 2] {
    let lost = mean - f64::from(mean as f32);
    [mean, (squares / n - lost * lost).max(0.0)]
}

/// True if [`about`] is exact enough: the squares have all bits, and the mean is not [`FAR`] from 0.
#[inline(always)]
fn is_exact(mean: f64, squares: f64, n: f64, epsilon: f64) -> bool {
    let near = f64::from(mean as f32);
    has_all_bits(squares, n, epsilon) && near * near * n <= FAR * FAR * squares
}

/// True if squares that were added up in f32 have neither overflown nor lost bits that matter.
#[inline(always)]
fn has_all_bits(squares: f64, n: f64, epsilon: f64) -> bool {
    squares.is_finite() && (squares > SMALL * n || epsilon > SMALL)
}

/// As [`about`], of a row for which that is not exact enough: of equal numbers the mean is any of them, and
/// the variance 0.
///
/// # Safety
///
/// As [`NormRows`].
#[inline(always)]
unsafe fn corrected<I: Lanes>(operands: &Norm, from: *const u8, mean: f64, squares: f64) -> [f64; 2] {
    let &Norm { extent: Extent { columns, .. }, source_type, epsilon, .. } = operands;
    let (n, near) = (columns.max(1) as f64, mean as f32);
    // SAFETY: as the caller promises.
    unsafe {
        if !has_all_bits(squares, n, epsilon) {
            return moments_64::<I>(operands, from);
        }
        let lost = sum::<I, true, false>(from, source_type, columns, near) / n;
        [f64::from(near) + lost, (squares / n - lost * lost).max(0.0)]
    }
}

/// The mean and the variance of a row; without `is_centred`, 0 and the mean of the squares.
///
/// # Safety
///
/// As [`NormRows`].
#[inline(always)]
unsafe fn moments<I: Lanes>(operands: &Norm, from: *const u8) -> [f64; 2] {
    let &Norm { extent: Extent { columns, .. }, source_type, is_centred, epsilon, .. } = operands;
    // Of no elements there are no sums.
    let n = columns.max(1) as f64;
    // SAFETY: as the caller promises.
    unsafe {
        let (mean, squares) = if is_centred {
            let mean = sum::<I, false, false>(from, source_type, columns, 0.0) / n;
            (mean, sum::<I, true, true>(from, source_type, columns, mean as f32))
        } else {
            (0.0, sum::<I, false, true>(from, source_type, columns, 0.0))
        };
        match is_exact(mean, squares, n, epsilon) {
            true => about(mean, squares, n),
            false => corrected::<I>(operands, from, mean, squares),
        }
    }
}

/// As [`moments`], in f64 throughout.
///
/// # Safety
///
/// As [`NormRows`].
#[inline(always)]
unsafe fn moments_64<I: Lanes>(operands: &Norm, from: *const u8) -> [f64; 2] {
    let &Norm { extent: Extent { columns, .. }, source_type, is_centred, .. } = operands;
    let n = columns.max(1) as f64;
    // SAFETY: as the caller promises.
    unsafe {
        let mean = if is_centred { sum_64::<I, false>(from, source_type, columns, 0.0) / n } else { 0.0 };
        [mean, sum_64::<I, true>(from, source_type, columns, mean) / n]
    }
}

/// Elements of rows that are measured before the first of them is written: they stay in the first level
/// (decision: norm-block).
const BLOCK: usize = 2048;

/// The pipeline of short rows: means, variances, results.
struct ShortNorm<'a, I, const FULL: bool> {
    operands: &'a Norm,
    sums: RowLanes,
    squares: RowLanes,
    /// By row of a block: the mean of a row whose variance is next, and what makes the results.
    means: [f64; BLOCK_ROWS],
    scales: [NormScale; BLOCK_ROWS],
    level: PhantomData<I>,
}

impl<'a, I, const FULL: bool> ShortNorm<'a, I, FULL> {
    fn new(operands: &'a Norm) -> Self {
        let lanes = [[0.0; LANES]; BLOCK_ROWS];
        let scale = NormScale { near: 0.0, factor: 0.0, lost: 0.0 };
        let (means, scales) = ([0.0; BLOCK_ROWS], [scale; BLOCK_ROWS]);
        Self { operands, sums: lanes, squares: lanes, means, scales, level: PhantomData }
    }

    /// Numbers of a row, which the compiler knows if the rows are full.
    #[inline(always)]
    fn columns(&self) -> usize {
        if FULL { SHORT } else { self.operands.extent.columns }
    }
}

impl<I: Lanes, const FULL: bool> RowPipeline for ShortNorm<'_, I, FULL> {
    #[inline(always)]
    unsafe fn load(&mut self, ShortRow { row, slot, saved }: ShortRow) {
        let (columns, &Norm { source, source_type, .. }) = (self.columns(), self.operands);
        let from = source.row::<u8>(row);
        prefetch_next_block(from, source.row_stride, source_type, columns);
        // SAFETY: as the caller promises.
        unsafe {
            let x = load_short::<I>(from, source_type, columns, 0.0);
            each!(4, |i| I::store(saved.add(i * LANES), x[i]));
            I::store(self.sums[slot].as_mut_ptr(), I::add(I::add(x[0], x[1]), I::add(x[2], x[3])));
        }
    }

    #[inline(always)]
    unsafe fn reduce(&mut self, ShortRow { row, slot, saved }: ShortRow) {
        let (columns, &Norm { to, to_type, .. }) = (self.columns(), self.operands);
        prefetch_l1(to.row::<u8>(row), columns * to_type.bytes());
        let near = self.means[slot] as f32;
        // SAFETY: as the caller promises; the row was saved.
        unsafe {
            // Numbers beyond the row add nothing.
            let x = load_short::<I>(saved.cast(), RowType::F32, columns, near);
            let by = I::splat(near);
            let [a, b, c, d] = each!(4, |i| {
                let distance = I::sub(x[i], by);
                I::mul(distance, distance)
            });
            I::store(self.squares[slot].as_mut_ptr(), I::add(I::add(a, b), I::add(c, d)));
        }
    }

    #[inline(always)]
    unsafe fn store(&mut self, ShortRow { row, slot, saved }: ShortRow) {
        let (columns, &Norm { to, to_type, gamma, beta, .. }) = (self.columns(), self.operands);
        let NormScale { near, factor, lost } = self.scales[slot];
        // SAFETY: as the caller promises; the row was saved.
        unsafe {
            let scale = [I::splat(near), I::splat(factor), I::splat(lost)];
            let x = each!(4, |i| I::load(saved.add(i * LANES)));
            let gamma = gamma.map(|gamma| gamma.row::<u8>(row));
            let beta = beta.map(|beta| beta.row::<u8>(row));
            let y = each!(4, |i| {
                let (column, count) = (i * LANES, columns.saturating_sub(i * LANES));
                let gamma = parameter::<I>(gamma, column, count);
                scaled::<I>(x[i], scale, gamma, parameter::<I>(beta, column, count))
            });
            store_short::<I>(to.row::<u8>(row), to_type, columns, y);
        }
    }

    #[inline(always)]
    unsafe fn join(&mut self, reduced: Range<usize>) {
        let &Norm { extent, source, is_centred, epsilon, means, variances, .. } = self.operands;
        let n = extent.columns.max(1) as f64;
        let (mut of_variances, mut are_exact) = ([0.0; BLOCK_ROWS], true);
        // SAFETY: as the caller promises. No result of these rows is stored yet, so the source is as it was.
        unsafe {
            let squares = join_rows::<I, false>(&self.squares).map(f64::from);
            for (slot, of_variance) in of_variances.iter_mut().enumerate() {
                let (mean, squares) = (self.means[slot], squares[slot]);
                [_, *of_variance] = about(mean, squares, n);
                are_exact &= is_exact(mean, squares, n, epsilon);
            }
            for (slot, row) in reduced.clone().enumerate() {
                let (mean, squares) = (self.means[slot], squares[slot]);
                if !are_exact && !is_exact(mean, squares, n, epsilon) {
                    let moments = corrected::<I>(self.operands, source.row(row), mean, squares);
                    [self.means[slot], of_variances[slot]] = moments;
                }
            }
            for (to, numbers) in [means, variances].into_iter().zip([&self.means, &of_variances]) {
                if !to.is_null() {
                    to.add(reduced.start).copy_from_nonoverlapping(numbers.as_ptr(), reduced.len());
                }
            }
            for (slot, scale) in self.scales.iter_mut().enumerate() {
                *scale = NormScale::of(self.means[slot], of_variances[slot], epsilon);
            }
            // Else the means stay 0.
            if is_centred {
                for (mean, sum) in self.means.iter_mut().zip(join_rows::<I, false>(&self.sums)) {
                    *mean = f64::from(sum) / n;
                }
            }
        }
    }
}

/// # Safety
///
/// As [`NormRows`].
#[inline(always)]
unsafe fn norm_rows<I: Lanes>(operands: &Norm) {
    let Norm { extent, source, is_centred, epsilon, means, variances, pass, measured, .. } = *operands;
    let is_full = is_full::<I>(extent.columns);
    // Other rows that are not centred are as fast in blocks (decision: row-pipeline).
    if pass == RowPass::Whole && is_short::<I>(extent.columns) && (is_centred || is_full) {
        // SAFETY: as the caller promises.
        return unsafe {
            match is_full {
                true => run_pipeline(extent.rows, &mut ShortNorm::<I, true>::new(operands)),
                false => run_pipeline(extent.rows, &mut ShortNorm::<I, false>::new(operands)),
            }
        };
    }
    let most = (BLOCK / extent.columns.max(1)).clamp(1, LANES);
    let [mut of_means, mut of_variances] = [[0.0; LANES]; 2];
    let mut scales = [NormScale { near: 0.0, factor: 0.0, lost: 0.0 }; LANES];
    let mut first = 0;
    while first < extent.rows {
        let count = most.min(extent.rows - first);
        // SAFETY: as the caller promises.
        unsafe {
            for (i, (mean_of, variance_of)) in
                of_means.iter_mut().zip(&mut of_variances).take(count).enumerate()
            {
                let [mean_at, variance_at] = measured.map(|numbers| numbers.wrapping_add(first + i));
                let [mean, variance] = match pass {
                    RowPass::Results => [mean_at.read(), variance_at.read()],
                    _ => moments::<I>(operands, source.row(first + i)),
                };
                if pass == RowPass::Measure {
                    mean_at.write(mean);
                    variance_at.write(variance);
                }
                (*mean_of, *variance_of) = (mean, variance);
            }
            if pass != RowPass::Measure {
                for (to, numbers) in [means, variances].into_iter().zip([&of_means, &of_variances]) {
                    if !to.is_null() {
                        to.add(first).copy_from_nonoverlapping(numbers.as_ptr(), count);
                    }
                }
                for i in 0..count {
                    scales[i] = NormScale::of(of_means[i], of_variances[i], epsilon);
                }
                for (i, &scale) in scales.iter().take(count).enumerate() {
                    results::<I>(operands, first + i, scale, source.row_stride * count as isize);
                }
            }
        }
        first += count;
    }
}

/// The statistics of a row in the form in which they are applied: result = (x − near) · factor + lost.
#[derive(Clone, Copy)]
pub(super) struct NormScale {
    /// The rounded mean.
    pub(super) near: f32,
    /// One over the deviation.
    pub(super) factor: f32,
    /// The error of the rounded mean, times the factor.
    pub(super) lost: f32,
}

impl NormScale {
    #[inline(always)]
    pub(super) fn of(mean: f64, variance: f64, epsilon: f64) -> Self {
        let factor = 1.0 / (variance + epsilon).sqrt();
        let near = mean as f32;
        Self { near, factor: factor as f32, lost: ((f64::from(near) - mean) * factor) as f32 }
    }
}

/// Writes the results of a row. The row at a distance is the one that is read next.
///
/// # Safety
///
/// As [`NormRows`].
#[inline(always)]
unsafe fn results<I: Lanes>(operands: &Norm, row: usize, scale: NormScale, distance: isize) {
    let Norm { extent, source, source_type, to, to_type, gamma, beta, .. } = *operands;
    let (columns, from, to) = (extent.columns, source.row::<u8>(row), to.row::<u8>(row));
    // SAFETY: as the caller promises.
    unsafe {
        let scale = [I::splat(scale.near), I::splat(scale.factor), I::splat(scale.lost)];
        let gamma = gamma.map(|gamma| gamma.row::<u8>(row));
        let beta = beta.map(|beta| beta.row::<u8>(row));
        let mut column = 0;
        while column + STEP <= columns {
            prefetch_next(from, distance, source_type, column);
            let x = load_step::<I>(from, source_type, column);
            let y = each!(4, |i| {
                let column = column + i * LANES;
                let gamma = parameter::<I>(gamma, column, LANES);
                scaled::<I>(x[i], scale, gamma, parameter::<I>(beta, column, LANES))
            });
            store_step::<I>(to, to_type, column, y);
            column += STEP;
        }
        while column < columns {
            let count = columns - column;
            let x = load_end::<I>(from, source_type, column, count, 0.0);
            let gamma = parameter::<I>(gamma, column, count);
            let y = scaled::<I>(x, scale, gamma, parameter::<I>(beta, column, count));
            store_end::<I>(to, to_type, column, count, y);
            column += LANES;
        }
    }
}

/// The vector of a parameter that starts at a column, if there is the parameter.
///
/// # Safety
///
/// Its numbers can be read, and the machine runs the level.
#[inline(always)]
#[allow(clippy::manual_map, reason = "a closure is not compiled for the level")]
pub(super) unsafe fn parameter<I: Lanes>(
    row: Option<*const u8>,
    column: usize,
    count: usize,
) -> Option<I::F> {
    match row {
        // SAFETY: as the caller promises.
        Some(row) => Some(unsafe { load_end::<I>(row, RowType::F32, column, count, 0.0) }),
        None => None,
    }
}

/// The results of numbers: of the rounded mean, the factor and the error, then of gamma and beta.
///
/// # Safety
///
/// The machine runs the level.
#[inline(always)]
pub(super) unsafe fn scaled<I: Lanes>(
    x: I::F,
    [near, factor, lost]: [I::F; 3],
    gamma: Option<I::F>,
    beta: Option<I::F>,
) -> I::F {
    // SAFETY: as the caller promises.
    unsafe {
        let y = I::fma(I::sub(x, near), factor, lost);
        match (gamma, beta) {
            (Some(gamma), Some(beta)) => I::fma(y, gamma, beta),
            (Some(gamma), None) => I::mul(y, gamma),
            _ => y,
        }
    }
}
