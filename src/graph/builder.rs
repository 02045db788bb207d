//! Graphs from values: ids are the library's, names are kept, and types and shapes follow at once.

mod kinds;
mod operators;
mod options;

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use self::options::OUTPUTS_OF_FLAGS;
pub use self::options::OpOptions;
use super::Graph;
use super::attention::Attention;
use super::logical_tensor::LogicalTensor;
use super::model::{CustomNode, Model, ModelPort};
use super::op::Op;
use super::resolve;
use super::row::Schema;
use super::verify::verify;
use crate::error::{Error, Result, SessionFault, ShownValue, TensorFault};
use crate::types::constant_data::ConstantData;
use crate::types::dtype::{DataType, InputElement};
use crate::types::id::{OpId, TensorId};
use crate::types::kind::{OpKind, Property};

/// Builds a graph from values. Each op is checked when it is added, against the schema of its kind and the
/// shapes of its operands, so an error comes from the line that makes it and names the values of that line.
///
/// There is a method for each op kind, called as the kind in lower case (`matmul`, `softmax`, `select`),
/// `StaticReshape` and `StaticTranspose` without their first word. A method takes the operands and the
/// attributes that the kind requires; its form that ends in `_with` takes optional operands and
/// [`OpOptions`]. [`op`](Self::op) takes any kind by its name, and gives all of its outputs.
///
/// A builder is made and used on any threads; its values belong to it.
///
/// ```
/// use sterna::{DataType, Engine, GraphBuilder, OpOptions, Session};
/// let g = GraphBuilder::new();
/// let x = g.input("x", DataType::F32, &[None, Some(2)])?;
/// let w = g.constant("w", &[2, 2], &[1.0f32, 0.0, 0.0, 2.0])?;
/// let y = g.softmax((g.matmul(x, w)? + 1.0)?, -1)?;
/// g.output("y", y)?;
/// let session = Session::new(g.build()?, &Engine::new())?;
/// let outputs = session.run(&[("x", &[[0.0f32, 0.0]])])?;
/// assert_eq!(outputs["y"].as_slice::<f32>()?, [0.5, 0.5]);
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Default)]
pub struct GraphBuilder {
    state: Mutex<BuilderState>,
}

// Nothing of the caller's runs under the lock.
impl UnwindSafe for GraphBuilder {}
impl RefUnwindSafe for GraphBuilder {}

#[derive(Debug, Default)]
struct BuilderState {
    ops: Vec<Op>,
    values: FxHashMap<TensorId, BuilderValue>,
    inputs: Vec<TensorId>,
    outputs: Vec<(String, TensorId)>,
    constants: Vec<(TensorId, ConstantData)>,
    custom: Vec<(OpId, CustomNode)>,
    next_op: usize,
    next_tensor: usize,
}

#[derive(Debug)]
struct BuilderValue {
    name: String,
    desc: LogicalTensor,
}

/// A value of a graph under construction: an input, a constant or a result of an op.
///
/// It is a name, which is copied freely. Numbers and values are added, subtracted, multiplied, divided and
/// negated with operators, each of which gives a `Result` as the methods of [`GraphBuilder`] do.
///
/// ```
/// use sterna::{DataType, GraphBuilder};
/// let g = GraphBuilder::new();
/// let x = g.input("x", DataType::F32, &[Some(2), None])?;
/// let y = ((x * 2.0)? - x)?;
/// assert_eq!((y.data_type(), y.dims()), (DataType::F32, Some(vec![Some(2), None])));
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct GraphValue<'g> {
    builder: &'g GraphBuilder,
    id: TensorId,
}

impl<'g> GraphValue<'g> {
    /// The tensor of the graph.
    #[must_use]
    pub fn id(self) -> TensorId {
        self.id
    }

    /// The description of the tensor.
    #[must_use]
    pub fn desc(self) -> LogicalTensor {
        self.builder.state.lock().values[&self.id].desc.clone()
    }

    /// The type of the elements.
    #[must_use]
    pub fn data_type(self) -> DataType {
        self.builder.state.lock().values[&self.id].desc.data_type()
    }

    /// The dims, `None` for one that is open; `None` as a whole if the rank is not known yet.
    #[must_use]
    pub fn dims(self) -> Option<Vec<Option<i64>>> {
        self.builder.state.lock().values[&self.id].desc.partial_dims()
    }

    /// The name: that of an input or constant, or else that of its op.
    #[must_use]
    pub fn name(self) -> String {
        self.builder.state.lock().values[&self.id].name.clone()
    }

    /// The same value under another name, which messages show.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        if let Some(value) = self.builder.state.lock().values.get_mut(&self.id) {
            value.name = name.into();
        }
        self
    }
}

impl fmt::Debug for GraphValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphValue").field("id", &self.id).field("name", &self.name()).finish()
    }
}

impl fmt::Debug for GraphBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("GraphBuilder").field("ops", &state.ops.len()).finish_non_exhaustive()
    }
}

impl BuilderState {
    fn shown(&self, id: TensorId) -> ShownValue {
        let BuilderValue { name, desc } = &self.values[&id];
        ShownValue { name: name.clone(), data_type: desc.data_type(), dims: desc.partial_dims() }
    }

    /// Puts a tensor in, whose id is the next one.
    fn put(&mut self, name: String, desc: LogicalTensor) -> TensorId {
        let id = desc.id();
        self.next_tensor = id.get() + 1;
        self.values.insert(id, BuilderValue { name, desc });
        id
    }

    /// The op with outputs that follow from its inputs, checked against its schema.
    fn resolved(&self, op: Op) -> Result<Op> {
        let mut op = op;
        verify(&mut op)?;
        let dims = resolve::output_dims(&op, op.inputs())?;
        let outputs =
            dims.iter().enumerate().map(|(index, dims)| resolve::resolved_output(&op, index, dims.as_ref()));
        let outputs = outputs.collect::<Result<Vec<_>>>()?;
        Ok(op.with_tensors(op.inputs().to_vec(), outputs))
    }

    /// Adds ops in an order in which they can run.
    fn add_all(&mut self, ops: &[Op]) -> Result<()> {
        ops.iter().try_for_each(|op| {
            let known = |input: &LogicalTensor| self.values.get(&input.id()).map(|value| value.desc.clone());
            let inputs =
                op.inputs().iter().map(|input| known(input).ok_or(SessionFault::NoSource(input.id())));
            let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
            self.add(op.with_tensors(inputs, op.outputs().to_vec())).map(|_| ())
        })
    }

    /// Adds an op whose outputs have the next ids.
    fn add(&mut self, op: Op) -> Result<Vec<TensorId>> {
        let op = self.resolved(op)?;
        let outputs = op.outputs().to_vec();
        let mut ids = Vec::with_capacity(outputs.len());
        for (index, desc) in outputs.into_iter().enumerate() {
            let name = if index == 0 { op.name().to_owned() } else { format!("{}.{index}", op.name()) };
            ids.push(self.put(name, desc));
        }
        self.next_op = self.next_op.max(op.id().get() + 1);
        self.ops.push(op);
        Ok(ids)
    }
}

impl GraphBuilder {
    /// A builder of an empty graph.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A builder that goes on with a model. [`value`](Self::value) finds its tensors.
    ///
    /// ```
    /// use sterna::{DataType, GraphBuilder};
    /// let g = GraphBuilder::new();
    /// let y = g.exp(g.input("x", DataType::F32, &[Some(3)])?)?.id();
    /// g.output("y", g.value(y)?)?;
    /// let more = GraphBuilder::from_model(g.build()?);
    /// let z = more.sqrt(more.value(y)?)?;
    /// more.output("z", z)?;
    /// assert_eq!(more.build()?.outputs().len(), 2);
    /// # Ok::<(), sterna::Error>(())
    /// ```
    #[must_use]
    pub fn from_model(model: Model) -> Self {
        let mut state = BuilderState::default();
        for port in model.inputs() {
            state.put(port.name().to_owned(), port.tensor.clone());
            state.inputs.push(port.tensor.id());
        }
        for op in model.graph().ops() {
            for tensor in op.inputs().iter().chain(op.outputs()) {
                let name = || BuilderValue { name: tensor.id().to_string(), desc: tensor.clone() };
                state.values.entry(tensor.id()).or_insert_with(name);
            }
        }
        let outputs = model.outputs().iter().map(|port| (port.name().to_owned(), port.tensor.id()));
        state.outputs = outputs.collect();
        state.constants = model.constants().iter().map(|(&id, data)| (id, data.clone())).collect();
        state.custom = model.custom_nodes().iter().map(|(&id, node)| (id, node.clone())).collect();
        state.next_tensor = state.values.keys().map(|id| id.get() + 1).max().unwrap_or(0);
        state.ops = model.into_graph().ops().to_vec();
        // An op that only says that a tensor is wanted outside is added again when the graph is built.
        state.ops.retain(|op| op.kind() != OpKind::End);
        state.next_op = state.ops.iter().map(|op| op.id().get() + 1).max().unwrap_or(0);
        Self { state: Mutex::new(state) }
    }

    /// An input of the graph, with `None` for a dim that is open.
    ///
    /// # Errors
    ///
    /// [`Error::Tensor`] for dims that no tensor has; [`SessionFault::SameName`].
    pub fn input(
        &self,
        name: impl Into<String>,
        data_type: DataType,
        dims: &[Option<i64>],
    ) -> Result<GraphValue<'_>> {
        let (name, mut state) = (name.into(), self.state.lock());
        if state.inputs.iter().any(|id| state.values[id].name == name) {
            return Err(SessionFault::SameName { what: "input", name }.into());
        }
        let desc = LogicalTensor::partial(state.next_tensor, data_type, dims)?;
        let id = state.put(name, desc);
        state.inputs.push(id);
        Ok(GraphValue { builder: self, id })
    }

    /// A constant of elements in row-major order, which are copied.
    ///
    /// # Errors
    ///
    /// As [`constant_data`](Self::constant_data).
    pub fn constant<T: InputElement>(
        &self,
        name: impl Into<String>,
        dims: &[i64],
        elements: &[T],
    ) -> Result<GraphValue<'_>> {
        self.constant_data(name, T::DATA_TYPE, dims, ConstantData::from_slice(elements))
    }

    /// A constant of bytes, in row-major order, which are not copied.
    ///
    /// # Errors
    ///
    /// [`Error::Tensor`] for dims that no tensor has, and if the bytes are not as many as the elements need.
    pub fn constant_data(
        &self,
        name: impl Into<String>,
        data_type: DataType,
        dims: &[i64],
        data: ConstantData,
    ) -> Result<GraphValue<'_>> {
        let mut state = self.state.lock();
        let desc = LogicalTensor::strided(state.next_tensor, data_type, dims)?;
        let (needed, given) = (desc.memory_size(), data.bytes().len());
        if needed != given {
            return Err(Error::Tensor { id: desc.id(), fault: TensorFault::ByteCount { needed, given } });
        }
        let id = state.put(name.into(), desc.with_property(Property::Constant)?);
        state.constants.push((id, data));
        Ok(GraphValue { builder: self, id })
    }

    /// A number of rank 0 in a type, which is the op `Fill`.
    ///
    /// # Errors
    ///
    /// [`Error::Build`] for a type that `Fill` does not make.
    pub fn scalar(&self, data_type: DataType, number: f32) -> Result<GraphValue<'_>> {
        self.fill(data_type, &[], number)
    }

    /// Names an output of the graph. Any value may be one, also an input or a constant.
    ///
    /// # Errors
    ///
    /// [`SessionFault::SameName`], [`SessionFault::ForeignValue`].
    pub fn output(&self, name: impl Into<String>, value: GraphValue<'_>) -> Result<()> {
        let name = name.into();
        self.check_own(&[value])?;
        let mut state = self.state.lock();
        if state.outputs.iter().any(|(other, _)| *other == name) {
            return Err(SessionFault::SameName { what: "output", name }.into());
        }
        state.outputs.push((name, value.id));
        Ok(())
    }

    /// The value of a tensor of the graph.
    ///
    /// # Errors
    ///
    /// [`SessionFault::NoSource`] if the graph has no such tensor.
    pub fn value(&self, tensor: impl Into<TensorId>) -> Result<GraphValue<'_>> {
        let id = tensor.into();
        match self.state.lock().values.contains_key(&id) {
            true => Ok(GraphValue { builder: self, id }),
            false => Err(SessionFault::NoSource(id).into()),
        }
    }

    /// Adds an op of any kind, with as many outputs as asked for; all other methods call it.
    ///
    /// The type of an output is that of the operand with which it shares a type variable; else the one that
    /// [`OpOptions::data_type`] says; else that of the first operand, s64 for places, f32 for numbers.
    ///
    /// ```
    /// use sterna::{DataType, GraphBuilder, OpKind, OpOptions};
    /// let g = GraphBuilder::new();
    /// let x = g.input("x", DataType::F32, &[Some(8), Some(64)])?;
    /// let outputs = g.op(OpKind::LayerNorm, &[x], OpOptions::new().keep_stats(true), 3)?;
    /// assert_eq!(outputs[1].dims(), Some(vec![Some(8)]));
    /// # Ok::<(), sterna::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Build`] with the error of the op: an operand, attribute or type that its schema does not
    /// allow, or shapes that contradict its rule.
    pub fn op<'g>(
        &'g self,
        kind: OpKind,
        operands: &[GraphValue<'_>],
        options: OpOptions,
        outputs: usize,
    ) -> Result<Vec<GraphValue<'g>>> {
        self.check_own(operands)?;
        let mut state = self.state.lock();
        let ids = state.made(kind, operands, options, outputs).and_then(|op| state.add(op));
        match ids {
            Ok(ids) => Ok(ids.into_iter().map(|id| GraphValue { builder: self, id }).collect()),
            Err(error) => {
                let values = operands.iter().map(|operand| state.shown(operand.id)).collect();
                Err(Error::Build { op: kind, values, error: Box::new(error) })
            }
        }
    }

    /// As [`op`](Self::op), for an op of one output.
    fn single<'g>(
        &'g self,
        kind: OpKind,
        operands: &[GraphValue<'_>],
        options: OpOptions,
    ) -> Result<GraphValue<'g>> {
        Ok(self.op(kind, operands, options, 1)?[0])
    }

    /// Adds an op of the caller's own, which a session runs by what
    /// [`SessionBuilder::op`](crate::SessionBuilder::op) gives for its name. Dims that are not said are those
    /// that the caller's op infers.
    ///
    /// # Errors
    ///
    /// [`Error::Build`] for dims that no tensor has.
    pub fn custom<'g>(
        &'g self,
        node: impl Into<CustomNode>,
        operands: &[GraphValue<'_>],
        outputs: &[(DataType, Option<&[Option<i64>]>)],
    ) -> Result<Vec<GraphValue<'g>>> {
        self.check_own(operands)?;
        let (node, mut state) = (node.into(), self.state.lock());
        let inputs: Vec<LogicalTensor> =
            operands.iter().map(|operand| state.values[&operand.id].desc.clone()).collect();
        let id = OpId::new(state.next_op);
        let mut op = Op::new(id, OpKind::Wildcard).inputs_from(inputs);
        for (index, (data_type, dims)) in outputs.iter().enumerate() {
            let tensor = state.next_tensor + index;
            op = op.output(match dims {
                Some(dims) => LogicalTensor::partial(tensor, *data_type, dims)?,
                None => LogicalTensor::unknown(tensor, *data_type),
            });
        }
        let ids = state.add(op)?;
        state.custom.push((id, node));
        Ok(ids.into_iter().map(|id| GraphValue { builder: self, id }).collect())
    }

    /// Adds masked attention. The options are those of [`Attention`], already with queries, keys, values and
    /// the result, which has the type of the queries.
    ///
    /// ```
    /// use sterna::{Causal, DataType, GraphBuilder};
    /// let g = GraphBuilder::new();
    /// let heads = |name| g.input(name, DataType::F32, &[Some(8), None, Some(64)]);
    /// let (q, k, v) = (heads("q")?, heads("k")?, heads("v")?);
    /// let y = g.attention(q, k, v, |attention| attention.causal(Causal::TopLeft))?;
    /// assert_eq!(y.dims(), Some(vec![Some(8), None, Some(64)]));
    /// # Ok::<(), sterna::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Graph::attention`].
    pub fn attention<'g>(
        &'g self,
        q: GraphValue<'_>,
        k: GraphValue<'_>,
        v: GraphValue<'_>,
        options: impl FnOnce(Attention) -> Attention,
    ) -> Result<GraphValue<'g>> {
        self.check_own(&[q, k, v])?;
        let next = self.state.lock().next_tensor;
        let dst = LogicalTensor::unknown(next, q.data_type());
        // The caller's function may look at values, for which the lock is free.
        let options = options(Attention::new(q.desc(), k.desc(), v.desc(), dst));
        let mut state = self.state.lock();
        let options = options.ids_from(state.next_op, next + 1);
        let mut graph = Graph::new();
        graph.attention(&options)?;
        let (ops, next_op) = (state.ops.len(), state.next_op);
        if let Err(error) = state.add_all(graph.ops()) {
            // The ops before the one that does not fit go again.
            state.ops.truncate(ops);
            state.values.retain(|id, _| id.get() < next);
            (state.next_op, state.next_tensor) = (next_op, next);
            return Err(error);
        }
        state.next_tensor = state.values.keys().map(|id| id.get() + 1).max().unwrap_or(0);
        Ok(GraphValue { builder: self, id: TensorId::new(next) })
    }

    /// The model. Outputs that were not named are those that no op uses, called by their values' names.
    ///
    /// # Errors
    ///
    /// As [`Model::with_ports`].
    pub fn build(self) -> Result<Model> {
        let BuilderState { ops, values, inputs, outputs, constants, custom, .. } = self.state.into_inner();
        let mut graph = Graph::new();
        ops.into_iter().try_for_each(|op| graph.add_op(op))?;
        let port = |name: &str, id: TensorId| ModelPort::new(name, values[&id].desc.clone());
        let outputs = match outputs.is_empty() {
            true => {
                graph.outputs().iter().map(|tensor| port(&values[&tensor.id()].name, tensor.id())).collect()
            }
            false => outputs.iter().map(|(name, id)| port(name, *id)).collect(),
        };
        let inputs = inputs.iter().map(|&id| port(&values[&id].name, id)).collect();
        let mut model = Model::with_ports(graph, inputs, outputs)?;
        for (id, data) in constants {
            model = model.constant(id, data);
        }
        for (id, node) in custom {
            model = model.custom(id, node);
        }
        Ok(model)
    }

    fn check_own(&self, values: &[GraphValue<'_>]) -> Result<()> {
        match values.iter().find(|value| !std::ptr::eq(value.builder, self)) {
            Some(foreign) => Err(SessionFault::ForeignValue(foreign.id).into()),
            None => Ok(()),
        }
    }
}

impl From<&str> for CustomNode {
    fn from(op: &str) -> Self {
        Self::new(op)
    }
}

impl BuilderState {
    /// An op with operands, attributes and as many outputs as asked for, whose types follow.
    fn made(
        &self,
        kind: OpKind,
        operands: &[GraphValue<'_>],
        options: OpOptions,
        outputs: usize,
    ) -> Result<Op> {
        let inputs: Vec<LogicalTensor> =
            operands.iter().map(|operand| self.values[&operand.id].desc.clone()).collect();
        let types: Vec<DataType> = inputs.iter().map(LogicalTensor::data_type).collect();
        let name = options.name.clone();
        let mut op = Op::new(self.next_op, kind).inputs_from(inputs).named(name);
        for (attr, value) in &options.attrs {
            op = op.attr(*attr, value.clone());
        }
        let schema = Schema::of(kind);
        for &(attr, has) in OUTPUTS_OF_FLAGS {
            let is_open = schema.attributes.iter().any(|row| row.attr == attr) && op.get_attr(attr).is_none();
            if is_open {
                op = op.attr(attr, has(operands.len(), outputs));
            }
        }
        for index in 0..outputs {
            let id = self.next_tensor + index;
            // A port that the kind does not have is told of by the check of the op.
            let data_type = (!schema.outputs.is_empty()).then(|| {
                resolve::output_type(kind, &types, index)
                    .or(options.data_type)
                    .or_else(|| resolve::default_output_type(kind, &types, index))
            });
            let data_type = data_type.flatten().or(types.first().copied()).unwrap_or(DataType::F32);
            op = op.output(LogicalTensor::unknown(id, data_type));
        }
        Ok(op)
    }
}
