//! The reference interpreter against results worked out by hand.

use crate::common::plain_op;
use half::{bf16, f16};
use sterna::reference::{self, Value};
use sterna::{
    Attr, AutoBroadcast, Bool8, BroadcastFault, DataType, Direction, Element, Engine, Error, LogicalTensor,
    Op, OpKind, PortRef, ShapeFault, Status, Tensor, TensorBuf, TensorFault,
};

use DataType as D;
use OpKind as K;

const INF: f32 = f32::INFINITY;
const NAN: f32 = f32::NAN;

/// An op on tensors of which only the types are known; inputs have ids from 0, outputs from 100.
fn op(kind: OpKind, inputs: &[DataType], outputs: &[DataType]) -> Op {
    let input = |(id, &data_type)| LogicalTensor::unknown(id, data_type);
    let op = Op::new(7, kind).inputs_from(inputs.iter().enumerate().map(input));
    outputs
        .iter()
        .enumerate()
        .fold(op, |op, (id, &data_type)| op.output(LogicalTensor::unknown(100 + id, data_type)))
}

fn select(data_type: DataType) -> Op {
    op(K::Select, &[D::Boolean, data_type, data_type], &[data_type])
}

pub(crate) fn value<T: Element>(dims: &[i64], elements: &[T]) -> Value {
    Value::from_slice(dims, elements).unwrap()
}

/// Elements of a 16-bit float.
fn bf16s(dims: &[i64], numbers: &[f32]) -> Value {
    value(dims, &numbers.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>())
}

fn f16s(dims: &[i64], numbers: &[f32]) -> Value {
    value(dims, &numbers.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>())
}

fn bools(dims: &[i64], bytes: &[u8]) -> Value {
    value(dims, &bytes.iter().map(|&byte| Bool8(byte)).collect::<Vec<_>>())
}

/// An op by name, its inputs, and its results.
pub(crate) type Row = (&'static str, Op, Vec<Value>, Vec<Value>);

/// Runs each row and compares all bits of the results.
pub(crate) fn check(rows: Vec<Row>) {
    let wrong: Vec<String> = rows
        .into_iter()
        .filter_map(|(name, op, inputs, expected)| {
            let result = reference::run(&op, &inputs);
            (result.as_ref() != Ok(&expected)).then(|| format!("{name}: {result:?}, expected {expected:?}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn select_broadcasts_in_each_mode() {
    let then_2x3 = || value(&[2, 3], &[1i32, 2, 3, 4, 5, 6]);
    let row = |mode: AutoBroadcast| select(D::S32).auto_broadcast(mode);
    use AutoBroadcast::{Multidirectional, None, Numpy, Pdpd};
    check(vec![
        (
            "none: equal shapes",
            row(None),
            vec![
                bools(&[2, 2], &[1, 0, 0, 1]),
                value(&[2, 2], &[1i32, 2, 3, 4]),
                value(&[2, 2], &[5i32, 6, 7, 8]),
            ],
            vec![value(&[2, 2], &[1i32, 6, 7, 4])],
        ),
        (
            "numpy is the default",
            select(D::S32),
            vec![bools(&[3], &[1, 0, 1]), then_2x3(), value(&[], &[0i32])],
            vec![value(&[2, 3], &[1i32, 0, 3, 4, 0, 6])],
        ),
        (
            "numpy: then and else enlarge each other",
            row(Numpy),
            vec![bools(&[2, 1], &[1, 0]), value(&[2, 1], &[1i32, 2]), value(&[1, 3], &[7i32, 8, 9])],
            vec![value(&[2, 3], &[1i32, 1, 1, 7, 8, 9])],
        ),
        (
            "numpy: a missing dim of then is 1",
            row(Numpy),
            vec![bools(&[], &[1]), value(&[3], &[1i32, 2, 3]), value(&[2, 1], &[7i32, 8])],
            vec![value(&[2, 3], &[1i32, 2, 3, 1, 2, 3])],
        ),
        (
            "numpy: cond {2,1,2} onto {2,2,2}",
            row(Numpy),
            vec![
                bools(&[2, 1, 2], &[1, 0, 0, 1]),
                value(&[2, 2, 2], &[1i32, 2, 3, 4, 5, 6, 7, 8]),
                value(&[1], &[0i32]),
            ],
            vec![value(&[2, 2, 2], &[1i32, 0, 3, 0, 0, 6, 0, 8])],
        ),
        (
            "pdpd: right-aligned without axis",
            row(Pdpd),
            vec![bools(&[3], &[1, 0, 0]), then_2x3(), value(&[1, 3], &[7i32, 8, 9])],
            vec![value(&[2, 3], &[1i32, 8, 9, 4, 8, 9])],
        ),
        (
            "pdpd: axis 0 aligns left",
            row(Pdpd).axis(0),
            vec![bools(&[2], &[0, 1]), then_2x3(), value(&[2], &[7i32, 8])],
            vec![value(&[2, 3], &[7i32, 7, 7, 4, 5, 6])],
        ),
        (
            "pdpd: trailing 1s are ignored, else and cond of different rank",
            row(Pdpd).axis(1),
            vec![
                bools(&[2], &[1, 0]),
                value(&[2, 2, 2], &[1i32, 2, 3, 4, 5, 6, 7, 8]),
                value(&[2, 1], &[10i32, 20]),
            ],
            vec![value(&[2, 2, 2], &[1i32, 2, 20, 20, 5, 6, 20, 20])],
        ),
        (
            "multidirectional: cond enlarges by a leading dim",
            row(Multidirectional),
            vec![bools(&[2, 1], &[0, 1]), value(&[3], &[1i32, 2, 3]), value(&[], &[0i32])],
            vec![value(&[2, 3], &[0i32, 0, 0, 1, 2, 3])],
        ),
        (
            "multidirectional: cond enlarges a 1",
            row(Multidirectional),
            vec![bools(&[3], &[0, 1, 0]), value(&[1], &[1i32]), value(&[1], &[0i32])],
            vec![value(&[3], &[0i32, 1, 0])],
        ),
    ]);
}

#[test]
fn select_takes_every_byte_but_zero_for_true_and_every_rank() {
    let ones = [1i64; 12];
    let mut twelve = ones;
    (twelve[0], twelve[11]) = (2, 2);
    check(vec![
        (
            "condition bytes",
            select(D::U8),
            vec![bools(&[5], &[0, 1, 2, 0x80, 0xff]), value(&[5], &[1u8; 5]), value(&[5], &[9u8; 5])],
            vec![value(&[5], &[9u8, 1, 1, 1, 1])],
        ),
        (
            "boolean data moves unchanged",
            select(D::Boolean),
            vec![bools(&[2], &[1, 0]), bools(&[2], &[0x55, 1]), bools(&[2], &[0, 0xaa])],
            vec![bools(&[2], &[0x55, 0xaa])],
        ),
        (
            "rank 0",
            select(D::F64),
            vec![bools(&[], &[0]), value(&[], &[1f64]), value(&[], &[-0f64])],
            vec![value(&[], &[-0f64])],
        ),
        (
            "rank 12",
            select(D::S16),
            vec![bools(&[2], &[1, 0]), value(&twelve, &[1i16, 2, 3, 4]), value(&ones, &[-1i16])],
            vec![value(&twelve, &[1i16, -1, 3, -1])],
        ),
        (
            "a dim of 0",
            select(D::F32),
            vec![bools(&[1], &[1]), value::<f32>(&[2, 0, 3], &[]), value(&[3], &[1f32, 2.0, 3.0])],
            vec![value::<f32>(&[2, 0, 3], &[])],
        ),
        (
            "1 fits onto 0",
            select(D::F32).auto_broadcast(AutoBroadcast::Pdpd),
            vec![bools(&[1], &[1]), value::<f32>(&[0], &[]), value(&[1], &[1f32])],
            vec![value::<f32>(&[0], &[])],
        ),
    ]);
}

#[test]
fn select_keeps_every_bit() {
    // A signalling NaN with a payload, its negative, minus zero, the smallest denormal.
    let f32s = [0x7fa0_0001u32, 0xffa0_0001, 0x8000_0000, 1].map(f32::from_bits);
    let f64s = [0x7ff0_0000_0000_0001u64, 0xfff0_0000_0000_0001, 1 << 63, 1].map(f64::from_bits);
    let f16s = [0x7d01u16, 0xfd01, 0x8000, 1].map(f16::from_bits);
    let bf16s = [0x7f81u16, 0xff81, 0x8000, 1].map(bf16::from_bits);
    let floats = [value(&[4], &f32s), value(&[4], &f64s), value(&[4], &f16s), value(&[4], &bf16s)];
    let others = D::WHOLE.iter().map(|&data_type| {
        let bytes = (0..4 * data_type.size().unwrap()).map(|i| 0xf1 ^ (i as u8)).collect();
        Value::new(data_type, &[4], bytes).unwrap()
    });
    for kept in floats.into_iter().chain(others) {
        let zeros = Value::new(kept.data_type(), &[4], vec![0; kept.bytes().len()]).unwrap();
        for (then, otherwise, cond) in [(&kept, &zeros, [1; 4]), (&zeros, &kept, [0; 4])] {
            let inputs = [bools(&[4], &cond), then.clone(), otherwise.clone()];
            let result = reference::run(&select(kept.data_type()), &inputs).unwrap();
            assert_eq!(result, std::slice::from_ref(&kept), "{}", kept.data_type());
        }
    }
}

#[test]
fn arithmetic_is_f32_arithmetic_or_wrapping_s32() {
    let f32_op = |kind| op(kind, &[D::F32, D::F32], &[D::F32]);
    let s32_op = |kind| op(kind, &[D::S32, D::S32], &[D::S32]);
    let pair = |a: &[f32], b: &[f32]| vec![value(&[a.len() as i64], a), value(&[b.len() as i64], b)];
    let f32s = |numbers: &[f32]| vec![value(&[numbers.len() as i64], numbers)];
    check(vec![
        (
            "Add",
            f32_op(K::Add),
            pair(&[1.0, 1.0, INF, NAN, 3e38], &[2.0, f32::EPSILON / 2.0, -INF, 1.0, 3e38]),
            f32s(&[3.0, 1.0, NAN, NAN, INF]),
        ),
        ("Subtract", f32_op(K::Subtract), pair(&[1.0, 0.0], &[2.5, 0.0]), f32s(&[-1.5, 0.0])),
        (
            "Multiply: denormals are kept",
            f32_op(K::Multiply),
            pair(&[3.0, -0.0, f32::MIN_POSITIVE], &[-2.0, 1.0, 0.5]),
            f32s(&[-6.0, -0.0, f32::MIN_POSITIVE / 2.0]),
        ),
        (
            "Divide",
            f32_op(K::Divide),
            pair(&[1.0, 1.0, -1.0, 0.0], &[3.0, 0.0, 0.0, 0.0]),
            f32s(&[1.0 / 3.0, INF, -INF, NAN]),
        ),
        (
            "Maximum",
            f32_op(K::Maximum),
            pair(&[1.0, -0.0, 0.0, NAN, 1.0, -INF], &[2.0, 0.0, -0.0, 1.0, NAN, -3.0]),
            f32s(&[2.0, 0.0, 0.0, NAN, NAN, -3.0]),
        ),
        (
            "Minimum",
            f32_op(K::Minimum),
            pair(&[1.0, -0.0, 0.0, NAN, 1.0, -INF], &[2.0, 0.0, -0.0, 1.0, NAN, -3.0]),
            f32s(&[1.0, -0.0, -0.0, NAN, NAN, -INF]),
        ),
        (
            "Add s32 wraps",
            s32_op(K::Add),
            vec![value(&[2], &[i32::MAX, -5]), value(&[2], &[1, 3])],
            vec![value(&[2], &[i32::MIN, -2])],
        ),
        (
            "Subtract s32 wraps",
            s32_op(K::Subtract),
            vec![value(&[2], &[i32::MIN, 16_777_217]), value(&[2], &[1, 0])],
            vec![value(&[2], &[i32::MAX, 16_777_217])],
        ),
        (
            "Divide s32 rounds down, and by 0 it is 0",
            s32_op(K::Divide),
            vec![value(&[6], &[7, -7, 7, -7, 5, i32::MIN]), value(&[6], &[2, 2, -2, -2, 0, -1])],
            vec![value(&[6], &[3, -4, -4, 3, 0, i32::MIN])],
        ),
        (
            "Modulo s32 has the sign of the divisor, and by 0 it is 0",
            s32_op(K::Modulo),
            vec![value(&[7], &[7, -7, 7, -7, 5, i32::MIN, 6]), value(&[7], &[3, 3, -3, -3, 0, -1, -3])],
            vec![value(&[7], &[1, 2, -2, -1, 0, 0, 0])],
        ),
        (
            "Modulo s64 broadcasts",
            op(K::Modulo, &[D::S64, D::S64], &[D::S64]),
            vec![value(&[2, 1], &[i64::MAX, i64::MIN]), value(&[2], &[10i64, 7])],
            vec![value(&[2, 2], &[7i64, 0, 2, 6])],
        ),
        (
            "Power s32 wraps, and of a negative exponent it is cut off",
            s32_op(K::Power),
            vec![
                value(&[9], &[3, -3, 3, 0, 1, -1, -1, 2, 0]),
                value(&[9], &[5, 3, 21, 0, -7, -7, -8, -1, -1]),
            ],
            vec![value(&[9], &[243, -27, 1_870_418_611, 1, 1, -1, 1, 0, 0])],
        ),
        (
            "Power s64 broadcasts",
            op(K::Power, &[D::S64, D::S64], &[D::S64]),
            vec![value(&[2, 1], &[2i64, -3]), value(&[2], &[63i64, 2])],
            vec![value(&[2, 2], &[i64::MIN, 4, 3_237_885_987_332_494_933, 9])],
        ),
        (
            "Divide s64",
            op(K::Divide, &[D::S64, D::S64], &[D::S64]),
            vec![value(&[2], &[i64::MIN, i64::MAX]), value(&[2], &[3i64, -2])],
            vec![value(&[2], &[-3_074_457_345_618_258_603i64, -4_611_686_018_427_387_904])],
        ),
        (
            "Abs and its overflow",
            op(K::Abs, &[D::S32], &[D::S32]),
            vec![value(&[4], &[-5, 0, 5, i32::MIN])],
            vec![value(&[4], &[5, 0, 5, i32::MIN])],
        ),
        (
            "Negative and its overflow",
            op(K::Negative, &[D::S64], &[D::S64]),
            vec![value(&[3], &[-5i64, 0, i64::MIN])],
            vec![value(&[3], &[5i64, 0, i64::MIN])],
        ),
        (
            "broadcasting both ways",
            f32_op(K::Add),
            vec![value(&[2, 1], &[1f32, 2.0]), value(&[3], &[10f32, 20.0, 30.0])],
            vec![value(&[2, 3], &[11f32, 21.0, 31.0, 12.0, 22.0, 32.0])],
        ),
        (
            "rank 0",
            f32_op(K::Multiply),
            vec![value(&[], &[3f32]), value(&[], &[4f32])],
            vec![value(&[], &[12f32])],
        ),
        (
            "a dim of 0",
            f32_op(K::Add),
            vec![value::<f32>(&[0, 3], &[]), value(&[1, 3], &[1f32, 2.0, 3.0])],
            vec![value::<f32>(&[0, 3], &[])],
        ),
        (
            "bf16 rounds to even",
            op(K::Add, &[D::Bf16, D::Bf16], &[D::Bf16]),
            vec![bf16s(&[2], &[1.0, 1.0078125]), bf16s(&[2], &[1.0 / 256.0, 1.0 / 256.0])],
            vec![bf16s(&[2], &[1.0, 1.015625])],
        ),
        (
            "bf16 denormals are kept",
            op(K::Add, &[D::Bf16, D::Bf16], &[D::Bf16]),
            vec![value(&[1], &[bf16::from_bits(1)]), value(&[1], &[bf16::from_bits(2)])],
            vec![value(&[1], &[bf16::from_bits(3)])],
        ),
        (
            "f16 overflows",
            op(K::Multiply, &[D::F16, D::F16], &[D::F16]),
            vec![f16s(&[2], &[256.0, 0.1]), f16s(&[2], &[256.0, 1.0])],
            vec![f16s(&[2], &[INF, 0.1])],
        ),
        (
            "f16 and f32 to f32",
            op(K::Divide, &[D::F16, D::F32], &[D::F32]),
            vec![f16s(&[1], &[1.0]), value(&[1], &[3f32])],
            vec![value(&[1], &[1f32 / 3.0])],
        ),
        (
            "bf16 and f32 to bf16",
            op(K::Subtract, &[D::Bf16, D::F32], &[D::Bf16]),
            vec![bf16s(&[1], &[2.0]), value(&[1], &[0.5f32])],
            vec![bf16s(&[1], &[1.5])],
        ),
    ]);
}

#[test]
fn greater_equal_gives_bytes() {
    let compare = |data_type| op(K::GreaterEqual, &[data_type, data_type], &[D::Boolean]);
    check(vec![
        (
            "f32",
            compare(D::F32),
            vec![value(&[5], &[1f32, 2.0, NAN, 0.0, -INF]), value(&[5], &[2f32, 2.0, NAN, -0.0, INF])],
            vec![bools(&[5], &[0, 1, 0, 1, 0])],
        ),
        (
            "s32 beyond the integers of f32, as in a causal mask",
            compare(D::S32),
            vec![value(&[2, 1], &[16_777_217, 0]), value(&[2], &[16_777_216, 16_777_218])],
            vec![bools(&[2, 2], &[1, 0, 0, 0])],
        ),
        ("f16", compare(D::F16), vec![f16s(&[], &[1.0]), f16s(&[], &[1.0])], vec![bools(&[], &[1])]),
    ]);
}

#[test]
fn functions_of_one_number() {
    let rows: &[(OpKind, &[(f32, f32)])] = &[
        (K::Abs, &[(-1.5, 1.5), (-0.0, 0.0), (-INF, INF), (NAN, NAN)]),
        (K::Exp, &[(0.0, 1.0), (1.0, std::f32::consts::E), (-INF, 0.0), (89.0, INF)]),
        (K::Log, &[(1.0, 0.0), (std::f32::consts::E, 0.99999994), (0.0, -INF), (-1.0, NAN)]),
        (K::ReLU, &[(-2.0, 0.0), (2.0, 2.0), (NAN, NAN)]),
        (K::Reciprocal, &[(4.0, 0.25), (-0.0, -INF)]),
        (K::Round, &[(0.5, 0.0), (1.5, 2.0), (-2.5, -2.0), (2.6, 3.0)]),
        (K::Sigmoid, &[(0.0, 0.5), (-INF, 0.0), (INF, 1.0), (1.0, 0.7310586)]),
        (K::Sqrt, &[(9.0, 3.0), (2.0, std::f32::consts::SQRT_2), (-1.0, NAN)]),
        (K::Square, &[(-3.0, 9.0), (1e30, INF)]),
        (K::Tanh, &[(0.0, 0.0), (INF, 1.0), (1.0, 0.7615942)]),
        (K::Sin, &[(-0.0, -0.0), (1.0, 0.84147096), (INF, NAN), (NAN, NAN)]),
        (K::Cos, &[(0.0, 1.0), (1.0, 0.5403023), (-INF, NAN)]),
    ];
    let table = rows.iter().map(|&(kind, pairs)| {
        let (x, y): (Vec<f32>, Vec<f32>) = pairs.iter().copied().unzip();
        let dims = [x.len() as i64];
        (kind.name(), op(kind, &[D::F32], &[D::F32]), vec![value(&dims, &x)], vec![value(&dims, &y)])
    });
    check(table.collect());
}

#[test]
fn casts_round_to_even() {
    check(vec![
        (
            "f32 to bf16",
            op(K::TypeCast, &[D::F32], &[D::Bf16]),
            vec![value(
                &[4],
                &[1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0, 1.0 + 1.0 / 256.0 + f32::EPSILON, -INF],
            )],
            vec![bf16s(&[4], &[1.0, 1.015625, 1.0078125, -INF])],
        ),
        (
            "f32 to f16",
            op(K::TypeCast, &[D::F32], &[D::F16]),
            vec![value(&[4], &[65519.0f32, 65520.0, 2f32.powi(-25), 1.5 * 2f32.powi(-25)])],
            vec![value(&[4], &[0x7bff, 0x7c00, 0, 1].map(f16::from_bits))],
        ),
        (
            "f16 to f32",
            op(K::TypeCast, &[D::F16], &[D::F32]),
            vec![value(&[2], &[1, 0x7d01].map(f16::from_bits))],
            vec![value(&[2], &[2f32.powi(-24), NAN])],
        ),
        (
            "bf16 to f32",
            op(K::TypeCast, &[D::Bf16], &[D::F32]),
            vec![value(&[2], &[1, 0xc000].map(bf16::from_bits))],
            vec![value(&[2], &[f32::from_bits(1 << 16), -2.0])],
        ),
    ]);
}

#[test]
fn matmul_multiplies_rows_by_columns() {
    let f32_op = || op(K::MatMul, &[D::F32, D::F32], &[D::F32]);
    let biased = || op(K::MatMul, &[D::F32, D::F32, D::F32], &[D::F32]);
    let a = || value(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let a_transposed = || value(&[3, 2], &[1f32, 4.0, 2.0, 5.0, 3.0, 6.0]);
    let b = || value(&[3, 2], &[1f32, 0.0, 2.0, 1.0, 0.0, 3.0]);
    let b_transposed = || value(&[2, 3], &[1f32, 2.0, 0.0, 0.0, 1.0, 3.0]);
    let product = || vec![value(&[2, 2], &[5f32, 11.0, 14.0, 23.0])];
    let (ta, tb) = (Attr::TransposeA, Attr::TransposeB);
    check(vec![
        ("plain", f32_op(), vec![a(), b()], product()),
        ("transpose_a", f32_op().attr(ta, true), vec![a_transposed(), b()], product()),
        ("transpose_b", f32_op().attr(tb, true), vec![a(), b_transposed()], product()),
        (
            "both transposed",
            f32_op().attr(ta, true).attr(tb, true),
            vec![a_transposed(), b_transposed()],
            product(),
        ),
        (
            "batches broadcast",
            f32_op(),
            vec![value(&[2, 1, 1, 2], &[1f32, 2.0, 3.0, 4.0]), value(&[2, 2, 1], &[1f32, 0.0, 0.0, 1.0])],
            vec![value(&[2, 2, 1, 1], &[1f32, 2.0, 3.0, 4.0])],
        ),
        (
            "batches broadcast, transposed",
            f32_op().attr(tb, true),
            vec![value(&[1, 2], &[1f32, 2.0]), value(&[2, 2, 2], &[1f32, 0.0, 0.0, 1.0, 1.0, 1.0, 2.0, 2.0])],
            vec![value(&[2, 1, 2], &[1f32, 2.0, 3.0, 6.0])],
        ),
        (
            "a row times a matrix",
            f32_op().attr(ta, true),
            vec![value(&[3], &[1f32, 2.0, 3.0]), b()],
            vec![value(&[2], &[5f32, 11.0])],
        ),
        (
            "a matrix times a column",
            f32_op().attr(tb, true),
            vec![a(), value(&[3], &[1f32, 0.0, 2.0])],
            vec![value(&[2], &[7f32, 16.0])],
        ),
        (
            "a row times a batch",
            f32_op(),
            vec![value(&[2], &[1f32, 2.0]), value(&[2, 2, 1], &[1f32, 1.0, 2.0, 3.0])],
            vec![value(&[2, 1], &[3f32, 8.0])],
        ),
        (
            "two vectors",
            f32_op(),
            vec![value(&[2], &[1f32, 2.0]), value(&[2], &[3f32, 4.0])],
            vec![value(&[], &[11f32])],
        ),
        (
            "bias of one dim",
            biased(),
            vec![a(), b(), value(&[2], &[10f32, 20.0])],
            vec![value(&[2, 2], &[15f32, 31.0, 24.0, 43.0])],
        ),
        (
            "bias of one column",
            biased(),
            vec![a(), b(), value(&[2, 1], &[10f32, 20.0])],
            vec![value(&[2, 2], &[15f32, 21.0, 34.0, 43.0])],
        ),
        (
            "a sum of nothing",
            biased(),
            vec![value::<f32>(&[2, 0], &[]), value::<f32>(&[0, 1], &[]), value(&[1], &[3f32])],
            vec![value(&[2, 1], &[3f32, 3.0])],
        ),
        ("no rows", f32_op(), vec![value::<f32>(&[0, 3], &[]), b()], vec![value::<f32>(&[0, 2], &[])]),
        (
            "sums do not round in between",
            f32_op(),
            vec![value(&[3], &[1e8f32, 1.0, -1e8]), value(&[3], &[1f32, 1.0, 1.0])],
            vec![value(&[], &[1f32])],
        ),
        (
            "bf16 to f32",
            op(K::MatMul, &[D::Bf16, D::Bf16], &[D::F32]),
            vec![bf16s(&[2], &[1.0, 1.0]), bf16s(&[2], &[1.0, 1.0 / 256.0])],
            vec![value(&[], &[1.0 + 1.0 / 256f32])],
        ),
        (
            "f16 with bias to f16",
            op(K::MatMul, &[D::F16, D::F16, D::F16], &[D::F16]),
            vec![f16s(&[1, 1], &[2.0]), f16s(&[1, 1], &[3.0]), f16s(&[1], &[0.5])],
            vec![f16s(&[1, 1], &[6.5])],
        ),
    ]);
}

#[test]
fn softmax_and_its_statistics() {
    let plain = |axis: i64| op(K::SoftMax, &[D::F32], &[D::F32]).axis(axis);
    let with_stats = |axis: i64| op(K::SoftMax, &[D::F32], &[D::F32, D::F32]).axis(axis);
    check(vec![
        (
            "axis is 1 unless set",
            op(K::SoftMax, &[D::F32], &[D::F32]),
            vec![value(&[1, 2, 2], &[0f32, 1000.0, 0.0, 0.0])],
            vec![value(&[1, 2, 2], &[0.5f32, 1.0, 0.5, 0.0])],
        ),
        (
            "last axis",
            with_stats(-1),
            vec![value(&[2, 2], &[0f32, 1.0, 1000.0, 1000.0])],
            vec![
                value(&[2, 2], &[0.26894142f32, 0.7310586, 0.5, 0.5]),
                value(&[2, 1], &[1.3132616875182228_f64 as f32, 1000.6931471805599_f64 as f32]),
            ],
        ),
        (
            "first axis",
            with_stats(0),
            vec![value(&[2, 2], &[0f32, 1000.0, 1.0, 1000.0])],
            vec![
                value(&[2, 2], &[0.26894142f32, 0.5, 0.7310586, 0.5]),
                value(&[1, 2], &[1.3132616875182228_f64 as f32, 1000.6931471805599_f64 as f32]),
            ],
        ),
        (
            "negative axis",
            plain(-2),
            vec![value(&[2, 1], &[3f32, 3.0])],
            vec![value(&[2, 1], &[0.5f32, 0.5])],
        ),
        (
            "a row of minus infinity",
            with_stats(1).attr(Attr::Mode, "none"),
            vec![value(&[2, 2], &[-INF, -INF, -INF, 2.0])],
            vec![value(&[2, 2], &[NAN, NAN, 0.0, 1.0]), value(&[2, 1], &[NAN, 2.0])],
        ),
        (
            "a row of minus infinity as zeros",
            with_stats(1).attr(Attr::Mode, "inf_as_zero"),
            vec![value(&[3, 2], &[-INF, -INF, -INF, 2.0, NAN, -INF])],
            vec![value(&[3, 2], &[0.0, 0.0, 0.0, 1.0, NAN, NAN]), value(&[3, 1], &[0.0, 2.0, NAN])],
        ),
        (
            "plus infinity",
            plain(0).attr(Attr::Mode, "inf_as_zero"),
            vec![value(&[2], &[INF, 0.0])],
            vec![value(&[2], &[NAN, NAN])],
        ),
        (
            "bf16 to f32",
            op(K::SoftMax, &[D::Bf16], &[D::F32]).axis(0),
            vec![bf16s(&[2], &[0.0, 1.0])],
            vec![value(&[2], &[0.26894142f32, 0.7310586])],
        ),
        (
            "an empty row has statistics",
            with_stats(1),
            vec![value::<f32>(&[2, 0], &[])],
            vec![value::<f32>(&[2, 0], &[]), value(&[2, 1], &[-INF, -INF])],
        ),
        (
            "no rows, however large",
            plain(1),
            vec![value::<f32>(&[1 << 40, 0, 1 << 40], &[])],
            vec![value::<f32>(&[1 << 40, 0, 1 << 40], &[])],
        ),
    ]);
}

#[test]
fn indices_shapes_and_biases() {
    let six = || value(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let gen_index = |axis: i64| op(K::GenIndex, &[D::F32], &[D::S32]).axis(axis);
    let transpose = |order: &[i64]| op(K::StaticTranspose, &[D::F32], &[D::F32]).attr(Attr::Order, order);
    let reshape = |shape: &[i64], special_zero: bool| {
        let op = op(K::StaticReshape, &[D::F32], &[D::F32]);
        op.attr(Attr::Shape, shape).attr(Attr::SpecialZero, special_zero)
    };
    let slice = |starts: &[i64], ends: &[i64], steps: &[i64]| {
        let op = op(K::Slice, &[D::F32], &[D::F32]).attr(Attr::Starts, starts).attr(Attr::Ends, ends);
        op.attr(Attr::Steps, steps)
    };
    let six_as = |dims: &[i64]| vec![value(dims, &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0])];
    let cube = || value(&[1, 2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let bias_add = |format: &str| op(K::BiasAdd, &[D::F32, D::F32], &[D::F32]).attr(Attr::DataFormat, format);
    check(vec![
        ("GenIndex 0", gen_index(0), vec![six()], vec![value(&[2, 3], &[0i32, 0, 0, 1, 1, 1])]),
        ("GenIndex -1", gen_index(-1), vec![six()], vec![value(&[2, 3], &[0i32, 1, 2, 0, 1, 2])]),
        (
            "GenIndex of nothing",
            gen_index(1),
            vec![value::<f32>(&[2, 0], &[])],
            vec![value::<i32>(&[2, 0], &[])],
        ),
        (
            "StaticTranspose",
            transpose(&[1, 0]),
            vec![six()],
            vec![value(&[3, 2], &[1f32, 4.0, 2.0, 5.0, 3.0, 6.0])],
        ),
        (
            "StaticTranspose {1,2,3} to {3,1,2}",
            transpose(&[-1, 0, 1]),
            vec![cube()],
            vec![value(&[3, 1, 2], &[1f32, 4.0, 2.0, 5.0, 3.0, 6.0])],
        ),
        (
            "StaticTranspose without an order",
            transpose(&[]),
            vec![cube()],
            vec![value(&[3, 2, 1], &[1f32, 4.0, 2.0, 5.0, 3.0, 6.0])],
        ),
        ("StaticTranspose of rank 0", transpose(&[]), vec![value(&[], &[1f32])], vec![value(&[], &[1f32])]),
        ("StaticReshape", reshape(&[3, 2], false), vec![six()], six_as(&[3, 2])),
        ("StaticReshape -1", reshape(&[1, -1], false), vec![six()], six_as(&[1, 6])),
        ("StaticReshape special_zero", reshape(&[0, 1, -1], true), vec![six()], six_as(&[2, 1, 3])),
        (
            "StaticReshape special_zero of a dim of 0",
            reshape(&[0, 3, -1], true),
            vec![value::<f32>(&[0, 6], &[])],
            vec![value::<f32>(&[0, 3, 2], &[])],
        ),
        (
            "StaticReshape to a dim of 0",
            reshape(&[0, 7], false),
            vec![value::<f32>(&[3, 0], &[])],
            vec![value::<f32>(&[0, 7], &[])],
        ),
        ("Slice", slice(&[0, 1], &[2, 3], &[]), vec![six()], vec![value(&[2, 2], &[2f32, 3.0, 5.0, 6.0])]),
        (
            "Slice backwards, from the end and beyond it",
            slice(&[-1, 9], &[-9, -4], &[-1, -2]),
            vec![six()],
            vec![value(&[2, 2], &[6f32, 4.0, 3.0, 1.0])],
        ),
        (
            "Slice of the last dim, steps that do not end with it",
            slice(&[0], &[i64::MAX], &[2]).attr(Attr::Axes, vec![-1i64]),
            vec![six()],
            vec![value(&[2, 2], &[1f32, 3.0, 4.0, 6.0])],
        ),
        (
            "Slice by the smallest step",
            slice(&[1, 2], &[-9, i64::MIN], &[i64::MIN, i64::MIN]),
            vec![six()],
            vec![value(&[1, 1], &[6f32])],
        ),
        ("Slice of nothing", slice(&[2], &[1], &[]), vec![six()], vec![value::<f32>(&[0, 3], &[])]),
        (
            "Slice of a dim of 0",
            slice(&[0], &[-1], &[-1]),
            vec![value::<f32>(&[0, 3], &[])],
            vec![value::<f32>(&[0, 3], &[])],
        ),
        ("Slice without ranges", slice(&[], &[], &[]), vec![value(&[], &[1f32])], vec![value(&[], &[1f32])]),
        (
            "Reorder keeps bits",
            op(K::Reorder, &[D::F32], &[D::F32]),
            vec![value(&[2], &[f32::from_bits(0x7fa0_0001), -0.0])],
            vec![value(&[2], &[f32::from_bits(0x7fa0_0001), -0.0])],
        ),
        (
            "BiasAdd NXC",
            bias_add("NXC"),
            vec![cube(), value(&[3], &[10f32, 20.0, 30.0])],
            vec![value(&[1, 2, 3], &[11f32, 22.0, 33.0, 14.0, 25.0, 36.0])],
        ),
        (
            "BiasAdd NCX",
            bias_add("NCX"),
            vec![cube(), value(&[2], &[10f32, 20.0])],
            vec![value(&[1, 2, 3], &[11f32, 12.0, 13.0, 24.0, 25.0, 26.0])],
        ),
    ]);
}

#[test]
fn shapes_of_results_follow_from_shapes_alone() {
    let add = op(OpKind::Add, &[DataType::F32, DataType::F32], &[DataType::F32]);
    let shapes = |op: &Op, inputs: &[&[i64]]| {
        let shapes = reference::output_shapes(op, inputs);
        shapes.map(|shapes| shapes.map(|shapes| shapes.iter().map(|dims| dims.to_vec()).collect::<Vec<_>>()))
    };
    // More elements than any value has.
    assert_eq!(shapes(&add, &[&[1 << 30, 1], &[1 << 20]]), Ok(Some(vec![vec![1 << 30, 1 << 20]])));
    // Which dims are summed up, the second input holds.
    let sum = op(OpKind::ReduceSum, &[DataType::F32, DataType::S32], &[DataType::F32]);
    assert_eq!(shapes(&sum, &[&[2], &[1]]), Ok(None));
    let refused: &[(&[&[i64]], Status)] = &[
        (&[&[2]], Status::InvalidGraphOp),
        (&[&[2], &[3]], Status::InvalidShape),
        (&[&[1 << 40, 1], &[1 << 40]], Status::InvalidShape),
        (&[&[2], &[-1]], Status::InvalidArguments),
        (&[&[2], &[i64::MIN]], Status::InvalidArguments),
        (&[&[2], &[1; 13]], Status::InvalidArguments),
    ];
    let wrong: Vec<_> = refused
        .iter()
        .map(|(inputs, status)| (inputs, status, shapes(&add, inputs).map_err(|error| error.status())))
        .filter(|(_, status, found)| *found != Err(**status))
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn all_kinds_but_these_are_supported() {
    let supports = |kind: &OpKind| reference::supports(&plain_op(*kind)).is_ok();
    let supported: Vec<OpKind> = K::ALL.iter().copied().filter(supports).collect();
    let unknown = [K::End, K::Wildcard];
    let expected: Vec<OpKind> = K::ALL.iter().copied().filter(|kind| !unknown.contains(kind)).collect();
    assert_eq!(supported, expected);
}

#[test]
fn what_cannot_be_run_is_an_error() {
    let f32_op = |kind| op(kind, &[D::F32, D::F32], &[D::F32]);
    let one = || value(&[1], &[1f32]);
    let long = |axis: usize| {
        let mut dims = [1i64; 3];
        dims[axis] = 1 << 20;
        dims
    };
    let megabyte = vec![0u8; 1 << 20];
    let port = |index, name| PortRef::new(Direction::Input, index, name, index);
    let rows: Vec<(&str, Op, Vec<Value>, Status, String)> = vec![
        (
            "a kind that is not known",
            op(K::Wildcard, &[D::F32], &[D::F32]),
            vec![one()],
            Status::Unimplemented,
            "Wildcard (op 7): the reference interpreter does not know ops of this kind".into(),
        ),
        (
            "s32 and f32 mixed",
            op(K::Add, &[D::S32, D::F32], &[D::F32]),
            vec![value(&[1], &[1i32]), one()],
            Status::Unimplemented,
            "Add (op 7): the reference interpreter does not mix f64 and integers with other types".into(),
        ),
        (
            "s32 and s64 mixed",
            op(K::Add, &[D::S32, D::S64], &[D::S64]),
            vec![value(&[1], &[1i32]), value(&[1], &[1i64])],
            Status::Unimplemented,
            "Add (op 7): the reference interpreter does not mix f64 and integers with other types".into(),
        ),
        (
            "s32 to f32",
            op(K::Multiply, &[D::S32, D::S32], &[D::F32]),
            vec![value(&[1], &[1i32]), value(&[1], &[1i32])],
            Status::Unimplemented,
            "Multiply (op 7): the reference interpreter does not mix f64 and integers with other types".into(),
        ),
        (
            "an op that does not fit its row",
            op(K::Add, &[D::F32], &[D::F32]),
            vec![one()],
            Status::InvalidGraphOp,
            "Add (op 7): 1 inputs were given, 2 expected".into(),
        ),
        (
            "an op without a required attribute",
            op(K::GenIndex, &[D::F32], &[D::S32]),
            vec![one()],
            Status::InvalidGraphOp,
            "GenIndex (op 7): attribute `axis` is missing".into(),
        ),
        (
            "too few values",
            f32_op(K::Add),
            vec![one()],
            Status::InvalidGraphOp,
            "Add (op 7): 1 inputs were given, 2 expected".into(),
        ),
        (
            "a value of another type",
            f32_op(K::Add),
            vec![one(), value(&[1], &[1i32])],
            Status::InvalidArguments,
            "tensor 1: the elements given are s32, the tensor is f32".into(),
        ),
        (
            "select shapes",
            select(D::U8),
            vec![bools(&[3, 5], &[0; 15]), value(&[2, 3, 4, 5], &[0u8; 120]), value(&[], &[0u8])],
            Status::InvalidShape,
            "Select (op 7): input 0 `cond` (tensor 0) under auto_broadcast = numpy: {3,5} does not broadcast onto \
             {2,3,4,5}: 3 against 4 at axis 2"
                .into(),
        ),
        (
            "matmul columns and rows",
            f32_op(K::MatMul),
            vec![value(&[1, 2], &[0f32; 2]), value(&[3, 1], &[0f32; 3])],
            Status::InvalidShape,
            format!("MatMul (op 7): {} is {{3,1}}: its rows are not as many as the columns of `src`", port(1, "weights")),
        ),
        (
            "matmul of a scalar",
            f32_op(K::MatMul),
            vec![value(&[], &[0f32]), one()],
            Status::InvalidShape,
            format!("MatMul (op 7): {} is {{}}: a matrix has rank 1 or more", port(0, "src")),
        ),
        (
            "softmax axis",
            op(K::SoftMax, &[D::F32], &[D::F32]),
            vec![one()],
            Status::InvalidShape,
            format!("SoftMax (op 7): {} is {{1}}: the attribute `axis` is not one of its dims", port(0, "src")),
        ),
        (
            "GenIndex axis",
            op(K::GenIndex, &[D::F32], &[D::S32]).axis(-2),
            vec![one()],
            Status::InvalidShape,
            format!("GenIndex (op 7): {} is {{1}}: the attribute `axis` is not one of its dims", port(0, "src")),
        ),
        (
            "bias of another length",
            f32_op(K::BiasAdd),
            vec![value(&[1, 2], &[0f32; 2]), value(&[3], &[0f32; 3])],
            Status::InvalidShape,
            format!("BiasAdd (op 7): {} is {{3}}: it holds one number for each channel of `src`", port(1, "bias")),
        ),
        (
            "no channels",
            f32_op(K::BiasAdd).attr(Attr::DataFormat, "NCX"),
            vec![one(), one()],
            Status::InvalidShape,
            format!("BiasAdd (op 7): {} is {{1}}: it has no dim of channels", port(0, "src")),
        ),
        (
            "no permutation",
            op(K::StaticTranspose, &[D::F32], &[D::F32]).attr(Attr::Order, vec![0i64, 0]),
            vec![value(&[1, 1], &[1f32])],
            Status::InvalidShape,
            format!(
                "StaticTranspose (op 7): {} is {{1,1}}: the attribute `order` is no permutation of its dims",
                port(0, "src")
            ),
        ),
        (
            "reshaped to another number of elements",
            op(K::StaticReshape, &[D::F32], &[D::F32]).attr(Attr::Shape, vec![2i64]).attr(Attr::SpecialZero, false),
            vec![one()],
            Status::InvalidShape,
            format!(
                "StaticReshape (op 7): {} is {{1}}: its elements are not as many as those of the attribute `shape`",
                port(0, "src")
            ),
        ),
        (
            "reshaped to rank 13",
            op(K::StaticReshape, &[D::F32], &[D::F32]).attr(Attr::Shape, vec![1i64; 13]).attr(Attr::SpecialZero, false),
            vec![one()],
            Status::InvalidShape,
            format!(
                "StaticReshape (op 7): {} is {{1}}: the attribute `shape` has more dims than a tensor can have",
                port(0, "src")
            ),
        ),
        (
            "more memory than there is",
            select(D::U8).auto_broadcast(AutoBroadcast::Multidirectional),
            vec![bools(&long(0), &megabyte), value(&long(1), &megabyte), value(&long(2), &megabyte)],
            Status::OutOfMemory,
            format!("the allocator failed to give {} bytes aligned to 1", 1u64 << 60),
        ),
        (
            "more elements than can be counted",
            select(D::U8).auto_broadcast(AutoBroadcast::Multidirectional),
            vec![
                bools(&[1 << 21, 1, 1], &vec![0; 1 << 21]),
                value(&[1, 1 << 21, 1], &vec![0u8; 1 << 21]),
                value(&[1, 1, 1 << 21], &vec![0u8; 1 << 21]),
            ],
            Status::InvalidShape,
            "Select (op 7): the result {2097152,2097152,2097152} is larger than the address space".into(),
        ),
    ];
    let wrong: Vec<String> = rows
        .iter()
        .filter_map(|(name, op, inputs, status, text)| match reference::run(op, inputs) {
            Err(error) if error.status() == *status && error.to_string() == *text => None,
            other => {
                Some(format!("{name}: {:?}\n  expected {text}", other.map_err(|error| error.to_string())))
            }
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    let clash = reference::run(
        &select(D::U8).auto_broadcast(AutoBroadcast::None),
        &[bools(&[2], &[0; 2]), value(&[1], &[0u8]), value(&[2], &[0u8; 2])],
    );
    let Err(Error::Shape { fault, .. }) = clash else { panic!("{clash:?}") };
    let (shape, onto) = ([1i64][..].into(), [2i64][..].into());
    let expected = ShapeFault::Broadcast {
        port: port(1, "then"),
        mode: AutoBroadcast::None,
        fault: BroadcastFault::NotEqual { shape, onto },
    };
    assert_eq!(*fault, expected);
}

#[test]
fn values_hold_what_type_and_dims_ask_for() {
    let rows: &[(DataType, &[i64], usize, Option<&str>)] = &[
        (D::F32, &[2, 3], 24, None),
        (D::S64, &[], 8, None),
        (D::Bf16, &[5, 0], 0, None),
        (D::F8E4m3, &[3], 3, None),
        (D::F32, &[2, 3], 23, Some("value: 23 bytes were given, 24 are needed")),
        (D::F32, &[2, 3], 25, Some("value: 25 bytes were given, 24 are needed")),
        (D::Undef, &[], 0, Some("value: no memory can be had for elements of type undef")),
        (D::S4, &[2], 1, None),
        (D::U4, &[3, 3], 5, None),
        (D::U4, &[3], 1, Some("value: 1 bytes were given, 2 are needed")),
        (D::S4, &[3, 0], 0, None),
        (D::U8, &[-1], 1, Some("value: dim 0 is -1; a dim is not negative")),
        (D::U8, &[i64::MIN], 1, Some("value: dim 0 is -9223372036854775808; a dim is not negative")),
        (D::U8, &[1; 13], 1, Some("value: rank 13 is larger than 12")),
        (
            D::U8,
            &[i64::MAX, 2],
            1,
            Some("value: {9223372036854775807,2} with strides {} is larger than the address space"),
        ),
    ];
    let wrong: Vec<String> = rows
        .iter()
        .filter_map(|&(data_type, dims, bytes, expected)| {
            let error = Value::new(data_type, dims, vec![0; bytes]).err().map(|error| error.to_string());
            (error.as_deref() != expected)
                .then(|| format!("{data_type} {dims:?}: {error:?}, not {expected:?}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    let value = value(&[2], &[1i64, i64::MIN]);
    assert_eq!(value.data_type(), D::S64);
    assert_eq!(value.dims(), [2]);
    assert_eq!(value.elements::<i64>(), Some(vec![1, i64::MIN]));
    assert_eq!(value.elements::<f64>(), None);
    assert_eq!(value.bytes(), [1i64, i64::MIN].map(i64::to_ne_bytes).concat());
    assert_eq!(Value::from_slice(&[2], &[true, false]).unwrap(), bools(&[2], &[1, 0]));
}

#[test]
fn reading_gathers_any_strides() {
    let engine = Engine::new();
    let memory: Vec<u16> = (0..12).collect();
    let rows: &[(&[i64], &[i64], &[u16])] = &[
        (&[2, 3], &[3, 1], &[0, 1, 2, 3, 4, 5]),
        (&[2, 3], &[1, 4], &[0, 4, 8, 1, 5, 9]),
        (&[2, 3], &[0, 2], &[0, 2, 4, 0, 2, 4]),
        (&[3, 1], &[5, 9], &[0, 5, 10]),
        (&[], &[], &[0]),
        (&[2, 0], &[100, 1], &[]),
    ];
    for &(dims, strides, expected) in rows {
        let desc = LogicalTensor::with_strides(0, D::U16, dims, strides).unwrap();
        let read = Value::read(&Tensor::new(&desc, &engine, &memory).unwrap()).unwrap();
        assert_eq!(read, value(dims, expected), "{dims:?} {strides:?}");
    }

    let scalar = LogicalTensor::host_scalar(0, D::F32).unwrap();
    assert_eq!(Value::read(&Tensor::scalar(&scalar, 1.5f32).unwrap()).unwrap(), value(&[], &[1.5f32]));

    let null = LogicalTensor::strided(4, D::U16, &[3]).unwrap();
    // SAFETY: nothing is at a null address, which this call allows.
    let tensor = unsafe { Tensor::from_raw_parts(&null, &engine, std::ptr::null()) };
    let fault = TensorFault::TooShort { needed: 3, given: 0 };
    assert_eq!(Value::read(&tensor), Err(Error::Tensor { id: 4.into(), fault }));

    // Elements of four bits, the first in the low half of a byte: {1,2,3,4,5,6} as [2,3], and its transpose.
    let packed = [0x21u8, 0x43, 0x65];
    for (dims, strides, expected) in
        [(&[2i64, 3], &[3i64, 1], &packed), (&[3, 2], &[1, 3], &[0x41, 0x52, 0x63])]
    {
        let desc = LogicalTensor::with_strides(6, D::U4, dims, strides).unwrap();
        // SAFETY: six elements of half a byte each are read.
        let tensor = unsafe { Tensor::from_raw_parts(&desc, &engine, packed.as_ptr()) };
        assert_eq!(Value::read(&tensor).unwrap(), Value::new(D::U4, dims, expected.to_vec()).unwrap());
    }

    let rows = [
        (LogicalTensor::unknown(5, D::U16), TensorFault::NotConcrete),
        (LogicalTensor::any(5, D::U16, &[2]).unwrap(), TensorFault::NotConcrete),
        (LogicalTensor::strided(5, D::Undef, &[2]).unwrap(), TensorFault::NoElements(D::Undef)),
    ];
    for (desc, fault) in rows {
        // SAFETY: as above.
        let tensor = unsafe { Tensor::from_raw_parts(&desc, &engine, std::ptr::null()) };
        assert_eq!(Value::read(&tensor), Err(Error::Tensor { id: 5.into(), fault }));
    }
}

#[test]
fn writing_scatters_and_leaves_gaps_alone() {
    let engine = Engine::new();
    let desc = LogicalTensor::with_strides(3, D::S16, &[2, 2], &[2, 5]).unwrap();
    let mut tensor = TensorBuf::zeroed(desc, &engine).unwrap();
    tensor.as_mut_slice::<i16>().unwrap().fill(-1);
    let written = value(&[2, 2], &[1i16, 2, 3, 4]);
    written.write(&mut tensor).unwrap();
    assert_eq!(tensor.as_slice::<i16>().unwrap(), [1, -1, 3, -1, -1, 2, -1, 4]);
    assert_eq!(Value::read(&tensor.as_tensor()), Ok(written));

    let shape = value(&[4], &[1i16, 2, 3, 4]).write(&mut tensor).unwrap_err();
    assert_eq!(shape.to_string(), "tensor 3: elements of {4} were given, the tensor is {2,2}");
    let data_type = value(&[2, 2], &[1u16, 2, 3, 4]).write(&mut tensor).unwrap_err();
    assert_eq!(data_type.to_string(), "tensor 3: the elements given are u16, the tensor is s16");
    assert_eq!(tensor.as_slice::<i16>().unwrap(), [1, -1, 3, -1, -1, 2, -1, 4], "nothing was written");
}
