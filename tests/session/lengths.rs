//! Plans for one length after another, which take parts over from each other, against sessions that have no
//! earlier plan: the same bits, whatever a length changes of the graph.

use std::sync::Arc;

use crate::common::{Random, report};
use sterna::{
    DataType, Engine, GraphBuilder, GraphValue, LogicalTensor, Model, ModelPort, ModelSource, OpOptions,
    Result, Session, SessionState, StateLink, TensorView,
};

/// Numbers of a row.
const WIDTH: i64 = 4;

/// Layers by a seed, in one row after the other on a cache of rows. The length of the cache changes dims,
/// constants, masks, and with some layers the ops.
#[derive(Debug)]
struct Layers {
    seed: u64,
}

/// Rows so far, with those of this run, and the layer's own numbers.
struct LayerAt<'a, 'g> {
    g: &'g GraphBuilder,
    all: GraphValue<'g>,
    tokens: i64,
    total: i64,
    random: &'a mut Random,
}

impl<'g> LayerAt<'_, 'g> {
    fn numbers(&mut self, dims: &[i64]) -> Result<GraphValue<'g>> {
        let count = dims.iter().product::<i64>() as usize;
        let elements: Vec<f32> = (0..count).map(|_| self.random.below(33) as f32 / 16.0 - 1.0).collect();
        self.g.constant("numbers", dims, &elements)
    }

    /// Attention of the rows of this run on all rows, under no mask, one that hides nothing, one that hides
    /// what comes later, or one that hides all of some rows.
    fn attention(&mut self, h: GraphValue<'g>, is_masked: bool) -> Result<GraphValue<'g>> {
        let Self { g, all, tokens, total, .. } = *self;
        let mut scores = (g.matmul(h, g.transpose(all, &[1, 0])?)? * 0.5)?;
        if is_masked {
            let places = (0..tokens).flat_map(|row| (0..total).map(move |column| (row, column)));
            let seen = |(row, column)| match total % 4 {
                0 => true,
                3 => row > 0,
                _ => column <= total - tokens + row,
            };
            let mask: Vec<bool> = places.map(seen).collect();
            let mask = g.constant("mask", &[tokens, total], &mask)?;
            scores = g.select(mask, scores, g.scalar(DataType::F32, f32::NEG_INFINITY)?)?;
        }
        g.matmul(g.softmax(scores, 1)?, all)
    }

    fn applied(&mut self, h: GraphValue<'g>, layer: usize) -> Result<GraphValue<'g>> {
        let (g, tokens, total) = (self.g, self.tokens, self.total);
        match layer {
            0 => g.matmul(h, self.numbers(&[WIDTH, WIDTH])?),
            1 => g.relu(((h * 2.0)? + self.numbers(&[1, WIDTH])?)?),
            2 => self.attention(h, false),
            3 => self.attention(h, true),
            // A constant that says the length, from new memory each time.
            4 => h + g.constant("length", &[1], &[total as f32 / 8.0])?,
            // One row for all, or a row for each.
            5 => {
                let rows = if total % 2 == 0 { tokens } else { 1 };
                let elements: Vec<f32> = (0..rows).map(|row| row as f32).collect();
                h * g.constant("rows", &[rows, 1], &elements)?
            }
            // Constants that are folded, and by what depends on the length.
            6 => {
                let folded =
                    g.exp(g.constant("exponent", &[1, WIDTH], &[0.25 * (total % 3) as f32; 4])?)?;
                h + g.tanh(folded)?
            }
            // Another kind of op, and one op more.
            7 if total % 3 == 0 => g.tanh(h),
            8 if total % 3 == 1 => g.sqrt(g.abs(g.relu(h)?)?),
            _ => h - g.reduce_mean_with(h, &[1], &[], OpOptions::new().keep_dims(true))?,
        }
    }
}

impl ModelSource for Layers {
    fn at(&self, shapes: &[(&str, &[i64])]) -> Result<Model> {
        let dims = |name: &str| shapes.iter().find(|shape| shape.0 == name).map_or(&[][..], |shape| shape.1);
        let known = |dims: &[i64]| dims.iter().map(|&dim| Some(dim)).collect::<Vec<_>>();
        let g = GraphBuilder::new();
        let mut random = Random::new(self.seed);
        let x = g.input("x", DataType::F32, &known(dims("x")))?;
        let past = g.input("past", DataType::F32, &known(dims("past")))?;
        let row = g.relu(g.matmul(x, g.constant("w", &[WIDTH, WIDTH], &[0.25f32; 16])?)?)?;
        let all = g.concat(&[past, row], 0)?;
        let (tokens, total) = (dims("x")[0], dims("x")[0] + dims("past")[0]);
        let count = 2 + random.below(6);
        let layers: Vec<usize> = (0..count).map(|_| random.below(10)).collect();
        let mut at = LayerAt { g: &g, all, tokens, total, random: &mut random };
        let mut h = x;
        for layer in layers {
            h = at.applied(h, layer)?;
        }
        g.output("y", h)?;
        g.output("present", all)?;
        g.build()
    }
}

fn session(seed: u64, engine: &Engine) -> Result<Session> {
    let port = |name: &str, id: usize| -> Result<ModelPort> {
        let tensor = LogicalTensor::partial(id, DataType::F32, &[None, Some(WIDTH)])?;
        Ok(ModelPort::new(name, tensor))
    };
    let (inputs, outputs) = (vec![port("x", 0)?, port("past", 1)?], vec![port("y", 2)?, port("present", 3)?]);
    let model = Model::from_source(inputs, outputs, Arc::new(Layers { seed }));
    // Rows lie in the same strides in all states.
    Session::builder(model).state(StateLink::new("past", "present").capacity(64)).build(engine)
}

/// The bits that a run leaves: those of its output, and those of the state.
fn bits(session: &Session, state: &mut SessionState, x: &[f32]) -> Result<[Vec<u32>; 2]> {
    let view = TensorView::new(x, &[x.len() as i64 / WIDTH, WIDTH]);
    let outputs = session.run_with_state(state, &[("x", &view)])?;
    let y = outputs["y"].as_slice::<f32>()?.iter().map(|y| y.to_bits()).collect();
    Ok([y, state.get("past")?.elements::<f32>()?.iter().map(|row| row.to_bits()).collect()])
}

/// Runs on lengths that go up, and down again now and then; says where the bits are not those of a session
/// that has made no plan before.
fn walk(of: &Session, seed: u64, runs: usize, random: &mut Random, engine: &Engine) -> Result<Vec<String>> {
    let mut state = of.new_state(&[])?;
    let mut wrong = Vec::new();
    for run in 0..runs {
        if random.below(6) == 0 || state.len() > 40 {
            state.trim(random.below(state.len() + 1));
        }
        let tokens = if random.below(3) == 0 { 1 + random.below(4) } else { 1 };
        let x: Vec<f32> = (0..4 * tokens).map(|_| random.below(65) as f32 / 32.0 - 1.0).collect();
        let anew = session(seed, engine)?;
        let mut other = anew.new_state(&[])?;
        if !state.is_empty() {
            other.set("past", &state.get("past")?)?;
        }
        let (rows, expected) = (state.len(), bits(&anew, &mut other, &x)?);
        if bits(of, &mut state, &x)? != expected {
            wrong.push(format!("seed {seed}, run {run}: {tokens} rows behind {rows}"));
        }
    }
    Ok(wrong)
}

#[test]
fn a_plan_behind_others_gives_the_bits_of_a_first_one() -> Result<()> {
    let engine = Engine::builder().threads(1).build();
    let mut random = Random::new(0x1e46);
    let mut wrong = Vec::new();
    for seed in 0..60 {
        wrong.extend(walk(&session(seed, &engine)?, seed, 20, &mut random, &engine)?);
    }
    report(&wrong);
    Ok(())
}

#[test]
fn threads_take_over_from_each_other() -> Result<()> {
    let engine = Engine::builder().threads(1).build();
    let mut wrong = Vec::new();
    for seed in 100..106 {
        let session = session(seed, &engine)?;
        let walked = std::thread::scope(|scope| {
            let walk = |own: u64| {
                let (session, engine) = (&session, &engine);
                scope.spawn(move || walk(session, seed, 12, &mut Random::new(own), engine))
            };
            let threads: Vec<_> = (0..4).map(walk).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Result<Vec<_>>>()
        })?;
        wrong.extend(walked.into_iter().flatten());
    }
    report(&wrong);
    Ok(())
}

/// A length whose model is refused leaves the session as it was.
#[test]
fn a_refused_length_changes_nothing() -> Result<()> {
    let engine = Engine::builder().threads(1).build();
    let session = session(3, &engine)?;
    let mut state = session.new_state(&[])?;
    bits(&session, &mut state, &[0.5; 4])?;
    let narrow = TensorView::new(&[0.5f32; 3], &[1, 3]);
    assert!(session.run_with_state(&mut state, &[("x", &narrow)]).is_err());
    let wrong = walk(&session, 3, 5, &mut Random::new(1), &engine)?;
    assert_eq!((wrong, state.len()), (Vec::new(), 1));
    Ok(())
}

/// Rows are added to a state in its place, and to an input in a result.
#[test]
fn runs_with_a_state_and_without_take_turns() -> Result<()> {
    let g = GraphBuilder::new();
    let past = g.input("past", DataType::F32, &[None, Some(2)])?;
    let all = g.concat(&[past, g.input("x", DataType::F32, &[Some(1), Some(2)])?], 0)?;
    g.output("present", all)?;
    g.output("sum", g.reduce_sum(all, &[0])?)?;
    let link = StateLink::new("past", "present").capacity(8);
    let session = Session::builder(g.build()?).state(link).build(&Engine::builder().threads(1).build())?;
    let mut state = session.new_state(&[])?;
    for row in 1..5 {
        let x = [[row as f32, 0.5]];
        let sum = (1..=row).sum::<i32>() as f32;
        // The same rows in the same strides, as an input.
        let before = state.fork()?;
        let outputs = session.run_with_state(&mut state, &[("x", &x)])?;
        assert_eq!(outputs["sum"].as_slice::<f32>()?, [sum, 0.5 * row as f32]);
        let outputs = session.run(&[("past", &before.get("past")?), ("x", &x)])?;
        assert_eq!(outputs["sum"].as_slice::<f32>()?, [sum, 0.5 * row as f32]);
        assert_eq!(outputs["present"].as_slice::<f32>()?, state.get("past")?.elements::<f32>()?);
    }
    Ok(())
}

/// A model that has a constant of its own for each number of rows, of some bytes.
#[derive(Debug)]
struct OwnConstant(usize);

impl ModelSource for OwnConstant {
    fn at(&self, shapes: &[(&str, &[i64])]) -> Result<Model> {
        let rows = shapes[0].1[0];
        let g = GraphBuilder::new();
        let x = g.input("x", DataType::F32, &[Some(rows), Some(1)])?;
        let own = g.constant("own", &[1, self.0 as i64 / 4], &vec![rows as f32; self.0 / 4])?;
        g.output("y", g.reduce_max((x + own)?, &[1])?)?;
        g.build()
    }
}

/// Plans of small models stay for lengths that come again, as many as the caller wants or as are small.
#[test]
fn small_plans_stay_for_lengths_that_come_again() -> Result<()> {
    let engine = Engine::builder().threads(1).build();
    let mut wrong = Vec::new();
    for (bytes, shapes, is_kept) in
        [(4, None, true), (4, Some(16), false), (4 << 20, None, false), (1 << 20, Some(30), true)]
    {
        let port = |name: &str, id: usize, dims: &[Option<i64>]| -> Result<ModelPort> {
            Ok(ModelPort::new(name, LogicalTensor::partial(id, DataType::F32, dims)?))
        };
        let (x, y) = (port("x", 0, &[None, Some(1)])?, port("y", 1, &[None])?);
        let builder = Session::builder(Model::from_source(vec![x], vec![y], Arc::new(OwnConstant(bytes))));
        let session =
            shapes.into_iter().fold(builder, |builder, most| builder.shapes(most)).build(&engine)?;
        let mut planned = [0, 0];
        for (turn, rows) in (0..2).flat_map(|turn| (1..=30).map(move |rows| (turn, rows))) {
            let x = vec![0.5f32; rows as usize];
            let (outputs, profile) = session.run_profiled(&[("x", &TensorView::new(&x, &[rows, 1]))])?;
            assert_eq!(outputs["y"].as_slice::<f32>()?, vec![0.5 + rows as f32; rows as usize]);
            planned[turn] += usize::from(profile.spans.iter().any(|span| !span.kind.is_step()));
        }
        if planned != [30, if is_kept { 0 } else { 30 }] {
            wrong.push(format!("{bytes} bytes, {shapes:?} plans: {planned:?}"));
        }
    }
    report(&wrong);
    Ok(())
}
