//! Promise: attention whose queries, keys, values and weights are 8-bit integers multiplies the integers
//! where the CPU does so, and is right whatever the types, zero points, scales, masks, sizes and layouts; the
//! bits do not depend on threads, nor on what masks leave out.

use crate::attention::{self, Builder, FORMS, Form, Lie, Port, Row, Setup, check_all, masks, numbers};
use crate::common::{Random, engines, report};
use sterna::reference::Value;
use sterna::{Attr, AttrValue, CpuFeature, DataType, Engine, Level, OpKind, Policy};

use DataType as D;
use OpKind as K;

/// The mask between the scores and the SoftMax.
#[derive(Debug, Clone, Copy)]
enum Mask {
    Nothing,
    /// One of the masks that matter, by index.
    Of(usize, Form, f32),
    /// Numbers that are added to the scores of all queries, one of them NaN, ∞ or −∞.
    Bias(f32),
}

/// A graph of attention on integers.
#[derive(Debug, Clone, Copy)]
struct Integers {
    /// The types of queries, keys, weights and values, and their zero points.
    types: [DataType; 4],
    zeros: [i64; 4],
    /// The type between Dequantize and Quantize.
    float: DataType,
    sizes: [i64; 2],
    depth: i64,
    value_depth: i64,
    lie: Lie,
    /// The keys are given as a transposed view.
    key_view: bool,
    /// Heads share keys and values.
    is_shared: bool,
    weight_scale: f32,
    inf_as_zero: bool,
    mask: Mask,
}

const PLAIN: Integers = Integers {
    types: [D::U8; 4],
    zeros: [128, 131, 0, 120],
    float: D::F32,
    sizes: [70, 130],
    depth: 32,
    value_depth: 32,
    lie: Lie::Dense,
    key_view: false,
    is_shared: false,
    weight_scale: 1.0 / 255.0,
    inf_as_zero: true,
    mask: Mask::Nothing,
};

fn per_tensor(scale: f32, zero: i64) -> [(Attr, AttrValue); 3] {
    [(Attr::Qtype, "per_tensor".into()), (Attr::Scales, vec![scale].into()), (Attr::Zps, vec![zero].into())]
}

fn cast(builder: &mut Builder, from: &Port, to: DataType) -> Port {
    if from.data_type() == to { from.clone() } else { builder.op(K::TypeCast, &[from], to) }
}

impl Integers {
    fn setup(self, seed: u64) -> Setup {
        let (mut builder, random) = (Builder::new(true), &mut Random::new(seed));
        let ([queries, keys], float) = (self.sizes, self.float);
        let of_keys = if self.is_shared { 1 } else { 3 };
        let operands = [
            ([1, 3, queries, self.depth], false),
            ([1, of_keys, keys, self.depth], self.key_view),
            ([1, of_keys, keys, self.value_depth], false),
        ];
        let mut at = 0;
        let [q, k, v] = operands.map(|(mut dims, is_transposed)| {
            let mut strides = attention::strides(&dims, self.lie);
            if is_transposed {
                dims.swap(2, 3);
                strides.swap(2, 3);
            }
            let (data_type, zero) = (self.types[[0, 1, 3][at]], self.zeros[[0, 1, 3][at]]);
            at += 1;
            let bytes = (0..dims.iter().product()).map(|_: i64| random.next() as u8).collect();
            let from = builder.input_of(Value::new(data_type, &dims, bytes).unwrap(), Some(&strides));
            let attrs = per_tensor(0.011, zero);
            let number = builder.op_with(K::Dequantize, &[&from], &[D::F32], &attrs).remove(0);
            cast(&mut builder, &number, float)
        });
        let mut scores = builder.matmul(&q, &k, !self.key_view, float);
        scores = match seed % 3 {
            0 => {
                let root = builder.scalar(float, 3.0);
                builder.op(K::Divide, &[&scores, &root], float)
            }
            1 => {
                let attrs = [(Attr::Shape, Vec::<i64>::new().into()), (Attr::Value, 0.3f32.into())];
                let share = builder.op_with(K::Fill, &[], &[float], &attrs).remove(0);
                builder.op(K::Multiply, &[&share, &scores], float)
            }
            _ => scores,
        };
        scores = match self.mask {
            Mask::Nothing => scores,
            Mask::Of(index, form, fill) => {
                builder.masked(&scores, &masks(queries, keys)[index].1, form, index % 2 == 1, fill)
            }
            Mask::Bias(number) => {
                let mut bias = numbers(random, &[queries, keys], 1.0);
                // The keys of one query are all masked if the number is −∞.
                bias[..keys as usize].fill(if number == f32::NEG_INFINITY { number } else { 0.5 });
                bias[keys as usize] = number;
                let bias = builder.input(float, &[queries, keys], None, &bias);
                builder.op(K::Add, &[&scores, &bias], float)
            }
        };
        let weights = builder.softmax(&scores, self.inf_as_zero, float);
        let weights = cast(&mut builder, &weights, D::F32);
        let of_weights = per_tensor(self.weight_scale, self.zeros[2]);
        let rounded = builder.op_with(K::Quantize, &[&weights], &[self.types[2]], &of_weights).remove(0);
        let weights = builder.op_with(K::Dequantize, &[&rounded], &[D::F32], &of_weights).remove(0);
        let weights = cast(&mut builder, &weights, float);
        let result = builder.matmul(&weights, &v, false, float);
        let result = builder.transpose(&result, &[0, 2, 1, 3]);
        let result = builder.reorder(&result);
        let result = cast(&mut builder, &result, D::F32);
        builder.op_with(K::Quantize, &[&result], &[D::U8], &per_tensor(0.01, 110));
        builder.finish()
    }
}

/// True if plans of an engine multiply integers.
fn multiplies_integers(engine: &Engine) -> bool {
    engine.level() == Level::Avx512 && engine.cpu_features().contains(CpuFeature::Avx512Vnni)
}

/// The tasks of the plan that name the form of integers.
fn integer_tasks(setup: &Setup, engine: &Engine) -> usize {
    let partitions = setup.partitions(Policy::Fusion);
    let inputs: Vec<_> = setup.inputs.iter().map(|given| given.desc.clone()).collect();
    let compiled = partitions[0].compile_for(engine, &inputs, partitions[0].outputs()).unwrap();
    let plan = compiled.plan();
    let tasks = plan.nests.iter().flat_map(|nest| &nest.steps).flat_map(|step| &step.tasks);
    tasks.filter(|task| task.contains("s32 from quads of 8 bits")).count()
}

/// Runs graphs that should be one partition, and be of integers where the CPU multiplies them if they `fit`.
fn check(rows: &[Row], fit: bool) {
    let engines = engines();
    let mut wrong: Vec<String> = Vec::new();
    for (name, setup) in rows {
        wrong.extend(setup.is_not_one().map(|why| format!("{name}: {why}")));
        for engine in &engines {
            let tasks = integer_tasks(setup, engine);
            let expected = if fit && multiplies_integers(engine) { 2 } else { 0 };
            if tasks != expected {
                wrong.push(format!("{name}: {tasks} products of integers at {}", engine.level()));
            }
        }
    }
    wrong.extend(check_all(rows, &engines));
    report(&wrong);
}

/// The graph with one of the factors on all scores.
fn row(of: Integers) -> Row {
    let signed = of.types.iter().filter(|of| **of == D::S8).count();
    let seed = of.sizes[1] as u64 + of.depth as u64 + signed as u64;
    (format!("{of:?}"), of.setup(seed))
}

#[test]
fn every_type_and_zero_point_is_right() {
    let mut rows = Vec::new();
    for bits in 0..16 {
        let types: [DataType; 4] = std::array::from_fn(|at| if bits >> at & 1 == 0 { D::U8 } else { D::S8 });
        let zero = |at: usize, (of_u8, of_s8): (i64, i64)| if types[at] == D::U8 { of_u8 } else { of_s8 };
        for zeros in [[(128, 0); 4], [(7, -128), (255, 127), (0, 3), (1, -90)]] {
            let zeros = std::array::from_fn(|at| zero(at, zeros[at]));
            let float = [D::F32, D::Bf16, D::F16][bits % 3];
            rows.push(row(Integers { types, zeros, float, sizes: [33, 70], ..PLAIN }));
        }
    }
    check(&rows, true);
}

#[test]
fn every_size_and_layout_is_right() {
    let mut rows = Vec::new();
    for (index, &size) in [1, 2, 3, 15, 16, 17, 63, 64, 65, 130].iter().enumerate() {
        let lie = [Lie::Dense, Lie::TokenMajor, Lie::Packed][index % 3];
        let float = [D::F32, D::Bf16][index % 2];
        let key_view = index % 2 == 0;
        let of = Integers { lie, float, key_view, ..PLAIN };
        rows.push(row(Integers { sizes: [size, 75], ..of }));
        rows.push(row(Integers { sizes: [75, size], is_shared: true, ..of }));
        rows.push(row(Integers { depth: size, ..of }));
        rows.push(row(Integers { value_depth: size, types: [D::S8; 4], zeros: [3, 0, -128, 5], ..of }));
    }
    // So many keys that kept exponentials just fit.
    rows.push(row(Integers { sizes: [5, 4096], ..PLAIN }));
    check(&rows, true);
}

#[test]
fn every_mask_is_right() {
    let mut rows = Vec::new();
    for index in 0..masks(1, 1).len() {
        let (form, fill) = (FORMS[index % 3], [f32::NEG_INFINITY, -100.0, -1e4][index / 3 % 3]);
        let (float, inf_as_zero) = ([D::F32, D::Bf16][index % 2], index % 4 != 3);
        // A zero point of weights that is not the integer of NaN, so that tiles without weight may count.
        for (zero, weight_scale) in [(0, 1.0 / 255.0), (9, 1.0 / 300.0)] {
            let zeros = [128, 120, zero, 131];
            let mask = Mask::Of(index, form, fill);
            let sizes = [150, 200];
            rows.push(row(Integers { zeros, float, inf_as_zero, weight_scale, mask, sizes, ..PLAIN }));
        }
    }
    check(&rows, true);
}

#[test]
fn weights_that_are_no_numbers_and_scales_of_any_size_are_right() {
    let mut rows = Vec::new();
    for number in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for inf_as_zero in [false, true] {
            for (data_type, zero) in [(D::U8, 0), (D::U8, 9), (D::S8, 0), (D::S8, -128)] {
                let (types, zeros) = ([D::U8, D::U8, data_type, D::U8], [128, 120, zero, 131]);
                let mask = Mask::Bias(number);
                rows.push(row(Integers { types, zeros, inf_as_zero, mask, ..PLAIN }));
            }
        }
    }
    for weight_scale in [1e-27, 1e-6, 0.3, -0.004, 1e20] {
        rows.push(row(Integers { weight_scale, zeros: [128, 120, 40, 131], ..PLAIN }));
    }
    check(&rows, true);
}

#[test]
fn what_integers_cannot_do_runs_in_floats() {
    let rows = [
        // Zero points outside of the type, elements apart, keys beyond what is kept, a scale at the edge.
        row(Integers { zeros: [300, 131, 0, 120], ..PLAIN }),
        row(Integers { zeros: [128, 131, 256, 120], ..PLAIN }),
        row(Integers { lie: Lie::Gaps, ..PLAIN }),
        row(Integers { sizes: [3, 4097], ..PLAIN }),
        row(Integers { weight_scale: 1e-31, ..PLAIN }),
    ];
    check(&rows, false);
}

#[test]
fn one_to_four_threads_give_the_same_bits() {
    let mut wrong = Vec::new();
    for float in [D::F32, D::Bf16] {
        let setup = Integers { float, sizes: [200, 300], ..PLAIN }.setup(5);
        let partitions = setup.partitions(Policy::Fusion);
        let made = [1, 2, 3, 4].map(|threads| {
            let engine = Engine::builder().threads(threads).build();
            setup.run(&partitions, &engine).unwrap()
        });
        if made.iter().any(|made_by| *made_by != made[0]) {
            wrong.push(float);
        }
    }
    report(&wrong);
}
