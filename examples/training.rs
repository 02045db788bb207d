//! Trains a small transformer with graphs alone: forward, loss, gradients and updates are ops, and Sterna
//! runs the partitions that it makes of them.
//!
//! Two layers of causal attention and a feed-forward block learn to say the token before the last
//! one. `cargo run --release --example training` prints the loss.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use sterna::{
    Attention, AttentionBackward, Attr, AttrValue, Causal, CompiledPartition, DataType, Engine, Graph,
    LogicalTensor, Op, OpKind, Policy, Result, Stream, TensorBuf, TensorId,
};

const LAYERS: usize = 2;
const HEADS: i64 = 2;
const TOKENS: i64 = 48;
const DEPTH: i64 = 8;
const WIDTH: i64 = HEADS * DEPTH;
const INNER: i64 = 32;
const WORDS: i64 = 6;
const RATE: f32 = 0.5;
const STEPS: usize = 120;

/// Matrices of a layer: of queries, keys, values and results of attention, then of the feed-forward block.
const SHAPES: [[i64; 2]; 6] =
    [[WIDTH, WIDTH], [WIDTH, WIDTH], [WIDTH, WIDTH], [WIDTH, WIDTH], [WIDTH, INNER], [INNER, WIDTH]];

/// Writes the graph of a training step.
struct Model {
    graph: Graph,
    next: TensorId,
    /// The parameters, and what each becomes.
    parameters: Vec<(LogicalTensor, LogicalTensor)>,
}

/// What the gradients of a layer need of forward.
struct Layer {
    input: LogicalTensor,
    heads: [LogicalTensor; 3],
    stats: LogicalTensor,
    attended: LogicalTensor,
    merged: LogicalTensor,
    between: LogicalTensor,
    inner: LogicalTensor,
    active: LogicalTensor,
    weights: Vec<LogicalTensor>,
}

impl Model {
    fn tensor(&mut self, dims: &[i64]) -> Result<LogicalTensor> {
        self.next += 1;
        LogicalTensor::strided(self.next, DataType::F32, dims)
    }

    fn op(
        &mut self,
        kind: OpKind,
        inputs: &[&LogicalTensor],
        dims: &[i64],
        attrs: &[(Attr, AttrValue)],
    ) -> Result<LogicalTensor> {
        let to = self.tensor(dims)?;
        let id = self.graph.ops().iter().map(Op::id).max().map_or(0, |id| id + 1);
        let op = Op::new(id, kind).inputs_from(inputs.iter().map(|&tensor| tensor.clone()));
        let op = attrs.iter().fold(op, |op, (attr, value)| op.attr(*attr, value.clone()));
        self.graph.add_op(op.output(to.clone()))?;
        Ok(to)
    }

    fn product(
        &mut self,
        [left, right]: [&LogicalTensor; 2],
        [transpose_left, transpose_right]: [bool; 2],
        dims: [i64; 2],
    ) -> Result<LogicalTensor> {
        let attrs = [(Attr::TransposeA, transpose_left.into()), (Attr::TransposeB, transpose_right.into())];
        self.op(OpKind::MatMul, &[left, right], &dims, &attrs)
    }

    fn add(&mut self, a: &LogicalTensor, b: &LogicalTensor) -> Result<LogicalTensor> {
        let dims = a.dims().unwrap_or_default().to_vec();
        self.op(OpKind::Add, &[a, b], &dims, &[])
    }

    /// [tokens, width] as [heads, tokens, depth], and back.
    fn split(&mut self, from: &LogicalTensor) -> Result<LogicalTensor> {
        let shape =
            [(Attr::Shape, AttrValue::from(&[TOKENS, HEADS, DEPTH][..])), (Attr::SpecialZero, false.into())];
        let heads = self.op(OpKind::StaticReshape, &[from], &[TOKENS, HEADS, DEPTH], &shape)?;
        let order = [(Attr::Order, AttrValue::from(&[1i64, 0, 2][..]))];
        self.op(OpKind::StaticTranspose, &[&heads], &[HEADS, TOKENS, DEPTH], &order)
    }

    fn merge(&mut self, from: &LogicalTensor) -> Result<LogicalTensor> {
        let order = [(Attr::Order, AttrValue::from(&[1i64, 0, 2][..]))];
        let tokens = self.op(OpKind::StaticTranspose, &[from], &[TOKENS, HEADS, DEPTH], &order)?;
        let shape = [(Attr::Shape, AttrValue::from(&[TOKENS, WIDTH][..])), (Attr::SpecialZero, false.into())];
        self.op(OpKind::StaticReshape, &[&tokens], &[TOKENS, WIDTH], &shape)
    }

    /// A parameter, an input of the graph.
    fn parameter(&mut self, dims: [i64; 2]) -> Result<LogicalTensor> {
        self.tensor(&dims)
    }

    /// The parameter after a step against the gradient.
    fn update(&mut self, parameter: &LogicalTensor, gradient: &LogicalTensor) -> Result<()> {
        let dims = parameter.dims().unwrap_or_default().to_vec();
        let rate = self.constant(RATE)?;
        let step = self.op(OpKind::Multiply, &[gradient, &rate], &dims, &[])?;
        let next = self.op(OpKind::Subtract, &[parameter, &step], &dims, &[])?;
        self.parameters.push((parameter.clone(), next));
        Ok(())
    }

    fn constant(&mut self, number: f32) -> Result<LogicalTensor> {
        let attrs = [(Attr::Shape, AttrValue::from(&[0i64; 0][..])), (Attr::Value, number.into())];
        self.op(OpKind::Fill, &[], &[], &attrs)
    }

    fn layer(&mut self, input: LogicalTensor) -> Result<(Layer, LogicalTensor)> {
        let weights: Vec<LogicalTensor> =
            SHAPES.iter().map(|&dims| self.parameter(dims)).collect::<Result<_>>()?;
        let mut heads = Vec::new();
        for weights in &weights[..3] {
            let projected = self.product([&input, weights], [false; 2], [TOKENS, WIDTH])?;
            heads.push(self.split(&projected)?);
        }
        let heads = [heads[0].clone(), heads[1].clone(), heads[2].clone()];
        let (attended, stats) = (self.tensor(&[HEADS, TOKENS, DEPTH])?, self.tensor(&[HEADS, TOKENS, 1])?);
        let options = attention(&heads, &attended, &stats);
        self.next = self.graph.attention(&options)?.tensors.end;
        let merged = self.merge(&attended)?;
        let projected = self.product([&merged, &weights[3]], [false; 2], [TOKENS, WIDTH])?;
        let between = self.add(&input, &projected)?;
        let inner = self.product([&between, &weights[4]], [false; 2], [TOKENS, INNER])?;
        let active = self.op(OpKind::ReLU, &[&inner], &[TOKENS, INNER], &[])?;
        let projected = self.product([&active, &weights[5]], [false; 2], [TOKENS, WIDTH])?;
        let output = self.add(&between, &projected)?;
        Ok((Layer { input, heads, stats, attended, merged, between, inner, active, weights }, output))
    }

    /// The gradient of the input of a layer, and updates of its parameters.
    fn layer_backward(&mut self, of: &Layer, d_output: &LogicalTensor) -> Result<LogicalTensor> {
        let [of_left, of_right] = [[true, false], [false, true]];
        let d_weights = self.product([&of.active, d_output], of_left, SHAPES[5])?;
        self.update(&of.weights[5], &d_weights)?;
        let d_active = self.product([d_output, &of.weights[5]], of_right, [TOKENS, INNER])?;
        let d_inner = self.op(
            OpKind::ReLUBackward,
            &[&of.inner, &d_active],
            &[TOKENS, INNER],
            &[(Attr::UseDst, false.into())],
        )?;
        let d_weights = self.product([&of.between, &d_inner], of_left, SHAPES[4])?;
        self.update(&of.weights[4], &d_weights)?;
        let d_between = self.product([&d_inner, &of.weights[4]], of_right, [TOKENS, WIDTH])?;
        let d_between = self.add(&d_between, d_output)?;
        let d_weights = self.product([&of.merged, &d_between], of_left, SHAPES[3])?;
        self.update(&of.weights[3], &d_weights)?;
        let d_merged = self.product([&d_between, &of.weights[3]], of_right, [TOKENS, WIDTH])?;

        let d_attended = self.split(&d_merged)?;
        let dims = [HEADS, TOKENS, DEPTH];
        let [d_q, d_k, d_v] = [self.tensor(&dims)?, self.tensor(&dims)?, self.tensor(&dims)?];
        let options = attention(&of.heads, &of.attended, &of.stats);
        let backward = AttentionBackward::new(options, d_attended);
        let backward = backward.d_q(d_q.clone()).d_k(d_k.clone()).d_v(d_v.clone());
        self.next = self.graph.attention_backward(&backward)?.tensors.end;

        let mut d_input = d_between;
        for (place, gradient) in [d_q, d_k, d_v].iter().enumerate() {
            let gradient = self.merge(gradient)?;
            let d_weights = self.product([&of.input, &gradient], of_left, SHAPES[place])?;
            self.update(&of.weights[place], &d_weights)?;
            let more = self.product([&gradient, &of.weights[place]], of_right, [TOKENS, WIDTH])?;
            d_input = self.add(&d_input, &more)?;
        }
        Ok(d_input)
    }
}

fn attention(heads: &[LogicalTensor; 3], to: &LogicalTensor, stats: &LogicalTensor) -> Attention {
    let [q, k, v] = heads.clone();
    Attention::new(q, k, v, to.clone()).causal(Causal::TopLeft).stats(stats.clone())
}

/// A model that is trained: its partitions, and all tensors by id.
pub struct Training {
    steps: Vec<CompiledPartition>,
    tensors: BTreeMap<TensorId, TensorBuf>,
    stream: Stream,
    /// The parameters, by id, and the tensors that replace them.
    pub parameters: Vec<(TensorId, TensorId)>,
    loss: TensorId,
}

impl Training {
    /// A model of random parameters, and what it learns from.
    pub fn new(engine: &Engine) -> Result<Self> {
        let mut model = Model { graph: Graph::new(), next: 0, parameters: Vec::new() };
        // One token is a row of zeros and a one.
        let (tokens, wanted) = (model.tensor(&[TOKENS, WORDS])?, model.tensor(&[TOKENS, WORDS])?);
        let places = model.parameter([TOKENS, WIDTH])?;
        let (embedding, unembedding) = (model.parameter([WORDS, WIDTH])?, model.parameter([WIDTH, WORDS])?);
        let words = model.product([&tokens, &embedding], [false; 2], [TOKENS, WIDTH])?;
        let mut state = model.add(&words, &places)?;
        let mut layers = Vec::new();
        for _ in 0..LAYERS {
            let (layer, output) = model.layer(state)?;
            layers.push(layer);
            state = output;
        }
        let logits = model.product([&state, &unembedding], [false; 2], [TOKENS, WORDS])?;
        let along = [(Attr::Axis, AttrValue::from(-1i64))];
        let log_shares = model.op(OpKind::LogSoftmax, &[&logits], &[TOKENS, WORDS], &along)?;
        let hits = model.op(OpKind::Multiply, &[&log_shares, &wanted], &[TOKENS, WORDS], &[])?;
        let all = [(Attr::Axes, AttrValue::from(&[0i64, 1][..])), (Attr::KeepDims, false.into())];
        let sum = model.op(OpKind::ReduceSum, &[&hits], &[], &all)?;
        let share = model.constant(-1.0 / TOKENS as f32)?;
        let loss = model.op(OpKind::Multiply, &[&sum, &share], &[], &[])?;

        let d_log_shares = model.op(OpKind::Multiply, &[&wanted, &share], &[TOKENS, WORDS], &[])?;
        let pair = [&d_log_shares, &log_shares];
        let d_logits = model.op(OpKind::LogSoftmaxBackward, &pair, &[TOKENS, WORDS], &along)?;
        let d_weights = model.product([&state, &d_logits], [true, false], [WIDTH, WORDS])?;
        model.update(&unembedding, &d_weights)?;
        let mut d_state = model.product([&d_logits, &unembedding], [false, true], [TOKENS, WIDTH])?;
        for layer in layers.iter().rev() {
            d_state = model.layer_backward(layer, &d_state)?;
        }
        let d_weights = model.product([&tokens, &d_state], [true, false], [WORDS, WIDTH])?;
        model.update(&embedding, &d_weights)?;
        model.update(&places, &d_state)?;
        model.graph.add_op(Op::new(usize::MAX, OpKind::End).input(loss.clone()))?;
        model.graph.finalize()?;

        let mut tensors = BTreeMap::new();
        let mut steps = Vec::new();
        for partition in model.graph.partitions(Policy::Fusion)? {
            if partition.ops()[0].kind() == OpKind::End {
                continue;
            }
            let known = |port: &LogicalTensor, tensors: &BTreeMap<TensorId, TensorBuf>| {
                tensors.get(&port.id()).map_or(port.clone(), |tensor| tensor.desc().clone())
            };
            for port in partition.inputs() {
                if let Entry::Vacant(place) = tensors.entry(port.id()) {
                    place.insert(TensorBuf::zeroed(port.clone(), engine)?);
                }
            }
            let inputs: Vec<LogicalTensor> =
                partition.inputs().iter().map(|port| known(port, &tensors)).collect();
            let compiled = partition.compile_for(engine, &inputs, partition.outputs())?;
            for output in compiled.outputs() {
                tensors.insert(output.id(), TensorBuf::zeroed(output.clone(), engine)?);
            }
            steps.push(compiled);
        }
        let parameters = model.parameters.iter().map(|(of, next)| (of.id(), next.id())).collect();
        let mut training = Self { steps, tensors, stream: Stream::new(engine), parameters, loss: loss.id() };
        training.fill([tokens.id(), wanted.id()]);
        Ok(training)
    }

    /// Random words, of which each wants the one before it, and random parameters.
    fn fill(&mut self, [tokens, wanted]: [TensorId; 2]) {
        let mut state = 1u64;
        let mut next = move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1 << 24) as f32
        };
        let words: Vec<usize> = (0..TOKENS).map(|_| (next() * WORDS as f32) as usize).collect();
        let before: Vec<usize> = (0..words.len()).map(|at| words[at.saturating_sub(1)]).collect();
        for (id, of) in [(tokens, words), (wanted, before)] {
            let row = |word: usize| (0..WORDS as usize).map(move |other| f32::from(u8::from(other == word)));
            self.write(id, &of.into_iter().flat_map(row).collect::<Vec<f32>>());
        }
        let ids: Vec<TensorId> = self.parameters.iter().map(|&(id, _)| id).collect();
        for id in ids {
            let numbers: Vec<f32> = self.read(id).iter().map(|_| (next() - 0.5) * 0.8).collect();
            self.write(id, &numbers);
        }
    }

    /// The numbers of a tensor.
    pub fn read(&self, id: TensorId) -> Vec<f32> {
        let bytes = self.tensors[&id].as_bytes().chunks_exact(4);
        bytes.map(|of| f32::from_ne_bytes([of[0], of[1], of[2], of[3]])).collect()
    }

    /// Replaces the numbers of a tensor.
    pub fn write(&mut self, id: TensorId, numbers: &[f32]) {
        if let Some(tensor) = self.tensors.get_mut(&id) {
            let bytes = tensor.as_mut_bytes().chunks_exact_mut(4);
            bytes.zip(numbers).for_each(|(to, number)| to.copy_from_slice(&number.to_ne_bytes()));
        }
    }

    /// Runs the graph, and gives the loss; the parameters stay as they are.
    pub fn run(&mut self) -> Result<f32> {
        for step in &self.steps {
            let mut outputs: Vec<TensorBuf> =
                step.outputs().iter().filter_map(|desc| self.tensors.remove(&desc.id())).collect();
            let inputs: Vec<_> =
                step.inputs().iter().map(|desc| self.tensors[&desc.id()].as_tensor()).collect();
            let mut into: Vec<_> = outputs.iter_mut().map(TensorBuf::as_tensor_mut).collect();
            step.execute(&self.stream, &inputs, &mut into)?;
            drop(into);
            self.tensors.extend(outputs.into_iter().map(|tensor| (tensor.desc().id(), tensor)));
        }
        Ok(self.read(self.loss)[0])
    }

    /// Takes the updated parameters over.
    pub fn step(&mut self) {
        for (parameter, next) in self.parameters.clone() {
            let numbers = self.read(next);
            self.write(parameter, &numbers);
        }
    }

    /// The gradient of a parameter that a run has found, from what the parameter would become.
    pub fn gradient(&self, place: usize) -> Vec<f32> {
        let (parameter, next) = self.parameters[place];
        self.read(parameter).iter().zip(self.read(next)).map(|(now, next)| (now - next) / RATE).collect()
    }

    /// The numbers of partitions, and of those with the gradients of attention.
    pub fn partitions(&self) -> (usize, usize) {
        let is_backward = |step: &&CompiledPartition| {
            step.plan().nests.iter().any(|nest| nest.kind == sterna::PhaseKind::AttentionBackward)
        };
        (self.steps.len(), self.steps.iter().filter(is_backward).count())
    }
}

#[allow(dead_code, reason = "a test has this file as a module")]
fn main() -> Result<()> {
    let mut training = Training::new(&Engine::new())?;
    let (partitions, backward) = training.partitions();
    println!("{partitions} partitions, {backward} of them with the gradients of attention");
    for step in 0..STEPS {
        let loss = training.run()?;
        if step % 20 == 0 || step == STEPS - 1 {
            println!("step {step:>3}: loss {loss:.4}");
        }
        training.step();
    }
    Ok(())
}
