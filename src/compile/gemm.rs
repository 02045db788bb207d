//! Lowers a partition of products, of ops on rows, and of pointwise ops around them, to a plan: one anchor
//! after the other.
//!
//! An operand that pointwise ops compute is written to an internal buffer first, unless strides lead to its
//! elements in a value that is stored.
//! A move between the result and an output costs nothing: the product writes by the strides of the output.
//! If all results have the shape of the product, the pointwise ops run as an epilogue on each tile of the
//! product. Otherwise the product goes to an output or to an internal buffer, which later phases read.
//!
//! If both operands are 8-bit integers behind a dequantisation, their product is summed up in s32. If the
//! right one alone is stored in 8 or 4 bits, it becomes f32 part by part.

mod convolution;
mod method;
mod operands;
mod packing;
mod phase;
mod stored;

use smallvec::smallvec;

use self::method::Method;
use self::operands::ProductOperands;
use self::phase::Phases;
use super::elementwise::{DriverSpace, GroupValue};
use super::integers::PlacedIntegers;
use super::machine::Machine;
use super::paged;
use super::phases::{PlacedTensor, PlanBuilder};
use super::rows;
use super::shaped_partition::ShapedPartition;
use crate::error::Result;
use crate::graph::windows::convolves;
use crate::plan::{Base, LoopNest, ValueId};
use crate::types::kind::OpKind;

/// Adds the phases of products and of ops on rows, in the given order.
pub(super) fn add_anchors(
    shaped: &ShapedPartition<'_>,
    plan: &mut PlanBuilder<'_>,
    anchors: impl IntoIterator<Item = usize>,
    machine: Machine,
) -> Result<()> {
    for anchor in anchors {
        match plan.anchor_op(anchor).kind() {
            OpKind::MatMul => add_product(shaped, plan, anchor, machine)?,
            _ if convolves(plan.anchor_op(anchor)) => convolution::add(plan, anchor, machine)?,
            // Attention that is no phase of its own reads copies.
            OpKind::PagedLoad => paged::add_load(plan, anchor)?,
            _ => rows::add(shaped, plan, anchor)?,
        }
    }
    Ok(())
}

/// Adds the phases of one product, and of its epilogue.
fn add_product(
    shaped: &ShapedPartition<'_>,
    plan: &mut PlanBuilder<'_>,
    index: usize,
    machine: Machine,
) -> Result<()> {
    let anchor = &shaped.group.anchors[index];
    let value = anchor.outputs[0];
    let result = &shaped.group.values[value];
    let roots = plan.epilogue_roots(index, &[value], None);
    if result.dims.contains(&0) {
        roots.into_iter().for_each(|root| drop(plan.result(root)));
        return Ok(());
    }
    // Without a root, other ops use the shape of the product alone.
    if roots.is_empty() {
        return Ok(());
    }
    let operands = ProductOperands::find(plan, anchor, &result.dims, machine)?;
    let bias = anchor.inputs.get(2).map(|&bias| plan.operand(bias)).transpose()?;
    let (nest, to) = destination(plan, &operands, value, &roots)?;
    let integers = operands.integers.as_ref().map(|scaling| PlacedIntegers::new(plan, scaling));
    Phases { operands: &operands, integers: integers.as_ref(), machine, is_transposed: false }.push(
        plan,
        nest,
        bias.as_ref(),
        (&to, 0),
    )
}

/// The place of a product's result, and the loops around its tiles: the value itself, or the slot of an
/// epilogue that writes the roots.
fn destination(
    plan: &mut PlanBuilder<'_>,
    operands: &ProductOperands,
    value: ValueId,
    roots: &[ValueId],
) -> Result<(LoopNest, PlacedTensor)> {
    let ProductOperands { shape, method: Method { tile, .. }, .. } = operands;
    if *roots == [value] {
        return Ok((shape.empty_nest(*tile), plan.result(value)));
    }
    let GroupValue { data_type, dims, .. } = &plan.group().values[value];
    let width = data_type.size().unwrap_or(1);
    let space = DriverSpace::new(
        dims.clone(),
        [shape.row_axis, shape.column_axis],
        *tile,
        smallvec![((tile.columns * width) as isize, width as isize)],
    );
    let nest = plan.epilogue(&space, &[(value, 0)], roots)?;
    let to = PlacedTensor {
        base: Base::Driver(0),
        data_type: *data_type,
        dims: dims.clone(),
        strides: shape.driver_strides(dims.len(), tile.columns),
    };
    Ok((nest, to))
}
