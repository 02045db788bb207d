//! The threads of an engine: the caller's, and workers of a pool.

use std::num::NonZeroUsize;
use std::process;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::available_parallelism;

use parking_lot::Mutex;
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::awake::{self, Pace};
use super::fork_join::{Panicked, Teams};
use crate::error::{Error, Result};
use crate::plan::Threading;
use crate::types::environment;

pub(super) use super::awake::SmallExecution;

/// The most threads of an engine: hardly any machine has more, and each is started whether there is work for
/// it or not.
const MAX_ENGINE_THREADS: usize = 1024;

/// The options of a caller for the threads of an engine.
pub(super) struct WorkerOptions {
    pub(super) threads: Option<usize>,
    pub(super) pool: Option<Arc<ThreadPool>>,
    pub(super) stay_awake: bool,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self { threads: None, pool: None, stay_awake: true }
    }
}

/// The workers of an engine.
pub(super) struct EngineWorkers {
    threads: usize,
    /// Started at the first execution that is worth more than one thread, and kept as long as the engine. No
    /// lock guards them, because the child of a fork would wait for the thread that held it in the parent.
    slot: AtomicPtr<Workers>,
    /// If workers stay awake after work: when the engine was last used.
    pace: Option<Pace>,
}

/// Worker threads, and the process that they live in: a fork copies the pool, but none of its threads.
pub(super) struct Workers {
    process: u32,
    pool: Arc<ThreadPool>,
    teams: Arc<Teams>,
    /// True if workers look for more work before they sleep.
    stay_awake: bool,
}

/// The workers that help a small execution.
pub(super) struct AwakeWorkers<'a> {
    workers: &'a Workers,
    /// True if a worker is awake already, so that none need be woken.
    is_awake: bool,
}

impl AwakeWorkers<'_> {
    /// As [`Workers::run`].
    pub(super) fn run(&self, threads: usize, work: &(dyn Fn(usize) + Sync)) -> Result<(), Panicked> {
        match self.is_awake {
            true => self.workers.teams.run_awake(threads, work),
            false => self.workers.run(threads, work),
        }
    }
}

impl Workers {
    fn new(pool: Arc<ThreadPool>, teams: Arc<Teams>, stay_awake: bool) -> *mut Self {
        Box::into_raw(Box::new(Self { process: process::id(), pool, teams, stay_awake }))
    }

    /// Does work on the caller's thread and on up to `threads - 1` workers.
    pub(super) fn run(&self, threads: usize, work: &(dyn Fn(usize) + Sync)) -> Result<(), Panicked> {
        let stay_awake = self.stay_awake;
        let spawn = |teams: Arc<Teams>| {
            self.pool.spawn(move || {
                // Workers look for teams in different slots first, so that several teams share them.
                let first = rayon::current_thread_index().unwrap_or_default();
                if teams.help(first) && stay_awake {
                    awake::stay(&teams, first);
                }
            });
        };
        self.teams.run(threads, work, spawn)
    }
}

/// The teams of a caller's pool: all engines that have it share them, and so the jobs that wait in it.
fn teams_of(pool: &Arc<ThreadPool>) -> Arc<Teams> {
    static KNOWN: Mutex<Vec<(Weak<ThreadPool>, Weak<Teams>)>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock();
    // Jobs that wait keep their teams.
    known.retain(|(_, teams)| teams.strong_count() > 0);
    let of_pool = known.iter().find(|(known, _)| known.as_ptr() == Arc::as_ptr(pool));
    of_pool.and_then(|(_, teams)| teams.upgrade()).unwrap_or_else(|| {
        let teams = Arc::new(Teams::new(pool.current_num_threads()));
        known.push((Arc::downgrade(pool), Arc::downgrade(&teams)));
        teams
    })
}

impl Drop for EngineWorkers {
    fn drop(&mut self) {
        let workers = *self.slot.get_mut();
        // SAFETY: the address is null or came from `Workers::new`; no other reference to the engine is left.
        unsafe {
            // A child process cannot end the threads of its parent, so it leaks its copy of the pool.
            if workers.as_ref().is_some_and(|workers| workers.process == process::id()) {
                drop(Box::from_raw(workers));
            }
        }
    }
}

impl EngineWorkers {
    pub(super) fn new(WorkerOptions { threads, pool, stay_awake }: WorkerOptions) -> Self {
        let machine = || available_parallelism().map_or(1, NonZeroUsize::get);
        let of_pool = pool.as_ref().map(|pool| pool.current_num_threads());
        let most = thread_cap().min(MAX_ENGINE_THREADS).min(rayon::max_num_threads());
        let threads = threads.or(of_pool).unwrap_or_else(machine).min(most);
        let of_pool = |pool: Arc<ThreadPool>| {
            let teams = teams_of(&pool);
            Workers::new(pool, teams, false)
        };
        let stay_awake =
            stay_awake && pool.is_none() && (2..=machine()).contains(&threads) && awake::is_allowed();
        let slot = AtomicPtr::new(pool.map_or(ptr::null_mut(), of_pool));
        Self { threads, slot, pace: stay_awake.then(Pace::new) }
    }

    /// Number of threads that an execution may use, the caller's included.
    pub(super) fn threads(&self) -> usize {
        self.threads
    }

    /// True if an execution may use workers that are awake, but wakes none for itself alone.
    pub(super) fn is_small(&self, threading: Threading) -> bool {
        threading == Threading::AwakeWorkers && self.pace.is_some()
    }

    /// Notes that a small execution begins.
    pub(super) fn begin_small(&self, threading: Threading) -> Option<SmallExecution<'_>> {
        let pace = self.pace.as_ref().filter(|_| self.is_small(threading))?;
        Some(pace.begin())
    }

    /// The workers for a small execution: those that are awake, or those that are worth waking because the
    /// last execution ended a moment ago.
    pub(super) fn awake(&self, execution: &SmallExecution<'_>) -> Option<AwakeWorkers<'_>> {
        if !execution.is_only() {
            return None;
        }
        let address = self.slot.load(Ordering::Acquire);
        // SAFETY: the address is null or came from `Workers::new`, and is freed only with the engine.
        let started = unsafe { address.as_ref() };
        match started.filter(|workers| workers.teams.is_awake() && workers.process == process::id()) {
            Some(workers) => Some(AwakeWorkers { workers, is_awake: true }),
            None if execution.follows_soon() => {
                Some(AwakeWorkers { workers: self.started().ok()?, is_awake: false })
            }
            None => None,
        }
    }

    /// The workers that run everything except the caller's share of an execution.
    pub(super) fn started(&self) -> Result<&Workers> {
        let mut seen = self.slot.load(Ordering::Acquire);
        loop {
            // SAFETY: the address is null or came from `Workers::new`, and is freed only with the engine.
            if let Some(workers) = unsafe { seen.as_ref() }
                && workers.process == process::id()
            {
                return Ok(workers);
            }
            let pool = self.start()?;
            let teams = Arc::new(Teams::new(pool.current_num_threads()));
            let fresh = Workers::new(pool, teams, self.pace.is_some());
            match self.slot.compare_exchange(seen, fresh, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => seen = fresh,
                Err(other) => {
                    // SAFETY: the address came from `Workers::new` a moment ago, and no other thread has seen
                    // it.
                    drop(unsafe { Box::from_raw(fresh) });
                    seen = other;
                }
            }
        }
    }

    fn start(&self) -> Result<Arc<ThreadPool>> {
        let threads = self.threads.saturating_sub(1).max(1);
        let builder = ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("sterna-{i}"));
        builder.build().map(Arc::new).map_err(|_| Error::ThreadPool { threads })
    }
}

/// The largest number of threads that the environment allows.
fn thread_cap() -> usize {
    static CAP: OnceLock<usize> = OnceLock::new();
    *CAP.get_or_init(|| {
        let told = environment::NUM_THREADS.read().or_else(|| environment::OMP_NUM_THREADS.read());
        told.unwrap_or(usize::MAX).max(1)
    })
}
