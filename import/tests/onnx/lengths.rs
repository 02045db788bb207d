//! A graph for one length after another, for which nodes that are given the same are not mapped anew, against
//! that of a model that was read for this length alone.

use super::bytes::{Onnx, field, floats, int, integers, node, number, of_graph, tensor};
use super::common::report;
use super::patches::ints;
use sterna::reference::Value;
use sterna::{Engine, Session, TensorView};
use sterna_import::{Error, Imported, Limits, ModelFile, Options};

/// An input of f32 with names for its open dims.
fn open(name: &str, dims: &[&str]) -> Vec<u8> {
    let dim = |dim: &&str| match dim.parse() {
        Ok(length) => field(1, &number(1, length)),
        Err(_) => field(1, &field(2, dim.as_bytes())),
    };
    let shape: Vec<u8> = dims.iter().flat_map(dim).collect();
    let of = field(1, &[number(1, 1), field(2, &shape)].concat());
    [field(1, name.as_bytes()), field(2, &of)].concat()
}

/// Attention on a cache, with what exporters compute of lengths: positions, a mask, a shape, a branch that
/// the length chooses, and one row that is laid beside all rows.
fn decoder() -> Onnx {
    let branch = |kind: &str| {
        let nodes = match kind {
            "short" => node("Relu", &["scores"], &["chosen"], &[]),
            _ => [
                field(1, &node("Abs", &["scores"], &["sizes"], &[])),
                field(1, &node("Add", &["sizes", "scores"], &["chosen"], &[])),
            ]
            .concat(),
        };
        let nodes = if kind == "short" { field(1, &nodes) } else { nodes };
        [nodes, field(12, &field(1, b"chosen"))].concat()
    };
    Onnx {
        inputs: vec![open("x", &["1", "tokens", "4"]), open("past", &["1", "past", "4"])],
        outputs: vec![field(1, b"y"), field(1, b"all"), field(1, b"count")],
        constants: vec![
            floats("w", &[4, 4], &[0.25; 16]),
            floats("half", &[], &[0.5]),
            integers("one", &[1]),
            tensor("zero", 7, &[], &0i64.to_ne_bytes()),
            tensor("first", 7, &[], &1i64.to_ne_bytes()),
            tensor("few", 7, &[], &6i64.to_ne_bytes()),
            integers("rows", &[0, -1, 4]),
        ],
        nodes: vec![
            node("Transpose", &["w"], &["turned"], &[]),
            node("MatMul", &["x", "turned"], &["q"], &[]),
            node("Concat", &["past", "q"], &["all"], &[int("axis", 1)]),
            node("Transpose", &["all"], &["keys"], &[ints("perm", &[0, 2, 1])]),
            node("MatMul", &["q", "keys"], &["raw"], &[]),
            node("Mul", &["raw", "half"], &["scores"], &[]),
            node("Shape", &["all"], &["shape"], &[]),
            node("Gather", &["shape", "first"], &["total"], &[int("axis", 0)]),
            node("Range", &["zero", "total", "first"], &["positions"], &[]),
            node("Cast", &["positions"], &["places"], &[int("to", 1)]),
            node("Less", &["total", "few"], &["is_short"], &[]),
            node(
                "If",
                &["is_short"],
                &["chosen"],
                &[of_graph("then_branch", &branch("short")), of_graph("else_branch", &branch("long"))],
            ),
            node("Sub", &["chosen", "places"], &["biased"], &[]),
            node("Softmax", &["biased"], &["weights"], &[int("axis", -1)]),
            node("MatMul", &["weights", "all"], &["seen"], &[]),
            node("Reshape", &["seen", "rows"], &["flat"], &[]),
            node("Add", &["flat", "x"], &["sum"], &[]),
            node("Shape", &["sum"], &["of_sum"], &[]),
            node("Expand", &["half", "of_sum"], &["halves"], &[]),
            node("Mul", &["sum", "halves"], &["y"], &[]),
            node("Cast", &["total"], &["count"], &[int("to", 1)]),
        ],
        ..Onnx::default()
    }
}

/// Rows of this run, and those before.
const LENGTHS: [(i64, i64); 14] = [
    (1, 0),
    (1, 1),
    (1, 2),
    (3, 3),
    (1, 6),
    (1, 7),
    (1, 8),
    (2, 9),
    (1, 3),
    (1, 4),
    (1, 5),
    (4, 0),
    (1, 4),
    (1, 0),
];

fn at(model: &ModelFile, (tokens, past): (i64, i64)) -> Result<Imported, Error> {
    model.at(&[("x", &[1, tokens, 4]), ("past", &[1, past, 4])])
}

/// Says in what a graph differs from one that was made anew.
fn differences(again: &Imported, anew: &Imported) -> Vec<&'static str> {
    let rows = [
        ("graph", again.graph == anew.graph),
        ("inputs", again.inputs == anew.inputs),
        ("outputs", again.outputs == anew.outputs),
        ("defaults", again.defaults == anew.defaults),
        ("weights", again.weights == anew.weights),
        ("names of weights", again.weight_names == anew.weight_names),
    ];
    rows.into_iter().filter(|(_, is_same)| !is_same).map(|(what, _)| what).collect()
}

#[test]
fn a_graph_behind_others_is_that_of_a_first_reading() {
    let bytes = decoder().bytes();
    // A limit has a say at some lengths.
    let all_limits = [usize::MAX, 400, 200].map(|folded_bytes| Limits { folded_bytes, ..Limits::default() });
    let mut wrong = Vec::new();
    for limits in all_limits {
        let options = Options { limits, ..Options::default() };
        let model = ModelFile::onnx(&bytes, &options).unwrap();
        for lengths in LENGTHS {
            let anew = at(&ModelFile::onnx(&bytes, &options).unwrap(), lengths);
            let differ = match (at(&model, lengths), anew) {
                (Ok(again), Ok(anew)) => differences(&again, &anew),
                (Err(again), Err(anew)) if again == anew => Vec::new(),
                _ => vec!["outcome"],
            };
            if !differ.is_empty() {
                wrong.push(format!("{lengths:?} within {}: {differ:?}", options.limits.folded_bytes));
            }
        }
    }
    report(&wrong);
}

#[test]
fn threads_read_one_model_for_their_own_lengths() {
    let bytes = decoder().bytes();
    let model = ModelFile::onnx(&bytes, &Options::default()).unwrap();
    let anew = |lengths| at(&ModelFile::onnx(&bytes, &Options::default()).unwrap(), lengths).unwrap();
    let first: Vec<Imported> = LENGTHS.into_iter().map(anew).collect();
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let read = |thread: usize| {
            let (model, first) = (&model, &first);
            scope.spawn(move || {
                let places = (0..4 * LENGTHS.len()).map(move |turn| (turn * (thread + 1)) % LENGTHS.len());
                let differ = places.map(|place| (place, at(model, LENGTHS[place]).unwrap()));
                let differ = differ.map(|(place, again)| (place, differences(&again, &first[place])));
                let wrong = differ.filter(|(_, differ)| !differ.is_empty());
                wrong.map(|(place, differ)| format!("{:?}: {differ:?}", LENGTHS[place])).collect::<Vec<_>>()
            })
        };
        let threads: Vec<_> = (0..4).map(read).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    report(&wrong);
}

#[test]
fn a_session_gives_the_bits_of_one_of_its_own_for_each_length() {
    let bytes = decoder().bytes();
    let session = || {
        let model = ModelFile::onnx(&bytes, &Options::default()).unwrap();
        Session::new(model, &Engine::builder().threads(1).build()).unwrap()
    };
    let (kept, mut wrong) = (session(), Vec::new());
    for (tokens, past) in LENGTHS {
        let numbers = |rows: i64| (0..4 * rows).map(|i| (i % 7) as f32 / 4.0 - 0.75).collect::<Vec<f32>>();
        let (x, rows) = (numbers(tokens), numbers(past));
        let (x, rows) = (TensorView::new(&x, &[1, tokens, 4]), TensorView::new(&rows, &[1, past, 4]));
        let bits = |session: &Session| -> Vec<Vec<u32>> {
            let outputs = session.run(&[("x", &x), ("past", &rows)]).unwrap();
            let of =
                |name: &str| outputs[name].as_slice::<f32>().unwrap().iter().map(|y| y.to_bits()).collect();
            ["y", "all", "count"].map(of).into()
        };
        if bits(&kept) != bits(&session()) {
            wrong.push(format!("{tokens} rows behind {past}"));
        }
    }
    report(&wrong);
}

/// Values of inputs are part of no shapes: a model that is read with other ones is another model.
#[test]
fn values_that_options_give_stay_with_their_reading() {
    let mut onnx = decoder();
    onnx.inputs.push(open("few", &[]));
    onnx.constants.retain(|constant| *constant != tensor("few", 7, &[], &6i64.to_ne_bytes()));
    onnx.inputs.retain(|input| *input != open("few", &[]));
    onnx.inputs.push(super::bytes::value("few", 7, &[]));
    let bytes = onnx.bytes();
    let of = |few: i64| {
        let values = [("few".to_owned(), Value::from_slice(&[], &[few]).unwrap())].into();
        ModelFile::onnx(&bytes, &Options { values, ..Options::default() }).unwrap()
    };
    let mut wrong = Vec::new();
    let (low, high) = (of(2), of(100));
    for lengths in LENGTHS {
        for (model, few) in [(&low, 2), (&high, 100)] {
            let differ = differences(&at(model, lengths).unwrap(), &at(&of(few), lengths).unwrap());
            if !differ.is_empty() {
                wrong.push(format!("{lengths:?} with {few}: {differ:?}"));
            }
        }
    }
    report(&wrong);
}
