//! Ops on whole tensors, as the interpreter runs them: against what NumPy and torch give, worked out by
//! `data/tensor_ops.py`, and against what was worked out by hand; and what of their shapes and attributes is
//! an error.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{self, Random, report};
use crate::reference::{check, value};
use sterna::reference::{self, Value};
use sterna::{
    Attr, AttrRow, AttrType, AttrValue, Count, DataType, LogicalTensor, Op, OpKind, Port, Schema, ShapeRule,
};

use DataType as D;
use OpKind as K;

const INF: f32 = f32::INFINITY;
const NAN: f32 = f32::NAN;

/// A type, dims and bytes, as a line of the data gives them.
fn parsed_value(words: &[&str]) -> Value {
    let [data_type, dims, digits] = words else { panic!("{words:?}") };
    let dims: Vec<i64> = match *dims {
        "scalar" => Vec::new(),
        dims => dims.split('x').map(|dim| dim.parse().unwrap()).collect(),
    };
    let digits = digits.trim_start_matches('-').as_bytes();
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap() as u8;
    let bytes = digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect();
    Value::new(data_type.parse().unwrap(), &dims, bytes).unwrap()
}

fn parsed_attr(words: &[&str]) -> (Attr, AttrValue) {
    let (name, kind, values) = (words[0], words[1], &words[2..]);
    let value = match kind {
        "bool" => AttrValue::Bool(values[0] == "true"),
        "s64" => AttrValue::S64(values[0].parse().unwrap()),
        "f32" => AttrValue::F32(values[0].parse().unwrap()),
        "string" => values[0].into(),
        "s64[]" => AttrValue::S64s(values.iter().map(|value| value.parse().unwrap()).collect()),
        "f32[]" => AttrValue::F32s(values.iter().map(|value| value.parse().unwrap()).collect()),
        other => panic!("{other}"),
    };
    (name.parse().unwrap(), value)
}

/// An op on tensors of which only the types are known.
fn op_of(kind: OpKind, inputs: &[DataType], outputs: &[DataType]) -> Op {
    let unknown = |(id, &data_type): (usize, &DataType)| LogicalTensor::unknown(id, data_type);
    let op = Op::new(7, kind).inputs_from(inputs.iter().enumerate().map(unknown));
    outputs.iter().enumerate().fold(op, |op, (id, &data_type)| op.output(unknown((100 + id, &data_type))))
}

fn types(values: &[Value]) -> Vec<DataType> {
    values.iter().map(Value::data_type).collect()
}

#[test]
fn they_give_what_numpy_and_torch_give() {
    let (mut wrong, mut kinds, mut count) = (Vec::new(), BTreeSet::new(), 0);
    for block in include_str!("../data/tensor_ops.txt").split("\n\n").filter(|block| !block.is_empty()) {
        let (title, lines) = block.split_once('\n').unwrap();
        let kind: OpKind = title.split(':').next().unwrap().parse().unwrap();
        let (mut inputs, mut outputs, mut attrs) = (Vec::new(), Vec::new(), Vec::new());
        for line in lines.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[0] {
                "in" => inputs.push(parsed_value(&words[1..])),
                "out" => outputs.push(parsed_value(&words[1..])),
                _ => attrs.push(parsed_attr(&words[1..])),
            }
        }
        // A case need not have all outputs of the op.
        if kind == K::LayerNorm || kind == K::GroupNorm {
            attrs.push((Attr::KeepStats, (outputs.len() == 3).into()));
        }
        let op = op_of(kind, &types(&inputs), &types(&outputs));
        let op = attrs.into_iter().fold(op, |op, (attr, value)| op.attr(attr, value));
        let result = reference::run(&op, &inputs);
        if result.as_ref() != Ok(&outputs) {
            wrong.push(format!("{title}\n  {result:?}\n  not {outputs:?}"));
        }
        kinds.insert(kind.name());
        count += 1;
    }
    wrong.truncate(20);
    report(&wrong);
    let expected = [
        "AvgPool",
        "AvgPoolBackward",
        "BatchNormForwardTraining",
        "BatchNormInference",
        "BatchNormTrainingBackward",
        "BiasAddBackward",
        "Concat",
        "ConvTranspose",
        "ConvTransposeBackwardData",
        "ConvTransposeBackwardWeights",
        "Convolution",
        "ConvolutionBackwardData",
        "ConvolutionBackwardWeights",
        "Dequantize",
        "Dropout",
        "DynamicDequantize",
        "DynamicQuantize",
        "GroupNorm",
        "Interpolate",
        "InterpolateBackward",
        "LayerNorm",
        "LayerNormBackward",
        "LogSoftmax",
        "LogSoftmaxBackward",
        "MatMul",
        "MaxPool",
        "MaxPoolBackward",
        "PReLUBackward",
        "Quantize",
        "RMSNorm",
        "ReduceL1",
        "ReduceL2",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceProd",
        "ReduceSum",
        "SoftMax",
        "SoftMaxBackward",
        "StaticTranspose",
    ];
    assert_eq!(kinds, BTreeSet::from(expected));
    assert!(count > 700, "{count}");
}

fn float(dims: &[i64], elements: &[f32]) -> Value {
    value(dims, elements)
}

/// An op of f32 tensors.
fn float_op(kind: OpKind, inputs: usize, outputs: usize) -> Op {
    op_of(kind, &vec![D::F32; inputs], &vec![D::F32; outputs])
}

#[test]
fn reductions_of_nothing_and_of_what_is_no_number() {
    let along = |kind, axes: &[i64]| float_op(kind, 1, 1).attr(Attr::Axes, axes);
    let none = || vec![float(&[2, 0], &[])];
    let odd = || vec![float(&[2, 3], &[1.0, NAN, 3.0, -0.0, 0.0, -INF])];
    let two = |a: f32, b: f32| vec![float(&[2], &[a, b])];
    check(vec![
        ("Sum of nothing", along(K::ReduceSum, &[1]), none(), two(0.0, 0.0)),
        ("Mean of nothing", along(K::ReduceMean, &[1]), none(), two(NAN, NAN)),
        ("Max of nothing", along(K::ReduceMax, &[1]), none(), two(-INF, -INF)),
        ("Min of nothing", along(K::ReduceMin, &[1]), none(), two(INF, INF)),
        ("Prod of nothing", along(K::ReduceProd, &[1]), none(), two(1.0, 1.0)),
        ("L1 of nothing", along(K::ReduceL1, &[1]), none(), two(0.0, 0.0)),
        ("L2 of nothing", along(K::ReduceL2, &[1]), none(), two(0.0, 0.0)),
        ("no results", along(K::ReduceSum, &[0]), none(), vec![float(&[0], &[])]),
        ("NaN wins in Max", along(K::ReduceMax, &[-1]), odd(), two(NAN, 0.0)),
        ("NaN wins in Min", along(K::ReduceMin, &[-1]), odd(), two(NAN, -INF)),
        (
            "Max of zeros",
            along(K::ReduceMax, &[0]),
            vec![float(&[2], &[-0.0, 0.0])],
            vec![float(&[], &[0.0])],
        ),
        (
            "Min of zeros",
            along(K::ReduceMin, &[0]),
            vec![float(&[2], &[0.0, -0.0])],
            vec![float(&[], &[-0.0])],
        ),
        ("Sum of −0", along(K::ReduceSum, &[0]), vec![float(&[1], &[-0.0])], vec![float(&[], &[0.0])]),
        (
            "Sum in f64",
            along(K::ReduceSum, &[0]),
            vec![float(&[3], &[1e8, 1.0, -1e8])],
            vec![float(&[], &[1.0])],
        ),
        (
            "L2 beyond f32",
            along(K::ReduceL2, &[0]),
            vec![float(&[2], &[3e30, 4e30])],
            vec![float(&[], &[5e30])],
        ),
        (
            "no axes leave the bits alone",
            along(K::ReduceL1, &[]),
            vec![float(&[2], &[-1.0, f32::from_bits(0x7fa0_0001)])],
            vec![float(&[2], &[-1.0, f32::from_bits(0x7fa0_0001)])],
        ),
        (
            "axes that are an input",
            op_of(K::ReduceSum, &[D::F32, D::S32], &[D::F32]).attr(Attr::KeepDims, true),
            vec![float(&[2, 2], &[1.0, 2.0, 3.0, 4.0]), value(&[1], &[-2i32])],
            vec![float(&[1, 2], &[4.0, 6.0])],
        ),
    ]);
}

#[test]
fn convolutions_by_hand() {
    let steps = |kind, inputs: usize, begin: i64| {
        let op = float_op(kind, inputs, 1).attr(Attr::DataFormat, "NCX").attr(Attr::PadsBegin, vec![begin]);
        let format = if kind == K::ConvTranspose { "IOX" } else { "OIX" };
        let op = op.attr(Attr::WeightsFormat, format).attr(Attr::PadsEnd, vec![0i64]);
        op.attr(Attr::Strides, vec![1i64]).attr(Attr::Dilations, vec![1i64])
    };
    check(vec![
        (
            "padding takes no part",
            steps(K::Convolution, 2, 1),
            vec![float(&[1, 1, 2], &[1.0, 2.0]), float(&[1, 1, 2], &[INF, 3.0])],
            vec![float(&[1, 1, 2], &[3.0, INF])],
        ),
        (
            "of no channels the bias is left",
            steps(K::Convolution, 3, 0),
            vec![float(&[1, 0, 3], &[]), float(&[2, 0, 2], &[]), float(&[2], &[1.0, -1.0])],
            vec![float(&[1, 2, 2], &[1.0, 1.0, -1.0, -1.0])],
        ),
        (
            "of no images the gradient of the weights is 0",
            steps(K::ConvolutionBackwardWeights, 2, 0).attr(Attr::WeightsShape, vec![1i64, 1, 2]),
            vec![float(&[0, 1, 3], &[]), float(&[0, 1, 2], &[])],
            vec![float(&[1, 1, 2], &[0.0, 0.0])],
        ),
        (
            "no elements",
            steps(K::ConvTranspose, 2, 0),
            vec![float(&[0, 1, 3], &[]), float(&[1, 1, 2], &[1.0, 1.0])],
            vec![float(&[0, 1, 4], &[])],
        ),
    ]);
}

#[test]
fn rows_by_hand() {
    let norm = |kind, inputs, outputs| float_op(kind, inputs, outputs).attr(Attr::Epsilon, 0.0f32);
    check(vec![
        (
            "LayerNorm",
            norm(K::LayerNorm, 3, 3),
            vec![
                float(&[1, 4], &[1.0, 3.0, 1.0, 3.0]),
                float(&[4], &[1.0, 2.0, 3.0, 4.0]),
                float(&[1], &[10.0]),
            ],
            vec![float(&[1, 4], &[9.0, 12.0, 7.0, 14.0]), float(&[1], &[2.0]), float(&[1], &[1.0])],
        ),
        (
            "LayerNorm of one element",
            float_op(K::LayerNorm, 1, 3),
            vec![float(&[2, 1], &[5.0, -7.0])],
            vec![float(&[2, 1], &[0.0, 0.0]), float(&[2], &[5.0, -7.0]), float(&[2], &[0.0, 0.0])],
        ),
        (
            "statistics of no elements are 0",
            float_op(K::LayerNorm, 1, 3),
            vec![float(&[2, 0], &[])],
            vec![float(&[2, 0], &[]), float(&[2], &[0.0, 0.0]), float(&[2], &[0.0, 0.0])],
        ),
        (
            "LayerNorm without affine parameters ignores them",
            norm(K::LayerNorm, 3, 1).attr(Attr::KeepStats, false).attr(Attr::UseAffine, false),
            vec![float(&[2], &[1.0, 3.0]), float(&[2], &[9.0, 9.0]), float(&[2], &[9.0, 9.0])],
            vec![float(&[2], &[-1.0, 1.0])],
        ),
        ("RMSNorm", norm(K::RMSNorm, 1, 1), vec![float(&[2], &[1.0, 7.0])], vec![float(&[2], &[0.2, 1.4])]),
        (
            "GroupNorm, two groups of one channel",
            norm(K::GroupNorm, 3, 3).attr(Attr::Groups, 2i64).attr(Attr::DataFormat, "NCX"),
            vec![
                float(&[1, 2, 2], &[1.0, 3.0, 10.0, 30.0]),
                float(&[2], &[1.0, 2.0]),
                float(&[2], &[0.0, 5.0]),
            ],
            vec![
                float(&[1, 2, 2], &[-1.0, 1.0, 3.0, 7.0]),
                float(&[1, 2], &[2.0, 20.0]),
                float(&[1, 2], &[1.0, 100.0]),
            ],
        ),
        (
            "GroupNorm of rank 12",
            norm(K::GroupNorm, 1, 1)
                .attr(Attr::Groups, 1i64)
                .attr(Attr::DataFormat, "NCX")
                .attr(Attr::KeepStats, false)
                .attr(Attr::UseAffine, false),
            vec![float(&[1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1], &[1.0, 3.0])],
            vec![float(&[1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1], &[-1.0, 1.0])],
        ),
        (
            "SoftMaxBackward",
            float_op(K::SoftMaxBackward, 2, 1).axis(0),
            vec![float(&[2], &[1.0, 3.0]), float(&[2], &[0.5, 0.5])],
            vec![float(&[2], &[-0.5, 0.5])],
        ),
        (
            "LogSoftmaxBackward",
            float_op(K::LogSoftmaxBackward, 2, 1),
            vec![float(&[2], &[1.0, 3.0]), float(&[2], &[0.0, -INF])],
            vec![float(&[2], &[-3.0, 3.0])],
        ),
        (
            "LogSoftmax of −∞",
            float_op(K::LogSoftmax, 1, 1),
            vec![float(&[3, 2], &[-INF, -INF, 1.0, -INF, INF, 0.0])],
            vec![float(&[3, 2], &[NAN, NAN, 0.0, -INF, NAN, NAN])],
        ),
        (
            "a slope is that of what is not above 0",
            float_op(K::PReLUBackward, 3, 2),
            vec![
                float(&[4], &[1.0, 0.0, -2.0, NAN]),
                float(&[4], &[10.0, 10.0, 10.0, 10.0]),
                float(&[4], &[1.0, 2.0, 3.0, 4.0]),
            ],
            vec![float(&[4], &[1.0, 20.0, 30.0, 40.0]), float(&[4], &[0.0, 0.0, -6.0, NAN])],
        ),
    ]);
}

#[test]
fn quantities_by_hand() {
    let quantize = |to| op_of(K::Quantize, &[D::F32], &[to]).attr(Attr::Scales, vec![0.5f32]);
    let groups = |from, size: &[i64]| {
        let op = op_of(K::DynamicDequantize, &[from, D::F32, from], &[D::F32]);
        op.attr(Attr::Qtype, "per_group").attr(Attr::GroupShape, size)
    };
    let packed = |data_type, dims: &[i64], bytes: &[u8]| Value::new(data_type, dims, bytes.to_vec()).unwrap();
    check(vec![
        (
            "halves go to the even one, and what is too large to the bounds",
            quantize(D::S8),
            vec![float(&[7], &[0.25, 0.75, -0.75, 63.5, 70.0, -1e30, NAN])],
            vec![value(&[7], &[0i8, 2, -2, 127, 127, -128, 0])],
        ),
        (
            "scales of all groups of the weights of a transposed convolution, IOX",
            op_of(K::Dequantize, &[D::S8], &[D::F32])
                .attr(Attr::Qtype, "per_channel")
                .attr(Attr::Axis, 1i64)
                .attr(Attr::Scales, vec![1.0f32, 2.0, 4.0, 8.0])
                .attr(Attr::Zps, vec![0i64, 0, 0, 1]),
            vec![value(&[4, 2, 1], &[1i8, 1, 2, 2, 3, 3, 4, 4])],
            vec![float(&[4, 2, 1], &[1.0, 2.0, 2.0, 4.0, 12.0, 16.0, 16.0, 24.0])],
        ),
        (
            "the same, XOI of one output channel in a group",
            op_of(K::Dequantize, &[D::S8], &[D::F32])
                .attr(Attr::Qtype, "per_channel")
                .attr(Attr::Axis, 2i64)
                .attr(Attr::Scales, vec![1.0f32, 2.0]),
            vec![value(&[1, 1, 1, 4], &[1i8, 2, 3, 4])],
            vec![float(&[1, 1, 1, 4], &[1.0, 2.0, 6.0, 8.0])],
        ),
        (
            "scales of the output channels of XIO under the axis of a kernel of one",
            op_of(K::Dequantize, &[D::S8], &[D::F32])
                .attr(Attr::Qtype, "per_channel")
                .attr(Attr::Axis, 1i64)
                .attr(Attr::Scales, vec![1.0f32, 2.0, 4.0])
                .attr(Attr::Zps, vec![0i64, 0, 1]),
            vec![value(&[1, 1, 2, 3], &[1i8, 1, 1, 2, 2, 2])],
            vec![float(&[1, 1, 2, 3], &[1.0, 2.0, 0.0, 2.0, 4.0, 4.0])],
        ),
        (
            "a zero point",
            quantize(D::U8).attr(Attr::Zps, vec![10i64]),
            vec![float(&[4], &[0.0, -5.5, 1.25, 200.0])],
            vec![value(&[4], &[10u8, 0, 12, 255])],
        ),
        (
            "s4 in groups of two, the first element in the low half",
            groups(D::S4, &[1, 2]),
            vec![
                packed(D::S4, &[1, 4], &[0x8f, 0x71]),
                float(&[1, 2], &[0.5, 2.0]),
                packed(D::S4, &[1, 2], &[0xf1]),
            ],
            // −1, −8 less 1, by 0.5; 1, 7 less −1, by 2.
            vec![float(&[1, 4], &[-1.0, -4.5, 4.0, 16.0])],
        ),
        (
            "u4, of an odd number",
            groups(D::U4, &[3, 1]),
            vec![
                packed(D::U4, &[3, 1], &[0xf0, 0x07]),
                float(&[1, 1], &[2.0]),
                packed(D::U4, &[1, 1], &[0x03]),
            ],
            vec![float(&[3, 1], &[-6.0, 24.0, 8.0])],
        ),
        (
            "f8 beyond its bounds",
            op_of(K::Quantize, &[D::F32], &[D::F8E4m3]).attr(Attr::Scales, vec![1.0f32]),
            vec![float(&[5], &[448.0, 464.0, 465.0, -INF, -0.0])],
            vec![packed(D::F8E4m3, &[5], &[0x7e, 0x7e, 0x7f, 0x7f, 0x80])],
        ),
        ("a scalar", quantize(D::U8), vec![float(&[], &[1.5])], vec![value(&[], &[3u8])]),
        (
            "a scalar of four bits",
            op_of(K::DynamicDequantize, &[D::S4, D::F32], &[D::F32]),
            vec![packed(D::S4, &[], &[0x0d]), float(&[1], &[0.5])],
            vec![float(&[], &[-1.5])],
        ),
        ("no elements", quantize(D::U8), vec![float(&[2, 0], &[])], vec![value::<u8>(&[2, 0], &[])]),
    ]);
}

#[test]
fn shapes_that_do_not_fit_are_errors() {
    let rows: Vec<(Op, Vec<Value>, &str)> = vec![
        (
            float_op(K::ReduceSum, 1, 1).attr(Attr::Axes, vec![1i64, -1]),
            vec![float(&[1, 1], &[0.0])],
            "ReduceSum (op 7): input 0 `src` (tensor 0) is {1,1}: the numbers in `axes` are not different dims of it",
        ),
        (
            op_of(K::ReduceSum, &[D::F32, D::S32], &[D::F32]),
            vec![float(&[1], &[0.0]), value(&[1], &[1i32])],
            "ReduceSum (op 7): input 0 `src` (tensor 0) is {1}: the numbers in `axes` are not different dims of it",
        ),
        (
            float_op(K::Concat, 2, 1).axis(0),
            vec![float(&[1, 2], &[0.0; 2]), float(&[1, 3], &[0.0; 3])],
            "Concat (op 7): input 1 `src_i` (tensor 1) is {1,3}: it has the shape of input 0 but for the dim `axis`",
        ),
        (
            float_op(K::LayerNorm, 1, 3).attr(Attr::BeginNormAxis, 2i64),
            vec![float(&[1, 1], &[0.0])],
            "LayerNorm (op 7): input 0 `src` (tensor 0) is {1,1}: the attribute `begin_norm_axis` is not one of its dims",
        ),
        (
            float_op(K::LayerNorm, 3, 3),
            vec![float(&[2, 2], &[0.0; 4]), float(&[2, 1], &[0.0; 2]), float(&[1], &[0.0])],
            "LayerNorm (op 7): input 1 `gamma` (tensor 1) under auto_broadcast = numpy: {2,1} has a larger rank than {2}, \
             onto which it must broadcast",
        ),
        (
            float_op(K::LayerNormBackward, 4, 1).attr(Attr::UseAffine, false),
            vec![
                float(&[1, 2], &[0.0; 2]),
                float(&[1, 2], &[0.0; 2]),
                float(&[2], &[0.0; 2]),
                float(&[1], &[0.0]),
            ],
            "LayerNormBackward (op 7): input 2 `mean` (tensor 2) is {2}: it has the dims of `src` before \
             `begin_norm_axis`",
        ),
        (
            float_op(K::GroupNorm, 1, 3).attr(Attr::Groups, 2i64),
            vec![float(&[1, 3], &[0.0; 3])],
            "GroupNorm (op 7): input 0 `src` (tensor 0) is {1,3}: its channels are not divided by the attribute `groups`",
        ),
        (
            float_op(K::BatchNormForwardTraining, 3, 5).attr(Attr::Epsilon, 0.5f32),
            vec![float(&[1, 3], &[0.0; 3]), float(&[3], &[0.0; 3]), float(&[1], &[0.0])],
            "BatchNormForwardTraining (op 7): input 2 `variance` (tensor 2) is {1}: it holds one number for each \
             channel of `src`",
        ),
        (
            float_op(K::Interpolate, 1, 1).attr(Attr::Mode, "linear").attr(Attr::Sizes, vec![2i64, 2]),
            vec![float(&[1, 3, 1], &[0.0; 3])],
            "Interpolate (op 7): input 0 `src` (tensor 0) is {1,3,1}: the attribute `sizes` or `scales` has a number \
             for each spatial dim",
        ),
        (
            float_op(K::Interpolate, 1, 1).attr(Attr::Mode, "linear").attr(Attr::Sizes, vec![2i64]),
            vec![float(&[1, 0, 1], &[])],
            "Interpolate (op 7): input 0 `src` (tensor 0) is {1,0,1}: no dim of the result is negative, and none is \
             made of nothing",
        ),
        (
            float_op(K::InterpolateBackward, 2, 1).attr(Attr::Mode, "linear").attr(Attr::Sizes, vec![2i64]),
            vec![float(&[1, 3, 1], &[0.0; 3]), float(&[1, 3, 1], &[0.0; 3])],
            "InterpolateBackward (op 7): input 1 `diff_dst` (tensor 1) is {1,3,1}: it has the shape of the result of \
             `Interpolate`",
        ),
        (
            float_op(K::SoftMaxBackward, 2, 1).axis(0),
            vec![float(&[1], &[0.0]), float(&[2], &[0.0; 2])],
            "SoftMaxBackward (op 7): input 1 `dst` (tensor 1) is {2}: it has the shape of input 0",
        ),
        (
            float_op(K::LogSoftmax, 1, 1).axis(1),
            vec![float(&[1], &[0.0])],
            "LogSoftmax (op 7): input 0 `src` (tensor 0) is {1}: the attribute `axis` is not one of its dims",
        ),
        (
            float_op(K::PReLUBackward, 3, 2),
            vec![float(&[1, 2], &[0.0; 2]), float(&[3], &[0.0; 3]), float(&[1, 2], &[0.0; 2])],
            "PReLUBackward (op 7): input 1 `slope` (tensor 1) is {3}: it holds one number for each channel of `src`",
        ),
        (
            op_of(K::Quantize, &[D::F32], &[D::U8])
                .attr(Attr::Qtype, "per_channel")
                .attr(Attr::Scales, vec![1.0f32, 1.0]),
            vec![float(&[2, 3], &[0.0; 6])],
            "Quantize (op 7): input 0 `src` (tensor 0) is {2,3}: the attribute `scales` holds one number for each channel",
        ),
        (
            op_of(K::Quantize, &[D::F32], &[D::U8])
                .attr(Attr::Qtype, "per_group")
                .attr(Attr::Scales, vec![1.0f32]),
            vec![float(&[1], &[0.0])],
            "Quantize (op 7): input 0 `src` (tensor 0) is {1}: the attribute `qtype` is none that the op knows",
        ),
        (
            op_of(K::DynamicDequantize, &[D::U8, D::F32], &[D::F32])
                .attr(Attr::Qtype, "per_group")
                .attr(Attr::GroupShape, vec![2i64, 2]),
            vec![value(&[2, 3], &[0u8; 6]), float(&[1, 1], &[0.0])],
            "DynamicDequantize (op 7): input 0 `src` (tensor 0) is {2,3}: the attribute `group_shape` does not divide each \
             of its dims",
        ),
        (
            op_of(K::DynamicQuantize, &[D::F32, D::F32], &[D::U8]).attr(Attr::Qtype, "per_channel").axis(0),
            vec![float(&[2], &[0.0; 2]), float(&[3], &[1.0; 3])],
            "DynamicQuantize (op 7): input 1 `scales` (tensor 1) is {3}: it holds one number for each group, channel or \
             tensor",
        ),
        (
            op_of(K::Dropout, &[D::F32, D::S64, D::S64, D::F32], &[D::F32]),
            vec![float(&[1], &[0.0]), value(&[], &[1i64]), value(&[2], &[1i64, 2]), float(&[], &[0.5])],
            "Dropout (op 7): input 2 `offset` (tensor 2) is {2}: it is a single number",
        ),
        (
            float_op(K::BiasAddBackward, 1, 1).attr(Attr::DataFormat, "NCX"),
            vec![float(&[1], &[0.0])],
            "BiasAddBackward (op 7): input 0 `diff_dst` (tensor 0) is {1}: it has no dim of channels",
        ),
    ];
    let wrong: Vec<String> = rows
        .iter()
        .filter_map(|(op, inputs, expected)| match reference::run(op, inputs) {
            Err(error) if error.to_string() == *expected => None,
            other => Some(format!("{:?}\n  expected {expected}", other.map_err(|error| error.to_string()))),
        })
        .collect();
    report(&wrong);
}

/// Numbers from −2 to 2 that follow no simple pattern.
fn numbers(dims: &[i64]) -> Value {
    let mut random = Random::new(7);
    let count = dims.iter().product::<i64>();
    let elements: Vec<f32> = (0..count).map(|_| (random.next() >> 8) as u16 as f32 / 16384.0 - 2.0).collect();
    float(dims, &elements)
}

/// The part of a value at an index of its first dim, which stays as a dim of 1.
fn part(value: &Value, i: usize, parts: usize) -> Value {
    let mut dims = value.dims().to_vec();
    dims[0] = 1;
    let size = value.bytes().len() / parts;
    Value::new(value.data_type(), &dims, value.bytes()[i * size..][..size].to_vec()).unwrap()
}

#[test]
fn large_results_are_those_of_their_parts_on_any_number_of_threads() {
    // Of some thousand elements a part, so that tasks begin and end at any place; the second input
    // broadcasts.
    let wide = || numbers(&[5, 3, 1, 1111]);
    let rows: Vec<(Op, Vec<Value>)> = vec![
        (float_op(K::Exp, 1, 1), vec![wide()]),
        (float_op(K::Add, 2, 1), vec![wide(), numbers(&[2, 1])]),
        (float_op(K::Multiply, 2, 1), vec![wide(), numbers(&[3, 7, 1])]),
        (op_of(K::Less, &[D::F32; 2], &[D::Boolean]), vec![wide(), numbers(&[1111])]),
        (op_of(K::GenIndex, &[D::F32], &[D::S32]).axis(1), vec![wide()]),
        (op_of(K::TypeCast, &[D::F32], &[D::F16]), vec![wide()]),
        (float_op(K::StaticTranspose, 1, 1).attr(Attr::Order, vec![0i64, 3, 2, 1]), vec![wide()]),
        (float_op(K::SoftMax, 1, 2).axis(-1), vec![wide()]),
        (float_op(K::SoftMax, 1, 2).axis(1), vec![wide()]),
        (float_op(K::LogSoftmax, 1, 1).axis(3), vec![wide()]),
        (float_op(K::ReduceSum, 1, 1).attr(Attr::Axes, vec![1i64]).attr(Attr::KeepDims, true), vec![wide()]),
        (float_op(K::LayerNorm, 3, 3), vec![wide(), numbers(&[1111]), numbers(&[1])]),
        (float_op(K::RMSNorm, 1, 1).attr(Attr::BeginNormAxis, 1i64), vec![wide()]),
        (
            op_of(K::Quantize, &[D::F32], &[D::S8])
                .attr(Attr::Qtype, "per_channel")
                .attr(Attr::Scales, vec![0.02f32, 0.03, 0.04]),
            vec![wide()],
        ),
        (float_op(K::MatMul, 2, 1), vec![numbers(&[5, 70, 90]), numbers(&[90, 85])]),
    ];
    let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let (alone, crowd) = (pool(1), pool(3));
    let mut wrong = Vec::new();
    for (op, inputs) in rows {
        let whole = alone.install(|| reference::run(&op, &inputs)).unwrap();
        if crowd.install(|| reference::run(&op, &inputs)).unwrap() != whole {
            wrong.push(format!("{} on three threads", op.kind()));
        }
        for i in 0..5 {
            let mut inputs = inputs.clone();
            inputs[0] = part(&inputs[0], i, 5);
            let of_part = reference::run(&op, &inputs).unwrap();
            if !whole.iter().zip(&of_part).all(|(whole, of_part)| part(whole, i, 5) == *of_part) {
                wrong.push(format!("{}, part {i}", op.kind()));
            }
        }
    }
    report(&wrong);
}

#[test]
fn tensors_without_elements_may_have_dims_of_any_size() {
    const HUGE: i64 = 1 << 40;
    let none = |dims: &[i64]| float(dims, &[]);
    let cube = || none(&[HUGE, 0, HUGE]);
    let axes = |kind, axes: &[i64]| float_op(kind, 1, 1).attr(Attr::Axes, axes);
    let rows: Vec<(Op, Vec<Value>, &[i64])> = vec![
        (float_op(K::LogSoftmax, 1, 1).axis(1), vec![cube()], &[HUGE, 0, HUGE]),
        (float_op(K::SoftMaxBackward, 2, 1).axis(0), vec![cube(), cube()], &[HUGE, 0, HUGE]),
        (axes(K::ReduceSum, &[0]), vec![cube()], &[0, HUGE]),
        (axes(K::ReduceMean, &[0, 2]), vec![cube()], &[0]),
        (float_op(K::Concat, 2, 1).axis(1), vec![cube(), cube()], &[HUGE, 0, HUGE]),
        (float_op(K::RMSNorm, 1, 1), vec![cube()], &[HUGE, 0, HUGE]),
        (
            float_op(K::LayerNorm, 1, 1).attr(Attr::KeepStats, false),
            vec![none(&[HUGE, HUGE, 0])],
            &[HUGE, HUGE, 0],
        ),
        (
            float_op(K::GroupNorm, 1, 1).attr(Attr::Groups, 1i64).attr(Attr::KeepStats, false),
            vec![cube()],
            &[HUGE, 0, HUGE],
        ),
        (
            float_op(K::PReLUBackward, 3, 2),
            vec![none(&[0, HUGE, 2]), float(&[2], &[1.0; 2]), none(&[0, HUGE, 2])],
            &[0, HUGE, 2],
        ),
        (
            op_of(K::Dropout, &[D::F32, D::S64, D::S64, D::F32], &[D::F32]),
            vec![cube(), value(&[], &[1i64]), value(&[], &[2i64]), float(&[], &[0.5])],
            &[HUGE, 0, HUGE],
        ),
        (float_op(K::MatMul, 2, 1), vec![none(&[HUGE, 0]), none(&[0, 0])], &[HUGE, 0]),
    ];
    let wrong: Vec<String> = rows
        .into_iter()
        .filter_map(|(op, inputs, dims)| match reference::run(&op, &inputs) {
            Ok(results) if results[0].dims() == dims => None,
            other => Some(format!("{}: {other:?}", op.kind())),
        })
        .collect();
    report(&wrong);

    // Sums of nothing there is no memory for.
    let sums = reference::run(&axes(K::ReduceSum, &[1, 2]), &[none(&[1 << 60, 0, 1])]);
    assert_eq!(sums.map_err(|error| error.status()), Err(sterna::Status::OutOfMemory));
}

#[test]
fn sums_in_f32_are_within_their_bounds() {
    let (a, b, bias) = (numbers(&[2, 40, 30]), numbers(&[50, 30]), numbers(&[50]));
    let op = float_op(K::MatMul, 3, 1).attr(Attr::TransposeB, true);
    let inputs = [a.clone(), b.clone(), bias.clone()];
    let exact = reference::run(&op, &inputs).unwrap().remove(0).elements::<f32>().unwrap();
    let bounds = reference::bounds(&op, &inputs).unwrap().unwrap();
    let [a, b, bias] = [a, b, bias].map(|value| value.elements::<f32>().unwrap());
    let mut largest = 0.0f64;
    for (at, (exact, bound)) in exact.iter().zip(&bounds).enumerate() {
        let (row, column) = (at / 50, at % 50);
        let sum = (0..30).rev().fold(bias[column], |sum, k| sum + a[row * 30 + k] * b[column * 30 + k]);
        let off = (f64::from(sum) - f64::from(*exact)).abs();
        assert!(off <= bound + f64::from(exact.abs()) * f64::from(f32::EPSILON), "{at}: {off} {bound}");
        largest = largest.max(off / bound);
    }
    assert!(largest > 0.01 && bounds.len() == 4000, "{largest}");

    let six = float(&[2, 3], &[1.0, -2.0, 3.0, 4.0, 5.0, -6.0]);
    let unit = f64::from(f32::EPSILON) / 2.0;
    let along = |kind| float_op(kind, 1, 1).attr(Attr::Axes, vec![-1i64]);
    let columns = float_op(K::BiasAddBackward, 1, 1);
    let rows = [
        (along(K::ReduceSum), Some(vec![18.0 * unit, 45.0 * unit])),
        (along(K::ReduceL1), Some(vec![18.0 * unit, 45.0 * unit])),
        (along(K::ReduceMean), Some(vec![6.0 * unit, 15.0 * unit])),
        (columns, Some(vec![10.0 * unit, 14.0 * unit, 18.0 * unit])),
        (along(K::ReduceMax), None),
        (float_op(K::Exp, 1, 1), None),
    ];
    for (op, expected) in rows {
        assert_eq!(reference::bounds(&op, std::slice::from_ref(&six)), Ok(expected), "{}", op.kind());
    }
}

/// A value of random elements and of up to four dims, which are small.
fn random_value(random: &mut Random, data_type: DataType) -> Value {
    let dims: Vec<i64> = (0..random.below(5)).map(|_| [0, 1, 1, 2, 2, 3][random.below(6)]).collect();
    let bits = dims.iter().product::<i64>() as usize * data_type.bits();
    let special = [0x00u8, 0x7f, 0x80, 0xff, 0x3f, 0xc0];
    let bytes = (0..bits.div_ceil(8)).map(|_| match random.below(3) {
        0 => special[random.below(special.len())],
        _ => random.next() as u8,
    });
    Value::new(data_type, &dims, bytes.collect()).unwrap()
}

/// A random value of the type of an attribute, more often one that means something than not.
fn random_attr(random: &mut Random, row: &AttrRow) -> AttrValue {
    let small = |random: &mut Random| [-2i64, -1, -1, 0, 1, 2, 3, i64::MIN, i64::MAX][random.below(9)];
    let count = random.below(4);
    match row.value_type {
        AttrType::Bool => (random.below(2) == 0).into(),
        AttrType::S64 => small(random).into(),
        AttrType::F32 => [0.0f32, 1.0, -1.5, 1e-5, NAN, INF][random.below(6)].into(),
        AttrType::String if row.allowed.is_empty() => {
            ["per_tensor", "per_channel", "per_group", "of_none"][random.below(4)].into()
        }
        AttrType::String => row.allowed[random.below(row.allowed.len())].into(),
        AttrType::S64s => (0..count).map(|_| small(random)).collect::<Vec<_>>().into(),
        AttrType::F32s => (0..count).map(|_| random.below(3) as f32).collect::<Vec<_>>().into(),
    }
}

/// An op of windows with lists of one length, and tensors all of whose dims have one size: they fit more
/// often than chance has it. Inputs of s32 hold a shape.
fn of_windows(random: &mut Random, op: Op, values: &mut [Value]) -> Op {
    let (spatial, size) = (1 + random.below(2), 1 + random.below(2) as i64);
    let shape = vec![size; spatial + 2];
    for (i, value) in values.iter_mut().enumerate() {
        let data_type = value.data_type();
        if data_type == D::S32 {
            *value = self::value(&[shape.len() as i64], &vec![size as i32; shape.len()]);
            continue;
        }
        let dims = if i == 2 { &shape[..1] } else { &shape[..] };
        let bytes = dims.iter().product::<i64>() as usize * data_type.bits() / 8;
        *value = Value::new(data_type, dims, (0..bytes).map(|_| random.next() as u8).collect()).unwrap();
    }
    let lists = [
        (Attr::Strides, 1, 2),
        (Attr::Dilations, 1, 2),
        (Attr::Kernel, 1, 2),
        (Attr::PadsBegin, 0, 2),
        (Attr::PadsEnd, 0, 2),
        (Attr::OutputPadding, 0, 2),
    ];
    let has = |attr: Attr| Schema::of(op.kind()).attributes.iter().any(|row| row.attr == attr);
    let mut op = op.clone();
    for (attr, least, count) in lists.into_iter().filter(|(attr, ..)| has(*attr)) {
        op = op.attr(attr, (0..spatial).map(|_| least + random.below(count) as i64).collect::<Vec<_>>());
    }
    for attr in [Attr::DstShape, Attr::WeightsShape, Attr::SrcShape].into_iter().filter(|attr| has(*attr)) {
        op = op.attr(attr, shape.clone());
    }
    if has(Attr::Groups) { op.attr(Attr::Groups, 1 + random.below(2) as i64) } else { op }
}

fn is_convolution(kind: OpKind) -> bool {
    use ShapeRule as R;
    matches!(
        Schema::of(kind).shape_rule,
        R::Conv
            | R::ConvBpropData
            | R::ConvBpropFilters
            | R::Convtranspose
            | R::ConvtransposeBpropData
            | R::ConvtransposeBpropFilters
    )
}

/// An op with attributes and values that go together, if it works on images; else as it is.
fn on_image(random: &mut Random, op: Op, values: &mut [Value]) -> Op {
    let dims: Vec<i64> = (0..3 + random.below(2)).map(|_| 1 + random.below(3) as i64).collect();
    let spatial = dims.len() - 2;
    let mut list = |least: i64| (0..spatial).map(|_| least + random.below(2) as i64).collect::<Vec<_>>();
    let channels = vec![dims[dims.len() - 1]];
    let sized = |op: Op, kind: OpKind| op_of(kind, &types(values)[..1], &[op.outputs()[0].data_type()]);
    let (forward, shapes): (Op, Vec<Vec<i64>>) = match op.kind() {
        K::MaxPool | K::AvgPool | K::MaxPoolBackward | K::AvgPoolBackward => {
            let windows = [(Attr::Kernel, 1), (Attr::Strides, 1), (Attr::PadsBegin, 0), (Attr::PadsEnd, 0)];
            let windows = windows.map(|(attr, least)| (attr, list(least)));
            let with = |op: Op| windows.iter().fold(op, |op, (attr, list)| op.attr(*attr, list.clone()));
            let with = |op: Op| with(op).attr(Attr::AutoPad, "None").attr(Attr::DataFormat, "NXC");
            let is_max = matches!(op.kind(), K::MaxPool | K::MaxPoolBackward);
            let forward = with(sized(op.clone(), if is_max { K::MaxPool } else { K::AvgPool }));
            let forward = if is_max { forward } else { forward.attr(Attr::ExcludePad, true) };
            let Ok(Some(results)) = reference::output_shapes(&forward, &[&dims]) else { return op };
            let windows = results[0].to_vec();
            let ones = vec![1i64; spatial];
            match op.kind() {
                K::AvgPoolBackward => {
                    (with(op).attr(Attr::SrcShape, dims.clone()), vec![windows, vec![dims.len() as i64]])
                }
                K::MaxPoolBackward => (with(op).attr(Attr::Dilations, ones), vec![dims, windows]),
                K::MaxPool => (with(op).attr(Attr::Dilations, ones), vec![dims]),
                _ => (with(op), vec![dims]),
            }
        }
        K::Interpolate | K::InterpolateBackward => {
            let sizes = list(1);
            let (ids, outputs) = (types(values), [op.outputs()[0].data_type()]);
            let made = op_of(op.kind(), &ids, &outputs).attr(Attr::Mode, "linear").attr(Attr::Sizes, &*sizes);
            let result = [&dims[..1], &sizes, &channels].concat();
            (made, vec![dims, result, vec![spatial as i64]])
        }
        K::BatchNormInference | K::BatchNormForwardTraining => {
            (op.attr(Attr::DataFormat, "NXC"), [vec![dims], vec![channels; 4]].concat())
        }
        K::BatchNormTrainingBackward => {
            (op.attr(Attr::DataFormat, "NXC"), [vec![dims; 2], vec![channels; 3]].concat())
        }
        _ => return op,
    };
    for (value, dims) in values.iter_mut().zip(shapes) {
        let count = dims.iter().product::<i64>() as usize;
        let bytes = vec![random.next() as u8; count * value.data_type().size().unwrap_or(1)];
        *value = Value::new(value.data_type(), &dims, bytes).unwrap();
    }
    forward
}

/// Gives an op on a cache in pages inputs of shapes that fit.
fn of_pages(random: &mut Random, op: Op, values: &mut [Value]) -> Op {
    let [pages, heads, page, depth, count, entries] = [0; 6].map(|_| 1 + random.below(3) as i64);
    let shapes: [&[i64]; 3] = match op.kind() {
        K::PagedLoad => [&[pages, heads, page, depth], &[count, entries], &[count]],
        _ => [&[pages, heads, page, depth], &[count, heads, depth], &[count]],
    };
    for (value, dims) in values.iter_mut().zip(shapes) {
        let bits = dims.iter().product::<i64>() as usize * value.data_type().bits();
        *value = Value::new(value.data_type(), dims, vec![0; bits.div_ceil(8)]).unwrap();
    }
    op
}

#[test]
fn no_input_makes_an_op_panic() {
    let mut random = Random::new(0x0b5e_55ed);
    let mut runs = BTreeMap::<&str, usize>::new();
    for _ in 0..400_000 {
        let kind = random.pick(OpKind::ALL);
        let schema = Schema::of(kind);
        let counts = |count: Count, random: &mut Random| {
            let allowed: Vec<usize> = (0..7).filter(|&n| count.allows(n)).collect();
            allowed[random.below(allowed.len())]
        };
        let mut of_variable = BTreeMap::new();
        for (variable, types) in schema.types {
            of_variable.insert(*variable, random.pick(types));
        }
        let type_of = |port: &Port| of_variable.get(port.type_variable).copied().unwrap_or(D::F32);
        let port = |ports: &[Port], i: usize| type_of(&ports[i.min(ports.len() - 1)]);
        let inputs: Vec<DataType> =
            (0..counts(schema.input_count, &mut random)).map(|i| port(schema.inputs, i)).collect();
        let outputs: Vec<DataType> =
            (0..counts(schema.output_count, &mut random)).map(|i| port(schema.outputs, i)).collect();
        let mut op = op_of(kind, &inputs, &outputs);
        for row in schema.attributes.iter().filter(|row| row.required || row.attr != Attr::Zps) {
            if row.required || random.below(2) == 0 {
                op = op.attr(row.attr, random_attr(&mut random, row));
            }
        }
        let mut values: Vec<Value> = inputs.iter().map(|&of| random_value(&mut random, of)).collect();
        // Shapes fit more often where they are the same, lack a dim, or are those of a single number.
        if random.below(2) == 0 {
            for i in 1..values.len() {
                let dims = match random.below(3) {
                    0 => vec![1],
                    1 => values[0].dims()[..values[0].dims().len().saturating_sub(1)].to_vec(),
                    _ => values[0].dims().to_vec(),
                };
                let bits = dims.iter().product::<i64>() as usize * inputs[i].bits();
                values[i] =
                    Value::new(inputs[i], &dims, vec![random.next() as u8; bits.div_ceil(8)]).unwrap();
            }
        }
        if random.below(2) == 0 {
            op = match op.kind() {
                kind if is_convolution(kind) => of_windows(&mut random, op, &mut values),
                K::PagedLoad | K::CacheStore => of_pages(&mut random, op, &mut values),
                _ => on_image(&mut random, op, &mut values),
            };
        }
        let bounds = reference::bounds(&op, &values);
        if let Ok(results) = reference::run(&op, &values) {
            if let Some(bounds) = bounds.unwrap() {
                // The product of some dims may be more than can be counted if another is 0.
                let size = results[0].data_type().bits();
                assert_eq!(bounds.len() * size, results[0].bytes().len() * 8, "{op:?}");
            }
            assert_eq!(types(&results), outputs, "{op:?}");
            *runs.entry(kind.name()).or_default() += 1;
        }
    }
    // Chance must not miss what it is there for.
    let rare: Vec<_> = OpKind::ALL
        .iter()
        .filter(|kind| reference::supports(&common::plain_op(**kind)).is_ok())
        .filter(|kind| runs.get(kind.name()).is_none_or(|&count| count < 5))
        .collect();
    report(&rare.iter().map(|kind| format!("{kind}: {:?} runs", runs.get(kind.name()))).collect::<Vec<_>>());
}
