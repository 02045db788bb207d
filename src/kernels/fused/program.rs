//! Programs: lists of stages.

use smallvec::SmallVec;

use super::shells::{self, block_len};
use super::stage::{OperandSlot, ROW_SLOTS, Stage, StageCall, StoreKind};
use super::stages;
use crate::kernels::{BLOCK, Extent, InnerStride, LINE, Source, Target, Width};
use crate::types::function::Params;
use crate::types::kind::Level;

/// Bytes of a block of the widest elements.
const SPILL_BYTES: usize = BLOCK * 8;

/// Location of a stage's operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Location {
    /// The stage has no operand.
    NoOperand,
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

/// An operand in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProgramOperand {
    pub(crate) width: Width,
    pub(crate) inner: InnerStride,
}

impl ProgramOperand {
    /// Bytes from one block of a number of elements to the next.
    fn advance(self, block: usize) -> usize {
        match self.inner {
            InnerStride::Contiguous => block * self.width.bytes(),
            InnerStride::Broadcast => 0,
        }
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
            Location::NoOperand => (0, InnerStride::Contiguous),
            Location::Operand(index) => (index, operands[index].inner),
            Location::Spilled(index) => (result + 1 + index, InnerStride::Contiguous),
        };
        // Pairs of a stage and an operand whose blocks it reads.
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
        let last = stages::store(store)[level.row()]?;
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
    /// level. If the results are stored non-temporally, a [`fence`](crate::kernels::simd::StoreFence) follows
    /// on the same thread.
    pub(crate) unsafe fn run(&self, extent: Extent, sources: &[Source], to: Target, scratch: *mut u8) {
        let (slots, result) = (scratch.cast::<OperandSlot>().wrapping_add(ROW_SLOTS), self.operands.len());
        let block = block_len(self.level);
        let is_column = self.runs_as_column(extent, sources, to);
        // SAFETY: the scratch has room for all slots.
        let set = |slot: usize, to: OperandSlot| unsafe { slots.add(slot).write(to) };
        for spilled in 0..self.slots - result - 1 {
            let at = scratch.wrapping_add(self.spills_at() + spilled * SPILL_BYTES);
            set(result + 1 + spilled, OperandSlot { at, advance: 0 });
        }
        let advance = |row_stride: isize, along: usize| if is_column { row_stride as usize } else { along };
        for (slot, (operand, from)) in self.operands.iter().zip(sources).enumerate() {
            let advance = advance(from.row_stride, operand.advance(block));
            set(slot, OperandSlot { at: from.at.cast_mut(), advance });
        }
        let of_result = advance(to.row_stride, block * self.store.width().bytes());
        set(result, OperandSlot { at: to.at, advance: of_result });
        let (run_row, run_column) = shells::DRIVERS[self.level.row()];
        let stage_calls = self.stage_calls.as_ptr();
        if is_column {
            // SAFETY: every slot addresses as many elements of each row as the tile has columns, or one spill
            // block; the last stage of a program ends it, and all its stages are of its level.
            return unsafe { run_column(stage_calls, slots, extent) };
        }
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
            // SAFETY: as for `run_column`, for the elements of one row.
            unsafe {
                let run = |columns: usize| run_row(stage_calls, slots, columns);
                let peel = if self.store.is_non_temporal() {
                    (*slots.add(result)).peel(extent.columns, block)
                } else {
                    0
                };
                if peel > 0 {
                    run(peel);
                    (0..=result).for_each(|slot| (*slots.add(slot)).skip(peel, block));
                }
                run(extent.columns - peel);
            }
        }
    }

    /// True if a tile runs as one column of blocks, each a row: the slots are then set once, not for every
    /// row (decision: single-block-column). Non-temporal stores prefetch the ends of rows, so they run row by
    /// row.
    #[inline(always)]
    fn runs_as_column(&self, extent: Extent, sources: &[Source], to: Target) -> bool {
        let block = block_len(self.level);
        if extent.rows == 1 || extent.columns > block || self.store.is_non_temporal() {
            return false;
        }
        let mut strides = sources.iter().map(|from| from.row_stride).chain([to.row_stride]);
        extent.columns == block || strides.all(|stride| stride % 2 == 0)
    }
}

#[cfg(all(test, target_arch = "x86_64", feature = "avx512"))]
mod tests {
    use super::super::stage::Stages;
    use super::super::stages::{load, load_mask, prefetch, select};
    use super::*;
    use crate::kernels::StorePolicy;

    /// For each use of a stage that reads an operand, the index of its clone, in order of first use.
    fn code_of_uses(
        level: Level,
        stages: &Stages,
        operands: &[InnerStride],
        uses: &[Location],
    ) -> Option<Vec<usize>> {
        let stage = stages[level.row()]?;
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
    fn each_operand_that_a_stage_reads_has_its_clone() {
        use Location::{Operand, Spilled};
        type Row<'a> = (&'a str, Level, Stages, &'a [Location], &'a [usize]);
        let (load, prefetch, select) = (load(Width::W4), prefetch(Width::W4), select(Width::W4, true));
        let all = [Operand(0), Operand(1), Operand(2), Operand(3)];
        let rows: &[Row<'_>] = &[
            ("load", Level::Avx512, load, &all, &[0, 1, 2, 3]),
            ("load", Level::Avx2, load, &all, &[0, 1, 2, 3]),
            ("prefetch", Level::Avx512, prefetch, &all, &[0, 1, 2, 3]),
            ("mask", Level::Avx512, load_mask(), &all, &[0, 1, 2, 3]),
            ("twice", Level::Avx512, load, &[Operand(1), Operand(0), Operand(1), Operand(0)], &[0, 1, 0, 1]),
            ("more", Level::Avx512, load, &[all[0], all[1], all[2], all[3], Operand(5)], &[0, 1, 2, 3, 0]),
            ("spill", Level::Avx512, load, &[Spilled(0), Operand(0), Spilled(1), Operand(1)], &[0, 1, 0, 2]),
            ("broadcast", Level::Avx512, load, &[Operand(4), Operand(0), Operand(1)], &[0, 1, 2]),
            ("two clones", Level::Avx512, select, &all[..3], &[0, 1, 0]),
            ("one clone", Level::Avx2, select, &all[..3], &[0, 0, 0]),
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
