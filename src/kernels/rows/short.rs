//! Short rows, by software pipelining.
//!
//! Each of the three stages of a row waits for a statistic of the whole row, which the stage before it found.
//! So three consecutive blocks of rows are worked on side by side, each in another stage: nothing waits, and
//! loads and stores are spread evenly over the arithmetic (decision: row-pipeline).

use std::mem::MaybeUninit;
use std::ops::Range;

use super::steps::{STEP, load_rest, load_step, store_end, store_step};
use crate::kernels::isa::Isa;
use crate::kernels::prefetch_l1;
use crate::kernels::vector::{LANES, Lanes, RowType, each};
use crate::types::kind::Level;

/// Most numbers of a row: a row is in registers within a stage, and in the first level between stages.
pub(super) const SHORT: usize = STEP;

/// Rows of a block (decision: row-pipeline).
pub(super) const BLOCK_ROWS: usize = 12;

/// True if a level works on rows of so many numbers in stages. The portable level does not: its vectors are
/// no registers, and its code would be larger than that of all others (decision: portable-block).
#[inline(always)]
pub(super) fn is_short<I: Isa>(columns: usize) -> bool {
    !matches!(I::LEVEL, Level::Portable) && (1..=SHORT).contains(&columns)
}

/// True if rows have the most numbers, and the level has code for such rows alone, whose vectors need no
/// masks (decision: full-rows).
#[inline(always)]
pub(super) fn is_full<I: Isa>(columns: usize) -> bool {
    matches!(I::LEVEL, Level::Avx512) && columns == SHORT
}

/// Rows whose lanes are joined together.
const JOINED: usize = 4;

/// A row of a block.
#[derive(Clone, Copy)]
pub(super) struct ShortRow {
    /// Its number in the tile, and in its block.
    pub(super) row: usize,
    pub(super) slot: usize,
    /// Room for the row from stage to stage.
    pub(super) saved: *mut f32,
}

/// The three stages of work on rows, and the two joins of lanes between them.
///
/// # Safety of the methods
///
/// The row can be read and written, there is room for it, and the machine runs the level of the method.
pub(super) trait RowPipeline {
    /// The first stage of a row, which loads it.
    unsafe fn load(&mut self, row: ShortRow);
    /// The second stage, after [`join`](Self::join).
    unsafe fn reduce(&mut self, row: ShortRow);
    /// The third stage, after `join` once more; it stores the results.
    unsafe fn store(&mut self, row: ShortRow);
    /// Joins the lanes of rows that have been through the first stage, and of those that have been through
    /// the second one, whose statistics are given.
    unsafe fn join(&mut self, reduced: Range<usize>);
}

/// Brings rows through the pipeline.
///
/// # Safety
///
/// As [`RowPipeline`].
#[inline(always)]
pub(super) unsafe fn run_pipeline<P: RowPipeline>(rows: usize, pipeline: &mut P) {
    let mut saved = [const { MaybeUninit::<[[f32; STEP]; BLOCK_ROWS]>::uninit() }; 3];
    let saved = saved.as_mut_ptr();
    for step in 0..rows.div_ceil(BLOCK_ROWS) + 2 {
        let loaded = block(step, 0, rows);
        let reduced = block(step, 1, rows);
        let stored = block(step, 2, rows);
        let most = loaded.len().max(reduced.len()).max(stored.len());
        for slot in 0..most {
            // SAFETY: as the caller promises; block number `n` is in room `n % 3` at all pipeline.
            unsafe {
                let row = |of: &Range<usize>, room: usize| ShortRow {
                    row: of.start + slot,
                    slot,
                    saved: saved.add((step + room) % 3).cast::<[f32; STEP]>().add(slot).cast(),
                };
                if slot < stored.len() {
                    pipeline.store(row(&stored, 1));
                }
                if slot < reduced.len() {
                    pipeline.reduce(row(&reduced, 2));
                }
                if slot < loaded.len() {
                    pipeline.load(row(&loaded, 0));
                }
            }
        }
        // SAFETY: as the caller promises.
        unsafe { pipeline.join(reduced) };
    }
}

/// The rows of the block that is at a stage in a step.
#[inline(always)]
fn block(step: usize, stage: usize, rows: usize) -> Range<usize> {
    let first = step.checked_sub(stage).map_or(rows, |block| (block * BLOCK_ROWS).min(rows));
    first..rows.min(first + BLOCK_ROWS)
}

/// A statistic of each row of a block, in parts that are the lanes of a vector.
pub(super) type RowLanes = [[f32; LANES]; BLOCK_ROWS];

/// The largest lane of each row, or the sum of its lanes.
///
/// # Safety
///
/// The machine runs the level.
#[inline(always)]
pub(super) unsafe fn join_rows<I: Lanes, const LARGEST: bool>(lanes: &RowLanes) -> [f32; BLOCK_ROWS] {
    let mut numbers = [0.0; BLOCK_ROWS];
    for first in (0..BLOCK_ROWS).step_by(JOINED) {
        // SAFETY: as the caller promises; an array of lanes is a vector.
        unsafe {
            let of_rows = each!(4, |i| I::load(lanes[first + i].as_ptr()));
            let joined = if LARGEST { I::largest_of_each(of_rows) } else { I::sum_of_each(of_rows) };
            numbers[first..first + JOINED].copy_from_slice(&joined);
        }
    }
    numbers
}

/// The numbers of a short row; beyond the row there is `pad`.
///
/// # Safety
///
/// The row can be read, and the machine runs the level.
#[inline(always)]
pub(super) unsafe fn load_short<I: Lanes>(
    row: *const u8,
    float: RowType,
    columns: usize,
    pad: f32,
) -> [I::F; 4] {
    // SAFETY: as the caller promises.
    unsafe {
        match columns {
            STEP => load_step::<I>(row, float, 0),
            _ => load_rest::<I>(row, float, 0, columns, pad),
        }
    }
}

/// Stores the numbers of a short row.
///
/// # Safety
///
/// The row can be written, and the machine runs the level.
#[inline(always)]
pub(super) unsafe fn store_short<I: Lanes>(row: *mut u8, float: RowType, columns: usize, x: [I::F; 4]) {
    // SAFETY: as the caller promises.
    unsafe {
        match columns {
            STEP => store_step::<I>(row, float, 0, x),
            _ => {
                each!(4, |i| if i * LANES < columns {
                    store_end::<I>(row, float, i * LANES, columns - i * LANES, x[i]);
                });
            }
        }
    }
}

/// Prefetches the same row of the next block.
#[inline(always)]
pub(super) fn prefetch_next_block(row: *const u8, row_stride: isize, float: RowType, columns: usize) {
    prefetch_l1(row.wrapping_offset(row_stride * BLOCK_ROWS as isize), columns * float.bytes());
}
