//! Parts of rows, and the pieces of them that lie at one stride.

use crate::kernels::Extent;

/// Some rows of a tile, and a range of their elements.
#[derive(Clone, Copy)]
pub(super) struct RowPart {
    pub(super) rows: usize,
    pub(super) first: usize,
    pub(super) count: usize,
}

impl RowPart {
    pub(super) fn extent(self) -> Extent {
        Extent { rows: self.rows, columns: self.count }
    }
}

/// Elements of a row that lie at one stride.
pub(super) struct RowRun {
    /// Bytes from the first element of the row, and from element to element.
    pub(super) offset: isize,
    pub(super) stride: isize,
    pub(super) count: usize,
    /// Elements of the part that come before.
    pub(super) done: usize,
}

/// The runs of a part of rows, in order.
pub(super) fn row_runs(along: &[(usize, isize)], part: RowPart, mut each: impl FnMut(RowRun)) {
    let (inner, outer) = match along.split_last() {
        Some((&inner, outer)) => (inner, outer),
        None => ((1, 0), &[][..]),
    };
    let (extent, stride) = inner;
    let mut done = 0;
    while done < part.count {
        let element = part.first + done;
        let (mut rest, within) = (element / extent, element % extent);
        let mut offset = stride * within as isize;
        for &(extent, stride) in outer.iter().rev() {
            offset += stride * (rest % extent) as isize;
            rest /= extent;
        }
        let count = (extent - within).min(part.count - done);
        each(RowRun { offset, stride, count, done });
        done += count;
    }
}
