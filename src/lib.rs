//! Sterna.
#![deny(unsafe_code)]
// The example of the README is compiled and run with the documentation tests.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
mod compile;
mod error;
mod execute;
mod graph;
mod kernels;
mod partition;
mod plan;
pub mod reference;
mod types;
pub use compile::cache::{
    CacheStats, compiled_partition_cache_capacity, compiled_partition_cache_stats,
    set_compiled_partition_cache_capacity,
};
pub use error::*;
pub use execute::compiled::{CompiledPartition, InPlacePair};
pub use execute::engine::{Allocator, Engine, EngineBuilder, SystemAllocator};
pub use execute::stream::Stream;
pub use execute::tensor::{Tensor, TensorBuf, TensorMut};
pub use graph::logical_tensor::{Layout, LogicalTensor};
pub use graph::op::{AttrValue, Op};
pub use graph::row::{AttrDefault, AttrRow, AttrType, Check, Count, Port, Schema, ShapeRule};
pub use graph::{FpMath, Graph};
pub use partition::Partition;
pub use partition::grow::{Explanation, Verdict};
pub use types::UnknownName;
pub use types::dtype::{Bool8, DataType, Element, F8E4m3, F8E5m2, InputElement};
pub use types::kind::{Attr, AutoBroadcast, FpMathMode, Level, OpId, OpKind, Policy, Property, TensorId};
pub use types::shape::{BroadcastFault, Dims, MAX_RANK, UNKNOWN_DIM};
