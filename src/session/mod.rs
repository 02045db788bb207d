//! A graph that runs as a whole: a plan for each set of shapes, memory, constants, and ops of the caller's.

mod checked;
mod custom;
mod links;
mod memory;
mod missing;
mod outputs;
mod parts;
mod plan;
mod planning;
mod ports;
mod profile;
mod resolved;
mod reuse;
mod shape_plans;
mod state;
mod stateful;
mod views;

use std::convert::Infallible;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;
use smallvec::SmallVec;

use self::checked::{CheckedModel, concrete};
pub use self::custom::CustomOp;
use self::custom::{Helpers, REFERENCE};
pub use self::links::StateLink;
pub use self::outputs::SessionOutputs;
use self::planning::SessionInner;
use self::ports::{GivenInputs, check_names, check_output, in_order, row_major};
pub use self::profile::{ArenaBuffer, ArenaPlan, ArenaStep, ProfiledOp, RunProfile, RunSpan, SpanKind};
use self::shape_plans::ShapePlans;
pub use self::state::SessionState;
use self::stateful::StatefulModel;
use crate::error::{Error, Result, SessionFault};
use crate::execute::dyn_view::{AsDynView, AsDynViewMut, DynView, DynViewMut};
use crate::execute::engine::Engine;
use crate::execute::scratch_pool::ScratchPool;
use crate::execute::sequence::{PartitionSequence, StepWork};
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::model::{Model, ModelPort};
use crate::graph::{FpMath, Graph};

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
    links: Vec<StateLink>,
    fpmath: Option<FpMath>,
    shapes: Option<usize>,
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
        self.helpers.fallback = fallback.then_some(&REFERENCE);
        self
    }

    /// Sets how far arithmetic may be relaxed; unless set, it is as the graph says, which is strict unless it
    /// was [set](Graph::set_fpmath).
    #[must_use]
    pub fn fpmath(self, fpmath: FpMath) -> Self {
        Self { fpmath: Some(fpmath), ..self }
    }

    /// Makes an output of a run an input of the next one, in a [`SessionState`], which has an example.
    #[must_use]
    pub fn state(mut self, link: StateLink) -> Self {
        self.links.push(link);
        self
    }

    /// As [`state`](Self::state), for all links that the names of the model tell, as
    /// [`StateLink::find`] finds them.
    #[must_use]
    pub fn find_states(mut self) -> Self {
        self.links.extend(StateLink::find(&self.model));
        self
    }

    /// Sets the number of sets of shapes whose plans are kept, at least 1. Unless it is set, 16 are kept, and
    /// more as long as they take no more than some 32 MiB: those of a small decoder for hundreds of lengths,
    /// which the next sequence has as well. The one that was not used for the longest time makes room.
    #[must_use]
    pub fn shapes(self, shapes: usize) -> Self {
        Self { shapes: Some(shapes.max(1)), ..self }
    }

    /// Sets the number of blocks of memory that the session keeps for later runs, the largest ones: as many
    /// runs at once allocate nothing but small results. Of large results that were dropped, it keeps as many
    /// blocks for each output. 4 unless set.
    #[must_use]
    pub fn arenas(self, arenas: usize) -> Self {
        Self { arenas, ..self }
    }

    /// The session. A model whose shapes are all known is compiled here.
    ///
    /// # Errors
    ///
    /// [`SessionFault::MissingOps`] with every op that nothing runs; [`SessionFault::SameName`],
    /// [`SessionFault::NoSource`], [`SessionFault::ConstantBytes`]; [`SessionFault::Link`] and
    /// [`SessionFault::UnknownName`] for links that the model does not fit; the errors of
    /// [`Partition::compile_for`](crate::Partition::compile_for).
    pub fn build(self, engine: &Engine) -> Result<Session> {
        let Self { model, helpers, links, fpmath, shapes, arenas } = self;
        let model = model.with_fpmath(fpmath);
        check_names("input", model.inputs())?;
        check_names("output", model.outputs())?;
        let checked = match model.source() {
            Some(_) => None,
            None => {
                let checked = CheckedModel::new(&model, &[])?;
                checked.check_ops(&model, &helpers)?;
                Some(checked)
            }
        };
        let stateful = StatefulModel::new(&model, &links, engine)?;
        let output_names: Arc<[String]> = model.outputs().iter().map(|port| port.name().to_owned()).collect();
        let results = arenas.saturating_mul(output_names.len());
        let plans = ShapePlans::keeping(shapes);
        let engine = engine.clone();
        let inner = SessionInner {
            engine,
            model,
            helpers,
            checked,
            output_names,
            stateful,
            fpmath,
            plans,
            memory: Arc::new(ScratchPool::keeping(arenas).keeping_results(results)),
            folded: Default::default(),
            preparations: Arc::default(),
            has_room: OnceLock::new(),
            last: Mutex::default(),
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
        let Self { shapes, links, .. } = self;
        f.debug_struct("SessionBuilder").field("shapes", shapes).field("links", links).finish_non_exhaustive()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("plans", &self.inner.plans.len()).finish_non_exhaustive()
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
        SessionBuilder {
            model,
            helpers: Helpers::default(),
            links: Vec::new(),
            fpmath: None,
            shapes: None,
            arenas: 4,
        }
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
        let views = views(self.inputs(), inputs)?;
        let plan = self.inner.plan_of(&GivenInputs::Views(&views))?;
        let tensors = plan.run_new(&views, &mut [], None)?;
        Ok(SessionOutputs { names: self.inner.output_names.clone(), tensors })
    }

    /// As [`run`](Self::run), and says what the time was spent on. Other runs measure nothing.
    ///
    /// ```
    /// use sterna::{DataType, Engine, GraphBuilder, Session, SpanKind};
    /// let g = GraphBuilder::new();
    /// g.output("y", g.exp(g.input("x", DataType::F32, &[None])?)?)?;
    /// let session = Session::new(g.build()?, &Engine::new())?;
    /// let (_, profile) = session.run_profiled(&[("x", &[0.0f32])])?;
    /// let kinds: Vec<SpanKind> = profile.spans.iter().map(|span| span.kind).collect();
    /// assert_eq!(kinds, [SpanKind::Infer, SpanKind::Partition, SpanKind::Compile, SpanKind::Execute]);
    /// let (_, again) = session.run_profiled(&[("x", &[0.0f32])])?;
    /// assert_eq!((again.spans.len(), again.spans[0].bytes), (1, 8));
    /// # Ok::<(), sterna::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_profiled(&self, inputs: &[(&str, &dyn AsDynView)]) -> Result<(SessionOutputs, RunProfile)> {
        let began = Instant::now();
        let views = views(self.inputs(), inputs)?;
        let plan = self.inner.plan_of(&GivenInputs::Views(&views))?;
        let mut times = Vec::with_capacity(plan.steps().len());
        let tensors = plan.run_new(&views, &mut [], Some(&mut times))?;
        let outputs = SessionOutputs { names: self.inner.output_names.clone(), tensors };
        Ok((outputs, plan.profile_of(began, &times)))
    }

    /// The profile of the making of the plan of the shapes that ran last. A model whose shapes are all
    /// known is planned when the session is made. `None` if nothing ran.
    #[must_use]
    pub fn plan_profile(&self) -> Option<RunProfile> {
        self.inner.plans.newest().map(|plan| plan.profile())
    }

    /// How the memory of a run on inputs of the shapes that ran last is laid out. [`ArenaPlan`] has an
    /// example. `None` if nothing ran.
    #[must_use]
    pub fn arena_plan(&self) -> Option<ArenaPlan> {
        self.inner.plans.newest().map(|plan| plan.arena())
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
        let views = views(self.inputs(), inputs)?;
        let plan = self.inner.plan_of(&GivenInputs::Views(&views))?;
        let mut results = results(self.outputs(), outputs, &plan)?;
        plan.run(&views, &mut results, &mut [])
    }

    /// The descriptions of the outputs, in their order, of a run on row-major inputs of some dims, by name:
    /// the memory that [`run_into`](Self::run_into) takes. Nothing runs; the plan of the run is made.
    ///
    /// ```
    /// use sterna::{DataType, Engine, GraphBuilder, Session};
    /// let g = GraphBuilder::new();
    /// g.output("y", g.reduce_sum(g.input("x", DataType::F32, &[None, None])?, &[0])?)?;
    /// let session = Session::new(g.build()?, &Engine::new())?;
    /// assert_eq!(session.output_descs(&[("x", &[3, 5])])?[0].dims(), Some(&[5][..]));
    /// # Ok::<(), sterna::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn output_descs(&self, inputs: &[(&str, &[i64])]) -> Result<Vec<LogicalTensor>> {
        let descs = descs(self.inputs(), inputs)?;
        Ok(self.inner.plan_of(&GivenInputs::Descs(&descs))?.outputs().to_vec())
    }

    /// As [`output_descs`](Self::output_descs), for [`run_with_state_into`](Self::run_with_state_into): the
    /// outputs that are no state. The state gets room for what the run adds.
    ///
    /// # Errors
    ///
    /// As [`run_with_state`](Self::run_with_state).
    pub fn output_descs_with_state(
        &self,
        state: &mut SessionState,
        inputs: &[(&str, &[i64])],
    ) -> Result<Vec<LogicalTensor>> {
        let stateful = self.inner.stateful_of(state)?;
        let descs = descs(&stateful.inputs, inputs)?;
        let given = GivenInputs::Descs(&descs);
        let plan = state.attempt(|state| self.inner.plan_with_state(stateful, state, &given))?;
        Ok(plan.outputs().to_vec())
    }

    /// An empty state for one sequence of runs. Dims of its tensors that the model leaves open are said here,
    /// by the name of the input, where the number along the axis is that of rows to make room for; or they
    /// follow from the first run, from dims of the same name in a file, or from the rows that it adds.
    ///
    /// # Errors
    ///
    /// [`SessionFault::ForeignState`] if the session has no links; [`SessionFault`] for names and dims that
    /// are not those of the model; [`Error::OutOfMemory`].
    pub fn new_state(&self, dims: &[(&str, &[i64])]) -> Result<SessionState> {
        SessionState::new(&self.inner.stateful()?.spec, dims)
    }

    /// As [`run`](Self::run), with a state in place of the inputs and outputs that links name: the run reads
    /// the rows of earlier runs and leaves its own behind them. Nothing of what is there is copied, unless
    /// memory for twice as many rows is needed.
    ///
    /// ```
    /// use sterna::{DataType, Engine, GraphBuilder, Session, StateLink};
    /// let g = GraphBuilder::new();
    /// let total = g.input("total", DataType::F32, &[Some(1)])?;
    /// let sum = g.add(total, g.input("x", DataType::F32, &[Some(1)])?)?;
    /// g.output("total_out", sum)?;
    /// g.output("twice", (sum * 2.0)?)?;
    /// let link = StateLink::new("total", "total_out");
    /// let session = Session::builder(g.build()?).state(link).build(&Engine::new())?;
    /// let mut state = session.new_state(&[])?;
    /// session.run_with_state(&mut state, &[("x", &[3.0f32])])?;
    /// let outputs = session.run_with_state(&mut state, &[("x", &[4.0f32])])?;
    /// assert_eq!(outputs["twice"].as_slice::<f32>()?, [14.0]);
    /// # Ok::<(), sterna::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run); [`SessionFault::ForeignState`]; [`SessionFault::OpenState`];
    /// [`SessionFault::Capacity`]. The state is then as it was.
    pub fn run_with_state(
        &self,
        state: &mut SessionState,
        inputs: &[(&str, &dyn AsDynView)],
    ) -> Result<SessionOutputs> {
        let stateful = self.inner.stateful_of(state)?;
        let views = views(&stateful.inputs, inputs)?;
        let tensors = state.attempt(|state| {
            let plan = self.inner.plan_with_state(stateful, state, &GivenInputs::Views(&views))?;
            state.run(|buffers| plan.run_new(&views, buffers, None))
        })?;
        Ok(SessionOutputs { names: stateful.output_names.clone(), tensors })
    }

    /// As [`run_with_state`](Self::run_with_state), and says what the time was spent on, as
    /// [`run_profiled`](Self::run_profiled) does.
    ///
    /// ```
    /// use sterna::{DataType, Engine, GraphBuilder, Session, SpanKind, StateLink};
    /// let g = GraphBuilder::new();
    /// let past = g.input("past", DataType::F32, &[None, Some(2)])?;
    /// let all = g.concat(&[past, g.input("x", DataType::F32, &[None, Some(2)])?], 0)?;
    /// g.output("present", all)?;
    /// g.output("sum", g.reduce_sum(all, &[0])?)?;
    /// let link = StateLink::new("past", "present");
    /// let session = Session::builder(g.build()?).state(link).build(&Engine::new())?;
    /// let mut state = session.new_state(&[])?;
    /// let (_, profile) = session.run_with_state_profiled(&mut state, &[("x", &[[1.0f32, 2.0]])])?;
    /// assert!(profile.spans.iter().any(|span| span.kind == SpanKind::Execute));
    /// assert_eq!(state.len(), 1);
    /// # Ok::<(), sterna::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`run_with_state`](Self::run_with_state).
    pub fn run_with_state_profiled(
        &self,
        state: &mut SessionState,
        inputs: &[(&str, &dyn AsDynView)],
    ) -> Result<(SessionOutputs, RunProfile)> {
        let began = Instant::now();
        let stateful = self.inner.stateful_of(state)?;
        let views = views(&stateful.inputs, inputs)?;
        let (tensors, profile) = state.attempt(|state| {
            let plan = self.inner.plan_with_state(stateful, state, &GivenInputs::Views(&views))?;
            let mut times = Vec::with_capacity(plan.steps().len());
            let tensors = state.run(|buffers| plan.run_new(&views, buffers, Some(&mut times)))?;
            Ok((tensors, plan.profile_of(began, &times)))
        })?;
        Ok((SessionOutputs { names: stateful.output_names.clone(), tensors }, profile))
    }

    /// As [`run_with_state`](Self::run_with_state), into memory of the caller's, as
    /// [`run_into`](Self::run_into) takes it.
    ///
    /// # Errors
    ///
    /// As [`run_with_state`](Self::run_with_state) and [`run_into`](Self::run_into).
    pub fn run_with_state_into(
        &self,
        state: &mut SessionState,
        inputs: &[(&str, &dyn AsDynView)],
        outputs: &mut [(&str, &mut dyn AsDynViewMut)],
    ) -> Result<()> {
        let stateful = self.inner.stateful_of(state)?;
        let views = views(&stateful.inputs, inputs)?;
        state.attempt(|state| {
            let plan = self.inner.plan_with_state(stateful, state, &GivenInputs::Views(&views))?;
            let mut results = results(&stateful.outputs, outputs, &plan)?;
            state.run(|buffers| plan.run(&views, &mut results, buffers))
        })
    }

    /// The memory of a run on inputs of the shapes that ran last, in bytes: tensors between partitions, and
    /// scratch. 0 if nothing ran.
    #[must_use]
    pub fn run_memory(&self) -> usize {
        self.inner.plans.newest().map_or(0, |plan| {
            let (arena, scratch) = plan.memory();
            arena.saturating_add(scratch)
        })
    }

    /// Bytes that the partitions of such a run read and write, as
    /// [`CompiledPartition::bytes_moved`](crate::CompiledPartition::bytes_moved) counts them. 0 if nothing
    /// ran.
    #[must_use]
    pub fn bytes_moved(&self) -> usize {
        let plan = self.inner.plans.newest();
        let steps = plan.as_ref().map_or(&[][..], |plan| plan.steps());
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
        let plan = self.inner.plans.newest();
        let steps = plan.as_ref().map_or(&[][..], |plan| plan.steps());
        let partitions = steps.iter().filter(|step| matches!(step.work, StepWork::Partition(_))).count();
        (partitions, steps.len() - partitions)
    }
}

type Views<'a> = SmallVec<[DynView<'a>; 8]>;

/// The given inputs in the order of the ports.
fn views<'a>(ports: &[ModelPort], inputs: &[(&str, &'a dyn AsDynView)]) -> Result<Views<'a>> {
    let views = inputs.iter().map(|(name, input)| (*name, input.as_dyn_view()));
    in_order("input", ports, views, |_, _| Ok(()))
}

/// The row-major descriptions of inputs of given dims, in the order of the ports.
fn descs(ports: &[ModelPort], inputs: &[(&str, &[i64])]) -> Result<Vec<LogicalTensor>> {
    let dims: Vec<&[i64]> = in_order("input", ports, inputs.iter().copied(), |_, _| Ok(()))?;
    ports.iter().zip(dims).map(|(port, dims)| row_major(port, dims)).collect()
}

/// The given outputs in the order of the ports, each memory of what a plan gives.
fn results<'a>(
    ports: &[ModelPort],
    outputs: &'a mut [(&str, &mut dyn AsDynViewMut)],
    plan: &PartitionSequence,
) -> Result<SmallVec<[DynViewMut<'a>; 4]>> {
    let views = outputs.iter_mut().map(|(name, output)| (*name, output.as_dyn_view_mut()));
    in_order("output", ports, views, |index, view| {
        check_output(ports[index].name(), view, &plan.outputs()[index])
    })
}

impl SessionInner {
    /// The runs with a state.
    fn stateful(&self) -> Result<&StatefulModel> {
        Ok(self.stateful.as_ref().ok_or(SessionFault::ForeignState)?)
    }

    /// The runs with a state that must be one of this session.
    fn stateful_of(&self, state: &SessionState) -> Result<&StatefulModel> {
        let stateful = self.stateful()?;
        match state.is_of(&stateful.spec) {
            true => Ok(stateful),
            false => Err(SessionFault::ForeignState.into()),
        }
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
