//! The streaming limit of the machine: plain copies of as many bytes as a case reads and writes.

use std::hint::black_box;
use std::mem::take;
use std::time::Instant;

use anyhow::{Context, Result};
use rayon::ThreadPool;
use serde::{Deserialize, Serialize};

/// Bytes that one execution reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Traffic {
    pub(crate) read: usize,
    pub(crate) written: usize,
}

impl Traffic {
    pub(crate) fn bytes(self) -> usize {
        self.read.saturating_add(self.written)
    }
}

/// How bytes are streamed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    threads: usize,
    /// Whether a thread takes its share block by block, and not in one piece.
    in_blocks: bool,
}

/// Words of a block: 32 KiB.
const BLOCK: usize = 4096;

/// How long one way is tried at the least.
const TRIAL_SECONDS: f64 = 0.001;

/// Two buffers, as large as the largest case so far needs.
pub(crate) struct Streams {
    from: Vec<u64>,
    to: Vec<u64>,
}

impl Streams {
    pub(crate) fn new() -> Self {
        Self { from: Vec::new(), to: Vec::new() }
    }

    /// Finds the fastest way to stream so many bytes.
    pub(crate) fn fastest(&mut self, traffic: Traffic, threads: usize, pool: &ThreadPool) -> Result<Way> {
        let room = |buffer: &mut Vec<u64>, bytes: usize| {
            let words = words(bytes);
            buffer
                .try_reserve_exact(words.saturating_sub(buffer.len()))
                .with_context(|| format!("there is no memory to stream {bytes} bytes"))?;
            // Pages that nobody wrote to are all one page of zeros.
            buffer.resize(words.max(buffer.len()), 1);
            anyhow::Ok(())
        };
        room(&mut self.from, traffic.read)?;
        room(&mut self.to, traffic.written)?;
        let counts = if threads == 1 { vec![1] } else { vec![1, threads] };
        let ways =
            counts.into_iter().flat_map(|threads| [false, true].map(|in_blocks| Way { threads, in_blocks }));
        let timed = ways.map(|way| {
            let trials = (0..3).map(|_| self.trial(traffic, way, pool));
            (trials.fold(f64::INFINITY, f64::min), way)
        });
        let fastest = timed.min_by(|a, b| a.0.total_cmp(&b.0));
        Ok(fastest.map_or(Way { threads: 1, in_blocks: false }, |(_, way)| way))
    }

    fn trial(&mut self, traffic: Traffic, way: Way, pool: &ThreadPool) -> f64 {
        let start = Instant::now();
        let mut runs = 0;
        while runs == 0 || start.elapsed().as_secs_f64() < TRIAL_SECONDS {
            self.run(traffic, way, pool);
            runs += 1;
        }
        start.elapsed().as_secs_f64() / f64::from(runs)
    }

    /// Streams so many bytes; [`fastest`](Self::fastest) has made room for them.
    pub(crate) fn run(&mut self, traffic: Traffic, way: Way, pool: &ThreadPool) {
        let from = &self.from[..words(traffic.read).min(self.from.len())];
        let to_words = words(traffic.written).min(self.to.len());
        let to = &mut self.to[..to_words];
        if way.threads == 1 {
            return stream(from, to, way.in_blocks);
        }
        pool.in_place_scope(|scope| {
            let mut own = None;
            each_piece(from, to, way.threads, |from, to| match own {
                None => own = Some((from, to)),
                Some(_) => scope.spawn(move |_| stream(from, to, way.in_blocks)),
            });
            if let Some((from, to)) = own {
                stream(from, to, way.in_blocks);
            }
        });
    }
}

fn words(bytes: usize) -> usize {
    bytes.div_ceil(size_of::<u64>())
}

fn stream(from: &[u64], to: &mut [u64], in_blocks: bool) {
    let blocks = if in_blocks { from.len().max(to.len()).div_ceil(BLOCK) } else { 1 };
    each_piece(from, to, blocks, |from, to| {
        let (from, to) = (black_box(from), black_box(to));
        let both = from.len().min(to.len());
        let ((copied, summed), (copy, filled)) = (from.split_at(both), to.split_at_mut(both));
        copy.copy_from_slice(copied);
        filled.fill(both as u64);
        black_box(summed.iter().fold(0u64, |sum, word| sum.wrapping_add(*word)));
    });
}

/// Cuts two buffers into so many pieces that belong together.
fn each_piece<'a>(
    from: &'a [u64],
    mut to: &'a mut [u64],
    count: usize,
    mut visit: impl FnMut(&'a [u64], &'a mut [u64]),
) {
    // Words are eight bytes, so the products stay far below what an index holds.
    let range = |words: usize, piece: usize| words * piece / count..words * (piece + 1) / count;
    let to_words = to.len();
    for piece in 0..count {
        let (head, rest) = take(&mut to).split_at_mut(range(to_words, piece).len());
        to = rest;
        visit(&from[range(from.len(), piece)], head);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_both_buffers_once() {
        let mut wrong = Vec::new();
        for (read, written, count) in [(10, 10, 3), (9, 4, 4), (0, 7, 2), (5, 0, 2), (3, 2, 8), (4096, 1, 1)]
        {
            let from: Vec<u64> = (0..read).collect();
            let mut to = vec![0; written];
            let (mut seen, mut pieces) = (Vec::new(), 0);
            each_piece(&from, &mut to, count, |from, to| {
                seen.extend_from_slice(from);
                to.iter_mut().for_each(|word| *word += 1);
                pieces += 1;
            });
            if seen != from || to.iter().any(|&word| word != 1) || pieces != count {
                wrong.push(format!("{read} to {written} in {count}: {seen:?}, {to:?}, {pieces} pieces"));
            }
        }
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn a_stream_copies_and_fills_the_rest() {
        for in_blocks in [false, true] {
            let from: Vec<u64> = (1..=3 * BLOCK as u64).collect();
            let mut to = vec![0; 2 * BLOCK];
            stream(&from[..2 * BLOCK], &mut to, in_blocks);
            assert_eq!(to, from[..2 * BLOCK]);
            stream(&[], &mut to, in_blocks);
            assert!(to.iter().all(|&word| word == 0));
            stream(&from, &mut to, in_blocks);
            assert!(to.iter().all(|&word| word != 0));
        }
    }
}
