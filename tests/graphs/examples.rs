//! Promise: every example that is a program of its own does what it says. Those of attention and training
//! have tests of their own.

macro_rules! examples {
    ($($name:ident)*) => {
        #[path = "../../examples"]
        mod programs {
            $(pub(crate) mod $name;)*
        }

        #[test]
        fn every_example_runs() {
            $(
                if let Err(error) = programs::$name::main() {
                    panic!("{}: {error}", stringify!($name));
                }
            )*
        }

        const RUN: &[&str] = &[$(stringify!($name)),*];
    };
}

examples! { causal_mask decoder_layer dynamic_shapes masked_fill nan_to_num own_allocator padding_mask threads }

/// Examples whose checks are elsewhere: some are tests themselves, training has
/// `tests/attention/training.rs`.
const ELSEWHERE: [&str; 5] = ["attention", "continuous_batching", "custom_op", "kv_cache", "training"];

#[test]
fn no_example_is_forgotten() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let mut forgotten = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder of examples can be read") {
        let name = entry.expect("the folder can be read").file_name().into_string().expect("names are text");
        if let Some(name) = name.strip_suffix(".rs")
            && !RUN.contains(&name)
            && !ELSEWHERE.contains(&name)
        {
            forgotten.push(name.to_owned());
        }
    }
    assert!(forgotten.is_empty(), "no test runs {forgotten:?}");
}
