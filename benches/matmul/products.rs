//! The rows, the limits, and the timing.

use std::hint::black_box;
use std::time::Instant;

use sterna::{
    Attr, DataType, Engine, Graph, LogicalTensor, Op, OpKind, Partition, Policy, Property, Stream, TensorBuf,
};

/// A library that multiplies row-major f32 matrices: `to` (`m` × `n`) = `a` (`m` × `k`) · `b` (`k` × `n`), on
/// one thread or on as many as it takes.
#[derive(Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) multiply: Multiply,
}

/// Takes the size, the operands, the result and the number of threads.
type Multiply = fn([usize; 3], &[f32], &[f32], &mut [f32], usize);

/// Least time of one sample, so that reading the clock does not matter.
const SAMPLE_SECONDS: f64 = 0.002;

/// What limits a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Limit {
    /// Multiplications of the type in registers.
    Arithmetic,
    /// The bytes of the right operand.
    Bytes,
}

/// The types of the operands. Integers are u8 and s8.
const TYPES: [DataType; 3] = [DataType::F32, DataType::Bf16, DataType::S8];

struct Row {
    name: String,
    /// Rows, columns, depth.
    size: [usize; 3],
    /// The type of the weights; s8 weights are constant, and stand behind a Dequantize beside u8.
    data_type: DataType,
    transpose_b: bool,
    epilogue: bool,
    limit: Limit,
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |what: &str, data_type: DataType, [m, n, k]: [usize; 3], limit| {
        rows.push(Row {
            name: format!("{what}{data_type} {m}x{n}x{k}"),
            size: [m, n, k],
            data_type,
            transpose_b: what.contains("transposed"),
            epilogue: what.contains("epilogue"),
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
        }
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
        let constant = desc(1, DataType::S8, &weights).with_property(Property::Constant);
        let sources = [desc(0, DataType::U8, &[m, k]), constant.expect("any tensor can be constant")];
        operands = [float(10, &[m, k]), float(11, &weights)];
        let op = |id| Op::new(id, OpKind::Dequantize);
        let dequantize = [
            op(10).attr(Attr::Scales, vec![0.02f32]).attr(Attr::Zps, vec![128i64]),
            op(11)
                .attr(Attr::Qtype, "per_channel")
                .axis(axis)
                .attr(Attr::Scales, scales)
                .attr(Attr::Zps, vec![0i64; n as usize]),
        ];
        let both = dequantize.into_iter().zip(sources).zip(&operands);
        ops.extend(both.map(|((op, source), to)| op.input(source).output(to.clone())));
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
    let mut graph = Graph::new();
    for op in ops {
        graph.add_op(op).expect("the ops fit their schema");
    }
    graph.finalize().expect("the graph is whole");
    graph
}

/// Small numbers that follow no simple pattern.
fn number(at: usize) -> f32 {
    ((at.wrapping_mul(2_654_435_761) >> 7) % 1024) as f32 / 512.0 - 1.0
}

fn filled(desc: &LogicalTensor, engine: &Engine) -> TensorBuf {
    let mut tensor = TensorBuf::zeroed(desc.clone(), engine).expect("there is memory");
    let t = desc.data_type();
    let size = t.size().expect("elements have whole bytes");
    for (at, element) in tensor.as_mut_bytes().chunks_exact_mut(size).enumerate() {
        match t {
            DataType::F32 => element.copy_from_slice(&number(at).to_le_bytes()),
            DataType::Bf16 => element.copy_from_slice(&number(at).to_le_bytes()[2..]),
            DataType::U8 | DataType::S8 => element.fill((at.wrapping_mul(2_654_435_761) >> 9) as u8),
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
    let once = time(1).min(time(1));
    let runs = (SAMPLE_SECONDS / once.max(1e-9)).ceil().min(1e6) as usize;
    (0..rounds).map(|_| time(runs.max(1))).fold(f64::MAX, f64::min)
}

/// GFLOP/s of multiplications and additions in registers, on some threads at once.
fn arithmetic(data_type: DataType, threads: usize, rounds: usize) -> f64 {
    on_threads(threads, || {
        const STEPS: usize = 200_000;
        let flops = registers::run(data_type, STEPS);
        let seconds = best(rounds, || {
            black_box(registers::run(data_type, STEPS));
        });
        flops / seconds / 1e9
    })
}

/// GB/s of reading memory that no cache holds, on some threads at once.
fn reading(bytes: usize, threads: usize, rounds: usize) -> f64 {
    on_threads(threads, || {
        let words = vec![1u64; bytes / 8 / threads];
        let seconds = best(rounds, || {
            black_box(words.iter().fold(0u64, |sum, &word| sum ^ word));
        });
        (words.len() * 8) as f64 / seconds / 1e9
    })
}

fn on_threads(threads: usize, rate: impl Fn() -> f64 + Sync) -> f64 {
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(&rate)).collect();
        let own = rate();
        own + others.into_iter().filter_map(|other| other.join().ok()).sum::<f64>()
    })
}

/// Loops that no memory slows down.
mod registers {
    use sterna::{CpuFeature, CpuFeatures, DataType, Level};

    /// Runs so many steps and returns the operations.
    pub(super) fn run(data_type: DataType, steps: usize) -> f64 {
        let has = |feature: CpuFeature| CpuFeatures::available().contains(feature);
        let (has_pairs, has_quads) = (has(CpuFeature::Avx512Bf16), has(CpuFeature::Avx512Vnni));
        #[cfg(target_arch = "x86_64")]
        match (data_type, Level::available()) {
            // SAFETY: the machine has the instructions.
            (DataType::S8, Level::Avx512) if has_quads => return unsafe { x86::quads(steps) },
            // SAFETY: as above.
            (DataType::S8, Level::Avx512) => return unsafe { x86::avx512_words(steps) },
            // SAFETY: as above.
            (DataType::S8, Level::Avx2) => return unsafe { x86::avx2_words(steps) },
            _ => {}
        }
        #[cfg(target_arch = "x86_64")]
        match Level::available() {
            // SAFETY: the machine has the instructions.
            Level::Avx512 if data_type == DataType::Bf16 && has_pairs => unsafe { x86::pairs(steps) },
            // SAFETY: as above.
            Level::Avx512 => unsafe { x86::avx512(steps) },
            // SAFETY: as above.
            Level::Avx2 => unsafe { x86::avx2(steps) },
            _ => plain(steps),
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = (data_type, has_pairs, has_quads, Level::available());
            plain(steps)
        }
    }

    fn plain(steps: usize) -> f64 {
        let (mut sums, x) = ([[0.0f32; 4]; 8], std::hint::black_box([1.0f32; 4]));
        for _ in 0..steps {
            for sum in &mut sums {
                for lane in 0..4 {
                    sum[lane] += x[lane] * x[lane];
                }
            }
        }
        std::hint::black_box(sums);
        (steps * 8 * 4 * 2) as f64
    }

    #[cfg(target_arch = "x86_64")]
    mod x86 {
        use std::arch::x86_64::*;

        /// A loop over accumulators that stay in registers.
        macro_rules! registers {
            ($($name:ident $features:literal $count:literal $lanes:literal $zero:ident $x:expr,
                $step:expr;)*) => {
                $(
                    /// # Safety
                    ///
                    /// The machine has the instructions.
                    #[target_feature(enable = $features)]
                    pub(super) unsafe fn $name(steps: usize) -> f64 {
                        let mut sums = [$zero(); $count];
                        let x = std::hint::black_box($x);
                        for _ in 0..steps {
                            for sum in &mut sums {
                                *sum = $step(*sum, x);
                            }
                        }
                        std::hint::black_box(sums);
                        (steps * $count * $lanes * 2) as f64
                    }
                )*
            };
        }

        registers! {
            avx512 "avx512f" 24 16 _mm512_setzero_ps _mm512_set1_ps(0.5), |sum, x| _mm512_fmadd_ps(x, x, sum);
            avx2 "avx2,fma" 12 8 _mm256_setzero_ps _mm256_set1_ps(0.5), |sum, x| _mm256_fmadd_ps(x, x, sum);
            pairs "avx512f,avx512bf16" 24 32 _mm512_setzero_ps
                _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5), _mm512_set1_ps(0.5)),
                |sum, x| _mm512_dpbf16_ps(sum, x, x);
            quads "avx512f,avx512vnni" 24 64 _mm512_setzero_si512 _mm512_set1_epi32(0x0101_0101),
                |sum, x| _mm512_dpbusd_epi32(sum, x, x);
            avx512_words "avx512f,avx512bw" 24 32 _mm512_setzero_si512 _mm512_set1_epi32(0x0001_0001),
                |sum, x| _mm512_add_epi32(sum, _mm512_madd_epi16(sum, x));
            avx2_words "avx2" 12 16 _mm256_setzero_si256 _mm256_set1_epi32(0x0001_0001),
                |sum, x| _mm256_add_epi32(sum, _mm256_madd_epi16(sum, x));
        }
    }
}

/// Measures and prints all rows.
pub(crate) fn run(peers: &[Peer]) {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_bench = arguments.iter().any(|argument| argument == "--bench");
    let number_of = |name: &str, default: usize| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1)?.parse().ok()).unwrap_or(default)
    };
    let rounds = if is_bench { number_of("--rounds", 15) } else { 1 };
    let filters: Vec<&String> = (arguments.iter().enumerate())
        .filter(|&(at, argument)| {
            !argument.starts_with('-')
                && (at == 0 || !arguments[at - 1].starts_with("--t") && !arguments[at - 1].starts_with("--r"))
        })
        .map(|(_, argument)| argument)
        .collect();
    let most = number_of("--threads", 2);
    for threads in [1, most].into_iter().take(most.min(2)) {
        println!("\n{threads} thread{}", if threads == 1 { "" } else { "s" });
        let limits = TYPES.map(|t| (t, arithmetic(t, threads, rounds)));
        for (data_type, limit) in limits {
            println!("limit of {data_type}: {limit:.1} G operations/s in registers");
        }
        let memory = reading(256 << 20, threads, rounds);
        println!("limit of memory: {memory:.1} GB/s read");
        let names = peers.iter().map(|peer| format!("{:>16}", peer.name)).collect::<String>();
        println!("{:<40}{:>12}{:>10}{names}", "row", "Sterna", "of limit");
        for row in rows() {
            if filters.is_empty() || filters.iter().any(|filter| row.name.contains(filter.as_str())) {
                measure(&row, threads, rounds, &limits, memory, peers);
            }
        }
    }
}

fn measure(
    row: &Row,
    threads: usize,
    rounds: usize,
    limits: &[(DataType, f64)],
    memory: f64,
    peers: &[Peer],
) {
    let engine = Engine::builder().threads(threads).build();
    let stream = Stream::new(&engine);
    let graph = graph(row);
    let partitions = graph.partitions(Policy::Fusion).expect("the graph is finalized");
    assert_eq!(partitions.len(), 1, "{} is one partition", row.name);
    let partition: &Partition = &partitions[0];
    let compiled = partition.compile(&engine);
    let compiled = compiled.unwrap_or_else(|error| panic!("{}: {error}", row.name));
    let tensors: Vec<TensorBuf> = compiled.inputs().iter().map(|desc| filled(desc, &engine)).collect();
    let inputs: Vec<_> = tensors.iter().map(TensorBuf::as_tensor).collect();
    let mut output = TensorBuf::zeroed(compiled.outputs()[0].clone(), &engine).expect("there is memory");
    let mut outputs = [output.as_tensor_mut()];
    let [m, n, k] = row.size;
    let flops = (2 * m * n * k) as f64;
    let own = best(rounds, || compiled.execute(&stream, &inputs, &mut outputs).expect("the tensors fit"));
    let limit = match row.limit {
        Limit::Arithmetic => {
            let peak = limits.iter().find(|(data_type, _)| *data_type == row.data_type);
            flops / (peak.map_or(1.0, |(_, peak)| *peak) * 1e9)
        }
        Limit::Bytes => (n * k * row.data_type.size().unwrap_or(4)) as f64 / (memory * 1e9),
    };
    let mut line = format!("{:<40}{:>12.1}{:>10.2}", row.name, flops / own / 1e9, limit / own);
    if row.data_type == DataType::F32 && !row.epilogue && !row.transpose_b {
        let a: Vec<f32> = (0..m * k).map(number).collect();
        let b: Vec<f32> = (0..k * n).map(number).collect();
        let mut to = vec![0.0f32; m * n];
        let expected = output.as_slice::<f32>().expect("the result is f32");
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
