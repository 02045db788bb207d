//! The engine: the source of memory, and what compilation and execution need to know of the machine.
#![allow(unsafe_code, reason = "allocators hand out raw memory")]

use std::any::Any;
use std::fmt;
use std::num::NonZeroUsize;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

#[cfg(feature = "threads")]
use rayon::ThreadPool;

use super::constant_budget::SharedBudget;
use super::profiler::Profiler;
use super::workers::{EngineWorkers, WorkerOptions};
use crate::error::{Error, Result};
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
/// of every engine; it is read once. A value that is no number is ignored, which a line on standard error
/// says; [`environment::faults`](crate::environment::faults) tells a program. A process may fork while an
/// engine has workers, unless another thread is inside a call at that moment; the child starts its own
/// workers. Without the feature `threads` an engine has no workers, and every execution runs on its caller's
/// thread.
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

// An engine changes one address, in one step. It calls an allocator before it writes anything and while it
// holds no lock, so a panic of the allocator leaves the engine as it was. The allocator's own state is the
// caller's concern, as with Rust's global allocator.
impl UnwindSafe for Engine {}
impl RefUnwindSafe for Engine {}

struct EngineInner {
    allocator: Arc<dyn Allocator>,
    level: Level,
    profiler: Option<Arc<dyn Profiler>>,
    workers: EngineWorkers,
    constant_budget: SharedBudget,
    own_cache: Option<OwnCache>,
}

/// A cache that only one engine uses, in the type of the layer that fills it.
struct OwnCache {
    capacity: usize,
    cache: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl Engine {
    /// An engine with the system's allocator and as many threads as the machine runs at once.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Builds an engine with options.
    #[must_use]
    pub fn builder() -> EngineBuilder {
        EngineBuilder {
            allocator: Arc::new(SystemAllocator),
            workers: WorkerOptions::default(),
            level: Level::available(),
            profiler: None,
            constant_budget: SharedBudget::default(),
            cache_capacity: None,
        }
    }

    /// The engine that all of the process share, as [`new`](Self::new) makes it: that of
    /// [`select`](fn@crate::select). It is made by the first call, and lives as long as the process.
    ///
    /// ```
    /// use sterna::Engine;
    /// assert!(Engine::shared().is_same(Engine::shared()));
    /// ```
    #[must_use]
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Engine> = OnceLock::new();
        SHARED.get_or_init(Self::new)
    }

    /// Number of threads that an execution may use, the caller's included.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.inner.workers.threads()
    }

    /// The kernel level of partitions compiled for this engine.
    #[must_use]
    pub fn level(&self) -> Level {
        self.inner.level
    }

    /// The CPU features that kernels of this engine's level may use beside it.
    #[must_use]
    pub fn cpu_features(&self) -> CpuFeatures {
        CpuFeatures::available().within(self.inner.level)
    }

    /// The hook that is told what runs.
    #[inline]
    pub(super) fn profiler(&self) -> Option<&dyn Profiler> {
        self.inner.profiler.as_deref()
    }

    /// True if two handles are one engine.
    #[must_use]
    pub fn is_same(&self, other: &Engine) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// The bytes that compiled partitions may keep of constant inputs.
    pub(super) fn constant_budget(&self) -> &SharedBudget {
        &self.inner.constant_budget
    }

    /// True if compiled partitions may keep what they make of constant inputs.
    pub(crate) fn keeps_constants(&self) -> bool {
        self.constant_budget().keeps_any()
    }

    /// True if compiled partitions may keep so many more bytes of what they make of constant inputs.
    pub(crate) fn has_room_for_constants(&self, bytes: usize) -> bool {
        self.constant_budget().has_room(bytes)
    }

    /// The engine's own cache, which the first call makes for the capacity; `None` if the engine uses that of
    /// the process.
    pub(crate) fn own_cache<T: Any + Send + Sync>(&self, make: impl FnOnce(usize) -> T) -> Option<&T> {
        let OwnCache { capacity, cache } = self.inner.own_cache.as_ref()?;
        let made: &(dyn Any + Send + Sync) = &**cache.get_or_init(|| Box::new(make(*capacity)));
        made.downcast_ref()
    }

    /// The engine's workers.
    pub(super) fn workers(&self) -> &EngineWorkers {
        &self.inner.workers
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
            .field("threads", &self.threads())
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
    level: Level,
    workers: WorkerOptions,
    profiler: Option<Arc<dyn Profiler>>,
    constant_budget: SharedBudget,
    cache_capacity: Option<usize>,
}

// A builder only hands its parts on, so a panic leaves none of them half changed.
impl UnwindSafe for EngineBuilder {}
impl RefUnwindSafe for EngineBuilder {}

impl EngineBuilder {
    /// Number of threads that an execution may use, the caller's included; 0 and 1 mean the caller's alone.
    /// Workers start with the first execution that is worth more than one thread. An engine has 1,024 threads
    /// at most. The environment may lower the number, and a build without the feature `threads` has the
    /// caller's alone.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.workers.threads = Some(threads.max(1));
        self
    }

    /// A rayon pool to use instead of the engine's own. Unless [`threads`](Self::threads) says otherwise, the
    /// engine uses as many threads as the pool has.
    #[cfg(feature = "threads")]
    #[must_use]
    pub fn pool(mut self, pool: Arc<ThreadPool>) -> Self {
        self.workers.pool = Some(pool);
        self
    }

    /// Lets workers stay awake for some 50 µs after work, so that executions of 256 KiB to 8 MiB that follow
    /// each other soon use more than one thread. The default is `true`; `false` forbids it, as does the value
    /// `0` of the variable `STERNA_STAY_AWAKE`. Workers never stay awake in a pool that the caller gave, nor
    /// if the engine has more threads than the machine runs at once.
    #[must_use]
    pub fn stay_awake(mut self, stay_awake: bool) -> Self {
        self.workers.stay_awake = stay_awake;
        self
    }

    /// Source of memory for tensors and scratch.
    #[must_use]
    pub fn allocator(mut self, allocator: Arc<dyn Allocator>) -> Self {
        self.allocator = allocator;
        self
    }

    /// The widest level of kernels to use; the machine and `STERNA_MAX_CPU_ISA` may lower it.
    #[must_use]
    pub fn max_level(mut self, level: Level) -> Self {
        self.level = level.or_available();
        self
    }

    /// A hook that is told of each phase and each execution. It costs two readings of the clock for each of
    /// them; without a hook, the clock is not read.
    #[must_use]
    pub fn profiler(mut self, profiler: Arc<dyn Profiler>) -> Self {
        self.profiler = Some(profiler);
        self
    }

    /// Gives the engine a cache of compiled partitions of its own, which keeps so many plans; 0 keeps none,
    /// so that each compilation is made anew. Other engines share the cache of the process, which has room
    /// for 1024. [`compiled_partition_cache_stats`](crate::compiled_partition_cache_stats) tells of that
    /// alone.
    ///
    /// ```
    /// use sterna::{DataType, Engine, LogicalTensor, Op, OpKind, Partition};
    /// let engine = Engine::builder().cache_capacity(16).build();
    /// let tensor = |id| LogicalTensor::strided(id, DataType::F32, &[4]);
    /// let op = Op::new(0, OpKind::Exp).input(tensor(0)?).output(tensor(1)?);
    /// Partition::from_op(op)?.compile(&engine)?;
    /// assert_eq!(sterna::compiled_partition_cache_stats().misses, 0);
    /// # Ok::<(), sterna::Error>(())
    /// ```
    #[must_use]
    pub fn cache_capacity(mut self, plans: usize) -> Self {
        self.cache_capacity = Some(plans);
        self
    }

    /// Sets the most bytes that the engine's compiled partitions keep of inputs of property
    /// [`Constant`](crate::Property::Constant); 0 keeps nothing. Other engines share what the process has,
    /// half of the memory that the process may use, unless a capacity is set.
    ///
    /// The first execution of a compiled partition packs what a product reads of constant inputs alone, and
    /// later executions with the same addresses read the packed copy. So the contents must not change as long
    /// as the compiled partition is in use. Another address means packing again. The copy belongs to the
    /// compiled partition, and comes from its engine's allocator. If the capacity is used up or the allocator
    /// has no memory, each execution packs for itself.
    #[must_use]
    pub fn constant_cache_capacity(mut self, bytes: usize) -> Self {
        self.constant_budget = SharedBudget::own(bytes);
        self
    }

    /// The engine.
    #[must_use]
    pub fn build(self) -> Engine {
        let workers = EngineWorkers::new(self.workers);
        let Self { allocator, level, profiler, constant_budget, cache_capacity, .. } = self;
        let own_cache = cache_capacity.map(|capacity| OwnCache { capacity, cache: OnceLock::new() });
        let inner = EngineInner { allocator, level, profiler, workers, constant_budget, own_cache };
        Engine { inner: Arc::new(inner) }
    }
}

impl fmt::Debug for EngineBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineBuilder").field("threads", &self.workers.threads).finish_non_exhaustive()
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
