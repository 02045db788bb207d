//! Caches whose lengths are known when a model runs, and scores without a key, as ONNX Runtime has them.

use super::common::report;
use super::contributed_attention::Given::{Later, Nothing, Steps};
use super::contributed_attention::Number::Int;
use super::contributed_attention::{GROUPED, Given, Number, Row, row};

const HEADS: [(&str, Number); 2] = [("num_heads", Int(4)), ("kv_num_heads", Int(2))];
const NEW: [Given<'_>; 3] = [Steps(&[2, 1, 32]), Steps(&[2, 1, 16]), Steps(&[2, 1, 16])];
const PROMPT: [Given<'_>; 3] = [Steps(&[2, 3, 32]), Steps(&[2, 3, 16]), Steps(&[2, 3, 16])];
const ROOM: Given<'_> = Steps(&[2, 2, 6, 8]);
const LENGTHS: Given<'_> = Later(6, &[2], &[3, 1]);

const fn total(total: &'static [i64]) -> Given<'static> {
    Later(6, &[1], total)
}

/// Nodes, and the results of ONNX Runtime 1.32.
const ROWS: &[Row<'_>] = &[
    row(
        "keys and values in heads",
        "MultiHeadAttention",
        &[Steps(&[2, 2, 4]), Steps(&[2, 2, 3, 2]), Steps(&[2, 2, 3, 2])],
        &[("num_heads", Int(2))],
        &[(
            &[2, 2, 4],
            [1.16202, -0.337982, -1.26493, 0.562268, -0.330968, 0.730911, 0.549782, -0.950218, 5.19538],
        )],
    ),
    row(
        "lengths of their own",
        GROUPED,
        &[NEW[0], NEW[1], NEW[2], ROOM, ROOM, LENGTHS, total(&[4])],
        &HEADS,
        &[(
            &[2, 1, 32],
            [0.227982, -1.02584, 0.477982, -0.769569, -1.17443, 0.575571, -0.924429, 0.825571, 7.62368],
        )],
    ),
    row(
        "lengths of their own in a window",
        GROUPED,
        &[NEW[0], NEW[1], NEW[2], ROOM, ROOM, LENGTHS, total(&[4])],
        &[HEADS[0], HEADS[1], ("local_window_size", Int(2))],
        &[(
            &[2, 1, 32],
            [-0.163498, 0.497284, 0.0865022, 0.747284, -1.17443, 0.575571, -0.924429, 0.825571, 11.4783],
        )],
    ),
    row(
        "both directions",
        GROUPED,
        &[NEW[0], NEW[1], NEW[2], ROOM, ROOM, LENGTHS, total(&[4])],
        &[HEADS[0], HEADS[1], ("causal", Int(0))],
        &[(
            &[2, 1, 32],
            [0.227982, -1.02584, 0.477982, -0.769569, -1.17443, 0.575571, -0.924429, 0.825571, 7.62368],
        )],
    ),
    row(
        "a cache without room",
        GROUPED,
        &[
            NEW[0],
            NEW[1],
            NEW[2],
            Steps(&[2, 2, 3, 8]),
            Steps(&[2, 2, 3, 8]),
            Later(6, &[2], &[3, 3]),
            Given::Whole(6, &[1], &[4]),
        ],
        &HEADS,
        &[
            (
                &[2, 1, 32],
                [0.227982, -1.02584, 0.477982, -0.769569, -0.806149, 0.38116, -1.06362, 0.63116, 9.85012],
            ),
            (&[2, 2, 4, 8], [-1.0, 0.75, -0.75, 1.0, 0.5, -1.0, 0.75, -0.75, 7.5]),
            (&[2, 2, 4, 8], [0.25, -1.25, 0.5, -1.0, -1.5, 0.25, -1.25, 0.5, 32.0]),
        ],
    ),
    row(
        "a prompt in a cache",
        GROUPED,
        &[PROMPT[0], PROMPT[1], PROMPT[2], ROOM, ROOM, Later(6, &[2], &[2, 2]), total(&[3])],
        &HEADS,
        &[(&[2, 3, 32], [1.0, -0.5, 1.25, -0.25, 1.23072, 0.0549003, -1.36337, 0.3049, 35.8038])],
    ),
    row(
        "two keys",
        GROUPED,
        &[
            Steps(&[1, 2, 32]),
            Steps(&[1, 2, 16]),
            Steps(&[1, 2, 16]),
            Steps(&[1, 2, 6, 8]),
            Steps(&[1, 2, 6, 8]),
            Later(6, &[1], &[4]),
            total(&[5]),
        ],
        &HEADS,
        &[(
            &[1, 2, 32],
            [0.227982, -1.02584, 0.477982, -0.769569, -0.977608, 0.593452, -0.727608, 0.853618, 19.5593],
        )],
    ),
    row(
        "rotated",
        GROUPED,
        &[
            NEW[0],
            NEW[1],
            NEW[2],
            Steps(&[2, 1, 5, 16]),
            Steps(&[2, 1, 5, 16]),
            LENGTHS,
            total(&[4]),
            Steps(&[6, 8]),
            Steps(&[6, 8]),
        ],
        &[("num_heads", Int(2)), ("kv_num_heads", Int(1)), ("do_rotary", Int(1))],
        &[(
            &[2, 1, 32],
            [0.346105, -0.955285, 0.269012, -0.705285, -1.4452, 0.225647, -1.1952, 0.475647, 1.31161],
        )],
    ),
    row(
        "sinks",
        GROUPED,
        &[
            PROMPT[0],
            PROMPT[1],
            PROMPT[2],
            Nothing,
            Nothing,
            Later(6, &[2], &[2, 2]),
            total(&[3]),
            Nothing,
            Nothing,
            Nothing,
            Nothing,
            Steps(&[4]),
        ],
        &HEADS,
        &[(
            &[2, 3, 32],
            [0.461084, -0.230542, 0.576355, -0.115271, 0.986161, 0.0439911, -1.09245, 0.244313, 20.8479],
        )],
    ),
    row(
        "a share for no key",
        GROUPED,
        &[PROMPT[0], PROMPT[1], PROMPT[2], Nothing, Nothing, Later(6, &[2], &[2, 2]), total(&[3])],
        &[HEADS[0], HEADS[1], ("smooth_softmax", Int(1))],
        &[(
            &[2, 3, 32],
            [0.287823, -0.143912, 0.359779, -0.0719558, 1.14908, 0.0512584, -1.27292, 0.284674, 23.574],
        )],
    ),
];

#[test]
fn results_are_those_of_onnx_runtime() {
    let fault = |row: &Row<'_>| Some(format!("{}: {}", row.name, row.fault()?));
    let wrong: Vec<String> = ROWS.iter().filter_map(fault).collect();
    report(&wrong);
}
