//! Chains: several pointwise steps at once, block by block, what one leaves to the next staying in registers.
//!
//! A [`Program`] is a row of stages. Each is a function that takes the state (a block of 64 elements and 64 truth
//! values) in vector registers, does one thing to it, and ends with a call of the next one, which the compiler makes a
//! jump: Skia's raster pipeline is built the same way. In the first-level cache of a Zen 4 a stage takes 2.5 ns for 64
//! f32 where a step over a tile takes 4 to 7, and beyond the caches the work of all stages goes on while memory is
//! waited for, which tile after tile it does not.
//!
//! Registers hold one block. What is needed again later, or second, lies in the thread's scratch, block by block, and
//! so do the ends of rows: stages only ever see whole blocks. At level Portable there are no vectors to pass, so there
//! are no chains.

mod stages;
mod vectors;

use smallvec::SmallVec;

pub(in crate::kernels) use stages::{asked1, asked2, logic, map1, map2, not};
pub(crate) use stages::{choose, load, load_mask, store, store_mask};

use super::pointwise::{Params, copy_short};
use super::{ByLevel, Extent, Inner, Source, Target, Width};
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

/// Where the block of an operand lies: so many bytes further with each block.
#[derive(Debug, Clone, Copy)]
struct Cell {
    at: *mut u8,
    advance: usize,
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
    cells: usize,
}

impl Program {
    /// A program of stages of a level, with so many values put aside; nothing where the level has no chains.
    pub(crate) fn new(
        level: Level,
        mut calls: Vec<Call>,
        operands: SmallVec<[Operand; 4]>,
        result: Width,
        aside: usize,
    ) -> Option<Self> {
        let last = Call { stage: stages::LAST[level as usize]?, cell: 0, params: [0.0; 2] };
        calls.push(last);
        let cells = operands.len() + 1 + aside;
        Some(Self { level, calls, operands, result, cells })
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
        let set = |cell: usize, at: *mut u8, advance: usize| unsafe {
            cells.add(cell).write(Cell { at, advance });
        };
        let result = self.operands.len();
        (result + 1..self.cells).for_each(|cell| set(cell, slot(cell), 0));
        for row in 0..extent.rows {
            let to: *mut u8 = to.row(row);
            for (cell, (operand, from)) in self.operands.iter().zip(sources).enumerate() {
                if operand.inner == Inner::Repeated && (row == 0 || from.pitch != 0) {
                    // SAFETY: the row has an element, as the caller promises, and a slot room for a block.
                    unsafe { repeat(operand.width, from.row(row), slot(cell)) };
                    set(cell, slot(cell), 0);
                }
            }
            // Results are stored past the caches a line at a time, so that what comes before the first line is apart.
            let head = match to.align_offset(64) {
                bytes if bytes % self.result.bytes() == 0 => {
                    (bytes / self.result.bytes()).min(extent.columns)
                }
                _ => 0,
            };
            let head = if extent.columns < 4 * BLOCK { 0 } else { head };
            let blocks = (extent.columns - head) / BLOCK;
            let tail = (extent.columns - head) % BLOCK;
            for (column, count) in [(0, head), (head + blocks * BLOCK, tail)] {
                if count == 0 {
                    continue;
                }
                for (cell, (operand, from)) in self.operands.iter().zip(sources).enumerate() {
                    if operand.inner == Inner::Dense {
                        let from = from.row::<u8>(row).wrapping_add(column * operand.width.bytes());
                        // SAFETY: so many elements from there on are within the row, and less than a block.
                        unsafe { copy_short(from, slot(cell), count * operand.width.bytes()) };
                        set(cell, slot(cell), 0);
                    }
                }
                set(result, slot(result), 0);
                let bytes = self.result.bytes();
                // SAFETY: all cells are slots, as large as a block; as for the operands.
                unsafe {
                    self.blocks(cells, 1);
                    copy_short(slot(result), to.wrapping_add(column * bytes), count * bytes);
                }
            }
            if blocks > 0 {
                for (cell, (operand, from)) in self.operands.iter().zip(sources).enumerate() {
                    if operand.inner == Inner::Dense {
                        let width = operand.width.bytes();
                        let from = from.row::<u8>(row).wrapping_add(head * width);
                        set(cell, from.cast_mut(), BLOCK * width);
                    }
                }
                let width = self.result.bytes();
                set(result, to.wrapping_add(head * width), BLOCK * width);
                // SAFETY: so many blocks from there on are within the row, by operands and result alike.
                unsafe { self.blocks(cells, blocks) };
            }
        }
    }

    /// Runs the stages on so many blocks.
    ///
    /// # Safety
    ///
    /// Every cell holds so many blocks that stages read or write, and the machine runs the level.
    unsafe fn blocks(&self, cells: *const Cell, blocks: usize) {
        // SAFETY: as the caller promises; a program ends with the last stage, and all its stages are of its level.
        unsafe { stages::RUN[self.level as usize](self.calls.as_ptr(), cells, blocks) }
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
