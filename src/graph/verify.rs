//! Checks an op against its schema row.

use super::logical_tensor::LogicalTensor;
use super::op::{AttrValue, Op};
use super::row::{AttrDefault, AttrRow, Check, Count, Port, Schema};
use crate::error::{Direction, Error, OpFault, PortRef, Result};
use crate::types::dtype::DataType;
use crate::types::kind::{Attr, AutoBroadcast};
use crate::types::shape::{Braced, MAX_RANK, UNKNOWN_DIM};

/// Gives missing attributes their defaults, then checks numbers of ports, types, attributes and the extra
/// checks of the op's row. Shapes are checked when a partition is compiled.
pub(crate) fn verify(op: &mut Op) -> Result<()> {
    if op.is_verified() {
        return Ok(());
    }
    let schema = Schema::of(op.kind());
    check_op(op, schema).map_err(|fault| Error::Op { op: op.op_ref(), fault })?;
    op.note_verified();
    Ok(())
}

fn check_op(op: &mut Op, schema: &Schema) -> Result<(), OpFault> {
    check_count(Direction::Input, schema.input_count, op.inputs().len())?;
    check_count(Direction::Output, schema.output_count, op.outputs().len())?;
    check_types(op, schema)?;
    for (attr, value) in op.attrs() {
        let row = schema.attributes.iter().find(|row| row.attr == attr).ok_or(OpFault::UnknownAttr(attr))?;
        check_attr(row, value)?;
    }
    for row in schema.attributes {
        match row.default {
            Some(default) => op.default_attr(row.attr, default.into()),
            None if row.required && op.get_attr(row.attr).is_none() => {
                return Err(OpFault::MissingAttr(row.attr));
            }
            None => {}
        }
    }
    schema.checks.iter().try_for_each(|&check| run_check(check, op))
}

fn check_count(direction: Direction, count: Count, given: usize) -> Result<(), OpFault> {
    if count.allows(given) {
        return Ok(());
    }
    Err(OpFault::Count { direction, expected: count.to_string(), given })
}

/// The ports of an op with their schema, inputs first.
fn ports<'a>(op: &'a Op, schema: &'a Schema) -> impl Iterator<Item = (PortRef, Port, DataType)> + 'a {
    let input = |i: usize| (op.input_ref(i), schema.input(i), op.inputs()[i].data_type());
    let output = |i: usize| (op.output_ref(i), schema.output(i), op.outputs()[i].data_type());
    (0..op.inputs().len()).map(input).chain((0..op.outputs().len()).map(output))
}

fn check_types(op: &Op, schema: &Schema) -> Result<(), OpFault> {
    for &(variable, allowed) in schema.types {
        let mut first: Option<(PortRef, DataType)> = None;
        for (port, _, given) in ports(op, schema).filter(|(_, port, _)| port.type_variable == variable) {
            if !allowed.contains(&given) {
                return Err(OpFault::Type { port, allowed, given });
            }
            match first {
                Some((other, expected)) if expected != given => {
                    return Err(OpFault::TypesDiffer { port, given, other, expected });
                }
                Some(_) => {}
                None => first = Some((port, given)),
            }
        }
    }
    Ok(())
}

fn check_attr(row: &AttrRow, value: &AttrValue) -> Result<(), OpFault> {
    let (expected, given) = (row.value_type.name(), value.type_name());
    if expected != given {
        return Err(OpFault::AttrType { attr: row.attr, expected, given });
    }
    match value {
        AttrValue::String(word) if !row.allowed.is_empty() && !row.allowed.contains(&word.as_str()) => {
            Err(OpFault::AttrValue { attr: row.attr, allowed: row.allowed, given: word.clone() })
        }
        _ => Ok(()),
    }
}

impl From<AttrDefault> for AttrValue {
    fn from(default: AttrDefault) -> Self {
        match default {
            AttrDefault::Bool(value) => Self::Bool(value),
            AttrDefault::S64(value) => Self::S64(value),
            AttrDefault::F32(value) => Self::F32(value),
            AttrDefault::String(value) => value.into(),
            AttrDefault::S64s(values) => values.into(),
        }
    }
}

fn run_check(check: Check, op: &Op) -> Result<(), OpFault> {
    let holds = match check {
        Check::NonNegativePads => [Attr::PadsBegin, Attr::PadsEnd]
            .iter()
            .all(|&attr| op.s64s_attr(attr).iter().all(|&pad| pad >= 0)),
        Check::NormTypes => {
            let bf16_statistics = ports(op, Schema::of(op.kind()))
                .any(|(_, port, given)| port.type_variable == "T2" && given == DataType::Bf16);
            !bf16_statistics || op.inputs()[0].data_type() == DataType::Bf16
        }
        Check::QuantParams => quant_params_fit(op),
        Check::DynamicQuantParams => dynamic_quant_params_fit(op),
        Check::SizesOrScales => op.get_attr(Attr::Sizes).is_some() != op.get_attr(Attr::Scales).is_some(),
        Check::KeepStatsOutputs => !op.bool_attr(Attr::KeepStats) || op.outputs().len() == 3,
        Check::UseAffineOutputs => !op.bool_attr(Attr::UseAffine) || op.outputs().len() == 3,
        Check::OutputTypeOrF32 => {
            let (src, dst) = (op.inputs()[0].data_type(), op.outputs()[0].data_type());
            dst == src || dst == DataType::F32
        }
        Check::OneF32OrSameType => {
            let (src, dst) = (op.inputs()[0].data_type(), op.outputs()[0].data_type());
            dst == src || dst == DataType::F32 || src == DataType::F32
        }
        Check::CastTypes => {
            let (src, dst) = (op.inputs()[0].data_type(), op.outputs()[0].data_type());
            dst != src && (dst == DataType::F32 || src == DataType::F32)
        }
        Check::DilationsOfKernel => {
            let dilations = op.s64s_attr(Attr::Dilations);
            dilations.len() == op.s64s_attr(Attr::Kernel).len() || dilations == [1; 12]
        }
        Check::AxesOnce => op.inputs().len() == 1 || op.s64s_attr(Attr::Axes).is_empty(),
        Check::AxisNeedsPdpd => match (op.s64_attr(Attr::Axis), op.broadcast_mode()) {
            (Some(axis), AutoBroadcast::Pdpd) => axis >= -1,
            (Some(_), given) => {
                return Err(OpFault::AttrNeedsMode { attr: Attr::Axis, needs: AutoBroadcast::Pdpd, given });
            }
            (None, _) => true,
        },
        Check::ShapeOfTensor => is_shape(op.s64s_attr(Attr::Shape)),
        Check::SrcShapeOfTensor => is_shape(op.s64s_attr(Attr::SrcShape)),
        Check::ReductionTypes => {
            let is_number = DataType::NUMERIC.contains(&op.inputs()[0].data_type());
            is_number || op.str_attr(Attr::Reduction) == Some("none")
        }
        Check::SliceRanges => {
            let count = |attr| op.s64s_attr(attr).len();
            let ranges = count(Attr::Starts);
            count(Attr::Ends) == ranges
                && [Attr::Steps, Attr::Axes].iter().all(|&attr| [0, ranges].contains(&count(attr)))
                && !op.s64s_attr(Attr::Steps).contains(&0)
        }
    };
    if holds {
        return Ok(());
    }
    let (rule, facts) = rule(check);
    let found: Vec<String> = facts.iter().flat_map(|&fact| found(fact, op)).collect();
    Err(OpFault::Check { rule, found: found.join(", ") })
}

/// A fact of an op on which a check depends.
#[derive(Clone, Copy)]
enum Fact {
    Attr(Attr),
    Types,
    InputDims,
    OutputCount,
}

/// The message of a failed check: the rule, and the facts of the op to show.
fn rule(check: Check) -> (&'static str, &'static [Fact]) {
    use Fact::{InputDims, OutputCount, Types};
    match check {
        Check::NonNegativePads => (
            "`pads_begin` and `pads_end` hold no negative value",
            &[Fact::Attr(Attr::PadsBegin), Fact::Attr(Attr::PadsEnd)],
        ),
        Check::NormTypes => ("statistics, gamma and beta may be bf16 only where `src` is bf16", &[Types]),
        Check::QuantParams => (
            "per_tensor takes one scale, `zps` are as many as `scales`, \
             and Dequantize from an f8 type takes no `zps`",
            &[Fact::Attr(Attr::Qtype), Fact::Attr(Attr::Scales), Fact::Attr(Attr::Zps), Types],
        ),
        Check::DynamicQuantParams => (
            "per_tensor takes one scale and one zero point, per_channel one zero point or as many as scales, \
             per_group scales and zero points of rank 2 or more and of equal shape",
            &[Fact::Attr(Attr::Qtype), InputDims],
        ),
        Check::SizesOrScales => (
            "exactly one of the attributes `sizes` and `scales` is given",
            &[Fact::Attr(Attr::Sizes), Fact::Attr(Attr::Scales)],
        ),
        Check::KeepStatsOutputs => {
            ("`keep_stats`, which is true unless set, takes three outputs", &[OutputCount])
        }
        Check::UseAffineOutputs => {
            ("`use_affine`, which is true unless set, takes three outputs", &[OutputCount])
        }
        Check::OutputTypeOrF32 => ("the output has the type of the first input, or f32", &[Types]),
        Check::OneF32OrSameType => {
            ("the output has the type of the input, unless one of the two is f32", &[Types])
        }
        Check::DilationsOfKernel => (
            "`dilations` has as many entries as `kernel`",
            &[Fact::Attr(Attr::Kernel), Fact::Attr(Attr::Dilations)],
        ),
        Check::AxesOnce => (
            "`axes` is given as an attribute or as the second input, not as both",
            &[Fact::Attr(Attr::Axes), Types],
        ),
        Check::CastTypes => ("the types of input and output differ, and one of them is f32", &[Types]),
        Check::ShapeOfTensor => {
            ("`shape` holds at most twelve dims, none of them negative", &[Fact::Attr(Attr::Shape)])
        }
        Check::SrcShapeOfTensor => {
            ("`src_shape` holds at most twelve dims, none of them negative", &[Fact::Attr(Attr::SrcShape)])
        }
        Check::ReductionTypes => (
            "a `reduction` other than none is of floating-point numbers of 16 bits and more, or of integers",
            &[Fact::Attr(Attr::Reduction), Types],
        ),
        Check::SliceRanges => (
            "`starts`, `ends`, `steps` and `axes` have as many entries, none of `steps` 0",
            &[
                Fact::Attr(Attr::Starts),
                Fact::Attr(Attr::Ends),
                Fact::Attr(Attr::Steps),
                Fact::Attr(Attr::Axes),
            ],
        ),
        Check::AxisNeedsPdpd => ("`axis` is -1 or the index of a dim", &[Fact::Attr(Attr::Axis)]),
    }
}

/// The values of a fact, in words.
fn found(fact: Fact, op: &Op) -> Vec<String> {
    match fact {
        Fact::Attr(attr) => match op.get_attr(attr) {
            Some(value) => vec![format!("`{attr}` is {value}")],
            None => vec![format!("`{attr}` is not set")],
        },
        Fact::Types => {
            let schema = Schema::of(op.kind());
            ports(op, schema).map(|(port, _, data_type)| format!("{port} is {data_type}")).collect()
        }
        Fact::InputDims => {
            let known = |(i, input): (usize, &LogicalTensor)| {
                input.raw_dims().map(|dims| format!("{} is {}", op.input_ref(i), Braced(dims)))
            };
            op.inputs().iter().enumerate().filter_map(known).collect()
        }
        Fact::OutputCount => vec![format!("the number of outputs is {}", op.outputs().len())],
    }
}

/// True if a tensor can have dims.
fn is_shape(dims: &[i64]) -> bool {
    dims.len() <= MAX_RANK && dims.iter().all(|&dim| dim >= 0)
}

fn quant_params_fit(op: &Op) -> bool {
    let count = |attr| match op.get_attr(attr) {
        Some(AttrValue::F32s(values)) => Some(values.len()),
        Some(AttrValue::S64s(values)) => Some(values.len()),
        _ => None,
    };
    let (scales, zps) = (count(Attr::Scales).unwrap_or(0), count(Attr::Zps));
    let from_f8 = matches!(op.inputs()[0].data_type(), DataType::F8E5m2 | DataType::F8E4m3);
    let one_scale = op.str_attr(Attr::Qtype) != Some("per_tensor") || scales == 1;
    one_scale && zps.is_none_or(|zps| zps == scales && !from_f8)
}

fn dynamic_quant_params_fit(op: &Op) -> bool {
    let scales = op.inputs()[1].raw_dims();
    let zps = op.inputs().get(2).map(|zps| zps.raw_dims());
    let first_known =
        |dims: Option<&[i64]>| dims.and_then(|dims| dims.first().copied()).filter(|&dim| dim != UNKNOWN_DIM);
    match (op.str_attr(Attr::Qtype), zps) {
        (Some("per_tensor"), None) => first_known(scales).is_none_or(|dim| dim == 1),
        (Some("per_tensor"), Some(zps)) => first_known(zps).is_none_or(|dim| dim == 1),
        (Some("per_channel"), Some(zps)) => match (first_known(scales), first_known(zps)) {
            (Some(scales), Some(zps)) => zps == 1 || zps == scales,
            _ => true,
        },
        (Some("per_group"), zps) => {
            let zps = zps.flatten();
            let known = |dims: Option<&[i64]>| dims.is_none_or(|dims| dims.len() >= 2);
            let equal = |a: &[i64], b: &[i64]| {
                a.len() == b.len() && a.iter().zip(b).all(|(&x, &y)| x == y || [x, y].contains(&UNKNOWN_DIM))
            };
            known(scales)
                && known(zps)
                && match (scales, zps) {
                    (Some(scales), Some(zps)) => equal(scales, zps),
                    _ => true,
                }
        }
        _ => true,
    }
}
