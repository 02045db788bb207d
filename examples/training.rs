//! Trains a small transformer with graphs alone: forward, loss, gradients and updates are ops, and Sterna
//! runs the partitions that it makes of them.
//!
//! Two layers of causal attention and a feed-forward block learn to say the token before the last
//! one. `cargo run --release --example training` prints the loss. `--dropout P` leaves elements of what each
//! block adds out with that probability; `--dump DIR` writes inputs, parameters, loss and gradients of the
//! first step as .npy files, for `benches/attention/training.py`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::error::Error;
use std::fs;
use std::path::Path;

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

/// How elements are left out while the model is trained.
#[derive(Debug, Clone, Copy)]
pub struct Dropout {
    /// The same seed leaves out the same elements.
    pub seed: i64,
    /// The share that is left out.
    pub probability: f32,
}

/// The tensors that the Dropout ops of a graph read and write.
struct Dropped {
    seed: LogicalTensor,
    probability: LogicalTensor,
    /// One for each place in the model, so that no two of them leave out the same.
    offsets: Vec<LogicalTensor>,
    masks: Vec<LogicalTensor>,
}

/// Writes the graph of a training step.
struct Model {
    graph: Graph,
    next: usize,
    dropped: Option<Dropped>,
    /// The parameters, and what each becomes.
    parameters: Vec<(LogicalTensor, LogicalTensor)>,
}

/// The results of forward that the gradients of a layer need.
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
    /// Numbers of the offsets of its two Dropouts.
    places: [usize; 2],
}

impl Model {
    fn new(dropout: bool) -> Result<Self> {
        let mut model = Self { graph: Graph::new(), next: 0, dropped: None, parameters: Vec::new() };
        if dropout {
            let seed = model.of_type(DataType::S64, &[])?;
            let probability = model.tensor(&[])?;
            model.dropped = Some(Dropped { seed, probability, offsets: Vec::new(), masks: Vec::new() });
        }
        Ok(model)
    }

    fn of_type(&mut self, data_type: DataType, dims: &[i64]) -> Result<LogicalTensor> {
        self.next += 1;
        LogicalTensor::strided(self.next, data_type, dims)
    }

    fn tensor(&mut self, dims: &[i64]) -> Result<LogicalTensor> {
        self.of_type(DataType::F32, dims)
    }

    fn op(
        &mut self,
        kind: OpKind,
        inputs: &[&LogicalTensor],
        dims: &[i64],
        attrs: &[(Attr, AttrValue)],
    ) -> Result<LogicalTensor> {
        let to = self.tensor(dims)?;
        let op = Op::new(self.free(), kind).inputs_from(inputs.iter().map(|&tensor| tensor.clone()));
        let op = attrs.iter().fold(op, |op, (attr, value)| op.attr(*attr, value.clone()));
        self.graph.add_op(op.output(to.clone()))?;
        Ok(to)
    }

    /// An id that no op has.
    fn free(&self) -> usize {
        self.graph.ops().iter().map(|op| op.id().get() + 1).max().unwrap_or(0)
    }

    /// A tensor with elements left out, if the model leaves any out, and the number of the place.
    fn dropout(&mut self, from: &LogicalTensor) -> Result<(LogicalTensor, usize)> {
        if self.dropped.is_none() {
            return Ok((from.clone(), 0));
        }
        let offset = self.of_type(DataType::S64, &[])?;
        let mask = self.of_type(DataType::U8, from.dims().unwrap_or_default())?;
        let place = self.dropped.as_mut().map_or(0, |dropped| {
            dropped.offsets.push(offset);
            dropped.masks.push(mask.clone());
            dropped.offsets.len() - 1
        });
        Ok((self.dropout_at(from, place, Some(mask))?, place))
    }

    /// The gradient of a Dropout is the same Dropout: equal seeds and offsets leave out the same elements.
    fn dropout_at(
        &mut self,
        from: &LogicalTensor,
        place: usize,
        mask: Option<LogicalTensor>,
    ) -> Result<LogicalTensor> {
        let to = self.tensor(from.dims().unwrap_or_default())?;
        let Some(Dropped { seed, probability, offsets, .. }) = &self.dropped else {
            return Ok(from.clone());
        };
        let inputs = [from, seed, &offsets[place], probability].map(LogicalTensor::clone);
        let op = Op::new(self.free(), OpKind::Dropout).inputs_from(inputs).output(to.clone());
        self.graph.add_op(mask.into_iter().fold(op, Op::output))?;
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
        self.next = self.graph.attention(&options)?.tensors.end.get();
        let merged = self.merge(&attended)?;
        let projected = self.product([&merged, &weights[3]], [false; 2], [TOKENS, WIDTH])?;
        let (projected, of_attention) = self.dropout(&projected)?;
        let between = self.add(&input, &projected)?;
        let inner = self.product([&between, &weights[4]], [false; 2], [TOKENS, INNER])?;
        let active = self.op(OpKind::ReLU, &[&inner], &[TOKENS, INNER], &[])?;
        let projected = self.product([&active, &weights[5]], [false; 2], [TOKENS, WIDTH])?;
        let (projected, of_block) = self.dropout(&projected)?;
        let output = self.add(&between, &projected)?;
        let places = [of_attention, of_block];
        let layer = Layer { input, heads, stats, attended, merged, between, inner, active, weights, places };
        Ok((layer, output))
    }

    /// The gradient of the input of a layer, and updates of its parameters.
    fn layer_backward(&mut self, of: &Layer, d_output: &LogicalTensor) -> Result<LogicalTensor> {
        let [of_left, of_right] = [[true, false], [false, true]];
        let d_projected = self.dropout_at(d_output, of.places[1], None)?;
        let d_weights = self.product([&of.active, &d_projected], of_left, SHAPES[5])?;
        self.update(&of.weights[5], &d_weights)?;
        let d_active = self.product([&d_projected, &of.weights[5]], of_right, [TOKENS, INNER])?;
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
        let d_projected = self.dropout_at(&d_between, of.places[0], None)?;
        let d_weights = self.product([&of.merged, &d_projected], of_left, SHAPES[3])?;
        self.update(&of.weights[3], &d_weights)?;
        let d_merged = self.product([&d_projected, &of.weights[3]], of_right, [TOKENS, WIDTH])?;

        let d_attended = self.split(&d_merged)?;
        let dims = [HEADS, TOKENS, DEPTH];
        let [d_q, d_k, d_v] = [self.tensor(&dims)?, self.tensor(&dims)?, self.tensor(&dims)?];
        let options = attention(&of.heads, &of.attended, &of.stats);
        let backward = AttentionBackward::new(options, d_attended);
        let backward = backward.d_q(d_q.clone()).d_k(d_k.clone()).d_v(d_v.clone());
        self.next = self.graph.attention_backward(&backward)?.tensors.end.get();

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
    tokens: TensorId,
    wanted: TensorId,
    loss: TensorId,
    /// The elements that each Dropout has kept, as 1 and 0.
    masks: Vec<TensorId>,
    seed: Option<TensorId>,
}

impl Training {
    /// A model of random parameters, and what it learns from.
    pub fn new(engine: &Engine, dropout: Option<Dropout>) -> Result<Self> {
        let mut model = Model::new(dropout.is_some())?;
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
        let ids = |tensors: &[LogicalTensor]| tensors.iter().map(LogicalTensor::id).collect();
        let mut training = Self {
            steps,
            tensors,
            stream: Stream::new(engine),
            parameters,
            tokens: tokens.id(),
            wanted: wanted.id(),
            loss: loss.id(),
            masks: model.dropped.as_ref().map_or(Vec::new(), |dropped| ids(&dropped.masks)),
            seed: model.dropped.as_ref().map(|dropped| dropped.seed.id()),
        };
        training.fill();
        if let (Some(Dropped { probability, offsets, .. }), Some(dropout)) = (&model.dropped, dropout) {
            training.write(probability.id(), &[dropout.probability]);
            for (place, offset) in offsets.iter().enumerate() {
                // 0 would take another generator.
                training.write_integer(offset.id(), 1 + place as i64);
            }
            training.seed(dropout.seed);
        }
        Ok(training)
    }

    /// Leaves out other elements from now on.
    pub fn seed(&mut self, seed: i64) {
        if let Some(id) = self.seed {
            self.write_integer(id, seed);
        }
    }

    fn write_integer(&mut self, id: TensorId, number: i64) {
        if let Some(tensor) = self.tensors.get_mut(&id) {
            tensor.as_mut_bytes().copy_from_slice(&number.to_ne_bytes());
        }
    }

    /// Random words, of which each wants the one before it, and random parameters.
    fn fill(&mut self) {
        let mut state = 1u64;
        let mut next = move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1 << 24) as f32
        };
        let words: Vec<usize> = (0..TOKENS).map(|_| (next() * WORDS as f32) as usize).collect();
        let before: Vec<usize> = (0..words.len()).map(|at| words[at.saturating_sub(1)]).collect();
        for (id, of) in [(self.tokens, words), (self.wanted, before)] {
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

/// A tensor as a .npy file.
fn write_npy(path: &Path, desc: &LogicalTensor, bytes: &[u8]) -> std::io::Result<()> {
    let dims: String = desc.dims().unwrap_or_default().iter().map(|dim| format!("{dim},")).collect();
    let t = if desc.data_type() == DataType::U8 { "|u1" } else { "<f4" };
    let about = format!("{{'descr': '{t}', 'fortran_order': False, 'shape': ({dims}), }}");
    // The header ends at a multiple of 64, with a line break.
    let width = (about.len() + 11).next_multiple_of(64) - 10;
    let header = format!("{about:<0$}\n", width - 1);
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((width as u16).to_le_bytes());
    file.extend(header.into_bytes());
    file.extend(bytes);
    fs::write(path, file)
}

impl Training {
    /// Writes inputs, parameters, loss and gradients of a step, and what Dropouts kept.
    pub fn dump(&mut self, folder: &Path) -> std::result::Result<(), Box<dyn Error>> {
        self.run()?;
        fs::create_dir_all(folder)?;
        let write = |name: String, id: TensorId| {
            let tensor = &self.tensors[&id];
            write_npy(&folder.join(name + ".npy"), tensor.desc(), tensor.as_bytes())
        };
        write("tokens".into(), self.tokens)?;
        write("wanted".into(), self.wanted)?;
        write("loss".into(), self.loss)?;
        for (place, &mask) in self.masks.iter().enumerate() {
            write(format!("mask_{place}"), mask)?;
        }
        for (place, &(parameter, _)) in self.parameters.iter().enumerate() {
            write(format!("parameter_{place}"), parameter)?;
            let bytes: Vec<u8> =
                self.gradient(place).iter().flat_map(|number| number.to_le_bytes()).collect();
            let path = folder.join(format!("gradient_{place}.npy"));
            write_npy(&path, self.tensors[&parameter].desc(), &bytes)?;
        }
        Ok(())
    }
}

#[allow(dead_code, reason = "a test has this file as a module")]
fn main() -> std::result::Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)
    };
    let probability: Option<f32> = option("--dropout").map(|text| text.parse()).transpose()?;
    let dropout = probability.map(|probability| Dropout { seed: 1, probability });
    let mut training = Training::new(&Engine::new(), dropout)?;
    if let Some(folder) = option("--dump") {
        return training.dump(Path::new(folder));
    }
    let (partitions, backward) = training.partitions();
    println!("{partitions} partitions, {backward} of them with the gradients of attention");
    for step in 0..STEPS {
        training.seed(1 + step as i64);
        let loss = training.run()?;
        if step % 20 == 0 || step == STEPS - 1 {
            println!("step {step:>3}: loss {loss:.4}");
        }
        training.step();
    }
    Ok(())
}
