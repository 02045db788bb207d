//! Runs a tile program, one tile at a time, on one thread.
#![allow(unsafe_code, reason = "steps run on raw memory that was checked before")]

use smallvec::SmallVec;

use super::bindings::Bindings;
use super::cursor::Cursor;
use crate::kernels::pointwise::{KeepParameters, LinearIndex};
use crate::kernels::prefetch::PrefetchQueue;
use crate::kernels::select::MaskClass;
use crate::kernels::{Extent, InnerStride, Source, Target};
use crate::plan::{
    Access, AccessId, Base, Branch, Dest, InPlacePorts, Instr, LoopNest, LoopSet, Operand, Select, Step,
    StepId, StepSet, TileProgram, Traversal,
};

/// The operands of a tile program, told by the driver of the phase: the present tile, and the address of each
/// access in the tile.
///
/// A driver that computes operands of its own (`Base::Driver`) wraps a cursor, and overrides
/// [`at`](Self::at): for such an access, `at` computes the operand into the thread's scratch, at most once a
/// tile. The interpreter calls `at` only for accesses that the tile needs. The memory of a driver's operand
/// overlaps no other operand and no scratch of the program.
pub(super) trait TileOperands<'a> {
    /// The cursor at the present tile.
    fn cursor(&mut self) -> &mut Cursor<'a>;

    /// Runs a kernel that prefetches while it computes, with the ranges to prefetch: none, unless the driver
    /// looks ahead.
    #[inline(always)]
    fn with_prefetch(&mut self, kernel: impl FnOnce(&mut PrefetchQueue)) {
        kernel(&mut PrefetchQueue::default());
    }

    /// The address of an access in the present tile. For an access that is read: after its elements are
    /// there.
    #[inline(always)]
    fn at(&mut self, access: AccessId) -> *mut u8 {
        self.cursor().at(access)
    }

    /// Called when a step is about to run.
    #[inline(always)]
    fn begin_step(&mut self, _step: StepId) {}

    /// Called when the next tile does not follow the present one.
    #[inline(always)]
    fn jump(&mut self) {}
}

/// Operands that stay with their driver, so that making an interpreter does not move them
/// (decision: operands-in-place).
impl<'a, O: TileOperands<'a>> TileOperands<'a> for &mut O {
    #[inline(always)]
    fn cursor(&mut self) -> &mut Cursor<'a> {
        (**self).cursor()
    }

    #[inline(always)]
    fn with_prefetch(&mut self, kernel: impl FnOnce(&mut PrefetchQueue)) {
        (**self).with_prefetch(kernel);
    }

    #[inline(always)]
    fn at(&mut self, access: AccessId) -> *mut u8 {
        (**self).at(access)
    }

    #[inline(always)]
    fn begin_step(&mut self, step: StepId) {
        (**self).begin_step(step);
    }

    #[inline(always)]
    fn jump(&mut self) {
        (**self).jump();
    }
}

/// Runs a tile program on the tiles of one nest, on one thread; one copy of the code for each driver.
pub(super) struct Interpreter<'a, O> {
    program: &'a TileProgram,
    /// The program's accesses, found once, because a small vector tests on each use whether its elements
    /// are inline.
    accesses: &'a [Access],
    /// Where the selects write; see [`select_dests`].
    select_dests: &'a [SelectDest],
    /// Scratch of the program.
    scratch: *mut u8,
    /// The steps whose results are those of the present tile.
    valid: StepSet,
    pub(super) operands: O,
}

impl<'a, O: TileOperands<'a>> Interpreter<'a, O> {
    /// Starts at the first tile. Inlined, so that the interpreter is not moved after it is made.
    #[inline(always)]
    pub(super) fn new(
        program: &'a TileProgram,
        select_dests: &'a [SelectDest],
        scratch: *mut u8,
        operands: O,
    ) -> Self {
        let (accesses, valid) = (&program.accesses[..], StepSet::none_of(program.steps.len()));
        Self { program, accesses, select_dests, scratch, valid, operands }
    }

    /// The program.
    pub(super) fn program(&self) -> &'a TileProgram {
        self.program
    }

    /// Runs the program on a tile of its nest.
    #[inline(always)]
    pub(super) fn run(&mut self, tile: usize) {
        match tile.wrapping_sub(self.operands.cursor().tile()) {
            0 => {}
            1 => {
                let changed = self.operands.cursor().advance();
                self.invalidate(changed);
            }
            _ => self.go_to(tile),
        }
        self.run_here();
    }

    /// Runs the program on the present tile.
    #[inline(always)]
    pub(super) fn run_here(&mut self) {
        for &root in &self.program.roots {
            self.step(root);
        }
    }

    /// Goes to a tile of the nest; no result is valid there.
    pub(super) fn go_to(&mut self, tile: usize) {
        self.operands.cursor().go_to(tile);
        self.operands.jump();
        self.valid.clear();
    }

    /// Invalidates the results that vary along loops that changed.
    #[inline(always)]
    fn invalidate(&mut self, mut changed: LoopSet) {
        while changed != 0 {
            self.valid.remove_all(&self.program.invalidated_by[changed.trailing_zeros() as usize]);
            changed &= changed - 1;
        }
    }

    /// The indices in the present tile of an access that goes through indices.
    fn linear_index(&mut self, access: AccessId) -> LinearIndex {
        let (first, access) = (self.operands.at(access).addr(), &self.accesses[access]);
        LinearIndex {
            first: first as u64,
            row_step: access.row_stride as u64,
            column_step: access.col_stride as u64,
        }
    }

    /// Runs a step after its dependencies, unless its result is valid.
    fn step(&mut self, index: StepId) {
        if self.valid.contains(index) {
            return;
        }
        self.valid.insert(index);
        let step = &self.program.steps[index];
        self.operands.begin_step(index);
        let extent = self.extent_of(step);
        let to = self.dest(step.to);
        match &step.instr {
            Instr::PackTile { from, distance, kernel } => {
                let access = &self.accesses[*from];
                let from = Source { at: self.operands.at(*from), row_stride: access.row_stride };
                // SAFETY: the access stays within its memory for every tile of the nest. The target is
                // scratch with room for a tile, or an output that is in place of no input. The plan's level
                // was available when the plan was made.
                unsafe { kernel(extent, from, access.col_stride, *distance, to) };
            }
            Instr::Select(select) => {
                let dest = self.select_dests.get(index.0).copied().unwrap_or(SelectDest::Out);
                self.select(select, dest, extent, to);
            }
            Instr::Move { from, kernel } => {
                let from = self.source(*from);
                // SAFETY: source and target cover the part of the tile. Steps share scratch only if the
                // kernel may write over its operand, so the two have one address or do not overlap.
                unsafe { kernel(extent, from, to) };
            }
            Instr::Repeat { from, width, rows } => {
                let from = self.source(*from);
                // SAFETY: as for `Move`, and the scratch has room for all rows of a whole tile.
                unsafe { repeat_row(from.at, extent.columns * width.bytes(), *rows, to) };
            }
            Instr::Unary { x, kernel, params } => {
                let x = self.source(*x);
                // SAFETY: as for `Move`.
                self.operands.with_prefetch(|queue| unsafe { kernel(extent, x, to, params, queue) });
            }
            Instr::Binary { x, y, kernel, params } => {
                let (x, y) = (self.source(*x), self.source(*y));
                // SAFETY: as for `Move`.
                unsafe { kernel.run(extent, x, y, to, params) };
            }
            Instr::Index { access, kernel } => {
                let (first, access) = (self.operands.at(*access).addr(), &self.accesses[*access]);
                // SAFETY: the target covers the part of the tile.
                unsafe {
                    kernel(extent, first as i32, access.row_stride as i32, access.col_stride as i32, to)
                };
            }
            Instr::Nibbles { index, from, kernel } => {
                let (index, from) = (self.linear_index(*index), self.operands.at(*from));
                // SAFETY: the index stays within the port for every tile of the nest, and the target is
                // scratch with room for a tile.
                unsafe { kernel(extent, from, index, to) };
            }
            Instr::IsKept { access, seed, offset, probability, kernel } => {
                let index = self.linear_index(*access);
                let [seed, offset, probability] =
                    [*seed, *offset, *probability].map(|operand| self.source(operand).at);
                // SAFETY: the parameters are one element each, and the target covers the part of the tile.
                unsafe { kernel(extent, index, KeepParameters { seed, offset, probability }, to) };
            }
            Instr::FusedKernel(fused) => {
                let sources: SmallVec<[Source; 6]> =
                    fused.operands.iter().map(|&operand| self.source(operand)).collect();
                let scratch = self.scratch.wrapping_add(self.program.fused_scratch);
                // SAFETY: as for `Move`; the program's scratch has room for the fused kernel behind the
                // results of steps.
                unsafe { fused.program.run(extent, &sources, to, scratch) };
            }
            Instr::UnpackTile { from, kernel } => {
                let Dest::Access(access) = step.to else { return };
                let from = self.source(*from);
                // SAFETY: as for `PackTile`, with scratch as the source and the memory of the access as the
                // target.
                unsafe { kernel(extent, from, to, self.accesses[access].col_stride) };
            }
        }
    }

    /// The part of the current tile that a step iterates over.
    fn extent_of(&mut self, step: &Step) -> Extent {
        let tile = self.operands.cursor().extent();
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

    fn dest(&mut self, dest: Dest) -> Target {
        match dest {
            Dest::Access(access) => {
                Target { at: self.operands.at(access), row_stride: self.accesses[access].row_stride }
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
                Source { at: self.operands.at(access), row_stride: self.accesses[access].row_stride }
            }
            Operand::Step(index) => {
                self.step(index);
                let step = &self.program.steps[index];
                let Target { at, row_stride } = self.dest(step.to);
                Source { at, row_stride: if step.space.rows { row_stride } else { 0 } }
            }
        }
    }

    /// Tests the mask first, then runs the steps that are needed: those of one branch if the mask is uniform,
    /// else of both.
    fn select(&mut self, select: &Select, dest: SelectDest, extent: Extent, to: Target) {
        // Steps behind count on it: scratch that leads to the condition may be theirs afterwards.
        let cond = self.source(select.cond);
        if dest == SelectDest::OverBoth {
            return;
        }
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

    /// Selects element by element. A branch that the result is in place of needs no copy.
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

/// Copies a row to rows.
///
/// # Safety
///
/// The row can be read and all rows be written, and the row overlaps none of them.
unsafe fn repeat_row(row: *const u8, bytes: usize, rows: usize, to: Target) {
    // SAFETY: as the caller promises.
    unsafe {
        if to.row_stride != bytes as isize {
            for index in 0..rows {
                to.at_row(index).at.copy_from_nonoverlapping(row, bytes);
            }
            return;
        }
        to.at.copy_from_nonoverlapping(row, bytes);
        let (mut done, all) = (bytes, rows * bytes);
        while done < all {
            let next = done.min(all - done);
            to.at.add(done).copy_from_nonoverlapping(to.at, next);
            done += next;
        }
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
    /// Over the one input that is both branches and already holds the result.
    OverBoth,
}

/// For each step of a program where it writes if it is a select; empty if no output is in place. Resolved
/// once for each execution.
pub(super) type SelectDests = SmallVec<[SelectDest; 64]>;

/// Resolves where the selects of a nest's program write, given the pairs of ports that share one buffer.
pub(super) fn select_dests<'a>(nest: impl Into<Option<&'a LoopNest>>, bindings: &Bindings) -> SelectDests {
    let Some(LoopNest { program, .. }) = nest.into().filter(|_| !bindings.in_place.is_empty()) else {
        return SelectDests::new();
    };
    let is_over = |branch: &Branch, to: Dest| {
        let Dest::Access(access) = to else { return false };
        let is_of = |&InPlacePorts { input, output }: &InPlacePorts| {
            branch.in_place_of == Some(input) && program.accesses[access].base == Base::Port(output)
        };
        bindings.in_place.iter().any(is_of)
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
    program.steps.iter().map(dest).collect()
}
