//! Functions of two numbers: of f32, and integer arithmetic of s32 and s64.
//!
//! Each is the formula of [`Binary`], rounded to f32 once at the end. If more than one rounding could show,
//! intermediate results are f64.

use std::marker::PhantomData;

use super::driver::{BinaryTable, Impls, Kernel2, block_len, numbers2};
use crate::kernels::floats::{maximum, minimum};
use crate::kernels::function::Function2;
use crate::kernels::isa::Isa;
use crate::kernels::simd::Pod;
use crate::kernels::{InnerStride, math};
use crate::types::dtype::DataType;
use crate::types::function::{Binary, Params};
use crate::types::kind::Level;

/// The implementations of a function of two numbers of a type, if it has a kernel.
pub(crate) fn binary(
    level: Level,
    function: Binary,
    of: DataType,
    x: InnerStride,
    y: InnerStride,
) -> Option<Impls<Kernel2>> {
    let table = match of {
        DataType::F32 => table(function),
        DataType::S32 => integer_table::<i32>(function),
        DataType::S64 => integer_table::<i64>(function),
        _ => None,
    };
    table.map(|table| table[level as usize].at(x, y))
}

/// One type for each function, one row of implementations for each type.
macro_rules! functions {
    ($($Name:ident: |$x:ident, $y:ident, $p:pat_param, $q:pat_param| $value:expr;)*) => {
        $(
            struct $Name;

            impl Function2 for $Name {
                type X = f32;
                type To = f32;

                #[inline(always)]
                fn of<I: Isa>($x: f32, $y: f32, [$p, $q]: Params) -> f32 {
                    $value
                }

                const PRODUCES_NONCANONICAL_NAN: bool = true;

                #[inline(always)]
                fn canonicalise<I: Isa, const N: usize>(block: [f32; N]) -> [f32; N] {
                    I::canonical(block)
                }
            }
        )*

        fn table(function: Binary) -> Option<&'static BinaryTable> {
            match function {
                $(Binary::$Name => {
                    const N: usize = block_len(Binary::$Name.cost_on(DataType::F32));
                    Some(const { &numbers2::<$Name, N>() })
                })*
                Binary::Modulo => None,
            }
        }
    };
}

functions! {
    Add: |x, y, _, _| x + y;
    Subtract: |x, y, _, _| x - y;
    Multiply: |x, y, _, _| x * y;
    Divide: |x, y, _, _| x / y;
    Maximum: |x, y, _, _| maximum(x, y);
    Minimum: |x, y, _, _| minimum(x, y);
    SquaredDifference: |x, y, _, _| (x - y) * (x - y);
    Prelu: |x, y, _, _| if x >= 0.0 { x } else { y * x };
    AbsBackward: |x, y, _, _| if x > 0.0 { y } else if x < 0.0 { -y } else { 0.0 };
    ClampBackward: |x, y, p, q| if (x > p) & (x < q) { y } else { 0.0 };
    EluBackward: |x, y, p, _| {
        if x > 0.0 { y } else { (f64::from(y) * f64::from(p) * math::exp::<I>(x.into())) as f32 }
    };
    EluBackwardOfResult: |x, y, p, _| {
        if x > 0.0 { y } else { (f64::from(y) * (f64::from(x) + f64::from(p))) as f32 }
    };
    GeluErfBackward: |x, y, _, _| (f64::from(y) * math::gelu_erf_slope::<I>(x.into())) as f32;
    GeluTanhBackward: |x, y, _, _| (f64::from(y) * math::gelu_tanh_slope::<I>(x.into())) as f32;
    HardSigmoidBackward: |x, y, p, q| {
        let h = f64::from(p) * f64::from(x) + f64::from(q);
        if (h > 0.0) & (h < 1.0) { p * y } else { 0.0 }
    };
    HardSwishBackward: |x, y, _, _| {
        let sloped = (f64::from(y) * (2.0 * f64::from(x) + 3.0) * (1.0 / 6.0)) as f32;
        if x >= 3.0 { y } else if x > -3.0 { sloped } else { 0.0 }
    };
    MishBackward: |x, y, _, _| (f64::from(y) * math::mish_slope::<I>(x.into())) as f32;
    ReluBackward: |x, y, _, _| if x > 0.0 { y } else { 0.0 };
    SigmoidBackward: |x, y, _, _| (f64::from(y) * math::sigmoid_slope::<I>(x.into())) as f32;
    SigmoidBackwardOfResult: |x, y, _, _| {
        (f64::from(y) * f64::from(x) * (1.0 - f64::from(x))) as f32
    };
    SoftPlusBackward: |x, y, p, _| {
        (f64::from(y) * math::sigmoid::<I>(f64::from(p) * f64::from(x))) as f32
    };
    SqrtBackward: |x, y, _, _| (f64::from(y) / (2.0 * f64::from(x).sqrt())) as f32;
    SqrtBackwardOfResult: |x, y, _, _| (f64::from(y) / (2.0 * f64::from(x))) as f32;
    TanhBackward: |x, y, _, _| (f64::from(y) * math::tanh_slope::<I>(x.into())) as f32;
    TanhBackwardOfResult: |x, y, _, _| {
        (f64::from(y) * (1.0 - f64::from(x) * f64::from(x))) as f32
    };
}

/// The arithmetic of an integer type.
trait Integer: Pod + Ord {
    fn add(self, other: Self) -> Self;
    fn subtract(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
}

macro_rules! integers {
    ($($T:ty)*) => {
        $(impl Integer for $T {
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn subtract(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline(always)]
            fn multiply(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
        })*
    };
}

integers!(i32 i64);

/// One function of integers.
struct OfIntegers<T, F>(PhantomData<(T, F)>);

macro_rules! integer_functions {
    ($($Name:ident: |$x:ident, $y:ident| $value:expr;)*) => {
        $(impl<T: Integer> Function2 for OfIntegers<T, $Name> {
            type X = T;
            type To = T;

            #[inline(always)]
            fn of<I: Isa>($x: T, $y: T, _: Params) -> T {
                $value
            }
        })*

        fn integer_table<T: Integer>(function: Binary) -> Option<&'static BinaryTable> {
            match function {
                $(Binary::$Name => {
                    const N: usize = block_len(Binary::$Name.cost_on(DataType::S32));
                    Some(const { &numbers2::<OfIntegers<T, $Name>, N>() })
                })*
                _ => None,
            }
        }
    };
}

integer_functions! {
    Add: |x, y| x.add(y);
    Subtract: |x, y| x.subtract(y);
    Multiply: |x, y| x.multiply(y);
    Maximum: |x, y| x.max(y);
    Minimum: |x, y| x.min(y);
}
