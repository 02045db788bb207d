//! Promise: executing a small partition allocates nothing and starts no thread.
//!
//! One test alone in its binary: a second one would start threads of its own while this one counts.

mod common;
#[path = "common/counting.rs"]
mod counting;

use common::{COND, Case, DST, ELSE, Random, THEN, report};
use counting::allocations;
use sterna::{
    AutoBroadcast, CompiledPartition, DataType, Engine, Graph, LogicalTensor, Op, OpKind, Policy, Stream,
    Tensor, TensorBuf, TensorMut,
};

/// Threads of this process, where the system tells.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

/// Executes with tensors made for this one call, in place of an input where one is named.
fn execute_anew(
    compiled: &CompiledPartition,
    stream: &Stream,
    inputs: &[TensorBuf],
    output: &mut TensorBuf,
    in_place_of: Option<usize>,
) {
    let (descs, engine) = (compiled.inputs(), compiled.engine());
    let address = |i: usize| inputs[i].as_bytes().as_ptr();
    // SAFETY: each buffer was made for its description, and is borrowed for as long as the execution runs.
    let [cond, then, else_] =
        [COND, THEN, ELSE].map(|i| unsafe { Tensor::from_raw_parts(&descs[i], engine, address(i)) });
    let target = output.as_mut_bytes().as_mut_ptr();
    // SAFETY: as above.
    let dst = unsafe { TensorMut::from_raw_parts(&compiled.outputs()[0], engine, target) };
    let result = match in_place_of {
        Some(THEN) => compiled.execute(stream, &[cond, else_], &mut [dst.in_place_of(THEN)]),
        Some(input) => compiled.execute(stream, &[cond, then], &mut [dst.in_place_of(input)]),
        None => compiled.execute(stream, &[cond, then, else_], &mut [dst]),
    };
    result.unwrap();
}

#[test]
fn small_executions_allocate_nothing_and_start_no_thread() {
    assert_ne!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 0, "the counter counts");
    let rows: &[([&[i64]; 3], Option<usize>)] = &[
        ([&[16], &[16], &[16]], None),
        ([&[16], &[16], &[16]], Some(THEN)),
        ([&[16], &[16], &[16]], Some(ELSE)),
        ([&[16], &[16], &[]], None),
        ([&[4, 4], &[4, 1], &[4]], None),
        ([&[4, 1], &[4, 4], &[4, 4]], Some(ELSE)),
        ([&[], &[], &[]], None),
        ([&[0], &[0], &[0]], None),
        ([&[2, 1, 2, 1, 2], &[2, 2, 2, 2, 2], &[1, 2, 1, 2, 1]], None),
    ];
    let mut wrong = Vec::new();
    for &(dims, in_place_of) in rows {
        for data_type in [DataType::U8, DataType::F16, DataType::F32, DataType::S64] {
            let engine = Engine::builder().threads(4).build();
            let case = Case::new(AutoBroadcast::Numpy, data_type, dims);
            let compiled = case.compile(&engine).unwrap();
            let inputs = case.filled(&compiled, &engine, &mut Random::new(1));
            let mut output = TensorBuf::zeroed(compiled.outputs()[0].clone(), &engine).unwrap();
            let stream = Stream::new(&engine);
            let threads_before = threads();

            let new_tensors = allocations(|| {
                (0..3).for_each(|_| execute_anew(&compiled, &stream, &inputs, &mut output, in_place_of));
            });
            let given: Vec<_> =
                (0..3).filter(|&i| Some(i) != in_place_of).map(|i| inputs[i].as_tensor()).collect();
            let target = output.as_tensor_mut();
            assert_eq!(target.desc().id().get(), DST);
            let mut outputs = [match in_place_of {
                Some(input) => target.in_place_of(input),
                None => target,
            }];
            let same_tensors = allocations(|| {
                (0..3).for_each(|_| compiled.execute(&stream, &given, &mut outputs).unwrap());
            });
            let started = threads().saturating_sub(threads_before);
            if (new_tensors, same_tensors, started) != (0, 0, 0) {
                wrong.push((dims, in_place_of, data_type, new_tensors, same_tensors, started));
            }
        }
    }
    report(&wrong);
}

#[test]
fn small_executions_of_groups_allocate_nothing_once_they_have_scratch() {
    let tensor = |id, data_type| LogicalTensor::strided(id, data_type, &[4, 4]).unwrap();
    let (f32s, bf16s) = (|id| tensor(id, DataType::F32), |id| tensor(id, DataType::Bf16));
    let mask = || tensor(3, DataType::Boolean);
    let ops = [
        Op::new(0, OpKind::Add).input(f32s(0)).input(bf16s(1)).output(bf16s(2)),
        Op::new(1, OpKind::GreaterEqual).input(f32s(0)).input(f32s(4)).output(mask()),
        Op::select(2, mask(), bf16s(2), bf16s(1), bf16s(5)),
        Op::new(3, OpKind::Tanh).input(bf16s(5)).output(bf16s(6)),
    ];
    let mut graph = Graph::new();
    ops.into_iter().for_each(|op| graph.add_op(op).unwrap());
    graph.finalize().unwrap();
    let engine = Engine::builder().threads(4).build();
    let [partition] = &graph.partitions(Policy::Fusion).unwrap()[..] else { panic!("one partition") };
    let compiled = partition.compile(&engine).unwrap();
    let made = |desc: &LogicalTensor| TensorBuf::zeroed(desc.clone(), &engine).unwrap();
    let inputs: Vec<TensorBuf> = compiled.inputs().iter().map(made).collect();
    let mut output = made(&compiled.outputs()[0]);
    let given: Vec<_> = inputs.iter().map(TensorBuf::as_tensor).collect();
    let (stream, mut outputs) = (Stream::new(&engine), [output.as_tensor_mut()]);
    let mut run = |times: usize| {
        allocations(|| (0..times).for_each(|_| compiled.execute(&stream, &given, &mut outputs).unwrap()))
    };
    assert_ne!(run(1), 0, "the group has scratch");
    assert_eq!(run(3), 0);
}
