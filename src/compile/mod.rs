//! From a partition and concrete tensors to a plan.

pub(crate) mod cache;
mod key;
mod select;

use smallvec::SmallVec;

use self::key::Key;
use crate::error::{CompileFault, Direction, Error, Result, ShapeFault};
use crate::execute::compiled::CompiledPartition;
use crate::execute::engine::Engine;
use crate::graph::infer;
use crate::graph::logical_tensor::{Layout, LogicalTensor};
use crate::graph::op::Op;
use crate::partition::Partition;
use crate::plan::Plan;
use crate::types::dtype::DataType;
use crate::types::kind::TensorId;
use crate::types::shape::{self, Dims, UNKNOWN_DIM};

impl Partition {
    /// Compiles the partition for tensors of concrete shapes and layouts.
    ///
    /// The tensors are found by id, in any order; one that is no port, or is given twice, does no harm. Their shapes
    /// and layouts replace those of the graph, so one partition compiles for many shapes. Inputs have known dims and
    /// strides. What is not known of an output is inferred; its layout, where it is `any` or unknown, becomes dense,
    /// and can be asked of the result.
    ///
    /// # Errors
    ///
    /// [`Error::Compile`] for a partition that is not supported, a missing tensor, another type than in the graph, an
    /// input that is not concrete, and an output whose strides overlap; [`Error::Shape`] where shapes do not fit
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
    /// let compiled = Partition::from_op(op)?.compile(&Engine::new(), &inputs, &[output])?;
    /// assert_eq!(compiled.logical_tensor(3)?.dims(), Some(&[4, 5][..]));
    /// # Ok::<(), sterna::Error>(())
    /// ```
    pub fn compile(
        &self,
        engine: &Engine,
        inputs: &[LogicalTensor],
        outputs: &[LogicalTensor],
    ) -> Result<CompiledPartition> {
        let refuse = |fault| Error::Compile { partition: self.id(), fault };
        if let Some(reason) = self.unsupported_reason() {
            return Err(refuse(CompileFault::Unsupported(reason)));
        }
        let inputs = ports(Direction::Input, self.inputs(), inputs).map_err(refuse)?;
        let outputs = ports(Direction::Output, self.outputs(), outputs).map_err(refuse)?;
        inputs.iter().try_for_each(|input| check_concrete(input)).map_err(refuse)?;

        let key = Key::new(self, inputs.iter().chain(&outputs).copied(), engine.level());
        let plan = cache::plan_of(&key, || make_plan(self, &inputs, &outputs, engine))?;

        let mut ports = Vec::with_capacity(inputs.len() + outputs.len());
        ports.extend(inputs.iter().map(|&input| input.clone()));
        let settled =
            outputs.iter().zip(&plan.outputs).map(|(given, (dims, strides))| given.settled(dims, strides));
        ports.extend(settled);
        Ok(CompiledPartition::new(plan, engine.clone(), ports, inputs.len()))
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
    if input.known_dims().is_none() {
        return Err(CompileFault::UnknownShape { tensor });
    }
    match input.strides() {
        Some(_) => Ok(()),
        None => Err(CompileFault::NotStrided { tensor }),
    }
}

/// An operand with everything known about where its elements are.
#[derive(Debug, Clone, Copy)]
struct Operand<'a> {
    data_type: DataType,
    dims: &'a [i64],
    strides: &'a [i64],
}

impl<'a> Operand<'a> {
    fn of(tensor: &'a LogicalTensor) -> Option<Self> {
        Some(Self { data_type: tensor.data_type(), dims: tensor.known_dims()?, strides: tensor.strides()? })
    }
}

/// Infers the output, settles its layout and lowers the op. Every fusion so far leaves ops alone, so there is one.
fn make_plan(
    partition: &Partition,
    inputs: &[&LogicalTensor],
    outputs: &[&LogicalTensor],
    engine: &Engine,
) -> Result<Plan> {
    let [op] = partition.ops() else {
        let reason = partition.ops().iter().map(|op| op.kind().name()).collect::<Vec<_>>().join(", ");
        let fault = CompileFault::Unsupported(format!("no kernel runs {reason} as one"));
        return Err(Error::Compile { partition: partition.id(), fault });
    };
    let position = |id: TensorId| partition.inputs().iter().position(|port| port.id() == id);
    let positions: SmallVec<[usize; 4]> =
        op.inputs().iter().filter_map(|input| position(input.id())).collect();
    let operands: SmallVec<[Operand<'_>; 4]> =
        positions.iter().filter_map(|&position| Operand::of(inputs[position])).collect();
    let dims: SmallVec<[&[i64]; 4]> = operands.iter().map(|operand| operand.dims).collect();

    let refuse = |fault| Error::Compile { partition: partition.id(), fault };
    let shapes = infer::select_shapes(op, &dims)?;
    check_given(op, outputs[0], &shapes.result)?;
    let strides = output_strides(outputs[0], &shapes.result, &[operands[1], operands[2]]).map_err(refuse)?;
    let size = |input: &&LogicalTensor| Some(input.span()? * input.data_type().size()?);
    let sizes = inputs.iter().map(|input| size(input).unwrap_or(0)).collect();
    Ok(select::lower(&operands, &positions, &shapes, strides, sizes, engine.level()))
}

/// Checks what was said of an output's shape against what follows from the inputs.
fn check_given(op: &Op, output: &LogicalTensor, inferred: &Dims) -> Result<()> {
    let contradiction = |given: &[i64]| {
        let (port, given, inferred) = (op.output_ref(0), given.into(), inferred.clone());
        let fault = Box::new(ShapeFault::Contradiction { port, given, inferred });
        Error::Shape { op: op.op_ref(), fault }
    };
    let bytes =
        shape::element_count(inferred).and_then(|count| count.checked_mul(output.data_type().size()? as i64));
    if bytes.is_none() {
        let fault = Box::new(ShapeFault::TooLarge { dims: inferred.clone() });
        return Err(Error::Shape { op: op.op_ref(), fault });
    }
    match output.dims() {
        Some(given) => {
            let agrees = |(&given, &inferred): (&i64, &i64)| given == UNKNOWN_DIM || given == inferred;
            let fits = given.len() == inferred.len() && given.iter().zip(inferred).all(agrees);
            if fits { Ok(()) } else { Err(contradiction(given)) }
        }
        None => Ok(()),
    }
}

/// The strides of an output: those given, or else dense ones, under layout `any` in the dim order of the first of the
/// given inputs that has the full shape.
fn output_strides(output: &LogicalTensor, dims: &Dims, models: &[Operand<'_>]) -> Result<Dims, CompileFault> {
    let tensor = output.id();
    let too_large = || CompileFault::TooLarge { tensor, dims: dims.clone() };
    let strides = match output.layout() {
        Layout::Strided(_) if output.strides().is_some() => output.strides().map(Dims::from_slice),
        Layout::Strided(_) => shape::row_major_strides(dims),
        Layout::Any | Layout::Undef => match models.iter().find(|model| model.dims == &dims[..]) {
            Some(model) => shape::dense_strides(dims, &shape::memory_order(dims, model.strides)),
            None => shape::row_major_strides(dims),
        },
        Layout::Opaque(_) => return Err(CompileFault::NotStrided { tensor }),
    };
    let strides = strides.ok_or_else(too_large)?;
    if shape::overlaps_itself(dims, &strides) {
        return Err(CompileFault::OverlappingStrides { tensor, dims: dims.clone(), strides });
    }
    // Strides may have been given for dims that were not known, so only now can the size of both be judged.
    match LogicalTensor::with_strides(tensor, output.data_type(), dims, &strides) {
        Ok(_) => Ok(strides),
        Err(_) => Err(too_large()),
    }
}
