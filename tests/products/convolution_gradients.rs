//! Promise: transposed convolutions, and the gradients of both forms, are within their bound of the exact
//! ones, for every geometry, type, layout and CPU level; the number of threads and what is fused to them
//! change no bit.

use crate::common::guarded::Place;
use crate::common::{self, Random, engines, graphs, report};
use crate::convolution::{beyond, numbers, run_guarded, value_of};
use crate::matmul::{Fused, Ops};
use sterna::reference::Value;
use sterna::{
    Accuracy, Attr, CompiledPartition, DataType, Engine, LogicalTensor, Op, OpKind, Partition, Property,
    TensorBuf,
};

use DataType as D;
use OpKind as K;

const KINDS: [OpKind; 5] = [
    K::ConvTranspose,
    K::ConvTransposeBackwardData,
    K::ConvTransposeBackwardWeights,
    K::ConvolutionBackwardData,
    K::ConvolutionBackwardWeights,
];

const DST: usize = 3;

/// Bytes of an output before an execution, where nothing may be written.
const GAP: u8 = 0xa5;

/// The three tensors of a convolution, of which an op makes one of the other two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Image,
    Windows,
    Weights,
}

/// The order of the dims in memory, the outermost first, row-major if there is none, and how many elements
/// lie between rows.
type Layout = (Option<Vec<usize>>, i64);

/// A form of a convolution of concrete shapes and layouts.
#[derive(Debug, Clone)]
struct Case {
    kind: OpKind,
    data_type: DataType,
    /// True if channels are the last dim of data, and if weights begin with the spatial dims.
    formats: [bool; 2],
    batch: i64,
    groups: i64,
    /// Channels of a group: of the image and of the windows.
    channels: [i64; 2],
    /// A number for each spatial dim.
    image: Vec<i64>,
    kernel: Vec<i64>,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    pads: [Vec<i64>; 2],
    auto_pad: &'static str,
    has_bias: bool,
    /// For both inputs, the bias and the result.
    layouts: [Layout; 4],
}

const FORMATS: [[bool; 2]; 4] = [[false, false], [true, true], [false, true], [true, false]];

impl Case {
    fn new(kind: OpKind, data_type: DataType, channels: [i64; 2], image: &[i64], kernel: &[i64]) -> Self {
        let of = |number: i64| vec![number; image.len()];
        Self {
            kind,
            data_type,
            formats: [false, false],
            batch: 2,
            groups: 1,
            channels,
            image: image.to_vec(),
            kernel: kernel.to_vec(),
            strides: of(1),
            dilations: of(1),
            pads: [of(0), of(0)],
            auto_pad: "None",
            has_bias: kind == K::ConvTranspose,
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

    /// The tensors that are inputs, in order, and the one that is the result.
    fn parts(&self) -> ([Part; 2], Part) {
        use Part::{Image, Weights, Windows};
        match self.kind {
            K::ConvTranspose | K::ConvolutionBackwardData => ([Windows, Weights], Image),
            K::ConvTransposeBackwardData => ([Image, Weights], Windows),
            K::ConvTransposeBackwardWeights => ([Windows, Image], Weights),
            _ => ([Image, Windows], Weights),
        }
    }

    /// For each spatial dim the padding before it, the windows along it, and the elements that no window
    /// reaches.
    fn windows(&self) -> Vec<(i64, i64, i64)> {
        let is_transposed = self.kind.name().contains("Transpose");
        (0..self.image.len())
            .map(|i| {
                let (image, stride) = (self.image[i], self.strides[i]);
                let extent = (self.kernel[i] - 1) * self.dilations[i] + 1;
                let rest = if is_transposed { 0 } else { image % stride };
                let all = (extent - if rest == 0 { stride } else { rest }).max(0);
                let [begin, end] = match self.auto_pad {
                    "SAME_UPPER" => [all / 2, all - all / 2],
                    "SAME_LOWER" => [all - all / 2, all / 2],
                    "VALID" => [0, 0],
                    _ => [self.pads[0][i], self.pads[1][i]],
                };
                let room = image + begin + end - extent;
                (begin, room / stride + 1, room % stride)
            })
            .collect()
    }

    fn dims_of(&self, part: Part) -> Vec<i64> {
        let [image, windows] = self.channels;
        let data = |channels: i64, spatial: &[i64]| match self.formats[0] {
            false => [&[self.batch, channels * self.groups], spatial].concat(),
            true => [&[self.batch], spatial, &[channels * self.groups]].concat(),
        };
        match part {
            Part::Image => data(image, &self.image),
            Part::Windows => {
                let spatial: Vec<i64> = self.windows().iter().map(|&(_, windows, _)| windows).collect();
                data(windows, &spatial)
            }
            Part::Weights => match self.formats[1] {
                false => [&[windows * self.groups, image], &self.kernel[..]].concat(),
                true => [&self.kernel[..], &[image, windows * self.groups]].concat(),
            },
        }
    }

    fn dims(&self) -> Vec<Vec<i64>> {
        let mut dims: Vec<Vec<i64>> = self.parts().0.iter().map(|&part| self.dims_of(part)).collect();
        if self.has_bias {
            dims.push(vec![self.channels[0] * self.groups]);
        }
        dims
    }

    fn op(&self) -> Op {
        let is_transposed = self.kind.name().contains("Transpose");
        let weights = match (is_transposed, self.formats[1]) {
            (false, false) => "OIX",
            (false, true) => "XIO",
            (true, false) => "IOX",
            (true, true) => "XOI",
        };
        let inputs = (0..self.dims().len()).map(|id| LogicalTensor::unknown(id, self.data_type));
        let op = Op::new(7, self.kind)
            .attr(Attr::Strides, self.strides.clone())
            .attr(Attr::Dilations, self.dilations.clone())
            .attr(Attr::PadsBegin, self.pads[0].clone())
            .attr(Attr::PadsEnd, self.pads[1].clone())
            .attr(Attr::AutoPad, self.auto_pad)
            .attr(Attr::Groups, self.groups)
            .attr(Attr::DataFormat, if self.formats[0] { "NXC" } else { "NCX" })
            .attr(Attr::WeightsFormat, weights)
            .inputs_from(inputs)
            .output(LogicalTensor::unknown(DST, self.data_type));
        let result = self.dims_of(self.parts().1);
        match self.kind {
            K::ConvTranspose => {
                let beyond: Vec<i64> = self.windows().iter().map(|&(_, _, beyond)| beyond).collect();
                op.attr(Attr::OutputPadding, beyond)
            }
            K::ConvolutionBackwardData => op.attr(Attr::DstShape, result),
            K::ConvTransposeBackwardData => op,
            _ => op.attr(Attr::WeightsShape, result),
        }
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
        let output = match self.layouts[3] {
            (None, 0) => LogicalTensor::unknown(DST, self.data_type),
            _ => self.layout(3, DST, &self.dims_of(self.parts().1)),
        };
        partition.compile_for(engine, &inputs, &[output]).map_err(|e| e.to_string())
    }

    fn values(&self, random: &mut Random) -> Vec<Value> {
        let value = |dims: &Vec<i64>| {
            let count = dims.iter().product::<i64>() as usize;
            let numbers: Vec<f32> =
                (0..count).map(|_| (random.below(2001) as f32 - 1000.0) / 256.0).collect();
            value_of(self.data_type, dims, &numbers)
        };
        self.dims().iter().map(value).collect()
    }

    fn run(&self, engine: &Engine, inputs: &[Value]) -> Result<Value, String> {
        let compiled = self.compile(engine)?;
        let tensors: Vec<TensorBuf> = (compiled.inputs().iter().zip(inputs))
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

    /// From one element of a tensor to the next: of the batch, of the channels of groups, of those of windows
    /// and of the image in a group, and of the spatial dims.
    fn steps(&self, part: Part) -> ([usize; 4], Vec<usize>) {
        let dims = self.dims_of(part);
        let step = |axis: usize| dims[axis + 1..].iter().product::<i64>() as usize;
        let spatial = |first: usize| (first..first + self.image.len()).map(step).collect();
        let [image, windows] = self.channels.map(|channels| channels as usize);
        let last = dims.len() - 1;
        let (channels, first) = if self.formats[0] { (last, 1) } else { (1, 2) };
        let data = step(channels);
        match (part, self.formats[1]) {
            (Part::Image, _) => ([step(0), data * image, 0, data], spatial(first)),
            (Part::Windows, _) => ([step(0), data * windows, data, 0], spatial(first)),
            (Part::Weights, false) => ([0, step(0) * windows, step(0), step(1)], spatial(2)),
            (Part::Weights, true) => ([0, windows, 1, step(last - 1)], spatial(0)),
        }
    }

    /// The exact result in row-major order, and the bound of each element.
    fn exact(&self, inputs: &[Value]) -> Vec<(f64, f64)> {
        let inputs: Vec<Vec<f64>> = inputs.iter().map(numbers).collect();
        let ([first, second], result) = self.parts();
        let windows = self.windows();
        let spatial: Vec<i64> = windows.iter().map(|&(_, windows, _)| windows).collect();
        let [of_image, of_windows] = self.channels;
        let steps = [first, second, result].map(|part| (part, self.steps(part)));
        let mut sums = vec![(0.0f64, 0.0f64, 0u32); self.dims_of(result).iter().product::<i64>() as usize];
        let loops = common::indices(&[self.batch, self.groups, of_windows, of_image]);
        let of_channels = |step: &[usize; 4], index: &[i64]| {
            step.iter().zip(index).map(|(step, &index)| step * index as usize).sum::<usize>()
        };
        let of_loops: Vec<[usize; 3]> = loops
            .iter()
            .map(|index| [0, 1, 2].map(|tensor| of_channels(&steps[tensor].1.0, index)))
            .collect();
        let (taps, windows_at) = (common::indices(&self.kernel), common::indices(&spatial));
        for (tap, window) in taps.iter().flat_map(|tap| windows_at.iter().map(move |window| (tap, window))) {
            let place: Vec<i64> = (0..tap.len())
                .map(|i| window[i] * self.strides[i] + tap[i] * self.dilations[i] - windows[i].0)
                .collect();
            if place.iter().zip(&self.image).any(|(place, size)| !(0..*size).contains(place)) {
                continue;
            }
            let from = steps.each_ref().map(|(part, (_, spatial))| {
                let at = match part {
                    Part::Image => &place,
                    Part::Windows => window,
                    Part::Weights => tap,
                };
                spatial.iter().zip(at).map(|(step, &at)| step * at as usize).sum::<usize>()
            });
            for at in &of_loops {
                let product = inputs[0][from[0] + at[0]] * inputs[1][from[1] + at[1]];
                let (sum, size, terms) = &mut sums[from[2] + at[2]];
                (*sum, *size, *terms) = (*sum + product, *size + product.abs(), *terms + 1);
            }
        }
        let dims = self.dims_of(result);
        let elements = common::indices(&dims).into_iter().zip(sums).map(|(index, (sum, size, terms))| {
            let channel = if self.formats[0] { index[index.len() - 1] } else { index[1] };
            let bias = if self.has_bias { inputs[2][channel as usize] } else { 0.0 };
            (sum + bias, f64::from(terms + 1) * 2f64.powi(-24) * (size + bias.abs()))
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

/// Images, kernels and ways in which windows lie, by number of spatial dims.
fn geometries(kind: OpKind, data_type: DataType, formats: [bool; 2]) -> Vec<Case> {
    let new = |channels: [i64; 2], image: &[i64], kernel: &[i64]| Case {
        formats,
        ..Case::new(kind, data_type, channels, image, kernel)
    };
    let mut cases = vec![
        new([1, 1], &[1], &[1]),
        new([3, 5], &[20], &[3]).same(),
        new([40, 80], &[67], &[3]).same(),
        new([5, 70], &[68], &[3]).strides(&[2]).pads(&[1], &[1]),
        new([4, 9], &[40], &[5]).dilations(&[3]).pads(&[9], &[2]),
        new([4, 9], &[41], &[5]).dilations(&[3]).strides(&[2]).pads(&[9], &[2]),
        new([4, 9], &[41], &[5]).dilations(&[4]).strides(&[6]).pads(&[9], &[2]),
        new([3, 17], &[9, 11], &[3, 3]).same(),
        new([33, 16], &[7, 7], &[3, 3]).same(),
        new([37, 65], &[14, 14], &[1, 1]),
        new([37, 65], &[14, 13], &[1, 1]).strides(&[2, 2]),
        new([3, 16], &[23, 29], &[7, 7]).strides(&[2, 2]).pads(&[3, 3], &[3, 3]),
        new([16, 24], &[16, 16], &[4, 4]).strides(&[4, 4]),
        new([16, 8], &[16, 18], &[4, 4]).strides(&[2, 2]).pads(&[1, 1], &[1, 1]),
        new([6, 10], &[12, 70], &[3, 5]).strides(&[3, 1]).dilations(&[1, 2]).pads(&[2, 4], &[0, 3]),
        new([6, 10], &[5, 4], &[5, 4]),
        new([2, 3], &[3, 3], &[2, 2]).pads(&[4, 5], &[6, 3]),
        new([4, 6], &[5, 6, 7], &[3, 2, 3]).pads(&[1, 0, 1], &[1, 1, 1]).strides(&[1, 2, 1]),
        new([20, 33], &[2, 3, 19], &[2, 3, 3]).same().dilations(&[1, 1, 2]),
        Case { auto_pad: "SAME_UPPER", ..new([3, 4], &[10, 11], &[4, 3]).strides(&[3, 2]) },
        Case { auto_pad: "SAME_LOWER", ..new([3, 4], &[10, 11], &[4, 3]).strides(&[3, 2]) },
        Case { auto_pad: "VALID", ..new([3, 4], &[10, 11], &[4, 3]).strides(&[3, 2]).same() },
        Case { groups: 3, ..new([4, 5], &[9, 8], &[3, 3]).same() },
        Case { groups: 4, ..new([9, 20], &[9, 8], &[2, 3]).same().strides(&[1, 2]) },
        Case { groups: 3, ..new([20, 6], &[9, 8], &[2, 3]).same().strides(&[3, 2]) },
        Case { groups: 37, ..new([1, 1], &[15, 14], &[3, 3]).same() },
        Case { groups: 37, ..new([1, 1], &[15, 14], &[3, 3]).same().strides(&[2, 2]) },
        Case { groups: 37, ..new([1, 1], &[15, 14], &[2, 1]).strides(&[3, 2]) },
        Case { groups: 19, ..new([1, 1], &[3, 8, 21], &[2, 3, 3]).same().strides(&[1, 2, 2]) },
        Case { groups: 48, batch: 3, ..new([1, 1], &[31], &[5]).dilations(&[2]).pads(&[4], &[4]) },
        Case { groups: 20, ..new([2, 1], &[15, 14], &[5, 5]).same().strides(&[2, 2]) },
        // Taps that no window sees.
        new([40, 50], &[1, 1], &[3, 3]).same(),
        new([40, 50], &[2, 1], &[3, 3]).same().strides(&[2, 2]),
        new([33, 16], &[7, 7], &[3, 3]).dilations(&[6, 9]).pads(&[6, 9], &[6, 9]),
        Case { groups: 37, ..new([1, 1], &[2, 3], &[3, 9]).same() },
        // Vectors of several groups.
        Case { groups: 12, ..new([4, 4], &[9, 21], &[3, 3]).same().strides(&[2, 2]) },
        Case { groups: 8, ..new([8, 8], &[11, 13], &[3, 2]).dilations(&[2, 1]).pads(&[4, 0], &[1, 2]) },
        Case { groups: 40, ..new([4, 4], &[5, 6, 7], &[1, 2, 3]).same() },
        Case { groups: 10, batch: 3, ..new([8, 8], &[31], &[5]).strides(&[2]).pads(&[2], &[2]) },
        Case { batch: 5, has_bias: false, ..new([9, 65], &[6, 5], &[3, 3]).same() },
        Case { batch: 1, ..new([65, 8], &[12, 23], &[3, 3]).same() },
        Case { batch: 0, ..new([3, 4], &[5, 5], &[3, 3]) },
        Case { groups: 2, ..new([0, 4], &[5, 5], &[3, 3]).same() },
        new([3, 0], &[5, 5], &[3, 3]).same(),
        new([3, 0], &[5, 6], &[3, 2]).strides(&[2, 2]),
    ];
    // Images may end before the last element of the kernel, and windows may see only padding.
    cases.push(new([3, 4], &[2, 3], &[3, 3]).pads(&[4, 3], &[4, 5]).strides(&[2, 3]));
    cases
}

#[test]
fn gradients_of_every_geometry_and_format_are_within_their_bound() {
    let (engines, mut random, mut wrong) = (engines(), Random::new(41), Vec::new());
    for (kind, formats) in KINDS.into_iter().flat_map(|kind| FORMATS.map(|formats| (kind, formats))) {
        for case in geometries(kind, D::F32, formats) {
            wrong.extend(case.check(&engines, &mut random));
        }
    }
    report(&wrong);
}

#[test]
fn gradients_of_every_type_are_within_their_bound() {
    let (engines, mut random, mut wrong) = (engines(), Random::new(42), Vec::new());
    for (kind, formats) in KINDS.into_iter().flat_map(|kind| FORMATS.map(|formats| (kind, formats))) {
        // Every other geometry has one of the types.
        for (at, case) in geometries(kind, D::Bf16, formats).into_iter().enumerate() {
            let data_type = if at % 2 == 0 { D::Bf16 } else { D::F16 };
            wrong.extend(Case { data_type, ..case }.check(&engines, &mut random));
        }
    }
    report(&wrong);
}

#[test]
fn tensors_may_have_any_strides() {
    let (engines, mut random, mut wrong) = (engines(), Random::new(43), Vec::new());
    let kinds = KINDS.into_iter().flat_map(|kind| [D::F32, D::Bf16].map(|t| (kind, t)));
    for (formats, (kind, data_type)) in FORMATS.into_iter().flat_map(|of| kinds.clone().map(move |k| (of, k)))
    {
        let case = || Case {
            formats,
            ..Case::new(kind, data_type, [18, 5], &[9, 7], &[3, 2]).same().strides(&[1, 2])
        };
        let apart = || Case { channels: [5, 18], ..case() }.strides(&[2, 3]);
        let of_groups = || Case { groups: 3, channels: [5, 4], ..case() };
        let of_channels = || Case { groups: 40, channels: [1, 1], ..case() };
        let rows: [[Layout; 4]; 6] = [
            // The other order of channels; gaps between elements and rows; batch inside.
            [(Some(vec![0, 2, 3, 1]), 0), (None, 0), (None, 0), (None, 0)],
            [
                (Some(vec![0, 3, 1, 2]), 0),
                (Some(vec![0, 3, 1, 2]), 0),
                (None, 0),
                (Some(vec![0, 3, 1, 2]), 0),
            ],
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
            for case in [case(), apart(), of_groups(), of_channels()] {
                let case = Case { layouts: layouts.clone(), ..case };
                wrong.extend(case.check(&engines, &mut random));
            }
        }
    }
    report(&wrong);
}

/// Runs that are copied in blocks end with the memory of a tensor.
#[test]
fn nothing_beside_the_tensors_is_read_or_written() {
    let (engines, mut random, mut wrong) = (engines(), Random::new(46), Vec::new());
    for (kind, formats) in KINDS.into_iter().flat_map(|kind| FORMATS.map(|formats| (kind, formats))) {
        for (at, case) in geometries(kind, D::F32, formats).into_iter().enumerate() {
            let case = Case { data_type: if at % 2 == 0 { D::F32 } else { D::F16 }, ..case };
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
    let (mut random, mut wrong) = (Random::new(44), Vec::new());
    let engines: Vec<Engine> = [1, 2, 5].map(|threads| Engine::builder().threads(threads).build()).into();
    for (kind, formats) in KINDS.into_iter().flat_map(|kind| FORMATS.map(|formats| (kind, formats))) {
        for data_type in [D::F32, D::Bf16] {
            let new = |channels, image: &[i64], kernel: &[i64]| Case {
                formats,
                ..Case::new(kind, data_type, channels, image, kernel).same()
            };
            for case in [
                new([64, 96], &[28, 28], &[3, 3]),
                new([96, 64], &[29, 28], &[3, 3]).strides(&[2, 2]),
                Case { groups: 64, ..new([1, 1], &[20, 20], &[3, 3]) },
            ] {
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

/// An op of a case in a graph, on inputs of the graph.
fn in_graph(ops: &mut Ops, case: &Case) -> LogicalTensor {
    let inputs: Vec<LogicalTensor> = case.dims().iter().map(|dims| ops.input(case.data_type, dims)).collect();
    let op = case.op().attrs().fold(ops.op(case.kind), |op, (attr, value)| op.attr(attr, value.clone()));
    ops.add(op, &inputs.iter().collect::<Vec<_>>(), case.data_type, &case.dims_of(case.parts().1))
}

/// Graphs on a case, and how many partitions they are.
fn fused_graphs(case: &Case) -> Vec<Fused> {
    let (t, dims) = (case.data_type, case.dims_of(case.parts().1));
    let mut graphs = Vec::new();

    let mut ops = Ops::default();
    let x = in_graph(&mut ops, case);
    let (scale, residual) = (ops.input(t, &vec![1; dims.len()]), ops.input(t, &dims));
    let x = ops.binary(K::Multiply, &x, &scale);
    let x = ops.binary(K::Add, &x, &residual);
    ops.unary(K::ReLU, &x);
    graphs.push(ops.done("scale and a residual", 1));

    // The mask has a number for each place along a dim, so that rows of it are no axis with those of others.
    let mut ops = Ops::default();
    let x = in_graph(&mut ops, case);
    let mut mask = vec![1; dims.len()];
    (mask[0], mask[2]) = (dims[0], dims[2]);
    let (cond, other) = (ops.input(D::Boolean, &mask), ops.input(t, &dims));
    ops.select(&cond, &x, &other);
    graphs.push(ops.done("a mask", 1));

    let other = if t == D::F32 { D::Bf16 } else { D::F32 };
    let mut ops = Ops::default();
    let x = in_graph(&mut ops, case);
    let cast = ops.add(ops.op(K::TypeCast), &[&x], other, &dims);
    let _ = ops.unary(K::Exp, &cast);
    ops.unary(K::Abs, &x);
    graphs.push(ops.done("several results", 1));

    // Pointwise ops before both operands.
    let mut ops = Ops::default();
    let inputs: Vec<LogicalTensor> = case.dims().iter().map(|dims| ops.input(t, dims)).collect();
    let first = ops.unary(K::Tanh, &inputs[0]);
    let second = ops.unary(K::Abs, &inputs[1]);
    let op = case.op().attrs().fold(ops.op(case.kind), |op, (attr, value)| op.attr(attr, value.clone()));
    let operands: Vec<&LogicalTensor> = [&first, &second].into_iter().chain(&inputs[2..]).collect();
    let x = ops.add(op, &operands, t, &dims);
    ops.unary(K::Sigmoid, &x);
    graphs.push(ops.done("computed operands", 1));
    graphs
}

#[test]
fn gradients_fused_to_what_is_around_them_give_the_bits_of_the_ops_one_by_one() {
    let (engines, mut wrong) = (engines(), Vec::new());
    for (kind, formats) in KINDS.into_iter().flat_map(|kind| FORMATS.map(|formats| (kind, formats))) {
        for data_type in [D::F32, D::Bf16, D::F16] {
            let case = Case { formats, ..Case::new(kind, data_type, [20, 9], &[9, 11], &[3, 3]).same() };
            for case in [
                case.clone(),
                case.clone().strides(&[2, 1]),
                case.clone().strides(&[4, 2]),
                Case { groups: 2, ..case.clone() }.strides(&[2, 2]),
                Case { groups: 20, channels: [1, 1], ..case }.strides(&[1, 2]),
            ] {
                for fused in fused_graphs(&case) {
                    let faults = fused.faults(&engines, 45);
                    wrong.extend(faults.into_iter().map(|why| (fused.name, case.clone(), why)));
                }
            }
        }
    }
    report(&wrong);
}

/// Strides that make too many products are refused; a kernel of any size without elements makes none.
#[test]
fn strides_of_any_size_are_run_or_refused() {
    let engine = Engine::builder().threads(1).build();
    let far = 1i64 << 40;
    let case = Case::new(K::ConvTranspose, D::F32, [1, 1], &[20_000], &[20_000]).strides(&[20_000]);
    let refused = case.compile(&engine).err();
    let why = "its strides make too many products";
    assert!(refused.as_ref().is_some_and(|error| error.contains(why)), "{refused:?}");
    let case = Case::new(K::ConvTranspose, D::F32, [2, 0], &[5], &[far]).strides(&[far]);
    let case = case.pads(&[far - 9], &[4]);
    let bias = value_of(D::F32, &[2], &[1.5, -2.0]);
    let values = [value_of(D::F32, &[2, 0, 1], &[]), value_of(D::F32, &[0, 2, far], &[]), bias];
    let result = case.run(&engine, &values).map(|value| value.elements::<f32>().unwrap());
    assert_eq!(result.as_deref(), Ok(&[[1.5; 5], [-2.0; 5], [1.5; 5], [-2.0; 5]].concat()[..]));
}

/// Copies and panels of constant weights are kept for later executions.
#[test]
fn constant_weights_change_no_bit() {
    let (engines, mut random, mut wrong) = (engines(), Random::new(49), Vec::new());
    let kinds = [K::ConvTranspose, K::ConvTransposeBackwardData, K::ConvolutionBackwardData];
    for (kind, formats) in kinds.into_iter().flat_map(|kind| FORMATS.map(|formats| (kind, formats))) {
        for (groups, channels, strides) in
            [(1, [20, 36], [1, 1]), (1, [20, 36], [2, 3]), (2, [9, 20], [2, 2]), (24, [1, 1], [2, 1])]
        {
            let new = Case::new(kind, D::F32, channels, &[14, 13], &[3, 3]).same().strides(&strides);
            let case = Case { groups, formats, ..new };
            let values = case.values(&mut random);
            for engine in &engines {
                let expected = case.run(engine, &values).unwrap();
                let mut inputs: Vec<LogicalTensor> =
                    case.dims().iter().enumerate().map(|(id, dims)| case.layout(id, id, dims)).collect();
                inputs[1] = inputs[1].clone().with_property(Property::Constant).unwrap();
                let partition = Partition::from_op(case.op()).unwrap();
                let output = LogicalTensor::unknown(DST, D::F32);
                let compiled = partition.compile_for(engine, &inputs, &[output]).unwrap();
                let tensors: Vec<TensorBuf> = (compiled.inputs().iter().zip(&values))
                    .map(|(desc, value)| {
                        let mut tensor = TensorBuf::zeroed(desc.clone(), engine).unwrap();
                        value.write(&mut tensor).unwrap();
                        tensor
                    })
                    .collect();
                for execution in 0..2 {
                    let mut output = TensorBuf::zeroed(compiled.outputs()[0].clone(), engine).unwrap();
                    common::run(&compiled, engine, &tensors, &mut output).unwrap();
                    if Value::read(&output.as_tensor()).unwrap() != expected {
                        wrong.push((engine.level(), execution, case.clone()));
                    }
                }
            }
        }
    }
    report(&wrong);
}

/// The shape of a gradient may be an input, whose data nobody knows before an execution.
#[test]
fn a_shape_that_is_an_input_counts_if_the_graph_gives_the_shape_as_well() {
    let (engines, mut random, mut wrong) = (engines(), Random::new(48), Vec::new());
    for kind in [K::ConvolutionBackwardData, K::ConvolutionBackwardWeights, K::ConvTransposeBackwardWeights] {
        let case = Case::new(kind, D::F32, [6, 5], &[7, 8], &[3, 2]).same().strides(&[2, 1]);
        let result = case.dims_of(case.parts().1);
        let partition = |output: LogicalTensor| {
            let said = [Attr::DstShape, Attr::WeightsShape];
            let attrs = case.op();
            let attrs = attrs.attrs().filter(|(attr, _)| !said.contains(attr));
            let op = attrs.fold(Op::new(7, kind), |op, (attr, value)| op.attr(attr, value.clone()));
            let shape = LogicalTensor::strided(2, D::S32, &[4]).unwrap();
            let inputs = (0..2).map(|id| LogicalTensor::unknown(id, D::F32)).chain([shape]);
            Partition::from_op(op.inputs_from(inputs).output(output)).unwrap()
        };
        let open = partition(LogicalTensor::unknown(DST, D::F32));
        let known = partition(LogicalTensor::strided(DST, D::F32, &result).unwrap());
        if open.is_supported() || !known.is_supported() {
            wrong.push((kind, format!("{} {}", open.is_supported(), known.is_supported())));
            continue;
        }
        let values = case.values(&mut random);
        let exact = case.exact(&values);
        for engine in &engines {
            let dims = case.dims();
            let inputs = dims.iter().enumerate().map(|(id, dims)| case.layout(id, id, dims));
            let shape = LogicalTensor::strided(2, D::S32, &[4]).unwrap();
            let inputs: Vec<LogicalTensor> = inputs.chain([shape]).collect();
            let output = LogicalTensor::unknown(DST, D::F32);
            let compiled = known.compile_for(engine, &inputs, &[output]).unwrap();
            let tensors: Vec<TensorBuf> = (compiled.inputs().iter())
                .map(|desc| {
                    let mut tensor = TensorBuf::zeroed(desc.clone(), engine).unwrap();
                    if let Some(value) = values.get(desc.id().get()) {
                        value.write(&mut tensor).unwrap();
                    }
                    tensor
                })
                .collect();
            let mut output = TensorBuf::zeroed(compiled.outputs()[0].clone(), engine).unwrap();
            common::run(&compiled, engine, &tensors, &mut output).unwrap();
            let result = Value::read(&output.as_tensor()).unwrap();
            wrong.extend(beyond(&result, &exact).map(|why| (kind, why)));
        }
    }
    report(&wrong);
}

#[test]
fn a_gradient_is_a_partition_of_class_ordered_whose_windows_tiles_gather() {
    let engine = Engine::builder().threads(1).build();
    let mut wrong = Vec::new();
    for kind in KINDS {
        let case = Case::new(kind, D::F32, [56, 64], &[9, 9], &[3, 3]).same().strides(&[2, 2]);
        let partition = Partition::from_op(case.op()).unwrap();
        let plan = case.compile(&engine).unwrap().plan();
        let has_windows = plan.to_string().contains("windows gathered in tiles");
        // A stride of two in two dims makes four products of a transposed convolution, of which one reads
        // elements of the source where they are.
        let products = plan.to_string().matches("windows gathered").count();
        let expected = if case.parts().1 == Part::Image { 3 } else { 1 };
        if partition.accuracy() != Some(Accuracy::Ordered) || !has_windows || products != expected {
            wrong.push((kind, partition.accuracy(), plan.to_string()));
        }
    }
    report(&wrong);
}

/// A Dequantize of bytes for an input of a case, with a scale for each channel of the image or for all.
fn dequantize(id: usize, of: DataType, zero: i64, scales: Option<(i64, i64)>) -> Op {
    let op = Op::new(id, K::Dequantize);
    let op = match scales {
        Some((axis, count)) => op
            .attr(Attr::Qtype, "per_channel")
            .axis(axis)
            .attr(Attr::Scales, (0..count).map(|of| (of % 7 + 1) as f32 / 64.0).collect::<Vec<_>>())
            .attr(Attr::Zps, (0..count).map(|of| zero * (1 + of % 3)).collect::<Vec<_>>()),
        None => op.attr(Attr::Scales, vec![0.125f32]).attr(Attr::Zps, vec![zero]),
    };
    op.input(LogicalTensor::unknown(10 + id, of)).output(LogicalTensor::unknown(id, D::F32))
}

#[test]
fn transposed_convolutions_of_integers_are_exact_sums() {
    let (engines, mut random, mut wrong) = (engines(), Random::new(47), Vec::new());
    let kinds = [K::ConvTranspose, K::ConvolutionBackwardData, K::ConvTransposeBackwardData];
    for (kind, formats) in kinds.into_iter().flat_map(|kind| FORMATS.map(|formats| (kind, formats))) {
        for (groups, types, zeros, per_channel, strides) in [
            (1, [D::U8, D::S8], [0, 0], false, [1, 1]),
            (1, [D::U8, D::S8], [7, 0], true, [1, 2]),
            (3, [D::S8, D::S8], [12, 5], false, [2, 2]),
            (2, [D::U8, D::U8], [100, 0], true, [2, 1]),
            (1, [D::S8, D::U8], [3, 4], true, [4, 2]),
            (20, [D::U8, D::S8], [3, 1], false, [2, 1]),
        ] {
            let channels = if groups == 20 { [1, 1] } else { [20, 6] };
            let new = Case::new(kind, D::F32, channels, &[9, 8], &[3, 3]).same().strides(&strides);
            let case = Case { groups, formats, ..new };
            let dims = case.dims();
            // The channels of the result.
            let axis = match (case.formats[1], case.parts().1 == Part::Image) {
                (false, is_image) => usize::from(is_image),
                (true, is_image) => 3 - usize::from(is_image),
            };
            let scales = per_channel.then(|| (axis as i64, dims[1][axis]));
            let ops = [
                dequantize(0, types[0], zeros[0], None),
                dequantize(1, types[1], zeros[1], scales),
                case.op(),
            ];
            let mut graph = sterna::Graph::new();
            ops.iter().for_each(|op| graph.add_op(op.clone()).unwrap());
            graph.finalize().unwrap();
            let [together, _] = graphs::both(&graph);
            assert_eq!(together.len(), 1);
            let integers: Vec<Value> = (0..2)
                .map(|id| {
                    let bytes = (0..dims[id].iter().product::<i64>()).map(|_| random.next() as u8).collect();
                    Value::new(types[id], &dims[id], bytes).unwrap()
                })
                .collect();
            let mut values: Vec<Value> = (0..2)
                .map(|id| sterna::reference::run(&ops[id], &integers[id..=id]).unwrap().remove(0))
                .collect();
            values.extend(case.values(&mut random).into_iter().skip(2));
            let exact = case.exact(&values);
            // Channels on their own have no kernel of integers.
            let is_fallback = groups == 20;
            for engine in &engines {
                let inputs: Vec<LogicalTensor> = (together[0].inputs().iter())
                    .map(|port| match port.id().get() {
                        2 => LogicalTensor::strided(2, D::F32, &dims[2]).unwrap(),
                        id => LogicalTensor::strided(id, port.data_type(), &dims[id - 10]).unwrap(),
                    })
                    .collect();
                let output = LogicalTensor::unknown(DST, D::F32);
                let compiled = together[0].compile_for(engine, &inputs, &[output]).unwrap();
                let plan = compiled.plan().to_string();
                let tensors: Vec<TensorBuf> = (compiled.inputs().iter())
                    .map(|desc| {
                        let mut tensor = TensorBuf::zeroed(desc.clone(), engine).unwrap();
                        let value = match desc.id().get() {
                            2 => &values[2],
                            id => &integers[id - 10],
                        };
                        value.write(&mut tensor).unwrap();
                        tensor
                    })
                    .collect();
                let mut output = TensorBuf::zeroed(compiled.outputs()[0].clone(), engine).unwrap();
                common::run(&compiled, engine, &tensors, &mut output).unwrap();
                let result = Value::read(&output.as_tensor()).unwrap();
                // Only the sum itself is exact, and its scale and its bias are rounded.
                let bound = |&(sum, bound): &(f64, f64)| {
                    (sum, if is_fallback { bound } else { 1e-7 * sum.abs() + 1e-6 })
                };
                let far = beyond(&result, &exact.iter().map(bound).collect::<Vec<_>>());
                if far.is_some() || plan.contains("s32 from") == is_fallback {
                    wrong.push(format!("{}: {far:?}: {groups} {zeros:?} {case:?} {plan}", engine.level()));
                }
            }
        }
    }
    report(&wrong);
}
