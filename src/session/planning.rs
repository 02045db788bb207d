//! The making of plans: from a model and inputs of some shapes to a sequence, which is kept.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::checked::{CheckedModel, SourcedModel};
use super::custom::Helpers;
use super::links::LinkedPorts;
use super::plan::{self, PlanContext};
use super::ports::{GivenInputs, inputs_of, ordered};
use super::profile::{PlanRecord, SessionPlan, SpanKind};
use super::resolved::{self, ResolvedGraph};
use super::reuse::{self, FoldCache, KeptPartitions};
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
use crate::partition::Partition;
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
    pub(super) preparations: Arc<SharedPreparations>,
    /// True if there was room for packed copies of all constants when the first plan was made.
    pub(super) has_room: OnceLock<bool>,
    /// The plan that was made last.
    pub(super) last: Mutex<Option<Arc<LastPlan>>>,
}

/// The parts of a plan that the next one takes over.
pub(super) struct LastPlan {
    /// The model, if a source has given it.
    sourced: Option<SourcedModel>,
    pub(super) resolved: ResolvedGraph,
    partitions: Vec<Partition>,
    pub(super) compiled: KeptPartitions,
}

/// A model for inputs of some descriptions: that of the session, or what its source gives.
struct ShapedModel<'a> {
    sourced: Option<SourcedModel>,
    own: Option<(&'a Model, &'a CheckedModel)>,
    /// The inputs in the order of the model.
    inputs: Vec<LogicalTensor>,
}

impl ShapedModel<'_> {
    fn parts(&self) -> Result<(&Model, &CheckedModel)> {
        let sourced = self.sourced.as_ref().map(|sourced| (&sourced.model, &sourced.checked));
        sourced.or(self.own).ok_or_else(|| SessionFault::Source("the model has no source".into()).into())
    }

    /// The model with the dims of every tensor.
    fn resolved(&self, helpers: &Helpers, last: Option<&LastPlan>) -> Result<ResolvedGraph> {
        let (model, checked) = self.parts()?;
        let given = checked.constants.values().chain(&self.inputs).cloned().collect();
        resolved::resolved(model, &checked.ops, given, helpers, last.map(|last| &last.resolved))
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
        let (mut record, last) = (PlanRecord::new(), self.last.lock().clone());
        let last = last.as_deref();
        let shaped = self.shaped(self.checked.as_ref(), inputs, &[], last, &mut record)?;
        let resolved = record.timed(SpanKind::Infer, None, || shaped.resolved(&self.helpers, last))?;
        self.keep(shaped, resolved, &[], last, record)
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
            let fits = |plan: &SessionPlan| given.fit(plan) && plan.reads(state.tensors());
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
            let (mut record, last) = (PlanRecord::new(), self.last.lock().clone());
            let last = last.as_deref();
            let shaped = self.shaped(stateful.checked.as_ref(), inputs, links, last, &mut record)?;
            let resolved = record.timed(SpanKind::Infer, None, || shaped.resolved(&self.helpers, last))?;
            if !state.reserve(resolved.presents())? {
                return self.keep(shaped, resolved, links, last, record);
            }
        }
    }

    /// The model for inputs, which are in the order of the ports.
    fn shaped<'a>(
        &'a self,
        checked: Option<&'a CheckedModel>,
        inputs: Vec<LogicalTensor>,
        links: &[LinkedPorts],
        last: Option<&LastPlan>,
        record: &mut PlanRecord,
    ) -> Result<ShapedModel<'a>> {
        let Some(source) = self.model.source() else {
            let own = checked.map(|checked| (&self.model, checked));
            return Ok(ShapedModel { sourced: None, own, inputs });
        };
        let ports = self.model.inputs().iter().zip(&inputs);
        let shapes: Vec<(&str, &[i64])> =
            ports.map(|(port, input)| (port.name(), input.dims().unwrap_or_default())).collect();
        let model = record.timed(SpanKind::Source, None, || source.at(&shapes))?.with_fpmath(self.fpmath);
        let inputs = inputs_of(&model, self.model.inputs(), inputs)?;
        let model = ordered(model, self.model.inputs(), self.model.outputs())?;
        let last = last.and_then(|last| last.sourced.as_ref());
        Ok(ShapedModel { sourced: Some(SourcedModel::new(model, links, last)?), own: None, inputs })
    }

    /// Makes a plan and keeps it.
    fn keep(
        &self,
        shaped: ShapedModel<'_>,
        resolved: ResolvedGraph,
        links: &[LinkedPorts],
        last: Option<&LastPlan>,
        mut record: PlanRecord,
    ) -> Result<Arc<SessionPlan>> {
        let (model, _) = shaped.parts()?;
        span!("plan", ops = model.graph().ops().len());
        let is_linked = |index: usize| links.iter().any(|link| link.input == index);
        let others = shaped.inputs.iter().enumerate().filter(|(index, _)| !is_linked(*index));
        let inputs = others.map(|(_, input)| input.clone()).collect();
        let pasts: Vec<LogicalTensor> = links.iter().map(|link| shaped.inputs[link.input].clone()).collect();
        let Self { engine, helpers, memory, preparations, folded, .. } = self;
        let cut = last.map(|last| (&last.resolved.graph, &*last.partitions));
        let partitions =
            record.timed(SpanKind::Partition, None, || reuse::partitions(&resolved.graph, cut))?;
        let before = last.map(|last| &last.compiled);
        let has_room = *self.has_room.get_or_init(|| {
            let bytes = model.constants().values().map(|data| data.bytes().len()).sum::<usize>();
            // Panels end with zeros.
            engine.has_room_for_constants(bytes.saturating_add(bytes / 8))
        });
        let context = PlanContext { model, engine, helpers, memory, preparations, folded, before, has_room };
        let (sequence, record, compiled) =
            plan::sequence(&context, &resolved, &partitions, inputs, &pasts, record)?;
        let plan = Arc::new(SessionPlan::new(sequence, record, self.plans.newest().as_deref()));
        self.plans.add(plan.clone());
        let last = LastPlan { sourced: shaped.sourced, resolved, partitions, compiled };
        let before = self.last.lock().replace(Arc::new(last));
        drop(before);
        Ok(plan)
    }
}
