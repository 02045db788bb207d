//! Promise: fusing changes the speed, never a bit.

mod common;

use std::mem::MaybeUninit;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::graphs::{self, RandomGraph};
use common::{Random, report};
use sterna::{
    Attr, CompiledPartition, DataType, Engine, Error, ExecuteFault, Graph, InPlacePair, Level, LogicalTensor,
    Op, OpKind, Policy, Result, Stream, Tensor, TensorBuf, TensorMut,
};

/// Random graphs by seed. `STERNA_FUSION_SEEDS` sets how many, `STERNA_FUSION_FIRST` where to start.
fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
    };
    let first = number("STERNA_FUSION_FIRST", 0);
    first..first + number("STERNA_FUSION_SEEDS", 20_000)
}

#[test]
fn random_graphs_give_the_same_bits_fused_and_op_by_op() {
    let engines: Vec<Engine> =
        Level::all_available().map(|level| Engine::builder().max_level(level).threads(1).build()).collect();
    let wrong = Mutex::new(Vec::new());
    let seeds = seeds();
    let next = AtomicU64::new(seeds.start);
    let work = || {
        while wrong.lock().unwrap().len() < 3 {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            // Every graph at one level, some at all.
            let engines = if seed.is_multiple_of(16) {
                &engines[..]
            } else {
                &engines[seed as usize % engines.len()..][..1]
            };
            let graph = RandomGraph::new(&mut Random::new(seed), 20);
            if let Err(why) = graphs::check(&graph, seed, engines) {
                println!("seed {seed}: {why}");
                wrong.lock().unwrap().push((seed, why));
            }
        }
    };
    std::thread::scope(|scope| {
        (0..std::thread::available_parallelism().map_or(1, Into::into)).for_each(|_| drop(scope.spawn(work)));
    });
    report(&wrong.into_inner().unwrap());
}

#[test]
fn one_to_eight_threads_give_the_same_bits() {
    let mut wrong = Vec::new();
    let shapes: &[&[i64]] = &[&[2_000_000], &[1300, 1111], &[6, 3, 400, 301], &[90_000, 17]];
    for (seed, dims) in (0..8).zip(shapes.iter().cycle()) {
        let graph = RandomGraph::on(&mut Random::new(seed), 9, dims.to_vec());
        let [fused, _] = graphs::both(&graph.graph);
        let mut first = None;
        for threads in [1, 2, 3, 5, 8] {
            let engine = Engine::builder().threads(threads).build();
            let inputs = graphs::filled(&graph, &engine, seed);
            let made = graphs::run(&fused, &graph.outputs, &engine, &inputs, None).unwrap();
            match &first {
                None => first = Some(made),
                Some(first) => wrong.extend(graphs::differs(first, &made).map(|why| (seed, threads, why))),
            }
        }
    }
    report(&wrong);
}

/// A causal mask made from indices, applied to scaled scores: `select(row >= column, scores * scale, fill)`.
fn causal_mask(dims: &[i64]) -> Graph {
    let tensor = |id, data_type| LogicalTensor::strided(id, data_type, dims).unwrap();
    let scalar = |id| LogicalTensor::strided(id, DataType::F32, &[]).unwrap();
    let (f32s, s32s) = (|id| tensor(id, DataType::F32), |id| tensor(id, DataType::S32));
    let mask = || tensor(5, DataType::Boolean);
    let ops = [
        Op::new(0, OpKind::GenIndex).axis(-2).input(f32s(0)).output(s32s(3)),
        Op::new(1, OpKind::GenIndex).axis(-1).input(f32s(0)).output(s32s(4)),
        Op::new(2, OpKind::GreaterEqual).input(s32s(3)).input(s32s(4)).output(mask()),
        Op::new(3, OpKind::Multiply).input(f32s(0)).input(scalar(1)).output(f32s(6)),
        Op::select(4, mask(), f32s(6), scalar(2), f32s(7)),
    ];
    let mut graph = Graph::new();
    ops.into_iter().for_each(|op| graph.add_op(op).unwrap());
    graph.finalize().unwrap();
    graph
}

/// Runs the one partition of a graph on f32 tensors, with what `execute` does.
fn run_f32(
    graph: &Graph,
    inputs: &[Vec<f32>],
    execute: impl FnOnce(&CompiledPartition, &Stream, &[Tensor<'_>], &mut [TensorMut<'_>]) -> Result<()>,
) -> Result<Vec<f32>> {
    let engine = Engine::builder().threads(2).build();
    let [partition] = &graph.partitions(Policy::Fusion)?[..] else { panic!("one partition") };
    let compiled = partition.compile(&engine, partition.inputs(), partition.outputs())?;
    let tensors: Vec<Tensor<'_>> = (compiled.inputs().iter().zip(inputs))
        .map(|(desc, elements)| Tensor::new(desc, &engine, elements))
        .collect::<Result<_>>()?;
    let mut result = vec![0.0f32; compiled.outputs()[0].element_count().unwrap()];
    let output = TensorMut::new(&compiled.outputs()[0], &engine, &mut result)?;
    execute(&compiled, &Stream::new(&engine), &tensors, &mut [output])?;
    Ok(result)
}

#[test]
fn a_causal_mask_needs_neither_memory_nor_ops_of_its_own() {
    for (dims, rows) in [(&[2, 3, 7, 7][..], 7), (&[2, 3, 260, 260], 260), (&[5, 1, 130, 130], 130)] {
        let graph = causal_mask(dims);
        let count = dims.iter().product::<i64>() as usize;
        let scores: Vec<f32> = (0..count).map(|i| i as f32).collect();
        let inputs = [scores, vec![0.5], vec![-1.0]];
        let result = run_f32(&graph, &inputs, |c, stream, i, o| {
            assert_eq!(c.bytes_moved(), 8 * count + 8, "the mask is not moved");
            c.execute(stream, i, o)
        });
        let expected = |i: usize| if i / rows % rows >= i % rows { i as f32 * 0.5 } else { -1.0 };
        assert!(result.unwrap().into_iter().eq((0..count).map(expected)), "{dims:?}");
    }
}

#[test]
fn an_output_that_an_earlier_one_is_made_from_replaces_nothing_that_is_read_later() {
    let tensor = |id| LogicalTensor::strided(id, DataType::F32, &[3000]).unwrap();
    let ops = [
        Op::new(0, OpKind::Sigmoid).input(tensor(0)).output(tensor(3)),
        Op::new(1, OpKind::Abs).input(tensor(1)).output(tensor(4)),
        Op::new(2, OpKind::Add).input(tensor(3)).input(tensor(4)).output(tensor(5)),
        Op::new(3, OpKind::Multiply).input(tensor(2)).input(tensor(4)).output(tensor(6)),
        // The sigmoid itself, which is written when the sum needs it: before the product reads tensor 2.
        Op::new(4, OpKind::Identity).input(tensor(3)).output(tensor(7)),
    ];
    let mut graph = Graph::new();
    ops.into_iter().for_each(|op| graph.add_op(op).unwrap());
    graph.finalize().unwrap();
    let [partition] = &graph.partitions(Policy::Fusion).unwrap()[..] else { panic!("one partition") };
    for engine in common::engines() {
        let compiled = partition.compile(&engine, partition.inputs(), partition.outputs()).unwrap();
        let pairs = compiled.inplace_ports();
        assert!(
            pairs.iter().all(|pair| (pair.input, pair.output) != (2, 7)),
            "{}: {pairs:?}",
            engine.level()
        );
        assert!(pairs.contains(&InPlacePair { input: 2, output: 6 }), "{}: {pairs:?}", engine.level());
    }
}

#[test]
fn a_scratchpad_can_be_handed_in() {
    let graph = causal_mask(&[2, 3, 100, 100]);
    let inputs = [(0..60_000).map(|i| i as f32).collect(), vec![0.25], vec![0.0]];
    let expected = run_f32(&graph, &inputs, |c, stream, i, o| c.execute(stream, i, o)).unwrap();
    for misaligned in [0, 1] {
        let given = run_f32(&graph, &inputs, |c, stream, i, o| {
            let mut memory = vec![MaybeUninit::new(0xffu8); c.scratchpad_size() + misaligned];
            c.execute_with_scratchpad(stream, i, o, &mut memory[misaligned..])
        });
        assert_eq!(given.unwrap(), expected);
    }
    let mut needed = 0;
    let error = run_f32(&graph, &inputs, |c, stream, i, o| {
        needed = c.scratchpad_size();
        c.execute_with_scratchpad(stream, i, o, &mut vec![MaybeUninit::uninit(); needed - 1])
    });
    assert!(needed > 0);
    let fault = ExecuteFault::Scratchpad { needed, given: needed - 1 };
    assert_eq!(error.unwrap_err(), Error::Execute(fault));
}

/// A select between an expensive power and a plain input, under one condition everywhere; `is_output` hands the
/// power out as well.
fn powers(count: usize, condition: bool, is_output: bool) -> (Duration, Vec<TensorBuf>) {
    let tensor = |id, data_type| LogicalTensor::strided(id, data_type, &[count as i64]).unwrap();
    let f32s = |id| tensor(id, DataType::F32);
    let mut graph = Graph::new();
    graph.add_op(Op::new(0, OpKind::Pow).attr(Attr::Beta, 1.7f32).input(f32s(1)).output(f32s(3))).unwrap();
    graph.add_op(Op::select(1, tensor(0, DataType::Boolean), f32s(3), f32s(2), f32s(4))).unwrap();
    if is_output {
        graph.add_op(Op::new(2, OpKind::End).input(f32s(3))).unwrap();
    }
    graph.finalize().unwrap();
    let engine = Engine::builder().threads(1).build();
    let partitions = graph.partitions(Policy::Fusion).unwrap();
    let compiled = partitions[0].compile(&engine, partitions[0].inputs(), partitions[0].outputs()).unwrap();
    let made = |desc: &LogicalTensor| TensorBuf::zeroed(desc.clone(), &engine).unwrap();
    let mut inputs: Vec<TensorBuf> = compiled.inputs().iter().map(made).collect();
    let mut outputs: Vec<TensorBuf> = compiled.outputs().iter().map(made).collect();
    for input in &mut inputs {
        match input.desc().id() {
            0 => input.as_mut_bytes().fill(condition.into()),
            id => input.as_mut_slice::<f32>().unwrap().fill(id as f32 + 1.0),
        }
    }
    let ins: Vec<_> = inputs.iter().map(TensorBuf::as_tensor).collect();
    let run = |outputs: &mut Vec<TensorBuf>| {
        let mut outs: Vec<_> = outputs.iter_mut().map(TensorBuf::as_tensor_mut).collect();
        let start = Instant::now();
        compiled.execute(&Stream::new(&engine), &ins, &mut outs).unwrap();
        start.elapsed()
    };
    let fastest = (0..9).map(|_| run(&mut outputs)).min().unwrap();
    (fastest, outputs)
}

#[test]
fn a_branch_that_nobody_needs_is_not_computed_unless_it_is_handed_out() {
    let count = 200_000;
    let (with, without) = (powers(count, true, false), powers(count, false, false));
    let value = |outputs: &[TensorBuf], id: usize| {
        let output = outputs.iter().find(|output| output.desc().id() == id).unwrap();
        let elements = output.as_slice::<f32>().unwrap();
        assert!(elements.iter().all(|element| element == &elements[0]));
        elements[0]
    };
    let power = value(&with.1, 4);
    assert!((power - 2f32.powf(1.7)).abs() < 1e-5);
    assert_eq!(value(&without.1, 4), 3.0);
    // The power takes some twenty times as long as the rest.
    assert!(without.0 * 2 < with.0, "{:?} without the power, {:?} with it", without.0, with.0);
    let handed_out = powers(count, false, true);
    assert_eq!((value(&handed_out.1, 4), value(&handed_out.1, 3)), (3.0, power));
}

/// The smaller one of two tensors, by a comparison and a select.
fn smaller(data_type: DataType, dims: &[i64]) -> Graph {
    let tensor = |id, data_type| LogicalTensor::strided(id, data_type, dims).unwrap();
    let (x, y, mask) = (tensor(0, data_type), tensor(1, data_type), tensor(2, DataType::Boolean));
    let mut graph = Graph::new();
    graph.add_op(Op::new(0, OpKind::Less).input(x.clone()).input(y.clone()).output(mask.clone())).unwrap();
    graph.add_op(Op::select(1, mask, x, y, tensor(3, data_type))).unwrap();
    graph.finalize().unwrap();
    graph
}

#[test]
fn rows_that_go_past_the_caches_begin_and_end_anywhere() {
    // Large enough that what is read is worth more of the cache than the result.
    const BYTES: i64 = 5 << 20;
    const COLUMNS: i64 = 2003;
    const GAP: u8 = 0xaa;
    let mut wrong = Vec::new();
    let mut random = Random::new(9);
    let noise: Vec<u8> = (0..2 * BYTES).map(|_| random.next() as u8).collect();
    for data_type in [DataType::F32, DataType::Bf16, DataType::U8] {
        let size = data_type.size().unwrap();
        let rows = BYTES / COLUMNS / size as i64;
        let count = (rows * COLUMNS) as usize;
        let (x, y) = (&noise[..count * size], &noise[count * size..][..count * size]);
        let number = |bytes: &[u8]| match *bytes {
            [a] => f32::from(a),
            [a, b] => f32::from_le_bytes([0, 0, a, b]),
            _ => f32::from_le_bytes(bytes.try_into().unwrap()),
        };
        let pairs = x.chunks_exact(size).zip(y.chunks_exact(size));
        let expected: Vec<&[u8]> = pairs.map(|(x, y)| if number(x) < number(y) { x } else { y }).collect();
        let graph = smaller(data_type, &[rows, COLUMNS]);
        let [partition] = &graph.partitions(Policy::Fusion).unwrap()[..] else { panic!("one partition") };
        for (engine, pitch) in common::engines().iter().flat_map(|e| [(e, COLUMNS), (e, COLUMNS + 5)]) {
            let output = LogicalTensor::with_strides(3, data_type, &[rows, COLUMNS], &[pitch, 1]).unwrap();
            let compiled = partition.compile(engine, partition.inputs(), &[output]).unwrap();
            let span = compiled.outputs()[0].span().unwrap() * size;
            for offset in [0, 1, size, 5 * size, 64 - size] {
                let mut memory = vec![GAP; span + 256];
                let start = 64 + memory.as_ptr().addr().wrapping_neg() % 64 + offset;
                // SAFETY: each tensor lies within its memory, that of the result being borrowed for it alone.
                let (ins, out) = unsafe {
                    let ins = [x, y].map(<[u8]>::as_ptr);
                    let tensor = |i: usize| Tensor::from_raw_parts(&compiled.inputs()[i], engine, ins[i]);
                    let at = memory.as_mut_ptr().add(start);
                    ([tensor(0), tensor(1)], TensorMut::from_raw_parts(&compiled.outputs()[0], engine, at))
                };
                compiled.execute(&Stream::new(engine), &ins, &mut [out]).unwrap();
                let (before, rest) = memory.split_at(start);
                let (result, after) = rest.split_at(span);
                let row_of = |row: usize| result[row * pitch as usize * size..].chunks(size);
                let is_row = |(row, expected): (usize, &[&[u8]])| {
                    let (elements, gap) =
                        (row_of(row).take(expected.len()), row_of(row).skip(expected.len()));
                    let gap = gap.take((pitch - COLUMNS) as usize).flatten();
                    elements.eq(expected.iter().copied()) && gap.copied().all(|byte| byte == GAP)
                };
                let is_right = expected.chunks(COLUMNS as usize).enumerate().all(is_row);
                if !is_right || before.iter().chain(after).any(|&byte| byte != GAP) {
                    wrong.push((data_type, engine.level(), pitch, offset));
                }
            }
        }
    }
    report(&wrong);
}
