//! Sine and cosine.
//!
//! Both are computed in f64 from the distance to the nearest quarter turn. Up to [`LARGE`] the distance comes
//! from three parts of π/2; from there on [`of_large`] multiplies by as many bits of 2/π as matter, in
//! integers (Payne and Hanek), which keeps every digit of every f32.

use super::exp::SHIFTER;
use super::polynomial::polynomial;
use crate::kernels::isa::{Isa, Portable};

/// Magnitudes from here on have more quarter turns than the parts of π/2 are made for.
pub(in crate::kernels) const LARGE: f32 = 1048576.0; // 2^20

/// π/2 in three parts. The first two have 33 bits, so their products with an integer below 2^20 are exact.
const HALF_PI: [f64; 3] = [1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21];

/// `(sin r / r − 1) / r²` in r², for |r| ≤ π/4, with an error of 2e-11 of sin r.
const SINE: [f64; 4] =
    [-0.16666666663853044, 0.008333331873837089, -0.00019840086263755438, 2.7249864655139085e-06];

/// `(cos r − 1 + r²/2) / r⁴` in r², for |r| ≤ π/4, with an error of 2e-12 of cos r.
const COSINE: [f64; 4] =
    [0.04166666666431933, -0.0013888887671288108, 2.4800599983531705e-05, -2.7300908167996124e-07];

/// The sine of n quarter turns and r; n counts by its two low bits.
#[inline(always)]
fn sine_of<I: Isa>(n: u64, r: f64) -> f64 {
    let z = r * r;
    // A product keeps the sign of a zero; a sum would not.
    let sine = r * I::mul_add_64(z, polynomial::<I>(z, &SINE), 1.0);
    let cosine = I::mul_add_64(z * z, polynomial::<I>(z, &COSINE), I::mul_add_64(z, -0.5, 1.0));
    let y = if n & 1 == 0 { sine } else { cosine };
    f64::from_bits(y.to_bits() ^ (n & 2) << 62)
}

/// `sin(x + quarters · π/2)` of an f32 in an f64 whose magnitude is below [`LARGE`], with a relative error of
/// 2e-11; NaN for NaN and the infinities.
#[inline(always)]
pub(in crate::kernels) fn sine<I: Isa>(x: f64, quarters: u64) -> f64 {
    let shifted = I::mul_add_64(x, std::f64::consts::FRAC_2_PI, SHIFTER);
    let n = shifted - SHIFTER;
    let r = I::mul_add_64(n, -HALF_PI[0], x);
    let r = I::mul_add_64(n, -HALF_PI[2], I::mul_add_64(n, -HALF_PI[1], r));
    sine_of::<I>(shifted.to_bits().wrapping_add(quarters), r)
}

/// As [`sine`], of a finite number from [`LARGE`] on.
#[cold]
#[inline(never)]
pub(in crate::kernels) fn of_large(x: f32, quarters: u64) -> f32 {
    /// 64 zeros and the first 256 bits of 2/π behind the point.
    const TWO_OVER_PI: [u64; 5] =
        [0, 0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561];
    /// A quarter turn in the fixed-point numbers below: their two high bits count quarters.
    const QUARTER: u32 = 126;

    let bits = x.to_bits();
    let mantissa = u128::from(bits & 0x007f_ffff | 0x0080_0000);
    // The magnitude is the mantissa times 2^(exponent − 150). Bits of 2/π that give whole turns are skipped.
    let exponent = (bits >> 23 & 0xff) as usize;
    let skipped = exponent - 88;
    let (first, shift) = (skipped / 64, skipped % 64);
    let [high, middle, low] = [0, 1, 2].map(|word| u128::from(TWO_OVER_PI[first + word]));
    let window = (high << 64 | middle) << shift | low << shift >> 64;
    let quarter_turns = mantissa.wrapping_mul(window);
    let n = quarter_turns.wrapping_add(1 << (QUARTER - 1)) >> QUARTER;
    let rest = quarter_turns.wrapping_sub(n << QUARTER) as i128;
    let r = rest as f64 * (std::f64::consts::FRAC_PI_2 / (1_u128 << QUARTER) as f64);
    let (n, r) = if x < 0.0 { (n.wrapping_neg(), -r) } else { (n, r) };
    sine_of::<Portable>((n as u64).wrapping_add(quarters), r) as f32
}
