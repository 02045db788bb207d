//! Promise: fusing changes the speed, never a bit.

use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use crate::common::graphs::{self, RandomGraph};
use crate::common::{self, Random, faults_of, report, seeds};
use sterna::{
    Accuracy, Attr, AutoBroadcast, CompiledPartition, DataType, Engine, Error, ExecuteFault, Graph,
    InPlacePair, LogicalTensor, Op, OpKind, Partition, Policy, Result, Stream, Tensor, TensorBuf, TensorMut,
};

#[test]
fn random_graphs_give_the_same_bits_fused_and_op_by_op() {
    let engines = common::engines();
    let wrong = faults_of(seeds(20_000), 3, |seed| {
        // Every graph at one level, some at all.
        let engines = if seed.is_multiple_of(16) {
            &engines[..]
        } else {
            &engines[seed as usize % engines.len()..][..1]
        };
        let graph = RandomGraph::new(&mut Random::new(seed), 20);
        graphs::check(&graph, seed, engines).err().map(|why| format!("seed {seed}: {why}"))
    });
    report(&wrong);
}

/// Half of the graphs have elements of every kind, half those that sums can be held against the reference
/// with.
#[test]
fn random_graphs_of_convolutions_and_pools_give_the_same_bits_fused_and_op_by_op() {
    let engines = common::engines();
    let wrong = faults_of(seeds(4_000), 3, |seed| {
        let engines = &engines[(seed / 2) as usize % engines.len()..][..1];
        let graph = RandomGraph::of_windows(&mut Random::new(seed), 12);
        let filled = |engine: &Engine| match seed % 2 {
            0 => graphs::filled(&graph, engine, seed),
            _ => graphs::filled_with_ordinary(&graph, engine, seed),
        };
        graphs::check_on(&graph, seed, engines, &filled).err().map(|why| format!("seed {seed}: {why}"))
    });
    report(&wrong);
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

/// Kernels of attention read matrices, and weights of 0 take nothing from values that are not finite there: a
/// group that ran as ops one by one would promise what these do not keep.
#[test]
fn products_of_vectors_are_no_attention() {
    let tensor = |id, dims: &[i64]| LogicalTensor::strided(id, DataType::F32, dims).unwrap();
    let (scores, weights) = (|| tensor(3, &[2, 2]), || tensor(4, &[2, 2]));
    let ops = [
        Op::new(0, OpKind::MatMul)
            .attr(Attr::TransposeB, true)
            .input(tensor(0, &[3]))
            .input(tensor(1, &[2, 2, 3]))
            .output(scores()),
        Op::new(1, OpKind::SoftMax).axis(-1).input(scores()).output(weights()),
        Op::new(2, OpKind::MatMul).input(weights()).input(tensor(2, &[2, 3])).output(tensor(5, &[2, 3])),
    ];
    let mut graph = Graph::new();
    ops.into_iter().for_each(|op| graph.add_op(op).unwrap());
    graph.finalize().unwrap();
    let partitions = graph.partitions(Policy::Fusion).unwrap();
    let bounded = |partition: &&Partition| partition.accuracy() == Some(Accuracy::Bounded);
    assert_eq!(partitions.iter().filter(bounded).count(), 0, "{partitions:?}");
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
    run_f32_on(&Engine::builder().threads(2).build(), graph, inputs, execute)
}

fn run_f32_on(
    engine: &Engine,
    graph: &Graph,
    inputs: &[Vec<f32>],
    execute: impl FnOnce(&CompiledPartition, &Stream, &[Tensor<'_>], &mut [TensorMut<'_>]) -> Result<()>,
) -> Result<Vec<f32>> {
    let [partition] = &graph.partitions(Policy::Fusion)?[..] else { panic!("one partition") };
    let compiled = partition.compile(engine)?;
    let tensors: Vec<Tensor<'_>> = (compiled.inputs().iter().zip(inputs))
        .map(|(desc, elements)| Tensor::new(desc, engine, elements))
        .collect::<Result<_>>()?;
    let mut result = vec![0.0f32; compiled.outputs()[0].element_count().unwrap()];
    let output = TensorMut::new(&compiled.outputs()[0], engine, &mut result)?;
    execute(&compiled, &Stream::new(engine), &tensors, &mut [output])?;
    Ok(result)
}

/// The condition alone has the dims along which elements are repeated.
#[test]
fn a_choice_between_twice_the_same_repeats_it() {
    let shapes: [(&[i64], &[i64]); 5] = [
        (&[3, 1, 5], &[3, 4, 5]),
        (&[7, 1], &[7, 130]),
        (&[1, 300], &[5, 300]),
        (&[2, 1, 3, 2000], &[2, 3, 3, 2000]),
        (&[2, 1, 9000], &[2, 2, 9000]),
    ];
    let mut wrong = Vec::new();
    for (engine, (from, to)) in common::engines().iter().flat_map(|e| shapes.map(|shape| (e, shape))) {
        let tensor = |id, data_type, dims: &[i64]| LogicalTensor::strided(id, data_type, dims).unwrap();
        let (everywhere, source) = (|| tensor(0, DataType::Boolean, to), || tensor(1, DataType::F32, from));
        let select = Op::new(1, OpKind::Select).attr(Attr::AutoBroadcast, AutoBroadcast::Multidirectional);
        let fill = Op::new(0, OpKind::Fill).attr(Attr::Shape, to.to_vec()).attr(Attr::Value, 1.0f32);
        let mut graph = Graph::new();
        graph.add_op(fill.output(everywhere())).unwrap();
        let select = select.input(everywhere()).input(source()).input(source());
        graph.add_op(select.output(tensor(2, DataType::F32, to))).unwrap();
        graph.finalize().unwrap();
        let elements: Vec<f32> = (0..from.iter().product()).map(|i: i64| i as f32).collect();
        let place = |index: &Vec<i64>| {
            let digits = index.iter().zip(from);
            digits.fold(0, |place, (&index, &dim)| place * dim + if dim == 1 { 0 } else { index }) as usize
        };
        let expected: Vec<f32> = common::indices(to).iter().map(|index| elements[place(index)]).collect();
        let result = run_f32_on(engine, &graph, &[elements], |c, stream, i, o| c.execute(stream, i, o));
        if result.unwrap() != expected {
            wrong.push((engine.level(), from, to));
        }
    }
    report(&wrong);
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

/// The form of the scalars of a causal mask: host scalars, or tensors of rank 0.
#[derive(Clone, Copy)]
enum Scalars {
    Host,
    Tensors,
}

/// Ops on the way from scores (tensor 0) to masked scores. The scalars are the scale (1), what is hidden
/// becomes (2), and two offsets in s32 (3, 4).
struct MaskBuilder {
    ops: Vec<Op>,
    dims: [i64; 3],
    scalars: Scalars,
}

impl MaskBuilder {
    const SCORES: usize = 0;

    fn tensor(&self, id: usize) -> LogicalTensor {
        let of = |data_type| LogicalTensor::strided(id, data_type, &self.dims).unwrap();
        let scalar = |data_type| match self.scalars {
            Scalars::Host => LogicalTensor::host_scalar(id, data_type).unwrap(),
            Scalars::Tensors => LogicalTensor::strided(id, data_type, &[]).unwrap(),
        };
        match (id, self.ops.get(id.wrapping_sub(10)).map(Op::kind)) {
            (1, _) => scalar(DataType::F32),
            (2, _) => LogicalTensor::strided(2, DataType::F32, &[]).unwrap(),
            (3 | 4, _) => scalar(DataType::S32),
            (_, Some(_)) => self.ops[id - 10].outputs()[0].clone(),
            (_, None) => of(DataType::F32),
        }
    }

    fn op(&mut self, kind: OpKind, inputs: &[usize], data_type: DataType) -> usize {
        let id = 10 + self.ops.len();
        let inputs: Vec<LogicalTensor> = inputs.iter().map(|&input| self.tensor(input)).collect();
        let output = LogicalTensor::strided(id, data_type, &self.dims).unwrap();
        self.ops.push(Op::new(id - 10, kind).inputs_from(inputs).output(output));
        id
    }

    fn scaled(&mut self) -> usize {
        self.op(OpKind::Multiply, &[Self::SCORES, 1], DataType::F32)
    }

    fn index(&mut self, of: usize, axis: i64) -> usize {
        let id = self.op(OpKind::GenIndex, &[of], DataType::S32);
        let op = self.ops.pop().unwrap();
        self.ops.push(op.axis(axis));
        id
    }

    fn moved(&mut self, kind: OpKind, index: usize, by: usize) -> usize {
        self.op(kind, &[index, by], DataType::S32)
    }

    /// Hides what a comparison of two indices says.
    fn hide(&mut self, kind: OpKind, row: usize, column: usize, scores: usize) -> usize {
        let mask = self.op(kind, &[row, column], DataType::Boolean);
        self.op(OpKind::Select, &[mask, scores, 2], DataType::F32)
    }
}

/// A form of masks made from indices; what it uses of the scalars besides the one for what is hidden.
type MaskForm = (&'static str, fn(&mut MaskBuilder));

/// The shapes of the indices come from values of the group.
const MASK_FORMS: &[MaskForm] = &[
    ("of the product", |b| {
        let scaled = b.scaled();
        let (row, column) = (b.index(scaled, -2), b.index(scaled, -1));
        b.hide(OpKind::GreaterEqual, row, column, scaled);
    }),
    ("of the product's source", |b| {
        let scaled = b.scaled();
        let (row, column) = (b.index(MaskBuilder::SCORES, -2), b.index(MaskBuilder::SCORES, -1));
        b.hide(OpKind::GreaterEqual, row, column, scaled);
    }),
    ("of the source and the product", |b| {
        let scaled = b.scaled();
        let (row, column) = (b.index(MaskBuilder::SCORES, -2), b.index(scaled, -1));
        b.hide(OpKind::GreaterEqual, row, column, scaled);
    }),
    ("of an index", |b| {
        let scaled = b.scaled();
        let row = b.index(scaled, -2);
        let column = b.index(row, -1);
        b.hide(OpKind::GreaterEqual, row, column, scaled);
    }),
    ("with offsets", |b| {
        let scaled = b.scaled();
        let (row, column) = (b.index(scaled, -2), b.index(scaled, -1));
        let row = b.moved(OpKind::Add, row, 3);
        let row = b.moved(OpKind::Subtract, row, 4);
        b.hide(OpKind::GreaterEqual, row, column, scaled);
    }),
    ("two masks of the product", |b| {
        let scaled = b.scaled();
        let (row, column) = (b.index(scaled, -2), b.index(scaled, -1));
        let causal = b.hide(OpKind::GreaterEqual, row, column, scaled);
        let first = b.moved(OpKind::Subtract, row, 3);
        b.hide(OpKind::LessEqual, first, column, causal);
    }),
    ("a mask of what the first mask made", |b| {
        let scaled = b.scaled();
        let (row, column) = (b.index(scaled, -2), b.index(scaled, -1));
        let causal = b.hide(OpKind::GreaterEqual, row, column, scaled);
        let (row, column) = (b.index(causal, -2), b.index(causal, -1));
        let first = b.moved(OpKind::Subtract, row, 3);
        b.hide(OpKind::LessEqual, first, column, causal);
    }),
    ("of a product for its shape alone", |b| {
        let scaled = b.scaled();
        let (row, column) = (b.index(scaled, -2), b.index(scaled, -1));
        b.hide(OpKind::GreaterEqual, row, column, MaskBuilder::SCORES);
    }),
    ("of the product, which an op outside takes too", |b| {
        let scaled = b.scaled();
        let (row, column) = (b.index(scaled, -2), b.index(scaled, -1));
        b.hide(OpKind::GreaterEqual, row, column, scaled);
        b.ops.push(Op::new(99, OpKind::End).input(b.tensor(scaled)));
    }),
    ("for the indices' own sake", |b| {
        let scaled = b.scaled();
        b.index(scaled, 0);
        b.index(scaled, 1);
    }),
];

fn masked(form: MaskForm, dims: [i64; 3], scalars: Scalars) -> (Graph, Vec<Op>) {
    let mut builder = MaskBuilder { ops: Vec::new(), dims, scalars };
    (form.1)(&mut builder);
    let mut graph = Graph::new();
    builder.ops.iter().for_each(|op| graph.add_op(op.clone()).unwrap());
    graph.finalize().unwrap();
    (graph, builder.ops)
}

#[test]
fn masks_from_indices_of_any_value_are_one_partition_that_moves_no_more_than_its_ports() {
    let dims = [3, 40, 40];
    let count = 3 * 40 * 40;
    let mut wrong = Vec::new();
    for &form in MASK_FORMS {
        let (graph, ops) = masked(form, dims, Scalars::Host);
        let partitions = graph.partitions(Policy::Fusion).unwrap();
        let supported: Vec<_> = partitions.iter().filter(|partition| partition.is_supported()).collect();
        let [partition] = supported[..] else {
            wrong.push((form.0, format!("{} partitions", supported.len())));
            continue;
        };
        let is_used = |id: usize| {
            let inner = ops.iter().filter(|op| op.kind() != OpKind::GenIndex);
            inner
                .filter(|op| op.kind() != OpKind::Multiply || form.0 != "of a product for its shape alone")
                .flat_map(Op::inputs)
                .any(|input| input.id() == id)
        };
        let inputs: Vec<usize> = partition.inputs().iter().map(|tensor| tensor.id().get()).collect();
        let outputs = partition.outputs().len();
        let wanted = if matches!(
            form.0,
            "of the product, which an op outside takes too" | "for the indices' own sake"
        ) {
            2
        } else {
            1
        };
        if outputs != wanted {
            wrong.push((form.0, format!("{outputs} outputs")));
        }
        if form.0 == "for the indices' own sake" {
            continue;
        }
        let engine = Engine::builder().threads(1).build();
        let compiled = partition.compile(&engine).unwrap();
        let scalars = (1..5).filter(|&id| inputs.contains(&id) && is_used(id)).count();
        let expected = 4 * count * (1 + wanted) + 4 * scalars;
        if compiled.bytes_moved() != expected {
            wrong.push((form.0, format!("{} bytes moved, not {expected}", compiled.bytes_moved())));
        }
    }
    report(&wrong);
}

#[test]
fn masks_from_indices_of_any_value_give_the_bits_of_their_ops() {
    let engines = common::engines();
    let mut wrong = Vec::new();
    for (&form, dims) in
        MASK_FORMS.iter().flat_map(|form| [[3, 40, 40], [1, 7, 130]].map(|dims| (form, dims)))
    {
        let (_, ops) = masked(form, dims, Scalars::Tensors);
        // An op that nothing runs stands outside; what it takes is an output all the same.
        let ops: Vec<Op> = ops.into_iter().filter(|op| op.kind() != OpKind::End).collect();
        let mut graph = Graph::new();
        ops.iter().for_each(|op| graph.add_op(op.clone()).unwrap());
        graph.finalize().unwrap();
        let inputs = graph.inputs().into_iter().cloned().collect();
        let outputs =
            ops.iter().flat_map(Op::outputs).map(|output| (output.id().get(), output.clone())).collect();
        let random = RandomGraph { graph, ops, inputs, outputs };
        for seed in 0..3 {
            wrong.extend(graphs::check(&random, seed, &engines).err().map(|why| (form.0, dims, why)));
        }
    }
    report(&wrong);
}

#[test]
fn a_tensor_whose_shape_alone_is_used_needs_no_memory() {
    let form = MASK_FORMS.iter().find(|form| form.0 == "for the indices' own sake").unwrap();
    let (graph, _) = masked(*form, [2, 3, 4], Scalars::Tensors);
    let [partition] = &graph.partitions(Policy::Fusion).unwrap()[..] else { panic!("one partition") };
    for engine in common::engines() {
        let compiled = partition.compile(&engine).unwrap();
        assert_eq!(compiled.bytes_moved(), 2 * 2 * 3 * 4 * 4);
        // SAFETY: the compiled partition reads neither scores nor scale.
        let inputs: Vec<Tensor<'_>> = (compiled.inputs().iter())
            .map(|desc| unsafe { Tensor::from_raw_parts(desc, &engine, std::ptr::null()) })
            .collect();
        let mut results: Vec<TensorBuf> =
            compiled.outputs().iter().map(|desc| TensorBuf::zeroed(desc.clone(), &engine).unwrap()).collect();
        let mut outputs: Vec<_> = results.iter_mut().map(TensorBuf::as_tensor_mut).collect();
        compiled.execute(&Stream::new(&engine), &inputs, &mut outputs).unwrap();
        let indices = |result: &TensorBuf| result.as_slice::<i32>().unwrap().to_vec();
        let expected = |of: fn(i32) -> i32| (0..24).map(of).collect::<Vec<_>>();
        assert_eq!(indices(&results[0]), expected(|i| i / 12));
        assert_eq!(indices(&results[1]), expected(|i| i / 4 % 3));
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
        let compiled = partition.compile(&engine).unwrap();
        let pairs = compiled.in_place_pairs();
        assert!(
            pairs.iter().all(|pair| (pair.input, pair.output) != (2.into(), 7.into())),
            "{}: {pairs:?}",
            engine.level()
        );
        assert!(pairs.contains(&InPlacePair::new(2, 6)), "{}: {pairs:?}", engine.level());
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

/// A select between an expensive power and a plain input, under one condition everywhere; `is_output` hands
/// the power out as well.
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
    let compiled = partitions[0].compile(&engine).unwrap();
    let made = |desc: &LogicalTensor| TensorBuf::zeroed(desc.clone(), &engine).unwrap();
    let mut inputs: Vec<TensorBuf> = compiled.inputs().iter().map(made).collect();
    let mut outputs: Vec<TensorBuf> = compiled.outputs().iter().map(made).collect();
    for input in &mut inputs {
        match input.desc().id().get() {
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
        for (engine, row_stride) in common::engines().iter().flat_map(|e| [(e, COLUMNS), (e, COLUMNS + 5)]) {
            let output =
                LogicalTensor::with_strides(3, data_type, &[rows, COLUMNS], &[row_stride, 1]).unwrap();
            let compiled = partition.compile_for(engine, partition.inputs(), &[output]).unwrap();
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
                let row_of = |row: usize| result[row * row_stride as usize * size..].chunks(size);
                let is_row = |(row, expected): (usize, &[&[u8]])| {
                    let (elements, gap) =
                        (row_of(row).take(expected.len()), row_of(row).skip(expected.len()));
                    let gap = gap.take((row_stride - COLUMNS) as usize).flatten();
                    elements.eq(expected.iter().copied()) && gap.copied().all(|byte| byte == GAP)
                };
                let is_right = expected.chunks(COLUMNS as usize).enumerate().all(is_row);
                if !is_right || before.iter().chain(after).any(|&byte| byte != GAP) {
                    wrong.push((data_type, engine.level(), row_stride, offset));
                }
            }
        }
    }
    report(&wrong);
}

/// `x + r` if `x < y` and `mask`, else `y`; `r` has one value a row.
fn guarded_sum(rows: i64, columns: i64, row_strides: [i64; 4]) -> Graph {
    let dims = [rows, columns];
    let of_row_stride = |id, data_type, row_stride| {
        LogicalTensor::with_strides(id, data_type, &dims, &[row_stride, 1]).unwrap()
    };
    let dense = |id, data_type| LogicalTensor::strided(id, data_type, &dims).unwrap();
    let (x, y) =
        (of_row_stride(0, DataType::F32, row_strides[0]), of_row_stride(1, DataType::F32, row_strides[1]));
    let mask = of_row_stride(2, DataType::Boolean, row_strides[2]);
    let r = LogicalTensor::strided(3, DataType::F32, &[rows, 1]).unwrap();
    let (less, both) = (dense(4, DataType::Boolean), dense(5, DataType::Boolean));
    let sum = dense(6, DataType::F32);
    let mut graph = Graph::new();
    let mut add = |id, kind, x: &LogicalTensor, y: &LogicalTensor, to: &LogicalTensor| {
        graph.add_op(Op::new(id, kind).input(x.clone()).input(y.clone()).output(to.clone())).unwrap();
    };
    add(0, OpKind::Less, &x, &y, &less);
    add(1, OpKind::LogicalAnd, &less, &mask, &both);
    add(2, OpKind::Add, &x, &r, &sum);
    graph.add_op(Op::select(3, both, sum, y, of_row_stride(7, DataType::F32, row_strides[3]))).unwrap();
    graph.finalize().unwrap();
    graph
}

#[test]
fn rows_of_at_most_one_block_have_any_row_stride() {
    let mut wrong = Vec::new();
    let mut random = Random::new(23);
    for (rows, columns) in [(64, 64), (3, 64), (70, 63), (41, 61), (9, 52), (2, 65), (5, 128)] {
        for gaps in [[0, 0, 0, 0], [1, 2, 3, 0], [0, 0, 0, 1], [3, 0, 1, 5], [64, 64, 64, 64]] {
            let row_strides = gaps.map(|gap| columns + gap);
            let numbers = |count: i64, random: &mut Random| -> Vec<f32> {
                (0..count).map(|_| random.below(64) as f32 - 32.0).collect()
            };
            let (x, y) =
                (numbers(rows * row_strides[0], &mut random), numbers(rows * row_strides[1], &mut random));
            let mask: Vec<bool> = (0..rows * row_strides[2]).map(|_| random.below(3) > 0).collect();
            let r = numbers(rows, &mut random);
            let expected = |row: i64, column: i64| {
                let at = |row_stride: i64| (row * row_stride + column) as usize;
                let (x, y) = (x[at(row_strides[0])], y[at(row_strides[1])]);
                if x < y && mask[at(row_strides[2])] { x + r[row as usize] } else { y }
            };
            let graph = guarded_sum(rows, columns, row_strides);
            let [partition] = &graph.partitions(Policy::Fusion).unwrap()[..] else { panic!("one partition") };
            for engine in common::engines() {
                let compiled = partition.compile(&engine).unwrap();
                let mut inputs = Vec::new();
                for desc in compiled.inputs() {
                    let input = match desc.id().get() {
                        0 => Tensor::new(desc, &engine, &x),
                        1 => Tensor::new(desc, &engine, &y),
                        2 => Tensor::new(desc, &engine, &mask),
                        _ => Tensor::new(desc, &engine, &r),
                    };
                    inputs.push(input.unwrap());
                }
                let mut result = vec![f32::NAN; (rows * row_strides[3]) as usize];
                let output = TensorMut::new(&compiled.outputs()[0], &engine, &mut result).unwrap();
                compiled.execute(&Stream::new(&engine), &inputs, &mut [output]).unwrap();
                let is_right = |(at, &number): (usize, &f32)| {
                    let (row, column) = (at as i64 / row_strides[3], at as i64 % row_strides[3]);
                    if column < columns { number == expected(row, column) } else { number.is_nan() }
                };
                if !result.iter().enumerate().all(is_right) {
                    wrong.push((engine.level(), rows, columns, gaps));
                }
            }
        }
    }
    report(&wrong);
}

#[test]
fn a_select_of_one_tensor_in_its_place_leaves_its_condition_to_others() {
    let tensor = |id, data_type| LogicalTensor::strided(id, data_type, &[70]).unwrap();
    let cond = tensor(1, DataType::Boolean);
    let steps = [
        Op::new(0, OpKind::IsInf).input(tensor(0, DataType::Bf16)).output(cond.clone()),
        Op::select(
            1,
            cond.clone(),
            tensor(2, DataType::F32),
            tensor(2, DataType::F32),
            tensor(3, DataType::F32),
        ),
        Op::new(2, OpKind::ReLUBackward)
            .inputs_from([tensor(4, DataType::Bf16), tensor(5, DataType::Bf16)])
            .output(tensor(6, DataType::Bf16)),
        Op::select(3, cond, tensor(7, DataType::Bf16), tensor(6, DataType::Bf16), tensor(8, DataType::Bf16)),
        Op::new(4, OpKind::Multiply)
            .inputs_from([tensor(9, DataType::F16), tensor(8, DataType::Bf16)])
            .output(tensor(10, DataType::Bf16)),
    ];
    let mut graph = Graph::new();
    steps.into_iter().for_each(|op| graph.add_op(op).unwrap());
    graph.finalize().unwrap();
    let [partition] = &graph.partitions(Policy::Fusion).unwrap()[..] else { panic!("several partitions") };
    let mut wrong = Vec::new();
    for engine in common::engines() {
        let compiled = partition.compile(&engine).unwrap();
        let filled = |desc: &LogicalTensor| {
            let mut tensor = TensorBuf::zeroed(desc.clone(), &engine).unwrap();
            graphs::fill(&mut tensor, &mut Random::new(desc.id().get() as u64));
            tensor
        };
        let inputs: Vec<TensorBuf> = compiled.inputs().iter().map(filled).collect();
        let run = |in_place: bool| {
            let is_replaced = |tensor: &&TensorBuf| in_place && tensor.desc().id() == 2;
            let given: Vec<_> =
                inputs.iter().filter(|tensor| !is_replaced(tensor)).map(TensorBuf::as_tensor).collect();
            let mut results: Vec<TensorBuf> = compiled
                .outputs()
                .iter()
                .map(|desc| TensorBuf::zeroed(desc.clone(), &engine).unwrap())
                .collect();
            let mut outputs = Vec::new();
            for result in &mut results {
                match in_place && result.desc().id() == 3 {
                    true => {
                        let replaced = inputs.iter().find(|tensor| tensor.desc().id() == 2).unwrap();
                        result.as_mut_bytes().copy_from_slice(replaced.as_bytes());
                        outputs.push(result.as_tensor_mut().in_place_of(2));
                    }
                    false => outputs.push(result.as_tensor_mut()),
                }
            }
            compiled.execute(&Stream::new(&engine), &given, &mut outputs).unwrap();
            drop(outputs);
            results.iter().map(|result| result.as_bytes().to_vec()).collect::<Vec<_>>()
        };
        if run(true) != run(false) {
            wrong.push(engine.level());
        }
    }
    report(&wrong);
}
