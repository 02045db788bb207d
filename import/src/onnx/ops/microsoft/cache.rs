//! Caches of keys and values, and the keys that a query may see of them.

use sterna::{Attr, AttrValue, DataType, OpKind, TensorId};

use super::rotary;
use crate::compose::is_integer;
use crate::constant::Constant;
use crate::error::Fault;
use crate::onnx::ops::attention::{InHeads, Scores, four};
use crate::onnx::ops::call::Call;
use crate::weights::{byte_count, integers};

use DataType as D;
use OpKind as K;

/// The number of keys that stand before those of a node.
#[derive(Debug, Clone, Copy)]
pub(super) enum Past {
    /// One for all sequences.
    Known(i64),
    /// One for each sequence {batch}, in s32.
    Each(TensorId),
}

/// The keys and values of a cache.
pub(super) struct Cached {
    pub(super) past: Past,
    /// The rows of the cache.
    buffer: i64,
    /// The rows of the cache behind the node, where each sequence has its own number of keys.
    room: i64,
    /// The rows that the node adds.
    rows: i64,
}

impl Cached {
    /// The cache of a node whose new keys and values have some dims {batch, rows, heads, depth}.
    pub(super) fn of(node: &mut Call<'_, '_>, k: [i64; 4], v: [i64; 4]) -> Result<Self, Fault> {
        let [batch, rows, ..] = k;
        let buffer = match (node.optional(3), node.optional(4)) {
            (None, None) => 0,
            (Some(_), Some(_)) => {
                let (of_k, of_v) = (four(node, 3)?, four(node, 4)?);
                for (input, dims, new) in [(3, of_k, k), (4, of_v, v)] {
                    if [dims[0], dims[1], dims[3]] != [new[0], new[2], new[3]] || dims[2] != of_k[2] {
                        return Err(
                            node.unfit(input, "the dims of the new keys and values but for their number")
                        );
                    }
                    node.one_type(0, input)?;
                }
                of_k[2]
            }
            _ => return Err(node.unfit(0, "past keys and past values together")),
        };
        let known = |node: &Call<'_, '_>, input: usize| {
            node.optional(input).and_then(|x| node.steps.builder.value(x)).and_then(integers)
        };
        let total = known(node, 6).filter(|total| total.len() == 1).map(|total| total[0]);
        // The first keys of a sequence stand at its start, however many of them are padding.
        if buffer == 0 || total == Some(rows) {
            return Ok(Self { past: Past::Known(0), buffer, room: buffer, rows });
        }
        let Some(lengths) = node.optional(5) else {
            return Err(Fault::Unsupported { needed: "an input `seqlens_k` beside a cache".into() });
        };
        let fits =
            |past: i64, total: i64| (0..=buffer).contains(&past) && (total <= buffer || past == buffer);
        if let Some(lengths) = known(node, 5) {
            let first = lengths.first().copied().unwrap_or(0);
            let is_one = lengths.len() as i64 == batch && lengths.iter().all(|length| *length == first);
            let end = first.saturating_add(1);
            let past = end.saturating_sub(rows);
            if is_one && fits(past, end) {
                return Ok(Self { past: Past::Known(past), buffer, room: buffer.max(end), rows });
            }
        }
        let lengths_of_all = known(node, 5);
        let longest =
            lengths_of_all.as_ref().and_then(|all| all.iter().max()).map(|last| last.saturating_add(1));
        let room = total.or(longest).unwrap_or(buffer).max(buffer);
        if let Some(lengths) = lengths_of_all
            && (lengths.len() as i64 != batch || !lengths.iter().all(|length| (0..room).contains(length)))
        {
            let needed =
                format!("for each of {batch} sequences the place of its last key, from 0 to {}", room - 1);
            return Err(node.bad_value(5, needed));
        }
        Self::open(node, lengths, (buffer, room), [batch, rows])
    }

    /// The cache of sequences each of which has its own number of keys.
    fn open(
        node: &mut Call<'_, '_>,
        lengths: TensorId,
        (buffer, room): (i64, i64),
        [batch, rows]: [i64; 2],
    ) -> Result<Self, Fault> {
        if !is_integer(node.data_type(5)) {
            return Err(node.bad_type(5, "s32"));
        }
        if node.known_dims(5, "known dims")?.iter().product::<i64>() != batch {
            return Err(node.unfit(5, format!("a number for each of {batch} sequences")));
        }
        if room.saturating_sub(buffer) > rows {
            return Err(node.bad_value(6, format!("a number up to {}", buffer.saturating_add(rows))));
        }
        let lengths = node.steps.cast(lengths, D::S32)?;
        let lengths = node.steps.in_shape(lengths, &[batch])?;
        let new = node.steps.number(D::S32, (1 - rows) as f64)?;
        let past = node.steps.both(K::Add, lengths, new)?;
        // Of a prompt, some of whose keys are padding, the first stands at the start.
        let nothing = node.steps.number(D::S32, 0.0)?;
        let past = node.steps.both(K::Maximum, past, nothing)?;
        Ok(Self { past: Past::Each(past), buffer, room, rows })
    }

    /// The positions of the rows of a batch, and the input from which they follow.
    pub(super) fn positions(
        &self,
        node: &mut Call<'_, '_>,
        needed: [i64; 2],
    ) -> Result<(usize, TensorId), Fault> {
        for input in [7, 8] {
            if node.optional(input).is_none() {
                return Err(Fault::Unsupported { needed: format!("an input `{}`", node.ports[input]) });
            }
            node.one_type(0, input)?;
        }
        let Some(given) = node.optional(9) else {
            let positions = match self.past {
                Past::Known(past) => {
                    let first = node.steps.number(D::S64, past as f64)?;
                    rotary::following(node, Some(first), needed[1])?
                }
                Past::Each(past) => self.places(node, past, needed[0])?,
            };
            return Ok((5, positions));
        };
        if node.known_dims(9, "known dims")? != needed {
            return Err(node.unfit(9, "a position for each row of the batch"));
        }
        if !matches!(self.past, Past::Known(0)) {
            return Ok((9, given));
        }
        // The first position of all says those of the first keys.
        let row = node.steps.part(given, 0, [0, 1])?;
        let first = node.steps.part(row, 1, [0, 1])?;
        Ok((9, rotary::following(node, Some(first), needed[1])?))
    }

    /// The places {batch, rows} of the new keys, in s64.
    fn places(&self, node: &mut Call<'_, '_>, past: TensorId, batch: i64) -> Result<TensorId, Fault> {
        let past = node.steps.cast(past, D::S64)?;
        let past = node.steps.in_shape(past, &[batch, 1])?;
        let each = rotary::following(node, None, self.rows)?;
        node.steps.both(K::Add, past, each)
    }

    /// Keys or values behind those of the cache at an input, and the cache that has them.
    pub(super) fn joined(
        &self,
        node: &mut Call<'_, '_>,
        input: usize,
        new: InHeads,
    ) -> Result<(InHeads, TensorId), Fault> {
        let Some(cache) = node.optional(input) else { return Ok((new, new.0)) };
        let past = match self.past {
            Past::Known(past) => past,
            Past::Each(past) => return self.put(node, cache, past, new),
        };
        let mut all = new;
        if past > 0 {
            let past_keys = node.steps.part(cache, 2, [0, past])?;
            all = behind(node, past_keys, new, past)?;
        }
        let total = all.1[2];
        if total >= self.buffer {
            return Ok((all, all.0));
        }
        let rest = node.steps.part(cache, 2, [total, self.buffer])?;
        Ok((all, node.steps.joined(vec![all.0, rest], 2)?))
    }

    /// The cache with new keys or values put behind those that each sequence has.
    fn put(
        &self,
        node: &mut Call<'_, '_>,
        mut cache: TensorId,
        past: TensorId,
        (new, [batch, heads, rows, depth]): InHeads,
    ) -> Result<(InHeads, TensorId), Fault> {
        let data_type = node.steps.builder.data_type(new);
        if self.room > self.buffer {
            let dims = [batch, heads, self.room - self.buffer, depth];
            let bytes = byte_count(data_type, &dims)?.unwrap_or(0);
            node.steps.builder.charge_folded(bytes)?;
            let zeros = Constant::new(data_type, &dims, vec![0; bytes])?;
            let zeros = node.steps.builder.constant(zeros)?;
            cache = node.steps.joined(vec![cache, zeros], 2)?;
        }
        // A row is found by the number of its sequence and head, and its place.
        let lines = batch.saturating_mul(heads);
        let bytes = usize::try_from(lines).unwrap_or(usize::MAX).saturating_mul(8);
        node.steps.builder.charge_folded(bytes)?;
        let numbers: Vec<i64> = (0..lines).collect();
        let numbers = node.steps.builder.constant(Constant::from_slice(&[lines, 1, 1], &numbers)?)?;
        let numbers = node.steps.enlarged(numbers, &[lines, rows, 1])?;
        let places = self.places(node, past, batch)?;
        let places = node.steps.in_shape(places, &[batch, 1, rows, 1])?;
        let places = node.steps.enlarged(places, &[batch, heads, rows, 1])?;
        let places = node.steps.in_shape(places, &[lines, rows, 1])?;
        let indices = node.steps.joined(vec![numbers, places], 2)?;
        let table = node.steps.in_shape(cache, &[lines, self.room, depth])?;
        let updates = node.steps.in_shape(new, &[lines, rows, depth])?;
        let attrs = [(Attr::Reduction, "none".into())];
        let all = node.steps.looked_up(K::ScatterND, &attrs, &[table, indices, updates])?;
        let dims = [batch, heads, self.room, depth];
        let all = node.steps.in_shape(all, &dims)?;
        Ok(((all, dims), all))
    }

    /// Scores with −∞ at the rows of the cache that have no key yet.
    pub(super) fn within(
        &self,
        node: &mut Call<'_, '_>,
        logits: TensorId,
        of: &Scores,
    ) -> Result<TensorId, Fault> {
        let Past::Each(past) = self.past else { return Ok(logits) };
        let past = node.steps.in_shape(past, &of.heads.of_queries([of.full[0], 1, 1, 1]))?;
        let rows = node.steps.number(D::S32, self.rows as f64)?;
        let end = node.steps.both(K::Add, past, rows)?;
        let key = index(node, logits, -1)?;
        let keeps = node.steps.predicate(K::Less, key, end)?;
        let nothing = node.steps.float(f32::NEG_INFINITY)?;
        node.steps.select(keeps, logits, nothing)
    }
}

/// Keys or values behind as many earlier ones as `past` says.
pub(super) fn behind(
    node: &mut Call<'_, '_>,
    before: TensorId,
    new: InHeads,
    past: i64,
) -> Result<InHeads, Fault> {
    let [batch, heads, rows, depth] = new.1;
    let all = node.steps.joined(vec![before, new.0], 2)?;
    Ok((all, [batch, heads, rows.saturating_add(past), depth]))
}

fn index(node: &mut Call<'_, '_>, of: TensorId, axis: i64) -> Result<TensorId, Fault> {
    let attrs: [(Attr, AttrValue); 1] = [(Attr::Axis, axis.into())];
    node.steps.emit(K::GenIndex, &attrs, &[of], D::S32)
}

/// Scores with −∞ at keys behind the query, the first of which stands behind so many keys, and at those that
/// are as many places before it as the window has.
pub(super) fn causal(
    node: &mut Call<'_, '_>,
    logits: TensorId,
    of: &Scores,
    past: Past,
    window: Option<i64>,
) -> Result<TensorId, Fault> {
    let (query, key) = (index(node, logits, -2)?, index(node, logits, -1)?);
    let past = match past {
        Past::Known(past) => node.steps.number(D::S32, past as f64)?,
        Past::Each(past) => node.steps.in_shape(past, &of.heads.of_queries([of.full[0], 1, 1, 1]))?,
    };
    let steps = &mut node.steps;
    let position = steps.both(K::Add, query, past)?;
    let mut keeps = steps.predicate(K::GreaterEqual, position, key)?;
    if let Some(window) = window {
        // Beyond all keys one window is as good as another.
        let window = steps.number(D::S32, (window - 1).min(1 << 24) as f64)?;
        let edge = steps.both(K::Subtract, position, window)?;
        let within = steps.predicate(K::LessEqual, edge, key)?;
        keeps = steps.both(K::LogicalAnd, keeps, within)?;
    }
    let nothing = steps.float(f32::NEG_INFINITY)?;
    steps.select(keeps, logits, nothing)
}
