//! Callers that run one session at once, each on outputs of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use sterna::{AsDynView, AsDynViewMut, ModelPort, Session, TensorBuf};

use crate::host::HostTensor;
use crate::timing::Repeat;

/// How often the times so far are told of.
const TOLD: Duration = Duration::from_millis(200);

/// The inputs of a session by name.
pub(crate) type SessionInputs<'a> = Vec<(String, &'a HostTensor)>;

/// The inputs as a session takes them.
pub(crate) fn views<'a>(inputs: &'a SessionInputs<'_>) -> Result<Vec<(&'a str, &'a dyn AsDynView)>> {
    inputs.iter().map(|(name, tensor)| Ok((name.as_str(), tensor.view()?))).collect()
}

/// The memory of outputs as a session takes it.
pub(crate) fn targets<'a>(
    session: &'a Session,
    outputs: &'a mut [TensorBuf],
) -> Vec<(&'a str, &'a mut dyn AsDynViewMut)> {
    let names = session.outputs().iter().map(ModelPort::name);
    names.zip(outputs).map(|(name, output)| (name, output as &mut dyn AsDynViewMut)).collect()
}

/// The times of runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct StreamTimes {
    /// Seconds of each run.
    pub(crate) seconds: Vec<f64>,
    /// The time of all of them together.
    pub(crate) elapsed: Duration,
}

impl StreamTimes {
    pub(crate) fn runs_per_second(&self) -> f64 {
        self.seconds.len() as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// Lets so many callers run a session at once, each after one run that warms up, and takes the time of each
/// run. `tell` is given the times so far, every now and then, and says when to stop.
pub(crate) fn timed(
    session: &Session,
    inputs: &SessionInputs<'_>,
    streams: usize,
    repeat: Repeat,
    tell: &dyn Fn(&StreamTimes) -> bool,
) -> Result<StreamTimes> {
    let callers: Vec<Mutex<Vec<f64>>> = (0..streams).map(|_| Mutex::default()).collect();
    let begin = Barrier::new(streams);
    let stop = AtomicBool::new(false);
    let started = Mutex::new(None);
    let so_far = |elapsed| {
        let seconds = callers.iter().flat_map(|times| locked(times).clone()).collect();
        StreamTimes { seconds, elapsed }
    };
    let call = |caller: usize, tell: Option<&dyn Fn(&StreamTimes) -> bool>| -> Result<()> {
        let warm = warmed_up(session, inputs);
        begin.wait();
        let mut warm = warm?;
        let mut into = targets(session, &mut warm);
        let given = views(inputs)?;
        let start = *locked(&started).get_or_insert_with(Instant::now);
        // Times go to the others now and then, so that nothing but runs lies between two looks at the clock.
        let (mut runs, mut own, mut told, mut last) = (0u32, Vec::new(), start, Instant::now());
        while repeat.goes_on(runs, last.duration_since(start)) && !stop.load(Ordering::Relaxed) {
            session.run_into(&given, &mut into)?;
            let now = Instant::now();
            own.push(now.duration_since(last).as_secs_f64());
            (runs, last) = (runs + 1, now);
            if now.duration_since(told) >= TOLD {
                locked(&callers[caller]).append(&mut own);
                if tell.is_some_and(|tell| !tell(&so_far(start.elapsed()))) {
                    stop.store(true, Ordering::Relaxed);
                }
                last = Instant::now();
                told = last;
            }
        }
        locked(&callers[caller]).append(&mut own);
        Ok(())
    };
    thread::scope(|scope| {
        let call = &call;
        let others: Vec<_> = (1..streams).map(|caller| scope.spawn(move || call(caller, None))).collect();
        let own = call(0, Some(tell));
        let ended = others.into_iter().map(|other| match other.join() {
            Ok(ended) => ended,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ended.fold(own, Result::and)
    })?;
    let start = locked(&started).unwrap_or_else(Instant::now);
    Ok(so_far(start.elapsed()))
}

/// The outputs of a run that warms up, for later runs to write.
fn warmed_up(session: &Session, inputs: &SessionInputs<'_>) -> Result<Vec<TensorBuf>> {
    Ok(session.run(&views(inputs)?)?.into_tensors())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
