//! Which values of a plan under construction follow from which.

use super::{PlanBuilder, unordered};
use crate::compile::elementwise::{self, Stored};
use crate::error::Result;
use crate::graph::op::Op;
use crate::plan::{Base, OfValues, ValueId};
use crate::types::shape::Dims;

impl<'a> PlanBuilder<'a> {
    /// The op of an anchor.
    pub(in crate::compile) fn anchor_op(&self, anchor: usize) -> &'a Op {
        let anchor = &self.group().anchors[anchor];
        anchor.form.as_ref().unwrap_or_else(|| self.op(anchor.op))
    }

    /// True if pointwise ops compute a value from another one along a path without any of the values `cuts`.
    pub(in crate::compile) fn depends(&self, value: ValueId, from: ValueId, cuts: &[ValueId]) -> bool {
        let group = self.group();
        let (mut open, mut seen) = (vec![value], OfValues::new(group.values.len(), false));
        while let Some(value) = open.pop() {
            if value == from {
                return true;
            }
            let is_end = self.stored[value].is_some() || cuts.contains(&value);
            if !std::mem::replace(&mut seen[value], true) && !is_end && group.anchor_of(value).is_none() {
                open.extend(group.operands(value));
            }
        }
        false
    }

    /// True if pointwise ops compute a value from some values and from what is stored.
    pub(in crate::compile) fn is_computable(&self, value: ValueId, from: &[ValueId]) -> bool {
        let group = self.group();
        let (mut open, mut seen) = (vec![value], OfValues::new(group.values.len(), false));
        while let Some(value) = open.pop() {
            if from.contains(&value) || self.stored[value].is_some() {
                continue;
            }
            if group.anchor_of(value).is_some() {
                return false;
            }
            if !std::mem::replace(&mut seen[value], true) {
                open.extend(group.operands(value));
            }
        }
        true
    }

    /// Refuses values that pointwise ops do not compute from some values and from what is stored.
    pub(super) fn check_computable(&self, values: &[ValueId], from: &[ValueId]) -> Result<()> {
        match values.iter().all(|&value| self.is_computable(value, from)) {
            true => Ok(()),
            false => Err(self.refuse(unordered())),
        }
    }

    /// The bases of targets that a later phase may read. Buffers are made to be read, and an output is read
    /// if other values are computed from it.
    pub(super) fn read_later(&self, targets: &[(ValueId, Stored<'_>)]) -> Vec<Base> {
        let group = self.group();
        let is_used = |value: ValueId| {
            group
                .values
                .ids()
                .any(|user| self.stored[user].is_none() && group.operands(user).contains(&value))
        };
        let is_read = |&&(value, target): &&(ValueId, Stored<'_>)| {
            matches!(target.base, Base::Buffer(_)) || is_used(value)
        };
        targets.iter().filter(is_read).map(|(_, target)| target.base).collect()
    }

    /// The first element of a value and its strides, if another one, from which ops move it or widen it to
    /// f32, had some strides; `None` if no strides lead to the value's elements.
    pub(in crate::compile) fn strides_from(
        &self,
        value: ValueId,
        from: ValueId,
        strides: &[i64],
    ) -> Option<(i64, Dims)> {
        let mut stored: OfValues<Option<Stored<'_>>> = self.stored.clone();
        stored[from] = Some(Stored { base: Base::Index, strides: Some(strides) });
        let view = elementwise::strided_view(self.group(), &stored, value).filter(|view| view.of == from)?;
        Some((view.offset, view.strides))
    }
}
