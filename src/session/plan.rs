//! From a graph whose shapes are known to the steps of a sequence, each tensor at its place.

mod joined;

use std::sync::Arc;
use std::time::Instant;

use rustc_hash::{FxHashMap, FxHashSet};

use super::custom::Helpers;
use super::memory::{ArenaBlock, placed};
use super::missing::missing;
use super::parts::{PartTarget, row_targets};
use super::profile::{ArenaBuffer, PlanRecord, SpanKind};
use super::resolved::{ResolvedGraph, StatePair};
use super::reuse::{ComputationKey, FoldCache, KeptPartitions};
use super::views::{AliasedView, view_of};
use crate::error::{Error, MissingOp, Result, SessionFault};
use crate::execute::compiled::CompiledPartition;
use crate::execute::engine::Engine;
use crate::execute::prepared::SharedPreparations;
use crate::execute::scratch_pool::ScratchPool;
use crate::execute::sequence::{
    CALL_MARGIN, PartitionSequence, SequenceStep, SequenceTensors, StateTensors, StateUpdate, StepWork,
    TensorAddress, TensorPlace, bytes,
};
use crate::execute::tensor::TensorBuf;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::model::Model;
use crate::graph::op::Op;
use crate::partition::Partition;
use crate::types::constant_data::ConstantData;
use crate::types::dtype::DataType;
use crate::types::id::TensorId;
use crate::types::kind::Property;
use crate::types::shape;

/// The parts of a plan beside the graph.
pub(super) struct PlanContext<'a> {
    pub(super) model: &'a Model,
    pub(super) engine: &'a Engine,
    pub(super) helpers: &'a Helpers,
    /// The memory that is kept between runs.
    pub(super) memory: &'a Arc<ScratchPool>,
    /// The packed constants of all plans of the session.
    pub(super) preparations: &'a Arc<SharedPreparations>,
    /// The results of partitions of constants alone.
    pub(super) folded: &'a FoldCache,
    /// The compiled partitions of the last plan.
    pub(super) before: Option<&'a KeptPartitions>,
    /// There is room for packed copies of all constants.
    pub(super) has_room: bool,
}

/// The most bytes that a session keeps of a partition of constants that gives more than it reads.
const MAX_FOLDED: usize = 16 << 20;

/// A result of a partition of constants, or a copy of a constant.
struct FoldedTensor(TensorBuf);

impl AsRef<[u8]> for FoldedTensor {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// The memory of a tensor: a view of a root, `offset` bytes behind its first element. A root is a view of
/// itself.
#[derive(Debug, Clone)]
struct TensorHome {
    desc: LogicalTensor,
    root: TensorId,
    offset: usize,
}

/// The memory of a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RootPlace {
    Given(TensorPlace),
    /// A block of the arena.
    Block(usize),
}

/// A block of the arena and the root that has it last.
struct PlannedBlock {
    block: ArenaBlock,
    owner: TensorId,
    /// True if another root had it before.
    is_shared: bool,
    /// Bytes on either side.
    margin: usize,
}

/// Work of a step and its tensors, inputs first.
struct PlannedStep {
    work: StepWork,
    tensors: Vec<TensorId>,
}

/// A step before its results have places.
struct PlannedCall {
    work: StepWork,
    tensors: Vec<TensorId>,
    outputs: Vec<LogicalTensor>,
}

struct Planner<'a> {
    context: &'a PlanContext<'a>,
    outputs: &'a [TensorId],
    states: &'a [StatePair],
    /// The places of tensors that are parts of larger ones, by the part.
    targets: FxHashMap<TensorId, PartTarget>,
    /// The results of ops `Concat` whose parts are written there; their places are those of parts too.
    joined: FxHashSet<TensorId>,
    /// The steps that write a tensor of the state in its place.
    in_place: Vec<(usize, TensorId)>,
    homes: FxHashMap<TensorId, TensorHome>,
    roots: FxHashMap<TensorId, RootPlace>,
    blocks: Vec<PlannedBlock>,
    /// The tensors that ops read which are no partitions: those are row-major.
    read_by_calls: FxHashSet<TensorId>,
    constants: Vec<ConstantData>,
    steps: Vec<PlannedStep>,
    /// The last partition that reads a tensor.
    last_reads: FxHashMap<TensorId, usize>,
    /// The partitions that are compiled.
    after: KeptPartitions,
    record: PlanRecord,
}

/// The sequence that runs a graph, which is cut into partitions, on inputs and a state of given descriptions,
/// which are in the order of the model and of the links; how it came about, and the compiled partitions.
pub(super) fn sequence(
    context: &PlanContext<'_>,
    resolved: &ResolvedGraph,
    partitions: &[Partition],
    inputs: Vec<LogicalTensor>,
    pasts: &[LogicalTensor],
    record: PlanRecord,
) -> Result<(PartitionSequence, PlanRecord, KeptPartitions)> {
    let mut planner = Planner {
        context,
        outputs: &resolved.of.outputs,
        states: &resolved.of.states,
        targets: row_targets(resolved, pasts),
        joined: FxHashSet::default(),
        in_place: Vec::new(),
        homes: FxHashMap::default(),
        roots: FxHashMap::default(),
        blocks: Vec::new(),
        read_by_calls: FxHashSet::default(),
        constants: Vec::new(),
        steps: Vec::new(),
        last_reads: FxHashMap::default(),
        after: KeptPartitions::default(),
        record,
    };
    let missing: Vec<MissingOp> = partitions.iter().filter_map(|it| planner.missing(it)).collect();
    if !missing.is_empty() {
        return Err(SessionFault::MissingOps(missing).into());
    }
    planner.put_given(&inputs, partitions);
    for (state, past) in pasts.iter().enumerate() {
        planner.put(past.clone(), RootPlace::Given(TensorPlace::State(state)));
    }
    for (index, partition) in partitions.iter().enumerate() {
        planner.last_reads.extend(partition.inputs().iter().map(|input| (input.id(), index)));
        if !partition.is_supported() && planner.appended(partition).is_none() {
            planner.read_by_calls.extend(partition.inputs().iter().map(LogicalTensor::id));
        }
    }
    planner.join(partitions);
    for (index, partition) in partitions.iter().enumerate() {
        planner.add(index, partition)?;
    }
    planner.finish(inputs, pasts)
}

impl Planner<'_> {
    /// Gives inputs their places, and constants that partitions read.
    fn put_given(&mut self, inputs: &[LogicalTensor], partitions: &[Partition]) {
        for (index, input) in inputs.iter().enumerate() {
            self.put(input.clone(), RootPlace::Given(TensorPlace::Input(index)));
        }
        let constants = self.context.model.constants();
        let mut seen = FxHashSet::default();
        for tensor in partitions.iter().flat_map(Partition::inputs) {
            if let Some(data) = constants.get(&tensor.id())
                && seen.insert(tensor.id())
            {
                self.put_constant(tensor.clone(), data.clone());
            }
        }
    }

    fn put(&mut self, desc: LogicalTensor, place: RootPlace) {
        let id = desc.id();
        self.homes.insert(id, TensorHome { desc, root: id, offset: 0 });
        self.roots.insert(id, place);
    }

    fn put_constant(&mut self, desc: LogicalTensor, data: ConstantData) {
        let place = TensorPlace::Constant(self.constants.len());
        self.constants.push(data);
        self.put(desc, RootPlace::Given(place));
    }

    /// The place of a tensor in the memory that the caller gives, or in that of the next state.
    fn place_of_output(&self, id: TensorId) -> Option<TensorPlace> {
        let is_replaced = |state: &StatePair| state.present == id && state.append.is_none();
        let next = || self.states.iter().position(is_replaced).map(TensorPlace::NextState);
        self.outputs.iter().position(|&output| output == id).map(TensorPlace::Output).or_else(next)
    }

    /// The op of a partition, if nothing runs it.
    fn missing(&self, partition: &Partition) -> Option<MissingOp> {
        let PlanContext { model, helpers, .. } = self.context;
        let op = &partition.ops()[0];
        let is_run = partition.is_supported()
            || partition.outputs().is_empty()
            || self.appended(partition).is_some()
            || helpers.of(model, op).is_some();
        (!is_run).then(|| missing(model, op, partition))
    }

    fn add(&mut self, index: usize, partition: &Partition) -> Result<()> {
        // An op `End` says that a tensor is wanted outside, and does nothing.
        if partition.outputs().is_empty() {
            return Ok(());
        }
        if let Some(state) = self.appended(partition) {
            return self.append(state, &partition.ops()[0]);
        }
        if self.is_view(partition) || self.is_joined(partition)? {
            return Ok(());
        }
        let inputs: Vec<LogicalTensor> =
            partition.inputs().iter().map(|input| self.homes[&input.id()].desc.clone()).collect();
        let PlannedCall { work, tensors, outputs } = match partition.is_supported() {
            true => {
                let began = Instant::now();
                let compiled = self.compiled(partition, &inputs)?;
                self.record.add(SpanKind::Compile, Some(partition), began);
                if self.folds(&compiled) {
                    return self.fold(partition, compiled);
                }
                let tensors = partition.inputs().iter().chain(partition.outputs());
                let (tensors, outputs) =
                    (tensors.map(LogicalTensor::id).collect(), compiled.outputs().to_vec());
                PlannedCall { work: StepWork::Partition(compiled), tensors, outputs }
            }
            false => {
                self.align(&partition.ops()[0])?;
                self.call(partition)?
            }
        };
        let step = self.steps.len();
        for output in outputs {
            self.place(output, step, index, partition, &work);
        }
        for input in partition.inputs() {
            self.keep_until(input.id(), step);
        }
        let kind = match &work {
            StepWork::Partition(_) => SpanKind::Execute,
            StepWork::Function { .. } => {
                self.context.helpers.kind_of(self.context.model, &partition.ops()[0])
            }
        };
        self.record.step(kind, Some(partition));
        self.steps.push(PlannedStep { work, tensors });
        Ok(())
    }

    /// A partition, compiled to write parts of larger tensors where they belong if it can.
    fn compiled(&mut self, partition: &Partition, inputs: &[LogicalTensor]) -> Result<CompiledPartition> {
        let wanted = |output: &LogicalTensor| self.wanted(output);
        let wanted = partition.outputs().iter().map(wanted).collect::<Result<Vec<_>>>()?;
        let direct = wanted.iter().map(|output| match self.target(partition, output.id()) {
            Some(target) => target.desc.clone(),
            None => output.clone(),
        });
        let direct: Vec<LogicalTensor> = direct.collect();
        if direct != wanted
            && let Ok(compiled) = self.compiled_for(partition, inputs, &direct)
        {
            return Ok(compiled);
        }
        self.compiled_for(partition, inputs, &wanted)
    }

    /// A partition that is compiled for tensors of some descriptions, unless the last plan has compiled it.
    fn compiled_for(
        &mut self,
        partition: &Partition,
        inputs: &[LogicalTensor],
        outputs: &[LogicalTensor],
    ) -> Result<CompiledPartition> {
        let before = self.context.before;
        let compiled = match before.and_then(|before| before.find(partition, inputs, outputs)) {
            Some(compiled) => compiled.clone(),
            None => {
                let compiled =
                    partition.compile_with(self.context.engine, inputs, outputs, self.context.has_room)?;
                compiled.share_preparations(self.context.preparations);
                compiled
            }
        };
        self.after.keep(partition, outputs, compiled.clone());
        Ok(compiled)
    }

    /// An output as it is compiled: row-major if the caller or one of its ops gets it.
    fn wanted(&self, output: &LogicalTensor) -> Result<LogicalTensor> {
        match output.dims() {
            Some(dims) if self.is_taken(output.id()) => {
                LogicalTensor::strided(output.id(), output.data_type(), dims)
            }
            _ => Ok(output.clone()),
        }
    }

    /// Lets constants stand at multiples of the sizes of their elements. Kernels read them anywhere; an op
    /// that no kernel runs may read them as slices.
    fn align(&mut self, op: &Op) -> Result<()> {
        let engine = self.context.engine;
        for input in op.inputs() {
            let home = &self.homes[&input.id()];
            let RootPlace::Given(TensorPlace::Constant(index)) = self.roots[&home.root] else { continue };
            let size = input.data_type().size().unwrap_or(1);
            let copy = |bytes: &[u8]| {
                let desc = LogicalTensor::strided(input.id(), DataType::U8, &[bytes.len() as i64])?;
                let mut copy = TensorBuf::zeroed(desc, engine)?;
                copy.as_mut_bytes().copy_from_slice(bytes);
                Ok(ConstantData::new(FoldedTensor(copy)))
            };
            self.constants[index] = self.context.folded.aligned(&self.constants[index], size, copy)?;
        }
        Ok(())
    }

    /// The call of an op that no kernel runs.
    fn call(&self, partition: &Partition) -> Result<PlannedCall> {
        let op = &partition.ops()[0];
        let helper = self.context.helpers.of(self.context.model, op);
        let helper = helper.ok_or_else(|| {
            Error::Session(SessionFault::MissingOps(vec![missing(self.context.model, op, partition)]))
        })?;
        let dense = |output: &LogicalTensor| {
            LogicalTensor::strided(output.id(), output.data_type(), output.dims().unwrap_or_default())
        };
        let outputs = op.outputs().iter().map(dense).collect::<Result<Vec<_>>>()?;
        let descs = op.inputs().iter().map(|input| self.homes[&input.id()].desc.clone());
        let descs = descs.chain(outputs.iter().cloned()).collect();
        let tensors = op.inputs().iter().chain(op.outputs()).map(LogicalTensor::id).collect();
        let work = StepWork::Function { call: helper.call(op), descs, inputs: op.inputs().len() };
        Ok(PlannedCall { work, tensors, outputs })
    }

    /// True if a partition reads constants alone, and what it makes of them is no larger than they are, or
    /// small.
    fn folds(&self, compiled: &CompiledPartition) -> bool {
        let is_constant = |input: &LogicalTensor| {
            matches!(self.roots[&self.homes[&input.id()].root], RootPlace::Given(TensorPlace::Constant(_)))
        };
        let size = |tensors: &[LogicalTensor]| tensors.iter().map(bytes).fold(0, usize::saturating_add);
        let (inputs, outputs) = (compiled.inputs(), compiled.outputs());
        !inputs.is_empty()
            && inputs.iter().all(is_constant)
            && outputs.iter().all(|output| self.place_of_output(output.id()).is_none())
            && size(outputs) <= size(inputs).max(MAX_FOLDED)
    }

    /// Runs a partition of constants once; its results are constants.
    fn fold(&mut self, partition: &Partition, compiled: CompiledPartition) -> Result<()> {
        let outputs = compiled.outputs().to_vec();
        let key = ComputationKey::new(partition, compiled.inputs(), &outputs);
        let read =
            compiled.inputs().iter().filter_map(|input| match self.roots[&self.homes[&input.id()].root] {
                RootPlace::Given(TensorPlace::Constant(index)) => Some(self.constants[index].clone()),
                _ => None,
            });
        let read = read.collect();
        let (began, mut has_run) = (Instant::now(), false);
        let values = self.context.folded.get_or_make(key, read, || {
            has_run = true;
            self.run_once(compiled)
        })?;
        if has_run {
            self.record.add(SpanKind::Fold, Some(partition), began);
        }
        for (desc, data) in outputs.into_iter().zip(values) {
            self.put_constant(desc.with_property(Property::Constant)?, data);
        }
        Ok(())
    }

    /// The results of a partition of constants.
    fn run_once(&self, compiled: CompiledPartition) -> Result<Vec<ConstantData>> {
        let of_input = |input: &LogicalTensor| {
            let home = &self.homes[&input.id()];
            match self.roots[&home.root] {
                RootPlace::Given(place) => TensorAddress { place, offset: home.offset },
                RootPlace::Block(_) => TensorAddress { place: TensorPlace::Arena, offset: home.offset },
            }
        };
        let outputs = compiled.outputs().to_vec();
        let of_outputs = (0..outputs.len()).map(|index| {
            let place = TensorPlace::Output(index);
            TensorAddress { place, offset: 0 }
        });
        let addresses = compiled.inputs().iter().map(of_input).chain(of_outputs).collect();
        let step = SequenceStep { work: StepWork::Partition(compiled), addresses };
        let (memory, constants) = (Arc::new(ScratchPool::keeping(0)), self.constants.clone());
        let (inputs, states) = (Vec::new(), Vec::new());
        let tensors = SequenceTensors { inputs, outputs, states, constants };
        let once = PartitionSequence::new(self.context.engine.clone(), vec![step], tensors, 0, memory)?;
        Ok(once
            .run_new(&[], &mut [], None)?
            .into_iter()
            .map(|value| ConstantData::new(FoldedTensor(value)))
            .collect())
    }

    /// Lets the results of a partition that only says how to look at its input be views; false if they must
    /// be computed.
    fn is_view(&mut self, partition: &Partition) -> bool {
        let [op] = partition.ops() else { return false };
        let [input] = partition.inputs() else { return false };
        let Some(home) = self.homes.get(&input.id()).cloned() else { return false };
        let Some(AliasedView { desc, offset }) = view_of(op, &home.desc) else { return false };
        if self.read_by_calls.contains(&desc.id()) && !is_row_major(&desc) {
            return false;
        }
        let desc = desc.with_property(home.desc.property()).unwrap_or(home.desc.clone());
        if self.place_of_output(desc.id()).is_none() {
            let offset = home.offset + offset;
            self.homes.insert(desc.id(), TensorHome { desc, root: home.root, offset });
            self.share_last_read(input.id(), op.outputs()[0].id());
            return true;
        }
        // The step that computes the input may write where the caller wants the output.
        let is_free = home.root == input.id() && matches!(self.roots[&home.root], RootPlace::Block(_));
        let is_whole = offset == 0 && bytes(&desc) == bytes(&home.desc) && is_row_major(&desc);
        let Some(place) = self.place_of_output(desc.id()).filter(|_| is_free && is_whole) else {
            return false;
        };
        if let RootPlace::Block(block) = self.roots[&home.root] {
            if self.blocks[block].is_shared {
                return false;
            }
            self.blocks[block].block.bytes = 0;
        }
        self.roots.insert(home.root, RootPlace::Given(place));
        self.homes.insert(desc.id(), TensorHome { desc, root: home.root, offset: 0 });
        true
    }

    /// Counts a reader of a view as one of the tensor that it shows.
    fn share_last_read(&mut self, of: TensorId, view: TensorId) {
        let root = self.homes[&of].root;
        let of_view = self.last_reads.get(&view).copied();
        if let Some(last) = of_view.max(self.last_reads.get(&root).copied()) {
            self.last_reads.insert(root, last);
        }
    }

    /// Gives an output of a step its place: that of the caller, that of an input which nothing needs any
    /// more, or a new block.
    fn place(
        &mut self,
        output: LogicalTensor,
        step: usize,
        index: usize,
        partition: &Partition,
        work: &StepWork,
    ) {
        let target = self.target(partition, output.id()).filter(|target| target.desc == output);
        if let Some(target) = target.cloned() {
            self.put_part(output, &target, step);
            return;
        }
        let place = match (self.place_of_output(output.id()), work) {
            (Some(TensorPlace::NextState(state)), StepWork::Partition(compiled))
                if self.is_in_place(state, compiled, &output, index, partition) =>
            {
                self.in_place.push((self.steps.len(), output.id()));
                RootPlace::Given(TensorPlace::State(state))
            }
            (Some(place), _) => RootPlace::Given(place),
            (None, StepWork::Partition(compiled)) => match self.replaced(compiled, &output, index, partition)
            {
                Some(block) => {
                    let PlannedBlock { owner, is_shared, .. } = &mut self.blocks[block];
                    (*owner, *is_shared) = (output.id(), true);
                    RootPlace::Block(block)
                }
                None => self.new_block(&output, step),
            },
            (None, StepWork::Function { .. }) => {
                let place = self.new_block(&output, step);
                self.blocks.last_mut().into_iter().for_each(|block| block.margin = CALL_MARGIN);
                place
            }
        };
        self.put(output, place);
    }

    fn new_block(&mut self, output: &LogicalTensor, step: usize) -> RootPlace {
        let block = ArenaBlock { bytes: bytes(output), first: step, last: step };
        self.blocks.push(PlannedBlock { block, owner: output.id(), is_shared: false, margin: 0 });
        RootPlace::Block(self.blocks.len() - 1)
    }

    /// The block of an input that an output may replace: one that is read here for the last time, and in no
    /// other way.
    fn replaced(
        &self,
        compiled: &CompiledPartition,
        output: &LogicalTensor,
        index: usize,
        partition: &Partition,
    ) -> Option<usize> {
        let pairs = compiled.in_place_pairs().iter().filter(|pair| pair.output == output.id());
        let block_of = |input: TensorId| {
            let home = self.homes.get(&input)?;
            let RootPlace::Block(block) = *self.roots.get(&home.root)? else { return None };
            let PlannedBlock { block: ArenaBlock { bytes: size, .. }, owner, .. } = self.blocks[block];
            let is_whole = home.offset == 0 && bytes(&home.desc) == size && bytes(output) == size;
            let of_root = |other: &&LogicalTensor| self.homes[&other.id()].root == home.root;
            let is_once = partition.inputs().iter().filter(of_root).count() == 1;
            let is_last = self.last_reads.get(&home.root) == Some(&index);
            (is_whole && is_once && is_last && owner == home.root).then_some(block)
        };
        pairs.filter_map(|pair| block_of(pair.input)).next()
    }

    /// True if a step may write the next state over the one that it reads.
    fn is_in_place(
        &self,
        state: usize,
        compiled: &CompiledPartition,
        output: &LogicalTensor,
        index: usize,
        partition: &Partition,
    ) -> bool {
        let StatePair { past, present, .. } = self.states[state];
        let of_past = |input: &&LogicalTensor| self.homes[&input.id()].root == past;
        let pairs = compiled.in_place_pairs();
        pairs.iter().any(|pair| (pair.input, pair.output) == (past, present))
            && self.last_reads.get(&past) == Some(&index)
            && partition.inputs().iter().filter(of_past).count() == 1
            && (self.homes[&past].desc.dims(), self.homes[&past].desc.strides())
                == (output.dims(), output.strides())
    }

    /// True if a step may refuse to run.
    fn may_fail(step: &PlannedStep) -> bool {
        match &step.work {
            StepWork::Partition(compiled) => compiled.checks_indices(),
            StepWork::Function { .. } => true,
        }
    }

    /// The tensors of the state behind a run. What was planned to be written in its place is so if no later
    /// step may refuse to run.
    fn state_tensors(&mut self, pasts: &[LogicalTensor]) -> Vec<StateTensors> {
        for (step, present) in std::mem::take(&mut self.in_place) {
            let state = self.states.iter().position(|state| state.present == present).unwrap_or(0);
            if self.steps[step + 1..].iter().any(Self::may_fail) {
                self.roots.insert(present, RootPlace::Given(TensorPlace::NextState(state)));
            }
        }
        let pairs = self.states.iter().zip(pasts).enumerate();
        let tensors = pairs.map(|(index, (pair, past))| {
            let home = &self.homes[&pair.present];
            let update = match self.roots[&home.root] {
                _ if pair.append.is_some() => StateUpdate::Append,
                RootPlace::Given(TensorPlace::State(state)) if state == index => StateUpdate::InPlace,
                _ => StateUpdate::Replace,
            };
            StateTensors { past: past.clone(), present: home.desc.clone(), update }
        });
        tensors.collect()
    }

    fn keep_until(&mut self, tensor: TensorId, step: usize) {
        let root = self.homes[&tensor].root;
        if let Some(RootPlace::Block(block)) = self.roots.get(&root) {
            let block = &mut self.blocks[*block].block;
            block.last = block.last.max(step);
        }
    }

    fn finish(
        mut self,
        inputs: Vec<LogicalTensor>,
        pasts: &[LogicalTensor],
    ) -> Result<(PartitionSequence, PlanRecord, KeptPartitions)> {
        let states = self.state_tensors(pasts);
        let (offsets, arena) = self.placed_blocks();
        self.record.buffers = self.buffers(&offsets);
        let address = |id: &TensorId| {
            let home = &self.homes[id];
            match self.roots[&home.root] {
                RootPlace::Given(place) => TensorAddress { place, offset: home.offset },
                RootPlace::Block(block) => {
                    TensorAddress { place: TensorPlace::Arena, offset: offsets[block] + home.offset }
                }
            }
        };
        let outputs = self.outputs.iter().map(|id| self.homes[id].desc.clone()).collect();
        let addresses: Vec<Vec<TensorAddress>> =
            self.steps.iter().map(|step| step.tensors.iter().map(address).collect()).collect();
        let steps = self.steps.into_iter().zip(addresses);
        let steps = steps.map(|(step, addresses)| SequenceStep { work: step.work, addresses }).collect();
        let tensors = SequenceTensors { inputs, outputs, states, constants: self.constants };
        let (engine, memory) = (self.context.engine.clone(), self.context.memory.clone());
        let sequence = PartitionSequence::new(engine, steps, tensors, arena, memory)?;
        Ok((sequence, self.record, self.after))
    }

    /// The offset of the bytes of each block behind its margin, and the bytes of the arena.
    fn placed_blocks(&self) -> (Vec<usize>, usize) {
        let with_margins = |&PlannedBlock { block, margin, .. }: &PlannedBlock| match block.bytes {
            0 => block,
            bytes => ArenaBlock { bytes: bytes.saturating_add(2 * margin), ..block },
        };
        let blocks: Vec<ArenaBlock> = self.blocks.iter().map(with_margins).collect();
        let (offsets, arena) = placed(&blocks);
        let behind = |(offset, planned): (usize, &PlannedBlock)| match planned.block.bytes {
            0 => offset,
            _ => offset + planned.margin,
        };
        (offsets.into_iter().zip(&self.blocks).map(behind).collect(), arena)
    }

    /// The blocks of the arena at their offsets, without those whose bytes lie elsewhere.
    fn buffers(&self, offsets: &[usize]) -> Vec<ArenaBuffer> {
        let mut tensors: Vec<Vec<TensorId>> = vec![Vec::new(); offsets.len()];
        for (&id, place) in &self.roots {
            if let RootPlace::Block(block) = *place {
                tensors[block].push(id);
            }
        }
        let buffer = |((index, &offset), mut tensors): ((usize, &usize), Vec<TensorId>)| {
            let ArenaBlock { bytes, first, last } = self.blocks[index].block;
            tensors.sort_unstable();
            ArenaBuffer { tensors, offset, bytes, first_step: first, last_step: last }
        };
        let buffers = offsets.iter().enumerate().zip(tensors).map(buffer);
        buffers.filter(|buffer| !buffer.tensors.is_empty()).collect()
    }
}

fn is_row_major(desc: &LogicalTensor) -> bool {
    let dense = desc.dims().and_then(shape::row_major_strides);
    desc.strides().is_some_and(|strides| dense.as_deref() == Some(strides))
}
