//! Chains: several pointwise steps at once, block by block, what one leaves to the next staying in registers.
//!
//! A [`Program`] is a row of stages. Each is a function that takes the state (a block of 64 elements and 64 truth
//! values) in vector registers, does one thing to it, and ends with a call of the next one, which the compiler makes a
//! jump: Skia's raster pipeline is built the same way. In the first-level cache of a Zen 4 a stage takes 2.5 ns for 64
//! f32 where a step over a tile takes 4 to 7, and beyond the caches the work of all stages goes on while memory is
//! waited for, which tile after tile it does not.
//!
//! Registers hold one block, of elements of up to 8 bytes at level Avx512, of up to 4 at level Avx2, and truth values for it
//! twice. What else is needed again later, or second, lies in the thread's scratch, block by block. At level Portable there
//! are no vectors to pass, so there are no chains.

mod shells;
mod stages;
mod vectors;

use smallvec::SmallVec;

pub(crate) use stages::{
    ask, canonical, choose, keep, keep_mask, load, load_mask, logic_of_both, swap, wait,
};
pub(in crate::kernels) use stages::{asked1, asked2, logic, map1, map2, not};

use super::pointwise::Params;
use super::{ByLevel, Extent, Inner, LINE, Source, Stores, Target, Width, bring_end, head};
use crate::types::kind::Level;

/// Elements of a block.
pub(crate) const BLOCK: usize = 64;

/// Bytes of a block of the widest elements that a state holds.
const SLOT: usize = BLOCK * 8;

/// A function that does one thing to the state. Only a program of its level can call it.
#[derive(Debug, Clone, Copy)]
struct Entry(unsafe extern "C" fn());

/// One thing done to the state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stage {
    /// With an operand in memory of which there is a block, or with none.
    dense: Entry,
    /// What there is beside that where there can be an operand in memory.
    reads: Option<&'static Reads>,
}

/// How else a stage reads an operand in memory.
#[derive(Debug)]
struct Reads {
    /// One of which there is one element.
    repeated: Option<Entry>,
    /// Blocks, by the same code in other places, for other operands.
    ///
    /// AMD's optimization guides name a prefetcher that goes by the strides of single instructions. Two operands that one
    /// instruction loads by turns mislead it: on a Zen 5, where they were less than 8 MiB apart and not by a multiple of 16 KiB,
    /// a clamp's gradient took 1.4 to 5 times as long within the last level, and a sum of four operands 1.2 to 2 times.
    elsewhere: &'static [Entry],
}

impl Stage {
    /// The code for an operand, before which the stage reads so many others.
    fn entry(self, inner: Inner, others: usize) -> Option<Entry> {
        let elsewhere = self.reads.map_or(&[][..], |reads| reads.elsewhere);
        match inner {
            Inner::Repeated => self.reads?.repeated,
            Inner::Dense => match others % (1 + elsewhere.len()) {
                0 => Some(self.dense),
                place => elsewhere.get(place - 1).copied(),
            },
        }
    }

    fn is(self, other: Self) -> bool {
        self.dense.0 as usize == other.dense.0 as usize
    }
}

/// A stage at every level that has chains.
pub(crate) type Stages = ByLevel<Option<Stage>>;

/// Where the operand of a stage lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    /// The stage has none.
    Nowhere,
    /// Among the operands of the program.
    Operand(usize),
    /// Among the values put aside.
    Aside(usize),
}

/// A stage with what it works on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Use {
    pub(crate) stage: Stage,
    pub(crate) at: At,
    pub(crate) params: Params,
}

/// A stage as it is called.
#[derive(Debug, Clone, Copy)]
struct Call {
    entry: Entry,
    /// The operand in memory, by how many bytes behind the first cell its own is; any where the stage uses none.
    cell: usize,
    params: Params,
}

/// Where the first block of an operand lies in a row; the others lie so many bytes further with each block.
#[derive(Debug, Clone, Copy)]
struct Cell {
    at: *mut u8,
    advance: usize,
}

impl Cell {
    /// Goes on by some elements of the row.
    fn skip(&mut self, elements: usize) {
        self.at = self.at.wrapping_add(self.advance / BLOCK * elements);
    }

    /// How many elements of the row come before what can go past the caches in whole lines. Asks for the line in which so
    /// many elements end.
    fn head(&self, elements: usize) -> usize {
        let width = self.advance / BLOCK;
        bring_end(self.at.wrapping_add(elements * width));
        head(self.at, width, elements).unwrap_or(0)
    }
}

/// Cells before the first one, which are no operand's but for rows to use.
const ROW_CELLS: usize = 1;

/// An operand in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Operand {
    pub(crate) width: Width,
    pub(crate) inner: Inner,
}

impl Operand {
    /// Bytes from one block to the next.
    fn advance(self) -> usize {
        match self.inner {
            Inner::Dense => BLOCK * self.width.bytes(),
            Inner::Repeated => 0,
        }
    }
}

/// What is stored of the state in the end.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ending {
    /// The block, of elements of a width.
    Block(Width, Stores),
    /// The truth values, as bytes that are 0 or 1.
    Truths,
}

impl Ending {
    fn width(self) -> Width {
        match self {
            Self::Block(width, _) => width,
            Self::Truths => Width::W1,
        }
    }

    fn is_streamed(self) -> bool {
        matches!(self, Self::Block(_, Stores::Streaming))
    }
}

/// A row of stages that computes a tile of one result from tiles of operands.
///
/// Its cells are those of the operands, in their order, that of the result, and one for each value that is put aside.
#[derive(Debug)]
pub(crate) struct Program {
    level: Level,
    calls: Vec<Call>,
    operands: SmallVec<[Operand; 4]>,
    ending: Ending,
    cells: usize,
}

impl Program {
    /// A program of stages of a level that ends so, with so many values put aside; nothing where the level has no chains, or a
    /// stage no such operand.
    pub(crate) fn new(
        level: Level,
        uses: &[Use],
        operands: SmallVec<[Operand; 4]>,
        ending: Ending,
        aside: usize,
    ) -> Option<Self> {
        let result = operands.len();
        let place = |at: At| match at {
            At::Nowhere => (0, Inner::Dense),
            At::Operand(index) => (index, operands[index].inner),
            At::Aside(index) => (result + 1 + index, Inner::Dense),
        };
        // The operands of which stages have read blocks.
        let mut read: SmallVec<[(Stage, At); 8]> = SmallVec::new();
        let call = |&Use { stage, at, params }: &Use| {
            let (cell, inner) = place(at);
            // Values put aside lie so close that they count as one.
            let from = if let At::Aside(_) = at { At::Aside(0) } else { at };
            let of_stage = || read.iter().filter(|(known, _)| known.is(stage));
            let (others, all) =
                (of_stage().take_while(|&&(_, known)| known != from).count(), of_stage().count());
            if others == all && inner == Inner::Dense {
                read.push((stage, from));
            }
            let entry = stage.entry(inner, others)?;
            Some(Call { entry, cell: cell * size_of::<Cell>(), params })
        };
        let mut calls = uses.iter().map(call).collect::<Option<Vec<Call>>>()?;
        let last = stages::ending(ending)[level as usize]?;
        calls.push(Call { entry: last.dense, cell: result * size_of::<Cell>(), params: [0.0; 2] });
        let cells = result + 1 + aside;
        Some(Self { level, calls, operands, ending, cells })
    }

    /// Bytes of scratch, aligned to a cache line.
    pub(crate) fn scratch(&self) -> usize {
        self.slots_at() + (self.cells - self.operands.len() - 1) * SLOT
    }

    /// Where the slots begin behind the cells.
    fn slots_at(&self) -> usize {
        ((ROW_CELLS + self.cells) * size_of::<Cell>()).next_multiple_of(LINE)
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
        let (cells, result) = (scratch.cast::<Cell>().wrapping_add(ROW_CELLS), self.operands.len());
        // SAFETY: the scratch has room for all cells.
        let set = |cell: usize, to: Cell| unsafe { cells.add(cell).write(to) };
        for aside in 0..self.cells - result - 1 {
            let at = scratch.wrapping_add(self.slots_at() + aside * SLOT);
            set(result + 1 + aside, Cell { at, advance: 0 });
        }
        for (cell, (operand, from)) in self.operands.iter().zip(sources).enumerate() {
            set(cell, Cell { at: from.at.cast_mut(), advance: operand.advance() });
        }
        set(result, Cell { at: to.at, advance: BLOCK * self.ending.width().bytes() });
        for row in 0..extent.rows {
            if row > 0 {
                // SAFETY: as for `set`, and all cells are set.
                let go_to = |cell: usize, at: *mut u8| unsafe { (*cells.add(cell)).at = at };
                sources
                    .iter()
                    .enumerate()
                    .for_each(|(cell, from)| go_to(cell, from.row::<u8>(row).cast_mut()));
                go_to(result, to.row(row));
            }
            // SAFETY: every cell holds so many elements, those of the row, or a block that stays; a program ends with a
            // stage that ends it, and all its stages are of its level.
            unsafe {
                let run =
                    |columns: usize| shells::ROW[self.level as usize](self.calls.as_ptr(), cells, columns);
                let head =
                    if self.ending.is_streamed() { (*cells.add(result)).head(extent.columns) } else { 0 };
                if head > 0 {
                    run(head);
                    (0..=result).for_each(|cell| (*cells.add(cell)).skip(head));
                }
                run(extent.columns - head);
            }
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// The code that each use of one stage runs, numbered in the order in which it comes up.
    fn code_of_uses(level: Level, stages: &Stages, operands: &[Inner], uses: &[At]) -> Option<Vec<usize>> {
        let stage = stages[level as usize]?;
        let uses: Vec<Use> = uses.iter().map(|&at| Use { stage, at, params: [0.0; 2] }).collect();
        let operands = operands.iter().map(|&inner| Operand { width: Width::W4, inner }).collect();
        let ending = Ending::Block(Width::W4, Stores::Ordinary);
        let program = Program::new(level, &uses, operands, ending, 2)?;
        let mut known = Vec::new();
        let number = |call: &Call| {
            let code = call.entry.0 as usize;
            known.iter().position(|&other| other == code).unwrap_or_else(|| {
                known.push(code);
                known.len() - 1
            })
        };
        Some(program.calls[..uses.len()].iter().map(number).collect())
    }

    #[test]
    fn each_operand_that_a_stage_reads_has_code_of_its_own() {
        use At::{Aside, Operand};
        type Row<'a> = (&'a str, Level, Stages, &'a [At], &'a [usize]);
        let (load, ask, choose) = (load(Width::W4), ask(Width::W4), choose(Width::W4, true));
        let all = [Operand(0), Operand(1), Operand(2), Operand(3)];
        let rows: &[Row<'_>] = &[
            ("load", Level::Avx512, load, &all, &[0, 1, 2, 3]),
            ("load", Level::Avx2, load, &all, &[0, 1, 2, 3]),
            ("ask", Level::Avx512, ask, &all, &[0, 1, 2, 3]),
            ("mask", Level::Avx512, load_mask(), &all, &[0, 1, 2, 3]),
            ("again", Level::Avx512, load, &[Operand(1), Operand(0), Operand(1), Operand(0)], &[0, 1, 0, 1]),
            ("more", Level::Avx512, load, &[all[0], all[1], all[2], all[3], Operand(5)], &[0, 1, 2, 3, 0]),
            ("aside", Level::Avx512, load, &[Aside(0), Operand(0), Aside(1), Operand(1)], &[0, 1, 0, 2]),
            ("repeated", Level::Avx512, load, &[Operand(4), Operand(0), Operand(1)], &[0, 1, 2]),
            ("two places", Level::Avx512, choose, &all[..3], &[0, 1, 0]),
            ("one place", Level::Avx2, choose, &all[..3], &[0, 0, 0]),
        ];
        let (dense, repeated) = (Inner::Dense, Inner::Repeated);
        let operands = [dense, dense, dense, dense, repeated, dense];
        let mut wrong = Vec::new();
        for &(name, level, ref stages, uses, expected) in rows {
            let got = code_of_uses(level, stages, &operands, uses);
            if got.as_deref() != Some(expected) {
                wrong.push((name, level, got, expected));
            }
        }
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
