//! Normalisation of rows: the mean is subtracted, and the deviation divides.

use super::lanes::{
    LANES, Lanes, RowType, STEP, each, load_end, load_step, prefetch_next, read_one, store_end, store_step,
};
use super::pass::RowPass;
use crate::kernels::isa::{ByLevel, by_level, shells};
use crate::kernels::{Extent, Source, Target};
use crate::types::kind::Level;

/// The operands of [`NormRows`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Norm {
    pub(crate) extent: Extent,
    pub(crate) source: Source,
    pub(crate) source_type: RowType,
    pub(crate) to: Target,
    pub(crate) to_type: RowType,
    /// Whether the mean is subtracted, and the deviation is that from the mean.
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
    let mean: f64 = parts.clone().enumerate().map(|(part, [mean, _])| share(part) * mean).sum();
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
        for row in 0..operands.extent.rows {
            norm_row::<I>(operands, row);
        }
    }
}

/// Numbers that are added up in f32 before their sum is added to one in f64.
const SEGMENT: usize = 16 * STEP;

/// Below this mean, squares may have lost bits to underflow.
const SMALL: f64 = 1e-30;

/// A sum plus a number, or plus the square of the number's distance from another.
///
/// # Safety
///
/// The machine runs the level.
#[inline(always)]
unsafe fn add<I: Lanes, const SQUARES: bool>(sum: I::F, x: I::F, by: I::F) -> I::F {
    // SAFETY: as the caller promises.
    unsafe {
        let distance = I::sub(x, by);
        if SQUARES { I::fma(distance, distance, sum) } else { I::add(sum, x) }
    }
}

/// The sum of the numbers of a row, or of the squares of their distances from a number.
///
/// # Safety
///
/// The row can be read, and the machine runs the level.
#[inline(always)]
unsafe fn sum<I: Lanes, const SQUARES: bool>(
    from: *const u8,
    float: RowType,
    columns: usize,
    mean: f32,
) -> f64 {
    let mut sum = 0.0;
    let mut column = 0;
    // SAFETY: as the caller promises.
    unsafe {
        let by = I::splat(mean);
        // Numbers beyond the row add nothing.
        let pad = if SQUARES { mean } else { 0.0 };
        while column < columns {
            let end = columns.min(column + SEGMENT);
            let mut sums = [I::splat(0.0); 4];
            while column + STEP <= end {
                let x = load_step::<I>(from, float, column);
                for i in 0..4 {
                    sums[i] = add::<I, SQUARES>(sums[i], x[i], by);
                }
                column += STEP;
            }
            let mut i = 0;
            while column < end {
                sums[i] =
                    add::<I, SQUARES>(sums[i], load_end::<I>(from, float, column, end - column, pad), by);
                (column, i) = (column + LANES, i + 1);
            }
            let [a, b, c, d] = sums;
            sum += f64::from(I::sum(I::add(I::add(a, b), I::add(c, d))));
        }
    }
    sum
}

/// As [`sum`], in f64 throughout: nothing overflows or underflows.
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

/// The mean and the variance of a row; without `is_centred`, 0 and the mean of the squares.
///
/// # Safety
///
/// As [`NormRows`].
#[inline(always)]
unsafe fn moments<I: Lanes>(operands: &Norm, from: *const u8) -> (f64, f64) {
    let &Norm { extent, source_type, is_centred, epsilon, .. } = operands;
    let columns = extent.columns;
    // Of no elements there are no sums.
    let share = 1.0 / columns.max(1) as f64;
    // SAFETY: as the caller promises.
    unsafe {
        let mean = if is_centred { sum::<I, false>(from, source_type, columns, 0.0) * share } else { 0.0 };
        let near = mean as f32;
        let squares = sum::<I, true>(from, source_type, columns, near) * share;
        // The squares are those of the distances from the rounded mean.
        let lost = mean - f64::from(near);
        let variance = (squares - lost * lost).max(0.0);
        if squares.is_finite() && (squares > SMALL || epsilon > SMALL) {
            return (mean, variance);
        }
        let mean = if is_centred { sum_64::<I, false>(from, source_type, columns, 0.0) * share } else { 0.0 };
        (mean, sum_64::<I, true>(from, source_type, columns, mean) * share)
    }
}

/// # Safety
///
/// As [`NormRows`].
#[inline(always)]
unsafe fn norm_row<I: Lanes>(operands: &Norm, row: usize) {
    let Norm { extent, source, source_type, to, to_type, epsilon, gamma, beta, means, variances, .. } =
        *operands;
    let (columns, from, to) = (extent.columns, source.row::<u8>(row), to.row::<u8>(row));
    // SAFETY: as the caller promises.
    unsafe {
        let [of_means, of_variances] = operands.measured.map(|numbers| numbers.wrapping_add(row));
        let (mean, variance) = match operands.pass {
            RowPass::Results => (of_means.read(), of_variances.read()),
            _ => moments::<I>(operands, from),
        };
        if operands.pass == RowPass::Measure {
            of_means.write(mean);
            of_variances.write(variance);
            return;
        }
        if !means.is_null() {
            means.add(row).write(mean);
        }
        if !variances.is_null() {
            variances.add(row).write(variance);
        }
        let factor = 1.0 / (variance + epsilon).sqrt();
        let near = mean as f32;
        // The error of the rounded mean.
        let lost = ((f64::from(near) - mean) * factor) as f32;
        let (by, factor, lost) = (I::splat(near), I::splat(factor as f32), I::splat(lost));
        let gamma = gamma.map(|gamma| gamma.row::<u8>(row));
        let beta = beta.map(|beta| beta.row::<u8>(row));
        let mut column = 0;
        while column + STEP <= columns {
            prefetch_next(from, source.row_stride, source_type, column);
            let x = load_step::<I>(from, source_type, column);
            let mut y = each!(4, |i| I::fma(I::sub(x[i], by), factor, lost));
            match (gamma, beta) {
                (Some(gamma), Some(beta)) => {
                    let gamma = load_step::<I>(gamma, RowType::F32, column);
                    let beta = load_step::<I>(beta, RowType::F32, column);
                    for i in 0..4 {
                        y[i] = I::fma(y[i], gamma[i], beta[i]);
                    }
                }
                (Some(gamma), None) => {
                    let gamma = load_step::<I>(gamma, RowType::F32, column);
                    for i in 0..4 {
                        y[i] = I::mul(y[i], gamma[i]);
                    }
                }
                _ => {}
            }
            store_step::<I>(to, to_type, column, y);
            column += STEP;
        }
        while column < columns {
            let count = columns - column;
            let x = load_end::<I>(from, source_type, column, count, 0.0);
            let mut y = I::fma(I::sub(x, by), factor, lost);
            if let Some(gamma) = gamma {
                let gamma = load_end::<I>(gamma, RowType::F32, column, count, 0.0);
                y = match beta {
                    Some(beta) => I::fma(y, gamma, load_end::<I>(beta, RowType::F32, column, count, 0.0)),
                    None => I::mul(y, gamma),
                };
            }
            store_end::<I>(to, to_type, column, count, y);
            column += LANES;
        }
    }
}
