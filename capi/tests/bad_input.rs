//! Promise: every function answers bad input with a status and a sentence, writes nothing, and does not
//! crash.
//!
//! The calls are made from the header: each function is called well once, and then with one thing wrong after
//! the other. A parameter for which this file knows no good value fails the test, so that no function is
//! forgotten.

mod common;

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Parameter, Prototype, compile_with, header_path, prototypes, report, scratch_folder};

const SUCCESS: i32 = 0;
const INVALID_ARGUMENTS: i32 = 2;
const INVALID_GRAPH_OP: i32 = 8;

/// The objects of the fixture, by type; of graphs, one that has been filtered.
const OBJECTS: &[(&str, &str)] = &[
    ("sterna_allocator_t *", "f->allocator"),
    ("sterna_compiled_partition_t *", "f->s.compiled"),
    ("sterna_custom_node_t *", "f->node"),
    ("sterna_engine_t *", "f->s.engine"),
    ("sterna_graph_builder_t *", "f->builder"),
    ("sterna_graph_t *", "f->filtered"),
    ("sterna_model_t *", "f->model"),
    ("sterna_op_t *", "f->s.op"),
    ("sterna_partition_t *", "f->s.partition"),
    ("sterna_session_state_t *", "f->state"),
    ("sterna_session_t *", "f->session"),
    ("sterna_stream_t *", "f->s.stream"),
    ("sterna_tensor_t *", "f->s.tensor[DST]"),
];

/// Good values, by function (`*` for any) and parameter.
const GOOD: &[(&str, &str, &str)] = &[
    ("sterna_engine_create_with_options", "options", "&f->engine_options"),
    ("sterna_graph_add_attention", "graph", "f->open"),
    ("sterna_graph_add_attention", "options", "&f->attention"),
    ("sterna_graph_add_attention_backward", "graph", "f->open"),
    ("sterna_graph_add_attention_backward", "options", "&f->backward"),
    ("sterna_graph_add_op", "graph", "f->open"),
    ("sterna_graph_set_fpmath_mode", "graph", "f->open"),
    ("sterna_graph_set_rewrite", "name", "\"rms-norm\""),
    ("sterna_graph_set_rewrite", "is_on", "1"),
    ("sterna_tensor_create_scalar", "logical_tensor", "&f->scalar_desc"),
    ("sterna_tensor_create_scalar", "value", "&host_value"),
    ("sterna_compiled_partition_execute_with_scratchpad", "scratchpad", "NULL"),
    ("sterna_partition_compile", "inputs", "f->in_desc"),
    ("sterna_partition_compile", "outputs", "f->out_desc"),
    ("sterna_compiled_partition_query_logical_tensor", "id", "DST"),
    ("sterna_op_set_attr_bool", "value", "truth"),
    ("sterna_op_set_attr_f32", "value", "numbers"),
    ("sterna_op_set_attr_s64", "value", "integers"),
    ("sterna_op_set_attr_str", "value", "\"word\""),
    ("sterna_partition_get_input_ports", "num", "3"),
    ("sterna_compiled_partition_query_logical_tensor_by_name", "name", "\"dst\""),
    ("sterna_select_get_dims", "ndims", "(int32_t *)f->written[0]"),
    ("sterna_select_get_dims", "dims", "(int64_t *)f->written[1]"),
    ("sterna_string_destroy", "string", "f->text"),
    ("sterna_custom_node_get_attr_f32", "name", "\"floats\""),
    ("sterna_custom_node_get_attr_s64", "name", "\"integers\""),
    ("sterna_custom_node_get_attr_str", "name", "\"text\""),
    ("sterna_custom_node_set_attr_f32", "value", "numbers"),
    ("sterna_custom_node_set_attr_s64", "value", "integers"),
    ("sterna_custom_node_set_attr_str", "value", "\"word\""),
    ("sterna_graph_builder_add_attention", "options", "&f->built_attention"),
    ("sterna_graph_builder_add_constant", "size", "24"),
    ("sterna_graph_builder_add_custom", "outputs", "f->out_desc"),
    ("sterna_graph_builder_add_op", "op", "f->bare"),
    ("sterna_model_create_from_source", "release", "NULL"),
    ("sterna_model_create_from_source", "source", "no_source"),
    ("sterna_session_create", "options", "&f->session_options"),
    ("sterna_session_run", "inputs", "&f->named_in"),
    ("sterna_session_run", "outputs", "&f->named_out"),
    ("sterna_session_run_new", "inputs", "&f->named_in"),
    ("sterna_session_state_create", "session", "f->stateful"),
    ("sterna_session_state_run", "session", "f->stateful"),
    ("sterna_session_state_run", "inputs", "&f->named_in"),
    ("sterna_session_state_run", "outputs", "&f->named_out"),
    ("sterna_session_state_run_new", "session", "f->stateful"),
    ("sterna_session_state_run_new", "inputs", "&f->named_in"),
    ("sterna_session_state_run_new", "output_num", "2"),
    ("sterna_session_state_set", "name", "\"past\""),
    ("sterna_session_state_set", "value", "&f->named_in.view"),
    ("*", "allocator", "f->allocator"),
    ("*", "apply_to_int", "1"),
    ("*", "attr", "STERNA_ATTR_AXIS"),
    ("*", "auto_broadcast", "\"numpy\""),
    ("*", "axis", "-1"),
    ("*", "capacity", "1024"),
    ("*", "cond", "&(const sterna_view_t){truth, STERNA_DATA_TYPE_BOOLEAN, 0, NULL, NULL}"),
    ("*", "data", "f->s.memory[DST]"),
    ("*", "data_type", "STERNA_DATA_TYPE_F32"),
    ("*", "dim_num", "1"),
    ("*", "dims", "two"),
    ("*", "dst", "&(const sterna_view_mut_t){f->written[2], STERNA_DATA_TYPE_F32, 1, two, NULL}"),
    ("*", "else_", "&(const sterna_view_t){numbers, STERNA_DATA_TYPE_F32, 0, NULL, NULL}"),
    ("*", "engine_kind", "STERNA_ENGINE_KIND_CPU"),
    ("*", "flag", "0"),
    ("*", "flags", "STERNA_STREAM_FLAG_IN_ORDER"),
    ("*", "free_fn", "free"),
    ("*", "handle", "NULL"),
    ("*", "id", "3"),
    ("*", "in_num", "3"),
    ("*", "index", "0"),
    ("*", "input", "&f->s.desc[COND]"),
    ("*", "input_dims", "&f->x_dims"),
    ("*", "input_num", "1"),
    ("*", "input_ports", "&f->input_port"),
    ("*", "input_values", "&f->value"),
    ("*", "inputs", "f->in"),
    ("*", "isa", "STERNA_CPU_ISA_DEFAULT"),
    ("*", "json", "f->json"),
    ("*", "layout_type", "STERNA_LAYOUT_TYPE_STRIDED"),
    ("*", "left", "&f->s.desc[THEN]"),
    ("*", "length", "strlen(f->json)"),
    ("*", "level", "0"),
    ("*", "logical_tensor", "&f->s.desc[DST]"),
    ("*", "malloc_fn", "NULL"),
    ("*", "name", "\"name\""),
    ("*", "ndims", "2"),
    ("*", "num", "1"),
    ("*", "num_inputs", "3"),
    ("*", "num_outputs", "1"),
    ("*", "op_id", "0"),
    ("*", "op_name", "\"domain::Name\""),
    ("*", "out_num", "1"),
    ("*", "output", "&f->s.desc[DST]"),
    ("*", "output_data_type", "STERNA_DATA_TYPE_UNDEF"),
    ("*", "output_num", "1"),
    ("*", "output_ports", "&f->output_port"),
    ("*", "outputs", "f->out"),
    ("*", "policy", "STERNA_PARTITION_POLICY_DEBUG"),
    ("*", "property", "STERNA_TENSOR_PROPERTY_VARIABLE"),
    ("*", "release", "NULL"),
    ("*", "right", "&f->s.desc[ELSE]"),
    ("*", "row_num", "0"),
    ("*", "size", "5"),
    ("*", "state_dims", "&f->past_dims"),
    ("*", "status", "0"),
    ("*", "strides", "two"),
    ("*", "then", "&(const sterna_view_t){numbers, STERNA_DATA_TYPE_F32, 1, two, NULL}"),
    ("*", "tensor_id", "0"),
    ("*", "user_data", "NULL"),
    ("*", "value", "f->value"),
    ("*", "value_len", "1"),
    ("*", "verbose_name", "\"name\""),
];

/// Good values of numbers that are named alike and mean different things, by type.
const GOOD_BY_TYPE: &[(&str, &str)] = &[
    ("sterna_accuracy_t", "STERNA_ACCURACY_EXACT"),
    ("sterna_dump_mode_t", "STERNA_DUMP_MODE_NONE"),
    ("sterna_engine_kind_t", "STERNA_ENGINE_KIND_CPU"),
    ("sterna_fallback_reason_t", "STERNA_FALLBACK_REASON_OTHER_OPS"),
    ("sterna_fast_form_t", "STERNA_FAST_FORM_ATTENTION"),
    ("sterna_fpmath_mode_t", "STERNA_FPMATH_MODE_BF16"),
    ("sterna_level_t", "STERNA_LEVEL_PORTABLE"),
    ("sterna_op_kind_t", "STERNA_OP_SELECT"),
    ("sterna_phase_kind_t", "STERNA_PHASE_KIND_MAP"),
];

/// Pointers that may be null.
const MAY_BE_NULL: &[(&str, &str)] = &[
    ("sterna_allocator_create", "free_fn"),
    ("sterna_allocator_create", "malloc_fn"),
    ("sterna_compiled_partition_execute_with_scratchpad", "scratchpad"),
    ("sterna_graph_add_attention", "op_num"),
    ("sterna_graph_add_attention", "tensor_num"),
    ("sterna_graph_add_attention_backward", "op_num"),
    ("sterna_graph_add_attention_backward", "tensor_num"),
    ("sterna_graph_builder_add_constant", "release"),
    ("sterna_graph_builder_add_constant", "user_data"),
    ("sterna_graph_to_json", "length"),
    ("sterna_model_create_from_source", "release"),
    ("sterna_model_create_from_source", "user_data"),
    ("sterna_model_set_constant", "release"),
    ("sterna_model_set_constant", "user_data"),
    ("sterna_select_get_dims", "auto_broadcast"),
    ("sterna_select_with", "auto_broadcast"),
    ("sterna_select_with", "engine"),
    ("sterna_session_create", "options"),
    ("sterna_tensor_create", "handle"),
    ("sterna_tensor_create_const", "handle"),
    ("sterna_tensor_set_data_handle", "handle"),
];

/// Numbers that no value is out of range for, or not this one.
const TAKES: &[(&str, &str, &[&str])] = &[
    ("sterna_compiled_partition_cache_set_capacity", "capacity", &["0x7fff"]),
    ("sterna_compiled_partition_count_mask_tiles", "num_inputs", &["3 - 1"]),
    ("sterna_constant_tensor_cache_set", "flag", &["0x7fff"]),
    ("sterna_custom_node_set_attr_f32", "value_len", &["1 - 1", "1 + 1"]),
    ("sterna_custom_node_set_attr_s64", "value_len", &["1 - 1", "1 + 1"]),
    ("sterna_graph_builder_add_custom", "input_num", &["1 - 1"]),
    ("sterna_graph_builder_add_custom", "output_num", &["1 - 1"]),
    ("sterna_graph_set_fpmath_mode", "apply_to_int", &["-1", "0x7fff"]),
    ("sterna_graph_set_rewrite", "is_on", &["-1", "0x7fff"]),
    ("sterna_model_create_from_source", "input_num", &["1 - 1"]),
    ("sterna_model_create_from_source", "output_num", &["1 - 1"]),
    ("sterna_model_create_with_ports", "input_num", &["1 - 1"]),
    ("sterna_model_create_with_ports", "output_num", &["1 - 1"]),
    ("sterna_op_set_attr_str", "value_len", &["SIZE_MAX", "SIZE_MAX - 7", "SIZE_MAX / 2 + 1", "1 + 1"]),
];

/// Numbers of operands and results that do not fit the kind of an op, which is a fault of the op.
const NO_OP: &[(&str, &str, &str)] = &[
    ("sterna_graph_builder_add_op", "input_num", "1 - 1"),
    ("sterna_graph_builder_add_op", "output_num", "1 - 1"),
];

/// Functions whose good call cannot succeed here: an engine is in use already.
const TOO_LATE: &[&str] = &["sterna_cpu_isa_set_max"];

struct Case {
    what: String,
    call: String,
    /// For functions that answer with a status.
    expected: Option<i32>,
    /// The object that the fixture does not own any more afterwards.
    given_away: Option<String>,
}

/// The value of a parameter in a good call; `None` where this file does not know one.
fn good(function: &Prototype, index: usize) -> Option<String> {
    let Parameter { r#type, name } = &function.parameters[index];
    let row =
        |wanted: &str| GOOD.iter().find(|(function, parameter, _)| *function == wanted && parameter == name);
    if let Some((.., value)) = row(&function.name) {
        return Some((*value).to_owned());
    }
    let plain = r#type.trim_start_matches("const ");
    if let Some((_, value)) = OBJECTS.iter().find(|(object, _)| *object == plain) {
        return Some((*value).to_owned());
    }
    let is_written = r#type.ends_with("**") || (r#type.ends_with('*') && !r#type.starts_with("const "));
    if is_written && r#type != "void *" && !r#type.contains("*const") {
        return Some(format!("({type})f->written[{}]", index % 4));
    }
    if let Some((_, value)) = GOOD_BY_TYPE.iter().find(|(known, _)| *known == r#type) {
        return Some((*value).to_owned());
    }
    row("*").map(|(.., value)| (*value).to_owned())
}

/// Values of a parameter that are wrong, each with what is wrong about it.
fn bad(function: &Prototype, parameter: &Parameter, good: &str) -> Vec<(String, String)> {
    let Parameter { r#type, name } = parameter;
    let mut rows = Vec::new();
    let mut push = |what: &str, value: String| rows.push((what.to_owned(), value));
    let plain = r#type.trim_start_matches("const ");
    let is_function = r#type.starts_with("sterna_allocator_")
        || ["sterna_release_t", "sterna_model_source_t"].contains(&r#type.as_str());
    let is_callback = is_function && !parameter.is_pointer();
    if parameter.is_pointer() || is_callback {
        push("null", "NULL".into());
    }
    if r#type.contains("*const *") {
        push("nulls", format!("({type})nulls"));
        push("not aligned", format!("({type})((uintptr_t){good} + 1)"));
    } else if plain == "sterna_logical_tensor_t *" && r#type.starts_with("const ") {
        (0..10).for_each(|i| push("no description", format!("&bad_desc[{i}]")));
    } else if plain == "char *" && r#type.starts_with("const ") {
        push("no UTF-8", "no_utf8".into());
    } else if plain == "sterna_profiler_t *" {
        push("without a function", "&(const sterna_profiler_t){NULL, NULL, f}".into());
    }
    let is_count = [
        "num",
        "in_num",
        "out_num",
        "num_inputs",
        "num_outputs",
        "input_num",
        "output_num",
        "value_len",
        "length",
    ];
    match r#type.as_str() {
        "size_t" if is_count.contains(&name.as_str()) => {
            for value in ["SIZE_MAX", "SIZE_MAX - 7", "SIZE_MAX / 2 + 1"] {
                push("too long", value.into());
            }
            push("too few", if name == "length" { format!("{good} - 2") } else { format!("{good} - 1") });
            if name == "num" || name == "value_len" {
                push("too many", format!("{good} + 1"));
            }
        }
        "size_t" if name == "index" => {
            push("no such index", "1".into());
            push("no such index", "SIZE_MAX".into());
        }
        "size_t"
            if ["op_id", "value"].contains(&name.as_str())
                || function.name.ends_with("query_logical_tensor") =>
        {
            push("no such id", "999".into());
            push("no such id", "SIZE_MAX".into());
        }
        "int32_t" => {
            for value in ["-2", "13", "0x7fff", "INT32_MIN"] {
                push("no rank", value.into());
            }
        }
        "sterna_stream_flags_t" => {
            for value in ["0", "8", "0x7fff", "(unsigned)-1"] {
                push("no flags", value.into());
            }
        }
        "int" => {
            push("out of range", "-1".into());
            push("out of range", "0x7fff".into());
        }
        number if number.starts_with("sterna_") && number.ends_with("_t") && !is_callback => {
            for value in ["-1", "0x7fff", "INT32_MIN", "INT32_MAX"] {
                push("no such number", value.into());
            }
        }
        _ => {}
    }
    rows
}

fn cases() -> Result<Vec<Case>, String> {
    let header = fs::read_to_string(header_path()).map_err(|error| error.to_string())?;
    let mut cases = Vec::new();
    for function in prototypes(&header) {
        let (name, parameters) = (&function.name, &function.parameters);
        let values: Vec<String> = (0..parameters.len())
            .map(|i| {
                good(&function, i)
                    .ok_or_else(|| format!("{name}: no good value is known for {:?}", parameters[i]))
            })
            .collect::<Result<_, _>>()?;
        let says_status = function.answer == "sterna_status_t";
        let answer = |status| says_status.then_some(status);
        let call = |values: &[String]| format!("{name}({})", values.join(", "));
        let destroys = name.ends_with("_destroy");
        cases.push(Case {
            what: format!("{name}: a good call"),
            call: call(&values),
            expected: answer(if TOO_LATE.contains(&name.as_str()) { INVALID_ARGUMENTS } else { SUCCESS }),
            given_away: destroys.then(|| values[0].clone()),
        });
        for (i, parameter) in parameters.iter().enumerate() {
            for (what, value) in bad(&function, parameter, &values[i]) {
                let key = (name.as_str(), parameter.name.as_str());
                let fine = (value == "NULL" && (destroys || MAY_BE_NULL.contains(&key)))
                    || TAKES.iter().any(|(f, p, values)| (*f, *p) == key && values.contains(&value.as_str()));
                let is_no_op = NO_OP.contains(&(key.0, key.1, value.as_str()));
                let refused = if is_no_op { INVALID_GRAPH_OP } else { INVALID_ARGUMENTS };
                let mut with_bad = values.clone();
                with_bad[i] = value;
                cases.push(Case {
                    what: format!("{name}: {} is {what}", parameter.name),
                    call: call(&with_bad),
                    expected: answer(if fine { SUCCESS } else { refused }),
                    given_away: None,
                });
            }
        }
    }
    Ok(cases)
}

/// A program that makes one call after the other, each on a fixture of its own, and says how it ended.
fn program(cases: &[Case]) -> String {
    let mut program = String::from("#include \"fixture.h\"\n\n");
    for (i, case) in cases.iter().enumerate() {
        let call = &case.call;
        let call = match case.expected {
            Some(_) => format!("int status = {call};"),
            None => format!("(void){call}; int status = 0;"),
        };
        let after = case.given_away.as_ref().map_or(String::new(), |object| format!(" {object} = NULL;"));
        writeln!(
            program,
            "static int case_{i}(struct fixture *f) {{ (void)f; {call}{after} return status; }}"
        )
        .unwrap();
    }
    program.push_str("\nstatic int (*const cases[])(struct fixture *) = {\n");
    (0..cases.len()).for_each(|i| writeln!(program, "case_{i},").unwrap());
    program.push_str(
        "};\n\nint main(void) {\n    make_bad_descs();\n    static struct fixture f;\n    \
         for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {\n        make(&f);\n        \
         printf(\"%zu \", i);\n        fflush(stdout);\n        int status = cases[i](&f);\n        \
         printf(\"%d %d %zu\\n\", status, is_written(&f), strlen(sterna_last_error_message()));\n        \
         destroy(&f);\n    }\n    return 0;\n}\n",
    );
    program
}

#[test]
fn bad_input_is_answered() {
    let cases = cases().unwrap();
    assert!(cases.len() > 400, "only {} calls were made up", cases.len());
    let folder = scratch_folder("bad_input");
    let (source, binary) = (folder.join("bad_input.c"), folder.join("bad_input"));
    fs::write(&source, program(&cases)).unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
    let mut flags = vec!["-I", fixture.to_str().unwrap()];
    if std::env::var_os("STERNA_TEST_TOOLS").is_some() {
        flags.extend(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
    }
    compile_with(&common::compiler(), &source, &binary, &flags).unwrap();
    // Good calls make objects that nobody destroys.
    let output =
        Command::new(&binary).current_dir(&folder).env("ASAN_OPTIONS", "detect_leaks=0").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);

    let mut wrong = Vec::new();
    let mut lines = text.lines();
    for (i, case) in cases.iter().enumerate() {
        let Some(line) = lines.next() else {
            wrong.push(format!("{}: {} did not come back", case.what, case.call));
            break;
        };
        let numbers: Vec<i64> = line.split(' ').map_while(|number| number.parse().ok()).collect();
        let [index, status, written, message] = numbers[..] else {
            wrong.push(format!("{}: {} did not come back: {line}", case.what, case.call));
            break;
        };
        assert_eq!(index, i as i64, "the program is one of these calls");
        let Some(expected) = case.expected else { continue };
        let failed = status != i64::from(SUCCESS);
        if status != i64::from(expected) || (failed && (written != 0 || message == 0)) {
            let say = if written != 0 { "something" } else { "nothing" };
            wrong.push(format!(
                "{}: {} answers {status}, not {expected}, and wrote {say}",
                case.what, case.call
            ));
        }
    }
    wrong.extend((!output.status.success()).then(|| {
        format!("the program ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr))
    }));
    report(&wrong);
}
