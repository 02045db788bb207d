//! Data enlarged or shrunk along its dims.

use std::ops::{Add, Div, Mul, Sub};

use sterna::{Attr, AttrValue, DataType, OpKind, TensorId};

use super::Steps;
use crate::compose::stored;
use crate::constant::Constant;
use crate::dims::UNKNOWN_DIM;
use crate::error::Fault;

use DataType as D;
use OpKind as K;

/// The longest dim of a result whose places are worked out.
const LONGEST: i64 = 1 << 24;

/// The most elements along a dim that are added up for one of the result.
const LARGEST_SUM: i64 = 256;

/// The place in the data of an element of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coordinates {
    /// Elements are cells whose middles lie half a cell from the edges.
    HalfPixel,
    /// The same, but a result of one element lies at the first of the data.
    HalfPixelOrFirst,
    /// The same, with the middle of the result in the middle of the data.
    HalfPixelSymmetric,
    /// The first and the last elements of both lie at one place.
    AlignCorners,
    /// The same, but the last element lies where the factor puts it before the length becomes whole.
    AlignScaledCorners,
    /// The first elements of both lie at one place.
    Asymmetric,
}

/// The element that is nearest to a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nearest {
    PreferFloor,
    PreferCeil,
    Floor,
    Ceil,
    /// The one before where data is enlarged, else the one behind.
    Simple,
}

/// How the elements around a place make one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Blend {
    /// The nearest one.
    Nearest(Nearest),
    /// The mean of the two beside it, by their distance.
    Linear,
    /// The sum of the four around it by the cubic convolution of Keys, with its coefficient, such as −0.75.
    Cubic(f64),
}

/// How data is resized.
#[derive(Debug, Clone)]
pub(crate) struct Resized {
    /// The length of each dim of the result; unknown for a dim of unknown length.
    pub(crate) lengths: Vec<i64>,
    /// The factor of each dim, by which places are found.
    pub(crate) factors: Vec<f32>,
    pub(crate) coordinates: Coordinates,
    pub(crate) blend: Blend,
    /// Where data shrinks, the elements are those around a place in the result, not in the data.
    pub(crate) antialias: bool,
    /// Elements beyond the edge weigh nothing; else they are those of the edge.
    pub(crate) exclude_outside: bool,
}

/// One of the elements that are added up at each place along a dim.
struct Tap {
    places: Vec<i64>,
    weights: Vec<f32>,
}

impl Resized {
    /// The place along a dim of an element of the result. Nearest elements are found in f32, as peers do, so
    /// that a place in the middle of two stays there; weights are found in f64.
    fn place<F>(&self, from: i64, axis: usize, index: i64) -> F
    where
        F: Copy + From<f32> + Add<Output = F> + Sub<Output = F> + Mul<Output = F> + Div<Output = F>,
    {
        // f32 holds what is no longer than the longest dim.
        let number = |number: i64| F::from(number as f32);
        let (to, factor) = (self.lengths[axis], F::from(self.factors[axis]));
        let [half, one] = [0.5, 1.0].map(F::from);
        let middle = |place: F| (place + half) / factor - half;
        // Factors that give no whole length still place the last element.
        let reach = if self.is_quotient(from, axis) { number(to) } else { factor * number(from) };
        match self.coordinates {
            Coordinates::HalfPixelOrFirst | Coordinates::AlignCorners | Coordinates::AlignScaledCorners
                if to == 1 =>
            {
                number(0)
            }
            Coordinates::HalfPixel | Coordinates::HalfPixelOrFirst => middle(number(index)),
            Coordinates::HalfPixelSymmetric => {
                let share = number(to) / (factor * number(from));
                number(from) * half * (one - share) + middle(number(index))
            }
            Coordinates::AlignCorners => number(index) * number(from - 1) / number(to - 1),
            Coordinates::AlignScaledCorners => number(index) * number(from - 1) / (reach - one),
            Coordinates::Asymmetric => number(index) / factor,
        }
    }

    /// The elements along a dim that stand for those of the result.
    fn places(&self, from: i64, axis: usize, nearest: Nearest) -> Vec<i64> {
        let (to, factor) = (self.lengths[axis], self.factors[axis]);
        let element = |place: f32| match nearest {
            Nearest::PreferFloor => (place - 0.5).ceil(),
            Nearest::PreferCeil => (place + 0.5).floor(),
            Nearest::Floor => place.floor(),
            Nearest::Simple if factor >= 1.0 => place.floor(),
            Nearest::Ceil | Nearest::Simple => place.ceil(),
        };
        // A float converts within the bounds.
        let place = |index: i64| (element(self.place(from, axis, index)) as i64).clamp(0, from - 1);
        (0..to).map(place).collect()
    }

    /// The elements along a dim whose sum, by their weights, is each element of the result.
    fn taps(&self, from: i64, axis: usize) -> Result<Vec<Tap>, Fault> {
        let (to, factor) = (self.lengths[axis], f64::from(self.factors[axis]));
        let scale = if self.antialias { factor.min(1.0) } else { 1.0 };
        let reach = if matches!(self.blend, Blend::Cubic(_)) { 2.0 } else { 1.0 };
        // A float converts within the bounds.
        let first = ((-reach / scale).floor() as i64).saturating_add(1);
        if first <= -LARGEST_SUM / 2 {
            let needed = format!("0, or factors by which at most {LARGEST_SUM} elements become one");
            return Err(Fault::of_attribute("antialias", needed));
        }
        let mut taps: Vec<Tap> =
            (first..=1 - first).map(|_| Tap { places: Vec::new(), weights: Vec::new() }).collect();
        for index in 0..to {
            let place: f64 = self.place(from, axis, index);
            let (cell, ratio) = (place.floor() as i64, place - place.floor());
            let weight = |at: i64| {
                let is_outside = !(0..from).contains(&(cell + at));
                if self.exclude_outside && is_outside {
                    0.0
                } else {
                    self.weight((at as f64 - ratio) * scale)
                }
            };
            let weights: Vec<f64> = (first..=1 - first).map(weight).collect();
            let sum: f64 = weights.iter().sum();
            let sum = if sum == 0.0 { 1.0 } else { sum };
            for ((tap, at), weight) in taps.iter_mut().zip(first..).zip(weights) {
                tap.places.push((cell + at).clamp(0, from - 1));
                tap.weights.push((weight / sum) as f32);
            }
        }
        Ok(taps)
    }

    /// The weight of an element at a distance from the place.
    fn weight(&self, distance: f64) -> f64 {
        let x = distance.abs();
        match self.blend {
            Blend::Cubic(a) if x <= 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
            Blend::Cubic(a) if x < 2.0 => ((x - 5.0) * x + 8.0) * x * a - 4.0 * a,
            Blend::Cubic(_) => 0.0,
            Blend::Nearest(_) | Blend::Linear => (1.0 - x).max(0.0),
        }
    }

    /// True if the op of Sterna takes the same elements along a dim.
    fn is_op_of_nearest(&self, from: i64, axis: usize, nearest: Nearest) -> bool {
        let (to, factor) = (self.lengths[axis], self.factors[axis]);
        if from == UNKNOWN_DIM {
            let is_floor = matches!(nearest, Nearest::Floor | Nearest::Simple);
            let is_half = self.coordinates == Coordinates::HalfPixel && nearest != Nearest::Ceil && !is_floor;
            let is_asymmetric = self.coordinates == Coordinates::Asymmetric && is_floor;
            return factor == 1.0 || (factor > 1.0 && factor.fract() == 0.0 && (is_half || is_asymmetric));
        }
        let by_op = (0..to).map(|index| {
            let place = i128::from(2 * index + 1) * i128::from(from) / i128::from(2 * to);
            place as i64
        });
        by_op.eq(self.places(from, axis, nearest))
    }

    /// True if the factor of a dim is the quotient of its lengths, rounded to f32.
    fn is_quotient(&self, from: i64, axis: usize) -> bool {
        let (to, factor) = (self.lengths[axis], f64::from(self.factors[axis]));
        match from {
            UNKNOWN_DIM => factor.fract() == 0.0,
            _ => (from as f64 * factor - to as f64).abs() <= to as f64 * 1e-6,
        }
    }

    /// The mode of coordinates of the op of Sterna that takes the same means along a dim.
    fn mode_of_linear(&self, from: i64, axis: usize) -> Option<&'static str> {
        let (to, factor) = (self.lengths[axis], self.factors[axis]);
        let is_quotient = self.is_quotient(from, axis);
        match self.coordinates {
            Coordinates::AlignCorners => Some("align_corners"),
            Coordinates::AlignScaledCorners => is_quotient.then_some("align_corners"),
            _ if factor == 1.0 => Some("half_pixel"),
            Coordinates::HalfPixelOrFirst if to == 1 => None,
            Coordinates::HalfPixel | Coordinates::HalfPixelOrFirst | Coordinates::HalfPixelSymmetric => {
                is_quotient.then_some("half_pixel")
            }
            Coordinates::Asymmetric => None,
        }
    }
}

impl Steps<'_, '_> {
    /// Data {N, C, dims} resized. `None` if no op of Sterna takes the same elements or means.
    pub(crate) fn resized(&mut self, x: TensorId, by: &Resized) -> Result<Option<TensorId>, Fault> {
        let Some(dims) = self.builder.dims(x).map(<[i64]>::to_vec) else { return Ok(None) };
        let changes = |axis: &usize| by.factors[*axis] != 1.0 || by.lengths[*axis] != dims[*axis];
        let changed: Vec<usize> = (0..dims.len()).filter(changes).collect();
        if changed.is_empty() {
            return Ok(Some(x));
        }
        let is_unfit = |&axis: &usize| dims[axis] == 0 || !(1..=LONGEST).contains(&by.lengths[axis].max(1));
        if changed.iter().any(is_unfit) || changed.iter().any(|&axis| by.lengths[axis] == 0) {
            return Ok(None);
        }
        let is_spatial = dims.len() > 2 && changed.iter().all(|&axis| axis >= 2);
        let mode = match by.blend {
            Blend::Nearest(nearest) => {
                let fits = |&axis: &usize| by.is_op_of_nearest(dims[axis], axis, nearest);
                changed.iter().all(fits).then_some("half_pixel")
            }
            Blend::Linear if !by.antialias && !by.exclude_outside => {
                let modes: Vec<_> = changed.iter().map(|&axis| by.mode_of_linear(dims[axis], axis)).collect();
                modes[0].filter(|first| modes.iter().all(|mode| *mode == Some(*first)))
            }
            Blend::Linear | Blend::Cubic(_) => None,
        };
        let is_float = crate::compose::is_float(self.builder.data_type(x));
        if let Some(mode) = mode.filter(|_| is_spatial && is_float) {
            return self.interpolated(x, by, mode).map(Some);
        }
        if changed.iter().any(|&axis| dims[axis] == UNKNOWN_DIM) {
            return Ok(None);
        }
        let declared = self.declared.take();
        let result = self.by_lookups(x, by, &dims, &changed)?;
        self.declared = declared;
        Ok(Some(result))
    }

    /// Data resized along some axes one after the other, by lookups, which are added up in f32.
    fn by_lookups(
        &mut self,
        mut x: TensorId,
        by: &Resized,
        dims: &[i64],
        axes: &[usize],
    ) -> Result<TensorId, Fault> {
        if let Blend::Nearest(nearest) = by.blend {
            for &axis in axes {
                x = self.at_places(x, axis, &by.places(dims[axis], axis, nearest))?;
            }
            return Ok(x);
        }
        let data_type = self.builder.data_type(x);
        x = self.cast(x, D::F32)?;
        for &axis in axes {
            let mut sum = None;
            for tap in by.taps(dims[axis], axis)? {
                let beside: Vec<i64> =
                    std::iter::once(by.lengths[axis]).chain(vec![1; dims.len() - axis - 1]).collect();
                let weights = stored(self.builder, Constant::from_slice(&beside, &tap.weights)?)?;
                let elements = self.at_places(x, axis, &tap.places)?;
                let part = self.both(K::Multiply, elements, weights)?;
                sum = Some(self.added(sum, part)?);
            }
            x = sum.unwrap_or(x);
        }
        self.cast(x, data_type)
    }

    /// The slices at constant places along an axis.
    pub(super) fn at_places(&mut self, x: TensorId, axis: usize, places: &[i64]) -> Result<TensorId, Fault> {
        let places = Constant::from_slice(&[places.len() as i64], places)?;
        let places = stored(self.builder, places)?;
        self.gathered(x, axis, places, 0)
    }

    fn interpolated(&mut self, x: TensorId, by: &Resized, mode: &str) -> Result<TensorId, Fault> {
        let (lengths, factors) = (by.lengths[2..].to_vec(), by.factors[2..].to_vec());
        let size: (Attr, AttrValue) = match lengths.contains(&UNKNOWN_DIM) {
            true => (Attr::Scales, factors.into()),
            false => (Attr::Sizes, lengths.into()),
        };
        let word = if matches!(by.blend, Blend::Nearest(_)) { "nearest" } else { "linear" };
        let attrs: [(Attr, AttrValue); 4] = [
            size,
            (Attr::Mode, word.into()),
            (Attr::CoordinateTransformationMode, mode.into()),
            (Attr::DataFormat, "NCX".into()),
        ];
        let data_type = self.builder.data_type(x);
        self.builder.op(self.name, K::Interpolate, &attrs, &[x], data_type, Some(&by.lengths))
    }
}
