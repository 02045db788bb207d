//! The limit of the machine's memory: plain copies of as many bytes as a case reads and writes. The
//! comparison with the peers runs them, too.

use std::array;
use std::collections::TryReserveError;
use std::hint::black_box;
use std::mem::take;
use std::time::Instant;

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

/// A strategy of streaming bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CopyStrategy {
    threads: usize,
    pattern: CopyPattern,
}

/// The copy loop of a thread.
#[derive(Debug, Clone, Copy)]
struct CopyPattern {
    /// Number of places that it copies at, in rotation: memory serves several streams better than one.
    lanes: usize,
    /// Words that it copies at one place before it goes on at the next.
    block: usize,
}

const MAX_LANES: usize = 4;

/// In one piece, which the system's copy stores non-temporally if it is long; in blocks of 32 KiB; and in
/// interleaved blocks of 512 bytes, which memory serves faster (decision: copy-interleaved).
const PATTERNS: [CopyPattern; 4] = [
    CopyPattern { lanes: 1, block: usize::MAX },
    CopyPattern { lanes: 1, block: 4096 },
    CopyPattern { lanes: 2, block: 64 },
    CopyPattern { lanes: MAX_LANES, block: 64 },
];

/// The least time of a trial of one strategy.
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

    /// Finds the fastest strategy to stream so many bytes, and its seconds.
    pub(crate) fn fastest(
        &mut self,
        traffic: Traffic,
        threads: usize,
        pool: &ThreadPool,
    ) -> Result<(CopyStrategy, f64), TryReserveError> {
        let room = |buffer: &mut Vec<u64>, bytes: usize| {
            let words = words(bytes);
            buffer.try_reserve_exact(words.saturating_sub(buffer.len()))?;
            // Pages that nobody wrote to are all one page of zeros.
            buffer.resize(words.max(buffer.len()), 1);
            Ok::<_, TryReserveError>(())
        };
        room(&mut self.from, traffic.read)?;
        room(&mut self.to, traffic.written)?;
        let counts = if threads == 1 { vec![1] } else { vec![1, threads] };
        let strategies =
            counts.into_iter().flat_map(|threads| PATTERNS.map(|pattern| CopyStrategy { threads, pattern }));
        let timed = strategies.map(|strategy| {
            let trials = (0..2).map(|_| self.trial(traffic, strategy, pool));
            (trials.fold(f64::INFINITY, f64::min), strategy)
        });
        let fastest = timed.min_by(|a, b| a.0.total_cmp(&b.0));
        let plain = (CopyStrategy { threads: 1, pattern: PATTERNS[0] }, 0.0);
        Ok(fastest.map_or(plain, |(seconds, strategy)| (strategy, seconds)))
    }

    fn trial(&mut self, traffic: Traffic, strategy: CopyStrategy, pool: &ThreadPool) -> f64 {
        let start = Instant::now();
        let mut runs = 0;
        while runs == 0 || start.elapsed().as_secs_f64() < TRIAL_SECONDS {
            self.run(traffic, strategy, pool);
            runs += 1;
        }
        start.elapsed().as_secs_f64() / f64::from(runs)
    }

    /// Streams so many bytes; [`fastest`](Self::fastest) has made room for them.
    pub(crate) fn run(&mut self, traffic: Traffic, strategy: CopyStrategy, pool: &ThreadPool) {
        let (read, written) = (words(traffic.read), words(traffic.written));
        let (from, to) = (&self.from, &mut self.to);
        let written = written.min(to.len());
        let mut all = Share { from: &from[..read.min(from.len())], to: &mut to[..written] };
        if strategy.threads == 1 {
            return all.stream(strategy.pattern);
        }
        pool.in_place_scope(|scope| {
            for left in (2..=strategy.threads).rev() {
                let share = all.first_of(left);
                scope.spawn(move |_| share.stream(strategy.pattern));
            }
            all.stream(strategy.pattern);
        });
    }
}

/// A source and a target; as much of the source is copied as the target has room for.
struct Share<'a> {
    from: &'a [u64],
    to: &'a mut [u64],
}

impl<'a> Share<'a> {
    /// Takes away the first of so many equal parts; the last part is what is left.
    fn first_of(&mut self, parts: usize) -> Self {
        let (from, from_left) = self.from.split_at(self.from.len() / parts);
        let to_words = self.to.len() / parts;
        let (to, to_left) = take(&mut self.to).split_at_mut(to_words);
        (self.from, self.to) = (from_left, to_left);
        Self { from, to }
    }

    fn stream(mut self, CopyPattern { lanes, block }: CopyPattern) {
        let blocks = self.from.len().max(self.to.len()).div_ceil(lanes).div_ceil(block).max(1);
        let mut places: [Self; MAX_LANES] = array::from_fn(|_| Self { from: &[], to: &mut [] });
        for (left, place) in (1..=lanes).rev().zip(&mut places) {
            *place = self.first_of(left);
        }
        for left in (1..=blocks).rev() {
            places[..lanes].iter_mut().for_each(|place| place.first_of(left).copy());
        }
    }

    /// Copies; what is read beyond that is summed, what is written beyond it filled.
    fn copy(self) {
        let (from, to) = (black_box(self.from), black_box(self.to));
        let both = from.len().min(to.len());
        let ((copied, summed), (copy, filled)) = (from.split_at(both), to.split_at_mut(both));
        copy.copy_from_slice(copied);
        filled.fill(both as u64);
        black_box(summed.iter().fold(0u64, |sum, word| sum.wrapping_add(*word)));
    }
}

fn words(bytes: usize) -> usize {
    bytes.div_ceil(size_of::<u64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_a_share_once() {
        let mut wrong = Vec::new();
        for (read, written, count) in [(10, 10, 3), (9, 4, 4), (0, 7, 2), (5, 0, 2), (3, 2, 8), (4096, 1, 1)]
        {
            let from: Vec<u64> = (0..read).collect();
            let mut to = vec![0; written];
            let mut all = Share { from: &from, to: &mut to };
            let mut seen = Vec::new();
            for left in (1..=count).rev() {
                let part = all.first_of(left);
                seen.extend_from_slice(part.from);
                part.to.iter_mut().for_each(|word| *word += 1);
            }
            if !all.from.is_empty() || seen != from || to.iter().any(|&word| word != 1) {
                wrong.push(format!("{read} to {written} in {count}: {seen:?}, {to:?}"));
            }
        }
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn every_way_copies_what_it_can_and_fills_the_rest() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let mut wrong = Vec::new();
        for (read, written) in
            [(30_000, 30_000), (30_001, 7), (7, 30_001), (0, 100), (100, 0), (1, 1), (0, 0)]
        {
            for (pattern, threads) in
                PATTERNS.into_iter().flat_map(|pattern| [1, 3].map(|threads| (pattern, threads)))
            {
                let mut streams = Streams { from: (1..=read).collect(), to: vec![0; written] };
                let traffic = Traffic { read: 8 * read as usize, written: 8 * written };
                streams.run(traffic, CopyStrategy { threads, pattern }, &pool);
                let untouched = read > 0 && read as usize >= written && streams.to.contains(&0);
                let same = streams.to == streams.from;
                if untouched || (read as usize == written && !same) {
                    wrong.push(format!("{read} to {written} on {threads} by {pattern:?}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
