//! Vectors that the compiler makes of arrays: levels Portable and Neon.

use super::score::exp_of_one;
use super::{LANES, Lanes, RowType, lanes_of};
use crate::kernels::floats::{self, canonical};
#[cfg(target_arch = "aarch64")]
use crate::kernels::isa::Neon;
use crate::kernels::isa::{Isa, Portable};
use crate::kernels::math::single;
use crate::kernels::pointwise::conversion::To;
use crate::kernels::pointwise::half::{Bf16, F16};

/// The exponential of each number, for levels without vectors of their own for it.
#[inline(always)]
pub(super) fn exp_of_each<I: Isa>(x: [f32; LANES]) -> [f32; LANES] {
    let mut to = [0.0; LANES];
    for i in 0..LANES {
        to[i] = single::exp::<I>(x[i]);
    }
    to
}

/// The numbers from number `N` on, then those before.
#[inline(always)]
fn rotated<T: Copy, const N: usize>(x: [T; LANES]) -> [T; LANES] {
    let mut to = x;
    for i in 0..LANES {
        to[i] = x[(i + N) % LANES];
    }
    to
}

/// A function of each pair of numbers of two arrays.
#[inline(always)]
fn zip<T: Copy, const N: usize>(x: [T; N], y: [T; N], f: impl Fn(T, T) -> T) -> [T; N] {
    let mut to = x;
    for i in 0..N {
        to[i] = f(x[i], y[i]);
    }
    to
}

/// A function of each number of an array.
#[inline(always)]
fn of_each<T: Copy, U: Copy + Default>(x: [T; LANES], f: impl Fn(T) -> U) -> [U; LANES] {
    let mut to = [U::default(); LANES];
    for i in 0..LANES {
        to[i] = f(x[i]);
    }
    to
}

/// Combines halves until one number is left.
#[inline(always)]
fn halved(mut x: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            x[i] = f(x[i], x[i + half]);
        }
        half /= 2;
    }
    x[0]
}

/// Numbers of a register.
const REGISTER: usize = 4;

/// The first elements of a register; the others are 0. Elements are read one by one, of which the compiler
/// makes vectors: a copy of any length is a call, around which a micro-kernel would spill its sums at every
/// step of the depth.
///
/// # Safety
///
/// They can be read.
#[allow(clippy::needless_range_loop, reason = "the loops run over elements in memory too")]
#[inline(always)]
unsafe fn first_of<T: Copy + Default>(from: *const T, count: usize) -> [T; REGISTER] {
    let mut to = [T::default(); REGISTER];
    // SAFETY: as the caller promises.
    unsafe {
        if count == REGISTER {
            for i in 0..REGISTER {
                to[i] = from.add(i).read_unaligned();
            }
            return to;
        }
        for i in 0..REGISTER {
            if i < count {
                to[i] = from.add(i).read_unaligned();
            }
        }
    }
    to
}

/// The first elements of a register, in f32; the others are 0.
///
/// # Safety
///
/// They can be read.
#[inline(always)]
unsafe fn load_register<I: Isa>(from: *const u8, float: RowType, count: usize) -> [f32; REGISTER] {
    // SAFETY: as the caller promises.
    unsafe {
        match float {
            RowType::F32 => first_of(from.cast(), count),
            RowType::F16 => F16::block_to::<I, REGISTER>(&first_of(from.cast(), count)),
            RowType::Bf16 => {
                let (bits, mut to) = (first_of::<u16>(from.cast(), count), [0.0; REGISTER]);
                for i in 0..REGISTER {
                    to[i] = f32::from_bits(u32::from(bits[i]) << 16);
                }
                to
            }
        }
    }
}

/// The bits of numbers of f64, in two lanes each.
#[inline(always)]
fn in_pairs(numbers: [f64; LANES / 2]) -> [f32; LANES] {
    // SAFETY: every bit pattern is a number of both types, and the sizes are equal.
    unsafe { std::mem::transmute(numbers) }
}

/// The numbers of f64 whose bits lanes hold, two each.
#[inline(always)]
fn of_pairs(lanes: [f32; LANES]) -> [f64; LANES / 2] {
    // SAFETY: as of `in_pairs`.
    unsafe { std::mem::transmute(lanes) }
}

/// Vectors that the compiler makes of arrays.
macro_rules! arrays {
    ($($(#[$attribute:meta])* $Isa:ident, long $inline:ident,
        fma = |$x:ident, $y:ident, $z:ident| $fma:expr;)*) => {
        $(
        $(#[$attribute])*
        impl Lanes for $Isa {
            type F = [f32; LANES];
            type D = [f64; LANES];

            const REGISTERS: usize = LANES / REGISTER;

            #[inline(always)]
            unsafe fn splat(x: f32) -> Self::F {
                [x; LANES]
            }
            #[inline(always)]
            unsafe fn load(from: *const f32) -> Self::F {
                // SAFETY: as the caller promises.
                unsafe { from.cast::<[f32; LANES]>().read_unaligned() }
            }
            #[inline(always)]
            unsafe fn load_bf16(from: *const u16) -> Self::F {
                // SAFETY: as the caller promises.
                let block = unsafe { from.cast::<[u16; LANES]>().read_unaligned() };
                of_each(block, |bits| f32::from_bits(u32::from(bits) << 16))
            }
            #[inline($inline)]
            unsafe fn load_f16(from: *const u16) -> Self::F {
                // SAFETY: as the caller promises.
                let block = unsafe { from.cast::<[F16; LANES]>().read_unaligned() };
                F16::block_to::<Self, LANES>(&block)
            }
            #[inline(always)]
            unsafe fn store(to: *mut f32, x: Self::F) {
                // SAFETY: as the caller promises.
                unsafe { to.cast::<[f32; LANES]>().write_unaligned(x) }
            }
            #[inline($inline)]
            unsafe fn store_bf16(to: *mut u16, x: Self::F) {
                // SAFETY: as the caller promises.
                unsafe { to.cast::<[Bf16; LANES]>().write_unaligned(f32::block_to::<Self, LANES>(&x)) }
            }
            #[inline($inline)]
            unsafe fn store_f16(to: *mut u16, x: Self::F) {
                // SAFETY: as the caller promises.
                unsafe { to.cast::<[F16; LANES]>().write_unaligned(f32::block_to::<Self, LANES>(&x)) }
            }
            #[inline(always)]
            unsafe fn add(x: Self::F, y: Self::F) -> Self::F {
                zip(x, y, |x, y| x + y)
            }
            #[inline(always)]
            unsafe fn sub(x: Self::F, y: Self::F) -> Self::F {
                zip(x, y, |x, y| x - y)
            }
            #[inline(always)]
            unsafe fn mul(x: Self::F, y: Self::F) -> Self::F {
                zip(x, y, |x, y| x * y)
            }
            #[inline(always)]
            unsafe fn div(x: Self::F, y: Self::F) -> Self::F {
                zip(x, y, |x, y| x / y)
            }
            #[inline(always)]
            unsafe fn fma($x: Self::F, $y: Self::F, $z: Self::F) -> Self::F {
                $fma
            }
            #[inline(always)]
            unsafe fn splat_in_pairs(x: f64) -> Self::F {
                in_pairs([x; LANES / 2])
            }
            #[inline(always)]
            unsafe fn fma_in_pairs(x: Self::F, y: Self::F, z: Self::F) -> Self::F {
                let ([x, y], mut z) = ([x, y].map(of_pairs), of_pairs(z));
                for i in 0..LANES / 2 {
                    z[i] = Self::mul_add_64(x[i], y[i], z[i]);
                }
                in_pairs(z)
            }
            #[inline(always)]
            unsafe fn larger(x: Self::F, y: Self::F) -> Self::F {
                zip(x, y, |x, y| if x > y { x } else { y })
            }
            #[inline(always)]
            unsafe fn maximum(x: Self::F, y: Self::F) -> Self::F {
                zip(x, y, floats::maximum)
            }
            #[inline(always)]
            unsafe fn minimum(x: Self::F, y: Self::F) -> Self::F {
                zip(x, y, floats::minimum)
            }
            #[inline(always)]
            unsafe fn if_positive(x: Self::F, then: Self::F, else_: Self::F) -> Self::F {
                let mut to = else_;
                for i in 0..LANES {
                    to[i] = if x[i] > 0.0 { then[i] } else { else_[i] };
                }
                to
            }
            #[inline($inline)]
            unsafe fn exp(x: Self::F) -> Self::F {
                exp_of_each::<Self>(x)
            }
            #[inline(always)]
            unsafe fn canonical_vector(x: Self::F) -> Self::F {
                of_each(x, canonical)
            }
            #[inline(always)]
            unsafe fn sum(x: Self::F) -> f32 {
                halved(x, |x, y| x + y)
            }
            #[inline(always)]
            unsafe fn largest(x: Self::F) -> f32 {
                halved(x, |x, y| if x > y { x } else { y })
            }
            #[inline(always)]
            unsafe fn first(x: Self::F) -> f32 {
                x[0]
            }
            #[inline(always)]
            unsafe fn first_64(x: Self::D) -> f64 {
                x[0]
            }
            #[inline(always)]
            unsafe fn from_on<const N: usize>(x: Self::F) -> Self::F {
                rotated::<_, N>(x)
            }
            #[inline(always)]
            unsafe fn from_on_64<const N: usize>(x: Self::D) -> Self::D {
                rotated::<_, N>(x)
            }
            #[inline(always)]
            unsafe fn splat_64(x: f64) -> Self::D {
                [x; LANES]
            }
            #[inline(always)]
            unsafe fn widen(x: Self::F) -> Self::D {
                of_each(x, f64::from)
            }
            #[inline(always)]
            unsafe fn narrow(x: Self::D) -> Self::F {
                of_each(x, |x| x as f32)
            }
            #[inline(always)]
            unsafe fn load_64(from: *const f64) -> Self::D {
                // SAFETY: as the caller promises.
                unsafe { from.cast::<[f64; LANES]>().read_unaligned() }
            }
            #[inline(always)]
            unsafe fn load_wide(from: *const f32) -> Self::D {
                // SAFETY: as the caller promises.
                unsafe { Self::widen(Self::load(from)) }
            }
            #[inline(always)]
            unsafe fn store_64(to: *mut f64, x: Self::D) {
                // SAFETY: as the caller promises.
                unsafe { to.cast::<[f64; LANES]>().write_unaligned(x) }
            }
            #[inline(always)]
            unsafe fn abs_64(x: Self::D) -> Self::D {
                of_each(x, f64::abs)
            }
            #[inline(always)]
            unsafe fn add_64(x: Self::D, y: Self::D) -> Self::D {
                zip(x, y, |x, y| x + y)
            }
            #[inline(always)]
            unsafe fn sub_64(x: Self::D, y: Self::D) -> Self::D {
                zip(x, y, |x, y| x - y)
            }
            #[inline(always)]
            unsafe fn mul_64(x: Self::D, y: Self::D) -> Self::D {
                zip(x, y, |x, y| x * y)
            }
            #[inline(always)]
            unsafe fn exp_of_score<const SUBNORMAL: bool>(x: Self::F) -> Self::F {
                of_each(x, exp_of_one::<Self, SUBNORMAL>)
            }

            #[inline(always)]
            unsafe fn load_registers(
                from: *const u8,
                float: RowType,
                registers: usize,
                count: usize,
            ) -> Self::F {
                let mut to = [0.0; LANES];
                for register in 0..Self::REGISTERS {
                    let Some(count) = lanes_of::<Self>(register, registers, count) else { continue };
                    let first = REGISTER * register;
                    // SAFETY: as the caller promises.
                    let x = unsafe { load_register::<Self>(from.add(first * float.bytes()), float, count) };
                    for i in 0..REGISTER {
                        to[first + i] = x[i];
                    }
                }
                to
            }

            #[inline(always)]
            unsafe fn store_registers(to: *mut f32, registers: usize, count: usize, x: Self::F) {
                for i in 0..REGISTER * registers {
                    if i < REGISTER * (registers - 1) || i < count {
                        // SAFETY: as the caller promises.
                        unsafe { to.add(i).write_unaligned(x[i]) };
                    }
                }
            }

            #[inline(always)]
            unsafe fn add_product(x: Self::F, p: Self::F, sum: Self::F) -> Self::F {
                let mut to = sum;
                for i in 0..to.len() {
                    to[i] = if p[i] == 0.0 { sum[i] } else { Self::mul_add(x[i], p[i], sum[i]) };
                }
                to
            }

            #[inline(always)]
            unsafe fn load_u8(from: *const u8) -> Self::F {
                // SAFETY: as the caller promises.
                of_each(unsafe { from.cast::<[u8; LANES]>().read_unaligned() }, f32::from)
            }

            #[inline(always)]
            unsafe fn load_s8(from: *const u8) -> Self::F {
                // SAFETY: as the caller promises.
                of_each(unsafe { from.cast::<[i8; LANES]>().read_unaligned() }, f32::from)
            }
        }
        )*
    };
}

arrays! {
    // An operation that takes many instructions without vectors is a call: inlined, it would be most of every
    // kernel (decision: portable-block).
    Portable, long never, fma = |x, y, z| zip(zip(x, y, |x, y| x * y), z, |x, z| x + z);
    #[cfg(target_arch = "aarch64")]
    Neon, long always, fma = |x, y, z| {
        let mut to = z;
        for i in 0..LANES {
            to[i] = Self::mul_add(x[i], y[i], z[i]);
        }
        to
    };
}
