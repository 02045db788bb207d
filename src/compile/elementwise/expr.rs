//! Lowers values to an expression graph, before loops, tiles and kernels are chosen.
//!
//! A value exists in storage form (its own type) and, if arithmetic needs it, in compute form (f32 for bf16
//! and f16), already rounded to its type, so widening is exact.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::group::{ShapedGroup, ValueDef};
use crate::graph::function::Function;
use crate::kernels::Width;
use crate::plan::Base;
use crate::plan::scalar_op::ScalarOp;
use crate::types::dtype::DataType;
use crate::types::function::computes_in_f32;
use crate::types::shape::{self, Dims};

/// A set of axes of a nest's index space, one bit each.
pub(super) type Axes = u16;

/// The expressions of one nest, each after its operands.
pub(super) struct ExprGraph<'a> {
    group: &'a ShapedGroup,
    /// Strides of the ports, in elements: inputs, then outputs.
    ports: &'a [&'a [i64]],
    /// For each value, the output from which it can be read, if an earlier nest writes it.
    written: Vec<Option<usize>>,
    /// The index space of the nest.
    pub(super) dims: &'a [i64],
    pub(super) nodes: Vec<ExprNode>,
    pub(super) accesses: Vec<AxisAccess>,
    /// Constants of this nest in words, and the number of words of earlier nests.
    pub(super) constants: Vec<[u8; 8]>,
    constants_before: usize,
    /// The values built so far.
    memo: FxHashMap<Wanted, ExprRef>,
}

/// A value, the dim of the nest at which its first dim stands, and its representation. Leading dims of 1 may
/// stand before the first dim of the nest.
type Wanted = (usize, isize, Repr);

/// A built value, or the value that has to be built before it.
type Built = Result<ExprRef, Wanted>;

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
    /// An access, by index.
    AxisAccess(usize),
    /// A node, by index.
    Node(usize),
}

/// Access to a port, a constant or indices: strides along the axes of the nest, in bytes or, for indices, in
/// ones.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AxisAccess {
    pub(super) base: Base,
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
        ports: &'a [&'a [i64]],
        written: Vec<Option<usize>>,
        dims: &'a [i64],
        constants_before: usize,
    ) -> Self {
        let (nodes, accesses, constants, memo) = (Vec::new(), Vec::new(), Vec::new(), FxHashMap::default());
        Self { group, ports, written, dims, nodes, accesses, constants, constants_before, memo }
    }

    /// Number of inputs of the group.
    pub(super) fn inputs(&self) -> usize {
        self.ports.len() - self.group.outputs.len()
    }

    /// The access of an output over the whole index space.
    pub(super) fn access_output(&mut self, output: usize) -> usize {
        let port = self.inputs() + output;
        self.access_port(port, self.group.outputs[output], 0)
    }

    /// A value in storage form; its first dim is dim `start` of the nest.
    pub(super) fn storage(&mut self, value: usize, start: isize) -> ExprRef {
        // A loop, since groups are deep and stacks of threads small.
        let mut open = Vec::new();
        loop {
            let missing = match open.last() {
                None => match self.built_storage(value, start) {
                    Ok(operand) => return operand,
                    Err(missing) => missing,
                },
                Some(&wanted) => match self.build(wanted) {
                    Ok(operand) => {
                        self.memo.insert(wanted, operand);
                        open.pop();
                        continue;
                    }
                    Err(missing) => missing,
                },
            };
            open.push(missing);
        }
    }

    /// A value in its own type, if it has been built.
    fn built_storage(&self, value: usize, start: isize) -> Built {
        self.built(value, start, Repr::Storage)
    }

    /// A value in a type that holds all values of the value's type, if it has been built.
    fn in_type(&self, value: usize, start: isize, wanted: DataType) -> Built {
        match self.group.values[value].data_type == wanted {
            true => self.built_storage(value, start),
            false => self.built(value, start, Repr::Compute(wanted)),
        }
    }

    fn built(&self, value: usize, start: isize, repr: Repr) -> Built {
        // A scalar is the same wherever it stands.
        let start = if self.group.values[value].dims.iter().all(|&dim| dim == 1) { 0 } else { start };
        let wanted = (value, start, repr);
        self.memo.get(&wanted).copied().ok_or(wanted)
    }

    /// Builds a value from built ones; changes nothing if one is missing.
    fn build(&mut self, (value, start, repr): Wanted) -> Built {
        match repr {
            Repr::Storage => self.build_storage(value, start),
            Repr::Compute(wanted) => self.build_compute(value, start, wanted),
            Repr::Unrounded => self.build_unrounded(value, start),
        }
    }

    fn build_storage(&mut self, value: usize, start: isize) -> Built {
        let group = self.group;
        let of_type = group.values[value].data_type;
        let def = match (&group.values[value].def, self.written[value]) {
            (None, _) if of_type.size().is_none() => return Ok(self.nibbles(value, start)),
            (None, _) => return Ok(ExprRef::AxisAccess(self.access_port(value, value, start))),
            (_, Some(output)) => {
                let port = self.inputs() + output;
                return Ok(ExprRef::AxisAccess(self.access_port(port, value, start)));
            }
            (Some(def), None) => def,
        };
        let computes_in = def.pointwise.computes_in;
        match def.pointwise.function {
            Function::Identity => {
                let (operand, start) = def.operand(0, start);
                self.built_storage(operand, start)
            }
            Function::Unary(..) | Function::Binary(..) => {
                // A value that exists in rounded form is not computed a second time.
                let numbers = match self.memo.get(&(value, start, Repr::Compute(computes_in))) {
                    Some(&rounded) => rounded,
                    None => self.built(value, start, Repr::Unrounded)?,
                };
                Ok(self.converted(numbers, computes_in, of_type))
            }
            Function::Convert => {
                let (operand, start) = def.operand(0, start);
                let from = group.values[operand].data_type;
                let through = match from {
                    DataType::Bf16 | DataType::F16 if from != of_type => DataType::F32,
                    _ => from,
                };
                let number = self.in_type(operand, start, through)?;
                Ok(self.converted(number, through, of_type))
            }
            Function::Compare(comparison) => {
                let mut operands = self.operands(def, start, Some(computes_in))?;
                let less = comparison.as_less();
                if less.is_some() {
                    operands.reverse();
                }
                Ok(self.node(ScalarOp::Compare(less.unwrap_or(comparison), computes_in), operands, Width::W1))
            }
            Function::Logic(logic) => {
                let operands = self.operands(def, start, None)?;
                Ok(self.node(ScalarOp::Logic(logic), operands, Width::W1))
            }
            Function::Not => {
                let operands = self.operands(def, start, None)?;
                Ok(self.node(ScalarOp::Not, operands, Width::W1))
            }
            Function::Classify(class) => {
                let operands = self.operands(def, start, Some(computes_in))?;
                Ok(self.node(ScalarOp::Classify(class, computes_in), operands, Width::W1))
            }
            Function::Sign(sign) => {
                let operands = self.operands(def, start, None)?;
                Ok(self.node(ScalarOp::Sign(sign, of_type), operands, width_of(of_type)))
            }
            Function::Select => {
                let operands = self.operands(def, start, None)?;
                Ok(self.node(ScalarOp::Select, operands, width_of(of_type)))
            }
            Function::Index => {
                let mut strides = SmallVec::from_elem(0, self.dims.len());
                if group.values[value].dims[def.axis] != 1 {
                    strides[start as usize + def.axis] = 1;
                }
                let access = self.access(AxisAccess { base: Base::Index, strides, width: width_of(of_type) });
                Ok(self.node(
                    ScalarOp::Index,
                    [ExprRef::AxisAccess(access)].as_slice().into(),
                    width_of(of_type),
                ))
            }
            Function::IsKept => {
                let linear = self.row_major_strides(value, start).into_iter().map(|stride| stride as isize);
                let index =
                    AxisAccess { base: Base::Index, strides: linear.collect(), width: width_of(of_type) };
                let index = ExprRef::AxisAccess(self.access(index));
                let parameters = self.operands(def, start, None)?;
                let operands = [index].into_iter().chain(parameters).collect();
                Ok(self.node(ScalarOp::IsKept, operands, width_of(of_type)))
            }
            Function::Fill(_) => {
                let width = width_of(of_type);
                let strides = match def.constants[..] {
                    [_] => SmallVec::from_elem(0, self.dims.len()),
                    _ => {
                        let elements = self.row_major_strides(value, start).into_iter();
                        elements.map(|stride| stride as isize * width.bytes() as isize).collect()
                    }
                };
                let words = words(&def.constants, of_type);
                let known = self.constants.windows(words.len().max(1)).position(|known| *known == words);
                let index = known.unwrap_or_else(|| {
                    self.constants.extend(words);
                    self.constants.len() - def.constants.len().div_ceil(8 / width.bytes())
                });
                let base = Base::Constant(self.constants_before + index);
                Ok(ExprRef::AxisAccess(self.access(AxisAccess { base, strides, width })))
            }
        }
    }

    fn build_compute(&mut self, value: usize, start: isize, wanted: DataType) -> Built {
        let group = self.group;
        let of_type = group.values[value].data_type;
        let is_there =
            self.written[value].is_some() || self.memo.contains_key(&(value, start, Repr::Storage));
        let def = group.values[value].def.as_ref().filter(|_| !is_there && wanted == DataType::F32);
        // An f32 that is not rounded yet is rounded directly, without a detour through its storage type.
        let unrounded = def.and_then(|def| match def.pointwise.function {
            Function::Unary(..) | Function::Binary(..) if def.pointwise.computes_in == DataType::F32 => {
                Some(self.built(value, start, Repr::Unrounded))
            }
            Function::Convert
                if computes_in_f32(of_type) && computes_in_f32(group.values[def.operands[0].0].data_type) =>
            {
                let (operand, start) = def.operand(0, start);
                Some(self.in_type(operand, start, DataType::F32))
            }
            _ => None,
        });
        let unrounded = unrounded.transpose()?;
        match (unrounded, def.map(|def| (def, def.pointwise.function))) {
            (Some(number), _) => {
                Ok(self.node(ScalarOp::Round(of_type), [number].as_slice().into(), Width::W4))
            }
            (None, Some((def, Function::Identity))) => {
                let (operand, start) = def.operand(0, start);
                self.in_type(operand, start, wanted)
            }
            _ => {
                let storage = self.built_storage(value, start)?;
                Ok(self.converted(storage, stored_as(of_type), wanted))
            }
        }
    }

    /// The unrounded result of arithmetic.
    fn build_unrounded(&mut self, value: usize, start: isize) -> Built {
        let Some(def) = &self.group.values[value].def else { return self.built_storage(value, start) };
        let computes_in = def.pointwise.computes_in;
        let op = match def.pointwise.function {
            Function::Unary(unary, params) => ScalarOp::Unary(unary, params),
            Function::Binary(binary, params) => ScalarOp::Binary(binary, params, computes_in),
            _ => return self.built_storage(value, start),
        };
        let operands = self.operands(def, start, Some(computes_in))?;
        Ok(self.node(op, operands, width_of(computes_in)))
    }

    /// The operands of a function, in a type or in storage form.
    fn operands(
        &self,
        def: &ValueDef,
        start: isize,
        wanted: Option<DataType>,
    ) -> Result<SmallVec<[ExprRef; 3]>, Wanted> {
        let operands = 0..def.operands.len();
        operands
            .map(|index| {
                let (operand, start) = def.operand(index, start);
                match wanted {
                    Some(wanted) => self.in_type(operand, start, wanted),
                    None => self.built_storage(operand, start),
                }
            })
            .collect()
    }

    fn converted(&mut self, operand: ExprRef, from: DataType, to: DataType) -> ExprRef {
        match from == to {
            true => operand,
            false => self.node(ScalarOp::Convert(from, to), [operand].as_slice().into(), width_of(to)),
        }
    }

    fn node(&mut self, op: ScalarOp, operands: SmallVec<[ExprRef; 3]>, width: Width) -> ExprRef {
        let varies = operands.iter().fold(0, |varies, &operand| varies | self.varies(operand));
        self.nodes.push(ExprNode { op, operands, width, varies });
        ExprRef::Node(self.nodes.len() - 1)
    }

    /// The axes along which an operand varies.
    pub(super) fn varies(&self, operand: ExprRef) -> Axes {
        match operand {
            ExprRef::Node(node) => self.nodes[node].varies,
            ExprRef::AxisAccess(access) => {
                let strides = self.accesses[access].strides.iter().enumerate();
                strides.filter(|&(_, &stride)| stride != 0).fold(0, |axes, (axis, _)| axes | 1 << axis)
            }
        }
    }

    /// Number of elements of a value that varies along some axes.
    pub(super) fn elements(&self, varies: Axes) -> usize {
        let varying = self.dims.iter().enumerate().filter(|(axis, _)| varies & 1 << axis != 0);
        varying.map(|(_, &dim)| dim as usize).fold(1, usize::saturating_mul)
    }

    /// The port that an operand accesses.
    fn port(&self, operand: ExprRef) -> Option<usize> {
        match operand {
            ExprRef::AxisAccess(access) => match self.accesses[access].base {
                Base::Port(port) => Some(port),
                _ => None,
            },
            ExprRef::Node(_) => None,
        }
    }

    fn access_port(&mut self, port: usize, value: usize, start: isize) -> usize {
        let value = &self.group.values[value];
        let width = width_of(value.data_type);
        let elements = shape::access_strides(&value.dims, self.ports[port], self.dims, start);
        let strides = elements.iter().map(|&stride| stride as isize * width.bytes() as isize).collect();
        self.access(AxisAccess { base: Base::Port(port), strides, width })
    }

    /// An input of elements of four bits, widened to bytes.
    fn nibbles(&mut self, value: usize, start: isize) -> ExprRef {
        let input = &self.group.values[value];
        let elements = shape::access_strides(&input.dims, self.ports[value], self.dims, start);
        let still = SmallVec::from_elem(0, self.dims.len());
        let mut access =
            |base, strides| ExprRef::AxisAccess(self.access(AxisAccess { base, strides, width: Width::W1 }));
        let index = access(Base::Index, elements.into_iter().map(|stride| stride as isize).collect());
        let memory = access(Base::Port(value), still);
        self.node(ScalarOp::Nibbles(input.data_type), [index, memory].as_slice().into(), Width::W1)
    }

    /// The strides of a value whose elements follow each other in row-major order, along the axes of the
    /// nest.
    fn row_major_strides(&self, value: usize, start: isize) -> Dims {
        let dims = &self.group.values[value].dims;
        let strides = shape::row_major_strides(dims).unwrap_or_default();
        shape::access_strides(dims, &strides, self.dims, start)
    }

    fn access(&mut self, access: AxisAccess) -> usize {
        self.accesses.iter().position(|known| *known == access).unwrap_or_else(|| {
            self.accesses.push(access);
            self.accesses.len() - 1
        })
    }
}

/// An expression graph, its index space, and its outputs: the access and the value of each.
pub(super) struct NestExpr<'a> {
    pub(super) expr: ExprGraph<'a>,
    pub(super) roots: Vec<(usize, ExprRef)>,
}

/// One expression graph for each shape of outputs, small shapes first, so that later ones can read what
/// earlier ones write.
pub(super) fn nest_exprs<'a>(group: &'a ShapedGroup, ports: &'a [&'a [i64]]) -> Vec<NestExpr<'a>> {
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

/// Bytes of the distinct elements of all ports, or `usize::MAX` if there are more: each port can be
/// addressed, all of them together need not, and elements of an input that overlap are counted each.
pub(super) fn bytes_moved(exprs: &[NestExpr<'_>]) -> usize {
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
        for node in expr.nodes.iter().filter(|node| matches!(node.op, ScalarOp::Nibbles(_))) {
            let bytes = expr.elements(node.varies).div_ceil(2);
            for port in node.operands.iter().filter_map(|&operand| expr.port(operand)) {
                let most = of_port.entry(port).or_default();
                *most = bytes.max(*most);
            }
        }
    }
    of_port.into_values().fold(0, usize::saturating_add)
}

/// Whether each row of a result leaves one branch unread, because the condition does not vary along the
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
