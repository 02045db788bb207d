//! Promise: a select takes every rank, shape and stride, and touches only the elements that exist.

use crate::common::{self, Case, DST, Random, THEN, engines, report};
use sterna::{AutoBroadcast, DataType, Engine, LogicalTensor, Partition, Status};

/// Strides that lay out dims without overlap: dense in a random dim order, some dims spaced out.
fn random_strides(dims: &[i64], random: &mut Random) -> Vec<i64> {
    let mut order: Vec<usize> = (0..dims.len()).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, random.below(i + 1));
    }
    let mut strides = vec![0; dims.len()];
    let mut stride = random.pick(&[1, 1, 1, 2, 3]);
    for axis in order {
        strides[axis] = stride;
        stride *= dims[axis].max(1) + random.pick(&[0, 0, 0, 1, 5]);
    }
    strides
}

#[test]
fn random_layouts_of_random_shapes() {
    let mut random = Random::new(11);
    let mut wrong = Vec::new();
    let engines = engines();
    for round in 0..3000 {
        let rank = random.below(5);
        let full: Vec<i64> = (0..rank).map(|_| random.pick(&[1, 2, 3, 4, 5, 7, 17])).collect();
        let mut operand = || -> Vec<i64> {
            let cut = if random.below(3) == 0 { random.below(rank + 1) } else { 0 };
            full[cut..].iter().map(|&dim| if random.below(4) == 0 { 1 } else { dim }).collect()
        };
        let dims = [operand(), operand(), operand()];
        let mut case =
            Case::new(AutoBroadcast::Multidirectional, random.pick(DataType::WHOLE), [&[], &[], &[]]);
        case.dims = dims;
        for i in 0..3 {
            if random.below(2) == 0 {
                let mut strides = random_strides(&case.dims[i], &mut random);
                if random.below(4) == 0 {
                    // Inputs may repeat an element along a dim.
                    if let Some(stride) = strides.first_mut() {
                        *stride = 0;
                    }
                }
                case.strides[i] = Some(strides);
            }
        }
        if random.below(2) == 0 {
            let result = common::broadcast(case.mode, None, &case.dims).unwrap();
            case.dst_strides = Some(random_strides(&result, &mut random));
        }
        let engine = &engines[round % engines.len()];
        if let Err(error) = case.check(engine, &mut random) {
            wrong.push((engine.level(), case, error));
        }
    }
    report(&wrong);
}

#[test]
fn larger_layouts_cross_tiles() {
    let types = [DataType::U8, DataType::F16, DataType::F32, DataType::S64];
    type Row<'a> = ([&'a [i64]; 3], [Option<&'a [i64]>; 3], Option<&'a [i64]>);
    let rows: &[Row<'_>] = &[
        // `then` transposed.
        ([&[150, 131], &[150, 131], &[150, 131]], [None, Some(&[1, 150]), None], Some(&[131, 1])),
        // The result transposed.
        ([&[150, 131], &[150, 131], &[150, 131]], [None, None, None], Some(&[1, 150])),
        // Padded rows everywhere.
        (
            [&[90, 1100], &[90, 1100], &[90, 1100]],
            [Some(&[1200, 1]), Some(&[1101, 1]), None],
            Some(&[1300, 1]),
        ),
        // Channels last against channels first.
        ([&[2, 3, 40, 41], &[2, 3, 40, 41], &[1]], [None, Some(&[4920, 1, 123, 3]), None], None),
        // Every second element.
        ([&[3000], &[3000], &[3000]], [Some(&[2]), Some(&[3]), Some(&[2])], Some(&[4])),
        // Rows of the condition repeated, columns of `then`, both of `else`.
        ([&[1, 6000], &[70, 1], &[]], [None, None, None], None),
        // A long row on its own.
        ([&[70_001], &[70_001], &[1]], [None, None, None], None),
        // The condition varies along the outer dims alone.
        ([&[37, 1, 1], &[37, 11, 300], &[11, 300]], [None, None, None], None),
        // Inner rows of two elements.
        ([&[500, 2], &[500, 2], &[500, 2]], [None, Some(&[3, 1]), None], Some(&[5, 2])),
    ];
    let mut wrong = Vec::new();
    for engine in engines() {
        for (dims, strides, dst) in rows {
            for data_type in types {
                let mut case = Case::new(AutoBroadcast::Multidirectional, data_type, *dims);
                case.strides = strides.map(|strides| strides.map(<[i64]>::to_vec));
                case.dst_strides = dst.map(<[i64]>::to_vec);
                if let Err(error) = case.check(&engine, &mut Random::new(17)) {
                    wrong.push((engine.level(), case, error));
                }
            }
        }
    }
    report(&wrong);
}

#[test]
fn ranks_0_to_12() {
    let mut wrong = Vec::new();
    for engine in engines() {
        for rank in 0..=12usize {
            // Dims that do not merge: the condition repeats every second one, `else` the others.
            let full: Vec<i64> = (0..rank).map(|axis| if axis < 9 { 2 } else { 3 }).collect();
            let every = |odd: usize| -> Vec<i64> {
                full.iter().enumerate().map(|(axis, &dim)| if axis % 2 == odd { 1 } else { dim }).collect()
            };
            let case = Case::new(AutoBroadcast::Numpy, DataType::S16, [&every(0), &full, &every(1)]);
            if let Err(error) = case.check(&engine, &mut Random::new(rank as u64)) {
                wrong.push((engine.level(), rank, error));
            }
        }
    }
    report(&wrong);
}

#[test]
fn a_dim_of_zero_makes_an_empty_result() {
    let rows: &[[&[i64]; 3]] = &[
        [&[0], &[0], &[0]],
        [&[1], &[0, 1], &[]],
        [&[3, 1], &[1, 3, 0], &[1]],
        [&[2, 0, 4], &[2, 0, 4], &[2, 0, 4]],
    ];
    let engine = Engine::builder().threads(1).build();
    let mut wrong = Vec::new();
    for dims in rows {
        let case = Case::new(AutoBroadcast::Numpy, DataType::F32, *dims);
        let compiled = case.compile(&engine).unwrap();
        if compiled.outputs()[0].memory_size() != 0 || compiled.outputs()[0].span() != Some(0) {
            wrong.push((dims, "the result has a size".to_owned()));
        }
        if let Err(error) = case.check(&engine, &mut Random::new(2)) {
            wrong.push((dims, error));
        }
    }
    report(&wrong);
}

#[test]
fn layout_any_follows_the_first_full_branch() {
    type Row<'a> = ([&'a [i64]; 3], [Option<&'a [i64]>; 3], &'a [i64]);
    let full: &[i64] = &[2, 3, 4];
    let rows: &[Row<'_>] = &[
        ([full, full, full], [None, None, None], &[12, 4, 1]),
        ([full, full, full], [None, Some(&[1, 2, 6]), None], &[1, 2, 6]),
        ([full, full, full], [None, Some(&[1, 20, 60]), None], &[1, 2, 6]),
        ([full, &[4], full], [None, None, Some(&[3, 1, 6])], &[3, 1, 6]),
        ([full, &[3, 1], &[2, 1, 4]], [Some(&[1, 2, 6]), None, None], &[12, 4, 1]),
        ([full, full, &[]], [None, Some(&[0, 4, 1]), None], &[12, 4, 1]),
        ([&[2, 1, 4], &[2, 1, 4], &[]], [None, Some(&[1, 7, 2]), None], &[1, 1, 2]),
    ];
    let engine = Engine::builder().threads(1).build();
    let mut wrong = Vec::new();
    for row in rows {
        let (dims, strides, expected) = row;
        let mut case = Case::new(AutoBroadcast::Multidirectional, DataType::F32, *dims);
        case.strides = strides.map(|strides| strides.map(<[i64]>::to_vec));
        let compiled = case.compile(&engine).unwrap();
        let given = compiled.port(DST).unwrap().strides().map(<[i64]>::to_vec);
        if given.as_deref() != Some(expected) {
            wrong.push((row, given));
        }
    }
    report(&wrong);
}

#[test]
fn output_strides_that_overlap_are_refused() {
    let engine = Engine::builder().threads(1).build();
    let case = Case::new(AutoBroadcast::Numpy, DataType::F32, [&[4, 5], &[4, 5], &[4, 5]]);
    let partition = Partition::from_op(case.op()).unwrap();
    let rows: &[(&[i64], bool)] = &[
        (&[5, 1], true),
        (&[1, 4], true),
        (&[4, 1], false),
        (&[0, 1], false),
        (&[1, 3], false),
        (&[9, 2], true),
    ];
    let wrong: Vec<_> = rows
        .iter()
        .filter(|(strides, fine)| {
            let output = LogicalTensor::with_strides(DST, DataType::F32, &[4, 5], strides).unwrap();
            match partition.compile_for(&engine, &case.inputs().unwrap(), &[output]) {
                Ok(_) => !fine,
                Err(error) => *fine || error.status() != Status::InvalidArguments,
            }
        })
        .collect();
    report(&wrong);
}

#[test]
fn a_slice_that_ends_with_its_last_element_is_enough() {
    use sterna::{Stream, Tensor, TensorMut};
    let engine = Engine::builder().threads(1).build();
    // Three rows of two elements, five apart: 12 elements are touched, although a caller who allocates the
    // whole of the memory size gets 15.
    let mut case = Case::new(AutoBroadcast::Numpy, DataType::S32, [&[], &[3, 2], &[]]);
    case.strides[THEN] = Some(vec![5, 1]);
    case.dst_strides = Some(vec![5, 1]);
    let compiled = case.compile(&engine).unwrap();
    assert_eq!(compiled.outputs()[0].memory_size(), 60);
    let then: Vec<i32> = (0..12).collect();
    let mut dst = [-1i32; 12];
    let [cond, then_desc, else_] = compiled.inputs() else { panic!() };
    let inputs = [
        Tensor::new(cond, &engine, &[true]).unwrap(),
        Tensor::new(then_desc, &engine, &then).unwrap(),
        Tensor::new(else_, &engine, &[0i32]).unwrap(),
    ];
    let mut outputs = [TensorMut::new(&compiled.outputs()[0], &engine, &mut dst).unwrap()];
    compiled.execute(&Stream::new(&engine), &inputs, &mut outputs).unwrap();
    assert_eq!(dst, [0, 1, -1, -1, -1, 5, 6, -1, -1, -1, 10, 11]);
}
