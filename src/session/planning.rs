//! The making of plans: from a model and inputs of some shapes to a sequence, which is kept.

use std::sync::Arc;

use parking_lot::Mutex;

use super::checked::{CheckedModel, KeptModel};
use super::custom::Helpers;
use super::links::LinkedPorts;
use super::plan::{self, PlanContext};
use super::ports::{GivenInputs, inputs_of, ordered};
use super::profile::{PlanRecord, SessionPlan, SpanKind};
use super::resolved::{self, KeptOps, ResolvedGraph};
use super::reuse::{CompiledCache, FoldCache, KeptCut, KeptPartitions};
use super::shape_plans::ShapePlans;
use super::state::SessionState;
use super::stateful::StatefulModel;
use crate::error::{Result, SessionFault};
use crate::execute::engine::Engine;
use crate::execute::prepared::SharedPreparations;
use crate::execute::scratch_pool::ScratchPool;
use crate::graph::FpMath;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::model::Model;
use crate::types::trace::span;

/// The parts that all clones of a session share.
pub(super) struct SessionInner {
    pub(super) engine: Engine,
    pub(super) model: Model,
    pub(super) helpers: Helpers,
    /// The model for all shapes, unless it has a source.
    pub(super) checked: Option<CheckedModel>,
    pub(super) output_names: Arc<[String]>,
    /// The runs with a state, if there are links.
    pub(super) stateful: Option<StatefulModel>,
    /// The math mode of the graph, if it is not its own.
    pub(super) fpmath: Option<FpMath>,
    pub(super) plans: ShapePlans,
    /// The memory of runs.
    pub(super) memory: Arc<ScratchPool>,
    pub(super) folded: FoldCache,
    pub(super) compiled: CompiledCache,
    pub(super) preparations: Arc<SharedPreparations>,
    /// The parts of the last plan that the next one takes over.
    pub(super) kept_model: KeptModel,
    pub(super) kept_ops: KeptOps,
    pub(super) kept_cut: KeptCut,
    pub(super) kept_partitions: Mutex<Arc<KeptPartitions>>,
}

/// A model for inputs of some descriptions: that of the session, or what its source gives.
struct ShapedModel<'a> {
    made: Option<(Model, Arc<CheckedModel>)>,
    own: Option<(&'a Model, &'a CheckedModel)>,
    /// The inputs in the order of the model.
    inputs: Vec<LogicalTensor>,
}

impl ShapedModel<'_> {
    fn parts(&self) -> Result<(&Model, &CheckedModel)> {
        let made = self.made.as_ref().map(|(model, checked)| (model, &**checked));
        made.or(self.own).ok_or_else(|| SessionFault::Source("the model has no source".into()).into())
    }

    /// The model with the dims of every tensor.
    fn resolved(&self, session: &SessionInner) -> Result<ResolvedGraph<'_>> {
        let (model, checked) = self.parts()?;
        let given = checked.constants.values().chain(&self.inputs);
        resolved::resolved(model, &checked.ops, given, &session.helpers, &session.kept_ops)
    }
}

impl SessionInner {
    /// The plan for inputs, which is made if there is none.
    pub(super) fn plan_of(&self, given: &GivenInputs<'_>) -> Result<Arc<SessionPlan>> {
        let fits = |plan: &SessionPlan| plan.states().is_empty() && given.fit(plan);
        match self.plans.find(fits) {
            Some(plan) => Ok(plan),
            None => self.plan(given.described(self.model.inputs())?),
        }
    }

    /// A new plan, which is kept.
    pub(super) fn plan(&self, inputs: Vec<LogicalTensor>) -> Result<Arc<SessionPlan>> {
        let mut record = PlanRecord::new();
        let shaped = self.shaped(self.checked.as_ref(), inputs, &[], &mut record)?;
        let resolved = record.timed(SpanKind::Infer, None, || shaped.resolved(self))?;
        self.keep(&shaped, &resolved, &[], record)
    }

    /// The plan for inputs and a state, which is made if there is none, with room for what a run adds.
    pub(super) fn plan_with_state(
        &self,
        stateful: &StatefulModel,
        state: &mut SessionState,
        given: &GivenInputs<'_>,
    ) -> Result<Arc<SessionPlan>> {
        if !state.is_made() {
            stateful.know(state, &given.described(&stateful.inputs)?)?;
        }
        loop {
            let fits = |plan: &SessionPlan| plan.reads(state.tensors()) && given.fit(plan);
            if let Some(plan) = self.plans.find(fits) {
                let presents = plan.states().iter().map(|tensors| (&tensors.present, tensors.appends()));
                if state.reserve(presents)? {
                    continue;
                }
                return Ok(plan);
            }
            let inputs = given.described(&stateful.inputs)?;
            let inputs = stateful.all_inputs(&inputs, &state.descs()?);
            let links = &stateful.spec.links;
            let mut record = PlanRecord::new();
            let shaped = self.shaped(stateful.checked.as_ref(), inputs, links, &mut record)?;
            let resolved = record.timed(SpanKind::Infer, None, || shaped.resolved(self))?;
            if !state.reserve(resolved.presents())? {
                return self.keep(&shaped, &resolved, links, record);
            }
        }
    }

    /// The model for inputs, which are in the order of the ports.
    fn shaped<'a>(
        &'a self,
        checked: Option<&'a CheckedModel>,
        inputs: Vec<LogicalTensor>,
        links: &[LinkedPorts],
        record: &mut PlanRecord,
    ) -> Result<ShapedModel<'a>> {
        let Some(source) = self.model.source() else {
            let own = checked.map(|checked| (&self.model, checked));
            return Ok(ShapedModel { made: None, own, inputs });
        };
        let ports = self.model.inputs().iter().zip(&inputs);
        let shapes: Vec<(&str, &[i64])> =
            ports.map(|(port, input)| (port.name(), input.dims().unwrap_or_default())).collect();
        let model = record.timed(SpanKind::Source, None, || source.at(&shapes))?.with_fpmath(self.fpmath);
        let inputs = inputs_of(&model, self.model.inputs(), inputs)?;
        let model = ordered(model, self.model.inputs(), self.model.outputs())?;
        let checked = self.kept_model.checked(&model, links)?;
        Ok(ShapedModel { made: Some((model, checked)), own: None, inputs })
    }

    /// Makes a plan and keeps it.
    fn keep(
        &self,
        shaped: &ShapedModel<'_>,
        resolved: &ResolvedGraph<'_>,
        links: &[LinkedPorts],
        record: PlanRecord,
    ) -> Result<Arc<SessionPlan>> {
        let (model, _) = shaped.parts()?;
        span!("plan", ops = model.graph().ops().len());
        let is_linked = |index: usize| links.iter().any(|link| link.input == index);
        let others = shaped.inputs.iter().enumerate().filter(|(index, _)| !is_linked(*index));
        let inputs = others.map(|(_, input)| input.clone()).collect();
        let pasts: Vec<LogicalTensor> = links.iter().map(|link| shaped.inputs[link.input].clone()).collect();
        let Self { engine, helpers, memory, preparations, folded, compiled, .. } = self;
        let (kept, cut) = (&self.kept_partitions, &self.kept_cut);
        let context =
            PlanContext { model, engine, helpers, memory, preparations, folded, compiled, kept, cut };
        let plan = Arc::new(plan::sequence(&context, resolved, inputs, &pasts, record)?);
        self.plans.add(plan.clone());
        Ok(plan)
    }
}
