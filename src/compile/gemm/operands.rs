//! The operands of a product: their places, and the method that multiplies them.

use super::method::Method;
use super::stored::{self, DequantizedOperand};
use crate::compile::elementwise::Anchor;
use crate::compile::integers::{ColumnSums, IntegerScaling, OperandPlaces, integer_operands};
use crate::compile::machine::Machine;
use crate::compile::phases::{AxisStrides, PlacedTensor, PlanBuilder};
use crate::compile::product_shape::ProductShape;
use crate::error::Result;
use crate::graph::op::Op;
use crate::plan::{Base, ValueId, WindowOperand};

/// An operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OperandSide {
    Left,
    Right,
}

/// The operands of a product, each with the bytes to its first element, and the method that multiplies them.
pub(super) struct ProductOperands {
    pub(super) left: (PlacedTensor, isize),
    pub(super) right: (PlacedTensor, isize),
    pub(super) shape: ProductShape,
    pub(super) method: Method,
    /// The windows that one operand consists of.
    pub(super) windows: Option<(OperandSide, WindowOperand)>,
    /// The scaling of a product of integers.
    pub(super) integers: Option<IntegerScaling>,
    /// The dequantisation of a right operand that is read as it is stored.
    pub(super) dequantized: Option<DequantizedOperand>,
}

impl ProductOperands {
    pub(super) fn find(
        plan: &mut PlanBuilder<'_>,
        anchor: &Anchor,
        result: &[i64],
        machine: Machine,
    ) -> Result<Self> {
        let op = plan.op(anchor.op);
        let shape_of = |[(left, _), (right, _)]: &OperandPlaces| ProductShape::new(op, left, right, result);
        if let Some((places, scaling)) = integer_operands(plan, anchor)? {
            let shape = shape_of(&places);
            let [left, right] = places;
            let varies = matches!(right.0.base, Base::Port(_)) && !is_kept(plan, &right.0, machine);
            let method = Method::of_integers(&shape, machine, varies);
            return Ok(Self {
                left,
                right,
                shape,
                method,
                windows: None,
                integers: Some(scaling),
                dequantized: None,
            });
        }
        if let Some((places, dequantized, method)) = stored::find(plan, anchor, result, machine)? {
            let shape = shape_of(&places);
            let [left, right] = places;
            return Ok(Self {
                left,
                right,
                shape,
                method,
                windows: None,
                integers: None,
                dequantized: Some(dequantized),
            });
        }
        let is_kept = keeps_panels(plan, anchor.inputs[1], machine);
        let places = operands(plan, op, &anchor.inputs, result, is_kept, machine)?;
        let shape = shape_of(&places);
        let [left, right] = places;
        let right_type = op.inputs()[1].data_type();
        let method = Method::choose(&shape, &left.0, &right.0, right_type, is_kept, machine);
        Ok(Self { left, right, shape, method, windows: None, integers: None, dequantized: None })
    }

    /// The place of the right operand where it is not packed.
    pub(super) fn right_place(&self) -> RightPlace {
        let (right, offset) = &self.right;
        RightPlace { base: right.base, offset: *offset, strides: self.shape.right.clone(), sums: None }
    }
}

/// The place of the right operand, packed or not.
pub(super) struct RightPlace {
    pub(super) base: Base,
    /// Bytes to the first element.
    pub(super) offset: isize,
    /// Strides along the axes of the result.
    pub(super) strides: AxisStrides,
    /// The sums of the columns of integers.
    pub(super) sums: Option<ColumnSums>,
}

/// True if a tensor is a constant input whose packed copy is kept for later executions.
pub(super) fn is_kept(plan: &PlanBuilder<'_>, tensor: &PlacedTensor, machine: Machine) -> bool {
    machine.keeps_constants && matches!(tensor.base, Base::Port(port) if plan.is_constant(port))
}

/// The same for an operand in memory, which other ops may have moved there.
pub(super) fn keeps_panels(plan: &PlanBuilder<'_>, operand: ValueId, machine: Machine) -> bool {
    is_kept(plan, &plan.view_or_dense(operand), machine)
}

/// Where both operands are, each with the bytes to its first element.
///
/// The strides of an operand may decide the order of additions. If strides lead to the elements of an operand
/// that ops move, they are used only if the order is that of the operand in rows, as it would be if these ops
/// were run one by one.
fn operands(
    plan: &mut PlanBuilder<'_>,
    op: &Op,
    inputs: &[ValueId],
    result: &[i64],
    is_kept: bool,
    machine: Machine,
) -> Result<OperandPlaces> {
    let right_type = op.inputs()[1].data_type();
    // If both operands are NaN, which of the two becomes the product depends on how the kernel reads the
    // right operand.
    let order = |left: &PlacedTensor, right: &PlacedTensor| {
        let shape = ProductShape::new(op, left, right, result);
        let method = Method::choose(&shape, left, right, right_type, is_kept, machine);
        (method.order(), (!method.reads_panels()).then_some(right.data_type))
    };
    let dense = [0, 1].map(|input| plan.place_or_dense(inputs[input]));
    let views = [0, 1].map(|input| plan.view(inputs[input]));
    let wanted = order(&dense[0], &dense[1]);
    let with_views = [[true, true], [false, true], [true, false]].into_iter().find(|use_view| {
        let [left, right] = [0, 1].map(|input| match &views[input] {
            Some((view, _)) if use_view[input] => view,
            _ => &dense[input],
        });
        order(left, right) == wanted
    });
    let with_views = with_views.unwrap_or_default();
    let [left_view, right_view] = views;
    let mut place = |view: Option<(PlacedTensor, isize)>, input: usize| -> Result<_> {
        match view {
            Some(view) if with_views[input] => Ok(view),
            _ => Ok((plan.operand(inputs[input])?, 0)),
        }
    };
    Ok([place(left_view, 0)?, place(right_view, 1)?])
}
