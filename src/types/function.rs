//! The functions of pointwise ops: what is computed for one element, whatever the shapes.
//!
//! This is the one place that defines them; the interpreter in `reference` and the kernels each implement it. `x`, `y`
//! are the inputs in port order, `p`, `q` the parameters, which are attributes of the op. Arithmetic on floating point
//! is IEEE 754, rounded to nearest, ties to even; a NaN that comes out of it has positive sign and no payload.

/// A function of one f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Unary {
    /// `x` within [`p`, `q`]: `min(max(x, p), q)`; NaN stays NaN.
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
    /// `x · min(max(x/6 + 1/2, 0), 1)`.
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
    /// `max(x, 0)`; NaN stays NaN.
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
}

/// A function of two numbers of one type: f32, and where noted s32 and s64, on which sums, differences and products
/// wrap around.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Binary {
    /// `x + y`; also s32, s64.
    Add,
    /// `x − y`; also s32, s64.
    Subtract,
    /// `x · y`; also s32, s64.
    Multiply,
    /// `x / y`.
    Divide,
    /// The larger one, NaN where one is NaN, +0 above −0; also s32, s64.
    Maximum,
    /// The smaller one, NaN where one is NaN, −0 below +0; also s32, s64.
    Minimum,
    /// `(x − y)²`, the difference rounded to f32 before it is squared.
    SquaredDifference,
    /// `x` from 0 on, else `y · x`.
    Prelu,
    /// The gradient of `|x|`: `y` for `x` above 0, `−y` below, else 0. In this and all that follow, `x` is the
    /// source or, where the name says so, the result of the forward op, and `y` the gradient of the result.
    AbsBackward,
    /// `y` for `x` strictly between `p` and `q`, else 0; of source and of result alike.
    ClampBackward,
    /// `y` for `x` above 0, else `y · p · eˣ`.
    EluBackward,
    /// `y` for `x` above 0, else `y · (x + p)`.
    EluBackwardOfResult,
    /// `y · (Φ(x) + x·φ(x))`.
    GeluErfBackward,
    /// `y` times the derivative of [`Unary::GeluTanh`].
    GeluTanhBackward,
    /// `p · y` where `p·x + q` is strictly between 0 and 1, else 0.
    HardSigmoidBackward,
    /// With `h = x/6 + 1/2`: `y` for `h` from 1 on, `y · (x/3 + 1/2)` for `h` between 0 and 1, else 0.
    HardSwishBackward,
    /// `y` times the derivative of [`Unary::Mish`].
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

/// A comparison of two numbers of one type, any numeric one. With NaN only [`NotEqual`](Self::NotEqual) is true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

/// A function of truth values: bytes, true where not zero; the result is 0 or 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Logic {
    And,
    Or,
    Xor,
}

/// A question to a floating-point number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    Nan,
    Infinite,
    Finite,
}

/// What happens to the sign bit of a floating-point number of any width; all other bits stay, those of a NaN too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Sign {
    /// Cleared: the absolute value.
    Clear,
    /// Flipped: the negative value.
    Flip,
}
