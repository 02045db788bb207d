//! A peer's part of the table: it loads a model, runs it alone and by several callers, and says what that
//! took.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::Result;
use crate::case::Case;

/// Lengths of inputs that grow.
const STEPS: usize = 32;

/// A library that runs models.
pub trait Peer: Sized + Sync {
    const VERSION: &str;
    /// A caller's inputs, as the library takes them.
    type Inputs: Send;
    type Outputs;

    fn load(case: &Case, threads: usize) -> Result<Self>;
    fn inputs(&self, case: &Case) -> Result<Self::Inputs>;
    fn run(&self, inputs: &Self::Inputs) -> Result<Self::Outputs>;
    /// The elements of each output, in the order of the model.
    fn elements(&self, case: &Case, outputs: &Self::Outputs) -> Result<Vec<Vec<f32>>>;
}

pub struct Options {
    pub threads: usize,
    pub callers: usize,
    /// How long the model runs.
    pub time: Duration,
}

/// Seconds of each run of one caller, as many as fit into the time.
fn alone<P: Peer>(peer: &P, inputs: &P::Inputs, time: Duration) -> Result<Vec<f64>> {
    let start = Instant::now();
    let mut runs = Vec::new();
    while start.elapsed() < time || runs.len() < 3 {
        let before = Instant::now();
        peer.run(inputs)?;
        runs.push(before.elapsed().as_secs_f64());
    }
    Ok(runs)
}

/// The median of the seconds of runs of which each has inputs longer by one than those before, if they grow.
/// A library that takes the lengths for which it was loaded alone has no such runs.
fn growing<P: Peer>(peer: &P, case: &Case) -> Option<f64> {
    let mut runs = Vec::new();
    for case in (1..=STEPS).rev().map(|by| case.earlier(by)) {
        let inputs = peer.inputs(&case?).ok()?;
        let before = Instant::now();
        peer.run(&inputs).ok()?;
        runs.push(before.elapsed().as_secs_f64());
    }
    runs.sort_by(f64::total_cmp);
    Some(runs[runs.len() / 2])
}

/// Runs a second of several callers at once, and seconds that each run had a processor.
fn at_once<P: Peer>(peer: &P, case: &Case, options: &Options) -> Result<(f64, f64)> {
    let inputs = (0..options.callers).map(|_| peer.inputs(case)).collect::<Result<Vec<_>>>()?;
    let (ended, runs, failed) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicBool::new(false));
    // All have ended their last run, and none has gone, when their time on processors is read.
    let (all_ended, is_read) = (Barrier::new(options.callers + 1), Barrier::new(options.callers + 1));
    let before = processor_seconds()?;
    let start = Instant::now();
    let (rate, processor) = std::thread::scope(|scope| {
        for inputs in inputs {
            scope.spawn(|| {
                let inputs = inputs;
                while !ended.load(Ordering::Relaxed) {
                    failed.fetch_or(peer.run(&inputs).is_err(), Ordering::Relaxed);
                    runs.fetch_add(1, Ordering::Relaxed);
                }
                all_ended.wait();
                is_read.wait();
            });
        }
        // Each has ended a run, however long it takes.
        while start.elapsed() < options.time || runs.load(Ordering::Relaxed) < options.callers {
            std::thread::sleep(Duration::from_millis(1));
        }
        ended.store(true, Ordering::Relaxed);
        all_ended.wait();
        let runs = runs.load(Ordering::Relaxed) as f64;
        let rate = runs / start.elapsed().as_secs_f64();
        let after = processor_seconds();
        is_read.wait();
        (rate, after.map(|after| (after - before) / runs))
    });
    if failed.load(Ordering::Relaxed) {
        return Err("a run beside others failed".into());
    }
    Ok((rate, processor?))
}

/// Seconds that all threads of the process had a processor.
fn processor_seconds() -> Result<f64> {
    let mut nanoseconds = 0.0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
        nanoseconds += text.split(' ').next().unwrap_or_default().parse::<f64>()?;
    }
    Ok(nanoseconds / 1e9)
}

/// A line of `/proc/self/status`, in megabytes.
fn megabytes(key: &str) -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(key)).ok_or("the system counts no memory")?;
    let kilobytes: f64 = line.trim_matches([':', '\t', ' ', 'k', 'B']).parse()?;
    Ok(kilobytes * 1024.0 / 1e6)
}

pub fn measured<P: Peer>(case: &Case, options: &Options) -> Result<String> {
    let before = megabytes("VmHWM")?;
    let start = Instant::now();
    let peer = P::load(case, options.threads)?;
    let load = start.elapsed().as_secs_f64();
    let inputs = peer.inputs(case)?;
    let start = Instant::now();
    let outputs = peer.run(&inputs)?;
    let first = start.elapsed().as_secs_f64();
    let start = processor_seconds()?;
    let mut runs = alone(&peer, &inputs, options.time)?;
    let processor = (processor_seconds()? - start) / runs.len() as f64;
    runs.sort_by(f64::total_cmp);
    let together = if options.callers > 1 { Some(at_once(&peer, case, options)?) } else { None };
    let (peak, after) = (megabytes("VmHWM")?, megabytes("VmRSS")?);
    let grown = growing(&peer, case);
    let distance = case.distance(&peer.elements(case, &outputs)?)?;
    let figures = [
        ("before", Some(before)),
        ("load", Some(load)),
        ("first", Some(first)),
        ("runs", Some(runs.len() as f64)),
        ("least", Some(runs[0])),
        ("p50", Some(runs[runs.len() / 2])),
        ("processor", Some(processor)),
        ("rate", together.map(|(rate, _)| rate)),
        ("processor_together", together.map(|(_, processor)| processor)),
        ("grown", grown),
        ("peak", Some(peak)),
        ("after", Some(after)),
        ("distance", Some(distance).filter(|distance| distance.is_finite())),
    ];
    let figures = figures.map(|(key, figure)| {
        format!("\"{key}\": {}", figure.map_or("null".to_owned(), |figure| format!("{figure:?}")))
    });
    Ok(format!("{{\"version\": \"{}\", {}}}", P::VERSION, figures.join(", ")))
}
