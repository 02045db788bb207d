//! Places the results of steps in scratch.

use super::schedule::{UnplacedStep, conditional_users};
use crate::kernels::{Extent, InnerStride, LINE, Width};
use crate::plan::{Dest, Instr, OfSteps, StepId, StepSpace};

/// The users of step results, in run order if nothing is skipped.
pub(super) struct Uses {
    /// For each step the last step before whose end its result may be computed or read.
    last: OfSteps<StepId>,
}

impl Uses {
    pub(super) fn new(steps: &[UnplacedStep], roots: &[StepId]) -> Self {
        let all = StepId::all(steps.len());
        let mut last: OfSteps<StepId> = all.clone().collect();
        for (index, step) in all.clone().zip(steps) {
            step.instr.deps().for_each(|operand| last[operand] = last[operand].max(index));
        }
        // A root runs in its turn, after all steps of the roots before it, unless one of them needed it.
        let mut latest = StepId(0);
        for &root in roots {
            latest = latest.max(root);
            last[root] = last[root].max(latest);
        }
        // A later user, or the turn of a root, may run a skippable step after all; the step's operands must
        // be valid then.
        let conditional = conditional_users(steps, roots);
        for index in all.rev().filter(|&index| conditional.contains(index)) {
            let until = last[index];
            steps[index].instr.deps().for_each(|operand| last[operand] = last[operand].max(until));
        }
        Self { last }
    }
}

/// Scratch for the results of steps, shared by results that are not needed at the same time.
pub(super) struct ScratchSlots {
    slots: Vec<ScratchSlot>,
    /// For each step with a result in scratch, its slot.
    of_step: OfSteps<Option<usize>>,
}

struct ScratchSlot {
    width: Width,
    space: StepSpace,
    /// The last step that needs its content; `None` if it is never free.
    busy_until: Option<StepId>,
}

impl ScratchSlots {
    pub(super) fn new(
        steps: &[UnplacedStep],
        uses: &Uses,
        outlives_a_tile: impl Fn(&UnplacedStep) -> bool,
    ) -> Self {
        let mut slots: Vec<ScratchSlot> = Vec::new();
        let mut of_step = OfSteps::new(steps.len(), None);
        for (index, step) in StepId::all(steps.len()).zip(steps).filter(|(_, step)| step.dest.is_none()) {
            let shares = !outlives_a_tile(step);
            // A kernel may write over an operand, element for element, but not over a condition that it still
            // reads.
            let condition = match &step.instr {
                Instr::Select(select) => select.cond.step().and_then(|cond| of_step[cond]),
                _ => None,
            };
            let is_free = |(slot_index, slot): (usize, &ScratchSlot)| {
                shares
                    && slot.busy_until.is_some_and(|until| until <= index)
                    && (slot.width, slot.space) == (step.width, step.space)
                    && Some(slot_index) != condition
            };
            let slot_index = slots.iter().enumerate().position(is_free).unwrap_or_else(|| {
                slots.push(ScratchSlot { width: step.width, space: step.space, busy_until: None });
                slots.len() - 1
            });
            slots[slot_index].busy_until = shares.then_some(uses.last[index]);
            of_step[index] = Some(slot_index);
        }
        Self { slots, of_step }
    }

    /// Bytes of an element of a tile.
    pub(super) fn bytes_of_element(&self) -> usize {
        let whole =
            self.slots.iter().filter(|slot| slot.space.rows && slot.space.columns == InnerStride::Contiguous);
        whole.map(|slot| slot.width.bytes()).sum()
    }

    /// The destination of each step's result, and the bytes of all.
    pub(super) fn dests(&self, tile: Extent) -> (OfSteps<Dest>, usize) {
        let mut end = 0;
        let of_slot = self.slots.iter().map(|slot| {
            let columns = if slot.space.columns == InnerStride::Contiguous { tile.columns } else { 1 };
            let rows = if slot.space.rows { tile.rows } else { 1 };
            let (offset, row_stride) = (end, columns * slot.width.bytes());
            end += (rows * row_stride).next_multiple_of(LINE);
            Dest::Scratch(offset, row_stride)
        });
        let of_slot: Vec<Dest> = of_slot.collect();
        let nowhere = Dest::Scratch(0, 0);
        (self.of_step.iter().map(|slot| slot.map_or(nowhere, |slot| of_slot[slot])).collect(), end)
    }
}
