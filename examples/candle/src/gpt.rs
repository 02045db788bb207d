//! A small GPT with random weights: the same model, with candle's own attention or with that of Sterna.

use candle_core::{D, DType, Device, Module, Result, Tensor};
use candle_nn::ops::softmax_last_dim;
use candle_nn::{LayerNorm, Linear};

use crate::attention::{Attending, Mask};
use crate::random::Random;

/// Keys of a cache are handed to Sterna in steps of so many, so that one compilation serves as many tokens;
/// the mask hides those that are not there yet.
const STEP: usize = 64;

/// The sizes of a model.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    pub vocabulary: usize,
    pub layers: usize,
    pub heads: usize,
    pub depth: usize,
    /// The most tokens of a sequence.
    pub room: usize,
}

impl Config {
    fn width(&self) -> usize {
        self.heads * self.depth
    }
}

/// Who computes attention.
#[derive(Debug, Clone)]
pub enum Attends {
    /// candle: two products, an addition of the mask, and a softmax.
    Candle,
    /// Sterna, as one op of candle.
    Sterna(Attending),
}

struct Block {
    norms: [LayerNorm; 2],
    /// To queries, keys and values.
    project: Linear,
    merge: Linear,
    widen: Linear,
    narrow: Linear,
}

/// The model.
pub struct Gpt {
    config: Config,
    tokens: Tensor,
    positions: Tensor,
    blocks: Vec<Block>,
    norm: LayerNorm,
    logits: Linear,
}

impl Gpt {
    /// A model whose weights follow from a seed.
    pub fn new(config: Config, seed: u64) -> Result<Self> {
        let mut random = Random::new(seed);
        let width = config.width();
        let mut linear = |from: usize, to: usize| -> Result<Linear> {
            let bound = (3.0 / from as f32).sqrt();
            Ok(Linear::new(random.tensor(&[to, from], bound)?, Some(random.tensor(&[to], 0.1)?)))
        };
        let norm = || -> Result<LayerNorm> {
            let (ones, zeros) = (
                Tensor::ones(width, DType::F32, &Device::Cpu)?,
                Tensor::zeros(width, DType::F32, &Device::Cpu)?,
            );
            Ok(LayerNorm::new(ones, zeros, 1e-5))
        };
        let mut blocks = Vec::new();
        for _ in 0..config.layers {
            blocks.push(Block {
                norms: [norm()?, norm()?],
                project: linear(width, 3 * width)?,
                merge: linear(width, width)?,
                widen: linear(width, 4 * width)?,
                narrow: linear(4 * width, width)?,
            });
        }
        let logits = linear(width, config.vocabulary)?;
        let tokens = random.tensor(&[config.vocabulary, width], 1.0)?;
        let positions = random.tensor(&[config.room, width], 0.5)?;
        Ok(Self { config, tokens, positions, blocks, norm: norm()?, logits })
    }

    /// Starts on prompts, given by their lengths: all end at the same place, and shorter ones have padding
    /// before them.
    pub fn start(&self, attends: &Attends, lengths: &[usize]) -> Result<Session<'_>> {
        let (config, batch) = (self.config, lengths.len());
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let padding: Vec<usize> = lengths.iter().map(|length| longest - length).collect();
        // A padding token sees itself, so that no row is without a key.
        let sees =
            |entry: usize, query: usize, key: usize| key == query || (key < query && key >= padding[entry]);
        let mask = Mask::new(batch, config.room, config.room, sees);
        let attention = match attends {
            Attends::Sterna(attending) => SessionAttention::Sterna(attending.clone(), mask),
            Attends::Candle => SessionAttention::Candle(added(&mask, batch, config.room)?),
        };
        let cache =
            || Tensor::zeros((batch, config.heads, config.room, config.depth), DType::F32, &Device::Cpu);
        let caches = (0..config.layers).map(|_| Ok([cache()?, cache()?])).collect::<Result<_>>()?;
        Ok(Session { model: self, attention, padding, caches, past: 0 })
    }
}

/// A mask as numbers that are added to scores.
fn added(mask: &Mask, batch: usize, room: usize) -> Result<Tensor> {
    let mut numbers = Vec::with_capacity(batch * room * room);
    for entry in 0..batch {
        for query in 0..room {
            let number = |key| if mask.keeps(entry, query, key) { 0.0 } else { f32::NEG_INFINITY };
            numbers.extend((0..room).map(number));
        }
    }
    Tensor::from_vec(numbers, (batch, 1, room, room), &Device::Cpu)
}

enum SessionAttention {
    Candle(Tensor),
    Sterna(Attending, Mask),
}

/// A batch of sequences under way, with the keys and values so far.
pub struct Session<'a> {
    model: &'a Gpt,
    attention: SessionAttention,
    padding: Vec<usize>,
    caches: Vec<[Tensor; 2]>,
    past: usize,
}

impl Session<'_> {
    /// Takes further tokens of each sequence, as many of each, and gives the logits behind the last ones:
    /// [batch, vocabulary].
    pub fn take(&mut self, tokens: &[Vec<u32>]) -> Result<Tensor> {
        let config = self.model.config;
        let (batch, count) = (tokens.len(), tokens.first().map_or(0, Vec::len));
        let ids = Tensor::from_vec(tokens.concat(), batch * count, &Device::Cpu)?;
        let places: Vec<u32> = self
            .padding
            .iter()
            .flat_map(|padding| (0..count).map(|at| (self.past + at).saturating_sub(*padding) as u32))
            .collect();
        let places = Tensor::from_vec(places, batch * count, &Device::Cpu)?;
        let embedded =
            (self.model.tokens.index_select(&ids, 0)? + self.model.positions.index_select(&places, 0)?)?;
        let mut x = embedded.reshape((batch, count, config.width()))?;
        for layer in 0..config.layers {
            x = self.block(layer, &x)?;
        }
        self.past += count;
        let last = x.narrow(1, count - 1, 1)?.squeeze(1)?;
        self.model.logits.forward(&self.model.norm.forward(&last)?)
    }

    fn block(&self, layer: usize, x: &Tensor) -> Result<Tensor> {
        let config = self.model.config;
        let block = &self.model.blocks[layer];
        let (batch, count, width) = x.dims3()?;
        let projected = block.project.forward(&block.norms[0].forward(x)?)?;
        let projected = projected.reshape((batch, count, 3, config.heads, config.depth))?;
        // Views [batch, heads, count, depth] of what lies by tokens.
        let part = |index: usize| projected.narrow(2, index, 1)?.squeeze(2)?.transpose(1, 2);
        let [keys, values] = &self.caches[layer];
        keys.slice_set(&part(1)?.contiguous()?, 2, self.past)?;
        values.slice_set(&part(2)?.contiguous()?, 2, self.past)?;
        let attended = self.attention.apply(&part(0)?, keys, values, self.past, self.past + count)?;
        let x = (x + block.merge.forward(&attended.reshape((batch, count, width))?)?)?;
        let wide = block.widen.forward(&block.norms[1].forward(&x)?)?.gelu()?;
        &x + block.narrow.forward(&wide)?
    }
}

impl SessionAttention {
    /// [batch, count, heads, depth] of queries [batch, heads, count, depth] and the caches, of which the first
    /// `known` keys are there.
    fn apply(&self, q: &Tensor, keys: &Tensor, values: &Tensor, past: usize, known: usize) -> Result<Tensor> {
        let (_, _, count, depth) = q.dims4()?;
        match self {
            Self::Sterna(attending, mask) => {
                let taken = known.next_multiple_of(STEP).min(keys.dim(2)?);
                let op = attending.op(mask.part(past, count, taken)?);
                q.apply_op3_no_bwd(&keys.narrow(2, 0, taken)?, &values.narrow(2, 0, taken)?, &op)
            }
            Self::Candle(added) => {
                let (keys, values) = (keys.narrow(2, 0, known)?, values.narrow(2, 0, known)?);
                let scale = 1.0 / (depth as f64).sqrt();
                let scores = (q.contiguous()?.matmul(&keys.transpose(2, 3)?)? * scale)?;
                let added = added.narrow(2, past, count)?.narrow(D::Minus1, 0, known)?;
                let shares = softmax_last_dim(&scores.broadcast_add(&added)?)?;
                shares.matmul(&values)?.transpose(1, 2)?.contiguous()
            }
        }
    }
}

/// A token of each sequence, drawn by logits [batch, vocabulary].
pub fn draw(logits: &Tensor, random: &mut Random) -> Result<Vec<u32>> {
    let rows = softmax_last_dim(logits)?.to_vec2::<f32>()?;
    let drawn = rows.iter().map(|shares| {
        let mut left = random.next_share();
        let at = shares.iter().position(|share| {
            left -= share;
            left < 0.0
        });
        at.unwrap_or(shares.len() - 1) as u32
    });
    Ok(drawn.collect())
}
