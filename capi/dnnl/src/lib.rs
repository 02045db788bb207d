//! libdnnl.so.3 for programs that were built for oneDNN Graph: the graph API of oneDNN, answered by Sterna.
//!
//! The functions of `sterna_capi` have the arguments, struct layouts and numbers of oneDNN's. So a name of
//! oneDNN's is a jump to the function that does the work, and the table below is all there is to it: it says
//! nothing of arguments that could differ from what they are there. What oneDNN has and `sterna.h` has not
//! stands behind the table, the names of numbers in `debug`, and in the other modules what the primitive API
//! has: memory objects, attributes and reorders work, all else is not implemented.

mod attr;
mod debug;
mod format_tag;
mod memory;
mod memory_desc;
mod nibbles;
mod post_ops;
mod primitive;
mod reorder;
mod service;
mod unimplemented;

use std::arch::naked_asm;
use std::ffi::c_int;
use std::mem::MaybeUninit;

use sterna_capi::ffi::{ffi_guard, require};
use sterna_capi::status::Status;
use sterna_capi::{
    allocator, compiled_partition, constant_tensor_cache, cpu_isa, dump, engine, fpmath_mode, graph,
    logical_tensor, op, partition, status, stream, tensor, verbose, version,
};

/// Goes on at another function, to which this one's arguments and return address are its own.
#[cfg(target_arch = "x86_64")]
macro_rules! go_on_at {
    ($function:path) => {
        naked_asm!("jmp {}", sym $function)
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! go_on_at {
    ($function:path) => {
        naked_asm!("b {}", sym $function)
    };
}

#[cfg(target_arch = "riscv64")]
macro_rules! go_on_at {
    ($function:path) => {
        naked_asm!("tail {}", sym $function)
    };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
compile_error!("`go_on_at` lacks this architecture's jump");

/// Exports a function under oneDNN's name for each function of Sterna's.
macro_rules! names {
    ($($name:ident => $function:path,)*) => {
        $(
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            extern "C" fn $name() {
                go_on_at!($function)
            }
        )*
    };
}

names! {
    dnnl_engine_get_count => engine::sterna_engine_get_count,
    dnnl_engine_create => engine::sterna_engine_create,
    dnnl_engine_get_kind => engine::sterna_engine_get_kind,
    dnnl_engine_destroy => engine::sterna_engine_destroy,
    dnnl_stream_create => stream::sterna_stream_create,
    dnnl_stream_get_engine => stream::sterna_stream_get_engine,
    dnnl_stream_wait => stream::sterna_stream_wait,
    dnnl_stream_destroy => stream::sterna_stream_destroy,
    dnnl_get_default_fpmath_mode => fpmath_mode::sterna_fpmath_mode_get_default,
    dnnl_set_default_fpmath_mode => fpmath_mode::sterna_fpmath_mode_set_default,
    dnnl_get_effective_cpu_isa => cpu_isa::sterna_cpu_isa_get_effective,
    dnnl_set_max_cpu_isa => cpu_isa::sterna_cpu_isa_set_max,
    dnnl_set_verbose => verbose::sterna_verbose_set,
    dnnl_status2str => status::sterna_status_string,

    dnnl_graph_allocator_create => allocator::sterna_allocator_create,
    dnnl_graph_allocator_destroy => allocator::sterna_allocator_destroy,
    dnnl_graph_make_engine_with_allocator => engine::create_with_allocator,

    dnnl_graph_logical_tensor_init => logical_tensor::sterna_logical_tensor_init,
    dnnl_graph_logical_tensor_init_with_dims => logical_tensor::sterna_logical_tensor_init_with_dims,
    dnnl_graph_logical_tensor_init_with_strides => logical_tensor::sterna_logical_tensor_init_with_strides,
    dnnl_graph_logical_tensor_get_mem_size => logical_tensor::sterna_logical_tensor_get_mem_size,
    dnnl_graph_logical_tensor_is_equal => logical_tensor::sterna_logical_tensor_is_equal,

    dnnl_graph_tensor_create => tensor::sterna_tensor_create,
    dnnl_graph_tensor_create_scalar => tensor::sterna_tensor_create_scalar,
    dnnl_graph_tensor_destroy => tensor::sterna_tensor_destroy,
    dnnl_graph_tensor_get_data_handle => tensor::sterna_tensor_get_data_handle,
    dnnl_graph_tensor_set_data_handle => tensor::sterna_tensor_set_data_handle,
    dnnl_graph_tensor_get_engine => tensor::sterna_tensor_get_engine,
    dnnl_graph_tensor_get_logical_tensor => tensor::sterna_tensor_get_logical_tensor,

    dnnl_graph_op_create => op::sterna_op_create,
    dnnl_graph_op_destroy => op::sterna_op_destroy,
    dnnl_graph_op_add_input => op::sterna_op_add_input,
    dnnl_graph_op_add_output => op::sterna_op_add_output,
    dnnl_graph_op_set_attr_f32 => op::sterna_op_set_attr_f32,
    dnnl_graph_op_set_attr_bool => op::sterna_op_set_attr_bool,
    dnnl_graph_op_set_attr_s64 => op::sterna_op_set_attr_s64,
    dnnl_graph_op_set_attr_str => op::sterna_op_set_attr_str,
    dnnl_graph_op_get_id => op::sterna_op_get_id,
    dnnl_graph_op_get_kind => op::sterna_op_get_kind,

    dnnl_graph_graph_create => graph::sterna_graph_create,
    dnnl_graph_graph_create_with_fpmath_mode => graph::sterna_graph_create_with_fpmath_mode,
    dnnl_graph_graph_destroy => graph::sterna_graph_destroy,
    dnnl_graph_graph_set_fpmath_mode => graph::sterna_graph_set_fpmath_mode,
    dnnl_graph_graph_get_fpmath_mode => graph::sterna_graph_get_fpmath_mode,
    dnnl_graph_add_op => graph::sterna_graph_add_op,
    dnnl_graph_graph_finalize => graph::sterna_graph_finalize,
    dnnl_graph_graph_is_finalized => graph::sterna_graph_is_finalized,
    dnnl_graph_graph_filter => graph::sterna_graph_filter,
    dnnl_graph_graph_get_partition_num => graph::sterna_graph_get_partition_num,
    dnnl_graph_graph_get_partitions => graph::sterna_graph_get_partitions,

    dnnl_graph_partition_create_with_op => partition::sterna_partition_create_with_op,
    dnnl_graph_partition_destroy => partition::sterna_partition_destroy,
    dnnl_graph_partition_get_op_num => partition::sterna_partition_get_op_num,
    dnnl_graph_partition_get_ops => partition::sterna_partition_get_ops,
    dnnl_graph_partition_get_id => partition::sterna_partition_get_id,
    dnnl_graph_partition_get_input_ports_num => partition::sterna_partition_get_input_ports_num,
    dnnl_graph_partition_get_input_ports => partition::sterna_partition_get_input_ports,
    dnnl_graph_partition_get_output_ports_num => partition::sterna_partition_get_output_ports_num,
    dnnl_graph_partition_get_output_ports => partition::sterna_partition_get_output_ports,
    dnnl_graph_partition_is_supported => partition::sterna_partition_is_supported,
    dnnl_graph_partition_get_engine_kind => partition::sterna_partition_get_engine_kind,
    dnnl_graph_partition_compile => partition::sterna_partition_compile,

    dnnl_graph_compiled_partition_create => compiled_partition::sterna_compiled_partition_create,
    dnnl_graph_compiled_partition_destroy => compiled_partition::sterna_compiled_partition_destroy,
    dnnl_graph_compiled_partition_execute => compiled_partition::sterna_compiled_partition_execute,
    dnnl_graph_compiled_partition_execute_v2 =>
        compiled_partition::sterna_compiled_partition_execute_with_scratchpad,
    dnnl_graph_compiled_partition_get_scratchpad_logical_tensor =>
        compiled_partition::sterna_compiled_partition_get_scratchpad_logical_tensor,
    dnnl_graph_compiled_partition_query_logical_tensor =>
        compiled_partition::sterna_compiled_partition_query_logical_tensor,
    dnnl_graph_compiled_partition_get_inplace_ports =>
        compiled_partition::sterna_compiled_partition_get_inplace_ports,
    dnnl_graph_get_compiled_partition_cache_capacity =>
        compiled_partition::sterna_compiled_partition_cache_get_capacity,
    dnnl_graph_set_compiled_partition_cache_capacity =>
        compiled_partition::sterna_compiled_partition_cache_set_capacity,

    dnnl_graph_get_constant_tensor_cache => constant_tensor_cache::sterna_constant_tensor_cache_get,
    dnnl_graph_set_constant_tensor_cache => constant_tensor_cache::sterna_constant_tensor_cache_set,
    dnnl_graph_get_constant_tensor_cache_capacity =>
        constant_tensor_cache::sterna_constant_tensor_cache_get_capacity,
    dnnl_graph_set_constant_tensor_cache_capacity =>
        constant_tensor_cache::sterna_constant_tensor_cache_set_capacity,

    dnnl_graph_set_dump_mode => dump::sterna_dump_mode_set,
}

/// Writes a value to where the caller wants it, if anywhere.
fn put<T>(to: Option<&mut MaybeUninit<T>>, value: T) {
    if let Some(to) = to {
        to.write(value);
    }
}

/// Turns the cache of constant tensors off, as oneDNN does unless a program sets its capacity.
extern "C" fn keep_no_constants() {
    constant_tensor_cache::set(engine::CPU, 0);
}

// SAFETY: the loader calls the functions of this section when it loads the library, before any other thread
// can call the library; this one stores a number, and does not unwind.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = keep_no_constants;

/// The version of oneDNN whose interface this is; `hash` says what answers.
static INTERFACE: version::Version = version::Version {
    major: 3,
    minor: 13,
    patch: 0,
    hash: version::NAME_AND_VERSION.as_ptr().cast(),
    cpu_runtime: version::THREAD_POOL,
    gpu_runtime: 0,
};

#[unsafe(no_mangle)]
extern "C" fn dnnl_version() -> *const version::Version {
    &INTERFACE
}

/// Lines of verbose levels above 0 say how long things took.
#[unsafe(no_mangle)]
extern "C" fn dnnl_verbose_profiling_enabled(enabled: Option<&mut MaybeUninit<c_int>>) -> Status {
    ffi_guard(|| {
        require(enabled, "enabled")?.write(verbose::is_on().into());
        Ok(())
    })
}
