//! Promise: a product is within its bound of the exact one, for every size, type, layout and CPU level; the
//! number of threads and what is fused to the product change no bit.

use std::collections::BTreeMap;

use crate::common::{self, Random, engines, graphs, report};
use sterna::reference::{self, Value};
use sterna::{
    Accuracy, Attr, CompiledPartition, DataType, Engine, Graph, InPlacePair, Level, LogicalTensor, Op,
    OpKind, Partition, Stream, TensorBuf,
};

use DataType as D;

const SRC: usize = 0;
const WEIGHTS: usize = 1;
const BIAS: usize = 2;
const DST: usize = 3;

/// Bytes of an output before an execution, where nothing may be written.
const GAP: u8 = 0xa5;

/// A MatMul of concrete shapes and layouts.
#[derive(Debug, Clone)]
struct Case {
    types: [DataType; 2],
    /// Dims of `src`, `weights` and `bias`.
    dims: Vec<Vec<i64>>,
    transposed: [bool; 2],
    /// Strides of the inputs; row-major if there are none.
    strides: [Option<Vec<i64>>; 3],
    /// The order of the result's dims in memory, the outermost first, and how many elements lie between rows.
    result: Option<(Vec<usize>, i64)>,
}

impl Case {
    fn new(types: [DataType; 2], dims: &[&[i64]]) -> Self {
        let dims = dims.iter().map(|dims| dims.to_vec()).collect();
        Self { types, dims, transposed: [false; 2], strides: [None, None, None], result: None }
    }

    fn transposed(self, transposed: [bool; 2]) -> Self {
        Self { transposed, ..self }
    }

    fn stride(mut self, input: usize, strides: &[i64]) -> Self {
        self.strides[input] = Some(strides.to_vec());
        self
    }

    fn op(&self) -> Op {
        let [data_type, to] = self.types;
        let inputs = (0..self.dims.len()).map(|id| LogicalTensor::unknown(id, data_type));
        Op::new(7, OpKind::MatMul)
            .attr(Attr::TransposeA, self.transposed[0])
            .attr(Attr::TransposeB, self.transposed[1])
            .inputs_from(inputs)
            .output(LogicalTensor::unknown(DST, to))
    }

    fn inputs(&self) -> Vec<LogicalTensor> {
        let desc = |(id, dims): (usize, &Vec<i64>)| match &self.strides[id] {
            Some(strides) => LogicalTensor::with_strides(id, self.types[0], dims, strides).unwrap(),
            None => LogicalTensor::strided(id, self.types[0], dims).unwrap(),
        };
        self.dims.iter().enumerate().map(desc).collect()
    }

    fn compile(&self, engine: &Engine) -> Result<CompiledPartition, String> {
        let partition = Partition::from_op(self.op()).map_err(|e| e.to_string())?;
        let unknown = LogicalTensor::unknown(DST, self.types[1]);
        let compile =
            |output| partition.compile_for(engine, &self.inputs(), &[output]).map_err(|e| e.to_string());
        let compiled = compile(unknown)?;
        let Some((order, gap)) = &self.result else { return Ok(compiled) };
        let dims = compiled.outputs()[0].dims().unwrap().to_vec();
        let mut strides = vec![0; dims.len()];
        let mut next = 1 + gap;
        for &axis in order.iter().filter(|&&axis| axis < dims.len()).rev() {
            strides[axis] = next;
            next = next * dims[axis].max(1) + gap;
        }
        compile(LogicalTensor::with_strides(DST, self.types[1], &dims, &strides).map_err(|e| e.to_string())?)
    }

    /// Runs the case on an engine.
    fn run(&self, engine: &Engine, inputs: &[Value]) -> Result<Value, String> {
        let compiled = self.compile(engine)?;
        let tensors: Vec<TensorBuf> = compiled
            .inputs()
            .iter()
            .zip(inputs)
            .map(|(desc, value)| {
                let mut tensor = TensorBuf::zeroed(desc.clone(), engine).unwrap();
                value.write(&mut tensor).unwrap();
                tensor
            })
            .collect();
        let mut output = TensorBuf::zeroed(compiled.outputs()[0].clone(), engine).unwrap();
        output.as_mut_bytes().fill(GAP);
        common::run(&compiled, engine, &tensors, &mut output).map_err(|e| e.to_string())?;
        let result = Value::read(&output.as_tensor()).map_err(|e| e.to_string())?;
        // The bytes between the elements are as they were.
        let mut other = TensorBuf::zeroed(compiled.outputs()[0].clone(), engine).unwrap();
        other.as_mut_bytes().fill(GAP);
        result.write(&mut other).map_err(|e| e.to_string())?;
        if other.as_bytes() != output.as_bytes() {
            return Err("bytes between the elements are written".to_owned());
        }
        Ok(result)
    }

    /// Input values; an input of stride 0 gets equal elements along it, which writing a value there needs.
    fn values(&self, random: &mut Random) -> Vec<Value> {
        let value = |(id, dims): (usize, &Vec<i64>)| {
            let repeated = |axis: usize| self.strides[id].as_ref().is_some_and(|strides| strides[axis] == 0);
            let count = dims.iter().product::<i64>() as usize;
            let mut numbers: Vec<f32> = Vec::with_capacity(count);
            let row: Vec<i64> = (0..dims.len()).map(|axis| dims[axis + 1..].iter().product()).collect();
            for at in 0..count as i64 {
                let index = |axis: usize| at / row[axis] % dims[axis];
                let source = (0..dims.len())
                    .filter(|&axis| repeated(axis))
                    .fold(at, |source, axis| source - index(axis) * row[axis]);
                let number = match source == at {
                    true => (random.below(2001) as f32 - 1000.0) / 256.0,
                    false => numbers[source as usize],
                };
                numbers.push(number);
            }
            value_of(self.types[0], dims, &numbers)
        };
        self.dims.iter().enumerate().map(value).collect()
    }

    /// Holds the case against the reference on all engines.
    fn check(&self, engines: &[Engine], inputs: &[Value]) -> Vec<String> {
        let op = self.op();
        let expected = reference::run(&op, inputs).unwrap().remove(0);
        let bounds = reference::bounds(&op, inputs).unwrap().unwrap();
        let wrong = |engine: &Engine| {
            let why = match self.run(engine, inputs) {
                Ok(result) => beyond(&result, &expected, &bounds)?,
                Err(why) => why,
            };
            Some(format!("{}: {why}: {self:?}", engine.level()))
        };
        engines.iter().filter_map(wrong).collect()
    }
}

fn value_of(data_type: DataType, dims: &[i64], numbers: &[f32]) -> Value {
    let bytes = |&x: &f32| match data_type {
        D::Bf16 => half::bf16::from_f32(x).to_le_bytes().to_vec(),
        D::F16 => half::f16::from_f32(x).to_le_bytes().to_vec(),
        D::F64 => f64::from(x).to_le_bytes().to_vec(),
        _ => x.to_le_bytes().to_vec(),
    };
    Value::new(data_type, dims, numbers.iter().flat_map(bytes).collect()).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    let pair = |bytes: &[u8]| [bytes[0], bytes[1]];
    match value.data_type() {
        D::F32 => value.elements::<f32>().unwrap().into_iter().map(f64::from).collect(),
        D::F64 => value.elements::<f64>().unwrap(),
        D::Bf16 => value.bytes().chunks(2).map(|b| half::bf16::from_le_bytes(pair(b)).to_f64()).collect(),
        _ => value.bytes().chunks(2).map(|b| half::f16::from_le_bytes(pair(b)).to_f64()).collect(),
    }
}

/// The first element that is further from the expected one than its bound and the roundings of both to their
/// type.
fn beyond(given: &Value, expected: &Value, bounds: &[f64]) -> Option<String> {
    if (given.dims(), given.data_type()) != (expected.dims(), expected.data_type()) {
        return Some(format!("the result is {:?}, not {:?}", given.dims(), expected.dims()));
    }
    let (step, smallest) = match given.data_type() {
        D::F32 => (2f64.powi(-23), 2f64.powi(-149)),
        D::F64 => (2f64.powi(-52), 2f64.powi(-1074)),
        D::Bf16 => (2f64.powi(-7), 2f64.powi(-133)),
        _ => (2f64.powi(-10), 2f64.powi(-24)),
    };
    let is_far = |((given, expected), bound): ((f64, f64), f64)| {
        if expected.is_nan() || given.is_nan() {
            return expected.is_nan() != given.is_nan();
        }
        if expected.is_infinite() || given.is_infinite() {
            return expected != given;
        }
        let rounding = step * given.abs().max(expected.abs()) + smallest;
        (given - expected).abs() > bound + rounding
    };
    let (given, expected) = (numbers(given), numbers(expected));
    let pairs = || given.iter().copied().zip(expected.iter().copied()).zip(bounds.iter().copied());
    let at = pairs().position(is_far)?;
    Some(format!("element {at} is {}, not {}, bound {}", given[at], expected[at], bounds[at]))
}

const TYPES: [[DataType; 2]; 7] = [
    [D::F32, D::F32],
    [D::Bf16, D::Bf16],
    [D::Bf16, D::F32],
    [D::F16, D::F16],
    [D::F16, D::F32],
    [D::F64, D::F64],
    [D::F64, D::F32],
];

const SIZES: [i64; 18] = [0, 1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 77, 100, 129, 257];

#[test]
fn products_of_every_size_and_type_are_within_their_bound() {
    let (engines, mut random, mut wrong) = (engines(), Random::new(1), Vec::new());
    for (i, m) in SIZES.into_iter().enumerate() {
        for (j, n) in SIZES.into_iter().enumerate() {
            let k = SIZES[(5 * i + 7 * j + 3) % SIZES.len()];
            let types = TYPES[(i + 2 * j) % TYPES.len()];
            let transposed = [(i + j) % 2 == 1, (i / 2 + j / 3) % 2 == 1];
            let (src, weights) =
                (if transposed[0] { [k, m] } else { [m, k] }, if transposed[1] { [n, k] } else { [k, n] });
            let mut dims: Vec<&[i64]> = vec![&src, &weights];
            let bias = [vec![n], vec![m, n], vec![m, 1], vec![1], vec![]][(i + j) % 5].clone();
            if (i + 2 * j) % 3 == 0 {
                dims.push(&bias);
            }
            let case = Case::new(types, &dims).transposed(transposed);
            wrong.extend(case.check(&engines, &case.values(&mut random)));
        }
    }
    report(&wrong);
}

#[test]
fn every_type_with_every_transpose_is_within_its_bound() {
    let (engines, mut random, mut wrong) = (engines(), Random::new(2), Vec::new());
    for types in TYPES {
        // Few rows, a medium number, and enough that the right operand is packed.
        for [m, n, k] in
            [[1, 300, 70], [5, 65, 333], [16, 1030, 40], [40, 90, 65], [150, 130, 601], [300, 2, 50]]
        {
            for transposed in [[false, false], [true, false], [false, true], [true, true]] {
                let src = if transposed[0] { [k, m] } else { [m, k] };
                let weights = if transposed[1] { [n, k] } else { [k, n] };
                let case = Case::new(types, &[&src, &weights]).transposed(transposed);
                wrong.extend(case.check(&engines, &case.values(&mut random)));
            }
        }
    }
    report(&wrong);
}

/// Matrices that few rows read from beyond the caches, along the depth or along the columns, neither a whole
/// number of blocks.
#[test]
fn few_rows_times_a_large_matrix_are_within_their_bound() {
    let (engines, mut random, mut wrong) = (engines(), Random::new(25), Vec::new());
    for types in TYPES {
        for [m, n, k] in [[1, 515, 1031], [2, 1031, 509], [3, 261, 2077], [7, 130, 2100], [16, 523, 1043]] {
            for transposed in [false, true] {
                let weights = if transposed { [n, k] } else { [k, n] };
                let case = Case::new(types, &[&[m, k], &weights]).transposed([false, transposed]);
                wrong.extend(case.check(&engines, &case.values(&mut random)));
            }
        }
    }
    report(&wrong);
}

#[test]
fn shapes_of_every_rank_broadcast() {
    let (engines, mut random, mut wrong) = (engines(), Random::new(3), Vec::new());
    let shapes: &[&[&[i64]]] = &[
        &[&[5], &[5]],
        &[&[5], &[5, 7]],
        &[&[4, 5], &[5]],
        &[&[300, 50], &[50]],
        &[&[5], &[3, 5, 7]],
        &[&[2, 3, 4, 5], &[5]],
        &[&[2, 3, 4, 5], &[5, 7]],
        &[&[4, 5], &[2, 3, 5, 7]],
        &[&[2, 1, 20, 5], &[3, 5, 70]],
        &[&[1, 3, 120, 5], &[2, 1, 5, 70]],
        &[&[2, 3, 120, 17], &[2, 3, 17, 70], &[70]],
        &[&[2, 3, 4, 5], &[2, 3, 5, 7], &[2, 1, 4, 1]],
        &[&[2, 3, 4, 5], &[2, 3, 5, 7], &[3, 1, 7]],
        &[&[2, 5], &[5, 7], &[]],
        &[&[5], &[5], &[]],
        &[&[32, 1, 40], &[40, 70], &[32, 1, 70]],
        &[&[3, 8, 2, 40], &[40, 70], &[8, 1, 70]],
        &[&[150, 40], &[2, 3, 40, 7]],
        &[&[5, 9, 1, 40], &[5, 1, 40, 130]],
        &[&[7, 40], &[33, 40, 30]],
        &[&[0, 4, 5], &[1, 5, 7]],
        &[&[2, 4, 0], &[2, 0, 7], &[7]],
        &[&[2, 0, 4], &[2, 4, 7]],
        &[&[2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4, 5], &[3, 1, 5, 7]],
    ];
    for (index, dims) in shapes.iter().enumerate() {
        let case = Case::new(TYPES[index % TYPES.len()], dims);
        wrong.extend(case.check(&engines, &case.values(&mut random)));
    }
    report(&wrong);
}

#[test]
fn operands_may_have_any_strides() {
    let (engines, mut random, mut wrong) = (engines(), Random::new(4), Vec::new());
    for types in TYPES {
        for m in [3, 40, 130] {
            let (n, k) = (70, 33);
            let matrix = |rows: i64, columns: i64| vec![2, rows, columns];
            let case = || Case::new(types, &[&matrix(m, k), &matrix(k, n), &[n]]);
            let rows = [
                // Token-major, as packed QKV is; a transposed view; gaps between elements; nothing but one
                // element.
                case().stride(SRC, &[k, 2 * k, 1]).stride(WEIGHTS, &[n, 2 * n, 1]),
                case().stride(SRC, &[m * k, 1, m]).stride(WEIGHTS, &[n * k, 1, k]),
                case().stride(SRC, &[3 * m * k, 3 * k, 3]).stride(WEIGHTS, &[2 * n * k, 2 * n, 2]),
                case().stride(SRC, &[0, k, 1]).stride(WEIGHTS, &[0, n, 1]).stride(BIAS, &[3]),
                case().stride(SRC, &[0, 0, 1]).stride(WEIGHTS, &[0, 1, 0]).stride(BIAS, &[0]),
                case().stride(SRC, &[0, 0, 0]).stride(WEIGHTS, &[0, 0, 0]),
                case().stride(WEIGHTS, &[0, 5 * n, 5]),
                Case { result: Some((vec![1, 0, 2], 0)), ..case() },
                Case { result: Some((vec![0, 2, 1], 0)), ..case() },
                Case { result: Some((vec![2, 1, 0], 3)), ..case() },
                Case { result: Some((vec![0, 1, 2], 5)), ..case() },
            ];
            for case in rows {
                wrong.extend(case.check(&engines, &case.values(&mut random)));
            }
        }
    }
    report(&wrong);
}

#[test]
fn nan_and_infinity_reach_their_rows_and_columns_alone() {
    let (engines, mut random, mut wrong) = (engines(), Random::new(5), Vec::new());
    for (types, m) in TYPES.into_iter().flat_map(|types| [1, 9, 130].map(|m| (types, m))) {
        for transposed in [false, true] {
            let (n, k) = (67, 21);
            let weights = if transposed { [n, k] } else { [k, n] };
            let case = Case::new(types, &[&[m, k], &weights]).transposed([false, transposed]);
            let mut values = case.values(&mut random);
            for (input, value) in values.iter_mut().enumerate() {
                let mut elements: Vec<f32> = numbers(value).into_iter().map(|x| x as f32).collect();
                for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY].into_iter().skip(input) {
                    let at = random.below(elements.len());
                    elements[at] = special;
                }
                *value = value_of(types[0], value.dims(), &elements);
            }
            wrong.extend(case.check(&engines, &values));
        }
    }
    report(&wrong);
}

#[test]
fn threads_do_not_change_a_bit() {
    let (mut random, mut wrong) = (Random::new(6), Vec::new());
    let engines: Vec<Engine> = (1..=8).map(|threads| Engine::builder().threads(threads).build()).collect();
    for types in TYPES {
        for (src, weights) in [
            (vec![3, 200, 150], vec![150, 500]),
            (vec![2, 9, 1000], vec![2, 1000, 1100]),
            (vec![1, 700], vec![700, 1300]),
        ] {
            for transposed in [false, true] {
                let mut weights = weights.clone();
                if transposed {
                    let rank = weights.len();
                    weights.swap(rank - 1, rank - 2);
                }
                let case = Case::new(types, &[&src, &weights]).transposed([false, transposed]);
                let values = case.values(&mut random);
                let results: Vec<_> = engines.iter().map(|engine| case.run(engine, &values)).collect();
                if results[0].is_err() || results.iter().any(|result| *result != results[0]) {
                    wrong.push(case);
                }
            }
        }
    }
    report(&wrong);
}

#[test]
fn the_position_of_a_row_does_not_change_a_bit() {
    let (engines, mut random, mut wrong) = (engines(), Random::new(7), Vec::new());
    for (types, m) in TYPES.into_iter().flat_map(|types| [2, 13, 90, 160].map(|m| (types, m))) {
        let (n, k) = (75, 130);
        let case = Case::new(types, &[&[m, k], &[k, n]]).stride(SRC, &[0, 1]);
        let values = case.values(&mut random);
        for engine in &engines {
            let result = case.run(engine, &values).unwrap();
            let size = types[1].size().unwrap() * n as usize;
            if result.bytes().chunks(size).any(|row| row != &result.bytes()[..size]) {
                wrong.push((engine.level(), case.clone()));
            }
        }
    }
    report(&wrong);
}

#[test]
fn a_product_is_a_partition_of_class_ordered_and_shows_its_phases() {
    let case = Case::new([D::F32, D::F32], &[&[300, 200], &[200, 100]]);
    let partition = Partition::from_op(case.op()).unwrap();
    assert!(partition.is_supported());
    assert_eq!(partition.accuracy(), Some(Accuracy::Ordered));
    let compiled = case.compile(&Engine::builder().max_level(Level::Portable).build()).unwrap();
    let plan = compiled.plan().to_string();
    assert!(plan.contains("pack the right operand of a product of tensor 1 to buffer 0"), "{plan}");
    assert!(plan.contains("product of depth 200"), "{plan}");
    assert!(compiled.in_place_pairs().is_empty());
}

#[test]
fn scratch_comes_from_the_caller_as_well() {
    let case = Case::new([D::Bf16, D::Bf16], &[&[130, 40], &[40, 70], &[70]]);
    let engine = Engine::builder().threads(2).build();
    let compiled = case.compile(&engine).unwrap();
    let values = case.values(&mut Random::new(8));
    let tensors: Vec<TensorBuf> = compiled
        .inputs()
        .iter()
        .zip(&values)
        .map(|(desc, value)| {
            let mut tensor = TensorBuf::zeroed(desc.clone(), &engine).unwrap();
            value.write(&mut tensor).unwrap();
            tensor
        })
        .collect();
    let inputs: Vec<_> = tensors.iter().map(TensorBuf::as_tensor).collect();
    let mut output = TensorBuf::zeroed(compiled.outputs()[0].clone(), &engine).unwrap();
    let mut scratch = vec![std::mem::MaybeUninit::uninit(); compiled.scratchpad_size()];
    let stream = Stream::new(&engine);
    compiled.execute_with_scratchpad(&stream, &inputs, &mut [output.as_tensor_mut()], &mut scratch).unwrap();
    assert_eq!(Value::read(&output.as_tensor()).unwrap(), case.run(&engine, &values).unwrap());
}

/// A graph of products and pointwise ops, its inputs, and all tensors that its ops make.
pub(super) struct Fused {
    pub(super) name: &'static str,
    pub(super) graph: Graph,
    inputs: Vec<LogicalTensor>,
    pub(super) made: BTreeMap<usize, LogicalTensor>,
    /// How many partitions it is, fused.
    partitions: usize,
}

/// Makes graphs; a tensor is known by its id.
#[derive(Default)]
pub(super) struct Ops {
    ops: Vec<Op>,
    inputs: Vec<LogicalTensor>,
    made: BTreeMap<usize, LogicalTensor>,
}

impl Ops {
    pub(super) fn input(&mut self, data_type: DataType, dims: &[i64]) -> LogicalTensor {
        let tensor = LogicalTensor::strided(100 + self.inputs.len(), data_type, dims).unwrap();
        self.inputs.push(tensor.clone());
        tensor
    }

    pub(super) fn add(
        &mut self,
        op: Op,
        inputs: &[&LogicalTensor],
        data_type: DataType,
        dims: &[i64],
    ) -> LogicalTensor {
        let tensor = LogicalTensor::strided(self.made.len(), data_type, dims).unwrap();
        self.made.insert(tensor.id().get(), tensor.clone());
        self.ops.push(op.inputs_from(inputs.iter().map(|&input| input.clone())).output(tensor.clone()));
        tensor
    }

    pub(super) fn op(&self, kind: OpKind) -> Op {
        Op::new(self.ops.len(), kind)
    }

    fn matmul(&mut self, a: &LogicalTensor, b: &LogicalTensor, to: DataType, dims: &[i64]) -> LogicalTensor {
        self.add(self.op(OpKind::MatMul), &[a, b], to, dims)
    }

    pub(super) fn unary(&mut self, kind: OpKind, x: &LogicalTensor) -> LogicalTensor {
        // GELU has no f64.
        let kind = if x.data_type() == D::F64 && kind == OpKind::GELU { OpKind::Sigmoid } else { kind };
        self.add(self.op(kind), &[x], x.data_type(), x.dims().unwrap())
    }

    fn cast(&mut self, x: &LogicalTensor, to: DataType) -> LogicalTensor {
        let is_of_doubles = [x.data_type(), to].contains(&D::F64);
        let kind = if is_of_doubles { OpKind::Cast } else { OpKind::TypeCast };
        self.add(self.op(kind), &[x], to, x.dims().unwrap())
    }

    pub(super) fn binary(&mut self, kind: OpKind, x: &LogicalTensor, y: &LogicalTensor) -> LogicalTensor {
        self.add(self.op(kind), &[x, y], x.data_type(), x.dims().unwrap())
    }

    pub(super) fn select(
        &mut self,
        cond: &LogicalTensor,
        then: &LogicalTensor,
        other: &LogicalTensor,
    ) -> LogicalTensor {
        let dims = if then.dims().unwrap().is_empty() { other.dims() } else { then.dims() };
        self.add(self.op(OpKind::Select), &[cond, then, other], then.data_type(), dims.unwrap())
    }

    pub(super) fn done(self, name: &'static str, partitions: usize) -> Fused {
        let mut graph = Graph::new();
        for op in self.ops {
            graph.add_op(op).unwrap();
        }
        graph.finalize().unwrap();
        Fused { name, graph, inputs: self.inputs, made: self.made, partitions }
    }
}

/// Graphs on products of a batch of two, of so many rows, columns and terms.
fn fused_graphs([m, n, k]: [i64; 3], t: DataType, to: DataType) -> Vec<Fused> {
    let product = |ops: &mut Ops| {
        let (a, b) = (ops.input(t, &[2, m, k]), ops.input(t, &[2, k, n]));
        ops.matmul(&a, &b, to, &[2, m, n])
    };
    let mut graphs = Vec::new();

    let mut ops = Ops::default();
    let x = product(&mut ops);
    let (scale, fill, cond) = (ops.input(to, &[]), ops.input(to, &[]), ops.input(D::Boolean, &[1, 1, n]));
    let x = ops.binary(OpKind::Multiply, &x, &scale);
    let x = ops.select(&cond, &x, &fill);
    ops.unary(OpKind::GELU, &x);
    graphs.push(ops.done("scale, a mask of columns, GELU", 1));

    let mut ops = Ops::default();
    let x = product(&mut ops);
    let (residual, cond, fill) =
        (ops.input(to, &[2, m, n]), ops.input(D::Boolean, &[2, m, n]), ops.input(to, &[2, m, n]));
    let x = ops.select(&cond, &x, &fill);
    let x = ops.binary(OpKind::Add, &x, &residual);
    let y = ops.select(&cond, &fill, &x);
    let other = if to == D::F32 { D::Bf16 } else { D::F32 };
    ops.cast(&y, other);
    graphs.push(ops.done("two masks of full shape, a residual, a cast", 1));

    let mut ops = Ops::default();
    let x = product(&mut ops);
    let fill = ops.input(to, &[]);
    let dims = [2, m, n];
    let row = ops.add(ops.op(OpKind::GenIndex).axis(-2), &[&x], D::S32, &dims);
    let column = ops.add(ops.op(OpKind::GenIndex).axis(-1), &[&x], D::S32, &dims);
    let causal = ops.add(ops.op(OpKind::GreaterEqual), &[&row, &column], D::Boolean, &dims);
    let x = ops.unary(OpKind::Tanh, &x);
    ops.select(&causal, &x, &fill);
    graphs.push(ops.done("a causal mask of indices", 1));

    let mut ops = Ops::default();
    let x = product(&mut ops);
    let (rows, wide) = (ops.input(to, &[m, 1]), ops.input(to, &[3, 1, 1, n]));
    let x = ops.binary(OpKind::Subtract, &x, &rows);
    let more = ops.unary(OpKind::Exp, &x);
    ops.add(ops.op(OpKind::Add), &[&more, &wide], to, &[3, 2, m, n]);
    graphs.push(ops.done("a result that is larger than the product", 1));

    let mut ops = Ops::default();
    let x = product(&mut ops);
    let c = ops.input(to, &[n, 9]);
    let y = ops.unary(OpKind::ReLU, &x);
    let z = ops.matmul(&x, &c, D::F32, &[2, m, 9]);
    let w = ops.unary(OpKind::Square, &z);
    let v = ops.unary(OpKind::Exp, &y);
    let _ = (w, v);
    graphs.push(ops.done("a product that others use as well", 2));

    let mut ops = Ops::default();
    let x = product(&mut ops);
    let index = ops.add(ops.op(OpKind::GenIndex).axis(1), &[&x], D::S32, &[2, m, n]);
    let zero = ops.input(D::S32, &[]);
    ops.add(ops.op(OpKind::GreaterEqual), &[&index, &zero], D::Boolean, &[2, m, n]);
    graphs.push(ops.done("a product of which the shape alone is used", 1));

    let mut ops = Ops::default();
    let (a, b) = (ops.input(t, &[9, 2, k]), ops.input(t, &[k, n]));
    let x = ops.matmul(&a, &b, to, &[9, 2, n]);
    let (cond, fill) = (ops.input(D::Boolean, &[9, 1, 1]), ops.input(to, &[2, n]));
    let x = ops.select(&cond, &x, &fill);
    ops.unary(OpKind::Abs, &x);
    graphs.push(ops.done("short products that share a matrix", 1));

    let mut ops = Ops::default();
    let (a, b) = (ops.input(t, &[k]), ops.input(t, &[2, k, n]));
    let x = ops.matmul(&a, &b, to, &[2, n]);
    let y = ops.input(to, &[2, 1]);
    let x = ops.binary(OpKind::Maximum, &x, &y);
    ops.unary(OpKind::Sigmoid, &x);
    graphs.push(ops.done("a vector on the left", 1));

    let mut ops = Ops::default();
    let (a, b) = (ops.input(t, &[2, m, k]), ops.input(t, &[k]));
    let x = ops.matmul(&a, &b, to, &[2, m]);
    let (cond, y) = (ops.input(D::Boolean, &[2, 1]), ops.input(to, &[m]));
    ops.select(&cond, &x, &y);
    graphs.push(ops.done("a vector on the right", 1));

    let mut ops = Ops::default();
    let (a, b) = (ops.input(t, &[k]), ops.input(t, &[k]));
    let x = ops.matmul(&a, &b, to, &[]);
    ops.unary(OpKind::Exp, &x);
    graphs.push(ops.done("two vectors", 1));
    graphs
}

/// Graphs on products whose operands pointwise ops compute or move.
fn graphs_with_prologue([m, n, k]: [i64; 3], t: DataType, to: DataType) -> Vec<Fused> {
    let other = if t == D::F32 { D::Bf16 } else { D::F32 };
    let mut graphs = Vec::new();

    let mut ops = Ops::default();
    let (a, b, bias) = (ops.input(other, &[2, m, k]), ops.input(other, &[k, n]), ops.input(other, &[n]));
    let a = ops.cast(&a, t);
    let b = ops.cast(&b, t);
    let bias = ops.cast(&bias, t);
    let x = ops.add(ops.op(OpKind::MatMul), &[&a, &b, &bias], to, &[2, m, n]);
    ops.unary(OpKind::ReLU, &x);
    graphs.push(ops.done("casts of all operands", 1));

    let mut ops = Ops::default();
    let (a, b) = (ops.input(t, &[2, m, k]), ops.input(t, &[2, n, k]));
    let (scale, cond) = (ops.input(t, &[]), ops.input(D::Boolean, &[2, m, 1]));
    let scaled = ops.binary(OpKind::Multiply, &a, &scale);
    let a = ops.select(&cond, &scaled, &a);
    let b =
        ops.add(ops.op(OpKind::StaticTranspose).attr(Attr::Order, vec![0i64, 2, 1]), &[&b], t, &[2, k, n]);
    let x = ops.matmul(&a, &b, to, &[2, m, n]);
    ops.unary(OpKind::Abs, &x);
    graphs.push(ops.done("a scale and a mask on the left, a transpose on the right", 1));

    let mut ops = Ops::default();
    let (packed, b) = (ops.input(t, &[m, 2, 3 * k]), ops.input(other, &[2, 2 * n, k]));
    let part =
        ops.op(OpKind::Slice).attr(Attr::Starts, vec![0i64, 0i64, k]).attr(Attr::Ends, vec![m, 2i64, 2 * k]);
    let a = ops.add(part, &[&packed], t, &[m, 2, k]);
    let a =
        ops.add(ops.op(OpKind::StaticTranspose).attr(Attr::Order, vec![1i64, 0, 2]), &[&a], t, &[2, m, k]);
    let part =
        ops.op(OpKind::Slice).attr(Attr::Starts, vec![0i64, n, 0i64]).attr(Attr::Ends, vec![2i64, 2 * n, k]);
    let b = ops.add(part, &[&b], other, &[2, n, k]);
    let b = ops.cast(&b, t);
    ops.add(ops.op(OpKind::MatMul).attr(Attr::TransposeB, true), &[&a, &b], to, &[2, m, n]);
    graphs.push(ops.done("slices of packed tensors", 1));

    let mut ops = Ops::default();
    let (a, b) = (ops.input(t, &[m, k]), ops.input(t, &[k, n]));
    let same = ops.unary(OpKind::Tanh, &a);
    let x = ops.matmul(&same, &b, to, &[m, n]);
    let seen = ops.unary(OpKind::Exp, &same);
    let _ = (x, seen);
    graphs.push(ops.done("an operand that others use as well", 2));

    if (t, to) == (D::F32, D::F32) {
        let group = if k % 4 == 0 && k > 0 { 4 } else { 1 };
        for four_bits in [D::S4, D::U4] {
            let mut ops = Ops::default();
            let (a, b) = (ops.input(t, &[m, k]), ops.input(four_bits, &[k, n]));
            let scales = ops.input(t, &[k / group, n]);
            let op = ops.op(OpKind::DynamicDequantize).attr(Attr::Qtype, "per_group");
            let b = ops.add(op.attr(Attr::GroupShape, vec![group, 1i64]), &[&b, &scales], t, &[k, n]);
            ops.matmul(&a, &b, to, &[m, n]);
            graphs.push(ops.done("weights of four bits in groups", 1));
        }
    }
    graphs
}

impl Fused {
    /// The faults of its partitions beside their ops run one by one.
    pub(super) fn faults(&self, engines: &[Engine], seed: u64) -> Vec<String> {
        let [together, alone] = graphs::both(&self.graph);
        if together.len() != self.partitions || together.iter().any(|partition| !partition.is_supported()) {
            return vec![format!("it is {} partitions", together.len())];
        }
        let mut faults = Vec::new();
        for engine in engines {
            let inputs = self.tensors(engine, seed);
            let run = |partitions: &[Partition], in_place: Option<Random>| {
                graphs::run(partitions, &self.made, engine, &inputs, in_place)
            };
            let apart = run(&alone, None);
            for in_place in [None, Some(Random::new(seed))] {
                let why = match (&apart, run(&together, in_place)) {
                    (Ok(apart), Ok(made)) => graphs::differs(&made, apart),
                    (Err(why), _) => Some(why.clone()),
                    (_, Err(why)) => Some(why),
                };
                faults.extend(why.map(|why| format!("{}: {why}", engine.level())));
            }
        }
        faults
    }

    pub(super) fn tensors(&self, engine: &Engine, seed: u64) -> BTreeMap<usize, TensorBuf> {
        let fill = |desc: &LogicalTensor| {
            let mut tensor = TensorBuf::zeroed(desc.clone(), engine).unwrap();
            let mut random = Random::new(seed ^ desc.id().get() as u64);
            match desc.data_type().is_whole() {
                true => graphs::fill(&mut tensor, &mut random),
                false => tensor.as_mut_bytes().iter_mut().for_each(|byte| *byte = random.next() as u8),
            }
            (desc.id().get(), tensor)
        };
        self.inputs.iter().map(fill).collect()
    }
}

#[test]
fn a_product_fused_to_what_follows_gives_the_bits_of_the_ops_one_by_one() {
    fused_is_unfused(fused_graphs);
}

/// Graphs on products whose results are moved before they leave.
fn graphs_with_moves_behind([m, n, k]: [i64; 3], t: DataType, to: DataType) -> Vec<Fused> {
    let product = |ops: &mut Ops| {
        let (a, b) = (ops.input(t, &[2, m, k]), ops.input(t, &[2, k, n]));
        ops.matmul(&a, &b, to, &[2, m, n])
    };
    fn moved(ops: &mut Ops, kind: OpKind, x: &LogicalTensor, list: &[i64], dims: &[i64]) -> LogicalTensor {
        let attr = if kind == OpKind::StaticReshape { Attr::Shape } else { Attr::Order };
        let op = ops.op(kind).attr(attr, list.to_vec());
        let op = if kind == OpKind::StaticReshape { op.attr(Attr::SpecialZero, false) } else { op };
        ops.add(op, &[x], x.data_type(), dims)
    }
    use OpKind::{StaticReshape, StaticTranspose};
    let mut graphs = Vec::new();

    let mut ops = Ops::default();
    let x = product(&mut ops);
    moved(&mut ops, StaticTranspose, &x, &[0, 2, 1], &[2, n, m]);
    graphs.push(ops.done("the last two dims behind", 1));

    let mut ops = Ops::default();
    let x = product(&mut ops);
    let x = ops.unary(OpKind::ReLU, &x);
    let x = moved(&mut ops, StaticTranspose, &x, &[1, 0, 2], &[m, 2, n]);
    moved(&mut ops, StaticReshape, &x, &[m, 2 * n], &[m, 2 * n]);
    graphs.push(ops.done("heads side by side", 1));

    let mut ops = Ops::default();
    let x = product(&mut ops);
    let (cond, fill) = (ops.input(D::Boolean, &[1, 1, n]), ops.input(to, &[]));
    let x = ops.select(&cond, &x, &fill);
    let x = moved(&mut ops, StaticReshape, &x, &[2 * m, 1, n], &[2 * m, 1, n]);
    ops.add(ops.op(OpKind::Reorder), &[&x], to, &[2 * m, 1, n]);
    graphs.push(ops.done("a mask, a reshape and a reorder behind", 1));

    let mut ops = Ops::default();
    let (a, b) = (ops.input(t, &[2 * m, k]), ops.input(t, &[k, n]));
    let x = ops.matmul(&a, &b, to, &[2 * m, n]);
    let x = moved(&mut ops, StaticReshape, &x, &[2, m, n], &[2, m, n]);
    moved(&mut ops, StaticTranspose, &x, &[1, 0, 2], &[m, 2, n]);
    graphs.push(ops.done("rows that no one stride leads to", 1));

    let mut ops = Ops::default();
    let x = product(&mut ops);
    let y = moved(&mut ops, StaticTranspose, &x, &[0, 2, 1], &[2, n, m]);
    let z = ops.unary(OpKind::Exp, &x);
    let _ = (y, z);
    graphs.push(ops.done("a product that others use as well", 2));
    graphs
}

#[test]
fn a_product_whose_result_is_moved_gives_the_bits_of_the_ops_one_by_one() {
    fused_is_unfused(graphs_with_moves_behind);
}

#[test]
fn moves_behind_a_product_are_strides_of_the_result() {
    let engine = Engine::builder().threads(1).build();
    let phases = |name: &str| {
        let fused = graphs_with_moves_behind([300, 75, 64], D::F32, D::F32);
        let fused = fused.into_iter().find(|fused| fused.name == name).unwrap();
        let [together, _] = graphs::both(&fused.graph);
        let compiled = together[0].compile(&engine).unwrap();
        let plan = compiled.plan();
        let buffers = plan.nests.iter().flat_map(|nest| &nest.steps).filter_map(|step| step.buffer).count();
        (plan.nests.iter().map(|nest| nest.kind.name()).collect::<Vec<_>>().join(", "), buffers)
    };
    for name in ["the last two dims behind", "heads side by side", "a mask, a reshape and a reorder behind"] {
        assert_eq!(phases(name), ("pack, gemm".to_owned(), 1), "{name}");
    }
    // The reshape splits the axis of rows, so the transpose alone is strides.
    assert_eq!(phases("rows that no one stride leads to").0, "pack, gemm, map");
}

#[test]
fn a_product_fused_to_what_precedes_gives_the_bits_of_the_ops_one_by_one() {
    fused_is_unfused(graphs_with_prologue);
}

/// Compares partitions of products with their ops run one by one.
fn fused_is_unfused(graphs_of: impl Fn([i64; 3], DataType, DataType) -> Vec<Fused>) {
    let (engines, mut wrong) = (engines(), Vec::new());
    for (seed, [m, n, k]) in (1..).zip([
        [7, 33, 20],
        [150, 75, 64],
        [300, 75, 64],
        [1, 600, 40],
        [20, 300, 3],
        [0, 5, 4],
        [3, 4, 0],
    ]) {
        for [t, to] in TYPES {
            for fused in graphs_of([m, n, k], t, to) {
                let faults = fused.faults(&engines, seed);
                wrong.extend(faults.into_iter().map(|why| (fused.name, [m, n, k], t, to, why)));
            }
        }
    }
    report(&wrong);
}

#[test]
fn moves_before_a_product_are_strides_and_casts_are_read_as_they_are() {
    let engine = Engine::builder().threads(1).build();
    let phases = |name: &str| {
        let fused = graphs_with_prologue([300, 75, 64], D::F32, D::F32);
        let fused = fused.into_iter().find(|fused| fused.name == name).unwrap();
        let [together, _] = graphs::both(&fused.graph);
        let compiled = together[0].compile(&engine).unwrap();
        compiled.plan().nests.iter().map(|nest| nest.kind.name()).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(phases("slices of packed tensors"), "pack, gemm");
    // The bias is written in f32 first.
    assert_eq!(phases("casts of all operands"), "map, pack, gemm");
    assert_eq!(phases("a scale and a mask on the left, a transpose on the right"), "map, pack, gemm");
}

#[test]
fn what_follows_an_op_on_rows_stays_with_it() {
    let mut ops = Ops::default();
    let (a, b) = (ops.input(D::F32, &[40, 30]), ops.input(D::Bf16, &[30, 20]));
    let x = ops.unary(OpKind::SoftMax, &a);
    let x = ops.unary(OpKind::Abs, &x);
    let x = ops.add(ops.op(OpKind::TypeCast), &[&x], D::Bf16, &[40, 30]);
    ops.matmul(&x, &b, D::Bf16, &[40, 20]);
    let fused = ops.done("SoftMax, then a product", 2);
    let [together, _] = graphs::both(&fused.graph);
    let ops: Vec<usize> = together.iter().map(|partition| partition.ops().len()).collect();
    assert_eq!(ops, [3, 1]);
}

#[test]
fn threads_do_not_change_a_bit_of_an_epilogue() {
    let mut wrong = Vec::new();
    let engines: Vec<Engine> = [1, 2, 3, 8].map(|threads| Engine::builder().threads(threads).build()).into();
    for [t, to] in TYPES {
        for fused in fused_graphs([300, 200, 100], t, to) {
            let [together, _] = graphs::both(&fused.graph);
            let run = |engine: &Engine| {
                graphs::run(&together, &fused.made, engine, &fused.tensors(engine, 9), None)
            };
            let first = run(&engines[0]).unwrap();
            for engine in &engines[1..] {
                wrong.extend(
                    graphs::differs(&first, &run(engine).unwrap()).map(|why| (fused.name, t, to, why)),
                );
            }
        }
    }
    report(&wrong);
}

/// The product itself has no pair. The full-shape operand of an epilogue has one if type and strides are
/// those of the result, because each of its elements is read right before the result is written.
#[test]
fn the_residual_of_a_product_may_be_replaced() {
    let (m, k, n) = (130i64, 40i64, 70i64);
    let dense = |id, t, dims: &[i64]| LogicalTensor::strided(id, t, dims).unwrap();
    let with = |id, strides: [i64; 2]| LogicalTensor::with_strides(id, D::F32, &[m, n], &strides).unwrap();
    let rows = [
        ("dense", dense(2, D::F32, &[m, n]), dense(9, D::F32, &[m, n]), true),
        ("with gaps", with(2, [n + 3, 1]), with(9, [n + 3, 1]), true),
        ("transposed", with(2, [1, m]), with(9, [1, m]), true),
        ("gaps in the residual alone", with(2, [n + 3, 1]), dense(9, D::F32, &[m, n]), false),
        ("gaps in the result alone", dense(2, D::F32, &[m, n]), with(9, [n + 3, 1]), false),
        ("one row of numbers for all", with(2, [0, 1]), dense(9, D::F32, &[m, n]), false),
        ("a row that broadcasts", dense(2, D::F32, &[n]), dense(9, D::F32, &[m, n]), false),
        ("another type", dense(2, D::Bf16, &[m, n]), dense(9, D::F32, &[m, n]), false),
        // The product still reads the operand when the first tile is written.
        ("an operand of the product", dense(0, D::F32, &[n, n]), dense(9, D::F32, &[n, n]), false),
    ];
    let mut wrong = Vec::new();
    for (engine, (name, residual, result, is_pair)) in
        engines().into_iter().flat_map(|engine| rows.clone().map(|row| (engine.clone(), row)))
    {
        let (src, weights) = match residual.id().get() {
            0 => (residual.clone(), dense(1, D::F32, &[n, n])),
            _ => (dense(0, D::F32, &[m, k]), dense(1, D::F32, &[k, n])),
        };
        let product = LogicalTensor::unknown(8, D::F32);
        let mut graph = Graph::new();
        graph.add_op(Op::new(0, OpKind::MatMul).input(src).input(weights).output(product.clone())).unwrap();
        graph.add_op(Op::new(1, OpKind::Add).input(product).input(residual.clone()).output(result)).unwrap();
        graph.finalize().unwrap();
        let [together, _] = graphs::both(&graph);
        let compiled = together[0].compile(&engine).unwrap();
        let expected = [InPlacePair::new(residual.id(), 9)];
        if compiled.in_place_pairs() != if is_pair { &expected[..] } else { &[] } {
            wrong.push(format!("{name} at {:?}: pairs {:?}", engine.level(), compiled.in_place_pairs()));
            continue;
        }
        if !is_pair {
            continue;
        }
        let mut random = Random::new(11);
        let mut filled = |desc: &LogicalTensor| {
            let mut tensor = TensorBuf::zeroed(desc.clone(), &engine).unwrap();
            let dims = desc.dims().unwrap();
            let numbers = (0..dims.iter().product()).map(|_| random.below(2000) as f32 / 1000.0 - 1.0);
            value_of(D::F32, dims, &numbers.collect::<Vec<_>>()).write(&mut tensor).unwrap();
            tensor
        };
        let inputs: Vec<TensorBuf> = compiled.inputs().iter().map(&mut filled).collect();
        let mut beside = TensorBuf::zeroed(compiled.outputs()[0].clone(), &engine).unwrap();
        let mut replaced = TensorBuf::zeroed(compiled.outputs()[0].clone(), &engine).unwrap();
        replaced.as_mut_bytes().copy_from_slice(inputs[2].as_bytes());
        let stream = Stream::new(&engine);
        let all: Vec<_> = inputs.iter().map(TensorBuf::as_tensor).collect();
        compiled.execute(&stream, &all, &mut [beside.as_tensor_mut()]).unwrap();
        compiled.execute(&stream, &all[..2], &mut [replaced.as_tensor_mut().in_place_of(2)]).unwrap();
        if Value::read(&beside.as_tensor()) != Value::read(&replaced.as_tensor()) {
            wrong.push(format!("{name} at {:?}: other results in place", engine.level()));
        }
    }
    report(&wrong);
}

#[test]
fn a_tile_whose_select_needs_no_product_computes_none() {
    // The product of NaN would be NaN; where it is not selected, nothing of it is seen, and the plan says
    // that the branch is skipped.
    let fused = fused_graphs([130, 70, 30], D::F32, D::F32).remove(0);
    let [together, _] = graphs::both(&fused.graph);
    let engine = Engine::builder().threads(1).build();
    let compiled = together[0].compile(&engine).unwrap();
    let plan = compiled.plan().to_string();
    assert!(plan.contains("product of depth 30"), "{plan}");
    assert!(plan.contains("skips a branch that no element of a tile chooses"), "{plan}");
    assert_eq!(together[0].accuracy(), Some(Accuracy::Ordered));
}
