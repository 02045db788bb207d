//! The native module `sterna._sterna` of the Python package. The folder `sterna` beside says which part of it
//! is public.
#![deny(unsafe_code)]

mod attention;
mod builder;
mod custom;
mod describe;
mod dtype;
mod engine;
mod error;
mod foreign;
mod graph;
mod log;
mod mapping;
mod profile;
mod reader;
mod run;
mod select;
mod session;
mod state;

/// The native part of the package.
#[pyo3::pymodule(gil_used = false)]
mod _sterna {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::attention::{attention, mask_tiles};
    #[pymodule_export]
    use crate::builder::{PyGraphBuilder, PyValue, schema};
    #[pymodule_export]
    use crate::engine::{Capacities, PyEngine, cache_stats, capacities};
    #[pymodule_export]
    use crate::graph::{PyCompiledPartition, PyGraph, PyPartition};
    #[pymodule_export]
    use crate::select::select;
    #[pymodule_export]
    use crate::session::{PySession, load};
    #[pymodule_export]
    use crate::state::PyState;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        crate::log::install(module.py())
    }
}
