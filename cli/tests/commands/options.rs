//! Promise: options change types, attributes, kinds, layouts and the policy of a graph, and give inputs and
//! take outputs by name, one by one or as archives; whatever is wrong is named, with what there is.

use std::path::Path;

use crate::common::{Room, complaint, graph, none_of, npy, op, select, squeezed, sterna, tensor};
use serde_json::{Value, json};

/// Two products of {2,3} and {2,3} whose second operand is transposed, and a sum of both: tensors 0 to 3 are
/// inputs, 6 is the output.
fn products() -> String {
    let input = |id| tensor(id, "f32", &[2, 3]);
    let product = |id: usize, from: usize, to: usize| {
        let mut product =
            op(id, "MatMul", vec![input(from), input(from + 1)], vec![tensor(to, "f32", &[2, 2])]);
        product["attrs"] = json!({"transpose_b": {"type": "bool", "value": 1}});
        product
    };
    let sum = op(
        2,
        "Add",
        vec![tensor(4, "f32", &[2, 2]), tensor(5, "f32", &[2, 2])],
        vec![tensor(6, "f32", &[2, 2])],
    );
    graph(vec![product(0, 0, 4), product(1, 2, 5), sum])
}

/// Attention of three queries, 0, on four keys, 1, which are multiplied by a number, 2, and values, 3.
fn scaled_attention() -> String {
    let tokens = |id, count: i64| tensor(id, "f32", &[2, count, 8]);
    let scores = |id| tensor(id, "f32", &[2, 3, 4]);
    let scale = op(0, "Multiply", vec![tokens(1, 4), tensor(2, "f32", &[])], vec![tokens(4, 4)]);
    let mut product = op(1, "MatMul", vec![tokens(0, 3), tokens(4, 4)], vec![scores(5)]);
    product["attrs"] = json!({"transpose_b": {"type": "bool", "value": 1}});
    let mut softmax = op(2, "SoftMax", vec![scores(5)], vec![scores(6)]);
    softmax["attrs"] = json!({"axis": {"type": "s64", "value": -1}});
    let result = op(3, "MatMul", vec![scores(6), tokens(3, 4)], vec![tokens(7, 3)]);
    graph(vec![scale, product, softmax, result])
}

#[test]
fn a_rewrite_is_shown_and_can_be_left_out() {
    let room = Room::new();
    let file = room.write("attention.json", scaled_attention());
    for (args, is_shown) in [(&[][..], true), (&["--no-rewrite", "scale-to-queries"], false)] {
        let ended = sterna(&[&["inspect", &file], args].concat());
        assert_eq!(ended.code, 0, "{}", ended.err);
        assert!(ended.out.contains("4 ops fused"), "{}", ended.out);
        let said = squeezed(&ended.out);
        assert_eq!(said.contains("rewrite scale-to-queries: a product"), is_shown, "{said}");
        let ended = sterna(&[&["run", "--check", &file], args].concat());
        assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    }
}

/// An op on {4,6}, with scales of these dims if it takes any.
fn quantized(kind: &str, data: [&str; 2], scales: &[i64], attrs: Value) -> String {
    let (source, result) = (tensor(0, data[0], &[4, 6]), tensor(2, data[1], &[4, 6]));
    let inputs = if scales.is_empty() { vec![source] } else { vec![source, tensor(1, "f32", scales)] };
    let mut op = op(0, kind, inputs, vec![result]);
    op["attrs"] = attrs;
    graph(vec![op])
}

fn word(value: &str) -> Value {
    json!({"type": "string", "value": value})
}

/// Scales for groups of three elements of a row.
fn groups() -> Value {
    json!({"qtype": word("per_group"), "group_shape": {"type": "s64[]", "value": [1, 3]}})
}

/// A product with weights as they come: of few bits, in another type, and as rows of the result.
fn linear() -> String {
    let weights = |id, dtype: &str| tensor(id, dtype, &[4, 6]);
    let inputs = vec![weights(1, "s8"), tensor(2, "f32", &[4, 2])];
    let mut dequantize = op(0, "DynamicDequantize", inputs, vec![weights(3, "f32")]);
    dequantize["attrs"] = groups();
    let half = op(1, "TypeCast", vec![weights(3, "f32")], vec![weights(4, "bf16")]);
    let single = op(2, "TypeCast", vec![weights(4, "bf16")], vec![weights(5, "f32")]);
    let inputs = vec![tensor(0, "f32", &[2, 6]), weights(5, "f32")];
    let mut product = op(3, "MatMul", inputs, vec![tensor(7, "f32", &[2, 4])]);
    product["attrs"] = json!({"transpose_b": {"type": "bool", "value": 1}});
    graph(vec![dequantize, half, single, product])
}

fn norm() -> String {
    let samples = |id| tensor(id, "f32", &[2, 6]);
    let inputs = vec![samples(0), samples(1), tensor(2, "f32", &[2]), tensor(3, "f32", &[2])];
    let mut backward = op(0, "LayerNormBackward", inputs, vec![samples(4)]);
    backward["attrs"] = json!({"use_affine": {"type": "bool", "value": 0}});
    graph(vec![backward])
}

/// The graphs of [`CHANGES`], by name.
fn graphs() -> [(&'static str, String); 8] {
    let inputs = vec![tensor(0, "f32", &[2, 3]), tensor(1, "f32", &[3])];
    let sum = graph(vec![op(0, "Add", inputs, vec![tensor(2, "f32", &[2, 3])])]);
    let channels = json!({
        "qtype": word("per_channel"),
        "axis": {"type": "s64", "value": 0},
        "scales": {"type": "f32[]", "value": [0.5, 0.25, 1, 2]},
        "zps": {"type": "s64[]", "value": [0, 1, 2, 3]},
    });
    [
        ("scalars", select("f32", &[])),
        ("products", products()),
        ("select", select("f32", &[2, 3])),
        ("sum", sum),
        ("grouped", quantized("DynamicDequantize", ["s8", "f32"], &[4, 2], groups())),
        ("channels", quantized("Dequantize", ["s8", "f32"], &[], channels)),
        ("linear", linear()),
        ("norm", norm()),
    ]
}

/// A name, the graph, the options, and lines that the report must hold.
type Change = (&'static str, &'static str, &'static [&'static str], &'static [&'static str]);

const CHANGES: &[Change] = &[
    (
        "all types, of both operands",
        "sum",
        &["--type", "bf16", "--op-kind", "0=Minimum"],
        &["0 src_0 bf16", "1 src_1 bf16 {3}", "2 dst bf16"],
    ),
    (
        "an attribute that goes with another shape",
        "grouped",
        &["--attr", "0.qtype=per_tensor", "--attr", "0.group_shape=undef", "--shape", "1=1"],
        &["1 scales f32 {1}", "2 dst f32 {4,6}"],
    ),
    ("fewer scales than channels", "channels", &["--attr", "0.scales=2x0.5"], &["2 dst f32 {4,6}"]),
    (
        "other channels",
        "channels",
        &["--shape", "0=9x6", "--attr", "0.zps=1"],
        &["0 src s8 {9,6}", "2 dst f32 {9,6}"],
    ),
    (
        "channels of their own",
        "channels",
        &["--attr", "0.scales=2x4x8x16", "--attr", "0.zps=1x1x2x2"],
        &["2 dst f32 {4,6}"],
    ),
    (
        "names",
        "products",
        &[],
        &["0 src f32", "1 weights f32", "2 src_2 f32", "3 weights_2 f32", "6 dst f32"],
    ),
    ("all types", "products", &["--type", "bf16"], &["0 src bf16 {2,3}", "6 dst bf16 {2,2}"]),
    (
        "some types",
        "select",
        &["--type", "then=s8", "--type", "else=s8", "--type", "3=s8"],
        &["0 cond boolean", "1 then s8", "3 dst s8"],
    ),
    (
        "an attribute",
        "products",
        &[
            "--attr",
            "the MatMul.transpose_b=false",
            "--op-kind",
            "1=undef",
            "--shape",
            "weights=3x2",
            "--shape",
            "2=2x2",
        ],
        &["several ops"],
    ),
    (
        "an attribute by id",
        "products",
        &["--attr", "0.transpose_b=undef", "--shape", "weights=3x5", "--shape", "weights_2=5x3"],
        &["1 weights f32 {3,5}", "6 dst f32 {2,5}"],
    ),
    ("a kind", "products", &["--op-kind", "the Add=Maximum"], &["Maximum 2 \"the Add\""]),
    (
        "an op that is taken away",
        "products",
        &["--op-kind", "1=undef", "--shape", "src_2=2x2", "--op-kind", "2=Exp"],
        &["cannot be taken away"],
    ),
    ("a layout", "select", &["--shape", "then=*ba"], &["1 then f32 {2,3} strides {1,2}"]),
    ("dims and layout", "select", &["--shape", "then=4x2x3*cab"], &["1 then f32 {4,2,3} strides {2,1,8}"]),
    ("strides", "select", &["--shape", "else=2x3*8x2"], &["2 else f32 {2,3} strides {8,2}"]),
    ("the layout of a result", "select", &["--shape", "dst=*ba"], &["3 dst f32 {2,3} strides {1,2}"]),
    ("a property", "select", &["--property", "then=constant"], &["1 then f32 {2,3} constant"]),
    ("samples", "select", &["--mb", "5"], &["0 cond boolean {5,3}", "2 else f32 {5,3}", "3 dst f32 {5,3}"]),
    (
        "samples on top of shapes",
        "select",
        &["--mb", "5", "--shape", "cond=1x4", "--shape", "then=2x4*ba", "--shape", "else=2x4"],
        &["0 cond boolean {1,4}", "1 then f32 {5,4} strides {1,5}", "2 else f32 {5,4}"],
    ),
    (
        "no samples in fewer dims",
        "select",
        &["--shape", "cond=3", "--mb", "5"],
        &["0 cond boolean {3}", "1 then f32 {5,3}", "3 dst f32 {5,3}"],
    ),
    (
        "samples that are no operands of their own",
        "products",
        &["--mb", "5"],
        &["0 src f32 {5,3}", "1 weights f32 {2,3}", "2 src_2 f32 {5,3}", "6 dst f32 {5,2}"],
    ),
    (
        "samples beside weights in other types",
        "linear",
        &["--mb", "5"],
        &["0 src_2 f32 {5,6}", "1 src s8 {4,6}", "2 scales f32 {4,2}", "7 dst f32 {5,4}"],
    ),
    (
        "statistics of samples",
        "norm",
        &["--mb", "5"],
        &["0 src f32 {5,6}", "2 mean f32 {5}", "3 variance f32 {5}", "4 diff_src f32 {5,6}"],
    ),
    ("no samples", "scalars", &["--mb", "5"], &["note: --mb: no input has samples as its first dim"]),
    ("a policy", "products", &["--policy", "debug"], &["partitions 3"]),
    ("a math mode", "products", &["--fpmath", "bf16:true"], &["6 dst f32"]),
];

#[test]
fn options_change_a_graph() {
    let room = Room::new();
    let files = graphs().map(|(name, text)| (name, room.write(&format!("{name}.json"), text)));
    let file = |name: &str| files.iter().find(|(known, _)| *known == name).unwrap().1.as_str();
    let mut wrong = Vec::new();
    for (what, graph, args, lines) in CHANGES {
        for command in [&["run", "--check"][..], &["inspect"]] {
            let ended = sterna(&[command, &[file(graph)], args].concat());
            let said = squeezed(&format!("{}{}", ended.out, ended.err));
            if (ended.code != 0)
                != (lines.len() == 1 && (lines[0].contains("ops") || lines[0].contains("away")))
                || !lines.iter().all(|line| said.contains(line))
            {
                wrong.push(format!("{what}, {command:?}: {} {said}", ended.code));
            }
        }
    }
    none_of(wrong);
    let converted = sterna(&["convert", file("products"), "--type", "f16", "--op-kind", "2=Multiply"]);
    let json: Value = serde_json::from_str(&converted.out).unwrap();
    assert_eq!(
        (&json["graph"][2]["kind"], &json["graph"][2]["outputs"][0]["dtype"]),
        (&json!("Multiply"), &json!("f16"))
    );
    let timed = sterna(&[
        "bench",
        file("products"),
        "--policy",
        "debug",
        "--time",
        "0.001",
        "--threads",
        "1",
        "--list",
    ]);
    // Three partitions, and all of them as a whole.
    assert_eq!(timed.out.lines().count(), 4, "{} {}", timed.out, timed.err);
}

#[test]
fn what_options_name_is_there() {
    let room = Room::new();
    let (products, select) =
        (room.write("products.json", products()), room.write("s.json", select("f32", &[2, 3])));
    let rows: &[(&[&str], &str)] = &[
        (&[&select, "--shape", "cont=2"], "there are `cond`, `then`, `else`, `dst`; did you mean `cond`?"),
        (&[&select, "--shape", "then=2x3*abd"], "\"abd\" is no layout"),
        (&[&select, "--shape", "then=2x3*abc"], "3 letters of a layout are given for the 2 dims [2, 3]"),
        (&[&select, "--type", "then=bf61"], "did you mean `bf16`?"),
        (&[&select, "--type", "then=bf16"], "Select"),
        (&[&select, "--type", "s8"], "for all tensors the type is one of f32, bf16 and f16"),
        (
            &[&products, "--attr", "0.transposeb=true"],
            "transpose_b, accumulation_mode; did you mean `transpose_b`?",
        ),
        (
            &[&products, "--attr", "0.transpose_b=perhaps"],
            "attribute transpose_b: \"perhaps\" is no truth value",
        ),
        (&[&select, "--attr", "7.auto_broadcast=nump"], "did you mean `numpy`?"),
        (
            &[&select, "--attr", "9.auto_broadcast=none"],
            "no op has the id or the name `9`; there are Select 7",
        ),
        (&[&select, "--attr", "auto_broadcast=none"], "write it as OP.ATTRIBUTE=VALUE"),
        (&[&select, "--op-kind", "7=Selct"], "did you mean `Select`?"),
        (&[&products, "--op-kind", "0=Exp"], "the graph cannot be edited so"),
        (&[&select, "--property", "then=const"], "did you mean `constant`?"),
        (&[&select, "--fpmath", "bf17"], "there are strict, bf16, f16, any, tf32"),
        (&[&select, "--policy", "fuse"], "fusion"),
        (&[&select, "--no-rewrite", "scale"], "scale-to-queries"),
        (&[&select, "--input", "none.npz"], "cannot open none.npz"),
    ];
    let mut wrong = Vec::new();
    for (args, message) in rows {
        wrong.extend(complaint(&format!("{args:?}"), &sterna(&[&["run"], *args].concat()), 2, message));
    }
    let suite = sterna(&["bench", "--suite", "select", "--type", "bf16"]);
    wrong.extend(complaint("suite", &suite, 2, "cannot be used with"));
    none_of(wrong);
}

/// An archive of files with these names, deflated if asked.
fn archive(entries: &[(&str, &[u8])], is_deflated: bool) -> Vec<u8> {
    use std::io::Write;
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let method = if is_deflated { zip::CompressionMethod::Deflated } else { zip::CompressionMethod::Stored };
    for (name, bytes) in entries {
        let options = zip::write::SimpleFileOptions::default().compression_method(method);
        archive.start_file(*name, options).unwrap();
        archive.write_all(bytes).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

#[test]
fn archives_give_inputs_and_take_outputs_by_name() {
    let room = Room::new();
    let graph = room.write("s.json", select("f32", &[2]));
    let numbers = |a: f32, b: f32| npy("<f4", false, "(2,)", &[a.to_le_bytes(), b.to_le_bytes()].concat());
    let (cond, then, other) = (npy("|b1", false, "(2,)", &[1, 0]), numbers(1.0, 2.0), numbers(3.0, 4.0));
    let entries: &[(&str, &[u8])] =
        &[("cond.npy", &cond), ("then.npy", &then), ("else.npy", &other), ("note.txt", b"sesame")];
    let out = room.path("out.npz");
    let mut wrong = Vec::new();
    for is_deflated in [false, true] {
        let whole = room.write("in.npz", archive(entries, is_deflated));
        let one_by_one = [
            format!("cond={whole}"),
            format!("then={whole}:else"),
            format!("else={}", room.write("one.npz", archive(&entries[1..2], is_deflated))),
        ];
        let one_by_one: Vec<&str> = one_by_one.iter().flat_map(|given| ["--input", given]).collect();
        for (what, given, result) in
            [("whole", &["--input", &whole][..], [1.0f32, 4.0]), ("one by one", &one_by_one, [3.0, 2.0])]
        {
            let ended = sterna(&[&["run", &graph, "--check", "--output", &out], given].concat());
            wrong.extend(complaint(what, &ended, 0, ""));
            let written = std::fs::File::open(&out).map(zip::ZipArchive::new);
            let Ok(Ok(mut written)) = written else {
                wrong.push(format!("{what}: no archive"));
                continue;
            };
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut written.by_name("dst.npy").unwrap(), &mut bytes).unwrap();
            if !bytes.ends_with(&result.map(f32::to_ne_bytes).concat()) {
                wrong.push(format!("{what}: {bytes:?}"));
            }
        }
    }
    none_of(wrong);
}

#[test]
fn names_of_models_do_not_lead_out_of_an_archive() {
    let room = Room::new();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../import/tests/data");
    let text = std::fs::read_to_string(data.join("masked_scores.xml")).expect("the file is in the tree");
    let text = text.replace("name=\"clipped", "name=\"../clipped").replace("\"scores\"", "\"/scores\"");
    let model = room.write("masked_scores.xml", text);
    room.write(
        "masked_scores.bin",
        std::fs::read(data.join("masked_scores.bin")).expect("the file is there"),
    );
    let numbers: Vec<u8> = [0.25f32, 1.0, 9.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let scores = npy("<f4", false, "(1, 3)", &numbers);
    let out = room.path("out.npz");
    let mut wrong = Vec::new();
    // As `sterna` writes the name, and as NumPy does.
    for name in ["%2Fscores.npy", "/scores.npy"] {
        let given = room.write("in.npz", archive(&[(name, &scores)], false));
        let ended = sterna(&["run", &model, "--input", &given, "--input", "mask=[1,0,1]", "--output", &out]);
        let note = "`%2E%2E/clipped.npy` is the array of `../clipped` (tensor 7)";
        wrong.extend(complaint(name, &ended, 0, note));
        let written = std::fs::File::open(&out).map(zip::ZipArchive::new);
        let names: Option<Vec<String>> = written
            .ok()
            .and_then(Result::ok)
            .map(|written| written.file_names().filter_map(|name| Some(name.ok()?.into_owned())).collect());
        if names.as_deref() != Some(&["%2E%2E/clipped.npy".into()]) {
            wrong.push(format!("{name}: {names:?}"));
        }
    }
    none_of(wrong);
}

#[test]
fn archives_that_are_not_the_inputs_are_refused() {
    let room = Room::new();
    let graph = room.write("s.json", select("f32", &[2]));
    let then = npy("<f4", false, "(2,)", &[0; 8]);
    // Few bytes that inflate to many, and a claim of many that are not there.
    let bomb = [&then[..], &vec![0; 64 << 20]].concat();
    let mut claims = archive(&[("then.npy", &then)], false);
    let size = (then.len() as u32).to_le_bytes();
    let places: Vec<usize> = (0..claims.len() - 4).filter(|&at| claims[at..at + 4] == size).collect();
    places.into_iter().for_each(|at| claims[at..at + 4].copy_from_slice(&0x7fff_ffffu32.to_le_bytes()));
    let mut broken = archive(&[("then.npy", &then)], true);
    broken[50] ^= 0xff;
    // The way of compression stands behind the signature of each record.
    let mut packed = archive(&[("then.npy", &then)], false);
    for (signature, place) in [(b"PK\x03\x04", 8), (b"PK\x01\x02", 10)] {
        let first = packed.windows(4).position(|bytes| bytes == signature).unwrap();
        packed[first + place] = 12;
    }
    let rows: Vec<(&str, Vec<u8>, &str)> = vec![
        ("text", b"sesame".to_vec(), "it is no .npz file"),
        ("nothing", archive(&[], false), "it has no arrays"),
        ("no array", archive(&[("then", &then)], false), "it has no arrays"),
        ("other names", archive(&[("than.npy", &then), ("b.npy", &then)], false), "did you mean `than`?"),
        ("no file of numbers", archive(&[("then.npy", b"sesame")], true), "fewer than the 8 of the tensor"),
        ("bomb", archive(&[("then.npy", &bomb)], true), "it goes on after the 8 bytes of the array"),
        ("claims", claims, "cannot read"),
        ("broken", broken, "cannot read"),
        ("bzip2", packed, "it is compressed in a way that is not read (Bzip2); save it by np.savez or"),
    ];
    let mut wrong = Vec::new();
    for (what, bytes, message) in rows {
        let input = format!("then={}", room.write("in.npz", bytes));
        let ended = sterna(&["run", &graph, "--input", &input]);
        wrong.extend(complaint(what, &ended, 2, message));
        if ended.err.contains("sesame") {
            wrong.push(format!("{what}: shows the file: {}", ended.err));
        }
    }
    none_of(wrong);
}
