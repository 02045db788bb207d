//! The documentation of kinds that nothing here computes.
//! `STERNA_REWRITE=1 cargo test --test graphs item_docs` writes it anew.

#[rustfmt::skip]
macro_rules! other_kind_doc {
    (AvgPool) => {r#"
Nothing here computes it: graphs with it are described, checked and cut around it.

- Inputs: `src` T; output: `dst` T.
- Types: f32, bf16, f16.
- Attributes: `strides` s64\[], required; `pads_begin` s64\[], required; `pads_end` s64\[], required;
  `exclude_pad` bool, required; `kernel` s64\[], required; `data_format` string, default `NXC`, one of `NCX`,
  `NXC`; `rounding_type` string, default `floor`; `auto_pad` string, default `None`, one of `None`,
  `SAME_UPPER`, `SAME_LOWER`, `VALID`.
- Shapes: The shapes of outputs are those that the graph gives.
- Checks: `pads_begin` and `pads_end` have no negative value.
"#};
    (AvgPoolBackward) => {r#"
Nothing here computes it: graphs with it are described, checked and cut around it.

- Inputs: `diff_dst` T, `src_shape` T1 (1 or 2 of them); output: `diff_src` T.
- Types: T: f32, bf16, f16; T1: s32.
- Attributes: `strides` s64\[], required; `pads_begin` s64\[], required; `pads_end` s64\[], required;
  `exclude_pad` bool, required; `kernel` s64\[], required; `auto_pad` string, default `None`, one of `None`,
  `SAME_UPPER`, `SAME_LOWER`, `VALID`; `data_format` string, default `NXC`, one of `NCX`, `NXC`; `src_shape`
  s64\[], default \[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0].
- Shapes: The shapes of outputs are those that the graph gives.
- Checks: `pads_begin` and `pads_end` have no negative value.
"#};
    (BatchNormTrainingBackward) => {r#"
Nothing here computes it: graphs with it are described, checked and cut around it.

- Inputs: `src` T1, `diff_dst` T1, `mean` T2, `variance` T2, `gamma` T2 (4 or 5 of them); outputs: `diff_src`
  T1, `diff_gamma` T2, `diff_beta` T2 (1 or 2 or 3 of them).
- Types: T1: f32, bf16, f16; T2: f32, bf16.
- Attributes: `epsilon` f32, required; `data_format` string, default `NXC`, one of `NCX`, `NXC`.
- Shapes: The shapes of outputs are those that the graph gives.
- Checks: The statistics and affine inputs may be bf16 only if `src` is bf16.
"#};
    (BatchNormForwardTraining) => {r#"
Nothing here computes it: graphs with it are described, checked and cut around it.

- Inputs: `src` T1, `mean` T2, `variance` T2, `gamma` T2, `beta` T2 (3 or 4 or 5 of them); outputs: `dst` T1,
  `running_mean` T2, `running_variance` T2, `batch_mean` T2, `batch_variance` T2.
- Types: T1: f32, bf16, f16; T2: f32, bf16.
- Attributes: `epsilon` f32, required; `momentum` f32, optional; `data_format` string, default `NXC`, one of
  `NCX`, `NXC`.
- Shapes: The shapes of outputs are those that the graph gives.
- Checks: The statistics and affine inputs may be bf16 only if `src` is bf16.
"#};
    (BatchNormInference) => {r#"
Nothing here computes it: graphs with it are described, checked and cut around it.

- Inputs: `src` T1, `gamma` T2, `beta` T2, `mean` T2, `variance` T2; output: `dst` T1.
- Types: T1: f32, bf16, f16; T2: f32, bf16.
- Attributes: `epsilon` f32, required; `data_format` string, default `NXC`, one of `NCX`, `NXC`.
- Shapes: The output has the shape of the first input.
- Checks: The statistics and affine inputs may be bf16 only if `src` is bf16.
"#};
    (End) => {r#"
Nothing here computes it: graphs with it are described, checked and cut around it.

- Inputs: `src` T; output: none.
- Types: any.
- Shapes: The shapes of outputs are those that the graph gives.
"#};
    (Interpolate) => {r#"
Nothing here computes it: graphs with it are described, checked and cut around it.

- Inputs: `src` T1, `sizes` T2 (1 or 2 of them); output: `dst` T1.
- Types: T1: f32, bf16, f16; T2: s32.
- Attributes: `mode` string, required, one of `nearest`, `linear`, `bilinear`, `trilinear`; `sizes` s64\[],
  optional; `scales` f32\[], optional; `coordinate_transformation_mode` string, default `half_pixel`, one of
  `half_pixel`, `align_corners`; `data_format` string, default `NXC`, one of `NCX`, `NXC`.
- Shapes: The shapes of outputs are those that the graph gives.
- Checks: Exactly one of the attributes `sizes` and `scales` is set.
"#};
    (InterpolateBackward) => {r#"
Nothing here computes it: graphs with it are described, checked and cut around it.

- Inputs: `src` T1, `diff_dst` T1, `sizes` T2 (2 or 3 of them); output: `diff_src` T1.
- Types: T1: f32, bf16, f16; T2: s32.
- Attributes: `mode` string, required, one of `nearest`, `linear`, `bilinear`, `trilinear`;
  `coordinate_transformation_mode` string, default `half_pixel`, one of `half_pixel`, `align_corners`; `sizes`
  s64\[], optional; `scales` f32\[], optional; `data_format` string, default `NXC`, one of `NCX`, `NXC`.
- Shapes: The output has the shape of the first input.
- Checks: Exactly one of the attributes `sizes` and `scales` is set.
"#};
    (MaxPool) => {r#"
Nothing here computes it: graphs with it are described, checked and cut around it.

- Inputs: `src` T; output: `dst` T.
- Types: f32, bf16, f16.
- Attributes: `strides` s64\[], required; `pads_begin` s64\[], required; `pads_end` s64\[], required; `kernel`
  s64\[], required; `dilations` s64\[], default \[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]; `data_format` string,
  default `NXC`, one of `NCX`, `NXC`; `rounding_type` string, default `floor`; `auto_pad` string, default
  `None`, one of `None`, `SAME_UPPER`, `SAME_LOWER`, `VALID`.
- Shapes: The shapes of outputs are those that the graph gives.
- Checks: `pads_begin` and `pads_end` have no negative value. `dilations` has as many entries as `kernel`; the
  default of twelve ones fits any kernel.
"#};
    (MaxPoolBackward) => {r#"
Nothing here computes it: graphs with it are described, checked and cut around it.

- Inputs: `src` T, `diff_dst` T; output: `diff_src` T.
- Types: f32, bf16, f16.
- Attributes: `strides` s64\[], required; `pads_begin` s64\[], required; `pads_end` s64\[], required; `kernel`
  s64\[], required; `auto_pad` string, default `None`, one of `None`, `SAME_UPPER`, `SAME_LOWER`, `VALID`;
  `dilations` s64\[], default \[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]; `data_format` string, default `NXC`, one
  of `NCX`, `NXC`.
- Shapes: The shapes of outputs are those that the graph gives.
- Checks: `pads_begin` and `pads_end` have no negative value. `dilations` has as many entries as `kernel`; the
  default of twelve ones fits any kernel.
"#};
    (Wildcard) => {r#"
Nothing here computes it: graphs with it are described, checked and cut around it.

- Inputs: `src` any (0 or more of them); output: `dst` any (0 or more of them).
- Types: any.
- Shapes: The shapes of outputs are those that the graph gives.
"#};
}

pub(in crate::types) use other_kind_doc;
