//! The types and dims of results, as far as they follow from the operands of an op before data exists.

use smallvec::SmallVec;

use super::infer;
use super::logical_tensor::LogicalTensor;
use super::op::Op;
use super::row::{Schema, ShapeRule};
use crate::error::{Error, Result, ShapeFault};
use crate::types::dtype::DataType;
use crate::types::kind::OpKind;
use crate::types::shape::{self, Dims, UNKNOWN_DIM};

/// Sizes that stand for open dims. Both have many divisors, so that reshapes divide them; a dim of a result
/// that is the same with either does not depend on open dims.
const TRIALS: [i64; 2] = [5_040, 10_080];

/// The type of an output of an op of a kind with operands of some types, if it follows from them or if the
/// kind allows only one.
pub(super) fn output_type(kind: OpKind, inputs: &[DataType], output: usize) -> Option<DataType> {
    let schema = Schema::of(kind);
    let variable = schema.output(output).type_variable;
    let of_input = |(index, &data_type): (usize, &DataType)| {
        (schema.input(index).type_variable == variable).then_some(data_type)
    };
    let is_bound = schema.types.iter().any(|(name, _)| *name == variable);
    let allowed = schema.types.iter().find(|(name, _)| *name == variable).map_or(&[][..], |(_, types)| types);
    match allowed {
        &[only] => Some(only),
        _ if !is_bound => None,
        _ => inputs.iter().enumerate().find_map(of_input),
    }
}

/// The type that an output has unless somebody says another: that of the first operand, else s64 for places
/// and f32 for numbers.
pub(super) fn default_output_type(kind: OpKind, inputs: &[DataType], output: usize) -> Option<DataType> {
    let schema = Schema::of(kind);
    let variable = schema.output(output).type_variable;
    let (_, allowed) = schema.types.iter().find(|(name, _)| *name == variable)?;
    let candidates = inputs.first().copied().into_iter().chain([DataType::S64, DataType::F32]);
    candidates.into_iter().find(|data_type| allowed.contains(data_type))
}

/// The dims of the outputs of an op, each known or [`UNKNOWN_DIM`], as far as they follow from those of its
/// inputs; an output whose rank does not follow is `None`.
///
/// # Errors
///
/// [`Error::Shape`] if dims that are all known contradict the rule of the op.
pub(crate) fn output_dims(op: &Op, inputs: &[LogicalTensor]) -> Result<SmallVec<[Option<Dims>; 1]>> {
    let unknown = || SmallVec::from_elem(None, op.outputs().len());
    let Some(dims) = inputs.iter().map(LogicalTensor::raw_dims).collect::<Option<SmallVec<[&[i64]; 4]>>>()
    else {
        return Ok(unknown());
    };
    if dims.iter().all(|dims| shape::is_known(dims)) {
        let shapes = infer::output_shapes(op, &dims)?;
        return Ok(shapes.map_or_else(unknown, |shapes| shapes.into_iter().map(Some).collect()));
    }
    let trial = |size: i64| {
        let filled: SmallVec<[Dims; 4]> = dims.iter().map(|dims| filled(dims, size)).collect();
        let filled: SmallVec<[&[i64]; 4]> = filled.iter().map(|dims| &dims[..]).collect();
        // Sizes that only stand for others may contradict the rule.
        infer::output_shapes(op, &filled).ok().flatten()
    };
    let [Some(small), Some(large)] = TRIALS.map(trial) else { return Ok(unknown()) };
    let is_slice = Schema::of(op.kind()).shape_rule == ShapeRule::Slice;
    let resolved = |(small, large): (&Dims, &Dims)| {
        let same = small.len() == large.len();
        same.then(|| {
            let pairs = small.iter().zip(large).enumerate();
            // A range of an open dim may reach beyond its end.
            let is_open = |axis: usize| is_slice && dims[0].get(axis) == Some(&UNKNOWN_DIM);
            let dim = |(axis, (&a, &b))| if a == b && !is_open(axis) { a } else { UNKNOWN_DIM };
            pairs.map(dim).collect()
        })
    };
    Ok(small.iter().zip(&large).map(resolved).collect())
}

fn filled(dims: &[i64], size: i64) -> Dims {
    dims.iter().map(|&dim| if dim == UNKNOWN_DIM { size } else { dim }).collect()
}

/// An output as a graph says it, with the dims that follow from the inputs.
///
/// # Errors
///
/// [`ShapeFault::Contradiction`] if the graph says other dims.
pub(crate) fn resolved_output(op: &Op, index: usize, dims: Option<&Dims>) -> Result<LogicalTensor> {
    let said = &op.outputs()[index];
    let Some(dims) = dims else { return Ok(said.clone()) };
    let merged: Option<Dims> = match said.raw_dims() {
        None => Some(dims.clone()),
        Some(own) if own.len() == dims.len() => {
            let pairs = own.iter().zip(dims);
            pairs
                .map(|(&own, &dim)| match (shape::known(own), shape::known(dim)) {
                    (Some(own), Some(dim)) if own != dim => None,
                    (Some(own), _) => Some(own),
                    (None, _) => Some(dim),
                })
                .collect()
        }
        Some(_) => None,
    };
    match merged {
        Some(merged) => said.with_dims(&merged),
        None => {
            let given = said.partial_dims().unwrap_or_default();
            let fault =
                ShapeFault::Contradiction { port: op.output_ref(index), given, inferred: dims.clone() };
            Err(Error::Shape { op: op.op_ref(), fault: Box::new(fault) })
        }
    }
}
