//! Tensors as plain data.

use std::ops::Range;
use std::sync::Arc;

use super::element::{elements, elements_mut, nibble, set_nibble};
use super::odometer::{CHUNK, Odometer, in_pieces};
use crate::error::{Error, Result, TensorFault};
use crate::execute::tensor::{Tensor, TensorBuf};
use crate::graph::logical_tensor::LogicalTensor;
use crate::types::dtype::{DataType, Element, InputElement, bytes_of, element_of};
use crate::types::shape::{self, Dims};

/// A tensor as plain data: its elements dense, in row-major order, in the byte order of the machine.
///
/// Elements of four bits lie two in a byte, the first in the low half; what is left of the last byte is 0.
/// Values are equal where type, dims and all bits are. A clone shares the elements.
///
/// ```
/// use sterna::DataType;
/// use sterna::reference::Value;
/// let three = Value::new(DataType::U4, &[3], vec![0x21, 0xf3])?; // 1, 2 and 3
/// assert_eq!(three.bytes(), [0x21, 0x03]);
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    data_type: DataType,
    dims: Dims,
    bytes: Arc<Vec<u8>>,
}

impl Value {
    /// A value of the bytes of its elements.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] for the type `undef`, for dims that no tensor has or that are unknown, and for bytes
    /// whose number does not fit type and dims.
    pub fn new(data_type: DataType, dims: &[i64], mut bytes: Vec<u8>) -> Result<Self> {
        let (needed, given) = (byte_count(data_type, dims)?, bytes.len());
        if given != needed {
            return Err(Error::Value(TensorFault::ByteCount { needed, given }));
        }
        if data_type.bits() == 4 && count(dims) % 2 == 1 {
            bytes[needed - 1] &= 0xf;
        }
        Ok(Self { data_type, dims: dims.into(), bytes: Arc::new(bytes) })
    }

    /// A value of elements in row-major order.
    ///
    /// # Errors
    ///
    /// As [`Value::new`].
    pub fn from_slice<T: InputElement>(dims: &[i64], elements: &[T]) -> Result<Self> {
        let given = bytes_of(elements);
        let mut bytes = reserve(given.len())?;
        bytes.extend_from_slice(given);
        Self::new(T::DATA_TYPE, dims, bytes)
    }

    /// Gathers the elements of a tensor, whatever its strides.
    ///
    /// # Errors
    ///
    /// [`Error::Tensor`] where dims or strides are not known or there is no memory; [`Error::OutOfMemory`].
    pub fn read(tensor: &Tensor<'_>) -> Result<Self> {
        let desc = tensor.desc();
        let fault = |fault| Error::Tensor { id: desc.id(), fault };
        let dims = desc.dims().ok_or_else(|| fault(TensorFault::NotConcrete))?;
        let strides = desc.strides().ok_or_else(|| fault(TensorFault::NotConcrete))?;
        let bits = desc.data_type().bits();
        if bits == 0 {
            return Err(fault(TensorFault::NoElements(desc.data_type())));
        }
        let bytes = tensor.bytes();
        let (needed, given) = (desc.span().unwrap_or(0), bytes.len() * 8 / bits);
        if given < needed {
            return Err(fault(TensorFault::TooShort { needed, given }));
        }
        let odometer = Odometer::of(dims, strides);
        if bits == 4 {
            let mut packed = zeroed(byte_count(desc.data_type(), dims)?)?;
            let mut at = 0;
            odometer.each_run(0..count(dims), |first, stride, length| {
                for place in (0..length).map(|i| first + i * stride) {
                    set_nibble(&mut packed, at, nibble(bytes, place));
                    at += 1;
                }
            });
            let bytes = Arc::new(packed);
            return Ok(Self { data_type: desc.data_type(), dims: dims.into(), bytes });
        }
        Self::reordered(desc.data_type(), dims, &odometer, bytes)
    }

    /// Scatters the elements into a tensor, whatever its strides; the bytes between its elements stay as they
    /// are.
    ///
    /// # Errors
    ///
    /// [`Error::Tensor`] where the tensor has another type or other dims.
    pub fn write(&self, tensor: &mut TensorBuf) -> Result<()> {
        let desc = tensor.desc().clone();
        let fault = |fault| Error::Tensor { id: desc.id(), fault };
        if desc.data_type() != self.data_type {
            let (expected, given) = (desc.data_type(), self.data_type);
            return Err(fault(TensorFault::ElementType { expected, given }));
        }
        let (Some(dims), Some(strides)) = (desc.dims(), desc.strides()) else {
            return Err(fault(TensorFault::NotConcrete));
        };
        if dims != self.dims() {
            return Err(fault(TensorFault::Shape { expected: dims.into(), given: self.dims.clone() }));
        }
        let (odometer, bytes) = (Odometer::of(dims, strides), tensor.as_mut_bytes());
        let Some(size) = self.data_type.size() else {
            let mut at = 0;
            odometer.each_run(0..count(dims), |first, stride, length| {
                for place in (0..length).map(|i| first + i * stride) {
                    set_nibble(bytes, place, nibble(&self.bytes, at));
                    at += 1;
                }
            });
            return Ok(());
        };
        let mut elements = self.bytes.chunks_exact(size);
        odometer.each_run(0..count(dims), |first, stride, length| {
            for (i, element) in elements.by_ref().take(length).enumerate() {
                let place = (first + i * stride) * size;
                bytes[place..place + size].copy_from_slice(element);
            }
        });
        Ok(())
    }

    /// The type of the elements.
    #[must_use]
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// The dims.
    #[must_use]
    pub fn dims(&self) -> &[i64] {
        &self.dims
    }

    /// The bytes of the elements in row-major order.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The elements in row-major order; `None` where `T` stands for another type.
    #[must_use]
    pub fn elements<T: Element>(&self) -> Option<Vec<T>> {
        let of_this_type = <T as Element>::DATA_TYPE == self.data_type;
        of_this_type.then(|| self.bytes.chunks_exact(size_of::<T>()).filter_map(element_of).collect())
    }

    /// A value whose elements are those that an odometer visits.
    pub(super) fn reordered(
        data_type: DataType,
        dims: &[i64],
        odometer: &Odometer,
        from: &[u8],
    ) -> Result<Self> {
        Self::compute(data_type, dims, |range, into| match data_type.size() {
            Some(1) => copy::<1>(odometer, range, from, into),
            Some(2) => copy::<2>(odometer, range, from, into),
            Some(4) => copy::<4>(odometer, range, from, into),
            _ => copy::<8>(odometer, range, from, into),
        })
    }

    /// A value whose elements a function writes, some at a time: the function gets their index and bytes.
    pub(super) fn compute(
        data_type: DataType,
        dims: &[i64],
        write: impl Fn(Range<usize>, &mut [u8]) + Sync,
    ) -> Result<Self> {
        let mut bytes = zeroed(byte_count(data_type, dims)?)?;
        let size = data_type.size().unwrap_or(1);
        in_pieces(&mut bytes, CHUNK * size, |n, piece| {
            let first = n * CHUNK;
            write(first..first + piece.len() / size, piece);
        });
        Ok(Self { data_type, dims: dims.into(), bytes: Arc::new(bytes) })
    }

    /// The elements in the same order in another shape, which has as many.
    pub(super) fn reshaped(&self, dims: &[i64]) -> Self {
        Self { data_type: self.data_type, dims: dims.into(), bytes: self.bytes.clone() }
    }

    /// The value whose dim `i` is dim `order[i]` of this one.
    pub(super) fn permuted(&self, order: &[usize]) -> Result<Self> {
        let dims: Dims = order.iter().map(|&axis| self.dims[axis]).collect();
        Self::reordered(self.data_type, &dims, &Odometer::permuted(&self.dims, order), &self.bytes)
    }
}

/// Copies the elements of a range that an odometer visits.
pub(super) fn copy<const N: usize>(odometer: &Odometer, range: Range<usize>, from: &[u8], into: &mut [u8]) {
    let from = elements::<N>(from);
    odometer.read(range, elements_mut(into), |at| from[at]);
}

/// How many bytes the elements of a dense tensor have.
fn byte_count(data_type: DataType, dims: &[i64]) -> Result<usize> {
    let of_value = |error| match error {
        Error::Tensor { fault, .. } => Error::Value(fault),
        other => other,
    };
    if data_type == DataType::Undef {
        return Err(Error::Value(TensorFault::NoElements(data_type)));
    }
    let desc = LogicalTensor::any(0, data_type, dims).map_err(of_value)?;
    let elements = desc.element_count().ok_or(Error::Value(TensorFault::NotConcrete))?;
    // Half of an odd number of elements of four bits is rounded up.
    Ok(match data_type.size() {
        Some(size) => elements * size,
        None => elements.div_ceil(2),
    })
}

/// The results of an op with one output.
pub(super) fn one(result: Result<Value>) -> Result<Vec<Value>> {
    Ok(vec![result?])
}

/// The number of elements of a shape that has been checked.
pub(super) fn count(dims: &[i64]) -> usize {
    shape::element_count(dims).expect("checked when the value was made") as usize
}

/// An empty vector with room for a number of elements.
pub(super) fn reserve<T>(count: usize) -> Result<Vec<T>> {
    let mut room = Vec::new();
    let (size, align) = (count.saturating_mul(size_of::<T>()), align_of::<T>());
    room.try_reserve_exact(count).map_err(|_| Error::OutOfMemory { size, align })?;
    Ok(room)
}

/// So many zeros.
pub(super) fn zeroed<T: Clone + Default>(count: usize) -> Result<Vec<T>> {
    let mut all = reserve(count)?;
    all.resize(count, T::default());
    Ok(all)
}
