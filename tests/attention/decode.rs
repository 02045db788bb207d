//! Promise: attention of few queries on many keys is right, whatever its chain, mask, layout and type; masked
//! keys do not exist for it; its keys are shared among threads, and the bits do not depend on how many.

use crate::attention::{
    self, FORMS, Form, Heads, Lie, Row, Setup, check_all, floats, masks, numbers, plain, value_of,
};
use crate::common::{Random, engines, report};
use sterna::{DataType, Engine, OpKind, Policy};

use DataType as D;
use OpKind as K;

const TYPES: [DataType; 3] = [D::F32, D::Bf16, D::F16];

/// Sizes around a chunk of keys, and around several.
const KEYS: [i64; 7] = [1, 63, 511, 512, 513, 1024, 1300];

/// Replaces elements of an input.
fn plant(setup: &mut Setup, input: usize, places: impl Iterator<Item = usize>, number: f32) {
    let given = &mut setup.inputs[input];
    let (data_type, dims) = (given.desc.data_type(), given.value.dims().to_vec());
    let mut numbers: Vec<f32> = floats(&given.value).into_iter().map(|x| x as f32).collect();
    places.for_each(|place| numbers[place] = number);
    given.value = value_of(data_type, &dims, &numbers);
}

#[test]
fn any_number_of_queries_and_keys_is_right() {
    let mut rows: Vec<Row> = Vec::new();
    for (index, keys) in KEYS.into_iter().enumerate() {
        for queries in 1..=9 {
            let data_type = TYPES[(index + queries as usize) % 3];
            let heads = Heads::new(data_type, &[2], [queries, keys], 20);
            let setup = plain(&heads, true, 1, |_, scores| scores.clone());
            rows.push((format!("{queries} queries, {keys} keys of {data_type}"), setup));
        }
    }
    report(&check_all(&rows, &engines()));
}

#[test]
fn every_layout_and_width_is_right() {
    let mut rows: Vec<Row> = Vec::new();
    for data_type in TYPES {
        for (d, dv) in [(1, 1), (7, 33), (16, 64), (64, 128), (65, 130), (200, 24)] {
            for lie in [Lie::Dense, Lie::TokenMajor, Lie::Packed, Lie::Gaps] {
                // Queries that differ from keys and values in width are no parts of one tensor.
                if lie == Lie::Packed && d != dv {
                    continue;
                }
                let heads = Heads { dv, lie, ..Heads::new(data_type, &[1, 2], [3, 530], d) };
                let setup = plain(&heads, true, 2, |_, scores| scores.clone());
                rows.push((format!("{data_type}, {d} and {dv} wide, {lie:?}"), setup));
            }
        }
    }
    report(&check_all(&rows, &engines()));
}

/// Heads that share keys: so many of them, and queries of each.
fn grouped(data_type: DataType, shared: i64, queries: i64, keys: i64) -> Heads {
    let heads = Heads::new(data_type, &[2, 2, shared], [queries, keys], 24);
    Heads { kv_batch: vec![2, 2, 1], ..heads }
}

#[test]
fn queries_of_heads_that_share_keys_are_right() {
    let mut rows: Vec<Row> = Vec::new();
    for (shared, queries) in [(8, 1), (4, 2), (2, 4), (2, 3), (3, 1), (4, 3), (1, 8), (16, 1)] {
        for (index, data_type) in TYPES.into_iter().enumerate() {
            let heads = grouped(data_type, shared, queries, [513, 700, 65][index]);
            for bottom_right in [true, false] {
                let setup = plain(&heads, true, 3, |builder, scores| {
                    // A mask of the queries, and numbers that differ by head.
                    let dims = [2, 2, shared, 1, 1];
                    let slopes = numbers(&mut Random::new(3), &dims, 1.0);
                    let slopes = builder.input(D::F32, &dims, None, &slopes);
                    let scores = builder.op(K::Multiply, &[scores, &slopes], D::F32);
                    let cond = builder.causal(&scores, bottom_right);
                    builder.select(&cond, &scores, f32::NEG_INFINITY, false)
                });
                rows.push((
                    format!("{shared} heads, {queries} queries of {data_type}, {bottom_right}"),
                    setup,
                ));
            }
        }
    }
    report(&check_all(&rows, &engines()));
}

#[test]
fn every_mask_in_every_form_is_right() {
    let mut rows: Vec<Row> = Vec::new();
    for (index, (name, mask)) in masks(3, 1100).into_iter().enumerate() {
        for form in FORMS {
            for (inverted, finite) in [(false, -1e4), (true, f32::MIN)] {
                for fill in [f32::NEG_INFINITY, finite] {
                    let data_type = TYPES[index % 3];
                    let heads = Heads::new(data_type, &[2], [3, 1100], 8);
                    let setup = plain(&heads, true, 4, |builder, scores| {
                        builder.masked(scores, &mask, form, inverted, fill)
                    });
                    let name = format!("{name} as {form:?} with {fill}, {inverted}, of {data_type}");
                    rows.push((name, setup));
                }
            }
        }
    }
    report(&check_all(&rows, &engines()));
}

#[test]
fn chains_with_typed_scores_and_statistics_are_right() {
    let mut rows: Vec<Row> = Vec::new();
    for data_type in TYPES {
        for of_scores in [D::F32, data_type] {
            for stats in [false, true] {
                let heads = Heads::new(data_type, &[2], [2, 600], 16);
                let mut builder = attention::Builder::new(true);
                let [q, k, v] = heads.inputs(&mut builder, &mut Random::new(5));
                let scores = builder.matmul(&q, &k, true, of_scores);
                let [scale, cap] = [0.1, 5.0].map(|number| builder.scalar(of_scores, number));
                let scores = builder.op(K::Multiply, &[&scores, &scale], of_scores);
                let scores = builder.op(K::Tanh, &[&scores], of_scores);
                let scores = builder.op(K::Multiply, &[&scores, &cap], of_scores);
                let bias = numbers(&mut Random::new(6), &[600], 1.0);
                let bias = builder.input(of_scores, &[600], None, &bias);
                let scores = builder.op(K::Add, &[&scores, &bias], of_scores);
                let cond = builder.causal(&scores, true);
                let scores = builder.select(&cond, &scores, f32::NEG_INFINITY, false);
                let shares = match stats {
                    true => builder.softmax_with_stats(&scores, true, data_type)[0].clone(),
                    false => builder.softmax(&scores, true, data_type),
                };
                let result = builder.matmul(&shares, &v, false, data_type);
                builder.transpose(&result, &[1, 0, 2]);
                let name = format!("{data_type}, scores of {of_scores}, statistics {stats}");
                rows.push((name, builder.finish()));
            }
        }
    }
    report(&check_all(&rows, &engines()));
}

#[test]
fn finite_fills_and_rows_without_keys_are_right() {
    let mut rows: Vec<Row> = Vec::new();
    for data_type in TYPES {
        for inf_as_zero in [true, false] {
            for fill in [f32::NEG_INFINITY, -1e4, f32::MIN, -50.0, -3.0] {
                for (name, from) in [("few", 100), ("none at all", 0), ("some of each chunk", 1)] {
                    let heads = Heads::new(data_type, &[2], [3, 1200], 8);
                    let setup = plain(&heads, inf_as_zero, 7, |builder, scores| {
                        // The first query sees nothing, the others keys below `from` of each 600.
                        let sees = |at: i32| at / 1200 > 0 && at % 600 < from;
                        let holds: Vec<f32> = (0..3 * 1200).map(|at| f32::from(sees(at))).collect();
                        let cond = builder.input(D::Boolean, &[3, 1200], None, &holds);
                        builder.select(&cond, scores, fill, false)
                    });
                    rows.push((format!("{data_type}, fill {fill}, {name}, {inf_as_zero}"), setup));
                }
            }
        }
    }
    report(&check_all(&rows, &engines()));
}

/// Attention of three queries with a mask that is added: −`size` where a query and a key are left out.
fn with_addend(data_type: DataType, keys: i64, size: f32, is_out: impl Fn(i64, i64) -> bool) -> Setup {
    let heads = Heads::new(data_type, &[2], [3, keys], 16);
    plain(&heads, true, 7, |builder, scores| {
        let places = (0..3 * keys).map(|at| (at / keys, at % keys));
        let mask: Vec<f32> =
            places.map(|(query, key)| if is_out(query, key) { -size } else { 0.0 }).collect();
        let mask = builder.input(D::F32, &[3, keys], None, &mask);
        builder.op(K::Add, &[scores, &mask], D::F32)
    })
}

#[test]
fn chunks_that_a_finite_addend_leaves_out_are_right() {
    let mut rows: Vec<Row> = Vec::new();
    for data_type in TYPES {
        for size in [f32::MAX, 65504.0, 1e4, 2000.0, 900.0, 40.0] {
            type IsOut = fn(i64, i64) -> bool;
            let masks: [(&str, IsOut); 5] = [
                ("all but the first chunk", |_, key| key >= 512),
                ("all but the middle of the last chunk", |_, key| !(1300..1310).contains(&key)),
                ("all keys", |_, _| true),
                ("all keys of one query", |query, key| query == 1 || key < 600),
                ("other chunks for each query", |query, key| key / 512 != query),
            ];
            for (name, is_out) in masks {
                let setup = with_addend(data_type, 1400, size, is_out);
                rows.push((format!("{data_type}, {name} by {size}"), setup));
            }
        }
    }
    report(&check_all(&rows, &engines()));
}

#[test]
fn values_of_chunks_without_weight_are_not_read() {
    let mut wrong = Vec::new();
    for data_type in TYPES {
        for size in [f32::MAX, 1e4] {
            for (name, first) in [("chunks", 1024), ("tiles", 640)] {
                let setup = with_addend(data_type, 1400, size, |_, key| key >= first);
                let mut planted = with_addend(data_type, 1400, size, |_, key| key >= first);
                // Read, these values would lead to other sums.
                let values = &planted.inputs[2].value;
                let all = values.dims().iter().product::<i64>() as usize;
                let of_head = all / 2;
                let left_out = (0..all).filter(|at| at % of_head >= first as usize * 16);
                plant(&mut planted, 2, left_out, f32::NAN);
                for engine in engines() {
                    let [with, without] = [&planted, &setup].map(|setup| {
                        let made = setup.run(&setup.partitions(Policy::Fusion), &engine).unwrap();
                        floats(&made[&setup.outputs[0]]).iter().map(|x| x.to_bits()).collect::<Vec<_>>()
                    });
                    if with != without {
                        wrong.push(format!("{data_type}, {name} by {size} at {}", engine.level()));
                    }
                }
            }
        }
    }
    report(&wrong);
}

#[test]
fn what_a_masked_key_holds_reaches_nobody_who_masks_it() {
    const WIDTH: usize = 8;
    let mut rows: Vec<Row> = Vec::new();
    let which = ["causal", "padding", "document", "random half"];
    let chosen: Vec<_> = masks(3, 1100).into_iter().filter(|(name, _)| which.contains(name)).collect();
    for (name, mask) in chosen {
        for data_type in TYPES {
            for (form, fill) in [
                (Form::Boolean, f32::NEG_INFINITY),
                (Form::Additive, f32::NEG_INFINITY),
                (Form::Boolean, -1e4),
            ] {
                for number in [f32::NAN, f32::INFINITY] {
                    let heads = Heads::new(data_type, &[], [3, 1100], WIDTH as i64);
                    let mut setup = plain(&heads, true, 8, |builder, scores| {
                        builder.masked(scores, &mask, form, false, fill)
                    });
                    // In tiles that are mixed, masked as a whole, and in the chunk that ends early.
                    for key in [2, 70, 661, 1030] {
                        let row = key * WIDTH..(key + 1) * WIDTH;
                        plant(&mut setup, 1, row.clone(), number);
                        plant(&mut setup, 2, row.step_by(3), number);
                    }
                    rows.push((format!("{number} under {name} as {form:?} of {data_type}"), setup));
                }
            }
        }
    }
    report(&check_all(&rows, &engines()));
}

#[test]
fn one_to_four_threads_give_the_same_bits() {
    let mut wrong = Vec::new();
    for data_type in TYPES {
        for (name, heads) in [
            ("one head", Heads::new(data_type, &[], [1, 5000], 64)),
            ("shared keys", grouped(data_type, 4, 2, 3000)),
        ] {
            let setup = plain(&heads, true, 9, |builder, scores| {
                let cond = builder.causal(scores, true);
                builder.select(&cond, scores, f32::NEG_INFINITY, false)
            });
            let partitions = setup.partitions(Policy::Fusion);
            let made = [1, 2, 3, 4].map(|threads| {
                let engine = Engine::builder().threads(threads).build();
                setup.run(&partitions, &engine).unwrap()
            });
            if made.iter().any(|made_by| *made_by != made[0]) {
                wrong.push((data_type, name));
            }
        }
    }
    report(&wrong);
}

#[test]
fn one_head_is_work_for_several_threads() {
    let heads = Heads::new(D::F32, &[], [1, 32_768], 64);
    let setup = plain(&heads, true, 10, |_, scores| scores.clone());
    let engine = Engine::builder().threads(2).build();
    let partitions = setup.partitions(Policy::Fusion);
    let partition = &partitions[0];
    let compiled = partition.compile(&engine).unwrap();
    let plan = compiled.plan();
    assert_eq!(plan.nests.last().map(|nest| nest.threads), Some(2), "{plan}");
}
