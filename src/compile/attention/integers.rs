//! Finds attention on 8-bit integers: queries, keys, values and the weights behind the SoftMax are all
//! dequantised, each with one scale and one zero point. Both products are then exact sums in s32.

use super::operands::token_axes;
use super::shape::Shape;
use crate::compile::machine::Machine;
use crate::compile::memory;
use crate::compile::phases::{PlacedTensor, PlanBuilder};
use crate::compile::quantized_tokens::{DequantizedValue, stored_rows};
use crate::graph::op::{AttrValue, Op};
use crate::kernels::attention::{QUAD, QUERIES, QuadKernels};
use crate::kernels::gemm::integers::{IntegerRows, left_shift, right_shift};
use crate::kernels::gemm::{Form, GemmKernel};
use crate::partition::matches::RoundedWeights;
use crate::plan::{IntegerProducts, IntegerZeros, KEYS, QuantizedWeights};
use crate::types::dtype::DataType;
use crate::types::fallback::{FallbackReason, FallbackReason as R, FastForm};
use crate::types::kind::Attr;

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
    /// Those of a Quantize or a Dequantize, if its attributes tell one of each.
    fn of(op: &Op, data_type: DataType) -> Result<Self, FallbackReason> {
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

/// The operands, if weights are rounded, and the machine has the kernels; `None` if not, which the plan says
/// of rounded weights.
pub(super) fn find(plan: &mut PlanBuilder<'_>, shape: &Shape, machine: Machine) -> Option<IntegerOperands> {
    let weights = shape.roles.rounded?;
    let found = integer_operands(plan, shape, weights, machine);
    plan.taken(FastForm::IntegerAttention, weights.dequantize, found)
}

fn integer_operands(
    plan: &PlanBuilder<'_>,
    shape: &Shape,
    weights: RoundedWeights,
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
        let rows = stored_rows(plan, value, source, axes, None)?;
        let parameters = IntegerParameters::of(op, rows.tensor.data_type)?;
        Ok((parameters, (rows.tensor, rows.offset)))
    };
    let [of_queries, of_keys, of_values] = operands.map(operand);
    let [(of_queries, queries), (of_keys, at_keys), (of_values, values)] =
        [of_queries?, of_keys?, of_values?];

    let [quantize, dequantize] = [weights.quantize?, weights.dequantize].map(|op| plan.op(op));
    let data_type = dequantize.inputs()[0].data_type();
    let of_weights = IntegerParameters::of(dequantize, data_type)?;
    let rounding = IntegerParameters::of(quantize, data_type)?;
    let scale = |[a, b]: [IntegerParameters; 2]| f64::from(a.scale) * f64::from(b.scale);
    let (score_scale, result_scale) = (scale([of_queries, of_keys]), scale([of_weights, of_values]));
    let scales = [f64::from(rounding.scale), score_scale, result_scale];
    R::RoundingOfWeights.unless(rounding.zero == of_weights.zero)?;
    R::ScaleRange.unless(scales.iter().all(|of| SCALES.contains(&of.abs())))?;
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
