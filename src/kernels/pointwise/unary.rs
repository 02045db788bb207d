//! Functions of one f32; those of f64 have a file of their own.
//!
//! Each is the formula of [`Unary`], rounded to f32 once at the end. If more than one rounding could show,
//! intermediate results are f64.

use super::doubles;
use super::driver::{Impls, Kernel1, UnaryTable, block_len, numbers1};
use crate::kernels::floats::NAN;
use crate::kernels::function::Function1;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
use crate::kernels::function::map_scalar;
use crate::kernels::isa::Isa;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
use crate::kernels::math::avx512;
use crate::kernels::math::{self, single};
use crate::types::dtype::DataType;
use crate::types::function::{Params, Unary};
use crate::types::kind::Level;

/// The implementations of a function of one number of a type, if it has a kernel.
pub(crate) fn unary(level: Level, function: Unary, of: DataType) -> Option<Impls<Kernel1>> {
    let table = match of {
        DataType::F32 => Some(table(function)),
        DataType::F64 => doubles::unary(function),
        _ => None,
    };
    table.map(|table| table[level.row()])
}

/// One type for each function, one row of implementations for each type. At level Avx512 a function of
/// vectors may replace it.
macro_rules! functions {
    ($($Name:ident: |$x:ident, $p:pat_param, $q:pat_param| $value:expr $(, $Vector:ty)?;)*) => {
        $(
            struct $Name;

            impl Function1 for $Name {
                type X = f32;
                type To = f32;

                #[inline(always)]
                fn of<I: Isa>($x: f32, [$p, $q]: Params) -> f32 {
                    $value
                }

                const PRODUCES_NONCANONICAL_NAN: bool = true;

                #[inline(always)]
                fn canonicalise<I: Isa, const N: usize>(block: [f32; N]) -> [f32; N] {
                    I::canonical(block)
                }

                $(
                    #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
                    #[inline(always)]
                    fn of_block<I: Isa, const N: usize>(x: &[f32; N], params: Params) -> [f32; N] {
                        match I::LEVEL {
                            // SAFETY: kernels of the level run on machines that run it.
                            Level::Avx512 => unsafe { avx512::of_block::<$Vector, N>(x) },
                            _ => map_scalar::<Self, I, N>(x, params),
                        }
                    }
                )?
            }
        )*

        fn table(function: Unary) -> &'static UnaryTable {
            macro_rules! row {
                ($Function:ident, $Body:ty) => {
                    const { &numbers1::<$Body, { block_len(Unary::$Function.cost_on(DataType::F32)) }>() }
                };
            }
            match function {
                $(Unary::$Name => row!($Name, $Name),)*
                Unary::Pow => row!(Pow, Pow),
                Unary::Sin => row!(Sin, Sine<0>),
                Unary::Cos => row!(Cos, Sine<1>),
            }
        }
    };
}

functions! {
    Clamp: |x, p, q| clamp(x, p, q);
    Elu: |x, p, _| if x > 0.0 { x } else { single::elu::<I>(x, p) };
    Exp: |x, _, _| single::exp::<I>(x), avx512::Exp;
    GeluErf: |x, _, _| (f64::from(x) * math::normal_cdf::<I>(x.into())) as f32, avx512::GeluErf;
    GeluTanh: |x, _, _| single::gelu_tanh::<I>(x), avx512::GeluTanh;
    HardSigmoid: |x, p, q| hard_sigmoid::<I>(x, p, q);
    HardSwish: |x, _, _| (f64::from(x) * within(f64::from(x) + 3.0, 6.0) * SIXTH) as f32, avx512::HardSwish;
    LeakyRelu: |x, p, _| if x >= 0.0 { x } else { p * x };
    Log: |x, _, _| single::ln::<I>(x);
    Mish: |x, _, _| math::mish::<I>(x.into()) as f32;
    Reciprocal: |x, _, _| 1.0 / x;
    Relu: |x, _, _| if x <= 0.0 { 0.0 } else { x };
    Round: |x, _, _| round::<I>(x);
    Sigmoid: |x, _, _| single::sigmoid::<I>(x), avx512::Sigmoid;
    SoftPlus: |x, p, _| math::softplus::<I>(x.into(), p.into()) as f32;
    Sqrt: |x, _, _| sqrt(x);
    Square: |x, _, _| x * x;
    Tanh: |x, _, _| single::tanh::<I>(x), avx512::Tanh;
    Floor: |x, _, _| floor::<I>(x);
    Ceil: |x, _, _| -floor::<I>(-x);
}

/// `minimum(maximum(x, least), most)`, with any NaN for NaN. What depends on the limits alone leaves the
/// loop: the bits that only +0 as the least number and −0 as the largest one change, and all bits if one is
/// NaN.
#[inline(always)]
fn clamp(x: f32, least: f32, most: f32) -> f32 {
    const SIGN: u32 = 1 << 31;
    let kept = if least.to_bits() == 0 { !SIGN } else { !0 };
    let set = if most.to_bits() == SIGN { SIGN } else { 0 };
    let set = if least.is_nan() | most.is_nan() { !0 } else { set };
    // A comparison with NaN is false.
    let above = if least > x { least } else { x };
    let above = f32::from_bits(above.to_bits() & kept);
    let within = if most < above { most } else { above };
    f32::from_bits(within.to_bits() | set)
}

/// The most common powers need no logarithm. The exponent is tested once a block.
struct Pow;

impl Function1 for Pow {
    type X = f32;
    type To = f32;

    #[inline(always)]
    fn of<I: Isa>(x: f32, params: Params) -> f32 {
        Self::of_block::<I, 1>(&[x], params)[0]
    }

    #[inline(always)]
    fn of_block<I: Isa, const N: usize>(x: &[f32; N], [p, _]: Params) -> [f32; N] {
        let mut to = [0.0; N];
        macro_rules! each {
            (|$x:ident| $value:expr) => {
                for i in 0..N {
                    let $x = x[i];
                    to[i] = $value;
                }
            };
        }
        match p {
            -1.0 => each!(|x| 1.0 / x),
            // The sum with +0 is never −0.
            0.5 => each!(|x| if x == f32::NEG_INFINITY { f32::INFINITY } else { sqrt(x + 0.0) }),
            2.0 => each!(|x| x * x),
            3.0 => each!(|x| (f64::from(x) * f64::from(x) * f64::from(x)) as f32),
            _ => each!(|x| math::pow::<I>(x.into(), p.into()) as f32),
        }
        to
    }

    const PRODUCES_NONCANONICAL_NAN: bool = true;

    #[inline(always)]
    fn canonicalise<I: Isa, const N: usize>(block: [f32; N]) -> [f32; N] {
        I::canonical(block)
    }
}

/// The sine of a number and a number of quarter turns: 0 for the sine, 1 for the cosine. Large numbers, which
/// are rare, are tested for once a block.
struct Sine<const QUARTERS: u64>;

impl<const QUARTERS: u64> Function1 for Sine<QUARTERS> {
    type X = f32;
    type To = f32;

    #[inline(always)]
    fn of<I: Isa>(x: f32, params: Params) -> f32 {
        Self::of_block::<I, 1>(&[x], params)[0]
    }

    #[inline(always)]
    fn of_block<I: Isa, const N: usize>(x: &[f32; N], _: Params) -> [f32; N] {
        let (mut to, mut large) = ([0.0; N], [false; N]);
        for i in 0..N {
            to[i] = math::sine::<I>(x[i].into(), QUARTERS) as f32;
            large[i] = (x[i].abs() >= math::LARGE) & (x[i].abs() < f32::INFINITY);
        }
        if large.contains(&true) {
            for i in 0..N {
                if large[i] {
                    to[i] = math::of_large(x[i], QUARTERS);
                }
            }
        }
        to
    }

    const PRODUCES_NONCANONICAL_NAN: bool = true;

    #[inline(always)]
    fn canonicalise<I: Isa, const N: usize>(block: [f32; N]) -> [f32; N] {
        I::canonical(block)
    }
}

/// The square root. Its NaN is tested for before the root is taken: the compiler would drop a test of the
/// result.
#[inline(always)]
fn sqrt(x: f32) -> f32 {
    if x >= 0.0 { x.sqrt() } else { NAN }
}

/// `min(max(p·x + q, 0), 1)`, whose sum is rounded once.
#[inline(always)]
fn hard_sigmoid<I: Isa>(x: f32, p: f32, q: f32) -> f32 {
    if I::LEVEL == Level::Portable {
        return within(f64::from(p) * f64::from(x) + f64::from(q), 1.0) as f32;
    }
    let y = I::mul_add(p, x, q);
    let y = if y <= 0.0 { 0.0 } else { y };
    if y > 1.0 { 1.0 } else { y }
}

/// In f64, a product with it is as good as a division.
const SIXTH: f64 = 1.0 / 6.0;

/// `x` within 0 and a bound; NaN stays NaN.
#[inline(always)]
fn within(x: f64, bound: f64) -> f64 {
    let x = if x <= 0.0 { 0.0 } else { x };
    if x > bound { bound } else { x }
}

/// The nearest integer, halves to the even one.
#[inline(always)]
fn round<I: Isa>(x: f32) -> f32 {
    if I::LEVEL > Level::Portable {
        return x.round_ties_even();
    }
    // Without an instruction for it: above 2^23 no f32 has a fraction, so the sum is rounded to an integer.
    const SHIFTER: f32 = 8388608.0;
    let a = x.abs();
    let rounded = (a + SHIFTER) - SHIFTER;
    (if a < SHIFTER { rounded } else { a }).copysign(x)
}

/// The largest integer that is not above `x`.
#[inline(always)]
fn floor<I: Isa>(x: f32) -> f32 {
    if I::LEVEL > Level::Portable {
        return x.floor();
    }
    let near = round::<I>(x);
    (if near > x { near - 1.0 } else { near }).copysign(x)
}
