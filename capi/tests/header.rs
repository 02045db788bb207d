//! Promise: `include/sterna.h` is what the sources say, and compiles without a warning as C99 and as C++.
//!
//! `STERNA_REWRITE=1 cargo test -p sterna-capi --test header` writes the file.

mod common;

use std::fmt::Write;
use std::fs;
use std::path::Path;

use common::{compile, header_path, report, repository, rewrite, say_skipped, scratch_folder};
use sterna_capi::{attention, cpu_isa, dump, engine, logical_tensor, status, stream};

/// An enumeration of the header: the prefix of its constants, what they are, and each with its number.
type Enumeration = (&'static str, &'static str, Vec<(String, i64)>);

fn enumerations() -> Vec<Enumeration> {
    macro_rules! all {
        ($Enum:ident) => {
            sterna::$Enum::ALL.iter().map(|one| (constant_name(one.name()), i64::from(one.code()))).collect()
        };
    }
    fn table<N: Copy + Into<i64>>(rows: &[(N, &str)]) -> Vec<(String, i64)> {
        rows.iter().map(|(code, name)| (constant_name(name), (*code).into())).collect()
    }
    let statuses: Vec<_> =
        status::STATUSES.iter().map(|(code, name)| (*code, name.to_str().unwrap())).collect();
    vec![
        ("STATUS", "Statuses of calls.", table(&statuses)),
        ("DATA_TYPE", "Types of elements.", all!(DataType)),
        ("LAYOUT_TYPE", "How elements lie in memory.", table(logical_tensor::LAYOUT_TYPES)),
        ("TENSOR_PROPERTY", "The life of a tensor's contents between executions.", all!(Property)),
        ("OP", "Kinds of ops.", all!(OpKind)),
        ("ATTR", "Attributes of ops.", all!(Attr)),
        ("FPMATH_MODE", "How far floating-point arithmetic may be relaxed.", all!(FpMathMode)),
        ("PARTITION_POLICY", "How a graph is cut into partitions.", all!(Policy)),
        ("ENGINE_KIND", "Kinds of engines.", table(engine::ENGINE_KINDS)),
        ("STREAM_FLAG", "Behaviours of streams.", table(stream::STREAM_FLAGS)),
        ("LEVEL", "How wide the vectors of kernels are.", all!(Level)),
        ("ACCURACY", "How exact partitions are.", all!(Accuracy)),
        ("PHASE_KIND", "What phases of compiled partitions compute.", all!(PhaseKind)),
        ("FAST_FORM", "Forms of computation that plans take where they can.", all!(FastForm)),
        ("FALLBACK_REASON", "Reasons for which a plan did not take a fast form.", all!(FallbackReason)),
        ("CPU_ISA", "Sets of instructions.", table(cpu_isa::CPU_ISAS)),
        ("DUMP_MODE", "Which graphs are written to files.", table(dump::DUMP_MODES)),
        ("CAUSAL", "Places of the diagonal of a causal mask.", table(attention::CAUSALS)),
        ("MASK_TRUE", "What true in a mask of attention says.", table(attention::MASK_TRUES)),
    ]
}

/// `GenIndex` becomes `GEN_INDEX`, `in_order` becomes `IN_ORDER`; words that only look like two stay one.
fn constant_name(name: &str) -> String {
    const ONE_WORD: [(&str, &str); 8] = [
        ("NaN", "Nan"),
        ("PReLU", "Prelu"),
        ("ReLU", "Relu"),
        ("GELU", "Gelu"),
        ("RMSNorm", "RmsNorm"),
        ("MatMul", "Matmul"),
        ("SoftMax", "Softmax"),
        ("SoftPlus", "Softplus"),
    ];
    let name = ONE_WORD.iter().fold(name.to_owned(), |name, (from, to)| name.replace(from, to));
    let mut constant = String::new();
    let mut after_small = false;
    for letter in name.chars() {
        if letter.is_uppercase() && after_small {
            constant.push('_');
        }
        after_small = letter.is_lowercase();
        constant.push(letter.to_ascii_uppercase());
    }
    constant
}

fn constants() -> String {
    let mut text = String::from(
        "\n/**\n * Stands for a dim or a stride that is not known.\n */\n\
         #define STERNA_UNKNOWN_DIM INT64_MIN\n\n\
         /**\n * The largest rank of a tensor.\n */\n#define STERNA_MAX_NDIMS 12\n\n\
         /**\n * The handle of a tensor that has memory of its own.\n */\n\
         #define STERNA_MEMORY_ALLOCATE ((void *)SIZE_MAX)\n\n\
         /**\n * The handle of a tensor that has no memory yet.\n */\n#define STERNA_MEMORY_NONE NULL\n",
    );
    for (prefix, what, rows) in enumerations() {
        writeln!(text, "\n/**\n * {what}\n */\nenum {{").unwrap();
        for (i, (name, number)) in rows.iter().enumerate() {
            let comma = if i + 1 < rows.len() { "," } else { "" };
            let number = if *number < 256 { number.to_string() } else { format!("{number:#x}") };
            writeln!(text, "    STERNA_{prefix}_{name} = {number}{comma}").unwrap();
        }
        text.push_str("};\n");
    }
    text
}

fn generated() -> String {
    let capi = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut config = cbindgen::Config::from_file(capi.join("cbindgen.toml")).expect("cbindgen.toml is sound");
    config.after_includes = Some(constants());
    let builder = cbindgen::Builder::new().with_config(config).with_src(capi.join("src/lib.rs"));
    let mut text = Vec::new();
    builder.generate().expect("the sources can be read").write(&mut text);
    String::from_utf8(text).unwrap()
}

#[test]
fn the_header_is_what_the_sources_say() {
    let generated = generated();
    if std::env::var_os("STERNA_REWRITE").is_some() {
        rewrite(&header_path(), &generated);
    }
    let checked_in = fs::read_to_string(header_path()).unwrap_or_default();
    let differs = checked_in.lines().zip(generated.lines()).position(|(old, new)| old != new);
    assert!(
        checked_in == generated,
        "include/sterna.h differs from the sources from line {} on; \
         STERNA_REWRITE=1 cargo test -p sterna-capi --test header writes it",
        differs.map_or(checked_in.lines().count().min(generated.lines().count()), |line| line) + 1,
    );
}

#[test]
fn the_header_compiles_without_a_warning() {
    let folder = scratch_folder("header");
    let try_out = |name: &str, text: &str, arguments: &[&str]| {
        let source = folder.join(name);
        fs::write(&source, text).unwrap();
        compile(&source, &folder.join("alone.o"), &[arguments, &["-c"]].concat())
    };
    let text = "#include <sterna.h>\n#include <sterna.h>\nextern int sterna_is_included;\n";
    let mut rows = vec![("alone.c", &["-std=c99"][..]), ("alone.c", &["-std=c11"])];
    let cpp: [&[&str]; 2] = [&["-xc++", "-std=c++11"], &["-xc++", "-std=c++17"]];
    match try_out("empty.cpp", "extern int nothing;\n", cpp[1]) {
        Ok(()) => rows.extend(cpp.map(|arguments| ("alone.cpp", arguments))),
        // A C compiler is all that a plain run of the tests needs.
        Err(error) if std::env::var_os("STERNA_TEST_TOOLS").is_some() => panic!("{error}"),
        Err(_) => say_skipped("the header as C++, which this machine's compiler does not know"),
    }
    let wrong: Vec<_> =
        rows.iter().filter_map(|(name, arguments)| try_out(name, text, arguments).err()).collect();
    report(&wrong);
}

/// Words that are for Rust alone, or for who looks at the sources.
#[test]
fn the_header_speaks_c() {
    let header = fs::read_to_string(header_path()).unwrap();
    let foreign = ["MaybeUninit", "Option", "[`", "unsafe", "crate::", "Box<"];
    let wrong: Vec<_> = foreign.iter().filter(|word| header.contains(**word)).collect();
    report(&wrong);
    assert!(header.starts_with("/*") && repository().join("include").is_dir());
}
