//! The computation of a partition, by position: two partitions with equal signatures run the same plans,
//! whatever the ids of their ops and tensors.

use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHasher};

use crate::graph::FpMath;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::{AttrValue, Op};
use crate::types::dtype::DataType;
use crate::types::id::TensorId;
use crate::types::kind::{Attr, OpKind};

/// The ops of a partition, with each tensor named by the order of its first mention, and how far their
/// arithmetic may be relaxed; and the hash of both.
#[derive(Debug)]
pub(crate) struct Signature {
    hash: u64,
    fpmath: FpMath,
    ops: Vec<OpSignature>,
    inputs: Vec<Option<usize>>,
    outputs: Vec<Option<usize>>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OpSignature {
    kind: OpKind,
    attrs: Vec<(Attr, AttrValue)>,
    inputs: Vec<TensorSignature>,
    outputs: Vec<TensorSignature>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TensorSignature {
    place: usize,
    data_type: DataType,
    is_host_scalar: bool,
}

impl Signature {
    pub(super) fn new(
        fpmath: FpMath,
        ops: &[Op],
        inputs: &[LogicalTensor],
        outputs: &[LogicalTensor],
    ) -> Self {
        let mut places: FxHashMap<TensorId, usize> = FxHashMap::default();
        let mut place = |tensor: &LogicalTensor| {
            let next = places.len();
            *places.entry(tensor.id()).or_insert(next)
        };
        let mut tensor = |tensor: &LogicalTensor| TensorSignature {
            place: place(tensor),
            data_type: tensor.data_type(),
            is_host_scalar: tensor.is_host_scalar(),
        };
        let mut op = |op: &Op| OpSignature {
            kind: op.kind(),
            attrs: op.attrs().map(|(attr, value)| (attr, value.clone())).collect(),
            inputs: op.inputs().iter().map(&mut tensor).collect(),
            outputs: op.outputs().iter().map(&mut tensor).collect(),
        };
        let ops: Vec<OpSignature> = ops.iter().map(&mut op).collect();
        // No op of a rewritten form may mention an input.
        let place_of = |tensor: &LogicalTensor| places.get(&tensor.id()).copied();
        let inputs: Vec<Option<usize>> = inputs.iter().map(place_of).collect();
        let outputs: Vec<Option<usize>> = outputs.iter().map(place_of).collect();
        let mut hasher = FxHasher::default();
        (fpmath, &ops, &inputs, &outputs).hash(&mut hasher);
        Self { hash: hasher.finish(), fpmath, ops, inputs, outputs }
    }
}

impl PartialEq for Signature {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
            && self.fpmath == other.fpmath
            && self.ops == other.ops
            && self.inputs == other.inputs
            && self.outputs == other.outputs
    }
}

impl Eq for Signature {}

impl Hash for Signature {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}
