//! Shared by the benches that interleave candidates: options and timing.

use std::time::Instant;

use rayon::ThreadPool;

use crate::rows::Pages;

/// Least time of the executions of one sample, so that reading the clock does not matter.
pub(crate) const SAMPLE_SECONDS: f64 = 0.002;

pub(crate) struct Options {
    filters: Vec<String>,
    pub(crate) rounds: usize,
    pub(crate) pages: Pages,
    /// If true, times: as under `cargo bench`, unlike under `cargo test`.
    pub(crate) bench: bool,
}

impl Options {
    /// Options of the process, with a default for the rounds. `own` says whether an argument is an option of
    /// this bench alone.
    pub(crate) fn parse(rounds: usize, mut own: impl FnMut(&mut Self, &str) -> bool) -> Result<Self, String> {
        let mut options = Self { filters: Vec::new(), rounds, pages: Pages::Small, bench: false };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--bench" => options.bench = true,
                "--huge" => options.pages = Pages::Huge,
                "--rounds" => {
                    let rounds = args.next().and_then(|rounds| rounds.parse().ok());
                    options.rounds = rounds.filter(|&rounds| rounds > 0).ok_or("--rounds takes a number")?;
                }
                _ if own(&mut options, &arg) => {}
                _ if arg.starts_with('-') => return Err(format!("unknown option {arg}")),
                _ => options.filters.push(arg),
            }
        }
        Ok(options)
    }

    /// True if the filters select the row of this name.
    pub(crate) fn takes(&self, name: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| name.contains(filter))
    }
}

/// Seconds of one run, from several runs in a row.
pub(crate) fn seconds(runs: usize, run: &mut (dyn FnMut() + '_)) -> f64 {
    let start = Instant::now();
    (0..runs).for_each(|_| run());
    start.elapsed().as_secs_f64() / runs as f64
}

/// Runs per second, one after the other for the time of a sample.
pub(crate) fn rate(mut run: impl FnMut()) -> f64 {
    // The clock is read so seldom that it does not matter.
    let batch = (SAMPLE_SECONDS / 64.0 / seconds(1, &mut run)).ceil() as usize;
    let (start, mut runs) = (Instant::now(), 0);
    while start.elapsed().as_secs_f64() < SAMPLE_SECONDS {
        (0..batch).for_each(|_| run());
        runs += batch;
    }
    runs as f64 / start.elapsed().as_secs_f64()
}

/// Runs per second of all together: the first on this thread, each other on a thread of the pool. None waits
/// for another.
pub(crate) fn rate_of_all<R: FnMut() + Send>(pool: &ThreadPool, runs: impl IntoIterator<Item = R>) -> f64 {
    let mut timed: Vec<(R, f64)> = runs.into_iter().map(|run| (run, 0.0)).collect();
    let time = |(run, rate_of_run): &mut (R, f64)| *rate_of_run = rate(run);
    pool.in_place_scope(|scope| {
        if let Some((here, others)) = timed.split_first_mut() {
            others.iter_mut().for_each(|other| scope.spawn(move |_| time(other)));
            time(here);
        }
    });
    timed.iter().map(|(_, rate)| rate).sum()
}

pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
