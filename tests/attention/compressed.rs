//! Promise: attention on keys and values of 8 or 4 bits is one partition that reads them as they are stored,
//! and is right, whatever their types, scales, zero points, sizes and layouts; the bits do not depend on
//! threads.

use crate::attention::{Builder, Port, Row, Setup, check_all, numbers, value_of};
use crate::common::{Random, engines, report};
use sterna::reference::Value;
use sterna::{Attr, AttrValue, DataType, Engine, OpKind, PhaseKind, Policy};

use DataType as D;
use OpKind as K;

/// How many elements share a scale.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Scales {
    Tensor,
    /// Each element of a dim has its own.
    Channel(usize),
    /// By dim.
    Group(&'static [i64]),
}

/// How keys or values are stored.
#[derive(Debug, Clone, Copy)]
struct Form {
    stored: DataType,
    scales: Scales,
    zeros: Option<DataType>,
    /// Scales and zero points are attributes.
    is_static: bool,
}

fn dynamic(stored: DataType, scales: Scales, zeros: Option<DataType>) -> Form {
    Form { stored, scales, zeros, is_static: false }
}

fn fixed(stored: DataType, scales: Scales) -> Form {
    Form { stored, scales, zeros: None, is_static: true }
}

/// Elements of a type of few bits: small zero points, or any element that is no NaN and no ∞.
fn integers(random: &mut Random, data_type: DataType, dims: &[i64], is_zero: bool) -> Value {
    let count = dims.iter().product::<i64>() as usize;
    let byte = |random: &mut Random| random.next() as u8;
    let bytes: Vec<u8> = match data_type {
        D::S32 => (0..count).flat_map(|_| (random.below(9) as i32 - 4).to_ne_bytes()).collect(),
        D::U4 | D::S4 if is_zero => (0..count.div_ceil(2)).map(|_| byte(random) & 0x77).collect(),
        D::U4 | D::S4 => (0..count.div_ceil(2)).map(|_| byte(random)).collect(),
        D::F8E4m3 | D::F8E5m2 => (0..count).map(|_| byte(random) & 0xb7).collect(),
        _ if is_zero => (0..count).map(|_| random.below(100) as u8).collect(),
        _ => (0..count).map(|_| byte(random)).collect(),
    };
    Value::new(data_type, dims, bytes).unwrap()
}

/// An input of few bits and what follows from it in a float type.
fn dequantized(
    builder: &mut Builder,
    random: &mut Random,
    (dims, strides): (&[i64], Option<&[i64]>),
    form: Form,
    to: DataType,
) -> Port {
    let value = integers(random, form.stored, dims, false);
    let source = builder.input_of(value, strides);
    let mut counts = vec![1; dims.len()];
    let mut attrs: Vec<(Attr, AttrValue)> = Vec::new();
    match form.scales {
        Scales::Tensor => attrs.push((Attr::Qtype, "per_tensor".into())),
        Scales::Channel(axis) => {
            counts[axis] = dims[axis];
            attrs.extend([(Attr::Qtype, "per_channel".into()), (Attr::Axis, (axis as i64).into())]);
        }
        Scales::Group(sizes) => {
            counts = dims.iter().zip(sizes).map(|(dim, size)| dim / size).collect();
            attrs.extend([(Attr::Qtype, "per_group".into()), (Attr::GroupShape, sizes.into())]);
        }
    }
    // Elements of about 1.
    let size = match form.stored {
        D::U4 | D::S4 => 0.125,
        D::F8E4m3 | D::F8E5m2 => 0.5,
        _ => 0.01,
    };
    let count = counts.iter().product::<i64>();
    let scales: Vec<f32> = numbers(random, &[count], 0.5).into_iter().map(|x| (1.0 + x) * size).collect();
    if form.is_static {
        attrs.push((Attr::Scales, scales.into()));
        if form.stored.is_whole() && matches!(form.stored, D::U8 | D::S8) {
            let zeros: Vec<i64> = (0..count).map(|_| random.below(120) as i64).collect();
            attrs.push((Attr::Zps, zeros.into()));
        }
        let number = builder.op_with(K::Dequantize, &[&source], &[D::F32], &attrs).remove(0);
        return if to == D::F32 { number } else { builder.op(K::TypeCast, &[&number], to) };
    }
    let own: Vec<i64> = if matches!(form.scales, Scales::Group(_)) { counts } else { vec![count] };
    let scales = builder.input_of(value_of(to, &own, &scales), None);
    let zeros = form.zeros.map(|of| {
        let value = integers(random, of, &own, true);
        builder.input_of(value, None)
    });
    let inputs: Vec<&Port> = [&source, &scales].into_iter().chain(&zeros).collect();
    builder.op_with(K::DynamicDequantize, &inputs, &[to], &attrs).remove(0)
}

/// Attention of so many queries on so many keys, causal from the end of the keys.
struct Heads {
    data_type: DataType,
    /// Dims before tokens, of queries and of keys.
    batch: [i64; 2],
    shared: bool,
    queries: i64,
    keys: i64,
    d: i64,
    /// The keys are the transposed view that the product takes as it is.
    key_view: bool,
    gaps: bool,
}

impl Heads {
    fn new(data_type: DataType, queries: i64, keys: i64, d: i64) -> Self {
        Self { data_type, batch: [1, 2], shared: false, queries, keys, d, key_view: false, gaps: false }
    }

    fn setup(&self, seed: u64, of_keys: Form, of_values: Form) -> Setup {
        let mut builder = Builder::new(true);
        let random = &mut Random::new(seed);
        let (t, [a, b], s, d) = (self.data_type, self.batch, self.keys, self.d);
        let heads = if self.shared { 1 } else { b };
        let q = numbers(random, &[a, b, self.queries, d], 1.0);
        let q = builder.input(t, &[a, b, self.queries, d], None, &q);
        // Rows of an even number of elements start at bytes.
        let row = if self.gaps { d + 6 } else { d };
        let strides = [heads * s * row, s * row, row, 1];
        let of_view = [heads * s * row, s * row, 1, row];
        let k = match self.key_view {
            true => dequantized(&mut builder, random, (&[a, heads, d, s], Some(&of_view)), of_keys, t),
            false => dequantized(&mut builder, random, (&[a, heads, s, d], Some(&strides)), of_keys, t),
        };
        let scores = builder.matmul(&q, &k, !self.key_view, D::F32);
        let scale = builder.scalar(D::F32, (d as f32).sqrt());
        let scores = builder.op(K::Divide, &[&scores, &scale], D::F32);
        let cond = builder.causal(&scores, true);
        let scores = builder.select(&cond, &scores, f32::NEG_INFINITY, false);
        let weights = builder.softmax(&scores, true, t);
        let v = dequantized(&mut builder, random, (&[a, heads, s, d], Some(&strides)), of_values, t);
        builder.matmul(&weights, &v, false, t);
        builder.finish()
    }
}

/// The phases that compute something element by element: copies of operands.
fn copies(setup: &Setup) -> usize {
    let engine = Engine::builder().threads(1).build();
    let partitions = setup.partitions(Policy::Fusion);
    let inputs: Vec<_> = setup.inputs.iter().map(|given| given.desc.clone()).collect();
    let compiled = partitions[0].compile_for(&engine, &inputs, partitions[0].outputs()).unwrap();
    compiled.plan().nests.iter().filter(|nest| nest.kind == PhaseKind::Map).count()
}

/// Runs graphs that should be one partition without a copy of keys or values.
fn check_in_place(rows: &[Row]) {
    let mut wrong: Vec<String> = Vec::new();
    for (name, setup) in rows {
        wrong.extend(setup.is_not_one().map(|why| format!("{name}: {why}")));
        let maps = copies(setup);
        if maps > 0 {
            wrong.push(format!("{name}: {maps} copies"));
        }
    }
    wrong.extend(check_all(rows, &engines()));
    report(&wrong);
}

const STORED: [DataType; 4] = [D::U8, D::S8, D::U4, D::S4];

#[test]
fn every_type_of_elements_scales_and_zero_points_is_right() {
    let zeros = [None, Some(D::U8), Some(D::S8), Some(D::S32), Some(D::U4), Some(D::S4)];
    let scales = [
        Scales::Tensor,
        Scales::Channel(2),
        Scales::Channel(3),
        Scales::Group(&[1, 1, 1, 32]),
        Scales::Group(&[1, 1, 1, 64]),
        Scales::Group(&[1, 1, 65, 16]),
        Scales::Group(&[1, 1, 13, 1]),
        Scales::Group(&[1, 2, 1, 8]),
    ];
    let mut rows: Vec<Row> = Vec::new();
    for (index, stored) in STORED.into_iter().enumerate() {
        for (number, scales) in scales.into_iter().enumerate() {
            let data_type = [D::F32, D::F16, D::Bf16][(index + number) % 3];
            let form = dynamic(stored, scales, zeros[(index + number) % zeros.len()]);
            for queries in [2, 66] {
                let setup = Heads::new(data_type, queries, 130, 64).setup(1, form, form);
                rows.push((format!("{form:?} of {data_type}, {queries} queries"), setup));
            }
        }
    }
    check_in_place(&rows);
}

#[test]
fn attributes_and_small_floats_are_right() {
    let mut rows: Vec<Row> = Vec::new();
    for stored in [D::U8, D::S8, D::F8E4m3, D::F8E5m2] {
        for scales in [Scales::Tensor, Scales::Channel(2), Scales::Channel(3)] {
            for (data_type, queries) in [(D::F32, 1), (D::Bf16, 4), (D::F32, 65), (D::Bf16, 20)] {
                let form = fixed(stored, scales);
                let setup = Heads::new(data_type, queries, 90, 24).setup(2, form, form);
                rows.push((format!("{form:?} of {data_type}, {queries} queries"), setup));
            }
        }
    }
    check_in_place(&rows);
}

#[test]
fn any_number_of_keys_and_elements_is_right() {
    let mut rows: Vec<Row> = Vec::new();
    for (index, keys) in [2, 63, 64, 511, 512, 513, 1025, 1300].into_iter().enumerate() {
        for (number, d) in [2, 10, 34, 48, 128, 130].into_iter().enumerate() {
            let stored = STORED[(index + number) % 4];
            let queries = [1, 3, 8, 9][(index + number) % 4];
            let form = dynamic(stored, Scales::Channel(2), Some(D::S8));
            let other = dynamic(stored, Scales::Group(&[1, 1, 1, 2]), None);
            let setup = Heads::new(D::F16, queries, keys, d).setup(3, form, other);
            rows.push((format!("{queries} queries, {keys} keys, {d} elements of {stored}"), setup));
        }
    }
    check_in_place(&rows);
}

/// Elements in whole blocks that share a scale: few queries take them as they are stored.
#[test]
fn blocks_of_elements_are_right_for_every_number_of_queries() {
    let elements: [(i64, i64); 7] =
        [(32, 32), (64, 64), (96, 32), (128, 64), (160, 160), (192, 96), (256, 128)];
    let tokens: [(i64, i64); 5] = [(1, 1), (3, 3), (67, 1), (513, 27), (1026, 2)];
    let zeros = [None, Some(D::S8), Some(D::U8), Some(D::S32), Some(D::U4)];
    let mut rows: Vec<Row> = Vec::new();
    for (index, stored) in STORED.into_iter().enumerate() {
        for queries in 1..=8 {
            let number = 8 * index + queries as usize;
            let ((d, columns), (keys, tokens)) = (elements[number % 7], tokens[number % 5]);
            let group: &'static [i64] = vec![1, 1, tokens, columns].leak();
            let form = dynamic(stored, Scales::Group(group), zeros[number / 5 % 5]);
            let data_type = [D::F32, D::F16, D::Bf16][number % 3];
            let heads = Heads { gaps: number.is_multiple_of(2), ..Heads::new(data_type, queries, keys, d) };
            let name = format!("{queries} queries, {keys} keys, {d} elements of {data_type}, {form:?}");
            rows.push((name, heads.setup(10, form, form)));
        }
    }
    check_in_place(&rows);
}

#[test]
fn groups_of_tokens_go_across_blocks() {
    let groups: [&'static [i64]; 7] = [
        &[1, 1, 2, 48],
        &[1, 1, 32, 1],
        &[1, 1, 96, 48],
        &[1, 1, 64, 16],
        &[1, 1, 480, 1],
        &[1, 1, 512, 24],
        &[1, 1, 1440, 1],
    ];
    let mut rows: Vec<Row> = Vec::new();
    for (index, group) in groups.into_iter().enumerate() {
        let keys = if 1440 % group[2] == 0 { 1440 } else { 1536 };
        for (queries, key_view) in [(2, false), (33, false), (2, true), (33, true)] {
            let form = dynamic(STORED[index % 4], Scales::Group(group), Some(D::U8));
            let of_view: &'static [i64] = vec![group[0], group[1], group[3], group[2]].leak();
            let of_keys = Form { scales: Scales::Group(if key_view { of_view } else { group }), ..form };
            let heads = Heads { key_view, ..Heads::new(D::F16, queries, keys, 48) };
            let setup = heads.setup(4, of_keys, form);
            rows.push((format!("{group:?}, {queries} queries, transposed {key_view}"), setup));
        }
    }
    check_in_place(&rows);
}

#[test]
fn every_layout_is_right() {
    let mut rows: Vec<Row> = Vec::new();
    for stored in STORED {
        for (shared, gaps, key_view) in
            [(false, false, true), (true, false, false), (true, true, true), (false, true, false)]
        {
            for queries in [1, 5, 70] {
                let of_keys: &[i64] = if key_view { &[1, 1, 32, 1] } else { &[1, 1, 1, 32] };
                let of_keys = dynamic(stored, Scales::Group(of_keys), Some(D::S8));
                let of_values = dynamic(stored, Scales::Group(&[1, 1, 1, 64]), None);
                let mut heads = Heads::new(D::F16, queries, 600, 64);
                (heads.batch, heads.shared, heads.gaps, heads.key_view) = ([2, 3], shared, gaps, key_view);
                let name = format!("{stored}, {queries} queries, {shared} {gaps} {key_view}");
                rows.push((name, heads.setup(5, of_keys, of_values)));
            }
        }
    }
    check_in_place(&rows);
}

#[test]
fn what_no_phase_reads_in_place_is_copied_and_right() {
    let mut rows: Vec<Row> = Vec::new();
    for queries in [2, 40] {
        // Rows of four bits that start within a byte.
        let form = dynamic(D::U4, Scales::Channel(2), None);
        rows.push((format!("odd rows, {queries}"), Heads::new(D::F32, queries, 70, 33).setup(6, form, form)));
        // Groups of heads.
        let form = dynamic(D::S8, Scales::Group(&[1, 2, 1, 16]), None);
        let mut heads = Heads::new(D::F32, queries, 70, 32);
        heads.batch = [1, 4];
        rows.push((format!("groups of heads, {queries}"), heads.setup(6, form, form)));
    }
    let mut wrong: Vec<String> = rows.iter().filter_map(|(_, setup)| setup.is_not_one()).collect();
    wrong.extend(rows.iter().filter(|(_, setup)| copies(setup) == 0).map(|(name, _)| name.clone()));
    wrong.extend(check_all(&rows, &engines()));
    report(&wrong);
}

#[test]
fn a_scale_that_is_not_finite_reaches_nobody_who_masks_its_key() {
    let mut rows: Vec<Row> = Vec::new();
    for stored in [D::S8, D::U4] {
        for (queries, number) in [(3, f32::NAN), (3, f32::INFINITY), (70, f32::NAN), (70, f32::INFINITY)] {
            let form = dynamic(stored, Scales::Channel(2), None);
            let mut setup = Heads::new(D::F32, queries, 140, 32).setup(7, form, form);
            // The scales of the keys and of the values: the last key is seen by the last query alone.
            let scales: Vec<usize> =
                (0..setup.inputs.len()).filter(|&input| setup.inputs[input].value.dims() == [140]).collect();
            assert_eq!(scales.len(), 2);
            scales.into_iter().for_each(|input| setup.inputs[input].plant(139, number));
            rows.push((format!("{stored}, {queries} queries, {number}"), setup));
        }
    }
    check_in_place(&rows);
}

#[test]
fn one_to_four_threads_give_the_same_bits() {
    let mut wrong = Vec::new();
    for stored in STORED {
        for queries in [1, 100] {
            let form = dynamic(stored, Scales::Group(&[1, 1, 1, 32]), Some(D::S8));
            let setup = Heads::new(D::F16, queries, 1500, 64).setup(8, form, form);
            let partitions = setup.partitions(Policy::Fusion);
            let made = [1, 2, 3, 4].map(|threads| {
                let engine = Engine::builder().threads(threads).build();
                setup.run(&partitions, &engine).unwrap()
            });
            if made.iter().any(|made_by| *made_by != made[0]) {
                wrong.push((stored, queries));
            }
        }
    }
    report(&wrong);
}

/// Attention on u8 throughout: queries, keys and values are dequantised, the weights are rounded to u8, and
/// so is the result.
fn int8(queries: i64, keys: i64, is_inverted: bool) -> Setup {
    let mut builder = Builder::new(true);
    let random = &mut Random::new(9);
    let form = fixed(D::U8, Scales::Tensor);
    let heads = [1, 3];
    let dims = |tokens: i64| [heads[0], heads[1], tokens, 32];
    let [q, k, v] = [queries, keys, keys]
        .map(|tokens| dequantized(&mut builder, random, (&dims(tokens), None), form, D::Bf16));
    let mut scores = builder.matmul(&q, &k, true, D::Bf16);
    let root = builder.scalar(D::Bf16, 6.0);
    let holds: Vec<f32> = (0..keys).map(|key| f32::from((key % 5 != 3) != is_inverted)).collect();
    let cond = builder.input(D::Boolean, &[1, 1, 1, keys], None, &holds);
    if is_inverted {
        scores = builder.op(K::Divide, &[&scores, &root], D::Bf16);
        scores = builder.select(&cond, &scores, f32::NEG_INFINITY, true);
    } else {
        scores = builder.select(&cond, &scores, f32::NEG_INFINITY, false);
        scores = builder.op(K::Divide, &[&scores, &root], D::Bf16);
        let bias = numbers(random, &[1, 1, 1, keys], 0.5);
        let bias = builder.input(D::Bf16, &[1, 1, 1, keys], None, &bias);
        scores = builder.op(K::Add, &[&scores, &bias], D::Bf16);
    }
    let weights = builder.softmax(&scores, true, D::Bf16);
    let quantize = |builder: &mut Builder, from: &Port, scale: f32, zero: i64| {
        let attrs = [
            (Attr::Qtype, "per_tensor".into()),
            (Attr::Scales, vec![scale].into()),
            (Attr::Zps, vec![zero].into()),
        ];
        let wide = builder.op(K::TypeCast, &[from], D::F32);
        let rounded = builder.op_with(K::Quantize, &[&wide], &[D::U8], &attrs).remove(0);
        (rounded, attrs)
    };
    let (rounded, attrs) = quantize(&mut builder, &weights, 1.0 / 255.0, 0);
    let weights = builder.op_with(K::Dequantize, &[&rounded], &[D::F32], &attrs).remove(0);
    let weights = builder.op(K::TypeCast, &[&weights], D::Bf16);
    let result = builder.matmul(&weights, &v, false, D::Bf16);
    let result = builder.transpose(&result, &[0, 2, 1, 3]);
    let result = builder.reorder(&result);
    quantize(&mut builder, &result, 0.02, 110);
    builder.finish()
}

#[test]
fn attention_on_bytes_throughout_is_one_partition_and_right() {
    let mut rows: Vec<Row> = Vec::new();
    for (queries, keys) in [(32, 33), (128, 128), (70, 200), (1, 300), (9, 4200)] {
        for is_inverted in [false, true] {
            let name = format!("{queries} queries, {keys} keys, {is_inverted}");
            rows.push((name, int8(queries, keys, is_inverted)));
        }
    }
    let mut wrong: Vec<String> = rows.iter().filter_map(|(_, setup)| setup.is_not_one()).collect();
    wrong.extend(check_all(&rows, &engines()));
    report(&wrong);
}
