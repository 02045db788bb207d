//! Whole numbers: products of 8 bits however deep, and reductions.

use sterna::OpKind;
use sterna::reference::Value;
use sterna_import::onnx;

use super::bytes::{Onnx, field, int, integers, node, tensor, value};
use super::common::{by_name, report};

/// Numbers that fill s8 or u8, the extremes first.
fn bytes_of(dims: &[i64], is_signed: bool, seed: u32) -> Vec<u8> {
    let count: i64 = dims.iter().product();
    let mut state = seed;
    let number = |at: i64| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if at % 3 == 0 { if is_signed { 0x80 } else { 0xff } } else { (state >> 24) as u8 }
    };
    (0..count).map(number).collect()
}

fn number_of(byte: u8, is_signed: bool) -> i64 {
    if is_signed { i64::from(byte as i8) } else { byte.into() }
}

/// The element types of ONNX for s8 and u8.
fn element(is_signed: bool) -> i64 {
    if is_signed { 3 } else { 2 }
}

fn data_of(is_signed: bool, dims: &[i64], bytes: &[u8]) -> Value {
    let data_type = if is_signed { sterna::DataType::S8 } else { sterna::DataType::U8 };
    Value::new(data_type, dims, bytes.to_vec()).unwrap()
}

/// A zero point: its dims and numbers, and whether the model is given it when it runs.
type Point<'a> = Option<(&'a [i64], &'a [u8], bool)>;

/// Runs a product of whole numbers, and says what of it is wrong.
fn product(
    depth: i64,
    [a_signed, b_signed]: [bool; 2],
    [a_point, b_point]: [Point<'_>; 2],
    b_given: bool,
) -> Result<(), String> {
    let (m, n) = (3, 2);
    let (a_bytes, b_bytes) = (bytes_of(&[m, depth], a_signed, 1), bytes_of(&[depth, n], b_signed, 2));
    let mut model = Onnx {
        inputs: vec![value("a", element(a_signed), &[m, depth])],
        outputs: vec![field(1, b"y")],
        ..Onnx::default()
    };
    let mut given = vec![("a", data_of(a_signed, &[m, depth], &a_bytes))];
    let mut operand = |name: &'static str, is_signed, dims: &[i64], bytes: &[u8], is_given: bool| {
        if is_given {
            model.inputs.push(value(name, element(is_signed), dims));
            given.push((name, data_of(is_signed, dims, bytes)));
        } else {
            model.constants.push(tensor(name, element(is_signed), dims, bytes));
        }
    };
    operand("b", b_signed, &[depth, n], &b_bytes, b_given);
    let mut inputs = vec!["a", "b", "", ""];
    if let Some((dims, bytes, is_given)) = a_point {
        operand("az", a_signed, dims, bytes, is_given);
        inputs[2] = "az";
    }
    if let Some((dims, bytes, is_given)) = b_point {
        operand("bz", b_signed, dims, bytes, is_given);
        inputs[3] = "bz";
    }
    model.nodes.push(node("MatMulInteger", &inputs, &["y"], &[]));
    let less = |point: Point<'_>, is_signed, at: i64| {
        point.map_or(0, |(_, bytes, _)| number_of(bytes[at as usize % bytes.len()], is_signed))
    };
    let mut expected: Vec<i32> = Vec::new();
    for row in 0..m {
        for column in 0..n {
            let sum: i64 = (0..depth)
                .map(|k| {
                    let a = number_of(a_bytes[(row * depth + k) as usize], a_signed);
                    let b = number_of(b_bytes[(k * n + column) as usize], b_signed);
                    (a - less(a_point, a_signed, row)) * (b - less(b_point, b_signed, column))
                })
                .sum();
            expected.push(sum as i32);
        }
    }
    let imported = onnx::read(&model.bytes()).map_err(|error| error.to_string())?;
    let y = by_name(&imported, &given)["y"].elements::<i32>().ok_or("no s32")?;
    if y == expected { Ok(()) } else { Err(format!("{y:?}, not {expected:?}")) }
}

#[test]
fn products_of_whole_numbers_are_exact_however_deep() {
    let one: &[u8] = &[7];
    let of_rows: &[u8] = &[1, 200, 127];
    let of_columns: &[u8] = &[250, 3];
    let points: [[Point<'_>; 2]; 7] = [
        [None, None],
        [Some((&[], one, false)), Some((&[1], one, false))],
        [Some((&[], one, true)), Some((&[], one, true))],
        [Some((&[1], one, true)), Some((&[2], of_columns, false))],
        [Some((&[3], of_rows, false)), None],
        [Some((&[3], of_rows, true)), Some((&[2], of_columns, true))],
        [Some((&[3, 1], of_rows, true)), Some((&[], one, false))],
    ];
    let mut wrong = Vec::new();
    for depth in [1, 258, 259, 768, 4097, 9000] {
        for signs in [[false, true], [false, false], [true, true], [true, false]] {
            for point in points {
                for b_given in [false, true] {
                    if let Err(what) = product(depth, signs, point, b_given) {
                        wrong.push(format!("{depth} {signs:?} {point:?} {b_given}: {what}"));
                    }
                }
            }
        }
    }
    report(&wrong);
}

#[test]
fn weights_without_elements_or_dims_are_read_or_refused() {
    let product = |of_a: &[i64], of_b: &[i64], bytes: &[u8]| {
        let mut model = Onnx {
            nodes: vec![node("MatMulInteger", &["a", "b", "z"], &["y"], &[])],
            inputs: vec![value("a", 2, of_a), value("z", 2, &[])],
            outputs: vec![field(1, b"y")],
            ..Onnx::default()
        };
        model.constants.push(tensor("b", 3, of_b, bytes));
        onnx::read(&model.bytes())
    };
    let empty = product(&[3, 0], &[0, 4], &[]).unwrap();
    let given = [("a", data_of(false, &[3, 0], &[])), ("z", data_of(false, &[], &[9]))];
    assert_eq!(by_name(&empty, &given)["y"].elements::<i32>(), Some(vec![0; 12]));
    assert!(product(&[3, 2], &[], &[1]).is_err());
    assert!(product(&[3, 0], &[0, i64::MAX], &[]).is_err());
}

#[test]
fn weights_of_deep_products_stay_in_8_bits() {
    let mut model = Onnx {
        nodes: vec![node("MatMulInteger", &["a", "b"], &["y"], &[])],
        inputs: vec![value("a", 2, &[1, 768])],
        outputs: vec![field(1, b"y")],
        ..Onnx::default()
    };
    model.constants.push(tensor("b", 3, &[768, 4], &bytes_of(&[768, 4], true, 3)));
    let imported = onnx::read(&model.bytes()).unwrap();
    let products = imported.graph.ops().iter().filter(|op| op.kind() == OpKind::MatMul).count();
    let largest = imported.weights.values().map(|value| value.bytes().len()).max();
    assert_eq!((products, largest), (1, Some(768 * 4)));
}

#[test]
fn whole_numbers_are_reduced_in_their_type() {
    let x = [3i64, -4, i64::MAX, 7, 0, -9];
    // The node, its result along dim 1 of {2, 3}, and of both dims.
    let rows: [(&str, [i64; 2], i64); 7] = [
        ("ReduceSum", [(i64::MAX).wrapping_sub(1), -2], i64::MAX.wrapping_sub(3)),
        ("ReduceMax", [i64::MAX, 7], i64::MAX),
        ("ReduceMin", [-4, -9], -9),
        ("ReduceMean", [(i64::MAX - 1) / 3, 0], (i64::MAX - 3) / 6),
        ("ReduceProd", [(-12i64).wrapping_mul(i64::MAX), 0], 0),
        ("ReduceL1", [7i64.wrapping_add(i64::MAX), 16], i64::MAX.wrapping_add(23)),
        ("ReduceSumSquare", [25i64.wrapping_add(1), 130], 156),
    ];
    let mut wrong = Vec::new();
    for (kind, along, of_all) in rows {
        for (axes, dims, expected) in
            [(Some(1i64), vec![2], along.to_vec()), (None, vec![1, 1], vec![of_all])]
        {
            for narrow in [false, true] {
                let inputs: &[&str] = if axes.is_some() { &["x", "axes"] } else { &["x"] };
                let keep = int("keepdims", axes.is_none().into());
                let mut model = Onnx::of(node(kind, inputs, &["y"], &[keep]), &[2, 3]);
                model.inputs = vec![value("x", if narrow { 6 } else { 7 }, &[2, 3])];
                model.constants.extend(axes.map(|axis| integers("axes", &[axis])));
                // In s32 the largest number is 5.
                let small: Vec<i32> = x.iter().map(|&x| if x == i64::MAX { 5 } else { x as i32 }).collect();
                let given = match narrow {
                    true => Value::from_slice(&[2, 3], &small).unwrap(),
                    false => Value::from_slice(&[2, 3], &x).unwrap(),
                };
                let result = match onnx::read(&Onnx { opset: Some(18), ..model }.bytes()) {
                    Ok(imported) => by_name(&imported, &[("x", given)])["y"].clone(),
                    Err(error) => {
                        wrong.push(format!("{kind}: {error}"));
                        continue;
                    }
                };
                let numbers = match narrow {
                    true => result.elements::<i32>().map(|all| all.into_iter().map(i64::from).collect()),
                    false => result.elements::<i64>(),
                };
                let expected = match narrow {
                    true => of_small(kind, &small, axes.is_some()),
                    false => expected.clone(),
                };
                if numbers.as_ref() != Some(&expected) || result.dims() != dims {
                    wrong.push(format!("{kind} {axes:?} {narrow}: {result:?}, not {expected:?}"));
                }
            }
        }
    }
    report(&wrong);
}

/// A reduction of {2, 3} along dim 1, or of all.
fn of_small(kind: &str, x: &[i32], along: bool) -> Vec<i64> {
    let rows: Vec<&[i32]> = if along { x.chunks(3).collect() } else { vec![x] };
    let one = |row: &&[i32]| -> i64 {
        let numbers = row.iter().map(|&x| i64::from(x));
        match kind {
            "ReduceSum" => numbers.sum(),
            "ReduceMax" => numbers.max().unwrap(),
            "ReduceMin" => numbers.min().unwrap(),
            "ReduceMean" => numbers.sum::<i64>() / row.len() as i64,
            "ReduceProd" => numbers.product(),
            "ReduceL1" => numbers.map(i64::abs).sum(),
            _ => numbers.map(|x| x * x).sum(),
        }
    };
    rows.iter().map(one).collect()
}
