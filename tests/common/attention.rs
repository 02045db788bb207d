//! Attention graphs: a builder that writes them, the masks that matter, random ones, and a runner whose
//! results are held against the intervals of the reference.
#![allow(dead_code, unreachable_pub, reason = "each user uses a part of this")]

use std::collections::BTreeMap;

use sterna::reference::{self, Enclosure, Value};
use sterna::{
    Attr, AttrValue, DataType, Engine, Graph, LogicalTensor, Op, OpKind, Partition, Policy, Stream, Tensor,
    TensorBuf, TensorId,
};

use crate::common::{GAP, Random, faults_of};

use DataType as D;
use OpKind as K;

/// A tensor of a graph under construction.
#[derive(Debug, Clone)]
pub struct Port {
    pub desc: LogicalTensor,
    pub dims: Vec<i64>,
}

impl Port {
    pub fn id(&self) -> usize {
        self.desc.id().get()
    }

    pub fn data_type(&self) -> DataType {
        self.desc.data_type()
    }
}

/// An input: what a partition is compiled with, and its elements.
#[derive(Debug, Clone)]
pub struct Given {
    pub desc: LogicalTensor,
    pub value: Value,
}

impl Given {
    /// Replaces an element, counted around.
    pub fn plant(&mut self, element: usize, number: f32) {
        let (data_type, dims) = (self.value.data_type(), self.value.dims().to_vec());
        let mut numbers: Vec<f32> = floats(&self.value).into_iter().map(|x| x as f32).collect();
        let count = numbers.len();
        numbers[element % count] = number;
        self.value = value_of(data_type, &dims, &numbers);
    }
}

/// How a tensor of heads, tokens and features lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// Row-major.
    Dense,
    /// All heads of a token beside each other.
    TokenMajor,
    /// As `TokenMajor`, queries, keys and values of a token beside each other.
    Packed,
    /// One element between any two, and one more behind a row.
    Gaps,
}

/// Strides of dims that end with tokens and features.
pub fn strides(dims: &[i64], lie: Lie) -> Vec<i64> {
    let rank = dims.len();
    let mut order: Vec<usize> = (0..rank).collect();
    if matches!(lie, Lie::TokenMajor | Lie::Packed) && rank > 2 {
        order.remove(rank - 2);
        order.insert(usize::from(rank > 3), rank - 2);
    }
    let (mut strides, mut next) = (vec![0; rank], if lie == Lie::Gaps { 2 } else { 1 });
    for &axis in order.iter().rev() {
        if lie == Lie::Packed && axis == rank - 2 {
            next *= 3;
        }
        strides[axis] = next;
        next *= dims[axis].max(1);
        if lie == Lie::Gaps && axis == rank - 1 {
            next += 1;
        }
    }
    strides
}

/// A value of numbers, converted to a type.
pub fn value_of(data_type: DataType, dims: &[i64], numbers: &[f32]) -> Value {
    let bytes: Vec<u8> = match data_type {
        D::F32 => numbers.iter().flat_map(|x| x.to_ne_bytes()).collect(),
        D::Bf16 => numbers.iter().flat_map(|&x| half::bf16::from_f32(x).to_ne_bytes()).collect(),
        D::F16 => numbers.iter().flat_map(|&x| half::f16::from_f32(x).to_ne_bytes()).collect(),
        D::S32 => numbers.iter().flat_map(|&x| (x as i32).to_ne_bytes()).collect(),
        D::S64 => numbers.iter().flat_map(|&x| (x as i64).to_ne_bytes()).collect(),
        // True is any byte but 0.
        D::Boolean => {
            numbers.iter().enumerate().map(|(i, &x)| if x == 0.0 { 0 } else { 1 + i as u8 % 7 }).collect()
        }
        D::U8 => numbers.iter().map(|&x| x as u8).collect(),
        other => panic!("no test has {other}"),
    };
    Value::new(data_type, dims, bytes).unwrap()
}

/// So many numbers within ±`size`.
pub fn numbers(random: &mut Random, dims: &[i64], size: f32) -> Vec<f32> {
    let number = |random: &mut Random| (random.below(4001) as f32 - 2000.0) / 2000.0 * size;
    (0..dims.iter().product()).map(|_: i64| number(random)).collect()
}

/// Writes a graph op by op.
#[derive(Debug)]
pub struct Builder {
    pub ops: Vec<Op>,
    pub inputs: Vec<Given>,
    /// The tensors of the graph have known shapes; if not, not even their rank is known.
    pub is_known: bool,
    next: usize,
    outside: Vec<usize>,
}

impl Builder {
    pub fn new(is_known: bool) -> Self {
        Self { ops: Vec::new(), inputs: Vec::new(), is_known, next: 0, outside: Vec::new() }
    }

    fn id(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }

    /// An input of these numbers; row-major if there are no strides.
    pub fn input(
        &mut self,
        data_type: DataType,
        dims: &[i64],
        strides: Option<&[i64]>,
        numbers: &[f32],
    ) -> Port {
        let id = self.id();
        let desc = match strides {
            Some(strides) => LogicalTensor::with_strides(id, data_type, dims, strides).unwrap(),
            None => LogicalTensor::strided(id, data_type, dims).unwrap(),
        };
        self.inputs.push(Given { desc: desc.clone(), value: value_of(data_type, dims, numbers) });
        let desc = if self.is_known { desc } else { LogicalTensor::unknown(id, data_type) };
        Port { desc, dims: dims.to_vec() }
    }

    /// An input of any type; row-major if there are no strides.
    pub fn input_of(&mut self, value: Value, strides: Option<&[i64]>) -> Port {
        let (id, data_type, dims) = (self.id(), value.data_type(), value.dims().to_vec());
        let desc = match strides {
            Some(strides) => LogicalTensor::with_strides(id, data_type, &dims, strides).unwrap(),
            None => LogicalTensor::strided(id, data_type, &dims).unwrap(),
        };
        self.inputs.push(Given { desc: desc.clone(), value });
        let desc = if self.is_known { desc } else { LogicalTensor::unknown(id, data_type) };
        Port { desc, dims }
    }

    /// An input of one number.
    pub fn scalar(&mut self, data_type: DataType, number: f32) -> Port {
        self.input(data_type, &[], None, &[number])
    }

    /// An input of one number in the memory of the caller's variable.
    pub fn host_scalar(&mut self, data_type: DataType, number: f32) -> Port {
        let desc = LogicalTensor::host_scalar(self.id(), data_type).unwrap();
        self.inputs.push(Given { desc: desc.clone(), value: value_of(data_type, &[], &[number]) });
        Port { desc, dims: Vec::new() }
    }

    pub fn op_with(
        &mut self,
        kind: OpKind,
        inputs: &[&Port],
        to: &[DataType],
        attrs: &[(Attr, AttrValue)],
    ) -> Vec<Port> {
        let ids: Vec<usize> = to.iter().map(|_| self.id()).collect();
        let op = Op::new(self.ops.len(), kind).inputs_from(inputs.iter().map(|port| port.desc.clone()));
        let op = attrs.iter().fold(op, |op, (attr, value)| op.attr(*attr, value.clone()));
        let unknown = ids.iter().zip(to).map(|(&id, &to)| LogicalTensor::unknown(id, to));
        let dims: Vec<&[i64]> = inputs.iter().map(|port| &port.dims[..]).collect();
        let shapes = reference::output_shapes(&unknown.clone().fold(op.clone(), Op::output), &dims);
        let shapes = shapes.unwrap_or_else(|why| panic!("{why}")).unwrap();
        let known =
            ids.iter().zip(to).zip(&shapes).map(|((&id, &to), dims)| LogicalTensor::any(id, to, dims));
        let descs: Vec<LogicalTensor> =
            if self.is_known { known.map(Result::unwrap).collect() } else { unknown.collect() };
        self.ops.push(descs.iter().cloned().fold(op, Op::output));
        descs.into_iter().zip(shapes).map(|(desc, dims)| Port { desc, dims: dims.to_vec() }).collect()
    }

    /// An op of one output.
    pub fn op(&mut self, kind: OpKind, inputs: &[&Port], to: DataType) -> Port {
        self.op_with(kind, inputs, &[to], &[]).remove(0)
    }

    pub fn matmul(&mut self, a: &Port, b: &Port, transpose_b: bool, to: DataType) -> Port {
        self.op_with(K::MatMul, &[a, b], &[to], &[(Attr::TransposeB, transpose_b.into())]).remove(0)
    }

    pub fn softmax(&mut self, scores: &Port, inf_as_zero: bool, to: DataType) -> Port {
        self.op_with(K::SoftMax, &[scores], &[to], &softmax_attrs(inf_as_zero)).remove(0)
    }

    /// SoftMax with statistics.
    pub fn softmax_with_stats(&mut self, scores: &Port, inf_as_zero: bool, to: DataType) -> [Port; 2] {
        let results = self.op_with(K::SoftMax, &[scores], &[to, D::F32], &softmax_attrs(inf_as_zero));
        results.try_into().unwrap()
    }

    pub fn index(&mut self, of: &Port, axis: i64) -> Port {
        self.op_with(K::GenIndex, &[of], &[D::S32], &[(Attr::Axis, axis.into())]).remove(0)
    }

    pub fn transpose(&mut self, of: &Port, order: &[i64]) -> Port {
        self.op_with(K::StaticTranspose, &[of], &[of.data_type()], &[(Attr::Order, order.into())]).remove(0)
    }

    pub fn reshape(&mut self, of: &Port, dims: &[i64]) -> Port {
        let attrs = [(Attr::Shape, dims.into()), (Attr::SpecialZero, false.into())];
        self.op_with(K::StaticReshape, &[of], &[of.data_type()], &attrs).remove(0)
    }

    pub fn reorder(&mut self, of: &Port) -> Port {
        self.op(K::Reorder, &[of], of.data_type())
    }

    /// Asks for a tensor from outside.
    pub fn hand_out(&mut self, port: &Port) {
        self.outside.push(port.id());
        self.ops.push(Op::new(self.ops.len(), K::End).input(port.desc.clone()));
    }

    /// The causal condition by indices; with `bottom_right` by host scalars of the lengths.
    pub fn causal(&mut self, scores: &Port, bottom_right: bool) -> Port {
        let [i, j] = [-2, -1].map(|axis| self.index(scores, axis));
        let rank = scores.dims.len();
        let i = match bottom_right {
            true => {
                let [queries, keys] =
                    [rank - 2, rank - 1].map(|axis| self.host_scalar(D::S32, scores.dims[axis] as f32));
                let i = self.op(K::Add, &[&i, &keys], D::S32);
                self.op(K::Subtract, &[&i, &queries], D::S32)
            }
            false => i,
        };
        self.op(K::GreaterEqual, &[&i, &j], D::Boolean)
    }

    /// The scores where the condition holds, else the fill; the other way round if `inverted`.
    pub fn select(&mut self, cond: &Port, scores: &Port, fill: f32, inverted: bool) -> Port {
        let fill = self.scalar(scores.data_type(), fill);
        let [then, other] = if inverted { [&fill, scores] } else { [scores, &fill] };
        self.op(K::Select, &[cond, then, other], scores.data_type())
    }

    /// The truth of an expression for each query and key, as ops on indices.
    pub fn expression(&mut self, of: &Expression, scores: &Port) -> Port {
        use Expression as E;
        let binary = |builder: &mut Self, kind, a: &E, b: &E, to| {
            let [a, b] = [a, b].map(|side| builder.expression(side, scores));
            builder.op(kind, &[&a, &b], to)
        };
        match of {
            E::Query => self.index(scores, -2),
            E::Key => self.index(scores, -1),
            E::OfQuery(numbers) => {
                let numbers: Vec<f32> = numbers.iter().map(|&x| x as f32).collect();
                self.input(D::S32, &[numbers.len() as i64, 1], None, &numbers)
            }
            E::OfKey(numbers) => {
                let numbers: Vec<f32> = numbers.iter().map(|&x| x as f32).collect();
                self.input(D::S32, &[numbers.len() as i64], None, &numbers)
            }
            E::Number(number) => self.scalar(D::S32, *number as f32),
            E::Number2(kind, a, b) => binary(self, *kind, a, b, D::S32),
            E::Compare(kind, a, b) => binary(self, *kind, a, b, D::Boolean),
            E::Logic(kind, a, b) => binary(self, *kind, a, b, D::Boolean),
            E::Not(a) => {
                let a = self.expression(a, scores);
                self.op(K::LogicalNot, &[&a], D::Boolean)
            }
        }
    }

    /// Applies a mask to scores; where it is false, the score becomes `fill`.
    pub fn masked(
        &mut self,
        scores: &Port,
        mask: &Expression,
        form: Form,
        inverted: bool,
        fill: f32,
    ) -> Port {
        let rank = scores.dims.len();
        let [queries, keys] = [scores.dims[rank - 2], scores.dims[rank - 1]];
        let truth = |of: fn(bool, f32) -> f32| -> Vec<f32> {
            let pairs = (0..queries).flat_map(|i| (0..keys).map(move |j| (i, j)));
            pairs.map(|(i, j)| of(mask.holds(i as i32, j as i32), fill)).collect()
        };
        match form {
            Form::Boolean => {
                let truth =
                    truth(if inverted { |holds, _| f32::from(!holds) } else { |holds, _| holds.into() });
                let cond = self.input(D::Boolean, &[queries, keys], None, &truth);
                self.select(&cond, scores, fill, inverted)
            }
            Form::Expression => {
                let cond = self.expression(mask, scores);
                let cond = if inverted { self.op(K::LogicalNot, &[&cond], D::Boolean) } else { cond };
                self.select(&cond, scores, fill, inverted)
            }
            Form::Additive => {
                let addend = truth(|holds, fill| if holds { 0.0 } else { fill });
                let addend = self.input(scores.data_type(), &[queries, keys], None, &addend);
                let [a, b] = if inverted { [&addend, scores] } else { [scores, &addend] };
                self.op(K::Add, &[a, b], scores.data_type())
            }
        }
    }

    /// Ends the construction.
    pub fn finish(self) -> Setup {
        let mut graph = Graph::new();
        self.ops.iter().for_each(|op| graph.add_op(op.clone()).unwrap_or_else(|why| panic!("{why}")));
        graph.finalize().unwrap_or_else(|why| panic!("{why}"));
        let consumed: Vec<usize> =
            self.ops.iter().flat_map(|op| op.inputs().iter().map(|tensor| tensor.id().get())).collect();
        let computed: Vec<Op> = self.ops.iter().filter(|op| op.kind() != K::End).cloned().collect();
        let outputs = computed.iter().flat_map(|op| op.outputs().iter().map(|tensor| tensor.id().get()));
        let outputs = outputs.filter(|id| !consumed.contains(id) || self.outside.contains(id)).collect();
        Setup { graph, ops: computed, inputs: self.inputs, outputs, layouts: BTreeMap::new() }
    }
}

fn softmax_attrs(inf_as_zero: bool) -> Vec<(Attr, AttrValue)> {
    let mode = if inf_as_zero { "inf_as_zero" } else { "none" };
    vec![(Attr::Axis, (-1i64).into()), (Attr::Mode, mode.into())]
}

/// In which form a graph has a mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Boolean,
    Expression,
    Additive,
}

pub const FORMS: [Form; 3] = [Form::Boolean, Form::Expression, Form::Additive];

/// A condition on a query and a key, or a number that follows from them.
#[derive(Debug, Clone)]
pub enum Expression {
    Query,
    Key,
    /// A number for each query, and for each key.
    OfQuery(Vec<i32>),
    OfKey(Vec<i32>),
    Number(i32),
    Number2(OpKind, Box<Expression>, Box<Expression>),
    Compare(OpKind, Box<Expression>, Box<Expression>),
    Logic(OpKind, Box<Expression>, Box<Expression>),
    Not(Box<Expression>),
}

impl Expression {
    fn number(&self, i: i32, j: i32) -> i32 {
        match self {
            Self::Query => i,
            Self::Key => j,
            Self::OfQuery(numbers) => numbers[i as usize],
            Self::OfKey(numbers) => numbers[j as usize],
            Self::Number(number) => *number,
            Self::Number2(kind, a, b) => {
                let (a, b) = (a.number(i, j), b.number(i, j));
                match kind {
                    K::Add => a.wrapping_add(b),
                    K::Subtract => a.wrapping_sub(b),
                    K::Multiply => a.wrapping_mul(b),
                    // Divisors are positive.
                    K::Divide => a.div_euclid(b),
                    K::Modulo => a.rem_euclid(b),
                    K::Maximum => a.max(b),
                    K::Minimum => a.min(b),
                    other => panic!("no mask has {other}"),
                }
            }
            other => i32::from(other.holds(i, j)),
        }
    }

    /// True if the condition holds for a query and a key.
    pub fn holds(&self, i: i32, j: i32) -> bool {
        match self {
            Self::Compare(kind, a, b) => {
                let (a, b) = (a.number(i, j), b.number(i, j));
                match kind {
                    K::Equal => a == b,
                    K::NotEqual => a != b,
                    K::Less => a < b,
                    K::LessEqual => a <= b,
                    K::Greater => a > b,
                    _ => a >= b,
                }
            }
            Self::Logic(kind, a, b) => {
                let (a, b) = (a.holds(i, j), b.holds(i, j));
                match kind {
                    K::LogicalAnd => a && b,
                    K::LogicalOr => a || b,
                    _ => a != b,
                }
            }
            Self::Not(a) => !a.holds(i, j),
            number => number.number(i, j) != 0,
        }
    }
}

fn of2(kind: OpKind, a: Expression, b: Expression) -> Expression {
    Expression::Number2(kind, a.into(), b.into())
}

fn compare(kind: OpKind, a: Expression, b: Expression) -> Expression {
    Expression::Compare(kind, a.into(), b.into())
}

fn and(a: Expression, b: Expression) -> Expression {
    Expression::Logic(K::LogicalAnd, a.into(), b.into())
}

fn or(a: Expression, b: Expression) -> Expression {
    Expression::Logic(K::LogicalOr, a.into(), b.into())
}

/// The masks that matter, for so many queries and keys.
pub fn masks(queries: i64, keys: i64) -> Vec<(&'static str, Expression)> {
    use Expression::{Key, Number, OfKey, OfQuery, Query};
    let size = queries.max(keys) as i32;
    let mut random = Random::new(11);
    // Lengths of documents, as many as there is room for.
    let mut documents = Vec::new();
    while documents.len() < size as usize {
        let id = documents.last().map_or(0, |last| last + 1);
        documents.extend(std::iter::repeat_n(id, 9 + random.below(size as usize / 3 + 1)));
    }
    let of_queries: Vec<i32> = documents[..queries as usize].to_vec();
    let of_keys: Vec<i32> = documents[..keys as usize].to_vec();
    let ends: Vec<i32> = (0..keys as i32).map(|j| j + random.below(size as usize) as i32).collect();
    let prefixes: Vec<i32> = (0..keys as i32)
        .map(|j| i32::from(j > 0 && of_keys[j as usize] != of_keys[j as usize - 1]))
        .collect();
    let document = || compare(K::Equal, OfQuery(of_queries.clone()), OfKey(of_keys.clone()));
    let causal = || compare(K::LessEqual, Key, Query);
    let block = |x: Expression, of: i32| of2(K::Divide, x, Number(of));
    let distance = || of2(K::Subtract, Query, Key);
    let window = |w: i32| and(compare(K::Less, distance(), Number(w)), causal());
    let before = |x: Expression, n: i32| compare(K::Less, x, Number(n));
    let chunk = (size / 8).max(1);
    let same_block = |of: i32| compare(K::Equal, block(Query, of), block(Key, of));
    let hash = |modulus: i32| {
        let (a, b) = (of2(K::Multiply, Query, Number(7919)), of2(K::Multiply, Key, Number(104_729)));
        let mixed = of2(K::Modulo, of2(K::Add, a, b), Number(10_007));
        of2(K::Modulo, of2(K::Multiply, mixed, Number(31)), Number(modulus))
    };
    let band = |from: i32, to: i32| {
        and(compare(K::GreaterEqual, distance(), Number(from)), compare(K::Less, distance(), Number(to)))
    };
    vec![
        ("full", compare(K::GreaterEqual, Key, Number(0))),
        ("causal", causal()),
        ("sliding window", window(size / 16 + 1)),
        ("causal document", and(causal(), document())),
        ("document", document()),
        (
            "share question",
            and(causal(), or(compare(K::Equal, OfKey(of_keys.clone()), Number(0)), document())),
        ),
        (
            "global and sliding",
            and(or(or(before(Key, 16), before(Query, 16)), window(size / 16 + 1)), causal()),
        ),
        (
            "causal blockwise",
            and(causal(), or(same_block(size / 4 + 1), compare(K::Greater, Query, Number(3 * size / 4)))),
        ),
        ("prefix", or(before(Key, size / 2), causal())),
        ("prefix document", and(document(), or(compare(K::Equal, OfKey(prefixes), Number(1)), causal()))),
        (
            "less two bands",
            and(causal(), Expression::Not(or(band(size / 8, size / 6), band(size / 2, size / 2 + 9)).into())),
        ),
        ("random eviction", and(causal(), compare(K::LessEqual, Query, OfKey(ends)))),
        ("padding", before(Key, size * 3 / 5)),
        ("sink and window", and(or(before(Key, 4), window(size / 16 + 1)), causal())),
        (
            "strided",
            and(or(same_block(32), compare(K::Equal, of2(K::Modulo, Key, Number(4)), Number(3))), causal()),
        ),
        ("chunked local", and(causal(), same_block(chunk))),
        ("random half", compare(K::Equal, hash(2), Number(0))),
        ("random hundredth", compare(K::Equal, hash(100), Number(0))),
    ]
}

/// Queries, keys and values as data.
#[derive(Debug, Clone)]
pub struct Heads {
    /// Dims before tokens and features, of queries and of keys and values.
    pub batch: Vec<i64>,
    pub kv_batch: Vec<i64>,
    pub queries: i64,
    pub keys: i64,
    pub d: i64,
    pub dv: i64,
    pub data_type: DataType,
    pub lie: Lie,
    /// The keys are given as a transposed view, which the product takes as it is.
    pub key_view: bool,
}

impl Heads {
    pub fn new(data_type: DataType, batch: &[i64], [queries, keys]: [i64; 2], d: i64) -> Self {
        let (batch, kv_batch) = (batch.to_vec(), batch.to_vec());
        Self { batch, kv_batch, queries, keys, d, dv: d, data_type, lie: Lie::Dense, key_view: false }
    }

    /// Queries, keys and values as inputs.
    pub fn inputs(&self, builder: &mut Builder, random: &mut Random) -> [Port; 3] {
        let dims = |batch: &[i64], tokens: i64, d: i64| [batch, &[tokens, d]].concat();
        let q = dims(&self.batch, self.queries, self.d);
        let mut k = dims(&self.kv_batch, self.keys, self.d);
        let v = dims(&self.kv_batch, self.keys, self.dv);
        let of = |dims: &[i64]| strides(dims, self.lie);
        let (of_q, mut of_k, of_v) = (of(&q), of(&k), of(&v));
        let rank = k.len();
        if self.key_view {
            k.swap(rank - 2, rank - 1);
            of_k.swap(rank - 2, rank - 1);
        }
        [(q, of_q, 2.0), (k, of_k, 2.0), (v, of_v, 1.0)].map(|(dims, strides, size)| {
            let numbers = numbers(random, &dims, size);
            builder.input(self.data_type, &dims, Some(&strides), &numbers)
        })
    }
}

/// A graph by name.
pub type Row = (String, Setup);

/// The plain form: product, scale, mask, SoftMax, product.
pub fn plain(
    heads: &Heads,
    inf_as_zero: bool,
    seed: u64,
    mask: impl Fn(&mut Builder, &Port) -> Port,
) -> Setup {
    let mut builder = Builder::new(true);
    let [q, k, v] = heads.inputs(&mut builder, &mut Random::new(seed));
    let scores = builder.matmul(&q, &k, !heads.key_view, D::F32);
    let scale = builder.scalar(D::F32, (heads.d as f32).sqrt());
    let scores = builder.op(K::Divide, &[&scores, &scale], D::F32);
    let scores = mask(&mut builder, &scores);
    let shares = builder.softmax(&scores, inf_as_zero, heads.data_type);
    builder.matmul(&shares, &v, false, heads.data_type);
    builder.finish()
}

/// Runs each graph at every level, and collects what is wrong.
pub fn check_all(rows: &[Row], engines: &[Engine]) -> Vec<String> {
    faults_of(rows, usize::MAX, |(name, setup)| {
        let allowed = setup.enclosures();
        let fault = |engine| setup.check(engine, &allowed).err().map(|why| format!("{name}: {why}"));
        engines.iter().filter_map(fault).collect::<Vec<_>>()
    })
}

/// A finished graph with its inputs.
#[derive(Debug)]
pub struct Setup {
    pub graph: Graph,
    /// The ops but for those that only ask for tensors.
    pub ops: Vec<Op>,
    pub inputs: Vec<Given>,
    /// Ids of the tensors that the graph hands out.
    pub outputs: Vec<usize>,
    /// Layouts asked for.
    pub layouts: BTreeMap<usize, LogicalTensor>,
}

/// A tensor in memory.
struct Held {
    buffer: TensorBuf,
    /// Of a host scalar, the description that says so.
    scalar: Option<LogicalTensor>,
}

impl Held {
    fn desc(&self) -> &LogicalTensor {
        self.scalar.as_ref().unwrap_or(self.buffer.desc())
    }

    fn tensor(&self) -> Tensor<'_> {
        let Some(desc) = &self.scalar else { return self.buffer.as_tensor() };
        let tensor = match desc.data_type() {
            D::F32 => self.buffer.as_slice::<f32>().and_then(|of| Tensor::scalar(desc, of[0])),
            D::S32 => self.buffer.as_slice::<i32>().and_then(|of| Tensor::scalar(desc, of[0])),
            _ => self.buffer.as_slice::<i64>().and_then(|of| Tensor::scalar(desc, of[0])),
        };
        tensor.expect("a host scalar is of one of three types")
    }
}

impl Setup {
    /// The partitions that run ops: those of ops that only ask for tensors are left out.
    pub fn partitions(&self, policy: Policy) -> Vec<Partition> {
        let all = self.graph.partitions(policy).unwrap();
        all.into_iter().filter(|partition| partition.ops()[0].kind() != K::End).collect()
    }

    /// A sentence on the way in which the graph is cut, unless it is one partition that can be run.
    pub fn is_not_one(&self) -> Option<String> {
        let partitions = self.partitions(Policy::Fusion);
        let kinds = |partition: &Partition| {
            partition.ops().iter().map(|op| op.kind().name()).collect::<Vec<_>>().join(" ")
        };
        match &partitions[..] {
            [one] if one.is_supported() => None,
            many => Some(many.iter().map(kinds).collect::<Vec<_>>().join(" | ")),
        }
    }

    /// The elements of the inputs.
    pub fn values(&self) -> BTreeMap<usize, Value> {
        self.inputs.iter().map(|given| (given.desc.id().get(), given.value.clone())).collect()
    }

    /// The bounds that the reference states for each tensor that is handed out.
    pub fn enclosures(&self) -> BTreeMap<usize, Enclosure> {
        let inputs = self.inputs.iter().map(|given| (given.desc.id(), given.value.clone())).collect();
        let wanted: Vec<TensorId> = self.outputs.iter().map(|&id| id.into()).collect();
        let made = reference::enclose(&self.ops, &inputs, &wanted).unwrap_or_else(|why| panic!("{why}"));
        made.into_iter().map(|(id, allowed)| (id.get(), allowed)).collect()
    }

    /// Runs partitions; gives what the graph hands out.
    pub fn run(&self, partitions: &[Partition], engine: &Engine) -> Result<BTreeMap<usize, Value>, String> {
        let mut held: BTreeMap<usize, Held> = BTreeMap::new();
        for given in &self.inputs {
            let is_scalar = given.desc.is_host_scalar();
            let (id, data_type) = (given.desc.id(), given.desc.data_type());
            let desc = match is_scalar {
                true => LogicalTensor::strided(id, data_type, &[]).unwrap(),
                false => given.desc.clone(),
            };
            let mut buffer = TensorBuf::zeroed(desc, engine).map_err(|e| e.to_string())?;
            given.value.write(&mut buffer).map_err(|e| e.to_string())?;
            held.insert(id.get(), Held { buffer, scalar: is_scalar.then(|| given.desc.clone()) });
        }
        for partition in partitions {
            if let Some(why) = partition.unsupported_reason() {
                return Err(why);
            }
            let inputs: Vec<&Held> = partition.inputs().iter().map(|port| &held[&port.id().get()]).collect();
            let descs: Vec<LogicalTensor> = inputs.iter().map(|held| held.desc().clone()).collect();
            let wanted = |port: &LogicalTensor| match self.layouts.get(&port.id().get()) {
                Some(desc) => desc.clone(),
                None => LogicalTensor::unknown(port.id(), port.data_type()),
            };
            let outputs: Vec<LogicalTensor> = partition.outputs().iter().map(wanted).collect();
            let compiled = partition.compile_for(engine, &descs, &outputs).map_err(|e| e.to_string())?;
            let mut results = Vec::new();
            for desc in compiled.outputs() {
                let mut buffer = TensorBuf::zeroed(desc.clone(), engine).map_err(|e| e.to_string())?;
                buffer.as_mut_bytes().fill(GAP);
                results.push(buffer);
            }
            let sources: Vec<Tensor<'_>> = inputs.iter().map(|held| held.tensor()).collect();
            let mut targets: Vec<_> = results.iter_mut().map(TensorBuf::as_tensor_mut).collect();
            let stream = Stream::new(engine);
            compiled.execute(&stream, &sources, &mut targets).map_err(|e| e.to_string())?;
            drop(targets);
            for buffer in results {
                let value = Value::read(&buffer.as_tensor()).map_err(|e| e.to_string())?;
                let mut other =
                    TensorBuf::zeroed(buffer.desc().clone(), engine).map_err(|e| e.to_string())?;
                other.as_mut_bytes().fill(GAP);
                value.write(&mut other).map_err(|e| e.to_string())?;
                if other.as_bytes() != buffer.as_bytes() {
                    return Err(format!("bytes between the elements of {} are written", buffer.desc().id()));
                }
                held.insert(buffer.desc().id().get(), Held { buffer, scalar: None });
            }
        }
        let value = |id: &usize| (*id, Value::read(&held[id].buffer.as_tensor()).unwrap());
        Ok(self.outputs.iter().map(value).collect())
    }

    /// Runs the graph fused, and says what lies outside of what the reference allows.
    pub fn check(&self, engine: &Engine, allowed: &BTreeMap<usize, Enclosure>) -> Result<(), String> {
        let made = self.run(&self.partitions(Policy::Fusion), engine)?;
        self.outputs.iter().try_for_each(|id| {
            let (given, allowed) = (&made[id], &allowed[id]);
            match allowed.first_outside(given) {
                Some(at) => Err(format!(
                    "{}: element {at} of tensor {id} of {:?} is {:?}, not {} in {:?}",
                    engine.level(),
                    given.dims(),
                    floats(given).get(at),
                    allowed.numbers()[at],
                    allowed.ends(at),
                )),
                None => Ok(()),
            }
        })
    }

    /// The ops and inputs, for people to read.
    pub fn describe(&self) -> String {
        let ids = |ts: &[LogicalTensor]| {
            ts.iter().map(|t| format!("{}:{}", t.id(), t.data_type())).collect::<Vec<_>>().join(", ")
        };
        let op = |op: &Op| {
            let attrs: Vec<String> = op.attrs().map(|(attr, value)| format!("{attr}={value}")).collect();
            format!("{} = {}({}) {}", ids(op.outputs()), op.kind(), ids(op.inputs()), attrs.join(" "))
        };
        let input = |given: &Given| {
            let (dims, strides) = (given.value.dims(), given.desc.strides().unwrap_or_default());
            format!("{} = {dims:?} by {strides:?}", ids(std::slice::from_ref(&given.desc)))
        };
        self.inputs.iter().map(input).chain(self.ops.iter().map(op)).collect::<Vec<_>>().join("\n")
    }
}

/// The elements of a value as numbers.
pub fn floats(value: &Value) -> Vec<f64> {
    let size = value.data_type().size().unwrap_or(1);
    let number = |element: &[u8]| match (value.data_type(), element) {
        (D::F32, &[a, b, c, d]) => f32::from_ne_bytes([a, b, c, d]).into(),
        (D::F16, &[a, b]) => half::f16::from_ne_bytes([a, b]).into(),
        (D::Bf16, &[a, b]) => half::bf16::from_ne_bytes([a, b]).into(),
        (_, &[a]) => a.into(),
        _ => f64::NAN,
    };
    value.bytes().chunks_exact(size).map(number).collect()
}

/// A random attention graph: any chain, shape, type and layout.
pub fn random(random: &mut Random) -> Setup {
    let sizes = [1, 2, 3, 5, 8, 16, 17, 31, 63, 64, 65, 70, 129, 130, 200];
    let float = random.pick(&[D::F32, D::F32, D::Bf16, D::F16]);
    let batch: Vec<i64> = (0..random.below(4)).map(|_| random.pick(&[1, 1, 2, 3])).collect();
    let (mut queries, mut keys) = (random.pick(&sizes), random.pick(&sizes));
    let most = 30_000 / batch.iter().product::<i64>().max(1);
    while queries * keys > most {
        (queries, keys) = ((queries + 1) / 2, (keys + 1) / 2);
    }
    let d = random.pick(&[1, 2, 3, 7, 8, 16, 32, 33]);
    let mut heads = Heads::new(float, &batch, [queries, keys], d);
    heads.dv = random.pick(&[d, d, 1, 5, 8, 16, 24, 40]);
    heads.lie = random.pick(&[Lie::Dense, Lie::Dense, Lie::TokenMajor, Lie::Packed, Lie::Gaps]);
    heads.key_view = random.below(3) == 0;
    if random.below(3) == 0 {
        // Heads in groups: all queries of a group share keys and values.
        let shared = random.below(batch.len() + 1);
        heads.kv_batch.iter_mut().skip(shared).for_each(|dim| *dim = 1);
    }
    let mut builder = Builder::new(random.below(2) == 0);
    // Elements are not worth a fuzzer's bytes.
    let filler = &mut Random::new(random.below(1 << 16) as u64);
    let [q, k, v] = heads.inputs(&mut builder, filler);
    let of_scores = random.pick(&[D::F32, D::F32, float]);
    let mut scores = builder.matmul(&q, &k, !heads.key_view, of_scores);
    if random.below(8) == 0 {
        builder.hand_out(&scores);
    }
    for _ in 0..random.below(6) {
        scores = random_link(&mut builder, random, filler, scores, float);
        if random.below(16) == 0 {
            builder.hand_out(&scores);
        }
    }
    let inf_as_zero = random.below(3) != 0;
    let shares_type = if random.below(3) == 0 { scores.data_type() } else { float };
    let mut shares = match random.below(4) {
        0 => {
            let [shares, _] = builder.softmax_with_stats(&scores, inf_as_zero, shares_type);
            shares
        }
        _ => builder.softmax(&scores, inf_as_zero, shares_type),
    };
    if shares.data_type() != float {
        shares = builder.op(K::TypeCast, &[&shares], float);
    }
    if random.below(6) == 0 {
        let holds: Vec<f32> = (0..keys).map(|_| f32::from(filler.below(5) != 0)).collect();
        let cond = builder.input(D::Boolean, &[keys], None, &holds);
        shares = builder.select(&cond, &shares, 0.0, false);
    }
    if random.below(16) == 0 {
        builder.hand_out(&shares);
    }
    let to = random.pick(&[float, float, D::F32]);
    let mut result = builder.matmul(&shares, &v, false, to);
    for _ in 0..random.below(4) {
        let rank = result.dims.len();
        result = match random.below(4) {
            0 if rank > 2 => {
                let mut order: Vec<i64> = (0..rank as i64).collect();
                order.swap(rank - 2, rank - 3);
                builder.transpose(&result, &order)
            }
            1 if rank > 1 => {
                let mut dims = result.dims.clone();
                let last = dims.pop().unwrap_or(1);
                *dims.last_mut().unwrap() *= last;
                builder.reshape(&result, &dims)
            }
            2 if result.data_type() == D::F32 => builder.op(K::TypeCast, &[&result], D::Bf16),
            _ => builder.reorder(&result),
        };
    }
    // If others ask for scores or shares, the products run one after another, where 0 · NaN is NaN.
    if random.below(4) == 0 && builder.outside.is_empty() {
        let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 1e4, 1e-40];
        for _ in 0..1 + random.below(3) {
            let (input, number) = (random.pick(&[1, 1, 2, 2, 0]), random.pick(&special));
            builder.inputs[input].plant(filler.next() as usize, number);
        }
    }
    builder.finish()
}

/// A tensor that broadcasts onto scores.
fn broadcast_dims(random: &mut Random, dims: &[i64]) -> Vec<i64> {
    let from = random.below(dims.len());
    dims[from..].iter().map(|&dim| if random.below(3) == 0 { 1 } else { dim }).collect()
}

/// One more step between the product and SoftMax.
fn random_link(
    builder: &mut Builder,
    random: &mut Random,
    filler: &mut Random,
    scores: Port,
    float: DataType,
) -> Port {
    let of = scores.data_type();
    let rank = scores.dims.len();
    let [queries, keys] = [scores.dims[rank - 2], scores.dims[rank - 1]];
    let fill = random.pick(&[f32::NEG_INFINITY, f32::NEG_INFINITY, -1e4, -100.0, f32::MIN]);
    let fill = if of == D::F16 { fill.max(-65504.0) } else { fill };
    let fill = if random.below(3) == 0 { f32::NEG_INFINITY } else { fill };
    match random.below(14) {
        0 | 1 => {
            let kind = random.pick(&[K::Multiply, K::Divide]);
            let number = random.pick(&[0.125, 2.0, 8.0, 0.7, -0.5]);
            let type_of = if of == D::F32 { random.pick(&[D::F32, D::F32, D::F16, D::Bf16]) } else { of };
            let scale = match type_of {
                D::F32 if random.below(3) == 0 => builder.host_scalar(D::F32, number),
                other => builder.scalar(other, number),
            };
            builder.op(kind, &[&scores, &scale], of)
        }
        2 => {
            let cap = builder.scalar(of, 5.0);
            let scaled = builder.op(K::Divide, &[&scores, &cap], of);
            let bent = builder.op(K::Tanh, &[&scaled], of);
            builder.op(K::Multiply, &[&bent, &cap], of)
        }
        3 | 4 => {
            let dims = broadcast_dims(random, &scores.dims);
            let bias = numbers(filler, &dims, 2.0);
            let bias = builder.input(of, &dims, None, &bias);
            builder.op(K::Add, &[&scores, &bias], of)
        }
        5 | 6 => {
            let dims = broadcast_dims(random, &scores.dims);
            let dense = random.pick(&[1, 2, 8]);
            let count: i64 = dims.iter().product();
            let run = random.pick(&[1, 1, 40, 64, 100]);
            let mut holds = 0.0;
            let truth: Vec<f32> = (0..count)
                .map(|at| {
                    if at % run == 0 {
                        holds = f32::from(filler.below(dense + 1) != 0);
                    }
                    holds
                })
                .collect();
            if random.below(3) == 0 {
                let addend: Vec<f32> =
                    truth.iter().map(|&holds| if holds == 0.0 { fill } else { 0.0 }).collect();
                let addend = builder.input(of, &dims, None, &addend);
                return builder.op(K::Add, &[&scores, &addend], of);
            }
            let cond = builder.input(D::Boolean, &dims, None, &truth);
            builder.select(&cond, &scores, fill, random.below(2) == 0)
        }
        7..10 => {
            let all = masks(queries, keys);
            let (_, mask) = random.pick(&all);
            builder.masked(&scores, &mask, random.pick(&FORMS), random.below(2) == 0, fill)
        }
        10 => {
            // A slope by the distance of query and key.
            let [i, j] = [-2, -1].map(|axis| builder.index(&scores, axis));
            let distance = builder.op(K::Subtract, &[&j, &i], D::S32);
            let distance = builder.op(K::Cast, &[&distance], D::F32);
            let slope = builder.scalar(D::F32, 0.125);
            let bias = builder.op(K::Multiply, &[&distance, &slope], D::F32);
            let bias = if of == D::F32 { bias } else { builder.op(K::TypeCast, &[&bias], of) };
            builder.op(K::Add, &[&scores, &bias], of)
        }
        11 => {
            let to = if of == D::F32 { float } else { D::F32 };
            if to == of { scores } else { builder.op(K::TypeCast, &[&scores], to) }
        }
        12 => {
            let kind = random.pick(&[K::Abs, K::Sigmoid, K::ReLU, K::GELU, K::Square]);
            builder.op(kind, &[&scores], of)
        }
        _ => {
            let bound = builder.scalar(of, 1.0);
            builder.op(random.pick(&[K::Maximum, K::Minimum]), &[&scores, &bound], of)
        }
    }
}
