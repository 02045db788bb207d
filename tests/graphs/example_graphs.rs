//! The graphs of `examples/graphs/` that come from code: what transformers put around a select.
//!
//! With `STERNA_REWRITE` set in the environment, the files are written anew.
#![cfg(feature = "json")]

use std::collections::BTreeMap;

use crate::common::{Golden, report};
use sterna::reference::{self, Value};
use sterna::{Attr, DataType, Graph, LogicalTensor, Op, OpKind, Property};

use DataType as D;
use OpKind as K;

/// A graph under way: ops and tensors get the next ids.
#[derive(Default)]
struct Builder {
    graph: Graph,
    tensors: usize,
}

impl Builder {
    fn tensor(&mut self, data_type: DataType, dims: &[i64]) -> LogicalTensor {
        self.tensors += 1;
        LogicalTensor::strided(self.tensors - 1, data_type, dims).unwrap()
    }

    /// An input that changes from run to run.
    fn input(&mut self, data_type: DataType, dims: &[i64]) -> LogicalTensor {
        self.tensor(data_type, dims).with_property(Property::Variable).unwrap()
    }

    /// A weight.
    fn constant(&mut self, data_type: DataType, dims: &[i64]) -> LogicalTensor {
        self.tensor(data_type, dims).with_property(Property::Constant).unwrap()
    }

    fn host_scalar(&mut self, data_type: DataType) -> LogicalTensor {
        self.tensors += 1;
        LogicalTensor::host_scalar(self.tensors - 1, data_type).unwrap()
    }

    /// Adds an op whose result has a type and dims.
    fn op(
        &mut self,
        name: &str,
        kind: OpKind,
        inputs: &[&LogicalTensor],
        data_type: DataType,
        dims: &[i64],
    ) -> LogicalTensor {
        self.op_with(name, kind, inputs, data_type, dims, |op| op)
    }

    /// The same, with attributes.
    fn op_with(
        &mut self,
        name: &str,
        kind: OpKind,
        inputs: &[&LogicalTensor],
        data_type: DataType,
        dims: &[i64],
        attrs: impl FnOnce(Op) -> Op,
    ) -> LogicalTensor {
        let result = self.tensor(data_type, dims);
        let op = Op::new(self.graph.ops().len(), kind).named(name);
        let op = op.inputs_from(inputs.iter().map(|&tensor| tensor.clone())).output(result.clone());
        self.graph.add_op(attrs(op)).unwrap();
        result
    }

    fn fill(&mut self, name: &str, data_type: DataType, value: f32) -> LogicalTensor {
        let attrs = |op: Op| op.attr(Attr::Shape, Vec::<i64>::new()).attr(Attr::Value, value);
        self.op_with(name, K::Fill, &[], data_type, &[], attrs)
    }

    fn index(&mut self, name: &str, of: &LogicalTensor, axis: i64) -> LogicalTensor {
        let dims = of.dims().unwrap().to_vec();
        self.op_with(name, K::GenIndex, &[of], D::S32, &dims, |op| op.axis(axis))
    }
}

/// Attention scores, scaled, with the future masked out by the indices of row and column.
fn causal_scale_select(b: &mut Builder) {
    let scores = [2, 12, 64, 64];
    let x = b.input(D::F32, &scores);
    let scale = b.host_scalar(D::F32);
    let (row, column) = (b.index("row", &x, -2), b.index("column", &x, -1));
    let visible = b.op("visible", K::GreaterEqual, &[&row, &column], D::Boolean, &scores);
    let scaled = b.op("scale", K::Multiply, &[&x, &scale], D::F32, &scores);
    let lowest = b.fill("lowest", D::F32, f32::MIN);
    b.op("mask", K::Select, &[&visible, &scaled, &lowest], D::F32, &scores);
}

/// The form of implicit causal masks in oneDNN's own graphs, from the result of the first product on: the
/// indices take their shape from the scaled scores.
fn implicit_causal_mask(b: &mut Builder) {
    let scores = [1, 16, 384, 384];
    let x = b.input(D::F32, &scores);
    let (scale, lowest) = (b.constant(D::F32, &[1]), b.constant(D::F32, &[1]));
    let scaled = b.op("scale", K::Multiply, &[&x, &scale], D::F32, &scores);
    let (row, column) = (b.index("row", &scaled, 2), b.index("column", &scaled, 3));
    let visible = b.op("visible", K::GreaterEqual, &[&row, &column], D::Boolean, &scores);
    b.op("mask", K::Select, &[&visible, &scaled, &lowest], D::F32, &scores);
}

/// A bias of positions that all samples share, then a mask of padding that all heads and rows share.
fn padding_bias_select(b: &mut Builder) {
    let scores = [4, 8, 64, 64];
    let x = b.input(D::F32, &scores);
    let bias = b.constant(D::F32, &[1, 8, 64, 64]);
    let attended = b.input(D::Boolean, &[4, 1, 1, 64]);
    let biased = b.op("bias", K::Add, &[&x, &bias], D::F32, &scores);
    let lowest = b.fill("lowest", D::F32, f32::NEG_INFINITY);
    b.op("mask", K::Select, &[&attended, &biased, &lowest], D::F32, &scores);
}

/// Rows of a softmax that attend to nothing are NaN, and become 0.
fn safe_softmax_guard(b: &mut Builder) {
    let scores = [2, 12, 64, 64];
    let x = b.input(D::F32, &scores);
    let empty = b.op("empty", K::IsNaN, &[&x], D::Boolean, &scores);
    let zero = b.fill("zero", D::F32, 0.0);
    b.op("guard", K::Select, &[&empty, &zero, &x], D::F32, &scores);
}

/// A feed-forward layer's gate in bf16, cut off for tokens that are padding.
fn gelu_gated_select(b: &mut Builder) {
    let hidden = [2, 32, 1024];
    let (gate, up) = (b.input(D::Bf16, &hidden), b.input(D::Bf16, &hidden));
    let token = b.input(D::Boolean, &[2, 32, 1]);
    let attrs = |op: Op| op.attr(Attr::Mode, "gelu_tanh");
    let gate = b.op_with("gelu", K::GELU, &[&gate], D::Bf16, &hidden, attrs);
    let gated = b.op("gate", K::Multiply, &[&gate, &up], D::Bf16, &hidden);
    let zero = b.fill("zero", D::Bf16, 0.0);
    b.op("keep", K::Select, &[&token, &gated, &zero], D::Bf16, &hidden);
}

/// NaN becomes 0, infinities become the largest numbers.
fn nan_to_num(b: &mut Builder) {
    let hidden = [2, 32, 768];
    let mut x = b.input(D::F32, &hidden);
    let nan = b.op("nan", K::IsNaN, &[&x], D::Boolean, &hidden);
    let zero = b.fill("zero", D::F32, 0.0);
    x = b.op("without_nan", K::Select, &[&nan, &zero, &x], D::F32, &hidden);
    for (name, infinity, largest) in
        [("plus", f32::INFINITY, f32::MAX), ("minus", f32::NEG_INFINITY, f32::MIN)]
    {
        let infinity = b.fill(&format!("{name}_infinity"), D::F32, infinity);
        let largest = b.fill(&format!("{name}_largest"), D::F32, largest);
        let infinite = b.op(&format!("{name}_infinite"), K::Equal, &[&x, &infinity], D::Boolean, &hidden);
        x = b.op(&format!("without_{name}"), K::Select, &[&infinite, &largest, &x], D::F32, &hidden);
    }
}

/// The mask of shifted windows: tokens of different regions see −100, others 0; all heads share it.
fn swin_selects(b: &mut Builder) {
    let (mask, scores) = ([16, 1, 49, 49], [16, 6, 49, 49]);
    let (row, column) = (b.input(D::F32, &[16, 1, 49, 1]), b.input(D::F32, &[16, 1, 1, 49]));
    let x = b.input(D::F32, &scores);
    let difference = b.op("difference", K::Subtract, &[&column, &row], D::F32, &mask);
    let (zero, far) = (b.fill("zero", D::F32, 0.0), b.fill("far", D::F32, -100.0));
    let apart = b.op("apart", K::NotEqual, &[&difference, &zero], D::Boolean, &mask);
    let hidden = b.op("hide", K::Select, &[&apart, &far, &difference], D::F32, &mask);
    let together = b.op("together", K::Equal, &[&difference, &zero], D::Boolean, &mask);
    let bias = b.op("show", K::Select, &[&together, &zero, &hidden], D::F32, &mask);
    b.op("add", K::Add, &[&x, &bias], D::F32, &scores);
}

/// The gradient of a clamp, as autograd writes it: of the bounds themselves it lets the gradient through.
fn clamp_backward(b: &mut Builder) {
    let hidden = [2, 32, 768];
    let (x, gradient) = (b.input(D::F32, &hidden), b.input(D::F32, &hidden));
    let (low, high, zero) =
        (b.fill("low", D::F32, -1.0), b.fill("high", D::F32, 1.0), b.fill("zero", D::F32, 0.0));
    let above = b.op("above", K::GreaterEqual, &[&x, &low], D::Boolean, &hidden);
    let below = b.op("below", K::LessEqual, &[&x, &high], D::Boolean, &hidden);
    let inside = b.op("inside", K::LogicalAnd, &[&above, &below], D::Boolean, &hidden);
    b.op("gradient", K::Select, &[&inside, &gradient, &zero], D::F32, &hidden);
}

/// The bucket of a relative position in T5, both directions, 32 buckets, distances up to 128: half of each
/// direction's buckets are one position wide, the others grow by the logarithm.
fn t5_bucket(b: &mut Builder) {
    let square = [64, 64];
    let lender = b.input(D::F32, &square);
    let (query, key) = (b.index("query", &lender, 0), b.index("key", &lender, 1));
    let offset = b.op("offset_s32", K::Subtract, &[&key, &query], D::S32, &square);
    let offset = b.op("offset", K::Cast, &[&offset], D::S64, &square);
    let (zero, side) = (b.fill("zero", D::S64, 0.0), b.fill("side", D::S64, 16.0));
    let forward = b.op("forward", K::Greater, &[&offset, &zero], D::Boolean, &square);
    let forward = b.op("forward_s64", K::Cast, &[&forward], D::S64, &square);
    let forward = b.op("forward_side", K::Multiply, &[&forward, &side], D::S64, &square);
    let opposite = b.op("opposite", K::Subtract, &[&zero, &offset], D::S64, &square);
    let distance = b.op("distance", K::Maximum, &[&offset, &opposite], D::S64, &square);

    let exact = b.fill("exact", D::S64, 8.0);
    let is_near = b.op("is_near", K::Less, &[&distance, &exact], D::Boolean, &square);
    let far = b.op("distance_f32", K::Cast, &[&distance], D::F32, &square);
    let eighth = b.fill("eighth", D::F32, 0.125);
    let far = b.op("distance_in_eights", K::Multiply, &[&far, &eighth], D::F32, &square);
    let far = b.op("logarithm", K::Log, &[&far], D::F32, &square);
    // 8 / ln(16), and a little more: at distances of 16, 32 and 64 the product must not fall short of a whole
    // number.
    let growth = b.fill("growth", D::F32, 2.885_42);
    let far = b.op("grown", K::Multiply, &[&far, &growth], D::F32, &square);
    let far = b.op("whole", K::Cast, &[&far], D::S64, &square);
    let far = b.op("far", K::Add, &[&far, &exact], D::S64, &square);
    let last = b.fill("last", D::S64, 15.0);
    let far = b.op("far_bucket", K::Minimum, &[&far, &last], D::S64, &square);
    let bucket = b.op("near_or_far", K::Select, &[&is_near, &distance, &far], D::S64, &square);
    b.op("bucket", K::Add, &[&forward, &bucket], D::S64, &square);
}

/// Twelve ops in a row: scale and shift, a soft cap, a distance on a bounded logarithmic scale, a gate.
fn chain_of_12(b: &mut Builder) {
    let hidden = [2, 32, 768];
    let x = b.input(D::F32, &hidden);
    let (weight, bias) = (b.constant(D::F32, &[768]), b.constant(D::F32, &[768]));
    let (cap, least) = (b.constant(D::F32, &[]), b.constant(D::F32, &[]));
    let residual = b.input(D::F32, &hidden);
    let token = b.input(D::Boolean, &[2, 32, 1]);
    let x = b.op("scale", K::Multiply, &[&x, &weight], D::F32, &hidden);
    let x = b.op("shift", K::Add, &[&x, &bias], D::F32, &hidden);
    let x = b.op("of_cap", K::Divide, &[&x, &cap], D::F32, &hidden);
    let x = b.op("tanh", K::Tanh, &[&x], D::F32, &hidden);
    let x = b.op("capped", K::Multiply, &[&x, &cap], D::F32, &hidden);
    let x = b.op("difference", K::Subtract, &[&x, &residual], D::F32, &hidden);
    let x = b.op("distance", K::Abs, &[&x], D::F32, &hidden);
    let x = b.op("at_least", K::Maximum, &[&x, &least], D::F32, &hidden);
    let x = b.op("log", K::Log, &[&x], D::F32, &hidden);
    let bounds = |op: Op| op.attr(Attr::Min, -5.0).attr(Attr::Max, 5.0);
    let x = b.op_with("bounded", K::Clamp, &[&x], D::F32, &hidden, bounds);
    let x = b.op("gate", K::Sigmoid, &[&x], D::F32, &hidden);
    b.op("keep", K::Select, &[&token, &x, &residual], D::F32, &hidden);
}

/// Images of a network: normalised channels, pools, and a pyramid of two sizes.
fn image_pyramid(b: &mut Builder) {
    let image = [2, 12, 12, 16];
    let x = b.input(D::F32, &image);
    let statistics = [(); 4].map(|()| b.constant(D::F32, &[16]));
    let [gamma, beta, mean, variance] = &statistics;
    let norm = |op: Op| op.attr(Attr::Epsilon, 0.001f32);
    let x =
        b.op_with("norm", K::BatchNormInference, &[&x, gamma, beta, mean, variance], D::F32, &image, norm);
    let zero = b.fill("zero", D::F32, 0.0);
    let is_positive = b.op("is_positive", K::Greater, &[&x, &zero], D::Boolean, &image);
    let x = b.op("positive", K::Select, &[&is_positive, &x, &zero], D::F32, &image);
    let windows = |op: Op, kernel: i64, stride: i64, pad: i64| {
        op.attr(Attr::Kernel, vec![kernel; 2])
            .attr(Attr::Strides, vec![stride; 2])
            .attr(Attr::PadsBegin, vec![pad; 2])
            .attr(Attr::PadsEnd, vec![pad; 2])
    };
    let half = [2, 6, 6, 16];
    let small = b.op_with("small", K::MaxPool, &[&x], D::F32, &half, |op| windows(op, 3, 2, 1));
    let resize = |op: Op| op.attr(Attr::Mode, "bilinear").attr(Attr::Sizes, vec![12i64, 12]);
    let large = b.op_with("large", K::Interpolate, &[&small], D::F32, &image, resize);
    let sum = b.op("sum", K::Add, &[&x, &large], D::F32, &image);
    let mean = |op: Op| windows(op, 12, 1, 0).attr(Attr::ExcludePad, false);
    b.op_with("mean", K::AvgPool, &[&sum], D::F32, &[2, 1, 1, 16], mean);
}

type Build = fn(&mut Builder);

#[test]
fn the_files_hold_what_is_written_here() {
    let graphs: [(&str, Build); 11] = [
        ("causal_scale_select", causal_scale_select),
        ("implicit_causal_mask", implicit_causal_mask),
        ("padding_bias_select", padding_bias_select),
        ("safe_softmax_guard", safe_softmax_guard),
        ("gelu_gated_select", gelu_gated_select),
        ("nan_to_num", nan_to_num),
        ("swin_selects", swin_selects),
        ("clamp_backward", clamp_backward),
        ("t5_bucket", t5_bucket),
        ("chain_of_12", chain_of_12),
        ("image_pyramid", image_pyramid),
    ];
    let wrong: Vec<String> = graphs
        .into_iter()
        .filter_map(|(name, build)| {
            let mut builder = Builder::default();
            build(&mut builder);
            Golden::at(&format!("examples/graphs/{name}.json")).differs_from(&builder.graph.to_json())
        })
        .collect();
    report(&wrong);
}

#[test]
fn the_buckets_are_those_of_t5() {
    let mut builder = Builder::default();
    t5_bucket(&mut builder);
    let mut values = BTreeMap::from([(0, Value::from_slice(&[64, 64], &[0.0f32; 64 * 64]).unwrap())]);
    for op in builder.graph.ops() {
        let inputs: Vec<Value> =
            op.inputs().iter().map(|tensor| values[&tensor.id().get()].clone()).collect();
        values.insert(op.outputs()[0].id().get(), reference::run(op, &inputs).unwrap().remove(0));
    }
    // Distances from which on the buckets 8 to 15 begin: 8 · 16^(n/8).
    let bucket = |distance: i64| match distance {
        0..8 => distance,
        _ => {
            8 + (0..8).rev().find(|n| (distance as f64 / 8.0).powi(8) >= 16f64.powi(*n)).map_or(0, i64::from)
        }
    };
    let pairs = (0..64).flat_map(|query| (0..64).map(move |key| key - query));
    let expected: Vec<i64> =
        pairs.map(|offset: i64| if offset > 0 { 16 } else { 0 } + bucket(offset.abs())).collect();
    let (_, given) = values.last_key_value().unwrap();
    assert_eq!(given.elements::<i64>().unwrap(), expected);
}
