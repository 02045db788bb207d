//! The kernels of steps, and what they cost.

use smallvec::SmallVec;

use super::chain::Verb;
use crate::kernels::pointwise::{Kernel1, Kernel2, Params, Ways};
use crate::kernels::select::{self, Ahead};
use crate::kernels::{Inner, Stores, Width, chain, pointwise};
use crate::plan::task::Task;
use crate::plan::{Branch, Feed, Select, Work};
use crate::types::function::{Binary, Unary};
use crate::types::kind::Level;

/// The operands of a step, and how each runs along a row.
pub(super) type Feeds = SmallVec<[(Feed, Inner); 3]>;

/// What an element takes to be copied, or to be gathered from or scattered to where it is not dense.
pub(super) const COPY_COST: usize = 1;
pub(super) const GATHER_COST: usize = 4;

/// The work of a task on operands; and what it does as a part of a chain, if it can be one; `None`
/// where there is no kernel for its types. `input` says which input of the partition an operand is, `ahead` how many bytes
/// before it is read it is asked for.
pub(super) fn work(
    task: Task,
    width: Width,
    feeds: &Feeds,
    level: Level,
    stores: Stores,
    input: impl Fn(Feed) -> Option<usize>,
    ahead: impl Fn(Feed) -> isize,
) -> Option<(Work, Option<Verb>)> {
    let runs = |operand: usize| feeds[operand].1;
    let one = |ways: Ways<Kernel1>, params| Work::One { x: feeds[0].0, kernel: ways.kernel, params };
    let two =
        |ways: Ways<Kernel2>, params| Work::Two { x: feeds[0].0, y: feeds[1].0, kernel: ways.kernel, params };
    let number = |ways: Ways<Kernel1>, params: Params| {
        let Ways { gives_any_nan, .. } = ways;
        (one(ways, params), ways.stage.map(|stage| Verb::Number1 { stage, params, gives_any_nan }))
    };
    Some(match task {
        Task::Unary(function, params) => number(pointwise::unary(level, function), params),
        Task::Binary(function, params, of) => {
            let ways = pointwise::binary(level, function, of, runs(0), runs(1))?;
            let (commutes, gives_any_nan) = (function.commutes(), ways.gives_any_nan);
            let verb = |stage| Verb::Number2 { stage, params, commutes, gives_any_nan };
            (two(ways, params), ways.stage.map(verb))
        }
        Task::Compare(comparison, of) => {
            let (ways, turned) = pointwise::compare(level, comparison, of, runs(0), runs(1))?;
            let verb = ways.stage.zip(turned).map(|(stage, turned)| Verb::Truth2 { stage, turned });
            (two(ways, NO_PARAMS), verb)
        }
        Task::Logic(logic) => {
            let ways = pointwise::logic(level, logic, runs(0), runs(1));
            let of_both = chain::logic_of_both(logic)[level as usize];
            let verb = ways.stage.zip(of_both).map(|(stage, of_both)| Verb::Logic { stage, of_both });
            (two(ways, NO_PARAMS), verb)
        }
        Task::Not => {
            let ways = pointwise::not(level);
            (one(ways, NO_PARAMS), ways.stage.map(Verb::Not))
        }
        Task::Classify(class, of) => {
            let ways = pointwise::classify(level, class, of)?;
            (one(ways, NO_PARAMS), ways.stage.map(|stage| Verb::Truth1(stage, NO_PARAMS)))
        }
        Task::Sign(sign) => {
            let ways = pointwise::sign(level, width, sign);
            (one(ways, NO_PARAMS), ways.stage.map(Verb::Bits))
        }
        Task::Convert(from, to) => number(pointwise::convert(level, from, to)?, NO_PARAMS),
        Task::Round(to) => number(pointwise::round_to(level, to)?, NO_PARAMS),
        Task::Index => match feeds[0].0 {
            Feed::Walk(walk) => (Work::Index { walk, kernel: pointwise::indices(level) }, None),
            Feed::Step(_) => return None,
        },
        Task::Select => {
            let stages = [true, false].map(|taken| chain::choose(width, taken)[level as usize]);
            let verb = match stages {
                [Some(if_true), Some(if_false)] => Some(Verb::Select { if_true, if_false }),
                _ => None,
            };
            (Work::Select(chosen(width, feeds, level, stores, input, ahead)), verb)
        }
    })
}

/// Of functions that have none.
pub(super) const NO_PARAMS: Params = [0.0; 2];

fn chosen(
    width: Width,
    feeds: &Feeds,
    level: Level,
    stores: Stores,
    input: impl Fn(Feed) -> Option<usize>,
    ahead: impl Fn(Feed) -> isize,
) -> Select {
    const COND: usize = 0;
    const THEN: usize = 1;
    const ELSE: usize = 2;
    let runs = |operand: usize| feeds[operand].1;
    let branch = |own: usize, other: usize| Branch {
        feed: feeds[own].0,
        copy: select::copy(level, width, runs(own), stores),
        copy_in_place: select::copy(level, width, runs(own), Stores::Ordinary),
        // In place of `then`, what the condition says is false is replaced; in place of `else`, what is true.
        take_in_other: select::merge(level, width, own == ELSE, runs(other)),
        in_place_of: input(feeds[own].0),
    };
    let is_dense_memory = |operand: usize| matches!(feeds[operand], (Feed::Walk(_), Inner::Dense));
    let chooses_rows = runs(COND) == Inner::Repeated && is_dense_memory(THEN) && is_dense_memory(ELSE);
    let is_made = |operand: usize| matches!(feeds[operand].0, Feed::Step(_));
    Select {
        cond: feeds[COND].0,
        cond_inner: runs(COND),
        then: branch(THEN, ELSE),
        else_: branch(ELSE, THEN),
        judge: (is_made(THEN) || is_made(ELSE)).then(|| select::judge(level)),
        blend: select::blend(level, width, runs(THEN), runs(ELSE), stores),
        stores,
        ahead: Ahead { then: ahead(feeds[THEN].0), else_: ahead(feeds[ELSE].0) },
        blend_rows: chooses_rows.then(|| select::blend_rows(level, width, stores)),
    }
}

/// How long a task takes for an element whose operands are in the first-level cache, in bytes that could be moved
/// meanwhile.
pub(super) fn cost(task: Task) -> usize {
    match task {
        Task::Unary(function, _) => match function {
            Unary::Clamp
            | Unary::LeakyRelu
            | Unary::Relu
            | Unary::Round
            | Unary::Square
            | Unary::Floor
            | Unary::Ceil => 1,
            Unary::HardSigmoid | Unary::HardSwish | Unary::Reciprocal | Unary::Sqrt => 4,
            _ => 16,
        },
        Task::Binary(function, ..) => match function {
            Binary::EluBackward
            | Binary::GeluErfBackward
            | Binary::GeluTanhBackward
            | Binary::MishBackward
            | Binary::SigmoidBackward
            | Binary::SoftPlusBackward
            | Binary::TanhBackward => 16,
            Binary::Divide
            | Binary::SqrtBackward
            | Binary::SqrtBackwardOfResult
            | Binary::HardSigmoidBackward
            | Binary::HardSwishBackward => 4,
            _ => 1,
        },
        _ => 1,
    }
}

/// Whether a task depends on how the thread rounds.
pub(super) fn computes_floats(task: Task) -> bool {
    matches!(
        task,
        Task::Unary(..)
            | Task::Binary(..)
            | Task::Compare(..)
            | Task::Classify(..)
            | Task::Convert(..)
            | Task::Round(_)
    )
}
