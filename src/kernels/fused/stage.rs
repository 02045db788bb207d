//! The parts of a stage: its function, how a program calls it, and where its operand is.

use crate::kernels::isa::ByLevel;
use crate::kernels::{InnerStride, StorePolicy, Width, peel, prefetch_tail_line};
use crate::types::function::Params;

/// A stage's function. Only a program of its level can call it.
#[derive(Debug, Clone, Copy)]
pub(super) struct EntryPoint(pub(super) unsafe extern "C" fn());

/// One operation on the state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stage {
    /// The stage without an operand in memory, or with a contiguous one.
    pub(super) contiguous: EntryPoint,
    /// Further entry points, if the stage takes an operand in memory.
    pub(super) reads: Option<&'static OperandEntries>,
}

/// Further entry points of a stage that reads an operand in memory.
#[derive(Debug)]
pub(super) struct OperandEntries {
    /// For an operand of one repeated element.
    pub(super) broadcast: Option<EntryPoint>,
    /// Clones of the contiguous entry point, for further operands.
    ///
    /// If one instruction loads two operands alternately, it misleads the prefetcher that follows the stride
    /// of single instructions (decision: clone-per-operand). So each operand gets its own clone.
    pub(super) clones: &'static [EntryPoint],
}

impl Stage {
    /// The entry point for the operand with this index among those that the stage reads.
    pub(super) fn entry_point(self, inner: InnerStride, reader_index: usize) -> Option<EntryPoint> {
        let clones = self.reads.map_or(&[][..], |reads| reads.clones);
        match inner {
            InnerStride::Broadcast => self.reads?.broadcast,
            InnerStride::Contiguous => match reader_index % (1 + clones.len()) {
                0 => Some(self.contiguous),
                place => clones.get(place - 1).copied(),
            },
        }
    }

    pub(super) fn is(self, other: Self) -> bool {
        self.contiguous.0 as usize == other.contiguous.0 as usize
    }
}

/// A stage at every level that has register fusion.
pub(crate) type Stages = ByLevel<Option<Stage>>;

/// A stage as a program calls it.
#[derive(Debug, Clone, Copy)]
pub(super) struct StageCall {
    pub(super) entry_point: EntryPoint,
    /// Byte offset from the first slot to the operand's slot; any value if the stage has no operand.
    pub(super) slot: usize,
    pub(super) params: Params,
}

/// Address of an operand's first block, and the bytes from one block to the next: along a row, or from row to
/// row if each row is one block.
#[derive(Debug, Clone, Copy)]
pub(super) struct OperandSlot {
    pub(super) at: *mut u8,
    pub(super) advance: usize,
}

impl OperandSlot {
    /// Skips elements of the row, in blocks of a number of elements.
    pub(super) fn skip(&mut self, elements: usize, block: usize) {
        self.at = self.at.wrapping_add(self.advance / block * elements);
    }

    /// Number of elements to peel until non-temporal stores can write whole lines. Prefetches the line in
    /// which the row ends.
    pub(super) fn peel(&self, elements: usize, block: usize) -> usize {
        let width = self.advance / block;
        prefetch_tail_line(self.at.wrapping_add(elements * width));
        peel(self.at, width, elements).unwrap_or(0)
    }
}

/// Slots before the first operand's slot; the row driver uses them.
pub(super) const ROW_SLOTS: usize = 1;

/// The part of the state that a program stores at its end.
#[derive(Debug, Clone, Copy)]
pub(crate) enum StoreKind {
    /// The block, with the width of its elements.
    Block(Width, StorePolicy),
    /// The mask, as bytes that are 0 or 1.
    Mask,
}

impl StoreKind {
    pub(super) fn width(self) -> Width {
        match self {
            Self::Block(width, _) => width,
            Self::Mask => Width::W1,
        }
    }

    pub(super) fn is_non_temporal(self) -> bool {
        matches!(self, Self::Block(_, StorePolicy::NonTemporal))
    }
}
