//! Random graphs of pointwise ops, with the tensors to run them on.

use std::collections::BTreeMap;

use sterna::reference::{self, Value};
use sterna::{
    Attr, AttrValue, AutoBroadcast, DataType, Engine, Graph, LogicalTensor, Op, OpKind, Partition, Policy,
    Stream, TensorBuf,
};

use super::Random;
use DataType as D;
use OpKind as K;

/// Types that are computed with.
const FLOATS: &[DataType] = &[D::F32, D::Bf16, D::F16];
/// Types that can be cast from and to, compared and moved.
const NUMBERS: &[DataType] = &[
    D::F32,
    D::F32,
    D::F32,
    D::Bf16,
    D::Bf16,
    D::F16,
    D::S32,
    D::S32,
    D::S64,
    D::F64,
    D::S8,
    D::U8,
    D::S16,
    D::U16,
    D::U32,
    D::U64,
];

/// Kinds by what they take.
const UNARY: &[OpKind] = &[
    K::Abs,
    K::Ceil,
    K::Clamp,
    K::Cos,
    K::Elu,
    K::Exp,
    K::Floor,
    K::GELU,
    K::HardSigmoid,
    K::HardSwish,
    K::LeakyReLU,
    K::Log,
    K::Mish,
    K::Negative,
    K::Pow,
    K::Reciprocal,
    K::ReLU,
    K::Round,
    K::Sigmoid,
    K::Sin,
    K::SoftPlus,
    K::Sqrt,
    K::Square,
    K::Tanh,
];
const BACKWARD: &[OpKind] = &[
    K::AbsBackward,
    K::ClampBackward,
    K::EluBackward,
    K::GELUBackward,
    K::HardSigmoidBackward,
    K::HardSwishBackward,
    K::MishBackward,
    K::ReLUBackward,
    K::SigmoidBackward,
    K::SoftPlusBackward,
    K::SqrtBackward,
    K::TanhBackward,
];
const MIXING: &[OpKind] = &[K::Add, K::Subtract, K::Multiply, K::Divide];
const EQUAL_TYPES: &[OpKind] = &[K::Maximum, K::Minimum, K::Modulo, K::Power, K::SquaredDifference];
const INTEGER: &[OpKind] = &[K::Add, K::Subtract, K::Multiply, K::Divide, K::Modulo, K::Maximum, K::Minimum];
/// Of one f64.
const DOUBLES: &[OpKind] = &[
    K::Abs,
    K::Negative,
    K::Exp,
    K::Log,
    K::Reciprocal,
    K::ReLU,
    K::Round,
    K::Sigmoid,
    K::Sqrt,
    K::Square,
    K::Tanh,
    K::Floor,
    K::Ceil,
];
const QUANTIZATION: &[OpKind] = &[K::Quantize, K::Dequantize, K::DynamicQuantize, K::DynamicDequantize];
/// Convolutions, forward and backward, and pools.
const WINDOWS: &[OpKind] = &[
    K::Convolution,
    K::Convolution,
    K::Convolution,
    K::ConvolutionBackwardData,
    K::ConvolutionBackwardWeights,
    K::ConvTranspose,
    K::ConvTranspose,
    K::ConvTransposeBackwardData,
    K::ConvTransposeBackwardWeights,
    K::MaxPool,
    K::AvgPool,
];
const COMPARISONS: &[OpKind] = &[K::Equal, K::NotEqual, K::Less, K::LessEqual, K::Greater, K::GreaterEqual];
const LOGIC: &[OpKind] = &[K::LogicalAnd, K::LogicalOr, K::LogicalXor];
const CLASSES: &[OpKind] = &[K::IsNaN, K::IsInf, K::IsFinite];

/// Attributes of an op.
type Attrs = Vec<(Attr, AttrValue)>;

/// A tensor of a graph under construction.
#[derive(Debug, Clone)]
struct Known {
    id: usize,
    data_type: DataType,
    dims: Vec<i64>,
}

/// A graph, and tensors for its inputs.
pub struct RandomGraph {
    pub graph: Graph,
    pub ops: Vec<Op>,
    pub inputs: Vec<LogicalTensor>,
    /// Layouts asked for, of tensors that may be outputs.
    pub outputs: BTreeMap<usize, LogicalTensor>,
}

/// Operands, kind, type and dims of the result, and attributes of an op that moves elements.
type Moved = (Vec<Known>, OpKind, DataType, Vec<i64>, Vec<(Attr, AttrValue)>);

struct Builder<'a> {
    random: &'a mut Random,
    /// The shape onto which the operands of an op broadcast.
    dims: Vec<i64>,
    /// All such shapes: those of results of moves, too.
    spaces: Vec<Vec<i64>>,
    known: Vec<Known>,
    ops: Vec<Op>,
    inputs: Vec<LogicalTensor>,
    next: usize,
    /// True if some ops are convolutions of any form, or pools.
    has_windows: bool,
}

impl RandomGraph {
    /// A graph of up to so many ops, on tensors of a random shape.
    pub fn new(random: &mut Random, most_ops: usize) -> Self {
        let rank = random.below(5);
        let mut dims: Vec<i64> = (0..rank).map(|_| random.pick(&[1, 2, 3, 4, 5, 7, 16, 17, 40])).collect();
        // Some have many tiles; the others have few elements, so that there is time for many graphs.
        let most = if random.below(40) == 0 { 100_000 } else { 3_000 };
        while dims.iter().product::<i64>() > most {
            dims.pop();
        }
        if random.below(100) == 0 {
            dims.push(0);
        }
        Self::on(random, most_ops, dims)
    }

    /// A graph of up to so many ops on images of a random shape, of which some are convolutions of any form
    /// or pools.
    pub fn of_windows(random: &mut Random, most_ops: usize) -> Self {
        let spatial = 1 + random.below(3);
        let mut dims = vec![random.pick(&[1, 2, 3])];
        let is_last = random.below(2) == 0;
        let channels = random.pick(&[1, 2, 3, 4, 6, 8, 16, 17, 33]);
        dims.extend((0..spatial).map(|_| random.pick(&[1, 3, 4, 5, 7, 9, 12])));
        dims.insert(if is_last { dims.len() } else { 1 }, channels);
        Self::built(random, most_ops, dims, true)
    }

    /// A graph of up to so many ops, on tensors that broadcast to a shape.
    pub fn on(random: &mut Random, most_ops: usize, dims: Vec<i64>) -> Self {
        Self::built(random, most_ops, dims, false)
    }

    fn built(random: &mut Random, most_ops: usize, dims: Vec<i64>, has_windows: bool) -> Self {
        let ops = 1 + random.below(most_ops);
        let mut builder = Builder {
            random,
            spaces: vec![dims.clone()],
            dims,
            known: Vec::new(),
            ops: Vec::new(),
            inputs: Vec::new(),
            next: 0,
            has_windows,
        };
        while builder.ops.len() < ops {
            builder.add_op();
        }
        let Builder { random, known, ops, inputs, .. } = builder;
        let outputs = known
            .iter()
            .filter(|tensor| inputs.iter().all(|input| input.id() != tensor.id))
            .map(|tensor| {
                let desc = match random.below(4) {
                    0 => strided(random, tensor.id, tensor.data_type, &tensor.dims, false),
                    _ => LogicalTensor::unknown(tensor.id, tensor.data_type),
                };
                (tensor.id, desc)
            })
            .collect();
        // The order of adding must not matter.
        let mut order: Vec<usize> = (0..ops.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, random.below(i + 1));
        }
        let mut graph = Graph::new();
        for &op in &order {
            graph.add_op(ops[op].clone()).unwrap();
        }
        graph.finalize().unwrap();
        Self { graph, ops, inputs, outputs }
    }
}

/// A tensor of a random layout: row-major, permuted, with gaps, or with repeated elements where that is
/// allowed.
pub fn strided(
    random: &mut Random,
    id: usize,
    data_type: DataType,
    dims: &[i64],
    repeat: bool,
) -> LogicalTensor {
    let mut order: Vec<usize> = (0..dims.len()).collect();
    if random.below(3) == 0 {
        for i in (1..order.len()).rev() {
            order.swap(i, random.below(i + 1));
        }
    }
    let mut strides = vec![0; dims.len()];
    let mut stride = if random.below(6) == 0 { 2 } else { 1 };
    for &axis in order.iter().rev() {
        strides[axis] = stride;
        stride *= dims[axis].max(1);
        if random.below(6) == 0 {
            stride += 1;
        }
    }
    if repeat && random.below(8) == 0 && !dims.is_empty() {
        strides[random.below(dims.len())] = 0;
    }
    LogicalTensor::with_strides(id, data_type, dims, &strides).unwrap()
}

impl Builder<'_> {
    fn id(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }

    /// A tensor of a type that there is, or a new input; dims fit the index space unless `dims` says which.
    fn operand(&mut self, data_type: DataType, dims: Option<&[i64]>) -> Known {
        let space = &self.dims;
        let fits = |known: &&Known| {
            known.data_type == data_type
                && match dims {
                    Some(dims) => known.dims == dims,
                    None => fits_onto(&known.dims, space),
                }
        };
        let known: Vec<Known> = self.known.iter().filter(fits).cloned().collect();
        if !known.is_empty() && self.random.below(4) != 0 {
            // The latest ones often, so that chains grow.
            let latest = known.len().min(3);
            let from = if self.random.below(2) == 0 { known.len() - latest } else { 0 };
            return known[from + self.random.below(known.len() - from)].clone();
        }
        let own_dims = match dims {
            Some(dims) => dims.to_vec(),
            None => self.fitting_dims(),
        };
        let id = self.id();
        self.inputs.push(strided(self.random, id, data_type, &own_dims, true));
        let tensor = Known { id, data_type, dims: own_dims };
        self.known.push(tensor.clone());
        tensor
    }

    /// Dims that broadcast onto the index space.
    fn fitting_dims(&mut self) -> Vec<i64> {
        let whole = self.random.below(2) == 0;
        let lacking = if whole { 0 } else { self.random.below(self.dims.len() + 1) };
        let dims = self.dims[lacking..].to_vec();
        let mut repeat = |dim: i64| if !whole && self.random.below(3) == 0 { 1 } else { dim };
        dims.into_iter().map(&mut repeat).collect()
    }

    /// Mostly small numbers, some of the kinds that matter.
    fn parameter(&mut self) -> f32 {
        self.random.pick(&[0.5, 1.0, -1.0, 2.0, 0.1, 3.0, -0.75, 0.0])
    }

    /// An op that moves elements.
    fn moved(&mut self) -> Moved {
        let of = if self.random.below(3) == 0 {
            self.random.pick(DataType::WHOLE)
        } else {
            self.random.pick(FLOATS)
        };
        let dims = self.dims.clone();
        let from = match self.random.below(3) {
            0 => self.operand(of, None),
            _ => self.operand(of, Some(&dims)),
        };
        let dims = from.dims.clone();
        let rank = dims.len();
        match self.random.below(10) {
            0..3 if rank > 1 => {
                let mut order: Vec<i64> = (0..rank as i64).collect();
                for i in (1..rank).rev() {
                    order.swap(i, self.random.below(i + 1));
                }
                let result = order.iter().map(|&axis| dims[axis as usize]).collect();
                if self.random.below(3) == 0 {
                    order.iter_mut().for_each(|axis| *axis -= rank as i64);
                }
                (vec![from], K::StaticTranspose, of, result, vec![(Attr::Order, order.into())])
            }
            3..5 => {
                let result = self.factors(dims.iter().product(), &dims);
                let attrs =
                    vec![(Attr::Shape, result.clone().into()), (Attr::SpecialZero, AttrValue::Bool(false))];
                (vec![from], K::StaticReshape, of, result, attrs)
            }
            5..8 if rank > 0 => {
                let (mut starts, mut ends, mut steps, mut result) = (vec![], vec![], vec![], dims.clone());
                for (axis, &dim) in dims.iter().enumerate() {
                    // Some dims stay whole, most ranges have elements.
                    let (start, end, step) = match self.random.below(4) {
                        0 => (dim, -1 - dim, -1),
                        1 if dim > 1 => (self.random.below(dim as usize / 2) as i64, dim + 3, 1),
                        2 if dim > 1 => {
                            let start = self.random.below(dim as usize / 2) as i64;
                            (start - dim, i64::MAX, self.random.pick(&[1, 2, 3]))
                        }
                        _ => (0, dim, 1),
                    };
                    let range: Vec<i64> = match step {
                        -1 => (0..dim).rev().collect(),
                        step => {
                            let start = if start < 0 { start + dim } else { start };
                            (start..end.min(dim)).step_by(step as usize).collect()
                        }
                    };
                    starts.push(start);
                    ends.push(end);
                    steps.push(step);
                    result[axis] = range.len() as i64;
                }
                let attrs = vec![
                    (Attr::Starts, starts.into()),
                    (Attr::Ends, ends.into()),
                    (Attr::Steps, steps.into()),
                ];
                (vec![from], K::Slice, of, result, attrs)
            }
            8 if rank > 0 && dims.iter().product::<i64>() < 4000 => {
                let axis = self.random.below(rank);
                let mut operands = vec![from];
                let mut result = dims.clone();
                for _ in 0..self.random.below(3) {
                    let more = self.operand(of, Some(&dims));
                    result[axis] += more.dims[axis];
                    operands.push(more);
                }
                let from_end = if self.random.below(2) == 0 { rank as i64 } else { 0 };
                let attrs = vec![(Attr::Axis, AttrValue::S64(axis as i64 - from_end))];
                (operands, K::Concat, of, result, attrs)
            }
            _ => (vec![from], K::Reorder, of, dims, vec![]),
        }
    }

    /// Dims of so many elements: neighbours of others joined and taken apart, or any factors.
    fn factors(&mut self, mut count: i64, dims: &[i64]) -> Vec<i64> {
        if count == 0 {
            return dims.to_vec();
        }
        let mut result: Vec<i64> = Vec::new();
        if self.random.below(2) == 0 {
            for &dim in dims {
                match (self.random.below(3), result.last_mut()) {
                    (0, Some(last)) => *last *= dim,
                    (1, _) if dim % 2 == 0 => result.extend([2, dim / 2]),
                    (2, _) if dim % 5 == 0 => result.extend([dim / 5, 5]),
                    _ => result.push(dim),
                }
            }
            return result;
        }
        while count > 1 && result.len() < 5 {
            let factor = self.random.pick(&[2, 3, 4, 5, 7, 16, 17]);
            match count % factor {
                0 => {
                    result.push(factor);
                    count /= factor;
                }
                _ if self.random.below(6) == 0 => break,
                _ => {}
            }
        }
        result.insert(self.random.below(result.len() + 1), count);
        result
    }

    fn add_op(&mut self) {
        if self.random.below(3) == 0 {
            self.dims = self.spaces[self.random.below(self.spaces.len())].clone();
        }
        let mut moves = Vec::new();
        let float = self.random.pick(FLOATS);
        if self.has_windows && self.random.below(4) == 0 && (3..=5).contains(&self.dims.len()) {
            return self.add_windows(float);
        }
        let tensor = |known: &Known| LogicalTensor::unknown(known.id, known.data_type);
        let (inputs, kind, to, dims): (Vec<Known>, OpKind, DataType, Vec<i64>) = match self.random.below(34) {
            0..5 => {
                let x = self.operand(float, None);
                let dims = x.dims.clone();
                (vec![x], self.random.pick(UNARY), float, dims)
            }
            5 => {
                let x = self.operand(float, None);
                let y = self.operand(float, Some(&x.dims));
                let dims = x.dims.clone();
                (vec![x, y], self.random.pick(BACKWARD), float, dims)
            }
            6..10 => {
                let mixed = self.random.below(3) == 0;
                let other = if mixed { self.random.pick(FLOATS) } else { float };
                let to = if mixed { self.random.pick(FLOATS) } else { float };
                let pair = [self.operand(float, None), self.operand(other, None)];
                let dims = broadcast(&pair[0].dims, &pair[1].dims);
                (pair.into(), self.random.pick(MIXING), to, dims)
            }
            10 => {
                let pair = [self.operand(float, None), self.operand(float, None)];
                let dims = broadcast(&pair[0].dims, &pair[1].dims);
                (pair.into(), self.random.pick(EQUAL_TYPES), float, dims)
            }
            11 => {
                let of = self.random.pick(&[D::S32, D::S64, D::F64]);
                let pair = [self.operand(of, None), self.operand(of, None)];
                let dims = broadcast(&pair[0].dims, &pair[1].dims);
                (pair.into(), self.random.pick(INTEGER), of, dims)
            }
            12..14 => {
                let of = self.random.pick(NUMBERS);
                let pair = [self.operand(of, None), self.operand(of, None)];
                let dims = broadcast(&pair[0].dims, &pair[1].dims);
                (pair.into(), self.random.pick(COMPARISONS), D::Boolean, dims)
            }
            14 => {
                let pair = [self.operand(D::Boolean, None), self.operand(D::Boolean, None)];
                let dims = broadcast(&pair[0].dims, &pair[1].dims);
                (pair.into(), self.random.pick(LOGIC), D::Boolean, dims)
            }
            15 => {
                let x = self.operand(D::Boolean, None);
                let dims = x.dims.clone();
                (vec![x], K::LogicalNot, D::Boolean, dims)
            }
            16 => {
                let x = self.operand(float, None);
                let dims = x.dims.clone();
                (vec![x], self.random.pick(CLASSES), D::Boolean, dims)
            }
            17..19 => {
                let from = if self.random.below(6) == 0 { D::Boolean } else { self.random.pick(NUMBERS) };
                let x = self.operand(from, None);
                let dims = x.dims.clone();
                (vec![x], K::Cast, self.random.pick(NUMBERS), dims)
            }
            19 => {
                let of = self.random.pick(DataType::WHOLE);
                let x = self.operand(of, None);
                let dims = x.dims.clone();
                (vec![x], K::Identity, of, dims)
            }
            20 if !self.dims.is_empty() => {
                let dims = self.dims.clone();
                (vec![self.operand(float, Some(&dims))], K::GenIndex, D::S32, dims)
            }
            22..24 => {
                let kind = self.random.pick(QUANTIZATION);
                return self.add_quantization(kind);
            }
            24 => return self.add_dropout(float),
            25 => {
                let of = self.random.pick(&[D::S32, D::S64, D::F64]);
                let x = self.operand(of, None);
                let dims = x.dims.clone();
                let kinds = if of == D::F64 { DOUBLES } else { &[K::Abs, K::Negative] };
                (vec![x], self.random.pick(kinds), of, dims)
            }
            21 => {
                let to = if self.random.below(4) == 0 { D::Boolean } else { self.random.pick(NUMBERS) };
                let dims = self.fitting_dims();
                (Vec::new(), K::Fill, to, dims)
            }
            33 if self.dims.len() > 1 => return self.add_batch_norm(float),
            27.. => {
                let (operands, kind, of, dims, attrs) = self.moved();
                moves = attrs;
                (operands, kind, of, dims)
            }
            _ => {
                let of = if self.random.below(3) == 0 { self.random.pick(DataType::WHOLE) } else { float };
                let cond = self.operand(D::Boolean, None);
                let branches = [self.operand(of, None), self.operand(of, None)];
                let dims = broadcast(&broadcast(&branches[0].dims, &branches[1].dims), &cond.dims);
                let [then, else_] = branches;
                (vec![cond, then, else_], K::Select, of, dims)
            }
        };
        let mut op = Op::new(self.ops.len(), kind).inputs_from(inputs.iter().map(tensor));
        for row in sterna::Schema::of(kind).attributes {
            op = match row.attr {
                Attr::AutoBroadcast if kind == K::Select => {
                    op.auto_broadcast(AutoBroadcast::Multidirectional)
                }
                Attr::AutoBroadcast => {
                    let equal = inputs[0].dims == inputs[1].dims;
                    let none = equal && self.random.below(3) == 0;
                    op.auto_broadcast(if none { AutoBroadcast::None } else { AutoBroadcast::Numpy })
                }
                Attr::Min => op.attr(Attr::Min, -0.5f32),
                Attr::Max => op.attr(Attr::Max, self.random.pick(&[0.25f32, 2.0, 6.0])),
                Attr::Alpha | Attr::Beta | Attr::Value => op.attr(row.attr, self.parameter()),
                Attr::Mode => op.attr(Attr::Mode, self.random.pick(&["gelu_erf", "gelu_tanh"])),
                Attr::UseDst => op.attr(Attr::UseDst, self.random.below(2) == 0),
                Attr::Shape if kind == K::Fill => op.attr(Attr::Shape, &dims[..]),
                Attr::Axis if kind == K::GenIndex => op.axis(self.random.below(dims.len()) as i64),
                _ => op,
            };
        }
        let is_move = kind == K::Reorder || !moves.is_empty();
        if is_move && !self.spaces.contains(&dims) && self.spaces.len() < 6 {
            self.spaces.push(dims.clone());
        }
        op = moves.into_iter().fold(op, |op, (attr, value)| op.attr(attr, value));
        self.push(op, &[to], &dims);
    }

    /// Adds an op whose outputs have these types and equal dims.
    fn push(&mut self, op: Op, types: &[DataType], dims: &[i64]) {
        let output = |op: Op, &data_type: &DataType| {
            let id = self.id();
            self.known.push(Known { id, data_type, dims: dims.to_vec() });
            op.output(LogicalTensor::unknown(id, data_type))
        };
        let op = types.iter().fold(op, output);
        self.ops.push(op);
    }

    /// Adds a convolution of any form, or a pool, of a tensor with the present dims.
    fn add_windows(&mut self, of: DataType) {
        let kind = self.random.pick(WINDOWS);
        let (src, random) = (self.dims.clone(), &mut *self.random);
        let (is_last, rank) = (random.below(2) == 0, src.len());
        let (channel, first) = if is_last { (rank - 1, 1) } else { (1, 2) };
        let from_windows =
            [K::ConvTranspose, K::ConvolutionBackwardData, K::ConvTransposeBackwardWeights].contains(&kind);
        let (mut attrs, mut kernel, mut other) =
            ([vec![], vec![], vec![], vec![], vec![]], vec![], src.clone());
        for axis in first..first + rank - 2 {
            let (mut of_kernel, dilation) = (random.pick(&[1, 2, 3, 3, 5]), random.pick(&[1, 1, 1, 2, 3]));
            let (stride, size) = (random.pick(&[1, 1, 2, 3]), src[axis]);
            let mut pads = [(); 2].map(|()| random.pick(&[0, 0, 1, 2]));
            let mut beyond = random.below(stride as usize) as i64;
            // An image has room for a window, and windows reach farther than the padding.
            let room = |kernel: i64, pads: [i64; 2]| match from_windows {
                true => (size - 1) * stride + (kernel - 1) * dilation - pads[0] - pads[1],
                false => size + pads[0] + pads[1] - (kernel - 1) * dilation - 1,
            };
            if room(of_kernel, pads) < 0 || size == 0 {
                (of_kernel, pads) = (1, [0, 0]);
            }
            if from_windows && kind != K::ConvTransposeBackwardWeights && size > 0 {
                other[axis] = room(of_kernel, pads) + 1 + beyond;
            } else if from_windows {
                (other[axis], beyond) = ((room(of_kernel, pads) + 1).max(0), 0);
            } else {
                other[axis] = room(of_kernel, pads).max(0) / stride + 1;
            }
            kernel.push(of_kernel);
            let numbers = [stride, pads[0], pads[1], dilation, beyond];
            attrs.iter_mut().zip(numbers).for_each(|(list, number)| list.push(number));
        }
        let elements = |dims: &[i64]| dims.iter().product::<i64>();
        if src.contains(&0) || elements(&other) > 20_000 || elements(&src) > 20_000 {
            return;
        }
        let [strides, begin, end, dilations, beyond] = attrs;
        let op = Op::new(self.ops.len(), kind)
            .attr(Attr::Strides, strides)
            .attr(Attr::PadsBegin, begin)
            .attr(Attr::PadsEnd, end)
            .attr(Attr::DataFormat, if is_last { "NXC" } else { "NCX" });
        let tensor = |known: Known| LogicalTensor::unknown(known.id, known.data_type);
        if [K::MaxPool, K::AvgPool].contains(&kind) {
            let op = op.attr(Attr::Kernel, kernel);
            let op = match kind {
                K::MaxPool => op.attr(Attr::Dilations, dilations),
                _ if dilations.iter().any(|&dilation| dilation != 1) => return,
                _ => op.attr(Attr::ExcludePad, self.random.below(2) == 0),
            };
            let op = op.input(tensor(self.operand(of, Some(&src))));
            return self.push_windows(op, of, &other);
        }
        let channels = src[channel];
        let groups = match self.random.below(3) {
            0 => channels,
            1 if channels % 2 == 0 => 2,
            _ => 1,
        };
        // As many channels of a group on the other side, often one if each channel is a group.
        let in_group = if groups == channels {
            self.random.pick(&[1, 1, 2])
        } else {
            self.random.pick(&[1, 2, 5, 9, 17])
        };
        other[channel] = groups * in_group;
        let (of_image, of_windows) =
            if from_windows { (in_group, channels) } else { (channels / groups, groups * in_group) };
        let is_inside = self.random.below(2) == 0;
        let weights = match is_inside {
            true => [&[of_windows, of_image], &kernel[..]].concat(),
            false => [&kernel[..], &[of_image, of_windows]].concat(),
        };
        let is_transposed = kind.name().contains("Transpose");
        let format = match (is_transposed, is_inside) {
            (true, true) => "IOX",
            (true, false) => "XOI",
            (false, true) => "OIX",
            (false, false) => "XIO",
        };
        let op =
            op.attr(Attr::Dilations, dilations).attr(Attr::Groups, groups).attr(Attr::WeightsFormat, format);
        let op = match kind {
            K::ConvTranspose => op.attr(Attr::OutputPadding, beyond),
            K::ConvolutionBackwardData => op.attr(Attr::DstShape, other.clone()),
            K::ConvolutionBackwardWeights | K::ConvTransposeBackwardWeights => {
                op.attr(Attr::WeightsShape, weights.clone())
            }
            _ => op,
        };
        let is_of_weights = op.attrs().any(|(attr, _)| attr == Attr::WeightsShape);
        let (second, result) = if is_of_weights { (other, weights) } else { (weights, other) };
        let mut op =
            op.input(tensor(self.operand(of, Some(&src)))).input(tensor(self.operand(of, Some(&second))));
        if [K::Convolution, K::ConvTranspose].contains(&kind) && self.random.below(2) == 0 {
            op = op.input(tensor(self.operand(of, Some(&[result[channel]]))));
        }
        self.push_windows(op, of, &result);
    }

    /// Adds an op whose result later ops read.
    fn push_windows(&mut self, op: Op, of: DataType, result: &[i64]) {
        self.push(op, &[of], result);
        if !self.spaces.iter().any(|dims| dims == result) {
            self.spaces.push(result.to_vec());
        }
        self.dims = result.to_vec();
    }

    fn add_batch_norm(&mut self, float: DataType) {
        let dims = self.dims.clone();
        let (data_format, axis) = self.random.pick(&[("NCX", 1), ("NXC", dims.len() - 1)]);
        let of_channels = if float == D::Bf16 { self.random.pick(&[D::F32, D::Bf16]) } else { D::F32 };
        let src = self.operand(float, Some(&dims));
        let mut op = Op::new(self.ops.len(), K::BatchNormInference)
            .attr(Attr::Epsilon, 0.001f32)
            .attr(Attr::DataFormat, data_format)
            .input(LogicalTensor::unknown(src.id, src.data_type));
        for _ in 0..4 {
            let numbers = self.operand(of_channels, Some(&[dims[axis]]));
            op = op.input(LogicalTensor::unknown(numbers.id, numbers.data_type));
        }
        self.push(op, &[float], &dims);
    }

    fn add_quantization(&mut self, kind: OpKind) {
        let is_dynamic = [K::DynamicQuantize, K::DynamicDequantize].contains(&kind);
        let scale_type = if kind == K::DynamicDequantize { self.random.pick(FLOATS) } else { D::F32 };
        let small = match is_dynamic {
            true => self.random.pick(&[D::U8, D::S8]),
            false => self.random.pick(&[D::U8, D::S8, D::F8E5m2, D::F8E4m3]),
        };
        let quantizes = [K::Quantize, K::DynamicQuantize].contains(&kind);
        let (from, to) = if quantizes { (D::F32, small) } else { (small, scale_type) };
        let src = self.operand(from, None);
        let dims = src.dims.clone();
        let tensor = |known: &Known| LogicalTensor::unknown(known.id, known.data_type);
        let mut op = Op::new(self.ops.len(), kind).input(tensor(&src));
        let axis = (!dims.is_empty() && self.random.below(2) == 0).then(|| self.random.below(dims.len()));
        let count = axis.map_or(1, |axis| dims[axis]);
        if let Some(axis) = axis {
            let from_end = axis as i64 - dims.len() as i64;
            op = op.attr(Attr::Qtype, "per_channel");
            op = op.axis(if self.random.below(2) == 0 { from_end } else { axis as i64 });
        }
        let has_zps = self.random.below(2) == 0 && (quantizes || !matches!(small, D::F8E5m2 | D::F8E4m3));
        if is_dynamic {
            let shape = |random: &mut Random| match axis {
                Some(_) if random.below(3) == 0 => vec![count, 1],
                Some(_) if random.below(3) == 0 => vec![1, count],
                Some(_) => vec![count],
                None => random.pick(&[vec![], vec![1], vec![1, 1]]),
            };
            let scales = shape(self.random);
            op = op.input(tensor(&self.operand(scale_type, Some(&scales))));
            if has_zps {
                let zps = if self.random.below(3) == 0 { vec![1] } else { shape(self.random) };
                let of = self.random.pick(&[D::S32, D::S8, D::U8]);
                op = op.input(tensor(&self.operand(of, Some(&zps))));
            }
        } else {
            let scales: Vec<f32> =
                (0..count).map(|_| self.random.pick(&[0.1, 0.5, 0.037, 2.0, -0.3, 0.0])).collect();
            op = op.attr(Attr::Scales, scales);
            if has_zps {
                let zps: Vec<i64> = (0..count).map(|_| self.random.pick(&[0, 3, -7, 128, 1 << 40])).collect();
                op = op.attr(Attr::Zps, zps);
            }
        }
        self.push(op, &[to], &dims);
    }

    fn add_dropout(&mut self, of: DataType) {
        let src = self.operand(of, None);
        let dims = src.dims.clone();
        let (seed, offset) = (self.operand(D::S64, Some(&[])), self.operand(D::S64, Some(&[1])));
        let probability = match self.random.below(4) {
            0 => self.operand(D::F32, Some(&[])),
            _ => {
                let value = self.random.pick(&[0.5f32, 0.1, 0.9, 0.0, 1.0]);
                let fill = Op::new(self.ops.len(), K::Fill).attr(Attr::Value, value);
                self.push(fill.attr(Attr::Shape, Vec::<i64>::new()), &[D::F32], &[]);
                self.known[self.known.len() - 1].clone()
            }
        };
        let inputs = [src, seed, offset, probability];
        let tensor = |known: &Known| LogicalTensor::unknown(known.id, known.data_type);
        let op = Op::new(self.ops.len(), K::Dropout).inputs_from(inputs.iter().map(tensor));
        let types = if self.random.below(2) == 0 { &[of, D::U8][..] } else { &[of] };
        self.push(op, types, &dims);
    }
}

/// True if dims broadcast onto others.
fn fits_onto(dims: &[i64], onto: &[i64]) -> bool {
    let pairs = || dims.iter().rev().zip(onto.iter().rev());
    dims.len() <= onto.len() && pairs().all(|(dim, onto)| dim == onto || *dim == 1)
}

/// The common shape of two that fit the index space.
fn broadcast(a: &[i64], b: &[i64]) -> Vec<i64> {
    let rank = a.len().max(b.len());
    let at = |dims: &[i64], axis: usize| (axis + dims.len()).checked_sub(rank).map_or(1, |own| dims[own]);
    (0..rank)
        .map(|axis| match (at(a, axis), at(b, axis)) {
            (1, y) => y,
            (x, _) => x,
        })
        .collect()
}

/// Elements that reach the corners of functions: small numbers mostly, and each kind of special one.
pub fn fill(tensor: &mut TensorBuf, random: &mut Random) {
    let data_type = tensor.desc().data_type();
    let size = data_type.size().unwrap();
    // Long runs of one truth value now and then, so that whole tiles are uniform.
    let run = 1 + random.below(4) * random.below(500);
    let mut truth = 0;
    for (at, element) in tensor.as_mut_bytes().chunks_exact_mut(size).enumerate() {
        let small = (random.below(4000) as f32 - 2000.0) / random.pick(&[100.0, 400.0, 1.0]);
        let special = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-40, -1e-40, f32::MAX, 1e9];
        let number = if random.below(8) == 0 { random.pick(&special) } else { small };
        let bits = random.next();
        if at % run == 0 {
            truth = if bits & 0x100 == 0 { 0 } else { (bits as u8).max(1) };
        }
        let bytes: [u8; 8] = match data_type {
            D::Boolean => u64::from(truth).to_le_bytes(),
            D::F32 if random.below(40) == 0 => bits.to_le_bytes(),
            D::F32 => u64::from(number.to_bits()).to_le_bytes(),
            D::F64 => f64::from(number).to_le_bytes(),
            D::F16 if random.below(10) == 0 => bits.to_le_bytes(),
            D::F16 => u64::from(half::f16::from_f32(number).to_bits()).to_le_bytes(),
            D::Bf16 if random.below(10) == 0 => bits.to_le_bytes(),
            D::Bf16 => u64::from(half::bf16::from_f32(number).to_bits()).to_le_bytes(),
            _ if random.below(8) == 0 => bits.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes(),
            _ => i64::from(random.below(12) as i32 - 4).to_le_bytes(),
        };
        element.copy_from_slice(&bytes[..size]);
    }
}

/// As [`filled`], with small numbers that sums of products can be held against the reference with.
pub fn filled_with_ordinary(graph: &RandomGraph, engine: &Engine, seed: u64) -> BTreeMap<usize, TensorBuf> {
    let mut tensors = filled(graph, engine, seed);
    for tensor in tensors.values_mut() {
        let data_type = tensor.desc().data_type();
        let mut random = Random::new(seed ^ tensor.desc().id().get() as u64 ^ 0x0d1);
        for element in tensor.as_mut_bytes().chunks_exact_mut(data_type.size().unwrap()) {
            let number = (random.below(401) as f32 - 200.0) / 64.0;
            match data_type {
                D::F32 => element.copy_from_slice(&number.to_ne_bytes()),
                D::Bf16 => element.copy_from_slice(&half::bf16::from_f32(number).to_ne_bytes()),
                D::F16 => element.copy_from_slice(&half::f16::from_f32(number).to_ne_bytes()),
                _ => {}
            }
        }
    }
    tensors
}

/// The ops and inputs of a graph, for people to read.
pub fn describe(graph: &RandomGraph) -> String {
    let tensor = |t: &LogicalTensor| format!("{}:{}", t.id(), t.data_type());
    let tensors = |ts: &[LogicalTensor]| ts.iter().map(tensor).collect::<Vec<_>>().join(", ");
    let op = |op: &Op| {
        let attrs: Vec<String> = op.attrs().map(|(attr, value)| format!("{attr}={value}")).collect();
        format!("{} = {}({}) {}", tensors(op.outputs()), op.kind(), tensors(op.inputs()), attrs.join(" "))
    };
    let input = |t: &LogicalTensor| {
        let dims = t.dims().unwrap_or_default();
        format!("{} = {dims:?} by {:?}", tensor(t), t.strides().unwrap_or_default())
    };
    let lines: Vec<String> = graph.inputs.iter().map(input).chain(graph.ops.iter().map(op)).collect();
    lines.join("\n")
}

/// Runs all partitions of a graph on its inputs; gives every tensor that comes out of one. With `in_place`,
/// outputs are put in place of inputs at random, wherever that is allowed.
pub fn run(
    partitions: &[Partition],
    outputs: &BTreeMap<usize, LogicalTensor>,
    engine: &Engine,
    inputs: &BTreeMap<usize, TensorBuf>,
    mut in_place: Option<Random>,
) -> Result<BTreeMap<usize, TensorBuf>, String> {
    let mut made: BTreeMap<usize, TensorBuf> = BTreeMap::new();
    for partition in partitions {
        let held = |id: usize| inputs.get(&id).or_else(|| made.get(&id));
        let tensors: Vec<&TensorBuf> = partition
            .inputs()
            .iter()
            .map(|port| held(port.id().get()).ok_or(format!("tensor {} is missing", port.id())))
            .collect::<Result<_, _>>()?;
        let descs: Vec<LogicalTensor> = tensors.iter().map(|tensor| tensor.desc().clone()).collect();
        let wanted: Vec<LogicalTensor> =
            partition.outputs().iter().map(|port| outputs[&port.id().get()].clone()).collect();
        let compiled =
            partition.compile_for(engine, &descs, &wanted).map_err(|e| format!("{e}: {partition:?}"))?;
        let mut results: Vec<TensorBuf> =
            compiled.outputs().iter().map(|desc| TensorBuf::zeroed(desc.clone(), engine).unwrap()).collect();
        let mut pairs: Vec<(usize, usize)> = Vec::new();
        if let Some(random) = &mut in_place {
            for pair in compiled.in_place_pairs() {
                let is_free =
                    pairs.iter().all(|&(input, output)| input != pair.input && output != pair.output);
                if is_free && random.below(3) != 0 {
                    pairs.push((pair.input.get(), pair.output.get()));
                }
            }
        }
        for (input, output) in &pairs {
            let from = tensors.iter().find(|tensor| tensor.desc().id() == *input).unwrap();
            let to = results.iter_mut().find(|tensor| tensor.desc().id() == *output).unwrap();
            to.as_mut_bytes().copy_from_slice(from.as_bytes());
        }
        let is_replaced = |tensor: &&&TensorBuf| pairs.iter().any(|pair| pair.0 == tensor.desc().id());
        let ins: Vec<_> =
            tensors.iter().filter(|tensor| !is_replaced(tensor)).map(|tensor| tensor.as_tensor()).collect();
        let mark = |result| {
            let output = TensorBuf::as_tensor_mut(result);
            match pairs.iter().find(|pair| pair.1 == output.desc().id()) {
                Some(&(input, _)) => output.in_place_of(input),
                None => output,
            }
        };
        let mut outs: Vec<_> = results.iter_mut().map(mark).collect();
        compiled.execute(&Stream::new(engine), &ins, &mut outs).map_err(|e| e.to_string())?;
        made.extend(results.into_iter().map(|result| (result.desc().id().get(), result)));
    }
    Ok(made)
}

/// Tensors for the inputs of a graph, the same for the same seed.
pub fn filled(graph: &RandomGraph, engine: &Engine, seed: u64) -> BTreeMap<usize, TensorBuf> {
    let fill = |desc: &LogicalTensor| {
        let mut tensor = TensorBuf::zeroed(desc.clone(), engine).unwrap();
        fill(&mut tensor, &mut Random::new(seed ^ desc.id().get() as u64 ^ 0x5eed));
        (desc.id().get(), tensor)
    };
    graph.inputs.iter().map(fill).collect()
}

/// The first difference between two runs, in the tensors that both gave.
pub fn differs(a: &BTreeMap<usize, TensorBuf>, b: &BTreeMap<usize, TensorBuf>) -> Option<String> {
    let both = a.iter().filter_map(|(id, tensor)| Some((id, tensor, b.get(id)?)));
    let mut differences = both.filter_map(|(id, a, b)| Some((id, difference(&value(a), &value(b), 0)?)));
    differences.next().map(|(id, difference)| format!("tensor {id}: {difference}"))
}

/// A tensor as a dense value.
pub fn value(tensor: &TensorBuf) -> Value {
    Value::read(&tensor.as_tensor()).unwrap()
}

/// Holds each op against the reference on the inputs that it had; says what is wrong.
pub fn check_ops(
    graph: &RandomGraph,
    inputs: &BTreeMap<usize, TensorBuf>,
    made: &BTreeMap<usize, TensorBuf>,
) -> Result<(), String> {
    let held = |id: usize| value(inputs.get(&id).or_else(|| made.get(&id)).unwrap());
    graph.ops.iter().try_for_each(|op| {
        let operands: Vec<Value> = op.inputs().iter().map(|input| held(input.id().get())).collect();
        (0..op.outputs().len()).try_for_each(|output| {
            check_output(op, output, &operands, &held(op.outputs()[output].id().get()))
        })
    })
}

/// Holds the result of an op against the reference, given the operands that it had; says what is wrong.
pub fn check_op(op: &Op, operands: &[Value], given: &Value) -> Result<(), String> {
    check_output(op, 0, operands, given)
}

fn check_output(op: &Op, output: usize, operands: &[Value], given: &Value) -> Result<(), String> {
    let expected = reference::run(op, operands).map_err(|e| e.to_string())?.remove(output);
    let most = i64::from(reference::ulps(op));
    if given.dims() != expected.dims() {
        return Err(format!("{op:?} gives {:?}, not {:?}", given.dims(), expected.dims()));
    }
    if let Some(bounds) = reference::bounds(op, operands).map_err(|error| error.to_string())? {
        // Sums of numbers whose squares leave the range of f32 are held against the reference by the tests of
        // the ops; so are results beside the first one.
        let is_ordinary = |x: f64| x == 0.0 || (1e-6..1e6).contains(&x.abs());
        let all_ordinary = operands.iter().flat_map(numbers).all(is_ordinary);
        return match output == 0 && all_ordinary {
            true => beyond(given, &expected, &bounds).map_or(Ok(()), |why| Err(format!("{why} in {op:?}"))),
            false => Ok(()),
        };
    }
    // A gradient of infinity times a derivative that underflows is a matter of how the derivative is worked
    // out.
    let only_finite = most > 0 && BACKWARD.contains(&op.kind());
    let is_judged = |element: &[u8]| !only_finite || is_finite(op.outputs()[0].data_type(), element);
    match difference_where(given, &expected, most, is_judged) {
        Some(difference) => Err(format!("{difference} in {op:?}")),
        None => Ok(()),
    }
}

/// The first finite element that is further from the expected one than its bound and the roundings of both.
fn beyond(given: &Value, expected: &Value, bounds: &[f64]) -> Option<String> {
    let (step, least) = match given.data_type() {
        D::F32 => (2f64.powi(-23), 1e-30),
        D::Bf16 => (2f64.powi(-7), 1e-30),
        _ => (2f64.powi(-10), 2f64.powi(-24)),
    };
    let (given, expected) = (numbers(given), numbers(expected));
    let is_far = |at: &usize| {
        let (x, y, bound) = (given[*at], expected[*at], bounds[*at]);
        let most = 2.0 * (bound + step * x.abs().max(y.abs())) + least;
        y.is_finite() && bound.is_finite() && (x.is_nan() || (x - y).abs() > most)
    };
    let at = (0..given.len()).find(is_far)?;
    Some(format!("element {at} is {}, not {}, bound {}", given[at], expected[at], bounds[at]))
}

/// The elements of a value of a type that ops add up; none of another type.
fn numbers(value: &Value) -> Vec<f64> {
    let size = value.data_type().size().unwrap_or(1);
    let number = |element: &[u8]| match (value.data_type(), element) {
        (D::F32, &[a, b, c, d]) => Some(f32::from_ne_bytes([a, b, c, d]).into()),
        (D::F16, &[a, b]) => Some(half::f16::from_ne_bytes([a, b]).into()),
        (D::Bf16, &[a, b]) => Some(half::bf16::from_ne_bytes([a, b]).into()),
        _ => None,
    };
    value.bytes().chunks_exact(size).filter_map(number).collect()
}

/// Runs a graph every way, fused and op by op, in place and not, on inputs from a seed; says what is wrong.
pub fn check(graph: &RandomGraph, seed: u64, engines: &[Engine]) -> Result<(), String> {
    check_on(graph, seed, engines, &|engine| filled(graph, engine, seed))
}

/// As [`check`], on inputs that are made for each engine.
pub fn check_on(
    graph: &RandomGraph,
    seed: u64,
    engines: &[Engine],
    filled: &dyn Fn(&Engine) -> BTreeMap<usize, TensorBuf>,
) -> Result<(), String> {
    let [fused, alone] = both(&graph.graph);
    if let Some(partition) = fused.iter().chain(&alone).find(|partition| !partition.is_supported()) {
        return Err(format!("{:?}", partition.unsupported_reason()));
    }
    for engine in engines {
        let inputs = filled(engine);
        let run = |partitions: &[Partition], layouts: &BTreeMap<_, _>, in_place: Option<Random>| {
            run(partitions, layouts, engine, &inputs, in_place)
        };
        let place =
            |what: &str, why: String| format!("{what}, {}: {why}\n{}", engine.level(), describe(graph));
        let apart = run(&alone, &graph.outputs, None).map_err(|why| place("alone", why))?;
        check_ops(graph, &inputs, &apart).map_err(|why| place("alone", why))?;
        for in_place in [None, Some(Random::new(seed))] {
            let what = if in_place.is_some() { "fused, in place" } else { "fused" };
            let together = run(&fused, &graph.outputs, in_place).map_err(|why| place(what, why))?;
            if differs(&together, &apart).is_some() {
                let layouts = settled_layouts(graph, &fused);
                let settled = run(&alone, &layouts, None).map_err(|why| place("alone", why))?;
                if let Some(why) = differs(&together, &settled) {
                    return Err(place(what, why));
                }
            }
        }
    }
    Ok(())
}

/// The layouts of results with which partitions promise the bits of their ops: row-major inside of a
/// partition. With another one an op on its own may add in another order.
fn settled_layouts(graph: &RandomGraph, fused: &[Partition]) -> BTreeMap<usize, LogicalTensor> {
    let is_inside = |id: usize| !fused.iter().flat_map(Partition::outputs).any(|port| port.id().get() == id);
    let settled = |(&id, tensor): (&usize, &LogicalTensor)| match is_inside(id) {
        true => (id, LogicalTensor::strided(id, tensor.data_type(), tensor.dims().unwrap()).unwrap()),
        false => (id, tensor.clone()),
    };
    graph.outputs.iter().map(settled).collect()
}

/// The first element in which two values differ by more than so many steps of their type.
pub fn difference(given: &Value, expected: &Value, most: i64) -> Option<String> {
    difference_where(given, expected, most, |_| true)
}

fn is_finite(data_type: DataType, element: &[u8]) -> bool {
    let mut bytes = [0; 4];
    bytes[4 - element.len()..].copy_from_slice(element);
    match data_type {
        D::F16 => half::f16::from_le_bytes([bytes[2], bytes[3]]).is_finite(),
        _ => f32::from_le_bytes(bytes).is_finite(),
    }
}

fn difference_where(
    given: &Value,
    expected: &Value,
    most: i64,
    is_judged: impl Fn(&[u8]) -> bool,
) -> Option<String> {
    let data_type = given.data_type();
    let size = data_type.size()?;
    // Floats in their order: negative ones mirrored.
    let rank = |bytes: &[u8]| {
        let mut padded = [0; 8];
        padded[..size].copy_from_slice(bytes);
        let bits = i64::from_le_bytes(padded);
        let sign = 1i64 << (8 * size - 1).min(62);
        if size < 8 && bits & sign != 0 { -(bits & (sign - 1)) } else { bits }
    };
    let pairs = given.bytes().chunks_exact(size).zip(expected.bytes().chunks_exact(size));
    let far = |(a, b): (&[u8], &[u8])| {
        a != b && is_judged(a) && is_judged(b) && (most == 0 || (rank(a) - rank(b)).abs() > most)
    };
    let at = pairs.clone().position(far)?;
    let (a, b) = pairs.clone().nth(at)?;
    Some(format!("element {at} of {data_type} is {a:x?}, not {b:x?}"))
}

/// The partitions of a graph, fused and each op alone.
pub fn both(graph: &Graph) -> [Vec<Partition>; 2] {
    [Policy::Fusion, Policy::Debug].map(|policy| graph.partitions(policy).unwrap())
}
