//! Primitive descriptors and primitives. Only reorders exist.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use sterna_capi::engine::{self, Engine, Shared};
use sterna_capi::ffi::{Fault, array, ffi_guard, require, value_of};
use sterna_capi::status::Status;
use sterna_capi::stream::Stream;

use crate::attr::Attr;
use crate::memory::Memory;
use crate::memory_desc::{EMPTY, MemoryDesc};
use crate::reorder::{Reorder, arg};

/// `dnnl_reorder` of `dnnl_primitive_kind_t`
const REORDER: c_int = 1;

const LAST_IMPL_REACHED: Status = 4;
const NOT_REQUIRED: Status = 6;

#[derive(Clone)]
pub(crate) struct PrimitiveDesc {
    src: MemoryDesc,
    dst: MemoryDesc,
    engines: [Shared; 2],
    attr: Attr,
    reorder: Arc<Reorder>,
}

pub(crate) struct Primitive(PrimitiveDesc);

#[unsafe(no_mangle)]
unsafe extern "C" fn dnnl_reorder_primitive_desc_create(
    primitive_desc: Option<&mut MaybeUninit<Box<PrimitiveDesc>>>,
    src: Option<&MemoryDesc>,
    src_engine: *mut Engine,
    dst: Option<&MemoryDesc>,
    dst_engine: *mut Engine,
    attr: Option<&Attr>,
) -> Status {
    ffi_guard(|| {
        let primitive_desc = require(primitive_desc, "primitive_desc")?;
        let (src, dst) = (*require(src, "src_desc")?, *require(dst, "dst_desc")?);
        // SAFETY: the caller promises that the engines, unless null, are alive.
        let engines = unsafe { [engine::share(src_engine)?, engine::share(dst_engine)?] };
        let attr = attr.cloned().unwrap_or_default();
        let reorder = Arc::new(Reorder::compile(&src, &dst, engines[1].core(), &attr)?);
        primitive_desc.write(Box::new(PrimitiveDesc { src, dst, engines, attr, reorder }));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_desc_next_impl(primitive_desc: Option<&PrimitiveDesc>) -> Status {
    ffi_guard(|| {
        require(primitive_desc, "primitive_desc")?;
        Err(Fault::of_status(LAST_IMPL_REACHED, "there is one implementation"))
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_desc_clone(
    primitive_desc: Option<&mut MaybeUninit<Box<PrimitiveDesc>>>,
    existing: Option<&PrimitiveDesc>,
) -> Status {
    ffi_guard(|| {
        let to = require(primitive_desc, "primitive_desc")?;
        to.write(Box::new(require(existing, "existing_primitive_desc")?.clone()));
        Ok(())
    })
}

/// The attributes belong to the descriptor.
#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_desc_get_attr(
    primitive_desc: Option<&PrimitiveDesc>,
    attr: Option<&mut MaybeUninit<*const Attr>>,
) -> Status {
    ffi_guard(|| {
        let primitive_desc = require(primitive_desc, "primitive_desc")?;
        require(attr, "attr")?.write(&primitive_desc.attr);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_desc_destroy(primitive_desc: Option<Box<PrimitiveDesc>>) -> Status {
    ffi_guard(|| {
        drop(primitive_desc);
        Ok(())
    })
}

/// Numbers of `dnnl_query_t` that primitive descriptors answer.
mod query {
    use std::ffi::c_int;

    pub(super) const ENGINE: c_int = 1;
    pub(super) const PRIMITIVE_KIND: c_int = 2;
    pub(super) const INPUTS: c_int = 3;
    pub(super) const OUTPUTS: c_int = 4;
    pub(super) const TIME_ESTIMATE: c_int = 5;
    pub(super) const MEMORY_CONSUMPTION: c_int = 6;
    pub(super) const SCRATCHPAD_ENGINE: c_int = 7;
    pub(super) const IMPL_INFO: c_int = 8;
    pub(super) const SRC_ENGINE: c_int = 9;
    pub(super) const DST_ENGINE: c_int = 10;
    pub(super) const SRC_MD: c_int = 129;
    pub(super) const DST_MD: c_int = 133;
    pub(super) const SCRATCHPAD_MD: c_int = 136;
    pub(super) const EXEC_ARG_MD: c_int = 255;
    /// Queries of memory descriptors.
    pub(super) const DESCS: std::ops::RangeInclusive<c_int> = 128..=255;
}

impl PrimitiveDesc {
    /// The memory descriptor that a query asks for; none if a reorder has no such memory.
    fn memory_desc(&self, what: c_int, index: c_int) -> Option<&MemoryDesc> {
        match (what, index) {
            (query::SRC_MD, 0) | (query::EXEC_ARG_MD, arg::FROM) => Some(&self.src),
            (query::DST_MD, 0) | (query::EXEC_ARG_MD, arg::TO) => Some(&self.dst),
            (query::SCRATCHPAD_MD, 0) | (query::EXEC_ARG_MD, _) => Some(&EMPTY),
            _ => None,
        }
    }

    /// The number that a query of type `s32` asks for.
    fn number(&self, what: c_int) -> Option<c_int> {
        match what {
            query::PRIMITIVE_KIND => Some(REORDER),
            query::INPUTS => Some(self.reorder.args().count() as c_int),
            query::OUTPUTS => Some(1),
            _ => None,
        }
    }

    /// Writes the answer to a query.
    ///
    /// # Safety
    ///
    /// The result is of the type of the query.
    unsafe fn answer(&self, what: c_int, index: c_int, result: *mut c_void) -> Result<(), Fault> {
        let unimplemented = || Fault::unimplemented(format!("no reorder answers query {what}"));
        let engine = match what {
            query::ENGINE | query::SCRATCHPAD_ENGINE | query::DST_ENGINE => Some(&self.engines[1]),
            query::SRC_ENGINE => Some(&self.engines[0]),
            _ => None,
        };
        // SAFETY: as the caller promises.
        unsafe {
            match what {
                _ if engine.is_some() => {
                    result.cast::<*mut Engine>().write(engine.map_or(ptr::null_mut(), engine::handle));
                }
                query::TIME_ESTIMATE => result.cast::<f64>().write(0.0),
                query::MEMORY_CONSUMPTION => result.cast::<i64>().write(0),
                query::IMPL_INFO => result.cast::<*const c_char>().write(c"sterna".as_ptr()),
                _ if query::DESCS.contains(&what) => {
                    let desc = self.memory_desc(what, index);
                    let none = || Fault::of_status(NOT_REQUIRED, "a reorder has no such memory");
                    result.cast::<*const MemoryDesc>().write(desc.ok_or_else(none)?);
                }
                _ => result.cast::<c_int>().write(self.number(what).ok_or_else(unimplemented)?),
            }
        }
        Ok(())
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dnnl_primitive_desc_query(
    primitive_desc: Option<&PrimitiveDesc>,
    what: c_int,
    index: c_int,
    result: *mut c_void,
) -> Status {
    ffi_guard(|| {
        let primitive_desc = require(primitive_desc, "primitive_desc")?;
        let result = require(NonNull::new(result), "result")?.as_ptr();
        // SAFETY: as the caller promises.
        unsafe { primitive_desc.answer(what, index, result) }
    })
}

/// Null if there is no such memory.
#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_desc_query_md(
    primitive_desc: Option<&PrimitiveDesc>,
    what: c_int,
    index: c_int,
) -> *const MemoryDesc {
    let desc = primitive_desc.and_then(|primitive_desc| primitive_desc.memory_desc(what, index));
    desc.map_or(ptr::null(), ptr::from_ref)
}

/// 0 if there is no such number.
#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_desc_query_s32(
    primitive_desc: Option<&PrimitiveDesc>,
    what: c_int,
    _index: c_int,
) -> c_int {
    value_of(0, || primitive_desc.and_then(|primitive_desc| primitive_desc.number(what)).unwrap_or(0))
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_create(
    primitive: Option<&mut MaybeUninit<Box<Primitive>>>,
    primitive_desc: Option<&PrimitiveDesc>,
) -> Status {
    ffi_guard(|| {
        let to = require(primitive, "primitive")?;
        to.write(Box::new(Primitive(require(primitive_desc, "primitive_desc")?.clone())));
        Ok(())
    })
}

/// The descriptor belongs to the primitive.
#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_get_primitive_desc(
    primitive: Option<&Primitive>,
    primitive_desc: Option<&mut MaybeUninit<*const PrimitiveDesc>>,
) -> Status {
    ffi_guard(|| {
        let primitive = require(primitive, "primitive")?;
        require(primitive_desc, "primitive_desc")?.write(&primitive.0);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_destroy(primitive: Option<Box<Primitive>>) -> Status {
    ffi_guard(|| {
        drop(primitive);
        Ok(())
    })
}

/// `dnnl_exec_arg_t`
#[repr(C)]
pub(crate) struct ExecArg {
    arg: c_int,
    memory: *const Memory,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dnnl_primitive_execute(
    primitive: Option<&Primitive>,
    stream: Option<&Stream>,
    count: c_int,
    args: *const ExecArg,
) -> Status {
    ffi_guard(|| {
        let (primitive, stream) = (require(primitive, "primitive")?, require(stream, "stream")?);
        let count = usize::try_from(count).map_err(|_| Fault::unknown("number of arguments", count))?;
        // SAFETY: the caller promises so many arguments, unless the address is null.
        let args = unsafe { array(args, count, "args") }?;
        let Primitive(PrimitiveDesc { src, dst, reorder, .. }) = primitive;
        let find = |arg: c_int| {
            let given = args.iter().find(|given| given.arg == arg);
            // SAFETY: the caller promises that memory of an argument, unless null, is alive.
            let memory = given.and_then(|given| unsafe { given.memory.as_ref() });
            let memory = memory.ok_or_else(|| {
                Fault::invalid_arguments(format!("the reorder has no memory for argument {arg}"))
            })?;
            match (arg, memory.desc()) {
                (arg::FROM, given) if !given.is_same(src) => {}
                (arg::TO, given) if !given.is_same(dst) => {}
                _ => return Ok(memory),
            }
            Err(Fault::invalid_arguments(format!(
                "the memory of argument {arg} is not as the reorder was made for"
            )))
        };
        // SAFETY: the caller promises memory as its descriptors say, which nobody else writes meanwhile.
        unsafe { reorder.execute(stream.core(), find) }
    })
}
