//! Compiled partitions: a plan, its tensors, and the checks before each execution.
#![allow(unsafe_code, reason = "a table of classes and indices are read from raw memory")]

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

use smallvec::SmallVec;

use super::bindings::Bindings;
use super::engine::{ALIGNMENT, Engine};
use super::index_check;
use super::port::{PortKey, index_of};
use super::prepared::{PreparationRole, PreparedConstants, SharedPreparations};
use super::scratch_pool::ScratchPool;
use super::stream::Stream;
use super::task_runner::{most_threads, threads};
use super::tensor::{Tensor, TensorBuf, TensorMut};
use super::{run, run_classes};
use crate::error::{Direction, Error, ExecuteFault, Result};
use crate::graph::logical_tensor::LogicalTensor;
use crate::plan::attention::tile_class::MaskTiles;
use crate::plan::summary::PlanSummary;
use crate::plan::{Base, ClassifyPhase, InPlacePorts, Phase, Plan};
use crate::types::dtype::{Element, InputElement};
use crate::types::id::TensorId;
use crate::types::labels::PartitionLabels;
use crate::types::shape::{self, Braced};
use crate::types::trace::span;

/// Two tensors that may share one buffer: the output replaces the input.
///
/// ```
/// use sterna::{DataType, Engine, InPlacePair, LogicalTensor, Op, Partition};
/// # let tensor = |id, data_type| LogicalTensor::strided(id, data_type, &[4]);
/// # let (cond, then) = (tensor(0, DataType::Boolean)?, tensor(1, DataType::F32)?);
/// # let op = Op::select(0, cond, then, tensor(2, DataType::F32)?, LogicalTensor::unknown(3, DataType::F32));
/// # let partition = Partition::from_op(op)?;
/// let compiled = partition.compile(&Engine::new())?;
/// // The result of a select may replace either branch.
/// assert!(compiled.in_place_pairs().contains(&InPlacePair::new(1, 3)));
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct InPlacePair {
    /// The input.
    pub input: TensorId,
    /// The output.
    pub output: TensorId,
}

impl InPlacePair {
    /// The pair of an input and an output.
    #[must_use]
    pub fn new(input: impl Into<TensorId>, output: impl Into<TensorId>) -> Self {
        Self { input: input.into(), output: output.into() }
    }
}

/// A partition compiled for concrete tensors. It can be executed any number of times, from any number of
/// threads at once.
///
/// A clone is the same compiled partition.
///
/// ```
/// use sterna::{DataType, Engine, LogicalTensor, Op, Partition};
/// # let tensor = |id, data_type| LogicalTensor::strided(id, data_type, &[4]);
/// # let (cond, then) = (tensor(0, DataType::Boolean)?, tensor(1, DataType::F32)?);
/// # let op = Op::select(0, cond, then, tensor(2, DataType::F32)?, LogicalTensor::unknown(3, DataType::F32));
/// # let partition = Partition::from_op(op)?;
/// let compiled = partition.compile(&Engine::new())?;
/// let mut result = [0.0f32; 4];
/// let inputs = [
///     compiled.tensor("cond", &[true, false, false, true])?,
///     compiled.tensor("then", &[1.0f32; 4])?,
///     compiled.tensor("else", &[2.0f32; 4])?,
/// ];
/// let output = compiled.tensor_mut("dst", &mut result)?;
/// compiled.run(&inputs, &mut [output])?;
/// assert_eq!(result, [1.0, 2.0, 2.0, 1.0]);
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct CompiledPartition {
    inner: Arc<CompiledInner>,
}

#[derive(Debug)]
struct CompiledInner {
    plan: Arc<Plan>,
    engine: Engine,
    labels: Arc<PartitionLabels>,
    /// The tensors as they were compiled, inputs first.
    ports: Vec<LogicalTensor>,
    /// The facts that an execution looks up for each port, close together.
    facts: SmallVec<[PortFacts; 4]>,
    input_count: usize,
    in_place: SmallVec<[InPlacePair; 2]>,
    scratch: ScratchPool,
    prepared: PreparedConstants,
}

#[derive(Debug, Clone, Copy)]
struct PortFacts {
    id: TensorId,
    /// Bytes from the first to the last element.
    size: usize,
}

impl CompiledPartition {
    /// As [`labelled`](Self::labelled), for a plan without a partition.
    #[cfg(test)]
    pub(crate) fn new(
        plan: Arc<Plan>,
        engine: Engine,
        ports: Vec<LogicalTensor>,
        input_count: usize,
    ) -> Self {
        Self::labelled(plan, engine, ports, input_count, Arc::default())
    }

    /// Binds a plan to an engine and to the tensors of its ports, inputs first.
    pub(crate) fn labelled(
        plan: Arc<Plan>,
        engine: Engine,
        ports: Vec<LogicalTensor>,
        input_count: usize,
        labels: Arc<PartitionLabels>,
    ) -> Self {
        let pair = |&InPlacePorts { input, output }: &InPlacePorts| InPlacePair {
            input: ports[input].id(),
            output: ports[output].id(),
        };
        let in_place = plan.in_place.iter().map(pair).collect();
        let facts = ports.iter().zip(&plan.sizes).map(|(port, &size)| PortFacts { id: port.id(), size });
        let (facts, scratch) = (facts.collect(), ScratchPool::keeping(usize::MAX));
        let prepared = PreparedConstants::default();
        let inner =
            CompiledInner { plan, engine, labels, ports, facts, input_count, in_place, scratch, prepared };
        Self { inner: Arc::new(inner) }
    }

    /// The engine for which it was compiled.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    /// The tensors that an execution reads, as they were compiled.
    #[must_use]
    pub fn inputs(&self) -> &[LogicalTensor] {
        self.inner.inputs()
    }

    /// The tensors that an execution writes, with their inferred shapes and their layouts.
    #[must_use]
    pub fn outputs(&self) -> &[LogicalTensor] {
        self.inner.outputs()
    }

    /// The tensor of a port as it was compiled, by its id or by the name of the port.
    ///
    /// # Errors
    ///
    /// [`TensorFault::NoPort`](crate::TensorFault::NoPort) if no port has this id; [`Error::Port`] if no
    /// port, or more than one, has this name.
    pub fn port<'a>(&self, port: impl Into<PortKey<'a>>) -> Result<&LogicalTensor> {
        let Self { inner } = self;
        Ok(&inner.ports[index_of(port.into(), &inner.ports, &inner.labels)?])
    }

    /// The name of each port, inputs first, by which [`port`](Self::port) finds it.
    #[must_use]
    pub fn port_names(&self) -> &[&'static str] {
        &self.inner.labels.ports
    }

    /// A tensor for a port, on the elements of a slice: a [`Tensor`] of this partition's engine.
    ///
    /// # Errors
    ///
    /// As [`port`](Self::port) and [`Tensor::new`].
    pub fn tensor<'a, 'p, T: InputElement>(
        &'a self,
        port: impl Into<PortKey<'p>>,
        elements: &'a [T],
    ) -> Result<Tensor<'a>> {
        Tensor::new(self.port(port.into())?, &self.inner.engine, elements)
    }

    /// A tensor for an output, on the elements of a slice: a [`TensorMut`] of this partition's engine.
    ///
    /// # Errors
    ///
    /// As [`port`](Self::port) and [`TensorMut::new`].
    pub fn tensor_mut<'a, 'p, T: Element>(
        &'a self,
        port: impl Into<PortKey<'p>>,
        elements: &'a mut [T],
    ) -> Result<TensorMut<'a>> {
        TensorMut::new(self.port(port.into())?, &self.inner.engine, elements)
    }

    /// A tensor for a port, with its own memory from this partition's engine.
    ///
    /// # Errors
    ///
    /// As [`port`](Self::port) and [`TensorBuf::zeroed`].
    pub fn tensor_buf<'p>(&self, port: impl Into<PortKey<'p>>) -> Result<TensorBuf> {
        TensorBuf::zeroed(self.port(port.into())?.clone(), &self.inner.engine)
    }

    /// The pairs of an input and an output that may share one buffer.
    #[must_use]
    pub fn in_place_pairs(&self) -> &[InPlacePair] {
        &self.inner.in_place
    }

    /// Bytes that an execution reads and writes, each distinct element counted once; `usize::MAX` where there
    /// are more, as for shapes that no memory holds.
    #[must_use]
    pub fn bytes_moved(&self) -> usize {
        self.inner.plan.cost.bytes
    }

    /// A description of each execution, in words and numbers.
    #[must_use]
    pub fn plan(&self) -> PlanSummary {
        let CompiledInner { plan, engine, ports, .. } = &*self.inner;
        let ids: Vec<TensorId> = ports.iter().map(LogicalTensor::id).collect();
        let size = |output: &LogicalTensor| {
            let count = output.raw_dims().and_then(shape::element_count).unwrap_or(0);
            count as usize * output.data_type().size().unwrap_or(0)
        };
        let bytes_written = self.outputs().iter().map(size).fold(0, usize::saturating_add);
        let threads_of = |phase: &Phase| threads(plan, engine).min(phase.tasks());
        plan.summary(&ids, &self.inner.labels.ops, bytes_written, engine.level(), threads_of)
    }

    /// Memory of one execution, in bytes: its internal buffers, and the scratch of its threads. It comes from
    /// the engine's allocator, or from the caller of
    /// [`execute_with_scratchpad`](Self::execute_with_scratchpad).
    #[must_use]
    pub fn scratchpad_size(&self) -> usize {
        match self.scratch_size() {
            0 => 0,
            // The caller's memory may have any alignment; the used part starts aligned.
            size => size.saturating_add(ALIGNMENT - 1),
        }
    }

    /// Aligned bytes of the internal buffers and of scratch, for as many threads as may run the plan.
    pub(super) fn scratch_size(&self) -> usize {
        let CompiledInner { plan, engine, .. } = &*self.inner;
        plan.scratch.saturating_mul(most_threads(plan, engine)).saturating_add(plan.buffer_bytes())
    }

    /// Runs the partition and returns when the outputs are written.
    ///
    /// Tensors are found by id, in any order; a tensor that is no port is ignored. An output that is marked
    /// [in place of](TensorMut::in_place_of) an input provides that input too. Everything is checked before
    /// anything is written.
    ///
    /// # Errors
    ///
    /// [`Error::Execute`] for a tensor that is missing, has no memory, differs from the compiled one in type,
    /// dims or strides, or belongs to another engine; for a stream of another engine; for an output that
    /// overlaps another output, or an input that is not its [in-place pair](Self::in_place_pairs); and for an
    /// index of a lookup that is out of range.
    /// [`Error::OutOfMemory`] if the allocator gives no scratch.
    pub fn execute(
        &self,
        stream: &Stream,
        inputs: &[Tensor<'_>],
        outputs: &mut [TensorMut<'_>],
    ) -> Result<()> {
        self.execute_on(stream.engine(), inputs, outputs)
    }

    /// As [`execute`](Self::execute), on the engine for which it was compiled.
    ///
    /// # Errors
    ///
    /// As [`execute`](Self::execute).
    pub fn run(&self, inputs: &[Tensor<'_>], outputs: &mut [TensorMut<'_>]) -> Result<()> {
        self.execute_on(&self.inner.engine, inputs, outputs)
    }

    fn execute_on(
        &self,
        engine: &Engine,
        inputs: &[Tensor<'_>],
        outputs: &mut [TensorMut<'_>],
    ) -> Result<()> {
        span!("execute", bytes = self.inner.plan.cost.bytes);
        let mut bindings = Bindings::default();
        self.bind(engine, inputs, outputs, &mut bindings).map_err(Error::Execute)?;
        let inner = &*self.inner;
        if inner.plan.scratch == 0 && inner.plan.buffers.is_empty() {
            return run(&inner.plan.phases, &[], &inner.plan, &bindings, &inner.engine, &inner.labels);
        }
        let scratch = inner.scratch.take(&inner.engine, self.scratch_size())?;
        inner.bind_scratch(&mut bindings, scratch.as_ptr());
        let result = inner.run(&mut bindings).map(drop);
        inner.scratch.put(scratch);
        result
    }

    /// As [`execute`](Self::execute), with the caller's scratch memory; nothing is allocated but what is
    /// [kept of constant inputs](crate::EngineBuilder::constant_cache_capacity).
    ///
    /// # Errors
    ///
    /// As [`execute`](Self::execute), and [`ExecuteFault::Scratchpad`] if the scratch is less than
    /// [`scratchpad_size`](Self::scratchpad_size).
    pub fn execute_with_scratchpad(
        &self,
        stream: &Stream,
        inputs: &[Tensor<'_>],
        outputs: &mut [TensorMut<'_>],
        scratchpad: &mut [MaybeUninit<u8>],
    ) -> Result<()> {
        span!("execute", bytes = self.inner.plan.cost.bytes);
        let mut bindings = Bindings::default();
        self.bind(stream.engine(), inputs, outputs, &mut bindings).map_err(Error::Execute)?;
        let (needed, given) = (self.scratchpad_size(), scratchpad.len());
        if given < needed {
            return Err(Error::Execute(ExecuteFault::Scratchpad { needed, given }));
        }
        let start = scratchpad.as_mut_ptr().cast::<u8>();
        let gap = start.addr().wrapping_neg() % ALIGNMENT;
        self.inner.bind_scratch(&mut bindings, start.wrapping_add(gap));
        self.inner.run(&mut bindings).map(drop)
    }

    /// Shares the copies that it keeps of constant inputs with other compiled partitions.
    pub(crate) fn share_preparations(&self, of: &Arc<SharedPreparations>) {
        if !self.inner.plan.preparation.phases.is_empty() {
            self.inner.prepared.share(&self.inner.plan, of);
        }
    }

    /// Runs the partition on the addresses of its tensors, inputs first, with aligned memory of
    /// [`scratch_size`](Self::scratch_size) bytes; tells if it has kept copies of constant inputs, which
    /// later runs read in their place.
    ///
    /// # Safety
    ///
    /// Each address is memory of the tensor as it was compiled, that of an input initialised and that of an
    /// output not in use by anybody else; the memory for scratch belongs to this call.
    pub(super) unsafe fn run_at(&self, addresses: &[*mut u8], scratch: *mut u8) -> Result<bool> {
        span!("execute", bytes = self.inner.plan.cost.bytes);
        let mut bindings = Bindings { ports: SmallVec::from_slice(addresses), ..Bindings::default() };
        self.inner.check_overlaps(&mut bindings).map_err(Error::Execute)?;
        self.inner.check_indices(&bindings, |_| true).map_err(Error::Execute)?;
        self.inner.bind_scratch(&mut bindings, scratch);
        self.inner.run(&mut bindings)
    }

    /// The inputs of which it keeps copies.
    pub(super) fn copied_inputs(&self) -> &[usize] {
        &self.inner.plan.preparation.inputs
    }

    /// True if a run refuses indices that name nothing.
    pub(crate) fn checks_indices(&self) -> bool {
        !self.inner.plan.index_checks.is_empty()
    }

    /// Refuses indices that name nothing, in those ports of lookups that a function picks.
    ///
    /// # Safety
    ///
    /// As for [`run_at`](Self::run_at), for the picked ports.
    pub(super) unsafe fn check_indices_at(
        &self,
        addresses: &[*mut u8],
        is_picked: impl Fn(usize) -> bool,
    ) -> Result<()> {
        let bindings = Bindings { ports: SmallVec::from_slice(addresses), ..Bindings::default() };
        self.inner.check_indices(&bindings, is_picked).map_err(Error::Execute)
    }

    /// The classes of the tiles of masked scores, for these inputs: which tiles an execution leaves out.
    /// `None` if the partition has no attention, or if nothing masks its scores.
    ///
    /// Only inputs from which the mask is computed are needed and read; others, and tensors that are no port,
    /// are ignored. Nothing else of the partition is computed. Scores of a single tile have no classes.
    ///
    /// Where finite numbers are added to scores, the size of the scores decides too: queries and keys bound
    /// it if they are given, and scores are taken to be within ±1024 if not.
    ///
    /// ```
    /// use sterna::{Attention, Causal, DataType, Engine, Graph, LogicalTensor, Policy, TileClass};
    /// let head = |id| LogicalTensor::strided(id, DataType::F32, &[8, 256, 64]);
    /// let attention = Attention::new(head(0)?, head(1)?, head(2)?, head(3)?).causal(Causal::TopLeft);
    /// let mut graph = Graph::new();
    /// graph.attention(&attention)?;
    /// graph.finalize()?;
    /// let partition = &graph.partitions(Policy::Fusion)?[0];
    /// let compiled = partition.compile(&Engine::new())?;
    /// let tiles = compiled.mask_tiles(&[])?.expect("the scores are masked");
    /// assert_eq!((tiles.tiles(), tiles.count(TileClass::Masked)), (16, 6));
    /// assert_eq!(tiles.to_string(), "+...\n#+..\n##+.\n###+\n");
    /// # Ok::<(), sterna::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Execute`] for an input that is needed and is missing, has no memory, differs from the
    /// compiled one in type, dims or strides, or belongs to another engine. [`Error::OutOfMemory`] if the
    /// allocator gives no memory for the table.
    pub fn mask_tiles(&self, inputs: &[Tensor<'_>]) -> Result<Option<MaskTiles>> {
        let inner = &*self.inner;
        let masks = inner.plan.phases.iter().map(Phase::mask).enumerate();
        let Some((last, classify)) = masks.filter_map(|(index, mask)| Some((index, mask?))).next() else {
            return Ok(None);
        };
        let Base::Buffer(table) = classify.table else { return Ok(None) };
        // The operands of the mask may be computed themselves.
        let is_computed = |base: Base| matches!(base, Base::Buffer(_));
        let phases = match classify.reads().any(is_computed) {
            true => &inner.plan.phases[..=last],
            false => &inner.plan.phases[last..=last],
        };

        let mut bindings = Bindings::default();
        for (index, port) in inner.facts[..inner.input_count].iter().enumerate() {
            let is_optional = phases.len() == 1 && !classify.reads().any(|base| base == Base::Port(index));
            let is_read = phases.iter().any(|phase| phase.reads(index));
            let tensor = is_read.then(|| found(inputs, index, |tensor| tensor.desc().id() == port.id));
            bindings.ports.push(match tensor {
                None => std::ptr::null_mut(),
                Some(Some(tensor)) => {
                    let address = tensor.address();
                    inner.check(index, tensor.desc(), tensor.engine(), address).map_err(Error::Execute)?;
                    address.cast_mut()
                }
                Some(None) if is_optional => std::ptr::null_mut(),
                Some(None) => {
                    let fault = ExecuteFault::Missing { direction: Direction::Input, tensor: port.id };
                    return Err(Error::Execute(fault));
                }
            });
        }
        // Phases before may write outputs.
        let mut outputs = Vec::new();
        for port in &inner.facts[inner.input_count..] {
            let bytes = if phases.len() > 1 { port.size.max(1) } else { 1 };
            let memory = inner.engine.allocate(bytes)?;
            bindings.ports.push(memory.as_ptr());
            outputs.push(memory);
        }

        let scratch = inner.scratch.take(&inner.engine, self.scratch_size())?;
        inner.bind_scratch(&mut bindings, scratch.as_ptr());
        if phases.len() == 1 {
            // Nothing has computed queries or keys that are no ports.
            for base in classify.reads_of_scores() {
                if let Base::Buffer(buffer) = base {
                    bindings.buffers[buffer] = std::ptr::null_mut();
                }
            }
        }
        let result = match &inner.plan.phases[last] {
            // An execution finds blocks of queries in place of a table.
            Phase::Ragged(_) => {
                let before = &phases[..phases.len() - 1];
                let ran = run(before, &[], &inner.plan, &bindings, &inner.engine, &inner.labels);
                let memory = inner.engine.allocate(classify.table_bytes().max(1))?;
                bindings.buffers[table] = memory.as_ptr();
                outputs.push(memory);
                ran.and_then(|()| run_classes(classify, &inner.plan, &bindings, &inner.engine))
            }
            _ => run(phases, &[], &inner.plan, &bindings, &inner.engine, &inner.labels),
        };
        // SAFETY: the buffer has room for the table, and the phase has written all of it.
        let table = result.map(|()| unsafe { copied(bindings.buffers[table], classify) });
        inner.scratch.put(scratch);
        table.map(|table| Some(MaskTiles::new(classify, table)))
    }

    /// Finds and checks the tensor of each port.
    #[inline(always)]
    fn bind(
        &self,
        engine: &Engine,
        inputs: &[Tensor<'_>],
        outputs: &[TensorMut<'_>],
        bindings: &mut Bindings,
    ) -> Result<(), ExecuteFault> {
        let inner = &*self.inner;
        if !engine.is_same(&inner.engine) {
            return Err(ExecuteFault::StreamEngine);
        }
        let (input_facts, output_facts) = inner.facts.split_at(inner.input_count);
        for (index, port) in input_facts.iter().enumerate() {
            let address = match found(inputs, index, |tensor| tensor.desc().id() == port.id) {
                Some(tensor) => {
                    inner.check(index, tensor.desc(), tensor.engine(), tensor.address())?;
                    tensor.address().cast_mut()
                }
                None => inner.shared_address(index, outputs)?,
            };
            bindings.ports.push(address);
        }
        for (index, port) in output_facts.iter().enumerate() {
            let Some(tensor) = found(outputs, index, |tensor| tensor.desc().id() == port.id) else {
                return Err(ExecuteFault::Missing { direction: Direction::Output, tensor: port.id });
            };
            inner.check(inner.input_count + index, tensor.desc(), Some(tensor.engine()), tensor.address())?;
            if let Some(input) = tensor.replaces() {
                inner.check_pair(input, port.id)?;
            }
            bindings.ports.push(tensor.address());
        }
        inner.check_overlaps(bindings)?;
        if !inner.plan.index_checks.is_empty() {
            inner.check_indices(bindings, |_| true)?;
        }
        Ok(())
    }
}

/// A copy of a table of classes.
///
/// # Safety
///
/// The address is that of the table, and the phase has run.
unsafe fn copied(table: *const u8, phase: &ClassifyPhase) -> Vec<u8> {
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(table, phase.table_bytes()) }.to_vec()
}

/// The tensor that fits. Most callers put it at its own index, so that is tried first.
#[inline(always)]
fn found<T>(tensors: &[T], index: usize, fits: impl Fn(&T) -> bool) -> Option<&T> {
    match tensors.get(index) {
        Some(tensor) if fits(tensor) => Some(tensor),
        _ => tensors.iter().find(|tensor| fits(tensor)),
    }
}

impl CompiledInner {
    fn inputs(&self) -> &[LogicalTensor] {
        &self.ports[..self.input_count]
    }

    fn outputs(&self) -> &[LogicalTensor] {
        &self.ports[self.input_count..]
    }

    /// Hands aligned memory out: to the internal buffers first, then to the threads.
    fn bind_scratch(&self, bindings: &mut Bindings, start: *mut u8) {
        let buffers = self.plan.buffers.iter().map(|buffer| start.wrapping_add(buffer.offset));
        bindings.buffers.extend(buffers);
        bindings.scratch = NonNull::new(start.wrapping_add(self.plan.buffer_bytes()));
    }

    /// Runs the plan, and keeps the results of phases that read constant inputs alone; true if it did so now.
    fn run(&self, bindings: &mut Bindings) -> Result<bool> {
        let Self { plan, engine, labels, .. } = self;
        let run_without = |without: &[usize], bindings: &Bindings| {
            run(&plan.phases, without, plan, bindings, engine, labels).map(|()| false)
        };
        if plan.preparation.phases.is_empty() {
            return run_without(&[], bindings);
        }
        match self.prepared.take(plan, engine, bindings) {
            PreparationRole::Own => run_without(&[], bindings),
            PreparationRole::Ready(prepared) => {
                prepared.bind(plan, bindings);
                run_without(&plan.preparation.phases, bindings)
            }
            PreparationRole::Making(making) => {
                making.bind(plan, bindings);
                run_without(&[], bindings)?;
                making.finish();
                Ok(true)
            }
        }
    }

    #[inline(always)]
    fn check(
        &self,
        index: usize,
        given: &LogicalTensor,
        engine: Option<&Engine>,
        address: *const u8,
    ) -> Result<(), ExecuteFault> {
        let port = &self.ports[index];
        // Most callers take the descriptions from `inputs` and `outputs`.
        let fits = std::ptr::eq(port, given) || port.is_same_memory(given);
        let same_engine = engine.is_none_or(|engine| engine.is_same(&self.engine));
        let has_memory = !address.is_null() || self.facts[index].size == 0;
        if fits && same_engine && has_memory { Ok(()) } else { Err(fault(port, given, same_engine)) }
    }

    /// The address of an input that was not given: the address of the output that is marked as in place of
    /// it.
    fn shared_address(&self, index: usize, outputs: &[TensorMut<'_>]) -> Result<*mut u8, ExecuteFault> {
        let input = self.facts[index].id;
        let shared = outputs
            .iter()
            .find(|output| output.replaces() == Some(input))
            .ok_or(ExecuteFault::Missing { direction: Direction::Input, tensor: input })?;
        let output = shared.desc().id();
        // Another tensor may provide the output of this id, so checking that tensor is not enough.
        let place = self.check_pair(input, output)?;
        self.check(place, shared.desc(), Some(shared.engine()), shared.address())?;
        Ok(shared.address())
    }

    /// The index of the output of such a pair among the ports.
    fn check_pair(&self, input: TensorId, output: TensorId) -> Result<usize, ExecuteFault> {
        let pair = self.in_place.iter().position(|&pair| pair == InPlacePair { input, output });
        let pair = pair.ok_or(ExecuteFault::NotInPlace { output, input })?;
        Ok(self.plan.in_place[pair].output)
    }

    /// Refuses indices that name nothing, in ports that a function picks.
    fn check_indices(
        &self,
        bindings: &Bindings,
        is_picked: impl Fn(usize) -> bool,
    ) -> Result<(), ExecuteFault> {
        let checks = self.plan.index_checks.iter();
        for check in checks.filter(|check| check.ports().all(&is_picked)) {
            // SAFETY: the ports have been checked to be memory that fits the plan.
            let wrong = unsafe { index_check::first_wrong(check, &bindings.ports) };
            if let Some(wrong) = wrong {
                return Err(wrong.fault(self.facts[check.port].id));
            }
        }
        Ok(())
    }

    /// Finds the outputs that are in place of an input, and refuses every other overlap.
    fn check_overlaps(&self, bindings: &mut Bindings) -> Result<(), ExecuteFault> {
        let range = |port: usize| {
            let (start, size) = (bindings.ports[port].addr(), self.facts[port].size);
            (start, start.saturating_add(size), size > 0)
        };
        let overlap = |(start_a, end_a, some_a), (start_b, end_b, some_b)| {
            some_a && some_b && start_a < end_b && start_b < end_a
        };
        for output in self.input_count..self.facts.len() {
            let own = range(output);
            for other in (0..output).filter(|&other| overlap(own, range(other))) {
                let pair = InPlacePorts { input: other, output };
                let is_pair =
                    bindings.ports[other] == bindings.ports[output] && self.plan.in_place.contains(&pair);
                if !is_pair {
                    let (output, other) = (self.facts[output].id, self.facts[other].id);
                    return Err(ExecuteFault::Overlap { output, other });
                }
                bindings.in_place.push(pair);
            }
        }
        Ok(())
    }
}

/// The fault of a tensor that does not fit its port: the first difference from the compiled tensor, another
/// engine, or missing memory.
#[cold]
fn fault(port: &LogicalTensor, given: &LogicalTensor, same_engine: bool) -> ExecuteFault {
    let tensor = port.id();
    let braced = |numbers: Option<&[i64]>| numbers.map_or("unknown".into(), |it| Braced(it).to_string());
    let shown = |it: &LogicalTensor, what| match what {
        "types" => it.data_type().name().into(),
        "dims" => braced(it.raw_dims()),
        "strides" => braced(it.strides()),
        _ => it.property().name().into(),
    };
    let what = if port.data_type() != given.data_type() {
        "types"
    } else if port.raw_dims() != given.raw_dims() {
        "dims"
    } else if port.strides() != given.strides() {
        "strides"
    } else if port.is_host_scalar() != given.is_host_scalar() {
        "properties"
    } else if !same_engine {
        return ExecuteFault::TensorEngine { tensor };
    } else {
        return ExecuteFault::NoMemory { tensor };
    };
    ExecuteFault::Differs { tensor, what, given: shown(given, what), expected: shown(port, what) }
}

#[cfg(test)]
mod tests;
