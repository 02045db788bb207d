//! Promise: sums along an axis have the bits of the reference interpreter, for every type, axis, layout,
//! order and length, at every level and on any number of threads, alone and with pointwise ops around them.

use crate::common::{Random, engines, report};
use crate::rows::{Case, Net, turned, value};
use sterna::reference::Value;
use sterna::{Attr, DataType, Engine, LogicalTensor, Op, OpKind, Policy};

use DataType as D;
use OpKind as K;

const TYPES: [DataType; 5] = [D::F32, D::Bf16, D::F16, D::S32, D::S64];

/// Numbers of every size; floats hold infinities and NaN as well, integers overflow.
fn filled(data_type: DataType, dims: &[i64], random: &mut Random) -> Value {
    let count = dims.iter().product::<i64>() as usize;
    match data_type {
        D::S32 => Value::from_slice(dims, &(0..count).map(|_| random.next() as i32).collect::<Vec<_>>()),
        D::S64 => Value::from_slice(dims, &(0..count).map(|_| random.next() as i64).collect::<Vec<_>>()),
        _ => {
            let mut number = || match random.below(400) {
                0 => f32::INFINITY,
                1 => f32::NEG_INFINITY,
                2 => f32::NAN,
                3 => -0.0,
                n if n < 40 => (random.next() >> 40) as f32 * 1e-9,
                _ => (random.next() >> 24) as f32 / (1 << 21) as f32 - 4.0,
            };
            return value(data_type, dims, &(0..count).map(|_| number()).collect::<Vec<_>>());
        }
    }
    .unwrap()
}

fn case(source: &Value, axis: i64, exclusive: bool, reverse: bool) -> Case {
    Case::new(K::CumSum, vec![source.clone()], &[source.data_type()])
        .attr(Attr::Axis, axis)
        .attr(Attr::Exclusive, exclusive)
        .attr(Attr::Reverse, reverse)
}

#[test]
fn sums_along_every_axis_have_the_bits_of_the_reference() {
    let mut random = Random::new(61);
    let mut wrong = Vec::new();
    let shapes: [&[i64]; 9] =
        [&[1], &[7], &[0], &[3, 0, 2], &[5, 7], &[2, 3, 4], &[4, 17, 33], &[1, 9, 1, 65], &[66, 130]];
    for t in TYPES {
        for dims in shapes {
            let source = filled(t, dims, &mut random);
            // Row-major, and the other way round with gaps.
            let turned = turned(dims);
            for axis in -(dims.len() as i64)..dims.len() as i64 {
                for (exclusive, reverse) in [(false, false), (true, false), (false, true), (true, true)] {
                    let case = || case(&source, axis, exclusive, reverse);
                    let cases = [case(), case().strides(0, &turned), case().out_strides(0, &turned)];
                    for (layout, case) in cases.iter().enumerate() {
                        for engine in engines() {
                            if let Some(fault) = case.differing_bits(&engine) {
                                let level = engine.level();
                                wrong.push(format!(
                                    "{t} {dims:?} axis {axis} {exclusive} {reverse} layout {layout} at \
                                     {level:?}: {fault}"
                                ));
                            }
                        }
                    }
                }
            }
        }
    }
    report(&wrong);
}

/// Long rows are added up part by part.
#[test]
fn long_rows_have_the_same_bits_on_any_number_of_threads() {
    let mut random = Random::new(62);
    let mut wrong = Vec::new();
    for t in TYPES {
        for (dims, axis) in [([5, 150_001], 1i64), ([70_003, 5], 0), ([5, 65_536], -1)] {
            let source = filled(t, &dims, &mut random);
            for (exclusive, reverse) in [(false, false), (true, true)] {
                for threads in [1, 2, 3] {
                    let engine = Engine::builder().threads(threads).build();
                    if let Some(fault) = case(&source, axis, exclusive, reverse).differing_bits(&engine) {
                        wrong.push(format!("{t} {dims:?} {exclusive} {reverse} threads {threads}: {fault}"));
                    }
                }
            }
        }
    }
    report(&wrong);
}

#[test]
fn an_axis_that_is_none_is_refused() {
    let source = filled(D::F32, &[2, 3], &mut Random::new(63));
    for axis in [2, -3, i64::MAX, i64::MIN] {
        let error = case(&source, axis, false, false).run(&Engine::new()).unwrap_err();
        assert!(error.contains("the attribute `axis` is not one of its dims"), "{error}");
    }
}

/// Ops before and behind run in the tiles of the sums, part by part, and change no bit.
#[test]
fn pointwise_ops_run_beside_sums() {
    let mut random = Random::new(64);
    let mut wrong = Vec::new();
    for t in TYPES {
        let tensor = |id| LogicalTensor::unknown(id, t);
        let op = |id, kind, from: usize| Op::new(id, kind).input(tensor(from)).output(tensor(from + 1));
        let product = |id, from: usize| {
            Op::new(id, K::Multiply).inputs_from([tensor(from), tensor(100)]).output(tensor(from + 1))
        };
        for (dims, axis) in [(vec![6, 40], 1i64), (vec![6, 40], 0), (vec![3, 5, 7], 1), (vec![2, 70_000], 1)]
        {
            for reverse in [false, true] {
                let sums = op(2, K::CumSum, 2).attr(Attr::Axis, axis).attr(Attr::Reverse, reverse);
                let net = Net {
                    ops: vec![op(0, K::Negative, 0), product(1, 1), sums, product(3, 3), op(4, K::Abs, 4)],
                    given: vec![(0, filled(t, &dims, &mut random)), (100, filled(t, &[1], &mut random))],
                };
                for engine in engines() {
                    let (fused, nests) = net.run(Policy::Fusion, &engine);
                    let (alone, _) = net.run(Policy::Debug, &engine);
                    if nests.len() != 1 || fused[&5] != alone[&5] {
                        wrong.push(format!(
                            "{t} {dims:?} {axis} {reverse} at {:?}, {nests:?}",
                            engine.level()
                        ));
                    }
                }
            }
        }
    }
    report(&wrong);
}
