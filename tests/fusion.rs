//! Promise: fusing changes the speed, never a bit.

mod common;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use common::graphs::{self, RandomGraph};
use common::{Random, report};
use sterna::{Engine, Level, TensorBuf};

/// Random graphs by seed. `STERNA_FUSION_SEEDS` sets how many, `STERNA_FUSION_FIRST` where to start.
fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
    };
    let first = number("STERNA_FUSION_FIRST", 0);
    first..first + number("STERNA_FUSION_SEEDS", 20_000)
}

/// Runs one graph every way and says what is wrong.
fn check(seed: u64, engines: &[Engine]) -> Result<(), String> {
    let mut random = Random::new(seed);
    let graph = RandomGraph::new(&mut random, 20);
    let [fused, alone] = graphs::both(&graph.graph);
    if let Some(partition) = fused.iter().chain(&alone).find(|partition| !partition.is_supported()) {
        return Err(format!("{:?}", partition.unsupported_reason()));
    }
    let fill = |desc: &sterna::LogicalTensor, engine: &Engine| {
        let mut tensor = TensorBuf::zeroed(desc.clone(), engine).unwrap();
        graphs::fill(&mut tensor, &mut Random::new(seed ^ desc.id() as u64 ^ 0x5eed));
        (desc.id(), tensor)
    };
    for engine in engines {
        let inputs: BTreeMap<usize, TensorBuf> = graph.inputs.iter().map(|desc| fill(desc, engine)).collect();
        let level = engine.level();
        let apart = graphs::run(&alone, &graph.outputs, engine, &inputs)
            .map_err(|e| format!("alone, {level}: {e}"))?;
        graphs::check_ops(&graph, &inputs, &apart).map_err(|e| format!("alone, {level}: {e}"))?;
        let together = graphs::run(&fused, &graph.outputs, engine, &inputs)
            .map_err(|e| format!("fused, {level}: {e}"))?;
        for (id, tensor) in &together {
            if let Some(difference) =
                graphs::difference(&graphs::value(tensor), &graphs::value(&apart[id]), 0)
            {
                return Err(format!(
                    "fused, {level}: tensor {id}: {difference}\n{}",
                    graphs::describe(&graph)
                ));
            }
        }
    }
    Ok(())
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
            let engines =
                if seed.is_multiple_of(16) { &engines[..] } else { &engines[seed as usize % engines.len()..][..1] };
            if let Err(why) = check(seed, engines) {
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
