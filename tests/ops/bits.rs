//! Promise: a select changes no bit, for any type, at any level.

use crate::common::{COND, Case, ELSE, Random, THEN, engines, report, run};
use sterna::{AutoBroadcast, DataType, Element, TensorBuf};

#[test]
fn every_type_moves_random_bytes_unchanged_at_every_level() {
    let mut wrong = Vec::new();
    for engine in engines() {
        for &data_type in DataType::WHOLE {
            for dims in [[&[67][..], &[67], &[67]], [&[67], &[67], &[]], [&[5, 1], &[5, 67], &[67]]] {
                let case = Case::new(AutoBroadcast::Numpy, data_type, dims);
                if let Err(error) = case.check(&engine, &mut Random::new(data_type.code().into())) {
                    wrong.push((engine.level(), case, error));
                }
            }
        }
    }
    report(&wrong);
}

/// Selects with every pairing of the given bits on both sides, and compares bits.
fn keeps<T: Element + PartialEq + std::fmt::Debug>(bits: &[T]) {
    let n = bits.len() as i64;
    let case = Case::new(AutoBroadcast::Multidirectional, T::DATA_TYPE, [&[2, n, n], &[n, 1], &[n]]);
    for engine in engines() {
        let compiled = case.compile(&engine).unwrap();
        let mut inputs: Vec<TensorBuf> =
            compiled.inputs().iter().map(|desc| TensorBuf::zeroed(desc.clone(), &engine).unwrap()).collect();
        inputs[COND].as_mut_bytes()[..(n * n) as usize].fill(0x80);
        inputs[THEN].as_mut_slice::<T>().unwrap().copy_from_slice(bits);
        inputs[ELSE].as_mut_slice::<T>().unwrap().copy_from_slice(bits);
        let mut output = TensorBuf::zeroed(compiled.outputs()[0].clone(), &engine).unwrap();
        run(&compiled, &engine, &inputs, &mut output).unwrap();
        let rows = bits.iter().flat_map(|&then| std::iter::repeat_n(then, bits.len()));
        let columns = bits.iter().cycle().copied().take(bits.len() * bits.len());
        let expected: Vec<T> = rows.chain(columns).collect();
        let given = output.as_slice::<T>().unwrap();
        let differ: Vec<_> =
            expected.iter().zip(given).filter(|(expected, given)| expected != given).collect();
        report(&differ);
    }
}

#[test]
fn nan_payloads_signed_zeros_and_denormals_arrive_as_they_left() {
    // Bits, not values: a float compared as a float would hide what changed.
    keeps::<u32>(&[0x7f80_0001, 0xff80_1234, 0x7fc0_0000, 0xffff_ffff, 0x8000_0000, 0, 1, 0x807f_ffff]);
    keeps::<u64>(&[0x7ff0_0000_0000_0001, 0xfff4_0000_dead_beef, 1 << 63, 0, 1, 0x800f_ffff_ffff_ffff]);
    keeps::<u16>(&[0x7c01, 0xfe55, 0x7f81, 0xffaa, 0x8000, 0, 1, 0x83ff, 0x0080]);
    keeps::<u8>(&[0x7d, 0x80, 0xff, 0, 1, 0x7c]);
}

#[test]
fn float_types_are_moved_as_bits_too() {
    let case = |data_type| Case::new(AutoBroadcast::None, data_type, [&[1], &[1], &[1]]);
    // (type, the bits of a signalling NaN with a payload)
    let rows: &[(DataType, u64)] = &[
        (DataType::F32, 0x7f81_2345),
        (DataType::F64, 0x7ff4_5678_9abc_def0),
        (DataType::F16, 0x7d55),
        (DataType::Bf16, 0x7fa5),
        (DataType::F8E5m2, 0x7d),
        (DataType::F8E4m3, 0x7f),
    ];
    let mut wrong = Vec::new();
    for engine in engines() {
        for &(data_type, bits) in rows {
            let compiled = case(data_type).compile(&engine).unwrap();
            let mut inputs = case(data_type).filled(&compiled, &engine, &mut Random::new(3));
            let size = data_type.size().unwrap();
            inputs[COND].as_mut_bytes()[0] = 2;
            inputs[THEN].as_mut_bytes().copy_from_slice(&bits.to_ne_bytes()[..size]);
            let mut output = TensorBuf::zeroed(compiled.outputs()[0].clone(), &engine).unwrap();
            run(&compiled, &engine, &inputs, &mut output).unwrap();
            if output.as_bytes() != &bits.to_ne_bytes()[..size] {
                wrong.push((engine.level(), data_type, output.as_bytes().to_vec()));
            }
        }
    }
    report(&wrong);
}

#[test]
fn any_byte_but_zero_is_true() {
    let case = Case::new(AutoBroadcast::Numpy, DataType::U8, [&[256], &[], &[]]);
    let case = Case { mode: AutoBroadcast::Multidirectional, ..case };
    for engine in engines() {
        let compiled = case.compile(&engine).unwrap();
        let mut inputs = case.filled(&compiled, &engine, &mut Random::new(5));
        (0..=255u8).for_each(|byte| inputs[COND].as_mut_bytes()[usize::from(byte)] = byte);
        inputs[THEN].as_mut_bytes()[0] = 7;
        inputs[ELSE].as_mut_bytes()[0] = 9;
        let mut output = TensorBuf::zeroed(compiled.outputs()[0].clone(), &engine).unwrap();
        run(&compiled, &engine, &inputs, &mut output).unwrap();
        let wrong: Vec<_> =
            output.as_bytes().iter().enumerate().filter(|&(i, &b)| b != if i == 0 { 9 } else { 7 }).collect();
        report(&wrong);
    }
}
