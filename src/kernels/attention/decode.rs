//! SoftMax of few queries: along rows of scores, whose lanes are keys.

use crate::kernels::isa::{self, shells};
use crate::kernels::vector::{LANES, Lanes};
use crate::types::kind::Level;

shells! {
    I:
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

/// The kernels of the SoftMax of few queries at a level.
///
/// # Safety of the methods
///
/// The machine runs the level. Rows can be read, and written through a pointer that is not `const`.
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
