//! Runs the tiles of a nest on one thread.
#![allow(unsafe_code, reason = "steps run on raw memory that was checked before")]

use std::ops::Range;

use smallvec::SmallVec;

use super::Bindings;
use super::cursor::Cursor;
use crate::kernels::pointwise::{KeepParameters, LinearIndex};
use crate::kernels::prefetch::{MemRange, PrefetchQueue};
use crate::kernels::select::MaskClass;
use crate::kernels::{Extent, InnerStride, Source, Target, prefetch_l1};
use crate::plan::{
    Base, Branch, Dest, Instr, LookaheadPrefetch, LoopNest, Operand, Plan, Select, Step, StepSet, Traversal,
};

/// Bytes of the smallest page.
const PAGE: usize = 4096;

/// Runs tiles of one nest on one thread.
pub(super) struct Interpreter<'a> {
    nest: &'a LoopNest,
    /// Where the selects write; see [`select_dests`].
    select_dests: &'a [SelectDest],
    scratch: *mut u8,
    /// At the current tile.
    cursor: Cursor<'a>,
    /// The steps whose results are those of the current tile.
    valid: StepSet,
    /// At the tile that `queue` belongs to, once one has been looked for.
    lookahead_cursor: Option<Cursor<'a>>,
    /// Ranges to prefetch for the next tile that computes the branch, and for the tiles before it, which
    /// copy.
    queue: PrefetchQueue,
}

impl<'a> Interpreter<'a> {
    /// Starts at the first tile. Inlined, so that the interpreter is not moved after it is made.
    #[inline(always)]
    pub(super) fn new(
        plan: &Plan,
        nest: &'a LoopNest,
        bindings: &Bindings,
        select_dests: &'a [SelectDest],
        scratch: *mut u8,
    ) -> Self {
        Self {
            nest,
            select_dests,
            scratch,
            cursor: Cursor::new(nest, &plan.constants, bindings),
            valid: StepSet::none_of(nest.steps.len()),
            lookahead_cursor: None,
            queue: PrefetchQueue::default(),
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
        self.valid.clear();
        self.lookahead_cursor = None;
    }

    fn advance(&mut self) {
        if let Some(advanced) = self.cursor.advance() {
            self.valid.remove_all(&self.nest.invalidated_by[advanced]);
        }
    }

    /// Runs a step after its dependencies, unless its result is valid.
    fn step(&mut self, index: usize) {
        if self.valid.contains(index) {
            return;
        }
        self.valid.insert(index);
        let nest = self.nest;
        let step = &nest.steps[index];
        if let Some(lookahead) = &nest.lookahead
            && lookahead.step == index
        {
            self.prefetch_here(lookahead);
        }
        let extent = self.extent_of(step);
        let to = self.dest(step.to);
        match &step.instr {
            Instr::PackTile { from, distance, kernel } => {
                let access = &nest.accesses[*from];
                let from = Source { at: self.cursor.at(*from), row_stride: access.row_stride };
                // SAFETY: the access stays within its port for every tile of the nest, the target is scratch
                // with room for a tile, and the plan's level was available when the plan was made.
                unsafe { kernel(extent, from, access.col_stride, *distance, to) };
            }
            Instr::Select(select) => {
                let dest = self.select_dests.get(index).copied().unwrap_or(SelectDest::Out);
                self.select(select, dest, extent, to);
            }
            Instr::Move { from, kernel } => {
                let from = self.source(*from);
                // SAFETY: source and target cover the part of the tile. Steps share scratch only if the
                // kernel may write over its operand, so the two have one address or do not overlap.
                unsafe { kernel(extent, from, to) };
            }
            Instr::Unary { x, kernel, params } => {
                let x = self.source(*x);
                // SAFETY: as for `Move`.
                unsafe { kernel(extent, x, to, params, self.prefetch_queue()) };
            }
            Instr::Binary { x, y, kernel, params } => {
                let (x, y) = (self.source(*x), self.source(*y));
                // SAFETY: as for `Move`.
                unsafe { kernel(extent, x, y, to, params) };
            }
            Instr::Index { access, kernel } => {
                let (first, access) = (self.cursor.at(*access).addr(), &nest.accesses[*access]);
                // SAFETY: the target covers the part of the tile.
                unsafe {
                    kernel(extent, first as i32, access.row_stride as i32, access.col_stride as i32, to)
                };
            }
            Instr::IsKept { access, seed, offset, probability, kernel } => {
                let (first, access) = (self.cursor.at(*access).addr(), &nest.accesses[*access]);
                let [seed, offset, probability] =
                    [*seed, *offset, *probability].map(|operand| self.source(operand).at);
                let index = LinearIndex {
                    first: first as u64,
                    row_step: access.row_stride as u64,
                    column_step: access.col_stride as u64,
                };
                // SAFETY: the parameters are one element each, and the target covers the part of the tile.
                unsafe { kernel(extent, index, KeepParameters { seed, offset, probability }, to) };
            }
            Instr::FusedKernel(fused) => {
                let sources: SmallVec<[Source; 6]> =
                    fused.operands.iter().map(|&operand| self.source(operand)).collect();
                let scratch = self.scratch.wrapping_add(nest.fused_scratch);
                // SAFETY: as for `Move`; the nest's scratch has room for the fused kernel behind the results
                // of steps.
                unsafe { fused.program.run(extent, &sources, to, scratch) };
            }
            Instr::UnpackTile { from, kernel } => {
                let Dest::Port(access) = step.to else { return };
                let from = self.source(*from);
                // SAFETY: as for `PackTile`, with scratch as the source and the port as the target.
                unsafe { kernel(extent, from, to, nest.accesses[access].col_stride) };
            }
        }
    }

    /// Prefetches the rest of this tile. Not inlined, so that steps without prefetch stay short.
    #[inline(never)]
    fn prefetch_here(&mut self, lookahead: &LookaheadPrefetch) {
        let is_prefetched = self
            .lookahead_cursor
            .as_ref()
            .is_some_and(|lookahead_cursor| lookahead_cursor.tile() == self.cursor.tile());
        if !is_prefetched {
            self.queue.clear();
            ranges(&self.cursor, lookahead).for_each(|range| self.queue.add(range));
        }
        self.queue.prefetch_rest();
    }

    /// The queue from which kernels prefetch while they compute.
    fn prefetch_queue(&mut self) -> &mut PrefetchQueue {
        if let Some(lookahead) = &self.nest.lookahead
            && self
                .lookahead_cursor
                .as_ref()
                .is_none_or(|lookahead_cursor| lookahead_cursor.tile() <= self.cursor.tile())
        {
            self.look_ahead(lookahead);
        }
        &mut self.queue
    }

    /// Looks for the next tile that computes the branch, and queues its reads and the copies of the tiles
    /// before it. Also prefetches the first line of each page of the result, so that its address is
    /// translated early (decision: lookahead-copied). Not inlined either.
    #[inline(never)]
    fn look_ahead(&mut self, lookahead: &LookaheadPrefetch) {
        let lookahead_cursor = match &mut self.lookahead_cursor {
            Some(lookahead_cursor) if lookahead_cursor.tile() == self.cursor.tile() => lookahead_cursor,
            lookahead_cursor => lookahead_cursor.insert(self.cursor.clone()),
        };
        self.queue.clear();
        for _ in 0..lookahead.tiles {
            if lookahead_cursor.advance().is_none() {
                return;
            }
            if let Some(result) = lookahead.result {
                prefetch_l1(lookahead_cursor.at(result).map_addr(|at| at.next_multiple_of(PAGE)), 1);
            }
            if computes_branch(lookahead_cursor, lookahead) {
                ranges(lookahead_cursor, lookahead).for_each(|range| self.queue.add(range));
                return;
            }
            if let Some(access) = lookahead.copied {
                self.queue.add(lookahead_cursor.range(access));
            }
        }
    }

    /// The part of the current tile that a step iterates over.
    fn extent_of(&self, step: &Step) -> Extent {
        let tile = self.cursor.extent();
        match step.traversal {
            Traversal::RowByRow => Extent {
                rows: if step.space.rows { tile.rows } else { 1 },
                columns: match step.space.columns {
                    InnerStride::Contiguous => tile.columns,
                    InnerStride::Broadcast => 1,
                },
            },
            Traversal::Flat => Extent { rows: 1, columns: tile.rows * tile.columns },
            Traversal::Column => Extent { rows: 1, columns: tile.rows },
        }
    }

    fn dest(&self, dest: Dest) -> Target {
        match dest {
            Dest::Port(access) => {
                Target { at: self.cursor.at(access), row_stride: self.nest.accesses[access].row_stride }
            }
            Dest::Scratch(offset, row_stride) => {
                Target { at: self.scratch.wrapping_add(offset), row_stride: row_stride as isize }
            }
        }
    }

    /// Address of an operand, after running the step that computes it.
    fn source(&mut self, operand: Operand) -> Source {
        match operand {
            Operand::Access(access) => {
                Source { at: self.cursor.at(access), row_stride: self.nest.accesses[access].row_stride }
            }
            Operand::Step(index) => {
                self.step(index);
                let step = &self.nest.steps[index];
                let Target { at, row_stride } = self.dest(step.to);
                Source { at, row_stride: if step.space.rows { row_stride } else { 0 } }
            }
        }
    }

    /// Tests the mask first, then runs the steps that are needed: those of one branch if the mask is uniform,
    /// else of both.
    fn select(&mut self, select: &Select, dest: SelectDest, extent: Extent, to: Target) {
        if dest == SelectDest::OverBoth {
            return;
        }
        let cond = self.source(select.cond);
        if select.cond_inner == InnerStride::Broadcast {
            return self.select_rows(select, dest, extent, cond, to);
        }
        let class = match select.classify_mask {
            Some(classify_mask) => {
                let tested = if cond.row_stride == 0 { Extent { rows: 1, ..extent } } else { extent };
                // SAFETY: the condition of every element of the tile can be read, at the plan's level.
                unsafe { classify_mask(tested, cond) }
            }
            None => MaskClass::Mixed,
        };
        match class {
            MaskClass::AllTrue => self.copy_branch(select, true, dest, extent, 0, to),
            MaskClass::AllFalse => self.copy_branch(select, false, dest, extent, 0, to),
            MaskClass::Mixed => self.select_elements(select, dest, extent, cond, to),
        }
    }

    /// Selects element by element. If the result is in place of a branch, that branch needs no copy.
    fn select_elements(
        &mut self,
        select: &Select,
        dest: SelectDest,
        extent: Extent,
        cond: Source,
        to: Target,
    ) {
        let (own, other) = match dest {
            SelectDest::OverBoth => return,
            SelectDest::OverThen => (&select.then, &select.else_),
            SelectDest::OverElse => (&select.else_, &select.then),
            SelectDest::Out => {
                let (then, else_) = (self.source(select.then.operand), self.source(select.else_.operand));
                // SAFETY: every operand covers the tile, and the target overlaps none.
                return unsafe { (select.blend)(extent, cond, then, else_, to, select.distance) };
            }
        };
        let other = self.source(other.operand);
        // SAFETY: every operand covers the tile. The target holds the branch that it is in place of, and
        // overlaps no other operand.
        unsafe { (own.select_in_place)(extent, cond, other, to, select.stores) };
    }

    /// Selects whole rows, if the condition does not vary along a row; neighbouring rows of one branch are
    /// moved together.
    fn select_rows(&mut self, select: &Select, dest: SelectDest, extent: Extent, cond: Source, to: Target) {
        if let Some(blend_rows) = select.blend_rows
            && dest == SelectDest::Out
        {
            let (then, else_) = (self.source(select.then.operand), self.source(select.else_.operand));
            // SAFETY: every operand covers the tile, and the target overlaps none.
            return unsafe { blend_rows(extent, cond, then, else_, to) };
        }
        // SAFETY: the condition of each row of the tile can be read.
        let is_true = |row: usize| unsafe { cond.is_true(row) };
        // The result may share its scratch with operands of a branch, so branches are computed before it.
        for (branch, decides) in [(&select.then, true), (&select.else_, false)] {
            if matches!(branch.operand, Operand::Step(_))
                && (0..extent.rows).any(|row| is_true(row) == decides)
            {
                self.source(branch.operand);
            }
        }
        let mut row = 0;
        while row < extent.rows {
            let decision = is_true(row);
            let count = match cond.row_stride {
                0 => extent.rows - row,
                _ => (row..extent.rows).take_while(|&row| is_true(row) == decision).count(),
            };
            self.copy_branch(select, decision, dest, Extent { rows: count, ..extent }, row, to);
            row += count;
        }
    }

    /// Copies some rows of the branch for a condition to the result, from row `first` on.
    fn copy_branch(
        &mut self,
        select: &Select,
        cond: bool,
        dest: SelectDest,
        rows: Extent,
        first: usize,
        to: Target,
    ) {
        let (branch, over) = match cond {
            true => (&select.then, SelectDest::OverThen),
            false => (&select.else_, SelectDest::OverElse),
        };
        let copy = match dest {
            SelectDest::Out => branch.copy,
            _ if dest == over => return,
            // The result is where the other branch was read a moment ago, so probably in the caches.
            _ => branch.copy_in_place,
        };
        let from = self.source(branch.operand).at_row(first);
        // SAFETY: the rows are within the tile, which both cover, and the two do not overlap.
        unsafe { copy(rows, from, to.at_row(first)) };
    }
}

/// Where a select writes in an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SelectDest {
    /// Beside its branches.
    Out,
    /// Over the branch for true.
    OverThen,
    /// Over the branch for false.
    OverElse,
    /// Over the one input that both branches are, which the result already is.
    OverBoth,
}

/// For each step of a nest where it writes if it is a select; empty if no output is in place. Resolved once
/// for each execution.
pub(super) type SelectDests = SmallVec<[SelectDest; 64]>;

/// Resolves where selects write, given the pairs of ports that share one buffer.
pub(super) fn select_dests(nest: &LoopNest, in_place: &[(usize, usize)]) -> SelectDests {
    if in_place.is_empty() {
        return SelectDests::new();
    }
    let is_over = |branch: &Branch, to: Dest| {
        let Dest::Port(access) = to else { return false };
        let is_of = |&(input, output): &(usize, usize)| {
            branch.in_place_of == Some(input) && nest.accesses[access].base == Base::Port(output)
        };
        in_place.iter().any(is_of)
    };
    let dest = |step: &Step| match &step.instr {
        Instr::Select(select) => match (is_over(&select.then, step.to), is_over(&select.else_, step.to)) {
            (false, false) => SelectDest::Out,
            (true, false) => SelectDest::OverThen,
            (false, true) => SelectDest::OverElse,
            (true, true) => SelectDest::OverBoth,
        },
        _ => SelectDest::Out,
    };
    nest.steps.iter().map(dest).collect()
}

/// Whether a tile computes the branch; true if only its mask test can tell.
fn computes_branch(tile: &Cursor<'_>, lookahead: &LookaheadPrefetch) -> bool {
    // SAFETY: the access addresses the condition of a tile of the nest.
    let is_true = |cond: usize| unsafe { Source { at: tile.at(cond), row_stride: 0 }.is_true(0) };
    lookahead.cond.is_none_or(|(cond, decides)| is_true(cond) == decides)
}

/// The ranges that a tile reads if it computes the branch.
fn ranges(tile: &Cursor<'_>, lookahead: &LookaheadPrefetch) -> impl Iterator<Item = MemRange> {
    lookahead.accesses.iter().map(|&access| tile.range(access))
}
