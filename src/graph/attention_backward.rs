//! The gradients of masked attention as ordinary ops.

use super::Graph;
use super::attention::{Attention, AttentionIds, check};
use super::attention_heads::{HeadDims, Heads, Open, batch};
use super::logical_tensor::LogicalTensor;
use super::op_sequence::{OpSequence, from_end, unknown, value};
use crate::error::{AttentionFault, Result};
use crate::types::dtype::DataType;
use crate::types::id::TensorId;
use crate::types::kind::{Attr, OpKind};

/// Options of [`Graph::attention_backward`].
///
/// The options of forward say what it computed: `q`, `k` and `v`, the masks, and the result. If they have
/// `stats`, forward's result and statistics are inputs here; otherwise the SoftMax is computed again, and
/// nothing reads the result. Gradients have the dims of what they are the gradients of; if keys broadcast
/// without [`groups`](Attention::groups), those of keys and values have the batch dims of the scores.
///
/// ```
/// use sterna::{Attention, AttentionBackward, Causal, DataType, Graph, LogicalTensor, Policy};
/// let head = |id| LogicalTensor::strided(id, DataType::F32, &[2, 8, 128, 64]);
/// let stats = LogicalTensor::strided(4, DataType::F32, &[2, 8, 128, 1])?;
/// let forward = Attention::new(head(0)?, head(1)?, head(2)?, head(3)?).causal(Causal::TopLeft).stats(stats);
/// let backward = AttentionBackward::new(forward, head(5)?).d_q(head(6)?).d_k(head(7)?).d_v(head(8)?);
/// let mut graph = Graph::new();
/// graph.attention_backward(&backward)?;
/// graph.finalize()?;
/// let partitions = graph.partitions(Policy::Fusion)?;
/// assert!(partitions.len() == 1 && partitions[0].is_supported());
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct AttentionBackward {
    /// The forward pass. The ids of the ops and of the tensors between them start where these options
    /// say.
    forward: Attention,
    /// The gradient of the result, of the type of the queries.
    d_dst: LogicalTensor,
    /// The gradients that are wanted: of the queries,
    d_q: Option<LogicalTensor>,
    /// of the keys,
    d_k: Option<LogicalTensor>,
    /// and of the values.
    d_v: Option<LogicalTensor>,
}

impl AttentionBackward {
    /// No gradient is wanted so far.
    #[must_use]
    pub fn new(forward: Attention, d_dst: LogicalTensor) -> Self {
        Self { forward, d_dst, d_q: None, d_k: None, d_v: None }
    }

    /// Adds the gradient of the queries as an output.
    #[must_use]
    pub fn d_q(self, to: impl Into<Option<LogicalTensor>>) -> Self {
        Self { d_q: to.into(), ..self }
    }

    /// Adds the gradient of the keys as an output.
    #[must_use]
    pub fn d_k(self, to: impl Into<Option<LogicalTensor>>) -> Self {
        Self { d_k: to.into(), ..self }
    }

    /// Adds the gradient of the values as an output.
    #[must_use]
    pub fn d_v(self, to: impl Into<Option<LogicalTensor>>) -> Self {
        Self { d_v: to.into(), ..self }
    }
}

impl Graph {
    /// Adds the ops of the gradients of masked attention: those of [`attention`](Self::attention) up to what
    /// enters the `SoftMax`; `Subtract` and `Exp`, or the `SoftMax`; the product of the gradient of the
    /// result and the values; `ReduceSum` of the result times its gradient, `Subtract` and `Multiply`, or
    /// `SoftMaxBackward`; and a product for each gradient. If heads share keys, `ReduceSum` follows.
    ///
    /// # Errors
    ///
    /// As for [`attention`](Self::attention).
    ///
    /// ```
    /// use sterna::{Attention, AttentionBackward, DataType, Graph, LogicalTensor};
    /// let head = |id| LogicalTensor::strided(id, DataType::F32, &[8, 16, 4]);
    /// let forward = Attention::new(head(0)?, head(1)?, head(2)?, head(3)?);
    /// let ids = Graph::new().attention_backward(&AttentionBackward::new(forward, head(4)?).d_v(head(5)?))?;
    /// // Products of queries and keys, Multiply by a constant, SoftMax, and the product that gives d_v.
    /// assert_eq!(ids.ops, 0.into()..5.into());
    /// # Ok::<(), sterna::Error>(())
    /// ```
    pub fn attention_backward(&mut self, options: &AttentionBackward) -> Result<AttentionIds> {
        let AttentionBackward { forward, d_dst, d_q, d_k, d_v } = options;
        let more: Vec<&LogicalTensor> =
            [Some(d_dst), d_q.as_ref(), d_k.as_ref(), d_v.as_ref()].into_iter().flatten().collect();
        self.add_sequence(forward, &more, |sequence, heads| sequence.gradients(options, heads))
    }
}

/// The operands of the products of gradients.
struct GradientOperands {
    q: LogicalTensor,
    k: LogicalTensor,
    v: LogicalTensor,
    d_dst: LogicalTensor,
    dst: LogicalTensor,
    stats: Option<LogicalTensor>,
}

/// Refuses options that no gradients can have.
fn check_gradients(options: &AttentionBackward) -> Result<()> {
    check(&options.forward)?;
    if let Some(paged) = &options.forward.positions.paged {
        return Err(value("paged", paged.lengths.id(), "no gradient goes to the pages of a cache"));
    }
    if let Some(of) = options.forward.k_scales.as_ref().or(options.forward.v_scales.as_ref()) {
        return Err(value("quantized_keys", of.scales.id(), "no gradient goes to integers"));
    }
    if let (Some(sinks), None) = (&options.forward.sinks, &options.forward.stats) {
        return Err(value("sinks", sinks.id(), "gradients beside sinks need the `stats` of forward"));
    }
    let t = options.forward.q.data_type();
    let wanted = [("d_q", &options.d_q), ("d_k", &options.d_k), ("d_v", &options.d_v)];
    let given = wanted.iter().filter_map(|(name, to)| to.as_ref().map(|to| (*name, to)));
    for (option, tensor) in given.chain([("d_dst", &options.d_dst)]) {
        if tensor.data_type() != t {
            let (tensor, given) = (tensor.id(), tensor.data_type());
            let rule = "gradients have the type of `q`";
            return Err(AttentionFault::Type { option, tensor, given, rule }.into());
        }
    }
    match wanted.iter().all(|(_, to)| to.is_none()) {
        true => Err(value("d_q", "nothing", "one of `d_q`, `d_k` and `d_v` is wanted")),
        false => Ok(()),
    }
}

impl OpSequence {
    /// Adds all ops; answers with the ids of scores, masked scores and weights.
    fn gradients(&mut self, options: &AttentionBackward, heads: Option<Heads>) -> Result<[TensorId; 3]> {
        check_gradients(options)?;
        let forward = &options.forward;
        let tensors = self.by_heads(options, heads)?;
        let (raw, scores) = self.scores(forward, heads, &tensors)?;
        let weights = self.weights(forward, &scores, tensors.stats.as_ref());
        let ids = [raw.id(), scores.id(), weights.id()];
        if let Some(to) = &options.d_v {
            let p = self.typed("typed_weights", weights.clone(), forward.q.data_type());
            self.over_queries(options, heads, p, tensors.d_dst.clone(), ("d_v", &forward.v, to, false))?;
        }
        if options.d_q.is_none() && options.d_k.is_none() {
            return Ok(ids);
        }
        let ds = self.gradient_of_scores(forward, &tensors, weights)?;
        if let Some(to) = &options.d_q {
            self.gradient_of_queries(forward, heads, ds.clone(), tensors.k, to)?;
        }
        if let Some(to) = &options.d_k {
            self.over_queries(options, heads, ds, tensors.q, ("d_k", &forward.q, to, forward.k_transposed))?;
        }
        Ok(ids)
    }

    /// The operands, with the heads that share keys in a dim of their own.
    fn by_heads(&mut self, options: &AttentionBackward, heads: Option<Heads>) -> Result<GradientOperands> {
        let AttentionBackward { forward: Attention { q, k, v, dst, stats, .. }, d_dst, .. } = options;
        let Some(Heads { of_keys, groups, .. }) = heads else {
            let [q, k, v, d_dst, dst] = [q, k, v, d_dst, dst].map(LogicalTensor::clone);
            return Ok(GradientOperands { q, k, v, d_dst, dst, stats: stats.clone() });
        };
        let (of_queries, shared) = ([of_keys, groups], [of_keys, 1]);
        Ok(GradientOperands {
            q: self.regrouped(q, "q", of_queries)?,
            k: self.regrouped(k, "k", shared)?,
            v: self.regrouped(v, "v", shared)?,
            d_dst: self.regrouped(d_dst, "d_dst", of_queries)?,
            stats: stats.as_ref().map(|given| self.regrouped(given, "stats", of_queries)).transpose()?,
            dst: match stats {
                Some(_) => self.regrouped(dst, "dst", of_queries)?,
                None => dst.clone(),
            },
        })
    }

    /// The scores as forward computes them, raw and as they enter the SoftMax.
    fn scores(
        &mut self,
        forward: &Attention,
        heads: Option<Heads>,
        tensors: &GradientOperands,
    ) -> Result<(LogicalTensor, LogicalTensor)> {
        let raw = self.next(forward.score_type);
        let product = self.op(OpKind::MatMul, "scores").attr(Attr::TransposeB, !forward.k_transposed);
        let operands = [tensors.q.clone(), tensors.k.clone()];
        self.ops.push(product.inputs_from(operands).output(raw.clone()));
        let scores = self.scaled(forward, raw.clone())?;
        Ok((raw, self.biased_and_masked(forward, heads, scores)?))
    }

    /// The weights: from the statistics of forward if they are given, else by a SoftMax.
    fn weights(
        &mut self,
        forward: &Attention,
        scores: &LogicalTensor,
        stats: Option<&LogicalTensor>,
    ) -> LogicalTensor {
        let weights = self.next(forward.score_type);
        match stats {
            Some(stats) => {
                let operands = (scores.clone(), stats.clone());
                let below =
                    self.pair(OpKind::Subtract, "below_stats", operands.0, operands.1, forward.score_type);
                let exp = self.op(OpKind::Exp, "weights");
                self.ops.push(exp.input(below).output(weights.clone()));
            }
            None => {
                let mode = if forward.nan_without_keys { "none" } else { "inf_as_zero" };
                let softmax = self.op(OpKind::SoftMax, "weights").attr(Attr::Axis, -1i64);
                let softmax = softmax.attr(Attr::Mode, mode);
                self.ops.push(softmax.input(scores.clone()).output(weights.clone()));
            }
        }
        weights
    }

    /// The gradient of the raw scores, in the type of the operands.
    fn gradient_of_scores(
        &mut self,
        forward: &Attention,
        tensors: &GradientOperands,
        weights: LogicalTensor,
    ) -> Result<LogicalTensor> {
        let t = forward.score_type;
        let d_weights = self.next(t);
        let product = self.op(OpKind::MatMul, "d_weights").attr(Attr::TransposeB, true);
        let operands = [tensors.d_dst.clone(), tensors.v.clone()];
        self.ops.push(product.inputs_from(operands).output(d_weights.clone()));
        let slopes = match &tensors.stats {
            Some(_) => {
                let [dst, d_dst] = [&tensors.dst, &tensors.d_dst].map(LogicalTensor::clone);
                let both = self.pair(OpKind::Multiply, "dst_times_d_dst", dst, d_dst, DataType::F32);
                let sums = self.next(DataType::F32);
                let sum = self.op(OpKind::ReduceSum, "sums").attr(Attr::Axes, &[-1i64][..]);
                self.ops.push(sum.attr(Attr::KeepDims, true).input(both).output(sums.clone()));
                let distance = self.pair(OpKind::Subtract, "distance", d_weights, sums, t);
                self.pair(OpKind::Multiply, "slopes", weights, distance, t)
            }
            None => {
                let slopes = self.next(t);
                let op = self.op(OpKind::SoftMaxBackward, "slopes").attr(Attr::Axis, -1i64);
                self.ops.push(op.inputs_from([d_weights, weights]).output(slopes.clone()));
                slopes
            }
        };
        let slopes = self.unscaled(forward, slopes)?;
        Ok(self.typed("typed_slopes", slopes, forward.q.data_type()))
    }

    /// The product that gives dQ, with the heads of queries in one dim again.
    fn gradient_of_queries(
        &mut self,
        forward: &Attention,
        heads: Option<Heads>,
        ds: LogicalTensor,
        k: LogicalTensor,
        to: &LogicalTensor,
    ) -> Result<()> {
        let result = if heads.is_some() { self.next(forward.q.data_type()) } else { to.clone() };
        let product = self.op(OpKind::MatMul, "d_q").attr(Attr::TransposeB, forward.k_transposed);
        self.ops.push(product.inputs_from([ds, k]).output(result.clone()));
        let Some(Heads { of_queries, .. }) = heads else { return Ok(()) };
        let dims = HeadDims {
            front: Some(batch([&forward.q, &forward.k, &forward.v])),
            heads: vec![of_queries],
            last: [2, 1].map(|back| from_end(&forward.q, back)),
            open: Open::Rows,
        };
        self.reshape("d_q", result, dims, to.clone())
    }

    /// A tensor in a type.
    fn typed(&mut self, name: &str, from: LogicalTensor, t: DataType) -> LogicalTensor {
        if from.data_type() == t {
            return from;
        }
        let to = self.next(t);
        let op = self.op(OpKind::TypeCast, name);
        self.ops.push(op.input(from).output(to.clone()));
        to
    }

    /// The gradients of raw scores from those of scores that are scaled and capped.
    fn unscaled(&mut self, forward: &Attention, mut slopes: LogicalTensor) -> Result<LogicalTensor> {
        let t = forward.score_type;
        let bent = self.ops.iter().find(|op| op.kind() == OpKind::Tanh).map(|op| op.outputs()[0].clone());
        if let Some(bent) = bent {
            let square = self.pair(OpKind::Multiply, "square", bent.clone(), bent, t);
            let one = self.constant("one", t, 1.0)?;
            let slope = self.pair(OpKind::Subtract, "slope_of_cap", one, square, t);
            slopes = self.pair(OpKind::Multiply, "uncapped", slopes, slope, t);
        }
        let scale = match forward.scale {
            Some(scale) => scale,
            None => {
                let d = from_end(&forward.q, 1);
                let d = d.ok_or_else(|| unknown("scale", "the last dim of `q`", &forward.q))?;
                (d.max(1) as f64).sqrt().recip() as f32
            }
        };
        let scale = self.constant("scale", t, scale)?;
        Ok(self.pair(OpKind::Multiply, "unscaled", slopes, scale, t))
    }

    /// The product that sums up over queries, the sum over the heads that share keys, and what brings the
    /// result into the form of its tensor. `of` has the depth of the result.
    fn over_queries(
        &mut self,
        options: &AttentionBackward,
        heads: Option<Heads>,
        left: LogicalTensor,
        right: LogicalTensor,
        (name, of, to, is_transposed): (&'static str, &LogicalTensor, &LogicalTensor, bool),
    ) -> Result<()> {
        let t = options.forward.q.data_type();
        let is_summed = options.forward.groups.is_some_and(|groups| groups > 1);
        let mut steps =
            1 + usize::from(is_summed) + usize::from(heads.is_some()) + usize::from(is_transposed);
        let mut next = |sequence: &mut Self| {
            steps -= 1;
            if steps == 0 { to.clone() } else { sequence.next(t) }
        };
        let mut result = next(self);
        let product = self.op(OpKind::MatMul, name).attr(Attr::TransposeA, true);
        self.ops.push(product.inputs_from([left, right]).output(result.clone()));
        if is_summed {
            let summed = next(self);
            let sum = self.op(OpKind::ReduceSum, name).attr(Attr::Axes, &[-3i64][..]);
            self.ops.push(sum.attr(Attr::KeepDims, true).input(result).output(summed.clone()));
            result = summed;
        }
        if let Some(Heads { of_keys, .. }) = heads {
            let reshaped = next(self);
            let keys = from_end(&options.forward.k, if options.forward.k_transposed { 1 } else { 2 });
            let last = [keys, from_end(of, 1)];
            let Attention { q, k, v, .. } = &options.forward;
            let front = Some(batch([q, k, v]));
            let dims = HeadDims { front, heads: vec![of_keys], last, open: Open::Rows };
            self.reshape(name, result, dims, reshaped.clone())?;
            result = reshaped;
        }
        if is_transposed {
            let rank = options.forward.k.rank().ok_or_else(|| unknown("d_k", "the rank of `k`", of))?;
            let mut order: Vec<i64> = (0..rank as i64).collect();
            if let [.., tokens, elements] = &mut order[..] {
                std::mem::swap(tokens, elements);
            }
            let transpose = self.op(OpKind::StaticTranspose, name).attr(Attr::Order, order);
            let last = next(self);
            self.ops.push(transpose.input(result).output(last));
        }
        Ok(())
    }
}
