//! Partitions all of whose results are without elements: nothing is computed, whatever the sizes of the other
//! dims, whose products may exceed what can be counted.

use super::elementwise::{ShapedGroup, port_strides, resolved_outputs};
use super::memory;
use crate::error::{Error, Result};
use crate::graph::logical_tensor::LogicalTensor;
use crate::kernels::StorePolicy;
use crate::partition::Partition;
use crate::plan::{Cost, Plan, Preparation};

/// A plan without phases; `None` if there is something to compute.
pub(super) fn lower(
    partition: &Partition,
    inputs: &[&LogicalTensor],
    outputs: &[&LogicalTensor],
) -> Result<Option<Plan>> {
    // Most partitions are told apart without their shapes being inferred.
    if inputs.iter().all(|input| input.element_count() != Some(0)) {
        return Ok(None);
    }
    let group = ShapedGroup::new(partition, inputs, outputs)?;
    if group.outputs.iter().any(|&output| !group.values[output].dims.contains(&0)) {
        return Ok(None);
    }
    let refuse = |fault| Error::Compile { partition: partition.id(), fault };
    let resolved = resolved_outputs(&group, inputs, outputs).map_err(refuse)?;
    let cost = Cost::default();
    Ok(Some(Plan {
        sizes: group.sizes(&port_strides(inputs, &resolved)),
        outputs: resolved,
        in_place: Vec::new(),
        buffers: Vec::new(),
        phases: Vec::new(),
        preparation: Preparation::default(),
        constants: Vec::new(),
        scratch: 0,
        cost,
        phase_flops: Vec::new(),
        threading: memory::threading(cost),
        computes_floats: false,
        stores: StorePolicy::Temporal,
        fallbacks: Vec::new(),
        index_checks: Vec::new(),
    }))
}
