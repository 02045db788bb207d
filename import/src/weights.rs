//! Constants: from the bytes of a file to values, and from values to the numbers in them.

use half::{bf16, f16};
use sterna::DataType;

use crate::constant::Constant;
pub(crate) use crate::sizes::{byte_count, element_count, room, stored_bytes};

/// The value of bytes in little-endian order.
pub(crate) fn of_little_endian(
    data_type: DataType,
    dims: &[i64],
    mut own: Vec<u8>,
) -> Result<Constant, sterna::Error> {
    if let (true, Some(size)) = (cfg!(target_endian = "big"), data_type.size()) {
        own.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
    Constant::new(data_type, dims, own)
}

/// The elements of a value of an integer type; `None` for another type, or for a number beyond s64.
pub(crate) fn integers(value: &Constant) -> Option<Vec<i64>> {
    macro_rules! widened {
        ($Type:ty) => {
            value.elements::<$Type>()?.into_iter().map(|element| i64::try_from(element).ok()).collect()
        };
    }
    match value.data_type() {
        DataType::S8 => widened!(i8),
        DataType::S16 => widened!(i16),
        DataType::S32 => widened!(i32),
        DataType::S64 => value.elements(),
        DataType::U8 => widened!(u8),
        DataType::U16 => widened!(u16),
        DataType::U32 => widened!(u32),
        DataType::U64 => widened!(u64),
        _ => None,
    }
}

/// The elements of a floating-point value; `None` for another type.
pub(crate) fn floats(value: &Constant) -> Option<Vec<f64>> {
    Some(match value.data_type() {
        DataType::F64 => value.elements::<f64>()?,
        DataType::F32 => value.elements::<f32>()?.into_iter().map(f64::from).collect(),
        DataType::F16 => value.elements::<f16>()?.into_iter().map(f64::from).collect(),
        DataType::Bf16 => value.elements::<bf16>()?.into_iter().map(f64::from).collect(),
        _ => return None,
    })
}

/// The common number of all elements of a floating-point value; `None` if they differ or there is none.
pub(crate) fn one_float(value: &Constant) -> Option<f64> {
    let size = value.data_type().size()?;
    let mut elements = value.bytes().chunks_exact(size);
    let first = elements.next()?;
    if !elements.all(|element| element == first) {
        return None;
    }
    let scalar = Constant::new(value.data_type(), &[], first.to_vec()).ok()?;
    match value.data_type() {
        DataType::F64 => Some(scalar.elements::<f64>()?[0]),
        DataType::F32 => Some(scalar.elements::<f32>()?[0].into()),
        DataType::F16 => Some(scalar.elements::<f16>()?[0].into()),
        DataType::Bf16 => Some(scalar.elements::<bf16>()?[0].into()),
        _ => None,
    }
}

/// A value of rank 0 that holds a number; `None` for a type in which the number has no exact form.
pub(crate) fn scalar(data_type: DataType, number: f64) -> Option<Constant> {
    of_numbers(data_type, &[], &[number])
}

/// A value of numbers; `None` if one has no exact form in the type.
pub(crate) fn of_numbers(data_type: DataType, dims: &[i64], numbers: &[f64]) -> Option<Constant> {
    macro_rules! exactly {
        ($convert:expr, $back:expr) => {{
            let convert = $convert;
            let back = $back;
            let elements: Vec<_> = numbers.iter().map(|&x| convert(x)).collect();
            let exact = elements.iter().zip(numbers).all(|(&element, &x)| back(element) == x || x.is_nan());
            exact.then(|| Constant::from_slice(dims, &elements).ok()).flatten()
        }};
    }
    match data_type {
        DataType::F64 => Constant::from_slice(dims, numbers).ok(),
        DataType::F32 => exactly!(|x: f64| x as f32, f64::from),
        DataType::F16 => exactly!(f16::from_f64, f64::from),
        DataType::Bf16 => exactly!(bf16::from_f64, f64::from),
        DataType::S8 => exactly!(|x: f64| x as i8, f64::from),
        DataType::S16 => exactly!(|x: f64| x as i16, f64::from),
        DataType::S32 => exactly!(|x: f64| x as i32, f64::from),
        DataType::U8 => exactly!(|x: f64| x as u8, f64::from),
        DataType::U16 => exactly!(|x: f64| x as u16, f64::from),
        DataType::U32 => exactly!(|x: f64| x as u32, f64::from),
        // Beyond 2⁵³ not every integer is a float.
        DataType::S64 => {
            exactly!(|x: f64| x as i64, |n: i64| if n.unsigned_abs() <= 1 << 53 {
                n as f64
            } else {
                f64::NAN
            })
        }
        DataType::U64 => exactly!(|x: f64| x as u64, |n: u64| if n <= 1 << 53 { n as f64 } else { f64::NAN }),
        _ => None,
    }
}
