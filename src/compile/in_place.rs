//! Which outputs may be written over which inputs.

use super::group::Group;
use crate::plan::{Base, Feed, Nest, Place, Work};

/// The pairs of an input and an output that may share one buffer: they are of one shape, layout and element size, and
/// nothing reads the input once the output is being written, but for the very step that writes it, element for element.
pub(super) fn pairs(nests: &[Nest], group: &Group, ports: &[&[i64]]) -> Vec<(usize, usize)> {
    let inputs = ports.len() - group.outputs.len();
    let mut pairs = Vec::new();
    for (place, nest) in nests.iter().enumerate() {
        for root in 0..nest.roots.len() {
            let Some(port) = written(nest, nest.roots[root]) else { continue };
            let output = port - inputs;
            let result = &group.values[group.outputs[output]];
            for input in 0..inputs {
                let value = &group.values[input];
                let is_alike = value.dims == result.dims
                    && ports[input] == ports[port]
                    && value.data_type.size() == result.data_type.size();
                let is_read_later = || {
                    nests[place + 1..]
                        .iter()
                        .any(|nest| nest.steps.iter().any(|step| reads(nest, &step.work, input)))
                };
                if is_alike && is_read_before(nest, root, input) && !is_read_later() {
                    pairs.push((output, input));
                }
            }
        }
    }
    pairs.sort_unstable();
    pairs.into_iter().map(|(output, input)| (input, output)).collect()
}

/// The port that a step writes.
fn written(nest: &Nest, step: usize) -> Option<usize> {
    match nest.steps[step].to {
        Place::Port(walk) => match nest.walks[walk].base {
            Base::Port(port) => Some(port),
            Base::Constant(_) | Base::Index => None,
        },
        Place::Scratch(..) => None,
    }
}

/// Whether something reads an input, and nothing does so in a tile once the step of a root has written.
fn is_read_before(nest: &Nest, root: usize, input: usize) -> bool {
    let writer = nest.roots[root];
    let (mut is_read, mut is_written) = (false, false);
    for (order, &first) in nest.roots.iter().enumerate() {
        let pulled = pulled(nest, first, &nest.roots[..order]);
        let readers: Vec<usize> = (0..nest.steps.len())
            .filter(|&step| pulled[step] && reads(nest, &nest.steps[step].work, input))
            .collect();
        is_read |= !readers.is_empty();
        // Pulled by an earlier root, the writer runs before others that this root pulls, and before all later ones.
        is_written |= pulled[writer];
        let is_safe = order == root || !is_written || readers.iter().all(|&reader| reader == writer);
        if !is_safe {
            return false;
        }
    }
    // What a select reads as its condition alone is no branch that the result could replace.
    let is_only_condition = match &nest.steps[writer].work {
        Work::Select(select) => {
            let [is_cond, is_then, is_else] =
                [select.cond, select.then.feed, select.else_.feed].map(|feed| is_input(nest, feed, input));
            is_cond && !is_then && !is_else
        }
        _ => false,
    };
    is_read && !is_only_condition
}

/// The steps that a root may pull once earlier roots have been run.
fn pulled(nest: &Nest, root: usize, earlier: &[usize]) -> Vec<bool> {
    let mut pulled = vec![false; nest.steps.len()];
    let mut open = vec![root];
    while let Some(step) = open.pop() {
        if std::mem::replace(&mut pulled[step], true) {
            continue;
        }
        open.extend(nest.steps[step].work.pulls().filter(|used| !earlier.contains(used)));
    }
    pulled
}

fn reads(nest: &Nest, work: &Work, input: usize) -> bool {
    work.feeds().into_iter().any(|feed| is_input(nest, feed, input))
}

fn is_input(nest: &Nest, feed: Feed, input: usize) -> bool {
    matches!(feed, Feed::Walk(walk) if nest.walks[walk].base == Base::Port(input))
}
