//! Promise: small executions that follow each other soon get a worker, if the engine may keep its own workers
//! awake; a process that executes no more uses no CPU time.
//!
//! One test at a time in its process, since the threads and the CPU time of the whole process are counted.
#![cfg(all(target_os = "linux", feature = "threads"))]

mod common;

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, Instant};

use common::{Case, Random, report};
use rayon::ThreadPoolBuilder;
use sterna::{AutoBroadcast, DataType, Engine, Stream, TensorBuf};

/// Tells a process of this very test what to run.
const ASKED: &str = "STERNA_TEST_ASKED";

/// Moves 852 KB.
const SIDE: i64 = 256;

/// How long executions follow each other until a worker has started: longer than any process waits for a
/// core.
const LONG: Duration = Duration::from_secs(20);

/// The same if no worker may start.
const SHORT: Duration = Duration::from_millis(100);

/// Number of workers of engines in this process.
fn workers() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|name| name.starts_with("sterna-")).count()
}

/// CPU time of this process, in ticks of 10 ms.
fn ticks() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit(')').next().unwrap().split_whitespace();
    fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// Executes for a while, with so long a pause between executions; ends when a worker has started. Returns the
/// number of workers while the engine lives, since workers end with their engine.
fn execute(engine: &Engine, side: i64, time: Duration, pause: Duration) -> usize {
    let case = Case::new(AutoBroadcast::None, DataType::F32, [&[side, side]; 3]);
    let compiled = case.compile(engine).unwrap();
    let inputs = case.filled(&compiled, engine, &mut Random::new(3));
    let mut output = TensorBuf::zeroed(compiled.outputs()[0].clone(), engine).unwrap();
    let (stream, start) = (Stream::new(engine), Instant::now());
    let tensors: Vec<_> = inputs.iter().map(TensorBuf::as_tensor).collect();
    while start.elapsed() < time && workers() == 0 {
        for _ in 0..if pause.is_zero() { 100 } else { 1 } {
            compiled.execute(&stream, &tensors, &mut [output.as_tensor_mut()]).unwrap();
        }
        sleep(pause);
    }
    case.compare(&inputs, &output).unwrap();
    workers()
}

/// The part of the other tests that runs in a process of its own.
#[test]
fn answers() {
    let Ok(asked) = std::env::var(ASKED) else { return };
    let pause = |millis| Duration::from_millis(millis);
    let answer = match asked.as_str() {
        "loop" => execute(&Engine::builder().threads(2).build(), SIDE, LONG, pause(0)),
        "loop where none may" => execute(&Engine::builder().threads(2).build(), SIDE, SHORT, pause(0)),
        "switched off" => {
            execute(&Engine::builder().threads(2).stay_awake(false).build(), SIDE, SHORT, pause(0))
        }
        "one thread" => execute(&Engine::builder().threads(1).build(), SIDE, SHORT, pause(0)),
        "more threads than cores" => {
            let threads = available_parallelism().unwrap().get() + 1;
            execute(&Engine::builder().threads(threads).build(), SIDE, SHORT, pause(0))
        }
        "pool of the caller" => {
            let pool = Arc::new(ThreadPoolBuilder::new().num_threads(2).build().unwrap());
            execute(&Engine::builder().pool(pool).build(), SIDE, SHORT, pause(0))
        }
        "tiny" => execute(&Engine::builder().threads(2).build(), 64, SHORT, pause(0)),
        "pauses" => execute(&Engine::builder().threads(2).build(), SIDE, SHORT, pause(2)),
        "idle" => {
            let engine = Engine::builder().threads(2).build();
            let answer = execute(&engine, SIDE, LONG, pause(0));
            let before = ticks();
            sleep(Duration::from_millis(200));
            println!("ticks={}", ticks() - before);
            answer
        }
        _ => panic!("unknown question"),
    };
    println!("answer={answer}");
}

/// Runs this test binary again under the variables given, and returns what it prints.
fn ask(question: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "answers", "--nocapture"]).env(ASKED, question);
    for name in ["STERNA_NUM_THREADS", "OMP_NUM_THREADS", "STERNA_STAY_AWAKE"] {
        command.env_remove(name);
    }
    let output = command.envs(variables.iter().copied()).output().unwrap();
    assert!(output.status.success(), "{question}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The number that a process prints behind a name.
fn number(text: &str, name: &str) -> u64 {
    let found = text.split(name).nth(1).and_then(|rest| rest.lines().next());
    found.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {name} in {text:?}"))
}

#[test]
fn small_executions_in_a_loop_get_a_worker_unless_told_otherwise() {
    let most = u64::from(available_parallelism().unwrap().get() > 1);
    type Row = (&'static str, &'static [(&'static str, &'static str)], u64);
    let rows: &[Row] = &[
        (if most == 1 { "loop" } else { "loop where none may" }, &[], most),
        ("loop where none may", &[("STERNA_STAY_AWAKE", "0")], 0),
        ("loop where none may", &[("STERNA_NUM_THREADS", "1")], 0),
        ("switched off", &[], 0),
        ("one thread", &[], 0),
        ("more threads than cores", &[], 0),
        ("pool of the caller", &[], 0),
        ("tiny", &[], 0),
        ("pauses", &[], 0),
    ];
    let wrong: Vec<_> = rows
        .iter()
        .map(|(question, variables, expected)| {
            (question, variables, *expected, number(&ask(question, variables), "answer="))
        })
        .filter(|(.., expected, found)| found != expected)
        .collect();
    report(&wrong);
}

#[test]
fn an_idle_process_uses_no_cpu_time() {
    if available_parallelism().unwrap().get() > 1 {
        let ticks = number(&ask("idle", &[]), "ticks=");
        assert!(ticks <= 2, "{ticks} ticks of 10 ms in 200 ms");
    }
}
