//! Puts the phases of a partition together: ops that are not pointwise, which are called anchors, and the
//! pointwise ops before, between and behind them.
//!
//! A lowering makes a [`ShapedPartition`], and from it a [`PlanBuilder`]. For each anchor in order it takes
//! from the builder the places of the anchor's [operands](PlanBuilder::operand) and
//! [results](PlanBuilder::result), and adds the anchor's phase. An operand that is computed by pointwise ops
//! is first written to an internal buffer, by a map phase of its own; a result is a port if it is an output
//! of the partition, otherwise an internal buffer. At the end, [`finish`](PlanBuilder::finish) adds map
//! phases for the outputs that no phase has written yet, lets buffers share memory, and makes the plan. So
//! any anchor can stand among any pointwise ops.
//!
//! A lowering that computes tiles fuses what it can instead. [`epilogue`](PlanBuilder::epilogue) makes a tile
//! program of the values that depend on an anchor's result, and [`slot_program`](PlanBuilder::slot_program)
//! one of an operand that goes to a slot of the driver; no other phase computes the values that they take
//! over.

mod dependence;
mod result_programs;

use smallvec::SmallVec;

use crate::compile::buffers::{placed_buffers, preparation};
use crate::compile::dequantized::read_by;
use crate::compile::elementwise::{
    self, DriverSpace, FoldedAxes, GroupValue, LoweredNests, ShapedGroup, Stored, StridedView, in_place_pairs,
};
use crate::compile::in_place::row_by_row;
use crate::compile::memory::{self, MemoryPolicy, Traffic, whole_lines};
use crate::compile::shaped_partition::ShapedPartition;
use crate::compile::shapes::MAX_ELEMENTS;
use crate::compile::tile_class;
pub(super) use crate::compile::tile_class::ClassifiedScores;
use crate::error::{CompileFault, Error, Result};
use crate::graph::op::Op;
use crate::kernels::{Extent, LINE};
use crate::plan::{
    Base, ClassTable, ClassifyPhase, Cost, Fallback, InPlacePorts, IndexCheck, LoopNest, OfValues, Phase,
    Plan, ScoreBound, ValueId,
};
use crate::types::dtype::DataType;
use crate::types::fallback::{FallbackReason, FastForm};
use crate::types::kind::{Level, Property};
use crate::types::shape::{self, Dims};

/// Strides along the axes of an index space, in bytes.
pub(super) type AxisStrides = SmallVec<[isize; 6]>;

/// A value in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlacedTensor {
    pub(super) base: Base,
    pub(super) data_type: DataType,
    pub(super) dims: Dims,
    /// In elements.
    pub(super) strides: Dims,
}

/// A plan under construction; see the documentation of the module.
pub(super) struct PlanBuilder<'a> {
    shaped: &'a ShapedPartition<'a>,
    ports: Vec<&'a [i64]>,
    pub(super) level: Level,
    pub(super) policy: MemoryPolicy,
    /// For each value its place, if a phase so far writes it or if it is an input.
    stored: OfValues<Option<Stored<'a>>>,
    phases: Vec<Phase>,
    /// The floating-point operations of each phase.
    phase_flops: Vec<usize>,
    /// The floating-point operations of the tile programs of the next phase that has tile programs.
    program_flops: usize,
    /// Bytes of the buffers, before any of them share memory.
    buffers: Vec<usize>,
    constants: Vec<[u8; 8]>,
    cost: Cost,
    computes_floats: bool,
    fallbacks: Vec<Fallback>,
    /// Ports of phases on rows that may share memory.
    row_ports: Vec<InPlacePorts>,
    /// Ports that may share memory whatever else reads them.
    shared_ports: Vec<InPlacePorts>,
    index_checks: Vec<IndexCheck>,
    single_thread: bool,
}

impl<'a> PlanBuilder<'a> {
    /// A plan without a phase.
    pub(super) fn new(shaped: &'a ShapedPartition<'a>, level: Level, single_thread: bool) -> Self {
        let group = &shaped.group;
        let ports = shaped.ports();
        let output = group.outputs.iter().map(|&value| group.values[value].bytes());
        let output = output.fold(0, usize::saturating_add);
        // A port whose data no op uses has size 0.
        let read = group.sizes(&ports).into_iter().zip(group.values.ids().take(group.inputs));
        let read = read.zip(&ports).map(|((size, value), strides)| match size {
            0 => 0,
            _ => shaped.bytes_of_loads(value).min(group.values[value].distinct_bytes(strides)),
        });
        let bytes = read.fold(output, usize::saturating_add);
        let policy = memory::decide(Traffic { bytes, output, reads_one_branch: false, single_thread });
        Self {
            stored: group.stored_inputs(&ports),
            ports,
            shaped,
            level,
            policy,
            phases: Vec::new(),
            phase_flops: Vec::new(),
            program_flops: 0,
            buffers: Vec::new(),
            constants: Vec::new(),
            cost: Cost { bytes, ..Cost::default() },
            computes_floats: false,
            fallbacks: Vec::new(),
            row_ports: Vec::new(),
            shared_ports: Vec::new(),
            index_checks: Vec::new(),
            single_thread,
        }
    }

    /// Counts the bytes that are moved, of which some are written, and the time of other work in bytes that
    /// could be moved meanwhile, for a plan that does not read each input once.
    pub(super) fn count_traffic(&mut self, bytes: usize, output: usize, estimated_work: usize) {
        self.cost = Cost { bytes, estimated_work, ..self.cost };
        let single_thread = self.single_thread;
        self.policy = memory::decide(Traffic { bytes, output, reads_one_branch: false, single_thread });
    }

    /// Lets every execution check indices, once.
    pub(super) fn check_indices(&mut self, check: IndexCheck) {
        let is_new = !self.index_checks.contains(&check);
        self.index_checks.extend(is_new.then_some(check));
    }

    /// Notes ports that share memory: nothing reads the input once something else is written to the output.
    pub(super) fn share(&mut self, ports: InPlacePorts) {
        self.shared_ports.push(ports);
    }

    /// The outcome of an attempt at a form for an op; `None` if the form is not taken, which the plan then
    /// says.
    pub(super) fn taken<T>(
        &mut self,
        form: FastForm,
        op: usize,
        attempt: Result<T, FallbackReason>,
    ) -> Option<T> {
        let says = |reason| {
            let fallback = Fallback { form, op, reason };
            if !self.fallbacks.contains(&fallback) {
                self.fallbacks.push(fallback);
            }
        };
        attempt.map_err(says).ok()
    }

    /// The values of the partition.
    pub(super) fn group(&self) -> &'a ShapedGroup {
        &self.shaped.group
    }

    /// An op of the partition.
    pub(super) fn op(&self, index: usize) -> &'a Op {
        &self.shaped.partition.ops()[index]
    }

    /// The error of a fault of the partition.
    pub(super) fn refuse(&self, fault: CompileFault) -> Error {
        Error::Compile { partition: self.shaped.partition.id(), fault }
    }

    /// True if a port is a constant input.
    pub(super) fn is_constant(&self, port: usize) -> bool {
        self.shaped.inputs.get(port).is_some_and(|input| input.property() == Property::Constant)
    }

    /// The constants so far.
    #[cfg(test)]
    pub(super) fn constants(&self) -> &[[u8; 8]] {
        &self.constants
    }

    /// A new internal buffer, for as long as phases access it.
    pub(super) fn buffer(&mut self, bytes: usize) -> Base {
        self.buffers.push(bytes);
        Base::Buffer(self.buffers.len() - 1)
    }

    /// New constants behind each other, each at the start of a word of 8 bytes.
    pub(super) fn constant(&mut self, words: impl IntoIterator<Item = [u8; 8]>) -> Base {
        let first = self.constants.len();
        self.constants.extend(words);
        Base::Constant(first)
    }

    /// Adds the phase that finds the classes of the tiles of a value that enters a SoftMax, and gives its
    /// table; `None` if nothing masks the value, or if there is one tile to compute anyway. `scores` is what
    /// bounds the scores, if that may decide a class.
    pub(super) fn classify(
        &mut self,
        of: ClassifiedScores<'_>,
        scores: Option<ScoreBound>,
    ) -> Option<ClassTable> {
        let phase = self.mask(of)?.bounded_by(scores);
        if phase.query_blocks() * phase.key_blocks() <= 1 {
            return None;
        }
        self.buffers.push(phase.table_bytes());
        let table = phase.table();
        self.push(Phase::Classify(Box::new(phase)), 0, true);
        Some(table)
    }

    /// The phase that finds the classes of tiles, which the plan does not have yet; its table would be the
    /// next buffer. `None` if nothing masks the value.
    pub(super) fn mask(&self, of: ClassifiedScores<'_>) -> Option<ClassifyPhase> {
        let table = Base::Buffer(self.buffers.len());
        tile_class::classify_phase(self.group(), &self.stored, of, table, self.level)
    }

    /// Adds a phase, and the cost of its own operations beside its tile programs.
    pub(super) fn push(&mut self, phase: Phase, flops: usize, computes_floats: bool) {
        let has_steps = phase.nests().iter().any(|nest| !nest.program.steps.is_empty());
        let of_programs = if has_steps { std::mem::take(&mut self.program_flops) } else { 0 };
        self.phases.push(phase);
        self.phase_flops.push(flops.saturating_add(of_programs));
        self.cost.flops = self.cost.flops.saturating_add(flops);
        self.computes_floats |= computes_floats;
    }

    /// The place of a value, if it is an input or a phase so far writes it.
    pub(super) fn place(&self, value: ValueId) -> Option<PlacedTensor> {
        Some(self.placed(value, self.stored[value]?))
    }

    fn placed(&self, value: ValueId, Stored { base, strides }: Stored<'a>) -> PlacedTensor {
        let value = &self.group().values[value];
        let mut strides = match strides {
            Some(strides) => strides.into(),
            None => shape::own_strides(&value.dims),
        };
        // No limit holds for the stride of a dim of 1.
        let alone = strides.iter_mut().zip(&value.dims).filter(|(_, dim)| **dim == 1);
        alone.for_each(|(stride, _)| *stride = (*stride).min(MAX_ELEMENTS));
        PlacedTensor { base, data_type: value.data_type, dims: value.dims.clone(), strides }
    }

    /// The place of an operand of an anchor. If pointwise ops compute the operand, a phase is added that
    /// writes it.
    pub(super) fn operand(&mut self, value: ValueId) -> Result<PlacedTensor> {
        if self.stored[value].is_none() {
            self.write(&[value])?;
        }
        self.place(value).ok_or_else(|| self.refuse(unordered()))
    }

    /// The elements of an operand of an anchor in memory, and the bytes to the first, if strides lead to them
    /// in a value that is stored. The type is that in memory: bf16 or f16 for an operand that is widened to
    /// f32.
    pub(super) fn view(&self, value: ValueId) -> Option<(PlacedTensor, isize)> {
        self.view_in(self.group(), value)
    }

    /// As [`view`](Self::view), in a group with the same values, some of which are defined otherwise.
    pub(super) fn view_in(&self, group: &ShapedGroup, value: ValueId) -> Option<(PlacedTensor, isize)> {
        let StridedView { of, offset, strides } = elementwise::strided_view(group, &self.stored, value)?;
        let place = self.place(of)?;
        let bytes = isize::try_from(offset).ok()?.checked_mul(place.data_type.size()? as isize)?;
        let dims = self.group().values[value].dims.clone();
        Some((PlacedTensor { dims, strides, ..place }, bytes))
    }

    /// The place of a value if it is stored; else dense strides, without a base.
    pub(super) fn place_or_dense(&self, value: ValueId) -> PlacedTensor {
        let dense = Stored { base: Base::Index, strides: None };
        self.placed(value, self.stored[value].unwrap_or(dense))
    }

    /// Where a value is, or will be as an output of the group; else dense strides, without a base.
    pub(super) fn destination_or_dense(&self, value: ValueId) -> PlacedTensor {
        match self.stored[value].or_else(|| self.output_place(value)) {
            Some(place) => self.placed(value, place),
            None => self.place_or_dense(value),
        }
    }

    /// The [view](Self::view) of a value without its offset; else dense strides, without a base.
    pub(super) fn view_or_dense(&self, value: ValueId) -> PlacedTensor {
        self.view(value).map_or_else(|| self.place_or_dense(value), |(view, _)| view)
    }

    /// The place for a result of an anchor, which the anchor's phase must write.
    pub(super) fn result(&mut self, value: ValueId) -> PlacedTensor {
        let target = self.target(value);
        self.stored[value] = Some(target);
        self.placed(value, target)
    }

    /// Adds phases that write values that pointwise ops compute from what is stored.
    pub(super) fn write(&mut self, values: &[ValueId]) -> Result<()> {
        self.check_computable(values, &[])?;
        let targets: Vec<(ValueId, Stored<'a>)> =
            values.iter().map(|&value| (value, self.target(value))).collect();
        let is_read_later = self.read_later(&targets);
        let mut stored = self.stored.clone();
        let lowered = elementwise::lower_nests(
            self.group(),
            &mut stored,
            &targets,
            (self.constants.len(), self.buffers.len()),
            self.level,
            &self.policy,
            |base| is_read_later.contains(&base),
        );
        let lowered = lowered.map_err(|fault| self.refuse(fault))?;
        self.phase_flops.extend(&lowered.flops);
        let nests = self.add(lowered);
        self.phases.extend(nests.into_iter().map(Phase::Map));
        self.stored = stored;
        Ok(())
    }

    /// Adds phases that write values of a group with more values than the partition to internal buffers, with
    /// their dims in an order, the outermost one first. Behind each value a vector can be read. `None` if no
    /// kernels compute them.
    pub(super) fn write_in<const N: usize>(
        &mut self,
        group: &ShapedGroup,
        values: [ValueId; N],
        order: &[usize],
    ) -> Option<[PlacedTensor; N]> {
        let places = values.map(|value| {
            let GroupValue { data_type, dims, .. } = &group.values[value];
            let bytes = group.values[value].bytes().saturating_add(LINE);
            let strides = shape::own_strides_in(dims, order);
            PlacedTensor { base: self.buffer(bytes), data_type: *data_type, dims: dims.clone(), strides }
        });
        let mut stored: OfValues<Option<Stored<'_>>> = self.stored.clone();
        stored.resize(group.values.len(), None);
        let targets: Vec<(ValueId, Stored<'_>)> = (values.iter().zip(&places))
            .map(|(&value, place)| (value, Stored { base: place.base, strides: Some(&place.strides) }))
            .collect();
        let next = (self.constants.len(), self.buffers.len());
        let lowered =
            elementwise::lower_nests(group, &mut stored, &targets, next, self.level, &self.policy, |base| {
                places.iter().any(|place| place.base == base)
            });
        let lowered = lowered.ok()?;
        self.phase_flops.extend(&lowered.flops);
        let nests = self.add(lowered);
        self.phases.extend(nests.into_iter().map(Phase::Map));
        Some(places)
    }

    /// The tile program that a driver runs behind the computation of some results of an anchor: `supplied`
    /// are these values, each with its slot. The program writes the [roots](Self::epilogue_roots), each to a
    /// port or to an internal buffer.
    pub(super) fn epilogue(
        &mut self,
        space: &DriverSpace,
        supplied: &[(ValueId, usize)],
        roots: &[ValueId],
    ) -> Result<LoopNest> {
        let nests = self.epilogues(std::slice::from_ref(space), supplied, roots)?;
        nests.into_iter().next().ok_or_else(|| self.refuse(no_nest()))
    }

    /// As [`epilogue`](Self::epilogue) for drivers of several phases, each of which gives some elements of
    /// the results.
    pub(super) fn epilogues(
        &mut self,
        spaces: &[DriverSpace],
        supplied: &[(ValueId, usize)],
        roots: &[ValueId],
    ) -> Result<Vec<LoopNest>> {
        let targets: Vec<(ValueId, Stored<'a>)> =
            roots.iter().map(|&value| (value, self.target(value))).collect();
        let nests =
            spaces.iter().map(|space| self.program(space, supplied, &targets)).collect::<Result<_>>()?;
        targets.iter().for_each(|&(value, target)| self.stored[value] = Some(target));
        Ok(nests)
    }

    /// The tile program that computes a value from what is stored and from values that the driver supplies,
    /// each with its slot, and puts it into a slot of the driver.
    pub(super) fn slot_program(
        &mut self,
        space: &DriverSpace,
        supplied: &[(ValueId, usize)],
        value: ValueId,
        slot: usize,
    ) -> Result<LoopNest> {
        let target = Stored { base: Base::Driver(slot), strides: None };
        self.program(space, supplied, &[(value, target)])
    }

    /// As [`slot_program`](Self::slot_program) for several values, each with its slot.
    pub(super) fn slots_program(
        &mut self,
        space: &DriverSpace,
        supplied: &[(ValueId, usize)],
        targets: &[(ValueId, usize)],
    ) -> Result<LoopNest> {
        let to_slot = |&(value, slot)| (value, Stored { base: Base::Driver(slot), strides: None });
        let targets: Vec<(ValueId, Stored<'_>)> = targets.iter().map(to_slot).collect();
        self.program(space, supplied, &targets)
    }

    /// As [`slot_program`](Self::slot_program) for one supplied value, in the group without masks, for tiles
    /// in which no mask masks anything.
    pub(super) fn unmasked_program(
        &mut self,
        space: &DriverSpace,
        group: &ShapedGroup,
        (supplied, from): (ValueId, usize),
        value: ValueId,
        slot: usize,
    ) -> Result<Option<LoopNest>> {
        let mut stored: OfValues<Option<Stored<'_>>> = self.stored.clone();
        stored[supplied] = Some(Stored { base: Base::Driver(from), strides: None });
        let lowered = elementwise::tile_program(
            group,
            &stored,
            space,
            &[(value, Stored { base: Base::Driver(slot), strides: None })],
            self.constants.len(),
            self.level,
            &self.policy,
            |_| true,
        );
        // It runs in place of another program, whose cost counts.
        let (cost, flops) = (self.cost, self.program_flops);
        let nests = lowered.map_err(|fault| self.refuse(fault)).map(|lowered| self.add(lowered))?;
        (self.cost, self.program_flops) = (cost, flops);
        Ok(nests.into_iter().next())
    }

    /// As [`slots_program`](Self::slots_program) without supplied values, in a group with more values than
    /// the partition. `None` if no strides lead to what the program reads.
    pub(super) fn program_in(
        &mut self,
        group: &ShapedGroup,
        space: &DriverSpace,
        targets: &[(ValueId, usize)],
    ) -> Option<LoopNest> {
        let mut stored: OfValues<Option<Stored<'_>>> = self.stored.clone();
        stored.resize(group.values.len(), None);
        let to_slot = |&(value, slot)| (value, Stored { base: Base::Driver(slot), strides: None });
        let targets: Vec<(ValueId, Stored<'_>)> = targets.iter().map(to_slot).collect();
        let lowered = elementwise::tile_program(
            group,
            &stored,
            space,
            &targets,
            self.constants.len(),
            self.level,
            &self.policy,
            |_| true,
        );
        let lowered = lowered.ok()?;
        self.program_flops = self.program_flops.saturating_add(lowered.cost.flops);
        self.add(lowered).into_iter().next()
    }

    /// The elements of an operand of an anchor in memory, as a [view](Self::view) where strides lead to them,
    /// else written by a phase of its own; and the bytes to the first.
    pub(super) fn operand_view(&mut self, value: ValueId) -> Result<(PlacedTensor, isize)> {
        match self.view(value) {
            Some(view) => Ok(view),
            None => Ok((self.operand(value)?, 0)),
        }
    }

    fn program<'t>(
        &mut self,
        space: &'t DriverSpace,
        supplied: &[(ValueId, usize)],
        targets: &[(ValueId, Stored<'t>)],
    ) -> Result<LoopNest>
    where
        'a: 't,
    {
        let [values, from] = [
            targets.iter().map(|&(value, _)| value).collect::<Vec<ValueId>>(),
            supplied.iter().map(|&(value, _)| value).collect(),
        ];
        self.check_computable(&values, &from)?;
        let is_read_later = self.read_later(targets);
        let mut stored: OfValues<Option<Stored<'t>>> = self.stored.clone();
        for &(value, slot) in supplied {
            stored[value] = Some(Stored { base: Base::Driver(slot), strides: None });
        }
        let lowered = elementwise::tile_program(
            self.group(),
            &stored,
            space,
            targets,
            self.constants.len(),
            self.level,
            &self.policy,
            |base| is_read_later.contains(&base),
        );
        let lowered = lowered.map_err(|fault| self.refuse(fault))?;
        self.program_flops = self.program_flops.saturating_add(lowered.cost.flops);
        let nests = self.add(lowered);
        nests.into_iter().next().ok_or_else(|| self.refuse(no_nest()))
    }

    /// The values that an epilogue of an anchor writes: those with the shape of the anchor's first result
    /// that are outputs, or operands of later anchors, and that pointwise ops compute from the results of the
    /// anchor and from what is stored. The first result itself is one of them if others need it in memory;
    /// there are none if strides then do not lead to its place.
    /// `supplied` are the results of the anchor that the driver supplies, `folded` the axes of its space.
    pub(super) fn epilogue_roots(
        &self,
        anchor: usize,
        supplied: &[ValueId],
        folded: Option<&FoldedAxes>,
    ) -> Vec<ValueId> {
        let group = self.group();
        let own = &group.anchors[anchor].outputs;
        let later = (anchor + 1..group.anchors.len())
            .flat_map(|later| read_by(group, &group.anchors[later], self.anchor_op(later)));
        let mut needed: Vec<ValueId> = group.outputs.iter().copied().chain(later).collect();
        needed.sort_unstable();
        needed.dedup();
        needed.retain(|&value| self.stored[value].is_none());
        let dims = &group.values[own[0]].dims;
        let is_fused = |&value: &ValueId| {
            group.values[value].dims == *dims
                && (own[0] == value || !own.contains(&value))
                && self.depends(value, own[0], &[])
                && self.is_folded_program(dims, folded, supplied, value)
        };
        let mut roots: Vec<ValueId> = needed.iter().copied().filter(is_fused).collect();
        // Needed values that the epilogue does not compute are computed from the result in memory.
        let needs_result = needed.iter().any(|&value| {
            !roots.contains(&value) && !own.contains(&value) && self.depends(value, own[0], &roots)
        });
        if (needs_result || needed.contains(&own[0])) && !roots.contains(&own[0]) {
            match is_fused(&own[0]) {
                true => roots.insert(0, own[0]),
                false => roots.clear(),
            }
        }
        roots
    }

    /// True if a tile program over a space with these dims can compute a value from some values that the
    /// driver supplies and from what is stored, and write it where it is to be.
    pub(super) fn is_tile_program(&self, dims: &Dims, supplied: &[ValueId], value: ValueId) -> bool {
        self.is_folded_program(dims, None, supplied, value)
    }

    /// As [`is_tile_program`](Self::is_tile_program) over a space whose axes may not be the dims.
    pub(super) fn is_folded_program(
        &self,
        dims: &Dims,
        folded: Option<&FoldedAxes>,
        supplied: &[ValueId],
        value: ValueId,
    ) -> bool {
        if !self.is_computable(value, supplied) {
            return false;
        }
        let mut stored = self.stored.clone();
        for (slot, &value) in supplied.iter().enumerate() {
            stored[value] = Some(Stored { base: Base::Driver(slot), strides: None });
        }
        let space = DriverSpace {
            folded: folded.cloned(),
            ..DriverSpace::new(
                folded.map_or_else(|| dims.clone(), |folded| folded.nest_box.extents()),
                [None, None],
                Extent { rows: 1, columns: 1 },
                SmallVec::from_elem((0, 0), supplied.len()),
            )
        };
        let target = self.output_place(value).unwrap_or(Stored { base: Base::Buffer(0), strides: None });
        elementwise::is_tile_program(self.group(), &stored, &space, value, target)
    }

    /// The place of a value that is an output.
    fn output_place(&self, value: ValueId) -> Option<Stored<'a>> {
        let group = self.group();
        let output = group.outputs.iter().position(|&output| output == value)?;
        Some(group.stored_output(output, &self.ports))
    }

    /// The place at which a value is to be written.
    fn target(&mut self, value: ValueId) -> Stored<'a> {
        let bytes = self.group().values[value].bytes();
        self.output_place(value).unwrap_or_else(|| Stored { base: self.buffer(bytes), strides: None })
    }

    /// Adds the constants, buffers and costs of nests to the plan.
    fn add(&mut self, lowered: LoweredNests) -> Vec<LoopNest> {
        let LoweredNests { nests, constants, buffers, cost, computes_floats, flops: _ } = lowered;
        self.constants.extend(constants);
        self.buffers.extend(buffers);
        self.cost.flops = self.cost.flops.saturating_add(cost.flops);
        self.cost.estimated_work = self.cost.estimated_work.saturating_add(cost.estimated_work);
        self.computes_floats |= computes_floats;
        nests
    }

    /// Notes ports of a phase on rows that share memory if nothing else reads the input.
    pub(super) fn may_share(&mut self, ports: InPlacePorts) {
        self.row_ports.push(ports);
    }

    /// Adds phases for the outputs that no phase has written yet, and makes the plan.
    pub(super) fn finish(mut self) -> Result<Plan> {
        let group = self.group();
        let open: Vec<ValueId> =
            group.outputs.iter().copied().filter(|&value| self.stored[value].is_none()).collect();
        if !open.is_empty() {
            self.write(&open)?;
        }
        let is_constant = |port: usize| self.is_constant(port);
        let preparation = preparation(&self.phases, self.buffers.len(), is_constant);
        let buffers = placed_buffers(&self.phases, &self.buffers, &preparation.buffers);
        let Self {
            shaped,
            ports,
            policy,
            phases,
            phase_flops,
            constants,
            cost,
            computes_floats,
            fallbacks,
            row_ports,
            shared_ports,
            index_checks,
            ..
        } = self;
        let mut in_place = in_place_pairs(&phases, group, &ports);
        in_place.extend(row_ports.into_iter().filter(|pair| row_by_row(pair, &phases, shaped)));
        in_place.extend(shared_ports);
        in_place.retain(|pair| shaped.keeps_places(pair));
        Ok(Plan {
            sizes: group.sizes(&ports),
            in_place,
            buffers,
            scratch: whole_lines(phases.iter().map(Phase::scratch).max().unwrap_or(0)),
            phases,
            preparation,
            constants,
            cost,
            phase_flops,
            threading: memory::threading(cost),
            computes_floats,
            stores: policy.stores,
            fallbacks,
            index_checks,
            outputs: shaped.resolved.clone(),
        })
    }
}

/// A defect of a lowering: a tile program is one nest.
fn no_nest() -> CompileFault {
    CompileFault::Unsupported("a tile program has no nest".into())
}

/// A defect of a lowering: the ops of a partition stand in the order in which they run.
fn unordered() -> CompileFault {
    CompileFault::Unsupported("an op stands before the op whose result it uses".into())
}
