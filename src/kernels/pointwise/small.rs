//! Conversions between f32 and the floats of 8 bits.

use super::conversion::To;
use crate::kernels::floats::NAN;
use crate::kernels::isa::Isa;

/// The bits of an f8_e5m2.
#[derive(Clone, Copy, Default)]
pub(super) struct E5m2(u8);

/// The bits of an f8_e4m3, which has no infinities, and one NaN of each sign.
#[derive(Clone, Copy, Default)]
pub(super) struct E4m3(u8);

const MAGNITUDE: u32 = u32::MAX >> 1;
const NAN_FROM: u32 = f32::INFINITY.to_bits() + 1;

/// The f32 of a float with so many bits of mantissa, of its bits, given the smallest bits that are no finite
/// number. A product rebases the exponent, of subnormal numbers too.
#[inline(always)]
fn widened<const MANTISSA: u32>(bits: u8, rebase: f32, not_finite: u8) -> (u32, bool) {
    let magnitude = u32::from(bits & 0x7f) << (23 - MANTISSA);
    let finite = (f32::from_bits(magnitude) * rebase).to_bits();
    (finite | u32::from(bits & 0x80) << 24, bits & 0x7f >= not_finite)
}

/// The magnitude of a float with so many bits of mantissa that is nearest to an f32, of two the even one, as
/// bits that may be beyond the largest number; given the exponent of its smallest normal number.
#[inline(always)]
fn narrowed<const MANTISSA: u32>(magnitude: u32, least_exponent: i32) -> u32 {
    let shift = 23 - MANTISSA;
    let least_normal = ((127 + least_exponent) as u32) << 23;
    let rounded = magnitude + ((1 << (shift - 1)) - 1) + (magnitude >> shift & 1);
    let normal = rounded.wrapping_sub(least_normal - (1 << 23)) >> shift;
    // The last bit of this number in f32 is the last bit of a subnormal result.
    let unit = f32::from_bits(((127 + least_exponent + shift as i32) as u32) << 23);
    let subnormal = (f32::from_bits(magnitude) + unit).to_bits().wrapping_sub(unit.to_bits());
    if magnitude < least_normal { subnormal } else { normal }
}

impl To<f32> for E5m2 {
    #[inline(always)]
    fn to<I: Isa>(self) -> f32 {
        const REBASE: f32 = f32::from_bits((127 + 112) << 23);
        const INFINITY: u8 = 0x7c;
        let (finite, is_beyond) = widened::<2>(self.0, REBASE, INFINITY);
        let infinity = f32::INFINITY.to_bits() | (finite & !MAGNITUDE);
        let number = f32::from_bits(if is_beyond { infinity } else { finite });
        if self.0 & 0x7f > INFINITY { NAN } else { number }
    }
}

impl To<f32> for E4m3 {
    #[inline(always)]
    fn to<I: Isa>(self) -> f32 {
        const REBASE: f32 = f32::from_bits((127 + 120) << 23);
        let (finite, is_nan) = widened::<3>(self.0, REBASE, 0x7f);
        if is_nan { NAN } else { f32::from_bits(finite) }
    }
}

impl To<E5m2> for f32 {
    #[inline(always)]
    fn to<I: Isa>(self) -> E5m2 {
        let (magnitude, sign) = (self.to_bits() & MAGNITUDE, (self.to_bits() >> 24) as u8 & 0x80);
        let value = narrowed::<2>(magnitude, -14).min(0x7c) as u8;
        E5m2(if magnitude >= NAN_FROM { 0x7e } else { value | sign })
    }
}

impl To<E4m3> for f32 {
    #[inline(always)]
    fn to<I: Isa>(self) -> E4m3 {
        let (magnitude, sign) = (self.to_bits() & MAGNITUDE, (self.to_bits() >> 24) as u8 & 0x80);
        let value = narrowed::<3>(magnitude, -6);
        // NaN is above the largest number as well.
        E4m3(if value >= 0x7f { 0x7f } else { value as u8 | sign })
    }
}
