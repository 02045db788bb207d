//! Norms of the last dim, of ONNX Runtime.

use sterna::{Attr, AttrValue, DataType, OpKind, TensorId};

use crate::error::Fault;
use crate::onnx::ops::arithmetic::floats;
use crate::onnx::ops::call::Call;
use crate::onnx::ops::rows;

use DataType as D;
use OpKind as K;

/// The norm along the last dim of a sum, and if asked for the sum: with mean and shift, or by the mean of
/// squares alone.
pub(super) fn skip_norm(
    node: &mut Call<'_, '_>,
    shift: Option<usize>,
    bias: usize,
) -> Result<Vec<TensorId>, Fault> {
    let (x, data_type, rank) = (node.input(0), floats(node)?, node.rank(0)?);
    if node.outputs == 2 || node.outputs == 3 {
        let needed = "the first output and the last one; mean and deviation are those of training".into();
        return Err(Fault::Unsupported { needed });
    }
    node.one_type(0, 1)?;
    let sum = match node.optional(bias) {
        None => node.steps.emit_declared(K::Add, &[], &[x, node.input(1)], data_type)?,
        Some(bias) => {
            let sum = node.steps.emit_declared(K::Add, &[], &[x, node.input(1)], D::F32)?;
            let sum = node.steps.emit_declared(K::Add, &[], &[sum, bias], D::F32)?;
            node.steps.cast(sum, data_type)?
        }
    };
    let result = match shift {
        None => {
            let scale = rows::factor(node, 2)?;
            let attrs = of_last_dim(node, rank);
            node.steps.emit(K::RMSNorm, &attrs, &[sum, scale], data_type)?
        }
        Some(shift) => normed(node, sum, rank, [2, shift], data_type)?,
    };
    // Nobody asks for the two between.
    Ok(vec![result, sum, sum, sum])
}

/// The attributes of a norm along the last dim.
fn of_last_dim(node: &Call<'_, '_>, rank: usize) -> Vec<(Attr, AttrValue)> {
    let axis = rank as i64 - 1;
    vec![(Attr::BeginNormAxis, axis.into()), (Attr::Epsilon, node.float("epsilon", 1e-12).into())]
}

/// LayerNorm along the last dim, with factors at an input, and shifts at another one if it is there.
pub(super) fn normed(
    node: &mut Call<'_, '_>,
    x: TensorId,
    rank: usize,
    [scale, shift]: [usize; 2],
    data_type: DataType,
) -> Result<TensorId, Fault> {
    let mut attrs = of_last_dim(node, rank);
    attrs.push((Attr::KeepStats, false.into()));
    let scale = rows::factor(node, scale)?;
    if node.optional(shift).is_some() {
        let shift = rows::factor(node, shift)?;
        return node.steps.emit(K::LayerNorm, &attrs, &[x, scale, shift], data_type);
    }
    attrs.push((Attr::UseAffine, false.into()));
    let wide = node.steps.cast(x, D::F32)?;
    let plain = node.steps.emit(K::LayerNorm, &attrs, &[wide], D::F32)?;
    node.steps.emit(K::Multiply, &[], &[plain, scale], data_type)
}
