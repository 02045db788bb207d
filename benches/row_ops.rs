//! Measures ops on rows beside the machine's own limit: the longer of a copy of as many bytes as the op reads
//! and writes, and of the op's exponentials or quotients alone, on data in the first-level cache.
//!
//! `cargo bench --bench row_ops -- FILTER` prints a table: for each op, shape, type and number of threads the
//! best of many interleaved runs of each, and the share of the limit that the op reaches.
//!
//! `--list` prints the names of the rows, without threads; `--serve NAME --threads N` answers questions about
//! one of them, which `benches/peers/ops.py` asks.

#[path = "serve/op.rs"]
mod op_served;
#[path = "serve/mod.rs"]
mod serve;

use std::hint::black_box;
use std::time::{Duration, Instant};

use op_served::Served;
use sterna::{
    Attr, CompiledPartition, DataType, Engine, LogicalTensor, Op, OpKind, Partition, Stream, Tensor,
    TensorBuf, TensorMut,
};

/// Time for one row of the table.
const TIME: Duration = Duration::from_millis(1500);

/// Elements of a tensor that stays in the first level.
const IN_CACHE: i64 = 2048;

/// Many rows, and one that threads share.
const SHAPES: [&[i64]; 3] = [&[4096, 1024], &[64, 12, 64, 64], &[1, 4_194_304]];

const KINDS: [OpKind; 11] = [
    OpKind::SoftMax,
    OpKind::LogSoftmax,
    OpKind::LayerNorm,
    OpKind::RMSNorm,
    OpKind::ReduceSum,
    OpKind::ReduceMax,
    OpKind::SoftMaxBackward,
    OpKind::LogSoftmaxBackward,
    OpKind::LayerNormBackward,
    OpKind::PReLUBackward,
    OpKind::GELUBackward,
];

/// A compiled op with its tensors.
struct Run {
    compiled: CompiledPartition,
    inputs: Vec<TensorBuf>,
    outputs: Vec<TensorBuf>,
}

impl Run {
    fn new(op: Op, engine: &Engine) -> Self {
        let partition = Partition::from_op(op).expect("the op is sound");
        let compiled = partition.compile(engine).expect("the shapes are sound");
        let filled = |desc: &LogicalTensor| {
            let mut buffer = TensorBuf::zeroed(desc.clone(), engine).expect("there is memory");
            // Numbers near 1 of f32 and of bf16 alike.
            let bytes = buffer.as_mut_bytes();
            for (i, byte) in bytes.iter_mut().enumerate() {
                *byte = if i % 2 == 1 { 0x3f } else { (i * 37 % 200) as u8 };
            }
            buffer
        };
        let inputs = compiled.inputs().iter().map(filled).collect();
        let outputs = compiled.outputs().iter().map(filled).collect();
        Self { compiled, inputs, outputs }
    }

    fn execute(&mut self, stream: &Stream) {
        let inputs: Vec<Tensor<'_>> = self.inputs.iter().map(TensorBuf::as_tensor).collect();
        let mut outputs: Vec<TensorMut<'_>> = self.outputs.iter_mut().map(TensorBuf::as_tensor_mut).collect();
        self.compiled.execute(stream, &inputs, &mut outputs).expect("the tensors are sound");
    }
}

fn op(kind: OpKind, data_type: DataType, dims: &[i64]) -> Op {
    let tensor = |id, dims: &[i64]| LogicalTensor::strided(id, data_type, dims).expect("the dims are sound");
    let op = Op::new(0, kind).input(tensor(0, dims));
    let last = &dims[dims.len() - 1..];
    match kind {
        OpKind::SoftMax | OpKind::LogSoftmax => op.output(tensor(9, dims)).attr(Attr::Axis, -1i64),
        OpKind::LayerNorm => op
            .input(tensor(1, last))
            .input(tensor(2, last))
            .output(tensor(9, dims))
            .attr(Attr::KeepStats, false),
        OpKind::SoftMaxBackward | OpKind::LogSoftmaxBackward => {
            op.input(tensor(1, dims)).output(tensor(9, dims)).attr(Attr::Axis, -1i64)
        }
        OpKind::LayerNormBackward => {
            let places = &dims[..dims.len() - 1];
            op.input(tensor(1, dims))
                .inputs_from([tensor(2, places), tensor(3, places), tensor(4, last), tensor(5, last)])
                .output(tensor(9, dims))
                .output(tensor(10, last))
                .output(tensor(11, last))
        }
        OpKind::PReLUBackward => {
            op.input(tensor(1, last)).input(tensor(2, dims)).output(tensor(9, dims)).output(tensor(10, last))
        }
        OpKind::RMSNorm => op.input(tensor(1, last)).output(tensor(9, dims)),
        OpKind::ReduceSum | OpKind::ReduceMax => {
            op.output(tensor(9, &dims[..dims.len() - 1])).attr(Attr::Axes, vec![-1i64])
        }
        OpKind::Divide | OpKind::GELUBackward => op.input(tensor(1, dims)).output(tensor(9, dims)),
        _ => op.output(tensor(9, dims)),
    }
}

/// The shortest time so far.
struct Best(Duration);

impl Best {
    fn of(&mut self, work: impl FnOnce()) {
        let start = Instant::now();
        work();
        self.0 = self.0.min(start.elapsed());
    }

    fn micros(&self) -> f64 {
        self.0.as_secs_f64() * 1e6
    }
}

/// Copies bytes on some threads, each a part of its own.
fn copy(from: &[u8], to: &mut [u8], pool: &rayon::ThreadPool, threads: usize) {
    let part = from.len().div_ceil(threads).max(1);
    if threads == 1 {
        to.copy_from_slice(from);
        return;
    }
    pool.scope(|scope| {
        for (from, to) in from.chunks(part).zip(to.chunks_mut(part)) {
            scope.spawn(move |_| to.copy_from_slice(from));
        }
    });
}

/// Shape, type and kind of each row.
fn rows() -> impl Iterator<Item = (&'static [i64], DataType, OpKind)> {
    let types = [DataType::F32, DataType::Bf16];
    let of_shape = move |shape| types.into_iter().flat_map(move |t| KINDS.map(|kind| (shape, t, kind)));
    SHAPES.into_iter().flat_map(of_shape)
}

fn name_of((shape, data_type, kind): (&[i64], DataType, OpKind)) -> String {
    format!("{kind} | {shape:?} | {data_type}")
}

/// Answers questions about a row.
fn serve_row(name: &str, threads: usize) -> Result<(), String> {
    let row = rows().find(|row| name_of(*row) == name).ok_or(format!("no row is called {name:?}"))?;
    let (shape, data_type, kind) = row;
    let engine = Engine::builder().threads(threads).build();
    let Run { compiled, inputs, outputs } = Run::new(op(kind, data_type, shape), &engine);
    let mut served = Served::new(compiled, Stream::new(&engine), inputs, outputs);
    let about = format!("{kind} {}", served.ports());
    serve::serve(&about, &mut served)
}

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)
    };
    if let Some(name) = option("--serve") {
        let threads = option("--threads").and_then(|threads| threads.parse().ok());
        return serve_row(name, threads.unwrap_or(1));
    }
    let filter: Vec<&String> = arguments.iter().filter(|arg| !arg.starts_with("--")).collect();
    let takes = |name: &str| filter.iter().all(|filter| name.contains(filter.as_str()));
    if arguments.iter().any(|argument| argument == "--list") {
        rows().map(name_of).filter(|name| takes(name)).for_each(|name| println!("{name}"));
        return Ok(());
    }
    println!("op | shape | type | threads | op µs | copy µs | arithmetic µs | share of the limit");
    println!("---|---|---|---|---|---|---|---");
    for threads in [1, 2] {
        let engine = Engine::builder().threads(threads).build();
        let single = Engine::builder().threads(1).build();
        let pool =
            rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads can be started");
        let (stream, single_stream) = (Stream::new(&engine), Stream::new(&single));
        let loops =
            [OpKind::Exp, OpKind::Divide].map(|kind| Run::new(op(kind, DataType::F32, &[IN_CACHE]), &single));
        let [mut exponentials, mut quotients] = loops;
        for (shape, data_type, kind) in rows() {
            let name = format!("{} | {threads}", name_of((shape, data_type, kind)));
            if !takes(&name) {
                continue;
            }
            let mut run = Run::new(op(kind, data_type, shape), &engine);
            let bytes = run.compiled.bytes_moved() / 2;
            let (from, mut to) = (vec![1u8; bytes], vec![2u8; bytes]);
            let count: i64 = shape.iter().product();
            let arithmetic = match kind {
                OpKind::SoftMax | OpKind::LogSoftmax => Some(&mut exponentials),
                // A quotient for each element; sums have none.
                OpKind::LayerNorm | OpKind::RMSNorm => Some(&mut quotients),
                _ => None,
            };
            let mut in_cache = arithmetic;
            let [mut own, mut copied, mut computed] = [Duration::MAX; 3].map(Best);
            let begin = Instant::now();
            while begin.elapsed() < TIME {
                own.of(|| run.execute(&stream));
                copied.of(|| copy(black_box(&from), black_box(&mut to), &pool, threads));
                if let Some(run) = &mut in_cache {
                    run.execute(&single_stream);
                    computed.of(|| run.execute(&single_stream));
                }
            }
            let computed = match in_cache {
                Some(_) => computed.micros() * (count as f64 / IN_CACHE as f64) / threads as f64,
                None => 0.0,
            };
            let limit = copied.micros().max(computed);
            let (own, copied) = (own.micros(), copied.micros());
            println!("{name} | {own:.0} | {copied:.0} | {computed:.0} | {:.2}", limit / own);
        }
    }
    Ok(())
}
