//! The functions that `types/function.rs` defines, in f64 or in exact integers.
//!
//! Where a formula as written would lose digits in f64, because nearly equal numbers are subtracted, an equal
//! one stands here that does not. Of an error function the standard library has none, and its sines, cosines
//! and `exp_m1` are those of the system, which on Windows lose digits; those of `libm` are good to one ulp
//! everywhere.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use super::number::in_f32;
use crate::graph::function::Params;
use crate::types::function::{Binary, Class, Comparison, Logic, Sign, Unary};

/// The square root of 2/π.
const SQRT_2_OVER_PI: f64 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;

/// The factor of the cube in the tanh form of GELU.
const CUBIC: f64 = 0.044715;

/// A function of each number, before it is rounded.
pub(super) fn unary(function: Unary, params: Params, xs: &mut [f64]) {
    let [p, q] = params.map(f64::from);
    match function {
        Unary::Clamp => each(xs, |x| minimum(maximum(x, p), q)),
        Unary::Elu => each(xs, |x| if x > 0.0 { x } else { p * libm::expm1(x) }),
        Unary::Exp => each(xs, f64::exp),
        Unary::GeluErf => each(xs, |x| x * normal_cdf(x)),
        Unary::GeluTanh => each(xs, |x| x * logistic(2.0 * gelu_argument(x))),
        Unary::HardSigmoid => each(xs, |x| minimum(maximum(p * x + q, 0.0), 1.0)),
        Unary::HardSwish => each(xs, |x| x * minimum(maximum(x + 3.0, 0.0), 6.0) / 6.0),
        Unary::LeakyRelu => each(xs, |x| if x >= 0.0 { x } else { p * x }),
        Unary::Log => each(xs, f64::ln),
        Unary::Mish => each(xs, |x| x * Gate::at(x).value()),
        Unary::Pow => each(xs, |x| x.powf(p)),
        Unary::Reciprocal => each(xs, f64::recip),
        Unary::Relu => each(xs, |x| maximum(x, 0.0)),
        Unary::Round => each(xs, f64::round_ties_even),
        Unary::Sigmoid => each(xs, logistic),
        Unary::SoftPlus => each(xs, |x| {
            let x = p * x;
            let positive = if x > 0.0 { x } else { 0.0 };
            (positive + (-x.abs()).exp().ln_1p()) / p
        }),
        Unary::Sqrt => each(xs, f64::sqrt),
        Unary::Square => each(xs, |x| x * x),
        Unary::Tanh => each(xs, f64::tanh),
        Unary::Floor => each(xs, f64::floor),
        Unary::Ceil => each(xs, f64::ceil),
        Unary::Sin => each(xs, libm::sin),
        Unary::Cos => each(xs, libm::cos),
    }
}

/// A function of each two numbers, before it is rounded, in place of the first.
pub(super) fn binary(function: Binary, params: Params, xs: &mut [f64], ys: &[f64]) {
    let [p, q] = params.map(f64::from);
    let only_if = |condition: bool, value: f64| if condition { value } else { 0.0 };
    match function {
        Binary::Add => pair(xs, ys, |x, y| x + y),
        Binary::Subtract => pair(xs, ys, |x, y| x - y),
        Binary::Multiply => pair(xs, ys, |x, y| x * y),
        Binary::Divide => pair(xs, ys, |x, y| x / y),
        Binary::Modulo => pair(xs, ys, modulo),
        Binary::Power => pair(xs, ys, f64::powf),
        Binary::Maximum => pair(xs, ys, maximum),
        Binary::Minimum => pair(xs, ys, minimum),
        Binary::SquaredDifference => pair(xs, ys, |x, y| in_f32(x - y).powi(2)),
        Binary::Prelu => pair(xs, ys, |x, y| if x >= 0.0 { x } else { y * x }),
        Binary::AbsBackward => pair(xs, ys, |x, y| if x > 0.0 { y } else { only_if(x < 0.0, -y) }),
        Binary::ClampBackward => pair(xs, ys, |x, y| only_if(p < x && x < q, y)),
        Binary::EluBackward => pair(xs, ys, |x, y| if x > 0.0 { y } else { y * p * x.exp() }),
        Binary::EluBackwardOfResult => pair(xs, ys, |x, y| if x > 0.0 { y } else { y * (x + p) }),
        Binary::GeluErfBackward => pair(xs, ys, |x, y| {
            let density = (-0.5 * x * x).exp() * 0.5 * SQRT_2_OVER_PI;
            y * (normal_cdf(x) + x * density)
        }),
        Binary::GeluTanhBackward => pair(xs, ys, |x, y| {
            let argument = 2.0 * gelu_argument(x);
            let slope = 2.0 * SQRT_2_OVER_PI * (1.0 + 3.0 * CUBIC * x * x);
            y * (logistic(argument) + x * logistic_slope(argument) * slope)
        }),
        Binary::HardSigmoidBackward => pair(xs, ys, |x, y| {
            let line = p * x + q;
            only_if(0.0 < line && line < 1.0, p * y)
        }),
        Binary::HardSwishBackward => {
            pair(
                xs,
                ys,
                |x, y| {
                    if x >= 3.0 { y } else { only_if(-3.0 < x && x < 3.0, y * (2.0 * x + 3.0) / 6.0) }
                },
            )
        }
        Binary::MishBackward => pair(xs, ys, |x, y| {
            let gate = Gate::at(x);
            y * (gate.value() + x * gate.slope())
        }),
        Binary::ReluBackward => pair(xs, ys, |x, y| only_if(x > 0.0, y)),
        Binary::SigmoidBackward => pair(xs, ys, |x, y| y * logistic_slope(x)),
        Binary::SigmoidBackwardOfResult => pair(xs, ys, |x, y| y * x * (1.0 - x)),
        Binary::SoftPlusBackward => pair(xs, ys, |x, y| y * logistic(p * x)),
        Binary::SqrtBackward => pair(xs, ys, |x, y| y / (2.0 * x.sqrt())),
        Binary::SqrtBackwardOfResult => pair(xs, ys, |x, y| y / (2.0 * x)),
        Binary::TanhBackward => pair(xs, ys, |x, y| y * x.cosh().recip().powi(2)),
        Binary::TanhBackwardOfResult => pair(xs, ys, |x, y| y * (1.0 - x * x)),
    }
}

/// A function of each two integers, before it wraps around, in place of the first.
pub(super) fn of_integers(function: Binary, xs: &mut [i128], ys: &[i128]) {
    match function {
        Binary::Add => pair(xs, ys, |x, y| x + y),
        Binary::Subtract => pair(xs, ys, |x, y| x - y),
        Binary::Multiply => pair(xs, ys, |x, y| x * y),
        Binary::Divide => pair(xs, ys, |x, y| if y == 0 { 0 } else { floor_of_quotient(x, y) }),
        Binary::Modulo => pair(xs, ys, |x, y| if y == 0 { 0 } else { x - y * floor_of_quotient(x, y) }),
        Binary::Power => pair(xs, ys, power_of_integers),
        Binary::Maximum => pair(xs, ys, i128::max),
        Binary::Minimum => pair(xs, ys, i128::min),
        _ => unreachable!("the schema lets floats alone through to here"),
    }
}

/// Changes the sign of each integer, before it wraps around.
pub(super) fn sign_of_integers(sign: Sign, xs: &mut [i128]) {
    match sign {
        Sign::Clear => each(xs, i128::abs),
        Sign::Flip => each(xs, |x| -x),
    }
}

/// The remainder with the sign of the divisor. That of the dividend is exact.
fn modulo(x: f64, y: f64) -> f64 {
    match x % y {
        0.0 => 0f64.copysign(y),
        rest if (rest < 0.0) != (y < 0.0) => rest + y,
        rest => rest,
    }
}

/// `⌊x / y⌋`.
fn floor_of_quotient(x: i128, y: i128) -> i128 {
    x.div_euclid(y) - i128::from(y < 0 && x.rem_euclid(y) != 0)
}

/// The power of an integer, which wraps around; for an exponent below 0 the quotient of 1 and the power, cut
/// off.
fn power_of_integers(x: i128, y: i128) -> i128 {
    match (x, y) {
        // Powers of −1 take turns.
        (-1 | 1, _) => {
            if y % 2 == 0 {
                1
            } else {
                x
            }
        }
        (_, ..0) => 0,
        _ => {
            let (mut power, mut square, mut rest) = (1i128, x, y);
            while rest > 0 {
                power = if rest % 2 == 1 { power.wrapping_mul(square) } else { power };
                square = square.wrapping_mul(square);
                rest /= 2;
            }
            power
        }
    }
}

/// The truth values of a comparison of each two numbers, as 0 or 1.
pub(super) fn compare<T: PartialOrd + Copy>(comparison: Comparison, xs: &[T], ys: &[T], mask: &mut [u8]) {
    match comparison {
        Comparison::Equal => answer_each(xs, ys, mask, |x, y| x == y),
        Comparison::NotEqual => answer_each(xs, ys, mask, |x, y| x != y),
        Comparison::Less => answer_each(xs, ys, mask, |x, y| x < y),
        Comparison::LessEqual => answer_each(xs, ys, mask, |x, y| x <= y),
        Comparison::Greater => answer_each(xs, ys, mask, |x, y| x > y),
        Comparison::GreaterEqual => answer_each(xs, ys, mask, |x, y| x >= y),
    }
}

/// A function of each two truth values, as 0 or 1, in place of the first.
pub(super) fn logic(logic: Logic, xs: &mut [u8], ys: &[u8]) {
    match logic {
        Logic::And => pair(xs, ys, |x, y| u8::from(x != 0 && y != 0)),
        Logic::Or => pair(xs, ys, |x, y| u8::from(x != 0 || y != 0)),
        Logic::Xor => pair(xs, ys, |x, y| u8::from((x != 0) != (y != 0))),
    }
}

/// The truth values of membership of each number in a class, as 0 or 1.
pub(super) fn classify(class: Class, xs: &[f64], mask: &mut [u8]) {
    match class {
        Class::Nan => answer_each(xs, xs, mask, |x, _| x.is_nan()),
        Class::Infinite => answer_each(xs, xs, mask, |x, _| x.is_infinite()),
        Class::Finite => answer_each(xs, xs, mask, |x, _| x.is_finite()),
    }
}

/// A function of each element in its place.
fn each<T: Copy>(xs: &mut [T], function: impl Fn(T) -> T) {
    xs.iter_mut().for_each(|x| *x = function(*x));
}

/// A function of each two elements in the place of the first.
fn pair<T: Copy>(xs: &mut [T], ys: &[T], function: impl Fn(T, T) -> T) {
    xs.iter_mut().zip(ys).for_each(|(x, &y)| *x = function(*x, y));
}

/// The answers to a question to each two elements, as 0 or 1.
fn answer_each<T: Copy>(xs: &[T], ys: &[T], mask: &mut [u8], answer: impl Fn(T, T) -> bool) {
    let pairs = xs.iter().zip(ys);
    mask.iter_mut().zip(pairs).for_each(|(truth, (&x, &y))| *truth = answer(x, y).into());
}

/// The larger number; NaN if either is one; 0 is larger than −0.
pub(super) fn maximum(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a > b || (a == b && a.is_sign_positive()) {
        a
    } else {
        b
    }
}

/// The smaller number; NaN if either is one; −0 is smaller than 0.
pub(super) fn minimum(a: f64, b: f64) -> f64 {
    -maximum(-a, -b)
}

/// `Φ(x)`, by the complement of the error function, which keeps its digits where `1 + erf` has none left.
fn normal_cdf(x: f64) -> f64 {
    0.5 * libm::erfc(-x * FRAC_1_SQRT_2)
}

/// `1 / (1 + e⁻ˣ)`, which equals `(1 + tanh(x/2)) / 2`.
fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The derivative of [`logistic`], which is even: `s · (1 − s)` without the difference.
fn logistic_slope(x: f64) -> f64 {
    let e = (-x.abs()).exp();
    e / (1.0 + e).powi(2)
}

/// The argument of the tanh of GELU.
fn gelu_argument(x: f64) -> f64 {
    SQRT_2_OVER_PI * (x + CUBIC * x * x * x)
}

/// The factor of x in Mish: `tanh(ln(1 + eˣ))`, a quotient of polynomials in eˣ. Where that may overflow, of
/// e⁻ˣ.
enum Gate {
    /// `eˣ`, for x up to 0.
    Rising(f64),
    /// `e⁻ˣ`, for x above 0.
    Falling(f64),
}

impl Gate {
    fn at(x: f64) -> Self {
        if x > 0.0 { Self::Falling((-x).exp()) } else { Self::Rising(x.exp()) }
    }

    fn value(&self) -> f64 {
        match *self {
            Self::Rising(e) => e * (e + 2.0) / (e * (e + 2.0) + 2.0),
            Self::Falling(n) => (1.0 + 2.0 * n) / (1.0 + 2.0 * n + 2.0 * n * n),
        }
    }

    /// The derivative by x.
    fn slope(&self) -> f64 {
        match *self {
            Self::Rising(e) => 4.0 * e * (e + 1.0) / (e * (e + 2.0) + 2.0).powi(2),
            Self::Falling(n) => 4.0 * n * n * (1.0 + n) / (1.0 + 2.0 * n + 2.0 * n * n).powi(2),
        }
    }
}
