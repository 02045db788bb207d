//! Lowers attention and its gradients: forward block by block of queries, forward of few queries, and the
//! gradients. They share the operands, the classes of tiles, and the store of results.

pub(super) mod backward;
mod decode;
mod forms;
pub(super) mod forward;
mod integers;
mod operands;
mod pages;
mod ragged;
mod result;
mod scores;
mod shape;
