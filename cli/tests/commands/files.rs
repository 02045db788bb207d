//! Promise: tensors in files are read and written bit for bit, or refused.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::common::{
    Room, TYPES, complaint, graph, none_of, npy, op, order_of, read_npy, select, squeezed, sterna, tensor,
};
use serde_json::{Value, json};

#[test]
fn files_of_every_type_order_and_endianness_are_read_and_written_bit_for_bit() {
    let room = Room::new();
    let (rows, columns) = (3usize, 4usize);
    let mut wrong = Vec::new();
    for &(dtype, file_type, size) in TYPES {
        let graph = room.write("graph.json", select(dtype, &[3, 4]));
        let element = |n: usize, salt: u8| -> Vec<u8> {
            match dtype {
                "boolean" => vec![(n as u8 ^ salt) & 1],
                // All bits are used, those of NaNs among them.
                _ => (0..size).map(|byte| salt ^ (n * 41 + byte * 67) as u8).collect(),
            }
        };
        let cond: Vec<u8> = (0..rows * columns).map(|n| u8::from(n % 3 == 1)).collect();
        let then: Vec<Vec<u8>> = (0..rows * columns).map(|n| element(n, 0x5a)).collect();
        let other: Vec<Vec<u8>> = (0..rows * columns).map(|n| element(n, 0xff)).collect();
        let expected: Vec<u8> = (0..rows * columns)
            .flat_map(|n| if cond[n] != 0 { then[n].clone() } else { other[n].clone() })
            .collect();

        for (order, fortran) in [("<", false), (">", false), ("<", true), (">", true)] {
            let file = |elements: &[Vec<u8>]| {
                let mut bytes = Vec::new();
                for n in 0..rows * columns {
                    let at = if fortran { n % rows * columns + n / rows } else { n };
                    let mut element = elements[at].clone();
                    if (order == ">") == cfg!(target_endian = "little") {
                        element.reverse();
                    }
                    bytes.extend(element);
                }
                let order = if size == 1 { "|" } else { order };
                npy(&format!("{order}{file_type}"), fortran, "(3, 4)", &bytes)
            };
            let cond = room.write("cond.npy", npy("|b1", false, "(3, 4)", &cond));
            let then = room.write("then.npy", file(&then));
            let other = room.write("other.npy", file(&other));
            let out = room.path("out.npy");
            let ended = sterna(&[
                "run",
                &graph,
                "--check",
                "--input",
                &format!("0={cond}"),
                "--input",
                &format!("1={then}"),
                "--input",
                &format!("2={other}"),
                "--output",
                &format!("3={out}"),
            ]);
            let what = format!("{dtype} {order} fortran {fortran}");
            let note = if ["bf16", "f8_e5m2", "f8_e4m3"].contains(&dtype) {
                "note: `dst` (tensor 3) is"
            } else {
                ""
            };
            wrong.extend(complaint(&what, &ended, 0, note));
            if note.is_empty() && !ended.err.is_empty() {
                wrong.push(format!("{what}: {}", ended.err));
            }
            if ended.code != 0 {
                continue;
            }
            let (header, elements) = read_npy(&out);
            let descr = format!("'descr': '{}{file_type}'", order_of(size));
            if !header.contains(&descr) || !header.contains("'shape': (3, 4") || elements != expected {
                wrong.push(format!("{what}: {header} {elements:x?} for {expected:x?}"));
            }
        }
    }
    none_of(wrong);
}

#[test]
fn bytes_that_are_no_bools_are_written_as_bytes() {
    let room = Room::new();
    let graph = room.write("graph.json", select("boolean", &[3]));
    let then = room.write("then.npy", npy("|u1", false, "(3,)", &[0, 2, 255]));
    let out = room.path("out.npy");
    let (input, output) = (format!("1={then}"), format!("3={out}"));
    let ended = sterna(&["run", &graph, "--fill", "0=true", "--input", &input, "--output", &output]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(
        ended.err.contains("note: `dst` (tensor 3) is boolean and holds bytes other than 0 and 1"),
        "{}",
        ended.err
    );
    let (header, elements) = read_npy(&out);
    assert!(header.contains("'|u1'"), "{header}");
    assert_eq!(elements, [0, 2, 255]);
}

#[test]
fn tensors_with_strides_are_read_and_written_row_by_row() {
    let room = Room::new();
    let columns = |id: usize, dtype: &str| {
        let mut tensor = tensor(id, dtype, &[2, 3]);
        tensor["stride"] = json!([1, 2]);
        tensor
    };
    let inputs = vec![columns(0, "boolean"), columns(1, "s16"), tensor(2, "s16", &[2, 3])];
    let graph = room.write("graph.json", graph(vec![op(7, "Select", inputs, vec![columns(3, "s16")])]));
    let elements: Vec<u8> = (1i16..=6).flat_map(i16::to_le_bytes).collect();
    let then = room.write("then.npy", npy("<i2", false, "(2, 3)", &elements));
    let out = room.path("out.npy");
    let (input, output) = (format!("1={then}"), format!("3={out}"));
    let ended =
        sterna(&["run", &graph, "--check", "--fill", "0=ones", "--input", &input, "--output", &output]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(squeezed(&ended.out).contains("out 3 dst s16 {2,3} strides {1,2}"), "{}", ended.out);
    let (header, read) = read_npy(&out);
    assert!(header.contains("'fortran_order': False"), "{header}");
    assert_eq!(read, elements);
}

#[test]
fn files_that_are_not_the_tensor_are_refused() {
    let room = Room::new();
    let graph = room.write("graph.json", select("f32", &[2, 2]));
    let elements = 1f32.to_le_bytes().repeat(4);
    let good = npy("<f4", false, "(2, 2)", &elements);
    let record = String::from_utf8_lossy(&good[10..74]).replace("'<f4'", "[('a', '<f4')]");
    let record = [&good[..8], &(record.len() as u16).to_le_bytes(), record.as_bytes(), &elements].concat();
    let version = |major: u8| [&good[..6], &[major], &good[7..]].concat();
    let long = [&b"\x93NUMPY\x02\x00\xff\xff\xff\xff"[..], &[b'('; 5000]].concat();
    let nested = [&b"\x93NUMPY\x01\x00\xe8\x03"[..], &[b'('; 1000]].concat();
    let claims = "(4294967296, 4294967296, 4294967296)";
    let rows: Vec<(&str, Vec<u8>, &str)> = vec![
        ("empty", vec![], "too short for an .npy file"),
        ("text", b"1 2 3 4 5 6 7 8 9".to_vec(), "it is no .npy file"),
        ("half a header", good[..40].to_vec(), "its header makes no sense"),
        ("long header", long, "longer than that of any plain array"),
        ("nested header", nested, "its header makes no sense"),
        ("version 9", version(9), ""),
        ("record", record, "it holds records"),
        ("objects", npy("|O", false, "(2, 2)", &elements), "its elements are |O"),
        (
            "type",
            npy("<f8", false, "(2, 2)", &elements.repeat(2)),
            "its elements are <f8, but the tensor is f32; save it as f4",
        ),
        ("integers", npy("<i4", false, "(2, 2)", &elements), "its elements are <i4"),
        ("shape", npy("<f4", false, "(4,)", &elements), "its shape is [4], but that of the tensor is [2, 2]"),
        ("negative", npy("<f4", false, "(-2, -2)", &elements), "its header makes no sense"),
        ("enormous", npy("<f4", false, claims, &elements), "its shape is"),
        ("enormous columns", npy("<f4", true, claims, &elements), "its shape is"),
        ("too short", good[..good.len() - 1].to_vec(), "it ends after 15 of 16 bytes"),
        ("too long", [&good[..], &[0]].concat(), "it goes on after the 16 bytes"),
    ];
    let mut wrong = Vec::new();
    for (what, bytes, message) in rows {
        let input = format!("1={}", room.write("in.npy", bytes));
        wrong.extend(complaint(what, &sterna(&["run", &graph, "--input", &input]), 2, message));
    }
    let input = format!("1={}", room.write("in.npy", good));
    wrong.extend(complaint("good", &sterna(&["run", &graph, "--input", &input]), 0, ""));
    none_of(wrong);
}

#[test]
fn nested_headers_are_refused_at_once() {
    let header = |text: &str| {
        let length = u32::try_from(text.len()).unwrap().to_le_bytes();
        [&b"\x93NUMPY\x02\x00"[..], &length, text.as_bytes(), &1f32.to_le_bytes().repeat(4)].concat()
    };
    let rest = "'fortran_order': False, 'shape': (2, 2), }";
    let rows: Vec<(&str, String, &str)> = vec![
        ("16 braces", "{".repeat(16), "makes no sense"),
        ("16 brackets", "[".repeat(16), "it holds records"),
        ("16 parentheses", "(".repeat(16), "makes no sense"),
        ("braces as a value", format!("{{'descr': {}, {rest}", "{".repeat(30)), "are nested"),
        ("parentheses as a value", format!("{{'descr': {}, {rest}", "(".repeat(30)), "are nested"),
        ("braces behind quotes", format!("{{'''a'b''': {}", "{".repeat(30)), "makes no sense"),
        ("braces behind an escape", format!("{{'a\\'b': {}", "{".repeat(30)), "makes no sense"),
        ("braces behind a brace that closes nothing", format!("}}{}", "{".repeat(30)), "are nested"),
        ("10,000 braces", "{".repeat(10_000), "longer than that of any plain array"),
    ];
    // A call that hangs is left behind on its thread.
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let room = Room::new();
        let graph = room.write("graph.json", select("f32", &[2, 2]));
        let judged = rows.iter().map(|(what, text, message)| {
            let input = format!("1={}", room.write("in.npy", header(text)));
            complaint(what, &sterna(&["run", &graph, "--input", &input]), 2, message)
        });
        let _ = sender.send(judged.flatten().collect::<Vec<String>>());
    });
    none_of(receiver.recv_timeout(Duration::from_secs(60)).expect("headers are refused within a minute"));
}

#[test]
fn strides_that_make_elements_one_lose_no_value_silently() {
    let room = Room::new();
    let mut repeated = tensor(1, "f32", &[2, 2]);
    repeated["stride"] = json!([0, 1]);
    let text = |input: Value, output: Value| {
        let inputs = vec![tensor(0, "boolean", &[2, 2]), input.clone(), input];
        let last = op(8, "ReduceSum", vec![tensor(3, "f32", &[2, 2]), tensor(9, "s32", &[0])], vec![output]);
        graph(vec![op(7, "Select", inputs, vec![tensor(3, "f32", &[2, 2])]), last])
    };
    let graph = room.write("in.json", text(repeated.clone(), tensor(4, "f32", &[2, 2])));
    let file = |name: &str, elements: [f32; 4]| {
        format!(
            "1={}",
            room.write(name, npy("<f4", false, "(2, 2)", &elements.map(f32::to_le_bytes).concat()))
        )
    };
    let run = |elements| sterna(&["run", &graph, "--check", "--input", &file("in.npy", elements)]);
    let mut wrong: Vec<_> = complaint("alike", &run([1.0, 2.0, 1.0, 2.0]), 0, "").into_iter().collect();
    wrong.extend(complaint(
        "unlike",
        &run([1.0, 2.0, 3.0, 4.0]),
        2,
        "`then` (tensor 1) cannot hold its values",
    ));

    repeated["id"] = json!(4);
    let graph = room.write("out.json", text(tensor(1, "f32", &[2, 2]), repeated));
    let ended = sterna(&["run", &graph]);
    wrong.extend(complaint("output", &ended, 1, "ReduceSum (op 8): the strides of output tensor 4 overlap"));
    none_of(wrong);
}

/// A process that takes longer than half a minute is ended.
#[cfg(unix)]
fn ended_in_time(args: &[&str]) -> Option<crate::common::Ended> {
    use crate::common::{Ended, started};
    let mut child = started(args);
    drop(child.stdin.take());
    for _ in 0..3000 {
        if child.try_wait().unwrap().is_some() {
            let output = child.wait_with_output().unwrap();
            let text = |bytes| String::from_utf8(bytes).unwrap();
            let code = output.status.code().unwrap_or(-1);
            return Some(Ended { code, out: text(output.stdout), err: text(output.stderr) });
        }
        thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

#[cfg(unix)]
fn fifo(room: &Room, name: &str) -> String {
    let path = room.path(name);
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

#[cfg(unix)]
#[test]
fn what_is_no_plain_file_is_refused_by_name() {
    let room = Room::new();
    let graph = room.write("graph.json", select("f32", &[2, 2]));
    let model = room.write("model.xml", r#"<net version="11"><layers></layers><edges></edges></net>"#);
    let fifos =
        ["x.npy", "x.npz", "x.pb", "weights.bin", "saved.json", "a.batch"].map(|name| fifo(&room, name));
    let [npy, npz, pb, weights, saved, batch] = &fifos;
    let of_model = fifo(&room, "model.bin");
    let folder = room.path("folder.npy");
    std::fs::create_dir(&folder).unwrap();
    let input = |path: &str| format!("1={path}");
    let (of_npy, of_npz, of_pb) = (input(npy), input(npz), input(pb));
    let (of_folder, of_device) = (input(&folder), input("/dev/zero"));
    let rows: &[(&[&str], &str, &str)] = &[
        (&["run", &graph, "--input", &of_npy], npy, "it is a FIFO"),
        (&["run", &graph, "--input", &of_npz], npz, "it is a FIFO"),
        (&["run", &graph, "--input", &of_pb], pb, "it is a FIFO"),
        (&["run", &graph, "--input", npz], npz, "it is a FIFO"),
        (&["run", &graph, "--input", &of_folder], &folder, "it is a directory"),
        (&["run", &graph, "--input", &of_device], "/dev/zero", "it is a device"),
        (&["inspect", &model, "--weights", weights], weights, "it is a FIFO"),
        (&["inspect", &model], &of_model, "it is a FIFO"),
        (&["inspect", "/dev/zero"], "/dev/zero", "it is a device"),
        (&["inspect", &folder], &folder, "it is a directory"),
        (&["bench", "--load", saved], saved, "it is a FIFO"),
        (&["batch", batch], batch, "it is a FIFO"),
    ];
    let mut wrong = Vec::new();
    for (args, file, what) in rows {
        match ended_in_time(args) {
            None => wrong.push(format!("{args:?} hangs")),
            Some(ended) => {
                let names = ended.err.contains(file);
                wrong.extend((!names).then(|| format!("{args:?}: no {file:?} in {:?}", ended.err)));
                wrong.extend(complaint(&format!("{args:?}"), &ended, 2, what));
            }
        }
    }
    none_of(wrong);
}

/// A graph or a model that another program writes is read once, through a FIFO as through standard input.
#[cfg(unix)]
#[test]
fn a_graph_comes_through_a_fifo() {
    let (room, mut wrong) = (Room::new(), Vec::new());
    let onnx = b"\x08\x0a\x3a\x31\x0a\x0b\x0a\x01x\x12\x01y\"\x03ExpZ\x13\x0a\x01x\x12\x0e\
                 \x0a\x0c\x08\x01\x12\x08\x0a\x02\x08\x02\x0a\x02\x08\x03b\x0d\x0a\x01y\x12\x08\
                 \x0a\x06\x08\x01\x12\x02\x0a\x00B\x04\x0a\x00\x10\x0d";
    for (name, bytes) in [("graph", select("f32", &[2, 2]).into_bytes()), ("model", onnx.to_vec())] {
        let path = fifo(&room, name);
        let to = path.clone();
        thread::spawn(move || {
            let _ = std::fs::write(to, bytes);
        });
        match ended_in_time(&["run", &path]) {
            None => wrong.push(format!("{name} hangs")),
            Some(ended) => wrong.extend(complaint(name, &ended, 0, "")),
        }
    }
    none_of(wrong);
}
