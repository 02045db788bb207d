//! Right operands that are stored in 8 or 4 bits behind a dequantisation: products read them as they are, and
//! no copy in f32 is made.

use smallvec::SmallVec;

use super::method::{Method, RightRows};
use crate::compile::elementwise::{Anchor, QuantParameters};
use crate::compile::integers::OperandPlaces;
use crate::compile::machine::Machine;
use crate::compile::phases::{PlacedTensor, PlanBuilder};
use crate::compile::product_shape::ProductShape;
use crate::compile::quantized_tokens::{DequantizedValue, StoredRows, stored_rows};
use crate::error::Result;
use crate::kernels::gemm::StoredKernels;
use crate::types::dtype::DataType;
use crate::types::fallback::{FallbackReason, FallbackReason as R, FastForm};
use crate::types::kind::Attr;

/// The dequantisation of a right operand.
pub(super) struct DequantizedOperand {
    pub(super) stored: RightRows,
    pub(super) kernels: StoredKernels,
    /// The operand becomes f32 in registers.
    pub(super) in_registers: bool,
    /// Scales and zero points in f32, with a dim for each dim of the operand. Those of a row are neighbours.
    pub(super) scaling: [PlacedTensor; 2],
    /// Scales from one group of rows to the next.
    pub(super) row_step: usize,
}

/// Both operands, and how the product is computed.
type StoredProduct = (OperandPlaces, DequantizedOperand, Method);

/// A product whose right operand is read as it is stored, in 8 or 4 bits. The order of additions is that of
/// the same operand in f32 in rows, as it would be if ops were run one by one. `None` if the operand is not
/// dequantised, or if the product has another form, which the plan then says.
pub(super) fn find(
    plan: &mut PlanBuilder<'_>,
    anchor: &Anchor,
    result: &[i64],
    machine: Machine,
) -> Result<Option<StoredProduct>> {
    let Some(source) = DequantizedValue::find(plan, anchor.inputs[1], false) else { return Ok(None) };
    let found = chosen(plan, anchor, source, result, machine);
    let Some(chosen) = plan.taken(FastForm::StoredOperand, anchor.op, found) else { return Ok(None) };
    let in_registers = chosen.in_registers.and_then(|of| plan.taken(FastForm::Registers, anchor.op, of));
    let left = match chosen.left {
        Some(view) => view,
        None => (plan.operand(anchor.inputs[0])?, 0),
    };
    let StoredRows { tensor, offset, kernels, .. } = chosen.rows;
    let Chosen { stored, scaling, row_step, .. } = chosen;
    let dequantized =
        DequantizedOperand { stored, kernels, in_registers: in_registers.is_some(), scaling, row_step };
    Ok(Some(([left, (tensor, offset)], dequantized, chosen.method)))
}

/// A stored operand, and the method for its product.
struct Chosen<'a> {
    rows: StoredRows<'a>,
    stored: RightRows,
    /// The left operand, if strides lead to it and do not change the order of additions.
    left: Option<(PlacedTensor, isize)>,
    method: Method,
    /// Few rows are multiplied in registers, or the reason why they are not.
    in_registers: Option<Result<(), FallbackReason>>,
    scaling: [PlacedTensor; 2],
    row_step: usize,
}

fn chosen<'a>(
    plan: &mut PlanBuilder<'a>,
    anchor: &Anchor,
    source: DequantizedValue<'a>,
    result: &[i64],
    machine: Machine,
) -> Result<Chosen<'a>, FallbackReason> {
    let op = plan.op(anchor.op);
    let (left, right) = (anchor.inputs[0], anchor.inputs[1]);
    let group = plan.group();
    let rank = group.values[right].dims.len();
    let are_floats = [left, right].iter().all(|&input| group.values[input].data_type == DataType::F32);
    R::ElementType.unless(are_floats)?;
    R::OperandForm.unless(rank >= 2 && plan.place(right).is_none())?;
    R::NoElements.unless(!group.values[right].dims.contains(&0))?;
    let of_columns = [rank - 2, rank - 1];
    let [depth, column] = if op.bool_attr(Attr::TransposeB) { [rank - 1, rank - 2] } else { of_columns };
    let along_columns =
        stored_rows(plan, right, source.clone(), [depth, column], None).map(|rows| (rows, false));
    let (rows, is_along_depth) = along_columns.or_else(|of_columns| {
        let along_depth = stored_rows(plan, right, source, [column, depth], None).map(|rows| (rows, true));
        along_depth.map_err(|of_depth| if of_columns == R::StridedElements { of_depth } else { of_columns })
    })?;

    let dense = plan.place_or_dense(right);
    let order = |left: &PlacedTensor| {
        let shape = ProductShape::new(op, left, &dense, result);
        Method::choose(&shape, left, &dense, DataType::F32, false, machine).order()
    };
    let wanted = order(&plan.place_or_dense(left));
    let view = plan.view(left).filter(|(view, _)| order(view) == wanted);
    let stored = RightRows { kernels: rows.kernels, is_along_depth, group: rows.group };
    let placed = view.as_ref().map_or_else(|| plan.place_or_dense(left), |(view, _)| view.clone());
    let shape = ProductShape::new(op, &placed, &rows.tensor, result);
    let (method, in_registers) = Method::of_stored(&shape, wanted, &stored, machine)?;
    let [row, element] = if is_along_depth { [column, depth] } else { [depth, column] };
    let scaling = scaling(plan, &rows, element).ok_or(R::ScaleGroups)?;
    let row_step = scaling[0].strides[row] as usize;
    Ok(Chosen { rows, stored, left: view, method, in_registers, scaling, row_step })
}

/// Scales and zero points in f32, written to internal buffers. Kernels read those of neighbouring elements of
/// a row as vectors, so the dim `element` is the innermost one in memory.
fn scaling(plan: &mut PlanBuilder<'_>, rows: &StoredRows<'_>, element: usize) -> Option<[PlacedTensor; 2]> {
    let StoredRows { source: DequantizedValue { found, axes, .. }, counts, .. } = rows;
    let innermost = axes[element]?;
    let mut order: SmallVec<[usize; 6]> = (0..counts.len()).filter(|&axis| axis != innermost).collect();
    order.push(innermost);
    let parameters = QuantParameters::of(plan.op(found.op), &found.inputs);
    let (group, values) = plan.group().with_parameters(&parameters, counts, counts);
    let places = plan.write_in(&group, values, &order)?;
    Some(places.map(|place| {
        let along = |axis: &Option<usize>, of: &[i64], missing| axis.map_or(missing, |axis| of[axis]);
        let dims = axes.iter().map(|axis| along(axis, &place.dims, 1)).collect();
        let strides = axes.iter().map(|axis| along(axis, &place.strides, 0)).collect();
        PlacedTensor { dims, strides, ..place }
    }))
}
