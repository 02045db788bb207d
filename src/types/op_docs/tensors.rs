//! The documentation of kinds that compute tensors as a whole.
//! `STERNA_REWRITE=1 cargo test --test graphs item_docs` writes it anew.

#[rustfmt::skip]
macro_rules! tensor_kind_doc {
    (BiasAddBackward) => {r#"
The sum of `diff_dst` over all dims but that of the channels.

- Inputs: `diff_dst` T; output: `diff_bias` T.
- Types: f32, bf16, f16.
- Attributes: `data_format` string, default `NXC`, one of `NCX`, `NXC`.
- Shapes: The output holds one number for each channel of the input.
"#};
    (Concat) => {r#"
The inputs one after the other along `axis`; their other dims are equal.

- Inputs: `src_i` T (1 to 64 of them); output: `dst` T.
- Types: every type of whole bytes.
- Attributes: `axis` s64, required.
- Shapes: The inputs have one shape but for the dim `axis`, which is their sum in the output.
"#};
    (Dequantize) => {r#"
`(x − zp) · scale`, both steps rounded to f32.

Scales and zero points are those of Quantize; from f8 there are no zero points.

- Inputs: `src` T1; output: `dst` T2.
- Types: T1: u8, s8, f8_e5m2, f8_e4m3; T2: f32.
- Attributes: `qtype` string, default `per_tensor`; `axis` s64, default 1; `scales` f32\[], required; `zps`
  s64\[], optional.
- Shapes: The shape of the first input. The scales and zero points divide each of its dims into groups. Scales
  per channel that are an attribute can be those of all groups of the weights of a transposed convolution,
  which have along `axis` the output channels of one: of `IOX`, and of `XOI` with one output channel in a
  group. They can also be those of the last of three or more dims if `axis` names a dim of one element, such
  as a spatial one of `XIO`.
- Checks: `per_tensor`: one scale. `zps`, if given, has the length of `scales`; Dequantize from an f8 type
  takes no `zps`.
"#};
    (DynamicDequantize) => {r#"
As Dequantize, with scales and zero points that are tensors; zero points are rounded to f32, and the result to
the type of the scales.

With `qtype` = `per_group`, `group_shape` is the number of neighbours along each dim that share a scale;
scales, and zero points if there are any, have the dims of `src` divided by it. Of s4 and u4, two elements lie
in a byte, the first in the low half.

- Inputs: `src` T1, `scales` T2, `zps` T3 (2 or 3 of them); output: `dst` T2.
- Types: T1: u8, s8, s4, u4; T2: bf16, f16, f32; T3: u4, s4, u8, s8, s32.
- Attributes: `qtype` string, default `per_tensor`; `axis` s64, default 1; `group_shape` s64\[], optional.
- Shapes: The shape of the first input. The scales and zero points divide each of its dims into groups. Scales
  per channel that are an attribute can be those of all groups of the weights of a transposed convolution,
  which have along `axis` the output channels of one: of `IOX`, and of `XOI` with one output channel in a
  group. They can also be those of the last of three or more dims if `axis` names a dim of one element, such
  as a spatial one of `XIO`.
- Checks: `per_tensor`: one scale, one zero point. `per_channel`: one zero point or as many as scales.
  `per_group`: scales and zero points of rank 2 or more and of equal shape. Unknown dims are not checked.
"#};
    (DynamicQuantize) => {r#"
As Quantize, with scales and zero points that are tensors; a single zero point goes with any number of scales.

- Inputs: `src` T1, `scales` T1, `zps` T2 (2 or 3 of them); output: `dst` T3.
- Types: T1: f32; T2: u8, s8, s32; T3: u8, s8.
- Attributes: `qtype` string, default `per_tensor`; `axis` s64, default 1.
- Shapes: The shape of the first input. The scales and zero points divide each of its dims into groups. Scales
  per channel that are an attribute can be those of all groups of the weights of a transposed convolution,
  which have along `axis` the output channels of one: of `IOX`, and of `XOI` with one output channel in a
  group. They can also be those of the last of three or more dims if `axis` names a dim of one element, such
  as a spatial one of `XIO`.
- Checks: `per_tensor`: one scale, one zero point. `per_channel`: one zero point or as many as scales.
  `per_group`: scales and zero points of rank 2 or more and of equal shape. Unknown dims are not checked.
"#};
    (LayerNorm) => {r#"
`gamma · (x − mean) / √(variance + epsilon) + beta` over the dims from `begin_norm_axis` on, with `mean =
sum(x) / n` and `variance = sum((x − mean)²) / n`, which are the second and third output.

`gamma` and `beta` broadcast one way onto those dims, and are left out without `use_affine`. Of no elements,
mean and variance are 0.

Partitions compute in f32, as distances from the mean: a normalised number is off by at most 32 half units in
the last place of its size and the mean size of its row, and by what f64 rounds off the mean. A row of equal
numbers is 0.

- Inputs: `src` T1, `gamma` T2, `beta` T2 (1 or 3 of them); outputs: `dst` T1, `mean` T2, `variance` T2 (1 or
  3 of them).
- Types: T1: f32, bf16, f16; T2: f32, bf16.
- Attributes: `keep_stats` bool, default true; `begin_norm_axis` s64, default -1; `use_affine` bool, default
  true; `epsilon` f32, default 0.00001.
- Shapes: The first output has the shape of the first input, the statistics its dims before `begin_norm_axis`.
  `gamma` and `beta` broadcast onto the dims from there on.
- Checks: The statistics and affine inputs may be bf16 only if `src` is bf16. Three outputs if `keep_stats` is
  true.
"#};
    (LayerNormBackward) => {r#"
With `x' = (src − mean) / √(variance + epsilon)` and means over the dims from `begin_norm_axis` on, `diff_src`
is `(g − mean(g) − x' · mean(g · x')) / √(variance + epsilon)` of `g = gamma · diff_dst`; `diff_gamma` is the
sum of `diff_dst · x'` over all rows, `diff_beta` that of `diff_dst`.

Without `use_affine` gamma is 1.

Partitions compute in f64 and round once, but for the terms of `diff_gamma`: each is rounded to f32, and off
by at most 4 half units in its last place, before they are added up in f64.

- Inputs: `src` T1, `diff_dst` T1, `mean` T2, `variance` T2, `gamma` T2, `beta` T2 (4 or 5 or 6 of them);
  outputs: `diff_src` T1, `diff_gamma` T2, `diff_beta` T2 (1 or 3 of them).
- Types: T1: f32, bf16, f16; T2: f32, bf16.
- Attributes: `begin_norm_axis` s64, default -1; `use_affine` bool, default true; `epsilon` f32, default
  0.00001.
- Shapes: The gradient of the first input has its shape. The gradients of `gamma` and `beta` have the shape of
  `gamma`.
- Checks: The statistics and affine inputs may be bf16 only if `src` is bf16. Three outputs if `use_affine` is
  true.
"#};
    (LogSoftmax) => {r#"
`x − max − ln(sum)` with `sum` over `exp(x − max)` along the axis.

A row that is −inf throughout, and one that holds NaN or ∞, give NaN.

Partitions compute in f32; `reference::bounds` says how far a result may be off.

- Inputs: `src` T; output: `dst` T.
- Types: f32, bf16, f16.
- Attributes: `axis` s64, default -1.
- Shapes: The first output has the shape of the input. The statistics have 1 along `axis`.
"#};
    (LogSoftmaxBackward) => {r#"
`diff_dst − exp(dst) · sum` with `sum` over `diff_dst` along the axis.

- Inputs: `diff_dst` T, `dst` T; output: `diff_src` T.
- Types: f32, bf16, f16.
- Attributes: `axis` s64, default -1.
- Shapes: Both inputs and the output have one shape, and `axis` is one of its dims.
"#};
    (MatMul) => {r#"
The sum of the products of each row and each column, plus `bias` if there is one, rounded once. A row of no
elements sums up to 0.

A vector is a row on the left and a column on the right, transposed or not, and adds no dim to the result. The
dims before the last two broadcast to each other as in NumPy; `bias` broadcasts one way onto the result.

If the CPU multiplies pairs of bf16, a compiled product of bf16 takes subnormal numbers for 0. A compiled
product of operands that Dequantize makes of u8 or s8 adds up the integers exactly, in s32 if no sum can leave
s32 and each column has one scale.

- Inputs: `src` T, `weights` T, `bias` T (2 or 3 of them); output: `dst` T1.
- Types: f32, bf16, f16, f64.
- Attributes: `transpose_a` bool, default false; `transpose_b` bool, default false; `accumulation_mode`
  string, default `strict`, one of `strict`, `relaxed`, `any`, `f32`, `s32`, `f16`.
- Shapes: `[.., m, k]` and `[.., k, n]`, transposed or not, give `[.., m, n]`. Leading dims broadcast. An
  input of rank 1 is a row on the left and a column on the right, and its dim is missing in the output. The
  bias broadcasts onto the output.
- Checks: The output has the type of the first input, or f32.
"#};
    (PReLUBackward) => {r#"
`diff_src` is `diff_dst` for `src` above 0, else `diff_dst · slope`. `diff_slope` is the sum of `diff_dst ·
src` over the elements of `src` that are not above 0 and share a slope.

- Inputs: `src` T, `slope` T, `diff_dst` T; outputs: `diff_src` T, `diff_slope` T.
- Types: f32, bf16, f16.
- Attributes: `data_format` string, default `NXC`, one of `NCX`, `NXC`.
- Shapes: Each gradient has the shape of the input whose gradient it is. A slope of rank 1 stands along the
  dim of channels, of a source of rank 1 along its only dim, whatever `data_format` says.
"#};
    (Quantize) => {r#"
`x / scale + zp`, both steps rounded to f32; into an integer rounded to nearest, ties to even, and kept within
its bounds, NaN as 0; into f8 rounded once more.

With `qtype` = `per_tensor` there is one scale, with `per_channel` one for each place along `axis`. Zero
points are as many as scales, or there are none, which is as if all were 0. What is too large for f8_e5m2
becomes ∞, for f8_e4m3 NaN. (The code of oneDNN multiplies by the reciprocal of the scale instead, and may be
one step off where a quotient is about a half.)

- Inputs: `src` T1; output: `dst` T2.
- Types: T1: f32; T2: u8, s8, f8_e5m2, f8_e4m3.
- Attributes: `qtype` string, default `per_tensor`; `axis` s64, default 1; `scales` f32\[], required; `zps`
  s64\[], optional.
- Shapes: The shape of the first input. The scales and zero points divide each of its dims into groups. Scales
  per channel that are an attribute can be those of all groups of the weights of a transposed convolution,
  which have along `axis` the output channels of one: of `IOX`, and of `XOI` with one output channel in a
  group. They can also be those of the last of three or more dims if `axis` names a dim of one element, such
  as a spatial one of `XIO`.
- Checks: `per_tensor`: one scale. `zps`, if given, has the length of `scales`; Dequantize from an f8 type
  takes no `zps`.
"#};
    (ReduceL1) => {r#"
The sum of `|x|` along `axes`; of nothing it is 0.

Partitions take `axes` as an attribute alone, compute in f64 and round once.

- Inputs: `src` T1, `axes` T2 (1 or 2 of them); output: `dst` T1.
- Types: T1: f32, bf16, f16; T2: s32.
- Attributes: `axes` s64\[], default \[]; `keep_dims` bool, default false.
- Shapes: The output has the shape of the first input without the dims in `axes`; with `keep_dims` each of
  them is 1.
- Checks: `axes` as an attribute or as the second input, not both.
"#};
    (ReduceL2) => {r#"
The square root of the sum of `x²` along `axes`; of nothing it is 0.

Partitions take `axes` as an attribute alone, compute in f64 and round once.

- Inputs: `src` T1, `axes` T2 (1 or 2 of them); output: `dst` T1.
- Types: T1: f32, bf16, f16; T2: s32.
- Attributes: `axes` s64\[], default \[]; `keep_dims` bool, default false.
- Shapes: The output has the shape of the first input without the dims in `axes`; with `keep_dims` each of
  them is 1.
- Checks: `axes` as an attribute or as the second input, not both.
"#};
    (ReduceMax) => {r#"
The largest element along `axes`, NaN where one is NaN, +0 above −0; of nothing it is −∞.

Partitions take `axes` as an attribute alone, compute in f64 and round once.

- Inputs: `src` T1, `axes` T2 (1 or 2 of them); output: `dst` T1.
- Types: T1: f32, bf16, f16; T2: s32.
- Attributes: `axes` s64\[], default \[]; `keep_dims` bool, default false.
- Shapes: The output has the shape of the first input without the dims in `axes`; with `keep_dims` each of
  them is 1.
- Checks: `axes` as an attribute or as the second input, not both.
"#};
    (ReduceMean) => {r#"
The sum along `axes` by the number of elements; of nothing it is NaN.

Partitions take `axes` as an attribute alone, compute in f64 and round once.

- Inputs: `src` T1, `axes` T2 (1 or 2 of them); output: `dst` T1.
- Types: T1: f32, bf16, f16; T2: s32.
- Attributes: `axes` s64\[], default \[]; `keep_dims` bool, default false.
- Shapes: The output has the shape of the first input without the dims in `axes`; with `keep_dims` each of
  them is 1.
- Checks: `axes` as an attribute or as the second input, not both.
"#};
    (ReduceMin) => {r#"
The smallest element along `axes`, NaN where one is NaN, −0 below +0; of nothing it is ∞.

Partitions take `axes` as an attribute alone, compute in f64 and round once.

- Inputs: `src` T1, `axes` T2 (1 or 2 of them); output: `dst` T1.
- Types: T1: f32, bf16, f16; T2: s32.
- Attributes: `axes` s64\[], default \[]; `keep_dims` bool, default false.
- Shapes: The output has the shape of the first input without the dims in `axes`; with `keep_dims` each of
  them is 1.
- Checks: `axes` as an attribute or as the second input, not both.
"#};
    (ReduceProd) => {r#"
The product along `axes`; of nothing it is 1.

Partitions take `axes` as an attribute alone, compute in f64 and round once.

- Inputs: `src` T1, `axes` T2 (1 or 2 of them); output: `dst` T1.
- Types: T1: f32, bf16, f16; T2: s32.
- Attributes: `axes` s64\[], default \[]; `keep_dims` bool, default false.
- Shapes: The output has the shape of the first input without the dims in `axes`; with `keep_dims` each of
  them is 1.
- Checks: `axes` as an attribute or as the second input, not both.
"#};
    (ReduceSum) => {r#"
The sum along `axes`; of nothing it is 0.

Partitions take `axes` as an attribute alone, compute in f64 and round once.

- Inputs: `src` T1, `axes` T2 (1 or 2 of them); output: `dst` T1.
- Types: T1: f32, bf16, f16; T2: s32.
- Attributes: `axes` s64\[], default \[]; `keep_dims` bool, default false.
- Shapes: The output has the shape of the first input without the dims in `axes`; with `keep_dims` each of
  them is 1.
- Checks: `axes` as an attribute or as the second input, not both.
"#};
    (Reorder) => {r#"
The same elements; only strides differ.

- Inputs: `src` T; output: `dst` T.
- Types: every type of whole bytes.
- Shapes: The output has the shape of the first input.
"#};
    (SoftMax) => {r#"
`exp(x − max) / sum` with `sum` over `exp(x − max)` along the axis; the statistics are `max + ln(sum)`.

A row that is −inf throughout gives NaN under `mode` = `none`; under `inf_as_zero` it gives zeros, and its
statistics are 0. A row that holds NaN or ∞ gives NaN. A row of no elements has −∞ as its statistics, under
`inf_as_zero` 0.

Partitions compute in f32: a result is off by at most 32 half units in its last place, and one more for each 1
that its element is below the maximum.

- Inputs: `src` T1; outputs: `dst` T2, `stats` T3 (1 or 2 of them).
- Types: T1: f32, bf16, f16; T2: f32, bf16, f16; T3: f32.
- Attributes: `axis` s64, default 1; `mode` string, default `none`, one of `none`, `inf_as_zero`.
- Shapes: The first output has the shape of the input. The statistics have 1 along `axis`.
- Checks: The output has the type of the input, unless one of the two is f32.
"#};
    (SoftMaxBackward) => {r#"
`dst · (diff_dst − sum)` with `sum` over `dst · diff_dst` along the axis.

Partitions compute in f64 and round once.

- Inputs: `diff_dst` T1, `dst` T1; output: `diff_src` T2.
- Types: f32, bf16, f16.
- Attributes: `axis` s64, default 1.
- Shapes: Both inputs and the output have one shape, and `axis` is one of its dims.
- Checks: The output has the type of the first input, or f32.
"#};
    (StaticReshape) => {r#"
The elements of the input, in the same order, in the shape `shape`.

With `special_zero` a 0 stands for the dim of the input at that place, else for itself. One −1 stands for what
is left beside the dims that a 0 stands for; beside another dim of 0 it is an error.

- Inputs: `src` T; output: `dst` T.
- Types: every type of whole bytes.
- Attributes: `shape` s64\[], required; `special_zero` bool, required.
- Shapes: The attribute `shape`, in which −1 stands for what is left, and 0 under `special_zero` for the dim
  of the input.
"#};
    (StaticTranspose) => {r#"
Dim `i` of the result is dim `order[i]` of the input; an empty `order` reverses the dims.

- Inputs: `src` T; output: `dst` T.
- Types: every type of whole bytes.
- Attributes: `order` s64\[], required.
- Shapes: The dims of the input in the order of the attribute `order`.
"#};
    (GroupNorm) => {r#"
The formula of LayerNorm over the channels of a group, all that lies beside them included, for each of the
first dim: `groups` groups of neighbouring channels.

`gamma` and `beta` have a number for each channel, and are left out without `use_affine`. Mean and variance
have the shape {N, groups}; of no elements they are 0.

Partitions compute in f32, as distances from the mean: a normalised number is off by at most 32 half units in
the last place of its size and the mean size of its row, and by what f64 rounds off the mean. A row of equal
numbers is 0.

- Inputs: `src` T1, `gamma` T2, `beta` T2 (1 or 3 of them); outputs: `dst` T1, `mean` T2, `variance` T2 (1 or
  3 of them).
- Types: T1: f32, bf16, f16; T2: f32, bf16.
- Attributes: `keep_stats` bool, default true; `groups` s64, required; `use_affine` bool, default true;
  `epsilon` f32, default 0.00001; `data_format` string, default `NXC`, one of `NCX`, `NXC`.
- Shapes: The first output has the shape of the first input. The statistics have a number for each group of
  each element of the first dim. `gamma` and `beta` hold one number for each channel.
- Checks: The statistics and affine inputs may be bf16 only if `src` is bf16. Three outputs if `keep_stats` is
  true.
"#};
    (RMSNorm) => {r#"
`gamma · x / √(mean(x²) + epsilon)` with the mean over the dims from `begin_norm_axis` on.

`gamma` broadcasts one way onto `src`. (The documentation of oneDNN takes two roots; its code takes one.)

Partitions compute in f32: a normalised number is off by at most 32 half units in its last place.

- Inputs: `src` T1, `gamma` T2 (1 or 2 of them); output: `dst` T1.
- Types: f32, bf16, f16.
- Attributes: `begin_norm_axis` s64, default -1; `epsilon` f32, default 0.00001.
- Shapes: The first output has the shape of the first input, the statistics its dims before `begin_norm_axis`.
  `gamma` and `beta` broadcast onto the dims from there on.
- Checks: The statistics and affine inputs may be bf16 only if `src` is bf16.
"#};
    (Dropout) => {r#"
`src / (1 − P)` where a random 32-bit word is above `P · (2³² − 1)`, else +0, whatever stood there; P is
`probability`. The second output, if there is one, is 1 where an element is kept, else 0.

`1 / (1 − P)` and its product with `src` are rounded to f32. P = 1 gives zeros; for the bound P is kept within
\[0, 1], and NaN keeps nothing. `seed`, `offset` and `probability` are tensors of one element or host scalars.

The words are those of Philox4x32-10, bit for bit the ones of oneDNN's reference, by the row-major index `i`
of an element, whatever the strides. With an offset that is not 0, the key is the seed, the counter the offset
and `i` without its last two bits, low halves first; of the four words the last two bits of `i` choose one.
With offset 0 all that follows is in 32 bits: with `x` as `i` without its last two bits, the key is the seed
twice, the counter {x, x + 1, x, x + 3}, and the word is the third, so four neighbours are kept or dropped
together.

- Inputs: `src` T, `seed` T_seed, `offset` T_offset, `probability` T_p; outputs: `dst` T, `mask` T_mask (1 or
  2 of them).
- Types: T: f32, bf16, f16; T_seed: s64; T_offset: s64; T_p: f32; T_mask: u8.
- Shapes: The outputs have the shape of the first input. The seed, the offset and the probability are one
  number each.
"#};
    (Slice) => {r#"
Along each of `axes` the elements from `starts` to `ends`, the end excluded, every `steps`-th.

Without `axes` these are the first dims, without `steps` all steps are 1; the other dims stay whole. A start
or an end that is negative counts from the end of its dim; then one that lies beyond the dim is moved to its
edge. A negative step goes backwards, and its end may be before the first element. A range of nothing leaves a
dim of 0.

- Inputs: `src` T; output: `dst` T.
- Types: every type of whole bytes.
- Attributes: `starts` s64\[], required; `ends` s64\[], required; `steps` s64\[], default \[]; `axes` s64\[],
  default \[].
- Shapes: Along each of `axes`, the elements of a range.
- Checks: `ends`, and `steps` and `axes` if given, have as many entries as `starts`, and no step is 0.
"#};
    (CumSum) => {r#"
The sum of the elements along the axis up to the element's own, with `exclusive` without its own; with
`reverse` from the last element on.

Sums are f64, in the order of the axis; those of integers wrap.

- Inputs: `src` T; output: `dst` T.
- Types: f32, bf16, f16, s32, s64.
- Attributes: `axis` s64, required; `exclusive` bool, default false; `reverse` bool, default false.
- Shapes: The output has the shape of the input, and `axis` is one of its dims.
"#};
    (Gather) => {r#"
The elements of `src` that `indices` name: in `Gather` whole slices along `axis`, for each element of the
first `batch_dims` dims by its own indices; in `GatherElements` each element of the result by an index of its
own along `axis`; in `GatherND` by tuples of indices, which are the last dim of `indices`.

A negative index counts from the end of its dim. An index beyond the dim is an error that names the tensor and
the place, and nothing is written; with `clamp_indices` it stands for the nearest element. A result without
elements reads no index.

- Inputs: `src` T1, `indices` T2; output: `dst` T1.
- Types: T1: every type of whole bytes; T2: s32, s64.
- Attributes: `axis` s64, default 0; `batch_dims` s64, default 0; `clamp_indices` bool, default false.
- Shapes: The dims of the first input, with the dims of `indices` from `batch_dims` on in place of the dim
  `axis`. The first `batch_dims` dims of both are equal, and `axis` is none of them.
"#};
    (GatherElements) => {r#"
The elements of `src` that `indices` name: in `Gather` whole slices along `axis`, for each element of the
first `batch_dims` dims by its own indices; in `GatherElements` each element of the result by an index of its
own along `axis`; in `GatherND` by tuples of indices, which are the last dim of `indices`.

A negative index counts from the end of its dim. An index beyond the dim is an error that names the tensor and
the place, and nothing is written; with `clamp_indices` it stands for the nearest element. A result without
elements reads no index.

- Inputs: `src` T1, `indices` T2; output: `dst` T1.
- Types: T1: every type of whole bytes; T2: s32, s64.
- Attributes: `axis` s64, default 0; `clamp_indices` bool, default false.
- Shapes: The shape of `indices`, each dim of which but `axis` is at most that of the first input.
"#};
    (GatherND) => {r#"
The elements of `src` that `indices` name: in `Gather` whole slices along `axis`, for each element of the
first `batch_dims` dims by its own indices; in `GatherElements` each element of the result by an index of its
own along `axis`; in `GatherND` by tuples of indices, which are the last dim of `indices`.

A negative index counts from the end of its dim. An index beyond the dim is an error that names the tensor and
the place, and nothing is written; with `clamp_indices` it stands for the nearest element. A result without
elements reads no index.

- Inputs: `src` T1, `indices` T2; output: `dst` T1.
- Types: T1: every type of whole bytes; T2: s32, s64.
- Attributes: `batch_dims` s64, default 0; `clamp_indices` bool, default false.
- Shapes: The dims of `indices` but the last, then those of the first input behind the dims that an index
  names: as many as the last dim of `indices` has elements, behind `batch_dims` dims that both share.
"#};
    (GatherBackward) => {r#"
The gradient of the source of `Gather`: at each place of a source of shape `src_shape`, the sum of the
elements of `diff_dst` that were gathered from it, 0 where none was.

The sum starts from 0 and is taken in the row-major order of `diff_dst`, each step rounded to the type.
Indices are read as in `Gather`.

- Inputs: `diff_dst` T1, `indices` T2; output: `diff_src` T1.
- Types: T1: f32, bf16, f16, f64; T2: s32, s64.
- Attributes: `src_shape` s64\[], required; `axis` s64, default 0; `batch_dims` s64, default 0;
  `clamp_indices` bool, default false.
- Shapes: The attribute `src_shape`. The first input has the shape that `Gather` gives a source of that shape.
- Checks: `src_shape` is a possible shape, at most twelve dims, none negative.
"#};
    (ScatterElements) => {r#"
A copy of `src` in which `updates` stand at the places that `indices` name: in `ScatterElements` each by an
index of its own along `axis`, in `ScatterND` whole slices by tuples of indices, which are the last dim of
`indices`. Under a `reduction` the old element and the update are combined.

Updates are taken in row-major order, so that of several at one place the last one stands, and sums and
products have a defined order; each step is rounded to the type, integers wrap around. Indices are read as in
`Gather`.

- Inputs: `src` T1, `indices` T2, `updates` T1; output: `dst` T1.
- Types: T1: every type of whole bytes; T2: s32, s64.
- Attributes: `axis` s64, default 0; `reduction` string, default `none`, one of `none`, `add`, `mul`, `min`,
  `max`; `clamp_indices` bool, default false.
- Shapes: The shape of the first input. `updates` has that of `indices`, each dim of which but `axis` is at
  most that of the first input.
- Checks: A `reduction` other than `none` is of numbers: no truth values and no type of 8 bits with a
  fraction.
"#};
    (ScatterND) => {r#"
A copy of `src` in which `updates` stand at the places that `indices` name: in `ScatterElements` each by an
index of its own along `axis`, in `ScatterND` whole slices by tuples of indices, which are the last dim of
`indices`. Under a `reduction` the old element and the update are combined.

Updates are taken in row-major order, so that of several at one place the last one stands, and sums and
products have a defined order; each step is rounded to the type, integers wrap around. Indices are read as in
`Gather`.

- Inputs: `src` T1, `indices` T2, `updates` T1; output: `dst` T1.
- Types: T1: every type of whole bytes; T2: s32, s64.
- Attributes: `reduction` string, default `none`, one of `none`, `add`, `mul`, `min`, `max`; `clamp_indices`
  bool, default false.
- Shapes: The shape of the first input. `updates` has the shape that `GatherNd` gives.
- Checks: A `reduction` other than `none` is of numbers: no truth values and no type of 8 bits with a
  fraction.
"#};
    (TopK) => {r#"
The `k` largest elements of each line along `axis`, the largest one first, and their indices along the axis;
without `largest` the `k` smallest, the smallest one first.

A NaN counts as larger than every number, and 0 is equal to −0. Of equal elements that with the smaller index
comes first.

- Inputs: `src` T1; outputs: `dst` T1, `indices` T2.
- Types: T1: every numeric type of whole bytes but f8; T2: s32, s64.
- Attributes: `k` s64, required; `axis` s64, default -1; `largest` bool, default true.
- Shapes: Both outputs have the shape of the input, with `k` along `axis`, which is at most the dim.
"#};
    (ArgMax) => {r#"
The index of the largest element of each line along `axis`; of several the first, or with `select_last_index`
the last.

A NaN counts as larger than every number, and 0 is equal to −0.

- Inputs: `src` T1; output: `dst` T2.
- Types: T1: every numeric type of whole bytes but f8; T2: s32, s64.
- Attributes: `axis` s64, required; `keep_dims` bool, default false; `select_last_index` bool, default false.
- Shapes: The shape of the input without the dim `axis`, which has an element; with `keep_dims` it is 1.
"#};
    (ArgMin) => {r#"
The index of the smallest element of each line along `axis`; of several the first, or with `select_last_index`
the last.

A NaN counts as smaller than every number, and 0 is equal to −0.

- Inputs: `src` T1; output: `dst` T2.
- Types: T1: every numeric type of whole bytes but f8; T2: s32, s64.
- Attributes: `axis` s64, required; `keep_dims` bool, default false; `select_last_index` bool, default false.
- Shapes: The shape of the input without the dim `axis`, which has an element; with `keep_dims` it is 1.
"#};
    (PagedLoad) => {r#"
The keys or values of sequences whose cache lies in pages. `src` has dims \[pages, heads, rows of a page,
elements]: row `t` of a sequence `b` is row `t mod n` of page `block_table[b, t / n]` of `n` rows. With
`lengths`, the rows of a sequence from its length on are 0. A row of 4-bit elements has an even number of
them.

An entry of the table is from 0 to the number of pages − 1, a length from 0 to the number of rows. Another
number is an error that names the tensor and the place, and nothing is written. An entry whose rows all lie
behind the length is not read, so that it may be any number, as the rows there may be. Sequences may share
pages. Strides alone say in which order the heads and the rows of a page lie. A result without elements reads
no table.

- Inputs: `src` T1, `block_table` T2, `lengths` T3 (2 or 3 of them); output: `dst` T1.
- Types: T1: f16, bf16, f32, s32, s8, u8, f64, boolean, f8_e5m2, f8_e4m3, s64, s16, u16, u32, u64, s4, u4; T2:
  s32, s64; T3: s32, s64.
- Shapes: The first input has dims \[pages, heads, rows of a page, elements], `block_table` \[sequences, pages
  of each], `lengths` `[sequences]`; the output has \[sequences, heads, rows of the pages of each, elements].
"#};
    (CacheStore) => {r#"
A cache in pages to which rows of new tokens are written: a copy of `src`, of dims \[pages, heads, rows of a
page, elements], in which row `i` of `rows`, of dims \[tokens, heads, elements], is row `slots[i] mod n` of
page `slots[i] / n` of `n` rows. A row whose slot is −1 is left out.

A row of 4-bit elements has an even number of them. Of several rows for one slot the last one stands. A slot
is from −1 to the number of rows of all pages − 1; another one is an error that names the tensor and the
place, and nothing is written. The result may take the place of `src`: then the rows alone are written.

- Inputs: `src` T1, `rows` T1, `slots` T2; output: `dst` T1.
- Types: T1: f16, bf16, f32, s32, s8, u8, f64, boolean, f8_e5m2, f8_e4m3, s64, s16, u16, u32, u64, s4, u4; T2:
  s32, s64.
- Shapes: The shape of the first input, of dims \[pages, heads, rows of a page, elements]. `rows` has dims
  \[tokens, heads, elements], `slots` `[tokens]`.
"#};
    ($Name:ident) => { $crate::types::op_docs::image_kind_doc!($Name) };
}

pub(in crate::types) use tensor_kind_doc;
