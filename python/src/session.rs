//! Models that run as a whole.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use sterna::{
    AsDynView, AsDynViewMut, DynViewMut, FpMath, FpMathMode, LogicalTensor, Model, ModelPort, RunProfile,
    Session, SessionOutputs, SessionState, StateLink,
};

use crate::custom::{Failure, PythonOp};
use crate::describe::{dims_of, port_of};
use crate::engine::{PyEngine, engine_of, parsed};
use crate::error::{of_class, raised};
use crate::foreign::{Access, Operand, copied, owned_array, write_all};
use crate::reader::{Source, read, reading};
use crate::run::detached;

/// A model that runs as a whole, on arrays of any shapes that it allows.
///
/// `load` makes one of a file, `Graph.session` of a graph. Any number of threads may run it at once.
///
/// >>> import numpy as np, sterna
/// >>> g = sterna.GraphBuilder()
/// >>> x = g.input("x", "f32", [None, 2])
/// >>> g.output("y", g.relu(x) * 2.0)
/// >>> s = g.build().session()
/// >>> s(x=np.array([[-1.0, 3.0]], np.float32))["y"]
/// array([[0., 6.]], dtype=float32)
#[pyclass(frozen, module = "sterna", name = "Session")]
pub(crate) struct PySession {
    session: Session,
    failure: Failure,
}

/// The options with which a session is made of a model.
pub(crate) struct SessionOptions<'py> {
    pub(crate) ops: Option<Bound<'py, PyDict>>,
    pub(crate) states: Option<Bound<'py, PyAny>>,
    pub(crate) fpmath: Option<String>,
    pub(crate) fallback: bool,
    pub(crate) engine: Option<Py<PyEngine>>,
    pub(crate) shapes: usize,
    pub(crate) arenas: usize,
}

/// The session of a model with options.
pub(crate) fn session_of(py: Python<'_>, model: Model, options: &SessionOptions<'_>) -> PyResult<PySession> {
    let failure = Failure::default();
    let mut builder = Session::builder(model).fallback(options.fallback);
    builder = builder.shapes(options.shapes).arenas(options.arenas);
    for (name, function) in options.ops.iter().flatten() {
        if !function.is_callable() {
            let message =
                format!("the op {name} is a {}, not a function", crate::foreign::class_of(&function));
            return Err(pyo3::exceptions::PyTypeError::new_err(message));
        }
        let op = PythonOp { function: function.unbind(), failure: failure.clone() };
        builder = builder.op(name.extract::<String>()?, op);
    }
    if let Some(mode) = &options.fpmath {
        builder = builder.fpmath(FpMath::new(parsed::<FpMathMode>(mode)?));
    }
    match &options.states {
        None => {}
        Some(states) if states.extract::<bool>().is_ok_and(|find| find) => builder = builder.find_states(),
        Some(states) if states.extract::<bool>().is_ok() => {}
        Some(states) => {
            for link in states.try_iter()? {
                builder = builder.state(link_of(&link?)?);
            }
        }
    }
    let engine = engine_of(options.engine.as_ref().map(|engine| engine.get()));
    let session = detached(py, || builder.build(&engine));
    let session = session.map_err(|error| with_cause(py, error, &failure))?;
    Ok(PySession { session, failure })
}

/// A link of a state: a pair of names, or a dict with `past`, `present`, and `axis`, `capacity`, `window`.
fn link_of(given: &Bound<'_, PyAny>) -> PyResult<StateLink> {
    if let Ok((past, present)) = given.extract::<(String, String)>() {
        return Ok(StateLink::new(past, present));
    }
    let given = given.cast::<PyDict>().map_err(|_| {
        pyo3::exceptions::PyTypeError::new_err(
            "a state is a pair of names, or a dict with `past` and `present`",
        )
    })?;
    let (mut past, mut present, mut set) = (String::new(), String::new(), Vec::new());
    for (name, value) in given {
        match name.extract::<&str>()? {
            "past" => past = value.extract()?,
            "present" => present = value.extract()?,
            "axis" | "capacity" | "window" if value.is_none() => {}
            name @ ("axis" | "capacity" | "window") => set.push((name.to_owned(), value.extract::<i64>()?)),
            other => {
                let message = format!("a state has no {other:?}");
                return Err(pyo3::exceptions::PyTypeError::new_err(message));
            }
        }
    }
    let mut link = StateLink::new(past, present);
    for (name, value) in set {
        let rows = usize::try_from(value).unwrap_or(0);
        link = match &*name {
            "axis" => link.axis(value),
            "capacity" => link.capacity(rows),
            _ => link.window(rows),
        };
    }
    Ok(link)
}

/// The error of a run, with the exception of the function that failed as its cause.
fn with_cause(py: Python<'_>, error: PyErr, failure: &Failure) -> PyErr {
    let cause = failure.lock().unwrap_or_else(PoisonError::into_inner).take();
    match cause {
        // An interrupt is no fault of the run.
        Some(cause) if !cause.is_instance_of::<PyException>(py) => cause,
        cause => {
            if cause.is_some() {
                error.set_cause(py, cause);
            }
            error
        }
    }
}

/// Reads a model and makes a session of it.
///
/// Args:
///     source: the path of a model of ONNX, of OpenVINO (.xml with its .bin beside it) or of a graph in JSON;
///         or the bytes of a model of ONNX or of JSON.
///     shapes: shapes of inputs by name, in place of those in the file.
///     dims: lengths of open dims by name.
///     types: types of inputs by name, if the file says none.
///     partial: True lets layers that cannot be mapped be ops of `ops`.
///     own_constants: True reads files instead of mapping them, so that they may change afterwards.
///     ops: functions by name, "domain::Name", for ops that Sterna does not run. A function takes arrays,
///         which are copies, and the attributes of its node by name; it gives an array, or a tuple of arrays.
///         If the model leaves their shapes open, the function is called once on zeros for each set of
///         shapes.
///     states: True finds caches by their names; or a list of pairs of names of an input and an output, or of
///         dicts with "past", "present", "axis", "capacity", "window".
///     fpmath: how far arithmetic may be relaxed: "strict", "bf16", "f16", "tf32" or "any".
///     fallback: True lets the slow reference interpreter run ops that no kernel runs.
///     engine: the engine; that of the `with` block unless given.
///     kept_shapes: sets of shapes whose plans are kept.
///     arenas: blocks of memory that are kept for later runs.
///
/// Raises:
///     ModelError: if the file cannot be read.
///     JsonError: if a graph in JSON is not well formed.
///     SessionError: if nothing runs an op, and for states that the model does not fit.
///
/// >>> import sterna
/// >>> sterna.load(b"no model")
/// Traceback (most recent call last):
///     ...
/// sterna.ModelError: ...
#[pyfunction]
#[pyo3(signature = (
    source, *, shapes=None, dims=None, types=None, partial=false, own_constants=false, ops=None, states=None,
    fpmath=None, fallback=false, engine=None, kept_shapes=16, arenas=4
))]
#[allow(clippy::too_many_arguments, reason = "they are those of the call")]
pub(crate) fn load<'py>(
    py: Python<'py>,
    source: &Bound<'py, PyAny>,
    shapes: Option<BTreeMap<String, Vec<i64>>>,
    dims: Option<BTreeMap<String, i64>>,
    types: Option<BTreeMap<String, Bound<'py, PyAny>>>,
    partial: bool,
    own_constants: bool,
    ops: Option<Bound<'py, PyDict>>,
    states: Option<Bound<'py, PyAny>>,
    fpmath: Option<String>,
    fallback: bool,
    engine: Option<Py<PyEngine>>,
    kept_shapes: usize,
    arenas: usize,
) -> PyResult<PySession> {
    let partial = partial || ops.is_some();
    let reading = reading(shapes, dims, types, partial, own_constants)?;
    let model = match read(py, source, &reading)? {
        Source::Graph(graph) => detached(py, || Model::new(*graph))?,
        Source::File(file) => detached(py, || Model::try_from(*file))?,
    };
    let shapes = kept_shapes;
    session_of(py, model, &SessionOptions { ops, states, fpmath, fallback, engine, shapes, arenas })
}

/// The type of a port by one of its names.
fn port_named<'a>(ports: &'a [ModelPort], name: &str) -> Option<&'a ModelPort> {
    ports.iter().find(|port| port.names.iter().any(|own| own == name))
}

impl PySession {
    /// The arrays of a run as operands by name.
    fn inputs_of(&self, given: &Bound<'_, PyDict>) -> PyResult<Vec<(String, Operand)>> {
        let operand = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            let name: String = name.extract()?;
            let wanted = port_named(self.session.inputs(), &name).map(|port| port.tensor.data_type());
            let operand =
                Operand::new(&value, wanted, Access::Read).map_err(|error| named(&value, &name, error))?;
            Ok((name, operand))
        };
        given.iter().map(operand).collect()
    }

    /// Runs on operands; gives new memory.
    fn run_new(
        &self,
        py: Python<'_>,
        inputs: &[(String, Operand)],
        state: Option<&mut SessionState>,
    ) -> PyResult<SessionOutputs> {
        let outputs = detached(py, || {
            let views = views(inputs);
            match state {
                Some(state) => self.session.run_with_state(state, &views),
                None => self.session.run(&views),
            }
        });
        outputs.map_err(|error| with_cause(py, error, &self.failure))
    }

    /// Runs into memory of the caller's.
    fn run_into(
        &self,
        py: Python<'_>,
        inputs: &[(String, Operand)],
        state: Option<&mut SessionState>,
        targets: &mut [(String, Operand)],
    ) -> PyResult<()> {
        let mut views_mut = Vec::with_capacity(targets.len());
        for (name, target) in targets.iter_mut() {
            views_mut.push((name.as_str(), target.view_mut()?));
        }
        let done = detached(py, || {
            let mut outputs: Vec<(&str, &mut dyn AsDynViewMut)> = views_mut
                .iter_mut()
                .map(|(name, view): &mut (&str, DynViewMut<'_>)| (*name, view as _))
                .collect();
            match state {
                Some(state) => self.session.run_with_state_into(state, &views(inputs), &mut outputs),
                None => self.session.run_into(&views(inputs), &mut outputs),
            }
        });
        done.map_err(|error| with_cause(py, error, &self.failure))
    }

    fn outputs_into<'py>(
        &self,
        py: Python<'py>,
        inputs: &[(String, Operand)],
        state: Option<&mut SessionState>,
        out: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let mut targets = Vec::with_capacity(out.len());
        for (name, array) in out {
            let name: String = name.extract()?;
            let target =
                Operand::new(&array, None, Access::Write).map_err(|error| named(&array, &name, error))?;
            target.check_writable().map_err(|error| named(&array, &name, error))?;
            targets.push((name, target));
        }
        let names = |port: &ModelPort| targets.iter().any(|(name, _)| port.names.contains(name));
        let is_all = state.is_none() && self.session.outputs().iter().all(names);
        if is_all && targets.iter().all(|(_, target)| target.strides().is_none()) {
            self.run_into(py, inputs, None, &mut targets)?;
            return Ok(out.clone());
        }
        // Some outputs only, or with strides, which a run does not write: they are copied.
        let outputs = self.run_new(py, inputs, state)?;
        let shown = PyDict::new(py);
        let own: Vec<String> = outputs.iter().map(|(name, _)| name.to_owned()).collect();
        for (name, _) in &targets {
            let is_known = port_named(self.session.outputs(), name)
                .is_some_and(|port| own.iter().any(|own| port.name() == own));
            if !is_known {
                return Err(of_class(py, "SessionError", &format!("session: no output is called `{name}`")));
            }
        }
        for (name, tensor) in own.into_iter().zip(outputs.into_tensors()) {
            let port = port_named(self.session.outputs(), &name);
            let target =
                targets.iter_mut().find(|(own, _)| port.is_some_and(|port| port.names.contains(own)));
            match target {
                None => shown.set_item(&name, owned_array(py, tensor)?)?,
                Some((given, target)) => {
                    check_same(py, &name, target, tensor.desc())?;
                    write_all(py, target, &tensor.as_dyn_view())?;
                    shown.set_item(&*given, out.get_item(&*given)?)?;
                }
            }
        }
        Ok(shown)
    }
}

/// Checks that memory for an output has its type and dims.
fn check_same(py: Python<'_>, name: &str, target: &Operand, desc: &LogicalTensor) -> PyResult<()> {
    let name = name.to_owned();
    let (expected, given) = (desc.data_type(), target.data_type());
    if expected != given {
        return Err(raised(py, sterna::SessionFault::Type { what: "output", name, expected, given }.into()));
    }
    if desc.dims() != Some(target.dims()) {
        let expected = desc.dims().unwrap_or_default().iter().map(|&dim| Some(dim)).collect();
        let given = target.dims().to_vec();
        return Err(raised(py, sterna::SessionFault::Dims { what: "output", name, expected, given }.into()));
    }
    Ok(())
}

fn views(inputs: &[(String, Operand)]) -> Vec<(&str, &dyn AsDynView)> {
    inputs.iter().map(|(name, operand)| (name.as_str(), operand as &dyn AsDynView)).collect()
}

/// The error of an array with the name of its port before it.
fn named(object: &Bound<'_, PyAny>, name: &str, error: PyErr) -> PyErr {
    let py = object.py();
    let is_of_array = py.import("sterna._errors").and_then(|errors| errors.getattr("ArrayError"));
    match is_of_array.is_ok_and(|class| error.value(py).is_instance(&class).unwrap_or(false)) {
        true => {
            let named = of_class(py, "ArrayError", &format!("`{name}`: {}", error.value(py)));
            named.set_cause(py, error.cause(py));
            named
        }
        false => error,
    }
}

/// The arrays of outputs by name.
fn arrays<'py>(py: Python<'py>, outputs: SessionOutputs) -> PyResult<Bound<'py, PyDict>> {
    let shown = PyDict::new(py);
    let names: Vec<String> = outputs.iter().map(|(name, _)| name.to_owned()).collect();
    for (name, tensor) in names.into_iter().zip(outputs.into_tensors()) {
        shown.set_item(name, owned_array(py, tensor)?)?;
    }
    Ok(shown)
}

#[pymethods]
impl PySession {
    /// Runs the model on arrays by the names of its inputs.
    ///
    /// Returns:
    ///     A dict of new NumPy arrays by the names of the outputs.
    ///
    /// Raises:
    ///     As `run`.
    #[pyo3(signature = (**inputs))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        inputs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        match inputs {
            Some(inputs) => self.run(py, inputs, None, None),
            None => self.run(py, &PyDict::new(py), None, None),
        }
    }

    /// Runs the model.
    ///
    /// Args:
    ///     inputs: arrays by the names of the inputs. Numbers and lists take the type of the input.
    ///     out: arrays by the names of outputs that are written instead of new ones. All outputs, row-major,
    ///         and no state: a run writes there itself; otherwise it copies.
    ///     state: a state of this session, in place of the inputs and outputs that it links.
    ///
    /// Returns:
    ///     A dict of arrays by the names of the outputs.
    ///
    /// Raises:
    ///     SessionError: for names and types that are not those of the model, and if a function of `ops`
    ///         raises, whose exception is the cause.
    ///     ShapeError: for shapes that are not those of the model, or contradict its ops.
    ///     ArrayError: for an object that is no array, and for an `out` that is read-only.
    ///     ExecuteError: for an index of a lookup that is out of range.
    #[pyo3(signature = (inputs, *, out=None, state=None))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyDict>,
        out: Option<&Bound<'py, PyDict>>,
        state: Option<&PyState>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let inputs = self.inputs_of(inputs)?;
        let mut locked = state.map(|state| state.lock(py)).transpose()?;
        let state = locked.as_deref_mut();
        match out {
            Some(out) => self.outputs_into(py, &inputs, state, out),
            None => arrays(py, self.run_new(py, &inputs, state)?),
        }
    }

    /// As `run`, and says what the time was spent on.
    ///
    /// Returns:
    ///     The outputs, and a list of dicts, one for each span: "kind", "partition", "ops", "bytes",
    ///     "began" and "seconds". `pandas.DataFrame` takes it.
    fn run_profiled<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyDict>,
    ) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyList>)> {
        let inputs = self.inputs_of(inputs)?;
        let ran = detached(py, || self.session.run_profiled(&views(&inputs)));
        let (outputs, profile) = ran.map_err(|error| with_cause(py, error, &self.failure))?;
        Ok((arrays(py, outputs)?, spans(py, &profile)?))
    }

    /// The profile of the making of the plan of the shapes that ran last, as `run_profiled` gives it.
    fn plan_profile<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        match self.session.plan_profile() {
            Some(profile) => spans(py, &profile),
            None => Ok(PyList::empty(py)),
        }
    }

    /// The inputs, each a dict with "name", "names", "dtype", "shape" (None for an open dim, or as a whole if
    /// the rank is not known) and "dim_names".
    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.session.inputs().iter().map(|port| port_of(py, port)).collect()
    }

    /// The outputs, as `inputs`.
    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.session.outputs().iter().map(|port| port_of(py, port)).collect()
    }

    /// Bytes of memory of a run on inputs of the shapes that ran last.
    #[getter]
    fn run_memory(&self) -> usize {
        self.session.run_memory()
    }

    /// Bytes that the partitions of such a run read and write.
    #[getter]
    fn bytes_moved(&self) -> usize {
        self.session.bytes_moved()
    }

    /// The numbers of partitions and of functions of `ops` that such a run executes.
    #[getter]
    fn run_steps(&self) -> (usize, usize) {
        self.session.run_steps()
    }

    /// The shapes of the outputs of a run on row-major inputs of some shapes, by name. Nothing runs.
    ///
    /// Args:
    ///     shapes: shapes by the names of the inputs.
    ///
    /// Raises:
    ///     As `run`.
    fn output_shapes<'py>(
        &self,
        py: Python<'py>,
        shapes: BTreeMap<String, Vec<i64>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let given: Vec<(&str, &[i64])> =
            shapes.iter().map(|(name, dims)| (name.as_str(), dims.as_slice())).collect();
        let descs = detached(py, || self.session.output_descs(&given))?;
        let shown = PyDict::new(py);
        for (port, desc) in self.session.outputs().iter().zip(&descs) {
            shown.set_item(port.name(), dims_of(py, desc)?)?;
        }
        Ok(shown)
    }

    /// An empty state for one sequence of runs, of a session that was made with `states`.
    ///
    /// Args:
    ///     dims: shapes of tensors of the state by the names of the inputs, if the model leaves them open;
    ///         the number along the axis is that of rows to make room for.
    ///
    /// Raises:
    ///     SessionError: if the session has no states, and for names and dims that are not those of the
    ///         model.
    #[pyo3(signature = (dims=None))]
    fn new_state(&self, py: Python<'_>, dims: Option<BTreeMap<String, Vec<i64>>>) -> PyResult<PyState> {
        let dims = dims.unwrap_or_default();
        let given: Vec<(&str, &[i64])> =
            dims.iter().map(|(name, dims)| (name.as_str(), dims.as_slice())).collect();
        let state = self.session.new_state(&given).map_err(|error| raised(py, error))?;
        Ok(PyState { state: Mutex::new(state) })
    }

    fn __repr__(&self) -> String {
        let names = |ports: &[ModelPort]| {
            ports.iter().map(|port| port.name().to_owned()).collect::<Vec<_>>().join(", ")
        };
        format!("Session({} -> {})", names(self.session.inputs()), names(self.session.outputs()))
    }
}

/// The spans of a profile as dicts.
fn spans<'py>(py: Python<'py>, profile: &RunProfile) -> PyResult<Bound<'py, PyList>> {
    let span = |span: &sterna::RunSpan| {
        let shown = PyDict::new(py);
        shown.set_item("kind", span.kind.name())?;
        shown.set_item("partition", span.partition)?;
        let ops: Vec<String> = span.ops.iter().map(|op| op.kind.name().to_owned()).collect();
        shown.set_item("ops", ops.join(" "))?;
        shown.set_item("bytes", span.bytes)?;
        shown.set_item("began", span.began.saturating_duration_since(profile.began).as_secs_f64())?;
        shown.set_item("seconds", span.duration.as_secs_f64())?;
        Ok(shown)
    };
    PyList::new(py, profile.spans.iter().map(span).collect::<PyResult<Vec<_>>>()?)
}

/// The state of one sequence of runs, such as the keys and values of the tokens so far.
///
/// `Session.new_state` makes one. It serves one run at a time; what it is asked meanwhile is an error.
///
/// >>> import numpy as np, sterna
/// >>> g = sterna.GraphBuilder()
/// >>> past, x = g.input("past", "f32", [None, 2]), g.input("x", "f32", [None, 2])
/// >>> rows = g.concat([past, x], axis=0)
/// >>> g.output("present", rows)
/// >>> g.output("sum", g.reduce_sum(rows, axes=[0]))
/// >>> s = g.build().session(states=[("past", "present")])
/// >>> state = s.new_state()
/// >>> for row in ([1.0, 2.0], [3.0, 4.0]):
/// ...     outputs = s.run({"x": [row]}, state=state)
/// >>> outputs["sum"], len(state)
/// (array([4., 6.], dtype=float32), 2)
#[pyclass(frozen, module = "sterna", name = "State")]
pub(crate) struct PyState {
    state: Mutex<SessionState>,
}

impl PyState {
    /// The state, unless a run has it. To wait for that could be to wait for oneself.
    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, SessionState>> {
        match self.state.try_lock() {
            Ok(state) => Ok(state),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                Err(of_class(py, "SessionError", "session: the state is in use by a run"))
            }
        }
    }
}

#[pymethods]
impl PyState {
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.lock(py)?.len())
    }

    fn __bool__(&self) -> bool {
        true
    }

    /// Rows for which there is memory.
    #[getter]
    fn capacity(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.lock(py)?.capacity())
    }

    /// Bytes of the memory of all tensors.
    #[getter]
    fn memory(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.lock(py)?.memory())
    }

    /// Drops all rows, and makes tensors that do not grow zeros.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.lock(py)?.reset();
        Ok(())
    }

    /// Drops the newest rows behind a length.
    fn trim(&self, py: Python<'_>, length: usize) -> PyResult<()> {
        self.lock(py)?.trim(length);
        Ok(())
    }

    /// A copy with memory of its own, for another sequence that starts alike.
    fn fork(&self, py: Python<'_>) -> PyResult<Self> {
        let state = self.lock(py)?.fork().map_err(|error| raised(py, error))?;
        Ok(Self { state: Mutex::new(state) })
    }

    /// A copy of a tensor of the state, by the name of the input.
    ///
    /// Raises:
    ///     SessionError: for a name that is none, and before its dims are known.
    fn get<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let state = self.lock(py)?;
        let view = state.get(name).map_err(|error| raised(py, error))?;
        copied(py, &view)
    }

    /// Sets a tensor of the state, by the name of the input: a prefix that was computed before.
    ///
    /// Raises:
    ///     SessionError, ShapeError: for a name, type or shape that is not that of the model.
    fn set(&self, py: Python<'_>, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let operand = Operand::new(value, None, Access::Read)?;
        self.lock(py)?.set(name, &operand).map_err(|error| raised(py, error))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let state = self.lock(py)?;
        Ok(format!("State(len={}, capacity={})", state.len(), state.capacity()))
    }
}
