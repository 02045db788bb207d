//! Kernels of functions of two elements, and tiles of short rows.

use crate::kernels::simd::BlockBuffer;
use crate::kernels::{Extent, InnerStride, Source, Target};
use crate::types::function::Params;

/// Computes a function of two elements over a tile. The inner stride of each source stands beside it.
///
/// # Safety
///
/// As for [`Kernel1`](super::Kernel1).
pub(super) type AnyInner2 = unsafe fn(
    extent: Extent,
    x: (Source, InnerStride),
    y: (Source, InnerStride),
    to: Target,
    params: &Params,
);

/// Computes a function of two elements over a tile, whose sources have certain inner strides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kernel2 {
    kernel: AnyInner2,
    x: InnerStride,
    y: InnerStride,
    /// Bytes of an element of the sources, and of the target.
    bytes: [u8; 2],
}

/// Most columns of a tile whose rows become longer ones, and fewest rows (decision: repeated-bias).
const SHORT_COLUMNS: usize = 32;
const SHORT_ROWS: usize = 16;

impl Kernel2 {
    pub(super) fn new(kernel: AnyInner2, [x, y]: [InnerStride; 2], bytes: [u8; 2]) -> Self {
        Self { kernel, x, y, bytes }
    }

    /// Computes a tile.
    ///
    /// # Safety
    ///
    /// As for [`Kernel1`](super::Kernel1).
    pub(crate) unsafe fn run(self, extent: Extent, x: Source, y: Source, to: Target, params: &Params) {
        let is_short = (1..=SHORT_COLUMNS).contains(&extent.columns) && extent.rows >= SHORT_ROWS;
        // SAFETY: as the caller promises.
        unsafe {
            if !is_short || !self.run_repeated(extent, [x, y], to, params) {
                (self.kernel)(extent, (x, self.x), (y, self.y), to, params)
            }
        }
    }

    /// Computes a tile of short rows that touch, if one source has the same row for all of them: many rows
    /// at once, beside as many copies of that row. False if there is no such tile.
    ///
    /// # Safety
    ///
    /// As for [`Kernel1`](super::Kernel1).
    #[inline(never)]
    unsafe fn run_repeated(self, extent: Extent, from: [Source; 2], to: Target, params: &Params) -> bool {
        let [row, row_of_to] = self.bytes.map(|bytes| extent.columns * usize::from(bytes));
        let is_contiguous = self.x == InnerStride::Contiguous && self.y == InnerStride::Contiguous;
        let strides = from.map(|source| source.row_stride);
        let same = usize::from(strides[1] == 0);
        if !is_contiguous
            || strides[same] != 0
            || strides[1 - same] != row as isize
            || to.row_stride != row_of_to as isize
        {
            return false;
        }
        let mut copies = BlockBuffer::new();
        let most = BlockBuffer::BYTES / row;
        // SAFETY: the caller promises that a row can be read; so many rows have room.
        unsafe {
            let at = copies.at_mut();
            at.copy_from_nonoverlapping(from[same].at, row);
            let mut done = 1;
            while done < most {
                let more = done.min(most - done);
                at.add(done * row).copy_from_nonoverlapping(at, more * row);
                done += more;
            }
        }
        let mut first = 0;
        while first < extent.rows {
            let count = most.min(extent.rows - first);
            let mut part = from;
            part[1 - same].at = part[1 - same].at.wrapping_add(first * row);
            part[same].at = copies.at();
            let to = Target { at: to.at.wrapping_add(first * row_of_to), ..to };
            let extent = Extent { rows: 1, columns: count * extent.columns };
            // SAFETY: the rows touch, so that their elements are one row, and as many are in the copies.
            unsafe { (self.kernel)(extent, (part[0], self.x), (part[1], self.y), to, params) };
            first += count;
        }
        true
    }
}
