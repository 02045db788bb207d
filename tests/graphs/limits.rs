//! Promise: shapes and strides near the limits of integers and of the address space are sized rightly or
//! refused with a typed error; no sum or product of sizes overflows.

use crate::common::open::{self, OPEN};
use crate::common::{Case, DST, broadcast, report};
use proptest::prelude::*;
use sterna::reference::{self, Value};
use sterna::{
    AutoBroadcast, CompiledPartition, DataType, Engine, Graph, LogicalTensor, Op, OpKind, Partition, Policy,
    Result,
};

const MODES: [AutoBroadcast; 4] =
    [AutoBroadcast::None, AutoBroadcast::Numpy, AutoBroadcast::Pdpd, AutoBroadcast::Multidirectional];

/// The limits: of what a dim holds, of what counts elements and bytes of each size, of narrower integers, and
/// what has one of these as its square.
const LIMITS: [i64; 10] = [
    i64::MAX,
    i64::MAX / 2,
    isize::MAX as i64 / 4,
    isize::MAX as i64 / 8,
    (usize::MAX / 3) as i64 / 2,
    3_037_000_499,
    u32::MAX as i64,
    i32::MAX as i64,
    1 << 31,
    46_340,
];

/// A number at a limit or a few beside it.
fn near_a_limit() -> impl Strategy<Value = i64> {
    (prop::sample::select(LIMITS.to_vec()), -3i64..=3).prop_map(|(limit, off)| limit.saturating_add(off))
}

fn dim() -> impl Strategy<Value = i64> {
    prop_oneof![4 => Just(1i64), 2 => 0i64..4, 4 => near_a_limit()]
}

fn stride() -> impl Strategy<Value = i64> {
    prop_oneof![2 => 0i64..4, 4 => near_a_limit()]
}

/// Three shapes that often broadcast to one another.
fn triple() -> impl Strategy<Value = [Vec<i64>; 3]> {
    let of_base = |base: Vec<i64>| {
        let kept = prop::collection::vec(prop::bool::weighted(0.8), base.len());
        kept.prop_map(move |kept| {
            base.iter().zip(kept).map(|(&dim, kept)| if kept { dim } else { 1 }).collect::<Vec<i64>>()
        })
    };
    prop::collection::vec(dim(), 0..5).prop_flat_map(move |base| {
        (of_base(base.clone()), of_base(base.clone()), of_base(base)).prop_map(|(a, b, c)| [a, b, c])
    })
}

/// Strides for shapes of up to four dims, or none.
fn strides() -> impl Strategy<Value = Option<Vec<i64>>> {
    prop::option::weighted(0.4, prop::collection::vec(stride(), 4))
}

fn data_type() -> impl Strategy<Value = DataType> {
    prop::sample::select(vec![DataType::U8, DataType::F16, DataType::F32, DataType::S64])
}

/// Bytes of the elements that are walked, each counted once, with no limit but that of u128.
fn walked(tensor: &LogicalTensor) -> u128 {
    let (dims, strides) = (tensor.dims().unwrap(), tensor.strides().unwrap());
    let walked = dims.iter().zip(strides).filter(|&(&dim, &stride)| dim != 1 && stride != 0);
    let size = tensor.data_type().size().unwrap() as u128;
    walked.fold(size, |bytes, (&dim, _)| bytes.saturating_mul(dim as u128))
}

/// A sentence on the sizes that a compiled partition states, if they are wrong.
fn fault(compiled: &CompiledPartition) -> Option<String> {
    let ports = || compiled.inputs().iter().chain(compiled.outputs());
    let is_empty = compiled.outputs().iter().all(|output| output.element_count() == Some(0));
    let expected = if is_empty { 0 } else { ports().map(walked).fold(0, u128::saturating_add) };
    let expected = usize::try_from(expected).unwrap_or(usize::MAX);
    let moved = compiled.bytes_moved();
    if moved != expected {
        return Some(format!("{moved} bytes moved instead of {expected}"));
    }
    let plan = compiled.plan();
    let is_sized = ports().all(|port| port.memory_size() <= isize::MAX as usize && port.span().is_some());
    let counts = plan.bytes_read.checked_add(plan.bytes_written).is_some();
    (!is_sized || !counts || compiled.scratchpad_size() > 1 << 24 || plan.to_string().is_empty())
        .then(|| format!("{plan:?}"))
}

/// Of what compiles, what is wrong with its sizes; an error is data with a sentence.
fn judged(compiled: Result<CompiledPartition>) -> Option<String> {
    match compiled {
        Ok(compiled) => fault(&compiled),
        Err(error) => error.to_string().is_empty().then(|| "an error without a sentence".to_owned()),
    }
}

/// A partition of several ops and two outputs of one shape, of inputs 0 and 1.
fn group() -> Partition {
    let unknown = LogicalTensor::unknown;
    let f32s = |id| unknown(id, DataType::F32);
    let ops = [
        Op::new(0, OpKind::GreaterEqual).input(f32s(0)).input(f32s(1)).output(unknown(2, DataType::Boolean)),
        Op::new(1, OpKind::Add).input(f32s(0)).input(f32s(1)).output(f32s(3)),
        Op::select(2, unknown(2, DataType::Boolean), f32s(3), f32s(1), f32s(4)),
        Op::new(3, OpKind::Tanh).input(f32s(4)).output(f32s(5)),
        Op::new(4, OpKind::Negative).input(f32s(4)).output(f32s(6)),
    ];
    let mut graph = Graph::new();
    ops.into_iter().for_each(|op| graph.add_op(op).unwrap());
    graph.finalize().unwrap();
    let mut partitions = graph.partitions(Policy::Fusion).unwrap();
    assert_eq!(partitions.len(), 1);
    partitions.remove(0)
}

fn compiled_group(dims: &[Vec<i64>; 3], strides: &[Option<Vec<i64>>; 4]) -> Result<CompiledPartition> {
    let f32s = |id: usize| match &strides[id] {
        Some(strides) => {
            LogicalTensor::with_strides(id, DataType::F32, &dims[id], &strides[..dims[id].len()])
        }
        None => LogicalTensor::strided(id, DataType::F32, &dims[id]),
    };
    let output = |id: usize| match &strides[id - 3] {
        Some(strides) => {
            let rank = dims[0].len().max(dims[1].len());
            open::with_strides(id, DataType::F32, &vec![OPEN; rank], &strides[..rank])
        }
        None => Ok(LogicalTensor::unknown(id, DataType::F32)),
    };
    group().compile_for(
        &Engine::builder().threads(2).build(),
        &[f32s(0)?, f32s(1)?],
        &[output(5)?, output(6)?],
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn selects_are_sized_rightly_or_refused(
        mode in prop::sample::select(MODES.to_vec()),
        data_type in data_type(),
        dims in triple(),
        given in prop::collection::vec(strides(), 4),
        threads in 1usize..3,
    ) {
        let mut case = Case::new(mode, data_type, [&[], &[], &[]]);
        let strides = |i: usize, rank: usize| given[i].as_ref().map(|strides| strides[..rank].to_vec());
        case.strides = [0, 1, 2].map(|i| strides(i, dims[i].len()));
        case.dst_strides =
            broadcast(mode, None, &dims).and_then(|result: Vec<i64>| strides(DST, result.len()));
        case.dims = dims;
        let compiled = case.compile(&Engine::builder().threads(threads).build());
        prop_assert_eq!(judged(compiled), None, "{:?}", case);
    }

    #[test]
    fn groups_are_sized_rightly_or_refused(dims in triple(), given in prop::collection::vec(strides(), 4)) {
        let strides = [0, 1, 2, 3].map(|i| given[i].clone());
        prop_assert_eq!(judged(compiled_group(&dims, &strides)), None);
    }

    #[test]
    fn descriptions_and_values_are_sized_rightly_or_refused(
        data_type in data_type(),
        dims in prop::collection::vec(dim(), 0..5),
        given in strides(),
    ) {
        let strided = match &given {
            Some(strides) => LogicalTensor::with_strides(0, data_type, &dims, &strides[..dims.len()]),
            None => LogicalTensor::strided(0, data_type, &dims),
        };
        if let Ok(tensor) = strided {
            let (size, span) = (data_type.size().unwrap(), tensor.span().unwrap());
            prop_assert!(span.checked_mul(size).is_some_and(|bytes| bytes <= isize::MAX as usize));
            prop_assert!(tensor.memory_size() <= isize::MAX as usize);
        }
        let is_empty = dims.contains(&0);
        prop_assert_eq!(Value::new(data_type, &dims, Vec::new()).is_ok(), is_empty);
        if is_empty {
            let value = || Value::new(data_type, &dims, Vec::new()).unwrap();
            let cond = Value::new(DataType::Boolean, &dims, Vec::new()).unwrap();
            let op = Case::new(AutoBroadcast::Multidirectional, data_type, [&[], &[], &[]]).op();
            let result = reference::run(&op, &[cond, value(), value()]);
            prop_assert!(result.is_ok_and(|results| results[0] == value()));
        }
    }
}

/// The largest shapes there are, whose bytes together are more than `usize` counts, and strides that end
/// where addresses do.
#[test]
fn the_largest_shapes_are_counted() {
    const MAX: i64 = i64::MAX;
    type Row<'a> = (DataType, &'a [i64], Option<&'a [i64]>, usize);
    let whole = isize::MAX as usize;
    let rows: &[Row<'_>] = &[
        // The condition, two branches and the result.
        (DataType::U8, &[MAX], None, usize::MAX),
        (DataType::U8, &[MAX / 2], None, 4 * (whole / 2)),
        (DataType::U8, &[MAX / 4 + 2], None, 4 * (whole / 4 + 2)),
        (DataType::F32, &[MAX / 4], None, usize::MAX),
        (DataType::F32, &[MAX / 16], None, 13 * (whole / 16)),
        (DataType::F32, &[2, 3], Some(&[MAX / 8, 1]), 6 * 13),
        (DataType::S64, &[2, 2, 2], Some(&[MAX / 16, 2, 1]), 8 * 25),
        // Elements of operands that lie upon each other are counted each.
        (DataType::U8, &[1 << 20, 1 << 20, 1 << 20], Some(&[1, 1, 1]), 4 << 60),
    ];
    let mut wrong = Vec::new();
    for &(data_type, dims, strides, expected) in rows {
        let mut case = Case::new(AutoBroadcast::None, data_type, [dims; 3]);
        let overlap = strides.is_some_and(|strides| strides.iter().all(|&stride| stride == 1));
        case.strides[1] = strides.map(<[i64]>::to_vec);
        case.dst_strides = strides.filter(|_| !overlap).map(<[i64]>::to_vec);
        match case.compile(&Engine::builder().threads(2).build()) {
            Ok(compiled) if compiled.bytes_moved() == expected && fault(&compiled).is_none() => {}
            Ok(compiled) => wrong.push((case, compiled.bytes_moved().to_string())),
            Err(error) => wrong.push((case, error.to_string())),
        }
    }
    report(&wrong);
}
