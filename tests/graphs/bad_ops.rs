//! Bad input to what describes a graph: each is an error that names what clashes, and a good neighbour of it
//! is none.

use crate::common::open::{self, OPEN};
use sterna::{
    Attr, AttrValue, AutoBroadcast, Check, DataType, Dims, Direction, Error, FpMath, FpMathMode, Graph,
    GraphFault, Layout, LogicalTensor, Op, OpFault, OpId, OpKind, OpRef, PortRef, Property, Schema, Status,
    TensorFault,
};

use Attr as A;
use DataType as D;
use OpKind as K;

const ID: OpId = OpId::new(7);

fn unknown(id: usize, data_type: DataType) -> LogicalTensor {
    LogicalTensor::unknown(id, data_type)
}

/// An op on tensors of which only the types are known; inputs have ids from 0, outputs from 100.
fn op(kind: OpKind, inputs: &[DataType], outputs: &[DataType]) -> Op {
    let op = Op::new(ID, kind).inputs_from(inputs.iter().enumerate().map(|(id, &t)| unknown(id, t)));
    outputs.iter().enumerate().fold(op, |op, (id, &t)| op.output(unknown(100 + id, t)))
}

fn add(op: Op) -> Result<(), Error> {
    Graph::new().add_op(op)
}

fn report(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn logical_tensors() {
    let dims = |dims: &[i64]| Dims::from(dims);
    let too_large =
        |given: &[i64], strides: &[i64]| TensorFault::TooLarge { dims: dims(given), strides: dims(strides) };
    let strided = |given: &[i64]| open::strided(3, D::F32, given);
    let any = |given: &[i64]| open::any(3, D::U8, given);
    let with_strides = |given: &[i64], strides: &[i64]| open::with_strides(3, D::U8, given, strides);
    let half = i64::MAX / 2 + 1;
    let rows: Vec<(Result<LogicalTensor, Error>, TensorFault, &str)> = vec![
        (strided(&[1; 13]), TensorFault::Rank { rank: 13 }, "tensor 3: rank 13 is larger than 12"),
        (any(&[1; 13]), TensorFault::Rank { rank: 13 }, "tensor 3: rank 13 is larger than 12"),
        (
            strided(&[2, -3]),
            TensorFault::NegativeDim { axis: 1, dim: -3 },
            "tensor 3: dim 1 is -3; a dim is not negative",
        ),
        (
            any(&[OPEN, i64::MIN + 1]),
            TensorFault::NegativeDim { axis: 1, dim: i64::MIN + 1 },
            "tensor 3: dim 1 is -9223372036854775807; a dim is not negative",
        ),
        (
            with_strides(&[2, 3], &[-3, 1]),
            TensorFault::NegativeStride { axis: 0, stride: -3 },
            "tensor 3: stride 0 is -3; a stride is not negative",
        ),
        (
            with_strides(&[2, 3], &[1]),
            TensorFault::StrideCount { dims: 2, strides: 1 },
            "tensor 3: 1 strides for 2 dims",
        ),
        (
            with_strides(&[], &[1]),
            TensorFault::StrideCount { dims: 0, strides: 1 },
            "tensor 3: 1 strides for 0 dims",
        ),
        // A product of dims beyond i64, then one that only the size of an element takes there.
        (
            strided(&[i64::MAX, 2]),
            too_large(&[i64::MAX, 2], &[]),
            "tensor 3: {9223372036854775807,2} with strides {} is larger than the address space",
        ),
        (
            any(&[1 << 32, 1 << 31]),
            too_large(&[1 << 32, 1 << 31], &[]),
            "tensor 3: {4294967296,2147483648} with strides {} is larger than the address space",
        ),
        (
            strided(&[1 << 61]),
            too_large(&[1 << 61], &[]),
            "tensor 3: {2305843009213693952} with strides {} is larger than the address space",
        ),
        // Extents beyond i64: of one dim, of the sum, and of the memory a caller allocates.
        (
            with_strides(&[3], &[i64::MAX]),
            too_large(&[3], &[i64::MAX]),
            "tensor 3: {3} with strides {9223372036854775807} is larger than the address space",
        ),
        (
            with_strides(&[2, 2], &[half, half]),
            too_large(&[2, 2], &[half, half]),
            "tensor 3: {2,2} with strides {4611686018427387904,4611686018427387904} is larger than the address space",
        ),
        (
            with_strides(&[2], &[half]),
            too_large(&[2], &[half]),
            "tensor 3: {2} with strides {4611686018427387904} is larger than the address space",
        ),
        (
            LogicalTensor::host_scalar(3, D::F64),
            TensorFault::HostScalar { rank: Some(0), data_type: D::F64 },
            "tensor 3: a host scalar has rank 0 and type s32, s64 or f32, not rank 0 and type f64",
        ),
        (
            strided(&[1]).and_then(|tensor| tensor.with_property(Property::HostScalar)),
            TensorFault::HostScalar { rank: Some(1), data_type: D::F32 },
            "tensor 3: a host scalar has rank 0 and type s32, s64 or f32, not rank 1 and type f32",
        ),
        (
            unknown(3, D::F32).with_property(Property::HostScalar),
            TensorFault::HostScalar { rank: None, data_type: D::F32 },
            "tensor 3: a host scalar has rank 0 and type s32, s64 or f32, not unknown rank and type f32",
        ),
    ];
    let wrong = rows.into_iter().filter_map(|(result, fault, text)| {
        let expected = Error::Tensor { id: 3.into(), fault };
        let good = matches!(&result, Err(error) if *error == expected && error.to_string() == text)
            && expected.status() == Status::InvalidArguments;
        (!good).then(|| format!("{result:?}\n  expected {expected:?}: {text}"))
    });
    report(wrong.collect());

    let good = [
        strided(&[1; 12]),
        strided(&[OPEN, 3]),
        strided(&[0, 1 << 40]),
        any(&[i64::MAX]),
        with_strides(&[2, OPEN], &[OPEN, 1]),
        with_strides(&[0, 3], &[i64::MAX, i64::MAX]),
        with_strides(&[1, 3], &[i64::MAX, 0]),
        LogicalTensor::host_scalar(3, D::S64),
    ];
    report(good.iter().filter(|result| result.is_err()).map(|result| format!("{result:?}")).collect());
}

#[test]
fn ops_that_do_not_fit_their_rows() {
    let select = || op(K::Select, &[D::Boolean, D::F32, D::F32], &[D::F32]);
    let port = |direction, index, name, tensor: usize| PortRef::new(direction, index, name, tensor);
    let (then, otherwise) = (port(Direction::Input, 1, "then", 1), port(Direction::Input, 2, "else", 2));
    let row_of = |kind| Schema::of(kind);
    let count =
        |direction, expected: &str, given| OpFault::Count { direction, expected: expected.into(), given };
    let rows: Vec<(Op, OpFault, &str)> = vec![
        (
            op(K::Select, &[D::Boolean, D::F32], &[D::F32]),
            count(Direction::Input, "3", 2),
            "Select (op 7): 2 inputs were given, 3 expected",
        ),
        (
            op(K::Select, &[D::Boolean, D::F32, D::F32, D::F32], &[D::F32]),
            count(Direction::Input, "3", 4),
            "Select (op 7): 4 inputs were given, 3 expected",
        ),
        (
            op(K::Select, &[D::Boolean, D::F32, D::F32], &[]),
            count(Direction::Output, "1", 0),
            "Select (op 7): 0 outputs were given, 1 expected",
        ),
        (
            op(K::LayerNorm, &[D::F32, D::F32], &[D::F32]),
            count(Direction::Input, "1 or 3", 2),
            "LayerNorm (op 7): 2 inputs were given, 1 or 3 expected",
        ),
        (
            op(K::Concat, &[], &[D::F32]).axis(0),
            count(Direction::Input, "1 to 64", 0),
            "Concat (op 7): 0 inputs were given, 1 to 64 expected",
        ),
        (
            op(K::Concat, &[D::F32; 65], &[D::F32]).axis(0),
            count(Direction::Input, "1 to 64", 65),
            "Concat (op 7): 65 inputs were given, 1 to 64 expected",
        ),
        (
            op(K::End, &[D::F32], &[D::F32]),
            count(Direction::Output, "0", 1),
            "End (op 7): 1 outputs were given, 0 expected",
        ),
        (
            op(K::Select, &[D::U8, D::F32, D::F32], &[D::F32]),
            OpFault::Type {
                port: port(Direction::Input, 0, "cond", 0),
                allowed: &[D::Boolean],
                given: D::U8,
            },
            "Select (op 7): input 0 `cond` (tensor 0) is u8; it must be boolean",
        ),
        (
            op(K::Select, &[D::Boolean, D::S4, D::S4], &[D::S4]),
            OpFault::Type { port: then, allowed: DataType::WHOLE, given: D::S4 },
            "Select (op 7): input 1 `then` (tensor 1) is s4, not one of f16, bf16, f32, s32, s8, u8, f64, boolean, \
             f8_e5m2, f8_e4m3, s64, s16, u16, u32, u64",
        ),
        (
            op(K::Select, &[D::Boolean, D::F32, D::S32], &[D::F32]),
            OpFault::TypesDiffer { port: otherwise, given: D::S32, other: then, expected: D::F32 },
            "Select (op 7): input 2 `else` (tensor 2) is s32, but input 1 `then` (tensor 1) is f32; they share one type",
        ),
        (
            op(K::Select, &[D::Boolean, D::F32, D::F32], &[D::F16]),
            OpFault::TypesDiffer {
                port: port(Direction::Output, 0, "dst", 100),
                given: D::F16,
                other: then,
                expected: D::F32,
            },
            "Select (op 7): output 0 `dst` (tensor 100) is f16, but input 1 `then` (tensor 1) is f32; they share one type",
        ),
        (
            op(K::Concat, &[D::F32, D::F32, D::Bf16], &[D::F32]).axis(0),
            OpFault::TypesDiffer {
                port: port(Direction::Input, 2, "src_i", 2),
                given: D::Bf16,
                other: port(Direction::Input, 0, "src_i", 0),
                expected: D::F32,
            },
            "Concat (op 7): input 2 `src_i` (tensor 2) is bf16, but input 0 `src_i` (tensor 0) is f32; they share one \
             type",
        ),
        (
            op(K::Exp, &[D::S32], &[D::S32]),
            OpFault::Type {
                port: port(Direction::Input, 0, "src", 0),
                allowed: row_of(K::Exp).types[0].1,
                given: D::S32,
            },
            "Exp (op 7): input 0 `src` (tensor 0) is s32, not one of f32, bf16, f16, f64",
        ),
        (
            select().attr(A::TransposeA, true),
            OpFault::UnknownAttr(A::TransposeA),
            "Select (op 7): attribute `transpose_a` does not exist on ops of this kind",
        ),
        (
            op(K::Add, &[D::F32, D::F32], &[D::F32]).axis(0),
            OpFault::UnknownAttr(A::Axis),
            "Add (op 7): attribute `axis` does not exist on ops of this kind",
        ),
        (
            select().attr(A::AutoBroadcast, 1i64),
            OpFault::AttrType { attr: A::AutoBroadcast, expected: "string", given: "s64" },
            "Select (op 7): attribute `auto_broadcast` is of type s64, not string",
        ),
        (
            select().auto_broadcast(AutoBroadcast::Pdpd).attr(A::Axis, vec![1i64]),
            OpFault::AttrType { attr: A::Axis, expected: "s64", given: "s64[]" },
            "Select (op 7): attribute `axis` is of type s64[], not s64",
        ),
        (
            select().attr(A::AutoBroadcast, "nump"),
            OpFault::AttrValue {
                attr: A::AutoBroadcast,
                allowed: &["none", "numpy", "pdpd", "multidirectional"],
                given: "nump".into(),
            },
            "Select (op 7): attribute `auto_broadcast` is \"nump\", not one of [\"none\", \"numpy\", \"pdpd\", \
             \"multidirectional\"]",
        ),
        (
            op(K::Add, &[D::F32, D::F32], &[D::F32]).auto_broadcast(AutoBroadcast::Pdpd),
            OpFault::AttrValue { attr: A::AutoBroadcast, allowed: &["none", "numpy"], given: "pdpd".into() },
            "Add (op 7): attribute `auto_broadcast` is \"pdpd\", not one of [\"none\", \"numpy\"]",
        ),
        (
            select().axis(0),
            OpFault::AttrNeedsMode { attr: A::Axis, needs: AutoBroadcast::Pdpd, given: AutoBroadcast::Numpy },
            "Select (op 7): attribute `axis` goes with auto_broadcast = pdpd alone, not with numpy",
        ),
        (
            select().auto_broadcast(AutoBroadcast::Multidirectional).axis(-1),
            OpFault::AttrNeedsMode {
                attr: A::Axis,
                needs: AutoBroadcast::Pdpd,
                given: AutoBroadcast::Multidirectional,
            },
            "Select (op 7): attribute `axis` goes with auto_broadcast = pdpd alone, not with multidirectional",
        ),
        (
            op(K::GenIndex, &[D::F32], &[D::S32]),
            OpFault::MissingAttr(A::Axis),
            "GenIndex (op 7): attribute `axis` is missing",
        ),
    ];
    let wrong = rows.into_iter().filter_map(|(op, fault, text)| {
        let expected = Error::Op { op: OpRef::new(op.kind(), ID), fault };
        let result = add(op);
        let good = matches!(&result, Err(error) if *error == expected && error.to_string() == text)
            && expected.status() == Status::InvalidGraphOp;
        (!good).then(|| format!("{result:?}\n  expected {expected:?}: {text}"))
    });
    report(wrong.collect());
}

#[test]
fn every_check_is_violated_and_satisfied() {
    let pool = |begin: i64, end: i64| {
        op(K::AvgPool, &[D::F32], &[D::F32])
            .attr(A::Strides, vec![1i64])
            .attr(A::PadsBegin, vec![0, begin])
            .attr(A::PadsEnd, vec![end])
            .attr(A::ExcludePad, true)
            .attr(A::Kernel, vec![2i64])
    };
    let max_pool = |dilations: Option<Vec<i64>>| {
        let op = op(K::MaxPool, &[D::F32], &[D::F32])
            .attr(A::Strides, vec![1i64, 1])
            .attr(A::PadsBegin, vec![0i64, 0])
            .attr(A::PadsEnd, vec![0i64, 0])
            .attr(A::Kernel, vec![2i64, 2]);
        match dilations {
            Some(dilations) => op.attr(A::Dilations, dilations),
            None => op,
        }
    };
    let batch_norm = |src, other| {
        op(K::BatchNormInference, &[src, other, other, other, other], &[src]).attr(A::Epsilon, 1e-5)
    };
    let quantize = |kind, from, to, scales: &[f32], zps: Option<&[i64]>| {
        let op = op(kind, &[from], &[to]).attr(A::Scales, scales);
        match zps {
            Some(zps) => op.attr(A::Zps, zps),
            None => op,
        }
    };
    let shaped = |id: usize, data_type, dims: &[i64]| open::any(id, data_type, dims).unwrap();
    let dynamic = |qtype: &str, scales: &[i64], zps: Option<&[i64]>| {
        let op = Op::new(ID, K::DynamicDequantize).input(unknown(0, D::S8)).input(shaped(1, D::F32, scales));
        let op = match zps {
            Some(zps) => op.input(shaped(2, D::S8, zps)),
            None => op,
        };
        op.output(unknown(100, D::F32)).attr(A::Qtype, qtype)
    };
    let resize = || op(K::Interpolate, &[D::F32], &[D::F32]).attr(A::Mode, "nearest");
    let (sizes, scales) = (AttrValue::S64s(vec![2]), AttrValue::F32s(vec![2.0]));
    let with = |op: Op, attr, value: &AttrValue| match value {
        AttrValue::S64s(values) => op.attr(attr, values.clone()),
        AttrValue::F32s(values) => op.attr(attr, values.clone()),
        other => panic!("no list: {other:?}"),
    };
    let layer_norm = |outputs: usize| op(K::LayerNorm, &[D::F32; 3], &vec![D::F32; outputs]);
    let layer_norm_backward = |outputs: usize| op(K::LayerNormBackward, &[D::F32; 4], &vec![D::F32; outputs]);
    let reduce = |types: &[DataType]| op(K::ReduceSum, types, &[D::F32]);
    let matmul = |dst| op(K::MatMul, &[D::Bf16, D::Bf16], &[dst]);
    let softmax = |src, dst| op(K::SoftMax, &[src], &[dst]);
    let softmax_backward = |dst| op(K::SoftMaxBackward, &[D::Bf16, D::Bf16], &[dst]);
    let cast = |src, dst| op(K::TypeCast, &[src], &[dst]);
    let fill = |shape: &[i64]| op(K::Fill, &[], &[D::F32]).attr(A::Shape, shape).attr(A::Value, 1.0);
    let gradient =
        |shape: &[i64]| op(K::GatherBackward, &[D::F32, D::S32], &[D::F32]).attr(A::SrcShape, shape);
    let scatter = |of| op(K::ScatterND, &[of, D::S64, of], &[of]);
    let slice = |starts: &[i64], ends: &[i64], steps: &[i64], axes: &[i64]| {
        let op = op(K::Slice, &[D::U8], &[D::U8]).attr(A::Starts, starts).attr(A::Ends, ends);
        op.attr(A::Steps, steps).attr(A::Axes, axes)
    };
    let select = |axis: i64| {
        let op = op(K::Select, &[D::Boolean, D::F32, D::F32], &[D::F32]);
        op.auto_broadcast(AutoBroadcast::Pdpd).axis(axis)
    };

    let rows: Vec<(Check, Op, Option<&str>)> = vec![
        (Check::NonNegativePads, pool(-1, 0), Some("`pads_begin` is [0, -1], `pads_end` is [0]")),
        (Check::NonNegativePads, pool(0, -1), Some("`pads_begin` is [0, 0], `pads_end` is [-1]")),
        (Check::NonNegativePads, pool(1, 0), None),
        (
            Check::NormTypes,
            batch_norm(D::F32, D::Bf16),
            Some(
                "input 0 `src` (tensor 0) is f32, input 1 `gamma` (tensor 1) is bf16, \
             input 2 `beta` (tensor 2) is bf16, input 3 `mean` (tensor 3) is bf16, \
             input 4 `variance` (tensor 4) is bf16, output 0 `dst` (tensor 100) is f32",
            ),
        ),
        (
            Check::NormTypes,
            batch_norm(D::F16, D::Bf16),
            Some(
                "input 0 `src` (tensor 0) is f16, input 1 `gamma` (tensor 1) is bf16, \
             input 2 `beta` (tensor 2) is bf16, input 3 `mean` (tensor 3) is bf16, \
             input 4 `variance` (tensor 4) is bf16, output 0 `dst` (tensor 100) is f16",
            ),
        ),
        (Check::NormTypes, batch_norm(D::Bf16, D::Bf16), None),
        (Check::NormTypes, batch_norm(D::F16, D::F32), None),
        (
            Check::QuantParams,
            quantize(K::Quantize, D::F32, D::U8, &[1.0, 2.0], None),
            Some(
                "`qtype` is per_tensor, `scales` is [1.0, 2.0], `zps` is not set, \
             input 0 `src` (tensor 0) is f32, output 0 `dst` (tensor 100) is u8",
            ),
        ),
        (
            Check::QuantParams,
            quantize(K::Quantize, D::F32, D::U8, &[1.0], Some(&[0, 0])),
            Some(
                "`qtype` is per_tensor, `scales` is [1.0], `zps` is [0, 0], \
             input 0 `src` (tensor 0) is f32, output 0 `dst` (tensor 100) is u8",
            ),
        ),
        (
            Check::QuantParams,
            quantize(K::Dequantize, D::F8E4m3, D::F32, &[1.0], Some(&[0])),
            Some(
                "`qtype` is per_tensor, `scales` is [1.0], `zps` is [0], \
             input 0 `src` (tensor 0) is f8_e4m3, output 0 `dst` (tensor 100) is f32",
            ),
        ),
        (Check::QuantParams, quantize(K::Dequantize, D::F8E4m3, D::F32, &[1.0], None), None),
        (Check::QuantParams, quantize(K::Dequantize, D::S8, D::F32, &[1.0], Some(&[0])), None),
        (
            Check::QuantParams,
            quantize(K::Quantize, D::F32, D::U8, &[1.0, 2.0], Some(&[0, 0])).attr(A::Qtype, "per_channel"),
            None,
        ),
        (
            Check::DynamicQuantParams,
            dynamic("per_tensor", &[2], None),
            Some("`qtype` is per_tensor, input 1 `scales` (tensor 1) is {2}"),
        ),
        (
            Check::DynamicQuantParams,
            dynamic("per_tensor", &[1], Some(&[2])),
            Some(
                "`qtype` is per_tensor, input 1 `scales` (tensor 1) is {1}, \
             input 2 `zps` (tensor 2) is {2}",
            ),
        ),
        (
            Check::DynamicQuantParams,
            dynamic("per_channel", &[4], Some(&[3])),
            Some(
                "`qtype` is per_channel, input 1 `scales` (tensor 1) is {4}, \
             input 2 `zps` (tensor 2) is {3}",
            ),
        ),
        (
            Check::DynamicQuantParams,
            dynamic("per_group", &[4], None),
            Some("`qtype` is per_group, input 1 `scales` (tensor 1) is {4}"),
        ),
        (
            Check::DynamicQuantParams,
            dynamic("per_group", &[4, 2], Some(&[2])),
            Some(
                "`qtype` is per_group, input 1 `scales` (tensor 1) is {4,2}, \
             input 2 `zps` (tensor 2) is {2}",
            ),
        ),
        (
            Check::DynamicQuantParams,
            dynamic("per_group", &[4, 2], Some(&[4, 3])),
            Some(
                "`qtype` is per_group, input 1 `scales` (tensor 1) is {4,2}, \
             input 2 `zps` (tensor 2) is {4,3}",
            ),
        ),
        (Check::DynamicQuantParams, dynamic("per_tensor", &[1], Some(&[1])), None),
        (Check::DynamicQuantParams, dynamic("per_tensor", &[OPEN], None), None),
        (Check::DynamicQuantParams, dynamic("per_channel", &[4], Some(&[1])), None),
        (Check::DynamicQuantParams, dynamic("per_channel", &[4], Some(&[4])), None),
        (Check::DynamicQuantParams, dynamic("per_group", &[4, 2], Some(&[4, OPEN])), None),
        (Check::SizesOrScales, resize(), Some("`sizes` is not set, `scales` is not set")),
        (
            Check::SizesOrScales,
            with(with(resize(), A::Sizes, &sizes), A::Scales, &scales),
            Some("`sizes` is [2], `scales` is [2.0]"),
        ),
        (Check::SizesOrScales, with(resize(), A::Sizes, &sizes), None),
        (Check::SizesOrScales, with(resize(), A::Scales, &scales), None),
        (Check::KeepStatsOutputs, layer_norm(1), Some("the number of outputs is 1")),
        (Check::KeepStatsOutputs, layer_norm(1).attr(A::KeepStats, false), None),
        (Check::KeepStatsOutputs, layer_norm(3), None),
        (Check::UseAffineOutputs, layer_norm_backward(1), Some("the number of outputs is 1")),
        (Check::UseAffineOutputs, layer_norm_backward(1).attr(A::UseAffine, false), None),
        (Check::UseAffineOutputs, layer_norm_backward(3), None),
        (
            Check::OutputTypeOrF32,
            matmul(D::F16),
            Some(
                "input 0 `src` (tensor 0) is bf16, input 1 `weights` (tensor 1) is bf16, \
             output 0 `dst` (tensor 100) is f16",
            ),
        ),
        (
            Check::OutputTypeOrF32,
            softmax_backward(D::F16),
            Some(
                "input 0 `diff_dst` (tensor 0) is bf16, input 1 `dst` (tensor 1) is bf16, \
             output 0 `diff_src` (tensor 100) is f16",
            ),
        ),
        (Check::OutputTypeOrF32, matmul(D::F32), None),
        (Check::OutputTypeOrF32, matmul(D::Bf16), None),
        (Check::OutputTypeOrF32, softmax_backward(D::F32), None),
        (
            Check::OneF32OrSameType,
            softmax(D::Bf16, D::F16),
            Some("input 0 `src` (tensor 0) is bf16, output 0 `dst` (tensor 100) is f16"),
        ),
        (Check::OneF32OrSameType, softmax(D::F16, D::F16), None),
        (Check::OneF32OrSameType, softmax(D::F32, D::Bf16), None),
        (Check::OneF32OrSameType, softmax(D::F16, D::F32), None),
        (Check::DilationsOfKernel, max_pool(Some(vec![1])), Some("`kernel` is [2, 2], `dilations` is [1]")),
        (
            Check::DilationsOfKernel,
            max_pool(Some(vec![1; 11])),
            Some("`kernel` is [2, 2], `dilations` is [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"),
        ),
        (Check::DilationsOfKernel, max_pool(Some(vec![2, 1])), None),
        (Check::DilationsOfKernel, max_pool(None), None),
        (
            Check::AxesOnce,
            reduce(&[D::F32, D::S32]).attr(A::Axes, vec![0i64]),
            Some(
                "`axes` is [0], input 0 `src` (tensor 0) is f32, input 1 `axes` (tensor 1) is s32, \
             output 0 `dst` (tensor 100) is f32",
            ),
        ),
        (Check::AxesOnce, reduce(&[D::F32, D::S32]), None),
        (Check::AxesOnce, reduce(&[D::F32]).attr(A::Axes, vec![0i64]), None),
        (Check::AxesOnce, reduce(&[D::F32]), None),
        (
            Check::CastTypes,
            cast(D::F32, D::F32),
            Some("input 0 `src` (tensor 0) is f32, output 0 `dst` (tensor 100) is f32"),
        ),
        (
            Check::CastTypes,
            cast(D::Bf16, D::F16),
            Some("input 0 `src` (tensor 0) is bf16, output 0 `dst` (tensor 100) is f16"),
        ),
        (Check::CastTypes, cast(D::F16, D::F32), None),
        (Check::AxisNeedsPdpd, select(-2), Some("`axis` is -2")),
        (Check::AxisNeedsPdpd, select(i64::MIN), Some("`axis` is -9223372036854775808")),
        (Check::AxisNeedsPdpd, select(-1), None),
        (Check::AxisNeedsPdpd, select(11), None),
        (
            Check::SliceRanges,
            slice(&[0, 0], &[1], &[], &[]),
            Some("`starts` is [0, 0], `ends` is [1], `steps` is [], `axes` is []"),
        ),
        (
            Check::SliceRanges,
            slice(&[0], &[1], &[0], &[]),
            Some("`starts` is [0], `ends` is [1], `steps` is [0], `axes` is []"),
        ),
        (
            Check::SliceRanges,
            slice(&[0], &[1], &[1, 1], &[]),
            Some("`starts` is [0], `ends` is [1], `steps` is [1, 1], `axes` is []"),
        ),
        (
            Check::SliceRanges,
            slice(&[], &[], &[], &[1]),
            Some("`starts` is [], `ends` is [], `steps` is [], `axes` is [1]"),
        ),
        (Check::SliceRanges, slice(&[0, -1], &[1, 9], &[-1, 3], &[1, -3]), None),
        (Check::SliceRanges, slice(&[], &[], &[], &[]), None),
        (Check::ShapeOfTensor, fill(&[2, -1]), Some("`shape` is [2, -1]")),
        (Check::ShapeOfTensor, fill(&[1; 13]), Some("`shape` is [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]")),
        (Check::ShapeOfTensor, fill(&[OPEN]), Some("`shape` is [-9223372036854775808]")),
        (Check::SrcShapeOfTensor, gradient(&[2, -1]), Some("`src_shape` is [2, -1]")),
        (Check::SrcShapeOfTensor, gradient(&[3]), None),
        (
            Check::ReductionTypes,
            scatter(D::Boolean).attr(A::Reduction, "add"),
            Some(
                "`reduction` is add, input 0 `src` (tensor 0) is boolean, input 1 `indices` (tensor 1) is s64, \
                 input 2 `updates` (tensor 2) is boolean, output 0 `dst` (tensor 100) is boolean",
            ),
        ),
        (Check::ReductionTypes, scatter(D::Boolean), None),
        (Check::ReductionTypes, scatter(D::F16).attr(A::Reduction, "max"), None),
        (Check::ShapeOfTensor, fill(&[]), None),
        (Check::ShapeOfTensor, fill(&[0; 12]), None),
    ];
    for &check in Schema::all().iter().flat_map(|schema| schema.checks) {
        let satisfied: Vec<bool> =
            rows.iter().filter(|row| row.0 == check).map(|(_, _, found)| found.is_none()).collect();
        assert!(satisfied.contains(&true) && satisfied.contains(&false), "{check:?} lacks a row");
    }
    let wrong = rows.into_iter().filter_map(|(check, op, expected)| {
        assert!(Schema::of(op.kind()).checks.contains(&check), "{check:?} on {}", op.kind());
        let kind = op.kind();
        let result = add(op);
        let good = match (&result, expected) {
            (Ok(()), None) => true,
            (Err(error @ Error::Op { op, fault: OpFault::Check { rule, found } }), Some(expected)) => {
                *op == OpRef::new(kind, ID)
                    && found == expected
                    && error.to_string() == format!("{kind} (op 7): {rule}; here {expected}")
                    && error.status() == Status::InvalidGraphOp
            }
            _ => false,
        };
        (!good).then(|| format!("{check:?}: {result:?}\n  expected {expected:?}"))
    });
    report(wrong.collect());
}

#[test]
fn defaults_are_filled_in_and_good_ops_are_taken() {
    let mut graph = Graph::new();
    graph.add_op(op(K::Select, &[D::Boolean, D::F64, D::F64], &[D::F64])).unwrap();
    let attrs: Vec<_> = graph.ops()[0].attrs().collect();
    assert_eq!(attrs, [(A::AutoBroadcast, &AttrValue::from("numpy"))]);

    // Ports of a variable without a list take every type, each its own.
    add(op(K::Wildcard, DataType::ALL, DataType::ALL)).unwrap();
    add(op(K::Wildcard, &[], &[])).unwrap();
    for &data_type in DataType::ALL {
        add(op(K::End, &[data_type], &[])).unwrap();
    }
    for &data_type in DataType::WHOLE {
        add(op(K::Select, &[D::Boolean, data_type, data_type], &[data_type])).unwrap();
    }
    add(op(K::Concat, &[D::F32; 64], &[D::F32]).axis(0)).unwrap();
}

/// An op that gives one tensor from another.
fn abs(id: usize, src: usize, dst: usize) -> Op {
    Op::new(id, K::Abs).input(unknown(src, D::F32)).output(unknown(dst, D::F32))
}

/// An op that gives one tensor from two others.
fn maximum(id: usize, src: [usize; 2], dst: usize) -> Op {
    Op::new(id, K::Maximum).inputs_from(src.map(|src| unknown(src, D::F32))).output(unknown(dst, D::F32))
}

fn op_ref(kind: OpKind, id: usize) -> OpRef {
    OpRef::new(kind, id)
}

/// The answer of `finalize` for a graph of these ops.
fn finalize(ops: impl IntoIterator<Item = Op>) -> Result<(), Error> {
    let mut graph = Graph::new();
    for op in ops {
        graph.add_op(op).unwrap();
    }
    let result = graph.finalize();
    assert_eq!(graph.is_finalized(), result.is_ok());
    result
}

#[test]
fn an_op_id_occurs_once() {
    let mut graph = Graph::new();
    graph.add_op(abs(5, 0, 1)).unwrap();
    let error = graph.add_op(maximum(5, [1, 2], 3)).unwrap_err();
    assert_eq!(error, GraphFault::DuplicateOp(op_ref(K::Maximum, 5)).into());
    assert_eq!(error.status(), Status::InvalidGraphOp);
    assert_eq!(error.to_string(), "Maximum (op 5): an op of this id is in the graph already");
    assert_eq!(graph.ops().len(), 1);

    // An op that was refused leaves its id free.
    graph.add_op(Op::new(6, K::Abs)).unwrap_err();
    graph.add_op(abs(6, 1, 2)).unwrap();
}

#[test]
fn a_finalized_graph_does_not_change() {
    let mut graph = Graph::new();
    let fpmath = FpMath::new(FpMathMode::Tf32).apply_to_int(true);
    graph.set_fpmath(fpmath).unwrap();
    graph.add_op(abs(1, 0, 1)).unwrap();
    graph.finalize().unwrap();
    graph.finalize().unwrap();

    let added = graph.add_op(abs(2, 1, 2)).unwrap_err();
    let set = graph.set_fpmath(FpMath::default()).unwrap_err();
    for error in [added, set] {
        assert_eq!(error, GraphFault::Finalized.into());
        assert_eq!(error.status(), Status::InvalidGraph);
        assert_eq!(error.to_string(), "the graph is finalized and cannot be changed");
    }
    assert_eq!((graph.ops().len(), graph.fpmath()), (1, fpmath));

    assert_eq!(finalize([]), Ok(()), "a graph without ops");
}

#[test]
fn a_tensor_has_one_producer() {
    let twice = Op::new(4, K::Wildcard).output(unknown(9, D::F32)).output(unknown(9, D::F32));
    let rows = [
        (
            finalize([abs(1, 0, 9), abs(2, 9, 3), maximum(3, [3, 0], 9)]),
            (op_ref(K::Abs, 1), op_ref(K::Maximum, 3)),
            "tensor 9 is produced by Abs (op 1) and by Maximum (op 3)",
        ),
        (
            finalize([twice]),
            (op_ref(K::Wildcard, 4), op_ref(K::Wildcard, 4)),
            "tensor 9 is produced by Wildcard (op 4) and by Wildcard (op 4)",
        ),
    ];
    let wrong = rows.into_iter().filter_map(|(result, (first, second), text)| {
        let expected = Error::from(GraphFault::TwoProducers { tensor: 9.into(), first, second });
        let good = result.as_ref() == Err(&expected)
            && expected.to_string() == text
            && expected.status() == Status::InvalidGraph;
        (!good).then(|| format!("{result:?}, expected {expected:?}: {text}"))
    });
    report(wrong.collect());
}

#[test]
fn mentions_of_a_tensor_are_equal() {
    let any = |dims: &[i64]| open::any(9, D::F32, dims).unwrap();
    let strided = |strides: &[i64]| open::with_strides(9, D::F32, &[2, 3], strides).unwrap();
    let of_layout = |dims, layout| open::with_layout(9, D::F32, dims, layout).unwrap();
    let constant = any(&[2]).with_property(Property::Constant).unwrap();
    let undef = of_layout(Some(&[2, 3]), Layout::Undef);
    let opaque = |id| of_layout(Some(&[2]), Layout::Opaque(id));
    let rows = [
        (unknown(9, D::F32), unknown(9, D::S32), "types", "f32", "s32"),
        (any(&[2]), any(&[2, 1]), "ranks", "{2}", "{2,1}"),
        (any(&[2, 3]), any(&[2, 4]), "dims", "{2,3}", "{2,4}"),
        (any(&[2, 3]), strided(&[3, 1]), "layouts", "any", "strided"),
        (opaque(1), opaque(2), "layouts", "opaque 1", "opaque 2"),
        (strided(&[3, 1]), strided(&[1, 2]), "strides", "{3,1}", "{1,2}"),
        (any(&[2]), constant, "properties", "undef", "constant"),
        // An open part is a description, too.
        (unknown(9, D::F32), any(&[2]), "ranks", "unknown", "{2}"),
        (unknown(9, D::F32), any(&[]), "ranks", "unknown", "{}"),
        (any(&[OPEN, 3]), any(&[2, 3]), "dims", "{?,3}", "{2,3}"),
        (strided(&[3, OPEN]), strided(&[3, 1]), "strides", "{3,?}", "{3,1}"),
        (undef, strided(&[3, 1]), "layouts", "undef", "strided"),
        (unknown(9, D::F32), of_layout(None, Layout::Undef), "layouts", "any", "undef"),
    ];
    let rows = rows.into_iter().flat_map(|(a, b, what, of_a, of_b)| {
        [(a.clone(), b.clone(), what, of_a, of_b), (b, a, what, of_b, of_a)]
    });
    let wrong = rows.filter_map(|(a, b, what, of_a, of_b)| {
        let (wildcard, end) = (Op::new(1, K::Wildcard), Op::new(2, K::End));
        let equal = finalize([wildcard.clone().output(a.clone()), end.clone().input(a.clone())]);
        let in_two_ops = finalize([wildcard.clone().output(a.clone()), end.input(b.clone())]);
        let in_one_op = finalize([wildcard.input(a).input(b)]);
        let says = |result: &Result<(), Error>, expected: String| match result {
            Err(error @ Error::Graph(GraphFault::MentionsDiffer { tensor, what: named, .. })) if *tensor == 9 => {
                *named == what && error.to_string() == expected && error.status() == Status::InvalidGraph
            }
            _ => false,
        };
        let text = |first: &str, second: &str| {
            format!(
                "tensor 9 is described in two ways: {what} differ, {of_a} at {first} of Wildcard (op 1) and {of_b} \
                 at {second}; describe it once, and give that description to every op"
            )
        };
        let good = equal.is_ok()
            && says(&in_two_ops, text("output 0 `dst`", "input 0 `src` of End (op 2)"))
            && says(&in_one_op, text("input 0 `src`", "input 1 `src` of Wildcard (op 1)"));
        (!good).then(|| format!("{what}: {equal:?}, {in_two_ops:?}, {in_one_op:?}"))
    });
    report(wrong.collect());
}

#[test]
fn a_graph_that_is_refused_stays_as_it_is() {
    let mut graph = Graph::new();
    let known = LogicalTensor::any(1, D::F32, &[2]).unwrap();
    graph.add_op(Op::new(1, K::Abs).input(known).output(unknown(2, D::F32))).unwrap();
    graph.add_op(abs(2, 2, 1)).unwrap();
    let before = graph.clone();
    assert_eq!(graph.finalize().unwrap_err().status(), Status::InvalidGraph, "a cycle");
    assert_eq!(graph, before);
    assert_eq!(graph.ops()[1].outputs()[0].dims(), None);
}

#[test]
fn a_cycle_is_named_by_an_op_on_it() {
    let rows: Vec<(&str, Vec<Op>, &[usize])> = vec![
        ("an op on itself", vec![abs(1, 0, 0)], &[1]),
        ("two ops", vec![abs(1, 0, 1), abs(2, 1, 0)], &[1, 2]),
        ("a tail before it", vec![abs(9, 2, 3), abs(8, 1, 2), abs(1, 0, 1), abs(2, 1, 0)], &[1, 2]),
        ("a tail after it", vec![abs(1, 0, 1), abs(2, 1, 0), abs(8, 1, 2), abs(9, 2, 3)], &[1, 2]),
        ("a head before it", vec![abs(1, 4, 5), maximum(2, [5, 0], 1), abs(3, 1, 0)], &[2, 3]),
        (
            "a tail that joins it with another branch",
            vec![maximum(9, [7, 2], 3), abs(8, 1, 2), abs(6, 4, 7), abs(1, 0, 1), abs(2, 1, 0)],
            &[1, 2],
        ),
        ("a ring of three", vec![abs(1, 0, 1), abs(2, 1, 2), abs(3, 2, 0), abs(4, 5, 6)], &[1, 2, 3]),
        (
            "a cycle that feeds another",
            vec![maximum(1, [1, 2], 0), abs(2, 0, 1), abs(3, 3, 2), abs(4, 2, 3)],
            &[1, 2, 3, 4],
        ),
    ];
    let wrong = rows.into_iter().filter_map(|(name, ops, on_the_cycle)| match finalize(ops) {
        Err(error @ Error::Graph(GraphFault::Cycle(op)))
            if on_the_cycle.contains(&op.id.get())
                && error.status() == Status::InvalidGraph
                && error.to_string() == format!("{} (op {}) depends on its own result", op.kind, op.id) =>
        {
            None
        }
        other => Some(format!("{name}: {other:?}")),
    });
    report(wrong.collect());

    // A diamond, a tensor used twice by one op, and ops added in the wrong order are no cycles.
    let diamond = [maximum(4, [1, 2], 3), abs(3, 0, 2), abs(2, 0, 1), maximum(1, [5, 5], 0)];
    assert_eq!(finalize(diamond), Ok(()));
}
