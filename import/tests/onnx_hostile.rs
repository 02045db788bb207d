//! Promise: a file of ONNX that is damaged, too large or made to do harm is refused with an error that shows
//! nothing of its contents but names and numbers, and takes no more time or memory than its limits allow.
//! Elements of constants are read from files beneath the folder of the model, and from nowhere else.

#[path = "common/onnx.rs"]
mod bytes;
mod common;

use std::fs;
use std::path::{Path, PathBuf};

use bytes::{Onnx, external, field, floats, function, integers, node, node_of, number, tensor};
use common::report;
use sterna_import::{Error, Fault, Limited, Limits, Options, onnx};

fn under(limits: Limits) -> Options {
    Options { limits, ..Options::default() }
}

fn add_of(constant: Vec<u8>) -> Onnx {
    Onnx { constants: vec![constant], ..Onnx::of(node("Add", &["x", "c"], &["y"], &[]), &[4]) }
}

#[test]
fn limits_hold() {
    let model = add_of(floats("c", &[4], &[1.0; 4])).bytes();
    assert!(onnx::read(&model).is_ok());
    let rows = [
        (Limits { text_bytes: 4, ..Limits::default() }, Limited::TextBytes),
        (Limits { elements: 10, ..Limits::default() }, Limited::Elements),
        (Limits { depth: 2, ..Limits::default() }, Limited::Depth),
        (Limits { layers: 0, ..Limits::default() }, Limited::Layers),
        (Limits { constant_bytes: 15, ..Limits::default() }, Limited::ConstantBytes),
    ];
    let mut wrong = Vec::new();
    for (limits, expected) in rows {
        match onnx::read_under(&model, &under(limits)) {
            Err(Error::Limit { what, .. }) if what == expected => {}
            other => wrong.push(format!("{expected}: {other:?}")),
        }
    }
    report(&wrong);
}

#[test]
fn claims_are_checked_before_memory_is_taken() {
    let raw = [0; 16];
    let rows = [
        tensor("c", 1, &[5], &raw),
        tensor("c", 1, &[3], &raw),
        tensor("c", 1, &[1 << 40], &raw),
        tensor("c", 1, &[1 << 32, 1 << 32], &raw),
        tensor("c", 1, &[i64::MAX], &raw),
        tensor("c", 1, &[-4], &raw),
        tensor("c", 1, &[-1, -4], &raw),
        tensor("c", 1, &[1; 13], &raw[..4]),
        tensor("c", 8, &[4], &raw),
        tensor("c", 22, &[32], &raw),
        tensor("c", 0, &[4], &raw),
        tensor("c", 99, &[4], &raw),
        // Elements of the wrong kind, or too few of them.
        [number(1, 4), number(2, 1), field(8, b"c"), field(5, &[0; 4])].concat(),
        [number(1, 4), number(2, 1), field(8, b"c"), field(4, &[0; 12])].concat(),
        [number(1, 4), number(2, 1), field(8, b"c")].concat(),
    ];
    assert!(onnx::read(&add_of(tensor("c", 1, &[4], &raw)).bytes()).is_ok());
    let read = rows.iter().enumerate().filter(|(_, row)| onnx::read(&add_of((*row).clone()).bytes()).is_ok());
    report(&read.map(|(index, _)| format!("row {index} is read")).collect::<Vec<_>>());

    // Of one number, more than memory holds: what is too large to be computed is left to the execution.
    let huge = |kind: &str, dims: &[i64]| {
        let inputs: &[&str] = if kind == "Expand" { &["x", "c"] } else { &["c"] };
        Onnx { constants: vec![integers("c", dims)], ..Onnx::of(node(kind, inputs, &["y"], &[]), &[1]) }
            .bytes()
    };
    for kind in ["Expand", "ConstantOfShape"] {
        let _ = onnx::read(&huge(kind, &[1 << 20, 1 << 20, 1 << 10]));
        assert!(onnx::read(&huge(kind, &[1 << 40, 1 << 40])).is_err(), "{kind}");
        assert!(onnx::read(&huge(kind, &[1; 13])).is_err(), "{kind}");
        assert!(onnx::read(&huge(kind, &[-2])).is_err(), "{kind}");
    }
}

#[test]
fn steps_of_a_sequence_are_limited() {
    const HUGE: i64 = 1 << 40;
    let of = |x: &[i64], w: &[i64], r: &[i64]| {
        let constant = |name: &str, dims: &[i64]| {
            let is_empty = dims.contains(&0);
            let count = if is_empty { 0 } else { dims.iter().product::<i64>() as usize };
            floats(name, dims, &vec![0.0; count])
        };
        let constants = vec![constant("w", w), constant("r", r)];
        Onnx { constants, ..Onnx::of(node("LSTM", &["x", "w", "r"], &["y"], &[]), x) }.bytes()
    };
    let long = of(&[2048, 1, 0], &[1, 4, 0], &[1, 4, 1]);
    assert!(onnx::read(&long).is_ok());
    let refused = onnx::read_under(&long, &under(Limits { layers: 1000, ..Limits::default() }));
    let Err(Error::Layer { fault, .. }) = refused else { panic!("{refused:?}") };
    assert!(matches!(*fault, Fault::Limit { what: Limited::Layers, most: 1000, .. }), "{fault}");
    // None of these may do more than be refused.
    for (x, w, r) in [
        ([0, HUGE, HUGE], [0, HUGE, HUGE], [0, HUGE, HUGE]),
        ([0, HUGE, 0], [1, 4, 0], [1, 4, 1]),
        ([2, HUGE, 0], [1, 4, 0], [1, 4, 1]),
        ([2048, i64::MAX, 0], [1, 4, 0], [1, 4, 1]),
        ([HUGE, 0, 0], [1, 4, 0], [1, 4, 1]),
        ([2048, 0, 0], [1, 4, 0], [1, 4, 1]),
        ([2, 3, 0], [1, 0, 0], [1, 0, HUGE]),
        ([2, 3, 0], [1, 0, 0], [1, 0, i64::MAX]),
        ([2, 3, 0], [1, 0, 0], [1, 0, 0]),
    ] {
        let _ = onnx::read(&of(&x, &w, &r));
    }
}

#[test]
fn beside_a_dim_of_zero_others_are_of_any_size() {
    const HUGE: i64 = 1 << 40;
    let dims = [0, HUGE, HUGE];
    let constant = || tensor("c", 1, &dims, &[]);
    let of = |node: Vec<u8>, lists: &[(&str, &[i64])], opset: i64| {
        let lists = lists.iter().map(|(name, list)| integers(name, list));
        let constants = lists.chain([constant()]).collect();
        Onnx { constants, opset: Some(opset), ..Onnx::of(node, &dims) }
    };
    // None of these may do more than be refused.
    for data in ["x", "c"] {
        let models = [
            of(node("Flatten", &[data], &["y"], &[]), &[], 18),
            of(node("Flatten", &[data], &["y"], &[bytes::int("axis", 3)]), &[], 18),
            of(node("Softmax", &[data], &["y"], &[]), &[], 11),
            of(node("Gather", &[data, "i"], &["y"], &[bytes::int("axis", 1)]), &[("i", &[0, 7])], 18),
            of(node("Gather", &[data, "i"], &["y"], &[]), &[("i", &[])], 18),
            of(node("Expand", &[data, "i"], &["y"], &[]), &[("i", &[HUGE, 1, 1, 1])], 18),
            of(node("Split", &[data], &["y"], &[bytes::int("num_outputs", 1)]), &[], 18),
            of(node("Pad", &[data, "i"], &["y"], &[]), &[("i", &[i64::MIN; 6])], 18),
            of(node("Pad", &[data, "i"], &["y"], &[]), &[("i", &[i64::MAX; 6])], 18),
            of(node("Reshape", &[data, "i"], &["y"], &[]), &[("i", &[-1, 0])], 18),
            of(node("Size", &[data], &["y"], &[]), &[], 18),
            of(node("ReduceSum", &[data], &["y"], &[]), &[], 18),
        ];
        for model in models {
            let _ = onnx::read(&model.bytes());
        }
    }
    let attention = |dims: &[i64]| {
        let mut model = Onnx::of(node("Attention", &["x", "x", "x"], &["y"], &[]), dims);
        model.opset = Some(24);
        model.bytes()
    };
    let _ = (onnx::read(&attention(&[0, HUGE, 4, HUGE])), onnx::read(&attention(&[0, 4, HUGE, HUGE])));
}

#[test]
fn calls_end() {
    // A function that calls itself; and functions each of which calls the next one twice.
    let itself = function("F", &["a"], &["b"], &[], &[node_of("own", "F", &["a"], &["b"], &[])]);
    let called = |functions| Onnx { functions, ..Onnx::of(node_of("own", "F", &["x"], &["y"], &[]), &[4]) };
    let Err(Error::Layer { fault, .. }) = onnx::read(&called(vec![itself]).bytes()) else { panic!() };
    assert!(matches!(*fault, Fault::Limit { what: Limited::Depth, .. }), "{fault}");
    let name = |level: usize| if level == 0 { "F".into() } else { format!("F{level}") };
    let doubles = |level: usize| {
        let next = name(level + 1);
        let body = [node_of("own", &next, &["a"], &["c"], &[]), node_of("own", &next, &["c"], &["b"], &[])];
        function(&name(level), &["a"], &["b"], &[], &body)
    };
    let mut functions: Vec<Vec<u8>> = (0..30).map(doubles).collect();
    functions.push(function("F30", &["a"], &["b"], &[], &[node("Identity", &["a"], &["b"], &[])]));
    assert!(matches!(
        onnx::read(&called(functions).bytes()),
        Err(Error::Limit { what: Limited::Layers, .. })
    ));
}

#[test]
fn damage_is_refused_or_harmless() {
    let mut model = add_of(floats("c", &[4], &[1.0, 2.0, 3.0, 4.0]));
    model.nodes[0] = node_of("own", "F", &["x", "c"], &["z"], &[]);
    model.nodes.push(node("Concat", &["z", "c"], &["y"], &[bytes::int("axis", 0)]));
    let body = [node("Gather", &["a", "k"], &["g"], &[]), node("Add", &["g", "b"], &["d"], &[])];
    let k = node("Constant", &[], &["k"], &[bytes::of_tensor("value", &integers("", &[0, 2, 1, 3]))]);
    let body = [&[k][..], &body[..]].concat();
    model.functions.push(function("F", &["a", "b"], &["d"], &[], &body));
    let model = model.bytes();
    assert!(onnx::read(&model).is_ok());
    let limits = Limits { constant_bytes: 1 << 20, folded_bytes: 1 << 20, ..Limits::default() };
    let options = under(limits);
    let check = |damaged: &[u8]| {
        if let Err(error) = onnx::read_under(damaged, &options) {
            let sentence = error.to_string();
            assert!(!sentence.is_empty() && sentence.chars().all(|c| !c.is_control()), "{sentence:?}");
        }
    };
    for end in 0..model.len() {
        check(&model[..end]);
    }
    for place in 0..model.len() {
        for changed in [0, 1, 0x7f, 0x80, 0xff, model[place] ^ 1, model[place] ^ 0x40] {
            let mut damaged = model.clone();
            damaged[place] = changed;
            check(&damaged);
        }
    }
}

#[test]
fn an_error_shows_nothing_of_what_is_no_model() {
    for secret in [&b"root:x:0:0:sesame"[..], b"\x0a\x06sesame", b"\x3a\x08\x0a\x06sesame", b"<sesame/>"] {
        let error = onnx::read(secret).unwrap_err();
        assert!(!error.to_string().contains("sesame"), "{error}");
        assert!(!onnx::tensor(secret).is_err_and(|error| error.to_string().contains("sesame")));
    }
}

/// A folder of a test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("onnx_external").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("model/data")).expect("the target folder can be written");
    folder
}

#[test]
fn elements_come_from_beneath_the_folder_alone() {
    let folder = folder("places");
    let elements: Vec<u8> = [5.0f32, 6.0, 7.0, 8.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let file = [&b"sesame!!"[..], &elements].concat();
    fs::write(folder.join("model/data/c.bin"), &file).expect("it can be written");
    fs::write(folder.join("outside.bin"), &file).expect("it can be written");
    let path = folder.join("model/model.onnx");
    let absolute = folder.join("outside.bin");
    let absolute = absolute.to_str().expect("paths of the project are text");
    #[cfg(unix)]
    for (from, to) in
        [("model/link.bin", "../outside.bin"), ("model/up", ".."), ("model/within.bin", "data/c.bin")]
    {
        std::os::unix::fs::symlink(to, folder.join(from)).expect("a link can be made");
    }
    let read = |entries: &[(&str, &str)]| {
        fs::write(&path, add_of(external("c", &[4], entries)).bytes()).expect("it can be written");
        onnx::read_file(&path, &Options::default())
    };
    let at = |location| [("location", location), ("offset", "8"), ("length", "16")];
    let imported = read(&at("data/c.bin")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(imported.weights.values().next().unwrap().bytes(), elements);
    assert!(read(&[("location", "./data/c.bin"), ("offset", "8")]).is_ok(), "the length is what is left");
    if cfg!(unix) {
        assert!(read(&at("within.bin")).is_ok(), "a link that stays within");
    }
    let rows: &[&[(&str, &str)]] = &[
        &at("../outside.bin"),
        &at("data/../../outside.bin"),
        &at(absolute),
        &at("link.bin"),
        &at("up/outside.bin"),
        &at("no.bin"),
        &at("data"),
        &at(""),
        &at("/dev/zero"),
        &[("offset", "8"), ("length", "16")],
        &[("location", "data/c.bin")],
        &[("location", "data/c.bin"), ("offset", "9"), ("length", "16")],
        &[("location", "data/c.bin"), ("offset", "18446744073709551615"), ("length", "16")],
        &[("location", "data/c.bin"), ("offset", "8"), ("length", "12")],
        &[("location", "data/c.bin"), ("offset", "-8"), ("length", "16")],
        &[("location", "data/c.bin"), ("offset", "x"), ("length", "16")],
    ];
    let mut wrong = Vec::new();
    for row in rows {
        match read(row) {
            Err(error) if !error.to_string().contains("sesame") => {}
            other => wrong.push(format!("{row:?}: {other:?}")),
        }
    }
    report(&wrong);
    // Bytes have no folder.
    let Err(Error::Layer { fault, .. }) = onnx::read(&add_of(external("c", &[4], &at("data/c.bin"))).bytes())
    else {
        panic!("bytes have no folder")
    };
    assert!(matches!(*fault, Fault::External { .. }), "{fault}");
    assert!(matches!(
        onnx::read_file(Path::new("no/such.onnx"), &Options::default()),
        Err(Error::File { .. })
    ));
}

/// A FIFO, a folder, a socket or a device is refused by its name before it holds the reader up. A reader that
/// hangs is left behind on its thread.
#[cfg(unix)]
#[test]
fn what_is_no_plain_file_is_refused_before_it_is_opened() {
    use std::os::unix::net::UnixListener;
    use std::process::Command;
    use std::time::Duration;
    use std::{env, process, thread};

    // The path of a socket is short.
    let folder = env::temp_dir().join(format!("sterna-files-{}", process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("folder")).expect("the folder for temporary files can be written");
    let made = Command::new("mkfifo").arg(folder.join("pipe")).status().expect("mkfifo runs");
    assert!(made.success());
    let _socket = UnixListener::bind(folder.join("socket")).expect("a socket can be made");
    let rows = [("pipe", "FIFO"), ("folder", "directory"), ("socket", "socket")];
    let (sender, receiver) = std::sync::mpsc::channel();
    let own = folder.clone();
    thread::spawn(move || {
        let path = own.join("model.onnx");
        for (location, what) in rows {
            let model = add_of(external("c", &[4], &[("location", location)]));
            fs::write(&path, model.bytes()).expect("it can be written");
            let _ = sender.send((location, what, onnx::read_file(&path, &Options::default()).unwrap_err()));
        }
        for (path, what) in [(own.join("folder"), "directory"), ("/dev/zero".into(), "device")] {
            let location = if what == "device" { "/dev/zero" } else { "folder" };
            let _ = sender.send((location, what, onnx::read_file(&path, &Options::default()).unwrap_err()));
        }
    });
    let mut wrong = Vec::new();
    for _ in 0..5 {
        let (location, what, error) =
            receiver.recv_timeout(Duration::from_secs(30)).expect("a file is refused at once");
        let is_typed = match &error {
            Error::Layer { fault, .. } => matches!(&**fault, Fault::External { .. }),
            other => matches!(other, Error::File { .. }),
        };
        let text = error.to_string();
        if !is_typed || !text.contains(location) || !text.contains(&format!("it is a {what}")) {
            wrong.push(format!("{location}: {text}"));
        }
    }
    let _ = fs::remove_dir_all(&folder);
    report(&wrong);
}
