//! Promise: attention whose mask gives each query a range of keys is right whatever the ranges, has the same
//! bits at any number of threads, and goes through blocks that begin where sequences do, or says why not.

use crate::attention::{Builder, Heads, Lie, Port, Row, Setup, check_all, numbers};
use crate::common::{Random, engines, report};
use crate::rewrites::fill;
use sterna::{
    DataType, Engine, FallbackReason, FastForm, OpKind, PhaseKind, PlanSummary, Policy, TensorBuf, TileClass,
};

use DataType as D;
use OpKind as K;

/// How the keys of queries are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ranges {
    /// Those of sequences of random lengths, each up to the query's own.
    Causal,
    /// Those of sequences of so many tokens.
    Sequences(i64),
    /// Any, some of which are empty, or go beyond the keys.
    Any,
    /// Those of sequences of a few queries and of many keys, up to so many, each from its first key up to a
    /// query's own, as if the queries were the last ones.
    Few(i64),
    /// None.
    Empty,
}

#[derive(Debug, Clone)]
struct Case {
    heads: Heads,
    ranges: Ranges,
    stats: bool,
    inf_as_zero: bool,
    /// A Tanh before the mask.
    bent: bool,
    /// The distance of key and query, taken off the scores.
    sloped: bool,
    /// The comparisons have the key on their right.
    flipped: bool,
    /// Keys and values outside of all ranges are NaN and infinite, and one value within is infinite.
    planted: bool,
    transposed_result: bool,
}

impl Case {
    fn new(heads: Heads, ranges: Ranges) -> Self {
        let (stats, bent, sloped, flipped, planted) = (false, false, false, false, false);
        Self {
            heads,
            ranges,
            stats,
            inf_as_zero: true,
            bent,
            sloped,
            flipped,
            planted,
            transposed_result: false,
        }
    }

    /// The first key and the end of each query.
    fn drawn(&self, random: &mut Random) -> [Vec<f32>; 2] {
        let (queries, keys) = (self.heads.queries, self.heads.keys);
        let (mut first, mut length) = (0, 0);
        let (mut left, mut end_key) = (0, 0);
        let mut all = [Vec::new(), Vec::new()];
        for query in 0..queries {
            if let Ranges::Sequences(tokens) = self.ranges {
                (first, length) = (query / tokens * tokens, tokens);
            } else if let Ranges::Few(most) = self.ranges {
                if left == 0 {
                    left = [1, 1, 2, 4, 8, 9, 20][random.below(7)];
                    first = end_key;
                    end_key += [0, 10, 63, 65, 200, most / 2 + 3, most][random.below(7)];
                }
                left -= 1;
            } else if query >= first + length {
                (first, length) = (query, [1, 3, 16, 30, 64, 100][random.below(6)]);
            }
            let below = |random: &mut Random, end: i64| random.below(end as usize) as i64;
            let [start, end] = match self.ranges {
                Ranges::Causal => [first, query + 1],
                Ranges::Sequences(_) => [first, first + length],
                Ranges::Few(_) => [first, end_key - left],
                Ranges::Any => {
                    let start = below(random, keys + 20) - 10;
                    [start, start + below(random, 90) - 10]
                }
                Ranges::Empty => [query % 3, query % 3 - query % 2],
            };
            let is_drawn = self.ranges == Ranges::Any;
            all[0].push(start as f32);
            all[1].push(if is_drawn { end } else { end.min(keys) } as f32);
        }
        all
    }

    fn setup(&self, seed: u64, mask: impl Fn(&mut Builder, Port) -> Port) -> Setup {
        let (mut builder, mut random) = (Builder::new(!seed.is_multiple_of(3)), Random::new(seed));
        let ranges = self.drawn(&mut random);
        let t = self.heads.data_type;
        let [q, k, v] = self.heads.inputs(&mut builder, &mut random);
        if self.planted {
            self.plant(&mut builder, &ranges, &mut random);
        }
        let mut scores = builder.matmul(&q, &k, !self.heads.key_view, D::F32);
        let scale = builder.scalar(D::F32, 0.25);
        scores = builder.op(K::Multiply, &[&scores, &scale], D::F32);
        if self.bent {
            scores = builder.op(K::Tanh, &[&scores], D::F32);
        }
        let key = builder.index(&scores, -1);
        if self.sloped {
            let query = builder.index(&scores, -2);
            let distance = builder.op(K::Subtract, &[&query, &key], D::S32);
            let distance = builder.op(K::Abs, &[&distance], D::S32);
            let distance = builder.op(K::Cast, &[&distance], D::F32);
            let slopes = vec![0.01; self.heads.batch.iter().product::<i64>() as usize];
            let dims = [&self.heads.batch[..], &[1, 1]].concat();
            let slopes = builder.input(D::F32, &dims, None, &slopes);
            let distance = builder.op(K::Multiply, &[&distance, &slopes], D::F32);
            scores = builder.op(K::Subtract, &[&scores, &distance], D::F32);
        }
        let queries = self.heads.queries;
        let [first, end] = ranges.map(|of| builder.input(D::S32, &[queries, 1], None, &of));
        let two = builder.input(D::S32, &[1], None, &[2.0]);
        // Ranges may be computed: two is added and taken off.
        let end = builder.op(K::Add, &[&end, &two], D::S32);
        let end = builder.op(K::Subtract, &[&end, &two], D::S32);
        let [behind, before] = match self.flipped {
            false => [
                builder.op(K::GreaterEqual, &[&key, &first], D::Boolean),
                builder.op(K::Less, &[&key, &end], D::Boolean),
            ],
            true => [
                builder.op(K::LessEqual, &[&first, &key], D::Boolean),
                builder.op(K::Greater, &[&end, &key], D::Boolean),
            ],
        };
        let seen = builder.op(K::LogicalAnd, &[&behind, &before], D::Boolean);
        let nothing = fill(&mut builder, D::F32, &[1], f32::NEG_INFINITY);
        let scores = builder.op(K::Select, &[&seen, &scores, &nothing], D::F32);
        let scores = mask(&mut builder, scores);
        let shares = match self.stats {
            true => {
                let [shares, stats] = builder.softmax_with_stats(&scores, self.inf_as_zero, t);
                builder.hand_out(&stats);
                shares
            }
            false => builder.softmax(&scores, self.inf_as_zero, t),
        };
        let result = builder.matmul(&shares, &v, false, t);
        if self.transposed_result {
            let result = builder.transpose(&result, &[0, 2, 1, 3]);
            builder.reorder(&result);
        }
        builder.finish()
    }

    /// Plants what no query may see, and an infinite value.
    fn plant(&self, builder: &mut Builder, [firsts, ends]: &[Vec<f32>; 2], random: &mut Random) {
        let Heads { keys, d, dv, .. } = self.heads;
        let seen = |key: i64| firsts.iter().zip(ends).any(|(&a, &b)| a <= key as f32 && (key as f32) < b);
        for key in (0..keys).filter(|&key| !seen(key)) {
            builder.inputs[1].plant((key * d) as usize, f32::NAN);
            builder.inputs[2].plant((key * dv) as usize, f32::INFINITY);
        }
        if let Some(key) = (0..keys).find(|&key| seen(key)) {
            builder.inputs[2].plant((key * dv + random.below(dv as usize) as i64) as usize, f32::INFINITY);
        }
    }
}

fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    let shapes = [[130, 130], [64, 64], [70, 200], [300, 300], [9, 40], [200, 20], [17, 1]];
    let ranges = [Ranges::Causal, Ranges::Sequences(16), Ranges::Any, Ranges::Sequences(77), Ranges::Empty];
    for (at, shape) in shapes.into_iter().enumerate() {
        for (number, ranges) in ranges.into_iter().enumerate() {
            let t = [D::F32, D::Bf16, D::F16][(at + number) % 3];
            let lie = [Lie::Dense, Lie::TokenMajor, Lie::Packed, Lie::Gaps][(at * 3 + number) % 4];
            let (batch, d) = ([[1, 3], [2, 2]][number % 2], [16, 24, 64][at % 3]);
            let heads = Heads { lie, dv: [d, 5][number / 3], ..Heads::new(t, &batch, shape, d) };
            let plain = Case::new(heads, ranges);
            all.push(Case { flipped: at % 2 == 0, transposed_result: number % 2 == 0, ..plain.clone() });
            all.push(Case { stats: true, bent: at % 2 == 0, sloped: number % 2 == 1, ..plain.clone() });
            let heads =
                Heads { lie: Lie::Dense, batch: vec![1, 1], kv_batch: vec![1, 1], ..plain.heads.clone() };
            let heads = Heads { key_view: at % 2 == 1, ..heads };
            let inf_as_zero = number % 2 == 0;
            let planted = !heads.key_view;
            all.push(Case { heads: heads.clone(), planted, inf_as_zero, ..plain.clone() });
            let grouped = Heads { batch: vec![1, 2, 3], kv_batch: vec![1, 2, 1], ..heads };
            all.push(Case { heads: Heads { key_view: false, ..grouped }, ..plain });
        }
    }
    all.extend(of_few_queries());
    all
}

/// Cases of few queries on many keys: beside others, and alone; with keys for one piece, and for several.
fn of_few_queries() -> Vec<Case> {
    let mut all = Vec::new();
    let shapes = [
        ([50, 2000], 700),
        ([33, 1100], 100),
        ([16, 6200], 5000),
        ([8, 900], 300),
        ([5, 4700], 4600),
        ([1, 1], 1),
    ];
    let batches: [[&[i64]; 2]; 4] =
        [[&[1, 3], &[1, 3]], [&[1, 2, 4], &[1, 2, 1]], [&[2, 2], &[2, 2]], [&[1, 1, 8], &[1, 1, 1]]];
    for (at, (shape, most)) in shapes.into_iter().enumerate() {
        for (number, [batch, kv_batch]) in batches.into_iter().enumerate() {
            // A few queries of many heads are one block, whose ranges are not one for each query.
            if batch.len() == 3 && batch[2] > shape[0] {
                continue;
            }
            let t = [D::F32, D::Bf16, D::F16][(at + number) % 3];
            let lie = [Lie::Dense, Lie::TokenMajor][at % 2];
            let d = [16, 24, 7][number % 3];
            let heads = Heads { lie, dv: [d, 5][at % 2], ..Heads::new(t, batch, shape, d) };
            let heads = Heads { kv_batch: kv_batch.to_vec(), ..heads };
            let plain = Case { flipped: at % 2 == 1, ..Case::new(heads, Ranges::Few(most)) };
            let bent = Case { stats: true, bent: number % 2 == 0, ..plain.clone() };
            all.push(Case { transposed_result: batch.len() == 2, sloped: batch.len() == 2, ..bent });
            all.push(Case { inf_as_zero: number % 2 == 0, ..plain });
        }
    }
    for shape in [[30, 5000], [7, 3000]] {
        let heads = Heads::new(D::F32, &[1, 1], shape, 16);
        all.push(Case { planted: true, ..Case::new(heads, Ranges::Few(2500)) });
    }
    all
}

fn unmasked(_: &mut Builder, scores: Port) -> Port {
    scores
}

/// The steps of the plan that find blocks, and the reasons for which there are none.
fn ways(setup: &Setup, engine: &Engine) -> (usize, Vec<FallbackReason>) {
    let plan = plan(setup, engine);
    let finds = |task: &String| task.contains("begin with sequences");
    let blocks = plan.nests.iter().flat_map(|nest| &nest.steps).filter(|step| step.tasks.iter().any(finds));
    let reasons = plan.fallbacks.iter().filter(|fallback| fallback.form == FastForm::Ragged);
    (blocks.count(), reasons.map(|fallback| fallback.reason).collect())
}

fn plan(setup: &Setup, engine: &Engine) -> PlanSummary {
    let partitions = setup.partitions(Policy::Fusion);
    let inputs: Vec<_> = setup.inputs.iter().map(|given| given.desc.clone()).collect();
    let ports = |ids: &[sterna::LogicalTensor]| -> Vec<_> {
        ids.iter().map(|port| inputs.iter().find(|desc| desc.id() == port.id()).unwrap().clone()).collect()
    };
    let compiled = partitions[0].compile_for(engine, &ports(partitions[0].inputs()), partitions[0].outputs());
    compiled.unwrap().plan()
}

#[test]
fn few_queries_have_a_phase_of_their_own() {
    let rows = [([40, 900], 2), ([9, 900], 2), ([8, 900], 1), ([1, 900], 1)];
    let mut wrong = Vec::new();
    for (shape, expected) in rows {
        let case = Case::new(Heads::new(D::F32, &[1, 2], shape, 16), Ranges::Few(300));
        let plan = plan(&case.setup(1, unmasked), &Engine::new());
        let phases = plan.nests.iter().filter(|nest| nest.kind == PhaseKind::Attention).count();
        if phases != expected {
            wrong.push(format!("{shape:?}: {phases} phases"));
        }
    }
    report(&wrong);
}

#[test]
fn any_ranges_are_right() {
    let rows: Vec<Row> = (cases().into_iter().enumerate())
        .map(|(seed, case)| (format!("{case:?}"), case.setup(seed as u64, unmasked)))
        .collect();
    let engine = Engine::new();
    let mut wrong = Vec::new();
    for (name, setup) in &rows {
        match setup.is_not_one() {
            Some(why) => wrong.push(format!("{name}: {why}")),
            None if ways(setup, &engine) != (1, vec![]) => {
                wrong.push(format!("{name}: {:?}", ways(setup, &engine)))
            }
            None => {}
        }
    }
    wrong.extend(check_all(&rows, &engines()));
    report(&wrong);
}

#[test]
fn bits_depend_on_no_thread() {
    let engines = [1, 2, 3].map(|threads| Engine::builder().threads(threads).build());
    let mut wrong = Vec::new();
    for (seed, case) in cases().into_iter().enumerate() {
        let heads = match case.ranges {
            Ranges::Few(_) => case.heads.clone(),
            _ => Heads { batch: vec![1, 4], kv_batch: vec![1, 4], ..case.heads.clone() },
        };
        let setup =
            Case { heads, planted: false, sloped: false, ..case.clone() }.setup(seed as u64, unmasked);
        let made = engines.each_ref().map(|engine| {
            let made = setup.run(&setup.partitions(Policy::Fusion), engine).unwrap();
            setup.outputs.iter().map(|id| made[id].bytes().to_vec()).collect::<Vec<_>>()
        });
        if made[0] != made[1] || made[0] != made[2] {
            wrong.push(format!("{case:?}"));
        }
    }
    report(&wrong);
}

#[test]
fn a_plan_without_blocks_says_why() {
    let case = Case::new(Heads::new(D::F32, &[1, 3], [130, 130], 16), Ranges::Causal);
    let mask = |builder: &mut Builder, scores: Port| {
        let cond = builder.input(D::Boolean, &[1, 1, 1, 130], None, &[1.0; 130]);
        builder.select(&cond, &scores, f32::NEG_INFINITY, false)
    };
    let bias = |builder: &mut Builder, scores: Port| {
        let bias = numbers(&mut Random::new(3), &[130], 1.0);
        let bias = builder.input(D::F32, &[130], None, &bias);
        builder.op(K::Add, &[&scores, &bias], D::F32)
    };
    let rows: Vec<Row> =
        vec![("mask".to_owned(), case.setup(1, mask)), ("bias".to_owned(), case.setup(1, bias))];
    let mut wrong = check_all(&rows, &engines());
    for (name, setup) in &rows {
        let ways = ways(setup, &Engine::new());
        if ways != (0, vec![FallbackReason::OtherMasks]) {
            wrong.push(format!("{name}: {ways:?}"));
        }
    }
    report(&wrong);
}

#[test]
fn classes_of_tiles_are_those_of_the_mask() {
    let case = Case::new(Heads::new(D::F32, &[1, 3], [256, 256], 16), Ranges::Sequences(64));
    let (setup, engine) = (case.setup(1, unmasked), Engine::new());
    let partition = &setup.partitions(Policy::Fusion)[0];
    let descs: Vec<_> = setup.inputs.iter().map(|given| given.desc.clone()).collect();
    let compiled = partition.compile_for(&engine, &descs, partition.outputs()).unwrap();
    let buffers: Vec<TensorBuf> = (setup.inputs.iter())
        .map(|given| {
            let mut buffer = TensorBuf::zeroed(given.desc.clone(), &engine).unwrap();
            given.value.write(&mut buffer).unwrap();
            buffer
        })
        .collect();
    let tensors: Vec<_> = buffers.iter().map(TensorBuf::as_tensor).collect();
    let tiles = compiled.mask_tiles(&tensors).unwrap().unwrap();
    assert_eq!([tiles.tiles(), tiles.count(TileClass::Full), tiles.count(TileClass::Masked)], [16, 4, 12]);
}
