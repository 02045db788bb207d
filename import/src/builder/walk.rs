//! A walk through all nodes of a model, kept for its next set of shapes, which mostly goes the same way: the
//! nodes that see what changed are mapped anew, and what all others added is there already.
//!
//! A walk is kept if each node of the model was mapped on its own. It is gone again if a node adds another
//! number of tensors or ops, or tensors of another kind; the model is then mapped node by node.

use std::collections::BTreeMap;
use std::vec;

use sterna::{Dims, LogicalTensor, Op, TensorId};

use super::kept::BuilderMark;
use super::{Builder, Origin, Tensor};

/// A walk that has ended.
#[derive(Debug)]
pub(crate) struct KeptWalk {
    /// The additions of the walk to the builder.
    parts: BuilderParts,
    /// The place at which the nodes begin, behind inputs and constants.
    start: BuilderMark,
    pub(crate) steps: Vec<WalkStep>,
    /// True if the dims that the file declares hold.
    pub(crate) holds: bool,
}

/// A node of a walk.
#[derive(Debug)]
pub(crate) struct WalkStep {
    /// The place of the node in the file.
    pub(crate) node: usize,
    pub(crate) inputs: Vec<Option<TensorId>>,
    /// The dims of the first result that the file declares.
    pub(crate) declared: Option<Dims>,
    pub(crate) outputs: Vec<TensorId>,
    /// The place that the builder has reached behind the node.
    end: BuilderMark,
    /// True if what the node adds follows from the facts of its inputs alone.
    is_of_facts: bool,
}

/// The parts of a builder that a walk fills.
#[derive(Debug)]
pub(crate) struct BuilderParts {
    tensors: Vec<Tensor>,
    ops: Vec<Op>,
    outputs: Vec<(Vec<String>, TensorId)>,
    erfs: BTreeMap<TensorId, TensorId>,
    constant_names: BTreeMap<TensorId, String>,
    defaults: BTreeMap<TensorId, String>,
}

/// A walk that goes on, node by node.
#[derive(Debug)]
pub(crate) struct WalkRecord {
    start: BuilderMark,
    at: BuilderMark,
    steps: Vec<WalkStep>,
}

impl WalkRecord {
    /// Begins where the builder has all inputs and constants.
    pub(crate) fn new(builder: &Builder<'_>) -> Self {
        Self { start: builder.mark(), at: builder.mark(), steps: Vec::new() }
    }

    /// Notes a node that the builder has taken.
    pub(crate) fn note(
        &mut self,
        builder: &Builder<'_>,
        node: usize,
        inputs: Vec<Option<TensorId>>,
        declared: Option<Dims>,
        outputs: &[TensorId],
    ) {
        let end = builder.mark();
        let is_of_facts = end.beyond_facts == self.at.beyond_facts;
        let outputs = outputs.to_vec();
        self.steps.push(WalkStep { node, inputs, declared, outputs, end, is_of_facts });
        self.at = end;
    }

    /// The walk, when the builder has the outputs as well.
    pub(crate) fn end(self, builder: &Builder<'_>, holds: bool) -> KeptWalk {
        KeptWalk { parts: builder.parts(), start: self.start, steps: self.steps, holds }
    }
}

/// A walk that is gone again.
pub(crate) struct Replay {
    tensors: vec::IntoIter<Tensor>,
    ops: vec::IntoIter<Op>,
    erfs: BTreeMap<TensorId, TensorId>,
    start: BuilderMark,
    /// The place that the walk had reached.
    at: BuilderMark,
    /// For each tensor so far, true if it is another one now.
    is_changed: Vec<bool>,
    /// The same for each op.
    is_op_changed: Vec<bool>,
    /// The constants of one number that are others now: what is made of ops depends on those beside them.
    numbers: Vec<TensorId>,
    /// True if the same is made of the ops when all are there, but for dims, attributes and constants.
    keeps_structure: bool,
}

impl Replay {
    /// Adds the constants of the model to the builder, which has the inputs; with the steps of the walk.
    pub(crate) fn new(walk: KeptWalk, builder: &mut Builder<'_>) -> Option<(Self, Vec<WalkStep>)> {
        let KeptWalk { parts, start, steps, .. } = walk;
        let BuilderParts { tensors, ops, outputs, erfs, constant_names, defaults } = parts;
        let (tensors, ops, inputs) = (tensors.into_iter(), ops.into_iter(), builder.tensors.len());
        let (is_changed, is_op_changed) = (Vec::with_capacity(tensors.len()), Vec::with_capacity(ops.len()));
        let (at, numbers, keeps_structure) = (start, Vec::new(), true);
        let mut replay =
            Self { tensors, ops, erfs, start, at, is_changed, is_op_changed, numbers, keeps_structure };
        if inputs > start.tensors || start.ops != 0 || !replay.compare(inputs, builder) {
            return None;
        }
        builder.tensors.extend(replay.tensors.by_ref().take(start.tensors - inputs));
        replay.is_changed.resize(start.tensors, false);
        (builder.constant_bytes, builder.folded_bytes) = (start.constant_bytes, start.folded_bytes);
        (builder.outputs, builder.constant_names, builder.defaults) = (outputs, constant_names, defaults);
        Some((replay, steps))
    }

    /// Adds what a node added, if it is given the same and declared the same.
    pub(crate) fn again(
        &mut self,
        step: &mut WalkStep,
        declared: &Option<Dims>,
        builder: &mut Builder<'_>,
    ) -> bool {
        let is_changed = |input: &TensorId| self.is_changed.get(input.get()).is_none_or(|changed| *changed);
        let WalkStep { end, is_of_facts, .. } = *step;
        let is_same = is_of_facts && step.declared == *declared;
        if !is_same || step.inputs.iter().flatten().any(is_changed) {
            return false;
        }
        let constant_bytes = end.constant_bytes - self.at.constant_bytes;
        if !builder.count_within_limits(constant_bytes, end.folded_bytes - self.at.folded_bytes) {
            return false;
        }
        builder.tensors.extend(self.tensors.by_ref().take(end.tensors - self.at.tensors));
        builder.ops.extend(self.ops.by_ref().take(end.ops - self.at.ops));
        let added = TensorId::new(self.at.tensors)..TensorId::new(end.tensors);
        builder.erfs.extend(self.erfs.range(added).map(|(result, operand)| (*result, *operand)));
        self.is_changed.resize(end.tensors, false);
        self.is_op_changed.resize(end.ops, false);
        self.at = std::mem::replace(&mut step.end, builder.mark());
        true
    }

    /// Goes past a node that was mapped anew, between a place and that which the builder has reached. False
    /// if it has added other things than before.
    pub(crate) fn anew(
        &mut self,
        step: &mut WalkStep,
        declared: Option<Dims>,
        (from, outputs): (BuilderMark, &[TensorId]),
        builder: &Builder<'_>,
    ) -> bool {
        let (end, tensors, ops) = (builder.mark(), step.end.tensors - self.at.tensors, step.end.ops);
        let is_as_many = (end.tensors, end.ops) == (step.end.tensors, ops) && outputs == step.outputs;
        if !is_as_many || !self.compare(tensors, builder) {
            return false;
        }
        for (was, is) in self.ops.by_ref().take(ops - self.at.ops).zip(&builder.ops[self.at.ops..]) {
            let is_number = |input: &LogicalTensor| self.numbers.contains(&input.id());
            self.keeps_structure &= is_alike(&was, is) && !is.inputs().iter().any(is_number);
            self.is_op_changed.push(true);
        }
        (step.declared, step.is_of_facts) = (declared, end.beyond_facts == from.beyond_facts);
        self.at = std::mem::replace(&mut step.end, end);
        true
    }

    /// Compares the next tensors with those of the builder; false if one is of another kind.
    fn compare(&mut self, count: usize, builder: &Builder<'_>) -> bool {
        let before = self.tensors.by_ref().take(count);
        for (was, is) in before.zip(&builder.tensors[self.is_changed.len()..]) {
            let is_alike = match (&was.origin, &is.origin) {
                (Origin::Computed, Origin::Computed) | (Origin::Constant(_), Origin::Constant(_)) => true,
                (Origin::Number(..), Origin::Number(..)) => was.is_as(is),
                _ => false,
            };
            if !is_alike || was.data_type != is.data_type {
                return false;
            }
            let is_changed = !was.is_as(is);
            let mut constants = [&was, is].into_iter().filter_map(Tensor::value);
            if is_changed && constants.any(|value| value.dims().iter().all(|&dim| dim == 1)) {
                self.numbers.push(TensorId::new(self.is_changed.len()));
            }
            self.is_changed.push(is_changed);
        }
        true
    }

    /// True if a tensor is another one now.
    pub(super) fn is_tensor_changed(&self, id: TensorId) -> bool {
        self.is_changed.get(id.get()).copied().unwrap_or(false)
    }

    /// True if an op of the builder may be another one now.
    pub(super) fn is_op_changed(&self, place: usize) -> bool {
        self.is_op_changed.get(place).copied().unwrap_or(true)
    }

    /// True if the same becomes of the ops as before, but for dims, attributes and constants.
    pub(super) fn keeps_structure(&self) -> bool {
        self.keeps_structure
    }

    /// The walk for the next set of shapes.
    pub(crate) fn end(self, steps: Vec<WalkStep>, parts: BuilderParts, holds: bool) -> KeptWalk {
        KeptWalk { parts, start: self.start, steps, holds }
    }
}

/// True if two ops are of one kind on the same tensors, and the same operands have the dims of the result.
fn is_alike(was: &Op, is: &Op) -> bool {
    let ports = |op: &Op| (op.kind(), op.inputs().len(), op.outputs().len());
    let tensors = |op: &'_ Op| op.inputs().len() + op.outputs().len();
    let tensor = |op: &'_ Op, at: usize| {
        let (inputs, outputs) = (op.inputs(), op.outputs());
        let tensor = inputs.get(at).unwrap_or_else(|| &outputs[at - inputs.len()]);
        let has_dims_of_result = outputs.first().is_some_and(|result| result.dims() == tensor.dims());
        (tensor.id(), tensor.data_type(), tensor.property(), has_dims_of_result)
    };
    ports(was) == ports(is)
        && was.name() == is.name()
        && (0..tensors(was)).all(|at| tensor(was, at) == tensor(is, at))
}

impl Builder<'_> {
    /// The parts of a builder that is not needed any more.
    pub(crate) fn into_parts(self) -> BuilderParts {
        let Self { tensors, ops, outputs, erfs, constant_names, defaults, .. } = self;
        BuilderParts { tensors, ops, outputs, erfs, constant_names, defaults }
    }

    pub(crate) fn parts(&self) -> BuilderParts {
        BuilderParts {
            tensors: self.tensors.clone(),
            ops: self.ops.clone(),
            outputs: self.outputs.clone(),
            erfs: self.erfs.clone(),
            constant_names: self.constant_names.clone(),
            defaults: self.defaults.clone(),
        }
    }
}
