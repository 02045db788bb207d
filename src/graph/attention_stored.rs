//! Keys and values of attention that are integers of 8 or 4 bits.

use super::attention_pages::PagedSequences;
use super::logical_tensor::LogicalTensor;
use super::op_sequence::{OpSequence, from_end, unknown};
use crate::error::{AttentionFault, Result};
use crate::types::dtype::DataType;
use crate::types::kind::{Attr, OpKind};

/// The types of keys and values with scales.
const STORED: [DataType; 4] = [DataType::S8, DataType::U8, DataType::S4, DataType::U4];

/// Those of zero points.
const ZERO_POINTS: [DataType; 5] = [DataType::S8, DataType::U8, DataType::S4, DataType::U4, DataType::S32];

/// The options that give scales.
pub(super) const OF_KEYS: &str = "quantized_keys";
pub(super) const OF_VALUES: &str = "quantized_values";

/// How keys or values become numbers: each is its integer less the zero point, times the scale.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TokenScales {
    pub(super) scales: LogicalTensor,
    pub(super) zero_points: Option<LogicalTensor>,
}

impl TokenScales {
    /// The tensors of the caller.
    pub(super) fn tensors(&self) -> impl Iterator<Item = &LogicalTensor> {
        [&self.scales].into_iter().chain(&self.zero_points)
    }
}

/// Keys or values, which have scales if they are integers.
#[derive(Clone, Copy)]
pub(super) struct StoredTokens<'a> {
    /// The option that gives the scales.
    pub(super) option: &'static str,
    pub(super) tokens: &'a LogicalTensor,
    pub(super) scales: Option<&'a TokenScales>,
}

impl StoredTokens<'_> {
    /// Refuses types and shapes of which no numbers can be made, or none of the type of the queries.
    pub(super) fn check(&self, of_queries: DataType, rule: &'static str) -> Result<()> {
        let Self { option, tokens, scales } = *self;
        let of_type = |option, tensor: &LogicalTensor, allowed: &[DataType], rule| {
            let (given, tensor) = (tensor.data_type(), tensor.id());
            match allowed.contains(&given) {
                true => Ok(()),
                false => Err(AttentionFault::Type { option, tensor, given, rule }),
            }
        };
        let Some(TokenScales { scales, zero_points }) = scales else {
            let name = if option == OF_KEYS { "k" } else { "v" };
            return Ok(of_type(name, tokens, &[of_queries], rule)?);
        };
        of_type(option, tokens, &STORED, "keys or values with scales are s8, u8, s4 or u4")?;
        of_type(option, scales, &[DataType::F32, of_queries], "scales are f32 or of the type of `q`")?;
        if let Some(zeros) = zero_points {
            of_type(option, zeros, &ZERO_POINTS, "zero points are s8, u8, s4, u4 or s32")?;
        }
        shared(option, tokens, scales).map(|_| ())
    }
}

/// For each dim the neighbours that share a scale.
fn shared(option: &'static str, tokens: &LogicalTensor, scales: &LogicalTensor) -> Result<Vec<i64>> {
    let known = |what, of: &LogicalTensor| unknown(option, what, of);
    let rank = tokens.rank().ok_or_else(|| known("the rank", tokens))?;
    let elements = from_end(tokens, 1).ok_or_else(|| known("the elements of a row", tokens))?;
    let groups = from_end(scales, 1).ok_or_else(|| known("the groups of a row", scales))?;
    let is_divided = groups > 0 && elements > 0 && elements % groups == 0;
    if !is_divided || scales.rank() != Some(rank) {
        let (tensor, given) = (scales.id(), scales.partial_dims().unwrap_or_default());
        let rule =
            "scales have the dims of what they scale, and a divisor of its elements in place of the last";
        return Err(AttentionFault::Shape { option, tensor, given, rule }.into());
    }
    let mut shared = vec![1; rank];
    shared[rank - 1] = elements / groups;
    Ok(shared)
}

impl OpSequence {
    /// Keys or values in a type, given those that are stored or were loaded from pages, and their scales.
    pub(super) fn dequantized(
        &mut self,
        StoredTokens { option, tokens, scales }: StoredTokens<'_>,
        paged: Option<&PagedSequences>,
        of_queries: DataType,
    ) -> Result<LogicalTensor> {
        let loaded = |sequence: &mut Self, name: &str, of: &LogicalTensor| match paged {
            Some(paged) => sequence.loaded(paged, name, of),
            None => Ok(of.clone()),
        };
        let name = if option == OF_KEYS { "keys_of_pages" } else { "values_of_pages" };
        let numbers = loaded(self, name, tokens)?;
        let Some(TokenScales { scales, zero_points }) = scales else { return Ok(numbers) };
        let shared = shared(option, tokens, scales)?;
        let dims = numbers.partial_dims().unwrap_or_default();
        let mut inputs = vec![numbers, loaded(self, "scales_of_pages", scales)?];
        if let Some(zero_points) = zero_points {
            inputs.push(loaded(self, "zero_points_of_pages", zero_points)?);
        }
        let t = scales.data_type();
        let numbers = LogicalTensor::partial(self.next(t).id(), t, &dims)?;
        let op = self.op(OpKind::DynamicDequantize, option).attr(Attr::Qtype, "per_group");
        let op = op.attr(Attr::GroupShape, shared).inputs_from(inputs);
        self.ops.push(op.output(numbers.clone()));
        if t == of_queries {
            return Ok(numbers);
        }
        let typed = LogicalTensor::partial(self.next(of_queries).id(), of_queries, &dims)?;
        let cast = self.op(OpKind::TypeCast, option);
        self.ops.push(cast.input(numbers).output(typed.clone()));
        Ok(typed)
    }
}
