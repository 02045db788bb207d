//! The keys or values of a chunk, which lie evenly or in the pages of a cache.

use std::ops::Range;

use crate::execute::attention::pages::TokenPages;
use crate::kernels::gemm::{LaterRows, OperandRows};

/// The keys or the values of a chunk.
pub(super) struct ChunkTokens<'a> {
    /// Those of the chunk, unless they lie in pages.
    pub(super) rows: OperandRows,
    pub(super) pages: Option<TokenPages<'a>>,
    /// The number of the first of them among all.
    pub(super) first: usize,
    /// Rows from one that kernels read to the one that they prefetch meanwhile.
    pub(super) distance: usize,
}

impl ChunkTokens<'_> {
    /// GroupParts of some ranges that lie evenly, each with its first row; `next` is read behind them.
    pub(super) fn runs(
        &self,
        ranges: impl Iterator<Item = (usize, usize)>,
        next: *const u8,
    ) -> impl Iterator<Item = (usize, OperandRows)> {
        ranges.flat_map(move |(mut first, end)| {
            std::iter::from_fn(move || {
                if first == end {
                    return None;
                }
                let run = self.run(first..end, next);
                first += run.rows;
                Some((first - run.rows, run))
            })
        })
    }

    /// The rows from the start of a range on that lie evenly, with those that are read behind them.
    fn run(&self, rows: Range<usize>, next: *const u8) -> OperandRows {
        let Some(pages) = &self.pages else {
            let later = LaterRows { rows: rows.len(), next };
            return OperandRows {
                at: self.rows.row(rows.start),
                rows: rows.len(),
                later: Some(later),
                ..self.rows
            };
        };
        let run = pages.run(self.first + rows.start, self.first + rows.end, self.rows.columns);
        // Kernels take the rows behind a run for even ones: those that they prefetch may be several pages on.
        let past = self.distance.saturating_sub(run.rows);
        let later = rows.start + run.rows + past;
        let next = match later < rows.end {
            true => self.row(later).wrapping_offset(-run.row_stride * past as isize),
            false => next,
        };
        OperandRows { later: Some(LaterRows { rows: run.rows, next }), ..run }
    }

    /// The address of a row, or of the row behind the last one, which need not be valid.
    pub(super) fn row(&self, row: usize) -> *const u8 {
        self.pages.as_ref().map_or_else(|| self.rows.row(row), |pages| pages.address(self.first + row))
    }
}
