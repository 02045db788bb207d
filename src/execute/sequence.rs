//! Partitions that run one after the other on shared memory, and calls of the caller's between them.
#![allow(unsafe_code, reason = "steps run on addresses within memory that was checked before")]

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::compiled::CompiledPartition;
use super::dyn_view::{AsDynViewMut, DynView, DynViewMut};
use super::engine::{ALIGNMENT, Engine};
use super::scratch_pool::ScratchPool;
use super::state_buffer::StateBuffer;
use super::tensor::TensorBuf;
use crate::error::{Error, ExecuteFault, Result};
use crate::graph::logical_tensor::LogicalTensor;
use crate::types::constant_data::ConstantData;
use crate::types::trace::span;

/// Where a tensor of a sequence lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TensorPlace {
    /// In the memory that the caller gives for an input.
    Input(usize),
    /// In the memory that the caller gives for an output.
    Output(usize),
    /// In the memory of a constant.
    Constant(usize),
    /// In the arena.
    Arena,
    /// In the memory of a tensor of the state, as earlier runs have left it.
    State(usize),
    /// In memory for what takes the place of a tensor of the state.
    NextState(usize),
}

/// How a run changes a tensor of the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StateUpdate {
    /// It writes rows behind the last one.
    Append,
    /// It writes some of the elements, and none unless it succeeds.
    InPlace,
    /// It writes another tensor.
    Replace,
}

/// A tensor of the state before and behind a run.
#[derive(Debug, Clone)]
pub(crate) struct StateTensors {
    pub(crate) past: LogicalTensor,
    pub(crate) present: LogicalTensor,
    pub(crate) update: StateUpdate,
}

impl StateTensors {
    /// Bytes of the memory that earlier runs have left, as far as a run uses it.
    fn bytes(&self) -> usize {
        match self.update {
            StateUpdate::Append => bytes(&self.past).max(bytes(&self.present)),
            StateUpdate::InPlace | StateUpdate::Replace => bytes(&self.past),
        }
    }

    /// True if a run writes rows behind the last one.
    pub(crate) fn appends(&self) -> bool {
        self.update == StateUpdate::Append
    }

    /// True if a tensor is the one before the run.
    fn reads(&self, buffer: &StateBuffer) -> bool {
        let has_dims = self.past.dims() == Some(buffer.dims());
        has_dims && buffer.desc(self.past.id()).is_ok_and(|own| own.is_same_memory(&self.past))
    }

    /// True if a tensor is the one before the run, and there is room for the one behind it.
    fn fits(&self, buffer: &StateBuffer) -> bool {
        let has_room = !self.appends() || buffer.has_room(&self.present);
        self.reads(buffer) && has_room && buffer.takes(&self.present)
    }

    /// Lets a tensor be the one behind the run.
    fn finish(&self, buffer: &mut StateBuffer) {
        match (self.update, buffer.axis(), self.present.dims()) {
            (StateUpdate::Replace, ..) => buffer.replace(&self.present),
            (StateUpdate::Append, Some(axis), Some(dims)) => buffer.set_length(dims[axis] as usize),
            _ => {}
        }
    }
}

/// A place, and the bytes before the first element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TensorAddress {
    pub(crate) place: TensorPlace,
    pub(crate) offset: usize,
}

/// A function of the caller on views.
pub(crate) trait StepCall: Send + Sync {
    fn call(&self, inputs: &[DynView<'_>], outputs: &mut [DynViewMut<'_>]) -> Result<()>;

    /// The error of a call that wrote beside an output.
    fn wrote_beside(&self, output: usize) -> Error;
}

/// The work of a step.
pub(crate) enum StepWork {
    Partition(CompiledPartition),
    /// A call, with the description of each tensor, inputs first, and the number of inputs.
    Function {
        call: Box<dyn StepCall>,
        descs: Vec<LogicalTensor>,
        inputs: usize,
    },
}

/// The bytes on either side of an output of a call in the arena, by which writes beside it are noticed.
pub(crate) const CALL_MARGIN: usize = ALIGNMENT;

/// The content of these bytes during the call: no usual number in any type.
const MARGIN: [u8; CALL_MARGIN] = [0xa5; CALL_MARGIN];

/// The margins of an output of a call.
struct Margins([*mut u8; 2]);

impl Margins {
    /// # Safety
    ///
    /// On either side of the bytes lies a margin that belongs to the step alone.
    unsafe fn set(first: *mut u8, bytes: usize) -> Self {
        let margins = Self([first.wrapping_sub(CALL_MARGIN), first.wrapping_add(bytes)]);
        // SAFETY: as the caller promises.
        margins
            .0
            .iter()
            .for_each(|&margin| unsafe { margin.cast::<[u8; CALL_MARGIN]>().write_unaligned(MARGIN) });
        margins
    }

    /// True if nobody has written there.
    ///
    /// # Safety
    ///
    /// As for [`set`](Self::set), and nobody writes there at the same time.
    unsafe fn are_whole(&self) -> bool {
        // SAFETY: as the caller promises; they were written when they were set.
        self.0.iter().all(|&margin| unsafe { margin.cast::<[u8; CALL_MARGIN]>().read_unaligned() } == MARGIN)
    }
}

/// One step: its work, and the address of each of its tensors, inputs first.
pub(crate) struct SequenceStep {
    pub(crate) work: StepWork,
    pub(crate) addresses: Vec<TensorAddress>,
}

impl SequenceStep {
    /// True if a tensor is an output of a call that has margins: one in the arena.
    fn has_margins(&self, tensor: usize) -> bool {
        let is_of_call = matches!(&self.work, StepWork::Function { inputs, .. } if *inputs <= tensor);
        is_of_call && self.addresses[tensor].place == TensorPlace::Arena
    }

    /// The descriptions of its tensors, inputs first.
    fn descs(&self) -> impl Iterator<Item = &LogicalTensor> {
        let (first, second) = match &self.work {
            StepWork::Partition(compiled) => (compiled.inputs(), compiled.outputs()),
            StepWork::Function { descs, inputs, .. } => descs.split_at(*inputs),
        };
        first.iter().chain(second)
    }
}

/// When a step ran.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepTime {
    pub(crate) began: Instant,
    pub(crate) duration: Duration,
}

/// Steps in their order, the tensors that the caller gives, and the memory for all others.
pub(crate) struct PartitionSequence {
    engine: Engine,
    steps: Vec<SequenceStep>,
    inputs: Vec<LogicalTensor>,
    outputs: Vec<LogicalTensor>,
    states: Vec<StateTensors>,
    constants: Vec<ConstantData>,
    /// Bytes of the tensors between the steps.
    arena: usize,
    /// Bytes of scratch, behind the arena: the most that a step needs.
    scratch: usize,
    memory: Arc<ScratchPool>,
}

// A call of the caller's that panics has no part in the state of the sequence.
impl UnwindSafe for PartitionSequence {}
impl RefUnwindSafe for PartitionSequence {}

/// The tensors of a sequence that others give.
pub(crate) struct SequenceTensors {
    pub(crate) inputs: Vec<LogicalTensor>,
    pub(crate) outputs: Vec<LogicalTensor>,
    pub(crate) states: Vec<StateTensors>,
    pub(crate) constants: Vec<ConstantData>,
}

impl PartitionSequence {
    /// A sequence of steps, each of whose tensors lies within its place: the memory of the input, output or
    /// constant, or the first `arena` bytes. The memory of runs is taken from a pool.
    ///
    /// # Errors
    ///
    /// [`ExecuteFault::Scratchpad`] for a tensor that does not: a defect of the caller.
    pub(crate) fn new(
        engine: Engine,
        steps: Vec<SequenceStep>,
        tensors: SequenceTensors,
        arena: usize,
        memory: Arc<ScratchPool>,
    ) -> Result<Self> {
        let SequenceTensors { inputs, outputs, states, constants } = tensors;
        let arena = arena.next_multiple_of(ALIGNMENT);
        let scratch = |step: &SequenceStep| match &step.work {
            StepWork::Partition(compiled) => compiled.scratch_size(),
            StepWork::Function { .. } => 0,
        };
        let scratch = steps.iter().map(scratch).max().unwrap_or(0);
        let sequence = Self { engine, steps, inputs, outputs, states, constants, arena, scratch, memory };
        sequence.check_addresses()?;
        Ok(sequence)
    }

    fn check_addresses(&self) -> Result<()> {
        for step in &self.steps {
            for (tensor, (desc, address)) in step.descs().zip(&step.addresses).enumerate() {
                let given = match address.place {
                    TensorPlace::Input(index) => bytes(&self.inputs[index]),
                    TensorPlace::Output(index) => bytes(&self.outputs[index]),
                    TensorPlace::Constant(index) => self.constants[index].bytes().len(),
                    TensorPlace::Arena => self.arena,
                    TensorPlace::State(index) => self.states[index].bytes(),
                    TensorPlace::NextState(index) => bytes(&self.states[index].present),
                };
                let margin = if step.has_margins(tensor) && bytes(desc) > 0 { CALL_MARGIN } else { 0 };
                let needed = address.offset.saturating_add(bytes(desc)).saturating_add(margin);
                if needed > given || address.offset < margin {
                    return Err(Error::Execute(ExecuteFault::Scratchpad { needed, given }));
                }
            }
        }
        Ok(())
    }

    /// The tensors that the caller gives, as they were compiled.
    pub(crate) fn inputs(&self) -> &[LogicalTensor] {
        &self.inputs
    }

    /// The tensors that a run writes, as they were compiled.
    pub(crate) fn outputs(&self) -> &[LogicalTensor] {
        &self.outputs
    }

    /// The tensors of the state, as they were compiled.
    pub(crate) fn states(&self) -> &[StateTensors] {
        &self.states
    }

    /// True if a state is one before a run, and there is one.
    pub(crate) fn reads(&self, states: &[StateBuffer]) -> bool {
        let mut pairs = self.states.iter().zip(states);
        self.states.len() == states.len() && !states.is_empty() && pairs.all(|(own, state)| own.reads(state))
    }

    /// The constants.
    pub(crate) fn constants(&self) -> &[ConstantData] {
        &self.constants
    }

    /// The steps.
    pub(crate) fn steps(&self) -> &[SequenceStep] {
        &self.steps
    }

    /// Bytes of a run: tensors between the steps, then scratch.
    pub(crate) fn memory(&self) -> (usize, usize) {
        (self.arena, self.scratch)
    }

    /// Runs the steps on inputs and outputs that are those of the sequence, in its order, and on its state.
    ///
    /// # Errors
    ///
    /// [`ExecuteFault::Overlap`] for an output that overlaps an input or another output; the errors of the
    /// steps. Views and tensors of the state that are not those of the sequence are
    /// [`ExecuteFault::NoMemory`]. After an error, the state is as it was.
    pub(crate) fn run(
        &self,
        inputs: &[DynView<'_>],
        outputs: &mut [DynViewMut<'_>],
        states: &mut [StateBuffer],
    ) -> Result<()> {
        self.run_timed(inputs, outputs, states, None)
    }

    /// As [`run`](Self::run); adds the time of each step, if it is asked for.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub(crate) fn run_timed(
        &self,
        inputs: &[DynView<'_>],
        outputs: &mut [DynViewMut<'_>],
        states: &mut [StateBuffer],
        mut times: Option<&mut Vec<StepTime>>,
    ) -> Result<()> {
        span!("run", steps = self.steps.len());
        let given = inputs.iter().map(|view| &view.raw).chain(outputs.iter().map(|view| &view.raw));
        let expected = self.inputs.iter().chain(&self.outputs);
        let are_all = inputs.len() == self.inputs.len() && outputs.len() == self.outputs.len();
        let mut bases: SmallVec<[*mut u8; 16]> = SmallVec::new();
        for (view, desc) in given.zip(expected) {
            let fits = are_all && view.is_memory_of(desc);
            let address = view.address_if(fits).ok_or(ExecuteFault::NoMemory { tensor: desc.id() });
            bases.push(address.map_err(Error::Execute)?);
        }
        self.check_overlaps(&bases)?;
        self.bind_states(states, &mut bases)?;
        let memory = self.memory.take(&self.engine, self.arena.saturating_add(self.scratch))?;
        // Wrong indices are told of before anything is written.
        let checked = self.steps.iter().try_for_each(|step| {
            // SAFETY: as below; inputs are initialised.
            unsafe { self.check_indices(step, &bases, memory.as_ptr()) }
        });
        let run = |step: &SequenceStep| {
            let began = times.as_ref().map(|_| Instant::now());
            // SAFETY: the addresses of the step lie within memory of inputs, outputs, the state, constants
            // and the arena, as `new` has checked; the views and the state are memory of the tensors, as was
            // just checked; they are borrowed, and outputs overlap nothing.
            let ran = unsafe { self.run_step(step, &bases, memory.as_ptr()) };
            if let (Some(times), Some(began)) = (&mut times, began) {
                times.push(StepTime { began, duration: began.elapsed() });
            }
            ran
        };
        let result = checked.and_then(|()| self.steps.iter().try_for_each(run));
        self.memory.put(memory);
        result?;
        self.states.iter().zip(states).for_each(|(tensors, buffer)| tensors.finish(buffer));
        Ok(())
    }

    /// Adds the addresses of the state: of each tensor as it is, and of what takes its place.
    fn bind_states(&self, states: &mut [StateBuffer], bases: &mut SmallVec<[*mut u8; 16]>) -> Result<()> {
        let are_all = states.len() == self.states.len();
        for (index, tensors) in self.states.iter().enumerate() {
            let buffer = states.get_mut(index).filter(|buffer| are_all && tensors.fits(buffer));
            let tensor = tensors.past.id();
            let buffer = buffer.ok_or(Error::Execute(ExecuteFault::NoMemory { tensor }))?;
            let next = match tensors.update {
                StateUpdate::Replace => buffer.reserve_next(bytes(&tensors.present))?,
                StateUpdate::Append | StateUpdate::InPlace => std::ptr::null_mut(),
            };
            bases.extend([buffer.address(), next]);
        }
        Ok(())
    }

    /// As [`run_timed`](Self::run_timed), into new memory of the engine.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub(crate) fn run_new(
        &self,
        inputs: &[DynView<'_>],
        states: &mut [StateBuffer],
        times: Option<&mut Vec<StepTime>>,
    ) -> Result<Vec<TensorBuf>> {
        // SAFETY: the steps write every element of the outputs, which are dense; after an error they are
        // dropped.
        let new =
            |desc: &LogicalTensor| unsafe { TensorBuf::unwritten(desc.clone(), &self.engine, &self.memory) };
        let mut outputs = self.outputs.iter().map(new).collect::<Result<Vec<_>>>()?;
        let mut views: SmallVec<[DynViewMut<'_>; 4]> =
            outputs.iter_mut().map(AsDynViewMut::as_dyn_view_mut).collect();
        self.run_timed(inputs, &mut views, states, times)?;
        drop(views);
        Ok(outputs)
    }

    /// Refuses outputs that overlap an input or another output.
    fn check_overlaps(&self, bases: &[*mut u8]) -> Result<()> {
        let range = |index: usize| {
            let desc = self.inputs.get(index).unwrap_or_else(|| &self.outputs[index - self.inputs.len()]);
            (bases[index].addr(), bytes(desc), desc.id())
        };
        for output in self.inputs.len()..bases.len() {
            let (start, size, id) = range(output);
            for other in 0..output {
                let (other_start, other_size, other_id) = range(other);
                let apart = start.saturating_add(size) <= other_start
                    || other_start.saturating_add(other_size) <= start;
                if size > 0 && other_size > 0 && !apart {
                    return Err(Error::Execute(ExecuteFault::Overlap { output: id, other: other_id }));
                }
            }
        }
        Ok(())
    }

    /// The address of each tensor of a step, inputs first.
    fn addresses(&self, step: &SequenceStep, bases: &[*mut u8], memory: *mut u8) -> SmallVec<[*mut u8; 8]> {
        let given = self.inputs.len() + self.outputs.len();
        let address = |at: &TensorAddress| {
            let base = match at.place {
                TensorPlace::Input(index) => bases[index],
                TensorPlace::Output(index) => bases[self.inputs.len() + index],
                TensorPlace::Constant(index) => self.constants[index].bytes().as_ptr().cast_mut(),
                TensorPlace::Arena => memory,
                TensorPlace::State(index) => bases[given + 2 * index],
                TensorPlace::NextState(index) => bases[given + 2 * index + 1],
            };
            base.wrapping_add(at.offset)
        };
        step.addresses.iter().map(address).collect()
    }

    /// Refuses wrong indices that the caller gives.
    ///
    /// # Safety
    ///
    /// As for [`run_step`](Self::run_step).
    unsafe fn check_indices(&self, step: &SequenceStep, bases: &[*mut u8], memory: *mut u8) -> Result<()> {
        let compiled = match &step.work {
            StepWork::Partition(compiled) if compiled.checks_indices() => compiled,
            _ => return Ok(()),
        };
        let is_given = |port: usize| matches!(step.addresses[port].place, TensorPlace::Input(_));
        // SAFETY: as the caller promises.
        unsafe { compiled.check_indices_at(&self.addresses(step, bases, memory), is_given) }
    }

    /// Lets the system have the memory of constants of which a partition has kept copies.
    fn release_copied(&self, compiled: &CompiledPartition, addresses: &[TensorAddress]) {
        for &port in compiled.copied_inputs() {
            if let TensorPlace::Constant(constant) = addresses[port].place {
                self.constants[constant].release();
            }
        }
    }

    /// # Safety
    ///
    /// The bases are memory of the inputs and outputs, which nobody else writes; `memory` has room for arena
    /// and scratch, and belongs to this run.
    unsafe fn run_step(&self, step: &SequenceStep, bases: &[*mut u8], memory: *mut u8) -> Result<()> {
        let addresses = self.addresses(step, bases, memory);
        match &step.work {
            StepWork::Partition(compiled) => {
                // SAFETY: as the caller promises, and the scratch is behind the arena.
                if unsafe { compiled.run_at(&addresses, memory.wrapping_add(self.arena)) }? {
                    self.release_copied(compiled, &step.addresses);
                }
                Ok(())
            }
            StepWork::Function { call, descs, inputs } => {
                let (of_inputs, of_outputs) = descs.split_at(*inputs);
                let views = of_inputs.iter().zip(&addresses);
                // SAFETY: as the caller promises; constants and earlier results are initialised.
                let views = views.map(|(desc, &address)| unsafe { DynView::of_desc(desc, address) });
                let views: SmallVec<[DynView<'_>; 4]> = views.collect();
                let results = of_outputs.iter().zip(&addresses[*inputs..]);
                let margins = results.clone().enumerate().filter_map(|(output, (desc, &address))| {
                    let has_margins = step.has_margins(*inputs + output) && bytes(desc) > 0;
                    // SAFETY: they lie within the arena, as `new` has checked, where nothing else is.
                    has_margins.then(|| (output, unsafe { Margins::set(address, bytes(desc)) }))
                });
                let margins: SmallVec<[(usize, Margins); 2]> = margins.collect();
                // SAFETY: as the caller promises; outputs of a step overlap none of its other tensors.
                let results = results.map(|(desc, &address)| unsafe { DynViewMut::of_desc(desc, address) });
                let mut results: SmallVec<[DynViewMut<'_>; 2]> = results.collect();
                call.call(&views, &mut results)?;
                // SAFETY: the call has ended.
                match margins.iter().find(|(_, margins)| !unsafe { margins.are_whole() }) {
                    Some(&(output, _)) => Err(call.wrote_beside(output)),
                    None => Ok(()),
                }
            }
        }
    }
}

impl std::fmt::Debug for PartitionSequence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartitionSequence").field("steps", &self.steps.len()).finish_non_exhaustive()
    }
}

/// Bytes from the first to the last element of a tensor of known dims and strides.
pub(crate) fn bytes(desc: &LogicalTensor) -> usize {
    let bits = desc.data_type().bits();
    desc.span().map_or(usize::MAX, |span| span.saturating_mul(bits).div_ceil(8))
}
