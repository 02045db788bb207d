//! One number of each row: sums, products, extrema.
//!
//! Numbers are combined in f64, so that no sum of f32 overflows or loses more than its last bits. Number `i`
//! of a row goes to partial result `i % 16`; the 16 are combined by halves. A kernel that goes along rows and
//! one that goes along columns do the same for each row or column, so both give the same bits.

use super::steps::{STEP, load_end, load_step, prefetch_later, prefetch_next};
use crate::kernels::floats;
use crate::kernels::isa::{ByLevel, by_level, shells};
use crate::kernels::vector::{LANES, Lanes, RowType, each, load_at};
use crate::kernels::{Extent, Source};
use crate::types::kind::Level;

/// The combination of two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fold {
    Sum,
    SumOfSizes,
    SumOfSquares,
    /// Of squares that are f32.
    SumOfRoundedSquares,
    Product,
    Maximum,
    Minimum,
}

impl Fold {
    /// The result of two partial results.
    pub(crate) fn join(self, x: f64, y: f64) -> f64 {
        match self {
            Self::Sum | Self::SumOfSizes | Self::SumOfSquares | Self::SumOfRoundedSquares => x + y,
            Self::Product => x * y,
            Self::Maximum => f64::from(floats::maximum(x as f32, y as f32)),
            Self::Minimum => f64::from(floats::minimum(x as f32, y as f32)),
        }
    }
}

/// Partial results of a row.
pub(crate) const LANES_OF_FOLD: usize = LANES;

/// Most columns of a tile that [`FoldColumns`] goes along: their partial results stay in the first level.
pub(crate) const COLUMNS: usize = 128;

/// Writes a number of each row of a tile.
///
/// # Safety
///
/// Every element of the tile can be read, a number for each row can be written, and the machine runs the
/// kernel's level.
pub(crate) type FoldRows = unsafe fn(extent: Extent, from: Source, float: RowType, to: *mut f64);

/// Combines the rows of a tile of at most [`COLUMNS`] columns with the partial results of each column, which
/// are [`LANES_OF_FOLD`] times the columns rounded up to vectors. `first` is the number of the tile's first
/// row among those that are combined; at 0 the partial results begin.
///
/// # Safety
///
/// As for [`FoldRows`].
pub(crate) type FoldColumns =
    unsafe fn(extent: Extent, from: Source, float: RowType, first: usize, partial: *mut f64);

/// Combines the partial results of each column. The results, rounded up to whole vectors, are the
/// first partial results afterwards.
///
/// # Safety
///
/// As for [`FoldRows`].
pub(crate) type JoinColumns = unsafe fn(columns: usize, partial: *mut f64);

/// Writes a number of each column of a tile of at most [`LANES_OF_FOLD`] rows, and of columns beyond up to a
/// whole vector.
///
/// # Safety
///
/// As for [`FoldRows`].
pub(crate) type FoldFew = FoldRows;

/// Bytes between the numbers that are combined along rows and those that are prefetched
/// (decision: fold-prefetch).
const PREFETCH: usize = 4096;

/// The kernels of a fold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoldKernels {
    pub(crate) rows: FoldRows,
    pub(crate) columns: FoldColumns,
    pub(crate) join: JoinColumns,
    /// For numbers whose partial results are f32, so that many fit into registers.
    pub(crate) few: Option<FoldFew>,
}

/// The kernels of a fold for a level.
pub(crate) fn fold(level: Level, fold: Fold) -> FoldKernels {
    let table: ByLevel<FoldKernels> = match fold {
        Fold::Sum => table::<Sum>(),
        Fold::SumOfSizes => table::<SumOfSizes>(),
        Fold::SumOfSquares => table::<SumOfSquares>(),
        Fold::SumOfRoundedSquares => table::<SumOfRoundedSquares>(),
        Fold::Product => table::<Product>(),
        Fold::Maximum => table::<Maximum>(),
        Fold::Minimum => table::<Minimum>(),
    };
    table[level.row()]
}

/// How partial results of 16 numbers each are combined.
///
/// # Safety
///
/// The machine runs the level. A partial result has room for 16 f64.
trait Combine: 'static {
    type Partial<I: Lanes>: Copy;
    /// Changes nothing.
    const PAD: f32;
    /// Any order gives the same bits.
    const ANY_ORDER: bool;
    /// Partial results of columns stay in registers; code of rarer folds is short.
    const HOLDS: bool;

    unsafe fn start<I: Lanes>() -> Self::Partial<I>;
    /// Of the numbers of a vector.
    unsafe fn of<I: Lanes>(x: I::F) -> Self::Partial<I>;
    unsafe fn join<I: Lanes>(x: Self::Partial<I>, y: Self::Partial<I>) -> Self::Partial<I>;
    unsafe fn load<I: Lanes>(from: *const f64) -> Self::Partial<I>;
    unsafe fn store<I: Lanes>(to: *mut f64, partial: Self::Partial<I>);
    unsafe fn numbers<I: Lanes>(partial: Self::Partial<I>) -> I::D;
    /// The numbers of a partial result, combined by halves.
    unsafe fn number<I: Lanes>(partial: Self::Partial<I>) -> f64;
}

/// A fold of numbers in f64.
macro_rules! in_f64 {
    ($($Name:ident, $holds:literal, $start:literal, $join:ident: |$x:ident, $I:ident| $of:expr;)*) => {
        $(struct $Name;

        impl Combine for $Name {
            type Partial<I: Lanes> = I::D;
            const PAD: f32 = $start;
            const ANY_ORDER: bool = false;
            const HOLDS: bool = $holds;

            #[inline(always)]
            unsafe fn start<I: Lanes>() -> I::D {
                // SAFETY: as the caller promises.
                unsafe { I::splat_64($start) }
            }
            #[inline(always)]
            unsafe fn of<$I: Lanes>($x: $I::F) -> $I::D {
                // SAFETY: as the caller promises.
                unsafe { $of }
            }
            #[inline(always)]
            unsafe fn join<I: Lanes>(x: I::D, y: I::D) -> I::D {
                // SAFETY: as the caller promises.
                unsafe { I::$join(x, y) }
            }
            #[inline(always)]
            unsafe fn load<I: Lanes>(from: *const f64) -> I::D {
                // SAFETY: as the caller promises.
                unsafe { I::load_64(from) }
            }
            #[inline(always)]
            unsafe fn store<I: Lanes>(to: *mut f64, partial: I::D) {
                // SAFETY: as the caller promises.
                unsafe { I::store_64(to, partial) }
            }
            #[inline(always)]
            unsafe fn numbers<I: Lanes>(partial: I::D) -> I::D {
                partial
            }
            #[inline(always)]
            unsafe fn number<I: Lanes>(x: I::D) -> f64 {
                // SAFETY: as the caller promises.
                unsafe {
                    let x = I::$join(x, I::from_on_64::<8>(x));
                    let x = I::$join(x, I::from_on_64::<4>(x));
                    let x = I::$join(x, I::from_on_64::<2>(x));
                    I::first_64(I::$join(x, I::from_on_64::<1>(x)))
                }
            }
        })*
    };
}

// The product of two f32 is exact in f64.
in_f64! {
    Sum, true, 0.0, add_64: |x, I| I::widen(x);
    SumOfSizes, false, 0.0, add_64: |x, I| I::abs_64(I::widen(x));
    SumOfSquares, false, 0.0, add_64: |x, I| I::mul_64(I::widen(x), I::widen(x));
    SumOfRoundedSquares, false, 0.0, add_64: |x, I| I::widen(I::mul(x, x));
    Product, false, 1.0, mul_64: |x, I| I::widen(x);
}

/// An extremum, in f32.
macro_rules! extrema {
    ($($Name:ident, $start:expr, $join:ident;)*) => {
        $(struct $Name;

        impl Combine for $Name {
            type Partial<I: Lanes> = I::F;
            const PAD: f32 = $start;
            const ANY_ORDER: bool = true;
            const HOLDS: bool = false;

            #[inline(always)]
            unsafe fn start<I: Lanes>() -> I::F {
                // SAFETY: as the caller promises.
                unsafe { I::splat($start) }
            }
            #[inline(always)]
            unsafe fn of<I: Lanes>(x: I::F) -> I::F {
                x
            }
            #[inline(always)]
            unsafe fn join<I: Lanes>(x: I::F, y: I::F) -> I::F {
                // SAFETY: as the caller promises.
                unsafe { I::$join(x, y) }
            }
            #[inline(always)]
            unsafe fn load<I: Lanes>(from: *const f64) -> I::F {
                // SAFETY: as the caller promises.
                unsafe { I::load(from.cast()) }
            }
            #[inline(always)]
            unsafe fn store<I: Lanes>(to: *mut f64, partial: I::F) {
                // SAFETY: as the caller promises.
                unsafe { I::store(to.cast(), partial) }
            }
            #[inline(always)]
            unsafe fn numbers<I: Lanes>(partial: I::F) -> I::D {
                // SAFETY: as the caller promises.
                unsafe { I::widen(partial) }
            }
            #[inline(always)]
            unsafe fn number<I: Lanes>(x: I::F) -> f64 {
                // SAFETY: as the caller promises.
                unsafe {
                    let x = I::$join(x, I::from_on::<8>(x));
                    let x = I::$join(x, I::from_on::<4>(x));
                    let x = I::$join(x, I::from_on::<2>(x));
                    f64::from(I::first(I::$join(x, I::from_on::<1>(x))))
                }
            }
        })*
    };
}

extrema! {
    Maximum, f32::NEG_INFINITY, maximum;
    Minimum, f32::INFINITY, minimum;
}

/// # Safety
///
/// As [`FoldRows`].
#[inline(always)]
unsafe fn fold_rows<C: Combine, I: Lanes>(extent: Extent, from: Source, float: RowType, to: *mut f64) {
    let Extent { rows, columns } = extent;
    // Of whole rows.
    let distance = from.row_stride * (PREFETCH / from.row_stride.unsigned_abs().max(1)).max(1) as isize;
    for row in 0..rows {
        let from = from.row::<u8>(row);
        let mut column = 0;
        // SAFETY: the caller promises that every element can be read.
        unsafe {
            let mut partial = C::start::<I>();
            while column + STEP <= columns {
                prefetch_next(from, distance, float, column);
                let x = load_step::<I>(from, float, column);
                let [a, b, c, d] = each!(4, |i| C::of::<I>(x[i]));
                partial = match C::ANY_ORDER {
                    // A combination waits for the one before it.
                    true => C::join::<I>(partial, C::join::<I>(C::join::<I>(a, b), C::join::<I>(c, d))),
                    false => {
                        let partial = C::join::<I>(C::join::<I>(partial, a), b);
                        C::join::<I>(C::join::<I>(partial, c), d)
                    }
                };
                column += STEP;
            }
            while column < columns {
                let x = load_end::<I>(from, float, column, columns - column, C::PAD);
                partial = C::join::<I>(partial, C::of::<I>(x));
                column += LANES;
            }
            to.add(row).write(C::number::<I>(partial));
        }
    }
}

/// # Safety
///
/// As [`FoldColumns`].
#[inline(always)]
unsafe fn fold_columns<C: Combine, I: Lanes>(
    extent: Extent,
    from: Source,
    float: RowType,
    first: usize,
    partial: *mut f64,
) {
    let Extent { rows, columns } = extent;
    if matches!(I::LEVEL, Level::Avx512) && C::HOLDS && float == RowType::F32 && rows >= LANES {
        // SAFETY: as the caller promises.
        return unsafe { fold_held::<C, I>(extent, from, first, partial) };
    }
    let vectors = columns.div_ceil(LANES);
    // Of longer rows in memory, whose other columns lie between (decision: gradient-prefetch).
    let is_apart = from.row_stride.unsigned_abs() > columns * float.bytes();
    // SAFETY: the caller promises that every element can be read, and that there is room for the partial
    // results.
    unsafe {
        if first == 0 {
            for vector in 0..vectors * LANES {
                C::store::<I>(partial.add(vector * LANES), C::start::<I>());
            }
        }
        for row in 0..rows {
            if is_apart {
                prefetch_later(from, row, columns * float.bytes());
            }
            let from = from.row::<u8>(row);
            let mut partial = partial.add((first + row) % LANES * vectors * LANES);
            let mut column = 0;
            while column + LANES <= columns {
                let x = load_at::<I>(from, float, column);
                C::store::<I>(partial, C::join::<I>(C::load::<I>(partial), C::of::<I>(x)));
                partial = partial.add(LANES);
                column += LANES;
            }
            if column < columns {
                let x = load_end::<I>(from, float, column, columns - column, C::PAD);
                C::store::<I>(partial, C::join::<I>(C::load::<I>(partial), C::of::<I>(x)));
            }
        }
    }
}

/// Partial results that registers hold beside a row (decision: fold-held).
const HELD: usize = 8;

/// As [`fold_columns`] of f32, some of whose partial results stay in registers along all rows that go to
/// them.
///
/// # Safety
///
/// As [`FoldColumns`].
#[inline(always)]
unsafe fn fold_held<C: Combine, I: Lanes>(extent: Extent, from: Source, first: usize, partial: *mut f64) {
    let Extent { rows, columns } = extent;
    let vectors = columns.div_ceil(LANES);
    for column in (0..columns).step_by(LANES) {
        let count = (columns - column).min(LANES);
        for held in (0..LANES).step_by(HELD) {
            // The first row that goes to the first of the partial results, or would.
            let begin = (held as isize - first as isize).rem_euclid(LANES as isize);
            let begin = if begin > (LANES - HELD) as isize { begin - LANES as isize } else { begin };
            // SAFETY: the caller promises that rows within the extent can be read, and that there is room
            // for the partial results.
            unsafe {
                let at = |i: usize| partial.add((held + i) * vectors * LANES + column);
                let mut sums = match first {
                    0 => each!(8, |_i| C::start::<I>()),
                    _ => each!(8, |i| C::load::<I>(at(i))),
                };
                let mut row = begin;
                while row < rows as isize {
                    sums = each!(8, |i| {
                        let row = (row + i as isize) as usize;
                        match row < rows {
                            true => {
                                let x = I::load_first(from.row::<f32>(row).add(column), count, C::PAD);
                                C::join::<I>(sums[i], C::of::<I>(x))
                            }
                            false => sums[i],
                        }
                    });
                    row += LANES as isize;
                }
                each!(8, |i| C::store::<I>(at(i), sums[i]));
            }
        }
    }
}

/// # Safety
///
/// As [`JoinColumns`].
#[inline(always)]
unsafe fn join_columns<C: Combine, I: Lanes>(columns: usize, partial: *mut f64) {
    let vectors = columns.div_ceil(LANES);
    // SAFETY: the caller promises that the partial results are there.
    unsafe {
        let mut half = LANES / 2;
        while half > 0 {
            for vector in 0..half * vectors {
                let (x, y) = (partial.add(vector * LANES), partial.add((half * vectors + vector) * LANES));
                C::store::<I>(x, C::join::<I>(C::load::<I>(x), C::load::<I>(y)));
            }
            half /= 2;
        }
        for vector in 0..vectors {
            let x = partial.add(vector * LANES);
            I::store_64(x, C::numbers::<I>(C::load::<I>(x)));
        }
    }
}

/// # Safety
///
/// As [`FoldFew`].
#[inline(always)]
unsafe fn fold_few<C: Combine, I: Lanes>(extent: Extent, from: Source, float: RowType, to: *mut f64) {
    let Extent { rows, columns } = extent;
    for column in (0..columns).step_by(LANES) {
        // SAFETY: the caller promises that every element can be read, and that there is room for the numbers.
        unsafe {
            let mut partial = [C::start::<I>(); LANES];
            for (row, partial) in partial.iter_mut().enumerate().take(rows) {
                let from = from.row::<u8>(row);
                let x = load_end::<I>(from, float, column, columns - column, C::PAD);
                *partial = C::join::<I>(*partial, C::of::<I>(x));
            }
            // To combine a number with one beyond the rows changes nothing.
            let mut half = rows.next_power_of_two() / 2;
            while half > 0 {
                for row in 0..half {
                    partial[row] = C::join::<I>(partial[row], partial[half + row]);
                }
                half /= 2;
            }
            I::store_64(to.add(column), C::numbers::<I>(partial[0]));
        }
    }
}

shells! {
    I:
    fn few[C: Combine](extent: Extent, from: Source, float: RowType, to: *mut f64) {
        fold_few::<C, I>(extent, from, float, to)
    }

    fn rows[C: Combine](extent: Extent, from: Source, float: RowType, to: *mut f64) {
        fold_rows::<C, I>(extent, from, float, to)
    }

    fn columns[C: Combine](extent: Extent, from: Source, float: RowType, first: usize, partial: *mut f64) {
        fold_columns::<C, I>(extent, from, float, first, partial)
    }

    fn join[C: Combine](columns: usize, partial: *mut f64) {
        join_columns::<C, I>(columns, partial)
    }
}

const fn table<C: Combine>() -> ByLevel<FoldKernels> {
    macro_rules! of {
        ($level:ident) => {
            FoldKernels {
                rows: $level::rows::<C>,
                columns: $level::columns::<C>,
                join: $level::join::<C>,
                few: if C::ANY_ORDER { Some($level::few::<C>) } else { None },
            }
        };
    }
    by_level!(of!)
}
