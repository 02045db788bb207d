//! Sums of stored rows, each times a number of every left row: right operands whose rows go along the columns
//! of the result, and values of few queries. The stored rows are read from memory once.
//!
//! Every element of the result is one chain of fused multiplications and additions, in the order of the
//! stored rows.

use super::operand::{NibbleValues, OperandRows, RowProduct, ScalingCursor, StoredOperand, bytes_of};
use crate::kernels::vector::{LANES, Lanes};
use crate::kernels::{prefetch_l1, prefetch_l2};
use crate::types::kind::Level;

/// Bytes of stored rows that stay in the first-level cache while several passes go over them, and the
/// fewest and the most rows.
const GROUP_BYTES: usize = 16 << 10;
const MIN_ROWS: usize = 32;
const MAX_ROWS: usize = 64;

/// Vectors that share what scales become: a group of columns that share a scale is a multiple of so many, or
/// as long as a row.
pub(super) const SHARED: usize = 2;

/// Bytes from one stored row to the next from which on rows share a set of the first level, so that later
/// ones are prefetched into the second level, and their distance in rows (decision: stored-rows-ahead).
const FAR: usize = 4096;
const FAR_ROWS: usize = 32;

/// Prefetch distance of sums in rows of so many bytes, given the bytes from one to the next.
#[inline(always)]
pub(crate) fn rows_ahead(row_stride: isize, bytes: usize) -> usize {
    if row_stride.unsigned_abs() >= FAR { FAR_ROWS } else { OperandRows::distance(bytes) }
}

/// Adds to each row of the result, or writes there if it does not `accumulate`, the stored rows, each times a
/// number of the left row. With `HOLES`, a stored row adds nothing where the number is 0, so that one that is
/// not finite does not reach the sum.
///
/// # Safety
///
/// The machine runs the level. Rows can be read, as can scales and zero points of all groups, and a vector
/// more; the result can be written. Nothing overlaps. A group of columns is one column, or a multiple of
/// [`SHARED`] vectors, or a row.
#[inline(always)]
pub(super) unsafe fn add_rows<I: Lanes, O: StoredOperand<I>, const HOLES: bool>(
    product: &RowProduct,
    accumulate: bool,
    integers: &NibbleValues,
) {
    let right = &product.right;
    let bytes = bytes_of::<I, O>(right.columns);
    let is_far = right.row_stride.unsigned_abs() >= FAR && !HOLES;
    let distance = if HOLES { OperandRows::distance(bytes) } else { rows_ahead(right.row_stride, bytes) };
    // Up to this row, later rows are those of the same run.
    let near = right.later.map_or(right.rows, |later| later.rows).saturating_sub(distance);
    let most = (GROUP_BYTES / bytes.max(1)).clamp(MIN_ROWS, MAX_ROWS);
    let mut cursor = ScalingCursor::new(&product.scaling);
    // SAFETY: as the caller promises; the integers are a vector.
    let integers = unsafe { I::load(integers.as_ptr()) };
    let mut first = 0;
    loop {
        let end = if first < near { near.min(right.rows) } else { right.rows };
        let group = RowGroup {
            product,
            first,
            count: most.min(end - first),
            starts: first == 0 && !accumulate,
            later_offset: right.later_offset(first, distance),
            is_far,
            cursor,
            integers,
        };
        let mut row = 0;
        while row < product.rows {
            let after = &mut cursor;
            // SAFETY: as the caller promises.
            unsafe {
                row += match product.rows - row {
                    // Sums with holes are rare.
                    _ if HOLES => pass::<I, O, HOLES, 1, 4>(&group, after, row),
                    // Integers of four bits take long to become numbers (decision: stored-rows-ahead).
                    8 if I::HAS_MANY_REGISTERS && O::BITS < 8 => {
                        pass::<I, O, HOLES, 8, 2>(&group, after, row)
                    }
                    4.. if I::HAS_MANY_REGISTERS => pass::<I, O, HOLES, 4, 4>(&group, after, row),
                    2.. if I::HAS_MANY_REGISTERS => pass::<I, O, HOLES, 2, 8>(&group, after, row),
                    _ if I::HAS_MANY_REGISTERS => pass::<I, O, HOLES, 1, 8>(&group, after, row),
                    2.. if I::LEVEL != Level::Portable => pass::<I, O, HOLES, 2, 2>(&group, after, row),
                    _ => pass::<I, O, HOLES, 1, 4>(&group, after, row),
                };
            }
        }
        for column in (whole_columns(right.columns)..right.columns).step_by(LANES) {
            for row in 0..product.rows {
                // SAFETY: as the caller promises.
                cursor = unsafe { tile::<I, O, HOLES, 1, 1>(&group, row, column) };
            }
        }
        first += group.count;
        if first >= right.rows {
            return;
        }
    }
}

/// Some stored rows of a product.
struct RowGroup<'a, F> {
    product: &'a RowProduct,
    /// The first of them, and how many they are.
    first: usize,
    count: usize,
    /// The sums start at 0.
    starts: bool,
    /// Bytes from a row to the one that is prefetched meanwhile.
    later_offset: isize,
    is_far: bool,
    cursor: ScalingCursor,
    integers: F,
}

/// The columns that are read several vectors at a time; the vectors behind them are read one by one, for each
/// row of the result: they are rare, and take little code this way.
#[inline(always)]
fn whole_columns(columns: usize) -> usize {
    columns - columns % (4 * LANES)
}

/// Goes through the whole columns of `R` rows of the result, `V` vectors side by side. Returns `R`.
///
/// # Safety
///
/// As [`add_rows`]; the rows are within the result.
#[inline(always)]
unsafe fn pass<I: Lanes, O: StoredOperand<I>, const HOLES: bool, const R: usize, const V: usize>(
    group: &RowGroup<'_, I::F>,
    after: &mut ScalingCursor,
    row: usize,
) -> usize {
    let columns = whole_columns(group.product.right.columns);
    let mut column = 0;
    // SAFETY: as the caller promises.
    unsafe {
        while column + V * LANES <= columns {
            *after = tile::<I, O, HOLES, R, V>(group, row, column);
            column += V * LANES;
        }
        while V > 4 && column + 4 * LANES <= columns {
            *after = tile::<I, O, HOLES, R, 4>(group, row, column);
            column += 4 * LANES;
        }
    }
    R
}

/// Where the scales of vectors from a column on are, behind those of the row.
#[inline(never)]
fn places<const V: usize>(product: &RowProduct, column: usize) -> [usize; V] {
    let scaling = &product.scaling;
    std::array::from_fn(|v| (column + v * LANES) / scaling.group.columns * scaling.column_step)
}

/// The scaling of `V` vectors of a row.
///
/// # Safety
///
/// As [`add_rows`].
#[inline(always)]
unsafe fn scalings<I: Lanes, O: StoredOperand<I>, const V: usize>(
    cursor: &ScalingCursor,
    places: &[usize; V],
    integers: I::F,
) -> [O::Scaling; V] {
    let ScalingCursor { scales, zeros, .. } = *cursor;
    // SAFETY: as the caller promises.
    unsafe {
        let place = places[0];
        let mut scalings = [O::scaling(scales.wrapping_add(place), zeros.wrapping_add(place), integers); V];
        for v in 1..V {
            let place = places[v];
            scalings[v] = match !O::IS_BY_COLUMN && !v.is_multiple_of(SHARED) {
                true => scalings[v - 1],
                false => O::scaling(scales.wrapping_add(place), zeros.wrapping_add(place), integers),
            };
        }
        scalings
    }
}

/// Adds to `V` vectors of `R` rows of the result, the last of which may be a part, and returns the cursor
/// behind the stored rows.
///
/// # Safety
///
/// As [`add_rows`]; the vectors start within the columns, and a part is the only one.
#[allow(clippy::needless_range_loop, reason = "iterators would leave the vectors in memory")]
#[inline(always)]
unsafe fn tile<I: Lanes, O: StoredOperand<I>, const HOLES: bool, const R: usize, const V: usize>(
    group: &RowGroup<'_, I::F>,
    row: usize,
    column: usize,
) -> ScalingCursor {
    let &RowGroup { product, first, count, starts, later_offset, is_far, mut cursor, integers } = group;
    let RowProduct { left, right, scaling, to, .. } = product;
    let bytes = |vectors: usize| bytes_of::<I, O>(vectors * LANES);
    // Only a tile of one vector may be a part.
    let width = if V == 1 { LANES.min(right.columns - column) } else { LANES };
    let places = if O::IS_SCALED { places::<V>(product, column) } else { [0; V] };
    let to: [*mut f32; R] = std::array::from_fn(
        #[inline(always)]
        |r| to.row::<f32>(row + r).wrapping_add(column),
    );
    // SAFETY: as the caller promises.
    unsafe {
        let mut sums = [[I::splat(0.0); V]; R];
        for r in 0..R {
            for v in 0..V {
                if !starts {
                    let at = to[r].add(v * LANES);
                    let sum = if width < LANES { I::load_first(at, width, 0.0) } else { I::load(at) };
                    sums[r][v] = O::arranged(sum);
                }
            }
        }
        let stored = right.row(first);
        let mut at = stored.add(bytes_of::<I, O>(column));
        let mut left_at = left.row::<f32>(row).add(first);
        let end = left_at.add(count);
        while left_at < end {
            let rest = end.offset_from(left_at) as usize;
            // Rows of a group share what scales become.
            let shared = if O::IS_SCALED { cursor.next_rows(scaling, rest) } else { rest };
            let scalings = scalings::<I, O, V>(&cursor, &places, integers);
            let shared = left_at.add(shared);
            while left_at < shared {
                let later = at.wrapping_offset(later_offset);
                if is_far {
                    prefetch_l2(later, bytes(V))
                } else {
                    prefetch_l1(later, bytes(V))
                }
                let mut x = [I::splat(0.0); R];
                for r in 0..R {
                    x[r] = I::splat(*left_at.wrapping_byte_offset(left.row_stride * r as isize));
                }
                for v in 0..V {
                    let y = match width < LANES {
                        true => O::load_part(at, 0, width, scalings[v]),
                        false => O::load(at.add(bytes(v)), scalings[v]),
                    };
                    for r in 0..R {
                        sums[r][v] = match HOLES {
                            true => I::add_product(y, x[r], sums[r][v]),
                            false => I::fma(y, x[r], sums[r][v]),
                        };
                    }
                }
                at = at.wrapping_offset(right.row_stride);
                left_at = left_at.add(1);
            }
        }
        for r in 0..R {
            for v in 0..V {
                let (at, sum) = (to[r].add(v * LANES), O::in_order(sums[r][v]));
                if width < LANES { I::store_first(at, width, sum) } else { I::store(at, sum) }
            }
        }
    }
    cursor
}
