//! Models that run as a whole.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyList};
use sterna::{
    AsDynView, AsDynViewMut, DynViewMut, FpMath, FpMathMode, LogicalTensor, Model, ModelPort, Session,
    SessionOutputs, SessionState, StateLink,
};

use crate::custom::{Failure, PythonOp};
use crate::describe::{dims_of, ports_of};
use crate::engine::{PyEngine, engine_of, parsed};
use crate::error::{named, of_class, raised};
use crate::foreign::{Access, Operand, owned_array, write_all};
use crate::mapping::{ByName, Pairs};
use crate::profile::{arena_of, spans_of};
use crate::reader::{Source, read, reading};
use crate::run::detached;
use crate::state::{PyState, link_of};

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
    links: Vec<StateLink>,
}

/// The options with which a session is made of a model.
pub(crate) struct SessionOptions<'py> {
    pub(crate) ops: Option<Pairs<'py>>,
    pub(crate) states: Option<Bound<'py, PyAny>>,
    pub(crate) fpmath: Option<Bound<'py, PyAny>>,
    pub(crate) fallback: bool,
    pub(crate) engine: Option<Py<PyEngine>>,
    pub(crate) shapes: Option<usize>,
    pub(crate) arenas: usize,
}

/// A mode, or a pair of a mode and whether it holds for integers too.
fn fpmath_of(given: &Bound<'_, PyAny>) -> PyResult<FpMath> {
    let mode = |word: &str| Ok(FpMath::new(parsed::<FpMathMode>(word)?));
    match given.extract::<(String, bool)>() {
        Ok((word, apply_to_int)) => Ok(mode(&word)?.apply_to_int(apply_to_int)),
        Err(_) => mode(&given.extract::<String>()?),
    }
}

/// The session of a model with options.
pub(crate) fn session_of(py: Python<'_>, model: Model, options: &SessionOptions<'_>) -> PyResult<PySession> {
    let failure = Failure::default();
    let links = match &options.states {
        None => Vec::new(),
        Some(states) => match states.extract::<bool>() {
            Ok(true) => StateLink::find(&model),
            Ok(false) => Vec::new(),
            Err(_) => states.try_iter()?.map(|link| link_of(&link?)).collect::<PyResult<_>>()?,
        },
    };
    let mut builder = Session::builder(model).fallback(options.fallback);
    builder = builder.arenas(options.arenas);
    if let Some(shapes) = options.shapes {
        builder = builder.shapes(shapes);
    }
    for (name, function) in options.ops.iter().flat_map(Pairs::iter) {
        if !function.is_callable() {
            let message =
                format!("the op {name} is a {}, not a function", crate::foreign::class_of(function));
            return Err(pyo3::exceptions::PyTypeError::new_err(message));
        }
        let op = PythonOp { function: function.clone().unbind(), failure: failure.clone() };
        builder = builder.op(name.extract::<String>()?, op);
    }
    if let Some(fpmath) = &options.fpmath {
        builder = builder.fpmath(fpmath_of(fpmath)?);
    }
    for link in &links {
        builder = builder.state(link.clone());
    }
    let engine = engine_of(options.engine.as_ref().map(|engine| engine.get()));
    let session = detached(py, || builder.build(&engine));
    let session = session.map_err(|error| with_cause(py, error, &failure))?;
    Ok(PySession { session, failure, links })
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
///     values: values of inputs by name, which become constants: of those that decide branches or shapes.
///     partial: True lets layers that cannot be mapped be ops of `ops`.
///     own_constants: True reads files instead of mapping them, so that they may change afterwards.
///     ops: functions by name, "domain::Name", for ops that Sterna does not run. A function takes arrays,
///         which are copies, and the attributes of its node by name; it gives an array, or a tuple of arrays.
///         If the model leaves their shapes open, the function is called once on zeros for each set of
///         shapes.
///     states: True finds caches by their names; or a list of pairs of names of an input and an output, or of
///         dicts with "past", "present", "axis", "capacity", "window", "fixed".
///     fpmath: how far arithmetic may be relaxed: "strict", "bf16", "f16", "tf32" or "any"; or a pair of that
///         and True, if integers may be computed so too.
///     fallback: True lets the slow reference interpreter run ops that no kernel runs.
///     engine: the engine; that of the `with` block unless given.
///     kept_shapes: sets of shapes whose plans are kept; 16 unless given, and more as long as they are small.
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
    source, *, shapes=None, dims=None, types=None, values=None, partial=false, own_constants=false, ops=None,
    states=None, fpmath=None, fallback=false, engine=None, kept_shapes=None, arenas=4
))]
#[allow(clippy::too_many_arguments, reason = "they are those of the call")]
pub(crate) fn load<'py>(
    py: Python<'py>,
    source: &Bound<'py, PyAny>,
    shapes: Option<ByName<Vec<i64>>>,
    dims: Option<ByName<i64>>,
    types: Option<ByName<Bound<'py, PyAny>>>,
    values: Option<ByName<Bound<'py, PyAny>>>,
    partial: bool,
    own_constants: bool,
    ops: Option<Pairs<'py>>,
    states: Option<Bound<'py, PyAny>>,
    fpmath: Option<Bound<'py, PyAny>>,
    fallback: bool,
    engine: Option<Py<PyEngine>>,
    kept_shapes: Option<usize>,
    arenas: usize,
) -> PyResult<PySession> {
    let partial = partial || ops.is_some();
    let reading = reading(shapes, dims, types, values, partial, own_constants)?;
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
    /// True for an output that a state takes.
    fn is_linked(&self, port: &ModelPort) -> bool {
        self.links.iter().any(|link| port.names.iter().any(|name| name == link.present()))
    }

    /// The arrays of a run as operands by name.
    fn inputs_of(&self, given: &Pairs<'_>) -> PyResult<Vec<(String, Operand)>> {
        let operand = |(name, value): (&Bound<'_, PyAny>, &Bound<'_, PyAny>)| {
            let name: String = name.extract()?;
            let wanted = port_named(self.session.inputs(), &name).map(|port| port.tensor.data_type());
            let operand =
                Operand::new(value, wanted, Access::Read).map_err(|error| named(value, &name, error))?;
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
        out: &Pairs<'py>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (mut targets, mut own) = (Vec::new(), BTreeMap::new());
        for (name, array) in out.iter() {
            let name: String = name.extract()?;
            let target =
                Operand::new(array, None, Access::Write).map_err(|error| named(array, &name, error))?;
            target.check_writable().map_err(|error| named(array, &name, error))?;
            own.insert(name.clone(), array);
            targets.push((name, target));
        }
        // With a state, the outputs that it links are none of the run's.
        let is_given = |port: &ModelPort| targets.iter().any(|(name, _)| port.names.contains(name));
        let has_state = state.is_some();
        let is_all =
            self.session.outputs().iter().all(|port| is_given(port) != (has_state && self.is_linked(port)));
        if is_all && targets.iter().all(|(_, target)| target.strides().is_none()) {
            self.run_into(py, inputs, state, &mut targets)?;
            return own.into_py_dict(py);
        }
        // Some outputs only, or with strides, which a run does not write: they are copied.
        let outputs = self.run_new(py, inputs, state)?;
        let shown = PyDict::new(py);
        let names: Vec<String> = outputs.iter().map(|(name, _)| name.to_owned()).collect();
        for (name, _) in &targets {
            let is_known = port_named(self.session.outputs(), name)
                .is_some_and(|port| names.iter().any(|name| port.name() == name));
            if !is_known {
                return Err(of_class(py, "SessionError", &format!("session: no output is called `{name}`")));
            }
        }
        for (name, tensor) in names.into_iter().zip(outputs.into_tensors()) {
            let port = port_named(self.session.outputs(), &name);
            let target =
                targets.iter_mut().find(|(own, _)| port.is_some_and(|port| port.names.contains(own)));
            match target {
                None => shown.set_item(&name, owned_array(py, tensor)?)?,
                Some((given, target)) => {
                    check_same(py, &name, target, tensor.desc())?;
                    write_all(py, target, &tensor.as_dyn_view())?;
                    shown.set_item(&*given, own.get(&**given))?;
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
        self.run(py, Pairs::of_arguments(inputs)?, None, None)
    }

    /// Runs the model.
    ///
    /// Args:
    ///     inputs: arrays by the names of the inputs. Numbers and lists take the type of the input.
    ///     out: arrays by the names of outputs that are written instead of new ones. If they are row-major
    ///         and all outputs, a run writes there itself; otherwise it copies.
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
    ///
    /// >>> import numpy as np, sterna
    /// >>> g = sterna.GraphBuilder()
    /// >>> g.output("y", g.relu(g.input("x", "f32", [None])))
    /// >>> session, y = g.build().session(), np.zeros(2, np.float32)
    /// >>> session.run({"x": [-1.0, 2.0]})["y"].tolist()
    /// [0.0, 2.0]
    /// >>> session.run({"x": [3.0, -4.0]}, out={"y": y})["y"] is y, y.tolist()
    /// (True, [3.0, 0.0])
    #[pyo3(signature = (inputs, *, out=None, state=None))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        inputs: Pairs<'py>,
        out: Option<Pairs<'py>>,
        state: Option<&PyState>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let inputs = self.inputs_of(&inputs)?;
        let mut locked = state.map(|state| state.lock(py)).transpose()?;
        let state = locked.as_deref_mut();
        match out {
            Some(out) => self.outputs_into(py, &inputs, state, &out),
            None => arrays(py, self.run_new(py, &inputs, state)?),
        }
    }

    /// As `run`, and says what the time was spent on.
    ///
    /// Args:
    ///     inputs, state: as in `run`.
    ///
    /// Returns:
    ///     The outputs, and a list of dicts, one for each span: "kind", "partition", "ops", "bytes",
    ///     "began" and "seconds". `pandas.DataFrame` takes it, and `columns` makes columns of it.
    ///
    /// Raises:
    ///     As `run`.
    ///
    /// >>> import numpy as np, sterna
    /// >>> g = sterna.GraphBuilder()
    /// >>> g.output("y", g.relu(g.input("x", "f32", [None])))
    /// >>> outputs, profile = g.build().session().run_profiled({"x": [-1.0, 2.0]})
    /// >>> [(span["ops"], span["bytes"]) for span in profile if span["kind"] == "execute"]
    /// [('ReLU', 16)]
    #[pyo3(signature = (inputs, *, state=None))]
    fn run_profiled<'py>(
        &self,
        py: Python<'py>,
        inputs: Pairs<'py>,
        state: Option<&PyState>,
    ) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyList>)> {
        let inputs = self.inputs_of(&inputs)?;
        let mut locked = state.map(|state| state.lock(py)).transpose()?;
        let state = locked.as_deref_mut();
        let ran = detached(py, || match state {
            Some(state) => self.session.run_with_state_profiled(state, &views(&inputs)),
            None => self.session.run_profiled(&views(&inputs)),
        });
        let (outputs, profile) = ran.map_err(|error| with_cause(py, error, &self.failure))?;
        Ok((arrays(py, outputs)?, spans_of(py, &profile)?))
    }

    /// The profile of the making of the plan of the shapes that ran last, as `run_profiled` gives it.
    ///
    /// >>> import numpy as np, sterna
    /// >>> g = sterna.GraphBuilder()
    /// >>> g.output("y", g.relu(g.input("x", "f32", [None])))
    /// >>> session = g.build().session()
    /// >>> session.plan_profile()
    /// []
    /// >>> outputs = session(x=np.ones(2, np.float32))
    /// >>> "compile" in {span["kind"] for span in session.plan_profile()}
    /// True
    fn plan_profile<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        match self.session.plan_profile() {
            Some(profile) => spans_of(py, &profile),
            None => Ok(PyList::empty(py)),
        }
    }

    /// The layout of the memory of a run of the shapes that ran last, or of the model if all of its shapes
    /// are known; None if neither is.
    ///
    /// Returns:
    ///     A dict with "bytes", "scratch", "steps", each a dict with "kind" and "ops", and "buffers", each a
    ///     dict with "tensors", "offset", "bytes", "first_step" and "last_step".
    ///
    /// >>> import sterna
    /// >>> g = sterna.GraphBuilder()
    /// >>> x = g.input("x", "f32", [64, 64])
    /// >>> g.output("y", g.matmul(g.matmul(x, x), x))
    /// >>> plan = g.build().session().arena_plan()
    /// >>> len(plan["steps"]), [buffer["bytes"] for buffer in plan["buffers"]]
    /// (2, [16384])
    fn arena_plan<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let plan = detached(py, || Ok(self.session.arena_plan()))?;
        plan.map(|plan| arena_of(py, &plan)).transpose()
    }

    /// The engine that runs the model.
    #[getter]
    fn engine(&self) -> PyEngine {
        PyEngine { engine: self.session.engine().clone() }
    }

    /// The inputs, each a dict with "name", "names", "dtype", "shape" (None for an open dim, or as a whole if
    /// the rank is not known) and "dim_names".
    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        ports_of(py, self.session.inputs())
    }

    /// The outputs, as `inputs`.
    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        ports_of(py, self.session.outputs())
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
    ///     state: a state of this session, in place of the inputs and outputs that it links. It gets room for
    ///         what such a run adds.
    ///
    /// Raises:
    ///     As `run`.
    ///
    /// >>> import sterna
    /// >>> g = sterna.GraphBuilder()
    /// >>> g.output("y", g.reduce_sum(g.input("x", "f32", [None, None]), axes=[0]))
    /// >>> g.build().session().output_shapes({"x": [3, 5]})
    /// {'y': (5,)}
    #[pyo3(signature = (shapes, *, state=None))]
    fn output_shapes<'py>(
        &self,
        py: Python<'py>,
        shapes: ByName<Vec<i64>>,
        state: Option<&PyState>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let given: Vec<(&str, &[i64])> =
            shapes.0.iter().map(|(name, dims)| (name.as_str(), dims.as_slice())).collect();
        let mut locked = state.map(|state| state.lock(py)).transpose()?;
        let (held, has_state) = (locked.as_deref_mut(), state.is_some());
        let descs = detached(py, || match held {
            Some(held) => self.session.output_descs_with_state(held, &given),
            None => self.session.output_descs(&given),
        });
        let descs = descs.map_err(|error| with_cause(py, error, &self.failure))?;
        let shown = PyDict::new(py);
        for (port, desc) in
            self.session.outputs().iter().filter(|port| !(has_state && self.is_linked(port))).zip(&descs)
        {
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
    ///
    /// >>> import numpy as np, sterna
    /// >>> g = sterna.GraphBuilder()
    /// >>> past, x = g.input("past", "f32", [None, 1]), g.input("x", "f32", [None, 1])
    /// >>> g.output("present", g.concat([past, x], axis=0))
    /// >>> session = g.build().session(states=[("past", "present")])
    /// >>> state = session.new_state()
    /// >>> len(state), state.capacity
    /// (0, 0)
    #[pyo3(signature = (dims=None))]
    fn new_state(&self, py: Python<'_>, dims: Option<ByName<Vec<i64>>>) -> PyResult<PyState> {
        let dims = dims.unwrap_or_default().0;
        let given: Vec<(&str, &[i64])> =
            dims.iter().map(|(name, dims)| (name.as_str(), dims.as_slice())).collect();
        let state = self.session.new_state(&given).map_err(|error| raised(py, error))?;
        Ok(PyState::of(state))
    }

    fn __repr__(&self) -> String {
        let names = |ports: &[ModelPort]| {
            ports.iter().map(|port| port.name().to_owned()).collect::<Vec<_>>().join(", ")
        };
        format!("Session({} -> {})", names(self.session.inputs()), names(self.session.outputs()))
    }
}
