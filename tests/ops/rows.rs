//! Ops on rows against the reference: reductions, SoftMax, norms and their gradients, at every level, for all
//! types, axes, strides and lengths of rows, at any number of threads, alone and with pointwise ops around
//! them.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use crate::common::{self, Random, engines, report};
use half::{bf16, f16};
use sterna::reference::{self, Value};
use sterna::{
    Accuracy, Attr, AttrValue, DataType, Engine, Graph, InPlacePair, LogicalTensor, Op, OpKind, Partition,
    Policy, Stream, TensorBuf, TensorMut,
};

use DataType as D;
use OpKind as K;

/// Numbers of a value of a float type.
pub(crate) fn numbers(value: &Value) -> Vec<f64> {
    match value.data_type() {
        D::F32 => value.elements::<f32>().unwrap().into_iter().map(f64::from).collect(),
        D::Bf16 => value.elements::<bf16>().unwrap().into_iter().map(f64::from).collect(),
        D::F16 => value.elements::<f16>().unwrap().into_iter().map(f64::from).collect(),
        other => panic!("{other} is no float type of the tests"),
    }
}

pub(crate) fn value(data_type: DataType, dims: &[i64], numbers: &[f32]) -> Value {
    match data_type {
        D::F32 => Value::from_slice(dims, numbers),
        D::Bf16 => Value::from_slice(dims, &numbers.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>()),
        D::F16 => Value::from_slice(dims, &numbers.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>()),
        other => panic!("{other} is no float type of the tests"),
    }
    .unwrap()
}

/// Random numbers from −4 to 4.
pub(crate) fn filled(data_type: DataType, dims: &[i64], random: &mut Random) -> Value {
    let count: i64 = dims.iter().product();
    let number = |_| (random.next() >> 24) as f32 / (1 << 21) as f32 - 4.0;
    value(data_type, dims, &(0..count).map(number).collect::<Vec<_>>())
}

/// Half a unit in the last place, as a share of a number.
pub(crate) fn half_a_unit(data_type: DataType) -> f64 {
    match data_type {
        D::Bf16 => 1.0 / 256.0,
        D::F16 => 1.0 / 2048.0,
        _ => 1.0 / (1 << 24) as f64,
    }
}

/// The least number.
fn tiny(data_type: DataType) -> f64 {
    match data_type {
        D::F16 => 6e-8,
        _ => 1e-40,
    }
}

/// Strides of dims in another order, with gaps.
pub(crate) fn turned(dims: &[i64]) -> Vec<i64> {
    let mut stride = 2;
    dims.iter().map(|&dim| (stride, stride *= dim.max(1) + 1).0).collect()
}

/// An op with its attributes, and the values and strides of its inputs.
pub(crate) struct Case {
    pub(crate) op: Op,
    pub(crate) inputs: Vec<Value>,
    /// Row-major where there are none.
    strides: Vec<Option<Vec<i64>>>,
    /// Strides of the outputs.
    out_strides: Vec<Option<Vec<i64>>>,
    /// Interpreted once for all engines, when the attributes are set.
    expected: OnceCell<Result<Vec<Value>, String>>,
    bounds: OnceCell<Result<Option<Vec<f64>>, String>>,
}

impl Case {
    pub(crate) fn new(kind: OpKind, inputs: Vec<Value>, outputs: &[DataType]) -> Self {
        let mut op = Op::new(0, kind);
        for (id, input) in inputs.iter().enumerate() {
            op = op.input(LogicalTensor::unknown(id, input.data_type()));
        }
        for (index, &output) in outputs.iter().enumerate() {
            op = op.output(LogicalTensor::unknown(100 + index, output));
        }
        Self::of(op, inputs)
    }

    /// An op on values whose attributes are set.
    pub(crate) fn of(op: Op, inputs: Vec<Value>) -> Self {
        let (strides, out_strides) = (vec![None; inputs.len()], vec![None; op.outputs().len()]);
        Self { op, inputs, strides, out_strides, expected: OnceCell::new(), bounds: OnceCell::new() }
    }

    fn expected(&self) -> Result<&[Value], String> {
        let interpret = || reference::run(&self.op, &self.inputs).map_err(|error| error.to_string());
        self.expected.get_or_init(interpret).as_deref().map_err(String::clone)
    }

    /// How far each element of the first result may be off.
    fn bounds(&self) -> Result<Option<&[f64]>, String> {
        let interpret = || reference::bounds(&self.op, &self.inputs).map_err(|error| error.to_string());
        self.bounds.get_or_init(interpret).as_ref().map(Option::as_deref).map_err(String::clone)
    }

    pub(crate) fn attr(mut self, attr: Attr, value: impl Into<AttrValue>) -> Self {
        self.op = self.op.attr(attr, value);
        self
    }

    pub(crate) fn strides(mut self, input: usize, strides: &[i64]) -> Self {
        self.strides[input] = Some(strides.to_vec());
        self
    }

    pub(crate) fn out_strides(mut self, output: usize, strides: &[i64]) -> Self {
        self.out_strides[output] = Some(strides.to_vec());
        self
    }

    pub(crate) fn run(&self, engine: &Engine) -> Result<Vec<Value>, String> {
        let text = |error: sterna::Error| error.to_string();
        let partition = Partition::from_op(self.op.clone()).map_err(text)?;
        let mut buffers = Vec::new();
        for (id, (input, strides)) in self.inputs.iter().zip(&self.strides).enumerate() {
            let desc = match strides {
                Some(strides) => LogicalTensor::with_strides(id, input.data_type(), input.dims(), strides),
                None => LogicalTensor::strided(id, input.data_type(), input.dims()),
            };
            let mut buffer = TensorBuf::zeroed(desc.map_err(text)?, engine).map_err(text)?;
            input.write(&mut buffer).map_err(text)?;
            buffers.push(buffer);
        }
        let outputs: Vec<LogicalTensor> =
            (self.op.outputs().iter().zip(&self.out_strides).zip(self.expected()?))
                .map(|((output, strides), value)| match strides {
                    Some(strides) => {
                        LogicalTensor::with_strides(output.id(), output.data_type(), value.dims(), strides)
                            .unwrap()
                    }
                    None => LogicalTensor::unknown(output.id(), output.data_type()),
                })
                .collect();
        let descs: Vec<LogicalTensor> = buffers.iter().map(|buffer| buffer.desc().clone()).collect();
        let compiled = partition.compile_for(engine, &descs, &outputs).map_err(text)?;
        let mut results: Vec<TensorBuf> =
            compiled.outputs().iter().map(|desc| TensorBuf::zeroed(desc.clone(), engine).unwrap()).collect();
        results.iter_mut().for_each(|result| result.as_mut_bytes().fill(common::GAP));
        let tensors: Vec<_> = buffers.iter().map(TensorBuf::as_tensor).collect();
        let mut into: Vec<_> = results.iter_mut().map(TensorBuf::as_tensor_mut).collect();
        compiled.execute(&Stream::new(engine), &tensors, &mut into).map_err(text)?;
        results.iter().map(|result| Value::read(&result.as_tensor()).map_err(text)).collect()
    }

    /// The first element whose bits are not those of the reference.
    pub(crate) fn differing_bits(&self, engine: &Engine) -> Option<String> {
        let found = match self.run(engine) {
            Ok(found) => found,
            Err(error) => return Some(error),
        };
        let expected = self.expected().unwrap();
        found.iter().zip(expected).enumerate().find_map(|(result, (found, expected))| {
            if found.dims() != expected.dims() {
                let (found, expected) = (found.dims(), expected.dims());
                return Some(format!("result {result} has shape {found:?}, not {expected:?}"));
            }
            let size = found.data_type().bits().div_ceil(8);
            let mut elements = found.bytes().chunks(size).zip(expected.bytes().chunks(size));
            elements.position(|(x, y)| x != y).map(|at| format!("element {at} of result {result} differs"))
        })
    }

    /// An error on the first result that is wrong.
    fn check(&self, engine: &Engine) -> Result<(), String> {
        let results = self.run(engine)?;
        let bounds = self.bounds()?;
        for (index, (result, expected)) in results.iter().zip(self.expected()?).enumerate() {
            if result.dims() != expected.dims() {
                return Err(format!(
                    "result {index} has shape {:?}, not {:?}",
                    result.dims(),
                    expected.dims()
                ));
            }
            let unit = half_a_unit(result.data_type());
            let largest = numbers(expected)
                .iter()
                .filter(|x| x.is_finite())
                .fold(1e-30, |most: f64, x| most.max(x.abs()));
            for (at, (x, y)) in numbers(result).into_iter().zip(numbers(expected)).enumerate() {
                let bound = match bounds {
                    Some(bounds) if index == 0 => bounds[at],
                    _ if index > 0 => 64.0 * half_a_unit(D::F32) * largest,
                    _ => 0.0,
                };
                let most = bound + 2.0 * unit * y.abs() * (1.0 + 1e-6) + tiny(result.data_type());
                let is_equal = x == y || (x.is_nan() && y.is_nan());
                let is_near = y.is_finite() && ((x - y).abs() <= most || bound.is_nan());
                if !is_equal && !is_near {
                    return Err(format!("result {index} at {at} is {x}, not {y}, more than {most:e} apart"));
                }
            }
        }
        Ok(())
    }
}

pub(crate) fn check(name: &str, cases: Vec<(String, Case)>) {
    let (mut wrong, engines) = (Vec::new(), engines());
    for (case, row) in cases {
        for engine in &engines {
            if let Err(fault) = row.check(engine) {
                wrong.push(format!("{name} {case} at {:?}: {fault}", engine.level()));
            }
        }
    }
    report(&wrong);
}

pub(crate) const FLOATS: [DataType; 3] = [D::F32, D::Bf16, D::F16];
const LENGTHS: [i64; 17] = [0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 129, 1000, 4097, 100_003];
const REDUCTIONS: [OpKind; 7] =
    [K::ReduceSum, K::ReduceMean, K::ReduceMax, K::ReduceMin, K::ReduceProd, K::ReduceL1, K::ReduceL2];

/// Ops along the last axis of a source of some dims.
fn along_last(kind: OpKind, data_type: DataType, dims: &[i64], random: &mut Random) -> Case {
    let (source, last) = (filled(data_type, dims, random), &dims[dims.len() - 1..]);
    let second = if data_type == D::Bf16 { D::Bf16 } else { D::F32 };
    match kind {
        K::SoftMax => Case::new(kind, vec![source], &[data_type, D::F32]).attr(Attr::Axis, -1i64),
        K::LogSoftmax => Case::new(kind, vec![source], &[data_type]).attr(Attr::Axis, -1i64),
        K::SoftMaxBackward | K::LogSoftmaxBackward => {
            let other = filled(data_type, dims, random);
            Case::new(kind, vec![source, other], &[data_type]).attr(Attr::Axis, -1i64)
        }
        K::LayerNorm => {
            let (gamma, beta) = (filled(second, last, random), filled(second, last, random));
            Case::new(kind, vec![source, gamma, beta], &[data_type, second, second])
        }
        K::RMSNorm => Case::new(kind, vec![source, filled(second, last, random)], &[data_type]),
        K::LayerNormBackward => {
            let gradient = filled(data_type, dims, random);
            let rows = &dims[..dims.len() - 1];
            let count: i64 = rows.iter().product();
            let means = filled(second, rows, random);
            let variances =
                value(second, rows, &(0..count).map(|i| 0.5 + i as f32 / 8.0).collect::<Vec<_>>());
            let gamma = filled(second, last, random);
            let beta = filled(second, last, random);
            let inputs = vec![source, gradient, means, variances, gamma, beta];
            Case::new(kind, inputs, &[data_type, second, second])
        }
        K::BiasAddBackward => Case::new(kind, vec![source], &[data_type]),
        K::PReLUBackward => {
            let (slope, gradient) = (filled(data_type, last, random), filled(data_type, dims, random));
            Case::new(kind, vec![source, slope, gradient], &[data_type, data_type])
        }
        _ => Case::new(kind, vec![source], &[data_type]).attr(Attr::Axes, vec![-1i64]),
    }
}

const OTHERS: [OpKind; 9] = [
    K::SoftMax,
    K::LogSoftmax,
    K::SoftMaxBackward,
    K::LogSoftmaxBackward,
    K::LayerNorm,
    K::RMSNorm,
    K::LayerNormBackward,
    K::BiasAddBackward,
    K::PReLUBackward,
];

#[test]
fn rows_of_every_length() {
    let mut random = Random::new(1);
    let mut cases = Vec::new();
    for kind in REDUCTIONS.into_iter().chain(OTHERS) {
        for data_type in FLOATS {
            for length in LENGTHS {
                let rows = if length > 4000 { 2 } else { 5 };
                let case = along_last(kind, data_type, &[rows, length], &mut random);
                cases.push((format!("{kind} {data_type} {length}"), case));
            }
        }
    }
    check("length", cases);
}

#[test]
fn many_short_rows_and_no_rows() {
    let mut random = Random::new(2);
    let mut cases = Vec::new();
    for kind in REDUCTIONS.into_iter().chain(OTHERS) {
        for dims in [[0, 7], [3000, 1], [1000, 3], [500, 8], [301, 16], [1, 1], [777, 64]] {
            cases.push((format!("{kind} {dims:?}"), along_last(kind, D::F32, &dims, &mut random)));
        }
    }
    check("short", cases);
}

#[test]
fn rows_of_one_element_are_combined_by_columns() {
    let mut random = Random::new(23);
    let mut wrong = Vec::new();
    let (source, slope) = (filled(D::F32, &[1, 1000], &mut random), filled(D::F32, &[1000], &mut random));
    let reduced = |dims: &[i64], axis: i64| {
        Case::new(K::ReduceSum, vec![filled(D::Bf16, dims, &mut Random::new(24))], &[D::Bf16])
            .attr(Attr::Axes, vec![axis])
    };
    let cases = [
        ("the last axis", reduced(&[1000, 1], 1)),
        ("the first axis", reduced(&[1, 1000], 0)),
        ("a slope", Case::new(K::PReLUBackward, vec![source.clone(), slope, source], &[D::F32, D::F32])),
    ];
    for engine in engines() {
        for (name, case) in &cases {
            let partition = Partition::from_op(case.op.clone()).unwrap();
            let inputs: Vec<_> = (case.inputs.iter().enumerate())
                .map(|(id, input)| LogicalTensor::strided(id, input.data_type(), input.dims()).unwrap())
                .collect();
            let compiled = partition.compile_for(&engine, &inputs, case.op.outputs()).unwrap();
            let plan = compiled.plan();
            let tasks = plan.nests.iter().flat_map(|nest| &nest.steps).flat_map(|step| &step.tasks);
            if !tasks.clone().any(|task| task.ends_with(" by columns")) {
                wrong.push(format!("{name} at {:?}: {:?}", engine.level(), tasks.collect::<Vec<_>>()));
            }
            if let Err(fault) = case.check(&engine) {
                wrong.push(format!("{name} at {:?}: {fault}", engine.level()));
            }
        }
    }
    report(&wrong);
}

#[test]
fn any_axes_and_strides() {
    let mut random = Random::new(3);
    let mut cases = Vec::new();
    let dims = [3, 20, 5, 33];
    // Row-major, transposed, with gaps, the last dim outermost.
    let strides: [&[i64]; 4] = [&[3300, 165, 33, 1], &[5, 15, 1, 300], &[8000, 200, 40, 1], &[1, 3, 60, 300]];
    let axes: [&[i64]; 8] = [&[0], &[1], &[2], &[3], &[0, 2], &[1, 3], &[0, 1, 3], &[0, 1, 2, 3]];
    for (data_type, strides) in FLOATS.into_iter().flat_map(|t| strides.map(|s| (t, s))) {
        for kind in REDUCTIONS {
            for (axes, keeps) in axes.into_iter().zip([false, true].into_iter().cycle()) {
                let case = Case::new(kind, vec![filled(data_type, &dims, &mut random)], &[data_type])
                    .attr(Attr::Axes, axes.to_vec())
                    .attr(Attr::KeepDims, keeps)
                    .strides(0, strides);
                cases.push((format!("{kind} {data_type} {axes:?} {strides:?}"), case));
            }
        }
        for axis in 0..4i64 {
            for kind in [K::SoftMax, K::LogSoftmax] {
                let case = Case::new(kind, vec![filled(data_type, &dims, &mut random)], &[data_type])
                    .attr(Attr::Axis, axis)
                    .strides(0, strides)
                    .out_strides(0, &[5, 15, 1, 300]);
                cases.push((format!("{kind} {data_type} {axis} {strides:?}"), case));
            }
            let inputs = vec![filled(data_type, &dims, &mut random), filled(data_type, &dims, &mut random)];
            let case = Case::new(K::SoftMaxBackward, inputs, &[data_type])
                .attr(Attr::Axis, axis)
                .strides(1, strides);
            cases.push((format!("SoftMaxBackward {data_type} {axis} {strides:?}"), case));
        }
        for begin in 0..4 {
            let second = if data_type == D::Bf16 { D::Bf16 } else { D::F32 };
            let (source, onto) = (filled(data_type, &dims, &mut random), &dims[begin..]);
            let mut some = onto.to_vec();
            some[0] = 1;
            let inputs =
                vec![source.clone(), filled(second, onto, &mut random), filled(second, &some, &mut random)];
            let case = Case::new(K::LayerNorm, inputs, &[data_type, second, second])
                .attr(Attr::BeginNormAxis, begin as i64)
                .strides(0, strides)
                .out_strides(0, &[8000, 200, 40, 1]);
            cases.push((format!("LayerNorm {data_type} {begin} {strides:?}"), case));
            let case =
                Case::new(K::RMSNorm, vec![source.clone(), filled(second, &dims, &mut random)], &[data_type])
                    .attr(Attr::BeginNormAxis, begin as i64)
                    .strides(0, strides);
            cases.push((format!("RMSNorm {data_type} {begin} {strides:?}"), case));
            let rows = &dims[..begin];
            let count: i64 = rows.iter().product();
            let variances =
                value(second, rows, &(0..count).map(|i| 0.5 + i as f32 / 8.0).collect::<Vec<_>>());
            let gamma = filled(second, &some, &mut random);
            let gradient = filled(data_type, &dims, &mut random);
            let inputs =
                vec![source, gradient, filled(second, rows, &mut random), variances, gamma.clone(), gamma];
            let case = Case::new(K::LayerNormBackward, inputs, &[data_type, second, second])
                .attr(Attr::BeginNormAxis, begin as i64)
                .strides(0, strides);
            cases.push((format!("LayerNormBackward {data_type} {begin} {strides:?}"), case));
        }
        for format in ["NCX", "NXC"] {
            let channels = if format == "NCX" { 20 } else { 33 };
            let source = || filled(data_type, &dims, &mut Random::new(4));
            let case = Case::new(K::BiasAddBackward, vec![source()], &[data_type])
                .attr(Attr::DataFormat, format)
                .strides(0, strides);
            cases.push((format!("BiasAddBackward {data_type} {format} {strides:?}"), case));
            let second = if data_type == D::Bf16 { D::Bf16 } else { D::F32 };
            let of_channels = filled(second, &[channels], &mut random);
            let case = Case::new(
                K::GroupNorm,
                vec![source(), of_channels.clone(), of_channels],
                &[data_type, second, second],
            )
            .attr(Attr::Groups, if format == "NCX" { 4i64 } else { 3 })
            .attr(Attr::DataFormat, format)
            .strides(0, strides);
            cases.push((format!("GroupNorm {data_type} {format} {strides:?}"), case));
            for slope in [vec![channels], vec![1], dims.to_vec(), vec![20, 1, 33]] {
                let slope = filled(data_type, &slope, &mut random);
                let case = Case::new(
                    K::PReLUBackward,
                    vec![source(), slope.clone(), filled(data_type, &dims, &mut random)],
                    &[data_type, data_type],
                )
                .attr(Attr::DataFormat, format)
                .strides(2, strides);
                cases.push((
                    format!("PReLUBackward {data_type} {format} {:?} {strides:?}", slope.dims()),
                    case,
                ));
            }
            // The only dim has the slopes, whatever the format.
            for slopes in [33, 1] {
                let [source, gradient] = [33; 2].map(|n| filled(data_type, &[n], &mut random));
                let inputs = vec![source, filled(data_type, &[slopes], &mut random), gradient];
                let case = Case::new(K::PReLUBackward, inputs, &[data_type, data_type])
                    .attr(Attr::DataFormat, format)
                    .strides(2, &strides[3..]);
                let name = format!("PReLUBackward {data_type} {format} [33] [{slopes}]");
                cases.push((format!("{name} {:?}", &strides[3..]), case));
            }
        }
    }
    check("axes", cases);
}

/// Channels that are neighbours in memory, with positions for several parts, far from 0, and with what is no
/// number at the position from which distances are taken, and elsewhere.
#[test]
fn groups_of_channels_beside_each_other() {
    let mut random = Random::new(5);
    let mut cases = Vec::new();
    for t in FLOATS {
        for (dims, groups) in
            [([2, 61, 33, 24], 4i64), ([3, 1, 7, 9], 9), ([1, 300, 3, 35], 5), ([2, 2, 2, 6], 3)]
        {
            let [_, high, wide, channels] = dims;
            let count = dims.iter().product::<i64>() as usize;
            let second = if t == D::Bf16 { D::Bf16 } else { D::F32 };
            for far in [None, Some(1.0), Some(100.0)] {
                let some = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
                let numbers: Vec<f32> = (0..count)
                    .map(|i| match far {
                        None if i % 997 == 0 => some[i / 997 % 3],
                        _ => far.unwrap_or(0.0) + (i * 37 % 64) as f32 / 64.0,
                    })
                    .collect();
                let moved = [0, 3, 1, 2].map(|axis| dims[axis]);
                for (format, shape) in [("NXC", dims), ("NCX", moved)] {
                    let of_channels = [(); 2].map(|()| filled(second, &[channels], &mut random));
                    let [gamma, beta] = of_channels;
                    let case = |strides: &[i64]| {
                        let inputs = vec![value(t, &shape, &numbers), gamma.clone(), beta.clone()];
                        Case::new(K::GroupNorm, inputs, &[t, second, second])
                            .attr(Attr::Groups, groups)
                            .attr(Attr::DataFormat, format)
                            .strides(0, strides)
                    };
                    let all = channels * wide * high;
                    let name = format!("{t} {format} {dims:?} {far:?}");
                    if format == "NXC" {
                        let wider = wide * (channels + 3);
                        let gaps = [wider * high + 5, wider, channels + 3, 1];
                        cases.push((name.clone(), case(&[all, wide * channels, channels, 1])));
                        cases.push((
                            format!("{name} with gaps"),
                            case(&gaps).out_strides(0, &gaps).strides(1, &[2]),
                        ));
                    } else {
                        let last = [all, 1, wide * channels, channels];
                        cases.push((name.clone(), case(&last).out_strides(0, &last)));
                        cases.push((format!("{name} to another layout"), case(&last)));
                    }
                }
            }
        }
    }
    check("channels", cases);
}

#[test]
fn special_numbers() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let rows: [&[f32]; 8] = [
        &[1.0, -inf, 2.0],
        &[-inf, -inf, -inf],
        &[inf, 1.0, 2.0],
        &[nan, 1.0, 2.0],
        &[nan, -inf, inf],
        &[-0.0, 0.0, -0.0],
        &[1e38, 1e38, -1e38],
        &[1e-30, -1e-30, 3e-30],
    ];
    let mut cases = Vec::new();
    for row in rows {
        for length in [3, 40, 3000] {
            let row: Vec<f32> = row.iter().copied().cycle().take(length).collect();
            let dims = [1, length as i64];
            let source = || value(D::F32, &dims, &row);
            for kind in REDUCTIONS {
                let case = Case::new(kind, vec![source()], &[D::F32]).attr(Attr::Axes, vec![1i64]);
                cases.push((format!("{kind} {:?} {length}", &row[..3]), case));
            }
            for mode in ["none", "inf_as_zero"] {
                let case = Case::new(K::SoftMax, vec![source()], &[D::F32, D::F32]).attr(Attr::Mode, mode);
                cases.push((format!("SoftMax {mode} {:?} {length}", &row[..3]), case));
            }
            let case = Case::new(K::LogSoftmax, vec![source()], &[D::F32]);
            cases.push((format!("LogSoftmax {:?} {length}", &row[..3]), case));
            for kind in [K::RMSNorm, K::LayerNorm] {
                let case = Case::new(kind, vec![source()], &[D::F32]).attr(Attr::Epsilon, 0.0f32);
                let case = match kind {
                    K::LayerNorm => case.attr(Attr::UseAffine, false).attr(Attr::KeepStats, false),
                    _ => case,
                };
                cases.push((format!("{kind} {:?} {length}", &row[..3]), case));
            }
        }
    }
    check("special", cases);
}

/// Zeros keep their sign where nothing is reduced, and +0 is above −0.
#[test]
fn extrema_and_no_axes_keep_bits() {
    let rows: [(OpKind, &[i64], &[f32], u32); 4] = [
        (K::ReduceMax, &[0], &[-0.0, 0.0, -0.0], 0),
        (K::ReduceMin, &[0], &[0.0, -0.0, 0.0], 0x8000_0000),
        (K::ReduceSum, &[], &[-0.0], 0x8000_0000),
        (K::ReduceL1, &[], &[f32::from_bits(0xffc0_1234)], 0xffc0_1234),
    ];
    let mut wrong = Vec::new();
    for engine in engines() {
        for (kind, axes, row, bits) in rows {
            let source = value(D::F32, &[row.len() as i64], row);
            let case = Case::new(kind, vec![source], &[D::F32]).attr(Attr::Axes, axes.to_vec());
            match case.run(&engine).map(|results| results[0].elements::<f32>().unwrap()[0].to_bits()) {
                Ok(result) if result == bits => {}
                other => wrong.push((kind, axes, other)),
            }
        }
    }
    report(&wrong);
}

/// Sums keep their order whatever the strides and the number of threads.
#[test]
fn bits_depend_on_shapes_alone() {
    let mut random = Random::new(5);
    let mut wrong = Vec::new();
    let dims = [7, 300, 130];
    let strides: [&[i64]; 3] = [&[39000, 130, 1], &[1, 7, 2100], &[300, 1, 2100]];
    for kind in REDUCTIONS.into_iter().chain([K::SoftMax, K::LogSoftmax, K::BiasAddBackward]) {
        for axes in [&[0i64][..], &[1], &[2], &[0, 2], &[0, 1, 2]] {
            let source = filled(D::F32, &dims, &mut random);
            let mut all = Vec::new();
            for (strides, threads) in strides.into_iter().flat_map(|s| [1, 2, 3, 8].map(|t| (s, t))) {
                let engine = Engine::builder().threads(threads).build();
                let case = Case::new(kind, vec![source.clone()], &[D::F32]).strides(0, strides);
                let case = match kind {
                    K::BiasAddBackward => case,
                    K::SoftMax | K::LogSoftmax => case.attr(Attr::Axis, axes[0]),
                    _ => case.attr(Attr::Axes, axes.to_vec()),
                };
                all.push(case.run(&engine).map(|results| results[0].bytes().to_vec()));
            }
            if all.iter().any(|bits| bits.is_err() || *bits != all[0]) {
                wrong.push((kind, axes));
            }
        }
    }
    report(&wrong);
}

/// Positions of channels that lie beside each other are shared out in parts: each level gives the bits of one
/// thread at any number of them.
#[test]
fn channels_give_the_same_bits_at_any_number_of_threads() {
    let mut wrong = Vec::new();
    for t in FLOATS {
        // The last has a group for each channel, in less than a vector of them.
        for (dims, groups) in [([2, 61, 33, 24], 4i64), ([1, 128, 96, 40], 5), ([3, 70, 90, 7], 7)] {
            let mut random = Random::new(12);
            let second = if t == D::Bf16 { D::Bf16 } else { D::F32 };
            let of_channels = [(); 2].map(|()| filled(second, &[dims[3]], &mut random));
            let [gamma, beta] = of_channels;
            let inputs = vec![filled(t, &dims, &mut random), gamma, beta];
            let case = Case::new(K::GroupNorm, inputs, &[t, second, second])
                .attr(Attr::Groups, groups)
                .attr(Attr::DataFormat, "NXC");
            for level in sterna::Level::all_available() {
                let bits = |threads: usize| {
                    let engine = Engine::builder().threads(threads).max_level(level).build();
                    let results = case.run(&engine)?;
                    Ok(results.iter().map(|result| result.bytes().to_vec()).collect::<Vec<_>>())
                };
                let alone: Result<_, String> = bits(1);
                for threads in [2, 3, 7] {
                    if alone.is_err() || bits(threads) != alone {
                        wrong.push((t, dims, level, threads));
                    }
                }
            }
        }
    }
    report(&wrong);
}

/// A few long rows are worked out in parts on all threads: two nests of the same tasks, and the bits of one
/// thread, whatever the strides.
#[test]
fn few_long_rows_are_worked_out_in_parts() {
    let mut random = Random::new(9);
    let mut wrong = Vec::new();
    for t in FLOATS {
        for kind in [
            K::SoftMax,
            K::LogSoftmax,
            K::LayerNorm,
            K::RMSNorm,
            K::GroupNorm,
            K::SoftMaxBackward,
            K::LogSoftmaxBackward,
            K::LayerNormBackward,
            K::PReLUBackward,
            // Without axes, a copy.
            K::ReduceSum,
        ] {
            let length = 70_001;
            let dims: &[i64] = if kind == K::GroupNorm { &[2, 4, 35_000] } else { &[3, length] };
            let case = || match kind {
                K::GroupNorm => {
                    let second = if t == D::Bf16 { D::Bf16 } else { D::F32 };
                    let mut random = Random::new(10);
                    let source = filled(t, dims, &mut random);
                    let of_channels = [4; 2].map(|channels| filled(second, &[channels], &mut random));
                    let [gamma, beta] = of_channels;
                    Case::new(kind, vec![source, gamma, beta], &[t, second, second])
                        .attr(Attr::Groups, 2i64)
                        .attr(Attr::DataFormat, "NCX")
                }
                K::ReduceSum => Case::new(kind, vec![filled(t, dims, &mut Random::new(10))], &[t])
                    .attr(Attr::Axes, Vec::<i64>::new()),
                _ => along_last(kind, t, dims, &mut Random::new(10)),
            };
            let strides: [&[i64]; 3] = match kind {
                K::GroupNorm => [&[140_000, 35_000, 1], &[1, 2, 8], &[150_000, 35_010, 1]],
                _ => [&[length, 1], &[1, 3], &[length + 9, 1]],
            };
            let mut all = Vec::new();
            for (strides, threads) in strides.into_iter().flat_map(|s| [1, 2, 3, 8].map(|t| (s, t))) {
                let engine = Engine::builder().threads(threads).build();
                let row = case().strides(0, strides).out_strides(0, strides);
                let bits = row
                    .run(&engine)
                    .map(|results| results.iter().map(|r| r.bytes().to_vec()).collect::<Vec<_>>());
                all.push(bits);
            }
            if all.iter().any(|bits| bits.is_err() || *bits != all[0]) {
                wrong.push(format!("{kind} {t}: the bits depend on threads or strides"));
            }
            let row = case().strides(0, strides[1]).out_strides(0, strides[2]);
            for engine in engines() {
                if let Err(fault) = row.check(&engine) {
                    wrong.push(format!("{kind} {t} at {:?}: {fault}", engine.level()));
                }
            }
        }
    }
    // As many tasks as parts, and two numbers of each part between the nests.
    let mut tasks_of = |kind: OpKind, dims: &[i64]| {
        let case = match kind {
            K::ReduceSum => Case::new(kind, vec![filled(D::F32, dims, &mut random)], &[D::F32])
                .attr(Attr::Axes, Vec::<i64>::new()),
            _ => along_last(kind, D::F32, dims, &mut random),
        };
        let partition = Partition::from_op(case.op).unwrap();
        let inputs: Vec<LogicalTensor> = (0..)
            .zip(&case.inputs)
            .map(|(id, input)| LogicalTensor::strided(id, D::F32, input.dims()).unwrap())
            .collect();
        let plan = partition.compile_for(&Engine::new(), &inputs, partition.outputs()).unwrap().plan();
        (plan.nests.iter().map(|nest| nest.tasks).collect::<Vec<_>>(), plan.buffer_bytes)
    };
    type Row = (&'static [OpKind], &'static [i64], &'static [usize], usize);
    let rows: [Row; 11] = [
        (&[K::SoftMax, K::SoftMaxBackward, K::LogSoftmaxBackward], &[1, 131_072], &[32, 32], 32 * 16),
        (&[K::SoftMax, K::SoftMaxBackward, K::LogSoftmaxBackward], &[4, 131_072], &[32, 32], 32 * 16),
        (&[K::SoftMax, K::SoftMaxBackward], &[2, 40_000], &[10, 10], 20 * 16),
        (&[K::SoftMax, K::SoftMaxBackward], &[9, 40_000], &[9], 0),
        (&[K::SoftMax, K::SoftMaxBackward], &[1, 32_000], &[1], 0),
        // Behind the gradient of the source stand those of the parameters.
        (&[K::LayerNormBackward], &[1, 131_072], &[32, 32], 32 * 16),
        (&[K::LayerNormBackward], &[9, 40_000], &[9], 0),
        (&[K::PReLUBackward], &[1, 131_073], &[3], 0),
        (&[K::PReLUBackward], &[2, 65_536], &[2], 0),
        (&[K::ReduceSum], &[1, 131_073], &[3], 0),
        (&[K::ReduceSum], &[1, 100], &[1], 0),
    ];
    for (kinds, dims, tasks, bytes) in rows {
        for &kind in kinds {
            let found = tasks_of(kind, dims);
            if !found.0.starts_with(tasks) || found.1 != bytes {
                wrong.push(format!("{kind} {dims:?}: tasks and bytes of buffers are {found:?}"));
            }
        }
    }
    report(&wrong);
}

/// Numbers that stand in one part of a row alone.
#[test]
fn special_numbers_in_a_part_of_a_row() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let length = 40_000;
    type Fill = fn(usize) -> f32;
    let plain: Fill = |i| (i % 97) as f32 / 16.0 - 3.0;
    let fills: [(&str, Fill); 6] = [
        ("plain", plain),
        ("far below in the first half", |i| if i < 20_000 { -1e4 } else { (i % 7) as f32 }),
        ("none but in the last part", |i| if i < 39_000 { f32::NEG_INFINITY } else { (i % 5) as f32 }),
        ("none at all", |_| f32::NEG_INFINITY),
        ("large", |i| if i < 5000 { 1e38 } else { -1e38 }),
        ("small", |i| 1e-30 * (i % 3) as f32),
    ];
    let mut cases = Vec::new();
    for (name, fill) in fills {
        for (what, at, number) in
            [("", 0, fill(0)), ("nan", 17_000, nan), ("inf", 39_999, inf), ("-inf", 0, -inf)]
        {
            let mut row: Vec<f32> = (0..length).map(fill).collect();
            row[at] = number;
            let source = || value(D::F32, &[1, length as i64], &row);
            for mode in ["none", "inf_as_zero"] {
                let case = Case::new(K::SoftMax, vec![source()], &[D::F32, D::F32]).attr(Attr::Mode, mode);
                cases.push((format!("SoftMax {mode} {name} {what}"), case.attr(Attr::Axis, 1i64)));
            }
            let case = Case::new(K::LogSoftmax, vec![source()], &[D::F32]).attr(Attr::Axis, 1i64);
            cases.push((format!("LogSoftmax {name} {what}"), case));
            for (kind, epsilon) in [(K::RMSNorm, 1e-5f32), (K::LayerNorm, 1e-5), (K::LayerNorm, 0.0)] {
                let case = Case::new(kind, vec![source()], &[D::F32]).attr(Attr::Epsilon, epsilon);
                let case = match kind {
                    K::LayerNorm => case.attr(Attr::UseAffine, false).attr(Attr::KeepStats, false),
                    _ => case,
                };
                cases.push((format!("{kind} {epsilon} {name} {what}"), case));
            }
        }
    }
    check("special parts", cases);
}

/// Few results of many numbers, some of which broadcast.
#[test]
fn huge_rows_and_broadcast_sources() {
    let mut random = Random::new(6);
    let mut cases = Vec::new();
    for kind in [K::ReduceSum, K::ReduceMax, K::ReduceL2] {
        for (dims, axes) in [([1, 1_000_003], 1i64), ([70_001, 9], 0), ([9, 70_001], 1), ([70_001, 3], 0)] {
            let case = Case::new(kind, vec![filled(D::F32, &dims, &mut random)], &[D::F32]);
            cases.push((format!("{kind} {dims:?}"), case.attr(Attr::Axes, vec![axes])));
        }
    }
    for kind in [K::SoftMax, K::LogSoftmax, K::LayerNorm, K::RMSNorm] {
        cases.push((format!("{kind}"), along_last(kind, D::F32, &[1, 1_000_003], &mut random)));
        cases.push((format!("{kind}"), along_last(kind, D::Bf16, &[1, 300_000], &mut random)));
    }
    check("huge", cases);
}

/// A graph of ops, and values for the tensors that nobody computes.
#[derive(Clone)]
pub(crate) struct Net {
    pub(crate) ops: Vec<Op>,
    pub(crate) given: Vec<(usize, Value)>,
}

impl Net {
    /// The values of all tensors that leave a partition, and the nests of each partition.
    pub(crate) fn run(&self, policy: Policy, engine: &Engine) -> (BTreeMap<usize, Value>, Vec<usize>) {
        self.run_into(policy, engine, &[])
    }

    /// As [`run`](Self::run), with the layouts of some tensors that leave a partition.
    fn run_into(
        &self,
        policy: Policy,
        engine: &Engine,
        layouts: &[LogicalTensor],
    ) -> (BTreeMap<usize, Value>, Vec<usize>) {
        let mut graph = Graph::new();
        for op in &self.ops {
            graph.add_op(op.clone()).unwrap();
        }
        graph.finalize().unwrap();
        let mut values: BTreeMap<usize, Value> = self.given.iter().cloned().collect();
        let mut nests = Vec::new();
        for partition in graph.partitions(policy).unwrap() {
            assert!(partition.is_supported(), "{:?}", partition.unsupported_reason());
            let buffer = |port: &LogicalTensor| {
                let value = &values[&port.id().get()];
                let desc = LogicalTensor::strided(port.id(), port.data_type(), value.dims()).unwrap();
                let mut buffer = TensorBuf::zeroed(desc, engine).unwrap();
                value.write(&mut buffer).unwrap();
                buffer
            };
            let inputs: Vec<TensorBuf> = partition.inputs().iter().map(buffer).collect();
            let descs: Vec<LogicalTensor> = inputs.iter().map(|buffer| buffer.desc().clone()).collect();
            let laid = |output: &LogicalTensor| {
                layouts.iter().find(|layout| layout.id() == output.id()).unwrap_or(output).clone()
            };
            let outputs: Vec<LogicalTensor> = partition.outputs().iter().map(laid).collect();
            let compiled = partition.compile_for(engine, &descs, &outputs).unwrap();
            nests.push(compiled.plan().nests.len());
            let mut results: Vec<TensorBuf> = compiled
                .outputs()
                .iter()
                .map(|desc| TensorBuf::zeroed(desc.clone(), engine).unwrap())
                .collect();
            let tensors: Vec<_> = inputs.iter().map(TensorBuf::as_tensor).collect();
            let mut into: Vec<_> = results.iter_mut().map(TensorBuf::as_tensor_mut).collect();
            compiled.execute(&Stream::new(engine), &tensors, &mut into).unwrap();
            for result in &results {
                values.insert(result.desc().id().get(), Value::read(&result.as_tensor()).unwrap());
            }
        }
        (values, nests)
    }
}

fn tensor(id: usize, data_type: DataType) -> LogicalTensor {
    LogicalTensor::unknown(id, data_type)
}

/// An op from tensors of one type to one of the same.
fn simple(id: usize, kind: OpKind, data_type: DataType, inputs: &[usize], output: usize) -> Op {
    let op = inputs.iter().fold(Op::new(id, kind), |op, &input| op.input(tensor(input, data_type)));
    op.output(tensor(output, data_type))
}

/// Scores times a factor, masked, through SoftMax, times other numbers, as another type.
fn masked_softmax(t: DataType, dims: &[i64], axis: i64, random: &mut Random) -> Net {
    let count: i64 = dims.iter().product();
    let mut mask_dims = dims.to_vec();
    mask_dims[0] = 1;
    let mask_count: i64 = mask_dims.iter().product();
    let mask: Vec<bool> = (0..mask_count).map(|_| random.below(3) > 0).collect();
    let select = Op::new(2, K::Select)
        .input(tensor(3, D::Boolean))
        .input(tensor(2, t))
        .input(tensor(4, t))
        .output(tensor(5, t));
    let to = if t == D::F32 { D::Bf16 } else { D::F32 };
    let cast = Op::new(5, K::TypeCast).input(tensor(8, t)).output(tensor(9, to));
    let _ = count;
    Net {
        ops: vec![
            simple(1, K::Multiply, t, &[0, 1], 2),
            select,
            simple(3, K::SoftMax, t, &[5], 6).attr(Attr::Axis, axis).attr(Attr::Mode, "inf_as_zero"),
            simple(4, K::Multiply, t, &[6, 7], 8),
            cast,
        ],
        given: vec![
            (0, filled(t, dims, random)),
            (1, value(t, &[1], &[0.125])),
            (3, Value::from_slice(&mask_dims, &mask).unwrap()),
            (4, value(t, &[1], &[f32::NEG_INFINITY])),
            (7, filled(t, &dims[dims.len() - 1..], random)),
        ],
    }
}

/// A sum whose norm over some last dims goes through a function; the sum is a result as well.
fn residual_norm(
    t: DataType,
    kind: OpKind,
    dims: &[i64],
    count: usize,
    keeps_sum: bool,
    random: &mut Random,
) -> Net {
    let second = if t == D::Bf16 { D::Bf16 } else { D::F32 };
    let last = &dims[dims.len() - count..];
    let mut norm = Op::new(2, kind)
        .input(tensor(2, t))
        .input(tensor(3, second))
        .attr(Attr::BeginNormAxis, -(count as i64));
    let mut given = vec![
        (0, filled(t, dims, random)),
        (1, filled(t, dims, random)),
        (3, filled(second, last, random)),
        (7, filled(t, dims, random)),
    ];
    if kind == K::LayerNorm {
        norm = norm.input(tensor(4, second)).attr(Attr::KeepStats, false);
        given.push((4, filled(second, last, random)));
    }
    let mut ops = vec![
        simple(1, K::Add, t, &[0, 1], 2),
        norm.output(tensor(5, t)),
        simple(3, K::GELU, t, &[5], 6),
        simple(4, K::Add, t, &[6, 7], 8),
    ];
    if keeps_sum {
        ops.push(simple(5, K::Multiply, t, &[2, 8], 10));
    }
    Net { ops, given }
}

/// GroupNorm of a sum, times the sigmoid of itself; a factor for each channel as well if it is wanted.
fn group_norm(t: DataType, dims: &[i64], format: &str, scaled: bool, random: &mut Random) -> Net {
    let second = if t == D::Bf16 { D::Bf16 } else { D::F32 };
    let channels = if format == "NCX" { dims[1] } else { dims[dims.len() - 1] };
    let norm = Op::new(2, K::GroupNorm)
        .input(tensor(2, t))
        .input(tensor(3, second))
        .input(tensor(4, second))
        .output(tensor(5, t))
        .attr(Attr::KeepStats, false)
        .attr(Attr::Groups, 2i64)
        .attr(Attr::DataFormat, format);
    let mut ops = vec![
        simple(1, K::Add, t, &[0, 1], 2),
        norm,
        simple(3, K::Sigmoid, t, &[5], 6),
        simple(4, K::Multiply, t, &[5, 6], 7),
    ];
    let of_channels = filled(second, &[channels], random);
    let mut given = vec![
        (0, filled(t, dims, random)),
        (1, filled(t, dims, random)),
        (3, of_channels.clone()),
        (4, of_channels),
    ];
    if scaled {
        let mut along = vec![1; dims.len() - 1];
        along[0] = channels;
        ops.push(simple(5, K::Multiply, t, &[7, 8], 9));
        given.push((8, filled(t, &along, random)));
    }
    Net { ops, given }
}

/// The gradient of an op on the last dim: its first input is scaled before, its first result behind.
fn gradient(t: DataType, kind: OpKind, dims: &[i64], of_parameters: bool, random: &mut Random) -> Net {
    let second = if t == D::Bf16 { D::Bf16 } else { D::F32 };
    let (places, last) = dims.split_at(dims.len() - 1);
    let mut given = vec![(0, filled(t, dims, random)), (1, value(t, &[1], &[0.125]))];
    let mut op = Op::new(2, kind).input(tensor(2, t));
    let mut add = |mut op: Op, id: usize, value: Value| {
        op = op.input(tensor(id, value.data_type()));
        given.push((id, value));
        op
    };
    match kind {
        K::LayerNormBackward => {
            let count: i64 = places.iter().product();
            let variances: Vec<f32> = (0..count).map(|i| 0.5 + i as f32 / 8.0).collect();
            op = add(op, 3, filled(t, dims, random));
            op = add(op, 4, filled(second, places, random));
            op = add(op, 5, value(second, places, &variances));
            if of_parameters {
                op = add(op, 6, filled(second, last, random));
                op = add(op, 7, filled(second, last, random));
            }
            op = op.attr(Attr::UseAffine, of_parameters);
        }
        K::PReLUBackward => {
            op = add(op, 3, filled(t, last, random));
            op = add(op, 4, filled(t, dims, random));
        }
        _ => {
            op = add(op, 3, filled(t, dims, random)).attr(Attr::Axis, -1i64);
        }
    }
    op = op.output(tensor(10, t));
    match kind {
        K::LayerNormBackward if of_parameters => {
            op = op.output(tensor(11, second)).output(tensor(12, second));
        }
        K::PReLUBackward => op = op.output(tensor(11, t)),
        _ => {}
    }
    given.push((13, filled(t, last, random)));
    Net {
        ops: vec![
            simple(1, K::Multiply, t, &[0, 1], 2),
            op,
            simple(3, K::Abs, t, &[10], 20),
            simple(4, K::Multiply, t, &[20, 13], 21),
        ],
        given,
    }
}

/// The mean of squares along an axis, its root, and what is divided by that.
fn root_mean_square(t: DataType, dims: &[i64], axis: i64, random: &mut Random) -> Net {
    Net {
        ops: vec![
            simple(1, K::Square, t, &[0], 1),
            simple(2, K::ReduceMean, t, &[1], 2).attr(Attr::Axes, vec![axis]).attr(Attr::KeepDims, true),
            simple(3, K::Add, t, &[2, 3], 4),
            simple(4, K::Sqrt, t, &[4], 5),
            simple(5, K::Divide, t, &[0, 5], 6),
        ],
        given: vec![(0, filled(t, dims, random)), (3, value(t, &[1], &[0.001]))],
    }
}

/// Sums of a product, then a function of each.
fn dot(t: DataType, dims: &[i64], axes: &[i64], keeps: bool, random: &mut Random) -> Net {
    Net {
        ops: vec![
            simple(1, K::Multiply, t, &[0, 1], 2),
            simple(2, K::ReduceSum, t, &[2], 3).attr(Attr::Axes, axes.to_vec()).attr(Attr::KeepDims, keeps),
            simple(3, K::Tanh, t, &[3], 4),
            simple(4, K::Multiply, t, &[4, 5], 6),
        ],
        given: vec![(0, filled(t, dims, random)), (1, filled(t, dims, random)), (5, value(t, &[1], &[3.0]))],
    }
}

/// An op on rows between ops that move its source and its result; a scale as well if it is wanted.
fn moved_rows(
    t: DataType,
    op: OpKind,
    scaled: bool,
    before: Vec<Op>,
    behind: Vec<Op>,
    dims: &[i64],
    random: &mut Random,
) -> Net {
    let (mut ops, mut last) = (Vec::new(), 0);
    let mut add = |op: Op, last: &mut usize| {
        let to = ops.len() + 10;
        ops.push(op.input(tensor(*last, t)).output(tensor(to, t)));
        *last = to;
    };
    before.into_iter().for_each(|op| add(op, &mut last));
    if scaled {
        add(Op::new(50, K::Multiply).input(tensor(1, t)), &mut last);
    }
    let on_rows = match op {
        K::LayerNorm => Op::new(51, op).attr(Attr::UseAffine, false).attr(Attr::KeepStats, false),
        K::ReduceSum => Op::new(51, op).attr(Attr::Axes, vec![-1i64]).attr(Attr::KeepDims, true),
        _ => Op::new(51, op).attr(Attr::Axis, -1i64),
    };
    add(on_rows, &mut last);
    behind.into_iter().for_each(|op| add(op, &mut last));
    let mut given = vec![(0, filled(t, dims, random))];
    if scaled {
        given.push((1, value(t, &[1], &[0.125])));
    }
    Net { ops, given }
}

/// Moves before and behind rows are strides: one nest and no buffer.
#[test]
fn moves_beside_rows_are_strides() {
    let mut random = Random::new(11);
    let transpose = |id, order: &[i64]| Op::new(id, K::StaticTranspose).attr(Attr::Order, order.to_vec());
    let reshape = |id, shape: &[i64]| {
        Op::new(id, K::StaticReshape).attr(Attr::Shape, shape.to_vec()).attr(Attr::SpecialZero, false)
    };
    let slice = |id, [start, end, step, axis]: [i64; 4]| {
        let list = |x: i64| vec![x];
        (Op::new(id, K::Slice).attr(Attr::Starts, list(start)).attr(Attr::Ends, list(end)))
            .attr(Attr::Steps, list(step))
            .attr(Attr::Axes, list(axis))
    };
    let dims = [4i64, 30, 48];
    let mut rows: Vec<(String, Net, usize)> = Vec::new();
    for t in FLOATS {
        for op in [K::SoftMax, K::LogSoftmax, K::LayerNorm, K::ReduceSum] {
            for scaled in [false, true] {
                let mut add = |name: &str, before: Vec<Op>, behind: Vec<Op>, nests: usize| {
                    let net = moved_rows(t, op, scaled, before, behind, &dims, &mut random);
                    let scale = if scaled { " scaled" } else { "" };
                    rows.push((format!("{op} {t}{scale} {name}"), net, nests));
                };
                let last = if op == K::ReduceSum { 1 } else { 30 };
                add("transposed", vec![transpose(0, &[0, 2, 1])], vec![], 1);
                add("sliced", vec![slice(0, [7, 40, 3, 2])], vec![], 1);
                add("sliced at the end", vec![slice(0, [16, 48, 1, 2])], vec![], 1);
                add(
                    "sliced and transposed",
                    vec![slice(0, [1, 4, 1, 0]), transpose(1, &[2, 0, 1])],
                    vec![],
                    1,
                );
                add("reshaped", vec![reshape(0, &[120, 48])], vec![reshape(70, &[2, 60, -1])], 1);
                add("turned back", vec![transpose(0, &[2, 0, 1])], vec![transpose(70, &[1, 2, 0])], 1);
                let behind = vec![transpose(70, &[1, 0, 2]), reshape(71, &[48, 4 * last])];
                add("moved twice behind", vec![transpose(0, &[0, 2, 1])], behind, 1);
                add("reversed", vec![slice(0, [-1, -49, -1, 2])], vec![], 0);
            }
        }
    }
    let mut wrong = Vec::new();
    for (name, net, nests) in &rows {
        for engine in &engines() {
            let (fused, counts) = net.run(Policy::Fusion, engine);
            let (alone, _) = net.run(Policy::Debug, engine);
            if let Some((id, _)) = fused.iter().find(|(id, value)| alone[id] != **value) {
                wrong.push(format!("{name} at {:?}: tensor {id} differs", engine.level()));
            }
            if counts.len() != 1 || (*nests > 0 && counts[0] != *nests) {
                wrong.push(format!("{name} runs in nests {counts:?}, not {nests}"));
            }
        }
    }
    report(&wrong);
}

#[test]
fn fused_is_unfused_bit_for_bit() {
    let mut random = Random::new(7);
    // The number of nests in which one partition runs; more where a value has another shape than the rows.
    let mut rows: Vec<(String, Net, Option<usize>)> = Vec::new();
    for t in FLOATS {
        for (dims, axis) in [
            (vec![2i64, 3, 50, 64], -1),
            (vec![2, 3, 1, 100], 3),
            (vec![3, 7, 9000], 2),
            (vec![4, 33, 20], 1),
            (vec![9, 40_000], 1),
            // Few long rows are measured in parts first.
            (vec![2, 40_000], 1),
            (vec![1, 70_000], 1),
            (vec![2, 33_000, 3], 1),
        ] {
            let net = masked_softmax(t, &dims, axis, &mut random);
            let is_in_parts = dims[axis.rem_euclid(dims.len() as i64) as usize] > 32_768 && dims[0] < 9;
            let nests = if is_in_parts { 2 } else { 1 };
            rows.push((format!("masked softmax {t} {dims:?} {axis}"), net, Some(nests)));
        }
        for kind in [K::LayerNorm, K::RMSNorm] {
            for (dims, nests) in
                [(vec![6i64, 5, 96], 1), (vec![3, 5000], 1), (vec![1, 1], 1), (vec![3, 50_001], 2)]
            {
                let net = residual_norm(t, kind, &dims, 1, false, &mut random);
                rows.push((format!("{kind} {t} {dims:?}"), net, Some(nests)));
                let net = residual_norm(t, kind, &dims, 1, true, &mut random);
                rows.push((format!("{kind} {t} {dims:?} and its source"), net, None));
            }
            // Over dims that are neighbours without gaps.
            for (dims, count, nests) in [
                (vec![6i64, 5, 96], 2, 1),
                (vec![3, 5, 1, 40], 3, 1),
                (vec![4, 30, 20], 3, 1),
                (vec![2, 9, 5000], 2, 2),
            ] {
                let net = residual_norm(t, kind, &dims, count, false, &mut random);
                rows.push((format!("{kind} {t} {dims:?} over {count}"), net, Some(nests)));
            }
        }
        for (dims, format, scaled, nests) in [
            (vec![2i64, 8, 5, 7], "NCX", false, 1),
            (vec![3, 4, 6], "NCX", false, 1),
            (vec![5, 12], "NXC", false, 1),
            (vec![2, 4, 300, 130], "NCX", false, 2),
            // A number for each channel stands still along a part of a row alone.
            (vec![2, 8, 5, 7], "NCX", true, 2),
            // The channels of a group are no neighbours of those of the next place. A nest of its own
            // measures groups of channels that lie beside each other.
            (vec![2, 5, 7, 8], "NXC", false, 4),
        ] {
            let net = group_norm(t, &dims, format, scaled, &mut random);
            rows.push((format!("GroupNorm {t} {dims:?} {format} {scaled}"), net, Some(nests)));
        }
        for (dims, nests) in [(vec![6i64, 5, 96], 1), (vec![9, 2000], 1), (vec![2, 40_001], 2)] {
            for kind in [K::SoftMaxBackward, K::LogSoftmaxBackward] {
                let net = gradient(t, kind, &dims, false, &mut random);
                rows.push((format!("{kind} {t} {dims:?}"), net, Some(nests)));
            }
            let net = gradient(t, K::LayerNormBackward, &dims, false, &mut random);
            rows.push((format!("LayerNormBackward {t} {dims:?}"), net, Some(nests)));
            // The source in memory first, for the gradients of the parameters.
            for kind in [K::LayerNormBackward, K::PReLUBackward] {
                let net = gradient(t, kind, &dims, true, &mut random);
                rows.push((format!("{kind} {t} {dims:?} of parameters"), net, None));
            }
        }
        for (dims, axis) in [(vec![5i64, 8, 70], 2), (vec![5, 80, 7], 1), (vec![300, 9], 0)] {
            rows.push((
                format!("rms {t} {dims:?} {axis}"),
                root_mean_square(t, &dims, axis, &mut random),
                None,
            ));
        }
        for (dims, axes, nests) in [
            (vec![9i64, 300], vec![1i64], 1),
            (vec![300, 9], vec![0], 1),
            (vec![2, 100_003], vec![1], 2),
            (vec![7, 50_000, 3], vec![1], 2),
            (vec![4, 5, 6], vec![0, 2], 2),
            (vec![3, 4, 10, 20], vec![2, 3], 1),
            (vec![3, 4, 10, 20], vec![1, 3], 2),
            (vec![3, 4, 1, 20], vec![1, 2, 3], 1),
            (vec![2, 3, 300, 200], vec![2, 3], 2),
            (vec![2, 700, 200], vec![1, 2], 2),
            // Results of rank 0 or 1.
            (vec![70_000], vec![0], 0),
        ] {
            for keeps in [false, true] {
                let net = dot(t, &dims, &axes, keeps, &mut random);
                rows.push((
                    format!("dot {t} {dims:?} {axes:?}"),
                    net,
                    Some(nests).filter(|&nests| nests > 0),
                ));
            }
        }
    }
    let mut wrong = Vec::new();
    let threads = [1, 2, 3, 8].map(|threads| Engine::builder().threads(threads).build());
    for (name, net, nests) in &rows {
        let mut of_threads = Vec::new();
        for engine in engines().iter().chain(&threads) {
            let (fused, counts) = net.run(Policy::Fusion, engine);
            let (alone, _) = net.run(Policy::Debug, engine);
            let differs = fused.iter().filter(|(id, value)| alone[id] != **value).map(|(id, _)| *id);
            let differs: Vec<usize> = differs.collect();
            if !differs.is_empty() {
                wrong.push(format!("{name} at {:?}: tensors {differs:?} differ", engine.level()));
            }
            if counts.len() != 1 || nests.is_some_and(|nests| counts[0] != nests) {
                wrong.push(format!("{name} runs in nests {counts:?}, not {nests:?}"));
            }
            if engine.level() == sterna::Level::available() {
                of_threads.push(fused);
            }
        }
        if of_threads.iter().any(|values| *values != of_threads[0]) {
            wrong.push(format!("{name}: the bits depend on threads"));
        }
    }
    report(&wrong);
}

/// Rows along several dims are one axis of an epilogue only where strides lead along them, also to what it
/// writes.
#[test]
fn epilogues_write_outputs_of_any_layout() {
    let mut random = Random::new(31);
    let dims = [3i64, 4, 6, 10];
    let mut rows: Vec<(String, Net, Vec<usize>)> = Vec::new();
    for t in FLOATS {
        let mut net = group_norm(t, &dims, "NCX", false, &mut random);
        rows.push((
            format!("GroupNorm {t}"),
            Net { ops: net.ops.clone(), given: net.given.clone() },
            vec![7],
        ));
        // The result of the norm leaves the partition too.
        net.ops.push(simple(9, K::ReduceMax, t, &[5], 11).attr(Attr::Axes, vec![0i64]));
        rows.push((format!("GroupNorm {t} and its result"), net, vec![5, 7]));
        for kind in [K::LayerNorm, K::RMSNorm] {
            for count in [2, 3] {
                let mut net = residual_norm(t, kind, &dims, count, false, &mut random);
                rows.push((format!("{kind} {t} over {count}"), net.clone(), vec![8]));
                net.ops.push(simple(9, K::ReduceMax, t, &[5], 11).attr(Attr::Axes, vec![0i64]));
                rows.push((format!("{kind} {t} over {count} and its result"), net, vec![5, 8]));
            }
        }
    }
    // Dense and with gaps, in several orders.
    let layouts = [[240, 60, 10, 1], [60, 180, 10, 1], [240, 1, 40, 4], [1, 3, 12, 72], [500, 100, 12, 1]];
    let mut wrong = Vec::new();
    for (name, net, outputs) in &rows {
        for engine in &engines() {
            let (alone, _) = net.run(Policy::Debug, engine);
            for layout in &layouts {
                for given in [&outputs[..], &outputs[..1], &outputs[outputs.len() - 1..]] {
                    let placed = |id: &usize| {
                        LogicalTensor::with_strides(*id, alone[id].data_type(), &dims, layout).unwrap()
                    };
                    let places: Vec<LogicalTensor> = given.iter().map(placed).collect();
                    let (fused, _) = net.run_into(Policy::Fusion, engine, &places);
                    if let Some(id) = outputs.iter().find(|id| fused[id] != alone[id]) {
                        wrong.push(format!("{name} {layout:?} {given:?} at {}: tensor {id}", engine.level()));
                    }
                }
            }
        }
    }
    report(&wrong);
}

#[test]
fn accuracy_and_pairs_in_place() {
    let engine = Engine::new();
    let kinds = [K::SoftMax, K::LogSoftmax, K::LayerNorm, K::RMSNorm];
    for (kind, dims) in kinds.into_iter().flat_map(|kind| [(kind, [4, 100]), (kind, [2, 50_000])]) {
        let t = |id| LogicalTensor::strided(id, D::F32, &dims).unwrap();
        let op = Op::new(0, kind).input(t(0)).output(t(1));
        let op = if kind == K::LayerNorm {
            op.attr(Attr::UseAffine, false).attr(Attr::KeepStats, false)
        } else {
            op
        };
        let partition = Partition::from_op(op).unwrap();
        assert_eq!(partition.accuracy(), Some(Accuracy::Ordered));
        let compiled = partition.compile(&engine).unwrap();
        assert_eq!(compiled.in_place_pairs(), [InPlacePair::new(0, 1)], "{kind}");
        // In place and beside give the same bits.
        let mut random = Random::new(8);
        let source = filled(D::F32, &dims, &mut random);
        let mut buffers = [t(0), t(1)].map(|desc| TensorBuf::zeroed(desc, &engine).unwrap());
        source.write(&mut buffers[0]).unwrap();
        let [from, to] = &mut buffers;
        let stream = Stream::new(&engine);
        compiled.execute(&stream, &[from.as_tensor()], &mut [to.as_tensor_mut()]).unwrap();
        let beside = Value::read(&to.as_tensor()).unwrap();
        let mut data: Vec<f32> = source.elements().unwrap();
        let output = TensorMut::new(compiled.port(1).unwrap(), &engine, &mut data).unwrap();
        compiled.execute(&stream, &[], &mut [output.in_place_of(0)]).unwrap();
        assert_eq!(Some(data), beside.elements::<f32>(), "{kind}");
    }
}
