//! Memory objects: a memory descriptor with memory of an engine, or a value on the host.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use sterna_capi::engine::{self, Engine, Shared};
use sterna_capi::ffi::{Fault, array, ffi_guard, require};
use sterna_capi::status::Status;
use sterna_capi::tensor::Tensor;

use crate::memory_desc::MemoryDesc;

/// `DNNL_MEMORY_ALLOCATE`
const ALLOCATE: usize = usize::MAX;

/// The widest value of a host scalar, in bytes.
const SCALAR: usize = 8;

pub(crate) struct Memory {
    desc: MemoryDesc,
    place: Place,
}

enum Place {
    /// Bytes of an engine; the tensor owns them if the library was asked for memory.
    Engine {
        engine: Shared,
        bytes: Box<Tensor>,
    },
    Host([u8; SCALAR]),
}

impl Memory {
    fn new(desc: MemoryDesc, engine: Shared, handle: *mut c_void) -> Result<Self, Fault> {
        if desc.is_any() || desc.is_runtime() {
            return Err(Fault::invalid_arguments("memory needs known dims and a known layout"));
        }
        if desc.is_host_scalar() {
            return Err(Fault::invalid_arguments("a host scalar is made by dnnl_memory_create_host_scalar"));
        }
        let bytes = Self::bytes(&desc, &engine, handle)?;
        Ok(Self { desc, place: Place::Engine { engine, bytes } })
    }

    /// The tensor of the bytes; its type is one that allocators align well.
    fn bytes(desc: &MemoryDesc, engine: &Shared, handle: *mut c_void) -> Result<Box<Tensor>, Fault> {
        let size =
            desc.bytes().ok_or_else(|| Fault::invalid_arguments("the memory exceeds the address space"))?;
        let words = size.div_ceil(size_of::<i64>()) as i64;
        let words = sterna::LogicalTensor::strided(0, sterna::DataType::S64, &[words])?;
        Tensor::on(words, engine.clone(), handle)
    }

    pub(crate) fn desc(&self) -> &MemoryDesc {
        &self.desc
    }

    /// The address of the memory; null for a host scalar, and without memory.
    pub(crate) fn address(&self) -> *mut u8 {
        match &self.place {
            Place::Engine { bytes, .. } => bytes.address(),
            Place::Host(_) => ptr::null_mut(),
        }
    }

    /// The address of the value: of the memory, or of a host scalar.
    pub(crate) fn value(&self) -> *const u8 {
        match &self.place {
            Place::Engine { bytes, .. } => bytes.address(),
            Place::Host(value) => value.as_ptr(),
        }
    }

    fn set(&mut self, handle: *mut c_void) -> Result<(), Fault> {
        let Place::Engine { engine, bytes } = &mut self.place else {
            return Err(Fault::invalid_arguments("a host scalar has no memory to replace"));
        };
        // A client may set the very address that it has read.
        if handle.cast() != bytes.address() {
            *bytes = Self::bytes(&self.desc, engine, handle)?;
        }
        Ok(())
    }
}

type Out<'a> = Option<&'a mut MaybeUninit<Box<Memory>>>;

/// Checks that an index is that of the one buffer of a memory that is not sparse.
fn check_index(index: c_int) -> Result<(), Fault> {
    match index {
        0 => Ok(()),
        _ => Err(Fault::invalid_arguments(format!("there is one buffer, of index 0, not {index}"))),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dnnl_memory_create(
    memory: Out<'_>,
    desc: Option<&MemoryDesc>,
    engine: *mut Engine,
    handle: *mut c_void,
) -> Status {
    ffi_guard(|| {
        let (memory, desc) = (require(memory, "memory")?, require(desc, "memory_desc")?);
        // SAFETY: the caller promises that the engine, unless null, is alive.
        let engine = unsafe { engine::share(engine) }?;
        memory.write(Box::new(Memory::new(*desc, engine, handle)?));
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dnnl_memory_create_v2(
    memory: Out<'_>,
    desc: Option<&MemoryDesc>,
    engine: *mut Engine,
    count: c_int,
    handles: *const *mut c_void,
) -> Status {
    ffi_guard(|| {
        let (memory, desc) = (require(memory, "memory")?, require(desc, "memory_desc")?);
        // SAFETY: the caller promises that the engine, unless null, is alive.
        let engine = unsafe { engine::share(engine) }?;
        let count = usize::try_from(count).map_err(|_| Fault::unknown("number of handles", count))?;
        // SAFETY: the caller promises so many handles, unless the address is null.
        let [handle] = unsafe { array(handles, count, "handles") }? else {
            return Err(Fault::invalid_arguments(format!("memory has one handle, not {count}")));
        };
        memory.write(Box::new(Memory::new(*desc, engine, *handle)?));
        Ok(())
    })
}

/// The bytes of a value of the caller's.
///
/// # Safety
///
/// Unless the address is null, a value of the descriptor's type can be read there.
unsafe fn scalar(desc: &MemoryDesc, value: *const c_void) -> Result<[u8; SCALAR], Fault> {
    if !desc.is_host_scalar() {
        return Err(Fault::invalid_arguments("the memory descriptor is not of a host scalar"));
    }
    let value = require(NonNull::new(value.cast_mut()), "value")?;
    let size = desc.bytes().unwrap_or(0).min(SCALAR);
    let mut bytes = [0; SCALAR];
    // SAFETY: as the caller promises; `bytes` has room for the size.
    unsafe { ptr::copy_nonoverlapping(value.as_ptr().cast(), bytes.as_mut_ptr(), size) };
    Ok(bytes)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dnnl_memory_create_host_scalar(
    memory: Out<'_>,
    desc: Option<&MemoryDesc>,
    value: *const c_void,
) -> Status {
    ffi_guard(|| {
        let (memory, desc) = (require(memory, "memory")?, require(desc, "memory_desc")?);
        // SAFETY: as the caller promises.
        let value = unsafe { scalar(desc, value) }?;
        memory.write(Box::new(Memory { desc: *desc, place: Place::Host(value) }));
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dnnl_memory_get_host_scalar_value(
    memory: Option<&Memory>,
    value: *mut c_void,
) -> Status {
    ffi_guard(|| {
        let memory = require(memory, "memory")?;
        let to = require(NonNull::new(value), "value")?;
        let Place::Host(value) = &memory.place else {
            return Err(Fault::invalid_arguments("the memory is no host scalar"));
        };
        let size = memory.desc.bytes().unwrap_or(0).min(SCALAR);
        // SAFETY: the caller promises room for a value of the type.
        unsafe { ptr::copy_nonoverlapping(value.as_ptr(), to.as_ptr().cast(), size) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dnnl_memory_set_host_scalar_value(
    memory: Option<&mut Memory>,
    value: *const c_void,
) -> Status {
    ffi_guard(|| {
        let memory = require(memory, "memory")?;
        // SAFETY: as the caller promises.
        memory.place = Place::Host(unsafe { scalar(&memory.desc, value) }?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_memory_get_memory_desc(
    memory: Option<&Memory>,
    desc: Option<&mut MaybeUninit<*const MemoryDesc>>,
) -> Status {
    ffi_guard(|| {
        let memory = require(memory, "memory")?;
        require(desc, "memory_desc")?.write(&memory.desc);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_memory_get_engine(
    memory: Option<&Memory>,
    engine: Option<&mut MaybeUninit<*mut Engine>>,
) -> Status {
    ffi_guard(|| {
        let memory = require(memory, "memory")?;
        require(engine, "engine")?.write(match &memory.place {
            Place::Engine { engine, .. } => engine::handle(engine),
            Place::Host(_) => ptr::null_mut(),
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_memory_get_data_handle(
    memory: Option<&Memory>,
    handle: Option<&mut MaybeUninit<*mut c_void>>,
) -> Status {
    dnnl_memory_get_data_handle_v2(memory, handle, 0)
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_memory_get_data_handle_v2(
    memory: Option<&Memory>,
    handle: Option<&mut MaybeUninit<*mut c_void>>,
    index: c_int,
) -> Status {
    ffi_guard(|| {
        let (memory, handle) = (require(memory, "memory")?, require(handle, "handle")?);
        check_index(index)?;
        handle.write(memory.address().cast());
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_memory_set_data_handle(memory: Option<&mut Memory>, handle: *mut c_void) -> Status {
    dnnl_memory_set_data_handle_v2(memory, handle, 0)
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_memory_set_data_handle_v2(
    memory: Option<&mut Memory>,
    handle: *mut c_void,
    index: c_int,
) -> Status {
    ffi_guard(|| {
        let memory = require(memory, "memory")?;
        check_index(index)?;
        if handle.addr() == ALLOCATE {
            return Err(Fault::invalid_arguments("the library allocates when memory is made, not later"));
        }
        memory.set(handle)
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_memory_map_data(
    memory: Option<&Memory>,
    mapped: Option<&mut MaybeUninit<*mut c_void>>,
) -> Status {
    dnnl_memory_map_data_v2(memory, mapped, 0)
}

/// The memory of a CPU is mapped as it is.
#[unsafe(no_mangle)]
extern "C" fn dnnl_memory_map_data_v2(
    memory: Option<&Memory>,
    mapped: Option<&mut MaybeUninit<*mut c_void>>,
    index: c_int,
) -> Status {
    dnnl_memory_get_data_handle_v2(memory, mapped, index)
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_memory_unmap_data(memory: Option<&Memory>, mapped: *mut c_void) -> Status {
    dnnl_memory_unmap_data_v2(memory, mapped, 0)
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_memory_unmap_data_v2(
    memory: Option<&Memory>,
    _mapped: *mut c_void,
    index: c_int,
) -> Status {
    ffi_guard(|| {
        require(memory, "memory")?;
        check_index(index)
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_memory_destroy(memory: Option<Box<Memory>>) -> Status {
    ffi_guard(|| {
        drop(memory);
        Ok(())
    })
}
