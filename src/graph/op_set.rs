//! The schema rows of oneDNN's kinds.
//!
//! The facts are those of the oneDNN Graph op set. Sterna widens `Select`, `End` and `Wildcard`, takes
//! f64 and integers in arithmetic and comparisons, every type of whole bytes in ops that move elements, and
//! checks the shapes of pointwise ops, of quantisation, of softmaxes, of batch normalisation and of
//! interpolation more strictly.

use super::row::{
    AUTO_BROADCAST, AttrDefault, AttrRow, AttrType, BOOLEAN, Check, Count, FLOATS, Schema, ShapeRule,
    WITH_F64, WITH_F64_INTEGERS, comparison, default, op, optional, p, required, required_word, shape_of,
    word,
};
use crate::types::dtype::DataType;
use crate::types::kind::{Attr, OpKind};

use Attr as A;
use AttrDefault as V;
use AttrType as T;
use Check as C;
use DataType as D;
use OpKind as K;
use ShapeRule as R;

const NORM_FLOATS: &[DataType] = &[D::F32, D::Bf16];
const S32: &[DataType] = &[D::S32];
const TWELVE_ONES: &[i64] = &[1; 12];
const TWELVE_ZEROS: &[i64] = &[0; 12];

const ALPHA: AttrRow = required(A::Alpha, T::F32);
const SELECT_BROADCAST: AttrRow =
    word(A::AutoBroadcast, "numpy", &["none", "numpy", "pdpd", "multidirectional"]);
const AUTO_PAD: AttrRow = word(A::AutoPad, "None", &["None", "SAME_UPPER", "SAME_LOWER", "VALID"]);
const AXES: AttrRow = default(A::Axes, V::S64s(&[]));
const AXIS_1: AttrRow = default(A::Axis, V::S64(1));
const AXIS_LAST: AttrRow = default(A::Axis, V::S64(-1));
const AXIS: AttrRow = required(A::Axis, T::S64);
const BEGIN_NORM_AXIS: AttrRow = default(A::BeginNormAxis, V::S64(-1));
const BETA: AttrRow = required(A::Beta, T::F32);
const BETA_1: AttrRow = default(A::Beta, V::F32(1.0));
const COORDINATE_TRANSFORMATION_MODE: AttrRow =
    word(A::CoordinateTransformationMode, "half_pixel", &["half_pixel", "align_corners"]);
const DATA_FORMAT: AttrRow = word(A::DataFormat, "NXC", &["NCX", "NXC"]);
const DILATIONS: AttrRow = required(A::Dilations, T::S64s);
const EPSILON: AttrRow = required(A::Epsilon, T::F32);
const EPSILON_DEFAULT: AttrRow = default(A::Epsilon, V::F32(1e-05));
const EXCLUDE_PAD: AttrRow = required(A::ExcludePad, T::Bool);
const GELU_MODE: AttrRow = word(A::Mode, "gelu_erf", &["gelu_erf", "gelu_tanh"]);
const GROUPS: AttrRow = default(A::Groups, V::S64(1));
const INTERPOLATE_MODE: AttrRow = required_word(A::Mode, &["nearest", "linear", "bilinear", "trilinear"]);
const KEEP_DIMS: AttrRow = default(A::KeepDims, V::Bool(false));
const KEEP_STATS: AttrRow = default(A::KeepStats, V::Bool(true));
const KERNEL: AttrRow = required(A::Kernel, T::S64s);
const MAX: AttrRow = required(A::Max, T::F32);
const MIN: AttrRow = required(A::Min, T::F32);
const OUTPUT_PADDING: AttrRow = default(A::OutputPadding, V::S64s(TWELVE_ZEROS));
const PADS_BEGIN: AttrRow = required(A::PadsBegin, T::S64s);
const PADS_END: AttrRow = required(A::PadsEnd, T::S64s);
const POOL_DILATIONS: AttrRow = default(A::Dilations, V::S64s(TWELVE_ONES));
const QTYPE: AttrRow = word(A::Qtype, "per_tensor", &[]);
const RESIZE_SCALES: AttrRow = optional(A::Scales, T::F32s);
const ROUNDING_TYPE: AttrRow = word(A::RoundingType, "floor", &[]);
const SCALES: AttrRow = required(A::Scales, T::F32s);
const SIZES: AttrRow = optional(A::Sizes, T::S64s);
const STRIDES: AttrRow = required(A::Strides, T::S64s);
const USE_AFFINE: AttrRow = default(A::UseAffine, V::Bool(true));
const USE_DST: AttrRow = default(A::UseDst, V::Bool(true));
const WEIGHTS_SHAPE: AttrRow = default(A::WeightsShape, V::S64s(TWELVE_ZEROS));
const WEIGHTS_XIO: AttrRow = word(A::WeightsFormat, "XIO", &["XIO", "OIX"]);
const WEIGHTS_XOI: AttrRow = word(A::WeightsFormat, "XOI", &["XOI", "IOX"]);
const ZPS: AttrRow = optional(A::Zps, T::S64s);

/// The rows of the op set, by code.
pub(super) const OP_SET: &[Schema] = &[
    // Abs, Add, Divide, Maximum, Minimum, Multiply and Subtract are wider than the op set: on f64, s32 and
    // s64 too. Exp, Log, Reciprocal, ReLU, Round, Sqrt, Square and Tanh are: on f64.
    op(K::Abs, &[p("src", "T")], &[p("dst", "T")]).types(&[("T", WITH_F64_INTEGERS)]),
    op(K::AbsBackward, &[p("src", "T"), p("diff_dst", "T")], &[p("diff_src", "T")]).shape(R::SameShapes),
    op(K::Add, &[p("src_0", "T1"), p("src_1", "T2")], &[p("dst", "T3")])
        .types(&[("T1", WITH_F64_INTEGERS), ("T2", WITH_F64_INTEGERS), ("T3", WITH_F64_INTEGERS)])
        .attrs(&[AUTO_BROADCAST])
        .shape(R::ElemwiseArithmetic),
    op(K::AvgPool, &[p("src", "T")], &[p("dst", "T")])
        .attrs(&[STRIDES, PADS_BEGIN, PADS_END, EXCLUDE_PAD, KERNEL, DATA_FORMAT, ROUNDING_TYPE, AUTO_PAD])
        .shape(R::Pool)
        .checks(&[C::NonNegativePads]),
    op(K::AvgPoolBackward, &[p("diff_dst", "T"), p("src_shape", "T1")], &[p("diff_src", "T")])
        .input_count(Count::OneOf(&[1, 2]))
        .types(&[("T", FLOATS), ("T1", S32)])
        .attrs(&[
            STRIDES,
            PADS_BEGIN,
            PADS_END,
            EXCLUDE_PAD,
            KERNEL,
            AUTO_PAD,
            DATA_FORMAT,
            default(A::SrcShape, V::S64s(TWELVE_ZEROS)),
        ])
        .shape(R::PoolBwd)
        .checks(&[C::NonNegativePads]),
    op(
        K::BatchNormTrainingBackward,
        &[p("src", "T1"), p("diff_dst", "T1"), p("mean", "T2"), p("variance", "T2"), p("gamma", "T2")],
        &[p("diff_src", "T1"), p("diff_gamma", "T2"), p("diff_beta", "T2")],
    )
    .input_count(Count::OneOf(&[4, 5]))
    .output_count(Count::OneOf(&[1, 2, 3]))
    .types(&[("T1", FLOATS), ("T2", NORM_FLOATS)])
    .attrs(&[EPSILON, DATA_FORMAT])
    .shape(R::BnBwd)
    .checks(&[C::NormTypes]),
    op(
        K::BatchNormForwardTraining,
        &[p("src", "T1"), p("mean", "T2"), p("variance", "T2"), p("gamma", "T2"), p("beta", "T2")],
        &[
            p("dst", "T1"),
            p("running_mean", "T2"),
            p("running_variance", "T2"),
            p("batch_mean", "T2"),
            p("batch_variance", "T2"),
        ],
    )
    .input_count(Count::OneOf(&[3, 4, 5]))
    .types(&[("T1", FLOATS), ("T2", NORM_FLOATS)])
    .attrs(&[EPSILON, optional(A::Momentum, T::F32), DATA_FORMAT])
    .shape(R::BnFwdTrain)
    .checks(&[C::NormTypes]),
    op(
        K::BatchNormInference,
        &[p("src", "T1"), p("gamma", "T2"), p("beta", "T2"), p("mean", "T2"), p("variance", "T2")],
        &[p("dst", "T1")],
    )
    .types(&[("T1", FLOATS), ("T2", NORM_FLOATS)])
    .attrs(&[EPSILON, DATA_FORMAT])
    .shape(R::BatchNorm)
    .checks(&[C::NormTypes]),
    op(K::BiasAdd, &[p("src", "T"), p("bias", "T")], &[p("dst", "T")])
        .attrs(&[DATA_FORMAT])
        .shape(R::BiasAdd),
    op(K::BiasAddBackward, &[p("diff_dst", "T")], &[p("diff_bias", "T")])
        .attrs(&[DATA_FORMAT])
        .shape(R::BiasBackprop),
    op(K::Clamp, &[p("src", "T")], &[p("dst", "T")]).attrs(&[MIN, MAX]),
    op(K::ClampBackward, &[p("src/dst", "T"), p("diff_dst", "T")], &[p("diff_src", "T")])
        .attrs(&[MIN, MAX, USE_DST])
        .shape(R::SameShapes),
    op(K::Concat, &[p("src_i", "T")], &[p("dst", "T")])
        .input_count(Count::Between(1, Some(64)))
        .types(&[("T", DataType::WHOLE)])
        .attrs(&[AXIS])
        .shape(R::Concat),
    op(K::Convolution, &[p("src", "T"), p("weights", "T"), p("bias", "T")], &[p("dst", "T")])
        .input_count(Count::OneOf(&[2, 3]))
        .attrs(&[STRIDES, PADS_BEGIN, PADS_END, DILATIONS, AUTO_PAD, GROUPS, DATA_FORMAT, WEIGHTS_XIO])
        .shape(R::Conv)
        .checks(&[C::NonNegativePads]),
    op(
        K::ConvolutionBackwardData,
        &[p("diff_dst", "T1"), p("weights", "T1"), p("dst_shape", "T2")],
        &[p("diff_src", "T1")],
    )
    .input_count(Count::OneOf(&[2, 3]))
    .types(&[("T1", FLOATS), ("T2", S32)])
    .attrs(&[
        OUTPUT_PADDING,
        default(A::DstShape, V::S64s(TWELVE_ZEROS)),
        STRIDES,
        PADS_BEGIN,
        PADS_END,
        DILATIONS,
        AUTO_PAD,
        GROUPS,
        DATA_FORMAT,
        WEIGHTS_XIO,
    ])
    .shape(R::ConvBpropData)
    .checks(&[C::NonNegativePads]),
    op(
        K::ConvolutionBackwardWeights,
        &[p("src", "T1"), p("diff_dst", "T1"), p("weights_shape", "T2")],
        &[p("diff_weights", "T1")],
    )
    .input_count(Count::OneOf(&[2, 3]))
    .types(&[("T1", FLOATS), ("T2", S32)])
    .attrs(&[
        WEIGHTS_SHAPE,
        STRIDES,
        PADS_BEGIN,
        PADS_END,
        DILATIONS,
        AUTO_PAD,
        GROUPS,
        DATA_FORMAT,
        WEIGHTS_XIO,
    ])
    .shape(R::ConvBpropFilters)
    .checks(&[C::NonNegativePads]),
    op(K::ConvTranspose, &[p("src", "T"), p("weights", "T"), p("bias", "T")], &[p("dst", "T")])
        .input_count(Count::OneOf(&[2, 3]))
        .attrs(&[
            OUTPUT_PADDING,
            STRIDES,
            PADS_BEGIN,
            PADS_END,
            DILATIONS,
            AUTO_PAD,
            GROUPS,
            DATA_FORMAT,
            WEIGHTS_XOI,
        ])
        .shape(R::Convtranspose)
        .checks(&[C::NonNegativePads]),
    op(K::ConvTransposeBackwardData, &[p("diff_dst", "T"), p("weights", "T")], &[p("diff_src", "T")])
        .attrs(&[STRIDES, PADS_BEGIN, PADS_END, DILATIONS, AUTO_PAD, GROUPS, DATA_FORMAT, WEIGHTS_XOI])
        .shape(R::ConvtransposeBpropData)
        .checks(&[C::NonNegativePads]),
    op(
        K::ConvTransposeBackwardWeights,
        &[p("src", "T1"), p("diff_dst", "T1"), p("weights_shape", "T2")],
        &[p("diff_weights", "T1")],
    )
    .input_count(Count::OneOf(&[2, 3]))
    .types(&[("T1", FLOATS), ("T2", S32)])
    .attrs(&[
        WEIGHTS_SHAPE,
        STRIDES,
        PADS_BEGIN,
        PADS_END,
        DILATIONS,
        AUTO_PAD,
        GROUPS,
        DATA_FORMAT,
        WEIGHTS_XOI,
    ])
    .shape(R::ConvtransposeBpropFilters)
    .checks(&[C::NonNegativePads]),
    op(K::Dequantize, &[p("src", "T1")], &[p("dst", "T2")])
        .types(&[("T1", &[D::U8, D::S8, D::F8E5m2, D::F8E4m3]), ("T2", &[D::F32])])
        .attrs(&[QTYPE, AXIS_1, SCALES, ZPS])
        .shape(R::Quantization)
        .checks(&[C::QuantParams]),
    op(K::Divide, &[p("src_0", "T1"), p("src_1", "T2")], &[p("dst", "T3")])
        .types(&[("T1", WITH_F64_INTEGERS), ("T2", WITH_F64_INTEGERS), ("T3", WITH_F64_INTEGERS)])
        .attrs(&[AUTO_BROADCAST])
        .shape(R::ElemwiseArithmetic),
    op(K::DynamicDequantize, &[p("src", "T1"), p("scales", "T2"), p("zps", "T3")], &[p("dst", "T2")])
        .input_count(Count::OneOf(&[2, 3]))
        .types(&[
            ("T1", &[D::U8, D::S8, D::S4, D::U4]),
            ("T2", &[D::Bf16, D::F16, D::F32]),
            ("T3", &[D::U4, D::S4, D::U8, D::S8, D::S32]),
        ])
        .attrs(&[QTYPE, AXIS_1, optional(A::GroupShape, T::S64s)])
        .shape(R::Quantization)
        .checks(&[C::DynamicQuantParams]),
    op(K::DynamicQuantize, &[p("src", "T1"), p("scales", "T1"), p("zps", "T2")], &[p("dst", "T3")])
        .input_count(Count::OneOf(&[2, 3]))
        .types(&[("T1", &[D::F32]), ("T2", &[D::U8, D::S8, D::S32]), ("T3", &[D::U8, D::S8])])
        .attrs(&[QTYPE, AXIS_1])
        .shape(R::Quantization)
        .checks(&[C::DynamicQuantParams]),
    op(K::Elu, &[p("src", "T")], &[p("dst", "T")]).attrs(&[ALPHA]),
    op(K::EluBackward, &[p("src/dst", "T"), p("diff_dst", "T")], &[p("diff_src", "T")])
        .attrs(&[ALPHA, USE_DST])
        .shape(R::SameShapes),
    op(K::End, &[p("src", "T")], &[]).types(&[]).shape(R::Dummy),
    op(K::Exp, &[p("src", "T")], &[p("dst", "T")]).types(&[("T", WITH_F64)]),
    op(K::GELU, &[p("src", "T")], &[p("dst", "T")]).attrs(&[GELU_MODE]),
    op(K::GELUBackward, &[p("src", "T"), p("diff_dst", "T")], &[p("diff_src", "T")])
        .attrs(&[GELU_MODE])
        .shape(R::SameShapes),
    op(K::HardSwish, &[p("src", "T")], &[p("dst", "T")]),
    op(K::HardSwishBackward, &[p("src", "T"), p("diff_dst", "T")], &[p("diff_src", "T")])
        .shape(R::SameShapes),
    op(K::Interpolate, &[p("src", "T1"), p("sizes", "T2")], &[p("dst", "T1")])
        .input_count(Count::OneOf(&[1, 2]))
        .types(&[("T1", FLOATS), ("T2", S32)])
        .attrs(&[INTERPOLATE_MODE, SIZES, RESIZE_SCALES, COORDINATE_TRANSFORMATION_MODE, DATA_FORMAT])
        .shape(R::Interpolate)
        .checks(&[C::SizesOrScales]),
    op(
        K::InterpolateBackward,
        &[p("src", "T1"), p("diff_dst", "T1"), p("sizes", "T2")],
        &[p("diff_src", "T1")],
    )
    .input_count(Count::OneOf(&[2, 3]))
    .types(&[("T1", FLOATS), ("T2", S32)])
    .attrs(&[INTERPOLATE_MODE, COORDINATE_TRANSFORMATION_MODE, SIZES, RESIZE_SCALES, DATA_FORMAT])
    .shape(R::InterpolateBackward)
    .checks(&[C::SizesOrScales]),
    op(
        K::LayerNorm,
        &[p("src", "T1"), p("gamma", "T2"), p("beta", "T2")],
        &[p("dst", "T1"), p("mean", "T2"), p("variance", "T2")],
    )
    .input_count(Count::OneOf(&[1, 3]))
    .output_count(Count::OneOf(&[1, 3]))
    .types(&[("T1", FLOATS), ("T2", NORM_FLOATS)])
    .attrs(&[KEEP_STATS, BEGIN_NORM_AXIS, USE_AFFINE, EPSILON_DEFAULT])
    .shape(R::Norm)
    .checks(&[C::NormTypes, C::KeepStatsOutputs]),
    op(
        K::LayerNormBackward,
        &[
            p("src", "T1"),
            p("diff_dst", "T1"),
            p("mean", "T2"),
            p("variance", "T2"),
            p("gamma", "T2"),
            p("beta", "T2"),
        ],
        &[p("diff_src", "T1"), p("diff_gamma", "T2"), p("diff_beta", "T2")],
    )
    .input_count(Count::OneOf(&[4, 5, 6]))
    .output_count(Count::OneOf(&[1, 3]))
    .types(&[("T1", FLOATS), ("T2", NORM_FLOATS)])
    .attrs(&[BEGIN_NORM_AXIS, USE_AFFINE, EPSILON_DEFAULT])
    .shape(R::NormBprop)
    .checks(&[C::NormTypes, C::UseAffineOutputs]),
    op(K::LeakyReLU, &[p("src", "T")], &[p("dst", "T")]).attrs(&[ALPHA]),
    op(K::Log, &[p("src", "T")], &[p("dst", "T")]).types(&[("T", WITH_F64)]),
    op(K::LogSoftmax, &[p("src", "T")], &[p("dst", "T")]).attrs(&[AXIS_LAST]).shape(R::Softmax),
    op(K::LogSoftmaxBackward, &[p("diff_dst", "T"), p("dst", "T")], &[p("diff_src", "T")])
        .attrs(&[AXIS_LAST])
        .shape(R::SoftmaxBackward),
    op(K::MatMul, &[p("src", "T"), p("weights", "T"), p("bias", "T")], &[p("dst", "T1")])
        .input_count(Count::OneOf(&[2, 3]))
        .types(&[("T", WITH_F64), ("T1", WITH_F64)])
        .attrs(&[
            default(A::TransposeA, V::Bool(false)),
            default(A::TransposeB, V::Bool(false)),
            word(A::AccumulationMode, "strict", &["strict", "relaxed", "any", "f32", "s32", "f16"]),
        ])
        .shape(R::Matmul)
        .checks(&[C::OutputTypeOrF32]),
    op(K::Maximum, &[p("src_0", "T"), p("src_1", "T")], &[p("dst", "T")])
        .types(&[("T", WITH_F64_INTEGERS)])
        .attrs(&[AUTO_BROADCAST])
        .shape(R::ElemwiseArithmetic),
    op(K::MaxPool, &[p("src", "T")], &[p("dst", "T")])
        .attrs(&[STRIDES, PADS_BEGIN, PADS_END, KERNEL, POOL_DILATIONS, DATA_FORMAT, ROUNDING_TYPE, AUTO_PAD])
        .shape(R::Pool)
        .checks(&[C::NonNegativePads, C::DilationsOfKernel]),
    op(K::MaxPoolBackward, &[p("src", "T"), p("diff_dst", "T")], &[p("diff_src", "T")])
        .attrs(&[STRIDES, PADS_BEGIN, PADS_END, KERNEL, AUTO_PAD, POOL_DILATIONS, DATA_FORMAT])
        .shape(R::PoolBwd)
        .checks(&[C::NonNegativePads, C::DilationsOfKernel]),
    op(K::Minimum, &[p("src_0", "T"), p("src_1", "T")], &[p("dst", "T")])
        .types(&[("T", WITH_F64_INTEGERS)])
        .attrs(&[AUTO_BROADCAST])
        .shape(R::ElemwiseArithmetic),
    op(K::Mish, &[p("src", "T")], &[p("dst", "T")]),
    op(K::MishBackward, &[p("src", "T"), p("diff_dst", "T")], &[p("diff_src", "T")]).shape(R::SameShapes),
    op(K::Multiply, &[p("src_0", "T1"), p("src_1", "T2")], &[p("dst", "T3")])
        .types(&[("T1", WITH_F64_INTEGERS), ("T2", WITH_F64_INTEGERS), ("T3", WITH_F64_INTEGERS)])
        .attrs(&[AUTO_BROADCAST])
        .shape(R::ElemwiseArithmetic),
    op(K::PReLU, &[p("src", "T"), p("slope", "T")], &[p("dst", "T")])
        .attrs(&[DATA_FORMAT, default(A::PerChannelBroadcast, V::Bool(true))])
        .shape(R::Prelu),
    op(
        K::PReLUBackward,
        &[p("src", "T"), p("slope", "T"), p("diff_dst", "T")],
        &[p("diff_src", "T"), p("diff_slope", "T")],
    )
    .attrs(&[DATA_FORMAT])
    .shape(R::PreluBwd),
    op(K::Quantize, &[p("src", "T1")], &[p("dst", "T2")])
        .types(&[("T1", &[D::F32]), ("T2", &[D::U8, D::S8, D::F8E5m2, D::F8E4m3])])
        .attrs(&[QTYPE, AXIS_1, SCALES, ZPS])
        .shape(R::Quantization)
        .checks(&[C::QuantParams]),
    op(K::Reciprocal, &[p("src", "T")], &[p("dst", "T")]).types(&[("T", WITH_F64)]),
    op(K::ReduceL1, &[p("src", "T1"), p("axes", "T2")], &[p("dst", "T1")])
        .input_count(Count::OneOf(&[1, 2]))
        .types(&[("T1", FLOATS), ("T2", S32)])
        .attrs(&[AXES, KEEP_DIMS])
        .shape(R::Reduce)
        .checks(&[C::AxesOnce]),
    op(K::ReduceL2, &[p("src", "T1"), p("axes", "T2")], &[p("dst", "T1")])
        .input_count(Count::OneOf(&[1, 2]))
        .types(&[("T1", FLOATS), ("T2", S32)])
        .attrs(&[AXES, KEEP_DIMS])
        .shape(R::Reduce)
        .checks(&[C::AxesOnce]),
    op(K::ReduceMax, &[p("src", "T1"), p("axes", "T2")], &[p("dst", "T1")])
        .input_count(Count::OneOf(&[1, 2]))
        .types(&[("T1", FLOATS), ("T2", S32)])
        .attrs(&[AXES, KEEP_DIMS])
        .shape(R::Reduce)
        .checks(&[C::AxesOnce]),
    op(K::ReduceMean, &[p("src", "T1"), p("axes", "T2")], &[p("dst", "T1")])
        .input_count(Count::OneOf(&[1, 2]))
        .types(&[("T1", FLOATS), ("T2", S32)])
        .attrs(&[AXES, KEEP_DIMS])
        .shape(R::Reduce)
        .checks(&[C::AxesOnce]),
    op(K::ReduceMin, &[p("src", "T1"), p("axes", "T2")], &[p("dst", "T1")])
        .input_count(Count::OneOf(&[1, 2]))
        .types(&[("T1", FLOATS), ("T2", S32)])
        .attrs(&[AXES, KEEP_DIMS])
        .shape(R::Reduce)
        .checks(&[C::AxesOnce]),
    op(K::ReduceProd, &[p("src", "T1"), p("axes", "T2")], &[p("dst", "T1")])
        .input_count(Count::OneOf(&[1, 2]))
        .types(&[("T1", FLOATS), ("T2", S32)])
        .attrs(&[AXES, KEEP_DIMS])
        .shape(R::Reduce)
        .checks(&[C::AxesOnce]),
    op(K::ReduceSum, &[p("src", "T1"), p("axes", "T2")], &[p("dst", "T1")])
        .input_count(Count::OneOf(&[1, 2]))
        .types(&[("T1", FLOATS), ("T2", S32)])
        .attrs(&[AXES, KEEP_DIMS])
        .shape(R::Reduce)
        .checks(&[C::AxesOnce]),
    op(K::ReLU, &[p("src", "T")], &[p("dst", "T")]).types(&[("T", WITH_F64)]),
    op(K::ReLUBackward, &[p("src/dst", "T"), p("diff_dst", "T")], &[p("diff_src", "T")])
        .attrs(&[USE_DST])
        .shape(R::SameShapes),
    op(K::Reorder, &[p("src", "T")], &[p("dst", "T")]).types(&[("T", DataType::WHOLE)]),
    op(K::Round, &[p("src", "T")], &[p("dst", "T")]).types(&[("T", WITH_F64)]),
    op(K::Sigmoid, &[p("src", "T")], &[p("dst", "T")]).types(&[("T", WITH_F64)]),
    op(K::SigmoidBackward, &[p("src/dst", "T"), p("diff_dst", "T")], &[p("diff_src", "T")])
        .attrs(&[USE_DST])
        .shape(R::SameShapes),
    op(K::SoftMax, &[p("src", "T1")], &[p("dst", "T2"), p("stats", "T3")])
        .output_count(Count::OneOf(&[1, 2]))
        .types(&[("T1", FLOATS), ("T2", FLOATS), ("T3", &[D::F32])])
        .attrs(&[AXIS_1, word(A::Mode, "none", &["none", "inf_as_zero"])])
        .shape(R::Softmax)
        .checks(&[C::OneF32OrSameType]),
    op(K::SoftMaxBackward, &[p("diff_dst", "T1"), p("dst", "T1")], &[p("diff_src", "T2")])
        .types(&[("T1", FLOATS), ("T2", FLOATS)])
        .attrs(&[AXIS_1])
        .shape(R::SoftmaxBackward)
        .checks(&[C::OutputTypeOrF32]),
    op(K::SoftPlus, &[p("src", "T")], &[p("dst", "T")]).attrs(&[BETA_1]),
    op(K::SoftPlusBackward, &[p("src", "T"), p("diff_dst", "T")], &[p("diff_src", "T")])
        .attrs(&[BETA_1])
        .shape(R::SameShapes),
    op(K::Sqrt, &[p("src", "T")], &[p("dst", "T")]).types(&[("T", WITH_F64)]),
    op(K::SqrtBackward, &[p("src/dst", "T"), p("diff_dst", "T")], &[p("diff_src", "T")])
        .attrs(&[USE_DST])
        .shape(R::SameShapes),
    op(K::Square, &[p("src", "T")], &[p("dst", "T")]).types(&[("T", WITH_F64)]),
    op(K::SquaredDifference, &[p("src_0", "T"), p("src_1", "T")], &[p("dst", "T")])
        .attrs(&[AUTO_BROADCAST])
        .shape(R::ElemwiseArithmetic),
    op(K::StaticReshape, &[p("src", "T")], &[p("dst", "T")])
        .types(&[("T", DataType::WHOLE)])
        .attrs(&[required(A::Shape, T::S64s), required(A::SpecialZero, T::Bool)])
        .shape(R::StaticReshape),
    op(K::StaticTranspose, &[p("src", "T")], &[p("dst", "T")])
        .types(&[("T", DataType::WHOLE)])
        .attrs(&[required(A::Order, T::S64s)])
        .shape(R::StaticTranspose),
    op(K::Subtract, &[p("src_0", "T1"), p("src_1", "T2")], &[p("dst", "T3")])
        .types(&[("T1", WITH_F64_INTEGERS), ("T2", WITH_F64_INTEGERS), ("T3", WITH_F64_INTEGERS)])
        .attrs(&[AUTO_BROADCAST])
        .shape(R::ElemwiseArithmetic),
    op(K::Tanh, &[p("src", "T")], &[p("dst", "T")]).types(&[("T", WITH_F64)]),
    op(K::TanhBackward, &[p("src/dst", "T"), p("diff_dst", "T")], &[p("diff_src", "T")])
        .attrs(&[USE_DST])
        .shape(R::SameShapes),
    op(K::TypeCast, &[p("src", "T1")], &[p("dst", "T2")])
        .types(&[("T1", FLOATS), ("T2", FLOATS)])
        .checks(&[C::CastTypes]),
    op(K::Wildcard, &[p("src", "any")], &[p("dst", "any")])
        .input_count(Count::Between(0, None))
        .output_count(Count::Between(0, None))
        .types(&[])
        .shape(R::Unsupported),
    op(K::HardSigmoid, &[p("src", "T")], &[p("dst", "T")]).attrs(&[ALPHA, BETA]),
    op(K::HardSigmoidBackward, &[p("src", "T"), p("diff_dst", "T")], &[p("diff_src", "T")])
        .attrs(&[ALPHA, BETA])
        .shape(R::SameShapes),
    // Wider than the op set: every whole type, two more modes, `axis`; `then` and `else` instead of `src_0`
    // and `src_1`.
    op(K::Select, &[p("cond", "T1"), p("then", "T2"), p("else", "T2")], &[p("dst", "T2")])
        .types(&[("T1", BOOLEAN), ("T2", DataType::WHOLE)])
        .attrs(&[SELECT_BROADCAST, optional(A::Axis, T::S64)])
        .shape(R::Select)
        .checks(&[C::AxisNeedsPdpd]),
    op(K::Pow, &[p("src", "T")], &[p("dst", "T")]).attrs(&[BETA]),
    op(
        K::GroupNorm,
        &[p("src", "T1"), p("gamma", "T2"), p("beta", "T2")],
        &[p("dst", "T1"), p("mean", "T2"), p("variance", "T2")],
    )
    .input_count(Count::OneOf(&[1, 3]))
    .output_count(Count::OneOf(&[1, 3]))
    .types(&[("T1", FLOATS), ("T2", NORM_FLOATS)])
    .attrs(&[KEEP_STATS, required(A::Groups, T::S64), USE_AFFINE, EPSILON_DEFAULT, DATA_FORMAT])
    .shape(R::Groupnorm)
    .checks(&[C::NormTypes, C::KeepStatsOutputs]),
    // Wider than the op set: a tensor of any type can be shape-only.
    op(K::GenIndex, &[shape_of("src", "T1")], &[p("dst", "T2")])
        .types(&[("T1", DataType::WHOLE), ("T2", S32)])
        .attrs(&[AXIS]),
    // Wider than the op set: every numeric type.
    comparison(K::GreaterEqual),
    op(K::RMSNorm, &[p("src", "T1"), p("gamma", "T2")], &[p("dst", "T1")])
        .input_count(Count::OneOf(&[1, 2]))
        .types(&[("T1", FLOATS), ("T2", FLOATS)])
        .attrs(&[BEGIN_NORM_AXIS, EPSILON_DEFAULT])
        .shape(R::Norm)
        .checks(&[C::NormTypes]),
    op(
        K::Dropout,
        &[p("src", "T"), p("seed", "T_seed"), p("offset", "T_offset"), p("probability", "T_p")],
        &[p("dst", "T"), p("mask", "T_mask")],
    )
    .output_count(Count::OneOf(&[1, 2]))
    .types(&[
        ("T", FLOATS),
        ("T_seed", &[D::S64]),
        ("T_offset", &[D::S64]),
        ("T_p", &[D::F32]),
        ("T_mask", &[D::U8]),
    ])
    .shape(R::Dropout),
];
