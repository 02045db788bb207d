//! Arithmetic that no memory slows down: the limit of products.

use std::hint::black_box;

#[cfg(target_arch = "x86_64")]
use super::isa::with_features;
use crate::types::dtype::DataType;
#[cfg(target_arch = "x86_64")]
use crate::types::features::CpuFeatures;
#[cfg(target_arch = "x86_64")]
use crate::types::kind::CpuFeature;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::types::kind::Level;

/// Multiplies and adds in registers, a number of steps of independent chains, by the widest instructions in
/// use for products of a type. For bf16 these are tiles of AMX or else pairs, if the CPU has one of them;
/// for u8 and s8 tiles, quads of 8-bit integers or else pairs of 16-bit ones; for all other types f32.
/// Returns the number of operations done, a multiplication and an addition counted as two.
///
/// The time that it takes is the limit of a product, whatever the memory does.
///
/// ```
/// use std::time::Instant;
/// use sterna::{DataType, arithmetic_in_registers};
/// let start = Instant::now();
/// let operations = arithmetic_in_registers(DataType::F32, 1000);
/// let peak = operations / start.elapsed().as_secs_f64() / 1e9;
/// assert!(peak > 0.0, "GFLOP/s of one thread");
/// assert_eq!(arithmetic_in_registers(DataType::F32, 500) * 2.0, operations);
/// ```
#[must_use]
pub fn arithmetic_in_registers(data_type: DataType, steps: usize) -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        let has = |feature| CpuFeatures::available().contains(feature);
        let (has_pairs, has_quads) = (has(CpuFeature::Avx512Bf16), has(CpuFeature::Avx512Vnni));
        let is_integer = matches!(data_type, DataType::U8 | DataType::S8);
        let has_tiles = has(if is_integer { CpuFeature::AmxInt8 } else { CpuFeature::AmxBf16 });
        match Level::available() {
            #[cfg(feature = "avx512")]
            Level::Avx512 if has_tiles && (is_integer || data_type == DataType::Bf16) => {
                // SAFETY: the machine has the feature.
                return unsafe { super::gemm::amx::peak(is_integer, steps) };
            }
            #[cfg(feature = "avx512")]
            // SAFETY: the machine runs the level, and has the feature.
            Level::Avx512 if is_integer && has_quads => return unsafe { x86::quads(steps) },
            #[cfg(feature = "avx512")]
            // SAFETY: the machine runs the level.
            Level::Avx512 if is_integer => return unsafe { x86::avx512_words(steps) },
            // SAFETY: the machine runs the level.
            Level::Avx2 if is_integer => return unsafe { x86::avx2_words(steps) },
            #[cfg(feature = "avx512")]
            // SAFETY: the machine runs the level, and has the feature.
            Level::Avx512 if data_type == DataType::Bf16 && has_pairs => return unsafe { x86::pairs(steps) },
            #[cfg(feature = "avx512")]
            // SAFETY: the machine runs the level.
            Level::Avx512 => return unsafe { x86::avx512(steps) },
            // SAFETY: the machine runs the level.
            Level::Avx2 => return unsafe { x86::avx2(steps) },
            _ => {}
        }
        let _ = (has_pairs, has_quads, has_tiles);
    }
    #[cfg(target_arch = "aarch64")]
    if Level::available() == Level::Neon {
        return neon(steps);
    }
    let _ = data_type;
    portable(steps)
}

#[cfg(target_arch = "aarch64")]
fn neon(steps: usize) -> f64 {
    use std::arch::aarch64::{float32x4_t, vdupq_n_f32, vfmaq_f32};
    const CHAINS: usize = 24;
    // SAFETY: every machine has the instructions.
    unsafe {
        let mut sums: [float32x4_t; CHAINS] = [vdupq_n_f32(0.0); CHAINS];
        let x = black_box(vdupq_n_f32(0.5));
        for _ in 0..steps {
            for sum in &mut sums {
                *sum = vfmaq_f32(*sum, x, x);
            }
        }
        black_box(sums);
    }
    (steps * CHAINS * 4) as f64 * 2.0
}

fn portable(steps: usize) -> f64 {
    const CHAINS: usize = 8;
    const LANES: usize = 4;
    let (mut sums, x) = ([[0.0f32; LANES]; CHAINS], black_box([0.5f32; LANES]));
    for _ in 0..steps {
        for sum in &mut sums {
            for (sum, x) in sum.iter_mut().zip(&x) {
                *sum += x * x;
            }
        }
    }
    black_box(sums);
    (steps * CHAINS * LANES) as f64 * 2.0
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256, __m256i, _mm256_add_epi32, _mm256_fmadd_ps, _mm256_madd_epi16, _mm256_set1_epi32,
        _mm256_set1_ps, _mm256_setzero_ps, _mm256_setzero_si256,
    };
    #[cfg(feature = "avx512")]
    use std::arch::x86_64::{
        __m512, __m512i, _mm512_add_epi32, _mm512_cvtne2ps_pbh, _mm512_dpbf16_ps, _mm512_dpbusd_epi32,
        _mm512_fmadd_ps, _mm512_madd_epi16, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps,
        _mm512_setzero_si512,
    };
    use std::hint::black_box;

    use super::with_features;

    /// Loops over accumulators that stay in registers: as many as hide the latency, and no more than there
    /// are registers.
    macro_rules! loops {
        ($($level:ident $name:ident $Sum:ty, $chains:literal x $lanes:literal:
            $zero:expr, $x:expr, $step:expr;)*) => {
            $(
                with_features! {
                    $level
                    /// # Safety
                    ///
                    /// The machine has the instructions.
                    pub(super) unsafe fn $name(steps: usize) -> f64 {
                        let mut sums: [$Sum; $chains] = [$zero; $chains];
                        let x = black_box($x);
                        for _ in 0..steps {
                            for sum in &mut sums {
                                *sum = $step(*sum, x);
                            }
                        }
                        black_box(sums);
                        (steps * $chains * $lanes) as f64 * 2.0
                    }
                }
            )*
        };
    }

    loops! {
        avx2 avx2 __m256, 12 x 8: _mm256_setzero_ps(), _mm256_set1_ps(0.5),
            |sum, x| _mm256_fmadd_ps(x, x, sum);
        avx2 avx2_words __m256i, 12 x 16: _mm256_setzero_si256(), _mm256_set1_epi32(0x0001_0001),
            |sum, x| _mm256_add_epi32(sum, _mm256_madd_epi16(sum, x));
    }

    #[cfg(feature = "avx512")]
    loops! {
        avx512 avx512 __m512, 24 x 16: _mm512_setzero_ps(), _mm512_set1_ps(0.5),
            |sum, x| _mm512_fmadd_ps(x, x, sum);
        avx512_bf16 pairs __m512, 24 x 32: _mm512_setzero_ps(),
            _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5), _mm512_set1_ps(0.5)),
            |sum, x| _mm512_dpbf16_ps(sum, x, x);
        avx512_vnni quads __m512i, 24 x 64: _mm512_setzero_si512(), _mm512_set1_epi32(0x0101_0101),
            |sum, x| _mm512_dpbusd_epi32(sum, x, x);
        avx512 avx512_words __m512i, 24 x 32: _mm512_setzero_si512(), _mm512_set1_epi32(0x0001_0001),
            |sum, x| _mm512_add_epi32(sum, _mm512_madd_epi16(sum, x));
    }
}
