//! A kernel that panics. No caller can make one panic, only a defect could, so the test puts such a kernel
//! into the plan of a compiled partition.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::*;
use crate::compile::cache::set_compiled_partition_cache_capacity;
use crate::graph::op::Op;
use crate::kernels::pointwise::{Kernel1, Params};
use crate::kernels::prefetch::PrefetchQueue;
use crate::kernels::{Extent, Source, Target};
use crate::partition::Partition;
use crate::plan::{Instr, Phase};
use crate::types::dtype::DataType;
use crate::types::kind::OpKind;

/// Enough elements to wake workers.
const LENGTH: usize = 3_000_000;

/// The kernel to run if no panic is wanted.
static WORKING: OnceLock<Kernel1> = OnceLock::new();
static WORKERS_PANIC: AtomicBool = AtomicBool::new(false);
static CALLER_PANICS: AtomicBool = AtomicBool::new(false);
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn may_panic(extent: Extent, x: Source, to: Target, params: &Params, queue: &mut PrefetchQueue) {
    let is_worker = std::thread::current().name().is_some_and(|name| name.starts_with("sterna-"));
    let panics = if is_worker { &WORKERS_PANIC } else { &CALLER_PANICS };
    if panics.load(Ordering::Relaxed) {
        PANICS.fetch_add(1, Ordering::Relaxed);
        panic!("a kernel panics");
    }
    // Otherwise the others would do all the work before the one that panics has its turn.
    let start = Instant::now();
    while (WORKERS_PANIC.load(Ordering::Relaxed) || CALLER_PANICS.load(Ordering::Relaxed))
        && PANICS.load(Ordering::Relaxed) == 0
        && start.elapsed() < Duration::from_secs(20)
    {
        std::thread::yield_now();
    }
    // SAFETY: as the caller of this kernel promises for the kernel that it replaces.
    unsafe { WORKING.get().expect("it was set before the first execution")(extent, x, to, params, queue) }
}

/// A compiled exponential of elements with gaps, which needs scratch, on three threads, with the kernel that
/// may panic. Register fusion takes no exponential, whatever the caches of the machine are.
fn compiled() -> CompiledPartition {
    let dims = [LENGTH as i64];
    let from = LogicalTensor::with_strides(0, DataType::F32, &dims, &[2]).unwrap();
    let to = LogicalTensor::strided(1, DataType::F32, &dims).unwrap();
    let op = Op::new(0, OpKind::Exp).input(from).output(to);
    let partition = Partition::from_op(op).unwrap();
    // A plan that is not in the cache is not shared, so it can be changed.
    set_compiled_partition_cache_capacity(0);
    let engine = Engine::builder().threads(3).build();
    let mut compiled = partition.compile(&engine).unwrap();
    let plan = Arc::get_mut(&mut Arc::get_mut(&mut compiled.inner).unwrap().plan).unwrap();
    let nests = plan.phases.iter_mut().filter_map(|phase| match phase {
        Phase::Map(nest) => Some(nest),
        _ => None,
    });
    let steps = nests.flat_map(|nest| &mut nest.program.steps);
    let mut kernels = steps.filter_map(|step| match &mut step.instr {
        Instr::Unary { kernel, .. } => Some(kernel),
        _ => None,
    });
    let kernel = kernels.next().unwrap();
    WORKING.set(*kernel).unwrap();
    *kernel = may_panic;
    compiled
}

/// The control word of the thread's floating-point environment, without the flags of past exceptions.
#[cfg(target_arch = "x86_64")]
fn control() -> u32 {
    let mut control = 0u32;
    // SAFETY: the instruction writes four bytes to the address.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut control) };
    control & !0x3f
}

#[cfg(target_arch = "x86_64")]
fn set_control(control: u32) {
    // SAFETY: the instruction reads four bytes there; the words given mask all exceptions.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const control) };
}

#[test]
fn a_panic_anywhere_is_an_error_and_the_next_execution_works() {
    let compiled = compiled();
    let (engine, stream) = (compiled.engine().clone(), Stream::new(compiled.engine()));
    assert_ne!(compiled.scratchpad_size(), 0);
    let values: Vec<f32> = (0..2 * LENGTH).map(|i| (i % 1000) as f32 / 1000.0).collect();
    let input = Tensor::new(&compiled.inputs()[0], &engine, &values).unwrap();
    let execute = || {
        let mut result = vec![f32::NAN; LENGTH];
        let output = TensorMut::new(&compiled.outputs()[0], &engine, &mut result).unwrap();
        compiled.execute(&stream, &[input], &mut [output]).map(|()| result)
    };
    let works = || {
        let result = execute().unwrap();
        let is_near = |(result, x): (&f32, &f32)| (result - x.exp()).abs() < 1e-5;
        assert!(result.iter().zip(values.iter().step_by(2)).all(is_near));
    };
    works();
    for round in 0..4 {
        for (workers, caller) in [(true, false), (false, true), (true, true)] {
            // Flush to zero and round down; this mode must hold afterwards as well.
            #[cfg(target_arch = "x86_64")]
            set_control(0x1f80 | 0x8000 | 0x2000);
            PANICS.store(0, Ordering::Relaxed);
            WORKERS_PANIC.store(workers, Ordering::Relaxed);
            CALLER_PANICS.store(caller, Ordering::Relaxed);
            let result = execute();
            WORKERS_PANIC.store(false, Ordering::Relaxed);
            CALLER_PANICS.store(false, Ordering::Relaxed);
            #[cfg(target_arch = "x86_64")]
            {
                assert_eq!(control(), 0x1f80 | 0x8000 | 0x2000, "round {round}");
                set_control(0x1f80);
            }
            assert_ne!(PANICS.load(Ordering::Relaxed), 0, "round {round}");
            let error = result.unwrap_err();
            assert_eq!(error, Error::Execute(ExecuteFault::Panicked), "round {round}");
            works();
        }
    }
}
