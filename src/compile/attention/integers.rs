//! Finds attention on 8-bit integers: queries, keys, values and the weights behind the SoftMax are all
//! dequantised, each with one scale and one zero point. Both products are then exact sums in s32.

use super::operands::token_axes;
use super::shape::Shape;
use crate::compile::elementwise::Dequantization;
use crate::compile::machine::Machine;
use crate::compile::memory;
use crate::compile::phases::{PlacedTensor, PlanBuilder};
use crate::compile::quantized_tokens::{DequantizedValue, stored_rows};
use crate::graph::op::{AttrValue, Op};
use crate::kernels::attention::{QUAD, QUERIES, QuadKernels};
use crate::kernels::gemm::integers::{IntegerRows, left_shift, right_shift};
use crate::kernels::gemm::{Form, GemmKernel};
use crate::plan::{IntegerProducts, IntegerZeros, KEYS, QuantizedWeights, ValueId};
use crate::types::dtype::DataType;
use crate::types::fallback::{FallbackReason, FallbackReason as R, FastForm};
use crate::types::id::TensorId;
use crate::types::kind::{Attr, OpKind};

/// The form of both products. Quads have no use for tiles of AMX here: weights are made query by query.
pub(super) const FORM: Form = Form::S8Quads;

/// Sizes of the scale of weights, and of the product of both scales of a product: far from where exponentials
/// become 0, and from the ends of f32.
const SCALES: std::ops::RangeInclusive<f64> = 1e-30..=1e30;

/// The operands in memory, and how they are multiplied.
pub(super) struct IntegerOperands {
    /// Queries, keys and values, each with the bytes to its first element. The dims are those of the operand,
    /// the strides count bytes.
    pub(super) stored: [(PlacedTensor, isize); 3],
    pub(super) products: IntegerProducts,
}

/// One scale and one zero point of integers of a type.
#[derive(Clone, Copy)]
struct IntegerParameters {
    data_type: DataType,
    scale: f32,
    zero: i32,
}

impl IntegerParameters {
    /// Those of a Quantize or a Dequantize, if it has one of each.
    fn of(op: &Op, kind: OpKind, data_type: DataType) -> Result<Self, FallbackReason> {
        let zero = match op.get_attr(Attr::Zps) {
            None => 0,
            Some(AttrValue::S64s(zeros)) if zeros.len() == 1 => zeros[0],
            Some(_) => return Err(R::SeveralScales),
        };
        let range = match data_type {
            DataType::U8 => 0..=255,
            DataType::S8 => -128..=127,
            _ => return Err(R::OperandNotQuantized),
        };
        let &[scale] = op.f32s_attr(Attr::Scales) else { return Err(R::SeveralScales) };
        R::OperandNotQuantized.unless(op.kind() == kind)?;
        R::ScaleRange.unless(range.contains(&zero) && scale.is_finite())?;
        Ok(Self { data_type, scale, zero: zero as i32 })
    }

    fn as_left(&self) -> i32 {
        self.zero + left_shift(self.data_type)
    }

    fn as_right(&self) -> i32 {
        self.zero + right_shift(self.data_type)
    }
}

/// The operands, if attention has the form and the machine has the kernels; `None` if it does not, which the
/// plan says if the weights are dequantised. `ops` are those of the partition.
pub(super) fn find(
    plan: &mut PlanBuilder<'_>,
    ops: &[Op],
    shape: &Shape,
    machine: Machine,
) -> Option<IntegerOperands> {
    let [softmax, mut factors] = shape.weights?;
    let group = plan.group();
    let weights = loop {
        match group.dequantized(factors) {
            Some(found) => break found,
            None => factors = group.converted(factors)?,
        }
    };
    let found = integer_operands(plan, ops, shape, (softmax, weights), machine);
    plan.taken(FastForm::IntegerAttention, weights.op, found)
}

fn integer_operands(
    plan: &PlanBuilder<'_>,
    ops: &[Op],
    shape: &Shape,
    (softmax, weights): (ValueId, &Dequantization),
    machine: Machine,
) -> Result<IntegerOperands, FallbackReason> {
    let keys = shape.count(shape.key_axis);
    let all_logits = keys.next_multiple_of(KEYS).saturating_mul(4 * QUERIES);
    R::TooManyKeys.unless(memory::keeps_logits(all_logits))?;
    let group = plan.group();
    let operands = [
        (shape.queries, shape.transposes.queries),
        // Keys that are the transposed right operand lie token by token.
        (shape.keys, !shape.transposes.keys),
        (shape.values, shape.transposes.values),
    ];
    let operand = |(value, is_transposed)| {
        let axes = token_axes(group.values[value].dims.len(), is_transposed);
        let source = DequantizedValue::find(plan, value, true).ok_or(R::OperandNotQuantized)?;
        let op = plan.op(source.found.op);
        let rows = stored_rows(plan, value, source, axes)?;
        let parameters = IntegerParameters::of(op, OpKind::Dequantize, rows.tensor.data_type)?;
        Ok((parameters, (rows.tensor, rows.offset)))
    };
    let [of_queries, of_keys, of_values] = operands.map(operand);
    let [(of_queries, queries), (of_keys, at_keys), (of_values, values)] =
        [of_queries?, of_keys?, of_values?];

    let dequantize = plan.op(weights.op);
    let data_type = group.values[weights.inputs[0]].data_type;
    let of_weights = IntegerParameters::of(dequantize, OpKind::Dequantize, data_type)?;
    let softmax = group.anchor_of(softmax).ok_or(R::OtherOps)?;
    let of_softmax = plan.op(group.anchors[softmax].op).outputs()[0].id();
    let quantize = giving(ops, dequantize.inputs()[0].id()).ok_or(R::RoundingOfWeights)?;
    let rounding = IntegerParameters::of(quantize, OpKind::Quantize, data_type)?;
    let scale = |[a, b]: [IntegerParameters; 2]| f64::from(a.scale) * f64::from(b.scale);
    let (score_scale, result_scale) = (scale([of_queries, of_keys]), scale([of_weights, of_values]));
    let scales = [f64::from(rounding.scale), score_scale, result_scale];
    R::RoundingOfWeights.unless(rounding.zero == of_weights.zero)?;
    R::ScaleRange.unless(scales.iter().all(|of| SCALES.contains(&of.abs())))?;
    R::ConvertedWeights.unless(converts(ops, quantize.inputs()[0].id(), of_softmax))?;
    are_exact(shape.depth, [of_queries, of_keys])?;
    are_exact(keys, [of_weights, of_values])?;
    let quads = QuadKernels::new(machine.level, machine.features, of_values.data_type)?;
    // Kernels read whole quads of u8, and need no sums of keys if the queries' zero point is 0.
    let is_in_place =
        of_keys.data_type == DataType::U8 && of_queries.as_right() == 0 && shape.depth.is_multiple_of(QUAD);
    let as_u8 = |integer: i32| (integer + left_shift(data_type)) as u8;
    Ok(IntegerOperands {
        stored: [queries, at_keys, values],
        products: IntegerProducts {
            kernel: GemmKernel::new(machine.level, FORM),
            keys: (!is_in_place).then(|| IntegerRows::new(machine.level, of_keys.data_type, FORM)),
            quads,
            zeros: IntegerZeros {
                queries: of_queries.as_right(),
                keys: of_keys.as_left(),
                weights: of_weights.as_right(),
                values: of_values.as_left(),
            },
            score_scale,
            result_scale,
            rounding: QuantizedWeights {
                scale: rounding.scale,
                zero: as_u8(rounding.zero),
                // A conversion to integers makes 0 of NaN.
                of_nan: as_u8(0),
            },
        },
    })
}

/// Sums of so many products have to stay in s32, and be finite in f32.
fn are_exact(terms: usize, [a, b]: [IntegerParameters; 2]) -> Result<(), FallbackReason> {
    /// The largest difference of an integer from its zero point.
    const MAX_DIFFERENCE: f64 = 255.0;
    let sum = terms as f64 * MAX_DIFFERENCE * MAX_DIFFERENCE;
    let is_finite = |of: IntegerParameters| f64::from(of.scale.abs()) * MAX_DIFFERENCE <= f64::from(f32::MAX);
    let scale = f64::from(a.scale.abs()) * f64::from(b.scale.abs());
    R::SumOverflow.unless(sum <= f64::from(i32::MAX))?;
    R::ScaleRange.unless(sum * scale <= f64::from(f32::MAX) && is_finite(a) && is_finite(b))
}

/// The op that gives a tensor.
fn giving(ops: &[Op], tensor: TensorId) -> Option<&Op> {
    ops.iter().find(|op| op.outputs().iter().any(|output| output.id() == tensor))
}

/// True if a tensor is another one in another type of floats.
fn converts(ops: &[Op], mut tensor: TensorId, from: TensorId) -> bool {
    while tensor != from {
        match giving(ops, tensor) {
            Some(op) if op.kind() == OpKind::TypeCast => tensor = op.inputs()[0].id(),
            _ => return false,
        }
    }
    true
}
