//! Nodes that enlarge or shrink data along its dims.

use sterna::{Direction, TensorId};

use super::arithmetic::floats;
use super::call::Call;
use crate::compose::resolved_axes;
use crate::dims::UNKNOWN_DIM;
use crate::error::Fault;
use crate::steps::{Blend, Coordinates, Nearest, Resized};
use crate::weights::floats as float_numbers;

/// By factors or to lengths, as an op of opset 11 or later.
pub(super) fn resize(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let coordinates = [
        ("half_pixel", Coordinates::HalfPixel),
        ("pytorch_half_pixel", Coordinates::HalfPixelOrFirst),
        ("half_pixel_symmetric", Coordinates::HalfPixelSymmetric),
        ("align_corners", aligned_corners(node)),
        ("asymmetric", Coordinates::Asymmetric),
    ];
    let nearest = [
        ("round_prefer_floor", Nearest::PreferFloor),
        ("round_prefer_ceil", Nearest::PreferCeil),
        ("floor", Nearest::Floor),
        ("ceil", Nearest::Ceil),
    ];
    let coordinates = node.word("coordinate_transformation_mode", &coordinates, Coordinates::HalfPixel)?;
    let nearest = node.word("nearest_mode", &nearest, Nearest::PreferFloor)?;
    let rank = node.rank(0)?;
    let axes = match node.ints("axes") {
        Some(axes) if !axes.is_empty() => resolved_axes(axes, rank),
        _ => Some((0..rank).collect()),
    };
    let axes = axes.ok_or_else(|| Fault::of_attribute("axes", "axes of dims, each once"))?;
    // One that is empty is not given.
    let is_given = |input: usize| {
        let dims = node.optional(input).and_then(|input| node.steps.builder.known_dims(input));
        node.optional(input).is_some() && dims != Some(&[0])
    };
    if is_given(3) {
        let lengths = node.numbers(3)?;
        if lengths.len() != axes.len() || lengths.iter().any(|&length| length < 0) {
            return Err(node.bad_value(3, "a length for each axis"));
        }
        let (lengths, factor) = of_one_ratio(node, &axes, lengths)?;
        let factors = vec![factor; axes.len()];
        return resized(node, &axes, &factors, Some(&lengths), coordinates, nearest);
    }
    if !is_given(2) {
        return Err(Fault::PortCount {
            direction: Direction::Input,
            given: node.inputs.iter().flatten().count(),
            needed: "`scales` or `sizes`".into(),
        });
    }
    let factors = factors(node, 2, axes.len())?;
    resized(node, &axes, &factors, None, coordinates, nearest)
}

/// The reading of `align_corners`. ONNX's own cases put the last element where a factor does, as long as the
/// length of the result is no whole number yet. torch, which writes such factors, means the whole length, and
/// that is what peers compute for any model.
fn aligned_corners(node: &Call<'_, '_>) -> Coordinates {
    match node.producer {
        b"pytorch" => Coordinates::AlignCorners,
        _ => Coordinates::AlignScaledCorners,
    }
}

/// Lengths, and the one factor of all axes if the ratio of the dims is kept: the smallest or the largest of
/// those that the lengths ask for.
fn of_one_ratio(
    node: &Call<'_, '_>,
    axes: &[usize],
    lengths: Vec<i64>,
) -> Result<(Vec<i64>, Option<f32>), Fault> {
    let policies = [("stretch", None), ("not_larger", Some(false)), ("not_smaller", Some(true))];
    let Some(is_largest) = node.word("keep_aspect_ratio_policy", &policies, None)? else {
        return Ok((lengths, None));
    };
    let dims = node.known_dims(0, "known dims, whose ratio is kept")?;
    let factors = axes.iter().zip(&lengths).map(|(&axis, &length)| length as f32 / dims[axis] as f32);
    let factor = factors.reduce(if is_largest { f32::max } else { f32::min }).unwrap_or(1.0);
    if !(factor > 0.0 && factor.is_finite()) {
        return Err(node.bad_value(3, "a length from 1 on for each axis, of dims with elements"));
    }
    // A float converts within the bounds.
    let length = |&axis: &usize| (f64::from(factor) * dims[axis] as f64 + 0.5).floor() as i64;
    Ok((axes.iter().map(length).collect(), Some(factor)))
}

/// By factors, as an op of opset 10 or earlier.
pub(super) fn resize_by_input(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let axes: Vec<usize> = (0..node.rank(0)?).collect();
    let factors = factors(node, 1, axes.len())?;
    resized(node, &axes, &factors, None, Coordinates::Asymmetric, Nearest::Simple)
}

/// By factors that are an attribute.
pub(super) fn resize_by_attribute(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let axes: Vec<usize> = (0..node.rank(0)?).collect();
    let factors = node.attribute("scales").map(|scales| scales.floats.clone()).unwrap_or_default();
    let needed = "a number above 0 for each dim";
    let factors = checked(&factors, axes.len()).ok_or_else(|| Fault::of_attribute("scales", needed))?;
    resized(node, &axes, &factors, None, Coordinates::Asymmetric, Nearest::Simple)
}

fn factors(node: &Call<'_, '_>, input: usize, count: usize) -> Result<Vec<Option<f32>>, Fault> {
    let value = node.value(input, "constant factors")?;
    let factors: Vec<f32> = float_numbers(value).unwrap_or_default().iter().map(|&x| x as f32).collect();
    checked(&factors, count).ok_or_else(|| node.bad_value(input, "a number above 0 for each axis"))
}

fn checked(factors: &[f32], count: usize) -> Option<Vec<Option<f32>>> {
    let fits = factors.len() == count && factors.iter().all(|&factor| factor > 0.0 && factor.is_finite());
    fits.then(|| factors.iter().map(|&factor| Some(factor)).collect())
}

fn resized(
    node: &mut Call<'_, '_>,
    axes: &[usize],
    factors: &[Option<f32>],
    lengths: Option<&[i64]>,
    coordinates: Coordinates,
    nearest: Nearest,
) -> Result<TensorId, Fault> {
    let x = node.input(0);
    let dims = node.steps.builder.dims(x).map(<[i64]>::to_vec).unwrap_or_default();
    let nearest = Blend::Nearest(nearest);
    let cubic = Blend::Cubic(f64::from(node.float("cubic_coeff_a", -0.75)));
    let blend =
        node.word("mode", &[("nearest", nearest), ("linear", Blend::Linear), ("cubic", cubic)], nearest)?;
    if blend != nearest {
        floats(node)?;
    }
    let mut by = Resized {
        lengths: dims.clone(),
        factors: vec![1.0; dims.len()],
        coordinates,
        blend,
        antialias: node.flag("antialias", false),
        exclude_outside: node.flag("exclude_outside", false),
    };
    for (at, &axis) in axes.iter().enumerate() {
        let dim = dims[axis];
        (by.lengths[axis], by.factors[axis]) = match (lengths, factors[at]) {
            (Some(lengths), _) if dim == UNKNOWN_DIM => {
                let needed =
                    format!("a known dim {axis}, which becomes {}; give the model a shape", lengths[at]);
                return Err(Fault::UnknownShape { port: node.port(0), needed });
            }
            (Some(lengths), factor) => (lengths[at], factor.unwrap_or(lengths[at] as f32 / dim as f32)),
            (None, Some(factor)) if dim == UNKNOWN_DIM => (UNKNOWN_DIM, factor),
            // A float converts within the bounds.
            (None, Some(factor)) => ((dim as f64 * f64::from(factor)).floor() as i64, factor),
            (None, None) => (dim, 1.0),
        };
    }
    let result = node.steps.resized(x, &by)?;
    result.ok_or_else(|| node.unfit(0, "known dims of at least one element, and lengths from 1 to 2^24"))
}
