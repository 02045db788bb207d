//! Caches whose rows lie in pages.

use super::lookups::all_integers;
use super::value::{Value, count, one, reserve, zeroed};
use crate::error::{Error, Result, TensorFault};
use crate::graph::op::Op;
use crate::graph::paged::{LoadedRows, cache_of_store};
use crate::types::dtype::DataType;
use crate::types::shape::Dims;

/// The keys or values of sequences whose cache lies in pages. `src` has dims [pages, heads, rows of a page,
/// elements]: row `t` of a sequence `b` is row `t mod n` of page `block_table[b, t / n]` of `n` rows. With
/// `lengths`, the rows of a sequence from its length on are 0. A row of 4-bit elements has an even number of
/// them.
///
/// An entry of the table is from 0 to the number of pages − 1, a length from 0 to the number of rows. Another
/// number is an error that names the tensor and the place, and nothing is written. An entry whose rows all
/// lie behind the length is not read, so that it may be any number, as the rows there may be. Sequences may
/// share pages. Strides alone say in which order the heads and the rows of a page lie. A result without
/// elements reads no table.
pub(super) fn load(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let dims: Vec<&[i64]> = inputs.iter().map(Value::dims).collect();
    let loaded = LoadedRows::new(op, &dims)?;
    let [sequences, heads, rows, depth] = [0, 1, 2, 3].map(|dim| shapes[0][dim] as usize);
    let (page, entries) = (loaded.cache.page as usize, loaded.entries as usize);
    let lengths = match inputs.get(2) {
        Some(_) => numbers_within(op, inputs, 2, [0, rows as i64])?,
        None => vec![rows as i64; sequences],
    };
    let table = all_integers(&inputs[1])?;
    let src = &inputs[0];
    let row_bytes = bytes_of_row(src.data_type(), depth);
    let rows_of_heads = count(&shapes[0]) / depth.max(1);
    let mut bytes = zeroed(rows_of_heads.saturating_mul(row_bytes))?;
    for (sequence, &length) in lengths.iter().enumerate() {
        for row in 0..length as usize {
            let place = sequence * entries + row / page;
            let of_page = within(op, 1, place, table[place], [0, loaded.cache.pages - 1])? as usize;
            for head in 0..heads {
                let from = ((of_page * heads + head) * page + row % page) * row_bytes;
                let to = ((sequence * heads + head) * rows + row) * row_bytes;
                bytes[to..][..row_bytes].copy_from_slice(&src.bytes()[from..][..row_bytes]);
            }
        }
    }
    one(Value::new(src.data_type(), &shapes[0], bytes))
}

/// A cache in pages to which rows of new tokens are written: a copy of `src`, of dims [pages, heads, rows of
/// a page, elements], in which row `i` of `rows`, of dims [tokens, heads, elements], is row `slots[i] mod n`
/// of page `slots[i] / n` of `n` rows. A row whose slot is −1 is left out.
///
/// A row of 4-bit elements has an even number of them. Of several rows for one slot the last one stands. A
/// slot is from −1 to the number of rows of all pages − 1; another one is an error that names the tensor and
/// the place, and nothing is written. The result may take the place of `src`: then the rows alone are
/// written.
pub(super) fn store(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let dims: Vec<&[i64]> = inputs.iter().map(Value::dims).collect();
    let cache = cache_of_store(op, &dims)?;
    let slots = numbers_within(op, inputs, 2, [-1, cache.slots() - 1])?;
    let (src, rows) = (&inputs[0], &inputs[1]);
    let [heads, page] = [cache.heads, cache.page].map(|dim| dim as usize);
    let row_bytes = bytes_of_row(src.data_type(), cache.depth as usize);
    let mut bytes = reserve(src.bytes().len())?;
    bytes.extend_from_slice(src.bytes());
    for (token, &slot) in slots.iter().enumerate() {
        let Ok(slot) = usize::try_from(slot) else { continue };
        for head in 0..heads {
            let from = (token * heads + head) * row_bytes;
            let to = ((slot / page * heads + head) * page + slot % page) * row_bytes;
            bytes[to..][..row_bytes].copy_from_slice(&rows.bytes()[from..][..row_bytes]);
        }
    }
    one(Value::new(src.data_type(), &shapes[0], bytes))
}

/// Bytes of a row of so many elements; of four bits there is an even number.
fn bytes_of_row(data_type: DataType, elements: usize) -> usize {
    elements * data_type.bits() / 8
}

/// The integers of an input, all of which are in a range.
fn numbers_within(op: &Op, inputs: &[Value], port: usize, range: [i64; 2]) -> Result<Vec<i64>> {
    let numbers = all_integers(&inputs[port])?.into_iter().enumerate();
    numbers.map(|(place, number)| within(op, port, place, number, range)).collect()
}

/// A number of an input, if it is in a range.
fn within(op: &Op, port: usize, place: usize, number: i128, [first, last]: [i64; 2]) -> Result<i64> {
    let number = number as i64;
    let fault = TensorFault::NumberOutOfRange { place, number, first, last };
    match (first..=last).contains(&number) {
        true => Ok(number),
        false => Err(Error::Tensor { id: op.inputs()[port].id(), fault }),
    }
}
