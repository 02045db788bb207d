//! Keys and values of attention in the pages of a cache.

use super::attention_heads::Heads;
use super::logical_tensor::LogicalTensor;
use super::op_sequence::{OpSequence, from_end, unknown, value};
use crate::error::{AttentionFault, Result};
use crate::types::dtype::DataType;
use crate::types::kind::{Attr, OpKind};

use DataType::S32;

/// The largest number that `Fill`, whose value is an f32, gives exactly.
pub(super) const MAX_EXACT: i64 = 1 << 24;

/// The pages of each sequence, and the number of keys that it has.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PagedSequences {
    pub(super) block_table: LogicalTensor,
    pub(super) lengths: LogicalTensor,
}

impl PagedSequences {
    /// Refuses types and ranks that no load takes.
    pub(super) fn check(&self) -> Result<()> {
        let Self { block_table, lengths } = self;
        let types: [(&LogicalTensor, &[DataType], &'static str); 2] = [
            (block_table, &[DataType::S32, DataType::S64], "a table of pages is s32 or s64"),
            (lengths, &[DataType::S32], "lengths are s32, as indices are"),
        ];
        for (tensor, allowed, rule) in types {
            let given = tensor.data_type();
            if !allowed.contains(&given) {
                return Err(AttentionFault::Type { option: "paged", tensor: tensor.id(), given, rule }.into());
            }
        }
        of_rank(block_table, 2, "a table of pages has dims [batch, pages of each sequence]")?;
        of_rank(lengths, 1, "lengths have dims [batch]")
    }

    /// The same for queries, and the caches of keys and of values.
    pub(super) fn check_operands(&self, q: &LogicalTensor, caches: [&LogicalTensor; 2]) -> Result<()> {
        of_rank(q, 4, "queries beside pages have dims [batch, heads, queries, d]")?;
        let rule = "a cache has dims [pages, heads, rows of a page, d]";
        caches.into_iter().try_for_each(|cache| of_rank(cache, 4, rule))
    }
}

/// Refuses a tensor of another rank, if its rank is known.
fn of_rank(tensor: &LogicalTensor, rank: usize, rule: &'static str) -> Result<()> {
    if tensor.rank().is_none_or(|given| given == rank) {
        return Ok(());
    }
    let given = tensor.partial_dims().unwrap_or_default();
    Err(AttentionFault::Shape { option: "paged", tensor: tensor.id(), given, rule }.into())
}

/// Refuses keys that do not lie as rows of a cache.
pub(super) fn check_rows(k_transposed: bool) -> Result<()> {
    match k_transposed {
        true => Err(value("k_transposed", true, "the pages of a cache hold keys as rows")),
        false => Ok(()),
    }
}

impl OpSequence {
    /// The keys or values of all sequences, of dims [batch, heads, rows of all pages, d].
    pub(super) fn loaded(
        &mut self,
        PagedSequences { block_table, lengths }: &PagedSequences,
        name: &str,
        cache: &LogicalTensor,
    ) -> Result<LogicalTensor> {
        let rows = from_end(block_table, 1).zip(from_end(cache, 2));
        let rows = rows.and_then(|(entries, page)| entries.checked_mul(page));
        let dims = [from_end(block_table, 2), from_end(cache, 3), rows, from_end(cache, 1)];
        let loaded = LogicalTensor::partial(self.next(cache.data_type()).id(), cache.data_type(), &dims)?;
        let load = self.op(OpKind::PagedLoad, name);
        let inputs = [cache.clone(), block_table.clone(), lengths.clone()];
        self.ops.push(load.inputs_from(inputs).output(loaded.clone()));
        Ok(loaded)
    }

    /// The lengths of sequences, with dims that broadcast to the scores.
    pub(super) fn lengths(&mut self, sequences: &PagedSequences, heads: Option<Heads>) -> LogicalTensor {
        let dims: &[i64] = if heads.is_some() { &[-1, 1, 1, 1, 1] } else { &[-1, 1, 1, 1] };
        self.reshaped("lengths", sequences.lengths.clone(), dims)
    }

    /// The loaded keys or values of all sequences one behind the other, of dims [1, heads, rows, d].
    pub(super) fn in_order(&mut self, name: &str, loaded: LogicalTensor) -> Result<LogicalTensor> {
        let t = loaded.data_type();
        let dims = [from_end(&loaded, 3), from_end(&loaded, 1)];
        let [Some(heads), Some(depth)] = dims else {
            return Err(unknown("packed_queries", "the heads and the elements of a row", &loaded));
        };
        let sequences = from_end(&loaded, 4).zip(from_end(&loaded, 2));
        let rows = sequences.and_then(|(sequences, rows)| sequences.checked_mul(rows));
        let moved = self.next(t);
        let op = self.op(OpKind::StaticTranspose, name).attr(Attr::Order, vec![1i64, 0, 2, 3]);
        self.ops.push(op.input(loaded).output(moved.clone()));
        let dims = [Some(1), Some(heads), rows, Some(depth)];
        let in_order = LogicalTensor::partial(self.next(t).id(), t, &dims)?;
        let op = self.op(OpKind::StaticReshape, name).attr(Attr::SpecialZero, false);
        let op = op.attr(Attr::Shape, vec![1, heads, rows.unwrap_or(-1), depth]);
        self.ops.push(op.input(moved).output(in_order.clone()));
        Ok(in_order)
    }

    /// Columns of the first key of each sequence among the rows of all, and of the one behind its last, and a
    /// row without keys for queries of none.
    pub(super) fn keys_of_pages(
        &mut self,
        sequences: &PagedSequences,
        cache: &LogicalTensor,
    ) -> Result<[LogicalTensor; 2]> {
        let page = from_end(cache, 2);
        let page = page.ok_or_else(|| unknown("packed_queries", "the rows of a page", cache))?;
        let lengths = self.reshaped("lengths", sequences.lengths.clone(), &[-1, 1]);
        let index = self.index("sequence_of_row", &lengths, 0);
        let rows = match from_end(&sequences.block_table, 1).and_then(|entries| entries.checked_mul(page)) {
            Some(rows) => self.number("rows", rows)?,
            None => {
                // The last index of the entries is one less than their number; without entries it is −1.
                let table = &sequences.block_table;
                let entries = self.index("entry", table, 1);
                let zeros = self.pair(OpKind::Subtract, "no_sequence", index.clone(), index.clone(), S32);
                let one = self.number("one", 1)?;
                let before = self.pair(OpKind::Subtract, "no_entry", zeros, one.clone(), S32);
                let entries = self.joined("entries", 1, [before, entries]);
                let last = self.part("last_entry", entries, 1, [-1, i64::MAX]);
                let count = self.pair(OpKind::Add, "entry_count", last, one, S32);
                let page = self.number("page", page)?;
                self.pair(OpKind::Multiply, "rows", count, page, S32)
            }
        };
        let first = self.pair(OpKind::Multiply, "first_row", index, rows, S32);
        let end = self.pair(OpKind::Add, "end_row", first.clone(), lengths, S32);
        let none = self.filled("no_rows", S32, &[1, 1], 0.0)?;
        Ok([("first_keys", first), ("end_keys", end)]
            .map(|(name, of_all)| self.joined(name, 0, [of_all, none.clone()])))
    }

    /// A number of rows as a scalar.
    fn number(&mut self, name: &str, number: i64) -> Result<LogicalTensor> {
        match number.abs() <= MAX_EXACT {
            true => self.constant(name, S32, number as f32),
            false => Err(value("packed_queries", number, "a sequence has at most 16777216 rows")),
        }
    }
}
