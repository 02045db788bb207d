//! One select in one call.

use pyo3::prelude::*;
use sterna::{AutoBroadcast, DataType, SelectOptions};

use crate::engine::{entered, parsed};
use crate::foreign::{Access, Number, Operand, new_array};
use crate::run::{detached, detached_untold};

/// Chooses elements: `x` where `cond` is true, else `y`, bit for bit.
///
/// The result has the type of `x` and `y`, which share one. A number of Python takes the type of the other
/// operand. Compiled partitions are cached by types, shapes and strides.
///
/// Args:
///     cond: booleans.
///     x: the elements where `cond` is true; any type of whole bytes.
///     y: the elements elsewhere, of the type of `x`.
///     auto_broadcast: how shapes combine: "multidirectional" as in NumPy and torch; "numpy", under which
///         `cond` never enlarges the result; "none"; "pdpd".
///     axis: under "pdpd", the dim of `x` at which the other operands start.
///     out: an array of the shape and type of the result that is written instead of a new one. It may be `x`
///         or `y` itself.
///
/// Returns:
///     `out`, or a new row-major NumPy array.
///
/// Raises:
///     ShapeError: if the shapes do not broadcast, or `out` has another one.
///     OpError: if `cond` is not boolean, or the types of `x`, `y` and `out` differ.
///     ArrayError: for an object that is no array, and for an `out` that is read-only.
///     ExecuteError: if `out` overlaps an operand.
///
/// >>> import numpy as np, sterna
/// >>> scores = np.array([[0.5, 2.0, 1.5], [0.0, 1.0, 3.0]], np.float32)
/// >>> sterna.select(np.array([True, False, True]), scores, -1.0)
/// array([[ 0.5, -1. ,  1.5],
///        [ 0. , -1. ,  3. ]], dtype=float32)
#[pyfunction]
#[pyo3(signature = (cond, x, y, *, auto_broadcast="multidirectional", axis=None, out=None))]
pub(crate) fn select<'py>(
    py: Python<'py>,
    cond: &Bound<'py, PyAny>,
    x: &Bound<'py, PyAny>,
    y: &Bound<'py, PyAny>,
    auto_broadcast: &str,
    axis: Option<i64>,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let cond = Operand::new(cond, Some(DataType::Boolean), Access::Read)?;
    let (x, y) = branches(x, y)?;
    let mut options = SelectOptions::new().auto_broadcast(parsed::<AutoBroadcast>(auto_broadcast)?);
    if let Some(axis) = axis {
        options = options.axis(axis);
    }
    if let Some(engine) = entered() {
        options = options.engine(&engine);
    }
    let (cond, x, y) = (cond.view(), x.view(), y.view());
    let (result, mut target) = match out {
        Some(out) => (out.clone(), Operand::new(out, None, Access::Write)?),
        None => {
            let dims = detached_untold(py, || options.dims_dyn(&cond, &x, &y))?;
            new_array(py, x.data_type(), &dims, None)?
        }
    };
    let mut dst = target.view_mut()?;
    detached(py, || options.select_dyn(&cond, &x, &y, &mut dst))?;
    Ok(result)
}

/// The two branches, of which a number takes the type of the other one.
fn branches(x: &Bound<'_, PyAny>, y: &Bound<'_, PyAny>) -> PyResult<(Operand, Operand)> {
    match (Number::of(x), Number::of(y)) {
        (None, None) => Ok((Operand::new(x, None, Access::Read)?, Operand::new(y, None, Access::Read)?)),
        (None, Some(number)) => {
            let x = Operand::new(x, None, Access::Read)?;
            let y = Operand::of_number(y.py(), number, x.data_type())?;
            Ok((x, y))
        }
        (Some(number), None) => {
            let y = Operand::new(y, None, Access::Read)?;
            Ok((Operand::of_number(x.py(), number, y.data_type())?, y))
        }
        (Some(a), Some(b)) => {
            let data_type = match (a.data_type(), b.data_type()) {
                (a, b) if a == b => a,
                (DataType::F64, _) | (_, DataType::F64) => DataType::F64,
                _ => DataType::S64,
            };
            Ok((Operand::of_number(x.py(), a, data_type)?, Operand::of_number(y.py(), b, data_type)?))
        }
    }
}
