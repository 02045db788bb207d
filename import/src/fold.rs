//! Constant folding of what moves or counts elements when a model is read: exact, or not at all.

use sterna::{DataType, OpKind};

use crate::constant::Constant;
use crate::weights::{element_count, integers, of_numbers, one_float, room};

/// The most elements of a range: what would be longer is no table of positions.
const LONGEST_RANGE: i128 = 1 << 24;

/// The number of elements; `usize::MAX` if it is larger. Beside a dim of 0, the others may be of any size.
fn count(dims: &[i64]) -> usize {
    element_count(dims).map_or(usize::MAX, |count| count as usize)
}

/// A value repeated to a shape. `view` has as many dims as `dims`, each of them equal to its counterpart or
/// 1, and as many elements as the value.
pub(crate) fn repeated(value: &Constant, view: &[i64], dims: &[i64]) -> Result<Constant, sterna::Error> {
    let size = value.data_type().size().unwrap_or(0);
    let count = count(dims);
    let mut bytes = room(count.saturating_mul(size))?;
    let mut index = vec![0i64; dims.len()];
    for _ in 0..count {
        let place =
            index.iter().zip(view).fold(0, |place, (&i, &dim)| place * dim + if dim == 1 { 0 } else { i });
        let first = place as usize * size;
        bytes.extend_from_slice(&value.bytes()[first..first + size]);
        for (i, &dim) in index.iter_mut().zip(dims).rev() {
            *i += 1;
            if *i < dim {
                break;
            }
            *i = 0;
        }
    }
    Constant::new(value.data_type(), dims, bytes)
}

/// The slices of a value at places along an axis, in the shape of the result. Each place is within the dim.
pub(crate) fn gathered(
    value: &Constant,
    axis: usize,
    places: &[i64],
    dims: &[i64],
) -> Result<Constant, sterna::Error> {
    let own = value.dims();
    // Beside a dim of 0, the others may be of any size.
    if value.bytes().is_empty() {
        return Constant::new(value.data_type(), dims, Vec::new());
    }
    let size = value.data_type().size().unwrap_or(0);
    let (inner, outer) = (count(&own[axis + 1..]) * size, count(&own[..axis]));
    let stride = own[axis] as usize * inner;
    let mut bytes = room(outer.saturating_mul(places.len()).saturating_mul(inner))?;
    for row in 0..outer {
        for &place in places {
            let first = row * stride + place as usize * inner;
            bytes.extend_from_slice(&value.bytes()[first..first + inner]);
        }
    }
    Constant::new(value.data_type(), dims, bytes)
}

/// A value of elements of four or eight bits with zeros behind it along an axis, up to a length.
pub(crate) fn lengthened(value: &Constant, axis: usize, length: i64) -> Result<Constant, sterna::Error> {
    let mut dims = value.dims().to_vec();
    let row = (count(&dims[axis..])).max(1);
    dims[axis] = length;
    let longer = count(&dims[axis..]);
    let is_packed = matches!(value.data_type(), DataType::S4 | DataType::U4);
    let own: Vec<u8> = match is_packed {
        true => (0..count(value.dims())).map(|at| value.bytes()[at / 2] >> (4 * (at % 2)) & 0xf).collect(),
        false => value.bytes().to_vec(),
    };
    let mut elements = room(count(&dims))?;
    for part in own.chunks(row) {
        let end = elements.len() + longer;
        elements.extend_from_slice(part);
        elements.resize(end, 0);
    }
    if is_packed {
        elements = elements.chunks(2).map(|pair| pair[0] | pair.get(1).map_or(0, |high| high << 4)).collect();
    }
    Constant::new(value.data_type(), &dims, elements)
}

/// The places of what is not 0, in order.
pub(crate) fn non_zero(value: &Constant) -> impl Iterator<Item = usize> {
    let data_type = value.data_type();
    // Of floats, all bits but the sign count.
    let sign = match data_type {
        DataType::F32 | DataType::F64 | DataType::F16 | DataType::Bf16 => 0x80,
        _ => 0,
    };
    let is_set = move |element: &[u8]| {
        let top = if cfg!(target_endian = "big") { 0 } else { element.len() - 1 };
        element.iter().enumerate().any(|(at, &byte)| byte & !(if at == top { sign } else { 0 }) != 0)
    };
    let elements = value.bytes().chunks_exact(data_type.size().unwrap_or(1));
    elements.enumerate().filter(move |(_, element)| is_set(element)).map(|(place, _)| place)
}

/// The indices of what is not 0, a row for each dim.
pub(crate) fn indices_of_non_zero(value: &Constant) -> Result<Constant, sterna::Error> {
    let (dims, places) = (value.dims(), non_zero(value).collect::<Vec<usize>>());
    let mut bytes = room(dims.len() * places.len() * size_of::<i64>())?;
    for axis in 0..dims.len() {
        let inner = count(&dims[axis + 1..]);
        let indices = places.iter().map(|place| (place / inner % dims[axis] as usize) as i64);
        bytes.extend(indices.flat_map(i64::to_ne_bytes));
    }
    Constant::new(DataType::S64, &[dims.len() as i64, places.len() as i64], bytes)
}

/// The most numbers that a reduction makes of no elements.
const MAX_OF_NOTHING: usize = 1 << 16;

/// Whole numbers along some axes as one. `None` for another reduction, or if a number has no exact form.
pub(crate) fn reduced(kind: OpKind, value: &Constant, axes: &[i64], keep: bool) -> Option<Constant> {
    type Step = fn(i64, i64) -> Option<i64>;
    let (first, step): (Option<i64>, Step) = match kind {
        OpKind::ReduceSum => (Some(0), i64::checked_add),
        OpKind::ReduceProd => (Some(1), i64::checked_mul),
        OpKind::ReduceMax => (None, |a, b| Some(a.max(b))),
        OpKind::ReduceMin => (None, |a, b| Some(a.min(b))),
        _ => return None,
    };
    let (numbers, own) = (integers(value)?, value.dims());
    let is_reduced = |axis: usize| axes.contains(&(axis as i64));
    let wide: Vec<i64> = (0..own.len()).map(|axis| if is_reduced(axis) { 1 } else { own[axis] }).collect();
    // Numbers that no element leads to are not worth more memory than the elements.
    let places = count(&wide);
    if places > numbers.len().max(MAX_OF_NOTHING) {
        return None;
    }
    let mut sums: Vec<Option<i64>> = vec![first; places];
    let mut index = vec![0i64; own.len()];
    for number in numbers {
        let place =
            index.iter().zip(&wide).fold(0, |place, (&i, &dim)| place * dim + if dim == 1 { 0 } else { i });
        let sum = &mut sums[place as usize];
        *sum = Some(match *sum {
            None => number,
            Some(sum) => step(sum, number)?,
        });
        for (i, &dim) in index.iter_mut().zip(own).rev() {
            *i += 1;
            if *i < dim {
                break;
            }
            *i = 0;
        }
    }
    let sums: Option<Vec<i64>> = sums.into_iter().collect();
    let kept: Vec<i64> =
        (0..own.len()).filter(|&axis| keep || !is_reduced(axis)).map(|axis| wide[axis]).collect();
    integers_of(value.data_type(), &sums?)?.reshaped(&kept).ok()
}

/// The numbers of a constant matrix of 8 bits less a zero point, one for all or one for each column.
pub(crate) struct Apart {
    numbers: Vec<i32>,
    dims: Vec<i64>,
}

impl Apart {
    /// `None` for another type, or another number of zero points.
    pub(crate) fn of(value: &Constant, zeros: &[i64]) -> Option<Self> {
        let own = match value.data_type() {
            DataType::S8 => value.elements::<i8>()?.into_iter().map(i32::from).collect::<Vec<i32>>(),
            DataType::U8 => value.elements::<u8>()?.into_iter().map(i32::from).collect(),
            _ => return None,
        };
        let columns = value.dims().last().map_or(1, |&columns| columns as usize);
        if zeros.len() != 1 && zeros.len() != columns {
            return None;
        }
        let zeros: Option<Vec<i32>> = zeros.iter().map(|&zero| i32::try_from(zero).ok()).collect();
        let zeros = zeros.filter(|zeros| zeros.iter().all(|zero| (-128..=255).contains(zero)))?;
        let numbers = own.iter().zip(zeros.iter().cycle()).map(|(number, zero)| number - zero).collect();
        Some(Self { numbers, dims: value.dims().to_vec() })
    }

    /// Ranges of an axis, one behind the other, in each of which the magnitudes along the axis add up to no
    /// more than `most` anywhere, or which have one place.
    pub(crate) fn ranges(&self, axis: usize, most: i64) -> Vec<[i64; 2]> {
        let (inner, length) = (count(&self.dims[axis + 1..]), self.dims[axis] as usize);
        let mut sums = vec![0i64; count(&self.dims[..axis]).saturating_mul(inner)];
        let (mut ranges, mut start) = (Vec::new(), 0);
        for place in 0..length {
            let magnitude = |line: usize| {
                let (outer, inside) = (line / inner, line % inner);
                i64::from(self.numbers[(outer * length + place) * inner + inside].abs())
            };
            if sums.iter().enumerate().any(|(line, sum)| sum + magnitude(line) > most) && place > start {
                ranges.push([start as i64, place as i64]);
                start = place;
                sums.fill(0);
            }
            sums.iter_mut().enumerate().for_each(|(line, sum)| *sum += magnitude(line));
        }
        ranges.push([start as i64, length as i64]);
        ranges
    }

    /// The sums along an axis, in s32.
    pub(crate) fn sums(&self, axis: usize, keep: bool) -> Result<Constant, sterna::Error> {
        let inner = count(&self.dims[axis + 1..]);
        let length = self.dims[axis] as usize;
        let mut dims = self.dims.clone();
        dims[axis] = 1;
        let mut sums = vec![0i32; count(&dims)];
        for (at, number) in self.numbers.iter().enumerate() {
            let sum = &mut sums[at / (inner * length) * inner + at % inner];
            *sum = sum.wrapping_add(*number);
        }
        if !keep {
            dims.remove(axis);
        }
        Constant::from_slice(&dims, &sums)
    }
}

/// Why a range is not computed.
#[derive(Debug, PartialEq)]
pub(crate) enum NoRange {
    /// A bound or the step is no number, or the step is 0.
    Bounds,
    /// An element has no exact form in the type.
    Inexact,
    /// It has too many elements.
    TooLong,
}

/// The numbers from `start` on, `step` apart, up to and without `stop`, in a type.
pub(crate) fn range(
    start: &Constant,
    stop: &Constant,
    step: &Constant,
    to: DataType,
) -> Result<Constant, NoRange> {
    let whole =
        |value: &Constant| integers(value).filter(|list| list.len() == 1).map(|list| i128::from(list[0]));
    if let (Some(start), Some(stop), Some(step)) = (whole(start), whole(stop), whole(step)) {
        let (span, pace) = if step > 0 { (stop - start, step) } else { (start - stop, -step) };
        let count = if pace == 0 { return Err(NoRange::Bounds) } else { ((span + pace - 1) / pace).max(0) };
        if count > LONGEST_RANGE {
            return Err(NoRange::TooLong);
        }
        let numbers: Option<Vec<i64>> = (0..count).map(|i| i64::try_from(start + i * step).ok()).collect();
        return integers_of(to, &numbers.ok_or(NoRange::Inexact)?).ok_or(NoRange::Inexact);
    }
    let number = |value: &Constant| -> Result<f64, NoRange> {
        let number = whole(value).map(|n| n as f64).or_else(|| one_float(value));
        number.filter(|x| x.is_finite()).ok_or(NoRange::Bounds)
    };
    let (start, stop, step) = (number(start)?, number(stop)?, number(step)?);
    let count = ((stop - start) / step).ceil().max(0.0);
    if step == 0.0 || count.is_nan() {
        return Err(NoRange::Bounds);
    }
    if count > LONGEST_RANGE as f64 {
        return Err(NoRange::TooLong);
    }
    // Sums of halves, quarters and so on have one value, however they are added up; others have several.
    let numbers: Vec<f64> = (0..count as u64).map(|i| start + i as f64 * step).collect();
    let is_exact = numbers.iter().all(|x| (x * 256.0).fract() == 0.0 && x.abs() < 65536.0);
    let value = of_numbers(to, &[numbers.len() as i64], &numbers).filter(|_| is_exact);
    value.ok_or(NoRange::Inexact)
}

/// A list of integers in a type; `None` if one has no exact form in it.
pub(crate) fn integers_of(to: DataType, numbers: &[i64]) -> Option<Constant> {
    let dims = [numbers.len() as i64];
    if to == DataType::S64 {
        return Constant::from_slice(&dims, numbers).ok();
    }
    let small = numbers.iter().all(|n| n.unsigned_abs() <= 1 << 53);
    let floats: Vec<f64> = numbers.iter().map(|&n| n as f64).collect();
    of_numbers(to, &dims, &floats).filter(|_| small)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scalar(n: i64) -> Constant {
        Constant::from_slice(&[], &[n]).unwrap()
    }

    fn float(x: f32) -> Constant {
        Constant::from_slice(&[], &[x]).unwrap()
    }

    #[test]
    fn ranges_end_before_their_stop() {
        let of = |a, b, c| {
            range(&scalar(a), &scalar(b), &scalar(c), DataType::S64).map(|v| v.elements::<i64>().unwrap())
        };
        assert_eq!(of(0, 5, 2), Ok(vec![0, 2, 4]));
        assert_eq!(of(5, 0, -2), Ok(vec![5, 3, 1]));
        assert_eq!(of(5, 0, 2), Ok(vec![]));
        assert_eq!(of(i64::MIN, i64::MAX, i64::MAX), Ok(vec![i64::MIN, -1, i64::MAX - 1]));
        assert_eq!(of(0, 1, 0), Err(NoRange::Bounds));
        assert_eq!(of(0, i64::MAX, 1), Err(NoRange::TooLong));
        let of = |a, b, c, to| range(&float(a), &float(b), &float(c), to);
        assert_eq!(of(0.5, 2.0, 0.5, DataType::F32).unwrap().elements::<f32>().unwrap(), [0.5, 1.0, 1.5]);
        assert_eq!(of(0.0, 2.0, 0.5, DataType::S64), Err(NoRange::Inexact));
        assert_eq!(of(0.0, 1.0, 0.1, DataType::F32), Err(NoRange::Inexact));
        assert_eq!(of(0.0, f32::INFINITY, 1.0, DataType::F32), Err(NoRange::Bounds));
        assert_eq!(of(0.0, 1.0, f32::NAN, DataType::F32), Err(NoRange::Bounds));
        assert_eq!(range(&scalar(0), &scalar(300), &scalar(1), DataType::S8), Err(NoRange::Inexact));
    }

    #[test]
    fn whole_numbers_are_reduced() {
        let value = Constant::from_slice(&[2, 3], &[1i64, 2, 3, 4, 5, 6]).unwrap();
        let of = |kind, axes: &[i64], keep| {
            let value = reduced(kind, &value, axes, keep)?;
            Some((value.dims().to_vec(), value.elements::<i64>()?))
        };
        assert_eq!(of(OpKind::ReduceSum, &[0], false), Some((vec![3], vec![5, 7, 9])));
        assert_eq!(of(OpKind::ReduceProd, &[1], true), Some((vec![2, 1], vec![6, 120])));
        assert_eq!(of(OpKind::ReduceMax, &[0, 1], false), Some((vec![], vec![6])));
        assert_eq!(of(OpKind::ReduceMean, &[0], false), None);
        let large = Constant::from_slice(&[2], &[i64::MAX, 2]).unwrap();
        assert_eq!(reduced(OpKind::ReduceProd, &large, &[0], false), None);
    }

    #[test]
    fn indices_of_what_is_not_zero_are_found() {
        let value = Constant::from_slice(&[2, 3], &[0.0f32, -1.0, -0.0, f32::NAN, 0.0, 1e-45]).unwrap();
        let indices = indices_of_non_zero(&value).unwrap();
        assert_eq!((indices.dims(), indices.elements().unwrap()), (&[2, 3][..], vec![0i64, 1, 1, 1, 0, 2]));
        // The bit of the sign alone is a number of integers.
        let value = Constant::from_slice(&[3], &[0i16, i16::MIN, 256]).unwrap();
        assert_eq!(indices_of_non_zero(&value).unwrap().elements::<i64>().unwrap(), [1i64, 2]);
        let nothing = Constant::from_slice(&[2, 0], &[0u8; 0]).unwrap();
        assert_eq!(indices_of_non_zero(&nothing).unwrap().dims(), [2, 0]);
    }

    #[test]
    fn values_are_repeated_along_dims_of_one() {
        let value = Constant::from_slice(&[2, 1], &[1u8, 2]).unwrap();
        let repeated = repeated(&value, &[1, 2, 1], &[2, 2, 3]).unwrap();
        assert_eq!(repeated.dims(), [2, 2, 3]);
        assert_eq!(repeated.elements::<u8>().unwrap(), [1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2]);
    }
}
