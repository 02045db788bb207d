//! Tests of what ops compute: every kind, type, shape, layout and CPU level.

#[path = "../common/mod.rs"]
mod common;

mod arrays;
mod bits;
mod broadcasting;
mod cum_sum;
mod dropout;
mod functions;
mod images;
mod in_place;
mod kernels;
mod level;
mod lookups;
mod moves;
mod norms;
mod ops_alone;
mod paged;
mod quantization;
mod reference;
mod rows;
mod select;
mod squares;
mod strides;
mod tensor_ops;
