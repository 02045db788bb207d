//! Shapes and values of inputs that the reader of a model needs beside the file, which options give.

use std::collections::BTreeMap;

use sterna::reference::Value;
use sterna::{DataType, LogicalTensor, TensorId};
use sterna_import::{Fault, Imported, ModelFile, Options};

/// The inputs of a model with their names.
pub(crate) type ModelPorts = BTreeMap<TensorId, (String, LogicalTensor)>;

/// The options that may give what a model cannot be read without, at the end of a message: one for each input
/// that takes such a value and to which the option gives nothing.
pub(crate) fn hint(
    error: &sterna_import::Error,
    ports: &ModelPorts,
    is_given: impl Fn(&str, &str) -> bool,
) -> String {
    let sterna_import::Error::Layer { fault, .. } = error else { return String::new() };
    let (option, takes, what): (_, fn(&LogicalTensor) -> bool, _) = match **fault {
        Fault::UnknownShape { .. } => ("--shape", |tensor| tensor.dims().is_none(), "a shape"),
        Fault::NotConstant { .. } => ("--input", is_list, "a value"),
        _ => return String::new(),
    };
    let open = ports.values().filter(|(name, tensor)| takes(tensor) && !is_given(option, name));
    let value = |tensor: &LogicalTensor| match tensor.partial_dims().filter(|_| option == "--shape") {
        Some(dims) => {
            let dims = dims.iter().map(|dim| dim.map_or_else(|| "?".to_owned(), |dim| dim.to_string()));
            dims.collect::<Vec<_>>().join("x")
        }
        None => "...".to_owned(),
    };
    let options: Vec<String> =
        open.map(|(name, tensor)| format!("{option} {name}={}", value(tensor))).collect();
    if options.is_empty() { String::new() } else { format!("; {} gives {what}", options.join(" ")) }
}

/// True if a tensor is a whole number or a list of them, as shapes and axes are.
fn is_list(tensor: &LogicalTensor) -> bool {
    let is_short = tensor.rank().is_none_or(|rank| rank <= 1);
    is_short && matches!(tensor.data_type(), DataType::S32 | DataType::S64)
}

/// The same of a value.
pub(crate) fn is_list_value(value: &Value) -> bool {
    matches!(value.data_type(), DataType::S32 | DataType::S64) && value.dims().len() <= 1
}

/// The remark that a value was taken as a constant.
pub(crate) fn note(name: &str) -> String {
    format!(
        "the value of the input {name:?} was taken as a constant: all that follows from it was computed when \
         the model was read, and is not part of the times"
    )
}

/// Reads a model; if a node of it needs a constant, with the values of inputs that are lists of whole
/// numbers, as shapes and axes are, and if that is not enough with all that are given.
pub(crate) fn read_with_values(
    model: &ModelFile,
    options: &mut Options,
    values: &BTreeMap<String, Value>,
) -> Result<Imported, sterna_import::Error> {
    let mut imported = model.import(options);
    for takes_all in [false, true] {
        let wants_constant = |error: &sterna_import::Error| match error {
            sterna_import::Error::Layer { fault, .. } => matches!(**fault, Fault::NotConstant { .. }),
            _ => false,
        };
        if !imported.as_ref().is_err_and(wants_constant) || values.is_empty() {
            break;
        }
        let taken = values.iter().filter(|(_, value)| takes_all || is_list_value(value));
        options.values.extend(taken.map(|(name, value)| (name.clone(), value.clone())));
        imported = model.import(options);
    }
    imported
}
