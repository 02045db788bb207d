//! Groups of pointwise ops: as one partition, as the sum of their ops alone, and beside what memory allows.
//!
//! `cargo bench --bench fusion --features json -- [--threads N] [--rounds N] [FILTER ...]` prints a Markdown table of
//! the graphs in `examples/graphs` at sizes from 16 elements on. The limit is a copy of as many bytes as the group reads
//! and writes. Run as a test, it checks that both ways give the same bits.

use std::collections::BTreeMap;
use std::time::Instant;

use sterna::{CompiledPartition, Engine, Graph, LogicalTensor, Policy, Stream, Tensor, TensorBuf, TensorMut};

/// Dims of the inputs of a graph, by id, where they are not those of the file: for a small, a middling and a large run.
type Sizes = &'static [&'static [(usize, &'static [i64])]];

/// The graphs, by file.
const ROWS: &[(&str, Sizes)] = &[
    ("causal_scale_select", &[&[(0, &[1, 1, 4, 4])], &[(0, &[2, 12, 64, 64])], &[(0, &[2, 12, 512, 512])]]),
    (
        "padding_bias_select",
        &[
            &[(0, &[1, 1, 4, 4]), (1, &[1, 1, 4, 4]), (2, &[1, 1, 1, 4])],
            &[(0, &[4, 8, 64, 64]), (1, &[1, 8, 64, 64]), (2, &[4, 1, 1, 64])],
            &[(0, &[4, 8, 512, 512]), (1, &[1, 8, 512, 512]), (2, &[4, 1, 1, 512])],
        ],
    ),
    ("safe_softmax_guard", &[&[(0, &[16])], &[(0, &[2, 12, 64, 64])], &[(0, &[2, 12, 512, 512])]]),
    (
        "gelu_gated_select",
        &[
            &[(0, &[1, 1, 16]), (1, &[1, 1, 16]), (2, &[1, 1, 1])],
            &[(0, &[2, 32, 1024]), (1, &[2, 32, 1024]), (2, &[2, 32, 1])],
            &[(0, &[4, 1024, 4096]), (1, &[4, 1024, 4096]), (2, &[4, 1024, 1])],
        ],
    ),
    ("nan_to_num", &[&[(0, &[16])], &[(0, &[2, 32, 768])], &[(0, &[8, 1024, 768])]]),
    (
        "swin_selects",
        &[
            &[(0, &[1, 1, 4, 1]), (1, &[1, 1, 1, 4]), (2, &[1, 1, 4, 4])],
            &[(0, &[16, 1, 49, 1]), (1, &[16, 1, 1, 49]), (2, &[16, 6, 49, 49])],
            &[(0, &[256, 1, 49, 1]), (1, &[256, 1, 1, 49]), (2, &[256, 12, 49, 49])],
        ],
    ),
    (
        "clamp_backward",
        &[
            &[(0, &[16]), (1, &[16])],
            &[(0, &[2, 32, 768]), (1, &[2, 32, 768])],
            &[(0, &[8, 1024, 768]), (1, &[8, 1024, 768])],
        ],
    ),
    ("t5_bucket", &[&[(0, &[4, 4])], &[(0, &[128, 128])], &[(0, &[2048, 2048])]]),
    (
        "chain_of_12",
        &[
            &[(0, &[1, 1, 16]), (1, &[16]), (2, &[16]), (5, &[1, 1, 16]), (6, &[1, 1, 1])],
            &[],
            &[(0, &[8, 1024, 768]), (5, &[8, 1024, 768]), (6, &[8, 1024, 1])],
        ],
    ),
];

struct Options {
    filters: Vec<String>,
    rounds: usize,
    threads: usize,
    bench: bool,
}

fn main() {
    let mut options = Options { filters: Vec::new(), rounds: 15, threads: 1, bench: false };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || args.next().and_then(|n| n.parse().ok()).expect("a number follows");
        match arg.as_str() {
            "--bench" => options.bench = true,
            "--rounds" => options.rounds = number(),
            "--threads" => options.threads = number(),
            _ => options.filters.push(arg),
        }
    }
    if options.bench {
        println!("{} threads, medians of {} rounds\n", options.threads, options.rounds);
        println!(
            "| graph | elements | fused | alone | bytes alone / fused | alone / fused | limit / fused |"
        );
        println!("|---|---|---|---|---|---|---|");
    }
    for &(name, sizes) in ROWS {
        if options.filters.is_empty() || options.filters.iter().any(|filter| name.contains(filter)) {
            sizes.iter().for_each(|dims| row(name, dims, &options));
        }
    }
}

fn row(name: &str, dims: &[(usize, &[i64])], options: &Options) {
    let path = format!("{}/examples/graphs/{name}.json", env!("CARGO_MANIFEST_DIR"));
    // A scalar in memory costs what one by value costs.
    let json = std::fs::read_to_string(path).unwrap().replace("host_scalar", "constant");
    let mut graph = Graph::from_json(&json).unwrap();
    graph.finalize().unwrap();
    let engine = Engine::builder().threads(options.threads).build();
    let inputs = graph.inputs().into_iter().map(|input| {
        let given = dims.iter().find(|(id, _)| *id == input.id()).map(|(_, dims)| *dims);
        let dims = given.unwrap_or(input.dims().unwrap());
        filled(&LogicalTensor::strided(input.id(), input.data_type(), dims).unwrap(), &engine)
    });
    let inputs: BTreeMap<usize, TensorBuf> = inputs.map(|tensor| (tensor.desc().id(), tensor)).collect();
    let mut fused = Way::new(&graph, Policy::Fusion, &engine, &inputs);
    let mut alone = Way::new(&graph, Policy::Debug, &engine, &inputs);
    fused.run(&inputs);
    alone.run(&inputs);
    for output in graph.outputs() {
        assert!(fused.tensors[&output.id()].as_bytes() == alone.tensors[&output.id()].as_bytes(), "{name}");
    }
    if !options.bench {
        return;
    }
    let bytes = fused.bytes_moved();
    let (from, mut to) = (vec![1u8; bytes / 2 + 1], vec![0u8; bytes / 2 + 1]);
    let mut limit = || std::hint::black_box(&mut to).copy_from_slice(std::hint::black_box(&from));
    let once = seconds(1, &mut || fused.run(&inputs)).min(seconds(1, &mut || fused.run(&inputs)));
    let runs = (0.002 / once).ceil().max(1.0) as usize;
    let (mut of_fused, mut of_alone, mut of_limit) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        of_fused.push(seconds(runs, &mut || fused.run(&inputs)));
        of_alone.push(seconds(runs, &mut || alone.run(&inputs)));
        of_limit.push(seconds(runs, &mut limit));
    }
    let [one, apart, limit] = [of_fused, of_alone, of_limit].map(median);
    let elements =
        graph.outputs().iter().map(|o| fused.tensors[&o.id()].desc().element_count().unwrap()).sum::<usize>();
    println!(
        "| {name} | {elements} | {} | {} | {:.2} | {:.2} | {:.2} |",
        time(one),
        time(apart),
        alone.bytes_moved() as f64 / bytes as f64,
        apart / one,
        limit / one,
    );
}

/// A tensor of small numbers.
fn filled(desc: &LogicalTensor, engine: &Engine) -> TensorBuf {
    let mut tensor = TensorBuf::zeroed(desc.clone(), engine).unwrap();
    let size = desc.data_type().size().unwrap();
    for (at, element) in tensor.as_mut_bytes().chunks_exact_mut(size).enumerate() {
        let number = ((at * 7919) % 997) as f32 / 250.0 - 2.0;
        match size {
            1 => element[0] = u8::from(at % 3 != 0),
            2 => element.copy_from_slice(&number.to_le_bytes()[2..]),
            _ => element[..4].copy_from_slice(&number.to_le_bytes()),
        }
    }
    tensor
}

/// The partitions of a graph under one policy, compiled, with their tensors.
struct Way {
    stream: Stream,
    partitions: Vec<CompiledPartition>,
    tensors: BTreeMap<usize, TensorBuf>,
}

impl Way {
    fn new(graph: &Graph, policy: Policy, engine: &Engine, inputs: &BTreeMap<usize, TensorBuf>) -> Self {
        let mut tensors: BTreeMap<usize, TensorBuf> = BTreeMap::new();
        let mut partitions = Vec::new();
        for partition in graph.partitions(policy).unwrap() {
            let desc = |port: &LogicalTensor| {
                inputs.get(&port.id()).unwrap_or_else(|| &tensors[&port.id()]).desc().clone()
            };
            let given: Vec<LogicalTensor> = partition.inputs().iter().map(desc).collect();
            let wanted: Vec<LogicalTensor> = partition
                .outputs()
                .iter()
                .map(|port| LogicalTensor::unknown(port.id(), port.data_type()))
                .collect();
            let compiled = partition.compile(engine, &given, &wanted).unwrap();
            for output in compiled.outputs() {
                tensors.insert(output.id(), TensorBuf::zeroed(output.clone(), engine).unwrap());
            }
            partitions.push(compiled);
        }
        Self { stream: Stream::new(engine), partitions, tensors }
    }

    fn run(&mut self, inputs: &BTreeMap<usize, TensorBuf>) {
        for partition in &self.partitions {
            let mut outputs: Vec<TensorBuf> =
                partition.outputs().iter().map(|output| self.tensors.remove(&output.id()).unwrap()).collect();
            {
                let tensor = |port: &LogicalTensor| {
                    inputs.get(&port.id()).unwrap_or_else(|| &self.tensors[&port.id()]).as_tensor()
                };
                let from: Vec<Tensor<'_>> = partition.inputs().iter().map(tensor).collect();
                let mut to: Vec<TensorMut<'_>> = outputs.iter_mut().map(TensorBuf::as_tensor_mut).collect();
                partition.execute(&self.stream, &from, &mut to).unwrap();
            }
            self.tensors.extend(outputs.into_iter().map(|output| (output.desc().id(), output)));
        }
    }

    fn bytes_moved(&self) -> usize {
        self.partitions.iter().map(CompiledPartition::bytes_moved).sum()
    }
}

/// Seconds that one run takes, of so many in a row.
fn seconds(runs: usize, run: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    (0..runs).for_each(|_| run());
    start.elapsed().as_secs_f64() / runs as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-6 => format!("{:.0} ns", s * 1e9),
        s if s < 1e-3 => format!("{:.1} µs", s * 1e6),
        s => format!("{:.2} ms", s * 1e3),
    }
}
