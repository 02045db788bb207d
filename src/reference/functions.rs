//! What `types/function.rs` defines, worked out in f64 or in exact integers.
//!
//! Where a formula as written would lose digits in f64, because nearly equal numbers are subtracted, an equal
//! one stands here that does not. Of an error function the standard library has none; that of `libm` is good
//! to one ulp.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use crate::graph::function::Params;
use crate::types::function::{Binary, Class, Comparison, Logic, Sign, Unary};

/// The square root of 2/π.
const SQRT_2_OVER_PI: f64 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;

/// The factor of the cube in the tanh form of GELU.
const CUBIC: f64 = 0.044715;

/// A function of one f32, before it is rounded.
pub(super) fn unary(function: Unary, params: Params, x: f64) -> f64 {
    let [p, q] = params.map(f64::from);
    match function {
        Unary::Clamp => minimum(maximum(x, p), q),
        Unary::Elu if x > 0.0 => x,
        Unary::Elu => p * x.exp_m1(),
        Unary::Exp => x.exp(),
        Unary::GeluErf => x * normal_cdf(x),
        Unary::GeluTanh => x * logistic(2.0 * gelu_argument(x)),
        Unary::HardSigmoid => minimum(maximum(p * x + q, 0.0), 1.0),
        Unary::HardSwish => x * minimum(maximum(x + 3.0, 0.0), 6.0) / 6.0,
        Unary::LeakyRelu if x >= 0.0 => x,
        Unary::LeakyRelu => p * x,
        Unary::Log => x.ln(),
        Unary::Mish => x * Gate::at(x).value(),
        Unary::Pow => x.powf(p),
        Unary::Reciprocal => x.recip(),
        Unary::Relu => maximum(x, 0.0),
        Unary::Round => x.round_ties_even(),
        Unary::Sigmoid => logistic(x),
        Unary::SoftPlus => {
            let x = p * x;
            let positive = if x > 0.0 { x } else { 0.0 };
            (positive + (-x.abs()).exp().ln_1p()) / p
        }
        Unary::Sqrt => x.sqrt(),
        Unary::Square => x * x,
        Unary::Tanh => x.tanh(),
        Unary::Floor => x.floor(),
        Unary::Ceil => x.ceil(),
    }
}

/// A function of two f32, before it is rounded.
pub(super) fn binary(function: Binary, params: Params, x: f64, y: f64) -> f64 {
    let [p, q] = params.map(f64::from);
    let only_if = |condition: bool, value: f64| if condition { value } else { 0.0 };
    match function {
        Binary::Add => x + y,
        Binary::Subtract => x - y,
        Binary::Multiply => x * y,
        Binary::Divide => x / y,
        Binary::Maximum => maximum(x, y),
        Binary::Minimum => minimum(x, y),
        Binary::SquaredDifference => f64::from((x - y) as f32).powi(2),
        Binary::Prelu if x >= 0.0 => x,
        Binary::Prelu => y * x,
        Binary::AbsBackward if x > 0.0 => y,
        Binary::AbsBackward => only_if(x < 0.0, -y),
        Binary::ClampBackward => only_if(p < x && x < q, y),
        Binary::EluBackward if x > 0.0 => y,
        Binary::EluBackward => y * p * x.exp(),
        Binary::EluBackwardOfResult if x > 0.0 => y,
        Binary::EluBackwardOfResult => y * (x + p),
        Binary::GeluErfBackward => {
            let density = (-0.5 * x * x).exp() * 0.5 * SQRT_2_OVER_PI;
            y * (normal_cdf(x) + x * density)
        }
        Binary::GeluTanhBackward => {
            let argument = 2.0 * gelu_argument(x);
            let slope = 2.0 * SQRT_2_OVER_PI * (1.0 + 3.0 * CUBIC * x * x);
            y * (logistic(argument) + x * logistic_slope(argument) * slope)
        }
        Binary::HardSigmoidBackward => {
            let line = p * x + q;
            only_if(0.0 < line && line < 1.0, p * y)
        }
        Binary::HardSwishBackward if x >= 3.0 => y,
        Binary::HardSwishBackward => only_if(-3.0 < x && x < 3.0, y * (2.0 * x + 3.0) / 6.0),
        Binary::MishBackward => {
            let gate = Gate::at(x);
            y * (gate.value() + x * gate.slope())
        }
        Binary::ReluBackward => only_if(x > 0.0, y),
        Binary::SigmoidBackward => y * logistic_slope(x),
        Binary::SigmoidBackwardOfResult => y * x * (1.0 - x),
        Binary::SoftPlusBackward => y * logistic(p * x),
        Binary::SqrtBackward => y / (2.0 * x.sqrt()),
        Binary::SqrtBackwardOfResult => y / (2.0 * x),
        Binary::TanhBackward => y * x.cosh().recip().powi(2),
        Binary::TanhBackwardOfResult => y * (1.0 - x * x),
    }
}

/// A function of two integers, before it wraps around; `None` where it is one of floating-point numbers
/// alone.
pub(super) fn of_integers(function: Binary, x: i128, y: i128) -> Option<i128> {
    Some(match function {
        Binary::Add => x + y,
        Binary::Subtract => x - y,
        Binary::Multiply => x * y,
        Binary::Maximum => x.max(y),
        Binary::Minimum => x.min(y),
        _ => return None,
    })
}

pub(super) fn compare<T: PartialOrd>(comparison: Comparison, x: T, y: T) -> bool {
    match comparison {
        Comparison::Equal => x == y,
        Comparison::NotEqual => x != y,
        Comparison::Less => x < y,
        Comparison::LessEqual => x <= y,
        Comparison::Greater => x > y,
        Comparison::GreaterEqual => x >= y,
    }
}

pub(super) fn logic(logic: Logic, x: bool, y: bool) -> bool {
    match logic {
        Logic::And => x && y,
        Logic::Or => x || y,
        Logic::Xor => x != y,
    }
}

pub(super) fn classify(class: Class, x: f64) -> bool {
    match class {
        Class::Nan => x.is_nan(),
        Class::Infinite => x.is_infinite(),
        Class::Finite => x.is_finite(),
    }
}

/// Sets the sign in the byte of a floating-point number that holds it.
pub(super) fn sign(sign: Sign, highest: &mut u8) {
    match sign {
        Sign::Clear => *highest &= 0x7f,
        Sign::Flip => *highest ^= 0x80,
    }
}

/// The larger number; NaN if either is one; 0 is larger than −0.
fn maximum(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a > b || (a == b && a.is_sign_positive()) {
        a
    } else {
        b
    }
}

/// The smaller number; NaN if either is one; −0 is smaller than 0.
fn minimum(a: f64, b: f64) -> f64 {
    -maximum(-a, -b)
}

/// `Φ(x)`, by the complement of the error function, which keeps its digits where `1 + erf` has none left.
fn normal_cdf(x: f64) -> f64 {
    0.5 * libm::erfc(-x * FRAC_1_SQRT_2)
}

/// `1 / (1 + e⁻ˣ)`, of which `(1 + tanh(x/2)) / 2` is another form.
fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The derivative of [`logistic`], which is even: `s · (1 − s)` without the difference.
fn logistic_slope(x: f64) -> f64 {
    let e = (-x.abs()).exp();
    e / (1.0 + e).powi(2)
}

/// What the tanh of GELU is taken of.
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
