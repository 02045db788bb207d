//! The iterations of an op on rows: axes of places and axes along rows, the strides of operands along both,
//! and the parts of long rows.

use smallvec::SmallVec;

use super::memory;
use super::phases::{AxisStrides, PlacedTensor};
use crate::graph::infer::ChannelGroups;
use crate::kernels::rows::COLUMNS;
use crate::plan::{Base, Loop};
use crate::types::dtype::DataType;
use crate::types::shape::{Dims, SaturatingProduct};

/// A tensor as an operand of iterations.
pub(super) trait Along {
    /// The strides along axes: each axis is a dim of the tensor, or none; a dim of 1 is repeated.
    fn along(&self, axes: impl Iterator<Item = Option<usize>>) -> AxisOperand;

    /// The strides along the axes of a shape onto which the tensor broadcasts from an axis on.
    fn onto(&self, rank: usize, start: usize) -> AxisOperand;
}

impl Along for PlacedTensor {
    fn along(&self, axes: impl Iterator<Item = Option<usize>>) -> AxisOperand {
        let bytes = self.data_type.size().unwrap_or(1) as isize;
        let stride = |dim: usize| match self.dims[dim] {
            1 => 0,
            _ => self.strides[dim] as isize * bytes,
        };
        let strides = axes.map(|axis| axis.map_or(0, stride)).collect();
        AxisOperand { base: self.base, offset: 0, data_type: self.data_type, strides }
    }

    fn onto(&self, rank: usize, start: usize) -> AxisOperand {
        self.along((0..rank).map(|axis| axis.checked_sub(start).filter(|&dim| dim < self.dims.len())))
    }
}

/// A tensor as an operand of an iteration.
#[derive(Debug, Clone)]
pub(super) struct AxisOperand {
    pub(super) base: Base,
    /// Bytes to the first element.
    pub(super) offset: isize,
    pub(super) data_type: DataType,
    pub(super) strides: AxisStrides,
}

impl AxisOperand {
    pub(super) fn bytes(&self) -> usize {
        self.data_type.size().unwrap_or(1)
    }

    /// True if a program before or behind the work supplies it.
    pub(super) fn is_of_program(&self) -> bool {
        matches!(self.base, Base::Driver(_))
    }
}

/// The axes of an iteration: each is one of the places, or lies along rows.
pub(super) struct RowAxes {
    pub(super) dims: Dims,
    pub(super) places: SmallVec<[usize; 6]>,
    pub(super) along: SmallVec<[usize; 6]>,
}

impl RowAxes {
    pub(super) fn new(dims: &[i64], is_along: impl Fn(usize) -> bool) -> Self {
        let (along, places) = (0..dims.len()).partition(|&axis| is_along(axis));
        Self { dims: dims.into(), places, along }
    }

    /// The axes of GroupNorm: the dims of its source, with that of channels as two axes, of groups and of the
    /// channels of a group.
    pub(super) fn of_groups(groups: &ChannelGroups, dims: &[i64]) -> Self {
        let &ChannelGroups { axis, groups, channels } = groups;
        let mut split: SmallVec<[i64; 6]> = dims.into();
        split[axis] = channels;
        split.insert(axis, groups);
        Self::new(&split, |other| other != 0 && other != axis)
    }

    /// The axes of groups and of channels, as those along a row: the last of the places and of the row.
    pub(super) fn of_channels(&self) -> Self {
        let along = self.places.last().into_iter().chain(self.along.last()).copied().collect();
        Self { dims: self.dims.clone(), places: SmallVec::new(), along }
    }

    /// The same with the axes along a row in another order: one of them is the last.
    pub(super) fn with_last_along(mut self, last: usize) -> Self {
        self.along.retain(|axis| *axis != last);
        self.along.push(last);
        self
    }

    fn count(&self, axes: &[usize]) -> usize {
        axes.iter().map(|&axis| self.dims[axis] as usize).saturating_product()
    }

    pub(super) fn length(&self) -> usize {
        self.count(&self.along)
    }

    /// Elements of a part of a row that is combined to a number. The parts depend on shapes alone.
    pub(super) fn part(&self) -> usize {
        let length = self.length();
        let part = memory::row_part(length, self.count(&self.places).div_ceil(COLUMNS));
        if length <= part { length } else { part }
    }

    /// Elements of a part of a row of channels, if a tile has the rows of all groups.
    pub(super) fn part_of_channels(&self, channels: usize, groups: usize) -> usize {
        let (length, places) = (self.length(), self.count(&self.places));
        let of_all = memory::row_part(length.saturating_mul(groups), places / groups.max(1));
        (of_all / (channels * groups).max(1)).max(1).saturating_mul(channels)
    }

    /// Elements of a part of a row whose results depend on the whole row; `None` if rows stay whole.
    pub(super) fn part_of_results(&self) -> Option<usize> {
        let (length, places) = (self.length(), self.count(&self.places));
        memory::splits_rows(length, places).then(|| memory::row_part(length, places))
    }
}

/// The loops over places as programs have them: one for each axis, and apart from them the loop over the rows
/// of a tile.
pub(super) fn given_loops(
    axes: &RowAxes,
    operands: &[&AxisOperand],
    rows: Option<usize>,
) -> (SmallVec<[Loop; 6]>, Option<Loop>) {
    let of_axis = |&axis: &usize| Loop {
        extent: axes.dims[axis] as usize,
        strides: operands.iter().map(|operand| operand.strides[axis]).collect(),
    };
    let others = axes.places.iter().enumerate().filter(|(place, _)| Some(*place) != rows);
    (others.map(|(_, axis)| of_axis(axis)).collect(), rows.map(|place| of_axis(&axes.places[place])))
}

/// The loops over places, with the stride of each operand: ordered by the strides of the first operand, the
/// largest outermost, and merged if that keeps the strides of all operands.
pub(super) fn place_loops(axes: &RowAxes, operands: &[&AxisOperand]) -> SmallVec<[Loop; 6]> {
    let mut ordered: SmallVec<[Loop; 6]> = SmallVec::new();
    for &axis in axes.places.iter().filter(|&&axis| axes.dims[axis] != 1) {
        let strides: SmallVec<[isize; 4]> = operands.iter().map(|operand| operand.strides[axis]).collect();
        let place = ordered.partition_point(|other| other.strides[0] >= strides[0]);
        ordered.insert(place, Loop { extent: axes.dims[axis] as usize, strides });
    }
    let mut merged: SmallVec<[Loop; 6]> = SmallVec::new();
    for inner in ordered {
        let go_alike = |outer: &Loop| {
            let mut strides = outer.strides.iter().zip(&inner.strides);
            outer.extent.checked_mul(inner.extent).is_some()
                && strides.all(|(&outer, &stride)| stride.checked_mul(inner.extent as isize) == Some(outer))
        };
        match merged.last_mut() {
            Some(outer) if go_alike(outer) => *outer = Loop { extent: outer.extent * inner.extent, ..inner },
            _ => merged.push(inner),
        }
    }
    merged
}

/// The loops along the row of an operand, merged if that keeps its strides.
pub(super) fn along(axes: &RowAxes, operand: &AxisOperand) -> SmallVec<[(usize, isize); 2]> {
    let mut merged: SmallVec<[(usize, isize); 2]> = SmallVec::new();
    for &axis in axes.along.iter().filter(|&&axis| axes.dims[axis] != 1) {
        let (extent, stride) = (axes.dims[axis] as usize, operand.strides[axis]);
        match merged.last_mut() {
            Some((outer, outer_stride))
                if outer.checked_mul(extent).is_some()
                    && stride.checked_mul(extent as isize) == Some(*outer_stride) =>
            {
                (*outer, *outer_stride) = (*outer * extent, stride);
            }
            _ => merged.push((extent, stride)),
        }
    }
    merged
}
