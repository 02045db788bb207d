//! Runs the tiles of a map phase: all operands of its tile program are in memory.
#![allow(unsafe_code, reason = "a condition is read from raw memory that was checked before")]

use super::bindings::Bindings;
use super::cursor::Cursor;
use super::interpreter::{Interpreter, TileOperands, select_dests};
use super::task_runner::TaskRunner;
use crate::error::Result;
use crate::kernels::prefetch::{MemRange, PrefetchQueue};
use crate::kernels::{Source, prefetch_l1};
use crate::plan::{AccessId, LookaheadPrefetch, LoopNest, Plan, StepId};

/// Bytes of the smallest page.
const PAGE: usize = 4096;

/// Runs all tiles of a nest.
pub(super) fn run(nest: &LoopNest, plan: &Plan, bindings: &Bindings, runner: &TaskRunner<'_>) -> Result<()> {
    let select_dests = select_dests(nest, bindings);
    runner.run(nest.tiles(), |thread, ranges| {
        let scratch = bindings.scratch_of(thread, plan.scratch);
        let mut operands = MapOperands::new(nest, &plan.constants, bindings);
        let mut interpreter = Interpreter::new(&nest.program, &select_dests, scratch, &mut operands);
        ranges.for_each(|tiles| tiles.for_each(|tile| interpreter.run(tile)));
    })
}

/// The operands of a map phase, and what to prefetch of them.
struct MapOperands<'a> {
    lookahead: Option<&'a LookaheadPrefetch>,
    /// At the present tile.
    cursor: Cursor<'a>,
    /// At the tile that `queue` belongs to, once one has been looked for.
    lookahead_cursor: Option<Cursor<'a>>,
    /// Ranges to prefetch for the next tile that computes the branch, and for the tiles before it, which
    /// copy.
    queue: PrefetchQueue,
}

impl<'a> MapOperands<'a> {
    /// Starts at the first tile. Inlined, so that the operands are not moved after they are made.
    #[inline(always)]
    fn new(nest: &'a LoopNest, constants: &[[u8; 8]], bindings: &Bindings) -> Self {
        Self {
            lookahead: nest.program.lookahead.as_ref(),
            cursor: Cursor::new(nest, constants, bindings),
            lookahead_cursor: None,
            queue: PrefetchQueue::default(),
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
            if lookahead_cursor.advance() == 0 {
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
}

impl<'a> TileOperands<'a> for MapOperands<'a> {
    #[inline(always)]
    fn cursor(&mut self) -> &mut Cursor<'a> {
        &mut self.cursor
    }

    fn with_prefetch(&mut self, kernel: impl FnOnce(&mut PrefetchQueue)) {
        if let Some(lookahead) = self.lookahead
            && self
                .lookahead_cursor
                .as_ref()
                .is_none_or(|lookahead_cursor| lookahead_cursor.tile() <= self.cursor.tile())
        {
            self.look_ahead(lookahead);
        }
        kernel(&mut self.queue);
    }

    #[inline(always)]
    fn begin_step(&mut self, step: StepId) {
        if let Some(lookahead) = self.lookahead
            && lookahead.step == step
        {
            self.prefetch_here(lookahead);
        }
    }

    fn jump(&mut self) {
        self.lookahead_cursor = None;
    }
}

/// True if a tile computes the branch, as far as can be told without its mask test.
fn computes_branch(tile: &Cursor<'_>, lookahead: &LookaheadPrefetch) -> bool {
    // SAFETY: the access addresses the condition of a tile of the nest.
    let is_true = |cond: AccessId| unsafe { Source { at: tile.at(cond), row_stride: 0 }.is_true(0) };
    lookahead.cond.is_none_or(|(cond, decides)| is_true(cond) == decides)
}

/// The ranges that a tile reads if it computes the branch.
fn ranges(tile: &Cursor<'_>, lookahead: &LookaheadPrefetch) -> impl Iterator<Item = MemRange> {
    lookahead.accesses.iter().map(|&access| tile.range(access))
}
