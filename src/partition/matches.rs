//! The match of a fusion: the kind of a partition, and the roles of its ops. Partition finds it once; compile
//! takes the roles from it, and chooses forms by shapes, strides and the machine.
//!
//! A role names an op by its index in the partition.

use crate::types::fallback::FallbackReason;

/// The kind of a partition, with the roles of its ops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Match {
    /// Loop nests over the results; each element is computed on its own.
    Elementwise,
    /// Ops on rows, with elementwise work before and behind.
    Rows,
    /// Matrix products and ops on rows one after the other, each with elementwise work before and behind.
    Products {
        /// True if both operands of a product are dequantised from 8-bit integers, so that sums may be s32.
        of_integers: bool,
    },
    /// Two products with a SoftMax between them, whose scores are never in memory as a whole; one after the
    /// other if there are no roles.
    Attention { softmax: usize, roles: Result<AttentionRoles, FallbackReason> },
    /// The gradients of attention, from the op that makes the weights again, likewise.
    AttentionBackward { weights: usize, roles: Result<GradientRoles, FallbackReason> },
    /// A lookup at the places that indices name, or the first elements of lines.
    Lookup,
    /// A pool, an interpolation, or a gradient of one.
    Pool,
}

/// The ops of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AttentionRoles {
    /// The product that makes the scores, the SoftMax, and the product with the values.
    pub(crate) scores: usize,
    pub(crate) softmax: usize,
    pub(crate) result: usize,
    /// The Slice behind the SoftMax that drops a column without a key, which a Concat before it adds.
    pub(crate) sinks: Option<usize>,
    /// True if ops other than conversions stand between the SoftMax and the product with the values.
    pub(crate) computes_weights: bool,
    /// Weights that are rounded to integers; conversions alone may stand around.
    pub(crate) rounded: Option<RoundedWeights>,
}

/// The op that dequantises the weights behind the SoftMax, and the Quantize before it that takes what the
/// SoftMax gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RoundedWeights {
    pub(crate) dequantize: usize,
    pub(crate) quantize: Result<usize, FallbackReason>,
}

/// The ops of the gradients of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GradientRoles {
    /// The Exp or the SoftMax that makes the weights, and the SoftMaxBackward.
    pub(crate) weights: usize,
    pub(crate) backward: Option<usize>,
    /// The product that makes the scores, and dP = dO·Vᵀ.
    pub(crate) scores: usize,
    pub(crate) dp: Option<usize>,
    /// The products that give dQ, dK and dV.
    pub(crate) results: [Option<usize>; 3],
    /// The sums that alone follow dK and dV, behind each of those that are there or behind none.
    pub(crate) sums: [Option<usize>; 3],
    /// The op whose result, dS or what leads there from dP, is needed as a whole, as for the gradient of a
    /// mask.
    pub(crate) mask: Option<usize>,
}
