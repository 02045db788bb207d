//! Dropout, and the random numbers that it draws.

use super::number::{floats, in_f32, integers, store_arithmetic};
use super::odometer::Odometer;
use super::value::Value;
use crate::error::Result;
use crate::graph::op::Op;
use crate::types::shape::Dims;

/// `src / (1 − P)` where a random 32-bit word is above `P · (2³² − 1)`, else +0, whatever stood there; P is
/// `probability`. The second output, if there is one, is 1 where an element is kept, else 0.
///
/// `1 / (1 − P)` and its product with `src` are rounded to f32. P = 1 gives zeros; for the bound P is kept
/// within [0, 1], and NaN keeps nothing. `seed`, `offset` and `probability` are tensors of one element or
/// host scalars.
///
/// The words are those of Philox4x32-10, bit for bit the ones of oneDNN's reference, by the row-major index
/// `i` of an element, whatever the strides. With an offset that is not 0, the key is the seed, the counter
/// the offset and `i` without its last two bits, low halves first; of the four words the last two bits of `i`
/// choose one. With offset 0 all that follows is in 32 bits: with `x` as `i` without its last two bits, the
/// key is the seed twice, the counter {x, x + 1, x, x + 3}, and the word is the third, so four neighbours are
/// kept or dropped together.
pub(super) fn dropout(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let integer = |port: usize| {
        let mut number = [0];
        integers(&inputs[port], &Odometer::new([]), 0..1, &mut number);
        number[0] as u64
    };
    let (seed, offset) = (integer(1), integer(2));
    let mut probability = [0.0];
    floats(&inputs[3], &Odometer::new([]), 0..1, &mut probability);
    let [probability] = probability;

    let bound = f64::from(u32::MAX) * probability.clamp(0.0, 1.0);
    let is_kept = |i: usize| f64::from(word(seed, offset, i as u64)) > bound;
    let factor = if probability == 1.0 { 0.0 } else { in_f32(1.0 / in_f32(1.0 - probability)) };
    let dims = &shapes[0];
    let dense = Odometer::dense(dims);
    let dst = op.outputs()[0].data_type();
    let mut results = vec![Value::compute(dst, dims, |range, bytes| {
        let mut numbers = vec![0.0; range.len()];
        floats(&inputs[0], &dense, range.clone(), &mut numbers);
        for (x, i) in numbers.iter_mut().zip(range) {
            *x = if is_kept(i) { *x * factor } else { 0.0 };
        }
        store_arithmetic(&mut numbers, dst, bytes);
    })?];
    if let Some(mask) = op.outputs().get(1) {
        results.push(Value::compute(mask.data_type(), dims, |range, bytes| {
            bytes.iter_mut().zip(range).for_each(|(byte, i)| *byte = is_kept(i).into());
        })?);
    }
    Ok(results)
}

/// The random word of an index.
fn word(seed: u64, offset: u64, i: u64) -> u32 {
    let halves = |number: u64| [number as u32, (number >> 32) as u32];
    let x = i & !3;
    if offset == 0 {
        let x = x as u32;
        return philox([x, x + 1, x, x + 3], [seed as u32; 2])[2];
    }
    let ([low, high], [x_low, x_high]) = (halves(offset), halves(x));
    philox([low, high, x_low, x_high], halves(seed))[(i & 3) as usize]
}

/// Philox4x32 with ten rounds.
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    let product = |a: u32, b: u32| {
        let product = u64::from(a) * u64::from(b);
        [product as u32, (product >> 32) as u32]
    };
    for _ in 0..10 {
        let [low_0, high_0] = product(0xd251_1f53, counter[0]);
        let [low_1, high_1] = product(0xcd9e_8d57, counter[2]);
        counter = [high_1 ^ counter[1] ^ key[0], low_1, high_0 ^ counter[3] ^ key[1], low_0];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    counter
}
