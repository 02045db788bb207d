//! SoftMax and its logarithm.
//!
//! A row is read for its largest number, then for the sum of the exponentials, then for the results. Rows of
//! up to 64 numbers are read once, by a [pipeline](super::short). Exponentials of a longer row are
//! kept in the caller's scratch, or are computed twice if the caller has none. The first two passes can be
//! split into parts of a row.

use std::marker::PhantomData;
use std::ops::Range;

use super::pass::RowPass;
use super::short::{
    BLOCK_ROWS, RowLanes, RowPipeline, SHORT, ShortRow, is_full, is_short, join_rows, load_short,
    prefetch_next_block, run_pipeline, store_short,
};
use super::steps::{STEP, load_end, load_step, prefetch_next, store_end, store_step};
use crate::kernels::isa::{ByLevel, by_level, shells};
use crate::kernels::math::ln;
use crate::kernels::vector::{LANES, Lanes, RowType, each};
use crate::kernels::{Extent, Source, Target, prefetch_l1};
use crate::types::kind::Level;

/// The operands of [`SoftMaxRows`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct SoftMax {
    pub(crate) extent: Extent,
    pub(crate) source: Source,
    pub(crate) source_type: RowType,
    pub(crate) to: Target,
    pub(crate) to_type: RowType,
    /// A row of −∞ gives zeros instead of NaN.
    pub(crate) inf_as_zero: bool,
    /// The results are the logarithms.
    pub(crate) is_logarithm: bool,
    /// Room for a row, or null.
    pub(crate) exponentials: *mut f32,
    /// The target of the maximum plus the logarithm of the sum of each row; may be null.
    pub(crate) statistics: *mut f64,
    pub(crate) pass: RowPass,
    /// The largest number and the sum of the exponentials of each row, or of each part of a row, which is
    /// that of a row if the pass is not [`RowPass::Measure`]. May be null if the pass is the whole work.
    pub(crate) measured: [*mut f64; 2],
}

/// The largest number of a part of a row, and the sum of the exponentials of the part's numbers less the
/// largest. If the largest is −∞, nothing is subtracted.
type PartExponentials = [f64; 2];

/// The statistics of a row from those of its parts, in order.
pub(crate) fn join_exponentials(
    parts: impl Iterator<Item = PartExponentials> + Clone,
    inf_as_zero: bool,
) -> PartExponentials {
    let largest = parts.clone().fold(f64::NEG_INFINITY, |most, [largest, _]| most.max(largest));
    if largest == f64::NEG_INFINITY && !inf_as_zero {
        return [f64::NEG_INFINITY, f64::NAN];
    }
    // The sum of a part of −∞ is 0, or NaN if the part has a NaN.
    let of_part = |[most, sum]: PartExponentials| {
        if most == f64::NEG_INFINITY { sum } else { sum * (most - largest).exp() }
    };
    [largest, parts.map(of_part).sum()]
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
    const TABLE: ByLevel<SoftMaxRows> = by_level!(rows);
    TABLE[level.row()]
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
    let Extent { rows, columns } = operands.extent;
    if operands.pass == RowPass::Whole && is_short::<I>(columns) {
        // SAFETY: as the caller promises.
        return unsafe {
            match operands.is_logarithm {
                true => run_pipeline(rows, &mut ShortSoftMax::<I, true, false>::new(operands)),
                false if is_full::<I>(columns) => {
                    run_pipeline(rows, &mut ShortSoftMax::<I, false, true>::new(operands))
                }
                false => run_pipeline(rows, &mut ShortSoftMax::<I, false, false>::new(operands)),
            }
        };
    }
    for row in 0..rows {
        // SAFETY: as the caller promises.
        unsafe {
            let [of_largest, of_sums] = operands.measured.map(|numbers| numbers.wrapping_add(row));
            let (largest, sum) = match operands.pass {
                RowPass::Results => (of_largest.read() as f32, of_sums.read()),
                _ => measure::<I>(operands, row),
            };
            if operands.pass == RowPass::Measure {
                of_largest.write(f64::from(largest));
                of_sums.write(sum);
                continue;
            }
            results::<I>(operands, row, largest, sum);
            write_statistic(operands, row, largest, sum);
        }
    }
}

/// Writes the maximum plus the logarithm of the sum, if it is wanted.
///
/// # Safety
///
/// As [`SoftMaxRows`].
#[inline(always)]
unsafe fn write_statistic(operands: &SoftMax, row: usize, largest: f32, sum: f64) {
    if !operands.statistics.is_null() {
        let is_zero = sum == 0.0 && operands.inf_as_zero;
        let statistic = match is_zero {
            true => 0.0,
            false => f64::from(base(operands, largest)) + sum.ln(),
        };
        // SAFETY: as the caller promises.
        unsafe { operands.statistics.add(row).write(statistic) };
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

/// The pipeline of short rows: maxima, exponentials and their sums, results.
struct ShortSoftMax<'a, I, const LOG: bool, const FULL: bool> {
    operands: &'a SoftMax,
    maxima: RowLanes,
    sums: RowLanes,
    /// By row of a block: the maximum of a row whose exponentials are next, and what multiplies them or is
    /// subtracted.
    largest: [f32; BLOCK_ROWS],
    factors: [f32; BLOCK_ROWS],
    level: PhantomData<I>,
}

impl<'a, I, const LOG: bool, const FULL: bool> ShortSoftMax<'a, I, LOG, FULL> {
    fn new(operands: &'a SoftMax) -> Self {
        let lanes = [[0.0; LANES]; BLOCK_ROWS];
        let numbers = [0.0; BLOCK_ROWS];
        Self { operands, maxima: lanes, sums: lanes, largest: numbers, factors: numbers, level: PhantomData }
    }

    /// Numbers of a row, which the compiler knows if the rows are full.
    #[inline(always)]
    fn columns(&self) -> usize {
        if FULL { SHORT } else { self.operands.extent.columns }
    }
}

impl<I: Lanes, const LOG: bool, const FULL: bool> RowPipeline for ShortSoftMax<'_, I, LOG, FULL> {
    #[inline(always)]
    unsafe fn load(&mut self, ShortRow { row, slot, saved }: ShortRow) {
        let (columns, &SoftMax { source, source_type, .. }) = (self.columns(), self.operands);
        let from = source.row::<u8>(row);
        prefetch_next_block(from, source.row_stride, source_type, columns);
        // SAFETY: as the caller promises.
        unsafe {
            let x = load_short::<I>(from, source_type, columns, PAD);
            each!(4, |i| I::store(saved.add(i * LANES), x[i]));
            let largest = I::larger(I::larger(x[0], x[1]), I::larger(x[2], x[3]));
            I::store(self.maxima[slot].as_mut_ptr(), largest);
        }
    }

    #[inline(always)]
    unsafe fn reduce(&mut self, ShortRow { row, slot, saved }: ShortRow) {
        let (columns, &SoftMax { to, to_type, .. }) = (self.columns(), self.operands);
        prefetch_l1(to.row::<u8>(row), columns * to_type.bytes());
        // SAFETY: as the caller promises; the row was saved.
        unsafe {
            let by = I::splat(base(self.operands, self.largest[slot]));
            let x = each!(4, |i| I::sub(I::load(saved.add(i * LANES)), by));
            let e = each!(4, |i| match i * LANES < columns {
                true => I::exp_of_distance(x[i]),
                false => I::splat(0.0),
            });
            let sum = I::add(I::add(e[0], e[1]), I::add(e[2], e[3]));
            I::store(self.sums[slot].as_mut_ptr(), sum);
            let y = if LOG { x } else { e };
            each!(4, |i| I::store(saved.add(i * LANES), y[i]));
        }
    }

    #[inline(always)]
    unsafe fn store(&mut self, ShortRow { row, slot, saved }: ShortRow) {
        let (columns, &SoftMax { to, to_type, .. }) = (self.columns(), self.operands);
        // SAFETY: as the caller promises; the row was saved.
        unsafe {
            let factor = I::splat(self.factors[slot]);
            let x = each!(4, |i| I::load(saved.add(i * LANES)));
            let y = each!(4, |i| if LOG { I::sub(x[i], factor) } else { I::mul(x[i], factor) });
            store_short::<I>(to.row::<u8>(row), to_type, columns, y);
        }
    }

    #[inline(always)]
    unsafe fn join(&mut self, reduced: Range<usize>) {
        // SAFETY: as the caller promises.
        unsafe {
            let sums = join_rows::<I, false>(&self.sums);
            for (factor_of, &sum) in self.factors.iter_mut().zip(&sums) {
                let sum = f64::from(sum);
                *factor_of = if LOG { ln::<I>(sum) as f32 } else { factor(sum) };
            }
            for (slot, row) in reduced.enumerate() {
                write_statistic(self.operands, row, self.largest[slot], f64::from(sums[slot]));
            }
            self.largest = join_rows::<I, true>(&self.maxima);
        }
    }
}

/// The result for a number whose exponential was not saved: the logarithm of the sum is subtracted, or the
/// exponential is multiplied by one over the sum.
///
/// # Safety
///
/// The machine runs the level.
#[inline(always)]
unsafe fn recomputed<I: Lanes>(x: I::F, by: I::F, factor: I::F, is_logarithm: bool) -> I::F {
    // SAFETY: as the caller promises.
    unsafe {
        let x = I::sub(x, by);
        if is_logarithm { I::sub(x, factor) } else { I::mul(I::exp_of_distance(x), factor) }
    }
}

/// The start of the search for a maximum, below any number.
const PAD: f32 = f32::NEG_INFINITY;

/// The largest number of a row, or of a part of one, and the sum of the exponentials.
///
/// # Safety
///
/// As [`SoftMaxRows`].
#[inline(always)]
unsafe fn measure<I: Lanes>(operands: &SoftMax, row: usize) -> (f32, f64) {
    let SoftMax { extent, source, source_type, to, to_type, exponentials, .. } = *operands;
    let (columns, from, to) = (extent.columns, source.row::<u8>(row), to.row::<u8>(row));
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
        let largest = I::largest(I::larger(I::larger(a, b), I::larger(c, d)));
        // A part of −∞ may belong to a row with other numbers.
        let is_part_of_none = largest == PAD && operands.pass == RowPass::Measure;
        let by = I::splat(if is_part_of_none { 0.0 } else { base(operands, largest) });

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
                    let e = I::exp_of_distance(I::sub(x[i], by));
                    sums[i] = I::add(sums[i], e);
                    if keeps {
                        I::store(exponentials.add(column + i * LANES), e);
                    }
                }
                column += STEP;
            }
            let rest = end - column;
            each!(4, |i| if i * LANES < rest {
                let (column, count) = (column + i * LANES, rest - i * LANES);
                let e = I::exp_of_distance(I::sub(load_end::<I>(from, source_type, column, count, PAD), by));
                // Beyond the row there is −∞, whose exponential is 0 unless the row gives NaN.
                sums[i] = I::add(sums[i], e);
                if keeps {
                    store_end::<I>(exponentials.cast(), RowType::F32, column, count, e);
                }
            });
            column = end;
            let [a, b, c, d] = sums;
            sum += f64::from(I::sum(I::add(I::add(a, b), I::add(c, d))));
        }
        (largest, sum)
    }
}

/// Writes the results of a row, or of a part of one, whose largest number and sum of exponentials are known.
///
/// # Safety
///
/// As [`SoftMaxRows`].
#[inline(always)]
unsafe fn results<I: Lanes>(operands: &SoftMax, row: usize, largest: f32, sum: f64) {
    let SoftMax { extent, source, source_type, to, to_type, exponentials, .. } = *operands;
    let (columns, from, to) = (extent.columns, source.row::<u8>(row), to.row::<u8>(row));
    let keeps = !exponentials.is_null() && !operands.is_logarithm;
    // SAFETY: as the caller promises.
    unsafe {
        let by = I::splat(base(operands, largest));
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
                    each!(4, |i| recomputed::<I>(x[i], by, factor, operands.is_logarithm))
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
                    recomputed::<I>(x, by, factor, operands.is_logarithm)
                }
            };
            store_end::<I>(to, to_type, column, count, y);
            column += LANES;
        }
    }
}
