//! How fast the reference interpreter is: elements of the result, or products, a second, for one op of each
//! kind of loop that it has.
//!
//! It is there to be believed, not to be fast; but a check of a whole graph must end while one waits.
//! `cargo bench --bench reference -- FILTER` measures the rows whose names hold the filter.

use std::hint::black_box;
use std::time::{Duration, Instant};

use sterna::reference::{self, Value};
use sterna::{Attr, DataType, Element, LogicalTensor, Op, OpKind};

use DataType as D;
use OpKind as K;

/// How long each row runs at least.
const TIME: Duration = Duration::from_millis(500);

struct Row {
    name: &'static str,
    op: Op,
    inputs: Vec<Value>,
    /// Products of a product, else elements of the first input.
    work: usize,
    unit: &'static str,
}

/// An op on tensors whose types alone are known.
fn op(kind: OpKind, inputs: &[DataType], output: DataType) -> Op {
    let input = |(id, &data_type)| LogicalTensor::unknown(id, data_type);
    let op = Op::new(0, kind).inputs_from(inputs.iter().enumerate().map(input));
    op.output(LogicalTensor::unknown(100, output))
}

/// Numbers from −2 to 2 that follow no simple pattern.
fn numbers(dims: &[i64]) -> Value {
    let count = dims.iter().product::<i64>() as usize;
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 22) as f32 - 2.0
    };
    Value::from_slice(dims, &(0..count).map(|_| next()).collect::<Vec<_>>()).expect("as many as dims say")
}

/// The same numbers in another type.
fn cast(value: Value, to: DataType) -> Value {
    reference::run(&op(K::Cast, &[D::F32], to), &[value]).expect("any number becomes any other").remove(0)
}

fn rows() -> Vec<Row> {
    let wide = || numbers(&[1024, 1024]);
    let elements = |name, op, inputs| Row { name, op, inputs, work: 1 << 20, unit: "M elements/s" };
    let condition = || {
        let greater = op(K::Greater, &[D::F32, D::F32], D::Boolean);
        reference::run(&greater, &[wide(), numbers(&[1])]).expect("the shapes broadcast").remove(0)
    };
    let order = vec![1i64, 0];
    let product = |name, data_type, dims: [&[i64]; 2]| Row {
        name,
        op: op(K::MatMul, &[data_type, data_type], D::F32),
        inputs: dims.iter().map(|dims| cast_from_f32(numbers(dims), data_type)).collect(),
        work: 1 << 27,
        unit: "M products/s",
    };
    vec![
        elements("Add f32", op(K::Add, &[D::F32, D::F32], D::F32), vec![wide(), wide()]),
        elements(
            "Add f32, a column and a row",
            op(K::Add, &[D::F32, D::F32], D::F32),
            vec![numbers(&[1024, 1]), numbers(&[1024])],
        ),
        elements(
            "Multiply s32",
            op(K::Multiply, &[D::S32, D::S32], D::S32),
            vec![cast(wide(), D::S32), cast(wide(), D::S32)],
        ),
        elements("Exp f32", op(K::Exp, &[D::F32], D::F32), vec![wide()]),
        elements("GELU bf16", op(K::GELU, &[D::Bf16], D::Bf16), vec![cast(wide(), D::Bf16)]),
        elements("TypeCast f32 to f16", op(K::TypeCast, &[D::F32], D::F16), vec![wide()]),
        elements("Less f32", op(K::Less, &[D::F32, D::F32], D::Boolean), vec![wide(), wide()]),
        elements(
            "Select f32",
            op(K::Select, &[D::Boolean, D::F32, D::F32], D::F32),
            vec![condition(), wide(), numbers(&[1])],
        ),
        elements("GenIndex", op(K::GenIndex, &[D::F32], D::S32).axis(-1), vec![wide()]),
        elements(
            "StaticTranspose f32",
            op(K::StaticTranspose, &[D::F32], D::F32).attr(Attr::Order, order),
            vec![wide()],
        ),
        elements("SoftMax f32", op(K::SoftMax, &[D::F32], D::F32), vec![wide()]),
        elements(
            "ReduceSum f32",
            op(K::ReduceSum, &[D::F32], D::F32).attr(Attr::Axes, vec![0i64]),
            vec![wide()],
        ),
        elements(
            "LayerNorm bf16",
            op(K::LayerNorm, &[D::Bf16], D::Bf16).attr(Attr::KeepStats, false),
            vec![cast(wide(), D::Bf16)],
        ),
        elements(
            "Quantize u8",
            op(K::Quantize, &[D::F32], D::U8).attr(Attr::Scales, vec![0.01f32]).attr(Attr::Zps, vec![128i64]),
            vec![wide()],
        ),
        elements(
            "DynamicDequantize u4 in groups",
            op(K::DynamicDequantize, &[D::U4, D::F32], D::F32)
                .attr(Attr::Qtype, "per_group")
                .attr(Attr::GroupShape, vec![1i64, 32]),
            vec![nibbles(&[1024, 1024]), numbers(&[1024, 32])],
        ),
        elements(
            "Dropout f32",
            op(K::Dropout, &[D::F32, D::S64, D::S64, D::F32], D::F32),
            vec![wide(), scalar(7i64), scalar(3i64), scalar(0.25f32)],
        ),
        product("MatMul f32 512", D::F32, [&[512, 512], &[512, 512]]),
        product("MatMul bf16 8 of 256", D::Bf16, [&[8, 256, 256], &[8, 256, 256]]),
    ]
}

/// Elements of four bits, two in a byte.
fn nibbles(dims: &[i64]) -> Value {
    let count = dims.iter().product::<i64>() as usize;
    Value::new(D::U4, dims, (0..count / 2).map(|byte| (byte * 7) as u8).collect())
        .expect("as many as dims say")
}

fn scalar<T: Element>(number: T) -> Value {
    Value::from_slice(&[], &[number]).expect("one element")
}

fn cast_from_f32(value: Value, to: DataType) -> Value {
    if to == D::F32 { value } else { cast(value, to) }
}

fn main() {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    println!("{:<32}{:>12}", "row", "a second");
    for row in rows().into_iter().filter(|row| row.name.contains(&filter)) {
        let run = || reference::run(&row.op, &row.inputs).expect("the interpreter runs the row");
        black_box(run());
        let (start, mut runs) = (Instant::now(), 0);
        while start.elapsed() < TIME {
            black_box(run());
            runs += 1;
        }
        let millions = runs as f64 * row.work as f64 / start.elapsed().as_secs_f64() / 1e6;
        println!("{:<32}{millions:>12.1} {}", row.name, row.unit);
    }
}
