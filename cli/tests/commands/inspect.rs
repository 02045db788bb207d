//! Promise: `sterna inspect` shows every graph in every form, whatever its names hold, and says what it
//! cannot show.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{
    CAUSAL_TILES, MASK_TILES, Room, attention, complaint, graph, graphs, mask_npy, none_of, op, select,
    squeezed, sterna, sterna_reading, tensor,
};
use serde_json::json;

/// Names that would do harm in a page, a picture, a graph of Graphviz or a terminal.
const HOSTILE: &[&str] = &[
    "</title></style><script>document.title='gone'</script>",
    "\"><img src=x onerror=alert(1)>",
    "' onclick='alert(1)",
    "&lt;not &amp; escaped &#x3c;",
    "]]><x>",
    "\u{1b}[31mred\u{7}\u{0}",
    "\u{202e}backwards\u{2028}",
    "a\\\" -> b [label=\"x",
    "\u{fffe}\u{ffff}",
    "\n]}; digraph",
];

fn hostile_graph() -> String {
    let chain = HOSTILE.iter().enumerate().map(|(index, name)| {
        let kind = if index % 3 == 1 { "SoftMax" } else { "ReLU" };
        let mut op = op(index, kind, vec![tensor(index, "f32", &[4])], vec![tensor(index + 1, "f32", &[4])]);
        op["name"] = json!(name);
        if kind == "SoftMax" {
            op["attrs"] = json!({"axis": {"type": "s64", "value": 0}});
        }
        op
    });
    graph(chain.collect())
}

/// Left, top, right and bottom of each box in a picture.
fn boxes(document: &roxmltree::Document<'_>) -> Vec<[f64; 4]> {
    let corners = |node: roxmltree::Node<'_, '_>| {
        let [x, y, width, height] =
            ["x", "y", "width", "height"].map(|name| node.attribute(name).unwrap().parse::<f64>().unwrap());
        [x, y, x + width, y + height]
    };
    let is_box = |node: &roxmltree::Node<'_, '_>| {
        let classes = node.attribute("class").unwrap_or_default();
        node.tag_name().name() == "rect"
            && classes.split(' ').any(|class| ["op", "alone", "tensor"].contains(&class))
    };
    document.descendants().filter(is_box).map(corners).collect()
}

/// Two boxes that overlap.
fn overlap(mut boxes: Vec<[f64; 4]>) -> Option<[[f64; 4]; 2]> {
    boxes.sort_by(|a, b| a[1].total_cmp(&b[1]));
    boxes.iter().enumerate().find_map(|(index, first)| {
        let beside = boxes[index + 1..].iter().take_while(|other| other[1] < first[3]);
        let mut beside = beside.filter(|other| other[0] < first[2] && first[0] < other[2]);
        beside.next().map(|other| [*first, *other])
    })
}

/// The faults of a picture of so many ops.
fn faults_of_picture(text: &str, ops: usize, unsupported: usize) -> Vec<String> {
    let document = match roxmltree::Document::parse(text) {
        Ok(document) => document,
        Err(error) => return vec![format!("no XML: {error}")],
    };
    let classes = |class: &str| {
        let has = |node: &roxmltree::Node<'_, '_>| {
            node.attribute("class").is_some_and(|all| all.split(' ').any(|one| one == class))
        };
        document.descendants().filter(has).count()
    };
    let mut faults = Vec::new();
    let mut must = |holds: bool, what: String| {
        if !holds {
            faults.push(what);
        }
    };
    must(
        classes("op") + classes("alone") == ops,
        format!("{} boxes for {ops} ops", classes("op") + classes("alone")),
    );
    must(
        classes("hatched") == unsupported,
        format!("{} boxes are hatched, not {unsupported}", classes("hatched")),
    );
    must(classes("way") == classes("label"), "each edge has a label".into());
    let boxes = boxes(&document);
    must(boxes.iter().any(|[x, y, ..]| *x < 800.0 && *y < 500.0), "the first view holds no box".into());
    let overlap = overlap(boxes);
    must(overlap.is_none(), format!("boxes overlap: {overlap:?}"));
    let known = ["svg", "title", "style", "defs", "pattern", "rect", "line", "marker", "path", "g", "text"];
    for node in document.descendants().filter(|node| node.is_element()) {
        must(known.contains(&node.tag_name().name()), format!("an element {}", node.tag_name().name()));
        must(node.attributes().all(|attr| !attr.name().starts_with("on")), "an attribute acts".into());
    }
    faults
}

#[test]
fn every_example_is_shown_in_every_form() {
    let room = Room::new();
    let mut wrong = Vec::new();
    let hostile = room.write("hostile.json", hostile_graph());
    let examples =
        fs::read_dir(graphs()).unwrap().map(|entry| entry.unwrap().path().to_str().unwrap().to_owned());
    for path in examples.chain([hostile]) {
        let shown = |format: &str| sterna(&["inspect", &path, "--format", format]);
        let [text, dot, svg, html] = ["text", "dot", "svg", "html"].map(shown);
        for ended in [&text, &dot, &svg, &html] {
            wrong.extend(complaint(&path, ended, 0, ""));
            if !ended.err.is_empty() || ended.out.chars().any(|c| c.is_control() && c != '\n') {
                wrong.push(format!("{path}: {:?}, or control characters", ended.err));
            }
        }
        let ops = text.out.lines().filter(|line| line.starts_with("  op ")).count();
        let unsupported =
            text.out.lines().filter(|line| line.starts_with("partition") && line.contains("not s")).count();
        let plans = text.out.lines().filter(|line| line.starts_with("  memory ")).count();
        let partitions = text.out.lines().filter(|line| line.starts_with("partition ")).count();
        if ops == 0 || plans + unsupported != partitions {
            wrong.push(format!("{path}: {ops} ops, {plans} plans, {partitions} partitions: {}", text.out));
        }
        wrong.extend(
            faults_of_picture(&svg.out, ops, unsupported).iter().map(|fault| format!("{path}: {fault}")),
        );
        if dot.out.matches("subgraph cluster_").count() != partitions || dot.out.lines().any(has_odd_quotes) {
            wrong.push(format!("{path}: {}", dot.out));
        }
        let sections = html.out.matches("<section class=\"partition\"").count();
        let loads =
            ["<script ", "<img", "src=", "url(http", "@import", "<link", "import(", "fetch("].into_iter();
        let loads: Vec<&str> = loads.filter(|word| html.out.contains(word)).collect();
        // Escaped, a name may look like a source.
        if sections != partitions || !(loads.is_empty() || loads == ["src="] && path.contains("hostile")) {
            wrong.push(format!("{path}: {sections} sections for {partitions} partitions, loads {loads:?}"));
        }
        if html.out.matches("<script").count() != 1 || !html.out.contains("; script-src 'sha256-") {
            wrong.push(format!("{path}: other scripts than the one of the page"));
        }
    }
    none_of(wrong);
}

/// True if a line holds an odd number of quotes that no backslash escapes.
fn has_odd_quotes(line: &str) -> bool {
    let (mut quotes, mut escaped) = (0, false);
    for c in line.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => quotes += 1,
            _ => {}
        }
    }
    quotes % 2 == 1
}

#[test]
fn text_tells_the_plan() {
    let ended =
        sterna(&["inspect", graphs().join("gpt_additive_mask.json").to_str().unwrap(), "--threads", "1"]);
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
    for line in [
        "gpt_additive_mask.json: ops 6, partitions 1 (0 not supported), kernels ",
        ", threads 1\n",
        "partition 0: 6 ops fused\n",
        "  op       Divide 1 \"scale\"\n",
        "  op       MatMul 0 \"scores\" transpose_b=true\n",
        "  op       Select 2 \"mask_to_bias\" auto_broadcast=multidirectional\n",
        "  op       SoftMax 4 \"weights\" axis=-1\n",
        "  in       10 src       f32     {1,4,64,32} variable\n",
        "  in       15 cond      boolean {1,1,64,64} variable\n",
        "  out      22 dst       f32     {1,4,64,32} variable\n",
        "  memory   102412 bytes in, 32768 bytes out\n",
        "  flops    2113536\n",
        "  phase    attention: 2113536 FLOPs, ",
        "  loops    4 × ",
        " of 64 rows × 64 columns\n",
        "scores, products of depth 32 over a number of tensor 10, tensor 11, tensor 13",
        " to tensor 22",
    ] {
        assert!(ended.out.contains(line), "{line:?} in {}", ended.out);
    }
}

#[test]
fn a_rejected_neighbour_and_one_that_no_fusion_takes_are_told_apart() {
    // The first sum feeds the second both directly and through ReduceSum, which nothing runs if its axes are
    // a tensor; the index needs the shape of ReduceSum alone.
    let axes = tensor(9, "s32", &[0]);
    let reduce = op(1, "ReduceSum", vec![tensor(2, "f32", &[4]), axes], vec![tensor(3, "f32", &[4])]);
    let mut index = op(3, "GenIndex", vec![tensor(3, "f32", &[4])], vec![tensor(5, "s32", &[4])]);
    index["attrs"] = json!({"axis": {"type": "s64", "value": 0}});
    let add = |id, x, y, to| {
        op(id, "Add", vec![tensor(x, "f32", &[4]), tensor(y, "f32", &[4])], vec![tensor(to, "f32", &[4])])
    };
    let text = graph(vec![add(0, 0, 1, 2), reduce, add(2, 2, 3, 4), index]);
    let ended = sterna_reading(&text, &["inspect", "-"]);
    for line in [
        "standard input: ops 4, partitions 4",
        "the fusion `pointwise` refused Add (op 2): a path would leave the group and come back into it",
        "partition 1: 1 op, not supported\n",
        "  no plan  no kernel runs ReduceSum\n",
        "ReduceSum (op 1) → GenIndex (op 3), partition 3: the fusion `pointwise` takes no ReduceSum (op \
         1)",
    ] {
        assert!(ended.out.contains(line), "{line:?} in {}", ended.out);
    }
}

#[test]
fn nothing_is_shown_as_nothing() {
    let judged = ["text", "dot", "svg", "html"].map(|format| {
        let ended = sterna_reading(&graph(vec![]), &["inspect", "-", "--format", format]);
        complaint(format, &ended, 0, "")
            .or_else(|| ended.out.is_empty().then(|| format!("{format}: prints nothing")))
    });
    none_of(judged.into_iter().flatten().collect());
}

#[test]
fn the_form_follows_the_name_of_the_file_unless_said() {
    let room = Room::new();
    let graph = room.write("graph.json", select("f32", &[8, 3]));
    let rows: &[(&str, &[&str], &str)] = &[
        ("a.svg", &[], "<?xml"),
        ("a.html", &[], "<!DOCTYPE html>"),
        ("a.dot", &[], "digraph"),
        ("a.txt", &[], "ops 1"),
        ("a", &[], "ops 1"),
        ("b.svg", &["--format", "dot"], "digraph"),
    ];
    let mut wrong = Vec::new();
    for (name, more, start) in rows {
        let out = room.path(name);
        let ended = sterna(&[&["inspect", &graph, "-o", &out], *more].concat());
        let text = fs::read_to_string(&out).unwrap_or_default();
        let starts = text.lines().next().is_some_and(|line| line.contains(start));
        if ended.code != 0 || !ended.out.is_empty() || !starts {
            wrong.push(format!("{name} {more:?}: {} {:?} {text}", ended.code, ended.err));
        }
    }
    let nowhere = room.path("no/such/folder.svg");
    wrong.extend(complaint("nowhere", &sterna(&["inspect", &graph, "-o", &nowhere]), 2, "cannot write"));
    none_of(wrong);
}

#[test]
fn what_has_no_plan_is_shown_with_the_reason() {
    let mut open = tensor(1, "f32", &[2, 2]);
    open["shape"] = json!([i64::MIN]);
    let select = |then: serde_json::Value| {
        let inputs = vec![tensor(0, "boolean", &[2]), then, tensor(2, "f32", &[2])];
        graph(vec![op(7, "Select", inputs, vec![tensor(3, "f32", &[2, 2])])])
    };
    let needs_shape =
        "partition 0: the shape of input `then` (tensor 1) is not known; give it with --shape then=...";
    let open = select(open);
    let unfit = select(tensor(1, "f32", &[2, 3]));
    let given = ["inspect", "-", "--override-shape", "1=2x2"];
    /// Graph, arguments, exit code, what is said on standard error, what is shown.
    type Row<'a> = (&'a str, &'a str, &'a [&'a str], i32, &'a str, &'a str);
    let rows: &[Row<'_>] = &[
        ("open", &open, &["inspect", "-"], 0, needs_shape, "1 op, not compiled"),
        ("given", &open, &given, 0, "", "  memory "),
        (
            "unfit",
            &unfit,
            &["inspect", "-"],
            1,
            "error: partition 0: Select (op 7)",
            "  no plan  Select (op 7)",
        ),
        (
            "unfit picture",
            &unfit,
            &["inspect", "-", "--format", "svg"],
            1,
            "Select (op 7)",
            "class=\"alone open",
        ),
    ];
    let mut wrong = Vec::new();
    for (what, graph, args, code, said, shown) in rows {
        let ended = sterna_reading(graph, args);
        wrong.extend(complaint(what, &ended, *code, said));
        if !ended.out.contains(shown) {
            wrong.push(format!("{what}: no {shown:?} in {}", ended.out));
        }
    }
    none_of(wrong);
}

#[test]
fn shapes_are_settled_as_they_are_for_a_run() {
    let of_unknown_layout = |id: usize, dims: &[i64]| {
        let mut tensor = tensor(id, "f32", dims);
        tensor["layout_type"] = json!("undef");
        tensor["stride"] = json!([]);
        tensor
    };
    let select = |then: serde_json::Value| {
        let inputs = vec![tensor(5, "boolean", &[1]), then, tensor(6, "f32", &[1])];
        op(1, "Select", inputs, vec![of_unknown_layout(7, &[i64::MIN])])
    };
    let behind = |kind: &str, inputs: Vec<serde_json::Value>, dims: &[i64]| {
        let between = of_unknown_layout(4, dims);
        graph(vec![op(0, kind, inputs, vec![between.clone()]), select(between)])
    };
    let matrices = || vec![tensor(0, "f32", &[2, 3]), tensor(1, "f32", &[3, 4])];
    let undef = behind("MatMul", matrices(), &[2, 4]);
    let matmul = behind("MatMul", matrices(), &[i64::MIN]);
    let wildcard = behind("Wildcard", vec![tensor(0, "f32", &[2, 3])], &[i64::MIN]);
    let known = behind("Wildcard", vec![tensor(0, "f32", &[2, 3])], &[2, 4]);
    /// Graph, options, a line of the result, a note.
    type Row<'a> = (&'a str, &'a str, &'a [&'a str], &'a str, &'a str);
    let open = "the shape of tensor 4 is not known; give it with --shape 4=...";
    let rows: &[Row<'_>] = &[
        ("a layout that is not known", &undef, &[], "out 7 dst f32 {2,4}\n", ""),
        ("a shape by rule", &matmul, &[], "out 7 dst f32 {2,4}\n", ""),
        ("another shape by rule", &undef, &["--override-shape", "0=5x8x3"], "out 7 dst f32 {5,8,4}\n", ""),
        ("no rule", &wildcard, &[], "  no plan  the shape of tensor 4", open),
        ("a shape that is given", &wildcard, &["--override-shape", "4=6"], "out 7 dst f32 {6}\n", ""),
        ("a shape that may have changed", &known, &["--override-shape", "0=9"], "  no plan  the shape", open),
        ("the same shape", &known, &["--override-shape", "0=2x3"], "out 7 dst f32 {2,4}\n", ""),
        ("a shape beside it", &known, &["--override-shape", "6=4"], "out 7 dst f32 {2,4}\n", ""),
    ];
    let mut wrong = Vec::new();
    for (what, text, options, shown, note) in rows {
        let inspected = sterna_reading(text, &[&["inspect", "-"], *options].concat());
        wrong.extend(complaint(what, &inspected, 0, note));
        let is_shown = |text: &str| text.contains(shown) || squeezed(text).contains(shown);
        if !is_shown(&inspected.out) || (note.is_empty() && !inspected.err.is_empty()) {
            wrong.push(format!("{what}: no {shown:?} in {}{}", inspected.out, inspected.err));
        }
        // The other commands settle the same shapes, or miss the same one.
        let code = if note.is_empty() { 0 } else { 1 };
        let run = sterna_reading(text, &[&["run", "-"], *options].concat());
        wrong.extend(complaint(&format!("run, {what}"), &run, code, note));
        if note.is_empty() && !is_shown(&run.out) {
            wrong.push(format!("run, {what}: no {shown:?} in {}", run.out));
        }
        let measured = ["--time", "0.001", "--threads", "1"];
        let bench = sterna_reading(text, &[&["bench", "-"], *options, &measured[..]].concat());
        wrong.extend(complaint(&format!("bench, {what}"), &bench, 0, note.rsplit("; ").next().unwrap_or("")));
    }
    none_of(wrong);
}

/// A graph of so many ops, every fifth of which nothing runs.
fn large(ops: usize) -> String {
    let one = |id: usize| {
        let (x, y) = (id, id.saturating_sub(id % 7));
        let inputs = vec![tensor(x, "f32", &[4, 4]), tensor(y, "f32", &[4, 4])];
        op(id, if id % 5 == 4 { "Wildcard" } else { "Add" }, inputs, vec![tensor(id + 1, "f32", &[4, 4])])
    };
    graph((0..ops).map(one).collect())
}

/// A chain of so many ops that each also read what is half as far from the start.
fn far_reaching(ops: usize) -> String {
    let inputs = |id: usize| vec![tensor(id, "f32", &[4, 4]), tensor(id / 2, "f32", &[4, 4])];
    graph((0..ops).map(|id| op(id, "Add", inputs(id), vec![tensor(id + 1, "f32", &[4, 4])])).collect())
}

/// So many ops that all read one result and one input of the graph.
fn fan(ops: usize) -> String {
    let inputs = |id: usize| vec![tensor(1.min(id), "f32", &[4, 4]), tensor(0, "f32", &[4, 4])];
    graph((0..ops).map(|id| op(id, "Wildcard", inputs(id), vec![tensor(id + 1, "f32", &[4, 4])])).collect())
}

#[test]
fn thousands_of_ops_are_shown_in_seconds() {
    let rows = [
        ("large", large(70), 70, 14, "svg"),
        ("large", large(150), 150, 30, "svg"),
        ("large", large(5000), 5000, 1000, "svg"),
        ("far reaching", far_reaching(400), 400, 0, "svg"),
        ("far reaching", far_reaching(2000), 2000, 0, "svg"),
        ("fan", fan(5000), 5000, 5000, "svg"),
        ("large", large(5000), 5000, 1000, "html"),
        ("large", large(2000), 2000, 400, "dot"),
    ];
    let mut wrong = Vec::new();
    for (name, text, ops, unsupported, format) in rows {
        let mut shown = None;
        // Far more than it takes, and three tries, for machines that are busy or hold processes up.
        let is_quick = (0..3).any(|_| {
            let began = Instant::now();
            shown = Some(sterna_reading(&text, &["inspect", "-", "--format", format]));
            began.elapsed() < Duration::from_secs(60)
        });
        let Some(ended) = shown else { continue };
        wrong.extend(complaint(&format!("{name}, {ops} ops"), &ended, 0, ""));
        if format == "svg" {
            let faults = faults_of_picture(&ended.out, ops, unsupported);
            wrong.extend(faults.iter().map(|fault| format!("{name}, {ops} ops: {fault}")));
        }
        if !is_quick {
            wrong.push(format!("{name}, {ops} ops, as {format} took more than a minute, three times"));
        }
    }
    none_of(wrong);
}

#[test]
fn an_input_that_many_use_is_drawn_beside_each() {
    let ovals = |ops: usize| {
        let picture = sterna_reading(&fan(ops), &["inspect", "-", "--format", "svg"]).out;
        picture.matches(">src<").count()
    };
    // The first op uses it twice, each other one once.
    assert_eq!([ovals(2), ovals(3), ovals(100)], [1, 1, 101]);
}

#[test]
fn a_picture_has_names_and_no_text_whose_place_viewers_disagree_about() {
    let long = |layer: usize| format!("/model/encoder/layers.{layer}/self_attention/output/Where_output_0");
    let named = |id: usize, name: &str, to: usize| {
        let mut op = op(
            id,
            "Select",
            vec![tensor(0, "boolean", &[4]), tensor(1, "f32", &[4]), tensor(to - 1, "f32", &[4])],
            vec![tensor(to, "f32", &[4])],
        );
        op["name"] = json!(name);
        op
    };
    let text = graph(vec![
        named(0, &long(10), 3),
        named(1, &long(11), 4),
        named(2, "twice", 5),
        named(3, "twice", 6),
        named(4, "選択の層", 7),
        named(5, "", 8),
    ]);
    let ended = sterna_reading(&text, &["inspect", "-", "--format", "svg"]);
    let document = roxmltree::Document::parse(&ended.out).unwrap();
    let of = |tag: &'static str| document.descendants().filter(move |node| node.has_tag_name(tag));
    let lines: Vec<&str> = of("text").filter_map(|node| node.text()).collect();
    let mut wrong = Vec::new();
    for (line, times) in [
        // Inputs that many ops use are drawn beside each.
        ("cond", 6),
        ("then", 6),
        ("else", 1),
        ("dst", 1),
        ("twice · op 2", 1),
        ("twice · op 3", 1),
        ("op 5", 1),
        ("boolean 4", 6),
        // The port of an op in between is said, that of an input of the same name is not.
        ("else f32 4", 5),
        ("then f32 4", 0),
    ] {
        let found = lines.iter().filter(|found| **found == line).count();
        if found != times {
            wrong.push(format!("{line:?} is there {found} times, not {times}, in {lines:?}"));
        }
    }
    // Both ends of a long name stay, and so does what tells two apart.
    let layers: Vec<&&str> = lines.iter().filter(|line| line.starts_with("/model")).collect();
    let is_short =
        |line: &&&str| line.contains('…') && line.ends_with("output_0") && line.chars().count() < 40;
    if layers.len() != 2 || layers[0] == layers[1] || !layers.iter().all(is_short) {
        wrong.push(format!("{layers:?}"));
    }
    // The whole name is there for those who point at the box.
    if !of("title").any(|node| node.text().is_some_and(|tip| tip.contains(&long(10)))) {
        wrong.push("no title holds the whole name".into());
    }
    if ended.out.contains("dominant-baseline") || ended.out.contains("alignment-baseline") {
        wrong.push("viewers place lines of text by their middles differently".into());
    }
    for node in of("text") {
        if node.attribute("x").is_none() || node.attribute("y").is_none() {
            wrong.push(format!("{:?} has no place", node.text()));
        }
        let is_wide = node.text().is_some_and(|text| text.contains('選'));
        if node.attribute("textLength").is_some() != is_wide {
            wrong.push(format!("{:?}: a length is for characters whose width nobody knows", node.text()));
        }
    }
    none_of(wrong);
}

#[test]
fn the_picture_in_the_readme_is_what_inspect_makes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let args = ["inspect", "examples/graphs/gpt_additive_mask.json", "--format", "svg"];
    let made = Command::new(env!("CARGO_BIN_EXE_sterna")).args(args).current_dir(&root).output().unwrap();
    let (made, file) = (String::from_utf8(made.stdout).unwrap(), root.join("docs/inspect.svg"));
    if std::env::var_os("STERNA_REWRITE").is_some() {
        fs::write(&file, &made).unwrap();
    }
    let there = fs::read_to_string(file).unwrap_or_default();
    assert!(made == there, "docs/inspect.svg is another picture; STERNA_REWRITE=1 writes it anew");
}

/// The signs of the tiles that the picture of a page shows, row by row.
fn drawn(page: &str) -> Vec<String> {
    let Some(start) = page.find("<svg class=\"tiles\"") else { return Vec::new() };
    let end = start + page[start..].find("</svg>").unwrap() + "</svg>".len();
    let document = roxmltree::Document::parse(&page[start..end]).unwrap();
    let mut rows: Vec<String> = Vec::new();
    for rect in document.descendants().filter(|node| node.tag_name().name() == "rect") {
        let number = |name: &str| rect.attribute(name).unwrap().parse::<usize>().unwrap();
        let sign = match rect.attribute("class").unwrap() {
            "masked" => ".",
            "constant" => "-",
            "full" => "#",
            _ => "+",
        };
        rows.resize(rows.len().max(number("y") + 1), String::new());
        let row = &mut rows[number("y")];
        assert_eq!((row.len(), number("height")), (number("x"), 1), "the cells of a row follow each other");
        row.push_str(&sign.repeat(number("width")));
    }
    rows
}

#[test]
fn the_tiles_of_a_mask_are_counted_and_drawn() {
    let room = Room::new();
    let mask = format!("4={}", room.write("mask.npy", mask_npy()));
    let (by_tensor, by_indices) =
        (room.write("tensor.json", attention(true)), room.write("indices.json", attention(false)));
    let mut wrong = Vec::new();
    for (args, expected) in [
        (vec![by_tensor.as_str(), "--input", &mask], Some(MASK_TILES)),
        (vec![by_indices.as_str()], Some(CAUSAL_TILES)),
        // Without its elements, nobody knows the tiles of a mask.
        (vec![by_tensor.as_str()], None),
    ] {
        let [text, page] = ["text", "html"].map(|format| {
            let ended = sterna(&[&["inspect"][..], &args[..], &["--format", format]].concat());
            wrong.extend(complaint(&format!("{args:?}"), &ended, 0, ""));
            ended.out
        });
        let picture = drawn(&page);
        let is_right = match expected {
            Some((signs, counts)) => {
                let lines: String = signs.iter().map(|line| format!("           {line}\n")).collect();
                text.contains(&format!("  mask     {counts}\n{lines}"))
                    && text.contains("64 queries × 64 keys a sign")
                    && page.contains(counts)
                    && page.contains("A cell is 64 queries × 64 keys")
                    && picture == signs
            }
            None => {
                let needs =
                    "which of its tiles are left out depends on `cond`; --input cond=FILE.npy draws them";
                !text.contains("tiles skipped")
                    && [&text, &page].iter().all(|shown| shown.contains(needs))
                    && picture.is_empty()
            }
        };
        if !is_right {
            wrong.push(format!("{args:?}: {picture:?}\n{text}"));
        }
    }
    none_of(wrong);
}

/// A mask that is computed from indices alone needs no input: what it fills in masks, and a scale changes
/// nothing.
#[test]
fn the_tiles_of_a_mask_by_index_need_no_input() {
    let path = graphs().join("causal_mask.json");
    let path = path.to_str().unwrap();
    let shapes = ["10=1x6x200x16", "11=1x6x330x16", "21=1x6x330x16"];
    let shapes: Vec<&str> = shapes.into_iter().flat_map(|shape| ["--shape", shape]).collect();
    let shown = |more: &[&str]| sterna(&[&["inspect", path][..], &shapes, more].concat());
    let (signs, counts) = CAUSAL_TILES;
    let (text, page) = (shown(&[]), shown(&["--format", "html"]));
    assert!(
        text.out.contains(&format!("  mask     {counts}; with src_1 = 1 and else = -inf\n")),
        "{}",
        text.out
    );
    assert!(page.out.contains(counts) && page.out.contains("with src_1 = 1 and else = -inf"), "{}", text.out);
    assert_eq!(drawn(&page.out), signs);
    // A fill that is given counts.
    let finite = shown(&["--input", "else=[-7]"]);
    assert!(
        !finite.out.contains(counts) && finite.out.contains("  mask     0 of 24 tiles"),
        "{}",
        finite.out
    );
}

#[test]
fn pictures_of_masks_are_large_enough_to_see() {
    let room = Room::new();
    let graph = room.write("indices.json", attention(false));
    let page = sterna(&["inspect", &graph, "--format", "html"]).out;
    let start = page.find("<svg class=\"tiles\"").unwrap();
    let side = |name: &str| {
        let (_, from) = page[start..].split_once(&format!(" {name}=\"")).unwrap();
        from.split('"').next().unwrap().parse::<usize>().unwrap()
    };
    assert!(side("width") >= 200 && side("height") >= 200, "{} × {}", side("width"), side("height"));
}

#[test]
fn attributes_are_shown_in_every_form() {
    let path = graphs().join("gpt_additive_mask.json");
    let shown = |format: &str| sterna(&["inspect", path.to_str().unwrap(), "--format", format]).out;
    let mut wrong = Vec::new();
    for format in ["text", "dot", "svg", "html"] {
        let shown = shown(format);
        for attr in ["transpose_b=true", "axis=-1", "auto_broadcast=multidirectional"] {
            if !shown.contains(attr) {
                wrong.push(format!("{format}: no {attr}"));
            }
        }
        if shown.contains("auto_broadcast=numpy") || shown.contains("transpose_a") {
            wrong.push(format!("{format}: words that are the default"));
        }
    }
    none_of(wrong);
}
