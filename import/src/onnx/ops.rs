//! The table of op types and what they become. A new type is a new row.

mod arithmetic;
mod attention;
mod call;
mod lookups;
mod microsoft;
mod moves;
mod node_row;
mod norms;
mod places;
mod quantization;
mod recurrent;
mod resize;
mod rows;
mod sampled;
mod windows;

use sterna::{DataType, Direction, OpKind, TensorId};

use crate::error::Fault;
use crate::names::Shown;
use crate::steps::Reduction;

pub(super) use attention::FlexAttention;
pub(super) use call::{Call, OpTable};

use self::node_row::{Contents, NodeMap, NodeRow, row};
use Contents::{Float, Floats, Int, Ints, Tensor, Text};
use OpKind as K;

const X: &[&str] = &["X"];
const INPUT: &[&str] = &["input"];
const PAIR: &[&str] = &["A", "B"];
const DATA: &[&str] = &["data"];
const DATA_AXES: &[&str] = &["data", "axes"];
const AXIS: &[(&str, Contents)] = &[("axis", Int)];
const OF_AXES: &[(&str, Contents)] = &[("axes", Ints), ("keepdims", Int)];
const BY_AXES: &[(&str, Contents)] = &[("keepdims", Int), ("noop_with_empty_axes", Int)];

const RESIZED: &[&str] = &["X", "roi", "scales", "sizes"];
const HOW_RESIZED: &[(&str, Contents)] = &[
    ("antialias", Int),
    ("axes", Ints),
    ("coordinate_transformation_mode", Text),
    ("cubic_coeff_a", Float),
    ("exclude_outside", Int),
    ("extrapolation_value", Float),
    ("keep_aspect_ratio_policy", Text),
    ("mode", Text),
    ("nearest_mode", Text),
];

const RUNNING: &[&str] = &["x", "axis"];
const HOW_RUNNING: &[(&str, Contents)] = &[("exclusive", Int), ("reverse", Int)];
const SCATTERED: &[&str] = &["data", "indices", "updates"];
const OF_PLACES: &[(&str, Contents)] = &[("axis", Int), ("keepdims", Int), ("select_last_index", Int)];
const OF_BATCH: &[&str] = &["X", "scale", "B", "input_mean", "input_var"];
const OF_LOSS: &[&str] = &["input", "target", "weight"];
const BY_LOSS: &[(&str, Contents)] = &[("ignore_index", Int), ("reduction", Text)];

const fn window(name: &'static str, map: NodeMap) -> NodeRow {
    row(name, &["size"], &[("output_datatype", Int), ("periodic", Int)], map).since(17)
}

const fn unary(name: &'static str, map: NodeMap) -> NodeRow {
    row(name, X, &[], map)
}

const fn binary(name: &'static str, kind: OpKind) -> NodeRow {
    row(name, PAIR, &[], NodeMap::Arithmetic(kind))
}

const fn comparison(name: &'static str, kind: OpKind) -> NodeRow {
    row(name, PAIR, &[], NodeMap::Comparison(kind))
}

const fn logic(name: &'static str, kind: OpKind) -> NodeRow {
    row(name, PAIR, &[], NodeMap::Logic(kind))
}

/// A reduction whose axes are an attribute, before they became an input.
const fn by_attribute(name: &'static str, reduction: Reduction) -> NodeRow {
    row(name, DATA, OF_AXES, NodeMap::Reduction(reduction))
}

const fn by_input(name: &'static str, since: i64, reduction: Reduction) -> NodeRow {
    row(name, DATA_AXES, BY_AXES, NodeMap::Reduction(reduction)).least(1).since(since)
}

/// The types that are mapped, by name and opset.
const ROWS: &[NodeRow] = &[
    unary("Abs", NodeMap::Signed(K::Abs)),
    unary("Acos", NodeMap::Formula(|steps, x| steps.acos(x))),
    unary("Acosh", NodeMap::Formula(|steps, x| steps.acosh(x))).since(9),
    binary("Add", K::Add),
    logic("And", K::LogicalAnd),
    row("ArgMax", DATA, OF_PLACES, NodeMap::By(|node| lookups::place_of(node, K::ArgMax))),
    row("ArgMin", DATA, OF_PLACES, NodeMap::By(|node| lookups::place_of(node, K::ArgMin))),
    unary("Asin", NodeMap::Formula(|steps, x| steps.asin(x))),
    unary("Asinh", NodeMap::Formula(|steps, x| steps.asinh(x))).since(9),
    unary("Atan", NodeMap::Formula(|steps, x| steps.atan(x))),
    unary("Atanh", NodeMap::Formula(|steps, x| steps.atanh(x))).since(9),
    row(
        "Attention",
        &["Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"],
        &[
            ("is_causal", Int),
            ("kv_num_heads", Int),
            ("q_num_heads", Int),
            ("qk_matmul_output_mode", Int),
            ("scale", Float),
            ("softcap", Float),
            ("softmax_precision", Int),
        ],
        NodeMap::Several(attention::attention),
    )
    .least(3)
    .outputs(4)
    .since(23),
    row(
        "Attention",
        &["Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"],
        &[
            ("is_causal", Int),
            ("kv_num_heads", Int),
            ("left_window_size", Int),
            ("q_num_heads", Int),
            ("qk_matmul_output_mode", Int),
            ("right_window_size", Int),
            ("scale", Float),
            ("softcap", Float),
            ("softmax_precision", Int),
        ],
        NodeMap::Several(attention::attention),
    )
    .least(3)
    .outputs(4)
    .since(25),
    row("AveragePool", X, windows::HOW_AVERAGED, NodeMap::By(windows::mean)),
    row(
        "BatchNormalization",
        OF_BATCH,
        &[("epsilon", Float), ("momentum", Float)],
        NodeMap::Several(norms::batch),
    ),
    row(
        "BatchNormalization",
        OF_BATCH,
        &[("epsilon", Float), ("momentum", Float), ("training_mode", Int)],
        NodeMap::Several(norms::batch),
    )
    .outputs(3)
    .since(14),
    row("BitShift", &["X", "Y"], &[("direction", Text)], NodeMap::By(places::bit_shift)).since(11),
    unary("BitwiseNot", NodeMap::By(places::bitwise_not)).since(18),
    window("BlackmanWindow", NodeMap::By(|node| norms::window(node, [0.42, 0.5, 0.08]))),
    row(
        "Cast",
        INPUT,
        &[("to", Int), ("saturate", Int), ("round_mode", Text)],
        NodeMap::By(arithmetic::cast),
    ),
    row(
        "CastLike",
        &["input", "target_type"],
        &[("saturate", Int), ("round_mode", Text)],
        NodeMap::By(arithmetic::cast_like),
    )
    .since(15),
    unary("Ceil", NodeMap::Unary(K::Ceil)),
    row("Celu", X, &[("alpha", Float)], NodeMap::By(arithmetic::celu)).since(12),
    row("CenterCropPad", &["input_data", "shape"], &[("axes", Ints)], NodeMap::By(places::center_crop_pad))
        .since(18),
    row("Clip", INPUT, &[("max", Float), ("min", Float)], NodeMap::By(arithmetic::clip_to_attributes)),
    row("Clip", &["input", "min", "max"], &[], NodeMap::By(arithmetic::clip)).least(1).since(11),
    row(
        "Col2Im",
        &["input", "image_shape", "block_shape"],
        &[("dilations", Ints), ("pads", Ints), ("strides", Ints)],
        NodeMap::By(sampled::col_to_im),
    )
    .since(18),
    row("Concat", &["inputs"], AXIS, NodeMap::By(moves::concat)).variadic(),
    row(
        "Constant",
        &[],
        &[
            ("value", Tensor),
            ("value_float", Float),
            ("value_floats", Floats),
            ("value_int", Int),
            ("value_ints", Ints),
        ],
        NodeMap::By(moves::constant),
    ),
    row("ConstantOfShape", INPUT, &[("value", Tensor)], NodeMap::By(moves::constant_of_shape)).since(9),
    row("Conv", &["X", "W", "B"], windows::HOW_CONVOLVED, NodeMap::By(windows::convolution)).least(2),
    row(
        "ConvInteger",
        &["x", "w", "x_zero_point", "w_zero_point"],
        windows::HOW_CONVOLVED,
        NodeMap::By(windows::convolution_of_integers),
    )
    .least(2)
    .since(10),
    row(
        "ConvTranspose",
        &["X", "W", "B"],
        windows::HOW_TRANSPOSED,
        NodeMap::By(windows::transposed_convolution),
    )
    .least(2),
    unary("Cos", NodeMap::Unary(K::Cos)),
    unary("Cosh", NodeMap::Formula(|steps, x| steps.hyperbolic(x, false))).since(9),
    row("CumProd", RUNNING, HOW_RUNNING, NodeMap::By(|node| places::running(node, K::Multiply))).since(26),
    row("CumSum", RUNNING, HOW_RUNNING, NodeMap::By(|node| places::running(node, K::Add))).since(11),
    row("DepthToSpace", INPUT, &[("blocksize", Int), ("mode", Text)], NodeMap::By(places::depth_to_space)),
    row(
        "DequantizeLinear",
        &["x", "x_scale", "x_zero_point"],
        &[("axis", Int), ("block_size", Int), ("output_dtype", Int)],
        NodeMap::By(quantization::dequantize),
    )
    .least(2)
    .since(10),
    row("Div", PAIR, &[], NodeMap::By(arithmetic::divide)),
    row("Dropout", DATA, &[("ratio", Float)], NodeMap::Several(norms::dropout)).outputs(2),
    row("Dropout", &["data", "ratio", "training_mode"], &[("seed", Int)], NodeMap::Several(norms::dropout))
        .least(1)
        .outputs(2)
        .since(12),
    row("DynamicQuantizeLinear", &["x"], &[], NodeMap::Several(norms::dynamic_quantize)).outputs(3).since(11),
    row("Einsum", &["Inputs"], &[("equation", Text)], NodeMap::By(rows::einsum)).variadic().since(12),
    row("Elu", X, &[("alpha", Float)], NodeMap::By(arithmetic::elu)),
    comparison("Equal", K::Equal),
    unary("Erf", NodeMap::Formula(|steps, x| steps.erf(x))).since(9),
    unary("Exp", NodeMap::Unary(K::Exp)),
    row("Expand", &["input", "shape"], &[], NodeMap::By(moves::expand)).since(8),
    row("EyeLike", INPUT, &[("dtype", Int), ("k", Int)], NodeMap::By(norms::eye)).since(9),
    row("Flatten", INPUT, AXIS, NodeMap::By(moves::flatten)),
    unary("Floor", NodeMap::Unary(K::Floor)),
    row("GRU", recurrent::OF_STATES, recurrent::OF_GRU, NodeMap::Several(recurrent::gru)).least(3).outputs(2),
    row("Gather", &["data", "indices"], AXIS, NodeMap::By(lookups::gather)),
    row("GatherElements", &["data", "indices"], AXIS, NodeMap::By(lookups::gather_elements)).since(11),
    row("GatherND", &["data", "indices"], &[("batch_dims", Int)], NodeMap::By(lookups::gather_nd)).since(11),
    row("Gelu", X, &[("approximate", Text)], NodeMap::By(arithmetic::gelu)).since(20),
    row(
        "Gemm",
        &["A", "B", "C"],
        &[("alpha", Float), ("beta", Float), ("transA", Int), ("transB", Int)],
        NodeMap::By(rows::gemm),
    )
    .least(2),
    unary("GlobalAveragePool", NodeMap::By(|node| norms::over_all(node, K::ReduceMean))),
    unary("GlobalMaxPool", NodeMap::By(|node| norms::over_all(node, K::ReduceMax))),
    comparison("Greater", K::Greater),
    comparison("GreaterOrEqual", K::GreaterEqual).since(12),
    row(
        "GridSample",
        &["X", "grid"],
        &[("align_corners", Int), ("mode", Text), ("padding_mode", Text)],
        NodeMap::By(sampled::grid_sample),
    )
    .since(16),
    row(
        "GroupNormalization",
        &["X", "scale", "bias"],
        &[("epsilon", Float), ("num_groups", Int), ("stash_type", Int)],
        NodeMap::By(norms::group),
    )
    .since(21),
    window("HammingWindow", NodeMap::By(|node| norms::window(node, [25.0 / 46.0, 21.0 / 46.0, 0.0]))),
    window("HannWindow", NodeMap::By(|node| norms::window(node, [0.5, 0.5, 0.0]))),
    row("HardSigmoid", X, &[("alpha", Float), ("beta", Float)], NodeMap::By(arithmetic::hard_sigmoid)),
    unary("HardSwish", NodeMap::Unary(K::HardSwish)).since(14),
    row("Hardmax", INPUT, AXIS, NodeMap::By(norms::hardmax)).since(13),
    row("Identity", INPUT, &[], NodeMap::By(moves::identity)),
    row(
        "InstanceNormalization",
        &["input", "scale", "B"],
        &[("epsilon", Float)],
        NodeMap::By(norms::instance),
    ),
    row("IsInf", X, &[("detect_negative", Int), ("detect_positive", Int)], NodeMap::By(arithmetic::is_inf))
        .since(10),
    unary("IsNaN", NodeMap::Predicate(K::IsNaN)).since(9),
    row(
        "LRN",
        X,
        &[("alpha", Float), ("beta", Float), ("bias", Float), ("size", Int)],
        NodeMap::By(windows::local_response),
    ),
    row("LSTM", recurrent::OF_CELLS, recurrent::OF_LSTM, NodeMap::Several(recurrent::lstm))
        .least(3)
        .outputs(3),
    // ONNX has it since opset 17; ONNX Runtime writes it to models of any.
    row(
        "LayerNormalization",
        &["X", "Scale", "B"],
        &[("axis", Int), ("epsilon", Float), ("stash_type", Int)],
        NodeMap::Several(rows::layer_normalization),
    )
    .least(2)
    .outputs(3),
    row("LeakyRelu", X, &[("alpha", Float)], NodeMap::By(arithmetic::leaky_relu)),
    comparison("Less", K::Less),
    comparison("LessOrEqual", K::LessEqual).since(12),
    unary("Log", NodeMap::Unary(K::Log)),
    row("LogSoftmax", INPUT, AXIS, NodeMap::By(rows::log_softmax_of_rows)),
    row("LogSoftmax", INPUT, AXIS, NodeMap::By(rows::log_softmax)).since(13),
    row("LpNormalization", INPUT, &[("axis", Int), ("p", Int)], NodeMap::By(norms::by_length)),
    row("LpPool", X, windows::OF_NORM, NodeMap::By(windows::norm)),
    row("MatMul", PAIR, &[], NodeMap::By(rows::matmul)),
    row(
        "MatMulInteger",
        &["A", "B", "a_zero_point", "b_zero_point"],
        &[],
        NodeMap::By(places::matmul_integer),
    )
    .least(2)
    .since(10),
    row("Max", &["data_0"], &[], NodeMap::Extreme(K::Maximum)).variadic(),
    row("MaxPool", X, windows::HOW_POOLED, NodeMap::By(windows::largest)).outputs(2),
    row("Mean", &["data_0"], &[], NodeMap::By(arithmetic::mean)).variadic(),
    row("MeanVarianceNormalization", X, &[("axes", Ints)], NodeMap::By(norms::mean_variance)).since(9),
    row("Min", &["data_0"], &[], NodeMap::Extreme(K::Minimum)).variadic(),
    unary("Mish", NodeMap::Unary(K::Mish)).since(18),
    row("Mod", PAIR, &[("fmod", Int)], NodeMap::By(arithmetic::modulo)).since(10),
    binary("Mul", K::Multiply),
    unary("Neg", NodeMap::Signed(K::Negative)),
    row("NegativeLogLikelihoodLoss", OF_LOSS, BY_LOSS, NodeMap::By(norms::likelihood)).least(2).since(12),
    unary("NonZero", NodeMap::By(moves::non_zero)).since(9),
    unary("Not", NodeMap::Unary(K::LogicalNot)),
    row("OneHot", &["indices", "depth", "values"], AXIS, NodeMap::By(places::one_hot)).since(9),
    logic("Or", K::LogicalOr),
    row("PRelu", &["X", "slope"], &[], NodeMap::By(arithmetic::prelu)),
    row(
        "Pad",
        DATA,
        &[("mode", Text), ("pads", Ints), ("value", Float)],
        NodeMap::By(moves::pad_by_attributes),
    ),
    row("Pad", &["data", "pads", "constant_value", "axes"], &[("mode", Text)], NodeMap::By(moves::pad))
        .least(2)
        .since(11),
    row("Pow", &["X", "Y"], &[], NodeMap::By(arithmetic::power)),
    row(
        "QLinearConv",
        &["x", "x_scale", "x_zero_point", "w", "w_scale", "w_zero_point", "y_scale", "y_zero_point", "B"],
        windows::HOW_CONVOLVED,
        NodeMap::By(windows::quantized_convolution),
    )
    .least(8)
    .since(10),
    row(
        "QLinearMatMul",
        &["a", "a_scale", "a_zero_point", "b", "b_scale", "b_zero_point", "y_scale", "y_zero_point"],
        &[],
        NodeMap::By(places::qlinear_matmul),
    )
    .since(10),
    row(
        "QuantizeLinear",
        &["x", "y_scale", "y_zero_point"],
        &[("axis", Int), ("block_size", Int), ("output_dtype", Int), ("precision", Int), ("saturate", Int)],
        NodeMap::By(quantization::quantize),
    )
    .least(2)
    .since(10),
    row(
        "RMSNormalization",
        &["X", "scale"],
        &[("axis", Int), ("epsilon", Float), ("stash_type", Int)],
        NodeMap::By(rows::rms_normalization),
    )
    .since(23),
    row("RNN", recurrent::OF_STATES, recurrent::OF_RNN, NodeMap::Several(recurrent::plain))
        .least(3)
        .outputs(2),
    row("Range", &["start", "limit", "delta"], &[("stash_type", Int)], NodeMap::By(moves::range)).since(11),
    unary("Reciprocal", NodeMap::Unary(K::Reciprocal)),
    by_attribute("ReduceL1", Reduction::One(K::ReduceL1)),
    by_input("ReduceL1", 18, Reduction::One(K::ReduceL1)),
    by_attribute("ReduceL2", Reduction::One(K::ReduceL2)),
    by_input("ReduceL2", 18, Reduction::One(K::ReduceL2)),
    by_attribute("ReduceLogSum", Reduction::LogSum),
    by_input("ReduceLogSum", 18, Reduction::LogSum),
    by_attribute("ReduceLogSumExp", Reduction::LogSumExp),
    by_input("ReduceLogSumExp", 18, Reduction::LogSumExp),
    by_attribute("ReduceMax", Reduction::One(K::ReduceMax)),
    by_input("ReduceMax", 18, Reduction::One(K::ReduceMax)),
    by_attribute("ReduceMean", Reduction::One(K::ReduceMean)),
    by_input("ReduceMean", 18, Reduction::One(K::ReduceMean)),
    by_attribute("ReduceMin", Reduction::One(K::ReduceMin)),
    by_input("ReduceMin", 18, Reduction::One(K::ReduceMin)),
    by_attribute("ReduceProd", Reduction::One(K::ReduceProd)),
    by_input("ReduceProd", 18, Reduction::One(K::ReduceProd)),
    by_attribute("ReduceSum", Reduction::One(K::ReduceSum)),
    by_input("ReduceSum", 13, Reduction::One(K::ReduceSum)),
    by_attribute("ReduceSumSquare", Reduction::SumSquare),
    by_input("ReduceSumSquare", 18, Reduction::SumSquare),
    row("Relu", X, &[], NodeMap::By(arithmetic::relu)),
    row("Reshape", &["data", "shape"], &[("allowzero", Int)], NodeMap::By(moves::reshape)),
    row("Resize", &["X", "scales"], &[("mode", Text)], NodeMap::By(resize::resize_by_input)).since(10),
    row("Resize", RESIZED, HOW_RESIZED, NodeMap::By(resize::resize)).least(1).since(11),
    row(
        "ReverseSequence",
        &["input", "sequence_lens"],
        &[("batch_axis", Int), ("time_axis", Int)],
        NodeMap::By(moves::reverse_sequence),
    )
    .since(10),
    row(
        "RotaryEmbedding",
        &["X", "cos_cache", "sin_cache", "position_ids"],
        &[("interleaved", Int), ("num_heads", Int), ("rotary_embedding_dim", Int)],
        NodeMap::By(places::rotary),
    )
    .least(3)
    .since(23),
    unary("Round", NodeMap::Unary(K::Round)).since(11),
    row("Scatter", SCATTERED, AXIS, NodeMap::By(lookups::scatter_elements)).since(9),
    row("ScatterElements", SCATTERED, AXIS, NodeMap::By(lookups::scatter_elements)).since(11),
    row(
        "ScatterElements",
        SCATTERED,
        &[("axis", Int), ("reduction", Text)],
        NodeMap::By(lookups::scatter_elements),
    )
    .since(16),
    row("ScatterND", SCATTERED, &[], NodeMap::By(lookups::scatter_nd)).since(11),
    row("ScatterND", SCATTERED, &[("reduction", Text)], NodeMap::By(lookups::scatter_nd)).since(16),
    row("Selu", X, &[("alpha", Float), ("gamma", Float)], NodeMap::By(arithmetic::selu)),
    row("Shape", DATA, &[("start", Int), ("end", Int)], NodeMap::By(moves::shape)),
    row("Shrink", INPUT, &[("bias", Float), ("lambd", Float)], NodeMap::By(norms::shrink)).since(9),
    unary("Sigmoid", NodeMap::Unary(K::Sigmoid)),
    row("Sign", INPUT, &[], NodeMap::OfNumber(|steps, x| steps.sign(x))).since(9),
    unary("Sin", NodeMap::Unary(K::Sin)),
    unary("Sinh", NodeMap::Formula(|steps, x| steps.hyperbolic(x, true))).since(9),
    row("Size", DATA, &[], NodeMap::By(moves::size)),
    row(
        "Slice",
        DATA,
        &[("axes", Ints), ("ends", Ints), ("starts", Ints)],
        NodeMap::By(moves::slice_by_attributes),
    ),
    row("Slice", &["data", "starts", "ends", "axes", "steps"], &[], NodeMap::By(moves::slice))
        .least(3)
        .since(10),
    row("Softmax", INPUT, AXIS, NodeMap::By(rows::softmax_of_rows)),
    row("Softmax", INPUT, AXIS, NodeMap::By(rows::softmax)).since(13),
    row("SoftmaxCrossEntropyLoss", OF_LOSS, BY_LOSS, NodeMap::Several(norms::cross_entropy))
        .least(2)
        .outputs(2)
        .since(12),
    unary("Softplus", NodeMap::Unary(K::SoftPlus)),
    unary("Softsign", NodeMap::Formula(|steps, x| steps.softsign(x))),
    row("SpaceToDepth", INPUT, &[("blocksize", Int), ("mode", Text)], NodeMap::By(places::space_to_depth)),
    row("Split", INPUT, &[("axis", Int), ("split", Ints)], NodeMap::Several(moves::split))
        .outputs(usize::MAX),
    row("Split", &["input", "split"], &[("axis", Int), ("num_outputs", Int)], NodeMap::Several(moves::split))
        .least(1)
        .outputs(usize::MAX)
        .since(13),
    unary("Sqrt", NodeMap::Unary(K::Sqrt)),
    row("Squeeze", DATA, &[("axes", Ints)], NodeMap::By(moves::squeeze)),
    row("Squeeze", DATA_AXES, &[], NodeMap::By(moves::squeeze)).least(1).since(13),
    binary("Sub", K::Subtract),
    row("Sum", &["data_0"], &[], NodeMap::Extreme(K::Add)).variadic(),
    row("SwiGLU", PAIR, &[("alpha", Float)], NodeMap::By(norms::swiglu)).since(28),
    row("Swish", X, &[("alpha", Float)], NodeMap::By(arithmetic::swish)).since(24),
    unary("Tan", NodeMap::Formula(|steps, x| steps.tan(x))),
    unary("Tanh", NodeMap::Unary(K::Tanh)),
    row("ThresholdedRelu", X, &[("alpha", Float)], NodeMap::By(arithmetic::thresholded_relu)).since(10),
    row("Tile", &["input", "repeats"], &[], NodeMap::By(places::tile)),
    row("TopK", X, &[("axis", Int), ("k", Int)], NodeMap::Several(lookups::top_k_of_attribute)).outputs(2),
    row(
        "TopK",
        &["X", "K"],
        &[("axis", Int), ("largest", Int), ("sorted", Int)],
        NodeMap::Several(lookups::top_k),
    )
    .outputs(2)
    .since(10),
    row("Transpose", DATA, &[("perm", Ints)], NodeMap::By(moves::transpose)),
    row("Trilu", &["input", "k"], &[("upper", Int)], NodeMap::By(moves::trilu)).least(1).since(14),
    row("Unsqueeze", DATA, &[("axes", Ints)], NodeMap::By(moves::unsqueeze)),
    row("Unsqueeze", DATA_AXES, &[], NodeMap::By(moves::unsqueeze)).since(13),
    row("Upsample", X, &[("mode", Text), ("scales", Floats)], NodeMap::By(resize::resize_by_attribute)),
    row("Upsample", &["X", "scales"], &[("mode", Text)], NodeMap::By(resize::resize_by_input)).since(9),
    row("Where", &["condition", "X", "Y"], &[], NodeMap::By(moves::choice)).since(9),
    logic("Xor", K::LogicalXor),
];

/// The types that are mapped.
pub(super) fn mapped() -> impl Iterator<Item = &'static str> {
    let repeats = |(i, row): &(usize, &NodeRow)| *i == 0 || ROWS[i - 1].name != row.name;
    let standard = ROWS.iter().enumerate().filter(repeats).map(|(_, row)| row.name);
    let is_new = |name: &&str| ROWS.iter().all(|row| row.name != *name);
    let contributed = microsoft::ROWS.iter().map(|row| row.name).filter(is_new);
    standard.chain(contributed).chain(["FlexAttention", "If", "Loop", "Scan"])
}

/// The names of the inputs in the row of an op type; none if there is no row.
pub(super) fn ports(table: OpTable, name: &str, opset: i64) -> &'static [&'static str] {
    row_of(table, name, opset).map_or(&[], |row| row.inputs)
}

fn row_of(table: OpTable, name: &str, opset: i64) -> Result<&'static NodeRow, Fault> {
    // ONNX Runtime has an op of its own in the domain of ONNX.
    let rows = match (table, name) {
        (OpTable::Microsoft, _) | (_, "SimplifiedLayerNormalization") => microsoft::ROWS,
        (OpTable::Standard, _) => ROWS,
    };
    let [first, behind] =
        [rows.partition_point(|row| row.name < name), rows.partition_point(|row| row.name <= name)];
    let named = &rows[first..behind];
    let Some(oldest) = named.first() else {
        return Err(Fault::Unsupported { needed: "ops of Sterna that compute the same".into() });
    };
    let row = named.iter().rfind(|row| row.since <= opset.max(7));
    row.ok_or_else(|| Fault::Version {
        given: format!("opset {opset}"),
        needed: format!("opset {} or a later one", oldest.since),
    })
}

/// The results of a node, in order.
pub(super) fn map(mut call: Call<'_, '_>) -> Result<Vec<TensorId>, Fault> {
    let row = row_of(call.table, call.kind, call.opset)?;
    while call.inputs.last() == Some(&None) {
        call.inputs.pop();
    }
    let given = call.inputs.len();
    let is_left_out = |&place: &usize| call.inputs.get(place).is_none_or(Option::is_none);
    let missing = (0..row.least).find(|place| is_left_out(place) && !row.gaps.contains(place));
    if missing.is_some() || (given > row.inputs.len() && !row.variadic) {
        let needed = match (row.variadic, row.least == row.inputs.len()) {
            (true, _) => "one or more".into(),
            (_, true) => row.least.to_string(),
            _ => format!("{} to {}", row.least, row.inputs.len()),
        };
        return Err(Fault::PortCount { direction: Direction::Input, given, needed });
    }
    if row.variadic && call.inputs.contains(&None) {
        return Err(Fault::PortCount { direction: Direction::Input, given, needed: "no gap".into() });
    }
    if call.outputs > row.outputs {
        let (direction, given) = (Direction::Output, call.outputs);
        return Err(Fault::PortCount { direction, given, needed: format!("at most {}", row.outputs) });
    }
    for (name, attribute) in &call.attributes {
        match row.attributes.iter().find(|(known, _)| known == name) {
            None => return Err(Fault::UnknownAttribute { attribute: Shown(name).to_string() }),
            // Files of version 3 of the format may leave the type out.
            Some((_, contents)) if ![0, *contents as i32].contains(&attribute.kind) => {
                return Err(Fault::of_attribute(name, format!("an attribute of type {contents:?}")));
            }
            Some(_) => {}
        }
    }
    run(row, &mut call).map_err(|fault| call.named(fault))
}

/// Adds the ops of a row.
fn run(row: &NodeRow, node: &mut Call<'_, '_>) -> Result<Vec<TensorId>, Fault> {
    let one = match &row.map {
        NodeMap::Several(function) => return function(node),
        NodeMap::By(function) => function(node)?,
        NodeMap::Unary(kind) => node.steps.same(*kind, node.input(0))?,
        NodeMap::Signed(kind) => {
            let x = node.input(0);
            node.steps.signed(*kind, x)?
        }
        NodeMap::Predicate(kind) => node.steps.emit(*kind, &[], &[node.input(0)], DataType::Boolean)?,
        NodeMap::Arithmetic(kind) => arithmetic::pair(node, *kind, node.input(0), node.input(1))?,
        NodeMap::Extreme(kind) => {
            let rest: Vec<TensorId> = node.inputs.iter().flatten().copied().collect();
            let mut one = rest[0];
            for other in &rest[1..] {
                one = arithmetic::pair(node, *kind, one, *other)?;
            }
            one
        }
        NodeMap::Comparison(kind) => arithmetic::compare(node, *kind, node.input(0), node.input(1))?,
        NodeMap::Logic(kind) => {
            node.one_type(0, 1)?;
            node.steps.emit_declared(*kind, &[], &[node.input(0), node.input(1)], DataType::Boolean)?
        }
        NodeMap::Reduction(reduction) => rows::reduce(node, *reduction)?,
        NodeMap::Formula(formula) => arithmetic::formula(node, *formula)?,
        NodeMap::OfNumber(formula) => {
            let x = node.input(0);
            formula(&mut node.steps, x)?
        }
    };
    Ok(vec![one])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::dictionary::compare;
    use crate::elements::RefusedType;
    use crate::onnx::tensors::data_type;

    #[test]
    fn rows_are_in_order_and_say_what_they_take() {
        for rows in [ROWS, microsoft::ROWS] {
            let keys: Vec<(&str, i64)> = rows.iter().map(|row| (row.name, row.since)).collect();
            assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "{keys:?}");
            assert!(rows.iter().all(|row| row.least <= row.inputs.len() && row.outputs > 0));
        }
    }

    /// Values of attributes, attributes of graphs, domains, and what says where elements stand.
    const OTHER_WORDS: &[&str] = &[
        "CRD",
        "DCR",
        "LEFT",
        "NOTSET",
        "RIGHT",
        "SAME_LOWER",
        "SAME_UPPER",
        "VALID",
        "ai.onnx",
        "ai.onnx.preview",
        "body",
        "com.microsoft",
        "constant",
        "edge",
        "else_branch",
        "length",
        "location",
        "mean",
        "none",
        "offset",
        "prob_mod",
        "reflect",
        "score_mod",
        "sum",
        "tanh",
        "then_branch",
        "wrap",
    ];

    #[test]
    fn the_dictionary_of_the_fuzzer_has_every_word() {
        let attributes = ROWS.iter().chain(microsoft::ROWS).flat_map(|row| row.attributes);
        let kinds: Vec<&str> = mapped().collect();
        let contributed = microsoft::ROWS.iter().map(|row| &row.name);
        let names = kinds
            .iter()
            .chain(contributed)
            .chain(attributes.clone().map(|(name, _)| name))
            .chain(OTHER_WORDS);
        let mut words: BTreeSet<String> = names.map(|name| (*name).to_owned()).collect();
        // Fields of protobuf: the kind of an attribute, and element types of inputs, constants and
        // attributes.
        words.extend(attributes.map(|(_, contents)| format!("\\xa0\\x01\\x{:02x}", *contents as u8)));
        let types = (1u8..).take_while(|number| data_type((*number).into()) != Err(RefusedType::UNKNOWN));
        words.extend(
            types.flat_map(|number| [0x08, 0x10, 0x18].map(|tag| format!("\\x{tag:02x}\\x{number:02x}"))),
        );
        let of_rows = ROWS.iter().chain(microsoft::ROWS).map(|row| row.name);
        let seeded: Vec<&str> = crate::onnx::op_types().collect();
        compare("onnx", words, of_rows, &seeded);
    }
}
