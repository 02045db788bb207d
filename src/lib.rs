//! Graph partitions on CPU: masked attention and `Select`, the ternary choice `dst = cond ? then : else` with
//! broadcasting, at the cost of what the mask leaves.
//!
//! A graph travels through the library one way:
//!
//! - **describe** with [`LogicalTensor`], [`Op`] and [`Graph`]: ops on logical tensors, each checked against
//!   the schema of its kind;
//! - **partition** with [`Graph::partitions`] and [`Graph::explain`]: the graph comes back as [`Partition`]s,
//!   each of which runs or says why not;
//! - **compile** with [`Partition::compile`], or [`Partition::compile_for`] if shapes come late, to a
//!   [`CompiledPartition`]: for concrete shapes and layouts, every decision is made once and cached;
//! - **execute** on an [`Engine`] and a [`Stream`] with [`Tensor`], [`TensorMut`] and [`TensorBuf`]: memory
//!   is bound, checked, and written, from any number of threads.
//!
//! A single select needs none of this: [`select`](fn@select) is one call. The [`guide`] goes through all of
//! it, and has a [cookbook](guide::cookbook) and [what ops compute](guide::ops).
//!
//! Beside these layers there are [`Error`], which says what is wrong with which op and port; and the cache of
//! compiled partitions ([`compiled_partition_cache_stats`]).
//!
//! The names, numbers and rules are those of oneDNN Graph, so that a framework can hand over its whole graph.
//! If Sterna goes further ([`OpKind`], [`DataType`], [`AutoBroadcast`]), the documentation says so. `Select`
//! moves bits: every NaN payload, signed zero and denormal of every type arrives unchanged.
//!
//! ```
//! use sterna::{DataType, Engine, LogicalTensor, Op, Partition};
//!
//! let op = Op::select(
//!     0,
//!     LogicalTensor::strided(0, DataType::Boolean, &[3])?,
//!     LogicalTensor::strided(1, DataType::F32, &[2, 3])?,
//!     LogicalTensor::strided(2, DataType::F32, &[])?,
//!     LogicalTensor::unknown(3, DataType::F32),
//! );
//! let compiled = Partition::from_op(op)?.compile(&Engine::new())?;
//!
//! let inputs = [
//!     compiled.tensor("cond", &[true, false, true])?,
//!     compiled.tensor("then", &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?,
//!     compiled.tensor("else", &[f32::NEG_INFINITY])?,
//! ];
//! let mut result = [0.0f32; 6];
//! compiled.run(&inputs, &mut [compiled.tensor_mut("dst", &mut result)?])?;
//! assert_eq!(result, [1.0, f32::NEG_INFINITY, 3.0, 4.0, f32::NEG_INFINITY, 6.0]);
//! # Ok::<(), sterna::Error>(())
//! ```
//!
//! # At the cost of what the mask leaves
//!
#![doc = include_str!("../docs/attention.svg")]
//!
//! Attention without a mask and under eighteen masks, on one thread of an Emerald Rapids; [Beside
//! peers](guide::peers) has the figures.
//!
//! # Features
//!
//! - `threads`, on by default: executions on several threads, by rayon.
//! - `avx512`, on by default: kernels of level [`Level::Avx512`].
//! - `json`: graphs in the JSON format of oneDNN's graph dumps, and `serde` for [`OpId`] and [`TensorId`].
//! - `ndarray`: arrays of that crate are tensors and operands of [`select`](fn@select).
//! - `tracing`: partitioning, compilation, execution, and plans and runs of sessions are spans, slower ways
//!   events.
//! - `unstable`: what any release may change without a word. It is the module `reference`, a slow interpreter
//!   that a reader believes at sight; `Schema` and the types of its rows; `arithmetic_in_registers`, the
//!   speed of a core; and the capacities of the caches that engines of the process share, which
//!   [`EngineBuilder`] sets for one.
//!
//! # Types of other crates
//!
//! A new major version of one of these crates is a new major version of this one, since its types are in the
//! interface: `half` 2, whose `f16` and `bf16` are an [`Element`]; `smallvec` 1, of which [`Dims`] is;
//! with `threads`, `rayon` 1, whose `ThreadPool` [`EngineBuilder::pool`] takes; with `json`, `serde` 1. With
//! `ndarray`, arrays of versions 0.16 and 0.17: that range moves with any minor version. No other dependency
//! shows in the interface.
#![deny(unsafe_code)]
// Items that the feature `unstable` shows are there without it too, and nothing uses them.
#![cfg_attr(
    not(feature = "unstable"),
    allow(dead_code, unreachable_pub, unused_imports, reason = "the feature `unstable` shows it")
)]
// On docs.rs each item says which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
// The example of the README is compiled and run with the documentation tests.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

mod compile;
mod error;
mod execute;
mod graph;
#[cfg(any(doc, doctest))]
pub mod guide;
mod kernels;
mod partition;
mod plan;
#[cfg(feature = "unstable")]
pub mod reference;
#[cfg(not(feature = "unstable"))]
mod reference;
mod rewrite;
mod session;
mod types;

#[cfg(feature = "unstable")]
pub use compile::cache::set_compiled_partition_cache_capacity;
pub use compile::cache::{CacheStats, compiled_partition_cache_capacity, compiled_partition_cache_stats};
#[cfg(feature = "ndarray")]
pub use compile::select::select_array;
pub use compile::select::{SelectOptions, select, select_into};
pub use error::{
    AttentionFault, CompileFault, Direction, Error, ExecuteFault, GraphFault, JsonFault, Mention, MissingOp,
    OpFault, OpRef, PortFault, PortRef, Result, SessionFault, ShapeFault, ShownValue, Status, TensorFault,
};
pub use execute::compiled::{CompiledPartition, InPlacePair};
#[cfg(feature = "unstable")]
pub use execute::constant_budget::set_constant_cache_capacity;
pub use execute::constant_budget::{constant_cache_bytes, constant_cache_capacity};
pub use execute::dyn_view::{AsDynView, AsDynViewMut, DynView, DynViewMut};
pub use execute::engine::{Allocator, Engine, EngineBuilder, SystemAllocator};
pub use execute::port::PortKey;
pub use execute::profiler::{ExecutionProfile, PhaseProfile, Profiler};
pub use execute::stream::Stream;
pub use execute::tensor::{Tensor, TensorBuf, TensorMut};
pub use execute::view::{AsView, AsViewMut, TensorView, TensorViewMut};
pub use graph::attention::{Attention, AttentionIds};
pub use graph::attention_backward::AttentionBackward;
pub use graph::attention_positions::{Causal, MaskTrue};
pub use graph::builder::{GraphBuilder, GraphValue, OpOptions};
#[cfg(feature = "json")]
pub use graph::json::JsonNote;
pub use graph::logical_tensor::{Layout, LogicalTensor, PartialStrides};
pub use graph::model::{CustomNode, Model, ModelPort, ModelSource};
pub use graph::op::{AttrValue, Op};
#[cfg(feature = "unstable")]
pub use graph::row::{AttrDefault, AttrRow, AttrType, Check, Count, Port, Schema, ShapeRule};
pub use graph::{FpMath, Graph};
#[cfg(feature = "unstable")]
pub use kernels::peak::arithmetic_in_registers;
pub use partition::Partition;
pub use partition::fusion::{Accuracy, Explanation, FusionVerdict};
pub use plan::attention::tile_class::{MaskTiles, TileClass};
pub use plan::register_fusion::RegisterFusionVerdict;
pub use plan::summary::{
    FallbackSummary, LoopOver, LoopSummary, NestSummary, PlanSummary, StepOperand, StepSummary,
};
pub use session::{
    ArenaBuffer, ArenaPlan, ArenaStep, CustomOp, ProfiledOp, RunProfile, RunSpan, Session, SessionBuilder,
    SessionOutputs, SessionState, SpanKind, StateLink,
};
pub use types::UnknownName;
pub use types::constant_data::ConstantData;
pub use types::dtype::{Bool8, DataType, Element, F8E4m3, F8E5m2, InputElement};
pub use types::environment;
pub use types::fallback::{FallbackReason, FastForm, MaskedKeys};
pub use types::features::CpuFeatures;
pub use types::id::{OpId, TensorId};
pub use types::kind::{
    Attr, AutoBroadcast, CpuFeature, CpuIsa, EngineKind, FpMathMode, Level, OpKind, PhaseKind, Policy,
    Property,
};
#[doc(hidden)]
pub use types::nearest::nearest as nearest_name;
pub use types::rewrite::Rewrite;
pub use types::shape::{BroadcastFault, Dims, MAX_RANK};
