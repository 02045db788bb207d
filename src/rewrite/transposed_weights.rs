//! Weights that are the right operand of the product with the values become the left one.
//!
//! JAX computes `V · Pᵀ`, the transposed result of attention, from values whose tokens are columns. Of
//! weights that are not transposed the product sums over their rows, as that of the gradients of values does.

use super::pattern_rewriter::{PatternRewriter, Replacement};
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::Op;
use crate::types::kind::{Attr, OpKind};

/// The most moves between the SoftMax and the product.
const MAX_MOVES: usize = 4;

pub(super) fn find(rewriter: &PatternRewriter<'_>, place: usize) -> Option<Replacement> {
    let product = rewriter.op(place).filter(|op| op.kind() == OpKind::MatMul)?;
    let [values, right] = product.inputs() else { return None };
    let weights = Weights::of(rewriter, right)?;
    // Two of them would change their places for ever.
    if Weights::of(rewriter, values).is_some() {
        return None;
    }
    let result = &product.outputs()[0];
    let (rank, dims) = (result.rank()?, result.dims()?);
    if rank < 2 {
        return None;
    }
    let order = exchange(rank);
    let exchanged: Vec<i64> = order.iter().map(|&axis| dims[axis as usize]).collect();
    let between = LogicalTensor::any(rewriter.fresh(result).id(), result.data_type(), &exchanged).ok()?;
    let transposes = !product.bool_attr(Attr::TransposeA);
    let second = product
        .with_tensors([weights.tensor.clone(), values.clone()], [between.clone()])
        .attr(Attr::TransposeA, product.bool_attr(Attr::TransposeB) == weights.is_transposed)
        .attr(Attr::TransposeB, transposes);
    let transpose = Op::new(product.id(), OpKind::StaticTranspose).attr(Attr::Order, order);
    let added = vec![second, transpose.input(between).output(result.clone())];
    Some(Replacement { removed: [vec![place], weights.moves].concat(), added })
}

/// An operand of a product that is the result of a SoftMax.
struct Weights<'a> {
    tensor: &'a LogicalTensor,
    /// The places of the ops that transpose it.
    moves: Vec<usize>,
    is_transposed: bool,
}

impl<'a> Weights<'a> {
    fn of(rewriter: &'a PatternRewriter<'_>, mut tensor: &'a LogicalTensor) -> Option<Self> {
        let (mut moves, mut is_transposed) = (Vec::new(), false);
        loop {
            let (place, op) = rewriter.only_producer(tensor)?;
            match op.kind() {
                OpKind::SoftMax if op.outputs()[0].id() == tensor.id() => break,
                OpKind::Reorder => {}
                _ if exchanges_last_two(op) => is_transposed = !is_transposed,
                _ => return None,
            }
            if moves.len() == MAX_MOVES {
                return None;
            }
            moves.push(place);
            tensor = &op.inputs()[0];
        }
        Some(Self { tensor, moves, is_transposed })
    }
}

/// The order of dims that exchanges the last two.
fn exchange(rank: usize) -> Vec<i64> {
    let mut order: Vec<i64> = (0..rank as i64).collect();
    order.swap(rank - 2, rank - 1);
    order
}

/// True if an op is a transpose of the last two dims.
pub(super) fn exchanges_last_two(op: &Op) -> bool {
    let order = op.s64s_attr(Attr::Order);
    let rank = order.len();
    let from_start = order.iter().map(|&axis| if axis < 0 { axis + rank as i64 } else { axis });
    op.kind() == OpKind::StaticTranspose && rank >= 2 && from_start.eq(exchange(rank))
}
