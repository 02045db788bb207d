//! Weights in few bits, and what is worked out when a model is read.

use sterna::reference::Value;
use sterna::{DataType, OpKind};
use sterna_import::onnx;

use super::bytes::{Onnx, field, floats, int, node, tensor, value};
use super::common::{as_floats, by_name, float, report};

/// Elements of four bits, two in a byte.
fn packed(elements: &[i64]) -> Vec<u8> {
    let low = |element: i64| (element & 0xf) as u8;
    elements.chunks(2).map(|pair| low(pair[0]) | pair.get(1).map_or(0, |&high| low(high) << 4)).collect()
}

/// A tensor of whole numbers in a type of ONNX: 2 u8, 3 s8, 6 s32, 21 u4, 22 s4.
fn whole(name: &str, data_type: i64, dims: &[i64], elements: &[i64]) -> Vec<u8> {
    let raw: Vec<u8> = match data_type {
        21 | 22 => packed(elements),
        6 => elements.iter().flat_map(|&element| (element as i32).to_le_bytes()).collect(),
        _ => elements.iter().map(|&element| element as u8).collect(),
    };
    tensor(name, data_type, dims, &raw)
}

/// The numbers that elements take.
fn bounds(data_type: i64) -> (i64, i64) {
    match data_type {
        21 => (0, 15),
        22 => (-8, 7),
        2 => (0, 255),
        3 => (-128, 127),
        _ => (-100_000, 100_000),
    }
}

/// The type, dims of the data, those of scales and zero points, axis and size of blocks, and the op.
type Scaled<'a> = (i64, &'a [i64], &'a [i64], i64, i64, OpKind);

#[test]
fn weights_of_few_bits_are_dequantised_as_they_are_stored() {
    let dynamic = OpKind::DynamicDequantize;
    let rows: [Scaled<'_>; 13] = [
        (22, &[4, 6], &[], 1, 0, dynamic),
        (21, &[3, 5], &[1], 1, 0, dynamic),
        (22, &[4, 6], &[6], 1, 0, dynamic),
        (21, &[4, 6], &[4], 0, 0, dynamic),
        (22, &[4, 6], &[2, 6], 0, 2, dynamic),
        (21, &[4, 6], &[4, 2], -1, 3, dynamic),
        (22, &[3, 5], &[3, 2], 1, 3, dynamic),
        (21, &[3, 5], &[2, 5], 0, 2, dynamic),
        (2, &[3, 5], &[3, 2], 1, 4, dynamic),
        (3, &[2, 3, 4], &[2, 3, 2], 2, 2, dynamic),
        (3, &[2, 6], &[6], 1, 0, OpKind::Dequantize),
        (6, &[6], &[], 1, 0, OpKind::Multiply),
        (6, &[2, 3], &[3], 1, 0, OpKind::Multiply),
    ];
    let mut wrong = Vec::new();
    for (data_type, dims, scales, axis, block, kind) in rows {
        for has_points in [false, true] {
            let (least, most) = bounds(data_type);
            let whole_number = |at: i64| least + (at * 37 + 5) % (most - least + 1);
            let count: i64 = dims.iter().product();
            let of_scales: i64 = scales.iter().product();
            let elements: Vec<i64> = (0..count).map(whole_number).collect();
            let factors: Vec<f32> = (0..of_scales).map(|at| 0.5 + at as f32).collect();
            let is_bias = data_type == 6;
            let points: Vec<i64> =
                (0..of_scales).map(|at| if is_bias { 0 } else { whole_number(at * 3 + 1) }).collect();
            let inputs: &[&str] = if has_points { &["w", "s", "z"] } else { &["w", "s"] };
            let mut attributes = vec![int("axis", axis)];
            if block > 0 {
                attributes.push(int("block_size", block));
            }
            let mut model = Onnx::of(node("DequantizeLinear", inputs, &["d"], &attributes), dims);
            model.nodes.push(node("Add", &["d", "x"], &["y"], &[]));
            model.opset = Some(21);
            model.constants = vec![
                whole("w", data_type, dims, &elements),
                floats("s", scales, &factors),
                whole("z", data_type, scales, &points),
            ];
            let along = if axis < 0 { dims.len() - 1 } else { axis as usize };
            let place = |at: i64| -> usize {
                let (mut rest, mut index) = (at, vec![0; dims.len()]);
                for dim in (0..dims.len()).rev() {
                    index[dim] = rest % dims[dim];
                    rest /= dims[dim];
                }
                match scales.len() {
                    _ if of_scales == 1 => 0,
                    1 => index[along] as usize,
                    _ => {
                        index[along] /= block;
                        index.iter().zip(scales).fold(0, |at, (i, dim)| at * *dim as usize + *i as usize)
                    }
                }
            };
            let expected: Vec<f32> = (0..count)
                .map(|at| {
                    let point = if has_points { points[place(at)] } else { 0 };
                    (elements[at as usize] - point) as f32 * factors[place(at)]
                })
                .collect();
            let row = format!("{data_type} {dims:?} {scales:?} {axis} {block} {has_points}");
            match onnx::read(&model.bytes()) {
                Ok(imported) => {
                    let zeros = float(dims, &vec![0.0; count as usize]);
                    let y = as_floats(&by_name(&imported, &[("x", zeros)])["y"]);
                    let has_op = imported.graph.ops().iter().any(|op| op.kind() == kind) || is_bias;
                    if y != expected || !has_op {
                        wrong.push(format!("{row}: {y:?}, not {expected:?}"));
                    }
                }
                Err(error) => wrong.push(format!("{row}: {error}")),
            }
        }
    }
    report(&wrong);
}

#[test]
fn one_scale_and_one_zero_point_may_differ_in_rank() {
    let mut wrong = Vec::new();
    for (scale, point, fits) in
        [(&[][..], &[1][..], true), (&[1], &[], true), (&[], &[2], false), (&[2], &[1], false)]
    {
        let mut model = Onnx::of(node("DequantizeLinear", &["w", "s", "z"], &["d"], &[]), &[2, 2]);
        model.nodes.push(node("Add", &["d", "x"], &["y"], &[]));
        model.opset = Some(21);
        let count = |dims: &[i64]| dims.iter().product::<i64>() as usize;
        model.constants = vec![
            whole("w", 22, &[2, 2], &[-8, 7, 0, 1]),
            floats("s", scale, &vec![0.5; count(scale)]),
            whole("z", 22, point, &vec![-2; count(point)]),
        ];
        let y = onnx::read(&model.bytes())
            .map(|imported| as_floats(&by_name(&imported, &[("x", float(&[2, 2], &[0.0; 4]))])["y"]));
        match y {
            Ok(y) if fits && y == [-3.0, 4.5, 1.0, 1.5] => {}
            Err(error) if !fits && error.to_string().contains("zero_point") => {}
            other => wrong.push(format!("{scale:?} {point:?}: {:?}", other.map_err(|e| e.to_string()))),
        }
    }
    report(&wrong);
}

#[test]
fn a_type_without_conversions_is_refused_where_it_is_named() {
    let to = "attribute `to`; needed: f32, bf16, f16, ";
    let mut wrong = Vec::new();
    for (one, needed) in [
        (node("Cast", &["x"], &["y"], &[int("to", 22)]), to),
        (node("Cast", &["x"], &["y"], &[int("to", 21)]), to),
        (node("CastLike", &["x", "z"], &["y"], &[]), "input port 1 (`target_type`)"),
    ] {
        let mut model = Onnx::of(one, &[2]);
        model.opset = Some(21);
        model.constants = vec![whole("z", 22, &[2], &[1, 2])];
        match onnx::read(&model.bytes()).map_err(|error| error.to_string()) {
            Err(error) if error.contains(needed) => {}
            other => wrong.push(format!("{needed}: {other:?}")),
        }
    }
    report(&wrong);
}

#[test]
fn elements_of_four_bits_may_stand_in_numbers() {
    // Three elements in two numbers, two elements in each.
    let numbers: Vec<u8> = [0x21u64, 0x0f].iter().flat_map(|&n| super::bytes::varint(n)).collect();
    let dims = super::bytes::number(1, 3);
    let of = [dims, super::bytes::number(2, 22), field(5, &numbers), field(8, b"w")].concat();
    let (name, held) = onnx::tensor(&of).unwrap();
    let expected = Value::new(DataType::S4, &[3], vec![0x21, 0x0f]).unwrap();
    assert_eq!((&*name, held), ("w", expected));
}

#[test]
fn what_follows_from_constants_is_worked_out() {
    // The buckets of relative positions: logarithms, truncated, of a constant where it is large.
    let mut model = Onnx::of(node("Log", &["c"], &["log"], &[]), &[4]);
    model.constants = vec![floats("c", &[4], &[1.0, 8.0, 64.0, 0.5]), floats("two", &[], &[2.0])];
    model.nodes.extend([
        node("Mul", &["log", "two"], &["scaled"], &[]),
        node("Cast", &["scaled"], &["bucket"], &[int("to", 7)]),
        node("Cast", &["bucket"], &["back"], &[int("to", 1)]),
        node("Less", &["c", "two"], &["small"], &[]),
        node("Where", &["small", "c", "back"], &["chosen"], &[]),
        node("Add", &["x", "chosen"], &["y"], &[]),
    ]);
    let imported = onnx::read(&model.bytes()).unwrap();
    let kinds: Vec<OpKind> = imported.graph.ops().iter().map(|op| op.kind()).collect();
    assert_eq!(kinds, [OpKind::Add]);
    let y = as_floats(&by_name(&imported, &[("x", float(&[4], &[0.0; 4]))])["y"]);
    assert_eq!(y, [1.0, 4.0, 8.0, 0.5]);
    // A large product is left to the execution.
    let mut model = Onnx::of(node("MatMul", &["a", "a"], &["square"], &[]), &[512]);
    model.constants = vec![floats("a", &[512, 512], &vec![0.5; 512 * 512])];
    model.nodes.push(node("Add", &["x", "square"], &["y"], &[]));
    assert_eq!(onnx::read(&model.bytes()).unwrap().graph.ops().len(), 2);
}

#[test]
fn scales_that_do_not_divide_the_data_are_refused() {
    let rows: [(&[i64], &[i64], i64, &str); 4] = [
        (&[4, 6], &[3], 0, "input port 1 (`x_scale`) is {3}"),
        (&[4, 6], &[4, 3], 4, "input port 1 (`x_scale`) is {4,3}"),
        (&[4, 6], &[4, 3], -2, "attribute `block_size`"),
        (&[6], &[2], 3, "input port 1 (`x_scale`) is {2}"),
    ];
    let mut wrong = Vec::new();
    for (dims, scales, block, expected) in rows {
        let attributes = [int("axis", -1), int("block_size", block)];
        let mut model = Onnx::of(node("DequantizeLinear", &["w", "s"], &["y"], &attributes), dims);
        let count: i64 = scales.iter().product();
        model.inputs = vec![value("x", 1, &[1])];
        model.constants = vec![
            whole("w", 22, dims, &vec![1; dims.iter().product::<i64>() as usize]),
            floats("s", scales, &vec![1.0; count as usize]),
        ];
        match onnx::read(&model.bytes()) {
            Err(error) if error.to_string().contains(expected) => {}
            other => wrong.push(format!("{expected}: {:?}", other.map_err(|error| error.to_string()))),
        }
    }
    report(&wrong);
}
