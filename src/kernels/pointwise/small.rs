//! Conversions between f32 and the floats of 8 bits.

use super::conversion::To;
use crate::kernels::floats::NAN;
use crate::kernels::isa::Isa;

/// The bits of an f8_e5m2.
#[derive(Clone, Copy, Default)]
pub(in crate::kernels) struct E5m2(u8);

/// The bits of an f8_e4m3, which has no infinities, and one NaN of each sign.
#[derive(Clone, Copy, Default)]
pub(in crate::kernels) struct E4m3(u8);

const MAGNITUDE: u32 = u32::MAX >> 1;
const NAN_FROM: u32 = f32::INFINITY.to_bits() + 1;

/// The magnitude in f32 of a finite float with a number of bits of mantissa, given the exponent of its
/// smallest normal number. No step takes or gives a subnormal f32, which machines handle slowly.
#[inline(always)]
fn widened<const MANTISSA: u32>(magnitude: u32, least_exponent: i32) -> u32 {
    let rebase = ((127 + least_exponent - 1) as u32) << 23;
    let normal = (magnitude << (23 - MANTISSA)) + rebase;
    let unit = f32::from_bits(((127 + least_exponent - MANTISSA as i32) as u32) << 23);
    let subnormal = (magnitude as i32 as f32 * unit).to_bits();
    if magnitude < 1 << MANTISSA { subnormal } else { normal }
}

/// The magnitude of the float with a number of bits of mantissa that is nearest to an f32, ties to even, as
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
        const ABOVE: u32 = 0x7c;
        let magnitude = u32::from(self.0 & 0x7f);
        let finite = widened::<2>(magnitude, -14);
        let value = if magnitude == ABOVE { f32::INFINITY.to_bits() } else { finite };
        let number = f32::from_bits(value | u32::from(self.0 & 0x80) << 24);
        if magnitude > ABOVE { NAN } else { number }
    }
}

impl To<f32> for E4m3 {
    #[inline(always)]
    fn to<I: Isa>(self) -> f32 {
        let magnitude = u32::from(self.0 & 0x7f);
        let number = f32::from_bits(widened::<3>(magnitude, -6) | u32::from(self.0 & 0x80) << 24);
        if magnitude == 0x7f { NAN } else { number }
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
