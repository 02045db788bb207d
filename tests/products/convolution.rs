//! Promise: a convolution is within its bound of the exact one, for every geometry, type, layout and CPU
//! level; the number of threads and what is fused to the convolution change no bit.

use std::collections::BTreeMap;

use crate::common::guarded::{Guarded, Place};
use crate::common::{self, Random, engines, graphs, report};
use crate::matmul::{Fused, Ops};
use sterna::reference::{self, Enclosure, Value};
use sterna::{
    Accuracy, Attr, CompiledPartition, DataType, Engine, LogicalTensor, Op, OpKind, Partition, Stream,
    Tensor, TensorBuf, TensorId, TensorMut,
};

use DataType as D;

const DST: usize = 3;

/// Bytes of an output before an execution, where nothing may be written.
const GAP: u8 = 0xa5;

/// A convolution of concrete shapes and layouts.
#[derive(Debug, Clone)]
struct Case {
    data_type: DataType,
    /// Channels before or behind the spatial dims, in the tensors of data and in the weights.
    formats: [&'static str; 2],
    batch: i64,
    groups: i64,
    /// Channels of a group: of the image and of the result.
    channels: [i64; 2],
    /// A number for each spatial dim.
    image: Vec<i64>,
    kernel: Vec<i64>,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    pads: [Vec<i64>; 2],
    auto_pad: &'static str,
    has_bias: bool,
    /// For image, weights, bias and result: the order of the dims in memory, the outermost first, row-major
    /// if there is none, and how many elements lie between rows.
    layouts: [(Option<Vec<usize>>, i64); 4],
}

const NCX: [&str; 2] = ["NCX", "OIX"];
const NXC: [&str; 2] = ["NXC", "XIO"];
const FORMATS: [[&str; 2]; 4] = [NCX, NXC, ["NCX", "XIO"], ["NXC", "OIX"]];

impl Case {
    fn new(
        data_type: DataType,
        formats: [&'static str; 2],
        channels: [i64; 2],
        image: &[i64],
        kernel: &[i64],
    ) -> Self {
        let of = |number: i64| vec![number; image.len()];
        Self {
            data_type,
            formats,
            batch: 2,
            groups: 1,
            channels,
            image: image.to_vec(),
            kernel: kernel.to_vec(),
            strides: of(1),
            dilations: of(1),
            pads: [of(0), of(0)],
            auto_pad: "None",
            has_bias: true,
            layouts: [(None, 0), (None, 0), (None, 0), (None, 0)],
        }
    }

    fn strides(self, strides: &[i64]) -> Self {
        Self { strides: strides.to_vec(), ..self }
    }

    fn dilations(self, dilations: &[i64]) -> Self {
        Self { dilations: dilations.to_vec(), ..self }
    }

    fn pads(self, begin: &[i64], end: &[i64]) -> Self {
        Self { pads: [begin.to_vec(), end.to_vec()], ..self }
    }

    fn same(self) -> Self {
        let pads: Vec<i64> = self.kernel.iter().map(|kernel| kernel / 2).collect();
        self.pads(&pads, &pads)
    }

    fn op(&self) -> Op {
        let inputs = (0..2 + usize::from(self.has_bias)).map(|id| LogicalTensor::unknown(id, self.data_type));
        Op::new(7, OpKind::Convolution)
            .attr(Attr::Strides, self.strides.clone())
            .attr(Attr::Dilations, self.dilations.clone())
            .attr(Attr::PadsBegin, self.pads[0].clone())
            .attr(Attr::PadsEnd, self.pads[1].clone())
            .attr(Attr::AutoPad, self.auto_pad)
            .attr(Attr::Groups, self.groups)
            .attr(Attr::DataFormat, self.formats[0])
            .attr(Attr::WeightsFormat, self.formats[1])
            .inputs_from(inputs)
            .output(LogicalTensor::unknown(DST, self.data_type))
    }

    /// The dims of a tensor of data.
    fn data(&self, channels: i64, spatial: &[i64]) -> Vec<i64> {
        match self.formats[0] {
            "NCX" => [&[self.batch, channels], spatial].concat(),
            _ => [&[self.batch], spatial, &[channels]].concat(),
        }
    }

    fn dims(&self) -> Vec<Vec<i64>> {
        let [from, to] = self.channels;
        let weights = match self.formats[1] {
            "OIX" => [&[to * self.groups, from], &self.kernel[..]].concat(),
            _ => [&self.kernel[..], &[from, to * self.groups]].concat(),
        };
        let mut dims = vec![self.data(from * self.groups, &self.image), weights];
        if self.has_bias {
            dims.push(vec![to * self.groups]);
        }
        dims
    }

    /// The padding before each spatial dim, and the windows along it.
    fn windows(&self) -> Vec<(i64, i64)> {
        (0..self.image.len())
            .map(|i| {
                let (image, stride) = (self.image[i], self.strides[i]);
                let extent = (self.kernel[i] - 1) * self.dilations[i] + 1;
                let rest = image % stride;
                let all = (extent - if rest == 0 { stride } else { rest }).max(0);
                let [begin, end] = match self.auto_pad {
                    "SAME_UPPER" => [all / 2, all - all / 2],
                    "SAME_LOWER" => [all - all / 2, all / 2],
                    "VALID" => [0, 0],
                    _ => [self.pads[0][i], self.pads[1][i]],
                };
                (begin, (image + begin + end - extent) / stride + 1)
            })
            .collect()
    }

    fn layout(&self, tensor: usize, id: usize, dims: &[i64]) -> LogicalTensor {
        let (order, gap) = &self.layouts[tensor];
        let order = order.clone().unwrap_or_else(|| (0..dims.len()).collect());
        let (mut strides, mut next) = (vec![0; dims.len()], if *gap > 0 { 2 } else { 1 });
        for &axis in order.iter().filter(|&&axis| axis < dims.len()).rev() {
            strides[axis] = next;
            next = next * dims[axis].max(1) + gap;
        }
        LogicalTensor::with_strides(id, self.data_type, dims, &strides).unwrap()
    }

    fn compile(&self, engine: &Engine) -> Result<CompiledPartition, String> {
        let partition = Partition::from_op(self.op()).map_err(|e| e.to_string())?;
        let inputs: Vec<LogicalTensor> =
            self.dims().iter().enumerate().map(|(id, dims)| self.layout(id, id, dims)).collect();
        let compile = |output| partition.compile_for(engine, &inputs, &[output]).map_err(|e| e.to_string());
        let windows: Vec<i64> = self.windows().iter().map(|&(_, windows)| windows).collect();
        let dims = self.data(self.channels[1] * self.groups, &windows);
        match self.layouts[3] {
            (None, 0) => compile(LogicalTensor::unknown(DST, self.data_type)),
            _ => compile(self.layout(3, DST, &dims)),
        }
    }

    fn values(&self, random: &mut Random) -> Vec<Value> {
        let dims = self.dims();
        let values = dims.iter().map(|dims| {
            let count = dims.iter().product::<i64>() as usize;
            let numbers: Vec<f32> =
                (0..count).map(|_| (random.below(2001) as f32 - 1000.0) / 256.0).collect();
            value_of(self.data_type, dims, &numbers)
        });
        values.collect()
    }

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
        match other.as_bytes() == output.as_bytes() {
            true => Ok(result),
            false => Err("bytes between the elements are written".to_owned()),
        }
    }

    /// The exact result in row-major order, and the bound of each element.
    fn exact(&self, inputs: &[Value]) -> Vec<(f64, f64)> {
        let inputs: Vec<Vec<f64>> = inputs.iter().map(numbers).collect();
        let ([from, to], windows) = (self.channels, self.windows());
        let spatial: Vec<i64> = windows.iter().map(|&(_, windows)| windows).collect();
        let (channels_last, rank) = (self.formats[0] != "NCX", self.kernel.len());
        let [of_image, of_weights] = [0, 1].map(|tensor| steps(&self.dims()[tensor]));
        // Of the image batch, channel and first spatial step; of weights those of results, of sources and of
        // taps.
        let image = if channels_last { [0, rank + 1, 1] } else { [0, 1, 2] };
        let weights = if self.formats[1] == "OIX" { [0, 1, 2] } else { [rank + 1, rank, 0] };
        let ([of_batch, of_channel], pixels) =
            ([image[0], image[1]].map(|dim| of_image[dim]), &of_image[image[2]..]);
        let ([of_to, of_from], taps) =
            ([weights[0], weights[1]].map(|dim| of_weights[dim]), &of_weights[weights[2]..]);
        let all_taps = common::indices(&self.kernel);
        let elements = common::indices(&self.data(to * self.groups, &spatial)).into_iter().map(|index| {
            let (channel, window) = match channels_last {
                false => (index[1], &index[2..]),
                true => (index[rank + 1], &index[1..=rank]),
            };
            let first = index[0] * of_batch + channel / to * from * of_channel;
            let bias = if self.has_bias { inputs[2][channel as usize] } else { 0.0 };
            let (mut sum, mut size) = (bias, bias.abs());
            for tap in &all_taps {
                let (mut pixel, mut weight, mut is_inside) = (first, channel * of_to, true);
                for (i, &at) in tap.iter().enumerate() {
                    let place = window[i] * self.strides[i] + at * self.dilations[i] - windows[i].0;
                    is_inside &= (0..self.image[i]).contains(&place);
                    (pixel, weight) = (pixel + place * pixels[i], weight + at * taps[i]);
                }
                for of_group in (0..from).filter(|_| is_inside) {
                    let product = inputs[0][(pixel + of_group * of_channel) as usize]
                        * inputs[1][(weight + of_group * of_from) as usize];
                    (sum, size) = (sum + product, size + product.abs());
                }
            }
            let depth = from * self.kernel.iter().product::<i64>() + 1;
            (sum, depth as f64 * 2f64.powi(-24) * size)
        });
        elements.collect()
    }

    fn check(&self, engines: &[Engine], random: &mut Random) -> Vec<String> {
        let inputs = self.values(random);
        let exact = self.exact(&inputs);
        let wrong = |engine: &Engine| {
            let why = match self.run(engine, &inputs) {
                Ok(result) => beyond(&result, &exact)?,
                Err(why) => why,
            };
            Some(format!("{}: {why}: {self:?}", engine.level()))
        };
        engines.iter().filter_map(wrong).collect()
    }
}

/// Elements from one index of each dim to the next, of a tensor in row-major order.
fn steps(dims: &[i64]) -> Vec<i64> {
    (1..=dims.len()).map(|dim| dims[dim..].iter().product()).collect()
}

pub(super) fn value_of(data_type: DataType, dims: &[i64], numbers: &[f32]) -> Value {
    let bytes = |&x: &f32| match data_type {
        D::Bf16 => half::bf16::from_f32(x).to_le_bytes().to_vec(),
        D::F16 => half::f16::from_f32(x).to_le_bytes().to_vec(),
        _ => x.to_le_bytes().to_vec(),
    };
    Value::new(data_type, dims, numbers.iter().flat_map(bytes).collect()).unwrap()
}

pub(super) fn numbers(value: &Value) -> Vec<f64> {
    let pair = |bytes: &[u8]| [bytes[0], bytes[1]];
    match value.data_type() {
        D::F32 => value.elements::<f32>().unwrap().into_iter().map(f64::from).collect(),
        D::Bf16 => value.bytes().chunks(2).map(|b| half::bf16::from_le_bytes(pair(b)).to_f64()).collect(),
        _ => value.bytes().chunks(2).map(|b| half::f16::from_le_bytes(pair(b)).to_f64()).collect(),
    }
}

/// The first element that is further from the exact one than its bound and the rounding to its type.
pub(super) fn beyond(given: &Value, exact: &[(f64, f64)]) -> Option<String> {
    let step = match given.data_type() {
        D::F32 => 2f64.powi(-24),
        D::Bf16 => 2f64.powi(-8),
        _ => 2f64.powi(-11),
    };
    let numbers = numbers(given);
    if numbers.len() != exact.len() {
        return Some(format!("{} elements instead of {}", numbers.len(), exact.len()));
    }
    let is_far = |(given, (exact, bound)): (&f64, &(f64, f64))| {
        let most = bound + step * (exact.abs() + bound);
        given.is_nan() || (given - exact).abs() > most
    };
    let at = numbers.iter().zip(exact).position(is_far)?;
    Some(format!("element {at} is {}, not {}, bound {}", numbers[at], exact[at].0, exact[at].1))
}

/// Images, kernels and ways in which windows lie, by number of spatial dims.
fn geometries(data_type: DataType, formats: [&'static str; 2]) -> Vec<Case> {
    let new = |channels: [i64; 2], image: &[i64], kernel: &[i64]| {
        Case::new(data_type, formats, channels, image, kernel)
    };
    vec![
        new([1, 1], &[1], &[1]),
        new([3, 5], &[20], &[3]).same(),
        new([80, 40], &[67], &[3]).same(),
        new([5, 70], &[67], &[3]).strides(&[2]).pads(&[1], &[1]),
        new([4, 9], &[40], &[5]).dilations(&[3]).pads(&[9], &[2]),
        new([3, 17], &[9, 11], &[3, 3]).same(),
        new([16, 33], &[7, 7], &[3, 3]).same(),
        new([37, 65], &[14, 14], &[1, 1]),
        new([37, 65], &[14, 13], &[1, 1]).strides(&[2, 2]),
        new([3, 16], &[23, 29], &[7, 7]).strides(&[2, 2]).pads(&[3, 3], &[3, 3]),
        new([3, 24], &[32, 32], &[8, 8]).strides(&[8, 8]),
        new([6, 10], &[12, 70], &[3, 5]).strides(&[3, 1]).dilations(&[1, 2]).pads(&[2, 4], &[0, 3]),
        new([6, 10], &[5, 4], &[5, 4]),
        new([2, 3], &[3, 3], &[2, 2]).pads(&[4, 5], &[6, 3]),
        new([4, 6], &[5, 6, 7], &[3, 2, 3]).pads(&[1, 0, 1], &[1, 1, 1]).strides(&[1, 2, 1]),
        new([65, 20], &[2, 3, 19], &[2, 3, 3]).same().dilations(&[1, 1, 2]),
        Case { auto_pad: "SAME_UPPER", ..new([3, 4], &[10, 11], &[4, 3]).strides(&[3, 2]) },
        Case { auto_pad: "SAME_LOWER", ..new([3, 4], &[10, 11], &[4, 3]).strides(&[3, 2]) },
        Case { auto_pad: "VALID", ..new([3, 4], &[10, 11], &[4, 3]).strides(&[3, 2]).same() },
        Case { groups: 3, ..new([4, 5], &[9, 8], &[3, 3]).same() },
        Case { groups: 4, ..new([9, 40], &[9, 8], &[2, 3]).same().strides(&[1, 2]) },
        Case { groups: 37, ..new([1, 1], &[15, 14], &[3, 3]).same() },
        Case { groups: 70, ..new([1, 1], &[40, 9], &[9, 9]).same() },
        Case { groups: 19, ..new([1, 1], &[3, 8, 21], &[2, 3, 3]).same().strides(&[1, 2, 2]) },
        Case { groups: 48, batch: 3, ..new([1, 1], &[31], &[5]).dilations(&[2]).pads(&[4], &[4]) },
        Case { groups: 20, ..new([1, 2], &[15, 14], &[5, 5]).same().strides(&[2, 2]) },
        // Kernels with loops over several rows of windows, rows of several tiles, and few channels.
        Case { groups: 9, ..new([1, 1], &[16, 15], &[5, 5]).same() },
        Case { groups: 5, ..new([1, 1], &[23, 40], &[7, 7]).same() },
        Case { groups: 6, ..new([1, 1], &[30, 70], &[3, 3]).same().strides(&[2, 2]) },
        Case { groups: 6, ..new([1, 1], &[9, 40], &[5, 5]).strides(&[2, 2]).pads(&[2, 37], &[1, 5]) },
        Case { groups: 3, ..new([1, 1], &[17, 35], &[5, 3]).same().strides(&[2, 1]) },
        Case { groups: 2, batch: 1, ..new([1, 1], &[3, 2100], &[3, 3]).same() },
        Case { groups: 2, ..new([40, 20], &[9, 33], &[3, 5]).same() },
        Case { batch: 1, ..new([3, 14], &[5, 2100], &[3, 3]).same().strides(&[2, 2]) },
        new([24, 24], &[23, 29], &[3, 3]).same(),
        // Vectors of several groups, and groups of several vectors.
        Case { groups: 12, ..new([4, 4], &[9, 21], &[3, 3]).same().strides(&[2, 2]) },
        Case { groups: 8, ..new([4, 4], &[40, 9], &[9, 9]).same() },
        Case { groups: 5, ..new([4, 4], &[6, 7], &[3, 3]).same() },
        Case { groups: 6, ..new([8, 8], &[11, 13], &[3, 2]).dilations(&[2, 1]).pads(&[4, 0], &[1, 2]) },
        Case { groups: 3, ..new([16, 16], &[5, 4, 12], &[1, 2, 3]).same() },
        Case { groups: 3, batch: 1, ..new([32, 32], &[7, 10], &[3, 3]).same() },
        Case { groups: 4, ..new([8, 4], &[6, 7], &[3, 3]).same() },
        // Taps that no window sees, of which some or all are left out.
        new([40, 50], &[1, 1], &[3, 3]).same(),
        new([40, 50], &[2, 1], &[3, 3]).same().strides(&[2, 2]),
        new([40, 50], &[14, 13], &[3, 3]).dilations(&[24, 12]).pads(&[24, 12], &[24, 12]),
        new([3, 50], &[5, 6], &[13, 17]).same(),
        new([3, 5], &[1, 2], &[1, 2]).strides(&[4, 4]).pads(&[1, 3], &[0, 0]),
        Case { groups: 37, ..new([1, 1], &[2, 3], &[3, 9]).same() },
        Case { groups: 5, ..new([4, 4], &[1, 1], &[3, 3]).same() },
        Case { groups: 5, ..new([1, 1], &[1, 1], &[1, 1]).strides(&[4, 4]).pads(&[1, 1], &[0, 0]) },
        Case { batch: 5, has_bias: false, ..new([9, 130], &[6, 5], &[3, 3]).same() },
        Case { batch: 1, ..new([8, 130], &[12, 23], &[3, 3]).same() },
        Case { batch: 0, ..new([3, 4], &[5, 5], &[3, 3]) },
        Case { groups: 2, ..new([0, 4], &[5, 5], &[3, 3]).same() },
        new([3, 0], &[5, 5], &[3, 3]).same(),
    ]
}

#[test]
fn convolutions_of_every_geometry_and_format_are_within_their_bound() {
    let (engines, mut random, mut wrong) = (engines(), Random::new(31), Vec::new());
    for formats in FORMATS {
        for case in geometries(D::F32, formats) {
            wrong.extend(case.check(&engines, &mut random));
        }
    }
    report(&wrong);
}

#[test]
fn convolutions_of_every_type_are_within_their_bound() {
    let (engines, mut random, mut wrong) = (engines(), Random::new(32), Vec::new());
    for formats in FORMATS {
        for case in [D::Bf16, D::F16].into_iter().flat_map(|data_type| geometries(data_type, formats)) {
            wrong.extend(case.check(&engines, &mut random));
        }
    }
    report(&wrong);
}

#[test]
fn tensors_may_have_any_strides() {
    let (engines, mut random, mut wrong) = (engines(), Random::new(33), Vec::new());
    for (formats, data_type) in FORMATS.into_iter().flat_map(|of| [D::F32, D::Bf16].map(|t| (of, t))) {
        let case = || Case::new(data_type, formats, [5, 18], &[9, 7], &[3, 2]).same().strides(&[1, 2]);
        let of_groups = || Case { groups: 3, ..case() };
        let of_channels = || Case { groups: 70, channels: [1, 1], ..case() };
        let of_few = || Case { groups: 8, channels: [4, 4], ..case() };
        let rows = [
            // The other order of channels; gaps between elements and rows; batch inside.
            [(Some(vec![0, 2, 3, 1]), 0), (None, 0), (None, 0), (None, 0)],
            [(Some(vec![0, 3, 1, 2]), 0), (None, 0), (None, 0), (Some(vec![0, 3, 1, 2]), 0)],
            [(None, 0), (Some(vec![1, 0, 3, 2]), 0), (None, 0), (None, 0)],
            [(None, 0), (Some(vec![3, 2, 1, 0]), 0), (None, 0), (Some(vec![0, 2, 3, 1]), 0)],
            [(None, 3), (None, 2), (None, 1), (None, 5)],
            [
                (Some(vec![3, 2, 1, 0]), 1),
                (Some(vec![2, 1, 0, 3]), 1),
                (None, 1),
                (Some(vec![1, 2, 3, 0]), 2),
            ],
        ];
        for layouts in rows {
            wrong.extend(Case { layouts: layouts.clone(), ..case() }.check(&engines, &mut random));
            wrong.extend(Case { layouts: layouts.clone(), ..of_groups() }.check(&engines, &mut random));
            wrong.extend(Case { layouts: layouts.clone(), ..of_few() }.check(&engines, &mut random));
            wrong.extend(Case { layouts, ..of_channels() }.check(&engines, &mut random));
        }
    }
    report(&wrong);
}

/// The bytes of the result of a partition whose tensors and scratch lie at the edges of their pages.
pub(super) fn run_guarded(
    compiled: &CompiledPartition,
    engine: &Engine,
    values: &[Value],
    result: usize,
    place: Place,
) -> Result<Vec<u8>, String> {
    let ports = values.len();
    let sizes = values.iter().map(|value| value.bytes().len());
    let sizes: Vec<usize> = sizes.chain([result, compiled.scratchpad_size()]).collect();
    let mut memory: Vec<Guarded> = sizes.iter().map(|&size| Guarded::new(size.max(1))).collect();
    for (memory, value) in memory.iter_mut().zip(values) {
        let range = place.range(memory, value.bytes().len());
        memory.bytes_mut(range).copy_from_slice(value.bytes());
    }
    let at = |port: usize| memory[port].at(place.range(&memory[port], sizes[port]).start);
    // SAFETY: the memory has the sizes of the tensors and of the scratch, and nothing else uses it.
    unsafe {
        let inputs: Vec<Tensor<'_>> = (compiled.inputs().iter().enumerate())
            .map(|(port, desc)| Tensor::from_raw_parts(desc, engine, at(port)))
            .collect();
        let output = TensorMut::from_raw_parts(&compiled.outputs()[0], engine, at(ports));
        let scratch = std::slice::from_raw_parts_mut(at(ports + 1).cast(), sizes[ports + 1]);
        compiled
            .execute_with_scratchpad(&Stream::new(engine), &inputs, &mut [output], scratch)
            .map_err(|error| error.to_string())?;
    }
    Ok(memory[ports].bytes(place.range(&memory[ports], sizes[ports])).to_vec())
}

/// Masks of lanes, and runs that are copied in blocks, end with the memory of a tensor.
#[test]
fn nothing_beside_the_tensors_is_read_or_written() {
    let (engines, mut random, mut wrong) = (engines(), Random::new(37), Vec::new());
    for (formats, data_type) in FORMATS.into_iter().flat_map(|of| [D::F32, D::F16].map(|t| (of, t))) {
        for case in geometries(data_type, formats) {
            let values = case.values(&mut random);
            for (engine, place) in engines
                .iter()
                .flat_map(|engine| [Place::Back(0), Place::Front(0)].map(|place| (engine, place)))
            {
                let expected = case.run(engine, &values).unwrap();
                let compiled = case.compile(engine).unwrap();
                let given = run_guarded(&compiled, engine, &values, expected.bytes().len(), place);
                if given.as_deref() != Ok(expected.bytes()) {
                    wrong.push((engine.level(), place, given.err(), case.clone()));
                }
            }
        }
    }
    report(&wrong);
}

#[test]
fn threads_do_not_change_a_bit() {
    let (mut random, mut wrong) = (Random::new(34), Vec::new());
    let engines: Vec<Engine> = [1, 2, 5].map(|threads| Engine::builder().threads(threads).build()).into();
    for (formats, data_type) in FORMATS.into_iter().flat_map(|of| [D::F32, D::Bf16].map(|t| (of, t))) {
        let new =
            |channels, image: &[i64], kernel: &[i64]| Case::new(data_type, formats, channels, image, kernel);
        for case in [
            new([64, 96], &[28, 28], &[3, 3]).same(),
            new([3, 64], &[60, 60], &[7, 7]).strides(&[2, 2]).same(),
            Case { groups: 64, ..new([1, 1], &[40, 40], &[3, 3]).same() },
            Case { groups: 16, ..new([8, 8], &[40, 40], &[3, 3]).same() },
        ] {
            let values = case.values(&mut random);
            let results: Vec<_> = engines.iter().map(|engine| case.run(engine, &values)).collect();
            if results[0].is_err() || results.iter().any(|result| *result != results[0]) {
                wrong.push(case);
            }
        }
    }
    report(&wrong);
}

/// A convolution in a graph, with groups or without.
fn convolution(ops: &mut Ops, formats: [&str; 2], t: DataType, groups: i64, has_bias: bool) -> LogicalTensor {
    // As many groups as channels of the result convolve each channel on its own.
    let [from, to] = [if groups == 36 { groups } else { 8 }, 36];
    let image = if formats[0] == "NCX" { [2, from, 12, 11] } else { [2, 12, 11, from] };
    let weights = if formats[1] == "OIX" { [to, from / groups, 3, 3] } else { [3, 3, from / groups, to] };
    let (image, weights, bias) = (ops.input(t, &image), ops.input(t, &weights), ops.input(t, &[to]));
    let op = ops
        .op(OpKind::Convolution)
        .attr(Attr::Strides, vec![1i64, 1])
        .attr(Attr::Dilations, vec![1i64, 1])
        .attr(Attr::PadsBegin, vec![1i64, 1])
        .attr(Attr::PadsEnd, vec![1i64, 1])
        .attr(Attr::Groups, groups)
        .attr(Attr::DataFormat, formats[0])
        .attr(Attr::WeightsFormat, formats[1]);
    let inputs = [&image, &weights, &bias];
    ops.add(op, &inputs[..2 + usize::from(has_bias)], t, &result_dims(formats))
}

fn result_dims(formats: [&str; 2]) -> [i64; 4] {
    if formats[0] == "NCX" { [2, 36, 12, 11] } else { [2, 12, 11, 36] }
}

/// Graphs on convolutions, and how many partitions they are.
fn fused_graphs(formats: [&'static str; 2], t: DataType) -> Vec<Fused> {
    let dims = result_dims(formats);
    let of_channels = |of: i64| if formats[0] == "NCX" { [1, of, 1, 1] } else { [1, 1, 1, of] };
    let mut graphs = Vec::new();

    let mut ops = Ops::default();
    let x = convolution(&mut ops, formats, t, 1, true);
    ops.unary(OpKind::ReLU, &x);
    graphs.push(ops.done("a function", 1));

    let mut ops = Ops::default();
    let x = convolution(&mut ops, formats, t, 2, false);
    let (scale, shift) = (ops.input(t, &of_channels(36)), ops.input(t, &of_channels(36)));
    let x = ops.binary(OpKind::Multiply, &x, &scale);
    let x = ops.binary(OpKind::Add, &x, &shift);
    let residual = ops.input(t, &dims);
    let x = ops.binary(OpKind::Add, &x, &residual);
    ops.unary(OpKind::ReLU, &x);
    graphs.push(ops.done("scale, shift and a residual", 1));

    let mut ops = Ops::default();
    let x = convolution(&mut ops, formats, t, 1, true);
    let gate = ops.unary(OpKind::Sigmoid, &x);
    let x = ops.binary(OpKind::Multiply, &x, &gate);
    let (cond, fill) = (ops.input(D::Boolean, &[1, 1, 1, 1]), ops.input(t, &[1, 1, 1, 1]));
    ops.select(&cond, &x, &fill);
    graphs.push(ops.done("a gate and a mask", 1));

    // The mask has a number for each place, so that rows of it are not one axis with those of the result.
    let mut ops = Ops::default();
    let x = convolution(&mut ops, formats, t, 4, true);
    let mask = if formats[0] == "NCX" { [2, 1, 12, 1] } else { [2, 12, 1, 1] };
    let (cond, other) = (ops.input(D::Boolean, &mask), ops.input(t, &dims));
    ops.select(&cond, &other, &x);
    graphs.push(ops.done("a mask of rows", 1));

    let mut ops = Ops::default();
    let x = convolution(&mut ops, formats, t, 36, true);
    let shift = ops.input(t, &of_channels(36));
    let x = ops.binary(OpKind::Add, &x, &shift);
    let x = ops.unary(OpKind::Sigmoid, &x);
    let residual = ops.input(t, &dims);
    ops.binary(OpKind::Multiply, &x, &residual);
    graphs.push(ops.done("channels on their own", 1));

    let other = if t == D::F32 { D::Bf16 } else { D::F32 };
    let mut ops = Ops::default();
    let x = convolution(&mut ops, formats, t, 1, true);
    let cast = ops.add(ops.op(OpKind::TypeCast), &[&x], other, &dims);
    let _ = ops.unary(OpKind::Exp, &cast);
    ops.unary(OpKind::Abs, &x);
    graphs.push(ops.done("several results", 1));
    graphs
}

#[test]
fn a_convolution_fused_to_what_is_around_it_gives_the_bits_of_the_ops_one_by_one() {
    let (engines, mut wrong) = (engines(), Vec::new());
    for (formats, t) in FORMATS.into_iter().flat_map(|of| [D::F32, D::Bf16, D::F16].map(|t| (of, t))) {
        for fused in fused_graphs(formats, t) {
            let faults = fused.faults(&engines, 35);
            wrong.extend(faults.into_iter().map(|why| (fused.name, formats, t, why)));
        }
    }
    report(&wrong);
}

#[test]
fn a_convolution_is_a_partition_of_class_ordered_and_shows_its_phases() {
    let engine = Engine::builder().threads(1).build();
    let shown = |formats, channels| {
        let case = Case::new(D::F32, formats, channels, &[9, 9], &[3, 3]).same();
        let partition = Partition::from_op(case.op()).unwrap();
        assert_eq!(partition.accuracy(), Some(Accuracy::Ordered));
        case.compile(&engine).unwrap().plan().to_string()
    };
    for (formats, channels, form) in [
        (NCX, [8, 16], "planes of the image"),
        (NCX, [100, 40], "planes of the image"),
        (NCX, [40, 64], "windows gathered in tiles"),
        (NXC, [8, 16], "windows gathered in tiles"),
    ] {
        let plan = shown(formats, channels);
        assert!(plan.contains(form), "{formats:?}, {channels:?}: {plan}");
    }
    // Images whose rows lie next to each other are one axis of windows. Channels that lie apart, unless they
    // are few, are brought together first, those of weights as well.
    for (formats, data_type, copies) in [(NXC, D::F32, 0), (NCX, D::F32, 0), (NCX, D::Bf16, 2)] {
        let graph = fused_graphs(formats, data_type).swap_remove(1);
        let [together, _] = graphs::both(&graph.graph);
        let plan = together[0].compile(&engine).unwrap().plan().to_string();
        let phases = ["phase    map", "phase    gemm"].map(|phase| plan.matches(phase).count());
        assert_eq!(phases, [copies, 1], "{formats:?} {data_type:?}: {plan}");
    }
}

/// A convolution of integers behind Dequantize, by the types of image and weights, kernel, and zero points.
/// The scales of the output channels of `XIO` are under a spatial axis if that has one element.
fn of_integers(
    formats: [&'static str; 2],
    types: [DataType; 2],
    (groups, kernel): (i64, i64),
    (zeros, per_channel): ([i64; 2], bool),
) -> (Case, Vec<Op>) {
    let (of_group, image, strides) = match groups {
        20 => ([1, 1], [9, 8], [1, 2]),
        4 => ([4, 4], [9, 8], [1, 2]),
        // Several tiles read the same elements of the image.
        5 => ([7, 150], [9, 24], [1, 1]),
        // No window sees the first and the last taps.
        6 => ([6, 5], [2, 3], [1, 1]),
        _ => ([6, 20], [9, 8], [1, 2]),
    };
    let case = Case::new(D::F32, formats, of_group, &image, &[kernel; 2]).same().strides(&strides);
    let case = Case { groups, ..case };
    let channels = case.channels[1] * groups;
    let axis = match (formats[1], kernel) {
        ("OIX", _) => 0i64,
        (_, 1) => 1,
        _ => 3,
    };
    let dequantize = |id: usize, zero: i64| {
        let op = Op::new(id, OpKind::Dequantize);
        let op = match per_channel && id == 1 {
            true => {
                let scales: Vec<f32> = (0..channels).map(|of| (of % 7 + 1) as f32 / 64.0).collect();
                let zeros: Vec<i64> = (0..channels).map(|of| zero * (1 + of % 3)).collect();
                op.attr(Attr::Qtype, "per_channel")
                    .axis(axis)
                    .attr(Attr::Scales, scales)
                    .attr(Attr::Zps, zeros)
            }
            false => op.attr(Attr::Scales, vec![0.125f32]).attr(Attr::Zps, vec![zero]),
        };
        op.input(LogicalTensor::unknown(10 + id, types[id])).output(LogicalTensor::unknown(id, D::F32))
    };
    let ops = vec![dequantize(0, zeros[0]), dequantize(1, zeros[1]), case.op()];
    (case, ops)
}

/// The intervals of the result of a partition, given the values of its inputs by their ids.
fn intervals(partition: &Partition, given: [(usize, &Value); 3]) -> Enclosure {
    let given = given.map(|(id, value)| (id.into(), value.clone())).into();
    reference::enclose(partition.ops(), &given, &[DST.into()]).unwrap().remove(&DST.into()).unwrap()
}

/// A value that is off by a hundredth in one element.
fn spoilt(value: &Value, at: usize) -> Value {
    let mut elements = value.elements::<f32>().unwrap().to_vec();
    elements[at] += 1e-2 * (1.0 + elements[at].abs());
    Value::from_slice(value.dims(), &elements).unwrap()
}

#[test]
fn convolutions_of_integers_are_exact_sums() {
    let (engines, mut random, mut wrong) = (engines(), Random::new(36), Vec::new());
    let types = [[D::U8, D::S8], [D::S8, D::S8], [D::U8, D::U8], [D::S8, D::U8]];
    for (formats, types) in FORMATS.into_iter().flat_map(|of| types.map(|types| (of, types))) {
        for (groups, kernel, zeros, per_channel) in [
            (1, 3, [0, 0], false),
            (1, 3, [7, 0], true),
            (6, 7, [7, 3], true),
            (1, 1, [10, 0], true),
            (5, 1, [3, 0], true),
            (3, 3, [12, 5], false),
            (2, 3, [100, 0], true),
            (1, 3, [3, 4], true),
            (20, 3, [3, 1], true),
            (4, 3, [3, 1], true),
            (20, 3, [0, 0], false),
            (4, 3, [0, 0], true),
        ] {
            let (case, ops) = of_integers(formats, types, (groups, kernel), (zeros, per_channel));
            let mut graph = sterna::Graph::new();
            ops.iter().for_each(|op| graph.add_op(op.clone()).unwrap());
            graph.finalize().unwrap();
            let [together, _] = graphs::both(&graph);
            assert_eq!(together.len(), 1);
            let dims = case.dims();
            let mut bytes =
                |dims: &[i64]| (0..dims.iter().product()).map(|_: i64| random.next() as u8).collect();
            let integers = [0, 1].map(|id| Value::new(types[id], &dims[id], bytes(&dims[id])).unwrap());
            let floats: Vec<Value> = (0..2)
                .map(|id| sterna::reference::run(&ops[id], &integers[id..=id]).unwrap().remove(0))
                .collect();
            let bias = case.values(&mut random).pop().unwrap();
            // Only the sum itself is exact, and its scale and its bias are rounded.
            let exact = case.exact(&[floats[0].clone(), floats[1].clone(), bias.clone()]);
            let exact: Vec<_> = exact.into_iter().map(|(sum, _)| (sum, 1e-7 * sum.abs() + 1e-6)).collect();
            let allowed = intervals(&together[0], [(10, &integers[0]), (11, &integers[1]), (2, &bias)]);
            for engine in &engines {
                let mut fault = |why: String| {
                    wrong.push(format!("{}: {why}: {types:?} {groups} {zeros:?} {case:?}", engine.level()));
                };
                let inputs: Vec<LogicalTensor> = together[0]
                    .inputs()
                    .iter()
                    .map(|port| match port.id().get() {
                        2 => LogicalTensor::strided(2, D::F32, &dims[2]).unwrap(),
                        id => LogicalTensor::strided(id, port.data_type(), &dims[id - 10]).unwrap(),
                    })
                    .collect();
                let output = LogicalTensor::unknown(DST, D::F32);
                let compiled = together[0].compile_for(engine, &inputs, &[output]).unwrap();
                // Channels on their own are summed up in f32, which holds these integers, as are groups of a
                // few.
                let is_in_f32 = [4, 20].contains(&groups);
                let plan = compiled.plan().to_string();
                if plan.contains("s32 from") == is_in_f32 {
                    fault(plan);
                }
                let tensors: Vec<TensorBuf> = compiled
                    .inputs()
                    .iter()
                    .map(|desc| {
                        let mut tensor = TensorBuf::zeroed(desc.clone(), engine).unwrap();
                        let value = match desc.id().get() {
                            2 => &bias,
                            id => &integers[id - 10],
                        };
                        value.write(&mut tensor).unwrap();
                        tensor
                    })
                    .collect();
                let mut output = TensorBuf::zeroed(compiled.outputs()[0].clone(), engine).unwrap();
                common::run(&compiled, engine, &tensors, &mut output).unwrap();
                let result = Value::read(&output.as_tensor()).unwrap();
                if let Some(why) = beyond(&result, &exact) {
                    fault(why);
                }
                if [&result, &spoilt(&result, 5)].map(|value| allowed.first_outside(value)) != [None, Some(5)]
                {
                    fault("intervals let wrong elements pass, or no right ones".into());
                }
            }
        }
    }
    report(&wrong);
}

#[test]
fn a_sum_of_what_is_not_finite_may_be_anything() {
    let case = Case::new(D::F32, NXC, [1, 2], &[4, 1], &[2, 1]);
    let image = [1.0, 2.0, f32::NAN, 3.0, f32::INFINITY, 1.0, 1.0, 1.0];
    let given = [
        (0.into(), Value::from_slice(&[2, 4, 1, 1], &image).unwrap()),
        (1.into(), Value::from_slice(&[2, 1, 1, 2], &[1.0f32, 2.0, 3.0, -4.0]).unwrap()),
        (2.into(), Value::from_slice(&[2], &[0.5f32, f32::NEG_INFINITY]).unwrap()),
    ];
    let given: BTreeMap<TensorId, Value> = given.into();
    let allowed = &reference::enclose(&[case.op()], &given, &[DST.into()]).unwrap()[&DST.into()];
    let judged: Vec<bool> = (0..12).map(|at| allowed.is_judged(at)).collect();
    // Of the two channels the second has a bias that is not finite; of the windows two see the NaN, one the
    // ∞.
    let seen = [true, false, false, false, true, true];
    let expected: Vec<bool> = seen.iter().flat_map(|&is_finite| [is_finite, false]).collect();
    assert_eq!(judged, expected);
    assert_eq!(allowed.numbers()[0], 1.0 + 3.0 * 2.0 + 0.5);
}
