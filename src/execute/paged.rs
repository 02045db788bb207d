//! Runs phases that move rows between a cache in pages and a tensor.
#![allow(unsafe_code, reason = "rows are moved in raw memory that was checked before")]

use std::ops::Range;

use super::bindings::Bindings;
use super::pages::SequencePages;
use super::task_runner::TaskRunner;
use crate::error::Result;
use crate::kernels::lookup::{RowStrides, index_at};
use crate::plan::{Base, LoadedSequences, PagedPhase, PagedWork, Plan};

/// Moves all rows.
pub(super) fn run(
    phase: &PagedPhase,
    plan: &Plan,
    bindings: &Bindings,
    runner: &TaskRunner<'_>,
) -> Result<()> {
    runner.run(phase.parts.count, |_, ranges| {
        let at = |base: Base| bindings.address(base, &plan.constants);
        let moving =
            Moving { phase, cache: at(phase.cache.base).cast_mut(), rows: at(phase.rows.base).cast_mut() };
        for task in ranges.flatten() {
            match &phase.work {
                PagedWork::Load(load) => {
                    let sequences = SequenceTables {
                        load,
                        entries: at(load.entries.0),
                        lengths: load.lengths.map_or(std::ptr::null(), |(base, _)| at(base)),
                        zero: at(load.zero),
                    };
                    let all = load.sequences * load.pages();
                    phase.parts.range(task, all).for_each(|entry| moving.load(&sequences, entry));
                }
                &PagedWork::Store { slots, slot_type, slot_stride, tokens } => {
                    let heads = phase.parts.range(task, phase.cache.heads);
                    for token in 0..tokens {
                        let at = at(slots).wrapping_offset(slot_stride * token as isize);
                        // SAFETY: the slot of each token can be read.
                        moving.store(token, unsafe { index_at(at, slot_type) }, heads.clone());
                    }
                }
            }
        }
    })
}

/// The addresses between which rows move.
struct Moving<'a> {
    phase: &'a PagedPhase,
    cache: *mut u8,
    rows: *mut u8,
}

/// The tables of all sequences.
struct SequenceTables<'a> {
    load: &'a LoadedSequences,
    entries: *const u8,
    lengths: *const u8,
    zero: *const u8,
}

impl Moving<'_> {
    /// Copies the rows of an entry, counted through the tables of all sequences.
    fn load(&self, of: &SequenceTables<'_>, entry: usize) {
        let PagedPhase { cache, rows, .. } = self.phase;
        let (sequence, entry) = (entry / of.load.pages(), entry % of.load.pages());
        let along = |at: *const u8, stride: isize| at.wrapping_offset(stride * sequence as isize);
        let length = of.load.lengths.map_or(of.lengths, |(_, stride)| along(of.lengths, stride));
        // SAFETY: the plan's tensors hold an entry for each page of a sequence, and a length for each
        // sequence.
        let pages =
            unsafe { SequencePages::new(&of.load.table, along(of.entries, of.load.entries.1), length) };
        let (mut row, end) = (entry * cache.page, (entry + 1) * cache.page);
        let to = self.rows.wrapping_offset(rows.sequence_stride * sequence as isize);
        while row < end {
            let span = pages.span(row, end);
            for head in 0..cache.heads as isize {
                let to = to.wrapping_offset(rows.head_stride * head + rows.row_stride * row as isize);
                let from = |offset| self.cache.wrapping_offset(offset + cache.head_stride * head);
                // SAFETY: the rows of the sequence lie within the tensors, which do not overlap.
                unsafe {
                    match span.offset {
                        Some(offset) => self.copy_rows(from(offset), to, span.count),
                        None => self.zero_rows(of.zero, to, span.count),
                    }
                }
            }
            row += span.count;
        }
    }

    /// Copies rows of a head out of the cache.
    ///
    /// # Safety
    ///
    /// The rows can be read, and written, and do not overlap.
    unsafe fn copy_rows(&self, from: *const u8, to: *mut u8, count: usize) {
        let PagedPhase { cache, rows, copy, .. } = self.phase;
        let row = RowStrides { count: cache.depth, table: cache.element_stride, rows: rows.element_stride };
        let whole = |stride: isize| stride * cache.depth as isize;
        let is_one =
            whole(cache.element_stride) == cache.row_stride && whole(rows.element_stride) == rows.row_stride;
        // SAFETY: as the caller promises.
        unsafe {
            if is_one {
                return copy(RowStrides { count: count * cache.depth, ..row }, from, to);
            }
            for index in 0..count as isize {
                copy(
                    row,
                    from.wrapping_offset(cache.row_stride * index),
                    to.wrapping_offset(rows.row_stride * index),
                );
            }
        }
    }

    /// Writes rows of zeros.
    ///
    /// # Safety
    ///
    /// The rows can be written.
    unsafe fn zero_rows(&self, zero: *const u8, to: *mut u8, count: usize) {
        let PagedPhase { cache, rows, copy, .. } = self.phase;
        let row = RowStrides { count: cache.depth, table: 0, rows: rows.element_stride };
        for index in 0..count as isize {
            // SAFETY: as the caller promises; the zero is as wide as the widest element.
            unsafe { copy(row, zero, to.wrapping_offset(rows.row_stride * index)) };
        }
    }

    /// Copies the rows of some heads of a token to a slot, unless the slot is negative.
    fn store(&self, token: usize, slot: i64, heads: Range<usize>) {
        let PagedPhase { cache, rows, copy, .. } = self.phase;
        let Ok(slot) = usize::try_from(slot) else { return };
        // A slot that was changed after it was checked stands for the nearest one.
        let slot = slot.min(cache.pages as usize * cache.page - 1);
        let (page, row) = ((slot / cache.page) as isize, (slot % cache.page) as isize);
        let to = self.cache.wrapping_offset(cache.page_stride * page + cache.row_stride * row);
        let from = self.rows.wrapping_offset(rows.row_stride * token as isize);
        let strides =
            RowStrides { count: cache.depth, table: rows.element_stride, rows: cache.element_stride };
        for head in heads {
            let from = from.wrapping_offset(rows.head_stride * head as isize);
            let to = to.wrapping_offset(cache.head_stride * head as isize);
            // SAFETY: the row of the token can be read, and the slot is one of the cache, whose heads only
            // this task writes.
            unsafe { copy(strides, from, to) };
        }
    }
}
