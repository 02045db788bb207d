//! Lowers a partition of pointwise ops to a plan.

use rustc_hash::FxHashMap;

use super::expr::{ExprGraph, ExprRef};
use super::group::ShapedGroup;
use super::in_place;
use super::kernel;
use super::memory::{self, Traffic};
use super::nest::{self, Root};
use super::output_strides;
use super::tile;
use crate::error::{CompileFault, Error, Result};
use crate::graph::function::Function;
use crate::graph::logical_tensor::LogicalTensor;
use crate::kernels::StorePolicy;
use crate::partition::Partition;
use crate::plan::scalar_op::ScalarOp;
use crate::plan::{Base, Plan};
use crate::types::kind::Level;
use crate::types::shape::{self, Dims};

/// The plan of a partition for concrete inputs, for one thread or for more.
pub(super) fn plan(
    partition: &Partition,
    inputs: &[&LogicalTensor],
    outputs: &[&LogicalTensor],
    level: Level,
    single_thread: bool,
) -> Result<Plan> {
    let refuse = |fault| Error::Compile { partition: partition.id(), fault };
    let group = ShapedGroup::new(partition, inputs, outputs)?;
    let layout_hints = layout_hints(&group, inputs);
    let mut resolved = Vec::with_capacity(outputs.len());
    for (&output, &value) in outputs.iter().zip(&group.outputs) {
        let dims = &group.values[value].dims;
        let strides = output_strides(output, dims, &layout_hints).map_err(refuse)?;
        resolved.push((dims.clone(), strides));
    }
    let in_strides = inputs.iter().map(|input| input.strides().unwrap_or_default());
    let ports: Vec<&[i64]> = in_strides.chain(resolved.iter().map(|(_, strides)| &strides[..])).collect();

    let exprs = nest_exprs(&group, &ports);
    let bytes_moved = bytes_moved(&exprs);
    let output =
        group.outputs.iter().map(|&value| group.values[value].bytes()).fold(0, usize::saturating_add);
    let reads_one_branch = reads_one_branch(&exprs);
    let policy = memory::decide(Traffic { bytes: bytes_moved, output, reads_one_branch, single_thread });

    let mut plan = Plan {
        sizes: sizes(&group, &ports),
        in_place: Vec::new(),
        nests: Vec::with_capacity(exprs.len()),
        constants: exprs.iter().flat_map(|nest_expr| &nest_expr.expr.constants).copied().collect(),
        scratch: 0,
        bytes_moved,
        is_parallel: false,
        computes_floats: exprs
            .iter()
            .flat_map(|d| &d.expr.nodes)
            .any(|node| kernel::computes_floats(node.op)),
        stores: policy.stores,
        outputs: Vec::new(),
    };
    let mut cost = 0usize;
    for (index, nest_expr) in exprs.iter().enumerate() {
        let is_read_later = |root: &Root| {
            let base = nest_expr.expr.accesses[root.access].base;
            exprs[index + 1..]
                .iter()
                .any(|later| later.expr.accesses.iter().any(|access| access.base == base))
        };
        let roots: Vec<Root> = nest_expr
            .roots
            .iter()
            .map(|&(access, value)| {
                let root = Root { access, value, stores: StorePolicy::Temporal };
                if is_read_later(&root) { root } else { Root { stores: policy.stores, ..root } }
            })
            .collect();
        let unsupported =
            || refuse(CompileFault::Unsupported("no kernel runs an op on its types".to_owned()));
        let lowered = nest::nest(&nest_expr.expr, &roots, level, &policy).ok_or_else(unsupported)?;
        plan.scratch = plan.scratch.max(lowered.scratch);
        cost = cost.saturating_add(lowered.cost);
        plan.nests.push(lowered.nest);
    }
    plan.is_parallel = policy.is_parallel(cost);
    if let Some(tiles) = policy.lookahead(cost) {
        for (nest, NestExpr { expr, .. }) in plan.nests.iter_mut().zip(&exprs) {
            nest.lookahead = tile::lookahead(expr, nest, tiles);
        }
    }
    plan.in_place = in_place::pairs(&plan.nests, &group, &ports);
    plan.outputs = resolved;
    Ok(plan)
}

/// The inputs whose layout an output of the same shape takes; for a lone select these are its branches.
fn layout_hints<'a>(group: &ShapedGroup, inputs: &[&'a LogicalTensor]) -> Vec<&'a LogicalTensor> {
    let results = &group.values[inputs.len()..];
    match results {
        [value] => match &value.def {
            Some(def) if def.pointwise.function == Function::Select => {
                def.operands[1..].iter().map(|&(value, _)| inputs[value]).collect()
            }
            _ => inputs.to_vec(),
        },
        _ => inputs.to_vec(),
    }
}

/// An expression graph, its index space, and its outputs: the access and the value of each.
struct NestExpr<'a> {
    expr: ExprGraph<'a>,
    roots: Vec<(usize, ExprRef)>,
}

/// One expression graph for each shape of outputs, small shapes first, so that later ones can read what
/// earlier ones write.
fn nest_exprs<'a>(group: &'a ShapedGroup, ports: &'a [&'a [i64]]) -> Vec<NestExpr<'a>> {
    // Values, each with its output.
    let mut by_shape: FxHashMap<&Dims, Vec<(usize, usize)>> = FxHashMap::default();
    for (output, &value) in group.outputs.iter().enumerate() {
        by_shape.entry(&group.values[value].dims).or_default().push((value, output));
    }
    let mut shapes: Vec<(&Dims, Vec<(usize, usize)>)> =
        by_shape.into_iter().filter(|(dims, _)| !dims.contains(&0)).collect();
    shapes.sort_unstable_by_key(|(dims, outputs)| (shape::element_count(dims), outputs[0].1));

    let mut written = vec![None; group.values.len()];
    let mut constants = 0;
    let mut exprs = Vec::with_capacity(shapes.len());
    for (dims, mut outputs) in shapes {
        let mut expr = ExprGraph::new(group, ports, written.clone(), dims, constants);
        // Values from which others are computed come first.
        outputs.sort_unstable();
        let mut roots = Vec::with_capacity(outputs.len());
        for &(value, output) in &outputs {
            let value = expr.storage(value, 0);
            roots.push((expr.access_output(output), value));
        }
        outputs.iter().for_each(|&(value, output)| written[value] = Some(output));
        constants += expr.constants.len();
        exprs.push(NestExpr { expr, roots });
    }
    exprs
}

/// Bytes from the first to the last element of each port; 0 for inputs whose data nothing uses.
fn sizes(group: &ShapedGroup, ports: &[&[i64]]) -> Vec<usize> {
    // A value whose shape alone is used is never computed, and needs nothing.
    let mut is_used = vec![false; group.values.len()];
    group.outputs.iter().for_each(|&output| is_used[output] = true);
    for (value, def) in group.values.iter().enumerate().rev() {
        if let Some(def) = def.def.as_ref().filter(|_| is_used[value]) {
            def.operands.iter().for_each(|&(operand, _)| is_used[operand] = true);
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

/// Bytes of the distinct elements of all ports, or `usize::MAX` where there are more: each port can be
/// addressed, all of them together need not, and elements of an input that overlap are counted each.
fn bytes_moved(exprs: &[NestExpr<'_>]) -> usize {
    let mut of_port: FxHashMap<usize, usize> = FxHashMap::default();
    for NestExpr { expr, .. } in exprs {
        for access in &expr.accesses {
            let Base::Port(port) = access.base else { continue };
            let varying = expr.dims.iter().zip(&access.strides).filter(|&(_, &stride)| stride != 0);
            let bytes =
                varying.map(|(&dim, _)| dim as usize).fold(access.width.bytes(), usize::saturating_mul);
            let most = of_port.entry(port).or_default();
            *most = bytes.max(*most);
        }
    }
    of_port.into_values().fold(0, usize::saturating_add)
}

/// Whether each row of a result leaves one branch unread, because the condition does not vary along the
/// innermost dim.
fn reads_one_branch(exprs: &[NestExpr<'_>]) -> bool {
    exprs.iter().any(|NestExpr { expr, roots, .. }| {
        roots.iter().any(|&(access, value)| {
            let strides = &expr.accesses[access].strides;
            let innermost =
                (0..strides.len()).filter(|&axis| strides[axis] != 0).min_by_key(|&axis| strides[axis]);
            match (value, innermost) {
                (ExprRef::Node(node), Some(axis)) if expr.nodes[node].op == ScalarOp::Select => {
                    expr.varies(expr.nodes[node].operands[0]) & 1 << axis == 0
                }
                _ => false,
            }
        })
    })
}
