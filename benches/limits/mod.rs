//! The limits of the machine, on some threads at once: arithmetic in registers, and reads of as many bytes as
//! a row reads, from where the caches keep them.

use std::hint::black_box;
use std::time::Instant;

use sterna::{DataType, arithmetic_in_registers};

/// Least time of one sample, so that reading the clock does not matter.
const SAMPLE_SECONDS: f64 = 0.002;

/// Words of a cache line.
const LINE: usize = 8;

/// Operations a second of multiplications and additions in registers.
pub(crate) fn arithmetic(data_type: DataType, threads: usize, rounds: usize) -> f64 {
    on_threads(threads, || {
        most(rounds, || {
            let start = Instant::now();
            black_box(arithmetic_in_registers(data_type, 100_000)) / start.elapsed().as_secs_f64()
        })
    })
}

/// The limit of a type among those of several.
pub(crate) fn of(data_type: DataType, limits: &[(DataType, f64)]) -> f64 {
    limits.iter().find(|(of, _)| *of == data_type).map_or(1.0, |(_, limit)| *limit)
}

/// Bytes a second of reading so many bytes again and again, in the fastest of three ways: a core follows
/// several streams at once, and waits less than with one.
pub(crate) fn reading(bytes: usize, threads: usize, rounds: usize) -> f64 {
    on_threads(threads, || {
        let words = vec![1u64; (bytes / 8 / threads).next_multiple_of(8 * LINE)];
        let ways: [fn(&[u64]) -> u64; 3] = [read::<1>, read::<4>, read::<8>];
        ways.map(|way| most(rounds, || rate_of(&words, way))).into_iter().fold(0.0, f64::max)
    })
}

fn rate_of(words: &[u64], way: fn(&[u64]) -> u64) -> f64 {
    let (start, mut runs) = (Instant::now(), 0);
    while runs == 0 || start.elapsed().as_secs_f64() < SAMPLE_SECONDS {
        black_box(way(black_box(words)));
        runs += 1;
    }
    (runs * size_of_val(words)) as f64 / start.elapsed().as_secs_f64()
}

/// Reads streams side by side, a line of each by turns.
fn read<const STREAMS: usize>(words: &[u64]) -> u64 {
    let lines = words.len() / STREAMS / LINE;
    let streams: [&[u64]; STREAMS] = std::array::from_fn(|at| &words[at * lines * LINE..][..lines * LINE]);
    let mut sums = [0u64; LINE];
    for line in 0..lines {
        for stream in streams {
            let words = &stream[line * LINE..][..LINE];
            sums.iter_mut().zip(words).for_each(|(sum, word)| *sum ^= word);
        }
    }
    sums.into_iter().fold(0, |sum, of| sum ^ of)
}

fn most(rounds: usize, mut rate: impl FnMut() -> f64) -> f64 {
    (0..rounds.max(1)).map(|_| rate()).fold(0.0, f64::max)
}

fn on_threads(threads: usize, rate: impl Fn() -> f64 + Sync) -> f64 {
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(&rate)).collect();
        let own = rate();
        own + others.into_iter().filter_map(|other| other.join().ok()).sum::<f64>()
    })
}
