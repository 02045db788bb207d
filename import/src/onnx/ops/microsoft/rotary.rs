//! Rotary embeddings, whose angles are rows of two caches at the positions of a batch.

use sterna::{DataType, OpKind, TensorId};

use crate::constant::Constant;
use crate::error::Fault;
use crate::onnx::ops::arithmetic::floats;
use crate::onnx::ops::call::Call;
use crate::onnx::ops::places::{RotaryPart, RotaryRows, by_position};

use DataType as D;
use OpKind as K;

/// Pairs of elements rotated by the angles of their positions. ONNX Runtime reads `scale` and computes
/// without it.
pub(super) fn embedding(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let data_type = floats(node)?;
    node.one_type(0, 2)?;
    node.one_type(0, 3)?;
    if node.flag("is_packed_batching", false) {
        return Err(Fault::of_attribute("is_packed_batching", "0, a batch of sequences of one length"));
    }
    let dims = node.known_dims(0, "known dims")?;
    let cache = node.known_dims(2, "known dims")?;
    let &[_, half] = &cache[..] else { return Err(node.unfit(2, "two dims, a row for each position")) };
    let (heads, part) = (node.int("num_heads", 0), node.int("rotary_embedding_dim", 0));
    let rows = match *dims {
        [batch, heads, rows, depth] => {
            RotaryRows { dims: [batch, heads, rows, depth], has_heads_first: true }
        }
        [batch, rows, width] => {
            let depth = match part {
                0 => half.checked_mul(2).filter(|depth| *depth > 0 && width % depth == 0),
                _ => (heads > 0 && width % heads == 0).then(|| width / heads),
            };
            let depth = depth.filter(|depth| heads == 0 || heads.checked_mul(*depth) == Some(width));
            let Some(depth) = depth else {
                let needed =
                    format!("a number that divides {width} to rows, twice as long as those of caches");
                return Err(Fault::of_attribute("num_heads", needed));
            };
            RotaryRows { dims: [batch, rows, width / depth, depth], has_heads_first: false }
        }
        _ => return Err(node.unfit(0, "three or four dims")),
    };
    let depth = rows.dims[3];
    let length = if part == 0 { depth } else { part };
    if !(0..=depth).contains(&length) || length % 2 != 0 {
        return Err(Fault::of_attribute("rotary_embedding_dim", format!("an even number up to {depth}")));
    }
    let [batch, count, _] = rows.angles(length);
    let given = node.input(1);
    let positions = match *node.known_dims(1, "known dims")? {
        [1] => following(node, Some(given), count)?,
        [own, each] if own == batch && each == count => given,
        _ => return Err(node.unfit(1, "one number, or one for each row of the batch")),
    };
    let part = RotaryPart { length, is_interleaved: node.flag("interleaved", false) };
    let x = node.steps.in_shape(node.input(0), &rows.dims)?;
    let whole = rotated(node, x, rows, part, [2, 3], (1, positions), data_type)?;
    node.steps.in_shape(whole, &dims)
}

/// Rows rotated by the rows of the caches at two inputs, at positions that follow from an input.
pub(super) fn rotated(
    node: &mut Call<'_, '_>,
    x: TensorId,
    rows: RotaryRows,
    part: RotaryPart,
    caches: [usize; 2],
    positions: (usize, TensorId),
    data_type: DataType,
) -> Result<TensorId, Fault> {
    let mut needed = rows.angles(part.length);
    if let Some(&[of_batch, _]) = node.steps.builder.known_dims(positions.1) {
        needed[0] = of_batch;
    }
    let cosine = by_position(node, caches[0], Some(positions), needed)?;
    let sine = by_position(node, caches[1], Some(positions), needed)?;
    rows.rotated(&mut node.steps, x, [cosine, sine], part, data_type)
}

/// The positions {1, count} from a number on, or from 0.
pub(super) fn following(
    node: &mut Call<'_, '_>,
    first: Option<TensorId>,
    count: i64,
) -> Result<TensorId, Fault> {
    node.steps.builder.charge_folded(usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(8))?;
    let numbers: Vec<i64> = (0..count).collect();
    let numbers = node.steps.builder.constant(Constant::from_slice(&[1, count], &numbers)?)?;
    let Some(first) = first else { return Ok(numbers) };
    let first = node.steps.cast(first, D::S64)?;
    let first = node.steps.in_shape(first, &[1, 1])?;
    node.steps.both(K::Add, numbers, first)
}
