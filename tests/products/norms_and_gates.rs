//! Promise: products that one norm feeds, and the products of a gated block, are one partition, whose bits
//! are those of its ops run one by one, for every size, type and CPU level.

use std::collections::BTreeMap;

use crate::common::graphs::{self, RandomGraph};
use crate::common::{Random, engines, report};
use sterna::{
    Accuracy, Attention, Attr, AttrValue, Causal, DataType, Engine, Graph, LogicalTensor, Op, OpKind,
    Partition, Policy, TensorBuf,
};

use DataType as D;
use OpKind as K;

/// Writes a graph of tensors with known dims.
struct Writer {
    graph: Graph,
    inputs: Vec<LogicalTensor>,
    next: usize,
    data_type: DataType,
}

impl Writer {
    fn new(data_type: DataType) -> Self {
        Self { graph: Graph::new(), inputs: Vec::new(), next: 0, data_type }
    }

    fn tensor(&mut self, data_type: DataType, dims: &[i64]) -> LogicalTensor {
        self.next += 1;
        LogicalTensor::strided(self.next, data_type, dims).unwrap()
    }

    fn input(&mut self, dims: &[i64]) -> LogicalTensor {
        let input = self.tensor(self.data_type, dims);
        self.inputs.push(input.clone());
        input
    }

    fn op_with(
        &mut self,
        kind: OpKind,
        inputs: &[&LogicalTensor],
        dims: &[i64],
        attrs: &[(Attr, AttrValue)],
    ) -> LogicalTensor {
        let to = self.tensor(self.data_type, dims);
        let id = self.graph.ops().iter().map(|op| op.id().get()).max().map_or(0, |id| id + 1);
        let op = Op::new(id, kind).inputs_from(inputs.iter().map(|&tensor| tensor.clone()));
        let op = attrs.iter().fold(op, |op, (attr, value)| op.attr(*attr, value.clone()));
        self.graph.add_op(op.output(to.clone())).unwrap();
        to
    }

    /// A number in the type of the graph.
    fn number(&mut self, number: f32) -> LogicalTensor {
        let attrs: [(Attr, AttrValue); 2] = [(Attr::Shape, vec![1i64].into()), (Attr::Value, number.into())];
        self.op_with(K::Fill, &[], &[1], &attrs)
    }

    /// An op whose result has the dims of its first operand.
    fn op(&mut self, kind: OpKind, inputs: &[&LogicalTensor]) -> LogicalTensor {
        let dims = inputs[0].dims().unwrap().to_vec();
        self.op_with(kind, inputs, &dims, &[])
    }

    fn product(&mut self, left: &LogicalTensor, right: &LogicalTensor) -> LogicalTensor {
        let mut dims = left.dims().unwrap().to_vec();
        *dims.last_mut().unwrap() = *right.dims().unwrap().last().unwrap();
        self.op_with(K::MatMul, &[left, right], &dims, &[])
    }

    /// The product with a new matrix.
    fn project(&mut self, left: &LogicalTensor, columns: i64) -> LogicalTensor {
        let rows = *left.dims().unwrap().last().unwrap();
        let weights = self.input(&[rows, columns]);
        self.product(left, &weights)
    }

    fn rms_norm(&mut self, of: &LogicalTensor) -> LogicalTensor {
        let gamma = self.input(&of.dims().unwrap()[1..]);
        self.op(K::RMSNorm, &[of, &gamma])
    }

    /// x · sigmoid(x)
    fn silu(&mut self, of: &LogicalTensor) -> LogicalTensor {
        let sigmoid = self.op(K::Sigmoid, &[of]);
        self.op(K::Multiply, &[of, &sigmoid])
    }

    fn finish(mut self) -> RandomGraph {
        self.graph.finalize().unwrap();
        let ops = self.graph.ops().to_vec();
        let outputs =
            ops.iter().flat_map(Op::outputs).map(|tensor| (tensor.id().get(), tensor.clone())).collect();
        RandomGraph { graph: self.graph, ops, inputs: self.inputs, outputs }
    }
}

/// Rows, columns of an operand, and columns between the products.
type Size = [i64; 3];

type Write = fn(&mut Writer, Size);

/// Name, number of partitions, and the graph.
const GRAPHS: &[(&str, usize, Write)] = &[
    ("gated block behind a norm, with its residual", 1, |w, [rows, columns, inner]| {
        let x = w.input(&[rows, columns]);
        let normed = w.rms_norm(&x);
        let (gate, up) = (w.project(&normed, inner), w.project(&normed, inner));
        let gate = w.silu(&gate);
        let joined = w.op(K::Multiply, &[&gate, &up]);
        let down = w.project(&joined, columns);
        w.op(K::Add, &[&down, &x]);
    }),
    ("gated block whose gate is the second product", 1, |w, [rows, columns, inner]| {
        let x = w.input(&[rows, columns]);
        let (up, gate) = (w.project(&x, inner), w.project(&x, inner));
        let gate = w.op(K::GELU, &[&gate]);
        let joined = w.op(K::Multiply, &[&gate, &up]);
        w.project(&joined, columns);
    }),
    ("gated block with a number at each place", 1, |w, [rows, columns, inner]| {
        let x = w.input(&[rows, columns]);
        let (gate, up) = (w.project(&x, inner), w.project(&x, inner));
        let numbers: Vec<LogicalTensor> = (1..5u8).map(|n| w.number(f32::from(n) * 0.25)).collect();
        let gate = w.op(K::Multiply, &[&gate, &numbers[0]]);
        let gate = w.silu(&gate);
        let up = w.op(K::Add, &[&up, &numbers[1]]);
        let joined = w.op(K::Multiply, &[&gate, &up]);
        let joined = w.op(K::Multiply, &[&joined, &numbers[2]]);
        let down = w.project(&joined, columns);
        let down = w.op(K::Multiply, &[&down, &numbers[3]]);
        w.op(K::Add, &[&down, &x]);
    }),
    ("products of one norm, scaled by numbers", 1, |w, [rows, columns, inner]| {
        let x = w.input(&[rows, columns]);
        let normed = w.rms_norm(&x);
        for width in [inner, columns] {
            let product = w.project(&normed, width);
            let number = w.number(0.5);
            w.op(K::Multiply, &[&product, &number]);
        }
    }),
    ("a product between numbers", 1, |w, [rows, columns, inner]| {
        let x = w.input(&[rows, columns]);
        let (before, behind) = (w.number(0.5), w.number(-2.0));
        let scaled = w.op(K::Multiply, &[&x, &before]);
        let product = w.project(&scaled, inner);
        let product = w.op(K::Maximum, &[&product, &behind]);
        w.op(K::Tanh, &[&product]);
    }),
    ("a number of two products", 3, |w, [rows, columns, inner]| {
        let (x, y) = (w.input(&[rows, columns]), w.input(&[rows, columns]));
        let number = w.number(0.5);
        for x in [x, y] {
            let product = w.project(&x, inner);
            w.op(K::Multiply, &[&product, &number]);
        }
    }),
    ("gated block of batches, masked behind the gate", 1, |w, [rows, columns, inner]| {
        let x = w.input(&[2, rows, columns]);
        let (gate, up) = (w.project(&x, inner), w.project(&x, inner));
        let gate = w.silu(&gate);
        let joined = w.op(K::Multiply, &[&gate, &up]);
        let scale = w.input(&[1, rows, 1]);
        let scaled = w.op(K::Multiply, &[&joined, &scale]);
        w.project(&scaled, columns);
    }),
    ("products of different operands are no gated block", 3, |w, [rows, columns, inner]| {
        let (x, y) = (w.input(&[rows, columns]), w.input(&[rows, columns]));
        let (gate, up) = (w.project(&x, inner), w.project(&y, inner));
        let gate = w.silu(&gate);
        let joined = w.op(K::Multiply, &[&gate, &up]);
        w.project(&joined, columns);
    }),
    ("three products of one norm, with biases", 1, |w, [rows, columns, inner]| {
        let x = w.input(&[rows, columns]);
        let normed = w.rms_norm(&x);
        for width in [inner, columns, columns] {
            let bias = w.input(&[width]);
            let product = w.project(&normed, width);
            w.op(K::Add, &[&product, &bias]);
        }
    }),
    ("a norm that others use as well", 2, |w, [rows, columns, inner]| {
        let x = w.input(&[rows, columns]);
        let normed = w.rms_norm(&x);
        w.project(&normed, inner);
        w.op_with(K::ReduceSum, &[&normed], &[columns], &[(Attr::Axes, AttrValue::from(&[0i64][..]))]);
    }),
    ("a norm of what is computed, and a scaled norm before the product", 1, |w, [rows, columns, inner]| {
        let x = w.input(&[rows, columns]);
        let tanh = w.op(K::Tanh, &[&x]);
        let normed = w.rms_norm(&tanh);
        let scale = w.input(&[columns]);
        let scaled = w.op(K::Multiply, &[&normed, &scale]);
        let product = w.project(&scaled, inner);
        w.op(K::ReLU, &[&product]);
    }),
    ("a norm as the right operand of a product", 2, |w, [rows, columns, inner]| {
        let (x, left) = (w.input(&[rows, columns]), w.input(&[inner, rows]));
        let normed = w.rms_norm(&x);
        w.product(&left, &normed);
    }),
    ("a product of a product behind a norm", 2, |w, [rows, columns, inner]| {
        let x = w.input(&[rows, columns]);
        let normed = w.rms_norm(&x);
        let product = w.project(&normed, inner);
        let active = w.op(K::ReLU, &[&product]);
        w.project(&active, columns);
    }),
];

const SIZES: [Size; 5] = [[1, 8, 16], [7, 19, 33], [34, 64, 130], [0, 8, 16], [5, 1, 1]];

/// Numbers of moderate size for the inputs.
fn inputs_of(graph: &RandomGraph, engine: &Engine, seed: u64) -> BTreeMap<usize, TensorBuf> {
    let fill = |desc: &LogicalTensor| {
        let mut random = Random::new(seed ^ desc.id().get() as u64);
        let mut tensor = TensorBuf::zeroed(desc.clone(), engine).unwrap();
        let number = |random: &mut Random| (random.below(2001) as f32 - 1000.0) / 700.0;
        match desc.data_type() {
            D::F32 => tensor.as_mut_slice::<f32>().unwrap().fill_with(|| number(&mut random)),
            D::Bf16 => tensor
                .as_mut_slice::<half::bf16>()
                .unwrap()
                .fill_with(|| half::bf16::from_f32(number(&mut random))),
            _ => tensor
                .as_mut_slice::<half::f16>()
                .unwrap()
                .fill_with(|| half::f16::from_f32(number(&mut random))),
        }
        (desc.id().get(), tensor)
    };
    graph.inputs.iter().map(fill).collect()
}

#[test]
fn products_that_share_a_norm_or_a_gate_keep_the_bits_of_their_ops() {
    let (engines, mut wrong) = (engines(), Vec::new());
    for &(name, partitions, write) in GRAPHS {
        for data_type in [D::F32, D::Bf16, D::F16] {
            for size in SIZES {
                let mut writer = Writer::new(data_type);
                write(&mut writer, size);
                let graph = writer.finish();
                let row = format!("{name}, {data_type} {size:?}");
                let fused = graph.graph.partitions(Policy::Fusion).unwrap();
                if fused.len() != partitions {
                    let kinds =
                        |partition: &Partition| partition.ops().iter().map(Op::kind).collect::<Vec<_>>();
                    let kinds: Vec<_> = fused.iter().map(kinds).collect();
                    wrong.push(format!("{row}: {} partitions, not {partitions}: {kinds:?}", fused.len()));
                }
                if fused.iter().any(|partition| partition.accuracy() == Some(Accuracy::Bounded)) {
                    wrong.push(format!("{row}: bounded"));
                }
                let filled = |engine: &Engine| inputs_of(&graph, engine, 7);
                if let Err(why) = graphs::check_on(&graph, 7, &engines, &filled) {
                    wrong.push(format!("{row}: {why}"));
                }
            }
        }
    }
    report(&wrong);
}

/// A layer of a decoder; queries, keys and values are one product or three.
fn decoder_layer(data_type: DataType, is_packed: bool) -> RandomGraph {
    const TOKENS: i64 = 24;
    const HEADS: i64 = 4;
    const DEPTH: i64 = 16;
    let width = HEADS * DEPTH;
    let mut w = Writer::new(data_type);
    let x = w.input(&[TOKENS, width]);
    let normed = w.rms_norm(&x);
    let order = [(Attr::Order, AttrValue::from(&[1i64, 0, 2][..]))];
    // So many heads of a product.
    let heads = |w: &mut Writer, count: i64| {
        let product = w.project(&normed, count * DEPTH);
        let dims = [TOKENS, count, DEPTH];
        let shape = [(Attr::Shape, AttrValue::from(&dims[..])), (Attr::SpecialZero, false.into())];
        let product = w.op_with(K::StaticReshape, &[&product], &dims, &shape);
        w.op_with(K::StaticTranspose, &[&product], &[count, TOKENS, DEPTH], &order)
    };
    let slice = |w: &mut Writer, of: &LogicalTensor, begin: [i64; 3], end: [i64; 3]| {
        let dims: Vec<i64> = begin.iter().zip(end).map(|(begin, end)| end - begin).collect();
        let attrs = [(Attr::Starts, AttrValue::from(&begin[..])), (Attr::Ends, AttrValue::from(&end[..]))];
        w.op_with(K::Slice, &[of], &dims, &attrs)
    };
    let parts = match is_packed {
        true => {
            let packed = heads(&mut w, 3 * HEADS);
            [0, 1, 2]
                .map(|part| slice(&mut w, &packed, [part * HEADS, 0, 0], [(part + 1) * HEADS, TOKENS, DEPTH]))
        }
        false => [0, 1, 2].map(|_| heads(&mut w, HEADS)),
    };
    let (cos, sin) = (w.input(&[TOKENS, DEPTH]), w.input(&[TOKENS, DEPTH]));
    let mut turned_of = |head: &LogicalTensor| {
        // The halves of each token change places, one of them with its sign.
        let low = slice(&mut w, head, [0, 0, 0], [HEADS, TOKENS, DEPTH / 2]);
        let high = slice(&mut w, head, [0, 0, DEPTH / 2], [HEADS, TOKENS, DEPTH]);
        let high = w.op(K::Negative, &[&high]);
        let turned =
            w.op_with(K::Concat, &[&high, &low], &[HEADS, TOKENS, DEPTH], &[(Attr::Axis, 2i64.into())]);
        let (a, b) = (w.op(K::Multiply, &[head, &cos]), w.op(K::Multiply, &[&turned, &sin]));
        w.op(K::Add, &[&a, &b])
    };
    let (q, k) = (turned_of(&parts[0]), turned_of(&parts[1]));
    let attended = w.tensor(data_type, &[HEADS, TOKENS, DEPTH]);
    let attention = Attention::new(q, k, parts[2].clone(), attended.clone()).causal(Causal::TopLeft);
    w.next = w.graph.attention(&attention).unwrap().tensors.end.get();
    let tokens = w.op_with(K::StaticTranspose, &[&attended], &[TOKENS, HEADS, DEPTH], &order);
    let shape = [(Attr::Shape, AttrValue::from(&[TOKENS, width][..])), (Attr::SpecialZero, false.into())];
    let merged = w.op_with(K::StaticReshape, &[&tokens], &[TOKENS, width], &shape);
    let projected = w.project(&merged, width);
    let between = w.op(K::Add, &[&projected, &x]);
    let normed = w.rms_norm(&between);
    let (gate, up) = (w.project(&normed, 96), w.project(&normed, 96));
    let gate = w.silu(&gate);
    let joined = w.op(K::Multiply, &[&gate, &up]);
    let down = w.project(&joined, width);
    w.op(K::Add, &[&down, &between]);
    w.finish()
}

#[test]
fn a_decoder_layer_is_few_partitions() {
    let mut wrong = Vec::new();
    // Attention is exact to a bound, so the layer is held against its ops with a tolerance.
    for (data_type, tolerance) in [(D::F32, 1e-4), (D::Bf16, 0.05)] {
        for (is_packed, most) in [(true, 5), (false, 8)] {
            let row = format!("{data_type}, packed {is_packed}");
            let graph = decoder_layer(data_type, is_packed);
            let fused = graph.graph.partitions(Policy::Fusion).unwrap();
            if fused.len() > most || !fused.iter().all(Partition::is_supported) {
                let kinds = |partition: &Partition| partition.ops().iter().map(Op::kind).collect::<Vec<_>>();
                let kinds: Vec<_> = fused.iter().map(kinds).collect();
                wrong.push(format!("{row}: {} partitions: {kinds:#?}", fused.len()));
            }
            let engine = Engine::new();
            let inputs = inputs_of(&graph, &engine, 3);
            let last = graph.ops.last().unwrap().outputs()[0].id();
            let [together, apart] = graphs::both(&graph.graph).map(|partitions| {
                let made = graphs::run(&partitions, &graph.outputs, &engine, &inputs, None).unwrap();
                match data_type {
                    D::F32 => made[&last.get()].as_slice::<f32>().unwrap().to_vec(),
                    _ => {
                        let numbers = made[&last.get()].as_slice::<half::bf16>().unwrap();
                        numbers.iter().map(|number| number.to_f32()).collect()
                    }
                }
            });
            let most = apart.iter().fold(0f32, |most, x| most.max(x.abs()));
            let worst = together.iter().zip(&apart).fold(0f32, |worst, (x, y)| worst.max((x - y).abs()));
            // A NaN counts as off, too.
            if !(worst <= tolerance * most && together.iter().all(|x| x.is_finite())) {
                wrong.push(format!("{row}: off by {worst} of {most}"));
            }
        }
    }
    report(&wrong);
}
