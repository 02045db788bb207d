//! Cases that are faster or slower than in a saved run, beyond the noise.

use anyhow::{Result, bail};
use serde::Serialize;

use super::measure::{Sample, median};
use super::record::{Case, Run};

/// Medians that differ by at most this part count as equal, however little the rounds spread.
pub(crate) const MIN_CHANGE: f64 = 0.03;

/// The middle halves of two runs that are called equal differ by at most this part.
pub(crate) const MAX_OPEN: f64 = 0.1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Comparison {
    Faster,
    Slower,
    Same,
    /// The ratio to the limit says one thing, the time itself another.
    Disagree,
    /// The rounds spread too much.
    CannotTell,
}

impl Comparison {
    /// Judges a case by the ratio of its time to the limit's. It is slower or faster only if its time changed
    /// the same way by more than [`MIN_CHANGE`]: a ratio also grows if the limit alone got faster.
    fn of(change: f64, ratio_before: Sample, ratio_now: Sample) -> Self {
        match Self::of_ratios(ratio_before, ratio_now) {
            Self::Slower if change <= MIN_CHANGE => Self::Disagree,
            Self::Faster if change >= -MIN_CHANGE => Self::Disagree,
            verdict => verdict,
        }
    }

    /// Judges two ratios. They differ if the middle halves of the rounds do not overlap and the medians
    /// differ by more than [`MIN_CHANGE`]; they are equal if the medians do not and what the middle halves
    /// leave open is at most [`MAX_OPEN`].
    fn of_ratios(before: Sample, now: Sample) -> Self {
        let change = now.median / before.median - 1.0;
        let (least, most) = (now.lower / before.upper - 1.0, now.upper / before.lower - 1.0);
        match () {
            () if least > 0.0 && change > MIN_CHANGE => Self::Slower,
            () if most < 0.0 && change < -MIN_CHANGE => Self::Faster,
            () if change.abs() <= MIN_CHANGE && most.max(-least) <= MAX_OPEN => Self::Same,
            () => Self::CannotTell,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Same => "same",
            Self::Disagree => "disagree",
            Self::CannotTell => "cannot tell",
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
    /// The times as multiples of the limit's, and the part by which that grew.
    pub(crate) ratio_before: Sample,
    pub(crate) ratio_now: Sample,
    pub(crate) ratio_change: f64,
    pub(crate) verdict: Comparison,
}

impl RunComparison {
    pub(crate) fn of(before: &Run, now: &Run) -> Result<Self> {
        let same = |a: &Case, b: &Case| a.name == b.name && a.threads == b.threads;
        let pairs = now.cases.iter().filter_map(|now| {
            before.cases.iter().find(|before| same(before, now)).map(|before| (before, now))
        });
        let pairs: Vec<(&Case, &Case)> = pairs.collect();
        let cases: Vec<Compared> = pairs.iter().map(|(before, now)| Compared::of(before, now)).collect();
        let other_work = pairs.iter().filter(|(before, now)| !before.does_as_much_as(now)).count();
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
            notes: notes(before, now, &cases, other_work),
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
        let (ratio_before, ratio_now) = (before.ratio(), now.ratio());
        let change = now.seconds.median / before.seconds.median - 1.0;
        let verdict = match before.does_as_much_as(now) {
            true => Comparison::of(change, ratio_before, ratio_now),
            // The limits are of other amounts.
            false => Comparison::CannotTell,
        };
        Self {
            name: now.name.clone(),
            threads: now.threads,
            before: before.seconds,
            now: now.seconds,
            change,
            limit_change: now.limit.median / before.limit.median - 1.0,
            ratio_before,
            ratio_now,
            ratio_change: ratio_now.median / ratio_before.median - 1.0,
            verdict,
        }
    }
}

fn notes(before: &Run, now: &Run, cases: &[Compared], other_work: usize) -> Vec<String> {
    let mut notes = Vec::new();
    if other_work > 0 {
        notes.push(format!(
            "{other_work} of {} cases move other bytes or compute more or less than in the saved run, so \
             their limits differ: compare their times",
            cases.len()
        ));
    }
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
            "the limit takes {percent:.0} % {how} than in the saved run, so the machine itself is not as it \
             was; a case is slower or faster only if its time and its ratio to the limit agree"
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_needs_little_spread() {
        use Comparison::{CannotTell, Faster, Same, Slower};
        let rows = [
            ([100.0, 100.0, 100.0], [102.9, 102.9, 102.9], Same),
            ([100.0, 100.0, 100.0], [103.5, 103.5, 103.5], Slower),
            ([100.0, 100.0, 100.0], [97.1, 97.1, 97.1], Same),
            ([100.0, 100.0, 100.0], [96.5, 96.5, 96.5], Faster),
            ([98.0, 100.0, 102.0], [98.5, 101.0, 103.0], Same),
            // The middle halves overlap.
            ([95.0, 100.0, 105.0], [105.0, 110.0, 115.0], CannotTell),
            ([95.0, 100.0, 105.0], [105.1, 110.0, 115.0], Slower),
            ([90.0, 100.0, 300.0], [80.0, 85.0, 89.0], Faster),
            ([90.0, 100.0, 300.0], [80.0, 85.0, 90.0], CannotTell),
            // Something else ran during half of the rounds.
            ([199.0, 200.0, 201.0], [200.0, 600.0, 610.0], CannotTell),
            // Equal medians of what spreads that much say nothing.
            ([90.0, 100.0, 112.0], [90.0, 100.0, 112.0], CannotTell),
        ];
        let sample = |[lower, median, upper]: [f64; 3]| Sample { median, lower, upper };
        let verdict = |(before, now, _): &([f64; 3], [f64; 3], Comparison)| {
            Comparison::of_ratios(sample(*before), sample(*now))
        };
        let wrong: Vec<_> = rows.iter().filter(|row| verdict(row) != row.2).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn a_verdict_needs_time_and_ratio_to_agree() {
        use Comparison::{CannotTell, Disagree, Faster, Same, Slower};
        // By what parts the time and the limit changed.
        let rows = [
            (0.0, 0.0, Same),
            (0.10, 0.0, Slower),
            (-0.10, 0.0, Faster),
            // A machine that is slower, or faster, as a whole.
            (0.30, 0.30, Same),
            (-0.30, -0.30, Same),
            (0.30, 0.10, Slower),
            (-0.30, -0.10, Faster),
            (0.10, -0.10, Slower),
            (-0.10, 0.10, Faster),
            // The copies beside it alone got faster, or slower.
            (-0.078, -0.38, Disagree),
            (0.078, 0.62, Disagree),
            (0.0, -0.10, Disagree),
            (0.0, 0.10, Disagree),
            // A little is no agreement.
            (0.029, -0.10, Disagree),
            (-0.029, 0.10, Disagree),
            (0.031, -0.10, Slower),
            (-0.031, 0.10, Faster),
        ];
        let sample = |median| Sample { median, lower: median, upper: median };
        let verdict =
            |time: f64, limit: f64| Comparison::of(time, sample(1.0), sample((1.0 + time) / (1.0 + limit)));
        let wrong: Vec<_> = rows.iter().filter(|row| verdict(row.0, row.1) != row.2).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        let wide = Sample { median: 1.2, lower: 0.8, upper: 1.5 };
        assert_eq!(Comparison::of(0.2, sample(1.0), wide), CannotTell);
    }
}
