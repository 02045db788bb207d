//! A model under construction: tensors, ops and constants, and the finished graph.

mod dequantisations;
mod fills;
pub(crate) mod finished;
mod folded_norms;
mod gelu;
pub(crate) mod kept;
pub(crate) mod reading;
pub(crate) mod walk;

use std::collections::{BTreeMap, BTreeSet};

use sterna::reference::{self, Value};
use sterna::{
    Attr, AttrValue, DataType, Dims, Graph, LogicalTensor, Op, OpId, OpKind, Property, Schema, ShapeRule,
    TensorId,
};

use crate::constant::Constant;
use crate::dims::{UNKNOWN_DIM, is_known};
use crate::error::{Error, Fault, Limited};
use crate::limits::{Limits, Options};
use crate::names::Shown;
use crate::signature::once;
use crate::skipped::SkippedLayer;
use crate::weights;

/// A model as a graph of Sterna.
///
/// ```
/// use sterna::Policy;
/// use sterna_import::openvino;
/// let text = r#"<layer type="Exp"><input><port id="0"><dim>4</dim></port></input>
///               <output><port id="1"><dim>4</dim></port></output></layer>"#;
/// let imported = openvino::read(text, &[])?;
/// let partitions = imported.graph.partitions(Policy::Fusion)?;
/// assert_eq!((partitions.len(), partitions[0].is_supported()), (1, true));
/// assert_eq!(imported.inputs[0].names, ["data", "0"]);
/// # Ok::<(), sterna_import::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Imported {
    /// The ops, finalized. The constants of the model are inputs of property
    /// [`Constant`](sterna::Property::Constant), but for those of one number beside which ops lay others:
    /// each op that uses one has an op [`Fill`](sterna::OpKind::Fill) of its own.
    pub graph: Graph,
    /// The inputs of the model, in its order. One that no op uses is no input of the graph.
    pub inputs: Vec<Port>,
    /// The constants that are values of further inputs, by the names of these.
    /// [`Options::values`](crate::Options::values) gives others, of which what follows is worked out anew;
    /// one that ops use can also be given like an input.
    pub defaults: BTreeMap<String, LogicalTensor>,
    /// The outputs of the model, in its order.
    pub outputs: Vec<Port>,
    /// The constants that ops use, by tensor. Those of a file stay where it holds them, if they can; see
    /// [`Constant`].
    pub weights: BTreeMap<TensorId, Constant>,
    /// The model's names of its constants; one that the mapping of a layer brings along has no name.
    pub weight_names: BTreeMap<TensorId, String>,
    /// The types of the layers that became `Wildcard` ops, as the format calls them.
    pub skipped_kinds: BTreeMap<OpId, String>,
    /// The layers that became `Wildcard` ops, with all their attributes.
    pub skipped_layers: BTreeMap<OpId, SkippedLayer>,
    /// Why layers became `Wildcard` ops, if [`Options::partial`](crate::Options::partial) allows that.
    pub skipped: Vec<Error>,
}

impl Imported {
    /// The input of a name.
    ///
    /// # Errors
    ///
    /// [`Error::Name`] and [`Error::Ambiguous`].
    ///
    /// ```
    /// use sterna_import::openvino;
    /// let text = r#"<layer type="Exp">
    ///     <input><port id="0"/></input><output><port id="1"/></output></layer>"#;
    /// let imported = openvino::read(text, &[])?;
    /// assert_eq!(imported.input("data")?.tensor.rank(), Some(0));
    /// assert_eq!(imported.input("x").unwrap_err().to_string(), "no input is named `x`; there are `data`");
    /// # Ok::<(), sterna_import::Error>(())
    /// ```
    pub fn input(&self, name: &str) -> Result<&Port, Error> {
        Port::find(&self.inputs, "input", name)
    }

    /// The output of a name.
    ///
    /// # Errors
    ///
    /// [`Error::Name`] and [`Error::Ambiguous`].
    ///
    /// ```
    /// use sterna_import::openvino;
    /// let text = r#"<layer type="Exp">
    ///     <input><port id="0"/></input><output><port id="1"/></output></layer>"#;
    /// let imported = openvino::read(text, &[])?;
    /// assert_eq!(imported.output("1")?.name(), "dst");
    /// # Ok::<(), sterna_import::Error>(())
    /// ```
    pub fn output(&self, name: &str) -> Result<&Port, Error> {
        Port::find(&self.outputs, "output", name)
    }
}

/// An input or output of a model.
///
/// ```
/// use sterna_import::{Options, openvino};
/// let text = r#"<layer type="Exp"><input><port id="0"><dim>-1</dim></port></input>
///               <output><port id="1"/></output></layer>"#;
/// let imported = openvino::read(text, &[])?;
/// let port = &imported.inputs[0];
/// assert_eq!((port.name(), port.tensor.partial_dims()), ("data", Some(vec![None])));
/// # Ok::<(), sterna_import::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Port {
    /// Its names, its own first.
    pub names: Vec<String>,
    /// The tensor of the graph.
    pub tensor: LogicalTensor,
}

impl Port {
    /// Its first name; empty if it has none.
    ///
    /// ```
    /// use sterna_import::openvino;
    /// let text = r#"<layer type="Exp">
    ///     <input><port id="0"/></input><output><port id="1"/></output></layer>"#;
    /// assert_eq!(openvino::read(text, &[])?.inputs[0].name(), "data");
    /// # Ok::<(), sterna_import::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// The port of a name among several; `what` says in an error what they are. A port whose own name it is
    /// comes before others that have it among theirs.
    ///
    /// # Errors
    ///
    /// [`Error::Name`] and [`Error::Ambiguous`].
    ///
    /// ```
    /// use sterna_import::{Port, openvino};
    /// let text = r#"<layer type="Exp">
    ///     <input><port id="0"/></input><output><port id="1"/></output></layer>"#;
    /// let imported = openvino::read(text, &[])?;
    /// let both = [imported.inputs, imported.outputs].concat();
    /// assert_eq!(Port::find(&both, "tensor", "dst")?.tensor.id(), 1);
    /// # Ok::<(), sterna_import::Error>(())
    /// ```
    pub fn find<'a>(ports: &'a [Self], what: &'static str, name: &str) -> Result<&'a Self, Error> {
        let fault = |known: Vec<String>| Error::Name { what, name: Shown(name).to_string(), known };
        let listed = |ports: &[&Self]| ports.iter().map(|port| Shown(port.name()).to_string()).collect();
        // The first name of a port is its own; others may be shared.
        let own: Vec<&Self> = ports.iter().filter(|port| port.name() == name).collect();
        let any: Vec<&Self> =
            ports.iter().filter(|port| port.names.iter().any(|other| other == name)).collect();
        let first_of = |found: &[&'a Self]| match found {
            [first, rest @ ..] if rest.iter().all(|port| port.tensor.id() == first.tensor.id()) => {
                Some(*first)
            }
            _ => None,
        };
        match (first_of(&own), first_of(&any)) {
            (Some(port), _) | (None, Some(port)) => Ok(port),
            (None, None) if any.is_empty() => Err(fault(listed(&ports.iter().collect::<Vec<_>>()))),
            (None, None) => Err(Error::Ambiguous { what, name: Shown(name).to_string() }),
        }
    }
}

/// The known facts of a tensor.
#[derive(Debug, Clone)]
struct Tensor {
    data_type: DataType,
    /// `None` where not even the rank is known.
    dims: Option<Dims>,
    origin: Origin,
}

#[derive(Debug, Clone)]
enum Origin {
    /// Of an input, or of an op.
    Computed,
    /// A constant.
    Constant(Constant),
    /// A number: an op `Fill` makes it.
    Number(f32, Constant),
}

impl Tensor {
    fn value(&self) -> Option<&Constant> {
        match &self.origin {
            Origin::Computed => None,
            Origin::Constant(value) | Origin::Number(_, value) => Some(value),
        }
    }
}

/// The most bytes of operands and results of functions that are worked out when a model is read; of products,
/// times the number of terms.
const MOST_WORK: usize = 16 << 20;

/// Tensors and ops, in an order in which they can run.
pub(crate) struct Builder<'a> {
    limits: &'a Limits,
    tensors: Vec<Tensor>,
    ops: Vec<Op>,
    inputs: Vec<(Vec<String>, TensorId)>,
    outputs: Vec<(Vec<String>, TensorId)>,
    constant_bytes: usize,
    folded_bytes: usize,
    /// How often what became of a node followed from more than the facts of its inputs: from a limit, or from
    /// the ops that gave them.
    beyond_facts: usize,
    /// The results of error functions, which several ops compute, with their operands.
    erfs: BTreeMap<TensorId, TensorId>,
    /// The model's names of its constants.
    constant_names: BTreeMap<TensorId, String>,
    /// The constants that are values of inputs which may be given others, with the names of the inputs.
    defaults: BTreeMap<TensorId, String>,
    /// The layers that became `Wildcard` ops.
    skipped_layers: BTreeMap<OpId, SkippedLayer>,
    skipped: Vec<Error>,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(limits: &'a Limits) -> Self {
        Self {
            limits,
            tensors: Vec::new(),
            ops: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            constant_bytes: 0,
            folded_bytes: 0,
            beyond_facts: 0,
            erfs: BTreeMap::new(),
            constant_names: BTreeMap::new(),
            defaults: BTreeMap::new(),
            skipped_layers: BTreeMap::new(),
            skipped: Vec::new(),
        }
    }

    /// An input of the model.
    pub(crate) fn input(
        &mut self,
        names: Vec<String>,
        data_type: DataType,
        dims: Option<Dims>,
    ) -> Result<TensorId, sterna::Error> {
        let id = self.add(data_type, dims, Origin::Computed)?;
        self.inputs.push((names, id));
        Ok(id)
    }

    /// An output of the model.
    pub(crate) fn output(&mut self, names: Vec<String>, tensor: TensorId) {
        self.outputs.push((names, tensor));
    }

    /// True if an input has a name.
    fn has_input(&self, name: &str) -> bool {
        self.inputs.iter().any(|(names, _)| names.iter().any(|own| own == name))
    }

    /// The own names of the inputs.
    fn input_names(&self) -> impl Iterator<Item = &str> {
        self.inputs.iter().map(|(names, _)| names.first().map_or("", String::as_str))
    }

    /// Checks that the inputs in the options exist; `is_used` says which of the options' names were used.
    pub(crate) fn check_used(&self, options: &Options, is_used: impl Fn(&str) -> bool) -> Result<(), Error> {
        let Options { shapes, types, values, .. } = options;
        let mut names = shapes.keys().chain(types.keys()).chain(values.keys());
        match names.find(|name| !is_used(name)) {
            // A type that a file says already, or the shape of a value, needs none of the options.
            Some(name) if !self.has_input(name) => {
                let known = self.input_names().map(|name| Shown(name).to_string()).collect();
                Err(Error::Name { what: "input", name: Shown(name).to_string(), known })
            }
            _ => Ok(()),
        }
    }

    /// Counts the bytes of a constant that is stored, before it is made.
    pub(crate) fn charge_stored(&mut self, bytes: usize) -> Result<(), Fault> {
        let most = self.limits.constant_bytes;
        charge(&mut self.constant_bytes, bytes, most, Limited::ConstantBytes)
    }

    /// Counts the bytes of a constant that is computed, before it is made.
    pub(crate) fn charge_folded(&mut self, bytes: usize) -> Result<(), Fault> {
        let most = self.limits.folded_bytes;
        let charged = charge(&mut self.folded_bytes, bytes, most, Limited::FoldedBytes);
        self.beyond_facts += usize::from(charged.is_err());
        charged
    }

    /// Refuses more ops than there may be layers, where one layer becomes any number of them.
    pub(crate) fn check_ops(&self) -> Result<(), Fault> {
        let (given, most) = (self.ops.len() as u64, self.limits.layers as u64);
        if given > most { Err(Fault::Limit { what: Limited::Layers, given, most }) } else { Ok(()) }
    }

    /// A constant, whose bytes are counted.
    pub(crate) fn constant(&mut self, value: Constant) -> Result<TensorId, sterna::Error> {
        self.add(value.data_type(), Some(value.dims().into()), Origin::Constant(value))
    }

    /// Says what the model calls a tensor, which counts if it is a constant that has no name yet.
    pub(crate) fn name_constant(&mut self, id: TensorId, name: &str) {
        if !name.is_empty() && matches!(self.tensors[id.get()].origin, Origin::Constant(_)) {
            self.constant_names.entry(id).or_insert_with(|| name.to_owned());
        }
    }

    /// Says that a constant is the value of an input of the model which may be given another one.
    pub(crate) fn is_default_of(&mut self, id: TensorId, input: &str) {
        self.defaults.insert(id, input.to_owned());
    }

    /// A number of rank 0 that the mapping of a layer brings along.
    pub(crate) fn number(&mut self, value: Constant, number: f32) -> Result<TensorId, sterna::Error> {
        self.add(value.data_type(), Some(Dims::new()), Origin::Number(number, value))
    }

    pub(crate) fn data_type(&self, id: TensorId) -> DataType {
        self.tensors[id.get()].data_type
    }

    /// The dims, each known or not; `None` if the rank is unknown.
    pub(crate) fn dims(&self, id: TensorId) -> Option<&[i64]> {
        self.tensors[id.get()].dims.as_deref()
    }

    /// The dims, where all of them are known.
    pub(crate) fn known_dims(&self, id: TensorId) -> Option<&[i64]> {
        self.dims(id).filter(|dims| is_known(dims))
    }

    /// The value of a constant.
    pub(crate) fn value(&self, id: TensorId) -> Option<&Constant> {
        self.tensors[id.get()].value()
    }

    /// The op whose first result a tensor is.
    fn maker(&self, tensor: TensorId) -> Option<&Op> {
        // Ops and their results are numbered in one order.
        let place = self.ops.partition_point(|op| op.outputs()[0].id() < tensor);
        self.ops.get(place).filter(|op| op.outputs()[0].id() == tensor)
    }

    /// The input of the model of which a tensor is what places along an axis give, and these. What becomes of
    /// the node then follows from more than the facts of its inputs.
    pub(crate) fn input_behind_places(&mut self, tensor: TensorId) -> Option<(TensorId, usize, TensorId)> {
        let op = self.maker(tensor).filter(|op| op.kind() == OpKind::Gather)?;
        let [input, places] = op.inputs() else { return None };
        let axis = match (op.get_attr(Attr::Axis), op.get_attr(Attr::BatchDims)) {
            (Some(AttrValue::S64(axis)), Some(AttrValue::S64(0))) => usize::try_from(*axis).ok()?,
            _ => return None,
        };
        let (input, places) = (input.id(), places.id());
        let is_input = self.inputs.iter().any(|(_, id)| *id == input);
        self.beyond_facts += usize::from(is_input);
        is_input.then_some((input, axis, places))
    }

    /// Says that a tensor is the error function of another.
    pub(crate) fn is_erf_of(&mut self, result: TensorId, operand: TensorId) {
        self.erfs.insert(result, operand);
    }

    /// The op that makes a tensor, of which more than the facts of the tensor may be asked.
    pub(crate) fn op_behind(&mut self, tensor: TensorId) -> Option<&Op> {
        self.beyond_facts += 1;
        self.maker(tensor)
    }

    /// Adds an op of one result, or works it out where all its operands are constants.
    ///
    /// The shape of the result follows from those of the operands where all are known; else it is the one
    /// given.
    pub(crate) fn op(
        &mut self,
        name: &str,
        kind: OpKind,
        attrs: &[(Attr, AttrValue)],
        inputs: &[TensorId],
        data_type: DataType,
        otherwise: Option<&[i64]>,
    ) -> Result<TensorId, Fault> {
        Ok(self.ops(name, kind, attrs, inputs, &[data_type], otherwise)?[0])
    }

    /// Adds an op of results of some types, as [`op`](Self::op) does; the shape given is that of each.
    pub(crate) fn ops(
        &mut self,
        name: &str,
        kind: OpKind,
        attrs: &[(Attr, AttrValue)],
        inputs: &[TensorId],
        types: &[DataType],
        otherwise: Option<&[i64]>,
    ) -> Result<Vec<TensorId>, Fault> {
        let op = attrs.iter().fold(Op::new(self.ops.len(), kind).named(name), |op, (attr, value)| {
            op.attr(*attr, value.clone())
        });
        let described = inputs.iter().map(|&input| self.describe(input));
        let op = op.inputs_from(described.collect::<Result<Vec<_>, _>>()?);
        let first = self.tensors.len();
        let unknown = |(at, &data_type)| LogicalTensor::unknown(TensorId::new(first + at), data_type);
        let op = reference::checked(op.with_outputs(types.iter().enumerate().map(unknown)))?;
        let known: Option<Vec<&[i64]>> = inputs.iter().map(|&input| self.known_dims(input)).collect();
        let dims = match known {
            Some(dims) => reference::output_shapes(&op, &dims)?,
            None => {
                reference::supports(&op)?;
                match inputs {
                    // An op on elements with one input gives a result of the shape of the input.
                    [input] if Schema::of(kind).shape_rule == ShapeRule::Identity => {
                        self.dims(*input).map(|dims| vec![dims.into()])
                    }
                    _ => otherwise.map(|dims| vec![dims.into(); types.len()]),
                }
            }
        };
        if let Some(values) = self.folded(&op, inputs, dims.as_deref())? {
            return values.into_iter().map(|value| Ok(self.constant(value)?)).collect();
        }
        let (mut ids, mut outputs) = (Vec::with_capacity(types.len()), Vec::with_capacity(types.len()));
        for (at, &data_type) in types.iter().enumerate() {
            let dims = dims.as_ref().map(|dims| dims[at].clone());
            let id = self.add(data_type, dims, Origin::Computed)?;
            outputs.push(self.describe(id)?);
            ids.push(id);
        }
        self.ops.push(op.with_outputs(outputs));
        Ok(ids)
    }

    /// Adds an op `Wildcard`, which has inputs and outputs and nothing else, for a layer that is skipped.
    pub(crate) fn wildcard(
        &mut self,
        skipped: (Error, SkippedLayer),
        inputs: &[TensorId],
        outputs: &[(DataType, Option<Dims>)],
    ) -> Result<Vec<TensorId>, sterna::Error> {
        let (why, layer) = skipped;
        let mut op = Op::new(self.ops.len(), OpKind::Wildcard).named(&*layer.name);
        for &input in inputs {
            op = op.input(self.describe(input)?);
        }
        let mut ids = Vec::new();
        for (data_type, dims) in outputs {
            let id = self.add(*data_type, dims.clone(), Origin::Computed)?;
            op = op.output(self.describe(id)?);
            ids.push(id);
        }
        self.skipped_layers.insert(op.id(), layer);
        self.skipped.push(why);
        self.ops.push(op);
        Ok(ids)
    }

    /// Takes outputs that are named twice once, and lets an op `Identity` give each output that is an input
    /// of the model or a constant.
    fn give_outputs_ops(&mut self) -> Result<(), Error> {
        let outputs = std::mem::take(&mut self.outputs);
        self.outputs = once(outputs, |(names, id)| (names.first().cloned(), *id), |(names, _)| names);
        let computed = self.marked(self.ops.iter().flat_map(Op::outputs).map(LogicalTensor::id));
        for index in 0..self.outputs.len() {
            let id = self.outputs[index].1;
            // The copy of another output lies behind all others.
            if computed.get(id.get()).copied().unwrap_or(true) {
                continue;
            }
            let (source, data_type) = (self.describe(id)?, self.tensors[id.get()].data_type);
            let copy = self.add(data_type, self.tensors[id.get()].dims.clone(), Origin::Computed)?;
            let op = Op::new(self.ops.len(), OpKind::Identity).input(source).output(self.describe(copy)?);
            self.ops.push(op);
            self.outputs[index].1 = copy;
        }
        Ok(())
    }

    /// Gives ops a tensor of their own for each operand that an op `Fill` makes: a number that a mapping
    /// brings along, or a constant of one number beside other elements. A tensor that several ops share would
    /// join their partitions, or keep each of them from taking it in.
    fn numbers_apart(&mut self, ops: &mut [Op]) -> Result<(), Error> {
        let mut numbers: BTreeMap<TensorId, Option<f32>> = BTreeMap::new();
        for op in ops {
            let is_computed =
                |input: &LogicalTensor| matches!(self.tensors[input.id().get()].origin, Origin::Computed);
            if op.inputs().iter().all(is_computed) {
                continue;
            }
            let is_on_elements = fills::is_on_elements(op.kind());
            let inputs: BTreeSet<TensorId> = op.inputs().iter().map(LogicalTensor::id).collect();
            let mut apart = BTreeMap::new();
            for id in inputs {
                let (number, value) = match &self.tensors[id.get()].origin {
                    Origin::Number(number, value) => (Some(*number), value),
                    // Only a constant can be given another value.
                    Origin::Constant(value) if is_on_elements && !self.defaults.contains_key(&id) => {
                        (*numbers.entry(id).or_insert_with(|| fills::exact_number(value)), value)
                    }
                    _ => continue,
                };
                let Some(number) = number else { continue };
                let (value, dims) = (value.clone(), value.dims().into());
                let own = self.add(value.data_type(), Some(dims), Origin::Number(number, value))?;
                if let Some(name) = self.constant_names.get(&id).cloned() {
                    self.constant_names.insert(own, name);
                }
                apart.insert(id, self.describe(own)?);
            }
            if !apart.is_empty() {
                let inputs = op.inputs().iter().map(|input| apart.get(&input.id()).unwrap_or(input).clone());
                *op = renumbered(op, op.id(), inputs.collect());
            }
        }
        Ok(())
    }

    /// The ops on which outputs hang, in order.
    fn live_ops(&mut self) -> Vec<Op> {
        let mut wanted = self.marked(self.outputs.iter().map(|(_, id)| *id));
        let mut live: Vec<Op> = Vec::with_capacity(self.ops.len());
        for op in std::mem::take(&mut self.ops).into_iter().rev() {
            if op.outputs().iter().any(|output| wanted[output.id().get()]) {
                op.inputs().iter().for_each(|input| wanted[input.id().get()] = true);
                live.push(op);
            }
        }
        live.reverse();
        live
    }

    /// For each tensor, true if it is one of some.
    fn marked(&self, tensors: impl Iterator<Item = TensorId>) -> Vec<bool> {
        let mut marked = vec![false; self.tensors.len()];
        tensors.for_each(|id| marked[id.get()] = true);
        marked
    }

    fn add(
        &mut self,
        data_type: DataType,
        dims: Option<Dims>,
        origin: Origin,
    ) -> Result<TensorId, sterna::Error> {
        let id = TensorId::new(self.tensors.len());
        self.tensors.push(Tensor { data_type, dims, origin });
        // A shape that no tensor can have is refused at its first use.
        if let Err(error) = self.describe(id) {
            self.tensors.pop();
            return Err(error);
        }
        Ok(id)
    }

    /// A tensor as ops mention it.
    fn describe(&self, id: TensorId) -> Result<LogicalTensor, sterna::Error> {
        let Tensor { data_type, dims, origin } = &self.tensors[id.get()];
        let desc = match dims {
            Some(dims) if is_known(dims) => LogicalTensor::strided(id, *data_type, dims)?,
            Some(dims) => {
                let known = |&dim: &i64| Some(dim).filter(|&dim| dim != UNKNOWN_DIM);
                LogicalTensor::partial(id, *data_type, &dims.iter().map(known).collect::<Vec<_>>())?
            }
            None => LogicalTensor::unknown(id, *data_type),
        };
        match origin {
            Origin::Constant(_) => desc.with_property(Property::Constant),
            _ => Ok(desc),
        }
    }

    /// The values of an op on constants, as the reference interpreter has them, that are small enough.
    fn folded(
        &mut self,
        op: &Op,
        inputs: &[TensorId],
        shapes: Option<&[Dims]>,
    ) -> Result<Option<Vec<Constant>>, Fault> {
        let all: Option<Vec<&Constant>> = inputs.iter().map(|&input| self.value(input)).collect();
        let (Some(values), Some(shapes)) = (all.filter(|all| !all.is_empty()), shapes) else {
            return Ok(None);
        };
        let dims = &shapes[0];
        // Products read weights of few bits as they are stored.
        let is_weight = matches!(op.kind(), OpKind::Dequantize | OpKind::DynamicDequantize) && dims.len() > 1;
        if is_weight {
            return Ok(None);
        }
        let mut result = 0usize;
        for (output, dims) in op.outputs().iter().zip(shapes) {
            let bytes = weights::byte_count(output.data_type(), dims)?.unwrap_or(usize::MAX);
            result = result.saturating_add(bytes);
        }
        let operands: usize = values.iter().map(|value| value.bytes().len()).sum();
        let bytes = result.saturating_add(operands);
        // The reference interpreter takes its time.
        let depth = match op.kind() {
            OpKind::MatMul => values[0].dims().iter().max().copied(),
            OpKind::Convolution | OpKind::ConvTranspose => weights::element_count(values[1].dims()),
            _ => None,
        };
        let is_exact = reference::ulps(op) == 0 && depth.is_none();
        let work = bytes.saturating_mul(depth.map_or(1, |depth| depth as usize));
        if !is_exact && work > MOST_WORK {
            return Ok(None);
        }
        if self.folded_bytes.saturating_add(bytes) > self.limits.folded_bytes {
            self.beyond_facts += 1;
            return Ok(None);
        }
        let values: Vec<Value> = values.into_iter().map(Constant::to_value).collect::<Result<_, _>>()?;
        self.folded_bytes += bytes;
        Ok(Some(reference::run(op, &values)?.into_iter().map(Constant::from).collect()))
    }
}

fn charge(total: &mut usize, bytes: usize, most: usize, what: Limited) -> Result<(), Fault> {
    let given = total.saturating_add(bytes);
    if given > most {
        return Err(Fault::Limit { what, given: given as u64, most: most as u64 });
    }
    *total = given;
    Ok(())
}

/// The same op under another id, on other tensors.
fn renumbered(op: &Op, id: OpId, inputs: Vec<LogicalTensor>) -> Op {
    let mut same = Op::new(id, op.kind()).named(op.name());
    for (attr, value) in op.attrs() {
        same = same.attr(attr, value.clone());
    }
    same = same.inputs_from(inputs);
    op.outputs().iter().fold(same, |same, output| same.output(output.clone()))
}
