//! The last column of scores that has no key: its exponential counts in the sum of a query, and no value is
//! weighed by it.

use crate::compile::elementwise::{Moved, ShapedGroup};
use crate::plan::ValueId;
use crate::types::fallback::{FallbackReason, FallbackReason as R};

/// The values around a SoftMax whose last column has no key.
pub(super) struct SinkColumn {
    /// The other columns before the SoftMax, and the last one.
    pub(super) logits: ValueId,
    pub(super) sinks: ValueId,
    /// The other columns behind the SoftMax.
    pub(super) weights: ValueId,
}

impl SinkColumn {
    /// The column of a SoftMax with this operand and this result; `None` if the operand has no ends in other
    /// values.
    pub(super) fn find(
        group: &ShapedGroup,
        entered: ValueId,
        left: ValueId,
    ) -> Result<Option<Self>, FallbackReason> {
        let Some(def) = &group.values[entered].def else { return Ok(None) };
        let Some(Moved::Concatenated { axis, .. }) = &def.moved else { return Ok(None) };
        let dims = &group.values[entered].dims;
        let &[(logits, _), (sinks, _)] = &def.operands[..] else { return Err(R::ShapeOfScores) };
        let is_column = *axis + 1 == dims.len() && group.values[sinks].dims[*axis] == 1;
        R::ShapeOfScores.unless(is_column)?;
        let mut users = group.values.ids().filter(|&user| group.operands(user).contains(&left));
        let (Some(weights), None) = (users.next(), users.next()) else { return Err(R::InnerUses) };
        let of_weights = &group.values[weights];
        let ranges = match of_weights.def.as_ref().and_then(|def| def.moved.as_ref()) {
            Some(Moved::Sliced(ranges)) => ranges,
            _ => return Err(R::ShapeOfScores),
        };
        let begins = ranges.iter().all(|range| range.start == 0 && range.step == 1);
        R::ShapeOfScores.unless(begins && of_weights.dims == group.values[logits].dims)?;
        Ok(Some(Self { logits, sinks, weights }))
    }
}
