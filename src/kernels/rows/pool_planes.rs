//! Pools of planes whose rows are contiguous: strips of windows of one plane or of several by one call, since
//! a row, or a small plane, alone is shorter than what a call takes.
//!
//! Rows of a strip are joined to rows with places beyond the source, so that all that follows runs over whole
//! vectors and has no edges. The terms of an element are those of the kernels for rows, in the same order.

use std::ops::Range;

use smallvec::SmallVec;

use super::join_terms::JoinTerms;
use super::steps::{load_end, store_end};
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

/// Windows of some planes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PooledPlanes {
    pub(crate) from: *const u8,
    pub(crate) float: RowType,
    pub(crate) to: *mut u8,
    pub(crate) to_float: RowType,
    pub(crate) planes: usize,
    /// Bytes from one plane to the next and from one row to the next, in source and result.
    pub(crate) plane_strides: [isize; 2],
    pub(crate) row_strides: [isize; 2],
    /// Bytes from a plane to those that are combined to one, and their number.
    pub(crate) slices: *const isize,
    pub(crate) depth: usize,
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
    pub(crate) strip: Strip,
    /// Room for the numbers of the strip.
    pub(crate) room: *mut f32,
}

/// The windows that are made at once: some rows of one plane, or all rows of some.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Strip {
    pub(crate) planes: usize,
    pub(crate) rows: usize,
    /// Numbers of a row with places beyond the source.
    pub(crate) width: usize,
    /// Rows before the end of source and result whose vectors reach beyond it.
    beyond: [usize; 2],
    /// Numbers of the source that are copied at once, and of the rows that are joined.
    copied: usize,
    room: usize,
}

impl WindowsAlong {
    /// Places that some windows see, those beyond the source among them.
    pub(crate) fn reach(&self, windows: usize) -> usize {
        let between = (self.ranks - 1).saturating_mul(self.between).saturating_add(1);
        (windows.max(1) - 1).saturating_mul(self.step).saturating_add(between)
    }

    /// The ranks of a window whose places are in the source.
    #[inline(always)]
    fn inside(&self, window: usize) -> Range<usize> {
        let first = window * self.step;
        let (before, behind) = (self.before.saturating_sub(first), self.before + self.source);
        let [start, end] = match self.between {
            1 => [before, behind.saturating_sub(first)],
            between => [before.div_ceil(between), behind.saturating_sub(first).div_ceil(between)],
        };
        let end = end.min(self.ranks);
        start.min(end)..end
    }

    /// Of some windows those all of whose places are in the source.
    fn whole(&self, windows: Range<usize>) -> Range<usize> {
        let end = (self.before + self.source).checked_sub(self.reach(1));
        let end = end.map_or(0, |last| last / self.step + 1).min(windows.end);
        self.before.div_ceil(self.step).clamp(windows.start, end.max(windows.start))..end.max(windows.start)
    }
}

impl Strip {
    /// Numbers of a strip of the source that stay in the first-level cache beside those made of them
    /// (decision: pool-planes).
    const NUMBERS: usize = 4 << 10;

    /// Largest step of windows along a row, for each place of which a row has a part.
    const STEP: usize = 64;

    /// The strips of so many rows of windows, with at most so many planes combined to one; `None` if a row is
    /// too long.
    pub(crate) fn new(
        [down, along]: [&WindowsAlong; 2],
        [planes, depth]: [usize; 2],
        [rows, outputs]: [usize; 2],
    ) -> Option<Self> {
        let width = along.reach(outputs).max(along.before.saturating_add(along.source));
        let width = width.checked_next_multiple_of(along.step)?;
        let numbers = |rows: usize| down.reach(rows).saturating_mul(depth).saturating_mul(width);
        if numbers(1) > 4 * Self::NUMBERS || along.step > Self::STEP {
            return None;
        }
        let mut of_strip = rows;
        while of_strip > 1 && numbers(of_strip) > Self::NUMBERS {
            of_strip = of_strip.div_ceil(2);
        }
        let planes = if of_strip == rows { (Self::NUMBERS / numbers(rows)).clamp(1, planes) } else { 1 };
        let copied = down.reach(of_strip) * depth * along.source.next_multiple_of(LANES);
        // Parts of rows a step apart have vectors behind them.
        let room = planes * of_strip * width + 2 * (along.step + 1) * LANES + along.reach(1);
        let room = (along.before + room).next_multiple_of(LANES);
        let beyond = [along.source, outputs].map(|width| (width.next_multiple_of(LANES) - 1) / width);
        Some(Self { planes, rows: of_strip, width, beyond, copied, room })
    }

    /// How many of so many rows to the end of the source, or of the result, may be read or written by whole
    /// vectors.
    #[inline(always)]
    fn whole_rows(&self, end: usize, rows: usize, is_dense: bool) -> usize {
        match (self.beyond[end], is_dense) {
            (0, _) => rows,
            (beyond, true) => rows.saturating_sub(beyond),
            (_, false) => 0,
        }
    }

    /// Numbers of the room for a strip.
    pub(crate) fn numbers(&self) -> usize {
        self.copied + 2 * self.room
    }
}

pub(super) type CopyRows = unsafe fn(&PooledPlanes, *const u8, [usize; 2], *mut f32);
pub(crate) type TakeApart = unsafe fn(*const f32, usize, usize, usize, *mut f32);
pub(super) type FinishStrip = unsafe fn(&PooledPlanes, [Range<usize>; 2], *const f32);

/// The kernels of pools of planes.
///
/// # Safety
///
/// Operands can be read or written as they say, and the machine runs the level.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlaneKernels {
    pub(super) join: unsafe fn(&JoinedRows),
    pub(super) copy: CopyRows,
    /// Takes a row apart, in so many steps of parts of so many; of any numbers of 32 bits.
    pub(crate) take_apart: TakeApart,
    pub(super) finish: FinishStrip,
}

/// Rows of planes that are joined to rows of others.
#[derive(Debug, Clone, Copy)]
pub(super) struct JoinedRows {
    /// Numbers from one row of the source to the next, and from one plane to the next.
    from: *const f32,
    row_apart: isize,
    plane_apart: isize,
    planes: usize,
    slices: *const isize,
    depth: usize,
    down: WindowsAlong,
    /// The first place of the source that is there, windows, and those of them whose places all are.
    begin: usize,
    windows: [usize; 2],
    inside: [usize; 2],
    width: usize,
    start: f32,
    /// The result, and numbers from one row of it to the next. Vectors write behind a row what is made later.
    to: *mut f32,
    to_apart: usize,
}

/// # Safety
///
/// The source can be read, the rows of the result and the room can be written, and the machine runs the level
/// of the kernels.
pub(crate) unsafe fn pool_planes(kernels: &PlaneKernels, operands: &PooledPlanes) {
    let &PooledPlanes { planes, rows, strip, along, start, room, .. } = operands;
    let [mut from, mut to] = [room.wrapping_add(strip.copied), room.wrapping_add(strip.copied + strip.room)];
    for plane in (0..planes).step_by(strip.planes) {
        let planes = plane..planes.min(plane + strip.planes);
        for row in (0..rows).step_by(strip.rows) {
            let rows = row..rows.min(row + strip.rows);
            let length = planes.len() * rows.len() * (strip.width / along.step);
            let part = length + 2 * LANES;
            // SAFETY: as the caller promises; all vectors end with the rooms.
            unsafe {
                for i in 0..along.before {
                    from.add(i).write(start);
                }
                join_strip(kernels, operands, [planes.clone(), rows.clone()], from.add(along.before));
                if along.step > 1 {
                    (kernels.take_apart)(from, length * along.step, part, along.step, to);
                    (from, to) = (to, from);
                }
                // Terms along a row are planes of one row each.
                let place = |rank: usize| rank * along.between;
                let at = |rank: usize| place(rank) % along.step * part + place(rank) / along.step;
                let slices: SmallVec<[isize; 16]> =
                    (0..along.ranks).map(|rank| (at(rank) * size_of::<f32>()) as isize).collect();
                (kernels.join)(&JoinedRows {
                    from,
                    row_apart: 0,
                    plane_apart: 0,
                    planes: 1,
                    slices: slices.as_ptr(),
                    depth: slices.len(),
                    down: WindowsAlong { before: 0, step: 1, between: 1, ranks: 1, source: 1 },
                    begin: 0,
                    windows: [0, 1],
                    inside: [0, 1],
                    width: length,
                    start,
                    to,
                    to_apart: length,
                });
                (kernels.finish)(operands, [planes.clone(), rows], to);
            }
        }
    }
}

/// Joins the rows of some planes that each of some rows of windows sees.
///
/// # Safety
///
/// As [`pool_planes`].
unsafe fn join_strip(
    kernels: &PlaneKernels,
    operands: &PooledPlanes,
    [planes, rows]: [Range<usize>; 2],
    to: *mut f32,
) {
    let &PooledPlanes { down, along, float, start, strip, depth, first, slices, .. } = operands;
    let ([plane_stride, _], [row_stride, _]) = (operands.plane_strides, operands.row_strides);
    let windows = first + rows.start..first + rows.end;
    // Places of the source that the rows see.
    let begin = (windows.start * down.step).saturating_sub(down.before).min(down.source);
    let end = (windows.end - 1) * down.step + down.reach(1);
    let end = end.saturating_sub(down.before).clamp(begin, down.source);
    // Vectors may read what lies behind a row if that is rows of the planes.
    let is_dense = row_stride == (along.source * float.bytes()) as isize;
    let are_dense = plane_stride == row_stride * down.source as isize;
    let whole_of = |plane: usize| {
        let behind = if are_dense { down.source * (operands.planes - 1 - plane) } else { 0 };
        strip.whole_rows(0, down.source + behind, is_dense).clamp(begin, end) - begin
    };
    let is_direct = |&plane: &usize| float == RowType::F32 && whole_of(plane) == end - begin;
    let direct = planes.start..planes.start + planes.clone().take_while(is_direct).count();
    let at = |plane: usize| {
        operands.from.wrapping_offset(plane_stride * plane as isize + row_stride * begin as isize)
    };
    let inside = down.whole(windows.clone());
    let joined = JoinedRows {
        from: at(direct.start).cast(),
        row_apart: row_stride / size_of::<f32>() as isize,
        plane_apart: plane_stride / size_of::<f32>() as isize,
        planes: direct.len(),
        slices,
        depth,
        down,
        begin,
        windows: [windows.start, windows.end],
        inside: [inside.start, inside.end],
        width: along.source,
        start,
        to,
        to_apart: strip.width,
    };
    let length = along.source.next_multiple_of(LANES);
    let slice = (end - begin) * length;
    let copies: SmallVec<[isize; 16]> =
        (0..depth).map(|index| (index * slice * size_of::<f32>()) as isize).collect();
    // SAFETY: as the caller promises.
    unsafe {
        (kernels.join)(&joined);
        for plane in direct.end..planes.end {
            for index in 0..depth {
                let from = at(plane).wrapping_offset(*slices.add(index));
                let to = operands.room.add(index * slice);
                (kernels.copy)(operands, from, [end - begin, whole_of(plane)], to);
            }
            let to = to.add((plane - planes.start) * rows.len() * strip.width);
            let (from, row_apart, slices) = (operands.room.cast_const(), length as isize, copies.as_ptr());
            (kernels.join)(&JoinedRows { from, row_apart, planes: 1, slices, to, ..joined });
        }
    }
}

/// Copies so many rows of the source, the first of them by whole vectors.
///
/// # Safety
///
/// As [`PlaneKernels`].
#[inline(always)]
pub(super) unsafe fn copy_rows<I: Lanes>(
    operands: &PooledPlanes,
    mut from: *const u8,
    [rows, whole]: [usize; 2],
    mut to: *mut f32,
) {
    let &PooledPlanes { along, float, start, .. } = operands;
    for row in 0..rows {
        for column in (0..along.source).step_by(LANES) {
            let count = if row < whole { LANES } else { along.source - column };
            // SAFETY: as the caller promises.
            unsafe {
                I::store(to, load_end::<I>(from, float, column, count, start));
                to = to.add(LANES);
            }
        }
        from = from.wrapping_offset(operands.row_strides[0]);
    }
}

/// Joins the rows of planes that each of some rows of windows sees. What lies behind a row becomes the start.
///
/// # Safety
///
/// As [`PlaneKernels`].
#[inline(always)]
pub(super) unsafe fn join_rows<C: JoinTerms, I: Lanes>(operands: &JoinedRows) {
    let &JoinedRows { down, depth, begin, row_apart, windows, inside, width, start, to_apart, .. } = operands;
    let (mut from, mut to) = (operands.from, operands.to);
    // Numbers of the last vector behind the row become the start at once.
    let last = (width - 1) / LANES * LANES;
    // SAFETY: as the caller promises.
    unsafe {
        let kept = I::load_first([1.0; LANES].as_ptr(), width - last, 0.0);
        for _ in 0..operands.planes {
            let mut window = windows[0];
            while window < windows[1] {
                let (ranks, runs) = match window >= inside[0] && window < inside[1] {
                    // Further terms are joined to a row that is made, before those behind it are.
                    true if depth * down.ranks > 3 => (0..down.ranks, 1),
                    true => (0..down.ranks, inside[1] - window),
                    false => (down.inside(window), 1),
                };
                let place =
                    (window * down.step + ranks.start * down.between).wrapping_sub(down.before + begin);
                let at = |term: usize| {
                    let (slice, rank) = match (depth, ranks.len()) {
                        (1, _) => (0, term),
                        (_, 1) => (term, 0),
                        (_, count) => (term / count, term % count),
                    };
                    let place = place.wrapping_add(rank * down.between) as isize;
                    from.wrapping_byte_offset(*operands.slices.add(slice)).wrapping_offset(row_apart * place)
                };
                for run in 0..runs {
                    let behind = last + LANES;
                    fill::<I>(to.add(run * to_apart + behind), to_apart.saturating_sub(behind), start);
                }
                let runs = Runs {
                    terms: depth * ranks.len(),
                    runs,
                    apart: [row_apart * down.step as isize, to_apart as isize],
                    last,
                    start,
                };
                join::<C, I>(at, runs, kept, to);
                to = to.add(runs.runs * to_apart);
                window += runs.runs;
            }
            from = from.wrapping_offset(operands.plane_apart);
        }
    }
}

/// Terms that are joined, in some runs: from one to the next, terms and results are so far apart.
#[derive(Clone, Copy)]
struct Runs {
    terms: usize,
    runs: usize,
    apart: [isize; 2],
    /// The place of the last vector of a run.
    last: usize,
    start: f32,
}

/// Writes the same number to whole vectors.
///
/// # Safety
///
/// These can be written, and the machine runs the level.
#[inline(always)]
unsafe fn fill<I: Lanes>(to: *mut f32, count: usize, number: f32) {
    let mut i = 0;
    while i < count {
        // SAFETY: as the caller promises.
        unsafe { I::store(to.add(i), I::splat(number)) };
        i += LANES;
    }
}

/// Joins the numbers of some terms. Those of the last vector of a run become the start unless they are kept.
///
/// # Safety
///
/// Whole vectors can be read from each term on and be written, and the machine runs the level.
#[inline(always)]
unsafe fn join<C: JoinTerms, I: Lanes>(
    at: impl Fn(usize) -> *const f32,
    runs: Runs,
    kept: I::F,
    to: *mut f32,
) {
    let Runs { terms, runs, apart, last, start } = runs;
    /// Writes the vector that an expression gives for each place of terms and result.
    macro_rules! each_vector {
        (|$from:ident, $to:ident| $sum:expr) => {
            for run in 0..runs as isize {
                let (from, to) = (apart[0] * run, to.offset(apart[1] * run));
                let mut i = 0;
                while i <= last {
                    let ($from, $to) = (from + i as isize, to.add(i));
                    let sum = $sum;
                    I::store($to, if i == last { I::if_positive(kept, sum, I::splat(start)) } else { sum });
                    i += LANES;
                }
            }
        };
    }
    // SAFETY: as the caller promises.
    unsafe {
        let done = terms.min(3);
        match done {
            0 => each_vector!(|_i, to| I::splat(start)),
            1 => {
                let first = at(0);
                each_vector!(|i, to| I::load(first.offset(i)));
            }
            2 => {
                let [first, second] = [at(0), at(1)];
                each_vector!(|i, to| C::join::<I>(I::load(first.offset(i)), I::load(second.offset(i))));
            }
            _ => {
                let [first, second, third] = [at(0), at(1), at(2)];
                each_vector!(|i, to| {
                    let sum = C::join::<I>(I::load(first.offset(i)), I::load(second.offset(i)));
                    C::join::<I>(sum, I::load(third.offset(i)))
                });
            }
        }
        for term in done..terms {
            let from = at(term);
            each_vector!(|i, to| C::join::<I>(I::load(to), I::load(from.offset(i))));
        }
    }
}

/// Writes rows of the result.
///
/// # Safety
///
/// As [`PlaneKernels`].
#[inline(always)]
pub(super) unsafe fn finish_strip<I: Lanes>(
    operands: &PooledPlanes,
    [planes, rows]: [Range<usize>; 2],
    mut from: *const f32,
) {
    let &PooledPlanes { outputs, divisor, counts, to_float, down, depth, strip, .. } = operands;
    let ([_, plane_stride], [_, row_stride]) = (operands.plane_strides, operands.row_strides);
    // Vectors may write what lies behind a row if that is made later.
    let is_dense = row_stride == (outputs * to_float.bytes()) as isize
        && (operands.planes == 1 || plane_stride == row_stride * operands.rows as isize);
    let apart = strip.width / operands.along.step;
    for plane in planes {
        let at = plane_stride * plane as isize + row_stride * rows.start as isize;
        let mut to = operands.to.wrapping_offset(at);
        let whole = strip.whole_rows(1, (operands.planes - plane) * operands.rows, is_dense);
        for row in rows.clone() {
            let seen = match counts.is_null() {
                true => 0.0,
                false => (depth * down.inside(operands.first + row).len()) as f32,
            };
            for column in (0..outputs).step_by(LANES) {
                // SAFETY: as the caller promises.
                unsafe {
                    let sum = I::load(from.add(column));
                    let sum = match counts.is_null() {
                        true if divisor == 1.0 => sum,
                        true => I::div(sum, I::splat(divisor)),
                        false => {
                            let counts = I::load_first(counts.add(column), outputs - column, 1.0);
                            I::div(sum, I::mul(I::splat(seen), counts))
                        }
                    };
                    let count = if row < whole { LANES } else { outputs - column };
                    store_end::<I>(to, to_float, column, count, sum);
                }
            }
            from = from.wrapping_add(apart);
            to = to.wrapping_offset(row_stride);
        }
    }
}
