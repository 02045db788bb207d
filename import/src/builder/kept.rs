//! The tensors and ops that nodes have added to a model, kept for its next set of shapes.
//!
//! The mapping of a node sees of a builder what it says of the node's inputs, their types, dims and values,
//! and how many tensors and ops there are, which numbers what the mapping adds. A node that is given the same
//! adds the same. Most nodes of a decoder are given the same for each length of its cache.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use sterna::{Dims, Op, TensorId};

use super::{Builder, Origin, Tensor};
use crate::constant::Constant;

/// The nodes of a model as they were mapped last, and the ops of the graph that was made of them.
#[derive(Debug, Default)]
pub(crate) struct KeptNodes {
    /// By the address of the node, which lasts as long as the document.
    nodes: HashMap<usize, KeptNode>,
    /// The ops of the finished graph, each with the one from which it was made, which had another number.
    pub(crate) ops: Vec<(Op, Op)>,
    /// How often a node was mapped, as it was given something else or for the first time.
    pub(crate) mapped: usize,
}

/// The parts of a document that one set of shapes leaves to the next one, unless a thread uses them.
#[derive(Debug, Default)]
pub(crate) struct KeptSlot<T>(Mutex<Option<T>>);

impl<T: Default> KeptSlot<T> {
    /// The parts that the last set of shapes has left; none if another thread has them.
    pub(crate) fn take(&self) -> T {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
    }

    /// Puts parts back, in the place of those of a thread that was faster.
    pub(crate) fn put(&self, kept: T) {
        let before = self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(kept);
        drop(before);
    }
}

/// The surroundings of a node that its mapping sees.
#[derive(Debug, Clone)]
pub(crate) struct NodeGiven {
    /// The opset of ONNX; of OpenVINO, what holds of the shapes in the file.
    pub(crate) variant: i64,
    /// The dims of the result that the file declares.
    pub(crate) declared: Option<Dims>,
    pub(crate) inputs: Vec<Option<TensorId>>,
}

#[derive(Debug)]
struct KeptNode {
    given: NodeGiven,
    /// The facts of each input that is there.
    facts: Vec<Tensor>,
    at: BuilderMark,
    added: AddedParts,
    outputs: Vec<TensorId>,
}

/// A place in the growth of a builder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BuilderMark {
    pub(super) tensors: usize,
    pub(super) ops: usize,
    pub(super) constant_bytes: usize,
    pub(super) folded_bytes: usize,
    pub(super) beyond_facts: usize,
}

/// The parts that a builder got behind a mark.
#[derive(Debug)]
struct AddedParts {
    tensors: Vec<Tensor>,
    ops: Vec<Op>,
    erfs: Vec<(TensorId, TensorId)>,
    constant_bytes: usize,
    folded_bytes: usize,
}

impl KeptNodes {
    /// Adds what a node has added the last time, if it is given the same: the tensors at its outputs.
    pub(crate) fn add_again(
        &self,
        node: usize,
        given: &NodeGiven,
        builder: &mut Builder<'_>,
    ) -> Option<Vec<TensorId>> {
        let kept = self.nodes.get(&node)?;
        let KeptNode { given: before, facts, at, added, outputs } = kept;
        let is_numbered_alike = (at.tensors, at.ops) == (builder.tensors.len(), builder.ops.len());
        let is_same = is_numbered_alike
            && (given.variant, &given.declared, &given.inputs)
                == (before.variant, &before.declared, &before.inputs)
            && given
                .inputs
                .iter()
                .flatten()
                .zip(facts)
                .all(|(id, fact)| builder.tensors[id.get()].is_as(fact));
        if !is_same || !builder.count_within_limits(added.constant_bytes, added.folded_bytes) {
            return None;
        }
        builder.tensors.extend(added.tensors.iter().cloned());
        builder.ops.extend(added.ops.iter().cloned());
        builder.erfs.extend(added.erfs.iter().copied());
        Some(outputs.clone())
    }

    /// Keeps what a node has added behind a mark.
    pub(crate) fn keep(
        &mut self,
        node: usize,
        given: NodeGiven,
        at: BuilderMark,
        outputs: &[TensorId],
        builder: &Builder<'_>,
    ) {
        self.mapped += 1;
        // Limits and other ops may make another thing of it the next time.
        if builder.beyond_facts != at.beyond_facts {
            self.nodes.remove(&node);
            return;
        }
        let facts = given.inputs.iter().flatten().map(|id| builder.tensors[id.get()].clone()).collect();
        let behind = TensorId::new(at.tensors)..;
        let added = AddedParts {
            tensors: builder.tensors[at.tensors..].to_vec(),
            ops: builder.ops[at.ops..].to_vec(),
            erfs: builder.erfs.range(behind).map(|(result, operand)| (*result, *operand)).collect(),
            constant_bytes: builder.constant_bytes - at.constant_bytes,
            folded_bytes: builder.folded_bytes - at.folded_bytes,
        };
        self.nodes.insert(node, KeptNode { given, facts, at, added, outputs: outputs.to_vec() });
    }
}

impl Builder<'_> {
    /// Counts bytes of constants and of folded values that are added again, if these are within the limits,
    /// of which none then has a say.
    pub(super) fn count_within_limits(&mut self, constant_bytes: usize, folded_bytes: usize) -> bool {
        let constant_bytes = self.constant_bytes.saturating_add(constant_bytes);
        let folded_bytes = self.folded_bytes.saturating_add(folded_bytes);
        let is_within =
            constant_bytes <= self.limits.constant_bytes && folded_bytes <= self.limits.folded_bytes;
        if is_within {
            (self.constant_bytes, self.folded_bytes) = (constant_bytes, folded_bytes);
        }
        is_within
    }

    /// The place that the builder has reached.
    pub(crate) fn mark(&self) -> BuilderMark {
        BuilderMark {
            tensors: self.tensors.len(),
            ops: self.ops.len(),
            constant_bytes: self.constant_bytes,
            folded_bytes: self.folded_bytes,
            beyond_facts: self.beyond_facts,
        }
    }
}

impl Tensor {
    /// True if nothing that a mapping can see tells two tensors apart.
    pub(super) fn is_as(&self, other: &Self) -> bool {
        let is_same_origin = match (&self.origin, &other.origin) {
            (Origin::Computed, Origin::Computed) => true,
            (Origin::Constant(own), Origin::Constant(other)) => is_same(own, other),
            (Origin::Number(number, own), Origin::Number(of_other, other)) => {
                number.to_bits() == of_other.to_bits() && is_same(own, other)
            }
            _ => false,
        };
        is_same_origin && self.data_type == other.data_type && self.dims == other.dims
    }
}

/// The most bytes of constants that are compared; larger ones are the same if they are one in memory.
const MOST_COMPARED: usize = 1 << 10;

/// True if two constants are known to be equal. Both are alive, so that an address is that of one alone.
fn is_same(own: &Constant, other: &Constant) -> bool {
    let (bytes, of_other) = (own.bytes(), other.bytes());
    let is_one = std::ptr::eq(bytes, of_other);
    (own.data_type(), own.dims()) == (other.data_type(), other.dims())
        && (is_one || (bytes.len() <= MOST_COMPARED && bytes == of_other))
}
