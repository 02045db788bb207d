//! Interpolation along the spatial dims, and its gradient.

use super::number::{HALF_A_UNIT, dense_value, numbers_of};
use super::odometer::{Odometer, dense};
use super::taps::{SourceTap, each_element};
use super::value::{Value, count, one, zeroed};
use crate::error::Result;
use crate::graph::interpolate::{Interpolation, spatial_dims};
use crate::graph::op::Op;
use crate::types::kind::OpKind;
use crate::types::shape::Dims;

/// Each spatial dim of `src` resized to a number of `sizes`, or by a factor of `scales`.
///
/// With `i` elements of the source and `o` of the result along a dim, the place `k` of the result lies at
/// `(k + ½) · i / o − ½` under `half_pixel`, and at `k · (i − 1) / (o − 1)`, or 0 if `o` is 1, under
/// `align_corners`; beyond an edge it lies on it. `nearest` takes the element there, of two the latter one;
/// `linear`, `bilinear` and `trilinear` all take the two that enclose the place along each dim, each with 1
/// less its distance as its share. The share is the exact fraction, rounded once, and an element without one
/// is not taken. The input `sizes` is not read. (oneDNN computes places and shares in f32, and runs no
/// `align_corners`.)
///
/// Partitions sum in f32, along the last dim last: a result is off by at most 4 half units in the last place
/// of the sum of the sizes of its terms for each spatial dim.
pub(super) fn interpolate(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let numbers = numbers_of(&inputs[0], &Odometer::dense(inputs[0].dims()))?;
    let mut results = zeroed(count(&shapes[0]))?;
    each_result(op, inputs[0].dims(), &shapes[0], &mut |to, taps| {
        // A sum of one term keeps the sign of a zero.
        results[to] = taps.iter().fold(-0.0, |sum, &(from, share)| sum + share * numbers[from]);
    })?;
    one(dense_value(&results, op.outputs()[0].data_type(), &shapes[0]))
}

/// The gradient of `Interpolate` for `src`, of which the shape alone is used: the sum of the elements of
/// `diff_dst` that were made of an element, each by its share.
///
/// Partitions sum in f32, along the last dim last and else in the order of `diff_dst`: a result is off by as
/// many half units in the last place of the sum of the sizes of its terms as it has terms, and 4 more for
/// each spatial dim.
pub(super) fn interpolate_backward(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let numbers = numbers_of(&inputs[1], &Odometer::dense(inputs[1].dims()))?;
    let mut results = zeroed(count(&shapes[0]))?;
    each_result(op, &shapes[0], inputs[1].dims(), &mut |from, taps| {
        taps.iter().for_each(|&(to, share)| results[to] += share * numbers[from]);
    })?;
    one(dense_value(&results, op.outputs()[0].data_type(), &shapes[0]))
}

/// Calls a function with the place of each element of a result of `Interpolate`, and with the elements of its
/// source that make it.
fn each_result(op: &Op, from: &[i64], to: &[i64], visit: &mut dyn FnMut(usize, &[SourceTap])) -> Result<()> {
    let interpolation = Interpolation::of(op);
    let spatial = spatial_dims(op, from)?;
    let strides = dense(from);
    let of_dim = |dim: usize, index: i64| match spatial.contains(&dim) {
        true => {
            let taps = interpolation.taps((from[dim], to[dim]), index);
            taps.into_iter().map(|tap| ((tap.place * strides[dim]) as usize, tap.share)).collect()
        }
        false => vec![((index * strides[dim]) as usize, 1.0)],
    };
    each_element(to, &of_dim, visit);
    Ok(())
}

/// How far each element of the result may be off, before it is rounded to its type.
pub(super) fn bounds(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<f64>> {
    let is_backward = op.kind() == OpKind::InterpolateBackward;
    let from = &inputs[usize::from(is_backward)];
    let numbers = numbers_of(from, &Odometer::dense(from.dims()))?;
    let steps = 4 * (from.dims().len() - 2);
    let mut sizes = zeroed(count(&shapes[0]))?;
    if !is_backward {
        each_result(op, from.dims(), &shapes[0], &mut |to, taps| {
            let size = taps.iter().fold(0.0, |sum, &(from, share)| sum + share * numbers[from].abs());
            sizes[to] = size * HALF_A_UNIT * steps as f64;
        })?;
        return Ok(sizes);
    }
    let mut terms = zeroed::<usize>(sizes.len())?;
    each_result(op, &shapes[0], from.dims(), &mut |from, taps| {
        for &(to, share) in taps {
            sizes[to] += share * numbers[from].abs();
            terms[to] += 1;
        }
    })?;
    sizes.iter_mut().zip(terms).for_each(|(size, terms)| *size *= HALF_A_UNIT * (terms + steps) as f64);
    Ok(sizes)
}
