//! Runs a graph that anybody may have written: each partition that has all its inputs, and what only the
//! reference knows.

use std::collections::BTreeMap;

use sterna::reference::{self, Value};
use sterna::{
    Accuracy, AsDynView, CompiledPartition, DataType, Engine, Error, Graph, LogicalTensor, MaskedKeys, Op,
    Partition, Status, Stream, Tensor, TensorBuf, TensorId,
};

use crate::ENGINES;
use crate::common::graphs::{self, fill};
use crate::common::{GAP, Random};

/// More ops than this take longer than they teach.
pub const MOST_OPS: usize = 64;
/// The largest tensor that is run on.
const MOST_ELEMENTS: usize = 2048;
/// The largest operand that the reference is given without a compiled partition to bound the result.
const MOST_OPERAND: usize = 64;
/// The size that stands in for an unknown dim.
const UNKNOWN_BECOMES: i64 = 3;

/// A tensor and its elements.
pub struct Held {
    buffer: TensorBuf,
    /// Of a host scalar, the description that says so.
    scalar: Option<LogicalTensor>,
}

impl Held {
    /// An input as the graph describes it, with what is unknown settled; `None` where it is too large, or
    /// cannot be one.
    pub fn input(mention: &LogicalTensor, engine: &Engine, seed: u64) -> Option<Self> {
        let (id, data_type) = (mention.id(), mention.data_type());
        // Numbers of half a byte are no elements that a harness fills one by one.
        data_type.size()?;
        let settle = |dim: Option<i64>| dim.unwrap_or(UNKNOWN_BECOMES);
        let dims: Vec<i64> = mention.partial_dims().unwrap_or(vec![None]).into_iter().map(settle).collect();
        let desc = match mention.strides().filter(|strides| strides.len() == dims.len()) {
            Some(strides) => LogicalTensor::with_strides(id, data_type, &dims, strides),
            None => LogicalTensor::strided(id, data_type, &dims),
        };
        let desc = desc.ok().filter(is_small)?;
        let mut buffer = TensorBuf::zeroed(desc, engine).ok()?;
        fill(&mut buffer, &mut Random::new(seed ^ id.get() as u64));
        let scalar = mention.is_host_scalar().then(|| mention.clone());
        Some(Self { buffer, scalar })
    }

    fn of_value(value: &Value, port: &LogicalTensor, engine: &Engine) -> Option<Self> {
        let desc =
            LogicalTensor::strided(port.id(), value.data_type(), value.dims()).ok().filter(is_small)?;
        let mut buffer = TensorBuf::zeroed(desc, engine).ok()?;
        value.write(&mut buffer).expect("type and dims are those of the value");
        Some(Self { buffer, scalar: None })
    }

    /// An output of a session.
    pub fn of(buffer: TensorBuf) -> Self {
        Self { buffer, scalar: None }
    }

    /// The elements, to be given to a session.
    pub fn view(&self) -> &dyn AsDynView {
        &self.buffer
    }

    fn desc(&self) -> &LogicalTensor {
        self.scalar.as_ref().unwrap_or(self.buffer.desc())
    }

    fn tensor(&self) -> Tensor<'_> {
        let Some(desc) = &self.scalar else { return self.buffer.as_tensor() };
        let tensor = match desc.data_type() {
            DataType::F32 => self.buffer.as_slice::<f32>().and_then(|of| Tensor::scalar(desc, of[0])),
            DataType::S32 => self.buffer.as_slice::<i32>().and_then(|of| Tensor::scalar(desc, of[0])),
            _ => self.buffer.as_slice::<i64>().and_then(|of| Tensor::scalar(desc, of[0])),
        };
        tensor.expect("a host scalar is of one of three types")
    }

    /// The elements as a dense value.
    pub fn value(&self) -> Value {
        graphs::value(&self.buffer)
    }
}

fn is_small(desc: &LogicalTensor) -> bool {
    let spans = |count: Option<usize>, most| count.is_some_and(|count| count <= most);
    desc.memory_size() <= 8 * 8 * MOST_ELEMENTS
        && spans(desc.span(), 8 * MOST_ELEMENTS)
        && spans(desc.element_count(), MOST_ELEMENTS)
}

/// The tensors of a graph by id.
pub type Tensors = BTreeMap<TensorId, Held>;

/// The outcome of a partition.
#[derive(Debug, PartialEq)]
pub enum Outcome {
    /// It ran, with this part of masked keys.
    Done(MaskedKeys),
    /// It was refused, with a status that is no defect.
    Refused(Status),
    /// An input is missing, or something is too large to be run here.
    Skipped,
}

/// Runs partitions one after the other on the tensors that are there, and adds those that they give. Says
/// what became of each.
pub fn run(partitions: &[Partition], tensors: &mut Tensors, engine: &Engine) -> Vec<Outcome> {
    partitions.iter().map(|partition| run_one(partition, tensors, engine)).collect()
}

fn run_one(partition: &Partition, tensors: &mut Tensors, engine: &Engine) -> Outcome {
    if !partition.is_supported() {
        return interpret(&partition.ops()[0], tensors, engine);
    }
    let inputs: Option<Vec<&Held>> = partition.inputs().iter().map(|port| tensors.get(&port.id())).collect();
    let Some(inputs) = inputs else { return Outcome::Skipped };
    let descs: Vec<LogicalTensor> = inputs.iter().map(|held| held.desc().clone()).collect();
    let compiled = match partition.compile_for(engine, &descs, partition.outputs()) {
        Ok(compiled) => compiled,
        Err(error) => return refused(&error),
    };
    if !compiled.outputs().iter().all(is_small) || compiled.scratchpad_size() > crate::MOST_BYTES {
        return Outcome::Skipped;
    }
    let results = match execute(&compiled, &inputs, engine) {
        Ok(results) => results,
        Err(error) => return refused(&error),
    };
    tensors.extend(results.into_iter().map(|buffer| (buffer.desc().id(), Held { buffer, scalar: None })));
    Outcome::Done(compiled.plan().masked_keys())
}

fn execute(compiled: &CompiledPartition, inputs: &[&Held], engine: &Engine) -> Result<Vec<TensorBuf>, Error> {
    let make = |desc: &LogicalTensor| {
        let mut buffer = TensorBuf::zeroed(desc.clone(), engine)?;
        buffer.as_mut_bytes().fill(GAP);
        Ok(buffer)
    };
    let mut results = compiled.outputs().iter().map(make).collect::<Result<Vec<TensorBuf>, Error>>()?;
    let sources: Vec<Tensor<'_>> = inputs.iter().map(|held| held.tensor()).collect();
    let mut targets: Vec<_> = results.iter_mut().map(TensorBuf::as_tensor_mut).collect();
    compiled.execute(&Stream::new(engine), &sources, &mut targets)?;
    Ok(results)
}

fn refused(error: &Error) -> Outcome {
    assert_ne!(error.status(), Status::RuntimeError, "{error}");
    assert!(!error.to_string().is_empty());
    Outcome::Refused(error.status())
}

/// Gives the results of an op that no partition runs.
fn interpret(op: &Op, tensors: &mut Tensors, engine: &Engine) -> Outcome {
    let operands: Option<Vec<Value>> =
        op.inputs().iter().map(|input| Some(tensors.get(&input.id())?.value())).collect();
    let Some(operands) = operands else { return Outcome::Skipped };
    let count = |value: &Value| value.dims().iter().product::<i64>() as usize;
    if operands.iter().any(|operand| count(operand) > MOST_OPERAND) {
        return Outcome::Skipped;
    }
    match reference::run(op, &operands) {
        Ok(results) => {
            for (port, value) in op.outputs().iter().zip(&results) {
                let Some(held) = Held::of_value(value, port, engine) else { return Outcome::Skipped };
                tensors.insert(port.id(), held);
            }
            Outcome::Done(MaskedKeys::Multiplied)
        }
        Err(error) => refused(&error),
    }
}

/// Runs a finalized graph on filled inputs, fused and op by op, and holds the results against each other and
/// against the reference. `text` is what the graph was read from. Gives the tensors whose bits a
/// session must give as well, if nothing is too large for one.
pub fn check_runs(graph: &Graph, text: &[u8]) -> Option<Tensors> {
    if graph.ops().len() > MOST_OPS {
        return None;
    }
    let explanations = graph.explain().expect("the graph is finalized");
    assert!(explanations.iter().all(|explanation| !format!("{explanation:?}").is_empty()));
    let [fused, alone] = graphs::both(graph);
    let op_count = |partitions: &[Partition]| partitions.iter().map(|p| p.ops().len()).sum::<usize>();
    assert_eq!((op_count(&fused), alone.len()), (graph.ops().len(), graph.ops().len()));

    let (engine, seed) = engine_for(text);
    let given = || -> Tensors {
        let filled = |input: &LogicalTensor| Some((input.id(), Held::input(input, engine, seed)?));
        graph.inputs().into_iter().filter_map(filled).collect()
    };
    let (mut apart, mut together) = (given(), given());
    let ran_apart = run(&alone, &mut apart, engine);
    let ran_together = run(&fused, &mut together, engine);

    for (partition, outcome) in alone.iter().zip(&ran_apart) {
        let op = &partition.ops()[0];
        if matches!(outcome, Outcome::Done(_)) && partition.is_supported() {
            let operands: Vec<Value> = op.inputs().iter().map(|input| apart[&input.id()].value()).collect();
            if let Err(why) = graphs::check_op(op, &operands, &apart[&op.outputs()[0].id()].value()) {
                panic!("{why}");
            }
        }
    }
    // Ops that run one by one run fused as well.
    let is_done = |id: sterna::OpId| {
        let of_op = |partition: &&Partition| partition.ops()[0].id() == id;
        alone.iter().zip(&ran_apart).any(|(p, outcome)| of_op(&p) && matches!(outcome, Outcome::Done(_)))
    };
    for (partition, outcome) in fused.iter().zip(&ran_together) {
        let all_done = partition.ops().iter().all(|op| is_done(op.id()));
        let Outcome::Done(masked_keys) = *outcome else {
            assert!(!all_done, "{outcome:?} of {partition:?}");
            continue;
        };
        if partition.accuracy() == Some(Accuracy::Bounded) {
            check_enclosed(partition, masked_keys, &together);
            continue;
        }
        // A result that follows from a partition without bits of its own has other bits as well.
        let has_other_inputs = partition.inputs().iter().any(|port| {
            let [a, b] = [&apart, &together].map(|made| made.get(&port.id()).map(Held::value));
            a != b
        });
        if has_other_inputs {
            continue;
        }
        for output in partition.outputs().iter().filter(|output| apart.contains_key(&output.id())) {
            let (fused, alone) = (together[&output.id()].value(), apart[&output.id()].value());
            if let Some(why) = graphs::difference(&fused, &alone, 0) {
                panic!("tensor {}: {why} in {partition:?}", output.id());
            }
        }
    }
    // A graph that is too large to be run here is too large as a whole; attention has no bits of its own.
    let has_bits = fused.iter().all(|partition| partition.accuracy() != Some(Accuracy::Bounded));
    let apart = if has_bits { apart } else { Tensors::new() };
    (!ran_apart.contains(&Outcome::Skipped)).then_some(apart)
}

/// An engine for a text, the same whenever the text is run, and a seed.
pub fn engine_for(text: &[u8]) -> (&'static Engine, u64) {
    let seed = text.iter().fold(text.len(), |sum, &byte| sum.wrapping_mul(31) ^ usize::from(byte));
    (&ENGINES[seed % ENGINES.len()], seed as u64)
}

/// Holds what a partition gave against the intervals of the reference.
fn check_enclosed(partition: &Partition, masked_keys: MaskedKeys, tensors: &Tensors) {
    let inputs = partition.inputs().iter().map(|port| (port.id(), tensors[&port.id()].value())).collect();
    let wanted: Vec<TensorId> = partition.outputs().iter().map(LogicalTensor::id).collect();
    let allowed = match reference::enclose_each(partition.ops(), &inputs, &wanted, masked_keys, &|_| ()) {
        Ok(allowed) => allowed,
        Err(Error::Unimplemented { .. }) => return,
        Err(error) => panic!("{error} in {partition:?}"),
    };
    for (id, allowed) in allowed {
        if let Some(at) = allowed.first_outside(&tensors[&id].value()) {
            let (low, high) = allowed.ends(at);
            panic!("tensor {id}: element {at} is not in [{low}, {high}] in {partition:?}");
        }
    }
}
