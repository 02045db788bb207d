//! Convolutions whose windows lie side by side.

use sterna::reference::Value;
use sterna_import::onnx;

use super::bytes::{Onnx, field, floats, int, node, number, tensor, text, value};
use super::common::{as_floats, by_name, float, report};

/// An attribute that is a list of whole numbers.
pub(super) fn ints(name: &str, values: &[i64]) -> Vec<u8> {
    let values: Vec<u8> = values.iter().flat_map(|&value| number(8, value)).collect();
    [field(1, name.as_bytes()), values, number(20, 7)].concat()
}

/// Small whole numbers, whose sums are exact.
pub(super) fn counted(dims: &[i64]) -> Value {
    let count: i64 = dims.iter().product();
    let elements: Vec<f32> = (0..count).map(|i| (i * 7 % 11 - 5) as f32).collect();
    float(dims, &elements)
}

/// The convolution of x by w as its definition says, without padding.
fn convolved(x: &Value, w: &Value, bias: &[f32], strides: &[i64]) -> Value {
    let (dims, filters) = (x.dims(), w.dims());
    let (xs, ws) = (as_floats(x), as_floats(w));
    let places: Vec<i64> = (2..dims.len()).map(|at| (dims[at] - filters[at]) / strides[at - 2] + 1).collect();
    let result = [&[dims[0], filters[0]], &*places].concat();
    let indices = |dims: &[i64]| -> Vec<Vec<i64>> {
        dims.iter().fold(vec![Vec::new()], |all, &dim| {
            all.iter().flat_map(|index| (0..dim).map(|i| [&**index, &[i]].concat())).collect()
        })
    };
    let at = |dims: &[i64], index: &[i64]| index.iter().zip(dims).fold(0, |at, (i, dim)| at * dim + i);
    let sum = |index: &Vec<i64>| -> f32 {
        let products = indices(&filters[1..]).into_iter().map(|within| {
            let place = (0..strides.len()).map(|d| index[2 + d] * strides[d] + within[1 + d]);
            let from: Vec<i64> = [index[0], within[0]].into_iter().chain(place).collect();
            let filter = [&[index[1]], &*within].concat();
            xs[at(dims, &from) as usize] * ws[at(filters, &filter) as usize]
        });
        products.sum::<f32>() + bias.get(index[1] as usize).copied().unwrap_or(0.0)
    };
    float(&result, &indices(&result).iter().map(sum).collect::<Vec<f32>>())
}

fn conv(attributes: &[Vec<u8>], dims: &[i64], w: &Value, bias: &[f32]) -> Onnx {
    let inputs: &[&str] = if bias.is_empty() { &["x", "w"] } else { &["x", "w", "b"] };
    let mut model = Onnx::of(node("Conv", inputs, &["y"], attributes), dims);
    model.constants.push(floats("w", w.dims(), &as_floats(w)));
    model.constants.push(floats("b", &[bias.len() as i64], bias));
    model
}

/// The data, the filters, the strides, a bias or none, and further attributes.
type Patches<'a> = (&'a [i64], &'a [i64], &'a [i64], bool, &'a [Vec<u8>]);
/// The data, the filters, attributes, and a part of the message.
type Refused<'a> = (&'a [i64], &'a [i64], &'a [Vec<u8>], &'a str);

#[test]
fn convolutions_of_patches_are_one_op() {
    let auto = |word| text("auto_pad", word);
    let rows: &[Patches<'_>] = &[
        (&[2, 3, 8, 6], &[4, 3, 4, 3], &[4, 3], true, &[]),
        (&[2, 3, 8, 6], &[4, 3, 4, 3], &[4, 3], false, &[ints("pads", &[0; 4]), int("group", 1)]),
        (&[1, 2, 9, 7], &[3, 2, 4, 3], &[4, 3], true, &[auto("VALID"), ints("dilations", &[1, 1])]),
        (&[1, 2, 8, 6], &[3, 2, 4, 3], &[4, 3], true, &[auto("SAME_UPPER"), ints("kernel_shape", &[4, 3])]),
        (&[2, 3, 10], &[5, 3, 5], &[5], true, &[]),
        (&[1, 2, 4, 2, 6], &[3, 2, 2, 1, 3], &[2, 1, 3], true, &[]),
        (&[2, 3, 5, 4], &[4, 3, 1, 1], &[1, 1], false, &[]),
        (&[2, 3, 5, 4], &[4, 3, 1, 1], &[1, 1], true, &[ints("dilations", &[3, 3])]),
        (&[2, 3, 5, 4], &[4, 3, 1, 1], &[2, 3], true, &[]),
        (&[2, 3, 5], &[4, 3, 1], &[1], true, &[]),
        (&[2, 3, 6, 5], &[4, 3, 2, 1], &[2, 2], true, &[]),
    ];
    let mut wrong = Vec::new();
    for (dims, filters, strides, has_bias, more) in rows {
        let (x, w) = (counted(dims), counted(filters));
        let bias: Vec<f32> = (0..filters[0]).filter(|_| *has_bias).map(|m| m as f32 - 1.0).collect();
        let attributes = [&[ints("strides", strides)], *more].concat();
        let expected = convolved(&x, &w, &bias, strides);
        for open in [false, true] {
            let mut given = dims.to_vec();
            if open {
                given[0] = -1;
            }
            match onnx::read(&conv(&attributes, &given, &w, &bias).bytes()) {
                Ok(imported) if imported.graph.ops().len() != 1 => {
                    wrong.push(format!("{dims:?} {filters:?}: {} ops", imported.graph.ops().len()));
                }
                Ok(imported) => {
                    let result = &by_name(&imported, &[("x", x.clone())])["y"];
                    if *result != expected {
                        wrong.push(format!("{dims:?} {filters:?} {open}: {result:?}, not {expected:?}"));
                    }
                }
                Err(error) => wrong.push(format!("{dims:?} {filters:?} {open}: {error}")),
            }
        }
    }
    report(&wrong);
}

#[test]
fn convolutions_that_do_not_fit_are_refused_by_what_they_ask_for() {
    let strided = ints("strides", &[2, 2]);
    let rows: &[Refused<'_>] = &[
        (&[1, 2, 4, 4], &[3, 2, 2, 2], &[ints("strides", &[2])], "attribute `strides`; needed: a number"),
        (&[1, 2, 4, 4], &[3, 2, 2, 2], &[ints("strides", &[0, 1])], "attribute `strides`; needed: numbers"),
        (&[1, 2, 4, 4], &[3, 2, 2, 2], &[ints("dilations", &[2])], "attribute `dilations`; needed: a number"),
        (&[1, 2, 4, 4], &[3, 2, 2, 2], &[ints("pads", &[0, 1, 0])], "attribute `pads`; needed: two numbers"),
        (&[1, 2, 4, 4], &[3, 2, 2, 2], &[text("auto_pad", "SAME")], "attribute `auto_pad`; needed: NOTSET"),
        (&[1, 2, 4, 4], &[2, 1, 2, 2], &[int("group", 0)], "attribute `group`; needed: a number"),
        (
            &[1, 2, 4, 4],
            &[3, 1, 2, 2],
            &[int("group", 2)],
            "input port 0 (`X`) is {1,2,4,4}; needed: as many",
        ),
        (
            &[1, 2, 4, 4],
            &[3, 5, 2, 2],
            std::slice::from_ref(&strided),
            "input port 0 (`X`) is {1,2,4,4}; needed: as many",
        ),
        (&[1, 2, 1, 4], &[3, 2, 2, 2], &[], "input port 0 (`X`) is {1,2,1,4}; needed: as many"),
        (
            &[1, 2, 1, 4],
            &[3, 2, 2, 2],
            std::slice::from_ref(&strided),
            "input port 0 (`X`) is {1,2,1,4}; needed: as many",
        ),
        (
            &[1, 2, 4, 4],
            &[3, 2, 2, 2],
            &[strided.clone(), ints("kernel_shape", &[2, 3])],
            "attribute `kernel_shape`; needed: the dims",
        ),
    ];
    let mut wrong = Vec::new();
    for (dims, filters, attributes, expected) in rows {
        match onnx::read(&conv(attributes, dims, &counted(filters), &[]).bytes()) {
            Err(error) if error.to_string().contains(expected) => {}
            other => wrong.push(format!("{expected}\n  {:?}", other.map_err(|error| error.to_string()))),
        }
    }
    report(&wrong);
}

#[test]
fn convolutions_of_integers_are_exact() {
    let (dims, filters) = ([2i64, 3, 8, 6], [4i64, 3, 4, 3]);
    let bytes = |dims: &[i64], step: usize| -> Vec<u8> {
        (0..dims.iter().product::<i64>() as usize).map(|i| (i * step % 253) as u8).collect()
    };
    let mut wrong = Vec::new();
    for (x_signed, w_signed, point) in
        [(false, true, None), (true, true, Some(200u8)), (false, false, Some(7)), (false, true, Some(130))]
    {
        for (is_given, strides) in [false, true].into_iter().flat_map(|is| [(is, [4i64, 3]), (is, [2, 1])]) {
            let (xs, ws) = (bytes(&dims, 37), bytes(&filters, 101));
            let mut model = Onnx {
                inputs: vec![value("x", if x_signed { 3 } else { 2 }, &dims)],
                outputs: vec![field(1, b"y")],
                constants: vec![tensor("w", if w_signed { 3 } else { 2 }, &filters, &ws)],
                ..Onnx::default()
            };
            let of_bytes = |signed: bool, dims: &[i64], bytes: &[u8]| match signed {
                true => {
                    let numbers: Vec<i8> = bytes.iter().map(|&byte| byte as i8).collect();
                    Value::from_slice(dims, &numbers).unwrap()
                }
                false => Value::from_slice(dims, bytes).unwrap(),
            };
            let mut given = vec![("x", of_bytes(x_signed, &dims, &xs))];
            let mut inputs = vec!["x", "w"];
            if let Some(point) = point {
                inputs.push("z");
                let element = if x_signed { 3 } else { 2 };
                match is_given {
                    true => {
                        model.inputs.push(value("z", element, &[]));
                        given.push(("z", of_bytes(x_signed, &[], &[point])));
                    }
                    false => model.constants.push(tensor("z", element, &[], &[point])),
                }
            }
            model.nodes.push(node("ConvInteger", &inputs, &["y"], &[ints("strides", &strides)]));
            let number = |byte: u8, signed: bool| if signed { byte as i8 as f32 } else { byte as f32 };
            let zero = point.map_or(0.0, |point| number(point, x_signed));
            let floats = |bytes: &[u8], signed: bool, zero: f32| -> Vec<f32> {
                bytes.iter().map(|&byte| number(byte, signed) - zero).collect()
            };
            let x = float(&dims, &floats(&xs, x_signed, zero));
            let w = float(&filters, &floats(&ws, w_signed, 0.0));
            let expected: Vec<i32> =
                as_floats(&convolved(&x, &w, &[], &strides)).iter().map(|sum| *sum as i32).collect();
            let found = onnx::read(&model.bytes()).map(|imported| by_name(&imported, &given)["y"].clone());
            match found.map(|found| found.elements::<i32>()) {
                Ok(Some(found)) if found == expected => {}
                other => {
                    wrong.push(format!("{x_signed} {w_signed} {point:?} {is_given} {strides:?}: {other:?}"))
                }
            }
        }
    }
    report(&wrong);
}
