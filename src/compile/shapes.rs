//! Shapes and strides of results.

use crate::error::{CompileFault, Error, Result, ShapeFault};
use crate::graph::logical_tensor::{Layout, LogicalTensor};
use crate::graph::op::Op;
use crate::types::dtype::DataType;
use crate::types::shape::{self, Dims, UNKNOWN_DIM};

/// The most elements of a value of a partition with phases that pack and pad what they read: as many as no
/// memory has bytes, and few enough that strides of any type, padded rows and blocks can be counted in bytes.
pub(super) const MAX_ELEMENTS: i64 = 1 << 48;

/// Checks that the elements of a value can be counted; `has_phases` if the value is of a partition whose
/// phases pack and pad what they read.
pub(super) fn is_countable(dims: &[i64], data_type: DataType, has_phases: bool) -> bool {
    let size = data_type.size().unwrap_or(1) as i64;
    let fits = |count: i64| count.checked_mul(size).is_some() && (!has_phases || count <= MAX_ELEMENTS);
    shape::element_count(dims).is_some_and(fits)
}

/// Checks the inferred shape of an output of an op: its bytes must be countable, and for an output it must
/// match the given shape.
pub(super) fn check_inferred(
    op: &Op,
    output: usize,
    given: Option<&LogicalTensor>,
    inferred: &Dims,
    has_phases: bool,
) -> Result<()> {
    let refuse = |fault| Err(Error::Shape { op: op.op_ref(), fault: Box::new(fault) });
    if !is_countable(inferred, op.outputs()[output].data_type(), has_phases) {
        return refuse(ShapeFault::TooLarge { dims: inferred.clone() });
    }
    let Some((given, dims)) = given.and_then(|given| Some((given, given.raw_dims()?))) else { return Ok(()) };
    let agrees = |(&given, &inferred): (&i64, &i64)| given == UNKNOWN_DIM || given == inferred;
    if dims.len() == inferred.len() && dims.iter().zip(inferred).all(agrees) {
        return Ok(());
    }
    let given = given.partial_dims().unwrap_or_default();
    let (port, inferred) = (op.output_ref(output), inferred.clone());
    refuse(ShapeFault::Contradiction { port, given, inferred })
}

/// The strides of an output: the given ones, or dense ones; under layout `any` in the dim order of the first
/// given input that has the full shape.
pub(super) fn output_strides(
    output: &LogicalTensor,
    dims: &Dims,
    layout_hints: &[&LogicalTensor],
) -> Result<Dims, CompileFault> {
    let tensor = output.id();
    let too_large = || CompileFault::TooLarge { tensor, dims: dims.clone() };
    let strides = match output.layout() {
        Layout::Strided(_) if output.strides().is_some() => output.strides().map(Dims::from_slice),
        Layout::Strided(_) => shape::row_major_strides(dims),
        Layout::Any | Layout::Undef => match layout_hints.iter().find(|hint| hint.dims() == Some(dims)) {
            Some(hint) => {
                let strides = hint.strides().unwrap_or_default();
                shape::dense_strides(dims, &shape::memory_order(dims, strides))
            }
            None => shape::row_major_strides(dims),
        },
        Layout::Opaque(_) => return Err(CompileFault::NotStrided { tensor }),
    };
    let strides = strides.ok_or_else(too_large)?;
    // Strides of its own do not overlap; those of a tensor without elements may look as if they did.
    if output.strides().is_some() && shape::overlaps_itself(dims, &strides) {
        return Err(CompileFault::OverlappingStrides { tensor, dims: dims.clone(), strides });
    }
    // Strides may have been given for unknown dims, so only now can the size of both be checked.
    match LogicalTensor::with_strides(tensor, output.data_type(), dims, &strides) {
        Ok(_) => Ok(strides),
        Err(_) => Err(too_large()),
    }
}
