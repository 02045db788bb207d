//! Classes of tiles against every element, as the reference computes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ClassifiedScores, classify_phase};
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
use crate::plan::attention::tile_class::MaskTiles;
use crate::plan::{
    Base, ClassTable, Cost, Phase, PlacedBuffer, Plan, Preparation, Threading, TileClass, ValueId,
};
use crate::reference::{self, Value};
use crate::types::dtype::DataType;
use crate::types::kind::{AutoBroadcast, Level, OpKind, Policy};

use DataType as D;
use OpKind as K;

mod bounds;
mod exact;
mod parts;
mod random;
mod values;

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
    /// True for computed values, false for zeros.
    is_computed: bool,
    /// True if a mask is added to scores: scores that overflow to +∞ are masked all the same.
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
        let open = op.clone().output(LogicalTensor::unknown(id, to));
        if self.is_computed {
            let operands: Vec<Value> = operands.iter().map(|&operand| self.values[operand].clone()).collect();
            self.values.extend(reference::run(&open, &operands).expect("the reference runs the op"));
        } else {
            let dims: Vec<&[i64]> = operands.iter().map(|&operand| self.values[operand].dims()).collect();
            let shapes = infer::output_shapes(&open, &dims).expect("the shapes fit").expect("they are known");
            let bytes = shapes[0].iter().product::<i64>() as usize * to.size().expect("it is of whole bytes");
            self.values
                .push(Value::new(to, &shapes[0], vec![0; bytes]).expect("the bytes are those of the dims"));
        }
        self.ops.push(op.output(self.tensor(id)));
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
            let operands: Vec<Value> =
                op.inputs().iter().map(|input| values[input.id().get()].clone()).collect();
            let results = reference::run(op, &operands).expect("the reference runs the op");
            values[op.outputs()[0].id().get()] = results[0].clone();
        }
        floats(&values[values.len() - 1])
    }

    /// The kinds of ops, for messages.
    fn kinds(&self) -> Vec<String> {
        let of = |op: &Op| {
            let operands: Vec<usize> = op.inputs().iter().map(|input| input.id().get()).collect();
            format!("{} = {} {operands:?}", op.outputs()[0].id(), op.kind())
        };
        self.ops.iter().map(of).collect()
    }

    fn partition(&self) -> Partition {
        // Without the ops whose results nothing uses.
        let mut used = vec![false; self.values.len()];
        used[self.values.len() - 1] = true;
        for op in self.ops.iter().rev().filter(|op| op.kind() != K::GenIndex) {
            if used[op.outputs()[0].id().get()] {
                op.inputs().iter().for_each(|input| used[input.id().get()] = true);
            }
        }
        let mut graph = Graph::new();
        let ops = self.ops.iter().filter(|op| used[op.outputs()[0].id().get()]);
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
            partition.inputs().iter().map(|input| self.tensor(input.id().get())).collect();
        let inputs: Vec<&LogicalTensor> = ports.iter().collect();
        let outputs: Vec<&LogicalTensor> = partition.outputs().iter().collect();
        let group = ShapedGroup::new(&partition, &inputs, &outputs).expect("the shapes fit");
        let strides: Vec<&[i64]> = ports.iter().map(|port| port.strides().expect("it is strided")).collect();
        let stored = group.stored_inputs(&strides);
        let score = ValueId(ports.iter().position(|port| port.id() == SCORE).unwrap_or(usize::MAX));
        let rank = self.dims.len();
        let without_sums = group.without_added_masks(score, group.outputs[0]);
        let sums_left_out = without_sums.map_or(Vec::new(), |(_, sums)| sums);
        let of = ClassifiedScores {
            scores: score,
            logits: group.outputs[0],
            query_axis: rank - 2,
            key_axis: rank - 1,
            is_exponent: false,
            divides: true,
            sums_left_out: &sums_left_out,
        };
        let phase = classify_phase(&group, &stored, of, Base::Buffer(0), level)?;
        let table = phase.table();
        let plan = Plan {
            outputs: Vec::new(),
            sizes: ports.iter().map(LogicalTensor::memory_size).collect(),
            in_place: Vec::new(),
            buffers: PlacedBuffer::in_order(&[phase.table_bytes()]),
            phases: vec![Phase::Classify(Box::new(phase))],
            preparation: Preparation::default(),
            phase_flops: vec![0],
            constants: Vec::new(),
            scratch: 0,
            cost: Cost::default(),
            threading: Threading::Caller,
            computes_floats: true,
            stores: StorePolicy::Temporal,
            fallbacks: Vec::new(),
            index_checks: Vec::new(),
        };
        let engine = Engine::new();
        let count = ports.len();
        let compiled = CompiledPartition::new(Arc::new(plan), engine.clone(), ports.clone(), count);
        let buffers: Vec<TensorBuf> = (ports.iter())
            .filter(|port| port.id() != SCORE)
            .map(|port| {
                let mut buffer = TensorBuf::zeroed(port.clone(), &engine).expect("there is memory");
                self.values[port.id().get()].write(&mut buffer).expect("the value fits");
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

/// True if a class holds for the elements of a tile, given scores that are no larger than some hundreds.
fn holds(class: TileClass, elements: &[f32]) -> bool {
    match class {
        TileClass::Masked => elements.iter().all(|&x| x == f32::NEG_INFINITY),
        TileClass::Constant => {
            let is_low = elements.iter().all(|&x| x <= -256.0);
            is_low || elements[0].is_finite() && elements.iter().all(|&x| x == elements[0])
        }
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
            let place = (row / tiles.query_blocks(), row % tiles.query_blocks());
            let class = tiles.class(place.0, place.1, key).ok_or("a tile has no class")?;
            let parts = tiles.masked_parts(place.0, place.1, key);
            let keys = (dims[dims.len() - 1] as usize - 64 * key).min(64);
            let is_wrong = |(index, x): (usize, &f32)| {
                let may_be_nan = *is_extreme && chain.adds_masks && x.is_nan();
                // A low number may be left out if the constant of the row tells of it.
                let is_low = *x <= tiles.largest_constant(place.0, place.1).min(-256.0);
                parts.contains(index % keys, index / keys) && !is_low && !may_be_nan
            };
            if elements.iter().enumerate().any(is_wrong) {
                return Err(format!("{parts:?} at {:?}, score {index}", [plane, query, key]));
            }
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
