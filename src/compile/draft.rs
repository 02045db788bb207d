//! Lowers values to steps, before loops, tiles and kernels are chosen.
//!
//! A value is had raw, in its own type, as its port or a move needs it, or in the wider type in which it is computed with:
//! f32 for bf16 and f16. A wide value has been rounded to its own type all the same: it is the raw one, widened.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::group::{Group, Made};
use crate::graph::function::Function;
use crate::kernels::Width;
use crate::kernels::pointwise::compared_in;
use crate::plan::Base;
use crate::plan::task::Task;
use crate::types::dtype::DataType;
use crate::types::shape;

/// A set of axes of a nest's index space, one bit each.
pub(super) type Axes = u16;

/// Steps of one nest, each behind those that it uses.
pub(super) struct Draft<'a> {
    group: &'a Group,
    /// Strides of the ports, in elements: inputs, then outputs.
    ports: &'a [&'a [i64]],
    /// For each value: the output from which it can be read, since an earlier nest writes it.
    written: Vec<Option<usize>>,
    /// The index space of the nest.
    pub(super) dims: &'a [i64],
    pub(super) nodes: Vec<Node>,
    pub(super) paths: Vec<Path>,
    /// Constants of the nest, and how many there are in nests before it.
    pub(super) constants: Vec<[u8; 8]>,
    constants_before: usize,
    /// Where what has been asked for is had.
    memo: FxHashMap<Wanted, Operand>,
}

/// A value, the dim of the nest at which its first dim stands, and the form in which it is had.
type Wanted = (usize, usize, Form);

/// Where something is had, or what has to be had first.
type Had = Result<Operand, Wanted>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Form {
    Raw,
    /// In a type that holds all values of its own.
    In(DataType),
    /// As arithmetic leaves it in f32, before it is rounded to its type.
    Exact,
}

/// Where a node finds an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operand {
    /// By the index of a path.
    Path(usize),
    /// By the index of a node.
    Node(usize),
}

/// How elements of a port, of a constant or of indices are walked along the axes of the nest, in bytes or in ones.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) base: Base,
    pub(super) strides: SmallVec<[isize; 6]>,
    pub(super) width: Width,
}

/// One step, and along which axes its result varies.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) task: Task,
    pub(super) operands: SmallVec<[Operand; 3]>,
    pub(super) width: Width,
    pub(super) varies: Axes,
}

impl<'a> Draft<'a> {
    pub(super) fn new(
        group: &'a Group,
        ports: &'a [&'a [i64]],
        written: Vec<Option<usize>>,
        dims: &'a [i64],
        constants_before: usize,
    ) -> Self {
        let (nodes, paths, constants, memo) = (Vec::new(), Vec::new(), Vec::new(), FxHashMap::default());
        Self { group, ports, written, dims, nodes, paths, constants, constants_before, memo }
    }

    /// How many inputs the group has.
    pub(super) fn inputs(&self) -> usize {
        self.ports.len() - self.group.outputs.len()
    }

    /// The walk of a port by the whole index space: that of an output.
    pub(super) fn walk_output(&mut self, output: usize) -> usize {
        let port = self.inputs() + output;
        self.walk_port(port, self.group.outputs[output], 0)
    }

    /// A value in its own type, its first dim standing at dim `start` of the nest.
    pub(super) fn raw(&mut self, value: usize, start: usize) -> Operand {
        // A loop, since groups are deep and stacks of threads small.
        let mut open = Vec::new();
        loop {
            let missing = match open.last() {
                None => match self.had_raw(value, start) {
                    Ok(operand) => return operand,
                    Err(missing) => missing,
                },
                Some(&wanted) => match self.make(wanted) {
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

    /// A value in its own type, if it has been made.
    fn had_raw(&self, value: usize, start: usize) -> Had {
        self.had(value, start, Form::Raw)
    }

    /// A value in a type that holds all values of its own, if it has been made.
    fn in_type(&self, value: usize, start: usize, wanted: DataType) -> Had {
        match self.group.values[value].data_type == wanted {
            true => self.had_raw(value, start),
            false => self.had(value, start, Form::In(wanted)),
        }
    }

    fn had(&self, value: usize, start: usize, form: Form) -> Had {
        // A scalar is the same wherever it stands.
        let start = if self.group.values[value].dims.iter().all(|&dim| dim == 1) { 0 } else { start };
        let wanted = (value, start, form);
        self.memo.get(&wanted).copied().ok_or(wanted)
    }

    /// Makes a value from what has been made; adds nothing where something is missing.
    fn make(&mut self, (value, start, form): Wanted) -> Had {
        match form {
            Form::Raw => self.make_raw(value, start),
            Form::In(wanted) => self.make_wide(value, start, wanted),
            Form::Exact => self.make_exact(value, start),
        }
    }

    fn make_raw(&mut self, value: usize, start: usize) -> Had {
        let group = self.group;
        let of_type = group.values[value].data_type;
        let made = match (&group.values[value].made, self.written[value]) {
            (None, _) => return Ok(Operand::Path(self.walk_port(value, value, start))),
            (_, Some(output)) => {
                let port = self.inputs() + output;
                return Ok(Operand::Path(self.walk_port(port, value, start)));
            }
            (Some(made), None) => made,
        };
        let computes_in = made.pointwise.computes_in;
        match made.pointwise.function {
            Function::Identity => {
                let (operand, start) = made.operand(0, start);
                self.had_raw(operand, start)
            }
            Function::Unary(..) | Function::Binary(..) => {
                // What has been rounded already is not computed a second time.
                let numbers = match self.memo.get(&(value, start, Form::In(computes_in))) {
                    Some(&rounded) => rounded,
                    None => self.had(value, start, Form::Exact)?,
                };
                Ok(self.converted(numbers, computes_in, of_type))
            }
            Function::Convert => {
                let (operand, start) = made.operand(0, start);
                let from = group.values[operand].data_type;
                let through = match from {
                    DataType::Bf16 | DataType::F16 if from != of_type => DataType::F32,
                    _ => from,
                };
                let number = self.in_type(operand, start, through)?;
                Ok(self.converted(number, through, of_type))
            }
            Function::Compare(comparison) => {
                let computes_in = compared_in(computes_in).unwrap_or(computes_in);
                let mut operands = self.operands(made, start, Some(computes_in))?;
                let less = comparison.as_less();
                if less.is_some() {
                    operands.reverse();
                }
                Ok(self.node(Task::Compare(less.unwrap_or(comparison), computes_in), operands, Width::W1))
            }
            Function::Logic(logic) => {
                let operands = self.operands(made, start, None)?;
                Ok(self.node(Task::Logic(logic), operands, Width::W1))
            }
            Function::Not => {
                let operands = self.operands(made, start, None)?;
                Ok(self.node(Task::Not, operands, Width::W1))
            }
            Function::Classify(class) => {
                let operands = self.operands(made, start, Some(computes_in))?;
                Ok(self.node(Task::Classify(class, computes_in), operands, Width::W1))
            }
            Function::Sign(sign) => {
                let operands = self.operands(made, start, None)?;
                Ok(self.node(Task::Sign(sign), operands, width_of(of_type)))
            }
            Function::Select => {
                let operands = self.operands(made, start, None)?;
                Ok(self.node(Task::Select, operands, width_of(of_type)))
            }
            Function::Index => {
                let mut strides = SmallVec::from_elem(0, self.dims.len());
                if group.values[value].dims[made.axis] != 1 {
                    strides[start + made.axis] = 1;
                }
                let path = self.path(Path { base: Base::Index, strides, width: width_of(of_type) });
                Ok(self.node(Task::Index, [Operand::Path(path)].as_slice().into(), width_of(of_type)))
            }
            Function::Fill(number) => {
                let constant = constant(number, of_type);
                let place = self.constants.iter().position(|&known| known == constant).unwrap_or_else(|| {
                    self.constants.push(constant);
                    self.constants.len() - 1
                });
                let strides = SmallVec::from_elem(0, self.dims.len());
                Ok(Operand::Path(self.path(Path {
                    base: Base::Constant(self.constants_before + place),
                    strides,
                    width: width_of(of_type),
                })))
            }
        }
    }

    fn make_wide(&mut self, value: usize, start: usize, wanted: DataType) -> Had {
        let group = self.group;
        let of_type = group.values[value].data_type;
        let is_there = self.written[value].is_some() || self.memo.contains_key(&(value, start, Form::Raw));
        let made = group.values[value].made.as_ref().filter(|_| !is_there && wanted == DataType::F32);
        // An f32 that has yet to be rounded is rounded without a detour through its type.
        let unrounded = made.and_then(|made| match made.pointwise.function {
            Function::Unary(..) | Function::Binary(..) if made.pointwise.computes_in == DataType::F32 => {
                Some(self.had(value, start, Form::Exact))
            }
            Function::Convert if is_float(group.values[made.operands[0].0].data_type) => {
                let (operand, start) = made.operand(0, start);
                Some(self.in_type(operand, start, DataType::F32))
            }
            _ => None,
        });
        let unrounded = unrounded.transpose()?;
        match (unrounded, made.map(|made| (made, made.pointwise.function))) {
            (Some(number), _) => Ok(self.node(Task::Round(of_type), [number].as_slice().into(), Width::W4)),
            (None, Some((made, Function::Identity))) => {
                let (operand, start) = made.operand(0, start);
                self.in_type(operand, start, wanted)
            }
            _ => {
                let raw = self.had_raw(value, start)?;
                Ok(self.converted(raw, of_type, wanted))
            }
        }
    }

    /// The result of arithmetic as it comes out of it.
    fn make_exact(&mut self, value: usize, start: usize) -> Had {
        let Some(made) = &self.group.values[value].made else { return self.had_raw(value, start) };
        let computes_in = made.pointwise.computes_in;
        let task = match made.pointwise.function {
            Function::Unary(unary, params) => Task::Unary(unary, params),
            Function::Binary(binary, params) => Task::Binary(binary, params, computes_in),
            _ => return self.had_raw(value, start),
        };
        let operands = self.operands(made, start, Some(computes_in))?;
        Ok(self.node(task, operands, width_of(computes_in)))
    }

    /// The operands of a function, in a type or raw.
    fn operands(
        &self,
        made: &Made,
        start: usize,
        wanted: Option<DataType>,
    ) -> Result<SmallVec<[Operand; 3]>, Wanted> {
        let operands = 0..made.operands.len();
        operands
            .map(|index| {
                let (operand, start) = made.operand(index, start);
                match wanted {
                    Some(wanted) => self.in_type(operand, start, wanted),
                    None => self.had_raw(operand, start),
                }
            })
            .collect()
    }

    fn converted(&mut self, operand: Operand, from: DataType, to: DataType) -> Operand {
        match from == to {
            true => operand,
            false => self.node(Task::Convert(from, to), [operand].as_slice().into(), width_of(to)),
        }
    }

    fn node(&mut self, task: Task, operands: SmallVec<[Operand; 3]>, width: Width) -> Operand {
        let varies = operands.iter().fold(0, |varies, &operand| varies | self.varies(operand));
        self.nodes.push(Node { task, operands, width, varies });
        Operand::Node(self.nodes.len() - 1)
    }

    /// The axes along which an operand is not the same.
    pub(super) fn varies(&self, operand: Operand) -> Axes {
        match operand {
            Operand::Node(node) => self.nodes[node].varies,
            Operand::Path(path) => {
                let strides = self.paths[path].strides.iter().enumerate();
                strides.filter(|&(_, &stride)| stride != 0).fold(0, |axes, (axis, _)| axes | 1 << axis)
            }
        }
    }

    fn walk_port(&mut self, port: usize, value: usize, start: usize) -> usize {
        let value = &self.group.values[value];
        let width = width_of(value.data_type);
        let elements = shape::walk_strides(&value.dims, self.ports[port], self.dims, start);
        let strides = elements.iter().map(|&stride| stride as isize * width.bytes() as isize).collect();
        self.path(Path { base: Base::Port(port), strides, width })
    }

    fn path(&mut self, path: Path) -> usize {
        self.paths.iter().position(|known| *known == path).unwrap_or_else(|| {
            self.paths.push(path);
            self.paths.len() - 1
        })
    }
}

fn width_of(data_type: DataType) -> Width {
    data_type.size().and_then(Width::of).expect("pointwise ops take types of whole bytes")
}

fn is_float(data_type: DataType) -> bool {
    matches!(data_type, DataType::F32 | DataType::Bf16 | DataType::F16)
}

/// The bytes of a number in a type, padded with zeros.
fn constant(number: f32, of_type: DataType) -> [u8; 8] {
    let mut bytes = [0; 8];
    let mut put = |element: &[u8]| bytes[..element.len()].copy_from_slice(element);
    match of_type {
        // To its own type a number keeps every bit; otherwise a NaN becomes the one that conversions give.
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
