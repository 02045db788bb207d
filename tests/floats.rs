//! Promise: the floating-point environment of the caller changes no bit, and is the caller's again
//! afterwards.
//!
//! Compilation too runs in the caller's environment, so the cache of compiled partitions is off here.
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use common::graphs::{self, RandomGraph};
use common::{Random, report};
use sterna::{
    Allocator, DataType, Engine, Error, ExecuteFault, Level, LogicalTensor, Op, OpKind, Partition, Stream,
    Tensor, TensorMut, set_compiled_partition_cache_capacity,
};
use word::{DEFAULT, FLUSHING, ROUNDING, control, set_control};

/// The control word of floats: all exceptions masked in the default.
#[cfg(target_arch = "x86_64")]
mod word {
    pub(super) const DEFAULT: u32 = 0x1f80;
    /// Results that are subnormal become zeros; operands that are.
    pub(super) const FLUSHING: [u32; 2] = [0x8000, 0x40];
    /// To nearest, down, up, towards zero.
    pub(super) const ROUNDING: [u32; 4] = [0, 0x2000, 0x4000, 0x6000];
    /// The flags of past exceptions, which control nothing.
    const FLAGS: u32 = 0x3f;

    pub(super) fn control() -> u32 {
        let mut control = 0u32;
        // SAFETY: the instruction writes four bytes there.
        unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut control) };
        control & !FLAGS
    }

    pub(super) fn set_control(control: u32) {
        // SAFETY: the instruction reads four bytes there; every word given masks all exceptions.
        unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const control) };
    }
}

#[cfg(target_arch = "aarch64")]
mod word {
    pub(super) const DEFAULT: u32 = 0;
    /// Subnormal operands and results become zeros; every NaN that comes out is the default one.
    pub(super) const FLUSHING: [u32; 2] = [1 << 24, 1 << 25];
    /// To nearest, up, down, towards zero.
    pub(super) const ROUNDING: [u32; 4] = [0, 1 << 22, 2 << 22, 3 << 22];

    pub(super) fn control() -> u32 {
        let control: u64;
        // SAFETY: every program may read the register.
        unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) control) };
        u32::try_from(control).unwrap()
    }

    pub(super) fn set_control(control: u32) {
        // SAFETY: every program may write the register; every word given masks all exceptions.
        unsafe { std::arch::asm!("msr fpcr, {}", in(reg) u64::from(control)) };
    }
}

/// Every mode that a caller may be in, all exceptions masked.
fn modes() -> Vec<u32> {
    let [first, second] = FLUSHING;
    let flushing = [0, first, second, first | second];
    ROUNDING.iter().flat_map(|rounding| flushing.map(|flush| DEFAULT | rounding | flush)).collect()
}

/// Runs something in a mode, and checks that it is still in force afterwards.
fn in_mode<T>(mode: u32, run: impl FnOnce() -> T) -> T {
    let before = control();
    set_control(mode);
    let result = run();
    let after = control();
    set_control(before);
    assert_eq!(after, mode, "the mode of the caller is restored");
    result
}

#[test]
fn every_mode_gives_the_same_bits() {
    set_compiled_partition_cache_capacity(0);
    let levels: Vec<Level> = Level::all_available().collect();
    let mut wrong = Vec::new();
    for seed in 0..60 {
        let graph = RandomGraph::on(&mut Random::new(seed), 12, vec![3, 70]);
        let engine = Engine::builder().threads(1).max_level(levels[seed as usize % levels.len()]).build();
        let inputs = graphs::filled(&graph, &engine, seed);
        for (policy, partitions) in ["fused", "op by op"].iter().zip(graphs::both(&graph.graph)) {
            let run = || graphs::run(&partitions, &graph.outputs, &engine, &inputs, None).unwrap();
            let here = run();
            for mode in modes() {
                let there = in_mode(mode, run);
                if let Some(why) = graphs::differs(&here, &there) {
                    wrong.push((seed, policy, format!("{mode:x}"), why, graphs::describe(&graph)));
                }
            }
        }
    }
    report(&wrong);
}

/// Large graphs, which workers take part in.
#[cfg(feature = "threads")]
fn large(seed: u64) -> RandomGraph {
    RandomGraph::on(&mut Random::new(seed), 6, vec![1100, 1000])
}

#[cfg(feature = "threads")]
#[test]
fn workers_give_the_same_bits_in_whatever_mode_they_were_started() {
    set_compiled_partition_cache_capacity(0);
    let mut wrong = Vec::new();
    for (seed, mode) in (0..).zip([DEFAULT | FLUSHING[0] | FLUSHING[1] | ROUNDING[2], DEFAULT | ROUNDING[3]])
    {
        let graph = large(seed);
        let [fused, _] = graphs::both(&graph.graph);
        let run = |engine: &Engine| {
            let inputs = graphs::filled(&graph, engine, seed);
            graphs::run(&fused, &graph.outputs, engine, &inputs, None).unwrap()
        };
        let alone = run(&Engine::builder().threads(1).build());
        // Workers of the engine's own inherit the mode of the thread that starts them.
        let engine = Engine::builder().threads(3).build();
        let inputs = graphs::filled(&graph, &engine, seed);
        let started = || graphs::run(&fused, &graph.outputs, &engine, &inputs, None).unwrap();
        let started = in_mode(mode, started);
        wrong.extend(graphs::differs(&alone, &started).map(|why| (seed, "started in another mode", why)));
        wrong.extend(graphs::differs(&alone, &run(&engine)).map(|why| (seed, "called in the default", why)));

        // Workers of the caller's have a mode of their own, and keep it.
        let builder = rayon::ThreadPoolBuilder::new().num_threads(3);
        let pool = Arc::new(builder.start_handler(move |_| set_control(mode)).build().unwrap());
        let own = run(&Engine::builder().pool(pool.clone()).threads(3).build());
        wrong.extend(graphs::differs(&alone, &own).map(|why| (seed, "on a pool", why)));
        assert_eq!(pool.broadcast(|_| control()), [mode; 3], "the mode of the workers is restored");
    }
    report(&wrong);
}

/// An allocator that fails or panics, and notes the mode in which it was asked.
struct Failing {
    panics: bool,
    asked_in: AtomicU32,
}

// SAFETY: it gives nothing.
unsafe impl Allocator for Failing {
    fn allocate(&self, _size: usize, _align: usize) -> Option<NonNull<u8>> {
        self.asked_in.store(control(), Ordering::Relaxed);
        assert!(!self.panics, "this allocator panics");
        None
    }

    unsafe fn deallocate(&self, _block: NonNull<u8>, _size: usize, _align: usize) {
        unreachable!("it gave nothing");
    }
}

#[test]
fn a_call_that_fails_leaves_the_mode_as_it_was() {
    // With gaps between its elements, so that the square needs scratch.
    let from = LogicalTensor::with_strides(0, DataType::F32, &[1000], &[2]).unwrap();
    let to = LogicalTensor::strided(1, DataType::F32, &[1000]).unwrap();
    let partition = Partition::from_op(Op::new(0, OpKind::Square).input(from).output(to)).unwrap();
    let values = vec![1.5f32; 2000];
    for (mode, panics) in modes().into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
        let failing = Arc::new(Failing { panics, asked_in: AtomicU32::new(0) });
        let engine = Engine::builder().threads(1).allocator(failing.clone()).build();
        let stream = Stream::new(&engine);
        let mut result = vec![0f32; 1000];
        in_mode(mode, || {
            let compile =
                |inputs: &[LogicalTensor]| partition.compile_for(&engine, inputs, partition.outputs());
            assert!(matches!(compile(&[]), Err(Error::Compile { .. })));
            let compiled = compile(partition.inputs()).unwrap();
            let input = Tensor::new(&compiled.inputs()[0], &engine, &values).unwrap();
            let mut output = [TensorMut::new(&compiled.outputs()[0], &engine, &mut result).unwrap()];
            let missing = compiled.execute(&stream, &[], &mut output);
            assert!(matches!(missing, Err(Error::Execute(ExecuteFault::Missing { .. }))));
            let mut execute = || compiled.execute(&stream, &[input], &mut output);
            match panics {
                true => drop(catch_unwind(AssertUnwindSafe(execute)).unwrap_err()),
                false => assert!(matches!(execute(), Err(Error::OutOfMemory { .. }))),
            }
        });
        assert_eq!(failing.asked_in.load(Ordering::Relaxed), mode, "the allocator runs in the caller's mode");
    }
}
