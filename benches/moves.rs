//! Compares ops that move elements with a plain loop that reads and stores as many bytes. Prints Markdown.
//!
//! `cargo bench --bench moves -- [--huge] [--rounds N] [FILTER ...]` runs each op alone, in f32 and bf16, on
//! one thread and on two. The two candidates of a row run interleaved in one process, and each figure is a
//! median over the rounds: *copy / op* is the time of the loop divided by that of the op.
//!
//! Run as a test, it only checks the results against the reference interpreter.

#[allow(dead_code, reason = "this bench uses a part of it")]
#[path = "interleave/mod.rs"]
mod interleave;
mod rows;
#[path = "fusion/stream.rs"]
mod stream;

use std::sync::Arc;

use interleave::{Options, SAMPLE_SECONDS, median, seconds};
use rayon::{ThreadPool, ThreadPoolBuilder};
use rows::{Memory, Pages, Random};
use sterna::reference::{self, Value};
use sterna::{
    Attr, AttrValue, CompiledPartition, DataType, Engine, LogicalTensor, Op, OpKind, Partition, Stream,
    Tensor, TensorMut,
};
use stream::Streamed;

/// An op on inputs of these dims, and its attribute lists.
struct Row {
    name: &'static str,
    kind: OpKind,
    dims: &'static [&'static [i64]],
    lists: &'static [(Attr, &'static [i64])],
    axis: Option<i64>,
    /// The input of s32 whose elements are random places below a number; the others are data.
    places: Option<(usize, i64)>,
    /// Strides of the inputs; row-major where there are none.
    strides: Option<&'static [i64]>,
}

const fn row(
    name: &'static str,
    kind: OpKind,
    dims: &'static [&'static [i64]],
    lists: &'static [(Attr, &'static [i64])],
) -> Row {
    Row { name, kind, dims, lists, axis: None, places: None, strides: None }
}

/// A lookup, or its counterpart, along an axis by places at input 1.
const fn lookup(
    name: &'static str,
    kind: OpKind,
    dims: &'static [&'static [i64]],
    axis: Option<i64>,
    below: i64,
) -> Row {
    Row { axis, places: Some((1, below)), ..row(name, kind, dims, &[]) }
}

use OpKind as K;

const LAST_TWO: &[(Attr, &[i64])] = &[(Attr::Order, &[0, 2, 1])];
const HEADS: &[(Attr, &[i64])] = &[(Attr::Order, &[0, 2, 1, 3])];

static ROWS: &[Row] = &[
    row("transpose-64", K::StaticTranspose, &[&[1, 64, 64]], LAST_TWO),
    row("transpose-256", K::StaticTranspose, &[&[1, 256, 256]], LAST_TWO),
    row("transpose-1024", K::StaticTranspose, &[&[1, 1024, 1024]], LAST_TWO),
    row("transpose-4096", K::StaticTranspose, &[&[1, 4096, 4096]], LAST_TWO),
    row("transpose-12x512x64", K::StaticTranspose, &[&[12, 512, 64]], LAST_TWO),
    row("transpose-96x512x64", K::StaticTranspose, &[&[96, 512, 64]], LAST_TWO),
    row("transpose-1000x1025", K::StaticTranspose, &[&[4, 1000, 1025]], LAST_TWO),
    row("transpose-3000x77", K::StaticTranspose, &[&[1, 3000, 77]], LAST_TWO),
    row("heads-1x128x12x64", K::StaticTranspose, &[&[1, 128, 12, 64]], HEADS),
    row("heads-8x512x12x64", K::StaticTranspose, &[&[8, 512, 12, 64]], HEADS),
    row("heads-4x1024x32x128", K::StaticTranspose, &[&[4, 1024, 32, 128]], HEADS),
    row(
        "slice-packed-qkv",
        K::Slice,
        &[&[8, 512, 2304]],
        &[(Attr::Starts, &[768]), (Attr::Ends, &[1536]), (Attr::Axes, &[2])],
    ),
    row(
        "slice-reversed",
        K::Slice,
        &[&[8, 512, 768]],
        &[(Attr::Starts, &[-1]), (Attr::Ends, &[-769]), (Attr::Steps, &[-1]), (Attr::Axes, &[2])],
    ),
    Row { axis: Some(0), ..row("concat-rows", K::Concat, &[&[512, 4096], &[1024, 4096]], &[]) },
    Row { axis: Some(3), ..row("concat-columns", K::Concat, &[&[8, 512, 12, 32], &[8, 512, 12, 32]], &[]) },
    row("reshape", K::StaticReshape, &[&[8, 512, 768]], &[(Attr::Shape, &[8, 512, 12, 64])]),
    Row {
        strides: Some(&[393_216, 1, 768]),
        ..row("reorder-transposed", K::Reorder, &[&[8, 768, 512]], &[])
    },
    lookup("gather-rows-768", K::Gather, &[&[30_000, 768], &[4096]], Some(0), 30_000),
    lookup("gather-rows-16", K::Gather, &[&[100_000, 16], &[200_000]], Some(0), 100_000),
    lookup("gather-columns", K::Gather, &[&[1024, 4096], &[1024]], Some(1), 4096),
    lookup("gather-elements", K::GatherElements, &[&[1024, 1024], &[1024, 1024]], Some(1), 1024),
    lookup("gather-nd-64", K::GatherND, &[&[64, 1024, 64], &[16_384, 2]], None, 64),
    lookup("scatter-nd-768", K::ScatterND, &[&[4096, 768], &[1024, 1], &[1024, 768]], None, 4096),
    lookup(
        "scatter-elements",
        K::ScatterElements,
        &[&[1024, 1024], &[1024, 256], &[1024, 256]],
        Some(1),
        1024,
    ),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse(9, |_, _| false)?;
    let rows = || ROWS.iter().filter(|row| options.takes(row.name));
    let types = [DataType::F32, DataType::Bf16];
    if !options.bench {
        let engine = Engine::builder().threads(1).build();
        return rows()
            .filter(|row| row.elements() <= 1 << 20)
            .try_for_each(|row| types.into_iter().try_for_each(|data_type| row.check(data_type, &engine)));
    }
    // The caller takes part, so one worker makes two threads; all use the same one.
    let pool = Arc::new(ThreadPoolBuilder::new().num_threads(1).build()?);
    for threads in [1, 2] {
        println!("\n## {threads} thread{}\n", if threads == 1 { "" } else { "s" });
        println!("| op | MB | op, µs | copy / op |\n|---|---|---|---|");
        for row in rows() {
            for data_type in types {
                measure(row, data_type, threads, &pool, &options)?;
            }
        }
    }
    Ok(())
}

fn measure(
    row: &Row,
    data_type: DataType,
    threads: usize,
    pool: &Arc<ThreadPool>,
    options: &Options,
) -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::builder().pool(pool.clone()).threads(threads).build();
    let mut run = Run::new(row, data_type, &engine, options.pages)?;
    let written = run.compiled.outputs()[0].memory_size();
    let mut copy = Streamed::new(written, written, threads, options.pages, pool.clone());
    let mut runs: [&mut dyn FnMut(); 2] = [&mut || run.execute(), &mut || copy.run()];
    let counts = runs.each_mut().map(|run| {
        let once = seconds(1, run).min(seconds(1, run)).max(1e-9);
        (SAMPLE_SECONDS / once).ceil() as usize
    });
    let mut times: [Vec<f64>; 2] = Default::default();
    for round in 0..options.rounds {
        for slot in 0..2 {
            let which = (slot + round) % 2;
            times[which].push(seconds(counts[which], runs[which]));
        }
    }
    let ratio = median(times[1].iter().zip(&times[0]).map(|(copy, op)| copy / op));
    println!(
        "| {} {data_type} | {:.3} | {:.2} | {ratio:.2} |",
        row.name,
        2.0 * written as f64 / 1e6,
        median(times[0].iter().copied()) * 1e6
    );
    Ok(())
}

impl Row {
    fn elements(&self) -> i64 {
        self.dims.iter().map(|dims| dims.iter().product::<i64>()).sum()
    }

    fn inputs(&self, data_type: DataType) -> sterna::Result<Vec<LogicalTensor>> {
        let inputs = self.dims.iter().enumerate();
        inputs
            .map(|(id, dims)| match (self.places, self.strides) {
                (Some((places, _)), _) if places == id => LogicalTensor::strided(id, DataType::S32, dims),
                (_, Some(strides)) => LogicalTensor::with_strides(id, data_type, dims, strides),
                (_, None) => LogicalTensor::strided(id, data_type, dims),
            })
            .collect()
    }

    fn op(&self, data_type: DataType) -> sterna::Result<Op> {
        let op = Op::new(0, self.kind).inputs_from(self.inputs(data_type)?);
        let op = self.lists.iter().fold(op, |op, (attr, list)| op.attr(*attr, list.to_vec()));
        let op = self.axis.into_iter().fold(op, Op::axis);
        let op = match self.kind {
            K::StaticReshape => op.attr(Attr::SpecialZero, AttrValue::Bool(false)),
            _ => op,
        };
        let dims: Vec<&[i64]> = self.dims.to_vec();
        let op = op.output(LogicalTensor::unknown(99, data_type));
        let shapes = reference::output_shapes(&op, &dims)?.expect("the rule of moves is known");
        let mut made = Op::new(0, self.kind).inputs_from(self.inputs(data_type)?);
        made = made.output(LogicalTensor::strided(99, data_type, &shapes[0])?);
        Ok(op.attrs().fold(made, |made, (attr, value)| made.attr(attr, value.clone())))
    }

    fn check(&self, data_type: DataType, engine: &Engine) -> Result<(), Box<dyn std::error::Error>> {
        let mut run = Run::new(self, data_type, engine, Pages::Small)?;
        run.execute();
        let values: Vec<Value> = (run.compiled.inputs().iter().zip(&run.inputs))
            // SAFETY: the memory has the size of the tensor and belongs to the run.
            .map(|(desc, memory)| unsafe {
                Value::read(&Tensor::from_raw_parts(desc, engine, memory.bytes().as_ptr()))
            })
            .collect::<Result<_, _>>()?;
        let expected = reference::run(&self.op(data_type)?, &values)?;
        match expected[0].bytes() == run.output.bytes() {
            true => Ok(()),
            false => Err(format!("{} {data_type}: other elements", self.name).into()),
        }
    }
}

/// A compiled op with memory for its tensors.
struct Run {
    engine: Engine,
    stream: Stream,
    compiled: CompiledPartition,
    inputs: Vec<Memory>,
    output: Memory,
}

impl Run {
    fn new(row: &Row, data_type: DataType, engine: &Engine, pages: Pages) -> sterna::Result<Self> {
        let partition = Partition::from_op(row.op(data_type)?)?;
        let compiled = partition.compile(engine)?;
        let random = |tensor: &LogicalTensor| {
            let mut memory = Memory::new(tensor.memory_size(), pages);
            let mut random = Random(tensor.id().get() as u64 + 1);
            match row.places {
                Some((places, below)) if tensor.id().get() == places => {
                    for place in memory.bytes_mut().chunks_exact_mut(4) {
                        place.copy_from_slice(&((random.next() % below as u64) as i32).to_le_bytes());
                    }
                }
                _ => memory.bytes_mut().fill_with(|| random.next() as u8),
            }
            memory
        };
        let inputs = compiled.inputs().iter().map(random).collect();
        let output = random(&compiled.outputs()[0]);
        Ok(Self { engine: engine.clone(), stream: Stream::new(engine), compiled, inputs, output })
    }

    fn execute(&mut self) {
        let inputs: Vec<Tensor<'_>> = (self.compiled.inputs().iter().zip(&self.inputs))
            // SAFETY: the memory has the size of the tensor and belongs to this run.
            .map(|(tensor, memory)| unsafe {
                Tensor::from_raw_parts(tensor, &self.engine, memory.bytes().as_ptr())
            })
            .collect();
        let output = &self.compiled.outputs()[0];
        // SAFETY: as above, and nothing else runs.
        let output =
            unsafe { TensorMut::from_raw_parts(output, &self.engine, self.output.bytes_mut().as_mut_ptr()) };
        self.compiled.execute(&self.stream, &inputs, &mut [output]).expect("the rows are sound");
    }
}
