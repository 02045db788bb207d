//! The elements and bytes of constants, and room for them.

use sterna::{DataType, LogicalTensor};

/// The number of elements; `None` if a dim is negative or the number leaves i64.
pub(crate) fn element_count(dims: &[i64]) -> Option<i64> {
    let product = |product: i64, &dim: &i64| if dim < 0 { None } else { product.checked_mul(dim) };
    match dims.contains(&0) {
        true => dims.iter().all(|&dim| dim >= 0).then_some(0),
        false => dims.iter().try_fold(1, product),
    }
}

/// The bytes of the elements of a dense tensor; `None` for a type without whole elements.
pub(crate) fn byte_count(data_type: DataType, dims: &[i64]) -> Result<Option<usize>, sterna::Error> {
    let Some(size) = data_type.size() else { return Ok(None) };
    // The description refuses what cannot be addressed.
    let desc = LogicalTensor::strided(0, data_type, dims)?;
    Ok(desc.element_count().map(|count| count * size))
}

/// The bytes that a constant takes in a file; elements of four bits lie two in a byte.
pub(crate) fn stored_bytes(data_type: DataType, dims: &[i64]) -> Result<usize, sterna::Error> {
    let desc = LogicalTensor::strided(0, data_type, dims)?;
    let bits = desc.element_count().unwrap_or(0).checked_mul(data_type.bits());
    Ok(bits.map_or(usize::MAX, |bits| bits.div_ceil(8)))
}

/// An empty list with room for so many bytes.
pub(crate) fn room(count: usize) -> Result<Vec<u8>, sterna::Error> {
    let mut room = Vec::new();
    room.try_reserve_exact(count).map_err(|_| sterna::Error::OutOfMemory { size: count, align: 1 })?;
    Ok(room)
}
