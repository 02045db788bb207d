//! The axes of the result of a convolution, as its product goes through them.

use std::ops::Range;

use smallvec::SmallVec;

use super::window_sum::WindowSum;
use crate::compile::elementwise::{FoldedAxes, NestBox};
use crate::compile::phases::{PlacedTensor, PlanBuilder};
use crate::plan::ValueId;
use crate::types::shape::Dims;

/// The axes of the result: those of products of their own, then a group of channels, then rows and columns,
/// of which one goes through windows and the other through the channels of a group.
#[derive(Clone)]
pub(super) struct ConvolutionSpace {
    pub(super) folded: FoldedAxes,
    pub(super) extents: Dims,
    /// The first dim of the result that the axis of windows goes through.
    first: usize,
    /// True if windows are rows.
    pub(super) has_rows: bool,
    /// Channels of a group; all channels if each is convolved on its own.
    pub(super) in_group: i64,
}

impl ConvolutionSpace {
    /// The space of a sum whose axis of windows goes through as many dims as strides of all values allow, and
    /// the values that an epilogue writes.
    pub(super) fn find(
        plan: &PlanBuilder<'_>,
        sum: &WindowSum,
        index: usize,
        has_rows: bool,
    ) -> Option<(Self, Vec<ValueId>)> {
        let value = plan.group().anchors[index].outputs[0];
        let dims = &plan.group().values[value].dims;
        let last = sum.data.spatial + sum.dims.len() - 1;
        let with_roots = |first: usize| {
            let space = Self::new(dims, sum, first, has_rows)?;
            let roots = plan.epilogue_roots(index, &[value], Some(&space.folded));
            Some((space, roots))
        };
        let plain = with_roots(last)?;
        let batch = if sum.data.spatial == 1 { 0 } else { sum.data.spatial };
        // Elements apart from each other are no run of several dims.
        let mut wider = [batch, sum.data.spatial].into_iter().filter(|&first| first < last && sum.is_whole());
        wider.find_map(|first| with_roots(first).filter(|(_, roots)| *roots == plain.1)).or(Some(plain))
    }

    fn new(dims: &Dims, sum: &WindowSum, first: usize, has_rows: bool) -> Option<Self> {
        let end = sum.data.spatial + sum.dims.len();
        let is_last = sum.data.channels == end;
        let mut runs: SmallVec<[Range<usize>; 6]> = (0..first).map(|dim| dim..dim + 1).collect();
        runs.push(first..end);
        runs.extend((end..dims.len()).map(|dim| dim..dim + 1));
        let mut nest_box = NestBox::of_runs(dims, &runs);
        for (axis, of) in (sum.data.spatial..end).zip(&sum.dims).filter(|(_, of)| !of.is_whole()) {
            nest_box = nest_box.strided(axis, of.first, of.step, of.count);
        }
        let channels = if is_last { runs.len() - 1 } else { sum.data.channels };
        let groups = if sum.is_direct() { 1 } else { sum.groups };
        let in_group = sum.result_channels * sum.groups / groups;
        let nest_box = nest_box.split(channels, in_group)?;
        let windows = if is_last { channels - 1 } else { runs.len() };
        let [rows, columns] = if has_rows { [windows, channels + 1] } else { [channels + 1, windows] };
        let is_outer = |&axis: &usize| ![channels, rows, columns].contains(&axis);
        let outer = (0..=runs.len()).filter(is_outer);
        let order: SmallVec<[usize; 8]> = outer.chain([channels, rows, columns]).collect();
        let nest_box = nest_box.in_order(&order);
        let extents = nest_box.extents();
        let folded = FoldedAxes { dims: dims.clone(), nest_box };
        Some(Self { folded, extents, first, has_rows, in_group })
    }

    /// The axis of groups.
    pub(super) fn groups(&self) -> usize {
        self.extents.len() - 3
    }

    /// The axis of the channels of a group.
    pub(super) fn channels(&self) -> usize {
        self.extents.len() - if self.has_rows { 1 } else { 2 }
    }

    /// The axis of windows.
    pub(super) fn windows(&self) -> usize {
        self.extents.len() - if self.has_rows { 2 } else { 1 }
    }

    /// The axis of a dim of the result that the axis of windows does not go through, if it is none of
    /// channels.
    pub(super) fn outer_axis(&self, dim: usize, channels: usize) -> Option<usize> {
        let before = usize::from(dim > channels);
        (dim < self.first).then(|| dim - before)
    }

    /// A tensor with a number for each channel of the result, over the axes.
    pub(super) fn of_channels(&self, of: &PlacedTensor) -> PlacedTensor {
        let (mut dims, mut strides) =
            (Dims::from_elem(1, self.extents.len()), Dims::from_elem(0, self.extents.len()));
        let (group, channel) = (self.groups(), self.channels());
        (dims[group], dims[channel]) = (self.extents[group], self.extents[channel]);
        strides[channel] = of.strides[0];
        strides[group] = of.strides[0] * self.in_group;
        PlacedTensor { dims, strides, ..of.clone() }
    }
}
