//! Ops of the caller's own: functions that infer shapes and run.

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use smallvec::SmallVec;
use sterna::{Dims, DynView, DynViewMut};

use crate::callback::{Release, told};
use crate::custom_node::CustomNode;
use crate::data_type::DataType;
use crate::ffi::{Fault, require, text};
use crate::logical_tensor::LogicalTensor;
use crate::options::Options;
use crate::view::{View, ViewMut};

/// Sets the dims of the outputs of an op for inputs of known types and dims. `outputs` are described as far
/// as the model says; the function writes `ndims` and `dims`. If it fails it answers with another status than
/// success, and may write a sentence of at most `message_size` bytes, its zero among them, to `message`. It
/// may be called from any thread.
pub type CustomInfer = Option<
    unsafe extern "C-unwind" fn(
        user_data: *mut c_void,
        node: *const CustomNode,
        input_num: usize,
        inputs: *const LogicalTensor,
        output_num: usize,
        outputs: *mut LogicalTensor,
        message: *mut c_char,
        message_size: usize,
    ) -> c_int,
>;

/// Reads the inputs of an op and writes all elements of its outputs. Tensors between ops are row-major; one
/// that the caller of the session gives has the strides that it was given with. Errors are told as by the
/// function that infers. It may be called from any thread, several at a time.
pub type CustomRun = Option<
    unsafe extern "C-unwind" fn(
        user_data: *mut c_void,
        node: *const CustomNode,
        input_num: usize,
        inputs: *const View,
        output_num: usize,
        outputs: *const ViewMut,
        message: *mut c_char,
        message_size: usize,
    ) -> c_int,
>;

/// An op of the caller's own, which a session runs where no kernel does.
///
/// Set all bytes to 0, then `struct_size` to the size of the struct, then the fields. The session copies
/// them.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CustomOp {
    /// The size of this struct where the caller was compiled.
    pub struct_size: usize,
    /// The name: `domain::Name` of a node, or the name of an op kind.
    pub name: *const c_char,
    /// Infers the dims of outputs.
    pub infer: CustomInfer,
    /// Runs the op.
    pub run: CustomRun,
    /// The first argument of the functions.
    pub user_data: *mut c_void,
    /// Called with `user_data` when the last session that has the op is destroyed; null if nothing is to be
    /// done. It is not called if the session cannot be made.
    pub release: Release,
}

// SAFETY: the struct is `repr(C)`, begins with its size, and is of integers and raw pointers: functions may
// be null.
unsafe impl Options for CustomOp {
    const MIN_SIZE: usize = offset_of!(Self, user_data);
}

/// The functions of a caller.
pub(crate) struct CallerOp {
    infer: unsafe extern "C-unwind" fn(
        *mut c_void,
        *const CustomNode,
        usize,
        *const LogicalTensor,
        usize,
        *mut LogicalTensor,
        *mut c_char,
        usize,
    ) -> c_int,
    run: unsafe extern "C-unwind" fn(
        *mut c_void,
        *const CustomNode,
        usize,
        *const View,
        usize,
        *const ViewMut,
        *mut c_char,
        usize,
    ) -> c_int,
    user_data: *mut c_void,
    release: Release,
    /// True once there is a session that has the op.
    is_in_use: Arc<AtomicBool>,
}

// SAFETY: the caller promised that any thread may call the functions.
unsafe impl Send for CallerOp {}
// SAFETY: as above.
unsafe impl Sync for CallerOp {}

impl Drop for CallerOp {
    fn drop(&mut self) {
        if let Some(release) = self.release.filter(|_| self.is_in_use.load(Ordering::Acquire)) {
            // SAFETY: the caller promised that it can be called once, from any thread.
            unsafe { release(self.user_data) };
        }
    }
}

impl CustomOp {
    /// The name, and the functions, which are released if a session has the op.
    ///
    /// # Safety
    ///
    /// Unless it is null, the name is text that ends with a zero.
    pub(crate) unsafe fn to_core(self, is_in_use: Arc<AtomicBool>) -> Result<(String, CallerOp), Fault> {
        // SAFETY: as the caller promises.
        let name = unsafe { text(self.name, "name") }?.to_owned();
        let (infer, run) = (require(self.infer, "infer")?, require(self.run, "run")?);
        let Self { user_data, release, .. } = self;
        Ok((name, CallerOp { infer, run, user_data, release, is_in_use }))
    }
}

impl sterna::CustomOp for CallerOp {
    fn output_dims(
        &self,
        node: &sterna::CustomNode,
        inputs: &[sterna::LogicalTensor],
        outputs: &[sterna::LogicalTensor],
    ) -> Result<Vec<Dims>, String> {
        let inputs: Vec<LogicalTensor> = inputs.iter().map(LogicalTensor::from_core).collect();
        let mut results: Vec<LogicalTensor> = outputs.iter().map(LogicalTensor::from_core).collect();
        told(|message, size| {
            // SAFETY: the caller of `sterna_session_create` promised that it can be called so.
            unsafe {
                (self.infer)(
                    self.user_data,
                    CustomNode::lent(node),
                    inputs.len(),
                    inputs.as_ptr(),
                    results.len(),
                    results.as_mut_ptr(),
                    message,
                    size,
                )
            }
        })?;
        let dims = |result: &LogicalTensor| {
            let rank = usize::try_from(result.ndims).ok();
            let dims = rank.and_then(|rank| result.dims.get(..rank));
            dims.map(Dims::from).ok_or_else(|| format!("{} is no rank", result.ndims))
        };
        results.iter().map(dims).collect()
    }

    fn run(
        &self,
        node: &sterna::CustomNode,
        inputs: &[DynView<'_>],
        outputs: &mut [DynViewMut<'_>],
    ) -> Result<(), String> {
        let inputs: SmallVec<[View; 4]> = inputs.iter().map(|view| lent(view)).collect();
        let outputs: SmallVec<[ViewMut; 2]> = outputs.iter_mut().map(lent_mut).collect();
        told(|message, size| {
            // SAFETY: the caller of `sterna_session_create` promised that it can be called so; the views are
            // lent for the call.
            unsafe {
                (self.run)(
                    self.user_data,
                    CustomNode::lent(node),
                    inputs.len(),
                    inputs.as_ptr(),
                    outputs.len(),
                    outputs.as_ptr(),
                    message,
                    size,
                )
            }
        })
    }
}

/// A view for a function of the caller.
fn lent(view: &DynView<'_>) -> View {
    let (dims, strides) = (view.dims(), view.strides());
    View {
        data: view.as_ptr().cast(),
        data_type: view.data_type().code() as DataType,
        ndims: dims.len() as i32,
        dims: dims.as_ptr(),
        strides: strides.map_or(std::ptr::null(), <[i64]>::as_ptr),
    }
}

fn lent_mut(view: &mut DynViewMut<'_>) -> ViewMut {
    let data = view.as_mut_ptr().cast();
    let dims = view.dims();
    ViewMut {
        data,
        data_type: view.data_type().code() as DataType,
        ndims: dims.len() as i32,
        dims: dims.as_ptr(),
        strides: std::ptr::null(),
    }
}
