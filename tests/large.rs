//! Promise: sizes and offsets are counted in 64 bits: tensors beyond 4 GiB, and of more than 2³¹ elements.
//! Attention whose scores would take 4 GiB takes little memory.
//!
//! Inputs, and outputs with gaps, are mapped without memory behind them: what is not touched takes none. A
//! result takes what it has: 2 GiB here, and up to 8 GiB more where `STERNA_LARGE` is set.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;
#[path = "common/watched.rs"]
mod watched;

use std::sync::Arc;
use std::time::Instant;

use common::report;
use sterna::{
    Attention, AutoBroadcast, Causal, CompiledPartition, DataType, Engine, Graph, Level, LogicalTensor, Op,
    OpKind, Partition, Policy, Stream, Tensor, TensorBuf, TensorMut,
};
use watched::Watched;

/// Zeros, of which only the pages that are written to take memory.
struct Sparse {
    at: *mut u8,
    size: usize,
}

impl Sparse {
    fn new(size: usize) -> Self {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh mapping.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), size, access, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED, "{size} bytes of address space");
        Self { at: at.cast(), size }
    }

    /// For a tensor, and a little more that nobody may write to.
    fn of(desc: &LogicalTensor) -> Self {
        Self::new(desc.span().unwrap() * desc.data_type().size().unwrap() + 64)
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: all of the mapping can be read; executions run while no such slice is alive.
        unsafe { std::slice::from_raw_parts(self.at, self.size) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, uniquely borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.size) }
    }
}

impl Drop for Sparse {
    fn drop(&mut self) {
        // SAFETY: the whole of the mapping that `new` made, which nobody uses any more.
        unsafe { libc::munmap(self.at.cast(), self.size) };
    }
}

fn execute(compiled: &CompiledPartition, inputs: &[Sparse], output: &Sparse) {
    let engine = compiled.engine();
    // SAFETY: each mapping is as large as its tensor, and nobody looks at it meanwhile.
    let (inputs, output) = unsafe {
        let tensor = |(desc, memory): (_, &Sparse)| Tensor::from_raw_parts(desc, engine, memory.at);
        let inputs: Vec<Tensor<'_>> = compiled.inputs().iter().zip(inputs).map(tensor).collect();
        (inputs, TensorMut::from_raw_parts(&compiled.outputs()[0], engine, output.at))
    };
    compiled.execute(&Stream::new(engine), &inputs, &mut [output]).unwrap();
}

fn partition(ops: Vec<Op>) -> Partition {
    let mut graph = Graph::new();
    ops.into_iter().for_each(|op| graph.add_op(op).unwrap());
    graph.finalize().unwrap();
    let mut partitions = graph.partitions(Policy::Fusion).unwrap();
    assert_eq!(partitions.len(), 1);
    partitions.remove(0)
}

/// The bytes of each element, in row-major order, of a tensor of few elements far apart.
fn elements(desc: &LogicalTensor) -> Vec<std::ops::Range<usize>> {
    let size = desc.data_type().size().unwrap();
    let offset =
        |index: &Vec<i64>| index.iter().zip(desc.strides().unwrap()).map(|(i, s)| i * s).sum::<i64>();
    let offsets = common::indices(desc.dims().unwrap());
    offsets.iter().map(|index| offset(index) as usize * size..(offset(index) as usize + 1) * size).collect()
}

/// Some elements of any bits; small numbers where they are computed with.
fn element(i: usize, data_type: DataType) -> Vec<u8> {
    match data_type {
        DataType::F32 => (i as f32 * 0.37 - 5.0).to_ne_bytes().to_vec(),
        DataType::Boolean => vec![u8::from(i % 3 == 1)],
        _ => (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_ne_bytes()[..data_type.size().unwrap()]
            .to_vec(),
    }
}

#[test]
fn elements_may_lie_far_apart() {
    /// Elements from one to the next: more than 4 GiB even of one byte.
    const FAR: i64 = (1 << 32) + 3;
    use DataType::{Boolean, F32, S64, U8};
    let unknown = LogicalTensor::unknown;
    let select = |of: DataType| {
        let op = Op::select(0, unknown(0, Boolean), unknown(1, of), unknown(2, of), unknown(9, of));
        (vec![op], vec![Boolean, of, of], of)
    };
    let group = || {
        let ops = vec![
            Op::new(0, OpKind::Multiply)
                .input(unknown(0, F32))
                .input(unknown(1, F32))
                .output(unknown(5, F32)),
            Op::new(1, OpKind::Less)
                .input(unknown(0, F32))
                .input(unknown(1, F32))
                .output(unknown(6, Boolean)),
            Op::select(2, unknown(6, Boolean), unknown(5, F32), unknown(2, F32), unknown(9, F32)),
        ];
        (ops, vec![F32; 3], F32)
    };
    let moved = |of: DataType| {
        (vec![Op::new(0, OpKind::Identity).input(unknown(0, of)).output(unknown(9, of))], vec![of], of)
    };
    let cases = [
        ("select", select(U8)),
        ("select", select(F32)),
        ("select", select(S64)),
        ("group", group()),
        ("move", moved(U8)),
        ("move", moved(F32)),
    ];
    let dims = [4, 5];
    // Rows far apart, elements of a row far apart, and both; where elements are large, that is as far all the
    // same.
    let far = |layout: [i64; 2], of: DataType| {
        layout.map(|s| if s < 1 << 30 { s } else { s / of.size().unwrap() as i64 + 1 })
    };
    let layouts = [[FAR, 1], [1, FAR], [FAR, 5 * FAR]];
    let (mut wrong, mut runs) = (Vec::new(), 0);
    for (name, (ops, types, of)) in cases {
        let partition = partition(ops);
        let ports: Vec<(usize, DataType)> = types.iter().copied().enumerate().chain([(9, of)]).collect();
        // With the elements of one port far apart, then with those of all.
        for (layout, port) in
            layouts.iter().flat_map(|&layout| (0..=ports.len()).map(move |port| (layout, port)))
        {
            let desc = |i: usize| {
                let (id, data_type) = ports[i];
                let strides = if port == i || port == ports.len() { far(layout, data_type) } else { [5, 1] };
                LogicalTensor::with_strides(id, data_type, &dims, &strides).unwrap()
            };
            let descs: Vec<LogicalTensor> = (0..ports.len()).map(desc).collect();
            for level in Level::all_available() {
                let engine = Engine::builder().threads(1).max_level(level).build();
                let expected = dense(&partition, &ports, &dims, &engine);
                let (inputs, output) = descs.split_at(types.len());
                let compiled = partition.compile_for(&engine, inputs, output).unwrap();
                let mut memory: Vec<Sparse> = inputs.iter().map(Sparse::of).collect();
                for (desc, memory) in inputs.iter().zip(&mut memory) {
                    for (i, range) in elements(desc).into_iter().enumerate() {
                        memory.bytes_mut()[range]
                            .copy_from_slice(&element(i + 7 * desc.id().get(), desc.data_type()));
                    }
                }
                let result = Sparse::of(&output[0]);
                execute(&compiled, &memory, &result);
                let ranges = elements(&output[0]);
                let given: Vec<u8> =
                    ranges.into_iter().flat_map(|range| &result.bytes()[range]).copied().collect();
                runs += 1;
                if given != expected {
                    wrong.push((name, of, layout, port, level));
                }
            }
        }
    }
    println!("{runs} executions");
    report(&wrong);
}

/// The result for the same elements without gaps.
fn dense(partition: &Partition, ports: &[(usize, DataType)], dims: &[i64], engine: &Engine) -> Vec<u8> {
    let descs: Vec<LogicalTensor> =
        ports.iter().map(|&(id, data_type)| LogicalTensor::strided(id, data_type, dims).unwrap()).collect();
    let (inputs, output) = descs.split_at(descs.len() - 1);
    let compiled = partition.compile_for(engine, inputs, output).unwrap();
    let mut memory: Vec<Sparse> = inputs.iter().map(Sparse::of).collect();
    for (desc, memory) in inputs.iter().zip(&mut memory) {
        for (i, range) in elements(desc).into_iter().enumerate() {
            memory.bytes_mut()[range].copy_from_slice(&element(i + 7 * desc.id().get(), desc.data_type()));
        }
    }
    let result = Sparse::of(&output[0]);
    execute(&compiled, &memory, &result);
    elements(&output[0]).into_iter().flat_map(|range| &result.bytes()[range]).copied().collect()
}

/// The elements at which a result of so many could go wrong, and their neighbours.
fn marks(count: usize) -> Vec<usize> {
    let places = [0, 1 << 30, 1 << 31, 1 << 32, count / 3, count - 1];
    let around = |place: usize| place.saturating_sub(2)..(place + 3).min(count);
    let mut marks: Vec<usize> = places.into_iter().filter(|&place| place < count).flat_map(around).collect();
    marks.sort_unstable();
    marks.dedup();
    marks
}

/// Selects one value nearly everywhere and others at the marks, into a result of so many elements.
fn select_marks(
    data_type: DataType,
    count: usize,
    engine: &Engine,
    result: &mut Sparse,
) -> Result<(), String> {
    let size = data_type.size().unwrap();
    let dims = [count as i64];
    let of = |id, data_type| LogicalTensor::strided(id, data_type, &dims).unwrap();
    let fill = LogicalTensor::strided(2, data_type, &[]).unwrap();
    let op = Op::select(0, of(0, DataType::Boolean), of(1, data_type), fill, of(3, data_type));
    let partition = Partition::from_op(op.auto_broadcast(AutoBroadcast::Numpy)).unwrap();
    let compiled = partition.compile(engine).unwrap();
    let mut inputs: Vec<Sparse> = compiled.inputs().iter().map(Sparse::of).collect();
    let marks = marks(count);
    for &mark in &marks {
        inputs[0].bytes_mut()[mark] = 1;
        inputs[1].bytes_mut()[mark * size..(mark + 1) * size].fill(mark as u8 | 0x80);
    }
    inputs[2].bytes_mut()[..size].fill(FILL);
    result.bytes_mut()[count * size..].fill(0);
    execute(&compiled, &inputs, result);

    let given = result.bytes();
    let filled = [FILL; 1 << 20];
    let mut start = 0;
    for mark in marks.into_iter().chain([count]) {
        let plain = &given[start * size..mark * size];
        if let Some(block) = plain.chunks(filled.len()).position(|block| block != &filled[..block.len()]) {
            return Err(format!("after element {start}, MiB {block} before element {mark} is not the fill"));
        }
        let marked = &given[mark * size..((mark + 1) * size).min(given.len())];
        if mark < count && marked.iter().any(|&byte| byte != mark as u8 | 0x80) {
            return Err(format!("element {mark} is {marked:?}"));
        }
        start = mark + 1;
    }
    match given[count * size..].iter().all(|&byte| byte == 0) {
        true => Ok(()),
        false => Err("bytes behind the result changed".into()),
    }
}

const FILL: u8 = 0x5a;

/// `row >= column` of a square, from indices.
fn triangle(side: usize, engine: &Engine, result: &mut Sparse) -> Result<(), String> {
    let of = |id, data_type| LogicalTensor::strided(id, data_type, &[side as i64; 2]).unwrap();
    let (f32s, s32s) = (|id| of(id, DataType::F32), |id| of(id, DataType::S32));
    let partition = partition(vec![
        Op::new(0, OpKind::GenIndex).axis(-2).input(f32s(0)).output(s32s(1)),
        Op::new(1, OpKind::GenIndex).axis(-1).input(f32s(0)).output(s32s(2)),
        Op::new(2, OpKind::GreaterEqual).input(s32s(1)).input(s32s(2)).output(of(3, DataType::Boolean)),
    ]);
    let compiled = partition.compile(engine).unwrap();
    // The input is shape-only.
    execute(&compiled, &[Sparse::new(1)], result);
    let (ones, zeros) = (vec![1; side], vec![0; side]);
    for (row, given) in result.bytes().chunks_exact(side).take(side).enumerate() {
        if given[..=row] != ones[..=row] || given[row + 1..] != zeros[row + 1..] {
            return Err(format!("row {row}"));
        }
    }
    Ok(())
}

#[test]
fn results_may_have_more_elements_than_fit_31_bits() {
    const COUNT: usize = (1 << 31) + 77;
    const SIDE: usize = 46_342;
    let more = std::env::var_os("STERNA_LARGE").is_some();
    let engine = Engine::builder().threads(2).build();
    let mut wrong = Vec::new();
    let mut check = |what: String, run: &mut dyn FnMut() -> Result<(), String>| {
        let start = Instant::now();
        let result = run();
        println!("{what}: {:.1} s", start.elapsed().as_secs_f64());
        wrong.extend(result.err().map(|why| (what, why)));
    };
    {
        let mut memory = Sparse::new(COUNT.max(SIDE * SIDE) + 64);
        check(format!("select of {COUNT} u8"), &mut || {
            select_marks(DataType::U8, COUNT, &engine, &mut memory)
        });
        check(format!("{SIDE} by {SIDE} indices"), &mut || triangle(SIDE, &engine, &mut memory));
        for level in Level::all_available().filter(|_| more) {
            let engine = Engine::builder().threads(1).max_level(level).build();
            check(format!("select of {COUNT} u8 at {level}"), &mut || {
                select_marks(DataType::U8, COUNT, &engine, &mut memory)
            });
            check(format!("{SIDE} by {SIDE} indices at {level}"), &mut || {
                triangle(SIDE, &engine, &mut memory)
            });
        }
    }
    for (data_type, count) in
        [(DataType::U8, (1 << 32) + 77), (DataType::F32, (1 << 30) + 77), (DataType::F32, (1 << 31) + 77)]
    {
        if more {
            let mut memory = Sparse::new(count * data_type.size().unwrap() + 64);
            check(format!("select of {count} {data_type}"), &mut || {
                select_marks(data_type, count, &engine, &mut memory)
            });
        }
    }
    report(&wrong);
}

/// A row of attention as it is written in books, over the first keys.
fn attended(tensors: &[TensorBuf], query: usize, keys: usize) -> Vec<f64> {
    let [q, k, v] = [0, 1, 2].map(|at| tensors[at].as_slice::<f32>().unwrap());
    let row = |of: &[f32], at: usize| -> Vec<f64> {
        of[at * DEPTH..(at + 1) * DEPTH].iter().map(|&x| x.into()).collect()
    };
    let (q, root) = (row(q, query), (DEPTH as f64).sqrt());
    let weight = |key: usize| {
        let score: f64 = q.iter().zip(row(k, key)).map(|(x, y)| x * y).sum();
        (score / root).exp()
    };
    let (mut sum, mut result) = (0.0, vec![0.0; DEPTH]);
    for key in 0..keys {
        let weight = weight(key);
        sum += weight;
        result.iter_mut().zip(row(v, key)).for_each(|(result, x)| *result += weight * x);
    }
    result.into_iter().map(|x| x / sum).collect()
}

/// Elements of a token.
const DEPTH: usize = 64;

#[test]
fn attention_of_many_tokens_takes_little_memory() {
    const TOKENS: usize = 32_768;
    const MOST: usize = 100_000_000;
    if std::env::var_os("STERNA_LARGE").is_none() {
        return;
    }
    let mut wrong = Vec::new();
    for is_causal in [false, true] {
        let memory = Arc::new(Watched::default());
        let engine = Engine::builder().threads(2).allocator(memory.clone()).build();
        let head = |id| LogicalTensor::strided(id, DataType::F32, &[1, TOKENS as i64, DEPTH as i64]).unwrap();
        let options = Attention::new(head(0), head(1), head(2), head(3));
        let options = if is_causal { options.causal(Causal::TopLeft) } else { options };
        let mut graph = Graph::new();
        graph.attention(&options).unwrap();
        graph.finalize().unwrap();
        let partitions = graph.partitions(Policy::Fusion).unwrap();
        assert_eq!(partitions.len(), 1);
        let inputs = [0, 1, 2].map(|id| {
            let mut tensor = TensorBuf::zeroed(head(id), &engine).unwrap();
            let mut random = common::Random::new(id as u64);
            let numbers = tensor.as_mut_slice::<f32>().unwrap().iter_mut();
            numbers.for_each(|x| *x = random.below(2001) as f32 / 1000.0 - 1.0);
            tensor
        });
        let mut output = TensorBuf::zeroed(head(3), &engine).unwrap();
        let start = Instant::now();
        // Compilation and what the plan keeps count as well.
        let most = memory.most_of(|| {
            let compiled = partitions[0].compile(&engine).unwrap();
            let sources: Vec<_> = inputs.iter().map(TensorBuf::as_tensor).collect();
            compiled.execute(&Stream::new(&engine), &sources, &mut [output.as_tensor_mut()]).unwrap();
        });
        println!("causal {is_causal}: {:.1} s, {most} bytes", start.elapsed().as_secs_f64());
        if most >= MOST {
            wrong.push(format!("causal {is_causal}: {most} bytes beside the tensors"));
        }
        let made = output.as_slice::<f32>().unwrap();
        for query in [0, 63, 64, 20_000, TOKENS - 1] {
            let expected = attended(&inputs, query, if is_causal { query + 1 } else { TOKENS });
            let row = &made[query * DEPTH..(query + 1) * DEPTH];
            if row.iter().zip(&expected).any(|(&x, y)| (f64::from(x) - y).abs() > 1e-5) {
                wrong.push(format!("causal {is_causal}: query {query}"));
            }
        }
    }
    report(&wrong);
}
