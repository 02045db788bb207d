//! The documentation of kinds that compute each element on its own.
//! `STERNA_REWRITE=1 cargo test --test graphs item_docs` writes it anew.

#[rustfmt::skip]
macro_rules! kind_doc {
    (Abs) => {r#"
The absolute value: the sign bit is cleared, all other bits stay, those of a NaN too; also f64, and s32, s64.

- Inputs: `src` T; output: `dst` T.
- Types: f32, bf16, f16, f64, s32, s64.
- Shapes: The output has the shape of the first input.
"#};
    (AbsBackward) => {r#"
The gradient of `|x|`: `y` for `x` above 0, `−y` below, else 0.

- Inputs: `src` T, `diff_dst` T; output: `diff_src` T.
- Types: f32, bf16, f16.
- Shapes: All inputs have one shape, which is that of the outputs.
"#};
    (Add) => {r#"
`x + y`; also s32, s64, f64.

- Inputs: `src_0` T1, `src_1` T2; output: `dst` T3.
- Types: f32, bf16, f16, f64, s32, s64.
- Attributes: `auto_broadcast` string, default `numpy`, one of `none`, `numpy`.
- Shapes: The inputs broadcast to each other: aligned on the right, each dim is equal or 1. Under
  `auto_broadcast` = `none` both have one shape.
"#};
    (BiasAdd) => {r#"
`x + y`; also s32, s64, f64.

- Inputs: `src` T, `bias` T; output: `dst` T.
- Types: f32, bf16, f16.
- Attributes: `data_format` string, default `NXC`, one of `NCX`, `NXC`.
- Shapes: The output has the shape of the first input. The bias holds one number for each of its channels.
"#};
    (Clamp) => {r#"
`x` within \[`p`, `q`]: `min(max(x, p), q)`. Here `p` = `min`, `q` = `max`.

- Inputs: `src` T; output: `dst` T.
- Types: f32, bf16, f16.
- Attributes: `min` f32, required; `max` f32, required.
- Shapes: The output has the shape of the first input.
"#};
    (ClampBackward) => {r#"
`y` for `x` strictly between `p` and `q`, else 0; of source and of result alike. Here `p` = `min`, `q` =
`max`.

- Inputs: `src/dst` T, `diff_dst` T; output: `diff_src` T.
- Types: f32, bf16, f16.
- Attributes: `min` f32, required; `max` f32, required; `use_dst` bool, default true.
- Shapes: All inputs have one shape, which is that of the outputs.
"#};
    (Divide) => {r#"
`x / y`; also f64, and s32, s64: rounded down, and 0 if `y` is 0.

- Inputs: `src_0` T1, `src_1` T2; output: `dst` T3.
- Types: f32, bf16, f16, f64, s32, s64.
- Attributes: `auto_broadcast` string, default `numpy`, one of `none`, `numpy`.
- Shapes: The inputs broadcast to each other: aligned on the right, each dim is equal or 1. Under
  `auto_broadcast` = `none` both have one shape.
"#};
    (Elu) => {r#"
`x` above 0, else `p · (eˣ − 1)`. Here `p` = `alpha`.

- Inputs: `src` T; output: `dst` T.
- Types: f32, bf16, f16.
- Attributes: `alpha` f32, required.
- Shapes: The output has the shape of the first input.
"#};
    (EluBackward) => {r#"
With `use_dst`: `y` for `x` above 0, else `y · (x + p)`. Here `p` = `alpha`.

Without `use_dst`: `y` for `x` above 0, else `y · p · eˣ`. Here `p` = `alpha`.

- Inputs: `src/dst` T, `diff_dst` T; output: `diff_src` T.
- Types: f32, bf16, f16.
- Attributes: `alpha` f32, required; `use_dst` bool, default true.
- Shapes: All inputs have one shape, which is that of the outputs.
"#};
    (Exp) => {r#"
`eˣ`; also f64.

- Inputs: `src` T; output: `dst` T.
- Types: f32, bf16, f16, f64.
- Shapes: The output has the shape of the first input.
"#};
    (GELU) => {r#"
With `mode` = `gelu_tanh`: `x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³)))`.

With `mode` = `gelu_erf`: `x · Φ(x)`, by the error function.

- Inputs: `src` T; output: `dst` T.
- Types: f32, bf16, f16.
- Attributes: `mode` string, default `gelu_erf`, one of `gelu_erf`, `gelu_tanh`.
- Shapes: The output has the shape of the first input.
"#};
    (GELUBackward) => {r#"
With `mode` = `gelu_tanh`: `y` times the derivative of GELU's tanh form; at ±∞ that is NaN.

With `mode` = `gelu_erf`: `y · (Φ(x) + x·φ(x))`.

- Inputs: `src` T, `diff_dst` T; output: `diff_src` T.
- Types: f32, bf16, f16.
- Attributes: `mode` string, default `gelu_erf`, one of `gelu_erf`, `gelu_tanh`.
- Shapes: All inputs have one shape, which is that of the outputs.
"#};
    (HardSwish) => {r#"
`x · min(max(x + 3, 0), 6) / 6`.

- Inputs: `src` T; output: `dst` T.
- Types: f32, bf16, f16.
- Shapes: The output has the shape of the first input.
"#};
    (HardSwishBackward) => {r#"
`y` for `x` from 3 on, `y · (x/3 + 1/2)` for `x` strictly between −3 and 3, else 0.

- Inputs: `src` T, `diff_dst` T; output: `diff_src` T.
- Types: f32, bf16, f16.
- Shapes: All inputs have one shape, which is that of the outputs.
"#};
    (LeakyReLU) => {r#"
`x` from 0 on, else `p · x`. Here `p` = `alpha`.

- Inputs: `src` T; output: `dst` T.
- Types: f32, bf16, f16.
- Attributes: `alpha` f32, required.
- Shapes: The output has the shape of the first input.
"#};
    (Log) => {r#"
Natural logarithm; also f64.

- Inputs: `src` T; output: `dst` T.
- Types: f32, bf16, f16, f64.
- Shapes: The output has the shape of the first input.
"#};
    (Maximum) => {r#"
The larger one, NaN if one is NaN, +0 above −0; also s32, s64, f64.

- Inputs: `src_0` T, `src_1` T; output: `dst` T.
- Types: f32, bf16, f16, f64, s32, s64.
- Attributes: `auto_broadcast` string, default `numpy`, one of `none`, `numpy`.
- Shapes: The inputs broadcast to each other: aligned on the right, each dim is equal or 1. Under
  `auto_broadcast` = `none` both have one shape.
"#};
    (Minimum) => {r#"
The smaller one, NaN if one is NaN, −0 below +0; also s32, s64, f64.

- Inputs: `src_0` T, `src_1` T; output: `dst` T.
- Types: f32, bf16, f16, f64, s32, s64.
- Attributes: `auto_broadcast` string, default `numpy`, one of `none`, `numpy`.
- Shapes: The inputs broadcast to each other: aligned on the right, each dim is equal or 1. Under
  `auto_broadcast` = `none` both have one shape.
"#};
    (Mish) => {r#"
`x · tanh(ln(1 + eˣ))`.

- Inputs: `src` T; output: `dst` T.
- Types: f32, bf16, f16.
- Shapes: The output has the shape of the first input.
"#};
    (MishBackward) => {r#"
`y` times the derivative of Mish; at ±∞ that is NaN.

- Inputs: `src` T, `diff_dst` T; output: `diff_src` T.
- Types: f32, bf16, f16.
- Shapes: All inputs have one shape, which is that of the outputs.
"#};
    (Multiply) => {r#"
`x · y`; also s32, s64, f64.

- Inputs: `src_0` T1, `src_1` T2; output: `dst` T3.
- Types: f32, bf16, f16, f64, s32, s64.
- Attributes: `auto_broadcast` string, default `numpy`, one of `none`, `numpy`.
- Shapes: The inputs broadcast to each other: aligned on the right, each dim is equal or 1. Under
  `auto_broadcast` = `none` both have one shape.
"#};
    (PReLU) => {r#"
`x` from 0 on, else `y · x`.

- Inputs: `src` T, `slope` T; output: `dst` T.
- Types: f32, bf16, f16.
- Attributes: `data_format` string, default `NXC`, one of `NCX`, `NXC`; `per_channel_broadcast` bool, default
  true.
- Shapes: The first input has the shape of the output, and the slope broadcasts one way onto it. A slope of
  rank 1 stands along the last dim if `per_channel_broadcast` is false or the first input has rank 1, whatever
  `data_format` says, else along that of channels; it may be one number for all.
"#};
    (Reciprocal) => {r#"
`1 / x`; also f64.

- Inputs: `src` T; output: `dst` T.
- Types: f32, bf16, f16, f64.
- Shapes: The output has the shape of the first input.
"#};
    (ReLU) => {r#"
`max(x, 0)`; also f64.

- Inputs: `src` T; output: `dst` T.
- Types: f32, bf16, f16, f64.
- Shapes: The output has the shape of the first input.
"#};
    (ReLUBackward) => {r#"
`y` for `x` above 0, else 0; of source and of result alike.

- Inputs: `src/dst` T, `diff_dst` T; output: `diff_src` T.
- Types: f32, bf16, f16.
- Attributes: `use_dst` bool, default true.
- Shapes: All inputs have one shape, which is that of the outputs.
"#};
    (Round) => {r#"
The nearest integer, halves to the even one; also f64.

- Inputs: `src` T; output: `dst` T.
- Types: f32, bf16, f16, f64.
- Shapes: The output has the shape of the first input.
"#};
    (Sigmoid) => {r#"
`1 / (1 + e⁻ˣ)`; also f64.

- Inputs: `src` T; output: `dst` T.
- Types: f32, bf16, f16, f64.
- Shapes: The output has the shape of the first input.
"#};
    (SigmoidBackward) => {r#"
With `use_dst`: `y · x · (1 − x)`.

Without `use_dst`: `y · s · (1 − s)` with `s = 1 / (1 + e⁻ˣ)`.

- Inputs: `src/dst` T, `diff_dst` T; output: `diff_src` T.
- Types: f32, bf16, f16.
- Attributes: `use_dst` bool, default true.
- Shapes: All inputs have one shape, which is that of the outputs.
"#};
    (SoftPlus) => {r#"
`ln(1 + e^(p·x)) / p`. Here `p` = `beta`.

- Inputs: `src` T; output: `dst` T.
- Types: f32, bf16, f16.
- Attributes: `beta` f32, default 1.
- Shapes: The output has the shape of the first input.
"#};
    (SoftPlusBackward) => {r#"
`y / (1 + e^(−p·x))`. Here `p` = `beta`.

- Inputs: `src` T, `diff_dst` T; output: `diff_src` T.
- Types: f32, bf16, f16.
- Attributes: `beta` f32, default 1.
- Shapes: All inputs have one shape, which is that of the outputs.
"#};
    (Sqrt) => {r#"
Square root; also f64.

- Inputs: `src` T; output: `dst` T.
- Types: f32, bf16, f16, f64.
- Shapes: The output has the shape of the first input.
"#};
    (SqrtBackward) => {r#"
With `use_dst`: `y / (2·x)`.

Without `use_dst`: `y / (2·√x)`.

- Inputs: `src/dst` T, `diff_dst` T; output: `diff_src` T.
- Types: f32, bf16, f16.
- Attributes: `use_dst` bool, default true.
- Shapes: All inputs have one shape, which is that of the outputs.
"#};
    (Square) => {r#"
`x · x`; also f64.

- Inputs: `src` T; output: `dst` T.
- Types: f32, bf16, f16, f64.
- Shapes: The output has the shape of the first input.
"#};
    (SquaredDifference) => {r#"
`(x − y)²`, the difference rounded to f32 before it is squared.

- Inputs: `src_0` T, `src_1` T; output: `dst` T.
- Types: f32, bf16, f16.
- Attributes: `auto_broadcast` string, default `numpy`, one of `none`, `numpy`.
- Shapes: The inputs broadcast to each other: aligned on the right, each dim is equal or 1. Under
  `auto_broadcast` = `none` both have one shape.
"#};
    (Subtract) => {r#"
`x − y`; also s32, s64, f64.

- Inputs: `src_0` T1, `src_1` T2; output: `dst` T3.
- Types: f32, bf16, f16, f64, s32, s64.
- Attributes: `auto_broadcast` string, default `numpy`, one of `none`, `numpy`.
- Shapes: The inputs broadcast to each other: aligned on the right, each dim is equal or 1. Under
  `auto_broadcast` = `none` both have one shape.
"#};
    (Tanh) => {r#"
Hyperbolic tangent; also f64.

- Inputs: `src` T; output: `dst` T.
- Types: f32, bf16, f16, f64.
- Shapes: The output has the shape of the first input.
"#};
    (TanhBackward) => {r#"
With `use_dst`: `y · (1 − x²)`.

Without `use_dst`: `y · (1 − tanh²(x))`.

- Inputs: `src/dst` T, `diff_dst` T; output: `diff_src` T.
- Types: f32, bf16, f16.
- Attributes: `use_dst` bool, default true.
- Shapes: All inputs have one shape, which is that of the outputs.
"#};
    (TypeCast) => {r#"
The same number in another type. Integer to integer wraps around. Floating point to integer truncates and
saturates; NaN becomes 0. A conversion to floating point rounds once; true is 1. To its own type a number
keeps every bit.

- Inputs: `src` T1; output: `dst` T2.
- Types: f32, bf16, f16.
- Shapes: The output has the shape of the first input.
- Checks: The two types differ, and one of them is f32.
"#};
    (HardSigmoid) => {r#"
`min(max(p·x + q, 0), 1)`. Here `p` = `alpha`, `q` = `beta`.

- Inputs: `src` T; output: `dst` T.
- Types: f32, bf16, f16.
- Attributes: `alpha` f32, required; `beta` f32, required.
- Shapes: The output has the shape of the first input.
"#};
    (HardSigmoidBackward) => {r#"
`p · y` if `p·x + q` is strictly between 0 and 1, else 0. Here `p` = `alpha`, `q` = `beta`.

- Inputs: `src` T, `diff_dst` T; output: `diff_src` T.
- Types: f32, bf16, f16.
- Attributes: `alpha` f32, required; `beta` f32, required.
- Shapes: All inputs have one shape, which is that of the outputs.
"#};
    (Select) => {r#"
The second operand if the first is not 0, else the third, bit for bit.

- Inputs: `cond` T1, `then` T2, `else` T2; output: `dst` T2.
- Types: T1: boolean; T2: every type of whole bytes.
- Attributes: `auto_broadcast` string, default `numpy`, one of `none`, `numpy`, `pdpd`, `multidirectional`;
  `axis` s64, optional.
- Shapes: Under `numpy`, `then` and `else` broadcast to each other, and `cond` onto their shape. Under `none`
  all three have one shape. Under `pdpd` the output has the shape of `then`, and the others broadcast onto it,
  from the dim `axis` on. Under `multidirectional` all three broadcast to each other.
- Checks: `axis` needs `auto_broadcast` = `pdpd`, and is at least −1.
"#};
    (Pow) => {r#"
`x` to the power of `p`, as C's `pow`. Here `p` = `beta`.

- Inputs: `src` T; output: `dst` T.
- Types: f32, bf16, f16.
- Attributes: `beta` f32, required.
- Shapes: The output has the shape of the first input.
"#};
    (GenIndex) => {r#"
The element's index along the dim that `axis` names; the input is shape-only.

- Inputs: `src` T1 (shape-only); output: `dst` T2.
- Types: T1: every type of whole bytes; T2: s32.
- Attributes: `axis` s64, required.
- Shapes: The output has the shape of the first input.
"#};
    (GreaterEqual) => {r#"
`x ≥ y`.

- Inputs: `src_0` T1, `src_1` T1; output: `dst` T2.
- Types: T1: every numeric type of whole bytes but f8; T2: boolean.
- Attributes: `auto_broadcast` string, default `numpy`, one of `none`, `numpy`.
- Shapes: The inputs broadcast to each other: aligned on the right, each dim is equal or 1. Under
  `auto_broadcast` = `none` both have one shape.
"#};
    (Equal) => {r#"
`x = y`.

- Inputs: `src_0` T1, `src_1` T1; output: `dst` T2.
- Types: T1: every numeric type of whole bytes but f8; T2: boolean.
- Attributes: `auto_broadcast` string, default `numpy`, one of `none`, `numpy`.
- Shapes: The inputs broadcast to each other: aligned on the right, each dim is equal or 1. Under
  `auto_broadcast` = `none` both have one shape.
"#};
    (NotEqual) => {r#"
`x ≠ y`, true if one is NaN.

- Inputs: `src_0` T1, `src_1` T1; output: `dst` T2.
- Types: T1: every numeric type of whole bytes but f8; T2: boolean.
- Attributes: `auto_broadcast` string, default `numpy`, one of `none`, `numpy`.
- Shapes: The inputs broadcast to each other: aligned on the right, each dim is equal or 1. Under
  `auto_broadcast` = `none` both have one shape.
"#};
    (Less) => {r#"
`x < y`.

- Inputs: `src_0` T1, `src_1` T1; output: `dst` T2.
- Types: T1: every numeric type of whole bytes but f8; T2: boolean.
- Attributes: `auto_broadcast` string, default `numpy`, one of `none`, `numpy`.
- Shapes: The inputs broadcast to each other: aligned on the right, each dim is equal or 1. Under
  `auto_broadcast` = `none` both have one shape.
"#};
    (LessEqual) => {r#"
`x ≤ y`.

- Inputs: `src_0` T1, `src_1` T1; output: `dst` T2.
- Types: T1: every numeric type of whole bytes but f8; T2: boolean.
- Attributes: `auto_broadcast` string, default `numpy`, one of `none`, `numpy`.
- Shapes: The inputs broadcast to each other: aligned on the right, each dim is equal or 1. Under
  `auto_broadcast` = `none` both have one shape.
"#};
    (Greater) => {r#"
`x > y`.

- Inputs: `src_0` T1, `src_1` T1; output: `dst` T2.
- Types: T1: every numeric type of whole bytes but f8; T2: boolean.
- Attributes: `auto_broadcast` string, default `numpy`, one of `none`, `numpy`.
- Shapes: The inputs broadcast to each other: aligned on the right, each dim is equal or 1. Under
  `auto_broadcast` = `none` both have one shape.
"#};
    (LogicalAnd) => {r#"
True if both are true.

- Inputs: `src_0` T, `src_1` T; output: `dst` T.
- Types: boolean.
- Attributes: `auto_broadcast` string, default `numpy`, one of `none`, `numpy`.
- Shapes: The inputs broadcast to each other: aligned on the right, each dim is equal or 1. Under
  `auto_broadcast` = `none` both have one shape.
"#};
    (LogicalOr) => {r#"
True if at least one is true.

- Inputs: `src_0` T, `src_1` T; output: `dst` T.
- Types: boolean.
- Attributes: `auto_broadcast` string, default `numpy`, one of `none`, `numpy`.
- Shapes: The inputs broadcast to each other: aligned on the right, each dim is equal or 1. Under
  `auto_broadcast` = `none` both have one shape.
"#};
    (LogicalXor) => {r#"
True if exactly one is true.

- Inputs: `src_0` T, `src_1` T; output: `dst` T.
- Types: boolean.
- Attributes: `auto_broadcast` string, default `numpy`, one of `none`, `numpy`.
- Shapes: The inputs broadcast to each other: aligned on the right, each dim is equal or 1. Under
  `auto_broadcast` = `none` both have one shape.
"#};
    (LogicalNot) => {r#"
The negation of a boolean.

- Inputs: `src` T; output: `dst` T.
- Types: boolean.
- Shapes: The output has the shape of the first input.
"#};
    (IsNaN) => {r#"
True if it is NaN, of any kind.

- Inputs: `src` T1; output: `dst` T2.
- Types: T1: f32, bf16, f16, f64; T2: boolean.
- Shapes: The output has the shape of the first input.
"#};
    (IsInf) => {r#"
True if it is one of the two infinities.

- Inputs: `src` T1; output: `dst` T2.
- Types: T1: f32, bf16, f16, f64; T2: boolean.
- Shapes: The output has the shape of the first input.
"#};
    (IsFinite) => {r#"
True if it is neither NaN nor an infinity.

- Inputs: `src` T1; output: `dst` T2.
- Types: T1: f32, bf16, f16, f64; T2: boolean.
- Shapes: The output has the shape of the first input.
"#};
    (Identity) => {r#"
The same element, bit for bit.

- Inputs: `src` T; output: `dst` T.
- Types: every type of whole bytes.
- Shapes: The output has the shape of the first input.
"#};
    (Negative) => {r#"
The negative value: the sign bit is flipped, all other bits stay, those of a NaN too; also f64, and s32, s64.

- Inputs: `src` T; output: `dst` T.
- Types: f32, bf16, f16, f64, s32, s64.
- Shapes: The output has the shape of the first input.
"#};
    (Floor) => {r#"
The largest integer that is not above `x`; also f64.

- Inputs: `src` T; output: `dst` T.
- Types: f32, bf16, f16, f64.
- Shapes: The output has the shape of the first input.
"#};
    (Ceil) => {r#"
The smallest integer that is not below `x`; also f64.

- Inputs: `src` T; output: `dst` T.
- Types: f32, bf16, f16, f64.
- Shapes: The output has the shape of the first input.
"#};
    (Fill) => {r#"
The same number everywhere, converted from f32; as a boolean, whether it is not 0.

- Inputs: none; output: `dst` T.
- Types: every numeric type of whole bytes but f8, boolean.
- Attributes: `shape` s64\[], required; `value` f32, required.
- Shapes: The attribute `shape`.
- Checks: `shape` is a possible shape: at most twelve dims, none negative.
"#};
    (Cast) => {r#"
The same number in another type. Integer to integer wraps around. Floating point to integer truncates and
saturates; NaN becomes 0. A conversion to floating point rounds once; true is 1. To its own type a number
keeps every bit.

- Inputs: `src` T1; output: `dst` T2.
- Types: T1: every numeric type of whole bytes but f8, boolean; T2: every numeric type of whole bytes but f8.
- Shapes: The output has the shape of the first input.
"#};
    (Modulo) => {r#"
`x − y · ⌊x / y⌋`, rounded once, which has the sign of `y`; also f64, and s32, s64: 0 if `y` is 0.

- Inputs: `src_0` T, `src_1` T; output: `dst` T.
- Types: f32, bf16, f16, f64, s32, s64.
- Attributes: `auto_broadcast` string, default `numpy`, one of `none`, `numpy`.
- Shapes: The inputs broadcast to each other: aligned on the right, each dim is equal or 1. Under
  `auto_broadcast` = `none` both have one shape.
"#};
    (Sin) => {r#"
Sine of `x` in radians, NaN at ±∞.

- Inputs: `src` T; output: `dst` T.
- Types: f32, bf16, f16.
- Shapes: The output has the shape of the first input.
"#};
    (Cos) => {r#"
Cosine of `x` in radians, NaN at ±∞.

- Inputs: `src` T; output: `dst` T.
- Types: f32, bf16, f16.
- Shapes: The output has the shape of the first input.
"#};
    (Power) => {r#"
`x` to the power of `y`, as C's `pow`; also f64, whose power is that of the C library, and s32, s64: for `y`
below 0 the quotient of 1 and the power, cut off, and 0 if `x` is 0.

- Inputs: `src_0` T, `src_1` T; output: `dst` T.
- Types: f32, bf16, f16, f64, s32, s64.
- Attributes: `auto_broadcast` string, default `numpy`, one of `none`, `numpy`.
- Shapes: The inputs broadcast to each other: aligned on the right, each dim is equal or 1. Under
  `auto_broadcast` = `none` both have one shape.
"#};
    ($Name:ident) => { $crate::types::op_docs::tensor_kind_doc!($Name) };
}

pub(in crate::types) use kind_doc;
