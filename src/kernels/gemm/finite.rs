//! A test that all elements of a matrix are finite: some bit of the exponent is 0, as in no infinity or NaN.

use std::ops::BitAnd;

use super::product::Matrix;
use crate::kernels::Extent;
use crate::kernels::isa::{at_level, shells};
use crate::types::dtype::DataType;
use crate::types::kind::Level;

shells! {
    I:
    fn finite_32[](extent: Extent, from: Matrix, exponent: u32) -> bool {
        all_finite(extent, from, exponent)
    }

    fn finite_16[](extent: Extent, from: Matrix, exponent: u16) -> bool {
        all_finite(extent, from, exponent)
    }
}

/// True if all elements of a matrix of f32, bf16 or f16 are finite.
///
/// # Safety
///
/// All elements can be read, and the machine runs the level.
pub(crate) unsafe fn is_finite(level: Level, extent: Extent, from: Matrix, data_type: DataType) -> bool {
    // SAFETY: as the caller promises.
    unsafe {
        match data_type {
            DataType::Bf16 => at_level!(level, finite_16(extent, from, 0x7f80)),
            DataType::F16 => at_level!(level, finite_16(extent, from, 0x7c00)),
            _ => {
                debug_assert_eq!(data_type, DataType::F32);
                at_level!(level, finite_32(extent, from, 0x7f80_0000))
            }
        }
    }
}

/// True if no element has all bits of the exponent set.
///
/// # Safety
///
/// All elements can be read.
#[inline(always)]
unsafe fn all_finite<U>(extent: Extent, from: Matrix, exponent: U) -> bool
where
    U: Copy + Default + PartialOrd + BitAnd<Output = U>,
{
    let width = size_of::<U>() as isize;
    let Extent { mut rows, mut columns } = extent;
    let Matrix { at, mut row_stride, mut col_stride } = from;
    if row_stride == width && col_stride != width {
        (rows, columns) = (columns, rows);
        (row_stride, col_stride) = (col_stride, row_stride);
    }
    if col_stride == width && row_stride == width * columns as isize {
        (rows, columns) = (1, rows * columns);
    }
    let mut largest = U::default();
    for row in 0..rows {
        let at = at.wrapping_offset(row_stride * row as isize);
        // The compiler makes vectors of a loop as plain as this one.
        if col_stride == width {
            for column in 0..columns {
                // SAFETY: as the caller promises.
                let x = unsafe { at.cast::<U>().add(column).read_unaligned() } & exponent;
                largest = if x > largest { x } else { largest };
            }
        } else {
            // SAFETY: as the caller promises.
            let x = unsafe { largest_of(at, columns, col_stride, exponent) };
            largest = if x > largest { x } else { largest };
        }
    }
    largest < exponent
}

/// The largest exponent of elements a stride apart, of which there are no vectors: one copy serves all
/// levels.
///
/// # Safety
///
/// All elements can be read.
#[inline(never)]
unsafe fn largest_of<U>(at: *const u8, count: usize, stride: isize, exponent: U) -> U
where
    U: Copy + Default + PartialOrd + BitAnd<Output = U>,
{
    let mut largest = U::default();
    for i in 0..count as isize {
        // SAFETY: as the caller promises.
        let x = unsafe { at.wrapping_offset(stride * i).cast::<U>().read_unaligned() } & exponent;
        largest = if x > largest { x } else { largest };
    }
    largest
}
