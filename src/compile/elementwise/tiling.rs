//! Cuts the loops of a nest into tiles.

use smallvec::SmallVec;

use super::access::IterationSpace;
use super::driver_space::DriverSpace;
use super::expr::ExprGraph;
use super::loops::SpaceLoop;
use super::register_fusion::FusedSchedule;
use super::schedule::{Schedule, UnplacedStep, reached};
use super::scratch::{ScratchSlots, Uses};
use crate::compile::memory::MemoryPolicy;
use crate::kernels::{Extent, InnerStride, LINE};
use crate::plan::{
    Access, AccessId, Base, Dest, Instr, LookaheadPrefetch, Loop, LoopNest, OfSteps, Operand, Select, Step,
    StepId, StepSet, TileProgram, Traversal,
};
use crate::types::shape::SaturatingProduct;

/// A schedule whose tiles, loops and scratch are decided.
pub(super) struct TiledNest<'a> {
    fused: FusedSchedule<'a>,
    tile: Extent,
    loops: TileLoops,
    slots: ScratchSlots,
}

impl<'a> TiledNest<'a> {
    pub(super) fn new(fused: FusedSchedule<'a>, policy: &MemoryPolicy) -> Self {
        let Schedule { expr, space, steps, roots } = &fused.schedule;
        let uses = Uses::new(steps, roots);
        // The tile decides which results outlive it, so the largest scratch is assumed first.
        let in_tile = space.row_bit() | space.column_bit();
        let slots = ScratchSlots::new(steps, &uses, |step| step.varies & in_tile == 0 || step.repeats());
        let whole = Extent { rows: space.rows.extent, columns: space.columns.extent };
        let (tile, loops) = match expr.driver {
            Some(driver) => {
                let tile = Extent {
                    rows: driver.tile.rows.min(whole.rows),
                    columns: driver.tile.columns.min(whole.columns),
                };
                (tile, TileLoops::given(expr, driver, space, tile))
            }
            None => {
                let tile = extent(expr, steps, &slots, whole, policy);
                (tile, TileLoops::new(space, tile, steps))
            }
        };
        let outlives = |step: &UnplacedStep| match expr.driver {
            // The driver may run the tiles in any order.
            Some(_) => loops.is_still_along_a_loop(step.varies),
            None => loops.outlives_an_iteration(step.varies),
        };
        let slots = ScratchSlots::new(steps, &uses, outlives);
        Self { fused, tile, loops, slots }
    }

    /// Cost of all elements.
    pub(super) fn cost(&self) -> usize {
        self.loops.cost(&self.fused.schedule.steps, &self.loops.order, self.tile)
    }

    /// The nest; `lookahead` is the number of tiles in which to look for the next one that computes a
    /// skippable branch, if that is prefetched.
    pub(super) fn into_nest(self, lookahead: Option<usize>) -> LoopNest {
        let Self { fused: FusedSchedule { schedule, verdicts }, tile, loops, slots } = self;
        let flat: OfSteps<bool> =
            StepId::all(schedule.steps.len()).map(|index| is_flat(&schedule, tile, index)).collect();
        let Schedule { expr, space, steps, roots } = schedule;
        let (dests, fused_scratch) = slots.dests(tile);
        let of_fused = |step: &UnplacedStep| match &step.instr {
            Instr::FusedKernel(fused) => fused.program.scratch(),
            _ => 0,
        };
        let scratch = fused_scratch + steps.iter().map(of_fused).max().unwrap_or(0).next_multiple_of(LINE);
        let mut invalidated_by = loops.invalidated_by(&steps);
        if expr.driver.is_some_and(|driver| driver.overwrites_results) {
            invalidated_by.iter_mut().for_each(|of_loop| of_loop.extend(roots.iter().copied()));
        }
        let accesses: SmallVec<[Access; 4]> = (expr.accesses.iter().enumerate())
            .map(|(i, access)| Access {
                base: access.base,
                offset: access.offset,
                row_stride: space.rows.strides[i],
                col_stride: space.columns.strides[i],
            })
            .collect();
        let placed = |(index, step): (StepId, UnplacedStep)| Step {
            labels: step.labels,
            instr: match step.instr {
                Instr::Repeat { from, width, .. } => Instr::Repeat { from, width, rows: tile.rows },
                instr => instr,
            },
            to: step.dest.map_or(dests[index], Dest::Access),
            space: step.space,
            traversal: if flat[index] { Traversal::Flat } else { step.traversal },
            register_fusion: verdicts[index],
        };
        let steps: Vec<Step> = StepId::all(steps.len()).zip(steps).map(placed).collect();
        let (row_blocks, column_blocks, loops) = loops.in_order();
        let lookahead =
            lookahead.and_then(|tiles| lookahead_prefetch(expr, &steps, &accesses, &loops, tile, tiles));
        let program =
            TileProgram { steps, roots, invalidated_by, accesses, fused_scratch, scratch, lookahead };
        let space = Extent { rows: space.rows.extent, columns: space.columns.extent };
        LoopNest { loops, row_blocks, column_blocks, space, tile, program }
    }
}

/// The inputs of a branch that a mask test may skip, and the number of tiles to look through for the next one
/// that computes the branch.
fn lookahead_prefetch<'n>(
    expr: &ExprGraph<'_>,
    steps: &'n [Step],
    accesses: &[Access],
    loops: &[Loop],
    tile: Extent,
    tiles: usize,
) -> Option<LookaheadPrefetch> {
    let computed = |step: &'n Step| match &step.instr {
        Instr::Select(select) if select.classify_mask.is_some() => {
            select.computed_branches().next().map(|branch| (branch, select, step.to))
        }
        _ => None,
    };
    let (step, select, to) = steps.iter().find_map(computed)?;
    let is_input = |access: AccessId| accesses[access].base.input(expr.inputs()).is_some();
    let is_one_piece = |&access: &AccessId| {
        let (Access { row_stride, col_stride, .. }, width) =
            (&accesses[access], expr.accesses[access].width.bytes());
        let follows = tile.rows == 1 || *row_stride == (width * tile.columns) as isize;
        is_input(access) && *col_stride == width as isize && follows
    };
    // Operands that the next tile reads again are in the caches (decision: lookahead-moving).
    let innermost = loops.iter().rev().find(|l| l.extent > 1);
    let moves_on = |&access: &AccessId| innermost.is_some_and(|l| l.strides[access] != 0);
    let read: SmallVec<[AccessId; 4]> =
        (0..accesses.len()).map(AccessId).filter(is_one_piece).filter(moves_on).collect();
    if read.is_empty() {
        return None;
    }
    let decides_alone = |&access: &AccessId| {
        let is_one = tile.rows == 1 || accesses[access].row_stride == 0;
        is_input(access) && is_one && select.cond_inner == InnerStride::Broadcast
    };
    let cond = match select.cond {
        Operand::Access(access) => Some(access).filter(decides_alone),
        Operand::Step(_) => None,
    };
    let is_then = select.then.operand == Operand::Step(step);
    let other = if is_then { select.else_.operand } else { select.then.operand };
    let copied = read.iter().copied().find(|&access| other == Operand::Access(access));
    let result = match to {
        Dest::Access(access) => Some(access),
        Dest::Scratch(..) => None,
    };
    let cond = cond.map(|access| (access, is_then));
    Some(LookaheadPrefetch { tiles, step, accesses: read, cond, copied, result })
}

/// True if a step can traverse a tile as one row.
fn is_flat(schedule: &Schedule<'_>, tile: Extent, index: StepId) -> bool {
    let columns = schedule.space.columns.extent;
    tile.columns == columns && columns > 1 && tile.rows > 1 && schedule.lies_flat(index)
}

/// Rows and columns of a tile.
fn extent(
    expr: &ExprGraph<'_>,
    steps: &[UnplacedStep],
    slots: &ScratchSlots,
    space: Extent,
    policy: &MemoryPolicy,
) -> Extent {
    let widest = expr.accesses.iter().map(|access| access.width.bytes()).max().unwrap_or(1);
    // Bytes of an element in scratch.
    let scratch_bytes = slots.bytes_of_element();
    if let [step] = steps
        && step.packs()
        && step.dest.is_some()
    {
        let Extent { rows, columns } = policy.transposed_tile(step.width, space.rows);
        return Extent { rows: space.rows.min(rows), columns: space.columns.min(columns) };
    }
    if let Some(narrowest) = steps.iter().filter(|step| step.packs()).map(|step| step.width.bytes()).min() {
        let most = policy.packed_tile(narrowest, widest, scratch_bytes);
        let rows = space.rows.min(most.rows).max(1);
        // Few rows are longer, so that a tile outweighs the cost of going to it.
        let columns = most.columns * (most.rows / rows);
        return Extent { rows, columns: space.columns.min(columns) };
    }
    let cost = |branch: StepId| {
        let inside = reached(steps, [branch], |_, _| true);
        let inside = StepId::all(steps.len()).filter(|&step| inside.contains(step));
        inside.map(|step| steps[step].cost).sum::<usize>()
    };
    let selects = steps.iter().filter_map(|step| match &step.instr {
        Instr::Select(select) => Some(select),
        _ => None,
    });
    let may_skip = selects.flat_map(Select::computed_branches).map(cost);
    let elements = policy.tile_elements(widest, scratch_bytes, is_read_again(expr, steps), may_skip);
    let columns = match space.columns.div_ceil(elements) {
        0 | 1 => space.columns,
        blocks => space.columns.div_ceil(blocks).next_multiple_of(64),
    };
    let most = (elements / columns).max(1);
    // Rounds the rows so that all tiles start at the same offset in a cache line (decision: tiles-at-lines).
    let rows_of_lines = LINE >> (columns * widest).trailing_zeros().min(LINE.ilog2());
    let aligned_rows = if columns == space.columns && rows_of_lines <= most { rows_of_lines } else { 1 };
    let blocks = space.rows.div_ceil(most / aligned_rows * aligned_rows);
    let rows = space.rows.div_ceil(blocks).next_multiple_of(aligned_rows).min(space.rows);
    Extent { rows, columns }
}

/// True if two steps read the same port.
fn is_read_again(expr: &ExprGraph<'_>, steps: &[UnplacedStep]) -> bool {
    let readers =
        |access| steps.iter().filter(|step| step.instr.operands().contains(&Operand::Access(access))).count();
    (0..expr.accesses.len())
        .map(AccessId)
        .any(|access| matches!(expr.accesses[access].base, Base::Port(_)) && readers(access) > 1)
}

/// The loops around tiles, in the order of the index space, with blocks of rows and of columns last; and an
/// order in which to run them.
struct TileLoops {
    all: SmallVec<[Loop; 6]>,
    order: SmallVec<[usize; 6]>,
}

impl TileLoops {
    fn new(iter_space: &IterationSpace, tile: Extent, steps: &[UnplacedStep]) -> Self {
        let as_they_are = Self::as_they_are(iter_space, tile);
        let order = as_they_are.best_order(steps, tile);
        Self { order, ..as_they_are }
    }

    /// The loops of a driver's space. An operand that the driver supplies has one address in all tiles.
    fn given(expr: &ExprGraph<'_>, driver: &DriverSpace, iter_space: &IterationSpace, tile: Extent) -> Self {
        let mut loops = Self::as_they_are(iter_space, tile);
        for l in &mut loops.all {
            let supplied = expr.accesses.iter().map(|access| matches!(access.base, Base::Driver(_)));
            l.strides.iter_mut().zip(supplied).filter(|(_, is)| *is).for_each(|(stride, _)| *stride = 0);
        }
        if driver.rows_innermost {
            let blocks_of_rows = loops.order.len() - 2;
            loops.order.swap(blocks_of_rows, blocks_of_rows + 1);
        }
        loops
    }

    fn as_they_are(iter_space: &IterationSpace, tile: Extent) -> Self {
        let blocks = |l: &SpaceLoop, size: usize| Loop {
            extent: l.extent.div_ceil(size),
            strides: l.strides.iter().map(|stride| stride.saturating_mul(size as isize)).collect(),
        };
        let mut all: SmallVec<[Loop; 6]> = iter_space.outer.iter().map(|l| blocks(l, 1)).collect();
        all.extend([blocks(&iter_space.rows, tile.rows), blocks(&iter_space.columns, tile.columns)]);
        Self { order: (0..all.len()).collect(), all }
    }

    /// The index of the loop over blocks of rows, and over blocks of columns, and the loops in the order in
    /// which they run.
    fn in_order(&self) -> (usize, usize, SmallVec<[Loop; 6]>) {
        let at = |loop_: usize| self.order.iter().position(|&l| l == loop_).unwrap_or(0);
        let loops = self.order.iter().map(|&l| self.all[l].clone()).collect();
        (at(self.all.len() - 2), at(self.all.len() - 1), loops)
    }

    /// Makes the loop innermost that saves the most repeated work, if that pays.
    fn best_order(&self, steps: &[UnplacedStep], tile: Extent) -> SmallVec<[usize; 6]> {
        let as_they_are: SmallVec<[usize; 6]> = (0..self.all.len()).collect();
        let innermost = |last: usize| {
            let others = as_they_are.iter().copied().filter(|&l| l != last);
            others.chain([last]).collect::<SmallVec<[usize; 6]>>()
        };
        let iterating = (0..self.all.len()).filter(|&l| self.all[l].extent > 1);
        let best = iterating
            .map(|last| (self.cost(steps, &innermost(last), tile), last))
            .min_by_key(|&(cost, last)| (cost, std::cmp::Reverse(last)));
        match best {
            // An order other than that of memory costs time, too.
            Some((cost, last)) if cost < self.cost(steps, &as_they_are, tile) / 8 * 7 => innermost(last),
            _ => as_they_are,
        }
    }

    /// Cost of the steps of all tiles for an order of loops: a step repeats for each iteration, except those
    /// of the innermost loops along which its result does not vary.
    fn cost(&self, steps: &[UnplacedStep], order: &[usize], tile: Extent) -> usize {
        let of_step = |step: &UnplacedStep| {
            let rows = if step.space.rows { tile.rows } else { 1 };
            let columns = if step.space.columns == InnerStride::Contiguous { tile.columns } else { 1 };
            let repeated = order.iter().rev().skip_while(|&&l| self.is_still(l, step.varies));
            let times = repeated.map(|&l| self.all[l].extent).saturating_product();
            [columns, step.cost, times].into_iter().fold(rows, usize::saturating_mul)
        };
        steps.iter().map(of_step).fold(0, usize::saturating_add)
    }

    /// True if a result that varies along some loops stays the same in the next iteration of one.
    fn is_still(&self, l: usize, varies: u32) -> bool {
        self.all[l].extent == 1 || varies & 1 << l == 0
    }

    /// True if a result stays the same in the next iteration of the innermost loop.
    fn outlives_an_iteration(&self, varies: u32) -> bool {
        let innermost = self.order.iter().rev().find(|&&l| self.all[l].extent > 1);
        innermost.is_some_and(|&l| self.is_still(l, varies))
    }

    /// True if a result stays the same in the next iteration of some loop.
    fn is_still_along_a_loop(&self, varies: u32) -> bool {
        (0..self.all.len()).any(|l| self.all[l].extent > 1 && self.is_still(l, varies))
    }

    /// For each loop in its order: the steps whose results vary along the loop.
    fn invalidated_by(&self, steps: &[UnplacedStep]) -> SmallVec<[StepSet; 4]> {
        let of_loop = |&l: &usize| {
            let mut set = StepSet::none_of(steps.len());
            set.extend(StepId::all(steps.len()).filter(|&step| !self.is_still(l, steps[step].varies)));
            set
        };
        self.order.iter().map(of_loop).collect()
    }
}
