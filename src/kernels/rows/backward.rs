//! Gradients of ops that work on rows. They compute in f64, in vectors; the products whose sums are the
//! gradient of gamma in f32, as they are stored.

use super::norm::scaled as scaled_by;
use super::pass::RowPass;
use super::steps::{STEP, load_end, prefetch_later, prefetch_next, store_end};
use crate::kernels::isa::{ByLevel, by_level, shells};
use crate::kernels::vector::{LANES, Lanes, RowType};
use crate::kernels::{Extent, Source, Target};
use crate::types::kind::Level;

/// Rows in memory, and the type of their elements.
pub(crate) type TypedRows = (Source, RowType);

/// The operands of the gradients of SoftMax and of its logarithm.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SoftMaxBackward {
    pub(crate) extent: Extent,
    pub(crate) gradient: TypedRows,
    /// The results of the forward op.
    pub(crate) result: TypedRows,
    pub(crate) to: Target,
    pub(crate) to_type: RowType,
    pub(crate) pass: RowPass,
    /// The sum of each row, or of each part of a row, and a statistic that is not used; else as for
    /// [`SoftMax`](super::SoftMax::measured).
    pub(crate) measured: [*mut f64; 2],
}

/// The operands of the gradient of the logarithm of SoftMax.
pub(crate) type LogSoftMaxBackward = SoftMaxBackward;

/// The operands of the gradient of LayerNorm.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NormBackward {
    pub(crate) extent: Extent,
    pub(crate) source: TypedRows,
    pub(crate) gradient: TypedRows,
    /// Rows of f32 by which the gradient is multiplied first.
    pub(crate) gamma: Option<Source>,
    /// The mean of each row, and one over its deviation.
    pub(crate) means: *const f64,
    pub(crate) factors: *const f64,
    pub(crate) to: Target,
    pub(crate) to_type: RowType,
    /// Elements of a row, of which the extent may have a part.
    pub(crate) length: usize,
    pub(crate) pass: RowPass,
    /// The sum of the gradient of each row, or of each part of a row, and that of its products with the
    /// normalised source; else as for [`SoftMax`](super::SoftMax::measured).
    pub(crate) measured: [*mut f64; 2],
}

/// The sums of a row from those of its parts, in order.
pub(crate) fn join_sums(parts: impl Iterator<Item = [f64; 2]>) -> [f64; 2] {
    parts.fold([0.0; 2], |[sum, products], [more, more_products]| [sum + more, products + more_products])
}

/// The operands of the products whose sums are the gradient of gamma.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NormProducts {
    pub(crate) extent: Extent,
    pub(crate) source: TypedRows,
    pub(crate) gradient: TypedRows,
    /// For each column, or for each row, the mean and one over the deviation.
    pub(crate) means: *const f64,
    pub(crate) factors: *const f64,
    pub(crate) is_by_row: bool,
    /// Rows of f32.
    pub(crate) to: Target,
}

/// The operands of the gradient of PReLU.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PreluBackward {
    pub(crate) extent: Extent,
    pub(crate) source: TypedRows,
    pub(crate) slope: TypedRows,
    pub(crate) gradient: TypedRows,
    pub(crate) to: Target,
    pub(crate) to_type: RowType,
}

/// The operands of the products whose sums are the gradient of the slope.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PreluProducts {
    pub(crate) extent: Extent,
    pub(crate) source: TypedRows,
    pub(crate) gradient: TypedRows,
    /// Rows of f32.
    pub(crate) to: Target,
}

/// A kernel over the rows of a tile.
///
/// # Safety
///
/// As for [`SoftMaxRows`](super::SoftMaxRows); statistics can be read for each row, or each column.
pub(crate) type RowKernel<Operands> = unsafe fn(operands: &Operands);

macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident, $table:ident, $Operands:ty;)*) => {
        $($(#[$doc])*
        pub(crate) fn $name(level: Level) -> RowKernel<$Operands> {
            const TABLE: ByLevel<RowKernel<$Operands>> = by_level!($table);
            TABLE[level.row()]
        })*
    };
}

kernels! {
    /// `y · (d − sum(y · d))`, for a level.
    softmax_backward, of_softmax, SoftMaxBackward;
    /// `d − exp(y) · sum(d)`, for a level.
    log_softmax_backward, of_log_softmax, LogSoftMaxBackward;
    /// `(g − mean(g) − x' · mean(g · x')) · factor`, for a level.
    norm_backward, of_norm, NormBackward;
    /// `d · (x − mean) · factor`, for a level.
    norm_products, products_of_norm, NormProducts;
    /// `d` for a source above 0, else `d · slope`, for a level.
    prelu_backward, of_prelu, PreluBackward;
    /// 0 for a source above 0, else `d · x`, for a level.
    prelu_products, products_of_prelu, PreluProducts;
}

shells! {
    I:
    fn of_softmax[](operands: &SoftMaxBackward) {
        for row in 0..operands.extent.rows {
            softmax_row::<I, false>(operands, row);
        }
    }

    fn of_log_softmax[](operands: &LogSoftMaxBackward) {
        for row in 0..operands.extent.rows {
            softmax_row::<I, true>(operands, row);
        }
    }

    fn of_norm[](operands: &NormBackward) {
        for row in 0..operands.extent.rows {
            norm_row::<I>(operands, row);
        }
    }

    fn products_of_norm[](operands: &NormProducts) {
        norm_products_of_tile::<I>(operands)
    }

    fn of_prelu[](operands: &PreluBackward) {
        for row in 0..operands.extent.rows {
            prelu_row::<I>(operands, row);
        }
    }

    fn products_of_prelu[](operands: &PreluProducts) {
        for row in 0..operands.extent.rows {
            prelu_products_row::<I>(operands, row);
        }
    }
}

/// The vector at a column of a row, with zeros beyond the row.
///
/// # Safety
///
/// The elements of the row can be read, and the machine runs the level.
#[inline(always)]
unsafe fn at<I: Lanes>((from, float): TypedRows, row: usize, column: usize, count: usize) -> I::F {
    // SAFETY: as the caller promises.
    unsafe { load_end::<I>(from.row::<u8>(row), float, column, count, 0.0) }
}

/// Fewest bytes from row to row for which operands are prefetched: the next lines of shorter ones are those
/// that the hardware prefetches (decision: gradient-prefetch).
const MIN_PREFETCHED: usize = 1024;

/// True if later rows of both operands are prefetched.
#[inline(always)]
fn are_prefetched(operands: [TypedRows; 2]) -> bool {
    operands.iter().all(|(from, _)| from.row_stride.unsigned_abs() >= MIN_PREFETCHED)
}

/// As [`at`], for numbers of f64.
///
/// # Safety
///
/// As [`at`].
#[inline(always)]
unsafe fn at_64<I: Lanes>(from: *const f64, column: usize, count: usize) -> I::D {
    let mut part = [0.0; LANES];
    // SAFETY: as the caller promises.
    unsafe {
        if count >= LANES {
            return I::load_64(from.add(column));
        }
        part.as_mut_ptr().copy_from_nonoverlapping(from.add(column), count);
        I::load_64(part.as_ptr())
    }
}

/// The sum of the numbers of a vector, by halves.
///
/// # Safety
///
/// The machine runs the level.
#[inline(always)]
unsafe fn total<I: Lanes>(x: I::D) -> f64 {
    let mut numbers = [0.0; LANES];
    // SAFETY: as the caller promises; the numbers are a vector.
    unsafe { I::store_64(numbers.as_mut_ptr(), x) };
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            numbers[i] += numbers[i + half];
        }
        half /= 2;
    }
    numbers[0]
}

/// The sum of a row, or of a part of one, which all its results need.
///
/// # Safety
///
/// As [`RowKernel`].
#[inline(always)]
unsafe fn softmax_sum<I: Lanes, const LOGARITHM: bool>(operands: &SoftMaxBackward, row: usize) -> f64 {
    let &SoftMaxBackward { extent, gradient, result, .. } = operands;
    // SAFETY: as the caller promises.
    unsafe {
        let mut sum = I::splat_64(0.0);
        for column in (0..extent.columns).step_by(LANES) {
            let count = extent.columns - column;
            let d = I::widen(at::<I>(gradient, row, column, count));
            let term = match LOGARITHM {
                true => d,
                false => I::mul_64(d, I::widen(at::<I>(result, row, column, count))),
            };
            sum = I::add_64(sum, term);
        }
        total::<I>(sum)
    }
}

/// # Safety
///
/// As [`RowKernel`].
#[inline(always)]
unsafe fn softmax_row<I: Lanes, const LOGARITHM: bool>(operands: &SoftMaxBackward, row: usize) {
    let &SoftMaxBackward { extent, gradient, result, to, to_type, pass, measured } = operands;
    let (columns, to) = (extent.columns, to.row::<u8>(row));
    // SAFETY: as the caller promises.
    unsafe {
        let sum = match pass {
            RowPass::Results => measured[0].add(row).read(),
            _ => softmax_sum::<I, LOGARITHM>(operands, row),
        };
        if pass == RowPass::Measure {
            measured[0].add(row).write(sum);
            measured[1].add(row).write(0.0);
            return;
        }
        let sum = I::splat_64(sum);
        for column in (0..columns).step_by(LANES) {
            let count = columns - column;
            let d = I::widen(at::<I>(gradient, row, column, count));
            let y = at::<I>(result, row, column, count);
            let x = match LOGARITHM {
                true => I::sub_64(d, I::mul_64(I::widen(I::exp(y)), sum)),
                false => I::mul_64(I::widen(y), I::sub_64(d, sum)),
            };
            store_end::<I>(to, to_type, column, count, I::narrow(x));
        }
    }
}

/// The gradient times gamma, and the normalised source, from a column on. Beyond the row the gradient is 0.
///
/// # Safety
///
/// As [`RowKernel`].
#[inline(always)]
unsafe fn scaled<I: Lanes>(
    operands: &NormBackward,
    row: usize,
    column: usize,
    mean: I::D,
    factor: I::D,
) -> (I::D, I::D) {
    let &NormBackward { extent, source, gradient, gamma, .. } = operands;
    let count = extent.columns - column;
    // SAFETY: as the caller promises.
    unsafe {
        let d = I::widen(at::<I>(gradient, row, column, count));
        let g = match gamma {
            Some(gamma) => I::mul_64(d, I::widen(at::<I>((gamma, RowType::F32), row, column, count))),
            None => d,
        };
        let x = I::widen(at::<I>(source, row, column, count));
        (g, I::mul_64(I::sub_64(x, mean), factor))
    }
}

/// The sum of the gradient of a row, or of a part of one, and that of its products with the normalised
/// source.
///
/// # Safety
///
/// As [`RowKernel`].
#[inline(always)]
unsafe fn norm_sums<I: Lanes>(operands: &NormBackward, row: usize, mean: I::D, factor: I::D) -> [f64; 2] {
    // SAFETY: as the caller promises.
    unsafe {
        let (mut sum, mut products) = (I::splat_64(0.0), I::splat_64(0.0));
        for column in (0..operands.extent.columns).step_by(LANES) {
            let (g, x) = scaled::<I>(operands, row, column, mean, factor);
            sum = I::add_64(sum, g);
            products = I::add_64(products, I::mul_64(g, x));
        }
        [total::<I>(sum), total::<I>(products)]
    }
}

/// # Safety
///
/// As [`RowKernel`].
#[inline(always)]
unsafe fn norm_row<I: Lanes>(operands: &NormBackward, row: usize) {
    let &NormBackward { extent, means, factors, to, to_type, length, pass, measured, .. } = operands;
    let (columns, to) = (extent.columns, to.row::<u8>(row));
    let n = length as f64;
    // SAFETY: as the caller promises.
    unsafe {
        let (mean, factor) = (I::splat_64(means.add(row).read()), I::splat_64(factors.add(row).read()));
        let [sum, products] = match pass {
            RowPass::Results => [measured[0].add(row).read(), measured[1].add(row).read()],
            _ => norm_sums::<I>(operands, row, mean, factor),
        };
        if pass == RowPass::Measure {
            measured[0].add(row).write(sum);
            measured[1].add(row).write(products);
            return;
        }
        let (sum, products) = (I::splat_64(sum / n), I::splat_64(products / n));
        let both = [operands.source, operands.gradient];
        let prefetches = are_prefetched(both);
        for column in (0..columns).step_by(LANES) {
            if prefetches && column.is_multiple_of(STEP) {
                for (from, float) in both {
                    prefetch_next(from.row::<u8>(row), from.row_stride, float, column);
                }
            }
            let (g, x) = scaled::<I>(operands, row, column, mean, factor);
            let y = I::mul_64(I::sub_64(I::sub_64(g, sum), I::mul_64(x, products)), factor);
            store_end::<I>(to, to_type, column, columns - column, I::narrow(y));
        }
    }
}

/// Factors by which f32 scales numbers without more loss than its roundings.
const FACTORS: std::ops::Range<f64> = 1e-15..1e15;

/// The rounded mean, the factor, and the error of the rounded mean times the factor, as [`scaled_by`] takes
/// them.
///
/// # Safety
///
/// The machine runs the level.
#[inline(always)]
unsafe fn in_f32<I: Lanes>(mean: I::D, factor: I::D) -> [I::F; 3] {
    // SAFETY: as the caller promises.
    unsafe {
        let near = I::narrow(mean);
        let lost = I::mul_64(I::sub_64(I::widen(near), mean), factor);
        [near, I::narrow(factor), I::narrow(lost)]
    }
}

/// The mean and one over the deviation of the numbers of a vector, also as [`in_f32`] gives them, and whether
/// f32 is enough.
#[derive(Clone, Copy)]
struct VectorScale<I: Lanes> {
    mean: I::D,
    factor: I::D,
    in_f32: [I::F; 3],
    fits: bool,
}

impl<I: Lanes> VectorScale<I> {
    /// That of a row.
    ///
    /// # Safety
    ///
    /// As [`RowKernel`].
    #[inline(always)]
    unsafe fn of_row(operands: &NormProducts, row: usize) -> Self {
        // SAFETY: as the caller promises.
        unsafe {
            let (mean, factor) = (operands.means.add(row).read(), operands.factors.add(row).read());
            let fits = FACTORS.contains(&factor);
            let (mean, factor) = (I::splat_64(mean), I::splat_64(factor));
            Self { mean, factor, in_f32: in_f32::<I>(mean, factor), fits }
        }
    }

    /// That of the columns from one on.
    ///
    /// # Safety
    ///
    /// As [`RowKernel`].
    #[inline(always)]
    unsafe fn of_columns(operands: &NormProducts, column: usize, count: usize) -> Self {
        // SAFETY: as the caller promises.
        unsafe {
            let mut fits = true;
            for column in column..column + count.min(LANES) {
                fits &= FACTORS.contains(&operands.factors.add(column).read());
            }
            let mean = at_64::<I>(operands.means, column, count);
            let factor = at_64::<I>(operands.factors, column, count);
            Self { mean, factor, in_f32: in_f32::<I>(mean, factor), fits }
        }
    }
}

/// # Safety
///
/// As [`RowKernel`].
#[inline(always)]
unsafe fn norm_products_of_tile<I: Lanes>(operands: &NormProducts) {
    let Extent { rows, columns } = operands.extent;
    // SAFETY: as the caller promises.
    unsafe {
        if operands.is_by_row {
            let both = [operands.source, operands.gradient];
            let prefetches = are_prefetched(both);
            for row in 0..rows {
                // Rows of a tile may be parts of rows in memory.
                if prefetches {
                    for (from, float) in both {
                        prefetch_later(from, row, columns * float.bytes());
                    }
                }
                let scale = VectorScale::<I>::of_row(operands, row);
                for column in (0..columns).step_by(LANES) {
                    norm_products_at::<I>(operands, (row, column), &scale);
                }
            }
            return;
        }
        for column in (0..columns).step_by(LANES) {
            let scale = VectorScale::<I>::of_columns(operands, column, columns - column);
            for row in 0..rows {
                norm_products_at::<I>(operands, (row, column), &scale);
            }
        }
    }
}

/// # Safety
///
/// As [`RowKernel`].
#[inline(always)]
unsafe fn norm_products_at<I: Lanes>(
    operands: &NormProducts,
    (row, column): (usize, usize),
    scale: &VectorScale<I>,
) {
    let &NormProducts { extent, source, gradient, to, .. } = operands;
    let count = extent.columns - column;
    // SAFETY: as the caller promises.
    unsafe {
        let (x, d) = (at::<I>(source, row, column, count), at::<I>(gradient, row, column, count));
        let y = match scale.fits {
            true => I::mul(d, scaled_by::<I>(x, scale.in_f32, None, None)),
            false => {
                let normal = I::mul_64(I::sub_64(I::widen(x), scale.mean), scale.factor);
                I::narrow(I::mul_64(I::widen(d), normal))
            }
        };
        store_end::<I>(to.row(row), RowType::F32, column, count, y);
    }
}

/// # Safety
///
/// As [`RowKernel`].
#[inline(always)]
unsafe fn prelu_row<I: Lanes>(operands: &PreluBackward, row: usize) {
    let &PreluBackward { extent, source, slope, gradient, to, to_type } = operands;
    let (columns, to) = (extent.columns, to.row::<u8>(row));
    for column in (0..columns).step_by(LANES) {
        let count = columns - column;
        // SAFETY: as the caller promises.
        unsafe {
            let x = at::<I>(source, row, column, count);
            let d = at::<I>(gradient, row, column, count);
            let y = I::if_positive(x, d, I::mul(d, at::<I>(slope, row, column, count)));
            store_end::<I>(to, to_type, column, count, y);
        }
    }
}

/// # Safety
///
/// As [`RowKernel`].
#[inline(always)]
unsafe fn prelu_products_row<I: Lanes>(operands: &PreluProducts, row: usize) {
    let &PreluProducts { extent, source, gradient, to } = operands;
    let (columns, to) = (extent.columns, to.row::<u8>(row));
    for column in (0..columns).step_by(LANES) {
        let count = columns - column;
        // SAFETY: as the caller promises.
        unsafe {
            let x = at::<I>(source, row, column, count);
            let product = I::mul(at::<I>(gradient, row, column, count), x);
            store_end::<I>(to, RowType::F32, column, count, I::if_positive(x, I::splat(0.0), product));
        }
    }
}
