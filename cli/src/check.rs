//! `--check`: the results of a partition, compared with the reference op by op.
//!
//! Each op is compared with the reference on the same inputs, within the accuracy that is stated for the op:
//! so many units in the last place, or for an op that adds up many elements, a bound of each element. An op
//! of a fused partition is run alone for that, and the outputs of the partition must be, bit for bit, what
//! its ops give one after the other: so the check needs no guess of how errors grow along a chain.
//!
//! Attention keeps bounds instead of bits, and masked keys do not exist for it unless its plan falls back:
//! the outputs of such a partition must lie in the intervals that the reference carries along from op to op.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use half::{bf16, f16};
use sterna::reference::{self, Value};
use sterna::{
    Accuracy, DataType, Error, LogicalTensor, MaskedKeys, Op, Partition, Stream, Tensor, TensorFault,
    TensorId, TensorMut,
};

use crate::host::HostTensor;
use crate::report::{Check, Difference};

/// True if an error says that the reference interpreter does not know an op, or a type of element.
pub(crate) fn is_unknown(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(
            Error::Unimplemented { .. }
                | Error::Value(TensorFault::NoElements(_))
                | Error::Tensor { fault: TensorFault::NoElements(_), .. }
        )
    )
}

/// Compares the outputs of a partition with the reference, given the tensors from before its execution, and a
/// function that is called for each op before its reference is computed.
pub(crate) fn checks(
    partition: &Partition,
    masked_keys: MaskedKeys,
    before: &BTreeMap<TensorId, HostTensor>,
    outputs: &[HostTensor],
    stream: &Stream,
    begins: &dyn Fn(&Op),
) -> Result<Vec<Check>> {
    let compared = match partition.accuracy() {
        Some(Accuracy::Bounded) => enclosed(partition, masked_keys, before, outputs, begins),
        _ => compared(partition, before, outputs, stream, begins),
    };
    match compared {
        Err(error) if is_unknown(&error) => {
            let no_check = |output: &HostTensor| Check {
                tensor: output.desc().id(),
                name: None,
                elements: output.desc().element_count().unwrap_or(0) as i64,
                ulps: 0,
                is_bounded: false,
                note: None,
                zeros: None,
                equal: None,
                no_check: Some(format!("{error:#}")),
                first_difference: None,
            };
            Ok(outputs.iter().map(no_check).collect())
        }
        compared => compared,
    }
}

fn compared(
    partition: &Partition,
    before: &BTreeMap<TensorId, HostTensor>,
    outputs: &[HostTensor],
    stream: &Stream,
    begins: &dyn Fn(&Op),
) -> Result<Vec<Check>> {
    let output = |id: TensorId| outputs.iter().find(|output| output.desc().id() == id);
    let is_fused = partition.ops().len() > 1;
    let mut values: BTreeMap<TensorId, Value> = BTreeMap::new();
    let mut checks = Vec::new();
    for op in partition.ops() {
        reference::supports(op)?;
        begins(op);
        let value = |input: &LogicalTensor| match values.get(&input.id()) {
            Some(value) => Ok(value.clone()),
            None => before[&input.id()].value(),
        };
        let inputs = op.inputs().iter().map(value).collect::<Result<Vec<Value>>>()?;
        let expected = reference::run(op, &inputs)?;
        let computed = match is_fused {
            true => alone(op, &inputs, before, outputs, stream)?,
            false => op
                .outputs()
                .iter()
                .map(|port| output(port.id()).context("an output of the op is missing")?.value())
                .collect::<Result<Vec<Value>>>()?,
        };
        let mut bounds = reference::bounds(op, &inputs)?;
        for ((port, computed), expected) in op.outputs().iter().zip(computed).zip(expected) {
            let allowed = match (&bounds, reference::ulps(op)) {
                (Some(bounds), _) => Allowed::Bounds(bounds.clone()),
                (None, ulps) => Allowed::Ulps(ulps),
            };
            let check = check(port.id(), &computed, &expected, &allowed)?;
            // Statistics and gradients beside the first result have one bound for all.
            bounds = bounds.map(|_| Vec::new());
            if !is_fused || check.equal == Some(false) {
                checks.push(check);
            }
            values.insert(port.id(), computed);
        }
    }
    for output in outputs.iter().filter(|_| is_fused) {
        let tensor = output.desc().id();
        let expected = values.get(&tensor).context("an output is missing from the ops")?;
        checks.push(check(tensor, &output.value()?, expected, &Allowed::Ulps(0))?);
    }
    Ok(checks)
}

/// How far results may be off.
enum Allowed {
    /// So many units in the last place.
    Ulps(u32),
    /// A bound of each element, beside the rounding to its type; none for results beside the first one, which
    /// have one bound.
    Bounds(Vec<f64>),
}

/// The results of an op as a partition of one op. Ports of the fused partition have its layouts, and tensors
/// inside are row-major, because the order of a sum may depend on strides.
pub(crate) fn alone(
    op: &Op,
    inputs: &[Value],
    before: &BTreeMap<TensorId, HostTensor>,
    outputs: &[HostTensor],
    stream: &Stream,
) -> Result<Vec<Value>> {
    let partition = Partition::from_op(op.clone())?;
    let mut given = Vec::new();
    for port in partition.inputs() {
        let index = op.inputs().iter().position(|input| input.id() == port.id());
        let value = &inputs[index.context("the op alone has another input")?];
        let desc = match before.get(&port.id()) {
            Some(tensor) => tensor.desc().clone(),
            None => LogicalTensor::strided(port.id(), port.data_type(), value.dims())?,
        };
        let mut tensor = HostTensor::zeroed(&desc.with_property(port.property())?, stream.engine())?;
        tensor.write(value)?;
        given.push(tensor);
    }
    let descs: Vec<LogicalTensor> = given.iter().map(|tensor| tensor.desc().clone()).collect();
    let resolved = |port: &LogicalTensor| {
        let output = outputs.iter().find(|output| output.desc().id() == port.id());
        match output {
            Some(output) => output.desc().clone(),
            None => LogicalTensor::unknown(port.id(), port.data_type()),
        }
    };
    let outputs: Vec<LogicalTensor> = op.outputs().iter().map(resolved).collect();
    let compiled = partition.compile_for(stream.engine(), &descs, &outputs)?;
    let make = |desc| HostTensor::zeroed(desc, stream.engine());
    let mut results = compiled.outputs().iter().map(make).collect::<Result<Vec<HostTensor>>>()?;
    results.iter_mut().for_each(HostTensor::spoil);
    let tensors = given.iter().map(HostTensor::tensor).collect::<Result<Vec<Tensor<'_>>>>()?;
    let mut into = results
        .iter_mut()
        .map(|result| Ok(result.buffer_mut()?.as_tensor_mut()))
        .collect::<Result<Vec<TensorMut<'_>>>>()?;
    compiled.execute(stream, &tensors, &mut into)?;
    drop(into);
    results.iter().map(HostTensor::value).collect()
}

fn check(tensor: TensorId, computed: &Value, expected: &Value, allowed: &Allowed) -> Result<Check> {
    let (here, there) = (computed.dims(), expected.dims());
    ensure!(here == there, "tensor {tensor} has shape {here:?}, in the reference {there:?}");
    let first_difference = first_difference(computed, expected, allowed);
    let (ulps, is_bounded) = match allowed {
        Allowed::Ulps(ulps) => (*ulps, false),
        Allowed::Bounds(_) => (0, true),
    };
    let elements = (computed.bytes().len() / computed.data_type().size().unwrap_or(1)) as i64;
    let is_equal = first_difference.is_none();
    let Worth { no_check, zeros } = Worth::of(expected);
    let no_check = no_check.filter(|_| is_equal);
    let equal = no_check.is_none().then_some(is_equal);
    Ok(Check {
        tensor,
        name: None,
        elements,
        ulps,
        is_bounded,
        note: None,
        zeros,
        equal,
        no_check,
        first_difference,
    })
}

/// Holds the outputs of a partition against the intervals of the reference.
fn enclosed(
    partition: &Partition,
    masked_keys: MaskedKeys,
    before: &BTreeMap<TensorId, HostTensor>,
    outputs: &[HostTensor],
    begins: &dyn Fn(&Op),
) -> Result<Vec<Check>> {
    let given = partition.inputs().iter().map(|port| Ok((port.id(), before[&port.id()].value()?)));
    let given = given.collect::<Result<BTreeMap<TensorId, Value>>>()?;
    let wanted: Vec<TensorId> = outputs.iter().map(|output| output.desc().id()).collect();
    let allowed = reference::enclose_each(partition.ops(), &given, &wanted, masked_keys, begins)?;
    let check = |output: &HostTensor| {
        let (tensor, computed) = (output.desc().id(), output.value()?);
        let allowed = &allowed[&tensor];
        let (here, there) = (computed.dims(), allowed.value().dims());
        ensure!(here == there, "tensor {tensor} has shape {here:?}, in the reference {there:?}");
        let outside = allowed.first_outside(&computed);
        let first_difference = outside.and_then(|at| difference_at(&computed, allowed.value(), at));
        let elements = allowed.numbers().len();
        let unknown = (0..elements).filter(|&at| !allowed.is_judged(at)).count();
        let Worth { no_check, zeros } = Worth::of(allowed.value());
        let no_check = match outside {
            Some(_) => None,
            None if 2 * unknown > elements => {
                let percent = 100 * unknown / elements;
                Some(format!("the reference says nothing on {percent} % of the {elements} elements"))
            }
            None => no_check,
        };
        let equal = no_check.is_none().then_some(outside.is_none());
        let elements = elements as i64;
        let note = Some(note_on(masked_keys));
        Ok(Check {
            tensor,
            name: None,
            elements,
            ulps: 0,
            is_bounded: true,
            note,
            zeros,
            equal,
            no_check,
            first_difference,
        })
    };
    outputs.iter().map(check).collect()
}

/// In what the reference of attention departs from the ops run one by one.
fn note_on(masked_keys: MaskedKeys) -> &'static str {
    match masked_keys {
        MaskedKeys::Skipped => "masked keys add nothing, even NaN or infinite ones",
        MaskedKeys::Multiplied => "masked keys are multiplied by 0, so NaN or infinite ones give NaN",
    }
}

/// The worth of a comparison with a value.
struct Worth {
    /// Why it is none, if it is none: more than half of the numbers are NaN, which a wrong computation gives
    /// as well.
    no_check: Option<String>,
    /// How many of 100 numbers are 0, if more than half of them are. They are judged, since no memory holds 0
    /// before a partition runs.
    zeros: Option<usize>,
}

impl Worth {
    fn of(expected: &Value) -> Self {
        let data_type = expected.data_type();
        let Some(size) = data_type.size().filter(|_| data_type != DataType::Boolean) else {
            return Self { no_check: None, zeros: None };
        };
        let (mut all, mut nans, mut zeros) = (0usize, 0usize, 0usize);
        for element in expected.bytes().chunks_exact(size) {
            all += 1;
            nans += usize::from(is_nan(element, data_type));
            zeros += usize::from(is_zero(element, data_type));
        }
        let percent = |count: usize| (2 * count > all).then(|| 100 * count / all);
        let no_check =
            percent(nans).map(|nans| format!("{nans} % of the {all} elements of the reference are NaN"));
        Self { no_check, zeros: percent(zeros) }
    }
}

fn is_nan(element: &[u8], data_type: DataType) -> bool {
    match (data_type, element) {
        (DataType::F64, &[a, b, c, d, e, f, g, h]) => f64::from_ne_bytes([a, b, c, d, e, f, g, h]).is_nan(),
        (DataType::F32, &[a, b, c, d]) => f32::from_ne_bytes([a, b, c, d]).is_nan(),
        (DataType::F16, &[a, b]) => f16::from_ne_bytes([a, b]).is_nan(),
        (DataType::Bf16, &[a, b]) => bf16::from_ne_bytes([a, b]).is_nan(),
        (DataType::F8E5m2, &[a]) => a & 0x7f > 0x7c,
        (DataType::F8E4m3, &[a]) => a & 0x7f == 0x7f,
        _ => false,
    }
}

/// True if an element is 0; of floats, of either sign.
fn is_zero(element: &[u8], data_type: DataType) -> bool {
    use DataType as D;
    let has_sign_bit = matches!(data_type, D::F64 | D::F32 | D::F16 | D::Bf16 | D::F8E5m2 | D::F8E4m3);
    let sign_at = if cfg!(target_endian = "little") { element.len() - 1 } else { 0 };
    let sign_bit = |index| if has_sign_bit && index == sign_at { 0x80 } else { 0 };
    element.iter().enumerate().all(|(index, byte)| byte & !sign_bit(index) == 0)
}

/// The first index in row-major order at which two values differ by more than is allowed, or nothing if there
/// is none.
fn first_difference(computed: &Value, reference: &Value, allowed: &Allowed) -> Option<Difference> {
    let (data_type, size) = (computed.data_type(), computed.data_type().size()?);
    let pairs = || computed.bytes().chunks_exact(size).zip(reference.bytes().chunks_exact(size));
    let at = match allowed {
        Allowed::Ulps(ulps) => pairs()
            .position(|(computed, reference)| ulps_apart(computed, reference, data_type) > (*ulps).into()),
        Allowed::Bounds(bounds) => {
            let largest = pairs().filter_map(|(_, x)| number(x, data_type)).filter(|x| x.is_finite());
            let largest = largest.fold(f64::MIN_POSITIVE, |most, x| most.max(x.abs()));
            let bound = |at: usize| bounds.get(at).copied().unwrap_or(BOUND_OF_STATISTICS * largest);
            pairs().enumerate().position(|(at, (computed, reference))| {
                let numbers = number(computed, data_type).zip(number(reference, data_type));
                computed != reference && numbers.is_none_or(|(x, y)| is_beyond(x, y, bound(at), data_type))
            })
        }
    }?;
    difference_at(computed, reference, at)
}

/// The difference of two values in an element, by its number in row-major order.
fn difference_at(computed: &Value, reference: &Value, at: usize) -> Option<Difference> {
    let size = computed.data_type().size()?;
    let bits = computed.bytes().chunks_exact(size).nth(at)?;
    let expected = reference.bytes().chunks_exact(size).nth(at)?;
    let mut index = vec![0; computed.dims().len()];
    let mut rest = at as i64;
    for (index, dim) in index.iter_mut().zip(computed.dims()).rev() {
        *index = rest % dim;
        rest /= dim;
    }
    Some(Difference { index, computed: hex(bits), reference: hex(expected) })
}

/// How far statistics of rows may be off, as a share of the largest one.
const BOUND_OF_STATISTICS: f64 = 64.0 / (1u64 << 24) as f64;

/// True if a number is further from the expected one than its bound and the rounding of both to their type.
fn is_beyond(computed: f64, expected: f64, bound: f64, data_type: DataType) -> bool {
    let (step, smallest) = match data_type {
        DataType::F32 => (2f64.powi(-23), 2f64.powi(-149)),
        DataType::Bf16 => (2f64.powi(-7), 2f64.powi(-133)),
        _ => (2f64.powi(-10), 2f64.powi(-24)),
    };
    match expected.is_finite() && computed.is_finite() {
        // A bound of NaN is that of a row whose sum is not finite.
        true => (computed - expected).abs() > bound + step * computed.abs().max(expected.abs()) + smallest,
        false => computed != expected && !(computed.is_nan() && expected.is_nan()) && !bound.is_nan(),
    }
}

/// An element as a number, if it is a floating-point one of a type that ops add up.
fn number(element: &[u8], data_type: DataType) -> Option<f64> {
    match (data_type, element) {
        (DataType::F32, &[a, b, c, d]) => Some(f32::from_ne_bytes([a, b, c, d]).into()),
        (DataType::F16, &[a, b]) => Some(f16::from_ne_bytes([a, b]).into()),
        (DataType::Bf16, &[a, b]) => Some(bf16::from_ne_bytes([a, b]).into()),
        _ => None,
    }
}

/// The distance of two elements in units in the last place: 0 for equal bits alone, 1 for zeros of unlike
/// sign, and the maximum if only one is NaN or the type is not floating-point.
fn ulps_apart(a: &[u8], b: &[u8], data_type: DataType) -> u64 {
    if a == b {
        return 0;
    }
    let infinity: i64 = match data_type {
        DataType::F32 => 0x7f80_0000,
        DataType::F16 => 0x7c00,
        DataType::Bf16 => 0x7f80,
        _ => return u64::MAX,
    };
    let ordered = |element: &[u8]| {
        let digit = |number: i64, byte: &u8| number << 8 | i64::from(*byte);
        let bits = match cfg!(target_endian = "little") {
            true => element.iter().rev().fold(0, digit),
            false => element.iter().fold(0, digit),
        };
        let sign = 1 << (8 * element.len() - 1);
        let size = bits & (sign - 1);
        (size <= infinity).then_some(if bits & sign == 0 { size } else { -size })
    };
    match (ordered(a), ordered(b)) {
        (Some(a), Some(b)) => a.abs_diff(b).max(1),
        _ => u64::MAX,
    }
}

/// The bits of an element, the highest first.
fn hex(element: &[u8]) -> String {
    let digit = |byte: &u8| format!("{byte:02x}");
    let digits: String = match cfg!(target_endian = "little") {
        true => element.iter().rev().map(digit).collect(),
        false => element.iter().map(digit).collect(),
    };
    format!("0x{digits}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_the_first_one_and_a_matter_of_bits() {
        let value = |elements: [f32; 6]| Value::from_slice(&[2, 3], &elements).unwrap();
        let reference = value([0.0, 1.0, 2.0, 3.0, 0.0, 5.0]);
        let first_difference =
            |computed: &Value, reference: &Value| first_difference(computed, reference, &Allowed::Ulps(0));
        assert!(first_difference(&reference, &reference).is_none());
        let nan = value([f32::NAN; 6]);
        assert!(first_difference(&nan, &nan).is_none());

        let difference = first_difference(&value([0.0, 1.0, 2.0, 3.0, -0.0, 6.0]), &reference).unwrap();
        assert_eq!(
            difference.to_string(),
            "the first difference is at [1, 1], computed 0x80000000, reference 0x00000000"
        );
        let scalar = |value: i16| Value::from_slice(&[], &[value]).unwrap();
        let difference = first_difference(&scalar(-2), &scalar(0x123)).unwrap();
        assert_eq!(
            difference.to_string(),
            "the first difference is at [], computed 0xfffe, reference 0x0123"
        );
    }

    #[test]
    fn units_in_the_last_place_are_counted_across_zero_and_up_to_infinity() {
        let bits_apart = |a: u32, b: u32| ulps_apart(&a.to_ne_bytes(), &b.to_ne_bytes(), DataType::F32);
        let apart = |a: f32, b: f32| bits_apart(a.to_bits(), b.to_bits());
        let tiny = f32::from_bits(1);
        let rows = [
            (apart(1.0, 1.0), 0),
            (apart(1.0, 1.0 + f32::EPSILON), 1),
            (apart(-1.0, -1.0 - 2.0 * f32::EPSILON), 2),
            (apart(0.0, -0.0), 1),
            (apart(-tiny, tiny), 2),
            (apart(f32::MAX, f32::INFINITY), 1),
            (bits_apart(0x7fc0_0000, 0x7fc0_0000), 0),
            (bits_apart(0x7fc0_0000, 0xffc0_0000), u64::MAX),
            (bits_apart(0x7fc0_0000, 0x7f80_0000), u64::MAX),
            (ulps_apart(&[0x00, 0x3c], &[0x02, 0x3c], DataType::F16), 2),
            (ulps_apart(&[1], &[2], DataType::S8), u64::MAX),
        ];
        for (row, (given, expected)) in rows.into_iter().enumerate() {
            // The f16 row is written for the byte order of nearly every machine.
            assert!(given == expected || (row == 9 && cfg!(target_endian = "big")), "row {row}: {given}");
        }
        let value = |x: f32| Value::from_slice(&[1], &[x]).unwrap();
        let one = Allowed::Ulps(1);
        assert!(first_difference(&value(1.0), &value(1.0 + f32::EPSILON), &one).is_none());
        assert!(first_difference(&value(1.0), &value(1.0 + 2.0 * f32::EPSILON), &one).is_some());
    }

    #[test]
    fn sums_are_judged_by_the_bound_of_each_element() {
        let value = |elements: [f32; 2]| Value::from_slice(&[2], &elements).unwrap();
        let (expected, bounds) = (value([1.0, 100.0]), Allowed::Bounds(vec![0.25, f64::NAN]));
        let rows = [
            ([1.0, 100.0], None),
            ([1.25, 100.0], None),
            ([0.75, 99.0], None),
            ([1.26, 100.0], Some(0)),
            ([f32::NAN, 100.0], Some(0)),
            ([1.0, f32::INFINITY], None),
        ];
        for (computed, at) in rows {
            let difference = first_difference(&value(computed), &expected, &bounds);
            assert_eq!(difference.map(|difference| difference.index[0]), at, "{computed:?}");
        }
        let statistics = Allowed::Bounds(Vec::new());
        assert!(first_difference(&value([1.0, 100.0003]), &expected, &statistics).is_none());
        assert!(first_difference(&value([1.0, 100.001]), &expected, &statistics).is_some());
    }
}
