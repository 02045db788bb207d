//! Runs the GPT with candle's own attention and with that of Sterna, in turn: the same tokens, the largest
//! difference of their logits, and tokens a second.
//!
//! `sterna-candle [ROUNDS]`

use std::time::Instant;

use candle_core::{Result, Tensor};
use sterna_candle::attention::Attending;
use sterna_candle::gpt::{Attends, Config, Gpt, draw};
use sterna_candle::random::Random;

const SEED: u64 = 28;
const CONFIG: Config = Config { vocabulary: 2048, layers: 6, heads: 6, depth: 64, room: 1024 };
/// The lengths of the prompts.
const PROMPTS: [usize; 4] = [896, 640, 896, 320];
const NEW_TOKENS: usize = 64;
/// How far logits may be apart.
const BOUND: f32 = 1e-4;

/// The results of one run.
struct Run {
    tokens: Vec<Vec<u32>>,
    logits: Vec<Tensor>,
    prompt_seconds: f64,
    new_seconds: f64,
}

fn run(model: &Gpt, attends: &Attends) -> Result<Run> {
    let mut random = Random::new(SEED);
    let longest = PROMPTS.iter().copied().max().unwrap_or(0);
    let prompt = |_| (0..longest).map(|_| (random.next_bits() % CONFIG.vocabulary as u64) as u32).collect();
    let prompts: Vec<Vec<u32>> = PROMPTS.iter().map(prompt).collect();
    let mut session = model.start(attends, &PROMPTS)?;
    let start = Instant::now();
    let mut logits = vec![session.take(&prompts)?];
    let mut tokens = vec![draw(&logits[0], &mut random)?];
    let prompt_seconds = start.elapsed().as_secs_f64();
    let start = Instant::now();
    for step in 0..NEW_TOKENS {
        let last: Vec<Vec<u32>> = tokens[step].iter().map(|&token| vec![token]).collect();
        logits.push(session.take(&last)?);
        tokens.push(draw(&logits[step + 1], &mut random)?);
    }
    Ok(Run { tokens, logits, prompt_seconds, new_seconds: start.elapsed().as_secs_f64() })
}

/// The largest difference of two runs' logits.
fn difference(one: &Run, other: &Run) -> Result<f32> {
    let mut largest = 0f32;
    for (a, b) in one.logits.iter().zip(&other.logits) {
        let off = (a - b)?.abs()?.flatten_all()?.max(0)?.to_scalar::<f32>()?;
        largest = if off.is_nan() { f32::NAN } else { largest.max(off) };
    }
    Ok(largest)
}

fn main() -> Result<()> {
    let rounds: usize = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()).unwrap_or(5).max(1);
    let model = Gpt::new(CONFIG, SEED)?;
    let peers = [("candle", Attends::Candle), ("Sterna", Attends::Sterna(Attending::new(CONFIG.depth)?))];
    let mut best = [[f64::INFINITY; 2]; 2];
    let mut runs = Vec::new();
    for round in 0..rounds {
        for (peer, (_, attends)) in peers.iter().enumerate() {
            let run = run(&model, attends)?;
            best[peer][0] = best[peer][0].min(run.prompt_seconds);
            best[peer][1] = best[peer][1].min(run.new_seconds);
            if round == 0 {
                runs.push(run);
            }
        }
    }
    let (are_same, off) = (runs[0].tokens == runs[1].tokens, difference(&runs[0], &runs[1])?);
    println!("same tokens: {are_same}; largest difference of logits: {off:.1e}");
    println!("tokens a second, best of {rounds}:");
    println!("| attention | prompts | new tokens |\n|---|---|---|");
    let prompt_tokens = PROMPTS.iter().sum::<usize>() as f64;
    let new_tokens = (NEW_TOKENS * PROMPTS.len()) as f64;
    for ((name, _), [prompt, new]) in peers.iter().zip(best) {
        println!("| {name} | {:.0} | {:.0} |", prompt_tokens / prompt, new_tokens / new);
    }
    println!("| ratio | {:.2} | {:.2} |", best[0][0] / best[1][0], best[0][1] / best[1][1]);
    match are_same && off <= BOUND {
        true => Ok(()),
        false => candle_core::bail!("the tokens must be the same, and logits differ by {BOUND:e} at most"),
    }
}
