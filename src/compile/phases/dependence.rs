//! Which values of a plan under construction follow from which.

use super::PlanBuilder;
use crate::graph::op::Op;
use crate::plan::{OfValues, ValueId};

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
}
