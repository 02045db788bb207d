//! The table of layer types and their ops. A new type is a new row.

mod compose;
mod shapes;

use sterna::reference::Value;
use sterna::{
    Attr, AttrValue, AutoBroadcast, DataType, Direction, Error as Refusal, OpFault, OpKind, TensorId,
};

use super::types::Element;
use super::xml::Layer;
use crate::builder::{Builder, is_known};
use crate::compose::{self as steps, is_integer};
use crate::error::{Braced, Fault, PortRef};

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
    /// Anything else.
    By(fn(&mut Context<'_, '_>) -> Result<TensorId, Fault>),
}

const fn input(name: &'static str, class: Class) -> Input {
    Input { name, class }
}

const DATA: &[Input] = &[input("data", Plain)];
const TRUTH: &[Input] = &[input("data", Truth)];
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
    Row { names, inputs, least: inputs.len(), attributes, map }
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

/// The types that are mapped, by name.
const ROWS: &[Row] = &[
    unary(&["Abs"], Map::Unary(K::Abs)),
    binary(&["Add"], K::Add),
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
    row(&["Convert"], DATA, &["destination_type"], Map::By(compose::convert)),
    row(&["ConvertLike"], &[input("data", Plain), input("like", Plain)], &[], Map::By(compose::convert_like)),
    unary(&["Cos"], Map::Unary(K::Cos)),
    row(&["Divide"], PAIR, &["auto_broadcast", "axis", AXIS, "m_pythondiv"], Map::By(compose::divide)),
    row(&["Elu"], DATA, &["alpha"], Map::By(compose::elu)),
    comparison(&["Equal"], K::Equal),
    unary(&["Exp"], Map::Unary(K::Exp)),
    unary(&["Floor"], Map::Rounding(K::Floor)),
    binary(&["FloorMod"], K::Modulo),
    row(&["Gelu"], DATA, &["approximation_mode"], Map::By(compose::gelu)),
    comparison(&["Greater"], K::Greater),
    comparison(&["GreaterEqual"], K::GreaterEqual),
    unary(&["HSigmoid"], Map::By(compose::hsigmoid)),
    unary(&["HSwish"], Map::Unary(K::HardSwish)),
    row(
        &["HardSigmoid"],
        &[input("data", Plain), input("alpha", Plain), input("beta", Plain)],
        &[],
        Map::By(compose::hard_sigmoid),
    ),
    unary(&["IsFinite"], Map::Question(K::IsFinite)),
    row(&["IsInf"], DATA, &["detect_negative", "detect_positive"], Map::By(compose::is_inf)),
    unary(&["IsNaN"], Map::Question(K::IsNaN)),
    comparison(&["Less"], K::Less),
    comparison(&["LessEqual"], K::LessEqual),
    unary(&["Log"], Map::Unary(K::Log)),
    logic(&["LogicalAnd"], K::LogicalAnd),
    row(&["LogicalNot"], TRUTH, &[], Map::Unary(K::LogicalNot)),
    logic(&["LogicalOr"], K::LogicalOr),
    logic(&["LogicalXor"], K::LogicalXor),
    binary(&["Maximum"], K::Maximum),
    binary(&["Minimum"], K::Minimum),
    unary(&["Mish"], Map::Unary(K::Mish)),
    binary(&["Multiply"], K::Multiply),
    unary(&["Negative"], Map::Unary(K::Negative)),
    comparison(&["NotEqual"], K::NotEqual),
    row(
        &["PReLU", "PRelu", "Prelu"],
        &[input("data", Plain), input("slope", Plain)],
        &[],
        Map::By(compose::prelu),
    ),
    row(&["Power"], PAIR, BROADCAST, Map::By(compose::power)),
    row(
        &["Range"],
        &[input("start", Plain), input("stop", Plain), input("step", Plain)],
        &["output_type"],
        Map::By(shapes::range),
    ),
    unary(&["ReLU", "Relu"], Map::By(compose::relu)),
    row(
        &["Reshape"],
        &[input("data", Plain), input("shape", Plain)],
        &["special_zero"],
        Map::By(shapes::reshape),
    ),
    row(&["Round"], DATA, &["mode"], Map::By(compose::round)),
    row(
        &["Select"],
        &[input("cond", Truth), input("then", Plain), input("else", Plain)],
        BROADCAST,
        Map::By(compose::select),
    ),
    row(&["ShapeOf"], DATA, &["output_type"], Map::By(shapes::shape_of)),
    unary(&["Sigmoid"], Map::Unary(K::Sigmoid)),
    unary(&["Sin"], Map::Unary(K::Sin)),
    unary(&["SoftPlus"], Map::Unary(K::SoftPlus)),
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
    binary(&["Subtract"], K::Subtract),
    Row {
        least: 1,
        ..row(&["Swish"], &[input("data", Plain), input("beta", Plain)], &[], Map::By(compose::swish))
    },
    unary(&["Tanh", "TanH"], Map::Unary(K::Tanh)),
    row(&["Unsqueeze"], &[input("data", Plain), input("axes", Plain)], &[], Map::By(shapes::unsqueeze)),
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

/// The result of a layer.
pub(super) fn map(
    layer: &Layer,
    builder: &mut Builder<'_>,
    inputs: Vec<TensorId>,
    shapes_hold: bool,
) -> Result<TensorId, Fault> {
    let row = row_of(layer)?;
    let count = |direction, given, needed| Fault::PortCount { direction, given, needed };
    if !(row.least..=row.inputs.len()).contains(&inputs.len()) {
        let needed = match row.least == row.inputs.len() {
            true => row.least.to_string(),
            false => format!("{} to {}", row.least, row.inputs.len()),
        };
        return Err(count(Direction::Input, inputs.len(), needed));
    }
    if layer.outputs.len() != 1 {
        return Err(count(Direction::Output, layer.outputs.len(), "1".into()));
    }
    if let Some((attribute, _)) = layer.data.iter().find(|(name, _)| !row.attributes.contains(&&**name)) {
        return Err(Fault::UnknownAttribute { attribute: attribute.clone() });
    }
    let opset = opset(layer)?;
    let mut context = Context { layer, builder, inputs, shapes_hold, row, opset };
    let result = context.run().map_err(|fault| context.named(fault))?;
    context.check_declared(result)?;
    Ok(result)
}

impl Context<'_, '_> {
    fn run(&mut self) -> Result<TensorId, Fault> {
        match self.row.map {
            Map::Unary(kind) => self.unary(kind),
            Map::Rounding(_) if is_integer(self.data_type(0)) => Ok(self.inputs[0]),
            Map::Rounding(kind) => self.unary(kind),
            Map::Question(kind) => self.emit(kind, &[], &[self.inputs[0]], DataType::Boolean),
            Map::Binary(kind) => {
                let (pair, attr) = self.pair()?;
                self.emit(kind, &[attr], &pair, self.data_type(0))
            }
            Map::Comparison(kind) => {
                let (pair, attr) = self.pair()?;
                self.compare(kind, &pair, attr)
            }
            Map::Logic(kind) => {
                let (pair, attr) = self.pair()?;
                self.emit(kind, &[attr], &pair, DataType::Boolean)
            }
            Map::By(function) => function(self),
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

    /// The output, for messages.
    fn output(&self) -> PortRef {
        PortRef { direction: Direction::Output, id: self.layer.outputs[0].id, name: "" }
    }

    /// Adds an op, or works it out.
    pub(super) fn emit(
        &mut self,
        kind: OpKind,
        attrs: &[(Attr, AttrValue)],
        inputs: &[TensorId],
        data_type: DataType,
    ) -> Result<TensorId, Fault> {
        let declared = self.declared_dims().map(<[i64]>::to_vec);
        self.builder.op(&self.layer.name, kind, attrs, inputs, data_type, declared.as_deref())
    }

    /// The dims of the output in the file, if it gives any.
    fn declared_dims(&self) -> Option<&[i64]> {
        let dims = &*self.layer.outputs[0].dims;
        let ranks_known = self.inputs.iter().all(|&input| self.builder.dims(input).is_some());
        // A port without dims is a scalar, or of a rank that is not known.
        (self.shapes_hold && (!dims.is_empty() || ranks_known)).then_some(dims)
    }

    /// A number of rank 0 beside an input of a type: made by an op where the number has an exact form in f32,
    /// else a constant.
    pub(super) fn number(&mut self, data_type: DataType, number: f64) -> Result<TensorId, Fault> {
        let tensor = steps::number(self.builder, data_type, number)?;
        tensor.ok_or_else(|| Fault::of_type(self.port(0), data_type, "a type that holds the number"))
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

    /// Compares the file's description of the output with the derived one.
    fn check_declared(&self, result: TensorId) -> Result<(), Fault> {
        let contradiction = |declared, found| Err(Fault::Declared { port: self.output(), declared, found });
        let found = self.builder.data_type(result);
        match self.layer.outputs[0].element {
            Some(element) if element != Element::Known(found) => {
                return contradiction(element.words(), found.to_string());
            }
            _ => {}
        }
        match (self.declared_dims(), self.builder.known_dims(result)) {
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
