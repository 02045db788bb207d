//! Promise: a file that is damaged, too large or made to do harm is refused with an error that shows nothing
//! of its contents but names and numbers, and takes no more time or memory than its limits allow.

mod common;

use common::{Ir, report};
use sterna_import::{Error, Fault, Limited, Limits, Options, openvino};

fn under(limits: Limits) -> Options {
    Options { limits, ..Options::default() }
}

#[test]
fn limits_hold() {
    let mut ir = Ir::default();
    let x = ir.floats("4", &[1.0; 4]);
    let y = ir.op("Abs", "", &[x]);
    ir.result("out", y);
    let (text, weights) = (ir.text(), ir.weights.clone());
    assert!(openvino::read(&text, &weights).is_ok());
    let rows = [
        (Limits { text_bytes: text.len() - 1, ..Limits::default() }, Limited::TextBytes),
        (Limits { elements: 10, ..Limits::default() }, Limited::Elements),
        (Limits { depth: 4, ..Limits::default() }, Limited::Depth),
        (Limits { attributes: 3, ..Limits::default() }, Limited::Attributes),
        (Limits { layers: 2, ..Limits::default() }, Limited::Layers),
    ];
    let mut wrong = Vec::new();
    for (limits, expected) in rows {
        match openvino::read_with(&text, &weights, &under(limits)) {
            Err(Error::Limit { what, .. }) if what == expected => {}
            other => wrong.push(format!("{expected}: {other:?}")),
        }
    }
    report(&wrong);
    let few = Limits { constant_bytes: 15, ..Limits::default() };
    let Err(Error::Layer { fault, .. }) = openvino::read_with(&text, &weights, &under(few)) else { panic!() };
    assert_eq!(*fault, Fault::Limit { what: Limited::ConstantBytes, given: 16, most: 15 });
    // Values that are too large to be folded are left to the execution.
    let none = Limits { folded_bytes: 0, ..Limits::default() };
    assert_eq!(openvino::read_with(&text, &weights, &under(none)).unwrap().graph.ops().len(), 1);
}

#[test]
fn claims_are_checked_before_memory_is_taken() {
    let constant = |element: &str, shape: &str, offset: &str, size: &str| {
        format!(
            "<net version=\"11\"><layers><layer id=\"0\" name=\"c\" type=\"Const\">\
             <data element_type=\"{element}\" shape=\"{shape}\" offset=\"{offset}\" size=\"{size}\"/>\
             <output><port id=\"0\"/></output></layer>\
             <layer id=\"1\" type=\"Result\"><input><port id=\"0\"/></input></layer></layers>\
             <edges><edge from-layer=\"0\" to-layer=\"1\"/></edges></net>"
        )
    };
    let rows = [
        ("f32", "4", "0", "17"),
        ("f32", "4", "4", "16"),
        ("f32", "4", "18446744073709551615", "16"),
        ("f32", "4", "-1", "16"),
        ("f32", "4", "99999999999999999999", "16"),
        ("f32", "5", "0", "16"),
        ("f32", "4294967296,4294967296", "0", "0"),
        ("f32", "9223372036854775807", "0", "16"),
        ("f32", "?", "0", "16"),
        ("f32", "...", "0", "16"),
        ("f32", "1,1,1,1,1,1,1,1,1,1,1,1,4", "0", "16"),
        ("i4", "4", "0", "2"),
        ("string", "1", "0", "16"),
        ("float", "4", "0", "16"),
    ];
    let weights = [0; 16];
    assert!(openvino::read(&constant("f32", "4", "0", "16"), &weights).is_ok());
    let read = rows.iter().filter(|(e, s, o, n)| openvino::read(&constant(e, s, o, n), &weights).is_ok());
    let wrong: Vec<String> = read.map(|row| format!("{row:?}")).collect();
    report(&wrong);

    // A broadcast of one number to more than memory holds.
    let mut ir = Ir::default();
    let (x, to) = (ir.floats("", &[1.0]), ir.integers(&[1 << 20, 1 << 20, 1 << 20]));
    let y = ir.op("Broadcast", "", &[x, to]);
    ir.result("out", y);
    let huge = openvino::read(&ir.text(), &ir.weights);
    assert!(
        huge.is_ok_and(|imported| imported.graph.ops().len() > 1)
            || openvino::read(&ir.text(), &ir.weights).is_err()
    );
}

#[test]
fn document_types_entities_and_namespaces_are_refused() {
    let rows = [
        "<!DOCTYPE net SYSTEM \"file:///etc/hostname\"><net version=\"11\"/>",
        "<!DOCTYPE net [<!ENTITY a SYSTEM \"file:///etc/hostname\">]><net version=\"11\">&a;</net>",
        "<!DOCTYPE net [<!ENTITY a \"aa\"><!ENTITY b \"&a;&a;\">]><net version=\"11\">&b;</net>",
        "<net version=\"11\">&undefined;</net>",
        "<net version=\"11\" xmlns:x=\"y\"/>",
        "<x:net version=\"11\"/>",
    ];
    let mut wrong = Vec::new();
    for text in rows {
        match openvino::read(text, &[]) {
            Err(error @ Error::Syntax { .. }) if !error.to_string().contains("hostname") => {}
            other => wrong.push(format!("{text}: {other:?}")),
        }
    }
    report(&wrong);
}

#[test]
fn an_error_shows_nothing_of_what_is_no_model() {
    let secret = "sesame";
    let ports = "<input><port/></input><output><port/></output></layer>";
    let rows = [
        format!("root:{secret}:0:0\n"),
        format!("<{secret}/>"),
        format!("<net version=\"11\"><{secret}></net>"),
        format!("<net version=\"{secret}\"/>"),
        format!("<net version=\"11\" {secret}=\"1\" {secret}=\"2\"/>"),
        format!("<net version=\"11\">&{secret};</net>"),
        format!("<net version=\"11\"><layers><layer id=\"{secret}\"/></layers></net>"),
        format!("<layer type=\"Exp\"><input><port id=\"0\"><dim>{secret}</dim></port></input></layer>"),
        format!("<layer type=\"Elu\"><data alpha=\"{secret}\"/>{ports}"),
        format!("<layer type=\"Round\"><data mode=\"{secret}\"/>{ports}"),
        format!("<layer type=\"Exp\" version=\"{secret}\">{ports}"),
        format!("<layer type=\"Exp\"><input><port precision=\"{secret}\"/></input></layer>"),
        format!("\u{0}{secret}"),
    ];
    let mut wrong = Vec::new();
    for text in rows {
        match openvino::read(&text, &[]) {
            Err(error) if !error.to_string().contains(secret) => {}
            other => wrong.push(format!("{text}: {other:?}")),
        }
    }
    report(&wrong);
    // A name is shown, but short and without control characters.
    let error =
        openvino::read(&format!("<layer name=\"{}\" type=\"&#9;\"/>", "x".repeat(5000)), &[]).unwrap_err();
    assert!(error.to_string().len() < 300 && !error.to_string().contains('\t'), "{error}");
}

#[test]
fn edges_that_make_no_graph_are_refused() {
    let model = |layers: &str, edges: &str| {
        format!("<net version=\"11\"><layers>{layers}</layers><edges>{edges}</edges></net>")
    };
    let add = |id: u32| {
        format!(
            "<layer id=\"{id}\" name=\"a{id}\" type=\"Add\"><input><port id=\"0\"/><port id=\"1\"/></input>\
             <output><port id=\"2\"/></output></layer>"
        )
    };
    let result = "<layer id=\"9\" name=\"r\" type=\"Result\"><input><port id=\"0\"/></input></layer>";
    let edge = |from: u32, port: u32, to: u32, at: u32| {
        format!("<edge from-layer=\"{from}\" from-port=\"{port}\" to-layer=\"{to}\" to-port=\"{at}\"/>")
    };
    let two = add(0) + &add(1) + result;
    let rows = [
        ("no result", model(&add(0), "")),
        (
            "a cycle",
            model(
                &two,
                &(edge(0, 2, 1, 0)
                    + &edge(0, 2, 1, 1)
                    + &edge(1, 2, 0, 0)
                    + &edge(1, 2, 0, 1)
                    + &edge(1, 2, 9, 0)),
            ),
        ),
        ("itself", model(&(add(0) + result), &(edge(0, 2, 0, 0) + &edge(0, 2, 0, 1) + &edge(0, 2, 9, 0)))),
        ("no such layer", model(&two, &edge(5, 0, 9, 0))),
        ("no such port", model(&two, &edge(0, 7, 9, 0))),
        ("twice", model(&two, &(edge(0, 2, 9, 0) + &edge(1, 2, 9, 0)))),
        ("unconnected", model(&two, &edge(0, 2, 9, 0))),
        ("no edge to a result", model(result, "")),
        ("one id twice", model(&(add(0) + &add(0) + result), &edge(0, 2, 9, 0))),
        ("no version", "<net><layers/></net>".into()),
        ("another version", "<net version=\"9\"><layers/></net>".into()),
        ("preprocessing", "<net version=\"10\"><pre-process/><layers/></net>".into()),
        ("no text", String::new()),
        ("another root", "<model/>".into()),
        ("an edge without end", model(&two, "<edge from-layer=\"0\"/>")),
        ("dots within a model", model("<layer ... id=\"0\"/>", "")),
        (
            "a custom set",
            model(
                &(add(0).replace("type=\"Add\"", "type=\"Add\" version=\"extension\"") + result),
                &edge(0, 2, 9, 0),
            ),
        ),
    ];
    let read = rows.iter().filter(|(_, text)| openvino::read(text, &[]).is_ok());
    report(&read.map(|(what, _)| (*what).into()).collect::<Vec<String>>());
}

#[test]
fn every_cut_and_every_changed_byte_is_survived() {
    let mut ir = Ir::default();
    let (c, x) = (ir.parameter("c", "boolean", "2,?"), ir.parameter("x", "f32", "2,3"));
    let k = ir.floats("", &[0.5]);
    let y = ir.op("Select", "auto_broadcast=\"numpy\"", &[c, x, k]);
    ir.result("out", y);
    let text = ir.text();
    for end in 0..text.len() {
        let _ = openvino::read(&text[..end], &ir.weights);
    }
    for place in 0..text.len() {
        for byte in *b"0<>\"&-./" {
            let mut changed = text.clone().into_bytes();
            changed[place] = byte;
            let _ = openvino::read(std::str::from_utf8(&changed).unwrap(), &ir.weights);
        }
    }
}

/// Texts on which a careless reader takes quadratic time.
#[test]
fn long_texts_of_one_kind_take_their_length() {
    let many = 200_000;
    let rows = [
        format!("<net version=\"11\" {}/>", (0..many).map(|i| format!("a{i}=\"\" ")).collect::<String>()),
        "<a>".repeat(many),
        format!("<net version=\"11\">{}</net>", "<layers/>".repeat(many)),
        format!("<net version=\"11\">{}</net>", "<!-- -->".repeat(many)),
        format!("<net version=\"11\"><layers>{}</layers></net>", "<layer/>".repeat(many)),
        format!("<layer {} type=\"Exp\"/>", "...".repeat(many)),
        "<".repeat(many),
    ];
    for text in rows {
        assert!(openvino::read(&text, &[]).is_err());
    }
}
