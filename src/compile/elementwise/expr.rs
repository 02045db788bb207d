//! Lowers values to an expression graph, before loops, tiles and kernels are chosen.
//!
//! A value exists in storage form (its own type) and, if arithmetic needs it, in compute form (f32 for bf16
//! and f16), already rounded to its type, so widening is exact.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::driver_space::DriverSpace;
use super::group::{GroupValue, Moved, ShapedGroup, Stored, ValueDef};
use super::view::{Obstacle, View};
use crate::graph::function::Function;
use crate::kernels::Width;
use crate::plan::scalar_op::ScalarOp;
use crate::plan::{AccessId, Base, OfValues, Operand, ValueId, indexed_by};
use crate::types::dtype::DataType;
use crate::types::function::computes_in_f32;
use crate::types::shape::{self, Dims, SaturatingProduct};

/// A set of axes of a nest's index space, one bit each.
pub(super) type Axes = u16;

/// The expressions of one nest, each after its operands.
pub(super) struct ExprGraph<'a> {
    group: &'a ShapedGroup,
    /// For each value the tensor from which it can be read, if it is an input or was written before.
    stored: OfValues<Option<Stored<'a>>>,
    /// The index space of the nest.
    pub(super) dims: Dims,
    /// The index space and the slots of a driver, if a driver gives them.
    pub(super) driver: Option<&'a DriverSpace>,
    /// The axes along which the operand of a driver's slot varies.
    driver_axes: SmallVec<[(usize, Axes); 2]>,
    /// The views of values so far.
    views: Vec<View>,
    pub(super) nodes: Vec<ExprNode>,
    pub(super) accesses: Vec<AxisAccess>,
    /// Constants of this nest in words, and the number of words of earlier nests.
    pub(super) constants: Vec<[u8; 8]>,
    constants_before: usize,
    /// The values built so far.
    memo: FxHashMap<Wanted, ExprRef>,
}

/// Most views of computed values in a nest: each computes the value anew.
const MAX_VIEWS: usize = 32;

/// One of the views of an expression graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ViewId(usize);

/// A node of an expression graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeId(pub(super) usize);

indexed_by! {
    Vec<View>, ViewId, View;
    Vec<ExprNode>, NodeId, ExprNode;
    Vec<AxisAccess>, AccessId, AxisAccess;
}

/// A value, its view, and its representation.
type Wanted = (ValueId, ViewId, Repr);

/// A built value, or the reason why it cannot be built yet.
type Built = Result<ExprRef, Blocked>;

#[derive(Debug, Clone, Copy)]
enum Blocked {
    /// A value has to be built before.
    Missing(Wanted),
    Obstacle(NestObstacle),
}

/// Why no nest over an index space computes a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum NestObstacle {
    /// An axis has to be split for a value, with a number of iterations inside.
    Split { axis: usize, inner: i64, of: ValueId },
    /// The nest has to be cut at an iteration of an axis.
    Cut { axis: usize, at: i64 },
    /// A value has to be stored before, because no strides lead to its elements.
    Store(ValueId),
}

impl NestObstacle {
    /// The obstacle of a view of a value.
    fn of(obstacle: Obstacle, value: ValueId) -> Self {
        match obstacle {
            Obstacle::Split { axis, inner } => Self::Split { axis, inner, of: value },
            Obstacle::Cut { axis, at } => Self::Cut { axis, at },
            Obstacle::Inexpressible => Self::Store(value),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Repr {
    Storage,
    /// In a type that holds all values of the value's own type.
    Compute(DataType),
    /// The f32 result of arithmetic, before it is rounded to the value's type.
    Unrounded,
}

/// An operand of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExprRef {
    /// An access.
    AxisAccess(AccessId),
    /// A node.
    Node(NodeId),
}

/// Access to a port, a constant or indices: strides along the axes of the nest, in bytes or, for indices, in
/// ones.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AxisAccess {
    pub(super) base: Base,
    /// From the start of the base to the first element.
    pub(super) offset: isize,
    pub(super) strides: SmallVec<[isize; 6]>,
    pub(super) width: Width,
}

/// An expression, and the axes along which its result varies.
#[derive(Debug)]
pub(super) struct ExprNode {
    pub(super) op: ScalarOp,
    pub(super) operands: SmallVec<[ExprRef; 3]>,
    pub(super) width: Width,
    pub(super) varies: Axes,
}

impl<'a> ExprGraph<'a> {
    pub(super) fn new(
        group: &'a ShapedGroup,
        stored: OfValues<Option<Stored<'a>>>,
        dims: Dims,
        driver: Option<&'a DriverSpace>,
        constants_before: usize,
    ) -> Self {
        Self {
            group,
            stored,
            dims,
            driver,
            driver_axes: SmallVec::new(),
            views: Vec::new(),
            nodes: Vec::new(),
            accesses: Vec::new(),
            constants: Vec::new(),
            constants_before,
            memo: FxHashMap::default(),
        }
    }

    /// Number of inputs of the group.
    pub(super) fn inputs(&self) -> usize {
        self.group.inputs
    }

    /// A view of a value in storage form.
    pub(super) fn storage(&mut self, value: ValueId, view: View) -> Result<ExprRef, NestObstacle> {
        let view = self.view(view);
        // A loop instead of recursion, because groups are deep and stacks of threads small.
        let mut open = Vec::new();
        loop {
            let blocked = match open.last() {
                None => match self.built_storage(value, view) {
                    Ok(operand) => return Ok(operand),
                    Err(blocked) => blocked,
                },
                Some(&wanted) => match self.build(wanted) {
                    Ok(operand) => {
                        self.memo.insert(wanted, operand);
                        open.pop();
                        continue;
                    }
                    Err(blocked) => blocked,
                },
            };
            match blocked {
                Blocked::Missing(wanted) => open.push(wanted),
                Blocked::Obstacle(obstacle) => return Err(obstacle),
            }
        }
    }

    /// The number of a view.
    fn view(&mut self, view: View) -> ViewId {
        ViewId(self.views.iter().position(|known| *known == view).unwrap_or_else(|| {
            self.views.push(view);
            self.views.len() - 1
        }))
    }

    /// An operand of a value, and the view of it.
    fn operand(&mut self, value: ValueId, index: usize, view: ViewId) -> Result<(ValueId, ViewId), Blocked> {
        let group = self.group;
        let Some(def) = &group.values[value].def else { return Ok((value, view)) };
        if let Some(Moved::Concatenated { axis, firsts }) = &def.moved {
            let dims = &group.values[value].dims;
            let (index, view) = self.views[view]
                .concatenated(dims, *axis, firsts, &self.dims)
                .map_err(|obstacle| Blocked::Obstacle(NestObstacle::of(obstacle, value)))?;
            return self.new_view(def.operands[index].0, view);
        }
        let (operand, start) = def.operands[index];
        if def.moved.is_none() && group.values[operand].dims == group.values[value].dims {
            // No buffer holds elements of four bits, but one can hold what is computed from them.
            if let (None, Some(stored)) = (group.values[operand].data_type.size(), self.stored[operand]) {
                let of_value = |obstacle| match obstacle {
                    NestObstacle::Store(_) => Blocked::Obstacle(NestObstacle::Store(value)),
                    other => Blocked::Obstacle(other),
                };
                self.strides(stored, operand, &self.views[view]).map_err(of_value)?;
            }
            return Ok((operand, view));
        }
        let view = group
            .operand_view(value, operand, start, &self.views[view], &self.dims)
            .map_err(|obstacle| Blocked::Obstacle(NestObstacle::of(obstacle, value)))?;
        self.new_view(operand, view)
    }

    /// A value, and its view.
    fn new_view(&mut self, value: ValueId, view: View) -> Result<(ValueId, ViewId), Blocked> {
        let known = self.views.len();
        let view = self.view(view);
        match view == ViewId(known) && known >= MAX_VIEWS && self.stored[value].is_none() {
            true => Err(Blocked::Obstacle(NestObstacle::Store(value))),
            false => Ok((value, view)),
        }
    }

    /// A value in its own type, if it has been built.
    fn built_storage(&self, value: ValueId, view: ViewId) -> Built {
        self.built(value, view, Repr::Storage)
    }

    /// A value in a type that holds all values of the value's type, if it has been built.
    fn in_type(&self, value: ValueId, view: ViewId, wanted: DataType) -> Built {
        match self.group.values[value].data_type == wanted {
            true => self.built_storage(value, view),
            false => self.built(value, view, Repr::Compute(wanted)),
        }
    }

    fn built(&self, value: ValueId, view: ViewId, repr: Repr) -> Built {
        let wanted = (value, view, repr);
        self.memo.get(&wanted).copied().ok_or(Blocked::Missing(wanted))
    }

    /// Builds a value from built ones; adds no node if one is missing.
    fn build(&mut self, (value, view, repr): Wanted) -> Built {
        match repr {
            Repr::Storage => self.build_storage(value, view),
            Repr::Compute(wanted) => self.build_compute(value, view, wanted),
            Repr::Unrounded => self.build_unrounded(value, view),
        }
    }

    fn build_storage(&mut self, value: ValueId, view: ViewId) -> Built {
        let group = self.group;
        let of_type = group.values[value].data_type;
        let def = match (&group.values[value].def, self.stored[value]) {
            (_, Some(stored)) if of_type.size().is_none() => {
                return self.nibbles(stored, value, view).map_err(Blocked::Obstacle);
            }
            (_, Some(stored)) => {
                let view = self.views[view].clone();
                let access = self.access_tensor(stored, value, &view).map_err(Blocked::Obstacle)?;
                return Ok(ExprRef::AxisAccess(access));
            }
            (None, None) => return Err(Blocked::Obstacle(NestObstacle::Store(value))),
            (Some(def), None) => def,
        };
        let computes_in = def.pointwise.computes_in;
        match def.pointwise.function {
            Function::Identity | Function::Move(_) => {
                let (operand, view) = self.operand(value, 0, view)?;
                self.built_storage(operand, view)
            }
            Function::Unary(..) | Function::Binary(..) => {
                // A value that exists in rounded form is not computed a second time.
                let numbers = match self.memo.get(&(value, view, Repr::Compute(computes_in))) {
                    Some(&rounded) => rounded,
                    None => self.built(value, view, Repr::Unrounded)?,
                };
                Ok(self.converted(numbers, computes_in, of_type))
            }
            Function::Convert => {
                let (operand, view) = self.operand(value, 0, view)?;
                let from = group.values[operand].data_type;
                let through = match from {
                    DataType::Bf16 | DataType::F16 if from != of_type => DataType::F32,
                    _ => from,
                };
                let number = self.in_type(operand, view, through)?;
                Ok(self.converted(number, through, of_type))
            }
            Function::Compare(comparison) => {
                let mut operands = self.operands(value, def, view, Some(computes_in))?;
                let less = comparison.as_less();
                if less.is_some() {
                    operands.reverse();
                }
                Ok(self.node(ScalarOp::Compare(less.unwrap_or(comparison), computes_in), operands, Width::W1))
            }
            Function::Logic(logic) => {
                let operands = self.operands(value, def, view, None)?;
                Ok(self.node(ScalarOp::Logic(logic), operands, Width::W1))
            }
            Function::Not => {
                let operands = self.operands(value, def, view, None)?;
                Ok(self.node(ScalarOp::Not, operands, Width::W1))
            }
            Function::Classify(class) => {
                let operands = self.operands(value, def, view, Some(computes_in))?;
                Ok(self.node(ScalarOp::Classify(class, computes_in), operands, Width::W1))
            }
            Function::Sign(sign) => {
                let operands = self.operands(value, def, view, None)?;
                Ok(self.node(ScalarOp::Sign(sign, of_type), operands, width_of(of_type)))
            }
            Function::Select => {
                let operands = self.operands(value, def, view, None)?;
                // Of twice the same, which a condition repeats along its dims, nothing is chosen.
                match operands[1] == operands[2] {
                    true => Ok(operands[1]),
                    false => Ok(self.node(ScalarOp::Select, operands, width_of(of_type))),
                }
            }
            Function::Index => self.build_index(value, view, def.axis),
            Function::IsKept => self.build_is_kept(value, view, def),
            Function::Fill(_) => self.build_fill(value, view, &def.constants),
        }
    }

    /// The index of each element along a dim of a value.
    fn build_index(&mut self, value: ValueId, view: ViewId, axis: usize) -> Built {
        let GroupValue { data_type, dims, .. } = &self.group.values[value];
        let of_dims = self.views[view]
            .by_dims(dims, &self.dims)
            .map_err(|obstacle| Blocked::Obstacle(NestObstacle::of(obstacle, value)))?;
        let run = &of_dims.runs[axis];
        let mut strides = SmallVec::from_elem(0, self.dims.len());
        run.terms.iter().for_each(|term| strides[term.axis] += term.step as isize);
        let (base, offset, width) = (Base::Index, run.offset as isize, width_of(*data_type));
        let access = self.access(AxisAccess { base, offset, strides, width });
        Ok(self.node(ScalarOp::Index, [ExprRef::AxisAccess(access)].as_slice().into(), width))
    }

    /// The choice of Dropout for each element, from its row-major index.
    fn build_is_kept(&mut self, value: ValueId, view: ViewId, def: &ValueDef) -> Built {
        let width = width_of(self.group.values[value].data_type);
        let (offset, linear) = self.row_major(value, view).map_err(Blocked::Obstacle)?;
        let strides = linear.into_iter().map(|stride| stride as isize).collect();
        let index = AxisAccess { base: Base::Index, offset: offset as isize, strides, width };
        let index = ExprRef::AxisAccess(self.access(index));
        let parameters = self.operands(value, def, view, None)?;
        Ok(self.node(ScalarOp::IsKept, [index].into_iter().chain(parameters).collect(), width))
    }

    /// The elements of a constant: one for all, or one each.
    fn build_fill(&mut self, value: ValueId, view: ViewId, constants: &[f32]) -> Built {
        let of_type = self.group.values[value].data_type;
        let width = width_of(of_type);
        let bytes = |elements: i64| elements as isize * width.bytes() as isize;
        let (offset, strides) = match constants {
            [_] => (0, SmallVec::from_elem(0, self.dims.len())),
            _ => {
                let (offset, elements) = self.row_major(value, view).map_err(Blocked::Obstacle)?;
                (bytes(offset), elements.into_iter().map(bytes).collect())
            }
        };
        let words = words(constants, of_type);
        let known = self.constants.windows(words.len().max(1)).position(|known| *known == words);
        let index = known.unwrap_or_else(|| {
            self.constants.extend(words);
            self.constants.len() - constants.len().div_ceil(8 / width.bytes())
        });
        let base = Base::Constant(self.constants_before + index);
        Ok(ExprRef::AxisAccess(self.access(AxisAccess { base, offset, strides, width })))
    }

    fn build_compute(&mut self, value: ValueId, view: ViewId, wanted: DataType) -> Built {
        let group = self.group;
        let of_type = group.values[value].data_type;
        let is_there = self.stored[value].is_some() || self.memo.contains_key(&(value, view, Repr::Storage));
        let def = group.values[value].def.as_ref().filter(|_| !is_there && wanted == DataType::F32);
        // An f32 that is not rounded yet is rounded directly, without a detour through its storage type.
        let unrounded = match def.map(|def| (def, def.pointwise.function)) {
            Some((def, Function::Unary(..) | Function::Binary(..)))
                if def.pointwise.computes_in == DataType::F32 =>
            {
                Some(self.built(value, view, Repr::Unrounded)?)
            }
            Some((def, Function::Convert))
                if computes_in_f32(of_type) && computes_in_f32(group.values[def.operands[0].0].data_type) =>
            {
                let (operand, view) = self.operand(value, 0, view)?;
                Some(self.in_type(operand, view, DataType::F32)?)
            }
            _ => None,
        };
        match (unrounded, def.map(|def| def.pointwise.function)) {
            (Some(number), _) => {
                Ok(self.node(ScalarOp::Round(of_type), [number].as_slice().into(), Width::W4))
            }
            (None, Some(Function::Identity | Function::Move(_))) => {
                let (operand, view) = self.operand(value, 0, view)?;
                self.in_type(operand, view, wanted)
            }
            _ => {
                let storage = self.built_storage(value, view)?;
                Ok(self.converted(storage, of_type, wanted))
            }
        }
    }

    /// The unrounded result of arithmetic.
    fn build_unrounded(&mut self, value: ValueId, view: ViewId) -> Built {
        let group = self.group;
        let Some(def) = &group.values[value].def else { return self.built_storage(value, view) };
        let computes_in = def.pointwise.computes_in;
        let op = match def.pointwise.function {
            Function::Unary(unary, params) => ScalarOp::Unary(unary, params, computes_in),
            Function::Binary(binary, params) => ScalarOp::Binary(binary, params, computes_in),
            _ => return self.built_storage(value, view),
        };
        let operands = self.operands(value, def, view, Some(computes_in))?;
        Ok(self.node(op, operands, width_of(computes_in)))
    }

    /// The operands of a function, in a type or in storage form.
    fn operands(
        &mut self,
        value: ValueId,
        def: &ValueDef,
        view: ViewId,
        wanted: Option<DataType>,
    ) -> Result<SmallVec<[ExprRef; 3]>, Blocked> {
        let operands = 0..def.operands.len();
        operands
            .map(|index| {
                let (operand, view) = self.operand(value, index, view)?;
                match wanted {
                    Some(wanted) => self.in_type(operand, view, wanted),
                    None => self.built_storage(operand, view),
                }
            })
            .collect()
    }

    fn converted(&mut self, operand: ExprRef, from: DataType, to: DataType) -> ExprRef {
        let from = stored_as(from);
        match from == to {
            true => operand,
            false => self.node(ScalarOp::Convert(from, to), [operand].as_slice().into(), width_of(to)),
        }
    }

    fn node(&mut self, op: ScalarOp, operands: SmallVec<[ExprRef; 3]>, width: Width) -> ExprRef {
        let varies = operands.iter().fold(0, |varies, &operand| varies | self.varies(operand));
        self.nodes.push(ExprNode { op, operands, width, varies });
        ExprRef::Node(NodeId(self.nodes.len() - 1))
    }

    /// The axes along which an operand varies.
    pub(super) fn varies(&self, operand: ExprRef) -> Axes {
        match operand {
            ExprRef::Node(node) => self.nodes[node].varies,
            ExprRef::AxisAccess(access) => {
                let AxisAccess { base, strides, .. } = &self.accesses[access];
                if let Base::Driver(slot) = *base {
                    let axes = self.driver_axes.iter().find(|(known, _)| *known == slot);
                    return axes.map_or(0, |&(_, axes)| axes);
                }
                let strides = strides.iter().enumerate();
                strides.filter(|&(_, &stride)| stride != 0).fold(0, |axes, (axis, _)| axes | 1 << axis)
            }
        }
    }

    /// True if a driver supplies an operand.
    pub(super) fn is_supplied(&self, operand: Operand) -> bool {
        matches!(operand, Operand::Access(access) if matches!(self.accesses[access].base, Base::Driver(_)))
    }

    /// Number of elements of a value that varies along some axes.
    pub(super) fn elements(&self, varies: Axes) -> usize {
        let varying = self.dims.iter().enumerate().filter(|(axis, _)| varies & 1 << axis != 0);
        varying.map(|(_, &dim)| dim as usize).saturating_product()
    }

    /// The port that an operand accesses.
    pub(super) fn port(&self, operand: ExprRef) -> Option<usize> {
        match operand {
            ExprRef::AxisAccess(access) => match self.accesses[access].base {
                Base::Port(port) => Some(port),
                _ => None,
            },
            ExprRef::Node(_) => None,
        }
    }

    /// The access of a view of a value that is stored.
    pub(super) fn access_tensor(
        &mut self,
        stored: Stored<'a>,
        value: ValueId,
        view: &View,
    ) -> Result<AccessId, NestObstacle> {
        let width = width_of(self.group.values[value].data_type);
        if let (Base::Driver(slot), Some(driver)) = (stored.base, self.driver) {
            let varies = self.supplied_axes(value, view)?;
            if self.driver_axes.iter().all(|(known, _)| *known != slot) {
                self.driver_axes.push((slot, varies));
            }
            let strides = driver.strides(slot, |axis| varies & 1 << axis != 0);
            return Ok(self.access(AxisAccess { base: stored.base, offset: 0, strides, width }));
        }
        let (offset, elements) = self.strides(stored, value, view)?;
        let bytes = |elements: i64| elements as isize * width.bytes() as isize;
        let strides = elements.iter().map(|&stride| bytes(stride)).collect();
        Ok(self.access(AxisAccess { base: stored.base, offset: bytes(offset), strides, width }))
    }

    /// The axes along which a value varies that a driver supplies. It is a value over the space, or its dims
    /// are the last axes of the space, or are 1, because a tile of it lies at the rows and columns of the
    /// tile.
    fn supplied_axes(&self, value: ValueId, view: &View) -> Result<Axes, NestObstacle> {
        let dims = &self.group.values[value].dims;
        if let Some(folded) = self.driver.and_then(|driver| driver.folded.as_ref())
            && *dims == folded.dims
            && *view == folded.nest_box.view()
        {
            let varying = (0..self.dims.len()).filter(|&axis| self.dims[axis] != 1);
            return Ok(varying.fold(0, |axes, axis| axes | 1 << axis));
        }
        let obstacle = NestObstacle::Store(value);
        let first = self.dims.len().checked_sub(dims.len()).ok_or(obstacle)?;
        let mut varies = 0;
        for dim in (0..dims.len()).filter(|&dim| dims[dim] != 1) {
            let mut unit = Dims::from_elem(0, dims.len());
            unit[dim] = 1;
            let (offset, along) = view.strides(dims, &unit, &self.dims).map_err(|_| obstacle)?;
            let is_own = |(axis, &stride): (usize, &i64)| stride == i64::from(axis == first + dim);
            if offset != 0 || self.dims[first + dim] != dims[dim] || !along.iter().enumerate().all(is_own) {
                return Err(obstacle);
            }
            varies |= 1 << (first + dim);
        }
        Ok(varies)
    }

    /// Offset and strides of a view of a value that is stored, in elements.
    pub(super) fn strides(
        &self,
        stored: Stored<'a>,
        value: ValueId,
        view: &View,
    ) -> Result<(i64, Dims), NestObstacle> {
        let dims = &self.group.values[value].dims;
        let dense;
        let own = match stored.strides {
            Some(strides) => strides,
            None => {
                dense = shape::own_strides(dims);
                &dense
            }
        };
        view.strides(dims, own, &self.dims).map_err(|obstacle| NestObstacle::of(obstacle, value))
    }

    /// An input of elements of four bits, widened to bytes.
    fn nibbles(&mut self, stored: Stored<'a>, value: ValueId, view: ViewId) -> Result<ExprRef, NestObstacle> {
        let (offset, elements) = self.strides(stored, value, &self.views[view])?;
        let strides = elements.into_iter().map(|stride| stride as isize).collect();
        let width = Width::W1;
        let index = self.access(AxisAccess { base: Base::Index, offset: offset as isize, strides, width });
        let still = SmallVec::from_elem(0, self.dims.len());
        let memory = self.access(AxisAccess { base: stored.base, offset: 0, strides: still, width });
        let op = ScalarOp::Nibbles(self.group.values[value].data_type);
        let operands = [index, memory].map(ExprRef::AxisAccess).as_slice().into();
        Ok(self.node(op, operands, width))
    }

    /// Offset and strides of a value whose elements follow each other in row-major order, in elements.
    fn row_major(&self, value: ValueId, view: ViewId) -> Result<(i64, Dims), NestObstacle> {
        self.strides(Stored { base: Base::Index, strides: None }, value, &self.views[view])
    }

    fn access(&mut self, access: AxisAccess) -> AccessId {
        AccessId(self.accesses.iter().position(|known| *known == access).unwrap_or_else(|| {
            self.accesses.push(access);
            self.accesses.len() - 1
        }))
    }
}

fn width_of(data_type: DataType) -> Width {
    data_type.size().and_then(Width::of).expect("pointwise ops take types of whole bytes")
}

/// The type in which elements of a type are handled: one of whole bytes.
fn stored_as(data_type: DataType) -> DataType {
    match data_type {
        DataType::S4 => DataType::S8,
        DataType::U4 => DataType::U8,
        _ => data_type,
    }
}

/// Numbers in a type, one behind the other; the last word is padded with zeros.
fn words(numbers: &[f32], of_type: DataType) -> Vec<[u8; 8]> {
    let size = width_of(of_type).bytes();
    let word = |numbers: &[f32]| {
        let mut word = [0; 8];
        for (element, &number) in word.chunks_exact_mut(size).zip(numbers) {
            element.copy_from_slice(&constant(number, of_type)[..size]);
        }
        word
    };
    numbers.chunks(8 / size).map(word).collect()
}

/// The bytes of a number in a type, padded with zeros.
fn constant(number: f32, of_type: DataType) -> [u8; 8] {
    let mut bytes = [0; 8];
    let mut put = |element: &[u8]| bytes[..element.len()].copy_from_slice(element);
    match of_type {
        // An f32 keeps every bit as f32; in any other type a NaN becomes the canonical NaN of conversions.
        DataType::F32 => put(&number.to_ne_bytes()),
        DataType::F16 if number.is_nan() => put(&half::f16::NAN.to_ne_bytes()),
        DataType::Bf16 if number.is_nan() => put(&half::bf16::NAN.to_ne_bytes()),
        DataType::F64 if number.is_nan() => put(&f64::NAN.to_ne_bytes()),
        DataType::Boolean => put(&u8::from(number != 0.0).to_ne_bytes()),
        DataType::F16 => put(&half::f16::from_f32(number).to_ne_bytes()),
        DataType::Bf16 => put(&half::bf16::from_f32(number).to_ne_bytes()),
        DataType::F64 => put(&f64::from(number).to_ne_bytes()),
        DataType::S8 => put(&(number as i8).to_ne_bytes()),
        DataType::U8 => put(&(number as u8).to_ne_bytes()),
        DataType::S16 => put(&(number as i16).to_ne_bytes()),
        DataType::U16 => put(&(number as u16).to_ne_bytes()),
        DataType::S32 => put(&(number as i32).to_ne_bytes()),
        DataType::U32 => put(&(number as u32).to_ne_bytes()),
        DataType::S64 => put(&(number as i64).to_ne_bytes()),
        DataType::U64 => put(&(number as u64).to_ne_bytes()),
        _ => {}
    }
    bytes
}
