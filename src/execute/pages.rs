//! The rows of a sequence in a cache of pages, run by run.
#![allow(unsafe_code, reason = "tables are read from raw memory that was checked before")]

use crate::kernels::lookup::index_at;
use crate::plan::PageTable;

/// The pages of a sequence.
#[derive(Clone, Copy)]
pub(super) struct SequencePages<'a> {
    table: &'a PageTable,
    entries: *const u8,
    /// Rows that the sequence has.
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
    /// Reads the length of a sequence, if there are lengths.
    ///
    /// # Safety
    ///
    /// The entries of the sequence up to its length can be read as long as the pages are used, and the length
    /// if the table has the type of lengths.
    pub(super) unsafe fn new(table: &'a PageTable, entries: *const u8, length: *const u8) -> Self {
        let rows = match table.length_type {
            // SAFETY: as the caller promises.
            Some(data_type) => unsafe { index_at(length, data_type) }.clamp(0, table.rows as i64) as usize,
            None => table.rows,
        };
        // Without pages there is no row to be read; a length was checked to be 0 then.
        Self { table, entries, length: if table.pages == 0 { 0 } else { rows } }
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
