//! Schedules an expression graph: which kernels run as steps, and in which order.

use smallvec::{SmallVec, smallvec};

use super::access::IterationSpace;
use super::expr::{ExprGraph, ExprRef, NodeId};
use super::select_kernel::{self, Fusible, NoKernel, Operands, StageShape};
use crate::compile::memory::MemoryPolicy;
use crate::kernels::unpack::unpack_tile;
use crate::kernels::{InnerStride, LINE, StorePolicy, Width, fused, pack, select, transpose};
use crate::plan::scalar_op::{ScalarOp, StepLabel};
use crate::plan::{
    AccessId, Base, Instr, Operand, Select, StepId, StepSet, StepSpace, Traversal, indexed_by,
};
use crate::types::kind::Level;

/// An output of a nest.
pub(super) struct Root {
    /// Its access.
    pub(super) access: AccessId,
    /// The value written there.
    pub(super) value: ExprRef,
    pub(super) stores: StorePolicy,
}

/// A step that has no place in scratch yet.
pub(super) struct UnplacedStep {
    /// The operations of the step; see [`Step::labels`](crate::plan::Step::labels).
    pub(super) labels: SmallVec<[StepLabel; 1]>,
    pub(super) instr: Instr,
    /// The access to which it writes; `None` for scratch.
    pub(super) dest: Option<AccessId>,
    pub(super) width: Width,
    pub(super) space: StepSpace,
    pub(super) traversal: Traversal,
    /// The loops along which its result varies; see [`IterationSpace::varies`].
    pub(super) varies: u32,
    /// Cost of an element, in bytes that could be moved in the same time.
    pub(super) cost: usize,
    /// How the result is stored.
    pub(super) stores: StorePolicy,
    /// The step as a part of a fused kernel, if it can be one.
    pub(super) fusible: Option<Fusible>,
}

impl UnplacedStep {
    /// True if it packs an operand or unpacks a result; tiles are then short pieces of rows.
    pub(super) fn packs(&self) -> bool {
        matches!(self.instr, Instr::PackTile { .. } | Instr::UnpackTile { .. })
    }

    /// True if it repeats a row for a tile.
    pub(super) fn repeats(&self) -> bool {
        matches!(self.instr, Instr::Repeat { .. })
    }
}

indexed_by! {
    Vec<UnplacedStep>, StepId, UnplacedStep;
    [UnplacedStep], StepId, UnplacedStep;
}

/// The steps of a nest in run order, without a place for their results.
pub(super) struct Schedule<'a> {
    pub(super) expr: &'a ExprGraph<'a>,
    pub(super) space: IterationSpace,
    pub(super) steps: Vec<UnplacedStep>,
    /// The steps that complete the outputs.
    pub(super) roots: SmallVec<[StepId; 2]>,
}

impl<'a> Schedule<'a> {
    /// Selects the steps of an expression graph.
    pub(super) fn new(
        expr: &'a ExprGraph<'a>,
        roots: &[Root],
        level: Level,
        policy: &MemoryPolicy,
    ) -> Result<Self, NoKernel> {
        let space = IterationSpace::new(expr, roots[0].access);
        let mut builder = Builder {
            expr,
            iter_space: &space,
            level,
            roots,
            policy,
            steps: Vec::new(),
            of_node: vec![None; expr.nodes.len()],
            packed: Vec::new(),
            repeated: Vec::new(),
        };
        let roots = roots.iter().map(|root| builder.root(root)).collect::<Result<_, _>>()?;
        let steps = builder.steps;
        Ok(Self { expr, space, steps, roots })
    }

    /// True if the rows of a step's result and of all its operands follow each other without a gap.
    pub(super) fn lies_flat(&self, index: StepId) -> bool {
        let Self { expr, space, steps, .. } = self;
        let step = &steps[index];
        let layout = TileLayout { expr, space, steps };
        let is_map = !step.packs()
            && !matches!(
                step.instr,
                Instr::Index { .. } | Instr::IsKept { .. } | Instr::Nibbles { .. } | Instr::Repeat { .. }
            );
        is_map
            && is_whole(step.space)
            && step.dest.is_none_or(|access| layout.follows(access))
            && step.instr.operands().into_iter().all(|operand| layout.fits(operand))
    }
}

fn is_whole(space: StepSpace) -> bool {
    space.rows && space.columns == InnerStride::Contiguous
}

/// How operands lie in a tile.
struct TileLayout<'a> {
    expr: &'a ExprGraph<'a>,
    space: &'a IterationSpace,
    steps: &'a [UnplacedStep],
}

impl TileLayout<'_> {
    /// Bytes from row to row of an access, and from element to element.
    fn strides(&self, access: AccessId) -> (isize, isize) {
        (self.space.rows.strides[access], self.space.columns.strides[access])
    }

    fn width(&self, access: AccessId) -> isize {
        self.expr.accesses[access].width.bytes() as isize
    }

    /// True if the rows of an access follow each other without a gap.
    fn follows(&self, access: AccessId) -> bool {
        let width = self.width(access);
        self.strides(access) == (width * self.space.columns.extent as isize, width)
    }

    /// True if rows of an operand follow each other without a gap, or if it is one element.
    fn fits(&self, operand: Operand) -> bool {
        match operand {
            Operand::Access(access) => self.follows(access) || self.strides(access) == (0, 0),
            Operand::Step(step) => {
                let UnplacedStep { space, dest, .. } = self.steps[step];
                let is_one = !space.rows && space.columns == InnerStride::Broadcast;
                is_one || (is_whole(space) && dest.is_none_or(|access| self.follows(access)))
            }
        }
    }

    /// True if all rows of an operand are the same one.
    fn is_row(&self, operand: Operand) -> bool {
        match operand {
            Operand::Access(access) => {
                self.strides(access) == (0, self.width(access))
                    && !matches!(self.expr.accesses[access].base, Base::Index | Base::Driver(_))
            }
            Operand::Step(step) => {
                let space = self.steps[step].space;
                !space.rows && space.columns == InnerStride::Contiguous
            }
        }
    }
}

/// The steps that only one branch of a select needs, which starts at step `first`.
pub(super) fn skippable(
    steps: &[UnplacedStep],
    roots: &[StepId],
    select: StepId,
    first: StepId,
) -> impl Iterator<Item = StepId> {
    let inside = reached(steps, [first], |_, _| true);
    let without = reached(steps, roots.iter().copied(), |user, used| (user, used) != (select, first));
    StepId::all(steps.len()).filter(move |&step| inside.contains(step) && !without.contains(step))
}

/// The steps that a skippable branch of a select needs, and others too.
pub(super) fn conditional_users(steps: &[UnplacedStep], roots: &[StepId]) -> StepSet {
    let mut conditional = StepSet::none_of(steps.len());
    for (index, step) in StepId::all(steps.len()).zip(steps) {
        let Instr::Select(select) = &step.instr else { continue };
        for first in select.computed_branches() {
            let inside = reached(steps, [first], |_, _| true);
            let without = reached(steps, roots.iter().copied(), |user, used| (user, used) != (index, first));
            let both = |&step: &StepId| inside.contains(step) && without.contains(step);
            conditional.extend(StepId::all(steps.len()).filter(both));
        }
    }
    conditional
}

/// The steps that some steps need, including themselves, along the uses that are followed.
pub(super) fn reached(
    steps: &[UnplacedStep],
    from: impl IntoIterator<Item = StepId>,
    follow: impl Fn(StepId, StepId) -> bool,
) -> StepSet {
    let mut seen = StepSet::none_of(steps.len());
    let mut open: Vec<StepId> = from.into_iter().collect();
    while let Some(index) = open.pop() {
        if seen.insert(index) {
            open.extend(steps[index].instr.deps().filter(|&used| follow(index, used)));
        }
    }
    seen
}

struct Builder<'a> {
    expr: &'a ExprGraph<'a>,
    iter_space: &'a IterationSpace,
    level: Level,
    roots: &'a [Root],
    policy: &'a MemoryPolicy,
    /// The steps so far, in run order if none is skipped.
    steps: Vec<UnplacedStep>,
    /// The step of each node, if it has one by now.
    of_node: Vec<Option<StepId>>,
    /// Packed accesses, and the steps that pack them.
    packed: Vec<(AccessId, StepId)>,
    /// Operands of one row, and the steps that repeat them for a tile.
    repeated: Vec<(Operand, StepId)>,
}

/// Elements of a nest's rows from which on a row is repeated often enough.
const REPEATED: usize = 1024;

/// Bytes of a row from which on its parts of cache lines hardly count.
const SHORT_ROW: usize = 512;

/// True if rows fill the blocks of kernels badly, so that a step goes faster along a tile as one row, with
/// its operands of one row repeated (decision: repeated-rows).
fn leaves_blocks_empty(columns: usize, level: Level) -> bool {
    columns.next_multiple_of(fused::block_len(level)) > columns + columns / 8
}

impl Builder<'_> {
    /// The inner stride of an access; `None` if the operand has to be packed.
    fn inner(&self, access: AccessId) -> Option<InnerStride> {
        let width = self.expr.accesses[access].width.bytes() as isize;
        match self.iter_space.columns.strides[access] {
            _ if self.iter_space.columns.extent == 1 => Some(InnerStride::Contiguous),
            0 => Some(InnerStride::Broadcast),
            step if step == width => Some(InnerStride::Contiguous),
            _ => None,
        }
    }

    /// True if an access goes through indices, which no memory holds.
    fn is_index(&self, access: AccessId) -> bool {
        self.expr.accesses[access].base == Base::Index
    }

    /// Location of an operand, and its inner stride.
    fn operand(&mut self, operand: ExprRef) -> Result<(Operand, InnerStride), NoKernel> {
        Ok(match operand {
            ExprRef::Node(node) => {
                let step = self.of_node[node.0].ok_or(NoKernel(self.expr.nodes[node].op))?;
                (Operand::Step(step), self.steps[step].space.columns)
            }
            ExprRef::AxisAccess(access) if self.is_index(access) => {
                (Operand::Access(access), InnerStride::Contiguous)
            }
            ExprRef::AxisAccess(access) => match self.inner(access) {
                Some(inner) => (Operand::Access(access), inner),
                None => (Operand::Step(self.pack_tile(access)), InnerStride::Contiguous),
            },
        })
    }

    /// Stride from row to row of an operand of one element a row; `None` if there are gaps.
    fn down(&self, operand: Operand) -> Option<InnerStride> {
        match operand {
            Operand::Step(step) => Some(if self.steps[step].space.rows {
                InnerStride::Contiguous
            } else {
                InnerStride::Broadcast
            }),
            Operand::Access(access) => match self.iter_space.rows.strides[access] {
                0 => Some(InnerStride::Broadcast),
                row_stride if row_stride == self.expr.accesses[access].width.bytes() as isize => {
                    Some(InnerStride::Contiguous)
                }
                _ => None,
            },
        }
    }

    fn pack_tile(&mut self, access: AccessId) -> StepId {
        if let Some(&(_, step)) = self.packed.iter().find(|(packed, _)| *packed == access) {
            return step;
        }
        let width = self.expr.accesses[access].width;
        let prefetch_columns = self.policy.prefetch_columns(width);
        let distance = self.iter_space.columns.strides[access].saturating_mul(prefetch_columns);
        let instr = Instr::PackTile { from: access, distance, kernel: pack::pack_tile(self.level, width) };
        let varies = match self.expr.accesses[access].base {
            Base::Driver(_) => self.iter_space.all(),
            _ => self.iter_space.varies(access),
        };
        let cost = select_kernel::PACK_COST;
        let step = self.push(self.to_scratch(StepLabel::PackTile, instr, width, varies, cost));
        self.packed.push((access, step));
        step
    }

    /// Puts repeated rows in place of operands of one row, if rows are short and the step then goes along a
    /// tile as one row.
    fn repeat_rows(&mut self, operands: &mut Operands, dest: Option<AccessId>) {
        let Self { expr, iter_space: space, ref steps, .. } = *self;
        let (rows, columns) = (space.rows.extent, space.columns.extent);
        let is_worth_it = rows > 1
            && columns > 1
            && rows.saturating_mul(columns) >= REPEATED
            && leaves_blocks_empty(columns, self.level);
        if expr.driver.is_some() || !is_worth_it {
            return;
        }
        let layout = TileLayout { expr, space, steps };
        let goes_flat = dest.is_none_or(|access| layout.follows(access))
            && operands.iter().all(|&(operand, _)| layout.fits(operand) || layout.is_row(operand));
        let rows: SmallVec<[bool; 3]> =
            operands.iter().map(|&(operand, _)| goes_flat && layout.is_row(operand)).collect();
        for ((operand, _), _) in operands.iter_mut().zip(rows).filter(|&(_, is_row)| is_row) {
            *operand = Operand::Step(self.repeated(*operand));
        }
    }

    fn repeated(&mut self, from: Operand) -> StepId {
        if let Some(&(_, step)) = self.repeated.iter().find(|(operand, _)| *operand == from) {
            return step;
        }
        let (width, varies) = match from {
            Operand::Access(access) => (self.expr.accesses[access].width, self.iter_space.varies(access)),
            Operand::Step(step) => (self.steps[step].width, self.steps[step].varies),
        };
        // The rows are those of a tile, which is cut later.
        let instr = Instr::Repeat { from, width, rows: 0 };
        let step = self.to_scratch(StepLabel::Repeat, instr, width, varies, select_kernel::COPY_COST);
        let space = StepSpace { rows: true, columns: InnerStride::Contiguous };
        let step = self.push(UnplacedStep { space, ..step });
        self.repeated.push((from, step));
        step
    }

    fn push(&mut self, step: UnplacedStep) -> StepId {
        self.steps.push(step);
        StepId(self.steps.len() - 1)
    }

    /// A step that goes through its part of the tile row by row, to scratch.
    fn to_scratch(
        &self,
        label: StepLabel,
        instr: Instr,
        width: Width,
        varies: u32,
        cost: usize,
    ) -> UnplacedStep {
        UnplacedStep {
            labels: smallvec![label],
            instr,
            dest: None,
            width,
            space: self.iter_space.space(varies),
            traversal: Traversal::RowByRow,
            varies,
            cost,
            stores: StorePolicy::Temporal,
            fusible: None,
        }
    }

    /// Makes the step of a node, if that has none, behind those of its operands.
    fn node(&mut self, index: NodeId) -> Result<(), NoKernel> {
        let mut open = vec![index];
        while let Some(&node) = open.last() {
            if self.of_node[node.0].is_none() {
                if let Some(operand) = self.missing(node) {
                    open.push(operand);
                    continue;
                }
                self.make_node(node)?;
            }
            open.pop();
        }
        Ok(())
    }

    /// The first operand of a node that has no step yet; those before it that have to be packed are.
    fn missing(&mut self, index: NodeId) -> Option<NodeId> {
        let expr = self.expr;
        let node = &expr.nodes[index];
        node.operands.iter().find_map(|&operand| match operand {
            ExprRef::Node(node) => self.of_node[node.0].is_none().then_some(node),
            ExprRef::AxisAccess(access) => {
                if !self.is_index(access) && self.inner(access).is_none() {
                    self.pack_tile(access);
                }
                None
            }
        })
    }

    /// Makes the step of a node whose operands have theirs.
    fn make_node(&mut self, index: NodeId) -> Result<(), NoKernel> {
        let node = &self.expr.nodes[index];
        let varies = self.iter_space.node_varies(node.varies);
        let is_index = matches!(node.op, ScalarOp::Index | ScalarOp::IsKept | ScalarOp::Nibbles(_));
        let mut operands: Operands =
            node.operands.iter().map(|&operand| self.operand(operand)).collect::<Result<_, _>>()?;
        // If all operands are repeated along a row, one element a row is computed; if these elements follow
        // each other, the elements of all rows are computed as one row.
        let space = self.iter_space.space(varies);
        let is_computed = operands.iter().skip(1).any(|(operand, _)| operand.step().is_some());
        if is_whole(space) && !is_index {
            let dest = self.writes(index, varies).map(|root| root.access);
            self.repeat_rows(&mut operands, dest);
        }
        let down = || {
            operands
                .iter()
                .map(|&(operand, _)| Some((operand, self.down(operand)?)))
                .collect::<Option<Operands>>()
        };
        let (operands, traversal) = match space.columns {
            InnerStride::Contiguous => (operands, Traversal::RowByRow),
            InnerStride::Broadcast => match down().filter(|_| space.rows && !is_index) {
                Some(down) => (down, Traversal::Column),
                None => (
                    operands.iter().map(|&(operand, _)| (operand, InnerStride::Contiguous)).collect(),
                    Traversal::RowByRow,
                ),
            },
        };
        let writes = self.writes(index, varies);
        let stores = writes.map_or(StorePolicy::Temporal, |root| root.stores);
        let input = |operand: Operand| match operand {
            Operand::Access(access) => self.expr.accesses[access].base.input(self.expr.inputs()),
            Operand::Step(_) => None,
        };
        // A result in scratch is computed tile by tile, and its operands were mostly read by then.
        let packs = self.steps.iter().any(UnplacedStep::packs);
        let distance = |operand: Operand| match writes {
            Some(_) => self.iter_space.distance(self.expr, self.policy, packs, operand),
            None => 0,
        };
        let (mut instr, shape) =
            select_kernel::instr(node.op, node.width, &operands, self.level, stores, input, distance)?;
        if let Instr::Select(Select { classify_mask, .. }) = &mut instr
            && !is_computed
        {
            // A repeated row is not worth a test of the mask.
            *classify_mask = None;
        }
        if let Instr::Select(Select { then, else_, classify_mask, blend_rows, .. }) = &mut instr
            && [then.operand, else_.operand].into_iter().any(|branch| self.expr.is_supplied(branch))
        {
            // The driver computes an operand on request, so the request comes after the mask test.
            *classify_mask = Some(select::classify_mask(self.level));
            *blend_rows = None;
        }
        let dest = writes.map(|root| root.access);
        let cost = node.op.cost().bytes();
        let step = self.push(UnplacedStep {
            dest,
            traversal,
            stores,
            fusible: shape.map(|shape| Fusible { shape, operands }),
            ..self.to_scratch(StepLabel::ScalarOp(node.op), instr, node.width, varies, cost)
        });
        self.of_node[index.0] = Some(step);
        Ok(())
    }

    /// The root to which a node can write directly: the port takes its result, element for element. A result
    /// that is stored non-temporally needs a kernel with such stores, and may have no other reader.
    fn writes(&self, index: NodeId, varies: u32) -> Option<&Root> {
        let root = self.roots.iter().find(|root| root.value == ExprRef::Node(index))?;
        let is_non_temporal = root.stores == StorePolicy::NonTemporal;
        let is_read = || self.expr.nodes.iter().any(|node| node.operands.contains(&ExprRef::Node(index)));
        let can = match self.expr.nodes[index].op {
            ScalarOp::Select => !is_non_temporal || !is_read(),
            _ => !is_non_temporal,
        };
        let is_whole =
            varies == self.iter_space.all() && self.inner(root.access) == Some(InnerStride::Contiguous);
        (can && is_whole).then_some(root)
    }

    /// The step that completes an output whose value lies transposed in memory, without a detour through
    /// scratch; `None` if the value is another or has been packed. Rows that share cache lines are stored
    /// temporally (decision: transposed-shared-lines).
    fn transposed(&self, root: &Root) -> Option<UnplacedStep> {
        let ExprRef::AxisAccess(from) = root.value else { return None };
        let width = self.expr.accesses[from].width;
        let rows = &self.iter_space.rows;
        let is_transposed = self.inner(from).is_none() && rows.strides[from] == width.bytes() as isize;
        let is_dense = self.inner(root.access) == Some(InnerStride::Contiguous);
        let has_own_lines = rows.strides[root.access] % LINE as isize == 0;
        let is_packed = self.packed.iter().any(|(packed, _)| *packed == from);
        let stores = if has_own_lines { root.stores } else { StorePolicy::Temporal };
        (is_transposed && is_dense && !is_packed).then(|| {
            let kernel = transpose::transpose_tile(self.level, width, stores);
            let instr = Instr::PackTile { from, distance: 0, kernel };
            let (all, cost) = (self.iter_space.all(), select_kernel::PACK_COST);
            let step = self.to_scratch(StepLabel::Transpose, instr, width, all, cost);
            UnplacedStep { dest: Some(root.access), stores, ..step }
        })
    }

    /// True if rows share cache lines with their neighbours, and have few lines of their own: non-temporal
    /// stores would leave most of memory's time to the parts of lines.
    fn has_short_rows(&self, access: AccessId) -> bool {
        let IterationSpace { rows, columns, .. } = self.iter_space;
        let bytes = columns.extent.saturating_mul(self.expr.accesses[access].width.bytes());
        rows.strides[access] % LINE as isize != 0 && bytes < SHORT_ROW
    }

    /// Makes the step that completes an output.
    fn root(&mut self, root: &Root) -> Result<StepId, NoKernel> {
        let all = self.iter_space.all();
        if let ExprRef::Node(node) = root.value {
            self.node(node)?;
        }
        if let Some(transposed) = self.transposed(root) {
            return Ok(self.push(transposed));
        }
        let (mut operand, mut inner) = self.operand(root.value)?;
        if let Operand::Step(step) = operand
            && self.steps[step].dest == Some(root.access)
        {
            return Ok(step);
        }
        let width = self.expr.accesses[root.access].width;
        let is_strided = self.inner(root.access).is_none();
        let is_dense_step = match operand {
            Operand::Step(step) => self.steps[step].varies == all && self.steps[step].dest.is_none(),
            Operand::Access(_) => false,
        };
        if !is_strided || !is_dense_step {
            let stores = match is_strided || self.has_short_rows(root.access) {
                true => StorePolicy::Temporal,
                false => root.stores,
            };
            let instr = Instr::Move { from: operand, kernel: select::copy(self.level, width, inner, stores) };
            let copy = self.to_scratch(StepLabel::Copy, instr, width, all, select_kernel::COPY_COST);
            if !is_strided {
                let operands = [(operand, inner)].as_slice().into();
                let fusible = Some(Fusible { shape: StageShape::Same, operands });
                return Ok(self.push(UnplacedStep { dest: Some(root.access), stores, fusible, ..copy }));
            }
            (operand, inner) = (Operand::Step(self.push(copy)), InnerStride::Contiguous);
        }
        debug_assert_eq!(inner, InnerStride::Contiguous);
        let instr = Instr::UnpackTile { from: operand, kernel: unpack_tile(self.level, width) };
        let unpack = self.to_scratch(StepLabel::UnpackTile, instr, width, all, select_kernel::PACK_COST);
        Ok(self.push(UnplacedStep { dest: Some(root.access), ..unpack }))
    }
}
