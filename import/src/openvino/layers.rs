//! The table of layer types and their ops. A new type is a new row.

mod compose;
mod context;
mod rows;
mod shapes;

use sterna::{Attr, AttrValue, DataType, Direction, OpKind, TensorId};

use self::context::Context;
use self::context::{AXIS, FLOATS};
pub(super) use self::context::{Class, Input};
use super::xml::Layer;
use crate::builder::Builder;
use crate::compose::{is_float, is_integer};
use crate::error::Fault;
use crate::steps::{Formula, Reduction};

use Class::{Truth, Value as Plain};
use OpKind as K;

/// The mapping of a layer type.
pub(super) struct Row {
    /// The type, as files and the specification write it.
    pub(super) names: &'static [&'static str],
    /// The inputs, in order; the last ones may be missing if there are more than `least`.
    pub(super) inputs: &'static [Input],
    /// The least number of inputs.
    pub(super) least: usize,
    /// Whether the last input stands for any number of them.
    pub(super) variadic: bool,
    /// The attributes of the element `data`.
    attributes: &'static [&'static str],
    map: Map,
}

/// The way from a layer to ops.
enum Map {
    /// An op of one input and its type, without attributes.
    Unary(OpKind),
    /// As `Unary` on floating point; on integers nothing changes.
    Rounding(OpKind),
    /// A predicate of a floating-point number.
    Predicate(OpKind),
    /// An op of two inputs of one type, which is the type of the result.
    Binary(OpKind),
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
    By(fn(&mut Context<'_, '_>) -> Result<TensorId, Fault>),
    /// Anything else.
    Several(fn(&mut Context<'_, '_>) -> Result<Vec<TensorId>, Fault>),
}

const fn input(name: &'static str, class: Class) -> Input {
    Input { name, class }
}

const DATA: &[Input] = &[input("data", Plain)];
const TRUTH: &[Input] = &[input("data", Truth)];
const DATA_AXES: &[Input] = &[input("data", Plain), input("axes", Plain)];
const GATHER: &[Input] = &[input("data", Plain), input("indices", Plain), input("axis", Plain)];
const PAIR: &[Input] = &[input("a", Plain), input("b", Plain)];
const TRUTHS: &[Input] = &[input("a", Truth), input("b", Truth)];
const BROADCAST: &[&str] = &["auto_broadcast", "axis", AXIS];

const fn row(
    names: &'static [&'static str],
    inputs: &'static [Input],
    attributes: &'static [&'static str],
    map: Map,
) -> Row {
    Row { names, inputs, least: inputs.len(), variadic: false, attributes, map }
}

const fn unary(names: &'static [&'static str], map: Map) -> Row {
    row(names, DATA, &[], map)
}

const fn binary(names: &'static [&'static str], kind: OpKind) -> Row {
    row(names, PAIR, BROADCAST, Map::Binary(kind))
}

const fn comparison(names: &'static [&'static str], kind: OpKind) -> Row {
    row(names, PAIR, BROADCAST, Map::Comparison(kind))
}

const fn logic(names: &'static [&'static str], kind: OpKind) -> Row {
    row(names, TRUTHS, BROADCAST, Map::Logic(kind))
}

const fn reduction(names: &'static [&'static str], reduction: Reduction) -> Row {
    row(names, DATA_AXES, &["keep_dims"], Map::Reduction(reduction))
}

/// The types that are mapped, by name.
const ROWS: &[Row] = &[
    unary(&["Abs"], Map::OfNumber(|steps, x| steps.signed(K::Abs, x))),
    binary(&["Add"], K::Add),
    row(
        &["BatchNormInference"],
        &[
            input("data", Plain),
            input("gamma", Plain),
            input("beta", Plain),
            input("mean", Plain),
            input("variance", Plain),
        ],
        &["epsilon"],
        Map::By(rows::batch_norm),
    ),
    Row {
        least: 2,
        ..row(
            &["Broadcast"],
            &[input("data", Plain), input("target_shape", Plain), input("axes_mapping", Plain)],
            &["mode"],
            Map::By(shapes::broadcast),
        )
    },
    unary(&["Ceiling"], Map::Rounding(K::Ceil)),
    row(&["Clamp"], DATA, &["min", "max"], Map::By(compose::clamp)),
    Row { variadic: true, ..row(&["Concat"], DATA, &["axis"], Map::By(shapes::concat)) },
    row(&["Convert"], DATA, &["destination_type"], Map::By(compose::convert)),
    row(&["ConvertLike"], &[input("data", Plain), input("like", Plain)], &[], Map::By(compose::convert_like)),
    unary(&["Cos"], Map::Unary(K::Cos)),
    unary(&["Cosh"], Map::Formula(|steps, x| steps.hyperbolic(x, false))),
    row(&["DepthToSpace"], DATA, &["mode", "block_size"], Map::By(shapes::depth_to_space)),
    row(&["Divide"], PAIR, &["auto_broadcast", "axis", AXIS, "m_pythondiv"], Map::By(compose::divide)),
    row(&["Elu"], DATA, &["alpha"], Map::By(compose::elu)),
    comparison(&["Equal"], K::Equal),
    unary(&["Erf"], Map::Formula(|steps, x| steps.erf(x))),
    unary(&["Exp"], Map::Unary(K::Exp)),
    row(
        &["FakeQuantize"],
        &[
            input("data", Plain),
            input("input_low", Plain),
            input("input_high", Plain),
            input("output_low", Plain),
            input("output_high", Plain),
        ],
        &["levels", "auto_broadcast"],
        Map::By(rows::fake_quantize),
    ),
    unary(&["Floor"], Map::Rounding(K::Floor)),
    binary(&["FloorMod"], K::Modulo),
    row(&["Gather"], GATHER, &["batch_dims"], Map::By(shapes::gather)),
    row(
        &["GatherElements"],
        &[input("data", Plain), input("indices", Plain)],
        &["axis"],
        Map::By(shapes::gather_elements),
    ),
    row(&["Gelu"], DATA, &["approximation_mode"], Map::By(compose::gelu)),
    comparison(&["Greater"], K::Greater),
    comparison(&["GreaterEqual"], K::GreaterEqual),
    row(
        &["GroupNormalization"],
        &[input("data", Plain), input("scale", Plain), input("bias", Plain)],
        &["num_groups", "epsilon"],
        Map::By(rows::group_norm),
    ),
    unary(&["HSigmoid"], Map::By(compose::hsigmoid)),
    unary(&["HSwish"], Map::Unary(K::HardSwish)),
    row(
        &["HardSigmoid"],
        &[input("data", Plain), input("alpha", Plain), input("beta", Plain)],
        &[],
        Map::By(compose::hard_sigmoid),
    ),
    unary(&["Identity"], Map::By(shapes::identity)),
    unary(&["IsFinite"], Map::Predicate(K::IsFinite)),
    row(&["IsInf"], DATA, &["detect_negative", "detect_positive"], Map::By(compose::is_inf)),
    unary(&["IsNaN"], Map::Predicate(K::IsNaN)),
    comparison(&["Less"], K::Less),
    comparison(&["LessEqual"], K::LessEqual),
    unary(&["Log"], Map::Unary(K::Log)),
    row(&["LogSoftmax"], DATA, &["axis"], Map::By(rows::log_softmax)),
    logic(&["LogicalAnd"], K::LogicalAnd),
    row(&["LogicalNot"], TRUTH, &[], Map::Unary(K::LogicalNot)),
    logic(&["LogicalOr"], K::LogicalOr),
    logic(&["LogicalXor"], K::LogicalXor),
    Row {
        least: 1,
        ..row(
            &["MVN"],
            DATA_AXES,
            &["across_channels", "normalize_variance", "eps", "eps_mode"],
            Map::By(rows::mvn),
        )
    },
    row(&["MatMul"], PAIR, &["transpose_a", "transpose_b"], Map::By(rows::matmul)),
    binary(&["Maximum"], K::Maximum),
    binary(&["Minimum"], K::Minimum),
    unary(&["Mish"], Map::Unary(K::Mish)),
    row(&["Mod"], PAIR, BROADCAST, Map::By(compose::modulo)),
    binary(&["Multiply"], K::Multiply),
    unary(&["Negative"], Map::OfNumber(|steps, x| steps.signed(K::Negative, x))),
    comparison(&["NotEqual"], K::NotEqual),
    row(
        &["OneHot"],
        &[
            input("indices", Plain),
            input("depth", Plain),
            input("on_value", Plain),
            input("off_value", Plain),
        ],
        &["axis", "negative_indices_mode"],
        Map::By(shapes::one_hot),
    ),
    row(
        &["PReLU", "PRelu", "Prelu"],
        &[input("data", Plain), input("slope", Plain)],
        &[],
        Map::By(compose::prelu),
    ),
    Row {
        least: 3,
        ..row(
            &["Pad"],
            &[
                input("data", Plain),
                input("pads_begin", Plain),
                input("pads_end", Plain),
                input("pad_value", Plain),
            ],
            &["pad_mode"],
            Map::By(shapes::pad),
        )
    },
    row(&["Power"], PAIR, BROADCAST, Map::By(compose::power)),
    row(
        &["Range"],
        &[input("start", Plain), input("stop", Plain), input("step", Plain)],
        &["output_type"],
        Map::By(shapes::range),
    ),
    unary(&["ReLU", "Relu"], Map::By(compose::relu)),
    reduction(&["ReduceL1"], Reduction::One(K::ReduceL1)),
    reduction(&["ReduceL2"], Reduction::One(K::ReduceL2)),
    reduction(&["ReduceLogicalAnd"], Reduction::Truth { all: true }),
    reduction(&["ReduceLogicalOr"], Reduction::Truth { all: false }),
    reduction(&["ReduceMax"], Reduction::One(K::ReduceMax)),
    reduction(&["ReduceMean"], Reduction::One(K::ReduceMean)),
    reduction(&["ReduceMin"], Reduction::One(K::ReduceMin)),
    reduction(&["ReduceProd"], Reduction::One(K::ReduceProd)),
    reduction(&["ReduceSum"], Reduction::One(K::ReduceSum)),
    row(
        &["Reshape"],
        &[input("data", Plain), input("shape", Plain)],
        &["special_zero"],
        Map::By(shapes::reshape),
    ),
    row(&["Reverse"], DATA_AXES, &["mode"], Map::By(shapes::reverse)),
    row(&["Round"], DATA, &["mode"], Map::By(compose::round)),
    Row {
        least: 3,
        ..row(
            &["ScaledDotProductAttention"],
            &[
                input("query", Plain),
                input("key", Plain),
                input("value", Plain),
                input("attention_mask", Plain),
                input("scale", Plain),
            ],
            &["causal"],
            Map::By(rows::attention),
        )
    },
    row(
        &["Select"],
        &[input("cond", Truth), input("then", Plain), input("else", Plain)],
        BROADCAST,
        Map::By(compose::select),
    ),
    row(
        &["Selu"],
        &[input("data", Plain), input("alpha", Plain), input("lambda", Plain)],
        &[],
        Map::By(compose::selu),
    ),
    row(&["ShapeOf"], DATA, &["output_type"], Map::By(shapes::shape_of)),
    unary(&["Sigmoid"], Map::Unary(K::Sigmoid)),
    unary(&["Sign"], Map::OfNumber(|steps, x| steps.sign(x))),
    unary(&["Sin"], Map::Unary(K::Sin)),
    unary(&["Sinh"], Map::Formula(|steps, x| steps.hyperbolic(x, true))),
    Row {
        least: 4,
        ..row(
            &["Slice"],
            &[
                input("data", Plain),
                input("start", Plain),
                input("stop", Plain),
                input("step", Plain),
                input("axes", Plain),
            ],
            &[],
            Map::By(shapes::slice),
        )
    },
    row(&["SoftMax", "Softmax"], DATA, &["axis"], Map::By(rows::softmax)),
    unary(&["SoftPlus"], Map::Unary(K::SoftPlus)),
    unary(&["SoftSign"], Map::Formula(|steps, x| steps.softsign(x))),
    row(&["SpaceToDepth"], DATA, &["mode", "block_size"], Map::By(shapes::space_to_depth)),
    row(
        &["Split"],
        &[input("data", Plain), input("axis", Plain)],
        &["num_splits"],
        Map::Several(shapes::split),
    ),
    unary(&["Sqrt"], Map::Unary(K::Sqrt)),
    binary(&["SquaredDifference"], K::SquaredDifference),
    Row {
        least: 1,
        ..row(
            &["Squeeze"],
            &[input("data", Plain), input("axes", Plain)],
            &["allow_axis_skip"],
            Map::By(shapes::squeeze),
        )
    },
    Row {
        least: 3,
        ..row(
            &["StridedSlice"],
            &[input("data", Plain), input("begin", Plain), input("end", Plain), input("stride", Plain)],
            &["begin_mask", "end_mask", "new_axis_mask", "shrink_axis_mask", "ellipsis_mask"],
            Map::By(shapes::strided_slice),
        )
    },
    binary(&["Subtract"], K::Subtract),
    Row {
        least: 1,
        ..row(&["Swish"], &[input("data", Plain), input("beta", Plain)], &[], Map::By(compose::swish))
    },
    unary(&["Tan"], Map::Formula(|steps, x| steps.tan(x))),
    unary(&["Tanh", "TanH"], Map::Unary(K::Tanh)),
    row(&["Tile"], &[input("data", Plain), input("repeats", Plain)], &[], Map::By(shapes::tile)),
    row(
        &["TopK"],
        &[input("data", Plain), input("k", Plain)],
        &["axis", "mode", "sort", "index_element_type", "stable"],
        Map::Several(rows::top_k),
    ),
    row(&["Transpose"], &[input("data", Plain), input("order", Plain)], &[], Map::By(shapes::transpose)),
    row(&["Unsqueeze"], &[input("data", Plain), input("axes", Plain)], &[], Map::By(shapes::unsqueeze)),
    row(
        &["VariadicSplit"],
        &[input("data", Plain), input("axis", Plain), input("lengths", Plain)],
        &[],
        Map::Several(shapes::variadic_split),
    ),
];

/// The types that are mapped, by their first names.
pub(super) fn mapped() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.names[0])
}

/// The row of a layer.
pub(super) fn row_of(layer: &Layer) -> Result<&'static Row, Fault> {
    ROWS.iter()
        .find(|row| row.names.contains(&&*layer.kind))
        .ok_or_else(|| Fault::Unsupported { needed: "ops of Sterna that compute the same".into() })
}

/// The operation sets whose ops are known.
const OPSETS: std::ops::RangeInclusive<u32> = 1..=17;

/// The operation set in which the version of an op came up; a lone layer does not say.
fn opset(layer: &Layer) -> Result<Option<u32>, Fault> {
    let Some(version) = &layer.version else { return Ok(None) };
    let number = version.strip_prefix("opset").and_then(|number| number.parse().ok());
    match number.filter(|number| OPSETS.contains(number)) {
        Some(number) => Ok(Some(number)),
        None => Err(Fault::Version { needed: "an op of the sets opset1 to opset17" }),
    }
}

/// The results of a layer, one for each of its outputs.
pub(super) fn map(
    layer: &Layer,
    builder: &mut Builder<'_>,
    inputs: Vec<TensorId>,
    shapes_hold: bool,
) -> Result<Vec<TensorId>, Fault> {
    let row = row_of(layer)?;
    let count = |direction, given, needed| Fault::PortCount { direction, given, needed };
    let most = if row.variadic { usize::MAX } else { row.inputs.len() };
    if !(row.least..=most).contains(&inputs.len()) {
        let needed = match row.least == most {
            true => row.least.to_string(),
            false if row.variadic => "one or more".into(),
            false => format!("{} to {}", row.least, row.inputs.len()),
        };
        return Err(count(Direction::Input, inputs.len(), needed));
    }
    let several = matches!(row.map, Map::Several(_));
    if layer.outputs.is_empty() || (layer.outputs.len() > 1 && !several) {
        return Err(count(Direction::Output, layer.outputs.len(), "1".into()));
    }
    if let Some((attribute, _)) = layer.data.iter().find(|(name, _)| !row.attributes.contains(&&**name)) {
        return Err(Fault::UnknownAttribute { attribute: attribute.clone() });
    }
    let opset = opset(layer)?;
    let mut context = Context::new(layer, builder, inputs, shapes_hold, row.inputs, opset);
    let results = match row.map {
        Map::Several(function) => function(&mut context),
        _ => run(row, &mut context).map(|result| vec![result]),
    };
    let results = results.map_err(|fault| context.named(fault))?;
    if results.len() != layer.outputs.len() {
        return Err(count(Direction::Output, layer.outputs.len(), results.len().to_string()));
    }
    for (output, result) in results.iter().enumerate() {
        context.check_declared(output, *result)?;
    }
    Ok(results)
}

/// Adds the ops of a row with one result.
fn run(row: &Row, layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    match row.map {
        Map::Rounding(_) if is_integer(layer.data_type(0)) => Ok(layer.inputs[0]),
        Map::Unary(kind) | Map::Rounding(kind) => {
            layer.steps.emit_declared(kind, &[], &[layer.inputs[0]], layer.data_type(0))
        }
        Map::Predicate(kind) => layer.steps.emit_declared(kind, &[], &[layer.inputs[0]], DataType::Boolean),
        Map::Binary(kind) => {
            let ([a, b], attr) = shapes::pair(layer)?;
            layer.steps.pair(kind, &[attr], a, b)
        }
        Map::Comparison(kind) => {
            let (pair, attr) = shapes::pair(layer)?;
            compare(layer, kind, &pair, attr)
        }
        Map::Logic(kind) => {
            let (pair, attr) = shapes::pair(layer)?;
            layer.steps.emit_declared(kind, &[attr], &pair, DataType::Boolean)
        }
        Map::Reduction(reduction) => rows::reduce(layer, reduction),
        Map::Formula(_) if !is_float(layer.data_type(0)) => {
            Err(Fault::of_type(layer.port(0), layer.data_type(0), FLOATS))
        }
        Map::Formula(formula) | Map::OfNumber(formula) => {
            let x = layer.inputs[0];
            formula(&mut layer.steps, x)
        }
        Map::By(function) => function(layer),
        // Its results are those of the layer.
        Map::Several(function) => Ok(function(layer)?[0]),
    }
}

/// A comparison; of truth values too.
fn compare(
    layer: &mut Context<'_, '_>,
    kind: OpKind,
    pair: &[TensorId],
    attr: (Attr, AttrValue),
) -> Result<TensorId, Fault> {
    if layer.data_type(0) != DataType::Boolean {
        return layer.steps.emit_declared(kind, &[attr], pair, DataType::Boolean);
    }
    match kind {
        K::NotEqual => layer.steps.emit_declared(K::LogicalXor, &[attr], pair, DataType::Boolean),
        K::Equal => {
            let differ = layer.steps.emit_declared(K::LogicalXor, &[attr], pair, DataType::Boolean)?;
            layer.steps.emit_declared(K::LogicalNot, &[], &[differ], DataType::Boolean)
        }
        _ => Err(Fault::of_type(layer.port(0), DataType::Boolean, "a numeric type")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_order_and_say_what_they_take() {
        let names: Vec<&str> = ROWS.iter().map(|row| row.names[0]).collect();
        assert!(names.is_sorted(), "{names:?}");
        assert!(ROWS.iter().all(|row| row.least <= row.inputs.len() && row.least > 0));
    }
}
