//! Promise: attention of Sterna gives a candle model the logits and tokens that candle's own gives it, on
//! candle's memory as it lies, and what cannot be is an error of candle.

use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::ops::softmax_last_dim;
use sterna_candle::attention::{Attending, Mask};
use sterna_candle::gpt::{Attends, Config, Gpt, draw};
use sterna_candle::random::Random;

const BATCH: usize = 2;
const HEADS: usize = 3;
const QUERIES: usize = 37;
const KEYS: usize = 70;
const DEPTH: usize = 24;

/// Views that do not lie row by row: queries of packed projections, keys and values within a longer cache.
fn operands(data_type: DType) -> Result<[Tensor; 3]> {
    let mut random = Random::new(1);
    let packed = random.tensor(&[BATCH, QUERIES, 3, HEADS, DEPTH], 2.0)?.to_dtype(data_type)?;
    let q = packed.narrow(2, 1, 1)?.squeeze(2)?.transpose(1, 2)?;
    let mut cache =
        || random.tensor(&[BATCH, HEADS, KEYS + 9, DEPTH], 2.0)?.to_dtype(data_type)?.narrow(2, 4, KEYS);
    Ok([q, cache()?, cache()?])
}

fn mask() -> Mask {
    Mask::new(BATCH, QUERIES, KEYS, |entry, query, key| {
        key <= query + 30 * entry && key % 11 != 5 || key == 0
    })
}

/// Attention by ops of candle, in f32: [batch, queries, heads, depth].
fn plain([q, k, v]: &[Tensor; 3], mask: &Mask) -> Result<Tensor> {
    let [q, k, v] = [q, k, v].map(|tensor| tensor.to_dtype(DType::F32)?.contiguous());
    let scores = (q?.matmul(&k?.transpose(2, 3)?.contiguous()?)? / (DEPTH as f64).sqrt())?;
    let mut added = Vec::new();
    for (entry, query) in (0..BATCH).flat_map(|entry| (0..QUERIES).map(move |query| (entry, query))) {
        let number = |key| if mask.keeps(entry, query, key) { 0f32 } else { f32::NEG_INFINITY };
        added.extend((0..KEYS).map(number));
    }
    let added = Tensor::from_vec(added, (BATCH, 1, QUERIES, KEYS), &Device::Cpu)?;
    softmax_last_dim(&scores.broadcast_add(&added)?)?.matmul(&v?)?.transpose(1, 2)?.contiguous()
}

fn largest(tensor: &Tensor) -> Result<f32> {
    tensor.abs()?.flatten_all()?.max(D::Minus1)?.to_scalar()
}

#[test]
fn the_op_is_attention_on_views() -> Result<()> {
    let attending = Attending::new(DEPTH)?;
    for (data_type, bound) in [(DType::F32, 2e-6), (DType::F16, 3e-3), (DType::BF16, 3e-2)] {
        let operands = operands(data_type)?;
        let [q, k, v] = &operands;
        assert!(!q.is_contiguous() && !k.is_contiguous());
        let result = q.apply_op3(k, v, attending.op(mask()))?;
        assert_eq!(result.dims(), [BATCH, QUERIES, HEADS, DEPTH]);
        assert_eq!(result.dtype(), data_type);
        let off = largest(&(result.to_dtype(DType::F32)? - plain(&operands, &mask())?)?)?;
        assert!(off <= bound, "{data_type:?} is off by {off}");
    }
    Ok(())
}

#[test]
fn what_is_masked_is_never_seen() -> Result<()> {
    let attending = Attending::new(DEPTH)?;
    let [q, k, v] = operands(DType::F32)?;
    let hidden = Mask::new(BATCH, QUERIES, KEYS, |_, _, key| key < 50);
    let expected = q.apply_op3(&k, &v, attending.op(hidden.clone()))?;
    let nan = Tensor::full(f32::NAN, (BATCH, HEADS, KEYS - 50, DEPTH), &Device::Cpu)?;
    let spoilt = |tensor: &Tensor| Tensor::cat(&[tensor.narrow(2, 0, 50)?, nan.clone()], 2);
    let result = q.apply_op3(&spoilt(&k)?, &spoilt(&v)?, attending.op(hidden))?;
    assert_eq!(result.flatten_all()?.to_vec1::<f32>()?, expected.flatten_all()?.to_vec1::<f32>()?);
    Ok(())
}

#[test]
fn a_gpt_says_the_same_with_either_attention() -> Result<()> {
    let config = Config { vocabulary: 97, layers: 3, heads: 3, depth: 16, room: 160 };
    let lengths = [70, 33, 1];
    let model = Gpt::new(config, 5)?;
    let mut random = Random::new(6);
    let prompts: Vec<Vec<u32>> =
        lengths.iter().map(|_| (0..70).map(|_| (random.next_bits() % 97) as u32).collect()).collect();
    let run = |attends: Attends| -> Result<(Vec<Tensor>, Vec<Vec<u32>>)> {
        let mut random = Random::new(7);
        let mut session = model.start(&attends, &lengths)?;
        let mut logits = vec![session.take(&prompts)?];
        let mut tokens = vec![draw(&logits[0], &mut random)?];
        for step in 0..80 {
            let last: Vec<Vec<u32>> = tokens[step].iter().map(|&token| vec![token]).collect();
            logits.push(session.take(&last)?);
            tokens.push(draw(&logits[step + 1], &mut random)?);
        }
        Ok((logits, tokens))
    };
    let (expected, expected_tokens) = run(Attends::Candle)?;
    let (logits, tokens) = run(Attends::Sterna(Attending::new(config.depth)?))?;
    for (step, (one, other)) in expected.iter().zip(&logits).enumerate() {
        let off = largest(&(one - other)?)?;
        assert!(off <= 1e-4, "step {step} is off by {off}");
        assert!(largest(one)? > 0.1, "step {step} says nothing");
    }
    assert_eq!(expected_tokens, tokens);
    // They differ from each other, or the comparison would say little.
    let drawn: std::collections::BTreeSet<u32> = tokens.concat().into_iter().collect();
    assert!(drawn.len() > 20, "{drawn:?}");
    Ok(())
}

#[test]
fn what_does_not_fit_is_an_error() -> Result<()> {
    let attending = Attending::new(DEPTH)?;
    let [q, k, v] = operands(DType::F32)?;
    let op = || attending.op(mask());
    let whole = |tensor: &Tensor| tensor.to_dtype(DType::F64);
    assert!(q.apply_op3(&k.narrow(2, 0, 5)?, &v, op()).is_err(), "as many values as keys");
    assert!(q.apply_op3(&k.narrow(2, 0, 5)?, &v.narrow(2, 0, 5)?, op()).is_err(), "as many keys as the mask");
    assert!(q.apply_op3(&k, &v.to_dtype(DType::BF16)?, op()).is_err(), "one type");
    assert!(whole(&q)?.apply_op3(&whole(&k)?, &whole(&v)?, op()).is_err(), "no f64");
    assert!(q.squeeze(0)?.flatten(0, 1)?.apply_op3(&k, &v, op()).is_err(), "four dims");
    assert!(mask().part(30, 8, KEYS).is_err() && mask().part(0, 1, KEYS + 1).is_err());
    Ok(())
}
