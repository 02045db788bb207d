//! Nodes that enlarge or shrink data along its dims.

use sterna::{Direction, TensorId};

use super::arithmetic::floats;
use super::call::Call;
use crate::compose::resolved_axes;
use crate::dims::UNKNOWN_DIM;
use crate::error::Fault;
use crate::steps::{Coordinates, Nearest, Resized};
use crate::weights::floats as float_numbers;

/// By factors or to lengths, as an op of opset 11 or later.
pub(super) fn resize(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    for name in ["antialias", "exclude_outside"] {
        if node.flag(name, false) {
            return Err(Fault::of_attribute(name, "0"));
        }
    }
    node.word("keep_aspect_ratio_policy", &[("stretch", ())], ())?;
    let coordinates = [
        ("half_pixel", Coordinates::HalfPixel),
        ("pytorch_half_pixel", Coordinates::HalfPixelOrFirst),
        ("half_pixel_symmetric", Coordinates::HalfPixelSymmetric),
        ("align_corners", Coordinates::AlignCorners),
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
        let factors = vec![None; axes.len()];
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
    let is_nearest = node.word("mode", &[("nearest", true), ("linear", false)], true)?;
    if !is_nearest {
        floats(node)?;
    }
    let mut by = Resized {
        lengths: dims.clone(),
        factors: vec![1.0; dims.len()],
        coordinates,
        nearest: is_nearest.then_some(nearest),
    };
    for (at, &axis) in axes.iter().enumerate() {
        let dim = dims[axis];
        (by.lengths[axis], by.factors[axis]) = match (lengths, factors[at]) {
            (Some(lengths), _) if dim == UNKNOWN_DIM => {
                let needed =
                    format!("a known dim {axis}, which becomes {}; give the model a shape", lengths[at]);
                return Err(Fault::UnknownShape { port: node.port(0), needed });
            }
            (Some(lengths), _) => (lengths[at], lengths[at] as f32 / dim as f32),
            (None, Some(factor)) if dim == UNKNOWN_DIM => (UNKNOWN_DIM, factor),
            // A float converts within the bounds.
            (None, Some(factor)) => ((dim as f64 * f64::from(factor)).floor() as i64, factor),
            (None, None) => (dim, 1.0),
        };
    }
    let result = node.steps.resized(x, &by)?;
    result.ok_or_else(|| match is_nearest {
        true => node.unfit(0, "known dims of at least one element, and lengths from 1 to 2^24"),
        false => Fault::of_attribute("coordinate_transformation_mode", LINEAR),
    })
}

/// The places at which means are the same here.
const LINEAR: &str =
    "half_pixel with factors that give whole lengths, or align_corners, of dims behind the channels";
