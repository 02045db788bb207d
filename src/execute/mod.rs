//! Runs plans: on the caller's thread, or on that and the engine's workers.
#![allow(unsafe_code, reason = "a plan is run on raw memory that was checked before")]

pub(crate) mod compiled;
pub(crate) mod engine;
pub(crate) mod stream;
pub(crate) mod tensor;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use smallvec::SmallVec;

use self::engine::{Allocation, Engine};
use crate::error::{Error, ExecuteFault, Result};
use crate::kernels::select::Verdict;
use crate::kernels::simd::StoreFence;
use crate::kernels::{Extent, Inner, Source, Stores, Target};
use crate::plan::{Branch, Feed, MAX_LOOPS, MAX_WALKS, Nest, Place, Plan, Select, Step, Work};

/// Bytes moved from which on an execution is worth waking workers for: below, one thread is done about when a worker
/// that slept wakes up, some 70 µs later.
const PARALLEL_BYTES: usize = 8 * 1024 * 1024;

/// Shares of work a thread, so that a thread that starts late or is interrupted leaves its work to the others.
const SHARES_PER_THREAD: usize = 8;

/// Where the ports of a plan are. Every port has been checked to be the memory that the plan was made for, and no output
/// overlaps an input that it is not in place of.
#[derive(Default)]
struct Bound {
    /// The address of each port, inputs first. Inputs are never written to: steps write to places, and a place is an
    /// output or scratch.
    ports: SmallVec<[*mut u8; 8]>,
    /// The ports that share one buffer: an input and the output that is in place of it.
    in_place: SmallVec<[(usize, usize); 2]>,
}

// SAFETY: the addresses stand for tensors, which are `Sync`; threads write to tiles that are disjoint.
unsafe impl Sync for Bound {}

/// Runs a plan. `scratch` holds the plan's scratch for as many threads as the engine has.
fn run(plan: &Plan, bound: &Bound, engine: &Engine, scratch: Option<&Allocation>) -> Result<()> {
    for nest in &plan.nests {
        let tiles = nest.tiles();
        let threads = if plan.bytes_moved < PARALLEL_BYTES { 1 } else { engine.threads().min(tiles) };
        let runner = |thread: usize| {
            let scratch =
                scratch.map_or(std::ptr::null_mut(), |s| s.as_ptr().wrapping_add(plan.scratch * thread));
            Runner::new(nest, bound, scratch)
        };
        // Each thread fences what it has streamed, also when it unwinds.
        let fence = || (plan.stores == Stores::Streaming).then_some(StoreFence);
        let all_run = if threads <= 1 {
            catch_unwind(AssertUnwindSafe(|| {
                let _fence = fence();
                runner(0).run(0..tiles);
            }))
        } else {
            let workers = engine.workers()?;
            let share = tiles.div_ceil(threads * SHARES_PER_THREAD);
            let next = AtomicUsize::new(0);
            let work = |thread: usize| {
                let _fence = fence();
                let mut runner = runner(thread);
                loop {
                    let first = next.fetch_add(share, Ordering::Relaxed);
                    if first >= tiles {
                        break;
                    }
                    runner.run(first..tiles.min(first + share));
                }
            };
            catch_unwind(AssertUnwindSafe(|| {
                workers.in_place_scope(|scope| {
                    for thread in 1..threads {
                        let work = &work;
                        scope.spawn(move |_| work(thread));
                    }
                    work(0);
                });
            }))
        };
        all_run.map_err(|_| Error::Execute(ExecuteFault::Panicked))?;
    }
    Ok(())
}

/// One thread's way through the tiles of a nest.
struct Runner<'a> {
    nest: &'a Nest,
    bound: &'a Bound,
    scratch: *mut u8,
    /// The number of the current tile.
    tile: usize,
    /// For each walk, where it is in the current tile.
    at: [*mut u8; MAX_WALKS],
    /// For each loop, the turn that the current tile is in.
    turn: [usize; MAX_LOOPS],
    /// The steps that have been run in the current tile, one bit each.
    done: u64,
}

impl<'a> Runner<'a> {
    /// Starts at the first tile.
    fn new(nest: &'a Nest, bound: &'a Bound, scratch: *mut u8) -> Self {
        let mut at = [std::ptr::null_mut(); MAX_WALKS];
        nest.walks.iter().zip(&mut at).for_each(|(walk, at)| *at = bound.ports[walk.port]);
        Self { nest, bound, scratch, tile: 0, at, turn: [0; MAX_LOOPS], done: 0 }
    }

    /// Runs a range of tiles, numbered with the innermost loop first.
    fn run(&mut self, tiles: Range<usize>) {
        if tiles.start != self.tile {
            self.seek(tiles.start);
        }
        for tile in tiles.clone() {
            self.done = 0;
            self.step(self.nest.steps.len() - 1);
            if tile + 1 < tiles.end {
                self.advance();
                self.tile = tile + 1;
            }
        }
    }

    fn seek(&mut self, mut tile: usize) {
        self.tile = tile;
        for (walk, at) in self.nest.walks.iter().zip(&mut self.at) {
            *at = self.bound.ports[walk.port];
        }
        for (l, turn) in self.nest.loops.iter().zip(&mut self.turn).rev() {
            *turn = tile % l.extent;
            tile /= l.extent;
            let turns = *turn as isize;
            self.at.iter_mut().zip(&l.steps).for_each(|(at, step)| *at = at.wrapping_offset(step * turns));
        }
    }

    fn advance(&mut self) {
        for (l, turn) in self.nest.loops.iter().zip(&mut self.turn).rev() {
            *turn += 1;
            let turns = if *turn < l.extent { 1 } else { 1 - l.extent as isize };
            self.at.iter_mut().zip(&l.steps).for_each(|(at, step)| *at = at.wrapping_offset(step * turns));
            if *turn < l.extent {
                return;
            }
            *turn = 0;
        }
    }

    /// Rows and columns of the current tile.
    fn extent(&self) -> Extent {
        let Nest { space, tile, .. } = self.nest;
        let [.., row_block, column_block] = self.turn[..self.nest.loops.len()] else { return *space };
        Extent {
            rows: tile.rows.min(space.rows - row_block * tile.rows),
            columns: tile.columns.min(space.columns - column_block * tile.columns),
        }
    }

    /// Runs a step, unless it has been run in this tile, after the steps that it pulls.
    fn step(&mut self, index: usize) {
        if self.done & (1 << index) != 0 {
            return;
        }
        self.done |= 1 << index;
        let nest = self.nest;
        let step = &nest.steps[index];
        let extent = self.extent_of(step);
        let to = self.place(step.to);
        match &step.work {
            Work::Gather { from, kernel } => {
                let walk = &nest.walks[*from];
                let from = Source { at: self.at[*from], pitch: walk.pitch };
                // SAFETY: the walk stays within its port for every tile of the nest, the target is scratch sized for
                // a tile, and the plan's level was available when it was made.
                unsafe { kernel(extent, from, walk.step, to) };
            }
            Work::Select(select) => self.select(select, step, extent, to),
            Work::Scatter { from, kernel } => {
                let Place::Port(walk) = step.to else { return };
                let from = self.source(Feed::Step(*from));
                // SAFETY: as for `Gather`, with scratch and port the other way round.
                unsafe { kernel(extent, from, to, nest.walks[walk].step) };
            }
        }
    }

    /// The part of the current tile that a step iterates over.
    fn extent_of(&self, step: &Step) -> Extent {
        let tile = self.extent();
        Extent {
            rows: if step.space.rows { tile.rows } else { 1 },
            columns: match step.space.columns {
                Inner::Dense => tile.columns,
                Inner::Repeated => 1,
            },
        }
    }

    fn place(&self, place: Place) -> Target {
        match place {
            Place::Port(walk) => Target { at: self.at[walk], pitch: self.nest.walks[walk].pitch },
            Place::Scratch(offset, pitch) => {
                Target { at: self.scratch.wrapping_add(offset), pitch: pitch as isize }
            }
        }
    }

    /// Where an operand is, once the step that makes it has been run.
    fn source(&mut self, feed: Feed) -> Source {
        match feed {
            Feed::Port(walk) => Source { at: self.at[walk], pitch: self.nest.walks[walk].pitch },
            Feed::Step(index) => {
                self.step(index);
                let step = &self.nest.steps[index];
                let Target { at, pitch } = self.place(step.to);
                Source { at, pitch: if step.space.rows { pitch } else { 0 } }
            }
        }
    }

    /// Judges the condition first, then pulls what the verdict needs: one branch where it is the same, both where it
    /// is mixed.
    fn select(&mut self, select: &Select, step: &Step, extent: Extent, to: Target) {
        let cond = self.source(select.cond);
        if select.cond_inner == Inner::Repeated {
            return self.select_rows(select, step, extent, cond, to);
        }
        let verdict = match select.judge {
            Some(judge) => {
                let judged = if cond.pitch == 0 { Extent { rows: 1, ..extent } } else { extent };
                // SAFETY: the condition of every element of the tile can be read, at the plan's level.
                unsafe { judge(judged, cond) }
            }
            None => Verdict::Mixed,
        };
        match verdict {
            Verdict::AllTrue => self.take(&select.then, step, extent, 0, to),
            Verdict::AllFalse => self.take(&select.else_, step, extent, 0, to),
            Verdict::Mixed => self.choose(select, step, extent, cond, to),
        }
    }

    /// Chooses element by element. A branch that the result is in place of is there already.
    fn choose(&mut self, select: &Select, step: &Step, extent: Extent, cond: Source, to: Target) {
        // SAFETY: every operand covers the tile, and the target overlaps none that it is not in place of; where it is
        // in place of one, it holds that branch.
        unsafe {
            if self.is_in_place(&select.then, step) {
                (select.then.take_in_other)(extent, cond, self.source(select.else_.feed), to);
            } else if self.is_in_place(&select.else_, step) {
                (select.else_.take_in_other)(extent, cond, self.source(select.then.feed), to);
            } else {
                let (then, else_) = (self.source(select.then.feed), self.source(select.else_.feed));
                (select.blend)(extent, cond, then, else_, to);
            }
        }
    }

    /// A condition that does not vary along a row decides for whole rows; rows that agree are moved together.
    fn select_rows(&mut self, select: &Select, step: &Step, extent: Extent, cond: Source, to: Target) {
        // SAFETY: the condition of each row of the tile can be read.
        let is_true = |row: usize| unsafe { *cond.at_row(row).at != 0 };
        let mut row = 0;
        while row < extent.rows {
            let decision = is_true(row);
            let same = match cond.pitch {
                0 => extent.rows - row,
                _ => (row..extent.rows).take_while(|&row| is_true(row) == decision).count(),
            };
            let branch = if decision { &select.then } else { &select.else_ };
            self.take(branch, step, Extent { rows: same, ..extent }, row, to);
            row += same;
        }
    }

    /// Makes one branch the result in some rows of the tile, from `first` on.
    fn take(&mut self, branch: &Branch, step: &Step, rows: Extent, first: usize, to: Target) {
        if self.is_in_place(branch, step) {
            return;
        }
        let from = self.source(branch.feed).at_row(first);
        // What is in place lies where the other branch was read a moment ago: in the caches, if anywhere.
        let copy = if self.bound.in_place.is_empty() { branch.copy } else { branch.copy_in_place };
        // SAFETY: the rows are within the tile, which both cover; where they are one buffer, they are the same rows of it.
        unsafe { copy(rows, from, to.at_row(first)) };
    }

    /// Whether the result is written over this very branch.
    fn is_in_place(&self, branch: &Branch, step: &Step) -> bool {
        let Place::Port(walk) = step.to else { return false };
        let output = self.nest.walks[walk].port;
        self.bound
            .in_place
            .iter()
            .any(|&(input, replacing)| branch.in_place_of == Some(input) && replacing == output)
    }
}
