//! Promise: threads that build, partition, compile and execute for as long as one likes get no wrong bit, and
//! memory stays flat.
//!
//! One test alone in its binary: a second one would allocate while this one counts. It takes a fifth of a
//! minute, or as many minutes as `STERNA_LOAD_MINUTES` says.

mod common;
#[path = "common/counting.rs"]
mod counting;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::graphs::{self, RandomGraph};
use common::{Random, report};
use sterna::{
    Engine, Level, Partition, compiled_partition_cache_stats, set_compiled_partition_cache_capacity,
};

const THREADS: u64 = 8;

/// So few that plans are thrown out all the time, some while other threads still ask for them.
const CACHED: usize = 8;

/// Rounds into which the time is cut, at least and at most; the memory is looked at between them, when
/// nothing runs.
const ROUNDS: (u32, u32) = (8, 40);

/// For how long as many threads run as before, once none ends any more.
const AT_REST: Duration = Duration::from_millis(200);

/// By how much what is held may vary: threads leave garbage to each other that is freed some time later.
const SLACK_KIB: f64 = 256.0;

/// By how much what is in memory may vary.
const SLACK_MIB: f64 = 48.0;

/// The state that all threads share.
#[derive(Default)]
struct Load {
    /// The next graph, by its seed.
    next: AtomicU64,
    stop: AtomicBool,
    graphs: AtomicU64,
    executions: AtomicU64,
    wrong: Mutex<Vec<(u64, String)>>,
}

/// An engine of a random number of threads at a random level.
fn engine(random: &mut Random) -> Engine {
    let levels: Vec<Level> = Level::all_available().collect();
    Engine::builder().threads(1 + random.below(4)).max_level(random.pick(&levels)).build()
}

/// A graph by its seed; every now and then one that is worth more than one thread.
fn graph(seed: u64) -> RandomGraph {
    let mut random = Random::new(seed);
    match seed % 128 {
        0 => RandomGraph::on(&mut random, 5, vec![1100, 1000]),
        _ => RandomGraph::new(&mut random, 20),
    }
}

impl Load {
    /// Takes graphs until it is told to stop.
    fn work(&self, thread: u64, shared: &Engine) {
        let mut random = Random::new(thread);
        let mut own = engine(&mut random);
        while !self.stop.load(Ordering::Relaxed) {
            // One that another thread has just taken, half of the time: it may be compiling it now.
            let step = random.next() & 1;
            let seed = self.next.fetch_add(step, Ordering::Relaxed);
            // Engines, and with them workers, come and go.
            if random.below(50) == 0 {
                own = engine(&mut random);
            }
            let engine = if random.below(3) == 0 { shared } else { &own };
            if let Err(why) = self.check(seed, engine, &mut random) {
                self.wrong.lock().unwrap().push((seed, why));
                self.stop.store(true, Ordering::Relaxed);
            }
            self.graphs.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Runs a graph fused, in place and op by op, and compares the bits; some with the reference as well.
    fn check(&self, seed: u64, engine: &Engine, random: &mut Random) -> Result<(), String> {
        let graph = graph(seed);
        let [fused, alone] = graphs::both(&graph.graph);
        let inputs = graphs::filled(&graph, engine, seed);
        let run = |partitions: &[Partition], in_place: Option<Random>| {
            self.executions.fetch_add(partitions.len() as u64, Ordering::Relaxed);
            graphs::run(partitions, &graph.outputs, engine, &inputs, in_place)
        };
        let apart = run(&alone, None)?;
        let in_place = (random.below(2) == 0).then(|| Random::new(random.next()));
        let together = run(&fused, in_place)?;
        if let Some(why) = graphs::differs(&together, &apart) {
            return Err(format!("{why} at {}\n{}", engine.level(), graphs::describe(&graph)));
        }
        match seed % 8 {
            1 => graphs::check_ops(&graph, &inputs, &apart),
            _ => Ok(()),
        }
    }

    /// Runs all threads for a round, and lets everything come to rest.
    fn round(&self, time: Duration) -> Memory {
        self.stop.store(false, Ordering::Relaxed);
        set_compiled_partition_cache_capacity(CACHED);
        let shared = Engine::builder().threads(3).build();
        let start = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (seed, shared) = (self.next.load(Ordering::Relaxed) ^ thread, &shared);
                scope.spawn(move || self.work(seed, shared));
            }
            while start.elapsed() < time && !self.stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(20));
            }
            self.stop.store(true, Ordering::Relaxed);
        });
        drop(shared);
        set_compiled_partition_cache_capacity(0);
        // Workers end a moment after their engine, but for those that live as long as the process.
        let (start, mut changed, mut running) = (Instant::now(), Instant::now(), threads());
        while changed.elapsed() < AT_REST && start.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(5));
            if threads() != running {
                (changed, running) = (Instant::now(), threads());
            }
        }
        Memory { resident: resident(), held: counting::held() as f64 / 1024.0 }
    }
}

/// The memory of the process while nothing runs.
struct Memory {
    /// MiB that are in memory; 0 where the system does not tell.
    resident: f64,
    /// KiB that have been allocated and not been freed.
    held: f64,
}

/// Has the system's allocator give large blocks back when they are freed, as it does until the first large
/// one is: from then on it keeps as much as that for each thread.
fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: called before there are threads that allocate.
    assert_eq!(unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 128 * 1024) }, 1);
}

/// MiB of the process that are in memory.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    number.unwrap_or(0.0) / 1024.0
}

/// Threads of this process, where the system tells.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

/// How fast samples grow, by the line that fits them best.
fn slope(samples: &[f64]) -> f64 {
    let middle = (samples.len() as f64 - 1.0) / 2.0;
    let mean = samples.iter().sum::<f64>() / samples.len() as f64;
    let along = |(i, sample): (usize, &f64)| (i as f64 - middle) * (sample - mean);
    let length: f64 = (0..samples.len()).map(|i| (i as f64 - middle).powi(2)).sum();
    samples.iter().enumerate().map(along).sum::<f64>() / length
}

fn greatest(samples: &[f64]) -> f64 {
    samples.iter().copied().fold(0.0, f64::max)
}

#[test]
fn eight_threads_get_no_wrong_bit_and_memory_stays_flat() {
    let minutes = std::env::var("STERNA_LOAD_MINUTES").ok().and_then(|minutes| minutes.parse().ok());
    let time = Duration::from_secs_f64(60.0 * minutes.unwrap_or(0.2));
    let rounds = (time.as_secs() as u32 / 15).clamp(ROUNDS.0, ROUNDS.1);
    let round = time / rounds;
    give_back();
    let load = Load::default();
    let before = compiled_partition_cache_stats();
    let memory: Vec<Memory> = (0..rounds).map(|_| load.round(round)).collect();
    let after = compiled_partition_cache_stats();

    let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (graphs, executions) = (number(&load.graphs), number(&load.executions));
    let (hits, misses) = (after.hits - before.hits, after.misses - before.misses);
    println!("{graphs} graphs, {executions} executions, {hits} hits and {misses} misses in {time:?}");
    let list = |of: fn(&Memory) -> f64| memory.iter().map(of).collect::<Vec<f64>>();
    let (resident, held) = (list(|at| at.resident), list(|at| at.held));
    // Without the first rounds, in which what is made once is made.
    let per_minute = |samples: &[f64]| slope(&samples[samples.len() / 4..]) / (round.as_secs_f64() / 60.0);
    println!("MiB in memory after each round: {resident:.0?}, {:+.2} a minute", per_minute(&resident));
    println!("KiB held after each round: {held:.1?}, {:+.3} a minute", per_minute(&held));
    report(&load.wrong.into_inner().unwrap());
    for (what, samples, slack) in [("KiB held", held, SLACK_KIB), ("MiB in memory", resident, SLACK_MIB)] {
        let (first, last) = samples.split_at(samples.len() / 2);
        assert!(greatest(last) < greatest(first) + slack, "{what} grow: {samples:.0?}");
    }
}
