//! Cases that are faster or slower than in a saved run, beyond the noise.

use anyhow::{Result, bail};
use serde::Serialize;

use super::measure::{Sample, median};
use super::record::{Case, Run};

/// Medians that differ by at most this part count as equal, however little the rounds spread.
pub(crate) const MIN_CHANGE: f64 = 0.03;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Comparison {
    Faster,
    Slower,
    Same,
}

impl Comparison {
    /// A change, if the middle halves of the rounds do not overlap and the medians differ by more than
    /// [`MIN_CHANGE`].
    fn of(before: Sample, now: Sample) -> Self {
        match now.median / before.median - 1.0 {
            change if change > MIN_CHANGE && now.lower > before.upper => Self::Slower,
            change if change < -MIN_CHANGE && now.upper < before.lower => Self::Faster,
            _ => Self::Same,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Same => "same",
        }
    }
}

/// Two runs, case by case.
#[derive(Debug, Serialize)]
pub(crate) struct RunComparison {
    pub(crate) cases: Vec<Compared>,
    /// Cases that only one run has: name and number of threads.
    pub(crate) only_before: Vec<(String, usize)>,
    pub(crate) only_now: Vec<(String, usize)>,
    /// Other differences between the runs.
    pub(crate) notes: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Compared {
    pub(crate) name: String,
    pub(crate) threads: usize,
    pub(crate) before: Sample,
    pub(crate) now: Sample,
    /// The part by which the time grew.
    pub(crate) change: f64,
    /// The part by which the time of the streaming limit grew.
    pub(crate) limit_change: f64,
    pub(crate) verdict: Comparison,
}

impl RunComparison {
    pub(crate) fn of(before: &Run, now: &Run) -> Result<Self> {
        let same = |a: &Case, b: &Case| a.name == b.name && a.threads == b.threads;
        let pairs = now.cases.iter().filter_map(|now| {
            before.cases.iter().find(|before| same(before, now)).map(|before| (before, now))
        });
        let cases: Vec<Compared> = pairs.map(|(before, now)| Compared::of(before, now)).collect();
        if cases.is_empty() {
            bail!(
                "the saved run ({}) and this one ({}) have no case in common; compare runs of the same cases \
                 on the same numbers of threads",
                before.subject,
                now.subject
            );
        }
        let missing = |from: &[Case], here: &[Case]| -> Vec<(String, usize)> {
            let gone = here.iter().filter(|case| !from.iter().any(|other| same(case, other)));
            gone.map(|case| (case.name.clone(), case.threads)).collect()
        };
        Ok(Self {
            notes: notes(before, now, &cases),
            only_before: missing(&now.cases, &before.cases),
            only_now: missing(&before.cases, &now.cases),
            cases,
        })
    }

    pub(crate) fn count(&self, verdict: Comparison) -> usize {
        self.cases.iter().filter(|case| case.verdict == verdict).count()
    }
}

impl Compared {
    fn of(before: &Case, now: &Case) -> Self {
        Self {
            name: now.name.clone(),
            threads: now.threads,
            before: before.seconds,
            now: now.seconds,
            change: now.seconds.median / before.seconds.median - 1.0,
            limit_change: now.limit.median / before.limit.median - 1.0,
            verdict: Comparison::of(before.seconds, now.seconds),
        }
    }
}

fn notes(before: &Run, now: &Run, cases: &[Compared]) -> Vec<String> {
    let mut notes = Vec::new();
    if before.machine != now.machine {
        notes.push(format!(
            "the saved run is of another machine ({}, here {}); what differs may be the machines",
            before.machine, now.machine
        ));
    }
    if before.level != now.level {
        notes.push(format!("the saved run used kernels of level {}, this one {}", before.level, now.level));
    }
    let moved = median(&cases.iter().map(|case| case.limit_change).collect::<Vec<f64>>());
    if moved.abs() > MIN_CHANGE {
        let (percent, how) = (100.0 * moved.abs(), if moved > 0.0 { "longer" } else { "less long" });
        notes.push(format!(
            "plain copies take {percent:.0} % {how} than in the saved run, so the machine itself is not as \
             it was; shares of the limit tell more than times"
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_needs_halves_that_do_not_overlap_and_three_percent() {
        let rows = [
            ([100.0, 100.0, 100.0], [102.9, 102.9, 102.9], Comparison::Same),
            ([100.0, 100.0, 100.0], [103.5, 103.5, 103.5], Comparison::Slower),
            ([100.0, 100.0, 100.0], [97.1, 97.1, 97.1], Comparison::Same),
            ([100.0, 100.0, 100.0], [96.5, 96.5, 96.5], Comparison::Faster),
            ([95.0, 100.0, 105.0], [105.0, 110.0, 115.0], Comparison::Same),
            ([95.0, 100.0, 105.0], [105.1, 110.0, 115.0], Comparison::Slower),
            // Something else ran during half of the rounds.
            ([199.0, 200.0, 201.0], [200.0, 600.0, 610.0], Comparison::Same),
            ([90.0, 100.0, 300.0], [80.0, 85.0, 89.0], Comparison::Faster),
            ([90.0, 100.0, 300.0], [80.0, 85.0, 90.0], Comparison::Same),
        ];
        let sample = |[lower, median, upper]: [f64; 3]| Sample { median, lower, upper };
        let verdict = |(before, now, _): &([f64; 3], [f64; 3], Comparison)| {
            Comparison::of(sample(*before), sample(*now))
        };
        let wrong: Vec<_> = rows.iter().filter(|row| verdict(row) != row.2).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
