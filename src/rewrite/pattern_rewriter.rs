//! A graph whose ops are exchanged.

use std::borrow::Cow;
use std::cell::Cell;

use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::graph::function::Function;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::Op;
use crate::graph::verify;
use crate::graph::{Graph, OpIndices};
use crate::types::id::{OpId, TensorId};
use crate::types::kind::{Attr, AutoBroadcast, OpKind};

/// The ops of a graph, some of them exchanged. Places of ops never change.
pub(super) struct PatternRewriter<'g> {
    ops: Vec<Option<RewriterOp<'g>>>,
    producers: FxHashMap<TensorId, usize>,
    /// The ops that use each tensor, each listed once.
    consumers: FxHashMap<TensorId, OpIndices>,
    ids: FxHashSet<OpId>,
    last_op: usize,
    last_tensor: Cell<usize>,
}

struct RewriterOp<'g> {
    op: Cow<'g, Op>,
    origins: Origins,
}

/// The ops of the user for which an op stands, mostly itself.
pub(crate) type Origins = SmallVec<[OpId; 2]>;

/// An exchange of ops. An added op gives a tensor of the graph only if it is the same value.
pub(super) struct Replacement {
    /// Places of the ops that go.
    pub(super) removed: Vec<usize>,
    /// The ops that come. Each keeps the id of the removed op of its kind that has the id, and else gets one
    /// of its own.
    pub(super) added: Vec<Op>,
}

impl<'g> PatternRewriter<'g> {
    pub(super) fn new(graph: &'g Graph) -> Self {
        let origin = |op: &'g Op| {
            let origins = std::iter::once(op.id()).collect();
            Some(RewriterOp { op: Cow::Borrowed(op), origins })
        };
        let mut rewriter = Self {
            ops: graph.ops().iter().map(origin).collect(),
            producers: FxHashMap::with_capacity_and_hasher(graph.ops().len(), FxBuildHasher),
            consumers: FxHashMap::with_capacity_and_hasher(2 * graph.ops().len(), FxBuildHasher),
            ids: graph.ops().iter().map(Op::id).collect(),
            last_op: graph.ops().iter().map(|op| op.id().get()).max().unwrap_or(0),
            last_tensor: Cell::new(0),
        };
        for (place, op) in graph.ops().iter().enumerate() {
            rewriter.link(place, op);
        }
        let ids = rewriter.producers.keys().chain(rewriter.consumers.keys());
        rewriter.last_tensor.set(ids.map(|id| id.get()).max().unwrap_or(0));
        rewriter
    }

    fn link(&mut self, place: usize, op: &Op) {
        for output in op.outputs() {
            self.producers.insert(output.id(), place);
        }
        for input in op.inputs() {
            let users = self.consumers.entry(input.id()).or_default();
            if users.last() != Some(&place) {
                users.push(place);
            }
        }
    }

    /// Number of places.
    pub(super) fn places(&self) -> usize {
        self.ops.len()
    }

    /// The op at a place; `None` if it is gone.
    pub(super) fn op(&self, place: usize) -> Option<&Op> {
        self.ops.get(place)?.as_ref().map(|of| &*of.op)
    }

    /// The place of the op that gives a tensor, and the op.
    pub(super) fn producer(&self, tensor: &LogicalTensor) -> Option<(usize, &Op)> {
        let place = *self.producers.get(&tensor.id())?;
        Some((place, self.op(place)?))
    }

    /// As [`producer`](Self::producer), if one op alone uses the tensor.
    pub(super) fn only_producer(&self, tensor: &LogicalTensor) -> Option<(usize, &Op)> {
        self.producer(tensor).filter(|_| self.consumers(tensor).len() == 1)
    }

    /// The places of the ops that use a tensor.
    pub(super) fn consumers(&self, tensor: &LogicalTensor) -> &[usize] {
        self.consumers.get(&tensor.id()).map_or(&[], |users| users)
    }

    /// The place of the only op that uses a tensor, and the op.
    pub(super) fn only_consumer(&self, tensor: &LogicalTensor) -> Option<(usize, &Op)> {
        let &[place] = self.consumers(tensor) else { return None };
        Some((place, self.op(place)?))
    }

    /// A tensor of the rewriter's own, which is otherwise as another one.
    pub(super) fn fresh(&self, like: &LogicalTensor) -> LogicalTensor {
        let mut id = self.last_tensor.get();
        loop {
            id = id.wrapping_add(1);
            let is_known = |tensor: TensorId| {
                self.producers.contains_key(&tensor) || self.consumers.contains_key(&tensor)
            };
            if !is_known(TensorId::new(id)) {
                self.last_tensor.set(id);
                return like.clone().with_id(id);
            }
        }
    }

    /// True if ops on elements lead from a tensor to a SoftMax.
    pub(super) fn leads_to_softmax(&self, tensor: &LogicalTensor) -> bool {
        let mut seen: Vec<usize> = self.consumers(tensor).to_vec();
        let mut next = 0;
        while let Some(&place) = seen.get(next)
            && next < LONGEST_CHAIN
        {
            next += 1;
            match self.op(place) {
                Some(op) if op.kind() == OpKind::SoftMax => return true,
                Some(op) if Function::of(op).is_some() => {
                    let users = op.outputs().iter().flat_map(|output| self.consumers(output));
                    for &user in users {
                        if !seen.contains(&user) {
                            seen.push(user);
                        }
                    }
                }
                _ => {}
            }
        }
        false
    }

    /// True if a tensor is one number of a rank that is not above another tensor's, whatever the data.
    pub(super) fn is_number(&self, tensor: &LogicalTensor, beside: &LogicalTensor) -> bool {
        let of_fill = self.producer(tensor).filter(|(_, op)| op.kind() == OpKind::Fill);
        let dims = of_fill.map(|(_, op)| op.s64s_attr(Attr::Shape)).or(tensor.dims());
        let fits = |rank: usize| rank == 0 || beside.rank().is_some_and(|most| rank <= most);
        dims.is_some_and(|dims| dims.iter().all(|&dim| dim == 1) && fits(dims.len()))
    }

    /// The number that a tensor is, whatever the data, if its rank is not above another tensor's.
    pub(super) fn number(&self, tensor: &LogicalTensor, beside: &LogicalTensor) -> Option<f32> {
        let (_, fill) = self.producer(tensor).filter(|(_, op)| op.kind() == OpKind::Fill)?;
        fill.f32_attr(Attr::Value).filter(|_| self.is_number(tensor, beside))
    }

    /// Exchanges ops. The answer are the ops of the user in the pattern; `None` if a value that is needed
    /// elsewhere would be gone, or an op does not fit its schema, and then nothing changes.
    pub(super) fn apply(&mut self, replacement: Replacement) -> Option<Origins> {
        let Replacement { removed, mut added } = replacement;
        let given: FxHashSet<TensorId> =
            added.iter().flat_map(|op| op.outputs().iter().map(LogicalTensor::id)).collect();
        for &place in &removed {
            for output in self.op(place)?.outputs() {
                let users = self.consumers(output);
                let is_inside = || !users.is_empty() && users.iter().all(|user| removed.contains(user));
                // A second result may be there without any use.
                if !given.contains(&output.id()) && !is_inside() {
                    return None;
                }
            }
        }
        added.iter_mut().try_for_each(verify::verify).ok()?;
        let mut origins = Origins::new();
        let mut kinds: FxHashMap<OpId, OpKind> = FxHashMap::default();
        for &place in &removed {
            let gone = self.ops[place].take()?;
            kinds.insert(gone.op.id(), gone.op.kind());
            for output in gone.op.outputs() {
                self.producers.remove(&output.id());
            }
            for input in gone.op.inputs() {
                if let Some(users) = self.consumers.get_mut(&input.id()) {
                    users.retain(|user| *user != place);
                }
            }
            origins.extend(gone.origins);
        }
        origins.sort_unstable();
        origins.dedup();
        for op in added {
            let keeps_id = kinds.get(&op.id()) == Some(&op.kind());
            let op = if keeps_id { op } else { op.with_id(self.fresh_op()) };
            kinds.remove(&op.id());
            self.ids.insert(op.id());
            self.link(self.ops.len(), &op);
            self.ops.push(Some(RewriterOp { op: Cow::Owned(op), origins: origins.clone() }));
        }
        Some(origins)
    }

    fn fresh_op(&mut self) -> OpId {
        loop {
            self.last_op = self.last_op.wrapping_add(1);
            if !self.ids.contains(&OpId::new(self.last_op)) {
                return OpId::new(self.last_op);
            }
        }
    }

    /// The ops, and for each of them the ops of the user for which it stands.
    pub(super) fn finish(self) -> (Vec<Op>, FxHashMap<OpId, Origins>) {
        let mut origins = FxHashMap::with_capacity_and_hasher(self.ops.len(), FxBuildHasher);
        let ops = self.ops.into_iter().flatten().map(|of| {
            origins.insert(of.op.id(), of.origins);
            of.op.into_owned()
        });
        (ops.collect(), origins)
    }
}

/// The most ops on the way to a SoftMax.
const LONGEST_CHAIN: usize = 64;

/// True if the inputs of an op broadcast by dims from the right.
pub(super) fn aligns_right(op: &Op) -> bool {
    matches!(op.broadcast_mode(), AutoBroadcast::Numpy | AutoBroadcast::Multidirectional)
}
