//! Numbers at the edges: divisors of 0, queries that see no key, rows of equal numbers.

use sterna::reference::Value;
use sterna_import::onnx;

use crate::bytes::{Onnx, field, floats, int, node, value};
use crate::common::{as_floats, by_name, float, report};
use crate::division::{CUT_QUOTIENT, CUT_REMAINDER, FLOORED_REMAINDER, Of, WHOLE};

/// The quotient of the least number and −1 wraps around.
#[test]
fn whole_numbers_of_every_width_are_divided_and_by_zero_are_zero() {
    let rows: [(&str, &[Vec<u8>], Of); 3] = [
        ("Div", &[], CUT_QUOTIENT),
        ("Mod", &[], FLOORED_REMAINDER),
        ("Mod", &[int("fmod", 1)], CUT_REMAINDER),
    ];
    let mut wrong = Vec::new();
    for of_type in &WHOLE {
        let pairs = of_type.pairs();
        let dims = [pairs.len() as i64];
        for (kind, attributes, expected) in rows {
            let mut model = Onnx::of(node(kind, &["a", "b"], &["y"], attributes), &[]);
            model.inputs = vec![value("a", of_type.onnx, &dims), value("b", of_type.onnx, &dims)];
            let a = of_type.value(pairs.iter().map(|pair| pair.0));
            let b = of_type.value(pairs.iter().map(|pair| pair.1));
            let result = &by_name(&onnx::read(&model.bytes()).unwrap(), &[("a", a), ("b", b)])["y"];
            let name = if attributes.is_empty() { kind } else { "Mod as fmod" };
            wrong.extend(of_type.wrong(name, result, expected));
        }
    }
    report(&wrong);
}

/// The exponents are computed, and may be of another type.
#[test]
fn powers_of_two_operands_have_the_type_of_the_base() {
    let of = |base: i64, exponent: i64, x: Value, y: Value| {
        let mut model = Onnx::of(node("Pow", &["a", "b"], &["y"], &[]), &[]);
        model.inputs = vec![value("a", base, &[3]), value("b", exponent, &[3])];
        by_name(&onnx::read(&model.bytes()).unwrap(), &[("a", x), ("b", y)])["y"].clone()
    };
    let s64s = |numbers: [i64; 3]| Value::from_slice(&[3], &numbers).unwrap();
    let s32s = |numbers: [i32; 3]| Value::from_slice(&[3], &numbers).unwrap();
    let f64s = |numbers: [f64; 3]| Value::from_slice(&[3], &numbers).unwrap();
    let f32s = |numbers: [f32; 3]| float(&[3], &numbers);
    let [f32, s32, s64, f64] = [1, 6, 7, 11];
    let rows = [
        (of(f32, f32, f32s([2.0, -3.0, 4.0]), f32s([3.0, 2.0, 0.5])), f32s([8.0, 9.0, 2.0])),
        // An odd number that f32 rounds to an even one.
        (of(f32, s64, f32s([2.0, -1.0, -2.0]), s64s([-1, 16_777_217, 3])), f32s([0.5, -1.0, -8.0])),
        (
            of(f64, s32, f64s([0.1, 3.0, 2.0]), s32s([2, -1, 60])),
            f64s([0.1f64.powf(2.0), 1.0 / 3.0, 2f64.powi(60)]),
        ),
        (of(s32, s64, s32s([3, -2, 7]), s64s([5, 31, -1])), s32s([243, i32::MIN, 0])),
        (of(s64, s64, s64s([3, -1, 0]), s64s([39, -3, 0])), s64s([3i64.pow(39), -1, 1])),
        (of(s32, f32, s32s([9, 2, -2]), f32s([0.5, 3.0, 3.0])), s32s([3, 8, -8])),
    ];
    let wrong: Vec<String> =
        rows.iter().filter(|(given, want)| given != want).map(|row| format!("{row:?}")).collect();
    report(&wrong);
}

#[test]
fn a_query_that_sees_no_key_is_zero() {
    let mut wrong = Vec::new();
    let numbers = |dims: &[i64]| {
        let count = dims.iter().product::<i64>();
        float(dims, &(0..count).map(|i| (i * 7 % 11) as f32 / 4.0 - 1.0).collect::<Vec<_>>())
    };
    let inf = f32::NEG_INFINITY;
    // The second of three queries sees no key.
    let masks = [
        (9, vec![3, 4], Value::from_slice(&[3, 4], &[[true; 4], [false; 4], [true; 4]].concat()).unwrap()),
        (1, vec![3, 4], float(&[3, 4], &[[0.0; 4], [inf; 4], [1.0; 4]].concat())),
        (1, vec![3, 1], float(&[3, 1], &[0.0, inf, 0.5])),
    ];
    let model = |kind: &str, opset, mask: Option<(i64, &[i64])>, causal, dims: [&[i64]; 3]| {
        let names: &[&str] = if mask.is_some() { &["q", "k", "v", "mask"] } else { &["q", "k", "v"] };
        let attributes = if causal { vec![int("is_causal", 1)] } else { Vec::new() };
        let mut model = Onnx::of(node(kind, names, &["y"], &attributes), &[]);
        model.opset = Some(opset);
        model.inputs =
            ["q", "k", "v"].into_iter().zip(dims).map(|(name, dims)| value(name, 1, dims)).collect();
        model.inputs.extend(mask.map(|(data_type, dims)| value("mask", data_type, dims)));
        model
    };
    for opset in [23, 24] {
        for (data_type, dims, mask) in &masks {
            let of: [&[i64]; 3] = [&[1, 2, 3, 8], &[1, 2, 4, 8], &[1, 2, 4, 3]];
            let model = model("Attention", opset, Some((*data_type, dims)), false, of);
            let [q, k, v] = of.map(numbers);
            let given = [("q", q), ("k", k), ("v", v), ("mask", mask.clone())];
            let found = as_floats(&by_name(&onnx::read(&model.bytes()).unwrap(), &given)["y"]);
            let is_right = |(i, x): (usize, &f32)| if i / 3 % 3 == 1 { *x == 0.0 } else { x.is_finite() };
            if !found.iter().enumerate().all(is_right) || found.iter().all(|&x| x == 0.0) {
                wrong.push(format!("mask {data_type} {dims:?}: {found:?}"));
            }
        }
        for [batch, heads, of_keys, queries, keys, depth] in [
            [2, 4, 2, 3, 0, 8],
            [0, 4, 2, 3, 5, 8],
            [0, 4, 4, 3, 5, 8],
            [2, 0, 0, 3, 5, 8],
            [2, 4, 2, 0, 5, 8],
            [2, 4, 2, 3, 5, 0],
            [2, 4, 2, 3, 0, 0],
        ] {
            let dims: [&[i64]; 3] =
                [&[batch, heads, queries, depth], &[batch, of_keys, keys, depth], &[batch, of_keys, keys, 3]];
            for causal in [false, true] {
                let model = model("Attention", opset, None, causal, dims);
                let [q, k, v] = dims.map(numbers);
                let results = onnx::read(&model.bytes())
                    .map(|imported| by_name(&imported, &[("q", q), ("k", k), ("v", v)]));
                let is_right = |x: &f32| if keys == 0 { *x == 0.0 } else { x.is_finite() };
                match results {
                    Ok(results) if results["y"].dims() != [batch, heads, queries, 3] => {
                        wrong.push(format!("{dims:?}: {:?}", results["y"]));
                    }
                    Ok(results) if as_floats(&results["y"]).iter().all(is_right) => {}
                    Ok(results) => wrong.push(format!("{dims:?}: {:?}", results["y"])),
                    Err(error) => wrong.push(format!("{dims:?}: {error}")),
                }
            }
        }
    }
    report(&wrong);
}

#[test]
fn norms_of_equal_numbers_are_zero() {
    let mut wrong = Vec::new();
    for (kind, inputs, attributes) in [
        ("MeanVarianceNormalization", &["x"][..], vec![]),
        ("InstanceNormalization", &["x", "one", "zero"], vec![]),
        ("LayerNormalization", &["x", "ones"], vec![int("axis", -1)]),
        ("BatchNormalization", &["x", "one", "zero", "zero", "one"], vec![int("training_mode", 1)]),
    ] {
        let outputs: &[&str] = match kind {
            "LayerNormalization" | "BatchNormalization" => &["y", "mean", "more"],
            _ => &["y"],
        };
        let mut model = Onnx::of(node(kind, inputs, outputs, &attributes), &[1, 1, 7, 111]);
        model.outputs = outputs.iter().map(|name| field(1, name.as_bytes())).collect();
        model.constants = vec![
            floats("one", &[1], &[1.0]),
            floats("zero", &[1], &[0.0]),
            floats("ones", &[111], &[1.0; 111]),
        ];
        let imported = onnx::read(&model.bytes()).unwrap_or_else(|error| panic!("{kind}: {error}"));
        for number in [1234.567f32, -0.1, 16_777_213.0] {
            let x = float(&[1, 1, 7, 111], &[number; 777]);
            let found = as_floats(&by_name(&imported, &[("x", x)])["y"]);
            if found.iter().any(|&x| x != 0.0) {
                wrong.push(format!("{kind} of {number}: {}", found[0]));
            }
        }
        // Far from 0, the rounding of the mean is much of the deviation.
        let row: Vec<f32> = (0..777).map(|i| 10_000.0 + (i * 37 % 64) as f32 / 1024.0).collect();
        let found = as_floats(&by_name(&imported, &[("x", float(&[1, 1, 7, 111], &row))])["y"]);
        let length = if kind == "LayerNormalization" { 111 } else { 777 };
        for (row, found) in row.chunks(length).zip(found.chunks(length)) {
            let n = length as f64;
            let mean = row.iter().copied().map(f64::from).sum::<f64>() / n;
            let variance = row.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n;
            let epsilon = if kind == "MeanVarianceNormalization" { 0.0 } else { 1e-5f32.into() };
            let worst = row
                .iter()
                .zip(found)
                .map(|(&x, &y)| ((f64::from(x) - mean) / (variance + epsilon).sqrt() - f64::from(y)).abs());
            let worst = worst.fold(0.0, f64::max);
            if worst > 2e-6 {
                wrong.push(format!("{kind} far from 0: {worst} off"));
            }
        }
    }
    report(&wrong);
}
