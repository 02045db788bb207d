//! Promise: no op reads or writes a byte beyond its operands, whatever their types, lengths, strides and
//! addresses.
//!
//! Operands stand directly before, or directly behind, a page that faults when it is touched.
//! `tests/ops/kernels.rs` does the same for the select in all its forms.

mod common;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::graphs::{self, RandomGraph};
use common::guarded::{Guarded, Place};
use common::{GAP, LOOKUPS, Random, engines, op_of_types, report, with_required};
use sterna::{
    Accuracy, Attr, CompiledPartition, DataType, Engine, Graph, LogicalTensor, Op, OpKind, Partition, Schema,
    Stream, Tensor, TensorBuf, TensorMut,
};

/// Every tail of every block, and the first ones behind some more blocks.
fn lengths() -> impl Iterator<Item = i64> {
    (0..=130).chain([159, 191, 192, 193, 255, 256, 257])
}

/// The longest row.
const MOST: i64 = 257;

/// Bytes around an output in which nothing may change.
const AROUND: usize = 128;

/// Memory for the ports of one execution after another.
struct Bench {
    memory: Vec<Guarded>,
    random: Random,
}

impl Bench {
    fn new(ports: usize, bytes: usize) -> Self {
        let memory = (0..ports).map(|_| Guarded::new(bytes + 64)).collect();
        Self { memory, random: Random::new(1) }
    }

    /// Runs a compiled partition on the bytes of its inputs, which with those of the outputs stand where
    /// `place` says, and compares the outputs with what is expected.
    fn check(
        &mut self,
        compiled: &CompiledPartition,
        inputs: &[&[u8]],
        expected: &[&[u8]],
        mut place: impl FnMut(&mut Random) -> Place,
    ) -> Result<(), String> {
        let (memory, random) = (&mut self.memory, &mut self.random);
        let spans: Vec<usize> = inputs.iter().chain(expected).map(|bytes| bytes.len()).collect();
        let ranges: Vec<_> =
            spans.iter().zip(&*memory).map(|(&span, memory)| place(random).range(memory, span)).collect();
        for ((range, memory), bytes) in ranges.iter().zip(&mut *memory).zip(inputs) {
            memory.bytes_mut(range.clone()).copy_from_slice(bytes);
        }
        let outputs = inputs.len()..spans.len();
        let arounds: Vec<_> = outputs
            .clone()
            .map(|port| {
                ranges[port].start.saturating_sub(AROUND)..(ranges[port].end + AROUND).min(memory[port].size)
            })
            .collect();
        for (port, around) in outputs.clone().zip(&arounds) {
            memory[port].bytes_mut(around.clone()).fill(GAP);
        }
        let address = |port: usize| memory[port].at(ranges[port].start);
        let (engine, descs) = (compiled.engine(), compiled.inputs());
        // SAFETY: each port has memory of its own for its span, which nobody looks at during the execution.
        let (ins, mut outs) = unsafe {
            let ins: Vec<Tensor<'_>> =
                (0..inputs.len()).map(|i| Tensor::from_raw_parts(&descs[i], engine, address(i))).collect();
            let outs: Vec<TensorMut<'_>> = (compiled.outputs().iter().zip(outputs.clone()))
                .map(|(desc, port)| TensorMut::from_raw_parts(desc, engine, address(port)))
                .collect();
            (ins, outs)
        };
        compiled.execute(&Stream::new(engine), &ins, &mut outs).map_err(|error| error.to_string())?;
        for ((port, around), expected) in outputs.zip(arounds).zip(expected) {
            let (range, bytes) = (&ranges[port], memory[port].bytes(around.clone()));
            let (start, end) = (range.start - around.start, range.end - around.start);
            let (before, given, behind) = (&bytes[..start], &bytes[start..end], &bytes[end..]);
            if given != *expected {
                let at = given.iter().zip(*expected).position(|(a, b)| a != b);
                return Err(format!("byte {at:?} of output {port} is another"));
            }
            if before.iter().chain(behind).any(|&byte| byte != GAP) {
                return Err(format!("bytes around output {port} changed"));
            }
        }
        Ok(())
    }
}

/// An op on one row, with the stride of each input; 0 where one element stands for the whole row.
#[derive(Debug)]
struct Row {
    kind: OpKind,
    inputs: Vec<(DataType, i64)>,
    output: (DataType, i64),
}

impl Row {
    fn op(&self, length: i64) -> Op {
        let types: Vec<DataType> = self.inputs.iter().map(|input| input.0).collect();
        let op = op_of_types(Schema::of(self.kind), &types, &[self.output.0]);
        with_required(match self.kind {
            OpKind::Fill => op.attr(Attr::Shape, &[length][..]),
            OpKind::StaticTranspose => op.attr(Attr::Order, &[0i64][..]),
            OpKind::StaticReshape => op.attr(Attr::Shape, &[length][..]).attr(Attr::SpecialZero, false),
            OpKind::Slice => op.attr(Attr::Starts, &[0i64][..]).attr(Attr::Ends, &[length][..]),
            OpKind::Concat => op.axis(0),
            OpKind::DynamicQuantize => op.attr(Attr::Qtype, "per_channel").axis(0),
            OpKind::Clamp | OpKind::ClampBackward => op.attr(Attr::Min, -0.5f32).attr(Attr::Max, 2.0f32),
            _ => op,
        })
    }

    /// Compiles for a length, as a row, or where the op wants channels, as a row of those; nothing where the
    /// op takes no operand that is repeated.
    fn compile(&self, length: i64, engine: &Engine) -> Option<CompiledPartition> {
        let partition = Partition::from_op(self.op(length)).ok()?;
        let input = |i: usize, as_row: bool| {
            let (data_type, stride) = self.inputs[i];
            let (dims, strides) = match (stride, as_row || i > 0) {
                (0, true) => (vec![1], vec![1]),
                (0, false) => (vec![1, 1], vec![1, 1]),
                (_, true) => (vec![length], vec![stride]),
                (_, false) => (vec![1, length], vec![length * stride, stride]),
            };
            LogicalTensor::with_strides(i, data_type, &dims, &strides).unwrap()
        };
        let compile = |as_row: bool| {
            let inputs: Vec<LogicalTensor> = (0..self.inputs.len()).map(|i| input(i, as_row)).collect();
            let (data_type, stride) = self.output;
            let output = match stride {
                1 => LogicalTensor::unknown(100, data_type),
                _ => LogicalTensor::with_strides(100, data_type, &[length], &[stride]).unwrap(),
            };
            partition.compile_for(engine, &inputs, &[output])
        };
        compile(true).or_else(|_| compile(false)).ok()
    }

    /// Bytes from the first to the last element of each port, inputs first, of a row of so many elements.
    fn spans(&self, length: i64) -> Vec<usize> {
        let bytes = |&(data_type, stride): &(DataType, i64)| {
            let elements = if length == 0 && stride != 0 { 0 } else { (length - 1).max(0) * stride + 1 };
            elements as usize * data_type.size().unwrap()
        };
        self.inputs.iter().chain([&self.output]).map(bytes).collect()
    }

    /// Holds every length against the longest: elements do not know how many follow them.
    fn check(&self, engine: &Engine, bench: &mut Bench) -> Result<usize, String> {
        let Some(longest) = self.compile(MOST, engine) else { return Ok(0) };
        let filled = |(i, desc): (usize, &LogicalTensor)| {
            let mut tensor = TensorBuf::zeroed(desc.clone(), engine).unwrap();
            graphs::fill(&mut tensor, &mut Random::new(i as u64));
            tensor
        };
        let inputs: Vec<TensorBuf> = longest.inputs().iter().enumerate().map(filled).collect();
        let mut output = TensorBuf::zeroed(longest.outputs()[0].clone(), engine).unwrap();
        output.as_mut_bytes().fill(GAP);
        common::run(&longest, engine, &inputs, &mut output).map_err(|error| error.to_string())?;
        let mut checked = 0;
        for length in lengths() {
            let compiled = self.compile(length, engine).ok_or(format!("{length}: does not compile"))?;
            let spans = self.spans(length);
            let bytes: Vec<&[u8]> =
                inputs.iter().chain([&output]).zip(spans).map(|(t, span)| &t.as_bytes()[..span]).collect();
            let (inputs, expected) = bytes.split_at(inputs.len());
            let mut place = |what: &str, place: &mut dyn FnMut(&mut Random) -> Place| {
                bench
                    .check(&compiled, inputs, expected, place)
                    .map_err(|why| format!("{length}, {what}: {why}"))
            };
            place("at the back", &mut |_| Place::Back(0))?;
            place("at the front", &mut |_| Place::Front(0))?;
            place("anywhere", &mut Place::random)?;
            checked += 3;
        }
        Ok(checked)
    }
}

/// Every op that runs, of every type that it takes; those of two operands with each of them repeated as well,
/// and moves with gaps.
fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for &kind in OpKind::ALL {
        let schema = Schema::of(kind);
        // Of a lookup an element depends on others, and its indices must be in range.
        if kind == OpKind::Select || LOOKUPS.contains(&kind) || !schema.output_count.allows(1) {
            continue;
        }
        // The result of two that are joined is longer than a row.
        let most = if kind == OpKind::Concat { 1 } else { 2 };
        for count in (0..=most).filter(|&count| schema.input_count.allows(count)) {
            let pairs = |from: DataType| DataType::WHOLE.iter().map(move |&to| (from, to));
            // Ops without operands have none whose type could vary.
            let from = if count == 0 { &DataType::WHOLE[..1] } else { DataType::WHOLE };
            for (from, to) in from.iter().flat_map(|&from| pairs(from)) {
                let row = |strides: &[i64], stride: i64| Row {
                    kind,
                    inputs: strides[..count].iter().map(|&stride| (from, stride)).collect(),
                    output: (to, stride),
                };
                let op = row(&[1, 1], 1).op(1);
                // Elsewhere, an element depends on those that follow it.
                let runs = || {
                    let partition = Partition::from_op(op.clone());
                    partition.is_ok_and(|partition| partition.accuracy() == Some(Accuracy::Exact))
                };
                if Graph::new().add_op(op.clone()).is_err() || !runs() {
                    continue;
                }
                rows.push(row(&[1, 1], 1));
                if count == 2 {
                    rows.extend([row(&[0, 1], 1), row(&[1, 0], 1)]);
                }
                if kind == OpKind::Identity {
                    rows.extend([row(&[2], 1), row(&[3], 1), row(&[1], 2), row(&[5], 3)]);
                }
            }
        }
    }
    rows
}

/// Lookups of rows and of single elements, with indices at both ends of a dim.
#[test]
fn lookups_at_every_length() {
    let tensor = |id, of| LogicalTensor::unknown(id, of);
    let lookup = |kind, of: DataType| {
        let op = Op::new(0, kind).inputs_from([tensor(0, of), tensor(1, DataType::S32)]);
        let is_scatter = [OpKind::ScatterElements, OpKind::ScatterND].contains(&kind);
        let op = if is_scatter { op.input(tensor(2, of)) } else { op };
        op.output(tensor(100, of))
    };
    type Shapes = fn(i64) -> Vec<Vec<i64>>;
    let rows: [(OpKind, Shapes, Option<&str>); 8] = [
        (OpKind::Gather, |n| vec![vec![3, n], vec![2]], None),
        (OpKind::Gather, |n| vec![vec![3], vec![n]], None),
        (OpKind::GatherElements, |n| vec![vec![3, n], vec![2, n]], None),
        (OpKind::GatherND, |n| vec![vec![3, 3, n], vec![2, 2]], None),
        (OpKind::ScatterND, |n| vec![vec![3, n], vec![2, 1], vec![2, n]], None),
        (OpKind::ScatterND, |n| vec![vec![3, n], vec![2, 1], vec![2, n]], Some("add")),
        (OpKind::ScatterElements, |n| vec![vec![3, n], vec![2, n], vec![2, n]], Some("max")),
        (OpKind::ScatterElements, |n| vec![vec![3, n], vec![2, n], vec![2, n]], None),
    ];
    let engine = Engine::new();
    let wrong = Mutex::new(Vec::new());
    let types = [DataType::U8, DataType::Bf16, DataType::F32, DataType::F64];
    let work = |number: usize, bench: &mut Bench| {
        let ((kind, shapes, reduction), of) = (&rows[number / 4], types[number % 4]);
        let op = reduction.iter().fold(lookup(*kind, of), |op, &word| op.attr(Attr::Reduction, word));
        for length in lengths() {
            let fill = |port: usize, input: &mut TensorBuf| {
                let mut random = Random::new((port as u64) << 32 | length as u64);
                if port != 1 {
                    return graphs::fill(input, &mut random);
                }
                for index in input.as_mut_bytes().chunks_exact_mut(4) {
                    index.copy_from_slice(&random.pick(&[-3i32, -1, 0, 2]).to_ne_bytes());
                }
            };
            if let Err(why) = check_whole(&op, &shapes(length), &engine, bench, fill) {
                wrong.lock().unwrap().push(format!("{op:?}, {length}: {why}"));
            }
        }
    };
    on_all_threads(rows.len() * 4, work, || Bench::new(4, 3 * 3 * 8 * MOST as usize));
    report(&wrong.into_inner().unwrap());
}

/// Does some work with numbers below `count` on as many threads as there are.
fn on_all_threads(count: usize, work: impl Fn(usize, &mut Bench) + Sync, bench: impl Fn() -> Bench + Sync) {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, Into::into);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut bench = bench();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        break;
                    }
                    work(number, &mut bench);
                }
            });
        }
    });
}

#[test]
fn every_op_of_every_type_at_every_length() {
    let (rows, engines) = (rows(), engines());
    let (wrong, checked) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
    let kinds: std::collections::BTreeSet<&str> = rows.iter().map(|row| row.kind.name()).collect();
    let work = |number: usize, bench: &mut Bench| {
        let (row, engine) = (&rows[number / engines.len()], &engines[number % engines.len()]);
        match row.check(engine, bench) {
            Ok(0) if row.inputs.iter().all(|input| input.1 != 0) => {
                wrong.lock().unwrap().push(format!("{row:?} at {}: does not compile", engine.level()));
            }
            Ok(executions) => drop(checked.fetch_add(executions, Ordering::Relaxed)),
            Err(why) => wrong.lock().unwrap().push(format!("{row:?} at {}: {why}", engine.level())),
        }
    };
    on_all_threads(rows.len() * engines.len(), work, || Bench::new(3, 5 * 8 * MOST as usize));
    println!("{} kinds, {} rows, {checked:?} executions", kinds.len(), rows.len());
    assert!(kinds.len() > 50 && rows.len() > 400, "{} kinds, {} rows", kinds.len(), rows.len());
    report(&wrong.into_inner().unwrap());
}

/// Holds an op on inputs of some shapes, which are filled by port, against the same run in ordinary memory.
fn check_whole(
    op: &Op,
    shapes: &[Vec<i64>],
    engine: &Engine,
    bench: &mut Bench,
    fill: impl Fn(usize, &mut TensorBuf),
) -> Result<(), String> {
    let text = |error: sterna::Error| error.to_string();
    let descs: Vec<LogicalTensor> = (op.inputs().iter().zip(shapes))
        .map(|(port, dims)| LogicalTensor::strided(port.id(), port.data_type(), dims).unwrap())
        .collect();
    let partition = Partition::from_op(op.clone()).unwrap();
    let compiled = partition.compile_for(engine, &descs, partition.outputs()).map_err(text)?;
    let filled = |(port, desc): (usize, &LogicalTensor)| {
        let mut tensor = TensorBuf::zeroed(desc.clone(), engine).unwrap();
        fill(port, &mut tensor);
        tensor
    };
    let inputs: Vec<TensorBuf> = compiled.inputs().iter().enumerate().map(filled).collect();
    let mut output = TensorBuf::zeroed(compiled.outputs()[0].clone(), engine).unwrap();
    common::run(&compiled, engine, &inputs, &mut output).map_err(text)?;
    let inputs: Vec<&[u8]> = inputs.iter().map(TensorBuf::as_bytes).collect();
    bench.check(&compiled, &inputs, &[output.as_bytes()], |_| Place::Back(0))?;
    bench.check(&compiled, &inputs, &[output.as_bytes()], |_| Place::Front(0))?;
    bench.check(&compiled, &inputs, &[output.as_bytes()], Place::random)
}

/// Ops whose elements depend on many others: products, and ops on rows. Each shape is held against the same
/// run in ordinary memory.
#[test]
fn products_and_rows_at_every_length() {
    type Shapes = fn(i64) -> Vec<Vec<i64>>;
    let op = |kind, inputs: usize, of: DataType| op_of_types(Schema::of(kind), &vec![of; inputs], &[of]);
    let mut rows: Vec<(Op, Shapes)> = Vec::new();
    for of in [DataType::F32, DataType::Bf16, DataType::F16] {
        let product = || op(OpKind::MatMul, 2, of);
        rows.extend([
            (product(), (|n| vec![vec![3, n], vec![n, 5]]) as Shapes),
            (product(), |n| vec![vec![7, 4], vec![4, n]]),
            (product(), |n| vec![vec![n, 3], vec![3, 17]]),
            (product().attr(Attr::TransposeB, true), |n| vec![vec![2, n], vec![9, n]]),
            (product().attr(Attr::TransposeA, true), |n| vec![vec![n, 6], vec![n, 33]]),
            (op(OpKind::MatMul, 3, of), |n| vec![vec![20, 8], vec![8, n], vec![n]]),
        ]);
        for kind in [OpKind::SoftMax, OpKind::LogSoftmax] {
            rows.extend([(op(kind, 1, of).axis(1), (|n| vec![vec![3, n]]) as Shapes)]);
            rows.extend([(op(kind, 1, of).axis(0), (|n| vec![vec![3, n]]) as Shapes)]);
        }
        for kind in [OpKind::ReduceSum, OpKind::ReduceMax, OpKind::ReduceL2] {
            rows.extend([(op(kind, 1, of).attr(Attr::Axes, &[1i64][..]), (|n| vec![vec![3, n]]) as Shapes)]);
            rows.extend([(op(kind, 1, of).attr(Attr::Axes, &[0i64][..]), (|n| vec![vec![3, n]]) as Shapes)]);
        }
        let bare = op(OpKind::LayerNorm, 1, of).attr(Attr::KeepStats, false).attr(Attr::UseAffine, false);
        rows.extend([(bare, (|n| vec![vec![3, n]]) as Shapes)]);
    }
    let engines = engines();
    let wrong = Mutex::new(Vec::new());
    let work = |number: usize, bench: &mut Bench| {
        let ((op, shapes), engine) = (&rows[number / engines.len()], &engines[number % engines.len()]);
        for length in lengths() {
            let fill = |port: usize, input: &mut TensorBuf| {
                graphs::fill(input, &mut Random::new(port as u64));
            };
            if let Err(why) = check_whole(op, &shapes(length), engine, bench, fill) {
                wrong.lock().unwrap().push(format!("{op:?} at {}, {length}: {why}", engine.level()));
            }
        }
    };
    on_all_threads(rows.len() * engines.len(), work, || Bench::new(4, 40 * 4 * MOST as usize));
    report(&wrong.into_inner().unwrap());
}

/// Transposed operands and results, which are packed block by block.
#[test]
fn packed_operands_at_every_extent_of_a_block() {
    const EXTENTS: [i64; 15] = [1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 130];
    let engines = engines();
    let wrong = Mutex::new(Vec::new());
    let work = |number: usize, bench: &mut Bench| {
        let (rows, columns) = (EXTENTS[number / EXTENTS.len()], EXTENTS[number % EXTENTS.len()]);
        let desc = |id, data_type, strides: &[i64]| {
            LogicalTensor::with_strides(id, data_type, &[rows, columns], strides).unwrap()
        };
        for data_type in [DataType::U8, DataType::F16, DataType::F32, DataType::S64] {
            for engine in &engines {
                let (dense, padded) = ([columns, 1], [columns + 3, 1]);
                for (from, to) in [
                    ([1, rows], dense),
                    ([1, rows + 5], padded),
                    (dense, [1, rows]),
                    (padded, [2, 2 * rows + 1]),
                ] {
                    let op = op_of_types(Schema::of(OpKind::Identity), &[data_type], &[data_type]);
                    let (input, output) = (desc(0, data_type, &from), desc(100, data_type, &to));
                    let partition = Partition::from_op(op).unwrap();
                    let compiled = partition.compile_for(engine, &[input], &[output]).unwrap();
                    let size = data_type.size().unwrap();
                    let span = |steps: [i64; 2]| {
                        ((rows - 1) * steps[0] + (columns - 1) * steps[1] + 1) as usize * size
                    };
                    let bytes: Vec<u8> = (0..span(from)).map(|_| bench.random.next() as u8).collect();
                    let mut expected = vec![GAP; span(to)];
                    for (row, column) in
                        (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)))
                    {
                        let at = |steps: [i64; 2]| (row * steps[0] + column * steps[1]) as usize * size;
                        expected[at(to)..at(to) + size].copy_from_slice(&bytes[at(from)..at(from) + size]);
                    }
                    for place in [Place::Back(0), Place::Front(0)] {
                        if let Err(why) = bench.check(&compiled, &[&bytes], &[&expected], |_| place) {
                            let what = format!("{rows} by {columns} of {data_type}, {from:?} to {to:?}");
                            wrong
                                .lock()
                                .unwrap()
                                .push(format!("{what}, {place:?}, {}: {why}", engine.level()));
                        }
                    }
                }
            }
        }
    };
    on_all_threads(EXTENTS.len() * EXTENTS.len(), work, || Bench::new(2, 135 * 135 * 2 * 8));
    report(&wrong.into_inner().unwrap());
}

/// Groups of random ops on random layouts, each partition with every port at a guard page.
#[test]
fn random_groups_on_random_layouts() {
    const SEEDS: usize = 1500;
    let engines = engines();
    let (wrong, executions) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
    let work = |number: usize, bench: &mut Bench| {
        let mut random = Random::new(number as u64);
        let dims = (0..1 + random.below(3)).map(|_| 1 + random.below(19) as i64).collect();
        let graph = RandomGraph::on(&mut random, 12, dims);
        let engine = &engines[number % engines.len()];
        let [fused, _] = graphs::both(&graph.graph);
        let inputs = graphs::filled(&graph, engine, number as u64);
        let mut made = graphs::run(&fused, &graph.outputs, engine, &inputs, None).unwrap();
        made.extend(inputs);
        for partition in &fused {
            let ins: Vec<&TensorBuf> =
                partition.inputs().iter().map(|port| &made[&port.id().get()]).collect();
            let outs: Vec<&TensorBuf> =
                partition.outputs().iter().map(|port| &made[&port.id().get()]).collect();
            let descs = |tensors: &[&TensorBuf]| tensors.iter().map(|t| t.desc().clone()).collect::<Vec<_>>();
            let compiled = partition.compile_for(engine, &descs(&ins), &descs(&outs)).unwrap();
            let bytes: Vec<&[u8]> = ins.iter().map(|tensor| tensor.as_bytes()).collect();
            let expected: Vec<Vec<u8>> = outs.iter().map(|tensor| with_gaps(tensor)).collect();
            let expected: Vec<&[u8]> = expected.iter().map(Vec::as_slice).collect();
            for place in [Place::Back(0), Place::Front(0)] {
                executions.fetch_add(1, Ordering::Relaxed);
                if let Err(why) = bench.check(&compiled, &bytes, &expected, |_| place) {
                    let what = graphs::describe(&graph);
                    wrong
                        .lock()
                        .unwrap()
                        .push(format!("{number}, {place:?}, {}: {why}\n{what}", engine.level()));
                }
            }
        }
    };
    on_all_threads(SEEDS, work, || Bench::new(40, 20 * 20 * 20 * 4 * 8 * 2));
    println!("{executions:?} executions");
    report(&wrong.into_inner().unwrap());
}

/// Beyond the caches, what a branch reads in later tiles is asked for, so their conditions are looked at
/// before their turn.
#[test]
fn branches_that_rows_of_large_groups_choose() {
    const DIMS: [i64; 2] = [1300, 1100];
    let tensor = |id, data_type, dims: &[i64]| LogicalTensor::strided(id, data_type, dims).unwrap();
    let number = |id| tensor(id, DataType::F32, &DIMS);
    let (x, y, cond) = (number(0), number(1), tensor(2, DataType::Boolean, &[DIMS[0], 1]));
    let mut graph = Graph::new();
    graph.add_op(Op::new(0, OpKind::Tanh).input(x.clone()).output(number(3))).unwrap();
    graph.add_op(Op::new(1, OpKind::Multiply).input(number(3)).input(y).output(number(4))).unwrap();
    graph.add_op(Op::select(2, cond, number(4), x, number(5))).unwrap();
    graph.finalize().unwrap();
    let [fused, apart] = graphs::both(&graph);
    let [partition] = &fused[..] else { panic!("one partition") };

    let count = (DIMS[0] * DIMS[1]) as usize;
    let row_bytes = DIMS[1] as usize * 4;
    let mut random = Random::new(21);
    let rows = 0..DIMS[0] as usize;
    let last = rows.end - 1;
    let by_chance: Vec<bool> = rows.clone().map(|_| random.below(2) == 0).collect();
    let patterns: [(&str, &dyn Fn(usize) -> bool); 6] = [
        ("all", &|_| true),
        ("none", &|_| false),
        ("by chance", &|row| by_chance[row]),
        ("runs", &|row| row / 13 % 2 == 0),
        ("the first", &|row| row == 0),
        ("the last", &|row| row == last),
    ];
    let outputs = (3..6).map(|id| (id, number(id))).collect();
    let mut bench = Bench::new(4, count * 4);
    let mut wrong = Vec::new();
    for engine in engines() {
        let inputs: std::collections::BTreeMap<usize, TensorBuf> = (graph.inputs().into_iter())
            .map(|desc| {
                let mut input = TensorBuf::zeroed(desc.clone(), &engine).unwrap();
                graphs::fill(&mut input, &mut random);
                (desc.id().get(), input)
            })
            .collect();
        let made = graphs::run(&apart, &outputs, &engine, &inputs, None).unwrap();
        let (x, y, computed) = (inputs[&0].as_bytes(), inputs[&1].as_bytes(), made[&4].as_bytes());
        let compiled = partition.compile(&engine).unwrap();
        for (pattern, is_true) in patterns {
            let conds: Vec<u8> = rows.clone().map(|row| u8::from(is_true(row))).collect();
            let row_of = |row: usize| {
                let from = if is_true(row) { computed } else { x };
                &from[row * row_bytes..][..row_bytes]
            };
            let expected: Vec<u8> = rows.clone().flat_map(row_of).copied().collect();
            let bytes = |port: &LogicalTensor| [x, y, &conds[..]][port.id().get()];
            let ins: Vec<&[u8]> = compiled.inputs().iter().map(bytes).collect();
            for place in [Place::Back(0), Place::Front(0)] {
                if let Err(why) = bench.check(&compiled, &ins, &[&expected], |_| place) {
                    wrong.push(format!("{pattern}, {place:?}, {}: {why}", engine.level()));
                }
            }
        }
    }
    report(&wrong);
}

/// The bytes of a result that was written to where there was [`GAP`] before.
fn with_gaps(tensor: &TensorBuf) -> Vec<u8> {
    let size = tensor.desc().data_type().size().unwrap();
    let mut bytes = vec![GAP; tensor.as_bytes().len()];
    for index in common::indices(tensor.desc().dims().unwrap()) {
        let offset: i64 =
            index.iter().zip(tensor.desc().strides().unwrap()).map(|(i, stride)| i * stride).sum();
        let range = offset as usize * size..(offset as usize + 1) * size;
        bytes[range.clone()].copy_from_slice(&tensor.as_bytes()[range]);
    }
    bytes
}

/// Tells a process of this very test which byte to touch.
#[cfg(unix)]
const TOUCHED: &str = "STERNA_TEST_TOUCHED";

#[cfg(unix)]
#[test]
fn a_byte_too_far_ends_the_process() {
    use std::os::unix::process::ExitStatusExt;

    if let Ok(touched) = std::env::var(TOUCHED) {
        let memory = Guarded::new(100);
        let at = memory.at(0).wrapping_offset(touched.parse().unwrap());
        // SAFETY: within the mapping; what may not be touched ends the process, which is what it is there
        // for.
        unsafe { at.read_volatile() };
        return;
    }
    let size = Guarded::new(100).size as isize;
    let mut wrong = Vec::new();
    for (at, faults) in [(0, false), (size - 1, false), (-1, true), (size, true)] {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "a_byte_too_far_ends_the_process"]).env(TOUCHED, at.to_string());
        let status = command.output().unwrap().status;
        let expected = faults.then_some([libc::SIGSEGV, libc::SIGBUS]);
        let is_right = match expected {
            Some(signals) => status.signal().is_some_and(|signal| signals.contains(&signal)),
            None => status.success(),
        };
        if !is_right {
            wrong.push((at, status));
        }
    }
    report(&wrong);
}
