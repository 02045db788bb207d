//! Heads that share keys, in tensors of rank 4: reshapes make of the dim of heads two dims, and one again.

use super::logical_tensor::LogicalTensor;
use super::op_sequence::{OpSequence, from_end, unknown, value};
use crate::error::{AttentionFault, Result};
use crate::types::kind::{Attr, OpKind};
use crate::types::shape::{self, UNKNOWN_DIM};

/// The heads of tensors of rank 4, which need reshapes to share heads of keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heads {
    pub(super) of_queries: i64,
    pub(super) of_keys: i64,
    pub(super) groups: i64,
}

/// The dims of a tensor whose heads are, or become, one dim or two; `None` for what is unknown.
pub(super) struct HeadDims {
    /// The dim in front of the heads, if there is one.
    pub(super) front: Option<Option<i64>>,
    pub(super) heads: Vec<i64>,
    pub(super) last: [Option<i64>; 2],
    pub(super) open: Open,
}

/// The one of the last two dims that may change from one compilation to the next.
#[derive(Clone, Copy)]
pub(super) enum Open {
    Rows,
    Columns,
}

/// The first dim of a result of queries, keys and values of rank 4.
pub(super) fn batch(tensors: [&LogicalTensor; 3]) -> Option<i64> {
    let [q, k, v] = tensors.map(|tensor| from_end(tensor, 4));
    [q?, k?, v?].into_iter().find(|&dim| dim != 1).or(Some(1))
}

impl Heads {
    /// `None` if nothing is reshaped.
    pub(super) fn of(groups: Option<i64>, [q, k, v]: [&LogicalTensor; 3]) -> Result<Option<Self>> {
        let Some(groups) = groups else { return Ok(None) };
        if groups < 1 {
            return Err(value("groups", groups, "it is at least 1"));
        }
        let rank = q.rank().ok_or_else(|| unknown("groups", "the rank of `q`", q))?;
        if let Some(other) = [k, v].into_iter().find(|other| other.rank() != Some(rank)) {
            let rule = "`q`, `k` and `v` have one known rank";
            let given = other.partial_dims().unwrap_or_default();
            return Err(AttentionFault::Shape { option: "groups", tensor: other.id(), given, rule }.into());
        }
        let wrong = |tensor: &LogicalTensor, rule| {
            let given = tensor.partial_dims().unwrap_or_default();
            Err(AttentionFault::Shape { option: "groups", tensor: tensor.id(), given, rule }.into())
        };
        if rank == 5 {
            if from_end(q, 3).is_some_and(|dim| dim != groups) {
                return wrong(q, "dim 2 of a `q` of rank 5 is the number of groups");
            }
            return match [k, v].into_iter().find(|shared| from_end(shared, 3).is_some_and(|dim| dim != 1)) {
                Some(shared) => wrong(shared, "dim 2 of a `k` or `v` of rank 5 is 1"),
                None => Ok(None),
            };
        }
        if rank != 4 {
            return wrong(q, "heads that share keys are a dim of tensors of rank 4 or 5");
        }
        if groups == 1 {
            return Ok(None);
        }
        let of_queries = from_end(q, 3).ok_or_else(|| unknown("groups", "the number of heads", q))?;
        if of_queries % groups != 0 {
            return Err(AttentionFault::Groups { groups, heads: of_queries }.into());
        }
        let of_keys = of_queries / groups;
        for shared in [k, v] {
            if from_end(shared, 3).is_some_and(|heads| heads != of_keys) {
                return wrong(shared, "it has one head for each group of heads of `q`");
            }
        }
        Ok(Some(Self { of_queries, of_keys, groups }))
    }
}

impl OpSequence {
    /// A mask, a bias or an offset, which broadcasts to scores of rank 5 if heads are grouped.
    pub(super) fn mask_of_heads(
        &mut self,
        mask: &LogicalTensor,
        option: &'static str,
        heads: Option<Heads>,
    ) -> Result<LogicalTensor> {
        let Some(Heads { of_queries, of_keys, groups }) = heads else { return Ok(mask.clone()) };
        let dims = mask.raw_dims().ok_or_else(|| unknown(option, "its rank, for the groups", mask))?;
        let (batch, heads, last) = match *dims {
            [] | [_] | [_, _] | [1, _, _] | [1, 1, _, _] => return Ok(mask.clone()),
            [heads, queries, keys] => (None, heads, [queries, keys]),
            [batch, heads, queries, keys] => (Some(batch), heads, [queries, keys]),
            _ => {
                let (tensor, given) = (mask.id(), mask.partial_dims().unwrap_or_default());
                let rule = "a mask of tensors of rank 4 has at most rank 4";
                return Err(AttentionFault::Shape { option, tensor, given, rule }.into());
            }
        };
        let heads = match heads {
            1 => [1, 1],
            UNKNOWN_DIM => return Err(unknown(option, "its number of heads, for the groups", mask)),
            heads if heads == of_queries => [of_keys, groups],
            _ => {
                let (tensor, given) = (mask.id(), mask.partial_dims().unwrap_or_default());
                let rule = "a mask has one head, or as many as `q`";
                return Err(AttentionFault::Shape { option, tensor, given, rule }.into());
            }
        };
        let open = match last {
            [UNKNOWN_DIM, UNKNOWN_DIM] => {
                return Err(unknown(option, "one of its last two dims, for the groups", mask));
            }
            // One row is the form of padding, whose length is what changes from one compilation to the next.
            [1, _] | [_, UNKNOWN_DIM] => Open::Columns,
            _ => Open::Rows,
        };
        let regrouped = self.next(mask.data_type());
        let dims = HeadDims {
            front: batch.map(shape::known),
            heads: heads.to_vec(),
            last: last.map(shape::known),
            open,
        };
        self.reshape(option, mask.clone(), dims, regrouped.clone())?;
        Ok(regrouped)
    }

    /// A tensor of rank 4 with its heads as two dims.
    pub(super) fn regrouped(
        &mut self,
        tensor: &LogicalTensor,
        name: &str,
        heads: [i64; 2],
    ) -> Result<LogicalTensor> {
        // One of the last two dims must be known; the last but one is the one that changes, but in a K^T.
        let last = [from_end(tensor, 2), from_end(tensor, 1)];
        let open = match last {
            [_, Some(_)] => Open::Rows,
            [Some(_), None] => Open::Columns,
            [None, None] => return Err(unknown("groups", "one of the last two dims", tensor)),
        };
        let regrouped = self.next(tensor.data_type());
        let dims = HeadDims { front: Some(from_end(tensor, 4)), heads: heads.to_vec(), last, open };
        self.reshape(name, tensor.clone(), dims, regrouped.clone())?;
        Ok(regrouped)
    }

    /// Gives a tensor other dims of heads. The dim in front and one of the last two are those of the tensor
    /// that is compiled, unless another dim is 0: beside that, nothing says how large an open dim is.
    pub(super) fn reshape(
        &mut self,
        name: &str,
        from: LogicalTensor,
        HeadDims { front, heads, last, open }: HeadDims,
        to: LogicalTensor,
    ) -> Result<()> {
        let is_open = |at: usize| at == open as usize;
        let is_empty = heads.contains(&0) || (0..2).any(|at| last[at] == Some(0) && !is_open(at));
        let shape: Vec<i64> = if is_empty {
            let heads = heads.into_iter().map(Some);
            let shape: Option<Vec<i64>> = front.into_iter().chain(heads).chain(last).collect();
            shape.ok_or_else(|| unknown("groups", "every dim, as one is 0", &from))?
        } else {
            let last = [0, 1].map(|at| if is_open(at) { -1 } else { last[at].unwrap_or(UNKNOWN_DIM) });
            front.map(|_| 0).into_iter().chain(heads).chain(last).collect()
        };
        let op = self.op(OpKind::StaticReshape, name).attr(Attr::Shape, shape);
        self.ops.push(op.attr(Attr::SpecialZero, !is_empty).input(from).output(to));
        Ok(())
    }
}
