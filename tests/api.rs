//! Promise: the interface keeps to the checklist of the Rust API guidelines: names say what a function does
//! with its receiver, all types can be printed and sent, all errors are errors.

use std::error::Error as StdError;
use std::fmt::Debug;
use std::fs;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::path::Path;

use sterna::environment::{EnvironmentFault, Variable};
use sterna::reference::{Enclosure, Value};
use sterna::{
    Accuracy, ArenaBuffer, ArenaPlan, ArenaStep, Attention, AttentionBackward, AttentionFault, AttentionIds,
    Attr, AttrDefault, AttrRow, AttrType, AttrValue, AutoBroadcast, Bool8, BroadcastFault, CacheStats,
    Causal, Check, CompileFault, CompiledPartition, ConstantData, Count, CpuFeature, CpuFeatures, CpuIsa,
    CustomNode, DataType, Dims, Direction, DynView, DynViewMut, Engine, EngineBuilder, EngineKind, Error,
    ExecuteFault, ExecutionProfile, Explanation, F8E4m3, F8E5m2, FallbackReason, FallbackSummary, FastForm,
    FpMath, FpMathMode, FusionVerdict, Graph, GraphBuilder, GraphFault, GraphValue, InPlacePair, JsonFault,
    Layout, Level, LogicalTensor, LoopOver, LoopSummary, MaskTiles, MaskTrue, MaskedKeys, Mention, MissingOp,
    Model, ModelPort, NestSummary, Op, OpFault, OpId, OpKind, OpOptions, OpRef, PartialStrides, Partition,
    PhaseKind, PhaseProfile, PlanSummary, Policy, Port, PortFault, PortKey, PortRef, ProfiledOp, Property,
    RegisterFusionVerdict, Rewrite, RunProfile, RunSpan, Schema, SelectOptions, Session, SessionBuilder,
    SessionFault, SessionOutputs, SessionState, ShapeFault, ShapeRule, ShownValue, SpanKind, StateLink,
    Status, StepOperand, StepSummary, Stream, SystemAllocator, Tensor, TensorBuf, TensorFault, TensorId,
    TensorMut, TensorView, TensorViewMut, TileClass, UnknownName,
};

fn is_plain<T: Debug + Send + Sync + RefUnwindSafe>() {}
fn is_unwind_safe<T: UnwindSafe>() {}
fn is_error<T: StdError + Send + Sync + 'static>() {}

/// Calls a check for each type, and gives the names of the types.
macro_rules! each {
    ($check:ident: $( $Type:ident $(<$($argument:tt),*>)?, )*) => {{
        $( $check::<$Type $(<$($argument),*>)?>(); )*
        [$( stringify!($Type) ),*]
    }};
}

/// All types but those that stand for unique borrows, after whose unwinding memory may be half written.
fn types() -> Vec<&'static str> {
    let safe = each! { is_unwind_safe:
        Accuracy, Attention, AttentionBackward, AttentionFault, AttentionIds, Attr, AttrDefault, AttrRow,
        AttrType, AttrValue, AutoBroadcast, Bool8, BroadcastFault, CacheStats, Causal, Check, CompileFault,
        CompiledPartition, Count, CpuFeature, CpuFeatures, CpuIsa, DataType, Dims, Direction,
        DynView<'static>, Enclosure, Engine, EngineBuilder, EngineKind, EnvironmentFault, Error, ExecuteFault,
        ExecutionProfile<'static>, Explanation, FallbackReason, FallbackSummary, FastForm, F8E4m3, F8E5m2,
        FpMath, FpMathMode, FusionVerdict, Graph, GraphFault, InPlacePair, JsonFault, Layout, Level,
        LogicalTensor, LoopOver, LoopSummary, MaskTiles, MaskTrue, MaskedKeys, Mention, NestSummary, Op, OpFault, OpId,
        OpKind, OpRef, PartialStrides, Partition, PhaseKind, PhaseProfile<'static>, PlanSummary, Policy, Port,
        PortFault, PortKey<'static>, PortRef, Property, RegisterFusionVerdict, Rewrite, Schema, SelectOptions,
        ShapeFault, ShapeRule, Status, StepOperand, StepSummary, Stream, SystemAllocator, Tensor<'static>,
        TensorBuf, TensorFault, TensorId, TensorView<'static, f32>, TileClass, UnknownName, Value,
        Variable<usize>, ConstantData, CustomNode, GraphBuilder, GraphValue<'static>, MissingOp, Model, ModelPort, OpOptions, Session, SessionBuilder, SessionFault, SessionOutputs, SessionState, ShownValue, StateLink,
        ArenaBuffer, ArenaPlan, ArenaStep, ProfiledOp, RunProfile, RunSpan, SpanKind,
    };
    each! { is_plain:
        Accuracy, Attention, AttentionBackward, AttentionFault, AttentionIds, Attr, AttrDefault, AttrRow,
        AttrType, AttrValue, AutoBroadcast, Bool8, BroadcastFault, CacheStats, Causal, Check, CompileFault,
        CompiledPartition, Count, CpuFeature, CpuFeatures, CpuIsa, DataType, Dims, Direction,
        DynView<'static>, DynViewMut<'static>, Enclosure, Engine, EngineBuilder, EngineKind, EnvironmentFault,
        Error, ExecuteFault, ExecutionProfile<'static>, Explanation, FallbackReason, FallbackSummary,
        FastForm, F8E4m3, F8E5m2, FpMath, FpMathMode, FusionVerdict, Graph, GraphFault, InPlacePair,
        JsonFault, Layout, Level, LogicalTensor, LoopOver, LoopSummary, MaskTiles, MaskTrue, MaskedKeys, Mention,
        NestSummary, Op, OpFault, OpId, OpKind, OpRef, PartialStrides, Partition, PhaseKind,
        PhaseProfile<'static>, PlanSummary, Policy, Port, PortFault, PortKey<'static>, PortRef, Property,
        RegisterFusionVerdict, Rewrite, Schema, SelectOptions, ShapeFault, ShapeRule, Status, StepOperand, StepSummary,
        Stream, SystemAllocator, Tensor<'static>, TensorBuf, TensorFault, TensorId, TensorMut<'static>,
        TensorView<'static, f32>, TensorViewMut<'static, f32>, TileClass, UnknownName, Value, Variable<usize>, ConstantData, CustomNode, GraphBuilder, GraphValue<'static>, MissingOp, Model, ModelPort, OpOptions, Session, SessionBuilder, SessionFault, SessionOutputs, SessionState, ShownValue, StateLink,
        ArenaBuffer, ArenaPlan, ArenaStep, ProfiledOp, RunProfile, RunSpan, SpanKind,
    };
    let borrows = ["DynViewMut", "TensorMut", "TensorViewMut"];
    safe.into_iter().chain(borrows).collect()
}

fn errors() -> Vec<&'static str> {
    let errors = each! { is_error:
        AttentionFault, BroadcastFault, CompileFault, EnvironmentFault, Error, ExecuteFault, GraphFault,
        JsonFault, OpFault, PortFault, SessionFault, ShapeFault, TensorFault, UnknownName,
    };
    errors.into()
}

/// Public functions: names, receivers, what they return.
struct Signature {
    file: String,
    name: String,
    receiver: &'static str,
    returns: String,
}

/// Items behind `pub` in the sources; `unreachable_pub` keeps others from being called so.
fn sources() -> Vec<(String, String)> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push((path.display().to_string(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    files
}

fn signatures() -> Vec<Signature> {
    let mut found = Vec::new();
    for (file, text) in sources() {
        let starts = text.match_indices("pub ").map(|(start, _)| &text[start + 4..]);
        for item in starts {
            let item =
                ["const ", "unsafe "].iter().fold(item, |item, word| item.strip_prefix(word).unwrap_or(item));
            let Some(item) = item.strip_prefix("fn ") else { continue };
            let signature = &item[..item.find('{').unwrap_or(item.len())];
            let name_end = signature.find(['(', '<']).unwrap();
            let (parameters, returns) = signature.split_once("->").unwrap_or((signature, ""));
            let receivers = ["&mut self", "&self", "self"];
            let receiver = receivers.iter().find(|&&receiver| parameters.contains(receiver));
            found.push(Signature {
                file: file.clone(),
                name: signature[..name_end].into(),
                receiver: receiver.copied().unwrap_or(""),
                returns: returns.trim().into(),
            });
        }
    }
    found
}

type Rule = (&'static str, &'static str, fn(&Signature) -> bool);

const RULES: &[Rule] = &[
    ("get_", "a getter has the name of what it gets", |of| of.name == "get_attr"), // `attr` sets
    ("as_", "it borrows", |of| of.receiver.starts_with('&')),
    ("to_", "it leaves its receiver as it is", |of| of.receiver == "&self"),
    ("into_", "it takes its receiver", |of| of.receiver == "self"),
    ("from_", "it makes one of its type", |of| of.receiver.is_empty() && of.returns.contains("Self")),
    ("with_", "it makes one of its type", |of| of.returns.contains("Self")),
    ("is_", "it is a question", |of| of.returns == "bool"),
    ("has_", "it is a question", |of| of.returns == "bool"),
    ("set_", "it changes its receiver, or the process", |of| of.receiver != "&self" && of.receiver != "self"),
    ("iter", "it is an iterator", |of| of.returns.contains("Iterator")),
];

#[test]
fn names_say_what_functions_do_with_their_receiver() {
    let signatures = signatures();
    assert!(signatures.len() > 200, "{} functions", signatures.len());
    let broken = |of: &Signature| {
        RULES
            .iter()
            .filter(|(prefix, _, keeps)| of.name.starts_with(prefix) && !keeps(of))
            .map(|(_, rule, _)| {
                format!("{}: `{}({}…) -> {}`: {rule}", of.file, of.name, of.receiver, of.returns)
            })
            .next()
    };
    let wrong: Vec<String> = signatures.iter().filter_map(broken).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_type_is_checked() {
    let (types, errors) = (types(), errors());
    let mut wrong = Vec::new();
    for (file, text) in sources() {
        for line in text.lines().map(str::trim_start) {
            let item = line.strip_prefix("pub struct ").or(line.strip_prefix("pub enum "));
            let Some(name) = item.and_then(|item| item.split(|c: char| !c.is_alphanumeric()).next()) else {
                continue;
            };
            // A name of a macro, and a type of a feature that a build may lack.
            if name.is_empty() || name == "JsonNote" {
                continue;
            }
            if !types.contains(&name) {
                wrong.push(format!("{file}: `{name}` is not among the types of this test"));
            }
            if (name.ends_with("Fault") || name == "Error") && !errors.contains(&name) {
                wrong.push(format!("{file}: `{name}` is not among the errors of this test"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
