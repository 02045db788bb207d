//! Tensors, ops and ports as dicts.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use sterna::{Explanation, FusionVerdict, LogicalTensor, ModelPort, Op};

use crate::error::attribute;

/// The dims of a tensor, None for an open one, and as a whole if the rank is not known.
pub(crate) fn dims_of<'py>(py: Python<'py>, desc: &LogicalTensor) -> PyResult<Option<Bound<'py, PyTuple>>> {
    desc.partial_dims().map(|dims| PyTuple::new(py, dims)).transpose()
}

/// A tensor as a dict.
pub(crate) fn tensor_of<'py>(py: Python<'py>, desc: &LogicalTensor) -> PyResult<Bound<'py, PyDict>> {
    let shown = PyDict::new(py);
    shown.set_item("id", desc.id().get())?;
    shown.set_item("dtype", desc.data_type().name())?;
    shown.set_item("shape", dims_of(py, desc)?)?;
    shown.set_item("strides", desc.strides().map(|strides| PyTuple::new(py, strides)).transpose()?)?;
    shown.set_item("layout", desc.layout().name())?;
    shown.set_item("property", desc.property().name())?;
    Ok(shown)
}

pub(crate) fn tensors_of<'py>(py: Python<'py>, descs: &[LogicalTensor]) -> PyResult<Vec<Bound<'py, PyDict>>> {
    descs.iter().map(|desc| tensor_of(py, desc)).collect()
}

/// An op as a dict.
pub(crate) fn op_of<'py>(py: Python<'py>, op: &Op) -> PyResult<Bound<'py, PyDict>> {
    let shown = PyDict::new(py);
    shown.set_item("id", op.id().get())?;
    shown.set_item("kind", op.kind().name())?;
    shown.set_item("name", op.name())?;
    let attributes = PyDict::new(py);
    for (name, value) in op.attrs() {
        attributes.set_item(name.name(), attribute(py, value)?)?;
    }
    shown.set_item("attributes", attributes)?;
    shown.set_item("inputs", tensors_of(py, op.inputs())?)?;
    shown.set_item("outputs", tensors_of(py, op.outputs())?)?;
    Ok(shown)
}

pub(crate) fn explanation_of<'py>(py: Python<'py>, line: &Explanation) -> PyResult<Bound<'py, PyDict>> {
    let shown = PyDict::new(py);
    shown.set_item("fusion", line.fusion)?;
    shown.set_item("op", line.seed.to_string())?;
    shown.set_item("neighbour", line.neighbour.as_ref().map(ToString::to_string))?;
    let (verdict, reason) = match line.verdict {
        FusionVerdict::Matched => ("matched", None),
        FusionVerdict::NoMatch => ("no_match", None),
        FusionVerdict::Rejected(why) => ("rejected", Some(why)),
        FusionVerdict::Slower(reason) => ("slower", Some(reason.text())),
        _ => ("other", None),
    };
    shown.set_item("verdict", verdict)?;
    shown.set_item("reason", reason)?;
    Ok(shown)
}

/// The ports of a graph or a session as dicts.
pub(crate) fn ports_of<'py>(py: Python<'py>, ports: &[ModelPort]) -> PyResult<Vec<Bound<'py, PyDict>>> {
    ports.iter().map(|port| port_of(py, port)).collect()
}

fn port_of<'py>(py: Python<'py>, port: &ModelPort) -> PyResult<Bound<'py, PyDict>> {
    let shown = PyDict::new(py);
    shown.set_item("name", port.name())?;
    shown.set_item("names", PyTuple::new(py, &port.names)?)?;
    shown.set_item("dtype", port.tensor.data_type().name())?;
    shown.set_item("shape", dims_of(py, &port.tensor)?)?;
    shown.set_item("dim_names", PyTuple::new(py, &port.dim_names)?)?;
    Ok(shown)
}
