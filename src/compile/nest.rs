//! From a draft to a nest: loops, kernels, tiles, and who waits for whom.

use smallvec::{SmallVec, smallvec};

use super::chain::{self, Part, Verb};
use super::draft::{Axes, Draft, Operand};
use super::kernel::{self, Feeds};
use super::tile;
use crate::kernels::caches::caches;
use crate::kernels::{Inner, Stores, Width, pack, select};
use crate::plan::loops::{Loop, Role, Steps, normalise};
use crate::plan::task::{Deed, Task};
use crate::plan::{Feed, Nest, StepSpace, Sweep, Work};
use crate::types::kind::Level;
use crate::types::shape;

/// How many bytes before it is read something is asked for. On a Zen 5, with half as much, chains took 1.05 to 1.2 times as long,
/// and a select of runs of 1,000 elements 1.2 times; selects without runs took 0.96. With one and a half times as much,
/// chains were level.
const AHEAD: usize = 8192;

/// How many columns before it is read a column of a transposed operand is asked for: one of bytes, and one of wider elements. On
/// a Zen 5, bytes took 1.1 times as long with 16, others up to 1.1 times with 8 and with 32.
const COLUMNS_AHEAD: [isize; 2] = [32, 16];

/// An output of a nest.
pub(super) struct Root {
    /// Its path.
    pub(super) path: usize,
    /// What is written there.
    pub(super) value: Operand,
    pub(super) stores: Stores,
}

/// A step whose place in scratch is still open.
pub(super) struct Draught {
    /// What it does; see [`Step::deeds`](crate::plan::Step::deeds).
    pub(super) deeds: SmallVec<[Deed; 1]>,
    pub(super) work: Work,
    /// The walk of the port to which it writes; scratch where there is none.
    pub(super) port: Option<usize>,
    pub(super) width: Width,
    pub(super) space: StepSpace,
    pub(super) sweep: Sweep,
    /// The loops along which its result varies; see [`Walked::varies`].
    pub(super) varies: u32,
    /// How long an element takes, in bytes that could be moved meanwhile.
    pub(super) cost: usize,
    /// How the result is stored.
    pub(super) stores: Stores,
    /// The step as a part of a chain, if it can be one.
    pub(super) part: Option<Part>,
}

impl Draught {
    /// Whether it makes an operand dense, or the dense result what the output is: tiles are short pieces of rows then.
    pub(super) fn packs(&self) -> bool {
        matches!(self.work, Work::Gather { .. } | Work::Scatter { .. })
    }
}

/// The loops of a nest, and what runs along each.
pub(super) struct Walked {
    /// All but the two innermost ones.
    pub(super) outer: SmallVec<[Loop; 4]>,
    pub(super) rows: Loop,
    pub(super) columns: Loop,
    paths: usize,
    masks: SmallVec<[Axes; 4]>,
}

impl Walked {
    /// Makes as few loops as paths and steps allow, the first root's path innermost along its memory.
    fn new(draft: &Draft<'_>, roots: &[Root]) -> Self {
        let dims = draft.dims;
        let result = &draft.paths[roots[0].path].strides;
        let order =
            shape::memory_order(dims, &result.iter().map(|&stride| stride as i64).collect::<Vec<_>>());
        let mut masks: SmallVec<[Axes; 4]> = SmallVec::new();
        for node in &draft.nodes {
            if !masks.contains(&node.varies) {
                masks.push(node.varies);
            }
        }
        // Results of steps have no strides yet; with these, no loop along which one varies merges with one along which
        // it does not.
        let strides_of = |mask: Axes| {
            let varying: SmallVec<[i64; 6]> =
                (0..dims.len()).map(|axis| if mask & 1 << axis == 0 { 1 } else { dims[axis] }).collect();
            let strides = shape::dense_strides(&varying, &order).unwrap_or_default();
            let of_axis =
                |(axis, stride): (usize, i64)| if mask & 1 << axis == 0 { 0 } else { stride as isize };
            strides.into_iter().enumerate().map(of_axis).collect::<SmallVec<[isize; 6]>>()
        };
        let of_masks: Vec<SmallVec<[isize; 6]>> = masks.iter().map(|&mask| strides_of(mask)).collect();
        let loops = (0..dims.len()).map(|axis| Loop {
            extent: dims[axis] as usize,
            steps: draft
                .paths
                .iter()
                .map(|path| path.strides[axis])
                .chain(of_masks.iter().map(|s| s[axis]))
                .collect(),
            role: Role::Spatial,
            pinned: false,
        });
        let mut outer = normalise(loops, roots[0].path);
        let once = |steps: Steps| Loop { extent: 1, steps, role: Role::Spatial, pinned: false };
        let widths = draft.paths.iter().map(|path| path.width.bytes() as isize);
        let columns = outer.pop().unwrap_or_else(|| once(widths.chain(masks.iter().map(|_| 0)).collect()));
        let rows = outer.pop().unwrap_or_else(|| once(Steps::from_elem(0, columns.steps.len())));
        Self { outer, rows, columns, paths: draft.paths.len(), masks }
    }

    /// The bits of the row and the column loop behind those of the outer loops.
    pub(super) fn row_bit(&self) -> u32 {
        1 << self.outer.len()
    }

    pub(super) fn column_bit(&self) -> u32 {
        2 << self.outer.len()
    }

    fn loops(&self) -> impl DoubleEndedIterator<Item = &Loop> {
        self.outer.iter().chain([&self.rows, &self.columns])
    }

    /// The loops along which something moves, one bit each: those outside of tiles, rows, columns.
    fn varies(&self, steps_at: usize) -> u32 {
        let moving = self.loops().enumerate().filter(|(_, l)| l.extent > 1 && l.steps[steps_at] != 0);
        moving.fold(0, |bits, (bit, _)| bits | 1 << bit)
    }

    fn node_varies(&self, varies: Axes) -> u32 {
        let mask = self.masks.iter().position(|&mask| mask == varies);
        mask.map_or(0, |mask| self.varies(self.paths + mask))
    }

    /// All loops that turn.
    fn all(&self) -> u32 {
        let turning = self.loops().enumerate().filter(|(_, l)| l.extent > 1);
        turning.fold(0, |bits, (bit, _)| bits | 1 << bit)
    }

    /// How many bytes before it is read an operand in memory is asked for; 0 where it is in the caches by then: where it is no
    /// operand in memory, or where so little of it is walked before it is come back to that the second level keeps that.
    ///
    /// Beyond the caches of a Zen 5, to ask took selects of two branches 0.8 of their time and selects with a scalar 0.5 to 0.75,
    /// and where the second level held a branch 1.07. With transposed and channels-last operands, what lies that far on in a
    /// row is some tiles away: to ask for the next row instead, where the nest packs, took 0.8 to 1.0 of the time.
    pub(super) fn ahead(&self, draft: &Draft<'_>, packs: bool, feed: Feed) -> isize {
        let Feed::Walk(path) = feed else { return 0 };
        let is_repeated = |l: &Loop| l.extent > 1 && l.steps[path] == 0;
        let between = self.loops().rev().take_while(|l| !is_repeated(l)).map(|l| l.extent);
        let width = draft.paths[path].width.bytes();
        let bytes = between.fold(width, usize::saturating_mul);
        if self.loops().any(is_repeated) && bytes <= caches().second_level / 2 {
            return 0;
        }
        // Of short rows, which may lie apart, a later one is asked for.
        let rows = match AHEAD.div_ceil(self.columns.extent.saturating_mul(width).max(1)) {
            _ if packs => 1,
            1 => return AHEAD as isize,
            rows => rows as isize,
        };
        self.rows.steps[path].saturating_mul(rows)
    }

    fn space(&self, varies: u32) -> StepSpace {
        let columns = varies & self.column_bit() != 0 || self.columns.extent == 1;
        StepSpace {
            rows: varies & self.row_bit() != 0 || self.rows.extent == 1,
            columns: if columns { Inner::Dense } else { Inner::Repeated },
        }
    }
}

/// A nest, the scratch that it needs, and what all its elements cost.
pub(super) struct Made {
    pub(super) nest: Nest,
    pub(super) scratch: usize,
    pub(super) cost: usize,
}

/// Makes the nest of a draft, in a plan that moves so many bytes; `None` where there is no kernel for some types.
pub(super) fn nest(draft: &Draft<'_>, roots: &[Root], level: Level, bytes_moved: usize) -> Option<Made> {
    let walked = Walked::new(draft, roots);
    // Not what the roots' stores say: results may go past the caches to leave those to the operands.
    let is_cached = bytes_moved <= caches().last_level / 4 * 3;
    let mut builder = Builder {
        draft,
        walked: &walked,
        level,
        roots,
        is_cached,
        steps: Vec::new(),
        of_node: vec![None; draft.nodes.len()],
        gathered: Vec::new(),
    };
    let roots = roots.iter().map(|root| builder.root(root)).collect::<Option<SmallVec<[usize; 2]>>>()?;
    let Builder { steps, .. } = builder;
    // Two steps in a chain have to spare more than a walk through the caches. On a Zen 5, pairs took 0.75 to 0.95 of their time
    // for being left as they are where all operands are in the first two levels or little more: a sum under a mask 0.81 at
    // 1.2 times the second level and 0.93 at twice that, a guard of sums 1.07 at 1.3 times.
    let is_short = steps.len() <= 2 && bytes_moved <= caches().second_level / 4 * 5;
    // Half, as others use the last level as well. Of groups that move 14 to 25 MB, a clamp's gradient took 0.78 of its time on a
    // Zen 5 where nothing was asked for, Swin's selects 1.38.
    let is_far = bytes_moved > caches().last_level / 2;
    let (steps, roots) = match is_short {
        true => (steps, roots),
        false => chain::chained(draft, &walked, steps, roots, level, is_far),
    };
    Some(tile::nest(draft, &walked, steps, roots, is_cached))
}

struct Builder<'a> {
    draft: &'a Draft<'a>,
    walked: &'a Walked,
    level: Level,
    roots: &'a [Root],
    /// Whether the caches hold all that the plan moves.
    is_cached: bool,
    /// The steps so far, in the order in which they run where none is skipped.
    steps: Vec<Draught>,
    /// The step of each node that has one by now.
    of_node: Vec<Option<usize>>,
    /// Paths that are made dense, and the steps that do it.
    gathered: Vec<(usize, usize)>,
}

impl Builder<'_> {
    /// How a path runs along a row; nothing where it has to be gathered.
    fn inner(&self, path: usize) -> Option<Inner> {
        let width = self.draft.paths[path].width.bytes() as isize;
        match self.walked.columns.steps[path] {
            _ if self.walked.columns.extent == 1 => Some(Inner::Dense),
            0 => Some(Inner::Repeated),
            step if step == width => Some(Inner::Dense),
            _ => None,
        }
    }

    /// Where an operand is found, and how it runs along a row.
    fn feed(&mut self, operand: Operand) -> Option<(Feed, Inner)> {
        Some(match operand {
            Operand::Node(node) => {
                let step = self.of_node[node]?;
                (Feed::Step(step), self.steps[step].space.columns)
            }
            Operand::Path(path) => match self.inner(path) {
                Some(inner) => (Feed::Walk(path), inner),
                None => (Feed::Step(self.gather(path)), Inner::Dense),
            },
        })
    }

    /// How an operand of one element a row runs from row to row; nothing where there are gaps.
    fn down(&self, feed: Feed) -> Option<Inner> {
        match feed {
            Feed::Step(step) => {
                Some(if self.steps[step].space.rows { Inner::Dense } else { Inner::Repeated })
            }
            Feed::Walk(path) => match self.walked.rows.steps[path] {
                0 => Some(Inner::Repeated),
                pitch if pitch == self.draft.paths[path].width.bytes() as isize => Some(Inner::Dense),
                _ => None,
            },
        }
    }

    fn gather(&mut self, path: usize) -> usize {
        if let Some(&(_, step)) = self.gathered.iter().find(|(gathered, _)| *gathered == path) {
            return step;
        }
        let width = self.draft.paths[path].width;
        let [of_bytes, of_others] = COLUMNS_AHEAD;
        let columns_ahead = match width {
            _ if self.is_cached => 0,
            Width::W1 => of_bytes,
            _ => of_others,
        };
        let ahead = self.walked.columns.steps[path].saturating_mul(columns_ahead);
        let work = Work::Gather { from: path, ahead, kernel: pack::gather(self.level, width) };
        let step = self.push(Deed::Gather, work, width, self.walked.varies(path), kernel::GATHER_COST);
        self.gathered.push((path, step));
        step
    }

    fn push(&mut self, deed: Deed, work: Work, width: Width, varies: u32, cost: usize) -> usize {
        let (deeds, space) = (smallvec![deed], self.walked.space(varies));
        let (sweep, stores) = (Sweep::Rows, Stores::Ordinary);
        self.steps.push(Draught {
            deeds,
            work,
            port: None,
            width,
            space,
            sweep,
            varies,
            cost,
            stores,
            part: None,
        });
        self.steps.len() - 1
    }

    /// Makes the step of a node, if that has none, behind those of its operands.
    fn node(&mut self, index: usize) -> Option<()> {
        let mut open = vec![index];
        while let Some(&node) = open.last() {
            if self.of_node[node].is_none() {
                if let Some(operand) = self.missing(node) {
                    open.push(operand);
                    continue;
                }
                self.make_node(node)?;
            }
            open.pop();
        }
        Some(())
    }

    /// The first operand of a node that has no step yet; those before it that have to be gathered are.
    fn missing(&mut self, index: usize) -> Option<usize> {
        let draft = self.draft;
        let node = &draft.nodes[index];
        node.operands.iter().find_map(|&operand| match operand {
            Operand::Node(node) => self.of_node[node].is_none().then_some(node),
            Operand::Path(path) => {
                if node.task != Task::Index && self.inner(path).is_none() {
                    self.gather(path);
                }
                None
            }
        })
    }

    /// Makes the step of a node whose operands have theirs.
    fn make_node(&mut self, index: usize) -> Option<()> {
        let node = &self.draft.nodes[index];
        let varies = self.walked.node_varies(node.varies);
        let is_index = node.task == Task::Index;
        let feeds: Feeds = match node.operands[..] {
            [Operand::Path(path)] if is_index => [(Feed::Walk(path), Inner::Dense)].as_slice().into(),
            _ => node.operands.iter().map(|&operand| self.feed(operand)).collect::<Option<_>>()?,
        };
        // Where all operands are one element for a whole row, that element is computed alone; or those of all rows as
        // if they were one row, where they lie like one.
        let space = self.walked.space(varies);
        let down =
            || feeds.iter().map(|&(feed, _)| Some((feed, self.down(feed)?))).collect::<Option<Feeds>>();
        let (feeds, sweep) = match space.columns {
            Inner::Dense => (feeds, Sweep::Rows),
            Inner::Repeated => match down().filter(|_| space.rows && !is_index) {
                Some(down) => (down, Sweep::Column),
                None => (feeds.iter().map(|&(feed, _)| (feed, Inner::Dense)).collect(), Sweep::Rows),
            },
        };
        let writes = self.writes(index, varies);
        let stores = writes.map_or(Stores::Ordinary, |root| root.stores);
        let input = |feed: Feed| match feed {
            Feed::Walk(path) => self.draft.paths[path].base.input(self.draft.inputs()),
            Feed::Step(_) => None,
        };
        // Branches come from beyond the caches where results go there.
        let ahead = |feed: Feed| match stores {
            Stores::Ordinary => 0,
            Stores::Streaming => self.walked.ahead(self.draft, self.steps.iter().any(Draught::packs), feed),
        };
        let (work, verb) = kernel::work(node.task, node.width, &feeds, self.level, stores, input, ahead)?;
        let port = writes.map(|root| root.path);
        let step = self.push(Deed::Task(node.task), work, node.width, varies, kernel::cost(node.task));
        self.steps[step].port = port;
        self.steps[step].sweep = sweep;
        self.steps[step].stores = stores;
        self.steps[step].part = verb.map(|verb| Part { verb, feeds });
        self.of_node[index] = Some(step);
        Some(())
    }

    /// The root to which a node can write directly: its result is what the port takes, element for element. What goes
    /// past the caches is written by kernels that can do that, and is read by nobody else.
    fn writes(&self, index: usize, varies: u32) -> Option<&Root> {
        let root = self.roots.iter().find(|root| root.value == Operand::Node(index))?;
        let streams = root.stores == Stores::Streaming;
        let is_read = || self.draft.nodes.iter().any(|node| node.operands.contains(&Operand::Node(index)));
        let can = match self.draft.nodes[index].task {
            Task::Select => !streams || !is_read(),
            _ => !streams,
        };
        let is_whole = varies == self.walked.all() && self.inner(root.path) == Some(Inner::Dense);
        (can && is_whole).then_some(root)
    }

    /// The step that completes an output.
    fn root(&mut self, root: &Root) -> Option<usize> {
        let all = self.walked.all();
        if let Operand::Node(node) = root.value {
            self.node(node)?;
        }
        let (mut feed, mut inner) = self.feed(root.value)?;
        if let Feed::Step(step) = feed
            && self.steps[step].port == Some(root.path)
        {
            return Some(step);
        }
        let width = self.draft.paths[root.path].width;
        let is_strided = self.inner(root.path).is_none();
        let is_dense_step = match feed {
            Feed::Step(step) => self.steps[step].varies == all && self.steps[step].port.is_none(),
            Feed::Walk(_) => false,
        };
        if !is_strided || !is_dense_step {
            let stores = if is_strided { Stores::Ordinary } else { root.stores };
            let work = Work::Move { from: feed, kernel: select::copy(self.level, width, inner, stores) };
            let step = self.push(Deed::Copy, work, width, all, kernel::COPY_COST);
            if !is_strided {
                self.steps[step].port = Some(root.path);
                self.steps[step].stores = stores;
                let feeds = [(feed, inner)].as_slice().into();
                self.steps[step].part = Some(Part { verb: Verb::Same, feeds });
                return Some(step);
            }
            (feed, inner) = (Feed::Step(step), Inner::Dense);
        }
        debug_assert_eq!(inner, Inner::Dense);
        let work = Work::Scatter { from: feed, kernel: pack::scatter(self.level, width) };
        let step = self.push(Deed::Scatter, work, width, all, kernel::GATHER_COST);
        self.steps[step].port = Some(root.path);
        Some(step)
    }
}
