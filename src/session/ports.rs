//! The inputs and outputs that a caller gives, by name, checked against a model.

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use crate::error::{Result, SessionFault};
use crate::execute::dyn_view::{DynView, DynViewMut};
use crate::execute::sequence::PartitionSequence;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::model::{Model, ModelPort};
use crate::types::nearest::nearest;
use crate::types::shape;

/// Checks that no two ports have one name.
pub(super) fn check_names(what: &'static str, ports: &[ModelPort]) -> Result<()> {
    let mut seen = FxHashSet::default();
    match ports.iter().find(|port| !seen.insert(port.name())) {
        Some(port) => Err(SessionFault::SameName { what, name: port.name().to_owned() }.into()),
        None => Ok(()),
    }
}

/// The port of a model that has the name of another port.
fn port_of<'a>(what: &'static str, ports: &'a [ModelPort], of: &ModelPort) -> Result<&'a ModelPort> {
    Ok(&ports[index_of(what, ports, 0, of.name())?])
}

/// Descriptions of inputs for the tensors that a model has for them.
pub(super) fn inputs_of(
    model: &Model,
    ports: &[ModelPort],
    inputs: Vec<LogicalTensor>,
) -> Result<Vec<LogicalTensor>> {
    let with_id = |(input, of): (LogicalTensor, &ModelPort)| {
        let port = port_of("input", model.inputs(), of)?;
        let (expected, given) = (port.tensor.data_type(), input.data_type());
        match expected == given {
            true => Ok(input.with_id(port.tensor.id())),
            false => {
                Err(SessionFault::Type { what: "input", name: of.name().to_owned(), expected, given }.into())
            }
        }
    };
    inputs.into_iter().zip(ports).map(with_id).collect()
}

/// A model with its ports in the order of others.
pub(super) fn ordered(model: Model, inputs: &[ModelPort], outputs: &[ModelPort]) -> Result<Model> {
    let inputs = inputs.iter().map(|of| port_of("input", model.inputs(), of).cloned());
    let inputs = inputs.collect::<Result<_>>()?;
    let outputs = outputs.iter().map(|of| port_of("output", model.outputs(), of).cloned());
    let outputs = outputs.collect::<Result<_>>()?;
    Ok(model.with_other_ports(inputs, outputs))
}

/// Views that are given by name, each of which is checked, in the order of the ports.
pub(super) fn in_order<'n, V, Found: FromIterator<V>>(
    what: &'static str,
    ports: &[ModelPort],
    given: impl Iterator<Item = (&'n str, V)>,
    check: impl Fn(usize, &V) -> Result<()>,
) -> Result<Found> {
    let mut found: SmallVec<[Option<V>; 8]> = ports.iter().map(|_| None).collect();
    for (at, (name, view)) in given.enumerate() {
        let index = index_of(what, ports, at, name)?;
        check(index, &view)?;
        if found[index].replace(view).is_some() {
            return Err(SessionFault::GivenTwice { what, name: name.to_owned() }.into());
        }
    }
    let missing = |port: &ModelPort| SessionFault::Missing { what, name: port.name().to_owned() }.into();
    found.into_iter().zip(ports).map(|(view, port)| view.ok_or_else(|| missing(port))).collect()
}

/// The index of the port of a name. Most callers give the ports in the order of the model.
pub(super) fn index_of(what: &'static str, ports: &[ModelPort], at: usize, name: &str) -> Result<usize> {
    if ports.get(at).is_some_and(|port| port.name() == name) {
        return Ok(at);
    }
    let own = ports.iter().position(|port| port.name() == name);
    let any = || ports.iter().position(|port| port.names.iter().any(|other| other == name));
    own.or_else(any).ok_or_else(|| {
        let known: Vec<String> = ports.iter().map(|port| port.name().to_owned()).collect();
        let nearest = nearest(name, known.iter().map(String::as_str)).map(str::to_owned);
        SessionFault::UnknownName { what, name: name.to_owned(), known, nearest }.into()
    })
}

/// The inputs of a run: views, or their descriptions alone.
pub(super) enum GivenInputs<'a> {
    Views(&'a [DynView<'a>]),
    Descs(&'a [LogicalTensor]),
}

impl GivenInputs<'_> {
    /// True if they are inputs of a plan.
    pub(super) fn fit(&self, plan: &PartitionSequence) -> bool {
        let descs = plan.inputs();
        match self {
            Self::Views(views) => {
                let pairs = || descs.iter().zip(*views);
                // Of many plans, most have other dims.
                let has_dims = |(desc, view): (&LogicalTensor, &DynView<'_>)| {
                    view.raw.dims.as_deref().is_none_or(|own| desc.dims() == Some(own))
                };
                pairs().all(has_dims) && pairs().all(|(desc, view)| view.raw.is_memory_of(desc))
            }
            Self::Descs(given) => descs.iter().zip(*given).all(|(desc, given)| desc.is_same_memory(given)),
        }
    }

    /// Their descriptions, checked against the ports.
    pub(super) fn described(&self, ports: &[ModelPort]) -> Result<Vec<LogicalTensor>> {
        match self {
            Self::Views(views) => {
                ports.iter().zip(*views).map(|(port, view)| described(port, view)).collect()
            }
            Self::Descs(given) => Ok(given.to_vec()),
        }
    }
}

/// The description of an input, checked against the model.
fn described(port: &ModelPort, view: &DynView<'_>) -> Result<LogicalTensor> {
    let (expected, given) = (port.tensor.data_type(), view.data_type());
    if expected != given {
        let name = port.name().to_owned();
        return Err(SessionFault::Type { what: "input", name, expected, given }.into());
    }
    let desc = view.desc(port.tensor.id())?.with_property(port.tensor.property())?;
    check_dims(port, &desc)?;
    let (needed, given) = (desc.span().unwrap_or(0), view.raw.length());
    if needed > given {
        let name = port.name().to_owned();
        return Err(SessionFault::TooShort { what: "input", name, needed, given }.into());
    }
    Ok(desc)
}

/// The row-major description of an input of some dims, checked against the model.
pub(super) fn row_major(port: &ModelPort, dims: &[i64]) -> Result<LogicalTensor> {
    let tensor = &port.tensor;
    let desc = LogicalTensor::strided(tensor.id(), tensor.data_type(), dims)?;
    let desc = desc.with_property(tensor.property())?;
    check_dims(port, &desc)?;
    Ok(desc)
}

fn check_dims(port: &ModelPort, desc: &LogicalTensor) -> Result<()> {
    let Some(expected) = port.tensor.partial_dims() else { return Ok(()) };
    let given = desc.dims().unwrap_or_default();
    let fits = |(said, given): (&Option<i64>, &i64)| said.is_none_or(|said| said == *given);
    match expected.len() == given.len() && expected.iter().zip(given).all(fits) {
        true => Ok(()),
        false => {
            let (name, given) = (port.name().to_owned(), given.to_vec());
            Err(SessionFault::Dims { what: "input", name, expected, given }.into())
        }
    }
}

/// Checks that a view is memory for an output.
pub(super) fn check_output(name: &str, view: &DynViewMut<'_>, output: &LogicalTensor) -> Result<()> {
    if view.raw.is_memory_of(output) {
        return Ok(());
    }
    let (what, name) = ("output", name.to_owned());
    let (expected, given) = (output.data_type(), view.data_type());
    if expected != given {
        return Err(SessionFault::Type { what, name, expected, given }.into());
    }
    let (dims, own) = (output.dims().unwrap_or_default(), view.raw.dims.as_deref());
    if let Some(own) = own.filter(|&own| own != dims) {
        let expected = dims.iter().map(|&dim| shape::known(dim)).collect();
        return Err(SessionFault::Dims { what, name, expected, given: own.to_vec() }.into());
    }
    let (needed, given) = (output.span().unwrap_or(0), view.raw.length());
    match needed > given {
        true => Err(SessionFault::TooShort { what, name, needed, given }.into()),
        false => Err(SessionFault::Strided(name).into()),
    }
}
