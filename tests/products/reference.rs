//! Promise: the reference adds up the products of a sum in the order of the terms, in f64, and rounds once,
//! whatever the shapes, transposed or not.

use crate::common::{Random, report};
use sterna::reference::{self, Value};
use sterna::{Attr, DataType, LogicalTensor, Op, OpKind};

/// A random tensor of numbers of very different sizes, so that another order of additions shows.
fn random(random: &mut Random, dims: &[i64]) -> Value {
    let count = dims.iter().product::<i64>() as usize;
    let number = |random: &mut Random| {
        let size = f32::powi(2.0, random.below(40) as i32 - 20);
        (random.below(2001) as f32 - 1000.0) * size
    };
    Value::from_slice(dims, &(0..count).map(|_| number(random)).collect::<Vec<f32>>()).unwrap()
}

/// The product of two batches of matrices by its definition.
fn product(left: &[f32], right: &[f32], [m, n, k]: [usize; 3], transposes: [bool; 2]) -> Vec<f32> {
    let mut result = Vec::new();
    for row in 0..m {
        for column in 0..n {
            let mut sum = 0.0;
            for step in 0..k {
                let x = if transposes[0] { left[step * m + row] } else { left[row * k + step] };
                let y = if transposes[1] { right[column * k + step] } else { right[step * n + column] };
                sum += f64::from(x) * f64::from(y);
            }
            result.push(sum as f32);
        }
    }
    result
}

#[test]
fn sums_keep_the_order_of_their_terms() {
    let mut source = Random::new(7);
    let mut wrong = Vec::new();
    for case in 0..200 {
        let mut dim = |most: usize| source.below(most) + 1;
        let (m, n, k, batch) = (dim(70), dim(19), dim(33), [dim(3), dim(2)]);
        let transposes = [source.below(2) == 1, source.below(2) == 1];
        let (once, times) = ([source.below(2) == 1, source.below(2) == 1], batch[0] * batch[1]);
        let matrix = |rows: usize, columns: usize, transpose| {
            if transpose { [columns as i64, rows as i64] } else { [rows as i64, columns as i64] }
        };
        // A batch of one is taken for each of the other operand.
        let dims = |own: [i64; 2], once: bool| match once {
            true => vec![own[0], own[1]],
            false => vec![batch[0] as i64, batch[1] as i64, own[0], own[1]],
        };
        let left = random(&mut source, &dims(matrix(m, k, transposes[0]), once[0]));
        let right = random(&mut source, &dims(matrix(k, n, transposes[1]), once[1]));
        let tensor = |id| LogicalTensor::unknown(id, DataType::F32);
        let op = Op::new(0, OpKind::MatMul).inputs_from([tensor(0), tensor(1)]).output(tensor(2));
        let op = op.attr(Attr::TransposeA, transposes[0]).attr(Attr::TransposeB, transposes[1]);
        let given = reference::run(&op, &[left.clone(), right.clone()]).unwrap();
        let given = given[0].elements::<f32>().unwrap();
        let (left, right) = (left.elements::<f32>().unwrap(), right.elements::<f32>().unwrap());
        let matrices = if once[0] && once[1] { 1 } else { times };
        let at = |all: &[f32], size: usize, once: bool, place: usize| {
            let first = if once { 0 } else { place * size };
            all[first..first + size].to_vec()
        };
        let expected: Vec<f32> = (0..matrices)
            .flat_map(|place| {
                let (x, y) = (at(&left, m * k, once[0], place), at(&right, k * n, once[1], place));
                product(&x, &y, [m, n, k], transposes)
            })
            .collect();
        let bits = |all: &[f32]| all.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
        if bits(&given) != bits(&expected) {
            wrong.push(format!("case {case}: {m} × {n} × {k}, batch {batch:?}, {transposes:?}, {once:?}"));
        }
    }
    report(&wrong);
}
