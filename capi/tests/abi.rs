//! Promise: what a C compiler makes of the header is what the library was built for: sizes, offsets and
//! numbers.

mod common;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::mem::{align_of, offset_of, size_of};
use std::process::Command;

use common::{compile, header_path, report, scratch_folder, succeeded};
use sterna_capi::attention::{AttentionBackwardOptions, AttentionOptions};
use sterna_capi::compiled_partition::{InplacePair, MaskTileCounts};
use sterna_capi::custom_op::CustomOp;
use sterna_capi::engine::EngineOptions;
use sterna_capi::fallback::Fallback;
use sterna_capi::logical_tensor::{Layout, LogicalTensor};
use sterna_capi::model::ModelPort;
use sterna_capi::named_view::{NamedDims, NamedView, NamedViewMut};
use sterna_capi::profiler::{ExecutionProfile, PhaseProfile, ProfiledOp, Profiler};
use sterna_capi::session::SessionOptions;
use sterna_capi::state_link::StateLink;
use sterna_capi::version::Version;
use sterna_capi::view::{View, ViewMut};

/// A field as C writes it, with its offset and its size in Rust.
type Field = (&'static str, usize, usize);

macro_rules! fields {
    ($Struct:ty: $($field:ident),*) => {
        vec![$((stringify!($field), offset_of!($Struct, $field), {
            fn size<S, F>(_: fn(&S) -> &F) -> usize {
                size_of::<F>()
            }
            size(|value: &$Struct| &value.$field)
        })),*]
    };
}

/// A struct as C writes it, with its size and its alignment in Rust, and its fields.
type Struct = (&'static str, usize, usize, Vec<Field>);

macro_rules! row {
    ($name:literal, $Struct:ty, $fields:expr) => {
        ($name, size_of::<$Struct>(), align_of::<$Struct>(), $fields)
    };
}

fn structs() -> Vec<Struct> {
    [structs_of_partitions(), structs_of_sessions()].concat()
}

/// Each struct of partitions and their tensors.
fn structs_of_partitions() -> Vec<Struct> {
    vec![
        row!(
            "sterna_logical_tensor_t",
            LogicalTensor,
            fields!(LogicalTensor: id, ndims, dims, data_type, property, layout_type, layout)
        ),
        row!(
            "sterna_layout_t",
            Layout,
            vec![
                ("strides", offset_of!(Layout, strides), size_of::<[i64; 12]>()),
                ("layout_id", offset_of!(Layout, layout_id), size_of::<usize>()),
            ]
        ),
        row!("sterna_inplace_pair_t", InplacePair, fields!(InplacePair: input_id, output_id)),
        row!("sterna_fallback_t", Fallback, fields!(Fallback: form, reason, op_id)),
        row!(
            "sterna_mask_tile_counts_t",
            MaskTileCounts,
            fields!(MaskTileCounts: masked, constant, full, partial)
        ),
        row!(
            "sterna_version_t",
            Version,
            fields!(Version: major, minor, patch, hash, cpu_runtime, gpu_runtime)
        ),
        row!(
            "sterna_engine_options_t",
            EngineOptions,
            fields!(EngineOptions: struct_size, allocator, profiler, threads, sleep_at_once)
        ),
        row!(
            "sterna_attention_options_t",
            AttentionOptions,
            fields!(AttentionOptions: struct_size, q, k, v, dst, first_op_id, first_tensor_id, bias, mask,
                offset, stats, scale, causal, mask_true, window, groups, softcap, k_transposed,
                nan_without_keys, score_type, sinks, cu_seqlens_q, cu_seqlens_kv, alibi,
                block_table, lengths, k_scales, k_zero_points, v_scales, v_zero_points)
        ),
        row!(
            "sterna_attention_backward_options_t",
            AttentionBackwardOptions,
            fields!(AttentionBackwardOptions: struct_size, forward, d_dst, d_q, d_k, d_v)
        ),
        row!("sterna_profiler_t", Profiler, fields!(Profiler: phase, execution, user_data)),
        row!("sterna_profiled_op_t", ProfiledOp, fields!(ProfiledOp: kind, id)),
        row!(
            "sterna_phase_profile_t",
            PhaseProfile,
            fields!(PhaseProfile: op_num, ops, index, phase_num, kind, tasks, threads, bytes, flops,
                nanoseconds)
        ),
        row!(
            "sterna_execution_profile_t",
            ExecutionProfile,
            fields!(ExecutionProfile: op_num, ops, bytes, flops, nanoseconds)
        ),
    ]
}

/// The same for those of graphs that run as a whole.
fn structs_of_sessions() -> Vec<Struct> {
    vec![
        row!("sterna_view_t", View, fields!(View: data, data_type, ndims, dims, strides)),
        row!("sterna_view_mut_t", ViewMut, fields!(ViewMut: data, data_type, ndims, dims, strides)),
        row!("sterna_named_view_t", NamedView, fields!(NamedView: name, view)),
        row!("sterna_named_view_mut_t", NamedViewMut, fields!(NamedViewMut: name, view)),
        row!("sterna_named_dims_t", NamedDims, fields!(NamedDims: name, ndims, dims)),
        row!(
            "sterna_state_link_t",
            StateLink,
            fields!(StateLink: struct_size, past, present, axis, has_axis, capacity, window, is_fixed)
        ),
        row!("sterna_model_port_t", ModelPort, fields!(ModelPort: names, name_num, tensor)),
        row!(
            "sterna_custom_op_t",
            CustomOp,
            fields!(CustomOp: struct_size, name, infer, run, user_data, release)
        ),
        row!(
            "sterna_session_options_t",
            SessionOptions,
            fields!(SessionOptions: struct_size, shapes, arenas, op_num, ops, fpmath_mode,
                fpmath_apply_to_int, link_num, links, find_states)
        ),
    ]
}

/// Numbers that compiled clients of oneDNN's graph interface hold, by what its headers say of 64-bit
/// machines.
const KNOWN: &[(&str, i64)] = &[
    ("sizeof sterna_logical_tensor_t", 224),
    ("offsetof sterna_logical_tensor_t.id", 0),
    ("offsetof sterna_logical_tensor_t.ndims", 8),
    ("offsetof sterna_logical_tensor_t.dims", 16),
    ("offsetof sterna_logical_tensor_t.data_type", 112),
    ("offsetof sterna_logical_tensor_t.property", 116),
    ("offsetof sterna_logical_tensor_t.layout_type", 120),
    ("offsetof sterna_logical_tensor_t.layout", 128),
    ("sizeof sterna_fallback_t", 16),
    ("sizeof sterna_inplace_pair_t", 16),
    ("sizeof sterna_version_t", 32),
    ("STERNA_STATUS_OUT_OF_MEMORY", 1),
    ("STERNA_STATUS_RUNTIME_ERROR", 5),
    ("STERNA_STATUS_INVALID_GRAPH", 7),
    ("STERNA_STATUS_INVALID_DATA_TYPE", 10),
    ("STERNA_DATA_TYPE_F32", 3),
    ("STERNA_DATA_TYPE_BOOLEAN", 8),
    ("STERNA_DATA_TYPE_S64", 16),
    ("STERNA_DATA_TYPE_U64", 0x104),
    ("STERNA_LAYOUT_TYPE_STRIDED", 2),
    ("STERNA_TENSOR_PROPERTY_HOST_SCALAR", 3),
    ("STERNA_OP_MATMUL", 39),
    ("STERNA_OP_SELECT", 81),
    ("STERNA_OP_DROPOUT", 87),
    ("STERNA_ATTR_AXIS", 0x30),
    ("STERNA_ATTR_AUTO_BROADCAST", 0x80),
    ("STERNA_ENGINE_KIND_CPU", 1),
    ("STERNA_STREAM_FLAG_OUT_OF_ORDER", 2),
    ("STERNA_FPMATH_MODE_TF32", 4),
    ("STERNA_PARTITION_POLICY_FUSION", 1),
    ("STERNA_PARTITION_POLICY_DEBUG", 2),
    ("STERNA_CPU_ISA_AVX512_CORE_AMX_FP16", 0x1fef),
    ("STERNA_DUMP_MODE_GRAPH", 2),
    ("STERNA_UNKNOWN_DIM", i64::MIN),
    ("STERNA_MAX_NDIMS", 12),
    ("STERNA_MEMORY_ALLOCATE", -1),
    ("STERNA_MEMORY_NONE", 0),
];

/// Rust's answers, by the words with which the C program prints its own.
fn of_rust() -> BTreeMap<String, i64> {
    let mut facts = BTreeMap::new();
    for (name, size, align, fields) in structs() {
        facts.insert(format!("sizeof {name}"), size as i64);
        facts.insert(format!("alignof {name}"), align as i64);
        for (field, offset, size) in fields {
            facts.insert(format!("offsetof {name}.{field}"), offset as i64);
            facts.insert(format!("sizeof {name}.{field}"), size as i64);
        }
    }
    facts.extend(types().into_iter().map(|(name, size)| (format!("sizeof {name}"), size as i64)));
    facts
}

/// The scalar types of the header.
fn types() -> Vec<(&'static str, usize)> {
    use sterna_capi::{
        accuracy, attention, cpu_isa, data_type, dump, engine, fallback, fpmath_mode, graph, level,
        logical_tensor, op, phase_kind, status, stream,
    };
    vec![
        ("sterna_accuracy_t", size_of::<accuracy::Accuracy>()),
        ("sterna_causal_t", size_of::<attention::Causal>()),
        ("sterna_cpu_isa_t", size_of::<cpu_isa::CpuIsa>()),
        ("sterna_data_type_t", size_of::<data_type::DataType>()),
        ("sterna_dump_mode_t", size_of::<dump::DumpMode>()),
        ("sterna_engine_kind_t", size_of::<engine::EngineKind>()),
        ("sterna_fallback_reason_t", size_of::<fallback::FallbackReason>()),
        ("sterna_fast_form_t", size_of::<fallback::FastForm>()),
        ("sterna_fpmath_mode_t", size_of::<fpmath_mode::FpMathMode>()),
        ("sterna_layout_type_t", size_of::<logical_tensor::LayoutType>()),
        ("sterna_level_t", size_of::<level::Level>()),
        ("sterna_mask_true_t", size_of::<attention::MaskTrue>()),
        ("sterna_op_attr_t", size_of::<op::OpAttr>()),
        ("sterna_op_kind_t", size_of::<op::OpKind>()),
        ("sterna_partition_policy_t", size_of::<graph::PartitionPolicy>()),
        ("sterna_phase_kind_t", size_of::<phase_kind::PhaseKind>()),
        ("sterna_status_t", size_of::<status::Status>()),
        ("sterna_stream_flags_t", size_of::<stream::StreamFlags>()),
        ("sterna_tensor_property_t", size_of::<logical_tensor::TensorProperty>()),
    ]
}

/// The names of all constants of the header.
fn constants(header: &str) -> Vec<&str> {
    let enumerators = header.lines().filter_map(|line| line.trim().split_once(" = ").map(|(name, _)| name));
    let macros = header.lines().filter_map(|line| line.strip_prefix("#define ")?.split_once(' '));
    let names = enumerators.chain(macros.map(|(name, _)| name));
    names.filter(|name| name.starts_with("STERNA_")).collect()
}

#[test]
fn c_and_rust_agree() {
    let header = fs::read_to_string(header_path()).unwrap();
    let mut program = String::from(
        "#include <stdio.h>\n#include <sterna.h>\n\
         #define SAY(what, value) printf(\"%s=%lld\\n\", what, (long long)(value))\n\
         #define ALIGNED(type) struct aligned_##type { char first; type second; }\n",
    );
    for (name, ..) in structs() {
        writeln!(program, "ALIGNED({name});").unwrap();
    }
    program.push_str("int main(void) {\n");
    for (name, _, _, fields) in structs() {
        writeln!(program, "SAY(\"sizeof {name}\", sizeof({name}));").unwrap();
        writeln!(program, "SAY(\"alignof {name}\", offsetof(struct aligned_{name}, second));").unwrap();
        for (field, ..) in fields {
            writeln!(program, "SAY(\"offsetof {name}.{field}\", offsetof({name}, {field}));").unwrap();
            writeln!(program, "SAY(\"sizeof {name}.{field}\", sizeof((({name} *)0)->{field}));").unwrap();
        }
    }
    for (name, _) in types() {
        writeln!(program, "SAY(\"sizeof {name}\", sizeof({name}));").unwrap();
    }
    for name in constants(&header) {
        let value = if name.starts_with("STERNA_MEMORY") { format!("(intptr_t){name}") } else { name.into() };
        writeln!(program, "SAY(\"{name}\", {value});").unwrap();
    }
    program.push_str("return 0;\n}\n");

    let folder = scratch_folder("abi");
    let (source, binary) = (folder.join("abi.c"), folder.join("abi"));
    fs::write(&source, program).unwrap();
    compile(&source, &binary, &["-std=c99"]).unwrap();
    let output = String::from_utf8(succeeded(&mut Command::new(&binary)).unwrap().stdout).unwrap();
    let of_c: BTreeMap<&str, i64> = output
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(k, v)| (k, v.parse().unwrap()))
        .collect();

    let of_rust = of_rust();
    let rust_facts = of_rust.iter().map(|(what, value)| (what.as_str(), *value));
    let wrong: Vec<_> = rust_facts
        .chain(KNOWN.iter().copied().filter(|_| cfg!(target_pointer_width = "64")))
        .map(|(what, expected)| (what, expected, of_c.get(what).copied()))
        .filter(|(_, expected, found)| *found != Some(*expected))
        .collect();
    report(&wrong);
    assert!(of_c.len() > 250, "the header has constants, but only {} facts were printed", of_c.len());
}

/// Every struct and every scalar type of the header is compared.
#[test]
fn no_type_is_forgotten() {
    let header = fs::read_to_string(header_path()).unwrap();
    let structs = structs();
    let known: Vec<&str> =
        structs.iter().map(|(name, ..)| *name).chain(types().into_iter().map(|(name, _)| name)).collect();
    let mut wrong = Vec::new();
    for line in header.lines() {
        let name = match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["}", name] => name.trim_end_matches(';'),
            ["typedef", "int", name] | ["typedef", "unsigned", "int", name] => name.trim_end_matches(';'),
            _ => continue,
        };
        if !known.contains(&name) {
            wrong.push(name);
        }
    }
    report(&wrong);
}
