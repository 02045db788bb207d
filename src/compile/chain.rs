//! Makes chains of steps: one step takes in those whose results nobody else uses, and what they leave to each other stays
//! in registers.

use smallvec::SmallVec;

use super::draft::Draft;
use super::kernel::{Feeds, NO_PARAMS};
use super::nest::{Draught, Walked};
use super::tile;
use crate::kernels::chain::{self, At, BLOCK, Ending, Operand, Program, Stage, Use};
use crate::kernels::pointwise::Params;
use crate::kernels::{Inner, Stores, Width};
use crate::plan::{Chain, Feed, Work};
use crate::types::kind::Level;

/// The most steps of a chain: as many functions may be within each other where the compiler makes no jumps of calls.
const MOST_STEPS: usize = 32;

/// A step as a part of a chain.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) verb: Verb,
    pub(super) feeds: Feeds,
}

/// What a step does to the block and the truth values that a chain hands on.
#[derive(Debug, Clone, Copy)]
pub(super) enum Verb {
    /// Nothing: the result is the operand.
    Same,
    /// A number from a number, whatever NaN that is.
    Number1 { stage: Stage, params: Params, gives_any_nan: bool },
    /// A number from the bits of a number.
    Bits(Stage),
    /// A truth value from a number.
    Truth1(Stage, Params),
    /// A number from two, whatever NaN they are.
    Number2 { stage: Stage, params: Params, commutes: bool, gives_any_nan: bool },
    /// A truth value from two numbers; and the same with the operands the other way round.
    Truth2 { stage: Stage, turned: Stage },
    /// A truth value from a truth value.
    Not(Stage),
    /// A truth value from two, whichever comes first; and the same where the second one waits.
    Logic { stage: Stage, of_both: Stage },
    /// One of two numbers by a truth value: the block where it is true, and where it is false.
    Select { if_true: Stage, if_false: Stage },
}

/// The steps of a nest, and its roots, with chains in place of the steps that they are made of; `is_far` says whether the
/// plan moves more than the last level holds for it.
pub(super) fn chained(
    draft: &Draft<'_>,
    walked: &Walked,
    mut steps: Vec<Draught>,
    mut roots: SmallVec<[usize; 2]>,
    level: Level,
    is_far: bool,
) -> (Vec<Draught>, SmallVec<[usize; 2]>) {
    let mut users = vec![Vec::new(); steps.len()];
    for (user, step) in steps.iter().enumerate() {
        step.work.pulls().for_each(|used| users[used].push(user));
    }
    let mut taken = vec![false; steps.len()];
    let is_part: Vec<bool> =
        (0..steps.len()).map(|step| is_part(draft, walked, &steps, &roots, step)).collect();
    for root in (0..steps.len()).rev() {
        if taken[root] || !is_part[root] {
            continue;
        }
        let members = members(&steps, &users, &is_part, root);
        if members.len() < 2 {
            continue;
        }
        let Some(chain) = Writer::new(draft, walked, &steps, &members, level, is_far).chain() else {
            continue;
        };
        let cost = members.iter().map(|&step| steps[step].cost).sum();
        members.iter().filter(|&&step| step != root).for_each(|&step| taken[step] = true);
        steps[root].deeds = members.iter().flat_map(|&step| &steps[step].deeds).copied().collect();
        steps[root].work = Work::Chain(chain);
        steps[root].cost = cost;
    }
    let order = order_of_pulls(&steps, &roots);
    let mut numbers = vec![0; steps.len()];
    order.iter().enumerate().for_each(|(number, &step)| numbers[step] = number);
    let mut open: Vec<Option<Draught>> = steps.into_iter().map(Some).collect();
    let mut steps: Vec<Draught> = order.into_iter().filter_map(|step| open[step].take()).collect();
    steps.iter_mut().for_each(|step| step.work.renumber(&numbers));
    roots.iter_mut().for_each(|root| *root = numbers[*root]);
    (steps, roots)
}

/// The steps that roots pull, in the order in which they run where none is skipped. A chain pulls its operands in another
/// order than its steps did, and scratch is shared by that order.
fn order_of_pulls(steps: &[Draught], roots: &[usize]) -> Vec<usize> {
    let (mut seen, mut order) = (vec![false; steps.len()], Vec::with_capacity(steps.len()));
    let mut open = Vec::new();
    for &root in roots {
        open.extend((!std::mem::replace(&mut seen[root], true)).then_some(root));
        while let Some(&step) = open.last() {
            match steps[step].work.pulls().find(|&used| !seen[used]) {
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

/// The steps that a chain with a result can take in, in their order: each is used within the chain alone, and varies along
/// the same loops.
fn members(steps: &[Draught], users: &[Vec<usize>], is_part: &[bool], root: usize) -> Vec<usize> {
    let mut members = vec![root];
    for step in (0..root).rev() {
        // What is written to a port is used outside.
        let fits = is_part[step] && steps[step].varies == steps[root].varies && steps[step].port.is_none();
        let is_inner =
            fits && !users[step].is_empty() && users[step].iter().all(|user| members.contains(user));
        if is_inner && members.len() < MOST_STEPS {
            members.push(step);
        }
    }
    members.reverse();
    members
}

/// Whether a step can be part of a chain: it goes through all of a tile, and chains have a stage for it.
fn is_part(draft: &Draft<'_>, walked: &Walked, steps: &[Draught], roots: &[usize], index: usize) -> bool {
    let step = &steps[index];
    let is_whole = step.space.rows && step.space.columns == Inner::Dense;
    // Blocks that rows leave half empty take as long as full ones.
    let columns = walked.columns.extent;
    let fills_blocks = columns.next_multiple_of(BLOCK) <= columns / 4 * 5 || walked.rows.extent == 1;
    is_whole
        && step.part.is_some()
        && (fills_blocks || tile::lies_flat(draft, walked, steps, index))
        && !spares_work(steps, roots, index)
}

/// Whether a verdict over the condition of a select may spare a step that no chain takes in, since it takes long.
fn spares_work(steps: &[Draught], roots: &[usize], index: usize) -> bool {
    let Work::Select(select) = &steps[index].work else { return false };
    let is_dear = |step: usize| steps[step].part.is_none() && steps[step].varies == steps[index].varies;
    select.made_branches().any(|first| tile::spared(steps, roots, index, first).any(is_dear))
}

/// Of which members, by step, the bits of a NaN are looked at: those that are stored, or that are moved or changed bit by bit
/// on their way to what is stored. Arithmetic and questions take any NaN alike.
fn bits_matter(steps: &[Draught], members: &[usize]) -> Vec<bool> {
    let mut matter = vec![false; steps.len()];
    members.last().into_iter().for_each(|&root| matter[root] = true);
    for &member in members.iter().rev() {
        let Some(Part { verb, feeds }) = &steps[member].part else { continue };
        let looked_at = match verb {
            Verb::Bits(_) => &feeds[..],
            Verb::Same if matter[member] => &feeds[..],
            Verb::Select { .. } if matter[member] => &feeds[1..],
            _ => &[],
        };
        for &(feed, _) in looked_at {
            if let Feed::Step(step) = feed {
                matter[step] = true;
            }
        }
    }
    matter
}

/// Writes the program of a chain.
struct Writer<'a> {
    draft: &'a Draft<'a>,
    walked: &'a Walked,
    steps: &'a [Draught],
    members: &'a [usize],
    level: Level,
    is_far: bool,
    stages: Vec<Use>,
    /// What lies in memory before the chain begins.
    operands: SmallVec<[(Feed, Operand); 4]>,
    /// For each place of values put aside: the one that is there.
    aside: Vec<Option<Feed>>,
    /// How often each member's result is still used.
    uses: Vec<usize>,
    /// For each member, whether the bits of a NaN that it gives are looked at.
    bits_matter: Vec<bool>,
    /// The members whose results have been made, or begun.
    made: Vec<bool>,
    /// Whose values the registers hold.
    block: Option<Feed>,
    truths: Option<Feed>,
    /// Whose truth values wait in a register, until nobody uses them any more.
    waiting: Option<Feed>,
}

impl<'a> Writer<'a> {
    fn new(
        draft: &'a Draft<'a>,
        walked: &'a Walked,
        steps: &'a [Draught],
        members: &'a [usize],
        level: Level,
        is_far: bool,
    ) -> Self {
        let mut uses = vec![0; steps.len()];
        for feeds in members.iter().filter_map(|&step| steps[step].part.as_ref()).map(|part| &part.feeds) {
            for &(feed, _) in feeds {
                if let Feed::Step(step) = feed {
                    uses[step] += 1;
                }
            }
        }
        Self {
            draft,
            walked,
            steps,
            members,
            level,
            is_far,
            stages: Vec::new(),
            operands: SmallVec::new(),
            aside: Vec::new(),
            uses,
            bits_matter: bits_matter(steps, members),
            made: vec![false; steps.len()],
            block: None,
            truths: None,
            waiting: None,
        }
    }

    /// The chain of all members; nothing where a value has no stage.
    fn chain(mut self) -> Option<Chain> {
        let root = *self.members.last()?;
        let part = self.steps[root].part.as_ref()?;
        let result = match part.verb {
            Verb::Same => part.feeds[0].0,
            _ => Feed::Step(root),
        };
        self.declare()?;
        self.ask()?;
        self.make(result)?;
        let ending = if self.truths == Some(result) {
            Ending::Truths
        } else {
            self.load_block(result)?;
            Ending::Block(self.steps[root].width, self.steps[root].stores)
        };
        let (feeds, of_feeds) = self.operands.into_iter().unzip();
        let program = Program::new(self.level, &self.stages, of_feeds, ending, self.aside.len())?;
        Some(Chain { program, feeds })
    }

    /// Lists the operands that lie in memory.
    fn declare(&mut self) -> Option<()> {
        for &member in self.members {
            for &(feed, inner) in &self.steps[member].part.as_ref()?.feeds {
                if !self.is_member(feed) && self.operands.iter().all(|(known, _)| *known != feed) {
                    self.operands.push((feed, Operand { width: self.width(feed), inner }));
                }
            }
        }
        Some(())
    }

    /// Has the operands that run along rows in memory asked for ahead of time, where memory binds by far. The stages of a block
    /// are so many instructions that the machine does not see the next ones coming: on a Zen 5, groups took 0.75 to 0.95 of
    /// their time beyond the caches. Within the last level it sees enough, and a clamp's gradient took 1.1 to 1.35 of its time
    /// for being asked for. On a Zen 4, groups that arithmetic nearly binds took 1.04.
    fn ask(&mut self) -> Option<()> {
        let walked = |(index, &(feed, Operand { width, inner })): (usize, &(Feed, Operand))| {
            (matches!(feed, Feed::Walk(_)) && inner == Inner::Dense).then_some((
                At::Operand(index),
                feed,
                width,
            ))
        };
        let walked: SmallVec<[(At, Feed, Width); 4]> =
            self.operands.iter().enumerate().filter_map(walked).collect();
        // Of all steps that run as often: where one beside the chain takes long, memory has time. On a Zen 5, a chain of twelve ops
        // took 0.89 to 0.95 of its time for that.
        let varies = self.members.last().map(|&root| self.steps[root].varies);
        let as_often = self.steps.iter().filter(|step| Some(step.varies) == varies);
        let cost: usize = as_often.map(|step| step.cost).sum();
        let runs_along = |&path: &usize| self.walked.columns.steps[path] != 0;
        let paths = (0..self.draft.paths.len()).filter(runs_along);
        let moved: usize = paths.map(|path| self.draft.paths[path].width.bytes()).sum();
        // Operands come from beyond the caches where results go there.
        let is_beyond = self.steps.iter().any(|step| step.stores == Stores::Streaming);
        // The pieces of rows that tiles are then are too short for the machine to see coming: a sum under a mask, of bf16 and
        // with one operand transposed, took 0.6 of its time.
        let packs = self.steps.iter().any(Draught::packs);
        if is_beyond && (packs || (self.is_far && 2 * cost <= moved)) {
            for (at, feed, width) in walked {
                // Where that is further than an f32 counts in bytes, a line close by is asked for.
                match self.walked.ahead(self.draft, packs, feed) {
                    0 => {}
                    ahead => self.push(chain::ask(width)[self.level as usize]?, at, [ahead as f32, 0.0]),
                }
            }
        }
        Some(())
    }

    fn is_member(&self, feed: Feed) -> bool {
        matches!(feed, Feed::Step(step) if self.members.contains(&step))
    }

    fn width(&self, feed: Feed) -> Width {
        match feed {
            Feed::Walk(path) => self.draft.paths[path].width,
            Feed::Step(step) => self.steps[step].width,
        }
    }

    fn call(&mut self, stages: chain::Stages, at: At) -> Option<()> {
        let stage = stages[self.level as usize]?;
        self.push(stage, at, NO_PARAMS);
        Some(())
    }

    fn push(&mut self, stage: Stage, at: At, params: Params) {
        self.stages.push(Use { stage, at, params });
    }

    /// Sees to it that a value has been made, after those that it is made from.
    fn make(&mut self, value: Feed) -> Option<()> {
        let mut open: Vec<usize> = self.begun(value).into_iter().collect();
        while let Some(&step) = open.last() {
            let feeds = &self.steps[step].part.as_ref()?.feeds;
            // The condition first: it waits in a register of its own while the branches are made, the first one last.
            let order: &[usize] = if feeds.len() == 3 { &[0, 2, 1] } else { &[1, 0] };
            let mut operands = order.iter().filter_map(|&place| feeds.get(place));
            match operands.find_map(|&(feed, _)| self.begun(feed)) {
                Some(operand) => open.push(operand),
                None => {
                    self.make_step(step)?;
                    open.pop();
                }
            }
        }
        Some(())
    }

    /// The member that makes a value, where it has not been begun; it is now.
    fn begun(&mut self, value: Feed) -> Option<usize> {
        let step = value.step().filter(|_| self.is_member(value))?;
        (!std::mem::replace(&mut self.made[step], true)).then_some(step)
    }

    /// Makes the result of a member whose operands have been made.
    fn make_step(&mut self, step: usize) -> Option<()> {
        let steps = self.steps;
        let Part { verb, feeds } = steps[step].part.as_ref()?;
        let operand = |place: usize| feeds[place].0;
        match *verb {
            Verb::Same => return None,
            Verb::Number1 { stage, params, gives_any_nan } => {
                self.load_block(operand(0))?;
                self.replace_block(step)?;
                self.push(stage, At::Nowhere, params);
                self.settle_nan(step, gives_any_nan)?;
            }
            Verb::Bits(stage) => {
                self.load_block(operand(0))?;
                self.replace_block(step)?;
                self.push(stage, At::Nowhere, NO_PARAMS);
            }
            Verb::Truth1(stage, params) => {
                self.load_block(operand(0))?;
                self.replace_truths(step)?;
                self.push(stage, At::Nowhere, params);
            }
            Verb::Number2 { stage, params, commutes, gives_any_nan } => {
                let (x, y) = if commutes {
                    self.in_block_first(operand(0), operand(1))
                } else {
                    (operand(0), operand(1))
                };
                let other = self.in_memory(y)?;
                self.load_block(x)?;
                self.replace_block(step)?;
                self.push(stage, other, params);
                self.settle_nan(step, gives_any_nan)?;
            }
            Verb::Truth2 { stage, turned } => {
                let (x, y) = self.in_block_first(operand(0), operand(1));
                let stage = if x == operand(0) { stage } else { turned };
                let other = self.in_memory(y)?;
                self.load_block(x)?;
                self.replace_truths(step)?;
                self.push(stage, other, NO_PARAMS);
            }
            Verb::Not(stage) => {
                self.load_truths(operand(0))?;
                self.replace_truths(step)?;
                self.push(stage, At::Nowhere, NO_PARAMS);
            }
            Verb::Logic { stage, of_both } => {
                let is_second = self.truths == Some(operand(1));
                let (x, y) = if is_second { (operand(1), operand(0)) } else { (operand(0), operand(1)) };
                let (stage, other) = match self.waiting == Some(y) && x != y {
                    true => (of_both, At::Nowhere),
                    false => (stage, self.in_memory(y)?),
                };
                self.load_truths(x)?;
                self.replace_truths(step)?;
                self.push(stage, other, NO_PARAMS);
            }
            Verb::Select { if_true, if_false } => {
                let (own, other) = self.in_block_first(operand(1), operand(2));
                let stage = if own == operand(1) { if_true } else { if_false };
                let other = self.in_memory(other)?;
                self.load_block(own)?;
                self.load_truths(operand(0))?;
                self.replace_block(step)?;
                self.push(stage, other, NO_PARAMS);
            }
        }
        self.forget();
        Some(())
    }

    /// Makes any NaN in the block, the result of a step, the one NaN, if anybody looks at its bits.
    fn settle_nan(&mut self, step: usize, gives_any_nan: bool) -> Option<()> {
        match gives_any_nan && self.bits_matter[step] {
            true => self.call(chain::canonical(), At::Nowhere),
            false => Some(()),
        }
    }

    /// Two operands, the one that the block holds first.
    fn in_block_first(&self, x: Feed, y: Feed) -> (Feed, Feed) {
        if self.block == Some(y) { (y, x) } else { (x, y) }
    }

    /// Where a value is in memory, where it is put unless it is there.
    fn in_memory(&mut self, value: Feed) -> Option<At> {
        if let Some(place) = self.operands.iter().position(|(feed, _)| *feed == value) {
            return Some(At::Operand(place));
        }
        if let Some(place) = self.aside.iter().position(|there| *there == Some(value)) {
            return Some(At::Aside(place));
        }
        let place = self.aside.iter().position(Option::is_none).unwrap_or_else(|| {
            self.aside.push(None);
            self.aside.len() - 1
        });
        self.aside[place] = Some(value);
        let at = At::Aside(place);
        if self.truths == Some(value) {
            self.call(chain::keep_mask(), at)?;
        } else if self.waiting == Some(value) {
            self.swap()?;
            self.call(chain::keep_mask(), at)?;
            self.swap()?;
        } else {
            self.call(chain::keep(self.width(value)), at)?;
        }
        Some(at)
    }

    /// Exchanges the truth values and those that wait.
    fn swap(&mut self) -> Option<()> {
        std::mem::swap(&mut self.truths, &mut self.waiting);
        self.waiting = self.waiting.filter(|&value| self.is_used_later(value));
        self.call(chain::swap(), At::Nowhere)
    }

    /// Sees to it that the block is a value.
    fn load_block(&mut self, value: Feed) -> Option<()> {
        if self.block == Some(value) {
            return Some(());
        }
        let at = self.in_memory(value)?;
        self.keep(self.block)?;
        self.call(chain::load(self.width(value)), at)?;
        self.block = Some(value);
        Some(())
    }

    /// Sees to it that the truth values are those of a value.
    fn load_truths(&mut self, value: Feed) -> Option<()> {
        if self.truths == Some(value) {
            return Some(());
        }
        if self.waiting == Some(value) {
            return self.swap();
        }
        let at = self.in_memory(value)?;
        self.keep_truths()?;
        self.call(chain::load_mask(), at)?;
        self.truths = Some(value);
        Some(())
    }

    /// Puts a value aside that is used later.
    fn keep(&mut self, value: Option<Feed>) -> Option<()> {
        match value {
            Some(value) if self.is_used_later(value) => self.in_memory(value).map(|_| ()),
            _ => Some(()),
        }
    }

    fn is_used_later(&self, value: Feed) -> bool {
        matches!(value, Feed::Step(step) if self.is_member(value) && self.uses[step] > 0)
    }

    /// The block becomes the result of a step, which uses its operands.
    fn replace_block(&mut self, step: usize) -> Option<()> {
        self.use_operands(step);
        self.keep(self.block)?;
        self.block = Some(Feed::Step(step));
        Some(())
    }

    /// The truth values become the result of a step, which uses its operands.
    fn replace_truths(&mut self, step: usize) -> Option<()> {
        self.use_operands(step);
        self.keep_truths()?;
        self.truths = Some(Feed::Step(step));
        Some(())
    }

    /// Puts the truth values aside if they are used later: in a register, where that is free.
    fn keep_truths(&mut self) -> Option<()> {
        match self.truths {
            Some(value) if self.waiting.is_none() && self.is_used_later(value) => {
                self.waiting = self.truths;
                self.call(chain::wait(), At::Nowhere)
            }
            truths => self.keep(truths),
        }
    }

    fn use_operands(&mut self, step: usize) {
        let steps = self.steps;
        for &(feed, _) in steps[step].part.iter().flat_map(|part| &part.feeds) {
            if let Feed::Step(used) = feed {
                self.uses[used] -= 1;
            }
        }
    }

    /// Frees the places of values that nobody uses any more.
    fn forget(&mut self) {
        let uses = &self.uses;
        for place in self.aside.iter_mut().chain([&mut self.waiting]) {
            place.take_if(|feed| matches!(feed, Feed::Step(step) if uses[*step] == 0));
        }
    }
}
