//! What the machine can do at most: arithmetic in registers, and reads of memory.

use std::hint::black_box;
use std::time::Instant;

use sterna::{DataType, arithmetic_in_registers};

use crate::TYPES;

/// The machine on some threads at once.
pub(crate) struct Limits {
    /// Operations a second, by type.
    pub(crate) arithmetic: Vec<(DataType, f64)>,
    /// Bytes a second.
    pub(crate) reading: f64,
}

impl Limits {
    pub(crate) fn of(threads: usize, rounds: usize) -> Self {
        let arithmetic = TYPES.map(|t| {
            let rate = on_threads(threads, || {
                most(rounds, || {
                    let start = Instant::now();
                    arithmetic_in_registers(t, 100_000) / start.elapsed().as_secs_f64()
                })
            });
            (t, rate)
        });
        let reading = on_threads(threads, || {
            let words = vec![1u64; (256 << 20) / 8 / threads];
            most(rounds.min(5), || {
                let start = Instant::now();
                black_box(words.iter().fold(0u64, |sum, &word| sum ^ word));
                (words.len() * 8) as f64 / start.elapsed().as_secs_f64()
            })
        });
        Self { arithmetic: arithmetic.to_vec(), reading }
    }

    pub(crate) fn arithmetic(&self, t: DataType) -> f64 {
        self.arithmetic.iter().find(|(of, _)| *of == t).map_or(1.0, |(_, rate)| *rate)
    }
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
