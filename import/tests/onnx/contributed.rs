//! Ops of the domain `com.microsoft`.

use sterna::OpKind;
use sterna::reference::Value;
use sterna_import::onnx;

use super::bytes::{Onnx, field, floats, int, ints, node, node_of, number, tensor, value};
use super::common::{as_floats, by_name, float, report};

fn of_microsoft(kind: &str, inputs: &[&str], outputs: &[&str], attributes: &[Vec<u8>]) -> Vec<u8> {
    node_of("com.microsoft", kind, inputs, outputs, attributes)
}

/// An attribute that is a number.
pub(super) fn real(name: &str, value: f32) -> Vec<u8> {
    let number = [vec![2 << 3 | 5], value.to_le_bytes().to_vec()].concat();
    [field(1, name.as_bytes()), number, super::bytes::number(20, 1)].concat()
}

/// The outputs of nodes on an input of {2, 3, 4}, beside constants.
fn outputs(nodes: Vec<Vec<u8>>, names: &[&str]) -> Result<Vec<Value>, String> {
    let steps =
        |count: usize, from: f32| -> Vec<f32> { (0..count).map(|i| from + i as f32 * 0.25).collect() };
    let model = Onnx {
        nodes,
        inputs: vec![value("x", 1, &[2, 3, 4]), value("s", 1, &[2, 3, 4])],
        outputs: names.iter().map(|name| field(1, name.as_bytes())).collect(),
        constants: vec![
            floats("g", &[4], &steps(4, 0.5)),
            floats("b", &[4], &steps(4, -0.5)),
            floats("c", &[4], &steps(4, 1.0)),
            floats("w", &[4, 4], &steps(16, -2.0)),
            floats("two", &[], &[2.0]),
            tensor("w8", 3, &[4, 3], &(0..12).map(|i| (i * 37 % 251) as u8).collect::<Vec<u8>>()),
            tensor("w8z", 3, &[3], &[5, 250, 0]),
            tensor("b8", 2, &[4], &[3, 200, 90, 17]),
            tensor("c8", 6, &[3], &[10i32, -200, 3].map(i32::to_le_bytes).concat()),
            tensor("keep", 9, &[1, 3, 1], &[1, 0, 1]),
            floats("fine", &[], &[0.03125]),
            floats("coarse", &[1], &[0.0625]),
            tensor("mid", 2, &[], &[120]),
            tensor("low", 2, &[], &[7]),
            tensor("none", 3, &[], &[0]),
            tensor("flat", 7, &[2], &[6i64, 4].map(i64::to_le_bytes).concat()),
            tensor("last", 7, &[1], &2i64.to_le_bytes()),
            floats("w8s", &[3], &[0.5, 0.125, 2.0]),
            floats("bias", &[3], &[1.0, -2.0, 0.25]),
        ],
        opset: Some(24),
        ..Onnx::default()
    };
    let imported = onnx::read(&model.bytes()).map_err(|error| error.to_string())?;
    let given = |scale: f32| {
        float(&[2, 3, 4], &(0..24).map(|i| (i * 7 % 11 - 5) as f32 * scale).collect::<Vec<f32>>())
    };
    let results = by_name(&imported, &[("x", given(0.5)), ("s", given(-0.25))]);
    Ok(names.iter().map(|name| results[*name].clone()).collect())
}

/// A node, the nodes that it replaces, and the outputs.
type Replaced<'a> = (Vec<u8>, Vec<Vec<u8>>, &'a [&'a str]);

/// Reports the nodes whose outputs are not those of the nodes that they replace.
fn check(rows: Vec<Replaced<'_>>) {
    let mut wrong = Vec::new();
    for (at, (one, several, names)) in rows.into_iter().enumerate() {
        match (outputs(vec![one], names), outputs(several, names)) {
            (Ok(found), Ok(expected)) => {
                for (found, expected) in found.iter().zip(&expected) {
                    let (a, b) = (as_floats(found), as_floats(expected));
                    let near = a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= 1e-5 * b.abs().max(1.0));
                    if !near || found.dims() != expected.dims() {
                        wrong.push(format!("{at}: {a:?}, not {b:?}"));
                    }
                }
            }
            (found, expected) => wrong.push(format!("{at}: {:?} {:?}", found.err(), expected.err())),
        }
    }
    report(&wrong);
}

#[test]
fn ops_of_onnx_runtime_are_those_of_onnx_that_they_replace() {
    let tanh = [field(1, b"approximate"), field(4, b"tanh"), number(20, 3)].concat();
    let epsilon = || real("epsilon", 0.01);
    let sum = || node("Add", &["x", "s"], &["a"], &[]);
    let with_bias = || vec![sum(), node("Add", &["a", "c"], &["t"], &[])];
    let rms = |from: &str| node("RMSNormalization", &[from, "g"], &["y"], &[epsilon()]);
    let rows: Vec<Replaced<'_>> = vec![
        (
            of_microsoft("BiasGelu", &["x", "b"], &["y"], &[]),
            vec![node("Add", &["x", "b"], &["a"], &[]), node("Gelu", &["a"], &["y"], &[])],
            &["y"],
        ),
        (
            of_microsoft("FastGelu", &["x"], &["y"], &[]),
            vec![node("Gelu", &["x"], &["y"], std::slice::from_ref(&tanh))],
            &["y"],
        ),
        (
            of_microsoft("FastGelu", &["x", "b"], &["y"], &[]),
            vec![node("Add", &["x", "b"], &["a"], &[]), node("Gelu", &["a"], &["y"], &[tanh])],
            &["y"],
        ),
        (
            of_microsoft("QuickGelu", &["x"], &["y"], &[]),
            vec![node("Swish", &["x"], &["y"], &[real("alpha", 1.702)])],
            &["y"],
        ),
        (
            of_microsoft("FusedMatMul", &["x", "w"], &["y"], &[real("alpha", 2.0), int("transB", 1)]),
            vec![
                node("Transpose", &["w"], &["wt"], &[]),
                node("MatMul", &["x", "wt"], &["p"], &[]),
                node("Mul", &["p", "two"], &["y"], &[]),
            ],
            &["y"],
        ),
        (
            of_microsoft("SkipLayerNormalization", &["x", "s", "g", "b"], &["y"], &[epsilon()]),
            vec![sum(), node("LayerNormalization", &["a", "g", "b"], &["y"], &[epsilon()])],
            &["y"],
        ),
        (
            of_microsoft(
                "SkipLayerNormalization",
                &["x", "s", "g", "", "c"],
                &["y", "", "", "t"],
                &[epsilon()],
            ),
            [with_bias(), vec![node("LayerNormalization", &["t", "g"], &["y"], &[epsilon()])]].concat(),
            &["y", "t"],
        ),
        (
            of_microsoft(
                "SkipSimplifiedLayerNormalization",
                &["x", "s", "g", "c"],
                &["y", "", "", "t"],
                &[epsilon()],
            ),
            [with_bias(), vec![rms("t")]].concat(),
            &["y", "t"],
        ),
        (node("SimplifiedLayerNormalization", &["x", "g"], &["y"], &[epsilon()]), vec![rms("x")], &["y"]),
    ];
    check(rows);
}

#[test]
fn products_of_quantised_data_are_those_of_the_nodes_that_they_replace() {
    let quantized = || vec![node("DynamicQuantizeLinear", &["x"], &["q", "qs", "qz"], &[])];
    let by_scales = |inputs: &[&str], scale: &str| {
        vec![
            node("MatMulInteger", inputs, &["whole"], &[]),
            node("Cast", &["whole"], &["sums"], &[int("to", 1)]),
            node("Mul", &["sums", scale], &["of_a"], &[]),
            node("Mul", &["of_a", "w8s"], &["scaled"], &[]),
        ]
    };
    let with_own_bias = || vec![node("Add", &["scaled", "bias"], &["y"], &[])];
    check(vec![
        (
            of_microsoft("DynamicQuantizeMatMul", &["x", "w8", "w8s", "w8z", "bias"], &["y"], &[]),
            [quantized(), by_scales(&["q", "w8", "qz", "w8z"], "qs"), with_own_bias()].concat(),
            &["y"],
        ),
        (
            of_microsoft("DynamicQuantizeMatMul", &["x", "w8", "two"], &["y"], &[]),
            [
                quantized(),
                vec![
                    node("MatMulInteger", &["q", "w8", "qz"], &["whole"], &[]),
                    node("Cast", &["whole"], &["sums"], &[int("to", 1)]),
                    node("Mul", &["sums", "qs"], &["scaled"], &[]),
                    node("Mul", &["scaled", "two"], &["y"], &[]),
                ],
            ]
            .concat(),
            &["y"],
        ),
    ]);
}

#[test]
fn integers_are_scaled_behind_their_product() {
    let scaled = || of_microsoft("MatMulIntegerToFloat", &["q", "w8", "qs", "w8s", "qz", "w8z"], &["y"], &[]);
    let one = vec![node("DynamicQuantizeLinear", &["x"], &["q", "qs", "qz"], &[]), scaled()];
    let several = vec![of_microsoft("DynamicQuantizeMatMul", &["x", "w8", "w8s", "w8z"], &["y"], &[])];
    let (one, several) = (outputs(one, &["y"]).unwrap(), outputs(several, &["y"]).unwrap());
    assert_eq!(as_floats(&one[0]), as_floats(&several[0]));
    assert_eq!(one[0].dims(), [2, 3, 3]);
    let wrong = of_microsoft("MatMulIntegerToFloat", &["q", "w8", "w8s", "w8s"], &["y"], &[]);
    let quantized = node("DynamicQuantizeLinear", &["x"], &["q", "qs", "qz"], &[]);
    let refused = outputs(vec![quantized, wrong], &["y"]).unwrap_err();
    assert!(refused.contains("one number"), "{refused}");
}

/// The zero points of weights.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Points {
    /// Half of the numbers that the bits make.
    Middle,
    Packed,
    Floats,
}

/// A product by weights of few bits, or the error.
fn few_bits(bits: i64, depth: i64, block: i64, points: Points) -> Result<(), String> {
    let has_points = points != Points::Middle;
    let columns = 3;
    let blocks = (depth + block - 1) / block;
    let (mask, middle) = ((1 << bits) - 1, 1 << (bits - 1));
    let weight = |n: i64, k: i64| (n * 31 + k * 7 + 3) & mask;
    let point = |n: i64, at: i64| if has_points { (n * 5 + at * 3) & mask } else { middle };
    let scale = |n: i64, at: i64| 0.25 * (1 + n + at) as f32;
    let pack = |list: Vec<i64>| -> Vec<u8> {
        let byte = |part: &[i64]| part.iter().rev().fold(0, |byte, number| byte << bits | number) as u8;
        list.chunks(8 / bits as usize).map(byte).collect()
    };
    let rows = |length: i64, of: &dyn Fn(i64, i64) -> i64| -> Vec<u8> {
        (0..columns).flat_map(|n| pack((0..length).map(|at| of(n, at)).collect())).collect()
    };
    let attributes = [int("K", depth), int("N", columns), int("bits", bits), int("block_size", block)];
    let inputs: &[&str] = if has_points { &["x", "w", "s", "z"] } else { &["x", "w", "s"] };
    let mut model = Onnx::of(of_microsoft("MatMulNBits", inputs, &["y"], &attributes), &[2, depth]);
    let scales: Vec<f32> =
        (0..columns).flat_map(|n| (0..blocks).map(move |at| (n, at))).map(|(n, at)| scale(n, at)).collect();
    let packed = rows(blocks, &point);
    let each: Vec<f32> = (0..columns).flat_map(|n| (0..blocks).map(move |at| point(n, at) as f32)).collect();
    model.constants = vec![
        tensor("w", 2, &[columns, blocks, block * bits / 8], &rows(blocks * block, &weight)),
        floats("s", &[columns * blocks], &scales),
        match points {
            Points::Floats => floats("z", &[columns * blocks], &each),
            _ => tensor("z", 2, &[packed.len() as i64], &packed),
        },
    ];
    let x: Vec<f32> = (0..2 * depth).map(|i| (i % 5 - 2) as f32).collect();
    let mut expected = Vec::new();
    for row in 0..2 {
        for n in 0..columns {
            let product = |k: i64| {
                let weight = (weight(n, k) - point(n, k / block)) as f32 * scale(n, k / block);
                x[(row * depth + k) as usize] * weight
            };
            expected.push((0..depth).map(product).sum::<f32>());
        }
    }
    let imported = onnx::read(&model.bytes()).map_err(|error| error.to_string())?;
    let y = as_floats(&by_name(&imported, &[("x", float(&[2, depth], &x))])["y"]);
    if !imported.graph.ops().iter().any(|op| op.kind() == OpKind::DynamicDequantize) {
        return Err("weights are not kept in few bits".into());
    }
    if y == expected { Ok(()) } else { Err(format!("{y:?}, not {expected:?}")) }
}

#[test]
fn weights_of_few_bits_are_multiplied_in_blocks() {
    let mut wrong = Vec::new();
    for bits in [2, 4, 8] {
        for (depth, block) in [(32, 16), (16, 16), (40, 16), (70, 32)] {
            for points in [Points::Middle, Points::Packed, Points::Floats] {
                if let Err(what) = few_bits(bits, depth, block, points) {
                    wrong.push(format!("{bits} {depth} {block} {points:?}: {what}"));
                }
            }
        }
    }
    let attributes = [int("K", 16), int("N", 1), int("bits", 3), int("block_size", 16)];
    let refused = of_microsoft("MatMulNBits", &["x", "w", "s"], &["y"], &attributes);
    let mut model = Onnx::of(refused, &[1, 16]);
    model.constants = vec![tensor("w", 2, &[1, 1, 6], &[0; 6]), floats("s", &[1], &[1.0])];
    match onnx::read(&model.bytes()) {
        Err(error) if error.to_string().contains("attribute `bits`; needed: 2, 4 or 8") => {}
        other => wrong.push(format!("{:?}", other.map_err(|error| error.to_string()))),
    }
    report(&wrong);
}

#[test]
fn batches_stand_behind_the_rows() {
    let attributes = [int("transBatchA", 1), int("transBatchB", 1), int("transB", 1)];
    let fused = of_microsoft("FusedMatMul", &["x", "w"], &["y"], &attributes);
    let order = |name: &str, numbers: [i64; 4]| {
        let numbers: Vec<u8> = numbers.iter().flat_map(|&n| super::bytes::number(8, n)).collect();
        [field(1, name.as_bytes()), numbers, super::bytes::number(20, 7)].concat()
    };
    let apart = [
        node("Transpose", &["x"], &["a"], &[order("perm", [1, 2, 0, 3])]),
        node("Transpose", &["w"], &["b"], &[order("perm", [1, 2, 3, 0])]),
        node("MatMul", &["a", "b"], &["y"], &[]),
    ];
    let x: Vec<f32> = (0..3 * 2 * 2 * 4).map(|i| (i % 7) as f32 - 2.5).collect();
    let w: Vec<f32> = (0..5 * 2 * 2 * 4).map(|i| (i % 5) as f32 - 1.5).collect();
    let results = [vec![fused], apart.to_vec()].map(|nodes| {
        let mut model = Onnx { nodes, ..Onnx::of(Vec::new(), &[3, 2, 2, 4]) };
        model.constants = vec![floats("w", &[5, 2, 2, 4], &w)];
        let imported = onnx::read(&model.bytes()).unwrap_or_else(|error| panic!("{error}"));
        by_name(&imported, &[("x", float(&[3, 2, 2, 4], &x))])["y"].clone()
    });
    assert_eq!(results[0].dims(), [2, 2, 3, 5]);
    assert_eq!(results[0], results[1]);
}

#[test]
fn roots_and_logarithms_of_whole_numbers_are_cut_off() {
    let whole = |kind: &str, numbers: &[i32]| {
        let cast =
            |from: &str, to: &str, data_type: i64| node("Cast", &[from], &[to], &[int("to", data_type)]);
        let mut model = Onnx::of(cast("x", "n", 6), &[numbers.len() as i64]);
        model.nodes.push(node(kind, &["n"], &["r"], &[int("keepdims", 0)]));
        model.nodes.push(cast("r", "y", 1));
        let imported = onnx::read(&model.bytes()).unwrap_or_else(|error| panic!("{error}"));
        let x: Vec<f32> = numbers.iter().map(|&n| n as f32).collect();
        as_floats(&by_name(&imported, &[("x", float(&[x.len() as i64], &x))])["y"])[0]
    };
    // As ONNX Runtime 1.32 has them.
    assert_eq!(whole("ReduceL2", &[3, -4, 2]), 5.0);
    assert_eq!(whole("ReduceLogSum", &[3, 4, 20]), 3.0);
    // The scale of zeros alone is 1.
    let model = Onnx::of(node("DynamicQuantizeLinear", &["x"], &["q", "y", "z"], &[]), &[3]);
    let imported = onnx::read(&model.bytes()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(as_floats(&by_name(&imported, &[("x", float(&[3], &[0.0; 3]))])["y"]), [1.0]);
}

#[test]
fn a_norm_of_onnx_runtime_may_stand_in_an_earlier_opset() {
    let mut model = Onnx::of(node("LayerNormalization", &["x", "g", "b"], &["y"], &[]), &[2, 4]);
    model.constants =
        vec![floats("g", &[4], &[1.0, 2.0, 1.0, 0.5]), floats("b", &[4], &[0.0, 0.0, 1.0, 0.0])];
    model.opset = Some(14);
    let imported = onnx::read(&model.bytes()).unwrap_or_else(|error| panic!("{error}"));
    let x = float(&[2, 4], &[1.0, 1.0, -1.0, -1.0, 3.0, -3.0, 3.0, -3.0]);
    let y = as_floats(&by_name(&imported, &[("x", x)])["y"]);
    let expected = [1.0, 2.0, 0.0, -0.5, 1.0, -2.0, 2.0, -0.5];
    assert!(y.iter().zip(expected).all(|(y, expected)| (y - expected).abs() < 1e-4), "{y:?}");
}

/// Of x in 8 bits to y, whose scale is the coarse one: a node of its own, and the ops that it stands for.
fn of_eight_bits(one: Vec<u8>, several: Vec<Vec<u8>>) -> Compared {
    let q =
        |x: &str, scale: &str, point: &str, to: &str| node("QuantizeLinear", &[x, scale, point], &[to], &[]);
    let d = |x: &str, scale: &str, point: &str, to: &str| {
        node("DequantizeLinear", &[x, scale, point], &[to], &[])
    };
    let before = [q("x", "fine", "mid", "x8"), d("x8", "fine", "mid", "xf")];
    let behind = [q("r", "coarse", "low", "y8"), d("y8", "coarse", "low", "y")];
    let own = vec![before[0].clone(), one, d("y8", "coarse", "low", "y")];
    (own, [&before[..], &several, &behind].concat())
}

const X_OF_EIGHT_BITS: [&str; 3] = ["x8", "fine", "mid"];
const TO_EIGHT_BITS: [&str; 2] = ["coarse", "low"];

fn quantized(kind: &str, inputs: &[&[&str]], attributes: &[Vec<u8>]) -> Vec<u8> {
    of_microsoft(kind, &inputs.concat(), &["y8"], attributes)
}

/// Fails where the two models of a row do not give the same.
fn compare(rows: Vec<Compared>) {
    let mut wrong = Vec::new();
    for (at, (own, several)) in rows.into_iter().enumerate() {
        let [found, expected] = [own, several].map(|nodes| outputs(nodes, &["y"]));
        match (found, expected) {
            (Ok(found), Ok(expected)) if found == expected => {}
            other => wrong.push(format!("{at}: {other:?}")),
        }
    }
    report(&wrong);
}

#[test]
fn ops_in_8_bits_are_the_ops_between_their_conversions() {
    let (x, to, and_b) = (X_OF_EIGHT_BITS, TO_EIGHT_BITS, ["b8", "coarse", "low"]);
    let b = || node("DequantizeLinear", &["b8", "coarse", "low"], &["bf"], &[]);
    let rows = vec![
        of_eight_bits(
            quantized("QLinearAdd", &[&x, &and_b, &to], &[]),
            vec![b(), node("Add", &["xf", "bf"], &["r"], &[])],
        ),
        of_eight_bits(
            quantized("QLinearMul", &[&x, &and_b, &to], &[]),
            vec![b(), node("Mul", &["xf", "bf"], &["r"], &[])],
        ),
        of_eight_bits(
            quantized("QLinearSigmoid", &[&x, &to], &[]),
            vec![node("Sigmoid", &["xf"], &["r"], &[])],
        ),
        of_eight_bits(
            quantized("QLinearLeakyRelu", &[&x, &to], &[real("alpha", 0.25)]),
            vec![node("LeakyRelu", &["xf"], &["r"], &[real("alpha", 0.25)])],
        ),
        of_eight_bits(
            quantized("QLinearSoftmax", &[&x, &to], &[int("axis", 1), int("opset", 13)]),
            vec![node("Softmax", &["xf"], &["r"], &[int("axis", 1)])],
        ),
        of_eight_bits(
            quantized("QLinearReduceMean", &[&x, &to], &[ints("axes", &[2])]),
            vec![node("ReduceMean", &["xf", "last"], &["r"], &[])],
        ),
        of_eight_bits(
            quantized("QLinearConcat", &[&to, &x, &x], &[int("axis", 1)]),
            vec![node("Concat", &["xf", "xf"], &["r"], &[int("axis", 1)])],
        ),
        of_eight_bits(
            quantized("QLinearWhere", &[&["keep"], &x, &and_b, &to], &[]),
            vec![b(), node("Where", &["keep", "xf", "bf"], &["r"], &[])],
        ),
    ];
    compare(rows);
}

#[test]
fn pools_in_8_bits_are_the_pools_between_their_conversions() {
    let (x, to) = (X_OF_EIGHT_BITS, TO_EIGHT_BITS);
    let turned = |x: &str, to: &str| node("Transpose", &[x], &[to], &[ints("perm", &[0, 2, 1])]);
    compare(vec![
        of_eight_bits(
            quantized("QLinearAveragePool", &[&x, &to], &[ints("kernel_shape", &[2]), ints("pads", &[1, 0])]),
            vec![node("AveragePool", &["xf"], &["r"], &[ints("kernel_shape", &[2]), ints("pads", &[1, 0])])],
        ),
        of_eight_bits(
            quantized(
                "QLinearAveragePool",
                &[&x, &to],
                &[
                    ints("kernel_shape", &[2]),
                    int("channels_last", 1),
                    int("ceil_mode", 1),
                    ints("strides", &[2]),
                ],
            ),
            vec![
                turned("xf", "t"),
                node(
                    "AveragePool",
                    &["t"],
                    &["p"],
                    &[ints("kernel_shape", &[2]), int("ceil_mode", 1), ints("strides", &[2])],
                ),
                turned("p", "r"),
            ],
        ),
        of_eight_bits(
            quantized("QLinearGlobalAveragePool", &[&x, &to], &[int("channels_last", 0)]),
            vec![node("GlobalAveragePool", &["xf"], &["r"], &[])],
        ),
        of_eight_bits(
            quantized("QLinearGlobalAveragePool", &[&x, &to], &[int("channels_last", 1)]),
            vec![turned("xf", "t"), node("GlobalAveragePool", &["t"], &["p"], &[]), turned("p", "r")],
        ),
    ]);
}

/// The nodes of two models that give the same.
type Compared = (Vec<Vec<u8>>, Vec<Vec<u8>>);

#[test]
fn products_in_8_bits_add_their_bias_to_the_sums() {
    let conversions = || {
        vec![
            node("Reshape", &["x", "flat"], &["x2"], &[]),
            node("QuantizeLinear", &["x2", "fine", "mid"], &["x8"], &[]),
        ]
    };
    let w = ["w8", "w8s", "w8z", "c8"];
    let sums = || {
        vec![
            node("MatMulInteger", &["x8", "w8", "mid", "w8z"], &["sums"], &[]),
            node("Add", &["sums", "c8"], &["t"], &[]),
            node("Cast", &["t"], &["f"], &[int("to", 1)]),
            node("Mul", &["f", "w8s"], &["m"], &[]),
            node("Mul", &["m", "fine"], &["n"], &[]),
        ]
    };
    let whole = || vec![node("Mul", &["n", "two"], &["y"], &[])];
    let bytes = |from: &str| {
        let ports = [from, "coarse", "low"];
        let q = node("QuantizeLinear", &ports, &["y8"], &[]);
        vec![q, node("DequantizeLinear", &["y8", "coarse", "low"], &["y"], &[])]
    };
    let gemm = |inputs: &[&str], to: &str, attributes: &[Vec<u8>]| {
        of_microsoft("QGemm", &[&["x8", "fine", "mid"], inputs].concat(), &[to], attributes)
    };
    let turned = node("Transpose", &["w8"], &["w8t"], &[]);
    let rows: Vec<Compared> = vec![
        (vec![gemm(&w, "y", &[real("alpha", 2.0)])], [sums(), whole()].concat()),
        (
            vec![gemm(&[&w[..], &["coarse", "low"]].concat(), "y8", &[]), bytes("m")[1].clone()],
            [sums(), bytes("n")].concat(),
        ),
        (
            vec![turned, gemm(&["w8t", "w8s", "w8z", "c8"], "y", &[real("alpha", 2.0), int("transB", 1)])],
            [sums(), whole()].concat(),
        ),
    ];
    let mut wrong = Vec::new();
    for (at, (own, several)) in rows.into_iter().enumerate() {
        let [found, expected] = [own, several].map(|nodes| outputs([conversions(), nodes].concat(), &["y"]));
        let near = |found: &Value, expected: &Value| {
            as_floats(found)
                .iter()
                .zip(as_floats(expected))
                .all(|(a, b)| (a - b).abs() <= 1e-5 * b.abs().max(1.0))
        };
        match (found, expected) {
            (Ok(found), Ok(expected)) if near(&found[0], &expected[0]) => {}
            other => wrong.push(format!("{at}: {other:?}")),
        }
    }
    report(&wrong);
}

#[test]
fn a_convolution_in_8_bits_adds_its_bias_to_the_sums() {
    let image = |nodes: Vec<Vec<u8>>| {
        let model = Onnx {
            nodes,
            inputs: vec![value("x", 1, &[1, 2, 4, 6])],
            outputs: vec![field(1, b"y")],
            constants: vec![
                tensor("w", 3, &[3, 2, 2, 2], &(0..24).map(|i| (i * 29 % 251) as u8).collect::<Vec<u8>>()),
                floats("ws", &[3], &[0.5, 0.125, 0.25]),
                tensor("wz", 3, &[3], &[0, 0, 0]),
                tensor("b", 6, &[3], &[100i32, -250, 7].map(i32::to_le_bytes).concat()),
                floats("beside", &[3, 1, 1], &[100.0, -250.0, 7.0]),
                floats("factors", &[3, 1, 1], &[0.5, 0.125, 0.25]),
                floats("fine", &[], &[0.03125]),
                floats("coarse", &[], &[1.5]),
                tensor("mid", 2, &[], &[120]),
                tensor("low", 2, &[], &[90]),
            ],
            opset: Some(21),
            ..Onnx::default()
        };
        let imported = onnx::read(&model.bytes()).unwrap_or_else(|error| panic!("{error}"));
        let x: Vec<f32> = (0..48).map(|i| (i * 7 % 23) as f32 * 0.25 - 2.5).collect();
        as_floats(&by_name(&imported, &[("x", float(&[1, 2, 4, 6], &x))])["y"])
    };
    let strides = || ints("strides", &[2, 2]);
    let quantized = || node("QuantizeLinear", &["x", "fine", "mid"], &["x8"], &[]);
    let back = || node("DequantizeLinear", &["y8", "coarse", "low"], &["y"], &[]);
    let ports = ["x8", "fine", "mid", "w", "ws", "wz", "coarse", "low", "b"];
    let one = vec![quantized(), node("QLinearConv", &ports, &["y8"], &[strides()]), back()];
    let several = vec![
        quantized(),
        node("ConvInteger", &["x8", "w", "mid"], &["sums"], &[strides()]),
        node("Cast", &["sums"], &["f"], &[int("to", 1)]),
        node("Add", &["f", "beside"], &["g"], &[]),
        node("Mul", &["g", "fine"], &["h"], &[]),
        node("Mul", &["h", "factors"], &["r"], &[]),
        node("QuantizeLinear", &["r", "coarse", "low"], &["y8"], &[]),
        back(),
    ];
    let (found, expected) = (image(one), image(several));
    assert_eq!(found, expected);
    assert!(found.iter().any(|x| *x != found[0]), "{found:?}");
}

#[test]
fn integers_are_moved_as_what_they_were_dequantised_to() {
    for point in ["mid", "none"] {
        moved_by(point);
    }
}

/// Checks integers with a zero point that are turned twice.
fn moved_by(point: &str) {
    let q = |x: &str, scale: &str, to: &str| node("QuantizeLinear", &[x, scale, point], &[to], &[]);
    let d = |x: &str, scale: &str, to: &str| node("DequantizeLinear", &[x, scale, point], &[to], &[]);
    let turned = |x: &str, to: &str| node("Transpose", &[x], &[to], &[ints("perm", &[1, 0, 2])]);
    let kinds = |scale: &str| {
        let nodes = vec![
            q("x", "fine", "x8"),
            d("x8", "fine", "a"),
            turned("a", "m"),
            q("m", scale, "m8"),
            d("m8", scale, "n"),
            turned("n", "e"),
            q("e", scale, "e8"),
            d("e8", scale, "y"),
        ];
        let found = outputs(nodes.clone(), &["y"]).unwrap();
        let model = Onnx {
            nodes,
            inputs: vec![value("x", 1, &[2, 3, 4])],
            outputs: vec![field(1, b"y")],
            constants: vec![
                floats("fine", &[], &[0.03125]),
                floats("coarse", &[1], &[0.0625]),
                tensor("mid", 2, &[], &[120]),
                tensor("none", 3, &[], &[0]),
            ],
            opset: Some(24),
            ..Onnx::default()
        };
        let imported = onnx::read(&model.bytes()).unwrap_or_else(|error| panic!("{error}"));
        let count = |kind| imported.graph.ops().iter().filter(|op| op.kind() == kind).count();
        (found, [count(OpKind::Dequantize), count(OpKind::StaticTranspose)])
    };
    let (same, of_same) = kinds("fine");
    assert_eq!(of_same, [1, 2], "{point}");
    // Twice turned, nothing has moved.
    let plain = vec![q("x", "fine", "x8"), d("x8", "fine", "y")];
    assert_eq!(same, outputs(plain, &["y"]).unwrap());
    // By another scale the numbers are others; from there on they are moved.
    assert_eq!(kinds("coarse").1, [2, 2], "{point}");
}
