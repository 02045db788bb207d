//! Lowers pointwise ops to loop nests: a whole partition to a plan, a part of one to nests between other
//! phases, or to a tile program that the driver of another phase runs.
//!
//! A driver gives its tile program the index space, as a [`DriverSpace`]: the axes, which of them are the
//! rows and the columns of tiles, the tile, and the strides of its slots. Values that the driver supplies are
//! [`Stored`] at `Base::Driver(slot)`; so are roots that the driver wants in memory of its own, such as the
//! result of a prologue. All other operands and roots are accesses to memory as in any nest. Rows, columns
//! and loops stay as they are given: none is merged, reordered or dropped. `compile::phases` chooses the
//! values, finds their places, and puts the phases of a plan together.
//!
//! Each stage is a function of the ones before it, and no file imports a later one: values with shapes
//! (`group`, with ops of several functions from `composites`; `moved_dims` tells which dims they have of
//! others), the views of their elements (`view`), the space of a driver (`driver_space`), expressions
//! (`expr`) and their division among nests (`nest_exprs`), loops and strides (`loops`, `access`), kernels
//! (`select_kernel`), steps in run order (`schedule`), steps that keep values in registers
//! (`register_fusion`), places for results (`scratch`), and tiles with the loops around them (`tiling`).
//! `in_place` reads the finished nests.

mod access;
mod composites;
mod driver_space;
mod expr;
mod forms;
mod group;
mod in_place;
mod loops;
mod moved_dims;
mod nest_exprs;
mod parameters;
mod register_fusion;
mod schedule;
mod scratch;
mod select_kernel;
mod tiling;
mod view;

pub(super) use self::driver_space::{DriverSpace, FoldedAxes};
use self::expr::{ExprNode, ExprRef};
pub(super) use self::group::{Anchor, Dequantization, GroupValue, Moved, ShapedGroup, Stored};
pub(super) use self::in_place::pairs as in_place_pairs;
use self::nest_exprs::{GroupExprs, NestExpr, Targets};
pub(super) use self::parameters::QuantParameters;
use self::schedule::{Root, Schedule};
use self::select_kernel::NoKernel;
use self::tiling::TiledNest;
pub(super) use self::view::{NestBox, View};
use super::buffers::placed_buffers;
use super::memory::{self, MemoryPolicy, Traffic};
use super::shapes::output_strides;
use crate::error::{CompileFault, Error, Result};
use crate::graph::function::Function;
use crate::graph::logical_tensor::LogicalTensor;
use crate::kernels::StorePolicy;
use crate::partition::Partition;
use crate::plan::{AccessId, Base, Cost, LoopNest, OfValues, Phase, Plan, Preparation, ValueId};
use crate::types::dtype::DataType;
use crate::types::function::computes_in_f32;
use crate::types::kind::Level;
use crate::types::shape::{self, Dims, MAX_RANK};

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
    if let Some(anchor) = group.anchors.first() {
        let kind = partition.ops()[anchor.op].kind();
        return Err(refuse(CompileFault::Unsupported(format!("no kernel runs {kind}"))));
    }
    let resolved = resolved_outputs(&group, inputs, outputs).map_err(refuse)?;
    let ports = port_strides(inputs, &resolved);

    let targets: Vec<(ValueId, Stored<'_>)> = (group.outputs.iter().enumerate())
        .map(|(output, &value)| (value, group.stored_output(output, &ports)))
        .collect();
    let GroupExprs { nests: exprs, buffers } =
        nest_exprs::group_exprs(&group, &mut group.stored_inputs(&ports), &targets, 0, 0);
    let policy = memory::decide(traffic(&group, &exprs, single_thread));
    let lowered = lower_exprs(&exprs, level, &policy, |_| false).map_err(refuse)?;
    let phase_flops = lowered.flops;
    let phases: Vec<Phase> = lowered.nests.into_iter().map(Phase::Map).collect();
    let cost = Cost { bytes: policy.bytes, ..lowered.cost };
    Ok(Plan {
        sizes: group.sizes(&ports),
        in_place: in_place::pairs(&phases, &group, &ports),
        buffers: placed_buffers(&phases, &buffers, &[]),
        scratch: phases.iter().map(Phase::scratch).max().unwrap_or(0),
        phases,
        preparation: Preparation::default(),
        constants: lowered.constants,
        cost,
        phase_flops,
        threading: memory::threading(cost),
        computes_floats: lowered.computes_floats,
        stores: policy.stores,
        fallbacks: Vec::new(),
        index_checks: Vec::new(),
        outputs: resolved,
    })
}

/// Dims and strides of each output, inferred or given.
pub(super) fn resolved_outputs(
    group: &ShapedGroup,
    inputs: &[&LogicalTensor],
    outputs: &[&LogicalTensor],
) -> Result<Vec<(Dims, Dims)>, CompileFault> {
    let layout_hints = layout_hints(group, inputs);
    let resolved = |(&output, &value): (&&LogicalTensor, &ValueId)| {
        let dims = &group.values[value].dims;
        Ok((dims.clone(), output_strides(output, dims, &layout_hints)?))
    };
    outputs.iter().zip(&group.outputs).map(resolved).collect()
}

/// The strides of the ports in elements, inputs first. A tensor without elements has strides of 0, because no
/// limit holds for its own.
pub(super) fn port_strides<'a>(inputs: &[&'a LogicalTensor], resolved: &'a [(Dims, Dims)]) -> Vec<&'a [i64]> {
    static NO_STRIDES: [i64; MAX_RANK] = [0; MAX_RANK];
    let own = |dims: &'a [i64], strides: &'a [i64]| match dims.contains(&0) {
        true => &NO_STRIDES[..dims.len()],
        false => strides,
    };
    let of_input = |input: &&'a LogicalTensor| {
        own(input.dims().unwrap_or_default(), input.strides().unwrap_or_default())
    };
    let of_output = |(dims, strides): &'a (Dims, Dims)| own(dims, strides);
    inputs.iter().map(of_input).chain(resolved.iter().map(of_output)).collect()
}

/// Nests, and their additions to a plan.
pub(super) struct LoweredNests {
    pub(super) nests: Vec<LoopNest>,
    /// The constants of the nests, behind those of earlier nests.
    pub(super) constants: Vec<[u8; 8]>,
    /// Bytes of the internal buffers of the nests, behind those of earlier nests.
    pub(super) buffers: Vec<usize>,
    /// The cost of the steps, without bytes of ports.
    pub(super) cost: Cost,
    /// The floating-point operations of each nest.
    pub(super) flops: Vec<usize>,
    pub(super) computes_floats: bool,
}

/// Lowers values of a group to nests that write them, all of whose operands are in memory. Afterwards the
/// values are stored. `constants` and `buffers` count those of earlier nests, `is_read_later` says whether a
/// later phase reads from a base.
pub(super) fn lower_nests<'a>(
    group: &'a ShapedGroup,
    stored: &mut OfValues<Option<Stored<'a>>>,
    targets: &Targets<'a>,
    (constants, buffers): (usize, usize),
    level: Level,
    policy: &MemoryPolicy,
    is_read_later: impl Fn(Base) -> bool,
) -> Result<LoweredNests, CompileFault> {
    let GroupExprs { nests, buffers } = nest_exprs::group_exprs(group, stored, targets, constants, buffers);
    Ok(LoweredNests { buffers, ..lower_exprs(&nests, level, policy, is_read_later)? })
}

/// A value whose elements are those of a stored one, in another order or a part of them.
pub(super) struct StridedView {
    /// The stored value.
    pub(super) of: ValueId,
    /// The first element, counted from that of the stored value, and the strides, in elements.
    pub(super) offset: i64,
    pub(super) strides: Dims,
}

/// The stored value from which ops make a value, if these ops only move elements or widen them to f32, and
/// the strides to the value's elements; `None` if no strides lead to them.
pub(super) fn strided_view(
    group: &ShapedGroup,
    stored: &OfValues<Option<Stored<'_>>>,
    value: ValueId,
) -> Option<StridedView> {
    let extents = &group.values[value].dims;
    let mut view = NestBox::of_dims(extents).view();
    let mut of = value;
    while stored[of].is_none() {
        let def = group.values[of].def.as_ref()?;
        let &[(operand, start)] = &def.operands[..] else { return None };
        let [from, to] = [operand, of].map(|value| group.values[value].data_type);
        let keeps_number = match def.pointwise.function {
            Function::Move(_) | Function::Identity => true,
            Function::Convert => from == to || to == DataType::F32 && computes_in_f32(from),
            _ => false,
        };
        if !keeps_number || matches!(def.moved, Some(Moved::Concatenated { .. })) {
            return None;
        }
        view = group.operand_view(of, operand, start, &view, extents).ok()?;
        of = operand;
    }
    let dims = &group.values[of].dims;
    let row_major;
    let strides = match stored[of]?.strides {
        Some(strides) => strides,
        None => {
            row_major = shape::row_major_strides(dims)?;
            &row_major[..]
        }
    };
    let (offset, strides) = view.strides(dims, strides, extents).ok()?;
    strides.iter().all(|&stride| stride >= 0).then_some(StridedView { of, offset, strides })
}

/// True if a tile program over a space with these dims can compute a value from what is stored, for a target:
/// whether strides along the axes of the space lead to all operands and to the target.
pub(super) fn is_tile_program<'a>(
    group: &'a ShapedGroup,
    stored: &OfValues<Option<Stored<'a>>>,
    space: &'a DriverSpace,
    value: ValueId,
    target: Stored<'a>,
) -> bool {
    let nest_box = space.nest_box();
    group.values[value].dims == *space.value_dims()
        && nest_exprs::nest_expr(group, stored, &nest_box, Some(space), &[(value, target)], 0).is_ok()
}

/// Lowers values of a group to a tile program over the space of a driver: the program computes the targets
/// from what is stored, in memory or in slots of the driver. The nest is the only one of the result.
#[allow(clippy::too_many_arguments, reason = "each is another thing")]
pub(super) fn tile_program<'a>(
    group: &'a ShapedGroup,
    stored: &OfValues<Option<Stored<'a>>>,
    space: &'a DriverSpace,
    targets: &Targets<'a>,
    constants: usize,
    level: Level,
    policy: &MemoryPolicy,
    is_read_later: impl Fn(Base) -> bool,
) -> Result<LoweredNests, CompileFault> {
    let nest_box = space.nest_box();
    let nest = nest_exprs::nest_expr(group, stored, &nest_box, Some(space), targets, constants);
    let no_strides = |_| CompileFault::Unsupported("no strides lead a tile to its operands".into());
    lower_exprs(&[nest.map_err(no_strides)?], level, policy, is_read_later)
}

fn lower_exprs(
    exprs: &[NestExpr<'_>],
    level: Level,
    policy: &MemoryPolicy,
    is_read_later: impl Fn(Base) -> bool,
) -> Result<LoweredNests, CompileFault> {
    let tiled = |index: usize| {
        let nest = &exprs[index];
        let roots = roots(nest, &exprs[index + 1..], policy, &is_read_later);
        let schedule = Schedule::new(&nest.expr, &roots, level, policy)?;
        Ok(TiledNest::new(register_fusion::fuse(schedule, level, policy), policy))
    };
    let unsupported = |NoKernel(op)| CompileFault::Unsupported(format!("no kernel runs {op} on its types"));
    let tiled: Vec<TiledNest<'_>> =
        (0..exprs.len()).map(tiled).collect::<Result<_, _>>().map_err(unsupported)?;
    let estimated_work = tiled.iter().map(TiledNest::cost).fold(0, usize::saturating_add);
    let flops: Vec<usize> = exprs.iter().map(flops).collect();
    let all_flops = flops.iter().copied().fold(0, usize::saturating_add);
    let lookahead = policy.lookahead(estimated_work);
    let mut nodes = exprs.iter().flat_map(|nest| &nest.expr.nodes);
    Ok(LoweredNests {
        constants: exprs.iter().flat_map(|nest| &nest.expr.constants).copied().collect(),
        buffers: Vec::new(),
        cost: Cost { bytes: 0, flops: all_flops, estimated_work },
        flops,
        computes_floats: nodes.any(|node| node.op.reads_float_environment()),
        nests: tiled.into_iter().map(|nest| nest.into_nest(lookahead)).collect(),
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
        bytes: nest_exprs::bytes_moved(exprs, group),
        output: outputs.fold(0, usize::saturating_add),
        reads_one_branch: nest_exprs::reads_one_branch(exprs),
        single_thread,
    }
}

/// The outputs of a nest; those that later nests or phases read are stored temporally.
fn roots(
    nest: &NestExpr<'_>,
    later: &[NestExpr<'_>],
    policy: &MemoryPolicy,
    is_read_later: impl Fn(Base) -> bool,
) -> Vec<Root> {
    let root = |&(access, value): &(AccessId, ExprRef)| {
        let base = nest.expr.accesses[access].base;
        let is_read = is_read_later(base)
            || later.iter().any(|later| {
                let accesses = later.expr.accesses.iter().enumerate();
                let mut of_base = accesses.filter(|(_, access)| access.base == base);
                of_base.any(|(index, _)| later.roots.iter().all(|&(root, _)| root != AccessId(index)))
            });
        Root { access, value, stores: if is_read { StorePolicy::Temporal } else { policy.stores } }
    };
    nest.roots.iter().map(root).collect()
}

/// The inputs whose layout an output of the same shape takes; for a lone select these are its branches.
fn layout_hints<'a>(group: &ShapedGroup, inputs: &[&'a LogicalTensor]) -> Vec<&'a LogicalTensor> {
    let mut results = group.values.iter().skip(inputs.len());
    match (results.next(), results.next()) {
        (Some(value), None) => match &value.def {
            Some(def) if def.pointwise.function == Function::Select => {
                def.operands[1..].iter().map(|&(value, _)| inputs[value.0]).collect()
            }
            _ => inputs.to_vec(),
        },
        _ => inputs.to_vec(),
    }
}
