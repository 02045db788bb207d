//! Calls on operands, and copies between operands and memory of the library.
#![allow(unsafe_code, reason = "results are memory of a type known only at run time")]

use pyo3::prelude::*;
use sterna::{CompiledPartition, DynView, DynViewMut, MaskTiles, Stream, TensorMut};

use super::numpy::{self, array_of, new_array};
use super::operand::Operand;

/// Runs a compiled partition on operands in the order of its ports.
pub(crate) fn execute(
    compiled: &CompiledPartition,
    inputs: &[&Operand],
    outputs: &mut [Operand],
) -> sterna::Result<()> {
    let engine = compiled.engine();
    let given = inputs.iter().zip(compiled.inputs()).map(|(operand, desc)| operand.tensor(desc, engine));
    let given = given.collect::<sterna::Result<Vec<_>>>()?;
    let mut results = Vec::with_capacity(outputs.len());
    for (operand, desc) in outputs.iter().zip(compiled.outputs()) {
        operand.check_is(desc)?;
        // SAFETY: the memory of an output may be written, which its maker has checked; the execution refuses
        // one that overlaps another tensor, unless the partition can work in place.
        results.push(unsafe { TensorMut::from_raw_parts(desc, engine, operand.address()) });
    }
    compiled.execute(&Stream::new(engine), &given, &mut results)
}

/// The classes of the tiles of masked scores, for operands in the order of the ports.
pub(crate) fn mask_tiles(
    compiled: &CompiledPartition,
    inputs: &[&Operand],
) -> sterna::Result<Option<MaskTiles>> {
    let given = inputs.iter().zip(compiled.inputs());
    let given = given.map(|(operand, desc)| operand.tensor(desc, compiled.engine()));
    compiled.mask_tiles(&given.collect::<sterna::Result<Vec<_>>>()?)
}

/// A copy of the elements of a view as an array, which outlives the view.
pub(crate) fn copied<'py>(py: Python<'py>, view: &DynView<'_>) -> PyResult<Bound<'py, PyAny>> {
    let (array, _) = new_array(py, view.data_type(), view.dims(), None)?;
    numpy::copy_into(&array, &numpy::borrowed(py, view)?)?;
    Ok(array)
}

/// Writes the elements of an operand to all elements of a view of the same type and dims.
pub(crate) fn write_to(py: Python<'_>, view: &mut DynViewMut<'_>, operand: &Operand) -> PyResult<()> {
    // Arrays of NumPy's own class, so that no code of others sees the memory.
    let source = numpy::borrowed(py, &operand.view())?;
    numpy::copy_into(&numpy::borrowed_mut(py, view)?, &source)
}

/// As [`write_to`], to an operand that may be written.
pub(crate) fn write_all(py: Python<'_>, target: &mut Operand, source: &DynView<'_>) -> PyResult<()> {
    target.check_writable()?;
    let address = target.address();
    let array = array_of(py, target.data_type, &target.dims, target.strides.as_deref(), address)?;
    numpy::copy_into(&array, &numpy::borrowed(py, source)?)
}
