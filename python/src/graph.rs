//! Graphs, their partitions, and what these are compiled to.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use sterna::{
    CompiledPartition, Graph, Layout, LogicalTensor, Model, ModelPort, Partition, Policy, Property, TensorId,
};

use crate::describe::{explanation_of, op_of, port_of, tensors_of};
use crate::dtype::type_named;
use crate::engine::{PyEngine, engine_of, parsed};
use crate::error::{of_class, raised, raised_by_reader};
use crate::foreign::{self, Access, Operand, new_array};
use crate::picture;
use crate::reader::{Source, read, reading};
use crate::run::detached;
use crate::session::{PySession, SessionOptions, session_of};

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
    pub(crate) model: Model,
}

#[pymethods]
impl PyGraph {
    /// The graph that a text in oneDNN's JSON form describes. Inputs and outputs are called by the numbers of
    /// their tensors.
    ///
    /// Raises:
    ///     JsonError: with line and column, if the text is not well formed or lacks a part of an op.
    ///     GraphError: if the ops do not make a graph.
    #[staticmethod]
    fn from_json(py: Python<'_>, text: &str) -> PyResult<Self> {
        Ok(Self { model: detached(py, || Model::new(Graph::from_json(text)?))? })
    }

    /// The graph of a model in a file or in bytes, for the shapes that are given: what `load` runs, to look
    /// at.
    ///
    /// Args:
    ///     source, shapes, dims, types, partial, own_constants: as in `load`.
    ///
    /// Raises:
    ///     ModelError: if the file cannot be read.
    #[staticmethod]
    #[pyo3(signature = (source, *, shapes=None, dims=None, types=None, partial=false, own_constants=false))]
    fn read(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        shapes: Option<BTreeMap<String, Vec<i64>>>,
        dims: Option<BTreeMap<String, i64>>,
        types: Option<BTreeMap<String, Bound<'_, PyAny>>>,
        partial: bool,
        own_constants: bool,
    ) -> PyResult<Self> {
        let options = reading(shapes, dims, types, partial, own_constants)?;
        let model = match read(py, source, &options)? {
            Source::Graph(graph) => detached(py, || Model::new(*graph))?,
            Source::File(file) => {
                let imported = py.detach(|| file.import(&options));
                let imported = imported.map_err(|error| raised_by_reader(py, error))?;
                detached(py, || Model::try_from(imported))?
            }
        };
        Ok(Self { model })
    }

    /// The graph in oneDNN's JSON form, without names of inputs and values of constants.
    fn to_json(&self) -> String {
        self.model.graph().to_json()
    }

    /// The ops, each a dict with "id", "kind", "name", "attributes", "inputs" and "outputs".
    #[getter]
    fn ops<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.model.graph().ops().iter().map(|op| op_of(py, op)).collect()
    }

    /// The inputs, each a dict with "name", "names", "dtype", "shape" and "dim_names".
    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.model.inputs().iter().map(|port| port_of(py, port)).collect()
    }

    /// The outputs, as `inputs`.
    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.model.outputs().iter().map(|port| port_of(py, port)).collect()
    }

    /// The partitions of the graph, in an order in which they can run.
    ///
    /// Args:
    ///     policy: "fusion" groups ops; "debug" gives one op each.
    ///
    /// Raises:
    ///     ValueError: for another policy.
    #[pyo3(signature = (policy="fusion"))]
    fn partitions(&self, py: Python<'_>, policy: &str) -> PyResult<Vec<PyPartition>> {
        let policy = parsed::<Policy>(policy)?;
        let partitions = detached(py, || self.model.graph().partitions(policy))?;
        let names = names_of(&self.model);
        Ok(partitions.into_iter().map(|partition| PyPartition { partition, names: names.clone() }).collect())
    }

    /// The verdicts of every fusion on the ops: why two neighbours share a partition or do not.
    ///
    /// Returns:
    ///     A list of dicts with "fusion", "op", "neighbour", "verdict" ("matched", "no_match", "rejected" or
    ///     "slower") and "reason". `pandas.DataFrame` takes it.
    fn explain<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let lines = detached(py, || self.model.graph().explain())?;
        PyList::new(py, lines.iter().map(|line| explanation_of(py, line)).collect::<PyResult<Vec<_>>>()?)
    }

    /// A session that runs the graph.
    ///
    /// Args:
    ///     ops, states, fpmath, fallback, engine, kept_shapes, arenas: as in `load`.
    ///
    /// Raises:
    ///     SessionError: if nothing runs an op, and for states that the graph does not fit.
    #[pyo3(signature = (
        *, ops=None, states=None, fpmath=None, fallback=false, engine=None, kept_shapes=16, arenas=4
    ))]
    #[allow(clippy::too_many_arguments, reason = "they are those of the call")]
    fn session<'py>(
        &self,
        py: Python<'py>,
        ops: Option<Bound<'py, PyDict>>,
        states: Option<Bound<'py, PyAny>>,
        fpmath: Option<String>,
        fallback: bool,
        engine: Option<Py<PyEngine>>,
        kept_shapes: usize,
        arenas: usize,
    ) -> PyResult<PySession> {
        let shapes = kept_shapes;
        session_of(
            py,
            self.model.clone(),
            &SessionOptions { ops, states, fpmath, fallback, engine, shapes, arenas },
        )
    }

    /// The form in which a notebook shows it: the ops by partitions, in light and dark.
    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        let partitions = detached(py, || self.model.graph().partitions(Policy::Fusion))?;
        Ok(picture::of_graph(&partitions, &names_of(&self.model)))
    }

    fn __repr__(&self) -> String {
        let names = |ports: &[ModelPort]| ports.iter().map(ModelPort::name).collect::<Vec<_>>().join(", ");
        let (inputs, outputs) = (names(self.model.inputs()), names(self.model.outputs()));
        format!("Graph({inputs} -> {outputs}, {} ops)", self.model.graph().ops().len())
    }
}

/// The names of tensors that are inputs and outputs.
fn names_of(model: &Model) -> BTreeMap<TensorId, String> {
    let ports = model.inputs().iter().chain(model.outputs());
    ports.map(|port| (port.tensor.id(), port.name().to_owned())).collect()
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
    names: BTreeMap<TensorId, String>,
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

/// The description of a tensor: an array, or a pair of a type and a shape, with strides as a third.
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
    ///         tuples of a type, a shape and, if it is not row-major, strides in elements.
    ///     engine: the engine; that of the `with` block unless given.
    ///
    /// Raises:
    ///     CompileError: for a partition that is not supported, and for an input whose shape is not known.
    ///     ShapeError: if shapes do not fit together.
    ///     PortError: for a name or number that is no port.
    #[pyo3(signature = (inputs=None, *, engine=None))]
    fn compile(
        &self,
        py: Python<'_>,
        inputs: Option<&Bound<'_, PyDict>>,
        engine: Option<&Bound<'_, PyEngine>>,
    ) -> PyResult<PyCompiledPartition> {
        let engine = engine_of(engine.map(|engine| engine.get()));
        let mut descs: Vec<LogicalTensor> = Vec::new();
        for (key, given) in inputs.into_iter().flatten() {
            let id = port_of_key(self.partition.inputs(), &self.names, &key)?;
            let own = self.partition.inputs().iter().find(|port| port.id() == id);
            let property = own.map_or(Property::Undef, LogicalTensor::property);
            let desc = desc_of(id, &given)?.with_property(property);
            descs.push(desc.map_err(|error| raised(py, error))?);
        }
        // Inputs that are not given are those of the graph; outputs follow.
        let given: Vec<TensorId> = descs.iter().map(LogicalTensor::id).collect();
        descs.extend(self.partition.inputs().iter().filter(|port| !given.contains(&port.id())).cloned());
        let compiled = detached(py, || {
            let outputs = self.partition.outputs().iter().map(|port| match given.is_empty() {
                true => Ok(port.clone()),
                false => {
                    LogicalTensor::with_layout(port.id(), port.data_type(), None, open_layout(port.layout()))
                }
            });
            let outputs = outputs.collect::<sterna::Result<Vec<_>>>()?;
            self.partition.compile_for(&engine, &descs, &outputs)
        })?;
        Ok(PyCompiledPartition { compiled, names: self.names.clone() })
    }

    /// The form in which a notebook shows it: the ops and, if the shapes are known, the plan.
    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        let engine = engine_of(None);
        let plan = detached(py, || Ok(self.partition.compile(&engine).ok()))?;
        let plan = plan.map(|compiled| compiled.plan().to_string());
        Ok(picture::of_partition(&self.partition, plan.as_deref(), &self.names))
    }

    fn __repr__(&self) -> String {
        let kinds: Vec<&str> = self.partition.ops().iter().map(|op| op.kind().name()).collect();
        let supported = if self.partition.is_supported() { "" } else { ", not supported" };
        format!("Partition({}: {}{supported})", self.partition.id(), kinds.join(" "))
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
#[pyclass(frozen, module = "sterna", name = "CompiledPartition")]
pub(crate) struct PyCompiledPartition {
    compiled: CompiledPartition,
    names: BTreeMap<TensorId, String>,
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
    #[pyo3(signature = (inputs, *, out=None))]
    fn execute<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyDict>,
        out: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let Self { compiled, names } = self;
        let mut given: BTreeMap<TensorId, Operand> = BTreeMap::new();
        for (key, value) in inputs {
            let id = port_of_key(compiled.inputs(), names, &key)?;
            let wanted = compiled.inputs().iter().find(|port| port.id() == id).map(LogicalTensor::data_type);
            given.insert(id, Operand::new(&value, wanted, Access::Read)?);
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
        for (key, value) in out.into_iter().flatten() {
            own.insert(port_of_key(compiled.outputs(), names, &key)?, value);
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

    /// The form in which a notebook shows it: the plan.
    fn _repr_html_(&self) -> String {
        picture::of_plan(&self.plan())
    }

    fn __repr__(&self) -> String {
        let port =
            |port: &LogicalTensor| format!("{} {:?}", port.data_type(), port.dims().unwrap_or_default());
        let ports = |ports: &[LogicalTensor]| ports.iter().map(port).collect::<Vec<_>>().join(", ");
        format!("CompiledPartition({} -> {})", ports(self.compiled.inputs()), ports(self.compiled.outputs()))
    }
}
