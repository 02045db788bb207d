//! The axes of programs that run before and behind an op on rows.
//!
//! A program goes along a row by one axis. Rows along several trailing dims are one axis if no strides but
//! those of neighbours without a gap lead along these dims; rows of GroupNorm are a part of such an axis.

use smallvec::smallvec;

use super::table::{ProgramSpace, RowOp, RowParts};
use crate::compile::elementwise::{DriverSpace, FoldedAxes, NestBox};
use crate::compile::memory::whole_lines;
use crate::compile::row_axes::RowAxes;
use crate::error::Result;
use crate::graph::op::Op;
use crate::kernels::Extent;
use crate::plan::PART;
use crate::types::shape::Dims;

/// Most columns of a tile of a program before or behind the work. The number divides the shortest part of a
/// row.
const PROGRAM_COLUMNS: usize = 4 << 10;

/// The axes of an op and of programs beside it.
pub(super) struct ProgramAxes {
    /// The axes of the op. Those of places are axes of the same number in the space of a program.
    pub(super) axes: RowAxes,
    /// The axis that goes along a row in the space of a program; `None` if no axis does.
    along: Option<usize>,
    /// The space of a program, if its axes are not the dims of the source.
    folded: Option<FoldedAxes>,
}

impl ProgramAxes {
    /// The axes of programs beside an op whose source has these dims; `None` if none run there.
    pub(super) fn new(row: &RowOp, op: &Op, dims: &Dims) -> Result<Option<Self>> {
        let axes = (row.axes)(op, dims)?;
        match row.programs {
            ProgramSpace::None => return Ok(None),
            ProgramSpace::Groups => return Ok(Self::of_groups(axes, dims)),
            ProgramSpace::Source => {}
        }
        if axes.along.is_empty() || dims.contains(&0) {
            return Ok(None);
        }
        let mut long = axes.along.iter().copied().filter(|&axis| dims[axis] != 1);
        let (along, folded) = match (long.next(), long.next()) {
            (None, _) => (axes.along.last().copied(), None),
            (first, None) => (first, None),
            (Some(first), Some(_)) => {
                let is_along = |axis: usize| dims[axis] == 1 || axes.along.contains(&axis);
                let folded = (first..dims.len())
                    .all(is_along)
                    .then(|| FoldedAxes { dims: dims.clone(), nest_box: NestBox::folded(dims, first) });
                (folded.as_ref().map(|_| first), folded)
            }
        };
        Ok(Some(Self { axes, along, folded }))
    }

    /// The axes for GroupNorm: channels of a group and all that lies beside them are neighbours behind the
    /// first dim.
    fn of_groups(axes: RowAxes, dims: &Dims) -> Option<Self> {
        if dims.contains(&0) || axes.places[..] != [0, 1] {
            return None;
        }
        let nest_box = NestBox::folded(dims, 1).split(1, axes.length() as i64)?;
        Some(Self { axes, along: Some(2), folded: Some(FoldedAxes { dims: dims.clone(), nest_box }) })
    }

    /// `Some` if programs go along rows, with the axes of the space if these are not the dims.
    pub(super) fn of_rows(&self) -> Option<Option<&FoldedAxes>> {
        self.along.map(|_| self.folded.as_ref())
    }

    /// Elements of a row that are worked on at once, and the number of phases that go through the source.
    pub(super) fn parts(&self, row: &RowOp) -> (usize, usize) {
        let length = self.axes.length();
        match (row.parts, self.axes.part_of_results()) {
            (RowParts::Combined, _) => (self.axes.part().min(length), 1),
            (RowParts::Apart, _) => (PART.min(length), 1),
            (RowParts::Measured, Some(part)) => (part.min(length), 2),
            (RowParts::Measured, None) => (length, 1),
        }
    }

    /// The space of a program on so many elements of the rows of so many places along one axis of places, and
    /// the bytes from row to row; `element` are the bytes of an element.
    pub(super) fn space(
        &self,
        count: usize,
        (rows, place): (usize, Option<usize>),
        element: usize,
    ) -> (DriverSpace, usize) {
        let row_stride = whole_lines(count.saturating_mul(element));
        let extents = |folded: &FoldedAxes| folded.nest_box.extents();
        let space = DriverSpace {
            folded: self.folded.clone(),
            ..DriverSpace::new(
                self.folded.as_ref().map_or_else(|| self.axes.dims.clone(), extents),
                [place.map(|place| self.axes.places[place]), self.along],
                Extent { rows, columns: count.clamp(1, PROGRAM_COLUMNS) },
                smallvec![(row_stride as isize, element as isize)],
            )
        };
        (space, row_stride)
    }

    /// The space of a program on the numbers of rows, which have these dims.
    pub(super) fn space_of_places(
        &self,
        dims: &Dims,
        (rows, place): (usize, Option<usize>),
        element: usize,
    ) -> (DriverSpace, usize) {
        let keeps = dims.len() == self.axes.dims.len();
        let columns = place.map(|place| if keeps { self.axes.places[place] } else { place });
        let tile = Extent { rows: 1, columns: rows };
        let slots = smallvec![(0, element as isize)];
        (DriverSpace::new(dims.clone(), [None, columns], tile, slots), element)
    }
}
