//! Phases of lookups: rows of elements that go to or from the places of a table that indices name.

use std::ops::Range;

use smallvec::SmallVec;

use super::access::Base;
use crate::kernels::lookup::{CombineRow, CopyRow, MoveElements, RowStrides};
use crate::types::dtype::DataType;
use crate::types::shape::SaturatingProduct;

/// Moves a row for each place. Without indices it copies or fills.
#[derive(Debug)]
pub(crate) struct LookupPhase {
    /// The name of the op and of the part that the phase has in it.
    pub(crate) name: &'static str,
    pub(crate) work: LookupWork,
    pub(crate) table: Base,
    pub(crate) rows: Base,
    pub(crate) indices: Option<IndexOperand>,
    /// The places, the innermost dim last; there is at least one.
    pub(crate) dims: SmallVec<[PlaceDim; 4]>,
    /// The elements of a place.
    pub(crate) row: RowStrides,
    pub(crate) parts: LookupParts,
}

/// The direction in which rows go.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LookupWork {
    /// From the table; of one element by one index, a line of places at once.
    Gather { row: CopyRow, line: Option<MoveElements> },
    /// To the table, in the order of the places.
    Scatter { row: CombineRow, line: Option<MoveElements> },
}

/// The indices of a lookup.
#[derive(Debug, Clone)]
pub(crate) struct IndexOperand {
    pub(crate) base: Base,
    pub(crate) data_type: DataType,
    /// The dims of the table that are looked up.
    pub(crate) axes: SmallVec<[LookupAxis; 2]>,
    /// Bytes from an index of a tuple to the next.
    pub(crate) tuple_stride: isize,
}

/// A dim of the table that indices name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LookupAxis {
    pub(crate) size: i64,
    /// Bytes from one element of the table to the next.
    pub(crate) stride: isize,
}

/// A dim of the places; all strides are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlaceDim {
    pub(crate) extent: usize,
    pub(crate) table: isize,
    pub(crate) rows: isize,
    pub(crate) indices: isize,
}

/// How the places are divided among tasks. No two tasks write the same element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LookupParts {
    pub(crate) along: PartAxis,
    pub(crate) count: usize,
}

/// The range that is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartAxis {
    Dim(usize),
    /// The elements of each row.
    Row,
}

impl LookupParts {
    /// The share of a task of so many elements.
    pub(crate) fn range(&self, task: usize, extent: usize) -> Range<usize> {
        // 128 bits hold the product of any two numbers.
        let bound = |task: usize| (extent as u128 * task as u128 / self.count as u128) as usize;
        bound(task)..bound(task + 1)
    }
}

impl LookupPhase {
    /// The starts of all that the phase reads.
    pub(crate) fn reads(&self) -> impl Iterator<Item = Base> + '_ {
        let (from, combined) = match self.work {
            LookupWork::Gather { .. } => (self.table, None),
            LookupWork::Scatter { .. } => (self.rows, Some(self.table)),
        };
        [from].into_iter().chain(combined).chain(self.indices.iter().map(|indices| indices.base))
    }

    /// The start of what it writes.
    pub(crate) fn written(&self) -> Base {
        match self.work {
            LookupWork::Gather { .. } => self.rows,
            LookupWork::Scatter { .. } => self.table,
        }
    }

    /// Number of places.
    pub(crate) fn places(&self) -> usize {
        self.dims.iter().map(|dim| dim.extent).saturating_product()
    }
}

/// The indices in a port that every execution holds against the dims that they name, before anything is
/// written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct IndexCheck {
    pub(crate) port: usize,
    pub(crate) data_type: DataType,
    /// The dims of the indices, each with the bytes from one to the next; the last one has whole tuples.
    pub(crate) dims: SmallVec<[(usize, isize); 6]>,
    pub(crate) rule: IndexRule,
}

/// The numbers that indices may be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum IndexRule {
    /// From either end of dims of these sizes: of each index the same, or one for each along the last dim.
    Dims(SmallVec<[i64; 2]>),
    /// From a number to another.
    Between([i64; 2]),
    /// From 0 to the last of so many pages, in the first entries of each row: as many as the rows of a
    /// sequence take. Behind them an entry may be any number.
    Pages { pages: i64, page: i64, lengths: Option<SequenceLengths> },
}

/// The lengths of sequences in a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SequenceLengths {
    pub(crate) port: usize,
    pub(crate) data_type: DataType,
    /// Bytes from one to the next.
    pub(crate) stride: isize,
}

impl IndexCheck {
    /// The ports that an execution reads for the check.
    pub(crate) fn ports(&self) -> impl Iterator<Item = usize> {
        let lengths = match self.rule {
            IndexRule::Pages { lengths, .. } => lengths,
            IndexRule::Dims(_) | IndexRule::Between(_) => None,
        };
        [self.port].into_iter().chain(lengths.map(|lengths| lengths.port))
    }
}
