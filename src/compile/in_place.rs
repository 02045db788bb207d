//! Ports of ops on rows that may share memory.

use super::shaped_partition::ShapedPartition;
use crate::kernels::rows::RowPass;
use crate::plan::{Base, InPlacePorts, Phase, ValueId};

/// True if nothing reads the input once a phase on rows has begun to write the output over it. The kernels
/// read a row of the source, or a part of a row, before they write it; the phase that measures parts has
/// ended by then.
pub(super) fn row_by_row(pair: &InPlacePorts, phases: &[Phase], shaped: &ShapedPartition<'_>) -> bool {
    let &InPlacePorts { input, output } = pair;
    let (group, output) = (&shaped.group, output - shaped.inputs.len());
    let (value, result) = (&group.values[ValueId(input)], &group.values[group.outputs[output]]);
    let own = phases.iter().filter_map(|phase| match phase {
        Phase::Rows(rows) if rows.pass() != RowPass::Measure => Some(&rows.nest),
        _ => None,
    });
    let nests = phases.iter().flat_map(Phase::nests).chain(own);
    let accesses = nests.flat_map(|nest| &nest.program.accesses);
    let reads = accesses.filter(|access| access.base == Base::Port(input)).count();
    reads == 1
        && value.data_type == result.data_type
        && value.dims == result.dims
        && shaped.inputs[input].strides() == Some(&shaped.resolved[output].1)
}
