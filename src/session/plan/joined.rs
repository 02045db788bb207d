//! Tensors that are parts of a larger one: written where that has them, or else copied there.

use rustc_hash::FxHashSet;

use super::super::parts::PartTarget;
use super::super::profile::SpanKind;
use super::super::resolved::StatePair;
use super::{PlannedStep, Planner, RootPlace, TensorHome};
use crate::error::Result;
use crate::execute::sequence::{StepWork, TensorPlace, bytes};
use crate::graph::axis;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::Op;
use crate::partition::Partition;
use crate::types::id::TensorId;
use crate::types::kind::OpKind;
use crate::types::shape::Dims;

/// The bytes of an operand that one more step to copy another one is worth (decision: concat-in-place).
const COPY_BYTES: usize = 1 << 10;

/// The ops alone in their partitions whose result may be a view.
const VIEWS: [OpKind; 3] = [OpKind::StaticReshape, OpKind::StaticTranspose, OpKind::Slice];

/// The op `Concat` of a partition that has no other.
fn lone_concat(partition: &Partition) -> Option<&Op> {
    let [op] = partition.ops() else { return None };
    (op.kind() == OpKind::Concat && partition.is_supported()).then_some(op)
}

impl Planner<'_> {
    /// The state to which a partition adds rows.
    pub(super) fn appended(&self, partition: &Partition) -> Option<usize> {
        let id = partition.ops()[0].id();
        self.states.iter().position(|state| state.append.is_some_and(|(op, _)| op == id))
    }

    /// Adds rows to the state: copies those that were not written where they belong.
    pub(super) fn append(&mut self, state: usize, op: &Op) -> Result<()> {
        let StatePair { past, present, append } = self.states[state];
        let axis = append.map_or(0, |(_, axis)| axis);
        let whole = PartTarget::whole(self.homes[&past].desc.clone());
        let (dims, strides) =
            (whole.desc.dims().unwrap_or_default(), whole.desc.strides().unwrap_or_default());
        let rows = dims.get(axis).copied().unwrap_or(0);
        let rows = self.put_parts(&whole, axis, rows, &op.inputs()[1..])?;
        let mut dims: Dims = dims.into();
        dims.get_mut(axis).into_iter().for_each(|dim| *dim = rows);
        let desc = LogicalTensor::with_strides(present, whole.desc.data_type(), &dims, strides)?;
        self.homes.insert(present, TensorHome { desc, root: past, offset: 0 });
        Ok(())
    }

    /// Copies the parts of a tensor that were not written where they belong, behind some rows along an axis;
    /// the number of rows with theirs.
    fn put_parts(
        &mut self,
        whole: &PartTarget,
        axis: usize,
        mut rows: i64,
        parts: &[LogicalTensor],
    ) -> Result<i64> {
        for part in parts {
            let from = self.homes[&part.id()].clone();
            let target = whole.part(axis, rows, &from.desc)?;
            rows += from.desc.dims().and_then(|dims| dims.get(axis).copied()).unwrap_or(0);
            let is_there = (from.root, from.offset) == (target.root, target.offset);
            if bytes(&from.desc) != 0 && !is_there {
                self.copy_part(part.id(), target)?;
            }
        }
        Ok(rows)
    }

    /// Copies a tensor to its place within another one.
    fn copy_part(&mut self, from: TensorId, to: PartTarget) -> Result<()> {
        self.begin(to.root);
        let home = &self.homes[&from];
        let mut from = from;
        if home.root == to.root {
            // Parts that are there already go by way of the arena, since no step writes what it reads.
            let dims = home.desc.dims().unwrap_or_default();
            let dense = LogicalTensor::strided(from, home.desc.data_type(), dims)?;
            let copied = self.copy(from, dense.clone())?;
            let place = self.new_block(&dense, self.steps.len() - 1);
            self.put(dense.with_id(copied), place);
            from = copied;
        }
        let copied = self.copy(from, to.desc.clone())?;
        let desc = to.desc.with_id(copied);
        self.homes.insert(copied, TensorHome { desc, root: to.root, offset: to.offset });
        self.keep_until(copied, self.steps.len() - 1);
        Ok(())
    }

    /// A step that copies a tensor to a tensor of another layout, whose place the caller gives.
    fn copy(&mut self, from: TensorId, to: LogicalTensor) -> Result<TensorId> {
        let desc = self.homes[&from].desc.clone();
        let copied = TensorId::new(usize::MAX - self.steps.len());
        let output = LogicalTensor::unknown(copied, desc.data_type());
        let copy = Partition::from_op(Op::new(0, OpKind::Identity).input(desc.clone()).output(output))?;
        let compiled = copy.compile_for(self.context.engine, &[desc], &[to.with_id(copied)])?;
        self.keep_until(from, self.steps.len());
        self.record.step(SpanKind::Copy, None);
        self.steps.push(PlannedStep { work: StepWork::Partition(compiled), tensors: vec![from, copied] });
        Ok(copied)
    }

    /// True if a tensor has a place or a layout of its own, since the caller or one of its ops gets it.
    pub(super) fn is_taken(&self, tensor: TensorId) -> bool {
        self.place_of_output(tensor).is_some() || self.read_by_calls.contains(&tensor)
    }

    /// The place in a larger tensor to which a partition may write an output: nothing else that it touches is
    /// in the same memory.
    pub(super) fn target(&self, partition: &Partition, output: TensorId) -> Option<&PartTarget> {
        let target = self.targets.get(&output)?;
        let root = |input: &LogicalTensor| self.homes[&input.id()].root;
        let is_constant = |input: &LogicalTensor| {
            matches!(self.roots[&root(input)], RootPlace::Given(TensorPlace::Constant(_)))
        };
        let mut others = partition.outputs().iter().filter(|other| other.id() != output);
        let is_apart = partition.inputs().iter().all(|input| root(input) != target.root)
            && others.all(|other| self.targets.get(&other.id()).is_none_or(|it| it.root != target.root));
        let may_be_there = !self.is_taken(output) && is_apart;
        (may_be_there && !partition.inputs().iter().all(is_constant)).then_some(target)
    }

    /// Puts an output that a step writes to its place within another tensor.
    pub(super) fn put_part(&mut self, output: LogicalTensor, target: &PartTarget, step: usize) {
        let id = output.id();
        self.begin(target.root);
        self.homes.insert(id, TensorHome { desc: output, root: target.root, offset: target.offset });
        self.share_last_read(target.root, id);
        self.keep_until(id, step);
    }

    /// Gives the result of a `Concat` its memory before its first part is written.
    fn begin(&mut self, root: TensorId) {
        let has_memory = self.homes.contains_key(&root);
        let whole = self.targets.get(&root).filter(|_| !has_memory);
        let Some(desc) = whole.map(|whole| whole.desc.clone()) else { return };
        let place = match self.place_of_output(root) {
            Some(place) => RootPlace::Given(place),
            None => self.new_block(&desc, self.steps.len()),
        };
        self.put(desc, place);
    }

    /// Lets partitions write operands of each `Concat` that is alone in its partition as parts of its result,
    /// if that copies less.
    pub(super) fn join(&mut self, partitions: &[Partition]) {
        if !partitions.iter().any(|partition| lone_concat(partition).is_some()) {
            return;
        }
        let is_given = |(_, place): &(&TensorId, &RootPlace)| {
            !matches!(place, RootPlace::Given(TensorPlace::Constant(_)))
        };
        // The tensors that runs compute; what follows from constants alone may be computed before.
        let mut varying: FxHashSet<TensorId> =
            self.roots.iter().filter(is_given).map(|(&id, _)| id).collect();
        let (mut written, mut read) = (FxHashSet::default(), FxHashSet::default());
        for partition in partitions {
            let varies = partition.inputs().iter().any(|input| varying.contains(&input.id()));
            let is_view = matches!(partition.ops(), [op] if VIEWS.contains(&op.kind()));
            for output in partition.outputs().iter().filter(|_| varies) {
                varying.insert(output.id());
                if partition.is_supported() && !is_view {
                    written.insert(output.id());
                }
            }
        }
        let twice = partitions.iter().flat_map(Partition::inputs).map(LogicalTensor::id);
        let twice: FxHashSet<TensorId> = twice.filter(|&id| !read.insert(id)).collect();
        // The result of a `Concat` may be a part of a later one's.
        for op in partitions.iter().rev().filter_map(lone_concat) {
            let may_write = |part: &PartTarget| {
                let id = part.desc.id();
                let is_dense = part.desc.span() == part.desc.element_count();
                written.contains(&id) && (is_dense || !twice.contains(&id))
            };
            self.join_operands(op, &may_write);
        }
    }

    /// Lets some partitions write operands of a `Concat` as parts of its result, if that pays.
    fn join_operands(&mut self, op: &Op, may_write: &dyn Fn(&PartTarget) -> bool) -> Option<()> {
        let result = &op.outputs()[0];
        let (id, dims, size) = (result.id(), result.dims()?, result.data_type().size()?);
        let axis = axis::resolved_axis(op, dims).ok()?;
        let whole = match self.targets.get(&id).filter(|_| !self.is_taken(id)) {
            Some(target) => target.clone(),
            None => PartTarget::whole(LogicalTensor::strided(id, result.data_type(), dims).ok()?),
        };
        let (mut rows, mut parts, mut copies, mut written) = (0, Vec::new(), 0usize, 0usize);
        for input in op.inputs() {
            let part = whole.part(axis, rows, input).ok()?;
            rows += input.dims()?.get(axis)?;
            let once = op.inputs().iter().filter(|other| other.id() == input.id()).count() == 1;
            let is_free = once && !self.is_taken(input.id()) && !self.targets.contains_key(&input.id());
            match input.element_count()? {
                0 => {}
                count if is_free && may_write(&part) => {
                    written = count.saturating_mul(size).saturating_add(written);
                    parts.push(part);
                }
                _ => copies += 1,
            }
        }
        let pays = copies <= 1 || written / copies >= COPY_BYTES;
        if !parts.is_empty() && pays {
            self.joined.insert(id);
            self.targets.insert(id, whole);
            for part in parts {
                self.targets.insert(part.desc.id(), part);
            }
        }
        Some(())
    }

    /// Lets the result of a `Concat` be, whose parts are written where it has them; false if a partition
    /// computes it.
    pub(super) fn is_joined(&mut self, partition: &Partition) -> Result<bool> {
        let Some(op) = lone_concat(partition).filter(|op| self.joined.contains(&op.outputs()[0].id())) else {
            return Ok(false);
        };
        let whole = self.targets[&op.outputs()[0].id()].clone();
        let axis = axis::resolved_axis(op, whole.desc.dims().unwrap_or_default())?;
        self.put_parts(&whole, axis, 0, op.inputs())?;
        if whole.root != whole.desc.id() {
            self.put_part(whole.desc.clone(), &whole, self.steps.len().saturating_sub(1));
        }
        Ok(true)
    }
}
