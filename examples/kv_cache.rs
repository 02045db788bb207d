//! One layer of attention whose keys and values stay from run to run: a prompt at once, then one token after
//! the other, each of which adds one row to the caches and copies none. A second sequence starts from the
//! same prompt.
//!
//! `cargo run --example kv_cache`

use sterna::{
    Causal, DataType, Engine, GraphBuilder, GraphValue, Model, Result, Session, SessionState, TensorView,
};

const WIDTH: usize = 32;
const HEADS: usize = 4;
const PROMPT: usize = 11;
const TOKENS: usize = 20;

/// Numbers around 0 that look random.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    let number = |at: usize| ((at * 37 + seed * 101) * 2_654_435_761 % 1_000) as f32 / 1_000.0 - 0.5;
    (0..count).map(number).collect()
}

/// A layer of attention on tokens [1, tokens, width], with caches of keys and values.
fn layer() -> Result<Model> {
    let g = GraphBuilder::new();
    let (width, heads) = (WIDTH as i64, HEADS as i64);
    let depth = width / heads;
    let x = g.input("x", DataType::F32, &[Some(1), None, Some(width)])?;
    let offset = g.input("offset", DataType::S32, &[])?;
    let projected = |name: &str, x: GraphValue<'_>, seed| {
        let weights = numbers(WIDTH * WIDTH, seed);
        g.matmul(x, g.constant(name, &[width, width], &weights)?)
    };
    let in_heads = |name: &str, seed| {
        let split = g.reshape(projected(name, x, seed)?, &[1, -1, heads, depth])?;
        g.transpose(split, &[0, 2, 1, 3])
    };
    let cached = |name: &str, seed| {
        let past =
            g.input(format!("past_{name}"), DataType::F32, &[Some(1), Some(heads), None, Some(depth)])?;
        let present = g.concat(&[past, in_heads(&format!("{name} weights"), seed)?], 2)?;
        g.output(format!("present_{name}"), present)?;
        Ok::<_, sterna::Error>(present)
    };
    let (k, v) = (cached("k", 2)?, cached("v", 3)?);
    let causal = Causal::Offset(offset.desc());
    let mixed = g.attention(in_heads("q weights", 1)?, k, v, |attention| attention.causal(causal))?;
    let joined = g.reshape(g.transpose(mixed, &[0, 2, 1, 3])?, &[1, -1, width])?;
    g.output("y", projected("out weights", joined, 4)?)?;
    g.build()
}

/// Runs some tokens behind those of a state, and gives their results.
fn step(session: &Session, state: &mut SessionState, tokens: &[f32]) -> Result<Vec<f32>> {
    let x = TensorView::new(tokens, &[1, (tokens.len() / WIDTH) as i64, WIDTH as i64]);
    let offset = state.len() as i32;
    let outputs = session.run_with_state(state, &[("x", &x), ("offset", &offset)])?;
    Ok(outputs["y"].as_slice::<f32>()?.to_vec())
}

fn difference(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

fn main() -> Result<()> {
    // `find_states` finds `past_k` → `present_k` and `past_v` → `present_v`.
    let session = Session::builder(layer()?).find_states().build(&Engine::new())?;
    let tokens = numbers((PROMPT + TOKENS) * WIDTH, 5);
    let whole = step(&session, &mut session.new_state(&[])?, &tokens)?;

    let mut state = session.new_state(&[])?;
    let (prompt, others) = tokens.split_at(PROMPT * WIDTH);
    let mut results = step(&session, &mut state, prompt)?;
    let mut second = state.fork()?;
    for token in others.chunks(WIDTH) {
        results.extend(step(&session, &mut state, token)?);
    }
    let worst = difference(&results, &whole);
    println!("{} tokens, {} of room, off by {worst:e} from all at once", state.len(), state.capacity());
    assert!(results.len() == whole.len() && worst < 1e-5, "off by {worst}");

    // The second sequence takes other tokens; the first has no part in it.
    let other = numbers(WIDTH, 9);
    let token = step(&session, &mut second, &other)?;
    let mut all = prompt.to_vec();
    all.extend(&other);
    let expected = step(&session, &mut session.new_state(&[])?, &all)?;
    let worst = difference(&token, &expected[PROMPT * WIDTH..]);
    println!("a fork of {} tokens, off by {worst:e}", second.len());
    assert!((state.len(), second.len()) == (PROMPT + TOKENS, PROMPT + 1) && worst < 1e-5, "off by {worst}");
    Ok(())
}
