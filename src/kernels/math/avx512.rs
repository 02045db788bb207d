//! Functions of f32 at level Avx512. Its instructions save steps that `single` must take: scaling by any
//! power of two overflows, underflows and rounds correctly, and a table of 16 is one look-up
//! (decision: math-avx512).
//!
//! Each takes any number and gives the same bits as its counterpart in `single`; [`GeluErf`],
//! [`HardSwish`] and [`Tanh`] have none there.

use std::arch::x86_64::*;

use super::single::{EXP, GELU_A, GELU_B, LN_2, SHIFTER};
use crate::types::function::EXP_IS_ZERO;

/// A function of the 16 numbers of a vector.
pub(in crate::kernels) trait OfVector {
    /// # Safety
    ///
    /// The machine runs level Avx512.
    unsafe fn of(x: __m512) -> __m512;
}

/// Applies a function to a block of numbers.
///
/// # Safety
///
/// The machine runs level Avx512.
#[inline(always)]
pub(in crate::kernels) unsafe fn of_block<F: OfVector, const N: usize>(x: &[f32; N]) -> [f32; N] {
    const { assert!(N.is_multiple_of(16), "a block is a number of vectors") };
    let mut to = [0.0; N];
    for i in (0..N).step_by(16) {
        // SAFETY: 16 numbers starting at that index are within the block; the rest as the caller promises.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr().add(i), F::of(_mm512_loadu_ps(x.as_ptr().add(i)))) };
    }
    to
}

/// # Safety
///
/// The machine runs level Avx512.
#[inline(always)]
unsafe fn all(x: f32) -> __m512 {
    // SAFETY: as the caller promises.
    unsafe { _mm512_set1_ps(x) }
}

/// `c₀ + c₁·x + c₂·x² + …`
///
/// # Safety
///
/// The machine runs level Avx512.
#[inline(always)]
unsafe fn polynomial<const N: usize>(x: __m512, coefficients: [__m512; N]) -> __m512 {
    let mut sum = coefficients[N - 1];
    for i in (0..N - 1).rev() {
        // SAFETY: as the caller promises.
        sum = unsafe { _mm512_fmadd_ps(sum, x, coefficients[i]) };
    }
    sum
}

/// `x + low = n·ln 2 + r`: returns n and `eʳ − 1`.
///
/// # Safety
///
/// The machine runs level Avx512.
#[inline(always)]
unsafe fn reduced(x: __m512, low: __m512) -> (__m512, __m512) {
    // SAFETY: as the caller promises.
    unsafe {
        let shifted = _mm512_fmadd_ps(x, all(std::f32::consts::LOG2_E), all(SHIFTER));
        let n = _mm512_sub_ps(shifted, all(SHIFTER));
        let r = _mm512_add_ps(_mm512_fnmadd_ps(n, all(LN_2[0]), x), low);
        let r = _mm512_fnmadd_ps(n, all(LN_2[1]), r);
        let q = polynomial(r, [all(EXP[0]), all(EXP[1]), all(EXP[2]), all(EXP[3]), all(EXP[4])]);
        (n, _mm512_fmadd_ps(q, _mm512_mul_ps(r, r), r))
    }
}

/// The exponential function.
pub(in crate::kernels) struct Exp;

impl OfVector for Exp {
    #[inline(always)]
    unsafe fn of(x: __m512) -> __m512 {
        // SAFETY: as the caller promises. If one operand is NaN, the second operand is the result.
        unsafe { exp_up_to_90(_mm512_min_ps(all(90.0), _mm512_max_ps(all(-105.0), x))) }
    }
}

/// [`Exp`] for inputs ≤ 90, −∞ and NaN; above 90 unspecified.
///
/// # Safety
///
/// The machine runs level Avx512.
#[inline(always)]
pub(in crate::kernels) unsafe fn exp_up_to_90(x: __m512) -> __m512 {
    // SAFETY: as the caller promises.
    unsafe {
        let (n, e) = reduced(x, all(-0.0));
        // A result that underflows takes long to scale, and masked scores are −∞.
        let is_kept = _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(x, all(EXP_IS_ZERO));
        _mm512_maskz_scalef_ps(is_kept, _mm512_add_ps(e, all(1.0)), n)
    }
}

/// The logistic function.
pub(in crate::kernels) struct Sigmoid;

impl OfVector for Sigmoid {
    #[inline(always)]
    unsafe fn of(x: __m512) -> __m512 {
        // SAFETY: as the caller promises.
        unsafe {
            let z = Exp::of(_mm512_or_ps(x, all(-0.0)));
            let sum = _mm512_add_ps(z, all(1.0));
            let is_below = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(x, _mm512_setzero_ps());
            let y = _mm512_div_ps(_mm512_mask_blend_ps(is_below, all(1.0), z), sum);
            let lost = _mm512_sub_ps(z, _mm512_sub_ps(sum, all(1.0)));
            _mm512_fnmadd_ps(y, _mm512_fnmadd_ps(lost, y, lost), y)
        }
    }
}

/// A sixth, and what is left of it, a little nearer to 0: so six times both together is more than 1, and the
/// product of infinity with each is no NaN.
const SIXTH: f32 = 1.0 / 6.0;
const SIXTH_LOW: f32 = -f32::from_bits(0x31aa_aaaa);

/// `x · min(max(x + 3, 0), 6) / 6`, rounded to f32 once.
pub(in crate::kernels) struct HardSwish;

impl OfVector for HardSwish {
    #[inline(always)]
    unsafe fn of(x: __m512) -> __m512 {
        // SAFETY: as the caller promises.
        unsafe {
            let within = _mm512_min_ps(_mm512_max_ps(x, all(-3.0)), all(3.0));
            let sum = _mm512_add_ps(within, all(3.0));
            let lost = _mm512_sub_ps(within, _mm512_sub_ps(sum, all(3.0)));
            let gate = _mm512_mul_ps(sum, all(SIXTH));
            let low = _mm512_fmadd_ps(sum, all(SIXTH_LOW), _mm512_fmsub_ps(sum, all(SIXTH), gate));
            let low = _mm512_fmadd_ps(lost, all(SIXTH), low);
            _mm512_fmadd_ps(x, gate, _mm512_mul_ps(x, low))
        }
    }
}

/// The distance of a number from the start of its quarter of an octave of a + 1, and the quarter's
/// coefficients: the index is the quarter's number modulo 16, from the bits of a + 1.
///
/// # Safety
///
/// The machine runs level Avx512.
#[inline(always)]
unsafe fn quarter<const N: usize>(a: __m512, table: &[[f32; 16]; N]) -> (__m512, [__m512; N]) {
    // SAFETY: as the caller promises; the tables have the size of a vector.
    unsafe {
        let quarter = _mm512_castps_si512(_mm512_add_ps(a, all(1.0)));
        let start = _mm512_castsi512_ps(_mm512_and_si512(quarter, _mm512_set1_epi32(!0x1f_ffff)));
        let quarter = _mm512_srli_epi32::<21>(quarter);
        let mut coefficients = [_mm512_setzero_ps(); N];
        // An iterator over both arrays is a call for each vector, around which all constants are spilled.
        for i in 0..N {
            coefficients[i] = _mm512_permutexvar_ps(quarter, _mm512_loadu_ps(table[i].as_ptr()));
        }
        (_mm512_sub_ps(a, _mm512_sub_ps(start, all(1.0))), coefficients)
    }
}

/// `Φ(−a) · e^(a²/2)` for a below 15, with a relative error of 5e-9: one polynomial for each [`quarter`].
const TAIL: [[f32; 16]; 7] = [
    [
        0.2615783,
        0.20578067,
        0.168102,
        0.14133133,
        0.12151395,
        0.09441064,
        0.0769193,
        0.06477931,
        0.05589348,
        0.04379879,
        0.03597489,
        0.030509414,
        0.5,
        0.4140321,
        0.34961882,
        0.30023247,
    ],
    [
        -0.13736396,
        -0.090271264,
        -0.06273827,
        -0.04561395,
        -0.034400396,
        -0.021299707,
        -0.014345753,
        -0.010266393,
        -0.0076878904,
        -0.004753178,
        -0.003218494,
        -0.0023198917,
        -0.39894226,
        -0.29543424,
        -0.22413287,
        -0.17376794,
    ],
    [
        0.06210598,
        0.035186473,
        0.021312572,
        0.013648165,
        0.009155713,
        0.004605749,
        0.0025952242,
        0.001590461,
        0.0010389754,
        0.000510062,
        0.0002857197,
        0.00017540797,
        0.24999945,
        0.17008649,
        0.11877605,
        0.084953174,
    ],
    [
        -0.025071435,
        -0.012492134,
        -0.006702464,
        -0.0038303977,
        -0.0023067796,
        -0.00095785875,
        -0.00045623883,
        -0.00024110578,
        -0.0001377953,
        -5.4086784e-05,
        -2.5159128e-05,
        -1.3184916e-05,
        -0.13296762,
        -0.0842974,
        -0.05491132,
        -0.036682364,
    ],
    [
        0.009172677,
        0.0040820395,
        0.0019654795,
        0.001013344,
        0.0005452306,
        0.00019022201,
        7.7511606e-05,
        3.5613903e-05,
        1.7590044e-05,
        5.597425e-06,
        2.1792475e-06,
        9.795749e-07,
        0.062348347,
        0.0371744,
        0.022788104,
        0.014337308,
    ],
    [
        -0.00291258,
        -0.0011797879,
        -0.00051824976,
        -0.0002444868,
        -0.000111140354,
        -3.360154e-05,
        -1.1989447e-05,
        -4.874574e-06,
        -1.9473478e-06,
        -5.2047113e-07,
        -1.7375393e-07,
        -6.8143684e-08,
        -0.025685145,
        -0.014528179,
        -0.008450492,
        -0.0050467583,
    ],
    [
        0.00060875446,
        0.00023089256,
        9.500753e-05,
        4.2023636e-05,
        1.4067328e-05,
        3.8592198e-06,
        1.2549259e-06,
        4.6728772e-07,
        1.316045e-07,
        3.124581e-08,
        9.36293e-09,
        3.3267733e-09,
        0.007614687,
        0.0041410835,
        0.0023155224,
        0.0013293058,
    ],
];

/// `x · Φ(x)`.
pub(in crate::kernels) struct GeluErf;

impl OfVector for GeluErf {
    #[inline(always)]
    unsafe fn of(x: __m512) -> __m512 {
        // SAFETY: as the caller promises.
        unsafe {
            // From there on the difference from x, or from 0, is below half of the least number.
            let a = _mm512_min_ps(all(14.4), _mm512_abs_ps(x));
            let (distance, tail) = quarter(a, &TAIL);
            let tail = _mm512_mul_ps(polynomial(distance, tail), a);
            // The rounding error of a² is added after the reduction.
            let square = _mm512_mul_ps(a, a);
            let low = _mm512_fmsub_ps(a, a, square);
            let (n, e) = reduced(_mm512_mul_ps(square, all(-0.5)), _mm512_mul_ps(low, all(-0.5)));
            let is_above = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(x, _mm512_setzero_ps());
            // A result that underflows takes long to scale (decision: underflow-is-zero). From 8 on, x less
            // that difference is x.
            let end = _mm512_mask_blend_ps(is_above, all(14.4), all(8.0));
            let is_kept = _mm512_cmp_ps_mask::<_CMP_NGE_UQ>(a, end);
            let below = _mm512_maskz_scalef_ps(is_kept, _mm512_fmadd_ps(tail, e, tail), n);
            let y = _mm512_mask_sub_ps(_mm512_xor_ps(below, all(-0.0)), is_above, x, below);
            not_at_minus_infinity(x, y)
        }
    }
}

/// `y`, but NaN if x is −∞: there the formulas multiply it by 0.
///
/// # Safety
///
/// The machine runs level Avx512.
#[inline(always)]
unsafe fn not_at_minus_infinity(x: __m512, y: __m512) -> __m512 {
    // SAFETY: as the caller promises.
    unsafe {
        let is_there = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(x, all(f32::NEG_INFINITY));
        _mm512_mask_blend_ps(is_there, y, all(f32::NAN))
    }
}

/// `x / (1 + e⁻ᵛ)`, with v twice the argument of the tangent.
pub(in crate::kernels) struct GeluTanh;

impl OfVector for GeluTanh {
    #[inline(always)]
    unsafe fn of(x: __m512) -> __m512 {
        // SAFETY: as the caller promises.
        unsafe {
            // From there on the difference from x, or from 0, is below half of the least number.
            let a = _mm512_min_ps(all(10.8), _mm512_abs_ps(x));
            // An error of v is one of the result's exponent, so v has a low part.
            let square = _mm512_mul_ps(a, a);
            let square_low = _mm512_fmsub_ps(a, a, square);
            let w = _mm512_fmadd_ps(all(GELU_B[0]), square, all(GELU_A[0]));
            let rest = _mm512_fmadd_ps(all(GELU_B[1]), square, all(GELU_A[1]));
            let rest = _mm512_fmadd_ps(all(GELU_B[0]), square_low, rest);
            let w_low = _mm512_fmadd_ps(all(GELU_B[0]), square, _mm512_sub_ps(all(GELU_A[0]), w));
            let w_low = _mm512_add_ps(w_low, rest);
            let minus_v = _mm512_xor_ps(_mm512_mul_ps(a, w), all(-0.0));
            let minus_low = _mm512_fnmadd_ps(a, w_low, _mm512_fnmsub_ps(a, w, minus_v));
            let (n, e) = reduced(minus_v, minus_low);
            // As for `GeluErf`: from 8 on, 1 + z is 1.
            let is_kept = _mm512_cmp_ps_mask::<_CMP_NGE_UQ>(a, all(8.0));
            let z = _mm512_maskz_scalef_ps(is_kept, _mm512_add_ps(e, all(1.0)), n);
            let is_below = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(x, _mm512_setzero_ps());
            let dividend = _mm512_mask_blend_ps(is_below, x, _mm512_xor_ps(a, all(-0.0)));
            let y = _mm512_div_ps(dividend, _mm512_add_ps(z, all(1.0)));
            let is_scaled = _mm512_mask_cmp_ps_mask::<_CMP_LT_OQ>(is_below, a, all(10.8));
            let below = _mm512_mask_scalef_ps(all(-0.0), is_scaled, _mm512_fmadd_ps(y, e, y), n);
            not_at_minus_infinity(x, _mm512_mask_blend_ps(is_below, y, below))
        }
    }
}

/// `tanh(a)` for a up to 11, with a relative error of 3e-8: one polynomial for each [`quarter`]. From 9 on it
/// is 1.
const TANH: [[f32; 16]; 7] = [
    [
        0.7615942, 0.90514827, 0.9640276, 0.9866143, 0.9950548, 0.9993293, 0.9999092, 0.9999877, 0.99999833,
        1.0, 1.0, 1.0, 0.0, 0.24491866, 0.46211717, 0.63514894,
    ],
    [
        0.4199718,
        0.18070485,
        0.07065034,
        0.026593806,
        0.009863846,
        0.0013388814,
        0.00018031895,
        0.0000238858,
        3.5299793e-6,
        0.0,
        0.0,
        0.0,
        1.0,
        0.9400158,
        0.7864453,
        0.5965887,
    ],
    [
        -0.31979907,
        -0.16352965,
        -0.0680984,
        -0.026272753,
        -0.009788481,
        -0.0013154815,
        -0.00016681076,
        -0.000016544971,
        -4.4889484e-6,
        0.0,
        0.0,
        0.0,
        -1.0910412e-6,
        -0.23027387,
        -0.36331284,
        -0.3790558,
    ],
    [
        0.10325885,
        0.08756119,
        0.0420203,
        0.01732927,
        0.006337931,
        0.0007844268,
        0.000057763755,
        -0.000017869555,
        4.6291348e-6,
        0.0,
        0.0,
        0.0,
        -0.33327046,
        -0.25612184,
        -0.096312776,
        0.044123314,
    ],
    [
        0.028567689,
        -0.024342222,
        -0.017581368,
        -0.009220799,
        -0.002839787,
        -0.00022741019,
        0.00006273539,
        0.000057974827,
        -3.3204822e-6,
        0.0,
        0.0,
        0.0,
        -0.001180324,
        0.13310087,
        0.18181255,
        0.081961825,
    ],
    [
        -0.04652827,
        -0.0024224163,
        0.0043697665,
        0.0048919087,
        0.000805122,
        -0.000035072255,
        -0.000087888046,
        -0.00005584731,
        1.3052329e-6,
        0.0,
        0.0,
        0.0,
        0.14306746,
        0.096234284,
        -0.09274491,
        -0.0021094189,
    ],
    [
        0.017865092,
        0.0039204056,
        -0.00026289045,
        -0.0019833548,
        -0.00010408628,
        0.000034559205,
        0.000032387485,
        0.00001902617,
        -2.0537799e-7,
        0.0,
        0.0,
        0.0,
        -0.036948662,
        -0.10378832,
        0.05231926,
        -0.0758112,
    ],
];

/// The hyperbolic tangent.
pub(in crate::kernels) struct Tanh;

impl OfVector for Tanh {
    #[inline(always)]
    unsafe fn of(x: __m512) -> __m512 {
        // SAFETY: as the caller promises. If one operand is NaN, the second operand is the least.
        unsafe {
            let (distance, coefficients) = quarter(_mm512_min_ps(all(11.0), _mm512_abs_ps(x)), &TANH);
            let y = polynomial(distance, coefficients);
            _mm512_or_ps(y, _mm512_and_ps(x, all(-0.0)))
        }
    }
}
