//! Tensors: descriptions with memory.
#![allow(unsafe_code, reason = "tensors stand for memory of a type known only at run time")]

use std::marker::PhantomData;
use std::slice;
use std::sync::Weak;

use super::engine::{Allocation, Engine};
use super::scratch_pool::{ResultPool, ScratchPool};
use crate::error::{Error, Result, TensorFault};
use crate::graph::logical_tensor::LogicalTensor;
use crate::types::dtype::{DataType, Element, InputElement};
use crate::types::id::TensorId;

/// A tensor that an execution reads: a description, and a borrow of its elements.
///
/// The constructor checks the type and the length of the memory and copies nothing, not even the description.
///
/// ```
/// use sterna::{DataType, Engine, LogicalTensor, Tensor};
/// let engine = Engine::new();
/// let desc = LogicalTensor::strided(0, DataType::F32, &[2, 2])?;
/// let values = [1.0f32, 2.0, 3.0, 4.0];
/// let tensor = Tensor::new(&desc, &engine, &values)?;
/// assert_eq!(tensor.desc().id(), 0);
/// assert!(Tensor::new(&desc, &engine, &values[1..]).is_err());
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Tensor<'a> {
    desc: &'a LogicalTensor,
    engine: Option<&'a Engine>,
    memory: Memory,
}

#[derive(Debug, Clone, Copy)]
enum Memory {
    Address(*const u8),
    /// The value of a host scalar, its bytes first.
    Scalar([u8; 8]),
}

impl<'a> Tensor<'a> {
    /// A tensor on the elements of a slice.
    ///
    /// # Errors
    ///
    /// [`Error::Tensor`] if the slice has another type, is shorter than the [span](LogicalTensor::span) of
    /// the description, if dims or strides are unknown, and for host scalars.
    pub fn new<T: InputElement>(
        desc: &'a LogicalTensor,
        engine: &'a Engine,
        elements: &'a [T],
    ) -> Result<Self> {
        check_elements(desc, T::DATA_TYPE, elements.len())?;
        Ok(Self { desc, engine: Some(engine), memory: Memory::Address(elements.as_ptr().cast()) })
    }

    /// A host scalar with a value.
    ///
    /// # Errors
    ///
    /// [`Error::Tensor`] if the description is not that of a host scalar, or has another type.
    pub fn scalar<T: Element>(desc: &'a LogicalTensor, value: T) -> Result<Self> {
        if !desc.is_host_scalar() {
            return fault(
                desc,
                TensorFault::Property { property: desc.property(), hint: "use `Tensor::new`" },
            );
        }
        check_type(desc, T::DATA_TYPE)?;
        let mut bytes = [0; 8];
        // SAFETY: `T` is an `Element`: it has no padding, so all its bytes can be read.
        let value = unsafe { slice::from_raw_parts((&raw const value).cast::<u8>(), size_of::<T>()) };
        bytes[..value.len()].copy_from_slice(value);
        Ok(Self { desc, engine: None, memory: Memory::Scalar(bytes) })
    }

    /// A tensor at an address, which may be null; an execution refuses a null address if it needs memory.
    ///
    /// # Safety
    ///
    /// Unless `address` is null, the following holds for `'a`. The memory from `address` up to the
    /// [span](LogicalTensor::span) of `desc` is initialised and readable from any thread. While an execution
    /// that is given the tensor runs, nobody writes to that memory, except that execution through an output
    /// in place of this tensor. `desc` has the type of the elements there.
    #[must_use]
    pub unsafe fn from_raw_parts(desc: &'a LogicalTensor, engine: &'a Engine, address: *const u8) -> Self {
        Self { desc, engine: Some(engine), memory: Memory::Address(address) }
    }

    /// A host scalar with the bytes at an address.
    ///
    /// # Errors
    ///
    /// [`Error::Tensor`] if the description is not that of a host scalar.
    ///
    /// # Safety
    ///
    /// An element of the type of `desc` can be read at `address`.
    pub unsafe fn scalar_from_raw(desc: &'a LogicalTensor, address: *const u8) -> Result<Self> {
        // SAFETY: as the caller promises; each arm reads one element of the type.
        unsafe {
            match desc.data_type() {
                DataType::F32 => Self::scalar(desc, address.cast::<f32>().read_unaligned()),
                DataType::S32 => Self::scalar(desc, address.cast::<i32>().read_unaligned()),
                _ => Self::scalar(desc, address.cast::<i64>().read_unaligned()),
            }
        }
    }

    /// The description.
    #[must_use]
    pub fn desc(&self) -> &'a LogicalTensor {
        self.desc
    }

    /// The engine; host scalars have none.
    #[must_use]
    pub fn engine(&self) -> Option<&'a Engine> {
        self.engine
    }

    /// Address of the first element.
    pub(crate) fn address(&self) -> *const u8 {
        match &self.memory {
            Memory::Address(address) => *address,
            Memory::Scalar(bytes) => bytes.as_ptr(),
        }
    }

    /// The bytes from the first to the last element; empty if there is no memory or the description does not
    /// tell its length.
    pub(crate) fn bytes(&self) -> &[u8] {
        let size = span_bytes(self.desc).unwrap_or(0);
        if size == 0 || self.address().is_null() {
            return &[];
        }
        // SAFETY: the constructors checked, or their caller promised, that this many bytes can be read.
        // `bool`s and other input elements have no padding.
        unsafe { slice::from_raw_parts(self.address(), size) }
    }
}

// SAFETY: a tensor stands for a `&[T]` of elements, which are `Send` and `Sync`.
unsafe impl Send for Tensor<'_> {}
// SAFETY: as above.
unsafe impl Sync for Tensor<'_> {}

/// A tensor that an execution writes: a description, and a unique borrow of its elements.
///
/// ```
/// use sterna::{DataType, Engine, LogicalTensor, TensorMut};
/// let engine = Engine::new();
/// let desc = LogicalTensor::strided(3, DataType::S64, &[4])?;
/// let mut elements = [0i64; 4];
/// let tensor = TensorMut::new(&desc, &engine, &mut elements)?;
/// assert_eq!(tensor.desc().id(), 3);
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug)]
pub struct TensorMut<'a> {
    desc: &'a LogicalTensor,
    engine: &'a Engine,
    address: *mut u8,
    in_place_of: Option<TensorId>,
    elements: PhantomData<&'a mut [u8]>,
}

impl<'a> TensorMut<'a> {
    /// A tensor on the elements of a slice.
    ///
    /// # Errors
    ///
    /// As [`Tensor::new`].
    pub fn new<T: Element>(
        desc: &'a LogicalTensor,
        engine: &'a Engine,
        elements: &'a mut [T],
    ) -> Result<Self> {
        check_elements(desc, T::DATA_TYPE, elements.len())?;
        // SAFETY: the slice is borrowed for `'a`, is long enough for the span, and every `Element` may be
        // written with any bits.
        Ok(unsafe { Self::from_raw_parts(desc, engine, elements.as_mut_ptr().cast()) })
    }

    /// A tensor at an address, which may be null; an execution refuses a null address if it needs memory.
    ///
    /// # Safety
    ///
    /// Unless `address` is null, the following holds for `'a`. The memory from `address` up to the
    /// [span](LogicalTensor::span) of `desc` is writable from any thread. While an execution that is given
    /// the tensor runs, nobody else uses that memory; but an input of that execution may have the same
    /// address if `in_place_pairs` names the two as a pair.
    #[must_use]
    pub unsafe fn from_raw_parts(desc: &'a LogicalTensor, engine: &'a Engine, address: *mut u8) -> Self {
        Self { desc, engine, address, in_place_of: None, elements: PhantomData }
    }

    /// The same tensor, which also holds the values of an input: the execution reads that input here, and the
    /// caller need not give it among the inputs. `CompiledPartition::in_place_pairs` names the possible
    /// pairs.
    #[must_use]
    pub fn in_place_of(self, input: impl Into<TensorId>) -> Self {
        Self { in_place_of: Some(input.into()), ..self }
    }

    /// The description.
    #[must_use]
    pub fn desc(&self) -> &'a LogicalTensor {
        self.desc
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &'a Engine {
        self.engine
    }

    /// The input whose values the tensor holds, if it is marked.
    pub(crate) fn replaces(&self) -> Option<TensorId> {
        self.in_place_of
    }

    /// Address of the first element.
    pub(crate) fn address(&self) -> *mut u8 {
        self.address
    }
}

// SAFETY: a tensor stands for a `&mut [T]` of elements, which are `Send` and `Sync`.
unsafe impl Send for TensorMut<'_> {}
// SAFETY: as above.
unsafe impl Sync for TensorMut<'_> {}

/// A tensor with its own memory, from the allocator of its engine, aligned to 64 bytes and zero at first.
///
/// ```
/// use sterna::{DataType, Engine, LogicalTensor, TensorBuf};
/// let engine = Engine::new();
/// let desc = LogicalTensor::strided(0, DataType::U8, &[3])?;
/// let mut tensor = TensorBuf::zeroed(desc, &engine)?;
/// tensor.as_mut_slice::<u8>()?[1] = 7;
/// assert_eq!(tensor.as_slice::<u8>()?, [0, 7, 0]);
/// # Ok::<(), sterna::Error>(())
/// ```
pub struct TensorBuf {
    desc: LogicalTensor,
    engine: Engine,
    memory: Allocation,
    /// The pool that takes the memory back.
    home: Weak<ResultPool>,
}

impl Drop for TensorBuf {
    fn drop(&mut self) {
        if let (Some(home), Ok(nothing)) = (self.home.upgrade(), self.engine.allocate(0)) {
            home.put(std::mem::replace(&mut self.memory, nothing));
        }
    }
}

impl TensorBuf {
    /// A tensor of zeros.
    ///
    /// # Errors
    ///
    /// [`Error::Tensor`] if dims or strides are unknown, if the type is neither one of whole bytes nor an
    /// integer of four bits, and for host scalars; [`Error::OutOfMemory`] if the allocator fails.
    pub fn zeroed(desc: LogicalTensor, engine: &Engine) -> Result<Self> {
        check_elements(&desc, desc.data_type(), usize::MAX)?;
        let size = span_bytes(&desc).map_or(0, |span| span.max(desc.memory_size()));
        let memory = engine.allocate(size)?;
        // SAFETY: the allocation has this many bytes.
        unsafe { memory.as_ptr().write_bytes(0, memory.size()) };
        Ok(Self { desc, engine: engine.clone(), memory, home: Weak::new() })
    }

    /// A tensor in memory of a pool that nobody has written; an execution writes all of its elements.
    ///
    /// # Errors
    ///
    /// As [`zeroed`](Self::zeroed).
    ///
    /// # Safety
    ///
    /// Nothing reads the tensor before all bytes that its description spans are written.
    pub(super) unsafe fn unwritten(desc: LogicalTensor, engine: &Engine, pool: &ScratchPool) -> Result<Self> {
        check_elements(&desc, desc.data_type(), usize::MAX)?;
        let size = span_bytes(&desc).map_or(0, |span| span.max(desc.memory_size()));
        let (memory, home) = pool.take_result(engine, size)?;
        Ok(Self { desc, engine: engine.clone(), memory, home })
    }

    /// Address of the first element.
    pub(super) fn address(&self) -> *mut u8 {
        self.memory.as_ptr()
    }

    /// The description.
    #[must_use]
    pub fn desc(&self) -> &LogicalTensor {
        &self.desc
    }

    /// The tensor as an input.
    #[must_use]
    pub fn as_tensor(&self) -> Tensor<'_> {
        // SAFETY: the memory was initialised when it was allocated, and the borrow keeps writers away.
        unsafe { Tensor::from_raw_parts(&self.desc, &self.engine, self.memory.as_ptr()) }
    }

    /// The tensor as an output.
    pub fn as_tensor_mut(&mut self) -> TensorMut<'_> {
        // SAFETY: the memory belongs to this tensor, which is uniquely borrowed.
        unsafe { TensorMut::from_raw_parts(&self.desc, &self.engine, self.memory.as_ptr()) }
    }

    /// The elements in the order of memory, from the first to the last.
    ///
    /// # Errors
    ///
    /// [`TensorFault::ElementType`] if `T` is another type.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        check_type(&self.desc, T::DATA_TYPE)?;
        // SAFETY: the memory is aligned to 64, was initialised when it was allocated, and holds this many
        // elements of a type whose bit patterns are all valid.
        Ok(unsafe { slice::from_raw_parts(self.memory.as_ptr().cast(), self.span()) })
    }

    /// The elements in the order of memory, from the first to the last.
    ///
    /// # Errors
    ///
    /// As [`as_slice`](Self::as_slice).
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        check_type(&self.desc, T::DATA_TYPE)?;
        // SAFETY: as in `as_slice`; the tensor is uniquely borrowed.
        Ok(unsafe { slice::from_raw_parts_mut(self.memory.as_ptr().cast(), self.span()) })
    }

    /// The bytes of the elements in the order of memory, from the first to the last.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: as in `as_slice`, for the type `u8`.
        unsafe { slice::from_raw_parts(self.memory.as_ptr(), span_bytes(&self.desc).unwrap_or(0)) }
    }

    /// The bytes of the elements in the order of memory, from the first to the last.
    pub fn as_mut_bytes(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_mut_slice`, for the type `u8`; every bit pattern of an element is valid.
        unsafe { slice::from_raw_parts_mut(self.memory.as_ptr(), span_bytes(&self.desc).unwrap_or(0)) }
    }

    fn span(&self) -> usize {
        self.desc.span().unwrap_or(0)
    }
}

impl std::fmt::Debug for TensorBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TensorBuf").field("desc", &self.desc).finish_non_exhaustive()
    }
}

fn fault<T>(desc: &LogicalTensor, fault: TensorFault) -> Result<T> {
    Err(Error::Tensor { id: desc.id(), fault })
}

fn check_type(desc: &LogicalTensor, given: DataType) -> Result<()> {
    let expected = desc.data_type();
    if expected == given { Ok(()) } else { fault(desc, TensorFault::ElementType { expected, given }) }
}

/// Checks that a number of elements of a type is memory for a tensor.
fn check_elements(desc: &LogicalTensor, data_type: DataType, given: usize) -> Result<()> {
    check_type(desc, data_type)?;
    if desc.is_host_scalar() {
        return fault(
            desc,
            TensorFault::Property { property: desc.property(), hint: "use `Tensor::scalar`" },
        );
    }
    let is_integer_of_4_bits = matches!(data_type, DataType::S4 | DataType::U4);
    if data_type.size().is_none() && !is_integer_of_4_bits {
        return fault(desc, TensorFault::NoElements(data_type));
    }
    match desc.span() {
        None => fault(desc, TensorFault::NotConcrete),
        Some(needed) if needed > given => fault(desc, TensorFault::TooShort { needed, given }),
        Some(_) => Ok(()),
    }
}

/// The bytes from the first to the last element; `None` if dims or strides are unknown. Elements of four bits
/// lie two in a byte.
fn span_bytes(desc: &LogicalTensor) -> Option<usize> {
    match desc.data_type().size() {
        Some(size) => Some(desc.span()? * size),
        None => Some((desc.span()? * desc.data_type().bits()).div_ceil(8)),
    }
}
