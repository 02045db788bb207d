//! Register fusion: a step absorbs the steps whose results only it uses, and intermediate values stay in
//! registers.

use smallvec::SmallVec;

use super::expr::ExprGraph;
use super::kernel::{NO_PARAMS, Operands};
use super::memory::MemoryPolicy;
use super::nest::{IterationSpace, UnplacedStep};
use super::tile;
use crate::kernels::fused::{
    self, BLOCK, FusedProgram, Location, ProgramOperand, Stage, StageUse, StoreKind,
};
use crate::kernels::pointwise::Params;
use crate::kernels::{InnerStride, Width};
use crate::plan::{FusedKernel, Instr, Operand};
use crate::types::kind::Level;

/// Most steps of a fused kernel: the depth of nested calls if the compiler does not make tail calls of them.
const MAX_STEPS: usize = 32;

/// A step as a part of a fused kernel.
#[derive(Debug)]
pub(super) struct Fusible {
    pub(super) shape: StageShape,
    pub(super) operands: Operands,
}

/// How a step uses the two register classes of a fused kernel: the block of elements and its mask.
#[derive(Debug, Clone, Copy)]
pub(super) enum StageShape {
    /// Nothing: the result is the operand.
    Same,
    /// A number from a number, with any NaN payload.
    Number1 { stage: Stage, params: Params, produces_noncanonical_nan: bool },
    /// A number from the bits of a number.
    Bits(Stage),
    /// A boolean from a number.
    Predicate1(Stage, Params),
    /// A number from two, with any NaN payload.
    Number2 { stage: Stage, params: Params, commutes: bool, produces_noncanonical_nan: bool },
    /// A boolean from two numbers; and the same with swapped operands.
    Predicate2 { stage: Stage, swapped: Stage },
    /// A boolean from a boolean.
    Not(Stage),
    /// A boolean from two, in any order; and the same with the second one in the saved mask.
    Logic { stage: Stage, of_masks: Stage },
    /// One of two numbers by a boolean: with the block as the number for true, and for false.
    Select { if_true: Stage, if_false: Stage },
}

/// The steps of a nest and its roots, with fused kernels in place of the steps that they absorb.
pub(super) fn fuse(
    expr: &ExprGraph<'_>,
    iter_space: &IterationSpace,
    mut steps: Vec<UnplacedStep>,
    mut roots: SmallVec<[usize; 2]>,
    level: Level,
    policy: &MemoryPolicy,
) -> (Vec<UnplacedStep>, SmallVec<[usize; 2]>) {
    let mut users = vec![Vec::new(); steps.len()];
    for (user, step) in steps.iter().enumerate() {
        step.instr.deps().for_each(|used| users[used].push(user));
    }
    let mut taken = vec![false; steps.len()];
    let is_fusible: Vec<bool> =
        (0..steps.len()).map(|step| is_fusible(expr, iter_space, &steps, &roots, step)).collect();
    for root in (0..steps.len()).rev() {
        if taken[root] || !is_fusible[root] {
            continue;
        }
        let members = members(&steps, &users, &is_fusible, root);
        if members.len() < 2 {
            continue;
        }
        let Some(fused) = Writer::new(expr, iter_space, &steps, &members, level, policy).fused() else {
            continue;
        };
        let cost = members.iter().map(|&step| steps[step].cost).sum();
        members.iter().filter(|&&step| step != root).for_each(|&step| taken[step] = true);
        steps[root].labels = members.iter().flat_map(|&step| &steps[step].labels).copied().collect();
        steps[root].instr = Instr::FusedKernel(fused);
        steps[root].cost = cost;
    }
    let order = execution_order(&steps, &roots);
    let mut numbers = vec![0; steps.len()];
    order.iter().enumerate().for_each(|(number, &step)| numbers[step] = number);
    let mut open: Vec<Option<UnplacedStep>> = steps.into_iter().map(Some).collect();
    let mut steps: Vec<UnplacedStep> = order.into_iter().filter_map(|step| open[step].take()).collect();
    steps.iter_mut().for_each(|step| step.instr.renumber(&numbers));
    roots.iter_mut().for_each(|root| *root = numbers[*root]);
    (steps, roots)
}

/// The steps that roots need, in run order if none is skipped. A fused kernel needs its operands in another
/// order than its steps did, and scratch is shared by that order.
fn execution_order(steps: &[UnplacedStep], roots: &[usize]) -> Vec<usize> {
    let (mut seen, mut order) = (vec![false; steps.len()], Vec::with_capacity(steps.len()));
    let mut open = Vec::new();
    for &root in roots {
        open.extend((!std::mem::replace(&mut seen[root], true)).then_some(root));
        while let Some(&step) = open.last() {
            match steps[step].instr.deps().find(|&used| !seen[used]) {
                Some(used) => {
                    seen[used] = true;
                    open.push(used);
                }
                None => order.extend(open.pop()),
            }
        }
    }
    order
}

/// The steps that a fused kernel can absorb, in order: each is used only within the fused kernel, and varies
/// along the same loops.
fn members(steps: &[UnplacedStep], users: &[Vec<usize>], is_fusible: &[bool], root: usize) -> Vec<usize> {
    let mut members = vec![root];
    for step in (0..root).rev() {
        // A result that is written to a port is used outside.
        let fits = is_fusible[step] && steps[step].varies == steps[root].varies && steps[step].port.is_none();
        let is_inner =
            fits && !users[step].is_empty() && users[step].iter().all(|user| members.contains(user));
        if is_inner && members.len() < MAX_STEPS {
            members.push(step);
        }
    }
    members.reverse();
    members
}

/// Whether a step can be part of a fused kernel: it covers the whole tile, and has a stage.
fn is_fusible(
    expr: &ExprGraph<'_>,
    iter_space: &IterationSpace,
    steps: &[UnplacedStep],
    roots: &[usize],
    index: usize,
) -> bool {
    let step = &steps[index];
    let is_whole = step.space.rows && step.space.columns == InnerStride::Contiguous;
    // Half-empty blocks take as long as full ones.
    let columns = iter_space.columns.extent;
    let fills_blocks = columns.next_multiple_of(BLOCK) <= columns / 4 * 5 || iter_space.rows.extent == 1;
    is_whole
        && step.fusible.is_some()
        && (fills_blocks || tile::lies_flat(expr, iter_space, steps, index))
        && !skips_work(steps, roots, index)
}

/// Whether a mask test may skip a heavy step, which no fused kernel absorbs, for a branch of this select.
fn skips_work(steps: &[UnplacedStep], roots: &[usize], index: usize) -> bool {
    let Instr::Select(select) = &steps[index].instr else { return false };
    let is_heavy = |step: usize| steps[step].fusible.is_none() && steps[step].varies == steps[index].varies;
    select.computed_branches().any(|first| tile::skippable(steps, roots, index, first).any(is_heavy))
}

/// For each member, by step, whether the NaN payload of its result is demanded: it is stored, or moved or
/// changed bit by bit on its way to a store. Arithmetic and predicates treat every NaN alike.
fn demands_nan_bits(steps: &[UnplacedStep], members: &[usize]) -> Vec<bool> {
    let mut demanded = vec![false; steps.len()];
    members.last().into_iter().for_each(|&root| demanded[root] = true);
    for &member in members.iter().rev() {
        let Some(Fusible { shape, operands }) = &steps[member].fusible else { continue };
        let demanded_operands = match shape {
            StageShape::Bits(_) => &operands[..],
            StageShape::Same if demanded[member] => &operands[..],
            StageShape::Select { .. } if demanded[member] => &operands[1..],
            _ => &[],
        };
        for &(operand, _) in demanded_operands {
            if let Operand::Step(step) = operand {
                demanded[step] = true;
            }
        }
    }
    demanded
}

/// Writes the program of a fused kernel.
struct Writer<'a> {
    expr: &'a ExprGraph<'a>,
    iter_space: &'a IterationSpace,
    steps: &'a [UnplacedStep],
    members: &'a [usize],
    level: Level,
    policy: &'a MemoryPolicy,
    stages: Vec<StageUse>,
    /// Operands that are in memory before the fused kernel begins.
    operands: SmallVec<[(Operand, ProgramOperand); 4]>,
    /// The value in each spill slot.
    spilled: Vec<Option<Operand>>,
    /// For each member, the number of uses of its result that are left.
    uses: Vec<usize>,
    /// For each member, whether the NaN payload of its result is demanded.
    demands_nan_bits: Vec<bool>,
    /// The members whose stages have been emitted, or begun.
    emitted: Vec<bool>,
    /// The value in the block registers.
    block: Option<Operand>,
    lane_mask: Option<Operand>,
    /// The value in the saved mask register, until nobody uses it any more.
    saved_mask: Option<Operand>,
}

impl<'a> Writer<'a> {
    fn new(
        expr: &'a ExprGraph<'a>,
        iter_space: &'a IterationSpace,
        steps: &'a [UnplacedStep],
        members: &'a [usize],
        level: Level,
        policy: &'a MemoryPolicy,
    ) -> Self {
        let mut uses = vec![0; steps.len()];
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
            expr,
            iter_space,
            steps,
            members,
            level,
            policy,
            stages: Vec::new(),
            operands: SmallVec::new(),
            spilled: Vec::new(),
            uses,
            demands_nan_bits: demands_nan_bits(steps, members),
            emitted: vec![false; steps.len()],
            block: None,
            lane_mask: None,
            saved_mask: None,
        }
    }

    /// The fused kernel of all members; `None` if a value has no stage.
    fn fused(mut self) -> Option<FusedKernel> {
        let root = *self.members.last()?;
        let fusible = self.steps[root].fusible.as_ref()?;
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
        let (operands, of_feeds) = self.operands.into_iter().unzip();
        let program = FusedProgram::new(self.level, &self.stages, of_feeds, ending, self.spilled.len())?;
        Some(FusedKernel { program, operands })
    }

    /// Lists the operands in memory.
    fn declare(&mut self) -> Option<()> {
        for &member in self.members {
            for &(operand, inner) in &self.steps[member].fusible.as_ref()?.operands {
                if !self.is_member(operand) && self.operands.iter().all(|(known, _)| *known != operand) {
                    self.operands.push((operand, ProgramOperand { width: self.width(operand), inner }));
                }
            }
        }
        Some(())
    }

    /// Prefetches the operands that are contiguous along rows, if memory binds by far. The stages of a block
    /// are so many instructions that the hardware does not see the next loads coming; within the last level
    /// it does (decision: prefetch-fused).
    fn prefetch(&mut self) -> Option<()> {
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
        let runs_along = |&access: &usize| self.iter_space.columns.strides[access] != 0;
        let accesses = (0..self.expr.accesses.len()).filter(runs_along);
        let moved: usize = accesses.map(|access| self.expr.accesses[access].width.bytes()).sum();
        // Nests all of whose results are unpacked read and write their tiles by small pieces.
        let writes_rows =
            self.steps.iter().any(|s| s.port.is_some() && !matches!(s.instr, Instr::UnpackTile { .. }));
        // Tiles are then pieces of rows that are too short for the hardware prefetcher
        // (decision: prefetch-fused-pack).
        let packs = self.steps.iter().any(UnplacedStep::packs);
        if writes_rows && (packs || (self.policy.prefetches_fused && 2 * cost <= moved)) {
            for (at, operand, width) in from_memory {
                // The distance is passed as an f32; beyond the precision of f32 a neighbouring line is
                // prefetched.
                match self.iter_space.distance(self.expr, self.policy, packs, operand) {
                    0 => {}
                    distance => {
                        self.push(fused::prefetch(width)[self.level as usize]?, at, [distance as f32, 0.0])
                    }
                }
            }
        }
        Some(())
    }

    fn is_member(&self, operand: Operand) -> bool {
        matches!(operand, Operand::Step(step) if self.members.contains(&step))
    }

    fn width(&self, operand: Operand) -> Width {
        match operand {
            Operand::Access(access) => self.expr.accesses[access].width,
            Operand::Step(step) => self.steps[step].width,
        }
    }

    fn call(&mut self, stages: fused::Stages, at: Location) -> Option<()> {
        let stage = stages[self.level as usize]?;
        self.push(stage, at, NO_PARAMS);
        Some(())
    }

    fn push(&mut self, stage: Stage, at: Location, params: Params) {
        self.stages.push(StageUse { stage, at, params });
    }

    /// Emits the stages of a value, once, behind those of its operands.
    fn emit(&mut self, value: Operand) -> Option<()> {
        let mut open: Vec<usize> = self.begin(value).into_iter().collect();
        while let Some(&step) = open.last() {
            let operands = &self.steps[step].fusible.as_ref()?.operands;
            // The condition comes first: the mask register holds it while the branches are computed, the first
            // branch last.
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
        Some(())
    }

    /// The member that gives a value, unless its stages have been begun; from here on they have.
    fn begin(&mut self, value: Operand) -> Option<usize> {
        let step = value.step().filter(|_| self.is_member(value))?;
        (!std::mem::replace(&mut self.emitted[step], true)).then_some(step)
    }

    /// Emits the stages of a member whose operands have theirs.
    fn emit_step(&mut self, step: usize) -> Option<()> {
        let steps = self.steps;
        let Fusible { shape, operands } = steps[step].fusible.as_ref()?;
        let operand = |index: usize| operands[index].0;
        match *shape {
            StageShape::Same => return None,
            StageShape::Number1 { stage, params, produces_noncanonical_nan } => {
                self.load_block(operand(0))?;
                self.replace_block(step)?;
                self.push(stage, Location::Nowhere, params);
                self.canonicalise_nan(step, produces_noncanonical_nan)?;
            }
            StageShape::Bits(stage) => {
                self.load_block(operand(0))?;
                self.replace_block(step)?;
                self.push(stage, Location::Nowhere, NO_PARAMS);
            }
            StageShape::Predicate1(stage, params) => {
                self.load_block(operand(0))?;
                self.replace_lane_mask(step)?;
                self.push(stage, Location::Nowhere, params);
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
                self.push(stage, Location::Nowhere, NO_PARAMS);
            }
            StageShape::Logic { stage, of_masks } => {
                let is_second = self.lane_mask == Some(operand(1));
                let (x, y) = if is_second { (operand(1), operand(0)) } else { (operand(0), operand(1)) };
                let (stage, other) = match self.saved_mask == Some(y) && x != y {
                    true => (of_masks, Location::Nowhere),
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
        Some(())
    }

    /// Makes any NaN in the block, the result of a step, the canonical NaN, if its payload is demanded.
    fn canonicalise_nan(&mut self, step: usize, produces_noncanonical_nan: bool) -> Option<()> {
        match produces_noncanonical_nan && self.demands_nan_bits[step] {
            true => self.call(fused::canonicalise(), Location::Nowhere),
            false => Some(()),
        }
    }

    /// Two operands, with the one that the block holds first.
    fn in_block_first(&self, x: Operand, y: Operand) -> (Operand, Operand) {
        if self.block == Some(y) { (y, x) } else { (x, y) }
    }

    /// Location of a value in memory; spills it first if it is only in registers.
    fn in_memory(&mut self, value: Operand) -> Option<Location> {
        if let Some(index) = self.operands.iter().position(|(operand, _)| *operand == value) {
            return Some(Location::Operand(index));
        }
        if let Some(index) = self.spilled.iter().position(|held| *held == Some(value)) {
            return Some(Location::Spilled(index));
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
        Some(at)
    }

    /// Exchanges the mask and the saved mask.
    fn swap_masks(&mut self) -> Option<()> {
        std::mem::swap(&mut self.lane_mask, &mut self.saved_mask);
        self.saved_mask = self.saved_mask.filter(|&value| self.is_used_later(value));
        self.call(fused::swap_masks(), Location::Nowhere)
    }

    /// Loads a value into the block registers.
    fn load_block(&mut self, value: Operand) -> Option<()> {
        if self.block == Some(value) {
            return Some(());
        }
        let at = self.in_memory(value)?;
        self.spill(self.block)?;
        self.call(fused::load(self.width(value)), at)?;
        self.block = Some(value);
        Some(())
    }

    /// Loads a value into the mask register.
    fn load_lane_mask(&mut self, value: Operand) -> Option<()> {
        if self.lane_mask == Some(value) {
            return Some(());
        }
        if self.saved_mask == Some(value) {
            return self.swap_masks();
        }
        let at = self.in_memory(value)?;
        self.save_lane_mask()?;
        self.call(fused::load_mask(), at)?;
        self.lane_mask = Some(value);
        Some(())
    }

    /// Spills a value that is used later.
    fn spill(&mut self, value: Option<Operand>) -> Option<()> {
        match value {
            Some(value) if self.is_used_later(value) => self.in_memory(value).map(|_| ()),
            _ => Some(()),
        }
    }

    fn is_used_later(&self, value: Operand) -> bool {
        matches!(value, Operand::Step(step) if self.is_member(value) && self.uses[step] > 0)
    }

    /// The block becomes the result of a step, which uses its operands.
    fn replace_block(&mut self, step: usize) -> Option<()> {
        self.use_operands(step);
        self.spill(self.block)?;
        self.block = Some(Operand::Step(step));
        Some(())
    }

    /// The mask becomes the result of a step, which uses its operands.
    fn replace_lane_mask(&mut self, step: usize) -> Option<()> {
        self.use_operands(step);
        self.save_lane_mask()?;
        self.lane_mask = Some(Operand::Step(step));
        Some(())
    }

    /// Saves the mask if it is used later: in the saved mask register if that is free, else by a spill.
    fn save_lane_mask(&mut self) -> Option<()> {
        match self.lane_mask {
            Some(value) if self.saved_mask.is_none() && self.is_used_later(value) => {
                self.saved_mask = self.lane_mask;
                self.call(fused::save_mask(), Location::Nowhere)
            }
            lane_mask => self.spill(lane_mask),
        }
    }

    fn use_operands(&mut self, step: usize) {
        let steps = self.steps;
        for &(operand, _) in steps[step].fusible.iter().flat_map(|fusible| &fusible.operands) {
            if let Operand::Step(used) = operand {
                self.uses[used] -= 1;
            }
        }
    }

    /// Frees the spill slots of values that nobody uses any more.
    fn release(&mut self) {
        let uses = &self.uses;
        for value in self.spilled.iter_mut().chain([&mut self.saved_mask]) {
            value.take_if(|operand| matches!(operand, Operand::Step(step) if uses[*step] == 0));
        }
    }
}
