//! The forms of computation that a plan takes where it can, and the reasons for which it takes a slower one.

use super::codes::coded_enum;

coded_enum! {
    /// A form of computation that saves time or memory. A plan takes it for every partition that has the
    /// form; any other partition gives the same results, more slowly.
    pub enum FastForm: "fast form" {
        /// Scores of attention are in the caches alone.
        Attention = 0 => "attention",
        /// Few queries read each key once, on all threads.
        Decode = 1 => "decode",
        /// Scores and weights of the gradients of attention are in the caches alone.
        AttentionBackward = 2 => "attention_backward",
        /// Both products of attention are sums of 8-bit integers.
        IntegerAttention = 3 => "integer_attention",
        /// A product is a sum of 8-bit integers.
        IntegerProduct = 4 => "integer_product",
        /// A product reads its right operand as it is stored, in 8 or 4 bits.
        StoredOperand = 5 => "stored_operand",
        /// Attention reads keys or values as they are stored, in 8 or 4 bits.
        StoredCache = 6 => "stored_cache",
        /// A stored operand becomes f32 in registers, without rows of f32 in the caches.
        Registers = 7 => "registers",
        /// Attention reads keys or values where they lie in the pages of a cache.
        PagedCache = 8 => "paged_cache",
        /// Blocks of queries begin where sequences that follow each other do.
        Ragged = 9 => "ragged",
    }
}

/// The part of masked keys in a partition of attention or its gradients.
///
/// ```
/// use sterna::{DataType, Engine, LogicalTensor, MaskedKeys, Op, OpKind, Partition};
/// let tensor = |id| LogicalTensor::strided(id, DataType::F32, &[4]);
/// let op = Op::new(0, OpKind::Abs).input(tensor(0)?).output(tensor(1)?);
/// // Nothing here falls back from attention to its ops.
/// let plan = Partition::from_op(op)?.compile(&Engine::new())?.plan();
/// assert_eq!(plan.masked_keys(), MaskedKeys::Skipped);
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaskedKeys {
    /// They add nothing, even if they are NaN or infinite.
    Skipped,
    /// Their weight of 0 is a factor like any other, and 0 times a NaN or ∞ is NaN; so is a NaN plus the −∞
    /// of a mask.
    Multiplied,
}

/// Defines the reasons with their codes, names and sentences.
macro_rules! reasons {
    ($( $Variant:ident = $code:literal => $name:literal, $text:literal; )*) => {
        coded_enum! {
            /// The reason for which a plan did not take a [`FastForm`].
            ///
            /// The performance guide says for each what to change in the graph.
            pub enum FallbackReason: "reason" {
                $( #[doc = concat!("Because ", $text, ".")] $Variant = $code => $name, )*
            }
        }

        impl FallbackReason {
            /// The reason as the end of a sentence.
            pub const fn text(self) -> &'static str {
                match self {
                    $( Self::$Variant => $text, )*
                }
            }
        }
    };
}

reasons! {
    OtherOps = 0 => "other_ops", "the ops are not those of the form in its order";
    BiasOfProduct = 1 => "bias_of_product", "a product has a bias";
    SoftmaxAxis = 2 => "softmax_axis", "the SoftMax does not go along the keys";
    ShapeOfScores = 3 => "shape_of_scores", "a mask or a bias enlarges the scores";
    ShapeOfResult = 4 => "shape_of_result", "a result has dims other than those of the scores";
    TransposedWeights = 5 => "transposed_weights", "a product reads the weights transposed";
    OperandForm = 6 => "operand_form", "an operand is no matrix, has another type or depends on the products";
    ComputedWeights = 7 => "computed_weights", "ops between the SoftMax and the product do not run by tiles";
    ComputedLogits = 8 => "computed_logits", "ops between the product and the SoftMax do not run by tiles";
    InnerUses = 9 => "inner_uses", "scores, weights or statistics are needed outside of the tiles";
    SeveralProducts = 10 => "several_products", "more products of one kind than the form has";
    SeveralGradients = 11 => "several_gradients", "gradients of queries and keys come from different values";
    NoElements = 12 => "no_elements", "a tensor has no elements";
    StridedElements = 13 => "strided_elements", "elements of a row do not lie next to each other";
    HalfBytes = 14 => "half_bytes", "a row of 4-bit elements does not begin with a byte";
    NoStrides = 15 => "no_strides", "strides do not lead to the stored elements";
    ElementType = 16 => "element_type", "no kernel reads elements of the type";
    ScaleGroups = 17 => "scale_groups", "groups of one scale go across rows or blocks";
    TooManyScales = 18 => "too_many_scales", "the scales of a block exceed the caches";
    OrderOfSums = 19 => "order_of_sums", "the form would add up in another order";
    SeveralScales = 20 => "several_scales", "an operand has several scales or zero points";
    ScaleAxis = 21 => "scale_axis", "the scales of weights change along another dim than columns";
    ScaleRange = 22 => "scale_range", "a scale is so large or small that f32 would overflow or lose weights";
    SumOverflow = 23 => "sum_overflow", "sums of so many products leave s32";
    OperandNotQuantized = 24 => "operand_not_quantized", "an operand is not dequantised from 8-bit integers";
    RoundingOfWeights = 25 => "rounding_of_weights", "the weights are not rounded as they are dequantised";
    TooManyKeys = 26 => "too_many_keys", "the logits of a block of queries exceed the caches";
    CpuLevel = 27 => "cpu_level", "only wider vectors or other instructions have the kernels";
    OddLength = 28 => "odd_length", "groups of one scale are no multiple of a vector";
    ConvertedWeights = 29 => "converted_weights", "ops stand between the SoftMax and the product";
    ComputedScales = 30 => "computed_scales", "scales or zero points are tensors of another op, or inputs";
    OtherMasks = 31 => "other_masks", "something else masks the scores too";
}

impl FallbackReason {
    /// The reason, unless a condition of the form holds.
    pub(crate) fn unless(self, holds: bool) -> Result<(), Self> {
        if holds { Ok(()) } else { Err(self) }
    }
}
