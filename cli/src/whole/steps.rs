//! Steps of a model in one session, each on the state that the one before has left: the loop of a decoder.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail, ensure};
use sterna::{
    AsDynView, Engine, Error, Graph, LogicalTensor, Model, ModelPort, Session, SessionFault, SessionState,
    StateLink, TensorBuf, TensorId,
};

use super::{StepsReport, WholeEnded, WholeReport, memory};
use crate::args::RunArgs;
use crate::command_error::CommandError;
use crate::fill::Fills;
use crate::given::Given;
use crate::host::HostTensor;
use crate::latency::Latency;
use crate::names::PortScope;
use crate::parse::StateArg;
use crate::request::RunRequest;
use crate::source::Loaded;
use crate::trace::{PhaseSink, Trace, shares};
use crate::words::{listed, plain};

/// The most steps in a profile.
const PROFILED: usize = 10;

/// An input that is no state.
struct StepInput {
    name: String,
    /// Its place among the inputs of the model.
    place: usize,
    /// The dims at the first step.
    dims: Vec<i64>,
    /// The dim that grows with the state.
    grows: Option<usize>,
    given: Option<Given>,
}

/// A model in a session, and all that its steps take.
pub(crate) struct StepsRun<'a> {
    session: Session,
    state: SessionState,
    links: Vec<StateLink>,
    inputs: Vec<StepInput>,
    /// The tensors of the first step by the place of the input.
    tensors: BTreeMap<usize, LogicalTensor>,
    graph: Graph,
    fills: Fills,
    engine: &'a Engine,
    sink: Option<&'a PhaseSink>,
    /// Begun before the first plan, if there is a sink.
    trace: Option<Trace>,
    steps: u32,
    plan_seconds: f64,
}

impl<'a> StepsRun<'a> {
    /// Makes the session, its state, and the plan of the first step.
    pub(crate) fn new(
        args: &RunArgs,
        request: &RunRequest,
        loaded: &Loaded,
        model: Model,
        engine: &'a Engine,
        sink: Option<&'a PhaseSink>,
    ) -> Result<Self, CommandError> {
        let links = links(&args.state, &model).map_err(CommandError::usage)?;
        let links = fixed(links, args, loaded, &model).map_err(CommandError::usage)?;
        let mut trace = sink.map(|_| Trace::new());
        let began = Instant::now();
        let builder = Session::builder(model.clone()).fallback(true);
        let builder = links.iter().cloned().fold(builder, |builder, link| builder.state(link));
        let session = builder.build(engine).map_err(of_session)?;
        let plan_seconds = began.elapsed().as_secs_f64();
        let options = StepOptions { args, request, loaded, links: &links };
        let inputs = options.inputs(model.inputs()).map_err(CommandError::usage)?;
        let mut state = options.state(&session, engine)?;
        let dims: Vec<(&str, &[i64])> = inputs.iter().map(|input| (&*input.name, &*input.dims)).collect();
        session.output_descs_with_state(&mut state, &dims).map_err(CommandError::failed)?;
        for (trace, plan) in trace.iter_mut().zip(session.plan_profile()) {
            trace.plan(&plan);
        }
        let (graph, tensors) = first_step(&model, &inputs, &links, &state).map_err(CommandError::failed)?;
        let fills = request.fill.iter().filter_map(|(id, fill)| {
            let tensor = tensors.get(&id.get())?;
            Some((tensor.id(), fill.clone()))
        });
        let fills = Fills::new(&graph, BTreeMap::new(), fills.collect(), args.seed);
        let run = Self {
            session,
            state,
            links,
            inputs,
            tensors,
            graph,
            fills,
            engine,
            sink,
            trace,
            steps: args.steps,
            plan_seconds,
        };
        Ok(run)
    }

    /// The number of ops at the first step.
    pub(crate) fn ops(&self) -> usize {
        self.graph.ops().len()
    }

    /// True if a step gives a tensor: an output that is no state.
    pub(crate) fn gives(&self, id: TensorId) -> bool {
        let place = id.get().checked_sub(self.session.inputs().len());
        let port = place.and_then(|place| self.session.outputs().get(place));
        port.is_some_and(|port| !self.is_present(port))
    }

    /// Checks that tensors which options name are outputs of a step.
    pub(crate) fn check_outputs(
        &self,
        loaded: &Loaded,
        mut wanted: impl Iterator<Item = (&'static str, TensorId)>,
    ) -> Result<()> {
        match wanted.find(|(_, id)| !self.gives(*id)) {
            Some((option, id)) => {
                let name = loaded.names.shown(id);
                bail!("{option} names {name}, which is no output of a step, or stays in the state")
            }
            None => Ok(()),
        }
    }

    /// True if an output is the next value of a state.
    fn is_present(&self, port: &ModelPort) -> bool {
        self.links.iter().any(|link| port.names.iter().any(|name| name == link.present()))
    }

    /// Runs the steps; `tell` is given the report so far, every now and then.
    pub(crate) fn run(mut self, tell: &dyn Fn(WholeReport)) -> Result<WholeEnded, CommandError> {
        self.steps(tell).map_err(CommandError::failed)
    }

    fn steps(&mut self, tell: &dyn Fn(WholeReport)) -> Result<WholeEnded> {
        let mut trace = self.trace.take();
        let (mut seconds, mut profiles) = (Vec::new(), Vec::new());
        let (first_rows, mut outputs) = (self.state.len(), Vec::new());
        let mut tensors = self.filled(0, true)?;
        let began = Instant::now();
        let mut told = began;
        for step in 0..self.steps as usize {
            let grown = self.state.len() as i64 - first_rows as i64;
            if step > 0 {
                tensors.extend(self.filled(grown, false)?);
            }
            let given = tensors.iter().map(|(name, tensor)| Ok((name.as_str(), tensor.view()?)));
            let given = given.collect::<Result<Vec<(&str, &dyn AsDynView)>>>()?;
            let start = Instant::now();
            outputs = match (&mut trace, self.sink) {
                (Some(trace), Some(sink)) if step < PROFILED => {
                    sink.switch(true);
                    let (outputs, profile) = self.session.run_with_state_profiled(&mut self.state, &given)?;
                    seconds.push(start.elapsed().as_secs_f64());
                    sink.switch(false);
                    trace.run(step, &profile);
                    trace.phases(sink);
                    profiles.push(profile);
                    outputs.into_tensors()
                }
                _ => {
                    let outputs = self.session.run_with_state(&mut self.state, &given)?;
                    seconds.push(start.elapsed().as_secs_f64());
                    outputs.into_tensors()
                }
            };
            if told.elapsed().as_secs_f64() > 0.2 {
                tell(self.report(&seconds, &profiles)?);
                told = Instant::now();
            }
        }
        let report = self.report(&seconds, &profiles)?;
        Ok(WholeEnded { report, outputs: self.named(outputs), trace })
    }

    fn report(&self, seconds: &[f64], profiles: &[sterna::RunProfile]) -> Result<WholeReport> {
        let (first, rest) = seconds.split_first().context("nothing was timed")?;
        let (is_warm, timed) = if rest.is_empty() { (false, seconds) } else { (true, rest) };
        let (partitions, fallbacks) = self.session.run_steps();
        Ok(WholeReport {
            partitions,
            fallbacks,
            plan_seconds: self.plan_seconds,
            first_seconds: *first,
            streams: 1,
            runs: timed.len(),
            is_warm,
            latency: Latency::of(timed).context("nothing was timed")?,
            runs_per_second: timed.len() as f64 / timed.iter().sum::<f64>().max(1e-9),
            bytes_moved: self.session.bytes_moved(),
            run_memory: self.session.run_memory(),
            peak_memory: memory::peak(),
            steps: Some(StepsReport {
                steps: seconds.len(),
                rows: self.state.len(),
                state_memory: self.state.memory(),
            }),
            by_kind: shares(profiles.get(1..).filter(|rest| !rest.is_empty()).unwrap_or(profiles)),
        })
    }

    /// The inputs of a step by name, with as many rows as the state has gained: all, or those that grow.
    fn filled(&self, gained: i64, all: bool) -> Result<BTreeMap<String, HostTensor>> {
        let mut filled = BTreeMap::new();
        for input in self.inputs.iter().filter(|input| all || input.grows.is_some()) {
            let said = &self.tensors[&input.place];
            let mut dims = input.dims.clone();
            input.grows.into_iter().for_each(|axis| dims[axis] += gained);
            let desc = LogicalTensor::strided(said.id(), said.data_type(), &dims)?;
            let mut tensor = HostTensor::zeroed(&desc, self.engine)?;
            match &input.given {
                Some(given) => tensor.write(&given.value(&desc, &shown(&input.name))?)?,
                None => tensor.fill(&self.fills)?,
            }
            filled.insert(input.name.clone(), tensor);
        }
        Ok(filled)
    }

    /// The outputs of the last step, by their numbers among inputs and outputs of the model.
    fn named(&self, outputs: Vec<TensorBuf>) -> Vec<(TensorId, HostTensor)> {
        let places = self.session.outputs().iter().enumerate().filter(|(_, port)| !self.is_present(port));
        let ids = places.map(|(place, _)| TensorId::new(self.session.inputs().len() + place));
        ids.zip(outputs).map(|(id, output)| (id, HostTensor::of(output, id))).collect()
    }
}

/// Errors of names are errors of usage.
fn of_session(error: Error) -> CommandError {
    match &error {
        Error::Session(SessionFault::UnknownName { .. } | SessionFault::Link { .. }) => {
            CommandError::usage(anyhow!("--state: {error}"))
        }
        _ => CommandError::failed(error),
    }
}

/// The links that options name.
fn links(states: &[StateArg], model: &Model) -> Result<Vec<StateLink>> {
    let has =
        |ports: &[ModelPort], name: &str| ports.iter().any(|port| port.names.iter().any(|own| own == name));
    let mut links: Vec<StateLink> = Vec::new();
    for state in states {
        match state {
            StateArg::Auto => {
                let found = StateLink::find(model);
                if found.is_empty() {
                    let named = |ports: &[ModelPort]| listed(ports.iter().map(|port| shown(port.name())));
                    bail!(
                        "--state auto: no names tell a state; there are the inputs {} and the outputs {}",
                        named(model.inputs()),
                        named(model.outputs())
                    );
                }
                links.extend(found.into_iter().filter(|link| !links.contains(link)).collect::<Vec<_>>());
            }
            StateArg::Named(splits) => {
                let known = splits
                    .iter()
                    .find(|(past, present)| has(model.inputs(), past) && has(model.outputs(), present));
                // A session says which name is not there.
                let (past, present) = known.unwrap_or(&splits[0]);
                let link = StateLink::new(past, present);
                if !links.contains(&link) {
                    links.push(link);
                }
            }
        }
    }
    Ok(links)
}

/// The links, of which those are fixed whose dims --shape gives, none of them 0.
fn fixed(links: Vec<StateLink>, args: &RunArgs, loaded: &Loaded, model: &Model) -> Result<Vec<StateLink>> {
    let shapes = shapes(args, loaded)?;
    let has_dims = |link: &StateLink| {
        let is_past = |port: &ModelPort| port.names.iter().any(|name| name == link.past());
        let place = model.inputs().iter().position(is_past);
        place.and_then(|place| shapes.get(&place)).is_some_and(|dims| !dims.contains(&0))
    };
    Ok(links.into_iter().map(|link| if has_dims(&link) { link.fixed() } else { link }).collect())
}

/// The dims that --shape gives, by the place of the input.
fn shapes(args: &RunArgs, loaded: &Loaded) -> Result<BTreeMap<usize, Vec<i64>>> {
    let shapes = loaded.resolve("--shape", &args.source.options.shape, PortScope::Inputs)?;
    let mut dims = BTreeMap::new();
    for (id, edit) in shapes {
        ensure!(edit.layout.is_none(), "--shape gives no layout to inputs of steps");
        dims.extend(edit.dims.map(|of| (id.get(), of)));
    }
    Ok(dims)
}

/// The options about inputs.
struct StepOptions<'a> {
    args: &'a RunArgs,
    request: &'a RunRequest,
    loaded: &'a Loaded,
    links: &'a [StateLink],
}

impl StepOptions<'_> {
    fn is_state(&self, port: &ModelPort) -> bool {
        self.links.iter().any(|link| port.names.iter().any(|name| name == link.past()))
    }

    /// The inputs that are no state, with their dims at the first step.
    fn inputs(&self, ports: &[ModelPort]) -> Result<Vec<StepInput>> {
        let shapes = shapes(self.args, self.loaded)?;
        let grown =
            self.args.grow.iter().map(|name| self.loaded.names.find("--grow", name, PortScope::Inputs));
        let grown = grown.collect::<Result<Vec<TensorId>>>()?;
        if let Some(id) = grown.iter().find(|id| ports.get(id.get()).is_none_or(|port| self.is_state(port))) {
            bail!("--grow names {}, which is no input of a step", self.loaded.names.shown(*id));
        }
        let mut inputs = Vec::new();
        for (place, port) in ports.iter().enumerate() {
            let id = TensorId::new(place);
            let name = port.name().to_owned();
            if self.is_state(port) {
                if self.request.fill.iter().any(|(filled, _)| *filled == id) {
                    bail!("--fill names {}, which is a state; --input gives it rows", shown(&name));
                }
                continue;
            }
            let given = self.request.input.iter().find(|(of, _)| *of == id).map(|(_, given)| given.clone());
            let dims = match (shapes.get(&place), &given) {
                (Some(dims), _) => dims.clone(),
                (None, Some(given)) => given.description()?.1,
                (None, None) => self.said_dims(port)?,
            };
            let mut grows = None;
            if grown.contains(&id) {
                ensure!(given.is_none(), "--grow: {} has a value by --input; only fills grow", shown(&name));
                let open = port
                    .tensor
                    .partial_dims()
                    .map_or(dims.len().checked_sub(1), |said| said.iter().rposition(Option::is_none));
                let axis = open.filter(|axis| *axis < dims.len());
                grows = Some(axis.with_context(|| format!("--grow: {} has no open dim", shown(&name)))?);
            }
            inputs.push(StepInput { name, place, dims, grows, given });
        }
        Ok(inputs)
    }

    /// The dims of an input as the model and --dim say them.
    fn said_dims(&self, port: &ModelPort) -> Result<Vec<i64>> {
        let unknown = || {
            let name = plain(port.name());
            anyhow!("the shape of input `{name}` is not known; give it with --shape {name}=...")
        };
        let said = port.tensor.partial_dims().ok_or_else(unknown)?;
        let named = |axis: usize| {
            let name = port.dim_names.get(axis)?.as_ref()?;
            self.args.source.options.dims.iter().find(|(own, _)| own == name).map(|(_, length)| *length)
        };
        let dims = said.iter().enumerate().map(|(axis, dim)| dim.or_else(|| named(axis)));
        dims.collect::<Option<Vec<i64>>>().ok_or_else(unknown)
    }

    /// The state before the first step, with the rows that --input gives.
    fn state(&self, session: &Session, engine: &Engine) -> Result<SessionState, CommandError> {
        let shapes = shapes(self.args, self.loaded).map_err(CommandError::usage)?;
        let ports = || session.inputs().iter().enumerate().filter(|(_, port)| self.is_state(port));
        let said = ports().filter_map(|(place, port)| Some((port.name(), &**shapes.get(&place)?)));
        let said: Vec<(&str, &[i64])> = said.collect();
        let mut state = session.new_state(&said).map_err(CommandError::usage)?;
        for (place, port) in ports() {
            let given = self.request.input.iter().find(|(id, _)| id.get() == place);
            let Some((_, given)) = given else { continue };
            let set = given.description().and_then(|(_, dims)| {
                let desc = LogicalTensor::strided(place, port.tensor.data_type(), &dims)?;
                let mut tensor = HostTensor::zeroed(&desc, engine)?;
                tensor.write(&given.value(&desc, &shown(port.name()))?)?;
                Ok(state.set(port.name(), tensor.view()?)?)
            });
            set.map_err(CommandError::usage)?;
        }
        Ok(state)
    }
}

/// The graph of the first step, and the tensors of its inputs by their places in the model.
fn first_step(
    model: &Model,
    inputs: &[StepInput],
    links: &[StateLink],
    state: &SessionState,
) -> Result<(Graph, BTreeMap<usize, LogicalTensor>)> {
    let Some(source) = model.source() else {
        let tensors = model.inputs().iter().map(|port| port.tensor.clone()).enumerate();
        return Ok((model.graph().clone(), tensors.collect()));
    };
    let mut shapes: Vec<(String, Vec<i64>)> =
        inputs.iter().map(|input| (input.name.clone(), input.dims.clone())).collect();
    for link in links {
        let port = model.inputs().iter().find(|port| port.names.iter().any(|name| name == link.past()));
        let port = port.context("a state has no input")?;
        shapes.push((port.name().to_owned(), state.get(link.past())?.dims().to_vec()));
    }
    let shapes: Vec<(&str, &[i64])> = shapes.iter().map(|(name, dims)| (&**name, &**dims)).collect();
    let first = source.at(&shapes)?;
    let of_place = |(place, port): (usize, &ModelPort)| {
        let same = first.inputs().iter().find(|other| other.name() == port.name());
        (place, same.unwrap_or(port).tensor.clone())
    };
    let tensors = model.inputs().iter().enumerate().map(of_place).collect();
    Ok((first.into_graph(), tensors))
}

fn shown(name: &str) -> String {
    format!("`{}`", plain(name))
}
