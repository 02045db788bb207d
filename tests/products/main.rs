//! Tests of products, and of what is fused to them.

#[path = "../common/mod.rs"]
mod common;

mod constants;
mod convolution;
mod convolution_gradients;
mod matmul;
mod matmul_integers;
mod norms_and_gates;
mod panels;
mod reference;
mod stored_weights;
