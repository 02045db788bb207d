//! What a call costs besides its work: executions of few elements, with tensors made before and with new ones;
//! executions of many elements while the workers are asleep, which show from what size on they are worth waking; and
//! compilations, cold and from the cache, from one thread and from two.

mod limit;
mod rows;

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use limit::{LimitLoop, Store};
use rayon::ThreadPoolBuilder;
use rows::{COND, Condition, DST, ELSE, Limit, Operands, Pages, Row, Shape, THEN};
use sterna::{
    CompiledPartition, DataType, Engine, Stream, Tensor, TensorMut, compiled_partition_cache_capacity,
    set_compiled_partition_cache_capacity,
};

macro_rules! lengths {
    ($($n:literal)*) => {
        [$(Shape {
            name: stringify!($n),
            dims: [&[$n]; 3],
            strides: [None; 4],
            natural: None,
            limit: Limit::Same,
        }),*]
    };
}

static LENGTHS: [Shape; 6] = lengths!(1 16 64 256 1024 4096);

/// Of f32, 0.8 to 54 MB moved, each twice the one before.
static LONG: [Shape; 7] = lengths!(65_536 131_072 262_144 524_288 1_048_576 2_097_152 4_194_304);

/// How long nobody runs anything before each execution that is to find the workers asleep.
const PAUSE: Duration = Duration::from_millis(3);

fn row(shape: &'static Shape) -> Row {
    let (data_type, condition) = (DataType::F32, Condition::Random(500));
    Row { shape, data_type, condition, level: None, in_place_of: None, pages: Pages::Small }
}

fn execute(criterion: &mut Criterion) {
    // As many threads as the machine has: none of them must be woken.
    let engine = Engine::new();
    for shape in &LENGTHS {
        let row = row(shape);
        let operands = Operands::new(&row, row.pages);
        let compiled = row.compile(&engine);
        let limit = LimitLoop::new(&row).with_stores(Store::Ordinary);
        let mut group = criterion.benchmark_group(format!("execute/{}", shape.name));
        group.throughput(Throughput::Bytes(compiled.bytes_moved() as u64));
        short(&mut group);
        group.bench_function("tensors-made-before", |bencher| {
            operands.with_execution(&compiled, |execute| bencher.iter(execute));
        });
        group.bench_function("new-tensors", |bencher| {
            let stream = Stream::new(&engine);
            let addresses = operands.addresses();
            // SAFETY: the addresses are those of the row's operands.
            bencher.iter(|| unsafe { execute_at(&compiled, &stream, black_box(addresses)) });
        });
        group.bench_function("new-tensors/second-thread-too", |bencher| {
            let stream = Stream::new(&engine);
            let addresses = operands.addresses();
            let others = Operands::new(&row, row.pages);
            beside(
                // SAFETY: the addresses are those of the row's operands; each thread has operands of its own.
                || unsafe { execute_at(&compiled, &Stream::new(&engine), others.addresses()) },
                // SAFETY: as above.
                || bencher.iter(|| unsafe { execute_at(&compiled, &stream, black_box(addresses)) }),
            );
        });
        group.bench_function("limit", |bencher| {
            // SAFETY: the addresses are those of the row's operands.
            bencher.iter(|| unsafe { limit.run(black_box(operands.addresses())) });
        });
        group.finish();
    }
}

/// # Safety
///
/// The addresses are those of operands of the row that was compiled.
unsafe fn execute_at(compiled: &CompiledPartition, stream: &Stream, addresses: [*mut u8; 4]) {
    let [inputs, outputs] = [compiled.inputs(), compiled.outputs()];
    let engine = compiled.engine();
    // SAFETY: as the caller promises.
    let (inputs, mut outputs) = unsafe {
        (
            [COND, THEN, ELSE].map(|i| Tensor::from_raw_parts(&inputs[i], engine, addresses[i])),
            [TensorMut::from_raw_parts(&outputs[0], engine, addresses[DST])],
        )
    };
    compiled.execute(stream, &inputs, &mut outputs).expect("the rows are sound");
}

fn asleep(criterion: &mut Criterion) {
    // The caller takes part, so one worker makes two threads; both sides use the same one.
    let pool = Arc::new(ThreadPoolBuilder::new().num_threads(1).build().expect("a thread can be started"));
    for shape in &LONG {
        let row = row(shape);
        let operands = Operands::new(&row, row.pages);
        let addresses = operands.addresses();
        // SAFETY: the addresses are those of the row's operands.
        let limit = unsafe { LimitLoop::new(&row).fastest(addresses) };
        let mut group = criterion.benchmark_group(format!("asleep/{}", shape.name));
        for threads in [1, 2] {
            let engine = Engine::builder().pool(pool.clone()).threads(threads).build();
            let compiled = row.compile(&engine);
            group.throughput(Throughput::Bytes(compiled.bytes_moved() as u64));
            group
                .sample_size(20)
                .warm_up_time(Duration::from_millis(100))
                .measurement_time(Duration::from_secs(1));
            group.bench_function(format!("threads-{threads}"), |bencher| {
                operands.with_execution(&compiled, |execute| {
                    bencher.iter_custom(|runs| after_pauses(runs, execute))
                });
            });
            group.bench_function(format!("limit/threads-{threads}"), |bencher| {
                let mut run = || match threads {
                    // SAFETY: as above.
                    1 => unsafe { limit.run(addresses) },
                    // SAFETY: as above.
                    _ => unsafe { limit.run_halves(addresses, &pool) },
                };
                bencher.iter_custom(|runs| after_pauses(runs, &mut run));
            });
        }
        group.finish();
    }
}

/// The time of so many runs, each after a pause that is not counted.
fn after_pauses(runs: u64, run: &mut dyn FnMut()) -> Duration {
    let timed = |_| {
        std::thread::sleep(PAUSE);
        let start = Instant::now();
        run();
        start.elapsed()
    };
    (0..runs).map(timed).sum()
}

fn compile(criterion: &mut Criterion) {
    let engine = Engine::new();
    let row = row(&LENGTHS[1]);
    let partition = row.partition();
    let inputs = [COND, THEN, ELSE].map(|operand| row.desc(operand));
    let outputs = [row.desc(DST)];
    let compile = || partition.compile(&engine, &inputs, &outputs).expect("the rows are sound");
    let kept = compiled_partition_cache_capacity();
    let mut group = criterion.benchmark_group("compile");
    short(&mut group);
    for (name, capacity) in [("cold", 0), ("hit", kept)] {
        set_compiled_partition_cache_capacity(capacity);
        group.bench_function(name, |bencher| bencher.iter(compile));
        group.bench_function(format!("{name}/second-thread-too"), |bencher| {
            beside(
                || {
                    black_box(compile());
                },
                || bencher.iter(compile),
            );
        });
    }
    set_compiled_partition_cache_capacity(kept);
    group.finish();
}

/// Runs one thing over and over on a second thread while another is measured.
fn beside(other: impl Fn() + Sync, measured: impl FnOnce()) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                other();
            }
        });
        measured();
        over.store(true, Ordering::Relaxed);
    });
}

fn short(group: &mut criterion::BenchmarkGroup<'_, criterion::measurement::WallTime>) {
    group.warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_secs(1));
}

criterion_group!(benches, execute, asleep, compile);
criterion_main!(benches);
