//! Graphs of attention, products and rows, with as many pointwise ops around them as a group may have.

use sterna::{Attr, AttrValue, DataType, LogicalTensor, Op, OpKind};

use DataType as D;
use OpKind as K;

/// A graph under way, whose inputs have known shapes.
pub(crate) struct Maker {
    pub(crate) ops: Vec<Op>,
    data_type: DataType,
    next: usize,
}

impl Maker {
    pub(crate) fn new(data_type: DataType) -> Self {
        Self { ops: Vec::new(), data_type, next: 0 }
    }

    fn id(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }

    fn typed(&mut self, data_type: DataType, dims: &[i64]) -> LogicalTensor {
        LogicalTensor::strided(self.id(), data_type, dims).unwrap()
    }

    fn input(&mut self, dims: &[i64]) -> LogicalTensor {
        self.typed(self.data_type, dims)
    }

    fn op_to(
        &mut self,
        to: DataType,
        kind: OpKind,
        inputs: &[&LogicalTensor],
        attrs: &[(Attr, AttrValue)],
    ) -> LogicalTensor {
        let output = LogicalTensor::unknown(self.id(), to);
        let op = inputs.iter().fold(Op::new(self.ops.len(), kind), |op, &input| op.input(input.clone()));
        let op = attrs.iter().fold(op, |op, (attr, value)| op.attr(*attr, value.clone()));
        self.ops.push(op.output(output.clone()));
        output
    }

    fn op(&mut self, kind: OpKind, inputs: &[&LogicalTensor]) -> LogicalTensor {
        self.op_to(self.data_type, kind, inputs, &[])
    }

    fn product(&mut self, a: &LogicalTensor, b: &LogicalTensor, transposed: Attr) -> LogicalTensor {
        self.op_to(self.data_type, K::MatMul, &[a, b], &[(transposed, true.into())])
    }

    fn matmul(&mut self, a: &LogicalTensor, b: &LogicalTensor) -> LogicalTensor {
        self.op(K::MatMul, &[a, b])
    }

    fn softmax(&mut self, x: &LogicalTensor) -> LogicalTensor {
        let attrs = [(Attr::Axis, (-1i64).into()), (Attr::Mode, "inf_as_zero".into())];
        self.op_to(self.data_type, K::SoftMax, &[x], &attrs)
    }

    /// So many pointwise ops, some of them with another operand or a comparison.
    fn chain(&mut self, x: LogicalTensor, ops: usize, dims: &[i64]) -> LogicalTensor {
        let end = self.ops.len() + ops;
        let mut last = x;
        while self.ops.len() < end {
            last = match self.ops.len() % 5 {
                0 => self.op(K::Tanh, &[&last]),
                1 => {
                    let other = self.input(dims);
                    self.op(K::Add, &[&last, &other])
                }
                2 => self.op(K::Abs, &[&last]),
                3 if self.ops.len() + 2 <= end => {
                    let other = self.input(dims);
                    let cond = self.op_to(D::Boolean, K::Less, &[&last, &other], &[]);
                    self.op(K::Select, &[&cond, &last, &other])
                }
                _ => self.op(K::Sigmoid, &[&last]),
            };
        }
        last
    }
}

/// The sizes of attention: heads of queries and of keys, queries, keys, and elements of a token.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heads {
    pub(crate) queries: i64,
    pub(crate) keys: i64,
    pub(crate) groups: i64,
    pub(crate) of_keys: i64,
    pub(crate) width: i64,
}

/// Attention with a chain on its scores and another behind.
pub(crate) fn attention(m: &mut Maker, heads: Heads, on_scores: usize, behind: usize, causal: bool) {
    let Heads { queries, keys, groups, of_keys, width } = heads;
    let q = m.input(&[2, groups, queries, width]);
    let [k, v] = [(); 2].map(|()| m.input(&[2, of_keys, keys, width]));
    let scores = m.product(&q, &k, Attr::TransposeB);
    let scale = m.input(&[]);
    let mut scores = m.op(K::Multiply, &[&scores, &scale]);
    if causal {
        let [i, j] =
            [-2i64, -1].map(|axis| m.op_to(D::S32, K::GenIndex, &[&scores], &[(Attr::Axis, axis.into())]));
        let cond = m.op_to(D::Boolean, K::GreaterEqual, &[&i, &j], &[]);
        let fill = m.input(&[]);
        scores = m.op(K::Select, &[&cond, &scores, &fill]);
    }
    let scores = m.chain(scores, on_scores, &[queries, keys]);
    let shares = m.softmax(&scores);
    let result = m.matmul(&shares, &v);
    m.chain(result, behind, &[queries, width]);
}

/// The gradients of attention with a chain on the scores.
pub(crate) fn gradients(m: &mut Maker, heads: Heads, on_scores: usize) {
    let Heads { queries, keys, groups, width, .. } = heads;
    let [q, d_result] = [(); 2].map(|()| m.input(&[2, groups, queries, width]));
    let [k, v] = [(); 2].map(|()| m.input(&[2, groups, keys, width]));
    let scores = m.product(&q, &k, Attr::TransposeB);
    let scores = m.chain(scores, on_scores, &[queries, keys]);
    let shares = m.softmax(&scores);
    m.product(&shares, &d_result, Attr::TransposeA);
    let d_shares = m.product(&d_result, &v, Attr::TransposeB);
    let d_scores =
        m.op_to(m.data_type, K::SoftMaxBackward, &[&d_shares, &shares], &[(Attr::Axis, (-1i64).into())]);
    m.matmul(&d_scores, &k);
    m.product(&d_scores, &q, Attr::TransposeA);
}

/// A product with chains before and behind.
pub(crate) fn product(m: &mut Maker, [rows, depth, columns]: [i64; 3], before: usize, behind: usize) {
    let (x, w) = (m.input(&[rows, depth]), m.input(&[depth, columns]));
    let x = m.chain(x, before, &[rows, depth]);
    let y = m.matmul(&x, &w);
    m.chain(y, behind, &[rows, columns]);
}

/// A product with stored weights of 8 or of 4 bits and a chain behind.
pub(crate) fn stored(m: &mut Maker, of_weights: DataType, rows: i64, behind: usize) {
    let (x, w) = (m.input(&[rows, 128]), m.typed(of_weights, &[128, 96]));
    let scales = m.typed(D::F32, &[4, 96]);
    let group: &[i64] = &[32, 1];
    let attrs =
        [(Attr::Qtype, "per_group".into()), (Attr::GroupShape, group.into()), (Attr::Axis, 0i64.into())];
    let w = m.op_to(D::F32, K::DynamicDequantize, &[&w, &scales], &attrs);
    let w = if m.data_type == D::F32 { w } else { m.op(K::TypeCast, &[&w]) };
    let y = m.matmul(&x, &w);
    m.chain(y, behind, &[rows, 96]);
}

/// A product of 8-bit integers and a chain behind.
pub(crate) fn integers(m: &mut Maker, behind: usize) {
    let (x, w) = (m.typed(D::U8, &[40, 64]), m.typed(D::S8, &[64, 48]));
    let quantization = |point: i64| {
        let (scales, points): (&[f32], &[i64]) = (&[0.5], &[point]);
        [(Attr::Qtype, "per_tensor".into()), (Attr::Scales, scales.into()), (Attr::Zps, points.into())]
    };
    m.data_type = D::F32;
    let x = m.op_to(D::F32, K::Dequantize, &[&x], &quantization(3));
    let w = m.op_to(D::F32, K::Dequantize, &[&w], &quantization(0));
    let y = m.matmul(&x, &w);
    m.chain(y, behind, &[40, 48]);
}

/// An op on rows with chains before and behind.
pub(crate) fn rows(m: &mut Maker, kind: OpKind, width: i64, before: usize, behind: usize) {
    let x = m.input(&[6, 40, width]);
    let x = m.chain(x, before, &[40, width]);
    let axes: &[i64] = &[-1];
    let y = match kind {
        K::SoftMax => m.softmax(&x),
        K::LayerNorm => {
            let [gamma, beta] = [(); 2].map(|()| m.typed(D::F32, &[width]));
            m.op_to(m.data_type, kind, &[&x, &gamma, &beta], &[(Attr::KeepStats, false.into())])
        }
        K::GroupNorm => {
            let [gamma, beta] = [(); 2].map(|()| m.typed(D::F32, &[40]));
            let attrs = [
                (Attr::Groups, 4i64.into()),
                (Attr::KeepStats, false.into()),
                (Attr::DataFormat, "NCX".into()),
            ];
            m.op_to(m.data_type, kind, &[&x, &gamma, &beta], &attrs)
        }
        _ => m.op_to(m.data_type, kind, &[&x], &[(Attr::Axes, axes.into()), (Attr::KeepDims, true.into())]),
    };
    let last = if matches!(kind, K::ReduceSum | K::ReduceMax) { 1 } else { width };
    m.chain(y, behind, &[40, last]);
}

/// A layer of a decoder: norm, attention and a gated block, with a chain at each place that takes one.
pub(crate) fn decoder(m: &mut Maker, tokens: i64, keys: i64, chain: usize) {
    let width = 64;
    let x = m.input(&[tokens, width]);
    let normed = m.op_to(m.data_type, K::RMSNorm, &[&x], &[(Attr::BeginNormAxis, (-1i64).into())]);
    let w = m.input(&[width, width]);
    let q = m.matmul(&normed, &w);
    let q = m.chain(q, chain, &[tokens, width]);
    let [k, v] = [(); 2].map(|()| m.input(&[keys, width]));
    let scores = m.product(&q, &k, Attr::TransposeB);
    let scores = m.chain(scores, chain, &[tokens, keys]);
    let shares = m.softmax(&scores);
    let result = m.matmul(&shares, &v);
    let w = m.input(&[width, width]);
    let result = m.matmul(&result, &w);
    let x = m.op(K::Add, &[&x, &result]);
    let normed = m.op_to(m.data_type, K::RMSNorm, &[&x], &[(Attr::BeginNormAxis, (-1i64).into())]);
    let [gate, up] = [(); 2].map(|()| {
        let w = m.input(&[width, 96]);
        m.matmul(&normed, &w)
    });
    let share = m.op(K::Sigmoid, &[&gate]);
    let gate = m.op(K::Multiply, &[&gate, &share]);
    let both = m.op(K::Multiply, &[&gate, &up]);
    let both = m.chain(both, chain, &[tokens, 96]);
    let w = m.input(&[96, width]);
    let down = m.matmul(&both, &w);
    let down = m.op(K::Add, &[&x, &down]);
    m.chain(down, chain, &[tokens, width]);
}
