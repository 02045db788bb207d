//! Promise: in whatever order threads come to the cache of compiled partitions, a value is made once, each
//! thread gets the value of its own key, no failure is kept, the capacity is kept to, and nobody waits for
//! ever.
//!
//! loom runs each model under every order in which its threads can take their locks. It sees the file of the
//! cache as it stands, with locks of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::sync::Notify;
use once_cache::OnceCache;

#[allow(unreachable_pub, reason = "the library hands out some of this")]
#[path = "../../src/compile/once_cache.rs"]
mod once_cache;

/// The locks of the cache, with the methods of those that the library takes.
mod sync {
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().expect("a thread that panics ends the model")
        }
    }

    /// Whoever comes second waits for the first, as with the one of the standard library.
    pub(crate) struct OnceLock<T>(Mutex<Option<T>>);

    impl<T: Clone> OnceLock<T> {
        pub(crate) fn get_or_init(&self, init: impl FnOnce() -> T) -> T {
            self.0.lock().get_or_insert_with(init).clone()
        }
    }

    impl<T> Default for OnceLock<T> {
        fn default() -> Self {
            Self(Mutex::new(None))
        }
    }
}

/// The value under a key: the key, and the how-many-th making it came from.
#[derive(Debug, PartialEq, Eq)]
struct Made {
    key: u32,
    making: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Failed;

type Answer = Result<Arc<Made>, Failed>;

/// A cache, and how often something was made for it.
struct Subject {
    cache: OnceCache<u32, Made, Failed>,
    makings: AtomicUsize,
    /// The makings that fail.
    failures: usize,
}

impl Subject {
    fn new(capacity: usize, failures: usize) -> Arc<Self> {
        Arc::new(Self { cache: OnceCache::new(capacity), makings: AtomicUsize::new(0), failures })
    }

    /// Asks for a key, whose value knows that it was made for it.
    fn ask(&self, key: u32) -> Answer {
        let answer = self.cache.get_or_make(&key, || {
            let making = self.makings.fetch_add(1, Ordering::SeqCst);
            if making < self.failures { Err(Failed) } else { Ok(Made { key, making }) }
        });
        if let Ok(made) = &answer {
            assert_eq!(made.key, key, "the value of another key");
        }
        answer
    }

    fn makings(&self) -> usize {
        self.makings.load(Ordering::SeqCst)
    }

    /// Whoever asked is counted, as one who made a value or as one who found it.
    fn assert_counts(&self, asked: usize) {
        let stats = self.cache.stats();
        assert_eq!(stats.misses, self.makings() as u64, "{stats:?}");
        assert_eq!(stats.hits + stats.misses, asked as u64, "{stats:?}");
        assert!(stats.len <= self.cache.capacity(), "{stats:?}");
    }
}

/// Runs a model in every order there is, and says how many there were.
fn explore(name: &str, model: impl Fn() + Send + Sync + 'static) {
    let orders = Arc::new(AtomicUsize::new(0));
    let counted = orders.clone();
    loom::model(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let orders = orders.load(Ordering::Relaxed);
    println!("{name}: {orders} orders");
    assert!(orders > 1, "{name}: only one order");
}

/// Asks for each key on a thread of its own, the last one on this one.
fn ask_at_once(subject: &Arc<Subject>, keys: &[u32]) -> Vec<Answer> {
    let (&last, others) = keys.split_last().expect("somebody asks");
    let threads: Vec<_> = others
        .iter()
        .map(|&key| {
            let subject = subject.clone();
            loom::thread::spawn(move || subject.ask(key))
        })
        .collect();
    let own = subject.ask(last);
    threads.into_iter().map(|thread| thread.join().expect("no thread panics")).chain([own]).collect()
}

#[test]
fn threads_that_miss_one_key_make_it_once() {
    for threads in 2..=3 {
        explore(&format!("one key, {threads} threads"), move || {
            let subject = Subject::new(4, 0);
            let answers = ask_at_once(&subject, &vec![7; threads]);
            assert_eq!(subject.makings(), 1);
            assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
            subject.assert_counts(threads);
            assert_eq!(subject.cache.stats().len, 1);
        });
    }
}

#[test]
fn a_failure_is_not_kept_and_takes_nothing_else_away() {
    for (threads, failures) in [(2, 1), (3, 1), (3, 2), (3, 3)] {
        explore(&format!("{failures} failures, {threads} threads"), move || {
            let subject = Subject::new(4, failures);
            let answers = ask_at_once(&subject, &vec![7; threads]);
            subject.assert_counts(threads);
            let made: Vec<_> = answers.into_iter().flatten().collect();
            assert!(made.iter().all(|value| Arc::ptr_eq(value, &made[0])), "{made:?}");
            // A value that was made is still there, and a failure is not.
            assert_eq!(subject.cache.stats().len, usize::from(!made.is_empty()));
            assert_eq!(subject.makings(), failures.min(subject.makings()) + usize::from(!made.is_empty()));
            if let Some(made) = made.first() {
                assert!(subject.ask(7).is_ok_and(|again| Arc::ptr_eq(&again, made)));
            }
        });
    }
}

#[test]
fn whoever_asks_gets_the_value_even_as_it_is_dropped() {
    let rows: [(&str, usize, &[u32]); 5] = [
        ("one place, two keys", 1, &[0, 1]),
        ("one place, one key and another", 1, &[0, 1, 0]),
        ("one place, three keys", 1, &[0, 1, 2]),
        ("two places, three keys", 2, &[0, 1, 2]),
        ("no place", 0, &[0, 0, 1]),
    ];
    for (name, capacity, keys) in rows {
        explore(name, move || {
            let subject = Subject::new(capacity, 0);
            for (answer, &key) in ask_at_once(&subject, keys).into_iter().zip(keys) {
                assert_eq!(answer.map(|made| made.key), Ok(key));
            }
            subject.assert_counts(keys.len());
            assert_eq!(subject.cache.stats().len, capacity);
        });
    }
}

#[test]
fn a_failure_beside_an_eviction_takes_nothing_else_away() {
    explore("one place, two keys, one failure", || {
        let subject = Subject::new(1, 1);
        let answers = ask_at_once(&subject, &[0, 1, 0]);
        subject.assert_counts(3);
        // Where the last to ask for a place got a value, the value is in it.
        let kept = subject.cache.stats().len;
        assert!(answers.iter().all(Result::is_err) || kept <= 1, "{answers:?}");
        let makings = subject.makings();
        let again = [subject.ask(0), subject.ask(1)];
        assert!(again.iter().all(Result::is_ok), "{again:?}");
        assert!(subject.makings() - makings >= 2 - kept);
    });
}

#[test]
fn the_capacity_may_change_meanwhile() {
    for (from, to, failures) in [(4, 0, 0), (4, 0, 1), (2, 1, 0), (0, 2, 0), (0, 1, 1)] {
        explore(&format!("capacity from {from} to {to}, {failures} failures"), move || {
            let subject = Subject::new(from, failures);
            let other = subject.clone();
            let resizing = loom::thread::spawn(move || other.cache.set_capacity(to));
            let answers = ask_at_once(&subject, &[0, 0]);
            resizing.join().expect("no thread panics");
            assert!(answers.iter().filter(|answer| answer.is_err()).count() <= 2 * failures, "{answers:?}");
            assert_eq!(subject.cache.capacity(), to);
            subject.assert_counts(2);
        });
    }
}

#[test]
fn nobody_waits_for_another_key() {
    explore("a making that waits for another key", || {
        let subject = Subject::new(4, 0);
        let made = Arc::new(Notify::new());
        let (waiting, awaited) = (subject.clone(), made.clone());
        let thread = loom::thread::spawn(move || {
            waiting.cache.get_or_make(&0, || {
                awaited.wait();
                // While it makes a value, a thread may ask the cache for other things.
                assert!(waiting.cache.stats().len <= waiting.cache.capacity());
                Ok(Made { key: 0, making: 0 })
            })
        });
        assert_eq!(subject.ask(1).map(|made| made.key), Ok(1));
        made.notify();
        assert_eq!(thread.join().expect("no thread panics").map(|made| made.key), Ok(0));
    });
}
