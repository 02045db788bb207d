//! Models: graphs with names for inputs and outputs, and constants.

use std::ffi::{CString, c_char, c_void};
use std::mem::MaybeUninit;
use std::slice;

use sterna::{ConstantData, ModelPort};

use crate::custom_node::CustomNode;
use crate::ffi::{Fault, array, c_string, ffi_guard, require};
use crate::graph::Graph;
use crate::logical_tensor::LogicalTensor;
use crate::status::Status;

/// A function that gets the data of the caller back: nothing of what was lent with it is used any more. It
/// may be called from any thread.
pub type Release = Option<unsafe extern "C-unwind" fn(user_data: *mut c_void)>;

/// A graph that runs as a whole: ops, the names of inputs and outputs, and constants.
///
/// Functions that take it as `const` may be called from any number of threads at once, the others by one
/// thread at a time.
pub struct Model {
    /// Taken out only during a call that adds to it.
    core: Option<sterna::Model>,
    /// The names of inputs, then outputs, for C.
    names: [Vec<CString>; 2],
}

impl Model {
    /// The model behind the handle.
    pub fn core(&self) -> Result<&sterna::Model, Fault> {
        self.core
            .as_ref()
            .ok_or_else(|| Fault::runtime_error("an earlier call on the model did not come to its end"))
    }

    /// A handle for a model.
    pub(crate) fn new(core: sterna::Model) -> Box<Self> {
        let names = [core.inputs(), core.outputs()].map(names);
        Box::new(Self { core: Some(core), names })
    }

    fn change(&mut self, change: impl FnOnce(sterna::Model) -> sterna::Model) -> Result<(), Fault> {
        self.core()?;
        self.core = self.core.take().map(change);
        let core = self.core()?;
        self.names = [core.inputs(), core.outputs()].map(names);
        Ok(())
    }
}

/// The names of ports, for C.
pub(crate) fn names(ports: &[ModelPort]) -> Vec<CString> {
    ports.iter().map(|port| c_string(port.name())).collect()
}

/// Tells the name and the description of the port of an index.
pub(crate) fn told_port(
    ports: &[ModelPort],
    names: &[CString],
    index: usize,
    name: Option<&mut MaybeUninit<*const c_char>>,
    logical_tensor: Option<&mut MaybeUninit<LogicalTensor>>,
) -> Result<(), Fault> {
    let (name, logical_tensor) = (require(name, "name")?, require(logical_tensor, "logical_tensor")?);
    let (Some(port), Some(own)) = (ports.get(index), names.get(index)) else {
        let count = ports.len();
        return Err(Fault::invalid_arguments(format!("`index` is {index}, but there are {count}")));
    };
    name.write(own.as_ptr());
    logical_tensor.write(LogicalTensor::from_core(&port.tensor));
    Ok(())
}

/// Bytes that a caller lends until the last that knows them is gone.
struct Lent {
    data: *const u8,
    size: usize,
    release: unsafe extern "C-unwind" fn(*mut c_void),
    user_data: *mut c_void,
}

// SAFETY: the caller promised that any thread may read the bytes and call the function.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        match self.size {
            0 => &[],
            // SAFETY: the address was checked, and the caller promised so many bytes until `release`.
            size => unsafe { slice::from_raw_parts(self.data, size) },
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: the caller promised that it can be called once, from any thread.
        unsafe { (self.release)(self.user_data) };
    }
}

/// The bytes of a constant: a copy, or those of the caller until `release` is called.
///
/// # Safety
///
/// So many bytes can be read at the address: for this call, or until `release` is called if it is not null.
pub(crate) unsafe fn constant_data(
    data: *const c_void,
    size: usize,
    release: Release,
    user_data: *mut c_void,
) -> Result<ConstantData, Fault> {
    // SAFETY: as the caller promises.
    let bytes = unsafe { array(data.cast::<u8>(), size, "data") }?;
    Ok(match release {
        None => ConstantData::new(bytes.to_vec()),
        Some(release) => ConstantData::new(Lent { data: data.cast(), size, release, user_data }),
    })
}

/// Makes a model of a copy of a graph, whose inputs and outputs are called by the numbers of their tensors:
/// "7". The outputs are the tensors that no op uses, and those of ops End. `invalid_graph` as
/// `sterna_graph_finalize`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_model_create(
    model: Option<&mut MaybeUninit<Box<Model>>>,
    graph: Option<&Graph>,
) -> Status {
    ffi_guard(|| {
        let (model, graph) = (require(model, "model")?, require(graph, "graph")?);
        model.write(Model::new(sterna::Model::new(graph.core().clone())?));
        Ok(())
    })
}

/// Destroys a model; sessions of it stay usable. Null is fine; destroying one twice is an error of the
/// caller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_model_destroy(model: Option<Box<Model>>) -> Status {
    ffi_guard(|| {
        drop(model);
        Ok(())
    })
}

/// Gives a tensor that no op computes its value, once and for all: `size` bytes in row-major order. It is no
/// input any more.
///
/// If `release` is null, the bytes are copied. Otherwise they stay as and where they are until the function
/// is called with `user_data`, once, after the model and the last session of it are destroyed; after an error
/// of this call it is not called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_model_set_constant(
    model: Option<&mut Model>,
    tensor_id: usize,
    data: *const c_void,
    size: usize,
    release: Release,
    user_data: *mut c_void,
) -> Status {
    ffi_guard(|| {
        let model = require(model, "model")?;
        model.core()?;
        // SAFETY: the caller promises so many bytes.
        let data = unsafe { constant_data(data, size, release, user_data) }?;
        model.change(|model| model.constant(tensor_id, data))
    })
}

/// Says what an op Wildcard of a model stands for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_model_set_custom_node(
    model: Option<&mut Model>,
    op_id: usize,
    node: Option<&CustomNode>,
) -> Status {
    ffi_guard(|| {
        let (model, node) = (require(model, "model")?, require(node, "node")?);
        if !model.core()?.graph().ops().iter().any(|op| op.id() == op_id) {
            return Err(Fault::invalid_arguments(format!("the model has no op {op_id}")));
        }
        model.change(|model| model.custom(op_id, node.core().clone()))
    })
}

/// Reads how many inputs a model has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_model_get_input_num(
    model: Option<&Model>,
    num: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        let model = require(model, "model")?.core()?;
        require(num, "num")?.write(model.inputs().len());
        Ok(())
    })
}

/// Reads the name and the description of an input of a model. The text is the model's, until the model is
/// changed or destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_model_get_input(
    model: Option<&Model>,
    index: usize,
    name: Option<&mut MaybeUninit<*const c_char>>,
    logical_tensor: Option<&mut MaybeUninit<LogicalTensor>>,
) -> Status {
    ffi_guard(|| {
        let model = require(model, "model")?;
        told_port(model.core()?.inputs(), &model.names[0], index, name, logical_tensor)
    })
}

/// Reads how many outputs a model has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_model_get_output_num(
    model: Option<&Model>,
    num: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        let model = require(model, "model")?.core()?;
        require(num, "num")?.write(model.outputs().len());
        Ok(())
    })
}

/// Reads the name and the description of an output of a model. The text is the model's, until the model is
/// changed or destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_model_get_output(
    model: Option<&Model>,
    index: usize,
    name: Option<&mut MaybeUninit<*const c_char>>,
    logical_tensor: Option<&mut MaybeUninit<LogicalTensor>>,
) -> Status {
    ffi_guard(|| {
        let model = require(model, "model")?;
        told_port(model.core()?.outputs(), &model.names[1], index, name, logical_tensor)
    })
}
