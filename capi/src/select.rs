//! One select in one call, without graph, partition and tensors.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use sterna::SelectOptions;

use crate::engine::Engine;
use crate::ffi::{Fault, ffi_guard, fill, require, text};
use crate::status::Status;
use crate::view::{View, ViewMut};

/// # Safety
///
/// Unless it is null, `auto_broadcast` is text that ends with a zero.
unsafe fn options(
    engine: Option<&Engine>,
    auto_broadcast: *const c_char,
    axis: i64,
) -> Result<SelectOptions, Fault> {
    let mut options = SelectOptions::new();
    if let Some(engine) = engine {
        options = options.engine(engine.core());
    }
    if !auto_broadcast.is_null() {
        // SAFETY: as the caller promises.
        let name = unsafe { text(auto_broadcast, "auto_broadcast") }?;
        let mode: Result<sterna::AutoBroadcast, sterna::UnknownName> = name.parse();
        options =
            options.auto_broadcast(mode.map_err(|unknown| Fault::invalid_arguments(unknown.to_string()))?);
    }
    Ok(if axis == -1 { options } else { options.axis(axis) })
}

/// # Safety
///
/// The views are as `sterna_select` requires.
unsafe fn run(
    options: &SelectOptions,
    cond: Option<&View>,
    then: Option<&View>,
    else_: Option<&View>,
    dst: Option<&ViewMut>,
) -> Result<(), Fault> {
    let (cond, then) = (require(cond, "cond")?, require(then, "then")?);
    let (else_, dst) = (require(else_, "else_")?, require(dst, "dst")?);
    // SAFETY: as the caller promises.
    unsafe {
        let inputs = [cond.to_core("cond")?, then.to_core("then")?, else_.to_core("else_")?];
        options.select_dyn(&inputs[0], &inputs[1], &inputs[2], &mut dst.to_core("dst")?)?;
    }
    Ok(())
}

/// Computes `dst[i] = cond[i] ? then[i] : else_[i]` in one call, without graph, partition, engine and
/// tensors. `then` and `else_` broadcast to each other, `cond` to both (auto_broadcast `numpy`); `dst` has
/// the dims of the result, which `sterna_select_get_dims` tells.
///
/// `cond` is boolean, bytes that are true if they are not 0; `then`, `else_` and `dst` share one type of
/// whole bytes. During the call nobody writes to the elements of inputs, and nobody else uses those of `dst`;
/// `dst` may be the very elements of `then` or `else_`, if dims and strides are equal.
///
/// It runs on an engine that the process shares, which the first call makes, and whose workers live as long
/// as the process: a program that unloads this library gives an engine of its own to `sterna_select_with`.
/// The first call for some types, dims and strides compiles a partition; later calls find it in the cache.
///
/// `invalid_arguments` for a view whose type, dims or strides make no tensor, without memory, and for any
/// other overlap; `invalid_graph_op` if `cond` is not boolean or the types of the others differ;
/// `invalid_shape` if the dims do not broadcast, or `dst` has others than the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_select(
    cond: Option<&View>,
    then: Option<&View>,
    else_: Option<&View>,
    dst: Option<&ViewMut>,
) -> Status {
    // SAFETY: the caller promises what the views say.
    ffi_guard(|| unsafe { run(&SelectOptions::new(), cond, then, else_, dst) })
}

/// As `sterna_select`, on an engine, and with the shapes combined by the broadcast mode of a name: `none`,
/// `numpy`, `pdpd` or `multidirectional`. Under `pdpd`, `axis` is the dim of `then` at which the other
/// operands start; -1 stands for no axis. If `engine` is null, it is that of `sterna_select`; if
/// `auto_broadcast` is null, the mode is `numpy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_select_with(
    engine: Option<&Engine>,
    auto_broadcast: *const c_char,
    axis: i64,
    cond: Option<&View>,
    then: Option<&View>,
    else_: Option<&View>,
    dst: Option<&ViewMut>,
) -> Status {
    // SAFETY: the caller promises what the views say, and the text.
    ffi_guard(|| unsafe { run(&options(engine, auto_broadcast, axis)?, cond, then, else_, dst) })
}

/// Reads the dims of the result that `sterna_select_with` would write for these operands, whose elements it
/// does not read. `dims` has room for `STERNA_MAX_NDIMS` numbers, of which the first `ndims` are written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_select_get_dims(
    auto_broadcast: *const c_char,
    axis: i64,
    cond: Option<&View>,
    then: Option<&View>,
    else_: Option<&View>,
    ndims: Option<&mut MaybeUninit<i32>>,
    dims: *mut i64,
) -> Status {
    // SAFETY: the caller promises what the views say, and the text.
    ffi_guard(|| unsafe {
        let (cond, then) = (require(cond, "cond")?, require(then, "then")?);
        let (else_, options) = (require(else_, "else_")?, options(None, auto_broadcast, axis)?);
        let ndims = require(ndims, "ndims")?;
        require(NonNull::new(dims), "dims")?;
        let (cond, then) = (cond.to_core("cond")?, then.to_core("then")?);
        let result = options.dims_dyn(&cond, &then, &else_.to_core("else_")?)?;
        fill(dims, result.iter().copied(), "dims")?;
        ndims.write(result.len() as i32);
        Ok(())
    })
}
