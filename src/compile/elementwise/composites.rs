//! Ops that are several functions of elements, one after the other: the functions, as data.
//!
//! Each part is rounded to its type, as the op's definition rounds each of its steps.

use smallvec::{SmallVec, smallvec};

use crate::error::Result;
use crate::graph::function::{Composite, Function};
use crate::graph::infer;
use crate::graph::op::{AttrValue, Op};
use crate::partition::pointwise::TypedFunction;
use crate::types::dtype::DataType;
use crate::types::function::{Binary, Unary};
use crate::types::kind::Attr;
use crate::types::shape::Dims;

/// One function of a composite.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) typed: TypedFunction,
    pub(super) data_type: DataType,
    pub(super) dims: Dims,
    /// Operands, and the dim of the part at which the first dim of each starts.
    pub(super) operands: SmallVec<[(PartOperand, isize); 3]>,
    /// The elements of a constant in row-major order; a single one is repeated.
    pub(super) constants: Vec<f32>,
}

/// An operand of a part.
#[derive(Debug, Clone, Copy)]
pub(super) enum PartOperand {
    /// An input of the op, by port.
    Input(usize),
    /// The result of an earlier part, by index.
    Part(usize),
}

/// The parts of a composite.
pub(super) struct Parts {
    pub(super) parts: Vec<Part>,
    /// For each output of the op, the part that is its value.
    pub(super) outputs: SmallVec<[usize; 2]>,
}

/// The parts of an op whose inputs have these dims; `None` if a tensor of parameters extends along more than
/// one of its dims.
pub(super) fn parts(op: &Op, composite: Composite, inputs: &[&[i64]]) -> Result<Option<Parts>> {
    let is_line = |dims: &&[i64]| dims.iter().filter(|&&dim| dim != 1).count() <= 1;
    if !inputs[1..].iter().all(is_line) {
        return Ok(None);
    }
    let expansion = Expansion { op, inputs, parts: Vec::new() };
    match composite {
        Composite::Quantize => expansion.quantize(),
        Composite::Dequantize => expansion.dequantize(),
        Composite::Dropout => expansion.dropout(),
    }
    .map(Some)
}

struct Expansion<'a> {
    op: &'a Op,
    inputs: &'a [&'a [i64]],
    parts: Vec<Part>,
}

/// An operand of a part with its start.
type Placed = (PartOperand, isize);

const SRC: Placed = (PartOperand::Input(0), 0);

impl Expansion<'_> {
    /// Divides by the scale, adds the zero point, rounds to an integer and converts.
    fn quantize(mut self) -> Result<Parts> {
        let to = self.op.outputs()[0].data_type();
        let is_integer = matches!(to, DataType::S8 | DataType::U8);
        let Scaling { scale, zero_point } = self.parameters()?;
        let mut number = self.binary(Binary::Divide, SRC, scale, DataType::F32);
        // A sum with 0 changes the sign of −0, which no integer has.
        if let Some(zero_point) = zero_point.filter(|&zero_point| !is_integer || !self.is_zero(zero_point)) {
            number = self.binary(Binary::Add, number, zero_point, DataType::F32);
        }
        if is_integer {
            number = self.float(Function::Unary(Unary::Round, [0.0; 2]), smallvec![number], DataType::F32);
        }
        let (result, _) = self.moved(Function::Convert, smallvec![number], to);
        Ok(self.giving(&[result]))
    }

    /// Subtracts the zero point and multiplies by the scale.
    fn dequantize(mut self) -> Result<Parts> {
        let to = self.op.outputs()[0].data_type();
        let Scaling { scale, zero_point } = self.parameters()?;
        let mut number = SRC;
        if let Some(zero_point) = zero_point.filter(|&zero_point| !self.is_zero(zero_point)) {
            number = self.binary(Binary::Subtract, number, zero_point, DataType::F32);
        }
        let (result, _) = self.binary(Binary::Multiply, number, scale, to);
        Ok(self.giving(&[result]))
    }

    /// Selects the scaled element or 0. If the probability is 1, the scale is ∞, and no element is kept.
    fn dropout(mut self) -> Result<Parts> {
        let (result, mask) = (self.op.outputs()[0].data_type(), DataType::U8);
        let [seed, offset, probability] = [1, 2, 3].map(|port| (PartOperand::Input(port), 0));
        let (is_kept, _) = self.moved(Function::IsKept, smallvec![seed, offset, probability], mask);
        let one = self.constant(vec![1.0], &[], DataType::F32);
        let kept = self.binary_of(&[], Binary::Subtract, one, probability, DataType::F32);
        let reciprocal = Function::Unary(Unary::Reciprocal, [0.0; 2]);
        let scale = self.push(&[], reciprocal, DataType::F32, smallvec![kept], DataType::F32);
        let scaled = self.binary(Binary::Multiply, SRC, scale, result);
        let zero = self.constant(vec![0.0], &[], result);
        let selected = self.moved(Function::Select, smallvec![(is_kept, 0), scaled, zero], result);
        Ok(self.giving(&[selected.0, is_kept]))
    }

    /// Where scales and zero points of the op are.
    fn parameters(&mut self) -> Result<Scaling> {
        let counts = infer::parameter_counts(self.op, self.inputs)?;
        // Beyond one dim, parameters are as many as channels or one.
        let axis = counts.iter().position(|&count| count != 1).unwrap_or(0);
        let (op, inputs) = (self.op, self.inputs);
        if inputs.len() > 1 {
            let zero_point = (inputs.len() > 2).then(|| self.input(2, axis));
            return Ok(Scaling { scale: self.input(1, axis), zero_point });
        }
        let scale = self.constants(op.f32s_attr(Attr::Scales).to_vec(), axis);
        let zero_point = match op.get_attr(Attr::Zps) {
            Some(AttrValue::S64s(zps)) => {
                Some(self.constants(zps.iter().map(|&zp| zp as f64 as f32).collect(), axis))
            }
            _ => None,
        };
        Ok(Scaling { scale, zero_point })
    }

    /// A constant for each place along an axis, or one for all.
    fn constants(&mut self, elements: Vec<f32>, axis: usize) -> Placed {
        match elements.len() {
            1 => self.constant(elements, &[], DataType::F32),
            channels => {
                let (constant, _) = self.constant(elements, &[channels as i64], DataType::F32);
                (constant, axis as isize)
            }
        }
    }

    /// An input that holds a parameter for each place along an axis, or one for all.
    fn input(&mut self, port: usize, axis: usize) -> Placed {
        let place = self.inputs[port].iter().position(|&dim| dim != 1).unwrap_or(0);
        (PartOperand::Input(port), axis as isize - place as isize)
    }

    fn is_zero(&self, (operand, _): Placed) -> bool {
        match operand {
            PartOperand::Part(part) => self.parts[part].constants.iter().all(|&number| number == 0.0),
            PartOperand::Input(_) => false,
        }
    }

    fn constant(&mut self, constants: Vec<f32>, dims: &[i64], data_type: DataType) -> Placed {
        let operand = self.push(dims, Function::Fill(0.0), data_type, smallvec![], data_type);
        if let Some(part) = self.parts.last_mut() {
            part.constants = constants;
        }
        operand
    }

    fn binary(&mut self, function: Binary, x: Placed, y: Placed, to: DataType) -> Placed {
        self.binary_of(self.inputs[0], function, x, y, to)
    }

    fn binary_of(&mut self, dims: &[i64], function: Binary, x: Placed, y: Placed, to: DataType) -> Placed {
        self.push(dims, Function::Binary(function, [0.0; 2]), DataType::F32, smallvec![x, y], to)
    }

    fn float(&mut self, function: Function, operands: SmallVec<[Placed; 3]>, to: DataType) -> Placed {
        self.push(self.inputs[0], function, DataType::F32, operands, to)
    }

    /// A function that computes in the type of its result.
    fn moved(&mut self, function: Function, operands: SmallVec<[Placed; 3]>, to: DataType) -> Placed {
        self.push(self.inputs[0], function, to, operands, to)
    }

    fn push(
        &mut self,
        dims: &[i64],
        function: Function,
        computes_in: DataType,
        operands: SmallVec<[Placed; 3]>,
        data_type: DataType,
    ) -> Placed {
        let typed = TypedFunction { function, computes_in };
        self.parts.push(Part { typed, data_type, dims: dims.into(), operands, constants: Vec::new() });
        (PartOperand::Part(self.parts.len() - 1), 0)
    }

    /// The parts, of which some are the outputs of the op, as many as it has.
    fn giving(self, results: &[PartOperand]) -> Parts {
        let part = |operand: &PartOperand| match operand {
            PartOperand::Part(part) => Some(*part),
            PartOperand::Input(_) => None,
        };
        let outputs = results.iter().filter_map(part).take(self.op.outputs().len()).collect();
        Parts { parts: self.parts, outputs }
    }
}

struct Scaling {
    scale: Placed,
    zero_point: Option<Placed>,
}
