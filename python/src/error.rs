//! Errors of the library as exceptions: a class for each kind, with the fields of the error as attributes.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use sterna::{
    AttentionFault, AttrValue, BroadcastFault, CompileFault, DataType, Dims, Direction, Error, ExecuteFault,
    GraphFault, JsonFault, Mention, MissingOp, OpFault, OpRef, PortFault, PortRef, SessionFault, ShapeFault,
    ShownValue, TensorFault,
};

/// The module of the classes.
const CLASSES: &str = "sterna._errors";

/// The exception of an error.
pub(crate) fn raised(py: Python<'_>, error: Error) -> PyErr {
    let message = error.to_string();
    let made = Fields::of(py, &error).and_then(|(class, fields)| made(py, class, &message, &fields.values));
    made.unwrap_or_else(|failed| failed)
}

/// The exception of an error of a reader of models.
pub(crate) fn raised_by_reader(py: Python<'_>, error: sterna_import::Error) -> PyErr {
    match error {
        sterna_import::Error::Graph(error) => raised(py, error),
        error => of_class(py, "ModelError", &error.to_string()),
    }
}

/// The exception for an object that is no array of the needed form.
pub(crate) fn array_error(message: &str) -> PyErr {
    Python::attach(|py| of_class(py, "ArrayError", message))
}

/// As [`array_error`], with the exception that is its cause.
pub(crate) fn caused(py: Python<'_>, message: &str, cause: PyErr) -> PyErr {
    // An interrupt is no fault of the object.
    if !cause.is_instance_of::<pyo3::exceptions::PyException>(py) {
        return cause;
    }
    let error = of_class(py, "ArrayError", &format!("{message}: {}", cause.value(py)));
    error.set_cause(py, Some(cause));
    error
}

/// The exception for a defect of the library.
pub(crate) fn internal_error(py: Python<'_>, panic: &(dyn std::any::Any + Send)) -> PyErr {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
    of_class(py, "InternalError", text)
}

/// The exception of a class without fields.
pub(crate) fn of_class(py: Python<'_>, class: &str, message: &str) -> PyErr {
    made(py, class, message, &PyDict::new(py)).unwrap_or_else(|failed| failed)
}

fn made(py: Python<'_>, class: &str, message: &str, fields: &Bound<'_, PyDict>) -> PyResult<PyErr> {
    let error = py.import(CLASSES)?.getattr(class)?.call1((message,))?;
    for (name, value) in fields {
        error.setattr(name.cast_into::<pyo3::types::PyString>()?, value)?;
    }
    Ok(PyErr::from_value(error))
}

/// The fields of an error by name.
struct Fields<'py> {
    py: Python<'py>,
    values: Bound<'py, PyDict>,
}

/// A value of a field in Python.
trait Field {
    fn shown<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>>;
}

macro_rules! plain_fields {
    ($($Type:ty),*) => {
        $(impl Field for $Type {
            fn shown<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                self.into_bound_py_any(py)
            }
        })*
    };
}

macro_rules! named_fields {
    ($($Type:ty),*) => {
        $(impl Field for $Type {
            fn shown<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                self.to_string().into_bound_py_any(py)
            }
        })*
    };
}

plain_fields!(
    bool,
    usize,
    i64,
    String,
    &'static str,
    Option<String>,
    Option<usize>,
    Vec<String>,
    Vec<&'static str>
);
named_fields!(
    DataType,
    Direction,
    sterna::Attr,
    sterna::AutoBroadcast,
    sterna::Property,
    BroadcastFault,
    Mention,
    sterna::OpKind
);

impl<T: Field> Field for Box<T> {
    fn shown<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        (**self).shown(py)
    }
}

macro_rules! list_fields {
    ($($Type:ty),*) => {
        $(impl Field for $Type {
            fn shown<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                let items = self.iter().map(|item| item.shown(py)).collect::<PyResult<Vec<_>>>()?;
                Ok(PyTuple::new(py, items)?.into_any())
            }
        })*
    };
}

impl Field for Option<i64> {
    fn shown<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.into_bound_py_any(py)
    }
}

list_fields!(Dims, Vec<i64>, Vec<Option<i64>>, &'static [DataType], &'static [&'static str], Vec<ShownValue>);
list_fields!(Vec<MissingOp>, Vec<sterna::TensorId>);

impl Field for sterna::TensorId {
    fn shown<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.get().shown(py)
    }
}

impl Field for Option<&'static str> {
    fn shown<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.into_bound_py_any(py)
    }
}

/// Values of several parts, as the named tuples of the module of the classes.
macro_rules! tuple_fields {
    ($($Type:ident ($name:literal): $($part:expr),*;)*) => {
        $(impl Field for $Type {
            fn shown<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                let parts: Vec<Bound<'py, PyAny>> = vec![$(($part)(self).into_bound_py_any(py)?),*];
                py.import(CLASSES)?.getattr($name)?.call1(PyTuple::new(py, parts)?)
            }
        })*
    };
}

tuple_fields! {
    OpRef ("OpRef"): |op: &OpRef| op.kind.name(), |op: &OpRef| op.id.get();
    PortRef ("PortRef"): |port: &PortRef| port.direction.to_string(), |port: &PortRef| port.index,
        |port: &PortRef| port.name, |port: &PortRef| port.tensor.get();
    MissingOp ("MissingOp"): |op: &MissingOp| op.op.clone(), |op: &MissingOp| op.node.clone(),
        |op: &MissingOp| op.place, |op: &MissingOp| op.inputs.clone(), |op: &MissingOp| op.reason.clone();
    ShownValue ("ShownValue"): |value: &ShownValue| value.name.clone(),
        |value: &ShownValue| value.data_type.name(), |value: &ShownValue| Dimensions(value.dims.clone());
}

/// Dims as a tuple.
struct Dimensions(Option<Vec<Option<i64>>>);

impl<'py> IntoPyObject<'py> for Dimensions {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.0 {
            Some(dims) => Ok(PyTuple::new(py, dims)?.into_any()),
            None => Ok(py.None().into_bound(py)),
        }
    }
}

/// Puts the name of the variant and its fields, and falls back on the name alone for what is not listed.
macro_rules! fault {
    ($fields:expr, $fault:expr, $Enum:ident {
        $($Variant:ident $(($only:ident))? $({ $($field:ident),* })?),* $(,)?
    }) => {
        match $fault {
            $($Enum::$Variant $(($only))? $({ $($field,)* .. })? => {
                $fields.put("fault", &stringify!($Variant))?;
                $($fields.put(stringify!($only), $only)?;)?
                $($($fields.put(stringify!($field), $field)?;)*)?
            })*
            #[allow(unreachable_patterns, reason = "more may come")]
            _ => $fields.put("fault", &"Other")?,
        }
    };
}

impl<'py> Fields<'py> {
    /// The class and the fields of an error.
    fn of(py: Python<'py>, error: &Error) -> PyResult<(&'static str, Self)> {
        let mut fields = Self { py, values: PyDict::new(py) };
        let class = fields.add(error)?;
        fields.values.set_item("status", error.status() as u32)?;
        Ok((class, fields))
    }

    fn put(&mut self, name: &str, value: &impl Field) -> PyResult<()> {
        self.values.set_item(name, value.shown(self.py)?)
    }

    fn add(&mut self, error: &Error) -> PyResult<&'static str> {
        Ok(match error {
            Error::Tensor { id, fault } => {
                self.put("tensor", id)?;
                self.tensor(fault)?
            }
            Error::Value(fault) => self.tensor(fault)?,
            Error::Operand { operand, fault } => {
                self.put("operand", operand)?;
                self.tensor(fault)?
            }
            Error::Op { op, fault } => {
                self.put("op", op)?;
                self.op(fault)?
            }
            Error::Graph(fault) => self.graph(fault)?,
            Error::Attention(fault) => self.attention(fault)?,
            Error::Shape { op, fault } => {
                self.put("op", op)?;
                self.shape(fault)?
            }
            Error::Compile { partition, fault } => {
                self.put("partition", partition)?;
                self.compile(fault)?
            }
            Error::Execute(fault) => self.execute(fault)?,
            Error::OutOfMemory { size, align } => {
                self.put("size", size)?;
                self.put("align", align)?;
                "OutOfMemoryError"
            }
            Error::ThreadPool { threads } => {
                self.put("threads", threads)?;
                "ThreadPoolError"
            }
            Error::Unimplemented { op, reason } => {
                self.put("op", op)?;
                self.put("reason", reason)?;
                "UnimplementedError"
            }
            Error::Port { name, fault } => {
                self.put("name", name)?;
                fault!(self, fault, PortFault { Unknown { names, nearest }, Ambiguous { tensors } });
                "PortError"
            }
            Error::Build { op, values, error } => {
                let class = self.add(error)?;
                self.put("call", op)?;
                self.put("values", values)?;
                class
            }
            Error::Session(fault) => self.session(fault)?,
            Error::Json(fault) => {
                let JsonFault { line, column, place, message, cause, .. } = &**fault;
                if let Some(cause) = cause {
                    self.add(cause)?;
                }
                self.put("line", line)?;
                self.put("column", column)?;
                self.put("place", place)?;
                self.put("reason", message)?;
                "JsonError"
            }
            _ => "Error",
        })
    }

    fn tensor(&mut self, fault: &TensorFault) -> PyResult<&'static str> {
        fault!(self, fault, TensorFault {
            Rank { rank }, NegativeDim { axis, dim }, NegativeStride { axis, stride },
            StrideCount { dims, strides }, TooLarge { dims, strides }, HostScalar { rank, data_type },
            Property { property, hint }, NotConcrete, ElementType { expected, given },
            TooShort { needed, given }, Unaligned { align }, NoPort, Strides { expected, given },
            Shape { expected, given }, ByteCount { needed, given }, NoArray,
            IndexOutOfRange { place, index, size },
            NumberOutOfRange { place, number, first, last }, NoElements(data_type),
        });
        Ok(match fault {
            TensorFault::Shape { .. } => "ShapeError",
            _ => "TensorError",
        })
    }

    fn op(&mut self, fault: &OpFault) -> PyResult<&'static str> {
        fault!(self, fault, OpFault {
            Count { direction, expected, given }, Type { port, allowed, given },
            TypesDiffer { port, given, other, expected }, UnknownAttr(attr), MissingAttr(attr),
            AttrType { attr, expected, given }, AttrValue { attr, allowed, given },
            AttrNeedsMode { attr, needs, given }, Check { rule, found },
        });
        Ok("OpError")
    }

    fn graph(&mut self, fault: &GraphFault) -> PyResult<&'static str> {
        fault!(self, fault, GraphFault {
            DuplicateOp(op), Finalized, NotFinalized, TwoProducers { tensor, first, second },
            MentionsDiffer { tensor, what, first, second }, Cycle(op),
        });
        Ok("GraphError")
    }

    fn attention(&mut self, fault: &AttentionFault) -> PyResult<&'static str> {
        fault!(self, fault, AttentionFault {
            Value { option, given, rule }, Groups { groups, heads }, Unknown { option, what, tensor },
            Type { option, tensor, given, rule }, Shape { option, tensor, given, rule },
            TensorTaken { first, taken },
        });
        Ok(match fault {
            AttentionFault::Shape { .. } | AttentionFault::Groups { .. } => "ShapeError",
            _ => "AttentionError",
        })
    }

    fn shape(&mut self, fault: &ShapeFault) -> PyResult<&'static str> {
        fault!(self, fault, ShapeFault {
            Broadcast { port, mode }, Contradiction { port, given, inferred }, Unfit { port, given, why },
            TooLarge { dims },
        });
        if let ShapeFault::Broadcast { fault, .. } = fault {
            self.put("reason", fault)?;
        }
        Ok("ShapeError")
    }

    fn compile(&mut self, fault: &CompileFault) -> PyResult<&'static str> {
        fault!(self, fault, CompileFault {
            Unsupported(reason), Missing { direction, tensor }, Type { tensor, expected, given },
            UnknownShape { tensor }, NotStrided { tensor }, OverlappingStrides { tensor, dims, strides },
            TooLarge { tensor, dims }, HostScalar { tensor },
        });
        Ok("CompileError")
    }

    fn execute(&mut self, fault: &ExecuteFault) -> PyResult<&'static str> {
        fault!(self, fault, ExecuteFault {
            Missing { direction, tensor }, NoMemory { tensor }, Differs { tensor, what, given, expected },
            TensorEngine { tensor }, StreamEngine, Overlap { output, other }, NotInPlace { output, input },
            IndexOutOfRange { tensor, place, index, size },
            NumberOutOfRange { tensor, place, number, first, last }, Scratchpad { needed, given }, Panicked,
        });
        Ok("ExecuteError")
    }

    fn session(&mut self, fault: &SessionFault) -> PyResult<&'static str> {
        fault!(self, fault, SessionFault {
            ForeignValue(tensor), SameName { what, name }, UnknownName { what, name, known, nearest },
            Missing { what, name }, Strided(name), GivenTwice { what, name },
            Type { what, name, expected, given }, Dims { what, name, expected, given },
            TooShort { what, name, needed, given }, NoSource(tensor), ConstantBytes { tensor, needed, given },
            MissingOps(ops), Custom { op, node, message }, Link { past, present, reason }, ForeignState,
            OpenState { name, axis }, Capacity { name, capacity, needed }, Source(reason),
            OpenShape { tensor, node },
        });
        Ok(match fault {
            SessionFault::Dims { .. } => "ShapeError",
            _ => "SessionError",
        })
    }
}

/// The text of an attribute's value as an object of Python.
pub(crate) fn attribute<'py>(py: Python<'py>, value: &AttrValue) -> PyResult<Bound<'py, PyAny>> {
    match value {
        AttrValue::Bool(value) => value.into_bound_py_any(py),
        AttrValue::S64(value) => value.into_bound_py_any(py),
        AttrValue::F32(value) => value.into_bound_py_any(py),
        AttrValue::String(value) => value.into_bound_py_any(py),
        AttrValue::S64s(value) => value.into_bound_py_any(py),
        AttrValue::F32s(value) => value.into_bound_py_any(py),
        value => format!("{value:?}").into_bound_py_any(py),
    }
}

/// The error of an array with the name of its port before it.
pub(crate) fn named(object: &Bound<'_, PyAny>, name: &str, error: PyErr) -> PyErr {
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
