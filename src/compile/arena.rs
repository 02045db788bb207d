//! The layout of the scratch of a thread.

use super::memory::whole_lines;
use crate::kernels::LINE;

/// Areas of scratch, one behind the other, each at the start of a cache line. Sizes that no memory has
/// saturate.
pub(super) struct Arena {
    end: usize,
}

impl Arena {
    /// Scratch whose first bytes are taken.
    pub(super) fn behind(bytes: usize) -> Self {
        Self { end: bytes }
    }

    /// The offset of a new area of so many bytes.
    pub(super) fn take(&mut self, bytes: usize) -> usize {
        let start = whole_lines(self.end);
        self.end = start.saturating_add(bytes);
        start
    }

    /// Bytes of all areas, in whole cache lines.
    pub(super) fn bytes(&self) -> usize {
        whole_lines(self.end)
    }
}

/// Bytes of a row of f32 with a cache line behind it, so that rows of a power of two do not share a set of
/// the cache.
pub(super) fn padded_row(elements: usize) -> usize {
    whole_lines(elements.saturating_mul(size_of::<f32>())).saturating_add(LINE)
}
