//! Promise: memory or threads that are not to be had make one call fail, leave nothing behind, and the next
//! call works.

mod common;

use std::collections::{BTreeMap, HashMap};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use common::graphs::{self, RandomGraph};
use common::{Case, Random, report};
use sterna::{
    Allocator, Attr, AutoBroadcast, CompiledPartition, DataType, Engine, Error, Graph, LogicalTensor, Op,
    OpKind, Partition, Policy, Result, Stream, SystemAllocator, Tensor, TensorBuf, TensorMut,
    set_constant_cache_capacity,
};

/// An allocator that fails when it is told to, and knows what it has given.
#[derive(Default)]
struct Failing {
    calls: AtomicUsize,
    /// The calls that fail, by their number from 0 on.
    fails: Range<usize>,
    /// A call that fails panics instead of saying so.
    panics: AtomicBool,
    /// The blocks that are out, with their size and alignment.
    blocks: Mutex<HashMap<usize, (usize, usize)>>,
}

// SAFETY: the blocks are those of the system's allocator.
unsafe impl Allocator for Failing {
    fn allocate(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        if self.fails.contains(&self.calls.fetch_add(1, Ordering::Relaxed)) {
            assert!(!self.panics.load(Ordering::Relaxed), "this call of the allocator panics");
            return None;
        }
        let block = SystemAllocator.allocate(size, align)?;
        assert_eq!(self.blocks.lock().unwrap().insert(block.addr().get(), (size, align)), None);
        Some(block)
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, size: usize, align: usize) {
        let given = self.blocks.lock().unwrap().remove(&block.addr().get());
        assert_eq!(given, Some((size, align)), "what is handed back is what was given");
        // SAFETY: as the caller promises; the block came from there.
        unsafe { SystemAllocator.deallocate(block, size, align) };
    }
}

impl Failing {
    fn at(fails: Range<usize>) -> Arc<Self> {
        Arc::new(Self { fails, ..Self::default() })
    }

    fn engine(self: &Arc<Self>, threads: usize) -> Engine {
        Engine::builder().allocator(self.clone()).threads(threads).build()
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    fn blocks_out(&self) -> usize {
        self.blocks.lock().unwrap().len()
    }
}

/// Where the scratch memory of an execution comes from.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Scratch {
    Engine,
    Caller,
}

/// A way from a graph to its results.
struct Workflow {
    name: String,
    graph: RandomGraph,
    /// The bytes of the inputs.
    values: BTreeMap<usize, Vec<u8>>,
    policy: Policy,
    scratch: Scratch,
    threads: usize,
}

/// Calls until memory is there; counts how often it was not.
fn until_it_works<T>(failures: &mut usize, mut call: impl FnMut() -> Result<T>) -> T {
    loop {
        match call() {
            Ok(value) => return value,
            Err(Error::OutOfMemory { .. }) => *failures += 1,
            Err(other) => panic!("{other}"),
        }
    }
}

impl Workflow {
    /// Runs all partitions, twice; gives the results, and how many calls ran out of memory.
    fn run(&self, engine: &Engine) -> (BTreeMap<usize, Vec<u8>>, usize) {
        let mut failures = 0;
        let mut tensors: BTreeMap<usize, TensorBuf> = BTreeMap::new();
        for desc in &self.graph.inputs {
            let mut tensor = until_it_works(&mut failures, || TensorBuf::zeroed(desc.clone(), engine));
            tensor.as_mut_bytes().copy_from_slice(&self.values[&desc.id().get()]);
            tensors.insert(desc.id().get(), tensor);
        }
        for partition in self.graph.graph.partitions(self.policy).unwrap() {
            let compiled = self.compile(&partition, &tensors, engine);
            let mut results: Vec<TensorBuf> = (compiled.outputs().iter())
                .map(|desc| until_it_works(&mut failures, || TensorBuf::zeroed(desc.clone(), engine)))
                .collect();
            for _ in 0..2 {
                until_it_works(&mut failures, || self.execute(&compiled, &tensors, &mut results));
            }
            tensors.extend(results.into_iter().map(|result| (result.desc().id().get(), result)));
        }
        (tensors.into_iter().map(|(id, tensor)| (id, tensor.as_bytes().to_vec())).collect(), failures)
    }

    fn compile(
        &self,
        partition: &Partition,
        tensors: &BTreeMap<usize, TensorBuf>,
        engine: &Engine,
    ) -> CompiledPartition {
        let inputs: Vec<_> =
            partition.inputs().iter().map(|port| tensors[&port.id().get()].desc().clone()).collect();
        let outputs: Vec<_> =
            partition.outputs().iter().map(|port| self.graph.outputs[&port.id().get()].clone()).collect();
        partition.compile_for(engine, &inputs, &outputs).unwrap()
    }

    fn execute(
        &self,
        compiled: &CompiledPartition,
        tensors: &BTreeMap<usize, TensorBuf>,
        results: &mut [TensorBuf],
    ) -> Result<()> {
        let inputs: Vec<Tensor<'_>> =
            compiled.inputs().iter().map(|desc| tensors[&desc.id().get()].as_tensor()).collect();
        let mut outputs: Vec<TensorMut<'_>> = results.iter_mut().map(TensorBuf::as_tensor_mut).collect();
        let stream = Stream::new(compiled.engine());
        match self.scratch {
            Scratch::Engine => compiled.execute(&stream, &inputs, &mut outputs),
            Scratch::Caller => {
                let mut memory = vec![MaybeUninit::uninit(); compiled.scratchpad_size()];
                compiled.execute_with_scratchpad(&stream, &inputs, &mut outputs, &mut memory)
            }
        }
    }
}

/// A graph of these ops, on inputs that are given.
fn graph(ops: Vec<Op>, inputs: Vec<LogicalTensor>) -> RandomGraph {
    let mut graph = Graph::new();
    ops.iter().for_each(|op| graph.add_op(op.clone()).unwrap());
    graph.finalize().unwrap();
    let outputs =
        ops.iter().flat_map(Op::outputs).map(|output| (output.id().get(), output.clone())).collect();
    RandomGraph { graph, ops, inputs, outputs }
}

/// A select of which one branch has gaps, which goes through scratch.
fn strided_select(rows: i64, columns: i64) -> RandomGraph {
    let dims = [rows, columns];
    let of = |id, data_type| LogicalTensor::strided(id, data_type, &dims).unwrap();
    let then = LogicalTensor::with_strides(1, DataType::F32, &dims, &[1, rows]).unwrap();
    let inputs = vec![of(0, DataType::Boolean), then.clone(), of(2, DataType::F32)];
    let output = LogicalTensor::unknown(3, DataType::F32);
    graph(vec![Op::select(0, inputs[0].clone(), then, inputs[2].clone(), output)], inputs)
}

/// A group of which the values that are computed go through scratch, and a select of its own beside it.
fn group(rows: i64, columns: i64) -> RandomGraph {
    let of = |id, data_type| LogicalTensor::strided(id, data_type, &[rows, columns]).unwrap();
    let unknown = LogicalTensor::unknown;
    let (f32s, bf16s, mask) = (DataType::F32, DataType::Bf16, DataType::Boolean);
    let inputs = vec![of(0, f32s), of(1, bf16s), of(2, f32s), of(3, mask), of(4, f32s), of(5, f32s)];
    let ops = vec![
        Op::new(0, OpKind::Add).input(of(0, f32s)).input(of(1, bf16s)).output(unknown(10, bf16s)),
        Op::new(1, OpKind::GreaterEqual).input(of(0, f32s)).input(of(2, f32s)).output(unknown(11, mask)),
        Op::select(2, unknown(11, mask), unknown(10, bf16s), of(1, bf16s), unknown(12, bf16s)),
        Op::new(3, OpKind::Tanh).input(unknown(12, bf16s)).output(unknown(13, bf16s)),
        Op::select(4, of(3, mask), of(4, f32s), of(5, f32s), unknown(14, f32s)),
    ];
    let graph = graph(ops, inputs);
    assert_eq!(graph.graph.partitions(Policy::Fusion).unwrap().len(), 2);
    graph
}

/// A product of dequantised weights that are packed, and an epilogue with a residual.
fn quantised_product([m, k, n]: [i64; 3]) -> RandomGraph {
    let of = |id, data_type, dims: &[i64]| LogicalTensor::strided(id, data_type, dims).unwrap();
    let unknown = |id| LogicalTensor::unknown(id, DataType::F32);
    let inputs =
        vec![of(0, DataType::F32, &[m, k]), of(1, DataType::S8, &[k, n]), of(2, DataType::F32, &[m, n])];
    let ops = vec![
        Op::new(0, OpKind::Dequantize)
            .attr(Attr::Scales, vec![0.01f32])
            .attr(Attr::Zps, vec![3i64])
            .input(inputs[1].clone())
            .output(unknown(10)),
        Op::new(1, OpKind::MatMul).input(inputs[0].clone()).input(unknown(10)).output(unknown(11)),
        Op::new(2, OpKind::GELU).input(unknown(11)).output(unknown(12)),
        Op::new(3, OpKind::Add).input(unknown(12)).input(inputs[2].clone()).output(unknown(13)),
    ];
    graph(ops, inputs)
}

/// SoftMax of few long rows, which is worked out in parts, between pointwise ops.
fn split_softmax(rows: i64, columns: i64) -> RandomGraph {
    let of = |id| LogicalTensor::strided(id, DataType::F32, &[rows, columns]).unwrap();
    let unknown = |id| LogicalTensor::unknown(id, DataType::F32);
    let inputs = vec![of(0), of(1)];
    let ops = vec![
        Op::new(0, OpKind::Add).input(of(0)).input(of(1)).output(unknown(10)),
        Op::new(1, OpKind::SoftMax).attr(Attr::Axis, 1i64).input(unknown(10)).output(unknown(11)),
        Op::new(2, OpKind::Sqrt).input(unknown(11)).output(unknown(12)),
    ];
    graph(ops, inputs)
}

/// GroupNorm behind a pointwise op and before another.
fn group_norm(dims: [i64; 3]) -> RandomGraph {
    let of = |id, dims: &[i64]| LogicalTensor::strided(id, DataType::F32, dims).unwrap();
    let unknown = |id| LogicalTensor::unknown(id, DataType::F32);
    let inputs = vec![of(0, &dims), of(1, &dims[1..2]), of(2, &dims[1..2])];
    let norm = Op::new(1, OpKind::GroupNorm)
        .attr(Attr::Groups, 2i64)
        .attr(Attr::DataFormat, "NCX")
        .attr(Attr::KeepStats, false);
    let ops = vec![
        Op::new(0, OpKind::Square).input(of(0, &dims)).output(unknown(10)),
        norm.inputs_from([unknown(10), inputs[1].clone(), inputs[2].clone()]).output(unknown(11)),
        Op::new(2, OpKind::HardSwish).input(unknown(11)).output(unknown(12)),
    ];
    graph(ops, inputs)
}

/// The gradients of LayerNorm: of its source by rows, of gamma and beta by columns, in parts.
fn norm_backward(rows: i64, columns: i64) -> RandomGraph {
    let of = |id, dims: &[i64]| LogicalTensor::strided(id, DataType::F32, dims).unwrap();
    let (whole, places, last) = ([rows, columns], [rows], [columns]);
    let inputs: Vec<LogicalTensor> = (0..)
        .zip([&whole[..], &whole, &places, &places, &last, &last])
        .map(|(id, dims)| of(id, dims))
        .collect();
    let op = Op::new(0, OpKind::LayerNormBackward).inputs_from(inputs.iter().cloned());
    let op = (10..13).fold(op, |op, id| op.output(LogicalTensor::unknown(id, DataType::F32)));
    graph(vec![op], inputs)
}

fn workflows() -> Vec<Workflow> {
    let mut all = Vec::new();
    let mut add = |name: &str, make: &dyn Fn() -> RandomGraph, threads: usize| {
        let filled = graphs::filled(&make(), &Engine::new(), 1);
        for policy in [Policy::Fusion, Policy::Debug] {
            for scratch in [Scratch::Engine, Scratch::Caller] {
                let name = format!("{name}, {policy:?}, scratch of {scratch:?}, {threads} threads");
                let values = filled.iter().map(|(&id, tensor)| (id, tensor.as_bytes().to_vec())).collect();
                all.push(Workflow { name, graph: make(), values, policy, scratch, threads });
            }
        }
    };
    add("a strided select", &|| strided_select(40, 30), 1);
    add("a large strided select", &|| strided_select(1000, 700), 3);
    add("a group and a select", &|| group(40, 30), 1);
    add("a large group and a select", &|| group(1000, 700), 3);
    add("a quantised product", &|| quantised_product([3, 80, 40]), 1);
    add("a large quantised product", &|| quantised_product([130, 300, 200]), 3);
    add("a SoftMax in parts", &|| split_softmax(2, 40_000), 3);
    add("a group norm", &|| group_norm([3, 6, 50]), 1);
    add("a large group norm", &|| group_norm([2, 4, 40_000]), 3);
    add("gradients of a norm", &|| norm_backward(20, 30), 1);
    add("large gradients of a norm", &|| norm_backward(3, 40_000), 3);
    add("gradients of a norm of many rows", &|| norm_backward(9000, 20), 3);
    for seed in 0..20 {
        let make = || RandomGraph::on(&mut Random::new(seed), 12, vec![3, 70]);
        add(&format!("random graph {seed}"), &make, 2);
    }
    all
}

#[test]
fn an_allocator_that_fails_once_makes_one_call_fail() {
    // Without memory to keep constants, executions go on without.
    set_constant_cache_capacity(0);
    let mut wrong = Vec::new();
    let (mut failed, mut with_scratch) = (0, 0);
    for workflow in workflows() {
        let never = Failing::at(0..0);
        let (expected, failures) = workflow.run(&never.engine(workflow.threads));
        let needed = never.calls();
        if (failures, never.blocks_out()) != (0, 0) {
            wrong.push((workflow.name.clone(), 0..0, format!("{failures} failures, {never:?}")));
        }
        let tensors = expected.len();
        with_scratch += usize::from(needed > tensors);
        let own_scratch = workflow.scratch == Scratch::Caller && needed > tensors;
        if own_scratch {
            wrong.push((workflow.name.clone(), 0..0, format!("{needed} calls for {tensors} tensors")));
        }
        // Once, for every call up to the last; several times in a row for some; and behind the last.
        for (first, times) in (0..needed).map(|n| (n, 1)).chain([(0, 3), (needed - 1, 3), (needed, 1)]) {
            let failing = Failing::at(first..first + times);
            let (given, failures) = workflow.run(&failing.engine(workflow.threads));
            let expected_failures = if first < needed { times } else { 0 };
            if failures != expected_failures || failing.blocks_out() != 0 || given != expected {
                let same = given == expected;
                let out = failing.blocks_out();
                let what = format!("{failures} failures, {out} blocks left, right results: {same}");
                wrong.push((workflow.name.clone(), first..first + times, what));
            }
            failed += failures;
        }
    }
    report(&wrong);
    println!("{failed} failures, {with_scratch} workflows with scratch");
    assert!(failed > 1000 && with_scratch > 20, "{failed} failures, {with_scratch} workflows with scratch");
}

impl std::fmt::Debug for Failing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} calls, {} blocks out", self.calls(), self.blocks_out())
    }
}

#[test]
fn an_allocator_that_panics_leaves_a_compiled_partition_that_works() {
    let case = Case {
        strides: [None, Some(vec![2]), None],
        ..Case::new(AutoBroadcast::None, DataType::F32, [&[3000]; 3])
    };
    // Three inputs, the output, then scratch.
    let failing = Arc::new(Failing { fails: 4..5, panics: true.into(), ..Failing::default() });
    let engine = failing.engine(2);
    let compiled = case.compile(&engine).unwrap();
    let inputs = case.filled(&compiled, &engine, &mut Random::new(1));
    let mut output = TensorBuf::zeroed(compiled.outputs()[0].clone(), &engine).unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| common::run(&compiled, &engine, &inputs, &mut output)));
    let message = panic.unwrap_err();
    assert_eq!(message.downcast_ref::<&str>(), Some(&"this call of the allocator panics"));
    assert!(output.as_bytes().iter().all(|&byte| byte == 0), "nothing is written");
    output.as_mut_bytes().fill(common::GAP);
    common::run(&compiled, &engine, &inputs, &mut output).unwrap();
    case.compare(&inputs, &output).unwrap();
    drop((compiled, inputs, output, engine));
    assert_eq!(failing.blocks_out(), 0);
}

#[test]
fn executions_that_fail_beside_others_harm_none() {
    let case = Case {
        strides: [None, Some(vec![2]), None],
        ..Case::new(AutoBroadcast::None, DataType::F32, [&[3000]; 3])
    };
    // Behind the calls for tensors, the first five for scratch fail, whichever threads make them.
    let failing = Failing::at(6 * 4..6 * 4 + 5);
    let engine = failing.engine(1);
    let compiled = case.compile(&engine).unwrap();
    let failures = AtomicUsize::new(0);
    let made: Vec<_> = (0..6).map(|seed| case.filled(&compiled, &engine, &mut Random::new(seed))).collect();
    let outputs: Vec<_> =
        (0..6).map(|_| TensorBuf::zeroed(compiled.outputs()[0].clone(), &engine).unwrap()).collect();
    std::thread::scope(|scope| {
        for (inputs, mut output) in made.into_iter().zip(outputs) {
            let (case, compiled, engine, failures) = (&case, &compiled, &engine, &failures);
            scope.spawn(move || {
                for _ in 0..200 {
                    output.as_mut_bytes().fill(common::GAP);
                    match common::run(compiled, engine, &inputs, &mut output) {
                        Ok(()) => case.compare(&inputs, &output).unwrap(),
                        Err(Error::OutOfMemory { .. }) => {
                            failures.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    });
    drop((compiled, engine));
    assert_eq!(failing.blocks_out(), 0);
    assert_eq!(failures.into_inner(), 5);
}

/// Tells a process of this very test that it is to run out of threads.
#[cfg(target_os = "linux")]
const CHILD: &str = "STERNA_TEST_NO_THREADS";

/// Address space for the stacks of workers is not to be had in a process of its own; then it is.
#[cfg(target_os = "linux")]
#[test]
fn workers_that_cannot_start_make_one_call_fail() {
    if std::env::var_os(CHILD).is_none() {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "workers_that_cannot_start_make_one_call_fail", "--nocapture"]);
        for name in ["STERNA_NUM_THREADS", "OMP_NUM_THREADS"] {
            command.env_remove(name);
        }
        let output = command.env(CHILD, "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).contains("ran out of threads"));
        return;
    }
    let engine = Engine::builder().threads(4).build();
    let case = Case::new(AutoBroadcast::None, DataType::F32, [&[1_000_003]; 3]);
    let compiled = case.compile(&engine).unwrap();
    let inputs = case.filled(&compiled, &engine, &mut Random::new(1));
    let mut output = TensorBuf::zeroed(compiled.outputs()[0].clone(), &engine).unwrap();
    output.as_mut_bytes().fill(common::GAP);

    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split_whitespace().next().unwrap().parse().unwrap();
    let limit = |bytes: u64| {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the limit is read during the call alone.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
    };
    // SAFETY: a query without side effects.
    let page_size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    limit(pages * page_size + (1 << 20));
    let refused = [(); 3].map(|()| common::run(&compiled, &engine, &inputs, &mut output));
    limit(libc::RLIM_INFINITY);
    for refused in refused {
        assert_eq!(refused, Err(Error::ThreadPool { threads: 3 }));
    }
    assert!(output.as_bytes().iter().all(|&byte| byte == common::GAP), "nothing is written");
    common::run(&compiled, &engine, &inputs, &mut output).unwrap();
    case.compare(&inputs, &output).unwrap();
    println!("ran out of threads");
}
