//! Writes what fuzzing starts from: `cargo run --example seeds` in the folder `fuzz`.
//!
//! Small graphs of every kind that runs, as text; for the other targets, bytes that spell choices out at
//! random; and the words of graph JSON.

use std::fs;
use std::path::Path;

use sterna::{
    Attr, AutoBroadcast, DataType, FpMathMode, Graph, LogicalTensor, Op, OpKind, Property, reference,
};
use sterna_fuzz::PLAIN_OPS;
use sterna_fuzz::common::Random;
use sterna_fuzz::common::graphs::RandomGraph;
use sterna_import::{onnx, openvino};

#[path = "../../import/tests/common/onnx.rs"]
mod bytes;

/// The targets that take bytes, with how many bytes a seed has: enough for a case, or some dozens of calls.
const OF_BYTES: &[(&str, usize)] =
    &[("attention", 80), ("select", 60), ("pointwise", 160), ("rust_api", 1200), ("c_abi", 1200)];
const SEEDS: u64 = 20;

/// Keys of graph JSON, and other words of it.
const WORDS: &[&str] = &[
    "version",
    "engine_kind",
    "cpu",
    "fpmath_mode",
    "fpmath_mode_apply_to_int",
    "input_ports",
    "output_ports",
    "graph",
    "id",
    "name",
    "kind",
    "attrs",
    "type",
    "value",
    "bool",
    "string",
    "s64",
    "f32",
    "s64[]",
    "f32[]",
    "inputs",
    "outputs",
    "dtype",
    "shape",
    "stride",
    "layout_type",
    "property_type",
    "undef",
    "any",
    "strided",
    "opaque",
];

fn main() -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let seeds = folder.join("generated");
    for (target, size) in OF_BYTES {
        fs::create_dir_all(seeds.join(target))?;
        for seed in 0..SEEDS {
            let mut random = Random::new(seed + 1);
            let bytes: Vec<u8> = (0..*size).map(|_| random.next() as u8).collect();
            fs::write(seeds.join(target).join(format!("{seed:02}")), bytes)?;
        }
    }
    fs::create_dir_all(seeds.join("graph_json"))?;
    for (name, graph) in graphs() {
        fs::write(seeds.join("graph_json").join(format!("{name}.json")), one_line(&graph))?;
    }
    fs::write(folder.join("graph_json.dict"), dictionary())?;
    fs::create_dir_all(seeds.join("openvino"))?;
    for kind in openvino::layer_types() {
        fs::write(seeds.join("openvino").join(format!("{kind}.xml")), layer(kind))?;
    }
    for model in ["masked_scores", "select_modes"] {
        let file = folder.join("../import/tests/data").join(model);
        let mut bytes: Vec<u8> = one_line_of(&fs::read_to_string(file.with_extension("xml"))?).into();
        bytes.push(0);
        bytes.extend(fs::read(file.with_extension("bin")).unwrap_or_default());
        fs::write(seeds.join("openvino").join(model), bytes)?;
    }
    fs::create_dir_all(seeds.join("onnx"))?;
    for kind in onnx::op_types() {
        fs::write(seeds.join("onnx").join(kind), onnx_model(kind))?;
    }
    Ok(())
}

/// A model of one node, with as many inputs as it has: numbers or truth values, and lists as constants.
fn onnx_model(kind: &str) -> Vec<u8> {
    use bytes::{Onnx, field, int, integers, node, value};
    let model = |count: usize, data_type: i64, list: &[i64], attributes: &[Vec<u8>]| {
        let names = ["x", "a", "b", "c"];
        let inputs = &names[..count];
        let dims: &[i64] = if kind == "Attention" { &[1, 2, 2, 3] } else { &[2, 3] };
        // An operand that is no list is an input.
        let is_list = |place: usize| !list.is_empty() && place > 0;
        let places = || inputs.iter().enumerate();
        Onnx {
            nodes: vec![node(kind, inputs, &["y"], attributes)],
            inputs: places()
                .filter(|(place, _)| !is_list(*place))
                .map(|(_, name)| value(name, data_type, dims))
                .collect(),
            constants: places()
                .filter(|(place, _)| is_list(*place))
                .map(|(_, name)| integers(name, list))
                .collect(),
            outputs: vec![field(1, b"y")],
            opset: Some(24),
            ..Onnx::default()
        }
        .bytes()
    };
    let attributes = [vec![], vec![int("axis", 1)], vec![int("to", 6)]];
    let lists: [&[i64]; 5] = [&[], &[0], &[0, 1], &[2, 3], &[1, 1, 1, 1]];
    let tried = attributes.iter().flat_map(|attributes| {
        lists.iter().flat_map(move |list| {
            (0..=4).flat_map(move |count| [1, 9].map(|of| model(count, of, list, attributes)))
        })
    });
    let read = |bytes: &Vec<u8>| onnx::read(bytes).is_ok();
    // A node that needs more is worth a look all the same.
    tried.into_iter().find(read).unwrap_or_else(|| model(2, 1, &[], &[]))
}

/// A lone layer of a type, with as many inputs as it has.
fn layer(kind: &str) -> String {
    let port = |id: usize| format!("<port id=\"{id}\" precision=\"FP32\"><dim>2</dim><dim>3</dim></port>");
    let text = |count: usize, data: &str| {
        let inputs: String = (0..count).map(port).collect();
        format!(
            "<layer type=\"{kind}\">{data}<input>{inputs}</input><output><port id=\"9\"><dim>2</dim>\
             <dim>3</dim></port></output></layer>\n"
        )
    };
    let data =
        ["", "<data alpha=\"0.5\"/>", "<data min=\"-1\" max=\"1\"/>", "<data destination_type=\"i32\"/>"];
    let tried = (1..=3).flat_map(|count| data.map(|data| text(count, data)));
    let read = |text: &String| openvino::read(text, &[]).is_ok();
    // A layer that needs constants is worth a look all the same.
    tried.into_iter().find(read).unwrap_or_else(|| text(2, ""))
}

/// A text without the white space of its lines.
fn one_line_of(text: &str) -> String {
    text.lines().map(str::trim).collect()
}

/// Graphs by name: an op of each kind that runs, selects of each mode, and random ones.
fn graphs() -> Vec<(String, Graph)> {
    let single = |&kind: &OpKind| {
        let op = on_dims(&PLAIN_OPS[&kind], &[2, 3]);
        reference::supports(&op).is_ok().then(|| (kind.name().to_owned(), graph_of([op])))
    };
    let select = |&mode: &AutoBroadcast| {
        let op = on_dims(&PLAIN_OPS[&OpKind::Select], &[2, 3]).auto_broadcast(mode);
        (format!("Select_{mode}"), graph_of([op]))
    };
    let random = |seed| {
        let graph = RandomGraph::on(&mut Random::new(seed), 5, vec![2, 3]);
        (format!("random_{seed:02}"), graph.graph)
    };
    let kinds = OpKind::ALL.iter().filter_map(single);
    kinds.chain(AutoBroadcast::ALL.iter().map(select)).chain((0..12).map(random)).collect()
}

/// The op on tensors of one shape.
fn on_dims(plain: &Op, dims: &[i64]) -> Op {
    let dense = |port: &LogicalTensor| {
        LogicalTensor::strided(port.id(), port.data_type(), dims).expect("the shape is small")
    };
    let op = Op::new(plain.id(), plain.kind()).inputs_from(plain.inputs().iter().map(dense));
    let op = plain.outputs().iter().map(dense).fold(op, Op::output);
    let op = plain.attrs().fold(op, |op, (attr, value)| op.attr(attr, value.clone()));
    // A required attribute has a value that fits no shape.
    let of_shape = |attr: Attr| [Attr::Shape, Attr::Order].contains(&attr) && op.get_attr(attr).is_some();
    let (shape, order) = (of_shape(Attr::Shape), of_shape(Attr::Order));
    let op = if shape { op.attr(Attr::Shape, dims) } else { op };
    if order { op.attr(Attr::Order, vec![0i64, 1]) } else { op }
}

fn graph_of(ops: impl IntoIterator<Item = Op>) -> Graph {
    let mut graph = Graph::new();
    ops.into_iter().for_each(|op| graph.add_op(op).expect("the op fits its row"));
    graph
}

/// A graph as text without white space: mutations of it hit something.
fn one_line(graph: &Graph) -> String {
    graph.to_json().lines().map(str::trim).collect::<String>() + "\n"
}

fn dictionary() -> String {
    let names = (OpKind::ALL.iter().map(|one| one.name()))
        .chain(Attr::ALL.iter().map(|one| one.name()))
        .chain(DataType::ALL.iter().map(|one| one.name()))
        .chain(AutoBroadcast::ALL.iter().map(|one| one.name()))
        .chain(Property::ALL.iter().map(|one| one.name()))
        .chain(FpMathMode::ALL.iter().map(|one| one.name()));
    let mut words: Vec<String> =
        WORDS.iter().copied().chain(names).map(|word| format!("\"\\\"{word}\\\"\"\n")).collect();
    let numbers = ["-9223372036854775808", "9223372036854775807", "18446744073709551615", "1e39", "-0.0"];
    words.extend(numbers.iter().map(|number| format!("\"{number}\"\n")));
    words.sort();
    words.dedup();
    words.concat()
}
