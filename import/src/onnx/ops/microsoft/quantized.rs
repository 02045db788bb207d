//! Ops on numbers in 8 bits that ONNX Runtime puts in place of an op between `DequantizeLinear` and
//! `QuantizeLinear`: as those three, which partitions fuse.

use sterna::{DataType, OpKind, TensorId};

use super::integers::of_quantized;
use crate::compose;
use crate::error::Fault;
use crate::onnx::ops::call::Call;
use crate::onnx::ops::places::check_whole;
use crate::onnx::ops::quantization::{dequantized, quantized};
use crate::onnx::ops::{norms, rows, windows};
use crate::steps::Reduction;

use DataType as D;
use OpKind as K;

/// A sum or product of two tensors that broadcast.
pub(super) fn pair(node: &mut Call<'_, '_>, kind: OpKind) -> Result<TensorId, Fault> {
    let (a, b) = (dequantized(node, 0)?, dequantized(node, 3)?);
    let result = node.steps.emit_declared(kind, &[], &[a, b], D::F32)?;
    quantized(node, result, 6, 0)
}

/// A function of each element.
pub(super) fn unary(
    node: &mut Call<'_, '_>,
    function: fn(&mut Call<'_, '_>) -> Result<TensorId, Fault>,
) -> Result<TensorId, Fault> {
    let x = dequantized(node, 0)?;
    let result = function(&mut node.with_inputs(&[(0, Some(x))]))?;
    quantized(node, result, 3, 0)
}

/// SoftMax along an axis; by the rules of before opset 13 the dims from the axis on are one.
pub(super) fn softmax(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let function = if node.int("opset", 0) < 13 { rows::softmax_of_rows } else { rows::softmax };
    unary(node, function)
}

/// The mean along some axes.
pub(super) fn mean(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    unary(node, |node| rows::reduce(node, Reduction::One(K::ReduceMean)))
}

/// The mean of each window.
pub(super) fn mean_of_windows(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    unary(node, |node| channels_first(node, windows::mean))
}

/// The mean of all that stands behind the channels.
pub(super) fn mean_of_channels(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    unary(node, |node| channels_first(node, |node| norms::over_all(node, K::ReduceMean)))
}

/// A function of data whose channels are the second dim, of data whose channels are the last one if the
/// attribute `channels_last` says so.
fn channels_first(
    node: &mut Call<'_, '_>,
    function: fn(&mut Call<'_, '_>) -> Result<TensorId, Fault>,
) -> Result<TensorId, Fault> {
    if !node.flag("channels_last", false) {
        return function(node);
    }
    let rank = node.rank(0)? as i64;
    if rank < 3 {
        return Err(node.unfit(0, "three dims or more"));
    }
    let first: Vec<i64> = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
    let last: Vec<i64> = std::iter::once(0).chain(2..rank).chain([1]).collect();
    let x = node.steps.transposed(node.input(0), &first)?;
    let result = function(&mut node.with_inputs(&[(0, Some(x))]))?;
    node.steps.transposed(result, &last)
}

/// Elements of one of two tensors, by a truth value each.
pub(super) fn choice(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    if node.data_type(0) != D::Boolean {
        return Err(node.bad_type(0, "boolean"));
    }
    let (cond, then, other) = (node.input(0), dequantized(node, 1)?, dequantized(node, 4)?);
    let result = node.steps.select(cond, then, other)?;
    quantized(node, result, 7, 1)
}

/// Tensors one after the other, each with a scale and a zero point.
pub(super) fn concat(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    if node.inputs.len() % 3 != 2 {
        return Err(node.unfit(2, "data, a scale and a zero point of each tensor"));
    }
    let axis = node.axis(0, node.rank(2)?)?;
    let parts = (2..node.inputs.len()).step_by(3).map(|data| dequantized(node, data));
    let parts = parts.collect::<Result<Vec<_>, _>>()?;
    let result = node.steps.joined(parts, axis)?;
    quantized(node, result, 0, 2)
}

/// `alpha · (A · B + C)` by the scales of A and B, in 8 bits again if there is a scale for it. C is in s32.
pub(super) fn gemm(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    check_whole(node, 0, 2)?;
    check_whole(node, 3, 5)?;
    for (input, name) in [(0, "transA"), (3, "transB")] {
        if node.rank(input)? != 2 {
            return Err(node.unfit(input, "two dims"));
        }
        if node.flag(name, false) {
            let turned = node.steps.transposed(node.input(input), &[1, 0])?;
            node.inputs[input] = Some(turned);
        }
    }
    let alpha = node.float("alpha", 1.0);
    let result = of_quantized(node, alpha)?;
    match node.optional(7) {
        Some(_) => quantized(node, result, 7, 0),
        None if node.optional(8).is_some() => Err(node.unfit(8, "nothing without a scale of the result")),
        None => Ok(result),
    }
}

/// Rows of a table in blocks of 4 or 8 bits with a scale each, at the places that indices name: rows of
/// numbers, scales and zero points are looked up, and become floats behind that.
pub(super) fn gather(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let Table { bits, block, depth, blocks } = Table::of(node)?;
    let (data_type, places) = (node.data_type(2), node.input(1));
    let indexed = node.known_dims(1, "known dims")?;
    let whole = blocks.saturating_mul(block);
    let shape = |last: &[i64]| [&indexed[..], last].concat();
    let (of_blocks, in_blocks, laid_out) = (shape(&[blocks, 1]), shape(&[blocks, block]), shape(&[whole]));
    let data = wide(node, 0, bits, places, depth)?;
    let scales = node.steps.gathered(node.input(2), 0, places, 0)?;
    let points = match node.optional(3) {
        Some(_) => {
            node.one_type(0, 3)?;
            wide(node, 3, bits, places, blocks)?
        }
        // Bytes without a zero point stand for numbers around half of their range.
        None if node.data_type(0) == D::U8 => node.steps.number(D::S32, f64::from(1u32 << (bits - 1)))?,
        None => node.steps.number(D::S32, 0.0)?,
    };
    let steps = &mut node.steps;
    let mut laid = [steps.cast(scales, D::F32)?, points];
    for each in &mut laid {
        if steps.builder.known_dims(*each).is_some_and(|dims| dims.is_empty()) {
            continue;
        }
        let apart = steps.in_shape(*each, &of_blocks)?;
        let repeated = steps.enlarged(apart, &in_blocks)?;
        *each = steps.in_shape(repeated, &laid_out)?;
        if whole != depth {
            *each = steps.part(*each, indexed.len(), [0, depth])?;
        }
    }
    let [scales, points] = laid;
    let moved = steps.both(K::Subtract, data, points)?;
    let moved = steps.cast(moved, D::F32)?;
    let result = steps.both(K::Multiply, moved, scales)?;
    steps.cast(result, data_type)
}

/// The layout of a table whose rows are looked up.
struct Table {
    bits: i64,
    /// The numbers that share a scale.
    block: i64,
    /// The numbers of a row.
    depth: i64,
    blocks: i64,
}

impl Table {
    fn of(node: &Call<'_, '_>) -> Result<Self, Fault> {
        let dims = node.known_dims(0, "known dims, whose rows are looked up")?;
        let bits = match (node.data_type(0), node.int("bits", 4)) {
            (D::S4 | D::U4, 4) => 4,
            (D::U8, bits @ (4 | 8)) => bits,
            (D::U8, _) => return Err(Fault::of_attribute("bits", "4, 8")),
            _ => return Err(node.bad_type(0, "s4, u4, u8")),
        };
        if !compose::is_integer(node.data_type(1)) {
            return Err(node.bad_type(1, "a type of integers"));
        }
        let &[lines, width] = &dims[..] else { return Err(node.unfit(0, "two dims")) };
        for (name, axis, needed) in
            [("gather_axis", 0, "the first dim"), ("quantize_axis", 1, "the last dim")]
        {
            if compose::resolved_axes(&[node.int(name, axis as i64)], 2) != Some(vec![axis]) {
                return Err(Fault::of_attribute(name, needed));
            }
        }
        let block = node.int("block_size", 128);
        if !(1..=1 << 24).contains(&block) {
            return Err(Fault::of_attribute("block_size", "a number from 1 on"));
        }
        let in_byte = if node.data_type(0) == D::U8 { 8 / bits } else { 1 };
        let depth = width.checked_mul(in_byte).ok_or_else(|| node.unfit(0, "dims that are countable"))?;
        let blocks = depth / block + i64::from(depth % block != 0);
        if node.known_dims(2, "known dims, which are those of the blocks")? != [lines, blocks] {
            return Err(node.unfit(2, format!("a scale for each of {blocks} blocks of {lines} rows")));
        }
        let bytes = blocks / in_byte + i64::from(blocks % in_byte != 0);
        if node.optional(3).is_some() && node.known_dims(3, "known dims")? != [lines, bytes] {
            return Err(node.unfit(3, format!("zero points of {blocks} blocks of {lines} rows")));
        }
        Ok(Self { bits, block, depth, blocks })
    }
}

/// Rows of a table of numbers of few bits at an input, as s32, cut off behind a number of columns.
fn wide(
    node: &mut Call<'_, '_>,
    input: usize,
    bits: i64,
    places: TensorId,
    columns: i64,
) -> Result<TensorId, Fault> {
    let own = node.data_type(input);
    let mut table = node.input(input);
    if own != D::U8 {
        // A lookup takes whole bytes: two numbers stand in each, and an odd row would start within one.
        let dims = node.known_dims(input, "known dims")?;
        if dims[1] % 2 != 0 {
            return Err(node.unfit(input, "rows of an even number of elements"));
        }
        let value = node.value(input, "a constant, two numbers of which stand in a byte")?;
        let bytes = value.retyped(D::U8, &[dims[0], dims[1] / 2])?;
        table = compose::stored(node.steps.builder, bytes)?;
    }
    let steps = &mut node.steps;
    let rows = steps.gathered(table, 0, places, 0)?;
    let rows = steps.cast(rows, D::S32)?;
    if own == D::U8 && bits == 8 {
        return Ok(rows);
    }
    let base = steps.number(D::S32, 16.0)?;
    let upper = steps.both(K::Divide, rows, base)?;
    let covered = steps.both(K::Multiply, upper, base)?;
    let lower = steps.both(K::Subtract, rows, covered)?;
    let mut dims = steps.dims(rows)?;
    let axis = dims.len();
    dims.push(1);
    let halves = [steps.in_shape(lower, &dims)?, steps.in_shape(upper, &dims)?];
    let pairs = steps.joined(halves.to_vec(), axis)?;
    dims.pop();
    dims[axis - 1] *= 2;
    let mut numbers = steps.in_shape(pairs, &dims)?;
    if dims[axis - 1] != columns {
        numbers = steps.part(numbers, axis - 1, [0, columns])?;
    }
    if own != D::S4 {
        return Ok(numbers);
    }
    let (half, more) = (steps.number(D::S32, 8.0)?, steps.number(D::S32, 16.0)?);
    let is_upper = steps.predicate(K::GreaterEqual, numbers, half)?;
    let below = steps.both(K::Subtract, numbers, more)?;
    steps.select(is_upper, below, numbers)
}
