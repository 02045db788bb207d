//! Interleaved timing, and its results.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::progress::Progress;
use crate::latency::quantile;

/// Least time of the executions of one sample, so that reading the clock does not matter.
const SAMPLE_SECONDS: f64 = 0.002;

/// Least number of rounds, however long they take.
const MIN_ROUNDS: usize = 5;

/// Numbers over the rounds, such as the seconds of one execution.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) median: f64,
    /// A quarter of the rounds gave at most this.
    pub(crate) lower: f64,
    /// A quarter of the rounds gave at least this.
    pub(crate) upper: f64,
}

impl Sample {
    pub(crate) fn of(times: &[f64]) -> Self {
        let mut sorted = times.to_vec();
        sorted.sort_by(f64::total_cmp);
        let [lower, median, upper] = [0.25, 0.5, 0.75].map(|part| quantile(&sorted, part));
        Self { median, lower, upper }
    }

    /// Distances of the quartiles from the median, as parts of it: the lower one, and the upper one.
    pub(crate) fn spread(self) -> [f64; 2] {
        [self.lower, self.upper].map(|quartile| quartile / self.median - 1.0)
    }
}

/// The middle value, or the mean of the two in the middle.
pub(crate) fn median(values: &[f64]) -> f64 {
    Sample::of(values).median
}

/// Results of a case and its limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) case: Sample,
    pub(crate) limit: Sample,
    /// The limit's time divided by the case's, over the rounds.
    pub(crate) share: Sample,
    pub(crate) rounds: usize,
}

/// Times two runs, interleaved, for some time; nothing if the user interrupts.
pub(crate) fn interleaved(
    mut case: impl FnMut() -> Result<()>,
    mut limit: impl FnMut() -> Result<()>,
    time: Duration,
    progress: &Progress,
) -> Result<Option<Measured>> {
    let of_case = warmed_up(&mut case)?;
    let of_limit = warmed_up(&mut limit)?;
    let (mut times, mut limits) = (Vec::new(), Vec::new());
    let start = Instant::now();
    let mut last = start;
    while times.len() < MIN_ROUNDS || start.elapsed() < time {
        if progress.is_interrupted() {
            return Ok(None);
        }
        if times.len() % 2 == 0 {
            times.push(seconds(of_case, &mut case)?);
            limits.push(seconds(of_limit, &mut limit)?);
        } else {
            limits.push(seconds(of_limit, &mut limit)?);
            times.push(seconds(of_case, &mut case)?);
        }
        progress.advance(last.elapsed());
        last = Instant::now();
    }
    let shares: Vec<f64> = times.iter().zip(&limits).map(|(case, limit)| limit / case).collect();
    Ok(Some(Measured {
        case: Sample::of(&times),
        limit: Sample::of(&limits),
        share: Sample::of(&shares),
        rounds: times.len(),
    }))
}

/// The least seconds of one run, of many samples in some time; nothing if the user interrupts.
pub(crate) fn best(
    mut run: impl FnMut() -> Result<()>,
    time: Duration,
    progress: &Progress,
) -> Result<Option<f64>> {
    let start = Instant::now();
    let runs = warmed_up(&mut run)?;
    let (mut best, mut rounds) = (f64::INFINITY, 0);
    while rounds < MIN_ROUNDS || start.elapsed() < time {
        if progress.is_interrupted() {
            return Ok(None);
        }
        best = best.min(seconds(runs, &mut run)?);
        rounds += 1;
    }
    progress.advance(start.elapsed());
    Ok(Some(best))
}

/// Warms a run up, and returns the number of runs in a sample.
fn warmed_up(run: &mut impl FnMut() -> Result<()>) -> Result<usize> {
    seconds(1, run)?;
    let mut runs = 1;
    loop {
        let once = seconds(runs, run)?;
        let enough = (SAMPLE_SECONDS / once.max(1e-9)).ceil() as usize;
        if enough <= runs.saturating_mul(2) {
            return Ok(enough.max(1));
        }
        runs = enough.min(runs * 16);
    }
}

/// Seconds of one run, from several runs in a row.
fn seconds(runs: usize, run: &mut impl FnMut() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    for _ in 0..runs {
        run()?;
    }
    Ok(start.elapsed().as_secs_f64() / runs as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_quartiles() {
        let rows: &[(&[f64], [f64; 3])] = &[
            (&[3.0], [3.0, 3.0, 3.0]),
            (&[2.0, 1.0], [1.25, 1.5, 1.75]),
            (&[5.0, 1.0, 2.0], [1.5, 2.0, 3.5]),
            (&[1.0, 1.0, 1.0, 101.0], [1.0, 1.0, 26.0]),
            (&[4.0, 1.0, 3.0, 2.0, 100.0], [2.0, 3.0, 4.0]),
        ];
        let sample = |[lower, median, upper]: [f64; 3]| Sample { median, lower, upper };
        let wrong: Vec<_> =
            rows.iter().filter(|(times, expected)| Sample::of(times) != sample(*expected)).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
