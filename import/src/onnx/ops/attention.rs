//! The op `Attention`: the ops of masked attention, as `Graph::attention` writes them, which partitions fuse.

use sterna::{Attr, AttrValue, DataType, OpKind, TensorId};

use super::Call;
use super::arithmetic::{converted, floats};
use super::moves::{joined, transposed};
use crate::error::Fault;
use crate::onnx::tensors;

use DataType as D;
use OpKind as K;

/// Dims of [batch, heads, rows, columns] with the heads of queries in groups that share a head of keys.
#[derive(Debug, Clone, Copy)]
struct Heads {
    queries: i64,
    keys: i64,
}

impl Heads {
    fn groups(self) -> i64 {
        self.queries / self.keys
    }

    fn is_grouped(self) -> bool {
        self.queries != self.keys
    }

    /// The shape of a tensor that has the heads of queries, or one for all.
    fn of_queries(self, dims: [i64; 4]) -> Vec<i64> {
        let [batch, heads, rows, columns] = dims;
        match (self.is_grouped(), heads) {
            (false, _) => dims.to_vec(),
            (true, 1) => vec![batch, 1, 1, rows, columns],
            (true, _) => vec![batch, self.keys, self.groups(), rows, columns],
        }
    }

    /// The shape of a tensor that has the heads of keys.
    fn of_keys(self, [batch, heads, rows, columns]: [i64; 4]) -> Vec<i64> {
        match self.is_grouped() {
            false => vec![batch, heads, rows, columns],
            true => vec![batch, heads, 1, rows, columns],
        }
    }
}

pub(super) fn attention(node: &mut Call<'_, '_>) -> Result<Vec<TensorId>, Fault> {
    let data_type = floats(node)?;
    node.one_type(0, 1)?;
    let (q, q_dims) = heads_apart(node, 0, "q_num_heads")?;
    let mut k = heads_apart(node, 1, "kv_num_heads")?;
    let mut v = heads_apart(node, 2, "kv_num_heads")?;

    // What was there before comes first.
    let mut past = 0;
    if let (Some(past_k), Some(past_v)) = (node.optional(4), node.optional(5)) {
        past = four(node, 4)?[2];
        k.0 = joined(node, vec![past_k, k.0], 2)?;
        v.0 = joined(node, vec![past_v, v.0], 2)?;
        k.1[2] += past;
        v.1[2] += four(node, 5)?[2];
    } else if node.optional(4).is_some() || node.optional(5).is_some() {
        return Err(node.unfit(0, "past keys and past values together"));
    }
    let present = [k.0, v.0];
    let heads = Heads { queries: q_dims[1], keys: k.1[1] };
    if heads.keys == 0 || heads.queries % heads.keys.max(1) != 0 || v.1[1] != heads.keys || v.1[2] != k.1[2] {
        return Err(node.unfit(0, "a number of heads that those of keys and values divide, as many of both"));
    }
    let [batch, _, rows, _] = q_dims;
    let keys = k.1[2];
    let full = [batch, heads.queries, rows, keys];

    let q = node.in_shape(q, &heads.of_queries(q_dims))?;
    let k_in_heads = node.in_shape(k.0, &heads.of_keys(k.1))?;
    let v_in_heads = node.in_shape(v.0, &heads.of_keys(v.1))?;
    let transpose = [(Attr::TransposeB, true.into())];
    let scores = node.emit(K::MatMul, &transpose, &[q, k_in_heads], D::F32)?;
    let scale = match node.attribute("scale") {
        Some(scale) => f64::from(scale.float),
        None => (q_dims[3].max(1) as f64).sqrt().recip(),
    };
    let scale = node.number(D::F32, f64::from(scale as f32))?;
    let scaled = node.both(K::Multiply, scores, scale)?;
    let capped = capped(node, scaled)?;
    let masked = masked(node, capped, heads, full, past)?;
    let precision = node.int("softmax_precision", 1);
    if !matches!(tensors::data_type(precision), Ok(D::F32 | D::F16 | D::Bf16)) {
        return Err(Fault::of_attribute("softmax_precision", "f32, bf16, f16"));
    }
    let whole: [(Attr, AttrValue); 2] = [(Attr::Axis, (-1i64).into()), (Attr::Mode, "inf_as_zero".into())];
    let shares = node.emit(K::SoftMax, &whole, &[masked], data_type)?;
    let v_type = node.builder.data_type(v_in_heads);
    let shares_of_v = node.cast(shares, v_type)?;
    let result = node.emit(K::MatMul, &[], &[shares_of_v, v_in_heads], v_type)?;
    let result = node.in_shape(result, &[batch, heads.queries, rows, v.1[3]])?;
    let result = match node.rank(0)? {
        3 => {
            let together = transposed(node, result, &[0, 2, 1, 3])?;
            node.in_shape(together, &[batch, rows, heads.queries * v.1[3]])?
        }
        _ => result,
    };
    let result = node.cast(result, data_type)?;
    let mut outputs = vec![result, present[0], present[1]];
    if node.outputs > 3 {
        let step = match node.int("qk_matmul_output_mode", 0) {
            0 => scaled,
            1 => capped,
            2 => masked,
            3 => shares,
            _ => return Err(Fault::of_attribute("qk_matmul_output_mode", "0, 1, 2, 3")),
        };
        let step = node.in_shape(step, &full)?;
        outputs.push(node.cast(step, data_type)?);
    }
    outputs.truncate(node.outputs.max(1));
    Ok(outputs)
}

/// The dims of an input of rank 4.
fn four(node: &Call<'_, '_>, input: usize) -> Result<[i64; 4], Fault> {
    let dims = node.known_dims(input, "known dims")?;
    dims.try_into().map_err(|_| node.unfit(input, "four dims: batch, heads, rows and columns"))
}

/// Queries, keys or values with their heads as a dim of their own, and their dims.
fn heads_apart(
    node: &mut Call<'_, '_>,
    input: usize,
    attribute: &'static str,
) -> Result<(TensorId, [i64; 4]), Fault> {
    let (x, dims) = (node.input(input), node.known_dims(input, "known dims")?);
    match *dims {
        [batch, heads, rows, columns] => Ok((x, [batch, heads, rows, columns])),
        [batch, rows, width] => {
            let heads = node.int(attribute, 0);
            if heads < 1 || width % heads != 0 {
                return Err(Fault::of_attribute(attribute, format!("a number that divides {width}")));
            }
            let columns = width / heads;
            let split = node.in_shape(x, &[batch, rows, heads, columns])?;
            Ok((transposed(node, split, &[0, 2, 1, 3])?, [batch, heads, rows, columns]))
        }
        _ => Err(node.unfit(input, "three or four dims")),
    }
}

/// `c · tanh(x / c)`.
fn capped(node: &mut Call<'_, '_>, x: TensorId) -> Result<TensorId, Fault> {
    let cap = node.float("softcap", 0.0);
    if cap == 0.0 {
        return Ok(x);
    }
    let cap = node.number(D::F32, cap.into())?;
    let share = node.both(K::Divide, x, cap)?;
    let bent = node.same(K::Tanh, share)?;
    node.both(K::Multiply, bent, cap)
}

/// The scores with what the mask, the positions and the lengths leave out at −∞.
fn masked(
    node: &mut Call<'_, '_>,
    mut scores: TensorId,
    heads: Heads,
    full: [i64; 4],
    past: i64,
) -> Result<TensorId, Fault> {
    let [batch, _, rows, keys] = full;
    let nothing = node.number(D::F32, f64::NEG_INFINITY)?;
    if let Some(mask) = node.optional(3) {
        let is_truth = node.builder.data_type(mask) == D::Boolean;
        let mask = as_long(node, mask, keys, is_truth)?;
        let mask = beside(node, mask, heads, full)?;
        scores = match is_truth {
            true => node.select(mask, scores, nothing)?,
            false => node.both(K::Add, scores, mask)?,
        };
    }
    let index = |node: &mut Call<'_, '_>, axis: i64| {
        node.emit(K::GenIndex, &[(Attr::Axis, axis.into())], &[scores], D::S32)
    };
    let lengths = match node.optional(6) {
        None => None,
        Some(lengths) => {
            let lengths = converted(node, lengths, D::S32)?;
            let beside = heads.of_queries([batch, 1, 1, 1]);
            Some(node.in_shape(lengths, &beside)?)
        }
    };
    let mut keeps = None;
    if node.flag("is_causal", false) {
        let (query, key) = (index(node, -2)?, index(node, -1)?);
        let before = match lengths {
            None => node.number(D::S32, past as f64)?,
            Some(lengths) => {
                let rows = node.number(D::S32, rows as f64)?;
                node.both(K::Subtract, lengths, rows)?
            }
        };
        let last = node.both(K::Add, query, before)?;
        keeps = Some(node.emit(K::GreaterEqual, &[], &[last, key], D::Boolean)?);
    }
    if let Some(lengths) = lengths {
        let key = index(node, -1)?;
        let within = node.emit(K::Less, &[], &[key, lengths], D::Boolean)?;
        keeps = Some(match keeps {
            Some(keeps) => node.both(K::LogicalAnd, keeps, within)?,
            None => within,
        });
    }
    match keeps {
        Some(keeps) => node.select(keeps, scores, nothing),
        None => Ok(scores),
    }
}

/// A mask whose last dim is that of the keys: what a shorter one does not say is left out.
fn as_long(node: &mut Call<'_, '_>, mask: TensorId, keys: i64, is_truth: bool) -> Result<TensorId, Fault> {
    let mut dims = node.known_dims(3, "known dims")?;
    let Some(last) = dims.last_mut() else { return Ok(mask) };
    if *last >= keys || *last == 1 {
        return Ok(mask);
    }
    *last = keys - *last;
    let (axis, data_type) = (dims.len() - 1, node.data_type(3));
    let nothing = match is_truth {
        true => node.number(data_type, 0.0)?,
        false => node.number(data_type, f64::NEG_INFINITY)?,
    };
    let rest = node.enlarged(nothing, &dims)?;
    joined(node, vec![mask, rest], axis)
}

/// A mask that broadcasts to the scores, whose heads may stand in groups.
fn beside(node: &mut Call<'_, '_>, mask: TensorId, heads: Heads, full: [i64; 4]) -> Result<TensorId, Fault> {
    let dims = node.builder.known_dims(mask).unwrap_or(&[]).to_vec();
    let front = 4usize.checked_sub(dims.len()).ok_or_else(|| node.unfit(3, "at most four dims"))?;
    let mut four = [1; 4];
    four[front..].copy_from_slice(&dims);
    if four.iter().zip(full).any(|(&dim, onto)| dim != 1 && dim != onto) {
        return Err(node.unfit(3, "dims that broadcast to those of the scores"));
    }
    if !heads.is_grouped() || (four[0] == 1 && four[1] == 1) {
        return Ok(mask);
    }
    node.in_shape(mask, &heads.of_queries(four))
}
