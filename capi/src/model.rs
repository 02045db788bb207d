//! Models: graphs with names for inputs and outputs, and constants.

use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::{fmt, ptr, slice};

use sterna::ConstantData;

use crate::callback::{Release, told};
use crate::custom_node::CustomNode;
use crate::ffi::{Fault, array, c_string, ffi_guard, require, text};
use crate::graph::Graph;
use crate::logical_tensor::LogicalTensor;
use crate::status::Status;

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
pub(crate) fn names(ports: &[sterna::ModelPort]) -> Vec<CString> {
    ports.iter().map(|port| c_string(port.name())).collect()
}

/// An input or an output of a model: its names, the first of which is its own, and its tensor. The struct and
/// what it points to are lent for the call.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ModelPort {
    /// The names, UTF-8 that ends with a zero.
    pub names: *const *const c_char,
    /// The number of names, at least 1.
    pub name_num: usize,
    /// The tensor, by the id that it has in the graph.
    pub tensor: LogicalTensor,
}

impl ModelPort {
    /// The ports of a caller.
    ///
    /// # Safety
    ///
    /// Unless it is null, so many ports can be read there, each with its names.
    unsafe fn read(at: *const Self, num: usize, what: &'static str) -> Result<Vec<sterna::ModelPort>, Fault> {
        // SAFETY: as the caller promises.
        let ports = unsafe { array(at, num, what) }?;
        let port = |port: &Self| {
            // SAFETY: as the caller promises.
            let names = unsafe { array(port.names, port.name_num, "names") }?;
            // SAFETY: as above.
            let names = names.iter().map(|&name| unsafe { text(name, "names") });
            let names = names.collect::<Result<Vec<&str>, Fault>>()?;
            let (own, others) = names.split_first().ok_or_else(|| Fault::count("names", 0, 1))?;
            let first = sterna::ModelPort::new(*own, port.tensor.to_core()?);
            Ok(others.iter().fold(first, |port, name| port.also_named(*name)))
        };
        ports.iter().map(port).collect()
    }
}

/// Makes the model for inputs of given shapes: `inputs` are those of the model that has this source, in their
/// order, with known dims. The new model has inputs and outputs of the same names and types; constants are
/// best the same memory each time. Errors are told as by the functions of an op of the caller's own. It may
/// be called from any thread.
pub type ModelSource = Option<
    unsafe extern "C-unwind" fn(
        user_data: *mut c_void,
        input_num: usize,
        inputs: *const ModelPort,
        model: *mut *mut Model,
        message: *mut c_char,
        message_size: usize,
    ) -> c_int,
>;

/// A source of the caller's.
struct CallerSource {
    source: unsafe extern "C-unwind" fn(
        *mut c_void,
        usize,
        *const ModelPort,
        *mut *mut Model,
        *mut c_char,
        usize,
    ) -> c_int,
    inputs: Vec<sterna::ModelPort>,
    release: Release,
    user_data: *mut c_void,
}

// SAFETY: the caller promised that any thread may call the functions.
unsafe impl Send for CallerSource {}
// SAFETY: as above.
unsafe impl Sync for CallerSource {}

impl fmt::Debug for CallerSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallerSource")
    }
}

impl Drop for CallerSource {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: the caller promised that it can be called once, from any thread.
            unsafe { release(self.user_data) };
        }
    }
}

impl sterna::ModelSource for CallerSource {
    fn at(&self, shapes: &[(&str, &[i64])]) -> sterna::Result<sterna::Model> {
        let names: Vec<CString> = shapes.iter().map(|(name, _)| c_string(name)).collect();
        let names: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
        let mut inputs = Vec::with_capacity(shapes.len());
        for ((input, (_, dims)), name) in self.inputs.iter().zip(shapes).zip(&names) {
            let (id, data_type) = (input.tensor.id(), input.tensor.data_type());
            let tensor = LogicalTensor::from_core(&sterna::LogicalTensor::strided(id, data_type, dims)?);
            inputs.push(ModelPort { names: name, name_num: 1, tensor });
        }
        let mut made = ptr::null_mut();
        let (num, at) = (inputs.len(), inputs.as_ptr());
        // SAFETY: the caller of `sterna_model_create_from_source` promised that it can be called so.
        let told =
            told(|text, size| unsafe { (self.source)(self.user_data, num, at, &raw mut made, text, size) });
        // SAFETY: the function gives a model away, or none.
        let made = (!made.is_null()).then(|| unsafe { Box::from_raw(made) });
        let refused = |message| sterna::Error::from(sterna::SessionFault::Source(message));
        told.map_err(refused)?;
        made.and_then(|made| made.core).ok_or_else(|| refused("the source gives no model".into()))
    }
}

/// Tells the name and the description of the port of an index.
pub(crate) fn told_port(
    ports: &[sterna::ModelPort],
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

/// Makes a model of a copy of a graph, with names for its inputs and outputs, in the order given. An output
/// may also be a tensor that ops use, an input or a constant. `invalid_graph` as `sterna_graph_finalize`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_model_create_with_ports(
    model: Option<&mut MaybeUninit<Box<Model>>>,
    graph: Option<&Graph>,
    input_num: usize,
    input_ports: *const ModelPort,
    output_num: usize,
    output_ports: *const ModelPort,
) -> Status {
    ffi_guard(|| {
        let (model, graph) = (require(model, "model")?, require(graph, "graph")?);
        // SAFETY: the caller promises so many ports.
        let (inputs, outputs) = unsafe {
            let inputs = ModelPort::read(input_ports, input_num, "input_ports")?;
            (inputs, ModelPort::read(output_ports, output_num, "output_ports")?)
        };
        model.write(Model::new(sterna::Model::with_ports(graph.core().clone(), inputs, outputs)?));
        Ok(())
    })
}

/// Makes a model that a function of the caller's makes anew for each set of shapes of inputs, as a file does
/// in which the shapes of ops follow from those of the inputs. A dim that may have any length is
/// `STERNA_UNKNOWN_DIM`.
///
/// `release`, which may be null, is called with `user_data`, once, after the model and the last session of it
/// are destroyed; after an error of this call it is not called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_model_create_from_source(
    model: Option<&mut MaybeUninit<Box<Model>>>,
    input_num: usize,
    input_ports: *const ModelPort,
    output_num: usize,
    output_ports: *const ModelPort,
    source: ModelSource,
    release: Release,
    user_data: *mut c_void,
) -> Status {
    ffi_guard(|| {
        let (model, source) = (require(model, "model")?, require(source, "source")?);
        // SAFETY: the caller promises so many ports.
        let (inputs, outputs) = unsafe {
            let inputs = ModelPort::read(input_ports, input_num, "input_ports")?;
            (inputs, ModelPort::read(output_ports, output_num, "output_ports")?)
        };
        let source = CallerSource { source, inputs: inputs.clone(), release, user_data };
        model.write(Model::new(sterna::Model::from_source(inputs, outputs, Arc::new(source))));
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
