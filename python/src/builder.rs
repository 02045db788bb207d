//! Graphs from values: a builder whose values are objects with operators.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use sterna::{
    Attr, AttrDefault, AttrType, AttrValue, Causal, ConstantData, Count, CustomNode, DataType, GraphBuilder,
    GraphValue, LogicalTensor, MaskTrue, OpKind, OpOptions, Schema, TensorId,
};

use crate::dtype::type_named;
use crate::engine::parsed;
use crate::error::{of_class, raised};
use crate::foreign::{Access, Number, Operand, class_of, copied};
use crate::graph::PyGraph;
use crate::mapping::Pairs;

/// Builds a graph from values; the package has a method for each kind of op on top of it.
#[pyclass(frozen, subclass, module = "sterna._sterna", name = "GraphBuilder")]
pub(crate) struct PyGraphBuilder {
    /// `None` once the graph is built.
    builder: Mutex<Option<Arc<GraphBuilder>>>,
}

/// A value of a graph under construction: an input, a constant or a result of an op.
///
/// Values and numbers are added, subtracted, multiplied, divided, negated and matrix-multiplied with
/// operators.
///
/// >>> import sterna
/// >>> g = sterna.GraphBuilder()
/// >>> x = g.input("x", "f32", [2, None])
/// >>> y = -(x * 2.0) - x
/// >>> y.dtype, y.shape
/// ('f32', (2, None))
#[pyclass(frozen, module = "sterna", name = "Value")]
pub(crate) struct PyValue {
    builder: Py<PyGraphBuilder>,
    id: TensorId,
}

impl PyGraphBuilder {
    fn of(&self, py: Python<'_>) -> PyResult<Arc<GraphBuilder>> {
        let builder = self.builder.lock().unwrap_or_else(PoisonError::into_inner);
        builder.clone().ok_or_else(|| of_class(py, "GraphError", "the graph is built and cannot be changed"))
    }
}

/// The value of an object for a builder; a number becomes a constant of a type.
fn value_of<'g>(
    own: &Bound<'_, PyGraphBuilder>,
    builder: &'g GraphBuilder,
    object: &Bound<'_, PyAny>,
    data_type: Option<DataType>,
) -> PyResult<GraphValue<'g>> {
    let py = own.py();
    if let Ok(value) = object.cast::<PyValue>() {
        let value = value.get();
        if !value.builder.is(own) {
            let message = format!("session: value {} belongs to another builder", value.id);
            return Err(of_class(py, "SessionError", &message));
        }
        return builder.value(value.id).map_err(|error| raised(py, error));
    }
    if Number::of(object).is_some() {
        let data_type = data_type.unwrap_or(DataType::F32);
        return builder.scalar(data_type, object.extract::<f32>()?).map_err(|error| raised(py, error));
    }
    let message = format!("an operand is a Value of the builder or a number, not a {}", class_of(object));
    Err(pyo3::exceptions::PyTypeError::new_err(message))
}

/// The type for numbers among operands: that of the first value that is no condition, or else of the first.
fn type_of_numbers(operands: &[Bound<'_, PyAny>]) -> Option<DataType> {
    let type_of = |operand: &Bound<'_, PyAny>| {
        let value = operand.cast::<PyValue>().ok()?.get();
        let builder = value.builder.get().of(operand.py()).ok()?;
        builder.value(value.id).ok().map(GraphValue::data_type)
    };
    let mut types = operands.iter().filter_map(type_of);
    let first = types.next()?;
    match first {
        DataType::Boolean => types.find(|of| *of != DataType::Boolean).or(Some(first)),
        _ => Some(first),
    }
}

/// An attribute of a type, from an object.
fn attribute_of(value: &Bound<'_, PyAny>, of: AttrType) -> PyResult<AttrValue> {
    Ok(match of {
        AttrType::Bool => value.extract::<bool>()?.into(),
        AttrType::S64 => value.extract::<i64>()?.into(),
        AttrType::F32 => value.extract::<f32>()?.into(),
        AttrType::String => AttrValue::String(value.extract::<String>()?),
        AttrType::S64s => match value.extract::<i64>() {
            Ok(number) => vec![number].into(),
            Err(_) => value.extract::<Vec<i64>>()?.into(),
        },
        AttrType::F32s => match value.extract::<f32>() {
            Ok(number) => vec![number].into(),
            Err(_) => value.extract::<Vec<f32>>()?.into(),
        },
    })
}

/// An attribute of an op of one's own, by the class of the object.
fn free_attribute(value: &Bound<'_, PyAny>) -> PyResult<AttrValue> {
    if let Ok(value) = value.extract::<bool>() {
        return Ok(value.into());
    }
    if let Ok(value) = value.extract::<i64>() {
        return Ok(value.into());
    }
    if let Ok(value) = value.extract::<f32>() {
        return Ok(value.into());
    }
    if let Ok(value) = value.extract::<String>() {
        return Ok(AttrValue::String(value));
    }
    match value.extract::<Vec<i64>>() {
        Ok(values) => Ok(values.into()),
        Err(_) => Ok(value.extract::<Vec<f32>>()?.into()),
    }
}

/// The dims of an argument: a list with None for an open one.
fn open_dims(given: &Bound<'_, PyAny>) -> PyResult<Vec<Option<i64>>> {
    given.extract()
}

fn wrapped(own: &Bound<'_, PyGraphBuilder>, value: GraphValue<'_>) -> PyValue {
    PyValue { builder: own.clone().unbind(), id: value.id() }
}

#[pymethods]
impl PyGraphBuilder {
    #[new]
    fn new() -> Self {
        Self { builder: Mutex::new(Some(Arc::new(GraphBuilder::new()))) }
    }

    /// An input of the graph.
    ///
    /// Args:
    ///     name: its name.
    ///     dtype: its type: a name such as "f32" or "bf16", or a dtype of NumPy or torch.
    ///     shape: its dims, None for an open one.
    ///
    /// Raises:
    ///     SessionError: if there is an input of the name.
    ///     TensorError: for dims that no tensor has.
    fn input(
        slf: &Bound<'_, Self>,
        name: String,
        dtype: &Bound<'_, PyAny>,
        shape: &Bound<'_, PyAny>,
    ) -> PyResult<PyValue> {
        let (py, builder) = (slf.py(), slf.get().of(slf.py())?);
        let value = builder.input(name, type_named(dtype)?, &open_dims(shape)?);
        value.map(|value| wrapped(slf, value)).map_err(|error| raised(py, error))
    }

    /// A constant, whose elements are copied.
    ///
    /// Args:
    ///     name: its name.
    ///     array: its elements; numbers and lists become what NumPy makes of them.
    ///     dtype: the type of numbers and lists.
    ///
    /// Raises:
    ///     ArrayError: for an object that is no array.
    #[pyo3(signature = (name, array, dtype=None))]
    fn constant(
        slf: &Bound<'_, Self>,
        name: String,
        array: &Bound<'_, PyAny>,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyValue> {
        let (py, builder) = (slf.py(), slf.get().of(slf.py())?);
        let wanted = dtype.map(type_named).transpose()?;
        let number = Number::of(array).map(Number::data_type);
        let given = Operand::new(array, wanted.or(number), Access::Read)?;
        let dense = Operand::new(&copied(py, &given.view())?, None, Access::Read)?;
        let (data_type, dims) = (dense.data_type(), dense.dims().clone());
        let data = ConstantData::new(dense.into_bytes());
        let value = builder.constant_data(name, data_type, &dims, data);
        value.map(|value| wrapped(slf, value)).map_err(|error| raised(py, error))
    }

    /// Names an output of the graph. Any value may be one.
    ///
    /// Raises:
    ///     SessionError: if there is an output of the name, and for a value of another builder.
    fn output(slf: &Bound<'_, Self>, name: String, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, builder) = (slf.py(), slf.get().of(slf.py())?);
        let value = value_of(slf, &builder, value, None)?;
        builder.output(name, value).map_err(|error| raised(py, error))
    }

    /// Adds an op of any kind; all methods of ops call it.
    ///
    /// Args:
    ///     kind: the kind, such as "MatMul".
    ///     operands: values, or numbers, which take the type of the first value that is not boolean.
    ///     attributes: attributes by name; those that are None are left out.
    ///     outputs: how many outputs the op has.
    ///     name: a name for the op and its result.
    ///     dtype: the type of results whose type does not follow from the operands.
    ///
    /// Returns:
    ///     A tuple of values.
    ///
    /// Raises:
    ///     ValueError: for a kind or an attribute that does not exist.
    ///     OpError: for operands, attributes or types that the kind does not allow.
    ///     ShapeError: for shapes that contradict the rule of the kind.
    #[pyo3(signature = (kind, operands, attributes=None, *, outputs=1, name=None, dtype=None))]
    fn op<'py>(
        slf: &Bound<'py, Self>,
        kind: &str,
        operands: Vec<Bound<'py, PyAny>>,
        attributes: Option<Pairs<'py>>,
        outputs: usize,
        name: Option<String>,
        dtype: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let (py, builder) = (slf.py(), slf.get().of(slf.py())?);
        let kind = parsed::<OpKind>(kind)?;
        let rows = Schema::of(kind).attributes;
        let mut options = OpOptions::new().named(name.unwrap_or_default());
        for (name, value) in attributes.iter().flat_map(Pairs::iter) {
            if value.is_none() {
                continue;
            }
            let attr = parsed::<Attr>(name.extract::<&str>()?)?;
            let row = rows.iter().find(|row| row.attr == attr);
            let value =
                row.map_or_else(|| free_attribute(value), |row| attribute_of(value, row.value_type))?;
            options = options.attr(attr, value);
        }
        if let Some(dtype) = dtype {
            options = options.data_type(type_named(dtype)?);
        }
        let data_type = type_of_numbers(&operands);
        let values = operands.iter().map(|operand| value_of(slf, &builder, operand, data_type));
        let values = values.collect::<PyResult<Vec<_>>>()?;
        let made = builder.op(kind, &values, options, outputs).map_err(|error| raised(py, error))?;
        PyTuple::new(py, made.into_iter().map(|value| wrapped(slf, value)))
    }

    /// Adds an op of one's own, which a session runs by a function of its `ops`.
    ///
    /// Args:
    ///     op: its name, "domain::Name".
    ///     operands: values.
    ///     outputs: for each output its type, or a pair of its type and its shape, None for an open dim.
    ///     attributes: what the function gets by name.
    ///
    /// Returns:
    ///     A tuple of values.
    #[pyo3(signature = (op, operands, outputs, **attributes))]
    fn custom<'py>(
        slf: &Bound<'py, Self>,
        op: &str,
        operands: Vec<Bound<'py, PyAny>>,
        outputs: Vec<Bound<'py, PyAny>>,
        attributes: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let (py, builder) = (slf.py(), slf.get().of(slf.py())?);
        let mut node = CustomNode::new(op);
        for (name, value) in Pairs::of_arguments(attributes)?.iter() {
            node = node.attr(name.extract::<String>()?, free_attribute(value)?);
        }
        let described = outputs.iter().map(|output| match output.cast::<PyTuple>() {
            Ok(parts) => Ok((type_named(&parts.get_item(0)?)?, Some(open_dims(&parts.get_item(1)?)?))),
            Err(_) => Ok((type_named(output)?, None)),
        });
        let described = described.collect::<PyResult<Vec<_>>>()?;
        let described: Vec<(DataType, Option<&[Option<i64>]>)> =
            described.iter().map(|(data_type, dims)| (*data_type, dims.as_deref())).collect();
        let values = operands.iter().map(|operand| value_of(slf, &builder, operand, None));
        let values = values.collect::<PyResult<Vec<_>>>()?;
        let made = builder.custom(node, &values, &described).map_err(|error| raised(py, error))?;
        PyTuple::new(py, made.into_iter().map(|value| wrapped(slf, value)))
    }

    /// Adds masked attention, with the options of `sterna.attention`; tensors are values.
    ///
    /// Raises:
    ///     AttentionError: for an option whose value, type or shape does not do.
    #[pyo3(signature = (
        q, k, v, mask=None, *, mask_true="keep", bias=None, causal=None, window=None, scale=None,
        softcap=None, sinks=None, groups=None, k_transposed=false, nan_without_keys=false, score_type=None
    ))]
    #[allow(clippy::too_many_arguments, reason = "they are those of the call")]
    fn attention<'py>(
        slf: &Bound<'py, Self>,
        q: &Bound<'py, PyAny>,
        k: &Bound<'py, PyAny>,
        v: &Bound<'py, PyAny>,
        mask: Option<&Bound<'py, PyAny>>,
        mask_true: &str,
        bias: Option<&Bound<'py, PyAny>>,
        causal: Option<&Bound<'py, PyAny>>,
        window: Option<i64>,
        scale: Option<f32>,
        softcap: Option<f32>,
        sinks: Option<&Bound<'py, PyAny>>,
        groups: Option<i64>,
        k_transposed: bool,
        nan_without_keys: bool,
        score_type: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<PyValue> {
        let (py, builder) = (slf.py(), slf.get().of(slf.py())?);
        let value = |object: &Bound<'py, PyAny>| value_of(slf, &builder, object, None);
        let desc = |object: Option<&Bound<'py, PyAny>>| -> PyResult<Option<LogicalTensor>> {
            object.map(|object| value(object).map(GraphValue::desc)).transpose()
        };
        let says = match mask_true {
            "keep" => MaskTrue::Keeps,
            "drop" => MaskTrue::Masks,
            other => {
                let message = format!("attention: `mask_true` is {other:?}; it is \"keep\" or \"drop\"");
                return Err(of_class(py, "AttentionError", &message));
            }
        };
        let causal = match causal {
            None => None,
            Some(offset) if offset.is_instance_of::<PyValue>() => Some(Causal::Offset(value(offset)?.desc())),
            Some(word) if word.extract::<&str>().is_ok_and(|word| word == "bottom_right") => {
                Some(Causal::BottomRight)
            }
            Some(word) if word.extract::<&str>().is_ok_and(|word| word == "top_left") => {
                Some(Causal::TopLeft)
            }
            Some(flag) => flag.extract::<bool>()?.then_some(Causal::TopLeft),
        };
        let score_type = score_type.map(type_named).transpose()?.unwrap_or(DataType::F32);
        let (mask, bias, sinks) = (desc(mask)?, desc(bias)?, desc(sinks)?);
        let made = builder.attention(value(q)?, value(k)?, value(v)?, |attention| {
            let attention = attention.mask(mask, says).bias(bias).sinks(sinks).causal(causal).window(window);
            let attention = attention.scale(scale).softcap(softcap).groups(groups).k_transposed(k_transposed);
            attention.nan_without_keys(nan_without_keys).score_type(score_type)
        });
        made.map(|value| wrapped(slf, value)).map_err(|error| raised(py, error))
    }

    /// The graph; the builder takes no more ops then. Outputs that were not named are those that no op uses.
    ///
    /// Raises:
    ///     GraphError: if it is built already.
    fn build(&self, py: Python<'_>) -> PyResult<PyGraph> {
        let taken = self.builder.lock().unwrap_or_else(PoisonError::into_inner).take();
        let builder = taken.ok_or_else(|| of_class(py, "GraphError", "the graph is built already"))?;
        match Arc::try_unwrap(builder) {
            Ok(builder) => Ok(PyGraph::of(builder.build().map_err(|error| raised(py, error))?)),
            Err(shared) => {
                *self.builder.lock().unwrap_or_else(PoisonError::into_inner) = Some(shared);
                Err(of_class(py, "GraphError", "another thread is adding an op"))
            }
        }
    }
}

impl PyValue {
    /// Looks at the value.
    fn look<T>(&self, py: Python<'_>, at: impl FnOnce(GraphValue<'_>) -> T) -> PyResult<T> {
        let builder = self.builder.get().of(py)?;
        builder.value(self.id).map(at).map_err(|error| raised(py, error))
    }

    /// The result of an op on this value and another one, or a number.
    fn pair<'py>(
        slf: &Bound<'py, Self>,
        kind: &str,
        operands: [&Bound<'py, PyAny>; 2],
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let is_operand =
            |object: &&Bound<'py, PyAny>| object.is_instance_of::<Self>() || Number::of(object).is_some();
        if !operands.iter().all(is_operand) {
            return Ok(py.NotImplemented().into_bound(py));
        }
        let builder = slf.get().builder.bind(py);
        let operands = operands.into_iter().cloned().collect();
        PyGraphBuilder::op(builder, kind, operands, None, 1, None, None)?.get_item(0)
    }
}

#[pymethods]
impl PyValue {
    /// The number of the tensor in the graph.
    #[getter]
    fn id(&self) -> usize {
        self.id.get()
    }

    /// The name of the type.
    #[getter]
    fn dtype(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.look(py, |value| value.data_type().name())
    }

    /// The dims, None for an open one; None as a whole if the rank is not known yet.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.look(py, |value| value.dims())?.map(|dims| PyTuple::new(py, dims)).transpose()
    }

    /// The name: that of an input or constant, or else that of its op.
    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<String> {
        self.look(py, |value| value.name())
    }

    fn __add__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Self::pair(slf, "Add", [slf.as_any(), other])
    }

    fn __radd__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Self::pair(slf, "Add", [other, slf.as_any()])
    }

    fn __sub__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Self::pair(slf, "Subtract", [slf.as_any(), other])
    }

    fn __rsub__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Self::pair(slf, "Subtract", [other, slf.as_any()])
    }

    fn __mul__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Self::pair(slf, "Multiply", [slf.as_any(), other])
    }

    fn __rmul__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Self::pair(slf, "Multiply", [other, slf.as_any()])
    }

    fn __truediv__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Self::pair(slf, "Divide", [slf.as_any(), other])
    }

    fn __rtruediv__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Self::pair(slf, "Divide", [other, slf.as_any()])
    }

    fn __matmul__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Self::pair(slf, "MatMul", [slf.as_any(), other])
    }

    fn __neg__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let builder = slf.get().builder.bind(slf.py());
        PyGraphBuilder::op(builder, "Negative", vec![slf.clone().into_any()], None, 1, None, None)?
            .get_item(0)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        self.look(py, |value| {
            let dims = match value.dims() {
                None => "?".to_owned(),
                Some(dims) => {
                    let dim =
                        |dim: &Option<i64>| dim.map_or_else(|| "None".to_owned(), |dim| dim.to_string());
                    dims.iter().map(dim).collect::<Vec<_>>().join(", ")
                }
            };
            format!("Value({:?}, {} [{dims}])", value.name(), value.data_type())
        })
    }
}

/// The schema of every kind of op, from which the methods of the builder are made.
///
/// Returns:
///     A list of dicts with "kind", "inputs", "outputs", "input_count", "output_count" and "attributes",
///     which are
///     dicts with "name", "type", "required", "default" and "allowed".
///
/// >>> import sterna
/// >>> [row["inputs"] for row in sterna.schema() if row["kind"] == "Select"]
/// [['cond', 'then', 'else']]
#[pyfunction]
pub(crate) fn schema(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let attribute = |row: &sterna::AttrRow| {
        let shown = PyDict::new(py);
        shown.set_item("name", row.attr.name())?;
        shown.set_item("type", row.value_type.name())?;
        shown.set_item("required", row.required)?;
        let default = match row.default {
            None => py.None().into_bound(py),
            Some(AttrDefault::Bool(value)) => value.into_bound_py_any(py)?,
            Some(AttrDefault::S64(value)) => value.into_bound_py_any(py)?,
            Some(AttrDefault::F32(value)) => value.into_bound_py_any(py)?,
            Some(AttrDefault::String(value)) => value.into_bound_py_any(py)?,
            Some(AttrDefault::S64s(value)) => value.into_bound_py_any(py)?,
        };
        shown.set_item("default", default)?;
        shown.set_item("allowed", row.allowed)?;
        Ok(shown)
    };
    let count = |count: Count| (0..=16usize).filter(|&number| count.allows(number)).collect::<Vec<usize>>();
    let row = |schema: &Schema| {
        let shown = PyDict::new(py);
        shown.set_item("kind", schema.kind.name())?;
        shown.set_item("inputs", schema.inputs.iter().map(|port| port.name).collect::<Vec<_>>())?;
        shown.set_item("outputs", schema.outputs.iter().map(|port| port.name).collect::<Vec<_>>())?;
        shown.set_item("input_count", count(schema.input_count))?;
        shown.set_item("output_count", count(schema.output_count))?;
        let attributes = schema.attributes.iter().map(attribute).collect::<PyResult<Vec<_>>>()?;
        shown.set_item("attributes", attributes)?;
        Ok(shown)
    };
    PyList::new(py, Schema::all().iter().map(row).collect::<PyResult<Vec<_>>>()?)
}
