//! The elements of a source from which `Interpolate` makes those of its result.

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use super::axis::unfit;
use super::op::{AttrValue, Op};
use crate::error::Result;
use crate::types::kind::Attr;
use crate::types::shape::Dims;

/// The dims between or behind those of the batch and of the channels.
pub(crate) fn spatial_dims(op: &Op, dims: &[i64]) -> Result<Range<usize>> {
    let rank = dims.len();
    match op.str_attr(Attr::DataFormat) {
        _ if rank < 3 => Err(unfit(op, 0, dims, "it has dims of a batch, of channels and of space")),
        Some("NCX") => Ok(2..rank),
        _ => Ok(1..rank - 1),
    }
}

/// The shape of the result of `Interpolate` for a source with some dims.
pub(super) fn result_shape(op: &Op, src: &[i64]) -> Result<Dims> {
    let spatial = spatial_dims(op, src)?;
    let sizes: SmallVec<[i64; 3]> = match (op.get_attr(Attr::Sizes), op.get_attr(Attr::Scales)) {
        (Some(AttrValue::S64s(sizes)), _) => sizes.iter().copied().collect(),
        // As oneDNN multiplies.
        (_, Some(AttrValue::F32s(scales))) => {
            let scaled = |(&dim, &scale): (&i64, &f32)| (dim as f32 * scale) as i64;
            let count = if scales.len() == spatial.len() { spatial.len() } else { 0 };
            src[spatial.clone()].iter().zip(scales).take(count).map(scaled).collect()
        }
        _ => SmallVec::new(),
    };
    let from = &src[spatial.clone()];
    let fits = |(&size, &dim): (&i64, &i64)| size >= 0 && (dim > 0 || size == 0);
    if sizes.len() != spatial.len() {
        return Err(unfit(op, 0, src, "the attribute `sizes` or `scales` has a number for each spatial dim"));
    }
    if !sizes.iter().zip(from).all(fits) {
        return Err(unfit(op, 0, src, "no dim of the result is negative, and none is made of nothing"));
    }
    let mut result: Dims = src.into();
    result[spatial].copy_from_slice(&sizes);
    Ok(result)
}

/// The shape of the source of `Interpolate`, beside the gradient of its result.
pub(super) fn source_shape(op: &Op, inputs: &[&[i64]]) -> Result<Dims> {
    match *inputs[1] == result_shape(op, inputs[0])?[..] {
        true => Ok(inputs[0].into()),
        false => Err(unfit(op, 1, inputs[1], "it has the shape of the result of `Interpolate`")),
    }
}

/// An element of the source along one dim, with its share in an element of the result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Tap {
    pub(crate) place: i64,
    pub(crate) share: f64,
}

/// How the places along the spatial dims of a result are mapped to places of the source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Interpolation {
    is_nearest: bool,
    aligns_corners: bool,
}

impl Interpolation {
    pub(crate) fn of(op: &Op) -> Self {
        Self {
            is_nearest: op.str_attr(Attr::Mode) == Some("nearest"),
            aligns_corners: op.str_attr(Attr::CoordinateTransformationMode) == Some("align_corners"),
        }
    }

    /// The elements along a dim of the source that make a place of the result, where the dim has a number of
    /// elements in both. An element whose share is 0 is none of them.
    pub(crate) fn taps(self, (from, to): (i64, i64), place: i64) -> SmallVec<[Tap; 2]> {
        let (from, to, place) = (i128::from(from), i128::from(to), i128::from(place));
        // The place in the source is that number of steps, which are some for an element.
        let (at, steps) = match self.aligns_corners {
            true if to == 1 => (0, 1),
            true => (place * (from - 1), to - 1),
            false => ((2 * place + 1) * from - to, 2 * to),
        };
        let tap = |place: i128, share: f64| Tap { place: place as i64, share };
        if self.is_nearest {
            let nearest = (2 * at + steps).div_euclid(2 * steps);
            return smallvec![tap(nearest.clamp(0, from - 1), 1.0)];
        }
        let at = at.clamp(0, (from - 1) * steps);
        let (low, beyond) = (at / steps, at % steps);
        let share = |part: i128| part as f64 / steps as f64;
        match beyond {
            0 => smallvec![tap(low, 1.0)],
            _ => smallvec![tap(low, share(steps - beyond)), tap(low + 1, share(beyond))],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_exact_fractions() {
        let taps = |is_nearest, aligns_corners, dims, place| {
            let taps = Interpolation { is_nearest, aligns_corners }.taps(dims, place);
            taps.iter().map(|tap| (tap.place, tap.share)).collect::<Vec<_>>()
        };
        let rows = [
            ("halved, nearest: the second of two", taps(true, false, (6, 3), 1), vec![(3, 1.0)]),
            ("doubled, nearest", taps(true, false, (3, 6), 3), vec![(1, 1.0)]),
            ("nearest of corners: a half is rounded up", taps(true, true, (2, 3), 1), vec![(1, 1.0)]),
            ("doubled", taps(false, false, (3, 6), 1), vec![(0, 0.75), (1, 0.25)]),
            ("the first place is not beyond the edge", taps(false, false, (3, 6), 0), vec![(0, 1.0)]),
            ("the last neither", taps(false, false, (3, 6), 5), vec![(2, 1.0)]),
            ("corners on corners", taps(false, true, (3, 5), 4), vec![(2, 1.0)]),
            ("between corners", taps(false, true, (3, 5), 1), vec![(0, 0.5), (1, 0.5)]),
            ("one of many, aligned", taps(false, true, (3, 1), 0), vec![(0, 1.0)]),
            ("one of many", taps(false, false, (4, 1), 0), vec![(1, 0.5), (2, 0.5)]),
            ("many of one", taps(false, false, (1, 4), 2), vec![(0, 1.0)]),
        ];
        let wrong: Vec<_> = rows.iter().filter(|(_, given, right)| given != right).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}
