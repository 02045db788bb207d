//! Lowers a partition of pointwise ops to a plan.

use rustc_hash::FxHashMap;

use super::draft::{Draft, Operand};
use super::group::Group;
use super::in_place;
use super::kernel;
use super::nest::{self, Root};
use super::output_strides;
use super::tile;
use crate::error::{CompileFault, Error, Result};
use crate::graph::function::Function;
use crate::graph::logical_tensor::LogicalTensor;
use crate::kernels::Stores;
use crate::kernels::caches::caches;
use crate::partition::Partition;
use crate::plan::task::Task;
use crate::plan::{Base, PARALLEL_BYTES, Plan};
use crate::types::kind::Level;
use crate::types::shape::{self, Dims};

/// Whether results go past the caches: always where the operands do not fit the last level, of which one thread alone has
/// the use of half, or of three quarters where most of what is moved is the result, and several of seven eighths; and where
/// they do, if the result is less than three sevenths of what is moved, and that is more than the second level holds by far,
/// or with several threads than three quarters of the last. The result then leaves the cache to the inputs.
///
/// On a Zen 4 with 32 MiB, a select of [1024, 1024] moved 1.15 times the bytes a second past the caches. On one thread,
/// selects that read one branch or none took 1.1 to 2.4 times as long past the caches where they moved 10 to 16 MB, the same
/// at 18 and 0.65 at 28; on two, twice as long at 20, 1.3 times at 28, and 0.65 to 1.1 at 33. A select of two scalars, 21 MB
/// of which are the result by four fifths, took 1.4 times as long there and on a Zen 5. On two threads of a Zen 5, selects that
/// read two operands took 1.2 to 1.9 times as long past the caches from 9 to 21 MB, and 0.75 at 29.
fn stores(moved: usize, result: usize, is_alone: bool) -> Stores {
    let caches = caches();
    let own = match is_alone {
        true if result > moved / 2 => caches.last_level / 4 * 3,
        true => caches.last_level / 2,
        false => caches.last_level / 8 * 7,
    };
    let enough = if is_alone { 3 * caches.second_level } else { caches.last_level / 4 * 3 };
    let inputs_stay = moved > enough && result < moved / 7 * 3;
    if moved <= own && !inputs_stay { Stores::Ordinary } else { Stores::Streaming }
}

/// Whether memory is asked for what a spared branch reads before that is read: where it comes from beyond the caches, of
/// which others may hold much, and arithmetic leaves memory idle. On a Zen 4, where a verdict spared one row in three, a
/// gated GELU and a chain of twelve ops took 0.89 to 0.93 of their time with this tile's share, and 0.92 to 0.97 of that
/// with the next one's, from 12 MB on; at 6 MB they took 1.05. A select with a bias, which memory binds, took twice its time.
fn asks(moved: usize, cost: usize) -> bool {
    moved > caches().last_level / 4 && cost > moved
}

/// The plan of a partition for concrete inputs, for one thread or for more.
pub(super) fn plan(
    partition: &Partition,
    inputs: &[&LogicalTensor],
    outputs: &[&LogicalTensor],
    level: Level,
    is_alone: bool,
) -> Result<Plan> {
    let refuse = |fault| Error::Compile { partition: partition.id(), fault };
    let group = Group::new(partition, inputs, outputs)?;
    let models = models(&group, inputs);
    let mut settled = Vec::with_capacity(outputs.len());
    for (&output, &value) in outputs.iter().zip(&group.outputs) {
        let dims = &group.values[value].dims;
        let strides = output_strides(output, dims, &models).map_err(refuse)?;
        settled.push((dims.clone(), strides));
    }
    let in_strides = inputs.iter().map(|input| input.strides().unwrap_or_default());
    let ports: Vec<&[i64]> = in_strides.chain(settled.iter().map(|(_, strides)| &strides[..])).collect();

    let drafts = drafts(&group, &ports);
    let bytes_moved = bytes_moved(&drafts);
    let result = group.outputs.iter().map(|&value| group.values[value].bytes()).sum();
    let moved = if reads_one_branch(&drafts) { (bytes_moved + result) / 2 } else { bytes_moved };
    // What is not worth waking workers for is moved by one thread.
    let stores = stores(moved, result, is_alone || bytes_moved < PARALLEL_BYTES);

    let mut plan = Plan {
        sizes: sizes(&group, &ports),
        in_place: Vec::new(),
        nests: Vec::with_capacity(drafts.len()),
        constants: drafts.iter().flat_map(|drafted| &drafted.draft.constants).copied().collect(),
        scratch: 0,
        bytes_moved,
        effort: bytes_moved,
        computes_floats: drafts
            .iter()
            .flat_map(|d| &d.draft.nodes)
            .any(|node| kernel::computes_floats(node.task)),
        stores,
        outputs: Vec::new(),
    };
    let mut cost = 0usize;
    for (index, drafted) in drafts.iter().enumerate() {
        let is_read_later = |root: &Root| {
            let base = drafted.draft.paths[root.path].base;
            drafts[index + 1..].iter().any(|later| later.draft.paths.iter().any(|path| path.base == base))
        };
        let roots: Vec<Root> = drafted
            .roots
            .iter()
            .map(|&(path, value)| {
                let root = Root { path, value, stores: Stores::Ordinary };
                if is_read_later(&root) { root } else { Root { stores, ..root } }
            })
            .collect();
        let unsupported =
            || refuse(CompileFault::Unsupported("no kernel runs an op on its types".to_owned()));
        let made = nest::nest(&drafted.draft, &roots, level, bytes_moved).ok_or_else(unsupported)?;
        plan.scratch = plan.scratch.max(made.scratch);
        cost = cost.saturating_add(made.cost);
        plan.nests.push(made.nest);
    }
    plan.effort = bytes_moved.max(cost);
    if asks(bytes_moved, cost) {
        for (nest, Drafted { draft, .. }) in plan.nests.iter_mut().zip(&drafts) {
            nest.sudden = tile::sudden(draft, nest);
        }
    }
    plan.in_place = in_place::pairs(&plan.nests, &group, &ports);
    plan.outputs = settled;
    Ok(plan)
}

/// The inputs after whose layout outputs are laid out, if they have their shape: of a select alone its branches.
fn models<'a>(group: &Group, inputs: &[&'a LogicalTensor]) -> Vec<&'a LogicalTensor> {
    let results = &group.values[inputs.len()..];
    match results {
        [value] => match &value.made {
            Some(made) if made.pointwise.function == Function::Select => {
                made.operands[1..].iter().map(|&(value, _)| inputs[value]).collect()
            }
            _ => inputs.to_vec(),
        },
        _ => inputs.to_vec(),
    }
}

/// A draft, its index space, and its outputs: the path of each, and what is written there.
struct Drafted<'a> {
    draft: Draft<'a>,
    roots: Vec<(usize, Operand)>,
}

/// One draft for each shape that outputs have, small shapes first, so that others can read what those write.
fn drafts<'a>(group: &'a Group, ports: &'a [&'a [i64]]) -> Vec<Drafted<'a>> {
    // Values with the outputs that they are.
    let mut by_shape: FxHashMap<&Dims, Vec<(usize, usize)>> = FxHashMap::default();
    for (output, &value) in group.outputs.iter().enumerate() {
        by_shape.entry(&group.values[value].dims).or_default().push((value, output));
    }
    let mut shapes: Vec<(&Dims, Vec<(usize, usize)>)> =
        by_shape.into_iter().filter(|(dims, _)| !dims.contains(&0)).collect();
    shapes.sort_unstable_by_key(|(dims, outputs)| (shape::element_count(dims), outputs[0].1));

    let mut written = vec![None; group.values.len()];
    let mut constants = 0;
    let mut drafts = Vec::with_capacity(shapes.len());
    for (dims, mut outputs) in shapes {
        let mut draft = Draft::new(group, ports, written.clone(), dims, constants);
        // What others are made from comes first.
        outputs.sort_unstable();
        let mut roots = Vec::with_capacity(outputs.len());
        for &(value, output) in &outputs {
            let value = draft.raw(value, 0);
            roots.push((draft.walk_output(output), value));
        }
        outputs.iter().for_each(|&(value, output)| written[value] = Some(output));
        constants += draft.constants.len();
        drafts.push(Drafted { draft, roots });
    }
    drafts
}

/// Bytes from the first to the last element of each port; 0 of inputs whose data nobody uses.
fn sizes(group: &Group, ports: &[&[i64]]) -> Vec<usize> {
    // A value whose shape alone is used is never computed, and needs nothing.
    let mut is_used = vec![false; group.values.len()];
    group.outputs.iter().for_each(|&output| is_used[output] = true);
    for (value, made) in group.values.iter().enumerate().rev() {
        if let Some(made) = made.made.as_ref().filter(|_| is_used[value]) {
            made.operands.iter().for_each(|&(operand, _)| is_used[operand] = true);
        }
    }
    let inputs = 0..ports.len() - group.outputs.len();
    let values =
        inputs.map(|value| (value, is_used[value])).chain(group.outputs.iter().map(|&value| (value, true)));
    let size = |((value, is_used), strides): ((usize, bool), &&[i64])| {
        let value = &group.values[value];
        let span = shape::span(&value.dims, strides).unwrap_or(0) as usize;
        if is_used { span * value.data_type.size().unwrap_or(0) } else { 0 }
    };
    values.zip(ports).map(size).collect()
}

/// Bytes of the distinct elements of all ports.
fn bytes_moved(drafts: &[Drafted<'_>]) -> usize {
    let mut of_port: FxHashMap<usize, usize> = FxHashMap::default();
    for Drafted { draft, .. } in drafts {
        for path in &draft.paths {
            let Base::Port(port) = path.base else { continue };
            let walked = draft.dims.iter().zip(&path.strides).filter(|&(_, &stride)| stride != 0);
            let bytes = walked.map(|(&dim, _)| dim as usize).product::<usize>() * path.width.bytes();
            let most = of_port.entry(port).or_default();
            *most = bytes.max(*most);
        }
    }
    of_port.values().sum()
}

/// Whether a condition that does not vary along the innermost dim leaves one branch of each row of a result unread.
fn reads_one_branch(drafts: &[Drafted<'_>]) -> bool {
    drafts.iter().any(|Drafted { draft, roots, .. }| {
        roots.iter().any(|&(path, value)| {
            let strides = &draft.paths[path].strides;
            let innermost =
                (0..strides.len()).filter(|&axis| strides[axis] != 0).min_by_key(|&axis| strides[axis]);
            match (value, innermost) {
                (Operand::Node(node), Some(axis)) if draft.nodes[node].task == Task::Select => {
                    draft.varies(draft.nodes[node].operands[0]) & 1 << axis == 0
                }
                _ => false,
            }
        })
    })
}
