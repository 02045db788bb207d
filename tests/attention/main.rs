//! Tests of masked attention and its gradients.

#[path = "../common/attention.rs"]
mod attention;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/gradients.rs"]
mod gradients;

mod backward;
mod compressed;
mod decode;
mod empty;
mod forward;
mod integers;
mod mask_tiles;
mod options;
mod overflow;
mod packed;
mod packed_stored;
mod paged;
mod ragged;
mod rewrites;
mod sinks;
mod softmax_forms;
mod stored_options;
mod training;
mod written_out;
