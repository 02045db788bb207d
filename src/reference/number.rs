//! Elements as numbers, and numbers as elements: loops over one type each.

use std::ops::Range;

use super::element::{elements, elements_mut, nibble};
use super::odometer::{CHUNK, Odometer, in_pieces};
use super::value::{Value, count, zeroed};
use crate::error::Result;
use crate::types::dtype::DataType;

use DataType as D;

/// Half a unit in the last place of an f32 that is 1.
pub(super) const HALF_A_UNIT: f64 = f32::EPSILON as f64 / 2.0;

/// True if a type is of integers or truth values, which are read as [`integers`]; all others are read as
/// [`floats`].
pub(super) fn is_integer(data_type: DataType) -> bool {
    use DataType::{Boolean, S4, S8, S16, S32, S64, U4, U8, U16, U32, U64};
    matches!(data_type, S4 | S8 | S16 | S32 | S64 | U4 | U8 | U16 | U32 | U64 | Boolean)
}

/// Reads a range of elements as the nearest f64, which of all but 64-bit integers is the number itself.
pub(super) fn floats(value: &Value, odometer: &Odometer, range: Range<usize>, into: &mut [f64]) {
    floats_of(value.bytes(), value.data_type(), odometer, range, into);
}

/// Reads a range of elements in bytes as [`floats`] does.
pub(super) fn floats_of(
    bytes: &[u8],
    data_type: DataType,
    odometer: &Odometer,
    range: Range<usize>,
    into: &mut [f64],
) {
    macro_rules! read {
        ($Type:ty) => {{
            let elements = elements(bytes);
            odometer.read(range, into, |at| <$Type>::from_ne_bytes(elements[at]) as f64)
        }};
    }
    match data_type {
        D::F64 => read!(f64),
        D::F32 => read!(f32),
        D::Bf16 => {
            let elements = elements(bytes);
            odometer.read(range, into, |at| half::bf16::from_ne_bytes(elements[at]).to_f64());
        }
        D::F16 => {
            let elements = elements(bytes);
            odometer.read(range, into, |at| half::f16::from_ne_bytes(elements[at]).to_f64());
        }
        D::F8E5m2 => odometer.read(range, into, |at| of_e5m2(bytes[at])),
        D::F8E4m3 => odometer.read(range, into, |at| of_e4m3(bytes[at])),
        D::S8 => read!(i8),
        D::S16 => read!(i16),
        D::S32 => read!(i32),
        D::S64 => read!(i64),
        D::U8 => read!(u8),
        D::U16 => read!(u16),
        D::U32 => read!(u32),
        D::U64 => read!(u64),
        D::Boolean => odometer.read(range, into, |at| f64::from(bytes[at] != 0)),
        D::S4 => odometer.read(range, into, |at| f64::from(signed(nibble(bytes, at)))),
        D::U4 => odometer.read(range, into, |at| nibble(bytes, at).into()),
        D::Undef | D::E8m0 | D::F4E2m1 | D::F4E3m0 => {
            unreachable!("the schema lets none of these through to here")
        }
    }
}

/// Reads a range of integers or truth values, exactly; of a truth value 0 or 1.
pub(super) fn integers(value: &Value, odometer: &Odometer, range: Range<usize>, into: &mut [i128]) {
    let bytes = value.bytes();
    macro_rules! read {
        ($Type:ty) => {{
            let elements = elements(bytes);
            odometer.read(range, into, |at| <$Type>::from_ne_bytes(elements[at]).into())
        }};
    }
    match value.data_type() {
        D::S8 => read!(i8),
        D::S16 => read!(i16),
        D::S32 => read!(i32),
        D::S64 => read!(i64),
        D::U8 => read!(u8),
        D::U16 => read!(u16),
        D::U32 => read!(u32),
        D::U64 => read!(u64),
        D::Boolean => odometer.read(range, into, |at| (bytes[at] != 0).into()),
        D::S4 => odometer.read(range, into, |at| signed(nibble(bytes, at)).into()),
        D::U4 => odometer.read(range, into, |at| nibble(bytes, at).into()),
        other => unreachable!("{other} is no type of integers"),
    }
}

/// All elements of a value as numbers, as an odometer visits them.
pub(super) fn numbers_of(value: &Value, odometer: &Odometer) -> Result<Vec<f64>> {
    let mut numbers = zeroed(count(value.dims()))?;
    in_pieces(&mut numbers, CHUNK, |n, piece| {
        floats(value, odometer, n * CHUNK..n * CHUNK + piece.len(), piece);
    });
    Ok(numbers)
}

/// A value of numbers in row-major order, rounded to f32 and from there to the type.
pub(super) fn dense_value(numbers: &[f64], data_type: DataType, dims: &[i64]) -> Result<Value> {
    value_of(numbers, &Odometer::dense(dims), data_type, dims)
}

/// A value of numbers, rounded to f32 and from there to the type, that lie where an odometer over its dims
/// finds them.
pub(super) fn value_of(
    numbers: &[f64],
    odometer: &Odometer,
    data_type: DataType,
    dims: &[i64],
) -> Result<Value> {
    Value::compute(data_type, dims, |range, bytes| {
        let mut piece = vec![0.0; range.len()];
        odometer.read(range, &mut piece, |at| numbers[at]);
        store_arithmetic(&mut piece, data_type, bytes);
    })
}

/// Four bits as a number from −8 to 7.
fn signed(nibble: u8) -> i8 {
    (nibble << 4) as i8 >> 4
}

/// Which is the upper half of an f16.
fn of_e5m2(byte: u8) -> f64 {
    half::f16::from_bits(u16::from(byte) << 8).to_f64()
}

/// It has no infinities, and one NaN of each sign.
fn of_e4m3(byte: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(byte >> 3 & 0xf), f64::from(byte & 7));
    let size = match (exponent, byte & 7) {
        (15, 7) => f64::NAN,
        (0, _) => mantissa * 2f64.powi(-9),
        _ => (8.0 + mantissa) * 2f64.powi(exponent - 10),
    };
    if byte & 0x80 == 0 { size } else { -size }
}

/// Writes numbers as elements of a type: rounded once to nearest in floating point, kept within the bounds of
/// an integer, where NaN is 0; as a truth value, whether it is not 0.
pub(super) fn store_floats(numbers: &[f64], data_type: DataType, bytes: &mut [u8]) {
    // Of a NaN out of arithmetic, sign and payload are left open: the compiler may take any NaN for any
    // other. As an integer it is the same everywhere.
    macro_rules! put {
        ($Type:ty) => {
            put(numbers, bytes, |number| (number as $Type).to_ne_bytes())
        };
        ($nan:literal, $number:ident => $rounded:expr) => {
            put(numbers, bytes, |$number| if $number.is_nan() { $nan } else { $rounded }.to_ne_bytes())
        };
    }
    match data_type {
        D::F64 => put!(0x7ff8_0000_0000_0000u64, number => number.to_bits()),
        D::F32 => put!(0x7fc0_0000u32, number => (number as f32).to_bits()),
        D::Bf16 => put!(0x7fc0u16, number => half::bf16::from_f32(to_odd(number)).to_bits()),
        D::F16 => put!(0x7e00u16, number => half::f16::from_f32(to_odd(number)).to_bits()),
        D::F8E5m2 => put(numbers, bytes, |number| [E5M2.of(number)]),
        D::F8E4m3 => put(numbers, bytes, |number| [E4M3.of(number)]),
        D::S8 => put!(i8),
        D::S16 => put!(i16),
        D::S32 => put!(i32),
        D::S64 => put!(i64),
        D::U8 => put!(u8),
        D::U16 => put!(u16),
        D::U32 => put!(u32),
        D::U64 => put!(u64),
        D::Boolean => put(numbers, bytes, |number| [u8::from(number != 0.0)]),
        other => unreachable!("the schema lets no number become {other}"),
    }
}

/// Writes integers as elements of a type: rounded once to nearest in floating point, wrapped around in an
/// integer; as a truth value, whether it is not 0.
pub(super) fn store_integers(numbers: &[i128], data_type: DataType, bytes: &mut [u8]) {
    macro_rules! put {
        ($Type:ty) => {
            put(numbers, bytes, |number| (number as $Type).to_ne_bytes())
        };
    }
    match data_type {
        D::F64 => put!(f64),
        D::F32 => put!(f32),
        D::Bf16 => put(numbers, bytes, |number| half::bf16::from_f32(to_odd(kept(number))).to_ne_bytes()),
        D::F16 => put(numbers, bytes, |number| half::f16::from_f32(to_odd(kept(number))).to_ne_bytes()),
        D::S8 => put!(i8),
        D::S16 => put!(i16),
        D::S32 => put!(i32),
        D::S64 => put!(i64),
        D::U8 => put!(u8),
        D::U16 => put!(u16),
        D::U32 => put!(u32),
        D::U64 => put!(u64),
        D::Boolean => put(numbers, bytes, |number| [u8::from(number != 0)]),
        other => unreachable!("the schema lets no integer become {other}"),
    }
}

/// Writes results of arithmetic as elements of a type: rounded to f32, and from there to the type. Those of
/// f64 are rounded already.
pub(super) fn store_arithmetic(numbers: &mut [f64], data_type: DataType, bytes: &mut [u8]) {
    if data_type != D::F64 {
        numbers.iter_mut().for_each(|number| *number = in_f32(*number));
    }
    store_floats(numbers, data_type, bytes);
}

/// A number rounded to f32, in which the kernels compute.
pub(super) fn in_f32(number: f64) -> f64 {
    f64::from(number as f32)
}

fn put<T: Copy, const N: usize>(numbers: &[T], bytes: &mut [u8], element: impl Fn(T) -> [u8; N]) {
    let places = elements_mut(bytes).iter_mut();
    places.zip(numbers).for_each(|(place, &number)| *place = element(number));
}

/// A number in f32, rounded to odd: what does not fit is cut off, and leaves its trace in the last bit.
/// Rounding that to nearest in a type of 16 bits gives what rounding the number itself would give.
fn to_odd(number: f64) -> f32 {
    let nearest = number as f32;
    if f64::from(nearest) == number || number.is_nan() {
        nearest
    } else {
        let too_large = f64::from(nearest).abs() > number.abs();
        f32::from_bits((nearest.to_bits() - u32::from(too_large)) | 1)
    }
}

/// An integer in f64, rounded to odd.
fn kept(number: i128) -> f64 {
    let (size, kept) = (number.unsigned_abs(), f64::MANTISSA_DIGITS);
    let lost = (u128::BITS - size.leading_zeros()).saturating_sub(kept);
    let cut = size >> lost;
    let odd = (cut | u128::from(cut << lost != size)) << lost;
    if number < 0 { -(odd as f64) } else { odd as f64 }
}

/// A floating-point type of 8 bits.
struct Small {
    mantissa_bits: i32,
    /// The exponent of the smallest number that is not denormal.
    least_exponent: i32,
    /// The element that is the largest number.
    largest: i32,
    /// The element that stands for anything larger.
    above: u8,
    nan: u8,
}

const E5M2: Small = Small { mantissa_bits: 2, least_exponent: -14, largest: 0x7b, above: 0x7c, nan: 0x7e };
const E4M3: Small = Small { mantissa_bits: 3, least_exponent: -6, largest: 0x7e, above: 0x7f, nan: 0x7f };

impl Small {
    /// The nearest element, of two the even one.
    fn of(&self, number: f64) -> u8 {
        let exponent = (number.to_bits() >> 52 & 0x7ff) as i32 - 1023;
        let exponent = exponent.max(self.least_exponent);
        // A full step more than the mantissa holds carries over into the exponent.
        let steps = number.abs() / 2f64.powi(exponent - self.mantissa_bits);
        let exponent_steps = f64::from((exponent - self.least_exponent) << self.mantissa_bits);
        let element = exponent_steps + steps.round_ties_even();
        let sign = u8::from(number.is_sign_negative()) << 7;
        match element {
            _ if number.is_nan() => self.nan,
            _ if element <= f64::from(self.largest) => sign | element as u8,
            _ if self.above == self.nan => self.nan,
            _ => sign | self.above,
        }
    }
}
