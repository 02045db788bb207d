//! Lowers a partition of pointwise ops to a plan.
//!
//! Each stage is a function of the ones before it, and no file imports a later one: values with shapes
//! (`group`, with ops of several functions from `composites`), the ways to their elements (`view`),
//! expressions (`expr`), loops and strides (`loops`, `access`), kernels (`select_kernel`), steps in run order
//! (`schedule`), steps that keep values in registers (`register_fusion`), places for results (`scratch`), and
//! tiles with the loops around them (`tiling`). `in_place` reads the finished nests.

mod access;
mod composites;
mod expr;
mod group;
mod in_place;
mod loops;
mod register_fusion;
mod schedule;
mod scratch;
mod select_kernel;
mod tiling;
mod view;

use self::expr::{ExprNode, ExprRef, GroupExprs, NestExpr};
use self::group::ShapedGroup;
use self::schedule::{Root, Schedule};
use self::select_kernel::NoKernel;
use self::tiling::TiledNest;
use super::memory::{self, MemoryPolicy, Traffic};
use super::shapes::output_strides;
use crate::error::{CompileFault, Error, Result};
use crate::graph::function::Function;
use crate::graph::logical_tensor::LogicalTensor;
use crate::kernels::StorePolicy;
use crate::partition::Partition;
use crate::plan::{Cost, Phase, Plan};
use crate::types::kind::Level;

/// The plan of a partition for concrete inputs, for one thread or for more.
pub(super) fn lower(
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

    let GroupExprs { nests: exprs, buffers } = expr::group_exprs(&group, &ports);
    let policy = memory::decide(traffic(&group, &exprs, single_thread));
    let tiled = |index: usize| {
        let nest = &exprs[index];
        let roots = roots(nest, &exprs[index + 1..], &policy);
        let schedule = Schedule::new(&nest.expr, &roots, level, &policy)?;
        Ok(TiledNest::new(register_fusion::fuse(schedule, level, &policy), &policy))
    };
    let unsupported =
        |NoKernel(op)| refuse(CompileFault::Unsupported(format!("no kernel runs {op} on its types")));
    let tiled: Vec<TiledNest<'_>> =
        (0..exprs.len()).map(tiled).collect::<Result<_, _>>().map_err(unsupported)?;
    let estimated_work = tiled.iter().map(TiledNest::cost).fold(0, usize::saturating_add);
    let flops = exprs.iter().map(flops).fold(0, usize::saturating_add);
    let cost = Cost { bytes: policy.bytes, flops, estimated_work };
    let lookahead = policy.lookahead(estimated_work);
    let nests: Vec<_> = tiled.into_iter().map(|nest| nest.into_nest(lookahead)).collect();
    let in_place = in_place::pairs(&nests, &group, &ports);
    let phases: Vec<Phase> = nests.into_iter().map(Phase::Map).collect();

    let mut nodes = exprs.iter().flat_map(|nest| &nest.expr.nodes);
    Ok(Plan {
        sizes: group.sizes(&ports),
        in_place,
        buffers,
        scratch: phases.iter().map(Phase::scratch).max().unwrap_or(0),
        phases,
        constants: exprs.iter().flat_map(|nest| &nest.expr.constants).copied().collect(),
        cost,
        threading: memory::threading(cost),
        computes_floats: nodes.any(|node| node.op.reads_float_environment()),
        stores: policy.stores,
        outputs: resolved,
    })
}

/// Floating-point operations of all elements of a nest.
fn flops(nest: &NestExpr<'_>) -> usize {
    let of_node = |node: &ExprNode| match node.op.is_arithmetic() {
        true => nest.expr.elements(node.varies),
        false => 0,
    };
    nest.expr.nodes.iter().map(of_node).fold(0, usize::saturating_add)
}

fn traffic(group: &ShapedGroup, exprs: &[NestExpr<'_>], single_thread: bool) -> Traffic {
    let outputs = group.outputs.iter().map(|&value| group.values[value].bytes());
    Traffic {
        bytes: expr::bytes_moved(exprs, group),
        output: outputs.fold(0, usize::saturating_add),
        reads_one_branch: expr::reads_one_branch(exprs),
        single_thread,
    }
}

/// The outputs of a nest; those that later nests read are stored temporally.
fn roots(nest: &NestExpr<'_>, later: &[NestExpr<'_>], policy: &MemoryPolicy) -> Vec<Root> {
    let root = |&(access, value): &(usize, ExprRef)| {
        let base = nest.expr.accesses[access].base;
        let is_read_later = later.iter().any(|later| {
            let accesses = later.expr.accesses.iter().enumerate();
            let mut of_base = accesses.filter(|(_, access)| access.base == base);
            of_base.any(|(index, _)| later.roots.iter().all(|&(root, _)| root != index))
        });
        Root { access, value, stores: if is_read_later { StorePolicy::Temporal } else { policy.stores } }
    };
    nest.roots.iter().map(root).collect()
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
