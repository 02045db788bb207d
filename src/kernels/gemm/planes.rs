//! Convolutions of images whose elements are neighbours along the last dim: of one channel at a time, or of
//! few channels, of which every element of the result sees all.
//!
//! The part of a channel that some rows of windows see is written to scratch as planes, with zeros beyond the
//! image. A plane has the elements whose places have one remainder by the strides, so that each tap is one
//! offset for all windows, and windows that follow each other are neighbours in a plane.
//!
//! An element sums up channel by channel, and in a channel tap by tap; loops of their own for several rows of
//! windows go through the taps along the last dim first.

mod in_place;
mod part;
mod rows;

use self::in_place::sum_channels_in_place;
pub(crate) use self::part::PlaneTile;
use self::part::{
    PlaneAxis, PlanePart, Planes, RowLoop, bias_at, bias_vector, first_place, store_lanes, with_bias,
    write_planes, write_zeros,
};
use self::rows::{RowsOfPlane, sum_rows};
use super::product::Matrix;
use super::windows::{ImageWindows, MAX_WINDOW_DIMS};
use crate::kernels::Target;
use crate::kernels::isa::{at_level, shells};
use crate::kernels::vector::{LANES, Lanes, RowType};
use crate::types::dtype::DataType;
use crate::types::kind::Level;

/// Most taps of a window, whose offsets are kept.
const MAX_TAPS: usize = 256;

/// Most elements of a plane between the first and the last tap of a window along a row, and most rows: what
/// tiles copy of an image grows with them.
const MAX_REACH: [usize; 2] = [16, 512];

/// Most planes of a channel.
const MAX_PLANES: usize = 16;

/// The kernels of a level for images of a type. Weights and sums are f32.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlaneKernel {
    level: Level,
    image: RowType,
}

impl PlaneKernel {
    /// `None` if no kernel reads images of the type.
    pub(crate) fn new(level: Level, image: DataType) -> Option<Self> {
        Some(Self { level, image: RowType::of(image)? })
    }

    /// True if windows of so many taps, with these strides and distances along each dim, are few planes of
    /// little more than the elements of the image. Elements of the last dim are neighbours.
    pub(crate) fn takes(dims: impl DoubleEndedIterator<Item = (usize, usize, usize)>) -> bool {
        let (mut planes, mut all_taps, mut is_small) = (1usize, 1usize, true);
        for (index, (taps, stride, dilation)) in dims.rev().enumerate() {
            let reach = taps.saturating_sub(1).saturating_mul(dilation);
            is_small &= match index {
                0 => reach / stride <= MAX_REACH[1],
                1 => reach / stride <= MAX_REACH[0],
                _ => taps == 1,
            };
            planes = planes.saturating_mul(stride.min(reach + 1));
            all_taps = all_taps.saturating_mul(taps);
        }
        is_small && planes <= MAX_PLANES && all_taps <= MAX_TAPS
    }

    /// Numbers of scratch for any part of so many windows.
    pub(crate) fn scratch(windows: &ImageWindows, count: usize, is_depthwise: bool) -> usize {
        let of_row = windows.axes[MAX_WINDOW_DIMS - 1].windows;
        let rows = (count / of_row.max(1)).max(1);
        let planes = Planes::new(windows, rows, count.min(of_row), is_depthwise);
        planes.numbers().saturating_add(planes.zeros())
    }

    /// Computes a tile whose rows are channels and whose columns are windows.
    ///
    /// # Safety
    ///
    /// The image and the weights can be read, the tile and the scratch can be written, and overlap nothing
    /// else; the machine runs the level. [`takes`](Self::takes) is true of the windows.
    pub(crate) unsafe fn run(self, tile: &PlaneTile<'_>) {
        // SAFETY: as the caller promises.
        unsafe { at_level!(self.level, planes(tile, self.image)) }
    }
}

shells! {
    I:
    fn planes[](tile: &PlaneTile<'_>, image: RowType) {
        sum_tile::<I>(tile, image)
    }
}

/// # Safety
///
/// As [`PlaneKernel::run`].
#[inline(always)]
unsafe fn sum_tile<I: Lanes>(tile: &PlaneTile<'_>, image: RowType) {
    let &PlaneTile { windows, first, extent, is_depthwise, .. } = tile;
    let [.., down, along] = &windows.axes;
    let mut column = 0;
    while column < extent.columns {
        let window = windows.indices(first + column, |axis| axis.windows);
        let [.., of_down, of_along] = window;
        let left = extent.columns - column;
        let (rows, columns) = match of_along == 0 && left >= along.windows {
            true => ((left / along.windows).min(down.windows - of_down), along.windows),
            false => (1, left.min(along.windows - of_along)),
        };
        let part = PlanePart {
            tile,
            image,
            planes: Planes::new(windows, rows, columns, is_depthwise),
            column,
            rows,
            place: [first_place(down, of_down), first_place(along, of_along)],
            outer: windows.outermost_offset(&window),
        };
        // SAFETY: as the caller promises; the windows are some of the tile.
        unsafe { sum_part::<I>(&part) };
        column += rows * columns;
    }
}

/// A sum of products: of numbers at offsets in planes and of weights.
struct PlaneProduct<'a> {
    part: &'a PlanePart<'a>,
    /// Numbers to the element of each tap.
    offsets: &'a [usize],
    /// The weights of the first row, bytes from row to row, from channel to channel and from tap to tap.
    weights: *const u8,
    row_stride: isize,
    channel_stride: isize,
    tap_stride: isize,
    /// The bias of the first row; null if there is none.
    bias: *const f32,
    to: Target,
}

impl<'a> PlaneProduct<'a> {
    /// The product of a part, given room for offsets.
    fn new(part: &'a PlanePart<'a>, offsets: &'a mut [usize; MAX_TAPS]) -> Self {
        let PlaneTile { windows, weights, bias, to, .. } = *part.tile;
        let taps = windows.taps();
        let mut tap = [0; MAX_WINDOW_DIMS];
        for offset in &mut offsets[..taps] {
            *offset = part.planes.offset(windows, &tap);
            windows.go_on(&mut tap, MAX_WINDOW_DIMS);
        }
        let (channel_stride, tap_stride) = match windows.channels_inside {
            true => (1, windows.channels),
            false => (taps, 1),
        };
        Self {
            part,
            offsets: &offsets[..taps],
            weights: weights.at,
            row_stride: weights.row_stride,
            channel_stride: weights.col_stride * channel_stride as isize,
            tap_stride: weights.col_stride * tap_stride as isize,
            bias,
            to: Target { at: to.row::<f32>(0).wrapping_add(part.column).cast(), ..to },
        }
    }
}

/// The sums of all channels of the result: of those one by one that see a channel of their own, or else of
/// all at once.
///
/// # Safety
///
/// As [`PlaneKernel::run`].
#[inline(always)]
unsafe fn sum_part<I: Lanes>(part: &PlanePart<'_>) {
    let &PlanePart { tile, planes, .. } = part;
    let PlaneTile { windows, extent, is_depthwise, scratch, .. } = *tile;
    let (units, rows) = if is_depthwise { (extent.rows, 1) } else { (1, extent.rows) };
    let row_loop = RowLoop::of(windows).filter(|_| is_depthwise && I::LEVEL != Level::Portable);
    if I::REGISTERS == 1
        && let Some(row_loop) = row_loop.filter(|_| RowLoop::is_in_place(windows))
    {
        // SAFETY: as the caller promises.
        return unsafe { sum_channels_in_place::<I>(part, row_loop) };
    }
    let mut offsets = [0; MAX_TAPS];
    let mut product = PlaneProduct::new(part, &mut offsets);
    let mut image = tile.image;
    // SAFETY: as the caller promises.
    unsafe {
        write_zeros::<I>(scratch, planes.numbers() - LANES);
        for _ in 0..units {
            for channel in 0..planes.channels {
                let to = scratch.add(channel * planes.channel());
                match part.image {
                    // Loops for a type that is known have no branches.
                    RowType::F32 => write_planes::<I>(part, (image, RowType::F32), to),
                    other => write_planes::<I>(part, (image, other), to),
                }
                image = image.wrapping_offset(windows.channel_step);
            }
            match row_loop {
                Some(row_loop) if I::REGISTERS > 1 => {
                    // The first taps are those along the last dim.
                    let columns = &product.offsets[..windows.axes[MAX_WINDOW_DIMS - 1].taps];
                    let weights = Matrix {
                        at: product.weights,
                        row_stride: product.tap_stride * columns.len() as isize,
                        col_stride: product.tap_stride,
                    };
                    let (bias, to) = (product.bias, product.to.row(0));
                    sum_rows::<I>(row_loop, &RowsOfPlane { part, columns, weights, bias, to });
                }
                _ => sum_vectors::<I>(&product, rows),
            }
            product.weights = product.weights.wrapping_offset(product.row_stride);
            product.bias = bias_at(product.bias, 1);
            product.to = product.to.at_row(1);
        }
    }
}

/// A vector of windows: some of a row, and some of the next row behind those that are no windows.
#[derive(Clone, Copy)]
struct WindowVector {
    /// Numbers from the first element of planes to that which the first window sees first.
    from: usize,
    /// The first window, and windows of its row.
    column: usize,
    lanes: usize,
    /// The lanes of the next row, and the window of the first lane if it were one of that row.
    next: [usize; 2],
    next_column: usize,
}

impl WindowVector {
    const NONE: Self = Self { from: 0, column: 0, lanes: 0, next: [0; 2], next_column: 0 };

    /// The vector at a place of a row of a part, which is `row_places` places wide.
    #[inline(always)]
    fn new(part: &PlanePart<'_>, row_places: usize, (row, place): (usize, usize)) -> Self {
        let PlaneAxis { elements, windows, .. } = part.planes.along;
        let (behind, column) = (row_places - place, row * windows + place);
        let has_next = behind < LANES && row + 1 < part.rows;
        Self {
            from: row * elements + place,
            column,
            lanes: windows.saturating_sub(place).min(LANES),
            next: if has_next { [behind, LANES.min(behind + windows)] } else { [0; 2] },
            next_column: ((row + 1) * windows).wrapping_sub(behind),
        }
    }
}

/// Sums up all windows of some rows of the result.
///
/// # Safety
///
/// As [`PlaneKernel::run`]; the planes are written.
#[inline(always)]
unsafe fn sum_vectors<I: Lanes>(product: &PlaneProduct<'_>, rows: usize) {
    let &PlanePart { planes: Planes { along, .. }, rows: of_windows, .. } = product.part;
    let whole = along.windows.next_multiple_of(LANES);
    // Rows of planes follow each other, so vectors go on in the next row, by a store that masks.
    let goes_on = I::REGISTERS == 1 && along.elements + 1 >= LANES;
    let row_places = if goes_on { whole.min(along.elements) } else { whole };
    let vectors = ((of_windows - 1) * row_places + along.windows).div_ceil(LANES);
    let (mut next, mut row, mut place) = (0, 0, 0);
    // SAFETY: as the caller promises.
    unsafe {
        macro_rules! blocks {
            ($n:literal) => {
                while vectors - next >= $n {
                    let mut block = [WindowVector::NONE; $n];
                    for vector in &mut block {
                        *vector = WindowVector::new(product.part, row_places, (row, place));
                        place += LANES;
                        while place >= row_places {
                            (row, place) = (row + 1, place - row_places);
                        }
                    }
                    sum_block_of_rows::<I, $n>(product, &block, rows);
                    next += $n;
                }
            };
        }
        // The more rows, the fewer vectors have registers.
        if has_registers::<I>(6, 4) || has_registers::<I>(1, 4) && rows == 1 {
            blocks!(4);
            blocks!(2);
        }
        blocks!(1);
    }
}

/// True if the sums of so many rows and vectors are in registers, beside what is multiplied.
const fn has_registers<I: Lanes>(rows: usize, vectors: usize) -> bool {
    let most = match I::LEVEL {
        Level::Portable => 8,
        Level::Avx2 => 12,
        _ => 24,
    };
    rows * vectors * I::REGISTERS <= most
}

/// Sums up some vectors for all rows.
///
/// # Safety
///
/// As [`sum_vectors`].
#[inline(always)]
unsafe fn sum_block_of_rows<I: Lanes, const V: usize>(
    product: &PlaneProduct<'_>,
    vectors: &[WindowVector; V],
    rows: usize,
) {
    let mut row = 0;
    while row < rows {
        // SAFETY: as the caller promises.
        unsafe {
            row += match rows - row {
                6.. if has_registers::<I>(6, V) => sum_block::<I, 6, V>(product, vectors, row),
                4.. if has_registers::<I>(4, V) => sum_block::<I, 4, V>(product, vectors, row),
                2.. if has_registers::<I>(2, V) => sum_block::<I, 2, V>(product, vectors, row),
                _ => sum_block::<I, 1, V>(product, vectors, row),
            }
        }
    }
}

/// Sums up some vectors for `R` rows from one on. Returns `R`.
///
/// # Safety
///
/// As [`sum_vectors`].
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "the loops run over rows and vectors, not over an array")]
unsafe fn sum_block<I: Lanes, const R: usize, const V: usize>(
    product: &PlaneProduct<'_>,
    vectors: &[WindowVector; V],
    row: usize,
) -> usize {
    let &PlaneProduct { part, offsets, row_stride, channel_stride, tap_stride, .. } = product;
    let mut weights = product.weights.wrapping_offset(row_stride * row as isize);
    let mut planes = part.tile.scratch.cast_const();
    // SAFETY: as the caller promises; the weights have all channels and taps.
    unsafe {
        let mut sums = [[I::splat(0.0); V]; R];
        for _ in 0..part.planes.channels {
            let mut weight = weights;
            for &offset in offsets {
                let from = planes.wrapping_add(offset);
                let mut x = [I::splat(0.0); V];
                for v in 0..V {
                    x[v] = I::load(from.wrapping_add(vectors[v].from));
                }
                for r in 0..R {
                    let of_row = weight.wrapping_offset(row_stride * r as isize);
                    let of_row = I::splat(of_row.cast::<f32>().read_unaligned());
                    for v in 0..V {
                        sums[r][v] = I::fma(x[v], of_row, sums[r][v]);
                    }
                }
                weight = weight.wrapping_offset(tap_stride);
            }
            planes = planes.wrapping_add(part.planes.channel());
            weights = weights.wrapping_offset(channel_stride);
        }
        let mut is_whole = true;
        for v in 0..V {
            is_whole &= vectors[v].lanes == LANES;
        }
        for r in 0..R {
            let to = product.to.row::<f32>(row + r);
            let bias = bias_vector::<I>(bias_at(product.bias, row + r));
            for v in 0..V {
                let WindowVector { column, lanes, next, next_column, .. } = vectors[v];
                let sums = with_bias::<I>(sums[r][v], bias);
                if is_whole || I::REGISTERS > 1 {
                    store_lanes::<I>(to.wrapping_add(column), lanes, sums);
                } else {
                    I::store_inside(to.wrapping_add(column), 0..lanes, sums);
                    I::store_inside(to.wrapping_add(next_column), next[0]..next[1], sums);
                }
            }
        }
    }
    R
}
