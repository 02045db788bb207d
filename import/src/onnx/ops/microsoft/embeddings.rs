//! The sum of embeddings and its norm.

use sterna::{DataType, OpKind, TensorId};

use super::norms::normed;
use crate::compose::is_integer;
use crate::error::Fault;
use crate::onnx::ops::call::Call;
use crate::steps::Reduction;

use DataType as D;
use OpKind as K;

const WORDS: usize = 2;
const POSITIONS: usize = 3;
const SEGMENTS: usize = 4;

/// `EmbedLayerNormalization`: the norm of the sum of the rows of tables by word, position and segment, the
/// number of tokens of each sequence that its mask keeps, and the sum.
pub(super) fn normalized(node: &mut Call<'_, '_>) -> Result<Vec<TensorId>, Fault> {
    let &[batch, count] = &node.known_dims(0, "known dims")?[..] else {
        return Err(node.unfit(0, "two dims, a token of each place of a sequence"));
    };
    let data_type = node.data_type(WORDS);
    let words = embedded(node, WORDS, 0, [batch, count])?;
    let places = match node.optional(8) {
        Some(_) => embedded(node, POSITIONS, 8, [batch, count])?,
        None => {
            let dims = node.known_dims(POSITIONS, "known dims")?;
            if dims.len() != 2 || dims[0] < count {
                return Err(node.unfit(POSITIONS, format!("two dims, a row for each of {count} places")));
            }
            node.steps.part(node.input(POSITIONS), 0, [0, count])?
        }
    };
    let mut sum = node.steps.both(K::Add, words, places)?;
    match (node.optional(1), node.optional(SEGMENTS)) {
        (Some(_), Some(_)) => {
            let segments = embedded(node, SEGMENTS, 1, [batch, count])?;
            sum = node.steps.both(K::Add, sum, segments)?;
        }
        (None, None) => {}
        _ => return Err(node.unfit(0, "segments and their embeddings together")),
    }
    let result = normed(node, sum, 3, [5, 6], data_type)?;
    let kept = match node.optional(7) {
        None => {
            let none = node.steps.number(D::S32, 0.0)?;
            node.steps.enlarged(none, &[batch])?
        }
        Some(mask) => {
            if node.data_type(7) != D::S32 || node.known_dims(7, "known dims")? != [batch, count] {
                return Err(node.unfit(7, format!("s32 of {batch} sequences of {count} places")));
            }
            let steps = &mut node.steps;
            let (one, zero) = (steps.float(1.0)?, steps.float(0.0)?);
            let wanted = steps.number(D::S32, 1.0)?;
            let is_kept = steps.predicate(K::Equal, mask, wanted)?;
            let ones = steps.select(is_kept, one, zero)?;
            let sums = steps.reduced(Reduction::One(K::ReduceSum), ones, &[1], false)?;
            steps.cast(sums, D::S32)?
        }
    };
    Ok(vec![result, kept, sum])
}

/// The rows of a table at the places that an input names: one for each token, or those of all sequences.
fn embedded(
    node: &mut Call<'_, '_>,
    table: usize,
    places: usize,
    [batch, count]: [i64; 2],
) -> Result<TensorId, Fault> {
    if !is_integer(node.data_type(places)) {
        return Err(node.bad_type(places, "s32, s64"));
    }
    let dims = node.known_dims(places, "known dims")?;
    if dims != [batch, count] && (places == 0 || dims != [1, count]) {
        return Err(node.unfit(places, format!("a number for each of {count} places of {batch} sequences")));
    }
    if node.rank(table)? != 2 {
        return Err(node.unfit(table, "two dims"));
    }
    if node.data_type(table) != node.data_type(WORDS) {
        node.one_type(WORDS, table)?;
    }
    let (x, places) = (node.input(table), node.input(places));
    node.steps.gathered(x, 0, places, 0)
}
