//! Divides a group among nests: the expression graph of each, over the index space of its results.

use std::rc::Rc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::driver_space::DriverSpace;
use super::expr::{ExprGraph, ExprRef, NestObstacle};
use super::group::{Moved, ShapedGroup, Stored};
use super::view::NestBox;
use crate::plan::scalar_op::ScalarOp;
use crate::plan::{AccessId, Base, OfValues, ValueId};
use crate::types::shape::{self, Dims};

/// An expression graph, its index space, and its outputs: the access and the value of each.
pub(super) struct NestExpr<'a> {
    pub(super) expr: ExprGraph<'a>,
    pub(super) roots: Vec<(AccessId, ExprRef)>,
    /// Nests of one number share the elements of their outputs.
    part_of: usize,
}

/// Values to write, each with its place.
pub(in crate::compile) type Targets<'a> = [(ValueId, Stored<'a>)];

/// The expression graphs of a group, in an order in which their nests can run.
pub(super) struct GroupExprs<'a> {
    pub(super) nests: Vec<NestExpr<'a>>,
    /// Bytes of each internal buffer.
    pub(super) buffers: Vec<usize>,
}

/// Targets that several jobs share.
type SharedTargets<'a> = Rc<Targets<'a>>;

/// Work that is left for the outputs of one shape, or for a value that other values need in memory.
struct Job<'a> {
    /// A nest over a box of the elements of the targets; `None` if they are written, and are read from their
    /// places from now on.
    space: Option<NestBox>,
    targets: SharedTargets<'a>,
}

impl<'a> Job<'a> {
    fn build(space: NestBox, targets: &SharedTargets<'a>) -> Self {
        Self { space: Some(space), targets: Rc::clone(targets) }
    }

    fn written(targets: &SharedTargets<'a>) -> Self {
        Self { space: None, targets: Rc::clone(targets) }
    }
}

/// Expression graphs for each shape of targets, small shapes first, so that later ones can read what earlier
/// ones write: one graph, or one for each box of elements that concatenations cut. Afterwards the targets are
/// stored. `constants` and `buffers` count those of earlier nests.
pub(super) fn group_exprs<'a>(
    group: &'a ShapedGroup,
    stored: &mut OfValues<Option<Stored<'a>>>,
    targets: &Targets<'a>,
    constants: usize,
    buffers: usize,
) -> GroupExprs<'a> {
    let mut moves = group.values.iter().filter_map(|value| value.def.as_ref()?.moved.as_ref());
    let is_flat = moves.any(|moved| matches!(moved, Moved::Reshaped));
    let made = GroupExprs { nests: Vec::new(), buffers: Vec::new() };
    let mut builder = NestBuilder { group, stored, is_flat, constants, buffers, jobs: Vec::new(), made };
    for (part_of, of_shape) in by_shape(group, targets).into_iter().enumerate() {
        let space = builder.space(of_shape[0].0);
        builder.jobs.extend([Job::written(&of_shape), Job::build(space, &of_shape)]);
        while let Some(job) = builder.jobs.pop() {
            builder.run(job, part_of);
        }
    }
    let NestBuilder { made, .. } = builder;
    targets.iter().for_each(|&(value, target)| stored[value] = Some(target));
    made
}

/// Targets of one shape each, small shapes first. Values from which others are computed come first.
fn by_shape<'a>(group: &ShapedGroup, targets: &Targets<'a>) -> Vec<SharedTargets<'a>> {
    let mut by_shape: FxHashMap<&Dims, Vec<(ValueId, usize)>> = FxHashMap::default();
    for (target, &(value, _)) in targets.iter().enumerate() {
        by_shape.entry(&group.values[value].dims).or_default().push((value, target));
    }
    let mut shapes: Vec<(&Dims, Vec<(ValueId, usize)>)> =
        by_shape.into_iter().filter(|(dims, _)| !dims.contains(&0)).collect();
    // A sort of plain numbers has code that others share; one of shapes would be an instance of its own.
    let mut order: Vec<(usize, usize, usize)> = (shapes.iter().enumerate())
        .map(|(index, (dims, of_shape))| {
            (shape::element_count(dims).unwrap_or(i64::MAX) as usize, of_shape[0].1, index)
        })
        .collect();
    order.sort_unstable();
    let mut of_shape = |(_, _, index): (usize, usize, usize)| {
        let mut of_shape = std::mem::take(&mut shapes[index].1);
        of_shape.sort_unstable();
        of_shape.iter().map(|&(_, target)| targets[target]).collect()
    };
    order.into_iter().map(&mut of_shape).collect()
}

/// Builds the nests of targets, one job after another.
struct NestBuilder<'b, 'a> {
    group: &'a ShapedGroup,
    stored: &'b mut OfValues<Option<Stored<'a>>>,
    /// True if the axes of a space are one, which is split if operands need that.
    is_flat: bool,
    /// Constants so far.
    constants: usize,
    /// Buffers before those that are made.
    buffers: usize,
    jobs: Vec<Job<'a>>,
    made: GroupExprs<'a>,
}

impl<'a> NestBuilder<'_, 'a> {
    fn space(&self, value: ValueId) -> NestBox {
        let dims = &self.group.values[value].dims;
        if self.is_flat { NestBox::flat(dims) } else { NestBox::of_dims(dims) }
    }

    /// Builds a nest; or adds the jobs that overcome its obstacle.
    fn run(&mut self, Job { space, targets }: Job<'a>, part_of: usize) {
        let Some(nest_box) = space else {
            targets.iter().for_each(|&(value, target)| self.stored[value] = Some(target));
            return;
        };
        let over = |space: NestBox| Job::build(space, &targets);
        match nest_expr(self.group, self.stored, &nest_box, None, &targets, self.constants) {
            Ok(nest) => {
                self.constants += nest.expr.constants.len();
                self.made.nests.push(NestExpr { part_of, ..nest });
            }
            Err(NestObstacle::Split { axis, inner, of }) => match nest_box.split(axis, inner) {
                Some(split) => self.jobs.push(over(split)),
                None => self.store_first(of, nest_box, &targets),
            },
            Err(NestObstacle::Cut { axis, at }) => {
                self.jobs.extend(nest_box.cut(axis, at).into_iter().rev().map(over));
            }
            Err(NestObstacle::Store(value)) => self.store_first(value, nest_box, &targets),
        }
    }

    /// Adds the jobs that write a value before targets over a box that need it.
    fn store_first(&mut self, needed: ValueId, nest_box: NestBox, targets: &SharedTargets<'a>) {
        let (alone, others): (Vec<_>, Vec<_>) = targets.iter().partition(|(value, _)| *value == needed);
        if !alone.is_empty() && others.is_empty() {
            // A space of the value's own dims has no obstacle but those of its operands.
            let space = NestBox::of_dims(&self.group.values[needed].dims);
            self.jobs.push(Job::build(space, targets));
            return;
        }
        let first: SharedTargets<'a> = match alone.is_empty() {
            true => {
                self.jobs.push(Job::build(nest_box, targets));
                self.made.buffers.push(self.group.values[needed].bytes());
                let base = Base::Buffer(self.buffers + self.made.buffers.len() - 1);
                [(needed, Stored { base, strides: None })].into()
            }
            false => {
                self.jobs.push(Job::build(nest_box, &others.into()));
                alone.into()
            }
        };
        let space = self.space(needed);
        self.jobs.extend([Job::written(&first), Job::build(space, &first)]);
    }
}

/// The expression graph of a nest over a box, with an access for the place of each value; `driver` if the box
/// is the space of a driver.
pub(super) fn nest_expr<'a>(
    group: &'a ShapedGroup,
    stored: &OfValues<Option<Stored<'a>>>,
    space: &NestBox,
    driver: Option<&'a DriverSpace>,
    targets: &Targets<'a>,
    constants: usize,
) -> Result<NestExpr<'a>, NestObstacle> {
    let view = space.view();
    let mut expr = ExprGraph::new(group, stored.clone(), space.extents(), driver, constants);
    // Splits for the places come before those for operands, which may not agree with them.
    targets.iter().try_for_each(|&(value, target)| expr.strides(target, value, &view).map(|_| ()))?;
    let mut roots = Vec::with_capacity(targets.len());
    for &(value, target) in targets {
        let operand = expr.storage(value, view.clone())?;
        roots.push((expr.access_tensor(target, value, &view)?, operand));
    }
    Ok(NestExpr { expr, roots, part_of: 0 })
}

/// Bytes of the distinct elements of all ports, or `usize::MAX` if there are more: each port can be
/// addressed, all of them together need not, and elements of an input that overlap are counted each.
pub(super) fn bytes_moved(exprs: &[NestExpr<'_>], group: &ShapedGroup) -> usize {
    // By port: the part, and the bytes.
    let mut of_port: FxHashMap<usize, SmallVec<[(usize, usize); 1]>> = FxHashMap::default();
    for NestExpr { expr, part_of, .. } in exprs {
        let mut of_nest: SmallVec<[(usize, isize, usize); 6]> = SmallVec::new();
        for access in &expr.accesses {
            let Base::Port(port) = access.base else { continue };
            let varying = expr.dims.iter().zip(&access.strides).filter(|&(_, &stride)| stride != 0);
            let bytes =
                varying.map(|(&dim, _)| dim as usize).fold(access.width.bytes(), usize::saturating_mul);
            match of_nest.iter_mut().find(|(other, offset, _)| (*other, *offset) == (port, access.offset)) {
                Some((_, _, most)) => *most = bytes.max(*most),
                None => of_nest.push((port, access.offset, bytes)),
            }
        }
        for node in expr.nodes.iter().filter(|node| matches!(node.op, ScalarOp::Nibbles(_))) {
            let bytes = expr.elements(node.varies).div_ceil(2);
            for port in node.operands.iter().filter_map(|&operand| expr.port(operand)) {
                let known = of_nest.iter_mut().find(|(other, ..)| *other == port);
                known.into_iter().for_each(|(_, _, most)| *most = bytes.max(*most));
            }
        }
        for (port, _, bytes) in of_nest {
            let parts = of_port.entry(port).or_default();
            match parts.iter_mut().find(|(part, _)| part == part_of) {
                // Slices of one tensor, or boxes of one result.
                Some((_, all)) => {
                    let value =
                        port.checked_sub(expr.inputs()).map_or(ValueId(port), |output| group.outputs[output]);
                    *all = all.saturating_add(bytes).min(bytes.max(group.values[value].bytes()));
                }
                None => parts.push((*part_of, bytes)),
            }
        }
    }
    let most = |parts: SmallVec<[(usize, usize); 1]>| parts.into_iter().map(|(_, bytes)| bytes).max();
    of_port.into_values().filter_map(most).fold(0, usize::saturating_add)
}

/// True if each row of a result leaves one branch unread, because the condition does not vary along the
/// innermost dim.
pub(super) fn reads_one_branch(exprs: &[NestExpr<'_>]) -> bool {
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
