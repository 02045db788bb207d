//! The engine: the source of memory, and the threads on which partitions run.
#![allow(unsafe_code, reason = "allocators hand out raw memory")]

use std::fmt;
use std::num::NonZeroUsize;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::process;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::available_parallelism;

use parking_lot::Mutex;
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::awake::{self, Pace, SmallExecution};
use super::fork_join::{Panicked, Teams};
use super::profiler::Profiler;
use crate::error::{Error, Result};
use crate::plan::Threading;
use crate::types::features::CpuFeatures;
use crate::types::kind::Level;

/// Alignment of memory from an engine: a cache line, which is the widest vector too.
pub(crate) const ALIGNMENT: usize = 64;

/// Source of an engine's memory for tensors that it owns and for scratch.
///
/// # Safety
///
/// A block that `allocate` returns has at least `size` bytes, starts at a multiple of `align`, and belongs to
/// the caller alone until it is handed to `deallocate`.
///
/// ```
/// use std::ptr::NonNull;
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// use sterna::{Allocator, DataType, Engine, LogicalTensor, SystemAllocator, TensorBuf};
///
/// #[derive(Default)]
/// struct Counting(AtomicUsize);
///
/// // SAFETY: hands on what another allocator gives.
/// unsafe impl Allocator for Counting {
///     fn allocate(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
///         self.0.fetch_add(size, Ordering::Relaxed);
///         SystemAllocator.allocate(size, align)
///     }
///
///     unsafe fn deallocate(&self, block: NonNull<u8>, size: usize, align: usize) {
///         // SAFETY: as the caller promises.
///         unsafe { SystemAllocator.deallocate(block, size, align) }
///     }
/// }
///
/// let counting = Arc::new(Counting::default());
/// let engine = Engine::builder().allocator(counting.clone()).build();
/// TensorBuf::zeroed(LogicalTensor::strided(0, DataType::F32, &[8])?, &engine)?;
/// assert!(counting.0.load(Ordering::Relaxed) >= 32);
/// # Ok::<(), sterna::Error>(())
/// ```
pub unsafe trait Allocator: Send + Sync {
    /// A block of `size` bytes (at least 1) aligned to `align` (a power of two); `None` if there is none.
    fn allocate(&self, size: usize, align: usize) -> Option<NonNull<u8>>;

    /// Takes a block back.
    ///
    /// # Safety
    ///
    /// `block` came from `allocate` of this allocator with the same `size` and `align`, and is not used
    /// afterwards.
    unsafe fn deallocate(&self, block: NonNull<u8>, size: usize, align: usize);
}

/// Memory from Rust's global allocator.
///
/// ```
/// use std::sync::Arc;
/// use sterna::{Engine, SystemAllocator};
/// let engine = Engine::builder().allocator(Arc::new(SystemAllocator)).build(); // which is the default
/// # drop(engine);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemAllocator;

// SAFETY: `std::alloc::alloc` gives exactly what the trait requires.
unsafe impl Allocator for SystemAllocator {
    fn allocate(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        let layout =
            std::alloc::Layout::from_size_align(size, align).ok().filter(|layout| layout.size() > 0)?;
        // SAFETY: the size of the layout is not 0.
        NonNull::new(unsafe { std::alloc::alloc(layout) })
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, size: usize, align: usize) {
        // SAFETY: `allocate` made a valid layout of the same numbers.
        let layout = unsafe { std::alloc::Layout::from_size_align_unchecked(size, align) };
        // SAFETY: the caller promises that the block came from `allocate` with this layout.
        unsafe { std::alloc::dealloc(block.as_ptr(), layout) };
    }
}

/// The target of compilation and execution: a CPU with an allocator and a number of threads.
///
/// A clone is the same engine. Tensors, streams and compiled partitions of one engine do not mix with those
/// of another. Any thread may use an engine at any time.
///
/// The environment variable `STERNA_NUM_THREADS`, or `OMP_NUM_THREADS` if that is no number, caps the threads
/// of every engine; it is read once. A process may fork while an engine has workers, unless another thread is
/// inside a call at that moment; the child starts its own workers.
///
/// A panic, which only an allocator, a profiler or a hook of a caller's pool can begin, leaves an engine, its
/// streams and its compiled partitions as they were; they are [`UnwindSafe`], and work on.
///
/// ```
/// use sterna::Engine;
/// let engine = Engine::builder().threads(2).build();
/// assert!(engine.threads() <= 2);
/// ```
#[derive(Clone)]
pub struct Engine {
    inner: Arc<EngineInner>,
}

// What an engine changes is one address, in one step; and an allocator is called before anything is written
// and while no lock is held, so a panic of it leaves the engine as it was. What it leaves behind is its own
// matter, as with Rust's global allocator.
impl UnwindSafe for Engine {}
impl RefUnwindSafe for Engine {}

struct EngineInner {
    allocator: Arc<dyn Allocator>,
    threads: usize,
    level: Level,
    profiler: Option<Arc<dyn Profiler>>,
    /// Started at the first execution that is worth more than one thread, and kept as long as the engine. No
    /// lock guards them, because the child of a fork would wait for the thread that held it in the parent.
    workers: AtomicPtr<Workers>,
    /// If workers stay awake after work: when the engine was last used.
    pace: Option<Pace>,
}

/// Worker threads, and the process that they live in: a fork copies the pool, but none of its threads.
pub(super) struct Workers {
    process: u32,
    pool: Arc<ThreadPool>,
    teams: Arc<Teams>,
    /// Whether workers look for more work before they sleep.
    stay_awake: bool,
}

/// The workers that help a small execution.
pub(super) struct AwakeWorkers<'a> {
    workers: &'a Workers,
    /// Whether a worker is awake already, so that none need be woken.
    is_awake: bool,
}

impl AwakeWorkers<'_> {
    /// As [`Workers::run`].
    pub(super) fn run(&self, members: usize, work: &(dyn Fn(usize) + Sync)) -> Result<(), Panicked> {
        match self.is_awake {
            true => self.workers.teams.run_awake(members, work),
            false => self.workers.run(members, work),
        }
    }
}

impl Workers {
    fn new(pool: Arc<ThreadPool>, teams: Arc<Teams>, stay_awake: bool) -> *mut Self {
        Box::into_raw(Box::new(Self { process: process::id(), pool, teams, stay_awake }))
    }

    /// Does work on the caller's thread and on up to `members - 1` workers.
    pub(super) fn run(&self, members: usize, work: &(dyn Fn(usize) + Sync)) -> Result<(), Panicked> {
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
        self.teams.run(members, work, spawn)
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

impl Drop for EngineInner {
    fn drop(&mut self) {
        let workers = *self.workers.get_mut();
        // SAFETY: the address is null or came from `Workers::new`; no other reference to the engine is left.
        unsafe {
            // A child process cannot end the threads of its parent, so it leaks its copy of the pool.
            if workers.as_ref().is_some_and(|workers| workers.process == process::id()) {
                drop(Box::from_raw(workers));
            }
        }
    }
}

impl Engine {
    /// An engine with the system's allocator and as many threads as the machine runs at once.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Builds an engine with options.
    pub fn builder() -> EngineBuilder {
        EngineBuilder {
            allocator: Arc::new(SystemAllocator),
            threads: None,
            pool: None,
            stay_awake: true,
            level: Level::available(),
            profiler: None,
        }
    }

    /// The engine that all of the process share, as [`new`](Self::new) makes it: that of
    /// [`select`](fn@crate::select). It is made by the first call, and lives as long as the process.
    ///
    /// ```
    /// use sterna::Engine;
    /// assert!(Engine::shared().is_same(Engine::shared()));
    /// ```
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Engine> = OnceLock::new();
        SHARED.get_or_init(Self::new)
    }

    /// Number of threads that an execution may use, the caller's included.
    pub fn threads(&self) -> usize {
        self.inner.threads
    }

    /// The kernel level of partitions compiled for this engine.
    pub fn level(&self) -> Level {
        self.inner.level
    }

    /// The CPU features that kernels of this engine's level may use beside it.
    pub fn cpu_features(&self) -> CpuFeatures {
        CpuFeatures::available().within(self.inner.level)
    }

    /// The hook that is told what runs.
    #[inline]
    pub(super) fn profiler(&self) -> Option<&dyn Profiler> {
        self.inner.profiler.as_deref()
    }

    /// Whether two handles are one engine.
    pub fn is_same(&self, other: &Engine) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Whether an execution may use workers that are awake, but wakes none for itself alone.
    pub(super) fn is_small(&self, threading: Threading) -> bool {
        threading == Threading::AwakeWorkers && self.inner.pace.is_some()
    }

    /// Notes that a small execution begins.
    pub(super) fn begin_small(&self, threading: Threading) -> Option<SmallExecution<'_>> {
        let pace = self.inner.pace.as_ref().filter(|_| self.is_small(threading))?;
        Some(pace.begin())
    }

    /// The workers for a small execution: those that are awake, or those that are worth waking because the
    /// last execution ended a moment ago.
    pub(super) fn awake_workers(&self, execution: &SmallExecution<'_>) -> Option<AwakeWorkers<'_>> {
        if !execution.is_only() {
            return None;
        }
        let address = self.inner.workers.load(Ordering::Acquire);
        // SAFETY: the address is null or came from `Workers::new`, and is freed only with the engine.
        let started = unsafe { address.as_ref() };
        match started.filter(|workers| workers.teams.is_awake() && workers.process == process::id()) {
            Some(workers) => Some(AwakeWorkers { workers, is_awake: true }),
            None if execution.follows_soon() => {
                Some(AwakeWorkers { workers: self.workers().ok()?, is_awake: false })
            }
            None => None,
        }
    }

    /// The workers that run everything except the caller's share of an execution.
    pub(super) fn workers(&self) -> Result<&Workers> {
        let slot = &self.inner.workers;
        let mut seen = slot.load(Ordering::Acquire);
        loop {
            // SAFETY: the address is null or came from `Workers::new`, and is freed only with the engine.
            if let Some(workers) = unsafe { seen.as_ref() }
                && workers.process == process::id()
            {
                return Ok(workers);
            }
            let pool = self.start_workers()?;
            let teams = Arc::new(Teams::new(pool.current_num_threads()));
            let fresh = Workers::new(pool, teams, self.inner.pace.is_some());
            match slot.compare_exchange(seen, fresh, Ordering::AcqRel, Ordering::Acquire) {
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

    fn start_workers(&self) -> Result<Arc<ThreadPool>> {
        let threads = self.inner.threads.saturating_sub(1).max(1);
        let builder = ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("sterna-{i}"));
        builder.build().map(Arc::new).map_err(|_| Error::ThreadPool { threads })
    }

    /// Uninitialised memory from the engine's allocator.
    pub(crate) fn allocate(&self, size: usize) -> Result<Allocation> {
        let block = match size {
            0 => NonNull::without_provenance(NonZeroUsize::new(ALIGNMENT).expect("not zero")),
            _ => (self.inner.allocator.allocate(size, ALIGNMENT))
                .ok_or(Error::OutOfMemory { size, align: ALIGNMENT })?,
        };
        Ok(Allocation { block, size, allocator: self.inner.allocator.clone() })
    }
}

impl Default for Engine {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("threads", &self.inner.threads)
            .field("level", &self.inner.level)
            .finish_non_exhaustive()
    }
}

/// Options of an [`Engine`].
///
/// ```
/// use sterna::{Engine, Level};
/// let plain = Engine::builder().threads(1).max_level(Level::Portable).build();
/// assert_eq!((plain.threads(), plain.level()), (1, Level::Portable));
/// ```
pub struct EngineBuilder {
    allocator: Arc<dyn Allocator>,
    threads: Option<usize>,
    level: Level,
    pool: Option<Arc<ThreadPool>>,
    stay_awake: bool,
    profiler: Option<Arc<dyn Profiler>>,
}

// What it holds is handed on as it is.
impl UnwindSafe for EngineBuilder {}
impl RefUnwindSafe for EngineBuilder {}

impl EngineBuilder {
    /// Number of threads that an execution may use, the caller's included; 0 and 1 mean the caller's alone.
    /// Workers start with the first execution that is worth more than one thread. The environment may lower
    /// the number.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads.max(1));
        self
    }

    /// A rayon pool to use instead of the engine's own. Unless [`threads`](Self::threads) says otherwise, the
    /// engine uses as many threads as the pool has.
    pub fn pool(mut self, pool: Arc<ThreadPool>) -> Self {
        self.pool = Some(pool);
        self
    }

    /// Whether workers stay awake for some 50 µs after work, so that executions of 256 KiB to 8 MiB that
    /// follow each other soon use more than one thread. They do unless told otherwise, or the variable
    /// `STERNA_STAY_AWAKE` is `0`; they never do in a pool that the caller gave, nor if the engine has more
    /// threads than the machine runs at once.
    pub fn stay_awake(mut self, stay_awake: bool) -> Self {
        self.stay_awake = stay_awake;
        self
    }

    /// Source of memory for tensors and scratch.
    pub fn allocator(mut self, allocator: Arc<dyn Allocator>) -> Self {
        self.allocator = allocator;
        self
    }

    /// The widest level of kernels to use; the machine and `STERNA_MAX_CPU_ISA` may lower it.
    pub fn max_level(mut self, level: Level) -> Self {
        self.level = level.min(Level::available());
        self
    }

    /// A hook that is told of each phase and each execution. It costs two readings of the clock for each of
    /// them; without a hook, the clock is not read.
    pub fn profiler(mut self, profiler: Arc<dyn Profiler>) -> Self {
        self.profiler = Some(profiler);
        self
    }

    /// The engine.
    pub fn build(self) -> Engine {
        let machine = || available_parallelism().map_or(1, NonZeroUsize::get);
        let of_pool = self.pool.as_ref().map(|pool| pool.current_num_threads());
        let most = thread_cap().min(rayon::max_num_threads());
        let threads = self.threads.or(of_pool).unwrap_or_else(machine).min(most);
        let of_pool = |pool: Arc<ThreadPool>| {
            let teams = teams_of(&pool);
            Workers::new(pool, teams, false)
        };
        let stay_awake = self.stay_awake
            && self.pool.is_none()
            && (2..=machine()).contains(&threads)
            && awake::is_allowed();
        let pace = stay_awake.then(Pace::new);
        let workers = AtomicPtr::new(self.pool.map_or(ptr::null_mut(), of_pool));
        let (allocator, level, profiler) = (self.allocator, self.level, self.profiler);
        let inner = EngineInner { allocator, threads, level, profiler, workers, pace };
        Engine { inner: Arc::new(inner) }
    }
}

/// The largest number of threads that the environment allows.
fn thread_cap() -> usize {
    static CAP: OnceLock<usize> = OnceLock::new();
    *CAP.get_or_init(|| {
        let number = |name| std::env::var(name).ok()?.split(',').next()?.trim().parse::<usize>().ok();
        // OpenMP takes a list of numbers, one for each nesting level.
        number("STERNA_NUM_THREADS").or_else(|| number("OMP_NUM_THREADS")).unwrap_or(usize::MAX).max(1)
    })
}

impl fmt::Debug for EngineBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineBuilder").field("threads", &self.threads).finish_non_exhaustive()
    }
}

/// A block of memory from an engine's allocator, returned when dropped.
pub(crate) struct Allocation {
    block: NonNull<u8>,
    size: usize,
    allocator: Arc<dyn Allocator>,
}

impl Allocation {
    /// The first byte, aligned to [`ALIGNMENT`].
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.block.as_ptr()
    }

    /// The number of bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.size > 0 {
            // SAFETY: the block came from this allocator with these numbers, and is not used afterwards.
            unsafe { self.allocator.deallocate(self.block, self.size, ALIGNMENT) };
        }
    }
}

// The allocator is called when the block is dropped, once.
impl UnwindSafe for Allocation {}
impl RefUnwindSafe for Allocation {}

// SAFETY: an allocation owns its block as a `Box<[u8]>` does; the allocator may be called from any thread.
unsafe impl Send for Allocation {}
// SAFETY: a shared reference gives out the address alone.
unsafe impl Sync for Allocation {}
