//! Measures what a call costs besides its work:
//!
//! - executions on few elements, with tensors made before, with new ones, and in one call, beside a
//!   compilation from the cache and an execution;
//! - executions on many elements while the workers sleep, which show the size from which workers are worth
//!   waking;
//! - compilations of a select and of attention, cold and from the cache, from one thread and from two;
//! - a decoder that adds a key each step, with the number of keys as it is and rounded up;
//! - a graph as a whole, a chain of partitions in a session, beside an execution of each.

mod baseline;
mod rows;

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use baseline::{Store, of_row};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rayon::ThreadPoolBuilder;
use rows::{Baseline, COND, Condition, DST, ELSE, Operands, Pages, Row, Shape, THEN};
use sterna::{
    Attention, Attr, Bool8, Causal, CompiledPartition, DataType, Engine, Graph, GraphBuilder, LogicalTensor,
    MaskTrue, Op, OpKind, Partition, Policy, Session, Stream, Tensor, TensorMut, TensorView,
    compiled_partition_cache_capacity, select_into, set_compiled_partition_cache_capacity,
};

macro_rules! lengths {
    ($($n:literal)*) => {
        [$(Shape {
            name: stringify!($n),
            dims: [&[$n]; 3],
            strides: [None; 4],
            natural: None,
            baseline: Baseline::Same,
        }),*]
    };
}

static LENGTHS: [Shape; 6] = lengths!(1 16 64 256 1024 4096);

/// Rows of f32 that move 0.8 to 54 MB, each twice as much as the one before.
static LONG: [Shape; 7] = lengths!(65_536 131_072 262_144 524_288 1_048_576 2_097_152 4_194_304);

/// Pause before each execution that must find the workers asleep.
const PAUSE: Duration = Duration::from_millis(3);

fn row(shape: &'static Shape) -> Row {
    let (data_type, condition) = (DataType::F32, Condition::Random(500));
    Row { shape, data_type, condition, level: None, in_place_of: None, pages: Pages::Small }
}

fn execute(criterion: &mut Criterion) {
    // As many threads as the machine has; no execution may wake one.
    let engine = Engine::new();
    for shape in &LENGTHS {
        let row = row(shape);
        let operands = Operands::new(&row, row.pages);
        let compiled = row.compile(&engine);
        let baseline = of_row(&row).with_stores(Store::Ordinary);
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
        group.bench_function("one-call", |bencher| {
            let [cond, then, else_, dst] = operands.addresses();
            let count = shape.dims[0].iter().product::<i64>() as usize;
            // SAFETY: the addresses are those of the row's operands, which are dense and of one length.
            let (cond, then, else_, dst) = unsafe {
                (
                    std::slice::from_raw_parts(cond.cast::<Bool8>(), count),
                    std::slice::from_raw_parts(then.cast::<f32>(), count),
                    std::slice::from_raw_parts(else_.cast::<f32>(), count),
                    std::slice::from_raw_parts_mut(dst.cast::<f32>(), count),
                )
            };
            bencher.iter(|| select_into(black_box(cond), then, else_, dst).expect("the rows are sound"));
        });
        group.bench_function("compile-and-new-tensors", |bencher| {
            let partition = row.partition();
            let inputs = [COND, THEN, ELSE].map(|operand| row.desc(operand));
            let outputs = [row.desc(DST)];
            let (stream, addresses) = (Stream::new(&engine), operands.addresses());
            bencher.iter(|| {
                let compiled = partition.compile_for(&engine, &inputs, &outputs).expect("the rows are sound");
                // SAFETY: the addresses are those of the row's operands.
                unsafe { execute_at(&compiled, &stream, black_box(addresses)) }
            });
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
            bencher.iter(|| unsafe { baseline.run(black_box(operands.addresses())) });
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
    // The caller takes part, so one worker makes two threads; Sterna and the limit use the same worker.
    let pool = Arc::new(ThreadPoolBuilder::new().num_threads(1).build().expect("a thread can be started"));
    for shape in &LONG {
        let row = row(shape);
        let operands = Operands::new(&row, row.pages);
        let addresses = operands.addresses();
        // SAFETY: the addresses are those of the row's operands.
        let baseline = unsafe { of_row(&row).fastest(addresses) };
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
                    1 => unsafe { baseline.run(addresses) },
                    // SAFETY: as above.
                    _ => unsafe { baseline.run_on(addresses, &pool, 2) },
                };
                bencher.iter_custom(|runs| after_pauses(runs, &mut run));
            });
        }
        group.finish();
    }
}

/// Time of a number of runs, each after a pause that is not counted.
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
    let row = row(&LENGTHS[1]);
    let inputs = [COND, THEN, ELSE].map(|operand| row.desc(operand));
    compile_rows(criterion, "compile", &row.partition(), &inputs, &[row.desc(DST)]);
    for (name, partition) in attentions().expect("the graphs are sound") {
        compile_rows(criterion, name, &partition, partition.inputs(), partition.outputs());
    }
}

/// Attention without a mask, under a causal mask of indices, and under a boolean tensor.
fn attentions() -> sterna::Result<[(&'static str, Partition); 3]> {
    let head = |id| LogicalTensor::strided(id, DataType::F32, &[8, 512, 64]);
    let attention = || Ok::<_, sterna::Error>(Attention::new(head(0)?, head(1)?, head(2)?, head(3)?));
    let partition = |attention: &Attention| {
        let mut graph = Graph::new();
        graph.attention(attention)?;
        graph.finalize()?;
        let mut partitions = graph.partitions(Policy::Fusion)?;
        assert_eq!(partitions.len(), 1, "attention is one partition");
        Ok::<_, sterna::Error>(partitions.remove(0))
    };
    let mask = LogicalTensor::strided(4, DataType::Boolean, &[512, 512])?;
    Ok([
        ("compile/attention", partition(&attention()?)?),
        ("compile/attention-causal", partition(&attention()?.causal(Causal::TopLeft))?),
        ("compile/attention-masked", partition(&attention()?.mask(mask, MaskTrue::Keeps))?),
    ])
}

/// Compilations that make a plan, and that find one.
fn compile_rows(
    criterion: &mut Criterion,
    name: &str,
    partition: &Partition,
    inputs: &[LogicalTensor],
    outputs: &[LogicalTensor],
) {
    let engine = Engine::new();
    let compile = || partition.compile_for(&engine, inputs, outputs).expect("the rows are sound");
    let kept = compiled_partition_cache_capacity();
    let mut group = criterion.benchmark_group(name);
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

/// Keys of the longest step of the decoder: four times as many as the cache has plans.
const KEYS: u64 = 4096;

/// Graph that a step compiles: attention scores of 12 heads and one query over a number of keys.
fn step(keys: u64) -> sterna::Result<[LogicalTensor; 4]> {
    let keys = keys as i64;
    Ok([
        LogicalTensor::strided(COND, DataType::Boolean, &[1, 1, 1, keys])?,
        LogicalTensor::strided(THEN, DataType::F32, &[1, 12, 1, keys])?,
        LogicalTensor::strided(ELSE, DataType::F32, &[])?,
        LogicalTensor::unknown(DST, DataType::F32),
    ])
}

/// The mask of a step alone, and the mask after the scale of the scores.
fn decoders() -> sterna::Result<[(&'static str, Partition); 2]> {
    const SCALE: usize = 4;
    const SCALED: usize = 5;
    let unknown = |id| LogicalTensor::unknown(id, if id == COND { DataType::Boolean } else { DataType::F32 });
    let mask = |scores| Op::select(0, unknown(COND), unknown(scores), unknown(ELSE), unknown(DST));
    let mut graph = Graph::new();
    graph.add_op(
        Op::new(1, OpKind::Multiply).inputs_from([THEN, SCALE].map(unknown)).output(unknown(SCALED)),
    )?;
    graph.add_op(mask(SCALED))?;
    graph.finalize()?;
    let group = graph.partitions(Policy::Fusion)?.remove(0);
    assert_eq!(group.ops().len(), 2, "scale and mask share a partition");
    Ok([("mask", Partition::from_op(mask(THEN))?), ("scale-and-mask", group)])
}

fn growing(criterion: &mut Criterion) {
    let engine = Engine::builder().threads(1).build();
    let stream = Stream::new(&engine);
    let scale = LogicalTensor::strided(4, DataType::F32, &[]).expect("a scalar is a tensor");
    let (cond, scores) = (vec![true; KEYS as usize], vec![1.0f32; 12 * KEYS as usize]);
    let mut result = vec![0.0f32; 12 * KEYS as usize];
    for (name, partition) in decoders().expect("the graphs are sound") {
        let compile = |keys| {
            let [cond, then, else_, dst] = step(keys)?;
            partition.compile_for(&engine, &[cond, then, else_, scale.clone()], &[dst])
        };
        let mut execute = |compiled: &CompiledPartition| {
            let inputs = compiled.inputs().iter().map(|desc| match desc.id().get() {
                COND => Tensor::new(desc, &engine, &cond),
                _ => Tensor::new(desc, &engine, &scores),
            });
            let inputs = inputs.collect::<sterna::Result<Vec<_>>>()?;
            let output = TensorMut::new(&compiled.outputs()[0], &engine, &mut result)?;
            compiled.execute(&stream, &inputs, &mut [output])
        };
        let mut group = criterion.benchmark_group(format!("growing/{name}"));
        short(&mut group);
        // The number of keys is rounded up to a multiple of this.
        for multiple in [1u64, 64, 256] {
            let mut keys = 0u64;
            let mut next = || {
                keys = keys % KEYS + 1;
                compile(keys.next_multiple_of(multiple)).expect("the graphs are sound")
            };
            group.bench_function(format!("compile/keys-by-{multiple}"), |bencher| bencher.iter(&mut next));
            group.bench_function(format!("compile-and-execute/keys-by-{multiple}"), |bencher| {
                bencher.iter(|| execute(&next()).expect("the tensors are those compiled for"));
            });
        }
        group.finish();
    }
}

/// Running sums along one dim and the other by turns, each a partition of its own, on 4 × 8 elements.
fn chain(steps: usize) -> sterna::Result<Session> {
    let g = GraphBuilder::new();
    let mut value = g.input("x", DataType::F32, &[Some(4), Some(8)])?;
    for step in 0..steps {
        value = g.cumsum(value, (step % 2) as i64)?;
    }
    g.output("y", value)?;
    Session::new(g.build()?, &Engine::builder().threads(1).build())
}

fn session(criterion: &mut Criterion) {
    let x = [0.5f32; 32];
    for steps in [1, 2, 16] {
        let session = chain(steps).expect("the graph is sound");
        assert_eq!(session.run_steps(), (steps, 0), "each op is a partition");
        let view = TensorView::new(&x, &[4, 8]);
        let mut group = criterion.benchmark_group(format!("session/{steps}"));
        short(&mut group);
        let mut y = [0.0f32; 32];
        group.bench_function("run-into", |bencher| {
            bencher.iter(|| session.run_into(&[("x", &view)], &mut [("y", &mut y)]).expect("it is sound"));
        });
        group.bench_function("run", |bencher| {
            bencher.iter(|| session.run(&[("x", &view)]).expect("it is sound"));
        });
        let compiled = executions(steps, session.engine()).expect("the graph is sound");
        let stream = Stream::new(session.engine());
        let mut values = vec![[0.5f32; 32]; steps + 1];
        group.bench_function("executions", |bencher| {
            bencher.iter(|| {
                for (step, compiled) in compiled.iter().enumerate() {
                    let [from, to] = values.get_disjoint_mut([step, step + 1]).expect("they are apart");
                    let input = Tensor::new(&compiled.inputs()[0], session.engine(), &*from);
                    let output = TensorMut::new(&compiled.outputs()[0], session.engine(), to);
                    let (input, output) = input.and_then(|input| Ok((input, output?))).expect("it is sound");
                    compiled.execute(&stream, &[input], &mut [output]).expect("it is sound");
                }
            });
        });
        group.finish();
    }
}

/// The partitions of the chain, each compiled alone.
fn executions(steps: usize, engine: &Engine) -> sterna::Result<Vec<CompiledPartition>> {
    let of = |id| LogicalTensor::strided(id, DataType::F32, &[4, 8]);
    let compiled = (0..steps).map(|step| {
        let op = Op::new(step, OpKind::CumSum).attr(Attr::Axis, (step % 2) as i64);
        let partition = Partition::from_op(op.input(of(step)?).output(of(step + 1)?))?;
        partition.compile_for(engine, &[of(step)?], &[of(step + 1)?])
    });
    compiled.collect()
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

criterion_group!(benches, execute, asleep, compile, growing, session);
criterion_main!(benches);
