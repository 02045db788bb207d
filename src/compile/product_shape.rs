//! Rows, columns and depth of matrix products, and their axes in the operands and in the result.

use smallvec::{SmallVec, smallvec};

use super::phases::{AxisStrides, PlacedTensor};
use crate::graph::op::Op;
use crate::kernels::Extent;
use crate::plan::{Loop, LoopNest, TileProgram};
use crate::types::kind::Attr;
use crate::types::shape::{self, Dims, SaturatingProduct};

/// Most rows of a product for which packing the right operand takes longer than it saves.
pub(super) const UNPACKED_ROWS: usize = 100;

/// Bytes of an element.
pub(super) fn width_of(tensor: &PlacedTensor) -> isize {
    tensor.data_type.size().unwrap_or(1) as isize
}

/// Rows, columns and depth of the products, and the axes of the result. Strides count bytes.
pub(super) struct ProductShape {
    pub(super) dims: Dims,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) depth: usize,
    /// The axis of the rows and the axis of the columns; `None` if a vector has no such axis in the result.
    pub(super) row_axis: Option<usize>,
    pub(super) column_axis: Option<usize>,
    /// The other axes: there is a product for each index.
    pub(super) outer: SmallVec<[usize; 6]>,
    pub(super) left: AxisStrides,
    pub(super) right: AxisStrides,
    /// The strides of both operands along the depth, and of the right operand from column to column.
    pub(super) left_depth: isize,
    pub(super) right_depth: isize,
    pub(super) right_column: isize,
}

impl ProductShape {
    pub(super) fn new(op: &Op, left: &PlacedTensor, right: &PlacedTensor, result: &[i64]) -> Self {
        // Dim and stride along the last two axes; a vector has no second one.
        let matrix = |of: &PlacedTensor, transpose: Attr, is_left: bool| {
            let rank = of.dims.len();
            let axis = |axis: usize| (of.dims[axis] as usize, of.strides[axis] as isize * width_of(of));
            match (rank, op.bool_attr(transpose)) {
                (0, _) => [(1, 0); 2],
                (1, _) if is_left => [(1, 0), axis(0)],
                (1, _) => [axis(0), (1, 0)],
                (_, false) => [axis(rank - 2), axis(rank - 1)],
                (_, true) => [axis(rank - 1), axis(rank - 2)],
            }
        };
        let [(mut rows, left_row), (depth, left_depth)] = matrix(left, Attr::TransposeA, true);
        let [(_, right_depth), (columns, right_column)] = matrix(right, Attr::TransposeB, false);
        let (has_rows, has_columns) = (left.dims.len() > 1, right.dims.len() > 1);
        let batch = result.len() - usize::from(has_rows) - usize::from(has_columns);
        let mut row_axis = has_rows.then_some(batch);
        let column_axis = has_columns.then(|| result.len() - 1);
        let (mut left, right) = (batch_strides(left, result, batch), batch_strides(right, result, batch));
        if let Some(axis) = row_axis {
            left[axis] = left_row;
        }
        // A matrix on the right that many short products share is read once for all rows along another axis.
        let shared = (0..batch).filter(|&axis| right[axis] == 0).max_by_key(|&axis| result[axis]);
        if let Some(axis) = shared.filter(|&axis| rows <= UNPACKED_ROWS && result[axis] as usize > rows) {
            (row_axis, rows) = (Some(axis), result[axis] as usize);
        }
        let is_outer = |&axis: &usize| Some(axis) != row_axis && Some(axis) != column_axis;
        Self {
            dims: result.into(),
            rows,
            columns,
            depth,
            row_axis,
            column_axis,
            outer: (0..result.len()).filter(is_outer).collect(),
            left,
            right,
            left_depth,
            right_depth,
            right_column,
        }
    }

    pub(super) fn products(&self) -> usize {
        self.outer.iter().map(|&axis| self.dims[axis] as usize).saturating_product()
    }

    pub(super) fn flops(&self) -> usize {
        [self.rows, self.columns, self.depth, 2].into_iter().fold(self.products(), usize::saturating_mul)
    }

    /// The stride along the rows.
    pub(super) fn row(&self, strides: &AxisStrides) -> isize {
        self.row_axis.map_or(0, |axis| strides[axis])
    }

    /// The stride along the columns.
    pub(super) fn column(&self, strides: &AxisStrides) -> isize {
        self.column_axis.map_or(0, |axis| strides[axis])
    }

    /// The strides of a tensor that broadcasts to the result.
    pub(super) fn result_strides(&self, of: &PlacedTensor) -> AxisStrides {
        let start = self.dims.len().saturating_sub(of.dims.len());
        let strides = shape::access_strides(&of.dims, &of.strides, &self.dims, start);
        strides.into_iter().map(|stride| stride as isize * width_of(of)).collect()
    }

    /// The strides, in elements, of a tile that the driver supplies.
    pub(super) fn driver_strides(&self, rank: usize, columns: usize) -> Dims {
        let mut strides = Dims::from_elem(0, rank);
        if let Some(axis) = self.row_axis {
            strides[axis] = columns as i64;
        }
        if let Some(axis) = self.column_axis {
            strides[axis] = 1;
        }
        strides
    }

    /// Rows that are multiplied with one matrix on the right, in all products that share it.
    pub(super) fn rows_of_right(&self) -> usize {
        let shared = self.outer.iter().filter(|&&axis| self.right[axis] == 0);
        shared.map(|&axis| self.dims[axis] as usize).fold(self.rows, usize::saturating_mul)
    }

    /// The loops around the tiles of all products, without accesses.
    pub(super) fn empty_nest(&self, tile: Extent) -> LoopNest {
        let extents = self.outer.iter().map(|&axis| self.dims[axis] as usize);
        let extents = extents.chain([self.rows.div_ceil(tile.rows), self.columns.div_ceil(tile.columns)]);
        LoopNest {
            loops: extents.map(|extent| Loop { extent, strides: smallvec![] }).collect(),
            row_blocks: self.outer.len(),
            column_blocks: self.outer.len() + 1,
            space: Extent { rows: self.rows, columns: self.columns },
            tile,
            program: TileProgram::default(),
        }
    }
}

/// The strides of an operand along the axes of the result: of its batch, which broadcasts to the first axes.
pub(super) fn batch_strides(of: &PlacedTensor, result: &[i64], batch: usize) -> AxisStrides {
    let own = of.dims.len().saturating_sub(2);
    let mut strides =
        shape::access_strides(&of.dims[..own], &of.strides, &result[..batch], batch.saturating_sub(own));
    strides.resize(result.len(), 0);
    strides.into_iter().map(|stride| stride as isize * width_of(of)).collect()
}
