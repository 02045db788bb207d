//! Convolutions, transposed ones, pools and resizing, as their definitions say.

use sterna::OpKind;
use sterna::reference::Value;
use sterna_import::onnx;

use super::bytes::{Onnx, field, floats, int, node, text, value};
use super::common::{as_floats, by_name, float, report};
use super::contributed::real;
use super::patches::{counted, ints};

/// The places of windows along a dim.
#[derive(Clone, Copy)]
struct Along {
    stride: i64,
    dilation: i64,
    begin: i64,
    end: i64,
}

const PLAIN: Along = Along { stride: 1, dilation: 1, begin: 0, end: 0 };

fn indices(dims: &[i64]) -> Vec<Vec<i64>> {
    dims.iter().fold(vec![Vec::new()], |all, &dim| {
        all.iter().flat_map(|index| (0..dim).map(|i| [&**index, &[i]].concat())).collect()
    })
}

/// An element of a tensor; 0 outside.
fn at(dims: &[i64], elements: &[f32], index: &[i64]) -> f32 {
    let is_inside = index.iter().zip(dims).all(|(i, dim)| (0..*dim).contains(i));
    let place = || index.iter().zip(dims).fold(0, |place, (i, dim)| place * dim + i);
    if is_inside { elements[place() as usize] } else { 0.0 }
}

/// The convolution of {N, C, dims} by {M, C / groups, kernel} as its definition says.
fn convolved(x: &Value, w: &Value, bias: &[f32], along: &[Along], groups: i64) -> Value {
    let (dims, filters, xs, ws) = (x.dims(), w.dims(), as_floats(x), as_floats(w));
    let count = |(at, along): (usize, &Along)| {
        let extent = (filters[2 + at] - 1) * along.dilation + 1;
        (dims[2 + at] + along.begin + along.end - extent) / along.stride + 1
    };
    let places: Vec<i64> = along.iter().enumerate().map(count).collect();
    let result = [&[dims[0], filters[0]], &*places].concat();
    let sum = |index: &Vec<i64>| -> f32 {
        let group = index[1] / (filters[0] / groups);
        let products = indices(&filters[1..]).into_iter().map(|within| {
            let place = along
                .iter()
                .enumerate()
                .map(|(d, along)| index[2 + d] * along.stride - along.begin + within[1 + d] * along.dilation);
            let from: Vec<i64> =
                [index[0], group * filters[1] + within[0]].into_iter().chain(place).collect();
            at(dims, &xs, &from) * at(filters, &ws, &[&[index[1]], &*within].concat())
        });
        products.sum::<f32>() + bias.get(index[1] as usize).copied().unwrap_or(0.0)
    };
    float(&result, &indices(&result).iter().map(sum).collect::<Vec<f32>>())
}

/// A model of one node on data `x` and constants.
fn model(kind: &str, attributes: &[Vec<u8>], dims: &[i64], constants: &[(&str, &Value)]) -> Onnx {
    let names: Vec<&str> = std::iter::once("x").chain(constants.iter().map(|(name, _)| *name)).collect();
    let mut model = Onnx::of(node(kind, &names, &["y"], attributes), dims);
    for (name, value) in constants.iter().filter(|(name, _)| !name.is_empty()) {
        model.constants.push(floats(name, value.dims(), &as_floats(value)));
    }
    model
}

/// Holds the result of a model against the one expected, with all dims of the data known and with an open
/// batch, or with all dims open behind the channels.
fn check(wrong: &mut Vec<String>, what: &str, x: &Value, expected: &Value, make: &dyn Fn(&[i64]) -> Onnx) {
    for open in 0..3 {
        let mut given = x.dims().to_vec();
        match open {
            0 => {}
            1 => given[0] = -1,
            _ => given[2..].fill(-1),
        }
        match onnx::read(&make(&given).bytes()) {
            Ok(imported) => {
                let result = &by_name(&imported, &[("x", x.clone())])["y"];
                if result != expected {
                    wrong.push(format!("{what} {given:?}: {result:?}, not {expected:?}"));
                }
                let dims = imported.outputs[0].tensor.partial_dims().unwrap_or_default();
                let fits = dims.len() == expected.dims().len()
                    && dims.iter().zip(expected.dims()).all(|(dim, own)| dim.is_none_or(|dim| dim == *own));
                if !fits || (open == 0 && dims.contains(&None)) {
                    wrong.push(format!("{what} {given:?}: the graph says {dims:?}"));
                }
            }
            Err(error) => wrong.push(format!("{what} {given:?}: {error}")),
        }
    }
}

#[test]
fn convolutions_of_any_windows() {
    let auto = |word| text("auto_pad", word);
    let pads = |begin: &[i64], end: &[i64]| ints("pads", &[begin, end].concat());
    let along = |stride, dilation, begin, end| Along { stride, dilation, begin, end };
    type Row<'a> = (&'a [i64], &'a [i64], i64, Vec<Along>, Vec<Vec<u8>>);
    let rows: Vec<Row<'_>> = vec![
        (&[2, 3, 8, 6], &[4, 3, 3, 2], 1, vec![PLAIN; 2], vec![]),
        (
            &[1, 2, 9, 7],
            &[3, 2, 3, 3],
            1,
            vec![along(2, 1, 1, 0), along(3, 2, 2, 1)],
            vec![ints("strides", &[2, 3]), ints("dilations", &[1, 2]), pads(&[1, 2], &[0, 1])],
        ),
        (&[1, 4, 5, 5], &[6, 2, 2, 2], 2, vec![PLAIN; 2], vec![int("group", 2)]),
        (&[2, 3, 6], &[3, 1, 3], 3, vec![along(1, 1, 1, 1)], vec![int("group", 3), pads(&[1], &[1])]),
        (
            &[1, 1, 5, 6],
            &[1, 1, 2, 2],
            1,
            vec![along(1, 1, -1, 2), along(1, 1, 0, -2)],
            vec![pads(&[-1, 0], &[2, -2])],
        ),
        (&[1, 2, 3, 4, 4], &[2, 2, 1, 2, 3], 1, vec![PLAIN; 3], vec![]),
        (&[1, 1, 7], &[1, 1, 4], 1, vec![along(2, 1, 1, 2)], vec![auto("SAME_UPPER"), ints("strides", &[2])]),
        (&[1, 1, 7], &[1, 1, 4], 1, vec![along(2, 1, 2, 1)], vec![auto("SAME_LOWER"), ints("strides", &[2])]),
    ];
    let mut wrong = Vec::new();
    for (dims, filters, groups, along, attributes) in &rows {
        let (x, w) = (counted(dims), counted(filters));
        for has_bias in [false, true] {
            let bias: Vec<f32> = (0..filters[0]).filter(|_| has_bias).map(|m| m as f32 - 1.0).collect();
            let expected = convolved(&x, &w, &bias, along, *groups);
            let b = float(&[bias.len() as i64], &bias);
            let constants: &[(&str, &Value)] = if has_bias { &[("w", &w), ("b", &b)] } else { &[("w", &w)] };
            let make = |given: &[i64]| model("Conv", attributes, given, constants);
            check(&mut wrong, &format!("{dims:?} {filters:?}"), &x, &expected, &make);
        }
    }
    report(&wrong);
}

/// A batch normalisation of a convolution that nothing else reads is in its filters and bias. All numbers are
/// exact.
#[test]
fn norms_of_convolutions() {
    let (x, w, bias) = (counted(&[2, 4, 5, 5]), counted(&[6, 2, 2, 2]), [3.0f32, -1.0, 0.0, 2.0, 5.0, 1.0]);
    let (factor, shift) = ([2.0, 4.0, 1.0, 0.5, -2.0, 8.0f32], [1.0, 0.0, -3.0, 2.0, 4.0, 7.0f32]);
    let (mean, variance) = ([0.0, 2.0, -4.0, 1.0, 3.0, 6.0f32], [3.75, 0.75, 15.75, 3.75, 0.75, 3.75f32]);
    let numbers = |list: &[f32]| float(&[6], list);
    let mut wrong = Vec::new();
    for (has_bias, is_read) in [(false, false), (true, false), (true, true)] {
        let bias = if has_bias { &bias[..] } else { &[] };
        let plain = convolved(&x, &w, bias, &[PLAIN; 2], 2);
        let of_channel = |(place, number): (usize, f32)| {
            let m = place / 16 % 6;
            (number - mean[m]) * (factor[m] / (variance[m] + 0.25).sqrt()) + shift[m]
        };
        let expected: Vec<f32> = as_floats(&plain).into_iter().enumerate().map(of_channel).collect();
        let expected = float(plain.dims(), &expected);
        let make = |given: &[i64]| {
            let (b, [s, h, m, v]) = (
                numbers(if has_bias { bias } else { &[0.0; 6] }),
                [&factor, &shift, &mean, &variance].map(|list| numbers(list)),
            );
            let all = [("w", &w), ("s", &s), ("h", &h), ("m", &m), ("v", &v), ("b", &b)];
            let mut of = model("Conv", &[int("group", 2)], given, &all);
            let operands: &[&str] = if has_bias { &["x", "w", "b"] } else { &["x", "w"] };
            let norm =
                node("BatchNormalization", &["c", "s", "h", "m", "v"], &["y"], &[real("epsilon", 0.25)]);
            of.nodes = vec![node("Conv", operands, &["c"], &[int("group", 2)]), norm];
            of.outputs.extend(is_read.then(|| field(1, b"c")));
            of
        };
        let what = format!("bias {has_bias}, read {is_read}");
        check(&mut wrong, &what, &x, &expected, &make);
        let imported = onnx::read(&make(x.dims()).bytes()).unwrap();
        let has_norm = imported.graph.ops().iter().any(|op| op.kind() == OpKind::BatchNormInference);
        if has_norm != is_read {
            wrong.push(format!("{what}: a norm of its own {has_norm}"));
        }
    }
    report(&wrong);
}

#[test]
fn transposed_convolutions() {
    let auto = |word| text("auto_pad", word);
    let (x, w) = (float(&[1, 1, 3], &[1.0, 2.0, 3.0]), float(&[1, 2, 2], &[1.0, 10.0, 100.0, 1000.0]));
    type Row<'a> = (&'a [Vec<u8>], &'a [f32], &'a [f32]);
    let rows: &[Row<'_>] = &[
        (&[], &[1.0, 12.0, 23.0, 30.0], &[100.0, 1200.0, 2300.0, 3000.0]),
        (
            &[ints("strides", &[2])],
            &[1.0, 10.0, 2.0, 20.0, 3.0, 30.0],
            &[100.0, 1000.0, 200.0, 2000.0, 300.0, 3000.0],
        ),
        (&[ints("pads", &[1, 0])], &[12.0, 23.0, 30.0], &[1200.0, 2300.0, 3000.0]),
        (
            &[ints("strides", &[2]), ints("output_padding", &[1])],
            &[1.0, 10.0, 2.0, 20.0, 3.0, 30.0, 0.0],
            &[100.0, 1000.0, 200.0, 2000.0, 300.0, 3000.0, 0.0],
        ),
        (&[ints("dilations", &[2])], &[1.0, 2.0, 13.0, 20.0, 30.0], &[100.0, 200.0, 1300.0, 2000.0, 3000.0]),
        (&[auto("SAME_UPPER")], &[1.0, 12.0, 23.0], &[100.0, 1200.0, 2300.0]),
        (&[auto("SAME_LOWER")], &[12.0, 23.0, 30.0], &[1200.0, 2300.0, 3000.0]),
        (
            &[auto("SAME_UPPER"), ints("strides", &[3])],
            &[1.0, 10.0, 0.0, 2.0, 20.0, 0.0, 3.0, 30.0, 0.0],
            &[100.0, 1000.0, 0.0, 200.0, 2000.0, 0.0, 300.0, 3000.0, 0.0],
        ),
    ];
    let mut wrong = Vec::new();
    for (attributes, first, second) in rows {
        let expected = float(&[1, 2, first.len() as i64], &[*first, *second].concat());
        let make = |given: &[i64]| model("ConvTranspose", attributes, given, &[("w", &w)]);
        check(&mut wrong, &format!("{expected:?}"), &x, &expected, &make);
    }
    // One that has a shape needs the dims of the data.
    for (shape, word, elements) in [(3, "SAME_UPPER", [1.0, 12.0, 23.0]), (3, "NOTSET", [12.0, 23.0, 30.0])] {
        let more = elements.map(|element| element * 100.0);
        let expected = float(&[1, 2, 3], &[elements, more].concat());
        let attributes = [ints("output_shape", &[shape]), auto(word)];
        let imported = onnx::read(&model("ConvTranspose", &attributes, x.dims(), &[("w", &w)]).bytes());
        let found = imported.map(|imported| by_name(&imported, &[("x", x.clone())])["y"].clone());
        if found.as_ref().ok() != Some(&expected) {
            wrong.push(format!("{shape} {word}: {found:?}"));
        }
    }
    report(&wrong);
}

#[test]
fn pools() {
    let auto = |word| text("auto_pad", word);
    let kernel = |length| ints("kernel_shape", &[length]);
    let strides = |stride| ints("strides", &[stride]);
    let pads = |begin, end| ints("pads", &[begin, end]);
    let up = || int("ceil_mode", 1);
    let counted = || int("count_include_pad", 1);
    let x = float(&[1, 1, 5], &[1.0, 4.0, -2.0, 3.0, 8.0]);
    type Row = (&'static str, Vec<Vec<u8>>, Vec<f32>);
    let rows: Vec<Row> = vec![
        ("MaxPool", vec![kernel(2)], vec![4.0, 4.0, 3.0, 8.0]),
        ("MaxPool", vec![kernel(2), strides(2)], vec![4.0, 3.0]),
        ("MaxPool", vec![kernel(2), strides(2), up()], vec![4.0, 3.0, 8.0]),
        ("MaxPool", vec![kernel(2), ints("dilations", &[2])], vec![1.0, 4.0, 8.0]),
        ("MaxPool", vec![kernel(2), strides(3), pads(1, 1)], vec![1.0, 3.0]),
        ("MaxPool", vec![kernel(3), strides(2), auto("SAME_UPPER")], vec![4.0, 4.0, 8.0]),
        ("AveragePool", vec![kernel(2), strides(2)], vec![2.5, 0.5]),
        ("AveragePool", vec![kernel(2), strides(2), up()], vec![2.5, 0.5, 8.0]),
        ("AveragePool", vec![kernel(3), strides(2), pads(1, 1)], vec![2.5, 5.0 / 3.0, 5.5]),
        ("AveragePool", vec![kernel(2), strides(3), pads(1, 1), counted()], vec![0.5, 0.5]),
        ("AveragePool", vec![kernel(4), strides(2), pads(1, 0), counted(), auto("NOTSET")], vec![0.75, 3.25]),
    ];
    let mut wrong = Vec::new();
    for (kind, attributes, expected) in &rows {
        let expected = float(&[1, 1, expected.len() as i64], expected);
        let make = |given: &[i64]| model(kind, attributes, given, &[]);
        check(&mut wrong, &format!("{kind} {expected:?}"), &x, &expected, &make);
    }
    // The part of a window beyond the padding does not count, and none begins behind the data.
    let known: Vec<Row> = vec![
        ("AveragePool", vec![kernel(3), strides(2), pads(0, 1), up(), counted()], vec![1.0, 3.0, 4.0]),
        ("MaxPool", vec![kernel(2), strides(3), pads(0, 1), up()], vec![4.0, 8.0]),
        ("MaxPool", vec![kernel(1), strides(3), pads(0, 2), up()], vec![1.0, 3.0]),
        ("MaxPool", vec![kernel(1), strides(4), pads(0, 0), up()], vec![1.0, 8.0]),
        ("AveragePool", vec![kernel(1), strides(3), pads(1, 3), up(), counted()], vec![0.0, -2.0, 0.0]),
    ];
    for (kind, attributes, expected) in &known {
        let expected = float(&[1, 1, expected.len() as i64], expected);
        let imported = onnx::read(&model(kind, attributes, x.dims(), &[]).bytes());
        let found = imported.map(|imported| by_name(&imported, &[("x", x.clone())])["y"].clone());
        if found.as_ref().ok() != Some(&expected) {
            wrong.push(format!("{kind} {expected:?}: {found:?}"));
        }
    }
    report(&wrong);
}

#[test]
fn the_places_of_maxima_are_refused() {
    let mut model =
        Onnx::of(node("MaxPool", &["x"], &["y", "places"], &[ints("kernel_shape", &[2])]), &[1, 1, 4]);
    model.outputs.push(field(1, b"places"));
    let error = onnx::read(&model.bytes()).unwrap_err().to_string();
    assert!(error.contains("`Indices`"), "{error}");
    // Whole numbers in 8 bits are pooled as they are.
    let mut model =
        Onnx { inputs: vec![value("x", 3, &[1, 1, 3])], outputs: vec![field(1, b"y")], ..Onnx::default() };
    model.nodes.push(node("MaxPool", &["x"], &["y"], &[ints("kernel_shape", &[2])]));
    let x = Value::from_slice(&[1, 1, 3], &[-128i8, -3, 5]).unwrap();
    let found = by_name(&onnx::read(&model.bytes()).unwrap(), &[("x", x)])["y"].clone();
    assert_eq!(found.elements::<i8>(), Some(vec![-3, 5]));
}

#[test]
fn data_is_resized_by_an_op_or_by_lookups() {
    let coordinates = |word| text("coordinate_transformation_mode", word);
    let nearest = |word| text("nearest_mode", word);
    let linear = || text("mode", "linear");
    let x = float(&[1, 1, 4], &[1.0, 2.0, 4.0, 8.0]);
    type Row<'a> = (Vec<Vec<u8>>, f32, Vec<f32>, OpKind);
    let (op, lookup) = (OpKind::Interpolate, OpKind::Gather);
    let rows: Vec<Row<'_>> = vec![
        (
            vec![coordinates("asymmetric"), nearest("floor")],
            2.0,
            vec![1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 8.0, 8.0],
            op,
        ),
        (vec![], 2.0, vec![1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 8.0, 8.0], op),
        (vec![], 0.5, vec![1.0, 4.0], lookup),
        (vec![nearest("round_prefer_ceil")], 0.5, vec![2.0, 8.0], op),
        (vec![coordinates("asymmetric"), nearest("ceil")], 1.5, vec![1.0, 2.0, 4.0, 4.0, 8.0, 8.0], lookup),
        (vec![coordinates("align_corners")], 1.5, vec![1.0, 2.0, 2.0, 4.0, 4.0, 8.0], lookup),
        (vec![linear()], 2.0, vec![1.0, 1.25, 1.75, 2.5, 3.5, 5.0, 7.0, 8.0], op),
        (vec![linear(), coordinates("pytorch_half_pixel")], 0.5, vec![1.5, 6.0], op),
        (vec![linear(), coordinates("align_corners")], 1.75, vec![1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0], op),
    ];
    let mut wrong = Vec::new();
    for (attributes, factor, expected, kind) in &rows {
        let expected = float(&[1, 1, expected.len() as i64], expected);
        let factors = float(&[3], &[1.0, 1.0, *factor]);
        let made = model("Resize", attributes, x.dims(), &[("", &factors), ("s", &factors)]);
        match onnx::read(&made.bytes()) {
            Ok(imported) => {
                let found = &by_name(&imported, &[("x", x.clone())])["y"];
                let kinds: Vec<OpKind> = imported.graph.ops().iter().map(|op| op.kind()).collect();
                let is_other = if *kind == op { !kinds.contains(kind) } else { kinds.contains(&op) };
                if *found != expected || is_other {
                    wrong.push(format!("{factor} {expected:?}: {found:?} by {kinds:?}"));
                }
            }
            Err(error) => wrong.push(format!("{factor} {expected:?}: {error}")),
        }
    }
    let refused: Vec<(Vec<Vec<u8>>, &str)> = vec![
        (vec![text("mode", "area")], "attribute `mode`; needed: nearest, linear, cubic"),
        (
            vec![coordinates("tf_crop_and_resize")],
            "attribute `coordinate_transformation_mode`; needed: half_pixel,",
        ),
    ];
    let factors = float(&[3], &[1.0, 1.0, 2.0]);
    for (attributes, part) in &refused {
        let made = model("Resize", attributes, x.dims(), &[("", &factors), ("s", &factors)]);
        match onnx::read(&made.bytes()) {
            Err(error) if error.to_string().contains(part) => {}
            other => wrong.push(format!("{part}: {:?}", other.map_err(|error| error.to_string()))),
        }
    }
    report(&wrong);
}

/// By a factor that gives no whole length, the last element lies at the last of the data in files of torch,
/// in all others where ONNX's own cases have it.
#[test]
fn corners_are_aligned_as_the_exporter_means_it() {
    let x = float(&[1, 1, 4], &[1.0, 4.0, 2.0, -3.0]);
    let factors = float(&[3], &[1.0, 1.0, 1.3]);
    let (linear, cubic) = (text("mode", "linear"), text("mode", "cubic"));
    let aligned = text("coordinate_transformation_mode", "align_corners");
    let rows: [(&str, &Vec<u8>, bool, [f32; 5]); 4] = [
        ("pytorch", &linear, true, [1.0, 3.25, 3.0, 0.75, -3.0]),
        ("pytorch", &linear, false, [1.0, 3.25, 3.0, 0.75, -3.0]),
        ("backend-test", &linear, true, [1.0, 3.142_857, 3.142_857, 1.285_714, -2.285_714]),
        ("pytorch", &cubic, true, [1.0, 3.53125, 3.75, 0.65625, -3.0]),
    ];
    let mut wrong = Vec::new();
    for (producer, mode, is_known, expected) in rows {
        let dims = [1, 1, if is_known { 4 } else { -1 }];
        let attributes = [mode.clone(), aligned.clone()];
        let made = model("Resize", &attributes, &dims, &[("", &factors), ("s", &factors)]);
        match onnx::read(&[made.bytes(), field(2, producer.as_bytes())].concat()) {
            Ok(imported) => {
                let found = as_floats(&by_name(&imported, &[("x", x.clone())])["y"]);
                let is_near = |(found, expected): (&f32, &f32)| (found - expected).abs() < 5e-6;
                if found.len() != expected.len() || !found.iter().zip(&expected).all(is_near) {
                    wrong.push(format!("{producer} {is_known} {expected:?}: {found:?}"));
                }
            }
            Err(error) => wrong.push(format!("{producer} {is_known} {expected:?}: {error}")),
        }
    }
    report(&wrong);
}

/// The figures of `torch.nn.functional.interpolate`, whose antialiased weights end at the edges and whose
/// cubic ones then have the coefficient −0.5; it finds places in f32.
#[test]
fn data_is_resized_by_sums_of_lookups() {
    let (linear, cubic) = (|| text("mode", "linear"), || text("mode", "cubic"));
    let coordinates = |word| text("coordinate_transformation_mode", word);
    let smooth = || vec![int("antialias", 1), int("exclude_outside", 1), real("cubic_coeff_a", -0.5)];
    let x = float(&[1, 1, 4], &[1.0, 4.0, 2.0, -3.0]);
    let rows: Vec<(Vec<Vec<u8>>, f32, Vec<f32>)> = vec![
        (
            vec![cubic()],
            1.75,
            vec![0.702_351_1, 2.145_225_8, 3.920_735_8, 3.75, 1.621_535_3, -1.419_278_1, -3.496_082_3],
        ),
        (vec![cubic(), coordinates("align_corners")], 0.75, vec![1.0, 3.75, -3.0]),
        ([vec![linear()], smooth()].concat(), 0.5, vec![2.428_571_5, 0.142_857_16]),
        ([vec![cubic()], smooth()].concat(), 0.75, vec![1.855_835_2, 3.281_609_3, -1.878_718_5]),
        (vec![linear(), coordinates("asymmetric")], 2.0, vec![1.0, 2.5, 4.0, 3.0, 2.0, -0.5, -3.0, -3.0]),
    ];
    let mut wrong = Vec::new();
    for (attributes, factor, expected) in &rows {
        let factors = float(&[3], &[1.0, 1.0, *factor]);
        let made = model("Resize", attributes, x.dims(), &[("", &factors), ("s", &factors)]);
        match onnx::read(&made.bytes()) {
            Ok(imported) => {
                let found = as_floats(&by_name(&imported, &[("x", x.clone())])["y"]);
                let is_near = |(found, expected): (&f32, &f32)| (found - expected).abs() < 5e-6;
                if found.len() != expected.len() || !found.iter().zip(expected).all(is_near) {
                    wrong.push(format!("{factor} {expected:?}: {found:?}"));
                }
            }
            Err(error) => wrong.push(format!("{factor} {expected:?}: {error}")),
        }
    }
    // Of a factor of a millionth, a million elements would be added up.
    let factors = float(&[3], &[1.0, 1.0, 1e-6]);
    let made = model(
        "Resize",
        &[linear(), int("antialias", 1)],
        &[1, 1, 2_000_000],
        &[("", &factors), ("s", &factors)],
    );
    match onnx::read(&made.bytes()) {
        Err(error) if error.to_string().contains("at most 256 elements become one") => {}
        other => wrong.push(format!("{:?}", other.map_err(|error| error.to_string()))),
    }
    report(&wrong);
}
