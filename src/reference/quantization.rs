//! Ops between numbers and the integers or small floats that stand for them.

use std::ops::Range;

use super::number::{floats, in_f32, is_integer, numbers_of, store_arithmetic, store_floats};
use super::odometer::Odometer;
use super::value::{Value, one};
use crate::error::Result;
use crate::graph::infer;
use crate::graph::op::{AttrValue, Op};
use crate::types::dtype::DataType;
use crate::types::kind::Attr;
use crate::types::shape::Dims;

/// `x / scale + zp`, both steps rounded to f32; into an integer rounded to nearest, ties to even, and kept
/// within its bounds, NaN as 0; into f8 rounded once more.
///
/// With `qtype` = `per_tensor` there is one scale, with `per_channel` one for each place along `axis`. Zero
/// points are as many as scales, or there are none, which is as if all were 0. What is too large for f8_e5m2
/// becomes ∞, for f8_e4m3 NaN. (The code of oneDNN multiplies by the reciprocal of the scale instead, and may
/// be one step off where a quotient is about a half.)
pub(super) fn quantize(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    quantized(op, &inputs[0], &Parameters::of_attributes(op, inputs)?, &shapes[0])
}

/// `(x − zp) · scale`, both steps rounded to f32.
///
/// Scales and zero points are those of Quantize; from f8 there are no zero points.
pub(super) fn dequantize(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    dequantized(op, &inputs[0], &Parameters::of_attributes(op, inputs)?, &shapes[0])
}

/// As Quantize, with scales and zero points that are tensors; a single zero point goes with any number of
/// scales.
pub(super) fn dynamic_quantize(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    quantized(op, &inputs[0], &Parameters::of_inputs(op, inputs)?, &shapes[0])
}

/// As Dequantize, with scales and zero points that are tensors; zero points are rounded to f32, and the
/// result to the type of the scales.
///
/// With `qtype` = `per_group`, `group_shape` is the number of neighbours along each dim that share a scale;
/// scales, and zero points if there are any, have the dims of `src` divided by it. Of s4 and u4, two elements
/// lie in a byte, the first in the low half.
pub(super) fn dynamic_dequantize(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    dequantized(op, &inputs[0], &Parameters::of_inputs(op, inputs)?, &shapes[0])
}

/// Scales and zero points, and where those of each element are.
struct Parameters {
    scales: Vec<f64>,
    zero_points: Option<Vec<f64>>,
    odometer: Odometer,
}

impl Parameters {
    fn of_attributes(op: &Op, inputs: &[Value]) -> Result<Self> {
        let scales = op.f32s_attr(Attr::Scales).iter().map(|&scale| scale.into()).collect();
        let zero_points = match op.get_attr(Attr::Zps) {
            Some(AttrValue::S64s(zps)) => Some(zps.iter().map(|&zp| in_f32(zp as f64)).collect()),
            _ => None,
        };
        Ok(Self { scales, zero_points, odometer: odometer(op, inputs)? })
    }

    fn of_inputs(op: &Op, inputs: &[Value]) -> Result<Self> {
        let numbers = |value: &Value| numbers_of(value, &Odometer::dense(value.dims()));
        let scales = numbers(&inputs[1])?;
        let zero_points = inputs.get(2).map(|zps| -> Result<Vec<f64>> {
            let mut zps: Vec<f64> = numbers(zps)?.into_iter().map(in_f32).collect();
            if zps.len() == 1 {
                zps.resize(scales.len(), zps[0]);
            }
            Ok(zps)
        });
        Ok(Self { scales, zero_points: zero_points.transpose()?, odometer: odometer(op, inputs)? })
    }

    /// The scales of a range of elements, and their zero points, if there are any.
    fn of(&self, range: &Range<usize>) -> (Vec<f64>, Option<Vec<f64>>) {
        let of_elements = |all: &Vec<f64>| {
            let mut own = vec![0.0; range.len()];
            self.odometer.read(range.clone(), &mut own, |at| all[at]);
            own
        };
        (of_elements(&self.scales), self.zero_points.as_ref().map(of_elements))
    }
}

/// The way over the parameters in the order of the elements: each dim is one of groups and one in a group.
fn odometer(op: &Op, inputs: &[Value]) -> Result<Odometer> {
    let dims: Vec<&[i64]> = inputs.iter().map(Value::dims).collect();
    let counts = infer::parameter_counts(op, &dims)?;
    let mut stride = 1;
    let mut loops = Vec::new();
    for (&dim, &count) in dims[0].iter().zip(&counts).rev() {
        loops.push(((dim / count.max(1)) as usize, 0));
        loops.push((count as usize, stride));
        stride *= count as usize;
    }
    loops.reverse();
    Ok(Odometer::new(loops))
}

fn quantized(op: &Op, src: &Value, parameters: &Parameters, dims: &[i64]) -> Result<Vec<Value>> {
    let to = op.outputs()[0].data_type();
    let dense = Odometer::dense(dims);
    one(Value::compute(to, dims, |range, bytes| {
        let (scales, zero_points) = parameters.of(&range);
        let mut numbers = vec![0.0; range.len()];
        floats(src, &dense, range, &mut numbers);
        numbers.iter_mut().zip(scales).for_each(|(x, scale)| *x = in_f32(*x / scale));
        if let Some(zero_points) = zero_points {
            numbers.iter_mut().zip(zero_points).for_each(|(x, zp)| *x = in_f32(*x + zp));
        }
        if is_integer(to) {
            numbers.iter_mut().for_each(|x| *x = x.round_ties_even());
        }
        store_floats(&numbers, to, bytes);
    }))
}

fn dequantized(op: &Op, src: &Value, parameters: &Parameters, dims: &[i64]) -> Result<Vec<Value>> {
    let to: DataType = op.outputs()[0].data_type();
    let dense = Odometer::dense(dims);
    one(Value::compute(to, dims, |range, bytes| {
        let (scales, zero_points) = parameters.of(&range);
        let mut numbers = vec![0.0; range.len()];
        floats(src, &dense, range, &mut numbers);
        if let Some(zero_points) = zero_points {
            numbers.iter_mut().zip(zero_points).for_each(|(x, zp)| *x = in_f32(*x - zp));
        }
        numbers.iter_mut().zip(scales).for_each(|(x, scale)| *x *= scale);
        store_arithmetic(&mut numbers, to, bytes);
    }))
}
