//! Tensors: descriptions with memory.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

use smallvec::SmallVec;

use crate::allocator::Block;
use crate::engine::{self, Engine, Shared};
use crate::ffi::{Fault, ffi_guard, require};
use crate::logical_tensor::LogicalTensor;
use crate::status::Status;

/// The handle that requests memory from the library: `STERNA_MEMORY_ALLOCATE`.
const ALLOCATE: usize = usize::MAX;

/// A description together with memory: the caller's, or memory that the tensor owns, from the allocator of
/// its engine.
///
/// Executions only read it, so any number of threads may execute with it at once;
/// `sterna_tensor_set_data_handle` and `sterna_tensor_destroy` need sole access. It keeps the parts of its
/// engine that it needs.
pub struct Tensor {
    desc: sterna::LogicalTensor,
    memory: Memory,
}

enum Memory {
    At {
        engine: Shared,
        address: *mut u8,
        /// Nobody may write there.
        is_const: bool,
        /// The memory at the address, if it is not the caller's.
        _own: Option<Own>,
    },
    /// The value of a host scalar, its bytes first.
    Scalar([u8; 8]),
}

impl Memory {
    fn new(desc: &sterna::LogicalTensor, engine: Shared, handle: *mut c_void) -> Result<Self, Fault> {
        if handle.addr() != ALLOCATE {
            return Ok(Self::At { engine, address: handle.cast(), is_const: false, _own: None });
        }
        let mut own = Own::zeroed(desc, &engine)?;
        Ok(Self::At { engine, address: own.address(), is_const: false, _own: Some(own) })
    }
}

/// Memory that a tensor owns.
enum Own {
    /// In a box, as most tensors own none.
    System(Box<sterna::TensorBuf>),
    Callbacks(Block),
}

impl Own {
    fn zeroed(desc: &sterna::LogicalTensor, engine: &Engine) -> Result<Self, Fault> {
        let element = desc.data_type().size().unwrap_or(0);
        // A description with unknown dims or strides has no size; the branch for memory of the system refuses
        // it.
        let size = desc.span().map_or(0, |span| (span * element).max(desc.memory_size()));
        match engine.callbacks() {
            Some(callbacks) if element > 0 && size > 0 => {
                Ok(Self::Callbacks(Block::zeroed(callbacks, size, element)?))
            }
            _ => Ok(Self::System(Box::new(sterna::TensorBuf::zeroed(desc.clone(), engine.core())?))),
        }
    }

    fn address(&mut self) -> *mut u8 {
        match self {
            Self::System(tensor) => tensor.as_mut_bytes().as_mut_ptr(),
            Self::Callbacks(block) => block.as_ptr(),
        }
    }
}

impl Tensor {
    /// The description.
    pub fn desc(&self) -> &sterna::LogicalTensor {
        &self.desc
    }

    fn engine(&self) -> Option<&Shared> {
        match &self.memory {
            Memory::At { engine, .. } => Some(engine),
            Memory::Scalar(_) => None,
        }
    }

    /// True if the tensor belongs to an engine.
    pub(crate) fn is_of(&self, engine: &sterna::Engine) -> bool {
        self.engine().is_some_and(|own| own.core().is_same(engine))
    }

    /// A tensor on the caller's memory, or on memory of its own.
    pub fn on(desc: sterna::LogicalTensor, engine: Shared, handle: *mut c_void) -> Result<Box<Self>, Fault> {
        if desc.is_host_scalar() {
            let id = desc.id();
            return Err(Fault::invalid_arguments(format!(
                "tensor {id} is a host scalar; use `tensor_create_scalar`"
            )));
        }
        let memory = Memory::new(&desc, engine, handle)?;
        Ok(Box::new(Self { desc, memory }))
    }

    /// A tensor of the library, with its memory.
    #[cfg(feature = "session")]
    pub(crate) fn owning(tensor: sterna::TensorBuf, engine: Shared) -> Box<Self> {
        let desc = tensor.desc().clone();
        let mut own = Own::System(Box::new(tensor));
        let address = own.address();
        Box::new(Self { desc, memory: Memory::At { engine, address, is_const: false, _own: Some(own) } })
    }

    /// True if the memory is constant.
    pub(crate) fn is_const(&self) -> bool {
        matches!(self.memory, Memory::At { is_const: true, .. })
    }

    /// The address of the memory; null for a host scalar, and without memory.
    pub fn address(&self) -> *mut u8 {
        match &self.memory {
            Memory::At { address, .. } => *address,
            Memory::Scalar(_) => ptr::null_mut(),
        }
    }

    /// Adds the tensor to those that an execution reads.
    ///
    /// # Safety
    ///
    /// The caller's memory is as `sterna_compiled_partition_execute` requires, as long as the result is used.
    // Built in place: a copy would read its halves before they are written.
    #[inline(always)]
    pub(crate) unsafe fn add_to_inputs<'a>(&'a self, inputs: &mut Inputs<'a>) -> Result<(), Fault> {
        // SAFETY: as the caller promises; a scalar has its bytes.
        unsafe {
            match &self.memory {
                Memory::At { engine, address, .. } => {
                    inputs.push(sterna::Tensor::from_raw_parts(&self.desc, engine.core(), *address));
                }
                Memory::Scalar(bytes) => {
                    inputs.push(sterna::Tensor::scalar_from_raw(&self.desc, bytes.as_ptr())?);
                }
            }
        }
        Ok(())
    }

    /// Adds the tensor to those that an execution writes.
    ///
    /// # Safety
    ///
    /// As for [`add_to_inputs`](Self::add_to_inputs).
    #[inline(always)]
    pub(crate) unsafe fn add_to_outputs<'a>(&'a self, outputs: &mut Outputs<'a>) -> Result<(), Fault> {
        let Memory::At { engine, address, is_const, .. } = &self.memory else {
            return Err(Fault::invalid_arguments("an output is a host scalar"));
        };
        if *is_const {
            #[cold]
            fn refuse(id: sterna::TensorId) -> Fault {
                Fault::invalid_arguments(format!(
                    "output tensor {id} is made on constant memory; use `tensor_create`"
                ))
            }
            return Err(refuse(self.desc.id()));
        }
        // SAFETY: as the caller promises; memory of the tensor's own is reached through this address alone.
        outputs.push(unsafe { sterna::TensorMut::from_raw_parts(&self.desc, engine.core(), *address) });
        Ok(())
    }
}

/// The inputs of an execution; few tensors need no heap.
pub(crate) type Inputs<'a> = SmallVec<[sterna::Tensor<'a>; 8]>;

/// The outputs of an execution.
pub(crate) type Outputs<'a> = SmallVec<[sterna::TensorMut<'a>; 4]>;

/// Makes a tensor on the caller's memory, or on memory that the tensor owns if the handle is
/// `STERNA_MEMORY_ALLOCATE`. Owned memory comes from the allocator of the engine, is zero at first, and is
/// aligned to 64 bytes if the allocator obeys the alignment. The handle may be null at first; an execution
/// needs memory unless the tensor is empty.
///
/// The caller's memory must stay at its address while an execution uses it. A host scalar is made by
/// `sterna_tensor_create_scalar`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_tensor_create(
    tensor: Option<&mut MaybeUninit<Box<Tensor>>>,
    logical_tensor: Option<&LogicalTensor>,
    engine: *mut Engine,
    handle: *mut c_void,
) -> Status {
    ffi_guard(|| {
        let tensor = require(tensor, "tensor")?;
        let desc = require(logical_tensor, "logical_tensor")?.to_core()?;
        // SAFETY: the caller promises that the engine, unless null, is alive.
        let engine = unsafe { engine::share(engine) }?;
        tensor.write(Tensor::on(desc, engine, handle)?);
        Ok(())
    })
}

/// Makes a tensor on memory that the caller lets nobody write to, which serves as an input: an execution
/// refuses it as an output. The handle may be null at first, and is not `STERNA_MEMORY_ALLOCATE`. Otherwise
/// as `sterna_tensor_create`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_tensor_create_const(
    tensor: Option<&mut MaybeUninit<Box<Tensor>>>,
    logical_tensor: Option<&LogicalTensor>,
    engine: *mut Engine,
    handle: *const c_void,
) -> Status {
    ffi_guard(|| {
        let tensor = require(tensor, "tensor")?;
        let desc = require(logical_tensor, "logical_tensor")?.to_core()?;
        // SAFETY: the caller promises that the engine, unless null, is alive.
        let engine = unsafe { engine::share(engine) }?;
        if handle.addr() == ALLOCATE {
            return Err(Fault::invalid_arguments("memory of the tensor's own is not constant"));
        }
        let mut made = Tensor::on(desc, engine, handle.cast_mut())?;
        if let Memory::At { is_const, .. } = &mut made.memory {
            *is_const = true;
        }
        tensor.write(made);
        Ok(())
    })
}

/// Makes a host scalar; the value at the address is copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_tensor_create_scalar(
    tensor: Option<&mut MaybeUninit<Box<Tensor>>>,
    logical_tensor: Option<&LogicalTensor>,
    value: *const c_void,
) -> Status {
    ffi_guard(|| {
        let tensor = require(tensor, "tensor")?;
        let desc = require(logical_tensor, "logical_tensor")?.to_core()?;
        let value = require(ptr::NonNull::new(value.cast::<u8>().cast_mut()), "value")?;
        let size = desc.data_type().size().filter(|_| desc.is_host_scalar());
        let (Some(size), true) = (size, value.addr().get() != ALLOCATE) else {
            let id = desc.id();
            return Err(Fault::invalid_arguments(format!("tensor {id} is no host scalar with a value")));
        };
        let mut bytes = [0; 8];
        // SAFETY: the caller promises a value of the type; those of host scalars have 4 or 8 bytes.
        unsafe { ptr::copy_nonoverlapping(value.as_ptr(), bytes.as_mut_ptr(), size.min(bytes.len())) };
        tensor.write(Box::new(Tensor { desc, memory: Memory::Scalar(bytes) }));
        Ok(())
    })
}

/// Destroys a tensor, and the memory that it owns. Null is fine; destroying one twice is an error of the
/// caller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_tensor_destroy(tensor: Option<Box<Tensor>>) -> Status {
    ffi_guard(|| {
        drop(tensor);
        Ok(())
    })
}

/// Reads the address of the memory of a tensor; null for a host scalar.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_tensor_get_data_handle(
    tensor: Option<&Tensor>,
    handle: Option<&mut MaybeUninit<*mut c_void>>,
) -> Status {
    ffi_guard(|| {
        let tensor = require(tensor, "tensor")?;
        require(handle, "handle")?.write(tensor.address().cast());
        Ok(())
    })
}

/// Gives a tensor other memory: the caller's, or with `STERNA_MEMORY_ALLOCATE` memory that the tensor owns.
/// Memory that it owned before is freed. A host scalar takes no memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_tensor_set_data_handle(
    tensor: Option<&mut Tensor>,
    handle: *mut c_void,
) -> Status {
    ffi_guard(|| {
        let tensor = require(tensor, "tensor")?;
        let engine = tensor.engine().cloned();
        let engine =
            engine.ok_or_else(|| Fault::invalid_arguments("a host scalar has no memory to replace"))?;
        // A client may set the very address that it has read.
        if handle.cast() != tensor.address() {
            tensor.memory = Memory::new(&tensor.desc, engine, handle)?;
        }
        Ok(())
    })
}

/// Reads the engine of a tensor; null for a host scalar. The tensor owns the engine: the caller does not
/// destroy it, and it is valid as long as the tensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_tensor_get_engine(
    tensor: Option<&Tensor>,
    engine: Option<&mut MaybeUninit<*mut Engine>>,
) -> Status {
    ffi_guard(|| {
        let tensor = require(tensor, "tensor")?;
        require(engine, "engine")?.write(tensor.engine().map_or(ptr::null_mut(), engine::handle));
        Ok(())
    })
}

/// Reads the description of a tensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_tensor_get_logical_tensor(
    tensor: Option<&Tensor>,
    logical_tensor: Option<&mut MaybeUninit<LogicalTensor>>,
) -> Status {
    ffi_guard(|| {
        let tensor = require(tensor, "tensor")?;
        require(logical_tensor, "logical_tensor")?.write(LogicalTensor::from_core(&tensor.desc));
        Ok(())
    })
}
