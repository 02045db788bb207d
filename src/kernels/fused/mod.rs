//! Register-fused kernels: several pointwise steps at once, block by block, with intermediate values in
//! registers.
//!
//! A [`FusedProgram`] is a sequence of stages. Each is a function that takes the state (a block of 64
//! elements and its mask) in vector registers, does one thing to it, and ends with a call of the next one,
//! which the compiler makes a jump: Skia's raster pipeline is built the same way. In the first-level cache of
//! a Zen 4 a stage takes 2.5 ns for 64 f32 where a step over a tile takes 4 to 7, and beyond the caches the
//! work of all stages goes on while memory is waited for, which tile after tile it does not.
//!
//! Registers hold one block, of elements of up to 8 bytes at level Avx512, of up to 4 at level Avx2, and masks for it
//! twice. What else is needed again later, or second, lies in the thread's scratch, block by block. At level Portable there
//! are no vectors to pass, so there are no fused kernels.

mod shells;
mod stages;
mod vectors;

use smallvec::SmallVec;

pub(crate) use stages::{
    canonicalise, load, load_mask, logic_masks, prefetch, save_mask, select, spill, spill_mask, swap_masks,
};
pub(in crate::kernels) use stages::{logic, map1, map2, not, predicate1, predicate2};

use super::pointwise::Params;
use super::{
    ByLevel, Extent, InnerStride, LINE, Source, StorePolicy, Target, Width, peel, prefetch_tail_line,
};
use crate::types::kind::Level;

/// Elements of a block.
pub(crate) const BLOCK: usize = 64;

/// Bytes of a block of the widest elements that a state holds.
const SPILL_BYTES: usize = BLOCK * 8;

/// A function that does one thing to the state. Only a program of its level can call it.
#[derive(Debug, Clone, Copy)]
struct EntryPoint(unsafe extern "C" fn());

/// One thing done to the state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stage {
    /// With an operand in memory of which there is a block, or with none.
    contiguous: EntryPoint,
    /// Further entry points, if the stage takes a memory operand.
    reads: Option<&'static OperandEntries>,
}

/// Further entry points of a stage that reads a memory operand.
#[derive(Debug)]
struct OperandEntries {
    /// One of which there is one element.
    broadcast: Option<EntryPoint>,
    /// Blocks, by clones of the code for other operands.
    ///
    /// AMD's optimization guides name a prefetcher that goes by the strides of single instructions. Two
    /// operands that one instruction loads alternately mislead it: on a Zen 5, where they were less than 8
    /// MiB apart and not by a multiple of 16 KiB, a clamp's gradient took 1.4 to 5 times as long within the
    /// last level, and a sum of four operands 1.2 to 2 times.
    clones: &'static [EntryPoint],
}

impl Stage {
    /// The entry point for the n-th distinct operand that this stage reads; each gets its own clone.
    fn entry_point(self, inner: InnerStride, reader_index: usize) -> Option<EntryPoint> {
        let clones = self.reads.map_or(&[][..], |reads| reads.clones);
        match inner {
            InnerStride::Broadcast => self.reads?.broadcast,
            InnerStride::Contiguous => match reader_index % (1 + clones.len()) {
                0 => Some(self.contiguous),
                place => clones.get(place - 1).copied(),
            },
        }
    }

    fn is(self, other: Self) -> bool {
        self.contiguous.0 as usize == other.contiguous.0 as usize
    }
}

/// A stage at every level that has fused kernels.
pub(crate) type Stages = ByLevel<Option<Stage>>;

/// Where the operand of a stage lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Location {
    /// The stage has none.
    Nowhere,
    /// Among the operands of the program.
    Operand(usize),
    /// Among the spilled values.
    Spilled(usize),
}

/// A stage with what it works on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StageUse {
    pub(crate) stage: Stage,
    pub(crate) at: Location,
    pub(crate) params: Params,
}

/// A stage as it is called.
#[derive(Debug, Clone, Copy)]
struct StageCall {
    entry_point: EntryPoint,
    /// The operand in memory, by how many bytes behind the first cell its own is; any where the stage uses none.
    slot: usize,
    params: Params,
}

/// Where the first block of an operand lies in a row; the others lie so many bytes further with each block.
#[derive(Debug, Clone, Copy)]
struct OperandSlot {
    at: *mut u8,
    advance: usize,
}

impl OperandSlot {
    /// Goes on by some elements of the row.
    fn skip(&mut self, elements: usize) {
        self.at = self.at.wrapping_add(self.advance / BLOCK * elements);
    }

    /// The elements to peel before whole lines can be stored non-temporally. Prefetches the line in which so
    /// many elements end.
    fn peel(&self, elements: usize) -> usize {
        let width = self.advance / BLOCK;
        prefetch_tail_line(self.at.wrapping_add(elements * width));
        peel(self.at, width, elements).unwrap_or(0)
    }
}

/// Cells before the first one, which are no operand's but for rows to use.
const ROW_SLOTS: usize = 1;

/// An operand in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProgramOperand {
    pub(crate) width: Width,
    pub(crate) inner: InnerStride,
}

impl ProgramOperand {
    /// Bytes from one block to the next.
    fn advance(self) -> usize {
        match self.inner {
            InnerStride::Contiguous => BLOCK * self.width.bytes(),
            InnerStride::Broadcast => 0,
        }
    }
}

/// What is stored of the state in the end.
#[derive(Debug, Clone, Copy)]
pub(crate) enum StoreKind {
    /// The block, of elements of a width.
    Block(Width, StorePolicy),
    /// The mask, as bytes that are 0 or 1.
    Mask,
}

impl StoreKind {
    fn width(self) -> Width {
        match self {
            Self::Block(width, _) => width,
            Self::Mask => Width::W1,
        }
    }

    fn is_non_temporal(self) -> bool {
        matches!(self, Self::Block(_, StorePolicy::NonTemporal))
    }
}

/// A sequence of stages that computes a tile of one result from tiles of operands.
///
/// Its cells are those of the operands, in their order, that of the result, and one for each value that is spilled.
#[derive(Debug)]
pub(crate) struct FusedProgram {
    level: Level,
    stage_calls: Vec<StageCall>,
    operands: SmallVec<[ProgramOperand; 4]>,
    store: StoreKind,
    slots: usize,
}

impl FusedProgram {
    /// A program of stages of a level that ends so, with so many spilled values; nothing where the level has
    /// no fused kernels, or a stage no such operand.
    pub(crate) fn new(
        level: Level,
        uses: &[StageUse],
        operands: SmallVec<[ProgramOperand; 4]>,
        store: StoreKind,
        spilled: usize,
    ) -> Option<Self> {
        let result = operands.len();
        let place = |at: Location| match at {
            Location::Nowhere => (0, InnerStride::Contiguous),
            Location::Operand(index) => (index, operands[index].inner),
            Location::Spilled(index) => (result + 1 + index, InnerStride::Contiguous),
        };
        // The operands of which stages have read blocks.
        let mut read: SmallVec<[(Stage, Location); 8]> = SmallVec::new();
        let stage_call = |&StageUse { stage, at, params }: &StageUse| {
            let (slot, inner) = place(at);
            // Spilled values lie so close that they count as one.
            let from = if let Location::Spilled(_) = at { Location::Spilled(0) } else { at };
            let of_stage = || read.iter().filter(|(known, _)| known.is(stage));
            let (reader_index, all) =
                (of_stage().take_while(|&&(_, known)| known != from).count(), of_stage().count());
            if reader_index == all && inner == InnerStride::Contiguous {
                read.push((stage, from));
            }
            let entry_point = stage.entry_point(inner, reader_index)?;
            Some(StageCall { entry_point, slot: slot * size_of::<OperandSlot>(), params })
        };
        let mut stage_calls = uses.iter().map(stage_call).collect::<Option<Vec<StageCall>>>()?;
        let last = stages::store(store)[level as usize]?;
        stage_calls.push(StageCall {
            entry_point: last.contiguous,
            slot: result * size_of::<OperandSlot>(),
            params: [0.0; 2],
        });
        let slots = result + 1 + spilled;
        Some(Self { level, stage_calls, operands, store, slots })
    }

    /// Bytes of scratch, aligned to a cache line.
    pub(crate) fn scratch(&self) -> usize {
        self.spills_at() + (self.slots - self.operands.len() - 1) * SPILL_BYTES
    }

    /// Where the slots begin behind the cells.
    fn spills_at(&self) -> usize {
        ((ROW_SLOTS + self.slots) * size_of::<OperandSlot>()).next_multiple_of(LINE)
    }

    /// Computes a tile.
    ///
    /// # Safety
    ///
    /// Every element of the tile can be read from the sources, of which there is one for each operand, and written to
    /// the target; the target is at the very address and row stride of a source of its width or overlaps none; the scratch
    /// is [`scratch`](Self::scratch) bytes of this thread's own; the machine runs the program's level. Streamed
    /// results are followed by a [`fence`](super::simd::StoreFence) on the same thread.
    pub(crate) unsafe fn run(&self, extent: Extent, sources: &[Source], to: Target, scratch: *mut u8) {
        let (slots, result) = (scratch.cast::<OperandSlot>().wrapping_add(ROW_SLOTS), self.operands.len());
        // SAFETY: the scratch has room for all cells.
        let set = |slot: usize, to: OperandSlot| unsafe { slots.add(slot).write(to) };
        for spilled in 0..self.slots - result - 1 {
            let at = scratch.wrapping_add(self.spills_at() + spilled * SPILL_BYTES);
            set(result + 1 + spilled, OperandSlot { at, advance: 0 });
        }
        for (slot, (operand, from)) in self.operands.iter().zip(sources).enumerate() {
            set(slot, OperandSlot { at: from.at.cast_mut(), advance: operand.advance() });
        }
        set(result, OperandSlot { at: to.at, advance: BLOCK * self.store.width().bytes() });
        for row in 0..extent.rows {
            if row > 0 {
                // SAFETY: as for `set`, and all cells are set.
                let go_to = |slot: usize, at: *mut u8| unsafe { (*slots.add(slot)).at = at };
                sources
                    .iter()
                    .enumerate()
                    .for_each(|(slot, from)| go_to(slot, from.row::<u8>(row).cast_mut()));
                go_to(result, to.row(row));
            }
            // SAFETY: every cell holds so many elements, those of the row, or a block that stays; a program ends with a
            // stage that ends it, and all its stages are of its level.
            unsafe {
                let run = |columns: usize| {
                    shells::RUN_ROW[self.level as usize](self.stage_calls.as_ptr(), slots, columns)
                };
                let peel =
                    if self.store.is_non_temporal() { (*slots.add(result)).peel(extent.columns) } else { 0 };
                if peel > 0 {
                    run(peel);
                    (0..=result).for_each(|slot| (*slots.add(slot)).skip(peel));
                }
                run(extent.columns - peel);
            }
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// The code that each use of one stage runs, numbered in the order in which it comes up.
    fn code_of_uses(
        level: Level,
        stages: &Stages,
        operands: &[InnerStride],
        uses: &[Location],
    ) -> Option<Vec<usize>> {
        let stage = stages[level as usize]?;
        let uses: Vec<StageUse> = uses.iter().map(|&at| StageUse { stage, at, params: [0.0; 2] }).collect();
        let operands = operands.iter().map(|&inner| ProgramOperand { width: Width::W4, inner }).collect();
        let store = StoreKind::Block(Width::W4, StorePolicy::Temporal);
        let program = FusedProgram::new(level, &uses, operands, store, 2)?;
        let mut known = Vec::new();
        let number = |stage_call: &StageCall| {
            let code = stage_call.entry_point.0 as usize;
            known.iter().position(|&other| other == code).unwrap_or_else(|| {
                known.push(code);
                known.len() - 1
            })
        };
        Some(program.stage_calls[..uses.len()].iter().map(number).collect())
    }

    #[test]
    fn each_operand_that_a_stage_reads_has_code_of_its_own() {
        use Location::{Operand, Spilled};
        type Row<'a> = (&'a str, Level, Stages, &'a [Location], &'a [usize]);
        let (load, prefetch, select) = (load(Width::W4), prefetch(Width::W4), select(Width::W4, true));
        let all = [Operand(0), Operand(1), Operand(2), Operand(3)];
        let rows: &[Row<'_>] = &[
            ("load", Level::Avx512, load, &all, &[0, 1, 2, 3]),
            ("load", Level::Avx2, load, &all, &[0, 1, 2, 3]),
            ("ask", Level::Avx512, prefetch, &all, &[0, 1, 2, 3]),
            ("mask", Level::Avx512, load_mask(), &all, &[0, 1, 2, 3]),
            ("again", Level::Avx512, load, &[Operand(1), Operand(0), Operand(1), Operand(0)], &[0, 1, 0, 1]),
            ("more", Level::Avx512, load, &[all[0], all[1], all[2], all[3], Operand(5)], &[0, 1, 2, 3, 0]),
            ("aside", Level::Avx512, load, &[Spilled(0), Operand(0), Spilled(1), Operand(1)], &[0, 1, 0, 2]),
            ("repeated", Level::Avx512, load, &[Operand(4), Operand(0), Operand(1)], &[0, 1, 2]),
            ("two places", Level::Avx512, select, &all[..3], &[0, 1, 0]),
            ("one place", Level::Avx2, select, &all[..3], &[0, 0, 0]),
        ];
        let (contiguous, broadcast) = (InnerStride::Contiguous, InnerStride::Broadcast);
        let operands = [contiguous, contiguous, contiguous, contiguous, broadcast, contiguous];
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
