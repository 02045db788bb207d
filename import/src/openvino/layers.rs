//! The table of layer types and their ops. A new type is a new row.

mod compose;
mod rows;
mod shapes;

use sterna::reference::Value;
use sterna::{
    Attr, AttrValue, AutoBroadcast, DataType, Direction, Error as Refusal, OpFault, OpKind, TensorId,
};

use super::types::Element;
use super::xml::Layer;
use crate::builder::{Builder, is_known};
use crate::compose::{is_float, is_integer};
use crate::error::{Braced, Fault, PortRef};
use crate::steps::{Formula, Reduction, Steps};

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

/// An input of a layer.
pub(super) struct Input {
    /// Its name in the specification.
    pub(super) name: &'static str,
    pub(super) class: Class,
}

/// The contents of an input if a lone layer does not tell them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Truth values.
    Truth,
    /// Numbers of the type that such inputs share.
    Value,
}

/// The way from a layer to ops.
enum Map {
    /// An op of one input and its type, without attributes.
    Unary(OpKind),
    /// As `Unary` on floating point; on integers nothing changes.
    Rounding(OpKind),
    /// A question to a floating-point number.
    Question(OpKind),
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
/// The name of the attribute `axis` of a broadcast in files that OpenVINO writes.
const AXIS: &str = "auto_broadcast.auto_broadcast_axis";

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
    unary(&["IsFinite"], Map::Question(K::IsFinite)),
    row(&["IsInf"], DATA, &["detect_negative", "detect_positive"], Map::By(compose::is_inf)),
    unary(&["IsNaN"], Map::Question(K::IsNaN)),
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

const FLOATS: &str = "f32, bf16, f16";

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

/// A layer that is being mapped.
pub(super) struct Context<'a, 'b> {
    pub(super) layer: &'a Layer,
    pub(super) builder: &'a mut Builder<'b>,
    /// The tensors at its inputs.
    pub(super) inputs: Vec<TensorId>,
    /// Whether the shapes in the file hold: not where inputs were given others.
    pub(super) shapes_hold: bool,
    row: &'static Row,
    opset: Option<u32>,
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
    let mut context = Context { layer, builder, inputs, shapes_hold, row, opset };
    let results = match row.map {
        Map::Several(function) => function(&mut context),
        _ => context.run().map(|result| vec![result]),
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

impl<'a, 'b> Context<'a, 'b> {
    /// Where the layer adds its ops.
    pub(super) fn steps(&mut self) -> Steps<'_, 'b> {
        let declared = self.declared_dims(0);
        Steps { builder: self.builder, name: &self.layer.name, declared }
    }

    fn run(&mut self) -> Result<TensorId, Fault> {
        match self.row.map {
            Map::Unary(kind) => self.unary(kind),
            Map::Rounding(_) if is_integer(self.data_type(0)) => Ok(self.inputs[0]),
            Map::Rounding(kind) => self.unary(kind),
            Map::Question(kind) => self.emit(kind, &[], &[self.inputs[0]], DataType::Boolean),
            Map::Binary(kind) => {
                let ([a, b], attr) = self.pair()?;
                self.steps().pair(kind, &[attr], a, b)
            }
            Map::Comparison(kind) => {
                let (pair, attr) = self.pair()?;
                self.compare(kind, &pair, attr)
            }
            Map::Logic(kind) => {
                let (pair, attr) = self.pair()?;
                self.emit(kind, &[attr], &pair, DataType::Boolean)
            }
            Map::Reduction(reduction) => rows::reduce(self, reduction),
            Map::Formula(_) if !is_float(self.data_type(0)) => {
                Err(Fault::of_type(self.port(0), self.data_type(0), FLOATS))
            }
            Map::Formula(formula) | Map::OfNumber(formula) => {
                let x = self.inputs[0];
                formula(&mut self.steps(), x)
            }
            Map::By(function) => function(self),
            // Its results are those of the layer.
            Map::Several(function) => Ok(function(self)?[0]),
        }
    }

    fn unary(&mut self, kind: OpKind) -> Result<TensorId, Fault> {
        self.emit(kind, &[], &[self.inputs[0]], self.data_type(0))
    }

    /// A comparison; of truth values too.
    fn compare(
        &mut self,
        kind: OpKind,
        pair: &[TensorId],
        attr: (Attr, AttrValue),
    ) -> Result<TensorId, Fault> {
        if self.data_type(0) != DataType::Boolean {
            return self.emit(kind, &[attr], pair, DataType::Boolean);
        }
        match kind {
            K::NotEqual => self.emit(K::LogicalXor, &[attr], pair, DataType::Boolean),
            K::Equal => {
                let differ = self.emit(K::LogicalXor, &[attr], pair, DataType::Boolean)?;
                self.emit(K::LogicalNot, &[], &[differ], DataType::Boolean)
            }
            _ => Err(Fault::of_type(self.port(0), DataType::Boolean, "a numeric type")),
        }
    }

    /// The type of an input.
    pub(super) fn data_type(&self, input: usize) -> DataType {
        self.builder.data_type(self.inputs[input])
    }

    /// An input, for messages.
    pub(super) fn port(&self, input: usize) -> PortRef {
        let id = self.layer.inputs.get(input).map_or(input as u64, |port| port.id);
        PortRef {
            direction: Direction::Input,
            id,
            name: self.row.inputs.get(input).map_or("", |row| row.name),
        }
    }

    /// An output, for messages.
    fn output(&self, output: usize) -> PortRef {
        PortRef { direction: Direction::Output, id: self.layer.outputs[output].id, name: "" }
    }

    /// Adds an op, or works it out.
    pub(super) fn emit(
        &mut self,
        kind: OpKind,
        attrs: &[(Attr, AttrValue)],
        inputs: &[TensorId],
        data_type: DataType,
    ) -> Result<TensorId, Fault> {
        self.steps().emit_declared(kind, attrs, inputs, data_type)
    }

    /// The dims of an output in the file, if it gives any.
    fn declared_dims(&self, output: usize) -> Option<&'a [i64]> {
        let dims = &*self.layer.outputs[output].dims;
        let ranks_known = self.inputs.iter().all(|&input| self.builder.dims(input).is_some());
        // A port without dims is a scalar, or of a rank that is not known.
        (self.shapes_hold && (!dims.is_empty() || ranks_known)).then_some(dims)
    }

    /// A number of rank 0 beside an input of a type: made by an op where the number has an exact form in f32,
    /// else a constant.
    pub(super) fn number(&mut self, data_type: DataType, number: f64) -> Result<TensorId, Fault> {
        self.steps().number(data_type, number)
    }

    /// The two operands of one type, as `auto_broadcast` lays them beside each other, and that attribute.
    fn pair(&mut self) -> Result<([TensorId; 2], (Attr, AttrValue)), Fault> {
        let (a, b) = (self.data_type(0), self.data_type(1));
        if a != b {
            return Err(Fault::of_type(self.port(1), b, format!("{a}, the type of the other input")));
        }
        let pair = [self.inputs[0], self.inputs[1]];
        let mode = self.broadcast_mode()?;
        let (pair, mode) = match mode {
            AutoBroadcast::Pdpd => (shapes::as_numpy(self, pair)?, AutoBroadcast::Numpy),
            _ => (pair, mode),
        };
        Ok((pair, (Attr::AutoBroadcast, mode.into())))
    }

    /// The attribute `auto_broadcast`.
    pub(super) fn broadcast_mode(&self) -> Result<AutoBroadcast, Fault> {
        let words =
            [("none", AutoBroadcast::None), ("numpy", AutoBroadcast::Numpy), ("pdpd", AutoBroadcast::Pdpd)];
        self.word("auto_broadcast", &words, AutoBroadcast::Numpy)
    }

    /// The attribute `axis` of `auto_broadcast`.
    pub(super) fn broadcast_axis(&self) -> Result<i64, Fault> {
        let name = if self.layer.attr(AXIS).is_some() { AXIS } else { "axis" };
        match self.layer.attr(name) {
            None => Ok(-1),
            Some(text) => {
                let axis = text.trim().parse().ok();
                axis.ok_or_else(|| Fault::of_attribute(name, "a whole number from −1 on"))
            }
        }
    }

    /// An attribute that is one of some words, in upper or lower case.
    pub(super) fn word<T: Copy>(&self, name: &str, words: &[(&str, T)], default: T) -> Result<T, Fault> {
        let Some(text) = self.layer.attr(name) else { return Ok(default) };
        match words.iter().find(|(word, _)| word.eq_ignore_ascii_case(text)) {
            Some((_, value)) => Ok(*value),
            None => {
                let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                Err(Fault::of_attribute(name, words.join(", ")))
            }
        }
    }

    /// An attribute that is true or false.
    pub(super) fn truth(&self, name: &str, default: bool) -> Result<bool, Fault> {
        self.word(name, &[("true", true), ("false", false), ("1", true), ("0", false)], default)
    }

    /// An attribute that is a number.
    pub(super) fn float(&self, name: &'static str) -> Result<f64, Fault> {
        let text = self.layer.attr(name).ok_or(Fault::MissingAttribute { attribute: name })?;
        text.trim().parse().map_err(|_| Fault::of_attribute(name, "a number"))
    }

    /// An attribute that is a whole number.
    pub(super) fn int(&self, name: &'static str, default: Option<i64>) -> Result<i64, Fault> {
        match (self.layer.attr(name), default) {
            (Some(text), _) => text.trim().parse().map_err(|_| Fault::of_attribute(name, "a whole number")),
            (None, Some(default)) => Ok(default),
            (None, None) => Err(Fault::MissingAttribute { attribute: name }),
        }
    }

    /// An attribute that is a list of zeros and ones, as long as `count` or shorter.
    pub(super) fn flags(&self, name: &'static str, count: usize) -> Result<Vec<bool>, Fault> {
        let text = self.layer.attr(name).unwrap_or("").trim();
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let mut flags: Vec<bool> = Vec::new();
        for part in parts {
            flags.push(match part {
                "0" => false,
                "1" => true,
                _ => return Err(Fault::of_attribute(name, "zeros and ones")),
            });
        }
        flags.resize(count.max(flags.len()), false);
        Ok(flags)
    }

    /// An attribute that is a type; `None` if it is missing.
    pub(super) fn element(&self, name: &str) -> Result<Option<DataType>, Fault> {
        let Some(text) = self.layer.attr(name) else { return Ok(None) };
        match Element::named(text) {
            Element::Known(data_type) => Ok(Some(data_type)),
            Element::Other(_) | Element::Unknown => {
                Err(Fault::of_attribute(name, "a type whose elements are whole bytes"))
            }
        }
    }

    /// The value of an input.
    pub(super) fn constant(&self, input: usize, needed: &str) -> Result<&Value, Fault> {
        let value = self.builder.value(self.inputs[input]);
        value.ok_or_else(|| Fault::NotConstant { port: self.port(input), needed: needed.into() })
    }

    /// The whole shape of an input.
    pub(super) fn known_dims(&self, input: usize, needed: &str) -> Result<Vec<i64>, Fault> {
        let dims = self.builder.known_dims(self.inputs[input]);
        let fault = || Fault::UnknownShape { port: self.port(input), needed: needed.into() };
        dims.map(<[i64]>::to_vec).ok_or_else(fault)
    }

    /// The rank of an input.
    pub(super) fn rank(&self, input: usize) -> Result<usize, Fault> {
        let rank = self.builder.dims(self.inputs[input]).map(<[i64]>::len);
        rank.ok_or_else(|| Fault::UnknownShape { port: self.port(input), needed: "a known rank".into() })
    }

    /// An input whose shape does not suit.
    pub(super) fn unfit(&self, input: usize, needed: impl Into<String>) -> Fault {
        let given = self.builder.dims(self.inputs[input]).unwrap_or(&[]).into();
        Fault::Shape { port: self.port(input), given, needed: needed.into() }
    }

    /// A constant whose value does not suit.
    pub(super) fn bad_value(&self, input: usize, needed: impl Into<String>) -> Fault {
        Fault::Value { port: self.port(input), needed: needed.into() }
    }

    /// Names the port of the layer, where the op that it becomes is refused for the type of one.
    fn named(&self, fault: Fault) -> Fault {
        let Fault::Op(Refusal::Op { fault: refused, .. }) = &fault else { return fault };
        let (tensor, needed) = match refused {
            OpFault::Type { port, allowed, .. } => {
                let names: Vec<&str> = allowed.iter().map(|data_type| data_type.name()).collect();
                (port.tensor, names.join(", "))
            }
            OpFault::TypesDiffer { port, expected, .. } => (port.tensor, expected.to_string()),
            _ => return fault,
        };
        match self.inputs.iter().position(|&input| input == tensor) {
            Some(input) => Fault::of_type(self.port(input), self.data_type(input), needed),
            None => fault,
        }
    }

    /// Compares the file's description of an output with the derived one.
    fn check_declared(&self, output: usize, result: TensorId) -> Result<(), Fault> {
        let contradiction =
            |declared, found| Err(Fault::Declared { port: self.output(output), declared, found });
        let found = self.builder.data_type(result);
        match self.layer.outputs[output].element {
            Some(element) if element != Element::Known(found) => {
                return contradiction(element.words(), found.to_string());
            }
            _ => {}
        }
        match (self.declared_dims(output), self.builder.known_dims(result)) {
            (Some(declared), Some(dims)) if is_known(declared) && declared != dims => {
                contradiction(Braced(declared).to_string(), Braced(dims).to_string())
            }
            _ => Ok(()),
        }
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
