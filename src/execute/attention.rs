//! Runs attention and its gradients: forward block by block of queries, forward of few queries, and the
//! gradients; and finds the classes of tiles, by which all of them skip.

pub(super) mod backward;
mod classes;
pub(super) mod decode;
mod dequantizer;
pub(super) mod forward;
mod interval;
mod masked_products;
mod pages;
mod present_block;
pub(super) mod ragged;
mod score_bound;
mod score_chain;
mod score_tile;
mod statistics;
pub(super) mod tile_class;
mod token_lookahead;
