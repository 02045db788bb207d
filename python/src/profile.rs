//! Profiles and plans of sessions as dicts.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use sterna::{ArenaBuffer, ArenaPlan, ArenaStep, ProfiledOp, RunProfile};

/// The kinds of ops in one text.
fn kinds_of(ops: &[ProfiledOp]) -> String {
    ops.iter().map(|op| op.kind.name()).collect::<Vec<_>>().join(" ")
}

/// The spans of a profile as dicts.
pub(crate) fn spans_of<'py>(py: Python<'py>, profile: &RunProfile) -> PyResult<Bound<'py, PyList>> {
    let span = |span: &sterna::RunSpan| {
        let shown = PyDict::new(py);
        shown.set_item("kind", span.kind.name())?;
        shown.set_item("partition", span.partition)?;
        shown.set_item("ops", kinds_of(&span.ops))?;
        shown.set_item("bytes", span.bytes)?;
        shown.set_item("began", span.began.saturating_duration_since(profile.began).as_secs_f64())?;
        shown.set_item("seconds", span.duration.as_secs_f64())?;
        Ok(shown)
    };
    PyList::new(py, profile.spans.iter().map(span).collect::<PyResult<Vec<_>>>()?)
}

/// The memory of a run as a dict.
pub(crate) fn arena_of<'py>(py: Python<'py>, plan: &ArenaPlan) -> PyResult<Bound<'py, PyDict>> {
    let step = |step: &ArenaStep| {
        let shown = PyDict::new(py);
        shown.set_item("kind", step.kind.name())?;
        shown.set_item("ops", kinds_of(&step.ops))?;
        Ok(shown)
    };
    let buffer = |buffer: &ArenaBuffer| {
        let shown = PyDict::new(py);
        shown.set_item("tensors", PyTuple::new(py, buffer.tensors.iter().map(|tensor| tensor.get()))?)?;
        shown.set_item("offset", buffer.offset)?;
        shown.set_item("bytes", buffer.bytes)?;
        shown.set_item("first_step", buffer.first_step)?;
        shown.set_item("last_step", buffer.last_step)?;
        Ok(shown)
    };
    let shown = PyDict::new(py);
    shown.set_item("bytes", plan.bytes)?;
    shown.set_item("scratch", plan.scratch)?;
    let steps: PyResult<Vec<Bound<'_, PyDict>>> = plan.steps.iter().map(step).collect();
    shown.set_item("steps", PyList::new(py, steps?)?)?;
    let buffers: PyResult<Vec<Bound<'_, PyDict>>> = plan.buffers.iter().map(buffer).collect();
    shown.set_item("buffers", PyList::new(py, buffers?)?)?;
    Ok(shown)
}
