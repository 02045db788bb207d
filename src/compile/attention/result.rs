//! The store of the blocks of a product: with the moves and the pointwise ops that follow the product.

use smallvec::{SmallVec, smallvec};

use super::ragged::by_tokens;
use super::shape::{Shape, round};
use crate::compile::elementwise::{DriverSpace, ShapedGroup};
use crate::compile::phases::PlanBuilder;
use crate::error::{CompileFault, Result};
use crate::kernels::Extent;
use crate::kernels::pointwise::Kernel1;
use crate::plan::{AttentionResult, LoopNest, ValueId};
use crate::types::dtype::DataType;
use crate::types::shape::SaturatingProduct;

/// The value behind the transposes that alone follow a value. `moved` is told the axes of each transpose.
pub(super) fn transposed(
    group: &ShapedGroup,
    mut value: ValueId,
    mut moved: impl FnMut(&[usize]),
) -> ValueId {
    while !group.outputs.contains(&value)
        && let Some((user, order)) = group.only_transposed(value)
    {
        moved(&order);
        value = user;
    }
    value
}

/// The place of an axis behind a transpose.
pub(super) fn place_in(order: &[usize], place: usize) -> usize {
    order.iter().position(|&axis| axis == place).unwrap_or(0)
}

/// Tiles of a nest from one iteration of each loop to the next.
pub(super) fn tiles_of_loops(nest: &LoopNest) -> SmallVec<[usize; 6]> {
    (0..nest.loops.len())
        .map(|index| nest.loops[index + 1..].iter().map(|l| l.extent).saturating_product())
        .collect()
}

/// The kernel that rounds a block in f32 to a type; none for f32.
pub(super) fn rounding(plan: &PlanBuilder<'_>, data_type: DataType) -> Result<Option<Kernel1>> {
    round(plan.level, data_type).ok_or_else(|| {
        let fault = format!("no kernel runs attention with results in {data_type}");
        plan.refuse(CompileFault::Unsupported(fault))
    })
}

/// How a driver gives blocks of the second product.
#[derive(Clone, Copy)]
pub(super) struct ResultBlocks {
    /// Queries of a block.
    pub(super) queries: usize,
    /// Elements from query to query, and from one element of a value to the next.
    pub(super) steps: [usize; 2],
}

/// The store of the blocks of the second product of attention.
pub(super) fn result(
    plan: &mut PlanBuilder<'_>,
    shape: &Shape,
    blocks: ResultBlocks,
) -> Result<AttentionResult> {
    let [result] = results(plan, shape, [blocks], false)?;
    Ok(result)
}

/// As [`result`] for drivers that give some blocks each. If `is_ragged`, blocks begin with any query.
pub(super) fn results<const N: usize>(
    plan: &mut PlanBuilder<'_>,
    shape: &Shape,
    blocks: [ResultBlocks; N],
    is_ragged: bool,
) -> Result<[AttentionResult; N]> {
    let group = plan.group();
    // For each axis of the scores its place among the axes of the value that the phase supplies.
    let mut places: SmallVec<[usize; 6]> = (0..shape.dims.len()).collect();
    let value = transposed(group, shape.result, |order| {
        places.iter_mut().for_each(|place| *place = place_in(order, *place));
    });
    let data_type = group.values[value].data_type;
    let width = data_type.size().unwrap_or(4);
    let spaces = blocks.map(|ResultBlocks { queries, steps: [of_query, of_element] }| {
        DriverSpace::new(
            group.values[value].dims.clone(),
            [Some(places[shape.query_axis]), Some(places[shape.key_axis])],
            Extent { rows: queries, columns: shape.value_columns },
            smallvec![((of_query * width) as isize, (of_element * width) as isize)],
        )
    });
    // Blocks of queries and of columns are the last loops.
    let outer: Option<SmallVec<[usize; 6]>> = spaces.first().map(|space| space.outer().collect());
    let outer = outer.unwrap_or_default();
    let nests = plan.result_programs(&spaces, value)?;
    let round = rounding(plan, data_type)?;
    let results: Vec<AttentionResult> = nests
        .into_iter()
        .map(|mut nest| {
            if is_ragged {
                by_tokens(&mut nest);
            }
            let tiles = tiles_of_loops(&nest);
            let of_axis = |axis: &usize| {
                outer.iter().position(|&other| other == places[*axis]).map_or(0, |at| tiles[at])
            };
            let tile_strides = shape.outer.iter().map(of_axis).chain([tiles[nest.row_blocks]]).collect();
            AttentionResult { nest, tile_strides, round }
        })
        .collect();
    let no_store = || CompileFault::Unsupported("no program stores the result of attention".into());
    results.try_into().map_err(|_| plan.refuse(no_store()))
}
