//! Attention of few queries: a lane of a vector belongs to an element of a key or of a value, and SoftMax
//! goes along rows, whose lanes are keys.
//!
//! Keys and values are read from memory once and in order: later rows are prefetched one by one, early enough
//! that memory keeps up. So the loops can take several keys together, and go over a group of keys again for
//! each few queries, without waiting for memory. Level Avx512 widens elements of 16 bits in registers, the
//! others group by group.

use crate::kernels::isa::{self, shells};
use crate::kernels::pointwise::half::{Bf16, F16};
use crate::kernels::prefetch_l1;
use crate::kernels::rows::RowType;
use crate::kernels::vector::load_at;
use crate::kernels::vector::{LANES, Lanes};
use crate::types::kind::Level;

/// Numbers of a vector. Rows of queries and of sums are padded to a multiple of it; the padding of queries is
/// 0.
pub(crate) const VECTOR: usize = LANES;

/// Rows of keys or values that are widened together; they fit into the first-level cache.
pub(crate) const WIDENED_ROWS: usize = 32;

/// Keys whose products with a query are computed together.
const KEYS: usize = 4;

/// Prefetch distance in bytes: a page, within which hardware prefetchers stay (decision: token-prefetch).
pub(super) const DISTANCE: usize = 4096;

/// Rows of keys or of values, whose elements lie next to each other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenRows {
    pub(crate) at: *const u8,
    pub(crate) row_stride: isize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) float: RowType,
    /// Address to prefetch; it need not be valid.
    pub(crate) next: *const u8,
    /// The rows were written just before, so that nothing is prefetched.
    pub(crate) is_cached: bool,
}

impl TokenRows {
    fn row(&self, row: usize) -> *const u8 {
        self.at.wrapping_offset(self.row_stride * row as isize)
    }

    /// The row of this index, or one of the next tokens.
    #[inline(always)]
    fn this_or_next_row(&self, row: usize) -> *const u8 {
        match row.checked_sub(self.rows) {
            None => self.row(row),
            Some(past) => self.next.wrapping_offset(self.row_stride * past as isize),
        }
    }
}

/// Rows of f32, `row` elements from one to the next.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FloatRows {
    pub(crate) at: *mut f32,
    pub(crate) row: usize,
    pub(crate) rows: usize,
}

shells! {
    I:
    fn scores[](queries: FloatRows, keys: TokenRows, widened: *mut f32, to: FloatRows) {
        scores_of::<I>(queries, keys, widened, to)
    }

    fn add_values[](weights: FloatRows, values: TokenRows, widened: *mut f32, to: FloatRows) {
        add_values_of::<I, false>(weights, values, widened, to)
    }

    fn add_values_exactly[](weights: FloatRows, values: TokenRows, widened: *mut f32, to: FloatRows) {
        add_values_of::<I, true>(weights, values, widened, to)
    }

    fn maximum[](row: *const f32, count: usize) -> f32 {
        maximum_of::<I>(row, count)
    }

    fn exponentials[](row: *mut f32, count: usize, max: f32) -> f32 {
        exponentials_of::<I, false>(row, count, max)
    }

    fn exponentials_exactly[](row: *mut f32, count: usize, max: f32) -> f32 {
        exponentials_of::<I, true>(row, count, max)
    }
}

/// The kernels of attention of few queries at a level.
///
/// # Safety of the methods
///
/// The machine runs the level. Rows can be read, and written through a pointer that is not `const`; operands
/// of one call do not overlap. `widened` has room for [`WIDENED_ROWS`] rows of f32, of a multiple of
/// [`VECTOR`] elements, unless the rows of tokens are f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DecodeKernels {
    level: Level,
}

/// Calls the shell of a level.
macro_rules! at_level {
    ($kernels:expr, $shell:ident($($argument:expr),*)) => {{
        // SAFETY: as the caller promises.
        unsafe {
            isa::at_level!($kernels.level, $shell($($argument),*))
        }
    }};
}

impl DecodeKernels {
    pub(crate) fn new(level: Level) -> Self {
        Self { level }
    }

    /// Writes the products of each query with each key, a row for each query. The elements of a query up to
    /// the next multiple of [`VECTOR`] are 0.
    ///
    /// # Safety
    ///
    /// See the type.
    pub(crate) unsafe fn scores(
        &self,
        queries: FloatRows,
        keys: TokenRows,
        widened: *mut f32,
        to: FloatRows,
    ) {
        debug_assert_eq!(queries.rows, to.rows);
        at_level!(self, scores(queries, keys, widened, to))
    }

    /// Adds to each row the values, each times the weight of its key in the same row of weights, key by key;
    /// if `is_exact`, nothing where a weight is 0, so that a value that is not finite does not reach a query
    /// that masks its key. Rows have a multiple of [`VECTOR`] elements.
    ///
    /// # Safety
    ///
    /// See the type.
    pub(crate) unsafe fn add_values(
        &self,
        weights: FloatRows,
        values: TokenRows,
        widened: *mut f32,
        to: FloatRows,
        is_exact: bool,
    ) {
        debug_assert_eq!(weights.rows, to.rows);
        match is_exact {
            true => at_level!(self, add_values_exactly(weights, values, widened, to)),
            false => at_level!(self, add_values(weights, values, widened, to)),
        }
    }

    /// The largest number of a row; NaN does not count. −∞ if there is none.
    ///
    /// # Safety
    ///
    /// See the type.
    pub(crate) unsafe fn maximum(&self, row: *const f32, count: usize) -> f32 {
        at_level!(self, maximum(row, count))
    }

    /// Turns a row of scores into the exponentials of the distances from a number that is not below them, and
    /// returns their sum. A subnormal result becomes 0 unless `is_exact`.
    ///
    /// # Safety
    ///
    /// See the type.
    pub(crate) unsafe fn exponentials(&self, row: *mut f32, count: usize, max: f32, is_exact: bool) -> f32 {
        match is_exact {
            true => at_level!(self, exponentials_exactly(row, count, max)),
            false => at_level!(self, exponentials(row, count, max)),
        }
    }
}

/// The type of elements of tokens that a kernel is compiled for.
trait TokenFloat {
    const TYPE: RowType;
}

impl TokenFloat for f32 {
    const TYPE: RowType = RowType::F32;
}

impl TokenFloat for Bf16 {
    const TYPE: RowType = RowType::Bf16;
}

impl TokenFloat for F16 {
    const TYPE: RowType = RowType::F16;
}

/// Tokens that stay in the first-level cache while several passes go over them.
#[derive(Clone, Copy)]
struct TokenGroup<'a> {
    at: *const u8,
    stride: isize,
    count: usize,
    columns: usize,
    /// The tokens that are prefetched while the group is read for the first time.
    later: Option<LaterTokens<'a>>,
}

/// Rows to prefetch: those at the prefetch distance from the rows of a group.
#[derive(Clone, Copy)]
struct LaterTokens<'a> {
    tokens: &'a TokenRows,
    first: usize,
    bytes: usize,
}

impl<'a> TokenGroup<'a> {
    /// The group that starts at a row.
    #[inline(always)]
    fn new(tokens: &'a TokenRows, first: usize) -> Self {
        let bytes = tokens.columns * tokens.float.bytes();
        let later = LaterTokens { tokens, first: first + DISTANCE.div_ceil(bytes.max(1)), bytes };
        Self {
            at: tokens.row(first),
            stride: tokens.row_stride,
            count: WIDENED_ROWS.min(tokens.rows - first),
            columns: tokens.columns,
            later: (!tokens.is_cached).then_some(later),
        }
    }

    /// The group in f32: as it is, or widened to a place.
    ///
    /// # Safety
    ///
    /// As the methods of [`DecodeKernels`].
    #[inline(always)]
    unsafe fn in_f32<I: Lanes>(self, float: RowType, widened: *mut f32) -> Self {
        if float == RowType::F32 {
            return self;
        }
        let row = self.columns.next_multiple_of(LANES);
        for index in 0..self.count {
            self.prefetch(index);
            // SAFETY: as the caller promises.
            unsafe { widen::<I>(self.row(index), float, self.columns, widened.add(index * row)) };
        }
        Self { at: widened.cast_const().cast(), stride: 4 * row as isize, later: None, ..self }
    }

    #[inline(always)]
    fn row(&self, index: usize) -> *const u8 {
        self.at.wrapping_offset(self.stride * index as isize)
    }

    /// Prefetches a later row.
    #[inline(always)]
    fn prefetch(&self, index: usize) {
        if let Some(LaterTokens { tokens, first, bytes }) = self.later {
            prefetch_l1(tokens.this_or_next_row(first + index), bytes);
        }
    }
}

/// Widens a row of tokens.
///
/// # Safety
///
/// The row can be read and the target written, and the machine runs the level.
#[inline(always)]
unsafe fn widen<I: Lanes>(from: *const u8, float: RowType, columns: usize, to: *mut f32) {
    let whole = columns - columns % LANES;
    // SAFETY: as the caller promises; vectors end at the last column.
    unsafe {
        match float {
            RowType::F16 => {
                for column in (0..whole).step_by(LANES) {
                    I::store(to.add(column), I::load_f16(from.cast::<u16>().add(column)));
                }
            }
            _ => {
                for column in (0..whole).step_by(LANES) {
                    I::store(to.add(column), I::load_bf16(from.cast::<u16>().add(column)));
                }
            }
        }
        if whole < columns {
            let rest = I::load_part(from.add(whole * float.bytes()), float, columns - whole, 0.0);
            I::store(to.add(whole), rest);
        }
    }
}

/// Calls a function for each group of tokens, with the group and its first row as last arguments: with the
/// tokens as they are, if `$in_registers` and their elements have 16 bits, else with rows of f32
/// (decision: decode-in-registers). Its last generic is the type of the elements.
macro_rules! by_groups {
    ($I:ident, $tokens:expr, $widened:expr, $in_registers:expr,
        $function:ident::<$($generic:tt),*>($($argument:expr),*)) => {{
        let tokens: &TokenRows = $tokens;
        for first in (0..tokens.rows).step_by(WIDENED_ROWS) {
            let group = TokenGroup::new(tokens, first);
            match tokens.float {
                RowType::Bf16 if $in_registers => {
                    $function::<$($generic,)* Bf16>($($argument,)* group, first);
                }
                RowType::F16 if $in_registers => {
                    $function::<$($generic,)* F16>($($argument,)* group, first);
                }
                float => {
                    $function::<$($generic,)* f32>($($argument,)* group.in_f32::<$I>(float, $widened), first);
                }
            }
        }
    }};
}

/// Calls a function for blocks of rows, with the first row as its last argument; its last generic is the
/// number of rows. Levels with few registers take one row at a time.
macro_rules! by_rows {
    ($I:ident, $rows:expr, $function:ident::<$($generic:tt),*>($($argument:expr),*)) => {{
        let rows: usize = $rows;
        let mut row = 0;
        if $I::HAS_MANY_REGISTERS {
            while row + 4 <= rows {
                $function::<$($generic,)* 4>($($argument,)* row);
                row += 4;
            }
            if row + 2 <= rows {
                $function::<$($generic,)* 2>($($argument,)* row);
                row += 2;
            }
        }
        while row < rows {
            $function::<$($generic,)* 1>($($argument,)* row);
            row += 1;
        }
    }};
}

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
pub(super) use by_rows;

/// # Safety
///
/// As [`scores`](DecodeKernels::scores).
#[inline(always)]
unsafe fn scores_of<I: Lanes>(queries: FloatRows, keys: TokenRows, widened: *mut f32, to: FloatRows) {
    // SAFETY: as the caller promises.
    unsafe {
        by_groups!(I, &keys, widened, I::HAS_MANY_REGISTERS, score_group::<I>(queries, to));
    }
}

/// # Safety
///
/// As [`scores_of`], for a group of keys.
#[inline(always)]
unsafe fn score_group<I: Lanes, T: TokenFloat>(
    queries: FloatRows,
    to: FloatRows,
    group: TokenGroup<'_>,
    first: usize,
) {
    for key in (0..group.count).step_by(KEYS) {
        let here = KEYS.min(group.count - key);
        (key..key + here).for_each(|index| group.prefetch(index));
        // A missing key is replaced by the last key; its product is not written.
        let rows: [*const u8; KEYS] = std::array::from_fn(|index| group.row(key + index.min(here - 1)));
        let to = FloatRows { at: to.at.wrapping_add(first + key), ..to };
        // SAFETY: as the caller promises.
        unsafe { by_rows!(I, queries.rows, score_tile::<I, T>(queries, rows, here, group.columns, to)) };
    }
}

/// # Safety
///
/// As [`scores_of`], for some queries and keys.
#[allow(clippy::needless_range_loop, reason = "iterators would leave the vectors in memory")]
#[inline(always)]
unsafe fn score_tile<I: Lanes, T: TokenFloat, const R: usize>(
    queries: FloatRows,
    keys: [*const u8; KEYS],
    count: usize,
    columns: usize,
    to: FloatRows,
    first: usize,
) {
    // SAFETY: as the caller promises.
    unsafe {
        let mut sums = [[I::splat(0.0); KEYS]; R];
        let queries_at = queries.at.add(first * queries.row);
        let whole = columns - columns % LANES;
        let mut column = 0;
        while column < whole {
            let mut k = [I::splat(0.0); KEYS];
            for i in 0..KEYS {
                k[i] = load_at::<I>(keys[i], T::TYPE, column);
            }
            for r in 0..R {
                let q = I::load(queries_at.add(r * queries.row + column));
                for i in 0..KEYS {
                    sums[r][i] = I::fma(k[i], q, sums[r][i]);
                }
            }
            column += LANES;
        }
        if whole < columns {
            let mut k = [I::splat(0.0); KEYS];
            for i in 0..KEYS {
                k[i] = I::load_part(keys[i].add(whole * T::TYPE.bytes()), T::TYPE, columns - whole, 0.0);
            }
            for r in 0..R {
                let q = I::load(queries_at.add(r * queries.row + whole));
                for i in 0..KEYS {
                    sums[r][i] = I::fma(k[i], q, sums[r][i]);
                }
            }
        }
        for (r, &sums) in sums.iter().enumerate() {
            let sums = I::sum_of_each(sums);
            write_sums(sums, count, to.at.add((first + r) * to.row));
        }
    }
}

/// Writes the sums of the first `count` keys.
///
/// # Safety
///
/// So many numbers, at most [`KEYS`], can be written to the target.
#[inline(always)]
pub(super) unsafe fn write_sums(sums: [f32; KEYS], count: usize, to: *mut f32) {
    // SAFETY: as the caller promises; all sums are written only if all count.
    unsafe {
        if count == KEYS {
            to.cast::<[f32; KEYS]>().write_unaligned(sums);
        } else {
            to.copy_from_nonoverlapping(sums.as_ptr(), count);
        }
    }
}

/// # Safety
///
/// As [`add_values`](DecodeKernels::add_values).
#[inline(always)]
unsafe fn add_values_of<I: Lanes, const EXACT: bool>(
    weights: FloatRows,
    values: TokenRows,
    widened: *mut f32,
    to: FloatRows,
) {
    // SAFETY: as the caller promises.
    unsafe {
        by_groups!(I, &values, widened, I::HAS_MANY_REGISTERS && !EXACT, add_group::<I, EXACT>(weights, to));
    }
}

/// # Safety
///
/// As [`add_values_of`], for a group of values.
#[inline(always)]
unsafe fn add_group<I: Lanes, const EXACT: bool, T: TokenFloat>(
    weights: FloatRows,
    to: FloatRows,
    mut group: TokenGroup<'_>,
    first: usize,
) {
    let weights = FloatRows { at: weights.at.wrapping_add(first), ..weights };
    // SAFETY: as the caller promises.
    unsafe {
        let mut row = 0;
        while row < to.rows {
            let left = to.rows - row;
            match left {
                4.. if I::HAS_MANY_REGISTERS && !EXACT => {
                    add_rows::<I, EXACT, T, 4, 4>(weights, &mut group, to, row);
                    row += 4;
                }
                2.. if I::HAS_MANY_REGISTERS && !EXACT => {
                    add_rows::<I, EXACT, T, 2, 8>(weights, &mut group, to, row);
                    row += 2;
                }
                _ if I::HAS_MANY_REGISTERS && !EXACT => {
                    add_rows::<I, EXACT, T, 1, 8>(weights, &mut group, to, row);
                    row += 1;
                }
                _ => {
                    add_rows::<I, EXACT, T, 1, 4>(weights, &mut group, to, row);
                    row += 1;
                }
            }
        }
    }
}

/// # Safety
///
/// As [`add_values_of`]; the rows are within the target.
#[inline(always)]
unsafe fn add_rows<I: Lanes, const EXACT: bool, T: TokenFloat, const R: usize, const N: usize>(
    weights: FloatRows,
    group: &mut TokenGroup<'_>,
    to: FloatRows,
    row: usize,
) {
    let weights = FloatRows { at: weights.at.wrapping_add(row * weights.row), ..weights };
    let to = FloatRows { at: to.at.wrapping_add(row * to.row), ..to };
    let columns = group.columns;
    let mut column = 0;
    // SAFETY: as the caller promises.
    unsafe {
        while column + N * LANES <= columns {
            add_tile::<I, EXACT, T, R, N>(weights, group, column, to);
            group.later = None;
            column += N * LANES;
        }
        while N > 4 && column + 4 * LANES <= columns {
            add_tile::<I, EXACT, T, R, 4>(weights, group, column, to);
            group.later = None;
            column += 4 * LANES;
        }
        while column < columns {
            add_tile::<I, EXACT, T, R, 1>(weights, group, column, to);
            group.later = None;
            column += LANES;
        }
    }
}

/// # Safety
///
/// As [`add_rows`]; all vectors but the last start and end within the columns.
#[allow(clippy::needless_range_loop, reason = "iterators would leave the vectors in memory")]
#[inline(always)]
unsafe fn add_tile<I: Lanes, const EXACT: bool, T: TokenFloat, const R: usize, const N: usize>(
    weights: FloatRows,
    group: &TokenGroup<'_>,
    column: usize,
    to: FloatRows,
) {
    // SAFETY: as the caller promises; rows of sums have whole vectors.
    unsafe {
        let mut sums = [[I::splat(0.0); N]; R];
        for r in 0..R {
            for n in 0..N {
                sums[r][n] = I::load(to.at.add(r * to.row + column + n * LANES));
            }
        }
        let rest = group.columns - column;
        for key in 0..group.count {
            group.prefetch(key);
            let at = group.row(key).wrapping_add(column * T::TYPE.bytes());
            let mut v = [I::splat(0.0); N];
            if N == 1 && rest < LANES {
                v[0] = I::load_part(at, T::TYPE, rest, 0.0);
            } else {
                for n in 0..N {
                    v[n] = load_at::<I>(at, T::TYPE, n * LANES);
                }
            }
            for r in 0..R {
                let p = I::splat(*weights.at.add(r * weights.row + key));
                for n in 0..N {
                    sums[r][n] = match EXACT {
                        true => I::add_product(v[n], p, sums[r][n]),
                        false => I::fma(v[n], p, sums[r][n]),
                    };
                }
            }
        }
        for r in 0..R {
            for n in 0..N {
                I::store(to.at.add(r * to.row + column + n * LANES), sums[r][n]);
            }
        }
    }
}

/// # Safety
///
/// As [`maximum`](DecodeKernels::maximum).
#[inline(always)]
unsafe fn maximum_of<I: Lanes>(row: *const f32, count: usize) -> f32 {
    const PAD: f32 = f32::NEG_INFINITY;
    // SAFETY: as the caller promises. The second operand of the maximum, which is the result if the first
    // is NaN, never is NaN.
    unsafe {
        let mut largest = I::splat(PAD);
        for column in (0..count).step_by(LANES) {
            let x = match count - column {
                LANES.. => I::load(row.add(column)),
                rest => I::load_first(row.add(column), rest, PAD),
            };
            largest = I::larger(x, largest);
        }
        I::largest(largest)
    }
}

/// # Safety
///
/// As [`exponentials`](DecodeKernels::exponentials).
#[inline(always)]
unsafe fn exponentials_of<I: Lanes, const SUBNORMAL: bool>(row: *mut f32, count: usize, max: f32) -> f32 {
    // SAFETY: as the caller promises. −∞ less a finite number is −∞, not NaN.
    unsafe {
        let base = I::splat(max.max(f32::MIN));
        let mut sum = I::splat(0.0);
        for column in (0..count).step_by(LANES) {
            let at = row.add(column);
            let rest = count - column;
            let x = match rest {
                LANES.. => I::load(at),
                rest => I::load_first(at, rest, f32::NEG_INFINITY),
            };
            let x = I::exp_of_score::<SUBNORMAL>(I::sub(x, base));
            sum = I::add(sum, x);
            match rest {
                LANES.. => I::store(at, x),
                rest => I::store_first(at, rest, x),
            }
        }
        I::sum(sum)
    }
}
