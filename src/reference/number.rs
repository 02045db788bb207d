//! Elements as numbers, and numbers as elements.

use crate::types::dtype::{DataType, Element, bytes_of, element_of};

use DataType as D;

/// The number that an element stands for, exactly: no type has one that both fail to hold.
#[derive(Debug, Clone, Copy)]
pub(super) enum Number {
    Float(f64),
    Integer(i128),
}

impl Number {
    /// The number that the bytes of an element stand for; of a truth value 0 or 1.
    pub(super) fn of(data_type: DataType, bytes: &[u8]) -> Self {
        fn read<T: Element>(bytes: &[u8]) -> Option<T> {
            element_of(bytes)
        }
        let number = match data_type {
            D::F64 => read::<f64>(bytes).map(Self::Float),
            D::F32 => read::<f32>(bytes).map(|x| Self::Float(x.into())),
            D::Bf16 => read::<half::bf16>(bytes).map(|x| Self::Float(x.into())),
            D::F16 => read::<half::f16>(bytes).map(|x| Self::Float(x.into())),
            D::S8 => read::<i8>(bytes).map(|x| Self::Integer(x.into())),
            D::S16 => read::<i16>(bytes).map(|x| Self::Integer(x.into())),
            D::S32 => read::<i32>(bytes).map(|x| Self::Integer(x.into())),
            D::S64 => read::<i64>(bytes).map(|x| Self::Integer(x.into())),
            D::U8 => read::<u8>(bytes).map(|x| Self::Integer(x.into())),
            D::U16 => read::<u16>(bytes).map(|x| Self::Integer(x.into())),
            D::U32 => read::<u32>(bytes).map(|x| Self::Integer(x.into())),
            D::U64 => read::<u64>(bytes).map(|x| Self::Integer(x.into())),
            D::Boolean => Some(Self::Integer((bytes != [0]).into())),
            _ => None,
        };
        number.expect("the schema lets numbers and truth values alone through to here")
    }

    /// The nearest f64; of a floating-point number itself.
    pub(super) fn float(self) -> f64 {
        match self {
            Self::Float(number) => number,
            Self::Integer(number) => number as f64,
        }
    }

    /// Appends the bytes of the element that this number becomes: rounded once to nearest in floating point,
    /// kept within the bounds of an integer if it is a floating-point number, wrapped around if it is an
    /// integer.
    pub(super) fn append(self, data_type: DataType, bytes: &mut Vec<u8>) {
        macro_rules! put {
            ($Type:ty) => {
                match self {
                    Self::Float(number) => bytes.extend_from_slice(bytes_of(&[number as $Type])),
                    Self::Integer(number) => bytes.extend_from_slice(bytes_of(&[number as $Type])),
                }
            };
        }
        // Of a NaN out of arithmetic, sign and payload are left open: the compiler may take any NaN for any
        // other. As an integer it is the same everywhere.
        let is_nan = matches!(self, Self::Float(number) if number.is_nan());
        match data_type {
            D::F16 if is_nan => bytes.extend_from_slice(bytes_of(&[0x7e00u16])),
            D::Bf16 if is_nan => bytes.extend_from_slice(bytes_of(&[0x7fc0u16])),
            D::F32 if is_nan => bytes.extend_from_slice(bytes_of(&[0x7fc0_0000u32])),
            D::F64 if is_nan => bytes.extend_from_slice(bytes_of(&[0x7ff8_0000_0000_0000u64])),
            D::F16 => bytes.extend_from_slice(bytes_of(&[half::f16::from_f32(self.to_odd())])),
            D::Bf16 => bytes.extend_from_slice(bytes_of(&[half::bf16::from_f32(self.to_odd())])),
            D::F32 => put!(f32),
            D::F64 => put!(f64),
            D::S8 => put!(i8),
            D::S16 => put!(i16),
            D::S32 => put!(i32),
            D::S64 => put!(i64),
            D::U8 => put!(u8),
            D::U16 => put!(u16),
            D::U32 => put!(u32),
            D::U64 => put!(u64),
            D::Boolean => bytes.push((self.float() != 0.0).into()),
            other => unreachable!("the schema lets no number become {other}"),
        }
    }

    /// This number, if it is one, in f32, rounded to odd: what does not fit is cut off, and leaves its trace
    /// in the last bit. Rounding that to nearest in a type of 16 bits gives what rounding the number itself
    /// would give.
    fn to_odd(self) -> f32 {
        let number = match self {
            Self::Float(number) => number,
            Self::Integer(number) => {
                let (size, kept) = (number.unsigned_abs(), f64::MANTISSA_DIGITS);
                let lost = (u128::BITS - size.leading_zeros()).saturating_sub(kept);
                let cut = size >> lost;
                let odd = (cut | u128::from(cut << lost != size)) << lost;
                if number < 0 { -(odd as f64) } else { odd as f64 }
            }
        };
        let nearest = number as f32;
        if f64::from(nearest) == number || number.is_nan() {
            nearest
        } else {
            let too_large = f64::from(nearest).abs() > number.abs();
            f32::from_bits((nearest.to_bits() - u32::from(too_large)) | 1)
        }
    }
}

/// Appends the element that a result of arithmetic becomes: rounded to f32, and from there to the type.
pub(super) fn append_arithmetic(number: f64, data_type: DataType, bytes: &mut Vec<u8>) {
    Number::Float(f64::from(number as f32)).append(data_type, bytes);
}
