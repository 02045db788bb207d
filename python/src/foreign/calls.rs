//! Calls on operands, and copies between operands and memory of the library.
#![allow(unsafe_code, reason = "results are memory of a type known only at run time")]

use pyo3::prelude::*;
use sterna::{CompiledPartition, DynView, DynViewMut, MaskTiles, Stream, Tensor, TensorMut};

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

/// Runs a compiled partition on memory by address, in the order of its ports.
///
/// The package alone calls it, on tensors that it holds and whose types, shapes and strides it has checked,
/// so that a call costs no more than its addresses.
pub(crate) fn execute_at(
    compiled: &CompiledPartition,
    inputs: &[usize],
    outputs: &[usize],
) -> sterna::Result<()> {
    let engine = compiled.engine();
    let given: Vec<Tensor<'_>> = (inputs.iter().zip(compiled.inputs()))
        // SAFETY: the caller holds tensors of these descriptions at the addresses.
        .map(|(&address, desc)| unsafe { Tensor::from_raw_parts(desc, engine, address as *mut u8) })
        .collect();
    let mut results: Vec<TensorMut<'_>> = (outputs.iter().zip(compiled.outputs()))
        // SAFETY: as above; the caller has made the results, which nobody else sees yet.
        .map(|(&address, desc)| unsafe { TensorMut::from_raw_parts(desc, engine, address as *mut u8) })
        .collect();
    compiled.execute(&Stream::new(engine), &given, &mut results)
}

/// A number that tells memories apart by words from places spread over them, given as pairs of an address and
/// a count of bytes.
///
/// As [`execute_at`], it is called on tensors that the package holds.
pub(crate) fn sampled(spans: &[(usize, usize)]) -> u64 {
    const PLACES: usize = 16;
    let mut sum = 0u64;
    for &(address, bytes) in spans {
        let words = bytes / size_of::<u64>();
        for place in 0..PLACES.min(words) {
            let word = place * (words - 1) / (PLACES - 1).max(1);
            let source = address.wrapping_add(word * size_of::<u64>()) as *const u64;
            // SAFETY: the word lies within the memory, which the caller holds.
            let found = unsafe { source.read_unaligned() };
            sum = (sum.rotate_left(5) ^ found).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }
    sum
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
