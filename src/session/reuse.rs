//! Parts of plans that later plans of the session take over, for other lengths of some inputs.

use std::hash::{Hash, Hasher};
use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::error::Result;
use crate::execute::compiled::CompiledPartition;
use crate::execute::sequence::bytes;
use crate::graph::logical_tensor::LogicalTensor;
use crate::partition::Partition;
use crate::types::constant_data::ConstantData;

/// The most compiled partitions that a session keeps beside those of its plans.
const MAX_COMPILED: NonZeroUsize = NonZeroUsize::new(1024).expect("it is not 0");

/// The most bytes that a session keeps of results of constants, beside those of its plans.
const MAX_FOLDED_BYTES: usize = 256 << 20;

/// The computation of a partition on tensors of given descriptions.
#[derive(Clone)]
pub(super) struct ComputationKey {
    /// The partition in the form in which it runs.
    form: Partition,
    ports: Vec<LogicalTensor>,
    /// The addresses of constants on which the results depend.
    constants: Vec<usize>,
}

impl ComputationKey {
    pub(super) fn new(partition: &Partition, inputs: &[LogicalTensor], outputs: &[LogicalTensor]) -> Self {
        let refs: Vec<&LogicalTensor> = inputs.iter().collect();
        let ports = inputs.iter().chain(outputs).cloned().collect();
        Self { form: partition.form_for(&refs).clone(), ports, constants: Vec::new() }
    }
}

impl PartialEq for ComputationKey {
    fn eq(&self, other: &Self) -> bool {
        self.ports == other.ports
            && self.constants == other.constants
            && self.form.signature() == other.form.signature()
    }
}

impl Eq for ComputationKey {}

impl Hash for ComputationKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.form.signature().hash(state);
        self.ports.hash(state);
        self.constants.hash(state);
    }
}

/// The compiled partitions of a session, by computation. One that does not see the length that changes from
/// plan to plan is compiled once, and so are its copies of constants.
pub(super) struct CompiledCache(Mutex<LruCache<ComputationKey, CompiledPartition, FxBuildHasher>>);

impl Default for CompiledCache {
    fn default() -> Self {
        Self(Mutex::new(LruCache::with_hasher(MAX_COMPILED, FxBuildHasher)))
    }
}

impl CompiledCache {
    /// The compiled partition of a key, which is made if there is none.
    pub(super) fn get_or_make(
        &self,
        key: ComputationKey,
        make: impl FnOnce() -> Result<CompiledPartition>,
    ) -> Result<CompiledPartition> {
        if let Some(compiled) = self.0.lock().get(&key) {
            return Ok(compiled.clone());
        }
        let compiled = make()?;
        // The one that makes room is dropped when the lock is free, since an allocator is the caller's code.
        let before = self.0.lock().push(key, compiled.clone());
        drop(before);
        Ok(compiled)
    }
}

/// Results of a partition of constants, with the constants that it has read: their addresses belong to no
/// others meanwhile.
struct FoldedResults {
    _read: Vec<ConstantData>,
    results: Vec<ConstantData>,
}

/// The results of partitions of constants alone.
#[derive(Default)]
pub(super) struct FoldCache(Mutex<FoldedState>);

#[derive(Default)]
struct FoldedState {
    entries: FxHashMap<ComputationKey, FoldedResults>,
    bytes: usize,
}

impl FoldCache {
    /// The results of a computation on constants, which are computed if they are not known.
    pub(super) fn get_or_make(
        &self,
        key: ComputationKey,
        read: Vec<ConstantData>,
        make: impl FnOnce() -> Result<Vec<ConstantData>>,
    ) -> Result<Vec<ConstantData>> {
        let constants = read.iter().map(|data| data.bytes().as_ptr().addr()).collect();
        let size = key.ports.iter().map(bytes).fold(0, usize::saturating_add);
        let key = ComputationKey { constants, ..key };
        if let Some(known) = self.0.lock().entries.get(&key) {
            return Ok(known.results.clone());
        }
        let results = make()?;
        let mut state = self.0.lock();
        let is_full = state.bytes.saturating_add(size) > MAX_FOLDED_BYTES;
        // Dropped when the lock is free.
        let dropped = is_full.then(|| std::mem::take(&mut *state));
        state.bytes = state.bytes.saturating_add(size);
        state.entries.insert(key, FoldedResults { _read: read, results: results.clone() });
        drop(state);
        drop(dropped);
        Ok(results)
    }
}
