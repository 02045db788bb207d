//! The rows, the limits, and the timing.

#[path = "../limits/mod.rs"]
mod limits;
#[path = "../serve/op.rs"]
mod op_served;
#[path = "../serve/mod.rs"]
mod serve;

use std::time::Instant;

use op_served::Served;
use sterna::{
    Attr, CompiledPartition, DataType, Engine, Graph, LogicalTensor, Op, OpKind, Policy, Property, Stream,
    TensorBuf,
};

/// A library that multiplies row-major f32 matrices: `to` (`m` × `n`) = `a` (`m` × `k`) · `b` (`k` × `n`), on
/// a number of threads.
#[derive(Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) multiply: Multiply,
}

/// Takes the size, the operands, the result and the number of threads.
type Multiply = fn([usize; 3], &[f32], &[f32], &mut [f32], usize);

/// Least time of one sample, so that reading the clock does not matter.
const SAMPLE_SECONDS: f64 = 0.002;

/// The limit of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Limit {
    /// Multiplications of the type in registers.
    Arithmetic,
    /// The bytes of the right operand, or the arithmetic if that takes longer.
    Bytes,
}

/// The types of the operands. Integers are u8 and s8.
const TYPES: [DataType; 3] = [DataType::F32, DataType::Bf16, DataType::S8];

struct Row {
    name: String,
    /// Rows, columns, depth.
    size: [usize; 3],
    /// The type of the weights; those of s8 stand behind a Dequantize beside u8, and are constant.
    data_type: DataType,
    transpose_b: bool,
    epilogue: bool,
    /// Weights of s8 are no constant.
    varies: bool,
    /// The type in which weights are stored if they stand behind a DynamicDequantize beside f32.
    stored: Option<DataType>,
    limit: Limit,
}

impl Row {
    /// Bytes of the weights in memory.
    fn weight_bytes(&self) -> f64 {
        let [_, n, k] = self.size;
        let bits = |t: DataType| t.size().map_or(4, |bytes| 8 * bytes);
        (n * k * bits(self.stored.unwrap_or(self.data_type))) as f64 / 8.0
    }
}

/// Elements of the depth that share a scale, in rows of stored weights.
const SHARED: i64 = 128;

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |what: &str, data_type: DataType, [m, n, k]: [usize; 3], limit| {
        rows.push(Row {
            name: format!("{what}{data_type} {m}x{n}x{k}"),
            size: [m, n, k],
            data_type,
            transpose_b: what.contains("transposed"),
            epilogue: what.contains("epilogue"),
            varies: what.contains("varying"),
            stored: [DataType::S8, DataType::U4].into_iter().find(|t| what.contains(&format!("{t} weights"))),
            limit,
        });
    };
    for data_type in TYPES {
        for n in [16, 32, 48, 64, 256, 512, 768, 1000, 1024, 1025, 2048] {
            add("", data_type, [n; 3], Limit::Arithmetic);
        }
        add("", data_type, [77, 77, 77], Limit::Arithmetic);
        add("", data_type, [77, 1025, 1000], Limit::Arithmetic);
        add("epilogue ", data_type, [1024; 3], Limit::Arithmetic);
        for m in [1, 2, 4, 8, 16] {
            add("", data_type, [m, 4096, 4096], Limit::Bytes);
            add("transposed ", data_type, [m, 4096, 4096], Limit::Bytes);
            if data_type == DataType::S8 {
                add("varying ", data_type, [m, 4096, 4096], Limit::Bytes);
            }
        }
    }
    for stored in ["s8 weights ", "u4 weights "] {
        for m in [1, 2, 4, 8, 16] {
            add(stored, DataType::F32, [m, 4096, 4096], Limit::Bytes);
            add(&format!("transposed {stored}"), DataType::F32, [m, 4096, 4096], Limit::Bytes);
        }
        add(stored, DataType::F32, [512, 1024, 1024], Limit::Arithmetic);
        add(&format!("transposed {stored}"), DataType::F32, [512, 1024, 1024], Limit::Arithmetic);
    }
    rows
}

/// A product, and in some rows a scale, a Select by a condition a column, and a GELU behind it.
fn graph(row: &Row) -> Graph {
    let [m, n, k] = row.size.map(|size| size as i64);
    let is_integer = row.data_type == DataType::S8;
    let t = if is_integer { DataType::F32 } else { row.data_type };
    let desc = |id, t, dims: &[i64]| LogicalTensor::strided(id, t, dims).expect("the dims are small");
    let float = |id, dims: &[i64]| desc(id, t, dims);
    let weights = if row.transpose_b { [n, k] } else { [k, n] };
    let result = |id| float(id, &[m, n]);
    let mut ops = Vec::new();
    let mut operands = [float(0, &[m, k]), float(1, &weights)];
    if is_integer {
        let scales: Vec<f32> = (0..n).map(|column| 0.01 + column as f32 * 1e-6).collect();
        let axis = i64::from(!row.transpose_b);
        let property = if row.varies { Property::Variable } else { Property::Constant };
        let s8s = desc(1, DataType::S8, &weights).with_property(property);
        let sources = [desc(0, DataType::U8, &[m, k]), s8s.expect("any tensor can have the property")];
        operands = [float(10, &[m, k]), float(11, &weights)];
        let op = |id| Op::new(id, OpKind::Dequantize);
        let dequantize = [
            // So that results are a few units, as behind a layer of a network.
            op(10).attr(Attr::Scales, vec![0.001f32]).attr(Attr::Zps, vec![128i64]),
            op(11)
                .attr(Attr::Qtype, "per_channel")
                .axis(axis)
                .attr(Attr::Scales, scales)
                .attr(Attr::Zps, vec![0i64; n as usize]),
        ];
        let both = dequantize.into_iter().zip(sources).zip(&operands);
        ops.extend(both.map(|((op, source), to)| op.input(source).output(to.clone())));
    }
    if let Some(stored) = row.stored {
        let along_depth = if row.transpose_b { 1 } else { 0 };
        let (mut counts, mut group) = (weights, [1, 1]);
        (counts[along_depth], group[along_depth]) = (k / SHARED, SHARED);
        let constant = |desc: LogicalTensor| {
            desc.with_property(Property::Constant).expect("any tensor can have the property")
        };
        let dequantize = Op::new(10, OpKind::DynamicDequantize)
            .attr(Attr::Qtype, "per_group")
            .attr(Attr::GroupShape, &group[..])
            .inputs_from([constant(desc(1, stored, &weights)), constant(desc(12, DataType::F32, &counts))])
            .output(float(11, &weights));
        operands[1] = float(11, &weights);
        ops.push(dequantize);
    }
    let product = Op::new(0, OpKind::MatMul)
        .attr(Attr::TransposeB, row.transpose_b)
        .inputs_from(operands)
        .output(result(2));
    ops.push(product);
    if row.epilogue {
        ops.push(Op::new(1, OpKind::Multiply).inputs_from([result(2), float(3, &[])]).output(result(4)));
        ops.push(Op::select(2, desc(5, DataType::Boolean, &[1, n]), result(4), float(6, &[]), result(7)));
        ops.push(Op::new(3, OpKind::GELU).inputs_from([result(7)]).output(result(8)));
    }
    whole(ops)
}

fn whole(ops: Vec<Op>) -> Graph {
    let mut graph = Graph::new();
    for op in ops {
        graph.add_op(op).expect("the ops fit their schema");
    }
    graph.finalize().expect("the graph is whole");
    graph
}

/// The products of 16 heads, of which a Select takes a part, a scalar the rest: the graph `matmul_select`.
fn matmul_select() -> (Graph, [usize; 3]) {
    const HEADS: i64 = 16;
    let (rows, columns, depth) = (32, 32, 256);
    let desc = |id, t, dims: &[i64]| LogicalTensor::strided(id, t, dims).expect("the dims are small");
    let float = |id, dims: &[i64]| desc(id, DataType::F32, dims);
    let result = |id| float(id, &[1, HEADS, rows, columns]);
    let operands = [float(0, &[1, HEADS, rows, depth]), float(1, &[1, HEADS, depth, columns])];
    let product = Op::new(0, OpKind::MatMul).inputs_from(operands).output(result(2));
    let cond = desc(3, DataType::Boolean, &[1, 1, rows, columns]);
    let select = Op::select(1, cond, float(4, &[1]), result(2), result(5));
    (whole(vec![product, select]), [HEADS * rows, columns, depth].map(|size| size as usize))
}

/// So many products of one size, as one op.
fn batch(count: i64, size: i64) -> Graph {
    let float = |id| LogicalTensor::strided(id, DataType::F32, &[count, size, size]).expect("it is small");
    whole(vec![Op::new(0, OpKind::MatMul).inputs_from([float(0), float(1)]).output(float(2))])
}

/// Small numbers that follow no simple pattern.
fn number(at: usize) -> f32 {
    ((at.wrapping_mul(2_654_435_761) >> 7) % 1024) as f32 / 512.0 - 1.0
}

fn filled(desc: &LogicalTensor, engine: &Engine) -> TensorBuf {
    let mut tensor = TensorBuf::zeroed(desc.clone(), engine).expect("there is memory");
    let t = desc.data_type();
    let size = t.size().unwrap_or(1);
    for (at, element) in tensor.as_mut_bytes().chunks_exact_mut(size).enumerate() {
        match t {
            DataType::F32 => element.copy_from_slice(&number(at).to_le_bytes()),
            DataType::Bf16 => element.copy_from_slice(&number(at).to_le_bytes()[2..]),
            DataType::U8 | DataType::S8 | DataType::U4 => {
                element.fill((at.wrapping_mul(2_654_435_761) >> 9) as u8)
            }
            _ => element.fill(u8::from(at % 3 != 0)),
        }
    }
    tensor
}

/// Seconds of one run: the best of some rounds.
fn best(rounds: usize, mut run: impl FnMut()) -> f64 {
    let mut time = |runs: usize| {
        let start = Instant::now();
        (0..runs).for_each(|_| run());
        start.elapsed().as_secs_f64() / runs as f64
    };
    let runs = runs_of(time(1).min(time(1)));
    (0..rounds).map(|_| time(runs)).fold(f64::MAX, f64::min)
}

/// Runs of a sample, given the seconds of one.
fn runs_of(once: f64) -> usize {
    ((SAMPLE_SECONDS / once.max(1e-9)).ceil().min(1e6) as usize).max(1)
}

/// Samples of two plans by turns: the least seconds of one execution of the first, and the median of how many
/// times as long the first takes as the second.
fn by_turns(rounds: usize, first: &mut Run, second: &mut Run) -> (f64, f64) {
    first.seconds(1);
    second.seconds(1);
    let samples = (0..rounds.max(5)).map(|_| (first.seconds(1), second.seconds(1)));
    let samples: Vec<(f64, f64)> = samples.collect();
    let least = samples.iter().map(|&(own, _)| own).fold(f64::MAX, f64::min);
    let mut ratios: Vec<f64> = samples.iter().map(|(own, other)| own / other).collect();
    ratios.sort_by(f64::total_cmp);
    (least, ratios[ratios.len() / 2])
}

/// The number behind an option of the command line.
fn option(arguments: &[String], name: &str) -> Option<usize> {
    let at = arguments.iter().position(|argument| argument == name)?;
    arguments.get(at + 1)?.parse().ok()
}

/// The numbers of threads that the command line asks for.
pub(crate) fn thread_counts() -> Vec<usize> {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(only) = option(&arguments, "--threads-only") {
        return vec![only];
    }
    let most = option(&arguments, "--threads").unwrap_or(2);
    if most > 1 { vec![1, most] } else { vec![1] }
}

/// Measures and prints all rows.
pub(crate) fn run(peers: &[Peer]) {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_bench = arguments.iter().any(|argument| argument == "--bench");
    let rounds = if is_bench { option(&arguments, "--rounds").unwrap_or(15) } else { 1 };
    let filters: Vec<&String> = (arguments.iter().enumerate())
        .filter(|&(at, argument)| {
            !argument.starts_with('-')
                && (at == 0 || !arguments[at - 1].starts_with("--t") && !arguments[at - 1].starts_with("--r"))
        })
        .map(|(_, argument)| argument)
        .collect();
    let most = option(&arguments, "--threads").unwrap_or(2);
    let served = arguments.iter().position(|argument| argument == "--serve");
    if let Some(name) = served.and_then(|at| arguments.get(at + 1)) {
        serve_row(name, most);
        return;
    }
    if arguments.iter().any(|argument| argument == "--list") {
        let is_wanted = |row: &Row| {
            filters.iter().all(|filter| match filter.strip_prefix('=') {
                Some(name) => row.name == name,
                None => row.name.contains(filter.as_str()),
            })
        };
        rows().iter().filter(|row| is_wanted(row)).for_each(|row| println!("{}", row.name));
        return;
    }
    for threads in thread_counts() {
        println!("\n{threads} thread{}", if threads == 1 { "" } else { "s" });
        let limits = TYPES.map(|t| (t, limits::arithmetic(t, threads, rounds)));
        for (data_type, limit) in limits {
            println!("limit of {data_type}: {:.1} G operations/s in registers", limit / 1e9);
        }
        for bytes in [16 << 20, 64 << 20, 256 << 20] {
            let rate = limits::reading(bytes, threads, rounds) / 1e9;
            println!("limit of {} MiB: {rate:.1} GB/s read again and again", bytes >> 20);
        }
        let names = peers.iter().map(|peer| format!("{:>16}", peer.name)).collect::<String>();
        println!("{:<40}{:>12}{:>10}{names}", "row", "Sterna", "of limit");
        for row in rows() {
            if filters.is_empty() || filters.iter().any(|filter| row.name.contains(filter.as_str())) {
                measure(&row, threads, rounds, &limits, peers);
            }
        }
        if threads > 1 {
            continue;
        }
        let is_wanted =
            |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(*filter));
        let name = "matmul_select f32 16x32x32x256";
        if is_wanted(name) {
            measure_select(name, rounds, &limits);
        }
        for size in [16, 32, 48, 64] {
            let name = format!("call f32 {size}x{size}x{size}");
            if is_wanted(&name) {
                measure_call(&name, size, rounds);
            }
        }
    }
}

/// Answers questions about a product that is an op alone.
fn serve_row(name: &str, threads: usize) {
    let is_alone = |row: &Row| row.name == name && !row.epilogue && row.data_type != DataType::S8;
    let Some(row) = rows().into_iter().find(is_alone) else {
        eprintln!("no product of f32 or bf16 alone is called {name:?}");
        return;
    };
    let Run { compiled, stream, inputs, output } = Run::new(name, &graph(&row), threads);
    let mut served = Served::new(compiled, stream, inputs, vec![output]);
    let kind = if row.transpose_b { "MatMul:transpose_b" } else { "MatMul" };
    let about = format!("{kind} {}", served.ports());
    if let Err(error) = serve::serve(&about, &mut served) {
        eprintln!("{error}");
    }
}

/// A compiled graph of one partition, with its tensors.
struct Run {
    compiled: CompiledPartition,
    stream: Stream,
    inputs: Vec<TensorBuf>,
    output: TensorBuf,
}

impl Run {
    fn new(name: &str, graph: &Graph, threads: usize) -> Self {
        let engine = Engine::builder().threads(threads).build();
        let partitions = graph.partitions(Policy::Fusion).expect("the graph is finalized");
        assert_eq!(partitions.len(), 1, "{name} is one partition");
        let partition = &partitions[0];
        let compiled = partition.compile(&engine);
        let compiled = compiled.unwrap_or_else(|error| panic!("{name}: {error}"));
        let inputs = compiled.inputs().iter().map(|desc| filled(desc, &engine)).collect();
        let output = TensorBuf::zeroed(compiled.outputs()[0].clone(), &engine).expect("there is memory");
        Self { compiled, stream: Stream::new(&engine), inputs, output }
    }

    /// Seconds of one execution.
    fn seconds(&mut self, rounds: usize) -> f64 {
        let inputs: Vec<_> = self.inputs.iter().map(TensorBuf::as_tensor).collect();
        let mut outputs = [self.output.as_tensor_mut()];
        best(rounds, || {
            self.compiled.execute(&self.stream, &inputs, &mut outputs).expect("the tensors fit");
        })
    }
}

fn measure(row: &Row, threads: usize, rounds: usize, limits: &[(DataType, f64)], peers: &[Peer]) {
    let mut run = Run::new(&row.name, &graph(row), threads);
    let [m, n, k] = row.size;
    let flops = (2 * m * n * k) as f64;
    let (own, beside_bare) = match row.epilogue {
        false => (run.seconds(rounds), None),
        true => {
            let bare = Row { name: row.name.clone(), epilogue: false, ..*row };
            let (own, ratio) = by_turns(rounds, &mut run, &mut Run::new(&row.name, &graph(&bare), threads));
            (own, Some(ratio))
        }
    };
    let limit = match row.limit {
        Limit::Arithmetic => flops / limits::of(row.data_type, limits),
        Limit::Bytes => {
            let bytes = row.weight_bytes();
            let reading = bytes / limits::reading(bytes as usize, threads, rounds);
            reading.max(flops / limits::of(row.data_type, limits))
        }
    };
    let mut line = format!("{:<40}{:>12.1}{:>10.2}", row.name, flops / own / 1e9, limit / own);
    if let Some(ratio) = beside_bare {
        line += &format!("   {:+.1} % beside the bare product", (ratio - 1.0) * 100.0);
    }
    if row.data_type == DataType::F32 && !row.epilogue && !row.transpose_b && row.stored.is_none() {
        let a: Vec<f32> = (0..m * k).map(number).collect();
        let b: Vec<f32> = (0..k * n).map(number).collect();
        let mut to = vec![0.0f32; m * n];
        let expected = run.output.as_slice::<f32>().expect("the result is f32");
        for peer in peers {
            let seconds = best(rounds, || (peer.multiply)(row.size, &a, &b, &mut to, threads));
            let tolerance = 1e-6 * k as f32;
            let is_right = to.iter().zip(expected).all(|(x, y)| (x - y).abs() <= tolerance.max(1e-3));
            assert!(is_right, "{} gives another product of {}", peer.name, row.name);
            line += &format!("{:>16.1}", flops / seconds / 1e9);
        }
    }
    println!("{line}");
}

/// The graph with a Select behind the product, on one thread.
fn measure_select(name: &str, rounds: usize, limits: &[(DataType, f64)]) {
    let (graph, size) = matmul_select();
    let own = Run::new(name, &graph, 1).seconds(rounds);
    let flops = 2.0 * size.map(|size| size as f64).iter().product::<f64>();
    let limit = flops / limits::of(DataType::F32, limits);
    let micros = own * 1e6;
    println!("{name:<40}{:>12.1}{:>10.2}{micros:>12.1} µs", flops / own / 1e9, limit / own);
}

/// The cost of a call beside its kernel: the time of an execution of one product, and that by which each more
/// product of a batch lengthens an execution, whose call, checks and tensors are the same.
fn measure_call(name: &str, size: i64, rounds: usize) {
    const MORE: i64 = 4;
    let nanos = |count| Run::new(name, &batch(count, size), 1).seconds(rounds) * 1e9;
    let (one, many) = (nanos(1), nanos(1 + MORE));
    let kernel = (many - one) / MORE as f64;
    println!("{name:<40}{one:>10.0} ns, kernel {kernel:.0} ns, call {:.0} ns", one - kernel);
}
