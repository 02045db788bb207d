//! Promise: a value that several ops of a group use is the same to each of them and outside of the group,
//! whichever tiles need it; and the bits of a group are those of its ops with the layouts that it settled.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::graphs::{self, RandomGraph};
use crate::common::{Random, engines, faults_of, report, seeds};
use sterna::{
    Accuracy, Attr, DataType, Engine, Graph, LogicalTensor, Op, OpKind, Partition, Policy, TensorBuf,
};

use DataType as D;
use OpKind as K;

const UNARY: [OpKind; 9] =
    [K::Sigmoid, K::Tanh, K::Exp, K::GELU, K::Negative, K::Abs, K::ReLU, K::Square, K::Identity];
const BINARY: &[OpKind] = &[K::Add, K::Subtract, K::Multiply, K::Maximum, K::Minimum];

/// Ops beside those that compute each element on its own.
#[derive(Clone, Copy, PartialEq)]
enum Others {
    None,
    /// Ops on rows, and products.
    Sums,
    /// These, and ops that move elements.
    SumsAndMoves,
}

/// A tensor of a graph under construction.
#[derive(Debug, Clone)]
struct Known {
    id: usize,
    data_type: DataType,
    dims: Vec<i64>,
}

impl Known {
    fn desc(&self) -> LogicalTensor {
        LogicalTensor::unknown(self.id, self.data_type)
    }

    fn row_major(&self) -> LogicalTensor {
        LogicalTensor::strided(self.id, self.data_type, &self.dims).unwrap()
    }
}

/// A graph whose values have several users.
struct Web<'a> {
    random: &'a mut Random,
    others: Others,
    data_type: DataType,
    /// Inputs and results in this type, and booleans.
    numbers: Vec<Known>,
    booleans: Vec<Known>,
    results: Vec<Known>,
    ops: Vec<Op>,
    inputs: Vec<LogicalTensor>,
}

impl<'a> Web<'a> {
    fn new(random: &'a mut Random, others: Others, data_type: DataType, dims: &[i64]) -> Self {
        let mut web = Web {
            random,
            others,
            data_type,
            numbers: Vec::new(),
            booleans: Vec::new(),
            results: Vec::new(),
            ops: Vec::new(),
            inputs: Vec::new(),
        };
        let first = web.input(data_type, dims);
        web.numbers.push(first);
        let ops = 3 + web.random.below(8);
        while web.ops.len() < ops {
            web.grow();
        }
        for _ in 0..1 + web.random.below(3) {
            let of = web.result();
            web.op(K::Identity, &[&of], &of.dims, |op| op);
        }
        web
    }

    fn input(&mut self, data_type: DataType, dims: &[i64]) -> Known {
        let id = self.inputs.len() + self.results.len();
        let desc = match self.others {
            Others::None | Others::Sums => LogicalTensor::strided(id, data_type, dims).unwrap(),
            Others::SumsAndMoves => graphs::strided(self.random, id, data_type, dims, false),
        };
        self.inputs.push(desc);
        Known { id, data_type, dims: dims.to_vec() }
    }

    fn op(&mut self, kind: OpKind, operands: &[&Known], dims: &[i64], with: impl FnOnce(Op) -> Op) {
        let data_type = if kind == K::Less { D::Boolean } else { self.data_type };
        let id = self.inputs.len() + self.results.len();
        let result = Known { id, data_type, dims: dims.to_vec() };
        let op = with(Op::new(self.ops.len(), kind)).inputs_from(operands.iter().map(|of| of.desc()));
        self.ops.push(op.output(result.desc()));
        let list = if kind == K::Less { &mut self.booleans } else { &mut self.numbers };
        list.push(result.clone());
        self.results.push(result);
    }

    /// A number, mostly a late one.
    fn number(&mut self) -> Known {
        let latest = if self.random.below(2) == 0 { self.numbers.len().min(4) } else { self.numbers.len() };
        self.numbers[self.numbers.len() - 1 - self.random.below(latest)].clone()
    }

    /// A number that an op has computed.
    fn result(&mut self) -> Known {
        let numbers: Vec<&Known> = self.results.iter().filter(|of| of.data_type != D::Boolean).collect();
        match numbers.is_empty() {
            true => self.numbers[0].clone(),
            false => numbers[self.random.below(numbers.len())].clone(),
        }
    }

    /// A tensor that broadcasts onto dims: one of these dims that there is, or an input.
    fn fitting(&mut self, data_type: DataType, dims: &[i64]) -> Known {
        let list = if data_type == D::Boolean { &self.booleans } else { &self.numbers };
        let fits = |known: &&Known| match data_type {
            D::Boolean => known.dims.iter().zip(dims).all(|(a, b)| a == b || *a == 1),
            _ => known.dims == dims,
        };
        let known: Vec<Known> =
            list.iter().filter(|known| known.dims.len() == dims.len()).filter(fits).cloned().collect();
        if !known.is_empty() && self.random.below(5) != 0 {
            return known[self.random.below(known.len())].clone();
        }
        let mut own = dims.to_vec();
        match self.random.below(4) {
            0 => {}
            1 => own.last_mut().into_iter().for_each(|dim| *dim = 1),
            _ => own.fill(1),
        }
        let input = self.input(data_type, &own);
        let list = if data_type == D::Boolean { &mut self.booleans } else { &mut self.numbers };
        list.push(input.clone());
        input
    }

    fn grow(&mut self) {
        let kinds = match self.others {
            Others::None => 10,
            Others::Sums => 13,
            Others::SumsAndMoves => 16,
        };
        let x = self.number();
        let dims = x.dims.clone();
        match self.random.below(kinds) {
            0..4 => {
                let kind = self.random.pick(&UNARY);
                self.op(kind, &[&x], &dims, |op| op);
            }
            4..6 => {
                let y = self.fitting(self.data_type, &dims);
                let pair = if self.random.below(2) == 0 { [&x, &y] } else { [&y, &x] };
                let kind = self.random.pick(BINARY);
                self.op(kind, &pair, &dims, |op| op);
            }
            6 => {
                let y = self.fitting(self.data_type, &dims);
                self.op(K::Less, &[&x, &y], &dims, |op| op);
            }
            7..10 => {
                let (y, cond) = (self.fitting(self.data_type, &dims), self.fitting(D::Boolean, &dims));
                let [then, else_] = if self.random.below(2) == 0 { [&x, &y] } else { [&y, &x] };
                self.op(K::Select, &[&cond, then, else_], &dims, |op| op);
            }
            10 | 13 => self.product(&x),
            11 | 12 => self.rows(&x),
            _ => self.moved(&x),
        }
    }

    /// A product with a number that there is, or with new weights.
    fn product(&mut self, x: &Known) {
        let rank = x.dims.len();
        if rank < 2 {
            return;
        }
        let [rows, depth] = [x.dims[rank - 2], x.dims[rank - 1]];
        let [transpose_a, transpose_b] = [0; 2].map(|_| self.random.below(2) == 0);
        let (rows, depth) = if transpose_a { (depth, rows) } else { (rows, depth) };
        let columns = self.random.pick(&[1, 5, 16, 33]);
        let right = if transpose_b { [columns, depth] } else { [depth, columns] };
        let other = self.numbers.iter().rev().find(|of| {
            let along = if transpose_b { 1 } else { 2 };
            of.dims.len() == rank
                && of.dims[..rank - 2] == x.dims[..rank - 2]
                && of.dims[rank - along] == depth
        });
        let other = other.cloned().filter(|_| self.random.below(3) == 0);
        let other = other.unwrap_or_else(|| self.input(self.data_type, &right));
        let across = if transpose_b { 2 } else { 1 };
        let mut dims = x.dims.clone();
        (dims[rank - 2], dims[rank - 1]) = (rows, other.dims[other.dims.len() - across]);
        self.op(K::MatMul, &[x, &other], &dims, |op| {
            op.attr(Attr::TransposeA, transpose_a).attr(Attr::TransposeB, transpose_b)
        });
    }

    /// An op on rows, most along the last dim.
    fn rows(&mut self, x: &Known) {
        let rank = x.dims.len();
        let along = if self.random.below(3) == 0 { self.random.below(rank) } else { rank - 1 } as i64;
        let kind = self.random.pick(&[
            K::SoftMax,
            K::LogSoftmax,
            K::LayerNorm,
            K::ReduceSum,
            K::ReduceMean,
            K::ReduceL2,
        ]);
        let mut dims = x.dims.clone();
        match kind {
            K::SoftMax | K::LogSoftmax => self.op(kind, &[x], &dims, |op| op.axis(along)),
            K::LayerNorm => self.op(kind, &[x], &dims, |op| {
                op.attr(Attr::KeepStats, false).attr(Attr::UseAffine, false).attr(Attr::BeginNormAxis, along)
            }),
            _ => {
                dims[along as usize] = 1;
                self.op(kind, &[x], &dims, |op| op.attr(Attr::Axes, vec![along]).attr(Attr::KeepDims, true));
            }
        }
    }

    fn moved(&mut self, x: &Known) {
        let rank = x.dims.len();
        if self.random.below(2) == 0 {
            let mut order: Vec<i64> = (0..rank as i64).collect();
            (1..rank).rev().for_each(|i| order.swap(i, self.random.below(i + 1)));
            let dims: Vec<i64> = order.iter().map(|&axis| x.dims[axis as usize]).collect();
            return self.op(K::StaticTranspose, &[x], &dims, |op| op.attr(Attr::Order, order));
        }
        let dims = match rank {
            2 => vec![1, x.dims[0], x.dims[1]],
            _ => vec![x.dims[..rank - 1].iter().product(), x.dims[rank - 1]],
        };
        self.op(K::StaticReshape, &[x], &dims.clone(), |op| {
            op.attr(Attr::Shape, dims).attr(Attr::SpecialZero, false)
        });
    }

    fn finish(self) -> (RandomGraph, Vec<Known>) {
        let mut graph = Graph::new();
        self.ops.iter().for_each(|op| graph.add_op(op.clone()).unwrap());
        graph.finalize().unwrap();
        let outputs = self.results.iter().map(|of| (of.id, of.row_major())).collect();
        (RandomGraph { graph, ops: self.ops, inputs: self.inputs, outputs }, self.results)
    }
}

/// Small numbers, and conditions most of which are one throughout.
fn filled(graph: &RandomGraph, engine: &Engine, seed: u64) -> BTreeMap<usize, TensorBuf> {
    let fill = |desc: &LogicalTensor| {
        let mut random = Random::new(seed ^ desc.id().get() as u64 ^ 0x5eed);
        let mut tensor = TensorBuf::zeroed(desc.clone(), engine).unwrap();
        let number = |random: &mut Random| (random.below(4001) as f32 - 2000.0) / 1000.0;
        match desc.data_type() {
            D::Boolean => {
                let (is_uniform, truth) = (random.below(3) != 0, random.below(2) as u8);
                let one = |random: &mut Random| if is_uniform { truth } else { random.below(2) as u8 };
                tensor.as_mut_bytes().fill_with(|| one(&mut random));
            }
            D::F32 => tensor.as_mut_slice::<f32>().unwrap().fill_with(|| number(&mut random)),
            D::Bf16 => {
                let numbers = tensor.as_mut_slice::<half::bf16>().unwrap();
                numbers.fill_with(|| half::bf16::from_f32(number(&mut random)));
            }
            _ => {
                let numbers = tensor.as_mut_slice::<half::f16>().unwrap();
                numbers.fill_with(|| half::f16::from_f32(number(&mut random)));
            }
        }
        (desc.id().get(), tensor)
    };
    graph.inputs.iter().map(fill).collect()
}

/// Looks for graphs with a fault, on all processors; fails with the first three.
fn check(most: u64, fault: impl Fn(u64) -> Option<String> + Sync) {
    report(&faults_of(seeds(most), 3, |seed| fault(seed).map(|why| format!("seed {seed}: {why}"))));
}

/// Dims with few tiles and with many, with rows of every length.
const DIMS: &[&[i64]] = &[&[1, 25], &[3, 70], &[17, 16], &[40, 33], &[2, 3, 40], &[5, 7, 1], &[64, 130]];

fn is_bounded(partitions: &[Partition]) -> bool {
    partitions.iter().any(|partition| partition.accuracy() == Some(Accuracy::Bounded))
}

/// The fault of a random graph, fused and op by op, in place and not.
fn reused(seed: u64, others: Others, engines: &[Engine]) -> Option<String> {
    let mut random = Random::new(seed);
    let dims = random.pick(DIMS);
    let data_type = random.pick(&[D::F32, D::F32, D::Bf16]);
    let (graph, _) = Web::new(&mut random, others, data_type, dims).finish();
    if is_bounded(&graph.graph.partitions(Policy::Fusion).unwrap()) {
        return None;
    }
    let engine = &engines[seed as usize % engines.len()..][..1];
    graphs::check_on(&graph, seed, engine, &|engine| filled(&graph, engine, seed)).err()
}

#[test]
fn values_with_several_uses_are_the_same_to_all() {
    let engines = engines();
    check(8_000, |seed| reused(seed, Others::None, &engines));
}

#[test]
fn values_with_several_uses_around_sums_are_the_same_to_all() {
    let engines = engines();
    check(5_000, |seed| {
        reused(seed, if seed.is_multiple_of(4) { Others::SumsAndMoves } else { Others::Sums }, &engines)
    });
}

/// Both truths of the condition, for each way in which a value that one branch needs leaves the group.
#[test]
fn a_value_that_a_tile_leaves_out_is_right_where_it_is_handed_out() {
    let (engines, mut wrong) = (engines(), Vec::new());
    let tensor = |id: usize, data_type: DataType| LogicalTensor::unknown(id, data_type);
    let number = |id: usize| tensor(id, D::F32);
    for (is_then, last) in [false, true].into_iter().flat_map(|then| UNARY.map(|last| (then, last))) {
        let ops = vec![
            Op::new(0, K::Abs).input(number(0)).output(number(3)),
            Op::new(1, K::Exp).input(number(3)).output(number(4)),
            match is_then {
                true => Op::select(2, tensor(1, D::Boolean), number(4), number(2), number(5)),
                false => Op::select(2, tensor(1, D::Boolean), number(2), number(4), number(5)),
            },
            Op::new(3, K::Sigmoid).input(number(3)).output(number(6)),
            Op::new(4, K::Multiply).input(number(6)).input(number(0)).output(number(7)),
            Op::new(5, last).input(number(4)).output(number(8)),
        ];
        let dense = |id: usize, data_type: DataType, dims: &[i64]| {
            LogicalTensor::strided(id, data_type, dims).unwrap()
        };
        let inputs = vec![dense(0, D::F32, &[2, 40]), dense(1, D::Boolean, &[1, 1]), dense(2, D::F32, &[])];
        let outputs = (3..9).map(|id| (id, dense(id, D::F32, &[2, 40]))).collect();
        let mut graph = Graph::new();
        ops.iter().for_each(|op| graph.add_op(op.clone()).unwrap());
        graph.finalize().unwrap();
        let graph = RandomGraph { graph, ops, inputs, outputs };
        for truth in [0, 1] {
            let inputs = |engine: &Engine| {
                let mut inputs = filled(&graph, engine, 3);
                inputs.get_mut(&1).unwrap().as_mut_bytes().fill(truth);
                inputs
            };
            let fault = graphs::check_on(&graph, 0, &engines, &inputs).err();
            wrong.extend(fault.map(|why| (is_then, last, truth, why)));
        }
    }
    report(&wrong);
}

/// The fault of a random graph, whose outputs have layout `any`: the bits of its ops with the layouts of the
/// partitions' outputs, where tensors inside are dense and row-major, are not those of the partitions. Counts
/// the graphs that differ from their ops with the layouts that these settle alone.
fn settled(seed: u64, engines: &[Engine], differ_alone: &AtomicU64) -> Option<String> {
    let mut random = Random::new(seed);
    let dims = random.pick(DIMS);
    let data_type = random.pick(&[D::F32, D::F32, D::Bf16, D::F16]);
    let (graph, results) = Web::new(&mut random, Others::SumsAndMoves, data_type, dims).finish();
    let [fused, alone] = graphs::both(&graph.graph);
    if is_bounded(&fused) {
        return None;
    }
    let engine = &engines[seed as usize % engines.len()];
    let inputs = filled(&graph, engine, seed);
    let any = results.iter().map(|of| (of.id, of.desc())).collect();
    let fault = |why: String| format!("{}: {why}\n{}", engine.level(), graphs::describe(&graph));
    let together = match graphs::run(&fused, &any, engine, &inputs, None) {
        Ok(together) => together,
        Err(why) => return Some(fault(why)),
    };
    if let Ok(apart) = graphs::run(&alone, &any, engine, &inputs, None) {
        let differs = graphs::differs(&together, &apart).is_some();
        differ_alone.fetch_add(differs.into(), Ordering::Relaxed);
    }
    let layout = |of: &Known| together.get(&of.id).map_or_else(|| of.row_major(), |made| made.desc().clone());
    let settled = results.iter().map(|of| (of.id, layout(of))).collect();
    match graphs::run(&alone, &settled, engine, &inputs, None) {
        Ok(apart) => graphs::differs(&together, &apart).map(fault),
        Err(why) => Some(fault(why)),
    }
}

#[test]
fn a_group_has_the_bits_of_its_ops_with_the_layouts_that_it_settled() {
    let engines = engines();
    let differ_alone = AtomicU64::new(0);
    check(6_000, |seed| settled(seed, &engines, &differ_alone));
    assert!(differ_alone.into_inner() > 0, "the layouts make no difference in any of these graphs");
}
