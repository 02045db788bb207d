//! Products of few queries with keys of 8 or 4 bits, and of weights with such values: an integer becomes a
//! number in a register, so that no row of f32 is written and read again (decision: decode-in-registers).
//!
//! The numbers are those of [`DequantizeKernels`](super::DequantizeKernels), bit by bit. Scaling the sums,
//! or subtracting zero points from the sums, would save a step, but
//! sums of integers overflow where those of numbers do not, and lose digits if zero points are large.
//!
//! Only level Avx512 has these kernels, because the others have too few registers for the sums of some keys
//! and the scales beside them. There, and in forms that [`QuantizedProducts::new`] refuses, rows of f32 are
//! written first.

use super::decode::FloatRows;
use super::dequantize::{QuantizedRows, RowScaling};
use crate::kernels::Extent;
use crate::kernels::vector::LANES;
use crate::types::dtype::DataType;
use crate::types::fallback::FallbackReason;
use crate::types::kind::Level;

/// Elements that are read together; each has the same scale.
pub(super) const BLOCK: usize = 2 * LANES;

/// Rows have a multiple of so many elements.
const COLUMNS: usize = 2 * BLOCK;

/// Parameters that tell a kernel which types it serves.
pub(super) type Table = [f32; LANES];

type Scores = unsafe fn(FloatRows, QuantizedRows, RowScaling, &Table, *mut f32, FloatRows);
type AddValues = unsafe fn(FloatRows, QuantizedRows, RowScaling, &Table, FloatRows);

/// The products with rows of a type.
#[cfg_attr(
    not(all(target_arch = "x86_64", feature = "avx512")),
    allow(dead_code, reason = "no other level has the kernels")
)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuantizedProducts {
    table: &'static Table,
    scores: Scores,
    add_values: AddValues,
}

impl QuantizedProducts {
    /// For rows of so many elements; each group of elements shares a scale.
    pub(crate) fn new(
        level: Level,
        data_type: DataType,
        columns: usize,
        group: Extent,
    ) -> Result<Self, FallbackReason> {
        let is_fit = columns.is_multiple_of(COLUMNS) && group.columns.is_multiple_of(BLOCK);
        FallbackReason::OddLength.unless(is_fit)?;
        #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
        if level == Level::Avx512 {
            return avx512::products(data_type).ok_or(FallbackReason::ElementType);
        }
        let _ = (level, data_type);
        Err(FallbackReason::CpuLevel)
    }

    /// Writes the products of each query with each key, a row for each query. `arranged` has room for the
    /// queries, in rows of as many numbers as keys have.
    ///
    /// # Safety
    ///
    /// The machine runs the level. Queries and keys can be read, as can the scales and zero points of all
    /// groups; `arranged` and the target can be written. Nothing overlaps.
    pub(crate) unsafe fn scores(
        &self,
        queries: FloatRows,
        keys: QuantizedRows,
        scaling: RowScaling,
        arranged: *mut f32,
        to: FloatRows,
    ) {
        debug_assert_eq!(queries.rows, to.rows);
        // SAFETY: as the caller promises.
        unsafe { (self.scores)(queries, keys, scaling, self.table, arranged, to) }
    }

    /// Adds to each row the values, each times the weight of its key in the same row of weights, key by key.
    /// A value counts whatever its weight is: one that is not finite reaches every row.
    ///
    /// # Safety
    ///
    /// As [`scores`](Self::scores).
    pub(crate) unsafe fn add_values(
        &self,
        weights: FloatRows,
        values: QuantizedRows,
        scaling: RowScaling,
        to: FloatRows,
    ) {
        debug_assert_eq!(weights.rows, to.rows);
        // SAFETY: as the caller promises.
        unsafe { (self.add_values)(weights, values, scaling, self.table, to) }
    }
}

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
pub(super) mod avx512 {
    use std::arch::x86_64::*;

    use super::super::decode::by_rows;
    use super::super::dequantize::{SIGNED, ScalingCursor, UNSIGNED};
    use super::*;
    use crate::kernels::isa::{Avx512, with_features};
    use crate::kernels::prefetch_l1;
    use crate::kernels::vector::Lanes;

    /// The kernels for a type.
    pub(super) fn products(data_type: DataType) -> Option<QuantizedProducts> {
        let of = |table, scores: Scores, add_values: AddValues| {
            Some(QuantizedProducts { table, scores, add_values })
        };
        match data_type {
            DataType::U8 => of(&UNSIGNED, scores::<Bytes<false>>, add_values::<Bytes<false>>),
            DataType::S8 => of(&UNSIGNED, scores::<Bytes<true>>, add_values::<Bytes<true>>),
            DataType::U4 => of(&UNSIGNED, scores::<NibblePairs>, add_values::<NibblePairs>),
            DataType::S4 => of(&SIGNED, scores::<NibblePairs>, add_values::<NibblePairs>),
            _ => None,
        }
    }

    /// Keys whose products with a query are computed together.
    const KEYS: usize = 4;

    /// Blocks of columns whose sums are in registers together: the most of up to two rows, and of more rows.
    const MAX_BLOCKS: usize = 4;
    const MIN_BLOCKS: usize = COLUMNS / BLOCK;

    /// Rows of values that stay in the first-level cache while several passes go over them.
    const ROWS: usize = 64;

    pub(in super::super) type F = <Avx512 as Lanes>::F;

    /// How a block of integers of a type becomes numbers.
    ///
    /// # Safety of the methods
    ///
    /// The machine runs the level; a block can be read.
    pub(in super::super) trait BlockType {
        const BITS: usize;
        /// Vectors are in the order of memory; else the elements of the first half of each vector are in its
        /// even lanes.
        const IS_IN_ORDER: bool;
        /// The form in which a kernel holds a scale and a zero point.
        type Scaling: Copy;

        /// From the scale and the zero point of a block, or from those of each of its elements.
        unsafe fn scaling(scale: *const f32, zero: *const f32, table: F) -> Self::Scaling;
        unsafe fn load(from: *const u8, scaling: Self::Scaling, table: F) -> [F; 2];
    }

    /// Bytes, which do not read the table.
    pub(in super::super) struct Bytes<const IS_SIGNED: bool>;
    /// Two integers in a byte, the first in its low half. The table has the integers by their bits.
    pub(in super::super) struct NibblePairs;

    impl<const IS_SIGNED: bool> BlockType for Bytes<IS_SIGNED> {
        const BITS: usize = 8;
        const IS_IN_ORDER: bool = true;
        type Scaling = [F; 2];

        #[inline(always)]
        unsafe fn scaling(scale: *const f32, zero: *const f32, _: F) -> [F; 2] {
            // SAFETY: as the caller promises.
            unsafe { [Avx512::splat(*scale), Avx512::splat(*zero)] }
        }

        #[inline(always)]
        unsafe fn load(from: *const u8, [scale, zero]: [F; 2], _: F) -> [F; 2] {
            // SAFETY: as the caller promises.
            unsafe { scaled_bytes::<IS_SIGNED>(from, [scale; 2], [zero; 2]) }
        }
    }

    /// The numbers of a block of bytes.
    ///
    /// # Safety
    ///
    /// As the methods of [`BlockType`].
    #[inline(always)]
    pub(in super::super) unsafe fn scaled_bytes<const IS_SIGNED: bool>(
        from: *const u8,
        scales: [F; 2],
        zeros: [F; 2],
    ) -> [F; 2] {
        // SAFETY: as the caller promises.
        unsafe {
            let [x, y] = match IS_SIGNED {
                true => [Avx512::load_s8(from), Avx512::load_s8(from.add(LANES))],
                false => [Avx512::load_u8(from), Avx512::load_u8(from.add(LANES))],
            };
            let (x, y) = (Avx512::sub(x, zeros[0]), Avx512::sub(y, zeros[1]));
            [Avx512::mul(x, scales[0]), Avx512::mul(y, scales[1])]
        }
    }

    impl BlockType for NibblePairs {
        const BITS: usize = 4;
        const IS_IN_ORDER: bool = false;
        /// The number for each integer; an integer is the index.
        type Scaling = F;

        #[inline(always)]
        unsafe fn scaling(scale: *const f32, zero: *const f32, table: F) -> F {
            // SAFETY: as the caller promises.
            unsafe { Avx512::mul(Avx512::sub(table, Avx512::splat(*zero)), Avx512::splat(*scale)) }
        }

        #[inline(always)]
        unsafe fn load(from: *const u8, numbers: F, _: F) -> [F; 2] {
            // SAFETY: as the caller promises. A permutation reads the lowest 4 bits of an index.
            unsafe {
                let shifts = _mm512_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28);
                let numbers_of = |at: *const u8| {
                    // A load gives 8 elements to all even lanes and the 8 behind them to all odd ones.
                    let bits = _mm512_set1_epi64(at.cast::<i64>().read_unaligned());
                    _mm512_permutexvar_ps(_mm512_srlv_epi32(bits, shifts), numbers)
                };
                [numbers_of(from), numbers_of(from.add(LANES / 2))]
            }
        }
    }

    /// Brings a block to the order of its type.
    ///
    /// # Safety
    ///
    /// The machine runs the level.
    #[inline(always)]
    pub(in super::super) unsafe fn arranged<S: BlockType>([x, y]: [F; 2]) -> [F; 2] {
        if S::IS_IN_ORDER {
            return [x, y];
        }
        // SAFETY: as the caller promises.
        unsafe {
            let order = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
            [_mm512_permutexvar_ps(order, x), _mm512_permutexvar_ps(order, y)]
        }
    }

    /// Brings a block back to the order of memory.
    ///
    /// # Safety
    ///
    /// The machine runs the level.
    #[inline(always)]
    pub(in super::super) unsafe fn in_order<S: BlockType>([x, y]: [F; 2]) -> [F; 2] {
        if S::IS_IN_ORDER {
            return [x, y];
        }
        // SAFETY: as the caller promises.
        unsafe {
            let order = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
            [_mm512_permutexvar_ps(order, x), _mm512_permutexvar_ps(order, y)]
        }
    }

    with_features! {
        avx512
        pub(in super::super) unsafe fn scores<S: BlockType>(
            queries: FloatRows,
            keys: QuantizedRows,
            scaling: RowScaling,
            table: &Table,
            arranged: *mut f32,
            to: FloatRows,
        ) {
            // SAFETY: as the caller promises.
            unsafe { scores_of::<S>(queries, keys, scaling, Avx512::load(table.as_ptr()), arranged, to) }
        }
    }

    with_features! {
        avx512
        unsafe fn add_values<S: BlockType>(
            weights: FloatRows,
            values: QuantizedRows,
            scaling: RowScaling,
            table: &Table,
            to: FloatRows,
        ) {
            // SAFETY: as the caller promises.
            unsafe { add_values_of::<S>(weights, values, scaling, Avx512::load(table.as_ptr()), to) }
        }
    }

    /// A stored row with its scales and zero points.
    #[derive(Clone, Copy)]
    pub(in super::super) struct StoredRow {
        pub(in super::super) at: *const u8,
        pub(in super::super) scales: *const f32,
        pub(in super::super) zeros: *const f32,
    }

    /// Goes through rows. A multiplication for each row would take as long as some vectors.
    #[derive(Clone, Copy)]
    struct RowCursor {
        at: *const u8,
        scaling: ScalingCursor,
    }

    impl RowCursor {
        /// Before the first row.
        #[inline(always)]
        fn new(rows: &QuantizedRows, scaling: &RowScaling) -> Self {
            Self { at: rows.at, scaling: ScalingCursor::new(scaling) }
        }

        /// The next row.
        #[inline(always)]
        fn next(&mut self, rows: &QuantizedRows, scaling: &RowScaling) -> StoredRow {
            self.scaling.next(scaling);
            let ScalingCursor { scales, zeros, .. } = self.scaling;
            let row = StoredRow { at: self.at, scales, zeros };
            self.at = self.at.wrapping_offset(rows.row_stride);
            row
        }
    }

    /// The columns of a row: how many they are, how many share a scale, and the numbers from that scale to
    /// the next one.
    #[derive(Clone, Copy)]
    struct Columns {
        count: usize,
        group: usize,
        step: usize,
    }

    /// # Safety
    ///
    /// As [`QuantizedProducts::scores`].
    #[inline(always)]
    unsafe fn scores_of<S: BlockType>(
        mut queries: FloatRows,
        keys: QuantizedRows,
        scaling: RowScaling,
        table: F,
        to_queries: *mut f32,
        to: FloatRows,
    ) {
        let (columns, bytes) = (keys.columns, keys.columns * S::BITS / 8);
        // SAFETY: as the caller promises.
        unsafe {
            if !S::IS_IN_ORDER {
                let from = queries;
                queries = FloatRows { at: to_queries, row: columns, ..from };
                for row in 0..queries.rows {
                    for column in (0..columns).step_by(BLOCK) {
                        let at = from.at.add(row * from.row + column);
                        let block = arranged::<S>([Avx512::load(at), Avx512::load(at.add(LANES))]);
                        let at = queries.at.add(row * columns + column);
                        Avx512::store(at, block[0]);
                        Avx512::store(at.add(LANES), block[1]);
                    }
                }
            }
            let columns = Columns { count: columns, group: scaling.group.columns, step: scaling.column_step };
            let distance = QuantizedRows::distance(bytes);
            let mut cursor = RowCursor::new(&keys, &scaling);
            let mut first = 0;
            while first + KEYS <= keys.rows {
                let later_offset = keys.later_offset(first, distance);
                let mut tile = [cursor.next(&keys, &scaling); KEYS];
                for key in &mut tile[1..] {
                    *key = cursor.next(&keys, &scaling);
                }
                for key in tile.iter().filter(|_| keys.later.is_some()) {
                    prefetch_l1(key.at.wrapping_offset(later_offset), bytes);
                }
                let to = FloatRows { at: to.at.wrapping_add(first), ..to };
                by_rows!(Avx512, queries.rows, score_tile::<S>(queries, &tile, columns, table, to));
                first += KEYS;
            }
            if first < keys.rows {
                let mut key = cursor.next(&keys, &scaling);
                let mut tile = [key; KEYS];
                let count = keys.rows - first;
                for (index, of_tile) in tile.iter_mut().enumerate().skip(1) {
                    // A missing key is replaced by the last key; its product is not copied.
                    if index < count {
                        key = cursor.next(&keys, &scaling);
                    }
                    *of_tile = key;
                }
                for row in 0..queries.rows {
                    let mut sums = [0.0; KEYS];
                    let at = queries.at.add(row * queries.row);
                    let query = FloatRows { at, rows: 1, ..queries };
                    let of_row = FloatRows { at: sums.as_mut_ptr(), row: KEYS, rows: 1 };
                    score_tile::<S, 1>(query, &tile, columns, table, of_row, 0);
                    let to = to.at.add(row * to.row + first);
                    to.copy_from_nonoverlapping(sums.as_ptr(), count);
                }
            }
        }
    }

    /// # Safety
    ///
    /// As [`scores_of`], for some queries and keys.
    #[allow(clippy::needless_range_loop, reason = "iterators would leave the vectors in memory")]
    #[inline(always)]
    unsafe fn score_tile<S: BlockType, const R: usize>(
        queries: FloatRows,
        keys: &[StoredRow; KEYS],
        Columns { count, group, step }: Columns,
        table: F,
        to: FloatRows,
        first: usize,
    ) {
        // SAFETY: as the caller promises.
        unsafe {
            let queries = FloatRows { at: queries.at.add(first * queries.row), ..queries };
            let zero = [Avx512::splat(0.0); R];
            let (mut a, mut b, mut c, mut d) = (zero, zero, zero, zero);
            let (mut column, mut place) = (0, 0);
            while column < count {
                let end = count.min(column + group);
                let mut of_keys =
                    [S::scaling(keys[0].scales.add(place), keys[0].zeros.add(place), table); KEYS];
                for (of_key, key) in of_keys[1..].iter_mut().zip(&keys[1..]) {
                    *of_key = S::scaling(key.scales.add(place), key.zeros.add(place), table);
                }
                while column < end {
                    // By name, so that the sums stay in registers whatever the compiler unrolls.
                    a = add_products::<S, R>(queries, keys[0].at, of_keys[0], table, column, a);
                    b = add_products::<S, R>(queries, keys[1].at, of_keys[1], table, column, b);
                    c = add_products::<S, R>(queries, keys[2].at, of_keys[2], table, column, c);
                    d = add_products::<S, R>(queries, keys[3].at, of_keys[3], table, column, d);
                    column += BLOCK;
                }
                place += step;
            }
            for r in 0..R {
                let ([a, b], [c, d]) = (in_order::<S>([a[r], b[r]]), in_order::<S>([c[r], d[r]]));
                let sums = Avx512::sum_of_each([a, b, c, d]);
                to.at.add((first + r) * to.row).cast::<[f32; KEYS]>().write_unaligned(sums);
            }
        }
    }

    /// Adds the products of queries with a block of a key.
    ///
    /// # Safety
    ///
    /// As [`score_tile`].
    #[inline(always)]
    unsafe fn add_products<S: BlockType, const R: usize>(
        queries: FloatRows,
        key: *const u8,
        scaling: S::Scaling,
        table: F,
        column: usize,
        mut sums: [F; R],
    ) -> [F; R] {
        // SAFETY: as the caller promises.
        unsafe {
            let [x, y] = S::load(key.add(column * S::BITS / 8), scaling, table);
            for (r, sum) in sums.iter_mut().enumerate() {
                let query = queries.at.add(r * queries.row + column);
                *sum = Avx512::fma(x, Avx512::load(query), *sum);
                *sum = Avx512::fma(y, Avx512::load(query.add(LANES)), *sum);
            }
            sums
        }
    }

    /// Values of some keys, with their weights.
    #[derive(Clone, Copy)]
    struct Values<'a> {
        weights: FloatRows,
        rows: QuantizedRows,
        /// The first row, and the number of rows.
        first: usize,
        count: usize,
        /// Bytes from a row to the one that is prefetched meanwhile.
        later_offset: isize,
        cursor: RowCursor,
        scaling: &'a RowScaling,
        table: F,
    }

    /// # Safety
    ///
    /// As [`QuantizedProducts::add_values`].
    #[inline(always)]
    unsafe fn add_values_of<S: BlockType>(
        weights: FloatRows,
        rows: QuantizedRows,
        scaling: RowScaling,
        table: F,
        to: FloatRows,
    ) {
        let distance = QuantizedRows::distance(rows.columns * S::BITS / 8);
        // Up to this row, later rows are those of the same run.
        let near = rows.later.map_or(rows.rows, |later| later.rows).saturating_sub(distance);
        let mut cursor = RowCursor::new(&rows, &scaling);
        let mut first = 0;
        while first < rows.rows {
            let end = if first < near { near } else { rows.rows };
            let count = ROWS.min(end.min(rows.rows) - first);
            let later_offset = rows.later_offset(first, distance);
            let values =
                Values { weights, rows, first, count, later_offset, cursor, scaling: &scaling, table };
            // SAFETY: as the caller promises.
            unsafe {
                by_rows!(Avx512, to.rows, add_rows::<S>(&values, &mut cursor, to));
            }
            first += count;
        }
    }

    /// # Safety
    ///
    /// As [`add_values_of`]; the rows are within the target.
    #[inline(always)]
    unsafe fn add_rows<S: BlockType, const R: usize>(
        values: &Values<'_>,
        after: &mut RowCursor,
        to: FloatRows,
        row: usize,
    ) {
        let (mut column, columns) = (0, values.rows.columns);
        while R <= 2 && column + MAX_BLOCKS * BLOCK <= columns {
            // SAFETY: as the caller promises.
            *after = unsafe { add_tile::<S, R, MAX_BLOCKS>(values, to, row, column) };
            column += MAX_BLOCKS * BLOCK;
        }
        while column < columns {
            // SAFETY: as the caller promises.
            *after = unsafe { add_tile::<S, R, MIN_BLOCKS>(values, to, row, column) };
            column += MIN_BLOCKS * BLOCK;
        }
    }

    /// Where the scales of the blocks from a column on are, behind those of the row, and whether a group
    /// starts with a block.
    #[inline(never)]
    fn places<const N: usize>(scaling: &RowScaling, column: usize) -> [(usize, bool); N] {
        std::array::from_fn(|n| {
            let column = column + n * BLOCK;
            let group = column / scaling.group.columns;
            (group * scaling.column_step, n == 0 || column == group * scaling.group.columns)
        })
    }

    /// Adds to `N` blocks of columns of `R` rows, and returns the cursor behind the values.
    ///
    /// # Safety
    ///
    /// As [`add_rows`]; the blocks are within the columns.
    #[allow(clippy::needless_range_loop, reason = "iterators would leave the vectors in memory")]
    #[inline(always)]
    unsafe fn add_tile<S: BlockType, const R: usize, const N: usize>(
        values: &Values<'_>,
        to: FloatRows,
        row: usize,
        column: usize,
    ) -> RowCursor {
        let Values { weights, rows, first, count, later_offset, mut cursor, scaling, table } = *values;
        let bytes = |columns: usize| columns * S::BITS / 8;
        let places = places::<N>(scaling, column);
        // SAFETY: as the caller promises; rows of sums have whole vectors.
        unsafe {
            let mut sums = [[[Avx512::splat(0.0); 2]; N]; R];
            for r in 0..R {
                for n in 0..N {
                    let at = to.at.add((row + r) * to.row + column + n * BLOCK);
                    sums[r][n] = arranged::<S>([Avx512::load(at), Avx512::load(at.add(LANES))]);
                }
            }
            for key in first..first + count {
                let StoredRow { at, scales, zeros } = cursor.next(&rows, scaling);
                let at = at.add(bytes(column));
                prefetch_l1(at.wrapping_offset(later_offset), bytes(N * BLOCK));
                let mut p = [Avx512::splat(0.0); R];
                for r in 0..R {
                    p[r] = Avx512::splat(*weights.at.add((row + r) * weights.row + key));
                }
                let mut of_block = S::scaling(scales.add(places[0].0), zeros.add(places[0].0), table);
                for n in 0..N {
                    let (place, starts) = places[n];
                    if n > 0 && starts {
                        of_block = S::scaling(scales.add(place), zeros.add(place), table);
                    }
                    let [x, y] = S::load(at.add(bytes(n * BLOCK)), of_block, table);
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
