//! Ops that others run: those of the caller, and the reference interpreter where a session allows it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::profile::SpanKind;
use crate::error::{Error, Result, SessionFault};
use crate::execute::dyn_view::{DynView, DynViewMut};
use crate::execute::engine::Engine;
use crate::execute::sequence::StepCall;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::model::{CustomNode, Model};
use crate::graph::op::Op;
use crate::reference::{self, Value};
use crate::types::kind::OpKind;
use crate::types::shape::Dims;
use crate::types::trace::slower;

/// An op of the caller's own, which a [`Session`](crate::Session) runs where no kernel of Sterna does.
///
/// ```
/// use sterna::{CustomNode, CustomOp, DataType, Dims, DynView, DynViewMut, LogicalTensor};
/// use sterna::{Engine, GraphBuilder, Session};
///
/// struct Triple;
///
/// impl CustomOp for Triple {
///     fn output_dims(
///         &self,
///         _: &CustomNode,
///         inputs: &[LogicalTensor],
///         _: &[LogicalTensor],
///     ) -> Result<Vec<Dims>, String> {
///         Ok(vec![inputs[0].dims().ok_or("the input is open")?.into()])
///     }
///
///     fn run(
///         &self,
///         _: &CustomNode,
///         inputs: &[DynView<'_>],
///         outputs: &mut [DynViewMut<'_>],
///     ) -> Result<(), String> {
///         let x = inputs[0].elements::<f32>().map_err(|error| error.to_string())?;
///         let y = outputs[0].elements_mut::<f32>().map_err(|error| error.to_string())?;
///         y.iter_mut().zip(x).for_each(|(y, x)| *y = 3.0 * x);
///         Ok(())
///     }
/// }
///
/// let g = GraphBuilder::new();
/// let x = g.input("x", DataType::F32, &[None])?;
/// let y = g.custom("my.domain::Triple", &[x], &[(DataType::F32, None)])?[0];
/// g.output("y", (y + 1.0)?)?;
/// let session = Session::builder(g.build()?).op("my.domain::Triple", Triple).build(&Engine::new())?;
/// let outputs = session.run(&[("x", &[1.0f32, 2.0])])?;
/// assert_eq!(outputs["y"].as_slice::<f32>()?, [4.0, 7.0]);
/// # Ok::<(), sterna::Error>(())
/// ```
pub trait CustomOp: Send + Sync {
    /// The dims of the outputs for inputs of known types and dims. `outputs` are described as far as the
    /// model says: their number, their types, and dims that it knows.
    ///
    /// # Errors
    ///
    /// A message, which becomes [`SessionFault::Custom`].
    fn output_dims(
        &self,
        node: &CustomNode,
        inputs: &[LogicalTensor],
        outputs: &[LogicalTensor],
    ) -> Result<Vec<Dims>, String>;

    /// Reads the inputs and writes all elements of the outputs. Tensors between ops are row-major; one that
    /// the caller of the session gives has the strides that it was given with, and one of a state has strides
    /// that leave room behind its rows.
    ///
    /// # Errors
    ///
    /// A message, which becomes [`SessionFault::Custom`]; the run ends with it. So it does if the bytes
    /// beside an output that other ops read were written, as [`DynViewMut::as_mut_ptr`] allows.
    fn run(
        &self,
        node: &CustomNode,
        inputs: &[DynView<'_>],
        outputs: &mut [DynViewMut<'_>],
    ) -> Result<(), String>;
}

/// Who runs an op that no kernel runs.
pub(super) enum Helper {
    Custom { op: Arc<dyn CustomOp>, node: CustomNode },
    Fallback(&'static OpRunner),
}

/// Who runs ops that nothing else does. A program that sets none does not carry it.
pub(super) struct OpRunner {
    supports: fn(&Op) -> bool,
    call: fn(Op) -> Box<dyn StepCall>,
}

/// The reference interpreter.
pub(super) static REFERENCE: OpRunner =
    OpRunner { supports: |op| reference::supports(op).is_ok(), call: |op| Box::new(ReferenceCall { op }) };

/// The ops that a session has from its caller.
#[derive(Clone, Default)]
pub(super) struct Helpers {
    pub(super) custom: BTreeMap<String, Arc<dyn CustomOp>>,
    pub(super) fallback: Option<&'static OpRunner>,
}

impl Helpers {
    /// Who runs an op, if anybody does.
    pub(super) fn of(&self, model: &Model, op: &Op) -> Option<Helper> {
        let fallback = || self.fallback.filter(|fallback| (fallback.supports)(op)).map(Helper::Fallback);
        self.custom_of(model, op).or_else(fallback)
    }

    /// The op of the caller that runs an op, if there is one.
    pub(super) fn custom_of(&self, model: &Model, op: &Op) -> Option<Helper> {
        let name = match model.custom_nodes().get(&op.id()) {
            Some(node) if op.kind() == OpKind::Wildcard => &*node.op,
            _ => op.kind().name(),
        };
        let custom = self.custom.get(name)?.clone();
        Some(Helper::Custom { op: custom, node: node_of(model, op) })
    }
}

impl Helpers {
    /// Who runs an op that no kernel runs, in a profile.
    pub(super) fn kind_of(&self, model: &Model, op: &Op) -> SpanKind {
        match self.of(model, op) {
            Some(Helper::Custom { .. }) => SpanKind::Custom,
            _ => SpanKind::Fallback,
        }
    }
}

/// The name and the attributes of an op: those of the model for a `Wildcard`, else those of its kind.
pub(super) fn node_of(model: &Model, op: &Op) -> CustomNode {
    match model.custom_nodes().get(&op.id()) {
        Some(node) if op.kind() == OpKind::Wildcard => node.clone(),
        _ => {
            let attrs = op.attrs().map(|(attr, value)| (attr.name().to_owned(), value.clone())).collect();
            CustomNode { op: op.kind().name().to_owned(), attrs }
        }
    }
}

impl Helper {
    /// The dims of the outputs of an op, if the helper tells them.
    pub(super) fn output_dims(&self, op: &Op, inputs: &[LogicalTensor]) -> Result<Option<Vec<Dims>>> {
        let Self::Custom { op: custom, node } = self else { return Ok(None) };
        let dims = custom.output_dims(node, inputs, op.outputs());
        let dims = dims.map_err(|message| failed(node, op, message))?;
        match dims.len() == op.outputs().len() {
            true => Ok(Some(dims)),
            false => {
                let message = format!("it gives dims of {} outputs, not {}", dims.len(), op.outputs().len());
                Err(failed(node, op, message))
            }
        }
    }

    /// The call that runs an op whose tensors are known.
    pub(super) fn call(self, op: &Op) -> Box<dyn StepCall> {
        match self {
            Self::Custom { op: custom, node } => Box::new(CustomCall { custom, node, op: op.clone() }),
            Self::Fallback(fallback) => {
                slower!("no kernel runs {} (op {}): the reference interpreter does", op.kind(), op.id());
                (fallback.call)(op.clone())
            }
        }
    }
}

fn failed(node: &CustomNode, op: &Op, message: String) -> Error {
    SessionFault::Custom { op: node.op.clone(), node: op.name().to_owned(), message }.into()
}

struct CustomCall {
    custom: Arc<dyn CustomOp>,
    node: CustomNode,
    op: Op,
}

impl StepCall for CustomCall {
    fn call(&self, inputs: &[DynView<'_>], outputs: &mut [DynViewMut<'_>]) -> Result<()> {
        let Self { custom, node, op } = self;
        custom.run(node, inputs, outputs).map_err(|message| failed(node, op, message))
    }

    fn wrote_beside(&self, output: usize) -> Error {
        failed(&self.node, &self.op, format!("it wrote beside the memory of output {output}"))
    }
}

struct ReferenceCall {
    op: Op,
}

impl StepCall for ReferenceCall {
    fn call(&self, inputs: &[DynView<'_>], outputs: &mut [DynViewMut<'_>]) -> Result<()> {
        let value = |(view, input): (&DynView<'_>, &LogicalTensor)| {
            let desc = view.desc(input.id())?;
            Value::read(&view.as_tensor(&desc, Engine::shared())?)
        };
        let inputs = inputs.iter().zip(self.op.inputs()).map(value).collect::<Result<Vec<_>>>()?;
        let results = reference::run(&self.op, &inputs)?;
        for (output, result) in outputs.iter_mut().zip(&results) {
            output.bytes_mut()?.copy_from_slice(result.bytes());
        }
        Ok(())
    }

    fn wrote_beside(&self, output: usize) -> Error {
        let node = CustomNode::new(self.op.kind().name());
        failed(&node, &self.op, format!("the interpreter wrote beside the memory of output {output}"))
    }
}
