//! Steps that the driver of attention takes on tiles of scores in place of a tile program: a factor on all
//! scores, and a mask of booleans in memory.
#![allow(unsafe_code, reason = "scores and masks are raw memory that was checked before")]

use half::bf16;

use crate::execute::cursor::Cursor;
use crate::kernels::attention::{ScoreTile, TileConditions};
use crate::kernels::{Extent, Source, Target};
use crate::plan::{AttentionPhase, ScoreFactor, TensorMask};
use crate::types::dtype::DataType;

/// Multiplies or divides rows of f32 in place.
///
/// # Safety
///
/// The number can be read and the rows can be written, which hold numbers; the plan's level was available
/// when the plan was made.
pub(super) unsafe fn multiply(factor: &ScoreFactor, number: *const u8, extent: Extent, rows: Target) {
    let from = rows.as_source();
    let number = Source { at: number, row_stride: 0 };
    // SAFETY: as the caller promises; a kernel may write over its first operand.
    unsafe { factor.kernel.run(extent, from, number, rows, &[0.0; 2]) };
}

/// The number of a factor, which is f32 or bf16.
///
/// # Safety
///
/// The number can be read.
pub(super) unsafe fn factor_number(factor: &ScoreFactor, number: *const u8) -> f32 {
    // SAFETY: as the caller promises.
    unsafe {
        match factor.data_type {
            DataType::Bf16 => number.cast::<bf16>().read_unaligned().to_f32(),
            _ => number.cast::<f32>().read_unaligned(),
        }
    }
}

/// Multiplies or divides panels of queries in place of the scores, if that cannot overflow; returns whether.
///
/// # Safety
///
/// As [`multiply`]; the panels have so many bytes.
pub(super) unsafe fn multiply_panels(
    factor: &ScoreFactor,
    number: *const u8,
    panels: *mut u8,
    bytes: usize,
) -> bool {
    // SAFETY: as the caller promises.
    unsafe {
        let shrinks = factor.shrinks(number.cast::<f32>().read_unaligned());
        if shrinks {
            let panels = Target { at: panels, row_stride: 0 };
            multiply(factor, number, Extent { rows: 1, columns: bytes / 4 }, panels);
        }
        shrinks
    }
}

/// Puts the mask's number in the place of the scores of a tile that the mask does not keep.
///
/// # Safety
///
/// The cursor is at the tile, which can be written; the plan's level was available when the plan was made.
pub(super) unsafe fn mask_tile(
    phase: &AttentionPhase,
    mask: &TensorMask,
    cursor: &Cursor<'_>,
    tile: ScoreTile,
) {
    let (at, query_stride) = booleans(phase, mask, cursor);
    let conditions = TileConditions { at, query_stride, keeps: mask.keeps };
    // SAFETY: the number is an element in memory, as are the booleans of the tile.
    unsafe {
        phase.kernels.mask(tile, conditions, mask_fill(mask, cursor));
    }
}

/// The number that takes the place of masked scores.
///
/// # Safety
///
/// The number can be read.
pub(super) unsafe fn mask_fill(mask: &TensorMask, cursor: &Cursor<'_>) -> f32 {
    // SAFETY: as the caller promises.
    unsafe { cursor.at(mask.fill).cast::<f32>().read_unaligned() }
}

/// The booleans of the present tile, and the bytes from query to query.
pub(super) fn booleans(phase: &AttentionPhase, mask: &TensorMask, cursor: &Cursor<'_>) -> (*const u8, isize) {
    (cursor.at(mask.condition), phase.nest.program.accesses[mask.condition].col_stride)
}
