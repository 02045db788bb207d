//! Finds the blocks of queries of sequences that follow each other, and shares them among threads.
#![allow(unsafe_code, reason = "ranges and blocks are raw memory of an internal buffer")]

use std::ops::Range;

use smallvec::SmallVec;

use crate::error::Result;
use crate::execute::bindings::Bindings;
use crate::execute::task_runner::TaskRunner;
use crate::plan::{
    Base, BlockCutter, BlockList, KeyRange, ListHead, ListTotal, MaskElement, MaskNode, MaskOp, Plan,
    RaggedBlock, RaggedPhase,
};
use crate::types::function::Binary;

/// Queries whose ranges are computed at once.
const CHUNK: usize = 64;

/// Parts of all work that threads take, one after the other.
const PARTS: usize = 1024;

/// A number for each query of a chunk.
type QueryNumbers = [i32; CHUNK];

/// Writes the lists of blocks.
pub(in crate::execute) fn run(
    phase: &RaggedPhase,
    plan: &Plan,
    bindings: &Bindings,
    runner: &TaskRunner<'_>,
) -> Result<()> {
    runner.run(1, |_, ranges| {
        if let Some(at) = address(&phase.list, bindings) {
            ranges.flatten().for_each(|_| write_list(phase, &plan.constants, bindings, at));
        }
    })
}

/// Writes the lists of blocks to an address.
fn write_list(phase: &RaggedPhase, constants: &[[u8; 8]], bindings: &Bindings, at: *mut u8) {
    let list = &phase.list;
    let key_ranges = at.wrapping_add(list.ranges());
    let (mut cutter, mut head) = (BlockCutter::default(), ListHead::default());
    let mut numbers: SmallVec<[QueryNumbers; 12]> = SmallVec::from_elem([0; CHUNK], phase.nodes.len());
    let mut store = |block: RaggedBlock| store_block(list, &mut head, block, at);
    for first in (0..list.queries).step_by(CHUNK) {
        let queries = first..list.queries.min(first + CHUNK);
        for (node, of) in phase.nodes.iter().enumerate() {
            let (known, to) = numbers.split_at_mut(node);
            let start = start_of(of, constants, bindings);
            evaluate(of, start, phase.mask.query_axis, &queries, known, &mut to[0]);
        }
        let [firsts, ends] = phase.range.map(|node| &numbers[node]);
        for (query, (&first, &end)) in queries.zip(firsts.iter().zip(ends)) {
            let (first, end) = (first.max(0), i64::from(end).min(list.keys as i64) as i32);
            let range = KeyRange { first, end };
            // SAFETY: the list has room for the range of each query.
            unsafe { key_ranges.cast::<KeyRange>().add(query).write_unaligned(range) };
            cutter.add(range).into_iter().for_each(&mut store);
        }
    }
    cutter.last().into_iter().for_each(&mut store);
    // SAFETY: the lists begin with their head.
    unsafe { at.cast::<ListHead>().write_unaligned(head) };
}

/// Puts a block on the list of blocks, or its pieces on theirs.
fn store_block(list: &BlockList, head: &mut ListHead, block: RaggedBlock, at: *mut u8) {
    let write = |of: usize, total: &mut ListTotal, block: RaggedBlock, work: u64| {
        let to = at.wrapping_add(of).cast::<RaggedBlock>().wrapping_add(total.count);
        // SAFETY: there is room for a block of each query, and a block has a query or more; and for a piece
        // of each and as many more as there are slots.
        unsafe { to.write_unaligned(total.add(block, work)) };
    };
    if !list.is_few(&block) {
        return write(BlockList::BLOCKS, &mut head.blocks, block, block.work());
    }
    for piece in list.pieces_of(block, head.slots) {
        head.slots += usize::from(piece.pieces > 1);
        write(list.pieces(), &mut head.pieces, piece, piece.work_of_piece());
    }
}

/// Where a list lies.
fn address(list: &BlockList, bindings: &Bindings) -> Option<*mut u8> {
    match list.buffer {
        Base::Buffer(buffer) => Some(bindings.buffers[buffer]),
        _ => None,
    }
}

/// The first element of a node that is one.
fn start_of(node: &MaskNode, constants: &[[u8; 8]], bindings: &Bindings) -> *const u8 {
    match node.op {
        MaskOp::Element(MaskElement { base, offset, .. }) => {
            bindings.address(base, constants).wrapping_offset(offset)
        }
        _ => std::ptr::null(),
    }
}

/// Computes a node for some queries, from the nodes before it.
fn evaluate(
    node: &MaskNode,
    start: *const u8,
    query_axis: usize,
    queries: &Range<usize>,
    known: &[QueryNumbers],
    to: &mut QueryNumbers,
) {
    match &node.op {
        &MaskOp::Number(number) => to.fill(number as i32),
        MaskOp::Index { first, steps } => {
            for (query, to) in queries.clone().zip(to) {
                *to = first.wrapping_add(steps[query_axis].wrapping_mul(query as i64)) as i32;
            }
        }
        MaskOp::Element(element) => {
            let stride = element.strides[query_axis];
            for (query, to) in queries.clone().zip(to) {
                let at = start.wrapping_offset(stride * query as isize);
                // SAFETY: the strides of an element lead to one for each query, of type s32 as the plan's
                // compiler has seen.
                *to = unsafe { at.cast::<i32>().read_unaligned() };
            }
        }
        MaskOp::Binary(function) => {
            let &[x, y] = &node.operands[..] else { return };
            let apply: fn(i32, i32) -> i32 = match function {
                Binary::Add => i32::wrapping_add,
                Binary::Subtract => i32::wrapping_sub,
                Binary::Minimum => Ord::min,
                _ => Ord::max,
            };
            for (to, (&x, &y)) in to.iter_mut().zip(known[x].iter().zip(&known[y])) {
                *to = apply(x, y);
            }
        }
        // Nodes that ranges do not depend on.
        _ => {}
    }
}

/// The blocks of a list, or the pieces of one, at so many places that share them.
#[derive(Clone, Copy)]
pub(super) struct RaggedBlocks<'a> {
    blocks: &'a [RaggedBlock],
    ranges: &'a [KeyRange],
    /// The work of all blocks of a place.
    work: u64,
    places: usize,
    /// Pieces of blocks that have several.
    split: usize,
}

impl<'a> RaggedBlocks<'a> {
    /// Reads the list of blocks that a phase before has written.
    pub(super) fn new(list: &BlockList, places: usize, bindings: &'a Bindings) -> Self {
        Self::of(list, places, bindings, |head| (BlockList::BLOCKS, head.blocks))
    }

    /// Reads the list of pieces.
    pub(super) fn pieces(list: &BlockList, places: usize, bindings: &'a Bindings) -> Self {
        Self::of(list, places, bindings, |head| (list.pieces(), head.pieces))
    }

    fn of(
        list: &BlockList,
        places: usize,
        bindings: &'a Bindings,
        which: impl Fn(&ListHead) -> (usize, ListTotal),
    ) -> Self {
        let none = Self { blocks: &[], ranges: &[], work: 0, places, split: 0 };
        let Some(at) = address(list, bindings) else { return none };
        let at = at.cast_const();
        // SAFETY: the phase before has written the lists, to a buffer that begins with a cache line, and
        // nobody writes to it any more.
        unsafe {
            let head = at.cast::<ListHead>().read();
            let (first, ListTotal { count, work }) = which(&head);
            let blocks = std::slice::from_raw_parts(at.add(first).cast(), count);
            let ranges = std::slice::from_raw_parts(at.add(list.ranges()).cast(), list.queries);
            Self { blocks, ranges, work, places, split: head.slots }
        }
    }

    /// Pieces of blocks that have several.
    pub(super) fn split(&self) -> usize {
        self.split
    }

    /// All pieces of a block that has several, if the first of them has this slot.
    pub(super) fn block_at(&self, slot: usize) -> Option<&'a [RaggedBlock]> {
        let is_before = |piece: &RaggedBlock| (piece.slot as usize) < slot;
        let index = self.blocks.partition_point(is_before);
        let index = index + self.blocks[index..].iter().position(|piece| piece.pieces > 1)?;
        let piece = &self.blocks[index];
        let is_first = index == 0 || self.blocks[index - 1].first_query != piece.first_query;
        let found = piece.slot as usize == slot && is_first;
        found.then(|| &self.blocks[index..index + piece.pieces as usize])
    }

    /// Parts of about the same work.
    pub(super) fn parts(&self) -> usize {
        self.blocks.len().saturating_mul(self.places).min(PARTS)
    }

    /// The blocks of some parts: the place of each and the block.
    pub(super) fn of_parts(
        &self,
        parts: Range<usize>,
    ) -> impl Iterator<Item = (usize, &'a RaggedBlock)> + use<'a> {
        let Self { blocks, .. } = *self;
        let [first, end] = [parts.start, parts.end].map(|part| self.first_of(part));
        (first..end).map(move |block| (block / blocks.len(), &blocks[block % blocks.len()]))
    }

    /// The number of the first block of a part, among those of all places.
    fn first_of(&self, part: usize) -> usize {
        let all = u128::from(self.work) * self.places as u128;
        let before = all * part as u128 / self.parts().max(1) as u128;
        let work = u128::from(self.work.max(1));
        let (place, rest) = ((before / work) as usize, (before % work) as u64);
        place * self.blocks.len() + self.blocks.partition_point(|block| block.work_before < rest)
    }

    /// The ranges of the queries of a block.
    pub(super) fn ranges(&self, block: &RaggedBlock) -> &'a [KeyRange] {
        &self.ranges[block.first_query as usize..][..block.queries as usize]
    }
}
