//! Right operands that are stored in 8 or 4 bits behind a dequantisation: products read them as they are, and
//! no copy in f32 is made.

use smallvec::SmallVec;

use super::method::{Method, RightRows};
use crate::compile::elementwise::QuantParameters;
use crate::compile::integers::OperandPlaces;
use crate::compile::machine::Machine;
use crate::compile::phases::{PlacedTensor, PlanBuilder};
use crate::compile::product_shape::ProductShape;
use crate::compile::quantized_tokens::{StoredRows, stored_rows};
use crate::error::Result;
use crate::graph::op::Op;
use crate::kernels::attention::{DequantizeKernels, WeightProducts};
use crate::plan::ValueId;
use crate::types::dtype::DataType;
use crate::types::kind::Attr;

/// The dequantisation of a right operand.
pub(super) struct DequantizedOperand {
    pub(super) stored: RightRows,
    pub(super) kernels: DequantizeKernels,
    /// Products of few rows, for which the operand becomes f32 in registers.
    pub(super) products: Option<WeightProducts>,
    /// Scales and zero points in f32, with a dim for each dim of the operand. Those of a row are neighbours.
    pub(super) scaling: [PlacedTensor; 2],
    /// Scales from one group of rows to the next.
    pub(super) row_step: usize,
}

/// Both operands, and how the product is worked out, if the right operand is stored in 8 or 4 bits and its
/// numbers are f32. The order of additions
/// is that of the same operand in f32 in rows, as it would be if ops were run one by one.
pub(super) fn find(
    plan: &mut PlanBuilder<'_>,
    op: &Op,
    inputs: &[ValueId],
    result: &[i64],
    machine: Machine,
) -> Result<Option<(OperandPlaces, DequantizedOperand, Method)>> {
    let (left, right) = (inputs[0], inputs[1]);
    let group = plan.group();
    let rank = group.values[right].dims.len();
    let are_floats = inputs[..2].iter().all(|&input| group.values[input].data_type == DataType::F32);
    let is_empty = group.values[right].dims.contains(&0);
    if rank < 2 || is_empty || !are_floats || plan.place(right).is_some() {
        return Ok(None);
    }
    let of_columns = [rank - 2, rank - 1];
    let [depth, column] = if op.bool_attr(Attr::TransposeB) { [rank - 1, rank - 2] } else { of_columns };
    let along_columns = stored_rows(plan, right, [depth, column], false).map(|rows| (rows, false));
    let along_depth = || stored_rows(plan, right, [column, depth], false).map(|rows| (rows, true));
    let Some((rows, is_along_depth)) = along_columns.or_else(along_depth) else { return Ok(None) };

    let dense = plan.place_or_dense(right);
    let order = |left: &PlacedTensor| {
        let shape = ProductShape::new(op, left, &dense, result);
        Method::choose(&shape, left, &dense, DataType::F32, machine).order()
    };
    let wanted = order(&plan.place_or_dense(left));
    let view = plan.view(left).filter(|(view, _)| order(view) == wanted);
    let stored = RightRows { data_type: rows.tensor.data_type, is_along_depth, group: rows.group };
    let placed = view.as_ref().map_or_else(|| plan.place_or_dense(left), |(view, _)| view.clone());
    let shape = ProductShape::new(op, &placed, &rows.tensor, result);
    let Some((method, products)) = Method::of_stored(&shape, wanted, &stored, machine) else {
        return Ok(None);
    };
    let [row, element] = if is_along_depth { [column, depth] } else { [depth, column] };
    let Some(scaling) = scaling(plan, &rows, element) else { return Ok(None) };
    let left = match view {
        Some(view) => view,
        None => (plan.operand(left)?, 0),
    };
    let StoredRows { tensor, offset, kernels, .. } = rows;
    let row_step = scaling[0].strides[row] as usize;
    let dequantized = DequantizedOperand { stored, kernels, products, scaling, row_step };
    Ok(Some(([left, (tensor, offset)], dequantized, method)))
}

/// Scales and zero points in f32, written to internal buffers. Kernels read those of neighbouring elements of
/// a row as vectors, so the dim `element` is the innermost one in memory.
fn scaling(plan: &mut PlanBuilder<'_>, rows: &StoredRows<'_>, element: usize) -> Option<[PlacedTensor; 2]> {
    let StoredRows { found, axes, counts, .. } = rows;
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
