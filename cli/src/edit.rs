//! Edits of a graph by options: other types, attributes, kinds and properties.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail, ensure};
use sterna::reference;
use sterna::{
    Attr, AttrRow, AttrType, AttrValue, DataType, FpMath, FpMathMode, Graph, LogicalTensor, Op, OpId, OpKind,
    Property, Schema, TensorId,
};
use sterna_import::Constant;

use crate::named::{Named, splits};
use crate::synonyms::{self, Synonym};
use crate::words::{did_you_mean, listed, plain};

/// The word for an attribute that is taken away, and for the kind of an op that is.
const UNDEF: &str = "undef";

/// Reads `NAME=TYPE`, or a type for all floating-point data.
pub(crate) fn type_edit(text: &str) -> Result<Named<DataType>, String> {
    if text.contains('=') {
        return Named::parse(text, "TYPE or NAME=TYPE", data_type);
    }
    let data_type = data_type(text)?;
    match FLOATS.contains(&data_type) {
        true => Ok(Named::Alone(data_type)),
        false => {
            Err(format!("for all tensors the type is one of f32, bf16 and f16; name one as NAME={data_type}"))
        }
    }
}

/// The types that an edit of all tensors replaces, and may give.
const FLOATS: [DataType; 3] = [DataType::F32, DataType::Bf16, DataType::F16];

/// A type by its name here or elsewhere.
pub(crate) fn data_type(name: &str) -> Result<DataType, String> {
    let names = || DataType::ALL.iter().map(|data_type| data_type.name()).filter(|name| *name != UNDEF);
    synonyms::data_type(name).filter(|data_type| *data_type != DataType::Undef).ok_or_else(|| {
        let hint = did_you_mean(name, names());
        format!("no type is called {name:?}; there are {}{hint}", listed(names().map(str::to_owned)))
    })
}

/// Another value of an attribute; none takes the attribute away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AttrEdit {
    pub(crate) attr: String,
    pub(crate) value: Option<String>,
}

/// Reads `OP.ATTRIBUTE=VALUE`.
pub(crate) fn attr_edit(text: &str) -> Result<Named<AttrEdit>, String> {
    let form = "OP.ATTRIBUTE=VALUE, such as 3.transpose_b=true";
    let split = |(left, value): (&str, &str)| match left.rsplit_once('.') {
        Some((op, attr)) if !op.is_empty() && !attr.is_empty() => {
            let value = (value != UNDEF).then(|| value.to_owned());
            Some((op.to_owned(), AttrEdit { attr: attr.into(), value }))
        }
        _ => None,
    };
    Named::of(splits(text).filter_map(split)).ok_or_else(|| format!("write it as {form}"))
}

/// Reads `OP=KIND`; no kind takes the op away.
pub(crate) fn kind_edit(text: &str) -> Result<Named<Option<OpKind>>, String> {
    Named::parse(text, "OP=KIND, such as 0=Maximum", kind)
}

/// A kind by its name here or elsewhere; none for the word that takes an op away.
pub(crate) fn kind(name: &str) -> Result<Option<OpKind>, String> {
    if name == UNDEF {
        return Ok(None);
    }
    match synonyms::op(name) {
        Some(Synonym::Kind(kind)) => Ok(Some(kind)),
        Some(Synonym::Ops(ops)) => Err(format!("no op kind is called {name:?}; it is written as {ops}")),
        None => {
            let hint = did_you_mean(name, OpKind::ALL.iter().map(|kind| kind.name()));
            Err(format!("no op kind is called {name:?}{hint}; `sterna ops` lists them all"))
        }
    }
}

/// A property by its name.
pub(crate) fn property(name: &str) -> Result<Property, String> {
    name.parse().map_err(|_| {
        let hint = did_you_mean(name, Property::ALL.iter().map(|property| property.name()));
        format!("no property is called {name:?}; there are undef, variable, constant and host_scalar{hint}")
    })
}

/// A floating-point math mode such as `bf16`, or `bf16:true` if it covers integers too.
pub(crate) fn fpmath(text: &str) -> Result<FpMath, String> {
    let (mode, apply_to_int) = text.split_once(':').unwrap_or((text, "false"));
    // A mode of a type goes by the names of the type as well.
    let of_type = synonyms::data_type(mode).and_then(|data_type| data_type.name().parse().ok());
    let mode = of_type.map_or_else(|| mode.parse::<FpMathMode>(), Ok).map_err(|_| {
        let modes = FpMathMode::ALL.iter().map(|mode| mode.name());
        format!("no math mode is called {mode:?}; there are {}", listed(modes.map(str::to_owned)))
    })?;
    match truth(apply_to_int) {
        Some(apply_to_int) => Ok(FpMath::new(mode).apply_to_int(apply_to_int)),
        None => Err(format!("{apply_to_int:?} is neither true nor false")),
    }
}

fn truth(text: &str) -> Option<bool> {
    match text {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    }
}

/// The edits of one graph.
#[derive(Debug, Clone, Default)]
pub(crate) struct Edits {
    pub(crate) types: Vec<(TensorId, DataType)>,
    /// The type of all floating-point data.
    pub(crate) all: Option<DataType>,
    /// The values of attributes, as text.
    pub(crate) attrs: Vec<(OpId, String, Option<String>)>,
    pub(crate) kinds: Vec<(OpId, Option<OpKind>)>,
    pub(crate) properties: Vec<(TensorId, Property)>,
    pub(crate) fpmath: Option<FpMath>,
}

/// A graph after edits, and what may have other shapes than before.
pub(crate) struct Edited {
    pub(crate) graph: Graph,
    pub(crate) ops: HashSet<OpId>,
}

impl Edits {
    fn is_empty(&self) -> bool {
        self.types.is_empty()
            && self.all.is_none()
            && self.attrs.is_empty()
            && self.kinds.is_empty()
            && self.properties.is_empty()
            && self.fpmath.is_none()
    }

    /// Edits a graph; the constants of a model follow their types. Tensors that get other shapes have none
    /// for now, since an attribute may go with the new ones alone.
    pub(crate) fn apply(
        &self,
        graph: Graph,
        constants: &mut BTreeMap<TensorId, Constant>,
        reshaped: &HashSet<TensorId>,
    ) -> Result<Edited> {
        let mut ops = HashSet::new();
        if self.is_empty() {
            return Ok(Edited { graph, ops });
        }
        let bypass = self.bypass(&graph)?;
        let types = self.types(&graph)?;
        let properties: HashMap<TensorId, Property> = self.properties.iter().copied().collect();
        // The tensors by id as their producers or first consumers describe them.
        let mut known: HashMap<TensorId, &LogicalTensor> = HashMap::new();
        for op in graph.ops() {
            known.extend(op.outputs().iter().map(|tensor| (tensor.id(), tensor)));
        }
        for op in graph.ops() {
            for tensor in op.inputs() {
                known.entry(tensor.id()).or_insert(tensor);
            }
        }
        let tensor = |tensor: &LogicalTensor| -> Result<LogicalTensor> {
            let mut tensor = tensor;
            // Ops that follow each other may all be taken away.
            for _ in 0..=bypass.len() {
                match bypass.get(&tensor.id()).and_then(|id| known.get(id)) {
                    Some(source) => tensor = source,
                    None => break,
                }
            }
            let id = tensor.id();
            let data_type = types.get(&id).copied().unwrap_or(tensor.data_type());
            let property = properties.get(&id).copied().unwrap_or(tensor.property());
            let edited = match reshaped.contains(&id) {
                true => LogicalTensor::unknown(id, data_type),
                false => {
                    let (dims, layout) = (tensor.partial_dims(), tensor.layout().clone());
                    LogicalTensor::with_layout(id, data_type, dims.as_deref(), layout)?
                }
            };
            Ok(edited.with_property(property)?)
        };
        let mut edited = Graph::new();
        edited.set_fpmath(self.fpmath.unwrap_or(graph.fpmath()))?;
        for op in graph.ops() {
            let kind = match self.kinds.iter().find(|(id, _)| *id == op.id()) {
                Some((_, None)) => continue,
                Some((_, Some(kind))) => *kind,
                None => op.kind(),
            };
            let attrs = self.attrs(op, kind)?;
            let is_rewired = op.inputs().iter().any(|input| bypass.contains_key(&input.id()));
            if kind != op.kind() || is_rewired || self.attrs.iter().any(|(id, ..)| *id == op.id()) {
                ops.insert(op.id());
            }
            let mut other = Op::new(op.id(), kind).named(op.name());
            for (attr, value) in attrs {
                other = other.attr(attr, value);
            }
            for input in op.inputs() {
                other = other.input(tensor(input)?);
            }
            for output in op.outputs() {
                other = other.output(tensor(output)?);
            }
            edited.add_op(other).context("the graph cannot be edited so")?;
        }
        edited.finalize().context("the graph cannot be edited so")?;
        for (id, value) in constants {
            if let Some(&data_type) = types.get(id) {
                *value = cast(value, data_type)
                    .with_context(|| format!("the value of constant tensor {id} cannot be {data_type}"))?;
            }
        }
        Ok(Edited { graph: edited, ops })
    }

    /// For the output of each op that is taken away, the input that takes its place: its only one, or else
    /// the only one that another op computes.
    fn bypass(&self, graph: &Graph) -> Result<HashMap<TensorId, TensorId>> {
        let produced: HashSet<TensorId> =
            graph.ops().iter().flat_map(Op::outputs).map(LogicalTensor::id).collect();
        let mut bypass = HashMap::new();
        for op in graph.ops().iter().filter(|op| self.kinds.contains(&(op.id(), None))) {
            let inputs: Vec<TensorId> = op.inputs().iter().map(LogicalTensor::id).collect();
            let computed: Vec<TensorId> = inputs.iter().copied().filter(|id| produced.contains(id)).collect();
            let what = format!("{} (op {}) cannot be taken away", op.kind(), op.id());
            let [output] = op.outputs() else {
                bail!("{what}: it has {} outputs, and an op of one can be", op.outputs().len());
            };
            let input = match (&inputs[..], &computed[..]) {
                (&[input], _) | (_, &[input]) => input,
                (_, computed) => {
                    bail!(
                        "{what}: other ops compute {} of its {} inputs, and one must be left in its place",
                        computed.len(),
                        op.inputs().len()
                    )
                }
            };
            bypass.insert(output.id(), input);
        }
        Ok(bypass)
    }

    /// The new type of each tensor that gets one.
    fn types(&self, graph: &Graph) -> Result<HashMap<TensorId, DataType>> {
        let mut types = HashMap::new();
        if let Some(data_type) = self.all {
            for op in graph.ops() {
                ensure!(
                    !CONVERTS.contains(&op.kind()),
                    "--type {data_type} cannot be for all tensors: the types of {} (op {}) differ on \
                     purpose; name each tensor, as in --type NAME={data_type}",
                    op.kind(),
                    op.id()
                );
                types.extend(main_floats(op).map(|tensor| (tensor.id(), data_type)));
            }
        }
        types.extend(self.types.iter().copied());
        Ok(types)
    }

    /// The attributes of an op under a kind.
    fn attrs(&self, op: &Op, kind: OpKind) -> Result<Vec<(Attr, AttrValue)>> {
        let rows = Schema::of(kind).attributes;
        let row = |attr: Attr| rows.iter().find(|row| row.attr == attr);
        // An attribute that another kind does not have means nothing there.
        let kept = op.attrs().filter(|(attr, _)| kind == op.kind() || row(*attr).is_some());
        let mut attrs: Vec<(Attr, AttrValue)> = kept.map(|(attr, value)| (attr, value.clone())).collect();
        for (_, name, text) in self.attrs.iter().filter(|(id, ..)| *id == op.id()) {
            let what = format!("{kind} (op {})", op.id());
            let Some(row) = rows.iter().find(|row| row.attr.name() == name) else {
                let names = || rows.iter().map(|row| row.attr.name());
                let hint = did_you_mean(name, names());
                match rows.is_empty() {
                    true => bail!("--attr: {what} has no attributes, and none called {:?}", plain(name)),
                    false => bail!(
                        "--attr: {what} has no attribute {:?}; there are {}{hint}",
                        plain(name),
                        listed(names().map(str::to_owned))
                    ),
                }
            };
            attrs.retain(|(attr, _)| *attr != row.attr);
            if let Some(text) = text {
                let value = value(row, text).with_context(|| format!("--attr: {what}, attribute {name}"))?;
                attrs.push((row.attr, value));
            }
        }
        self.match_channels(op.id(), &mut attrs);
        Ok(attrs)
    }

    /// Makes scales of channels as many as the zero points, or the other way round, if only one of the two is
    /// edited.
    fn match_channels(&self, op: OpId, attrs: &mut [(Attr, AttrValue)]) {
        let found = |attrs: &[(Attr, AttrValue)], wanted| attrs.iter().position(|(attr, _)| *attr == wanted);
        let is_edited =
            |attr: Attr| self.attrs.iter().any(|(id, name, _)| *id == op && name.as_str() == attr.name());
        let (edited, other) = match (is_edited(Attr::Scales), is_edited(Attr::Zps)) {
            (true, false) => (Attr::Scales, Attr::Zps),
            (false, true) => (Attr::Zps, Attr::Scales),
            _ => return,
        };
        let is_of_channels =
            found(attrs, Attr::Qtype).is_some_and(|at| attrs[at].1 == AttrValue::from("per_channel"));
        if let (true, Some(edited), Some(other)) = (is_of_channels, found(attrs, edited), found(attrs, other))
        {
            let count = match &attrs[other].1 {
                AttrValue::F32s(scales) => scales.len(),
                AttrValue::S64s(points) => points.len(),
                _ => return,
            };
            if let Some(value) = over_and_over(&attrs[edited].1, count) {
                attrs[edited].1 = value;
            }
        }
    }
}

/// The ops between different types.
const CONVERTS: [OpKind; 6] = [
    OpKind::TypeCast,
    OpKind::Cast,
    OpKind::Quantize,
    OpKind::Dequantize,
    OpKind::DynamicQuantize,
    OpKind::DynamicDequantize,
];

/// The tensors of an op that hold its floating-point data: those of the type variables of its first such
/// input, of its other operand and of its first output.
/// Scales and shifts of norms, probabilities and the like have variables of their own, and keep their types.
fn main_floats(op: &Op) -> impl Iterator<Item = &LogicalTensor> {
    let schema = Schema::of(op.kind());
    let variable = |ports: &'static [sterna::Port], index: usize| {
        ports.get(index).or(ports.last()).map(|port| port.type_variable)
    };
    let inputs =
        op.inputs().iter().enumerate().map(move |(index, tensor)| (variable(schema.inputs, index), tensor));
    let outputs =
        op.outputs().iter().enumerate().map(move |(index, tensor)| (variable(schema.outputs, index), tensor));
    let floats = inputs.chain(outputs).filter(|(_, tensor)| FLOATS.contains(&tensor.data_type()));
    let main = floats.clone().next().and_then(|(variable, _)| variable);
    let operand = schema.inputs.iter().find(|port| port.name == "src_1").map(|port| port.type_variable);
    let result = variable(schema.outputs, 0);
    floats.filter(move |(of, _)| [main, operand, result].contains(of)).map(|(_, tensor)| tensor)
}

/// The value of an attribute from its text.
fn value(row: &AttrRow, text: &str) -> Result<AttrValue> {
    let no = |needed: &str| anyhow!("{:?} is no {needed}", plain(text));
    let value = match row.value_type {
        AttrType::Bool => AttrValue::Bool(truth(text).ok_or_else(|| no("truth value; write true or false"))?),
        AttrType::S64 => AttrValue::S64(text.parse().map_err(|_| no("whole number"))?),
        AttrType::F32 => AttrValue::F32(text.parse().map_err(|_| no("number"))?),
        AttrType::String => AttrValue::String(text.into()),
        AttrType::S64s => AttrValue::S64s(list(text).ok_or_else(|| no("list of whole numbers such as 1x2"))?),
        AttrType::F32s => AttrValue::F32s(list(text).ok_or_else(|| no("list of numbers such as 0.5x2"))?),
    };
    if let AttrValue::String(word) = &value
        && !row.allowed.is_empty()
        && !row.allowed.contains(&&**word)
    {
        let hint = did_you_mean(word, row.allowed.iter().copied());
        bail!("{:?} is none of {}{hint}", plain(word), row.allowed.join(", "));
    }
    Ok(value)
}

/// Numbers with `x` or commas between them, in brackets or not.
fn list<T: FromStr>(text: &str) -> Option<Vec<T>> {
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if inner.is_empty() {
        return Some(Vec::new());
    }
    inner.split(['x', ',']).map(|number| number.trim().parse().ok()).collect()
}

/// A list of so many numbers: those of a list over and over.
pub(crate) fn over_and_over(value: &AttrValue, count: usize) -> Option<AttrValue> {
    match value {
        AttrValue::F32s(list) if !list.is_empty() => {
            Some(AttrValue::F32s(list.iter().copied().cycle().take(count).collect()))
        }
        AttrValue::S64s(list) if !list.is_empty() => {
            Some(AttrValue::S64s(list.iter().copied().cycle().take(count).collect()))
        }
        _ => None,
    }
}

/// A value in another floating-point type.
fn cast(value: &Constant, data_type: DataType) -> Result<Constant> {
    if value.data_type() == data_type {
        return Ok(value.clone());
    }
    let tensor = |id, data_type| LogicalTensor::strided(id, data_type, value.dims());
    let op = Op::new(0, OpKind::Cast).input(tensor(0, value.data_type())?).output(tensor(1, data_type)?);
    reference::supports(&op)?;
    let cast = reference::run(&op, &[value.to_value()?])?.pop();
    cast.map(Constant::from).context("a cast gives a value")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_attributes_are_read_by_their_types() {
        let row = |value_type, allowed| AttrRow {
            attr: Attr::Axis,
            value_type,
            required: false,
            default: None,
            allowed,
        };
        let rows = [
            (AttrType::Bool, "1", Some(AttrValue::Bool(true))),
            (AttrType::Bool, "yes", None),
            (AttrType::S64, "-3", Some(AttrValue::S64(-3))),
            (AttrType::S64, "3.5", None),
            (AttrType::F32, "1e-5", Some(AttrValue::F32(1e-5))),
            (AttrType::S64s, "2x-1x3", Some(AttrValue::S64s(vec![2, -1, 3]))),
            (AttrType::S64s, "[2, 3]", Some(AttrValue::S64s(vec![2, 3]))),
            (AttrType::S64s, "[]", Some(AttrValue::S64s(vec![]))),
            (AttrType::S64s, "2x", None),
            (AttrType::F32s, "0.5x2", Some(AttrValue::F32s(vec![0.5, 2.0]))),
            (AttrType::String, "none", Some(AttrValue::String("none".into()))),
            (AttrType::String, "nun", None),
        ];
        let wrong = rows.iter().filter(|(value_type, text, expected)| {
            let allowed: &[&str] = if *value_type == AttrType::String { &["none", "numpy"] } else { &[] };
            value(&row(*value_type, allowed), text).ok() != *expected
        });
        let wrong: Vec<_> = wrong.collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
