//! The functions of pointwise ops: what is computed for one element, whatever the shapes.
//!
//! This is the one place that defines them; the interpreter in `reference` and the kernels each implement it.
//! `x`, `y` are the inputs in port order, `p`, `q` the parameters, which are attributes of the op. Arithmetic
//! on floating point is IEEE 754, rounded to nearest, ties to even; a NaN that comes out of it has positive
//! sign and no payload.
//!
//! The formulas are those of oneDNN Graph's op specification or, where that gives none, of its eltwise
//! primitive. They are meant as written, for NaN and infinities too: a condition is false for NaN, 0 · ∞ and
//! ∞ − ∞ are NaN, so that `x · Φ(x)` is NaN at −∞. `min` and `max` are NaN where one side is.

/// Parameters `p` and `q` of a function; 0 where it has none.
pub(crate) type Params = [f32; 2];

/// A function of one f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Unary {
    /// `x` within [`p`, `q`]: `min(max(x, p), q)`.
    Clamp,
    /// `x` above 0, else `p · (eˣ − 1)`.
    Elu,
    /// `eˣ`.
    Exp,
    /// `x · Φ(x)`, by the error function.
    GeluErf,
    /// `x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³)))`.
    GeluTanh,
    /// `min(max(p·x + q, 0), 1)`.
    HardSigmoid,
    /// `x · min(max(x + 3, 0), 6) / 6`.
    HardSwish,
    /// `x` from 0 on, else `p · x`.
    LeakyRelu,
    /// Natural logarithm.
    Log,
    /// `x · tanh(ln(1 + eˣ))`.
    Mish,
    /// `x` to the power of `p`, as C's `pow`.
    Pow,
    /// `1 / x`.
    Reciprocal,
    /// `max(x, 0)`.
    Relu,
    /// The nearest integer, halves to the even one.
    Round,
    /// `1 / (1 + e⁻ˣ)`.
    Sigmoid,
    /// `ln(1 + e^(p·x)) / p`.
    SoftPlus,
    /// Square root.
    Sqrt,
    /// `x · x`.
    Square,
    /// Hyperbolic tangent.
    Tanh,
    /// The largest integer that is not above `x`.
    Floor,
    /// The smallest integer that is not below `x`.
    Ceil,
    /// Sine of `x` in radians, NaN at ±∞.
    Sin,
    /// Cosine of `x` in radians, NaN at ±∞.
    Cos,
}

impl Unary {
    /// How many units in the last place of f32 a kernel may be off the correctly rounded result.
    pub(crate) const fn ulps(self) -> u32 {
        match self {
            Self::Clamp | Self::LeakyRelu | Self::Reciprocal | Self::Relu | Self::Round => 0,
            Self::Sqrt | Self::Square | Self::Floor | Self::Ceil => 0,
            Self::Elu | Self::Exp | Self::HardSigmoid | Self::HardSwish => 2,
            Self::Log | Self::Sigmoid | Self::Tanh | Self::Sin | Self::Cos => 2,
            Self::GeluErf | Self::GeluTanh | Self::Mish | Self::Pow | Self::SoftPlus => 4,
        }
    }
}

/// A function of two numbers of one type: f32, and where noted s32 and s64, on which sums, differences and
/// products wrap around.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Binary {
    /// `x + y`; also s32, s64.
    Add,
    /// `x − y`; also s32, s64.
    Subtract,
    /// `x · y`; also s32, s64.
    Multiply,
    /// `x / y`; also s32, s64: rounded down, and 0 where `y` is 0.
    Divide,
    /// `x − y · ⌊x / y⌋`, which has the sign of `y`, and 0 where `y` is 0; of s32 and s64 alone.
    Modulo,
    /// The larger one, NaN where one is NaN, +0 above −0; also s32, s64.
    Maximum,
    /// The smaller one, NaN where one is NaN, −0 below +0; also s32, s64.
    Minimum,
    /// `(x − y)²`, the difference rounded to f32 before it is squared.
    SquaredDifference,
    /// `x` from 0 on, else `y · x`.
    Prelu,
    /// The gradient of `|x|`: `y` for `x` above 0, `−y` below, else 0. In this and all that follow, `x` is
    /// the source or, where the name says so, the result of the forward op, and `y` the gradient of the
    /// result.
    AbsBackward,
    /// `y` for `x` strictly between `p` and `q`, else 0; of source and of result alike.
    ClampBackward,
    /// `y` for `x` above 0, else `y · p · eˣ`.
    EluBackward,
    /// `y` for `x` above 0, else `y · (x + p)`.
    EluBackwardOfResult,
    /// `y · (Φ(x) + x·φ(x))`.
    GeluErfBackward,
    /// `y` times the derivative of [`Unary::GeluTanh`]; at ±∞ that is NaN.
    GeluTanhBackward,
    /// `p · y` where `p·x + q` is strictly between 0 and 1, else 0.
    HardSigmoidBackward,
    /// `y` for `x` from 3 on, `y · (x/3 + 1/2)` for `x` strictly between −3 and 3, else 0.
    HardSwishBackward,
    /// `y` times the derivative of [`Unary::Mish`]; at ±∞ that is NaN.
    MishBackward,
    /// `y` for `x` above 0, else 0; of source and of result alike.
    ReluBackward,
    /// `y · s · (1 − s)` with `s = 1 / (1 + e⁻ˣ)`.
    SigmoidBackward,
    /// `y · x · (1 − x)`.
    SigmoidBackwardOfResult,
    /// `y / (1 + e^(−p·x))`.
    SoftPlusBackward,
    /// `y / (2·√x)`.
    SqrtBackward,
    /// `y / (2·x)`.
    SqrtBackwardOfResult,
    /// `y · (1 − tanh²(x))`.
    TanhBackward,
    /// `y · (1 − x²)`.
    TanhBackwardOfResult,
}

impl Binary {
    /// Whether the operands can change places: the result is the same bit for bit.
    pub(crate) const fn commutes(self) -> bool {
        matches!(self, Self::Add | Self::Multiply | Self::Maximum | Self::Minimum | Self::SquaredDifference)
    }

    /// How many units in the last place of f32 a kernel may be off the correctly rounded result.
    pub(crate) const fn ulps(self) -> u32 {
        match self {
            Self::Add | Self::Subtract | Self::Multiply | Self::Divide | Self::SquaredDifference => 0,
            Self::Maximum | Self::Minimum | Self::Prelu | Self::Modulo => 0,
            Self::AbsBackward | Self::ClampBackward | Self::ReluBackward | Self::HardSigmoidBackward => 0,
            Self::EluBackward | Self::EluBackwardOfResult | Self::HardSwishBackward => 2,
            Self::SigmoidBackward | Self::SigmoidBackwardOfResult => 2,
            Self::SqrtBackward | Self::SqrtBackwardOfResult => 2,
            Self::TanhBackward | Self::TanhBackwardOfResult => 2,
            Self::GeluErfBackward | Self::GeluTanhBackward => 4,
            Self::MishBackward | Self::SoftPlusBackward => 4,
        }
    }
}

/// A comparison of two numbers of one type, any numeric one. With NaN only [`NotEqual`](Self::NotEqual) is
/// true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Comparison {
    /// `x = y`.
    Equal,
    /// `x ≠ y`, true where one is NaN.
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
}

/// A function of truth values: bytes, true where not zero; the result is 0 or 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Logic {
    /// Whether both are true.
    And,
    /// Whether at least one is true.
    Or,
    /// Whether exactly one is true.
    Xor,
}

/// A question to a floating-point number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// Whether it is NaN, of any kind.
    Nan,
    /// Whether it is one of the two infinities.
    Infinite,
    /// Whether it is neither NaN nor an infinity.
    Finite,
}

/// What happens to the sign of a number: to the sign bit of a floating-point number of any width, to an
/// integer by arithmetic that wraps around.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Sign {
    /// The absolute value: the sign bit is cleared, all other bits stay, those of a NaN too; also s32, s64.
    Clear,
    /// The negative value: the sign bit is flipped, all other bits stay, those of a NaN too; also s32, s64.
    Flip,
}
