//! The planes of a part of an image: how they lie in scratch, and how they get there.

use std::ops::Range;

use crate::kernels::gemm::product::Matrix;
use crate::kernels::gemm::windows::{ImageWindows, MAX_WINDOW_DIMS, WindowAxis};
use crate::kernels::vector::{LANES, Lanes, RowType, load_at, read_one};
use crate::kernels::{Extent, Target};

/// Rows of windows whose sums are in registers at once, so that an element of the image is read for all of
/// them, of an image and of planes; and most taps of their kernels along a dim.
pub(super) const ROWS_OF_IMAGE: usize = 7;
pub(super) const ROWS_OF_PLANES: usize = 4;
const MAX_ROW_TAPS: usize = 7;

/// A part of a convolution: some windows of some channels of the result.
#[derive(Clone, Copy)]
pub(crate) struct PlaneTile<'a> {
    pub(crate) windows: &'a ImageWindows,
    /// The first channel of the image that the first channel of the result sees.
    pub(crate) image: *const u8,
    /// A row of f32 for each channel of the result, with a column for each channel and tap.
    pub(crate) weights: Matrix,
    /// A number for each channel of the result, which is added to its sums; null if there is none.
    pub(crate) bias: *const f32,
    /// The first window.
    pub(crate) first: usize,
    /// Channels of the result, and windows.
    pub(crate) extent: Extent,
    pub(crate) to: Target,
    /// Room for [`PlaneKernel::scratch`](super::PlaneKernel::scratch) numbers.
    pub(crate) scratch: *mut f32,
    /// Each channel of the result sees one of its own, not all of the windows' channels.
    pub(crate) is_depthwise: bool,
}

/// The kernels that have loops for several rows of windows, with the distance from one to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowLoop {
    Three,
    ThreeApart,
    Five,
    FiveApart,
    Seven,
}

impl RowLoop {
    pub(super) fn of(windows: &ImageWindows) -> Option<Self> {
        let [.., down, along] = &windows.axes;
        if down.dilation != 1 || along.taps > MAX_ROW_TAPS {
            return None;
        }
        match (down.taps, down.stride) {
            (3, 1) => Some(Self::Three),
            (3, 2) => Some(Self::ThreeApart),
            (5, 1) => Some(Self::Five),
            (5, 2) => Some(Self::FiveApart),
            (7, 1) => Some(Self::Seven),
            _ => None,
        }
    }

    /// True if loops read windows where the image is: elements that lie two apart are loaded in pairs.
    pub(super) fn is_in_place(windows: &ImageWindows) -> bool {
        let [.., down, along] = &windows.axes;
        let has_pairs = along.stride == 2 && down.stride == 2 && along.dilation == 1 && along.taps > 1;
        along.stride == 1 || has_pairs
    }
}

/// One of the last two dims, as planes have it.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlaneAxis {
    /// Planes along the dim.
    pub(super) planes: usize,
    /// Elements of a plane.
    pub(super) elements: usize,
    /// Windows.
    pub(super) windows: usize,
}

impl PlaneAxis {
    fn new(axis: &WindowAxis, windows: usize) -> Self {
        let reach = axis.taps.saturating_sub(1) * axis.dilation.unsigned_abs();
        let stride = axis.stride.max(1);
        Self { planes: stride.min(reach + 1), elements: windows + reach / stride, windows }
    }
}

/// The planes of channels in scratch, one behind the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Planes {
    /// Channels whose planes are there at once.
    pub(super) channels: usize,
    pub(super) down: PlaneAxis,
    pub(super) along: PlaneAxis,
}

impl Planes {
    /// Those that some rows of windows see. Loops over several rows read more rows than there may be.
    pub(super) fn new(windows: &ImageWindows, rows: usize, columns: usize, is_depthwise: bool) -> Self {
        let [.., down, along] = &windows.axes;
        let has_loop = is_depthwise && RowLoop::of(windows).is_some();
        let rows = if has_loop { rows.max(ROWS_OF_PLANES) } else { rows };
        Self {
            channels: if is_depthwise { 1 } else { windows.channels },
            down: PlaneAxis::new(down, rows),
            along: PlaneAxis::new(along, columns),
        }
    }

    /// Numbers of a plane, with a vector behind the last row, which does not overwrite the next plane.
    pub(super) fn plane(&self) -> usize {
        self.down.elements.saturating_mul(self.along.elements).saturating_add(LANES)
    }

    /// Numbers of the planes of a channel.
    pub(super) fn channel(&self) -> usize {
        self.plane().saturating_mul(self.down.planes * self.along.planes)
    }

    /// Numbers of all planes, with vectors that are read and written behind them.
    pub(super) fn numbers(&self) -> usize {
        self.channel().saturating_mul(self.channels).saturating_add(2 * LANES)
    }

    /// Numbers of a row of zeros beside an image that is read in place, in whole vectors.
    pub(super) fn zeros(&self) -> usize {
        self.along.planes.saturating_mul(self.along.elements).saturating_add(LANES)
    }

    /// Numbers from the element that a window sees first to that of a tap.
    pub(super) fn offset(&self, windows: &ImageWindows, tap: &[usize; MAX_WINDOW_DIMS]) -> usize {
        let [.., down, along] = &windows.axes;
        let [.., of_down, of_along] = *tap;
        let (row, column) = (place_of_tap(down, of_down), place_of_tap(along, of_along));
        let plane = row % down.stride * self.along.planes + column % along.stride;
        plane * self.plane() + row / down.stride * self.along.elements + column / along.stride
    }
}

/// Elements from the first one that a window sees along a dim to that of a tap.
fn place_of_tap(axis: &WindowAxis, tap: usize) -> usize {
    let tap = if axis.dilation < 0 { axis.taps - 1 - tap } else { tap };
    tap * axis.dilation.unsigned_abs()
}

/// The first place that a window sees along a dim.
pub(super) fn first_place(axis: &WindowAxis, window: usize) -> isize {
    let before = axis.dilation.min(0) * axis.taps.saturating_sub(1) as isize;
    axis.start + (window * axis.stride) as isize + before
}

/// Windows of a tile that are whole rows, or a part of one.
pub(super) struct PlanePart<'a> {
    pub(super) tile: &'a PlaneTile<'a>,
    pub(super) image: RowType,
    pub(super) planes: Planes,
    /// The first window as a column of the tile, and rows of windows.
    pub(super) column: usize,
    pub(super) rows: usize,
    /// The first place along the last two dims that a window sees.
    pub(super) place: [isize; 2],
    /// Bytes to the elements along all other dims, unless they lie beyond the image.
    pub(super) outer: Option<isize>,
}

/// Writes the elements of a channel to planes that are zeros elsewhere. Vectors are written beyond the end of
/// a row, where what follows overwrites them, or zeros are.
///
/// # Safety
///
/// As [`PlaneKernel::run`](super::PlaneKernel::run); there is room for the planes.
#[inline(always)]
pub(super) unsafe fn write_planes<I: Lanes>(
    part: &PlanePart<'_>,
    (channel, image): (*const u8, RowType),
    to: *mut f32,
) {
    let &PlanePart { tile, planes, place: [top, left], outer, .. } = part;
    let Some(outer) = outer else { return };
    let [.., down, along] = &tile.windows.axes;
    let row_stride = planes.along.elements;
    // A row that is read once gives rows of two planes.
    let is_pair = along.stride == 2 && planes.along.planes == 2 && image == RowType::F32;
    let pairs = along.inside(left, 1, 0..2 * row_stride);
    for plane in (0..planes.down.planes * planes.along.planes).step_by(1 + usize::from(is_pair)) {
        let top = top + (plane / planes.along.planes) as isize;
        let left = left + (plane % planes.along.planes) as isize;
        let rows = down.inside(top, down.stride as isize, 0..planes.down.elements);
        let columns = match is_pair {
            true => pairs.start / 2..pairs.end.div_ceil(2),
            false => along.inside(left, along.stride as isize, 0..row_stride),
        };
        let row = top + (rows.start * down.stride) as isize;
        let column = left + (columns.start * along.stride) as isize;
        let mut from = channel.wrapping_offset(outer + row * down.step + column * along.step);
        let mut to = to.wrapping_add(plane * planes.plane() + rows.start * row_stride + columns.start);
        for _ in rows {
            // SAFETY: as the caller promises; elements inside lie in the image.
            unsafe {
                match along.stride {
                    1 => write_neighbours::<I>(from, image, columns.len(), to),
                    2 if is_pair => {
                        let first = pairs.start % 2;
                        let inside = first..pairs.len() + first;
                        write_pairs::<I>(from.cast(), inside, to, to.wrapping_add(planes.plane()));
                    }
                    // A loop for a stride that is known goes by vectors.
                    2 => write_apart::<I>(from, image, (2, columns.len()), to),
                    stride => write_apart::<I>(from, image, (stride, columns.len()), to),
                }
            }
            from = from.wrapping_offset(down.stride as isize * down.step);
            to = to.wrapping_add(row_stride);
        }
    }
}

/// Writes some zeros, in whole vectors.
///
/// # Safety
///
/// The vectors can be written, and the machine runs the level.
#[inline(always)]
pub(super) unsafe fn write_zeros<I: Lanes>(to: *mut f32, count: usize) {
    let mut done = 0;
    while done < count {
        // SAFETY: as the caller promises.
        unsafe { I::store(to.add(done), I::splat(0.0)) };
        done += LANES;
    }
}

/// Writes elements that are neighbours, in whole vectors.
///
/// # Safety
///
/// The elements can be read, the vectors can be written, and the machine runs the level.
#[inline(always)]
pub(super) unsafe fn write_neighbours<I: Lanes>(from: *const u8, image: RowType, count: usize, to: *mut f32) {
    let mut done = 0;
    // SAFETY: as the caller promises.
    unsafe {
        while done + LANES <= count {
            I::store(to.add(done), load_at::<I>(from, image, done));
            done += LANES;
        }
        if done < count {
            let rest = from.wrapping_add(done * image.bytes());
            I::store(to.add(done), I::load_part(rest, image, count - done, 0.0));
        }
    }
}

/// Writes numbers at even places to a row and those at odd ones to another, in whole vectors. Those that are
/// not inside are 0, at most one of them at the start.
///
/// # Safety
///
/// The numbers inside can be read, the vectors can be written, and the machine runs the level.
#[inline(always)]
unsafe fn write_pairs<I: Lanes>(from: *const f32, inside: Range<usize>, even: *mut f32, odd: *mut f32) {
    let Range { mut start, end } = inside;
    let mut done = 0;
    // SAFETY: as the caller promises.
    unsafe {
        while done < end {
            let from = from.wrapping_add(done);
            let parts = match start == 0 && end - done >= 2 * LANES {
                true => I::load_apart(from, 0..2 * LANES),
                false => I::load_apart(from, start..(end - done).min(2 * LANES)),
            };
            I::store(even.wrapping_add(done / 2), parts[0]);
            I::store(odd.wrapping_add(done / 2), parts[1]);
            (start, done) = (0, done + 2 * LANES);
        }
    }
}

/// Writes elements at equal distances.
///
/// # Safety
///
/// The elements can be read, as many numbers can be written, and the machine runs the level.
#[inline(always)]
unsafe fn write_apart<I: Lanes>(
    from: *const u8,
    image: RowType,
    (stride, count): (usize, usize),
    to: *mut f32,
) {
    for i in 0..count {
        // SAFETY: as the caller promises.
        unsafe { to.add(i).write(read_one::<I>(from, image, i * stride)) };
    }
}

/// The bias of a channel in all lanes: −0, which leaves each number as it is, if there is none.
///
/// # Safety
///
/// The bias is null or can be read, and the machine runs the level.
#[inline(always)]
pub(super) unsafe fn bias_vector<I: Lanes>(bias: *const f32) -> I::F {
    // SAFETY: as the caller promises.
    unsafe { I::splat(if bias.is_null() { -0.0 } else { bias.read_unaligned() }) }
}

/// Sums with a bias.
///
/// # Safety
///
/// The machine runs the level.
#[inline(always)]
pub(super) unsafe fn with_bias<I: Lanes>(sums: I::F, bias: I::F) -> I::F {
    // SAFETY: as the caller promises.
    unsafe { I::canonical_vector(I::add(sums, bias)) }
}

/// The bias of a channel, by its distance from one whose bias is known.
#[inline(always)]
pub(super) fn bias_at(bias: *const f32, channel: usize) -> *const f32 {
    if bias.is_null() { bias } else { bias.wrapping_add(channel) }
}

/// Stores the first numbers of a vector, of which there are some.
///
/// # Safety
///
/// They can be written, and the machine runs the level.
#[inline(always)]
pub(super) unsafe fn store_lanes<I: Lanes>(to: *mut f32, lanes: usize, x: I::F) {
    // SAFETY: as the caller promises.
    unsafe { if lanes < LANES { I::store_first(to, lanes, x) } else { I::store(to, x) } }
}
