//! Runs plans.

pub(crate) mod engine;
pub(crate) mod stream;
pub(crate) mod tensor;
