//! Dynamic chunks of a phase's tasks, for the threads of a fork-join.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use smallvec::SmallVec;

/// Chunks in a thread's span. A thread that starts late or is interrupted leaves its chunks to the others.
const CHUNKS_PER_THREAD: usize = 16;

/// The tasks of a phase. Each thread has a span of consecutive tasks and takes it chunk by chunk; then it
/// takes chunks that are left in the spans of others.
///
/// So a thread mostly reads and writes consecutive memory, and in the next execution the memory that it used
/// in the last (decision: chunks-that-follow).
pub(super) struct ChunkQueue {
    tasks: usize,
    /// Tasks of a span, and of a chunk.
    span: usize,
    chunk: usize,
    /// For each span, the first task that no thread has taken.
    next: SmallVec<[AtomicUsize; 8]>,
}

impl ChunkQueue {
    pub(super) fn new(tasks: usize, threads: usize) -> Self {
        let span = tasks.div_ceil(threads);
        let next = (0..threads).map(|thread| AtomicUsize::new(thread * span)).collect();
        Self { tasks, span, chunk: span.div_ceil(CHUNKS_PER_THREAD), next }
    }

    /// Takes the next chunk of a thread; `None` if all tasks are taken. `emptied` counts the spans that the
    /// thread has found empty, its own first; 0 at the start.
    pub(super) fn take(&self, thread: usize, emptied: &mut usize) -> Option<Range<usize>> {
        let threads = self.next.len();
        while *emptied < threads {
            let span = (thread + *emptied) % threads;
            let end = self.tasks.min((span + 1) * self.span);
            let first = self.next[span].fetch_add(self.chunk, Ordering::Relaxed);
            if first < end {
                return Some(first..end.min(first + self.chunk));
            }
            *emptied += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl ChunkQueue {
        fn taken_by(&self, thread: usize) -> impl Iterator<Item = Range<usize>> {
            let mut emptied = 0;
            std::iter::from_fn(move || self.take(thread, &mut emptied))
        }
    }

    /// Threads take chunks in an order that depends on the row; some take none.
    #[test]
    fn every_tile_is_taken_once() {
        let mut wrong = Vec::new();
        for (tiles, threads) in
            [(1, 1), (2, 2), (5, 4), (7, 3), (16, 2), (33, 2), (100, 8), (1000, 7), (4097, 16)]
        {
            for idle in 0..threads {
                let queue = ChunkQueue::new(tiles, threads);
                let mut takers: Vec<_> = (0..threads).map(|thread| queue.taken_by(thread)).collect();
                let mut taken = vec![0; tiles];
                for round in (0..).map(|round| round * round) {
                    let thread = round % threads;
                    if thread == idle && threads > 1 {
                        continue;
                    }
                    match takers[thread].next() {
                        Some(chunk) => taken[chunk].iter_mut().for_each(|times| *times += 1),
                        None => break,
                    }
                }
                if taken.iter().any(|&times| times != 1) {
                    wrong.push((tiles, threads, idle, taken));
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn a_member_takes_its_own_part_first_and_in_order() {
        let queue = ChunkQueue::new(64, 2);
        let taken: Vec<usize> = queue.taken_by(1).flatten().collect();
        assert_eq!(taken, (32..64).chain(0..32).collect::<Vec<_>>());
    }
}
