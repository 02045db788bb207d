//! Compiled partitions: what is executed.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::time::Instant;

use crate::engine::{self, Engine};
use crate::fallback::Fallback;
use crate::ffi::{Fault, array, ffi_guard, require, require_at, text};
use crate::handle::Partition;
pub use crate::handle::{CompiledPartition, InplacePair, MaskTileCounts};
use crate::logical_tensor::LogicalTensor;
use crate::phase_kind::PhaseKind;
use crate::status::Status;
use crate::stream::Stream;
use crate::tensor::{Inputs, Outputs, Tensor};
use crate::{string, verbose};

/// Makes an object for `sterna_partition_compile` to fill.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_compiled_partition_create(
    compiled_partition: Option<&mut MaybeUninit<Box<CompiledPartition>>>,
    partition: Option<&Partition>,
) -> Status {
    ffi_guard(|| {
        let compiled_partition = require(compiled_partition, "compiled_partition")?;
        let partition = require(partition, "partition")?.core().clone();
        compiled_partition.write(Box::new(CompiledPartition::new(partition)));
        Ok(())
    })
}

/// Destroys a compiled partition. Null is fine; destroying one twice is an error of the caller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_compiled_partition_destroy(
    compiled_partition: Option<Box<CompiledPartition>>,
) -> Status {
    ffi_guard(|| {
        drop(compiled_partition);
        Ok(())
    })
}

/// Runs a compiled partition and returns when its outputs are written.
///
/// Tensors are found by id, in any order; a tensor that is no port is ignored. Each tensor has memory for all
/// its elements, unless it is empty. During the call nobody writes to inputs, and nobody else uses outputs.
/// An output may be the very memory of an input if `sterna_compiled_partition_get_inplace_ports` names the
/// two.
///
/// `invalid_arguments`, before anything is written, for a port without a tensor, a tensor without memory, of
/// another type, other dims, strides or another engine than was compiled for, a stream of another engine, and
/// for any other overlap. `out_of_memory` if the allocator of the engine gives no scratch memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_compiled_partition_execute(
    compiled_partition: Option<&CompiledPartition>,
    stream: Option<&Stream>,
    num_inputs: usize,
    inputs: *const Option<&Tensor>,
    num_outputs: usize,
    outputs: *const Option<&Tensor>,
) -> Status {
    // SAFETY: the caller promises so many pointers to tensors, and what their memory is.
    ffi_guard(|| unsafe {
        let (inputs, outputs) =
            (array(inputs, num_inputs, "inputs")?, array(outputs, num_outputs, "outputs")?);
        execute(compiled_partition, stream, inputs, outputs, None)
    })
}

/// As `sterna_compiled_partition_execute`, with scratch memory from the caller: a tensor as
/// `sterna_compiled_partition_get_scratchpad_logical_tensor` describes it. During the call nobody else uses
/// its memory. If it is null, the library allocates.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_compiled_partition_execute_with_scratchpad(
    compiled_partition: Option<&CompiledPartition>,
    stream: Option<&Stream>,
    num_inputs: usize,
    inputs: *const Option<&Tensor>,
    num_outputs: usize,
    outputs: *const Option<&Tensor>,
    scratchpad: Option<&Tensor>,
) -> Status {
    // SAFETY: the caller promises so many pointers to tensors, and what their memory is.
    ffi_guard(|| unsafe {
        let (inputs, outputs) =
            (array(inputs, num_inputs, "inputs")?, array(outputs, num_outputs, "outputs")?);
        execute(compiled_partition, stream, inputs, outputs, scratchpad)
    })
}

/// # Safety
///
/// The memory of the tensors is as `sterna_compiled_partition_execute` requires.
#[inline]
unsafe fn execute(
    compiled_partition: Option<&CompiledPartition>,
    stream: Option<&Stream>,
    inputs: &[Option<&Tensor>],
    outputs: &[Option<&Tensor>],
    scratchpad: Option<&Tensor>,
) -> Result<(), Fault> {
    let compiled_partition = require(compiled_partition, "compiled_partition")?;
    let (compiled, stream) = (compiled_partition.core()?, require(stream, "stream")?.core());
    let (mut sources, mut targets) = (Inputs::new(), Outputs::new());
    for (index, input) in inputs.iter().enumerate() {
        // SAFETY: as the caller promises.
        unsafe { require_at(*input, "inputs", index)?.add_to_inputs(&mut sources) }?;
    }
    for (index, output) in outputs.iter().enumerate() {
        // SAFETY: as the caller promises.
        unsafe { require_at(*output, "outputs", index)?.add_to_outputs(&mut targets) }?;
    }
    let started = verbose::is_on().then(Instant::now);
    match scratchpad {
        Some(scratchpad) => {
            let scratchpad = scratch_memory(compiled, scratchpad, inputs.iter().chain(outputs))?;
            // SAFETY: the caller promises that so many bytes are there and that nobody else uses them; no
            // tensor of this execution does, as was just seen.
            let scratchpad = unsafe { &mut *scratchpad };
            compiled.execute_with_scratchpad(stream, &sources, &mut targets, scratchpad)?;
        }
        None => compiled.execute(stream, &sources, &mut targets)?,
    }
    if let Some(started) = started {
        verbose::line("execute", &compiled_partition.partition, compiled, started.elapsed());
    }
    Ok(())
}

/// The memory of a scratchpad, once it is found to overlap no other tensor.
fn scratch_memory<'a>(
    compiled: &sterna::CompiledPartition,
    scratchpad: &Tensor,
    tensors: impl Iterator<Item = &'a Option<&'a Tensor>>,
) -> Result<*mut [MaybeUninit<u8>], Fault> {
    let bytes = |tensor: &Tensor| {
        let size = tensor.desc().span().zip(tensor.desc().data_type().size());
        let (start, size) = (tensor.address().addr(), size.map_or(0, |(span, size)| span * size));
        start..start.saturating_add(if tensor.address().is_null() { 0 } else { size })
    };
    let own = bytes(scratchpad);
    if scratchpad.is_const() {
        return Err(Fault::invalid_arguments("the scratchpad is made on constant memory"));
    }
    if scratchpad.desc().data_type() != sterna::DataType::U8 {
        return Err(Fault::invalid_arguments("the scratchpad is not of type u8"));
    }
    if !scratchpad.is_of(compiled.engine()) {
        return Err(Fault::invalid_arguments("the scratchpad belongs to another engine"));
    }
    for tensor in tensors.flatten() {
        let other = bytes(tensor);
        if !other.is_empty() && own.start < other.end && other.start < own.end {
            let id = tensor.desc().id();
            return Err(Fault::invalid_arguments(format!("the scratchpad overlaps tensor {id} in memory")));
        }
    }
    let address = if own.is_empty() { NonNull::dangling().as_ptr() } else { scratchpad.address() };
    Ok(ptr::slice_from_raw_parts_mut(address.cast(), own.len()))
}

/// Describes the scratch memory that `sterna_compiled_partition_execute_with_scratchpad` takes: id SIZE_MAX,
/// type u8, one dim, which is the number of bytes and may be 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_compiled_partition_get_scratchpad_logical_tensor(
    compiled_partition: Option<&CompiledPartition>,
    logical_tensor: Option<&mut MaybeUninit<LogicalTensor>>,
) -> Status {
    ffi_guard(|| {
        let compiled = require(compiled_partition, "compiled_partition")?.core()?;
        let logical_tensor = require(logical_tensor, "logical_tensor")?;
        let size = compiled.scratchpad_size() as i64;
        let core = sterna::LogicalTensor::strided(usize::MAX, sterna::DataType::U8, &[size])?
            .with_property(sterna::Property::Variable)?;
        logical_tensor.write(LogicalTensor::from_core(&core));
        Ok(())
    })
}

/// Counts the tiles of masked scores that an execution with these inputs would leave out, and the others. All
/// counts are 0 if the partition has no attention, or if nothing masks its scores.
///
/// Inputs are found by id, in any order. Only those from which the mask is computed are needed and read;
/// nothing else of the partition is computed. During the call nobody writes to them.
///
/// `invalid_arguments` for an input that is needed and is missing, has no memory, or is of another type,
/// other dims, strides or another engine than was compiled for. `out_of_memory` if the allocator of the
/// engine gives no memory for the table of tiles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_compiled_partition_count_mask_tiles(
    compiled_partition: Option<&CompiledPartition>,
    num_inputs: usize,
    inputs: *const Option<&Tensor>,
    counts: Option<&mut MaybeUninit<MaskTileCounts>>,
) -> Status {
    // SAFETY: the caller promises so many pointers to tensors, and what their memory is.
    ffi_guard(|| unsafe {
        let compiled = require(compiled_partition, "compiled_partition")?.core()?;
        let counts = require(counts, "counts")?;
        let mut sources = Inputs::new();
        for (index, input) in array(inputs, num_inputs, "inputs")?.iter().enumerate() {
            require_at(*input, "inputs", index)?.add_to_inputs(&mut sources)?;
        }
        let tiles = compiled.mask_tiles(&sources)?;
        let count = |class| tiles.as_ref().map_or(0, |tiles| tiles.count(class));
        counts.write(MaskTileCounts {
            masked: count(sterna::TileClass::Masked),
            constant: count(sterna::TileClass::Constant),
            full: count(sterna::TileClass::Full),
            partial: count(sterna::TileClass::Partial),
        });
        Ok(())
    })
}

/// Reads the tensor of a port as it was compiled, with its dims and strides. `invalid_arguments` for an id
/// that no port has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_compiled_partition_query_logical_tensor(
    compiled_partition: Option<&CompiledPartition>,
    id: usize,
    logical_tensor: Option<&mut MaybeUninit<LogicalTensor>>,
) -> Status {
    ffi_guard(|| {
        let compiled = require(compiled_partition, "compiled_partition")?.core()?;
        let logical_tensor = require(logical_tensor, "logical_tensor")?;
        logical_tensor.write(LogicalTensor::from_core(compiled.port(id)?));
        Ok(())
    })
}

/// As `sterna_compiled_partition_query_logical_tensor`, by the name that the port has in the schema of its
/// op, such as `cond` or `dst`. An input has the name of the first port of an op that takes it.
/// `invalid_arguments` for a name that no port, or more than one, has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_compiled_partition_query_logical_tensor_by_name(
    compiled_partition: Option<&CompiledPartition>,
    name: *const c_char,
    logical_tensor: Option<&mut MaybeUninit<LogicalTensor>>,
) -> Status {
    ffi_guard(|| {
        let compiled = require(compiled_partition, "compiled_partition")?.core()?;
        // SAFETY: the caller promises text that ends with a zero.
        let name = unsafe { text(name, "name") }?;
        let logical_tensor = require(logical_tensor, "logical_tensor")?;
        logical_tensor.write(LogicalTensor::from_core(compiled.port(name)?));
        Ok(())
    })
}

/// Reads the engine for which a compiled partition was compiled. The compiled partition owns the engine: the
/// caller does not destroy it, and it is valid until the compiled partition is destroyed or compiled anew.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_compiled_partition_get_engine(
    compiled_partition: Option<&CompiledPartition>,
    engine: Option<&mut MaybeUninit<*mut Engine>>,
) -> Status {
    ffi_guard(|| {
        let own = require(compiled_partition, "compiled_partition")?.engine()?;
        require(engine, "engine")?.write(engine::handle(own));
        Ok(())
    })
}

/// Reads the pairs of an input and an output that may share one buffer. They belong to the compiled
/// partition, until it is destroyed or compiled anew; if there is none, the pointer is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_compiled_partition_get_inplace_ports(
    compiled_partition: Option<&CompiledPartition>,
    num_inplace_pairs: Option<&mut MaybeUninit<usize>>,
    inplace_pairs: Option<&mut MaybeUninit<*const InplacePair>>,
) -> Status {
    ffi_guard(|| {
        let compiled_partition = require(compiled_partition, "compiled_partition")?;
        let num = require(num_inplace_pairs, "num_inplace_pairs")?;
        let to = require(inplace_pairs, "inplace_pairs")?;
        compiled_partition.core()?;
        let pairs = &compiled_partition.inplace_pairs;
        num.write(pairs.len());
        to.write(if pairs.is_empty() { ptr::null() } else { pairs.as_ptr() });
        Ok(())
    })
}

fn plan_of(compiled_partition: Option<&CompiledPartition>) -> Result<sterna::PlanSummary, Fault> {
    Ok(require(compiled_partition, "compiled_partition")?.core()?.plan())
}

fn phase_of(
    compiled_partition: Option<&CompiledPartition>,
    index: usize,
) -> Result<sterna::NestSummary, Fault> {
    let mut phases = plan_of(compiled_partition)?.nests;
    let count = phases.len();
    match index < count {
        true => Ok(phases.swap_remove(index)),
        false => Err(Fault::invalid_arguments(format!("there are {count} phases, and none is {index}"))),
    }
}

/// Describes what an execution does, phase by phase, as text whose form may change from version to version.
/// The caller frees the text by `sterna_string_destroy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_compiled_partition_get_plan(
    compiled_partition: Option<&CompiledPartition>,
    text: Option<&mut MaybeUninit<*mut c_char>>,
) -> Status {
    ffi_guard(|| {
        let (plan, text) = (plan_of(compiled_partition)?, require(text, "text")?);
        string::into_c_string(&plan.to_string(), text, None);
        Ok(())
    })
}

/// Reads the bytes that an execution reads and writes, each distinct element counted once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_compiled_partition_get_bytes_moved(
    compiled_partition: Option<&CompiledPartition>,
    bytes: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        let compiled = require(compiled_partition, "compiled_partition")?.core()?;
        require(bytes, "bytes")?.write(compiled.bytes_moved());
        Ok(())
    })
}

/// Reads the floating-point operations of an execution: two for each multiplication with its addition in a
/// product, one for each other function of an element. Those of branches that may be skipped count; moves,
/// comparisons and selects do not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_compiled_partition_get_flops(
    compiled_partition: Option<&CompiledPartition>,
    flops: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        let (plan, flops) = (plan_of(compiled_partition)?, require(flops, "flops")?);
        flops.write(plan.flops);
        Ok(())
    })
}

/// Reads the bytes of scratch memory of each thread of an execution. Together with the internal buffers they
/// are the memory that `sterna_compiled_partition_get_scratchpad_logical_tensor` describes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_compiled_partition_get_scratch_per_thread(
    compiled_partition: Option<&CompiledPartition>,
    bytes: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        let (plan, bytes) = (plan_of(compiled_partition)?, require(bytes, "bytes")?);
        bytes.write(plan.scratch_per_thread);
        Ok(())
    })
}

/// Reads the bytes of the internal buffers of an execution, through which phases hand tensors to later ones.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_compiled_partition_get_buffer_bytes(
    compiled_partition: Option<&CompiledPartition>,
    bytes: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        let (plan, bytes) = (plan_of(compiled_partition)?, require(bytes, "bytes")?);
        bytes.write(plan.buffer_bytes);
        Ok(())
    })
}

/// Reads the number of phases of an execution, each of which begins when the one before it has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_compiled_partition_get_phase_num(
    compiled_partition: Option<&CompiledPartition>,
    num: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        let (plan, num) = (plan_of(compiled_partition)?, require(num, "num")?);
        num.write(plan.nests.len());
        Ok(())
    })
}

/// Reads what a phase computes. `index` is less than what `sterna_compiled_partition_get_phase_num` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_compiled_partition_get_phase_kind(
    compiled_partition: Option<&CompiledPartition>,
    index: usize,
    kind: Option<&mut MaybeUninit<PhaseKind>>,
) -> Status {
    ffi_guard(|| {
        let (phase, kind) = (phase_of(compiled_partition, index)?, require(kind, "kind")?);
        kind.write(phase.kind.code() as PhaseKind);
        Ok(())
    })
}

/// Reads the number of tasks of a phase, which may run in any order and on any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_compiled_partition_get_phase_tasks(
    compiled_partition: Option<&CompiledPartition>,
    index: usize,
    tasks: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        let (phase, tasks) = (phase_of(compiled_partition, index)?, require(tasks, "tasks")?);
        tasks.write(phase.tasks);
        Ok(())
    })
}

/// Reads the part of a phase in what `sterna_compiled_partition_get_flops` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_compiled_partition_get_phase_flops(
    compiled_partition: Option<&CompiledPartition>,
    index: usize,
    flops: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        let (phase, flops) = (phase_of(compiled_partition, index)?, require(flops, "flops")?);
        flops.write(phase.flops);
        Ok(())
    })
}

/// Reads the bytes of scratch memory that a thread needs for a phase.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_compiled_partition_get_phase_scratch(
    compiled_partition: Option<&CompiledPartition>,
    index: usize,
    bytes: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        let (phase, bytes) = (phase_of(compiled_partition, index)?, require(bytes, "bytes")?);
        bytes.write(phase.scratch);
        Ok(())
    })
}

/// Reads the fast forms that the plan did not take, and why. They belong to the compiled partition, until it
/// is destroyed or compiled anew; if there is none, the pointer is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_compiled_partition_get_fallbacks(
    compiled_partition: Option<&CompiledPartition>,
    num_fallbacks: Option<&mut MaybeUninit<usize>>,
    fallbacks: Option<&mut MaybeUninit<*const Fallback>>,
) -> Status {
    ffi_guard(|| {
        let compiled_partition = require(compiled_partition, "compiled_partition")?;
        let num = require(num_fallbacks, "num_fallbacks")?;
        let to = require(fallbacks, "fallbacks")?;
        let fallbacks = compiled_partition.fallbacks()?;
        num.write(fallbacks.len());
        to.write(if fallbacks.is_empty() { ptr::null() } else { fallbacks.as_ptr() });
        Ok(())
    })
}

/// Reads the capacity of the cache of plans of compiled partitions; 1024 unless it was set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_compiled_partition_cache_get_capacity(
    capacity: Option<&mut MaybeUninit<c_int>>,
) -> Status {
    ffi_guard(|| {
        let plans = sterna::compiled_partition_cache_capacity();
        require(capacity, "capacity")?.write(c_int::try_from(plans).unwrap_or(c_int::MAX));
        Ok(())
    })
}

/// Sets the capacity of the cache of plans of compiled partitions, for the whole process; 0 keeps none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_compiled_partition_cache_set_capacity(capacity: c_int) -> Status {
    ffi_guard(|| {
        let plans = usize::try_from(capacity);
        let plans = plans.map_err(|_| Fault::invalid_arguments(format!("{capacity} is no capacity")))?;
        sterna::set_compiled_partition_cache_capacity(plans);
        Ok(())
    })
}
