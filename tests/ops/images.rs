//! Pools, interpolations and batch normalisation against the reference: at every level, for all types,
//! formats and strides, for windows of every kind, with what is no number, and on any number of threads.

use crate::common::{Random, report};
use crate::rows::{Case, FLOATS, check, filled, turned, value};
use sterna::reference::{self, Value};
use sterna::{Attr, DataType, Engine, Graph, LogicalTensor, Op, OpKind, Partition, Policy};

use DataType as D;
use OpKind as K;

/// The windows of a pool over images of some dims, which are those of NCX.
#[derive(Debug, Clone)]
struct Pool {
    dims: Vec<i64>,
    kernel: Vec<i64>,
    strides: Vec<i64>,
    begin: Vec<i64>,
    end: Vec<i64>,
    dilations: Vec<i64>,
    rounds_up: bool,
    auto_pad: &'static str,
}

fn pool(dims: &[i64], kernel: &[i64], strides: &[i64], begin: &[i64], end: &[i64]) -> Pool {
    Pool {
        dims: dims.to_vec(),
        kernel: kernel.to_vec(),
        strides: strides.to_vec(),
        begin: begin.to_vec(),
        end: end.to_vec(),
        dilations: vec![1; kernel.len()],
        rounds_up: false,
        auto_pad: "None",
    }
}

fn pools() -> Vec<Pool> {
    let plain =
        |dims: &[i64], kernel: &[i64], strides: &[i64], pads: &[i64]| pool(dims, kernel, strides, pads, pads);
    let mut pools = vec![
        plain(&[2, 3, 17], &[3], &[1], &[1]),
        plain(&[1, 2, 200], &[5], &[2], &[2]),
        plain(&[2, 1, 23], &[4], &[3], &[0]),
        plain(&[2, 3, 9, 11], &[3, 3], &[2, 2], &[1, 1]),
        plain(&[1, 5, 8, 70], &[2, 2], &[2, 2], &[0, 0]),
        plain(&[2, 33, 7, 6], &[3, 3], &[1, 1], &[1, 1]),
        plain(&[1, 70, 5, 9], &[2, 3], &[1, 3], &[1, 2]),
        plain(&[1, 16, 4, 4], &[4, 4], &[1, 1], &[0, 0]),
        plain(&[2, 3, 5, 6, 7], &[2, 3, 2], &[1, 2, 2], &[1, 1, 0]),
        plain(&[2, 4, 1, 1], &[1, 1], &[1, 1], &[0, 0]),
        plain(&[1, 1, 3, 3], &[3, 3], &[3, 3], &[2, 2]),
        plain(&[2, 2, 2, 2, 2, 3], &[2, 1, 2, 2], &[1, 1, 1, 1], &[0, 0, 1, 0]),
        // Windows in padding alone.
        pool(&[1, 3, 4, 5], &[2, 2], &[2, 1], &[3, 2], &[2, 4]),
        pool(&[1, 20, 3], &[1], &[1], &[2], &[3]),
        plain(&[0, 3, 5, 5], &[3, 3], &[1, 1], &[1, 1]),
        plain(&[2, 0, 5, 5], &[3, 3], &[1, 1], &[1, 1]),
        // More than a part of a row.
        plain(&[1, 1, 9_000], &[3], &[1], &[1]),
        plain(&[1, 40, 2, 300], &[2, 3], &[1, 2], &[0, 1]),
        // Several planes at once, several rows of one, more than three terms, and long steps.
        plain(&[1, 131, 7, 7], &[3, 3], &[1, 1], &[1, 1]),
        plain(&[2, 21, 14, 14], &[2, 2], &[2, 2], &[0, 0]),
        plain(&[1, 2, 75, 130], &[3, 3], &[2, 2], &[1, 1]),
        plain(&[1, 9, 20, 32], &[5, 5], &[1, 1], &[2, 2]),
        plain(&[1, 3, 30, 19], &[7, 4], &[1, 2], &[3, 1]),
        plain(&[1, 2, 3, 400], &[2, 3], &[2, 70], &[1, 0]),
        plain(&[1, 3, 7, 14, 15], &[3, 3, 3], &[2, 1, 2], &[1, 1, 1]),
    ];
    pools.push(Pool { rounds_up: true, ..plain(&[1, 4, 8, 10], &[3, 3], &[2, 2], &[0, 1]) });
    pools.push(Pool { rounds_up: true, ..plain(&[1, 24, 6], &[2], &[3], &[1]) });
    pools.push(Pool { dilations: vec![2, 3], ..plain(&[2, 3, 9, 40], &[3, 3], &[1, 2], &[2, 3]) });
    pools.push(Pool { dilations: vec![3], ..plain(&[2, 18, 30], &[4], &[2], &[4]) });
    pools.push(Pool { dilations: vec![2, 2], ..plain(&[1, 3, 31, 35], &[5, 5], &[1, 1], &[4, 4]) });
    for auto_pad in ["SAME_UPPER", "SAME_LOWER", "VALID"] {
        pools.push(Pool { auto_pad, ..plain(&[2, 3, 8, 9], &[3, 2], &[2, 2], &[0, 0]) });
    }
    pools
}

/// The dims of NCX in the order of a format.
fn in_format(dims: &[i64], format: &str) -> Vec<i64> {
    let mut dims = dims.to_vec();
    if format == "NXC" {
        let channels = dims.remove(1);
        dims.push(channels);
    }
    dims
}

/// Strides of rows with gaps between them.
fn spaced(dims: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; dims.len()];
    for dim in (0..dims.len() - 1).rev() {
        strides[dim] = strides[dim + 1] * dims[dim + 1] + 3;
    }
    strides
}

/// Numbers of which some are equal, and some are none if it is wanted.
fn pixels(t: DataType, dims: &[i64], is_odd: bool, random: &mut Random) -> Value {
    let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.0];
    let count: i64 = dims.iter().product();
    let number = |_| match random.below(if is_odd { 6 } else { 1000 }) {
        0 if is_odd => random.pick(&odd),
        _ => random.below(17) as f32 / 4.0 - 2.0,
    };
    let numbers: Vec<f32> = (0..count).map(number).collect();
    value(t, dims, &numbers)
}

fn op_of(pool: &Pool, kind: OpKind, t: DataType, format: &str, inputs: usize) -> Op {
    let tensor = |id| LogicalTensor::unknown(id, t);
    let op = Op::new(0, kind).inputs_from((0..inputs).map(tensor)).output(tensor(100));
    let op = op
        .attr(Attr::Kernel, pool.kernel.clone())
        .attr(Attr::Strides, pool.strides.clone())
        .attr(Attr::PadsBegin, pool.begin.clone())
        .attr(Attr::PadsEnd, pool.end.clone())
        .attr(Attr::AutoPad, pool.auto_pad)
        .attr(Attr::DataFormat, format);
    let is_max = matches!(kind, K::MaxPool | K::MaxPoolBackward);
    let op = if is_max { op.attr(Attr::Dilations, pool.dilations.clone()) } else { op };
    match matches!(kind, K::MaxPool | K::AvgPool) {
        true => op.attr(Attr::RoundingType, if pool.rounds_up { "ceil" } else { "floor" }),
        false => op,
    }
}

/// The ops of a pool and their inputs.
fn cases_of(
    pool: &Pool,
    t: DataType,
    format: &str,
    is_odd: bool,
    random: &mut Random,
) -> Vec<(String, Case)> {
    let dims = in_format(&pool.dims, format);
    let mut cases = Vec::new();
    for kind in [K::MaxPool, K::MaxPoolBackward, K::AvgPool, K::AvgPoolBackward] {
        let is_max = matches!(kind, K::MaxPool | K::MaxPoolBackward);
        let is_backward = matches!(kind, K::MaxPoolBackward | K::AvgPoolBackward);
        if !is_max && pool.dilations.iter().any(|&dilation| dilation > 1) || is_backward && pool.rounds_up {
            continue;
        }
        let forward = op_of(pool, if is_max { K::MaxPool } else { K::AvgPool }, t, format, 1);
        for excludes in [false, true] {
            if is_max && excludes {
                continue;
            }
            let with = |op: Op| if is_max { op } else { op.attr(Attr::ExcludePad, excludes) };
            let windows = reference::output_shapes(&with(forward.clone()), &[&dims]).unwrap().unwrap();
            let source = pixels(t, &dims, is_odd, random);
            let mut inputs = vec![source];
            if is_backward {
                let gradient = pixels(t, &windows[0], is_odd, random);
                inputs = if is_max { vec![inputs.remove(0), gradient] } else { vec![gradient] };
            }
            let mut op = with(op_of(pool, kind, t, format, inputs.len()));
            if kind == K::AvgPoolBackward {
                op = op.attr(Attr::SrcShape, dims.clone());
            }
            let name = format!("{kind} {t} {format} {excludes} {pool:?}");
            let case = || Case::of(op.clone(), inputs.clone());
            cases.push((name.clone(), case()));
            if !pool.dims.contains(&0) {
                let results = reference::run(&op, &inputs).unwrap();
                let mut turned_case = case().out_strides(0, &turned(results[0].dims()));
                for (port, input) in inputs.iter().enumerate() {
                    turned_case = turned_case.strides(port, &turned(input.dims()));
                }
                cases.push((format!("{name}, turned"), turned_case));
                cases.push((format!("{name}, from turned"), case().strides(0, &turned(inputs[0].dims()))));
                let [from, to] = [inputs[0].dims(), results[0].dims()].map(spaced);
                cases.push((format!("{name}, spaced"), case().strides(0, &from).out_strides(0, &to)));
            }
        }
    }
    cases
}

#[test]
fn pools_of_every_form() {
    let mut random = Random::new(1);
    let mut cases = Vec::new();
    for pool in pools() {
        for (t, format) in FLOATS.into_iter().flat_map(|t| [(t, "NCX"), (t, "NXC")]) {
            cases.extend(cases_of(&pool, t, format, false, &mut random));
        }
    }
    check("pool", cases);
}

#[test]
fn pools_of_what_is_no_number() {
    let mut random = Random::new(2);
    let mut cases = Vec::new();
    for pool in pools() {
        for (t, format) in FLOATS.into_iter().flat_map(|t| [(t, "NCX"), (t, "NXC")]) {
            cases.extend(cases_of(&pool, t, format, true, &mut random));
        }
    }
    check("odd", cases);
    // Maxima are exact.
    let mut wrong = Vec::new();
    for pool in pools() {
        let cases = cases_of(&pool, D::F32, "NXC", true, &mut random);
        for engine in crate::common::engines() {
            for (name, case) in cases.iter().filter(|(name, _)| name.starts_with("MaxPool f32")) {
                wrong.extend(case.differing_bits(&engine).map(|fault| format!("{name}: {fault}")));
            }
        }
    }
    report(&wrong);
}

#[test]
fn interpolations_of_every_form() {
    let mut random = Random::new(3);
    let mut cases = Vec::new();
    let sizes: [(&[i64], &[i64]); 12] = [
        (&[2, 3, 17], &[40]),
        (&[1, 2, 50], &[7]),
        (&[2, 3, 5, 6], &[11, 9]),
        (&[1, 33, 6, 4], &[3, 8]),
        (&[2, 16, 3, 70], &[6, 140]),
        // Whole multiples of the size.
        (&[2, 3, 37], &[74]),
        (&[2, 3, 4, 5], &[12, 20]),
        (&[1, 2, 2, 3, 5], &[4, 6, 15]),
        (&[1, 2, 3, 4, 5], &[6, 2, 5]),
        (&[2, 3, 1, 7], &[4, 1]),
        (&[0, 3, 4, 4], &[2, 2]),
        (&[1, 3, 4, 4], &[0, 2]),
    ];
    for (dims, sizes) in sizes {
        for (t, format) in FLOATS.into_iter().flat_map(|t| [(t, "NCX"), (t, "NXC")]) {
            for (mode, places) in [
                ("nearest", "half_pixel"),
                ("linear", "half_pixel"),
                ("trilinear", "align_corners"),
                ("nearest", "align_corners"),
            ] {
                let is_odd = mode == "nearest";
                let source = pixels(t, &in_format(dims, format), is_odd, &mut random);
                let gradient =
                    pixels(t, &in_format(&[&dims[..2], sizes].concat(), format), is_odd, &mut random);
                for (kind, inputs) in
                    [(K::Interpolate, vec![source.clone()]), (K::InterpolateBackward, vec![source, gradient])]
                {
                    let case = || {
                        Case::new(kind, inputs.clone(), &[t])
                            .attr(Attr::Mode, mode)
                            .attr(Attr::CoordinateTransformationMode, places)
                            .attr(Attr::DataFormat, format)
                            .attr(Attr::Sizes, sizes)
                    };
                    let name = format!("{kind} {t} {mode} {places} {format} {dims:?} to {sizes:?}");
                    cases.push((name.clone(), case()));
                    let from = inputs.len() - 1;
                    if ![dims, sizes].concat().contains(&0) {
                        let strides = turned(inputs[from].dims());
                        cases.push((format!("{name}, from turned"), case().strides(from, &strides)));
                        let result = reference::run(&case().op, &inputs).unwrap();
                        let strides = turned(result[0].dims());
                        cases.push((format!("{name}, to turned"), case().out_strides(0, &strides)));
                    }
                }
            }
        }
    }
    let scaled = Case::new(K::Interpolate, vec![filled(D::F32, &[2, 17, 21], &mut random)], &[D::F32])
        .attr(Attr::Mode, "nearest")
        .attr(Attr::DataFormat, "NCX")
        .attr(Attr::Scales, vec![0.809_524f32]);
    assert_eq!(reference::run(&scaled.op, &scaled.inputs).unwrap()[0].dims(), [2, 17, 17]);
    cases.push(("by a factor".into(), scaled));
    check("interpolation", cases);
}

/// A batch normalisation: the kind, its inputs, and the type of each output.
fn batch_norm(
    kind: OpKind,
    (t, second): (DataType, DataType),
    dims: &[i64],
    format: &str,
    is_affine: bool,
    random: &mut Random,
) -> Case {
    let dims = in_format(dims, format);
    let channels = if format == "NCX" { dims[1] } else { dims[dims.len() - 1] };
    let source = filled(t, &dims, random);
    let [gamma, beta, mean] = [(); 3].map(|()| filled(second, &[channels], random));
    let variances: Vec<f32> = (0..channels).map(|i| 0.5 + i as f32 / 8.0).collect();
    let variance = value(second, &[channels], &variances);
    let case = match kind {
        K::BatchNormInference => Case::new(kind, vec![source, gamma, beta, mean, variance], &[t]),
        K::BatchNormForwardTraining => {
            let mut inputs = vec![source, mean, variance];
            inputs.extend([gamma, beta].into_iter().filter(|_| is_affine));
            Case::new(kind, inputs, &[t, second, second, second, second])
        }
        _ => {
            let mut inputs = vec![source, filled(t, &dims, random), mean, variance];
            inputs.extend([gamma].into_iter().filter(|_| is_affine));
            Case::new(kind, inputs, &[t, second, second])
        }
    };
    case.attr(Attr::Epsilon, 0.01f32).attr(Attr::DataFormat, format)
}

const BATCHES: [&[i64]; 9] = [
    &[2, 3, 17],
    &[3, 33, 5, 6],
    &[1, 16, 9, 70],
    &[4, 2],
    &[2, 5, 3, 4, 5],
    &[0, 3, 4],
    &[2, 1, 1],
    &[2, 3, 40_000],
    &[1, 130, 1, 1],
];
const PAIRS: [(DataType, DataType); 4] =
    [(D::F32, D::F32), (D::Bf16, D::Bf16), (D::Bf16, D::F32), (D::F16, D::F32)];

#[test]
fn batch_norms_of_every_form() {
    let mut random = Random::new(4);
    let mut cases = Vec::new();
    for kind in [K::BatchNormInference, K::BatchNormForwardTraining, K::BatchNormTrainingBackward] {
        for dims in BATCHES {
            for (pair, format) in PAIRS.into_iter().flat_map(|pair| [(pair, "NCX"), (pair, "NXC")]) {
                for is_affine in [true, false] {
                    let case = || batch_norm(kind, pair, dims, format, is_affine, &mut Random::new(5));
                    let name = format!("{kind} {pair:?} {format} {dims:?} {is_affine}");
                    cases.push((name.clone(), case()));
                    let strides = turned(&in_format(dims, format));
                    if !dims.contains(&0) {
                        cases.push((format!("{name}, from turned"), case().strides(0, &strides)));
                        cases.push((format!("{name}, to turned"), case().out_strides(0, &strides)));
                    }
                }
            }
        }
    }
    let momentum = batch_norm(K::BatchNormForwardTraining, PAIRS[0], &[2, 3, 4], "NCX", true, &mut random);
    cases.push(("momentum".into(), momentum.attr(Attr::Momentum, 0.9f32)));
    check("batch norm", cases);
}

#[test]
fn inference_is_exact_alone_and_among_other_ops() {
    let mut wrong = Vec::new();
    let engines = crate::common::engines();
    for dims in BATCHES {
        for (pair, format) in PAIRS.into_iter().flat_map(|pair| [(pair, "NCX"), (pair, "NXC")]) {
            let mut random = Random::new(6);
            let case = batch_norm(K::BatchNormInference, pair, dims, format, true, &mut random);
            for engine in &engines {
                let name = format!("{pair:?} {format} {dims:?} at {:?}", engine.level());
                wrong.extend(case.differing_bits(engine).map(|fault| format!("{name}: {fault}")));
            }
        }
    }
    report(&wrong);
    let tensor = |id| LogicalTensor::strided(id, D::F32, &[2, 3, 4]).unwrap();
    let channel = |id| LogicalTensor::strided(id, D::F32, &[3]).unwrap();
    let norm = Op::new(1, K::BatchNormInference)
        .input(tensor(1))
        .inputs_from((2..6).map(channel))
        .output(tensor(6))
        .attr(Attr::Epsilon, 0.01f32)
        .attr(Attr::DataFormat, "NCX");
    let mut graph = Graph::new();
    graph.add_op(Op::new(0, K::Abs).input(tensor(0)).output(tensor(1))).unwrap();
    graph.add_op(norm).unwrap();
    graph.add_op(Op::new(2, K::ReLU).input(tensor(6)).output(tensor(7))).unwrap();
    graph.finalize().unwrap();
    let partitions = graph.partitions(Policy::Fusion).unwrap();
    assert_eq!(partitions.iter().map(|partition| partition.ops().len()).collect::<Vec<_>>(), [3]);
}

#[test]
fn images_give_the_same_bits_at_any_number_of_threads() {
    let mut random = Random::new(7);
    let mut cases = Vec::new();
    for (t, format) in FLOATS.into_iter().flat_map(|t| [(t, "NCX"), (t, "NXC")]) {
        let pool = pool(&[3, 24, 40, 50], &[3, 3], &[2, 1], &[1, 1], &[1, 1]);
        cases.extend(cases_of(&pool, t, format, false, &mut random));
        let second = if t == D::Bf16 { D::Bf16 } else { D::F32 };
        for kind in [K::BatchNormForwardTraining, K::BatchNormTrainingBackward] {
            let case = batch_norm(kind, (t, second), &[3, 24, 40, 50], format, true, &mut random);
            cases.push((format!("{kind} {t} {format}"), case));
        }
        let dims = in_format(&[3, 24, 40, 50], format);
        let case = Case::new(K::Interpolate, vec![filled(t, &dims, &mut random)], &[t])
            .attr(Attr::Mode, "bilinear")
            .attr(Attr::DataFormat, format)
            .attr(Attr::Sizes, &[60i64, 70][..]);
        cases.push((format!("Interpolate {t} {format}"), case));
    }
    let mut wrong = Vec::new();
    for (name, case) in &cases {
        let bits = |threads: usize| {
            let engine = Engine::builder().threads(threads).build();
            let results = case.run(&engine)?;
            Ok::<_, String>(results.iter().map(|result| result.bytes().to_vec()).collect::<Vec<_>>())
        };
        let alone = bits(1);
        for threads in [2, 3, 7] {
            if alone.is_err() || bits(threads) != alone {
                wrong.push(format!("{name} on {threads} threads"));
            }
        }
    }
    report(&wrong);
}

/// A window that is the image is summed up as rows are.
#[test]
fn whole_images_are_rows() {
    for (kind, format) in [(K::AvgPool, "NCX"), (K::AvgPool, "NXC"), (K::MaxPool, "NCX")] {
        let pool = pool(&[2, 8, 7, 7], &[7, 7], &[1, 1], &[0, 0], &[0, 0]);
        let op = op_of(&pool, kind, D::F32, format, 1);
        let op = if kind == K::AvgPool { op.attr(Attr::ExcludePad, false) } else { op };
        let dims = in_format(&pool.dims, format);
        let input = LogicalTensor::strided(0, D::F32, &dims).unwrap();
        let partition = Partition::from_op(op).unwrap();
        let plan = partition.compile_for(&Engine::new(), &[input], partition.outputs()).unwrap().plan();
        let kinds: Vec<&str> = plan.nests.iter().map(|nest| nest.kind.name()).collect();
        assert_eq!(kinds, ["rows"], "{kind} {format}");
    }
}
