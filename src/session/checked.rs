//! A model whose parts fit together: constants with their bytes, a source of each tensor, ops that run.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};

use super::custom::Helpers;
use super::links::LinkedPorts;
use super::missing::missing_ops;
use super::resolved::{WholeOps, whole_ops};
use crate::error::{Result, SessionFault};
use crate::execute::sequence::bytes;
use crate::graph::Graph;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::model::{CustomNode, Model, ModelPort};
use crate::graph::op::Op;
use crate::types::id::{OpId, TensorId};
use crate::types::kind::{Attr, Property};

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

/// The model of the last shapes that a source has given.
struct LastModel {
    graph: Graph,
    inputs: Vec<ModelPort>,
    outputs: Vec<ModelPort>,
    constants: Vec<TensorId>,
    custom: BTreeMap<OpId, CustomNode>,
    links: Vec<LinkedPorts>,
    checked: Arc<CheckedModel>,
}

/// The model that was checked last. One whose graph was made of its graph has the same ops, on other dims.
#[derive(Default)]
pub(super) struct KeptModel(Mutex<Option<Arc<LastModel>>>);

impl KeptModel {
    /// The parts of a model that a source has given.
    pub(super) fn checked(&self, model: &Model, links: &[LinkedPorts]) -> Result<Arc<CheckedModel>> {
        let before = self.0.lock().clone();
        let again = match before.filter(|before| before.is_as(model, links)) {
            Some(before) => before.again(model)?,
            None => None,
        };
        let checked = Arc::new(match again {
            Some(again) => again,
            None => CheckedModel::new(model, links)?,
        });
        let last = LastModel {
            graph: model.graph().clone(),
            inputs: model.inputs().to_vec(),
            outputs: model.outputs().to_vec(),
            constants: model.constants().keys().copied().collect(),
            custom: model.custom_nodes().clone(),
            links: links.to_vec(),
            checked: checked.clone(),
        };
        let before = self.0.lock().replace(Arc::new(last));
        drop(before);
        Ok(checked)
    }
}

impl LastModel {
    /// True if another model differs in dims, attributes and the bytes of constants alone.
    fn is_as(&self, model: &Model, links: &[LinkedPorts]) -> bool {
        let same = |own: &[ModelPort], other: &[ModelPort]| {
            let facts = |port: &ModelPort| (port.tensor.id(), port.tensor.data_type(), port.tensor.rank());
            own.len() == other.len() && own.iter().zip(other).all(|(own, other)| facts(own) == facts(other))
        };
        // Perhaps no op mentions a constant that is an output.
        let is_known = |(own, other): (&ModelPort, &ModelPort)| {
            own.tensor == other.tensor || !model.constants().contains_key(&own.tensor.id())
        };
        model.graph().has_links_of(&self.graph)
            && same(&self.inputs, model.inputs())
            && same(&self.outputs, model.outputs())
            && self.outputs.iter().zip(model.outputs()).all(is_known)
            && self.custom == *model.custom_nodes()
            && self.links == links
            && self.constants.iter().eq(model.constants().keys())
    }

    /// The parts of such a model; `None` if an attribute or a type may have made others of it.
    fn again(&self, model: &Model) -> Result<Option<CheckedModel>> {
        let pairs = self.graph.ops().iter().zip(model.graph().ops());
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
        let CheckedModel { ops: WholeOps { ops, outputs, states }, constants } = &*self.checked;
        let now = |op: &Op| changed.get(&op.id()).map_or(op, |(_, is)| is).clone();
        let ops =
            WholeOps { ops: ops.iter().map(now).collect(), outputs: outputs.clone(), states: states.clone() };
        let mut constants = constants.clone();
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
