//! One thread's way through the tiles of a nest.
#![allow(unsafe_code, reason = "steps run on raw memory that was checked before")]

use std::ops::Range;

use smallvec::SmallVec;

use super::Bound;
use crate::kernels::asks::{Asks, Piece};
use crate::kernels::select::Verdict;
use crate::kernels::{Extent, Inner, Source, Target, bring};
use crate::plan::{
    Base, Branch, Feed, MAX_LOOPS, Nest, Place, Plan, Select, Step, StepSet, Sudden, Sweep, Work,
};

/// How many walks a runner takes without an allocation.
const FEW_WALKS: usize = 8;

/// How many tiles are looked through for the next one that computes a branch. A gated GELU of rows of 4,096, four tiles each,
/// half of which are copied at random, took 0.96 of its time on a Zen 5 with 16 instead of 8, with 32 no less; one of rows of
/// 1,024, on a Zen 4, 0.86 with 8 instead of 1.
const MOST_PEEKED: usize = 16;

/// Bytes of a page, or of a part of a larger one.
const PAGE: usize = 4096;

/// Runs tiles of one nest on one thread.
pub(super) struct Runner<'a> {
    plan: &'a Plan,
    nest: &'a Nest,
    bound: &'a Bound,
    scratch: *mut u8,
    /// The number of the current tile.
    tile: usize,
    /// For each walk, where it is in the current tile.
    at: SmallVec<[*mut u8; FEW_WALKS]>,
    /// For each loop, the turn that the current tile is in.
    turn: [usize; MAX_LOOPS],
    /// The steps whose results are those of the current tile.
    done: StepSet,
    awaited: Awaited,
}

/// What is asked for of the next tile that computes the branch, and of what those before it copy.
#[derive(Default)]
struct Awaited {
    /// How many tiles that one is away, once it has been looked for; 0 when it is here.
    tiles: Option<usize>,
    asks: Asks,
}

impl Awaited {
    /// Goes on by one tile.
    fn advance(&mut self) {
        match &mut self.tiles {
            None => {}
            Some(0) => *self = Self::default(),
            Some(tiles) => *tiles -= 1,
        }
    }
}

impl<'a> Runner<'a> {
    /// Starts at the first tile. Inlined, so that the runner is made where it stays.
    #[inline(always)]
    pub(super) fn new(plan: &'a Plan, nest: &'a Nest, bound: &'a Bound, scratch: *mut u8) -> Self {
        let (walks, steps) = (nest.walks.len(), nest.steps.len());
        let mut at = match walks <= FEW_WALKS {
            true => SmallVec::from_buf_and_len([std::ptr::null_mut(); FEW_WALKS], walks),
            false => SmallVec::from_elem(std::ptr::null_mut(), walks),
        };
        let done = StepSet::none_of(steps);
        rewind(plan, nest, bound, &mut at);
        Self {
            plan,
            nest,
            bound,
            scratch,
            tile: 0,
            at,
            turn: [0; MAX_LOOPS],
            done,
            awaited: Awaited::default(),
        }
    }

    /// Runs a range of tiles, numbered with the innermost loop first.
    pub(super) fn run(&mut self, tiles: Range<usize>) {
        for tile in tiles {
            match tile.wrapping_sub(self.tile) {
                0 => {}
                1 => self.advance(),
                _ => self.seek(tile),
            }
            self.tile = tile;
            for &root in &self.nest.roots {
                self.step(root);
            }
        }
    }

    fn seek(&mut self, mut tile: usize) {
        self.awaited = Awaited::default();
        self.done.clear();
        rewind(self.plan, self.nest, self.bound, &mut self.at);
        for (l, turn) in self.nest.loops.iter().zip(&mut self.turn).rev() {
            *turn = tile % l.extent;
            tile /= l.extent;
            let turns = *turn as isize;
            self.at.iter_mut().zip(&l.steps).for_each(|(at, step)| *at = at.wrapping_offset(step * turns));
        }
    }

    fn advance(&mut self) {
        self.awaited.advance();
        let loops = self.nest.loops.iter().zip(&self.nest.outdated);
        for ((l, outdated), turn) in loops.zip(&mut self.turn).rev() {
            *turn += 1;
            let turns = if *turn < l.extent { 1 } else { 1 - l.extent as isize };
            self.at.iter_mut().zip(&l.steps).for_each(|(at, step)| *at = at.wrapping_offset(step * turns));
            if *turn < l.extent {
                self.done.remove_all(outdated);
                return;
            }
            *turn = 0;
        }
    }

    /// Rows and columns of the current tile.
    fn extent(&self) -> Extent {
        let Nest { space, tile, row_blocks, column_blocks, .. } = self.nest;
        Extent {
            rows: tile.rows.min(space.rows - self.turn[*row_blocks] * tile.rows),
            columns: tile.columns.min(space.columns - self.turn[*column_blocks] * tile.columns),
        }
    }

    /// Runs a step, unless its result is there, after the steps that it pulls.
    fn step(&mut self, index: usize) {
        if self.done.contains(index) {
            return;
        }
        self.done.insert(index);
        let nest = self.nest;
        let step = &nest.steps[index];
        if let Some(sudden) = &nest.sudden
            && sudden.step == index
        {
            self.ask_here(sudden);
        }
        let extent = self.extent_of(step);
        let to = self.place(step.to);
        match &step.work {
            Work::Gather { from, ahead, kernel } => {
                let walk = &nest.walks[*from];
                let from = Source { at: self.at[*from], pitch: walk.pitch };
                // SAFETY: the walk stays within its port for every tile of the nest, the target is scratch sized for
                // a tile, and the plan's level was available when it was made.
                unsafe { kernel(extent, from, walk.step, *ahead, to) };
            }
            Work::Select(select) => self.select(select, step, extent, to),
            Work::Move { from, kernel } => {
                let from = self.source(*from);
                // SAFETY: source and target cover the part of the tile; as steps share scratch only where the kernel
                // may write over its operand, they are at one address or apart.
                unsafe { kernel(extent, from, to) };
            }
            Work::One { x, kernel, params } => {
                let x = self.source(*x);
                // SAFETY: as for `Move`.
                unsafe { kernel(extent, x, to, params, self.asks_ahead()) };
            }
            Work::Two { x, y, kernel, params } => {
                let (x, y) = (self.source(*x), self.source(*y));
                // SAFETY: as for `Move`.
                unsafe { kernel(extent, x, y, to, params) };
            }
            Work::Index { walk, kernel } => {
                let (first, walk) = (self.at[*walk].addr(), &nest.walks[*walk]);
                // SAFETY: the target covers the part of the tile.
                unsafe { kernel(extent, first as i32, walk.pitch as i32, walk.step as i32, to) };
            }
            Work::Chain(chain) => {
                let sources: SmallVec<[Source; 6]> =
                    chain.feeds.iter().map(|&feed| self.source(feed)).collect();
                let scratch = self.scratch.wrapping_add(nest.chain_scratch);
                // SAFETY: as for `Move`; the nest's scratch has room for the chain behind the results of steps.
                unsafe { chain.program.run(extent, &sources, to, scratch) };
            }
            Work::Scatter { from, kernel } => {
                let Place::Port(walk) = step.to else { return };
                let from = self.source(*from);
                // SAFETY: as for `Gather`, with scratch and port the other way round.
                unsafe { kernel(extent, from, to, nest.walks[walk].step) };
            }
        }
    }

    /// Asks for what is left to ask for in this tile. Not inlined, so that steps that ask for nothing stay short.
    #[inline(never)]
    fn ask_here(&mut self, sudden: &Sudden) {
        if self.awaited.tiles != Some(0) {
            self.awaited.asks = self.asks(sudden, 0);
        }
        self.awaited.asks.rest();
        self.awaited.tiles = None;
    }

    /// What kernels ask for meanwhile.
    fn asks_ahead(&mut self) -> &mut Asks {
        if let Some(sudden) = &self.nest.sudden
            && self.awaited.tiles.is_none()
        {
            self.look_ahead(sudden);
        }
        &mut self.awaited.asks
    }

    /// Looks for the next tile that computes the branch, for kernels to ask for what it reads, and what those before it copy.
    /// Not inlined either.
    #[inline(never)]
    fn look_ahead(&mut self, sudden: &Sudden) {
        let distance = self.distance(sudden);
        self.awaited = Awaited { tiles: Some(distance), asks: self.asks(sudden, distance) };
        self.ask_for_pages(sudden, distance);
    }

    /// What is read so many tiles later, where the branch is computed, and copied in those before; to ask for that as well took a
    /// chain of twelve ops 0.93 of its time on a Zen 5.
    fn asks(&self, sudden: &Sudden, distance: usize) -> Asks {
        let copied = (1..distance).flat_map(|tiles| sudden.copied.map(|walk| (walk, tiles)));
        let read = sudden.walks.iter().map(|&walk| (walk, distance));
        Asks::new(copied.chain(read).filter_map(|(walk, tiles)| self.piece(walk, tiles)))
    }

    /// Has the pages looked up that the result goes on in, up to the next tile that computes the branch: each is asked for its
    /// first line. On a Zen 5 that took 0.96 of the time.
    fn ask_for_pages(&self, sudden: &Sudden, distance: usize) {
        for tiles in 1..=distance {
            let at = sudden.result.and_then(|walk| self.later(walk, tiles));
            at.into_iter().for_each(|at| bring(at.map_addr(|at| at.next_multiple_of(PAGE)), 1));
        }
    }

    /// The memory that a walk reads so many tiles later; none behind the last tile.
    fn piece(&self, walk: usize, tiles: usize) -> Option<Piece> {
        let Extent { rows, columns } = self.extent();
        let bytes = rows * columns * self.nest.walks[walk].step.unsigned_abs();
        self.later(walk, tiles).map(|at| Piece { at, bytes })
    }

    /// How many tiles away the next one is that computes the branch: the next, where only its verdict will say.
    fn distance(&self, sudden: &Sudden) -> usize {
        let Some((cond, decides)) = sudden.cond else { return 1 };
        // SAFETY: the walk is at the condition of a tile of the nest.
        let is_true = |at: *mut u8| unsafe { Source { at, pitch: 0 }.is_true(0) };
        let computes = |&tiles: &usize| self.later(cond, tiles).is_none_or(|at| is_true(at) == decides);
        (1..MOST_PEEKED).find(computes).unwrap_or(MOST_PEEKED)
    }

    /// Where a walk is so many tiles later; nowhere behind the last tile.
    fn later(&self, walk: usize, mut tiles: usize) -> Option<*mut u8> {
        let mut at = self.at[walk];
        for (l, &turn) in self.nest.loops.iter().zip(&self.turn).rev() {
            let (turns, step) = (turn + tiles, l.steps[walk]);
            if turns < l.extent {
                return Some(at.wrapping_offset(step * tiles as isize));
            }
            at = at.wrapping_offset(step * ((turns % l.extent) as isize - turn as isize));
            tiles = turns / l.extent;
        }
        None
    }

    /// The part of the current tile that a step iterates over.
    fn extent_of(&self, step: &Step) -> Extent {
        let tile = self.extent();
        match step.sweep {
            Sweep::Rows => Extent {
                rows: if step.space.rows { tile.rows } else { 1 },
                columns: match step.space.columns {
                    Inner::Dense => tile.columns,
                    Inner::Repeated => 1,
                },
            },
            Sweep::Flat => Extent { rows: 1, columns: tile.rows * tile.columns },
            Sweep::Column => Extent { rows: 1, columns: tile.rows },
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
            Feed::Walk(walk) => Source { at: self.at[walk], pitch: self.nest.walks[walk].pitch },
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
                (select.then.take_in_other)(extent, cond, self.source(select.else_.feed), to, select.stores);
            } else if self.is_in_place(&select.else_, step) {
                (select.else_.take_in_other)(extent, cond, self.source(select.then.feed), to, select.stores);
            } else {
                let (then, else_) = (self.source(select.then.feed), self.source(select.else_.feed));
                (select.blend)(extent, cond, then, else_, to, select.ahead);
            }
        }
    }

    /// A condition that does not vary along a row decides for whole rows; rows that agree are moved together.
    fn select_rows(&mut self, select: &Select, step: &Step, extent: Extent, cond: Source, to: Target) {
        if let Some(blend_rows) = select.blend_rows
            && self.bound.in_place.is_empty()
        {
            let (then, else_) = (self.source(select.then.feed), self.source(select.else_.feed));
            // SAFETY: every operand covers the tile, and the target overlaps none.
            return unsafe { blend_rows(extent, cond, then, else_, to) };
        }
        // SAFETY: the condition of each row of the tile can be read.
        let is_true = |row: usize| unsafe { cond.is_true(row) };
        // The result may share its scratch with what a branch is made from, so branches are made before it.
        for (branch, decides) in [(&select.then, true), (&select.else_, false)] {
            if matches!(branch.feed, Feed::Step(_)) && (0..extent.rows).any(|row| is_true(row) == decides) {
                self.source(branch.feed);
            }
        }
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
        let is_of = |&(input, output): &(usize, usize)| {
            branch.in_place_of == Some(input) && self.nest.walks[walk].base == Base::Port(output)
        };
        self.bound.in_place.iter().any(is_of)
    }
}

/// Puts every walk where it starts.
#[inline(always)]
fn rewind(plan: &Plan, nest: &Nest, bound: &Bound, at: &mut [*mut u8]) {
    for (walk, at) in nest.walks.iter().zip(at) {
        *at = match walk.base {
            Base::Port(port) => bound.ports[port],
            Base::Constant(constant) => plan.constants[constant].as_ptr().cast_mut(),
            Base::Index => std::ptr::null_mut(),
        };
    }
}
