//! Promise: however many executions pass while all workers of a caller's pool are busy, at most one job a
//! worker waits in it.
//!
//! Rayon decides how a job is made; its bytes are counted. One test alone in its binary, since others would
//! allocate while this one counts.
#![cfg(feature = "threads")]

mod common;
#[path = "common/counting.rs"]
mod counting;

use std::sync::{Arc, Barrier};

use common::{Case, Random};
use counting::held;
use rayon::ThreadPoolBuilder;
use sterna::{AutoBroadcast, DataType, Engine, TensorBuf};

const WORKERS: usize = 3;
/// More than one, since engines may share a pool.
const ENGINES: usize = 2;
const EXECUTIONS: usize = 200;
/// The most bytes of a job, its slot in a queue, and blocks of queues.
const BYTES_OF_JOB: isize = 2_048;

#[test]
fn jobs_do_not_pile_up_in_a_busy_pool() {
    let pool = Arc::new(ThreadPoolBuilder::new().num_threads(WORKERS).build().unwrap());
    // A verdict for each element of a large result: worth workers by its effort, done in no time.
    let case = Case::new(AutoBroadcast::Numpy, DataType::U8, [&[], &[4096, 2048], &[]]);
    let engines: Vec<Engine> =
        (0..ENGINES).map(|_| Engine::builder().pool(pool.clone()).threads(WORKERS + 1).build()).collect();
    let prepared: Vec<_> = engines
        .iter()
        .map(|engine| {
            let compiled = case.compile(engine).unwrap();
            let inputs = case.filled(&compiled, engine, &mut Random::new(1));
            let output = TensorBuf::zeroed(compiled.outputs()[0].clone(), engine).unwrap();
            (engine, compiled, inputs, output)
        })
        .collect();
    assert!(prepared.iter().all(|(_, compiled, ..)| compiled.plan().nests[0].threads == WORKERS + 1));
    let mut prepared = prepared;
    let mut execute = |times: usize| {
        for _ in 0..times {
            for (engine, compiled, inputs, output) in &mut prepared {
                common::run(compiled, engine, inputs, output).unwrap();
            }
        }
    };
    let (busy, free) = (Arc::new(Barrier::new(WORKERS + 1)), Arc::new(Barrier::new(WORKERS + 1)));
    for _ in 0..WORKERS {
        let (busy, free) = (busy.clone(), free.clone());
        pool.spawn(move || {
            busy.wait();
            free.wait();
        });
    }
    busy.wait();
    let before = held();
    execute(EXECUTIONS / ENGINES);
    let waiting = held() - before;
    free.wait();
    // Whoever comes late finds nothing, and later executions find workers again.
    execute(2);
    let most = WORKERS as isize * BYTES_OF_JOB;
    assert!(waiting <= most, "{waiting} bytes wait after {EXECUTIONS} executions, {most} may");
}
