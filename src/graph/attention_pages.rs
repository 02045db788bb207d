//! Keys and values of attention in the pages of a cache.

use super::attention_heads::Heads;
use super::logical_tensor::LogicalTensor;
use super::op_sequence::{OpSequence, from_end, value};
use crate::error::{AttentionFault, Result};
use crate::types::dtype::DataType;
use crate::types::kind::OpKind;

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
}
