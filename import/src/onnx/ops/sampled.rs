//! Nodes that take data at points between its elements, and that put blocks on top of each other.

use sterna::TensorId;

use super::arithmetic::floats;
use super::call::Call;
use crate::compose::is_float;
use crate::error::Fault;
use crate::steps::{Between, Beyond, Sampling, WindowPadding, Windows};

/// Data at the points of a grid.
pub(super) fn grid_sample(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    floats(node)?;
    if !is_float(node.data_type(1)) {
        return Err(node.bad_type(1, "f32, bf16, f16"));
    }
    // The names of the version of opset 16, and of those since.
    let modes = [
        ("linear", Between::Linear),
        ("bilinear", Between::Linear),
        ("nearest", Between::Nearest),
        ("cubic", Between::Cubic),
        ("bicubic", Between::Cubic),
    ];
    let by = Sampling {
        between: node.word("mode", &modes, Between::Linear)?,
        beyond: node.word("padding_mode", &Beyond::NAMES, Beyond::Zero)?,
        align_corners: node.flag("align_corners", false),
    };
    let result = node.steps.sampled(node.input(0), node.input(1), by)?;
    result.ok_or_else(|| node.unfit(0, Sampling::NEEDED))
}

/// Blocks, which are columns, put where they lie in an image.
pub(super) fn col_to_im(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    floats(node)?;
    let (image, block) = (node.numbers(1)?, node.numbers(2)?);
    let count = image.len();
    let list = |name: &str, default: Vec<i64>| node.ints(name).map_or(default, <[i64]>::to_vec);
    let pads = list("pads", vec![0; 2 * count]);
    let (begin, end) = pads.split_at_checked(count).unwrap_or((&pads, &[]));
    let windows = Windows {
        strides: list("strides", vec![1; count]),
        dilations: list("dilations", vec![1; count]),
        begin: begin.to_vec(),
        end: end.to_vec(),
        auto_pad: WindowPadding::Given,
    };
    if let Some((attribute, needed)) = windows.misfit(count) {
        return Err(Fault::of_attribute(attribute, needed));
    }
    let result = node.steps.overlaid(node.input(0), &image, &block, &windows)?;
    result.ok_or_else(|| node.unfit(0, Windows::NEEDED_OF_BLOCKS))
}
