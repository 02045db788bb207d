//! Tiles of scores, and the running state of SoftMax over their keys.

/// Queries of a block: elements of a row of a tile, used or not.
pub(crate) const QUERIES: usize = 64;

/// Keys of a block. Tiles are square, as masks of booleans are transposed.
pub(crate) const KEYS: usize = QUERIES;

/// Bytes of a row of a tile of f32.
pub(crate) const ROW: isize = 4 * QUERIES as isize;

/// A tile of scores in f32, or of numbers computed from them: a row for each key, a column for each query.
/// Rows are [`QUERIES`] elements apart. Kernels neither read nor write the columns beyond `queries`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScoreTile {
    pub(crate) at: *mut f32,
    pub(crate) keys: usize,
    /// At most [`QUERIES`].
    pub(crate) queries: usize,
}

/// The state of SoftMax after the keys so far, for each query of a block.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct SoftmaxState {
    /// The number subtracted from scores before the exponential: −∞ until a score above −∞ is seen. It is at
    /// least the largest score minus the growth that an online SoftMax tolerates.
    pub(crate) max: [f32; QUERIES],
    /// Sum of the exponentials.
    pub(crate) sum: [f32; QUERIES],
    /// The factor for earlier results, set when a maximum changes.
    pub(crate) factor: [f32; QUERIES],
}

impl SoftmaxState {
    /// The state before the first key.
    pub(crate) fn new() -> Self {
        Self { max: [f32::NEG_INFINITY; QUERIES], sum: [0.0; QUERIES], factor: [1.0; QUERIES] }
    }
}
