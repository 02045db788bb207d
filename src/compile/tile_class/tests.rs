//! Classes of tiles against every element, as the reference computes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::classify_phase;
use crate::compile::elementwise::ShapedGroup;
use crate::execute::compiled::CompiledPartition;
use crate::execute::engine::Engine;
use crate::execute::tensor::TensorBuf;
use crate::graph::Graph;
use crate::graph::infer;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::Op;
use crate::kernels::StorePolicy;
use crate::partition::Partition;
use crate::plan::tile_class::MaskTiles;
use crate::plan::{Base, ClassTable, Cost, Phase, Plan, Preparation, Threading, TileClass};
use crate::reference::{self, Value};
use crate::types::dtype::DataType;
use crate::types::kind::{AutoBroadcast, Level, OpKind, Policy};

use DataType as D;
use OpKind as K;

/// Random numbers, the same ones for a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }
}

/// The id of the raw score.
const SCORE: usize = 0;

/// A chain from the raw score to the value that enters SoftMax, grown op by op.
struct MaskGraph {
    /// The dims of the scores.
    dims: Vec<i64>,
    ops: Vec<Op>,
    /// The tensors, by id, for a score of small numbers.
    values: Vec<Value>,
    /// The inputs beside the score, with their layouts.
    inputs: BTreeMap<usize, LogicalTensor>,
    /// Whether the values are computed; else they are zeros.
    is_computed: bool,
    /// Whether a mask is added to scores: scores that overflow to +∞ are masked all the same.
    adds_masks: bool,
}

fn bytes_of(count: usize, number: impl Fn(usize) -> f32) -> Vec<u8> {
    (0..count).flat_map(|index| number(index).to_ne_bytes()).collect()
}

impl MaskGraph {
    fn new(dims: &[i64]) -> Self {
        let score = Self::score(dims, |index| (index * 37 % 101) as f32 / 25.0 - 2.0);
        let (ops, inputs) = (Vec::new(), BTreeMap::new());
        Self { dims: dims.into(), ops, values: vec![score], inputs, is_computed: true, adds_masks: false }
    }

    fn score(dims: &[i64], number: impl Fn(usize) -> f32) -> Value {
        let count = dims.iter().product::<i64>() as usize;
        Value::new(D::F32, dims, bytes_of(count, number)).expect("the bytes are those of the dims")
    }

    /// An input with the elements of a value, in row-major order.
    fn input(&mut self, value: Value) -> usize {
        let tensor = LogicalTensor::strided(self.values.len(), value.data_type(), value.dims());
        self.input_as(value, tensor.expect("the tensor can be described"))
    }

    /// An input with the elements of a value, in an order of dims, with gaps.
    fn strided_input(&mut self, value: Value, random: &mut Random) -> usize {
        let rank = value.dims().len();
        let mut order: Vec<usize> = (0..rank).collect();
        (1..rank).for_each(|place| order.swap(place, random.below(place + 1)));
        let (mut strides, mut next) = (vec![1; rank], 1 + random.below(2) as i64);
        for &dim in &order {
            strides[dim] = next;
            next = next * value.dims()[dim].max(1) + random.below(3) as i64;
        }
        let tensor =
            LogicalTensor::with_strides(self.values.len(), value.data_type(), value.dims(), &strides);
        self.input_as(value, tensor.expect("the tensor can be described"))
    }

    fn input_as(&mut self, value: Value, tensor: LogicalTensor) -> usize {
        self.inputs.insert(self.values.len(), tensor);
        self.values.push(value);
        self.values.len() - 1
    }

    fn booleans(&mut self, dims: &[i64], truth: impl Fn(usize) -> u8) -> usize {
        let count = dims.iter().product::<i64>() as usize;
        let value = Value::new(D::Boolean, dims, (0..count).map(truth).collect());
        self.input(value.expect("the bytes are those of the dims"))
    }

    fn numbers(&mut self, dims: &[i64], number: impl Fn(usize) -> f32) -> usize {
        let value = Self::score(dims, number);
        self.input(value)
    }

    fn integers(&mut self, dims: &[i64], number: impl Fn(usize) -> i32) -> usize {
        let count = dims.iter().product::<i64>() as usize;
        let bytes = (0..count).flat_map(|index| number(index).to_ne_bytes()).collect();
        self.input(Value::new(D::S32, dims, bytes).expect("the bytes are those of the dims"))
    }

    fn integer(&mut self, number: i32) -> usize {
        self.integers(&[], |_| number)
    }

    fn tensor(&self, id: usize) -> LogicalTensor {
        self.inputs.get(&id).cloned().unwrap_or_else(|| {
            let value = &self.values[id];
            LogicalTensor::strided(id, value.data_type(), value.dims()).expect("its dims are known")
        })
    }

    fn op(&mut self, op: Op, operands: &[usize], to: DataType) -> usize {
        let id = self.values.len();
        let op = op.inputs_from(operands.iter().map(|&operand| self.tensor(operand)));
        let op = op.output(LogicalTensor::unknown(id, to));
        if self.is_computed {
            let operands: Vec<Value> = operands.iter().map(|&operand| self.values[operand].clone()).collect();
            self.values.extend(reference::run(&op, &operands).expect("the reference runs the op"));
        } else {
            let dims: Vec<&[i64]> = operands.iter().map(|&operand| self.values[operand].dims()).collect();
            let shapes = infer::output_shapes(&op, &dims).expect("the shapes fit").expect("they are known");
            let bytes = shapes[0].iter().product::<i64>() as usize * to.size().expect("it is of whole bytes");
            self.values
                .push(Value::new(to, &shapes[0], vec![0; bytes]).expect("the bytes are those of the dims"));
        }
        self.ops.push(op);
        id
    }

    fn plain(&mut self, kind: OpKind, operands: &[usize], to: DataType) -> usize {
        self.op(Op::new(self.ops.len(), kind), operands, to)
    }

    fn index(&mut self, axis: i64) -> usize {
        let op = Op::new(self.ops.len(), K::GenIndex).axis(axis);
        self.op(op, &[SCORE], D::S32)
    }

    fn select(&mut self, cond: usize, then: usize, else_: usize) -> usize {
        let op = Op::new(self.ops.len(), K::Select).auto_broadcast(AutoBroadcast::Multidirectional);
        let to = self.values[then].data_type();
        self.op(op, &[cond, then, else_], to)
    }

    /// The value of the last op for another score.
    fn root_for(&self, score: &Value) -> Vec<f32> {
        let mut values = self.values.clone();
        values[SCORE] = score.clone();
        for op in &self.ops {
            let operands: Vec<Value> = op.inputs().iter().map(|input| values[input.id()].clone()).collect();
            let results = reference::run(op, &operands).expect("the reference runs the op");
            values[op.outputs()[0].id()] = results[0].clone();
        }
        floats(&values[values.len() - 1])
    }

    fn partition(&self) -> Partition {
        // Without the ops whose results nothing uses.
        let mut used = vec![false; self.values.len()];
        used[self.values.len() - 1] = true;
        for op in self.ops.iter().rev().filter(|op| op.kind() != K::GenIndex) {
            if used[op.outputs()[0].id()] {
                op.inputs().iter().for_each(|input| used[input.id()] = true);
            }
        }
        let mut graph = Graph::new();
        let ops = self.ops.iter().filter(|op| used[op.outputs()[0].id()]);
        ops.for_each(|op| graph.add_op(op.clone()).expect("the op fits its schema"));
        graph.finalize().expect("the graph is whole");
        let mut partitions = graph.partitions(Policy::Fusion).expect("it is finalised");
        assert_eq!(partitions.len(), 1, "{:#?}", self.kinds());
        partitions.remove(0)
    }

    /// The classes of the value of the last op; `None` if the chain has no mask.
    fn tiles(&self, level: Level) -> Option<(MaskTiles, ClassTable)> {
        let partition = self.partition();
        let ports: Vec<LogicalTensor> =
            partition.inputs().iter().map(|input| self.tensor(input.id())).collect();
        let inputs: Vec<&LogicalTensor> = ports.iter().collect();
        let outputs: Vec<&LogicalTensor> = partition.outputs().iter().collect();
        let group = ShapedGroup::new(&partition, &inputs, &outputs).expect("the shapes fit");
        let strides: Vec<&[i64]> = ports.iter().map(|port| port.strides().expect("it is strided")).collect();
        let stored = group.stored_inputs(&strides);
        let score = ports.iter().position(|port| port.id() == SCORE).unwrap_or(usize::MAX);
        let rank = self.dims.len();
        let values = (score, group.outputs[0]);
        let axes = (rank - 2, rank - 1);
        let phase = classify_phase(&group, &stored, values, axes, Base::Buffer(0), level)?;
        let table = phase.table();
        let plan = Plan {
            outputs: Vec::new(),
            sizes: ports.iter().map(LogicalTensor::memory_size).collect(),
            in_place: Vec::new(),
            buffers: vec![phase.table_bytes()],
            phases: vec![Phase::Classify(Box::new(phase))],
            preparation: Preparation::default(),
            phase_flops: vec![0],
            constants: Vec::new(),
            scratch: 0,
            cost: Cost::default(),
            threading: Threading::Caller,
            computes_floats: true,
            stores: StorePolicy::Temporal,
        };
        let engine = Engine::new();
        let count = ports.len();
        let compiled = CompiledPartition::new(Arc::new(plan), engine.clone(), ports.clone(), count);
        let buffers: Vec<TensorBuf> = (ports.iter())
            .filter(|port| port.id() != SCORE)
            .map(|port| {
                let mut buffer = TensorBuf::zeroed(port.clone(), &engine).expect("there is memory");
                self.values[port.id()].write(&mut buffer).expect("the value fits");
                buffer
            })
            .collect();
        let tensors: Vec<_> = buffers.iter().map(TensorBuf::as_tensor).collect();
        let tiles = compiled.mask_tiles(&tensors).expect("the classes can be found")?;
        Some((tiles, table))
    }
}

fn floats(value: &Value) -> Vec<f32> {
    match value.data_type() {
        D::F32 => value.elements::<f32>().expect("it is f32"),
        D::F16 => {
            value.elements::<half::f16>().expect("it is f16").into_iter().map(half::f16::to_f32).collect()
        }
        _ => {
            value.elements::<half::bf16>().expect("it is bf16").into_iter().map(half::bf16::to_f32).collect()
        }
    }
}

/// The elements of each tile of a value that enters SoftMax: plane, block of queries and of keys, elements.
fn by_tile(dims: &[i64], root: &[f32]) -> Vec<([usize; 3], Vec<f32>)> {
    let rank = dims.len();
    let (queries, keys) = (dims[rank - 2] as usize, dims[rank - 1] as usize);
    let planes = dims[..rank - 2].iter().product::<i64>() as usize;
    let mut tiles = Vec::new();
    for plane in 0..planes {
        for query in (0..queries).step_by(64) {
            for key in (0..keys).step_by(64) {
                let mut elements = Vec::new();
                for q in query..queries.min(query + 64) {
                    let row = (plane * queries + q) * keys;
                    elements.extend_from_slice(&root[row + key..row + keys.min(key + 64)]);
                }
                tiles.push(([plane, query / 64, key / 64], elements));
            }
        }
    }
    tiles
}

/// Whether a class holds for the elements of a tile, given scores that are no larger than some hundreds.
fn holds(class: TileClass, elements: &[f32]) -> bool {
    match class {
        TileClass::Masked => elements.iter().all(|&x| x == f32::NEG_INFINITY),
        TileClass::Constant => elements[0].is_finite() && elements.iter().all(|&x| x == elements[0]),
        TileClass::Full => !elements.contains(&f32::NEG_INFINITY),
        TileClass::Partial => true,
    }
}

/// The classes of a chain, held against the elements for a few scores: the number of masked tiles that are
/// found, in planes that may be shared, and of all.
fn check(chain: &MaskGraph, with_infinities: bool) -> Result<(usize, usize), String> {
    let (mut all, mut tables) = (Vec::new(), Vec::new());
    for level in Level::all_available() {
        let Some((tiles, table)) = chain.tiles(level) else { return Err("no mask was found".into()) };
        all.push(tiles);
        tables.push(table);
    }
    if all.windows(2).any(|pair| pair[0] != pair[1]) {
        return Err(format!("levels differ: {all:?}"));
    }
    let tiles = &all[0];
    let dims = &chain.dims;
    let mut scores: Vec<(Value, bool)> = vec![
        (chain.values[SCORE].clone(), false),
        (MaskGraph::score(dims, |index| (index % 17) as f32 * 3.0 - 25.0), false),
        (MaskGraph::score(dims, |_| f32::NEG_INFINITY), true),
        (MaskGraph::score(dims, |_| 3.0e38), true),
        (MaskGraph::score(dims, |_| -3.0e38), true),
    ];
    if with_infinities {
        scores.push((MaskGraph::score(dims, |_| f32::NAN), true));
        scores.push((MaskGraph::score(dims, |_| f32::INFINITY), true));
    }
    let mut masked = 0;
    for (index, (score, is_extreme)) in scores.iter().enumerate() {
        for ([plane, query, key], elements) in by_tile(dims, &chain.root_for(score)) {
            let row = tables[0].row(plane * tiles.query_blocks() + query);
            let row = row.start / row.len();
            let class = tiles.class(row / tiles.query_blocks(), row % tiles.query_blocks(), key);
            let class = class.ok_or("a tile has no class")?;
            if index == 0 {
                masked += usize::from(holds(TileClass::Masked, &elements));
            }
            if *is_extreme && class == TileClass::Full {
                continue;
            }
            let is_masked = |&x: &f32| x == f32::NEG_INFINITY || x.is_nan();
            if *is_extreme && class == TileClass::Masked && chain.adds_masks && elements.iter().all(is_masked)
            {
                continue;
            }
            if !holds(class, &elements) {
                return Err(format!(
                    "{class:?} at {:?}, score {index}: {:?}",
                    [plane, query, key],
                    &elements[..elements.len().min(2)]
                ));
            }
        }
    }
    Ok((tiles.count(TileClass::Masked), masked))
}

/// Queries and keys of the masks, which are no multiple of a tile.
const S: usize = 1000;

/// Conditions on the indices of a query and a key, from 1-D inputs too.
struct Mask {
    name: &'static str,
    /// Whether query i sees key j.
    sees: fn(usize, usize) -> bool,
    /// The same as an expression.
    expr: fn(&mut MaskGraph, i: usize, j: usize) -> usize,
}

impl MaskGraph {
    fn both(&mut self, a: usize, b: usize) -> usize {
        self.plain(K::LogicalAnd, &[a, b], D::Boolean)
    }

    fn either(&mut self, a: usize, b: usize) -> usize {
        self.plain(K::LogicalOr, &[a, b], D::Boolean)
    }

    fn compare(&mut self, kind: OpKind, a: usize, b: usize) -> usize {
        self.plain(kind, &[a, b], D::Boolean)
    }

    fn less_than(&mut self, a: usize, number: usize) -> usize {
        let number = self.integer(number as i32);
        self.compare(K::Less, a, number)
    }

    fn causal(&mut self, i: usize, j: usize) -> usize {
        self.compare(K::LessEqual, j, i)
    }

    /// i − j < w.
    fn window(&mut self, i: usize, j: usize, w: usize) -> usize {
        let distance = self.plain(K::Subtract, &[i, j], D::S32);
        self.less_than(distance, w)
    }

    /// ⌊i / n⌋.
    fn block(&mut self, i: usize, n: usize) -> usize {
        let n = self.integer(n as i32);
        self.plain(K::Divide, &[i, n], D::S32)
    }

    fn same_block(&mut self, i: usize, j: usize, n: usize) -> usize {
        let (i, j) = (self.block(i, n), self.block(j, n));
        self.compare(K::Equal, i, j)
    }

    fn of_query(&mut self, number: fn(usize) -> usize) -> usize {
        self.integers(&[S as i64, 1], |i| number(i) as i32)
    }

    fn of_key(&mut self, number: fn(usize) -> usize) -> usize {
        self.integers(&[1, S as i64], |j| number(j) as i32)
    }

    fn same(&mut self, number: fn(usize) -> usize) -> usize {
        let (i, j) = (self.of_query(number), self.of_key(number));
        self.compare(K::Equal, i, j)
    }
}

/// The document of a token: five of them, of unequal lengths.
fn document(i: usize) -> usize {
    [0, 128, 300, 551, 800, S].partition_point(|&start| start <= i)
}

/// Up to where the keys of the document of a query are its prefix.
fn prefix(i: usize) -> usize {
    [0, 40, 200, 320, 700, 900][document(i)]
}

/// The query from which on a key is evicted.
fn evicted(j: usize) -> usize {
    let mut random = Random(j as u64);
    j + 1 + random.below(S)
}

/// A number for each pair that looks random.
fn hash(i: usize, j: usize) -> usize {
    (i * 7919 + j * 104_729) % 1009
}

fn hashed(chain: &mut MaskGraph, i: usize, j: usize, below: usize) -> usize {
    let factors = [7919, 104_729].map(|factor| chain.integer(factor));
    let i = chain.plain(K::Multiply, &[i, factors[0]], D::S32);
    let j = chain.plain(K::Multiply, &[j, factors[1]], D::S32);
    let sum = chain.plain(K::Add, &[i, j], D::S32);
    let modulus = chain.integer(1009);
    let hash = chain.plain(K::Modulo, &[sum, modulus], D::S32);
    chain.less_than(hash, below)
}

const MASKS: &[Mask] = &[
    Mask { name: "full", sees: |_, _| true, expr: |c, _, j| c.less_than(j, S) },
    Mask { name: "causal", sees: |i, j| j <= i, expr: MaskGraph::causal },
    Mask {
        name: "sliding window",
        sees: |i, j| j <= i && i < j + S / 16,
        expr: |c, i, j| {
            let (causal, window) = (c.causal(i, j), c.window(i, j, S / 16));
            c.both(causal, window)
        },
    },
    Mask {
        name: "causal document",
        sees: |i, j| j <= i && document(i) == document(j),
        expr: |c, i, j| {
            let (causal, same) = (c.causal(i, j), c.same(document));
            c.both(same, causal)
        },
    },
    Mask { name: "document", sees: |i, j| document(i) == document(j), expr: |c, _, _| c.same(document) },
    Mask {
        name: "share question",
        sees: |i, j| j <= i && (document(j) == 1 || document(i) == document(j)),
        expr: |c, i, j| {
            let (causal, same, key, one) =
                (c.causal(i, j), c.same(document), c.of_key(document), c.integer(1));
            let question = c.compare(K::Equal, key, one);
            let seen = c.either(question, same);
            c.both(causal, seen)
        },
    },
    Mask {
        name: "global and sliding",
        sees: |i, j| j <= i && (j < 16 || i < 16 || i < j + 100),
        expr: |c, i, j| {
            let (first_key, first_query) = (c.less_than(j, 16), c.less_than(i, 16));
            let (causal, window) = (c.causal(i, j), c.window(i, j, 100));
            let global = c.either(first_key, first_query);
            let seen = c.either(global, window);
            c.both(causal, seen)
        },
    },
    Mask {
        name: "causal blockwise",
        sees: |i, j| j <= i && (i / 128 == j / 128 || i / 128 == (S - 1) / 128),
        expr: |c, i, j| {
            let (causal, own, chunk) = (c.causal(i, j), c.same_block(i, j, 128), c.block(i, 128));
            let last = c.integer((S as i32 - 1) / 128);
            let is_last = c.compare(K::Equal, chunk, last);
            let seen = c.either(own, is_last);
            c.both(causal, seen)
        },
    },
    Mask {
        name: "prefix-LM",
        sees: |i, j| j < S / 2 || j <= i,
        expr: |c, i, j| {
            let (prefix, causal) = (c.less_than(j, S / 2), c.causal(i, j));
            c.either(prefix, causal)
        },
    },
    Mask {
        name: "prefix-LM document",
        sees: |i, j| document(i) == document(j) && (j <= i || j < prefix(i)),
        expr: |c, i, j| {
            let (same, causal, prefix) = (c.same(document), c.causal(i, j), c.of_query(prefix));
            let before = c.compare(K::Less, j, prefix);
            let seen = c.either(causal, before);
            c.both(same, seen)
        },
    },
    Mask {
        name: "QK-sparse",
        sees: |i, j| j <= i && !(i >= j + 200 && i < j + 330) && !(i >= j + 600 && i < j + 700),
        expr: |c, i, j| {
            let mut seen = c.causal(i, j);
            for (first, end) in [(200, 330), (600, 700)] {
                let (before, inside) = (c.window(i, j, first), c.window(i, j, end));
                let outside = c.plain(K::LogicalNot, &[inside], D::Boolean);
                let band = c.either(before, outside);
                seen = c.both(seen, band);
            }
            seen
        },
    },
    Mask {
        name: "random eviction",
        sees: |i, j| j <= i && i < evicted(j),
        expr: |c, i, j| {
            let (causal, end) = (c.causal(i, j), c.of_key(evicted));
            let kept = c.compare(K::Less, i, end);
            c.both(causal, kept)
        },
    },
    Mask { name: "padding", sees: |_, j| j < S * 6 / 10, expr: |c, _, j| c.less_than(j, S * 6 / 10) },
    Mask {
        name: "sink and window",
        sees: |i, j| j <= i && (j < 4 || i < j + 100),
        expr: |c, i, j| {
            let (sink, causal, window) = (c.less_than(j, 4), c.causal(i, j), c.window(i, j, 100));
            let seen = c.either(sink, window);
            c.both(causal, seen)
        },
    },
    Mask {
        name: "strided",
        sees: |i, j| j <= i && (i / 64 == j / 64 || j / 64 % 4 == 3),
        expr: |c, i, j| {
            let (causal, own, block) = (c.causal(i, j), c.same_block(i, j, 64), c.block(j, 64));
            let (four, three) = (c.integer(4), c.integer(3));
            let place = c.plain(K::Modulo, &[block, four], D::S32);
            let every = c.compare(K::Equal, place, three);
            let seen = c.either(own, every);
            c.both(causal, seen)
        },
    },
    Mask {
        name: "chunked local",
        sees: |i, j| j <= i && i / 125 == j / 125,
        expr: |c, i, j| {
            let (causal, own) = (c.causal(i, j), c.same_block(i, j, 125));
            c.both(causal, own)
        },
    },
    Mask { name: "random half", sees: |i, j| hash(i, j) < 505, expr: |c, i, j| hashed(c, i, j, 505) },
    Mask { name: "random hundredth", sees: |i, j| hash(i, j) < 10, expr: |c, i, j| hashed(c, i, j, 10) },
];

/// Masked and full tiles of a mask.
fn exact(sees: impl Fn(usize, usize) -> bool) -> (usize, usize) {
    let (mut masked, mut full) = (0, 0);
    for query in (0..S).step_by(64) {
        for key in (0..S).step_by(64) {
            let mut all =
                (query..S.min(query + 64)).flat_map(|i| (key..S.min(key + 64)).map(move |j| (i, j)));
            let seen = all.clone().any(|(i, j)| sees(i, j));
            masked += usize::from(!seen);
            full += usize::from(seen && all.all(|(i, j)| sees(i, j)));
        }
    }
    (masked, full)
}

/// A form of a mask, and the ops that say it.
type Form<'a> = (&'a str, &'a dyn Fn(&mut MaskGraph));

#[test]
fn every_form_of_a_mask_has_the_exact_tiles() {
    let mut wrong = Vec::new();
    for mask in MASKS {
        let expected = exact(mask.sees);
        let dims = [1, 1, S as i64, S as i64];
        let plane = [S as i64, S as i64];
        let sees = |index: usize| (mask.sees)(index / S, index % S);
        let forms: [Form<'_>; 6] = [
            ("booleans", &|c| {
                let (mask, fill) = (
                    c.booleans(&plane, |index| u8::from(sees(index)) * 0x81),
                    c.numbers(&[], |_| -f32::INFINITY),
                );
                c.select(mask, SCORE, fill);
            }),
            ("booleans, true where masked", &|c| {
                let (mask, fill) =
                    (c.booleans(&plane, |index| u8::from(!sees(index))), c.numbers(&[], |_| -f32::INFINITY));
                c.select(mask, fill, SCORE);
            }),
            ("expression", &|c| {
                let (i, j, fill) = (c.index(-2), c.index(-1), c.numbers(&[], |_| -f32::INFINITY));
                let mask = (mask.expr)(c, i, j);
                c.select(mask, SCORE, fill);
            }),
            ("expression, true where masked", &|c| {
                let (i, j, fill) = (c.index(2), c.index(3), c.numbers(&[], |_| -f32::INFINITY));
                let mask = (mask.expr)(c, i, j);
                let mask = c.plain(K::LogicalNot, &[mask], D::Boolean);
                c.select(mask, fill, SCORE);
            }),
            ("sum", &|c| {
                let mask = c.numbers(&plane, |index| if sees(index) { 0.0 } else { -f32::INFINITY });
                let scale = c.numbers(&[], |_| 0.125);
                let scaled = c.plain(K::Multiply, &[SCORE, scale], D::F32);
                c.plain(K::Add, &[scaled, mask], D::F32);
            }),
            ("sum in bf16", &|c| {
                let mask = c.numbers(&plane, |index| if sees(index) { 0.0 } else { -f32::INFINITY });
                let half = c.plain(K::TypeCast, &[SCORE], D::Bf16);
                let mask = c.plain(K::TypeCast, &[mask], D::Bf16);
                c.plain(K::Add, &[half, mask], D::Bf16);
            }),
        ];
        for (form, build) in forms {
            // The values are not needed: the mask is known.
            let mut chain = MaskGraph { is_computed: false, ..MaskGraph::new(&dims) };
            build(&mut chain);
            for level in Level::all_available() {
                let (tiles, _) = chain.tiles(level).expect("there is a mask");
                let found = (tiles.count(TileClass::Masked), tiles.count(TileClass::Full));
                if found != expected {
                    wrong.push(format!("{}, {form}, {level}: {found:?}, not {expected:?}", mask.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A random condition on indices, integers in memory and booleans.
fn random_condition(chain: &mut MaskGraph, random: &mut Random, numbers: &[usize], depth: usize) -> usize {
    let comparisons = [K::Less, K::LessEqual, K::Greater, K::GreaterEqual, K::Equal, K::NotEqual];
    if depth == 0 || random.below(4) == 0 {
        let operands = [random_integer(chain, random, numbers, 2), random_integer(chain, random, numbers, 2)];
        return chain.plain(random.pick(&comparisons), &operands, D::Boolean);
    }
    match random.below(5) {
        0 => {
            let x = random_condition(chain, random, numbers, depth - 1);
            chain.plain(K::LogicalNot, &[x], D::Boolean)
        }
        1 => random_blocks(chain, random),
        2 => {
            let cond = random_condition(chain, random, numbers, depth - 1);
            let branches =
                [random_integer(chain, random, numbers, 1), random_integer(chain, random, numbers, 1)];
            let chosen = chain.select(cond, branches[0], branches[1]);
            let other = random_integer(chain, random, numbers, 1);
            chain.plain(random.pick(&comparisons), &[chosen, other], D::Boolean)
        }
        _ => {
            let operands = [
                random_condition(chain, random, numbers, depth - 1),
                random_condition(chain, random, numbers, depth - 1),
            ];
            let kind = random.pick(&[K::LogicalAnd, K::LogicalOr, K::LogicalXor]);
            chain.plain(kind, &operands, D::Boolean)
        }
    }
}

/// A random integer for each place.
fn random_integer(chain: &mut MaskGraph, random: &mut Random, numbers: &[usize], depth: usize) -> usize {
    if depth == 0 || random.below(3) == 0 {
        return match random.below(5) {
            0 => {
                let number = random.pick(&[0, 1, -1, 3, 64, 100, 7, -20, 1 << 30]);
                chain.integer(number)
            }
            _ => random.pick(numbers),
        };
    }
    let x = random_integer(chain, random, numbers, depth - 1);
    let y = random_integer(chain, random, numbers, depth - 1);
    match random.below(9) {
        0 => chain.plain(K::Abs, &[x], D::S32),
        1 => chain.plain(K::Negative, &[x], D::S32),
        2 => {
            let float = chain.plain(K::Cast, &[x], D::F32);
            chain.plain(K::Cast, &[float], D::S32)
        }
        _ => {
            let kinds =
                [K::Add, K::Subtract, K::Multiply, K::Divide, K::Modulo, K::Maximum, K::Minimum, K::Subtract];
            chain.plain(random.pick(&kinds), &[x, y], D::S32)
        }
    }
}

/// Booleans in random blocks, of random strides, for random axes.
fn random_blocks(chain: &mut MaskGraph, random: &mut Random) -> usize {
    let dims: Vec<i64> = chain.dims.iter().map(|&dim| if random.below(3) == 0 { 1 } else { dim }).collect();
    let value = blocks(&dims, random, |truth| vec![if truth { 3u8 } else { 0 }], D::Boolean);
    chain.strided_input(value, random)
}

/// One of two elements in each block of 64 × 64, or both of them.
fn blocks(dims: &[i64], random: &mut Random, bytes: impl Fn(bool) -> Vec<u8>, of: DataType) -> Value {
    let rank = dims.len();
    let (queries, keys) = (dims[rank - 2] as usize, dims[rank - 1] as usize);
    let planes = dims[..rank - 2].iter().product::<i64>() as usize;
    let mut kinds: BTreeMap<[usize; 3], usize> = BTreeMap::new();
    let mut all = Vec::new();
    for plane in 0..planes {
        for query in 0..queries {
            for key in 0..keys {
                let block = [plane, query / 64, key / 64];
                let kind = *kinds.entry(block).or_insert_with(|| random.below(5));
                let truth = match kind {
                    0 | 1 => false,
                    2 | 3 => true,
                    _ => random.below(2) == 0,
                };
                all.extend(bytes(truth));
            }
        }
    }
    Value::new(of, dims, all).expect("the bytes are those of the dims")
}

#[test]
fn classes_of_random_masks_hold() {
    let mut wrong = Vec::new();
    let mut random = Random(5);
    let (mut found, mut exact) = (0, 0);
    for case in 0..60 {
        let sizes = [1, 5, 64, 65, 100, 130, 200];
        let mut dims = vec![1 + random.below(2) as i64, random.pick(&sizes), random.pick(&sizes)];
        if random.below(2) == 0 {
            dims.insert(0, 1 + random.below(2) as i64);
        }
        let mut chain = MaskGraph::new(&dims);
        let rank = dims.len() as i64;
        let mut numbers =
            vec![chain.index(-1), chain.index(-2), chain.index(-1), chain.index(-2), chain.index(0)];
        for axis in [rank - 2, rank - 1] {
            let mut of = vec![1; dims.len()];
            of[axis as usize] = dims[axis as usize];
            let step = 1 + random.below(60);
            numbers.push(chain.integers(&of, |index| (index / step) as i32));
        }
        let mut value = SCORE;
        for _ in 0..1 + random.below(3) {
            value = random_link(&mut chain, &mut random, &numbers, value);
        }
        if random.below(4) == 0 {
            let of = random.pick(&[D::Bf16, D::F16]);
            chain.plain(K::TypeCast, &[value], of);
        }
        match chain.tiles(Level::Portable) {
            None => {}
            Some(_) => match check(&chain, !chain.adds_masks) {
                Ok((skipped, all)) => {
                    found += skipped;
                    exact += all;
                }
                Err(fault) => wrong.push(format!("case {case}, {dims:?}: {fault}\n{:#?}", chain.kinds())),
            },
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(found > 0, "of {exact} masked tiles, {found} were found");
}

impl MaskGraph {
    /// The kinds of ops, for messages.
    fn kinds(&self) -> Vec<String> {
        let of = |op: &Op| {
            let operands: Vec<usize> = op.inputs().iter().map(LogicalTensor::id).collect();
            format!("{} = {} {operands:?}", op.outputs()[0].id(), op.kind())
        };
        self.ops.iter().map(of).collect()
    }
}

/// Another link of a chain from the score to the value that enters SoftMax.
fn random_link(chain: &mut MaskGraph, random: &mut Random, numbers: &[usize], value: usize) -> usize {
    match random.below(6) {
        0..=2 => {
            let cond = random_condition(chain, random, numbers, 2);
            let number = random.pick(&[-f32::INFINITY, -f32::INFINITY, -f32::INFINITY, -1e4, f32::MIN]);
            let fill = chain.numbers(&[], |_| number);
            match random.below(2) {
                0 => chain.select(cond, value, fill),
                _ => chain.select(cond, fill, value),
            }
        }
        3 => {
            let dims = chain.dims.clone();
            let bytes = |truth| (if truth { 0.0 } else { -f32::INFINITY }).to_ne_bytes().to_vec();
            let mask = blocks(&dims, random, bytes, D::F32);
            chain.adds_masks = true;
            let mut mask = chain.strided_input(mask, random);
            if random.below(2) == 0 {
                let of = random.pick(&[D::Bf16, D::F16]);
                mask = chain.plain(K::TypeCast, &[mask], of);
                mask = chain.plain(K::TypeCast, &[mask], D::F32);
            }
            chain.plain(K::Add, &[value, mask], D::F32)
        }
        4 => {
            let number = random.pick(&[0.125f32, 2.0, -1.5, 0.3]);
            let factor = chain.numbers(&[], |_| number);
            let kind = random.pick(&[K::Multiply, K::Divide]);
            chain.plain(kind, &[value, factor], D::F32)
        }
        _ => {
            let distance = chain.plain(K::Subtract, &[numbers[0], numbers[1]], D::S32);
            let distance = chain.plain(K::Cast, &[distance], D::F32);
            chain.plain(K::Add, &[value, distance], D::F32)
        }
    }
}

#[test]
fn what_a_tile_holds_follows_from_its_values() {
    type Build = fn(&mut MaskGraph);
    use TileClass::{Constant, Full, Masked, Partial};
    let rows: &[(&str, Build, TileClass)] = &[
        (
            "a fill of −∞",
            |c| {
                masked(c, -f32::INFINITY);
            },
            Masked,
        ),
        (
            "a finite fill",
            |c| {
                masked(c, -1e4);
            },
            Constant,
        ),
        (
            "a fill of +∞",
            |c| {
                masked(c, f32::INFINITY);
            },
            Partial,
        ),
        (
            "a fill of NaN",
            |c| {
                masked(c, f32::NAN);
            },
            Partial,
        ),
        (
            "a fill plus a finite bias",
            |c| {
                let x = masked(c, -f32::INFINITY);
                bias(c, x, 3.0);
            },
            Masked,
        ),
        (
            "a fill plus NaN",
            |c| {
                let x = masked(c, -f32::INFINITY);
                bias(c, x, f32::NAN);
            },
            Partial,
        ),
        (
            "a fill plus +∞",
            |c| {
                let x = masked(c, -f32::INFINITY);
                bias(c, x, f32::INFINITY);
            },
            Partial,
        ),
        (
            "a fill plus −∞",
            |c| {
                let x = masked(c, -f32::INFINITY);
                bias(c, x, -f32::INFINITY);
            },
            Masked,
        ),
        (
            "a score plus −∞",
            |c| {
                bias(c, SCORE, -f32::INFINITY);
            },
            Masked,
        ),
        (
            "a score plus a bias",
            |c| {
                bias(c, SCORE, 3.0);
            },
            Full,
        ),
        (
            "a score plus NaN",
            |c| {
                bias(c, SCORE, f32::NAN);
            },
            Partial,
        ),
        (
            "NaN plus −∞",
            |c| {
                let x = bias(c, SCORE, f32::NAN);
                bias(c, x, -f32::INFINITY);
            },
            Partial,
        ),
        (
            "a bias plus −∞",
            |c| {
                let x = bias(c, SCORE, 3.0);
                bias(c, x, -f32::INFINITY);
            },
            Masked,
        ),
        (
            "a fill times a number below 0",
            |c| {
                let x = masked(c, -f32::INFINITY);
                scaled(c, x, -2.0);
            },
            Partial,
        ),
        (
            "a fill times 0",
            |c| {
                let x = masked(c, -f32::INFINITY);
                scaled(c, x, 0.0);
            },
            Partial,
        ),
        (
            "a fill times a number above 0",
            |c| {
                let x = masked(c, -f32::INFINITY);
                scaled(c, x, 0.125);
            },
            Masked,
        ),
        (
            "a finite fill times a number",
            |c| {
                let x = masked(c, -1e4);
                scaled(c, x, 0.5);
            },
            Constant,
        ),
        (
            "a finite fill that overflows",
            |c| {
                let x = masked(c, -3e38);
                scaled(c, x, 2.0);
            },
            Masked,
        ),
        (
            "Tanh of a fill",
            |c| {
                let x = masked(c, -f32::INFINITY);
                c.plain(K::Tanh, &[x], D::F32);
            },
            Partial,
        ),
        (
            "Tanh of a score",
            |c| {
                let x = c.plain(K::Tanh, &[SCORE], D::F32);
                bias(c, x, 1.0);
            },
            Full,
        ),
        (
            "a second Select that undoes the first",
            |c| {
                let x = masked(c, -f32::INFINITY);
                let cond = c.booleans(&[1, 1], |_| 0);
                c.select(cond, x, SCORE);
            },
            Full,
        ),
        (
            "a maximum with a number",
            |c| {
                let x = masked(c, -f32::INFINITY);
                let y = c.numbers(&[1, 1], |_| -5.0);
                c.plain(K::Maximum, &[x, y], D::F32);
            },
            Constant,
        ),
        (
            "a condition on the score",
            |c| {
                let zero = c.numbers(&[1, 1], |_| 0.0);
                let cond = c.plain(K::Greater, &[SCORE, zero], D::Boolean);
                let fill = c.numbers(&[1, 1], |_| -f32::INFINITY);
                c.select(cond, SCORE, fill);
            },
            Full,
        ),
        (
            "a condition on the score, and a mask",
            |c| {
                let zero = c.numbers(&[1, 1], |_| 0.0);
                let cond = c.plain(K::Greater, &[SCORE, zero], D::Boolean);
                let never = c.booleans(&[1, 1], |_| 0);
                let cond = c.plain(K::LogicalAnd, &[cond, never], D::Boolean);
                let fill = c.numbers(&[1, 1], |_| -f32::INFINITY);
                c.select(cond, SCORE, fill);
            },
            Masked,
        ),
        (
            "NaN in a comparison",
            |c| {
                let nan = c.numbers(&[1, 1], |_| f32::NAN);
                let zero = c.numbers(&[1, 1], |_| 0.0);
                let cond = c.plain(K::Equal, &[nan, zero], D::Boolean);
                let fill = c.numbers(&[1, 1], |_| -f32::INFINITY);
                c.select(cond, SCORE, fill);
            },
            Partial,
        ),
    ];
    let mut wrong = Vec::new();
    for (name, build, expected) in rows {
        let mut chain = MaskGraph::new(&[1, 70, 70]);
        build(&mut chain);
        let Some((tiles, _)) = chain.tiles(Level::Portable) else {
            wrong.push(format!("{name}: no mask"));
            continue;
        };
        for (query, key) in [(0, 0), (1, 0), (1, 1)] {
            let class = tiles.class(0, query, key);
            if class != Some(*expected) {
                wrong.push(format!("{name}: {class:?}, not {expected:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A score that a condition masks everywhere.
fn masked(chain: &mut MaskGraph, fill: f32) -> usize {
    let (cond, fill) = (chain.booleans(&[70, 70], |_| 0), chain.numbers(&[], |_| fill));
    chain.select(cond, SCORE, fill)
}

fn bias(chain: &mut MaskGraph, value: usize, number: f32) -> usize {
    let bias = chain.numbers(&[70, 70], |_| number);
    chain.plain(K::Add, &[value, bias], D::F32)
}

fn scaled(chain: &mut MaskGraph, value: usize, number: f32) -> usize {
    let factor = chain.numbers(&[], |_| number);
    chain.plain(K::Multiply, &[value, factor], D::F32)
}
