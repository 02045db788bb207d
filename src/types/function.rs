//! The functions of pointwise ops: what is computed for one element, whatever the shapes.
//!
//! This is the one place that defines them, and says on which types they run and what they cost; the
//! interpreter in `reference` and the kernels each implement it.
//! `x`, `y` are the inputs in port order, `p`, `q` the parameters, which are attributes of the op. Arithmetic
//! on floating point is IEEE 754, rounded to nearest, ties to even; a NaN that comes out of it has positive
//! sign and no payload.
//!
//! The formulas are those of oneDNN Graph's op specification or, if it gives none, of its eltwise
//! primitive. They are meant as written, for NaN and infinities too: a condition is false for NaN, 0 · ∞ and
//! ∞ − ∞ are NaN, so that `x · Φ(x)` is NaN at −∞. `min` and `max` are NaN if one side is.

use super::dtype::DataType;
use super::function_row::{CostClass, floats, functions};

use CostClass::{Heavy, Light, Medium};

/// Parameters `p` and `q` of a function; 0 if it has none.
pub(crate) type Params = [f32; 2];

/// `eˣ` is 0 in f32 up to this x: 2⁻¹⁵⁰ is half of the smallest number.
pub(crate) const EXP_IS_ZERO: f32 = -104.0;

/// `eˣ` is a subnormal number in f32 below this x, or nearly so; attention may take it for 0.
pub(crate) const EXP_IS_SUBNORMAL: f32 = -87.0;

functions! {
    /// A function of one f32, and of one f64 if noted: exponential, logarithm and tangent of f64 are those of
    /// the C library.
    pub(crate) enum Unary {
        /// `x` within [`p`, `q`]: `min(max(x, p), q)`.
        Clamp: floats(Light),
        /// `x` above 0, else `p · (eˣ − 1)`.
        Elu: floats(Heavy).ulps(2),
        /// `eˣ`; also f64.
        Exp: floats(Heavy).doubles(Heavy).ulps(2),
        /// `x · Φ(x)`, by the error function.
        GeluErf: floats(Heavy).ulps(4),
        /// `x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³)))`.
        GeluTanh: floats(Heavy).ulps(4),
        /// `min(max(p·x + q, 0), 1)`.
        HardSigmoid: floats(Medium).ulps(2),
        /// `x · min(max(x + 3, 0), 6) / 6`.
        HardSwish: floats(Medium).ulps(2),
        /// `x` from 0 on, else `p · x`.
        LeakyRelu: floats(Light),
        /// Natural logarithm; also f64.
        Log: floats(Heavy).doubles(Heavy).ulps(2),
        /// `x · tanh(ln(1 + eˣ))`.
        Mish: floats(Heavy).ulps(4),
        /// `x` to the power of `p`, as C's `pow`.
        Pow: floats(Heavy).ulps(4),
        /// `1 / x`; also f64.
        Reciprocal: floats(Medium).doubles(Medium),
        /// `max(x, 0)`; also f64.
        Relu: floats(Light).doubles(Light),
        /// The nearest integer, halves to the even one; also f64.
        Round: floats(Light).doubles(Medium),
        /// `1 / (1 + e⁻ˣ)`; also f64.
        Sigmoid: floats(Heavy).doubles(Heavy).ulps(2),
        /// `ln(1 + e^(p·x)) / p`.
        SoftPlus: floats(Heavy).ulps(4),
        /// Square root; also f64.
        Sqrt: floats(Medium).doubles(Medium),
        /// `x · x`; also f64.
        Square: floats(Light).doubles(Light),
        /// Hyperbolic tangent; also f64.
        Tanh: floats(Heavy).doubles(Heavy).ulps(2),
        /// The largest integer that is not above `x`; also f64.
        Floor: floats(Light).doubles(Medium),
        /// The smallest integer that is not below `x`; also f64.
        Ceil: floats(Light).doubles(Medium),
        /// Sine of `x` in radians, NaN at ±∞.
        Sin: floats(Heavy).ulps(2),
        /// Cosine of `x` in radians, NaN at ±∞.
        Cos: floats(Heavy).ulps(2),
    }

    /// A function of two numbers of one type: f32, and s32, s64 and f64 if noted; sums, differences,
    /// products and powers of integers wrap around.
    pub(crate) enum Binary {
        /// `x + y`; also s32, s64, f64.
        Add: floats(Light).integers(Light).doubles(Light).commuting(),
        /// `x − y`; also s32, s64, f64.
        Subtract: floats(Light).integers(Light).doubles(Light),
        /// `x · y`; also s32, s64, f64.
        Multiply: floats(Light).integers(Light).doubles(Light).commuting(),
        /// `x / y`; also f64, and s32, s64: rounded down, and 0 if `y` is 0.
        Divide: floats(Medium).integers(Heavy).doubles(Medium),
        /// `x − y · ⌊x / y⌋`, rounded once, which has the sign of `y`; also f64, and s32, s64: 0 if `y` is 0.
        Modulo: floats(Heavy).integers(Heavy).doubles(Heavy),
        /// `x` to the power of `y`, as C's `pow`; also f64, whose power is that of the C library, and s32,
        /// s64: for `y` below 0 the quotient of 1 and the power, cut off, and 0 if `x` is 0.
        Power: floats(Heavy).integers(Heavy).doubles(Heavy).ulps(4),
        /// The larger one, NaN if one is NaN, +0 above −0; also s32, s64, f64.
        Maximum: floats(Light).integers(Light).doubles(Light).commuting(),
        /// The smaller one, NaN if one is NaN, −0 below +0; also s32, s64, f64.
        Minimum: floats(Light).integers(Light).doubles(Light).commuting(),
        /// `(x − y)²`, the difference rounded to f32 before it is squared.
        SquaredDifference: floats(Light).commuting(),
        /// `x` from 0 on, else `y · x`.
        Prelu: floats(Light),
        /// The gradient of `|x|`: `y` for `x` above 0, `−y` below, else 0. In this and all that follow, `x`
        /// is the source or, if the name says so, the result of the forward op, and `y` the gradient of
        /// the result.
        AbsBackward: floats(Light),
        /// `y` for `x` strictly between `p` and `q`, else 0; of source and of result alike.
        ClampBackward: floats(Light),
        /// `y` for `x` above 0, else `y · p · eˣ`.
        EluBackward: floats(Heavy).ulps(2),
        /// `y` for `x` above 0, else `y · (x + p)`.
        EluBackwardOfResult: floats(Light).ulps(2),
        /// `y · (Φ(x) + x·φ(x))`.
        GeluErfBackward: floats(Heavy).ulps(4),
        /// `y` times the derivative of [`Unary::GeluTanh`]; at ±∞ that is NaN.
        GeluTanhBackward: floats(Heavy).ulps(4),
        /// `p · y` if `p·x + q` is strictly between 0 and 1, else 0.
        HardSigmoidBackward: floats(Medium),
        /// `y` for `x` from 3 on, `y · (x/3 + 1/2)` for `x` strictly between −3 and 3, else 0.
        HardSwishBackward: floats(Medium).ulps(2),
        /// `y` times the derivative of [`Unary::Mish`]; at ±∞ that is NaN.
        MishBackward: floats(Heavy).ulps(4),
        /// `y` for `x` above 0, else 0; of source and of result alike.
        ReluBackward: floats(Light),
        /// `y · s · (1 − s)` with `s = 1 / (1 + e⁻ˣ)`.
        SigmoidBackward: floats(Heavy).ulps(2),
        /// `y · x · (1 − x)`.
        SigmoidBackwardOfResult: floats(Light).ulps(2),
        /// `y / (1 + e^(−p·x))`.
        SoftPlusBackward: floats(Heavy).ulps(4),
        /// `y / (2·√x)`.
        SqrtBackward: floats(Medium).ulps(2),
        /// `y / (2·x)`.
        SqrtBackwardOfResult: floats(Medium).ulps(2),
        /// `y · (1 − tanh²(x))`.
        TanhBackward: floats(Heavy).ulps(2),
        /// `y · (1 − x²)`.
        TanhBackwardOfResult: floats(Light).ulps(2),
    }
}

impl Binary {
    /// True if the operands can change places: the result is the same bit for bit.
    pub(crate) const fn commutes(self) -> bool {
        self.row().commutes
    }
}

/// True if a type is f32, or computed in f32 and rounded at the end of each op.
pub(crate) const fn computes_in_f32(of: DataType) -> bool {
    matches!(of, DataType::F32 | DataType::Bf16 | DataType::F16)
}

/// A comparison of two numbers of one type, any numeric one. With NaN only [`NotEqual`](Self::NotEqual) is
/// true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Comparison {
    /// `x = y`.
    Equal,
    /// `x ≠ y`, true if one is NaN.
    NotEqual,
    /// `x < y`.
    Less,
    /// `x ≤ y`.
    LessEqual,
    /// `x > y`.
    Greater,
    /// `x ≥ y`.
    GreaterEqual,
}

impl Comparison {
    /// The comparison that answers as this one with its operands the other way round: kernels are there for
    /// what is less, and not for what is greater.
    pub(crate) const fn as_less(self) -> Option<Self> {
        match self {
            Self::Greater => Some(Self::Less),
            Self::GreaterEqual => Some(Self::LessEqual),
            Self::Equal | Self::NotEqual | Self::Less | Self::LessEqual => None,
        }
    }

    /// The type in which numbers of a type are compared: itself, or one that holds all its values and has
    /// kernels; `None` for a type that is no number.
    pub(crate) const fn computes_in(of: DataType) -> Option<DataType> {
        match of {
            DataType::F16 | DataType::Bf16 | DataType::F32 => Some(DataType::F32),
            DataType::F64 => Some(DataType::F64),
            DataType::S8 | DataType::U8 | DataType::S16 | DataType::U16 | DataType::S32 => {
                Some(DataType::S32)
            }
            DataType::U32 => Some(DataType::U32),
            DataType::S64 => Some(DataType::S64),
            DataType::U64 => Some(DataType::U64),
            _ => None,
        }
    }
}

/// A function of booleans: bytes, true if not zero; the result is 0 or 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Logic {
    /// True if both are true.
    And,
    /// True if at least one is true.
    Or,
    /// True if exactly one is true.
    Xor,
}

/// A question to a floating-point number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// True if it is NaN, of any kind.
    Nan,
    /// True if it is one of the two infinities.
    Infinite,
    /// True if it is neither NaN nor an infinity.
    Finite,
}

impl Class {
    /// The type in which numbers of a type are classified; `None` for a type without infinities.
    pub(crate) const fn computes_in(of: DataType) -> Option<DataType> {
        match of {
            DataType::F64 => Some(DataType::F64),
            of if computes_in_f32(of) => Some(DataType::F32),
            _ => None,
        }
    }
}

/// A change of the sign of a number: of the sign bit of a floating-point number of any width, of an integer
/// by arithmetic that wraps around.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Sign {
    /// The absolute value: the sign bit is cleared, all other bits stay, those of a NaN too; also f64, and
    /// s32, s64.
    Clear,
    /// The negative value: the sign bit is flipped, all other bits stay, those of a NaN too; also f64, and
    /// s32, s64.
    Flip,
}

impl Sign {
    /// True if kernels change the sign of numbers of a type.
    pub(crate) const fn runs_on(of: DataType) -> bool {
        computes_in_f32(of) || matches!(of, DataType::F64 | DataType::S32 | DataType::S64)
    }
}
