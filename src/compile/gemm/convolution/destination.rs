//! The places to which the products of a convolution go.

use smallvec::smallvec;

use crate::compile::elementwise::{DriverSpace, FoldedAxes};
use crate::compile::gemm::operands::ProductOperands;
use crate::compile::phases::{PlacedTensor, PlanBuilder};
use crate::compile::product_shape::width_of;
use crate::error::{CompileFault, Error, Result};
use crate::kernels::Extent;
use crate::plan::{Base, LoopNest, ValueId};

/// The place of the elements that a product gives, and the loops around its tiles.
pub(super) struct Destination {
    pub(super) nest: LoopNest,
    pub(super) to: PlacedTensor,
    /// Bytes to the first element.
    pub(super) offset: isize,
    /// Rows of the nest are columns of the product.
    pub(super) is_transposed: bool,
}

impl Destination {
    /// The destinations of products that give a value, each some elements of it by its axes: the value
    /// itself, or the slot of an epilogue that writes the roots. `None` if no strides lead to the value.
    ///
    /// Columns go through the channels, which are a dim of the value, unless `channels` is `None`. If these
    /// lie apart in memory, they are the rows of the epilogue.
    pub(super) fn of_all(
        plan: &mut PlanBuilder<'_>,
        operands: &[ProductOperands],
        folded: &[&FoldedAxes],
        (value, roots): (ValueId, &[ValueId]),
        channels: Option<usize>,
    ) -> Result<Option<Vec<Self>>> {
        if *roots == [value] {
            let to = plan.result(value);
            let in_memory = |(of, space): (&ProductOperands, &&FoldedAxes)| {
                let dims = space.nest_box.extents();
                let (offset, strides) = space.nest_box.view().strides(&to.dims, &to.strides, &dims).ok()?;
                let offset = offset as isize * width_of(&to);
                let to = PlacedTensor { dims, strides, ..to.clone() };
                let nest = of.shape.empty_nest(of.method.tile);
                Some(Destination { nest, to, offset, is_transposed: false })
            };
            return Ok(operands.iter().zip(folded).map(in_memory).collect());
        }
        let data_type = plan.group().values[value].data_type;
        let width = data_type.size().unwrap_or(1);
        let is_transposed = channels.is_some_and(|channels| are_apart(plan, roots, channels));
        let drivers: Vec<_> = (operands.iter().zip(folded))
            .map(|(of, folded)| driver_space(folded, of.method.tile, width, is_transposed))
            .collect();
        let nests = plan.epilogues(&drivers, &[(value, 0)], roots)?;
        let in_slot = |(of, nest): (&ProductOperands, LoopNest)| {
            let (dims, tile) = (of.shape.dims.clone(), of.method.tile);
            let mut strides = of.shape.driver_strides(dims.len(), tile.columns);
            if is_transposed {
                let rank = dims.len();
                (strides[rank - 2], strides[rank - 1]) = (1, tile.rows as i64);
            }
            let to = PlacedTensor { base: Base::Driver(0), data_type, dims, strides };
            Destination { nest, to, offset: 0, is_transposed }
        };
        Ok(Some(operands.iter().zip(nests).map(in_slot).collect()))
    }
}

/// True if no values have channels that lie next to each other.
pub(super) fn are_apart(plan: &PlanBuilder<'_>, values: &[ValueId], channels: usize) -> bool {
    values.iter().all(|&value| plan.destination_or_dense(value).strides[channels] != 1)
}

/// The space of the tiles of a product whose last two axes are rows and columns, or columns and rows of the
/// space; its driver supplies elements of some bytes. The tiles follow each other as those of the product do.
fn driver_space(folded: &FoldedAxes, tile: Extent, width: usize, is_transposed: bool) -> DriverSpace {
    let extents = folded.nest_box.extents();
    let rank = extents.len();
    let (mut axes, mut tile) = ([Some(rank - 2), Some(rank - 1)], tile);
    if is_transposed {
        axes.reverse();
        tile = tile.transposed();
    }
    let slots = smallvec![((tile.columns * width) as isize, width as isize)];
    DriverSpace {
        folded: Some(folded.clone()),
        rows_innermost: is_transposed,
        ..DriverSpace::new(extents, axes, tile, slots)
    }
}

/// The error of a convolution that no kernel runs.
pub(super) fn refused(plan: &PlanBuilder<'_>, index: usize, why: &str) -> Error {
    let kind = plan.anchor_op(index).kind();
    plan.refuse(CompileFault::Unsupported(format!("no kernel runs {kind}: {why}")))
}
