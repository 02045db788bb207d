//! The documentation of attributes: types of values, what holds without, and kinds.
//! `STERNA_REWRITE=1 cargo test --test graphs item_docs` writes it anew.

#[rustfmt::skip]
macro_rules! attribute_doc {
    (Alpha) => {r#"
- f32, required: `Elu`, `EluBackward`, `LeakyReLU`, `HardSigmoid`, `HardSigmoidBackward`.
"#};
    (Beta) => {r#"
- f32, default 1: `SoftPlus`, `SoftPlusBackward`.
- f32, required: `HardSigmoid`, `HardSigmoidBackward`, `Pow`.
"#};
    (Epsilon) => {r#"
- f32, required: `BatchNormTrainingBackward`, `BatchNormForwardTraining`, `BatchNormInference`.
- f32, default 0.00001: `LayerNorm`, `LayerNormBackward`, `GroupNorm`, `RMSNorm`.
"#};
    (Max) => {r#"
- f32, required: `Clamp`, `ClampBackward`.
"#};
    (Min) => {r#"
- f32, required: `Clamp`, `ClampBackward`.
"#};
    (Momentum) => {r#"
- f32, optional: `BatchNormForwardTraining`.
"#};
    (Scales) => {r#"
- f32\[], required: `Dequantize`, `Quantize`.
- f32\[], optional: `Interpolate`, `InterpolateBackward`.
"#};
    (Axis) => {r#"
- s64, required: `Concat`, `GenIndex`, `CumSum`, `ArgMax`, `ArgMin`.
- s64, default 1: `Dequantize`, `DynamicDequantize`, `DynamicQuantize`, `Quantize`, `SoftMax`,
  `SoftMaxBackward`.
- s64, default -1: `LogSoftmax`, `LogSoftmaxBackward`, `TopK`.
- s64, optional: `Select`.
- s64, default 0: `Gather`, `GatherElements`, `GatherBackward`, `ScatterElements`.
"#};
    (BeginNormAxis) => {r#"
- s64, default -1: `LayerNorm`, `LayerNormBackward`, `RMSNorm`.
"#};
    (Groups) => {r#"
- s64, default 1: `Convolution`, `ConvolutionBackwardData`, `ConvolutionBackwardWeights`, `ConvTranspose`,
  `ConvTransposeBackwardData`, `ConvTransposeBackwardWeights`.
- s64, required: `GroupNorm`.
"#};
    (Axes) => {r#"
- s64\[], default \[]: `ReduceL1`, `ReduceL2`, `ReduceMax`, `ReduceMean`, `ReduceMin`, `ReduceProd`,
  `ReduceSum`, `Slice`.
"#};
    (Dilations) => {r#"
- s64\[], required: `Convolution`, `ConvolutionBackwardData`, `ConvolutionBackwardWeights`, `ConvTranspose`,
  `ConvTransposeBackwardData`, `ConvTransposeBackwardWeights`.
- s64\[], default \[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]: `MaxPool`, `MaxPoolBackward`.
"#};
    (DstShape) => {r#"
- s64\[], default \[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]: `ConvolutionBackwardData`.
"#};
    (Kernel) => {r#"
- s64\[], required: `AvgPool`, `AvgPoolBackward`, `MaxPool`, `MaxPoolBackward`.
"#};
    (Order) => {r#"
- s64\[], required: `StaticTranspose`.
"#};
    (OutputPadding) => {r#"
- s64\[], default \[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]: `ConvolutionBackwardData`, `ConvTranspose`.
"#};
    (PadsBegin) => {r#"
- s64\[], required: `AvgPool`, `AvgPoolBackward`, `Convolution`, `ConvolutionBackwardData`,
  `ConvolutionBackwardWeights`, `ConvTranspose`, `ConvTransposeBackwardData`, `ConvTransposeBackwardWeights`,
  `MaxPool`, `MaxPoolBackward`.
"#};
    (PadsEnd) => {r#"
- s64\[], required: `AvgPool`, `AvgPoolBackward`, `Convolution`, `ConvolutionBackwardData`,
  `ConvolutionBackwardWeights`, `ConvTranspose`, `ConvTransposeBackwardData`, `ConvTransposeBackwardWeights`,
  `MaxPool`, `MaxPoolBackward`.
"#};
    (Shape) => {r#"
- s64\[], required: `StaticReshape`, `Fill`.
"#};
    (Sizes) => {r#"
- s64\[], optional: `Interpolate`, `InterpolateBackward`.
"#};
    (SrcShape) => {r#"
- s64\[], default \[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]: `AvgPoolBackward`.
- s64\[], required: `GatherBackward`.
"#};
    (Strides) => {r#"
- s64\[], required: `AvgPool`, `AvgPoolBackward`, `Convolution`, `ConvolutionBackwardData`,
  `ConvolutionBackwardWeights`, `ConvTranspose`, `ConvTransposeBackwardData`, `ConvTransposeBackwardWeights`,
  `MaxPool`, `MaxPoolBackward`.
"#};
    (WeightsShape) => {r#"
- s64\[], default \[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]: `ConvolutionBackwardWeights`,
  `ConvTransposeBackwardWeights`.
"#};
    (Zps) => {r#"
- s64\[], optional: `Dequantize`, `Quantize`.
"#};
    (GroupShape) => {r#"
- s64\[], optional: `DynamicDequantize`.
"#};
    (ExcludePad) => {r#"
- bool, required: `AvgPool`, `AvgPoolBackward`.
"#};
    (KeepDims) => {r#"
- bool, default false: `ReduceL1`, `ReduceL2`, `ReduceMax`, `ReduceMean`, `ReduceMin`, `ReduceProd`,
  `ReduceSum`, `ArgMax`, `ArgMin`.
"#};
    (KeepStats) => {r#"
- bool, default true: `LayerNorm`, `GroupNorm`.
"#};
    (PerChannelBroadcast) => {r#"
- bool, default true: `PReLU`.
"#};
    (SpecialZero) => {r#"
- bool, required: `StaticReshape`.
"#};
    (TransposeA) => {r#"
- bool, default false: `MatMul`.
"#};
    (TransposeB) => {r#"
- bool, default false: `MatMul`.
"#};
    (UseAffine) => {r#"
- bool, default true: `LayerNorm`, `LayerNormBackward`, `GroupNorm`.
"#};
    (UseDst) => {r#"
- bool, default true: `ClampBackward`, `EluBackward`, `ReLUBackward`, `SigmoidBackward`, `SqrtBackward`,
  `TanhBackward`.
"#};
    (AutoBroadcast) => {r#"
- string, default `numpy`, one of `none`, `numpy`: `Add`, `Divide`, `Maximum`, `Minimum`, `Multiply`,
  `SquaredDifference`, `Subtract`, `GreaterEqual`, `Equal`, `NotEqual`, `Less`, `LessEqual`, `Greater`,
  `LogicalAnd`, `LogicalOr`, `LogicalXor`, `Modulo`, `Power`.
- string, default `numpy`, one of `none`, `numpy`, `pdpd`, `multidirectional`: `Select`.
"#};
    (AutoPad) => {r#"
- string, default `None`, one of `None`, `SAME_UPPER`, `SAME_LOWER`, `VALID`: `AvgPool`, `AvgPoolBackward`,
  `Convolution`, `ConvolutionBackwardData`, `ConvolutionBackwardWeights`, `ConvTranspose`,
  `ConvTransposeBackwardData`, `ConvTransposeBackwardWeights`, `MaxPool`, `MaxPoolBackward`.
"#};
    (CoordinateTransformationMode) => {r#"
- string, default `half_pixel`, one of `half_pixel`, `align_corners`: `Interpolate`, `InterpolateBackward`.
"#};
    (DataFormat) => {r#"
- string, default `NXC`, one of `NCX`, `NXC`: `AvgPool`, `AvgPoolBackward`, `BatchNormTrainingBackward`,
  `BatchNormForwardTraining`, `BatchNormInference`, `BiasAdd`, `BiasAddBackward`, `Convolution`,
  `ConvolutionBackwardData`, `ConvolutionBackwardWeights`, `ConvTranspose`, `ConvTransposeBackwardData`,
  `ConvTransposeBackwardWeights`, `Interpolate`, `InterpolateBackward`, `MaxPool`, `MaxPoolBackward`, `PReLU`,
  `PReLUBackward`, `GroupNorm`.
"#};
    (Mode) => {r#"
- string, default `gelu_erf`, one of `gelu_erf`, `gelu_tanh`: `GELU`, `GELUBackward`.
- string, required, one of `nearest`, `linear`, `bilinear`, `trilinear`: `Interpolate`, `InterpolateBackward`.
- string, default `none`, one of `none`, `inf_as_zero`: `SoftMax`.
"#};
    (Qtype) => {r#"
- string, default `per_tensor`: `Dequantize`, `DynamicDequantize`, `DynamicQuantize`, `Quantize`.
"#};
    (RoundingType) => {r#"
- string, default `floor`: `AvgPool`, `MaxPool`.
"#};
    (WeightsFormat) => {r#"
- string, default `XIO`, one of `XIO`, `OIX`: `Convolution`, `ConvolutionBackwardData`,
  `ConvolutionBackwardWeights`.
- string, default `XOI`, one of `XOI`, `IOX`: `ConvTranspose`, `ConvTransposeBackwardData`,
  `ConvTransposeBackwardWeights`.
"#};
    (AccumulationMode) => {r#"
- string, default `strict`, one of `strict`, `relaxed`, `any`, `f32`, `s32`, `f16`: `MatMul`.
"#};
    (Value) => {r#"
- f32, required: `Fill`.
"#};
    (Starts) => {r#"
- s64\[], required: `Slice`.
"#};
    (Ends) => {r#"
- s64\[], required: `Slice`.
"#};
    (Steps) => {r#"
- s64\[], default \[]: `Slice`.
"#};
    (Exclusive) => {r#"
- bool, default false: `CumSum`.
"#};
    (Reverse) => {r#"
- bool, default false: `CumSum`.
"#};
    (BatchDims) => {r#"
- s64, default 0: `Gather`, `GatherND`, `GatherBackward`.
"#};
    (ClampIndices) => {r#"
- bool, default false: `Gather`, `GatherElements`, `GatherND`, `GatherBackward`, `ScatterElements`,
  `ScatterND`.
"#};
    (Reduction) => {r#"
- string, default `none`, one of `none`, `add`, `mul`, `min`, `max`: `ScatterElements`, `ScatterND`.
"#};
    (K) => {r#"
- s64, required: `TopK`.
"#};
    (Largest) => {r#"
- bool, default true: `TopK`.
"#};
    (SelectLastIndex) => {r#"
- bool, default false: `ArgMax`, `ArgMin`.
"#};
}

pub(in crate::types) use attribute_doc;
