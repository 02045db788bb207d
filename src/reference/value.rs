//! Tensors as plain data.

use smallvec::SmallVec;

use crate::error::{Error, Result, TensorFault};
use crate::execute::tensor::{Tensor, TensorBuf};
use crate::graph::logical_tensor::LogicalTensor;
use crate::types::dtype::{DataType, Element, InputElement, bytes_of, element_of};
use crate::types::shape::{self, Dims};

/// A tensor as plain data: its elements dense, in row-major order, in the byte order of the machine.
///
/// Values are equal where type, dims and all bits are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    data_type: DataType,
    dims: Dims,
    bytes: Vec<u8>,
}

impl Value {
    /// A value of the bytes of its elements.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] for a type without elements of whole bytes, for dims that no tensor has or that are
    /// unknown, and for bytes that are not as many as type and dims ask for.
    pub fn new(data_type: DataType, dims: &[i64], bytes: Vec<u8>) -> Result<Self> {
        let (needed, given) = (byte_count(data_type, dims)?, bytes.len());
        if given != needed {
            return Err(Error::Value(TensorFault::ByteCount { needed, given }));
        }
        Ok(Self { data_type, dims: dims.into(), bytes })
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
        let dims = desc.known_dims().ok_or_else(|| fault(TensorFault::NotConcrete))?;
        let strides = desc.strides().ok_or_else(|| fault(TensorFault::NotConcrete))?;
        let size = desc.data_type().size().ok_or_else(|| fault(TensorFault::NoElements(desc.data_type())))?;
        let bytes = tensor.bytes();
        let (needed, given) = (desc.span().unwrap_or(0), bytes.len() / size);
        if given < needed {
            return Err(fault(TensorFault::TooShort { needed, given }));
        }
        Self::gather(desc.data_type(), dims, |at| {
            let first = offset_of(at, strides) * size;
            &bytes[first..first + size]
        })
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
        let (Some(dims), Some(strides)) = (desc.known_dims(), desc.strides()) else {
            return Err(fault(TensorFault::NotConcrete));
        };
        if dims != self.dims() {
            return Err(fault(TensorFault::Shape { expected: dims.into(), given: self.dims.clone() }));
        }
        let (size, bytes) = (self.element_size(), tensor.as_mut_bytes());
        for (n, element) in self.bytes.chunks_exact(size).enumerate() {
            let first = offset_of(&index_of(n, dims), strides) * size;
            bytes[first..first + size].copy_from_slice(element);
        }
        Ok(())
    }

    /// The type of the elements.
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// The dims.
    pub fn dims(&self) -> &[i64] {
        &self.dims
    }

    /// The bytes of the elements in row-major order.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The elements in row-major order; `None` where `T` stands for another type.
    pub fn elements<T: Element>(&self) -> Option<Vec<T>> {
        let of_this_type = <T as Element>::DATA_TYPE == self.data_type;
        of_this_type.then(|| self.bytes.chunks_exact(self.element_size()).filter_map(element_of).collect())
    }

    /// A value whose element at each index is some element's bytes.
    pub(super) fn gather<'a>(
        data_type: DataType,
        dims: &[i64],
        element: impl Fn(&[usize]) -> &'a [u8],
    ) -> Result<Self> {
        Self::compute(data_type, dims, |at, bytes| bytes.extend_from_slice(element(at)))
    }

    /// A value whose element at each index is appended by a function.
    pub(super) fn compute(
        data_type: DataType,
        dims: &[i64],
        mut append: impl FnMut(&[usize], &mut Vec<u8>),
    ) -> Result<Self> {
        let mut bytes = reserve(byte_count(data_type, dims)?)?;
        let mut index = Index::from_elem(0, dims.len());
        for _ in 0..count(dims) {
            append(&index, &mut bytes);
            advance(&mut index, dims);
        }
        Ok(Self { data_type, dims: dims.into(), bytes })
    }

    /// The elements in the same order in another shape, which has as many.
    pub(super) fn reshaped(&self, dims: &[i64]) -> Result<Self> {
        let mut bytes = reserve(self.bytes.len())?;
        bytes.extend_from_slice(&self.bytes);
        Ok(Self { data_type: self.data_type, dims: dims.into(), bytes })
    }

    /// The value whose dim `i` is dim `order[i]` of this one.
    pub(super) fn permuted(&self, order: &[usize]) -> Result<Self> {
        let dims: Dims = order.iter().map(|&axis| self.dims[axis]).collect();
        let source = |at: &[usize]| {
            let mut index = Index::from_elem(0, at.len());
            order.iter().zip(at).for_each(|(&axis, &i)| index[axis] = i);
            self.element(&index)
        };
        Self::gather(self.data_type, &dims, source)
    }

    fn element_size(&self) -> usize {
        self.data_type.bits() / 8
    }

    /// The bytes of the element at an index.
    pub(super) fn element(&self, index: &[usize]) -> &[u8] {
        let first = place_of(index, &self.dims) * self.element_size();
        &self.bytes[first..first + self.element_size()]
    }

    /// The index in this operand, whose first dim stands at dim `start` of a result.
    pub(super) fn aligned(&self, at: &[usize], start: usize) -> Index {
        aligned(at, &self.dims, start)
    }
}

/// How many bytes the elements of a dense tensor have.
fn byte_count(data_type: DataType, dims: &[i64]) -> Result<usize> {
    let of_value = |error| match error {
        Error::Tensor { fault, .. } => Error::Value(fault),
        other => other,
    };
    let size = data_type.size().ok_or(Error::Value(TensorFault::NoElements(data_type)))?;
    let desc = LogicalTensor::any(0, data_type, dims).map_err(of_value)?;
    let elements = desc.element_count().ok_or(Error::Value(TensorFault::NotConcrete))?;
    Ok(elements * size)
}

/// How many elements lie between the first element and the one at an index.
fn offset_of(index: &[usize], strides: &[i64]) -> usize {
    index.iter().zip(strides).map(|(&i, &stride)| i * stride as usize).sum()
}

/// One index a dim.
pub(super) type Index = SmallVec<[usize; 6]>;

/// The number of elements of a shape that has been checked.
pub(super) fn count(dims: &[i64]) -> usize {
    shape::element_count(dims).expect("checked when the value was made") as usize
}

/// The index of the n-th element in row-major order.
pub(super) fn index_of(mut n: usize, dims: &[i64]) -> Index {
    let mut index = Index::from_elem(0, dims.len());
    for (i, &dim) in index.iter_mut().zip(dims).rev() {
        *i = n % dim as usize;
        n /= dim as usize;
    }
    index
}

/// Takes an index to the next element in row-major order, from the last one to the first.
fn advance(index: &mut [usize], dims: &[i64]) {
    for (i, &dim) in index.iter_mut().zip(dims).rev() {
        *i += 1;
        if *i < dim as usize {
            break;
        }
        *i = 0;
    }
}

/// Which element in row-major order stands at an index.
pub(super) fn place_of(index: &[usize], dims: &[i64]) -> usize {
    index.iter().zip(dims).fold(0, |place, (&i, &dim)| place * dim as usize + i)
}

/// The index in an operand whose first dim stands at dim `start` of a result: a dim of 1 is repeated.
pub(super) fn aligned(at: &[usize], dims: &[i64], start: usize) -> Index {
    dims.iter().zip(&at[start..]).map(|(&dim, &i)| if dim == 1 { 0 } else { i }).collect()
}

/// An empty vector with room for so many.
pub(super) fn reserve<T>(count: usize) -> Result<Vec<T>> {
    let mut room = Vec::new();
    let (size, align) = (count.saturating_mul(size_of::<T>()), align_of::<T>());
    room.try_reserve_exact(count).map_err(|_| Error::OutOfMemory { size, align })?;
    Ok(room)
}
