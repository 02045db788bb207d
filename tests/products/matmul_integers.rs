//! Promise: a product whose operands are u8 or s8 behind a Dequantize is exact: the bits are those of the sum
//! in integers, times both scales in f64, rounded to f32 once, at every level, with and without VNNI, on any
//! number of threads. Where s32 does not do, the product is that of the ops one by one.

use std::collections::BTreeMap;
use std::process::Command;

use crate::common::guarded::{Guarded, Place};
use crate::common::{self, Random, engines, report};
use sterna::reference::{self, Value};
use sterna::{
    Accuracy, Attr, CompiledPartition, DataType, Engine, Graph, Level, LogicalTensor, Op, OpKind, Partition,
    Policy, Property, Stream, Tensor, TensorBuf, TensorId, TensorMut,
};

use DataType as D;

const SRC: usize = 0;
const WEIGHTS: usize = 1;
const BIAS: usize = 2;
/// The product, and what follows it.
const PRODUCT: usize = 5;

/// The scaling of an operand: along a dim, or for all of it.
#[derive(Debug, Clone)]
struct Scaling {
    scales: Vec<f32>,
    zeros: Vec<i64>,
    axis: Option<usize>,
}

impl Scaling {
    fn of(scale: f32, zero: i64) -> Self {
        Self { scales: vec![scale], zeros: vec![zero], axis: None }
    }

    /// Random parameters along an axis.
    fn along(random: &mut Random, data_type: DataType, axis: usize, count: i64) -> Self {
        let scales = (0..count).map(|_| (random.below(2000) as f32 - 900.0) / 4096.0).collect();
        let zeros = (0..count).map(|_| element(random.next() as u8, data_type)).collect();
        Self { scales, zeros, axis: Some(axis) }
    }

    fn op(&self, id: usize, kind: OpKind) -> Op {
        let op =
            Op::new(id, kind).attr(Attr::Scales, self.scales.clone()).attr(Attr::Zps, self.zeros.clone());
        match self.axis {
            Some(axis) => op.attr(Attr::Qtype, "per_channel").axis(axis as i64),
            None => op,
        }
    }

    /// Scale and zero point of an element, by its index.
    fn at(&self, index: &[i64]) -> (f32, i64) {
        let place = self.axis.map_or(0, |axis| index[axis] as usize);
        (self.scales[place], self.zeros[place])
    }
}

fn element(byte: u8, data_type: DataType) -> i64 {
    if data_type == D::U8 { i64::from(byte) } else { i64::from(byte as i8) }
}

/// A product of integers with concrete shapes and layouts.
#[derive(Debug, Clone)]
struct Case {
    types: [DataType; 2],
    dims: [Vec<i64>; 2],
    bias: Option<Vec<i64>>,
    scaling: [Scaling; 2],
    transposed: [bool; 2],
    strides: [Option<Vec<i64>>; 2],
    /// The weights are constant.
    constant: bool,
    /// The order of a transpose between Dequantize and MatMul, for each operand.
    moved: [Option<Vec<i64>>; 2],
}

impl Case {
    fn new(types: [DataType; 2], src: &[i64], weights: &[i64]) -> Self {
        Self {
            types,
            dims: [src.to_vec(), weights.to_vec()],
            bias: None,
            scaling: [Scaling::of(0.25, 3), Scaling::of(0.0371, -5)],
            transposed: [false; 2],
            strides: [None, None],
            constant: false,
            moved: [None, None],
        }
    }

    /// The graph up to the product.
    fn ops(&self) -> Vec<Op> {
        let mut ops = Vec::new();
        let tensor = |id, data_type| LogicalTensor::unknown(id, data_type);
        let mut inputs = Vec::new();
        for operand in [SRC, WEIGHTS] {
            let scaled = tensor(10 + operand, D::F32);
            let op = self.scaling[operand].op(operand, OpKind::Dequantize);
            ops.push(op.input(tensor(operand, self.types[operand])).output(scaled.clone()));
            inputs.push(match &self.moved[operand] {
                Some(order) => {
                    let moved = tensor(20 + operand, D::F32);
                    let op = Op::new(20 + operand, OpKind::StaticTranspose).attr(Attr::Order, order.clone());
                    ops.push(op.input(scaled).output(moved.clone()));
                    moved
                }
                None => scaled,
            });
        }
        inputs.extend(self.bias.iter().map(|_| tensor(BIAS, D::F32)));
        let op = Op::new(5, OpKind::MatMul)
            .attr(Attr::TransposeA, self.transposed[0])
            .attr(Attr::TransposeB, self.transposed[1]);
        ops.push(op.inputs_from(inputs).output(tensor(PRODUCT, D::F32)));
        ops
    }

    fn inputs(&self) -> Vec<LogicalTensor> {
        let mut inputs: Vec<LogicalTensor> = [SRC, WEIGHTS]
            .map(|operand| {
                let (data_type, dims) = (self.types[operand], &self.dims[operand]);
                match &self.strides[operand] {
                    Some(strides) => LogicalTensor::with_strides(operand, data_type, dims, strides).unwrap(),
                    None => LogicalTensor::strided(operand, data_type, dims).unwrap(),
                }
            })
            .into();
        if self.constant {
            inputs[1] = inputs[1].clone().with_property(Property::Constant).unwrap();
        }
        inputs.extend(self.bias.iter().map(|dims| LogicalTensor::strided(BIAS, D::F32, dims).unwrap()));
        inputs
    }

    /// The one partition of a graph of the product and some ops behind it.
    fn partition(&self, behind: &[Op]) -> Partition {
        let mut graph = Graph::new();
        for op in self.ops().into_iter().chain(behind.iter().cloned()) {
            graph.add_op(op).unwrap();
        }
        graph.finalize().unwrap();
        let mut partitions = graph.partitions(Policy::Fusion).unwrap();
        assert_eq!(partitions.len(), 1, "{self:?}");
        partitions.remove(0)
    }

    fn compile(&self, engine: &Engine, behind: &[Op]) -> Result<CompiledPartition, String> {
        let partition = self.partition(behind);
        let held = self.inputs();
        let inputs: Vec<LogicalTensor> = partition
            .inputs()
            .iter()
            .map(|port| held.iter().find(|held| held.id() == port.id()).unwrap_or(port).clone())
            .collect();
        let unknown = |port: &LogicalTensor| LogicalTensor::unknown(port.id(), port.data_type());
        let outputs: Vec<LogicalTensor> = partition.outputs().iter().map(unknown).collect();
        partition.compile_for(engine, &inputs, &outputs).map_err(|e| e.to_string())
    }

    /// Random inputs; an input of stride 0 has equal elements along it.
    fn values(&self, random: &mut Random) -> BTreeMap<usize, Value> {
        let bytes = |operand: usize, random: &mut Random| {
            let (dims, strides) = (&self.dims[operand], self.strides[operand].as_ref());
            let mut all: Vec<u8> = Vec::new();
            for index in common::indices(dims) {
                let same = |axis: usize| if strides.is_some_and(|s| s[axis] == 0) { 0 } else { index[axis] };
                let source = (0..dims.len()).fold(0, |at, axis| at * dims[axis] + same(axis)) as usize;
                let byte = if source == all.len() { random.next() as u8 } else { all[source] };
                all.push(byte);
            }
            Value::new(self.types[operand], dims, all).unwrap()
        };
        let mut values: BTreeMap<usize, Value> =
            [SRC, WEIGHTS].into_iter().map(|operand| (operand, bytes(operand, random))).collect();
        if let Some(dims) = &self.bias {
            let count = dims.iter().product::<i64>();
            let numbers: Vec<f32> = (0..count).map(|_| random.below(999) as f32 / 64.0 - 7.0).collect();
            values.insert(BIAS, Value::from_slice(dims, &numbers).unwrap());
        }
        values
    }

    /// Sums in i64, scales in f64, one rounding to f32; then the bias. Shapes are those that the reference
    /// gives.
    fn expected(&self, values: &BTreeMap<usize, Value>) -> Value {
        let mut held: BTreeMap<usize, Value> = values.clone();
        let mut shapes = Vec::new();
        for op in self.ops() {
            let inputs: Vec<Value> =
                op.inputs().iter().map(|input| held[&input.id().get()].clone()).collect();
            shapes = inputs.iter().map(|value| value.dims().to_vec()).collect();
            held.insert(op.outputs()[0].id().get(), reference::run(&op, &inputs).unwrap().remove(0));
        }
        let dims = held[&PRODUCT].dims().to_vec();
        // Numbers less their zero points, and scales, in the order of the operand of the product.
        let operand = |which: usize| -> Vec<(i64, f32)> {
            let (of, order) = (&self.dims[which], &self.moved[which]);
            let element_at = |index: Vec<i64>| {
                let mut of_input = index.clone();
                if let Some(order) = order {
                    order.iter().zip(&index).for_each(|(&axis, &at)| of_input[axis as usize] = at);
                }
                let at = of_input.iter().zip(of).fold(0, |at, (&index, &dim)| at * dim + index) as usize;
                let (scale, zero) = self.scaling[which].at(&of_input);
                (element(values[&which].bytes()[at], self.types[which]) - zero, scale)
            };
            common::indices(&shapes[which]).into_iter().map(element_at).collect()
        };
        let (x, y) = (operand(SRC), operand(WEIGHTS));
        // Where a matrix of an operand starts, and its strides from row to row and from column to column.
        let matrix = |shape: &[i64], is_transposed: bool, is_left: bool, batch: &[i64]| -> [usize; 3] {
            let own = shape.len().saturating_sub(2);
            let place = |at: i64, axis: usize| {
                let index = if shape[axis] == 1 { 0 } else { batch[batch.len() - own + axis] };
                at * shape[axis] + index
            };
            let [first, second] = match (shape, is_transposed) {
                ([_], _) if is_left => [0, 1],
                ([_], _) => [1, 0],
                (_, false) => [shape[own + 1], 1],
                (_, true) => [1, shape[own + 1]],
            };
            let size: i64 = shape[own..].iter().product();
            [(0..own).fold(0, place) * size, first, second].map(|at| at as usize)
        };
        let (left, right) = (&shapes[0], &shapes[1]);
        let depth = match (left.len(), self.transposed[0]) {
            (1, _) | (_, false) => left[left.len() - 1],
            (rank, true) => left[rank - 2],
        } as usize;
        let numbers: Vec<f32> = common::indices(&dims)
            .iter()
            .map(|index| {
                let (mut index, mut column, mut row) = (&index[..], 0, 0);
                if right.len() > 1 {
                    (column, index) = (index[index.len() - 1] as usize, &index[..index.len() - 1]);
                }
                if left.len() > 1 {
                    (row, index) = (index[index.len() - 1] as usize, &index[..index.len() - 1]);
                }
                let [x_at, x_row, x_column] = matrix(left, self.transposed[0], true, index);
                let [y_at, y_row, y_column] = matrix(right, self.transposed[1], false, index);
                let (x, y) = (&x[x_at + row * x_row..], &y[y_at + column * y_column..]);
                let sum: i64 = (0..depth).map(|k| x[k * x_column].0 * y[k * y_row].0).sum();
                (sum as f64 * (f64::from(x[0].1) * f64::from(y[0].1))) as f32 + 0.0
            })
            .collect();
        let product = Value::from_slice(&dims, &numbers).unwrap();
        match values.get(&BIAS) {
            None => product,
            Some(bias) => {
                let tensor = |id| LogicalTensor::unknown(id, D::F32);
                let op = Op::new(0, OpKind::Add).input(tensor(0)).input(tensor(1)).output(tensor(2));
                reference::run(&op, &[product, bias.clone()]).unwrap().remove(0)
            }
        }
    }

    /// Holds the case against the exact result on all engines.
    fn check(&self, engines: &[Engine], values: &BTreeMap<usize, Value>) -> Vec<String> {
        let expected = self.expected(values);
        let wrong = |engine: &Engine| {
            let compiled = match self.compile(engine, &[]) {
                Ok(compiled) => compiled,
                Err(why) => return Some(why),
            };
            let is_empty = expected.dims().contains(&0);
            if !is_empty && !is_integer(&compiled) {
                return Some(format!("{}: no s32: {self:?}", compiled.plan()));
            }
            match run(&compiled, engine, values) {
                Ok(given) => {
                    difference(&given, &expected).map(|why| format!("{}: {why}: {self:?}", engine.level()))
                }
                Err(why) => Some(why),
            }
        };
        engines.iter().filter_map(wrong).collect()
    }
}

fn is_integer(compiled: &CompiledPartition) -> bool {
    compiled.plan().to_string().contains("(s32 from")
}

fn difference(given: &Value, expected: &Value) -> Option<String> {
    if given.dims() != expected.dims() || given.data_type() != expected.data_type() {
        return Some(format!("the result is {:?}, not {:?}", given.dims(), expected.dims()));
    }
    let size = given.data_type().size().unwrap();
    let pairs = given.bytes().chunks(size).zip(expected.bytes().chunks(size));
    let at = pairs.into_iter().position(|(given, expected)| given != expected)?;
    match given.data_type() {
        D::F32 => {
            let [x, y] = [given, expected].map(|value| value.elements::<f32>().unwrap()[at]);
            Some(format!("element {at} is {x}, not {y}"))
        }
        _ => Some(format!("element {at} is {}, not {}", given.bytes()[at], expected.bytes()[at])),
    }
}

fn run(
    compiled: &CompiledPartition,
    engine: &Engine,
    values: &BTreeMap<usize, Value>,
) -> Result<Value, String> {
    let tensor = |desc: &LogicalTensor| {
        let mut tensor = TensorBuf::zeroed(desc.clone(), engine).unwrap();
        values[&desc.id().get()].write(&mut tensor).unwrap();
        tensor
    };
    let tensors: Vec<TensorBuf> = compiled.inputs().iter().map(tensor).collect();
    let inputs: Vec<_> = tensors.iter().map(TensorBuf::as_tensor).collect();
    let output = |desc: &LogicalTensor| {
        let mut output = TensorBuf::zeroed(desc.clone(), engine).unwrap();
        output.as_mut_bytes().fill(0xa5);
        output
    };
    let mut outputs: Vec<TensorBuf> = compiled.outputs().iter().map(output).collect();
    let mut results: Vec<_> = outputs.iter_mut().map(TensorBuf::as_tensor_mut).collect();
    compiled.execute(&Stream::new(engine), &inputs, &mut results).map_err(|e| e.to_string())?;
    // The last one, if there are several.
    let last = outputs.last().ok_or("no output")?;
    Value::read(&last.as_tensor()).map_err(|e| e.to_string())
}

const TYPES: [[DataType; 2]; 4] = [[D::U8, D::S8], [D::S8, D::S8], [D::U8, D::U8], [D::S8, D::U8]];

const SIZES: [i64; 14] = [0, 1, 2, 3, 5, 8, 15, 17, 33, 64, 65, 77, 130, 290];

/// Few rows pack weights that vary in their tiles: there is no phase of packing and no buffer, and the bits
/// are those of constant weights. Depths are longer than what a tile packs at once.
#[test]
fn few_rows_have_no_packed_copy_of_weights_that_vary() {
    let (engines, mut random, mut wrong) = (engines(), Random::new(21), Vec::new());
    for [m, n, k] in [[1, 300, 1300], [3, 65, 1025], [16, 513, 513], [2, 8, 1537], [16, 64, 512], [5, 1, 700]]
    {
        for types in TYPES {
            for transposed in [false, true] {
                let weights = if transposed { [n, k] } else { [k, n] };
                let scaling =
                    [Scaling::of(0.5, 7), Scaling::along(&mut random, types[1], usize::from(!transposed), n)];
                let case = Case {
                    scaling,
                    transposed: [false, transposed],
                    ..Case::new(types, &[2, m, k], &weights)
                };
                let values = case.values(&mut random);
                wrong.extend(case.check(&engines, &values));
                let constant = Case { constant: true, ..case.clone() };
                wrong.extend(constant.check(&engines, &values));
            }
        }
    }
    let kinds = |m: i64, constant: bool| {
        let case = Case { constant, ..Case::new([D::U8, D::S8], &[m, 64], &[64, 96]) };
        let plan = case.compile(&engines[0], &[]).unwrap().plan();
        let kinds = plan.nests.iter().map(|nest| nest.kind.name()).collect::<Vec<_>>().join(", ");
        (kinds, plan.buffer_bytes > 0)
    };
    for (m, constant, expected) in
        [(1, false, "gemm"), (16, false, "gemm"), (17, false, "pack, gemm"), (16, true, "pack, gemm")]
    {
        let found = kinds(m, constant);
        if found.0 != expected || found.1 != (expected != "gemm") {
            wrong.push(format!("{m} rows, constant {constant}: {found:?}"));
        }
    }
    report(&wrong);
}

#[test]
fn products_of_every_size_type_and_scaling_are_exact() {
    let (engines, mut random, mut wrong) = (engines(), Random::new(1), Vec::new());
    for (i, m) in SIZES.into_iter().enumerate() {
        for (j, n) in SIZES.into_iter().enumerate() {
            let k = SIZES[1 + (5 * i + 7 * j + 3) % (SIZES.len() - 1)];
            let types = TYPES[(i + 2 * j) % 4];
            let transposed = [(i + j) % 2 == 1, (i / 2 + j / 3) % 2 == 1];
            let src = if transposed[0] { [k, m] } else { [m, k] };
            let weights = if transposed[1] { [n, k] } else { [k, n] };
            let mut case = Case { transposed, ..Case::new(types, &src, &weights) };
            let zeros = [0, 0, 128, -128, 255, 7];
            case.scaling[0] = Scaling::of(0.0123, random.pick(&zeros));
            case.scaling[1] = match (i + j) % 3 {
                0 if n > 0 => Scaling::along(&mut random, types[1], usize::from(!transposed[1]), n),
                1 => Scaling::of(-0.3, 0),
                _ => Scaling::of(0.7, random.pick(&zeros)),
            };
            case.bias = [None, Some(vec![n]), Some(vec![m, 1])][(i + 2 * j) % 3].clone();
            wrong.extend(case.check(&engines, &case.values(&mut random)));
        }
    }
    report(&wrong);
}

#[test]
fn shapes_of_every_rank_broadcast() {
    let (engines, mut random, mut wrong) = (engines(), Random::new(2), Vec::new());
    let shapes: &[[&[i64]; 2]] = &[
        [&[5], &[5]],
        [&[5], &[5, 7]],
        [&[4, 5], &[5]],
        [&[300, 50], &[50]],
        [&[5], &[3, 5, 7]],
        [&[2, 3, 4, 5], &[5, 7]],
        [&[4, 5], &[2, 3, 5, 7]],
        [&[2, 1, 20, 5], &[3, 5, 70]],
        [&[2, 3, 120, 17], &[2, 3, 17, 70]],
        [&[32, 1, 40], &[40, 70]],
        [&[7, 40], &[33, 40, 30]],
        [&[0, 4, 5], &[1, 5, 7]],
        [&[2, 0, 4], &[2, 4, 7]],
        [&[2, 300, 520], &[2, 520, 130]],
    ];
    for (index, [src, weights]) in shapes.iter().enumerate() {
        let mut case = Case::new(TYPES[index % 4], src, weights);
        if weights.len() > 1 && index % 2 == 0 {
            let axis = weights.len() - 1;
            case.scaling[1] = Scaling::along(&mut random, case.types[1], axis, weights[axis]);
        }
        wrong.extend(case.check(&engines, &case.values(&mut random)));
    }
    report(&wrong);
}

#[test]
fn operands_may_have_any_strides() {
    let (engines, mut random, mut wrong) = (engines(), Random::new(3), Vec::new());
    for types in TYPES {
        for m in [1, 40, 130] {
            let (n, k) = (70, 333);
            let case = Case::new(types, &[2, m, k], &[2, k, n]);
            let strided = |src: &[i64], weights: &[i64]| Case {
                strides: [Some(src.to_vec()), Some(weights.to_vec())],
                ..case.clone()
            };
            let rows = [
                // Token-major; transposed; gaps between elements; nothing but one row, one column, one
                // element.
                strided(&[k, 2 * k, 1], &[n, 2 * n, 1]),
                strided(&[m * k, 1, m], &[n * k, 1, k]),
                strided(&[3 * m * k, 3 * k, 3], &[2 * n * k, 2 * n, 2]),
                strided(&[0, k, 1], &[0, n, 1]),
                strided(&[0, 0, 1], &[0, 1, 0]),
                strided(&[0, 0, 0], &[0, 0, 0]),
            ];
            for case in rows {
                wrong.extend(case.check(&engines, &case.values(&mut random)));
            }
            let moved = Case {
                dims: [vec![m, 2, k], vec![n, 2, k]],
                moved: [Some(vec![1, 0, 2]), Some(vec![1, 2, 0])],
                ..case
            };
            wrong.extend(moved.check(&engines, &moved.values(&mut random)));
        }
    }
    report(&wrong);
}

/// Neither pairs of products nor sums saturate; the longest sum that can reach the ends of s32 is exact, and
/// a longer one is f32.
#[test]
fn extremes_are_exact_up_to_the_ends_of_s32() {
    let (engines, mut wrong) = (engines(), Vec::new());
    // Types, zero points, bytes, and the longest sum in s32.
    type Row = ([DataType; 2], [i64; 2], [u8; 2], i64);
    let rows: &[Row] = &[
        ([D::U8, D::S8], [0, 0], [255, 0x80], 65_793),
        ([D::U8, D::S8], [0, 0], [255, 0x7f], 65_793),
        ([D::S8, D::S8], [0, 0], [0x80, 0x80], 131_071),
        ([D::U8, D::U8], [0, 0], [255, 255], 33_025),
        ([D::U8, D::S8], [255, -128], [0, 0x7f], 33_025),
        ([D::U8, D::S8], [255, -128], [255, 0x80], 33_025),
        ([D::S8, D::U8], [-128, 255], [0x7f, 0], 33_025),
        ([D::S8, D::U8], [127, 0], [0x80, 255], 33_025),
    ];
    for &(types, zeros, bytes, longest) in rows {
        for depth in [2, 4, 5, 63, 1000, longest] {
            for transposed in [false, true] {
                let weights = if transposed { [17, depth] } else { [depth, 17] };
                let mut case = Case::new(types, &[3, depth], &weights);
                case.transposed = [false, transposed];
                case.scaling = [Scaling::of(1.0, zeros[0]), Scaling::of(1.0, zeros[1])];
                let value = |which: usize| {
                    let dims = &case.dims[which];
                    let bytes = vec![bytes[which]; dims.iter().product::<i64>() as usize];
                    (which, Value::new(types[which], dims, bytes).unwrap())
                };
                wrong.extend(case.check(&engines, &BTreeMap::from([value(0), value(1)])));
            }
        }
        let case = Case {
            scaling: [Scaling::of(1.0, zeros[0]), Scaling::of(1.0, zeros[1])],
            ..Case::new(types, &[1, longest + 1], &[longest + 1, 1])
        };
        if is_integer(&case.compile(&engines[0], &[]).unwrap()) {
            wrong.push(format!("a sum of {} is s32: {types:?}", longest + 1));
        }
    }
    report(&wrong);
}

/// Where s32 does not do, the product has the bits of its ops one by one.
#[test]
fn other_scalings_run_in_f32() {
    let (engines, mut random, mut wrong) = (engines(), Random::new(4), Vec::new());
    let (m, n, k) = (9, 12, 20);
    let case = Case::new([D::U8, D::S8], &[m, k], &[k, n]);
    let with = |which: usize, scaling: Scaling| {
        let mut case = case.clone();
        case.scaling[which] = scaling;
        case
    };
    let cases = [
        ("channels along the depth", with(1, Scaling::along(&mut random, D::S8, 0, k))),
        ("channels of the rows", with(0, Scaling::along(&mut random, D::U8, 0, m))),
        ("a zero point out of range", with(1, Scaling::of(1.0, i64::MAX))),
        ("a scale that leaves f32", with(0, Scaling::of(3e38, 0))),
        ("a depth of 0", Case::new([D::U8, D::S8], &[m, 0], &[0, n])),
    ];
    for (name, case) in cases {
        let values = case.values(&mut random);
        for engine in &engines {
            let compiled = case.compile(engine, &[]).unwrap();
            let mut held = values.clone();
            for op in case.ops() {
                let inputs: Vec<Value> =
                    op.inputs().iter().map(|input| held[&input.id().get()].clone()).collect();
                let descs: Vec<LogicalTensor> = (op.inputs().iter().zip(&inputs))
                    .map(|(port, value)| {
                        LogicalTensor::strided(port.id(), value.data_type(), value.dims()).unwrap()
                    })
                    .collect();
                let partition = Partition::from_op(op.clone()).unwrap();
                let alone = partition.compile_for(engine, &descs, op.outputs()).unwrap();
                let result = run(&alone, engine, &held).unwrap();
                held.insert(op.outputs()[0].id().get(), result);
            }
            let given = run(&compiled, engine, &values).unwrap();
            let why = difference(&given, &held[&PRODUCT]);
            wrong.extend(why.map(|why| format!("{name}, {}: {why}", engine.level())));
            if is_integer(&compiled) {
                wrong.push(format!("{name} is s32"));
            }
        }
    }
    report(&wrong);
}

/// Scaling, a mask, a stored addend, an activation and Quantize behind the product; its bits are those of the
/// ops on the exact product. `reference::enclose` allows the result.
#[test]
fn what_follows_runs_on_the_exact_product() {
    let (engines, mut random, mut wrong) = (engines(), Random::new(5), Vec::new());
    let tensor = LogicalTensor::unknown;
    for (types, [m, n, k]) in TYPES.into_iter().zip([[7, 33, 20], [150, 75, 64], [1, 600, 40], [20, 300, 3]])
    {
        let mut case = Case::new(types, &[2, m, k], &[2, k, n]);
        case.scaling[1] = Scaling::along(&mut random, types[1], 2, n);
        case.bias = Some(vec![n]);
        let behind = [
            Op::new(50, OpKind::Multiply)
                .input(tensor(PRODUCT, D::F32))
                .input(tensor(40, D::F32))
                .output(tensor(50, D::F32)),
            Op::new(51, OpKind::Select)
                .input(tensor(41, D::Boolean))
                .input(tensor(50, D::F32))
                .input(tensor(42, D::F32))
                .output(tensor(51, D::F32)),
            Scaling::of(0.25, -7)
                .op(54, OpKind::Dequantize)
                .input(tensor(43, D::S8))
                .output(tensor(54, D::F32)),
            Op::new(55, OpKind::Add)
                .input(tensor(51, D::F32))
                .input(tensor(54, D::F32))
                .output(tensor(55, D::F32)),
            Op::new(52, OpKind::ReLU).input(tensor(55, D::F32)).output(tensor(52, D::F32)),
            Scaling::of(0.5, 3).op(53, OpKind::Quantize).input(tensor(52, D::F32)).output(tensor(53, D::U8)),
        ];
        let mut values = case.values(&mut random);
        values.insert(40, Value::from_slice(&[1], &[0.37f32]).unwrap());
        values.insert(42, Value::from_slice(&[1], &[1.75f32]).unwrap());
        let cond: Vec<u8> = (0..n).map(|_| u8::from(random.below(3) != 0)).collect();
        values.insert(41, Value::new(D::Boolean, &[1, 1, n], cond).unwrap());
        let stored: Vec<u8> = (0..2 * m * n).map(|_| random.next() as u8).collect();
        values.insert(43, Value::new(D::S8, &[2, m, n], stored).unwrap());
        let mut held = values.clone();
        held.insert(PRODUCT, case.expected(&values));
        for op in &behind {
            let inputs: Vec<Value> =
                op.inputs().iter().map(|input| held[&input.id().get()].clone()).collect();
            held.insert(op.outputs()[0].id().get(), reference::run(op, &inputs).unwrap().remove(0));
        }
        let partition = case.partition(&behind);
        let descs: Vec<LogicalTensor> = (partition.inputs().iter())
            .map(|port| {
                LogicalTensor::strided(port.id(), port.data_type(), values[&port.id().get()].dims()).unwrap()
            })
            .collect();
        let by_id = values.iter().map(|(&id, value)| (TensorId::new(id), value.clone())).collect();
        let allowed = reference::enclose(partition.ops(), &by_id, &[53.into()]).unwrap();
        for engine in &engines {
            let compiled = partition.compile_for(engine, &descs, &[tensor(53, D::U8)]).unwrap();
            let given = run(&compiled, engine, &values).unwrap();
            if !is_integer(&compiled) {
                wrong.push(format!("{}", compiled.plan()));
            }
            wrong.extend(difference(&given, &held[&53]).map(|why| format!("{}: {why}", engine.level())));
            wrong.extend(
                allowed[&53.into()].first_outside(&given).map(|at| format!("element {at} is outside")),
            );
        }
    }
    report(&wrong);
}

#[test]
fn threads_do_not_change_a_bit() {
    let (mut random, mut wrong) = (Random::new(6), Vec::new());
    let engines: Vec<Engine> = (1..=8).map(|threads| Engine::builder().threads(threads).build()).collect();
    for (types, [m, n, k]) in
        TYPES.into_iter().zip([[600, 500, 150], [9, 1100, 1000], [1, 1300, 700], [300, 3, 999]])
    {
        let mut case = Case::new(types, &[m, k], &[k, n]);
        case.scaling[1] = Scaling::along(&mut random, types[1], 1, n);
        wrong.extend(case.check(&engines, &case.values(&mut random)));
    }
    report(&wrong);
}

#[test]
fn the_partition_is_of_class_bounded_and_keeps_packed_weights() {
    let case = Case { constant: true, ..Case::new([D::U8, D::S8], &[40, 64], &[64, 96]) };
    let accuracy = |ops: Vec<Op>| {
        let mut graph = Graph::new();
        ops.into_iter().for_each(|op| graph.add_op(op).unwrap());
        graph.finalize().unwrap();
        graph
            .partitions(Policy::Fusion)
            .unwrap()
            .iter()
            .map(|partition| partition.accuracy().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(accuracy(case.ops()), [Accuracy::Bounded]);
    assert_eq!(accuracy(Case { moved: [None, Some(vec![0, 1])], ..case.clone() }.ops()), [Accuracy::Bounded]);
    // With one operand in f32 the product is one of f32.
    assert_eq!(accuracy(case.ops().into_iter().skip(1).collect()), [Accuracy::Ordered]);
    assert_eq!(accuracy(vec![case.ops().remove(2)]), [Accuracy::Ordered]);

    let engine = Engine::builder().threads(2).build();
    let compiled = case.compile(&engine, &[]).unwrap();
    let plan = compiled.plan().to_string();
    let kinds: Vec<&str> = compiled.plan().nests.iter().map(|nest| nest.kind.name()).collect();
    assert_eq!(kinds, ["pack", "gemm"], "{plan}");
    assert!(plan.contains("kept for later executions"), "{plan}");
    let values = case.values(&mut Random::new(7));
    for _ in 0..3 {
        assert_eq!(run(&compiled, &engine, &values).unwrap(), case.expected(&values));
    }
}

/// An operand that is quantised in the partition is written in its 8 bits.
#[test]
fn an_operand_may_be_quantised_on_the_way() {
    let (engines, mut wrong) = (engines(), Vec::new());
    let tensor = LogicalTensor::unknown;
    let scaling = Scaling::of(0.125, 100);
    let case = Case::new([D::U8, D::S8], &[33, 50], &[50, 20]);
    let case = Case { scaling: [scaling.clone(), case.scaling[1].clone()], ..case };
    let quantize = scaling.op(60, OpKind::Quantize).input(tensor(60, D::F32)).output(tensor(SRC, D::U8));
    let mut graph = Graph::new();
    [vec![quantize.clone()], case.ops()].concat().into_iter().for_each(|op| graph.add_op(op).unwrap());
    graph.finalize().unwrap();
    let partitions = graph.partitions(Policy::Fusion).unwrap();
    assert_eq!(partitions.len(), 1);
    let numbers: Vec<f32> = (0..33 * 50).map(|i| (i % 97) as f32 / 3.0 - 14.0).collect();
    let mut values = case.values(&mut Random::new(8));
    values.insert(60, Value::from_slice(&[33, 50], &numbers).unwrap());
    values.insert(SRC, reference::run(&quantize, &[values[&60].clone()]).unwrap().remove(0));
    let expected = case.expected(&values);
    for engine in &engines {
        let descs: Vec<LogicalTensor> = (partitions[0].inputs().iter())
            .map(|port| {
                LogicalTensor::strided(port.id(), port.data_type(), values[&port.id().get()].dims()).unwrap()
            })
            .collect();
        let compiled = partitions[0].compile_for(engine, &descs, &[tensor(PRODUCT, D::F32)]).unwrap();
        let given = run(&compiled, engine, &values).unwrap();
        wrong.extend(difference(&given, &expected).map(|why| format!("{}: {why}", engine.level())));
        if !is_integer(&compiled) {
            wrong.push(compiled.plan().to_string());
        }
    }
    report(&wrong);
}

/// Numbers of a norm that are quantised for products are handed to them in 8 bits.
#[test]
fn an_operand_may_be_a_norm_that_is_quantised() {
    let (engines, mut wrong) = (engines(), Vec::new());
    let tensor = LogicalTensor::unknown;
    for products in [1, 2] {
        let scaling = Scaling::of(0.0625, 117);
        let case = Case::new([D::U8, D::S8], &[33, 50], &[50, 20]);
        let case = Case { scaling: [scaling.clone(), case.scaling[1].clone()], ..case };
        let norm = Op::new(70, OpKind::RMSNorm).attr(Attr::BeginNormAxis, 1i64);
        let norm = norm.input(tensor(70, D::F32)).input(tensor(71, D::F32)).output(tensor(60, D::F32));
        let quantize = scaling.op(60, OpKind::Quantize).input(tensor(60, D::F32)).output(tensor(SRC, D::U8));
        let mut ops = [vec![norm.clone(), quantize.clone()], case.ops()].concat();
        if products == 2 {
            // Another product of the same integers, by a dequantisation of its own.
            let again = |op: &Op| {
                let id =
                    |id: TensorId| if [SRC, WEIGHTS].contains(&id.get()) { id.get() } else { id.get() + 100 };
                let moved = |of: &LogicalTensor| tensor(id(of.id()), of.data_type());
                let mut copy = Op::new(op.id().get() + 100, op.kind());
                for (attr, value) in op.attrs() {
                    copy = copy.attr(attr, value.clone());
                }
                let copy = op.inputs().iter().fold(copy, |copy, input| copy.input(moved(input)));
                op.outputs().iter().fold(copy, |copy, output| copy.output(moved(output)))
            };
            ops.extend(case.ops().iter().map(again));
        }
        let mut graph = Graph::new();
        ops.into_iter().for_each(|op| graph.add_op(op).unwrap());
        graph.finalize().unwrap();
        let partitions = graph.partitions(Policy::Fusion).unwrap();
        let numbers: Vec<f32> = (0..33 * 50).map(|i| (i * 29 % 97) as f32 / 3.0 - 14.0).collect();
        let factors: Vec<f32> = (0..50).map(|i| 1.0 + (i % 5) as f32 * 0.25).collect();
        let mut values = case.values(&mut Random::new(9));
        values.insert(70, Value::from_slice(&[33, 50], &numbers).unwrap());
        values.insert(71, Value::from_slice(&[50], &factors).unwrap());
        let normed = reference::run(&norm, &[values[&70].clone(), values[&71].clone()]).unwrap().remove(0);
        values.insert(SRC, reference::run(&quantize, &[normed]).unwrap().remove(0));
        let expected = case.expected(&values);
        let [partition] = &partitions[..] else {
            wrong.push(format!("{products} products: {} partitions", partitions.len()));
            continue;
        };
        for engine in &engines {
            let descs: Vec<LogicalTensor> = (partition.inputs().iter())
                .map(|port| {
                    let dims = values[&port.id().get()].dims();
                    LogicalTensor::strided(port.id(), port.data_type(), dims).unwrap()
                })
                .collect();
            let wanted: Vec<LogicalTensor> = partition.outputs().to_vec();
            let compiled = partition.compile_for(engine, &descs, &wanted).unwrap();
            let given = run(&compiled, engine, &values).unwrap();
            // A norm in another order of additions may round a number to its neighbour.
            let [given, expected] = [&given, &expected].map(|value| value.elements::<f32>().unwrap());
            let most = expected.iter().fold(0.0f32, |most, number| most.max(number.abs()));
            let apart = given.iter().zip(&expected).filter(|(a, b)| (*a - *b).abs() > 0.02 * most).count();
            if apart > 0 || !is_integer(&compiled) {
                wrong.push(format!("{}: {apart} apart, {}", engine.level(), compiled.plan()));
            }
        }
    }
    report(&wrong);
}

/// Integers that a partition makes for the product behind it cross the border in 8 bits.
#[test]
fn a_product_reads_the_integers_of_the_partition_before() {
    let tensor = LogicalTensor::unknown;
    let f32 = |id: usize, dims: &[i64]| LogicalTensor::strided(id, D::F32, dims).unwrap();
    let byte = |id: usize, data_type: DataType, dims: &[i64]| {
        LogicalTensor::strided(id, data_type, dims).unwrap().with_property(Property::Constant).unwrap()
    };
    let scaling = Scaling::of(0.0625, 117);
    let scaled = |id: usize, kind: OpKind, from: LogicalTensor, to: LogicalTensor| {
        scaling.op(id, kind).input(from).output(to)
    };
    // From tensor 10 in f32 to the product by weights of its integers.
    let behind = || {
        vec![
            scaled(10, OpKind::Quantize, tensor(10, D::F32), tensor(11, D::U8)),
            scaled(11, OpKind::Dequantize, tensor(11, D::U8), tensor(12, D::F32)),
            scaled(12, OpKind::Dequantize, byte(13, D::S8, &[16, 24]), tensor(14, D::F32)),
            Op::new(13, OpKind::MatMul)
                .inputs_from([tensor(12, D::F32), tensor(14, D::F32)])
                .output(tensor(15, D::F32)),
        ]
    };
    let product = |id: usize, a: LogicalTensor, b: LogicalTensor, to: usize, transposed: bool| {
        let op = Op::new(id, OpKind::MatMul).attr(Attr::TransposeB, transposed);
        op.input(a).input(b).output(tensor(to, D::F32))
    };
    let heads = [2i64, 8, 16];
    let of_attention = vec![
        product(0, f32(0, &heads), f32(1, &heads), 2, true),
        Op::new(1, OpKind::SoftMax).axis(-1).input(tensor(2, D::F32)).output(tensor(3, D::F32)),
        product(2, tensor(3, D::F32), f32(4, &heads), 10, false),
    ];
    let of_gate = vec![
        product(0, f32(0, &[8, 16]), f32(1, &[16, 32]), 2, false),
        product(1, f32(0, &[8, 16]), f32(3, &[16, 32]), 4, false),
        Op::new(2, OpKind::Multiply)
            .inputs_from([tensor(2, D::F32), tensor(4, D::F32)])
            .output(tensor(5, D::F32)),
        product(3, tensor(5, D::F32), f32(6, &[32, 16]), 10, false),
    ];
    let of_norm = vec![
        Op::new(0, OpKind::RMSNorm)
            .attr(Attr::BeginNormAxis, 1i64)
            .inputs_from([f32(0, &[8, 16]), f32(1, &[16])])
            .output(tensor(2, D::F32)),
        product(1, tensor(2, D::F32), f32(3, &[16, 16]), 10, false),
    ];
    let of_product = vec![product(0, f32(0, &[8, 16]), f32(1, &[16, 16]), 10, false)];
    let mut wrong = Vec::new();
    for (name, before) in [
        ("attention", of_attention),
        ("a gated block", of_gate),
        ("a norm and its product", of_norm),
        ("a product", of_product),
    ] {
        let mut graph = Graph::new();
        before.into_iter().chain(behind()).for_each(|op| graph.add_op(op).unwrap());
        graph.finalize().unwrap();
        let partitions = graph.partitions(Policy::Fusion).unwrap();
        let crosses: Vec<DataType> = partitions[0].outputs().iter().map(LogicalTensor::data_type).collect();
        let accuracy = partitions.last().unwrap().accuracy();
        if partitions.len() != 2 || crosses != [D::U8] || accuracy != Some(Accuracy::Bounded) {
            wrong.push(format!("{name}: {} partitions, {crosses:?}, {accuracy:?}", partitions.len()));
        }
    }
    report(&wrong);
}

/// Operands, result and scratch lie between pages that fault when they are touched.
#[test]
fn nothing_beyond_operands_result_and_scratch_is_touched() {
    let (engines, mut random, mut wrong) = (engines(), Random::new(9), Vec::new());
    for (index, [m, n, k]) in
        [[1, 1, 1], [3, 17, 5], [7, 31, 66], [13, 65, 129], [40, 100, 257], [2, 130, 515]]
            .into_iter()
            .enumerate()
    {
        for (types, transposed) in
            TYPES.into_iter().zip([[false, false], [false, true], [true, false], [true; 2]])
        {
            let src = if transposed[0] { [k, m] } else { [m, k] };
            let weights = if transposed[1] { [n, k] } else { [k, n] };
            let mut case = Case { transposed, ..Case::new(types, &src, &weights) };
            case.scaling[1] = Scaling::along(&mut random, types[1], usize::from(!transposed[1]), n);
            let values = case.values(&mut random);
            let expected = case.expected(&values);
            for (engine, place) in
                engines.iter().flat_map(|engine| [(engine, Place::Back(0)), (engine, Place::Front(0))])
            {
                let compiled = case.compile(engine, &[]).unwrap();
                let scratch_size = compiled.scratchpad_size();
                let bytes = [0, 1].map(|port: usize| values[&compiled.inputs()[port].id().get()].bytes());
                let mut memory =
                    [bytes[0].len(), bytes[1].len(), expected.bytes().len(), scratch_size].map(Guarded::new);
                for (memory, bytes) in memory.iter_mut().zip(bytes) {
                    memory.bytes_mut(place.range(memory, bytes.len())).copy_from_slice(bytes);
                }
                let at = |port: usize, size: usize| memory[port].at(place.range(&memory[port], size).start);
                // SAFETY: the memory has the sizes of the tensors and of the scratch, and nothing else uses
                // it.
                let result = unsafe {
                    let input = |port: usize| {
                        let desc = &compiled.inputs()[port];
                        Tensor::from_raw_parts(desc, engine, at(port, bytes[port].len()))
                    };
                    let output = at(2, expected.bytes().len());
                    let output = TensorMut::from_raw_parts(&compiled.outputs()[0], engine, output);
                    let scratch = std::slice::from_raw_parts_mut(at(3, scratch_size).cast(), scratch_size);
                    let stream = Stream::new(engine);
                    compiled.execute_with_scratchpad(&stream, &[input(0), input(1)], &mut [output], scratch)
                };
                let given = memory[2].bytes(place.range(&memory[2], expected.bytes().len()));
                if result.is_err() || given != expected.bytes() {
                    wrong.push((index, engine.level(), place, result, case.clone()));
                }
            }
        }
    }
    report(&wrong);
}

/// The tests of this file again, in a process without VNNI.
#[test]
fn the_same_without_vnni() {
    const NAME: &str = "the_same_without_vnni";
    if Level::available() != Level::Avx512 || std::env::var_os("STERNA_MAX_CPU_ISA").is_some() {
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["matmul_integers::", "--skip", NAME])
        .env("STERNA_MAX_CPU_ISA", "avx512")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
