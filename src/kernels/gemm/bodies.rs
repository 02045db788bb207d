//! The micro-kernel, once for all levels, and its instances.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;
use std::hint::black_box;

use super::form::Form;
#[cfg(target_arch = "x86_64")]
use crate::kernels::LINE;
#[cfg(target_arch = "x86_64")]
use crate::kernels::isa::Avx2;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
use crate::kernels::isa::Avx512;
#[cfg(target_arch = "aarch64")]
use crate::kernels::isa::Neon;
use crate::kernels::isa::{Portable, with_features};
use crate::kernels::pointwise::half::{Bf16, F16};
#[cfg(target_arch = "x86_64")]
use crate::kernels::vector::each;
use crate::kernels::vector::{LANES, Lanes, RowType, load_at};
use crate::types::kind::Level;

/// A tile of a product; strides count in bytes.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "other architectures prefetch nothing"))]
pub(super) struct Tile {
    /// Multiplications that each element sums up.
    pub(super) steps: usize,
    /// Half a pair is left after them.
    pub(super) half_step: bool,
    pub(super) left: *const u8,
    pub(super) left_row: isize,
    pub(super) left_step: isize,
    pub(super) right: *const u8,
    pub(super) right_row: isize,
    pub(super) to: *mut f32,
    pub(super) to_row: isize,
    /// Lanes of 4 bytes that are columns in the last register of a row.
    pub(super) last_lanes: usize,
    /// The sums start with the numbers in the result.
    pub(super) accumulate: bool,
    /// A number for each row, which is added to its sums; null if there is none.
    pub(super) bias: *const f32,
    /// Bytes from what a step reads of the right operand to what it prefetches.
    pub(super) distance: isize,
    /// An address to prefetch at the first step, and the bytes from it to the prefetch of the next step.
    pub(super) next: *const u8,
    pub(super) next_step: isize,
    /// The result is prefetched before the first step.
    pub(super) prefetches_result: bool,
}

/// Computes one tile.
///
/// # Safety
///
/// As [`GemmKernel::run`](super::GemmKernel::run).
pub(super) type Micro = unsafe fn(&Tile);

/// How a micro-kernel reads and multiplies elements: one for each [`Form`].
///
/// # Safety of the methods
///
/// The machine has the instructions of the form; the element can be read.
trait Multiply<I: Lanes> {
    /// The type from which elements of the right operand become f32; their bits stay if it is f32.
    const RIGHT: RowType = RowType::F32;

    /// The right operand has whole registers.
    const RIGHT_IS_WHOLE: bool = false;

    /// The kernels add a bias.
    const ADDS_BIAS: bool = false;

    /// An element of the left operand: a number, or the bits of integers or of a pair.
    #[inline(always)]
    unsafe fn left(at: *const u8) -> f32 {
        // SAFETY: as the caller promises.
        unsafe { at.cast::<f32>().read_unaligned() }
    }

    /// Half a pair of the left operand; the other half is 0.
    #[inline(always)]
    unsafe fn left_half(at: *const u8) -> f32 {
        // SAFETY: as the caller promises.
        unsafe { Self::left(at) }
    }

    /// An element of the left operand in each lane.
    #[inline(always)]
    unsafe fn broadcast(at: *const u8) -> I::F {
        // SAFETY: as the caller promises.
        unsafe { I::splat(Self::left(at)) }
    }

    #[inline(always)]
    unsafe fn mul_add(x: I::F, y: I::F, sum: I::F) -> I::F {
        // SAFETY: as the caller promises.
        unsafe { I::fma(x, y, sum) }
    }
}

// A type of the right operand, which becomes f32 when it is read; the left one is f32.
impl<I: Lanes> Multiply<I> for f32 {
    const ADDS_BIAS: bool = true;
}

impl<I: Lanes> Multiply<I> for Bf16 {
    const RIGHT: RowType = RowType::Bf16;
}

impl<I: Lanes> Multiply<I> for F16 {
    const RIGHT: RowType = RowType::F16;
}

/// As f32, without the products with 0 on the right.
struct Holes;

impl<I: Lanes> Multiply<I> for Holes {
    #[inline(always)]
    unsafe fn mul_add(x: I::F, y: I::F, sum: I::F) -> I::F {
        // SAFETY: as the caller promises.
        unsafe { I::add_product(x, y, sum) }
    }
}

/// Numbers of f64, each in the bits of two lanes.
impl<I: Lanes> Multiply<I> for f64 {
    #[inline(always)]
    unsafe fn broadcast(at: *const u8) -> I::F {
        // SAFETY: as the caller promises.
        unsafe { I::splat_in_pairs(at.cast::<f64>().read_unaligned()) }
    }

    #[inline(always)]
    unsafe fn mul_add(x: I::F, y: I::F, sum: I::F) -> I::F {
        // SAFETY: as the caller promises.
        unsafe { I::fma_in_pairs(x, y, sum) }
    }
}

/// Pairs of bf16, multiplied and added by one instruction.
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
struct Bf16Pairs;

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
impl Multiply<Avx512> for Bf16Pairs {
    #[inline(always)]
    unsafe fn left_half(at: *const u8) -> f32 {
        // SAFETY: as the caller promises.
        f32::from_bits(u32::from(unsafe { at.cast::<u16>().read_unaligned() }))
    }

    #[inline(always)]
    unsafe fn mul_add(x: __m512, y: __m512, sum: __m512) -> __m512 {
        // SAFETY: as the caller promises. The vectors are of one size, and every bit pattern is a pair.
        unsafe {
            _mm512_dpbf16_ps(
                sum,
                std::mem::transmute::<__m512, __m512bh>(x),
                std::mem::transmute::<__m512, __m512bh>(y),
            )
        }
    }
}

/// Integers, whose sums are s32 in the bits of vectors of f32. Both operands are packed up to whole steps of
/// the depth, and the right one up to whole vectors.
macro_rules! integers {
    ($($(#[$attribute:meta])* $Form:ident for $Isa:ident,
        |$x:ident, $y:ident, $sum:ident| $mul_add:expr;)*) => {
        $(
            $(#[$attribute])*
            impl Multiply<$Isa> for $Form {
                const RIGHT_IS_WHOLE: bool = true;

                #[inline(always)]
                unsafe fn mul_add(
                    $x: <$Isa as Lanes>::F,
                    $y: <$Isa as Lanes>::F,
                    $sum: <$Isa as Lanes>::F,
                ) -> <$Isa as Lanes>::F {
                    #[allow(unused_unsafe, reason = "plain Rust needs none")]
                    // SAFETY: as the caller promises.
                    unsafe {
                        $mul_add
                    }
                }
            }
        )*
    };
}

/// Four products of u8 and s8 in one instruction.
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
struct S8Quads;

/// Two products of 16-bit integers in one instruction.
struct S16Pairs;

integers! {
    #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
    S8Quads for Avx512, |x, y, sum| {
        let [x, y, sum] = [_mm512_castps_si512(x), _mm512_castps_si512(y), _mm512_castps_si512(sum)];
        _mm512_castsi512_ps(_mm512_dpbusd_epi32(sum, x, y))
    };
    #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
    S16Pairs for Avx512, |x, y, sum| {
        let products = _mm512_madd_epi16(_mm512_castps_si512(x), _mm512_castps_si512(y));
        _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(sum), products))
    };
    #[cfg(target_arch = "x86_64")]
    S16Pairs for Avx2, |x, y, sum| each!(2, |i| {
        let products = _mm256_madd_epi16(_mm256_castps_si256(x[i]), _mm256_castps_si256(y[i]));
        _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(sum[i]), products))
    });
    #[cfg(target_arch = "aarch64")]
    S16Pairs for Neon, |x, y, sum| add_pairs(x, y, sum);
    S16Pairs for Portable, |x, y, sum| add_pairs(x, y, sum);
}

/// `x · y + sum` for the two halves of each element.
#[inline(always)]
fn add_pairs(x: [f32; LANES], y: [f32; LANES], mut sum: [f32; LANES]) -> [f32; LANES] {
    for i in 0..LANES {
        let (x, y) = (x[i].to_bits() as i32, y[i].to_bits() as i32);
        let (low, high) = (i32::from(x as i16) * i32::from(y as i16), (x >> 16) * (y >> 16));
        sum[i] = f32::from_bits(sum[i].to_bits().wrapping_add(low as u32).wrapping_add(high as u32));
    }
    sum
}

/// Bytes from the first of some rows to each.
#[inline(always)]
fn row_offsets<I: Lanes, const ROWS: usize>(row: isize) -> [isize; ROWS] {
    let offsets: [isize; ROWS] = std::array::from_fn(
        #[inline(always)]
        |at| row * at as isize,
    );
    // The compiler would add the bytes of a row once for each row in each step, one sum after the other, and
    // a step of few registers has no time for that (decision: opaque-rows).
    if I::LEVEL == Level::Avx2 { black_box(offsets) } else { offsets }
}

/// # Safety
///
/// As [`Micro`].
#[inline(always)]
#[allow(
    clippy::needless_range_loop,
    reason = "the loops run over rows and vectors of a tile, not over an array"
)]
unsafe fn tile<I: Lanes, M: Multiply<I>, const ROWS: usize, const REGISTERS: usize>(tile: &Tile) {
    // All vectors but the last are whole.
    let last = REGISTERS.div_ceil(I::REGISTERS) - 1;
    let registers = REGISTERS - last * I::REGISTERS;
    let lanes = LANES / I::REGISTERS;
    let count = (registers - 1) * lanes + tile.last_lanes;
    let of_right = if M::RIGHT_IS_WHOLE { registers * lanes } else { count };
    let to = |row: usize, vector: usize| {
        tile.to.wrapping_byte_offset(tile.to_row * row as isize).wrapping_add(vector * LANES)
    };
    // SAFETY: the caller promises that operands can be read and the result written; the last vector of a row
    // takes part only with the lanes that are columns.
    unsafe {
        let mut sums = [[I::splat(0.0); REGISTERS]; ROWS];
        if tile.accumulate {
            for row in 0..ROWS {
                for vector in 0..last {
                    sums[row][vector] = I::load(to(row, vector));
                }
                let at = to(row, last).cast_const().cast();
                sums[row][last] = I::load_registers(at, RowType::F32, registers, count);
            }
        }
        #[cfg(target_arch = "x86_64")]
        if tile.prefetches_result {
            for row in 0..ROWS {
                for register in 0..REGISTERS {
                    let at = to(row, 0).wrapping_add(register * lanes);
                    _mm_prefetch::<_MM_HINT_T0>(at.cast());
                }
            }
        }
        // Unless the compiler takes it out, a choice within the loop leaves sums in memory
        // (decision: whole-panels).
        if I::LEVEL == Level::Avx2 && of_right == registers * lanes {
            add_products::<I, M, ROWS, REGISTERS>(tile, registers * lanes, &mut sums);
        } else {
            add_products::<I, M, ROWS, REGISTERS>(tile, of_right, &mut sums);
        }
        if M::ADDS_BIAS && !tile.bias.is_null() {
            for row in 0..ROWS {
                let bias = I::splat(tile.bias.add(row).read_unaligned());
                for vector in 0..=last {
                    sums[row][vector] = I::canonical_vector(I::add(sums[row][vector], bias));
                }
            }
        }
        for row in 0..ROWS {
            for vector in 0..last {
                I::store(to(row, vector), sums[row][vector]);
            }
            I::store_registers(to(row, last), registers, count, sums[row][last]);
        }
    }
}

/// Adds the products of all steps of a tile, whose last vector of the right operand has some lanes, to sums.
///
/// # Safety
///
/// As [`Micro`].
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "as of a tile")]
unsafe fn add_products<I: Lanes, M: Multiply<I>, const ROWS: usize, const REGISTERS: usize>(
    tile: &Tile,
    lanes_of_last: usize,
    sums: &mut [[I::F; REGISTERS]; ROWS],
) {
    let last = REGISTERS.div_ceil(I::REGISTERS) - 1;
    let registers = REGISTERS - last * I::REGISTERS;
    let (mut left, mut right) = (tile.left, tile.right);
    #[cfg(target_arch = "x86_64")]
    let mut next = tile.next;
    let rows = row_offsets::<I, ROWS>(tile.left_row);
    // SAFETY: the caller promises that operands can be read; a prefetch reads nothing.
    unsafe {
        macro_rules! step {
            (|$at:ident| $broadcast:expr) => {
                let at = right.wrapping_add(last * LANES * M::RIGHT.bytes());
                let mut operands = [I::load_registers(at, M::RIGHT, registers, lanes_of_last); REGISTERS];
                for vector in 0..last {
                    operands[vector] = load_at::<I>(right, M::RIGHT, vector * LANES);
                }
                for row in 0..ROWS {
                    let $at = left.wrapping_offset(rows[row]);
                    let x = $broadcast;
                    for vector in 0..=last {
                        sums[row][vector] = M::mul_add(x, operands[vector], sums[row][vector]);
                    }
                }
            };
        }
        for _ in 0..tile.steps {
            step!(|at| M::broadcast(at));
            #[cfg(target_arch = "x86_64")]
            if REGISTERS > 1 {
                let prefetched = right.wrapping_offset(tile.distance);
                for bytes in (0..REGISTERS * (LANES / I::REGISTERS) * size_of::<f32>()).step_by(LINE) {
                    _mm_prefetch::<_MM_HINT_T0>(prefetched.wrapping_add(bytes).cast());
                }
                _mm_prefetch::<_MM_HINT_T1>(next.cast());
                next = next.wrapping_offset(tile.next_step);
            }
            left = left.wrapping_offset(tile.left_step);
            right = right.wrapping_offset(tile.right_row);
        }
        if tile.half_step {
            step!(|at| I::splat(M::left_half(at)));
        }
    }
}

/// The instances for a level and a form: a function of rows and registers, both counted from 1.
macro_rules! instances {
    ($($(#[$attribute:meta])* $name:ident: $level:ident $Isa:ident $M:ident
        $([$registers:literal: $($rows:literal)*])*;)*) => {
        $(
            $(#[$attribute])*
            fn $name(rows: usize, registers: usize) -> Micro {
                with_features! {
                    $level
                    unsafe fn kernel<const ROWS: usize, const REGISTERS: usize>(of: &Tile) {
                        // SAFETY: as the caller promises.
                        unsafe { tile::<$Isa, $M, ROWS, REGISTERS>(of) }
                    }
                }
                match (registers, rows) {
                    $($(($registers, $rows) => kernel::<$rows, $registers>,)*)*
                    _ => unreachable!("{rows} rows of {registers} registers are no tile"),
                }
            }
        )*
    };
}

instances! {
    portable_f32: portable Portable f32 [1: 1 2 3 4] [2: 1 2 3 4];
    portable_f64: portable Portable f64 [1: 1 2 3 4];
    portable_bf16: portable Portable Bf16 [1: 1 2 3 4] [2: 1 2 3 4];
    portable_f16: portable Portable F16 [1: 1 2 3 4] [2: 1 2 3 4];
    portable_holes: portable Portable Holes [1: 1 2 3 4] [2: 1 2 3 4];
    #[cfg(target_arch = "aarch64")]
    neon_f32: neon Neon f32
        [1: 1 2 3 4 5 6 7 8] [2: 1 2 3 4 5 6 7 8] [3: 1 2 3 4 5 6 7 8] [4: 1 2 3 4 5 6];
    #[cfg(target_arch = "aarch64")]
    neon_f64: neon Neon f64 [1: 1 2 3 4] [2: 1 2 3 4] [3: 1 2 3 4] [4: 1 2 3 4];
    #[cfg(target_arch = "aarch64")]
    neon_bf16: neon Neon Bf16 [1: 1 2 3 4] [2: 1 2 3 4] [3: 1 2 3 4] [4: 1 2 3 4];
    #[cfg(target_arch = "aarch64")]
    neon_f16: neon Neon F16 [1: 1 2 3 4] [2: 1 2 3 4] [3: 1 2 3 4] [4: 1 2 3 4];
    #[cfg(target_arch = "aarch64")]
    neon_holes: neon Neon Holes [1: 1 2 3 4] [2: 1 2 3 4] [3: 1 2 3 4] [4: 1 2 3 4];
    #[cfg(target_arch = "aarch64")]
    neon_s16_pairs: neon Neon S16Pairs [1: 1 2 3 4] [2: 1 2 3 4] [3: 1 2 3 4] [4: 1 2 3 4];
    #[cfg(target_arch = "x86_64")]
    avx2_f32: avx2 Avx2 f32 [1: 1 2 3 4 5 6] [2: 1 2 3 4 5 6];
    #[cfg(target_arch = "x86_64")]
    avx2_f64: avx2 Avx2 f64 [1: 1 2 3 4] [2: 1 2 3 4];
    #[cfg(target_arch = "x86_64")]
    avx2_bf16: avx2 Avx2 Bf16 [1: 1 2 3 4] [2: 1 2 3 4];
    #[cfg(target_arch = "x86_64")]
    avx2_f16: avx2 Avx2 F16 [1: 1 2 3 4] [2: 1 2 3 4];
    #[cfg(target_arch = "x86_64")]
    avx2_holes: avx2 Avx2 Holes [1: 1 2 3 4] [2: 1 2 3 4];
    #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
    avx512_f32: avx512 Avx512 f32
        [1: 1 2 3 4 5 6 7 8] [2: 1 2 3 4 5 6 7 8] [3: 1 2 3 4 5 6 7 8] [4: 1 2 3 4 5 6]
        [5: 1 2] [6: 1 2] [7: 1 2] [8: 1 2];
    #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
    avx512_f64: avx512 Avx512 f64
        [1: 1 2 3 4 5 6 7 8] [2: 1 2 3 4 5 6] [3: 1 2 3 4 5 6] [4: 1 2 3 4];
    #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
    avx512_bf16: avx512 Avx512 Bf16 [1: 1 2 3 4] [2: 1 2 3 4] [3: 1 2 3 4] [4: 1 2 3 4];
    #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
    avx512_f16: avx512 Avx512 F16 [1: 1 2 3 4] [2: 1 2 3 4] [3: 1 2 3 4] [4: 1 2 3 4];
    #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
    avx512_holes: avx512 Avx512 Holes [1: 1 2 3 4] [2: 1 2 3 4] [3: 1 2 3 4] [4: 1 2 3 4];
    #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
    avx512_pairs: avx512_bf16 Avx512 Bf16Pairs
        [1: 1 2 3 4 5 6 7 8] [2: 1 2 3 4 5 6 7 8] [3: 1 2 3 4] [4: 1 2 3 4];
    portable_s16_pairs: portable Portable S16Pairs [1: 1 2 3 4] [2: 1 2 3 4];
    #[cfg(target_arch = "x86_64")]
    avx2_s16_pairs: avx2 Avx2 S16Pairs [1: 1 2 3 4 5 6] [2: 1 2 3 4 5 6];
    #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
    avx512_s16_pairs: avx512 Avx512 S16Pairs [1: 1 2 3 4] [2: 1 2 3 4] [3: 1 2 3 4] [4: 1 2 3 4];
    #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
    avx512_s8_quads: avx512_vnni Avx512 S8Quads
        [1: 1 2 3 4 5 6 7 8] [2: 1 2 3 4 5 6 7 8] [3: 1 2 3 4 5 6 7 8] [4: 1 2 3 4 5 6];
}

/// The micro-kernel for a tile of a number of rows and registers.
#[inline]
pub(super) fn micro_kernel(level: Level, form: Form, rows: usize, registers: usize) -> Micro {
    #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
    if level == Level::Avx512 {
        return match form {
            Form::F32 => avx512_f32(rows, registers),
            Form::F64 => avx512_f64(rows, registers),
            Form::Bf16Pairs => avx512_pairs(rows, registers),
            Form::Bf16 => avx512_bf16(rows, registers),
            Form::F16 => avx512_f16(rows, registers),
            Form::Holes => avx512_holes(rows, registers),
            Form::S8Quads => avx512_s8_quads(rows, registers),
            Form::S16Pairs => avx512_s16_pairs(rows, registers),
            Form::Bf16Tiles | Form::S8Tiles => unreachable!("tiles have loops of their own"),
        };
    }
    #[cfg(target_arch = "x86_64")]
    if level == Level::Avx2 {
        return match form {
            Form::S16Pairs => avx2_s16_pairs(rows, registers),
            Form::Bf16 => avx2_bf16(rows, registers),
            Form::F16 => avx2_f16(rows, registers),
            Form::Holes => avx2_holes(rows, registers),
            Form::F64 => avx2_f64(rows, registers),
            _ => avx2_f32(rows, registers),
        };
    }
    #[cfg(target_arch = "aarch64")]
    if level == Level::Neon {
        return match form {
            Form::S16Pairs => neon_s16_pairs(rows, registers),
            Form::Bf16 => neon_bf16(rows, registers),
            Form::F16 => neon_f16(rows, registers),
            Form::Holes => neon_holes(rows, registers),
            Form::F64 => neon_f64(rows, registers),
            _ => neon_f32(rows, registers),
        };
    }
    match (level, form) {
        (_, Form::Bf16) => portable_bf16(rows, registers),
        (_, Form::F16) => portable_f16(rows, registers),
        (_, Form::Holes) => portable_holes(rows, registers),
        (_, Form::F64) => portable_f64(rows, registers),
        (_, Form::S16Pairs) => portable_s16_pairs(rows, registers),
        _ => portable_f32(rows, registers),
    }
}
