//! Between elements at any stride and a dense tile.

use super::{ByWidth, Extent, Lane, Level, Source, Target, Width, kernel};

/// Reads elements that lie `step` bytes apart along a row, and writes them densely.
///
/// # Safety
///
/// Every element of the tile can be read from the source and written to the target, the machine runs the kernel's
/// level, and source and target do not overlap.
pub(crate) type Gather = unsafe fn(extent: Extent, from: Source, step: isize, to: Target);

/// Reads elements densely, and writes them `step` bytes apart along a row.
///
/// # Safety
///
/// As for [`Gather`].
pub(crate) type Scatter = unsafe fn(extent: Extent, from: Source, to: Target, step: isize);

/// The kernel that makes a strided operand dense.
pub(crate) fn gather(level: Level, width: Width) -> Gather {
    GATHER.get(level, width)
}

/// The kernel that spreads a dense operand.
pub(crate) fn scatter(level: Level, width: Width) -> Scatter {
    SCATTER.get(level, width)
}

static GATHER: ByWidth<Gather> = kernel!(
    (extent: Extent, from: Source, step: isize, to: Target),
    bodies::gather[],
    bodies::gather[]
);

static SCATTER: ByWidth<Scatter> = kernel!(
    (extent: Extent, from: Source, to: Target, step: isize),
    bodies::scatter[],
    bodies::scatter[]
);

mod bodies {
    use super::{Extent, Lane, Source, Target};

    /// # Safety
    ///
    /// As [`Gather`](super::Gather).
    #[inline(always)]
    pub(super) unsafe fn gather<U: Lane>(extent: Extent, from: Source, step: isize, to: Target) {
        for row in 0..extent.rows {
            let (from, to) = (from.row::<U>(row), to.row::<U>(row));
            for i in 0..extent.columns {
                // SAFETY: the caller promises that every element of the tile can be read and written.
                unsafe { to.add(i).write_unaligned(from.byte_offset(step * i as isize).read_unaligned()) };
            }
        }
    }

    /// # Safety
    ///
    /// As [`Scatter`](super::Scatter).
    #[inline(always)]
    pub(super) unsafe fn scatter<U: Lane>(extent: Extent, from: Source, to: Target, step: isize) {
        for row in 0..extent.rows {
            let (from, to) = (from.row::<U>(row), to.row::<U>(row));
            for i in 0..extent.columns {
                // SAFETY: the caller promises that every element of the tile can be read and written.
                unsafe { to.byte_offset(step * i as isize).write_unaligned(from.add(i).read_unaligned()) };
            }
        }
    }
}
