//! The limit of the memory: a loop that reads one number of bytes and stores another, and does nothing else.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use rayon::ThreadPool;

use crate::rows::{Memory, Pages};

/// Bytes stored between two blocks of reads.
const BLOCK: usize = 4096;

/// Bytes stored at once.
const LINE: usize = 64;

/// Memory to be read and memory to be stored to.
pub(crate) struct Streamed {
    from: Memory,
    to: Memory,
    threads: usize,
    pool: Arc<ThreadPool>,
    past_caches: bool,
}

impl Streamed {
    /// Chooses the faster of temporal and non-temporal stores.
    pub(crate) fn new(
        read: usize,
        written: usize,
        threads: usize,
        pages: Pages,
        pool: Arc<ThreadPool>,
    ) -> Self {
        let (from, to) = (Memory::new(read, pages), Memory::new(written, pages));
        let mut streamed = Self { from, to, threads, pool, past_caches: false };
        let mut time = |past_caches| {
            streamed.past_caches = past_caches;
            let once = || {
                let start = Instant::now();
                (0..8).for_each(|_| streamed.run());
                start.elapsed()
            };
            std::iter::repeat_with(once).take(5).min()
        };
        let past_caches = time(true) < time(false);
        Self { past_caches, ..streamed }
    }

    pub(crate) fn run(&mut self) {
        let past_caches = self.past_caches;
        let (from, to) = (self.from.bytes(), self.to.bytes_mut());
        // Two halves if they are worth waking a worker.
        if self.threads == 1 || from.len() + to.len() < 8 << 20 {
            return half(from, to, past_caches);
        }
        let (from_here, from_there) = from.split_at(from.len() / 2 / LINE * LINE);
        let (to_here, to_there) = to.split_at_mut(to.len() / 2 / LINE * LINE);
        self.pool.in_place_scope(|scope| {
            scope.spawn(|_| half(from_there, to_there, past_caches));
            half(from_here, to_here, past_caches);
        });
    }
}

fn half(from: &[u8], to: &mut [u8], past_caches: bool) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the machine has the instructions.
        return unsafe { wide::half(from, to, past_caches) };
    }
    _ = past_caches;
    let share = from.len() * BLOCK / to.len().max(1);
    let mut rest = from;
    for block in to.chunks_mut(BLOCK) {
        let (now, later) = rest.split_at(share.min(rest.len()));
        rest = later;
        let read = now
            .chunks_exact(8)
            .fold(0, |all, word| all ^ u64::from_ne_bytes(word.try_into().expect("eight")));
        block.fill(black_box(read) as u8);
    }
    black_box(rest.iter().fold(0, |all, byte| all ^ byte));
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::*;

    use super::{BLOCK, LINE};

    #[target_feature(enable = "avx512f")]
    pub(super) fn half(from: &[u8], to: &mut [u8], past_caches: bool) {
        let share = (from.len() as u128 * BLOCK as u128 / to.len().max(1) as u128) as usize;
        let mut rest = from;
        let mut all = _mm512_setzero_si512();
        for block in to.chunks_mut(BLOCK) {
            let (now, later) = rest.split_at(share.next_multiple_of(LINE).min(rest.len()));
            rest = later;
            for line in now.chunks_exact(LINE) {
                // SAFETY: a line has so many bytes.
                all = _mm512_xor_si512(all, unsafe { _mm512_loadu_si512(line.as_ptr().cast()) });
            }
            for line in block.chunks_exact_mut(LINE) {
                // SAFETY: a line has so many bytes; blocks start at a multiple of a line.
                unsafe {
                    if past_caches {
                        _mm512_stream_si512(line.as_mut_ptr().cast(), all);
                    } else {
                        _mm512_storeu_si512(line.as_mut_ptr().cast(), all);
                    }
                }
            }
        }
        for line in rest.chunks_exact(LINE) {
            // SAFETY: a line has so many bytes.
            all = _mm512_xor_si512(all, unsafe { _mm512_loadu_si512(line.as_ptr().cast()) });
        }
        std::hint::black_box(all);
        _mm_sfence();
    }
}
