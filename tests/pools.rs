//! Promise: a pool of any size, from wherever it is called, runs to the end with the same bits.
#![cfg(feature = "threads")]

mod common;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use common::{Case, ELSE, Random};
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use sterna::{Allocator, AutoBroadcast, DataType, Engine, LogicalTensor, SystemAllocator, TensorBuf};

/// Selects that are large enough for workers, some of which need scratch.
fn large_cases() -> [Case; 3] {
    [
        Case::new(AutoBroadcast::None, DataType::F32, [&[1_000_003]; 3]),
        Case::new(AutoBroadcast::Numpy, DataType::U8, [&[3, 1, 1100], &[3, 1500, 1100], &[]]),
        strided_case(),
    ]
}

fn strided_case() -> Case {
    let mut case = Case::new(AutoBroadcast::None, DataType::Bf16, [&[1300, 1111]; 3]);
    case.strides[ELSE] = Some(vec![1, 1300]);
    case.dst_strides = Some(vec![1200, 1]);
    case
}

/// Ends the process where something hangs, which a test that waits for it could not say.
fn without_deadlock(run: impl FnOnce()) {
    const LONG: Duration = Duration::from_secs(240);
    let (done, is_done) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        if is_done.recv_timeout(LONG) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("nothing came of it in {LONG:?}: a deadlock");
            std::process::abort();
        }
    });
    run();
    drop(done);
}

/// A case with its inputs, and the result that one thread gives.
struct Prepared {
    case: Case,
    inputs: Vec<Vec<u8>>,
    expected: Vec<u8>,
}

impl Prepared {
    fn new(case: Case) -> Self {
        let engine = Engine::builder().threads(1).build();
        let compiled = case.compile(&engine).unwrap();
        let inputs = case.filled(&compiled, &engine, &mut Random::new(5));
        let mut output = TensorBuf::zeroed(compiled.outputs()[0].clone(), &engine).unwrap();
        common::run(&compiled, &engine, &inputs, &mut output).unwrap();
        let bytes = |tensor: &TensorBuf| tensor.as_bytes().to_vec();
        Self { case, inputs: inputs.iter().map(bytes).collect(), expected: bytes(&output) }
    }

    /// Executes on an engine and compares with what one thread gave.
    fn check(&self, engine: &Engine) {
        let compiled = self.case.compile(engine).unwrap();
        let made = |desc: &LogicalTensor| TensorBuf::zeroed(desc.clone(), engine).unwrap();
        let mut inputs: Vec<TensorBuf> = compiled.inputs().iter().map(made).collect();
        for (input, bytes) in inputs.iter_mut().zip(&self.inputs) {
            input.as_mut_bytes().copy_from_slice(bytes);
        }
        let mut output = made(&compiled.outputs()[0]);
        common::run(&compiled, engine, &inputs, &mut output).unwrap();
        assert!(output.as_bytes() == self.expected, "{:?} on {engine:?}", self.case);
    }
}

fn prepared() -> Vec<Prepared> {
    large_cases().into_iter().map(Prepared::new).collect()
}

fn pool(threads: usize) -> Arc<ThreadPool> {
    Arc::new(ThreadPoolBuilder::new().num_threads(threads).build().unwrap())
}

#[test]
fn pools_of_one_thread_and_of_64_serve_many_callers_at_once() {
    let cases = prepared();
    without_deadlock(|| {
        for threads in [1, 64] {
            let engines = [
                Engine::builder().threads(threads).build(),
                Engine::builder().pool(pool(threads)).build(),
                // More members of a crew than there are workers, and fewer.
                Engine::builder().pool(pool(threads)).threads(8).build(),
            ];
            std::thread::scope(|scope| {
                for caller in 0..8 {
                    let (engine, cases) = (&engines[caller % engines.len()], &cases);
                    scope.spawn(move || cases.iter().for_each(|case| case.check(engine)));
                }
            });
        }
    });
}

#[test]
fn a_caller_may_be_inside_of_the_very_pool_of_the_engine_or_of_any_other() {
    let cases = prepared();
    let check = |engine: &Engine, n: usize| cases[n % cases.len()].check(engine);
    without_deadlock(|| {
        for threads in [1, 2, 64] {
            let own = pool(threads);
            let inside = Engine::builder().pool(own.clone()).threads(4).build();
            let beside = Engine::builder().threads(3).build();
            // All workers of the pool call at once, each waiting for members that only they could be.
            own.install(|| (0..8).into_par_iter().for_each(|n| check(&inside, n)));
            own.install(|| (0..8).into_par_iter().for_each(|n| check(&beside, n)));
            // From the pool of the whole process, by a scope and by halves, down to calls from within calls.
            rayon::scope(|scope| {
                let (check, inside) = (&check, &inside);
                (0..4).for_each(|n| scope.spawn(move |_| check(inside, n)));
            });
            rayon::join(
                || own.install(|| rayon::join(|| check(&inside, 0), || check(&inside, 1))),
                || rayon::join(|| check(&inside, 2), || check(&beside, 3)),
            );
        }
    });
}

/// An allocator that executes on its own engine when it is asked for the scratch of the first execution.
struct Executing {
    case: Prepared,
    engine: OnceLock<Engine>,
    calls: AtomicUsize,
    executed: AtomicUsize,
}

/// Calls of the allocator before that: for three inputs and an output.
const TENSORS: usize = 4;

// SAFETY: the blocks are those of the system's allocator.
unsafe impl Allocator for Executing {
    fn allocate(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        if self.calls.fetch_add(1, Ordering::Relaxed) == TENSORS {
            self.case.check(self.engine.wait());
            self.executed.fetch_add(1, Ordering::Relaxed);
        }
        SystemAllocator.allocate(size, align)
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, size: usize, align: usize) {
        // SAFETY: as the caller promises; the block came from there.
        unsafe { SystemAllocator.deallocate(block, size, align) };
    }
}

#[test]
fn hooks_of_the_caller_may_execute() {
    let cases = Arc::new(prepared());
    without_deadlock(|| {
        // A hook of the pool itself: a worker that starts executes on the engine that it is to work for.
        let (engine, started) = (Arc::new(OnceLock::<Engine>::new()), Arc::new(AtomicUsize::new(0)));
        let hook = {
            let (cases, engine, started) = (cases.clone(), engine.clone(), started.clone());
            move |_| {
                cases[0].check(engine.wait());
                started.fetch_add(1, Ordering::Relaxed);
            }
        };
        let pool = Arc::new(ThreadPoolBuilder::new().num_threads(3).start_handler(hook).build().unwrap());
        engine.set(Engine::builder().pool(pool.clone()).build()).unwrap();
        cases.iter().for_each(|case| case.check(engine.get().unwrap()));
        pool.broadcast(|_| cases[1].check(engine.get().unwrap()));
        assert_eq!(started.load(Ordering::Relaxed), 3);

        // The allocator, when it is asked for scratch in the middle of an execution.
        let case = Prepared::new(strided_case());
        let (engine, calls, executed) = (OnceLock::new(), AtomicUsize::new(0), AtomicUsize::new(0));
        let allocator = Arc::new(Executing { case, engine, calls, executed });
        let engine = Engine::builder().threads(3).allocator(allocator.clone()).build();
        allocator.engine.set(engine.clone()).unwrap();
        allocator.case.check(&engine);
        assert_eq!(allocator.executed.load(Ordering::Relaxed), 1);
    });
}
