//! Functions of Python as ops of a session.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use sterna::{CustomNode, CustomOp, DataType, Dims, DynView, DynViewMut, LogicalTensor};

use crate::error::{array_error, attribute};
use crate::foreign::{Access, Operand, copied, new_array, write_to};

/// A result of a function as an operand of the type, and the dims if they are known, that the model has.
fn checked(
    index: usize,
    result: &Bound<'_, PyAny>,
    data_type: DataType,
    dims: Option<&Dims>,
) -> PyResult<Operand> {
    if data_type == DataType::Undef {
        return Err(array_error(&format!("the model says no type for result {index}")));
    }
    let operand = Operand::new(result, Some(data_type), Access::Read)?;
    if operand.data_type() == data_type && dims.is_none_or(|dims| dims == operand.dims()) {
        return Ok(operand);
    }
    let (given, of) = (operand.dims().as_slice(), operand.data_type());
    let needed = dims.map_or(String::new(), |dims| format!(" {:?}", dims.as_slice()));
    Err(array_error(&format!("result {index} is {of} {given:?}; the model needs {data_type}{needed}")))
}

/// The exception of the function that failed last, which becomes the cause of the error of the run.
pub(crate) type Failure = Arc<Mutex<Option<PyErr>>>;

/// A function of Python that takes arrays and gives an array, or a tuple of them.
pub(crate) struct PythonOp {
    pub(crate) function: Py<PyAny>,
    pub(crate) failure: Failure,
}

impl PythonOp {
    /// Calls the function on arrays and the attributes of the node; gives its results as operands.
    fn call(
        &self,
        py: Python<'_>,
        node: &CustomNode,
        inputs: Vec<Bound<'_, PyAny>>,
        outputs: &[(DataType, Option<Dims>)],
    ) -> PyResult<Vec<Operand>> {
        let attributes = PyDict::new(py);
        for (name, value) in &node.attrs {
            attributes.set_item(name, attribute(py, value)?)?;
        }
        let results = self.function.bind(py).call(PyTuple::new(py, inputs)?, Some(&attributes))?;
        let results: Vec<Bound<'_, PyAny>> = match (results.cast::<PyTuple>(), results.cast::<PyList>()) {
            (Ok(several), _) => several.iter().collect(),
            (_, Ok(several)) if outputs.len() > 1 => several.iter().collect(),
            _ => vec![results],
        };
        if results.len() != outputs.len() {
            let (given, needed) = (results.len(), outputs.len());
            return Err(array_error(&format!("it gives {given} results, not {needed}")));
        }
        let pairs = results.iter().zip(outputs).enumerate();
        pairs
            .map(|(index, (result, (data_type, dims)))| checked(index, result, *data_type, dims.as_ref()))
            .collect()
    }

    /// The text of an exception, which is kept.
    fn failed(&self, error: PyErr) -> String {
        let text = error.to_string();
        let before = self.failure.lock().unwrap_or_else(PoisonError::into_inner).replace(error);
        // Code of Python may run when an exception goes, so the lock is given back before.
        drop(before);
        text
    }
}

impl CustomOp for PythonOp {
    /// The dims that the model says, or, if those are not all, those of the results of the function for
    /// zeros.
    fn output_dims(
        &self,
        node: &CustomNode,
        inputs: &[LogicalTensor],
        outputs: &[LogicalTensor],
    ) -> Result<Vec<Dims>, String> {
        if let Some(known) = outputs.iter().map(|output| output.dims().map(Dims::from)).collect() {
            return Ok(known);
        }
        Python::attach(|py| {
            let zeros = |input: &LogicalTensor| {
                let (array, _) = new_array(py, input.data_type(), input.dims().unwrap_or_default(), None)?;
                array.call_method1("fill", (0,))?;
                Ok(array)
            };
            let call = || {
                let inputs = inputs.iter().map(zeros).collect::<PyResult<Vec<_>>>()?;
                let outputs: Vec<_> = outputs.iter().map(|output| (output.data_type(), None)).collect();
                self.call(py, node, inputs, &outputs)
            };
            let results = call().map_err(|error| self.failed(error))?;
            Ok(results.iter().map(|operand| operand.dims().clone()).collect())
        })
    }

    fn run(
        &self,
        node: &CustomNode,
        inputs: &[DynView<'_>],
        outputs: &mut [DynViewMut<'_>],
    ) -> Result<(), String> {
        Python::attach(|py| {
            let mut call = || {
                // The function may keep what it is given, so it gets copies.
                let inputs = inputs.iter().map(|view| copied(py, view)).collect::<PyResult<Vec<_>>>()?;
                let described: Vec<_> =
                    outputs.iter().map(|view| (view.data_type(), Some(Dims::from(view.dims())))).collect();
                let results = self.call(py, node, inputs, &described)?;
                outputs.iter_mut().zip(&results).try_for_each(|(view, result)| write_to(py, view, result))
            };
            call().map_err(|error| self.failed(error))
        })
    }
}
