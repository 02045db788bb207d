//! The handles of partitions and compiled partitions; functions of both nouns take them.

use std::sync::OnceLock;

use crate::engine::Shared;
use crate::fallback::Fallback;
use crate::ffi::Fault;

/// Ops of a graph that run as one, or one op that no kernel runs.
///
/// Any thread may use it at any time. It does not need its graph any more.
pub struct Partition {
    pub(crate) core: sterna::Partition,
}

impl Partition {
    /// The partition behind the handle.
    pub fn core(&self) -> &sterna::Partition {
        &self.core
    }

    pub(crate) fn new(core: sterna::Partition) -> Self {
        Self { core }
    }
}

/// Two tensors that may share one buffer: the output replaces the input. The layout is that of
/// `dnnl_graph_inplace_pair_t`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct InplacePair {
    /// The id of the input.
    pub input_id: usize,
    /// The id of the output.
    pub output_id: usize,
}

/// Numbers of tiles of 64 queries × 64 keys of masked scores, by what enters SoftMax.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct MaskTileCounts {
    /// Tiles of −∞ alone, which are left out.
    pub masked: usize,
    /// Tiles of one finite number, which are left out if their weights are 0.
    pub constant: usize,
    /// Tiles between whose elements no condition and no mask decides.
    pub full: usize,
    /// All other tiles.
    pub partial: usize,
}

/// A partition compiled for concrete tensors, to be executed any number of times.
///
/// Functions that take it as `const` may be called from any number of threads at once; executions then run at
/// once. `sterna_partition_compile` and `sterna_compiled_partition_destroy` need sole access.
pub struct CompiledPartition {
    pub(crate) partition: sterna::Partition,
    compiled: Option<(sterna::CompiledPartition, Shared)>,
    pub(crate) inplace_pairs: Vec<InplacePair>,
    /// Made by the first call that asks for them.
    fallbacks: OnceLock<Vec<Fallback>>,
}

impl CompiledPartition {
    /// A handle without a compiled partition.
    pub(crate) fn new(partition: sterna::Partition) -> Self {
        Self { partition, compiled: None, inplace_pairs: Vec::new(), fallbacks: OnceLock::new() }
    }

    /// The compiled partition behind the handle, once it has been compiled.
    pub fn core(&self) -> Result<&sterna::CompiledPartition, Fault> {
        Ok(&self.compiled()?.0)
    }

    /// The fast forms that its plan did not take.
    pub(crate) fn fallbacks(&self) -> Result<&[Fallback], Fault> {
        let compiled = self.core()?;
        Ok(self.fallbacks.get_or_init(|| compiled.plan().fallbacks.iter().map(Fallback::of).collect()))
    }

    /// The engine for which it was compiled.
    pub(crate) fn engine(&self) -> Result<&Shared, Fault> {
        Ok(&self.compiled()?.1)
    }

    fn compiled(&self) -> Result<&(sterna::CompiledPartition, Shared), Fault> {
        #[cold]
        fn is_empty() -> Fault {
            Fault::invalid_arguments(
                "the compiled partition has not been compiled yet; call `sterna_partition_compile` first",
            )
        }
        self.compiled.as_ref().ok_or_else(is_empty)
    }

    pub(crate) fn fill(&mut self, compiled: sterna::CompiledPartition, engine: Shared) {
        let pair = |pair: &sterna::InPlacePair| InplacePair {
            input_id: pair.input.get(),
            output_id: pair.output.get(),
        };
        self.inplace_pairs = compiled.in_place_pairs().iter().map(pair).collect();
        self.compiled = Some((compiled, engine));
        self.fallbacks = OnceLock::new();
    }
}
