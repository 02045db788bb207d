//! Products of few rows with a matrix of 8 or 4 bits, whose integers become numbers in registers: the matrix
//! is read once, as it is stored.
//!
//! The numbers are those of [`DequantizeKernels`](super::DequantizeKernels), and every sum is the one that
//! products with these numbers in memory give, bit by bit: one chain along the depth if stored rows go along
//! columns, else the lanes and the tree of [dot products](crate::kernels::gemm::dot).
//!
//! Only level Avx512 has these kernels, as those of [`QuantizedProducts`](super::QuantizedProducts).

use super::decode::FloatRows;
use super::dequantize::{QuantizedRows, RowScaling};
use super::quantized::{BLOCK, Table};
use crate::kernels::Extent;
use crate::types::dtype::DataType;
use crate::types::fallback::FallbackReason;
use crate::types::kind::Level;

/// Columns of a tile are a multiple of this if stored rows go along columns.
const COLUMNS: usize = 2 * BLOCK;

type Run = unsafe fn(FloatRows, QuantizedRows, RowScaling, &Table, *mut f32, FloatRows);

/// The products with a stored matrix.
#[cfg_attr(
    not(all(target_arch = "x86_64", feature = "avx512")),
    allow(dead_code, reason = "no other level has the kernels")
)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct WeightProducts {
    table: &'static Table,
    run: Run,
}

impl WeightProducts {
    /// For stored rows that go along columns, in tiles of so many columns, of which a group shares a scale.
    pub(crate) fn along_columns(
        level: Level,
        data_type: DataType,
        columns: usize,
        group: Extent,
    ) -> Result<Self, FallbackReason> {
        let is_fit = group.columns == 1 || group.columns.is_multiple_of(BLOCK);
        FallbackReason::OddLength.unless(columns.is_multiple_of(COLUMNS) && is_fit)?;
        #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
        if level == Level::Avx512 {
            let products = avx512::along_columns(data_type, group.columns == 1);
            return products.ok_or(FallbackReason::ElementType);
        }
        let _ = (level, data_type);
        Err(FallbackReason::CpuLevel)
    }

    /// For stored rows that go along the depth.
    pub(crate) fn along_depth(
        level: Level,
        data_type: DataType,
        depth: usize,
        group: Extent,
    ) -> Result<Self, FallbackReason> {
        let is_fit = depth.is_multiple_of(BLOCK) && group.columns.is_multiple_of(BLOCK);
        FallbackReason::OddLength.unless(is_fit)?;
        #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
        if level == Level::Avx512 {
            return avx512::along_depth(data_type).ok_or(FallbackReason::ElementType);
        }
        let _ = (level, data_type);
        Err(FallbackReason::CpuLevel)
    }

    /// Writes the products of the left rows. If stored rows go along the depth, `arranged` has room for the
    /// left rows, with as many numbers as a stored row has.
    ///
    /// # Safety
    ///
    /// The machine runs the level. All rows can be read, as can the scales and zero points of all groups;
    /// `arranged` and the target can be written. Nothing overlaps.
    pub(crate) unsafe fn run(
        &self,
        left: FloatRows,
        stored: QuantizedRows,
        scaling: RowScaling,
        arranged: *mut f32,
        to: FloatRows,
    ) {
        debug_assert_eq!(left.rows, to.rows);
        // SAFETY: as the caller promises.
        unsafe { (self.run)(left, stored, scaling, self.table, arranged, to) }
    }
}

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
mod avx512 {
    use super::super::decode::by_rows;
    use super::super::dequantize::{SIGNED, ScalingCursor, UNSIGNED};
    use super::super::quantized::avx512::*;
    use super::*;
    use crate::kernels::isa::{Avx512, with_features};
    use crate::kernels::prefetch_l2;
    use crate::kernels::vector::{LANES, Lanes};

    /// Blocks of columns whose sums are in registers together: the most of up to two rows, and of more rows.
    const MAX_BLOCKS: usize = 4;
    const MIN_BLOCKS: usize = COLUMNS / BLOCK;

    /// Rows whose sums leave room for one block.
    const MAX_ROWS: usize = 8;

    /// Stored rows that one pass over the columns takes, and rows from what is read to what is prefetched.
    const ROWS: usize = 32;

    pub(super) fn along_columns(data_type: DataType, is_by_column: bool) -> Option<WeightProducts> {
        of_type(
            data_type,
            match is_by_column {
                true => {
                    [add_rows::<ByteColumns<false>>, add_rows::<ByteColumns<true>>, add_rows::<NibbleColumns>]
                }
                false => [add_rows::<Bytes<false>>, add_rows::<Bytes<true>>, add_rows::<NibblePairs>],
            },
        )
    }

    pub(super) fn along_depth(data_type: DataType) -> Option<WeightProducts> {
        of_type(data_type, [scores::<Bytes<false>>, scores::<Bytes<true>>, scores::<NibblePairs>])
    }

    /// Of kernels for unsigned bytes, signed bytes and nibbles, that for a type.
    fn of_type(data_type: DataType, [unsigned, signed, nibbles]: [Run; 3]) -> Option<WeightProducts> {
        let (table, run) = match data_type {
            DataType::U8 => (&UNSIGNED, unsigned),
            DataType::S8 => (&UNSIGNED, signed),
            DataType::U4 => (&UNSIGNED, nibbles),
            DataType::S4 => (&SIGNED, nibbles),
            _ => return None,
        };
        Some(WeightProducts { table, run })
    }

    /// [`Bytes`] whose columns have scales of their own.
    struct ByteColumns<const IS_SIGNED: bool>;
    /// [`NibblePairs`] whose columns have scales of their own.
    struct NibbleColumns;

    /// # Safety
    ///
    /// A block of numbers can be read.
    #[inline(always)]
    unsafe fn two_vectors(from: *const f32) -> [F; 2] {
        // SAFETY: as the caller promises.
        unsafe { [Avx512::load(from), Avx512::load(from.add(LANES))] }
    }

    impl<const IS_SIGNED: bool> BlockType for ByteColumns<IS_SIGNED> {
        const BITS: usize = 8;
        const IS_IN_ORDER: bool = true;
        type Scaling = [[F; 2]; 2];

        #[inline(always)]
        unsafe fn scaling(scale: *const f32, zero: *const f32, _: F) -> Self::Scaling {
            // SAFETY: as the caller promises.
            unsafe { [two_vectors(scale), two_vectors(zero)] }
        }

        #[inline(always)]
        unsafe fn load(from: *const u8, [scales, zeros]: Self::Scaling, _: F) -> [F; 2] {
            // SAFETY: as the caller promises.
            unsafe { scaled_bytes::<IS_SIGNED>(from, scales, zeros) }
        }
    }

    impl BlockType for NibbleColumns {
        const BITS: usize = 4;
        const IS_IN_ORDER: bool = false;
        type Scaling = [[F; 2]; 2];

        #[inline(always)]
        unsafe fn scaling(scale: *const f32, zero: *const f32, _: F) -> Self::Scaling {
            // SAFETY: as the caller promises.
            unsafe { [arranged::<Self>(two_vectors(scale)), arranged::<Self>(two_vectors(zero))] }
        }

        #[inline(always)]
        unsafe fn load(from: *const u8, [scales, zeros]: Self::Scaling, table: F) -> [F; 2] {
            // SAFETY: as the caller promises.
            unsafe {
                let [x, y] = NibblePairs::load(from, table, table);
                let (x, y) = (Avx512::sub(x, zeros[0]), Avx512::sub(y, zeros[1]));
                [Avx512::mul(x, scales[0]), Avx512::mul(y, scales[1])]
            }
        }
    }

    with_features! {
        avx512
        unsafe fn add_rows<S: BlockType>(
            left: FloatRows,
            stored: QuantizedRows,
            scaling: RowScaling,
            table: &Table,
            _: *mut f32,
            to: FloatRows,
        ) {
            let mut cursor = ScalingCursor::new(&scaling);
            for first in (0..stored.rows).step_by(ROWS) {
                let count = ROWS.min(stored.rows - first);
                // SAFETY: as the caller promises.
                unsafe {
                    let table = Avx512::load(table.as_ptr());
                    let later_offset = stored.later_offset(first, ROWS);
                    let scaling = &scaling;
                    let rows = RowGroup { left, stored, first, count, later_offset, cursor, scaling, table };
                    match to.rows {
                        // Integers of four bits take long to become numbers (decision: stored-rows-ahead).
                        MAX_ROWS if S::BITS == 4 => add_to_rows::<S, MAX_ROWS>(&rows, &mut cursor, to, 0),
                        _ => by_rows!(Avx512, to.rows, add_to_rows::<S>(&rows, &mut cursor, to)),
                    }
                }
            }
        }
    }

    /// Some stored rows, with the numbers of the left operand that multiply them.
    struct RowGroup<'a> {
        left: FloatRows,
        stored: QuantizedRows,
        /// The first of them, and how many they are.
        first: usize,
        count: usize,
        /// Bytes from a row to the one that is prefetched meanwhile.
        later_offset: isize,
        cursor: ScalingCursor,
        scaling: &'a RowScaling,
        table: F,
    }

    /// # Safety
    ///
    /// As [`WeightProducts::run`]; the rows are within the target.
    #[inline(always)]
    unsafe fn add_to_rows<S: BlockType, const R: usize>(
        rows: &RowGroup<'_>,
        after: &mut ScalingCursor,
        to: FloatRows,
        row: usize,
    ) {
        let (mut column, columns) = (0, rows.stored.columns);
        while R <= 2 && column + MAX_BLOCKS * BLOCK <= columns {
            // SAFETY: as the caller promises.
            *after = unsafe { add_tile::<S, R, MAX_BLOCKS>(rows, to, row, column) };
            column += MAX_BLOCKS * BLOCK;
        }
        while R == MAX_ROWS && column < columns {
            // SAFETY: as the caller promises.
            *after = unsafe { add_tile::<S, R, 1>(rows, to, row, column) };
            column += BLOCK;
        }
        while column < columns {
            // SAFETY: as the caller promises.
            *after = unsafe { add_tile::<S, R, MIN_BLOCKS>(rows, to, row, column) };
            column += MIN_BLOCKS * BLOCK;
        }
    }

    /// Where the scales of the blocks from a column on are, behind those of the row.
    #[inline(never)]
    fn places<const N: usize>(scaling: &RowScaling, column: usize) -> [usize; N] {
        std::array::from_fn(|n| (column + n * BLOCK) / scaling.group.columns * scaling.column_step)
    }

    /// Adds to `N` blocks of columns of `R` rows, and returns the cursor behind the stored rows.
    ///
    /// # Safety
    ///
    /// As [`add_to_rows`]; the blocks are within the columns.
    #[allow(clippy::needless_range_loop, reason = "iterators would leave the vectors in memory")]
    #[inline(always)]
    unsafe fn add_tile<S: BlockType, const R: usize, const N: usize>(
        rows: &RowGroup<'_>,
        to: FloatRows,
        row: usize,
        column: usize,
    ) -> ScalingCursor {
        let &RowGroup { left, stored, first, count, later_offset, mut cursor, scaling, table } = rows;
        let bytes = |columns: usize| columns * S::BITS / 8;
        let places = places::<N>(scaling, column);
        // SAFETY: as the caller promises; rows of sums have whole vectors.
        unsafe {
            let mut sums = [[[Avx512::splat(0.0); 2]; N]; R];
            if first > 0 {
                for r in 0..R {
                    for n in 0..N {
                        let at = to.at.add((row + r) * to.row + column + n * BLOCK);
                        sums[r][n] = arranged::<S>([Avx512::load(at), Avx512::load(at.add(LANES))]);
                    }
                }
            }
            let mut at = stored.at.wrapping_offset(stored.row_stride * first as isize).add(bytes(column));
            let mut left_at = left.at.add(row * left.row + first);
            let end = left_at.add(count);
            while left_at < end {
                // Rows of a group share what scales become.
                let shared = left_at.add(cursor.next_rows(scaling, end.offset_from(left_at) as usize));
                let (scales, zeros) = (cursor.scales, cursor.zeros);
                let mut of_blocks = [S::scaling(scales.add(places[0]), zeros.add(places[0]), table); N];
                for n in 1..N {
                    of_blocks[n] = S::scaling(scales.add(places[n]), zeros.add(places[n]), table);
                }
                while left_at < shared {
                    // Rows that are 4 KiB apart share a set of the first level, which has no room for them
                    // (decision: stored-rows-ahead).
                    prefetch_l2(at.wrapping_offset(later_offset), bytes(N * BLOCK));
                    let mut p = [Avx512::splat(0.0); R];
                    for r in 0..R {
                        p[r] = Avx512::splat(*left_at.add(r * left.row));
                    }
                    for n in 0..N {
                        let [x, y] = S::load(at.add(bytes(n * BLOCK)), of_blocks[n], table);
                        for r in 0..R {
                            sums[r][n][0] = Avx512::fma(x, p[r], sums[r][n][0]);
                            sums[r][n][1] = Avx512::fma(y, p[r], sums[r][n][1]);
                        }
                    }
                    at = at.wrapping_offset(stored.row_stride);
                    left_at = left_at.add(1);
                }
            }
            for r in 0..R {
                for n in 0..N {
                    let at = to.at.add((row + r) * to.row + column + n * BLOCK);
                    let [x, y] = in_order::<S>(sums[r][n]);
                    Avx512::store(at, x);
                    Avx512::store(at.add(LANES), y);
                }
            }
        }
        cursor
    }
}
