//! Partitions: ops of a graph that run as one.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::time::Instant;

use crate::accuracy::Accuracy;
use crate::engine::{self, CPU, Engine, EngineKind};
use crate::ffi::{Fault, array, ffi_guard, fill, require, require_at};
use crate::handle::CompiledPartition;
pub use crate::handle::Partition;
use crate::logical_tensor::LogicalTensor;
use crate::op::Op;
use crate::status::Status;
use crate::{dump, string, verbose};

/// Makes a partition of one op, without a graph. `invalid_graph_op` if the op does not fit its kind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_partition_create_with_op(
    partition: Option<&mut MaybeUninit<Box<Partition>>>,
    op: Option<&Op>,
    engine_kind: EngineKind,
) -> Status {
    ffi_guard(|| {
        let (partition, op) = (require(partition, "partition")?, require(op, "op")?);
        engine::check_kind(engine_kind)?;
        let core = sterna::Partition::from_op(op.core()?.clone())?;
        partition.write(Box::new(Partition::new(core)));
        Ok(())
    })
}

/// Destroys a partition; compiled partitions made from it stay usable. Null is fine; destroying one twice is
/// an error of the caller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_partition_destroy(partition: Option<Box<Partition>>) -> Status {
    ffi_guard(|| {
        drop(partition);
        Ok(())
    })
}

/// Reads how many ops a partition has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_partition_get_op_num(
    partition: Option<&Partition>,
    num: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        let partition = require(partition, "partition")?;
        require(num, "num")?.write(partition.core.ops().len());
        Ok(())
    })
}

/// Reads the ids of the ops of a partition, in an order in which they can run. `num` is what
/// `sterna_partition_get_op_num` says, and `ids` has room for as many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_partition_get_ops(
    partition: Option<&Partition>,
    num: usize,
    ids: *mut usize,
) -> Status {
    ffi_guard(|| {
        let ops = require(partition, "partition")?.core.ops();
        if num != ops.len() {
            return Err(Fault::count("ops", num, ops.len()));
        }
        // SAFETY: the caller promises room for that number.
        unsafe { fill(ids, ops.iter().map(|op| op.id().get()), "ids") }
    })
}

/// Reads the index of a partition among the partitions of its graph, from 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_partition_get_id(
    partition: Option<&Partition>,
    id: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        let partition = require(partition, "partition")?;
        require(id, "id")?.write(partition.core.id());
        Ok(())
    })
}

fn ports_num(ports: &[sterna::LogicalTensor], num: Option<&mut MaybeUninit<usize>>) -> Result<(), Fault> {
    require(num, "num")?.write(ports.len());
    Ok(())
}

/// # Safety
///
/// Unless it is null, so many descriptions can be written at `to`.
unsafe fn ports(ports: &[sterna::LogicalTensor], num: usize, to: *mut LogicalTensor) -> Result<(), Fault> {
    if num != ports.len() {
        return Err(Fault::count("ports", num, ports.len()));
    }
    // SAFETY: as the caller promises.
    unsafe { fill(to, ports.iter().map(LogicalTensor::from_core), "ports") }
}

/// Reads how many tensors a partition takes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_partition_get_input_ports_num(
    partition: Option<&Partition>,
    num: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| ports_num(require(partition, "partition")?.core.inputs(), num))
}

/// Reads the tensors that a partition takes, each once. `num` is what `sterna_partition_get_input_ports_num`
/// says, and `inputs` has room for as many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_partition_get_input_ports(
    partition: Option<&Partition>,
    num: usize,
    inputs: *mut LogicalTensor,
) -> Status {
    // SAFETY: the caller promises room for that number.
    ffi_guard(|| unsafe { ports(require(partition, "partition")?.core.inputs(), num, inputs) })
}

/// Reads how many tensors a partition gives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_partition_get_output_ports_num(
    partition: Option<&Partition>,
    num: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| ports_num(require(partition, "partition")?.core.outputs(), num))
}

/// Reads the tensors that a partition gives, each once. `num` is what `sterna_partition_get_output_ports_num`
/// says, and `outputs` has room for as many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_partition_get_output_ports(
    partition: Option<&Partition>,
    num: usize,
    outputs: *mut LogicalTensor,
) -> Status {
    // SAFETY: the caller promises room for that number.
    ffi_guard(|| unsafe { ports(require(partition, "partition")?.core.outputs(), num, outputs) })
}

/// Reads whether a partition can be compiled: 1 or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_partition_is_supported(
    partition: Option<&Partition>,
    is_supported: Option<&mut MaybeUninit<u8>>,
) -> Status {
    ffi_guard(|| {
        let partition = require(partition, "partition")?;
        require(is_supported, "is_supported")?.write(partition.core.is_supported().into());
        Ok(())
    })
}

/// Reads how exact a partition is. `invalid_arguments` for a partition that is not supported.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_partition_get_accuracy(
    partition: Option<&Partition>,
    accuracy: Option<&mut MaybeUninit<Accuracy>>,
) -> Status {
    ffi_guard(|| {
        let (partition, to) = (require(partition, "partition")?, require(accuracy, "accuracy")?);
        let unsupported = || {
            let why = partition.core.unsupported_reason().unwrap_or_default();
            Fault::invalid_arguments(format!("partition {} has no accuracy: {why}", partition.core.id()))
        };
        to.write(partition.core.accuracy().ok_or_else(unsupported)?.code() as Accuracy);
        Ok(())
    })
}

/// Says why a partition cannot be compiled; null if it can. The caller frees the text by
/// `sterna_string_destroy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_partition_get_unsupported_reason(
    partition: Option<&Partition>,
    text: Option<&mut MaybeUninit<*mut c_char>>,
) -> Status {
    ffi_guard(|| {
        let (partition, text) = (require(partition, "partition")?, require(text, "text")?);
        match partition.core.unsupported_reason() {
            Some(reason) => string::into_c_string(&reason, text, None),
            None => {
                text.write(std::ptr::null_mut());
            }
        }
        Ok(())
    })
}

/// Reads the kind of engine that a partition is for: always `cpu`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_partition_get_engine_kind(
    partition: Option<&Partition>,
    kind: Option<&mut MaybeUninit<EngineKind>>,
) -> Status {
    ffi_guard(|| {
        require(partition, "partition")?;
        require(kind, "kind")?.write(CPU);
        Ok(())
    })
}

/// Compiles a partition for concrete tensors and an engine.
///
/// The tensors have the ids of the ports, in any order; a tensor that is no port is ignored. Inputs have
/// known dims and strides. The dims of an output may be unknown, and its layout may be `any`;
/// `sterna_compiled_partition_query_logical_tensor` then tells dims and strides.
///
/// `invalid_arguments` for a partition that is not supported, a port without a tensor, an input whose dims or
/// strides are not known, and an output whose strides overlap; `invalid_data_type` for a type that differs
/// from the type in the graph; `invalid_shape` for shapes that clash, and for a value of more bytes than can
/// be addressed; of a product, a row or attention, of more than 2^48 elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_partition_compile(
    partition: Option<&Partition>,
    compiled_partition: Option<&mut CompiledPartition>,
    in_num: usize,
    inputs: *const Option<&LogicalTensor>,
    out_num: usize,
    outputs: *const Option<&LogicalTensor>,
    engine: *const Engine,
) -> Status {
    ffi_guard(|| {
        let partition = require(partition, "partition")?;
        let compiled_partition = require(compiled_partition, "compiled_partition")?;
        // SAFETY: the caller promises so many pointers to descriptions, and that the engine is alive.
        let (inputs, outputs, engine) = unsafe {
            (array(inputs, in_num, "inputs")?, array(outputs, out_num, "outputs")?, engine::share(engine)?)
        };
        let descs = |given: &[Option<&LogicalTensor>], name| -> Result<Vec<_>, Fault> {
            let descs = given.iter().enumerate();
            descs.map(|(index, desc)| require_at(*desc, name, index)?.to_core()).collect()
        };
        let (inputs, outputs) = (descs(inputs, "inputs")?, descs(outputs, "outputs")?);
        let started = verbose::is_on().then(Instant::now);
        let compiled = partition.core.compile_for(engine.core(), &inputs, &outputs)?;
        compiled_partition.fill(compiled, engine);
        if let Some(started) = started {
            verbose::line("compile", &partition.core, compiled_partition.core()?, started.elapsed());
        }
        dump::subgraph(&partition.core, compiled_partition.core()?);
        Ok(())
    })
}
