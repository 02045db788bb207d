//! A run as data: what is printed, saved, compared and drawn.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use sterna_import::open_plain;
use sterna_inspect::TilesReport;

use super::date::today;
use super::machine::Machine;
use super::measure::Sample;
use super::streams::Traffic;
use crate::latency::Latency;

/// The number of the form in which runs are saved.
const FORMAT: u32 = 1;

/// All results of one run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Run {
    format: u32,
    /// The version of Sterna.
    pub(crate) sterna: String,
    pub(crate) machine: Machine,
    /// The day of the run in UTC; empty in runs that older versions saved.
    #[serde(default)]
    pub(crate) date: String,
    /// The level of the kernels.
    pub(crate) level: String,
    /// The subject: a suite, or a file.
    pub(crate) subject: String,
    pub(crate) seconds_per_case: f64,
    pub(crate) cases: Vec<Case>,
    /// The streaming limit by size; measured only to be saved or drawn.
    #[serde(default)]
    pub(crate) ceilings: Vec<Ceiling>,
}

/// A case on some number of threads.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) threads: usize,
    /// Bytes that one execution moves, each distinct element counted once.
    pub(crate) bytes: Traffic,
    /// Floating-point operations of one execution, if they take longer than moving the bytes: the limit is
    /// then the machine's arithmetic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) operations: Option<f64>,
    pub(crate) rounds: usize,
    /// Seconds of one execution.
    pub(crate) seconds: Sample,
    /// Seconds of the limit, measured interleaved with it.
    pub(crate) limit: Sample,
    /// The median over the rounds of the limit's time divided by the case's.
    pub(crate) share: f64,
    /// The quartiles of the same, which runs lack that older versions saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) share_quartiles: Option<[f64; 2]>,
    /// The tiles of masked scores, if the case has any; runs that older versions saved do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mask_tiles: Option<TilesReport>,
    /// Single runs of a graph as a whole, which runs lack that older versions saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) whole: Option<WholeCase>,
}

/// Single runs of a graph as a whole.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct WholeCase {
    /// Callers at once.
    pub(crate) streams: usize,
    pub(crate) runs: usize,
    /// Seconds of a run.
    pub(crate) latency: Latency,
    pub(crate) runs_per_second: f64,
    /// Bytes of a run: tensors between partitions, and scratch.
    pub(crate) run_memory: usize,
}

/// The streaming limit of one size, read and written in equal parts.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Ceiling {
    pub(crate) threads: usize,
    pub(crate) bytes: usize,
    /// The least of the measurements: a roof is the best of the machine.
    pub(crate) seconds: f64,
}

impl Run {
    pub(crate) fn new(machine: Machine, level: &str, subject: String, seconds_per_case: f64) -> Self {
        Self {
            format: FORMAT,
            sterna: env!("CARGO_PKG_VERSION").into(),
            machine,
            date: today(),
            level: level.into(),
            subject,
            seconds_per_case,
            cases: Vec::new(),
            ceilings: Vec::new(),
        }
    }

    /// Reads what [`save`](Self::save) wrote.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let read = || {
            let mut text = String::new();
            open_plain(path)?.read_to_string(&mut text)?;
            let run: Self = serde_json::from_str(&text)?;
            run.check()?;
            Ok(run)
        };
        read().map_err(|error: anyhow::Error| {
            let hint = "name a file that `sterna bench --save` wrote";
            error.context(format!("cannot read a saved run from {}; {hint}", path.display()))
        })
    }

    fn check(&self) -> Result<()> {
        ensure!(self.format == FORMAT, "it is of format {}, and format {FORMAT} is known here", self.format);
        let mut names = BTreeSet::new();
        for case in &self.cases {
            let Case { name, threads, .. } = case;
            let is_time = |Sample { lower, median, upper }| 0.0 < lower && lower <= median && median <= upper;
            let is_work = case.operations.is_none_or(|operations| operations.is_finite() && operations > 0.0);
            let is_whole = |whole: &WholeCase| whole.latency.can_be() && whole.runs_per_second > 0.0;
            let are_times =
                is_time(case.seconds) && is_time(case.limit) && case.whole.as_ref().is_none_or(is_whole);
            let is_share = case.share > 0.0
                && case
                    .share_quartiles
                    .is_none_or(|[lower, upper]| 0.0 < lower && lower <= case.share && case.share <= upper);
            if !are_times || !is_work || !is_share || *threads == 0 {
                bail!("case {name:?} on {threads} threads holds a time, share or number that cannot be");
            }
            ensure!(names.insert((name, threads)), "it holds case {name:?} on {threads} threads twice");
        }
        let can_be = |ceiling: &Ceiling| ceiling.seconds > 0.0 && ceiling.bytes > 0 && ceiling.threads > 0;
        ensure!(self.ceilings.iter().all(can_be), "it holds a streaming limit that cannot be");
        Ok(())
    }

    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Case {
    /// 10⁹ bytes a second.
    pub(crate) fn gb_per_second(&self) -> f64 {
        self.bytes.bytes() as f64 / self.seconds.median / 1e9
    }

    /// The time as a multiple of the limit's, which was measured beside it: what the machine does to both
    /// alike cancels out.
    pub(crate) fn ratio(&self) -> Sample {
        let [lower, upper] = match self.share_quartiles {
            Some([lower, upper]) => [1.0 / upper, 1.0 / lower],
            // At worst the rounds of one that were slow are those of the other that were fast.
            None => [self.seconds.lower / self.limit.upper, self.seconds.upper / self.limit.lower],
        };
        Sample { median: 1.0 / self.share, lower, upper }
    }

    /// True if two cases move as many bytes and compute as much, so that their limits are the same.
    pub(crate) fn does_as_much_as(&self, other: &Self) -> bool {
        self.bytes == other.bytes && self.operations == other.operations
    }

    /// The amount of work of one execution, and the unit of its rate and of the limit's.
    pub(crate) fn counted(&self) -> (f64, &'static str) {
        match self.operations {
            Some(operations) => (operations, "GFLOP/s"),
            None => (self.bytes.bytes() as f64, "GB/s"),
        }
    }
}

impl Ceiling {
    pub(crate) fn gb_per_second(&self) -> f64 {
        self.bytes as f64 / self.seconds / 1e9
    }
}
