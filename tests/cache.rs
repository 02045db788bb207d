//! Promise: what was compiled once is not compiled again, whatever its ids; and the cache keeps to its
//! capacity.

mod common;

use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};

use common::{Case, Random, report};
use sterna::{
    AutoBroadcast, CacheStats, DataType, Engine, FpMath, FpMathMode, Graph, Level, LogicalTensor, Op, OpKind,
    Partition, Policy, Stream, TensorBuf, compiled_partition_cache_capacity, compiled_partition_cache_stats,
    select, set_compiled_partition_cache_capacity,
};

/// The cache is one for the whole process, so the tests of it take turns. Each starts with an empty one.
fn alone(capacity: usize) -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    set_compiled_partition_cache_capacity(0);
    set_compiled_partition_cache_capacity(capacity);
    turn
}

/// Hits and misses since another moment.
fn since(before: CacheStats) -> (u64, u64) {
    let now = compiled_partition_cache_stats();
    (now.hits - before.hits, now.misses - before.misses)
}

fn case(n: i64) -> Case {
    Case::new(AutoBroadcast::Numpy, DataType::F32, [&[n], &[n], &[]])
}

#[test]
fn the_capacity_is_1024_unless_set() {
    // The first thing that this process asks of the cache may be another test; only that test's capacity
    // counts then.
    let _turn = alone(1024);
    assert_eq!(compiled_partition_cache_capacity(), 1024);
    set_compiled_partition_cache_capacity(3);
    assert_eq!(compiled_partition_cache_capacity(), 3);
    set_compiled_partition_cache_capacity(0);
    assert_eq!(compiled_partition_cache_capacity(), 0);
}

#[test]
fn the_second_compilation_hits() {
    let _turn = alone(1024);
    let engine = Engine::builder().threads(1).build();
    let before = compiled_partition_cache_stats();
    case(5).compile(&engine).unwrap();
    assert_eq!(since(before), (0, 1));
    case(5).compile(&engine).unwrap();
    assert_eq!(since(before), (1, 1));
    assert_eq!(compiled_partition_cache_stats().len, 1);
}

#[test]
fn ids_are_no_part_of_the_key_and_everything_else_is() {
    let _turn = alone(1024);
    let engine = Engine::builder().threads(1).build();
    let desc = |id, data_type, dims: &[i64]| LogicalTensor::strided(id, data_type, dims).unwrap();
    let select = |ids: [usize; 4], op: usize, data_type: DataType, n: i64, mode: AutoBroadcast| {
        let op = Op::select(
            op,
            desc(ids[0], DataType::Boolean, &[n]),
            desc(ids[1], data_type, &[n]),
            desc(ids[2], data_type, &[n]),
            desc(ids[3], data_type, &[n]),
        );
        Partition::from_op(op.auto_broadcast(mode)).unwrap()
    };
    let compile = |partition: &Partition, engine: &Engine| {
        partition.compile(engine).unwrap();
    };
    use AutoBroadcast::{None as NoBroadcast, Numpy};
    compile(&select([0, 1, 2, 3], 0, DataType::F32, 4, Numpy), &engine);
    let portable = Engine::builder().threads(1).max_level(Level::Portable).build();
    let same_level = portable.level() == engine.level();
    let [another, threads] = [1, 2].map(|threads| Engine::builder().threads(threads).build());
    let rows = [
        ("the same again", select([0, 1, 2, 3], 0, DataType::F32, 4, Numpy), &engine, true),
        ("other ids", select([9, 8, 7, 6], 5, DataType::F32, 4, Numpy), &engine, true),
        ("another engine", select([0, 1, 2, 3], 0, DataType::F32, 4, Numpy), &another, true),
        ("more threads", select([0, 1, 2, 3], 0, DataType::F32, 4, Numpy), &threads, threads.threads() == 1),
        ("one tensor on both sides", select([0, 1, 1, 3], 0, DataType::F32, 4, Numpy), &engine, false),
        ("another type of the same width", select([0, 1, 2, 3], 0, DataType::S32, 4, Numpy), &engine, false),
        ("another shape", select([0, 1, 2, 3], 0, DataType::F32, 5, Numpy), &engine, false),
        ("another mode", select([0, 1, 2, 3], 0, DataType::F32, 4, NoBroadcast), &engine, false),
        ("another level", select([0, 1, 2, 3], 0, DataType::F32, 4, Numpy), &portable, same_level),
    ];
    let mut wrong = Vec::new();
    for (name, partition, engine, hit) in rows {
        let before = compiled_partition_cache_stats();
        compile(&partition, engine);
        if since(before) != (u64::from(hit), u64::from(!hit)) {
            wrong.push((name, since(before)));
        }
    }
    report(&wrong);
}

/// No kernel computes otherwise, but a compiled partition belongs to one mode.
#[test]
fn the_floating_point_mode_is_part_of_the_key() {
    let _turn = alone(1024);
    let engine = Engine::builder().threads(1).build();
    let desc = |id| LogicalTensor::strided(id, DataType::F32, &[4, 4]).unwrap();
    let results = |mode, apply_to_int| {
        let mut graph = Graph::new();
        graph.set_fpmath(FpMath::new(mode).apply_to_int(apply_to_int)).unwrap();
        let op = Op::new(0, OpKind::MatMul).input(desc(0)).input(desc(1)).output(desc(2));
        graph.add_op(op).unwrap();
        graph.finalize().unwrap();
        let partition = graph.partitions(Policy::Fusion).unwrap().remove(0);
        let compiled = partition.compile(&engine).unwrap();
        // One step above 1, which bf16 and tf32 do not have.
        let mut inputs = [0, 1].map(|id| TensorBuf::zeroed(desc(id), &engine).unwrap());
        inputs.iter_mut().for_each(|input| {
            input.as_mut_bytes().chunks_mut(4).for_each(|x| x.copy_from_slice(&1.000_000_1f32.to_ne_bytes()))
        });
        let mut output = TensorBuf::zeroed(desc(2), &engine).unwrap();
        let inputs: Vec<_> = inputs.iter().map(TensorBuf::as_tensor).collect();
        compiled.execute(&Stream::new(&engine), &inputs, &mut [output.as_tensor_mut()]).unwrap();
        output.as_bytes().to_vec()
    };
    let before = compiled_partition_cache_stats();
    let strict = results(FpMathMode::Strict, false);
    for (misses, &mode) in (1..).zip(FpMathMode::ALL) {
        // The second time each is there.
        for _ in 0..2 {
            assert_eq!(results(mode, false), strict, "{mode}");
        }
        assert_eq!(since(before).1, misses, "{mode}");
    }
    let modes = FpMathMode::ALL.len() as u64;
    results(FpMathMode::Strict, true);
    assert_eq!(since(before), (modes + 1, modes + 1));
}

#[test]
fn strides_are_part_of_the_key() {
    let _turn = alone(1024);
    let engine = Engine::builder().threads(1).build();
    let mut case = Case::new(AutoBroadcast::None, DataType::F32, [&[4, 3], &[4, 3], &[4, 3]]);
    let before = compiled_partition_cache_stats();
    for strides in [vec![3, 1], vec![1, 4], vec![4, 1]] {
        case.strides[common::THEN] = Some(strides);
        case.check(&engine, &mut Random::new(1)).unwrap();
    }
    assert_eq!(since(before), (0, 3));
}

#[test]
fn the_least_recently_used_plan_goes_first() {
    let _turn = alone(2);
    let engine = Engine::builder().threads(1).build();
    let hits = |n: i64| {
        let before = compiled_partition_cache_stats();
        case(n).compile(&engine).unwrap();
        since(before).0 == 1
    };
    assert_eq!([1, 2, 1, 3].map(hits), [false, false, true, false]);
    // 2 was used least recently when 3 came.
    assert_eq!([1, 3, 2].map(hits), [true, true, false]);
    assert_eq!(compiled_partition_cache_stats().len, 2);
    set_compiled_partition_cache_capacity(1);
    assert_eq!(compiled_partition_cache_stats().len, 1);
    assert_eq!([2, 3].map(hits), [true, false]);
}

#[test]
fn capacity_0_keeps_nothing() {
    let _turn = alone(0);
    let engine = Engine::builder().threads(1).build();
    let before = compiled_partition_cache_stats();
    for _ in 0..3 {
        case(7).check(&engine, &mut Random::new(1)).unwrap();
    }
    assert_eq!(since(before), (0, 3));
    assert_eq!(compiled_partition_cache_stats().len, 0);
}

#[test]
fn a_failure_is_not_kept() {
    let _turn = alone(1024);
    let engine = Engine::builder().threads(1).build();
    let unfit = Case::new(AutoBroadcast::None, DataType::F32, [&[4], &[5], &[4]]);
    for _ in 0..2 {
        unfit.compile(&engine).unwrap_err();
        assert_eq!(compiled_partition_cache_stats().len, 0);
    }
}

#[test]
fn sixteen_threads_that_miss_one_key_compile_it_once() {
    let _turn = alone(1024);
    let engine = Engine::builder().threads(1).build();
    for round in 0..200 {
        let before = compiled_partition_cache_stats();
        let barrier = Barrier::new(16);
        std::thread::scope(|scope| {
            let miss = || {
                barrier.wait();
                case(round + 100).compile(&engine).unwrap();
            };
            // Joined one by one, since ThreadSanitizer does not see how a scope waits for its threads.
            let threads: Vec<_> = (0..16).map(|_| scope.spawn(miss)).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        assert_eq!(since(before), (15, 1));
    }
}

#[test]
fn equal_selects_in_one_call_compile_once_and_a_failure_is_not_kept() {
    let _turn = alone(1024);
    let call =
        |length: usize| select(&vec![true; length], &vec![1u16; length], &0).map(|result| result.len());
    let counts = || {
        let stats = compiled_partition_cache_stats();
        (stats.hits, stats.misses)
    };
    let (hits, misses) = counts();
    assert_eq!(call(4099), Ok(4099));
    assert_eq!(counts(), (hits, misses + 1));
    assert_eq!(call(4099), Ok(4099));
    assert_eq!(counts(), (hits + 1, misses + 1));
    assert_eq!(call(4111), Ok(4111));
    assert_eq!(counts(), (hits + 1, misses + 2));
    for _ in 0..2 {
        assert!(select(&[true; 3], &[1u16; 4], &0).is_err());
    }
    // Without a cache every call compiles.
    set_compiled_partition_cache_capacity(0);
    let (hits, misses) = counts();
    assert_eq!((call(4099), call(4099)), (Ok(4099), Ok(4099)));
    assert_eq!(counts(), (hits, misses + 2));
    set_compiled_partition_cache_capacity(1024);
}

#[test]
fn an_engine_may_have_a_cache_of_its_own() {
    let _turn = alone(1024);
    let before = compiled_partition_cache_stats();
    for capacity in [0, 1, 8] {
        let engine = Engine::builder().threads(1).cache_capacity(capacity).build();
        for n in [5, 6, 5] {
            case(n).check(&engine, &mut Random::new(1)).unwrap();
        }
    }
    assert_eq!(since(before), (0, 0));
    assert_eq!(compiled_partition_cache_stats().len, 0);
    // Without one it uses that of the process, whatever other engines have.
    case(5).compile(&Engine::builder().threads(1).build()).unwrap();
    assert_eq!(since(before), (0, 1));
}
