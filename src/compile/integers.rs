//! Operands of a product that are 8-bit integers behind a dequantisation, so that s32 sums them up exactly.

use super::dequantized::{Dequantized, dequantized};
use super::elementwise::{Anchor, ShapedGroup};
use super::phases::{PlacedTensor, PlanBuilder};
use crate::error::Result;
use crate::graph::op::Op;
use crate::kernels::gemm::integers::{left_shift, right_shift};
use crate::plan::{Base, ValueId};
use crate::types::dtype::DataType;
use crate::types::fallback::{FallbackReason, FallbackReason as R, FastForm};
use crate::types::kind::Attr;

/// Where both operands are, each with the bytes to its first element.
pub(super) type OperandPlaces = [(PlacedTensor, isize); 2];

/// Scales and zero points of both operands of a product of integers.
#[derive(Clone)]
pub(super) struct IntegerScaling {
    /// The zero point of the left operand, as kernels read it.
    pub(super) left_zero: i32,
    /// The zero points of the right operand, as kernels read it, for each column or one for all.
    pub(super) right_zeros: Vec<i32>,
    /// The products of both scales, for each column or one for all.
    pub(super) scales: Vec<f64>,
    /// Scales are those of rows, not of columns.
    pub(super) scales_rows: bool,
    /// The axis of the result that goes through groups of columns, or of rows, and how many a group has.
    pub(super) groups: Option<(usize, usize)>,
}

/// The source of the integers of an operand.
enum Integers {
    /// Strides lead to them in a value that is stored.
    Viewed(PlacedTensor, isize),
    /// Other ops compute this value, which has to be written.
    Computed(ValueId),
}

/// The sums of columns in the buffer of the packed operand: a row of s32 for each block of rows.
#[derive(Clone, Copy)]
pub(super) struct ColumnSums {
    /// Bytes from the start of a matrix, whose panels come first.
    pub(super) offset: usize,
    /// Bytes from one row to the next.
    pub(super) row: usize,
    pub(super) rows: usize,
}

/// The inputs of a product of integers beside its operands.
pub(super) struct PlacedIntegers {
    pub(super) left_zero: i32,
    pub(super) has_right_zeros: bool,
    /// Scales and right zero points: the start, and the bytes from one column to the next.
    pub(super) scales: (Base, isize),
    pub(super) zeros: (Base, isize),
    pub(super) scales_rows: bool,
    pub(super) groups: Option<(usize, usize)>,
}

impl PlacedIntegers {
    pub(super) fn new(plan: &mut PlanBuilder<'_>, scaling: &IntegerScaling) -> Self {
        let IntegerScaling { left_zero, right_zeros, scales, scales_rows, groups } = scaling;
        let stride = |count: usize| if count == 1 { 0 } else { 8 };
        let word = |zero: &i32| {
            let [a, b, c, d] = zero.to_ne_bytes();
            [a, b, c, d, 0, 0, 0, 0]
        };
        Self {
            left_zero: *left_zero,
            has_right_zeros: right_zeros.iter().any(|&zero| zero != 0),
            scales: (plan.constant(scales.iter().map(|scale| scale.to_ne_bytes())), stride(scales.len())),
            zeros: (plan.constant(right_zeros.iter().map(word)), stride(right_zeros.len())),
            scales_rows: *scales_rows,
            groups: *groups,
        }
    }
}

/// The roles of operands in a product of integers: activations with one scale and one zero point, and weights
/// with one of each for a channel or for all channels.
#[derive(Clone, Copy)]
pub(super) struct IntegerRoles {
    /// The dim of the weights that goes through channels; `None` if there is one.
    pub(super) channels: Option<usize>,
    pub(super) depth: i64,
    /// The weights are the left operand of the product.
    pub(super) weights_are_left: bool,
}

impl IntegerRoles {
    /// Those of a MatMul; `None` if the first operand is a number.
    fn of_product(op: &Op, dims: [&[i64]; 2]) -> Option<Self> {
        let rank = dims.map(<[i64]>::len);
        let channels = match (rank[1], op.bool_attr(Attr::TransposeB)) {
            (0 | 1, _) => None,
            (rank, true) => Some(rank - 2),
            (rank, false) => Some(rank - 1),
        };
        let depth = match op.bool_attr(Attr::TransposeA) && rank[0] > 1 {
            true => dims[0][rank[0] - 2],
            false => *dims[0].last()?,
        };
        Some(Self { channels, depth, weights_are_left: false })
    }
}

/// The operands of an op, each with the value that holds the integers, and their scaling.
pub(super) struct PlacedIntegerOperands {
    pub(super) places: OperandPlaces,
    pub(super) sources: [ValueId; 2],
    pub(super) scaling: IntegerScaling,
    /// The zero point of the activations as an element.
    pub(super) zero: u8,
}

/// The operands of a product and their scaling, if both operands are dequantised integers and no sum
/// overflows s32. `None` if the product has to be computed in f32, which the plan says of dequantised
/// integers.
pub(super) fn integer_operands(
    plan: &mut PlanBuilder<'_>,
    anchor: &Anchor,
) -> Result<Option<(OperandPlaces, IntegerScaling)>> {
    let (group, op) = (plan.group(), plan.op(anchor.op));
    let dims = [0, 1].map(|input| &group.values[anchor.inputs[input]].dims[..]);
    let roles = IntegerRoles::of_product(op, dims).ok_or(R::OperandForm);
    let found = integers_of(plan, anchor, roles, |_, _| Ok(()))?;
    Ok(found.map(|PlacedIntegerOperands { places, scaling, .. }| (places, scaling)))
}

/// As [`integer_operands`] for any op that multiplies. `fits` may object if the zero point of the activations
/// is none of their elements, or to the place of weights that other ops have moved.
pub(super) fn integers_of(
    plan: &mut PlanBuilder<'_>,
    anchor: &Anchor,
    roles: Result<IntegerRoles, FallbackReason>,
    fits: impl FnOnce(bool, Option<&PlacedTensor>) -> Result<(), FallbackReason>,
) -> Result<Option<PlacedIntegerOperands>> {
    let group = plan.group();
    let [Some(left), Some(right)] = [0, 1].map(|input| dequantized(group, anchor.inputs[input])) else {
        return Ok(None);
    };
    let found = left.and_then(|left| {
        let right = right?;
        let (integers, scaling) = sources(plan, anchor, [&left, &right], &roles?)?;
        let zero = left.zeros.first().copied().unwrap_or(0.0);
        let moved = match &integers[1] {
            Integers::Viewed(tensor, _) if right.scaled != anchor.inputs[1] => Some(tensor),
            _ => None,
        };
        let elements = match group.values[left.source].data_type {
            DataType::U8 => 0.0..=255.0,
            _ => -128.0..=127.0,
        };
        fits(elements.contains(&zero), moved)?;
        Ok((integers, [left.source, right.source], scaling, zero as i32 as u8))
    });
    let Some((integers, sources, scaling, zero)) = plan.taken(FastForm::IntegerProduct, anchor.op, found)
    else {
        return Ok(None);
    };
    let mut place = |integers: Integers| match integers {
        Integers::Viewed(tensor, offset) => Ok((tensor, offset)),
        Integers::Computed(value) => plan.operand(value).map(|tensor| (tensor, 0)),
    };
    let [left, right] = integers;
    let places = [place(left)?, place(right)?];
    Ok(Some(PlacedIntegerOperands { places, sources, scaling, zero }))
}

/// The numbers that integers are behind their zero points, of both operands of an op whose kernels sum up
/// f32, and their scaling, if f32 holds all sums. `None` if the op has to be computed of what is dequantised,
/// which the plan says of dequantised integers.
pub(super) fn reduced_integers(
    plan: &mut PlanBuilder<'_>,
    anchor: &Anchor,
    roles: &IntegerRoles,
) -> Option<([ValueId; 2], IntegerScaling)> {
    let group = plan.group();
    let [Some(left), Some(right)] = [0, 1].map(|input| dequantized(group, anchor.inputs[input])) else {
        return None;
    };
    let found = left.and_then(|left| {
        let right = right?;
        R::NoStrides.unless([left.scaled, right.scaled] == anchor.inputs[..2])?;
        R::SumOverflow.unless(largest_sum(group, [&left, &right], roles)? <= LARGEST_IN_F32)?;
        let scaling = IntegerScaling {
            left_zero: 0,
            right_zeros: vec![0],
            scales: products_of_scales(&left, &right),
            scales_rows: roles.weights_are_left,
            groups: None,
        };
        Ok(([left.reduced, right.reduced], scaling))
    });
    plan.taken(FastForm::IntegerProduct, anchor.op, found)
}

/// The largest integer up to which f32 holds all.
const LARGEST_IN_F32: f64 = (1 << f32::MANTISSA_DIGITS) as f64;

/// The largest sum of products of integers behind their zero points.
fn largest_sum(
    group: &ShapedGroup,
    [left, right]: [&Dequantized; 2],
    roles: &IntegerRoles,
) -> Result<f64, FallbackReason> {
    R::SeveralScales.unless(left.axis.is_none())?;
    R::ScaleAxis.unless(right.axis.is_none() || right.axis == roles.channels)?;
    let [left_most, right_most] = [left, right].map(|of| of.largest(group.values[of.source].data_type));
    let (left_most, right_most) = left_most.zip(right_most).ok_or(R::ScaleRange)?;
    R::NoElements.unless(roles.depth != 0)?;
    Ok(roles.depth as f64 * left_most * right_most)
}

/// The products of both scales, for each channel or one for all.
fn products_of_scales(left: &Dequantized, right: &Dequantized) -> Vec<f64> {
    right.scales.iter().map(|&scale| f64::from(left.scales[0]) * f64::from(scale)).collect()
}

fn sources(
    plan: &PlanBuilder<'_>,
    anchor: &Anchor,
    [left, right]: [&Dequantized; 2],
    roles: &IntegerRoles,
) -> Result<([Integers; 2], IntegerScaling), FallbackReason> {
    let group = plan.group();
    R::SumOverflow.unless(largest_sum(group, [left, right], roles)? <= f64::from(i32::MAX))?;
    let [left_type, right_type] = [left, right].map(|of| group.values[of.source].data_type);
    let places = find(plan, left, anchor.inputs[0]).zip(find(plan, right, anchor.inputs[1]));
    let (left_place, right_place) = places.ok_or(R::NoStrides)?;
    let zeros = |of: &Dequantized, shift: i32| -> Vec<i32> {
        match &of.zeros[..] {
            [] => vec![shift],
            zeros => zeros.iter().map(|&zero| zero as i32 + shift).collect(),
        }
    };
    let (of_left, right_zeros) = match roles.weights_are_left {
        false => (zeros(left, left_shift(left_type)), zeros(right, right_shift(right_type))),
        true => (zeros(right, left_shift(right_type)), zeros(left, right_shift(left_type))),
    };
    R::SeveralScales.unless(of_left.iter().all(|zero| *zero == of_left[0]))?;
    let scaling = IntegerScaling {
        left_zero: of_left[0],
        right_zeros,
        scales: products_of_scales(left, right),
        scales_rows: roles.weights_are_left,
        groups: None,
    };
    Ok(([left_place, right_place], scaling))
}

/// Where the integers of an operand are, in its shape. `None` if a phase has written what they become, which
/// others read.
fn find(plan: &PlanBuilder<'_>, of: &Dequantized, operand: ValueId) -> Option<Integers> {
    let bare = plan.group().with_operand_of(of.scaled, of.source);
    let mut value = operand;
    while value != of.source {
        if plan.place(value).is_some() {
            return None;
        }
        value = bare.moved_from(value).unwrap_or(of.source);
    }
    match plan.view_in(&bare, operand) {
        Some((tensor, offset)) => Some(Integers::Viewed(tensor, offset)),
        None if of.scaled == operand && plan.is_computable(of.source, &[]) => {
            Some(Integers::Computed(of.source))
        }
        None => None,
    }
}
