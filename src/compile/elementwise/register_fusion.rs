//! Register fusion: a step absorbs the steps whose results only it uses, and intermediate values stay in
//! registers.

use smallvec::SmallVec;

use super::schedule::{Schedule, UnplacedStep, reached, skippable};
use super::select_kernel::{Fusible, NO_PARAMS, StageShape};
use crate::compile::memory::MemoryPolicy;
use crate::kernels::fused::{self, FusedProgram, Location, ProgramOperand, Stage, StageUse, StoreKind};
use crate::kernels::pointwise::Params;
use crate::kernels::{InnerStride, Width};
use crate::plan::register_fusion::RegisterFusionVerdict;
use crate::plan::{FusedKernel, Instr, OfSteps, Operand, StepId, StepSet};
use crate::types::kind::Level;

/// Most steps of a fused kernel: the depth of nested calls if the compiler does not make tail calls of them.
const MAX_STEPS: usize = 32;

/// A schedule with fused kernels in place of the steps that they absorb, and a verdict for each step.
pub(super) struct FusedSchedule<'a> {
    pub(super) schedule: Schedule<'a>,
    pub(super) verdicts: OfSteps<RegisterFusionVerdict>,
}

/// For each step whether it can be part of a fused kernel, and if not, why.
type FusibleSteps = OfSteps<Result<(), RegisterFusionVerdict>>;

/// For each step the fused kernel in its place, with the steps that the kernel absorbs.
type FusedKernels = OfSteps<Option<(FusedKernel, Vec<StepId>)>>;

/// Fuses the steps of a schedule as far as that pays.
pub(super) fn fuse<'a>(schedule: Schedule<'a>, level: Level, policy: &MemoryPolicy) -> FusedSchedule<'a> {
    let count = schedule.steps.len();
    let fusible: FusibleSteps =
        StepId::all(count).map(|step| check_fusible(&schedule, step, level)).collect();
    let lone = |why: RegisterFusionVerdict| {
        fusible.iter().map(|fusible| fusible.err().unwrap_or(why)).collect::<OfSteps<_>>()
    };
    if count < 2 {
        let verdicts = OfSteps::new(count, RegisterFusionVerdict::NoPartner);
        return FusedSchedule { schedule, verdicts };
    }
    // A fused kernel of two steps must save more than a pass through the caches.
    let computing = schedule.steps.iter().filter(|step| !step.repeats()).count();
    if computing == 2 && !policy.fuses_pairs {
        let is_pair = fusible.iter().zip(&schedule.steps).all(|(is, step)| is.is_ok() || step.repeats());
        let why =
            if is_pair { RegisterFusionVerdict::PairInCaches } else { RegisterFusionVerdict::NoPartner };
        return FusedSchedule { verdicts: lone(why), schedule };
    }
    let mut verdicts = lone(RegisterFusionVerdict::NoPartner);
    let mut users = OfSteps::new(count, Vec::new());
    for (user, step) in StepId::all(count).zip(&schedule.steps) {
        step.instr.deps().for_each(|used| users[used].push(user));
    }
    let mut taken = StepSet::none_of(count);
    let mut kernels: FusedKernels = StepId::all(count).map(|_| None).collect();
    for root in StepId::all(count).rev() {
        if taken.contains(root) || fusible[root].is_err() {
            continue;
        }
        let members = members(&schedule.steps, &users, &fusible, root, &mut verdicts);
        if members.len() < 2 {
            continue;
        }
        match Writer::new(&schedule, &members, level, policy).fused() {
            Ok(kernel) => {
                taken.extend(members.iter().copied());
                verdicts[root] = RegisterFusionVerdict::Fused;
                kernels[root] = Some((kernel, members));
            }
            Err(reason) => verdicts[root] = reason,
        }
    }
    with_kernels(schedule, kernels, &verdicts)
}

/// The schedule with kernels in place of steps.
fn with_kernels<'a>(
    schedule: Schedule<'a>,
    mut kernels: FusedKernels,
    verdicts: &OfSteps<RegisterFusionVerdict>,
) -> FusedSchedule<'a> {
    let Schedule { expr, space, steps, roots } = schedule;
    let all = StepId::all(steps.len());
    let absorbed: OfSteps<_> = steps.iter().map(|step| (step.labels.clone(), step.cost)).collect();
    let fused = |(index, step): (StepId, UnplacedStep)| match kernels[index].take() {
        None => step,
        Some((kernel, members)) => UnplacedStep {
            labels: members.iter().flat_map(|&member| &absorbed[member].0).copied().collect(),
            instr: Instr::FusedKernel(kernel),
            cost: members.iter().map(|&member| absorbed[member].1).sum(),
            ..step
        },
    };
    let steps: Vec<UnplacedStep> = all.clone().zip(steps).map(fused).collect();
    let order = execution_order(&steps, &roots);
    let mut numbers: OfSteps<StepId> = all.clone().collect();
    all.zip(&order).for_each(|(number, &step)| numbers[step] = number);
    let verdicts = order.iter().map(|&step| verdicts[step]).collect();
    let mut open: OfSteps<Option<UnplacedStep>> = steps.into_iter().map(Some).collect();
    let mut steps: Vec<UnplacedStep> = order.into_iter().filter_map(|step| open[step].take()).collect();
    steps.iter_mut().for_each(|step| step.instr.renumber(&numbers));
    let roots = roots.into_iter().map(|root| numbers[root]).collect();
    FusedSchedule { schedule: Schedule { expr, space, steps, roots }, verdicts }
}

/// The steps that roots need, in run order if none is skipped. A fused kernel needs its operands in another
/// order than its steps did, and scratch is shared by that order.
fn execution_order(steps: &[UnplacedStep], roots: &[StepId]) -> Vec<StepId> {
    let (mut seen, mut order) = (StepSet::none_of(steps.len()), Vec::with_capacity(steps.len()));
    let mut open = Vec::new();
    for &root in roots {
        open.extend(seen.insert(root).then_some(root));
        while let Some(&step) = open.last() {
            match steps[step].instr.deps().find(|&used| !seen.contains(used)) {
                Some(used) => {
                    seen.insert(used);
                    open.push(used);
                }
                None => order.extend(open.pop()),
            }
        }
    }
    order
}

/// The steps that a fused kernel can absorb, in order: each is used only within the fused kernel, and varies
/// along the same loops. Notes why a fusible operand is not absorbed.
fn members(
    steps: &[UnplacedStep],
    users: &OfSteps<Vec<StepId>>,
    fusible: &FusibleSteps,
    root: StepId,
    verdicts: &mut OfSteps<RegisterFusionVerdict>,
) -> Vec<StepId> {
    let mut members = vec![root];
    for step in StepId::all(root.0).rev() {
        let is_used = users[step].iter().any(|user| members.contains(user));
        if !is_used || fusible[step].is_err() {
            continue;
        }
        let refusal = if steps[step].dest.is_some() {
            // A result that is written to a port is used outside.
            Some(RegisterFusionVerdict::Stored)
        } else if steps[step].varies != steps[root].varies {
            Some(RegisterFusionVerdict::OtherLoops)
        } else if !users[step].iter().all(|user| members.contains(user)) {
            Some(RegisterFusionVerdict::UsedElsewhere)
        } else if members.len() == MAX_STEPS {
            Some(RegisterFusionVerdict::TooLong)
        } else {
            None
        };
        match refusal {
            None => members.push(step),
            Some(reason) => verdicts[step] = reason,
        }
    }
    members.reverse();
    members
}

/// Succeeds if a step can be part of a fused kernel: it covers the whole tile, and has a stage.
fn check_fusible(schedule: &Schedule<'_>, index: StepId, level: Level) -> Result<(), RegisterFusionVerdict> {
    let Schedule { space, steps, .. } = schedule;
    let step = &steps[index];
    if step.fusible.is_none() {
        return Err(RegisterFusionVerdict::NoStage);
    }
    if !step.space.rows || step.space.columns != InnerStride::Contiguous {
        return Err(RegisterFusionVerdict::Repeated);
    }
    // Half-empty blocks take as long as full ones.
    let columns = space.columns.extent;
    let filled = columns.next_multiple_of(fused::block_len(level));
    let fills_blocks = filled <= columns / 4 * 5 || space.rows.extent == 1;
    if !fills_blocks && !schedule.lies_flat(index) {
        return Err(RegisterFusionVerdict::ShortRows);
    }
    if skips_work(schedule, index) || skips_driver(schedule, index) {
        return Err(RegisterFusionVerdict::SkipsWork);
    }
    Ok(())
}

/// True if a mask test may skip a heavy step, which no fused kernel absorbs, for a branch of this select.
fn skips_work(schedule: &Schedule<'_>, index: StepId) -> bool {
    let Schedule { steps, roots, .. } = schedule;
    let Instr::Select(select) = &steps[index].instr else { return false };
    let is_heavy = |step: StepId| steps[step].fusible.is_none() && steps[step].varies == steps[index].varies;
    select.computed_branches().any(|first| skippable(steps, roots, index, first).any(is_heavy))
}

/// True if the mask test of this select may save a request for an operand of the driver that only one branch
/// needs.
fn skips_driver(schedule: &Schedule<'_>, index: StepId) -> bool {
    let Schedule { expr, steps, roots, .. } = schedule;
    let Instr::Select(select) = &steps[index].instr else { return false };
    if expr.driver.is_none() {
        return false;
    }
    let supplied = |steps_reached: &StepSet, cut: Option<Operand>| -> SmallVec<[Operand; 4]> {
        let reached = StepId::all(steps.len()).filter(|&step| steps_reached.contains(step));
        let operands = reached.flat_map(|step| {
            let is_cut = move |operand: &Operand| step == index && Some(*operand) == cut;
            steps[step].instr.operands().into_iter().filter(move |operand| !is_cut(operand))
        });
        operands.filter(|&operand| expr.is_supplied(operand)).collect()
    };
    [select.then.operand, select.else_.operand].into_iter().any(|branch| {
        let inside: SmallVec<[Operand; 4]> = match branch {
            Operand::Access(_) => [branch].into_iter().filter(|&branch| expr.is_supplied(branch)).collect(),
            Operand::Step(first) => supplied(&reached(steps, [first], |_, _| true), None),
        };
        let follow = |user: StepId, used: StepId| (user, Operand::Step(used)) != (index, branch);
        let without = supplied(&reached(steps, roots.iter().copied(), follow), Some(branch));
        inside.iter().any(|operand| !without.contains(operand))
    })
}

/// The members whose results have a NaN payload that is demanded: the payload is stored, or moved or
/// changed bit by bit on its way to a store. Arithmetic and predicates treat every NaN alike.
fn demands_nan_bits(steps: &[UnplacedStep], members: &[StepId]) -> StepSet {
    let mut demanded = StepSet::none_of(steps.len());
    demanded.extend(members.last().copied());
    for &member in members.iter().rev() {
        let Some(Fusible { shape, operands }) = &steps[member].fusible else { continue };
        let demanded_operands = match shape {
            StageShape::Bits(_) => &operands[..],
            StageShape::Same if demanded.contains(member) => &operands[..],
            StageShape::Select { .. } if demanded.contains(member) => &operands[1..],
            _ => &[],
        };
        demanded.extend(demanded_operands.iter().filter_map(|(operand, _)| operand.step()));
    }
    demanded
}

/// Succeeds if a part of a program is written; the error says why the fused kernel is given up.
type Written = Result<(), RegisterFusionVerdict>;

/// Writes the program of a fused kernel.
struct Writer<'a> {
    schedule: &'a Schedule<'a>,
    steps: &'a [UnplacedStep],
    members: &'a [StepId],
    level: Level,
    policy: &'a MemoryPolicy,
    stages: Vec<StageUse>,
    /// Operands that are in memory before the fused kernel begins.
    operands: SmallVec<[(Operand, ProgramOperand); 4]>,
    /// The value in each spill slot.
    spilled: Vec<Option<Operand>>,
    /// For each member, the number of uses of its result that are left.
    uses: OfSteps<usize>,
    /// The members whose result has a NaN payload that is demanded.
    demands_nan_bits: StepSet,
    /// The members whose stages have been emitted, or begun.
    emitted: StepSet,
    /// The value in the block registers.
    block: Option<Operand>,
    lane_mask: Option<Operand>,
    /// The value in the saved mask register, until its last use.
    saved_mask: Option<Operand>,
}

impl<'a> Writer<'a> {
    fn new(
        schedule: &'a Schedule<'a>,
        members: &'a [StepId],
        level: Level,
        policy: &'a MemoryPolicy,
    ) -> Self {
        let steps = &schedule.steps[..];
        let mut uses = OfSteps::new(steps.len(), 0);
        for operands in
            members.iter().filter_map(|&step| steps[step].fusible.as_ref()).map(|fusible| &fusible.operands)
        {
            for &(operand, _) in operands {
                if let Operand::Step(step) = operand {
                    uses[step] += 1;
                }
            }
        }
        Self {
            schedule,
            steps,
            members,
            level,
            policy,
            stages: Vec::new(),
            operands: SmallVec::new(),
            spilled: Vec::new(),
            uses,
            demands_nan_bits: demands_nan_bits(steps, members),
            emitted: StepSet::none_of(steps.len()),
            block: None,
            lane_mask: None,
            saved_mask: None,
        }
    }

    /// The fused kernel of all members.
    fn fused(mut self) -> Result<FusedKernel, RegisterFusionVerdict> {
        let root = *self.members.last().ok_or(RegisterFusionVerdict::NoPartner)?;
        let fusible = self.fusible(root)?;
        let result = match fusible.shape {
            StageShape::Same => fusible.operands[0].0,
            _ => Operand::Step(root),
        };
        self.declare()?;
        self.prefetch()?;
        self.emit(result)?;
        let ending = if self.lane_mask == Some(result) {
            StoreKind::Mask
        } else {
            self.load_block(result)?;
            StoreKind::Block(self.steps[root].width, self.steps[root].stores)
        };
        let (operands, program_operands) = self.operands.into_iter().unzip();
        let program =
            FusedProgram::new(self.level, &self.stages, program_operands, ending, self.spilled.len())
                .ok_or(RegisterFusionVerdict::NoProgram)?;
        Ok(FusedKernel { program, operands })
    }

    /// Lists the operands in memory.
    fn declare(&mut self) -> Written {
        for &member in self.members {
            for &(operand, inner) in &self.fusible(member)?.operands {
                if !self.is_member(operand) && self.operands.iter().all(|(known, _)| *known != operand) {
                    self.operands.push((operand, ProgramOperand { width: self.width(operand), inner }));
                }
            }
        }
        Ok(())
    }

    /// Prefetches the operands that are contiguous along rows, if memory is by far the bottleneck. The
    /// stages of a block have too many instructions for the hardware to see the next loads coming; loads from
    /// the last-level cache need no prefetch (decision: prefetch-fused).
    fn prefetch(&mut self) -> Written {
        let from_memory =
            |(index, &(operand, ProgramOperand { width, inner })): (usize, &(Operand, ProgramOperand))| {
                (matches!(operand, Operand::Access(_)) && inner == InnerStride::Contiguous).then_some((
                    Location::Operand(index),
                    operand,
                    width,
                ))
            };
        let from_memory: SmallVec<[(Location, Operand, Width); 4]> =
            self.operands.iter().enumerate().filter_map(from_memory).collect();
        // Sums the cost of all per-element steps, not only of the fused ones: a slow neighbour leaves memory
        // idle (decision: prefetch-fused-cost).
        let varies = self.members.last().map(|&root| self.steps[root].varies);
        let as_often = self.steps.iter().filter(|step| Some(step.varies) == varies);
        let cost: usize = as_often.map(|step| step.cost).sum();
        let along_rows = self.schedule.expr.accesses.iter().zip(&self.schedule.space.columns.strides);
        let moved: usize =
            along_rows.filter(|&(_, &stride)| stride != 0).map(|(access, _)| access.width.bytes()).sum();
        // Nests all of whose results are unpacked read and write their tiles by small pieces.
        let writes_rows =
            self.steps.iter().any(|s| s.dest.is_some() && !matches!(s.instr, Instr::UnpackTile { .. }));
        // Tiles are then pieces of rows that are too short for the hardware prefetcher
        // (decision: prefetch-fused-pack).
        let packs = self.steps.iter().any(UnplacedStep::packs);
        if writes_rows && (packs || (self.policy.prefetches_fused && 2 * cost <= moved)) {
            for (at, operand, width) in from_memory {
                // The distance is passed as an f32; beyond the precision of f32 a neighbouring line is
                // prefetched.
                match self.schedule.space.distance(self.schedule.expr, self.policy, packs, operand) {
                    0 => {}
                    distance => self.push(
                        fused::prefetch(width)[self.level.row()].ok_or(RegisterFusionVerdict::NoProgram)?,
                        at,
                        [distance as f32, 0.0],
                    ),
                }
            }
        }
        Ok(())
    }

    fn fusible(&self, step: StepId) -> Result<&'a Fusible, RegisterFusionVerdict> {
        self.steps[step].fusible.as_ref().ok_or(RegisterFusionVerdict::NoStage)
    }

    fn is_member(&self, operand: Operand) -> bool {
        matches!(operand, Operand::Step(step) if self.members.contains(&step))
    }

    fn width(&self, operand: Operand) -> Width {
        match operand {
            Operand::Access(access) => self.schedule.expr.accesses[access].width,
            Operand::Step(step) => self.steps[step].width,
        }
    }

    fn call(&mut self, stages: fused::Stages, at: Location) -> Written {
        let stage = stages[self.level.row()].ok_or(RegisterFusionVerdict::NoProgram)?;
        self.push(stage, at, NO_PARAMS);
        Ok(())
    }

    fn push(&mut self, stage: Stage, at: Location, params: Params) {
        self.stages.push(StageUse { stage, at, params });
    }

    /// Emits the stages of a value, once, behind those of its operands.
    fn emit(&mut self, value: Operand) -> Written {
        let mut open: Vec<StepId> = self.begin(value).into_iter().collect();
        while let Some(&step) = open.last() {
            let operands = &self.fusible(step)?.operands;
            // The condition comes first. The mask register holds it while the branches are computed, the
            // first branch last.
            let order: &[usize] = if operands.len() == 3 { &[0, 2, 1] } else { &[1, 0] };
            let mut operands = order.iter().filter_map(|&index| operands.get(index));
            match operands.find_map(|&(operand, _)| self.begin(operand)) {
                Some(operand) => open.push(operand),
                None => {
                    self.emit_step(step)?;
                    open.pop();
                }
            }
        }
        Ok(())
    }

    /// The member that gives a value, unless its stages have been begun; from here on they have.
    fn begin(&mut self, value: Operand) -> Option<StepId> {
        let step = value.step().filter(|_| self.is_member(value))?;
        self.emitted.insert(step).then_some(step)
    }

    /// Emits the stages of a member whose operands have theirs.
    fn emit_step(&mut self, step: StepId) -> Written {
        let Fusible { shape, operands } = self.fusible(step)?;
        let operand = |index: usize| operands[index].0;
        match *shape {
            StageShape::Same => return Err(RegisterFusionVerdict::NoStage),
            StageShape::Number1 { stage, params, produces_noncanonical_nan } => {
                self.load_block(operand(0))?;
                self.replace_block(step)?;
                self.push(stage, Location::NoOperand, params);
                self.canonicalise_nan(step, produces_noncanonical_nan)?;
            }
            StageShape::Bits(stage) => {
                self.load_block(operand(0))?;
                self.replace_block(step)?;
                self.push(stage, Location::NoOperand, NO_PARAMS);
            }
            StageShape::Predicate1(stage, params) => {
                self.load_block(operand(0))?;
                self.replace_lane_mask(step)?;
                self.push(stage, Location::NoOperand, params);
            }
            StageShape::Number2 { stage, params, commutes, produces_noncanonical_nan } => {
                let (x, y) = if commutes {
                    self.in_block_first(operand(0), operand(1))
                } else {
                    (operand(0), operand(1))
                };
                let other = self.in_memory(y)?;
                self.load_block(x)?;
                self.replace_block(step)?;
                self.push(stage, other, params);
                self.canonicalise_nan(step, produces_noncanonical_nan)?;
            }
            StageShape::Predicate2 { stage, swapped } => {
                let (x, y) = self.in_block_first(operand(0), operand(1));
                let stage = if x == operand(0) { stage } else { swapped };
                let other = self.in_memory(y)?;
                self.load_block(x)?;
                self.replace_lane_mask(step)?;
                self.push(stage, other, NO_PARAMS);
            }
            StageShape::Not(stage) => {
                self.load_lane_mask(operand(0))?;
                self.replace_lane_mask(step)?;
                self.push(stage, Location::NoOperand, NO_PARAMS);
            }
            StageShape::Logic { stage, of_masks } => {
                let is_second = self.lane_mask == Some(operand(1));
                let (x, y) = if is_second { (operand(1), operand(0)) } else { (operand(0), operand(1)) };
                let (stage, other) = match self.saved_mask == Some(y) && x != y {
                    true => (of_masks, Location::NoOperand),
                    false => (stage, self.in_memory(y)?),
                };
                self.load_lane_mask(x)?;
                self.replace_lane_mask(step)?;
                self.push(stage, other, NO_PARAMS);
            }
            StageShape::Select { if_true, if_false } => {
                let (own, other) = self.in_block_first(operand(1), operand(2));
                let stage = if own == operand(1) { if_true } else { if_false };
                let other = self.in_memory(other)?;
                self.load_block(own)?;
                self.load_lane_mask(operand(0))?;
                self.replace_block(step)?;
                self.push(stage, other, NO_PARAMS);
            }
        }
        self.release();
        Ok(())
    }

    /// Makes any NaN in the block, the result of a step, the canonical NaN, if its payload is demanded.
    fn canonicalise_nan(&mut self, step: StepId, produces_noncanonical_nan: bool) -> Written {
        match produces_noncanonical_nan && self.demands_nan_bits.contains(step) {
            true => self.call(fused::canonicalise(), Location::NoOperand),
            false => Ok(()),
        }
    }

    /// Two operands; if the block registers hold the second, it comes first.
    fn in_block_first(&self, x: Operand, y: Operand) -> (Operand, Operand) {
        if self.block == Some(y) { (y, x) } else { (x, y) }
    }

    /// Location of a value in memory; spills it first if it is only in registers.
    fn in_memory(&mut self, value: Operand) -> Result<Location, RegisterFusionVerdict> {
        if let Some(index) = self.operands.iter().position(|(operand, _)| *operand == value) {
            return Ok(Location::Operand(index));
        }
        if let Some(index) = self.spilled.iter().position(|held| *held == Some(value)) {
            return Ok(Location::Spilled(index));
        }
        let index = self.spilled.iter().position(Option::is_none).unwrap_or_else(|| {
            self.spilled.push(None);
            self.spilled.len() - 1
        });
        self.spilled[index] = Some(value);
        let at = Location::Spilled(index);
        if self.lane_mask == Some(value) {
            self.call(fused::spill_mask(), at)?;
        } else if self.saved_mask == Some(value) {
            self.swap_masks()?;
            self.call(fused::spill_mask(), at)?;
            self.swap_masks()?;
        } else {
            self.call(fused::spill(self.width(value)), at)?;
        }
        Ok(at)
    }

    /// Exchanges the mask and the saved mask.
    fn swap_masks(&mut self) -> Written {
        std::mem::swap(&mut self.lane_mask, &mut self.saved_mask);
        self.saved_mask = self.saved_mask.filter(|&value| self.is_used_later(value));
        self.call(fused::swap_masks(), Location::NoOperand)
    }

    /// Loads a value into the block registers.
    fn load_block(&mut self, value: Operand) -> Written {
        if self.block == Some(value) {
            return Ok(());
        }
        let at = self.in_memory(value)?;
        self.spill(self.block)?;
        self.call(fused::load(self.width(value)), at)?;
        self.block = Some(value);
        Ok(())
    }

    /// Loads a value into the mask register.
    fn load_lane_mask(&mut self, value: Operand) -> Written {
        if self.lane_mask == Some(value) {
            return Ok(());
        }
        if self.saved_mask == Some(value) {
            return self.swap_masks();
        }
        let at = self.in_memory(value)?;
        self.save_lane_mask()?;
        self.call(fused::load_mask(), at)?;
        self.lane_mask = Some(value);
        Ok(())
    }

    /// Spills a value that is used later.
    fn spill(&mut self, value: Option<Operand>) -> Written {
        match value {
            Some(value) if self.is_used_later(value) => self.in_memory(value).map(|_| ()),
            _ => Ok(()),
        }
    }

    fn is_used_later(&self, value: Operand) -> bool {
        matches!(value, Operand::Step(step) if self.is_member(value) && self.uses[step] > 0)
    }

    /// The block becomes the result of a step, which uses its operands.
    fn replace_block(&mut self, step: StepId) -> Written {
        self.use_operands(step);
        self.spill(self.block)?;
        self.block = Some(Operand::Step(step));
        Ok(())
    }

    /// The mask becomes the result of a step, which uses its operands.
    fn replace_lane_mask(&mut self, step: StepId) -> Written {
        self.use_operands(step);
        self.save_lane_mask()?;
        self.lane_mask = Some(Operand::Step(step));
        Ok(())
    }

    /// Saves the mask if it is used later: in the saved mask register if that is free, else by a spill.
    fn save_lane_mask(&mut self) -> Written {
        match self.lane_mask {
            Some(value) if self.saved_mask.is_none() && self.is_used_later(value) => {
                self.saved_mask = self.lane_mask;
                self.call(fused::save_mask(), Location::NoOperand)
            }
            lane_mask => self.spill(lane_mask),
        }
    }

    fn use_operands(&mut self, step: StepId) {
        let steps = self.steps;
        for &(operand, _) in steps[step].fusible.iter().flat_map(|fusible| &fusible.operands) {
            if let Operand::Step(used) = operand {
                self.uses[used] -= 1;
            }
        }
    }

    /// Frees the spill slots of values that have no use left.
    fn release(&mut self) {
        let uses = &self.uses;
        for value in self.spilled.iter_mut().chain([&mut self.saved_mask]) {
            value.take_if(|operand| matches!(operand, Operand::Step(step) if uses[*step] == 0));
        }
    }
}
