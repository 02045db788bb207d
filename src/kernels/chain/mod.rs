//! Chains: several pointwise steps at once, block by block, what one leaves to the next staying in registers.
//!
//! A [`Program`] is a row of stages. Each is a function that takes the state (a block of 64 elements and 64 truth
//! values) in vector registers, does one thing to it, and ends with a call of the next one, which the compiler makes a
//! jump: Skia's raster pipeline is built the same way. In the first-level cache of a Zen 4 a stage takes 2.5 ns for 64
//! f32 where a step over a tile takes 4 to 7, and beyond the caches the work of all stages goes on while memory is
//! waited for, which tile after tile it does not.
//!
//! Registers hold one block. What is needed again later, or second, lies in the thread's scratch, block by block. At
//! level Portable there are no vectors to pass, so there are no chains.

mod stages;
mod vectors;

use smallvec::SmallVec;

pub(in crate::kernels) use stages::{asked1, asked2, logic, map1, map2, not};
pub(crate) use stages::{canonical, choose, load, load_mask, store, store_mask};

use super::pointwise::Params;
use super::{ByLevel, Extent, Inner, Source, Stores, Target, Width};
use crate::types::kind::Level;

/// Elements of a block.
pub(crate) const BLOCK: usize = 64;

/// Bytes of a block of the widest elements that a state holds.
const SLOT: usize = BLOCK * 4;

/// One thing done to the state. Only a program of the stage's level can call it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stage(unsafe extern "C" fn());

/// A stage at every level that has chains.
pub(crate) type Stages = ByLevel<Option<Stage>>;

/// A stage with what it works on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) stage: Stage,
    /// The operand in memory, by its place among the cells; any where the stage uses none.
    pub(crate) cell: usize,
    pub(crate) params: Params,
}

/// Where the first block of an operand lies in a row; the others lie so many bytes further with each block, and with each
/// row.
#[derive(Debug, Clone, Copy)]
struct Cell {
    at: *mut u8,
    advance: usize,
    pitch: isize,
}

impl Cell {
    /// Dense rows.
    fn along(at: *mut u8, width: Width, pitch: isize) -> Self {
        Self { at, advance: BLOCK * width.bytes(), pitch }
    }
}

/// An operand in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Operand {
    pub(crate) width: Width,
    pub(crate) inner: Inner,
}

/// A row of stages that computes a tile of one result from tiles of operands.
///
/// Its cells are those of the operands, in their order, that of the result, and one for each value that is put aside.
#[derive(Debug)]
pub(crate) struct Program {
    level: Level,
    calls: Vec<Call>,
    operands: SmallVec<[Operand; 4]>,
    result: Width,
    stores: Stores,
    cells: usize,
}

impl Program {
    /// A program of stages of a level, the last of which stores the result so, with so many values put aside; nothing
    /// where the level has no chains.
    pub(crate) fn new(
        level: Level,
        mut calls: Vec<Call>,
        operands: SmallVec<[Operand; 4]>,
        result: Width,
        stores: Stores,
        aside: usize,
    ) -> Option<Self> {
        let last = Call { stage: stages::LAST[level as usize]?, cell: 0, params: [0.0; 2] };
        calls.push(last);
        let cells = operands.len() + 1 + aside;
        Some(Self { level, calls, operands, result, stores, cells })
    }

    /// Bytes of scratch, aligned to a cache line.
    pub(crate) fn scratch(&self) -> usize {
        self.slots_at() + self.cells * SLOT
    }

    /// Where the slots begin behind the cells.
    fn slots_at(&self) -> usize {
        (self.cells * size_of::<Cell>()).next_multiple_of(64)
    }

    /// Computes a tile.
    ///
    /// # Safety
    ///
    /// Every element of the tile can be read from the sources, of which there is one for each operand, and written to
    /// the target; the target is at the very address and pitch of a source of its width or overlaps none; the scratch
    /// is [`scratch`](Self::scratch) bytes of this thread's own; the machine runs the program's level. Streamed
    /// results are followed by a [`fence`](super::simd::StoreFence) on the same thread.
    pub(crate) unsafe fn run(&self, extent: Extent, sources: &[Source], to: Target, scratch: *mut u8) {
        let cells = scratch.cast::<Cell>();
        let slot = |cell: usize| scratch.wrapping_add(self.slots_at() + cell * SLOT);
        // SAFETY: the scratch has room for all cells.
        let set = |cell: usize, to: Cell| unsafe { cells.add(cell).write(to) };
        // SAFETY: every cell holds so many rows of so many elements: dense ones those of the tile, slots a block that
        // stays; a program ends with the last stage, and all its stages are of its level.
        let run = |extent: Extent| unsafe {
            stages::RUN[self.level as usize](self.calls.as_ptr(), cells, self.cells, extent);
        };
        let in_slot = |cell: usize| Cell { at: slot(cell), advance: 0, pitch: 0 };
        let result = self.operands.len();
        (result + 1..self.cells).for_each(|cell| set(cell, in_slot(cell)));
        // Operands of one element a row, and rows that start between cache lines, are seen to row by row.
        let is_repeated = |operand: &Operand| operand.inner == Inner::Repeated;
        let varies = |(operand, from): (&Operand, &Source)| is_repeated(operand) && from.pitch != 0;
        let by_rows = self.stores == Stores::Streaming || self.operands.iter().zip(sources).any(varies);
        let step = if by_rows { 1 } else { extent.rows };
        for row in (0..extent.rows).step_by(step) {
            for (cell, (operand, from)) in self.operands.iter().zip(sources).enumerate() {
                let at: *const u8 = from.row(row);
                if !is_repeated(operand) {
                    set(cell, Cell::along(at.cast_mut(), operand.width, from.pitch));
                } else if row == 0 || from.pitch != 0 {
                    // SAFETY: the row has an element, as the caller promises, and a slot room for a block.
                    unsafe { repeat(operand.width, at, slot(cell)) };
                    set(cell, in_slot(cell));
                }
            }
            let at = to.row(row);
            set(result, Cell::along(at, self.result, to.pitch));
            let head = self.head(at, extent.columns);
            if head > 0 {
                run(Extent { rows: 1, columns: head });
                for (cell, (operand, from)) in self.operands.iter().zip(sources).enumerate() {
                    if !is_repeated(operand) {
                        let at = from.row::<u8>(row).wrapping_add(head * operand.width.bytes());
                        set(cell, Cell::along(at.cast_mut(), operand.width, from.pitch));
                    }
                }
                set(result, Cell::along(at.wrapping_add(head * self.result.bytes()), self.result, to.pitch));
            }
            run(Extent { rows: step, columns: extent.columns - head });
        }
    }

    /// How many elements of a row come before the first cache line of the result: past the caches goes a line at a time.
    fn head(&self, to: *mut u8, columns: usize) -> usize {
        let (before, width) = (to.addr().wrapping_neg() % 64, self.result.bytes());
        let is_worth_it = self.stores == Stores::Streaming && before % width == 0 && columns >= 2 * BLOCK;
        if is_worth_it { before / width } else { 0 }
    }
}

/// Fills a slot with one element.
///
/// # Safety
///
/// The element can be read, and a block of its width written.
unsafe fn repeat(width: Width, from: *const u8, to: *mut u8) {
    /// # Safety
    ///
    /// As for [`repeat`].
    unsafe fn filled<U: Copy>(from: *const u8, to: *mut u8) {
        // SAFETY: as the caller promises.
        unsafe { to.cast::<[U; BLOCK]>().write_unaligned([from.cast::<U>().read_unaligned(); BLOCK]) };
    }
    // SAFETY: as the caller promises.
    unsafe {
        match width {
            Width::W1 => filled::<u8>(from, to),
            Width::W2 => filled::<u16>(from, to),
            Width::W4 => filled::<u32>(from, to),
            Width::W8 => filled::<u64>(from, to),
        }
    }
}
