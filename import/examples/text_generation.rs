//! Generates tokens with a decoder that was exported to ONNX with its cache: the prompt at once, then one
//! token after the other, always the likeliest. The keys and values stay in a state of the session.
//!
//! `cargo run --release --example text_generation -- model.onnx 576,659,1771 100`
//!
//! Inputs are `input_ids`, and `attention_mask` and `position_ids` if the model has them; the caches have any
//! of the names that `StateLink::find` knows. A fourth argument is a file to which the logits of each step
//! are written, as f32.

use std::error::Error;
use std::io::Write;
use std::time::Instant;

use sterna::{AsDynView, Engine, Session, SessionState, TensorView};
use sterna_import::{ModelFile, Options};

/// The logits behind the last of some tokens of one sequence.
fn logits(session: &Session, state: &mut SessionState, tokens: &[i64]) -> sterna::Result<Vec<f32>> {
    let (past, count) = (state.len(), tokens.len());
    let mask = vec![1i64; past + count];
    let positions: Vec<i64> = (past..past + count).map(|position| position as i64).collect();
    let given = [("input_ids", tokens), ("attention_mask", &mask), ("position_ids", &positions)];
    let is_there = |name: &str| session.inputs().iter().any(|port| port.name() == name);
    let views = given.map(|(name, elements)| (name, TensorView::new(elements, &[1, elements.len() as i64])));
    let inputs: Vec<(&str, &dyn AsDynView)> = views
        .iter()
        .filter(|(name, _)| is_there(name))
        .map(|(name, view)| (*name, view as &dyn AsDynView))
        .collect();
    let outputs = session.run_with_state(state, &inputs)?;
    let all = outputs["logits"].as_slice::<f32>()?;
    Ok(all[all.len() - all.len() / count..].to_vec())
}

fn likeliest(logits: &[f32]) -> i64 {
    let order = |a: &(usize, &f32), b: &(usize, &f32)| a.1.total_cmp(b.1).then(b.0.cmp(&a.0));
    logits.iter().enumerate().max_by(order).map_or(0, |(token, _)| token as i64)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: text_generation MODEL [TOKEN,… [STEPS [LOGITS]]]")?;
    let prompt = args.next().unwrap_or_else(|| "1,2,3,4".into());
    let prompt = prompt.split(',').map(str::parse).collect::<Result<Vec<i64>, _>>()?;
    let steps: usize = args.next().map_or(Ok(100), |steps| steps.parse())?;
    let mut written = args.next().map(std::fs::File::create).transpose()?;

    let file = ModelFile::open(path.as_ref(), &Options::default())?;
    let session = Session::builder(file.try_into()?).find_states().build(&Engine::new())?;
    let mut state = session.new_state(&[])?;
    let began = Instant::now();
    let mut last = logits(&session, &mut state, &prompt)?;
    println!("prompt of {} tokens: {:.1} ms", prompt.len(), began.elapsed().as_secs_f64() * 1e3);

    let began = Instant::now();
    let mut tokens = Vec::with_capacity(steps);
    for step in 0..=steps {
        if let Some(written) = &mut written {
            last.iter().try_for_each(|logit| written.write_all(&logit.to_le_bytes()))?;
        }
        if step < steps {
            tokens.push(likeliest(&last));
            last = logits(&session, &mut state, &tokens[step..])?;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{tokens:?}");
    println!("{:.1} tokens/s, {} rows in the state", steps as f64 / seconds, state.len());
    Ok(())
}
