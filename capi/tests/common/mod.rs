//! Helpers of all tests: a C compiler, the libraries that were built, and where things are.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of this")]

pub mod guide;

use std::ffi::{OsStr, OsString};
use std::fmt::Debug;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

/// Valgrind, for programs whose every block of memory is to be given back.
pub const VALGRIND: &[&str] = &[
    "valgrind",
    "--quiet",
    "--error-exitcode=9",
    "--leak-check=full",
    // The cache of compiled partitions lives as long as the process; what points into it counts as possible.
    "--errors-for-leak-kinds=definite,indirect",
    "--show-leak-kinds=definite,indirect",
];

/// The folder of the whole project.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("capi is in the project").to_owned()
}

pub fn header_path() -> PathBuf {
    repository().join("include/sterna.h")
}

/// An empty folder for what a test writes.
pub fn scratch_folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the target folder can be written");
    folder
}

/// Where cargo put the libraries of this package: beside the test itself.
pub fn library_folder() -> PathBuf {
    let test = env::current_exe().expect("a test knows where it is");
    test.parent().expect("a test is in a folder").to_owned()
}

/// The C compiler: `CC`, or `cc`.
pub fn compiler() -> OsString {
    env::var_os("CC").unwrap_or_else(|| "cc".into())
}

/// The C++ compiler, if there is one: `CXX`, or `c++`.
pub fn cpp_compiler() -> Option<OsString> {
    let name = env::var_os("CXX").unwrap_or_else(|| "c++".into());
    Command::new(&name).arg("--version").output().is_ok().then_some(name)
}

/// Compiles a C source with all warnings as errors.
pub fn compile(source: &Path, to: &Path, arguments: &[&str]) -> Result<(), String> {
    succeeded(compile_command(&compiler(), source, to).args(arguments)).map(drop)
}

fn compile_command(compiler: &OsStr, source: &Path, to: &Path) -> Command {
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1", "-g"]);
    command.arg("-I").arg(repository().join("include")).arg("-o").arg(to).arg(source);
    command
}

/// Compiles a C program and links it with the shared library of this package.
pub fn compile_with(compiler: &OsStr, source: &Path, to: &Path, flags: &[&str]) -> Result<(), String> {
    link(compiler, source, to, &[&["-std=c99"], flags].concat())
}

/// Compiles a program in C++17 and links it with the shared library of this package.
pub fn compile_cpp(compiler: &OsStr, source: &Path, to: &Path) -> Result<(), String> {
    link(compiler, source, to, &["-std=c++17"])
}

fn link(compiler: &OsStr, source: &Path, to: &Path, flags: &[&str]) -> Result<(), String> {
    let folder = library_folder();
    let mut rpath = OsString::from("-Wl,-rpath,");
    rpath.push(&folder);
    let mut command = compile_command(compiler, source, to);
    command.args(flags).arg(folder.join("libsterna_capi.so")).arg(rpath);
    succeeded(command.args(["-lpthread", "-ldl", "-lm"])).map(drop)
}

/// Runs a command, and says all it wrote if it fails.
pub fn succeeded(command: &mut Command) -> Result<Output, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Err(format!("{command:?}: {}\n{}{}", output.status, text(&output.stdout), text(&output.stderr)))
}

/// Writes a file that is checked in, at one stroke: other tests read it meanwhile.
pub fn rewrite(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).and_then(|()| fs::rename(&new, path)).expect("the project can be written");
}

/// Says aloud what is not tested.
pub fn say_skipped(what: &str) {
    // Not by `eprintln`, whose text the test runner keeps to itself.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
}

/// Fails with every row that is wrong.
pub fn report<T: Debug>(wrong: &[T]) {
    let lines: Vec<String> = wrong.iter().map(|row| format!("{row:?}")).collect();
    assert!(wrong.is_empty(), "{} rows are wrong:\n{}", wrong.len(), lines.join("\n"));
}

/// A function that the header declares.
#[derive(Debug, Clone)]
pub struct Prototype {
    pub answer: String,
    pub name: String,
    pub parameters: Vec<Parameter>,
}

/// A parameter, its type with single blanks.
#[derive(Debug, Clone)]
pub struct Parameter {
    pub r#type: String,
    pub name: String,
}

impl Parameter {
    pub fn is_pointer(&self) -> bool {
        self.r#type.ends_with('*')
    }
}

/// The functions that the header declares: what follows a blank line or the end of a comment, up to `;`.
pub fn prototypes(header: &str) -> Vec<Prototype> {
    let mut prototypes = Vec::new();
    let mut declaration = String::new();
    let mut inside = header.lines().skip_while(|line| !line.starts_with("extern \"C\""));
    inside.next();
    for line in inside.map(str::trim) {
        if line.starts_with(['/', '*', '#', '}']) || line.is_empty() {
            continue;
        }
        declaration.push_str(line);
        declaration.push(' ');
        if line.ends_with(';') {
            prototypes.push(prototype(&declaration));
            declaration.clear();
        }
    }
    prototypes
}

/// Reads `answer name(type name, …);`.
fn prototype(declaration: &str) -> Prototype {
    let (head, parameters) = declaration.split_once('(').expect("a declaration is of a function");
    let (answer, name) = typed(head);
    let parameters = parameters.trim().trim_end_matches(';').trim_end_matches(')');
    let parameters = parameters.split(',').filter(|parameter| parameter.trim() != "void").map(|parameter| {
        let (r#type, name) = typed(parameter);
        Parameter { r#type, name }
    });
    Prototype { answer, name, parameters: parameters.collect() }
}

/// Cuts `const char *name` into `const char *` and `name`.
fn typed(text: &str) -> (String, String) {
    let text = text.trim();
    let start = text.rfind([' ', '*']).expect("a type stands before the name") + 1;
    (text[..start].trim().to_owned(), text[start..].to_owned())
}
