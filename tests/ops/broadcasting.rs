//! Promise: the shapes of a select fit together exactly as its mode says, and what is repeated along them
//! gives the same results whatever its place.

use crate::common::{self, Case, Random, broadcast, report};
use crate::rows::{Case as OpCase, value};
use proptest::prelude::*;
use sterna::reference::Value;
use sterna::{Attr, AutoBroadcast, BroadcastFault, DataType, Engine, Error, OpKind, ShapeFault, Status};

/// A shape that is near to fitting `base`: some dims left out in front, some replaced.
fn related(base: Vec<i64>) -> impl Strategy<Value = Vec<i64>> {
    let rank = base.len();
    let dim = prop_oneof![6 => Just(None), 3 => Just(Some(1i64)), 1 => (0i64..4).prop_map(Some)];
    (0..=rank, prop::collection::vec(dim, rank), prop::collection::vec(1i64..3, 0..2)).prop_map(
        move |(cut, changes, front)| {
            let kept = base.iter().zip(changes).skip(cut).map(|(&dim, change)| change.unwrap_or(dim));
            if cut == 0 { front.into_iter().chain(kept).collect() } else { kept.collect() }
        },
    )
}

fn triple() -> impl Strategy<Value = [Vec<i64>; 3]> {
    prop::collection::vec(0i64..5, 0..5).prop_flat_map(|base| {
        (related(base.clone()), related(base.clone()), related(base)).prop_map(|(a, b, c)| [a, b, c])
    })
}

/// Compiles and runs a case where the rule gives a shape, and expects an invalid shape where it gives none.
fn agrees(mode: AutoBroadcast, axis: Option<i64>, dims: [Vec<i64>; 3]) -> Result<(), TestCaseError> {
    let engine = Engine::builder().threads(1).build();
    let mut case = Case::new(mode, DataType::U16, [&[], &[], &[]]);
    (case.dims, case.axis) = (dims, axis);
    match broadcast(mode, axis, &case.dims) {
        Some(_) => case.check(&engine, &mut Random::new(1)).map_err(TestCaseError::fail),
        None => {
            let status = case.compile(&engine).map(|_| ()).map_err(|error| error.status());
            prop_assert_eq!(status, Err(Status::InvalidShape));
            Ok(())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    #[test]
    fn none_takes_equal_shapes(dims in triple(), all_equal in any::<bool>()) {
        let dims = if all_equal { [dims[0].clone(), dims[0].clone(), dims[0].clone()] } else { dims };
        agrees(AutoBroadcast::None, None, dims)?;
    }

    #[test]
    fn numpy_lets_the_branches_broadcast_and_the_condition_follow(dims in triple()) {
        agrees(AutoBroadcast::Numpy, None, dims)?;
    }

    #[test]
    fn pdpd_places_the_others_within_then(dims in triple(), axis in prop_oneof![Just(None), (-1i64..5).prop_map(Some)]) {
        agrees(AutoBroadcast::Pdpd, axis, dims)?;
    }

    #[test]
    fn multidirectional_lets_all_three_broadcast(dims in triple()) {
        agrees(AutoBroadcast::Multidirectional, None, dims)?;
    }
}

#[test]
fn worked_examples() {
    use AutoBroadcast::{Multidirectional, None as NoBroadcast, Numpy, Pdpd};
    type Row<'a> = (AutoBroadcast, Option<i64>, [&'a [i64]; 3], Option<&'a [i64]>);
    let onto: &[i64] = &[2, 3, 4, 5];
    let rows: &[Row<'_>] = &[
        (Numpy, None, [&[4, 5], onto, onto], Some(onto)),
        (Numpy, None, [&[3, 1, 5], onto, onto], Some(onto)),
        (Numpy, None, [&[3, 5], onto, onto], None),
        (Numpy, None, [&[1, 2, 3, 4, 5], onto, onto], None),
        (Numpy, None, [&[2, 3], &[3], &[3]], None),
        (Numpy, None, [&[], &[2, 1], &[3]], Some(&[2, 3])),
        (Numpy, None, [&[0], &[1], &[1]], None),
        (Numpy, None, [&[1], &[0], &[1]], Some(&[0])),
        (Numpy, None, [&[], &[0], &[2]], None),
        (NoBroadcast, None, [&[2], &[2], &[2]], Some(&[2])),
        (NoBroadcast, None, [&[1], &[2], &[2]], None),
        (NoBroadcast, None, [&[2], &[2], &[]], None),
        (Pdpd, None, [&[4, 5], onto, &[5]], Some(onto)),
        (Pdpd, Some(1), [&[3, 4], onto, &[3]], Some(onto)),
        (Pdpd, Some(1), [&[3, 1, 1], onto, &[3, 4, 1]], Some(onto)),
        (Pdpd, Some(-1), [&[3, 1, 1], onto, &[]], Some(onto)),
        (Pdpd, Some(2), [&[3], onto, &[]], None),
        (Pdpd, Some(4), [&[], onto, &[]], Some(onto)),
        (Pdpd, Some(5), [&[], onto, &[]], None),
        (Pdpd, Some(3), [&[5, 1], onto, &[]], None),
        (Pdpd, None, [&[1], &[1], onto], None),
        (Pdpd, None, [&[0], &[1], &[1]], None),
        (Pdpd, None, [&[1], &[0], &[1]], Some(&[0])),
        (Multidirectional, None, [&[2, 3], &[3], &[]], Some(&[2, 3])),
        (Multidirectional, None, [&[2, 1, 4], &[], &[]], Some(&[2, 1, 4])),
        (Multidirectional, None, [&[0], &[1], &[1]], Some(&[0])),
        (Multidirectional, None, [&[0], &[2], &[1]], None),
        (Multidirectional, None, [&[3, 5], onto, onto], None),
    ];
    let engine = Engine::builder().threads(1).build();
    let wrong: Vec<_> = rows
        .iter()
        .filter_map(|row| {
            let (mode, axis, dims, expected) = row;
            let mut case = Case::new(*mode, DataType::F32, *dims);
            case.axis = *axis;
            let given = case.compile(&engine).map(|compiled| compiled.outputs()[0].dims().unwrap().to_vec());
            let agrees = match (&given, expected) {
                (Ok(dims), Some(expected)) => dims == expected,
                (Err(error), None) => error.status() == Status::InvalidShape,
                _ => false,
            };
            (!agrees).then_some((row, given))
        })
        .collect();
    report(&wrong);
}

#[test]
fn the_error_names_op_port_and_shapes() {
    let case = Case::new(AutoBroadcast::Numpy, DataType::F32, [&[3, 5], &[2, 3, 4, 5], &[5]]);
    let error = case.compile(&Engine::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Select (op 0): input 0 `cond` (tensor 0) under auto_broadcast = numpy: {3,5} does not broadcast onto \
         {2,3,4,5}: 3 against 4 at axis 2"
    );
    let Error::Shape { fault, .. } = &error else { panic!("{error:?}") };
    let ShapeFault::Broadcast { fault: BroadcastFault::Dim { axis, dim, onto_dim, .. }, .. } = &**fault
    else {
        panic!("{fault:?}")
    };
    assert_eq!((*axis, *dim, *onto_dim), (2, 3, 4));
}

#[test]
fn axis_is_judged_as_an_attribute() {
    let op = Case::new(AutoBroadcast::Pdpd, DataType::F32, [&[], &[2], &[]]).op().attr(Attr::Axis, -2i64);
    assert_eq!(sterna::Partition::from_op(op).unwrap_err().status(), Status::InvalidGraphOp);
}

#[test]
fn a_given_output_shape_is_held_against_the_inferred_one() {
    use common::open::{self, OPEN};
    use sterna::Partition;
    let engine = Engine::builder().threads(1).build();
    let case = Case::new(AutoBroadcast::Numpy, DataType::F32, [&[3], &[2, 3], &[]]);
    let rows: &[(&[i64], bool)] = &[
        (&[2, 3], true),
        (&[OPEN, 3], true),
        (&[2, OPEN], true),
        (&[OPEN, 4], false),
        (&[3], false),
        (&[1, 2, 3], false),
        (&[2, 1], false),
    ];
    let wrong: Vec<_> = rows
        .iter()
        .filter(|(dims, fits)| {
            let output = open::any(common::DST, DataType::F32, dims).unwrap();
            let partition = Partition::from_op(case.op()).unwrap();
            match partition.compile_for(&engine, &case.inputs().unwrap(), &[output]) {
                Ok(compiled) => !fits || compiled.outputs()[0].dims() != Some(&[2, 3]),
                Err(error) => *fits || error.status() != Status::InvalidShape,
            }
        })
        .collect();
    report(&wrong);
}

/// Values of any type with small numbers.
fn small(t: DataType, dims: &[i64], random: &mut Random) -> Value {
    let count: i64 = dims.iter().product();
    let numbers: Vec<f32> = (0..count).map(|_| random.below(9) as f32).collect();
    match t {
        DataType::Boolean => {
            let flags = numbers.iter().map(|&number| u8::from(number > 4.0)).collect();
            Value::new(t, dims, flags).unwrap()
        }
        DataType::S32 => {
            let numbers: Vec<i32> = numbers.iter().map(|&number| number as i32 - 4).collect();
            Value::from_slice(dims, &numbers).unwrap()
        }
        _ => value(t, dims, &numbers.iter().map(|number| number / 4.0 - 1.0).collect::<Vec<_>>()),
    }
}

/// Rows that fill no block of a kernel, beside operands that are one row for all, one for each of some rows,
/// or one number: tiles are one long row then.
#[test]
fn short_rows_beside_one_row_for_many() {
    use OpKind as K;
    let mut random = Random::new(3);
    let mut cases = Vec::new();
    for columns in [2i64, 3, 8, 16, 24, 33, 63, 64, 65, 72, 100, 130] {
        let whole = [3, 2100 / columns + 1, columns];
        let others: [&[i64]; 5] = [&[columns], &[3, 1, columns], &whole, &[1], &[whole[1], 1]];
        for t in [DataType::F32, DataType::Bf16, DataType::F16, DataType::S32] {
            for other in others {
                let mut operand = |t: DataType, dims: &[i64]| small(t, dims, &mut random);
                let (x, y) = (operand(t, &whole), operand(t, other));
                let name = |kind: K| format!("{kind} {t} {columns} columns, {other:?}");
                for kind in [K::Add, K::Subtract, K::Maximum] {
                    let swapped = OpCase::new(kind, vec![y.clone(), x.clone()], &[t]);
                    cases.push((name(kind), OpCase::new(kind, vec![x.clone(), y.clone()], &[t])));
                    cases.push((format!("{}, swapped", name(kind)), swapped));
                }
                let compared = OpCase::new(K::GreaterEqual, vec![x.clone(), y.clone()], &[DataType::Boolean]);
                cases.push((name(K::GreaterEqual), compared));
                for cond in [&whole[..], &[columns]] {
                    let inputs = vec![operand(DataType::Boolean, cond), x.clone(), y.clone()];
                    let select = OpCase::new(K::Select, inputs, &[t]);
                    let select = select.attr(Attr::AutoBroadcast, "multidirectional");
                    cases.push((format!("{} by {cond:?}", name(K::Select)), select));
                }
            }
        }
    }
    let mut wrong = Vec::new();
    for engine in common::engines() {
        for (name, case) in &cases {
            let fault = case.differing_bits(&engine);
            wrong.extend(fault.map(|fault| format!("{name} at {:?}: {fault}", engine.level())));
        }
    }
    report(&wrong);
}
