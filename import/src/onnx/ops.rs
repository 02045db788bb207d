//! The table of op types and what they become. A new type is a new row.

mod arithmetic;
mod attention;
mod call;
mod moves;
mod norms;
mod places;
mod quantization;
mod rows;

use sterna::{DataType, Direction, OpKind, TensorId};

use crate::error::Fault;
use crate::names::Shown;
use crate::steps::{Formula, Reduction};

pub(super) use attention::FlexAttention;
pub(super) use call::Call;

use Contents::{Float, Floats, Int, Ints, Tensor, Text};
use OpKind as K;

/// The mapping of an op type, from an opset on.
struct Row {
    name: &'static str,
    /// The first opset whose op of this name the row describes; 7 stands for all before, too.
    since: i64,
    /// The names of the inputs, in order; the last ones may be missing if there are more than `least`.
    inputs: &'static [&'static str],
    /// The least number of inputs.
    least: usize,
    /// Whether the last input stands for any number of them.
    variadic: bool,
    /// The most outputs.
    outputs: usize,
    attributes: &'static [(&'static str, Contents)],
    map: Map,
}

/// What an attribute holds, by its number in files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contents {
    Float = 1,
    Int = 2,
    Text = 3,
    Tensor = 4,
    Floats = 6,
    Ints = 7,
}

type Mapping = fn(&mut Call<'_, '_>) -> Result<TensorId, Fault>;
type Mappings = fn(&mut Call<'_, '_>) -> Result<Vec<TensorId>, Fault>;

/// The way from a node to ops.
enum Map {
    /// An op of one input and its type, without attributes.
    Unary(OpKind),
    /// As `Unary`; integers that the op lacks are computed as wider ones.
    Signed(OpKind),
    /// A predicate of a floating-point number.
    Predicate(OpKind),
    /// Arithmetic on two inputs of one type; integers that the op lacks are computed as wider ones, and wrap.
    Arithmetic(OpKind),
    /// The larger or the smaller one of any number of inputs.
    Extreme(OpKind),
    /// An op of two inputs of one type with a truth value.
    Comparison(OpKind),
    /// An op of truth values.
    Logic(OpKind),
    /// One number for the elements along some axes.
    Reduction(Reduction),
    /// Several ops on floating point.
    Formula(Formula),
    /// Several ops on any number.
    OfNumber(Formula),
    /// Anything else with one output.
    By(Mapping),
    /// Anything else.
    Several(Mappings),
}

const fn row(
    name: &'static str,
    inputs: &'static [&'static str],
    attributes: &'static [(&'static str, Contents)],
    map: Map,
) -> Row {
    let least = inputs.len();
    Row { name, since: 7, inputs, least, variadic: false, outputs: 1, attributes, map }
}

impl Row {
    const fn since(self, since: i64) -> Self {
        Self { since, ..self }
    }

    const fn least(self, least: usize) -> Self {
        Self { least, ..self }
    }

    const fn variadic(self) -> Self {
        Self { variadic: true, ..self }
    }

    const fn outputs(self, outputs: usize) -> Self {
        Self { outputs, ..self }
    }
}

const X: &[&str] = &["X"];
const INPUT: &[&str] = &["input"];
const PAIR: &[&str] = &["A", "B"];
const DATA: &[&str] = &["data"];
const DATA_AXES: &[&str] = &["data", "axes"];
const AXIS: &[(&str, Contents)] = &[("axis", Int)];
const OF_AXES: &[(&str, Contents)] = &[("axes", Ints), ("keepdims", Int)];
const BY_AXES: &[(&str, Contents)] = &[("keepdims", Int), ("noop_with_empty_axes", Int)];

const OF_PLACES: &[(&str, Contents)] = &[("axis", Int), ("keepdims", Int), ("select_last_index", Int)];
const OF_BATCH: &[&str] = &["X", "scale", "B", "input_mean", "input_var"];
const OF_LOSS: &[&str] = &["input", "target", "weight"];
const BY_LOSS: &[(&str, Contents)] = &[("ignore_index", Int), ("reduction", Text)];

const fn window(name: &'static str, map: Map) -> Row {
    row(name, &["size"], &[("output_datatype", Int), ("periodic", Int)], map).since(17)
}

const fn unary(name: &'static str, map: Map) -> Row {
    row(name, X, &[], map)
}

const fn binary(name: &'static str, kind: OpKind) -> Row {
    row(name, PAIR, &[], Map::Arithmetic(kind))
}

const fn comparison(name: &'static str, kind: OpKind) -> Row {
    row(name, PAIR, &[], Map::Comparison(kind))
}

const fn logic(name: &'static str, kind: OpKind) -> Row {
    row(name, PAIR, &[], Map::Logic(kind))
}

/// A reduction whose axes are an attribute, before they became an input.
const fn by_attribute(name: &'static str, reduction: Reduction) -> Row {
    row(name, DATA, OF_AXES, Map::Reduction(reduction))
}

const fn by_input(name: &'static str, since: i64, reduction: Reduction) -> Row {
    row(name, DATA_AXES, BY_AXES, Map::Reduction(reduction)).least(1).since(since)
}

/// The types that are mapped, by name and opset.
const ROWS: &[Row] = &[
    unary("Abs", Map::Signed(K::Abs)),
    binary("Add", K::Add),
    logic("And", K::LogicalAnd),
    row("ArgMax", DATA, OF_PLACES, Map::By(|node| norms::place_of(node, K::ReduceMax))),
    row("ArgMin", DATA, OF_PLACES, Map::By(|node| norms::place_of(node, K::ReduceMin))),
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
        Map::Several(attention::attention),
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
        Map::Several(attention::attention),
    )
    .least(3)
    .outputs(4)
    .since(25),
    row(
        "BatchNormalization",
        OF_BATCH,
        &[("epsilon", Float), ("momentum", Float)],
        Map::Several(norms::batch),
    ),
    row(
        "BatchNormalization",
        OF_BATCH,
        &[("epsilon", Float), ("momentum", Float), ("training_mode", Int)],
        Map::Several(norms::batch),
    )
    .outputs(3)
    .since(14),
    row("BitShift", &["X", "Y"], &[("direction", Text)], Map::By(places::bit_shift)).since(11),
    unary("BitwiseNot", Map::By(places::bitwise_not)).since(18),
    window("BlackmanWindow", Map::By(|node| norms::window(node, [0.42, 0.5, 0.08]))),
    row("Cast", INPUT, &[("to", Int), ("saturate", Int), ("round_mode", Text)], Map::By(arithmetic::cast)),
    row(
        "CastLike",
        &["input", "target_type"],
        &[("saturate", Int), ("round_mode", Text)],
        Map::By(arithmetic::cast_like),
    )
    .since(15),
    unary("Ceil", Map::Unary(K::Ceil)),
    row("Celu", X, &[("alpha", Float)], Map::By(arithmetic::celu)).since(12),
    row("CenterCropPad", &["input_data", "shape"], &[("axes", Ints)], Map::By(places::center_crop_pad))
        .since(18),
    row("Clip", INPUT, &[("max", Float), ("min", Float)], Map::By(arithmetic::clip_to_attributes)),
    row("Clip", &["input", "min", "max"], &[], Map::By(arithmetic::clip)).least(1).since(11),
    row("Concat", &["inputs"], AXIS, Map::By(moves::concat)).variadic(),
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
        Map::By(moves::constant),
    ),
    row("ConstantOfShape", INPUT, &[("value", Tensor)], Map::By(moves::constant_of_shape)).since(9),
    unary("Cos", Map::Unary(K::Cos)),
    unary("Cosh", Map::Formula(|steps, x| steps.hyperbolic(x, false))).since(9),
    row("DepthToSpace", INPUT, &[("blocksize", Int), ("mode", Text)], Map::By(places::depth_to_space)),
    row(
        "DequantizeLinear",
        &["x", "x_scale", "x_zero_point"],
        &[("axis", Int), ("block_size", Int), ("output_dtype", Int)],
        Map::By(quantization::dequantize),
    )
    .least(2)
    .since(10),
    row("Div", PAIR, &[], Map::By(arithmetic::divide)),
    row("Dropout", DATA, &[("ratio", Float)], Map::Several(norms::dropout)).outputs(2),
    row("Dropout", &["data", "ratio", "training_mode"], &[("seed", Int)], Map::Several(norms::dropout))
        .least(1)
        .outputs(2)
        .since(12),
    row("DynamicQuantizeLinear", &["x"], &[], Map::Several(norms::dynamic_quantize)).outputs(3).since(11),
    row("Elu", X, &[("alpha", Float)], Map::By(arithmetic::elu)),
    comparison("Equal", K::Equal),
    unary("Erf", Map::Formula(|steps, x| steps.erf(x))).since(9),
    unary("Exp", Map::Unary(K::Exp)),
    row("Expand", &["input", "shape"], &[], Map::By(moves::expand)).since(8),
    row("EyeLike", INPUT, &[("dtype", Int), ("k", Int)], Map::By(norms::eye)).since(9),
    row("Flatten", INPUT, AXIS, Map::By(moves::flatten)),
    unary("Floor", Map::Unary(K::Floor)),
    row("Gather", &["data", "indices"], AXIS, Map::By(moves::gather)),
    row("GatherElements", &["data", "indices"], AXIS, Map::By(moves::gather_elements)).since(11),
    row("Gelu", X, &[("approximate", Text)], Map::By(arithmetic::gelu)).since(20),
    row(
        "Gemm",
        &["A", "B", "C"],
        &[("alpha", Float), ("beta", Float), ("transA", Int), ("transB", Int)],
        Map::By(rows::gemm),
    )
    .least(2),
    unary("GlobalAveragePool", Map::By(|node| norms::over_all(node, K::ReduceMean))),
    unary("GlobalMaxPool", Map::By(|node| norms::over_all(node, K::ReduceMax))),
    comparison("Greater", K::Greater),
    comparison("GreaterOrEqual", K::GreaterEqual).since(12),
    row(
        "GroupNormalization",
        &["X", "scale", "bias"],
        &[("epsilon", Float), ("num_groups", Int), ("stash_type", Int)],
        Map::By(norms::group),
    )
    .since(21),
    window("HammingWindow", Map::By(|node| norms::window(node, [25.0 / 46.0, 21.0 / 46.0, 0.0]))),
    window("HannWindow", Map::By(|node| norms::window(node, [0.5, 0.5, 0.0]))),
    row("HardSigmoid", X, &[("alpha", Float), ("beta", Float)], Map::By(arithmetic::hard_sigmoid)),
    unary("HardSwish", Map::Unary(K::HardSwish)).since(14),
    row("Hardmax", INPUT, AXIS, Map::By(norms::hardmax)).since(13),
    row("Identity", INPUT, &[], Map::By(moves::identity)),
    row("InstanceNormalization", &["input", "scale", "B"], &[("epsilon", Float)], Map::By(norms::instance)),
    row("IsInf", X, &[("detect_negative", Int), ("detect_positive", Int)], Map::By(arithmetic::is_inf))
        .since(10),
    unary("IsNaN", Map::Predicate(K::IsNaN)).since(9),
    row(
        "LayerNormalization",
        &["X", "Scale", "B"],
        &[("axis", Int), ("epsilon", Float), ("stash_type", Int)],
        Map::Several(rows::layer_normalization),
    )
    .least(2)
    .outputs(3)
    .since(17),
    row("LeakyRelu", X, &[("alpha", Float)], Map::By(arithmetic::leaky_relu)),
    comparison("Less", K::Less),
    comparison("LessOrEqual", K::LessEqual).since(12),
    unary("Log", Map::Unary(K::Log)),
    row("LogSoftmax", INPUT, AXIS, Map::By(rows::log_softmax_of_rows)),
    row("LogSoftmax", INPUT, AXIS, Map::By(rows::log_softmax)).since(13),
    row("LpNormalization", INPUT, &[("axis", Int), ("p", Int)], Map::By(norms::by_length)),
    row("MatMul", PAIR, &[], Map::By(rows::matmul)),
    row("MatMulInteger", &["A", "B", "a_zero_point", "b_zero_point"], &[], Map::By(places::matmul_integer))
        .least(2)
        .since(10),
    row("Max", &["data_0"], &[], Map::Extreme(K::Maximum)).variadic(),
    row("Mean", &["data_0"], &[], Map::By(arithmetic::mean)).variadic(),
    row("MeanVarianceNormalization", X, &[("axes", Ints)], Map::By(norms::mean_variance)).since(9),
    row("Min", &["data_0"], &[], Map::Extreme(K::Minimum)).variadic(),
    unary("Mish", Map::Unary(K::Mish)).since(18),
    row("Mod", PAIR, &[("fmod", Int)], Map::By(arithmetic::modulo)).since(10),
    binary("Mul", K::Multiply),
    unary("Neg", Map::Signed(K::Negative)),
    row("NegativeLogLikelihoodLoss", OF_LOSS, BY_LOSS, Map::By(norms::likelihood)).least(2).since(12),
    unary("Not", Map::Unary(K::LogicalNot)),
    row("OneHot", &["indices", "depth", "values"], AXIS, Map::By(places::one_hot)).since(9),
    logic("Or", K::LogicalOr),
    row("PRelu", &["X", "slope"], &[], Map::By(arithmetic::prelu)),
    row("Pad", DATA, &[("mode", Text), ("pads", Ints), ("value", Float)], Map::By(moves::pad_by_attributes)),
    row("Pad", &["data", "pads", "constant_value", "axes"], &[("mode", Text)], Map::By(moves::pad))
        .least(2)
        .since(11),
    row("Pow", &["X", "Y"], &[], Map::By(arithmetic::power)),
    row(
        "QLinearMatMul",
        &["a", "a_scale", "a_zero_point", "b", "b_scale", "b_zero_point", "y_scale", "y_zero_point"],
        &[],
        Map::By(places::qlinear_matmul),
    )
    .since(10),
    row(
        "QuantizeLinear",
        &["x", "y_scale", "y_zero_point"],
        &[("axis", Int), ("block_size", Int), ("output_dtype", Int), ("precision", Int), ("saturate", Int)],
        Map::By(quantization::quantize),
    )
    .least(2)
    .since(10),
    row(
        "RMSNormalization",
        &["X", "scale"],
        &[("axis", Int), ("epsilon", Float), ("stash_type", Int)],
        Map::By(rows::rms_normalization),
    )
    .since(23),
    row("Range", &["start", "limit", "delta"], &[("stash_type", Int)], Map::By(moves::range)).since(11),
    unary("Reciprocal", Map::Unary(K::Reciprocal)),
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
    row("Relu", X, &[], Map::By(arithmetic::relu)),
    row("Reshape", &["data", "shape"], &[("allowzero", Int)], Map::By(moves::reshape)),
    row(
        "RotaryEmbedding",
        &["X", "cos_cache", "sin_cache", "position_ids"],
        &[("interleaved", Int), ("num_heads", Int), ("rotary_embedding_dim", Int)],
        Map::By(places::rotary),
    )
    .least(3)
    .since(23),
    unary("Round", Map::Unary(K::Round)).since(11),
    row("Selu", X, &[("alpha", Float), ("gamma", Float)], Map::By(arithmetic::selu)),
    row("Shape", DATA, &[("start", Int), ("end", Int)], Map::By(moves::shape)),
    row("Shrink", INPUT, &[("bias", Float), ("lambd", Float)], Map::By(norms::shrink)).since(9),
    unary("Sigmoid", Map::Unary(K::Sigmoid)),
    row("Sign", INPUT, &[], Map::OfNumber(|steps, x| steps.sign(x))).since(9),
    unary("Sin", Map::Unary(K::Sin)),
    unary("Sinh", Map::Formula(|steps, x| steps.hyperbolic(x, true))).since(9),
    row("Size", DATA, &[], Map::By(moves::size)),
    row(
        "Slice",
        DATA,
        &[("axes", Ints), ("ends", Ints), ("starts", Ints)],
        Map::By(moves::slice_by_attributes),
    ),
    row("Slice", &["data", "starts", "ends", "axes", "steps"], &[], Map::By(moves::slice)).least(3).since(10),
    row("Softmax", INPUT, AXIS, Map::By(rows::softmax_of_rows)),
    row("Softmax", INPUT, AXIS, Map::By(rows::softmax)).since(13),
    row("SoftmaxCrossEntropyLoss", OF_LOSS, BY_LOSS, Map::Several(norms::cross_entropy))
        .least(2)
        .outputs(2)
        .since(12),
    unary("Softplus", Map::Unary(K::SoftPlus)),
    unary("Softsign", Map::Formula(|steps, x| steps.softsign(x))),
    row("SpaceToDepth", INPUT, &[("blocksize", Int), ("mode", Text)], Map::By(places::space_to_depth)),
    row("Split", INPUT, &[("axis", Int), ("split", Ints)], Map::Several(moves::split)).outputs(usize::MAX),
    row("Split", &["input", "split"], &[("axis", Int), ("num_outputs", Int)], Map::Several(moves::split))
        .least(1)
        .outputs(usize::MAX)
        .since(13),
    unary("Sqrt", Map::Unary(K::Sqrt)),
    row("Squeeze", DATA, &[("axes", Ints)], Map::By(moves::squeeze)),
    row("Squeeze", DATA_AXES, &[], Map::By(moves::squeeze)).least(1).since(13),
    binary("Sub", K::Subtract),
    row("Sum", &["data_0"], &[], Map::Extreme(K::Add)).variadic(),
    row("SwiGLU", PAIR, &[("alpha", Float)], Map::By(norms::swiglu)).since(28),
    row("Swish", X, &[("alpha", Float)], Map::By(arithmetic::swish)).since(24),
    unary("Tan", Map::Formula(|steps, x| steps.tan(x))),
    unary("Tanh", Map::Unary(K::Tanh)),
    row("ThresholdedRelu", X, &[("alpha", Float)], Map::By(arithmetic::thresholded_relu)).since(10),
    row("Tile", &["input", "repeats"], &[], Map::By(places::tile)),
    row("Transpose", DATA, &[("perm", Ints)], Map::By(moves::transpose)),
    row("Trilu", &["input", "k"], &[("upper", Int)], Map::By(moves::trilu)).least(1).since(14),
    row("Unsqueeze", DATA, &[("axes", Ints)], Map::By(moves::unsqueeze)),
    row("Unsqueeze", DATA_AXES, &[], Map::By(moves::unsqueeze)).since(13),
    row("Where", &["condition", "X", "Y"], &[], Map::By(moves::choice)).since(9),
    logic("Xor", K::LogicalXor),
];

/// The types that are mapped.
pub(super) fn mapped() -> impl Iterator<Item = &'static str> {
    let repeats = |(i, row): &(usize, &Row)| *i == 0 || ROWS[i - 1].name != row.name;
    ROWS.iter().enumerate().filter(repeats).map(|(_, row)| row.name).chain(["FlexAttention"])
}

/// The names of the inputs in the row of an op type; none if there is no row.
pub(super) fn ports(name: &str, opset: i64) -> &'static [&'static str] {
    row_of(name, opset).map_or(&[], |row| row.inputs)
}

fn row_of(name: &str, opset: i64) -> Result<&'static Row, Fault> {
    let mut named = ROWS.iter().filter(|row| row.name == name).peekable();
    if named.peek().is_none() {
        return Err(Fault::Unsupported { needed: "ops of Sterna that compute the same".into() });
    }
    let row = named.rfind(|row| row.since <= opset.max(7));
    row.ok_or(Fault::Version { needed: "an opset that has the op" })
}

/// The results of a node, in order.
pub(super) fn map(mut call: Call<'_, '_>) -> Result<Vec<TensorId>, Fault> {
    let row = row_of(call.kind, call.opset)?;
    while call.inputs.last() == Some(&None) {
        call.inputs.pop();
    }
    let given = call.inputs.len();
    let missing = (0..row.least).find(|&place| call.inputs.get(place).is_none_or(Option::is_none));
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
fn run(row: &Row, node: &mut Call<'_, '_>) -> Result<Vec<TensorId>, Fault> {
    let one = match &row.map {
        Map::Several(function) => return function(node),
        Map::By(function) => function(node)?,
        Map::Unary(kind) => node.steps.same(*kind, node.input(0))?,
        Map::Signed(kind) => {
            let x = node.input(0);
            node.steps.signed(*kind, x)?
        }
        Map::Predicate(kind) => node.steps.emit(*kind, &[], &[node.input(0)], DataType::Boolean)?,
        Map::Arithmetic(kind) => arithmetic::pair(node, *kind, node.input(0), node.input(1))?,
        Map::Extreme(kind) => {
            let rest: Vec<TensorId> = node.inputs.iter().flatten().copied().collect();
            let mut one = rest[0];
            for other in &rest[1..] {
                one = arithmetic::pair(node, *kind, one, *other)?;
            }
            one
        }
        Map::Comparison(kind) => arithmetic::compare(node, *kind, node.input(0), node.input(1))?,
        Map::Logic(kind) => {
            node.one_type(0, 1)?;
            node.steps.emit_declared(*kind, &[], &[node.input(0), node.input(1)], DataType::Boolean)?
        }
        Map::Reduction(reduction) => rows::reduce(node, *reduction)?,
        Map::Formula(formula) => arithmetic::formula(node, *formula)?,
        Map::OfNumber(formula) => {
            let x = node.input(0);
            formula(&mut node.steps, x)?
        }
    };
    Ok(vec![one])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_order_and_say_what_they_take() {
        let keys: Vec<(&str, i64)> = ROWS.iter().map(|row| (row.name, row.since)).collect();
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "{keys:?}");
        assert!(ROWS.iter().all(|row| row.least <= row.inputs.len() && row.outputs > 0));
    }
}
