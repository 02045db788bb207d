//! Layers that take data at points between its elements, and that put blocks on top of each other.

use sterna::TensorId;

use super::context::Context;
use super::rows::floats;
use super::shapes::numbers;
use crate::error::Fault;
use crate::steps::{Between, Beyond, Sampling, WindowPadding, Windows};

/// Data at the points of a grid.
pub(super) fn grid_sample(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    floats(layer, 0)?;
    floats(layer, 1)?;
    let modes = [("bilinear", Between::Linear), ("nearest", Between::Nearest), ("bicubic", Between::Cubic)];
    let by = Sampling {
        between: layer.word("mode", &modes, Between::Linear)?,
        beyond: layer.word("padding_mode", &Beyond::NAMES, Beyond::Zero)?,
        align_corners: layer.truth("align_corners", false)?,
    };
    let result = layer.steps.sampled(layer.inputs[0], layer.inputs[1], by)?;
    result.ok_or_else(|| layer.unfit(0, Sampling::NEEDED))
}

/// Blocks, which are columns, put where they lie in an image; without a batch, in one image.
pub(super) fn col_to_im(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    floats(layer, 0)?;
    let (image, block) = (numbers(layer, 1)?, numbers(layer, 2)?);
    let list = |name: &'static str, default: i64| match layer.layer.attr(name) {
        Some(_) => layer.ints(name),
        None => Ok(vec![default; image.len()]),
    };
    let windows = Windows {
        strides: list("strides", 1)?,
        dilations: list("dilations", 1)?,
        begin: list("pads_begin", 0)?,
        end: list("pads_end", 0)?,
        auto_pad: WindowPadding::Given,
    };
    if let Some((attribute, needed)) = windows.misfit(image.len()) {
        let attribute = if attribute == "pads" { "pads_begin" } else { attribute };
        return Err(Fault::of_attribute(attribute, needed));
    }
    let mut x = layer.inputs[0];
    let own = layer.steps.builder.known_dims(x).filter(|dims| dims.len() == 2).map(<[i64]>::to_vec);
    if let Some(own) = &own {
        x = layer.steps.in_shape(x, &[&[1], &**own].concat())?;
    }
    let result = layer.steps.overlaid(x, &image, &block, &windows)?;
    let result = result.ok_or_else(|| layer.unfit(0, Windows::NEEDED_OF_BLOCKS))?;
    if own.is_none() {
        return Ok(result);
    }
    let dims = layer.steps.dims(result)?;
    layer.steps.in_shape(result, &dims[1..])
}
