//! Ops that run as several others: sums over all but the channels, and functions of elements.
//!
//! The shapes are known here, so that axes can be named. Tensors between the ops are f32, and f64 if digits
//! cancel.

use crate::error::Result;
use crate::graph::infer;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::{AttrValue, Op};
use crate::graph::windows;
use crate::types::dtype::DataType;
use crate::types::id::TensorId;
use crate::types::kind::{Attr, OpKind};

use OpKind as K;

/// The ops that run in place of one on inputs of some dims, in an order in which they can run; none if it
/// runs as it is. `fresh` gives ids of tensors between them.
pub(super) fn form_of(op: &Op, inputs: &[&[i64]], fresh: &mut dyn FnMut() -> TensorId) -> Result<Vec<Op>> {
    match op.kind() {
        K::AvgPool | K::MaxPool => Ok(whole_image(op, inputs)?.into_iter().collect()),
        K::BatchNormForwardTraining => OpsInPlace::new(op, inputs[0], fresh)?.forward_training(),
        K::BatchNormTrainingBackward => OpsInPlace::new(op, inputs[0], fresh)?.training_backward(),
        _ => Ok(Vec::new()),
    }
}

/// The reduction that a pool is whose only window is the image.
fn whole_image(op: &Op, inputs: &[&[i64]]) -> Result<Option<Op>> {
    let Some(windows) = windows::windows(op, inputs)? else { return Ok(None) };
    let counts_padding = op.kind() == K::AvgPool
        && !op.bool_attr(Attr::ExcludePad)
        && op.str_attr(Attr::RoundingType) != Some("ceil");
    let is_image = windows.dims.iter().all(|dim| {
        let taps = dim.taps(0);
        dim.windows == 1 && taps.end - taps.start == dim.image && (!counts_padding || dim.kernel == dim.image)
    });
    let first = windows.data.spatial as i64;
    let axes: Vec<i64> = (first..first + windows.dims.len() as i64).collect();
    let kind = if op.kind() == K::AvgPool { K::ReduceMean } else { K::ReduceMax };
    let reduction = Op::new(op.id(), kind).named(op.name()).attr(Attr::Axes, axes).attr(Attr::KeepDims, true);
    let reduction = reduction.input(op.inputs()[0].clone()).output(op.outputs()[0].clone());
    Ok(is_image.then_some(reduction))
}

/// Ops of batch normalisation so far.
struct OpsInPlace<'f> {
    op: &'f Op,
    src: &'f [i64],
    /// The dim of the channels, and the number of elements of each.
    axis: usize,
    count: f64,
    ops: Vec<Op>,
    fresh: &'f mut dyn FnMut() -> TensorId,
}

impl<'f> OpsInPlace<'f> {
    fn new(op: &'f Op, src: &'f [i64], fresh: &'f mut dyn FnMut() -> TensorId) -> Result<Self> {
        let axis = infer::channel_axis(op, src)?;
        let count = (0..src.len()).filter(|&dim| dim != axis).map(|dim| src[dim] as f64).product();
        Ok(Self { op, src, axis, count, ops: Vec::new(), fresh })
    }

    /// Mean and variance of the batch, with which the source is normalised; and both beside the running ones.
    fn forward_training(mut self) -> Result<Vec<Op>> {
        let (inputs, outputs) = (self.op.inputs(), self.op.outputs());
        let src = &inputs[0];
        // Of nothing both are 0.
        let (mean, variance) = match self.count == 0.0 {
            true => (self.filled(0.0), self.filled(0.0)),
            false => self.moments(src),
        };
        let gamma = inputs.get(3).cloned().unwrap_or_else(|| self.filled(1.0));
        let beta = inputs.get(4).cloned().unwrap_or_else(|| self.filled(0.0));
        self.normalised([src, &gamma, &beta, &mean, &variance], outputs[0].clone(), self.epsilon());
        let momentum = self.op.f32_attr(Attr::Momentum).unwrap_or(0.5);
        for (index, batch) in [mean, variance].iter().enumerate() {
            let rounded = &outputs[3 + index];
            self.write(K::TypeCast, &[batch], rounded.clone());
            let old = self.scaled(&inputs[1 + index], momentum);
            let new = self.scaled(rounded, 1.0 - momentum);
            self.write(K::Add, &[&old, &new], outputs[1 + index].clone());
        }
        Ok(self.ops)
    }

    /// Mean and variance of each channel, from sums of numbers and of squares in f64.
    fn moments(&mut self, src: &LogicalTensor) -> (LogicalTensor, LogicalTensor) {
        let wide = DataType::F64;
        let mean = self.of_channels_as(K::ReduceMean, src, wide);
        let size = self.of_channels_as(K::ReduceL2, src, wide);
        // A number of f32 and the rest.
        let most = self.count as f32;
        let rest = (self.count - f64::from(most)) as f32;
        let [most, rest, zero] = [most, rest, 0.0].map(|number| self.filled_as(number, wide));
        let count = self.of_as(K::Add, &[&most, &rest], wide);
        let squares = self.of_as(K::Multiply, &[&size, &size], wide);
        let squares = self.of_as(K::Divide, &[&squares, &count], wide);
        let square = self.of_as(K::Multiply, &[&mean, &mean], wide);
        let variance = self.of_as(K::Subtract, &[&squares, &square], wide);
        let variance = self.of_as(K::Maximum, &[&variance, &zero], wide);
        (self.of(K::Cast, &[&mean]), self.of(K::Cast, &[&variance]))
    }

    /// The sums of the gradient and of its products with the normalised source, and the gradient less what
    /// the means take.
    fn training_backward(mut self) -> Result<Vec<Op>> {
        let (inputs, outputs) = (self.op.inputs(), self.op.outputs());
        let [src, gradient, mean, variance] = [0, 1, 2, 3].map(|port| &inputs[port]);
        let (one, zero) = (self.filled(1.0), self.filled(0.0));
        let [of_gamma, of_beta] = self.sums_backward();
        let normal = self.tensor();
        self.normalised([src, &one, &zero, mean, variance], normal.clone(), self.epsilon());
        for (sum, output) in [&of_gamma, &of_beta].into_iter().zip(&outputs[1..]) {
            self.write(K::TypeCast, &[sum], output.clone());
        }
        let [of_gamma, of_beta] = [of_gamma, of_beta].map(|sum| {
            let count = self.filled(self.count as f32);
            let mean = self.of(K::Divide, &[&sum, &count]);
            self.along(&mean)
        });
        let epsilon = self.filled(self.epsilon());
        let sum = self.of(K::Add, &[variance, &epsilon]);
        let deviation = self.of(K::Sqrt, &[&sum]);
        let gamma = inputs.get(4).unwrap_or(&one);
        let factor = self.of(K::Divide, &[gamma, &deviation]);
        let factor = self.along(&factor);
        let taken = self.of(K::Multiply, &[&normal, &of_gamma]);
        let left = self.of(K::Subtract, &[gradient, &of_beta]);
        let left = self.of(K::Subtract, &[&left, &taken]);
        self.write(K::Multiply, &[&left, &factor], outputs[0].clone());
        Ok(self.ops)
    }

    /// The gradients of gamma and beta, from an op whose gradient of the source nobody reads.
    fn sums_backward(&mut self) -> [LogicalTensor; 2] {
        let unused = self.tensor_as(self.op.inputs()[0].data_type());
        let sums = [self.tensor(), self.tensor()];
        let op = Op::new(self.op.id(), self.op.kind()).named(self.op.name());
        let op = self.op.attrs().fold(op, |op, (attr, value)| op.attr(attr, value.clone()));
        let op = op.inputs_from(self.op.inputs().iter().cloned()).output(unused);
        self.ops.push(sums.iter().fold(op, |op, sum| op.output(sum.clone())));
        sums
    }

    fn epsilon(&self) -> f32 {
        self.op.f32_attr(Attr::Epsilon).unwrap_or(0.0)
    }

    fn tensor(&mut self) -> LogicalTensor {
        self.tensor_as(DataType::F32)
    }

    fn tensor_as(&mut self, data_type: DataType) -> LogicalTensor {
        LogicalTensor::unknown((self.fresh)(), data_type)
    }

    fn add(
        &mut self,
        kind: OpKind,
        inputs: &[&LogicalTensor],
        attrs: &[(Attr, AttrValue)],
        to: LogicalTensor,
    ) {
        let op = Op::new(self.op.id(), kind).named(self.op.name());
        let op = attrs.iter().fold(op, |op, (attr, value)| op.attr(*attr, value.clone()));
        self.ops.push(op.inputs_from(inputs.iter().map(|&input| input.clone())).output(to));
    }

    fn write(&mut self, kind: OpKind, inputs: &[&LogicalTensor], to: LogicalTensor) {
        self.add(kind, inputs, &[], to);
    }

    fn of(&mut self, kind: OpKind, inputs: &[&LogicalTensor]) -> LogicalTensor {
        self.of_as(kind, inputs, DataType::F32)
    }

    fn of_as(&mut self, kind: OpKind, inputs: &[&LogicalTensor], data_type: DataType) -> LogicalTensor {
        let to = self.tensor_as(data_type);
        self.write(kind, inputs, to.clone());
        to
    }

    /// The same number for each channel.
    fn filled(&mut self, number: f32) -> LogicalTensor {
        self.filled_as(number, DataType::F32)
    }

    fn filled_as(&mut self, number: f32, data_type: DataType) -> LogicalTensor {
        let to = self.tensor_as(data_type);
        let attrs = [(Attr::Shape, vec![self.src[self.axis]].into()), (Attr::Value, number.into())];
        self.add(K::Fill, &[], &attrs, to.clone());
        to
    }

    fn scaled(&mut self, numbers: &LogicalTensor, factor: f32) -> LogicalTensor {
        let factor = self.filled(factor);
        self.of(K::Multiply, &[numbers, &factor])
    }

    /// A number for each channel, of all its elements.
    fn of_channels_as(&mut self, kind: OpKind, of: &LogicalTensor, data_type: DataType) -> LogicalTensor {
        let to = self.tensor_as(data_type);
        let axes: Vec<i64> =
            (0..self.src.len()).filter(|&dim| dim != self.axis).map(|dim| dim as i64).collect();
        self.add(kind, &[of], &[(Attr::Axes, axes.into())], to.clone());
        to
    }

    /// The numbers of channels with dims that broadcast onto the source.
    fn along(&mut self, numbers: &LogicalTensor) -> LogicalTensor {
        let mut dims = vec![1; self.src.len() - self.axis];
        dims[0] = self.src[self.axis];
        let to = self.tensor();
        self.add(K::StaticReshape, &[numbers], &[(Attr::Shape, dims.into())], to.clone());
        to
    }

    /// The distances of a source from means, times a factor by the deviation, plus an addend.
    fn normalised(&mut self, of: [&LogicalTensor; 5], to: LogicalTensor, epsilon: f32) {
        let format = self.op.str_attr(Attr::DataFormat).unwrap_or("NXC").to_owned();
        let attrs = [(Attr::Epsilon, epsilon.into()), (Attr::DataFormat, format.as_str().into())];
        self.add(K::BatchNormInference, &of, &attrs, to);
    }
}
