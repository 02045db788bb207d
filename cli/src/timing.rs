//! Times of executions for a report, which is no bench: a few, after one that warms up.

use std::time::{Duration, Instant};

use anyhow::Result;

/// The time for the executions of a partition, and for those of all partitions together.
const OF_PARTITION: Duration = Duration::from_millis(50);
const OF_ALL: Duration = Duration::from_secs(1);

/// Least time of a sample, so that reading the clock does not matter.
const SAMPLE: Duration = Duration::from_micros(20);

/// Most executions in a sample.
const MAX_BATCH: u32 = 1 << 12;

/// How often a partition is executed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Repeat {
    /// So often, after one execution that warms up.
    Times(u32),
    /// For so long, after one execution that warms up; not again if that one took longer.
    For(Duration),
}

impl Repeat {
    pub(crate) fn new(repeat: Option<u32>, partitions: usize) -> Self {
        match repeat {
            Some(times) => Self::Times(times),
            None => {
                Self::For(OF_PARTITION.min(OF_ALL / u32::try_from(partitions.max(1)).unwrap_or(u32::MAX)))
            }
        }
    }

    /// How often a graph of so many partitions is run as a whole.
    pub(crate) fn of_whole(repeat: Option<u32>, partitions: usize) -> Self {
        match repeat {
            Some(times) => Self::Times(times),
            None => {
                let partitions = u32::try_from(partitions.max(1)).unwrap_or(u32::MAX);
                Self::For(OF_ALL.min(OF_PARTITION.saturating_mul(partitions)))
            }
        }
    }

    /// True if there is another execution behind so many, which took so long together.
    pub(crate) fn goes_on(self, executions: u32, spent: Duration) -> bool {
        match self {
            Self::Times(times) => executions < times,
            Self::For(time) => executions == 0 || spent < time,
        }
    }

    /// True if one execution that took so long is enough.
    pub(crate) fn is_over_after(self, cold: Duration) -> bool {
        matches!(self, Self::For(time) if cold >= time)
    }
}

/// The times of executions.
#[derive(Debug)]
pub(crate) struct Timed {
    /// Seconds of one execution, by sample.
    pub(crate) seconds: Vec<f64>,
    pub(crate) executions: usize,
    /// An execution that is not counted came before.
    pub(crate) is_warm: bool,
}

impl Timed {
    /// One execution, after nothing.
    pub(crate) fn once(time: Duration) -> Self {
        Self { seconds: vec![time.as_secs_f64()], executions: 1, is_warm: false }
    }
}

/// Executes, and takes the time.
pub(crate) fn timed(repeat: Repeat, mut execute: impl FnMut() -> Result<()>) -> Result<Timed> {
    let mut sample = |executions: u32| -> Result<Duration> {
        let start = Instant::now();
        for _ in 0..executions {
            execute()?;
        }
        Ok(start.elapsed())
    };
    let cold = sample(1)?;
    let mut seconds = Vec::new();
    match repeat {
        Repeat::Times(times) => {
            for _ in 0..times {
                seconds.push(sample(1)?.as_secs_f64());
            }
            Ok(Timed { executions: seconds.len(), seconds, is_warm: true })
        }
        Repeat::For(_) if repeat.is_over_after(cold) => Ok(Timed::once(cold)),
        Repeat::For(time) => {
            let (mut batch, mut executions, mut spent) = (1, 0, Duration::ZERO);
            while seconds.is_empty() || spent < time {
                let took = sample(batch)?;
                if took < SAMPLE && seconds.is_empty() && batch < MAX_BATCH {
                    batch *= 2;
                    continue;
                }
                spent += took;
                executions += batch as usize;
                seconds.push(took.as_secs_f64() / f64::from(batch));
            }
            Ok(Timed { seconds, executions, is_warm: true })
        }
    }
}
