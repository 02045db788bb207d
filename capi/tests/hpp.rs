//! Promise: `include/sterna.hpp` reaches everything in `include/sterna.h`, compiles without a warning, and
//! works.
//!
//! `STERNA_REWRITE=1 cargo test -p sterna-capi --test hpp` writes its enumerations from those of `sterna.h`.

mod common;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::{env, fs, io};

use common::VALGRIND;

const BEGIN: &str = "// The numbers of sterna.h by name; written by the test of this header.\n\n";
const END: &str = "// The end of what the test writes.\n";

/// The enumerations: what constants of sterna.h begin with, and the type in C++.
const ENUMERATIONS: &[(&str, &str)] = &[
    ("STATUS", "status : int"),
    ("DATA_TYPE", "data_type : int"),
    ("LAYOUT_TYPE", "layout_type : int"),
    ("TENSOR_PROPERTY", "property : int"),
    ("OP", "op_kind : int"),
    ("ATTR", "op_attr : int"),
    ("FPMATH_MODE", "fpmath_mode : int"),
    ("PARTITION_POLICY", "partition_policy : int"),
    ("ENGINE_KIND", "engine_kind : int"),
    ("STREAM_FLAG", "stream_flags : unsigned"),
    ("LEVEL", "level : int"),
    ("ACCURACY", "accuracy : int"),
    ("PHASE_KIND", "phase_kind : int"),
    ("FAST_FORM", "fast_form : int"),
    ("FALLBACK_REASON", "fallback_reason : int"),
    ("CPU_ISA", "cpu_isa : int"),
    ("DUMP_MODE", "dump_mode : int"),
    ("CAUSAL", "causal : int"),
    ("MASK_TRUE", "mask_true : int"),
];

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("capi is in the project")
}

fn header(name: &str) -> String {
    fs::read_to_string(repository().join("include").join(name)).expect("the header is text")
}

/// The code of a header, without comments.
fn code(name: &str) -> String {
    let text = header(name);
    let mut code = String::new();
    for (i, part) in text.split("/*").enumerate() {
        code += if i == 0 { part } else { part.split_once("*/").map_or("", |(_, behind)| behind) };
    }
    code.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n")
}

fn words(code: &str) -> BTreeSet<&str> {
    code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect()
}

#[test]
fn every_function_is_reached() {
    let (c, plus) = (code("sterna.h"), code("sterna.hpp"));
    let words = words(&plus);
    let functions: Vec<&str> = c
        .split('(')
        .filter_map(|before| before.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next())
        .filter(|name| name.starts_with("sterna_"))
        .collect();
    assert!(functions.len() > 80, "sterna.h declares functions: {functions:?}");
    let missing: Vec<_> = functions.into_iter().filter(|name| !words.contains(name)).collect();
    assert!(missing.is_empty(), "sterna.hpp does not call {missing:?}");
}

/// The enumerations of sterna.h in C++.
fn enumerations() -> String {
    let c = code("sterna.h");
    let mut text = String::new();
    for body in c.split("enum {").skip(1).filter_map(|behind| behind.split('}').next()) {
        let names: Vec<&str> =
            body.split(',').filter_map(|row| row.split('=').next()).map(str::trim).collect();
        let starts = |prefix: &str| names.iter().all(|name| name.starts_with(&format!("STERNA_{prefix}_")));
        let (prefix, head) = ENUMERATIONS
            .iter()
            .find(|(prefix, _)| starts(prefix))
            .unwrap_or_else(|| panic!("ENUMERATIONS has no row for {names:?}"));
        write!(text, "enum class {head} {{").expect("text grows");
        let mut line = String::new();
        for name in names {
            let short = name.trim_start_matches(&format!("STERNA_{prefix}_")).to_lowercase();
            let short = if short == "default" { "default_" } else { &*short };
            let item = format!(" {short} = {name},");
            if line.is_empty() || line.len() + item.len() > 110 {
                text += &line;
                line = "\n   ".into();
            }
            line += &item;
        }
        write!(text, "{line}\n}};\n\n").expect("text grows");
    }
    text
}

/// Tests that may write the header do so one at a time.
static WRITES: Mutex<()> = Mutex::new(());

#[test]
fn enumerations_are_those_of_c() {
    let _only = WRITES.lock();
    let (text, expected) = (header("sterna.hpp"), enumerations());
    let (before, rest) = text.split_once(BEGIN).expect("the header says where they begin");
    let (found, after) = rest.split_once(END).expect("the header says where they end");
    if env::var_os("STERNA_REWRITE").is_some() {
        let text = [before, BEGIN, &expected, END, after].concat();
        fs::write(repository().join("include/sterna.hpp"), text).expect("the header can be written");
        return;
    }
    assert!(
        found == expected,
        "the enumerations of sterna.hpp are not those of sterna.h; \
         STERNA_REWRITE=1 cargo test -p sterna-capi --test hpp writes them"
    );
}

/// A part of the header that a test writes: where it begins and ends.
const ATTRIBUTES: [&str; 2] =
    ["    // The attributes; written by the test of this header.\n", "    // The end of the attributes.\n"];
const METHODS: [&str; 2] = [
    "    // A method for each op kind; written by the test of this header.\n",
    "    // The end of the op kinds.\n",
];

/// The type in C++ of a parameter of the builder in Rust, and whether it is a list.
fn type_of(rust: &str) -> (&'static str, bool) {
    match rust {
        "f32" => ("float", false),
        "i64" => ("std::int64_t", false),
        "bool" => ("bool", false),
        "&[i64]" => ("view<const std::int64_t>", true),
        "&[f32]" => ("view<const float>", true),
        "DataType" => ("data_type", false),
        "&str" | "AutoBroadcast" => ("const std::string &", false),
        other => panic!("no type of C++ for {other}"),
    }
}

fn declared(r#type: &str, name: &str) -> String {
    match r#type.strip_suffix(" &") {
        Some(plain) => format!("{plain} &{name}"),
        None => format!("{type} {name}"),
    }
}

/// The table of a macro in a source of the builder in Rust: its rows, without comments.
fn table(file: &str, starts: &[&str]) -> Vec<String> {
    let source = fs::read_to_string(repository().join("src/graph/builder").join(file)).expect("it is text");
    let tables = starts.iter().flat_map(|start| {
        let (_, rest) = source.split_once(&format!("\n{start} {{\n")).expect("the table is there");
        let (rows, _) = rest.split_once("\n}").expect("the table ends");
        let lines: Vec<&str> = rows.lines().map(str::trim).filter(|line| !line.starts_with("///")).collect();
        lines.join(" ").split_inclusive([';']).map(str::trim).map(str::to_owned).collect::<Vec<_>>()
    });
    tables.filter(|row| !row.is_empty()).collect()
}

/// A setter for each attribute.
fn setters() -> String {
    let rows = table("options.rs", &["setters!"]).concat();
    let mut text = String::new();
    for row in rows.split(", ").flat_map(|row| row.split(',')).map(str::trim).filter(|row| !row.is_empty()) {
        let (names, rust) = row.split_once(": ").expect("a setter has a type");
        let name = names.split(' ').nth(1).expect("a setter has a name");
        let (plus, is_list) = type_of(rust);
        let (parameter, set) = (declared(plus, name), if is_list { "list" } else { "set" });
        writeln!(text, "    op_options &{name}({parameter}) {{ return {set}(op_attr::{name}, {name}); }}")
            .expect("text grows");
    }
    text
}

/// A method for each op kind.
fn methods() -> String {
    let mut text = String::new();
    let tables = ["plain!", "with_options!", "with_operands!", "several!"];
    for (index, start) in tables.iter().enumerate() {
        for row in table("kinds.rs", &[start]) {
            text += &method(&row, index >= 2);
        }
    }
    text
}

/// The method of a row of the builder in Rust, which may take operands beside those that it names.
fn method(row: &str, takes_more: bool) -> String {
    let (names, rest) = row.split_once(": ").expect("a row begins with a name");
    let name = names.split(" / ").next().expect("a row has a name").trim();
    let (kind, rest) = rest.split_once('(').expect("operands stand in parentheses");
    let (operands, rest) = rest.split_once(')').expect("operands stand in parentheses");
    let (params, rest) = rest.split_once('[').and_then(|(_, rest)| rest.rsplit_once(']')).expect("a list");
    let outputs = rest.split_once("-> ").map(|(_, count)| count.trim_end_matches([';', ' ']));

    let mut parameters: Vec<String> =
        operands.split(", ").filter(|one| !one.is_empty()).map(|one| format!("value {one}")).collect();
    let mut options = String::new();
    for param in params.split(", ").filter(|param| !param.is_empty()) {
        let (of, rust) = param.split_once(": ").expect("a parameter has a type");
        let of = if of == "data_type" { "type" } else { of };
        parameters.push(declared(type_of(rust).0, of));
        write!(options, ".{of}({of})").expect("text grows");
    }
    if kind.trim() == "StaticReshape" {
        options += ".special_zero(false)";
    }
    let options = match options.as_str() {
        "" => "options".to_owned(),
        set => format!("op_options(){set}.with(options)"),
    };
    parameters.push("const op_options &options = {}".into());
    if takes_more {
        parameters.push("view<const value> more = {}".into());
    }
    let more = if takes_more { ", more" } else { "" };
    let code = constant_of(kind.trim());
    let body = match outputs {
        None => format!("single(op_kind::{code}, {{{operands}}}, {options}{more})"),
        Some(count) => format!("several(op_kind::{code}, {{{operands}}}, {options}, more, {count})"),
    };
    let answer = if outputs.is_some() { "std::vector<value>" } else { "value" };
    let head = wrapped(&format!("    {answer} {name}({}) {{", parameters.join(", ")));
    format!("{head}\n{}\n    }}\n", wrapped(&format!("        return {body};")))
}

/// The constant of an op kind in C++.
fn constant_of(kind: &str) -> String {
    let code = sterna::OpKind::ALL.iter().find(|one| one.name() == kind).map(|one| one.code());
    let c = code.expect("the table is of op kinds");
    let header = header("sterna.h");
    let value = if c < 256 { c.to_string() } else { format!("{c:#x}") };
    let line = header.lines().map(str::trim).find(|line| {
        line.starts_with("STERNA_OP_") && line.trim_end_matches(',').ends_with(&format!(" = {value}"))
    });
    let name = line.and_then(|line| line.split(' ').next()).expect("the header has the kind");
    name.trim_start_matches("STERNA_OP_").to_lowercase()
}

/// Lines of at most 120 letters, broken behind commas.
fn wrapped(line: &str) -> String {
    let indent = " ".repeat(line.len() - line.trim_start().len() + 8);
    let mut lines = vec![String::new()];
    for part in line.split_inclusive(", ") {
        let last = lines.last_mut().expect("there is a line");
        if !last.trim().is_empty() && last.len() + part.trim_end().len() > 120 {
            *last = last.trim_end().to_owned();
            lines.push(format!("{indent}{part}"));
        } else {
            last.push_str(part);
        }
    }
    lines.join("\n")
}

#[test]
fn the_builder_has_the_methods_of_rust() {
    let _only = WRITES.lock();
    let mut faults = Vec::new();
    for ([begin, end], expected) in [(ATTRIBUTES, setters()), (METHODS, methods())] {
        let text = header("sterna.hpp");
        let (before, rest) = text.split_once(begin).expect("the header says where they begin");
        let (found, after) = rest.split_once(end).expect("the header says where they end");
        if env::var_os("STERNA_REWRITE").is_some() {
            let text = [before, begin, &expected, end, after].concat();
            fs::write(repository().join("include/sterna.hpp"), text).expect("the header can be written");
        } else if found != expected {
            let differing = found.lines().zip(expected.lines()).find(|(old, new)| old != new);
            faults.push(format!("{begin:?}: {differing:?}"));
        }
    }
    assert!(
        faults.is_empty(),
        "{faults:#?}; STERNA_REWRITE=1 cargo test -p sterna-capi --test hpp writes them"
    );
}

/// The C++ compiler, if there is one: `CXX`, or `c++`.
fn compiler() -> Option<OsString> {
    let name = env::var_os("CXX").unwrap_or_else(|| "c++".into());
    Command::new(&name).arg("--version").output().is_ok().then_some(name)
}

/// Says that a test did not run, past the capture of the test harness.
fn skipped(what: &str) {
    writeln!(io::stderr(), "SKIPPED: {what}").expect("stderr can be written");
}

/// Compiles a C++ program against the library of this package, runs it, under a tool if one is named, and
/// answers with what it prints.
fn run(compiler: &OsStr, source: &str, flags: &[&str], tool: &[&str]) -> Result<String, String> {
    let test = env::current_exe().expect("a test knows where it is");
    let libraries = test.parent().expect("a test is in a folder");
    let name = format!("{}-{source}-{}", compiler.to_string_lossy(), flags.concat());
    let name = name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"]);
    command.arg(repository().join("include")).arg(repository().join("capi").join(source)).args(flags);
    command.arg(libraries.join("libsterna_capi.so")).arg("-o").arg(&program);
    succeed(&mut command)?;
    let mut command = match tool {
        [] => Command::new(&program),
        [tool, arguments @ ..] => {
            let mut command = Command::new(tool);
            command.args(arguments).arg(&program);
            command
        }
    };
    succeed(command.env("LD_LIBRARY_PATH", libraries))
}

fn succeed(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    Err(format!("{command:?}: {}\n{}{}", output.status, text(&output.stdout), text(&output.stderr)))
}

/// Every program with what it prints.
const PROGRAMS: [(&str, &str); 4] = [
    ("examples/custom_op.cpp", "1 0\n1 0 3 5 0 4\n"),
    ("examples/kv_cache.cpp", "12 tokens, 5 in the second sequence, as all at once\n"),
    ("examples/select.cpp", "1 -1 3\n4 -1 6\n"),
    ("tests/cpp/every_call.cpp", "all is right\n"),
];

/// Flags of the compiler, and the tool that runs the program, with its arguments.
type Build = (&'static [&'static str], &'static [&'static str]);

fn faults(compiler: &OsStr, builds: &[Build]) -> Vec<String> {
    let mut faults = Vec::new();
    for (source, expected) in PROGRAMS {
        for (flags, tool) in builds {
            match run(compiler, source, flags, tool) {
                Ok(printed) if printed == expected => {}
                Ok(printed) => faults.push(format!("{source}, {compiler:?}, {flags:?}: printed {printed}")),
                Err(fault) => faults.push(fault),
            }
        }
    }
    faults
}

#[test]
fn programs_in_cpp_run() {
    let Some(compiler) = compiler() else { return skipped("C++ programs: there is no C++ compiler") };
    let faults = faults(&compiler, &[(&["-std=c++17"], &[])]);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

// One test for each compiler, so that they run side by side: each has tools that the other does without.
#[test]
fn programs_of_gcc_pass_every_tool() {
    // As much of the debug information as valgrind reads.
    pass_every_tool("g++", &[(&["-std=c++20", "-O3"], &[]), (&["-std=c++17", "-gdwarf-4"], VALGRIND)]);
}

#[test]
fn programs_of_clang_pass_every_tool() {
    let sanitized = &["-std=c++20", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    pass_every_tool("clang++", &[(sanitized, &[])]);
}

fn pass_every_tool(compiler: &str, builds: &[Build]) {
    if env::var_os("STERNA_TEST_TOOLS").is_none() {
        return skipped("g++ and clang++ with valgrind and AddressSanitizer; STERNA_TEST_TOOLS=1 runs them");
    }
    let faults = faults(compiler.as_ref(), builds);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
