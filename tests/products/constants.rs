//! Promise: what a product reads of constant inputs alone is packed once for a compiled partition and the
//! addresses of these inputs, up to a capacity; that changes no bit.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard};
use std::thread;

use crate::common::{engines, report};
use sterna::{
    Allocator, Attr, CompiledPartition, DataType, Engine, Graph, Level, LogicalTensor, Op, OpKind, Partition,
    PhaseKind, Policy, Property, Stream, SystemAllocator, TensorBuf, constant_cache_bytes,
    constant_cache_capacity, set_constant_cache_capacity,
};

const ROWS: usize = 150;
const DEPTH: usize = 40;
const COLUMNS: usize = 70;

/// The capacity belongs to the process, so one test runs at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let guard = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    set_constant_cache_capacity(64 << 20);
    guard
}

fn desc(id: usize, dims: &[usize], property: Property) -> LogicalTensor {
    let dims: Vec<i64> = dims.iter().map(|&dim| dim as i64).collect();
    LogicalTensor::strided(id, DataType::F32, &dims).unwrap().with_property(property).unwrap()
}

/// A product so large that it packs its right operand.
fn compiled(engine: &Engine, weights: Property) -> CompiledPartition {
    let op = Op::new(0, OpKind::MatMul)
        .attr(Attr::TransposeB, true)
        .input(desc(0, &[ROWS, DEPTH], Property::Variable))
        .input(desc(1, &[COLUMNS, DEPTH], weights))
        .output(desc(2, &[ROWS, COLUMNS], Property::Variable));
    let partition = Partition::from_op(op).unwrap();
    partition.compile(engine).unwrap()
}

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 31 + seed * 17) % 23) as f32 - 11.0).collect()
}

fn tensor(desc: &LogicalTensor, engine: &Engine, seed: usize) -> TensorBuf {
    let mut tensor = TensorBuf::zeroed(desc.clone(), engine).unwrap();
    fill(&mut tensor, seed);
    tensor
}

fn fill(tensor: &mut TensorBuf, seed: usize) {
    let numbers = numbers(tensor.as_bytes().len() / 4, seed);
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    tensor.as_mut_bytes().copy_from_slice(&bytes);
}

fn execute(compiled: &CompiledPartition, left: &TensorBuf, right: &TensorBuf) -> Vec<u8> {
    let mut result = TensorBuf::zeroed(compiled.outputs()[0].clone(), compiled.engine()).unwrap();
    let inputs = [left.as_tensor(), right.as_tensor()];
    compiled.execute(&Stream::new(compiled.engine()), &inputs, &mut [result.as_tensor_mut()]).unwrap();
    result.as_bytes().to_vec()
}

/// The product of the inputs of two seeds. Products of small whole numbers are exact.
fn expected(left: usize, right: usize) -> Vec<u8> {
    let (left, right) = (numbers(ROWS * DEPTH, left), numbers(COLUMNS * DEPTH, right));
    let dot = |row: usize, column: usize| -> f32 {
        (0..DEPTH).map(|k| left[row * DEPTH + k] * right[column * DEPTH + k]).sum()
    };
    let all = (0..ROWS * COLUMNS).map(|i| dot(i / COLUMNS, i % COLUMNS));
    all.flat_map(f32::to_ne_bytes).collect()
}

#[test]
fn weights_are_packed_once_for_an_address() {
    let _alone = alone();
    let mut wrong = Vec::new();
    for engine in engines() {
        let compiled = compiled(&engine, Property::Constant);
        let plan = compiled.plan();
        let kept: Vec<PhaseKind> =
            plan.nests.iter().filter(|nest| nest.is_kept).map(|nest| nest.kind).collect();
        assert_eq!(kept, [PhaseKind::Pack], "{plan}");
        let (left, other) =
            (tensor(&compiled.inputs()[0], &engine, 1), tensor(&compiled.inputs()[0], &engine, 2));
        let mut right = tensor(&compiled.inputs()[1], &engine, 3);
        let mut must = |holds: bool, what: &str| {
            if !holds {
                wrong.push(format!("{}: {what}", engine.level()));
            }
        };
        must(execute(&compiled, &left, &right) == expected(1, 3), "the first execution");
        must(constant_cache_bytes() >= COLUMNS * DEPTH * 4, "the copy is kept");
        must(execute(&compiled, &other, &right) == expected(2, 3), "the second execution");
        fill(&mut right, 4);
        must(execute(&compiled, &left, &right) == expected(1, 3), "the copy is read, not the weights");
        let moved = tensor(&compiled.inputs()[1], &engine, 5);
        must(execute(&compiled, &left, &moved) == expected(1, 5), "another address");
        must(execute(&compiled, &left, &right) == expected(1, 4), "the first address again");
        drop(compiled);
        must(constant_cache_bytes() == 0, "the copy goes with the compiled partition");
    }
    report(&wrong);
}

/// A product of rows whose right operand lies in the order of memory.
fn of_rows(engine: &Engine, rows: usize, weights: Property) -> CompiledPartition {
    let op = Op::new(0, OpKind::MatMul)
        .input(desc(0, &[rows, DEPTH], Property::Variable))
        .input(desc(1, &[DEPTH, COLUMNS], weights))
        .output(desc(2, &[rows, COLUMNS], Property::Variable));
    Partition::from_op(op).unwrap().compile(engine).unwrap()
}

#[test]
fn constant_weights_of_some_rows_are_packed_if_the_copy_can_be_kept() {
    let _alone = alone();
    let mut wrong = Vec::new();
    for level in Level::all_available() {
        let builder = || Engine::builder().max_level(level).threads(2);
        for rows in [1, 2, 8, 11, 12, 16, 17, 40, 100, 101, 150] {
            let columns = [
                (Property::Constant, 1 << 20, rows >= 12),
                (Property::Constant, 0, false),
                (Property::Variable, 1 << 20, false),
            ];
            let results = columns.map(|(property, capacity, is_packed)| {
                let engine = builder().constant_cache_capacity(capacity).build();
                let compiled = of_rows(&engine, rows, property);
                let packs = compiled.plan().nests.iter().any(|nest| nest.kind == PhaseKind::Pack);
                if packs != is_packed {
                    wrong.push(format!("{level}, {rows} rows, {property:?}, {capacity}: packs {packs}"));
                }
                let [left, right] = [0, 1].map(|port| tensor(&compiled.inputs()[port], &engine, port));
                (0..2).map(|_| execute(&compiled, &left, &right)).collect::<Vec<_>>()
            });
            let first = &results[0][0];
            if results.iter().flatten().any(|result| result != first) {
                wrong.push(format!("{level}, {rows} rows: the bits differ"));
            }
        }
    }
    report(&wrong);
}

#[test]
fn weights_of_few_bits_are_read_as_they_are_stored() {
    let _alone = alone();
    let engine = Engine::new();
    let (k, n) = (DEPTH as i64, COLUMNS as i64);
    let weights = LogicalTensor::strided(1, DataType::S8, &[k, n]).unwrap();
    let weights = weights.with_property(Property::Constant).unwrap();
    let widened = desc(2, &[DEPTH, COLUMNS], Property::Undef);
    let mut graph = Graph::new();
    let op = Op::new(0, OpKind::Dequantize).attr(Attr::Scales, vec![0.5f32]).attr(Attr::Zps, vec![1i64]);
    graph.add_op(op.input(weights).output(widened.clone())).unwrap();
    let product = Op::new(1, OpKind::MatMul).input(desc(0, &[ROWS, DEPTH], Property::Variable));
    graph.add_op(product.input(widened).output(desc(3, &[ROWS, COLUMNS], Property::Undef))).unwrap();
    graph.finalize().unwrap();
    let [partition] = &graph.partitions(Policy::Fusion).unwrap()[..] else { panic!("one partition") };
    let compiled = partition.compile(&engine).unwrap();
    let kept: Vec<(PhaseKind, bool)> =
        compiled.plan().nests.iter().map(|nest| (nest.kind, nest.is_kept)).collect();
    // Scales and zero points are kept in f32, the weights are not.
    let [of_scales @ .., product] = &kept[..] else { panic!("there are phases") };
    assert_eq!(*product, (PhaseKind::Gemm, false));
    assert!(of_scales.iter().all(|&phase| phase == (PhaseKind::Map, true)), "{kept:?}");
    let given = |id: usize| compiled.port(id).unwrap();
    let mut right = TensorBuf::zeroed(given(1).clone(), &engine).unwrap();
    right.as_mut_bytes().fill(5);
    for seed in 0..3 {
        let left = tensor(given(0), &engine, seed);
        let mut result = TensorBuf::zeroed(given(3).clone(), &engine).unwrap();
        let inputs = [left.as_tensor(), right.as_tensor()];
        compiled.execute(&Stream::new(&engine), &inputs, &mut [result.as_tensor_mut()]).unwrap();
        let left = numbers(ROWS * DEPTH, seed);
        let rows = left.chunks(DEPTH).flat_map(|row| [row.iter().sum::<f32>() * 2.0; COLUMNS]);
        assert!(result.as_slice::<f32>().unwrap().iter().copied().eq(rows));
        // The packed copy is smaller than the weights themselves.
        assert!(constant_cache_bytes() < DEPTH * COLUMNS);
    }
}

#[test]
fn variable_weights_are_read_in_each_execution() {
    let _alone = alone();
    let engine = Engine::new();
    for property in [Property::Variable, Property::Undef] {
        let compiled = compiled(&engine, property);
        assert!(compiled.plan().nests.iter().all(|nest| !nest.is_kept));
        let left = tensor(&compiled.inputs()[0], &engine, 1);
        let mut right = tensor(&compiled.inputs()[1], &engine, 3);
        assert_eq!(execute(&compiled, &left, &right), expected(1, 3));
        fill(&mut right, 4);
        assert_eq!(execute(&compiled, &left, &right), expected(1, 4));
        assert_eq!(constant_cache_bytes(), 0);
    }
}

#[test]
fn partitions_of_one_plan_have_weights_of_their_own() {
    let _alone = alone();
    let engine = Engine::new();
    let layers: Vec<(CompiledPartition, TensorBuf)> = (10..14)
        .map(|seed| {
            let compiled = compiled(&engine, Property::Constant);
            let weights = tensor(&compiled.inputs()[1], &engine, seed);
            (compiled, weights)
        })
        .collect();
    let left = tensor(&layers[0].0.inputs()[0], &engine, 1);
    for _ in 0..3 {
        for ((compiled, weights), seed) in layers.iter().zip(10..) {
            assert_eq!(execute(compiled, &left, weights), expected(1, seed));
        }
    }
}

#[test]
fn threads_share_what_the_first_one_packs() {
    let _alone = alone();
    let engine = Engine::new();
    for round in 0..20 {
        let compiled = compiled(&engine, Property::Constant);
        let weights = [round, round + 1].map(|seed| tensor(&compiled.inputs()[1], &engine, seed));
        let barrier = Barrier::new(8);
        thread::scope(|scope| {
            for thread in 0..8 {
                let (compiled, weights, barrier) = (&compiled, &weights, &barrier);
                scope.spawn(move || {
                    let left = tensor(&compiled.inputs()[0], compiled.engine(), thread);
                    barrier.wait();
                    for turn in 0..4 {
                        // In odd rounds, threads change the address under each other.
                        let which = if round % 2 == 0 { 0 } else { (thread + turn) % 2 };
                        let found = execute(compiled, &left, &weights[which]);
                        assert!(found == expected(thread, round + which), "thread {thread}, round {round}");
                    }
                });
            }
        });
    }
}

#[test]
fn the_capacity_limits_what_is_kept() {
    let _alone = alone();
    assert_eq!(constant_cache_capacity(), 64 << 20);
    set_constant_cache_capacity(usize::MAX);
    assert!(constant_cache_capacity() > usize::MAX / 2);
    set_constant_cache_capacity(64 << 20);
    let engine = Engine::new();
    let first = compiled(&engine, Property::Constant);
    let second = compiled(&engine, Property::Constant);
    let left = tensor(&first.inputs()[0], &engine, 1);
    let weights = [3, 4].map(|seed| tensor(&first.inputs()[1], &engine, seed));
    let run_both = || {
        assert_eq!(execute(&first, &left, &weights[0]), expected(1, 3));
        assert_eq!(execute(&second, &left, &weights[1]), expected(1, 4));
        constant_cache_bytes()
    };
    set_constant_cache_capacity(0);
    assert_eq!(run_both(), 0, "nothing fits");
    set_constant_cache_capacity(64 << 20);
    let both = run_both();
    assert!(both > 0 && both.is_multiple_of(2), "{both} bytes");
    set_constant_cache_capacity(both / 2);
    assert_eq!(run_both(), both / 2, "one of them fits");
    assert_eq!(run_both(), both / 2);
    set_constant_cache_capacity(0);
    assert_eq!(run_both(), 0, "what is kept is given back");
}

#[test]
fn an_engine_may_have_a_capacity_of_its_own() {
    let _alone = alone();
    for (capacity, is_kept) in [(0, false), (64 << 20, true)] {
        let engine = Engine::builder().constant_cache_capacity(capacity).build();
        let compiled = compiled(&engine, Property::Constant);
        let left = tensor(&compiled.inputs()[0], &engine, 1);
        let mut weights = tensor(&compiled.inputs()[1], &engine, 3);
        assert_eq!(execute(&compiled, &left, &weights), expected(1, 3));
        // Contents that change against the promise show what is read: the copy or the weights.
        fill(&mut weights, 4);
        assert_eq!(execute(&compiled, &left, &weights), expected(1, if is_kept { 3 } else { 4 }));
    }
    assert_eq!(constant_cache_bytes(), 0, "the process keeps nothing for them");
}

/// Memory up to a size of blocks.
struct Refusing(AtomicUsize);

// SAFETY: the blocks are those of the system's allocator.
unsafe impl Allocator for Refusing {
    fn allocate(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        left.ok().and_then(|_| SystemAllocator.allocate(size, align))
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, size: usize, align: usize) {
        // SAFETY: as the caller promises; the block came from there.
        unsafe { SystemAllocator.deallocate(block, size, align) };
    }
}

#[test]
fn without_memory_to_keep_it_each_execution_packs_for_itself() {
    let _alone = alone();
    let allocator = Arc::new(Refusing(AtomicUsize::new(100)));
    let engine = Engine::builder().allocator(allocator.clone()).build();
    let compiled = compiled(&engine, Property::Constant);
    let left = tensor(&compiled.inputs()[0], &engine, 1);
    let mut right = tensor(&compiled.inputs()[1], &engine, 3);
    let mut scratch = vec![std::mem::MaybeUninit::uninit(); compiled.scratchpad_size()];
    let mut result = TensorBuf::zeroed(compiled.outputs()[0].clone(), &engine).unwrap();
    let mut run = |right: &TensorBuf| {
        let inputs = [left.as_tensor(), right.as_tensor()];
        let stream = Stream::new(&engine);
        let outputs = &mut [result.as_tensor_mut()];
        compiled.execute_with_scratchpad(&stream, &inputs, outputs, &mut scratch).unwrap();
        result.as_bytes().to_vec()
    };
    allocator.0.store(0, Ordering::Relaxed);
    assert_eq!(run(&right), expected(1, 3));
    assert_eq!(constant_cache_bytes(), 0);
    fill(&mut right, 4);
    assert_eq!(run(&right), expected(1, 4));
    allocator.0.store(1, Ordering::Relaxed);
    assert_eq!(run(&right), expected(1, 4), "now there is memory");
    assert!(constant_cache_bytes() > 0);
    assert_eq!(run(&right), expected(1, 4));
}
