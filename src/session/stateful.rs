//! A model with a state in place of the inputs and outputs that links name.

use std::sync::Arc;

use super::checked::CheckedModel;
use super::links::{LinkedPorts, StateLink, unlinked};
use super::resolved::appended_dims;
use super::state::{SessionState, StateSpec};
use crate::error::Result;
use crate::execute::engine::Engine;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::model::{Model, ModelPort};

/// A model whose links are not the caller's to give or to get.
pub(super) struct StatefulModel {
    pub(super) spec: Arc<StateSpec>,
    /// The inputs and outputs that are no links.
    pub(super) inputs: Vec<ModelPort>,
    pub(super) outputs: Vec<ModelPort>,
    pub(super) output_names: Arc<[String]>,
    /// The model for all shapes, unless it has a source.
    pub(super) checked: Option<CheckedModel>,
}

impl StatefulModel {
    pub(super) fn new(model: &Model, links: &[StateLink], engine: &Engine) -> Result<Option<Self>> {
        if links.is_empty() {
            return Ok(None);
        }
        let links = LinkedPorts::new(links, model)?;
        let checked = match model.source() {
            Some(_) => None,
            None => Some(CheckedModel::new(model, &links)?),
        };
        let is_input = |index: usize| links.iter().any(|link| link.input == index);
        let is_output = |index: usize| links.iter().any(|link| link.output == index);
        let inputs = unlinked(model.inputs(), is_input);
        let outputs = unlinked(model.outputs(), is_output);
        let output_names = outputs.iter().map(|port| port.name().to_owned()).collect();
        let ports = links.iter().map(|link| model.inputs()[link.input].clone()).collect();
        let spec = Arc::new(StateSpec { engine: engine.clone(), ports, links });
        Ok(Some(Self { spec, inputs, outputs, output_names, checked }))
    }

    /// Descriptions of all inputs of the model, in its order.
    pub(super) fn all_inputs(&self, inputs: &[LogicalTensor], pasts: &[LogicalTensor]) -> Vec<LogicalTensor> {
        let links = &self.spec.links;
        let mut others = inputs.iter();
        let of_index = |index| match links.iter().position(|link| link.input == index) {
            Some(link) => pasts.get(link).cloned(),
            None => others.next().cloned(),
        };
        (0..inputs.len() + pasts.len()).filter_map(of_index).collect()
    }

    /// Learns dims of a state that is about to run for the first time: from the inputs, and from the rows
    /// that the run adds.
    ///
    /// # Errors
    ///
    /// [`SessionFault::OpenState`](crate::SessionFault::OpenState); shapes that contradict an op;
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub(super) fn know(&self, state: &mut SessionState, inputs: &[LogicalTensor]) -> Result<()> {
        if let Some(checked) = &self.checked {
            let mut given = checked.constants.clone();
            given.extend(inputs.iter().map(|input| (input.id(), input.clone())));
            given.extend(state.open_descs()?.into_iter().map(|past| (past.id(), past)));
            for (index, dims) in appended_dims(&checked.ops, &given)?.into_iter().enumerate() {
                state.learn(index, &dims.unwrap_or_default());
            }
        }
        let ports = self.inputs.iter().zip(inputs);
        let known: Vec<(&ModelPort, &[i64])> =
            ports.map(|(port, input)| (port, input.dims().unwrap_or_default())).collect();
        state.know(&known)
    }
}
