//! Numbers and tensors that are known up to an interval, and what a rounding makes of them.

use crate::error::Result;
use crate::reference::number::{HALF_A_UNIT, dense_value, floats, numbers_of, store_floats};
use crate::reference::odometer::Odometer;
use crate::reference::value::{Value, count};
use crate::types::dtype::DataType;

use DataType as D;

/// Whether a type is computed in f64 here, without its roundings.
pub(super) fn is_wide(data_type: DataType) -> bool {
    matches!(data_type, D::F32 | D::Bf16 | D::F16)
}

/// The type in which a tensor is held here.
pub(super) fn held_as(data_type: DataType) -> DataType {
    if is_wide(data_type) { D::F64 } else { data_type }
}

/// A value in the type in which it is held here.
pub(super) fn widened(value: &Value) -> Result<Value> {
    match is_wide(value.data_type()) {
        true => dense_value(&numbers_of(value, &Odometer::dense(value.dims()))?, D::F64, value.dims()),
        false => Ok(value.clone()),
    }
}

/// A tensor whose elements are known up to an interval.
///
/// An element is NaN for sure if its centre is NaN. If its centre is none but its ends are NaN, it may be
/// anything; its centre is then 1, from which no function makes a NaN.
pub(super) struct EnclosedTensor {
    pub(super) centre: Value,
    /// The lower and the upper ends; none if they are the centre.
    pub(super) ends: Option<[Value; 2]>,
}

impl EnclosedTensor {
    pub(super) fn exact(centre: Value) -> Self {
        Self { centre, ends: None }
    }

    pub(super) fn centre(&self) -> Vec<f64> {
        numbers(&self.centre)
    }

    pub(super) fn low(&self) -> Vec<f64> {
        numbers(self.ends.as_ref().map_or(&self.centre, |ends| &ends[0]))
    }

    pub(super) fn high(&self) -> Vec<f64> {
        numbers(self.ends.as_ref().map_or(&self.centre, |ends| &ends[1]))
    }

    /// The interval of numbers that are held as a type.
    pub(super) fn of(elements: Vec<ElementRange>, data_type: DataType, dims: &[i64]) -> Result<Self> {
        let make = |of: fn(&ElementRange) -> f64| {
            let numbers: Vec<f64> = elements.iter().map(of).collect();
            Value::compute(data_type, dims, |range, bytes| store_floats(&numbers[range], data_type, bytes))
        };
        let centre = make(|element| element.centre)?;
        let is_exact = elements.iter().all(ElementRange::is_exact);
        let ends =
            if is_exact { None } else { Some([make(|element| element.low)?, make(|element| element.high)?]) };
        Ok(Self { centre, ends })
    }

    /// The elements.
    pub(super) fn elements(&self) -> Vec<ElementRange> {
        let ends = self.low().into_iter().zip(self.high());
        self.centre()
            .into_iter()
            .zip(ends)
            .map(|(centre, (low, high))| ElementRange { centre, low, high })
            .collect()
    }
}

pub(super) fn numbers(value: &Value) -> Vec<f64> {
    let mut numbers = vec![0.0; count(value.dims())];
    floats(value, &Odometer::dense(value.dims()), 0..numbers.len(), &mut numbers);
    numbers
}

/// A number known up to an interval.
#[derive(Debug, Clone, Copy)]
pub(super) struct ElementRange {
    pub(super) centre: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// What may be anything.
pub(super) const ANYTHING: ElementRange = ElementRange { centre: 1.0, low: f64::NAN, high: f64::NAN };

impl ElementRange {
    pub(super) fn exactly(number: f64) -> Self {
        Self { centre: number, low: number, high: number }
    }

    /// Whether the interval is one number, which may be NaN.
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
        let Rounding { half_unit, smallest, largest, .. } = Rounding::to(to);
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

/// What a rounding to a type does.
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
            D::F32 => (HALF_A_UNIT, 2f64.powi(-126), f32::MAX.into()),
            // Through f32.
            D::Bf16 => (2f64.powi(-8) + HALF_A_UNIT, 2f64.powi(-126), half::bf16::MAX.to_f64()),
            D::F16 => (2f64.powi(-11) + HALF_A_UNIT, 2f64.powi(-24), half::f16::MAX.to_f64()),
            _ => (0.0, 0.0, f64::INFINITY),
        };
        Self { half_unit, smallest, largest }
    }
}

/// Whether a number is one of a type, or NaN.
fn represents(data_type: DataType, number: f64) -> bool {
    let nearest = match data_type {
        D::F32 => f64::from(number as f32),
        D::Bf16 => half::bf16::from_f64(number).to_f64(),
        D::F16 => half::f16::from_f64(number).to_f64(),
        _ => number,
    };
    nearest == number || number.is_nan()
}

/// A product with a weight: 0 if the weight is 0, even if the other factor is not finite.
pub(super) fn by_weight(weight: ElementRange, product: ElementRange) -> ElementRange {
    match weight {
        _ if weight.is_exact() && weight.centre == 0.0 => ElementRange::exactly(0.0),
        _ if weight.low <= 0.0 && weight.high >= 0.0 && !product.is_finite() => ANYTHING,
        _ => product,
    }
}
