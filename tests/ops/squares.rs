//! Promise: sums and means of squares have the bits of squares that are computed first, along every axis, at
//! every level, and on any number of threads.

use crate::common::{Random, engines, report};
use crate::rows::{Net, value};
use sterna::{Attr, DataType, Engine, LogicalTensor, Op, OpKind, Policy};

use OpKind as K;

#[test]
fn sums_of_squares_have_the_bits_of_squares_that_are_computed_first() {
    let mut random = Random::new(66);
    let mut wrong = Vec::new();
    let mut number = || match random.below(500) {
        0 => f32::INFINITY,
        1 => f32::NAN,
        2 => 1e30,
        n if n < 40 => (random.next() >> 40) as f32 * 1e-25,
        _ => (random.next() >> 24) as f32 / (1 << 21) as f32 - 4.0,
    };
    let shapes: [(&[i64], &[i64]); 8] = [
        (&[7], &[0]),
        (&[40, 8], &[1]),
        (&[33, 3], &[1]),
        (&[6, 100], &[1]),
        (&[50, 40], &[0]),
        (&[3, 20, 10], &[0, 2]),
        (&[2, 70_000], &[1]),
        (&[5, 9, 17], &[1]),
    ];
    let tensor = |id| LogicalTensor::unknown(id, DataType::F32);
    let threaded = Engine::builder().threads(2).build();
    let engines: Vec<Engine> = engines().into_iter().chain([threaded]).collect();
    for (dims, axes) in shapes {
        let count = dims.iter().product::<i64>() as usize;
        let source = value(DataType::F32, dims, &(0..count).map(|_| number()).collect::<Vec<_>>());
        for kind in [K::ReduceSum, K::ReduceMean] {
            for by_product in [false, true] {
                let square = match by_product {
                    true => Op::new(0, K::Multiply).inputs_from([tensor(0), tensor(0)]),
                    false => Op::new(0, K::Square).input(tensor(0)),
                };
                let sum = Op::new(1, kind).input(tensor(1)).output(tensor(2)).attr(Attr::Axes, axes.to_vec());
                let net = Net { ops: vec![square.output(tensor(1)), sum], given: vec![(0, source.clone())] };
                for engine in &engines {
                    let (fused, nests) = net.run(Policy::Fusion, engine);
                    let (alone, _) = net.run(Policy::Debug, engine);
                    if nests.len() != 1 || fused[&2] != alone[&2] {
                        wrong.push(format!("{kind} {dims:?} {axes:?} {by_product} at {:?}", engine.level()));
                    }
                }
            }
        }
    }
    report(&wrong);
}
