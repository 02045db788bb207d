//! A graph that runs as a whole: a plan for each set of shapes, memory, constants, and ops of the caller's.

mod custom;
mod memory;
mod outputs;
mod plan;
mod resolved;
mod views;

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

pub use self::custom::CustomOp;
use self::custom::Helpers;
pub use self::outputs::SessionOutputs;
use self::plan::{FoldKey, PlanContext};
use crate::error::{Error, Result, SessionFault};
use crate::execute::dyn_view::{AsDynView, AsDynViewMut, DynView, DynViewMut};
use crate::execute::engine::Engine;
use crate::execute::prepared::SharedPreparations;
use crate::execute::sequence::{PartitionSequence, StepWork, bytes};
use crate::graph::Graph;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::model::{Model, ModelPort};
use crate::graph::op::Op;
use crate::types::constant_data::ConstantData;
use crate::types::id::TensorId;
use crate::types::kind::Property;
use crate::types::nearest::nearest;
use crate::types::shape;

/// A model that runs as a whole, on inputs of any shapes that it allows.
///
/// For each set of shapes that it meets, a session makes a plan: it infers the shape of every tensor, cuts
/// the graph into partitions, compiles them, and lays the tensors between them out in one arena, in which
/// those share bytes that are never needed at once. Results are written where the caller gets them; a
/// reshape, a transpose and a slice between partitions move nothing. Plans are kept, the newest
/// [`shapes`](SessionBuilder::shapes) of them. Constants belong to the session; partitions of constants alone
/// run once.
///
/// A clone is the same session. Any number of threads may run it at once; each run has memory of its own, of
/// which the session keeps some for later runs.
///
/// ```
/// use sterna::{DataType, Engine, GraphBuilder, Session};
/// let g = GraphBuilder::new();
/// let x = g.input("x", DataType::F32, &[None, Some(3)])?;
/// g.output("sum", g.reduce_sum(x, &[1])?)?;
/// let session = Session::new(g.build()?, &Engine::new())?;
/// for rows in [1, 2, 3] {
///     let x = vec![[1.0f32, 2.0, 3.0]; rows];
///     let view = sterna::TensorView::new(x.as_flattened(), &[rows as i64, 3]);
///     assert_eq!(session.run(&[("x", &view)])?["sum"].as_slice::<f32>()?, vec![6.0; rows]);
/// }
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Clone)]
pub struct Session {
    inner: Arc<SessionInner>,
}

struct SessionInner {
    engine: Engine,
    model: Model,
    helpers: Helpers,
    /// The model for all shapes, unless it has a source.
    checked: Option<CheckedModel>,
    output_names: Arc<[String]>,
    plans: Mutex<VecDeque<Arc<PartitionSequence>>>,
    /// The most plans that are kept.
    shapes: usize,
    /// The most blocks of memory that a plan keeps.
    arenas: usize,
    folded: Mutex<FxHashMap<FoldKey, Vec<ConstantData>>>,
    preparations: Arc<SharedPreparations>,
}

/// A model whose parts fit together.
struct CheckedModel {
    /// The ops that run, and the tensor of each output.
    ops: (Vec<Op>, Vec<TensorId>),
    /// Descriptions of the constants.
    constants: BTreeMap<TensorId, LogicalTensor>,
}

impl CheckedModel {
    fn new(model: &Model, helpers: &Helpers) -> Result<Self> {
        let constants = constants(model)?;
        let ops = resolved::whole_ops(model)?;
        check_sources(model, &ops.0)?;
        let missing = plan::missing_ops(model, &ops.0, helpers)?;
        match missing.is_empty() {
            true => Ok(Self { ops, constants }),
            false => Err(SessionFault::MissingOps(missing).into()),
        }
    }
}

// Nothing of the caller's runs under a lock; what a run has taken when it panics is dropped.
impl UnwindSafe for Session {}
impl RefUnwindSafe for Session {}

/// Options of a [`Session`].
///
/// ```
/// use sterna::{DataType, Engine, GraphBuilder, Session};
/// let g = GraphBuilder::new();
/// g.output("y", g.exp(g.input("x", DataType::F32, &[None])?)?)?;
/// let session = Session::builder(g.build()?).shapes(4).arenas(1).build(&Engine::new())?;
/// assert_eq!(session.run(&[("x", &[0.0f32])])?["y"].as_slice::<f32>()?, [1.0]);
/// # Ok::<(), sterna::Error>(())
/// ```
pub struct SessionBuilder {
    model: Model,
    helpers: Helpers,
    shapes: usize,
    arenas: usize,
}

impl UnwindSafe for SessionBuilder {}
impl RefUnwindSafe for SessionBuilder {}

impl SessionBuilder {
    /// Gives the op that runs where no kernel does: by the name that the model has for it, `domain::Name`, or
    /// by the name of an [`OpKind`](crate::OpKind). [`CustomOp`] has an example.
    #[must_use]
    pub fn op(mut self, name: impl Into<String>, op: impl CustomOp + 'static) -> Self {
        self.helpers.custom.insert(name.into(), Arc::new(op));
        self
    }

    /// Lets the [reference interpreter](crate) run ops of Sterna that no kernel runs, one by one and slowly;
    /// off unless set.
    #[must_use]
    pub fn fallback(mut self, fallback: bool) -> Self {
        self.helpers.fallback = fallback;
        self
    }

    /// Sets the number of sets of shapes whose plans are kept, at least 1; 16 unless set. The one that was
    /// not used for the longest time makes room.
    #[must_use]
    pub fn shapes(self, shapes: usize) -> Self {
        Self { shapes: shapes.max(1), ..self }
    }

    /// Sets the number of blocks of memory that each plan keeps for later runs: as many runs at once allocate
    /// nothing. 4 unless set.
    #[must_use]
    pub fn arenas(self, arenas: usize) -> Self {
        Self { arenas, ..self }
    }

    /// The session. A model whose shapes are all known is compiled here.
    ///
    /// # Errors
    ///
    /// [`SessionFault::MissingOps`] with every op that nothing runs; [`SessionFault::SameName`],
    /// [`SessionFault::NoSource`], [`SessionFault::ConstantBytes`]; the errors of
    /// [`Partition::compile_for`](crate::Partition::compile_for).
    pub fn build(self, engine: &Engine) -> Result<Session> {
        let Self { model, helpers, shapes, arenas } = self;
        check_names("input", model.inputs())?;
        check_names("output", model.outputs())?;
        let checked = match model.source() {
            Some(_) => None,
            None => Some(CheckedModel::new(&model, &helpers)?),
        };
        let output_names = model.outputs().iter().map(|port| port.name().to_owned()).collect();
        let (plans, folded, preparations) = (Mutex::default(), Mutex::default(), Arc::default());
        let engine = engine.clone();
        let inner = SessionInner {
            engine,
            model,
            helpers,
            checked,
            output_names,
            plans,
            shapes,
            arenas,
            folded,
            preparations,
        };
        let session = Session { inner: Arc::new(inner) };
        let inputs = session.inputs().iter().map(|port| concrete(&port.tensor));
        if let Some(inputs) = inputs.collect::<Option<Vec<_>>>() {
            session.inner.plan(inputs)?;
        }
        Ok(session)
    }
}

impl fmt::Debug for SessionBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionBuilder").field("shapes", &self.shapes).finish_non_exhaustive()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("plans", &self.inner.plans.lock().len()).finish_non_exhaustive()
    }
}

/// A row-major description, if all dims are known.
fn concrete(tensor: &LogicalTensor) -> Option<LogicalTensor> {
    let dims = tensor.dims()?;
    match tensor.strides() {
        Some(_) => Some(tensor.clone()),
        None => {
            let dense = LogicalTensor::strided(tensor.id(), tensor.data_type(), dims).ok()?;
            dense.with_property(tensor.property()).ok()
        }
    }
}

fn check_names(what: &'static str, ports: &[ModelPort]) -> Result<()> {
    let mut seen = FxHashSet::default();
    match ports.iter().find(|port| !seen.insert(port.name())) {
        Some(port) => Err(SessionFault::SameName { what, name: port.name().to_owned() }.into()),
        None => Ok(()),
    }
}

/// The description of each constant, as the graph mentions it.
fn constants(model: &Model) -> Result<BTreeMap<TensorId, LogicalTensor>> {
    let mut known = BTreeMap::new();
    let mentions = model.graph().ops().iter().flat_map(Op::inputs);
    let of_outputs = model.outputs().iter().map(|port| &port.tensor);
    for tensor in mentions.chain(of_outputs) {
        let Some(data) = model.constants().get(&tensor.id()) else { continue };
        if known.contains_key(&tensor.id()) {
            continue;
        }
        let Some(desc) = concrete(tensor) else {
            return Err(SessionFault::OpenShape { tensor: tensor.id(), node: "a constant".into() }.into());
        };
        let (needed, given) = (bytes(&desc), data.bytes().len());
        if needed > given {
            return Err(SessionFault::ConstantBytes { tensor: tensor.id(), needed, given }.into());
        }
        let property = if desc.is_host_scalar() { Property::HostScalar } else { Property::Constant };
        known.insert(tensor.id(), desc.with_property(property)?);
    }
    Ok(known)
}

/// Checks that something gives each tensor that ops read.
fn check_sources(model: &Model, ops: &[Op]) -> Result<()> {
    let outputs = ops.iter().flat_map(Op::outputs).map(LogicalTensor::id);
    let inputs = model.inputs().iter().map(|port| port.tensor.id());
    let given: FxHashSet<TensorId> = outputs.chain(inputs).chain(model.constants().keys().copied()).collect();
    let mut read = ops.iter().flat_map(Op::inputs).map(LogicalTensor::id);
    match read.find(|id| !given.contains(id)) {
        Some(id) => Err(SessionFault::NoSource(id).into()),
        None => Ok(()),
    }
}

impl Session {
    /// A session with the usual options, of a [`Model`], of a [`Graph`](crate::Graph), or of what a reader of
    /// models gives.
    ///
    /// # Errors
    ///
    /// As [`SessionBuilder::build`].
    pub fn new<M>(model: M, engine: &Engine) -> Result<Self>
    where
        M: TryInto<Model>,
        Error: From<M::Error>,
    {
        Self::builder(model.try_into()?).build(engine)
    }

    /// A session with options.
    #[must_use]
    pub fn builder(model: Model) -> SessionBuilder {
        SessionBuilder { model, helpers: Helpers::default(), shapes: 16, arenas: 4 }
    }

    /// The inputs, in the order of the model.
    #[must_use]
    pub fn inputs(&self) -> &[ModelPort] {
        self.inner.model.inputs()
    }

    /// The outputs, in the order of the model.
    #[must_use]
    pub fn outputs(&self) -> &[ModelPort] {
        self.inner.model.outputs()
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    /// Runs the model on inputs by name, in any order, and gives its outputs in new memory of the engine,
    /// which is all that a run allocates once as many have run at once.
    ///
    /// An input may have any strides; another set of strides is another plan.
    ///
    /// # Errors
    ///
    /// [`SessionFault`] for inputs that are not those of the model; [`Error::Shape`] if their shapes
    /// contradict its ops; [`ExecuteFault::IndexOutOfRange`](crate::ExecuteFault::IndexOutOfRange) for an
    /// index of a lookup; what ops of the caller's say; [`Error::OutOfMemory`].
    pub fn run(&self, inputs: &[(&str, &dyn AsDynView)]) -> Result<SessionOutputs> {
        let views = self.inner.views(inputs)?;
        let plan = self.inner.plan_of(&views)?;
        let tensors = plan.run_new(&views)?;
        Ok(SessionOutputs { names: self.inner.output_names.clone(), tensors })
    }

    /// As [`run`](Self::run), into memory of the caller's, which is row-major: all outputs by name, in any
    /// order.
    ///
    /// ```
    /// use sterna::{DataType, Engine, GraphBuilder, Session};
    /// let g = GraphBuilder::new();
    /// g.output("y", g.sqrt(g.input("x", DataType::F32, &[None])?)?)?;
    /// let session = Session::new(g.build()?, &Engine::new())?;
    /// let mut y = [0.0f32; 3];
    /// session.run_into(&[("x", &[1.0f32, 4.0, 9.0])], &mut [("y", &mut y)])?;
    /// assert_eq!(y, [1.0, 2.0, 3.0]);
    /// # Ok::<(), sterna::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run); [`SessionFault`] for outputs that are not those of the model, and
    /// [`ExecuteFault::Overlap`](crate::ExecuteFault::Overlap).
    pub fn run_into(
        &self,
        inputs: &[(&str, &dyn AsDynView)],
        outputs: &mut [(&str, &mut dyn AsDynViewMut)],
    ) -> Result<()> {
        let views = self.inner.views(inputs)?;
        let plan = self.inner.plan_of(&views)?;
        let mut results = self.inner.results(outputs, &plan)?;
        plan.run(&views, &mut results)
    }

    /// The memory of a run on inputs of the shapes that ran last, in bytes: tensors between partitions, and
    /// scratch. 0 if nothing ran.
    #[must_use]
    pub fn run_memory(&self) -> usize {
        let plans = self.inner.plans.lock();
        plans.front().map_or(0, |plan| {
            let (arena, scratch) = plan.memory();
            arena.saturating_add(scratch)
        })
    }

    /// Bytes that the partitions of such a run read and write, as
    /// [`CompiledPartition::bytes_moved`](crate::CompiledPartition::bytes_moved) counts them. 0 if nothing
    /// ran.
    #[must_use]
    pub fn bytes_moved(&self) -> usize {
        let plans = self.inner.plans.lock();
        let steps = plans.front().map_or(&[][..], |plan| plan.steps());
        let moved = steps.iter().map(|step| match &step.work {
            StepWork::Partition(compiled) => compiled.bytes_moved(),
            StepWork::Function { .. } => 0,
        });
        moved.fold(0, usize::saturating_add)
    }

    /// The number of partitions, and of ops of the caller's, that a run on inputs of the shapes that ran last
    /// executes. Both are 0 if nothing ran.
    #[must_use]
    pub fn run_steps(&self) -> (usize, usize) {
        let plans = self.inner.plans.lock();
        let steps = plans.front().map_or(&[][..], |plan| plan.steps());
        let partitions = steps.iter().filter(|step| matches!(step.work, StepWork::Partition(_))).count();
        (partitions, steps.len() - partitions)
    }
}

type Views<'a> = SmallVec<[DynView<'a>; 8]>;

impl SessionInner {
    /// The given inputs in the order of the model.
    fn views<'a>(&self, inputs: &[(&str, &'a dyn AsDynView)]) -> Result<Views<'a>> {
        let views = inputs.iter().map(|(name, input)| (*name, input.as_dyn_view()));
        in_order("input", self.model.inputs(), views, |_, _| Ok(()))
    }

    /// The given outputs in the order of the model, each memory of what a plan gives.
    fn results<'a>(
        &self,
        outputs: &'a mut [(&str, &mut dyn AsDynViewMut)],
        plan: &PartitionSequence,
    ) -> Result<SmallVec<[DynViewMut<'a>; 4]>> {
        let views = outputs.iter_mut().map(|(name, output)| (*name, output.as_dyn_view_mut()));
        let ports = self.model.outputs();
        in_order("output", ports, views, |index, view| {
            check_output(ports[index].name(), view, &plan.outputs()[index])
        })
    }

    /// The plan for inputs, which is made if there is none.
    fn plan_of(&self, views: &[DynView<'_>]) -> Result<Arc<PartitionSequence>> {
        let fits = |plan: &Arc<PartitionSequence>| {
            plan.inputs().iter().zip(views).all(|(desc, view)| view.raw.is_memory_of(desc))
        };
        let mut plans = self.plans.lock();
        if let Some(index) = plans.iter().position(fits) {
            let plan = if index == 0 { None } else { plans.remove(index) };
            if let Some(plan) = plan {
                plans.push_front(plan);
            }
            return Ok(plans[0].clone());
        }
        drop(plans);
        let described = self.model.inputs().iter().zip(views).map(|(port, view)| described(port, view));
        self.plan(described.collect::<Result<Vec<_>>>()?)
    }

    /// A new plan, which is kept.
    fn plan(&self, inputs: Vec<LogicalTensor>) -> Result<Arc<PartitionSequence>> {
        let plan = Arc::new(match (&self.checked, self.model.source()) {
            (Some(checked), _) => self.sequence(&self.model, checked, inputs, &self.folded)?,
            (None, source) => {
                let ports = self.model.inputs().iter().zip(&inputs);
                let shapes: Vec<(&str, &[i64])> =
                    ports.map(|(port, input)| (port.name(), input.dims().unwrap_or_default())).collect();
                let source = source.ok_or_else(|| SessionFault::Source("the model has no source".into()))?;
                let model = source.at(&shapes)?;
                let inputs = inputs_of(&model, self.model.inputs(), inputs)?;
                let model = ordered(model, self.model.inputs(), self.model.outputs())?;
                let checked = CheckedModel::new(&model, &self.helpers)?;
                self.sequence(&model, &checked, inputs, &Mutex::default())?
            }
        });
        let mut plans = self.plans.lock();
        plans.push_front(plan.clone());
        // Dropped when the lock is free, since an allocator is the caller's code.
        let behind = plans.len().min(self.shapes);
        let dropped: Vec<_> = plans.drain(behind..).collect();
        drop(plans);
        drop(dropped);
        Ok(plan)
    }

    /// The sequence that runs a model on inputs of some descriptions.
    fn sequence(
        &self,
        model: &Model,
        checked: &CheckedModel,
        inputs: Vec<LogicalTensor>,
        folded: &Mutex<FxHashMap<FoldKey, Vec<ConstantData>>>,
    ) -> Result<PartitionSequence> {
        let mut given = checked.constants.clone();
        given.extend(inputs.iter().map(|input| (input.id(), input.clone())));
        let resolved = resolved::resolved(model, &checked.ops, &given, &self.helpers)?;
        let (engine, helpers, kept) = (&self.engine, &self.helpers, self.arenas);
        let preparations = &self.preparations;
        let context = PlanContext { model, engine, helpers, kept, preparations, folded };
        plan::sequence(&context, &resolved, inputs)
    }
}

/// The port of a model that has the name of another port.
fn port_of<'a>(what: &'static str, ports: &'a [ModelPort], of: &ModelPort) -> Result<&'a ModelPort> {
    Ok(&ports[index_of(what, ports, 0, of.name())?])
}

/// Descriptions of inputs for the tensors that a model has for them.
fn inputs_of(model: &Model, ports: &[ModelPort], inputs: Vec<LogicalTensor>) -> Result<Vec<LogicalTensor>> {
    let with_id = |(input, of): (LogicalTensor, &ModelPort)| {
        let port = port_of("input", model.inputs(), of)?;
        let (expected, given) = (port.tensor.data_type(), input.data_type());
        match expected == given {
            true => Ok(input.with_id(port.tensor.id())),
            false => {
                Err(SessionFault::Type { what: "input", name: of.name().to_owned(), expected, given }.into())
            }
        }
    };
    inputs.into_iter().zip(ports).map(with_id).collect()
}

/// A model with its ports in the order of others.
fn ordered(model: Model, inputs: &[ModelPort], outputs: &[ModelPort]) -> Result<Model> {
    let inputs = inputs.iter().map(|of| port_of("input", model.inputs(), of).cloned());
    let inputs = inputs.collect::<Result<_>>()?;
    let outputs = outputs.iter().map(|of| port_of("output", model.outputs(), of).cloned());
    let outputs = outputs.collect::<Result<_>>()?;
    Ok(model.with_other_ports(inputs, outputs))
}

/// Views that are given by name, each of which is checked, in the order of the ports.
fn in_order<'n, V, Found: FromIterator<V>>(
    what: &'static str,
    ports: &[ModelPort],
    given: impl Iterator<Item = (&'n str, V)>,
    check: impl Fn(usize, &V) -> Result<()>,
) -> Result<Found> {
    let mut found: SmallVec<[Option<V>; 8]> = ports.iter().map(|_| None).collect();
    for (at, (name, view)) in given.enumerate() {
        let index = index_of(what, ports, at, name)?;
        check(index, &view)?;
        if found[index].replace(view).is_some() {
            return Err(SessionFault::GivenTwice { what, name: name.to_owned() }.into());
        }
    }
    let missing = |port: &ModelPort| SessionFault::Missing { what, name: port.name().to_owned() }.into();
    found.into_iter().zip(ports).map(|(view, port)| view.ok_or_else(|| missing(port))).collect()
}

/// The index of the port of a name. Most callers give the ports in the order of the model.
fn index_of(what: &'static str, ports: &[ModelPort], at: usize, name: &str) -> Result<usize> {
    if ports.get(at).is_some_and(|port| port.name() == name) {
        return Ok(at);
    }
    let own = ports.iter().position(|port| port.name() == name);
    let any = || ports.iter().position(|port| port.names.iter().any(|other| other == name));
    own.or_else(any).ok_or_else(|| {
        let known: Vec<String> = ports.iter().map(|port| port.name().to_owned()).collect();
        let nearest = nearest(name, known.iter().map(String::as_str)).map(str::to_owned);
        SessionFault::UnknownName { what, name: name.to_owned(), known, nearest }.into()
    })
}

/// The description of an input, checked against the model.
fn described(port: &ModelPort, view: &DynView<'_>) -> Result<LogicalTensor> {
    let name = || port.name().to_owned();
    let (expected, given) = (port.tensor.data_type(), view.data_type());
    if expected != given {
        return Err(SessionFault::Type { what: "input", name: name(), expected, given }.into());
    }
    let desc = view.desc(port.tensor.id())?.with_property(port.tensor.property())?;
    if let Some(expected) = port.tensor.partial_dims() {
        let given = desc.dims().unwrap_or_default();
        let fits = |(said, given): (&Option<i64>, &i64)| said.is_none_or(|said| said == *given);
        if expected.len() != given.len() || !expected.iter().zip(given).all(fits) {
            let (name, given) = (name(), given.to_vec());
            return Err(SessionFault::Dims { what: "input", name, expected, given }.into());
        }
    }
    let (needed, given) = (desc.span().unwrap_or(0), view.raw.length());
    if needed > given {
        return Err(SessionFault::TooShort { what: "input", name: name(), needed, given }.into());
    }
    Ok(desc)
}

/// Checks that a view is memory for an output.
fn check_output(name: &str, view: &DynViewMut<'_>, output: &LogicalTensor) -> Result<()> {
    if view.raw.is_memory_of(output) {
        return Ok(());
    }
    let (what, name) = ("output", name.to_owned());
    let (expected, given) = (output.data_type(), view.data_type());
    if expected != given {
        return Err(SessionFault::Type { what, name, expected, given }.into());
    }
    let (dims, own) = (output.dims().unwrap_or_default(), view.raw.dims.as_deref());
    if let Some(own) = own.filter(|&own| own != dims) {
        let expected = dims.iter().map(|&dim| shape::known(dim)).collect();
        return Err(SessionFault::Dims { what, name, expected, given: own.to_vec() }.into());
    }
    let (needed, given) = (output.span().unwrap_or(0), view.raw.length());
    match needed > given {
        true => Err(SessionFault::TooShort { what, name, needed, given }.into()),
        false => Err(SessionFault::Strided(name).into()),
    }
}

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl TryFrom<Graph> for Model {
    type Error = Error;

    fn try_from(graph: Graph) -> Result<Self> {
        Self::new(graph)
    }
}
