//! Promise: any number of threads may execute one compiled partition at once, and any number of workers give
//! the same bits.

mod common;

#[cfg(feature = "threads")]
use std::sync::Arc;

use common::{Case, ELSE, Random, report};
use sterna::{AutoBroadcast, DataType, Engine, TensorBuf};

/// Selects that are large enough for workers, each of another form.
fn large_cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new(AutoBroadcast::None, DataType::F32, [&[1_000_003], &[1_000_003], &[1_000_003]]),
        Case::new(AutoBroadcast::Numpy, DataType::U8, [&[3, 1, 700], &[3, 1500, 700], &[]]),
        Case::new(AutoBroadcast::Numpy, DataType::S64, [&[900, 1], &[900, 601], &[601]]),
        Case::new(AutoBroadcast::None, DataType::Bf16, [&[1300, 1111], &[1300, 1111], &[1300, 1111]]),
    ];
    cases[3].strides[ELSE] = Some(vec![1, 1300]);
    cases[3].dst_strides = Some(vec![1200, 1]);
    cases
}

#[test]
fn one_to_eight_threads_give_the_same_bits() {
    let mut wrong = Vec::new();
    for case in large_cases() {
        for threads in 1..=8 {
            let engine = Engine::builder().threads(threads).build();
            if let Err(error) = case.check(&engine, &mut Random::new(9)) {
                wrong.push((case.clone(), threads, error));
            }
        }
    }
    report(&wrong);
}

/// As few as machines have run a whole execution, not as many as a number can say.
#[test]
fn an_engine_of_any_number_of_threads_executes() {
    let engine = Engine::builder().threads(usize::MAX).build();
    assert!(engine.threads() <= 1024, "{}", engine.threads());
    large_cases()[0].check(&engine, &mut Random::new(5)).unwrap();
}

#[test]
fn sixteen_threads_share_one_compiled_partition() {
    let engine = Engine::builder().threads(3).build();
    for case in
        large_cases().into_iter().skip(1).chain([Case::new(AutoBroadcast::None, DataType::S8, [&[99]; 3])])
    {
        let compiled = case.compile(&engine).unwrap();
        let run = |inputs: &[TensorBuf], output: &mut TensorBuf| {
            output.as_mut_bytes().fill(common::GAP);
            common::run(&compiled, &engine, inputs, output).unwrap();
        };
        let zeroed = || TensorBuf::zeroed(compiled.outputs()[0].clone(), &engine).unwrap();
        // The results of two runs alone, checked once: the interpreter takes far longer than a run.
        let alone = [0, 1].map(|seed| {
            let inputs = case.filled(&compiled, &engine, &mut Random::new(seed));
            let mut output = zeroed();
            run(&inputs, &mut output);
            case.compare(&inputs, &output).unwrap();
            (inputs, output)
        });
        std::thread::scope(|scope| {
            let share = |thread: usize| {
                let (inputs, expected) = &alone[thread % alone.len()];
                let (run, zeroed) = (&run, &zeroed);
                scope.spawn(move || {
                    let mut output = zeroed();
                    for _ in 0..4 {
                        run(inputs, &mut output);
                        assert!(output.as_bytes() == expected.as_bytes());
                    }
                })
            };
            // Joined one by one, since ThreadSanitizer does not see how a scope waits for its threads.
            let threads: Vec<_> = (0..16).map(share).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}

#[test]
fn small_executions_in_a_row_give_the_same_bits() {
    let mut cases = vec![
        Case::new(AutoBroadcast::None, DataType::F32, [&[256, 256], &[256, 256], &[256, 256]]),
        Case::new(AutoBroadcast::Numpy, DataType::U8, [&[3, 1, 700], &[3, 400, 700], &[]]),
        Case::new(AutoBroadcast::None, DataType::Bf16, [&[300, 411], &[300, 411], &[300, 411]]),
    ];
    cases[2].strides[ELSE] = Some(vec![1, 300]);
    cases[2].dst_strides = Some(vec![500, 1]);
    for case in cases {
        for (threads, callers) in [(1, 1), (2, 1), (3, 1), (8, 1), (2, 3)] {
            let engine = Engine::builder().threads(threads).build();
            let compiled = case.compile(&engine).unwrap();
            let inputs = case.filled(&compiled, &engine, &mut Random::new(2));
            let zeroed = || TensorBuf::zeroed(compiled.outputs()[0].clone(), &engine).unwrap();
            let mut expected = zeroed();
            expected.as_mut_bytes().fill(common::GAP);
            common::run(&compiled, &engine, &inputs, &mut expected).unwrap();
            case.compare(&inputs, &expected).unwrap();
            std::thread::scope(|scope| {
                let call = || {
                    let mut output = zeroed();
                    for round in 0..200 {
                        if round % 20 == 0 {
                            output.as_mut_bytes().fill(common::GAP);
                        }
                        common::run(&compiled, &engine, &inputs, &mut output).unwrap();
                        assert!(round % 20 != 5 || output.as_bytes() == expected.as_bytes(), "{case:?}");
                    }
                };
                // Joined one by one, since ThreadSanitizer does not see how a scope waits for its threads.
                let threads: Vec<_> = (0..callers).map(|_| scope.spawn(call)).collect();
                threads.into_iter().for_each(|thread| thread.join().unwrap());
            });
        }
    }
}

#[cfg(feature = "threads")]
#[test]
fn an_engine_runs_on_a_pool_of_the_callers() {
    let pool = Arc::new(rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap());
    let engine = Engine::builder().pool(pool.clone()).build();
    let is_capped =
        ["STERNA_NUM_THREADS", "OMP_NUM_THREADS"].iter().any(|name| std::env::var_os(name).is_some());
    assert!(is_capped || engine.threads() == 3, "{} threads", engine.threads());
    let case = &large_cases()[0];
    case.check(&engine, &mut Random::new(4)).unwrap();
    // From inside of that very pool too.
    pool.install(|| case.check(&engine, &mut Random::new(4))).unwrap();
}

#[cfg(feature = "threads")]
#[test]
fn workers_that_never_come_hold_nobody_up() {
    let pool = Arc::new(rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap());
    let (release, released) = std::sync::mpsc::channel::<()>();
    // Ends when `release` is dropped, also where a check fails.
    pool.spawn(move || {
        let _ = released.recv();
    });
    let engine = Engine::builder().pool(pool).threads(2).build();
    for case in large_cases() {
        case.check(&engine, &mut Random::new(7)).unwrap();
    }
    drop(release);
}

#[test]
fn clones_outlive_what_they_were_cloned_from() {
    let case = Case::new(AutoBroadcast::None, DataType::F32, [&[5], &[5], &[5]]);
    let compiled = {
        let engine = Engine::builder().threads(2).build();
        case.compile(&engine).unwrap().clone()
    };
    let engine = compiled.engine().clone();
    let inputs = case.filled(&compiled, &engine, &mut Random::new(4));
    let mut output = TensorBuf::zeroed(compiled.outputs()[0].clone(), &engine).unwrap();
    common::run(&compiled, &engine, &inputs, &mut output).unwrap();
    case.compare(&inputs, &output).unwrap();
}

#[test]
fn host_scalars_are_read_from_the_tensor() {
    use sterna::{LogicalTensor, Op, Partition, Stream, Tensor};
    let engine = Engine::builder().threads(1).build();
    let desc = |id, data_type| LogicalTensor::strided(id, data_type, &[3]).unwrap();
    let fill = LogicalTensor::host_scalar(2, DataType::S64).unwrap();
    let op = Op::select(0, desc(0, DataType::Boolean), desc(1, DataType::S64), fill, desc(3, DataType::S64));
    let partition = Partition::from_op(op).unwrap();
    let compiled = partition.compile(&engine).unwrap();
    let [cond, then, fill] = compiled.inputs() else { panic!() };
    let mut dst = [0i64; 3];
    let inputs = [
        Tensor::new(cond, &engine, &[true, false, true]).unwrap(),
        Tensor::new(then, &engine, &[1i64, 2, 3]).unwrap(),
        Tensor::scalar(fill, i64::MIN).unwrap(),
    ];
    let mut outputs = [sterna::TensorMut::new(&compiled.outputs()[0], &engine, &mut dst).unwrap()];
    compiled.execute(&Stream::new(&engine), &inputs, &mut outputs).unwrap();
    assert_eq!(dst, [1, i64::MIN, 3]);
}
