//! Parts of plans that later plans of the session take over, for other lengths of some inputs.

use std::hash::{Hash, Hasher};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::execute::compiled::CompiledPartition;
use crate::execute::sequence::bytes;
use crate::graph::Graph;
use crate::graph::logical_tensor::LogicalTensor;
use crate::partition::{Partition, resized};
use crate::types::constant_data::ConstantData;
use crate::types::kind::Policy;

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

/// The partitions of a graph. One that differs in sizes alone from the last one, with its partitions, is not
/// cut anew.
pub(super) fn partitions(graph: &Graph, last: Option<(&Graph, &[Partition])>) -> Result<Vec<Partition>> {
    let same = last.and_then(|(last, partitions)| resized::partitions(graph, last, partitions));
    match same {
        Some(same) => {
            debug_assert!(is_cut_of(graph, &same), "the cut is that of the graph");
            Ok(same)
        }
        None => graph.partitions(Policy::Fusion),
    }
}

/// True if partitions are those into which a graph is cut.
fn is_cut_of(graph: &Graph, partitions: &[Partition]) -> bool {
    let anew = graph.partitions(Policy::Fusion);
    anew.is_ok_and(|anew| {
        anew.len() == partitions.len() && anew.iter().zip(partitions).all(|(anew, own)| anew.is_as(own))
    })
}

/// The partitions of a plan that are compiled, by their places.
#[derive(Default)]
pub(super) struct KeptPartitions(Vec<Option<KeptPartition>>);

struct KeptPartition {
    of: Partition,
    /// The outputs for which it was compiled, whose layouts may have been open.
    outputs: Vec<LogicalTensor>,
    compiled: CompiledPartition,
}

impl KeptPartitions {
    /// The compiled form of the partition at the same place, if it is the same computation on tensors of the
    /// same descriptions. Nothing is hashed for that.
    pub(super) fn find(
        &self,
        partition: &Partition,
        inputs: &[LogicalTensor],
        outputs: &[LogicalTensor],
    ) -> Option<&CompiledPartition> {
        let KeptPartition { of, outputs: before, compiled } = self.0.get(partition.id())?.as_ref()?;
        (compiled.inputs() == inputs && before == outputs && of.is_as(partition)).then_some(compiled)
    }

    pub(super) fn keep(
        &mut self,
        partition: &Partition,
        outputs: &[LogicalTensor],
        compiled: CompiledPartition,
    ) {
        let place = partition.id();
        if self.0.len() <= place {
            self.0.resize_with(place + 1, || None);
        }
        self.0[place] = Some(KeptPartition { of: partition.clone(), outputs: outputs.to_vec(), compiled });
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
    /// Constants whose elements stand at no multiple of their size, by address and length, and their copies.
    copies: FxHashMap<(usize, usize), [ConstantData; 2]>,
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

    /// A constant whose elements stand at a multiple of their size: itself, or a copy that is made once.
    pub(super) fn aligned(
        &self,
        data: &ConstantData,
        size: usize,
        copy: impl FnOnce(&[u8]) -> Result<ConstantData>,
    ) -> Result<ConstantData> {
        let bytes = data.bytes();
        let place = (bytes.as_ptr().addr(), bytes.len());
        if place.0.is_multiple_of(size) {
            return Ok(data.clone());
        }
        if let Some([_, known]) = self.0.lock().copies.get(&place) {
            return Ok(known.clone());
        }
        let made = copy(bytes)?;
        data.release();
        self.0.lock().copies.insert(place, [data.clone(), made.clone()]);
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Session, SessionState, StateLink};
    use super::*;
    use crate::execute::engine::Engine;
    use crate::graph::builder::GraphBuilder;
    use crate::types::dtype::DataType;

    /// A cache of rows, and what is computed of one row alone.
    fn session() -> Result<Session> {
        let g = GraphBuilder::new();
        let past = g.input("past", DataType::F32, &[None, Some(2)])?;
        let x = g.input("x", DataType::F32, &[Some(1), Some(2)])?;
        let w = g.constant("w", &[2, 2], &[1.0f32, 2.0, 3.0, 4.0])?;
        let h = g.softmax(g.matmul(x, w)?, 1)?;
        let all = g.concat(&[past, h], 0)?;
        g.output("y", g.matmul(g.matmul(h, w)?, w)?)?;
        g.output("largest", g.reduce_max(all, &[0])?)?;
        g.output("present", all)?;
        let link = StateLink::new("past", "present").capacity(8);
        Session::builder(g.build()?).state(link).build(&Engine::builder().threads(1).build())
    }

    fn step(session: &Session, state: &mut SessionState) -> Result<()> {
        session.run_with_state(state, &[("x", &[[0.5f32, 0.25]])]).map(|_| ())
    }

    #[test]
    fn a_new_length_takes_over_the_partitions_that_do_not_see_it() -> Result<()> {
        let session = session()?;
        let mut state = session.new_state(&[])?;
        let kept = || session.inner.last.lock().clone();
        let mut before = kept();
        for length in 0..5 {
            step(&session, &mut state)?;
            let after = kept();
            let taken = |kept: &&KeptPartition| {
                let before = before.as_ref().map(|last| &last.compiled);
                let found =
                    before.and_then(|before| before.find(&kept.of, kept.compiled.inputs(), &kept.outputs));
                // One compiled partition has its ports at one place.
                found.is_some_and(|found| std::ptr::eq(found.inputs(), kept.compiled.inputs()))
            };
            let all: Vec<&KeptPartition> = after.iter().flat_map(|last| &last.compiled.0).flatten().collect();
            let number = all.iter().filter(|kept| taken(kept)).count();
            // That of the rows so far is compiled anew, and none at first.
            assert_eq!(number, if length == 0 { 0 } else { all.len() - 1 }, "{length} of {}", all.len());
            before = after;
        }
        Ok(())
    }
}
