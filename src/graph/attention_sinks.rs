//! Scores without a key, as a column that ops put behind the scores and take off the weights.

use super::attention_heads::Heads;
use super::logical_tensor::LogicalTensor;
use super::op_sequence::{OpSequence, from_end, value};
use crate::error::{AttentionFault, Result};
use crate::types::dtype::DataType;
use crate::types::kind::{Attr, OpKind};

/// Refuses sinks that no column can be made of.
pub(super) fn check_sinks(sinks: &LogicalTensor, q: &LogicalTensor) -> Result<()> {
    let given = sinks.data_type();
    if ![DataType::F32, DataType::Bf16, DataType::F16].contains(&given) {
        let (option, tensor, rule) = ("sinks", sinks.id(), "sinks are f32, bf16 or f16");
        return Err(AttentionFault::Type { option, tensor, given, rule }.into());
    }
    if from_end(sinks, 1).is_some_and(|dim| dim != 1) {
        let (tensor, given) = (sinks.id(), sinks.partial_dims().unwrap_or_default());
        let rule = "the last dim of sinks, which lies along the keys, is 1";
        return Err(AttentionFault::Shape { option: "sinks", tensor, given, rule }.into());
    }
    match from_end(q, 1) {
        Some(0) => Err(value("sinks", sinks.id(), "queries have elements")),
        _ => Ok(()),
    }
}

impl OpSequence {
    /// The scores with the sinks as their last column. `q` are the queries, whose rows are those of the
    /// scores.
    pub(super) fn with_sinks(
        &mut self,
        sinks: &LogicalTensor,
        heads: Option<Heads>,
        q: LogicalTensor,
        scores: LogicalTensor,
    ) -> Result<LogicalTensor> {
        let t = scores.data_type();
        let sinks = self.mask_of_heads(sinks, "sinks", heads)?;
        let sinks = self.in_type("typed_sinks", sinks, t);
        // Any column of one number for each query gives the sinks their dims.
        let column = self.part("column", q, -1, [0, 1]);
        let column = self.in_type("typed_column", column, t);
        let always = self.constant("always", DataType::Boolean, 1.0)?;
        let column = self.select("sinks", always, sinks, column, t);
        let both = self.next(t);
        let concat = self.op(OpKind::Concat, "scores_and_sinks").attr(Attr::Axis, -1i64);
        self.ops.push(concat.inputs_from([scores, column]).output(both.clone()));
        Ok(both)
    }

    /// The weights of keys, of weights whose last column is that of sinks.
    pub(super) fn without_sinks(&mut self, weights: LogicalTensor) -> LogicalTensor {
        self.part("weights_of_keys", weights, -1, [0, -1])
    }

    fn in_type(&mut self, name: &str, from: LogicalTensor, t: DataType) -> LogicalTensor {
        if from.data_type() == t {
            return from;
        }
        let to = self.next(t);
        let cast = self.op(OpKind::TypeCast, name);
        self.ops.push(cast.input(from).output(to.clone()));
        to
    }
}
