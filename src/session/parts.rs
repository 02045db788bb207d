//! Where tensors lie that are parts of a larger one: rows that a run adds to a state, and operands of an op
//! `Concat` that are written where its result has them.

use rustc_hash::FxHashMap;

use super::resolved::ResolvedGraph;
use crate::error::Result;
use crate::graph::logical_tensor::LogicalTensor;
use crate::types::id::TensorId;

/// The place of a tensor within the memory of another one.
#[derive(Debug, Clone)]
pub(super) struct PartTarget {
    /// The tensor that has the memory.
    pub(super) root: TensorId,
    /// The part, with the strides of the whole.
    pub(super) desc: LogicalTensor,
    /// Bytes before the first element.
    pub(super) offset: usize,
}

impl PartTarget {
    /// The place of a tensor that has memory of its own.
    pub(super) fn whole(desc: LogicalTensor) -> Self {
        Self { root: desc.id(), desc, offset: 0 }
    }

    /// The place of a part of this tensor, behind some rows along an axis.
    pub(super) fn part(&self, axis: usize, rows: i64, part: &LogicalTensor) -> Result<Self> {
        let strides = self.desc.strides().unwrap_or_default();
        let (id, dims) = (part.id(), part.dims().unwrap_or_default());
        let mut desc = LogicalTensor::with_strides(id, part.data_type(), dims, strides)?;
        if desc.span() == desc.element_count() {
            // Row-major in all strides, those of dims of 1 too, as reshapes want it.
            desc = LogicalTensor::strided(id, part.data_type(), dims)?;
        }
        let size = part.data_type().size().unwrap_or(0);
        // Rows that do not exist have no place.
        let is_empty = dims.contains(&0);
        let stride = strides.get(axis).copied().unwrap_or(0);
        let offset = if is_empty { 0 } else { self.offset + (rows * stride) as usize * size };
        Ok(Self { root: self.root, desc, offset })
    }
}

/// The places of all tensors that are added to a state, once and nowhere else.
pub(super) fn row_targets(
    resolved: &ResolvedGraph,
    pasts: &[LogicalTensor],
) -> FxHashMap<TensorId, PartTarget> {
    let mut targets: FxHashMap<TensorId, Option<PartTarget>> = FxHashMap::default();
    for (pair, past) in resolved.of.states.iter().zip(pasts) {
        let Some((append, axis)) = pair.append else { continue };
        let Some(op) = resolved.graph.ops().iter().find(|op| op.id() == append) else { continue };
        let length = |tensor: &LogicalTensor| tensor.dims().and_then(|dims| dims.get(axis).copied());
        let (whole, mut rows) = (PartTarget::whole(past.clone()), length(past).unwrap_or(0));
        for input in &op.inputs()[1..] {
            let target = whole.part(axis, rows, input).ok();
            rows += length(input).unwrap_or(0);
            // A tensor that is added twice lies at neither place.
            let is_new = !targets.contains_key(&input.id());
            targets.insert(input.id(), target.filter(|_| is_new));
        }
    }
    targets.into_iter().filter_map(|(id, target)| Some((id, target?))).collect()
}
