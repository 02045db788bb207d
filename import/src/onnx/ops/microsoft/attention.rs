//! Attention of ONNX Runtime: the ops of masked attention, as `Graph::attention` writes them, which
//! partitions fuse.

use sterna::{Attr, AttrValue, DataType, OpKind, TensorId};

use super::rotary;
use crate::error::Fault;
use crate::onnx::ops::arithmetic::floats;
use crate::onnx::ops::attention::{InHeads, Scores, beside, capped, four, scores, softmax};
use crate::onnx::ops::call::Call;
use crate::onnx::ops::places::{RotaryPart, RotaryRows};
use crate::weights::integers;

use DataType as D;
use OpKind as K;

const APART: &str =
    "three dims; queries, keys and values in tensors of their own, with heads in the last dim";

/// `MultiHeadAttention`. What the padding leaves out gets a finite number less; what the direction leaves
/// out, nothing.
pub(super) fn multi_head(node: &mut Call<'_, '_>) -> Result<Vec<TensorId>, Fault> {
    let data_type = floats(node)?;
    without(node, &[8, 9], "no buffers that a run shares with another one")?;
    let heads = count(node, "num_heads")?;
    let [batch, rows, _] = three(node, 0)?;
    for input in [1, 2] {
        if node.optional(input).is_none() {
            return Err(Fault::Unsupported { needed: format!("an input `{}`: {APART}", node.ports[input]) });
        }
        node.one_type(0, input)?;
        if three(node, input)?[0] != batch {
            return Err(node.unfit(input, format!("{batch} samples, as many as there are of queries")));
        }
    }
    let [q, k, v] = with_bias(node)?;
    let q = in_heads(node, 0, q, "num_heads", heads)?;
    let (mut k, mut v) =
        (in_heads(node, 1, k, "num_heads", heads)?, in_heads(node, 2, v, "num_heads", heads)?);
    let past = match (node.optional(6), node.optional(7)) {
        (Some(past_k), Some(past_v)) => {
            let (of_k, of_v) = (four(node, 6)?, four(node, 7)?);
            for (input, dims, new) in [(6, of_k, k.1), (7, of_v, v.1)] {
                if [dims[0], dims[1], dims[3]] != [new[0], new[1], new[3]] || dims[2] != of_k[2] {
                    return Err(node.unfit(input, "the dims of the new keys and values but for their number"));
                }
            }
            k = behind(node, past_k, k, of_k[2])?;
            v = behind(node, past_v, v, of_k[2])?;
            of_k[2]
        }
        (None, None) => 0,
        _ => return Err(node.unfit(0, "past keys and past values together")),
    };
    let scale = scale(node);
    let of = scores(node, q, k, v, scale)?;
    let keys = of.full[3];
    let mut logits = of.scaled;
    if node.optional(4).is_some() {
        let padding = padding(node, [batch, rows, keys])?;
        logits = node.steps.both(K::Add, logits, padding)?;
    }
    logits = biased(node, 5, logits, &of)?;
    if node.flag("unidirectional", false) {
        if keys - past != rows {
            return Err(Fault::of_attribute("unidirectional", "0, or as many new keys as queries"));
        }
        logits = causal(node, logits, past, None)?;
    }
    finished(node, &of, logits, [k.0, v.0], data_type)
}

/// `GroupQueryAttention`: heads of queries in groups that share a head of keys, behind those of a cache.
pub(super) fn grouped(node: &mut Call<'_, '_>) -> Result<Vec<TensorId>, Fault> {
    let data_type = floats(node)?;
    check_grouped(node)?;
    let (heads, of_keys) = (count(node, "num_heads")?, count(node, "kv_num_heads")?);
    let [q, k, v] = apart(node, heads, of_keys)?;
    let rows = k.1[1];
    if [q.1[0], q.1[1]] != [k.1[0], rows] || [k.1[0], rows] != [v.1[0], v.1[1]] {
        return Err(node.unfit(0, "as many rows as keys and values have"));
    }
    let cache = Cached::of(node, k.1, v.1)?;
    let (q, k) = match node.flag("do_rotary", false) {
        false => (q, k),
        true => {
            let positions = cache.positions(node, [q.1[0], rows])?;
            let depth = node.known_dims(7, "known dims")?.get(1).map_or(0, |half| half.saturating_mul(2));
            if depth > q.1[3] {
                return Err(node.unfit(7, "rows of at most half of a head"));
            }
            let part = RotaryPart { length: depth, is_interleaved: node.flag("rotary_interleaved", false) };
            let mut turned = [q, k];
            for (x, dims) in &mut turned {
                let layout = RotaryRows { dims: *dims, has_heads_first: false };
                *x = rotary::rotated(node, *x, layout, part, [7, 8], positions, data_type)?;
            }
            (turned[0], turned[1])
        }
    };
    let [q, k, v] = [q, k, v].map(|(x, [batch, rows, heads, depth])| -> Result<InHeads, Fault> {
        Ok((node.steps.transposed(x, &[0, 2, 1, 3])?, [batch, heads, rows, depth]))
    });
    let (k, present_k) = cache.joined(node, 3, k?)?;
    let (v, present_v) = cache.joined(node, 4, v?)?;
    let scale = scale(node);
    let of = scores(node, q?, k, v, scale)?;
    let mut logits = capped(node, of.scaled)?;
    logits = biased(node, 10, logits, &of)?;
    let window = match node.int("local_window_size", -1) {
        -1 => None,
        window if window > 0 => Some(window),
        _ => return Err(Fault::of_attribute("local_window_size", "−1, or a number from 1 on")),
    };
    match (node.flag("causal", true), window) {
        (true, _) => logits = causal(node, logits, cache.past, window)?,
        (false, None) => {}
        (false, Some(_)) => return Err(Fault::of_attribute("local_window_size", "−1 where `causal` is 0")),
    }
    finished(node, &of, logits, [present_k, present_v], data_type)
}

/// Refuses what is not mapped of grouped attention.
fn check_grouped(node: &Call<'_, '_>) -> Result<(), Fault> {
    without(node, &[11], "no number beside the scores of each head")?;
    without(node, &[12, 13], "caches of the type of the queries")?;
    without(node, &[14, 15], "norms of queries and keys in nodes of their own")?;
    without(node, &[16], "queries without padding")?;
    for name in ["kv_cache_bit_width", "qk_output", "sliding_window_cache"] {
        if node.flag(name, false) {
            return Err(Fault::of_attribute(name, "0"));
        }
    }
    if node.int("smooth_softmax", 0) == 1 {
        return Err(Fault::of_attribute("smooth_softmax", "0"));
    }
    for name in ["k_quant_type", "v_quant_type"] {
        node.word(name, &[("NONE", ())], ())?;
    }
    if !matches!(node.int("causal", 1), 0 | 1) {
        return Err(Fault::of_attribute("causal", "0, 1"));
    }
    Ok(())
}

/// Queries, keys and values as {batch, rows, heads, depth}, out of their tensors or of one for all.
fn apart(node: &mut Call<'_, '_>, heads: i64, of_keys: i64) -> Result<[InHeads; 3], Fault> {
    let [batch, rows, width] = three(node, 0)?;
    match (node.optional(1), node.optional(2)) {
        (Some(k), Some(v)) => {
            node.one_type(0, 1)?;
            node.one_type(0, 2)?;
            let mut parts = [(node.input(0), [0; 4]), (k, [0; 4]), (v, [0; 4])];
            for (input, (x, dims)) in parts.iter_mut().enumerate() {
                let [batch, rows, width] = three(node, input)?;
                let (attribute, heads) =
                    if input == 0 { ("num_heads", heads) } else { ("kv_num_heads", of_keys) };
                *dims = [batch, rows, heads, divided(attribute, width, heads)?];
                *x = node.steps.in_shape(*x, dims)?;
            }
            Ok(parts)
        }
        (None, None) => {
            let all = of_keys.checked_mul(2).and_then(|both| both.checked_add(heads)).unwrap_or(i64::MAX);
            let depth = divided("num_heads", width, all)?;
            let whole = node.steps.in_shape(node.input(0), &[batch, rows, all, depth])?;
            let mut from = 0;
            let mut parts = [(whole, [0; 4]); 3];
            for ((x, dims), heads) in parts.iter_mut().zip([heads, of_keys, of_keys]) {
                *dims = [batch, rows, heads, depth];
                *x = node.steps.part(whole, 2, [from, from + heads])?;
                from += heads;
            }
            Ok(parts)
        }
        _ => Err(node.unfit(0, "keys and values together, or both within the queries")),
    }
}

/// The keys and values of a cache.
struct Cached {
    /// How many there are before those of the node.
    past: i64,
    /// The rows of the cache.
    buffer: i64,
}

impl Cached {
    fn of(node: &Call<'_, '_>, k: [i64; 4], v: [i64; 4]) -> Result<Self, Fault> {
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
        let known =
            |input: usize| node.optional(input).and_then(|x| node.steps.builder.value(x)).and_then(integers);
        // The first keys of a sequence stand at its start, however many of them are padding.
        if buffer == 0 || known(6).is_some_and(|total| total == [rows]) {
            return Ok(Self { past: 0, buffer });
        }
        let needed = "a constant: the lengths say where in the cache the new keys go";
        let lengths = match (node.optional(5), known(5)) {
            (Some(_), Some(lengths)) => lengths,
            (Some(_), None) => return Err(Fault::NotConstant { port: node.port(5), needed: needed.into() }),
            (None, _) => {
                return Err(Fault::Unsupported { needed: "an input `seqlens_k` beside a cache".into() });
            }
        };
        let first = lengths.first().copied().unwrap_or(0);
        let total = first.saturating_add(1);
        let past = total.saturating_sub(rows);
        let is_one = lengths.len() as i64 == batch && lengths.iter().all(|length| *length == first);
        let fits = (0..=buffer).contains(&past) && (total <= buffer || past == buffer);
        match is_one && fits {
            true => Ok(Self { past, buffer }),
            false => Err(node
                .bad_value(5, "one length for all, within the cache or of the whole cache and the new keys")),
        }
    }

    /// The positions of the rows of a batch, and the input from which they follow.
    fn positions(&self, node: &mut Call<'_, '_>, needed: [i64; 2]) -> Result<(usize, TensorId), Fault> {
        for input in [7, 8] {
            if node.optional(input).is_none() {
                return Err(Fault::Unsupported { needed: format!("an input `{}`", node.ports[input]) });
            }
            node.one_type(0, input)?;
        }
        let Some(given) = node.optional(9) else {
            let first = node.steps.number(D::S64, self.past as f64)?;
            return Ok((5, rotary::following(node, Some(first), needed[1])?));
        };
        if node.known_dims(9, "known dims")? != needed {
            return Err(node.unfit(9, "a position for each row of the batch"));
        }
        if self.past > 0 {
            return Ok((9, given));
        }
        // The first position of all says those of the first keys.
        let row = node.steps.part(given, 0, [0, 1])?;
        let first = node.steps.part(row, 1, [0, 1])?;
        Ok((9, rotary::following(node, Some(first), needed[1])?))
    }

    /// Keys or values behind those of the cache at an input, and the cache that has them.
    fn joined(
        &self,
        node: &mut Call<'_, '_>,
        input: usize,
        new: InHeads,
    ) -> Result<(InHeads, TensorId), Fault> {
        let Some(cache) = node.optional(input) else { return Ok((new, new.0)) };
        let mut all = new;
        if self.past > 0 {
            let past = node.steps.part(cache, 2, [0, self.past])?;
            all = behind(node, past, new, self.past)?;
        }
        let total = all.1[2];
        if total >= self.buffer {
            return Ok((all, all.0));
        }
        let rest = node.steps.part(cache, 2, [total, self.buffer])?;
        Ok((all, node.steps.joined(vec![all.0, rest], 2)?))
    }
}

/// Keys or values behind as many earlier ones as `past` says.
fn behind(node: &mut Call<'_, '_>, before: TensorId, new: InHeads, past: i64) -> Result<InHeads, Fault> {
    let [batch, heads, rows, depth] = new.1;
    let all = node.steps.joined(vec![before, new.0], 2)?;
    Ok((all, [batch, heads, rows.saturating_add(past), depth]))
}

/// Queries, keys and values with their parts of a bias.
fn with_bias(node: &mut Call<'_, '_>) -> Result<[TensorId; 3], Fault> {
    let mut parts = [node.input(0), node.input(1), node.input(2)];
    let Some(bias) = node.optional(3) else { return Ok(parts) };
    node.one_type(0, 3)?;
    let widths = [three(node, 0)?[2], three(node, 1)?[2], three(node, 2)?[2]];
    if node.known_dims(3, "known dims")?
        != [widths.iter().fold(0, |sum: i64, width| sum.saturating_add(*width))]
    {
        return Err(node.unfit(3, "a number for each column of queries, keys and values"));
    }
    let (mut from, data_type) = (0, node.data_type(0));
    for (x, width) in parts.iter_mut().zip(widths) {
        let own = node.steps.part(bias, 0, [from, from + width])?;
        *x = node.steps.emit(K::Add, &[], &[*x, own], data_type)?;
        from += width;
    }
    Ok(parts)
}

/// The addends of scores {batch, heads, rows, keys} by the padding: 0, or the number of a key that is left
/// out.
fn padding(node: &mut Call<'_, '_>, [batch, rows, keys]: [i64; 3]) -> Result<TensorId, Fault> {
    if node.data_type(4) != D::S32 {
        return Err(node.bad_type(4, "s32"));
    }
    let (mask, dims) = (node.input(4), node.known_dims(4, "known dims")?);
    let zero = node.steps.number(D::S32, 0.0)?;
    let keeps = if dims == [batch] {
        let places = rotary::following(node, None, keys)?;
        let places = node.steps.cast(places, D::S32)?;
        let places = node.steps.in_shape(places, &[1, 1, 1, keys])?;
        let lengths = node.steps.in_shape(mask, &[batch, 1, 1, 1])?;
        node.steps.predicate(K::Less, places, lengths)?
    } else {
        let laid_out = match *dims {
            [of_batch, of_keys] if [of_batch, of_keys] == [batch, keys] => [batch, 1, 1, keys],
            [of_batch, of_rows, of_keys] if [of_batch, of_rows, of_keys] == [batch, rows, keys] => {
                [batch, 1, rows, keys]
            }
            _ => {
                return Err(
                    node.unfit(4, "a length for each sample, or a number for each key, and each query")
                );
            }
        };
        let mask = node.steps.in_shape(mask, &laid_out)?;
        node.steps.predicate(K::Greater, mask, zero)?
    };
    let nothing = node.steps.float(0.0)?;
    let left_out = node.steps.float(node.float("mask_filter_value", -10000.0))?;
    node.steps.select(keeps, nothing, left_out)
}

/// Scores with what an input adds to them.
fn biased(node: &mut Call<'_, '_>, input: usize, logits: TensorId, of: &Scores) -> Result<TensorId, Fault> {
    let Some(bias) = node.optional(input) else { return Ok(logits) };
    node.one_type(0, input)?;
    let own = four(node, input)?;
    if own[2..] != of.full[2..] {
        return Err(
            node.unfit(input, "a number for each query and key, for all samples and heads or for each")
        );
    }
    let bias = beside(node, input, bias, of.heads, of.full)?;
    node.steps.both(K::Add, logits, bias)
}

/// Scores with −∞ at keys behind the query, the first of which stands behind `past` keys, and at those that
/// are so many places before it as the window has.
fn causal(
    node: &mut Call<'_, '_>,
    logits: TensorId,
    past: i64,
    window: Option<i64>,
) -> Result<TensorId, Fault> {
    let steps = &mut node.steps;
    let mut index = |axis: i64| {
        let attrs: [(Attr, AttrValue); 1] = [(Attr::Axis, axis.into())];
        steps.emit(K::GenIndex, &attrs, &[logits], D::S32)
    };
    let (query, key) = (index(-2)?, index(-1)?);
    let past = steps.number(D::S32, past as f64)?;
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

/// The result of scores as {batch, rows, all heads}, and keys and values, as far as they are outputs.
fn finished(
    node: &mut Call<'_, '_>,
    of: &Scores,
    logits: TensorId,
    [k, v]: [TensorId; 2],
    data_type: DataType,
) -> Result<Vec<TensorId>, Fault> {
    let shares = softmax(node, logits, D::F32, data_type)?;
    let result = of.result(node, shares)?;
    let together = node.steps.transposed(result, &[0, 2, 1, 3])?;
    let [batch, heads, rows, _] = of.full;
    let result = node.steps.in_shape(together, &[batch, rows, heads.saturating_mul(of.columns)])?;
    let mut outputs = vec![node.steps.cast(result, data_type)?, k, v];
    outputs.truncate(node.outputs.max(1));
    Ok(outputs)
}

/// The attribute `scale`, whose 0 stands for none.
fn scale(node: &Call<'_, '_>) -> Option<f32> {
    Some(node.float("scale", 0.0)).filter(|scale| *scale != 0.0)
}

/// A number of heads.
fn count(node: &Call<'_, '_>, attribute: &'static str) -> Result<i64, Fault> {
    let count = node.attribute(attribute).ok_or(Fault::MissingAttribute { attribute })?.int;
    match count {
        1..=0x7fff_ffff => Ok(count),
        _ => Err(Fault::of_attribute(attribute, "a number from 1 on")),
    }
}

/// The part of a width that each head has.
fn divided(attribute: &str, width: i64, heads: i64) -> Result<i64, Fault> {
    match width % heads {
        0 => Ok(width / heads),
        _ => Err(Fault::of_attribute(attribute, format!("heads that divide {width}"))),
    }
}

/// A tensor {batch, rows, all heads} as {batch, heads, rows, depth}.
fn in_heads(
    node: &mut Call<'_, '_>,
    input: usize,
    x: TensorId,
    attribute: &str,
    heads: i64,
) -> Result<InHeads, Fault> {
    let [batch, rows, width] = three(node, input)?;
    let depth = divided(attribute, width, heads)?;
    let split = node.steps.in_shape(x, &[batch, rows, heads, depth])?;
    Ok((node.steps.transposed(split, &[0, 2, 1, 3])?, [batch, heads, rows, depth]))
}

/// The dims of an input of rank 3.
fn three(node: &Call<'_, '_>, input: usize) -> Result<[i64; 3], Fault> {
    let dims = node.known_dims(input, "known dims")?;
    dims.try_into().map_err(|_| node.unfit(input, APART))
}

/// Refuses inputs.
fn without(node: &Call<'_, '_>, inputs: &[usize], needed: &str) -> Result<(), Fault> {
    match inputs.iter().find(|input| node.optional(**input).is_some()) {
        Some(&input) => Err(node.unfit(input, needed)),
        None => Ok(()),
    }
}
