//! Promise: Quantize, Dequantize and their dynamic forms give what the interpreter gives, bit for bit: every
//! type, scales and zero points for a tensor or for each channel of any dim, any layout, alone and among
//! other ops, at every level.

use std::collections::BTreeMap;

use crate::common::graphs::{self, RandomGraph};
use crate::common::{self, Random, engines, report};
use sterna::{
    Attr, DataType, Engine, Graph, LogicalTensor, Model, Op, OpKind, Session, TensorBuf, TensorView,
};

use DataType as D;
use OpKind as K;

const SHAPES: &[&[i64]] =
    &[&[], &[1], &[77], &[300], &[2, 3], &[3, 65], &[65, 3], &[4, 0, 5], &[2, 7, 33], &[1, 6, 1, 40]];

const DYNAMIC: &[DataType] = &[D::U8, D::S8, D::U4, D::S4];
const SMALL: &[DataType] = &[D::U8, D::S8, D::F8E5m2, D::F8E4m3];

/// A chain of ops on tensors from 0 on; each op takes the last result first, and further inputs.
struct Chain<'a> {
    random: &'a mut Random,
    dims: Vec<i64>,
    ops: Vec<Op>,
    inputs: Vec<LogicalTensor>,
    last: LogicalTensor,
    next: usize,
}

impl<'a> Chain<'a> {
    fn new(random: &'a mut Random, data_type: DataType, dims: &[i64]) -> Self {
        let first = graphs::strided(random, 0, data_type, dims, true);
        let (inputs, last) = (vec![first], LogicalTensor::unknown(0, data_type));
        Self { random, dims: dims.to_vec(), ops: Vec::new(), inputs, last, next: 1 }
    }

    fn input(&mut self, data_type: DataType, dims: &[i64]) -> LogicalTensor {
        let id = self.next;
        self.next += 1;
        self.inputs.push(graphs::strided(self.random, id, data_type, dims, true));
        LogicalTensor::unknown(id, data_type)
    }

    fn op(&mut self, op: impl FnOnce(usize, LogicalTensor) -> Op, to: DataType) {
        let output = LogicalTensor::unknown(self.next, to);
        self.next += 1;
        let op = op(self.ops.len(), self.last.clone()).output(output.clone());
        self.ops.push(op);
        self.last = output;
    }

    /// Quantize or Dequantize, with scales for a tensor or for an axis, and zero points or none.
    fn by_attributes(&mut self, kind: OpKind, to: DataType, axis: Option<usize>, has_zps: bool) {
        let count = axis.map_or(1, |axis| self.dims[axis]);
        let rank = self.dims.len() as i64;
        let scales: Vec<f32> = (0..count)
            .map(|_| self.random.pick(&[0.1, 0.5, 0.037, 2.0, -0.3, 1e-30, 1e30, 0.0, f32::INFINITY]))
            .collect();
        let zps: Vec<i64> =
            (0..count).map(|_| self.random.pick(&[0, 3, -7, 128, 255, -1000, i64::MAX])).collect();
        let negative = self.random.below(2) == 0;
        let op = |id, src| {
            let op = Op::new(id, kind).input(src).attr(Attr::Scales, scales);
            let op = if has_zps { op.attr(Attr::Zps, zps) } else { op };
            placed(op, axis, negative.then_some(rank))
        };
        self.op(op, to);
    }

    /// A dynamic form; the scales have a type, and the zero points, if there are any.
    fn by_inputs(
        &mut self,
        kind: OpKind,
        to: DataType,
        axis: Option<usize>,
        scale: DataType,
        zp: Option<DataType>,
    ) {
        let count = axis.map_or(1, |axis| self.dims[axis]);
        let rank = self.dims.len() as i64;
        let shape = |random: &mut Random| match (axis, random.below(6)) {
            (None, _) => random.pick(&[vec![], vec![1], vec![1, 1, 1, 1, 1]]),
            // Any shape of so many elements will do.
            (_, 0) => vec![1, 1, count],
            (_, 1) => vec![count, 1],
            (_, 2) if count % 3 == 0 => vec![count / 3, 3],
            _ => vec![count],
        };
        let of_scales = shape(self.random);
        let scales = self.input(scale, &of_scales);
        let of_zps = if self.random.below(3) == 0 { vec![1] } else { shape(self.random) };
        let zps = zp.map(|zp| self.input(zp, &of_zps));
        let negative = self.random.below(2) == 0;
        let op = |id, src| {
            let op = Op::new(id, kind).input(src).input(scales).inputs_from(zps);
            placed(op, axis, negative.then_some(rank))
        };
        self.op(op, to);
    }

    /// DynamicDequantize, with parameters for groups of neighbours.
    fn by_groups(&mut self, groups: &[i64], scale: DataType, zp: Option<DataType>) {
        let counts: Vec<i64> = self.dims.iter().zip(groups).map(|(dim, size)| dim / size).collect();
        let scales = self.input(scale, &counts);
        let zps = zp.map(|zp| self.input(zp, &counts));
        let op = |id, src| {
            let op = Op::new(id, K::DynamicDequantize).input(src).input(scales).inputs_from(zps);
            op.attr(Attr::Qtype, "per_group").attr(Attr::GroupShape, groups)
        };
        self.op(op, scale);
    }

    /// Runs the chain every way, on inputs of all bits, and gives what is wrong.
    fn check(self, engines: &[Engine], seed: u64) -> Result<(), String> {
        let Self { random, ops, inputs, dims: last_dims, .. } = self;
        let mut graph = Graph::new();
        ops.iter().for_each(|op| graph.add_op(op.clone()).unwrap());
        graph.finalize().unwrap();
        let outputs = ops.iter().flat_map(Op::outputs);
        let outputs = outputs.map(|output| (output.id().get(), output.clone())).collect();
        let mut graph = RandomGraph { graph, ops, inputs, outputs };
        let dims = graph.inputs[0].dims().unwrap().to_vec();
        let same_shape = dims == last_dims;
        for (id, output) in &mut graph.outputs {
            if random.below(3) == 0 && same_shape {
                *output = graphs::strided(random, *id, output.data_type(), &dims, false);
            }
        }
        graphs::check_on(&graph, seed, engines, &|engine| filled(&graph.inputs, engine, seed))
    }
}

fn placed(op: Op, axis: Option<usize>, from_end_of: Option<i64>) -> Op {
    match axis {
        Some(axis) => op.attr(Attr::Qtype, "per_channel").axis(axis as i64 - from_end_of.unwrap_or(0)),
        None => op,
    }
}

/// Elements that meet the edges: quotients that are halves, numbers beyond the bounds, NaN and infinities,
/// and every byte.
fn filled(inputs: &[LogicalTensor], engine: &Engine, seed: u64) -> BTreeMap<usize, TensorBuf> {
    let fill = |desc: &LogicalTensor| {
        let mut random = Random::new(seed ^ desc.id().get() as u64 ^ 0x5eed);
        let mut tensor = TensorBuf::zeroed(desc.clone(), engine).unwrap();
        if desc.data_type() == D::F32 {
            for element in tensor.as_mut_slice::<f32>().unwrap() {
                let halves = (random.below(1200) as f32 - 600.0) * 0.25;
                let special = [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 1e-42, 3e38, 0.0];
                *element = match random.below(6) {
                    0 => random.pick(&special),
                    1 => f32::from_bits(random.next() as u32),
                    _ => halves,
                };
            }
        } else if !desc.data_type().is_whole() {
            tensor.as_mut_bytes().iter_mut().for_each(|byte| *byte = random.next() as u8);
        } else if desc.data_type() == D::S32 || desc.data_type().size() == Some(2) {
            graphs::fill(&mut tensor, &mut random);
        } else {
            tensor.as_mut_bytes().iter_mut().for_each(|byte| *byte = random.next() as u8);
        }
        (desc.id().get(), tensor)
    };
    inputs.iter().map(fill).collect()
}

/// No axis, and each.
fn axes(dims: &[i64]) -> impl Iterator<Item = Option<usize>> {
    [None].into_iter().chain((0..dims.len()).map(Some))
}

#[test]
fn attributes_on_every_type_and_axis() {
    let (mut random, engines) = (Random::new(3), engines());
    let (mut wrong, mut seed) = (Vec::new(), 0);
    for &dims in SHAPES {
        for (&small, axis) in SMALL.iter().flat_map(|small| axes(dims).map(move |axis| (small, axis))) {
            for (kind, from, to) in [(K::Quantize, D::F32, small), (K::Dequantize, small, D::F32)] {
                for has_zps in [false, true] {
                    if has_zps && kind == K::Dequantize && matches!(small, D::F8E5m2 | D::F8E4m3) {
                        continue;
                    }
                    seed += 1;
                    let mut chain = Chain::new(&mut random, from, dims);
                    chain.by_attributes(kind, to, axis, has_zps);
                    wrong.extend(chain.check(&engines, seed).err());
                }
            }
        }
    }
    assert!(seed > 300, "{seed}");
    report(&wrong);
}

#[test]
fn tensors_of_parameters_on_every_type_and_axis() {
    let (mut random, engines) = (Random::new(4), engines());
    let (mut wrong, mut seed) = (Vec::new(), 1000);
    let zps = [None, Some(D::U8), Some(D::S8), Some(D::S32), Some(D::U4), Some(D::S4)];
    for &dims in SHAPES {
        for (small, axis) in DYNAMIC.iter().flat_map(|&small| axes(dims).map(move |axis| (small, axis))) {
            for zp in zps {
                seed += 1;
                let is_whole = |data_type: DataType| data_type.is_whole();
                if is_whole(small) && zp.is_none_or(is_whole) {
                    let mut chain = Chain::new(&mut random, D::F32, dims);
                    chain.by_inputs(K::DynamicQuantize, small, axis, D::F32, zp);
                    wrong.extend(chain.check(&engines, seed).err());
                }
                for scale in [D::F32, D::Bf16, D::F16] {
                    let mut chain = Chain::new(&mut random, small, dims);
                    chain.by_inputs(K::DynamicDequantize, scale, axis, scale, zp);
                    wrong.extend(chain.check(&engines, seed).err());
                }
            }
        }
    }
    assert!(seed > 1200, "{seed}");
    report(&wrong);
}

#[test]
fn parameters_of_groups() {
    const GROUPS: &[(&[i64], &[i64])] = &[
        (&[4, 6], &[2, 3]),
        (&[4, 6], &[4, 1]),
        (&[4, 6], &[1, 6]),
        (&[70, 33], &[35, 1]),
        (&[3, 64], &[1, 32]),
        (&[2, 4, 6], &[2, 2, 3]),
        (&[1, 8, 1, 9], &[1, 2, 1, 9]),
        (&[4, 0], &[2, 5]),
        (&[4, 4, 4, 4, 4, 4, 4], &[2, 2, 2, 2, 2, 2, 2]),
        (&[1, 2, 1, 4, 1, 2, 1, 4, 1, 6, 1, 1], &[1, 1, 1, 2, 1, 2, 1, 2, 1, 3, 1, 1]),
    ];
    let (mut random, engines) = (Random::new(6), engines());
    let (mut wrong, mut seed) = (Vec::new(), 5000);
    for (dims, groups) in GROUPS {
        for &small in DYNAMIC {
            for zp in [None, Some(D::S32), Some(D::U8), Some(D::S4)] {
                seed += 1;
                let scale = random.pick(&[D::F32, D::Bf16, D::F16]);
                let mut chain = Chain::new(&mut random, small, dims);
                chain.by_groups(groups, scale, zp);
                if seed % 3 == 0 {
                    let cond = chain.input(D::Boolean, dims);
                    let other = chain.input(scale, &[]);
                    chain.op(|id, src| Op::new(id, K::Select).input(cond).input(src).input(other), scale);
                }
                if seed % 4 == 0 {
                    let flat = vec![-1i64];
                    let reshape = |id, src| {
                        let op = Op::new(id, K::StaticReshape).input(src);
                        op.attr(Attr::Shape, flat).attr(Attr::SpecialZero, false)
                    };
                    chain.op(reshape, scale);
                    chain.dims = vec![dims.iter().product()];
                }
                wrong.extend(chain.check(&engines, seed).err());
            }
        }
    }
    report(&wrong);
}

#[test]
fn between_other_ops() {
    let (mut random, engines) = (Random::new(5), engines());
    let mut wrong = Vec::new();
    for seed in 0..240 {
        let dims = random.pick(SHAPES);
        let axes: Vec<Option<usize>> = axes(dims).collect();
        let [from, to] = [random.pick(SMALL), random.pick(SMALL)];
        let axis = [(); 3].map(|()| random.pick(&axes));
        let has_zps = [(); 2].map(|()| random.below(2) == 0);
        let mut chain = Chain::new(&mut random, from, dims);
        chain.by_attributes(K::Dequantize, D::F32, axis[0], has_zps[0] && matches!(from, D::U8 | D::S8));
        let cond = chain.input(D::Boolean, dims);
        let other = chain.input(D::F32, &[]);
        match seed % 3 {
            0 => chain.op(|id, src| Op::new(id, K::GELU).input(src), D::F32),
            1 => chain.op(|id, src| Op::new(id, K::Multiply).input(src).input(other.clone()), D::F32),
            _ => {}
        }
        chain.op(|id, src| Op::new(id, K::Select).input(cond).input(src).input(other), D::F32);
        chain.by_attributes(K::Quantize, to, axis[1], has_zps[1]);
        if seed % 2 == 0 && matches!(to, D::U8 | D::S8) {
            chain.by_inputs(K::DynamicDequantize, D::Bf16, axis[2], D::Bf16, Some(D::S8));
        }
        // The branches of a select whose output nobody writes over are two tensors.
        wrong.extend(chain.check(&engines, seed).err());
    }
    report(&wrong);
}

#[test]
fn saturation_ties_and_what_is_no_number() {
    // By hand: x, and x / 0.5 + 1 as u8 and as s8.
    let rows: &[(f32, u8, i8)] = &[
        (0.0, 1, 1),
        (-0.0, 1, 1),
        (0.25, 2, 2),
        (0.75, 2, 2),
        (1.25, 4, 4),
        (-0.75, 0, 0),
        (-1.75, 0, -2),
        (63.0, 127, 127),
        (63.5, 128, 127),
        (127.0, 255, 127),
        (1e30, 255, 127),
        (f32::INFINITY, 255, 127),
        (-64.5, 0, -128),
        (-1e30, 0, -128),
        (f32::NEG_INFINITY, 0, -128),
        (f32::NAN, 0, 0),
    ];
    let dims = [rows.len() as i64];
    for engine in engines() {
        let run = |to| {
            let op = Op::new(0, K::Quantize).attr(Attr::Scales, vec![0.5f32]).attr(Attr::Zps, vec![1i64]);
            let op = op.input(LogicalTensor::strided(0, D::F32, &dims).unwrap());
            let op = op.output(LogicalTensor::strided(1, to, &dims).unwrap());
            let partition = sterna::Partition::from_op(op).unwrap();
            let compiled = partition.compile(&engine).unwrap();
            let mut input = TensorBuf::zeroed(partition.inputs()[0].clone(), &engine).unwrap();
            let mut output = TensorBuf::zeroed(partition.outputs()[0].clone(), &engine).unwrap();
            let elements = input.as_mut_slice::<f32>().unwrap();
            elements.iter_mut().zip(rows).for_each(|(element, row)| *element = row.0);
            common::run(&compiled, &engine, &[input], &mut output).unwrap();
            output.as_bytes().to_vec()
        };
        let expected: Vec<u8> = rows.iter().map(|row| row.1).collect();
        assert_eq!(run(D::U8), expected, "{}", engine.level());
        let expected: Vec<u8> = rows.iter().map(|row| row.2 as u8).collect();
        assert_eq!(run(D::S8), expected, "{}", engine.level());
    }
}

#[test]
fn a_column_of_scales_for_a_source_of_rank_1_may_be_moved() {
    let tensor = |id, data_type, dims: &[i64]| LogicalTensor::strided(id, data_type, dims).unwrap();
    let transpose = Op::new(0, K::StaticTranspose)
        .attr(Attr::Order, vec![1i64, 0])
        .input(tensor(0, D::F32, &[1, 7]))
        .output(tensor(1, D::F32, &[7, 1]));
    let quantize = Op::new(1, K::DynamicQuantize)
        .attr(Attr::Qtype, "per_channel")
        .axis(0)
        .inputs_from([tensor(2, D::F32, &[7]), tensor(1, D::F32, &[7, 1])])
        .output(tensor(3, D::S8, &[7]));
    let mut graph = Graph::new();
    graph.add_op(transpose).unwrap();
    graph.add_op(quantize).unwrap();
    let session = Session::new(Model::new(graph).unwrap(), &Engine::new()).unwrap();
    let scales: [f32; 7] = std::array::from_fn(|i| 0.5 + i as f32);
    let source: [f32; 7] = std::array::from_fn(|i| scales[i] * (i as f32 - 3.0));
    let outputs = session
        .run(&[("0", &TensorView::new(&scales, &[1, 7])), ("2", &TensorView::new(&source, &[7]))])
        .unwrap();
    assert_eq!(outputs["3"].as_slice::<i8>().unwrap(), [-3, -2, -1, 0, 1, 2, 3]);
}
