//! Continuous batching: 32 sequences of different lengths take one token each in every step, in a cache of
//! pages that they share. A sequence that ends gives its pages and its place to the next one that waits.
//!
//! `cargo run --example continuous_batching`

use std::collections::VecDeque;

use sterna::{
    Causal, CompiledPartition, DataType, Engine, GraphBuilder, LogicalTensor, Op, OpKind, Partition, Result,
    Session, TensorView,
};

const PLACES: usize = 32;
const SEQUENCES: usize = 50;
const HEADS: usize = 4;
/// Heads of queries that share a head of keys.
const GROUPS: usize = 2;
const DEPTH: usize = 16;
/// Rows of a page, pages, and pages of the longest sequence.
const PAGE: usize = 16;
const PAGES: usize = 100;
const ENTRIES: usize = 4;
/// Elements of the keys, or of the values, of a token.
const ROW: usize = HEADS / GROUPS * DEPTH;
const CACHE: [i64; 4] = [PAGES as i64, (HEADS / GROUPS) as i64, PAGE as i64, DEPTH as i64];

/// A sequence at work.
struct Sequence {
    number: usize,
    /// Tokens so far, and at its end.
    length: usize,
    end: usize,
    pages: Vec<usize>,
}

/// Numbers around 0 that look random.
fn numbers(count: usize, seed: usize) -> impl Iterator<Item = f32> {
    (0..count).map(move |at| ((at * 37 + seed * 101) * 2_654_435_761 % 1_000) as f32 / 500.0 - 1.0)
}

/// The key of a token of a sequence, or its value.
fn token(sequence: usize, at: usize, is_key: bool) -> impl Iterator<Item = f32> {
    numbers(ROW, 2 * (sequence * 1_000 + at) + usize::from(is_key))
}

/// Writes the rows of all places to their slots of a cache, which the result replaces.
fn store(engine: &Engine) -> Result<CompiledPartition> {
    let rows = [PLACES as i64, (HEADS / GROUPS) as i64, DEPTH as i64];
    let op = Op::new(0, OpKind::CacheStore)
        .input(LogicalTensor::strided(0, DataType::F32, &CACHE)?)
        .input(LogicalTensor::strided(1, DataType::F32, &rows)?)
        .input(LogicalTensor::strided(2, DataType::S64, &[PLACES as i64])?)
        .output(LogicalTensor::strided(3, DataType::F32, &CACHE)?);
    Partition::from_op(op)?.compile(engine)
}

/// Attention of one query of each place.
fn attention(engine: &Engine) -> Result<Session> {
    let g = GraphBuilder::new();
    let places = Some(PLACES as i64);
    let q = g.input("q", DataType::F32, &[places, Some(HEADS as i64), Some(1), Some(DEPTH as i64)])?;
    let [k, v] = ["k", "v"].map(|name| g.input(name, DataType::F32, &CACHE.map(Some)));
    let table = g.input("block_table", DataType::S32, &[places, Some(ENTRIES as i64)])?.desc();
    let lengths = g.input("lengths", DataType::S32, &[places])?.desc();
    let y = g.attention(q, k?, v?, |attention| {
        attention.paged(table, lengths).causal(Causal::BottomRight).groups(GROUPS as i64)
    })?;
    g.output("y", y)?;
    Session::new(g.build()?, engine)
}

/// The largest difference of results of a sequence from attention on its own keys and values.
fn difference(sequence: &Sequence, q: &[f32], results: &[f32]) -> f32 {
    let of_token = |at, is_key| token(sequence.number, at, is_key).collect::<Vec<f32>>();
    let [keys, values] =
        [true, false].map(|is_key| (0..sequence.length).map(|at| of_token(at, is_key)).collect());
    let (keys, values): (Vec<Vec<f32>>, Vec<Vec<f32>>) = (keys, values);
    let mut worst = 0f32;
    for head in 0..HEADS {
        let own = |of: &[f32], d: usize| of[head / GROUPS * DEPTH + d];
        let score = |key: &Vec<f32>| (0..DEPTH).map(|d| q[head * DEPTH + d] * own(key, d)).sum::<f32>();
        let shares: Vec<f32> = keys.iter().map(|key| (score(key) / (DEPTH as f32).sqrt()).exp()).collect();
        let sum: f32 = shares.iter().sum();
        for d in 0..DEPTH {
            let weighed = shares.iter().zip(&values).map(|(share, value)| share * own(value, d)).sum::<f32>();
            worst = worst.max((weighed / sum - results[head * DEPTH + d]).abs());
        }
    }
    worst
}

fn main() -> Result<()> {
    let engine = Engine::new();
    let (store, attention) = (store(&engine)?, attention(&engine)?);
    let mut caches = [true, false].map(|is_key| (is_key, vec![0f32; PAGES * PAGE * ROW]));
    let mut free: Vec<usize> = (0..PAGES).collect();
    let mut waiting: VecDeque<usize> = (0..SEQUENCES).collect();
    let mut places: Vec<Option<Sequence>> = (0..PLACES).map(|_| None).collect();
    let (mut steps, mut tokens, mut most_pages, mut worst) = (0, 0, 0, 0f32);
    loop {
        for place in places.iter_mut().filter(|place| place.is_none()) {
            let next = waiting.pop_front();
            *place = next.map(|number| Sequence {
                number,
                length: 0,
                end: 5 + number * 7 % 40,
                pages: Vec::new(),
            });
        }
        if places.iter().all(Option::is_none) {
            break;
        }
        // Where the next token of each sequence goes; a place without one stores nothing, and has no keys.
        let (mut slots, mut lengths) = ([-1i64; PLACES], [0i32; PLACES]);
        let mut table = [-1i32; PLACES * ENTRIES];
        for (at, sequence) in places.iter_mut().enumerate().filter_map(|(at, of)| Some((at, of.as_mut()?))) {
            if sequence.length % PAGE == 0 {
                sequence.pages.push(free.pop().expect("the cache has pages for all places"));
            }
            slots[at] = (sequence.pages[sequence.length / PAGE] * PAGE + sequence.length % PAGE) as i64;
            sequence.length += 1;
            lengths[at] = sequence.length as i32;
            for (entry, &page) in table[at * ENTRIES..].iter_mut().zip(&sequence.pages) {
                *entry = page as i32;
            }
        }
        for (is_key, cache) in &mut caches {
            let of_place = |place: &Option<Sequence>| match place {
                Some(sequence) => token(sequence.number, sequence.length - 1, *is_key).collect(),
                None => vec![0.0; ROW],
            };
            let rows: Vec<f32> = places.iter().flat_map(of_place).collect();
            let inputs = [store.tensor(1, &rows)?, store.tensor(2, &slots)?];
            store.run(&inputs, &mut [store.tensor_mut(3, cache)?.in_place_of(0)])?;
        }
        let q: Vec<f32> = numbers(PLACES * HEADS * DEPTH, steps).collect();
        let [(_, k), (_, v)] = &caches;
        let outputs = attention.run(&[
            ("q", &TensorView::new(&q, &[PLACES as i64, HEADS as i64, 1, DEPTH as i64])),
            ("k", &TensorView::new(k, &CACHE)),
            ("v", &TensorView::new(v, &CACHE)),
            ("block_table", &TensorView::new(&table, &[PLACES as i64, ENTRIES as i64])),
            ("lengths", &TensorView::new(&lengths, &[PLACES as i64])),
        ])?;
        let results = outputs["y"].as_slice::<f32>()?;
        most_pages = most_pages.max(PAGES - free.len());
        for (at, place) in places.iter_mut().enumerate() {
            let Some(sequence) = place else { continue };
            tokens += 1;
            let of_place = at * HEADS * DEPTH..(at + 1) * HEADS * DEPTH;
            worst = worst.max(difference(sequence, &q[of_place.clone()], &results[of_place]));
            if sequence.length == sequence.end {
                free.append(&mut sequence.pages);
                *place = None;
            }
        }
        steps += 1;
    }
    println!(
        "{SEQUENCES} sequences, {tokens} tokens in {steps} steps, at most {most_pages} pages, off by {worst:e}"
    );
    assert!(worst < 1e-5 && free.len() == PAGES, "off by {worst}");
    Ok(())
}
