//! Finds the outputs that may be written over an input.

use super::group::ShapedGroup;
use crate::plan::{
    Access, Base, Dest, InPlacePorts, Instr, LoopNest, Operand, Phase, StepId, StepSet, ValueId,
};

/// The pairs of an input and an output that may share one buffer: they have one shape, layout and element
/// size, each access to the input goes along as that to the output does, and nothing reads the input once the
/// output is being written, except the step that writes it, element for element.
pub(in crate::compile) fn pairs(
    phases: &[Phase],
    group: &ShapedGroup,
    ports: &[&[i64]],
) -> Vec<InPlacePorts> {
    let inputs = group.inputs;
    let mut pairs = Vec::new();
    for (index, phase) in phases.iter().enumerate() {
        let nests = phase.nests();
        for (place, nest) in nests.iter().enumerate() {
            for root in 0..nest.program.roots.len() {
                let Some(port) = written(nest, nest.program.roots[root]) else { continue };
                let result = &group.values[group.outputs[port - inputs]];
                for input in 0..inputs {
                    let value = &group.values[ValueId(input)];
                    let is_alike = value.dims == result.dims
                        && ports[input] == ports[port]
                        && value.data_type.size() == result.data_type.size();
                    let is_read_elsewhere = || {
                        phase.driver_reads(input)
                            || (nests.iter().enumerate())
                                .any(|(other, nest)| other != place && is_read_in(nest, input))
                            || phases[index + 1..].iter().any(|later| {
                                later.driver_reads(input)
                                    || later.nests().iter().any(|nest| is_read_in(nest, input))
                            })
                    };
                    // An output that several nests write may be read before all of it is written.
                    let is_whole = || {
                        phases.iter().flat_map(Phase::nests).filter(|nest| writes(nest, port)).count() == 1
                    };
                    let is_safe = || goes_along(nest, input, port) && is_whole();
                    if is_alike && is_read_before(nest, root, input) && !is_read_elsewhere() && is_safe() {
                        pairs.push((port, input));
                    }
                }
            }
        }
    }
    // By output, then by input; a sort of plain numbers shares its code with others.
    pairs.sort_unstable();
    pairs.into_iter().map(|(output, input)| InPlacePorts { input, output }).collect()
}

/// True if a step of a nest reads an input.
fn is_read_in(nest: &LoopNest, input: usize) -> bool {
    nest.program.steps.iter().any(|step| reads(nest, &step.instr, input))
}

/// The port that a step writes.
fn written(nest: &LoopNest, step: StepId) -> Option<usize> {
    match nest.program.steps[step].to {
        Dest::Access(access) => match nest.program.accesses[access].base {
            Base::Port(port) => Some(port),
            Base::Buffer(_) | Base::Constant(_) | Base::Index | Base::Driver(_) => None,
        },
        Dest::Scratch(..) => None,
    }
}

fn writes(nest: &LoopNest, port: usize) -> bool {
    nest.program.roots.iter().any(|&root| written(nest, root) == Some(port))
}

/// True if all accesses to an input are at the element of the output that a nest writes next.
fn goes_along(nest: &LoopNest, input: usize, output: usize) -> bool {
    let of_port = |port: usize| {
        let accesses = nest.program.accesses.iter().enumerate();
        accesses.filter(move |(_, access)| access.base == Base::Port(port))
    };
    let is_same = |(a, access): (usize, &Access), (b, other): (usize, &Access)| {
        let strides = |access: &Access| (access.offset, access.row_stride, access.col_stride);
        strides(access) == strides(other) && nest.loops.iter().all(|l| l.strides[a] == l.strides[b])
    };
    of_port(output).all(|output| of_port(input).all(|input| is_same(input, output)))
}

/// True if a step reads an input, and no step reads it in a tile after the step of a root has written.
fn is_read_before(nest: &LoopNest, root: usize, input: usize) -> bool {
    let writer = nest.program.roots[root];
    let (mut is_read, mut is_written) = (false, false);
    for (order, &first) in nest.program.roots.iter().enumerate() {
        let transitive_deps = transitive_deps(nest, first, &nest.program.roots[..order]);
        let readers: Vec<StepId> = StepId::all(nest.program.steps.len())
            .filter(|&step| {
                transitive_deps.contains(step) && reads(nest, &nest.program.steps[step].instr, input)
            })
            .collect();
        is_read |= !readers.is_empty();
        // If an earlier root needs the writer, the writer runs before others that this root needs, and before
        // all later ones.
        is_written |= transitive_deps.contains(writer);
        let is_safe = order == root || !is_written || readers.iter().all(|&reader| reader == writer);
        if !is_safe {
            return false;
        }
    }
    // An input that a select reads as its condition is no branch that the result could replace.
    let is_only_condition = match &nest.program.steps[writer].instr {
        Instr::Select(select) => {
            let [is_cond, is_then, is_else] = [select.cond, select.then.operand, select.else_.operand]
                .map(|operand| is_input(nest, operand, input));
            is_cond && !is_then && !is_else
        }
        _ => false,
    };
    is_read && !is_only_condition
}

/// The steps that a root may run, given the roots that ran before it.
fn transitive_deps(nest: &LoopNest, root: StepId, earlier: &[StepId]) -> StepSet {
    let mut transitive_deps = StepSet::none_of(nest.program.steps.len());
    let mut open = vec![root];
    while let Some(step) = open.pop() {
        if transitive_deps.insert(step) {
            open.extend(nest.program.steps[step].instr.deps().filter(|used| !earlier.contains(used)));
        }
    }
    transitive_deps
}

fn reads(nest: &LoopNest, instr: &Instr, input: usize) -> bool {
    instr.operands().into_iter().any(|operand| is_input(nest, operand, input))
}

fn is_input(nest: &LoopNest, operand: Operand, input: usize) -> bool {
    matches!(operand, Operand::Access(access) if nest.program.accesses[access].base == Base::Port(input))
}
