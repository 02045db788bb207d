//! Tiles of scores in the scratch of a thread, with a row for each key and a column for each query.
#![allow(unsafe_code, reason = "tiles are scratch, and tokens raw memory that was checked before")]

use crate::kernels::attention::QUERIES;
use crate::kernels::gemm::Matrix;
use crate::kernels::gemm::pack::PackPanel;
use crate::kernels::pointwise::Kernel1;
use crate::kernels::prefetch::PrefetchQueue;
use crate::kernels::{Extent, Source, Target};

/// The place of a tile, and the bytes of an element.
pub(super) type TypedPlace = (*mut u8, usize);

/// Converts the elements of a tile.
///
/// # Safety
///
/// As [`convert`].
pub(super) unsafe fn convert_tile(kernel: Kernel1, extent: Extent, from: TypedPlace, to: TypedPlace) {
    let row = |width: usize| (QUERIES * width) as isize;
    let from = Source { at: from.0, row_stride: row(from.1) };
    // SAFETY: as the caller promises.
    unsafe { convert(kernel, extent, from, Target { at: to.0, row_stride: row(to.1) }) };
}

/// Converts the elements of rows.
///
/// # Safety
///
/// The rows can be read and written, and do not overlap; the machine runs the level of the kernel.
pub(super) unsafe fn convert(kernel: Kernel1, extent: Extent, from: Source, to: Target) {
    // SAFETY: as the caller promises.
    unsafe { kernel(extent, from, to, &[0.0; 2], &mut PrefetchQueue::default()) };
}

/// Packs the columns of a matrix as panels, one behind the other.
///
/// # Safety
///
/// The matrix can be read; `to` has room for the panels, and `scratch` for the kernel. The machine runs the
/// level of the kernel.
pub(super) unsafe fn pack_panels(
    pack: &PackPanel,
    Extent { rows, columns }: Extent,
    from: Matrix,
    to: *mut u8,
    scratch: *mut u8,
) {
    for (panel, first) in (0..columns).step_by(pack.columns()).enumerate() {
        let from = Matrix { at: from.at.wrapping_offset(from.col_stride * first as isize), ..from };
        let to = to.wrapping_add(panel * pack.panel_bytes(rows));
        // SAFETY: as the caller promises.
        unsafe { pack.run(rows, pack.columns().min(columns - first), from, to, scratch) };
    }
}
