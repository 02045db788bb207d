//! Attention on 8-bit integers: queries, keys, values and the weights behind the SoftMax.

use crate::kernels::attention::QuadKernels;
use crate::kernels::gemm::GemmKernel;
use crate::kernels::gemm::integers::IntegerRows;

/// Both products of attention on dequantised integers, with one scale and one zero point for each operand.
/// They are sums in s32, which are exact. Zero points are those of the integers that kernels read.
#[derive(Debug)]
pub(crate) struct IntegerProducts {
    pub(crate) kernel: GemmKernel,
    /// Packs keys, which are the left operand of the scores, unless the kernel reads them where they are.
    pub(crate) keys: Option<IntegerRows>,
    pub(crate) quads: QuadKernels,
    pub(crate) zeros: IntegerZeros,
    /// The products of both scales of the scores, and of those of the second product.
    pub(crate) score_scale: f64,
    pub(crate) result_scale: f64,
    pub(crate) rounding: QuantizedWeights,
}

/// The zero points of the operands of both products.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IntegerZeros {
    pub(crate) queries: i32,
    pub(crate) keys: i32,
    pub(crate) weights: i32,
    pub(crate) values: i32,
}

/// The rounding of weights to integers, which are those of u8, or of s8 and 128 larger.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuantizedWeights {
    pub(crate) scale: f32,
    pub(crate) zero: u8,
    /// The integer of a weight that is NaN.
    pub(crate) of_nan: u8,
}

/// Places in the scratch of a thread, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IntegerScratch {
    /// The scale of scores.
    pub(crate) scale: usize,
    /// For each query the sum of its integers, or of those of its weights; and what is subtracted from its
    /// sums of products.
    pub(crate) query_sums: usize,
    pub(crate) subtracted: usize,
    /// The sums of the integers of each key of a block, and of each element of the values.
    pub(crate) key_sums: usize,
    pub(crate) value_sums: usize,
    /// For each block of keys, the maximum of each query that the block's exponentials have.
    pub(crate) maxima: usize,
}
