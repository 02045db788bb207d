//! The index space that the driver of a phase gives to its tile program.

use smallvec::{SmallVec, smallvec};

use super::view::NestBox;
use crate::kernels::Extent;
use crate::plan::{Loop, LoopNest, StepSet, TileProgram};
use crate::types::shape::Dims;

/// The index space of a tile program, its tiles, and the operands that the driver supplies.
///
/// The loops of the nest are all axes but those of rows and columns, in their order, also those of one
/// iteration, then blocks of rows and blocks of columns. The driver may run the tiles in any order.
#[derive(Debug, Clone)]
pub(in crate::compile) struct DriverSpace {
    /// The extents of the axes.
    pub(in crate::compile) dims: Dims,
    /// The axis of the rows of a tile; `None` for one row.
    pub(in crate::compile) rows: Option<usize>,
    /// The axis of the columns of a tile; `None` for one column.
    pub(in crate::compile) columns: Option<usize>,
    /// Rows and columns of a tile; they need not divide those of the space, and may be larger.
    pub(in crate::compile) tile: Extent,
    /// For each slot of the driver: bytes from row to row of a tile, and from element to element of a row.
    pub(in crate::compile) slots: SmallVec<[(isize, isize); 2]>,
    /// True if the loop over blocks of rows is the innermost one, instead of the loop over blocks of columns.
    pub(in crate::compile) rows_innermost: bool,
    /// True if the program computes its results anew in each tile, because the driver overwrites them.
    pub(in crate::compile) overwrites_results: bool,
    /// The values over the space, if the axes are not their dims.
    pub(in crate::compile) folded: Option<FoldedAxes>,
}

/// Axes that go through values of other dims: along several neighbouring dims at once, or along a part of
/// them.
#[derive(Debug, Clone)]
pub(in crate::compile) struct FoldedAxes {
    /// The dims of the values.
    pub(in crate::compile) dims: Dims,
    /// The elements of the values, by the axes.
    pub(in crate::compile) nest_box: NestBox,
}

impl DriverSpace {
    /// A space over these dims, with the axes of rows and of columns, whose driver leaves the results as they
    /// are.
    pub(in crate::compile) fn new(
        dims: Dims,
        [rows, columns]: [Option<usize>; 2],
        tile: Extent,
        slots: SmallVec<[(isize, isize); 2]>,
    ) -> Self {
        let (rows_innermost, overwrites_results, folded) = (false, false, None);
        Self { dims, rows, columns, tile, slots, rows_innermost, overwrites_results, folded }
    }

    /// The dims of the values over the space.
    pub(super) fn value_dims(&self) -> &Dims {
        self.folded.as_ref().map_or(&self.dims, |folded| &folded.dims)
    }

    /// The elements of these values, by the axes of the space.
    pub(super) fn nest_box(&self) -> NestBox {
        self.folded.as_ref().map_or_else(|| NestBox::of_dims(&self.dims), |folded| folded.nest_box.clone())
    }

    /// The strides of a slot along the axes, if its operand varies along an axis; 0 along axes that are loops
    /// around tiles, because the driver supplies the operand for each tile.
    pub(super) fn strides(&self, slot: usize, varies: impl Fn(usize) -> bool) -> SmallVec<[isize; 6]> {
        let (row_stride, col_stride) = self.slots[slot];
        let stride = |axis: usize| match Some(axis) {
            _ if !varies(axis) => 0,
            along if along == self.columns => col_stride,
            along if along == self.rows => row_stride,
            _ => 0,
        };
        (0..self.dims.len()).map(stride).collect()
    }

    /// The loops around the tiles, without accesses and steps.
    pub(in crate::compile) fn empty_nest(&self) -> LoopNest {
        let count = |axis: Option<usize>| axis.map_or(1, |axis| self.dims[axis] as usize);
        let space = Extent { rows: count(self.rows), columns: count(self.columns) };
        let [rows, columns] =
            [space.rows.div_ceil(self.tile.rows), space.columns.div_ceil(self.tile.columns)];
        let blocks = if self.rows_innermost { [columns, rows] } else { [rows, columns] };
        let extents = self.outer().map(|axis| self.dims[axis] as usize).chain(blocks);
        let loops: SmallVec<[Loop; 6]> =
            extents.map(|extent| Loop { extent, strides: smallvec![] }).collect();
        let invalidated_by = smallvec![StepSet::none_of(0); loops.len()];
        let outer = loops.len() - 2;
        LoopNest {
            loops,
            row_blocks: outer + usize::from(self.rows_innermost),
            column_blocks: outer + usize::from(!self.rows_innermost),
            space,
            tile: self.tile,
            program: TileProgram { invalidated_by, ..TileProgram::default() },
        }
    }

    /// The axes that are loops around tiles, in their order.
    pub(in crate::compile) fn outer(&self) -> impl Iterator<Item = usize> {
        (0..self.dims.len()).filter(|&axis| Some(axis) != self.rows && Some(axis) != self.columns)
    }
}
