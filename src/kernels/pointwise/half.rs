//! Conversions between f32 and the floats of 16 bits.

#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::*;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use super::conversion::{RoundedToOdd, To};
use crate::kernels::floats::{NAN, canonical};
use crate::kernels::isa::Isa;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::types::kind::Level;

/// The bits of an f16.
#[derive(Clone, Copy, Default)]
pub(in crate::kernels) struct F16(u16);

/// The bits of a bf16.
#[derive(Clone, Copy, Default)]
pub(in crate::kernels) struct Bf16(u16);

const INFINITY: u32 = f32::INFINITY.to_bits();
const MAGNITUDE: u32 = u32::MAX >> 1;

impl To<f32> for Bf16 {
    #[inline(always)]
    fn to<I: Isa>(self) -> f32 {
        canonical(f32::from_bits(u32::from(self.0) << 16))
    }
}

/// In integers, because the machine's instruction flushes subnormal numbers.
impl To<Bf16> for f32 {
    #[inline(always)]
    fn to<I: Isa>(self) -> Bf16 {
        let bits = self.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        Bf16(if self.is_nan() { 0x7fc0 } else { rounded as u16 })
    }
}

impl To<f32> for F16 {
    #[inline(always)]
    fn to<I: Isa>(self) -> f32 {
        // The exponent biases differ by 112; a product corrects subnormal numbers too.
        const REBASE: f32 = f32::from_bits((127 + 112) << 23);
        let bits = u32::from(self.0) << 13;
        let (magnitude, sign) = (bits & 0x0fff_e000, bits << 3 & !MAGNITUDE);
        let finite = (f32::from_bits(magnitude) * REBASE).to_bits();
        let value = if magnitude < 0x0f80_0000 { finite } else { INFINITY };
        if magnitude > 0x0f80_0000 { NAN } else { f32::from_bits(value | sign) }
    }

    #[inline(always)]
    fn block_to<I: Isa, const N: usize>(block: &[F16; N]) -> [f32; N] {
        let mut to = [0.0; N];
        #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
        if I::LEVEL == Level::Avx512 && N.is_multiple_of(16) {
            for i in (0..N).step_by(16) {
                // SAFETY: sixteen elements starting at that index are within the block; the level is Avx512.
                unsafe {
                    let bits = _mm256_loadu_si256(block.as_ptr().add(i).cast());
                    _mm512_storeu_ps(to.as_mut_ptr().add(i), canonical_16(_mm512_cvtph_ps(bits)));
                }
            }
            return to;
        }
        #[cfg(target_arch = "x86_64")]
        if I::LEVEL >= Level::Avx2 && N.is_multiple_of(8) {
            for i in (0..N).step_by(8) {
                // SAFETY: eight elements starting at that index are within the block; every machine of the
                // level has F16C.
                unsafe {
                    let bits = _mm_loadu_si128(block.as_ptr().add(i).cast());
                    _mm256_storeu_ps(to.as_mut_ptr().add(i), _mm256_cvtph_ps(bits));
                }
            }
            return canonical_block(to);
        }
        #[cfg(target_arch = "aarch64")]
        if I::LEVEL == Level::Neon && N.is_multiple_of(4) {
            for i in (0..N).step_by(4) {
                // SAFETY: four elements starting at that index are within the block, and every machine has
                // the instruction.
                unsafe {
                    let values = widen_f16(block.as_ptr().add(i).cast::<uint16x4_t>().read_unaligned());
                    to.as_mut_ptr().add(i).cast::<float32x4_t>().write_unaligned(values);
                }
            }
            return canonical_block(to);
        }
        for i in 0..N {
            to[i] = block[i].to::<I>();
        }
        to
    }
}

impl To<F16> for f32 {
    #[inline(always)]
    fn to<I: Isa>(self) -> F16 {
        const MIN_NORMAL: u32 = (127 - 14) << 23;
        const BEYOND: u32 = (127 + 16) << 23;
        let bits = self.to_bits();
        let (magnitude, sign) = (bits & MAGNITUDE, (bits >> 16) as u16 & 0x8000);
        let normal = (magnitude + 0xfff + (magnitude >> 13 & 1)).wrapping_sub(112 << 23) >> 13;
        // The last bit of 1/2 in f32 is the last bit of a subnormal f16.
        let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
        let value = if magnitude < MIN_NORMAL { subnormal } else { normal };
        let value = if magnitude < BEYOND { value as u16 } else { 0x7c00 };
        F16(if magnitude > INFINITY { 0x7e00 } else { value | sign })
    }

    #[inline(always)]
    fn block_to<I: Isa, const N: usize>(block: &[f32; N]) -> [F16; N] {
        let mut to = [F16(0); N];
        #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
        if I::LEVEL == Level::Avx512 && N.is_multiple_of(16) {
            for i in (0..N).step_by(16) {
                // SAFETY: sixteen elements starting at that index are within the block; the level is Avx512.
                unsafe {
                    let values = canonical_16(_mm512_loadu_ps(block.as_ptr().add(i)));
                    let bits = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(values);
                    _mm256_storeu_si256(to.as_mut_ptr().add(i).cast(), bits);
                }
            }
            return to;
        }
        #[cfg(target_arch = "x86_64")]
        if I::LEVEL >= Level::Avx2 && N.is_multiple_of(8) {
            let block = canonical_block(*block);
            for i in (0..N).step_by(8) {
                // SAFETY: eight elements starting at that index are within the block; every machine of the
                // level has F16C.
                unsafe {
                    let values = _mm256_loadu_ps(block.as_ptr().add(i));
                    let bits = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(values);
                    _mm_storeu_si128(to.as_mut_ptr().add(i).cast(), bits);
                }
            }
            return to;
        }
        #[cfg(target_arch = "aarch64")]
        if I::LEVEL == Level::Neon && N.is_multiple_of(4) {
            let block = canonical_block(*block);
            for i in (0..N).step_by(4) {
                // SAFETY: four elements starting at that index are within the block, and every machine has
                // the instruction.
                unsafe {
                    let bits = narrow_f16(block.as_ptr().add(i).cast::<float32x4_t>().read_unaligned());
                    to.as_mut_ptr().add(i).cast::<uint16x4_t>().write_unaligned(bits);
                }
            }
            return to;
        }
        for i in 0..N {
            to[i] = block[i].to::<I>();
        }
        to
    }
}

/// [`canonical`] of each number.
///
/// # Safety
///
/// The machine runs level Avx512.
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
#[inline(always)]
unsafe fn canonical_16(x: __m512) -> __m512 {
    // SAFETY: as the caller promises.
    unsafe { _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x), _mm512_set1_ps(NAN)) }
}

/// [`canonical`] of each number of a block. `map` of arrays would go element by element.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
fn canonical_block<const N: usize>(mut block: [f32; N]) -> [f32; N] {
    block.iter_mut().for_each(|x| *x = canonical(*x));
    block
}

/// Widens f16. The instruction has no intrinsic in the oldest compiler that builds this.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn widen_f16(bits: uint16x4_t) -> float32x4_t {
    let values;
    // SAFETY: every machine has the instruction, which works on registers alone.
    unsafe {
        std::arch::asm!(
            "fcvtl {0:v}.4s, {1:v}.4h", out(vreg) values, in(vreg) bits,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    values
}

/// Rounds to f16, ties to even; as [`widen_f16`].
#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn narrow_f16(values: float32x4_t) -> uint16x4_t {
    let bits;
    // SAFETY: every machine has the instruction, which works on registers alone.
    unsafe {
        std::arch::asm!(
            "fcvtn {0:v}.4h, {1:v}.4s", out(vreg) bits, in(vreg) values,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    bits
}

macro_rules! from_rounded_to_odd {
    ($($T:ty)*) => {
        $(impl To<$T> for RoundedToOdd {
            #[inline(always)]
            fn to<I: Isa>(self) -> $T {
                self.0.to::<I>()
            }

            #[inline(always)]
            fn block_to<I: Isa, const N: usize>(block: &[RoundedToOdd; N]) -> [$T; N] {
                let mut numbers = [0.0; N];
                for i in 0..N {
                    numbers[i] = block[i].0;
                }
                f32::block_to::<I, N>(&numbers)
            }
        })*
    };
}

from_rounded_to_odd!(F16 Bf16);
