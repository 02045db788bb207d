//! From models of this library to those of the other: the graph as JSON, constants by address.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use sterna::{AttrValue, ConstantData, CustomNode, LogicalTensor, ModelPort};

use crate::fault::{Fault, c_string, check};
use crate::sterna_h as h;

/// An object of the other library, which is destroyed with this one.
struct Owned<T> {
    handle: *mut T,
    destroy: unsafe extern "C" fn(*mut T) -> h::Status,
}

impl<T> Owned<T> {
    /// The object that a call makes.
    fn made(
        destroy: unsafe extern "C" fn(*mut T) -> h::Status,
        call: impl FnOnce(*mut *mut T) -> h::Status,
    ) -> Result<Self, Fault> {
        let mut handle = ptr::null_mut();
        check(call(&raw mut handle))?;
        Ok(Self { handle, destroy })
    }

    /// Gives the object up.
    fn release(mut self) -> *mut T {
        std::mem::replace(&mut self.handle, ptr::null_mut())
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: the object came from the library, or is null, which is fine.
        unsafe { (self.destroy)(self.handle) };
    }
}

/// The description for the other library.
fn described(tensor: &LogicalTensor) -> Result<h::LogicalTensor, Fault> {
    let mut to = h::LogicalTensor {
        id: 0,
        ndims: 0,
        dims: [0; 12],
        data_type: 0,
        property: 0,
        layout_type: 0,
        layout: [0; 12],
    };
    let (id, data_type) = (tensor.id().get(), tensor.data_type().code() as c_int);
    let property = tensor.property().code() as c_int;
    // SAFETY: the description can be written, and there are so many dims.
    check(unsafe {
        match tensor.partial_dims() {
            None => h::sterna_logical_tensor_init(&raw mut to, id, data_type, -1, h::ANY, property),
            Some(dims) => {
                let dims: Vec<i64> = dims.into_iter().map(|dim| dim.unwrap_or(h::UNKNOWN_DIM)).collect();
                let (rank, at) = (dims.len() as i32, dims.as_ptr());
                h::sterna_logical_tensor_init_with_dims(
                    &raw mut to,
                    id,
                    data_type,
                    rank,
                    at,
                    h::STRIDED,
                    property,
                )
            }
        }
    })?;
    Ok(to)
}

/// Ports with their names.
struct Ports {
    ports: Vec<h::ModelPort>,
    _addresses: Vec<Vec<*const c_char>>,
    _names: Vec<Vec<CString>>,
}

impl Ports {
    fn of(ports: &[ModelPort]) -> Result<Self, Fault> {
        let names = |port: &ModelPort| match &port.names[..] {
            [] => vec![CString::default()],
            names => names.iter().map(|name| c_string(name)).collect(),
        };
        let names: Vec<Vec<CString>> = ports.iter().map(names).collect();
        let addresses: Vec<Vec<*const c_char>> =
            names.iter().map(|names| names.iter().map(|name| name.as_ptr()).collect()).collect();
        let port = |(port, names): (&ModelPort, &Vec<*const c_char>)| {
            let tensor = described(&port.tensor)?;
            Ok(h::ModelPort { names: names.as_ptr(), name_num: names.len(), tensor })
        };
        let ports = ports.iter().zip(&addresses).map(port).collect::<Result<_, Fault>>()?;
        Ok(Self { ports, _addresses: addresses, _names: names })
    }
}

/// A model of the other library, of which the caller is the owner.
pub(crate) fn handed_over(model: &sterna::Model) -> Result<*mut h::Model, Fault> {
    if let Some(source) = model.source() {
        return from_source(model, source.clone());
    }
    let graph = graph_of(&model.graph().to_json())?;
    let (inputs, outputs) = (Ports::of(model.inputs())?, Ports::of(model.outputs())?);
    let (inputs, outputs) = (&inputs.ports, &outputs.ports);
    // SAFETY: the graph is alive, and there are so many ports.
    let made = Owned::made(h::sterna_model_destroy, |to| unsafe {
        let (of, from, out) = (graph.handle, inputs.as_ptr(), outputs.as_ptr());
        h::sterna_model_create_with_ports(to, of, inputs.len(), from, outputs.len(), out)
    })?;
    for (id, data) in model.constants() {
        set_constant(made.handle, id.get(), data.clone())?;
    }
    for (id, node) in model.custom_nodes() {
        let node = node_of(node)?;
        // SAFETY: both objects are alive.
        check(unsafe { h::sterna_model_set_custom_node(made.handle, id.get(), node.handle) })?;
    }
    Ok(made.release())
}

/// A model of a graph in JSON.
pub(crate) fn from_json(json: &str) -> Result<*mut h::Model, Fault> {
    let graph = graph_of(json)?;
    // SAFETY: the graph is alive.
    let made = |to| unsafe { h::sterna_model_create(to, graph.handle) };
    Ok(Owned::made(h::sterna_model_destroy, made)?.release())
}

fn graph_of(json: &str) -> Result<Owned<h::Graph>, Fault> {
    // SAFETY: there are so many bytes.
    Owned::made(h::sterna_graph_destroy, |to| unsafe {
        h::sterna_graph_from_json(to, json.as_ptr().cast(), json.len())
    })
}

/// Lends a constant to a model.
fn set_constant(model: *mut h::Model, id: usize, data: ConstantData) -> Result<(), Fault> {
    let (at, size) = (data.bytes().as_ptr(), data.bytes().len());
    let kept = Box::into_raw(Box::new(data));
    // SAFETY: the bytes are there until `dropped` is called.
    let status = unsafe {
        h::sterna_model_set_constant(model, id, at.cast(), size, Some(dropped::<ConstantData>), kept.cast())
    };
    check(status).inspect_err(|_| {
        // SAFETY: nobody else has it after an error.
        drop(unsafe { Box::from_raw(kept) });
    })
}

/// # Safety
///
/// The data is a `Box<T>`, which nobody uses any more.
unsafe extern "C" fn dropped<T>(user_data: *mut c_void) {
    // SAFETY: as the caller promises.
    drop(unsafe { Box::from_raw(user_data.cast::<T>()) });
}

fn node_of(node: &CustomNode) -> Result<Owned<h::CustomNode>, Fault> {
    let op = c_string(&node.op);
    // SAFETY: the text ends with a zero.
    let made = Owned::made(h::sterna_custom_node_destroy, |to| unsafe {
        h::sterna_custom_node_create(to, op.as_ptr())
    })?;
    for (name, value) in &node.attrs {
        let (to, name) = (made.handle, c_string(name));
        let floats = |values: &[f32]| unsafe {
            // SAFETY: the node is alive, the name ends with a zero, and there are so many values.
            h::sterna_custom_node_set_attr_f32(to, name.as_ptr(), values.as_ptr(), values.len())
        };
        let integers = |values: &[i64]| unsafe {
            // SAFETY: as above.
            h::sterna_custom_node_set_attr_s64(to, name.as_ptr(), values.as_ptr(), values.len())
        };
        check(match value {
            AttrValue::F32(number) => floats(&[*number]),
            AttrValue::F32s(numbers) => floats(numbers),
            AttrValue::S64(number) => integers(&[*number]),
            AttrValue::S64s(numbers) => integers(numbers),
            AttrValue::Bool(truth) => integers(&[(*truth).into()]),
            AttrValue::String(word) => {
                let word = c_string(word);
                // SAFETY: as above; the text ends with a zero.
                unsafe { h::sterna_custom_node_set_attr_str(to, name.as_ptr(), word.as_ptr()) }
            }
            other => {
                let message = format!("an attribute of {} is {}", node.op, other.type_name());
                return Err(Fault::invalid_arguments(message));
            }
        })?;
    }
    Ok(made)
}

/// The source of a model, and the names of its inputs.
struct Source {
    source: Arc<dyn sterna::ModelSource>,
    names: Vec<String>,
}

fn from_source(model: &sterna::Model, source: Arc<dyn sterna::ModelSource>) -> Result<*mut h::Model, Fault> {
    let (inputs, outputs) = (Ports::of(model.inputs())?, Ports::of(model.outputs())?);
    let (inputs, outputs) = (&inputs.ports, &outputs.ports);
    let names = model.inputs().iter().map(|port| port.name().to_owned()).collect();
    let kept = Box::into_raw(Box::new(Source { source, names }));
    // SAFETY: there are so many ports, and the source is there until `dropped` is called.
    let made = Owned::made(h::sterna_model_destroy, |to| unsafe {
        h::sterna_model_create_from_source(
            to,
            inputs.len(),
            inputs.as_ptr(),
            outputs.len(),
            outputs.as_ptr(),
            Some(model_at),
            Some(dropped::<Source>),
            kept.cast(),
        )
    });
    if made.is_err() {
        // SAFETY: nobody else has it after an error.
        drop(unsafe { Box::from_raw(kept) });
    }
    Ok(made?.release())
}

/// Makes the model for shapes.
///
/// # Safety
///
/// As `sterna_model_source_t` promises; the data is a [`Source`].
unsafe extern "C" fn model_at(
    user_data: *mut c_void,
    input_num: usize,
    inputs: *const h::ModelPort,
    model: *mut *mut h::Model,
    message: *mut c_char,
    message_size: usize,
) -> h::Status {
    let (status, said) = crate::fault::caught(|| {
        // SAFETY: as promised.
        let (source, inputs) =
            unsafe { (&*user_data.cast::<Source>(), crate::fault::array(inputs, input_num, "inputs")?) };
        let dims =
            inputs.iter().map(|input| &input.tensor.dims[..usize::try_from(input.tensor.ndims).unwrap_or(0)]);
        let shapes: Vec<(&str, &[i64])> = source.names.iter().map(String::as_str).zip(dims).collect();
        let made = handed_over(&source.source.at(&shapes)?)?;
        // SAFETY: as promised.
        unsafe { model.write(made) };
        Ok(())
    });
    let said = c_string(&said);
    let said = said.as_bytes();
    let length = said.len().min(message_size.saturating_sub(1));
    if status != 0 && message_size > 0 {
        // SAFETY: there is room for so many bytes, and one more.
        unsafe {
            message.cast::<u8>().copy_from_nonoverlapping(said.as_ptr(), length);
            message.add(length).write(0);
        }
    }
    status
}
