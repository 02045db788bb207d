//! Values that are 8-bit integers reduced by a zero point and multiplied by a scale.

use super::elementwise::{Anchor, GroupValue, ShapedGroup};
use crate::graph::function::Function;
use crate::graph::op::Op;
use crate::graph::windows::{WindowPort, roles};
use crate::plan::ValueId;
use crate::types::dtype::DataType;
use crate::types::fallback::{FallbackReason, FallbackReason as R};
use crate::types::kind::OpKind;

/// The integers from which a value is computed: each is reduced by a zero point and multiplied by a scale.
pub(super) struct Dequantized {
    /// The value that holds the integers.
    pub(super) source: ValueId,
    /// The integers reduced by their zero points; the source itself if there are none.
    pub(super) reduced: ValueId,
    /// The value after the multiplication; moves may lead from it to the operand.
    pub(super) scaled: ValueId,
    pub(super) scales: Vec<f32>,
    /// The zero points, or none.
    pub(super) zeros: Vec<f32>,
    /// The dim along which parameters change; `None` if all elements have the same parameters.
    pub(super) axis: Option<usize>,
}

/// The dequantisation that gives a value, or a value from which strides lead to its elements; or the reason
/// for which its integers are not multiplied as they are. `None` if no integers are dequantised to the value.
pub(super) fn dequantized(
    group: &ShapedGroup,
    value: ValueId,
) -> Option<Result<Dequantized, FallbackReason>> {
    let mut scaled = value;
    while let Some(from) = group.moved_from(scaled) {
        scaled = from;
    }
    let source = group.dequantized(scaled)?.inputs[0];
    let is_float = matches!(group.values[source].data_type, DataType::F8E4m3 | DataType::F8E5m2);
    (!is_float).then(|| integers(group, [value, scaled, source]))
}

/// The integers of `source`, which become `scaled`, from which moves lead to `value`.
fn integers(
    group: &ShapedGroup,
    [value, scaled, source]: [ValueId; 3],
) -> Result<Dequantized, FallbackReason> {
    let operand = |of: ValueId, place: usize| {
        let operand = group.values[of].def.as_ref().and_then(|def| def.operands.get(place));
        operand.copied().ok_or(R::ComputedScales)
    };
    let is_integer = matches!(group.values[source].data_type, DataType::U8 | DataType::S8);
    let is_f32 = [value, scaled].iter().all(|&value| group.values[value].data_type == DataType::F32);
    R::ElementType.unless(is_integer && is_f32)?;
    let (number, _) = operand(scaled, 0)?;
    let (scales, axis) = parameters(group, operand(scaled, 1)?).ok_or(R::ComputedScales)?;
    let (zeros, axis_of_zeros) = match number == source {
        true => (&[][..], axis),
        false => parameters(group, operand(number, 1)?).ok_or(R::ComputedScales)?,
    };
    R::ScaleAxis.unless(axis == axis_of_zeros && (axis.is_none() || scaled == value))?;
    let (scales, zeros) = (scales.to_vec(), zeros.to_vec());
    Ok(Dequantized { source, reduced: number, scaled, scales, zeros, axis })
}

/// The values that an anchor reads: its operands, and in place of those of a product that both are
/// dequantised, their integers.
pub(super) fn read_by(group: &ShapedGroup, anchor: &Anchor, op: &Op) -> Vec<ValueId> {
    let mut read = anchor.inputs.to_vec();
    let multiplies_weights = || roles(op).is_some_and(|roles| roles.weights == Some(WindowPort::Input(1)));
    if op.kind() == OpKind::MatMul || multiplies_weights() {
        let sources = [0, 1].map(|at| dequantized(group, read[at])?.ok().map(|found| found.source));
        if let [Some(left), Some(right)] = sources {
            (read[0], read[1]) = (left, right);
        }
    }
    read
}

/// The parameters that a constant holds, and the dim along which they change.
fn parameters(group: &ShapedGroup, (value, start): (ValueId, usize)) -> Option<(&[f32], Option<usize>)> {
    let GroupValue { dims, def, .. } = &group.values[value];
    let def = def.as_ref().filter(|def| matches!(def.pointwise.function, Function::Fill(_)))?;
    let mut several = (0..dims.len()).filter(|&axis| dims[axis] != 1);
    match (&def.constants[..], several.next(), several.next()) {
        (constants @ [_], ..) => Some((constants, None)),
        (constants, Some(axis), None) if constants.len() as i64 == dims[axis] => {
            Some((constants, Some(start + axis)))
        }
        _ => None,
    }
}

impl Dequantized {
    /// The largest difference of an integer from its zero point; `None` if a scale makes it leave f32.
    pub(super) fn largest(&self, data_type: DataType) -> Option<f64> {
        let (least, most) = if data_type == DataType::U8 { (0.0, 255.0) } else { (-128.0, 127.0) };
        let zero = |at: usize| self.zeros.get(at).map_or(0.0, |&zero| f64::from(zero));
        let size = |at: usize| (most - zero(at)).abs().max((least - zero(at)).abs());
        let fits = |(at, &scale): (usize, &f32)| (f64::from(scale).abs() * size(at)) <= f64::from(f32::MAX);
        let is_fit = self.scales.iter().enumerate().all(fits);
        is_fit.then(|| (0..self.scales.len()).map(size).fold(0.0, f64::max))
    }
}
