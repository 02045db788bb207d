//! Elements of four bits: a byte holds two, the first in its low half.

use super::is_kept::LinearIndex;
use crate::kernels::isa::{ByLevel, by_level, shells};
use crate::kernels::{Extent, Target};
use crate::types::dtype::DataType;
use crate::types::kind::Level;

/// Writes elements of four bits as elements of a byte, given the start of their memory, and where they are by
/// their number from there on.
///
/// # Safety
///
/// The byte of every element can be read, every element of the tile can be written, the two do not overlap,
/// and the machine runs the kernel's level.
pub(crate) type Nibbles = unsafe fn(extent: Extent, from: *const u8, index: LinearIndex, to: Target);

/// The kernel of a type of four bits, if it is one of integers.
pub(crate) fn nibbles(level: Level, of: DataType) -> Option<Nibbles> {
    let table = match of {
        DataType::S4 => &SIGNED,
        DataType::U4 => &UNSIGNED,
        _ => return None,
    };
    Some(table[level.row()])
}

shells! {
    I:
    fn kernel[const SIGNED: bool](extent: Extent, from: *const u8, index: LinearIndex, to: Target) {
        tile::<SIGNED>(extent, from, index, to)
    }
}

static SIGNED: ByLevel<Nibbles> = by_level!(kernel::<true>);
static UNSIGNED: ByLevel<Nibbles> = by_level!(kernel::<false>);

/// Bytes that are widened at once.
const BYTES: usize = 32;

/// # Safety
///
/// As [`Nibbles`].
#[inline(always)]
unsafe fn tile<const SIGNED: bool>(extent: Extent, from: *const u8, index: LinearIndex, to: Target) {
    // SAFETY: the caller promises that the byte of an element of the tile can be read.
    let element = |at: u64| unsafe {
        let byte = from.wrapping_add((at / 2) as usize).read();
        widened::<SIGNED>(if at.is_multiple_of(2) { byte } else { byte >> 4 })
    };
    for row in 0..extent.rows {
        let to = to.row::<u8>(row);
        let first = index.first.wrapping_add(index.row_step.wrapping_mul(row as u64));
        let at = |column: usize| first.wrapping_add(index.column_step.wrapping_mul(column as u64));
        let mut column = 0;
        if index.column_step == 1 {
            if first % 2 == 1 && extent.columns > 0 {
                // SAFETY: the caller promises that every element of the tile can be written.
                unsafe { to.write(element(first)) };
                column = 1;
            }
            while extent.columns - column >= 2 * BYTES {
                // SAFETY: as above, for both.
                unsafe {
                    let bytes = from.wrapping_add((at(column) / 2) as usize).cast::<[u8; BYTES]>().read();
                    let mut block = [0; 2 * BYTES];
                    for i in 0..BYTES {
                        block[2 * i] = widened::<SIGNED>(bytes[i]);
                        block[2 * i + 1] = widened::<SIGNED>(bytes[i] >> 4);
                    }
                    to.add(column).cast::<[u8; 2 * BYTES]>().write(block);
                }
                column += 2 * BYTES;
            }
        }
        for column in column..extent.columns {
            // SAFETY: as above.
            unsafe { to.add(column).write(element(at(column))) };
        }
    }
}

/// The element in the low half of a byte.
#[inline(always)]
fn widened<const SIGNED: bool>(byte: u8) -> u8 {
    const SIGN: u8 = 8;
    let element = byte & 0xf;
    if SIGNED { (element ^ SIGN).wrapping_sub(SIGN) } else { element }
}
