//! Graphs of the gradients of attention, in the forms in which frameworks write them.
#![allow(dead_code, unreachable_pub, reason = "each user uses a part of this")]

use sterna::{Attr, DataType, OpKind};

use crate::attention::{Builder, Heads, Port, Setup, floats, numbers, value_of};
use crate::common::Random;

use DataType as D;
use OpKind as K;

/// The source of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weights {
    /// The exponentials of the scores less the statistics of the SoftMax.
    Stats,
    /// A SoftMax, whose gradient is SoftMaxBackward.
    SoftMax,
    /// A SoftMax, whose gradient is written with the sums of results and their gradients.
    SoftMaxBySums,
}

pub const WEIGHTS: [Weights; 3] = [Weights::Stats, Weights::SoftMax, Weights::SoftMaxBySums];

/// Adds ops behind the gradients of scores.
pub type OfMask = fn(&mut Builder, &Port);

/// The form of a graph of gradients.
#[derive(Debug, Clone)]
pub struct Gradients {
    pub heads: Heads,
    pub weights: Weights,
    /// Which gradients are wanted: of queries, keys and values.
    pub wanted: [bool; 3],
    /// Weights are dropped out.
    pub has_dropout: bool,
    /// The type of scores, and of all that has their shape but for the operands of products.
    pub of_scores: DataType,
    /// The sums of the gradients of keys and values over this axis, and whether the axis stays.
    pub summed: Option<(i64, bool)>,
    pub is_known: bool,
    pub inf_as_zero: bool,
    /// Ops that use the gradients of the scores behind the chain, which are those of a mask.
    pub of_mask: Option<OfMask>,
}

impl Gradients {
    pub fn new(heads: Heads, weights: Weights) -> Self {
        Self {
            heads,
            weights,
            wanted: [true; 3],
            has_dropout: false,
            of_scores: D::F32,
            summed: None,
            is_known: true,
            inf_as_zero: true,
            of_mask: None,
        }
    }

    /// The graph, and its results in the order of queries, keys and values; `chain` makes what enters the
    /// SoftMax from scores that are scaled.
    pub fn graph(
        &self,
        seed: u64,
        chain: impl Fn(&mut Builder, &Port) -> Port,
    ) -> (Builder, [Option<Port>; 3]) {
        let (mut builder, results) = self.graph_without_forward(seed, &chain);
        self.plant_forward(&mut builder, &chain);
        (builder, results)
    }

    /// The graph with zeros for what forward gives.
    pub fn graph_without_forward(
        &self,
        seed: u64,
        chain: impl Fn(&mut Builder, &Port) -> Port,
    ) -> (Builder, [Option<Port>; 3]) {
        let mut builder = Builder::new(self.is_known);
        let random = &mut Random::new(seed);
        let (heads, of, to) = (&self.heads, self.of_scores, self.heads.data_type);
        let [q, k, v] = heads.inputs(&mut builder, random);
        let rank = q.dims.len();
        let mut dims = q.dims.clone();
        dims[rank - 1] = *v.dims.last().unwrap();
        let own = crate::attention::strides(&dims, heads.lie);
        let of_result = numbers(random, &dims, 1.0);
        let d_result = builder.input(to, &dims, Some(&own), &of_result);
        let transpose_k = !heads.key_view;

        let product = builder.matmul(&q, &k, transpose_k, of);
        let scale = builder.scalar(D::F32, 1.0 / (heads.d as f32).sqrt());
        let scale = if of == D::F32 { scale } else { builder.scalar(of, 1.0 / (heads.d as f32).sqrt()) };
        let scores = builder.op(K::Multiply, &[&product, &scale], of);
        let scores = chain(&mut builder, &scores);
        let keep = self.has_dropout.then(|| {
            let (seed, offset) = (builder.scalar(D::S64, 0.0), builder.scalar(D::S64, 3.0));
            [seed, offset, builder.scalar(D::F32, 0.25)]
        });
        let drop_out = |builder: &mut Builder, of: &Port| match &keep {
            Some([seed, offset, probability]) => {
                builder.op(K::Dropout, &[of, seed, offset, probability], of.data_type())
            }
            None => of.clone(),
        };
        let typed = |builder: &mut Builder, of: Port| match of.data_type() == to {
            true => of,
            false => builder.op(K::TypeCast, &[&of], to),
        };

        // The statistics of forward: the reference computes them later, and they are planted here.
        let stats = {
            let mut dims = scores.dims.clone();
            *dims.last_mut().unwrap() = 1;
            let zeros = vec![0.0; dims.iter().product::<i64>() as usize];
            (self.weights == Weights::Stats).then(|| builder.input(D::F32, &dims, None, &zeros))
        };
        let weights = match &stats {
            Some(stats) => {
                let below = builder.op(K::Subtract, &[&scores, stats], of);
                builder.op(K::Exp, &[&below], of)
            }
            None => builder.softmax(&scores, self.inf_as_zero, of),
        };
        let mut results = [None, None, None];
        let [of_q, of_k, of_v] = self.wanted;
        let with_transpose = |builder: &mut Builder, a: &Port, b: &Port| {
            let attrs = [(Attr::TransposeA, true.into())];
            let product = builder.op_with(K::MatMul, &[a, b], &[to], &attrs).remove(0);
            match self.summed {
                Some((axis, keeps)) => {
                    let attrs = [(Attr::Axes, [axis].as_slice().into()), (Attr::KeepDims, keeps.into())];
                    builder.op_with(K::ReduceSum, &[&product], &[to], &attrs).remove(0)
                }
                None => product,
            }
        };
        if of_v {
            let dropped = drop_out(&mut builder, &weights);
            let factors = typed(&mut builder, dropped);
            results[2] = Some(with_transpose(&mut builder, &factors, &d_result));
        }
        if of_q || of_k {
            let d_weights = builder.matmul(&d_result, &v, true, of);
            let d_weights = drop_out(&mut builder, &d_weights);
            let slopes = match self.weights {
                Weights::SoftMax => {
                    let along_keys = [(Attr::Axis, (-1i64).into())];
                    let both = [&d_weights, &weights];
                    builder.op_with(K::SoftMaxBackward, &both, &[of], &along_keys).remove(0)
                }
                _ => {
                    let zeros = vec![0.0; of_result.len()];
                    let result = builder.input(to, &dims, Some(&own), &zeros);
                    let both = builder.op(K::Multiply, &[&result, &d_result], D::F32);
                    let axes = [(Attr::Axes, [-1i64].as_slice().into()), (Attr::KeepDims, true.into())];
                    let sums = builder.op_with(K::ReduceSum, &[&both], &[D::F32], &axes).remove(0);
                    let distance = builder.op(K::Subtract, &[&d_weights, &sums], of);
                    builder.op(K::Multiply, &[&weights, &distance], of)
                }
            };
            if let Some(of_mask) = self.of_mask {
                of_mask(&mut builder, &slopes);
            }
            let slopes = builder.op(K::Multiply, &[&slopes, &scale], of);
            let slopes = typed(&mut builder, slopes);
            if of_q {
                // Keys that are a transposed view are so here as well.
                results[0] = Some(builder.matmul(&slopes, &k, heads.key_view, to));
            }
            if of_k {
                results[1] = Some(with_transpose(&mut builder, &slopes, &q));
            }
        }
        (builder, results)
    }

    /// The graph, ready to run.
    pub fn setup(&self, seed: u64, chain: impl Fn(&mut Builder, &Port) -> Port) -> Setup {
        self.graph(seed, chain).0.finish()
    }

    /// Puts what forward gives of the same inputs into the inputs for statistics and results, which have
    /// zeros so far.
    fn plant_forward(&self, builder: &mut Builder, chain: &impl Fn(&mut Builder, &Port) -> Port) {
        let heads = &self.heads;
        let mut forward = Builder::new(true);
        let [q, k, v] = heads.inputs(&mut forward, &mut Random::new(0));
        let rank = q.dims.len();
        for (given, own) in forward.inputs.iter_mut().zip(&builder.inputs) {
            given.value = own.value.clone();
        }
        let scores = forward.matmul(&q, &k, !heads.key_view, D::F32);
        let scale = forward.scalar(D::F32, 1.0 / (heads.d as f32).sqrt());
        let scores = forward.op(K::Multiply, &[&scores, &scale], D::F32);
        let scores = chain(&mut forward, &scores);
        let [shares, stats] = forward.softmax_with_stats(&scores, self.inf_as_zero, D::F32);
        let shares = match self.has_dropout {
            true => {
                let (seed, offset) = (forward.scalar(D::S64, 0.0), forward.scalar(D::S64, 3.0));
                let probability = forward.scalar(D::F32, 0.25);
                forward.op(K::Dropout, &[&shares, &seed, &offset, &probability], D::F32)
            }
            false => shares,
        };
        let v = if v.data_type() == D::F32 { v } else { forward.op(K::TypeCast, &[&v], D::F32) };
        let result = forward.matmul(&shares, &v, false, D::F32);
        let [of_stats, of_result] = [&stats, &result].map(|port| port.id());
        forward.hand_out(&stats);
        forward.hand_out(&result);
        let setup = forward.finish();
        let made = setup.enclosures();
        let plain = |id: usize| -> Vec<f32> {
            floats(made[&id].value()).iter().map(|&x| if x.is_nan() { 0.0 } else { x as f32 }).collect()
        };
        let mut stats_dims = scores.dims.clone();
        stats_dims[rank - 1] = 1;
        for given in &mut builder.inputs {
            let is_zero = floats(&given.value).iter().all(|&x| x == 0.0);
            let (data_type, dims) = (given.value.data_type(), given.value.dims().to_vec());
            if is_zero && dims == stats_dims && data_type == D::F32 && self.weights == Weights::Stats {
                given.value = value_of(data_type, &dims, &plain(of_stats));
            } else if is_zero && dims == result.dims {
                given.value = value_of(data_type, &dims, &plain(of_result));
            }
        }
    }
}
