//! Pools and interpolations, row by row: rows of a source are combined element by element, and then the
//! elements of the combined row along it.
//!
//! A row has groups of `inner` neighbours: the channels at one place, or one element. Terms are taken in
//! order, so the bits depend on the shape alone.

use std::ops::Range;

use super::apart::take_apart;
use super::join_terms::{JoinTerms, LargestTerm, SumOfTerms};
use super::pool_planes::{
    CopyRows, FinishStrip, JoinedRows, PlaneKernels, PooledPlanes, TakeApart, copy_rows, finish_strip,
    join_rows,
};
use super::steps::{STEP, load_end, load_step};
use crate::kernels::floats::canonical;
use crate::kernels::isa::{ByLevel, by_level, shells};
use crate::kernels::vector::{LANES, Lanes, RowType, each};
use crate::types::kind::Level;

/// The rows that are combined, element by element.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowsDown {
    pub(crate) rows: *const *const u8,
    /// The shares of the rows in a sum, or null if these are 1.
    pub(crate) shares: *const f32,
    pub(crate) count: usize,
    pub(crate) float: RowType,
    /// Elements of a row.
    pub(crate) width: usize,
    /// The number with which an element begins; `None` to go on from those in `to`.
    pub(crate) start: Option<f32>,
    pub(crate) to: *mut f32,
}

/// The groups along a row that are combined to each group of a result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowAcross {
    pub(crate) row: *const f32,
    pub(crate) to: *mut f32,
    /// Groups of the result, and elements of a group.
    pub(crate) outputs: usize,
    pub(crate) inner: usize,
    /// Groups that are combined to one.
    pub(crate) ranks: usize,
    pub(crate) start: f32,
    pub(crate) taps: TapsAcross,
}

/// Where the groups are that are combined, counted in groups.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TapsAcross {
    /// From those of an output to those of the next, and from one to the next. A row of single elements is
    /// taken apart by its caller, in parts of so many, unless the step is 1.
    Strided { step: usize, between: usize, part: usize },
    /// For each rank and output, with shares in a sum.
    Named { places: *const u32, shares: *const f32 },
}

/// The last step on a row of sums or of maxima.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FinishedRow {
    pub(crate) row: *mut f32,
    pub(crate) outputs: usize,
    pub(crate) inner: usize,
    /// Numbers by which elements are divided: one for all, and one for each group unless null.
    pub(crate) divisor: f32,
    pub(crate) counts: *const f32,
}

/// The kernels of a pool.
///
/// # Safety
///
/// All rows can be read or written as their sizes say, named places are groups of the row, and the machine
/// runs the level. A row that is written overlaps no other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolKernels {
    pub(crate) down: unsafe fn(&RowsDown),
    pub(crate) across: unsafe fn(&RowAcross),
    pub(crate) finish: unsafe fn(&FinishedRow),
    pub(crate) planes: PlaneKernels,
}

/// The kernels of maxima: NaN where one is NaN, and +0 above −0. No element has a share.
pub(crate) fn maxima(level: Level) -> PoolKernels {
    let rows: ByLevel<unsafe fn(&JoinedRows)> = by_level!(rows::<LargestTerm>);
    kernels(level, by_level!(down::<LargestTerm>), by_level!(across::<LargestTerm>), rows)
}

/// The kernels of sums.
pub(crate) fn sums(level: Level) -> PoolKernels {
    let rows: ByLevel<unsafe fn(&JoinedRows)> = by_level!(rows::<SumOfTerms>);
    kernels(level, by_level!(down::<SumOfTerms>), by_level!(across::<SumOfTerms>), rows)
}

fn kernels(
    level: Level,
    down: ByLevel<unsafe fn(&RowsDown)>,
    across: ByLevel<unsafe fn(&RowAcross)>,
    join: ByLevel<unsafe fn(&JoinedRows)>,
) -> PoolKernels {
    let finish: ByLevel<unsafe fn(&FinishedRow)> = by_level!(finish);
    let copy: ByLevel<CopyRows> = by_level!(copy);
    let parts: ByLevel<TakeApart> = by_level!(parts);
    let strip: ByLevel<FinishStrip> = by_level!(strip);
    let row = level.row();
    let planes =
        PlaneKernels { join: join[row], copy: copy[row], take_apart: parts[row], finish: strip[row] };
    PoolKernels { down: down[row], across: across[row], finish: finish[row], planes }
}

shells! {
    I:
    fn down[C: JoinTerms](operands: &RowsDown) {
        combine_down::<C, I>(operands)
    }
    fn across[C: JoinTerms](operands: &RowAcross) {
        combine_across::<C, I>(operands)
    }
    fn finish[](operands: &FinishedRow) {
        finish_row(operands)
    }
    fn rows[C: JoinTerms](rows: &JoinedRows) {
        join_rows::<C, I>(rows)
    }
    fn copy[](planes: &PooledPlanes, from: *const u8, rows: [usize; 2], to: *mut f32) {
        copy_rows::<I>(planes, from, rows, to)
    }
    fn parts[](row: *const f32, length: usize, part: usize, step: usize, to: *mut f32) {
        take_apart(row, length, part, step, to)
    }
    fn strip[](planes: &PooledPlanes, of_strip: [Range<usize>; 2], from: *const f32) {
        finish_strip::<I>(planes, of_strip, from)
    }
}

/// # Safety
///
/// As [`PoolKernels`].
#[inline(always)]
unsafe fn combine_down<C: JoinTerms, I: Lanes>(operands: &RowsDown) {
    let &RowsDown { rows, shares, count, float, width, start, to } = operands;
    let mut column = 0;
    // SAFETY: as the caller promises; vectors end with the rows.
    unsafe {
        while column + STEP <= width {
            let to = to.add(column);
            let mut sums = match start {
                Some(start) => [I::splat(start); 4],
                None => each!(4, |i| I::load(to.add(i * LANES))),
            };
            for row in 0..count {
                let x = load_step::<I>(*rows.add(row), float, column);
                sums = match shares.is_null() {
                    true => each!(4, |i| C::join::<I>(sums[i], x[i])),
                    false => each!(4, |i| C::join_share::<I>(sums[i], x[i], *shares.add(row))),
                };
            }
            for (i, &sum) in sums.iter().enumerate() {
                I::store(to.add(i * LANES), sum);
            }
            column += STEP;
        }
        while column < width {
            let (to, part) = (to.add(column), (width - column).min(LANES));
            let mut sum = match start {
                Some(start) => I::splat(start),
                None => I::load_first(to, part, 0.0),
            };
            for row in 0..count {
                let x = load_end::<I>(*rows.add(row), float, column, part, 0.0);
                sum = match shares.is_null() {
                    true => C::join::<I>(sum, x),
                    false => C::join_share::<I>(sum, x, *shares.add(row)),
                };
            }
            I::store_first(to, part, sum);
            column += part;
        }
    }
}

/// # Safety
///
/// As [`PoolKernels`].
#[inline(always)]
unsafe fn combine_across<C: JoinTerms, I: Lanes>(operands: &RowAcross) {
    let &RowAcross { row, to, outputs, inner, ranks, start, taps } = operands;
    // SAFETY: as the caller promises.
    unsafe {
        match taps {
            TapsAcross::Strided { step, between, part } => {
                let is_apart = step > 1 && inner == 1;
                let (runs, count) = match step == 1 || is_apart {
                    true => (1, outputs * inner),
                    false => (outputs, inner),
                };
                for run in 0..runs {
                    let from = row.add(run * step * inner);
                    let at = |rank: usize| {
                        let place = rank * between;
                        from.add(if is_apart { place % step * part + place / step } else { place * inner })
                    };
                    let to = to.add(run * inner);
                    combine_run::<C, I, false>(at, |_| 1.0, (count, ranks), start, to);
                }
            }
            TapsAcross::Named { places, shares } if inner == 1 => {
                for output in (0..outputs).step_by(LANES) {
                    let part = LANES.min(outputs - output);
                    let mut sum = I::splat(start);
                    for rank in 0..ranks {
                        let tap = rank * outputs + output;
                        let x = I::load_places(row, places.add(tap), part);
                        sum = C::join_shares::<I>(sum, x, I::load_first(shares.add(tap), part, 0.0));
                    }
                    I::store_first(to.add(output), part, sum);
                }
            }
            TapsAcross::Named { places, shares } => {
                for output in 0..outputs {
                    let at = |rank: usize| row.add(*places.add(rank * outputs + output) as usize * inner);
                    let share = |rank: usize| *shares.add(rank * outputs + output);
                    combine_run::<C, I, true>(at, share, (inner, ranks), start, to.add(output * inner));
                }
            }
        }
    }
}

/// Combines elements of some ranks, which lie side by side.
///
/// # Safety
///
/// As [`PoolKernels`].
#[inline(always)]
unsafe fn combine_run<C: JoinTerms, I: Lanes, const HAS_SHARES: bool>(
    at: impl Fn(usize) -> *const f32,
    share: impl Fn(usize) -> f32,
    (count, ranks): (usize, usize),
    start: f32,
    to: *mut f32,
) {
    let mut column = 0;
    // SAFETY: as the caller promises; vectors end with the run.
    unsafe {
        while column + STEP <= count {
            let mut sums = [I::splat(start); 4];
            for rank in 0..ranks {
                let from = at(rank).add(column);
                let x = each!(4, |i| I::load(from.add(i * LANES)));
                sums = match HAS_SHARES {
                    false => each!(4, |i| C::join::<I>(sums[i], x[i])),
                    true => each!(4, |i| C::join_share::<I>(sums[i], x[i], share(rank))),
                };
            }
            for (i, &sum) in sums.iter().enumerate() {
                I::store(to.add(column + i * LANES), sum);
            }
            column += STEP;
        }
        while column < count {
            let part = (count - column).min(LANES);
            let mut sum = I::splat(start);
            for rank in 0..ranks {
                let x = load_end::<I>(at(rank).add(column).cast(), RowType::F32, 0, part, 0.0);
                sum = match HAS_SHARES {
                    false => C::join::<I>(sum, x),
                    true => C::join_share::<I>(sum, x, share(rank)),
                };
            }
            I::store_first(to.add(column), part, sum);
            column += part;
        }
    }
}

/// # Safety
///
/// As [`PoolKernels`].
#[inline(always)]
unsafe fn finish_row(operands: &FinishedRow) {
    let &FinishedRow { row, outputs, inner, divisor, counts } = operands;
    // SAFETY: as the caller promises.
    unsafe {
        match (counts.is_null(), inner) {
            (true, _) if divisor == 1.0 => each_of(row, outputs * inner, |x, _| x),
            (true, _) => each_of(row, outputs * inner, |x, _| x / divisor),
            (false, 1) => each_of(row, outputs, |x, i| x / (divisor * *counts.add(i))),
            (false, _) => {
                for output in 0..outputs {
                    let divisor = divisor * *counts.add(output);
                    each_of(row.add(output * inner), inner, |x, _| x / divisor);
                }
            }
        }
    }
}

/// # Safety
///
/// So many elements can be read and written.
#[inline(always)]
unsafe fn each_of(row: *mut f32, count: usize, of: impl Fn(f32, usize) -> f32) {
    for i in 0..count {
        // SAFETY: as the caller promises.
        unsafe { row.add(i).write_unaligned(canonical(of(row.add(i).read_unaligned(), i))) };
    }
}
