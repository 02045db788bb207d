//! Compares fused groups with their ops one by one, and with what memory and arithmetic allow. Prints
//! Markdown.
//!
//! `cargo bench --features json --bench fusion -- [--sweep] [--huge] [--rounds N] [FILTER ...]` runs the
//! graphs of `examples/graphs` in four sizes, or with `--sweep` in about twenty, in small pages or with
//! `--huge` in large ones. The candidates of a row run interleaved in one process, and each figure is a
//! median over the rounds:
//!
//! - *apart / fused*: time of the separate partitions together, divided by the fused time;
//! - *bytes, apart / fused*: bytes that the separate partitions move, divided by those of the fused one; each
//!   distinct element of a partition counts once;
//! - *memory / fused*: time of a plain loop that reads and stores as many bytes, divided by the fused time;
//! - *arithmetic / fused*: time of the elements at the speed of 4,096 elements in cache (4,096 for each
//!   thread), divided by the fused time.
//!
//! Run as a test, it only checks that the fused and the separate partitions give the same bits.

#[path = "../interleave/mod.rs"]
mod interleave;
#[path = "../rows/mod.rs"]
mod rows;
mod stream;

use std::collections::BTreeMap;
use std::sync::Arc;

use interleave::{Options, SAMPLE_SECONDS, median, rate_of_all, seconds};
use rayon::{ThreadPool, ThreadPoolBuilder};
use rows::{Memory, Pages, Random};
use sterna::{
    CompiledPartition, DataType, Engine, Graph, LogicalTensor, Op, Policy, Stream, Tensor, TensorMut,
};
use stream::Streamed;

/// The new size of each dim of a graph; dims that are not listed stay.
type Size = [(i64, i64)];

struct Row {
    name: &'static str,
    json: &'static str,
    /// From 16 elements to more than the caches hold; arithmetic is timed on the second size.
    sizes: [&'static Size; 4],
    /// The dim that grows in a sweep, and the factor of each step.
    grows: (i64, f64),
}

macro_rules! rows {
    ($($file:literal: $sizes:expr, grows $grows:expr;)*) => {
        &[$(Row {
            name: $file,
            json: include_str!(concat!("../../examples/graphs/", $file, ".json")),
            sizes: $sizes,
            grows: $grows,
        }),*]
    };
}

static ROWS: &[Row] = rows! {
    "causal_scale_select": [
        &[(2, 1), (12, 1), (64, 4)], &[(2, 1), (12, 1)], &[], &[(64, 512)]
    ], grows (64, 1.3);
    "implicit_causal_mask": [
        &[(16, 1), (384, 4)], &[(16, 4), (384, 64)], &[(384, 128)], &[]
    ], grows (384, 1.3);
    "padding_bias_select": [
        &[(4, 1), (8, 1), (64, 4)], &[(4, 1), (8, 1)], &[], &[(64, 512)]
    ], grows (64, 1.3);
    "safe_softmax_guard": [
        &[(2, 1), (12, 1), (64, 4)], &[(2, 1), (12, 1)], &[], &[(64, 512)]
    ], grows (64, 1.3);
    "gelu_gated_select": [
        &[(2, 1), (32, 1), (1024, 16)], &[(2, 1), (32, 4)], &[], &[(2, 8), (32, 512), (1024, 4096)]
    ], grows (32, 1.6);
    "nan_to_num": [
        &[(2, 1), (32, 1), (768, 16)], &[(2, 1), (32, 4), (768, 1024)], &[], &[(2, 8), (32, 1024)]
    ], grows (32, 1.6);
    "swin_selects": [
        &[(16, 1), (6, 1), (49, 4)], &[(16, 1), (6, 2)], &[(16, 4)], &[(16, 256), (6, 12)]
    ], grows (16, 1.6);
    "clamp_backward": [
        &[(2, 1), (32, 1), (768, 16)], &[(2, 1), (32, 4), (768, 1024)], &[], &[(2, 8), (32, 1024)]
    ], grows (32, 1.6);
    "t5_bucket": [&[(64, 4)], &[], &[(64, 256)], &[(64, 2048)]], grows (64, 1.3);
    "chain_of_12": [
        &[(2, 1), (32, 1), (768, 16)], &[(2, 1), (32, 4), (768, 1024)], &[], &[(2, 8), (32, 1024)]
    ], grows (32, 1.6);
};

/// Index of the size on which arithmetic is timed.
const IN_CACHE: usize = 1;

/// The most bytes of results in a sweep.
const SWEPT: usize = 40 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut sweep = false;
    let options = Options::parse(9, |_, arg| {
        let is_sweep = arg == "--sweep";
        sweep |= is_sweep;
        is_sweep
    })?;
    let takes = |row: &&Row| options.takes(row.name);
    if !options.bench {
        return ROWS.iter().filter(takes).try_for_each(|row| {
            let graph = resized(row, row.sizes[IN_CACHE])?;
            let engine = Engine::builder().threads(1).build();
            let [mut fused, mut apart] = [Policy::Fusion, Policy::Debug]
                .map(|policy| Run::new(&graph, policy, &engine, options.pages));
            let [fused, apart] = [&mut fused, &mut apart].map(|run| {
                let run = run.as_mut().map_err(|error| error.to_string())?;
                run.execute();
                Ok::<_, String>(run.results())
            });
            if fused? == apart? {
                Ok(())
            } else {
                Err(format!("{}: fused differs from apart", row.name).into())
            }
        });
    }
    // The caller takes part, so one worker makes two threads; all use the same one.
    let pool = Arc::new(ThreadPoolBuilder::new().num_threads(1).build()?);
    for threads in [1, 2] {
        println!("\n## {threads} thread{}\n", if threads == 1 { "" } else { "s" });
        println!(
            "| graph | elements | MB | partitions fused, apart | fused, µs | apart / fused \
             | bytes, apart / fused | memory / fused | arithmetic / fused |"
        );
        println!("|---|---|---|---|---|---|---|---|---|");
        for row in ROWS.iter().filter(takes) {
            let sizes = match sweep {
                true => swept(row)?,
                false => row.sizes.map(<[_]>::to_vec).into(),
            };
            measure(row, &sizes, threads, &pool, &options)?;
        }
    }
    Ok(())
}

/// The size that stays in cache, except for the growing dim, which starts at 1.
fn swept(row: &Row) -> sterna::Result<Vec<Vec<(i64, i64)>>> {
    let (growing, times) = row.grows;
    let mut sizes: Vec<Vec<(i64, i64)>> = Vec::new();
    let mut extent = 1.0;
    loop {
        let others = row.sizes[IN_CACHE].iter().filter(|(dim, _)| *dim != growing);
        let size: Vec<(i64, i64)> = others.copied().chain([(growing, extent as i64)]).collect();
        if resized(row, &size)?.outputs().into_iter().map(LogicalTensor::memory_size).sum::<usize>() > SWEPT {
            return Ok(sizes);
        }
        if sizes.last() != Some(&size) {
            sizes.push(size);
        }
        extent *= times;
    }
}

fn measure(
    row: &Row,
    sizes: &[Vec<(i64, i64)>],
    threads: usize,
    pool: &Arc<ThreadPool>,
    options: &Options,
) -> Result<(), Box<dyn std::error::Error>> {
    let pages = options.pages;
    let engine = Engine::builder().pool(pool.clone()).threads(threads).build();
    let one = Engine::builder().threads(1).build();
    let in_cache = resized(row, row.sizes[IN_CACHE])?;
    let mut small = (0..threads)
        .map(|_| Run::new(&in_cache, Policy::Fusion, &one, pages))
        .collect::<sterna::Result<Vec<Run>>>()?;
    for size in sizes {
        let graph = resized(row, size)?;
        let mut fused = Run::new(&graph, Policy::Fusion, &engine, pages)?;
        let mut apart = Run::new(&graph, Policy::Debug, &engine, pages)?;
        let mut memory =
            Streamed::new(fused.bytes_read(), fused.bytes_written(), threads, pages, pool.clone());
        let mut runs: [&mut dyn FnMut(); 3] =
            [&mut || fused.execute(), &mut || apart.execute(), &mut || memory.run()];
        let counts = runs.each_mut().map(|run| {
            let once = seconds(1, run).min(seconds(1, run)).max(1e-9);
            (SAMPLE_SECONDS / once).ceil() as usize
        });
        let mut times: [Vec<f64>; 4] = Default::default();
        for round in 0..options.rounds {
            for slot in 0..4 {
                let which = (slot + round) % 4;
                times[which].push(match runs.get_mut(which) {
                    Some(run) => seconds(counts[which], run),
                    None => 1.0 / rate_of_all(pool, small.iter_mut().map(|run| || run.execute())),
                });
            }
        }
        let ratio =
            |which: usize| median(times[which].iter().zip(&times[0]).map(|(other, fused)| other / fused));
        let elements = fused.elements();
        let arithmetic = ratio(3) * elements as f64 / small[0].elements() as f64;
        println!(
            "| {} | {elements} | {:.3} | {}, {} | {:.2} | {:.2} | {:.2} | {:.2} | {arithmetic:.2} |",
            row.name,
            (fused.bytes_read() + fused.bytes_written()) as f64 / 1e6,
            fused.steps.len(),
            apart.steps.len(),
            median(times[0].iter().copied()) * 1e6,
            ratio(1),
            apart.bytes_moved() as f64 / fused.bytes_moved() as f64,
            ratio(2),
        );
    }
    Ok(())
}

/// The graph of a row with other dims.
fn resized(row: &Row, size: &Size) -> sterna::Result<Graph> {
    let resize = |tensor: &LogicalTensor| {
        let (id, data_type) = (tensor.id(), tensor.data_type());
        if tensor.is_host_scalar() {
            return Ok(tensor.clone());
        }
        let dim = |dim: i64| size.iter().find(|(from, _)| *from == dim).map_or(dim, |&(_, to)| to);
        let dims = tensor.partial_dims().unwrap_or_default();
        let dims: Vec<Option<i64>> = dims.into_iter().map(|known| known.map(dim)).collect();
        LogicalTensor::partial(id, data_type, &dims)
    };
    let mut graph = Graph::new();
    for op in Graph::from_json(row.json)?.ops() {
        let mut resized = Op::new(op.id(), op.kind());
        for (attr, value) in op.attrs() {
            resized = resized.attr(attr, value.clone());
        }
        for tensor in op.inputs() {
            resized = resized.input(resize(tensor)?);
        }
        for tensor in op.outputs() {
            resized = resized.output(resize(tensor)?);
        }
        graph.add_op(resized)?;
    }
    graph.finalize()?;
    Ok(graph)
}

/// Compiled partitions of a graph with memory for all of its tensors.
struct Run {
    engine: Engine,
    stream: Stream,
    steps: Vec<CompiledPartition>,
    memory: BTreeMap<usize, Memory>,
    outputs: Vec<LogicalTensor>,
}

impl Run {
    fn new(graph: &Graph, policy: Policy, engine: &Engine, pages: Pages) -> sterna::Result<Self> {
        let mut steps = Vec::new();
        let mut memory = BTreeMap::new();
        for partition in graph.partitions(policy)? {
            let compiled = partition.compile(engine)?;
            for tensor in compiled.inputs().iter().chain(compiled.outputs()) {
                memory.entry(tensor.id().get()).or_insert_with(|| filled(tensor, pages));
            }
            steps.push(compiled);
        }
        let outputs = graph.outputs().into_iter().cloned().collect();
        Ok(Self { engine: engine.clone(), stream: Stream::new(engine), steps, memory, outputs })
    }

    fn execute(&mut self) {
        for compiled in &self.steps {
            let at = |tensor: &LogicalTensor| self.memory[&tensor.id().get()].bytes().as_ptr();
            // SAFETY: the memory of each tensor has its size, belongs to this run, and nothing else runs.
            let inputs: Vec<Tensor<'_>> = (compiled.inputs().iter())
                .map(|tensor| unsafe {
                    match tensor.is_host_scalar() {
                        true => Tensor::scalar_from_raw(tensor, at(tensor)).expect("it is a host scalar"),
                        false => Tensor::from_raw_parts(tensor, &self.engine, at(tensor)),
                    }
                })
                .collect();
            // SAFETY: as above.
            let mut outputs: Vec<TensorMut<'_>> = (compiled.outputs().iter())
                .map(|tensor| unsafe {
                    TensorMut::from_raw_parts(tensor, &self.engine, at(tensor).cast_mut())
                })
                .collect();
            compiled.execute(&self.stream, &inputs, &mut outputs).expect("the rows are sound");
        }
    }

    fn results(&self) -> Vec<Vec<u8>> {
        self.outputs.iter().map(|tensor| self.memory[&tensor.id().get()].bytes().to_vec()).collect()
    }

    fn bytes_moved(&self) -> usize {
        self.steps.iter().map(CompiledPartition::bytes_moved).sum()
    }

    fn bytes_written(&self) -> usize {
        self.outputs.iter().map(LogicalTensor::memory_size).sum()
    }

    fn bytes_read(&self) -> usize {
        self.bytes_moved() - self.bytes_written()
    }

    fn elements(&self) -> usize {
        self.outputs.iter().filter_map(LogicalTensor::element_count).sum()
    }
}

/// Memory of a tensor: numbers between −2 and 2, with some NaN among the f32; random conditions, half of them
/// true; 1.5 or 3 for scalars.
fn filled(tensor: &LogicalTensor, pages: Pages) -> Memory {
    let size = if tensor.is_host_scalar() { 8 } else { tensor.memory_size() };
    let mut memory = Memory::new(size, pages);
    let mut random = Random(tensor.id().get() as u64 + 1);
    let mut number = || (random.next() >> 40) as f32 / (1 << 22) as f32 - 2.0;
    let bytes = memory.bytes_mut();
    match tensor.data_type() {
        // Exactly half, because a condition for each row decides how much is computed.
        DataType::Boolean => bytes.chunks_mut(2).for_each(|pair| {
            let first = u8::from(number() > 0.0);
            pair.iter_mut().zip([first, 1 - first]).for_each(|(byte, truth)| *byte = truth);
        }),
        DataType::Bf16 => {
            bytes.chunks_exact_mut(2).for_each(|x| x.copy_from_slice(&number().to_bits().to_ne_bytes()[2..]));
        }
        DataType::F32 => bytes.chunks_exact_mut(4).for_each(|x| {
            let number = number();
            x.copy_from_slice(&if number > 1.99 { f32::NAN } else { number }.to_ne_bytes());
        }),
        _ => bytes.iter_mut().for_each(|byte| *byte = (number() * 32.0) as i8 as u8),
    }
    memory
}
