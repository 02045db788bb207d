//! Dims of what windows make that move along the data, or what is enlarged or shrunk along its dims.

use super::facts::Facts;
use crate::compose::resolved_axes;
use crate::dims::UNKNOWN_DIM;

/// The windows along one dim of the data.
struct Window {
    kernel: i64,
    stride: i64,
    dilation: i64,
    /// The elements that stand around the dim, before and behind it.
    pads: [i64; 2],
}

/// How an attribute `auto_pad` pads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AutoPad {
    /// As the attribute `pads` says.
    Given,
    /// Not at all.
    Nothing,
    /// So that the length depends on the stride alone.
    Same,
}

impl Window {
    /// From the start of a window to its end.
    fn span(&self) -> i128 {
        (i128::from(self.kernel) - 1) * i128::from(self.dilation) + 1
    }

    /// How many windows fit along a dim; open where that is not known. `rounds_up` counts one that only
    /// starts within.
    fn count(&self, length: i64, padding: AutoPad, rounds_up: bool) -> i64 {
        let is_known = length >= 0 && self.kernel > 0 && self.stride > 0 && self.dilation > 0;
        if !is_known {
            return UNKNOWN_DIM;
        }
        let (length, stride) = (i128::from(length), i128::from(self.stride));
        let [before, behind] = match padding {
            AutoPad::Same => return shown((length + stride - 1) / stride),
            AutoPad::Nothing => [0, 0],
            AutoPad::Given => self.pads.map(i128::from),
        };
        let free = length + before + behind - self.span();
        if free < 0 {
            return UNKNOWN_DIM;
        }
        let count = if rounds_up { (free + stride - 1) / stride } else { free / stride } + 1;
        // None starts in what stands behind.
        shown(count - i128::from(rounds_up && (count - 1) * stride >= length + before))
    }

    /// The length of which windows make so many; `extra` is what stays of it behind the last.
    fn source(&self, count: i64, padding: AutoPad, extra: i64) -> i64 {
        let is_known = count >= 0 && self.kernel > 0 && self.stride > 0 && self.dilation > 0;
        if !is_known {
            return UNKNOWN_DIM;
        }
        let (count, stride) = (i128::from(count), i128::from(self.stride));
        let pads = match padding {
            AutoPad::Same => return shown(count * stride),
            AutoPad::Nothing => 0,
            AutoPad::Given => i128::from(self.pads[0]) + i128::from(self.pads[1]),
        };
        shown(stride * (count - 1) + i128::from(extra) + self.span() - pads)
    }
}

/// A length, if it is one that a dim can have.
fn shown(length: i128) -> i64 {
    i64::try_from(length).ok().filter(|length| *length >= 0).unwrap_or(UNKNOWN_DIM)
}

/// The windows of a node along the dims of its data behind batch and channels; `kernel` are their lengths
/// where no attribute has them.
fn windows(facts: &Facts<'_, '_>, count: usize, kernel: Option<&[i64]>) -> Option<(Vec<Window>, AutoPad)> {
    let of_attribute = facts.ints("kernel_shape", count, UNKNOWN_DIM)?;
    let kernel = kernel.filter(|kernel| kernel.len() == count && of_attribute.contains(&UNKNOWN_DIM));
    let kernel = kernel.unwrap_or(&of_attribute);
    let (strides, dilations) = (facts.ints("strides", count, 1)?, facts.ints("dilations", count, 1)?);
    let pads = facts.ints("pads", 2 * count, 0)?;
    let padding = match facts.word("auto_pad") {
        b"" | b"NOTSET" => AutoPad::Given,
        b"VALID" => AutoPad::Nothing,
        b"SAME_UPPER" | b"SAME_LOWER" => AutoPad::Same,
        _ => return None,
    };
    let window = |axis: usize| Window {
        kernel: kernel[axis],
        stride: strides[axis],
        dilation: dilations[axis],
        pads: [pads[axis], pads[count + axis]],
    };
    Some(((0..count).map(window).collect(), padding))
}

/// Batch and channels, and open dims for the rest.
fn open(data: &[i64], channels: i64) -> Vec<i64> {
    let mut dims = vec![UNKNOWN_DIM; data.len()];
    dims.iter_mut().zip([data[0], channels]).for_each(|(dim, known)| *dim = known);
    dims
}

/// Dims of a convolution, whose filters are an input.
pub(super) fn filtered(facts: &Facts<'_, '_>, filters: usize) -> Option<Vec<i64>> {
    let data = facts.dims_of(0).filter(|data| data.len() >= 2)?;
    let filters = facts.dims_of(filters).filter(|filters| filters.len() == data.len());
    let channels = filters.as_ref().map_or(UNKNOWN_DIM, |filters| filters[0]);
    let mut dims = open(&data, channels);
    let kernel = filters.as_ref().map(|filters| &filters[2..]);
    if let Some((windows, padding)) = windows(facts, data.len() - 2, kernel) {
        let along = windows.iter().zip(&data[2..]);
        let counts = along.map(|(window, length)| window.count(*length, padding, false));
        dims[2..].iter_mut().zip(counts).for_each(|(dim, count)| *dim = count);
    }
    Some(dims)
}

/// Dims of a pooling.
pub(super) fn pooled(facts: &Facts<'_, '_>) -> Option<Vec<i64>> {
    let data = facts.dims_of(0).filter(|data| data.len() >= 2)?;
    let mut dims = open(&data, data[1]);
    let rounds_up = facts.int("ceil_mode", 0) != 0;
    if let Some((windows, padding)) = windows(facts, data.len() - 2, None) {
        let along = windows.iter().zip(&data[2..]);
        let counts = along.map(|(window, length)| window.count(*length, padding, rounds_up));
        dims[2..].iter_mut().zip(counts).for_each(|(dim, count)| *dim = count);
    }
    Some(dims)
}

/// Dims of a convolution that is transposed, whose filters are input 1.
pub(super) fn transposed(facts: &Facts<'_, '_>) -> Option<Vec<i64>> {
    let data = facts.dims_of(0).filter(|data| data.len() >= 2)?;
    let filters = facts.dims_of(1).filter(|filters| filters.len() == data.len());
    let each = filters.as_ref().map_or(UNKNOWN_DIM, |filters| filters[1]);
    let channels = if each < 0 { each } else { shown(i128::from(each) * i128::from(facts.int("group", 1))) };
    let mut dims = open(&data, channels);
    let count = data.len() - 2;
    let kernel = filters.as_ref().map(|filters| &filters[2..]);
    let given = facts.ints("output_shape", count, UNKNOWN_DIM).unwrap_or_default();
    let extra = facts.ints("output_padding", count, 0);
    if given.iter().all(|dim| *dim >= 0) {
        dims[2..].iter_mut().zip(given).for_each(|(dim, given)| *dim = given);
    } else if let (Some((windows, padding)), Some(extra)) = (windows(facts, count, kernel), extra) {
        for (axis, window) in windows.iter().enumerate() {
            dims[2 + axis] = window.source(data[2 + axis], padding, extra[axis]);
        }
    }
    Some(dims)
}

/// Dims of what a pooling took its places from.
pub(super) fn unpooled(facts: &Facts<'_, '_>) -> Option<Vec<i64>> {
    let data = facts.dims_of(0).filter(|data| data.len() >= 2)?;
    let mut dims = open(&data, data[1]);
    let given = facts.numbers(2).filter(|given| given.len() == data.len());
    if let Some(given) = given {
        dims = given.iter().map(|dim| shown((*dim).into())).collect();
    } else if let (Some((windows, padding)), None) = (windows(facts, data.len() - 2, None), facts.input(2)) {
        for (axis, window) in windows.iter().enumerate() {
            dims[2 + axis] = window.source(data[2 + axis], padding, 0);
        }
    }
    Some(dims)
}

/// Dims of data that is enlarged or shrunk, to lengths or by factors.
pub(super) fn resized(facts: &Facts<'_, '_>) -> Option<Vec<i64>> {
    let data = facts.dims_of(0)?;
    let mut dims = vec![UNKNOWN_DIM; data.len()];
    let all: Vec<i64> = (0..data.len() as i64).collect();
    let axes = match facts.attribute("axes") {
        Some(attribute) if !attribute.ints.is_empty() => attribute.ints.clone(),
        _ => all.clone(),
    };
    let axes = resolved_axes(&axes, data.len())?;
    // Before opset 11 the factors stood at input 1, and before opset 9 in an attribute.
    let of_input = if facts.inputs.len() > 2 { facts.floats(2) } else { facts.floats(1) };
    let of_attribute =
        facts.attribute("scales").map(|scales| scales.floats.iter().map(|&x| x.into()).collect());
    let factors: Option<Vec<f64>> = of_input.filter(|factors| !factors.is_empty()).or(of_attribute);
    let factors = factors.filter(|factors| factors.len() == axes.len());
    let lengths = facts.numbers(3).filter(|lengths| lengths.len() == axes.len());
    let stretches = matches!(facts.word("keep_aspect_ratio_policy"), b"" | b"stretch");
    (0..data.len()).filter(|axis| !axes.contains(axis)).for_each(|axis| dims[axis] = data[axis]);
    for (at, &axis) in axes.iter().enumerate() {
        dims[axis] = match (&lengths, &factors) {
            (Some(lengths), _) if stretches => shown(lengths[at].into()),
            (None, Some(factors)) if data[axis] >= 0 => {
                let length = (data[axis] as f64 * factors[at]).floor();
                // A float converts within the bounds.
                if length.is_finite() { shown(length as i128) } else { UNKNOWN_DIM }
            }
            _ => UNKNOWN_DIM,
        };
    }
    Some(dims)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_counted_as_onnx_does() {
        let window = |kernel, stride, dilation, pads| Window { kernel, stride, dilation, pads };
        let rows = [
            (window(3, 1, 1, [0, 0]), 8, AutoPad::Given, false, 6),
            (window(3, 2, 1, [1, 1]), 8, AutoPad::Given, false, 4),
            (window(3, 2, 1, [1, 1]), 8, AutoPad::Same, false, 4),
            (window(3, 1, 2, [0, 0]), 8, AutoPad::Given, false, 4),
            (window(3, 2, 1, [1, 1]), 8, AutoPad::Nothing, false, 3),
            (window(3, 2, 1, [0, 0]), 4, AutoPad::Given, true, 2),
            // The third window would start in the padding.
            (window(1, 2, 1, [0, 1]), 4, AutoPad::Given, true, 2),
            (window(9, 1, 1, [0, 0]), 8, AutoPad::Given, false, UNKNOWN_DIM),
            (window(3, 0, 1, [0, 0]), 8, AutoPad::Given, false, UNKNOWN_DIM),
            (window(3, 1, 1, [0, 0]), UNKNOWN_DIM, AutoPad::Given, false, UNKNOWN_DIM),
            (window(i64::MAX, 1, i64::MAX, [0, 0]), 8, AutoPad::Given, false, UNKNOWN_DIM),
        ];
        let wrong: Vec<_> = rows
            .iter()
            .enumerate()
            .filter(|(_, (window, length, padding, up, count))| {
                window.count(*length, *padding, *up) != *count
            })
            .map(|(at, _)| at)
            .collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        assert_eq!(window(3, 2, 1, [1, 1]).source(4, AutoPad::Given, 1), 8);
        assert_eq!(window(2, 2, 1, [0, 0]).source(4, AutoPad::Same, 0), 8);
        assert_eq!(window(i64::MAX, i64::MAX, 1, [0, 0]).source(i64::MAX, AutoPad::Given, 0), UNKNOWN_DIM);
    }
}
