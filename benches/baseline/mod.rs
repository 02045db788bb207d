//! The limits of the rows of the benches.

mod loops;

pub(crate) use loops::*;

use crate::rows::{Baseline, Row, result_dims};

/// The plain loop of a row.
pub(crate) fn of_row(row: &Row) -> BaselineLoop {
    let width = row.data_type.size().expect("the rows are sound");
    let strides = if row.shape.baseline == Baseline::Same { row.shape.strides } else { [None; 4] };
    BaselineLoop::new(width, &result_dims(row.shape.dims), row.shape.dims, strides, row.in_place_of)
}
