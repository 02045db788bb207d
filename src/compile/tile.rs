//! Cuts the loops of a nest into tiles, and puts the results of steps into scratch.

use smallvec::SmallVec;

use super::draft::Draft;
use super::nest::{Draught, Made, Walked};
use crate::kernels::caches::caches;
use crate::kernels::{Extent, Inner, LINE, Width};
use crate::plan::loops::{Loop, Role};
use crate::plan::{Base, Feed, Nest, Place, Step, StepSet, StepSpace, Sudden, Sweep, Walk, Work};

/// Bytes of the result in one tile: enough that the work on a tile outweighs finding it, little enough that threads
/// find many to share.
const TILE_BYTES: usize = 64 * 1024;

/// Rows and columns of a tile in which some operand from beyond the caches is made dense: where no element is wider than two
/// bytes, and otherwise. That is many cache lines each way, so that a page is come back to seldom, and leaves some tiles to share.
/// Transposed operands of [4096, 4096] went 1.3 to 1.7 times as fast with 1 KiB each way as with 256 bytes. Elements of one and
/// two bytes took 0.8 of the time in tiles of 512 that they took in tiles of 256; those of eight, in tiles of 256 instead of 128,
/// 0.89 to 0.96 on two threads and 1.01 to 1.04 on one.
const PACKED_SIDE: [usize; 2] = [512, 256];

/// Columns of a tile in which operands in the caches are made dense, a line of each at a time, so that what is made is still in
/// the first level when it is read. Transposed operands of [256, 256] and [1024, 1024] took 0.7 to 0.95 of the time that they
/// took in tiles as beyond the caches.
const PACKED_COLUMNS: usize = 256;

/// The most elements of a tile in which a verdict may spare steps: few, so that many tiles have one. With conditions of
/// which two rows of 1,024 in three are true, a gated GELU took 0.73 of the time that it took in tiles of two rows.
const SPARED_MOST: usize = 1024;

/// What an element of a branch costs at least for the tiles to be made smaller, as each takes time of its own. A sum under a
/// padding mask, in the second-level cache, took 0.85 of its time in larger ones.
const SPARED_LEAST: usize = 8;

/// The fewest elements of a tile, so that what a step does outweighs finding it. A group of 25 ops on 8-byte integers without
/// chains, whose steps hold 53 bytes an element, took 0.85 of its time in tiles of twice 512, though they do not fit the
/// first level.
const FEWEST_ELEMENTS: usize = 1024;

/// Makes a nest of loops and steps, whose operands stay in the caches where those hold all that the plan moves.
pub(super) fn nest(
    draft: &Draft<'_>,
    walked: &Walked,
    steps: Vec<Draught>,
    roots: SmallVec<[usize; 2]>,
    is_cached: bool,
) -> Made {
    let uses = Uses::new(&steps, &roots);
    let space = Extent { rows: walked.rows.extent, columns: walked.columns.extent };
    // Which results outlive a tile depends on the tile, so the most is reckoned with first.
    let slots = Slots::new(&steps, &uses, |step| step.varies & (walked.row_bit() | walked.column_bit()) == 0);
    let tile = extent(draft, &steps, &slots, space, is_cached);

    let loops = Loops::new(walked, tile, &steps);
    let slots = Slots::new(&steps, &uses, |step| loops.outlives_a_turn(step.varies));
    let (places, chain_scratch) = slots.places(tile);
    let of_chain = |step: &Draught| match &step.work {
        Work::Chain(chain) => chain.program.scratch(),
        _ => 0,
    };
    let scratch = chain_scratch + steps.iter().map(of_chain).max().unwrap_or(0).next_multiple_of(LINE);
    let cost = loops.cost(&steps, &loops.order, tile);
    let outdated = loops.outdated(&steps);
    let walks = (draft.paths.iter().enumerate())
        .map(|(i, path)| Walk { base: path.base, pitch: walked.rows.steps[i], step: walked.columns.steps[i] })
        .collect();
    let flat: Vec<bool> = (0..steps.len()).map(|index| is_flat(draft, walked, tile, &steps, index)).collect();
    let place = |(index, step): (usize, Draught)| {
        let to = step.port.map_or(places[index], Place::Port);
        let sweep = if flat[index] { Sweep::Flat } else { step.sweep };
        Step { deeds: step.deeds, work: step.work, to, space: step.space, sweep }
    };
    let at = |loop_: usize| loops.order.iter().position(|&l| l == loop_).unwrap_or(0);
    let (row_blocks, column_blocks) = (at(loops.all.len() - 2), at(loops.all.len() - 1));
    let mut ordered: SmallVec<[Loop; 6]> = loops.order.iter().map(|&l| loops.all[l].clone()).collect();
    ordered.iter_mut().for_each(|l| l.steps.truncate(draft.paths.len()));
    let steps = steps.into_iter().enumerate().map(place).collect();
    let nest = Nest {
        loops: ordered,
        row_blocks,
        column_blocks,
        space,
        tile,
        steps,
        roots,
        outdated,
        walks,
        chain_scratch,
        sudden: None,
    };
    Made { nest, scratch, cost }
}

/// What is read for a branch that a verdict may spare.
pub(super) fn sudden<'n>(draft: &Draft<'_>, nest: &'n Nest) -> Option<Sudden> {
    let computed = |step: &'n Step| match &step.work {
        Work::Select(select) => select.made_branches().next().map(|branch| (branch, select, step.to)),
        _ => None,
    };
    let (step, select, to) = nest.steps.iter().find_map(computed)?;
    let is_input = |walk: usize| nest.walks[walk].base.input(draft.inputs()).is_some();
    let is_one_piece = |&walk: &usize| {
        let (Walk { pitch, step, .. }, width) = (&nest.walks[walk], draft.paths[walk].width.bytes());
        let follows = nest.tile.rows == 1 || *pitch == (width * nest.tile.columns) as isize;
        is_input(walk) && *step == width as isize && follows
    };
    // What the next tile reads again is in the caches. A chain of twelve ops, two operands of which are rows that all tiles read,
    // took 0.95 of its time on a Zen 5 for leaving them out.
    let innermost = nest.loops.iter().rev().find(|l| l.extent > 1);
    let moves_on = |&walk: &usize| innermost.is_some_and(|l| l.steps[walk] != 0);
    let walks: SmallVec<[usize; 4]> = (0..nest.walks.len()).filter(is_one_piece).filter(moves_on).collect();
    if walks.is_empty() {
        return None;
    }
    let decides_alone = |&walk: &usize| {
        let is_one = nest.tile.rows == 1 || nest.walks[walk].pitch == 0;
        is_input(walk) && is_one && select.cond_inner == Inner::Repeated
    };
    let cond = match select.cond {
        Feed::Walk(walk) => Some(walk).filter(decides_alone),
        Feed::Step(_) => None,
    };
    let is_then = select.then.feed == Feed::Step(step);
    let other = if is_then { select.else_.feed } else { select.then.feed };
    let copied = walks.iter().copied().find(|&walk| other == Feed::Walk(walk));
    let result = match to {
        Place::Port(walk) => Some(walk),
        Place::Scratch(..) => None,
    };
    Some(Sudden { step, walks, cond: cond.map(|walk| (walk, is_then)), copied, result })
}

/// Whether a step can go through a tile as through one row.
fn is_flat(draft: &Draft<'_>, walked: &Walked, tile: Extent, steps: &[Draught], index: usize) -> bool {
    let spans = tile.columns == walked.columns.extent && walked.columns.extent > 1 && tile.rows > 1;
    spans && lies_flat(draft, walked, steps, index)
}

/// Whether the rows of a step's result and of all its operands follow each other without a gap.
pub(super) fn lies_flat(draft: &Draft<'_>, walked: &Walked, steps: &[Draught], index: usize) -> bool {
    let step = &steps[index];
    let follows = |path: usize| {
        let width = draft.paths[path].width.bytes() as isize;
        let (pitch, along) = (walked.rows.steps[path], walked.columns.steps[path]);
        along == width && pitch == width * walked.columns.extent as isize
    };
    let is_everywhere_one = |path: usize| (walked.rows.steps[path], walked.columns.steps[path]) == (0, 0);
    let is_whole = |space: StepSpace| space.rows && space.columns == Inner::Dense;
    let fits = |feed: Feed| match feed {
        Feed::Walk(path) => follows(path) || is_everywhere_one(path),
        Feed::Step(step) => {
            let Draught { space, port, .. } = steps[step];
            let is_one = !space.rows && space.columns == Inner::Repeated;
            is_one || (is_whole(space) && port.is_none_or(follows))
        }
    };
    let is_map = !step.packs() && !matches!(step.work, Work::Index { .. });
    is_map && is_whole(step.space) && step.port.is_none_or(follows) && step.work.feeds().into_iter().all(fits)
}

/// Rows and columns of a tile.
fn extent(draft: &Draft<'_>, steps: &[Draught], slots: &Slots, space: Extent, is_cached: bool) -> Extent {
    let widest = draft.paths.iter().map(|path| path.width.bytes()).max().unwrap_or(1);
    // What an element takes in scratch.
    let held = slots.bytes_of_element();
    if let Some(narrowest) = steps.iter().filter(|step| step.packs()).map(|step| step.width.bytes()).min() {
        let [of_narrow, of_wide] = PACKED_SIDE;
        let side = if widest <= 2 { of_narrow } else { of_wide };
        let (mut rows, mut columns, room) = match is_cached {
            true => (LINE / narrowest, PACKED_COLUMNS, caches().first_level / 2),
            false => (side, side, caches().second_level / 2),
        };
        while held * rows * columns > room && rows.max(columns) > 32 {
            if rows > columns {
                rows /= 2;
            } else {
                columns /= 2;
            }
        }
        return Extent { rows: space.rows.min(rows), columns: space.columns.min(columns) };
    }
    // What two steps read, and what they give, is a third of the first level each; and what steps leave to each other is one,
    // as what they read and write beside that runs through the rest. Half of the first level took 1.04 to 1.08 of the time in
    // the second level of a Zen 5.
    let third = caches().first_level / 3;
    let most = if is_read_again(draft, steps) { third } else { TILE_BYTES } / widest;
    let elements = match held {
        0 => most,
        _ => (third / held).min(most).max(FEWEST_ELEMENTS),
    };
    let is_dear = |branch: usize| {
        let inside = reached(steps, [branch], |_, _| true);
        steps.iter().zip(inside).filter(|(_, inside)| *inside).map(|(step, _)| step.cost).sum::<usize>()
            >= SPARED_LEAST
    };
    let may_spare = |step: &Draught| match &step.work {
        Work::Select(select) => select.made_branches().any(is_dear),
        _ => false,
    };
    let elements = if steps.iter().any(may_spare) { elements.min(SPARED_MOST) } else { elements };
    let columns = match space.columns.div_ceil(elements) {
        0 | 1 => space.columns,
        blocks => space.columns.div_ceil(blocks).next_multiple_of(64),
    };
    let most = (elements / columns).max(1);
    // Of tiles of whole rows, so many rows that the next tile begins in a line where this one does: a select with a bias, in the
    // second level, took 0.85 to 0.95 of its time with rows of 584 and 760 bytes.
    let rows_of_lines = LINE >> (columns * widest).trailing_zeros().min(LINE.ilog2());
    let together = if columns == space.columns && rows_of_lines <= most { rows_of_lines } else { 1 };
    let blocks = space.rows.div_ceil(most / together * together);
    let rows = space.rows.div_ceil(blocks).next_multiple_of(together).min(space.rows);
    Extent { rows, columns }
}

/// Whether two steps read the same port.
fn is_read_again(draft: &Draft<'_>, steps: &[Draught]) -> bool {
    let readers = |path| steps.iter().filter(|step| step.work.feeds().contains(&Feed::Walk(path))).count();
    (0..draft.paths.len()).any(|path| matches!(draft.paths[path].base, Base::Port(_)) && readers(path) > 1)
}

/// Who uses the results of steps, in the order in which they run where nothing is skipped.
struct Uses {
    /// For each step the last one that may need its result; itself, where none does.
    last: Vec<usize>,
}

impl Uses {
    fn new(steps: &[Draught], roots: &[usize]) -> Self {
        let mut last: Vec<usize> = (0..steps.len()).collect();
        for (index, step) in steps.iter().enumerate() {
            step.work.pulls().for_each(|operand| last[operand] = last[operand].max(index));
        }
        // A step that a verdict may spare can be run after all by a later user; its operands have to be there then.
        let late = may_be_late(steps, roots);
        for index in (0..steps.len()).rev().filter(|&index| late[index]) {
            let until = last[index];
            steps[index].work.pulls().for_each(|operand| last[operand] = last[operand].max(until));
        }
        Self { last }
    }
}

/// The steps that are pulled for one branch of a select alone, which starts with step `first`.
pub(super) fn spared<'a>(
    steps: &'a [Draught],
    roots: &[usize],
    select: usize,
    first: usize,
) -> impl Iterator<Item = usize> + 'a {
    let inside = reached(steps, [first], |_, _| true);
    let without = reached(steps, roots.iter().copied(), |user, used| (user, used) != (select, first));
    (0..steps.len()).filter(move |&step| inside[step] && !without[step])
}

/// Which steps are pulled by a branch of a select that may be spared, and by others too.
fn may_be_late(steps: &[Draught], roots: &[usize]) -> Vec<bool> {
    let mut late = vec![false; steps.len()];
    for (index, step) in steps.iter().enumerate() {
        let Work::Select(select) = &step.work else { continue };
        for first in select.made_branches() {
            let inside = reached(steps, [first], |_, _| true);
            let without = reached(steps, roots.iter().copied(), |user, used| (user, used) != (index, first));
            for step in 0..steps.len() {
                late[step] |= inside[step] && without[step];
            }
        }
    }
    late
}

/// The steps that some steps pull, themselves among them, along the uses that are followed.
fn reached(
    steps: &[Draught],
    from: impl IntoIterator<Item = usize>,
    follow: impl Fn(usize, usize) -> bool,
) -> Vec<bool> {
    let mut seen = vec![false; steps.len()];
    let mut open: Vec<usize> = from.into_iter().collect();
    while let Some(index) = open.pop() {
        if !std::mem::replace(&mut seen[index], true) {
            open.extend(steps[index].work.pulls().filter(|&used| follow(index, used)));
        }
    }
    seen
}

/// Room for the results of steps, shared by those that are not needed at once.
struct Slots {
    slots: Vec<Slot>,
    /// For each step with a result in scratch, its slot.
    of_step: Vec<Option<usize>>,
}

struct Slot {
    width: Width,
    space: StepSpace,
    /// The last step that needs what is in it; `None` where it is never free.
    busy_until: Option<usize>,
}

impl Slots {
    fn new(steps: &[Draught], uses: &Uses, outlives_a_tile: impl Fn(&Draught) -> bool) -> Self {
        let (mut slots, mut of_step): (Vec<Slot>, Vec<Option<usize>>) = (Vec::new(), Vec::new());
        for (index, step) in steps.iter().enumerate() {
            if step.port.is_some() {
                of_step.push(None);
                continue;
            }
            let shares = !outlives_a_tile(step);
            // A kernel may write over an operand, element for element, but not over a condition that it still reads.
            let condition = match &step.work {
                Work::Select(select) => select.cond.step().and_then(|cond| of_step[cond]),
                _ => None,
            };
            let is_free = |(place, slot): (usize, &Slot)| {
                shares
                    && slot.busy_until.is_some_and(|until| until <= index)
                    && (slot.width, slot.space) == (step.width, step.space)
                    && Some(place) != condition
            };
            let place = slots.iter().enumerate().position(is_free).unwrap_or_else(|| {
                slots.push(Slot { width: step.width, space: step.space, busy_until: None });
                slots.len() - 1
            });
            slots[place].busy_until = shares.then_some(uses.last[index]);
            of_step.push(Some(place));
        }
        Self { slots, of_step }
    }

    /// Bytes that an element of a tile takes.
    fn bytes_of_element(&self) -> usize {
        let whole = self.slots.iter().filter(|slot| slot.space.rows && slot.space.columns == Inner::Dense);
        whole.map(|slot| slot.width.bytes()).sum()
    }

    /// Where the result of each step is, and the bytes of all.
    fn places(&self, tile: Extent) -> (Vec<Place>, usize) {
        let mut end = 0;
        let of_slot = self.slots.iter().map(|slot| {
            let columns = if slot.space.columns == Inner::Dense { tile.columns } else { 1 };
            let rows = if slot.space.rows { tile.rows } else { 1 };
            let (offset, pitch) = (end, columns * slot.width.bytes());
            end += (rows * pitch).next_multiple_of(LINE);
            Place::Scratch(offset, pitch)
        });
        let of_slot: Vec<Place> = of_slot.collect();
        let nowhere = Place::Scratch(0, 0);
        (self.of_step.iter().map(|slot| slot.map_or(nowhere, |slot| of_slot[slot])).collect(), end)
    }
}

/// The loops around tiles, in the order of the index space, blocks of rows and of columns last, and an order in which
/// to run them.
struct Loops {
    all: SmallVec<[Loop; 6]>,
    order: SmallVec<[usize; 6]>,
}

impl Loops {
    fn new(walked: &Walked, tile: Extent, steps: &[Draught]) -> Self {
        let blocks = |l: &Loop, size: usize| Loop {
            extent: l.extent.div_ceil(size),
            steps: l.steps.iter().map(|step| step * size as isize).collect(),
            ..l.clone()
        };
        let mut all: SmallVec<[Loop; 6]> = walked.outer.iter().cloned().collect();
        all.extend([blocks(&walked.rows, tile.rows), blocks(&walked.columns, tile.columns)]);
        let order = (0..all.len()).collect();
        let mut loops = Self { all, order };
        loops.order = loops.best_order(steps, tile);
        loops
    }

    /// The loop along which most work need not be repeated turns fastest, where that pays.
    fn best_order(&self, steps: &[Draught], tile: Extent) -> SmallVec<[usize; 6]> {
        let as_they_are: SmallVec<[usize; 6]> = (0..self.all.len()).collect();
        let innermost = |last: usize| {
            let others = as_they_are.iter().copied().filter(|&l| l != last);
            others.chain([last]).collect::<SmallVec<[usize; 6]>>()
        };
        let turning =
            (0..self.all.len()).filter(|&l| self.all[l].extent > 1 && self.all[l].role == Role::Spatial);
        let best = turning
            .map(|last| (self.cost(steps, &innermost(last), tile), last))
            .min_by_key(|&(cost, last)| (cost, std::cmp::Reverse(last)));
        match best {
            // Walking memory in another order than it lies in has a price as well.
            Some((cost, last)) if cost < self.cost(steps, &as_they_are, tile) / 8 * 7 => innermost(last),
            _ => as_they_are,
        }
    }

    /// What the steps of all tiles cost in an order of loops: each is repeated but along the innermost loops along which
    /// its result does not vary.
    fn cost(&self, steps: &[Draught], order: &[usize], tile: Extent) -> usize {
        let of_step = |step: &Draught| {
            let rows = if step.space.rows { tile.rows } else { 1 };
            let columns = if step.space.columns == Inner::Dense { tile.columns } else { 1 };
            let repeated = order.iter().rev().skip_while(|&&l| self.is_still(l, step.varies));
            let times = repeated.map(|&l| self.all[l].extent).fold(1, usize::saturating_mul);
            [columns, step.cost, times].into_iter().fold(rows, usize::saturating_mul)
        };
        steps.iter().map(of_step).fold(0, usize::saturating_add)
    }

    /// Whether a result that varies along some loops stays the same when one turns.
    fn is_still(&self, l: usize, varies: u32) -> bool {
        self.all[l].extent == 1 || varies & 1 << l == 0
    }

    /// Whether a result stays the same when the innermost loop turns.
    fn outlives_a_turn(&self, varies: u32) -> bool {
        let innermost = self.order.iter().rev().find(|&&l| self.all[l].extent > 1);
        innermost.is_some_and(|&l| self.is_still(l, varies))
    }

    /// For each loop in its order: the steps whose results are out of date once it turns, as those inside it then start
    /// anew.
    fn outdated(&self, steps: &[Draught]) -> SmallVec<[StepSet; 4]> {
        let of_loop = |place: usize| {
            let mut set = StepSet::none_of(steps.len());
            let turning = &self.order[place..];
            let is_outdated = |step: &&Draught| turning.iter().any(|&l| !self.is_still(l, step.varies));
            let outdated = steps.iter().enumerate().filter(|(_, step)| is_outdated(step));
            outdated.for_each(|(index, _)| set.insert(index));
            set
        };
        (0..self.order.len()).map(of_loop).collect()
    }
}
