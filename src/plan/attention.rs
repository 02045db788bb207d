//! The phases of attention and of its gradients, and the classes of the tiles of masked scores, which all of
//! them skip by.

pub(super) mod backward;
pub(super) mod chunk;
pub(super) mod decode;
pub(super) mod forward;
pub(super) mod integers;
pub(super) mod quantized_tokens;
pub(super) mod ragged;
pub(super) mod score_bound;
pub(crate) mod tile_class;
