//! A model whose parts fit together: constants with their bytes, a source of each tensor, ops that run.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use super::custom::Helpers;
use super::links::LinkedPorts;
use super::missing::missing_ops;
use super::resolved::{WholeOps, whole_ops};
use crate::error::{Result, SessionFault};
use crate::execute::sequence::bytes;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::model::Model;
use crate::graph::op::Op;
use crate::types::id::TensorId;
use crate::types::kind::Property;

/// A model whose parts fit together.
pub(super) struct CheckedModel {
    pub(super) ops: WholeOps,
    /// Descriptions of the constants.
    pub(super) constants: BTreeMap<TensorId, LogicalTensor>,
}

impl CheckedModel {
    pub(super) fn new(model: &Model, links: &[LinkedPorts]) -> Result<Self> {
        let constants = constants(model)?;
        let ops = whole_ops(model, links)?;
        check_sources(model, &ops.ops)?;
        Ok(Self { ops, constants })
    }

    /// Checks that something runs each op, whatever the shapes.
    pub(super) fn check_ops(&self, model: &Model, helpers: &Helpers) -> Result<()> {
        let missing = missing_ops(model, &self.ops.ops, helpers)?;
        match missing.is_empty() {
            true => Ok(()),
            false => Err(SessionFault::MissingOps(missing).into()),
        }
    }
}

/// A row-major description, if all dims are known.
pub(super) fn concrete(tensor: &LogicalTensor) -> Option<LogicalTensor> {
    let dims = tensor.dims()?;
    match tensor.strides() {
        Some(_) => Some(tensor.clone()),
        None => {
            let dense = LogicalTensor::strided(tensor.id(), tensor.data_type(), dims).ok()?;
            dense.with_property(tensor.property()).ok()
        }
    }
}

/// The description of each constant, as the graph mentions it.
fn constants(model: &Model) -> Result<BTreeMap<TensorId, LogicalTensor>> {
    let mut known = BTreeMap::new();
    let mentions = model.graph().ops().iter().flat_map(Op::inputs);
    let of_outputs = model.outputs().iter().map(|port| &port.tensor);
    for tensor in mentions.chain(of_outputs) {
        let Some(data) = model.constants().get(&tensor.id()) else { continue };
        if known.contains_key(&tensor.id()) {
            continue;
        }
        let Some(desc) = concrete(tensor) else {
            return Err(SessionFault::OpenShape { tensor: tensor.id(), node: "a constant".into() }.into());
        };
        let (needed, given) = (bytes(&desc), data.bytes().len());
        if needed > given {
            return Err(SessionFault::ConstantBytes { tensor: tensor.id(), needed, given }.into());
        }
        let property = if desc.is_host_scalar() { Property::HostScalar } else { Property::Constant };
        known.insert(tensor.id(), desc.with_property(property)?);
    }
    Ok(known)
}

/// Checks that something gives each tensor that ops read.
fn check_sources(model: &Model, ops: &[Op]) -> Result<()> {
    let outputs = ops.iter().flat_map(Op::outputs).map(LogicalTensor::id);
    let inputs = model.inputs().iter().map(|port| port.tensor.id());
    let given: FxHashSet<TensorId> = outputs.chain(inputs).chain(model.constants().keys().copied()).collect();
    let mut read = ops.iter().flat_map(Op::inputs).map(LogicalTensor::id);
    match read.find(|id| !given.contains(id)) {
        Some(id) => Err(SessionFault::NoSource(id).into()),
        None => Ok(()),
    }
}
