//! Where the rows lie that a run adds to a state.

use rustc_hash::FxHashMap;

use super::resolved::ResolvedGraph;
use crate::error::Result;
use crate::graph::logical_tensor::LogicalTensor;
use crate::types::id::TensorId;

/// The place of rows that are added to a tensor of the state.
#[derive(Debug, Clone)]
pub(super) struct RowTarget {
    /// The tensor of the state.
    pub(super) state: usize,
    /// The rows, with the strides of the state.
    pub(super) desc: LogicalTensor,
    /// Bytes before the first element.
    pub(super) offset: usize,
}

impl RowTarget {
    /// The place of a tensor behind some rows of the past.
    pub(super) fn new(
        state: usize,
        past: &LogicalTensor,
        axis: usize,
        rows: i64,
        new: &LogicalTensor,
    ) -> Result<Self> {
        let strides = past.strides().unwrap_or_default();
        let (id, dims) = (new.id(), new.dims().unwrap_or_default());
        let desc = LogicalTensor::with_strides(id, new.data_type(), dims, strides)?;
        let size = new.data_type().size().unwrap_or(0);
        // Rows that do not exist have no place.
        let is_empty = dims.contains(&0);
        let stride = strides.get(axis).copied().unwrap_or(0);
        let offset = if is_empty { 0 } else { (rows * stride) as usize * size };
        Ok(Self { state, desc, offset })
    }
}

/// The places of all tensors that are added to a state, once and nowhere else.
pub(super) fn row_targets(
    resolved: &ResolvedGraph,
    pasts: &[LogicalTensor],
) -> FxHashMap<TensorId, RowTarget> {
    let mut targets: FxHashMap<TensorId, Option<RowTarget>> = FxHashMap::default();
    let appends = resolved.of.states.iter().zip(pasts).enumerate();
    for (state, (pair, past)) in appends {
        let Some((append, axis)) = pair.append else { continue };
        let Some(op) = resolved.graph.ops().iter().find(|op| op.id() == append) else { continue };
        let length = |tensor: &LogicalTensor| tensor.dims().and_then(|dims| dims.get(axis).copied());
        let mut rows = length(past).unwrap_or(0);
        for input in &op.inputs()[1..] {
            let target = RowTarget::new(state, past, axis, rows, input).ok();
            rows += length(input).unwrap_or(0);
            // A tensor that is added twice lies at neither place.
            let is_new = !targets.contains_key(&input.id());
            targets.insert(input.id(), target.filter(|_| is_new));
        }
    }
    targets.into_iter().filter_map(|(id, target)| Some((id, target?))).collect()
}
