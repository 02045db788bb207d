//! Data enlarged or shrunk along its dims.

use sterna::{Attr, AttrValue, OpKind, TensorId};

use super::Steps;
use crate::compose::stored;
use crate::constant::Constant;
use crate::dims::UNKNOWN_DIM;
use crate::error::Fault;

use OpKind as K;

/// The longest dim of a result whose places are worked out.
const LONGEST: i64 = 1 << 24;

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

/// How data is resized.
#[derive(Debug, Clone)]
pub(crate) struct Resized {
    /// The length of each dim of the result; unknown for a dim of unknown length.
    pub(crate) lengths: Vec<i64>,
    /// The factor of each dim, by which places are found.
    pub(crate) factors: Vec<f32>,
    pub(crate) coordinates: Coordinates,
    /// The element that stands for a place; `None` for the mean of the two beside it, by their distance.
    pub(crate) nearest: Option<Nearest>,
}

impl Resized {
    /// The elements along a dim that stand for those of the result.
    fn places(&self, from: i64, axis: usize, nearest: Nearest) -> Vec<i64> {
        let (to, factor) = (self.lengths[axis], self.factors[axis]);
        let middle = |place: f32| (place + 0.5) / factor - 0.5;
        // Factors that give no whole length still place the last element.
        let reach = if self.is_quotient(from, axis) { to as f32 } else { factor * from as f32 };
        let place = |index: i64| {
            let index = index as f32;
            match self.coordinates {
                Coordinates::HalfPixelOrFirst if to == 1 => 0.0,
                Coordinates::HalfPixel | Coordinates::HalfPixelOrFirst => middle(index),
                Coordinates::HalfPixelSymmetric => {
                    let share = to as f32 / (factor * from as f32);
                    from as f32 / 2.0 * (1.0 - share) + middle(index)
                }
                Coordinates::AlignCorners if to == 1 => 0.0,
                Coordinates::AlignCorners => index * (from - 1) as f32 / (reach - 1.0),
                Coordinates::Asymmetric => index / factor,
            }
        };
        let element = |place: f32| match nearest {
            Nearest::PreferFloor => (place - 0.5).ceil(),
            Nearest::PreferCeil => (place + 0.5).floor(),
            Nearest::Floor => place.floor(),
            Nearest::Simple if factor >= 1.0 => place.floor(),
            Nearest::Ceil | Nearest::Simple => place.ceil(),
        };
        // A float converts within the bounds.
        (0..to).map(|index| (element(place(index)) as i64).clamp(0, from - 1)).collect()
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
            Coordinates::AlignCorners => is_quotient.then_some("align_corners"),
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
        let mode = match by.nearest {
            Some(nearest) => {
                let fits = |&axis: &usize| by.is_op_of_nearest(dims[axis], axis, nearest);
                changed.iter().all(fits).then_some("half_pixel")
            }
            None => {
                let modes: Vec<_> = changed.iter().map(|&axis| by.mode_of_linear(dims[axis], axis)).collect();
                modes[0].filter(|first| modes.iter().all(|mode| *mode == Some(*first)))
            }
        };
        let is_float = crate::compose::is_float(self.builder.data_type(x));
        if let Some(mode) = mode.filter(|_| is_spatial && is_float) {
            return self.interpolated(x, by, mode).map(Some);
        }
        let Some(nearest) = by.nearest else { return Ok(None) };
        let mut x = x;
        for axis in changed {
            if dims[axis] == UNKNOWN_DIM {
                return Ok(None);
            }
            let places = by.places(dims[axis], axis, nearest);
            let places = Constant::from_slice(&[places.len() as i64], &places)?;
            let places = stored(self.builder, places)?;
            let declared = self.declared.take();
            x = self.gathered(x, axis, places, 0)?;
            self.declared = declared;
        }
        Ok(Some(x))
    }

    fn interpolated(&mut self, x: TensorId, by: &Resized, mode: &str) -> Result<TensorId, Fault> {
        let (lengths, factors) = (by.lengths[2..].to_vec(), by.factors[2..].to_vec());
        let size: (Attr, AttrValue) = match lengths.contains(&UNKNOWN_DIM) {
            true => (Attr::Scales, factors.into()),
            false => (Attr::Sizes, lengths.into()),
        };
        let word = if by.nearest.is_some() { "nearest" } else { "linear" };
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
