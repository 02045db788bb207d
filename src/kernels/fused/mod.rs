//! Register fusion: several pointwise steps run as one kernel, block by block, and hand values on in
//! registers.
//!
//! A [`FusedProgram`] is a list of stages. A stage is a function that takes the state (a block of 64 elements
//! and a mask of 64 bits) in vector registers, does one thing to it, and calls the next stage last, which the
//! compiler turns into a jump. Skia's raster pipeline is built the same way. A stage costs less than a step
//! over a tile, and beyond the caches the arithmetic of all stages overlaps with waiting for memory
//! (decision: stage-cost).
//!
//! Registers hold one block, of elements of up to 8 bytes at level Avx512 and up to 4 bytes at level Avx2,
//! and two masks for it. Other values that are needed again are spilled to the thread's scratch, block by
//! block. Level Portable has no vectors to pass, so it has no register fusion.

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

/// Bytes of a block of the widest elements.
const SPILL_BYTES: usize = BLOCK * 8;

/// A stage's function. Only a program of its level can call it.
#[derive(Debug, Clone, Copy)]
struct EntryPoint(unsafe extern "C" fn());

/// One operation on the state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stage {
    /// The stage without an operand in memory, or with a contiguous one.
    contiguous: EntryPoint,
    /// Further entry points, if the stage takes an operand in memory.
    reads: Option<&'static OperandEntries>,
}

/// Further entry points of a stage that reads an operand in memory.
#[derive(Debug)]
struct OperandEntries {
    /// For an operand of one repeated element.
    broadcast: Option<EntryPoint>,
    /// Clones of the contiguous entry point, for further operands.
    ///
    /// If one instruction loads two operands by turns, it misleads the prefetcher that follows the stride of
    /// single instructions (decision: clone-per-operand). So each operand gets its own clone.
    clones: &'static [EntryPoint],
}

impl Stage {
    /// The entry point for the operand with this index among those that the stage reads.
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

/// A stage at every level that has register fusion.
pub(crate) type Stages = ByLevel<Option<Stage>>;

/// Location of a stage's operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Location {
    /// The stage has no operand.
    Nowhere,
    /// An operand of the program, by index.
    Operand(usize),
    /// A spilled value, by index.
    Spilled(usize),
}

/// A stage and the location of its operand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StageUse {
    pub(crate) stage: Stage,
    pub(crate) at: Location,
    pub(crate) params: Params,
}

/// A stage as a program calls it.
#[derive(Debug, Clone, Copy)]
struct StageCall {
    entry_point: EntryPoint,
    /// Byte offset from the first slot to the operand's slot; any value if the stage has no operand.
    slot: usize,
    params: Params,
}

/// Address of an operand's first block in a row, and the bytes from one block to the next.
#[derive(Debug, Clone, Copy)]
struct OperandSlot {
    at: *mut u8,
    advance: usize,
}

impl OperandSlot {
    /// Skips elements of the row.
    fn skip(&mut self, elements: usize) {
        self.at = self.at.wrapping_add(self.advance / BLOCK * elements);
    }

    /// Number of elements to peel until non-temporal stores can write whole lines. Prefetches the line in
    /// which the row ends.
    fn peel(&self, elements: usize) -> usize {
        let width = self.advance / BLOCK;
        prefetch_tail_line(self.at.wrapping_add(elements * width));
        peel(self.at, width, elements).unwrap_or(0)
    }
}

/// Slots before the first operand's slot; the row driver uses them.
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

/// The part of the state that a program stores at its end.
#[derive(Debug, Clone, Copy)]
pub(crate) enum StoreKind {
    /// The block, with the width of its elements.
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

/// A list of stages that computes a tile of one result from tiles of operands.
///
/// It has a slot for each operand, in their order, one for the result, and one for each spilled value.
#[derive(Debug)]
pub(crate) struct FusedProgram {
    level: Level,
    stage_calls: Vec<StageCall>,
    operands: SmallVec<[ProgramOperand; 4]>,
    store: StoreKind,
    slots: usize,
}

impl FusedProgram {
    /// A program of stages of a level with a number of spilled values. `None` if the level has no register
    /// fusion, or if a stage does not take an operand of that kind.
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
        // Pairs of a stage and an operand of which it reads blocks.
        let mut read: SmallVec<[(Stage, Location); 8]> = SmallVec::new();
        let stage_call = |&StageUse { stage, at, params }: &StageUse| {
            let (slot, inner) = place(at);
            // Spilled values lie so close together that they count as one operand.
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

    /// Offset of the spilled blocks, which follow the slots.
    fn spills_at(&self) -> usize {
        ((ROW_SLOTS + self.slots) * size_of::<OperandSlot>()).next_multiple_of(LINE)
    }

    /// Computes a tile.
    ///
    /// # Safety
    ///
    /// Every element of the tile can be read from the sources, one for each operand, and written to the
    /// target. The target has the address and row stride of a source of its width, or overlaps none. The
    /// scratch is [`scratch`](Self::scratch) bytes that only this thread uses. The machine runs the program's
    /// level. If the results are stored non-temporally, a [`fence`](super::simd::StoreFence) follows on the
    /// same thread.
    pub(crate) unsafe fn run(&self, extent: Extent, sources: &[Source], to: Target, scratch: *mut u8) {
        let (slots, result) = (scratch.cast::<OperandSlot>().wrapping_add(ROW_SLOTS), self.operands.len());
        // SAFETY: the scratch has room for all slots.
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
                // SAFETY: as for `set`; all slots are set.
                let go_to = |slot: usize, at: *mut u8| unsafe { (*slots.add(slot)).at = at };
                sources
                    .iter()
                    .enumerate()
                    .for_each(|(slot, from)| go_to(slot, from.row::<u8>(row).cast_mut()));
                go_to(result, to.row(row));
            }
            // SAFETY: every slot addresses as many elements as the row has, or one spill block; the last
            // stage of a program ends it, and all its stages are of its level.
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

    /// For each use of a stage that reads an operand, the index of its clone, in order of first use.
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
