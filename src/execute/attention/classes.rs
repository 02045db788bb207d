//! The classes of the tiles of masked scores, as the phase before has found them.
#![allow(unsafe_code, reason = "classes are read from raw memory that was checked before")]

use crate::execute::bindings::Bindings;
use crate::plan::{Base, ClassTable};
use crate::types::function::EXP_IS_ZERO;

/// The table of classes of a phase, if there is one.
pub(super) struct TileClasses<'a> {
    table: Option<(&'a ClassTable, *const u8)>,
}

impl<'a> TileClasses<'a> {
    pub(super) fn new(table: Option<&'a ClassTable>, bindings: &Bindings) -> Self {
        let address = |table: &'a ClassTable| match table.base {
            Base::Buffer(buffer) => Some((table, bindings.buffers[buffer].cast_const())),
            _ => None,
        };
        Self { table: table.and_then(address) }
    }

    /// The classes of the tiles of a block of queries, by its number among the blocks of all places.
    pub(super) fn of_block(&self, block: usize) -> Option<&'a [u8]> {
        let (table, at) = self.table?;
        let row = table.row(block);
        // SAFETY: an earlier phase has written the table, which has a row for each block, and nobody writes
        // to the table any more.
        Some(unsafe { std::slice::from_raw_parts(at.wrapping_add(row.start), row.len()) })
    }
}

/// True if a number that enters the SoftMax of a query with this maximum has a weight other than 0 in f32.
pub(super) fn weighs(number: f32, max: f32) -> bool {
    let distance = f64::from(number) - f64::from(max);
    distance.is_nan() || distance > f64::from(EXP_IS_ZERO)
}
