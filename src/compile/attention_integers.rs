//! Finds attention on 8-bit integers: queries, keys, values and the weights behind the SoftMax are all
//! dequantised, each with one scale and one zero point. Both products are then exact sums in s32.

use super::attention_shape::{Shape, token_axes};
use super::machine::Machine;
use super::memory;
use super::phases::{PlacedTensor, PlanBuilder};
use super::quantized_tokens::stored_rows;
use crate::graph::op::{AttrValue, Op};
use crate::kernels::attention::{QUAD, QUERIES, QuadKernels};
use crate::kernels::gemm::integers::{IntegerRows, left_shift, right_shift};
use crate::kernels::gemm::{Form, GemmKernel};
use crate::plan::{IntegerProducts, IntegerZeros, KEYS, QuantizedWeights};
use crate::types::dtype::DataType;
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
    /// Those of a Quantize or a Dequantize; `None` if it has several, or a zero point outside of the type.
    fn of(op: &Op, kind: OpKind, data_type: DataType) -> Option<Self> {
        let zero = match op.get_attr(Attr::Zps) {
            None => 0,
            Some(AttrValue::S64s(zeros)) if zeros.len() == 1 => i32::try_from(zeros[0]).ok()?,
            Some(_) => return None,
        };
        let range = match data_type {
            DataType::U8 => 0..=255,
            DataType::S8 => -128..=127,
            _ => return None,
        };
        let &[scale] = op.f32s_attr(Attr::Scales) else { return None };
        let is_fit = op.kind() == kind && range.contains(&zero) && scale.is_finite();
        is_fit.then_some(Self { data_type, scale, zero })
    }

    fn as_left(&self) -> i32 {
        self.zero + left_shift(self.data_type)
    }

    fn as_right(&self) -> i32 {
        self.zero + right_shift(self.data_type)
    }
}

/// `None` if attention has another form, or if the machine has no kernels for it. `ops` are those of the
/// partition.
pub(super) fn find(
    plan: &PlanBuilder<'_>,
    ops: &[Op],
    shape: &Shape,
    machine: Machine,
) -> Option<IntegerOperands> {
    let [softmax, factors] = shape.weights?;
    let keys = shape.count(shape.key_axis);
    if !memory::keeps_logits(keys.next_multiple_of(KEYS).saturating_mul(4 * QUERIES)) {
        return None;
    }
    let group = plan.group();
    let operands = [
        (shape.queries, shape.transposes.queries),
        // Keys that are the transposed right operand lie token by token.
        (shape.keys, !shape.transposes.keys),
        (shape.values, shape.transposes.values),
    ];
    let mut found = operands.into_iter().map(|(value, is_transposed)| {
        let axes = token_axes(group.values[value].dims.len(), is_transposed);
        let rows = stored_rows(plan, value, axes, true)?;
        let op = plan.op(rows.found.op);
        let parameters = IntegerParameters::of(op, OpKind::Dequantize, rows.tensor.data_type)?;
        Some((parameters, (rows.tensor, rows.offset)))
    });
    let [(of_queries, queries), (of_keys, at_keys), (of_values, values)] =
        [found.next()??, found.next()??, found.next()??];

    let mut value = factors;
    let dequantization = loop {
        match group.dequantized(value) {
            Some(found) => break found,
            None => value = group.converted(value)?,
        }
    };
    let dequantize = plan.op(dequantization.op);
    let data_type = group.values[dequantization.inputs[0]].data_type;
    let of_weights = IntegerParameters::of(dequantize, OpKind::Dequantize, data_type)?;
    let softmax = &group.anchors[group.anchor_of(softmax)?];
    let of_softmax = plan.op(softmax.op).outputs()[0].id();
    let quantize = giving(ops, dequantize.inputs()[0].id())?;
    let rounding = IntegerParameters::of(quantize, OpKind::Quantize, data_type)?;
    let scale = |[a, b]: [IntegerParameters; 2]| f64::from(a.scale) * f64::from(b.scale);
    let (score_scale, result_scale) = (scale([of_queries, of_keys]), scale([of_weights, of_values]));
    let is_fit = rounding.zero == of_weights.zero
        && [f64::from(rounding.scale), score_scale, result_scale].iter().all(|of| SCALES.contains(&of.abs()))
        && converts(ops, quantize.inputs()[0].id(), of_softmax)
        && are_exact(shape.depth, [of_queries, of_keys])
        && are_exact(keys, [of_weights, of_values]);
    let quads = QuadKernels::new(machine.level, machine.features, of_values.data_type)?;
    // Kernels read whole quads of u8, and need no sums of keys if the queries' zero point is 0.
    let is_in_place =
        of_keys.data_type == DataType::U8 && of_queries.as_right() == 0 && shape.depth.is_multiple_of(QUAD);
    let as_u8 = |integer: i32| (integer + left_shift(data_type)) as u8;
    is_fit.then(|| IntegerOperands {
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

/// Whether sums of so many products do not leave s32, and are finite in f32.
fn are_exact(terms: usize, [a, b]: [IntegerParameters; 2]) -> bool {
    /// The largest difference of an integer from its zero point.
    const MAX_DIFFERENCE: f64 = 255.0;
    let sum = terms as f64 * MAX_DIFFERENCE * MAX_DIFFERENCE;
    let is_finite = |of: IntegerParameters| f64::from(of.scale.abs()) * MAX_DIFFERENCE <= f64::from(f32::MAX);
    let scale = f64::from(a.scale.abs()) * f64::from(b.scale.abs());
    sum <= f64::from(i32::MAX) && sum * scale <= f64::from(f32::MAX) && is_finite(a) && is_finite(b)
}

/// The op that gives a tensor.
fn giving(ops: &[Op], tensor: TensorId) -> Option<&Op> {
    ops.iter().find(|op| op.outputs().iter().any(|output| output.id() == tensor))
}

/// Whether a tensor is another one in another type of floats.
fn converts(ops: &[Op], mut tensor: TensorId, from: TensorId) -> bool {
    while tensor != from {
        match giving(ops, tensor) {
            Some(op) if op.kind() == OpKind::TypeCast => tensor = op.inputs()[0].id(),
            _ => return false,
        }
    }
    true
}
