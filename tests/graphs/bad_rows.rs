//! Promise: for every op kind, each count, type, attribute and shape that its schema row forbids is refused.

use crate::common::{op_of_types, plain_op, report, some_value, with_required};
use sterna::reference::{self, Value};
use sterna::{
    Attr, AttrType, AttrValue, DataType, Direction, Engine, Error, Graph, LogicalTensor, Op, OpFault, OpKind,
    Partition, Schema, ShapeRule, Status,
};

use Attr as A;
use DataType as D;

/// The answer of a graph to an op; the fault where it is one of the op.
fn add(op: Op) -> Result<(), OpFault> {
    match Graph::new().add_op(op) {
        Ok(()) => Ok(()),
        Err(Error::Op { fault, .. }) => Err(fault),
        Err(other) => panic!("{other:?} is no fault of an op"),
    }
}

/// Types of the ports of a plain op.
fn types_of(tensors: &[LogicalTensor]) -> Vec<DataType> {
    tensors.iter().map(LogicalTensor::data_type).collect()
}

/// An op with the attributes of another.
fn with_attrs_of(op: Op, other: &Op) -> Op {
    other.attrs().fold(op, |op, (attr, value)| op.attr(attr, value.clone()))
}

fn without(op: &Op, attr: Attr) -> Op {
    let bare = op_of_types(Schema::of(op.kind()), &types_of(op.inputs()), &types_of(op.outputs()));
    op.attrs()
        .filter(|(other, _)| *other != attr)
        .fold(bare, |op, (attr, value)| op.attr(attr, value.clone()))
}

#[test]
fn every_kind_has_a_plain_op() {
    assert_eq!(OpKind::ALL.iter().filter(|&&kind| add(plain_op(kind)).is_ok()).count(), OpKind::ALL.len());
}

#[test]
fn counts() {
    let mut wrong = Vec::new();
    for schema in Schema::all() {
        let plain = plain_op(schema.kind);
        let type_of = |ports: &[LogicalTensor], i: usize| {
            ports.get(i).or(ports.last()).map_or(D::F32, LogicalTensor::data_type)
        };
        for given in 0..70 {
            let types = |ports| (0..given).map(|i| type_of(ports, i)).collect::<Vec<_>>();
            let inputs = op_of_types(schema, &types(plain.inputs()), &types_of(plain.outputs()));
            let outputs = op_of_types(schema, &types_of(plain.inputs()), &types(plain.outputs()));
            let rows = [
                (Direction::Input, schema.input_count, inputs),
                (Direction::Output, schema.output_count, outputs),
            ];
            for (direction, count, op) in rows {
                let result = add(with_attrs_of(op, &plain));
                let expected = OpFault::Count { direction, expected: count.to_string(), given };
                if (result == Err(expected)) == count.allows(given) {
                    wrong.push(format!("{} with {given} {direction:?}s: {result:?}", schema.kind));
                }
            }
        }
    }
    report(&wrong);
}

/// The type variables of the ports that an op has, inputs first.
fn variables(op: &Op) -> Vec<&'static str> {
    let schema = Schema::of(op.kind());
    let inputs = (0..op.inputs().len()).map(|i| schema.inputs[i.min(schema.inputs.len() - 1)]);
    let outputs = (0..op.outputs().len()).map(|i| schema.outputs[i.min(schema.outputs.len() - 1)]);
    inputs.chain(outputs).map(|port| port.type_variable).collect()
}

/// The op with other types, those of the inputs first.
fn with_types(op: &Op, types: &[DataType]) -> Op {
    let (inputs, outputs) = types.split_at(op.inputs().len());
    with_attrs_of(op_of_types(Schema::of(op.kind()), inputs, outputs), op)
}

fn all_types(op: &Op) -> Vec<DataType> {
    [types_of(op.inputs()), types_of(op.outputs())].concat()
}

#[test]
fn types() {
    let mut wrong = Vec::new();
    for schema in Schema::all() {
        let plain = plain_op(schema.kind);
        let variables = variables(&plain);
        for &(variable, allowed) in schema.types.iter().filter(|(variable, _)| variables.contains(variable)) {
            for &data_type in DataType::ALL {
                let mut types = all_types(&plain);
                let ports = types.iter_mut().zip(&variables).filter(|(_, other)| **other == variable);
                ports.for_each(|(port, _)| *port = data_type);
                let result = add(with_types(&plain, &types));
                let is_allowed = allowed.contains(&data_type);
                let good = match &result {
                    Ok(()) => is_allowed,
                    Err(OpFault::Check { .. }) => is_allowed && !schema.checks.is_empty(),
                    Err(OpFault::Type { given, allowed: listed, .. }) => {
                        !is_allowed && *given == data_type && *listed == allowed
                    }
                    Err(_) => false,
                };
                if !good {
                    wrong.push(format!("{} with {variable} as {data_type}: {result:?}", schema.kind));
                }
            }
        }
    }
    report(&wrong);
}

#[test]
fn ports_of_one_variable_share_one_type() {
    let mut wrong = Vec::new();
    let mut pairs = 0;
    for schema in Schema::all() {
        let plain = plain_op(schema.kind);
        let variables = variables(&plain);
        for (port, variable) in variables.iter().enumerate() {
            let Some((_, allowed)) = schema.types.iter().find(|(name, _)| name == variable) else { continue };
            if variables.iter().filter(|other| *other == variable).count() < 2 {
                continue;
            }
            let mut types = all_types(&plain);
            let Some(&other) = allowed.iter().find(|&&t| t != types[port]) else { continue };
            types[port] = other;
            let result = add(with_types(&plain, &types));
            pairs += 1;
            if !matches!(result, Err(OpFault::TypesDiffer { .. })) {
                wrong.push(format!("{} with {other} at port {port}: {result:?}", schema.kind));
            }
        }
    }
    assert!(pairs > 150, "{pairs}");
    report(&wrong);
}

#[test]
fn attributes() {
    let values: [AttrValue; 6] =
        [true.into(), 3i64.into(), 0.5f32.into(), "numpy".into(), vec![1i64].into(), vec![0.5f32].into()];
    let mut wrong = Vec::new();
    let mut check = |op: Op, what: &str, expected: &dyn Fn(&OpFault) -> bool| {
        let kind = op.kind();
        match add(op) {
            Err(fault) if expected(&fault) => {}
            other => wrong.push(format!("{kind}, {what}: {other:?}")),
        }
    };
    for schema in Schema::all() {
        let plain = plain_op(schema.kind);
        for &attr in Attr::ALL {
            let Some(row) = schema.attributes.iter().find(|row| row.attr == attr) else {
                let unknown = |fault: &OpFault| *fault == OpFault::UnknownAttr(attr);
                check(plain.clone().attr(attr, 1i64), &format!("{attr} unknown"), &unknown);
                continue;
            };
            if row.required {
                let missing = |fault: &OpFault| *fault == OpFault::MissingAttr(attr);
                check(without(&plain, attr), &format!("{attr} missing"), &missing);
            }
            for value in values.iter().filter(|value| value.type_name() != row.value_type.name()) {
                let (expected, given) = (row.value_type.name(), value.type_name());
                let fault = OpFault::AttrType { attr, expected, given };
                let op = plain.clone().attr(attr, value.clone());
                check(op, &format!("{attr} as {given}"), &|other| *other == fault);
            }
            if row.value_type == AttrType::String && !row.allowed.is_empty() {
                let fault = OpFault::AttrValue { attr, allowed: row.allowed, given: "no such word".into() };
                check(plain.clone().attr(attr, "no such word"), &format!("{attr} word"), &|other| {
                    *other == fault
                });
            }
        }
    }
    report(&wrong);
}

/// Shapes of inputs, and attributes.
type BadShapes = (Vec<Vec<i64>>, Vec<(Attr, AttrValue)>);

/// Shapes of the inputs that contradict the rule of a kind, each with attributes that make them do so.
fn bad_shapes(kind: OpKind) -> Vec<BadShapes> {
    let shapes = |shapes: &[&[i64]]| shapes.iter().map(|dims| dims.to_vec()).collect::<Vec<_>>();
    let plain = |given: &[&[i64]]| (shapes(given), Vec::new());
    let with = |given: &[&[i64]], attr: Attr, value: AttrValue| (shapes(given), vec![(attr, value)]);
    match Schema::of(kind).shape_rule {
        ShapeRule::SameShapes => {
            vec![
                plain(&[&[2, 3], &[3, 2]]),
                plain(&[&[2, 3], &[3]]),
                plain(&[&[1], &[]]),
                plain(&[&[1], &[0]]),
            ]
        }
        ShapeRule::ElemwiseArithmetic => vec![
            plain(&[&[2, 3], &[2]]),
            plain(&[&[4], &[3]]),
            plain(&[&[0], &[2]]),
            with(&[&[2, 3], &[3]], A::AutoBroadcast, "none".into()),
            with(&[&[1], &[2]], A::AutoBroadcast, "none".into()),
        ],
        ShapeRule::Prelu => vec![
            plain(&[&[2, 3], &[2]]),
            plain(&[&[2, 3], &[2, 2]]),
            plain(&[&[3], &[1, 3]]),
            plain(&[&[], &[3]]),
            plain(&[&[3], &[2]]),
            with(&[&[3], &[2]], A::DataFormat, "NCX".into()),
            with(&[&[1, 2, 3], &[3]], A::DataFormat, "NCX".into()),
            with(&[&[1, 3, 2], &[3]], A::PerChannelBroadcast, false.into()),
        ],
        ShapeRule::BiasAdd => vec![
            plain(&[&[2, 3], &[2]]),
            plain(&[&[2, 3], &[1]]),
            plain(&[&[2, 3], &[1, 3]]),
            plain(&[&[], &[1]]),
            with(&[&[1, 2, 3], &[3]], A::DataFormat, "NCX".into()),
            with(&[&[3], &[3]], A::DataFormat, "NCX".into()),
        ],
        ShapeRule::Select => vec![
            plain(&[&[3, 5], &[2, 3, 4, 5], &[]]),
            plain(&[&[1, 2], &[2], &[2]]),
            plain(&[&[1], &[2], &[3]]),
            with(&[&[2], &[2], &[1]], A::AutoBroadcast, "none".into()),
            with(&[&[2], &[3], &[]], A::AutoBroadcast, "pdpd".into()),
            with(&[&[2], &[3], &[]], A::AutoBroadcast, "multidirectional".into()),
        ],
        ShapeRule::Concat => vec![
            plain(&[&[]]),
            with(&[&[2, 3]], A::Axis, 2i64.into()),
            with(&[&[2, 3]], A::Axis, (-3i64).into()),
        ],
        ShapeRule::StaticTranspose => {
            let orders: [&[i64]; 5] = [&[0], &[0, 0], &[0, 2], &[0, -2], &[0, 1, 2]];
            orders.into_iter().map(|order| with(&[&[2, 3]], A::Order, order.into())).collect()
        }
        ShapeRule::StaticReshape => {
            let shapes: [&[i64]; 7] = [&[5], &[-1, 4], &[-1, -1], &[-2, -3], &[0, 6], &[2, 3, 0], &[1; 13]];
            shapes.into_iter().map(|shape| with(&[&[2, 3]], A::Shape, shape.into())).collect()
        }
        ShapeRule::Slice => vec![
            plain(&[&[]]),
            with(&[&[2, 3]], A::Axes, vec![2i64].into()),
            with(&[&[2, 3]], A::Axes, vec![-3i64].into()),
            (
                vec![vec![2, 3]],
                vec![
                    (A::Starts, vec![0i64, 0].into()),
                    (A::Ends, vec![1i64, 1].into()),
                    (A::Axes, vec![1i64, -1].into()),
                ],
            ),
        ],
        ShapeRule::Fill => vec![with(&[], A::Shape, vec![1i64 << 32, 1 << 32].into())],
        _ if kind == OpKind::GenIndex => [2, -3, i64::MIN, i64::MAX]
            .into_iter()
            .map(|axis| with(&[&[2, 3]], A::Axis, axis.into()))
            .chain([plain(&[&[]])])
            .collect(),
        _ => Vec::new(),
    }
}

#[test]
fn shapes() {
    let mut wrong = Vec::new();
    let mut refused = 0;
    for &kind in OpKind::ALL {
        for (dims, attrs) in bad_shapes(kind) {
            let op = attrs.iter().cloned().fold(plain_op(kind), |op, (attr, value)| op.attr(attr, value));
            let zeros = |(tensor, dims): (&LogicalTensor, &Vec<i64>)| {
                let count = dims.iter().product::<i64>() as usize;
                Value::new(tensor.data_type(), dims, vec![0; count * tensor.data_type().size().unwrap()])
                    .unwrap()
            };
            let inputs: Vec<Value> = op.inputs().iter().zip(&dims).map(zeros).collect();
            let mut results = vec![reference::run(&op, &inputs).map(drop)];
            let partition = Partition::from_op(op.clone()).unwrap();
            if partition.is_supported() {
                let described = partition.inputs().iter().zip(&dims);
                let inputs: Vec<LogicalTensor> = described
                    .map(|(port, dims)| LogicalTensor::strided(port.id(), port.data_type(), dims).unwrap())
                    .collect();
                results.push(partition.compile_for(&Engine::new(), &inputs, partition.outputs()).map(drop));
            }
            for result in results {
                refused += 1;
                let good = matches!(&result, Err(error @ Error::Shape { op, .. })
                    if op.kind == kind && error.status() == Status::InvalidShape);
                if !good {
                    wrong.push(format!("{kind} of {dims:?} with {attrs:?}: {result:?}"));
                }
            }
        }
    }
    assert!(refused > 150, "{refused}");
    report(&wrong);
}

#[test]
fn values_of_every_attribute_type_are_taken() {
    let mut wrong = Vec::new();
    for schema in Schema::all() {
        let plain = plain_op(schema.kind);
        for row in schema.attributes {
            let op = with_required(plain.clone().attr(row.attr, some_value(row)));
            match add(op) {
                Ok(()) => {}
                // An attribute that goes with other attributes or inputs alone is a matter of checks.
                Err(OpFault::Check { .. } | OpFault::AttrNeedsMode { .. }) if !schema.checks.is_empty() => {}
                Err(fault) => wrong.push(format!("{} with {}: {fault:?}", schema.kind, row.attr)),
            }
        }
    }
    report(&wrong);
}
