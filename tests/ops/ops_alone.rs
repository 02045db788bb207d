//! Each pointwise op that partitions run, alone, on every choice of types that it takes and at every level,
//! against the reference interpreter: within the accuracy that is stated for it.

use crate::common::{LOOKUPS, Random, engines, plain_op, report, run, ulps_apart};
use sterna::reference::{self, Value};
use sterna::{Accuracy, Attr, DataType, Engine, LogicalTensor, Op, OpKind, Partition, Schema, TensorBuf};

use DataType as D;

/// Ops of a kind on every choice of types that its row allows, in each mode, with parameters of common sizes.
fn variants(kind: OpKind) -> Vec<Op> {
    let schema = Schema::of(kind);
    let variables: Vec<&str> = schema.types.iter().map(|(variable, _)| *variable).collect();
    let mut choices: Vec<Vec<DataType>> = vec![Vec::new()];
    for (_, allowed) in schema.types {
        choices = choices
            .iter()
            .flat_map(|chosen| allowed.iter().map(move |&data_type| [&chosen[..], &[data_type]].concat()))
            .collect();
    }
    let mut ops: Vec<Op> = choices
        .iter()
        .map(|chosen| {
            let type_of =
                |variable: &str| chosen[variables.iter().position(|other| *other == variable).unwrap()];
            let inputs = schema.inputs.iter().enumerate();
            let op = Op::new(0, kind).inputs_from(
                inputs.map(|(id, port)| LogicalTensor::unknown(id, type_of(port.type_variable))),
            );
            op.output(LogicalTensor::unknown(9, type_of(schema.outputs[0].type_variable)))
        })
        .collect();
    for row in schema.attributes {
        ops = ops
            .into_iter()
            .flat_map(|op| match (row.attr, row.allowed) {
                (Attr::Mode, words) => words.iter().map(|word| op.clone().attr(Attr::Mode, *word)).collect(),
                (Attr::UseDst, _) => vec![op.clone().attr(Attr::UseDst, true), op.attr(Attr::UseDst, false)],
                (Attr::Min, _) => vec![op.attr(Attr::Min, -1.0)],
                (Attr::Max, _) => vec![op.attr(Attr::Max, 2.5)],
                (Attr::Alpha, _) => vec![op.attr(Attr::Alpha, 0.7)],
                (Attr::Beta, _) => vec![op.clone().attr(Attr::Beta, 0.5), op.attr(Attr::Beta, 3.0)],
                (Attr::Value, _) => vec![op.attr(Attr::Value, -2.5)],
                (Attr::Shape, _) => vec![op.attr(Attr::Shape, vec![COUNT as i64])],
                (Attr::Axis, _) if kind == OpKind::GenIndex => vec![op.axis(0)],
                _ => vec![op],
            })
            .collect();
    }
    ops
}

const COUNT: usize = 1500;

/// Elements of a type: the bits at which functions bend, then any.
fn elements(data_type: DataType, random: &mut Random) -> Value {
    let size = data_type.size().unwrap();
    let notable: &[f32] = &[
        f32::NEG_INFINITY,
        f32::INFINITY,
        f32::NAN,
        -f32::NAN,
        0.0,
        -0.0,
        1.0,
        -1.0,
        2.5,
        3.0,
        -3.0,
        0.5,
        -0.5,
        1e-45,
        -1e-45,
        f32::MAX,
        f32::MIN,
        88.0,
        -88.0,
        104.0,
        -104.0,
        20.0,
        -20.0,
        1.5,
        -2.5,
    ];
    let mut bytes = Vec::new();
    for i in 0..COUNT {
        let near = (random.below(2_400_001) as f32 - 1_200_000.0) / 100_000.0;
        let x = match i {
            _ if i % 3 == 0 => None,
            _ if i % 3 == 1 => Some(notable[(i / 3 + random.below(2) * random.below(30)) % notable.len()]),
            _ => Some(near),
        };
        let bits = random.next() ^ random.next() << 40;
        match (data_type, x) {
            (D::F32, Some(x)) => bytes.extend(x.to_ne_bytes()),
            (D::F16, Some(x)) => bytes.extend(half::f16::from_f32(x).to_ne_bytes()),
            (D::Bf16, Some(x)) => bytes.extend(half::bf16::from_f32(x).to_ne_bytes()),
            (D::F64, Some(x)) => bytes.extend(f64::from(x).to_ne_bytes()),
            (D::Boolean, _) => bytes.push(if bits & 1 == 0 { 0 } else { (bits >> 8) as u8 }),
            (_, Some(x)) => bytes.extend(&(x as i64).to_le_bytes()[..size]),
            (_, None) => bytes.extend(&bits.to_le_bytes()[..size]),
        }
    }
    Value::new(data_type, &[COUNT as i64], bytes).unwrap()
}

/// True if partitions run the op; an error where they do and the result is off by more than is stated.
fn check(op: &Op, engine: &Engine, random: &mut Random) -> Result<bool, String> {
    let partition = Partition::from_op(op.clone()).map_err(|error| error.to_string())?;
    if !partition.is_supported() {
        return Ok(false);
    }
    let values: Vec<Value> = op.inputs().iter().map(|input| elements(input.data_type(), random)).collect();
    let expected = reference::run(op, &values).map_err(|error| error.to_string())?.remove(0);
    let descs: Vec<LogicalTensor> = op
        .inputs()
        .iter()
        .map(|t| LogicalTensor::strided(t.id(), t.data_type(), &[COUNT as i64]).unwrap())
        .collect();
    let compiled =
        partition.compile_for(engine, &descs, partition.outputs()).map_err(|error| error.to_string())?;
    let inputs: Vec<TensorBuf> = descs
        .iter()
        .zip(&values)
        .map(|(desc, value)| {
            let mut tensor = TensorBuf::zeroed(desc.clone(), engine).unwrap();
            value.write(&mut tensor).unwrap();
            tensor
        })
        .collect();
    let mut output = TensorBuf::zeroed(compiled.outputs()[0].clone(), engine).unwrap();
    run(&compiled, engine, &inputs, &mut output).map_err(|error| error.to_string())?;
    let size = expected.data_type().size().unwrap();
    let limit = u64::from(reference::ulps(op));
    let pairs = output.as_bytes().chunks(size).zip(expected.bytes().chunks(size));
    for (i, (given, expected)) in pairs.enumerate() {
        let apart = ulps_apart(given, expected, output.desc().data_type());
        if apart > limit {
            let of: Vec<String> = values
                .iter()
                .map(|value| {
                    let size = value.data_type().size().unwrap();
                    format!("{:02x?}", &value.bytes()[i * size..][..size])
                })
                .collect();
            return Err(format!("element {i} of {of:?}: {given:02x?}, not {expected:02x?}, {apart} ulp"));
        }
    }
    Ok(true)
}

#[test]
fn each_op_alone_is_what_the_interpreter_says() {
    let mut random = Random::new(11);
    let (mut wrong, mut ran) = (Vec::new(), 0);
    let tensors =
        [OpKind::MatMul, OpKind::Reorder, OpKind::SoftMax, OpKind::StaticReshape, OpKind::StaticTranspose];
    // `quantization.rs` and `dropout.rs` hold those whose inputs differ in shape.
    let of_several_shapes = [OpKind::DynamicDequantize, OpKind::DynamicQuantize, OpKind::Dropout];
    // `rows.rs` holds those that add up elements in an order of their own.
    let is_ordered = |kind: OpKind| {
        Partition::from_op(plain_op(kind)).is_ok_and(|alone| alone.accuracy() == Some(Accuracy::Ordered))
    };
    // `lookups.rs` holds the lookups.
    let elsewhere = [&tensors[..], &of_several_shapes, &LOOKUPS].concat();
    let kinds = OpKind::ALL.iter().filter(|&kind| !elsewhere.contains(kind) && !is_ordered(*kind));
    let ops =
        kinds.filter(|&&kind| reference::supports(&plain_op(kind)).is_ok()).flat_map(|&kind| variants(kind));
    // Of the choices of types, some do not go together.
    for op in ops.filter(|op| reference::supports(op).is_ok()) {
        for engine in engines() {
            match check(&op, &engine, &mut random) {
                Ok(has_run) => ran += usize::from(has_run),
                Err(why) => {
                    let tensors = op.inputs().iter().chain(op.outputs());
                    let types: Vec<&str> = tensors.map(|tensor| tensor.data_type().name()).collect();
                    let attrs: Vec<_> = op.attrs().collect();
                    wrong.push(format!(
                        "{} on {types:?} with {attrs:?} at {:?}: {why}",
                        op.kind(),
                        engine.level()
                    ));
                }
            }
        }
    }
    assert!(ran >= D::WHOLE.len(), "{ran} ran, fewer than there are types of Select");
    report(&wrong);
}
