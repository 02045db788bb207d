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
    /// `None` if the level has no kernels for the form.
    pub(crate) fn along_columns(
        level: Level,
        data_type: DataType,
        columns: usize,
        group: Extent,
    ) -> Option<Self> {
        let is_fit = group.columns == 1 || group.columns.is_multiple_of(BLOCK);
        if !columns.is_multiple_of(COLUMNS) || !is_fit {
            return None;
        }
        #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
        if level == Level::Avx512 {
            return avx512::along_columns(data_type, group.columns == 1);
        }
        let _ = (level, data_type);
        None
    }

    /// For stored rows that go along the depth. `None` if the level has no kernels for the form.
    pub(crate) fn along_depth(
        level: Level,
        data_type: DataType,
        depth: usize,
        group: Extent,
    ) -> Option<Self> {
        if !depth.is_multiple_of(BLOCK) || !group.columns.is_multiple_of(BLOCK) {
            return None;
        }
        #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
        if level == Level::Avx512 {
            return avx512::along_depth(data_type);
        }
        let _ = (level, data_type);
        None
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
    use std::arch::x86_64::*;

    use super::super::decode::by_rows;
    use super::super::dequantize::{SIGNED, ScalingCursor, UNSIGNED};
    use super::super::lanes::{LANES, ScoreLanes};
    use super::super::quantized::avx512::*;
    use super::*;
    use crate::kernels::isa::{Avx512, with_features};
    use crate::kernels::rows::lanes::Lanes;

    /// Blocks of columns whose sums are in registers together.
    const N: usize = COLUMNS / BLOCK;

    /// Stored rows that one pass over the columns takes, and rows from what is read to what is prefetched.
    const ROWS: usize = 32;

    pub(super) fn along_columns(data_type: DataType, is_by_column: bool) -> Option<WeightProducts> {
        let bytes = |table| match is_by_column {
            true => WeightProducts { table, run: add_rows::<ByteColumns> },
            false => WeightProducts { table, run: add_rows::<Bytes> },
        };
        let halves = |table| match is_by_column {
            true => WeightProducts { table, run: add_rows::<HalfColumns> },
            false => WeightProducts { table, run: add_rows::<Halves> },
        };
        of_type(data_type, bytes, halves)
    }

    pub(super) fn along_depth(data_type: DataType) -> Option<WeightProducts> {
        let bytes = |table| WeightProducts { table, run: scores::<Bytes> };
        let halves = |table| WeightProducts { table, run: scores::<Halves> };
        of_type(data_type, bytes, halves)
    }

    fn of_type(
        data_type: DataType,
        bytes: impl Fn(&'static Table) -> WeightProducts,
        halves: impl Fn(&'static Table) -> WeightProducts,
    ) -> Option<WeightProducts> {
        match data_type {
            DataType::U8 => Some(bytes(&UNSIGNED_BYTES)),
            DataType::S8 => Some(bytes(&SIGNED_BYTES)),
            DataType::U4 => Some(halves(&UNSIGNED)),
            DataType::S4 => Some(halves(&SIGNED)),
            _ => None,
        }
    }

    /// [`Bytes`] whose columns have scales of their own.
    struct ByteColumns;
    /// [`Halves`] whose columns have scales of their own.
    struct HalfColumns;

    /// # Safety
    ///
    /// A block of numbers can be read.
    #[inline(always)]
    unsafe fn two_vectors(from: *const f32) -> [F; 2] {
        // SAFETY: as the caller promises.
        unsafe { [Avx512::load(from), Avx512::load(from.add(LANES))] }
    }

    impl BlockType for ByteColumns {
        const BITS: usize = 8;
        const IS_IN_ORDER: bool = true;
        type Scaling = [[F; 2]; 2];

        #[inline(always)]
        unsafe fn scaling(scale: *const f32, zero: *const f32, _: F) -> Self::Scaling {
            // SAFETY: as the caller promises.
            unsafe { [two_vectors(scale), two_vectors(zero)] }
        }

        #[inline(always)]
        unsafe fn load(from: *const u8, [scales, zeros]: Self::Scaling, table: F) -> [F; 2] {
            // SAFETY: as the caller promises.
            unsafe {
                let bits = _mm512_castps_si512(table);
                let x = _mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast()));
                let y = _mm512_cvtepi8_epi32(_mm_loadu_si128(from.add(LANES).cast()));
                let x = Avx512::sub(_mm512_cvtepi32_ps(_mm512_and_si512(x, bits)), zeros[0]);
                let y = Avx512::sub(_mm512_cvtepi32_ps(_mm512_and_si512(y, bits)), zeros[1]);
                [Avx512::mul(x, scales[0]), Avx512::mul(y, scales[1])]
            }
        }
    }

    impl BlockType for HalfColumns {
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
                let [x, y] = Halves::load(from, table, table);
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
                    let rows = RowGroup { left, stored, first, count, cursor, scaling: &scaling, table };
                    by_rows!(Avx512, to.rows, add_to_rows::<S>(&rows, &mut cursor, to));
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
        let mut column = 0;
        while column < rows.stored.columns {
            // SAFETY: as the caller promises.
            *after = unsafe { add_tile::<S, R>(rows, to, row, column) };
            column += COLUMNS;
        }
    }

    /// Where the scales of the blocks from a column on are, behind those of the row.
    #[inline(never)]
    fn places(scaling: &RowScaling, column: usize) -> [usize; N] {
        std::array::from_fn(|n| (column + n * BLOCK) / scaling.group.columns * scaling.column_step)
    }

    /// Adds to two blocks of columns of `R` rows, and returns the cursor behind the stored rows.
    ///
    /// # Safety
    ///
    /// As [`add_to_rows`]; the blocks are within the columns.
    #[allow(clippy::needless_range_loop, reason = "iterators would leave the vectors in memory")]
    #[inline(always)]
    unsafe fn add_tile<S: BlockType, const R: usize>(
        rows: &RowGroup<'_>,
        to: FloatRows,
        row: usize,
        column: usize,
    ) -> ScalingCursor {
        let &RowGroup { left, stored, first, count, mut cursor, scaling, table } = rows;
        let bytes = |columns: usize| columns * S::BITS / 8;
        let places = places(scaling, column);
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
            let none = S::scaling(cursor.scales, cursor.zeros, table);
            let (mut of_blocks, mut held) = ([none; N], std::ptr::null());
            for depth in first..first + count {
                cursor.next(scaling);
                // RowGroup of a group share what scales become.
                if held != cursor.scales {
                    held = cursor.scales;
                    for n in 0..N {
                        let (scale, zero) = (held.add(places[n]), cursor.zeros.add(places[n]));
                        of_blocks[n] = S::scaling(scale, zero, table);
                    }
                }
                let at = stored.at.wrapping_offset(stored.row_stride * depth as isize).add(bytes(column));
                let later = stored.later_row(depth, ROWS).wrapping_add(bytes(column));
                _mm_prefetch::<_MM_HINT_T0>(later.cast());
                let mut p = [Avx512::splat(0.0); R];
                for r in 0..R {
                    p[r] = Avx512::splat(*left.at.add((row + r) * left.row + depth));
                }
                for n in 0..N {
                    let [x, y] = S::load(at.add(bytes(n * BLOCK)), of_blocks[n], table);
                    for r in 0..R {
                        sums[r][n][0] = Avx512::fma(x, p[r], sums[r][n][0]);
                        sums[r][n][1] = Avx512::fma(y, p[r], sums[r][n][1]);
                    }
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
