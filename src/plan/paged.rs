//! Caches whose rows lie in pages, and the phases that move rows between such a cache and a tensor.

use super::access::Base;
use super::lookup::LookupParts;
use crate::kernels::lookup::CopyRow;
use crate::types::dtype::DataType;

/// How a table of pages leads to the rows of a sequence. Strides are in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageTable {
    /// The type of its entries, and the stride from one to the next.
    pub(crate) entry_type: DataType,
    pub(crate) entry_stride: isize,
    /// The type of the lengths of sequences; `None` if each has all rows.
    pub(crate) length_type: Option<DataType>,
    /// Pages of the cache, and rows of a page.
    pub(crate) pages: i64,
    pub(crate) page: usize,
    /// Rows of all pages of a sequence, or of all sequences if they follow each other.
    pub(crate) rows: usize,
    /// How rows are found in sequences that follow each other; `None` for the rows of one.
    pub(crate) sequences: Option<SequenceSteps>,
    /// Bits of an element of a row.
    pub(crate) bits: usize,
    /// From page to page, and from row to row of a page.
    pub(crate) page_stride: isize,
    pub(crate) row_stride: isize,
}

/// Sequences that follow each other, each with as many rows as its pages have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SequenceSteps {
    /// Rows of a sequence.
    pub(crate) rows: usize,
    /// From the first entry of a sequence to that of the next, and from length to length.
    pub(crate) entries: isize,
    pub(crate) lengths: isize,
}

/// Moves rows out of a cache in pages, or into it. Strides are in bytes.
#[derive(Debug)]
pub(crate) struct PagedPhase {
    pub(crate) name: &'static str,
    pub(crate) cache: PagedRows,
    pub(crate) rows: PlainRows,
    pub(crate) work: PagedWork,
    pub(crate) copy: CopyRow,
    /// The entries of all tables are divided, or the heads of rows that are stored.
    pub(crate) parts: LookupParts,
}

/// A cache in pages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PagedRows {
    pub(crate) base: Base,
    pub(crate) pages: i64,
    pub(crate) heads: usize,
    /// Rows of a page, and elements of a row.
    pub(crate) page: usize,
    pub(crate) depth: usize,
    pub(crate) page_stride: isize,
    pub(crate) head_stride: isize,
    pub(crate) row_stride: isize,
    pub(crate) element_stride: isize,
}

/// Rows that follow each other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlainRows {
    pub(crate) base: Base,
    /// From one sequence to the next; 0 for tokens that are stored.
    pub(crate) sequence_stride: isize,
    pub(crate) head_stride: isize,
    pub(crate) row_stride: isize,
    pub(crate) element_stride: isize,
}

/// The direction in which rows go.
#[derive(Debug)]
pub(crate) enum PagedWork {
    /// Out of the cache.
    Load(LoadedSequences),
    /// Into the cache: the rows of so many tokens, one after the other.
    Store { slots: Base, slot_type: DataType, slot_stride: isize, tokens: usize },
}

/// The sequences whose rows are loaded.
#[derive(Debug)]
pub(crate) struct LoadedSequences {
    pub(crate) table: PageTable,
    /// The first entry, and the stride from the entries of one sequence to those of the next.
    pub(crate) entries: (Base, isize),
    /// The first length, and the stride to the next.
    pub(crate) lengths: Option<(Base, isize)>,
    pub(crate) sequences: usize,
    /// A number that is 0 in every type, for rows that a sequence does not have.
    pub(crate) zero: Base,
}

impl LoadedSequences {
    /// Pages of a sequence.
    pub(crate) fn pages(&self) -> usize {
        self.table.rows / self.table.page.max(1)
    }
}

impl PagedPhase {
    /// The starts of all that the phase reads.
    pub(crate) fn reads(&self) -> impl Iterator<Item = Base> + '_ {
        let (from, numbers, lengths) = match &self.work {
            PagedWork::Load(load) => (self.cache.base, load.entries.0, load.lengths),
            PagedWork::Store { slots, .. } => (self.rows.base, *slots, None),
        };
        [from, numbers].into_iter().chain(lengths.map(|(base, _)| base))
    }

    /// The start of what it writes.
    pub(crate) fn written(&self) -> Base {
        match self.work {
            PagedWork::Load(_) => self.rows.base,
            PagedWork::Store { .. } => self.cache.base,
        }
    }

    /// Rows of all sequences, or tokens; and elements of all heads of one.
    pub(crate) fn extent(&self) -> [usize; 2] {
        let rows = match &self.work {
            PagedWork::Load(load) => load.sequences.saturating_mul(load.table.rows),
            PagedWork::Store { tokens, .. } => *tokens,
        };
        [rows, self.cache.heads.saturating_mul(self.cache.depth)]
    }
}
