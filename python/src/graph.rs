//! Graphs, their partitions, and what these are compiled to.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use sterna::{
    CompiledPartition, Engine, Graph, Layout, LogicalTensor, Model, ModelPort, Partition, Policy, Property,
    StateLink, TensorId,
};
use sterna_inspect::{Arena, Inspection};

use crate::describe::{explanation_of, op_of, ports_of, tensors_of};
use crate::dtype::type_named;
use crate::engine::{PyEngine, engine_of, parsed};
use crate::error::{of_class, raised, raised_by_reader};
use crate::foreign::{self, Access, Operand, new_array};
use crate::mapping::{ByName, Pairs};
use crate::reader::{Source, read, reading};
use crate::run::{detached, detached_untold};
use crate::session::{PySession, SessionOptions, session_of};
use crate::state::shown_link;

/// A graph of ops with names for its inputs and outputs.
///
/// `GraphBuilder.build` makes one, as do `from_json` and `read`. In a notebook it shows its ops and
/// partitions.
///
/// >>> import sterna
/// >>> g = sterna.GraphBuilder()
/// >>> x = g.input("x", "f32", [4])
/// >>> g.output("y", g.sqrt(g.exp(x)))
/// >>> graph = g.build()
/// >>> [op["kind"] for op in graph.ops]
/// ['Exp', 'Sqrt']
/// >>> [partition.accuracy for partition in graph.partitions()]
/// ['exact']
#[pyclass(frozen, module = "sterna", name = "Graph")]
pub(crate) struct PyGraph {
    named: Arc<NamedModel>,
}

/// A graph with the names of its inputs and outputs by tensor.
struct NamedModel {
    model: Model,
    names: BTreeMap<TensorId, String>,
}

impl PyGraph {
    pub(crate) fn of(model: Model) -> Self {
        let ports = model.inputs().iter().chain(model.outputs());
        let names = ports.map(|port| (port.tensor.id(), port.name().to_owned())).collect();
        Self { named: Arc::new(NamedModel { model, names }) }
    }

    fn model(&self) -> &Model {
        &self.named.model
    }
}

/// A drawing, made with the interpreter released.
fn drawn(py: Python<'_>, draw: impl FnOnce() -> anyhow::Result<String> + Send) -> PyResult<String> {
    detached(py, || Ok(draw()))?.map_err(|error| match error.downcast::<sterna::Error>() {
        Ok(error) => raised(py, error),
        Err(error) => of_class(py, "Error", &format!("{error:#}")),
    })
}

#[pymethods]
impl PyGraph {
    /// The graph that a text in oneDNN's JSON form describes. Inputs and outputs are called by the numbers of
    /// their tensors.
    ///
    /// Raises:
    ///     JsonError: with line and column, if the text is not well formed or lacks a part of an op.
    ///     GraphError: if the ops do not make a graph.
    ///
    /// >>> import sterna
    /// >>> g = sterna.GraphBuilder()
    /// >>> g.output("y", g.relu(g.input("x", "f32", [4])))
    /// >>> sterna.Graph.from_json(g.build().to_json())
    /// Graph(0 -> 1, 1 ops)
    #[staticmethod]
    fn from_json(py: Python<'_>, text: &str) -> PyResult<Self> {
        Ok(Self::of(detached(py, || Model::new(Graph::from_json(text)?))?))
    }

    /// The graph of a model in a file or in bytes, for the shapes that are given: what `load` runs, to look
    /// at.
    ///
    /// Args:
    ///     source, shapes, dims, types, values, partial, own_constants: as in `load`.
    ///
    /// Raises:
    ///     ModelError: if the file cannot be read.
    ///
    /// >>> import sterna
    /// >>> g = sterna.GraphBuilder()
    /// >>> g.output("y", g.relu(g.input("x", "f32", [4])))
    /// >>> [op["kind"] for op in sterna.Graph.read(g.build().to_json().encode()).ops]
    /// ['ReLU']
    #[staticmethod]
    #[pyo3(signature = (
        source, *, shapes=None, dims=None, types=None, values=None, partial=false, own_constants=false
    ))]
    #[allow(clippy::too_many_arguments, reason = "they are those of the call")]
    fn read(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        shapes: Option<ByName<Vec<i64>>>,
        dims: Option<ByName<i64>>,
        types: Option<ByName<Bound<'_, PyAny>>>,
        values: Option<ByName<Bound<'_, PyAny>>>,
        partial: bool,
        own_constants: bool,
    ) -> PyResult<Self> {
        let options = reading(shapes, dims, types, values, partial, own_constants)?;
        let model = match read(py, source, &options)? {
            Source::Graph(graph) => detached(py, || Model::new(*graph))?,
            Source::File(file) => {
                let imported = py.detach(|| file.import(&options));
                let imported = imported.map_err(|error| raised_by_reader(py, error))?;
                detached(py, || Model::try_from(imported))?
            }
        };
        Ok(Self::of(model))
    }

    /// The graph in oneDNN's JSON form, without names of inputs and values of constants.
    ///
    /// >>> import json, sterna
    /// >>> g = sterna.GraphBuilder()
    /// >>> g.output("y", g.relu(g.input("x", "f32", [4])))
    /// >>> [op["kind"] for op in json.loads(g.build().to_json())["graph"]]
    /// ['ReLU']
    fn to_json(&self) -> String {
        self.model().graph().to_json()
    }

    /// The ops, each a dict with "id", "kind", "name", "attributes", "inputs" and "outputs".
    #[getter]
    fn ops<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.model().graph().ops().iter().map(|op| op_of(py, op)).collect()
    }

    /// The inputs, each a dict with "name", "names", "dtype", "shape" and "dim_names".
    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        ports_of(py, self.model().inputs())
    }

    /// The outputs, as `inputs`.
    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        ports_of(py, self.model().outputs())
    }

    /// The partitions of the graph, in an order in which they can run.
    ///
    /// Args:
    ///     policy: "fusion" groups ops; "debug" gives one op each.
    ///
    /// Raises:
    ///     ValueError: for another policy.
    ///
    /// >>> import sterna
    /// >>> g = sterna.GraphBuilder()
    /// >>> g.output("y", g.sqrt(g.exp(g.input("x", "f32", [4]))))
    /// >>> graph = g.build()
    /// >>> len(graph.partitions()), len(graph.partitions("debug"))
    /// (1, 2)
    #[pyo3(signature = (policy="fusion"))]
    fn partitions(&self, py: Python<'_>, policy: &str) -> PyResult<Vec<PyPartition>> {
        let policy = parsed::<Policy>(policy)?;
        let partitions = detached(py, || self.model().graph().partitions(policy))?;
        let named = |partition| PyPartition { partition, policy, named: self.named.clone() };
        Ok(partitions.into_iter().map(named).collect())
    }

    /// The verdicts of every fusion on the ops: why two neighbours share a partition or do not.
    ///
    /// Returns:
    ///     A list of dicts with "fusion", "op", "neighbour", "verdict" ("matched", "no_match", "rejected" or
    ///     "slower") and "reason". `pandas.DataFrame` takes it.
    ///
    /// >>> import sterna
    /// >>> g = sterna.GraphBuilder()
    /// >>> g.output("y", g.sqrt(g.exp(g.input("x", "f32", [4]))))
    /// >>> {line["verdict"] for line in g.build().explain()} <= {"matched", "no_match", "rejected", "slower"}
    /// True
    fn explain<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let lines = detached(py, || self.model().graph().explain())?;
        PyList::new(py, lines.iter().map(|line| explanation_of(py, line)).collect::<PyResult<Vec<_>>>()?)
    }

    /// The states that the names of inputs and outputs tell, such as those of exported decoders: what
    /// `states=True` of `session` takes.
    ///
    /// Returns:
    ///     A list of dicts with "past" and "present", to which "axis", "capacity" and "window" may be added
    ///     for `states` of `session`, and "fixed" for a state that does not grow.
    ///
    /// >>> import sterna
    /// >>> g = sterna.GraphBuilder()
    /// >>> past, x = g.input("past_key_values.0.key", "f32", [None, 2]), g.input("x", "f32", [None, 2])
    /// >>> g.output("present.0.key", g.concat([past, x], axis=0))
    /// >>> g.build().find_states()
    /// [{'past': 'past_key_values.0.key', 'present': 'present.0.key'}]
    fn find_states<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        StateLink::find(self.model()).iter().map(|link| shown_link(py, link)).collect()
    }

    /// A session that runs the graph.
    ///
    /// Args:
    ///     ops, states, fpmath, fallback, engine, kept_shapes, arenas: as in `load`.
    ///
    /// Raises:
    ///     SessionError: if nothing runs an op, and for states that the graph does not fit.
    ///
    /// >>> import numpy as np, sterna
    /// >>> g = sterna.GraphBuilder()
    /// >>> g.output("y", g.relu(g.input("x", "f32", [None])))
    /// >>> session = g.build().session(engine=sterna.Engine(threads=1))
    /// >>> session(x=np.array([-1.0, 2.0], np.float32))["y"]
    /// array([0., 2.], dtype=float32)
    #[pyo3(signature = (
        *, ops=None, states=None, fpmath=None, fallback=false, engine=None, kept_shapes=None, arenas=4
    ))]
    #[allow(clippy::too_many_arguments, reason = "they are those of the call")]
    fn session<'py>(
        &self,
        py: Python<'py>,
        ops: Option<Pairs<'py>>,
        states: Option<Bound<'py, PyAny>>,
        fpmath: Option<Bound<'py, PyAny>>,
        fallback: bool,
        engine: Option<Py<PyEngine>>,
        kept_shapes: Option<usize>,
        arenas: usize,
    ) -> PyResult<PySession> {
        let shapes = kept_shapes;
        session_of(
            py,
            self.model().clone(),
            &SessionOptions { ops, states, fpmath, fallback, engine, shapes, arenas },
        )
    }

    /// The graph as `sterna inspect` draws it, with its partitions.
    ///
    /// Args:
    ///     form: "svg" for a picture; "html" for a page that shows the plan of a partition that is clicked;
    ///         "arena" for a picture of the memory of a run, as SVG; "dot" for Graphviz.
    ///
    /// Raises:
    ///     ValueError: for another form.
    ///
    /// >>> import sterna
    /// >>> g = sterna.GraphBuilder()
    /// >>> g.output("y", g.relu(g.input("x", "f32", [4])))
    /// >>> g.build().picture()[:5]
    /// '<?xml'
    #[pyo3(signature = (form="svg"))]
    fn picture(&self, py: Python<'_>, form: &str) -> PyResult<String> {
        if !["svg", "html", "arena", "dot"].contains(&form) {
            let message = format!("{form:?} is no form; there are \"svg\", \"html\", \"arena\" and \"dot\"");
            return Err(PyValueError::new_err(message));
        }
        let (model, engine) = (self.model(), engine_of(None));
        drawn(py, || {
            let inspection = Inspection::new(&titled(model), model, Policy::Fusion, &engine)?;
            let arena = || Arena::of(model, Policy::Fusion, &inspection);
            match form {
                "html" => sterna_inspect::page(&inspection, &arena()),
                "arena" => Ok(arena().svg()),
                "dot" => Ok(sterna_inspect::dot(&inspection)),
                _ => sterna_inspect::svg(&inspection),
            }
        })
    }

    /// The form in which a notebook shows it: its picture, and the plans of its partitions.
    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        let (model, engine) = (self.model(), engine_of(None));
        drawn(py, || {
            let inspection = Inspection::new(&titled(model), model, Policy::Fusion, &engine)?;
            sterna_inspect::notebook(&inspection)
        })
    }

    fn __repr__(&self) -> String {
        let names = |ports: &[ModelPort]| ports.iter().map(ModelPort::name).collect::<Vec<_>>().join(", ");
        let (inputs, outputs) = (names(self.model().inputs()), names(self.model().outputs()));
        format!("Graph({inputs} -> {outputs}, {} ops)", self.model().graph().ops().len())
    }
}

/// The title of a picture: the outputs and inputs of the graph.
fn titled(model: &Model) -> String {
    let names = |ports: &[ModelPort]| ports.iter().map(ModelPort::name).collect::<Vec<_>>().join(", ");
    format!("{} of {}", names(model.outputs()), names(model.inputs()))
}

/// A part of a graph that runs as one.
///
/// >>> import numpy as np, sterna
/// >>> g = sterna.GraphBuilder()
/// >>> x = g.input("x", "f32", [None])
/// >>> g.output("y", g.sqrt(x))
/// >>> partition = g.build().partitions()[0]
/// >>> compiled = partition.compile({"x": ("f32", [3])})
/// >>> compiled.execute({"x": np.array([1.0, 4.0, 9.0], np.float32)})["y"]
/// array([1., 2., 3.], dtype=float32)
#[pyclass(frozen, module = "sterna", name = "Partition")]
pub(crate) struct PyPartition {
    partition: Partition,
    /// The policy by which the graph was cut.
    policy: Policy,
    named: Arc<NamedModel>,
}

/// The tensor that a key names: by its number, or by its name in the graph.
fn port_of_key(
    ports: &[LogicalTensor],
    names: &BTreeMap<TensorId, String>,
    key: &Bound<'_, PyAny>,
) -> PyResult<TensorId> {
    let found = match key.cast::<PyString>() {
        Ok(name) => {
            let name = name.to_str()?;
            ports.iter().find(|port| names.get(&port.id()).is_some_and(|own| own == name))
        }
        Err(_) => {
            let id: usize = key.extract()?;
            ports.iter().find(|port| port.id() == id)
        }
    };
    found.map(LogicalTensor::id).ok_or_else(|| {
        let known: Vec<String> = ports.iter().map(|port| shown_name(names, port.id())).collect();
        of_class(key.py(), "PortError", &format!("port {key:?}: there are only {}", known.join(", ")))
    })
}

/// The name of a tensor, or else its number.
fn shown_name(names: &BTreeMap<TensorId, String>, id: TensorId) -> String {
    names.get(&id).cloned().unwrap_or_else(|| id.to_string())
}

/// The description of a tensor: an array, or a pair of a type and a shape, with strides as a third, and as a
/// fourth that it never changes.
fn desc_of(id: TensorId, given: &Bound<'_, PyAny>) -> PyResult<LogicalTensor> {
    let py = given.py();
    let desc = match given.cast::<PyTuple>() {
        Ok(parts) => {
            let data_type = type_named(&parts.get_item(0)?)?;
            let dims: Vec<i64> = parts.get_item(1)?.extract()?;
            match parts.len() {
                2 => LogicalTensor::strided(id, data_type, &dims),
                _ => LogicalTensor::with_strides(
                    id,
                    data_type,
                    &dims,
                    &parts.get_item(2)?.extract::<Vec<i64>>()?,
                ),
            }
        }
        Err(_) => Operand::new(given, None, Access::Read)?.desc(id.get()),
    };
    desc.map_err(|error| raised(py, error))
}

#[pymethods]
impl PyPartition {
    /// Its place among the partitions of the graph.
    #[getter]
    fn id(&self) -> usize {
        self.partition.id()
    }

    /// The ops, as those of `Graph.ops`.
    #[getter]
    fn ops<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.partition.ops().iter().map(|op| op_of(py, op)).collect()
    }

    /// The tensors that it takes, each a dict with "id", "dtype", "shape", "strides", "layout" and
    /// "property".
    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        tensors_of(py, self.partition.inputs())
    }

    /// The tensors that it gives, as `inputs`.
    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        tensors_of(py, self.partition.outputs())
    }

    /// True if it can be compiled.
    #[getter]
    fn is_supported(&self) -> bool {
        self.partition.is_supported()
    }

    /// Why it cannot be compiled; None if it can.
    #[getter]
    fn unsupported_reason(&self) -> Option<String> {
        self.partition.unsupported_reason()
    }

    /// "exact", "ordered" or "bounded"; None if it is not supported.
    #[getter]
    fn accuracy(&self) -> Option<&'static str> {
        self.partition.accuracy().map(|accuracy| accuracy.name())
    }

    /// Compiles the partition.
    ///
    /// Args:
    ///     inputs: descriptions of tensors by name or number, in place of those in the graph: arrays, or
    ///         tuples of a type, a shape and, if it is not row-major, strides in elements. True as a fourth
    ///         says that its elements never change: what a product makes of them is kept.
    ///     outputs: the same of results, whose layout else follows from the graph.
    ///     engine: the engine; that of the `with` block unless given.
    ///
    /// Raises:
    ///     CompileError: for a partition that is not supported, and for an input whose shape is not known.
    ///     ShapeError: if shapes do not fit together.
    ///     PortError: for a name or number that is no port.
    ///
    /// >>> import numpy as np, sterna
    /// >>> g = sterna.GraphBuilder()
    /// >>> g.output("y", g.relu(g.input("x", "f32", [None])))
    /// >>> compiled = g.build().partitions()[0].compile({"x": ("f32", [2])})
    /// >>> compiled.inputs[0]["shape"], compiled.bytes_moved
    /// ((2,), 16)
    #[pyo3(signature = (inputs=None, *, outputs=None, engine=None))]
    fn compile(
        &self,
        py: Python<'_>,
        inputs: Option<Pairs<'_>>,
        outputs: Option<Pairs<'_>>,
        engine: Option<&Bound<'_, PyEngine>>,
    ) -> PyResult<PyCompiledPartition> {
        let engine = engine_of(engine.map(|engine| engine.get()));
        let mut descs = self.descs_of(self.partition.inputs(), inputs)?;
        // Inputs that are not given are those of the graph; outputs follow.
        let given: Vec<TensorId> = descs.iter().map(LogicalTensor::id).collect();
        descs.extend(self.partition.inputs().iter().filter(|port| !given.contains(&port.id())).cloned());
        let wanted = self.descs_of(self.partition.outputs(), outputs)?;
        let compiled = detached(py, || {
            let outputs = self.partition.outputs().iter().map(|port| {
                if let Some(own) = wanted.iter().find(|desc| desc.id() == port.id()) {
                    return Ok(own.clone());
                }
                match given.is_empty() {
                    true => Ok(port.clone()),
                    false => LogicalTensor::with_layout(
                        port.id(),
                        port.data_type(),
                        None,
                        open_layout(port.layout()),
                    ),
                }
            });
            let outputs = outputs.collect::<sterna::Result<Vec<_>>>()?;
            self.partition.compile_for(&engine, &descs, &outputs)
        })?;
        let (partition, named) = (self.partition.clone(), self.named.clone());
        Ok(PyCompiledPartition { compiled, partition, engine, named })
    }

    /// The form in which a notebook shows it: its picture and, if the shapes are known, its plan.
    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        let (model, engine, id) = (&self.named.model, engine_of(None), self.partition.id());
        drawn(py, || {
            let title = format!("partition {id}");
            let inspection = Inspection::of_partition(&title, model, self.policy, &engine, id)?;
            sterna_inspect::notebook(&inspection)
        })
    }

    fn __repr__(&self) -> String {
        let kinds: Vec<&str> = self.partition.ops().iter().map(|op| op.kind().name()).collect();
        let supported = if self.partition.is_supported() { "" } else { ", not supported" };
        format!("Partition({}: {}{supported})", self.partition.id(), kinds.join(" "))
    }
}

impl PyPartition {
    /// The descriptions that are given for some of the ports.
    fn descs_of(&self, ports: &[LogicalTensor], given: Option<Pairs<'_>>) -> PyResult<Vec<LogicalTensor>> {
        let described = |(key, desc): (&Bound<'_, PyAny>, &Bound<'_, PyAny>)| {
            let id = port_of_key(ports, &self.named.names, key)?;
            let own = ports.iter().find(|port| port.id() == id);
            let property = match desc.cast::<PyTuple>() {
                Ok(parts) if parts.len() > 3 && parts.get_item(3)?.is_truthy()? => Property::Constant,
                _ => own.map_or(Property::Undef, LogicalTensor::property),
            };
            desc_of(id, desc)?.with_property(property).map_err(|error| raised(key.py(), error))
        };
        given.iter().flat_map(Pairs::iter).map(described).collect()
    }
}

/// The layout of an output whose dims follow: any, if the graph leaves it open.
fn open_layout(layout: &Layout) -> Layout {
    match layout {
        Layout::Any => Layout::Any,
        _ => Layout::Undef,
    }
}

/// A partition compiled for shapes and layouts, which runs on arrays any number of times, from any threads.
///
/// >>> import numpy as np, sterna
/// >>> g = sterna.GraphBuilder()
/// >>> g.output("y", g.square(g.input("x", "f32", [2])))
/// >>> compiled = g.build().partitions()[0].compile()
/// >>> compiled
/// CompiledPartition(f32 [2] -> f32 [2])
/// >>> compiled.execute({"x": np.array([2.0, 3.0], np.float32)})["y"]
/// array([4., 9.], dtype=float32)
#[pyclass(frozen, module = "sterna", name = "CompiledPartition")]
pub(crate) struct PyCompiledPartition {
    compiled: CompiledPartition,
    partition: Partition,
    engine: Engine,
    named: Arc<NamedModel>,
}

#[pymethods]
impl PyCompiledPartition {
    /// The tensors that it takes, with known shapes and strides.
    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        tensors_of(py, self.compiled.inputs())
    }

    /// The tensors that it gives, with known shapes and strides.
    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        tensors_of(py, self.compiled.outputs())
    }

    /// Pairs of the numbers of an input and an output that may be one array.
    #[getter]
    fn in_place_pairs(&self) -> Vec<(usize, usize)> {
        self.compiled.in_place_pairs().iter().map(|pair| (pair.input.get(), pair.output.get())).collect()
    }

    /// Bytes that an execution reads and writes.
    #[getter]
    fn bytes_moved(&self) -> usize {
        self.compiled.bytes_moved()
    }

    /// The plan as text: loops, steps, kernels, scratch, bytes.
    #[getter]
    fn plan(&self) -> String {
        self.compiled.plan().to_string()
    }

    /// Runs the partition.
    ///
    /// Args:
    ///     inputs: arrays by name or number, of the types, shapes and strides that it was compiled for.
    ///         Numbers and lists take the type of the port.
    ///     out: arrays by name or number that are written instead of new ones.
    ///
    /// Returns:
    ///     A dict of arrays by the names of the outputs, or by their numbers if they have none.
    ///
    /// Raises:
    ///     TensorError, ShapeError: for an array of another type, shape or strides.
    ///     PortError: for a name or number that is no port.
    ///     ExecuteError: for an input that is missing, an `out` that overlaps another tensor, and an index of
    ///         a lookup that is out of range.
    ///
    /// >>> import numpy as np, sterna
    /// >>> g = sterna.GraphBuilder()
    /// >>> g.output("y", g.relu(g.input("x", "f32", [None])))
    /// >>> x, y = np.array([-1.0, 2.0], np.float32), np.zeros(2, np.float32)
    /// >>> compiled = g.build().partitions()[0].compile({"x": x})
    /// >>> compiled.execute({"x": x}, out={"y": y})["y"] is y, y.tolist()
    /// (True, [0.0, 2.0])
    #[pyo3(signature = (inputs, *, out=None))]
    fn execute<'py>(
        &self,
        py: Python<'py>,
        inputs: Pairs<'py>,
        out: Option<Pairs<'py>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (compiled, names) = (&self.compiled, &self.named.names);
        let mut given: BTreeMap<TensorId, Operand> = BTreeMap::new();
        for (key, value) in inputs.iter() {
            let id = port_of_key(compiled.inputs(), names, key)?;
            let wanted = compiled.inputs().iter().find(|port| port.id() == id).map(LogicalTensor::data_type);
            given.insert(id, Operand::new(value, wanted, Access::Read)?);
        }
        let missing = |tensor: TensorId| {
            let direction = sterna::Direction::Input;
            raised(py, sterna::Error::Execute(sterna::ExecuteFault::Missing { direction, tensor }))
        };
        let operands: Vec<&Operand> = compiled
            .inputs()
            .iter()
            .map(|port| given.get(&port.id()).ok_or_else(|| missing(port.id())))
            .collect::<PyResult<_>>()?;
        let mut own: BTreeMap<TensorId, Bound<'py, PyAny>> = BTreeMap::new();
        for (key, value) in out.iter().flat_map(Pairs::iter) {
            own.insert(port_of_key(compiled.outputs(), names, key)?, value.clone());
        }
        let shown = PyDict::new(py);
        let mut targets = Vec::new();
        for port in compiled.outputs() {
            let (array, target) = match own.get(&port.id()) {
                Some(array) => {
                    let target = Operand::new(array, None, Access::Write)?;
                    target.check_writable()?;
                    (array.clone(), target)
                }
                None => new_array(py, port.data_type(), port.dims().unwrap_or_default(), port.strides())?,
            };
            match names.get(&port.id()) {
                Some(name) => shown.set_item(name, array)?,
                None => shown.set_item(port.id().get(), array)?,
            }
            targets.push(target);
        }
        detached(py, || foreign::execute(compiled, &operands, &mut targets))?;
        Ok(shown)
    }

    /// Runs the partition on memory by address, one for each of `inputs` and of `outputs`. Whoever calls it
    /// holds tensors of these types, shapes and strides there; nothing is checked but their number.
    fn _execute_at(&self, py: Python<'_>, inputs: Vec<usize>, outputs: Vec<usize>) -> PyResult<()> {
        let counts = (self.compiled.inputs().len(), self.compiled.outputs().len());
        if counts != (inputs.len(), outputs.len()) {
            return Err(PyValueError::new_err("there is one address for each input and each output"));
        }
        detached_untold(py, || foreign::execute_at(&self.compiled, &inputs, &outputs))
    }

    /// A number that tells memories apart by words from places spread over them, given as pairs of an address
    /// and a count of bytes. As for `_execute_at`, whoever calls it holds tensors there.
    #[staticmethod]
    fn _sampled(spans: Vec<(usize, usize)>) -> u64 {
        foreign::sampled(&spans)
    }

    /// The form in which a notebook shows it: its picture and its plan.
    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        let Self { compiled, partition, engine, named } = self;
        drawn(py, || {
            let title = format!("partition {}", partition.id());
            let inspection = Inspection::of_compiled(&title, &named.model, partition, compiled, engine);
            sterna_inspect::notebook(&inspection)
        })
    }

    fn __repr__(&self) -> String {
        let port =
            |port: &LogicalTensor| format!("{} {:?}", port.data_type(), port.dims().unwrap_or_default());
        let ports = |ports: &[LogicalTensor]| ports.iter().map(port).collect::<Vec<_>>().join(", ");
        format!("CompiledPartition({} -> {})", ports(self.compiled.inputs()), ports(self.compiled.outputs()))
    }
}
