//! Tests of graphs: described, partitioned, compiled, refused, and shown.

#[path = "../common/mod.rs"]
mod common;

mod bad_calls;
mod bad_ops;
mod bad_rows;
mod data_types;
mod drawings;
mod example_graphs;
mod examples;
mod extents;
mod fallbacks;
mod fusion;
mod item_docs;
mod json;
mod limits;
mod messages;
mod op_docs;
mod partitions;
mod plan;
mod reuse;
mod schema;
