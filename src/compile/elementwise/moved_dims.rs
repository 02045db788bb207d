//! The dims of a value that others hold, with their elements in another order of dims or in other dims.

use smallvec::SmallVec;

use super::group::{Moved, ShapedGroup};
use crate::plan::ValueId;

impl ShapedGroup {
    /// For each dim of a value that only repeats another one in another order of dims, or without dims of 1:
    /// the dim of the latter, or none for a dim of 1.
    pub(in crate::compile) fn dims_of_moved(&self, value: ValueId) -> Option<SmallVec<[Option<usize>; 6]>> {
        let dims = &self.values[value].dims;
        let def = self.values[value].def.as_ref()?;
        match &def.moved {
            None => Some((0..dims.len()).map(Some).collect()),
            Some(Moved::Transposed(order)) => Some(order.iter().copied().map(Some).collect()),
            Some(Moved::Reshaped) => {
                let from = &self.values[def.operands.first()?.0].dims;
                let mut several = (0..from.len()).filter(|&dim| from[dim] != 1);
                let place = |&dim: &i64| match dim {
                    1 => Some(None),
                    _ => several.next().filter(|&place| from[place] == dim).map(Some),
                };
                let places = dims.iter().map(place).collect::<Option<_>>()?;
                several.next().is_none().then_some(places)
            }
            Some(Moved::Sliced(_) | Moved::Concatenated { .. }) => None,
        }
    }

    /// For each dim of a value that is another one with two neighbouring dims as one: the dim of the latter,
    /// the second one of the two, or none for a dim of 1; and the first one of the two.
    pub(in crate::compile) fn dims_of_joined(
        &self,
        value: ValueId,
    ) -> Option<(SmallVec<[Option<usize>; 6]>, usize)> {
        let dims = &self.values[value].dims;
        let def = self.values[value].def.as_ref()?;
        let Some(Moved::Reshaped) = &def.moved else { return None };
        let from = &self.values[def.operands.first()?.0].dims;
        let mut several = (0..from.len()).filter(|&dim| from[dim] != 1);
        let mut joined = None;
        let place = |&dim: &i64| {
            if dim == 1 {
                return Some(None);
            }
            let first = several.next()?;
            if from[first] == dim {
                return Some(Some(first));
            }
            let second =
                several.next().filter(|&second| from[first].checked_mul(from[second]) == Some(dim))?;
            joined.replace(first).is_none().then_some(Some(second))
        };
        let places = dims.iter().map(place).collect::<Option<_>>()?;
        several.next().is_none().then_some((places, joined?))
    }
}
