//! Lowers an expression graph to a loop nest: loops, kernels, tiles and the dependencies of steps.

use smallvec::{SmallVec, smallvec};

use super::expr::{Axes, ExprGraph, ExprRef};
use super::kernel::{self, Operands};
use super::memory::MemoryPolicy;
use super::register_fusion::{self, Fusible, StageShape};
use super::tile;
use crate::kernels::{InnerStride, StorePolicy, Width, pack, select};
use crate::plan::loops::{Loop, Role, Strides, normalise};
use crate::plan::scalar_op::{ScalarOp, StepLabel};
use crate::plan::{Instr, LoopNest, Operand, StepSpace, Traversal};
use crate::types::kind::Level;
use crate::types::shape;

/// An output of a nest.
pub(super) struct Root {
    /// Its access.
    pub(super) access: usize,
    /// The value written there.
    pub(super) value: ExprRef,
    pub(super) stores: StorePolicy,
}

/// A step that has no place in scratch yet.
pub(super) struct UnplacedStep {
    /// What the step does; see [`Step::labels`](crate::plan::Step::labels).
    pub(super) labels: SmallVec<[StepLabel; 1]>,
    pub(super) instr: Instr,
    /// The access of the port that it writes; `None` for scratch.
    pub(super) port: Option<usize>,
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
    /// Whether it packs an operand or unpacks a result; tiles are then short pieces of rows.
    pub(super) fn packs(&self) -> bool {
        matches!(self.instr, Instr::PackTile { .. } | Instr::UnpackTile { .. })
    }
}

/// The loops of a nest, and the strides along each.
pub(super) struct IterationSpace {
    /// All loops but the two innermost.
    pub(super) outer: SmallVec<[Loop; 4]>,
    pub(super) rows: Loop,
    pub(super) columns: Loop,
    accesses: usize,
    masks: SmallVec<[Axes; 4]>,
}

impl IterationSpace {
    /// Merges loops as far as accesses and steps allow; the innermost loop runs along the memory of the first
    /// root's access.
    fn new(expr: &ExprGraph<'_>, roots: &[Root]) -> Self {
        let dims = expr.dims;
        let result = &expr.accesses[roots[0].access].strides;
        let order =
            shape::memory_order(dims, &result.iter().map(|&stride| stride as i64).collect::<Vec<_>>());
        let mut masks: SmallVec<[Axes; 4]> = SmallVec::new();
        for node in &expr.nodes {
            if !masks.contains(&node.varies) {
                masks.push(node.varies);
            }
        }
        // Results of steps have no strides yet. With these stand-ins, no loop along which a result varies
        // merges with one along which it does not.
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
            strides: expr
                .accesses
                .iter()
                .map(|access| access.strides[axis])
                .chain(of_masks.iter().map(|s| s[axis]))
                .collect(),
            role: Role::Spatial,
            pinned: false,
        });
        let mut outer = normalise(loops, roots[0].access);
        let once = |strides: Strides| Loop { extent: 1, strides, role: Role::Spatial, pinned: false };
        let widths = expr.accesses.iter().map(|access| access.width.bytes() as isize);
        let columns = outer.pop().unwrap_or_else(|| once(widths.chain(masks.iter().map(|_| 0)).collect()));
        let rows = outer.pop().unwrap_or_else(|| once(Strides::from_elem(0, columns.strides.len())));
        Self { outer, rows, columns, accesses: expr.accesses.len(), masks }
    }

    /// The bit of the row loop, and of the column loop, after those of the outer loops.
    pub(super) fn row_bit(&self) -> u32 {
        1 << self.outer.len()
    }

    pub(super) fn column_bit(&self) -> u32 {
        2 << self.outer.len()
    }

    fn loops(&self) -> impl DoubleEndedIterator<Item = &Loop> {
        self.outer.iter().chain([&self.rows, &self.columns])
    }

    /// The loops along which the strides are not 0, one bit each: outer loops, rows, columns.
    fn varies(&self, strides_at: usize) -> u32 {
        let moving = self.loops().enumerate().filter(|(_, l)| l.extent > 1 && l.strides[strides_at] != 0);
        moving.fold(0, |bits, (bit, _)| bits | 1 << bit)
    }

    fn node_varies(&self, varies: Axes) -> u32 {
        let mask = self.masks.iter().position(|&mask| mask == varies);
        mask.map_or(0, |mask| self.varies(self.accesses + mask))
    }

    /// All loops of more than one iteration.
    fn all(&self) -> u32 {
        let iterating = self.loops().enumerate().filter(|(_, l)| l.extent > 1);
        iterating.fold(0, |bits, (bit, _)| bits | 1 << bit)
    }

    /// Prefetch distance of an operand in bytes; 0 if it is a computed value, or the caches hold it until it is
    /// read.
    ///
    /// With transposed and
    /// channels-last operands, memory that far on in a row is some tiles away, so nests that pack prefetch
    /// the next row (decision: prefetch-next-row).
    pub(super) fn distance(
        &self,
        expr: &ExprGraph<'_>,
        policy: &MemoryPolicy,
        packs: bool,
        operand: Operand,
    ) -> isize {
        let (Operand::Access(access), distance) = (operand, policy.prefetch_distance) else { return 0 };
        if distance == 0 {
            return 0;
        }
        let is_repeated = |l: &Loop| l.extent > 1 && l.strides[access] == 0;
        let between = self.loops().rev().take_while(|l| !is_repeated(l)).map(|l| l.extent);
        let width = expr.accesses[access].width.bytes();
        let bytes = between.fold(width, usize::saturating_mul);
        if self.loops().any(is_repeated) && policy.keeps(bytes) {
            return 0;
        }
        // Rows are short and may lie apart, so a later row is prefetched.
        let rows = match distance.div_ceil(self.columns.extent.saturating_mul(width).max(1)) {
            _ if packs => 1,
            1 => return distance as isize,
            rows => rows as isize,
        };
        self.rows.strides[access].saturating_mul(rows)
    }

    fn space(&self, varies: u32) -> StepSpace {
        let columns = varies & self.column_bit() != 0 || self.columns.extent == 1;
        StepSpace {
            rows: varies & self.row_bit() != 0 || self.rows.extent == 1,
            columns: if columns { InnerStride::Contiguous } else { InnerStride::Broadcast },
        }
    }
}

/// A nest, the scratch that it needs, and the cost of all its elements.
pub(super) struct LoweredNest {
    pub(super) nest: LoopNest,
    pub(super) scratch: usize,
    pub(super) cost: usize,
}

/// Makes the nest of an expression graph; `None` if no kernel takes some type.
pub(super) fn nest(
    expr: &ExprGraph<'_>,
    roots: &[Root],
    level: Level,
    policy: &MemoryPolicy,
) -> Option<LoweredNest> {
    let iter_space = IterationSpace::new(expr, roots);
    let mut builder = Builder {
        expr,
        iter_space: &iter_space,
        level,
        roots,
        policy,
        steps: Vec::new(),
        of_node: vec![None; expr.nodes.len()],
        packed: Vec::new(),
    };
    let roots = roots.iter().map(|root| builder.root(root)).collect::<Option<SmallVec<[usize; 2]>>>()?;
    let Builder { steps, .. } = builder;
    let (steps, roots) = match steps.len() <= 2 && !policy.fuses_pairs {
        true => (steps, roots),
        false => register_fusion::fuse(expr, &iter_space, steps, roots, level, policy),
    };
    Some(tile::nest(expr, &iter_space, steps, roots, policy))
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
    of_node: Vec<Option<usize>>,
    /// Packed accesses, and the steps that pack them.
    packed: Vec<(usize, usize)>,
}

impl Builder<'_> {
    /// The inner stride of an access; `None` if the operand has to be packed.
    fn inner(&self, access: usize) -> Option<InnerStride> {
        let width = self.expr.accesses[access].width.bytes() as isize;
        match self.iter_space.columns.strides[access] {
            _ if self.iter_space.columns.extent == 1 => Some(InnerStride::Contiguous),
            0 => Some(InnerStride::Broadcast),
            step if step == width => Some(InnerStride::Contiguous),
            _ => None,
        }
    }

    /// Location of an operand, and its inner stride.
    fn operand(&mut self, operand: ExprRef) -> Option<(Operand, InnerStride)> {
        Some(match operand {
            ExprRef::Node(node) => {
                let step = self.of_node[node]?;
                (Operand::Step(step), self.steps[step].space.columns)
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

    fn pack_tile(&mut self, access: usize) -> usize {
        if let Some(&(_, step)) = self.packed.iter().find(|(packed, _)| *packed == access) {
            return step;
        }
        let width = self.expr.accesses[access].width;
        let prefetch_columns = self.policy.prefetch_columns(width);
        let distance = self.iter_space.columns.strides[access].saturating_mul(prefetch_columns);
        let instr = Instr::PackTile { from: access, distance, kernel: pack::pack_tile(self.level, width) };
        let step =
            self.push(StepLabel::PackTile, instr, width, self.iter_space.varies(access), kernel::PACK_COST);
        self.packed.push((access, step));
        step
    }

    fn push(&mut self, label: StepLabel, instr: Instr, width: Width, varies: u32, cost: usize) -> usize {
        let (labels, space) = (smallvec![label], self.iter_space.space(varies));
        let (traversal, stores) = (Traversal::RowByRow, StorePolicy::Temporal);
        self.steps.push(UnplacedStep {
            labels,
            instr,
            port: None,
            width,
            space,
            traversal,
            varies,
            cost,
            stores,
            fusible: None,
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

    /// The first operand of a node that has no step yet; those before it that have to be packed are.
    fn missing(&mut self, index: usize) -> Option<usize> {
        let expr = self.expr;
        let node = &expr.nodes[index];
        node.operands.iter().find_map(|&operand| match operand {
            ExprRef::Node(node) => self.of_node[node].is_none().then_some(node),
            ExprRef::AxisAccess(access) => {
                if node.op != ScalarOp::Index && self.inner(access).is_none() {
                    self.pack_tile(access);
                }
                None
            }
        })
    }

    /// Makes the step of a node whose operands have theirs.
    fn make_node(&mut self, index: usize) -> Option<()> {
        let node = &self.expr.nodes[index];
        let varies = self.iter_space.node_varies(node.varies);
        let is_index = node.op == ScalarOp::Index;
        let operands: Operands = match node.operands[..] {
            [ExprRef::AxisAccess(access)] if is_index => {
                [(Operand::Access(access), InnerStride::Contiguous)].as_slice().into()
            }
            _ => node.operands.iter().map(|&operand| self.operand(operand)).collect::<Option<_>>()?,
        };
        // If all operands are repeated along a row, one element a row is computed; if these elements follow
        // each other, the elements of all rows are computed as one row.
        let space = self.iter_space.space(varies);
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
        let (instr, shape) =
            kernel::instr(node.op, node.width, &operands, self.level, stores, input, distance)?;
        let port = writes.map(|root| root.access);
        let step = self.push(StepLabel::ScalarOp(node.op), instr, node.width, varies, kernel::cost(node.op));
        self.steps[step].port = port;
        self.steps[step].traversal = traversal;
        self.steps[step].stores = stores;
        self.steps[step].fusible = shape.map(|shape| Fusible { shape, operands });
        self.of_node[index] = Some(step);
        Some(())
    }

    /// The root to which a node can write directly: the port takes its result, element for element. A result
    /// that is stored non-temporally needs a kernel with such stores, and may have no other reader.
    fn writes(&self, index: usize, varies: u32) -> Option<&Root> {
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

    /// Makes the step that completes an output.
    fn root(&mut self, root: &Root) -> Option<usize> {
        let all = self.iter_space.all();
        if let ExprRef::Node(node) = root.value {
            self.node(node)?;
        }
        let (mut operand, mut inner) = self.operand(root.value)?;
        if let Operand::Step(step) = operand
            && self.steps[step].port == Some(root.access)
        {
            return Some(step);
        }
        let width = self.expr.accesses[root.access].width;
        let is_strided = self.inner(root.access).is_none();
        let is_dense_step = match operand {
            Operand::Step(step) => self.steps[step].varies == all && self.steps[step].port.is_none(),
            Operand::Access(_) => false,
        };
        if !is_strided || !is_dense_step {
            let stores = if is_strided { StorePolicy::Temporal } else { root.stores };
            let instr = Instr::Move { from: operand, kernel: select::copy(self.level, width, inner, stores) };
            let step = self.push(StepLabel::Copy, instr, width, all, kernel::COPY_COST);
            if !is_strided {
                self.steps[step].port = Some(root.access);
                self.steps[step].stores = stores;
                let operands = [(operand, inner)].as_slice().into();
                self.steps[step].fusible = Some(Fusible { shape: StageShape::Same, operands });
                return Some(step);
            }
            (operand, inner) = (Operand::Step(step), InnerStride::Contiguous);
        }
        debug_assert_eq!(inner, InnerStride::Contiguous);
        let instr = Instr::UnpackTile { from: operand, kernel: pack::unpack_tile(self.level, width) };
        let step = self.push(StepLabel::UnpackTile, instr, width, all, kernel::PACK_COST);
        self.steps[step].port = Some(root.access);
        Some(step)
    }
}
