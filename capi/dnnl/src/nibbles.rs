//! Memory of 4-bit integers, two to a byte, the first in the low half: read into bytes, and written from
//! them.

use sterna::{DataType, LogicalTensor};

/// The type of a byte for each integer of a type of 4 bits; `None` for other types.
pub(crate) fn in_bytes(data_type: DataType) -> Option<DataType> {
    match data_type {
        DataType::S4 => Some(DataType::S8),
        DataType::U4 => Some(DataType::U8),
        _ => None,
    }
}

/// The integers of a tensor, a byte each, in row-major order.
///
/// # Safety
///
/// All elements of the tensor lie behind `first`, and nobody writes to them until the call returns.
pub(crate) unsafe fn unpacked(tensor: &LogicalTensor, first: *const u8) -> Vec<u8> {
    let mut integers = Vec::with_capacity(tensor.element_count().unwrap_or(0));
    let is_signed = tensor.data_type() == DataType::S4;
    each_place(tensor, |place| {
        // SAFETY: the byte holds an element of the tensor, and the caller promises those.
        let byte = unsafe { *first.add(place / 2) };
        let integer = if place % 2 == 0 { byte & 0xf } else { byte >> 4 };
        integers.push(if is_signed && integer > 7 { integer | 0xf0 } else { integer });
    });
    integers
}

/// Writes integers, a byte each in row-major order, to the elements of a tensor; those out of range become
/// the nearest in it.
///
/// # Safety
///
/// All elements of the tensor lie behind `first`, and nobody else uses them until the call returns.
pub(crate) unsafe fn pack(integers: &[u8], tensor: &LogicalTensor, first: *mut u8) {
    let is_signed = tensor.data_type() == DataType::S4;
    let mut integers = integers.iter();
    each_place(tensor, |place| {
        let Some(&integer) = integers.next() else { return };
        let integer =
            if is_signed { integer.cast_signed().clamp(-8, 7) as u8 & 0xf } else { integer.min(15) };
        // SAFETY: the byte holds an element of the tensor, and the caller promises those.
        let byte = unsafe { &mut *first.add(place / 2) };
        *byte = if place % 2 == 0 { *byte & 0xf0 | integer } else { *byte & 0xf | integer << 4 };
    });
}

/// Calls a function with the place of each element in memory, in row-major order.
fn each_place(tensor: &LogicalTensor, mut visit: impl FnMut(usize)) {
    let (Some(dims), Some(strides)) = (tensor.dims(), tensor.strides()) else { return };
    if dims.contains(&0) {
        return;
    }
    let (mut index, mut place) = (vec![0; dims.len()], 0);
    loop {
        visit(place as usize);
        let mut axis = dims.len();
        loop {
            let Some(before) = axis.checked_sub(1) else { return };
            axis = before;
            index[axis] += 1;
            place += strides[axis];
            if index[axis] < dims[axis] {
                break;
            }
            place -= strides[axis] * dims[axis];
            index[axis] = 0;
        }
    }
}
