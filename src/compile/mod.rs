//! From a partition and concrete tensors to a plan.

mod arena;
mod attention;
mod buffers;
pub(crate) mod cache;
mod dequantized;
mod elementwise;
mod empty;
mod gemm;
mod in_place;
mod integers;
mod key;
mod lookup;
mod lower;
mod machine;
mod memory;
mod once_cache;
mod paged;
mod phases;
mod pool;
mod product_shape;
mod quantized_tokens;
mod row_axes;
mod rows;
pub(crate) mod select;
mod select_key;
mod shaped_partition;
mod shapes;
#[cfg(test)]
#[path = "../../tests/common/skipped.rs"]
mod skipped;
mod sync;
#[cfg(test)]
pub(crate) mod tests;
mod tile_class;

use smallvec::SmallVec;

use self::key::Key;
use self::machine::{MAX_THREADS, Machine};
use crate::error::{CompileFault, Direction, Error, Result};
use crate::execute::compiled::CompiledPartition;
use crate::execute::engine::Engine;
use crate::graph::logical_tensor::LogicalTensor;
use crate::partition::Partition;
use crate::types::trace::{record, slower, span};

impl Partition {
    /// Compiles the partition for the shapes and layouts that its graph gives. A graph that leaves shapes of
    /// inputs open takes [`compile_for`](Self::compile_for).
    ///
    /// # Errors
    ///
    /// As [`compile_for`](Self::compile_for).
    ///
    /// ```
    /// use sterna::{DataType, Engine, LogicalTensor, Op, OpKind, Partition};
    /// let op = Op::new(0, OpKind::Abs)
    ///     .input(LogicalTensor::strided(0, DataType::F32, &[2, 3])?)
    ///     .output(LogicalTensor::unknown(1, DataType::F32));
    /// let compiled = Partition::from_op(op)?.compile(&Engine::new())?;
    /// assert_eq!(compiled.port("dst")?.dims(), Some(&[2, 3][..]));
    /// # Ok::<(), sterna::Error>(())
    /// ```
    pub fn compile(&self, engine: &Engine) -> Result<CompiledPartition> {
        self.compile_for(engine, self.inputs(), self.outputs())
    }

    /// Compiles the partition for tensors of concrete shapes and layouts.
    ///
    /// The tensors are found by id, in any order; a tensor that is no port, or is given twice, does no harm.
    /// Their shapes and layouts replace those of the graph, so one partition compiles for many shapes. Inputs
    /// must have known dims and strides. Unknown parts of an output are inferred: a layout that is `any` or
    /// unknown becomes dense. The result tells them.
    ///
    /// # Errors
    ///
    /// [`Error::Compile`] for an unsupported partition, a missing tensor, a type other than in the graph, an
    /// input that is not concrete, and an output whose strides overlap; [`Error::Shape`] if shapes do not fit
    /// together or a given output shape contradicts the inferred one.
    ///
    /// ```
    /// use sterna::{DataType, Engine, LogicalTensor, Op, Partition};
    /// let op = Op::select(
    ///     0,
    ///     LogicalTensor::unknown(0, DataType::Boolean),
    ///     LogicalTensor::unknown(1, DataType::F32),
    ///     LogicalTensor::unknown(2, DataType::F32),
    ///     LogicalTensor::unknown(3, DataType::F32),
    /// );
    /// let inputs = [
    ///     LogicalTensor::strided(0, DataType::Boolean, &[5])?,
    ///     LogicalTensor::strided(1, DataType::F32, &[4, 1])?,
    ///     LogicalTensor::strided(2, DataType::F32, &[5])?,
    /// ];
    /// let output = LogicalTensor::unknown(3, DataType::F32);
    /// let compiled = Partition::from_op(op)?.compile_for(&Engine::new(), &inputs, &[output])?;
    /// assert_eq!(compiled.port(3)?.dims(), Some(&[4, 5][..]));
    /// # Ok::<(), sterna::Error>(())
    /// ```
    pub fn compile_for(
        &self,
        engine: &Engine,
        inputs: &[LogicalTensor],
        outputs: &[LogicalTensor],
    ) -> Result<CompiledPartition> {
        self.compile_with(engine, inputs, outputs, false)
    }

    /// As [`compile_for`](Self::compile_for); `has_room` is true if there is room for what is kept of all
    /// constants of the caller.
    ///
    /// # Errors
    ///
    /// As [`compile_for`](Self::compile_for).
    pub(crate) fn compile_with(
        &self,
        engine: &Engine,
        inputs: &[LogicalTensor],
        outputs: &[LogicalTensor],
        has_room: bool,
    ) -> Result<CompiledPartition> {
        span!(span: "compile", partition = self.id(), ops = self.ops().len(); cache);
        let refuse = |fault| Error::Compile { partition: self.id(), fault };
        let unsupported = || refuse(CompileFault::Unsupported(self.unsupported_reason().unwrap_or_default()));
        self.matched().ok_or_else(unsupported)?;
        let inputs = ports(Direction::Input, self.inputs(), inputs).map_err(refuse)?;
        let outputs = ports(Direction::Output, self.outputs(), outputs).map_err(refuse)?;
        inputs.iter().try_for_each(|input| check_concrete(input)).map_err(refuse)?;

        let form = self.form_for(&inputs);
        let machine = Machine {
            level: engine.level(),
            features: engine.cpu_features(),
            threads: engine.threads().min(MAX_THREADS),
            keeps_constants: engine.keeps_constants(),
            has_room,
        };
        let ports = inputs.iter().chain(&outputs).copied();
        let key = Key::new(form, ports, machine);
        let mut cache = "hit";
        let plan = cache::plan_of(engine, &key, || {
            cache = "miss";
            let plan = lower::lower(form, &inputs, &outputs, machine)?;
            let fallbacks = plan.fallbacks_of(&form.labels().ops);
            fallbacks.for_each(|fallback| {
                slower!("partition {}: {fallback}", self.id());
            });
            Ok(plan)
        })?;
        record!(span, cache = cache);

        let mut ports = Vec::with_capacity(inputs.len() + outputs.len());
        ports.extend(inputs.iter().map(|&input| input.clone()));
        let resolved =
            outputs.iter().zip(&plan.outputs).map(|(given, (dims, strides))| given.resolved(dims, strides));
        ports.extend(resolved);
        let labels = form.labels().clone();
        Ok(CompiledPartition::labelled(plan, engine.clone(), ports, inputs.len(), labels))
    }
}

type Ports<'a> = SmallVec<[&'a LogicalTensor; 4]>;

/// The tensor given for each port.
fn ports<'a>(
    direction: Direction,
    ports: &[LogicalTensor],
    given: &'a [LogicalTensor],
) -> Result<Ports<'a>, CompileFault> {
    let mut found = Ports::new();
    for (index, port) in ports.iter().enumerate() {
        let tensor = port.id();
        // Most callers give the tensors in the order of the ports.
        let in_order = given.get(index).filter(|given| given.id() == tensor);
        let Some(given) = in_order.or_else(|| given.iter().find(|given| given.id() == tensor)) else {
            return Err(CompileFault::Missing { direction, tensor });
        };
        if given.data_type() != port.data_type() {
            let (expected, given) = (port.data_type(), given.data_type());
            return Err(CompileFault::Type { tensor, expected, given });
        }
        if given.is_host_scalar() != port.is_host_scalar() {
            return Err(CompileFault::HostScalar { tensor });
        }
        found.push(given);
    }
    Ok(found)
}

fn check_concrete(input: &LogicalTensor) -> Result<(), CompileFault> {
    let tensor = input.id();
    if input.dims().is_none() {
        return Err(CompileFault::UnknownShape { tensor });
    }
    match input.strides() {
        Some(_) => Ok(()),
        None => Err(CompileFault::NotStrided { tensor }),
    }
}
