//! Promise: programs in C and C++ read models through a library of its own, which exports what its header
//! declares and takes all else from the other library.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn repository() -> PathBuf {
    package().join("../..").canonicalize().expect("the package is in the project")
}

/// Where cargo put the libraries: beside the test itself.
fn libraries() -> PathBuf {
    let test = env::current_exe().expect("a test knows where it is");
    test.parent().expect("a test is in a folder").to_owned()
}

fn succeed(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => {
            Err(format!("{command:?}: {}\n{}{}", output.status, text(&output.stdout), text(&output.stderr)))
        }
    }
}

/// Compiles a program against both libraries.
fn compiled(source: &str, flags: &[&str]) -> Result<PathBuf, String> {
    let is_cpp = source.ends_with(".cpp");
    let (variable, usual, standard) = match is_cpp {
        true => ("CXX", "c++", "-std=c++17"),
        false => ("CC", "cc", "-std=c99"),
    };
    let compiler = env::var_os(variable).unwrap_or_else(|| usual.into());
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(source.replace(['/', '.'], "-"));
    let mut rpath = OsString::from("-Wl,-rpath,");
    rpath.push(libraries());
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", standard]).args(flags);
    command.arg("-I").arg(repository().join("include")).arg("-I").arg(package().join("include"));
    command.arg(package().join(source)).arg("-o").arg(&program);
    command.args(["libsterna_models.so", "libsterna_capi.so"].map(|library| libraries().join(library)));
    succeed(command.arg(rpath)).map(|_| program)
}

const DATA: [&str; 3] = [
    "import/tests/data/reshape.onnx",
    "import/tests/data/masked_scores.xml",
    "examples/graphs/gpt_additive_mask.json",
];

#[test]
fn programs_in_c_do_what_they_say() {
    let files = DATA.map(|file| repository().join(file));
    let program = compiled("tests/c/models.c", &[]).expect("the program compiles");
    succeed(Command::new(&program).args(&files)).expect("all is right");
    if env::var_os("STERNA_TEST_TOOLS").is_some() {
        let mut command = Command::new("valgrind");
        command.args(["--quiet", "--error-exitcode=9", "--leak-check=full"]);
        command.args(["--errors-for-leak-kinds=definite,indirect"]);
        succeed(command.arg(&program).args(&files)).expect("every block goes back");
    }
}

#[test]
fn examples_print_the_shapes_of_outputs() {
    let model = repository().join(DATA[1]);
    let in_c = compiled("examples/run_model.c", &[]).expect("the example compiles");
    let printed = succeed(Command::new(in_c).arg(&model));
    assert_eq!(printed.as_deref(), Ok("clipped: f32 1x3\n"));
    // A C compiler is all that a plain run of the tests needs.
    match compiled("examples/run_model.cpp", &[]) {
        Ok(in_cpp) => assert_eq!(succeed(Command::new(in_cpp).arg(&model)), printed),
        Err(error) => assert!(env::var_os("STERNA_TEST_TOOLS").is_none(), "{error}"),
    }
}

#[test]
fn the_shortest_programs_run_a_model_of_onnx() {
    let model = repository().join("import/tests/data/classifier.onnx");
    let mut faults = Vec::new();
    for source in ["examples/run_onnx.c", "examples/run_onnx.cpp"] {
        match compiled(source, &[]) {
            Ok(program) => {
                let printed = succeed(Command::new(program).arg(&model));
                if printed.as_deref() != Ok("0.007 0.618 0.375 0.622 0.378 0.000\n") {
                    faults.push(format!("{source}: {printed:?}"));
                }
            }
            // A C compiler is all that a plain run of the tests needs.
            Err(_) if source.ends_with("pp") && env::var_os("STERNA_TEST_TOOLS").is_none() => {}
            Err(error) => faults.push(format!("{source}: {error}")),
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn text_generation_says_that_a_model_has_no_caches() {
    for source in ["examples/text_generation.c", "examples/text_generation.cpp"] {
        let program = match compiled(source, &[]) {
            Ok(program) => program,
            // A C compiler is all that a plain run of the tests needs.
            Err(_) if source.ends_with("pp") && env::var_os("STERNA_TEST_TOOLS").is_none() => continue,
            Err(error) => panic!("{error}"),
        };
        let output = Command::new(program).arg(repository().join(DATA[1])).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("state"), "{source}: {said}");
    }
}

/// The dynamic symbols of the library that `nm` lists under an option.
fn symbols(option: &str) -> BTreeSet<String> {
    let library = libraries().join("libsterna_models.so");
    let text = succeed(Command::new("nm").args(["-D", option]).arg(library)).expect("nm reads libraries");
    let names = text.lines().filter_map(|line| line.split_whitespace().last());
    names.filter(|name| name.starts_with("sterna_")).map(str::to_owned).collect()
}

#[test]
fn it_exports_its_header_and_takes_the_rest_from_the_other_library() {
    let header = package().join("include/sterna_models.h");
    let header = std::fs::read_to_string(header).expect("the header is text");
    let declared: BTreeSet<String> = header
        .split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .filter(|word| word.starts_with("sterna_models_") && !word.ends_with("_t"))
        .map(str::to_owned)
        .collect();
    assert_eq!(symbols("--defined-only"), declared);
    let other = std::fs::read_to_string(repository().join("include/sterna.h")).expect("the header is text");
    let taken = symbols("--undefined-only");
    assert!(taken.len() > 10, "{taken:?}");
    let unknown: Vec<_> = taken.iter().filter(|name| !other.contains(&format!("{name}("))).collect();
    assert!(unknown.is_empty(), "sterna.h has no {unknown:?}");
}
