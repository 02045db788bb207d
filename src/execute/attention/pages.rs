//! Keys and values in caches of pages, run by run of the tokens that lie evenly.
#![allow(unsafe_code, reason = "tables are read from raw memory that was checked before")]

use crate::execute::cursor::Cursor;
use crate::execute::pages::{RowSpan, SequencePages};
use crate::kernels::gemm::OperandRows;
use crate::plan::{AccessId, AttentionCore, AttentionOperand, PagedScratch};

/// The keys or the values of a block of queries, in pages.
#[derive(Clone, Copy)]
pub(super) struct TokenPages<'a> {
    pages: SequencePages<'a>,
    /// The first token of the first page, for the head of the block.
    at: *const u8,
    row_stride: isize,
    /// A token of zeros.
    zeros: *const u8,
    tokens: usize,
}

impl<'a> TokenPages<'a> {
    /// The keys or the values of the block at which a cursor is, if they lie in pages. `first` is the access
    /// of the queries in the nest of the cursor; the zeros have been written.
    pub(super) fn of(
        core: &'a AttentionCore,
        operand: AttentionOperand,
        cursor: &Cursor<'_>,
        first: AccessId,
        zeros: *const u8,
    ) -> Option<Self> {
        let (index, table, lengths) = match operand {
            AttentionOperand::Keys => (0, AttentionOperand::KeyTable, AttentionOperand::KeyLengths),
            _ => (1, AttentionOperand::ValueTable, AttentionOperand::ValueLengths),
        };
        let form = core.pages[index].as_ref()?;
        let at = |operand: AttentionOperand| cursor.at(first + operand as usize).cast_const();
        // SAFETY: the accesses are those of the entries and of the length of the sequence of the block, which
        // were checked to be in range.
        let pages = unsafe { SequencePages::new(form, at(table), at(lengths)) };
        Some(Self { pages, at: at(operand), row_stride: form.row_stride, zeros, tokens: form.rows })
    }

    /// The tokens from one on that lie evenly, up to an end, each of so many elements.
    pub(super) fn run(&self, token: usize, end: usize, columns: usize) -> OperandRows {
        let RowSpan { offset, count } = self.pages.span(token, end);
        let (at, row_stride) = match offset {
            Some(offset) => (self.at.wrapping_offset(offset), self.row_stride),
            None => (self.zeros, 0),
        };
        OperandRows { at, row_stride, rows: count, columns, later: None }
    }

    /// The address of a token, if the sequence has it, to be prefetched.
    pub(super) fn address(&self, token: usize) -> *const u8 {
        match token < self.tokens {
            true => self.run(token, token + 1, 0).at,
            false => self.zeros,
        }
    }
}

/// Writes the zeros of tokens that a sequence does not have.
///
/// # Safety
///
/// The scratch is this thread's, with the room of its layout.
pub(super) unsafe fn write_zeros(layout: &PagedScratch, scratch: *mut u8) -> *const u8 {
    let zeros = scratch.wrapping_add(layout.zeros);
    // SAFETY: as the caller promises.
    unsafe { zeros.write_bytes(0, layout.zero_bytes) };
    zeros.cast_const()
}

/// Copies tokens of a block to scratch, unless they lie evenly. Answers with the first of them and the bytes
/// from one to the next.
///
/// # Safety
///
/// The tokens can be read, and `to` has room for them, each of so many `bytes`.
pub(super) unsafe fn gathered(
    pages: &TokenPages<'_>,
    (first, end): (usize, usize),
    bytes: usize,
    to: *mut u8,
) -> (*const u8, isize) {
    let whole = pages.run(first, end, bytes);
    if whole.rows == end - first {
        return (whole.at, whole.row_stride);
    }
    let mut token = first;
    while token < end {
        let run = pages.run(token, end, bytes);
        for row in 0..run.rows {
            let to = to.wrapping_add((token - first + row) * bytes);
            // SAFETY: as the caller promises.
            unsafe { to.copy_from_nonoverlapping(run.row(row), bytes) };
        }
        token += run.rows;
    }
    (to, bytes as isize)
}
