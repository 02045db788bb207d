//! Convolutions, their gradients and transposed ones: GFLOP/s of compiled partitions of layers of known
//! networks, beside the limit of the machine in the same run.
//!
//! `cargo bench --bench convolution -- [--threads N] [--rounds N] [--varying] [FILTER]` measures the rows
//! whose names hold the filter. The limit is a loop of multiplications and additions in registers, of f32, of
//! pairs of bf16 or of 8-bit integers, on as many threads, or a loop that reads as many bytes as image and
//! result have, if that takes longer. Integers are u8 and s8, behind a Dequantize each. Weights are constant;
//! with `--varying` they are inputs that each execution packs. A name has the channels of the image, the
//! spatial dims of the image, the kernel, the stride, the channels of the result, the groups, and how often
//! the network has the layer. `data` and `weights` stand before the gradients of a layer, `transposed` before
//! the ConvTranspose whose result is the image. `--list` prints the names.

#[path = "limits/mod.rs"]
mod limits;

use std::time::Instant;

use sterna::{Attr, DataType, Engine, Graph, LogicalTensor, Op, OpKind, Policy, Property, Stream, TensorBuf};

/// Least time of one sample, so that reading the clock does not matter.
const SAMPLE_SECONDS: f64 = 0.002;

/// The types of the operands. Integers are u8 and s8.
const TYPES: [DataType; 3] = [DataType::F32, DataType::Bf16, DataType::S8];

/// A layer of a network.
struct Layer {
    name: &'static str,
    /// Channels of the image and of the result.
    channels: [i64; 2],
    image: &'static [i64],
    kernel: i64,
    stride: i64,
    groups: i64,
    /// How often the network has the layer.
    times: usize,
}

const fn layer(
    name: &'static str,
    from: i64,
    image: &'static [i64],
    kernel: i64,
    stride: i64,
    to: i64,
) -> Layer {
    Layer { name, channels: [from, to], image, kernel, stride, groups: 1, times: 1 }
}

const fn depthwise(
    name: &'static str,
    channels: i64,
    image: &'static [i64],
    kernel: i64,
    stride: i64,
) -> Layer {
    Layer { name, channels: [channels; 2], image, kernel, stride, groups: channels, times: 1 }
}

impl Layer {
    const fn times(self, times: usize) -> Self {
        Self { times, ..self }
    }

    const fn groups(self, groups: i64) -> Self {
        Self { groups, ..self }
    }
}

const LAYERS: &[Layer] = &[
    layer("resnet", 3, &[224, 224], 7, 2, 64),
    layer("resnet", 64, &[56, 56], 1, 1, 256).times(4),
    layer("resnet", 64, &[56, 56], 3, 1, 64).times(3),
    layer("resnet", 128, &[56, 56], 3, 2, 128),
    layer("resnet", 256, &[56, 56], 1, 2, 512),
    layer("resnet", 128, &[28, 28], 3, 1, 128).times(3),
    layer("resnet", 256, &[14, 14], 3, 1, 256).times(5),
    layer("resnet", 512, &[7, 7], 3, 1, 512).times(2),
    layer("resnet", 512, &[7, 7], 1, 1, 2048).times(3),
    layer("resnext", 256, &[28, 28], 3, 1, 256).groups(32).times(3),
    depthwise("mobilenet", 32, &[112, 112], 3, 1),
    depthwise("mobilenet", 144, &[56, 56], 3, 2),
    depthwise("mobilenet", 384, &[14, 14], 3, 1).times(4),
    depthwise("mobilenet", 960, &[7, 7], 3, 1).times(3),
    depthwise("convnext", 96, &[56, 56], 7, 1).times(3),
    layer("vit", 3, &[224, 224], 16, 16, 768),
    layer("whisper", 80, &[3000], 3, 1, 384),
    layer("whisper", 384, &[3000], 3, 2, 384),
    layer("video", 16, &[16, 28, 28], 3, 1, 32),
    layer("resnet", 64, &[56, 56], 1, 1, 64),
    layer("resnet", 256, &[56, 56], 1, 1, 64).times(2),
    layer("resnet", 256, &[56, 56], 1, 1, 128),
    layer("resnet", 128, &[28, 28], 1, 1, 512).times(4),
    layer("resnet", 512, &[28, 28], 1, 1, 128).times(3),
    layer("resnet", 512, &[28, 28], 1, 1, 256),
    layer("resnet", 256, &[28, 28], 3, 2, 256),
    layer("resnet", 256, &[14, 14], 1, 1, 1024).times(6),
    layer("resnet", 512, &[28, 28], 1, 2, 1024),
    layer("resnet", 1024, &[14, 14], 1, 1, 256).times(5),
    layer("resnet", 1024, &[14, 14], 1, 1, 512),
    layer("resnet", 512, &[14, 14], 3, 2, 512),
    layer("resnet", 1024, &[14, 14], 1, 2, 2048),
    layer("resnet", 2048, &[7, 7], 1, 1, 512).times(2),
    layer("resnext", 128, &[56, 56], 3, 1, 128).groups(32).times(3),
    layer("resnext", 256, &[56, 56], 3, 2, 256).groups(32),
    layer("resnext", 512, &[28, 28], 3, 2, 512).groups(32),
    layer("resnext", 512, &[14, 14], 3, 1, 512).groups(32).times(5),
    layer("resnext", 1024, &[14, 14], 3, 2, 1024).groups(32),
    layer("resnext", 1024, &[7, 7], 3, 1, 1024).groups(32).times(2),
    layer("mobilenet", 3, &[224, 224], 3, 2, 32),
    layer("mobilenet", 32, &[112, 112], 1, 1, 16),
    layer("mobilenet", 16, &[112, 112], 1, 1, 96),
    depthwise("mobilenet", 96, &[112, 112], 3, 2),
    layer("mobilenet", 96, &[56, 56], 1, 1, 24),
    layer("mobilenet", 24, &[56, 56], 1, 1, 144).times(2),
    depthwise("mobilenet", 144, &[56, 56], 3, 1),
    layer("mobilenet", 144, &[56, 56], 1, 1, 24),
    layer("mobilenet", 144, &[28, 28], 1, 1, 32),
    layer("mobilenet", 32, &[28, 28], 1, 1, 192).times(3),
    depthwise("mobilenet", 192, &[28, 28], 3, 1).times(2),
    layer("mobilenet", 192, &[28, 28], 1, 1, 32).times(2),
    depthwise("mobilenet", 192, &[28, 28], 3, 2),
    layer("mobilenet", 192, &[14, 14], 1, 1, 64),
    layer("mobilenet", 64, &[14, 14], 1, 1, 384).times(4),
    layer("mobilenet", 384, &[14, 14], 1, 1, 64).times(3),
    layer("mobilenet", 384, &[14, 14], 1, 1, 96),
    layer("mobilenet", 96, &[14, 14], 1, 1, 576).times(3),
    depthwise("mobilenet", 576, &[14, 14], 3, 1).times(2),
    layer("mobilenet", 576, &[14, 14], 1, 1, 96).times(2),
    depthwise("mobilenet", 576, &[14, 14], 3, 2),
    layer("mobilenet", 576, &[7, 7], 1, 1, 160),
    layer("mobilenet", 160, &[7, 7], 1, 1, 960).times(3),
    layer("mobilenet", 960, &[7, 7], 1, 1, 160).times(2),
    layer("mobilenet", 960, &[7, 7], 1, 1, 320),
    layer("mobilenet", 320, &[7, 7], 1, 1, 1280),
];

/// How many of these layers have rows for their gradients.
const OF_GRADIENTS: usize = 14;

/// Layers whose images are results of transposed convolutions.
const TRANSPOSED: &[Layer] = &[
    layer("unet", 64, &[112, 112], 2, 2, 128),
    layer("unet", 256, &[28, 28], 2, 2, 512),
    layer("dcgan", 64, &[64, 64], 4, 2, 128),
    layer("dcgan", 256, &[16, 16], 4, 2, 512),
    layer("fcn", 64, &[56, 56], 3, 1, 64),
];

struct Row {
    kind: OpKind,
    name: String,
    layer: &'static Layer,
    data_type: DataType,
    has_channels_last: bool,
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (data_type, has_channels_last) in TYPES.into_iter().flat_map(|t| [false, true].map(|last| (t, last)))
    {
        let of_kind = |kind, layers: &'static [Layer]| layers.iter().map(move |layer| (kind, layer));
        let gradients = if data_type == DataType::S8 { 0 } else { OF_GRADIENTS };
        let layers = of_kind(OpKind::Convolution, LAYERS)
            .chain(of_kind(OpKind::ConvTranspose, TRANSPOSED))
            .chain(of_kind(OpKind::ConvolutionBackwardData, &LAYERS[..gradients]))
            .chain(of_kind(OpKind::ConvolutionBackwardWeights, &LAYERS[..gradients]));
        for (kind, layer) in layers {
            let before = match kind {
                OpKind::ConvTranspose => "transposed ",
                OpKind::ConvolutionBackwardData => "data ",
                OpKind::ConvolutionBackwardWeights => "weights ",
                _ => "",
            };
            let Layer { name, channels: [from, to], image, kernel, stride, groups, times } = layer;
            let format = if has_channels_last { "nxc" } else { "ncx" };
            let image: Vec<String> = image.iter().map(i64::to_string).collect();
            let image = image.join("x");
            let name = format!("{before}{name} {data_type} {format} {from}x{image} k{kernel} s{stride} {to}");
            let name = format!("{name} g{groups} x{times}");
            rows.push(Row { kind, name, layer, data_type, has_channels_last });
        }
    }
    rows
}

impl Row {
    /// Padding on both sides of each spatial dim: as much as keeps its size, but none of patches.
    fn pad(&self) -> i64 {
        if self.layer.stride == self.layer.kernel { 0 } else { (self.layer.kernel - 1) / 2 }
    }

    fn windows(&self) -> Vec<i64> {
        let Layer { kernel, stride, image, .. } = self.layer;
        image.iter().map(|size| (size + 2 * self.pad() - kernel) / stride + 1).collect()
    }

    fn data(&self, channels: i64, spatial: &[i64]) -> Vec<i64> {
        match self.has_channels_last {
            true => [&[1], spatial, &[channels]].concat(),
            false => [&[1, channels], spatial].concat(),
        }
    }

    fn flops(&self) -> f64 {
        let Layer { kernel, channels: [from, to], groups, image, .. } = self.layer;
        let taps = kernel.pow(image.len() as u32);
        (2 * self.windows().iter().product::<i64>() * to * from / groups * taps) as f64
    }

    /// Bytes of image and result.
    fn bytes(&self) -> usize {
        let [from, to] = self.layer.channels;
        let size = self.data_type.size().unwrap_or(1);
        let of_result = if self.data_type == DataType::S8 { 4 } else { size };
        let [image, result] = [self.layer.image, &self.windows()].map(|dims| dims.iter().product::<i64>());
        (from * image) as usize * size + (to * result) as usize * of_result
    }

    fn graph(&self, varying: bool) -> Graph {
        let Layer { kernel, stride, channels: [from, to], groups, image, .. } = self.layer;
        let is_integer = self.data_type == DataType::S8;
        let t = if is_integer { DataType::F32 } else { self.data_type };
        let desc = |id, t, dims: &[i64]| LogicalTensor::strided(id, t, dims).expect("the dims are small");
        let taps = vec![*kernel; image.len()];
        let weights = match self.has_channels_last {
            true => [&taps[..], &[from / groups, *to]].concat(),
            false => [&[*to, from / groups], &taps[..]].concat(),
        };
        let of_data = [self.data(*from, image), self.data(*to, &self.windows())];
        let [of_image, of_windows] = of_data.clone();
        let (dims, result, channels) = match self.kind {
            OpKind::Convolution => ([of_image, weights.clone()], of_windows, *to),
            OpKind::ConvolutionBackwardWeights => (of_data, weights.clone(), 0),
            _ => ([of_windows, weights.clone()], of_image, *from),
        };
        let constant = |of: LogicalTensor| match varying {
            true => of,
            false => of.with_property(Property::Constant).expect("any tensor can be one"),
        };
        let mut graph = Graph::new();
        let second = desc(1, t, &dims[1]);
        let is_of_weights = self.kind == OpKind::ConvolutionBackwardWeights;
        let mut inputs = vec![desc(0, t, &dims[0]), if is_of_weights { second } else { constant(second) }];
        if is_integer {
            let sources = [desc(10, DataType::U8, &dims[0]), constant(desc(11, DataType::S8, &dims[1]))];
            inputs[1] = desc(1, t, &dims[1]);
            for (id, (source, to)) in sources.into_iter().zip(&inputs).enumerate() {
                let zero = if id == 0 { 128i64 } else { 0 };
                let op = Op::new(10 + id, OpKind::Dequantize).attr(Attr::Scales, vec![0.001f32]);
                let op = op.attr(Attr::Zps, vec![zero]).input(source).output(to.clone());
                graph.add_op(op).expect("the op fits its schema");
            }
        }
        if [OpKind::Convolution, OpKind::ConvTranspose].contains(&self.kind) {
            inputs.push(desc(2, t, &[channels]));
        }
        let weights_format = match (self.kind == OpKind::ConvTranspose, self.has_channels_last) {
            (false, true) => "XIO",
            (false, false) => "OIX",
            (true, true) => "XOI",
            (true, false) => "IOX",
        };
        let data_format = if self.has_channels_last { "NXC" } else { "NCX" };
        let each = |number: i64| vec![number; image.len()];
        let op = Op::new(0, self.kind)
            .attr(Attr::Strides, each(*stride))
            .attr(Attr::Dilations, each(1))
            .attr(Attr::PadsBegin, each(self.pad()))
            .attr(Attr::PadsEnd, each(self.pad()))
            .attr(Attr::Groups, *groups)
            .attr(Attr::DataFormat, data_format)
            .attr(Attr::WeightsFormat, weights_format)
            .inputs_from(inputs)
            .output(desc(3, t, &result));
        let op = match self.kind {
            OpKind::ConvTranspose => {
                let covered =
                    |(size, windows): (&i64, i64)| size - (windows - 1) * stride - kernel + 2 * self.pad();
                let beyond: Vec<i64> = image.iter().zip(self.windows()).map(covered).collect();
                op.attr(Attr::OutputPadding, beyond)
            }
            OpKind::ConvolutionBackwardData => op.attr(Attr::DstShape, result),
            OpKind::ConvolutionBackwardWeights => op.attr(Attr::WeightsShape, result),
            _ => op,
        };
        graph.add_op(op).expect("the op fits its schema");
        graph.finalize().expect("the graph is whole");
        graph
    }
}

/// Small numbers that follow no simple pattern.
fn filled(desc: &LogicalTensor, engine: &Engine) -> TensorBuf {
    let mut tensor = TensorBuf::zeroed(desc.clone(), engine).expect("there is memory");
    let t = desc.data_type();
    for (at, element) in tensor.as_mut_bytes().chunks_exact_mut(t.size().unwrap_or(1)).enumerate() {
        let number = ((at.wrapping_mul(2_654_435_761) >> 7) % 1024) as f32 / 512.0 - 1.0;
        match t {
            DataType::F32 => element.copy_from_slice(&number.to_le_bytes()),
            DataType::Bf16 => element.copy_from_slice(&number.to_le_bytes()[2..]),
            _ => element.fill((at.wrapping_mul(2_654_435_761) >> 9) as u8),
        }
    }
    tensor
}

/// Seconds of one execution: the best of some rounds.
fn seconds(row: &Row, varying: bool, threads: usize, rounds: usize) -> f64 {
    let engine = Engine::builder().threads(threads).build();
    let partitions = row.graph(varying).partitions(Policy::Fusion).expect("the graph is finalized");
    let compiled = partitions[0].compile(&engine).expect("the layer is supported");
    let tensors: Vec<TensorBuf> = compiled.inputs().iter().map(|desc| filled(desc, &engine)).collect();
    let inputs: Vec<_> = tensors.iter().map(TensorBuf::as_tensor).collect();
    let mut output = TensorBuf::zeroed(compiled.outputs()[0].clone(), &engine).expect("there is memory");
    let (stream, mut outputs) = (Stream::new(&engine), [output.as_tensor_mut()]);
    let mut time = |runs: usize| {
        let start = Instant::now();
        (0..runs).for_each(|_| compiled.execute(&stream, &inputs, &mut outputs).expect("the tensors fit"));
        start.elapsed().as_secs_f64() / runs as f64
    };
    let once = time(1).min(time(1));
    let runs = ((SAMPLE_SECONDS / once.max(1e-9)).ceil().min(1e6) as usize).max(1);
    (0..rounds).map(|_| time(runs)).fold(f64::MAX, f64::min)
}

/// The number behind an option of the command line.
fn option(arguments: &[String], name: &str) -> Option<usize> {
    let at = arguments.iter().position(|argument| argument == name)?;
    arguments.get(at + 1)?.parse().ok()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_bench = arguments.iter().any(|argument| argument == "--bench");
    let rounds = if is_bench { option(&arguments, "--rounds").unwrap_or(9) } else { 1 };
    let is_filter = |at: usize| at == 0 || !["--threads", "--rounds"].contains(&&arguments[at - 1][..]);
    let filters: Vec<&String> = (arguments.iter().enumerate())
        .filter(|&(at, argument)| !argument.starts_with('-') && is_filter(at))
        .map(|(_, argument)| argument)
        .collect();
    let is_wanted = |row: &Row| filters.iter().all(|filter| row.name.contains(filter.as_str()));
    if arguments.iter().any(|argument| argument == "--list") {
        rows().iter().filter(|row| is_wanted(row)).for_each(|row| println!("{}", row.name));
        return;
    }
    let varying = arguments.iter().any(|argument| argument == "--varying");
    let most = option(&arguments, "--threads").unwrap_or(2);
    for threads in if most > 1 { vec![1, most] } else { vec![1] } {
        println!("\n{threads} thread{}", if threads == 1 { "" } else { "s" });
        let arithmetic = TYPES.map(|t| (t, limits::arithmetic(t, threads, rounds)));
        for (data_type, limit) in arithmetic {
            println!("limit of {data_type}: {:.1} G operations/s in registers", limit / 1e9);
        }
        println!("{:<60}{:>12}{:>12}{:>10}", "row", "µs", "G/s", "of limit");
        for row in rows().iter().filter(|row| is_wanted(row)) {
            let own = seconds(row, varying, threads, rounds);
            let reading = row.bytes() as f64 / limits::reading(row.bytes(), threads, rounds);
            let limit = reading.max(row.flops() / limits::of(row.data_type, &arithmetic));
            let rate = row.flops() / own / 1e9;
            println!("{:<60}{:>12.1}{rate:>12.1}{:>10.2}", row.name, own * 1e6, limit / own);
        }
    }
}
