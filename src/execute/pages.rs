//! The rows of a sequence in a cache of pages, run by run.
#![allow(unsafe_code, reason = "tables are read from raw memory that was checked before")]

use crate::kernels::lookup::index_at;
use crate::plan::{PageTable, SequenceSteps};

/// The pages of a sequence, or of sequences that follow each other.
#[derive(Clone, Copy)]
pub(super) struct SequencePages<'a> {
    table: &'a PageTable,
    entries: *const u8,
    /// The length of the first sequence in memory.
    lengths: *const u8,
    /// Rows that the sequence has, if it is one.
    length: usize,
}

/// Rows that lie evenly in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowSpan {
    /// Bytes from the first row of the first page to the first of the rows; `None` if the sequence does not
    /// have the rows, all of which are 0.
    pub(super) offset: Option<isize>,
    pub(super) count: usize,
}

impl<'a> SequencePages<'a> {
    /// Reads the length of a sequence, if there are lengths and it is one.
    ///
    /// # Safety
    ///
    /// The entries of the sequence up to its length can be read as long as the pages are used, and the length
    /// if the table has the type of lengths; of sequences that follow each other those of all.
    pub(super) unsafe fn new(table: &'a PageTable, entries: *const u8, lengths: *const u8) -> Self {
        let pages = Self { table, entries, lengths, length: 0 };
        match table.sequences {
            Some(_) => pages,
            None => Self { length: pages.length_at(lengths, table.rows), ..pages },
        }
    }

    /// A length in memory of a sequence of so many rows.
    fn length_at(&self, at: *const u8, rows: usize) -> usize {
        let length = match self.table.length_type {
            // SAFETY: the caller of `new` has promised that the lengths can be read.
            Some(data_type) => unsafe { index_at(at, data_type) }.clamp(0, rows as i64) as usize,
            None => rows,
        };
        // Without pages there is no row to be read; a length was checked to be 0 then.
        if self.table.pages == 0 { 0 } else { length }
    }

    /// The page of an entry. A number out of range, which a caller's other threads may write after it was
    /// checked, stands for the nearest page.
    fn page(&self, entry: usize) -> i64 {
        let PageTable { entry_type, entry_stride, pages, .. } = *self.table;
        let at = self.entries.wrapping_offset(entry_stride * entry as isize);
        // SAFETY: the caller of `new` has promised that the entries can be read.
        unsafe { index_at(at, entry_type) }.clamp(0, pages - 1)
    }

    /// Bytes from the first row of the first page to a row that the sequence has.
    fn offset(&self, row: usize) -> isize {
        let PageTable { page, page_stride, row_stride, .. } = *self.table;
        self.page(row / page) as isize * page_stride + (row % page) as isize * row_stride
    }

    /// The rows from one on that lie evenly in memory, up to an end; at least one.
    pub(super) fn span(&self, row: usize, end: usize) -> RowSpan {
        let Some(SequenceSteps { rows, entries, lengths }) = self.table.sequences else {
            return self.span_of_one(row, end);
        };
        let sequence = (row / rows) as isize;
        let length = self.length_at(self.lengths.wrapping_offset(sequence * lengths), rows);
        let one = Self { entries: self.entries.wrapping_offset(sequence * entries), length, ..*self };
        let first = row - row % rows;
        one.span_of_one(row - first, rows.min(end - first))
    }

    fn span_of_one(&self, row: usize, end: usize) -> RowSpan {
        let PageTable { page, page_stride, row_stride, .. } = *self.table;
        if row >= self.length {
            return RowSpan { offset: None, count: end - row };
        }
        let end = end.min(self.length);
        let mut behind = end.min((row / page + 1) * page);
        // Pages that follow each other in memory are one.
        if page_stride == row_stride * page as isize {
            while behind < end && self.page(behind / page) == self.page(behind / page - 1) + 1 {
                behind = end.min(behind + page);
            }
        }
        RowSpan { offset: Some(self.offset(row)), count: behind - row }
    }
}
