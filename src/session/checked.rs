//! A model whose parts fit together: constants with their bytes, a source of each tensor, ops that run.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::custom::Helpers;
use super::links::LinkedPorts;
use super::missing::missing_ops;
use super::resolved::{WholeOps, whole_ops};
use crate::error::{Result, SessionFault};
use crate::execute::sequence::bytes;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::model::{Model, ModelPort};
use crate::graph::op::Op;
use crate::types::id::{OpId, TensorId};
use crate::types::kind::{Attr, Property};

/// A model whose parts fit together.
#[derive(Clone)]
pub(super) struct CheckedModel {
    pub(super) ops: Arc<WholeOps>,
    /// Descriptions of the constants.
    pub(super) constants: BTreeMap<TensorId, LogicalTensor>,
}

impl CheckedModel {
    pub(super) fn new(model: &Model, links: &[LinkedPorts]) -> Result<Self> {
        let constants = constants(model)?;
        let ops = Arc::new(whole_ops(model, links)?);
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

/// A model that a source has given, and its parts.
pub(super) struct SourcedModel {
    pub(super) model: Model,
    pub(super) checked: CheckedModel,
    links: Vec<LinkedPorts>,
}

impl SourcedModel {
    /// The parts of a model. One whose graph was made of that of the last one has the same ops, on other
    /// dims.
    pub(super) fn new(model: Model, links: &[LinkedPorts], last: Option<&Self>) -> Result<Self> {
        let again = match last.filter(|last| last.is_as(&model, links)) {
            Some(last) => last.again(&model)?,
            None => None,
        };
        let checked = again.map_or_else(|| CheckedModel::new(&model, links), Ok)?;
        Ok(Self { model, checked, links: links.to_vec() })
    }

    /// True if another model differs in dims, attributes and the bytes of constants alone.
    fn is_as(&self, model: &Model, links: &[LinkedPorts]) -> bool {
        let own = &self.model;
        let same = |own: &[ModelPort], other: &[ModelPort]| {
            let facts = |port: &ModelPort| (port.tensor.id(), port.tensor.data_type(), port.tensor.rank());
            own.len() == other.len() && own.iter().zip(other).all(|(own, other)| facts(own) == facts(other))
        };
        // Perhaps no op mentions a constant that is an output.
        let is_known = |(own, other): (&ModelPort, &ModelPort)| {
            own.tensor == other.tensor || !model.constants().contains_key(&own.tensor.id())
        };
        model.graph().has_links_of(own.graph())
            && same(own.inputs(), model.inputs())
            && same(own.outputs(), model.outputs())
            && own.outputs().iter().zip(model.outputs()).all(is_known)
            && own.custom_nodes() == model.custom_nodes()
            && self.links == links
            && own.constants().keys().eq(model.constants().keys())
    }

    /// The parts of such a model; `None` if an attribute or a type may have made others of it.
    fn again(&self, model: &Model) -> Result<Option<CheckedModel>> {
        let pairs = self.model.graph().ops().iter().zip(model.graph().ops());
        let changed: FxHashMap<OpId, (&Op, &Op)> =
            pairs.filter(|(was, is)| !was.is_same(is)).map(|pair| (pair.1.id(), pair)).collect();
        let is_alike = |(was, is): &(&Op, &Op)| {
            let facts = |tensor: &LogicalTensor| (tensor.data_type(), tensor.property(), tensor.rank());
            let [was_ports, is_ports] = [was, is].map(|op| op.inputs().iter().chain(op.outputs()).map(facts));
            was_ports.eq(is_ports) && was.s64_attr(Attr::Axis) == is.s64_attr(Attr::Axis)
        };
        if !changed.values().all(is_alike) {
            return Ok(None);
        }
        let CheckedModel { ops, mut constants } = self.checked.clone();
        let now = |op: &Op| changed.get(&op.id()).map_or(op, |(_, is)| is).clone();
        let ops = Arc::new(ops.with(ops.ops.iter().map(now).collect()));
        for input in changed.values().flat_map(|(_, is)| is.inputs()) {
            if let Some(known) = constants.get_mut(&input.id()) {
                *known = constant(input)?;
            }
        }
        check_bytes(&constants, model)?;
        Ok(Some(CheckedModel { ops, constants }))
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
        if !model.constants().contains_key(&tensor.id()) || known.contains_key(&tensor.id()) {
            continue;
        }
        known.insert(tensor.id(), constant(tensor)?);
    }
    check_bytes(&known, model)?;
    Ok(known)
}

/// The description of a constant that the graph mentions.
fn constant(tensor: &LogicalTensor) -> Result<LogicalTensor> {
    let Some(desc) = concrete(tensor) else {
        return Err(SessionFault::OpenShape { tensor: tensor.id(), node: "a constant".into() }.into());
    };
    let property = if desc.is_host_scalar() { Property::HostScalar } else { Property::Constant };
    desc.with_property(property)
}

/// Checks that constants have all their elements.
fn check_bytes(constants: &BTreeMap<TensorId, LogicalTensor>, model: &Model) -> Result<()> {
    for (&tensor, desc) in constants {
        let given = model.constants().get(&tensor).map_or(0, |data| data.bytes().len());
        let needed = bytes(desc);
        if needed > given {
            return Err(SessionFault::ConstantBytes { tensor, needed, given }.into());
        }
    }
    Ok(())
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
