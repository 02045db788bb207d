//! Software prefetch: a queue of memory ranges that kernels prefetch while they compute.

use smallvec::SmallVec;

use super::{LINE, prefetch_l1};

/// A range of memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemRange {
    pub(crate) at: *const u8,
    pub(crate) bytes: usize,
}

impl MemRange {
    /// No memory.
    pub(in crate::kernels) const NONE: Self = Self { at: std::ptr::null(), bytes: 0 };
}

/// Bytes that a block prefetches: more than are read meanwhile, so that memory stays ahead, but no more lines
/// than a core can wait for (decision: prefetch-lines-a-block).
const PREFETCH_STEP: usize = 2 * LINE;

/// Ranges of memory that will be read soon. Heavy functions of one element prefetch some lines in each block
/// that they compute, so that memory works while arithmetic does. Light functions gain nothing from it, and
/// functions of two elements lose (decision: prefetch-in-heavy-functions).
#[derive(Debug, Default)]
pub(crate) struct PrefetchQueue {
    /// The ranges in their order.
    ranges: SmallVec<[MemRange; 6]>,
    /// Index of the first range that is not prefetched to its end.
    next: usize,
}

impl PrefetchQueue {
    /// Removes all ranges.
    pub(crate) fn clear(&mut self) {
        self.ranges.clear();
        self.next = 0;
    }

    /// Adds a range; joins it with the last one if it follows that.
    pub(crate) fn add(&mut self, range: MemRange) {
        match self.ranges[self.next..].last_mut() {
            Some(last) if last.at.wrapping_add(last.bytes) == range.at => last.bytes += range.bytes,
            _ => self.ranges.push(range),
        }
    }

    /// The range to prefetch next. A kernel keeps it in registers and puts back what is left
    /// (decision: prefetch-in-registers).
    #[inline(never)]
    pub(in crate::kernels) fn current(&self) -> MemRange {
        self.ranges.get(self.next).copied().unwrap_or(MemRange::NONE)
    }

    /// Prefetches the next bytes of the current range, and goes on to the next range at its end.
    #[inline(always)]
    pub(in crate::kernels) fn prefetch_step(&mut self, current: &mut MemRange) {
        if current.bytes > 0 {
            prefetch_l1(current.at, PREFETCH_STEP);
            current.at = current.at.wrapping_add(PREFETCH_STEP);
            current.bytes = current.bytes.saturating_sub(PREFETCH_STEP);
            if current.bytes == 0 {
                *current = self.next_range();
            }
        }
    }

    /// Goes on to the next range.
    #[cold]
    #[inline(never)]
    fn next_range(&mut self) -> MemRange {
        self.next += 1;
        self.current()
    }

    /// Puts back what is left of the current range.
    #[inline(never)]
    pub(in crate::kernels) fn put_back(&mut self, left: MemRange) {
        if let Some(current) = self.ranges.get_mut(self.next) {
            *current = left;
        }
    }

    /// Prefetches all that is left.
    pub(crate) fn prefetch_rest(&mut self) {
        self.ranges[self.next..].iter().for_each(|&MemRange { at, bytes }| prefetch_l1(at, bytes));
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offsets prefetched in each block by kernels of three blocks, for ranges given by offset and length.
    fn prefetched(ranges: &[(usize, usize)]) -> Vec<usize> {
        let mut queue = PrefetchQueue::default();
        for &(at, bytes) in ranges {
            queue.add(MemRange { at: std::ptr::without_provenance(at), bytes });
        }
        let mut prefetched = Vec::new();
        while queue.next < queue.ranges.len() {
            let mut current = queue.current();
            for _ in 0..3 {
                prefetched.extend((current.bytes > 0).then_some(current.at.addr()));
                queue.prefetch_step(&mut current);
            }
            queue.put_back(current);
        }
        prefetched
    }

    #[test]
    fn every_line_of_every_range_is_prefetched_in_order() {
        type Row<'a> = (&'a [(usize, usize)], &'a [usize]);
        let rows: &[Row<'_>] = &[
            (&[], &[]),
            (&[(640, 1)], &[640]),
            (&[(640, 128)], &[640]),
            (&[(640, 129)], &[640, 768]),
            (&[(640, 512)], &[640, 768, 896, 1024]),
            (&[(640, 256), (64, 200), (1280, 30)], &[640, 768, 64, 192, 1280]),
            (&[(640, 200), (840, 56), (896, 1)], &[640, 768, 896]),
        ];
        let prefetched = rows.iter().map(|(ranges, expected)| (ranges, prefetched(ranges), expected));
        let wrong: Vec<_> = prefetched.filter(|(_, prefetched, expected)| prefetched != *expected).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn nothing_is_left_after_the_rest() {
        let bytes = [0u8; 300];
        let mut queue = PrefetchQueue::default();
        for at in [0, 200] {
            queue.add(MemRange { at: bytes[at..].as_ptr(), bytes: 100 });
        }
        let mut current = queue.current();
        queue.prefetch_step(&mut current);
        queue.put_back(current);
        queue.prefetch_rest();
        assert_eq!(queue.current().bytes, 0);
    }
}
