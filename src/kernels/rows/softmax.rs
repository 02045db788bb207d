//! SoftMax and its logarithm.
//!
//! A row is read for its largest number, then for the sum of the exponentials, then for the results. Numbers
//! of a row up to 64 stay in registers. Exponentials of a longer row are kept in the caller's scratch, or are
//! computed twice if the caller has none.

use super::lanes::{
    LANES, Lanes, RowType, STEP, each, load_end, load_step, prefetch_next, store_end, store_step,
};
use crate::kernels::isa::{ByLevel, shells};
use crate::kernels::{Extent, Source, Target};
use crate::types::kind::Level;

/// The operands of [`SoftMaxRows`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct SoftMax {
    pub(crate) extent: Extent,
    pub(crate) source: Source,
    pub(crate) source_type: RowType,
    pub(crate) to: Target,
    pub(crate) to_type: RowType,
    /// Whether a row of −∞ gives zeros instead of NaN.
    pub(crate) inf_as_zero: bool,
    /// Whether the results are the logarithms.
    pub(crate) is_logarithm: bool,
    /// Room for a row, or null.
    pub(crate) exponentials: *mut f32,
    /// Where the maximum plus the logarithm of the sum of each row goes; may be null.
    pub(crate) statistics: *mut f64,
}

/// Computes SoftMax along the rows of a tile.
///
/// # Safety
///
/// Every element of the tile can be read and written, a pointer to scratch is null or has the room that its
/// documentation says, the machine runs the kernel's level, and the target is at the very address and row
/// stride of a source of the same type or overlaps it nowhere.
pub(crate) type SoftMaxRows = unsafe fn(operands: &SoftMax);

/// The kernel for a level.
pub(crate) fn softmax(level: Level) -> SoftMaxRows {
    const TABLE: ByLevel<SoftMaxRows> = [portable::rows, avx2::rows, avx512::rows];
    TABLE[level as usize]
}

shells! {
    I:
    fn rows[](operands: &SoftMax) {
        softmax_rows::<I>(operands)
    }
}

/// Numbers that are added up in f32 before their sum is added to one in f64.
const SEGMENT: usize = 16 * STEP;

/// # Safety
///
/// As [`SoftMaxRows`].
#[inline(always)]
unsafe fn softmax_rows<I: Lanes>(operands: &SoftMax) {
    for row in 0..operands.extent.rows {
        // SAFETY: as the caller promises.
        unsafe {
            let (largest, sum) = match operands.extent.columns {
                1..=STEP if !operands.is_logarithm => short::<I>(operands, row),
                _ => long::<I>(operands, row),
            };
            if !operands.statistics.is_null() {
                let is_zero = sum == 0.0 && operands.inf_as_zero;
                let statistic = if is_zero { 0.0 } else { f64::from(largest) + sum.ln() };
                operands.statistics.add(row).write(statistic);
            }
        }
    }
}

/// The maximum that is subtracted.
#[inline(always)]
fn base(operands: &SoftMax, largest: f32) -> f32 {
    if largest == f32::NEG_INFINITY && operands.inf_as_zero { 0.0 } else { largest }
}

/// One over the sum of the exponentials; of none, 0.
#[inline(always)]
fn factor(sum: f64) -> f32 {
    if sum == 0.0 { 0.0 } else { (1.0 / sum) as f32 }
}

/// A row of at most [`STEP`] numbers; returns what was subtracted, and the sum of the exponentials.
///
/// # Safety
///
/// As [`SoftMaxRows`].
#[inline(always)]
unsafe fn short<I: Lanes>(operands: &SoftMax, row: usize) -> (f32, f64) {
    let SoftMax { extent, source, source_type, to, to_type, .. } = *operands;
    let (columns, from, to) = (extent.columns, source.row::<u8>(row), to.row::<u8>(row));
    // SAFETY: as the caller promises.
    unsafe {
        const PAD: f32 = f32::NEG_INFINITY;
        prefetch_next(from, source.row_stride, source_type, 0);
        let x = match columns {
            STEP => load_step::<I>(from, source_type, 0),
            _ => each!(4, |i| match columns.saturating_sub(i * LANES) {
                0 => I::splat(PAD),
                count => load_end::<I>(from, source_type, i * LANES, count, PAD),
            }),
        };
        let largest = base(operands, I::largest(I::larger(I::larger(x[0], x[1]), I::larger(x[2], x[3]))));
        let by = I::splat(largest);
        let e = each!(4, |i| I::exp(I::sub(x[i], by)));
        let sum = f64::from(I::sum(I::add(I::add(e[0], e[1]), I::add(e[2], e[3]))));
        let factor = I::splat(factor(sum));
        let y = each!(4, |i| I::mul(e[i], factor));
        match columns {
            STEP => store_step::<I>(to, to_type, 0, y),
            _ => {
                each!(4, |i| if i * LANES < columns {
                    store_end::<I>(to, to_type, i * LANES, columns - i * LANES, y[i]);
                });
            }
        }
        (largest, sum)
    }
}

/// The result for a number whose exponential was not kept: the logarithm of the sum is subtracted, or the
/// exponential is multiplied by one over the sum.
///
/// # Safety
///
/// The machine runs the level.
#[inline(always)]
unsafe fn again<I: Lanes>(x: I::F, by: I::F, factor: I::F, is_logarithm: bool) -> I::F {
    // SAFETY: as the caller promises.
    unsafe {
        let x = I::sub(x, by);
        if is_logarithm { I::sub(x, factor) } else { I::mul(I::exp(x), factor) }
    }
}

/// A row of any length; as [`short`].
///
/// # Safety
///
/// As [`SoftMaxRows`].
#[inline(always)]
unsafe fn long<I: Lanes>(operands: &SoftMax, row: usize) -> (f32, f64) {
    let SoftMax { extent, source, source_type, to, to_type, exponentials, .. } = *operands;
    let (columns, from, to) = (extent.columns, source.row::<u8>(row), to.row::<u8>(row));
    const PAD: f32 = f32::NEG_INFINITY;
    // SAFETY: as the caller promises.
    unsafe {
        let mut largest = [I::splat(PAD); 4];
        let mut column = 0;
        while column + STEP <= columns {
            let x = load_step::<I>(from, source_type, column);
            for i in 0..4 {
                largest[i] = I::larger(x[i], largest[i]);
            }
            column += STEP;
        }
        while column < columns {
            let x = load_end::<I>(from, source_type, column, columns - column, PAD);
            largest[0] = I::larger(x, largest[0]);
            column += LANES;
        }
        let [a, b, c, d] = largest;
        let largest = base(operands, I::largest(I::larger(I::larger(a, b), I::larger(c, d))));
        let by = I::splat(largest);

        let mut sum = 0.0;
        let keeps = !exponentials.is_null() && !operands.is_logarithm;
        let mut column = 0;
        while column < columns {
            let end = columns.min(column + SEGMENT);
            let mut sums = [I::splat(0.0); 4];
            while column + STEP <= end {
                prefetch_next(from, source.row_stride, source_type, column);
                prefetch_next(to, 0, to_type, column);
                let x = load_step::<I>(from, source_type, column);
                for i in 0..4 {
                    let e = I::exp(I::sub(x[i], by));
                    sums[i] = I::add(sums[i], e);
                    if keeps {
                        I::store(exponentials.add(column + i * LANES), e);
                    }
                }
                column += STEP;
            }
            let mut i = 0;
            while column < end {
                let e = I::exp(I::sub(load_end::<I>(from, source_type, column, end - column, PAD), by));
                // Beyond the row there is −∞, whose exponential is 0 unless the row gives NaN.
                sums[i] = I::add(sums[i], e);
                if keeps {
                    store_end::<I>(exponentials.cast(), RowType::F32, column, end - column, e);
                }
                (column, i) = (column + LANES, i + 1);
            }
            let [a, b, c, d] = sums;
            sum += f64::from(I::sum(I::add(I::add(a, b), I::add(c, d))));
        }

        let factor = I::splat(if operands.is_logarithm { sum.ln() as f32 } else { factor(sum) });
        let mut column = 0;
        while column + STEP <= columns {
            let y = match keeps {
                true => {
                    let e = load_step::<I>(exponentials.cast(), RowType::F32, column);
                    each!(4, |i| I::mul(e[i], factor))
                }
                false => {
                    let x = load_step::<I>(from, source_type, column);
                    each!(4, |i| again::<I>(x[i], by, factor, operands.is_logarithm))
                }
            };
            store_step::<I>(to, to_type, column, y);
            column += STEP;
        }
        while column < columns {
            let count = columns - column;
            let y = match keeps {
                true => I::mul(load_end::<I>(exponentials.cast(), RowType::F32, column, count, 0.0), factor),
                false => {
                    let x = load_end::<I>(from, source_type, column, count, PAD);
                    again::<I>(x, by, factor, operands.is_logarithm)
                }
            };
            store_end::<I>(to, to_type, column, count, y);
            column += LANES;
        }
        (largest, sum)
    }
}
