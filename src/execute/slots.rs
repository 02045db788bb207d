//! The operands of a tile program whose tiles lie in slots of a thread's scratch.

use super::cursor::Cursor;
use super::interpreter::TileOperands;
use crate::plan::{AccessId, Base};

/// The address of each slot; accesses to anything else are those of the cursor.
pub(super) struct SlotOperands<'a, const SLOTS: usize> {
    pub(super) slots: [*mut u8; SLOTS],
    pub(super) cursor: Cursor<'a>,
}

impl<'a, const SLOTS: usize> TileOperands<'a> for SlotOperands<'a, SLOTS> {
    fn cursor(&mut self) -> &mut Cursor<'a> {
        &mut self.cursor
    }

    fn at(&mut self, access: AccessId) -> *mut u8 {
        match self.cursor.base(access) {
            Base::Driver(slot) => self.slots[slot],
            _ => self.cursor.at(access),
        }
    }
}
