//! The compiled form of every op kind that partitions run, beside the reference interpreter: a form that is
//! no faster is no support. Prints Markdown.
//!
//! `cargo bench --bench kinds -- [FILTER ...]` gives, for each kind whose name holds a filter, the phases and
//! the work of the plan, the best times of one thread and of the interpreter, and the ratio of both. The
//! kinds are those of the op set for which [`Partition::is_supported`] is true, so none can be missed: a kind
//! that cannot be built or compiled here ends the bench. Run as a test, it compiles all, on few elements, and
//! times nothing.

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use sterna::reference::{self, Value};
use sterna::{
    Attr, AttrType, AttrValue, CompiledPartition, Count, DataType, Engine, LogicalTensor, Op, OpKind,
    Partition, Schema, Stream, TensorBuf,
};

use Attr as A;
use DataType as D;
use OpKind as K;

/// Time for the compiled form of a kind, and for the interpreter.
const TIME: Duration = Duration::from_millis(150);

/// Rows and columns of most operands; an eighth of each in a test.
const SIZE: [i64; 2] = [512, 1024];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_bench = arguments.iter().any(|argument| argument == "--bench");
    let filters: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with("--")).collect();
    let size = if is_bench { SIZE } else { SIZE.map(|dim| dim / 8) };
    let engine = Engine::builder().threads(1).build();
    if is_bench {
        println!("| kind | form | compiled, µs | interpreter, µs | interpreter / compiled |");
        println!("|---|---|---|---|---|");
    }
    let mut nobody = Vec::new();
    for &kind in OpKind::ALL {
        let Some(op) = supported(kind, size) else {
            nobody.push(kind.name());
            continue;
        };
        if filters.is_empty() || filters.iter().any(|filter| kind.name().contains(filter.as_str())) {
            Run::new(&op, size, &engine).map_err(|why| format!("{kind}: {why}"))?.measure(is_bench)?;
        }
    }
    if is_bench {
        println!("\nNot run by partitions: {}.", nobody.join(", "));
    }
    Ok(())
}

/// An op of a kind that partitions run: of the first counts and types that do, f32 before others.
fn supported(kind: OpKind, size: [i64; 2]) -> Option<Op> {
    let schema = Schema::of(kind);
    let counts = |count: Count| (0..8).filter(move |&n| count.allows(n));
    let types = || [D::F32].into_iter().chain(D::ALL.iter().copied());
    let mut ops = counts(schema.input_count).flat_map(|inputs| {
        counts(schema.output_count).flat_map(move |outputs| {
            types().flat_map(move |first| {
                types()
                    .map(move |other| with_attributes(typed(schema, [inputs, outputs], first, other), size))
            })
        })
    });
    let is_supported = |op: &Op| {
        Partition::from_op(op.clone()).is_ok_and(|partition| partition.is_supported())
            && reference::supports(op).is_ok()
    };
    ops.find(is_supported)
}

/// An op of so many ports: of the first type those that share the type of the first port, of the other type
/// the rest, if they may have it.
fn typed(schema: &Schema, [inputs, outputs]: [usize; 2], first: DataType, other: DataType) -> Op {
    let of_first = schema.inputs.iter().chain(schema.outputs).next().map(|port| port.type_variable);
    let type_of = |variable: &str| {
        let wanted = if Some(variable) == of_first { first } else { other };
        match schema.types.iter().find(|(name, _)| *name == variable) {
            Some((_, allowed)) if !allowed.contains(&wanted) => allowed[0],
            _ => wanted,
        }
    };
    let tensors = |ports: &[sterna::Port], count: usize, first: usize| -> Vec<LogicalTensor> {
        let of = |at: usize| {
            let variable = ports.get(at).or(ports.last()).map_or("", |port| port.type_variable);
            LogicalTensor::unknown(first + at, type_of(variable))
        };
        (0..count).map(of).collect()
    };
    let op = Op::new(0, schema.kind).inputs_from(tensors(schema.inputs, inputs, 0));
    tensors(schema.outputs, outputs, 100).into_iter().fold(op, Op::output)
}

/// The op with the attributes that it must have, and with some that keep its inputs few.
fn with_attributes(op: Op, [rows, columns]: [i64; 2]) -> Op {
    let kind = op.kind();
    Schema::of(kind).attributes.iter().fold(op, |op, row| {
        let value: AttrValue = match row.attr {
            A::Shape => vec![rows, columns].into(),
            A::Order => vec![1i64, 0].into(),
            A::Axes if kind != K::Slice && op.inputs().len() == 1 => vec![1i64].into(),
            A::Starts => vec![0i64, columns / 4].into(),
            A::Ends => vec![rows, columns / 2].into(),
            A::KeepStats => false.into(),
            A::UseAffine => (op.inputs().len() > 1).into(),
            A::Scales => vec![0.5f32].into(),
            A::Zps => vec![0i64].into(),
            A::Groups => 4i64.into(),
            A::Min => 0.75f32.into(),
            A::Max => 1.5f32.into(),
            A::SrcShape if kind == K::GatherBackward => vec![rows, columns].into(),
            A::SrcShape if kind == K::AvgPoolBackward => vec![8, rows / 8, columns].into(),
            A::K => 8i64.into(),
            _ if !row.required => return op,
            _ => match row.value_type {
                AttrType::Bool => true.into(),
                AttrType::S64 => 0i64.into(),
                AttrType::F32 => 0.5f32.into(),
                AttrType::String => row.allowed.first().copied().unwrap_or("per_tensor").into(),
                AttrType::S64s => vec![1i64].into(),
                AttrType::F32s => vec![1f32].into(),
            },
        };
        op.attr(row.attr, value)
    })
}

/// The dims of an input that may be tried, the likeliest first.
fn dims(op: &Op, input: usize, [rows, columns]: [i64; 2]) -> Vec<i64> {
    match (op.kind(), input) {
        (K::MatMul, _) => vec![rows, rows],
        (K::BiasAdd, 1) | (K::PReLU | K::PReLUBackward, 1) => vec![columns],
        (K::LayerNorm | K::RMSNorm, 1..) => vec![columns],
        (K::LayerNormBackward, 2 | 3) => vec![rows],
        (K::LayerNormBackward, 4..) => vec![columns],
        (K::GroupNorm, 0) => vec![8, rows / 8, 8, columns / 8],
        (K::GroupNorm, _) => vec![columns / 8],
        // A window for each element and two more, by the attributes above.
        (K::MaxPool | K::AvgPool, 0) | (K::MaxPoolBackward, 0) => vec![8, rows / 8, columns],
        (K::MaxPoolBackward, 1) | (K::AvgPoolBackward, 0) => vec![8, rows / 8 + 2, columns],
        (K::Interpolate | K::InterpolateBackward, 0) => vec![8, rows / 8, columns],
        (K::InterpolateBackward, 1) => vec![8, rows / 16, columns],
        (K::BatchNormTrainingBackward, 1) => vec![rows, columns],
        (K::BatchNormInference | K::BatchNormForwardTraining | K::BatchNormTrainingBackward, 1..) => {
            vec![columns]
        }
        (K::DynamicQuantize | K::DynamicDequantize, 1..) => vec![1],
        (K::Dropout, 1..) => vec![],
        (kind, 1) if kind.name().starts_with("Reduce") => vec![1],
        (K::Gather | K::GatherBackward, 1) => vec![rows],
        (K::GatherND | K::ScatterND, 1) => vec![rows, 1],
        (K::PagedLoad | K::CacheStore, 0) => vec![rows / 16, 1, 16, columns],
        (K::PagedLoad, 1) => vec![rows / 64, 4],
        (K::CacheStore, 1) => vec![rows / 2, 1, columns],
        (K::CacheStore, 2) => vec![rows / 2],
        _ => vec![rows, columns],
    }
}

/// Numbers near 1, and integers that are small.
fn filled(data_type: DataType, dims: &[i64]) -> Result<Value, Box<dyn Error>> {
    let count = dims.iter().product::<i64>() as usize;
    let number = |at: usize| 0.5 + (at.wrapping_mul(2_654_435_761) >> 9) as u16 as f32 / 65536.0;
    let numbers: Vec<f32> = (0..count).map(number).collect();
    if !data_type.is_whole() {
        return Ok(Value::new(data_type, dims, vec![0x21; count.div_ceil(2)])?);
    }
    let tensor = |id, data_type| LogicalTensor::unknown(id, data_type);
    let cast = Op::new(0, K::Cast).input(tensor(0, D::F32)).output(tensor(1, data_type));
    let numbers = Value::from_slice(dims, &numbers)?;
    match data_type {
        D::F32 => Ok(numbers),
        _ if reference::supports(&cast).is_ok() => Ok(reference::run(&cast, &[numbers])?.remove(0)),
        _ => {
            let size = data_type.size().ok_or("elements have whole bytes")?;
            Ok(Value::new(data_type, dims, vec![1; count * size])?)
        }
    }
}

/// A compiled op with its tensors.
struct Run<'a> {
    op: &'a Op,
    compiled: CompiledPartition,
    stream: Stream,
    values: Vec<Value>,
    inputs: Vec<TensorBuf>,
    outputs: Vec<TensorBuf>,
}

impl<'a> Run<'a> {
    fn new(op: &'a Op, size: [i64; 2], engine: &Engine) -> Result<Self, Box<dyn Error>> {
        let ports = op.inputs().iter().enumerate();
        let values: Vec<Value> = ports
            .map(|(at, port)| filled(port.data_type(), &dims(op, at, size)))
            .collect::<Result<_, _>>()?;
        let descs: Vec<LogicalTensor> = (op.inputs().iter().zip(&values))
            .map(|(port, value)| LogicalTensor::strided(port.id(), port.data_type(), value.dims()))
            .collect::<Result<_, _>>()?;
        let compiled = Partition::from_op(op.clone())?.compile_for(engine, &descs, op.outputs())?;
        let mut inputs = Vec::new();
        for desc in compiled.inputs() {
            let at = op.inputs().iter().position(|port| port.id() == desc.id()).ok_or("another input")?;
            let mut tensor = TensorBuf::zeroed(desc.clone(), engine)?;
            values[at].write(&mut tensor)?;
            inputs.push(tensor);
        }
        let outputs = compiled.outputs().iter().map(|desc| TensorBuf::zeroed(desc.clone(), engine));
        let outputs = outputs.collect::<Result<_, _>>()?;
        Ok(Self { op, compiled, stream: Stream::new(engine), values, inputs, outputs })
    }

    fn execute(&mut self) -> sterna::Result<()> {
        let inputs: Vec<_> = self.inputs.iter().map(TensorBuf::as_tensor).collect();
        let mut outputs: Vec<_> = self.outputs.iter_mut().map(TensorBuf::as_tensor_mut).collect();
        self.compiled.execute(&self.stream, &inputs, &mut outputs)
    }

    /// The phases of the plan, and the first work of the last one.
    fn form(&self) -> String {
        let plan = self.compiled.plan();
        let kinds: Vec<&str> = plan.nests.iter().map(|nest| nest.kind.name()).collect();
        let steps = plan.nests.last().map_or(&[][..], |nest| &nest.steps);
        let work = steps.first().map(|step| step.tasks.join(", ")).unwrap_or_default();
        format!("{}: {}", kinds.join(", "), work.replace('|', "\\|"))
    }

    fn measure(mut self, is_bench: bool) -> Result<(), Box<dyn Error>> {
        self.execute()?;
        let expected = reference::run(self.op, &self.values)?;
        let dims = |descs: &[TensorBuf]| -> Vec<Vec<i64>> {
            descs.iter().map(|tensor| tensor.desc().dims().unwrap_or_default().to_vec()).collect()
        };
        if dims(&self.outputs) != expected.iter().map(|value| value.dims().to_vec()).collect::<Vec<_>>() {
            return Err(format!("the results of {} have other dims", self.op.kind()).into());
        }
        if !is_bench {
            return Ok(());
        }
        let compiled = best(|| self.execute())?;
        let interpreted =
            best(|| reference::run(self.op, &self.values).map(|values| drop(black_box(values))))?;
        println!(
            "| {} | {} | {:.1} | {:.1} | {:.1} |",
            self.op.kind(),
            self.form(),
            compiled * 1e6,
            interpreted * 1e6,
            interpreted / compiled
        );
        Ok(())
    }
}

/// Seconds of the fastest run.
fn best(mut run: impl FnMut() -> sterna::Result<()>) -> sterna::Result<f64> {
    let (begin, mut best) = (Instant::now(), f64::MAX);
    loop {
        let start = Instant::now();
        run()?;
        best = best.min(start.elapsed().as_secs_f64());
        if begin.elapsed() > TIME {
            return Ok(best);
        }
    }
}
