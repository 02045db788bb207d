//! Functions of two numbers: of f32, and integer arithmetic of s32 and s64; those of f64 have a file of their
//! own. Machines divide no vectors of integers, so quotients of s32 are computed in f64, which rounds none
//! of them to the next integer.
//!
//! Each is the formula of [`Binary`], rounded to f32 once at the end. If more than one rounding could show,
//! intermediate results are f64.

use std::marker::PhantomData;

use super::doubles;
use super::driver::{BinaryTable, Impls, block_len, numbers2};
use super::modulo::FloatModulo;
use super::two::Kernel2;
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
        DataType::F32 => Some(table(function)),
        DataType::F64 => doubles::binary(function),
        DataType::S32 => integer_table::<i32>(function),
        DataType::S64 => integer_table::<i64>(function),
        _ => None,
    };
    let bytes = [of.bits() as u8 / 8; 2];
    table.map(|table| table[level.row()].at(x, y, bytes))
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

        fn table(function: Binary) -> &'static BinaryTable {
            match function {
                $(Binary::$Name => {
                    const N: usize = block_len(Binary::$Name.cost_on(DataType::F32));
                    const { &numbers2::<$Name, N>() }
                })*
                Binary::Modulo => {
                    const N: usize = block_len(Binary::Modulo.cost_on(DataType::F32));
                    const { &numbers2::<FloatModulo<f32>, N>() }
                }
            }
        }
    };
}

functions! {
    Add: |x, y, _, _| x + y;
    Subtract: |x, y, _, _| x - y;
    Multiply: |x, y, _, _| x * y;
    Divide: |x, y, _, _| x / y;
    Power: |x, y, _, _| math::pow::<I>(x.into(), y.into()) as f32;
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
    const ZERO: Self;

    fn add(self, other: Self) -> Self;
    fn subtract(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;

    /// `x` to the power of `y`; for `y` below 0 the quotient of 1 and the power, cut off.
    fn power(self, y: Self) -> Self;

    /// `⌊x / y⌋` of each pair, 0 if `y` is 0.
    fn quotients<const N: usize>(x: &[Self; N], y: &[Self; N]) -> [Self; N];
}

macro_rules! integers {
    ($($T:ty: $quotients:item)*) => {
        $(impl Integer for $T {
            const ZERO: Self = 0;

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

            #[inline(always)]
            fn power(self, y: Self) -> Self {
                power(self.into(), y.into()) as Self
            }

            #[inline(always)]
            $quotients
        })*
    };
}

integers! {
    i32: fn quotients<const N: usize>(x: &[i32; N], y: &[i32; N]) -> [i32; N] {
        let mut quotients = [0; N];
        for i in 0..N {
            quotients[i] = quotient_32(x[i], y[i]);
        }
        quotients
    }
    i64: fn quotients<const N: usize>(x: &[i64; N], y: &[i64; N]) -> [i64; N] {
        let mut quotients = [0; N];
        // Indices and their like fit into s32. Short loops and comparisons of arrays become vectors.
        let (mut narrow_x, mut narrow_y) = ([0; N], [0; N]);
        for i in 0..N {
            narrow_x[i] = x[i] as i32;
        }
        for i in 0..N {
            narrow_y[i] = y[i] as i32;
        }
        if narrow_x.map(i64::from) == *x && narrow_y.map(i64::from) == *y {
            let narrow = i32::quotients(&narrow_x, &narrow_y);
            for i in 0..N {
                // Of s32, one quotient does not fit into s32.
                let is_beyond = (narrow_x[i] == i32::MIN) & (narrow_y[i] == -1);
                let quotient = i64::from(narrow[i]);
                quotients[i] = if is_beyond { -quotient } else { quotient };
            }
        } else {
            for i in 0..N {
                quotients[i] = quotient_64(x[i], y[i]);
            }
        }
        quotients
    }
}

/// `⌊x / y⌋`, which wraps around, by a division in f64: a quotient that is no integer is further from the
/// next one than it is rounded.
#[inline(always)]
fn quotient_32(x: i32, y: i32) -> i32 {
    let quotient = f64::from(x) / f64::from(if y == 0 { 1 } else { y });
    let quotient = if quotient > i32::MAX.into() { f64::from(i32::MIN) } else { quotient };
    // SAFETY: no quotient of integers is beyond the smallest one, and the one beyond the largest is replaced.
    let truncated = unsafe { quotient.to_int_unchecked::<i32>() };
    let floor = truncated - i32::from(f64::from(truncated) > quotient);
    if y == 0 { 0 } else { floor }
}

/// `⌊x / y⌋`, which wraps around.
#[inline(always)]
fn quotient_64(x: i64, y: i64) -> i64 {
    if y == 0 {
        return 0;
    }
    let (quotient, rest) = (x.wrapping_div(y), x.wrapping_rem(y));
    quotient - i64::from(rest != 0 && (rest < 0) != (y < 0))
}

/// `x` to the power of `y`, which wraps around; for `y` below 0 the quotient of 1 and the power, cut off.
/// Powers of a narrower type are its low bits.
#[inline(always)]
fn power(x: i64, y: i64) -> i64 {
    match x {
        1 => return 1,
        -1 => return if y & 1 == 0 { 1 } else { -1 },
        _ if y < 0 => return 0,
        _ => {}
    }
    let (mut power, mut square, mut rest) = (1i64, x, y);
    while rest > 0 {
        power = if rest & 1 == 1 { power.wrapping_mul(square) } else { power };
        square = square.wrapping_mul(square);
        rest >>= 1;
    }
    power
}

/// One function of integers.
struct OfIntegers<T, F>(PhantomData<(T, F)>);

/// The remainder of integers.
struct Modulo;

macro_rules! integer_functions {
    ($($Name:ident: |$x:pat_param, $y:pat_param, $quotient:pat_param| $value:expr;)*) => {
        $(impl<T: Integer> Function2 for OfIntegers<T, $Name> {
            type X = T;
            type To = T;

            #[inline(always)]
            fn of<I: Isa>(x: T, y: T, params: Params) -> T {
                Self::of_block::<I, 1>(&[x], &[y], params)[0]
            }

            #[inline(always)]
            fn of_block<I: Isa, const N: usize>(x: &[T; N], y: &[T; N], _: Params) -> [T; N] {
                // The compiler drops quotients that nothing uses.
                let (mut to, quotients) = ([T::ZERO; N], T::quotients(x, y));
                for i in 0..N {
                    let ($x, $y, $quotient) = (x[i], y[i], quotients[i]);
                    to[i] = $value;
                }
                to
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
    Add: |x, y, _| x.add(y);
    Subtract: |x, y, _| x.subtract(y);
    Multiply: |x, y, _| x.multiply(y);
    Divide: |_, _, quotient| quotient;
    Modulo: |x, y, quotient| if y == T::ZERO { T::ZERO } else { x.subtract(y.multiply(quotient)) };
    Power: |x, y, _| x.power(y);
    Maximum: |x, y, _| x.max(y);
    Minimum: |x, y, _| x.min(y);
}
