//! Products of numbers in 8 bits that ONNX Runtime puts in place of several nodes: the sums are exact, and
//! are scaled in f32.

use sterna::{DataType, OpKind, TensorId};

use crate::error::Fault;
use crate::onnx::ops::call::Call;
use crate::onnx::ops::places::check_whole;

use DataType as D;
use OpKind as K;

/// `MatMulIntegerToFloat`: `A · B`, less a zero point each, by both scales, and a bias.
pub(super) fn to_float(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    check_whole(node, 0, 4)?;
    check_whole(node, 1, 5)?;
    let (a, zero) = (node.input(0), node.optional(4));
    let scale = scale(node, 2, None)?;
    product(node, (a, scale), zero, [1, 3, 5, 6])
}

/// `QGemm` up to its last scale: `alpha · (A · B + C)` by both scales. C is in s32, as the sums are.
pub(super) fn of_quantized(node: &mut Call<'_, '_>, alpha: f32) -> Result<TensorId, Fault> {
    let zeros = [node.optional(2), node.optional(5)];
    let sums = node.steps.whole_product([node.input(0), node.input(3)], zeros)?;
    let mut sums = sums.ok_or_else(|| node.unfit(5, "one number, or one for each column"))?;
    let scales = [scale(node, 1, None)?, scale(node, 4, Some(3))?];
    if let Some(c) = node.optional(6) {
        if node.data_type(6) != D::S32 {
            return Err(node.bad_type(6, "s32"));
        }
        let whole = node.steps.cast(sums, D::S32)?;
        sums = node.steps.emit_declared(K::Add, &[], &[whole, c], D::S32)?;
    }
    let steps = &mut node.steps;
    let sums = steps.cast(sums, D::F32)?;
    let mut factor = steps.emit(K::Multiply, &[], &[scales[1], scales[0]], D::F32)?;
    if alpha != 1.0 {
        let alpha = steps.number(D::F32, alpha.into())?;
        factor = steps.both(K::Multiply, factor, alpha)?;
    }
    steps.emit_declared(K::Multiply, &[], &[sums, factor], D::F32)
}

/// `DynamicQuantizeMatMul`: the same of data that are quantised by their own extremes.
pub(super) fn of_floats(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    check_whole(node, 1, 3)?;
    if node.data_type(0) != D::F32 {
        return Err(node.bad_type(0, "f32"));
    }
    let rank = node.known_dims(0, "known dims, one of which says how many products are added up")?.len();
    let x = node.input(0);
    let axes: Vec<i64> = (0..rank as i64).collect();
    let [a, scale, zero] = node.steps.dynamically_quantized(x, &axes, false)?;
    product(node, (a, scale), Some(zero), [1, 2, 3, 4])
}

/// A scale in f32, which is one number; that of the weights at an input may be one for each column.
pub(super) fn scale(
    node: &mut Call<'_, '_>,
    input: usize,
    weights: Option<usize>,
) -> Result<TensorId, Fault> {
    if node.data_type(input) != D::F32 {
        return Err(node.bad_type(input, "f32"));
    }
    let given = node.input(input);
    let columns = match weights {
        None => None,
        Some(weights) => node.known_dims(weights, "known dims")?.last().copied(),
    };
    match *node.known_dims(input, "known dims, which are laid beside the data")? {
        [] => Ok(given),
        [1] => node.steps.in_shape(given, &[]),
        [count] if columns == Some(count) => Ok(given),
        _ => Err(node.unfit(input, "one number, or one for each column of the weights")),
    }
}

/// The product of numbers with a scale and a zero point by the weights, scale, zero point and bias at inputs.
pub(super) fn product(
    node: &mut Call<'_, '_>,
    (a, of_a): (TensorId, TensorId),
    zero: Option<TensorId>,
    [weights, scales, point, bias]: [usize; 4],
) -> Result<TensorId, Fault> {
    let (b, zeros) = (node.input(weights), [zero, node.optional(point)]);
    let sums = node.steps.whole_product([a, b], zeros)?;
    let needed = "one number, or one for each row or column";
    let sums = sums.ok_or_else(|| node.unfit(if zeros[1].is_some() { point } else { weights }, needed))?;
    let of_b = scale(node, scales, Some(weights))?;
    let steps = &mut node.steps;
    let sums = steps.cast(sums, D::F32)?;
    let factor = steps.emit(K::Multiply, &[], &[of_b, of_a], D::F32)?;
    let result = steps.emit_declared(K::Multiply, &[], &[sums, factor], D::F32)?;
    match node.optional(bias) {
        Some(bias) => node.steps.emit_declared(K::Add, &[], &[result, bias], D::F32),
        None => Ok(result),
    }
}
