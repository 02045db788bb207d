//! Engines: threads, kernels and caches.

use std::cell::RefCell;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use sterna::{Engine, Level};

thread_local! {
    /// The engines of the `with` blocks that this thread is in.
    static ENTERED: RefCell<Vec<Engine>> = const { RefCell::new(Vec::new()) };
}

/// An engine: threads, the widest kernels, and the capacities of caches.
///
/// As a context manager it is the engine of all calls of this thread in the block. Without one, calls run on
/// the engine that the process shares, with as many threads as the machine has.
///
/// Args:
///     threads: threads of an execution, the caller's included, at most 1024; None for all of the machine.
///     max_level: the widest kernels: "portable", "avx2", "avx512" or "neon"; None for what the machine has.
///     stay_awake: False forbids workers to stay awake for some 50 µs after work.
///     cache_capacity: plans that a cache of the engine's own keeps; None shares that of the process.
///     constant_cache_capacity: bytes of packed constants that may be kept; None shares those of the process.
///
/// Raises:
///     ValueError: for a level that does not exist.
///
/// >>> import numpy as np, sterna
/// >>> with sterna.Engine(threads=1) as engine:
/// ...     y = sterna.select(np.array([True, False]), 1.0, 0.0)
/// >>> engine.threads
/// 1
#[pyclass(frozen, module = "sterna", name = "Engine")]
pub(crate) struct PyEngine {
    pub(crate) engine: Engine,
}

#[pymethods]
impl PyEngine {
    #[new]
    #[pyo3(signature = (
        *, threads=None, max_level=None, stay_awake=true, cache_capacity=None, constant_cache_capacity=None
    ))]
    fn new(
        threads: Option<usize>,
        max_level: Option<&str>,
        stay_awake: bool,
        cache_capacity: Option<usize>,
        constant_cache_capacity: Option<usize>,
    ) -> PyResult<Self> {
        let mut builder = Engine::builder().stay_awake(stay_awake);
        if let Some(threads) = threads {
            builder = builder.threads(threads);
        }
        if let Some(level) = max_level {
            builder = builder.max_level(parsed::<Level>(level)?);
        }
        if let Some(plans) = cache_capacity {
            builder = builder.cache_capacity(plans);
        }
        if let Some(bytes) = constant_cache_capacity {
            builder = builder.constant_cache_capacity(bytes);
        }
        Ok(Self { engine: builder.build() })
    }

    /// Number of threads that an execution may use.
    #[getter]
    fn threads(&self) -> usize {
        self.engine.threads()
    }

    /// The level of kernels: "portable", "avx2", "avx512" or "neon".
    #[getter]
    fn level(&self) -> &'static str {
        self.engine.level().name()
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        ENTERED.with_borrow_mut(|entered| entered.push(slf.engine.clone()));
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, pyo3::types::PyTuple>) {
        ENTERED.with_borrow_mut(|entered| {
            if let Some(index) = entered.iter().rposition(|engine| engine.is_same(&self.engine)) {
                entered.remove(index);
            }
        });
    }

    fn __repr__(&self) -> String {
        format!("Engine(threads={}, level=\"{}\")", self.engine.threads(), self.engine.level())
    }
}

/// The engine of the innermost `with` block of this thread; `None` for the one that the process shares.
pub(crate) fn entered() -> Option<Engine> {
    ENTERED.with_borrow(|entered| entered.last().cloned())
}

/// The engine that is given, or that of the thread.
pub(crate) fn engine_of(given: Option<&PyEngine>) -> Engine {
    match given {
        Some(given) => given.engine.clone(),
        None => entered().unwrap_or_else(|| Engine::shared().clone()),
    }
}

/// A word of the library, such as a level.
pub(crate) fn parsed<T: std::str::FromStr>(word: &str) -> PyResult<T>
where
    T::Err: std::fmt::Display,
{
    word.parse().map_err(|error: T::Err| pyo3::exceptions::PyValueError::new_err(error.to_string()))
}

/// Hits, misses, entries and capacity of the cache of compiled partitions that engines share.
///
/// Returns:
///     A dict with the keys "hits", "misses", "entries" and "capacity".
///
/// >>> import sterna
/// >>> sorted(sterna.cache_stats())
/// ['capacity', 'entries', 'hits', 'misses']
#[pyfunction]
pub(crate) fn cache_stats(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let stats = sterna::compiled_partition_cache_stats();
    let shown = PyDict::new(py);
    shown.set_item("hits", stats.hits)?;
    shown.set_item("misses", stats.misses)?;
    shown.set_item("entries", stats.len)?;
    shown.set_item("capacity", sterna::compiled_partition_cache_capacity())?;
    Ok(shown)
}

/// Sets the capacities of the caches that engines share, for the rest of the process or a `with` block.
///
/// The return value is a context manager that puts back what was there before.
///
/// Args:
///     plans: plans of compiled partitions that are kept; 0 keeps none.
///     constant_bytes: bytes of packed constants that are kept.
///
/// >>> import sterna
/// >>> before = sterna.cache_stats()["capacity"]
/// >>> with sterna.capacities(plans=16):
/// ...     sterna.cache_stats()["capacity"]
/// 16
/// >>> sterna.cache_stats()["capacity"] == before
/// True
#[pyfunction]
#[pyo3(signature = (*, plans=None, constant_bytes=None))]
pub(crate) fn capacities(plans: Option<usize>, constant_bytes: Option<usize>) -> Capacities {
    let before = (
        plans.map(|_| sterna::compiled_partition_cache_capacity()),
        constant_bytes.map(|_| sterna::constant_cache_capacity()),
    );
    set((plans, constant_bytes));
    Capacities { before: Mutex::new(before) }
}

/// Puts capacities back at the end of a `with` block.
///
/// >>> import sterna
/// >>> with sterna.capacities(constant_bytes=1 << 20) as changed:
/// ...     type(changed).__name__
/// 'Capacities'
#[pyclass(frozen, module = "sterna", name = "Capacities")]
pub(crate) struct Capacities {
    before: Mutex<(Option<usize>, Option<usize>)>,
}

fn set((plans, constant_bytes): (Option<usize>, Option<usize>)) {
    if let Some(plans) = plans {
        sterna::set_compiled_partition_cache_capacity(plans);
    }
    if let Some(bytes) = constant_bytes {
        sterna::set_constant_cache_capacity(bytes);
    }
}

#[pymethods]
impl Capacities {
    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, pyo3::types::PyTuple>) {
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        set(std::mem::take(&mut before));
    }
}
