//! Where tensors between steps lie: one arena, in which tensors share bytes if no step needs both.

use crate::execute::engine::ALIGNMENT;

/// A block of the arena, and the steps between which its bytes must last, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ArenaBlock {
    pub(super) bytes: usize,
    pub(super) first: usize,
    pub(super) last: usize,
}

impl ArenaBlock {
    fn is_beside(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// The offset of each block, and the bytes of the arena. The largest block is placed first, each at the
/// lowest offset at which it overlaps no block that lasts at the same time.
pub(super) fn placed(blocks: &[ArenaBlock]) -> (Vec<usize>, usize) {
    // A sort of plain numbers has code that others share.
    let mut order: Vec<(usize, usize, usize)> =
        blocks.iter().enumerate().map(|(block, of)| (usize::MAX - of.bytes, block, 0)).collect();
    order.sort_unstable();
    let mut offsets = vec![0; blocks.len()];
    // Blocks that have a place, by offset.
    let mut done: Vec<usize> = Vec::new();
    let mut end = 0;
    for (_, block, _) in order {
        let bytes = blocks[block].bytes.next_multiple_of(ALIGNMENT);
        let mut offset = 0usize;
        for &other in &done {
            let start = offsets[other];
            if !blocks[block].is_beside(&blocks[other]) {
                continue;
            }
            if offset.saturating_add(bytes) <= start {
                break;
            }
            let behind = start.saturating_add(blocks[other].bytes.next_multiple_of(ALIGNMENT));
            offset = offset.max(behind);
        }
        offsets[block] = offset;
        end = end.max(offset.saturating_add(bytes));
        let at = done.partition_point(|&other| offsets[other] <= offset);
        done.insert(at, block);
    }
    (offsets, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(bytes: usize, first: usize, last: usize) -> ArenaBlock {
        ArenaBlock { bytes, first, last }
    }

    #[test]
    fn blocks_that_last_at_one_time_lie_apart() {
        type Row = (&'static str, &'static [(usize, usize, usize)], usize);
        let rows: &[Row] = &[
            ("nothing", &[], 0),
            ("one after the other", &[(100, 0, 1), (100, 2, 3)], 128),
            ("a chain, each beside the next", &[(64, 0, 1), (64, 1, 2), (64, 2, 3), (64, 3, 4)], 128),
            ("a hole that is filled", &[(64, 0, 9), (128, 0, 3), (128, 4, 9), (64, 0, 9)], 256),
            ("no bytes", &[(0, 0, 5), (64, 0, 5)], 64),
        ];
        let mut faults = Vec::new();
        for (what, blocks, expected) in rows {
            let blocks: Vec<ArenaBlock> = blocks.iter().map(|&(a, b, c)| block(a, b, c)).collect();
            let (offsets, end) = placed(&blocks);
            let range = |i: usize| offsets[i]..offsets[i] + blocks[i].bytes;
            for i in 0..blocks.len() {
                for j in 0..i {
                    let (a, b) = (range(i), range(j));
                    if blocks[i].is_beside(&blocks[j]) && a.start < b.end && b.start < a.end {
                        faults.push(format!("{what}: {a:?} and {b:?}"));
                    }
                }
            }
            if end != *expected {
                faults.push(format!("{what}: {end} bytes, not {expected}"));
            }
        }
        assert!(faults.is_empty(), "{faults:#?}");
    }
}
