//! Dot products of few rows in f32 with rows as they are stored: right operands that are contiguous along the
//! depth, and keys of few queries. The stored rows are read from memory once.
//!
//! The order of a sum depends on the depth alone: a lane of a vector takes every 16th product, and the lanes
//! are added up as a tree, half to half.

use std::mem::MaybeUninit;

use super::operand::{NibbleValues, OperandRows, RowProduct, ScalingCursor, StoredOperand, bytes_of};
use crate::kernels::vector::{LANES, Lanes};
use crate::kernels::{LINE, Source, Target, prefetch_l1};
use crate::types::kind::Level;

/// Left rows that take part after part of the depth together.
const PART_ROWS: usize = 16;

/// Bytes of a stored row's part of the depth (decision: dot-parts).
const PART_BYTES: usize = 2048;

/// Elements of a stored row from one prefetch to the next: two vectors, or as many as a line has.
const fn prefetch_step(bits: usize) -> usize {
    if bits < 16 { 8 * LINE / bits } else { 2 * LANES }
}

/// Writes the product of each left row with each stored row. `arranged` has room for the left rows, each as a
/// whole number of vectors, if the operand is not in order.
///
/// # Safety
///
/// The machine runs the level. Rows can be read, as can scales and zero points of all groups; `arranged` and
/// the result can be written. Nothing overlaps. A group of columns that is smaller than a row is a multiple
/// of two vectors.
#[inline(always)]
pub(super) unsafe fn dots<I: Lanes, O: StoredOperand<I>>(
    product: &RowProduct,
    integers: &NibbleValues,
    arranged: *mut f32,
) {
    // SAFETY: as the caller promises; the integers are a vector.
    unsafe {
        let integers = I::load(integers.as_ptr());
        let mut product = *product;
        if !O::IS_IN_ORDER {
            product.left = arrange::<I, O>(&product, arranged);
        }
        match I::LEVEL {
            // A vector takes four registers of 16.
            Level::Portable => tiles::<I, O, 1>(&product, integers),
            _ if I::HAS_MANY_REGISTERS => tiles::<I, O, 4>(&product, integers),
            _ => tiles::<I, O, 2>(&product, integers),
        }
    }
}

/// Copies the left rows in the order of the operand's vectors, the last of which is filled with 0.
///
/// # Safety
///
/// As [`dots`].
#[inline(always)]
unsafe fn arrange<I: Lanes, O: StoredOperand<I>>(product: &RowProduct, arranged: *mut f32) -> Source {
    let columns = product.right.columns;
    let row = columns.next_multiple_of(LANES);
    for index in 0..product.rows {
        let from = product.left.row::<f32>(index);
        let to = arranged.wrapping_add(index * row);
        for column in (0..columns).step_by(LANES) {
            // SAFETY: as the caller promises; no more than the columns are read.
            unsafe {
                let x = I::load_first(from.add(column), LANES.min(columns - column), 0.0);
                I::store(to.add(column), O::arranged(x));
            }
        }
    }
    Source { at: arranged.cast_const().cast(), row_stride: 4 * row as isize }
}

/// A stored row with its scales and zero points.
#[derive(Clone, Copy)]
struct StoredRow {
    at: *const u8,
    scales: *const f32,
    zeros: *const f32,
}

/// Stored rows whose products are computed side by side.
struct RowTile<'a, F, const C: usize> {
    product: &'a RowProduct,
    rows: [StoredRow; C],
    /// The column of the result of the first row.
    column: usize,
    /// Bytes from the first row to the one that is prefetched at the end of the depth.
    later_offset: isize,
    integers: F,
}

/// A part of the depth.
#[derive(Clone, Copy)]
struct Part {
    from: usize,
    to: usize,
    is_last: bool,
    /// Bytes from an element of the stored rows to the one that is prefetched meanwhile.
    distance: isize,
}

/// Goes through the stored rows, `C` of them side by side as long as there are so many.
///
/// # Safety
///
/// As [`dots`].
#[inline(always)]
unsafe fn tiles<I: Lanes, O: StoredOperand<I>, const C: usize>(product: &RowProduct, integers: I::F) {
    let right = &product.right;
    let distance = OperandRows::distance(bytes_of::<I, O>(right.columns)).max(C);
    let mut cursor = ScalingCursor::new(&product.scaling);
    let mut row = 0;
    // SAFETY: as the caller promises.
    unsafe {
        while row + C <= right.rows {
            tile::<I, O, C>(product, row, distance, &mut cursor, integers);
            row += C;
        }
        while row < right.rows {
            tile::<I, O, 1>(product, row, distance, &mut cursor, integers);
            row += 1;
        }
    }
}

/// # Safety
///
/// As [`dots`], for the stored rows that start at a row.
#[inline(always)]
unsafe fn tile<I: Lanes, O: StoredOperand<I>, const C: usize>(
    product: &RowProduct,
    first: usize,
    distance: usize,
    cursor: &mut ScalingCursor,
    integers: I::F,
) {
    let null = StoredRow { at: std::ptr::null(), scales: std::ptr::null(), zeros: std::ptr::null() };
    let mut rows = [null; C];
    for (index, row) in rows.iter_mut().enumerate() {
        if O::IS_SCALED {
            cursor.next(&product.scaling);
        }
        *row = StoredRow { at: product.right.row(first + index), scales: cursor.scales, zeros: cursor.zeros };
    }
    let later_offset = product.right.later_offset(first, distance);
    let tile = RowTile { product, rows, column: first, later_offset, integers };
    for row in (0..product.rows).step_by(PART_ROWS) {
        // SAFETY: as the caller promises.
        unsafe { by_parts::<I, O, C>(&tile, row) };
    }
}

/// Multiplies up to [`PART_ROWS`] left rows part by part of the depth, so that the stored rows come from the
/// first-level cache for all left rows but the first, and the next part is prefetched meanwhile. If there are
/// more left rows, the stored rows are few: they take the depth as a whole, and the left rows are read in
/// order.
///
/// # Safety
///
/// As [`dots`], for the left rows from a row on.
#[inline(always)]
unsafe fn by_parts<I: Lanes, O: StoredOperand<I>, const C: usize>(tile: &RowTile<'_, I::F, C>, first: usize) {
    let RowProduct { rows, right, .. } = *tile.product;
    let depth = right.columns;
    let most = if rows <= PART_ROWS { PART_BYTES * 8 / O::BITS } else { depth };
    let rows = PART_ROWS.min(rows - first);
    let mut sums = [const { MaybeUninit::<[I::F; C]>::uninit() }; PART_ROWS];
    let mut from = 0;
    loop {
        let to = depth.min(from + most);
        let is_last = to == depth;
        let distance = match is_last && right.later.is_some() {
            true => tile.later_offset - bytes_of::<I, O>(from) as isize,
            false => right.later.map_or(0, |_| bytes_of::<I, O>(to - from) as isize),
        };
        let part = Part { from, to, is_last, distance };
        let mut row = 0;
        while row < rows {
            let at = sums[row..].as_mut_ptr();
            // SAFETY: as the caller promises; the sums of the block's rows follow each other.
            unsafe {
                row += match rows - row {
                    // Few products with scales have one stored row left.
                    4.. if I::HAS_MANY_REGISTERS && (C > 1 || !O::IS_SCALED) => {
                        block::<I, O, 4, C>(tile, first + row, part, at.cast())
                    }
                    2.. if C > 1 => block::<I, O, 2, C>(tile, first + row, part, at.cast()),
                    _ => block::<I, O, 1, C>(tile, first + row, part, at.cast()),
                };
            }
        }
        if is_last {
            return;
        }
        from = to;
    }
}

/// Adds a part of the depth to the sums of `R` left rows, which are saved, and writes the result if the part
/// is the last one. Returns `R`.
///
/// # Safety
///
/// As [`dots`], for the left rows from a row on; the part before has saved its sums.
#[allow(clippy::needless_range_loop, reason = "iterators would leave the vectors in memory")]
#[inline(always)]
unsafe fn block<I: Lanes, O: StoredOperand<I>, const R: usize, const C: usize>(
    tile: &RowTile<'_, I::F, C>,
    row: usize,
    part: Part,
    saved: *mut [[I::F; C]; R],
) -> usize {
    let RowTile { product, rows, column: to_column, integers, .. } = *tile;
    let RowProduct { left, scaling, to, .. } = *product;
    let left: [*const f32; R] = std::array::from_fn(
        #[inline(always)]
        |r| left.row(row + r),
    );
    let (group, step) = (scaling.group.columns, scaling.column_step);
    // SAFETY: as the caller promises.
    unsafe {
        let mut sums = if part.from == 0 { [[I::splat(0.0); C]; R] } else { saved.read() };
        let mut column = part.from;
        let mut number = if O::IS_SCALED { column / group } else { 0 };
        macro_rules! step {
            ($column:expr, |$c:ident| $load:expr, |$x:ident| $left:expr) => {
                let mut y = [I::splat(0.0); C];
                for $c in 0..C {
                    y[$c] = $load;
                }
                for r in 0..R {
                    let $x = left[r].add($column);
                    let x = $left;
                    for c in 0..C {
                        sums[r][c] = I::fma(y[c], x, sums[r][c]);
                    }
                }
            };
        }
        while column < part.to {
            let end = if O::IS_SCALED { part.to.min((number + 1).saturating_mul(group)) } else { part.to };
            let scalings = scalings::<I, O, C>(&rows, number * step, integers);
            while column + 2 * LANES <= end {
                let bytes = bytes_of::<I, O>(column);
                if column.is_multiple_of(prefetch_step(O::BITS)) {
                    for c in 0..C {
                        let at = rows[c].at.wrapping_add(bytes).wrapping_offset(part.distance);
                        prefetch_l1(at, bytes_of::<I, O>(2 * LANES));
                    }
                }
                step!(column, |c| O::load(rows[c].at.add(bytes), scalings[c]), |x| I::load(x));
                let (second, bytes) = (column + LANES, bytes + bytes_of::<I, O>(LANES));
                step!(second, |c| O::load(rows[c].at.add(bytes), scalings[c]), |x| I::load(x));
                column += 2 * LANES;
            }
            while column < end {
                let count = LANES.min(end - column);
                step!(
                    column,
                    |c| O::load_part(rows[c].at, column, count, scalings[c]),
                    // Arranged rows end with zeros.
                    |x| if O::IS_IN_ORDER { I::load_first(x, count, 0.0) } else { I::load(x) }
                );
                column += LANES;
            }
            number += 1;
        }
        if !part.is_last {
            saved.write(sums);
            return R;
        }
        write_sums::<I, O, R, C>(to.at_row(row), to_column, sums);
    }
    R
}

/// The scaling of a group of columns, for each stored row.
///
/// # Safety
///
/// As [`dots`].
#[inline(always)]
unsafe fn scalings<I: Lanes, O: StoredOperand<I>, const C: usize>(
    rows: &[StoredRow; C],
    place: usize,
    integers: I::F,
) -> [O::Scaling; C] {
    // SAFETY: as the caller promises.
    unsafe {
        let at = |pointer: *const f32| pointer.wrapping_add(place);
        let mut scalings = [O::scaling(at(rows[0].scales), at(rows[0].zeros), integers); C];
        for c in 1..C {
            scalings[c] = O::scaling(at(rows[c].scales), at(rows[c].zeros), integers);
        }
        scalings
    }
}

/// Adds up the lanes, and writes the sums to rows of the result from a column on.
///
/// # Safety
///
/// As [`dots`].
#[inline(always)]
unsafe fn write_sums<I: Lanes, O: StoredOperand<I>, const R: usize, const C: usize>(
    to: Target,
    column: usize,
    sums: [[I::F; C]; R],
) {
    for (r, mut lanes) in sums.into_iter().enumerate() {
        let to = to.row::<f32>(r).wrapping_add(column);
        // SAFETY: as the caller promises.
        unsafe {
            for of_row in &mut lanes {
                *of_row = O::in_order(*of_row);
            }
            match C {
                4 => {
                    let sums = I::sum_of_each([lanes[0], lanes[1 % C], lanes[2 % C], lanes[3 % C]]);
                    to.cast::<[f32; 4]>().write_unaligned(sums);
                }
                _ => {
                    for (c, &of_row) in lanes.iter().enumerate() {
                        to.add(c).write_unaligned(I::sum(of_row));
                    }
                }
            }
        }
    }
}
