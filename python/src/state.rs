//! States of sessions, and the links that make them.

use std::sync::{Mutex, MutexGuard, TryLockError};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sterna::{SessionState, StateLink};

use crate::error::{of_class, raised};
use crate::foreign::{Access, Operand, copied};
use crate::mapping::Pairs;

/// A link of a state: a pair of names, or a dict with `past`, `present`, and `axis`, `capacity`, `window`,
/// `fixed`.
pub(crate) fn link_of(given: &Bound<'_, PyAny>) -> PyResult<StateLink> {
    if let Ok((past, present)) = given.extract::<(String, String)>() {
        return Ok(StateLink::new(past, present));
    }
    let given: Pairs<'_> = given.extract().map_err(|_: PyErr| {
        PyTypeError::new_err("a state is a pair of names, or a dict with `past` and `present`")
    })?;
    let (mut past, mut present, mut set) = (String::new(), String::new(), Vec::new());
    let mut is_fixed = false;
    for (name, value) in given.iter() {
        match name.extract::<&str>()? {
            "past" => past = value.extract()?,
            "present" => present = value.extract()?,
            "axis" | "capacity" | "window" if value.is_none() => {}
            "fixed" => is_fixed = value.extract()?,
            name @ ("axis" | "capacity" | "window") => set.push((name.to_owned(), value.extract::<i64>()?)),
            other => {
                let message = format!("a state has no {other:?}");
                return Err(PyTypeError::new_err(message));
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
    Ok(if is_fixed { link.fixed() } else { link })
}

/// A link as `link_of` takes it.
pub(crate) fn shown_link<'py>(py: Python<'py>, link: &StateLink) -> PyResult<Bound<'py, PyDict>> {
    let shown = PyDict::new(py);
    shown.set_item("past", link.past())?;
    shown.set_item("present", link.present())?;
    if link.is_fixed() {
        shown.set_item("fixed", true)?;
    }
    Ok(shown)
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
    pub(crate) fn of(state: SessionState) -> Self {
        Self { state: Mutex::new(state) }
    }

    /// The state, unless a run has it. To wait for that could be to wait for oneself.
    pub(crate) fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, SessionState>> {
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
    ///
    /// >>> import numpy as np, sterna
    /// >>> g = sterna.GraphBuilder()
    /// >>> past, x = g.input("past", "f32", [None, 1]), g.input("x", "f32", [None, 1])
    /// >>> g.output("present", g.concat([past, x], axis=0))
    /// >>> session = g.build().session(states=[("past", "present")])
    /// >>> state = session.new_state()
    /// >>> outputs = session.run({"x": [[1.0], [2.0]]}, state=state)
    /// >>> state.reset()
    /// >>> len(state)
    /// 0
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.lock(py)?.reset();
        Ok(())
    }

    /// Drops the newest rows behind a length.
    ///
    /// >>> import numpy as np, sterna
    /// >>> g = sterna.GraphBuilder()
    /// >>> past, x = g.input("past", "f32", [None, 1]), g.input("x", "f32", [None, 1])
    /// >>> g.output("present", g.concat([past, x], axis=0))
    /// >>> session = g.build().session(states=[("past", "present")])
    /// >>> state = session.new_state()
    /// >>> outputs = session.run({"x": [[1.0], [2.0]]}, state=state)
    /// >>> state.trim(1)
    /// >>> state.get("past").tolist()
    /// [[1.0]]
    fn trim(&self, py: Python<'_>, length: usize) -> PyResult<()> {
        self.lock(py)?.trim(length);
        Ok(())
    }

    /// A copy with memory of its own, for another sequence that starts alike.
    ///
    /// >>> import numpy as np, sterna
    /// >>> g = sterna.GraphBuilder()
    /// >>> past, x = g.input("past", "f32", [None, 1]), g.input("x", "f32", [None, 1])
    /// >>> g.output("present", g.concat([past, x], axis=0))
    /// >>> session = g.build().session(states=[("past", "present")])
    /// >>> state = session.new_state()
    /// >>> outputs = session.run({"x": [[1.0], [2.0]]}, state=state)
    /// >>> other = state.fork()
    /// >>> outputs = session.run({"x": [[3.0]]}, state=other)
    /// >>> len(state), len(other)
    /// (2, 3)
    fn fork(&self, py: Python<'_>) -> PyResult<Self> {
        let state = self.lock(py)?.fork().map_err(|error| raised(py, error))?;
        Ok(Self::of(state))
    }

    /// A copy of a tensor of the state, by the name of the input.
    ///
    /// Raises:
    ///     SessionError: for a name that is none, and before its dims are known.
    ///
    /// >>> import numpy as np, sterna
    /// >>> g = sterna.GraphBuilder()
    /// >>> past, x = g.input("past", "f32", [None, 1]), g.input("x", "f32", [None, 1])
    /// >>> g.output("present", g.concat([past, x], axis=0))
    /// >>> session = g.build().session(states=[("past", "present")])
    /// >>> state = session.new_state()
    /// >>> outputs = session.run({"x": [[1.0], [2.0]]}, state=state)
    /// >>> state.get("past").tolist()
    /// [[1.0], [2.0]]
    fn get<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let state = self.lock(py)?;
        let view = state.get(name).map_err(|error| raised(py, error))?;
        copied(py, &view)
    }

    /// Sets a tensor of the state, by the name of the input: a prefix that was computed before.
    ///
    /// Raises:
    ///     SessionError, ShapeError: for a name, type or shape that is not that of the model.
    ///
    /// >>> import numpy as np, sterna
    /// >>> g = sterna.GraphBuilder()
    /// >>> past, x = g.input("past", "f32", [None, 1]), g.input("x", "f32", [None, 1])
    /// >>> g.output("present", g.concat([past, x], axis=0))
    /// >>> session = g.build().session(states=[("past", "present")])
    /// >>> state = session.new_state()
    /// >>> state.set("past", np.array([[5.0]], np.float32))
    /// >>> outputs = session.run({"x": [[6.0]]}, state=state)
    /// >>> state.get("past").tolist()
    /// [[5.0], [6.0]]
    fn set(&self, py: Python<'_>, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let operand = Operand::new(value, None, Access::Read)?;
        self.lock(py)?.set(name, &operand).map_err(|error| raised(py, error))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let state = self.lock(py)?;
        Ok(format!("State(len={}, capacity={})", state.len(), state.capacity()))
    }
}
