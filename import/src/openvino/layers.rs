//! The table of layer types and their ops. A new type is a new row.

mod compose;
mod context;
mod layer_row;
mod lookups;
mod recurrent;
mod rows;
mod sampled;
mod shapes;
mod windows;

use sterna::{Attr, AttrValue, DataType, Direction, OpKind, TensorId};

use self::context::{AXIS, Context, FLOATS};
pub(super) use self::context::{Class, Input, Trusted};
pub(super) use self::layer_row::LayerRow;
use self::layer_row::{
    BROADCAST, DATA, DATA_AXES, LayerMap, PAIR, binary, comparison, input, logic, reduction, row, unary,
};
use super::xml::Layer;
use crate::builder::Builder;
use crate::compose::{is_float, is_integer};
use crate::error::Fault;
use crate::steps::Reduction;

use Class::{Truth, Value as Plain};
use OpKind as K;

const TRUTH: &[Input] = &[input("data", Truth)];
const GATHER: &[Input] = &[input("data", Plain), input("indices", Plain), input("axis", Plain)];
const SCATTERED_ALONG: &[Input] =
    &[input("data", Plain), input("indices", Plain), input("updates", Plain), input("axis", Plain)];
const POOLED_TO: &[Input] = &[input("data", Plain), input("output_shape", Plain)];
const CONVOLVED: &[Input] = &[input("data", Plain), input("filters", Plain)];
const TRANSPOSED: &[Input] = &[input("data", Plain), input("filters", Plain), input("output_shape", Plain)];
const WINDOWS: &[&str] = &["strides", "pads_begin", "pads_end", "dilations", "auto_pad"];
const WINDOWS_BACK: &[&str] =
    &["strides", "pads_begin", "pads_end", "dilations", "auto_pad", "output_padding"];

/// The types that are mapped, by name.
const ROWS: &[LayerRow] = &[
    unary(&["Abs"], LayerMap::OfNumber(|steps, x| steps.signed(K::Abs, x))),
    unary(&["Acos"], LayerMap::Formula(|steps, x| steps.acos(x))),
    unary(&["Acosh"], LayerMap::Formula(|steps, x| steps.acosh(x))),
    row(&["AdaptiveAvgPool"], POOLED_TO, &[], LayerMap::By(|layer| windows::adaptive_pool(layer, false))),
    LayerRow {
        left_out: 1,
        ..row(
            &["AdaptiveMaxPool"],
            POOLED_TO,
            &["index_element_type"],
            LayerMap::Several(|layer| Ok(vec![windows::adaptive_pool(layer, true)?])),
        )
    },
    binary(&["Add"], K::Add),
    unary(&["Asin"], LayerMap::Formula(|steps, x| steps.asin(x))),
    unary(&["Asinh"], LayerMap::Formula(|steps, x| steps.asinh(x))),
    unary(&["Atan"], LayerMap::Formula(|steps, x| steps.atan(x))),
    unary(&["Atanh"], LayerMap::Formula(|steps, x| steps.atanh(x))),
    row(
        &["AvgPool"],
        DATA,
        &["strides", "pads_begin", "pads_end", "kernel", "exclude-pad", "rounding_type", "auto_pad"],
        LayerMap::By(windows::mean),
    ),
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
        LayerMap::By(rows::batch_norm),
    ),
    row(&["BitwiseAnd"], PAIR, BROADCAST, LayerMap::By(|layer| compose::bitwise(layer, K::LogicalAnd))),
    row(&["BitwiseNot"], DATA, &[], LayerMap::By(compose::bitwise_not)),
    row(&["BitwiseOr"], PAIR, BROADCAST, LayerMap::By(|layer| compose::bitwise(layer, K::LogicalOr))),
    row(&["BitwiseXor"], PAIR, BROADCAST, LayerMap::By(|layer| compose::bitwise(layer, K::LogicalXor))),
    LayerRow {
        least: 2,
        ..row(
            &["Broadcast"],
            &[input("data", Plain), input("target_shape", Plain), input("axes_mapping", Plain)],
            &["mode"],
            LayerMap::By(shapes::broadcast),
        )
    },
    row(
        &["Bucketize"],
        &[input("data", Plain), input("buckets", Plain)],
        &["output_type", "with_right_bound"],
        LayerMap::By(compose::bucketize),
    ),
    unary(&["Ceiling"], LayerMap::Rounding(K::Ceil)),
    row(&["Clamp"], DATA, &["min", "max"], LayerMap::By(compose::clamp)),
    row(
        &["Col2Im"],
        &[input("data", Plain), input("output_size", Plain), input("kernel_size", Plain)],
        &["strides", "dilations", "pads_begin", "pads_end"],
        LayerMap::By(sampled::col_to_im),
    ),
    LayerRow { variadic: true, ..row(&["Concat"], DATA, &["axis"], LayerMap::By(shapes::concat)) },
    row(&["Convert"], DATA, &["destination_type"], LayerMap::By(compose::convert)),
    row(
        &["ConvertLike"],
        &[input("data", Plain), input("like", Plain)],
        &[],
        LayerMap::By(compose::convert_like),
    ),
    row(&["Convolution"], CONVOLVED, WINDOWS, LayerMap::By(windows::convolution)),
    LayerRow {
        least: 2,
        ..row(
            &["ConvolutionBackpropData"],
            TRANSPOSED,
            WINDOWS_BACK,
            LayerMap::By(windows::transposed_convolution),
        )
    },
    unary(&["Cos"], LayerMap::Unary(K::Cos)),
    unary(&["Cosh"], LayerMap::Formula(|steps, x| steps.hyperbolic(x, false))),
    row(
        &["CumSum"],
        &[input("data", Plain), input("axis", Plain)],
        &["exclusive", "reverse"],
        LayerMap::By(shapes::running_sum),
    ),
    row(&["DepthToSpace"], DATA, &["mode", "block_size"], LayerMap::By(shapes::depth_to_space)),
    row(&["Divide"], PAIR, &["auto_broadcast", "axis", AXIS, "m_pythondiv"], LayerMap::By(compose::divide)),
    LayerRow { variadic: true, ..row(&["Einsum"], DATA, &["equation"], LayerMap::By(rows::einsum)) },
    row(&["Elu"], DATA, &["alpha"], LayerMap::By(compose::elu)),
    comparison(&["Equal"], K::Equal),
    unary(&["Erf"], LayerMap::Formula(|steps, x| steps.erf(x))),
    unary(&["Exp"], LayerMap::Unary(K::Exp)),
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
        LayerMap::By(rows::fake_quantize),
    ),
    unary(&["Floor"], LayerMap::Rounding(K::Floor)),
    binary(&["FloorMod"], K::Modulo),
    recurrent::along_steps(&["GRUCell"], recurrent::OF_STEP, |layer| recurrent::gru(layer, false)),
    recurrent::along_steps(&["GRUSequence"], recurrent::OF_SEQUENCE, |layer| recurrent::gru(layer, true)),
    row(&["Gather"], GATHER, &["batch_dims"], LayerMap::By(lookups::gather)),
    row(
        &["GatherElements"],
        &[input("data", Plain), input("indices", Plain)],
        &["axis"],
        LayerMap::By(lookups::gather_elements),
    ),
    row(
        &["GatherND"],
        &[input("data", Plain), input("indices", Plain)],
        &["batch_dims"],
        LayerMap::By(lookups::gather_nd),
    ),
    row(&["Gelu"], DATA, &["approximation_mode"], LayerMap::By(compose::gelu)),
    comparison(&["Greater"], K::Greater),
    comparison(&["GreaterEqual"], K::GreaterEqual),
    row(
        &["GridSample"],
        &[input("data", Plain), input("grid", Plain)],
        &["align_corners", "mode", "padding_mode"],
        LayerMap::By(sampled::grid_sample),
    ),
    row(&["GroupConvolution"], CONVOLVED, WINDOWS, LayerMap::By(windows::group_convolution)),
    LayerRow {
        least: 2,
        ..row(
            &["GroupConvolutionBackpropData"],
            TRANSPOSED,
            WINDOWS_BACK,
            LayerMap::By(windows::transposed_group_convolution),
        )
    },
    row(
        &["GroupNormalization"],
        &[input("data", Plain), input("scale", Plain), input("bias", Plain)],
        &["num_groups", "epsilon"],
        LayerMap::By(rows::group_norm),
    ),
    unary(&["HSigmoid"], LayerMap::By(compose::hsigmoid)),
    unary(&["HSwish"], LayerMap::Unary(K::HardSwish)),
    row(
        &["HardSigmoid"],
        &[input("data", Plain), input("alpha", Plain), input("beta", Plain)],
        &[],
        LayerMap::By(compose::hard_sigmoid),
    ),
    unary(&["Identity"], LayerMap::By(shapes::identity)),
    LayerRow {
        least: 2,
        ..row(
            &["Interpolate"],
            &[input("data", Plain), input("sizes", Plain), input("scales", Plain), input("axes", Plain)],
            &[
                "mode",
                "shape_calculation_mode",
                "coordinate_transformation_mode",
                "nearest_mode",
                "antialias",
                "pads_begin",
                "pads_end",
                "cube_coeff",
            ],
            LayerMap::By(windows::interpolate),
        )
    },
    unary(&["IsFinite"], LayerMap::Predicate(K::IsFinite)),
    row(&["IsInf"], DATA, &["detect_negative", "detect_positive"], LayerMap::By(compose::is_inf)),
    unary(&["IsNaN"], LayerMap::Predicate(K::IsNaN)),
    row(&["LRN"], DATA_AXES, &["alpha", "beta", "bias", "size"], LayerMap::By(windows::local_response)),
    recurrent::along_steps(&["LSTMCell"], recurrent::OF_LSTM_CELL, |layer| recurrent::lstm(layer, false)),
    recurrent::along_steps(&["LSTMSequence"], recurrent::OF_LSTM, |layer| recurrent::lstm(layer, true)),
    comparison(&["Less"], K::Less),
    comparison(&["LessEqual"], K::LessEqual),
    unary(&["Log"], LayerMap::Unary(K::Log)),
    row(&["LogSoftmax"], DATA, &["axis"], LayerMap::By(rows::log_softmax)),
    logic(&["LogicalAnd"], K::LogicalAnd),
    row(&["LogicalNot"], TRUTH, &[], LayerMap::Unary(K::LogicalNot)),
    logic(&["LogicalOr"], K::LogicalOr),
    logic(&["LogicalXor"], K::LogicalXor),
    LayerRow {
        least: 1,
        ..row(
            &["MVN"],
            DATA_AXES,
            &["across_channels", "normalize_variance", "eps", "eps_mode"],
            LayerMap::By(rows::mvn),
        )
    },
    row(&["MatMul"], PAIR, &["transpose_a", "transpose_b"], LayerMap::By(rows::matmul)),
    // The places of the elements are its second output.
    LayerRow {
        left_out: 1,
        ..row(
            &["MaxPool"],
            DATA,
            &[
                "strides",
                "pads_begin",
                "pads_end",
                "kernel",
                "dilations",
                "rounding_type",
                "auto_pad",
                "index_element_type",
                "axis",
            ],
            LayerMap::Several(windows::largest),
        )
    },
    binary(&["Maximum"], K::Maximum),
    binary(&["Minimum"], K::Minimum),
    unary(&["Mish"], LayerMap::Unary(K::Mish)),
    row(&["Mod"], PAIR, BROADCAST, LayerMap::By(compose::modulo)),
    binary(&["Multiply"], K::Multiply),
    unary(&["Negative"], LayerMap::OfNumber(|steps, x| steps.signed(K::Negative, x))),
    row(&["NormalizeL2"], DATA_AXES, &["eps", "eps_mode"], LayerMap::By(rows::normalized)),
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
        LayerMap::By(shapes::one_hot),
    ),
    row(
        &["PReLU", "PRelu", "Prelu"],
        &[input("data", Plain), input("slope", Plain)],
        &[],
        LayerMap::By(compose::prelu),
    ),
    LayerRow {
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
            LayerMap::By(shapes::pad),
        )
    },
    row(&["Power"], PAIR, BROADCAST, LayerMap::By(compose::power)),
    recurrent::along_steps(&["RNNCell"], recurrent::OF_STEP, |layer| recurrent::plain(layer, false)),
    recurrent::along_steps(&["RNNSequence"], recurrent::OF_SEQUENCE, |layer| recurrent::plain(layer, true)),
    row(
        &["Range"],
        &[input("start", Plain), input("stop", Plain), input("step", Plain)],
        &["output_type"],
        LayerMap::By(shapes::range),
    ),
    unary(&["ReLU", "Relu"], LayerMap::By(compose::relu)),
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
        LayerMap::By(shapes::reshape),
    ),
    row(&["Reverse"], DATA_AXES, &["mode"], LayerMap::By(shapes::reverse)),
    row(
        &["ReverseSequence"],
        &[input("data", Plain), input("seq_lengths", Plain)],
        &["batch_axis", "seq_axis"],
        LayerMap::By(shapes::reverse_sequence),
    ),
    row(
        &["Roll"],
        &[input("data", Plain), input("shift", Plain), input("axes", Plain)],
        &[],
        LayerMap::By(shapes::roll),
    ),
    row(&["Round"], DATA, &["mode"], LayerMap::By(compose::round)),
    LayerRow {
        least: 3,
        ..row(
            &["ScaledDotProductAttention"],
            &[
                input("query", Plain),
                input("key", Plain),
                input("value", Plain),
                input("attention_mask", Plain),
                input("scale", Plain),
                input("sink", Plain),
            ],
            &["causal"],
            LayerMap::By(rows::attention),
        )
    },
    row(
        &["ScatterElementsUpdate"],
        SCATTERED_ALONG,
        &["reduction", "use_init_val"],
        LayerMap::By(lookups::scatter_elements),
    ),
    row(
        &["ScatterNDUpdate"],
        &[input("data", Plain), input("indices", Plain), input("updates", Plain)],
        &["reduction"],
        LayerMap::By(lookups::scatter_nd),
    ),
    row(&["ScatterUpdate"], SCATTERED_ALONG, &[], LayerMap::By(lookups::scatter_slices)),
    row(
        &["Select"],
        &[input("cond", Truth), input("then", Plain), input("else", Plain)],
        BROADCAST,
        LayerMap::By(compose::select),
    ),
    row(
        &["Selu"],
        &[input("data", Plain), input("alpha", Plain), input("lambda", Plain)],
        &[],
        LayerMap::By(compose::selu),
    ),
    row(&["ShapeOf"], DATA, &["output_type"], LayerMap::By(shapes::shape_of)),
    unary(&["Sigmoid"], LayerMap::Unary(K::Sigmoid)),
    unary(&["Sign"], LayerMap::OfNumber(|steps, x| steps.sign(x))),
    unary(&["Sin"], LayerMap::Unary(K::Sin)),
    unary(&["Sinh"], LayerMap::Formula(|steps, x| steps.hyperbolic(x, true))),
    LayerRow {
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
            LayerMap::By(shapes::slice),
        )
    },
    row(&["SoftMax", "Softmax"], DATA, &["axis"], LayerMap::By(rows::softmax)),
    unary(&["SoftPlus"], LayerMap::Unary(K::SoftPlus)),
    unary(&["SoftSign"], LayerMap::Formula(|steps, x| steps.softsign(x))),
    row(&["SpaceToDepth"], DATA, &["mode", "block_size"], LayerMap::By(shapes::space_to_depth)),
    row(
        &["Split"],
        &[input("data", Plain), input("axis", Plain)],
        &["num_splits"],
        LayerMap::Several(shapes::split),
    ),
    unary(&["Sqrt"], LayerMap::Unary(K::Sqrt)),
    binary(&["SquaredDifference"], K::SquaredDifference),
    LayerRow {
        least: 1,
        ..row(
            &["Squeeze"],
            &[input("data", Plain), input("axes", Plain)],
            &["allow_axis_skip"],
            LayerMap::By(shapes::squeeze),
        )
    },
    LayerRow {
        least: 3,
        ..row(
            &["StridedSlice"],
            &[input("data", Plain), input("begin", Plain), input("end", Plain), input("stride", Plain)],
            &["begin_mask", "end_mask", "new_axis_mask", "shrink_axis_mask", "ellipsis_mask"],
            LayerMap::By(shapes::strided_slice),
        )
    },
    binary(&["Subtract"], K::Subtract),
    LayerRow {
        least: 1,
        ..row(&["Swish"], &[input("data", Plain), input("beta", Plain)], &[], LayerMap::By(compose::swish))
    },
    unary(&["Tan"], LayerMap::Formula(|steps, x| steps.tan(x))),
    unary(&["Tanh", "TanH"], LayerMap::Unary(K::Tanh)),
    row(&["Tile"], &[input("data", Plain), input("repeats", Plain)], &[], LayerMap::By(shapes::tile)),
    row(
        &["TopK"],
        &[input("data", Plain), input("k", Plain)],
        &["axis", "mode", "sort", "index_element_type", "stable"],
        LayerMap::Several(lookups::top_k),
    ),
    row(&["Transpose"], &[input("data", Plain), input("order", Plain)], &[], LayerMap::By(shapes::transpose)),
    row(&["Unsqueeze"], &[input("data", Plain), input("axes", Plain)], &[], LayerMap::By(shapes::unsqueeze)),
    row(
        &["VariadicSplit"],
        &[input("data", Plain), input("axis", Plain), input("lengths", Plain)],
        &[],
        LayerMap::Several(shapes::variadic_split),
    ),
];

/// The types that are mapped, by their first names.
pub(super) fn mapped() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.names[0])
}

/// The row of a layer.
pub(super) fn row_of(layer: &Layer) -> Result<&'static LayerRow, Fault> {
    let place = ROWS.partition_point(|row| row.names[0] < &*layer.kind);
    let by_first = ROWS.get(place).filter(|row| row.names[0] == layer.kind);
    by_first
        .or_else(|| ROWS.iter().find(|row| row.names.contains(&&*layer.kind)))
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
        None => {
            let (first, last) = (OPSETS.start(), OPSETS.end());
            let needed = format!("an op of the sets opset{first} to opset{last}");
            // Text that is no version may be of a file that is no model, of which an error shows nothing.
            let digits = version.strip_prefix("opset").filter(|rest| rest.len() < 4);
            let number = digits.filter(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()));
            let given = number.map_or_else(|| "another set".into(), |number| format!("opset{number}"));
            Err(Fault::Version { given, needed })
        }
    }
}

/// The results of a layer, one for each of its outputs.
pub(super) fn map(
    layer: &Layer,
    builder: &mut Builder<'_>,
    inputs: Vec<TensorId>,
    trusted: Trusted,
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
    let several = matches!(row.map, LayerMap::Several(_));
    if layer.outputs.is_empty() || (layer.outputs.len() > 1 && !several) {
        return Err(count(Direction::Output, layer.outputs.len(), "1".into()));
    }
    if let Some((attribute, _)) = layer.data.iter().find(|(name, _)| !row.attributes.contains(&&**name)) {
        return Err(Fault::UnknownAttribute { attribute: attribute.clone() });
    }
    let opset = opset(layer)?;
    let mut context = Context::new(layer, builder, inputs, trusted, row.inputs, opset);
    let results = match row.map {
        LayerMap::Several(function) => function(&mut context),
        _ => run(row, &mut context).map(|result| vec![result]),
    };
    let results = results.map_err(|fault| context.named(fault))?;
    let count_given = results.len()..=results.len() + row.left_out;
    if !count_given.contains(&layer.outputs.len()) {
        return Err(count(Direction::Output, layer.outputs.len(), results.len().to_string()));
    }
    for (output, result) in results.iter().enumerate() {
        context.check_declared(output, *result)?;
    }
    Ok(results)
}

/// Adds the ops of a row with one result.
fn run(row: &LayerRow, layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    match row.map {
        LayerMap::Rounding(_) if is_integer(layer.data_type(0)) => Ok(layer.inputs[0]),
        LayerMap::Unary(kind) | LayerMap::Rounding(kind) => {
            layer.steps.emit_declared(kind, &[], &[layer.inputs[0]], layer.data_type(0))
        }
        LayerMap::Predicate(kind) => {
            layer.steps.emit_declared(kind, &[], &[layer.inputs[0]], DataType::Boolean)
        }
        LayerMap::Binary(kind) => {
            let ([a, b], attr) = shapes::pair(layer)?;
            layer.steps.pair(kind, &[attr], a, b)
        }
        LayerMap::Comparison(kind) => {
            let (pair, attr) = shapes::pair(layer)?;
            compare(layer, kind, &pair, attr)
        }
        LayerMap::Logic(kind) => {
            let (pair, attr) = shapes::pair(layer)?;
            layer.steps.emit_declared(kind, &[attr], &pair, DataType::Boolean)
        }
        LayerMap::Reduction(reduction) => rows::reduce(layer, reduction),
        LayerMap::Formula(_) if !is_float(layer.data_type(0)) => {
            Err(Fault::of_type(layer.port(0), layer.data_type(0), FLOATS))
        }
        LayerMap::Formula(formula) | LayerMap::OfNumber(formula) => {
            let x = layer.inputs[0];
            formula(&mut layer.steps, x)
        }
        LayerMap::By(function) => function(layer),
        // Its results are those of the layer.
        LayerMap::Several(function) => Ok(function(layer)?[0]),
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
    use std::collections::BTreeSet;

    use super::*;
    use crate::dictionary::compare;
    use crate::openvino::types;

    #[test]
    fn rows_are_in_order_and_say_what_they_take() {
        let names: Vec<&str> = ROWS.iter().map(|row| row.names[0]).collect();
        assert!(names.is_sorted(), "{names:?}");
        assert!(ROWS.iter().all(|row| row.least <= row.inputs.len() && row.least > 0));
    }

    /// Elements, values of attributes, and what a file should not have.
    const OTHER_WORDS: &[&str] = &[
        "<!--",
        "<!DOCTYPE",
        "<![CDATA[",
        "<data ",
        "<dim>-1</dim>",
        "<edge from-layer=",
        "<layer",
        "<port id=",
        "</layer>",
        "&lt;",
        "...",
        "\\x00",
        "approximation_mode=\\\"erf\\\"",
        "approximation_mode=\\\"tanh\\\"",
        "auto_broadcast=\\\"none\\\"",
        "auto_pad=\\\"same_upper\\\"",
        "auto_pad=\\\"valid\\\"",
        "auto_broadcast=\\\"pdpd\\\"",
        "eps_mode=\\\"inside_sqrt\\\"",
        "eps_mode=\\\"outside_sqrt\\\"",
        "mode=\\\"bidirectional\\\"",
        "mode=\\\"blocks_first\\\"",
        "mode=\\\"depth_first\\\"",
        "mode=\\\"explicit\\\"",
        "mode=\\\"half_away_from_zero\\\"",
        "mode=\\\"index\\\"",
        "mode=\\\"mask\\\"",
        "mode=\\\"max\\\"",
        "mode=\\\"min\\\"",
        "negative_indices_mode=\\\"normalize\\\"",
        "offset=\\\"0\\\"",
        "pad_mode=\\\"edge\\\"",
        "pad_mode=\\\"reflect\\\"",
        "pad_mode=\\\"symmetric\\\"",
        "shape=\\\"...\\\"",
        "shape=\\\"2,?\\\"",
        "size=\\\"4\\\"",
        "version=\\\"opset1\\\"",
        "version=\\\"opset8\\\"",
    ];

    #[test]
    fn the_dictionary_of_the_fuzzer_has_every_word() {
        let valued = |name: &str, value: &str| format!("{name}=\\\"{value}\\\"");
        let mut words: BTreeSet<String> = OTHER_WORDS.iter().map(|word| (*word).to_owned()).collect();
        let kinds = ROWS.iter().flat_map(|row| row.names).chain(&["Parameter", "Const", "Result"]);
        words.extend(kinds.map(|kind| valued("type", kind)));
        let attributes = ROWS.iter().flat_map(|row| row.attributes);
        words.extend(attributes.map(|name| format!("{name}=\\\"")));
        words
            .extend(types::names().flat_map(|[name, precision]| {
                [valued("element_type", name), valued("precision", precision)]
            }));
        let seeded: Vec<&str> = crate::openvino::layer_types().collect();
        compare("openvino", words, ROWS.iter().map(|row| row.names[0]), &seeded);
    }
}
