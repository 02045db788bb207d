//! Cuts the loops of a nest into tiles, and places the results of steps in scratch.

use smallvec::SmallVec;

use super::expr::ExprGraph;
use super::memory::MemoryPolicy;
use super::nest::{IterationSpace, LoweredNest, UnplacedStep};
use crate::kernels::{Extent, InnerStride, LINE, Width};
use crate::plan::loops::{Loop, Role};
use crate::plan::{
    Access, Base, Dest, Instr, LookaheadPrefetch, LoopNest, Operand, Select, Step, StepSet, StepSpace,
    Traversal,
};

/// Makes a nest of loops and steps.
pub(super) fn nest(
    expr: &ExprGraph<'_>,
    iter_space: &IterationSpace,
    steps: Vec<UnplacedStep>,
    roots: SmallVec<[usize; 2]>,
    policy: &MemoryPolicy,
) -> LoweredNest {
    let uses = Uses::new(&steps, &roots);
    let space = Extent { rows: iter_space.rows.extent, columns: iter_space.columns.extent };
    // The tile decides which results outlive it, so the largest scratch is assumed first.
    let slots = ScratchSlots::new(&steps, &uses, |step| {
        step.varies & (iter_space.row_bit() | iter_space.column_bit()) == 0
    });
    let tile = extent(expr, &steps, &slots, space, policy);

    let loops = TileLoops::new(iter_space, tile, &steps);
    let slots = ScratchSlots::new(&steps, &uses, |step| loops.outlives_an_iteration(step.varies));
    let (dests, fused_scratch) = slots.dests(tile);
    let of_fused = |step: &UnplacedStep| match &step.instr {
        Instr::FusedKernel(fused) => fused.program.scratch(),
        _ => 0,
    };
    let scratch = fused_scratch + steps.iter().map(of_fused).max().unwrap_or(0).next_multiple_of(LINE);
    let cost = loops.cost(&steps, &loops.order, tile);
    let invalidated_by = loops.invalidated_by(&steps);
    let accesses = (expr.accesses.iter().enumerate())
        .map(|(i, access)| Access {
            base: access.base,
            row_stride: iter_space.rows.strides[i],
            col_stride: iter_space.columns.strides[i],
        })
        .collect();
    let flat: Vec<bool> =
        (0..steps.len()).map(|index| is_flat(expr, iter_space, tile, &steps, index)).collect();
    let placed = |(index, step): (usize, UnplacedStep)| {
        let to = step.port.map_or(dests[index], Dest::Port);
        let traversal = if flat[index] { Traversal::Flat } else { step.traversal };
        Step { labels: step.labels, instr: step.instr, to, space: step.space, traversal }
    };
    let at = |loop_: usize| loops.order.iter().position(|&l| l == loop_).unwrap_or(0);
    let (row_blocks, column_blocks) = (at(loops.all.len() - 2), at(loops.all.len() - 1));
    let mut ordered: SmallVec<[Loop; 6]> = loops.order.iter().map(|&l| loops.all[l].clone()).collect();
    ordered.iter_mut().for_each(|l| l.strides.truncate(expr.accesses.len()));
    let steps = steps.into_iter().enumerate().map(placed).collect();
    let nest = LoopNest {
        loops: ordered,
        row_blocks,
        column_blocks,
        space,
        tile,
        steps,
        roots,
        invalidated_by,
        accesses,
        fused_scratch,
        lookahead: None,
    };
    LoweredNest { nest, scratch, cost }
}

/// The inputs of a branch that a mask test may skip, and the number of tiles to look through for the next one
/// that computes the branch.
pub(super) fn lookahead<'n>(
    expr: &ExprGraph<'_>,
    nest: &'n LoopNest,
    tiles: usize,
) -> Option<LookaheadPrefetch> {
    let computed = |step: &'n Step| match &step.instr {
        Instr::Select(select) => select.computed_branches().next().map(|branch| (branch, select, step.to)),
        _ => None,
    };
    let (step, select, to) = nest.steps.iter().find_map(computed)?;
    let is_input = |access: usize| nest.accesses[access].base.input(expr.inputs()).is_some();
    let is_one_piece = |&access: &usize| {
        let (Access { row_stride, col_stride, .. }, width) =
            (&nest.accesses[access], expr.accesses[access].width.bytes());
        let follows = nest.tile.rows == 1 || *row_stride == (width * nest.tile.columns) as isize;
        is_input(access) && *col_stride == width as isize && follows
    };
    // Operands that the next tile reads again are in the caches (decision: lookahead-moving).
    let innermost = nest.loops.iter().rev().find(|l| l.extent > 1);
    let moves_on = |&access: &usize| innermost.is_some_and(|l| l.strides[access] != 0);
    let accesses: SmallVec<[usize; 4]> =
        (0..nest.accesses.len()).filter(is_one_piece).filter(moves_on).collect();
    if accesses.is_empty() {
        return None;
    }
    let decides_alone = |&access: &usize| {
        let is_one = nest.tile.rows == 1 || nest.accesses[access].row_stride == 0;
        is_input(access) && is_one && select.cond_inner == InnerStride::Broadcast
    };
    let cond = match select.cond {
        Operand::Access(access) => Some(access).filter(decides_alone),
        Operand::Step(_) => None,
    };
    let is_then = select.then.operand == Operand::Step(step);
    let other = if is_then { select.else_.operand } else { select.then.operand };
    let copied = accesses.iter().copied().find(|&access| other == Operand::Access(access));
    let result = match to {
        Dest::Port(access) => Some(access),
        Dest::Scratch(..) => None,
    };
    let cond = cond.map(|access| (access, is_then));
    Some(LookaheadPrefetch { tiles, step, accesses, cond, copied, result })
}

/// Whether a step can traverse a tile as one row.
fn is_flat(
    expr: &ExprGraph<'_>,
    iter_space: &IterationSpace,
    tile: Extent,
    steps: &[UnplacedStep],
    index: usize,
) -> bool {
    let spans = tile.columns == iter_space.columns.extent && iter_space.columns.extent > 1 && tile.rows > 1;
    spans && lies_flat(expr, iter_space, steps, index)
}

/// Whether the rows of a step's result and of all its operands follow each other without a gap.
pub(super) fn lies_flat(
    expr: &ExprGraph<'_>,
    iter_space: &IterationSpace,
    steps: &[UnplacedStep],
    index: usize,
) -> bool {
    let step = &steps[index];
    let follows = |access: usize| {
        let width = expr.accesses[access].width.bytes() as isize;
        let (row_stride, along) = (iter_space.rows.strides[access], iter_space.columns.strides[access]);
        along == width && row_stride == width * iter_space.columns.extent as isize
    };
    let is_everywhere_one =
        |access: usize| (iter_space.rows.strides[access], iter_space.columns.strides[access]) == (0, 0);
    let is_whole = |space: StepSpace| space.rows && space.columns == InnerStride::Contiguous;
    let fits = |operand: Operand| match operand {
        Operand::Access(access) => follows(access) || is_everywhere_one(access),
        Operand::Step(step) => {
            let UnplacedStep { space, port, .. } = steps[step];
            let is_one = !space.rows && space.columns == InnerStride::Broadcast;
            is_one || (is_whole(space) && port.is_none_or(follows))
        }
    };
    let is_map = !step.packs() && !matches!(step.instr, Instr::Index { .. });
    is_map
        && is_whole(step.space)
        && step.port.is_none_or(follows)
        && step.instr.operands().into_iter().all(fits)
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
    if let Some(narrowest) = steps.iter().filter(|step| step.packs()).map(|step| step.width.bytes()).min() {
        let Extent { rows, columns } = policy.packed_tile(narrowest, widest, scratch_bytes);
        return Extent { rows: space.rows.min(rows), columns: space.columns.min(columns) };
    }
    let cost = |branch: usize| {
        let inside = reached(steps, [branch], |_, _| true);
        steps.iter().zip(inside).filter(|(_, inside)| *inside).map(|(step, _)| step.cost).sum::<usize>()
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

/// Whether two steps read the same port.
fn is_read_again(expr: &ExprGraph<'_>, steps: &[UnplacedStep]) -> bool {
    let readers =
        |access| steps.iter().filter(|step| step.instr.operands().contains(&Operand::Access(access))).count();
    (0..expr.accesses.len())
        .any(|access| matches!(expr.accesses[access].base, Base::Port(_)) && readers(access) > 1)
}

/// The users of step results, in run order if nothing is skipped.
struct Uses {
    /// For each step the last one that may need its result; the step itself if none does.
    last: Vec<usize>,
}

impl Uses {
    fn new(steps: &[UnplacedStep], roots: &[usize]) -> Self {
        let mut last: Vec<usize> = (0..steps.len()).collect();
        for (index, step) in steps.iter().enumerate() {
            step.instr.deps().for_each(|operand| last[operand] = last[operand].max(index));
        }
        // A later user may run a skippable step after all; the step's operands must be valid then.
        let conditional = conditional_users(steps, roots);
        for index in (0..steps.len()).rev().filter(|&index| conditional[index]) {
            let until = last[index];
            steps[index].instr.deps().for_each(|operand| last[operand] = last[operand].max(until));
        }
        Self { last }
    }
}

/// The steps that only one branch of a select needs, which starts at step `first`.
pub(super) fn skippable<'a>(
    steps: &'a [UnplacedStep],
    roots: &[usize],
    select: usize,
    first: usize,
) -> impl Iterator<Item = usize> + 'a {
    let inside = reached(steps, [first], |_, _| true);
    let without = reached(steps, roots.iter().copied(), |user, used| (user, used) != (select, first));
    (0..steps.len()).filter(move |&step| inside[step] && !without[step])
}

/// The steps that a skippable branch of a select needs, and others too.
fn conditional_users(steps: &[UnplacedStep], roots: &[usize]) -> Vec<bool> {
    let mut conditional = vec![false; steps.len()];
    for (index, step) in steps.iter().enumerate() {
        let Instr::Select(select) = &step.instr else { continue };
        for first in select.computed_branches() {
            let inside = reached(steps, [first], |_, _| true);
            let without = reached(steps, roots.iter().copied(), |user, used| (user, used) != (index, first));
            for step in 0..steps.len() {
                conditional[step] |= inside[step] && without[step];
            }
        }
    }
    conditional
}

/// The steps that some steps need, including themselves, along the uses that are followed.
fn reached(
    steps: &[UnplacedStep],
    from: impl IntoIterator<Item = usize>,
    follow: impl Fn(usize, usize) -> bool,
) -> Vec<bool> {
    let mut seen = vec![false; steps.len()];
    let mut open: Vec<usize> = from.into_iter().collect();
    while let Some(index) = open.pop() {
        if !std::mem::replace(&mut seen[index], true) {
            open.extend(steps[index].instr.deps().filter(|&used| follow(index, used)));
        }
    }
    seen
}

/// Scratch for the results of steps, shared by results that are not needed at the same time.
struct ScratchSlots {
    slots: Vec<ScratchSlot>,
    /// For each step with a result in scratch, its slot.
    of_step: Vec<Option<usize>>,
}

struct ScratchSlot {
    width: Width,
    space: StepSpace,
    /// The last step that needs its content; `None` if it is never free.
    busy_until: Option<usize>,
}

impl ScratchSlots {
    fn new(steps: &[UnplacedStep], uses: &Uses, outlives_a_tile: impl Fn(&UnplacedStep) -> bool) -> Self {
        let (mut slots, mut of_step): (Vec<ScratchSlot>, Vec<Option<usize>>) = (Vec::new(), Vec::new());
        for (index, step) in steps.iter().enumerate() {
            if step.port.is_some() {
                of_step.push(None);
                continue;
            }
            let shares = !outlives_a_tile(step);
            // A kernel may write over an operand, element for element, but not over a condition that it still
            // reads.
            let condition = match &step.instr {
                Instr::Select(select) => select.cond.step().and_then(|cond| of_step[cond]),
                _ => None,
            };
            let is_free = |(slot_index, slot): (usize, &ScratchSlot)| {
                shares
                    && slot.busy_until.is_some_and(|until| until <= index)
                    && (slot.width, slot.space) == (step.width, step.space)
                    && Some(slot_index) != condition
            };
            let slot_index = slots.iter().enumerate().position(is_free).unwrap_or_else(|| {
                slots.push(ScratchSlot { width: step.width, space: step.space, busy_until: None });
                slots.len() - 1
            });
            slots[slot_index].busy_until = shares.then_some(uses.last[index]);
            of_step.push(Some(slot_index));
        }
        Self { slots, of_step }
    }

    /// Bytes of an element of a tile.
    fn bytes_of_element(&self) -> usize {
        let whole =
            self.slots.iter().filter(|slot| slot.space.rows && slot.space.columns == InnerStride::Contiguous);
        whole.map(|slot| slot.width.bytes()).sum()
    }

    /// The destination of each step's result, and the bytes of all.
    fn dests(&self, tile: Extent) -> (Vec<Dest>, usize) {
        let mut end = 0;
        let of_slot = self.slots.iter().map(|slot| {
            let columns = if slot.space.columns == InnerStride::Contiguous { tile.columns } else { 1 };
            let rows = if slot.space.rows { tile.rows } else { 1 };
            let (offset, row_stride) = (end, columns * slot.width.bytes());
            end += (rows * row_stride).next_multiple_of(LINE);
            Dest::Scratch(offset, row_stride)
        });
        let of_slot: Vec<Dest> = of_slot.collect();
        let nowhere = Dest::Scratch(0, 0);
        (self.of_step.iter().map(|slot| slot.map_or(nowhere, |slot| of_slot[slot])).collect(), end)
    }
}

/// The loops around tiles, in the order of the index space, with blocks of rows and of columns last; and an
/// order in which to run them.
struct TileLoops {
    all: SmallVec<[Loop; 6]>,
    order: SmallVec<[usize; 6]>,
}

impl TileLoops {
    fn new(iter_space: &IterationSpace, tile: Extent, steps: &[UnplacedStep]) -> Self {
        let blocks = |l: &Loop, size: usize| Loop {
            extent: l.extent.div_ceil(size),
            strides: l.strides.iter().map(|stride| stride * size as isize).collect(),
            ..l.clone()
        };
        let mut all: SmallVec<[Loop; 6]> = iter_space.outer.iter().cloned().collect();
        all.extend([blocks(&iter_space.rows, tile.rows), blocks(&iter_space.columns, tile.columns)]);
        let order = (0..all.len()).collect();
        let mut loops = Self { all, order };
        loops.order = loops.best_order(steps, tile);
        loops
    }

    /// Makes the loop innermost that saves the most repeated work, if that pays.
    fn best_order(&self, steps: &[UnplacedStep], tile: Extent) -> SmallVec<[usize; 6]> {
        let as_they_are: SmallVec<[usize; 6]> = (0..self.all.len()).collect();
        let innermost = |last: usize| {
            let others = as_they_are.iter().copied().filter(|&l| l != last);
            others.chain([last]).collect::<SmallVec<[usize; 6]>>()
        };
        let iterating =
            (0..self.all.len()).filter(|&l| self.all[l].extent > 1 && self.all[l].role == Role::Spatial);
        let best = iterating
            .map(|last| (self.cost(steps, &innermost(last), tile), last))
            .min_by_key(|&(cost, last)| (cost, std::cmp::Reverse(last)));
        match best {
            // Another order than that of memory has a price as well.
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
            let times = repeated.map(|&l| self.all[l].extent).fold(1, usize::saturating_mul);
            [columns, step.cost, times].into_iter().fold(rows, usize::saturating_mul)
        };
        steps.iter().map(of_step).fold(0, usize::saturating_add)
    }

    /// Whether a result that varies along some loops stays the same in the next iteration of one.
    fn is_still(&self, l: usize, varies: u32) -> bool {
        self.all[l].extent == 1 || varies & 1 << l == 0
    }

    /// Whether a result stays the same in the next iteration of the innermost loop.
    fn outlives_an_iteration(&self, varies: u32) -> bool {
        let innermost = self.order.iter().rev().find(|&&l| self.all[l].extent > 1);
        innermost.is_some_and(|&l| self.is_still(l, varies))
    }

    /// For each loop in its order: the steps whose results its next iteration invalidates, because the loops
    /// inside it start anew.
    fn invalidated_by(&self, steps: &[UnplacedStep]) -> SmallVec<[StepSet; 4]> {
        let of_loop = |loop_index: usize| {
            let mut set = StepSet::none_of(steps.len());
            let iterating = &self.order[loop_index..];
            let is_invalid = |step: &&UnplacedStep| iterating.iter().any(|&l| !self.is_still(l, step.varies));
            let invalidated_by = steps.iter().enumerate().filter(|(_, step)| is_invalid(step));
            invalidated_by.for_each(|(index, _)| set.insert(index));
            set
        };
        (0..self.order.len()).map(of_loop).collect()
    }
}
