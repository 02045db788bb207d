//! A method of the builder for each kind of op. A test compares the rows with the schema: operands that a
//! kind always takes, attributes that it requires, and the meaning that the documentation of ops states.

use super::{GraphBuilder, GraphValue, OpOptions};
use crate::error::Result;
use crate::types::dtype::DataType;
use crate::types::kind::OpKind;

/// Attributes that a kind requires, of which the methods take the usual value.
fn required(kind: OpKind) -> OpOptions {
    match kind {
        OpKind::StaticReshape => OpOptions::new().special_zero(false),
        _ => OpOptions::new(),
    }
}

/// Methods of operands and of attributes that a kind requires.
macro_rules! plain {
    ($(
        $(#[doc = $doc:literal])*
        $name:ident: $Kind:ident ($($input:ident),*) [$($param:ident: $Type:ty),*];
    )*) => {
        impl GraphBuilder {
            $(
                $(#[doc = $doc])*
                ///
                /// # Errors
                ///
                /// As [`op`](Self::op).
                pub fn $name<'g>(
                    &'g self,
                    $($input: GraphValue<'_>,)*
                    $($param: $Type,)*
                ) -> Result<GraphValue<'g>> {
                    self.single(OpKind::$Kind, &[$($input),*], required(OpKind::$Kind)$(.$param($param))*)
                }
            )*
        }
    };
}

/// As [`plain`], and methods of the same with [`OpOptions`] beside.
macro_rules! with_options {
    ($(
        $(#[doc = $doc:literal])*
        $name:ident / $with:ident: $Kind:ident ($($input:ident),*) [$($param:ident: $Type:ty),*];
    )*) => {
        plain! { $( $(#[doc = $doc])* $name: $Kind ($($input),*) [$($param: $Type),*]; )* }

        impl GraphBuilder {
            $(
                #[doc = concat!("[`", stringify!($name), "`](Self::", stringify!($name), ") with options.")]
                ///
                /// # Errors
                ///
                /// As [`op`](Self::op).
                #[allow(clippy::too_many_arguments, reason = "they are those that the kind requires")]
                pub fn $with<'g>(
                    &'g self,
                    $($input: GraphValue<'_>,)*
                    $($param: $Type,)*
                    options: OpOptions,
                ) -> Result<GraphValue<'g>> {
                    let options = required(OpKind::$Kind)$(.$param($param))*.and(options);
                    self.single(OpKind::$Kind, &[$($input),*], options)
                }
            )*
        }
    };
}

/// As [`with_options`], of kinds that take operands behind those that they always take.
macro_rules! with_operands {
    ($(
        $(#[doc = $doc:literal])*
        $name:ident / $with:ident: $Kind:ident ($($input:ident),*) [$($param:ident: $Type:ty),*];
    )*) => {
        plain! { $( $(#[doc = $doc])* $name: $Kind ($($input),*) [$($param: $Type),*]; )* }

        impl GraphBuilder {
            $(
                #[doc = concat!("[`", stringify!($name), "`](Self::", stringify!($name), ") with options,")]
                /// and with `more` operands behind those that the kind always takes.
                ///
                /// # Errors
                ///
                /// As [`op`](Self::op).
                #[allow(clippy::too_many_arguments, reason = "they are those that the kind requires")]
                pub fn $with<'g>(
                    &'g self,
                    $($input: GraphValue<'_>,)*
                    $($param: $Type,)*
                    more: &[GraphValue<'_>],
                    options: OpOptions,
                ) -> Result<GraphValue<'g>> {
                    let operands = [&[$($input),*], more].concat();
                    let options = required(OpKind::$Kind)$(.$param($param))*.and(options);
                    self.single(OpKind::$Kind, &operands, options)
                }
            )*
        }
    };
}

/// Methods of kinds that always have several outputs.
macro_rules! several {
    ($(
        $(#[doc = $doc:literal])*
        $name:ident / $with:ident: $Kind:ident
        ($($input:ident),*)
        [$($param:ident: $Type:ty),*] -> $count:literal;
    )*) => {
        impl GraphBuilder {
            $(
                $(#[doc = $doc])*
                ///
                /// # Errors
                ///
                /// As [`op`](Self::op).
                pub fn $name<'g>(
                    &'g self,
                    $($input: GraphValue<'_>,)*
                    $($param: $Type,)*
                ) -> Result<[GraphValue<'g>; $count]> {
                    self.$with($($input,)* $($param,)* &[], OpOptions::new())
                }

                #[doc = concat!("[`", stringify!($name), "`](Self::", stringify!($name), ") with options,")]
                /// and with `more` operands behind those that the kind always takes.
                ///
                /// # Errors
                ///
                /// As [`op`](Self::op).
                #[allow(clippy::too_many_arguments, reason = "they are those that the kind requires")]
                pub fn $with<'g>(
                    &'g self,
                    $($input: GraphValue<'_>,)*
                    $($param: $Type,)*
                    more: &[GraphValue<'_>],
                    options: OpOptions,
                ) -> Result<[GraphValue<'g>; $count]> {
                    let operands = [&[$($input),*], more].concat();
                    let options = required(OpKind::$Kind)$(.$param($param))*.and(options);
                    let outputs = self.op(OpKind::$Kind, &operands, options, $count)?;
                    Ok(std::array::from_fn(|index| outputs[index]))
                }
            )*
        }
    };
}

plain! {
    /// The absolute value: the sign bit is cleared, all other bits stay, those of a NaN too; also f64, and
    /// s32, s64.
    abs: Abs (src) [];
    /// The gradient of `|x|`: `y` for `x` above 0, `−y` below, else 0.
    abs_backward: AbsBackward (src, diff_dst) [];
    /// `x` within [`p`, `q`]: `min(max(x, p), q)`. Here `p` = `min`, `q` = `max`.
    clamp: Clamp (src) [min: f32, max: f32];
    /// `x` above 0, else `p · (eˣ − 1)`. Here `p` = `alpha`.
    elu: Elu (src) [alpha: f32];
    /// `eˣ`; also f64.
    exp: Exp (src) [];
    /// `x · min(max(x + 3, 0), 6) / 6`.
    hard_swish: HardSwish (src) [];
    /// `y` for `x` from 3 on, `y · (x/3 + 1/2)` for `x` strictly between −3 and 3, else 0.
    hard_swish_backward: HardSwishBackward (src, diff_dst) [];
    /// `x` from 0 on, else `p · x`. Here `p` = `alpha`.
    leaky_relu: LeakyReLU (src) [alpha: f32];
    /// Natural logarithm; also f64.
    log: Log (src) [];
    /// `x − max − ln(sum)` with `sum` over `exp(x − max)` along the axis.
    log_softmax: LogSoftmax (src) [axis: i64];
    /// `diff_dst − exp(dst) · sum` with `sum` over `diff_dst` along the axis.
    log_softmax_backward: LogSoftmaxBackward (diff_dst, dst) [axis: i64];
    /// `x · tanh(ln(1 + eˣ))`.
    mish: Mish (src) [];
    /// `y` times the derivative of Mish; at ±∞ that is NaN.
    mish_backward: MishBackward (src, diff_dst) [];
    /// `1 / x`; also f64.
    reciprocal: Reciprocal (src) [];
    /// `max(x, 0)`; also f64.
    relu: ReLU (src) [];
    /// The same elements; only strides differ.
    reorder: Reorder (src) [];
    /// The nearest integer, halves to the even one; also f64.
    round: Round (src) [];
    /// `1 / (1 + e⁻ˣ)`; also f64.
    sigmoid: Sigmoid (src) [];
    /// `dst · (diff_dst − sum)` with `sum` over `dst · diff_dst` along the axis.
    softmax_backward: SoftMaxBackward (diff_dst, dst) [axis: i64];
    /// Square root; also f64.
    sqrt: Sqrt (src) [];
    /// `x · x`; also f64.
    square: Square (src) [];
    /// Dim `i` of the result is dim `order[i]` of the input; an empty `order` reverses the dims.
    transpose: StaticTranspose (src) [order: &[i64]];
    /// Hyperbolic tangent; also f64.
    tanh: Tanh (src) [];
    /// The same number in another type. Integer to integer wraps around. Floating point to integer truncates
    /// and saturates; NaN becomes 0. A conversion to floating point rounds once; true is 1. To its own type a
    /// number keeps every bit.
    type_cast: TypeCast (src) [data_type: DataType];
    /// `min(max(p·x + q, 0), 1)`. Here `p` = `alpha`, `q` = `beta`.
    hard_sigmoid: HardSigmoid (src) [alpha: f32, beta: f32];
    /// `p · y` if `p·x + q` is strictly between 0 and 1, else 0. Here `p` = `alpha`, `q` = `beta`.
    hard_sigmoid_backward: HardSigmoidBackward (src, diff_dst) [alpha: f32, beta: f32];
    /// `x` to the power of `p`, as C's `pow`. Here `p` = `beta`.
    pow: Pow (src) [beta: f32];
    /// The element's index along the dim that `axis` names; the input is shape-only.
    gen_index: GenIndex (src) [axis: i64];
    /// `src / (1 − P)` where a random 32-bit word is above `P · (2³² − 1)`, else +0, whatever stood there; P
    /// is `probability`. The second output, if there is one, is 1 where an element is kept, else 0.
    dropout: Dropout (src, seed, offset, probability) [];
    /// The negation of a boolean.
    logical_not: LogicalNot (src) [];
    /// True if it is NaN, of any kind.
    is_nan: IsNaN (src) [];
    /// True if it is one of the two infinities.
    is_inf: IsInf (src) [];
    /// True if it is neither NaN nor an infinity.
    is_finite: IsFinite (src) [];
    /// The same element, bit for bit.
    identity: Identity (src) [];
    /// The negative value: the sign bit is flipped, all other bits stay, those of a NaN too; also f64, and
    /// s32, s64.
    negative: Negative (src) [];
    /// The largest integer that is not above `x`; also f64.
    floor: Floor (src) [];
    /// The smallest integer that is not below `x`; also f64.
    ceil: Ceil (src) [];
    /// The same number everywhere, converted from f32; as a boolean, whether it is not 0.
    fill: Fill () [data_type: DataType, shape: &[i64], value: f32];
    /// The same number in another type. Integer to integer wraps around. Floating point to integer truncates
    /// and saturates; NaN becomes 0. A conversion to floating point rounds once; true is 1. To its own type a
    /// number keeps every bit.
    cast: Cast (src) [data_type: DataType];
    /// Sine of `x` in radians, NaN at ±∞.
    sin: Sin (src) [];
    /// Cosine of `x` in radians, NaN at ±∞.
    cos: Cos (src) [];
}

with_options! {
    /// `x + y`; also s32, s64, f64.
    add / add_with: Add (src_0, src_1) [];
    /// The mean of each window of `MaxPool` without dilations: its sum by the number of its elements, where
    /// those in the padding are zeros.
    avg_pool / avg_pool_with: AvgPool
        (src)
        [strides: &[i64], pads_begin: &[i64], pads_end: &[i64], exclude_pad: bool, kernel: &[i64]];
    /// `(src − mean) · (gamma / √(variance + epsilon)) + beta` with the numbers of the channel, each step
    /// rounded to f32.
    batch_norm_inference / batch_norm_inference_with: BatchNormInference
        (src, gamma, beta, mean, variance)
        [epsilon: f32];
    /// `x + y`; also s32, s64, f64.
    bias_add / bias_add_with: BiasAdd (src, bias) [];
    /// The sum of `diff_dst` over all dims but that of the channels.
    bias_add_backward / bias_add_backward_with: BiasAddBackward (diff_dst) [];
    /// `y` for `x` strictly between `p` and `q`, else 0; of source and of result alike. Here `p` = `min`, `q`
    /// = `max`.
    clamp_backward / clamp_backward_with: ClampBackward (src_or_dst, diff_dst) [min: f32, max: f32];
    /// The gradient of the source of a ConvTranspose, which is the Convolution of `diff_dst` by the same
    /// weights.
    conv_transpose_backward_data / conv_transpose_backward_data_with: ConvTransposeBackwardData
        (diff_dst, weights)
        [strides: &[i64], pads_begin: &[i64], pads_end: &[i64], dilations: &[i64]];
    /// `(x − zp) · scale`, both steps rounded to f32.
    dequantize / dequantize_with: Dequantize (src) [scales: &[f32]];
    /// `x / y`; also f64, and s32, s64: rounded down, and 0 if `y` is 0.
    divide / divide_with: Divide (src_0, src_1) [];
    /// With `use_dst`: `y` for `x` above 0, else `y · (x + p)`. Here `p` = `alpha`. Without `use_dst`: `y`
    /// for `x` above 0, else `y · p · eˣ`. Here `p` = `alpha`.
    elu_backward / elu_backward_with: EluBackward (src_or_dst, diff_dst) [alpha: f32];
    /// With `mode` = `gelu_tanh`: `x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³)))`. With `mode` = `gelu_erf`:
    /// `x · Φ(x)`, by the error function.
    gelu / gelu_with: GELU (src) [];
    /// With `mode` = `gelu_tanh`: `y` times the derivative of GELU's tanh form; at ±∞ that is NaN. With
    /// `mode` = `gelu_erf`: `y · (Φ(x) + x·φ(x))`.
    gelu_backward / gelu_backward_with: GELUBackward (src, diff_dst) [];
    /// The larger one, NaN if one is NaN, +0 above −0; also s32, s64, f64.
    maximum / maximum_with: Maximum (src_0, src_1) [];
    /// The largest element of each window, NaN where one is NaN, +0 above −0; of a window in padding alone
    /// it is −∞.
    max_pool / max_pool_with: MaxPool
        (src)
        [strides: &[i64], pads_begin: &[i64], pads_end: &[i64], kernel: &[i64]];
    /// The gradient of `MaxPool`: each element of `diff_dst` is added to the element of `diff_src` at the
    /// place of the largest element of its window of `src`, of several the first in row-major order. All
    /// others are 0.
    max_pool_backward / max_pool_backward_with: MaxPoolBackward
        (src, diff_dst)
        [strides: &[i64], pads_begin: &[i64], pads_end: &[i64], kernel: &[i64]];
    /// The smaller one, NaN if one is NaN, −0 below +0; also s32, s64, f64.
    minimum / minimum_with: Minimum (src_0, src_1) [];
    /// `x · y`; also s32, s64, f64.
    multiply / multiply_with: Multiply (src_0, src_1) [];
    /// `x` from 0 on, else `y · x`.
    prelu / prelu_with: PReLU (src, slope) [];
    /// `x / scale + zp`, both steps rounded to f32; into an integer rounded to nearest, ties to even, and
    /// kept within its bounds, NaN as 0; into f8 rounded once more.
    quantize / quantize_with: Quantize (src) [data_type: DataType, scales: &[f32]];
    /// `y` for `x` above 0, else 0; of source and of result alike.
    relu_backward / relu_backward_with: ReLUBackward (src_or_dst, diff_dst) [];
    /// With `use_dst`: `y · x · (1 − x)`. Without `use_dst`: `y · s · (1 − s)` with `s = 1 / (1 + e⁻ˣ)`.
    sigmoid_backward / sigmoid_backward_with: SigmoidBackward (src_or_dst, diff_dst) [];
    /// `exp(x − max) / sum` with `sum` over `exp(x − max)` along the axis; the statistics are `max +
    /// ln(sum)`.
    softmax / softmax_with: SoftMax (src) [axis: i64];
    /// `ln(1 + e^(p·x)) / p`. Here `p` = `beta`.
    softplus / softplus_with: SoftPlus (src) [];
    /// `y / (1 + e^(−p·x))`. Here `p` = `beta`.
    softplus_backward / softplus_backward_with: SoftPlusBackward (src, diff_dst) [];
    /// With `use_dst`: `y / (2·x)`. Without `use_dst`: `y / (2·√x)`.
    sqrt_backward / sqrt_backward_with: SqrtBackward (src_or_dst, diff_dst) [];
    /// `(x − y)²`, the difference rounded to f32 before it is squared.
    squared_difference / squared_difference_with: SquaredDifference (src_0, src_1) [];
    /// The elements of the input, in the same order, in the shape `shape`.
    reshape / reshape_with: StaticReshape (src) [shape: &[i64]];
    /// `x − y`; also s32, s64, f64.
    subtract / subtract_with: Subtract (src_0, src_1) [];
    /// With `use_dst`: `y · (1 − x²)`. Without `use_dst`: `y · (1 − tanh²(x))`.
    tanh_backward / tanh_backward_with: TanhBackward (src_or_dst, diff_dst) [];
    /// The second operand if the first is not 0, else the third, bit for bit.
    select / select_with: Select (cond, then, else_) [];
    /// `x ≥ y`.
    greater_equal / greater_equal_with: GreaterEqual (src_0, src_1) [];
    /// `x = y`.
    equal / equal_with: Equal (src_0, src_1) [];
    /// `x ≠ y`, true if one is NaN.
    not_equal / not_equal_with: NotEqual (src_0, src_1) [];
    /// `x < y`.
    less / less_with: Less (src_0, src_1) [];
    /// `x ≤ y`.
    less_equal / less_equal_with: LessEqual (src_0, src_1) [];
    /// `x > y`.
    greater / greater_with: Greater (src_0, src_1) [];
    /// True if both are true.
    logical_and / logical_and_with: LogicalAnd (src_0, src_1) [];
    /// True if at least one is true.
    logical_or / logical_or_with: LogicalOr (src_0, src_1) [];
    /// True if exactly one is true.
    logical_xor / logical_xor_with: LogicalXor (src_0, src_1) [];
    /// `x − y · ⌊x / y⌋`, rounded once, which has the sign of `y`; also f64, and s32, s64: 0 if `y` is 0.
    modulo / modulo_with: Modulo (src_0, src_1) [];
    /// `x` to the power of `y`, as C's `pow`; also f64, whose power is that of the C library, and s32, s64:
    /// for `y` below 0 the quotient of 1 and the power, cut off, and 0 if `x` is 0.
    power / power_with: Power (src_0, src_1) [];
    /// Along each of `axes` the elements from `starts` to `ends`, the end excluded, every `steps`-th.
    slice / slice_with: Slice (src) [starts: &[i64], ends: &[i64]];
    /// The sum of the elements along the axis up to the element's own, with `exclusive` without its own; with
    /// `reverse` from the last element on.
    cumsum / cumsum_with: CumSum (src) [axis: i64];
    /// The elements of `src` that `indices` name: in `Gather` whole slices along `axis`, for each element of
    /// the first `batch_dims` dims by its own indices; in `GatherElements` each element of the result by an
    /// index of its own along `axis`; in `GatherND` by tuples of indices, which are the last dim of
    /// `indices`.
    gather / gather_with: Gather (src, indices) [axis: i64];
    /// The elements of `src` that `indices` name: in `Gather` whole slices along `axis`, for each element of
    /// the first `batch_dims` dims by its own indices; in `GatherElements` each element of the result by an
    /// index of its own along `axis`; in `GatherND` by tuples of indices, which are the last dim of
    /// `indices`.
    gather_elements / gather_elements_with: GatherElements (src, indices) [axis: i64];
    /// The elements of `src` that `indices` name: in `Gather` whole slices along `axis`, for each element of
    /// the first `batch_dims` dims by its own indices; in `GatherElements` each element of the result by an
    /// index of its own along `axis`; in `GatherND` by tuples of indices, which are the last dim of
    /// `indices`.
    gather_nd / gather_nd_with: GatherND (src, indices) [];
    /// The gradient of the source of `Gather`: at each place of a source of shape `src_shape`, the sum of the
    /// elements of `diff_dst` that were gathered from it, 0 where none was.
    gather_backward / gather_backward_with: GatherBackward (diff_dst, indices) [src_shape: &[i64]];
    /// A copy of `src` in which `updates` stand at the places that `indices` name: in `ScatterElements` each
    /// by an index of its own along `axis`, in `ScatterND` whole slices by tuples of indices, which are the
    /// last dim of `indices`. Under a `reduction` the old element and the update are combined.
    scatter_elements / scatter_elements_with: ScatterElements (src, indices, updates) [axis: i64];
    /// A copy of `src` in which `updates` stand at the places that `indices` name: in `ScatterElements` each
    /// by an index of its own along `axis`, in `ScatterND` whole slices by tuples of indices, which are the
    /// last dim of `indices`. Under a `reduction` the old element and the update are combined.
    scatter_nd / scatter_nd_with: ScatterND (src, indices, updates) [];
    /// A cache in pages to which rows of new tokens are written: a copy of `src`, of dims [pages, heads, rows
    /// of a page, elements], in which row `i` of `rows`, of dims [tokens, heads, elements], is row `slots[i]
    /// mod n` of page `slots[i] / n` of `n` rows. A row whose slot is −1 is left out.
    cache_store / cache_store_with: CacheStore (src, rows, slots) [];
    /// The index of the largest element of each line along `axis`; of several the first, or with
    /// `select_last_index` the last.
    argmax / argmax_with: ArgMax (src) [axis: i64];
    /// The index of the smallest element of each line along `axis`; of several the first, or with
    /// `select_last_index` the last.
    argmin / argmin_with: ArgMin (src) [axis: i64];
}

with_operands! {
    /// The keys or values of sequences whose cache lies in pages. `src` has dims [pages, heads, rows of a
    /// page, elements]: row `t` of a sequence `b` is row `t mod n` of page `block_table[b, t / n]` of `n`
    /// rows. With `lengths`, the rows of a sequence from its length on are 0. A row of 4-bit elements has an
    /// even number of them.
    paged_load / paged_load_with: PagedLoad (src, block_table) [];
    /// The gradient of `AvgPool`: the sum of the elements of `diff_dst` whose windows have an element, each
    /// by the number of elements of its window, as `AvgPool` counts them under `exclude_pad` or not.
    avg_pool_backward / avg_pool_backward_with: AvgPoolBackward
        (diff_dst)
        [strides: &[i64], pads_begin: &[i64], pads_end: &[i64], exclude_pad: bool, kernel: &[i64]];
    /// With `x' = (src − mean) / √(variance + epsilon)` and means over all dims but that of the channels,
    /// `diff_src` is `gamma · (diff_dst − mean(diff_dst) − x' · mean(diff_dst · x')) / √(variance +
    /// epsilon)`; `diff_gamma` is the sum of `diff_dst · x'`, `diff_beta` that of `diff_dst`. Without
    /// `gamma` it is 1. (oneDNN leaves out both means, and `gamma`, if `diff_gamma` and `diff_beta` are not
    /// asked for.)
    batch_norm_training_backward / batch_norm_training_backward_with: BatchNormTrainingBackward
        (src, diff_dst, mean, variance)
        [epsilon: f32];
    /// The sum of the products of the weights of an output channel and the elements of a window of `src`,
    /// plus the bias of the channel if there is one, rounded once. Padding takes no part; only beside a
    /// weight that is not finite it may make the sum NaN, as a 0 does.
    convolution / convolution_with: Convolution
        (src, weights)
        [strides: &[i64], pads_begin: &[i64], pads_end: &[i64], dilations: &[i64]];
    /// The gradient of the source of a Convolution: for each element, the sum of the products of the
    /// gradients of the windows that see it and the weights by which they do; 0 if none does.
    convolution_backward_data / convolution_backward_data_with: ConvolutionBackwardData
        (diff_dst, weights)
        [strides: &[i64], pads_begin: &[i64], pads_end: &[i64], dilations: &[i64]];
    /// The gradient of the weights of a Convolution: for each, the sum of the products of the gradients of
    /// all windows and the elements that the weight is multiplied with there.
    convolution_backward_weights / convolution_backward_weights_with: ConvolutionBackwardWeights
        (src, diff_dst)
        [strides: &[i64], pads_begin: &[i64], pads_end: &[i64], dilations: &[i64]];
    /// ConvolutionBackwardData of `src` in place of the gradients of windows, plus the bias of the channel
    /// if there is one: each element adds its products with a kernel to the result, `strides` from one
    /// kernel to the next.
    conv_transpose / conv_transpose_with: ConvTranspose
        (src, weights)
        [strides: &[i64], pads_begin: &[i64], pads_end: &[i64], dilations: &[i64]];
    /// The gradient of the weights of a ConvTranspose: for each, the sum of the products of all elements of
    /// `src` and the gradients of the elements to which the weight takes them.
    conv_transpose_backward_weights / conv_transpose_backward_weights_with: ConvTransposeBackwardWeights
        (src, diff_dst)
        [strides: &[i64], pads_begin: &[i64], pads_end: &[i64], dilations: &[i64]];
    /// As Dequantize, with scales and zero points that are tensors; zero points are rounded to f32, and the
    /// result to the type of the scales.
    dynamic_dequantize / dynamic_dequantize_with: DynamicDequantize (src, scales) [];
    /// As Quantize, with scales and zero points that are tensors; a single zero point goes with any number of
    /// scales.
    dynamic_quantize / dynamic_quantize_with: DynamicQuantize (src, scales) [data_type: DataType];
    /// Each spatial dim of `src` resized to a number of `sizes`, or by a factor of `scales`.
    interpolate / interpolate_with: Interpolate (src) [mode: &str];
    /// The gradient of `Interpolate` for `src`, of which the shape alone is used: the sum of the elements
    /// of `diff_dst` that were made of an element, each by its share.
    interpolate_backward / interpolate_backward_with: InterpolateBackward (src, diff_dst) [mode: &str];
    /// `gamma · (x − mean) / √(variance + epsilon) + beta` over the dims from `begin_norm_axis` on, with
    /// `mean = sum(x) / n` and `variance = sum((x − mean)²) / n`, which are the second and third output.
    layer_norm / layer_norm_with: LayerNorm (src) [];
    /// With `x' = (src − mean) / √(variance + epsilon)` and means over the dims from `begin_norm_axis` on,
    /// `diff_src` is `(g − mean(g) − x' · mean(g · x')) / √(variance + epsilon)` of `g = gamma · diff_dst`;
    /// `diff_gamma` is the sum of `diff_dst · x'` over all rows, `diff_beta` that of `diff_dst`. Without
    /// `use_affine` gamma is 1.
    layer_norm_backward / layer_norm_backward_with: LayerNormBackward (src, diff_dst, mean, variance) [];
    /// The sum of the products of each row and each column, plus `bias` if there is one, rounded once. A row
    /// of no elements sums up to 0.
    matmul / matmul_with: MatMul (src, weights) [];
    /// The sum of `|x|` along `axes`; of nothing it is 0.
    reduce_l1 / reduce_l1_with: ReduceL1 (src) [axes: &[i64]];
    /// The square root of the sum of `x²` along `axes`; of nothing it is 0.
    reduce_l2 / reduce_l2_with: ReduceL2 (src) [axes: &[i64]];
    /// The largest element along `axes`, NaN where one is NaN, +0 above −0; of nothing it is −∞.
    reduce_max / reduce_max_with: ReduceMax (src) [axes: &[i64]];
    /// The sum along `axes` by the number of elements; of nothing it is NaN.
    reduce_mean / reduce_mean_with: ReduceMean (src) [axes: &[i64]];
    /// The smallest element along `axes`, NaN where one is NaN, −0 below +0; of nothing it is ∞.
    reduce_min / reduce_min_with: ReduceMin (src) [axes: &[i64]];
    /// The product along `axes`; of nothing it is 1.
    reduce_prod / reduce_prod_with: ReduceProd (src) [axes: &[i64]];
    /// The sum along `axes`; of nothing it is 0.
    reduce_sum / reduce_sum_with: ReduceSum (src) [axes: &[i64]];
    /// The formula of LayerNorm over the channels of a group, all that lies beside them included, for each of
    /// the first dim: `groups` groups of neighbouring channels.
    group_norm / group_norm_with: GroupNorm (src) [groups: i64];
    /// `gamma · x / √(mean(x²) + epsilon)` with the mean over the dims from `begin_norm_axis` on.
    rms_norm / rms_norm_with: RMSNorm (src) [];
}

several! {
    /// `gamma · (src − batch_mean) / √(batch_variance + epsilon) + beta` with `batch_mean = sum(src) / n`
    /// and `batch_variance = sum((src − batch_mean)²) / n` over all dims but that of the channels.
    /// `running_mean` is `momentum · mean + (1 − momentum) · batch_mean`, and `running_variance` likewise,
    /// of the outputs as they are rounded.
    batch_norm_forward_training / batch_norm_forward_training_with: BatchNormForwardTraining
        (src, mean, variance)
        [epsilon: f32] -> 5;
    /// `diff_src` is `diff_dst` for `src` above 0, else `diff_dst · slope`. `diff_slope` is the sum of
    /// `diff_dst · src` over the elements of `src` that are not above 0 and share a slope.
    prelu_backward / prelu_backward_with: PReLUBackward (src, slope, diff_dst) [] -> 2;
    /// The `k` largest elements of each line along `axis`, the largest one first, and their indices along the
    /// axis; without `largest` the `k` smallest, the smallest one first.
    topk / topk_with: TopK (src) [k: i64] -> 2;
}

impl GraphBuilder {
    /// The inputs one behind the other along `axis`.
    ///
    /// # Errors
    ///
    /// As [`op`](Self::op).
    pub fn concat<'g>(&'g self, srcs: &[GraphValue<'_>], axis: i64) -> Result<GraphValue<'g>> {
        self.single(OpKind::Concat, srcs, OpOptions::new().axis(axis))
    }
}
