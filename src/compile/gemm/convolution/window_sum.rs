//! Convolutions and their transposed forms as sums over the windows of a source: which elements and weights
//! make each element of a result.
//!
//! An element of a transposed convolution sees those windows whose distance from it is a multiple of the
//! stride. So elements whose places have one remainder by the stride are a sum of their own: of the same
//! weights, which are some of the taps, over neighbouring windows.

use smallvec::{SmallVec, smallvec};

use crate::graph::windows::{DataAxes, WeightsAxes, WindowDim, Windows};
use crate::kernels::gemm::depthwise::DepthwiseKernel;
use crate::kernels::gemm::planes::PlaneKernel;
use crate::types::shape::SaturatingProduct;

/// Most sums of one result, each of which is a phase of a plan.
const MAX_SUMS: usize = 4096;

/// Most channels of the source in a group of which planes are made, and if the result has few of them, which
/// leave panels of a product half empty (decision: planes).
const MAX_PLANE_SOURCES: i64 = 32;
const MAX_NARROW_RESULTS: i64 = 48;
const MAX_NARROW_SOURCES: i64 = 128;

/// The elements of a result that are sums of one form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WindowSum {
    pub(super) batch: i64,
    pub(super) groups: i64,
    /// The channels of a group: of the source, which are summed up, and of the result.
    pub(super) source_channels: i64,
    pub(super) result_channels: i64,
    pub(super) data: DataAxes,
    pub(super) weights: SplitAxes,
    pub(super) dims: SmallVec<[SumDim; 3]>,
    /// A kernel sums up groups of few channels side by side, with no product of matrices.
    pub(super) has_few_channels: bool,
}

/// The axes of weights whose channels of windows are divided into groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SplitAxes {
    /// The groups; the channels of windows of one group are the next axis.
    pub(super) groups: usize,
    /// The channels of the source, and those of the result.
    pub(super) source: usize,
    pub(super) result: usize,
    /// The first of the spatial axes.
    pub(super) spatial: usize,
}

/// A spatial dim of a sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SumDim {
    /// Elements of the source.
    pub(super) source: i64,
    /// The elements of the result: all of them, and of those that are summed up the first, the distance and
    /// the number.
    pub(super) result: i64,
    pub(super) first: i64,
    pub(super) step: i64,
    pub(super) count: i64,
    /// The elements of the kernel that take part: the first, the distance and the number.
    pub(super) first_tap: i64,
    pub(super) tap_step: i64,
    pub(super) taps: i64,
    /// The place in the source of the first tap for the first element, and the distances from element to
    /// element and from tap to tap.
    pub(super) start: i64,
    pub(super) stride: i64,
    pub(super) dilation: i64,
}

impl SumDim {
    fn of_windows(dim: &WindowDim) -> Self {
        let &WindowDim { image, windows, kernel, dilation, stride, pad_begin, .. } = dim;
        Self {
            source: image,
            result: windows,
            first: 0,
            step: 1,
            count: windows,
            first_tap: 0,
            tap_step: 1,
            taps: kernel,
            start: -pad_begin,
            stride,
            dilation,
        }
    }

    /// All elements of the image, without a tap.
    fn without_taps(dim: &WindowDim) -> Self {
        Self {
            source: dim.windows,
            result: dim.image,
            first: 0,
            step: 1,
            count: dim.image,
            first_tap: 0,
            tap_step: 1,
            taps: 0,
            start: 0,
            stride: 1,
            dilation: 1,
        }
    }

    /// The elements of the image that see windows, in parts of one remainder by the stride.
    fn of_image(dim: &WindowDim) -> SmallVec<[Self; 4]> {
        let &WindowDim { image, windows, kernel, dilation, stride, pad_begin, .. } = dim;
        let divisor = greatest_divisor(stride, dilation);
        let (tap_step, step_back) = (stride / divisor, dilation / divisor);
        // Each of the first taps meets elements of a remainder of its own; later ones repeat them.
        let mut parts: SmallVec<[Self; 4]> = (0..kernel.min(tap_step))
            .map(|tap| {
                let place = tap * dilation - pad_begin;
                let first = place.rem_euclid(stride);
                Self {
                    source: windows,
                    result: image,
                    first,
                    step: stride,
                    count: if image > first { (image - first - 1) / stride + 1 } else { 0 },
                    first_tap: tap,
                    tap_step,
                    taps: (kernel - tap - 1) / tap_step + 1,
                    start: (first - place) / stride,
                    stride: 1,
                    dilation: -step_back,
                }
            })
            .filter(|part| part.count > 0)
            .collect();
        parts.sort_unstable_by_key(|part| part.first);
        parts
    }

    /// The same sum without the first and the last taps that see no element of the source, whichever element
    /// is summed up: those beyond a small image, and of kernels whose elements lie far apart.
    fn of_seen_taps(mut self) -> Self {
        let last = self.start + (self.count - 1) * self.stride;
        let (before, behind) = match self.dilation > 0 {
            true => (-last - 1, self.source - self.start - 1),
            false => (self.start - self.source, last),
        };
        let taps_to = |distance: i64| (distance.div_euclid(self.dilation.abs()) + 1).clamp(0, self.taps);
        let first = taps_to(before);
        let end = taps_to(behind).max(first);
        self.start += first * self.dilation;
        self.first_tap += first * self.tap_step;
        self.taps = end - first;
        match self.taps {
            0 => Self { first_tap: 0, start: 0, stride: 1, dilation: 1, ..self },
            1 if self.count == 1 => Self { stride: 1, dilation: 1, ..self },
            1 => Self { dilation: 1, ..self },
            _ => self,
        }
    }

    /// True if all elements of the result are summed up.
    pub(super) fn is_whole(&self) -> bool {
        self.count == self.result
    }

    /// True if each element of the result sees the element of the source with the same number.
    fn is_of_elements(&self) -> bool {
        self.taps == 1 && self.stride == 1 && self.start == 0 && self.count <= self.source
    }
}

impl WindowSum {
    /// The sums of a convolution, whose result is a tensor of windows.
    pub(super) fn of_windows(of: &Windows, axes: WeightsAxes) -> Self {
        let dims = of.dims.iter().map(SumDim::of_windows).collect();
        Self::new(of, (axes.image, axes.windows), axes, dims)
    }

    /// The sums of a transposed convolution, whose result is an image. Later ones overwrite elements of the
    /// first one, if not all elements see windows. `None` if there are too many.
    pub(super) fn of_image(of: &Windows, axes: WeightsAxes) -> Option<Vec<Self>> {
        let new = |dims| Self::new(of, (axes.windows, axes.image), axes, dims);
        let without_taps = || new(of.dims.iter().map(SumDim::without_taps).collect());
        // A kernel without elements may have any size.
        if of.window_channels == 0 {
            return Some(vec![without_taps()]);
        }
        let of_dims: SmallVec<[SmallVec<[SumDim; 4]>; 3]> = of.dims.iter().map(SumDim::of_image).collect();
        let covers = |(parts, dim): (&SmallVec<[SumDim; 4]>, &WindowDim)| {
            parts.iter().map(|part| part.count).sum::<i64>() == dim.image
        };
        let count = of_dims.iter().map(|parts| parts.len()).saturating_product();
        if count > MAX_SUMS {
            return None;
        }
        let mut sums = Vec::new();
        if !of_dims.iter().zip(&of.dims).all(covers) {
            sums.push(without_taps());
        }
        let mut chosen: Vec<SmallVec<[SumDim; 3]>> = vec![smallvec![]];
        for parts in &of_dims {
            let with = |dims: &SmallVec<[SumDim; 3]>| {
                let dims = dims.clone();
                parts.iter().map(move |&part| dims.iter().copied().chain([part]).collect())
            };
            chosen = chosen.iter().flat_map(with).collect();
        }
        sums.extend(chosen.into_iter().map(new));
        Some(sums)
    }

    fn new(
        of: &Windows,
        (source, result): (usize, usize),
        axes: WeightsAxes,
        dims: SmallVec<[SumDim; 3]>,
    ) -> Self {
        let in_group = |axis: usize| match axis == axes.windows {
            true => of.window_channels / of.groups,
            false => of.image_channels / of.groups,
        };
        let split = |axis: usize| axis + usize::from(axis >= axes.windows);
        let dims = dims.into_iter().map(SumDim::of_seen_taps).collect();
        Self {
            batch: of.batch,
            groups: of.groups,
            source_channels: in_group(source),
            result_channels: in_group(result),
            data: of.data,
            weights: SplitAxes {
                groups: axes.windows,
                source: split(source),
                result: split(result),
                spatial: split(axes.spatial),
            },
            dims,
            has_few_channels: are_few_channels(of),
        }
    }

    /// True if each channel of the source gives one of the result.
    pub(super) fn is_depthwise(&self) -> bool {
        self.groups > 1 && self.source_channels == 1 && self.result_channels == 1
    }

    /// True if windows are elements of the source.
    pub(super) fn is_of_elements(&self) -> bool {
        self.dims.iter().all(SumDim::is_of_elements)
    }

    /// True if a kernel sums up channel by channel, or group by group.
    pub(super) fn is_direct(&self) -> bool {
        self.has_few_channels || self.is_depthwise()
    }

    /// True if kernels take channels one by one, or few channels, in planes of a source whose elements
    /// are neighbours along the last dim.
    pub(super) fn is_of_planes(&self) -> bool {
        let sizes = |dim: &SumDim| {
            let [taps, stride, dilation] = [dim.taps, dim.stride, dim.dilation.abs()].map(|of| of as usize);
            (taps, stride, dilation)
        };
        let has_few = match self.result_channels {
            ..=MAX_NARROW_RESULTS => self.source_channels <= MAX_NARROW_SOURCES,
            _ => self.source_channels <= MAX_PLANE_SOURCES,
        };
        let is_product = has_few && !self.is_of_elements() && !self.has_few_channels;
        (self.is_depthwise() || is_product) && PlaneKernel::takes(self.dims.iter().map(sizes))
    }

    /// The last spatial dim of the source and of the result.
    pub(super) fn last_dim(&self) -> usize {
        self.data.spatial + self.dims.len() - 1
    }

    /// Elements of the result along the last dim, and channels that each of them sees.
    pub(super) fn row_and_channels(&self) -> [usize; 2] {
        [self.dims.last().map_or(1, |dim| dim.count as usize), self.source_channels as usize]
    }

    /// True if the result is a tensor of windows, whose channels have weights of their own in each group.
    pub(super) fn gives_windows(&self) -> bool {
        self.weights.result == self.weights.groups + 1
    }

    /// True if all elements of the result are summed up.
    pub(super) fn is_whole(&self) -> bool {
        self.dims.iter().all(SumDim::is_whole)
    }

    /// Weights by which an element of the result is summed up.
    pub(super) fn depth(&self) -> i64 {
        self.dims.iter().fold(self.source_channels, |depth, dim| depth.saturating_mul(dim.taps))
    }
}

/// True if a kernel takes groups of as many channels side by side.
pub(super) fn are_few_channels(of: &Windows) -> bool {
    let [image, windows] =
        [of.image_channels, of.window_channels].map(|all| usize::try_from(all).unwrap_or(0));
    let in_group = usize::try_from(of.groups).map_or(0, |groups| image / groups.max(1));
    image == windows && DepthwiseKernel::has_groups(in_group, image)
}

fn greatest_divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { greatest_divisor(b, a % b) }
}
