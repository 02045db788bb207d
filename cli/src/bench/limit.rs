//! The limit of the machine's vectors: as many multiplications and additions in registers as a case needs.

use std::hint::black_box;
use std::time::Instant;

use rayon::ThreadPool;
use sterna::{DataType, arithmetic_in_registers};

/// Arithmetic that one execution cannot do without.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Arithmetic {
    /// Floating-point operations, a multiplication and an addition counted as two.
    pub(crate) operations: f64,
    /// The type of the factors.
    pub(crate) data_type: DataType,
}

/// Steps of the loop in registers by which its speed is found.
const TRIAL_STEPS: usize = 20_000;

impl Arithmetic {
    /// The least seconds that so many operations take on some threads at once.
    pub(crate) fn seconds(self, threads: usize) -> f64 {
        let trial = || {
            let start = Instant::now();
            let operations = arithmetic_in_registers(self.data_type, TRIAL_STEPS);
            start.elapsed().as_secs_f64() / operations
        };
        let least = (0..5).map(|_| trial()).fold(f64::INFINITY, f64::min);
        least * self.operations / threads as f64
    }

    /// Does as many operations in registers, the threads an equal part each.
    pub(crate) fn run(self, threads: usize, pool: &ThreadPool) {
        let of_step = arithmetic_in_registers(self.data_type, 1);
        let steps = (self.operations / threads as f64 / of_step).ceil() as usize;
        let work = move || black_box(arithmetic_in_registers(self.data_type, steps));
        if threads == 1 {
            work();
            return;
        }
        pool.in_place_scope(|scope| {
            for _ in 1..threads {
                scope.spawn(move |_| {
                    work();
                });
            }
            work();
        });
    }
}
