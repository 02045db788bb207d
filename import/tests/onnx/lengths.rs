//! A graph for one length after another, for which nodes that are given the same are not mapped anew, against
//! that of a model that was read for this length alone.

use super::bytes::{Onnx, field, floats, int, integers, node, number, of_graph, tensor};
use super::common::report;
use super::patches::ints;
use sterna::reference::Value;
use sterna::{Engine, Session, TensorBuf, TensorView};
use sterna_import::{Error, Imported, Limits, ModelFile, Options};

/// An input of f32 with names for its open dims.
pub(super) fn open(name: &str, dims: &[&str]) -> Vec<u8> {
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
    decoder_of(true)
}

/// The same, if wanted without the branch: then each node is mapped on its own.
fn decoder_of(has_branch: bool) -> Onnx {
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
    let choice = match has_branch {
        true => node(
            "If",
            &["is_short"],
            &["chosen"],
            &[of_graph("then_branch", &branch("short")), of_graph("else_branch", &branch("long"))],
        ),
        false => node("Relu", &["scores"], &["chosen"], &[]),
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
            choice,
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

/// Two layers of attention in groups, as exporters write it: keys and values that are repeated for heads of
/// queries, a mask of positions, a GELU that is written out, an output that is an input, and batches.
fn grouped_decoder() -> Onnx {
    let dims = |name: &str, dims: &[i64]| integers(name, dims);
    let mut nodes = vec![
        node("Shape", &["past"], &["shape"], &[]),
        node("Gather", &["shape", "two"], &["rows"], &[int("axis", 0)]),
        node("Shape", &["x"], &["of_x"], &[]),
        node("Gather", &["of_x", "first"], &["tokens"], &[int("axis", 0)]),
        node("Add", &["rows", "tokens"], &["total"], &[]),
        node("Range", &["zero", "total", "first"], &["places"], &[]),
        node("Range", &["rows", "total", "first"], &["own"], &[]),
        node("Unsqueeze", &["own", "one"], &["column"], &[]),
        node("LessOrEqual", &["places", "column"], &["is_seen"], &[]),
        node("Where", &["is_seen", "nothing", "hidden"], &["mask"], &[]),
        node("Identity", &["past"], &["as_given"], &[]),
    ];
    let mut from = "x".to_owned();
    for layer in 0..2 {
        let at = |name: &str| format!("{name}{layer}");
        let of = |kind: &str, inputs: &[&str], output: &str, attrs: &[Vec<u8>]| {
            node(kind, inputs, &[&at(output)], attrs)
        };
        let grown = format!("all_{layer}");
        nodes.extend([
            of("MatMul", &[&from, "w"], "q", &[]),
            of("Reshape", &[&at("q"), "heads"], "q4", &[]),
            of("Transpose", &[&at("q4")], "queries", &[ints("perm", &[0, 2, 1, 3])]),
            of("MatMul", &[&from, "v"], "k", &[]),
            of("Reshape", &[&at("k"), "groups"], "k4", &[]),
            of("Transpose", &[&at("k4")], "new", &[ints("perm", &[0, 2, 1, 3])]),
            node("Concat", &["past", &at("new")], &[&grown], &[int("axis", 2)]),
            of("Unsqueeze", &[&grown, "two_list"], "apart", &[]),
            of("Shape", &[&at("apart")], "of_apart", &[]),
            of("Mul", &[&at("of_apart"), "repeats"], "repeated_dims", &[]),
            of("Expand", &[&at("apart"), &at("repeated_dims")], "repeated", &[]),
            of("Reshape", &[&at("repeated"), "merged"], "keys", &[]),
            of("Transpose", &[&at("keys")], "turned", &[ints("perm", &[0, 1, 3, 2])]),
            of("MatMul", &[&at("queries"), &at("turned")], "raw", &[]),
            of("Mul", &[&at("raw"), "half"], "scaled", &[]),
            of("Add", &[&at("scaled"), "mask"], "scores", &[]),
            of("Softmax", &[&at("scores")], "weights", &[int("axis", -1)]),
            of("MatMul", &[&at("weights"), &at("keys")], "seen", &[]),
            of("Transpose", &[&at("seen")], "back", &[ints("perm", &[0, 2, 1, 3])]),
            of("Reshape", &[&at("back"), "flat"], "joined", &[]),
            of("Div", &[&at("joined"), "root"], "shrunk", &[]),
            of("Erf", &[&at("shrunk")], "erf", &[]),
            of("Add", &[&at("erf"), "unit"], "above", &[]),
            of("Mul", &[&at("joined"), &at("above")], "product", &[]),
            of("Mul", &[&at("product"), "half"], "gelu", &[]),
            of("Add", &[&at("gelu"), &from], "h", &[]),
        ]);
        from = at("h");
    }
    Onnx {
        inputs: vec![open("x", &["batch", "tokens", "8"]), open("past", &["batch", "2", "past", "2"])],
        outputs: [from.as_str(), "all_0", "all_1", "as_given"].map(|name| field(1, name.as_bytes())).into(),
        constants: vec![
            floats("w", &[8, 8], &[0.25; 64]),
            floats("v", &[8, 4], &[0.5; 32]),
            floats("half", &[], &[0.5]),
            floats("unit", &[], &[1.0]),
            floats("root", &[], &[std::f32::consts::SQRT_2]),
            floats("nothing", &[], &[0.0]),
            floats("hidden", &[], &[f32::MIN]),
            dims("one", &[1]),
            dims("two_list", &[2]),
            dims("heads", &[0, 0, 4, 2]),
            dims("groups", &[0, 0, 2, 2]),
            dims("repeats", &[1, 1, 2, 1, 1]),
            dims("merged", &[0, 4, -1, 2]),
            dims("flat", &[0, 0, 8]),
            tensor("zero", 7, &[], &0i64.to_ne_bytes()),
            tensor("first", 7, &[], &1i64.to_ne_bytes()),
            tensor("two", 7, &[], &2i64.to_ne_bytes()),
        ],
        nodes,
        ..Onnx::default()
    }
}

/// Rows of this run, and those before. Some are as long as other dims of the models, or were before.
const LENGTHS: [(i64, i64); 24] = [
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
    (1, 62),
    (1, 63),
    (1, 64),
    (1, 65),
    (1, 66),
    (1, 16),
    (1, 17),
    (2, 17),
    (2, 18),
    (2, 19),
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
    // A limit has a say at some lengths.
    let all_limits = [usize::MAX, 400, 200].map(|folded_bytes| Limits { folded_bytes, ..Limits::default() });
    let mut wrong = Vec::new();
    for (bytes, limits) in [true, false].into_iter().flat_map(|has_branch| {
        let bytes = decoder_of(has_branch).bytes();
        all_limits.clone().map(|limits| (bytes.clone(), limits))
    }) {
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

/// The batches, rows of a run and rows before that a grouped decoder is given one after the other.
fn grouped_lengths() -> impl Iterator<Item = (i64, i64, i64)> {
    let batches = LENGTHS.iter().filter(|lengths| lengths.1 < 20).map(|(tokens, past)| (2, *tokens, *past));
    let alone = LENGTHS.iter().map(|(tokens, past)| (1, *tokens, *past));
    let back = LENGTHS.iter().rev().map(|(tokens, past)| (1 + past % 3, *tokens, *past));
    alone.chain(batches).chain(back)
}

#[test]
fn a_graph_of_groups_behind_others_is_that_of_a_first_reading() {
    let bytes = grouped_decoder().bytes();
    let read = || ModelFile::onnx(&bytes, &Options::default()).unwrap();
    let (model, mut wrong) = (read(), Vec::new());
    for (batch, tokens, past) in grouped_lengths() {
        let at = |model: &ModelFile| {
            model.at(&[("x", &[batch, tokens, 8]), ("past", &[batch, 2, past, 2])]).unwrap()
        };
        let differ = differences(&at(&model), &at(&read()));
        if !differ.is_empty() {
            wrong.push(format!("{batch} of {tokens} behind {past}: {differ:?}"));
        }
    }
    report(&wrong);
}

fn session(bytes: &[u8]) -> Session {
    let model = ModelFile::onnx(bytes, &Options::default()).unwrap();
    Session::new(model, &Engine::builder().threads(1).build()).unwrap()
}

/// The bits of all outputs.
fn bits(session: &Session, x: &TensorView<'_, f32>, past: &TensorView<'_, f32>) -> Vec<Vec<u32>> {
    let outputs = session.run(&[("x", x), ("past", past)]).unwrap();
    let of = |(_, tensor): (&str, &TensorBuf)| {
        tensor.as_slice::<f32>().unwrap().iter().map(|y| y.to_bits()).collect()
    };
    outputs.iter().map(of).collect()
}

#[test]
fn a_session_of_groups_gives_the_bits_of_one_of_its_own_for_each_length() {
    let bytes = grouped_decoder().bytes();
    let (kept, mut wrong) = (session(&bytes), Vec::new());
    for (batch, tokens, past) in grouped_lengths() {
        let numbers = |count: i64| (0..count).map(|i| (i % 7) as f32 / 4.0 - 0.75).collect::<Vec<f32>>();
        let (x, rows) = (numbers(batch * tokens * 8), numbers(batch * 4 * past));
        let (x, rows) =
            (TensorView::new(&x, &[batch, tokens, 8]), TensorView::new(&rows, &[batch, 2, past, 2]));
        if bits(&kept, &x, &rows) != bits(&session(&bytes), &x, &rows) {
            wrong.push(format!("{batch} of {tokens} behind {past}"));
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
    let (kept, mut wrong) = (session(&bytes), Vec::new());
    for (tokens, past) in LENGTHS {
        let numbers = |rows: i64| (0..4 * rows).map(|i| (i % 7) as f32 / 4.0 - 0.75).collect::<Vec<f32>>();
        let (x, rows) = (numbers(tokens), numbers(past));
        let (x, rows) = (TensorView::new(&x, &[1, tokens, 4]), TensorView::new(&rows, &[1, past, 4]));
        if bits(&kept, &x, &rows) != bits(&session(&bytes), &x, &rows) {
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

/// Exporters list a tensor twice that a model returns twice.
#[test]
fn an_output_that_is_named_twice_is_one() {
    let model = Onnx {
        nodes: vec![node("Abs", &["x"], &["y"], &[]), node("Neg", &["y"], &["z"], &[])],
        inputs: vec![open("x", &["batch"])],
        outputs: ["y", "z", "y"].map(|name| field(1, name.as_bytes())).into(),
        ..Onnx::default()
    };
    let session = session(&model.bytes());
    let outputs = session.run(&[("x", &[-2.0f32, 3.0])]).unwrap();
    let numbers: Vec<_> =
        outputs.iter().map(|(name, tensor)| (name, tensor.as_slice::<f32>().unwrap())).collect();
    assert_eq!(numbers, [("y", &[2.0f32, 3.0][..]), ("z", &[-2.0, -3.0])]);
}
