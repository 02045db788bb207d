//! The op `Attention`: the ops of masked attention, as `Graph::attention` writes them, which partitions fuse.

use sterna::{Attr, DataType, OpKind, TensorId};

use super::arithmetic::{FLOATS, converted};
use super::call::Call;
use crate::compose::{is_float, wide_float};
use crate::error::Fault;
use crate::onnx::tensors;

use DataType as D;
use OpKind as K;

/// Dims of [batch, heads, rows, columns] with the heads of queries in groups that share a head of keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heads {
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
    pub(super) fn of_queries(self, dims: [i64; 4]) -> Vec<i64> {
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

/// The tensors of attention before the masks, and their dims as [batch, heads, rows, columns].
pub(super) struct Scores {
    pub(super) heads: Heads,
    /// The dims of the scores.
    pub(super) full: [i64; 4],
    /// The scaled products of queries and keys, in f32, or in f64 if they are.
    pub(super) scaled: TensorId,
    /// The values, with the heads of keys.
    v: TensorId,
    /// The last dim of the values.
    pub(super) columns: i64,
}

/// A tensor, and its dims as [batch, heads, rows, columns].
pub(super) type InHeads = (TensorId, [i64; 4]);

/// The products of queries and keys, scaled by a number or else by the root of the depth.
pub(super) fn scores(
    node: &mut Call<'_, '_>,
    q: InHeads,
    k: InHeads,
    v: InHeads,
    scale: Option<f32>,
) -> Result<Scores, Fault> {
    let heads = Heads { queries: q.1[1], keys: k.1[1] };
    // Of no heads each has its own.
    let divides = heads.queries == heads.keys || heads.keys > 0 && heads.queries % heads.keys == 0;
    if !divides || v.1[1] != heads.keys || v.1[2] != k.1[2] {
        return Err(node.unfit(0, "a number of heads that those of keys and values divide, as many of both"));
    }
    let [batch, _, rows, depth] = q.1;
    let full = [batch, heads.queries, rows, k.1[2]];
    let q = node.steps.in_shape(q.0, &heads.of_queries(q.1))?;
    let k = node.steps.in_shape(k.0, &heads.of_keys(k.1))?;
    let columns = v.1[3];
    let v = node.steps.in_shape(v.0, &heads.of_keys(v.1))?;
    let wide = wide_float(node.steps.builder.data_type(q));
    let products = node.steps.product(q, k, true, wide)?;
    let scale = match (scale, (depth.max(1) as f64).sqrt().recip()) {
        (Some(scale), _) => scale.into(),
        (None, scale) if wide == D::F64 => scale,
        (None, scale) => f64::from(scale as f32),
    };
    let scale = node.steps.number(wide, scale)?;
    let scaled = node.steps.both(K::Multiply, products, scale)?;
    Ok(Scores { heads, full, scaled, v, columns })
}

impl Scores {
    /// The sums of the values by their shares.
    pub(super) fn result(&self, node: &mut Call<'_, '_>, shares: TensorId) -> Result<TensorId, Fault> {
        let [batch, heads, rows, _] = self.full;
        let data_type = node.steps.builder.data_type(self.v);
        let shares = node.steps.cast(shares, data_type)?;
        let result = node.steps.product(shares, self.v, false, data_type)?;
        node.steps.in_shape(result, &[batch, heads, rows, self.columns])
    }
}

/// The type of the steps between: f32, or f64 of inputs of f64.
fn wide(node: &Call<'_, '_>) -> Result<DataType, Fault> {
    match node.data_type(0) {
        D::F64 => Ok(D::F64),
        data_type if is_float(data_type) => Ok(D::F32),
        _ => Err(node.bad_type(0, format!("{FLOATS}, f64"))),
    }
}

/// The shares of the scores of a row, by steps of a type. What is left out throughout has none.
pub(super) fn softmax(
    node: &mut Call<'_, '_>,
    scores: TensorId,
    precision: DataType,
    to: DataType,
) -> Result<TensorId, Fault> {
    let scores = if precision == D::F64 { node.steps.cast(scores, precision)? } else { scores };
    node.steps.softmax(scores, -1, true, to)
}

/// The type of the steps of SoftMax.
fn precision(node: &Call<'_, '_>) -> Result<DataType, Fault> {
    match tensors::data_type(node.int("softmax_precision", 1)) {
        Ok(data_type) if is_float(data_type) || data_type == D::F64 => Ok(data_type),
        _ => Err(Fault::of_attribute("softmax_precision", format!("{FLOATS}, f64"))),
    }
}

pub(super) fn attention(node: &mut Call<'_, '_>) -> Result<Vec<TensorId>, Fault> {
    let data_type = node.data_type(0);
    wide(node)?;
    node.one_type(0, 1)?;
    let precision = precision(node)?;
    let q = heads_apart(node, 0, "q_num_heads")?;
    let mut k = heads_apart(node, 1, "kv_num_heads")?;
    let mut v = heads_apart(node, 2, "kv_num_heads")?;

    // The past keys and values stand before the present ones.
    let mut past = 0;
    if let (Some(past_k), Some(past_v)) = (node.optional(4), node.optional(5)) {
        past = four(node, 4)?[2];
        k.0 = node.steps.joined(vec![past_k, k.0], 2)?;
        v.0 = node.steps.joined(vec![past_v, v.0], 2)?;
        k.1[2] = k.1[2].saturating_add(past);
        v.1[2] = v.1[2].saturating_add(four(node, 5)?[2]);
    } else if node.optional(4).is_some() || node.optional(5).is_some() {
        return Err(node.unfit(0, "past keys and past values together"));
    }
    let scale = node.attribute("scale").map(|scale| scale.float);
    let scores = scores(node, q, k, v, scale)?;
    let [batch, heads, rows, _] = scores.full;
    let capped = capped(node, scores.scaled)?;
    let masked = masked(node, capped, scores.heads, scores.full, past)?;
    let shares = softmax(node, masked, precision, data_type)?;
    let mut result = scores.result(node, shares)?;
    if node.rank(0)? == 3 {
        let together = node.steps.transposed(result, &[0, 2, 1, 3])?;
        result = node.steps.in_shape(together, &[batch, rows, heads.saturating_mul(scores.columns)])?;
    }
    let mut outputs = vec![node.steps.cast(result, data_type)?, k.0, v.0];
    if node.outputs > 3 {
        let step = match node.int("qk_matmul_output_mode", 0) {
            0 => scores.scaled,
            1 => capped,
            2 => masked,
            3 => shares,
            _ => return Err(Fault::of_attribute("qk_matmul_output_mode", "0, 1, 2, 3")),
        };
        let step = node.steps.in_shape(step, &scores.full)?;
        outputs.push(node.steps.cast(step, data_type)?);
    }
    outputs.truncate(node.outputs.max(1));
    Ok(outputs)
}

/// The op `FlexAttention`, whose scores and shares graphs of the model may change in between.
pub(in crate::onnx) struct FlexAttention {
    /// The scores, and then the shares.
    pub(in crate::onnx) scores: TensorId,
    of: Scores,
    /// Graphs see the scores, and with the heads as one dim.
    whole: bool,
    /// The type of scores and shares.
    wide: DataType,
}

impl FlexAttention {
    pub(in crate::onnx) fn new(node: &mut Call<'_, '_>, whole: bool) -> Result<Self, Fault> {
        const KNOWN: [&str; 4] = ["prob_mod", "scale", "score_mod", "softmax_precision"];
        if let Some(other) = node.attributes.keys().find(|name| !KNOWN.contains(name)) {
            return Err(Fault::UnknownAttribute { attribute: crate::names::Shown(other).to_string() });
        }
        if node.inputs.len() != 3 || node.inputs.contains(&None) || node.outputs != 1 {
            let (direction, given) = (sterna::Direction::Input, node.inputs.len());
            return Err(Fault::PortCount { direction, given, needed: "3, and one output".into() });
        }
        let wide = wide(node)?;
        node.one_type(0, 1)?;
        match precision(node)? {
            D::F32 | D::F64 => {}
            _ => return Err(Fault::of_attribute("softmax_precision", "f32, f64")),
        }
        let [q, k, v] = [four(node, 0)?, four(node, 1)?, four(node, 2)?];
        let scale = node.attribute("scale").map(|scale| scale.float);
        let of = scores(node, (node.input(0), q), (node.input(1), k), (node.input(2), v), scale)?;
        let scores = if whole { node.steps.in_shape(of.scaled, &of.full)? } else { of.scaled };
        Ok(Self { scores, of, whole, wide })
    }

    pub(in crate::onnx) fn softmax(&mut self, node: &mut Call<'_, '_>) -> Result<(), Fault> {
        let precision = precision(node)?;
        self.scores = softmax(node, self.scores, precision, self.wide)?;
        Ok(())
    }

    pub(in crate::onnx) fn result(self, node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
        let mut shares = self.scores;
        if self.whole {
            shares = node.steps.in_shape(shares, &self.of.heads.of_queries(self.of.full))?;
        }
        let result = self.of.result(node, shares)?;
        node.steps.cast(result, node.data_type(0))
    }
}

/// The dims of an input of rank 4.
pub(super) fn four(node: &Call<'_, '_>, input: usize) -> Result<[i64; 4], Fault> {
    let dims = node.known_dims(input, "known dims")?;
    dims.try_into().map_err(|_| node.unfit(input, "four dims: batch, heads, rows and columns"))
}

/// Queries, keys or values with their heads as a dim of their own, and their dims.
fn heads_apart(node: &mut Call<'_, '_>, input: usize, attribute: &'static str) -> Result<InHeads, Fault> {
    let (x, dims) = (node.input(input), node.known_dims(input, "known dims")?);
    match *dims {
        [batch, heads, rows, columns] => Ok((x, [batch, heads, rows, columns])),
        [batch, rows, width] => {
            let heads = node.int(attribute, 0);
            if heads < 1 || width % heads != 0 {
                return Err(Fault::of_attribute(attribute, format!("a number that divides {width}")));
            }
            let columns = width / heads;
            let split = node.steps.in_shape(x, &[batch, rows, heads, columns])?;
            Ok((node.steps.transposed(split, &[0, 2, 1, 3])?, [batch, heads, rows, columns]))
        }
        _ => Err(node.unfit(input, "three or four dims")),
    }
}

/// `c · tanh(x / c)`.
pub(super) fn capped(node: &mut Call<'_, '_>, x: TensorId) -> Result<TensorId, Fault> {
    let cap = node.float("softcap", 0.0);
    if cap == 0.0 {
        return Ok(x);
    }
    let cap = node.steps.number(wide(node)?, cap.into())?;
    let share = node.steps.both(K::Divide, x, cap)?;
    let bent = node.steps.same(K::Tanh, share)?;
    node.steps.both(K::Multiply, bent, cap)
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
    let nothing = node.steps.number(wide(node)?, f64::NEG_INFINITY)?;
    if let Some(mask) = node.optional(3) {
        let is_truth = node.steps.builder.data_type(mask) == D::Boolean;
        let mask = as_long(node, mask, keys, is_truth)?;
        let mask = beside(node, 3, mask, heads, full)?;
        scores = match is_truth {
            true => node.steps.select(mask, scores, nothing)?,
            false => node.steps.both(K::Add, scores, mask)?,
        };
    }
    let index = |node: &mut Call<'_, '_>, axis: i64| {
        node.steps.emit(K::GenIndex, &[(Attr::Axis, axis.into())], &[scores], D::S32)
    };
    let lengths = match node.optional(6) {
        None => None,
        Some(lengths) => {
            let lengths = converted(node, lengths, D::S32)?;
            let beside = heads.of_queries([batch, 1, 1, 1]);
            Some(node.steps.in_shape(lengths, &beside)?)
        }
    };
    let mut keeps: Option<TensorId> = None;
    let add = |node: &mut Call<'_, '_>, keeps: Option<TensorId>, also: TensorId| match keeps {
        Some(keeps) => node.steps.both(K::LogicalAnd, keeps, also).map(Some),
        None => Ok(Some(also)),
    };
    let causal = node.flag("is_causal", false);
    let (left, right) = (node.int("left_window_size", -1), node.int("right_window_size", -1));
    if left < -1 || right < -1 {
        let name = if left < -1 { "left_window_size" } else { "right_window_size" };
        return Err(Fault::of_attribute(name, "a number from −1 on"));
    }
    if causal || left >= 0 || right >= 0 {
        let (query, key) = (index(node, -2)?, index(node, -1)?);
        let before = match lengths {
            None => node.steps.number(D::S32, past as f64)?,
            Some(lengths) => {
                let rows = node.steps.number(D::S32, rows as f64)?;
                node.steps.both(K::Subtract, lengths, rows)?
            }
        };
        let position = node.steps.both(K::Add, query, before)?;
        if causal {
            let also = node.steps.emit(K::GreaterEqual, &[], &[position, key], D::Boolean)?;
            keeps = add(node, keeps, also)?;
        }
        // Beyond all keys one window is as good as another.
        let sides = [(left, K::Subtract, K::LessEqual), (right, K::Add, K::GreaterEqual)];
        for (window, step, order) in sides.into_iter().filter(|(window, ..)| *window >= 0) {
            let window = node.steps.number(D::S32, window.min(1 << 24) as f64)?;
            let edge = node.steps.both(step, position, window)?;
            let also = node.steps.emit(order, &[], &[edge, key], D::Boolean)?;
            keeps = add(node, keeps, also)?;
        }
    }
    if let Some(lengths) = lengths {
        let key = index(node, -1)?;
        let within = node.steps.emit(K::Less, &[], &[key, lengths], D::Boolean)?;
        keeps = add(node, keeps, within)?;
    }
    match keeps {
        Some(keeps) => node.steps.select(keeps, scores, nothing),
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
        true => node.steps.number(data_type, 0.0)?,
        false => node.steps.number(data_type, f64::NEG_INFINITY)?,
    };
    let rest = node.steps.enlarged(nothing, &dims)?;
    node.steps.joined(vec![mask, rest], axis)
}

/// A mask from an input that broadcasts to the scores, whose heads may stand in groups.
pub(super) fn beside(
    node: &mut Call<'_, '_>,
    input: usize,
    mask: TensorId,
    heads: Heads,
    full: [i64; 4],
) -> Result<TensorId, Fault> {
    let dims = node.steps.builder.known_dims(mask).unwrap_or(&[]).to_vec();
    let front = 4usize.checked_sub(dims.len()).ok_or_else(|| node.unfit(input, "at most four dims"))?;
    let mut four = [1; 4];
    four[front..].copy_from_slice(&dims);
    if four.iter().zip(full).any(|(&dim, onto)| dim != 1 && dim != onto) {
        return Err(node.unfit(input, "dims that broadcast to those of the scores"));
    }
    if !heads.is_grouped() || (four[0] == 1 && four[1] == 1) {
        return Ok(mask);
    }
    node.steps.in_shape(mask, &heads.of_queries(four))
}
