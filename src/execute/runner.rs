//! One thread's way through the tiles of a nest.
#![allow(unsafe_code, reason = "steps run on raw memory that was checked before")]

use std::ops::Range;

use smallvec::SmallVec;

use super::Bound;
use super::cursor::Cursor;
use crate::kernels::asks::{Asks, Piece};
use crate::kernels::select::Verdict;
use crate::kernels::{Extent, Inner, Source, Target, bring};
use crate::plan::{Base, Branch, Feed, Nest, Place, Plan, Select, Step, StepSet, Sudden, Sweep, Work};

/// How many tiles are looked through for the next one that computes a branch. A gated GELU of rows of 4,096, four tiles each,
/// half of which are copied at random, took 0.96 of its time on a Zen 5 with 16 instead of 8, with 32 no less; one of rows of
/// 1,024, on a Zen 4, 0.86 with 8 instead of 1.
const MOST_PEEKED: usize = 16;

/// Bytes of a page, or of a part of a larger one.
const PAGE: usize = 4096;

/// Runs tiles of one nest on one thread.
pub(super) struct Runner<'a> {
    nest: &'a Nest,
    bound: &'a Bound,
    scratch: *mut u8,
    /// At the current tile.
    cursor: Cursor<'a>,
    /// The steps whose results are those of the current tile.
    done: StepSet,
    /// At the tile that `asks` are for, once one has been looked for.
    scout: Option<Cursor<'a>>,
    /// What is asked for of the next tile that computes the branch, and of what those before it copy.
    asks: Asks,
}

impl<'a> Runner<'a> {
    /// Starts at the first tile. Inlined, so that the runner is made where it stays.
    #[inline(always)]
    pub(super) fn new(plan: &Plan, nest: &'a Nest, bound: &'a Bound, scratch: *mut u8) -> Self {
        Self {
            nest,
            bound,
            scratch,
            cursor: Cursor::new(nest, &plan.constants, bound),
            done: StepSet::none_of(nest.steps.len()),
            scout: None,
            asks: Asks::default(),
        }
    }

    /// Runs a range of tiles.
    pub(super) fn run(&mut self, tiles: Range<usize>) {
        for tile in tiles {
            match tile.wrapping_sub(self.cursor.tile()) {
                0 => {}
                1 => self.advance(),
                _ => self.go_to(tile),
            }
            for &root in &self.nest.roots {
                self.step(root);
            }
        }
    }

    fn go_to(&mut self, tile: usize) {
        self.cursor.go_to(tile);
        self.done.clear();
        self.scout = None;
    }

    fn advance(&mut self) {
        if let Some(turned) = self.cursor.advance() {
            self.done.remove_all(&self.nest.outdated[turned]);
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
                let from = Source { at: self.cursor.at(*from), pitch: walk.pitch };
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
                let (first, walk) = (self.cursor.at(*walk).addr(), &nest.walks[*walk]);
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
        let is_asked_for = self.scout.as_ref().is_some_and(|scout| scout.tile() == self.cursor.tile());
        if !is_asked_for {
            self.asks.clear();
            pieces(&self.cursor, sudden).for_each(|piece| self.asks.add(piece));
        }
        self.asks.rest();
    }

    /// What kernels ask for meanwhile.
    fn asks_ahead(&mut self) -> &mut Asks {
        if let Some(sudden) = &self.nest.sudden
            && self.scout.as_ref().is_none_or(|scout| scout.tile() <= self.cursor.tile())
        {
            self.look_ahead(sudden);
        }
        &mut self.asks
    }

    /// Looks for the next tile that computes the branch, for kernels to ask for what it reads, and for what those before it copy:
    /// to ask for that as well took a chain of twelve ops 0.93 of its time on a Zen 5. Has the pages looked up that the result goes
    /// on in, each of which is asked for its first line; that took 0.96 of the time. Not inlined either.
    #[inline(never)]
    fn look_ahead(&mut self, sudden: &Sudden) {
        let scout = match &mut self.scout {
            Some(scout) if scout.tile() == self.cursor.tile() => scout,
            scout => scout.insert(self.cursor.clone()),
        };
        self.asks.clear();
        for _ in 0..MOST_PEEKED {
            if scout.advance().is_none() {
                return;
            }
            if let Some(result) = sudden.result {
                bring(scout.at(result).map_addr(|at| at.next_multiple_of(PAGE)), 1);
            }
            if computes_branch(scout, sudden) {
                pieces(scout, sudden).for_each(|piece| self.asks.add(piece));
                return;
            }
            if let Some(walk) = sudden.copied {
                self.asks.add(scout.piece(walk));
            }
        }
    }

    /// The part of the current tile that a step iterates over.
    fn extent_of(&self, step: &Step) -> Extent {
        let tile = self.cursor.extent();
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
            Place::Port(walk) => Target { at: self.cursor.at(walk), pitch: self.nest.walks[walk].pitch },
            Place::Scratch(offset, pitch) => {
                Target { at: self.scratch.wrapping_add(offset), pitch: pitch as isize }
            }
        }
    }

    /// Where an operand is, once the step that makes it has been run.
    fn source(&mut self, feed: Feed) -> Source {
        match feed {
            Feed::Walk(walk) => Source { at: self.cursor.at(walk), pitch: self.nest.walks[walk].pitch },
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

/// Whether a tile computes the branch; where only its verdict will say, it may.
fn computes_branch(tile: &Cursor<'_>, sudden: &Sudden) -> bool {
    // SAFETY: the walk is at the condition of a tile of the nest.
    let is_true = |cond: usize| unsafe { Source { at: tile.at(cond), pitch: 0 }.is_true(0) };
    sudden.cond.is_none_or(|(cond, decides)| is_true(cond) == decides)
}

/// What a tile reads where it computes the branch.
fn pieces(tile: &Cursor<'_>, sudden: &Sudden) -> impl Iterator<Item = Piece> {
    sudden.walks.iter().map(|&walk| tile.piece(walk))
}
