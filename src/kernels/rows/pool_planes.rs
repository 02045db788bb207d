//! Pools of planes whose rows are contiguous: rows of windows one after the other, by one call for all of
//! them, since a row alone is shorter than what a call takes.
//!
//! The terms of an element are those of the kernels for rows, in the same order.

use std::ops::Range;

use super::apart::take_apart;
use super::join_terms::JoinTerms;
use super::steps::load_end;
use crate::kernels::vector::{LANES, Lanes, RowType};

/// Windows along one dim of a plane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowsAlong {
    /// The first place of a window is `before` places before its `step`-th.
    pub(crate) before: usize,
    pub(crate) step: usize,
    /// From one place of a window to the next, and their number.
    pub(crate) between: usize,
    pub(crate) ranks: usize,
    /// Places of the source.
    pub(crate) source: usize,
}

/// Rows of windows of a plane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PooledPlane {
    pub(crate) from: *const u8,
    pub(crate) float: RowType,
    /// Bytes from one row of the source to the next.
    pub(crate) row_stride: isize,
    pub(crate) down: WindowsAlong,
    pub(crate) along: WindowsAlong,
    /// The first row of windows, their number, and windows of a row.
    pub(crate) first: usize,
    pub(crate) rows: usize,
    pub(crate) outputs: usize,
    pub(crate) start: f32,
    /// Numbers by which elements are divided: one for all, and unless null one for each window of a row,
    /// times the rows that a window sees.
    pub(crate) divisor: f32,
    pub(crate) counts: *const f32,
    /// The first element of the result, and elements from one row to the next.
    pub(crate) to: *mut f32,
    pub(crate) to_stride: isize,
    /// Rows of windows that are made side by side, and room for [`room`] numbers for each.
    pub(crate) at_once: usize,
    pub(crate) room: *mut f32,
}

impl WindowsAlong {
    /// Places that some windows see, those beyond the source among them.
    pub(crate) fn reach(&self, windows: usize) -> usize {
        let between = (self.ranks - 1).saturating_mul(self.between).saturating_add(1);
        (windows.max(1) - 1).saturating_mul(self.step).saturating_add(between)
    }

    /// The ranks of a window whose places are in the source, given the place of the first one behind
    /// `before`.
    #[inline(always)]
    fn inside(&self, first: usize) -> Range<usize> {
        let last = first + (self.ranks - 1) * self.between;
        if first >= self.before && last < self.before + self.source {
            return 0..self.ranks;
        }
        let end = (self.before + self.source).saturating_sub(first).div_ceil(self.between).min(self.ranks);
        self.before.saturating_sub(first).div_ceil(self.between).min(end)..end
    }
}

/// Elements that are taken apart at once.
const BLOCK: usize = 2 * LANES;

/// Numbers of a row with those beyond the source, and behind it a vector that is read and written.
fn padded(along: &WindowsAlong, outputs: usize) -> usize {
    let all = along.reach(outputs).max(along.before.saturating_add(along.source));
    all.saturating_add(LANES).checked_next_multiple_of(BLOCK).unwrap_or(usize::MAX)
}

/// Numbers of the room for a row of so many windows, and if it is taken apart for its parts.
pub(crate) fn room(along: &WindowsAlong, outputs: usize) -> usize {
    let row = padded(along, outputs);
    let parts = row.div_ceil(along.step).saturating_mul(along.step).saturating_add(LANES);
    row.saturating_add(if along.step > 1 { parts } else { 0 })
}

/// # Safety
///
/// The source can be read, the rows of the result and the room can be written, and the machine runs the
/// level.
#[inline(always)]
pub(super) unsafe fn pool_plane<C: JoinTerms, I: Lanes>(plane: &PooledPlane) {
    let &PooledPlane { down, along, outputs, rows, at_once, .. } = plane;
    let (length, of_row) = (padded(&along, outputs), room(&along, outputs));
    let part = length.div_ceil(along.step);
    let room_of = |index: usize| plane.room.wrapping_add(index % at_once * of_row);
    let first_of = |index: usize| (plane.first + index) * down.step;
    // SAFETY: as the caller promises; vectors end with the room.
    unsafe {
        // Places beyond the source stay as they are for all rows.
        for index in 0..at_once.min(rows) {
            for i in 0..length {
                room_of(index).add(i).write(plane.start);
            }
        }
        // Reads of what was just written wait for it, so rows are read when several are written.
        for block in (0..rows).step_by(at_once) {
            let block = block..rows.min(block + at_once);
            for index in block.clone() {
                let row = room_of(index);
                combine_rows::<C, I>(plane, first_of(index), row.add(along.before));
            }
            for index in block {
                let mut from = room_of(index);
                if along.step > 1 {
                    take_apart(from, length, part, along.step, from.add(length));
                    from = from.add(length);
                }
                let seen = down.inside(first_of(index)).len() as f32;
                let to = plane.to.wrapping_offset(plane.to_stride * index as isize);
                join_windows::<C, I>(plane, (from, part), seen, to);
            }
        }
    }
}

/// Combines the rows of the source that a row of windows sees.
///
/// # Safety
///
/// As [`pool_plane`].
#[inline(always)]
unsafe fn combine_rows<C: JoinTerms, I: Lanes>(plane: &PooledPlane, first: usize, to: *mut f32) {
    let &PooledPlane { down, float, row_stride, start, .. } = plane;
    let (width, seen) = (plane.along.source, down.inside(first));
    let place = (first + seen.start * down.between) as isize - down.before as isize;
    let from = plane.from.wrapping_offset(row_stride * place);
    let step = row_stride * down.between as isize;
    for column in (0..width).step_by(LANES) {
        // SAFETY: as the caller promises. Numbers behind the row become the start again, which joined to
        // itself is itself.
        unsafe {
            let mut sum = I::splat(start);
            for rank in 0..seen.len() {
                let row = from.wrapping_offset(step * rank as isize);
                sum = C::join::<I>(sum, load_end::<I>(row, float, column, width - column, start));
            }
            I::store(to.add(column), sum);
        }
    }
}

/// Joins the elements of the windows along a combined row, which may be taken apart in parts of some length.
///
/// # Safety
///
/// As [`pool_plane`].
#[inline(always)]
unsafe fn join_windows<C: JoinTerms, I: Lanes>(
    plane: &PooledPlane,
    (from, part): (*const f32, usize),
    seen: f32,
    to: *mut f32,
) {
    let &PooledPlane { along, outputs, start, divisor, counts, .. } = plane;
    for column in (0..outputs).step_by(LANES) {
        let count = LANES.min(outputs - column);
        // SAFETY: as the caller promises.
        unsafe {
            let mut sum = I::splat(start);
            for rank in 0..along.ranks {
                let place = rank * along.between;
                let at = if along.step == 1 { place } else { place % along.step * part + place / along.step };
                sum = C::join::<I>(sum, I::load(from.add(at + column)));
            }
            let sum = match counts.is_null() {
                true if divisor == 1.0 => sum,
                true => divided::<I>(sum, I::splat(divisor)),
                false => {
                    let of_windows = load_end::<I>(counts.cast(), RowType::F32, column, count, 1.0);
                    divided::<I>(sum, I::mul(I::splat(seen), of_windows))
                }
            };
            let sum = I::canonical_vector(sum);
            match count == LANES {
                true => I::store(to.add(column), sum),
                false => I::store_first(to.add(column), count, sum),
            }
        }
    }
}

/// Quotients of numbers.
///
/// # Safety
///
/// The machine runs the level.
#[inline(always)]
unsafe fn divided<I: Lanes>(x: I::F, by: I::F) -> I::F {
    let [mut numbers, mut divisors] = [[0.0f32; LANES]; 2];
    // SAFETY: as the caller promises; an array has as many numbers as a vector.
    unsafe {
        I::store(numbers.as_mut_ptr(), x);
        I::store(divisors.as_mut_ptr(), by);
        for i in 0..LANES {
            numbers[i] /= divisors[i];
        }
        I::load(numbers.as_ptr())
    }
}
