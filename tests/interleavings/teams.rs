//! Promise: in whatever order callers and workers come, all work of a call is done when the call returns, no
//! thread is at work on it afterwards, at most one job a worker waits, and a waiting job joins the team that
//! is open when the job begins.
//!
//! loom runs each model under every order in which the threads can touch shared memory, with a bounded number
//! of preemptions. It compiles the library's file of the teams, with loom's atomics and cells.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fork_join::Teams;

#[allow(unreachable_pub, dead_code, reason = "the library uses all of it")]
#[allow(clippy::absurd_extreme_comparisons, reason = "spins are 0 here")]
#[path = "../../src/execute/fork_join.rs"]
mod fork_join;

/// The primitives by which teams share, watched.
mod sync {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::atomic::{AtomicUsize, Ordering};
    pub(crate) use loom::thread::{Thread, current, park, yield_now as pause};

    /// To look again and again is no other order.
    pub(crate) const SPINS: usize = 0;

    /// One slot for each of two callers.
    pub(crate) const MIN_SLOTS: usize = 2;
}

/// How often a thread is interrupted where it could go on: all orders of three threads are too many.
const PREEMPTIONS: usize = 2;

/// Runs a model in every order with so few interruptions, and says how many there were.
fn explore(name: &str, model: impl Fn() + Send + Sync + 'static) {
    let orders = Arc::new(AtomicUsize::new(0));
    let counted = orders.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let orders = orders.load(Ordering::Relaxed);
    println!("{name}: {orders} orders");
    assert!(orders > 1, "{name}: only one order");
}

/// Work of some shares, each taken once, and who took them. The shares are cells: to take one twice, or after
/// the call, is a fault that loom sees.
struct Work {
    next: loom::sync::atomic::AtomicUsize,
    shares: [loom::cell::UnsafeCell<bool>; 2],
    members: [loom::sync::atomic::AtomicUsize; 3],
}

// SAFETY: each share is touched by who took it, and by the caller when nobody works; loom watches that.
unsafe impl Sync for Work {}

impl Work {
    fn new() -> Self {
        Self {
            next: loom::sync::atomic::AtomicUsize::new(0),
            shares: std::array::from_fn(|_| loom::cell::UnsafeCell::new(false)),
            members: std::array::from_fn(|_| loom::sync::atomic::AtomicUsize::new(0)),
        }
    }

    fn take_all(&self, member: usize) {
        let times = self.members[member].fetch_add(1, Ordering::Relaxed);
        assert_eq!(times, 0, "two members of one number");
        loop {
            let share = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(share) = self.shares.get(share) else { return };
            // SAFETY: the count gives each share out once.
            share.with_mut(|share| unsafe { *share = true });
        }
    }

    /// Runs the work in a team; when the call is back, all of it is done and nobody is at it.
    fn run(self, teams: &Arc<Teams>, members: usize, spawn: impl Fn(Arc<Teams>)) -> [usize; 3] {
        let result = teams.run(members, &|member| self.take_all(member), spawn);
        result.expect("nobody panics");
        self.done()
    }

    /// How often each member worked, when all of it is done and nobody is at it.
    fn done(self) -> [usize; 3] {
        for share in &self.shares {
            // SAFETY: nobody works any more, or loom says so.
            assert!(share.with(|share| unsafe { *share }), "a share that nobody took");
        }
        self.members.map(|member| member.load(Ordering::Relaxed))
    }
}

/// A worker that comes at any time.
fn come(teams: Arc<Teams>) {
    loom::thread::spawn(move || teams.help(0));
}

#[test]
fn a_call_returns_when_all_is_done_and_nobody_works() {
    for members in 2..=3 {
        let joined = Arc::new(AtomicUsize::new(0));
        let seen = joined.clone();
        explore(&format!("{members} members"), move || {
            let teams = Arc::new(Teams::new(members - 1));
            let by = Work::new().run(&teams, members, come);
            assert_eq!(by[0], 1, "the caller works");
            seen.fetch_max(by[1..].iter().sum(), Ordering::Relaxed);
        });
        assert_eq!(joined.load(Ordering::Relaxed), members - 1, "workers join in some order");
    }
}

#[test]
fn a_job_joins_a_later_team_too() {
    let joined = Arc::new(AtomicUsize::new(0));
    let seen = joined.clone();
    explore("two calls, one job", move || {
        let teams = Arc::new(Teams::new(1));
        // The job comes at any time from the first call on; whether another is spawned for the second one
        // depends on that.
        let first = Work::new().run(&teams, 2, come);
        let second = Work::new().run(&teams, 2, |teams| {
            // That the second job never comes shows what the first one does.
            drop(teams);
        });
        seen.fetch_or(first[1] | second[1] << 1, Ordering::Relaxed);
    });
    assert_eq!(joined.load(Ordering::Relaxed), 0b11, "the job joins either team");
}

#[test]
fn a_worker_that_is_awake_joins_teams_without_a_job() {
    let joined = Arc::new(AtomicUsize::new(0));
    let seen = joined.clone();
    explore("two calls, one worker that is awake", move || {
        let teams = Arc::new(Teams::new(1));
        let awake = teams.clone();
        let worker = loom::thread::spawn(move || {
            let mut looks = 0;
            awake.stay_awake(0, |_| {
                looks += 1;
                looks > 2
            });
        });
        for call in 0..2 {
            let work = Work::new();
            teams.run_awake(2, &|member| work.take_all(member)).expect("nobody panics");
            let by = work.done();
            assert_eq!(by[0], 1, "the caller works");
            seen.fetch_or(by[1] << call, Ordering::Relaxed);
        }
        worker.join().expect("no thread panics");
        assert!(!teams.is_awake());
    });
    assert_eq!(joined.load(Ordering::Relaxed), 0b11, "the worker joins either team");
}

#[test]
fn callers_at_once_take_slots_of_their_own() {
    explore("two callers", || {
        let teams = Arc::new(Teams::new(1));
        let other = teams.clone();
        // No worker comes: callers alone take slots and leave them.
        let caller = loom::thread::spawn(move || Work::new().run(&other, 2, drop));
        let own = Work::new().run(&teams, 2, drop);
        let others = caller.join().expect("no thread panics");
        assert_eq!((own, others), ([1, 0, 0], [1, 0, 0]));
    });
}

#[test]
fn no_team_misses_a_job_that_waits() {
    explore("a call as a job begins", || {
        let teams = Arc::new(Teams::new(1));
        let spawned = Arc::new(AtomicUsize::new(0));
        let count = |_: Arc<Teams>| {
            spawned.fetch_add(1, Ordering::Relaxed);
        };
        // A job waits, and begins while another call asks for help and then waits for it.
        Work::new().run(&teams, 2, count);
        assert_eq!(spawned.load(Ordering::Relaxed), 1);
        let begun = teams.clone();
        let worker = loom::thread::spawn(move || begun.help(0));
        let joined = Arc::new(loom::sync::Notify::new());
        let (spawned_before, there) = (spawned.load(Ordering::Relaxed), joined.clone());
        let work = |member: usize| match member {
            // Without another job, the one that waits must come.
            0 if spawned.load(Ordering::Relaxed) == spawned_before => joined.wait(),
            0 => {}
            _ => there.notify(),
        };
        teams.run(2, &work, count).expect("nobody panics");
        worker.join().expect("no thread panics");
    });
}

#[test]
fn jobs_that_wait_are_no_more_than_workers() {
    let mut builder = loom::model::Builder::new();
    // One order of many calls.
    builder.max_branches = 10_000;
    builder.check(|| {
        for workers in 1..=3 {
            let teams = Arc::new(Teams::new(workers));
            let spawned = AtomicUsize::new(0);
            for _ in 0..5 {
                for members in 2..=3 {
                    Work::new().run(&teams, members, |_| {
                        spawned.fetch_add(1, Ordering::Relaxed);
                    });
                }
            }
            assert_eq!(spawned.load(Ordering::Relaxed), workers);
            // A job that has begun makes room for another.
            teams.help(0);
            Work::new().run(&teams, 3, |_| {
                spawned.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(spawned.load(Ordering::Relaxed), workers + 1);
        }
    });
}
