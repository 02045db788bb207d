//! Attention of ONNX Runtime: the ops of masked attention, as `Graph::attention` writes them, which
//! partitions fuse.

use sterna::{DataType, OpKind, TensorId};

use super::cache::{Cached, Past, behind, causal};
use super::{integers, rotary};
use crate::error::Fault;
use crate::onnx::ops::arithmetic::floats;
use crate::onnx::ops::attention::{InHeads, Scores, beside, capped, four, scores, softmax};
use crate::onnx::ops::call::Call;
use crate::onnx::ops::places::{RotaryPart, RotaryRows, check_whole};

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
    let [batch, ..] = three(node, 0)?;
    for input in [1, 2] {
        if node.optional(input).is_none() {
            return Err(Fault::Unsupported { needed: format!("an input `{}`: {APART}", node.ports[input]) });
        }
        node.one_type(0, input)?;
        if node.known_dims(input, "known dims")?.first() != Some(&batch) {
            return Err(node.unfit(input, format!("{batch} samples, as many as there are of queries")));
        }
    }
    let [q, k, v] = with_bias(node)?;
    let q = in_heads(node, 0, q, "num_heads", heads)?;
    let [mut k, mut v] = [keys_in_heads(node, 1, k, heads)?, keys_in_heads(node, 2, v, heads)?];
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
    let mut outputs = attended(node, [q, k, v], past, (4, Some(5)), data_type)?;
    outputs.truncate(node.outputs.max(1));
    Ok(outputs)
}

/// `Attention`: of one tensor that a product makes to queries, keys and values.
pub(super) fn packed(node: &mut Call<'_, '_>) -> Result<Vec<TensorId>, Fault> {
    let data_type = floats(node)?;
    node.one_type(0, 1)?;
    without(node, &[6], "no buffer that a run shares with another one")?;
    check_weights(node)?;
    let mut operands = vec![node.input(0), node.input(1)];
    operands.extend(node.optional(2));
    let all = node.steps.emit(K::MatMul, &[], &operands, data_type)?;
    in_one(node, all, [3, 4], Some(5), data_type)
}

/// `QAttention`: the same with data and weights in 8 bits.
pub(super) fn quantized(node: &mut Call<'_, '_>) -> Result<Vec<TensorId>, Fault> {
    check_whole(node, 0, 6)?;
    check_whole(node, 1, 7)?;
    check_weights(node)?;
    let (x, zero) = (node.input(0), node.optional(6));
    let scale = integers::scale(node, 3, None)?;
    let all = integers::product(node, (x, scale), zero, [1, 4, 7, 2])?;
    in_one(node, all, [5, 8], None, D::F32)
}

/// Refuses data and weights that make no rows of queries, keys and values.
fn check_weights(node: &Call<'_, '_>) -> Result<(), Fault> {
    let [_, _, depth] = three(node, 0)?;
    match *node.known_dims(1, "known dims")? {
        [rows, _] if rows == depth => Ok(()),
        _ => Err(node.unfit(1, format!("two dims, a row for each of {depth} columns of the data"))),
    }
}

/// Attention of queries, keys and values beside each other in the last dim of a tensor, by the mask and the
/// past keys and values at two inputs, and the addends at another one, if the op has that.
fn in_one(
    node: &mut Call<'_, '_>,
    all: TensorId,
    [mask, past_at]: [usize; 2],
    bias: Option<usize>,
    data_type: DataType,
) -> Result<Vec<TensorId>, Fault> {
    for name in ["do_rotary", "past_present_share_buffer"] {
        if node.flag(name, false) {
            return Err(Fault::of_attribute(name, "0"));
        }
    }
    let heads = count(node, "num_heads")?;
    let [batch, rows, _] = three(node, 0)?;
    let width = node.known_dims(1, "known dims")?.get(1).copied().unwrap_or(0);
    let widths = match node.ints("qkv_hidden_sizes") {
        None => [divided("num_heads", width, 3)?; 3],
        Some(&[q, k, v]) if q > 0 && k == q && v > 0 && q.saturating_add(k).saturating_add(v) == width => {
            [q, k, v]
        }
        Some(_) => {
            let needed = format!("widths of queries, of keys, the same, and of values, together {width}");
            return Err(Fault::of_attribute("qkv_hidden_sizes", needed));
        }
    };
    let (mut from, mut parts) = (0, Vec::with_capacity(3));
    for width in widths {
        let depth = divided("num_heads", width, heads)?;
        let own = node.steps.part(all, 2, [from, from + width])?;
        let split = node.steps.in_shape(own, &[batch, rows, heads, depth])?;
        parts.push((node.steps.transposed(split, &[0, 2, 1, 3])?, [batch, heads, rows, depth]));
        from += width;
    }
    let (q, mut both) = (parts[0], [parts[1], parts[2]]);
    let mut past = 0;
    if let Some(given) = node.optional(past_at) {
        let dims = node.known_dims(past_at, "known dims")?;
        let &[2, of_batch, of_heads, count, depth] = &dims[..] else {
            return Err(node.unfit(past_at, "five dims: keys and values, batch, heads, rows and columns"));
        };
        if both.iter().any(|(_, new)| [new[0], new[1], new[3]] != [of_batch, of_heads, depth]) {
            return Err(node.unfit(past_at, "the dims of the new keys and values but for their number"));
        }
        past = count;
        for (at, each) in (0i64..).zip(&mut both) {
            let own = node.steps.part(given, 0, [at, at + 1])?;
            let own = node.steps.in_shape(own, &dims[1..])?;
            *each = behind(node, own, *each, past)?;
        }
    }
    let [k, v] = both;
    let mut outputs = attended(node, [q, k, v], past, (mask, bias), data_type)?;
    if node.outputs > 1 {
        if k.1 != v.1 {
            return Err(Fault::of_attribute(
                "qkv_hidden_sizes",
                "one width, where keys and values are an output",
            ));
        }
        let one = [&[1], &k.1[..]].concat();
        let each = [node.steps.in_shape(k.0, &one)?, node.steps.in_shape(v.0, &one)?];
        outputs[1] = node.steps.joined(each.to_vec(), 0)?;
    }
    outputs.truncate(node.outputs.max(1));
    Ok(outputs)
}

/// The result of queries, keys and values as {batch, rows, all heads}, and keys and values: with the padding
/// at an input, the addends at another one, and one direction if the node asks for it.
fn attended(
    node: &mut Call<'_, '_>,
    [q, k, v]: [InHeads; 3],
    past: i64,
    (mask, bias): (usize, Option<usize>),
    data_type: DataType,
) -> Result<Vec<TensorId>, Fault> {
    let scale = scale(node);
    let of = scores(node, q, k, v, scale)?;
    let [batch, _, rows, keys] = of.full;
    let mut logits = of.scaled;
    if node.optional(mask).is_some() {
        let padding = padding(node, mask, [batch, rows, keys])?;
        logits = node.steps.both(K::Add, logits, padding)?;
    }
    if let Some(bias) = bias {
        logits = biased(node, bias, logits, &of)?;
    }
    if node.flag("unidirectional", false) {
        if keys - past != rows {
            return Err(Fault::of_attribute("unidirectional", "0, or as many new keys as queries"));
        }
        logits = causal(node, logits, &of, Past::Known(past), None)?;
    }
    finished(node, &of, (logits, None), [k.0, v.0], data_type)
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
        (true, _) => logits = causal(node, logits, &of, cache.past, window)?,
        (false, None) => logits = cache.within(node, logits, &of)?,
        (false, Some(_)) => return Err(Fault::of_attribute("local_window_size", "−1 where `causal` is 0")),
    }
    let sink = sink(node, &of)?;
    let mut outputs = finished(node, &of, (logits, sink), [present_k, present_v], data_type)?;
    outputs.truncate(node.outputs.max(1));
    Ok(outputs)
}

/// Refuses what is not mapped of grouped attention.
fn check_grouped(node: &Call<'_, '_>) -> Result<(), Fault> {
    without(node, &[12, 13], "caches of the type of the queries")?;
    without(node, &[14, 15], "norms of queries and keys in nodes of their own")?;
    without(node, &[16], "queries without padding")?;
    for name in ["kv_cache_bit_width", "qk_output", "sliding_window_cache"] {
        if node.flag(name, false) {
            return Err(Fault::of_attribute(name, "0"));
        }
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
fn padding(node: &mut Call<'_, '_>, input: usize, [batch, rows, keys]: [i64; 3]) -> Result<TensorId, Fault> {
    if node.data_type(input) != D::S32 {
        return Err(node.bad_type(input, "s32"));
    }
    let (mask, dims) = (node.input(input), node.known_dims(input, "known dims")?);
    let is_number = |node: &mut Call<'_, '_>, laid_out: [i64; 4]| {
        let zero = node.steps.number(D::S32, 0.0)?;
        let mask = node.steps.in_shape(mask, &laid_out)?;
        node.steps.predicate(K::Greater, mask, zero)
    };
    // The places of keys against a number for each sample.
    let beside = |node: &mut Call<'_, '_>, kind: OpKind, numbers: TensorId| {
        let places = rotary::following(node, None, keys)?;
        let places = node.steps.cast(places, D::S32)?;
        let places = node.steps.in_shape(places, &[1, 1, 1, keys])?;
        let numbers = node.steps.in_shape(numbers, &[batch, 1, 1, 1])?;
        node.steps.predicate(kind, places, numbers)
    };
    let keeps = match *dims {
        [ends] if ends == batch => beside(node, K::Less, mask)?,
        // Behind the ends stand sums of the lengths of queries and of keys, which say nothing new of samples
        // in rows of their own: ONNX Runtime does not read them either.
        [all] if batch.checked_mul(3).and_then(|sums| sums.checked_add(2)) == Some(all) => {
            let ends = node.steps.part(mask, 0, [0, batch])?;
            beside(node, K::Less, ends)?
        }
        [both] if batch.checked_mul(2) == Some(both) => {
            let ends = node.steps.part(mask, 0, [0, batch])?;
            let starts = node.steps.part(mask, 0, [batch, both])?;
            let ends = beside(node, K::Less, ends)?;
            let starts = beside(node, K::GreaterEqual, starts)?;
            node.steps.both(K::LogicalAnd, ends, starts)?
        }
        [of_batch, of_keys] if [of_batch, of_keys] == [batch, keys] => is_number(node, [batch, 1, 1, keys])?,
        [of_batch, of_rows, of_keys] if [of_batch, of_rows, of_keys] == [batch, rows, keys] => {
            is_number(node, [batch, 1, rows, keys])?
        }
        _ => {
            return Err(node.unfit(
                input,
                "an end for each sample, or ends and starts or sums of lengths, or a number for each key, \
                 and each query",
            ));
        }
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

/// The result of scores as {batch, rows, all heads}, and keys and values.
fn finished(
    node: &mut Call<'_, '_>,
    of: &Scores,
    (logits, sink): (TensorId, Option<TensorId>),
    [k, v]: [TensorId; 2],
    data_type: DataType,
) -> Result<Vec<TensorId>, Fault> {
    let shares = match sink {
        None => softmax(node, logits, D::F32, data_type)?,
        Some(sink) => {
            let mut dims = node.steps.dims(logits)?;
            let last = dims.len() - 1;
            let keys = std::mem::replace(&mut dims[last], 1);
            let column = node.steps.enlarged(sink, &dims)?;
            let all = node.steps.joined(vec![logits, column], last)?;
            let shares = softmax(node, all, D::F32, data_type)?;
            node.steps.part(shares, last, [0, keys])?
        }
    };
    let result = of.result(node, shares)?;
    let together = node.steps.transposed(result, &[0, 2, 1, 3])?;
    let [batch, heads, rows, _] = of.full;
    let result = node.steps.in_shape(together, &[batch, rows, heads.saturating_mul(of.columns)])?;
    Ok(vec![node.steps.cast(result, data_type)?, k, v])
}

/// A score without a key, in f32: one for each head, or 0 for all.
fn sink(node: &mut Call<'_, '_>, of: &Scores) -> Result<Option<TensorId>, Fault> {
    let heads = of.full[1];
    match node.optional(11) {
        Some(_) if node.flag("smooth_softmax", false) => {
            Err(Fault::of_attribute("smooth_softmax", "0 beside an input `head_sink`"))
        }
        Some(given) => {
            node.one_type(0, 11)?;
            if node.known_dims(11, "known dims")? != [heads] {
                return Err(node.unfit(11, format!("a number for each of {heads} heads")));
            }
            let sink = node.steps.cast(given, D::F32)?;
            node.steps.in_shape(sink, &of.heads.of_queries([1, heads, 1, 1])).map(Some)
        }
        None if node.int("smooth_softmax", 0) == 1 => node.steps.float(0.0).map(Some),
        None => Ok(None),
    }
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

/// Keys or values as {batch, heads, rows, depth}, which those of another sequence are already.
fn keys_in_heads(node: &mut Call<'_, '_>, input: usize, x: TensorId, heads: i64) -> Result<InHeads, Fault> {
    if node.rank(input)? != 4 {
        return in_heads(node, input, x, "num_heads", heads);
    }
    let dims = four(node, input)?;
    without(node, &[3, 6, 7], "no bias and no cache beside keys and values in heads")?;
    match dims[1] == heads {
        true => Ok((x, dims)),
        false => Err(node.unfit(input, format!("{heads} heads"))),
    }
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
