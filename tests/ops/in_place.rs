//! Promise: the result may replace `then` or `else` in their very buffer, where layouts agree, and overlaps
//! nothing otherwise.

use crate::common::{self, COND, Case, DST, ELSE, Random, THEN, engines, report};
use sterna::{
    AutoBroadcast, DataType, Engine, Error, ExecuteFault, InPlacePair, LogicalTensor, Op, Partition, Stream,
    Tensor, TensorBuf, TensorMut,
};

/// Runs a case in place of one branch and compares with the oracle's view of the original bytes.
fn check_in_place(case: &Case, branch: usize, engine: &Engine) -> Result<(), String> {
    let compiled = case.compile(engine).map_err(|error| error.to_string())?;
    let pair = InPlacePair::new(branch, DST);
    if !compiled.in_place_pairs().contains(&pair) {
        return Err(format!("{pair:?} is not among {:?}", compiled.in_place_pairs()));
    }
    let inputs = case.filled(&compiled, engine, &mut Random::new(23));
    let mut output = TensorBuf::zeroed(compiled.outputs()[0].clone(), engine).unwrap();
    output.as_mut_bytes().copy_from_slice(inputs[branch].as_bytes());
    let others: Vec<Tensor<'_>> = (0..3).filter(|&i| i != branch).map(|i| inputs[i].as_tensor()).collect();
    let mut outputs = [output.as_tensor_mut().in_place_of(branch)];
    compiled.execute(&Stream::new(engine), &others, &mut outputs).map_err(|error| error.to_string())?;

    // The bytes between the elements of a padded layout are the branch's, not the gap that the oracle
    // expects.
    let mut fresh = TensorBuf::zeroed(compiled.outputs()[0].clone(), engine).unwrap();
    fresh.as_mut_bytes().copy_from_slice(inputs[branch].as_bytes());
    common::run(&compiled, engine, &inputs, &mut fresh).map_err(|error| error.to_string())?;
    match fresh.as_bytes() == output.as_bytes() {
        true => Ok(()),
        false => Err("in place and out of place differ".to_owned()),
    }
}

#[test]
fn in_place_of_either_branch_gives_the_same_bits() {
    type Row<'a> = ([&'a [i64]; 3], Option<&'a [i64]>, usize);
    let rows: &[Row<'_>] = &[
        ([&[1000], &[1000], &[1000]], None, THEN),
        ([&[1000], &[1000], &[1000]], None, ELSE),
        ([&[1000], &[1000], &[]], None, THEN),
        ([&[1000], &[], &[1000]], None, ELSE),
        ([&[40, 1], &[40, 300], &[300]], None, THEN),
        ([&[40, 1], &[300], &[40, 300]], None, ELSE),
        ([&[300], &[40, 300], &[40, 1]], None, THEN),
        ([&[40, 300], &[40, 300], &[40, 300]], Some(&[310, 1]), THEN),
        ([&[40, 300], &[40, 300], &[40, 300]], Some(&[310, 1]), ELSE),
        ([&[40, 300], &[40, 300], &[40, 300]], Some(&[1, 40]), THEN),
        ([&[40, 300], &[40, 300], &[40, 300]], Some(&[700, 2]), ELSE),
        ([&[], &[], &[]], None, THEN),
        ([&[30_000], &[30_000], &[30_000]], None, ELSE),
    ];
    let mut wrong = Vec::new();
    for engine in engines() {
        for (dims, strides, branch) in rows {
            for data_type in [DataType::Boolean, DataType::Bf16, DataType::F32, DataType::F64] {
                let mut case = Case::new(AutoBroadcast::Numpy, data_type, *dims);
                case.strides[*branch] = strides.map(<[i64]>::to_vec);
                case.dst_strides = strides.map(<[i64]>::to_vec);
                if let Err(error) = check_in_place(&case, *branch, &engine) {
                    wrong.push((engine.level(), case, *branch, error));
                }
            }
        }
    }
    report(&wrong);
}

#[test]
fn pairs_are_those_of_equal_shape_strides_and_type() {
    let pair = |input: usize| InPlacePair::new(input, DST);
    type Row<'a> = ([&'a [i64]; 3], Option<&'a [i64]>, Vec<InPlacePair>);
    let rows: &[Row<'_>] = &[
        ([&[4, 3], &[4, 3], &[4, 3]], None, vec![pair(THEN), pair(ELSE)]),
        ([&[4, 3], &[4, 3], &[3]], None, vec![pair(THEN)]),
        ([&[4, 3], &[], &[4, 3]], None, vec![pair(ELSE)]),
        ([&[4, 3], &[1, 3], &[4, 1]], None, vec![]),
        ([&[4, 3], &[4, 3], &[4, 3]], Some(&[1, 4]), vec![]),
    ];
    let engine = Engine::builder().threads(1).build();
    let mut wrong = Vec::new();
    for row in rows {
        let (dims, strides, expected) = row;
        let mut case = Case::new(AutoBroadcast::Numpy, DataType::F32, *dims);
        case.dst_strides = strides.map(<[i64]>::to_vec);
        let compiled = case.compile(&engine).unwrap();
        if compiled.in_place_pairs() != expected {
            wrong.push((row, compiled.in_place_pairs().to_vec()));
        }
    }
    report(&wrong);
}

#[test]
fn one_tensor_as_both_branches_and_as_condition_and_branch() {
    let engine = Engine::builder().threads(1).build();
    let stream = Stream::new(&engine);
    let lt = |id| LogicalTensor::strided(id, DataType::Boolean, &[100]).unwrap();
    let bytes: Vec<u8> = (0..100).map(|i| if i % 3 == 0 { 0 } else { i }).collect();
    let other: Vec<u8> = (100..200).collect();
    // (the ports, the input that the result replaces, the expected result)
    let chosen = |then: &[u8], else_: &[u8]| -> Vec<u8> {
        (0..100).map(|i| if bytes[i] != 0 { then[i] } else { else_[i] }).collect()
    };
    let rows = [
        ([0, 0, 0], 0, bytes.clone()),
        ([0, 0, 1], 0, chosen(&bytes, &other)),
        ([0, 1, 0], 0, chosen(&other, &bytes)),
        ([0, 1, 1], 1, other.clone()),
    ];
    let mut wrong = Vec::new();
    for (ports, replaced, expected) in rows {
        let op = Op::select(0, lt(ports[0]), lt(ports[1]), lt(ports[2]), lt(9));
        let partition = Partition::from_op(op).unwrap();
        let compiled = partition.compile(&engine).unwrap();
        assert!(compiled.in_place_pairs().contains(&InPlacePair::new(replaced, 9)));
        let buffers = [0, 1].map(|id| {
            let mut buffer = TensorBuf::zeroed(lt(id), &engine).unwrap();
            buffer.as_mut_bytes().copy_from_slice(if id == 0 { &bytes } else { &other });
            buffer
        });
        let mut output = TensorBuf::zeroed(lt(9), &engine).unwrap();
        output.as_mut_bytes().copy_from_slice(buffers[replaced].as_bytes());
        let inputs: Vec<_> = (0..2).filter(|&i| i != replaced).map(|i| buffers[i].as_tensor()).collect();
        let mut outputs = [output.as_tensor_mut().in_place_of(replaced)];
        compiled.execute(&stream, &inputs, &mut outputs).unwrap();
        if output.as_bytes() != expected {
            wrong.push((ports, output.as_bytes().to_vec()));
        }
    }
    report(&wrong);
}

#[test]
fn every_other_overlap_is_refused_before_anything_is_written() {
    let engine = Engine::builder().threads(1).build();
    let case = Case::new(AutoBroadcast::Numpy, DataType::U16, [&[50], &[50], &[]]);
    let compiled = case.compile(&engine).unwrap();
    let mut memory: Vec<u16> = (0..200).collect();
    let before = memory.clone();
    let base = memory.as_mut_ptr();
    // (index of the first element of cond, then, else and dst; whether it may run)
    let rows = [
        ([100, 0, 150, 0], true),
        ([100, 0, 150, 50], true),
        ([100, 0, 150, 1], false),
        ([100, 1, 150, 0], false),
        ([100, 0, 10, 0], false),
        ([100, 0, 49, 0], false),
        ([100, 0, 50, 0], true),
        ([20, 0, 150, 0], false),
        ([0, 50, 150, 25], false),
        ([0, 50, 150, 24], false),
    ];
    let mut wrong = Vec::new();
    for (at, fine) in rows {
        memory.copy_from_slice(&before);
        let place = |i: usize| base.wrapping_add(at[i]).cast::<u8>();
        let descs = compiled.inputs();
        // SAFETY: every range lies within `memory`, which nothing else uses while the partition runs.
        let (inputs, mut outputs) = unsafe {
            (
                [COND, THEN, ELSE].map(|i| Tensor::from_raw_parts(&descs[i], &engine, place(i))),
                [TensorMut::from_raw_parts(&compiled.outputs()[0], &engine, place(DST))],
            )
        };
        let result = compiled.execute(&Stream::new(&engine), &inputs, &mut outputs);
        let agrees = match &result {
            Ok(()) => fine,
            Err(Error::Execute(ExecuteFault::Overlap { output, .. })) if *output == DST => {
                !fine && memory == before
            }
            Err(_) => false,
        };
        if !agrees {
            wrong.push((at, result));
        }
    }
    report(&wrong);
}

#[test]
fn marking_an_output_that_is_no_pair_is_refused() {
    let engine = Engine::builder().threads(1).build();
    let case = Case::new(AutoBroadcast::Numpy, DataType::U16, [&[50], &[50], &[]]);
    let compiled = case.compile(&engine).unwrap();
    let inputs = case.filled(&compiled, &engine, &mut Random::new(1));
    let mut output = TensorBuf::zeroed(compiled.outputs()[0].clone(), &engine).unwrap();
    for (input, others) in [(ELSE, [COND, THEN]), (COND, [THEN, ELSE])] {
        let others = others.map(|i| inputs[i].as_tensor());
        let mut outputs = [output.as_tensor_mut().in_place_of(input)];
        let error = compiled.execute(&Stream::new(&engine), &others, &mut outputs).unwrap_err();
        assert_eq!(
            error,
            Error::Execute(ExecuteFault::NotInPlace { output: DST.into(), input: input.into() })
        );
    }
    assert!(output.as_bytes().iter().all(|&byte| byte == 0));
}

#[test]
fn what_stands_for_an_input_is_checked_where_another_tensor_has_its_id() {
    let engine = Engine::builder().threads(1).build();
    let case = Case::new(AutoBroadcast::Numpy, DataType::F32, [&[50], &[50], &[50]]);
    let compiled = case.compile(&engine).unwrap();
    let inputs = case.filled(&compiled, &engine, &mut Random::new(1));
    let others = [COND, ELSE].map(|i| inputs[i].as_tensor());
    let mut output = TensorBuf::zeroed(compiled.outputs()[0].clone(), &engine).unwrap();
    let elsewhere = Engine::builder().threads(1).build();
    let differs = |what, given: &str, expected: &str| ExecuteFault::Differs {
        tensor: DST.into(),
        what,
        given: given.into(),
        expected: expected.into(),
    };
    for (data_type, dims, home, fault) in [
        (DataType::F16, [50], &engine, differs("types", "f16", "f32")),
        (DataType::F32, [20], &engine, differs("dims", "{20}", "{50}")),
        (DataType::F32, [50], &elsewhere, ExecuteFault::TensorEngine { tensor: DST.into() }),
    ] {
        let desc = LogicalTensor::strided(DST, data_type, &dims).unwrap();
        let mut shared = TensorBuf::zeroed(desc, home).unwrap();
        let mut outputs = [output.as_tensor_mut(), shared.as_tensor_mut().in_place_of(THEN)];
        let error = compiled.execute(&Stream::new(&engine), &others, &mut outputs).unwrap_err();
        assert_eq!(error, Error::Execute(fault));
    }
    assert!(output.as_bytes().iter().all(|&byte| byte == 0));
}
