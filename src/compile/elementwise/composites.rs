//! Ops that are several functions of elements, one after the other: the functions, as data.
//!
//! Each part is rounded to its type, as the op's definition rounds each of its steps.

use smallvec::{SmallVec, smallvec};

use crate::error::Result;
use crate::graph::function::{Composite, Function, Movement};
use crate::graph::infer::{self, Placement};
use crate::graph::op::{AttrValue, Op};
use crate::partition::pointwise::TypedFunction;
use crate::types::dtype::DataType;
use crate::types::function::{Binary, Comparison, Unary};
use crate::types::kind::Attr;
use crate::types::shape::Dims;

/// One function of a composite.
#[derive(Debug)]
pub(super) struct CompositePart {
    pub(super) typed: TypedFunction,
    pub(super) data_type: DataType,
    pub(super) dims: Dims,
    /// Operands, and the dim of the part at which the first dim of each starts.
    pub(super) operands: SmallVec<[(PartOperand, usize); 3]>,
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
pub(super) struct CompositeParts {
    pub(super) parts: Vec<CompositePart>,
    /// For each output of the op, the part that is its value.
    pub(super) outputs: SmallVec<[usize; 2]>,
}

/// The parts of an op whose inputs have these dims.
pub(super) fn parts(op: &Op, composite: Composite, inputs: &[&[i64]]) -> Result<CompositeParts> {
    let expansion = Expansion { op, inputs, parts: Vec::new() };
    match composite {
        Composite::Quantize => expansion.quantize(),
        Composite::Dequantize => expansion.dequantize(),
        Composite::Dropout => expansion.dropout(),
        Composite::BatchNorm => expansion.batch_norm(),
    }
}

/// The parts of an addition whose input `mask` makes a score −∞ where the input is −∞, even a score that is
/// NaN or ∞.
pub(super) fn masking_add(op: &Op, mask: usize, inputs: &[&[i64]], placement: &Placement) -> CompositeParts {
    let to = op.outputs()[0].data_type();
    let mut all = Expansion { op, inputs, parts: Vec::new() };
    let operand = |port: usize| (PartOperand::Input(port), placement.starts[port]);
    let add = Function::Binary(Binary::Add, [0.0; 2]);
    let sum = all.push(&placement.result, add, DataType::F32, smallvec![operand(0), operand(1)], to);
    let lowest = all.constant(vec![f32::NEG_INFINITY], &[], DataType::F32);
    let is_other = Function::Compare(Comparison::NotEqual);
    let compared = smallvec![(PartOperand::Input(mask), 0), lowest];
    let (is_open, _) = all.push(inputs[mask], is_other, DataType::F32, compared, DataType::Boolean);
    let fill = all.constant(vec![f32::NEG_INFINITY], &[], to);
    let operands = smallvec![(is_open, placement.starts[mask]), sum, fill];
    let (result, _) = all.push(&placement.result, Function::Select, to, operands, to);
    all.giving(&[result])
}

struct Expansion<'a> {
    op: &'a Op,
    inputs: &'a [&'a [i64]],
    parts: Vec<CompositePart>,
}

/// An operand of a part with its start.
type Placed = (PartOperand, usize);

const SRC: Placed = (PartOperand::Input(0), 0);

impl Expansion<'_> {
    /// Divides by the scale, adds the zero point, rounds to an integer and converts.
    fn quantize(mut self) -> Result<CompositeParts> {
        let to = self.op.outputs()[0].data_type();
        let is_integer = matches!(to, DataType::S8 | DataType::U8);
        let Scaling { scale, zero_point } = self.scaling()?;
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
    fn dequantize(mut self) -> Result<CompositeParts> {
        let to = self.op.outputs()[0].data_type();
        let Scaling { scale, zero_point } = self.scaling()?;
        let mut number = SRC;
        if let Some(zero_point) = zero_point.filter(|&zero_point| !self.is_zero(zero_point)) {
            number = self.binary(Binary::Subtract, number, zero_point, DataType::F32);
        }
        let (result, _) = self.binary(Binary::Multiply, number, scale, to);
        Ok(self.giving(&[result]))
    }

    /// Selects the scaled element or 0. If the probability is 1, the scale is ∞, and no element is kept.
    fn dropout(mut self) -> Result<CompositeParts> {
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

    /// The distance from the mean of the channel, times its factor, plus its offset.
    fn batch_norm(mut self) -> Result<CompositeParts> {
        let (op, src) = (self.op, self.inputs[0]);
        let axis = infer::channel_axis(op, src)?;
        let channels = [src[axis]];
        let [gamma, beta, mean, variance] = [1, 2, 3, 4].map(PartOperand::Input);
        let epsilon = self.constant(vec![op.f32_attr(Attr::Epsilon).unwrap_or(0.0)], &[], DataType::F32);
        let sum = self.binary_of(&channels, Binary::Add, (variance, 0), epsilon, DataType::F32);
        let root = Function::Unary(Unary::Sqrt, [0.0; 2]);
        let deviation = self.push(&channels, root, DataType::F32, smallvec![sum], DataType::F32);
        let (factor, _) = self.binary_of(&channels, Binary::Divide, (gamma, 0), deviation, DataType::F32);
        let distance = self.binary(Binary::Subtract, SRC, (mean, axis), DataType::F32);
        let scaled = self.binary(Binary::Multiply, distance, (factor, axis), DataType::F32);
        let (result, _) = self.binary(Binary::Add, scaled, (beta, axis), op.outputs()[0].data_type());
        Ok(self.giving(&[result]))
    }

    /// Where scales and zero points of the op are.
    fn scaling(&mut self) -> Result<Scaling> {
        let (op, inputs) = (self.op, self.inputs);
        let counts = infer::parameter_counts(op, inputs)?;
        if inputs.len() > 1 {
            let zero_point = (inputs.len() > 2).then(|| self.parameter(2, &counts));
            return Ok(Scaling { scale: self.parameter(1, &counts), zero_point });
        }
        let scale = self.constants(op.f32s_attr(Attr::Scales).to_vec(), &counts);
        let zero_point = match op.get_attr(Attr::Zps) {
            Some(AttrValue::S64s(zps)) => {
                Some(self.constants(zps.iter().map(|&zp| zp as f64 as f32).collect(), &counts))
            }
            _ => None,
        };
        Ok(Scaling { scale, zero_point })
    }

    /// A constant with a number of parameters along each dim of the source.
    fn constants(&mut self, elements: Vec<f32>, counts: &[i64]) -> Placed {
        if elements.len() == 1 {
            return self.constant(elements, &[], DataType::F32);
        }
        let (mut elements, mut counts) = (elements, Dims::from_slice(counts));
        for axis in 0..counts.len() {
            // Each of a group of neighbours has the number of the group.
            let dim = self.inputs[0][axis];
            if counts[axis] != 1 && counts[axis] != dim {
                let inner = counts[axis + 1..].iter().product::<i64>() as usize;
                let shared = (dim / counts[axis]) as usize;
                elements = elements.chunks(inner).flat_map(|chunk| chunk.repeat(shared)).collect();
                counts[axis] = dim;
            }
        }
        self.constant(elements, &counts, DataType::F32)
    }

    /// An input with a number of parameters along each dim of the source, or one for all.
    fn parameter(&mut self, port: usize, counts: &[i64]) -> Placed {
        let (input, given) = (PartOperand::Input(port), self.inputs[port]);
        let several = |dims: &[i64]| -> SmallVec<[usize; 6]> {
            (0..dims.len()).filter(|&axis| dims[axis] != 1).collect()
        };
        let dims = self.inputs[0];
        match (&several(given)[..], &several(counts)[..]) {
            ([], _) => (input, 0),
            // Most parameters of channels have rank 1.
            (&[own], &[axis])
                if counts[axis] == dims[axis] && own <= axis && axis - own + given.len() <= dims.len() =>
            {
                (input, axis - own)
            }
            _ => self.of_groups(port, counts),
        }
    }

    /// Parameters for each element, by views of an input that holds those for groups of neighbours.
    fn of_groups(&mut self, port: usize, counts: &[i64]) -> Placed {
        const RESHAPE: Function = Function::Move(Movement::Reshape);
        let given = self.inputs[port];
        // No buffer holds elements of four bits.
        let (mut expanded, of) = match self.op.inputs()[port].data_type() {
            of if of.is_whole() => ((PartOperand::Input(port), 0), of),
            _ => {
                let elements = smallvec![(PartOperand::Input(port), 0)];
                (self.push(given, Function::Convert, DataType::F32, elements, DataType::F32), DataType::F32)
            }
        };
        let mut dims: Dims = counts.into();
        expanded = self.push(&dims, RESHAPE, of, smallvec![expanded], of);
        for (axis, (&dim, &count)) in self.inputs[0].iter().zip(counts).enumerate() {
            if count == 1 || count == dim {
                continue;
            }
            dims.insert(axis + 1, 1);
            expanded = self.push(&dims, RESHAPE, of, smallvec![expanded], of);
            dims[axis + 1] = dim / count;
            expanded = self.push(&dims, Function::Identity, of, smallvec![expanded], of);
            dims.remove(axis + 1);
            dims[axis] = dim;
            expanded = self.push(&dims, RESHAPE, of, smallvec![expanded], of);
        }
        expanded
    }

    /// True if an operand is a constant that is 0 throughout.
    fn is_zero(&self, (operand, _): Placed) -> bool {
        let constants = match operand {
            PartOperand::Part(part) => &self.parts[part].constants[..],
            PartOperand::Input(_) => &[],
        };
        !constants.is_empty() && constants.iter().all(|&number| number == 0.0)
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
        self.parts.push(CompositePart {
            typed,
            data_type,
            dims: dims.into(),
            operands,
            constants: Vec::new(),
        });
        (PartOperand::Part(self.parts.len() - 1), 0)
    }

    /// The parts; `results` are the parts that are outputs of the op.
    fn giving(self, results: &[PartOperand]) -> CompositeParts {
        let part = |operand: &PartOperand| match operand {
            PartOperand::Part(part) => Some(*part),
            PartOperand::Input(_) => None,
        };
        let outputs = results.iter().filter_map(part).take(self.op.outputs().len()).collect();
        CompositeParts { parts: self.parts, outputs }
    }
}

struct Scaling {
    scale: Placed,
    zero_point: Option<Placed>,
}
