//! Dims of tensors of a model, some of which it leaves open.

/// A dim that is not known until a partition is compiled.
pub(crate) const UNKNOWN_DIM: i64 = i64::MIN;

/// True if every dim is known.
pub(crate) fn is_known(dims: &[i64]) -> bool {
    dims.iter().all(|&dim| dim != UNKNOWN_DIM)
}
