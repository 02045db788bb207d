//! The tile programs behind the last anchor.

use super::{PlanBuilder, no_nest};
use crate::compile::elementwise::{DriverSpace, Stored};
use crate::error::Result;
use crate::plan::{LoopNest, ValueId};
use crate::types::shape::{self, Dims};

impl<'a> PlanBuilder<'a> {
    /// The tile program that takes a value of the last anchor from slot 0 of the driver, and writes all
    /// values that outputs need from it: outputs of the value's shape, outputs that are such values in other
    /// dims, and the value itself if later phases compute other outputs from it.
    pub(in crate::compile) fn result_program(
        &mut self,
        space: &DriverSpace,
        value: ValueId,
    ) -> Result<LoopNest> {
        let nests = self.result_programs(std::slice::from_ref(space), value)?;
        nests.into_iter().next().ok_or_else(|| self.refuse(no_nest()))
    }

    /// As [`result_program`](Self::result_program) for drivers of several phases, each of which gives some
    /// elements of the value. Their spaces differ in tiles alone.
    pub(in crate::compile) fn result_programs(
        &mut self,
        spaces: &[DriverSpace],
        value: ValueId,
    ) -> Result<Vec<LoopNest>> {
        let Some(space) = spaces.first() else { return Ok(Vec::new()) };
        let group = self.group();
        let open = |output: &ValueId| self.stored[*output].is_none() && self.depends(*output, value, &[]);
        let outputs: Vec<ValueId> = group.outputs.iter().copied().filter(open).collect();
        let is_fused = |of: ValueId| {
            group.values[of].dims == space.dims && self.is_tile_program(&space.dims, &[value], of)
        };
        let mut roots: Vec<ValueId> = outputs.iter().copied().filter(|&output| is_fused(output)).collect();
        // Outputs, the values whose elements they have, and the strides of these values.
        let mut reshaped: Vec<(ValueId, ValueId, Dims)> = Vec::new();
        let rest: Vec<ValueId> = outputs.iter().copied().filter(|output| !roots.contains(output)).collect();
        for output in rest {
            let of = group.reshaped_from(output, &space.dims);
            let strides = of.and_then(|_| {
                let place = group.outputs.iter().position(|&other| other == output)?;
                let given = group.stored_output(place, &self.ports).strides?;
                shape::split_strides(&group.values[output].dims, given, &space.dims)
            });
            match (of, strides) {
                (Some(of), Some(strides)) if is_fused(of) && !roots.contains(&of) => {
                    reshaped.push((output, of, strides));
                }
                _ if !roots.contains(&value) => roots.push(value),
                _ => {}
            }
        }
        let stored: Vec<(ValueId, Stored<'a>)> = (roots.iter().copied())
            .chain(reshaped.iter().map(|&(output, ..)| output))
            .map(|value| (value, self.target(value)))
            .collect();
        let mut targets: Vec<(ValueId, Stored<'_>)> = stored[..roots.len()].to_vec();
        for ((_, of, strides), (_, to)) in reshaped.iter().zip(&stored[roots.len()..]) {
            targets.push((*of, Stored { base: to.base, strides: Some(strides) }));
        }
        let nest = self.program(space, &[(value, 0)], &targets)?;
        // Each element is stored once.
        let (cost, flops) = (self.cost, self.program_flops);
        let others = spaces[1..].iter().map(|space| self.program(space, &[(value, 0)], &targets));
        let nests = [Ok(nest)].into_iter().chain(others).collect::<Result<_>>()?;
        (self.cost, self.program_flops) = (cost, flops);
        stored.iter().for_each(|&(value, target)| self.stored[value] = Some(target));
        Ok(nests)
    }
}
