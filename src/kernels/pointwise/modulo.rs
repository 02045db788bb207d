//! The remainder of floats with the sign of the divisor, in vectors.
//!
//! Vectors have no instruction for remainders. A multiple of the divisor is subtracted, whose factor is so
//! short that the difference is exact; very large quotients need several such steps. Any exact remainder
//! smaller than the divisor does, whichever its sign, because that of the divisor is established at the end.

use std::marker::PhantomData;

use crate::kernels::function::Function2;
use crate::kernels::isa::Isa;
use crate::kernels::simd::Pod;
use crate::types::function::Params;
use crate::types::kind::Level;

/// The function of f32 or of f64. The remainder is computed in f64 and rounded once.
pub(super) struct FloatModulo<T>(PhantomData<T>);

/// A type whose remainders are computed in f64.
pub(super) trait Remainder: Pod {
    /// A product with a factor may have more bits than f64, and a quotient may be beyond it.
    const IS_F64: bool;

    fn widen(self) -> f64;
    fn round(x: f64) -> Self;
}

impl Remainder for f32 {
    const IS_F64: bool = false;

    #[inline(always)]
    fn widen(self) -> f64 {
        self.into()
    }

    #[inline(always)]
    fn round(x: f64) -> Self {
        x as f32
    }
}

impl Remainder for f64 {
    const IS_F64: bool = true;

    #[inline(always)]
    fn widen(self) -> f64 {
        self
    }

    #[inline(always)]
    fn round(x: f64) -> Self {
        x
    }
}

impl<T: Remainder> Function2 for FloatModulo<T> {
    type X = T;
    type To = T;

    #[inline(always)]
    fn of<I: Isa>(x: T, y: T, params: Params) -> T {
        Self::of_block::<I, 1>(&[x], &[y], params)[0]
    }

    #[inline(always)]
    fn of_block<I: Isa, const N: usize>(x: &[T; N], y: &[T; N], _: Params) -> [T; N] {
        let (mut wide_x, mut wide_y, mut to) = ([0.0; N], [0.0; N], [T::default(); N]);
        for i in 0..N {
            (wide_x[i], wide_y[i]) = (x[i].widen(), y[i].widen());
        }
        let rests = match T::IS_F64 {
            true => remainders_of_f64::<I, N>(&wide_x, &wide_y),
            false => remainders::<I, N>(&wide_x, &wide_y),
        };
        for i in 0..N {
            to[i] = T::round(with_sign(rests[i], wide_y[i]));
        }
        to
    }
}

/// The canonical NaN: arithmetic gives no other.
const NAN: f64 = f64::from_bits(0x7ff8_0000_0000_0000);

/// The remainder with the sign of the divisor; a remainder of 0 has it as well.
#[inline(always)]
fn with_sign(rest: f64, y: f64) -> f64 {
    let is_other_side = (rest < 0.0) != (y < 0.0);
    let moved = if is_other_side { rest + y } else { rest };
    let moved = if rest == 0.0 { rest.copysign(y) } else { moved };
    if rest.is_nan() { NAN } else { moved }
}

/// Most bits of a factor: the product with an f32 is exact in f64.
const FACTOR_BITS: u32 = 29;

/// Quotients from here on have more bits.
const LARGE: f64 = (1u64 << FACTOR_BITS) as f64;

/// The bits of an f64 beyond those of a factor.
const LOW_BITS: u64 = (1 << (f64::MANTISSA_DIGITS - FACTOR_BITS)) - 1;

/// Added to a number of fewer than 52 bits, it leaves an integer.
const TO_INTEGER: f64 = 1.5 * (1u64 << 52) as f64;

/// A remainder of each pair, of either sign and smaller than `y`; NaN if the quotient is beyond f64. Numbers
/// that are not f32 need an exact [`Isa::mul_add_64`].
///
/// The first `rest` is an integer times the last place of `y`. If a quotient is large, the next rest is an
/// integer times the last place of its factor times that of `y`, and at most the former times `y`. So it
/// has no more bits than `y`.
#[inline(always)]
fn remainders<I: Isa, const N: usize>(x: &[f64; N], y: &[f64; N]) -> [f64; N] {
    let mut rests = *x;
    loop {
        let mut large = 0;
        for i in 0..N {
            let quotient = rests[i] / y[i];
            let size = quotient.abs();
            let is_finite = size < f64::INFINITY;
            let is_large = is_finite & (size >= LARGE);
            let factor = match is_large {
                true => f64::from_bits(quotient.to_bits() & !LOW_BITS),
                false => (quotient + TO_INTEGER) - TO_INTEGER,
            };
            let next = I::mul_add_64(-factor, y[i], rests[i]);
            // The divisor may be infinite.
            let next = if size < 1.0 { rests[i] } else { next };
            rests[i] = if is_finite { next } else { NAN };
            large |= u64::from(is_large);
        }
        if large == 0 {
            return rests;
        }
    }
}

/// As [`remainders`], of any numbers.
#[inline(always)]
fn remainders_of_f64<I: Isa, const N: usize>(x: &[f64; N], y: &[f64; N]) -> [f64; N] {
    let has_mul_add = !matches!(I::LEVEL, Level::Portable);
    let mut rests = if has_mul_add { remainders::<I, N>(x, y) } else { [NAN; N] };
    for i in 0..N {
        if rests[i].is_nan() & x[i].is_finite() & (y[i].abs() > 0.0) {
            rests[i] = x[i] % y[i];
        }
    }
    rests
}
