//! Functions of one and of two f64.
//!
//! Each is the formula of [`Unary`] or [`Binary`], rounded once. Exponential, logarithm, tangent and power
//! are those of the C library, one element after the other.

use super::driver::{BinaryTable, UnaryTable, block_len, numbers1, numbers2};
use super::modulo::FloatModulo;
use crate::kernels::function::{Function1, Function2};
use crate::kernels::isa::Isa;
use crate::types::dtype::DataType;
use crate::types::function::{Binary, Params, Unary};

/// The canonical NaN: arithmetic gives no other.
const NAN: f64 = f64::from_bits(0x7ff8_0000_0000_0000);

/// `x`, or the canonical NaN.
#[inline(always)]
pub(in crate::kernels) fn canonical(x: f64) -> f64 {
    if x.is_nan() { NAN } else { x }
}

/// The square root. As for f32, its NaN is tested for before the root is taken.
#[inline(always)]
fn sqrt(x: f64) -> f64 {
    if x >= 0.0 { x.sqrt() } else { NAN }
}

/// The larger number; NaN if one is NaN, +0 above −0.
#[inline(always)]
pub(in crate::kernels) fn maximum(x: f64, y: f64) -> f64 {
    let larger = if x > y { x } else { y };
    // Equal numbers have equal bits, except zeros.
    let larger = if x == y { f64::from_bits(x.to_bits() & y.to_bits()) } else { larger };
    if x.is_nan() | y.is_nan() { NAN } else { larger }
}

/// The smaller number; NaN if one is NaN, −0 below +0.
#[inline(always)]
pub(in crate::kernels) fn minimum(x: f64, y: f64) -> f64 {
    canonical(-maximum(-x, -y))
}

macro_rules! functions {
    (
        of one { $($One:ident: |$x:ident| $of_one:expr;)* }
        of two { $($Two:ident: |$a:ident, $b:ident| $of_two:expr;)* }
    ) => {
        $(
            struct $One;

            impl Function1 for $One {
                type X = f64;
                type To = f64;

                #[inline(always)]
                fn of<I: Isa>($x: f64, _: Params) -> f64 {
                    canonical($of_one)
                }
            }
        )*

        $(
            struct $Two;

            impl Function2 for $Two {
                type X = f64;
                type To = f64;

                #[inline(always)]
                fn of<I: Isa>($a: f64, $b: f64, _: Params) -> f64 {
                    canonical($of_two)
                }
            }
        )*

        pub(super) fn unary(function: Unary) -> Option<&'static UnaryTable> {
            match function {
                $(Unary::$One => {
                    const N: usize = block_len(Unary::$One.cost_on(DataType::F64));
                    Some(const { &numbers1::<$One, N>() })
                })*
                _ => None,
            }
        }

        pub(super) fn binary(function: Binary) -> Option<&'static BinaryTable> {
            match function {
                $(Binary::$Two => {
                    const N: usize = block_len(Binary::$Two.cost_on(DataType::F64));
                    Some(const { &numbers2::<$Two, N>() })
                })*
                Binary::Modulo => {
                    const N: usize = block_len(Binary::Modulo.cost_on(DataType::F64));
                    Some(const { &numbers2::<FloatModulo<f64>, N>() })
                }
                _ => None,
            }
        }
    };
}

functions! {
    of one {
        Exp: |x| x.exp();
        Log: |x| x.ln();
        Reciprocal: |x| 1.0 / x;
        Relu: |x| if x <= 0.0 { 0.0 } else { x };
        Round: |x| x.round_ties_even();
        Sigmoid: |x| 1.0 / (1.0 + (-x).exp());
        Sqrt: |x| sqrt(x);
        Square: |x| x * x;
        Tanh: |x| x.tanh();
        Floor: |x| x.floor();
        Ceil: |x| x.ceil();
    }
    of two {
        Add: |x, y| x + y;
        Subtract: |x, y| x - y;
        Multiply: |x, y| x * y;
        Divide: |x, y| x / y;
        Power: |x, y| x.powf(y);
        Maximum: |x, y| maximum(x, y);
        Minimum: |x, y| minimum(x, y);
    }
}
