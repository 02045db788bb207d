//! The documentation of kinds that compute images and their gradients.
//! `STERNA_REWRITE=1 cargo test --test graphs item_docs` writes it anew.

#[rustfmt::skip]
macro_rules! image_kind_doc {
    (AvgPool) => {r#"
The mean of each window of `MaxPool` without dilations: its sum by the number of its elements, where those in
the padding are zeros.

With `exclude_pad`, and with `rounding_type` = `ceil`, elements in the padding do not count; a window in
padding alone is NaN then.

Partitions sum in f32, along the last dim last, and divide once: a result is off by 4 half units in the last
place of the mean of sizes, and one more for each element of the kernel.

- Inputs: `src` T; output: `dst` T.
- Types: f32, bf16, f16.
- Attributes: `strides` s64\[], required; `pads_begin` s64\[], required; `pads_end` s64\[], required;
  `exclude_pad` bool, required; `kernel` s64\[], required; `data_format` string, default `NXC`, one of `NCX`,
  `NXC`; `rounding_type` string, default `floor`; `auto_pad` string, default `None`, one of `None`,
  `SAME_UPPER`, `SAME_LOWER`, `VALID`.
- Shapes: The first input with the number of windows in the place of each spatial dim: as many as there are
  `strides` in what the padded dim has beyond `dilations` · (`kernel` − 1) + 1 elements, rounded as
  `rounding_type` says, and one more.
- Checks: `pads_begin` and `pads_end` have no negative value.
"#};
    (AvgPoolBackward) => {r#"
The gradient of `AvgPool`: the sum of the elements of `diff_dst` whose windows have an element, each by the
number of elements of its window, as `AvgPool` counts them under `exclude_pad` or not.

The shape is the attribute `src_shape`, or that of the output as the graph gives it if `src_shape` is an
input, whose data are not read.

Partitions sum in f32, along the last dim last and else in the order of `diff_dst`: a result is off by 4 half
units in the last place of the sum of the sizes of its terms for each spatial dim, and one more for each
element of the kernel.

- Inputs: `diff_dst` T, `src_shape` T1 (1 or 2 of them); output: `diff_src` T.
- Types: T: f32, bf16, f16; T1: s32.
- Attributes: `strides` s64\[], required; `pads_begin` s64\[], required; `pads_end` s64\[], required;
  `exclude_pad` bool, required; `kernel` s64\[], required; `auto_pad` string, default `None`, one of `None`,
  `SAME_UPPER`, `SAME_LOWER`, `VALID`; `data_format` string, default `NXC`, one of `NCX`, `NXC`; `src_shape`
  s64\[], default \[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0].
- Shapes: The shape of `src`, whose windows are those of `diff_dst`. Without `src` it is the attribute
  `src_shape`, or that of the output.
- Checks: `pads_begin` and `pads_end` have no negative value.
"#};
    (BatchNormTrainingBackward) => {r#"
With `x' = (src − mean) / √(variance + epsilon)` and means over all dims but that of the channels, `diff_src`
is `gamma · (diff_dst − mean(diff_dst) − x' · mean(diff_dst · x')) / √(variance + epsilon)`; `diff_gamma` is
the sum of `diff_dst · x'`, `diff_beta` that of `diff_dst`.

Without `gamma` it is 1. (oneDNN leaves out both means, and `gamma`, if `diff_gamma` and `diff_beta` are not
asked for.)

Partitions compute in f32, but for the sums, whose terms are rounded to f32 and added up in f64: `diff_src` is
off by at most 32 half units in the last place of the sum of the sizes of its three terms.

- Inputs: `src` T1, `diff_dst` T1, `mean` T2, `variance` T2, `gamma` T2 (4 or 5 of them); outputs: `diff_src`
  T1, `diff_gamma` T2, `diff_beta` T2 (1 or 2 or 3 of them).
- Types: T1: f32, bf16, f16; T2: f32, bf16.
- Attributes: `epsilon` f32, required; `data_format` string, default `NXC`, one of `NCX`, `NXC`.
- Shapes: The first output has the shape of the first two inputs. All other tensors hold one number for each
  channel.
- Checks: The statistics and affine inputs may be bf16 only if `src` is bf16.
"#};
    (BatchNormForwardTraining) => {r#"
`gamma · (src − batch_mean) / √(batch_variance + epsilon) + beta` with `batch_mean = sum(src) / n` and
`batch_variance = sum((src − batch_mean)²) / n` over all dims but that of the channels. `running_mean` is
`momentum · mean + (1 − momentum) · batch_mean`, and `running_variance` likewise, of the outputs as they are
rounded.

Without `momentum` it is 0.5, without `gamma` 1, without `beta` 0. Of no elements, mean and variance of the
batch are 0.

Partitions compute in f32, as distances from the mean rounded to f32, and the variance in f64, as the mean of
squares less the square of the mean: a normalised number is off by at most 32 half units in the last place of
its size and the mean size of its channel, and of the mean, and by what f64 rounds off the variance. A channel
of equal numbers is `beta`.

- Inputs: `src` T1, `mean` T2, `variance` T2, `gamma` T2, `beta` T2 (3 or 4 or 5 of them); outputs: `dst` T1,
  `running_mean` T2, `running_variance` T2, `batch_mean` T2, `batch_variance` T2.
- Types: T1: f32, bf16, f16; T2: f32, bf16.
- Attributes: `epsilon` f32, required; `momentum` f32, optional; `data_format` string, default `NXC`, one of
  `NCX`, `NXC`.
- Shapes: The first output has the shape of the first input. All other tensors hold one number for each
  channel.
- Checks: The statistics and affine inputs may be bf16 only if `src` is bf16.
"#};
    (BatchNormInference) => {r#"
`(src − mean) · (gamma / √(variance + epsilon)) + beta` with the numbers of the channel, each step rounded to
f32.

- Inputs: `src` T1, `gamma` T2, `beta` T2, `mean` T2, `variance` T2; output: `dst` T1.
- Types: T1: f32, bf16, f16; T2: f32, bf16.
- Attributes: `epsilon` f32, required; `data_format` string, default `NXC`, one of `NCX`, `NXC`.
- Shapes: The output has the shape of the first input. All other inputs hold one number for each channel.
- Checks: The statistics and affine inputs may be bf16 only if `src` is bf16.
"#};
    (Convolution) => {r#"
The sum of the products of the weights of an output channel and the elements of a window of `src`, plus the
bias of the channel if there is one, rounded once. Padding takes no part; only beside a weight that is not
finite it may make the sum NaN, as a 0 does.

A kernel of `k` elements, `dilations` apart, slides over a spatial dim of `n` by `strides`, from `pads_begin`
elements before the first one on. It makes `(n + pads_begin + pads_end − 1 − dilations·(k − 1)) / strides + 1`
windows, rounded down, of which there must be one. With `auto_pad` = `VALID` nothing is padded; with
`SAME_UPPER` and `SAME_LOWER` so much that there are `n / strides` windows, rounded up, of an odd number one
more behind or before.

`groups` divides the channels: an output channel sees the input channels of its group, and the weights have as
many input channels as a group. There may be any number of spatial dims from one on.

- Inputs: `src` T, `weights` T, `bias` T (2 or 3 of them); output: `dst` T.
- Types: f32, bf16, f16.
- Attributes: `strides` s64\[], required; `pads_begin` s64\[], required; `pads_end` s64\[], required;
  `dilations` s64\[], required; `auto_pad` string, default `None`, one of `None`, `SAME_UPPER`, `SAME_LOWER`,
  `VALID`; `groups` s64, default 1; `data_format` string, default `NXC`, one of `NCX`, `NXC`; `weights_format`
  string, default `XIO`, one of `XIO`, `OIX`.
- Shapes: The batch of `src`, the output channels of the weights, and in each spatial dim the number of
  windows, of which there is at least one. The input channels of the weights are those of `src`, divided by
  `groups`, which divides the output channels too. `bias` holds one number for each output channel.
- Checks: `pads_begin` and `pads_end` have no negative value.
"#};
    (ConvolutionBackwardData) => {r#"
The gradient of the source of a Convolution: for each element, the sum of the products of the gradients of the
windows that see it and the weights by which they do; 0 if none does.

If neither `dst_shape` nor the graph gives its shape, a spatial dim is what `n` windows cover: `strides·(n −
1) + dilations·(k − 1) + 1 + output_padding − pads_begin − pads_end`.

- Inputs: `diff_dst` T1, `weights` T1, `dst_shape` T2 (2 or 3 of them); output: `diff_src` T1.
- Types: T1: f32, bf16, f16; T2: s32.
- Attributes: `output_padding` s64\[], default \[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]; `dst_shape` s64\[],
  default \[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]; `strides` s64\[], required; `pads_begin` s64\[], required;
  `pads_end` s64\[], required; `dilations` s64\[], required; `auto_pad` string, default `None`, one of `None`,
  `SAME_UPPER`, `SAME_LOWER`, `VALID`; `groups` s64, default 1; `data_format` string, default `NXC`, one of
  `NCX`, `NXC`; `weights_format` string, default `XIO`, one of `XIO`, `OIX`.
- Shapes: The attribute `dst_shape`, which an input can stand for; else the shape that the graph gives, else
  the one that follows from the windows. A convolution of that shape gives the shape of `diff_dst`.
- Checks: `pads_begin` and `pads_end` have no negative value.
"#};
    (ConvolutionBackwardWeights) => {r#"
The gradient of the weights of a Convolution: for each, the sum of the products of the gradients of all
windows and the elements that the weight is multiplied with there.

- Inputs: `src` T1, `diff_dst` T1, `weights_shape` T2 (2 or 3 of them); output: `diff_weights` T1.
- Types: T1: f32, bf16, f16; T2: s32.
- Attributes: `weights_shape` s64\[], default \[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]; `strides` s64\[],
  required; `pads_begin` s64\[], required; `pads_end` s64\[], required; `dilations` s64\[], required;
  `auto_pad` string, default `None`, one of `None`, `SAME_UPPER`, `SAME_LOWER`, `VALID`; `groups` s64, default
  1; `data_format` string, default `NXC`, one of `NCX`, `NXC`; `weights_format` string, default `XIO`, one of
  `XIO`, `OIX`.
- Shapes: The attribute `weights_shape`, which an input can stand for; else the shape that the graph gives. A
  convolution of `src` by such weights gives the shape of `diff_dst`.
- Checks: `pads_begin` and `pads_end` have no negative value.
"#};
    (ConvTranspose) => {r#"
ConvolutionBackwardData of `src` in place of the gradients of windows, plus the bias of the channel if there
is one: each element adds its products with a kernel to the result, `strides` from one kernel to the next.

A spatial dim is `strides·(n − 1) + dilations·(k − 1) + 1 + output_padding − pads_begin − pads_end` for `n`
elements of `src` and `k` of the kernel. With `auto_pad` = `SAME_UPPER` and `SAME_LOWER` so much is cut off
that it is `strides·n + output_padding` unless a stride is larger than the kernel, of an odd number one more
behind or before.

Of the weights, I are the channels of `src`, O those of a group of the result.

- Inputs: `src` T, `weights` T, `bias` T (2 or 3 of them); output: `dst` T.
- Types: f32, bf16, f16.
- Attributes: `output_padding` s64\[], default \[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]; `strides` s64\[],
  required; `pads_begin` s64\[], required; `pads_end` s64\[], required; `dilations` s64\[], required;
  `auto_pad` string, default `None`, one of `None`, `SAME_UPPER`, `SAME_LOWER`, `VALID`; `groups` s64, default
  1; `data_format` string, default `NXC`, one of `NCX`, `NXC`; `weights_format` string, default `XOI`, one of
  `XOI`, `IOX`.
- Shapes: The batch of `src`, the output channels of the weights times `groups`, and in each spatial dim what
  the windows cover, without the padding and with `output_padding`. `bias` holds one number for each channel
  of the output.
- Checks: `pads_begin` and `pads_end` have no negative value.
"#};
    (ConvTransposeBackwardData) => {r#"
The gradient of the source of a ConvTranspose, which is the Convolution of `diff_dst` by the same weights.

- Inputs: `diff_dst` T, `weights` T; output: `diff_src` T.
- Types: f32, bf16, f16.
- Attributes: `strides` s64\[], required; `pads_begin` s64\[], required; `pads_end` s64\[], required;
  `dilations` s64\[], required; `auto_pad` string, default `None`, one of `None`, `SAME_UPPER`, `SAME_LOWER`,
  `VALID`; `groups` s64, default 1; `data_format` string, default `NXC`, one of `NCX`, `NXC`; `weights_format`
  string, default `XOI`, one of `XOI`, `IOX`.
- Shapes: The batch of `diff_dst`, the input channels of the weights, and in each spatial dim the number of
  windows. The output channels of the weights are those of `diff_dst`, divided by `groups`.
- Checks: `pads_begin` and `pads_end` have no negative value.
"#};
    (ConvTransposeBackwardWeights) => {r#"
The gradient of the weights of a ConvTranspose: for each, the sum of the products of all elements of `src` and
the gradients of the elements to which the weight takes them.

- Inputs: `src` T1, `diff_dst` T1, `weights_shape` T2 (2 or 3 of them); output: `diff_weights` T1.
- Types: T1: f32, bf16, f16; T2: s32.
- Attributes: `weights_shape` s64\[], default \[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]; `strides` s64\[],
  required; `pads_begin` s64\[], required; `pads_end` s64\[], required; `dilations` s64\[], required;
  `auto_pad` string, default `None`, one of `None`, `SAME_UPPER`, `SAME_LOWER`, `VALID`; `groups` s64, default
  1; `data_format` string, default `NXC`, one of `NCX`, `NXC`; `weights_format` string, default `XOI`, one of
  `XOI`, `IOX`.
- Shapes: The attribute `weights_shape`, which an input can stand for; else the shape that the graph gives. A
  convolution of `diff_dst` by such weights gives the shape of `src`.
- Checks: `pads_begin` and `pads_end` have no negative value.
"#};
    (Interpolate) => {r#"
Each spatial dim of `src` resized to a number of `sizes`, or by a factor of `scales`.

With `i` elements of the source and `o` of the result along a dim, the place `k` of the result lies at `(k +
½) · i / o − ½` under `half_pixel`, and at `k · (i − 1) / (o − 1)`, or 0 if `o` is 1, under `align_corners`;
beyond an edge it lies on it. `nearest` takes the element there, of two the latter one; `linear`, `bilinear`
and `trilinear` all take the two that enclose the place along each dim, each with 1 less its distance as its
share. The share is the exact fraction, rounded once, and an element without one is not taken. The input
`sizes` is not read. (oneDNN computes places and shares in f32, and runs no `align_corners`.)

Partitions sum in f32, along the last dim last: a result is off by at most 4 half units in the last place of
the sum of the sizes of its terms for each spatial dim.

- Inputs: `src` T1, `sizes` T2 (1 or 2 of them); output: `dst` T1.
- Types: T1: f32, bf16, f16; T2: s32.
- Attributes: `mode` string, required, one of `nearest`, `linear`, `bilinear`, `trilinear`; `sizes` s64\[],
  optional; `scales` f32\[], optional; `coordinate_transformation_mode` string, default `half_pixel`, one of
  `half_pixel`, `align_corners`; `data_format` string, default `NXC`, one of `NCX`, `NXC`.
- Shapes: The shape of the first input, with the attribute `sizes` as spatial dims, or with the product of
  each spatial dim and its number in `scales`, rounded towards 0.
- Checks: Exactly one of the attributes `sizes` and `scales` is set.
"#};
    (InterpolateBackward) => {r#"
The gradient of `Interpolate` for `src`, of which the shape alone is used: the sum of the elements of
`diff_dst` that were made of an element, each by its share.

Partitions sum in f32, along the last dim last and else in the order of `diff_dst`: a result is off by as many
half units in the last place of the sum of the sizes of its terms as it has terms, and 4 more for each spatial
dim.

- Inputs: `src` T1, `diff_dst` T1, `sizes` T2 (2 or 3 of them); output: `diff_src` T1.
- Types: T1: f32, bf16, f16; T2: s32.
- Attributes: `mode` string, required, one of `nearest`, `linear`, `bilinear`, `trilinear`;
  `coordinate_transformation_mode` string, default `half_pixel`, one of `half_pixel`, `align_corners`; `sizes`
  s64\[], optional; `scales` f32\[], optional; `data_format` string, default `NXC`, one of `NCX`, `NXC`.
- Shapes: The shape of the first input. The second one has the shape that `Interpolate` gives the first one.
- Checks: Exactly one of the attributes `sizes` and `scales` is set.
"#};
    (MaxPool) => {r#"
The largest element of each window, NaN where one is NaN, +0 above −0; of a window in padding alone it is −∞.

A window takes `kernel` elements along each spatial dim, `dilations` apart, from one `strides` behind that of
the window before, the first from `pads_begin` before the image on. `auto_pad` takes the place of the pads:
`VALID` is none, `SAME_UPPER` and `SAME_LOWER` as many as a window for each step through the image needs, of
an odd number one more behind or before it. With `rounding_type` = `ceil` a last window may reach beyond the
padding. (oneDNN gives the least finite number for a window without a larger one, and lets its kernels treat
NaN as they do.)

Partitions are exact.

- Inputs: `src` T; output: `dst` T.
- Types: f32, bf16, f16.
- Attributes: `strides` s64\[], required; `pads_begin` s64\[], required; `pads_end` s64\[], required; `kernel`
  s64\[], required; `dilations` s64\[], default \[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]; `data_format` string,
  default `NXC`, one of `NCX`, `NXC`; `rounding_type` string, default `floor`; `auto_pad` string, default
  `None`, one of `None`, `SAME_UPPER`, `SAME_LOWER`, `VALID`.
- Shapes: The first input with the number of windows in the place of each spatial dim: as many as there are
  `strides` in what the padded dim has beyond `dilations` · (`kernel` − 1) + 1 elements, rounded as
  `rounding_type` says, and one more.
- Checks: `pads_begin` and `pads_end` have no negative value. `dilations` has as many entries as `kernel`; the
  default of twelve ones fits any kernel.
"#};
    (MaxPoolBackward) => {r#"
The gradient of `MaxPool`: each element of `diff_dst` is added to the element of `diff_src` at the place of
the largest element of its window of `src`, of several the first in row-major order. All others are 0.

A NaN counts as larger than every number, and 0 is equal to −0. A window in padding alone has none. `diff_dst`
has as many windows as `rounding_type` = `floor` gives. (oneDNN compares as its forward kernels do.)

Partitions sum in f32 in the order of `diff_dst`: a result is off by as many half units in the last place of
the sum of sizes as windows can share an element.

- Inputs: `src` T, `diff_dst` T; output: `diff_src` T.
- Types: f32, bf16, f16.
- Attributes: `strides` s64\[], required; `pads_begin` s64\[], required; `pads_end` s64\[], required; `kernel`
  s64\[], required; `auto_pad` string, default `None`, one of `None`, `SAME_UPPER`, `SAME_LOWER`, `VALID`;
  `dilations` s64\[], default \[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]; `data_format` string, default `NXC`, one
  of `NCX`, `NXC`.
- Shapes: The shape of `src`, whose windows are those of `diff_dst`. Without `src` it is the attribute
  `src_shape`, or that of the output.
- Checks: `pads_begin` and `pads_end` have no negative value. `dilations` has as many entries as `kernel`; the
  default of twelve ones fits any kernel.
"#};
    ($Name:ident) => { $crate::types::op_docs::other_kind_doc!($Name) };
}

pub(in crate::types) use image_kind_doc;
