//! The normal distribution, which is a scaled error function.

use super::exp::{exp, exp_fine};
use super::polynomial::polynomial;
use crate::kernels::isa::Isa;

/// The point at which the tail's variable is 0.
const MIDDLE: f64 = 5.0;

/// `Φ(−a) · e^(a²/2) · (a + 5)` in `t = (a − 5) / (a + 5)`, for a from 0 to 20, with a relative error of
/// 5e-9.
const COARSE: [f64; 11] = [
    0.7691930466784473,
    -0.6653824750910569,
    0.49530593182253985,
    -0.3135342052575903,
    0.16501488348568713,
    -0.0691093194957204,
    0.02083119164008775,
    -0.0030186228663672088,
    -0.0009034065616549207,
    0.0005465461068910947,
    6.026491649783463e-05,
];

/// The same, with an error of 2e-17.
const FINE: [f64; 21] = [
    0.769193049750063,
    -0.6653825028900567,
    0.4953056159699704,
    -0.31353315667129855,
    0.16502036617076482,
    -0.06911863870640685,
    0.02079506679061742,
    -0.0029933767726962003,
    -0.000797869285383777,
    0.0005448991368550601,
    -5.937649567637797e-05,
    -4.976358878713593e-05,
    1.6684169067971254e-05,
    3.98509062479652e-06,
    -2.7751879864814374e-06,
    -3.488508553685354e-07,
    4.367033818039407e-07,
    6.044001650412784e-08,
    -5.959970535423013e-08,
    -1.920524985491498e-08,
    -1.0029676740861674e-09,
];

/// `Φ(−a) · e^(a²/2)` for a ≥ 0.
#[inline(always)]
fn tail<I: Isa>(a: f64, coefficients: &[f64]) -> f64 {
    let inverse = 1.0 / (a + MIDDLE);
    polynomial::<I>(1.0 - 2.0 * MIDDLE * inverse, coefficients) * inverse
}

/// `Φ(x)`: the probability below x, with a relative error of 5e-9.
#[inline(always)]
pub(in crate::kernels) fn normal_cdf<I: Isa>(x: f64) -> f64 {
    let below = exp::<I>(-0.5 * x * x) * tail::<I>(x.abs(), &COARSE);
    if x > 0.0 { 1.0 - below } else { below }
}

/// `Φ(x)` and the density `φ(x)`, each with an error of little more than the last bit of f64.
#[inline(always)]
pub(in crate::kernels) fn normal_cdf_and_density<I: Isa>(x: f64) -> (f64, f64) {
    const INVERSE_ROOT_TWO_PI: f64 = 0.3989422804014327;
    let e = exp_fine::<I>(-0.5 * x * x);
    let below = e * tail::<I>(x.abs(), &FINE);
    (if x > 0.0 { 1.0 - below } else { below }, INVERSE_ROOT_TWO_PI * e)
}
