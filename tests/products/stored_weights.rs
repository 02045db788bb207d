//! Promise: a product whose right operand is stored in 8 or 4 bits reads it as it is, makes no copy in f32,
//! and gives the bits of the ops run one by one, for every type, size, layout, group and zero point.

use std::collections::BTreeMap;

use crate::common::{Random, engines, graphs, report};
use sterna::{
    Attr, DataType, Engine, Graph, LogicalTensor, Op, OpKind, Partition, PhaseKind, Policy, Property,
    TensorBuf,
};

use DataType as D;

const LEFT: usize = 0;
const STORED: usize = 1;
const SCALES: usize = 2;
const ZEROS: usize = 3;
const NUMBERS: usize = 10;
const MOVED: usize = 11;
const RESULT: usize = 12;
const EPILOGUE: usize = 13;

/// How the right operand is made of what is stored.
#[derive(Debug, Clone, Copy)]
struct Case {
    /// Rows, columns, depth.
    size: [i64; 3],
    stored: DataType,
    /// Elements along the depth and along columns that share a scale; 0 for all.
    group: [i64; 2],
    zeros: Option<DataType>,
    /// Stored rows go along the depth.
    transposed: bool,
    /// A StaticTranspose, and not the product, transposes.
    moved: bool,
    /// Matrices on the left and on the right.
    batch: [i64; 2],
    /// The dims of what is stored from the outermost to the innermost in memory: the matrices, and rows and
    /// columns of one.
    order: [usize; 3],
    /// Elements behind each stored row.
    gap: i64,
    constant: bool,
    epilogue: bool,
    /// Some scales and some numbers on the left are not finite.
    special: bool,
}

const PLAIN: Case = Case {
    size: [1, 64, 64],
    stored: D::S8,
    group: [32, 1],
    zeros: None,
    transposed: false,
    moved: false,
    batch: [1, 1],
    order: [0, 1, 2],
    gap: 0,
    constant: false,
    epilogue: false,
    special: false,
};

impl Case {
    /// True if small floats are stored, which take attributes and no groups.
    fn is_float(&self) -> bool {
        matches!(self.stored, D::F8E4m3 | D::F8E5m2)
    }

    /// Dims of what is stored, and of its scales.
    fn dims(&self) -> [Vec<i64>; 2] {
        let [_, n, k] = self.size;
        let count = |size: i64, group: i64| if group == 0 { 1 } else { size / group };
        let mut of = [[k, n], [count(k, self.group[0]), count(n, self.group[1])]];
        if self.transposed {
            of.iter_mut().for_each(|dims| dims.swap(0, 1));
        }
        let batched = |dims: [i64; 2], batch: i64| [&[batch][..], &dims[..]].concat();
        [batched(of[0], self.batch[1]), batched(of[1], self.batch[1])]
    }

    fn graph(&self) -> (Graph, Vec<LogicalTensor>, BTreeMap<usize, LogicalTensor>) {
        let [m, n, k] = self.size;
        let desc = |id: usize, t: DataType, dims: &[i64]| LogicalTensor::strided(id, t, dims).unwrap();
        let property = if self.constant { Property::Constant } else { Property::Variable };
        let [dims, counts] = self.dims();
        let [outer, middle, inner] = self.order;
        let row = dims[inner] + self.gap;
        let mut strides = [1; 3];
        (strides[outer], strides[middle]) = (dims[middle] * row, row);
        let stored = LogicalTensor::with_strides(STORED, self.stored, &dims, &strides).unwrap();
        let mut inputs = vec![stored.with_property(property).unwrap()];
        let numbers = desc(NUMBERS, D::F32, &dims);
        let dequantize = if self.is_float() {
            let scales: Vec<f32> =
                (0..counts.iter().product()).map(|at: i64| 0.5 + at as f32 * 0.01).collect();
            let op = Op::new(0, OpKind::Dequantize).attr(Attr::Scales, scales);
            match counts.iter().position(|&count| count > 1) {
                Some(axis) => op.attr(Attr::Qtype, "per_channel").axis(axis as i64),
                None => op.attr(Attr::Qtype, "per_tensor"),
            }
        } else {
            inputs.push(desc(SCALES, D::F32, &counts).with_property(property).unwrap());
            inputs.extend(self.zeros.map(|t| desc(ZEROS, t, &counts).with_property(property).unwrap()));
            let groups: Vec<i64> = dims.iter().zip(&counts).map(|(dim, count)| dim / count).collect();
            let op = Op::new(0, OpKind::DynamicDequantize).attr(Attr::Qtype, "per_group");
            op.attr(Attr::GroupShape, groups)
        };
        let dequantize = dequantize.inputs_from(inputs.clone()).output(numbers.clone());
        let mut ops = vec![dequantize];
        let mut right = numbers.clone();
        let mut made = vec![numbers];
        if self.moved && self.transposed {
            right = desc(MOVED, D::F32, &[dims[0], dims[2], dims[1]]);
            let transpose = Op::new(1, OpKind::StaticTranspose).attr(Attr::Order, vec![0i64, 2, 1]);
            ops.push(transpose.inputs_from([made[0].clone()]).output(right.clone()));
            made.push(right.clone());
        }
        let left = desc(LEFT, D::F32, &[self.batch[0], m, k]);
        let result = desc(RESULT, D::F32, &[self.batch[0].max(self.batch[1]), m, n]);
        let product = Op::new(2, OpKind::MatMul)
            .attr(Attr::TransposeB, self.transposed && !self.moved)
            .inputs_from([left.clone(), right])
            .output(result.clone());
        ops.push(product);
        made.push(result.clone());
        if self.epilogue {
            let to = desc(EPILOGUE, D::F32, result.dims().unwrap());
            ops.push(Op::new(3, OpKind::Abs).inputs_from([result]).output(to.clone()));
            made.push(to);
        }
        let mut graph = Graph::new();
        ops.into_iter().for_each(|op| graph.add_op(op).unwrap());
        graph.finalize().unwrap();
        inputs.push(left);
        (graph, inputs, made.into_iter().map(|desc| (desc.id().get(), desc)).collect())
    }

    fn tensors(&self, inputs: &[LogicalTensor], engine: &Engine, seed: u64) -> BTreeMap<usize, TensorBuf> {
        let fill = |desc: &LogicalTensor| {
            let mut tensor = TensorBuf::zeroed(desc.clone(), engine).unwrap();
            let mut random = Random::new(seed ^ desc.id().get() as u64);
            match desc.data_type() {
                D::F32 => {
                    let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0];
                    let number = |random: &mut Random| match self.special && random.below(9) == 0 {
                        true => random.pick(&special),
                        false => (random.below(2000) as f32 - 1000.0) / 700.0,
                    };
                    let bytes = tensor.as_mut_bytes().chunks_exact_mut(4);
                    bytes.for_each(|to| to.copy_from_slice(&number(&mut random).to_ne_bytes()));
                }
                D::S32 => {
                    let bytes = tensor.as_mut_bytes().chunks_exact_mut(4);
                    bytes.for_each(|to| to.copy_from_slice(&(random.below(90) as i32 - 40).to_ne_bytes()));
                }
                // No NaN and no ∞.
                D::F8E4m3 | D::F8E5m2 => {
                    tensor.as_mut_bytes().iter_mut().for_each(|byte| *byte = random.next() as u8 & 0xb7);
                }
                _ => tensor.as_mut_bytes().iter_mut().for_each(|byte| *byte = random.next() as u8),
            }
            (desc.id().get(), tensor)
        };
        inputs.iter().map(fill).collect()
    }

    /// A sentence on the fault of the case on an engine, if it has one; `reads_as_is` if no copy in f32 may
    /// be made.
    fn fault(&self, engine: &Engine, seed: u64, reads_as_is: bool) -> Option<String> {
        let (graph, inputs, made) = self.graph();
        let [together, alone] = graphs::both(&graph);
        if together.len() != 1 {
            return Some(format!("it is {} partitions", together.len()));
        }
        let compiled = match together[0].compile(engine) {
            Ok(compiled) => compiled,
            Err(error) => return Some(error.to_string()),
        };
        let plan = compiled.plan();
        let phases: Vec<PhaseKind> = plan.nests.iter().map(|nest| nest.kind).collect();
        // Beside the product, at most scales and zero points are written.
        let [dims, counts] = self.dims();
        let of_scales = 8 * counts.iter().product::<i64>() + 256;
        let held = compiled.scratchpad_size() as i64;
        let copy = 4 * dims.iter().product::<i64>();
        if reads_as_is
            && (phases.contains(&PhaseKind::Pack) || copy > 1 << 22 && held > of_scales + (1 << 21))
        {
            return Some(format!("{phases:?} with {held} bytes of buffers"));
        }
        let tensors = self.tensors(&inputs, engine, seed);
        let run = |partitions: &[Partition]| graphs::run(partitions, &made, engine, &tensors, None);
        match (run(&alone), run(&together)) {
            (Ok(apart), Ok(made)) => graphs::differs(&made, &apart),
            (Err(why), _) | (_, Err(why)) => Some(why),
        }
    }
}

fn check(cases: &[Case], reads_as_is: bool) {
    let mut wrong = Vec::new();
    for engine in &engines() {
        for (seed, case) in (1..).zip(cases) {
            if let Some(why) = case.fault(engine, seed, reads_as_is) {
                wrong.push((*case, engine.level(), why));
            }
        }
    }
    report(&wrong);
}

#[test]
fn every_type_with_every_group_is_right() {
    let mut cases = Vec::new();
    for stored in [D::S8, D::U8, D::S4, D::U4, D::F8E4m3, D::F8E5m2] {
        for zeros in [None, Some(if stored == D::U4 { D::U8 } else { D::S32 })] {
            let is_float = Case { stored, ..PLAIN }.is_float();
            let zeros = zeros.filter(|_| !is_float);
            for transposed in [false, true] {
                for rows in [1, 3, 8, 9, 16, 40] {
                    for group in [[0, 0], [32, 1], [64, 0], [0, 1], [64, 64], [1, 1]] {
                        if !is_float || group[0] == 0 {
                            let size = [rows, 192, 128];
                            cases.push(Case { size, stored, group, zeros, transposed, ..PLAIN });
                        }
                    }
                }
            }
        }
    }
    check(&cases, false);
}

#[test]
fn every_size_is_right() {
    let mut cases = Vec::new();
    for stored in [D::S8, D::U4] {
        for transposed in [false, true] {
            for rows in [1, 2, 5, 17, 150] {
                for [n, k] in
                    [[1, 1], [2, 2], [70, 34], [34, 70], [64, 1000], [1000, 64], [258, 1536], [2, 900]]
                {
                    for group in [[0, 1], [2, 1], [0, 0], [2, 2]] {
                        let fits = |size: i64, group: i64| group == 0 || size % group == 0;
                        // A row of halves begins with a byte.
                        let row = if transposed { k } else { n };
                        if fits(k, group[0]) && fits(n, group[1]) && (stored == D::S8 || row % 2 == 0) {
                            cases.push(Case { size: [rows, n, k], stored, group, transposed, ..PLAIN });
                        }
                    }
                }
            }
        }
    }
    check(&cases, false);
}

#[test]
fn every_layout_is_right() {
    let mut cases = Vec::new();
    for stored in [D::U8, D::S4] {
        for transposed in [false, true] {
            for rows in [1, 6, 30] {
                let case = Case { size: [rows, 128, 96], stored, transposed, ..PLAIN };
                cases.extend([
                    Case { moved: true, ..case },
                    Case { batch: [3, 1], ..case },
                    Case { batch: [3, 3], ..case },
                    Case { batch: [1, 2], group: [0, 1], ..case },
                    Case { gap: 6, ..case },
                    Case { constant: true, ..case },
                    Case { epilogue: true, zeros: Some(D::S32), ..case },
                ]);
            }
        }
    }
    check(&cases, true);
}

#[test]
fn every_memory_order_with_every_group_is_right() {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    // One matrix has two orders.
    let layouts = orders.map(|order| (order, [1, 2])).into_iter().chain([(orders[1], [1, 1])]);
    let mut random = Random::new(3);
    let mut cases = Vec::new();
    for (order, batch) in layouts {
        for group in [[2, 1], [1, 2], [2, 4], [1, 1], [0, 1], [1, 0], [8, 3]] {
            for (transposed, moved) in [(false, false), (true, false), (true, true)] {
                for rows in [1, 2, 3, 4, 8, 9, 16, 17, 40] {
                    for stored in [D::S8, D::U8, D::S4, D::U4] {
                        let zeros = random.pick(&[None, Some(if stored == D::U4 { D::U8 } else { D::S32 })]);
                        let size = [rows, 12, random.pick(&[8, 40])];
                        cases.push(Case {
                            size,
                            stored,
                            group,
                            zeros,
                            transposed,
                            moved,
                            batch,
                            order,
                            ..PLAIN
                        });
                    }
                }
            }
        }
    }
    check(&cases, false);
}

#[test]
fn numbers_that_are_not_finite_give_the_same_bits() {
    let mut cases = Vec::new();
    for stored in [D::S8, D::U4] {
        for transposed in [false, true] {
            for rows in [1, 4, 40] {
                for [n, k] in [[128, 1], [600, 1], [128, 64], [600, 40], [192, 256]] {
                    let group = if k % 4 == 0 { [4, 1] } else { [1, 1] };
                    // A row of halves begins with a byte.
                    if !transposed || k > 1 {
                        cases.push(Case {
                            size: [rows, n, k],
                            stored,
                            group,
                            transposed,
                            special: true,
                            ..PLAIN
                        });
                    }
                }
            }
        }
    }
    check(&cases, false);
}

#[test]
fn large_matrices_have_no_copy() {
    let mut cases = Vec::new();
    for stored in [D::S8, D::U4] {
        for transposed in [false, true] {
            for rows in [1, 200] {
                let size = [rows, 2048, 1024];
                cases.push(Case { size, stored, group: [128, 1], transposed, ..PLAIN });
            }
        }
    }
    check(&cases, true);
}

#[test]
fn one_to_four_threads_give_the_same_bits() {
    let mut wrong = Vec::new();
    for stored in [D::S8, D::U4] {
        for transposed in [false, true] {
            for rows in [2, 60] {
                let case = Case { size: [rows, 1088, 512], stored, transposed, ..PLAIN };
                let (graph, inputs, made) = case.graph();
                let partitions = graph.partitions(Policy::Fusion).unwrap();
                let mut first = None;
                for threads in 1..=4 {
                    let engine = Engine::builder().threads(threads).build();
                    let tensors = case.tensors(&inputs, &engine, 5);
                    let run = graphs::run(&partitions, &made, &engine, &tensors, None).unwrap();
                    let first = first.get_or_insert_with(|| graphs::value(&run[&RESULT]));
                    if *first != graphs::value(&run[&RESULT]) {
                        wrong.push((case, threads));
                    }
                }
            }
        }
    }
    report(&wrong);
}
