//! Graphs from values: ids are the library's, names are kept, and types and shapes follow at once.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;

use sterna::{GraphValue, OpOptions};

use crate::attention::AttentionOptions;
use crate::callback::Release;
use crate::custom_node::CustomNode;
use crate::data_type::{self, DataType};
use crate::ffi::{Fault, array, check_array, ffi_guard, fill, require, text};
use crate::logical_tensor::{LogicalTensor, known, rank};
use crate::model::{Model, constant_data};
use crate::op::Op;
use crate::options::Options;
use crate::status::Status;

/// Builds a graph from values, which are numbers: those of the tensors of the graph. Each op is checked when
/// it is added, against the schema of its kind and the shapes of its operands, so an error comes from the
/// call that makes it and names the values of that call.
///
/// Use a builder from one thread at a time; different builders may be used at once. A value belongs to the
/// builder that gave it.
pub struct GraphBuilder {
    core: sterna::GraphBuilder,
}

/// The value of a number.
fn value_of(core: &sterna::GraphBuilder, id: usize) -> Result<GraphValue<'_>, Fault> {
    core.value(id).map_err(|_| Fault::invalid_arguments(format!("{id} is no value of the builder")))
}

/// The values of numbers.
fn values<'g>(core: &'g sterna::GraphBuilder, ids: &[usize]) -> Result<Vec<GraphValue<'g>>, Fault> {
    ids.iter().map(|&id| value_of(core, id)).collect()
}

/// The dims of a caller.
///
/// # Safety
///
/// Unless it is null, there are so many dims.
unsafe fn dims(ndims: i32, dims: *const i64) -> Result<Vec<Option<i64>>, Fault> {
    // SAFETY: as the caller promises.
    Ok(unsafe { array(dims, rank(ndims)?, "dims") }?.iter().map(known).collect())
}

/// Hands out the values that a call has made, if there is room for as many.
///
/// # Safety
///
/// Unless it is null, there is room for so many.
unsafe fn told(made: &[GraphValue<'_>], to: *mut usize) -> Result<(), Fault> {
    // SAFETY: as the caller promises.
    unsafe { fill(to, made.iter().map(|value| value.id().get()), "output_values") }
}

/// Makes a builder of an empty graph.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_graph_builder_create(
    builder: Option<&mut MaybeUninit<Box<GraphBuilder>>>,
) -> Status {
    ffi_guard(|| {
        require(builder, "builder")?.write(Box::new(GraphBuilder { core: sterna::GraphBuilder::new() }));
        Ok(())
    })
}

/// Destroys a builder; models that it gave stay usable. Null is fine; destroying one twice is an error of the
/// caller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_graph_builder_destroy(builder: Option<Box<GraphBuilder>>) -> Status {
    ffi_guard(|| {
        drop(builder);
        Ok(())
    })
}

/// Adds an input of a name to a graph; a dim may be `STERNA_UNKNOWN_DIM`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_graph_builder_add_input(
    builder: Option<&mut GraphBuilder>,
    name: *const c_char,
    data_type: DataType,
    ndims: i32,
    dims: *const i64,
    value: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        let (builder, value) = (require(builder, "builder")?, require(value, "value")?);
        // SAFETY: the caller promises text that ends with a zero, and so many dims.
        let (name, dims) = unsafe { (text(name, "name")?, self::dims(ndims, dims)?) };
        let input = builder.core.input(name, data_type::from_code(data_type)?, &dims)?;
        value.write(input.id().get());
        Ok(())
    })
}

/// Adds a constant of `size` bytes in row-major order to a graph.
///
/// If `release` is null, the bytes are copied. Otherwise they stay as and where they are until the function
/// is called with `user_data`, once, after the builder, the model and the last session of it are destroyed;
/// after an error of this call it is not called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_graph_builder_add_constant(
    builder: Option<&mut GraphBuilder>,
    name: *const c_char,
    data_type: DataType,
    ndims: i32,
    dims: *const i64,
    data: *const c_void,
    size: usize,
    release: Release,
    user_data: *mut c_void,
    value: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        let (builder, value) = (require(builder, "builder")?, require(value, "value")?);
        // SAFETY: the caller promises text that ends with a zero, so many dims, and so many bytes.
        let (name, dims) = unsafe { (text(name, "name")?, array(dims, rank(ndims)?, "dims")?) };
        let data_type = data_type::from_code(data_type)?;
        let desc = sterna::LogicalTensor::strided(0, data_type, dims)?;
        if desc.memory_size() != size {
            let needed = desc.memory_size();
            return Err(Fault::count("bytes in a constant of this type and these dims", size, needed));
        }
        // SAFETY: as above.
        let data = unsafe { constant_data(data, size, release, user_data) }?;
        value.write(builder.core.constant_data(name, data_type, dims, data)?.id().get());
        Ok(())
    })
}

/// Adds an op to a graph: the kind, the attributes and the name of `op`, which has no inputs and outputs of
/// its own. Its operands are values, and `output_values` receives the values of as many outputs as asked for.
///
/// Types and shapes of outputs follow; `output_data_type` is the type of those that have none from their
/// operands, such as the result of Cast, or `STERNA_DATA_TYPE_UNDEF`. The errors are those of
/// `sterna_graph_add_op`, and `invalid_shape`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_graph_builder_add_op(
    builder: Option<&mut GraphBuilder>,
    op: Option<&Op>,
    input_num: usize,
    input_values: *const usize,
    output_data_type: DataType,
    output_num: usize,
    output_values: *mut usize,
) -> Status {
    ffi_guard(|| {
        let (builder, op) = (require(builder, "builder")?, require(op, "op")?.core()?);
        if !op.inputs().is_empty() || !op.outputs().is_empty() {
            let message = "the op has inputs or outputs of its own; a builder takes values instead";
            return Err(Fault::invalid_arguments(message));
        }
        // SAFETY: the caller promises so many values.
        let operands = unsafe { array(input_values, input_num, "input_values") }?;
        // Before an op is added.
        check_array(output_values, output_num, "output_values")?;
        let mut options = OpOptions::new().named(op.name());
        for (attr, value) in op.attrs() {
            options = options.attr(attr, value.clone());
        }
        if output_data_type != 0 {
            options = options.data_type(data_type::from_code(output_data_type)?);
        }
        let operands = values(&builder.core, operands)?;
        let made = builder.core.op(op.kind(), &operands, options, output_num)?;
        // SAFETY: the caller promises room for so many.
        unsafe { told(&made, output_values) }
    })
}

/// Adds an op that only the caller knows to a graph. `outputs` describe the results: their types, and their
/// dims unless the rank is -1; nothing else of them counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_graph_builder_add_custom(
    builder: Option<&mut GraphBuilder>,
    node: Option<&CustomNode>,
    input_num: usize,
    input_values: *const usize,
    output_num: usize,
    outputs: *const *const LogicalTensor,
    output_values: *mut usize,
) -> Status {
    ffi_guard(|| {
        let (builder, node) = (require(builder, "builder")?, require(node, "node")?);
        // SAFETY: the caller promises so many values, and so many descriptions.
        let (operands, outputs) = unsafe {
            let outputs = array(outputs.cast::<Option<&LogicalTensor>>(), output_num, "outputs")?;
            (array(input_values, input_num, "input_values")?, outputs)
        };
        // Before an op is added.
        check_array(output_values, output_num, "output_values")?;
        let core = outputs.iter().map(|output| require(*output, "outputs")?.to_core());
        let core = core.collect::<Result<Vec<_>, _>>()?;
        let dims: Vec<_> = core.iter().map(sterna::LogicalTensor::partial_dims).collect();
        let outputs = core.iter().zip(&dims).map(|(output, dims)| (output.data_type(), dims.as_deref()));
        let operands = values(&builder.core, operands)?;
        let made = builder.core.custom(node.core().clone(), &operands, &outputs.collect::<Vec<_>>())?;
        // SAFETY: the caller promises room for so many.
        unsafe { told(&made, output_values) }
    })
}

/// Adds masked attention to a graph. The ids of the tensors in the options are values; their descriptions are
/// what `sterna_graph_builder_get_logical_tensor` reads. `dst` may be null, and neither it nor the first ids
/// count. `value` receives the result, which has the type of the queries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_graph_builder_add_attention(
    builder: Option<&mut GraphBuilder>,
    options: *const AttentionOptions,
    value: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        let (builder, value) = (require(builder, "builder")?, require(value, "value")?);
        // SAFETY: the caller promises a struct of the size that it says, and descriptions where it points.
        let (operands, set) = unsafe {
            let options = AttentionOptions::read(options, "options")?;
            (options.operands()?, options.setters()?)
        };
        let [q, k, v] = operands.map(|operand| value_of(&builder.core, operand.id().get()));
        value.write(builder.core.attention(q?, k?, v?, set)?.id().get());
        Ok(())
    })
}

/// Reads the description of a value: its type, its dims as far as they are known, and as its id the value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_graph_builder_get_logical_tensor(
    builder: Option<&GraphBuilder>,
    value: usize,
    logical_tensor: Option<&mut MaybeUninit<LogicalTensor>>,
) -> Status {
    ffi_guard(|| {
        let builder = require(builder, "builder")?;
        let logical_tensor = require(logical_tensor, "logical_tensor")?;
        logical_tensor.write(LogicalTensor::from_core(&value_of(&builder.core, value)?.desc()));
        Ok(())
    })
}

/// Names an output of a graph. Any value may be one, also an input or a constant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_graph_builder_add_output(
    builder: Option<&mut GraphBuilder>,
    name: *const c_char,
    value: usize,
) -> Status {
    ffi_guard(|| {
        let builder = require(builder, "builder")?;
        // SAFETY: the caller promises text that ends with a zero.
        let name = unsafe { text(name, "name") }?;
        Ok(builder.core.output(name, value_of(&builder.core, value)?)?)
    })
}

/// Makes the model of a graph, and empties the builder. Without named outputs, they are the values that no op
/// uses, called by the names of their ops. `invalid_graph` if the ops make no graph.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_graph_builder_build(
    builder: Option<&mut GraphBuilder>,
    model: Option<&mut MaybeUninit<Box<Model>>>,
) -> Status {
    ffi_guard(|| {
        let (builder, model) = (require(builder, "builder")?, require(model, "model")?);
        model.write(Model::new(std::mem::take(&mut builder.core).build()?));
        Ok(())
    })
}
