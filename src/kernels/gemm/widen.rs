//! Stored rows that become rows of f32 in memory.

use super::operand::{NibbleValues, OperandRows, RowScaling, ScalingCursor, StoredOperand, bytes_of};
use crate::kernels::prefetch_l1;
use crate::kernels::vector::{LANES, Lanes};

/// Writes rows of f32, `to_row` numbers from one to the next. Up to 16 numbers behind the columns of a row
/// are overwritten.
///
/// # Safety
///
/// The machine runs the level. The rows can be read, as can the scales and zero points of all groups, and 16
/// more numbers; the target can be written, as can 16 numbers behind each row. Nothing overlaps.
#[inline(always)]
pub(super) unsafe fn widen<I: Lanes, O: StoredOperand<I>>(
    rows: &OperandRows,
    scaling: &RowScaling,
    integers: &NibbleValues,
    to: *mut f32,
    to_row: usize,
) {
    let OperandRows { columns, .. } = *rows;
    let bytes = bytes_of::<I, O>(columns);
    let distance = OperandRows::distance(bytes);
    let mut cursor = ScalingCursor::new(scaling);
    // SAFETY: as the caller promises. A vector that goes beyond its group is overwritten by the next one.
    unsafe {
        let integers = I::load(integers.as_ptr());
        for row in 0..rows.rows {
            let from = rows.row(row);
            if rows.later.is_some() {
                prefetch_l1(from.wrapping_offset(rows.later_offset(row, distance)), bytes);
            }
            if O::IS_SCALED {
                cursor.next(scaling);
            }
            let ScalingCursor { scales, zeros, .. } = cursor;
            let to = to.wrapping_add(row * to_row);
            let (mut column, mut place) = (0, 0);
            while column < columns {
                // Each vector has scales of its own, or a group shares one.
                let end = match O::IS_BY_COLUMN {
                    true => column + LANES,
                    false => column.saturating_add(scaling.group.columns),
                };
                let end = end.min(columns);
                let of_group = O::scaling(scales.wrapping_add(place), zeros.wrapping_add(place), integers);
                while column < end {
                    let count = LANES.min(columns - column);
                    let part;
                    // Half a byte is no address.
                    let from = match count < LANES || O::BITS < 8 && column % 2 == 1 {
                        true => {
                            part = O::part(from, column, count);
                            part.as_ptr()
                        }
                        false => from.add(bytes_of::<I, O>(column)),
                    };
                    I::store(to.add(column), O::in_order(O::load(from, of_group)));
                    column += LANES;
                }
                column = end;
                place += if O::IS_BY_COLUMN { LANES } else { scaling.column_step };
            }
        }
    }
}
