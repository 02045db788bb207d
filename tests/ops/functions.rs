//! The functions of pointwise ops in the reference interpreter: against values of a thousand bits, against
//! the arithmetic of the machine, and at the edges.

use crate::common::{Random, report};
use half::{bf16, f16};
use sterna::reference::{self, Value};
use sterna::{Attr, AttrType, Bool8, DataType, Element, LogicalTensor, Op, OpKind, Schema};

use DataType as D;
use OpKind as K;

const INF: f32 = f32::INFINITY;
const NAN: f32 = f32::NAN;
/// A quiet NaN with a sign and a payload, as no arithmetic gives it.
const ODD_NAN: f32 = f32::from_bits(0xffc0_0123);
const TINY: f32 = f32::from_bits(1);

/// An op on tensors of which only the types are known.
fn op(kind: OpKind, inputs: &[DataType], output: DataType) -> Op {
    let input = |(id, &data_type)| LogicalTensor::unknown(id, data_type);
    Op::new(7, kind)
        .inputs_from(inputs.iter().enumerate().map(input))
        .output(LogicalTensor::unknown(100, output))
}

/// An op on f32 of as many inputs as its kind has, described as `Kind attribute=value …`.
fn described(text: &str) -> Op {
    let mut words = text.split(' ');
    let kind: OpKind = words.next().unwrap().parse().unwrap();
    let schema = Schema::of(kind);
    words.fold(op(kind, &vec![D::F32; schema.inputs.len()], D::F32), |op, word| {
        let (name, value) = word.split_once('=').unwrap();
        let row = schema.attributes.iter().find(|row| row.attr.name() == name).unwrap();
        match row.value_type {
            AttrType::F32 => op.attr(row.attr, value.parse::<f32>().unwrap()),
            AttrType::Bool => op.attr(row.attr, value.parse::<bool>().unwrap()),
            AttrType::String => op.attr(row.attr, value),
            other => panic!("no attribute of type {} is described", other.name()),
        }
    })
}

fn value<T: Element>(elements: &[T]) -> Value {
    Value::from_slice(&[elements.len() as i64], elements).unwrap()
}

fn run(op: &Op, inputs: &[Value]) -> Value {
    reference::run(op, inputs).unwrap().remove(0)
}

fn run_f32(op: &Op, inputs: &[Vec<f32>]) -> Vec<f32> {
    let inputs: Vec<Value> = inputs.iter().map(|input| value(input)).collect();
    run(op, &inputs).elements().unwrap()
}

/// The kinds that compute in f32 and have one input or two, each with the attributes under which they are
/// tested.
fn blocks() -> Vec<(Op, Vec<Vec<f32>>, Vec<f32>)> {
    let mut blocks: Vec<(Op, Vec<Vec<f32>>, Vec<f32>)> = Vec::new();
    for line in include_str!("../data/functions.txt").lines() {
        if line.contains(|letter: char| letter.is_ascii_uppercase()) {
            let op = described(line);
            let inputs = vec![Vec::new(); op.inputs().len()];
            blocks.push((op, inputs, Vec::new()));
        } else {
            let (_, inputs, results) = blocks.last_mut().unwrap();
            let mut numbers =
                line.split(' ').map(|bits| f32::from_bits(u32::from_str_radix(bits, 16).unwrap()));
            inputs.iter_mut().for_each(|input| input.push(numbers.next().unwrap()));
            results.push(numbers.next().unwrap());
            assert_eq!(numbers.next(), None, "{line}");
        }
    }
    blocks
}

#[test]
fn functions_are_correctly_rounded() {
    let mut wrong = Vec::new();
    let mut rows = 0;
    for (op, inputs, expected) in blocks() {
        let given = run_f32(&op, &inputs);
        for (i, (given, expected)) in given.iter().zip(&expected).enumerate() {
            if given.to_bits() != expected.to_bits() {
                let inputs: Vec<f32> = inputs.iter().map(|input| input[i]).collect();
                wrong.push(format!("{op:?} of {inputs:?}: {given:e}, not {expected:e}"));
            }
        }
        rows += given.len();
    }
    assert!(rows > 2500, "{rows}");
    report(&wrong);
}

/// Two inputs and the result.
type Triple = (f32, f32, f32);

#[test]
fn functions_at_the_edges() {
    let max = f32::MAX;
    let unary: &[(&str, &[(f32, f32)])] = &[
        (
            "Abs",
            &[(-0.0, 0.0), (-INF, INF), (-TINY, TINY), (-max, max), (ODD_NAN, f32::from_bits(0x7fc0_0123))],
        ),
        (
            "Negative",
            &[(0.0, -0.0), (INF, -INF), (-TINY, TINY), (max, -max), (ODD_NAN, f32::from_bits(0x7fc0_0123))],
        ),
        (
            "Clamp min=-1 max=2",
            &[(-INF, -1.0), (INF, 2.0), (NAN, NAN), (ODD_NAN, NAN), (-0.0, -0.0), (-TINY, -TINY)],
        ),
        ("Clamp min=0 max=0", &[(-0.0, 0.0), (-1.0, 0.0), (1.0, 0.0)]),
        ("Clamp min=2 max=-1", &[(0.0, -1.0), (INF, -1.0), (-INF, -1.0)]),
        (
            "Elu alpha=0.5",
            &[(0.0, 0.0), (-0.0, -0.0), (-INF, -0.5), (INF, INF), (-TINY, -0.0), (ODD_NAN, NAN)],
        ),
        ("Elu alpha=0", &[(-1.0, -0.0), (-INF, -0.0), (3.0, 3.0)]),
        (
            "Exp",
            &[(0.0, 1.0), (-0.0, 1.0), (-INF, 0.0), (INF, INF), (89.0, INF), (-104.0, 0.0), (ODD_NAN, NAN)],
        ),
        ("GELU", &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, NAN), (-max, -0.0), (max, max), (TINY, 0.0)]),
        (
            "GELU mode=gelu_tanh",
            &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, NAN), (-max, -0.0), (max, max)],
        ),
        (
            "HardSigmoid alpha=0.5 beta=0.5",
            &[(-1.0, 0.0), (-INF, 0.0), (INF, 1.0), (1.0, 1.0), (ODD_NAN, NAN)],
        ),
        ("HardSigmoid alpha=0 beta=0.5", &[(3.0, 0.5), (INF, NAN)]),
        (
            "HardSwish",
            &[
                (-3.0, -0.0),
                (-4.0, -0.0),
                (3.0, 3.0),
                (INF, INF),
                (-INF, NAN),
                (0.0, 0.0),
                (-0.0, -0.0),
                (ODD_NAN, NAN),
            ],
        ),
        (
            "LeakyReLU alpha=0.5",
            &[(-0.0, -0.0), (0.0, 0.0), (-INF, -INF), (INF, INF), (-TINY, -0.0), (ODD_NAN, NAN)],
        ),
        ("LeakyReLU alpha=0", &[(-1.0, -0.0), (-INF, NAN)]),
        (
            "Log",
            &[
                (0.0, -INF),
                (-0.0, -INF),
                (1.0, 0.0),
                (INF, INF),
                (-1.0, NAN),
                (-INF, NAN),
                (TINY, -103.27893),
                (ODD_NAN, NAN),
            ],
        ),
        (
            "Mish",
            &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, NAN), (-max, -0.0), (max, max), (ODD_NAN, NAN)],
        ),
        ("Pow beta=2", &[(-3.0, 9.0), (INF, INF), (-INF, INF), (-0.0, 0.0), (max, INF), (NAN, NAN)]),
        ("Pow beta=3", &[(-3.0, -27.0), (-INF, -INF), (-0.0, -0.0), (-max, -INF)]),
        ("Pow beta=0.5", &[(-4.0, NAN), (4.0, 2.0), (-INF, INF), (-0.0, 0.0), (ODD_NAN, NAN)]),
        ("Pow beta=-1", &[(0.0, INF), (-0.0, -INF), (INF, 0.0), (-INF, -0.0), (-4.0, -0.25)]),
        ("Pow beta=0", &[(NAN, 1.0), (INF, 1.0), (0.0, 1.0), (-3.0, 1.0)]),
        ("Pow beta=inf", &[(1.0, 1.0), (-1.0, 1.0), (2.0, INF), (0.5, 0.0), (-2.0, INF)]),
        ("Pow beta=NaN", &[(1.0, 1.0), (2.0, NAN), (0.0, NAN)]),
        (
            "Reciprocal",
            &[
                (0.0, INF),
                (-0.0, -INF),
                (INF, 0.0),
                (-INF, -0.0),
                (TINY, INF),
                (max, f32::from_bits(0x0020_0000)),
                (ODD_NAN, NAN),
            ],
        ),
        (
            "ReLU",
            &[(-0.0, 0.0), (0.0, 0.0), (-INF, 0.0), (INF, INF), (-TINY, 0.0), (TINY, TINY), (ODD_NAN, NAN)],
        ),
        (
            "Round",
            &[
                (0.5, 0.0),
                (1.5, 2.0),
                (2.5, 2.0),
                (-0.5, -0.0),
                (-0.4, -0.0),
                (-2.5, -2.0),
                (0.49999997, 0.0),
                (8388609.0, 8388609.0),
                (INF, INF),
                (ODD_NAN, NAN),
            ],
        ),
        (
            "Sigmoid",
            &[(0.0, 0.5), (-0.0, 0.5), (INF, 1.0), (-INF, 0.0), (-104.0, 0.0), (max, 1.0), (ODD_NAN, NAN)],
        ),
        (
            "SoftPlus",
            &[
                (INF, INF),
                (-INF, 0.0),
                (max, max),
                (-max, 0.0),
                (0.0, std::f32::consts::LN_2),
                (ODD_NAN, NAN),
            ],
        ),
        ("SoftPlus beta=-1", &[(INF, -0.0), (-INF, -INF), (-max, -max), (max, -0.0)]),
        ("SoftPlus beta=0", &[(1.0, INF), (INF, NAN)]),
        (
            "Sqrt",
            &[
                (-0.0, -0.0),
                (0.0, 0.0),
                (INF, INF),
                (-1.0, NAN),
                (-INF, NAN),
                (-TINY, NAN),
                (4.0, 2.0),
                (ODD_NAN, NAN),
            ],
        ),
        ("Square", &[(-0.0, 0.0), (-INF, INF), (max, INF), (TINY, 0.0), (-3.0, 9.0), (ODD_NAN, NAN)]),
        (
            "Tanh",
            &[(-0.0, -0.0), (0.0, 0.0), (INF, 1.0), (-INF, -1.0), (TINY, TINY), (max, 1.0), (ODD_NAN, NAN)],
        ),
        (
            "Sin",
            &[
                (-0.0, -0.0),
                (0.0, 0.0),
                (INF, NAN),
                (-INF, NAN),
                (TINY, TINY),
                (-TINY, -TINY),
                (ODD_NAN, NAN),
            ],
        ),
        ("Cos", &[(-0.0, 1.0), (0.0, 1.0), (INF, NAN), (-INF, NAN), (TINY, 1.0), (ODD_NAN, NAN)]),
        (
            "Floor",
            &[
                (-0.0, -0.0),
                (-0.5, -1.0),
                (0.5, 0.0),
                (-TINY, -1.0),
                (-INF, -INF),
                (1e30, 1e30),
                (ODD_NAN, NAN),
            ],
        ),
        (
            "Ceil",
            &[
                (-0.0, -0.0),
                (-0.5, -0.0),
                (0.5, 1.0),
                (TINY, 1.0),
                (INF, INF),
                (-1e30, -1e30),
                (ODD_NAN, NAN),
            ],
        ),
    ];
    let binary: &[(&str, &[Triple])] = &[
        (
            "Add",
            &[(INF, -INF, NAN), (-0.0, -0.0, -0.0), (1.0, -1.0, 0.0), (max, max, INF), (ODD_NAN, 1.0, NAN)],
        ),
        ("Subtract", &[(INF, INF, NAN), (-0.0, 0.0, -0.0), (1.0, 1.0, 0.0), (1.0, ODD_NAN, NAN)]),
        ("Multiply", &[(0.0, INF, NAN), (-0.0, 5.0, -0.0), (TINY, 0.5, 0.0), (max, 2.0, INF)]),
        ("Divide", &[(0.0, 0.0, NAN), (INF, INF, NAN), (1.0, -0.0, -INF), (TINY, 2.0, 0.0), (1.0, INF, 0.0)]),
        (
            "Maximum",
            &[
                (0.0, -0.0, 0.0),
                (-0.0, 0.0, 0.0),
                (-0.0, -0.0, -0.0),
                (NAN, 1.0, NAN),
                (1.0, ODD_NAN, NAN),
                (-INF, INF, INF),
            ],
        ),
        (
            "Minimum",
            &[
                (0.0, -0.0, -0.0),
                (-0.0, 0.0, -0.0),
                (0.0, 0.0, 0.0),
                (NAN, 1.0, NAN),
                (1.0, ODD_NAN, NAN),
                (-INF, INF, -INF),
            ],
        ),
        (
            "SquaredDifference",
            &[
                (INF, INF, NAN),
                (1.0, 1.0, 0.0),
                (-INF, 1.0, INF),
                (16777216.0, -1.0, 281474976710656.0),
                (ODD_NAN, 0.0, NAN),
            ],
        ),
        (
            "PReLU",
            &[
                (-0.0, -2.0, -0.0),
                (0.0, -2.0, 0.0),
                (0.0, INF, 0.0),
                (-INF, 0.0, NAN),
                (INF, ODD_NAN, INF),
                (ODD_NAN, 0.5, NAN),
                (-1.0, NAN, NAN),
            ],
        ),
        (
            "AbsBackward",
            &[
                (2.0, 3.0, 3.0),
                (-2.0, 3.0, -3.0),
                (0.0, 3.0, 0.0),
                (-0.0, -3.0, 0.0),
                (NAN, 3.0, 0.0),
                (INF, ODD_NAN, NAN),
                (0.0, NAN, 0.0),
            ],
        ),
        (
            "ClampBackward min=-1 max=2",
            &[
                (-1.0, 3.0, 0.0),
                (2.0, 3.0, 0.0),
                (0.0, -3.0, -3.0),
                (NAN, 3.0, 0.0),
                (INF, NAN, 0.0),
                (0.0, ODD_NAN, NAN),
            ],
        ),
        (
            "ClampBackward min=-1 max=2 use_dst=false",
            &[(-1.0, 3.0, 0.0), (2.0, 3.0, 0.0), (1.9999999, -3.0, -3.0), (NAN, 3.0, 0.0)],
        ),
        (
            "EluBackward alpha=0.5 use_dst=false",
            &[
                (0.0, 3.0, 1.5),
                (-0.0, 3.0, 1.5),
                (-INF, 3.0, 0.0),
                (INF, 3.0, 3.0),
                (-INF, INF, NAN),
                (NAN, 3.0, NAN),
            ],
        ),
        (
            "EluBackward alpha=0.5",
            &[(0.0, 3.0, 1.5), (-0.5, 3.0, 0.0), (-0.5, -3.0, -0.0), (INF, 3.0, 3.0), (NAN, 3.0, NAN)],
        ),
        (
            "GELUBackward",
            &[
                (0.0, 3.0, 1.5),
                (max, 3.0, 3.0),
                (-max, 3.0, 0.0),
                (INF, 3.0, NAN),
                (-INF, 3.0, NAN),
                (0.0, ODD_NAN, NAN),
            ],
        ),
        (
            "GELUBackward mode=gelu_tanh",
            &[(0.0, 3.0, 1.5), (max, 3.0, 3.0), (INF, 3.0, NAN), (-INF, 3.0, NAN)],
        ),
        (
            "HardSigmoidBackward alpha=0.5 beta=0.5",
            &[(-1.0, 3.0, 0.0), (1.0, 3.0, 0.0), (0.0, 3.0, 1.5), (NAN, 3.0, 0.0), (INF, NAN, 0.0)],
        ),
        (
            "HardSwishBackward",
            &[
                (3.0, 7.0, 7.0),
                (-3.0, 7.0, 0.0),
                (0.0, 7.0, 3.5),
                (-1.5, 7.0, 0.0),
                (INF, 7.0, 7.0),
                (-INF, NAN, 0.0),
                (NAN, 7.0, 0.0),
            ],
        ),
        ("MishBackward", &[(max, 3.0, 3.0), (INF, 3.0, NAN), (-INF, 3.0, NAN), (NAN, 3.0, NAN)]),
        (
            "ReLUBackward",
            &[
                (0.0, 3.0, 0.0),
                (-0.0, 3.0, 0.0),
                (TINY, 3.0, 3.0),
                (-1.0, NAN, 0.0),
                (NAN, 3.0, 0.0),
                (1.0, ODD_NAN, NAN),
            ],
        ),
        ("ReLUBackward use_dst=false", &[(0.0, 3.0, 0.0), (TINY, 3.0, 3.0), (NAN, 3.0, 0.0)]),
        ("SigmoidBackward", &[(0.0, 3.0, 0.0), (1.0, 3.0, 0.0), (0.5, 3.0, 0.75), (1.0, INF, NAN)]),
        (
            "SigmoidBackward use_dst=false",
            &[(0.0, 3.0, 0.75), (INF, 3.0, 0.0), (-INF, 3.0, 0.0), (INF, INF, NAN), (NAN, 3.0, NAN)],
        ),
        (
            "SoftPlusBackward",
            &[(INF, 3.0, 3.0), (-INF, 3.0, 0.0), (0.0, 3.0, 1.5), (-INF, INF, NAN), (NAN, 3.0, NAN)],
        ),
        (
            "SqrtBackward",
            &[(0.0, 3.0, INF), (-0.0, 3.0, -INF), (0.0, 0.0, NAN), (INF, 3.0, 0.0), (2.0, 3.0, 0.75)],
        ),
        (
            "SqrtBackward use_dst=false",
            &[(0.0, 3.0, INF), (-0.0, 3.0, -INF), (-1.0, 3.0, NAN), (INF, 3.0, 0.0), (4.0, 3.0, 0.75)],
        ),
        ("TanhBackward", &[(1.0, 3.0, 0.0), (-1.0, 3.0, 0.0), (0.5, 4.0, 3.0), (0.0, ODD_NAN, NAN)]),
        (
            "TanhBackward use_dst=false",
            &[(INF, 3.0, 0.0), (-INF, 3.0, 0.0), (0.0, 3.0, 3.0), (INF, INF, NAN), (NAN, 3.0, NAN)],
        ),
    ];
    let mut wrong = Vec::new();
    let mut check = |text: &str, inputs: &[Vec<f32>], expected: Vec<f32>| {
        let given = run_f32(&described(text), inputs);
        for (i, (given, expected)) in given.iter().zip(&expected).enumerate() {
            if given.to_bits() != expected.to_bits() {
                let inputs: Vec<f32> = inputs.iter().map(|input| input[i]).collect();
                wrong.push(format!(
                    "{text} of {inputs:?}: {given:e} ({:x}), not {expected:e}",
                    given.to_bits()
                ));
            }
        }
    };
    for (text, rows) in unary {
        let (x, y): (Vec<f32>, Vec<f32>) = rows.iter().copied().unzip();
        check(text, &[x], y);
    }
    for (text, rows) in binary {
        let column = |pick: fn(&Triple) -> f32| rows.iter().map(pick).collect::<Vec<f32>>();
        check(text, &[column(|row| row.0), column(|row| row.1)], column(|row| row.2));
    }
    report(&wrong);
}

/// Random bits, among which every exponent is as likely as any other.
fn any_f32s(random: &mut Random, count: usize) -> Vec<f32> {
    (0..count).map(|_| f32::from_bits(random.next() as u32)).collect()
}

/// The machine's function of two numbers.
type Machine = fn(f32, f32) -> f32;

#[test]
fn arithmetic_on_f32_is_that_of_the_machine() {
    let mut random = Random::new(3);
    let (x, mut y) = (any_f32s(&mut random, 20_000), any_f32s(&mut random, 20_000));
    // Half of the pairs are close to each other, so that sums cancel.
    x.iter().zip(&mut y).step_by(2).for_each(|(x, y)| *y = -x * 1.0001);
    // The compiler may take any NaN for any other: only as integers are they what is written.
    let bits = |x: f32| if x.is_nan() { 0x7fc0_0000 } else { x.to_bits() };
    let rows: [(OpKind, Machine); 5] = [
        (K::Add, |x, y| x + y),
        (K::Subtract, |x, y| x - y),
        (K::Multiply, |x, y| x * y),
        (K::Divide, |x, y| x / y),
        (K::SquaredDifference, |x, y| (x - y) * (x - y)),
    ];
    let mut wrong = Vec::new();
    for (kind, function) in rows {
        let given = run_f32(&op(kind, &[D::F32; 2], D::F32), &[x.clone(), y.clone()]);
        let expected: Vec<u32> = x.iter().zip(&y).map(|(&x, &y)| bits(function(x, y))).collect();
        let given: Vec<u32> = given.into_iter().map(f32::to_bits).collect();
        let at = given.iter().zip(&expected).position(|(given, expected)| given != expected);
        wrong.extend(at.map(|i| format!("{kind} of {} and {}: {:x}", x[i], y[i], given[i])));
    }
    let given: Vec<u32> = run_f32(&op(K::Sqrt, &[D::F32], D::F32), std::slice::from_ref(&x))
        .into_iter()
        .map(f32::to_bits)
        .collect();
    let expected: Vec<u32> = x.iter().map(|&x| bits(x.sqrt())).collect();
    wrong.extend(
        x.iter()
            .zip(given.iter().zip(expected))
            .find(|(_, (given, expected))| *given != expected)
            .map(|(x, _)| format!("Sqrt of {x}")),
    );
    report(&wrong);
}

#[test]
fn sixteen_bits_compute_in_f32_and_are_rounded_once_more() {
    let all: Vec<u16> = (0..=u16::MAX).collect();
    let mut wrong = Vec::new();
    for (described, ..) in blocks().into_iter().filter(|(op, ..)| op.inputs().len() == 1) {
        let with_type = |data_type| {
            described.attrs().fold(op(described.kind(), &[data_type], data_type), |op, (attr, value)| {
                op.attr(attr, value.clone())
            })
        };
        let f16s: Vec<f16> = all.iter().map(|&bits| f16::from_bits(bits)).collect();
        let given: Vec<f16> = run(&with_type(D::F16), &[value(&f16s)]).elements().unwrap();
        let wide = run_f32(&described, &[f16s.iter().map(|x| x.to_f32()).collect()]);
        let same = given.iter().zip(&wide).all(|(x, y)| x.to_bits() == f16::from_f32(*y).to_bits());

        let bf16s: Vec<bf16> = all.iter().map(|&bits| bf16::from_bits(bits)).collect();
        let given: Vec<bf16> = run(&with_type(D::Bf16), &[value(&bf16s)]).elements().unwrap();
        let wide = run_f32(&described, &[bf16s.iter().map(|x| x.to_f32()).collect()]);
        let same_too = given.iter().zip(&wide).all(|(x, y)| x.to_bits() == bf16::from_f32(*y).to_bits());
        if !(same && same_too) {
            wrong.push((described.kind(), same, same_too));
        }
    }
    report(&wrong);
}

#[test]
fn f32_mixes_with_narrower_floats() {
    let (x, y) = ([1.0f32, -3.0, 65504.0], [f16::from_f32(0.5), f16::from_f32(0.1), f16::MAX]);
    let wide: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x * y.to_f32()).collect();
    let to_f32 = run(&op(K::Multiply, &[D::F32, D::F16], D::F32), &[value(&x), value(&y)]);
    assert_eq!(to_f32, value(&wide));
    let to_f16 = run(&op(K::Multiply, &[D::F32, D::F16], D::F16), &[value(&x), value(&y)]);
    assert_eq!(to_f16, value(&wide.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>()));
    let to_bf16 = run(&op(K::Divide, &[D::F32, D::F32], D::Bf16), &[value(&[1.0f32]), value(&[3.0f32])]);
    assert_eq!(to_bf16, value(&[bf16::from_f32(1.0 / 3.0)]));
}

#[test]
fn integers_are_exact_and_wrap() {
    let s64 = |kind| op(kind, &[D::S64; 2], D::S64);
    let s32 = |kind| op(kind, &[D::S32; 2], D::S32);
    // Beyond the integers of f64, and beyond those of the type.
    let (x, y) = ([i64::MAX, (1 << 53) + 1, -7, i64::MIN], [1i64, 2, 3, -1]);
    let wide: [(OpKind, [i64; 4]); 5] = [
        (K::Add, [i64::MIN, (1 << 53) + 3, -4, i64::MAX]),
        (K::Subtract, [i64::MAX - 1, (1 << 53) - 1, -10, i64::MIN + 1]),
        (K::Multiply, [i64::MAX, (1 << 54) + 2, -21, i64::MIN]),
        (K::Maximum, [i64::MAX, (1 << 53) + 1, 3, -1]),
        (K::Minimum, [1, 2, -7, i64::MIN]),
    ];
    let (a, b) = ([i32::MAX, 65537, -7, i32::MIN], [1i32, 65537, 3, -1]);
    let narrow: [(OpKind, [i32; 4]); 5] = [
        (K::Add, [i32::MIN, 131074, -4, i32::MAX]),
        (K::Subtract, [i32::MAX - 1, 0, -10, i32::MIN + 1]),
        (K::Multiply, [i32::MAX, 131073, -21, i32::MIN]),
        (K::Maximum, [i32::MAX, 65537, 3, -1]),
        (K::Minimum, [1, 65537, -7, i32::MIN]),
    ];
    let wide =
        wide.map(|(kind, expected)| (kind, run(&s64(kind), &[value(&x), value(&y)]), value(&expected)));
    let narrow =
        narrow.map(|(kind, expected)| (kind, run(&s32(kind), &[value(&a), value(&b)]), value(&expected)));
    let wrong: Vec<_> =
        wide.into_iter().chain(narrow).filter(|(_, given, expected)| given != expected).collect();
    report(&wrong);
}

/// Digits that f32 has not, and numbers beyond its bounds.
#[test]
fn f64_is_computed_in_f64() {
    let (x, y) = ([1.0 + f64::EPSILON, 1e300, -7.5, 5e-324, -0.0], [3.0f64, -1e-300, 2.0, 1.0, 0.0]);
    let two = |kind: OpKind| run(&op(kind, &[D::F64; 2], D::F64), &[value(&x), value(&y)]);
    let one = |kind: OpKind| run(&op(kind, &[D::F64], D::F64), &[value(&x)]);
    let each = |of: fn(f64, f64) -> f64| value(&std::array::from_fn::<f64, 5, _>(|i| of(x[i], y[i])));
    let map = |of: fn(f64) -> f64| value(&x.map(of));
    let bits = |value: &Value| {
        value.elements::<f64>().unwrap().into_iter().map(|x| if x.is_nan() { 1 } else { x.to_bits() })
    };
    let rows = [
        (K::Add, two(K::Add), each(|x, y| x + y)),
        (K::Subtract, two(K::Subtract), each(|x, y| x - y)),
        (K::Multiply, two(K::Multiply), each(|x, y| x * y)),
        (K::Divide, two(K::Divide), each(|x, y| x / y)),
        (K::Maximum, two(K::Maximum), value(&[3.0, 1e300, 2.0, 1.0, 0.0])),
        (K::Minimum, two(K::Minimum), value(&[1.0 + f64::EPSILON, -1e-300, -7.5, 5e-324, -0.0])),
        (K::Abs, one(K::Abs), map(f64::abs)),
        (K::Negative, one(K::Negative), map(|x| -x)),
        (K::Exp, one(K::Exp), map(f64::exp)),
        (K::Log, one(K::Log), map(f64::ln)),
        (K::Reciprocal, one(K::Reciprocal), map(f64::recip)),
        (K::ReLU, one(K::ReLU), map(|x| if x > 0.0 { x } else { 0.0 })),
        (K::Round, one(K::Round), map(f64::round_ties_even)),
        (K::Sqrt, one(K::Sqrt), map(f64::sqrt)),
        (K::Square, one(K::Square), map(|x| x * x)),
        (K::Tanh, one(K::Tanh), map(f64::tanh)),
        (K::Floor, one(K::Floor), map(f64::floor)),
        (K::Ceil, one(K::Ceil), map(f64::ceil)),
    ];
    report(
        &rows.into_iter().filter(|(_, given, expected)| !bits(given).eq(bits(expected))).collect::<Vec<_>>(),
    );
}

/// The remainder is exact, and has the sign of the divisor; it is rounded if that sign moves it.
#[test]
fn remainders_of_floats_are_exact() {
    let rows: [(f32, f32, f32); 16] = [
        (7.5, 2.0, 1.5),
        (-7.5, 2.0, 0.5),
        (7.5, -2.0, -0.5),
        (-7.5, -2.0, -1.5),
        (4.0, 2.0, 0.0),
        (-4.0, 2.0, 0.0),
        (4.0, -2.0, -0.0),
        (1e38, 3.0, 2.0),
        (1.0, TINY, 0.0),
        (-1e-30, 1.0, 1.0),
        (5.0, INF, 5.0),
        (-5.0, INF, INF),
        (INF, 2.0, NAN),
        (1.0, 0.0, NAN),
        (NAN, 1.0, NAN),
        (f32::MAX, 1.5 * TINY, 0.0),
    ];
    // Of 10³⁸, the f32 next to it is 99999996802856924650656260769173209088.
    assert_eq!((1e38f32 as u128) % 3, 2);
    let (x, y): (Vec<f32>, Vec<f32>) = rows.iter().map(|&(x, y, _)| (x, y)).unzip();
    let given = run_f32(&op(K::Modulo, &[D::F32; 2], D::F32), &[x.clone(), y.clone()]);
    let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    let mut wrong: Vec<String> = rows
        .iter()
        .zip(&given)
        .filter(|((.., expected), given)| !same(*expected, **given))
        .map(|(row, given)| format!("{row:?}: {given}"))
        .collect();
    let doubles = |x: &[f32]| value(&x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>());
    let wide = run(&op(K::Modulo, &[D::F64; 2], D::F64), &[doubles(&x), doubles(&y)]);
    for ((row, &narrow), wide) in rows.iter().zip(&given).zip(wide.elements::<f64>().unwrap()) {
        // Both types hold the result of every row but this one.
        if row.0 != -1e-30 && !same(narrow, wide as f32) {
            wrong.push(format!("{row:?} on f64: {wide}"));
        }
    }
    let narrow = |x: f32| value(&[f16::from_f32(x)]);
    if run(&op(K::Modulo, &[D::F16; 2], D::F16), &[narrow(-7.5), narrow(2.0)]) != narrow(0.5) {
        wrong.push("f16".into());
    }
    report(&wrong);
}

#[test]
fn powers_of_two_operands_are_those_of_c() {
    let rows = [
        (3.0, 2.0, 9.0),
        (-3.0, 3.0, -27.0),
        (2.0, -1.0, 0.5),
        (-8.0, 0.5, NAN),
        (0.0, 0.0, 1.0),
        (NAN, -0.0, 1.0),
        (1.0, NAN, 1.0),
        (1.0, INF, 1.0),
        (-1.0, -INF, 1.0),
        (-0.0, -3.0, -INF),
        (-0.0, -2.0, INF),
        (-0.0, 5.0, -0.0),
        (0.0, -0.5, INF),
        (-INF, 3.0, -INF),
        (-INF, -3.0, -0.0),
        (-INF, 0.5, INF),
        (0.5, INF, 0.0),
        (-2.0, INF, INF),
        (2.0, -INF, 0.0),
        (2.0, NAN, NAN),
        // The last odd number of f32.
        (-1.0, 16_777_215.0, -1.0),
        (-1.0, 16_777_216.0, 1.0),
    ];
    let (x, y): (Vec<f32>, Vec<f32>) = rows.iter().map(|&(x, y, _)| (x, y)).unzip();
    let given = run_f32(&op(K::Power, &[D::F32; 2], D::F32), &[x.clone(), y.clone()]);
    let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    let doubles = |x: &[f32]| value(&x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>());
    let wide = run(&op(K::Power, &[D::F64; 2], D::F64), &[doubles(&x), doubles(&y)]);
    let mut wrong = Vec::new();
    for ((row, &narrow), wide) in rows.iter().zip(&given).zip(wide.elements::<f64>().unwrap()) {
        if !same(row.2, narrow) || !same(row.2, wide as f32) {
            wrong.push(format!("{row:?}: {narrow} on f32, {wide} on f64"));
        }
    }
    let narrow = |x: f32| value(&[f16::from_f32(x)]);
    if run(&op(K::Power, &[D::F16; 2], D::F16), &[narrow(-1.5), narrow(3.0)]) != narrow(-3.375) {
        wrong.push("f16".into());
    }
    report(&wrong);
}

/// The six comparisons, each with what it says of a pair that is less, equal, greater or not to be compared.
const COMPARISONS: [(OpKind, [u8; 4]); 6] = [
    (K::Equal, [0, 1, 0, 0]),
    (K::NotEqual, [1, 0, 1, 1]),
    (K::Less, [1, 0, 0, 0]),
    (K::LessEqual, [1, 1, 0, 0]),
    (K::Greater, [0, 0, 1, 0]),
    (K::GreaterEqual, [0, 1, 1, 0]),
];

/// Runs all comparisons on pairs of which each is less, equal or greater, and then on pairs with NaN.
fn compare<T: Element>(pairs: [(T, T); 3], with_nan: &[(T, T)]) -> Vec<String> {
    let (x, y): (Vec<T>, Vec<T>) = pairs.iter().chain(with_nan).copied().unzip();
    let data_type = <T as Element>::DATA_TYPE;
    let outcome = |(kind, truths): (OpKind, [u8; 4])| {
        let given = run(&op(kind, &[data_type; 2], D::Boolean), &[value(&x), value(&y)]);
        let expected: Vec<Bool8> = (0..x.len()).map(|i| Bool8(truths[i.min(3)])).collect();
        (given != value(&expected)).then(|| format!("{kind} on {data_type}: {:?}", given.bytes()))
    };
    COMPARISONS.into_iter().filter_map(outcome).collect()
}

#[test]
fn comparisons_are_exact_on_every_numeric_type() {
    let half16 = |x: f32| f16::from_f32(x);
    let brain = |x: f32| bf16::from_f32(x);
    let wrong = [
        compare([(-0.0f32, TINY), (-0.0, 0.0), (INF, f32::MAX)], &[(NAN, NAN), (NAN, 1.0), (-INF, ODD_NAN)]),
        compare(
            [(1.0, 1.0 + f64::EPSILON), (-0.0f64, 0.0), (5e-324, 0.0)],
            &[(f64::NAN, f64::NAN), (1.0, f64::NAN)],
        ),
        compare(
            [(half16(1.0), half16(1.001)), (half16(-0.0), half16(0.0)), (half16(INF), f16::MAX)],
            &[(f16::NAN, f16::NAN)],
        ),
        compare(
            [(brain(1.0), brain(1.01)), (brain(-0.0), brain(0.0)), (brain(INF), bf16::MAX)],
            &[(bf16::NAN, half::bf16::NAN)],
        ),
        compare([(-128i8, 127), (-1, -1), (1, -1)], &[]),
        compare([(i16::MIN, i16::MAX), (-1, -1), (1, -1)], &[]),
        compare([(16_777_216i32, 16_777_217), (-1, -1), (1, -1)], &[]),
        // Beyond the integers of f64.
        compare([(1i64 << 53, (1 << 53) + 1), (i64::MIN, i64::MIN), (i64::MAX, i64::MAX - 1)], &[]),
        compare([(127u8, 128), (255, 255), (255, 0)], &[]),
        compare([(32767u16, 32768), (65535, 65535), (65535, 0)], &[]),
        compare([(16_777_216u32, 16_777_217), (u32::MAX, u32::MAX), (u32::MAX, 0)], &[]),
        compare([((1u64 << 63) - 1, 1 << 63), (u64::MAX, u64::MAX), (u64::MAX, u64::MAX - 1)], &[]),
    ];
    report(&wrong.concat());
}

#[test]
fn truth_values_are_true_where_not_zero() {
    let bools = |bytes: &[u8]| value(&bytes.iter().map(|&byte| Bool8(byte)).collect::<Vec<_>>());
    let (x, y) = (bools(&[0, 0, 1, 0x80, 2, 0]), bools(&[0, 1, 0, 1, 4, 0xff]));
    let rows = [
        (K::LogicalAnd, [0, 0, 0, 1, 1, 0]),
        (K::LogicalOr, [0, 1, 1, 1, 1, 1]),
        (K::LogicalXor, [0, 1, 1, 0, 0, 1]),
    ];
    let mut wrong: Vec<_> = rows
        .into_iter()
        .map(|(kind, expected)| {
            (kind, run(&op(kind, &[D::Boolean; 2], D::Boolean), &[x.clone(), y.clone()]), bools(&expected))
        })
        .collect();
    let not = run(&op(K::LogicalNot, &[D::Boolean], D::Boolean), &[x]);
    wrong.push((K::LogicalNot, not, bools(&[1, 1, 0, 0, 0, 1])));
    wrong.retain(|(_, given, expected)| given != expected);
    report(&wrong);
}

#[test]
fn classes_look_at_every_bit_pattern() {
    let mut wrong = Vec::new();
    let mut check = |x: Value, facts: [Vec<bool>; 3]| {
        for (kind, fact) in [K::IsNaN, K::IsInf, K::IsFinite].into_iter().zip(facts) {
            let given = run(&op(kind, &[x.data_type()], D::Boolean), std::slice::from_ref(&x));
            if given != Value::from_slice(&[fact.len() as i64], &fact).unwrap() {
                wrong.push((kind, x.data_type()));
            }
        }
    };
    let facts = |numbers: &[f64]| {
        let facts: [fn(&f64) -> bool; 3] = [|x| x.is_nan(), |x| x.is_infinite(), |x| x.is_finite()];
        facts.map(|fact| numbers.iter().map(fact).collect())
    };
    let all: Vec<u16> = (0..=u16::MAX).collect();
    let f16s: Vec<f16> = all.iter().map(|&bits| f16::from_bits(bits)).collect();
    check(value(&f16s), facts(&f16s.iter().map(|x| x.to_f64()).collect::<Vec<_>>()));
    let bf16s: Vec<bf16> = all.iter().map(|&bits| bf16::from_bits(bits)).collect();
    check(value(&bf16s), facts(&bf16s.iter().map(|x| x.to_f64()).collect::<Vec<_>>()));
    let f32s = [0.0, -0.0, TINY, f32::MAX, INF, -INF, NAN, ODD_NAN, f32::from_bits(0x7f80_0001)];
    check(value(&f32s), facts(&f32s.map(f64::from)));
    let f64s = [
        0.0,
        5e-324,
        f64::MAX,
        f64::INFINITY,
        -f64::INFINITY,
        f64::NAN,
        f64::from_bits(0x7ff0_0000_0000_0001),
    ];
    check(value(&f64s), facts(&f64s));
    report(&wrong);
}

#[test]
fn signs_change_and_every_other_bit_stays() {
    let all: Vec<u16> = (0..=u16::MAX).collect();
    let f16s: Vec<f16> = all.iter().map(|&bits| f16::from_bits(bits)).collect();
    let bf16s: Vec<bf16> = all.iter().map(|&bits| bf16::from_bits(bits)).collect();
    for (kind, change) in
        [(K::Abs, (|bits| bits & 0x7fff) as fn(u16) -> u16), (K::Negative, |bits| bits ^ 0x8000)]
    {
        let expected: Vec<u16> = all.iter().map(|&bits| change(bits)).collect();
        let given: Vec<f16> = run(&op(kind, &[D::F16], D::F16), &[value(&f16s)]).elements().unwrap();
        assert!(given.iter().map(|x| x.to_bits()).eq(expected.iter().copied()), "{kind} on f16");
        let given: Vec<bf16> = run(&op(kind, &[D::Bf16], D::Bf16), &[value(&bf16s)]).elements().unwrap();
        assert!(given.iter().map(|x| x.to_bits()).eq(expected), "{kind} on bf16");
    }
}

#[test]
fn identity_moves_bytes_of_every_type() {
    for &data_type in D::WHOLE {
        let bytes: Vec<u8> = (0..4 * data_type.size().unwrap()).map(|i| 0xf1 ^ (i as u8)).collect();
        let x = Value::new(data_type, &[4], bytes).unwrap();
        assert_eq!(run(&op(K::Identity, &[data_type], data_type), std::slice::from_ref(&x)), x);
    }
    let signalling = value(&[f32::from_bits(0x7fa0_0001), -0.0]);
    assert_eq!(run(&op(K::Identity, &[D::F32], D::F32), std::slice::from_ref(&signalling)), signalling);
}

fn cast<T: Element, U: Element>(x: &[T]) -> Value {
    run(&op(K::Cast, &[<T as Element>::DATA_TYPE], <U as Element>::DATA_TYPE), &[value(x)])
}

#[test]
fn casts_truncate_saturate_wrap_and_round_once() {
    let floats = [2.9f32, -2.9, NAN, -NAN, INF, -INF, 300.0, -300.0, 3e9, -3e9, 2e19, -0.9];
    let f = |x: f32| f16::from_f32(x);
    let rows: Vec<(&str, Value, Value)> = vec![
        (
            "f32 to s8",
            cast::<f32, i8>(&floats),
            value(&[2i8, -2, 0, 0, 127, -128, 127, -128, 127, -128, 127, 0]),
        ),
        ("f32 to u8", cast::<f32, u8>(&floats), value(&[2u8, 0, 0, 0, 255, 0, 255, 0, 255, 0, 255, 0])),
        (
            "f32 to s32",
            cast::<f32, i32>(&floats),
            value(&[2, -2, 0, 0, i32::MAX, i32::MIN, 300, -300, i32::MAX, i32::MIN, i32::MAX, 0]),
        ),
        (
            "f32 to s64",
            cast::<f32, i64>(&floats),
            value(&[2, -2, 0, 0, i64::MAX, i64::MIN, 300, -300, 3_000_000_000, -3_000_000_000, i64::MAX, 0]),
        ),
        (
            "f32 to u64",
            cast::<f32, u64>(&floats),
            value(&[2, 0, 0, 0, u64::MAX, 0, 300, 0, 3_000_000_000, 0, u64::MAX, 0]),
        ),
        (
            "f16 to s16",
            cast::<f16, i16>(&[f(65504.0), f(-65504.0), f16::NAN, f(1.5)]),
            value(&[32767i16, -32768, 0, 1]),
        ),
        ("bf16 to u16", cast::<bf16, u16>(&[bf16::MAX, bf16::MIN, bf16::NAN]), value(&[65535u16, 0, 0])),
        (
            "f64 to u32",
            cast::<f64, u32>(&[4294967295.5, 4294967296.0, -1.0]),
            value(&[u32::MAX, u32::MAX, 0]),
        ),
        ("s64 to s32", cast::<i64, i32>(&[1 << 32, (1 << 31) + 5, -1]), value(&[0, i32::MIN + 5, -1])),
        ("s32 to u8", cast::<i32, u8>(&[256, -1, 511]), value(&[0u8, 255, 255])),
        ("s8 to u64", cast::<i8, u64>(&[-1, 5]), value(&[u64::MAX, 5])),
        ("u64 to s64", cast::<u64, i64>(&[u64::MAX, 7]), value(&[-1i64, 7])),
        ("u16 to s32", cast::<u16, i32>(&[65535]), value(&[65535i32])),
        // A tie in f32 that the last bit of the integer decides.
        (
            "s64 to f32",
            cast::<i64, f32>(&[(1 << 53) + (1 << 29) + 1, (1 << 53) + (1 << 29), -1]),
            value(&[9007200328482816.0f32, 9007199254740992.0, -1.0]),
        ),
        ("u64 to f32", cast::<u64, f32>(&[u64::MAX, 0]), value(&[18446744073709551616.0f32, 0.0])),
        (
            "s64 to f64",
            cast::<i64, f64>(&[(1 << 53) + 1, i64::MAX]),
            value(&[9007199254740992.0, 9223372036854775808.0]),
        ),
        // Rounded to f32 first, these would become ties and go the other way.
        (
            "s32 to bf16",
            cast::<i32, bf16>(&[0x0101_0001, 0x0101_0000]),
            value(&[bf16::from_bits(0x4b81), bf16::from_bits(0x4b80)]),
        ),
        (
            "s64 to f16",
            cast::<i64, f16>(&[2049, 2051, 65519, 65520, -70000, 1 << 40]),
            value(&[f(2048.0), f(2052.0), f16::MAX, f16::INFINITY, f16::NEG_INFINITY, f16::INFINITY]),
        ),
        (
            "f64 to bf16",
            cast::<f64, bf16>(&[1.00390625, 1.00390625 + 1e-12, 1e300, -1e-300, 5e-324]),
            value(&[0x3f80, 0x3f81, 0x7f80, 0x8000, 0].map(bf16::from_bits)),
        ),
        (
            "f64 to f16",
            cast::<f64, f16>(&[
                1.00048828125,
                1.00048828125 + 1e-12,
                2f64.powi(-25),
                2f64.powi(-25) * (1.0 + 1e-12),
            ]),
            value(&[0x3c00, 0x3c01, 0, 1].map(f16::from_bits)),
        ),
        ("f64 to f32", cast::<f64, f32>(&[0.1, 1e39, 1e-46, -f64::NAN]), value(&[0.1f32, INF, 0.0, NAN])),
        (
            "f32 to f64",
            cast::<f32, f64>(&[0.1, TINY, ODD_NAN]),
            value(&[f64::from(0.1f32), f64::from(TINY), f64::NAN]),
        ),
        (
            "f16 to bf16",
            cast::<f16, bf16>(&[f(1.0 + 1.0 / 256.0), f(3.0)]),
            value(&[1.0, 3.0].map(bf16::from_f32)),
        ),
        ("boolean to s8", cast::<Bool8, i8>(&[Bool8(0), Bool8(1), Bool8(0x80)]), value(&[0i8, 1, 1])),
        ("boolean to f16", cast::<Bool8, f16>(&[Bool8(0), Bool8(0xff)]), value(&[f(0.0), f(1.0)])),
        ("boolean to u64", cast::<Bool8, u64>(&[Bool8(0), Bool8(2)]), value(&[0u64, 1])),
        // To its own type a number keeps every bit.
        (
            "f32 to f32",
            cast::<f32, f32>(&[ODD_NAN, f32::from_bits(0x7fa0_0001)]),
            value(&[ODD_NAN, f32::from_bits(0x7fa0_0001)]),
        ),
        ("s64 to itself", cast::<i64, i64>(&[i64::MIN]), value(&[i64::MIN])),
    ];
    let wrong: Vec<_> = rows.into_iter().filter(|(_, given, expected)| given != expected).collect();
    report(&wrong);
}

#[test]
fn every_pair_of_types_casts_small_numbers_exactly() {
    // 0, 1 and 100 in every type.
    fn small(data_type: DataType) -> Value {
        let numbers = [0u8, 1, 100];
        match data_type {
            D::F64 => value(&numbers.map(f64::from)),
            D::F32 => value(&numbers.map(f32::from)),
            D::F16 => value(&numbers.map(f16::from)),
            D::Bf16 => value(&numbers.map(bf16::from)),
            D::S8 => value(&numbers.map(|x| x as i8)),
            D::S16 => value(&numbers.map(i16::from)),
            D::S32 => value(&numbers.map(i32::from)),
            D::S64 => value(&numbers.map(i64::from)),
            D::U8 => value(&numbers),
            D::U16 => value(&numbers.map(u16::from)),
            D::U32 => value(&numbers.map(u32::from)),
            D::U64 => value(&numbers.map(u64::from)),
            other => panic!("{other} is no numeric type"),
        }
    }
    let mut wrong = Vec::new();
    for &from in D::NUMERIC {
        for &to in D::NUMERIC {
            if run(&op(K::Cast, &[from], to), &[small(from)]) != small(to) {
                wrong.push((from, to));
            }
        }
    }
    report(&wrong);
}

#[test]
fn fill_gives_one_number_everywhere() {
    let fill = |data_type, shape: &[i64], number: f32| {
        run(&op(K::Fill, &[], data_type).attr(Attr::Shape, shape).attr(Attr::Value, number), &[])
    };
    fn value_of<T: Element>(dims: &[i64], elements: &[T]) -> Value {
        Value::from_slice(dims, elements).unwrap()
    }
    let rows = [
        (fill(D::F32, &[2, 2], -INF), value_of(&[2, 2], &[-INF; 4])),
        (fill(D::F32, &[1], ODD_NAN), value_of(&[1], &[ODD_NAN])),
        (fill(D::F16, &[], 0.1), value_of(&[], &[f16::from_f32(0.1)])),
        (fill(D::Bf16, &[1], -1e38), value_of(&[1], &[bf16::from_f32(-1e38)])),
        (fill(D::F64, &[1], 0.1), value_of(&[1], &[f64::from(0.1f32)])),
        (fill(D::S64, &[3], -2.9), value_of(&[3], &[-2i64; 3])),
        (fill(D::S32, &[1], NAN), value_of(&[1], &[0i32])),
        (fill(D::U8, &[1], 300.0), value_of(&[1], &[255u8])),
        (fill(D::Boolean, &[2], 0.5), value_of(&[2], &[Bool8(1); 2])),
        (fill(D::Boolean, &[2], -0.0), value_of(&[2], &[Bool8(0); 2])),
        (fill(D::S8, &[0, 5], 1.0), value_of::<i8>(&[0, 5], &[])),
    ];
    let wrong: Vec<_> = rows.into_iter().filter(|(given, expected)| given != expected).collect();
    report(&wrong);
}

#[test]
fn indices_run_along_any_axis_of_any_type() {
    let shape_of = |data_type: DataType| {
        Value::new(data_type, &[2, 1, 3], vec![0; 6 * data_type.size().unwrap()]).unwrap()
    };
    let along =
        |data_type, axis: i64| run(&op(K::GenIndex, &[data_type], D::S32).axis(axis), &[shape_of(data_type)]);
    let expected = |indices: [i32; 6]| Value::from_slice(&[2, 1, 3], &indices).unwrap();
    for &data_type in D::WHOLE {
        for axis in [2, -1] {
            assert_eq!(along(data_type, axis), expected([0, 1, 2, 0, 1, 2]), "{data_type} {axis}");
        }
        for axis in [0, -3] {
            assert_eq!(along(data_type, axis), expected([0, 0, 0, 1, 1, 1]), "{data_type} {axis}");
        }
        assert_eq!(along(data_type, -2), expected([0; 6]), "{data_type}");
    }
}

#[test]
fn slopes_broadcast_onto_src() {
    let prelu = || op(K::PReLU, &[D::F32; 2], D::F32);
    let src = |dims: &[i64]| Value::from_slice(dims, &[-1.0f32; 6]).unwrap();
    let slope = |dims: &[i64], slopes: &[f32]| Value::from_slice(dims, slopes).unwrap();
    let negated = |dims: &[i64], slopes: [f32; 6]| Value::from_slice(dims, &slopes.map(|x| -x)).unwrap();
    let (cube, three, six) = ([1, 2, 3], [10.0, 20.0, 30.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let rows = [
        (
            "per channel, NXC",
            prelu(),
            slope(&[3], &three),
            negated(&cube, [10.0, 20.0, 30.0, 10.0, 20.0, 30.0]),
        ),
        (
            "per channel, NCX",
            prelu().attr(Attr::DataFormat, "NCX"),
            slope(&[2], &[1.0, 2.0]),
            negated(&cube, [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]),
        ),
        (
            "one for all, though NCX",
            prelu().attr(Attr::DataFormat, "NCX"),
            slope(&[1], &[5.0]),
            negated(&cube, [5.0; 6]),
        ),
        (
            "not per channel: the last dim, though NCX",
            prelu().attr(Attr::DataFormat, "NCX").attr(Attr::PerChannelBroadcast, false),
            slope(&[3], &three),
            negated(&cube, [10.0, 20.0, 30.0, 10.0, 20.0, 30.0]),
        ),
        ("rank 2", prelu(), slope(&[2, 1], &[1.0, 2.0]), negated(&cube, [1.0, 1.0, 1.0, 2.0, 2.0, 2.0])),
        ("rank 0", prelu(), slope(&[], &[4.0]), negated(&cube, [4.0; 6])),
        (
            "the only dim, though NCX",
            prelu().attr(Attr::DataFormat, "NCX"),
            slope(&[6], &six),
            negated(&[6], six),
        ),
    ];
    let wrong: Vec<_> = rows
        .into_iter()
        .map(|(name, op, slope, expected)| (name, run(&op, &[src(expected.dims()), slope]), expected))
        .filter(|(_, given, expected)| given != expected)
        .collect();
    report(&wrong);
}
