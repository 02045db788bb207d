//! Numbers and tensors that are known up to an interval, and what a rounding makes of them.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Result;
use crate::reference::number::{HALF_A_UNIT, floats, numbers_of, store_floats};
use crate::reference::odometer::{CHUNK, Odometer, in_pieces};
use crate::reference::value::{Value, count, zeroed};
use crate::types::dtype::DataType;

use DataType as D;

/// True if a type is computed in f64 here, without its roundings.
pub(super) fn is_wide(data_type: DataType) -> bool {
    matches!(data_type, D::F32 | D::Bf16 | D::F16)
}

/// The type in which a tensor is held here.
pub(super) fn held_as(data_type: DataType) -> DataType {
    if is_wide(data_type) { D::F64 } else { data_type }
}

/// A value in the type in which it is held here.
pub(super) fn widened(value: &Value) -> Result<Value> {
    let dense = Odometer::dense(value.dims());
    match is_wide(value.data_type()) {
        true => Value::compute(D::F64, value.dims(), |range, bytes| {
            let mut numbers = vec![0.0; range.len()];
            floats(value, &dense, range, &mut numbers);
            store_floats(&numbers, D::F64, bytes);
        }),
        false => Ok(value.clone()),
    }
}

/// A tensor whose elements are known up to an interval.
///
/// An element is NaN for sure if its centre is NaN. If its centre is none but its ends are NaN, it may be
/// anything; its centre is then 1, from which no function makes a NaN.
#[derive(Clone)]
pub(super) struct EnclosedTensor {
    pub(super) centre: Value,
    /// The lower and the upper ends; none if they are the centre.
    pub(super) ends: Option<[Value; 2]>,
}

impl EnclosedTensor {
    pub(super) fn exact(centre: Value) -> Self {
        Self { centre, ends: None }
    }

    /// A tensor whose elements, held as a type, a function gives: a task is some of them, of which it gets
    /// the first.
    pub(super) fn compute(
        data_type: DataType,
        dims: &[i64],
        of_task: usize,
        elements: impl Fn(usize, &mut [ElementRange]) + Sync,
    ) -> Result<Self> {
        let size = data_type.size().unwrap_or(1);
        let mut parts: [Vec<u8>; 3] =
            [zeroed(count(dims) * size)?, zeroed(count(dims) * size)?, zeroed(count(dims) * size)?];
        let is_exact = AtomicBool::new(true);
        let [centre, low, high] = parts.each_mut().map(|part| part.chunks_mut((of_task * size).max(1)));
        let mut tasks: Vec<_> = centre.zip(low).zip(high).collect();
        in_pieces(&mut tasks, 1, |task, parts| {
            let [((centre, low), high)] = parts else { return };
            let mut ranges = vec![ElementRange::exactly(0.0); centre.len() / size];
            elements(task * of_task, &mut ranges);
            if !ranges.iter().all(ElementRange::is_exact) {
                is_exact.store(false, Ordering::Relaxed);
            }
            let mut numbers = vec![0.0; ranges.len()];
            let mut store = |of: fn(&ElementRange) -> f64, bytes: &mut [u8]| {
                numbers.iter_mut().zip(&ranges).for_each(|(number, range)| *number = of(range));
                store_floats(&numbers, data_type, bytes);
            };
            store(|range| range.centre, centre);
            store(|range| range.low, low);
            store(|range| range.high, high);
        });
        let [centre, low, high] = parts.map(|bytes| Value::new(data_type, dims, bytes));
        let ends = if is_exact.into_inner() { None } else { Some([low?, high?]) };
        Ok(Self { centre: centre?, ends })
    }

    /// The tensor after a function that moves elements.
    pub(super) fn moved(&self, of: impl Fn(&Value) -> Result<Value>) -> Result<Self> {
        let ends = match &self.ends {
            None => None,
            Some([low, high]) => Some([of(low)?, of(high)?]),
        };
        Ok(Self { centre: of(&self.centre)?, ends })
    }

    pub(super) fn low(&self) -> &Value {
        self.ends.as_ref().map_or(&self.centre, |ends| &ends[0])
    }

    pub(super) fn high(&self) -> &Value {
        self.ends.as_ref().map_or(&self.centre, |ends| &ends[1])
    }

    /// Reads a range of the elements that an odometer visits.
    pub(super) fn read(&self, odometer: &Odometer, range: Range<usize>, into: &mut [ElementRange]) {
        let mut numbers = vec![0.0; range.len()];
        floats(&self.centre, odometer, range.clone(), &mut numbers);
        into.iter_mut().zip(&numbers).for_each(|(into, &number)| *into = ElementRange::exactly(number));
        if let Some([low, high]) = &self.ends {
            floats(low, odometer, range.clone(), &mut numbers);
            into.iter_mut().zip(&numbers).for_each(|(into, &number)| into.low = number);
            floats(high, odometer, range, &mut numbers);
            into.iter_mut().zip(&numbers).for_each(|(into, &number)| into.high = number);
        }
    }

    /// True if all elements are so.
    pub(super) fn all(&self, is_so: impl Fn(&ElementRange) -> bool + Sync) -> bool {
        let (dense, elements) = (Odometer::dense(self.centre.dims()), count(self.centre.dims()));
        let are_all = AtomicBool::new(true);
        let mut tasks = vec![(); elements.div_ceil(CHUNK)];
        in_pieces(&mut tasks, 1, |task, _| {
            let range = task * CHUNK..elements.min((task + 1) * CHUNK);
            let mut ranges = vec![ElementRange::exactly(0.0); range.len()];
            self.read(&dense, range, &mut ranges);
            if !ranges.iter().all(&is_so) {
                are_all.store(false, Ordering::Relaxed);
            }
        });
        are_all.into_inner()
    }
}

/// The elements of a value as numbers.
pub(super) fn numbers(value: &Value) -> Result<Vec<f64>> {
    numbers_of(value, &Odometer::dense(value.dims()))
}

/// A number known up to an interval.
#[derive(Debug, Clone, Copy)]
pub(super) struct ElementRange {
    pub(super) centre: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// The range of an element that may be any number, or NaN.
pub(super) const ANYTHING: ElementRange = ElementRange { centre: 1.0, low: f64::NAN, high: f64::NAN };

impl ElementRange {
    pub(super) fn exactly(number: f64) -> Self {
        Self { centre: number, low: number, high: number }
    }

    /// True if the interval is one number, which may be NaN.
    pub(super) fn is_exact(&self) -> bool {
        self.centre.is_nan() || (self.low == self.centre && self.high == self.centre)
    }

    pub(super) fn is_anything(&self) -> bool {
        !self.centre.is_nan() && self.low.is_nan()
    }

    pub(super) fn is_finite(&self) -> bool {
        self.centre.is_finite() && self.low.is_finite() && self.high.is_finite()
    }

    /// The smallest interval around what a function gives at the centres and at all corners.
    pub(super) fn hull(centre: f64, corners: impl Iterator<Item = f64> + Clone) -> Self {
        match centre.is_nan() {
            true if corners.clone().all(f64::is_nan) => Self::exactly(f64::NAN),
            true => ANYTHING,
            false if corners.clone().any(f64::is_nan) => ANYTHING,
            false => Self {
                centre,
                low: corners.clone().fold(centre, f64::min),
                high: corners.fold(centre, f64::max),
            },
        }
    }

    /// The interval with the centre in its middle.
    pub(super) fn widened(self) -> Self {
        let room = (self.high - self.centre).max(self.centre - self.low);
        match self.is_finite() {
            true => Self { centre: self.centre, low: self.centre - room, high: self.centre + room },
            false => self,
        }
    }

    /// The interval after a rounding to a type, or none: a fused kernel may keep more digits than the type
    /// has. `relative` is what the function is off besides, as a share of its result.
    pub(super) fn rounded(self, to: DataType, relative: f64) -> Self {
        let Rounding { half_unit, smallest, largest } = Rounding::to(to);
        let is_kept = self.is_exact()
            && (relative == 0.0 || self.centre == 0.0 || !self.centre.is_finite())
            && represents(to, self.centre);
        if is_kept || self.is_anything() {
            return self;
        }
        let room = |end: f64| (half_unit + relative) * end.abs() + smallest;
        // No rounding changes the sign.
        let down = |end: f64| match end {
            _ if end == 0.0 || end.is_infinite() => end,
            _ if end > 0.0 => (end - room(end)).max(0.0),
            _ => end - room(end),
        };
        let (low, high) = (down(self.low), -down(-self.high));
        let threshold = largest * (1.0 + half_unit);
        let low = if low <= -threshold { f64::NEG_INFINITY } else { low.min(largest) };
        let high = if high >= threshold { f64::INFINITY } else { high.max(-largest) };
        Self { centre: self.centre, low, high }
    }
}

/// The errors and limits of a rounding to a type.
pub(super) struct Rounding {
    /// Half a unit in the last place of 1.
    pub(super) half_unit: f64,
    /// The numbers below it may be taken for 0.
    smallest: f64,
    largest: f64,
}

impl Rounding {
    pub(super) fn to(data_type: DataType) -> Self {
        let (half_unit, smallest, largest) = match data_type {
            D::F32 => (HALF_A_UNIT, f32::MIN_POSITIVE.into(), f32::MAX.into()),
            // Through f32.
            D::Bf16 => (1.0 / 256.0 + HALF_A_UNIT, f32::MIN_POSITIVE.into(), half::bf16::MAX.to_f64()),
            D::F16 => (1.0 / 2048.0 + HALF_A_UNIT, HALF_A_UNIT, half::f16::MAX.to_f64()),
            _ => (0.0, 0.0, f64::INFINITY),
        };
        Self { half_unit, smallest, largest }
    }
}

/// True if a number is one of a type, or NaN.
fn represents(data_type: DataType, number: f64) -> bool {
    let nearest = match data_type {
        D::F32 => f64::from(number as f32),
        D::Bf16 => half::bf16::from_f64(number).to_f64(),
        D::F16 => half::f16::from_f64(number).to_f64(),
        _ => number,
    };
    nearest == number || number.is_nan()
}

/// True if a sum in f32, whose terms may be added in any order, may overflow on the way to an infinity that
/// `sum` is not. `positive` and `negative` are the most that its finite terms of either sign add up to, in
/// size: terms that are infinite themselves, as `sum` then is, hide what overflows to their own sign.
pub(super) fn sum_may_overflow(sum: f64, positive: f64, negative: f64) -> bool {
    let reach = match sum.is_infinite() {
        true if sum > 0.0 => negative,
        true => positive,
        false => positive + negative,
    };
    reach >= f64::from(f32::MAX)
}

/// A product with a weight: 0 if the weight is 0, even if the other factor is not finite.
pub(super) fn by_weight(weight: ElementRange, product: ElementRange) -> ElementRange {
    match weight {
        _ if weight.is_exact() && weight.centre == 0.0 => ElementRange::exactly(0.0),
        _ if weight.low <= 0.0 && weight.high >= 0.0 && !product.is_finite() => ANYTHING,
        _ => product,
    }
}
