//! Percentiles of the times of runs.

use serde::{Deserialize, Serialize};

/// The times of runs in seconds: the least, and those that so many of 100 runs do not exceed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) min: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
}

impl Latency {
    /// Those of some times; nothing of none.
    pub(crate) fn of(times: &[f64]) -> Option<Self> {
        let mut sorted = times.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let min = *sorted.first()?;
        let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|part| quantile(&sorted, part));
        Some(Self { min, p50, p90, p99 })
    }

    /// True if the numbers are those of some times.
    pub(crate) fn can_be(&self) -> bool {
        let Self { min, p50, p90, p99 } = *self;
        0.0 < min && min <= p50 && p50 <= p90 && p90 <= p99 && p99.is_finite()
    }
}

/// The value with this part of the sorted values below it, interpolated between the two nearest.
pub(crate) fn quantile(sorted: &[f64], part: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = part * last as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_lie_between_the_times_beside_them() {
        let hundred: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        let rows: [(&[f64], Option<[f64; 4]>); 4] = [
            (&[], None),
            (&[3.0], Some([3.0; 4])),
            (&[2.0, 1.0], Some([1.0, 1.5, 1.9, 1.99])),
            (&hundred, Some([0.0, 50.0, 90.0, 99.0])),
        ];
        let wrong: Vec<_> = rows
            .iter()
            .filter(|(times, expected)| {
                let found = Latency::of(times).map(|of| [of.min, of.p50, of.p90, of.p99]);
                let is_near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-9;
                match (found, expected) {
                    (Some(found), Some(expected)) => !found.iter().zip(expected).all(is_near),
                    (found, expected) => found.is_some() || expected.is_some(),
                }
            })
            .collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
