//! Promise: attention of one tensor, embeddings with their norm and lookups of few bits of ONNX Runtime give
//! what ONNX Runtime gives; what is not mapped of them is refused by the name of the input or attribute.

use super::bytes::{int, ints};
use super::common::report;
use super::contributed_attention::{Given, Number, Refused, Row, check_refused, row};

use Given::{Eight, Nothing, One, Steps, Whole};
use Number::{Int, Ints, Real};

const PACKED: &str = "Attention";
const OF_EIGHT_BITS: &str = "QAttention";
const EMBEDDINGS: &str = "EmbedLayerNormalization";
const BLOCKS: &str = "GatherBlockQuantized";

/// Nodes, and the results of ONNX Runtime 1.32.
const ROWS: &[Row<'_>] = &[
    row(
        "one tensor",
        PACKED,
        &[Steps(&[2, 3, 4]), Steps(&[4, 12]), Steps(&[12])],
        &[("num_heads", Int(2))],
        &[(
            &[2, 3, 4],
            [-2.56911, 0.264803, -3.87168, 0.937689, -1.67868, 0.053435, 0.683206, 0.475349, -33.4734],
        )],
    ),
    row(
        "no bias and a scale",
        PACKED,
        &[Steps(&[2, 3, 4]), Steps(&[4, 12])],
        &[("num_heads", Int(2)), ("scale", Real(0.3))],
        &[(
            &[2, 3, 4],
            [-1.99251, 1.5174, -2.83772, -0.0405697, -0.346983, -0.522803, 0.738497, -0.72852, -25.4349],
        )],
    ),
    row(
        "ends",
        PACKED,
        &[Steps(&[2, 3, 4]), Steps(&[4, 12]), Steps(&[12]), Whole(6, &[2], &[2, 1])],
        &[("num_heads", Int(2))],
        &[(&[2, 3, 4], [-3.77471, 3.26307, -3.87189, 0.937155, 0.625, -2.5625, 0.3125, 0.5625, -38.1265])],
    ),
    row(
        "ends and starts",
        PACKED,
        &[Steps(&[2, 3, 4]), Steps(&[4, 12]), Steps(&[12]), Whole(6, &[4], &[3, 2, 1, 0])],
        &[("num_heads", Int(2))],
        &[(
            &[2, 3, 4],
            [-2.4884, 0.107163, -3.31222, 0.876078, 0.707184, -2.39813, 0.828495, 0.505167, -31.0624],
        )],
    ),
    row(
        "ends and sums of lengths",
        PACKED,
        &[Steps(&[2, 3, 4]), Steps(&[4, 12]), Steps(&[12]), Whole(6, &[8], &[2, 1, 0, 2, 3, 0, 2, 3])],
        &[("num_heads", Int(2))],
        &[(&[2, 3, 4], [-3.77471, 3.26307, -3.87189, 0.937155, 0.625, -2.5625, 0.3125, 0.5625, -38.1265])],
    ),
    row(
        "a mask",
        PACKED,
        &[Steps(&[2, 3, 4]), Steps(&[4, 12]), Steps(&[12]), Whole(6, &[2, 3], &[1, 0, 1, 1, 1, 0])],
        &[("num_heads", Int(2))],
        &[(
            &[2, 3, 4],
            [-2.52477, 0.112047, -4.43694, 1.00106, 0.707184, -2.39813, 0.828495, 0.505167, -36.8344],
        )],
    ),
    row(
        "a mask and addends",
        PACKED,
        &[
            Steps(&[2, 3, 4]),
            Steps(&[4, 12]),
            Steps(&[12]),
            Whole(6, &[2, 3, 3], &[1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1]),
            Nothing,
            Steps(&[2, 2, 3, 3]),
        ],
        &[("num_heads", Int(2))],
        &[(
            &[2, 3, 4],
            [-3.2681, 1.5987, -4.43658, 1.00175, -1.68231, 0.0566106, 0.301086, 0.55933, -39.0749],
        )],
    ),
    row(
        "values of another width",
        PACKED,
        &[Steps(&[2, 3, 4]), Steps(&[4, 14]), Steps(&[14])],
        &[("num_heads", Int(2)), ("qkv_hidden_sizes", Ints(&[4, 4, 6]))],
        &[(
            &[2, 3, 6],
            [-0.60564, 1.39003, -0.522528, 0.249411, -2.05048, 2.32603, -0.139876, 2.40938, -3.33861],
        )],
    ),
    row(
        "one direction behind others",
        PACKED,
        &[
            Steps(&[2, 3, 4]),
            Steps(&[4, 12]),
            Steps(&[12]),
            Whole(6, &[2, 5], &[1, 1, 0, 1, 1, 0, 1, 1, 1, 1]),
            Steps(&[2, 2, 2, 2, 2]),
        ],
        &[("num_heads", Int(2)), ("unidirectional", Int(1))],
        &[
            (
                &[2, 3, 4],
                [-0.622238, 1.12776, 0.0811948, -0.321571, -0.09311, -0.471089, 0.730369, 0.414994, -14.0505],
            ),
            (&[2, 2, 2, 5, 2], [0.25, -1.25, 0.5, -1.0, 1.4375, 0.4375, -1.9375, -0.0625, -26.6875]),
        ],
    ),
    row(
        "one direction",
        PACKED,
        &[Steps(&[2, 3, 4]), Steps(&[4, 12]), Steps(&[12])],
        &[("num_heads", Int(2)), ("unidirectional", Int(1))],
        &[
            (&[2, 3, 4], [-3.9375, 2.9375, -4.4375, 1.0, -1.67868, 0.053435, 0.683206, 0.475349, -37.7786]),
            (&[2, 2, 2, 3, 2], [-0.3125, 3.625, -1.0625, 3.125, 1.4375, 0.4375, -1.9375, -0.0625, -13.8125]),
        ],
    ),
    row(
        "bytes",
        OF_EIGHT_BITS,
        &[Eight(2, &[2, 3, 4]), Eight(3, &[4, 12]), Steps(&[12]), One(0.02), One(0.015), Nothing, Nothing],
        &[("num_heads", Int(2))],
        &[(
            &[2, 3, 4],
            [-7.30696, -2.5123, -1.7836, 6.46551, -10.6196, -2.2189, -8.8207, -1.65911, -162.248],
        )],
    ),
    row(
        "bytes with a mask",
        OF_EIGHT_BITS,
        &[
            Eight(2, &[2, 3, 4]),
            Eight(3, &[4, 12]),
            Steps(&[12]),
            One(0.02),
            One(0.015),
            Whole(6, &[2], &[2, 1]),
        ],
        &[("num_heads", Int(2)), ("unidirectional", Int(1))],
        &[(&[2, 3, 4], [-6.8666, -2.5969, -1.5217, 2.9425, -0.7583, 6.7979, -4.0393, 3.4219, -26.4821])],
    ),
    row(
        "words alone",
        EMBEDDINGS,
        &[
            Whole(6, &[5, 3], &[1, 4, 0, 2, 2, 3, 0, 0, 1, 4, 4, 4, 2, 1, 0]),
            Nothing,
            Steps(&[5, 4]),
            Steps(&[6, 4]),
            Nothing,
            Steps(&[4]),
            Steps(&[4]),
        ],
        &[("epsilon", Real(0.01))],
        &[
            (&[5, 3, 4], [-0.01952, 1.25, 2.28968, 1.71736, 0.706977, 1.25, -1.96518, 1.32001, 89.6146]),
            (&[5], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
        ],
    ),
    row(
        "words, places, segments and a mask",
        EMBEDDINGS,
        &[
            Whole(6, &[5, 3], &[1, 4, 0, 2, 2, 3, 0, 0, 1, 4, 4, 4, 2, 1, 0]),
            Whole(6, &[5, 3], &[0, 1, 1, 0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 1]),
            Steps(&[5, 4]),
            Steps(&[6, 4]),
            Steps(&[2, 4]),
            Steps(&[4]),
            Steps(&[4]),
            Whole(6, &[5, 3], &[1, 1, 0, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 1, 0]),
            Whole(6, &[5, 3], &[3, 4, 5, 0, 2, 1, 1, 1, 1, 5, 4, 3, 0, 1, 2]),
        ],
        &[("epsilon", Real(0.01))],
        &[
            (&[5, 3, 4], [1.8559, 1.25, -0.414365, 1.34477, 0.717022, 1.25, -1.97062, 1.31115, 95.9256]),
            (&[5], [2.0, 3.0, 0.0, 1.0, 3.0, 0.0, 1.0, 2.0, 22.0]),
            (&[5, 3, 4], [2.5, -2.0, 0.0, -1.25, 1.75, -2.75, 2.5, -1.75, -22.0]),
        ],
    ),
    row(
        "8 bits",
        BLOCKS,
        &[Eight(2, &[5, 16]), Whole(7, &[2, 2], &[1, 4, 0, 3]), Steps(&[5, 1])],
        &[("bits", Int(8)), ("block_size", Int(16)), ("quantize_axis", Int(1)), ("gather_axis", Int(0))],
        &[(&[2, 2, 16], [19.0, 0.5, -18.0, -36.5, -21.0, -30.25, 23.25, 14.0, -1674.75])],
    ),
    row(
        "4 bits",
        BLOCKS,
        &[Eight(2, &[5, 8]), Whole(7, &[2, 2], &[1, 4, 0, 3]), Steps(&[5, 1])],
        &[("bits", Int(4)), ("block_size", Int(16)), ("quantize_axis", Int(1)), ("gather_axis", Int(0))],
        &[(&[2, 2, 16], [-2.5, 3.0, 3.0, 1.5, -0.5, 0.5, -1.75, -0.0, 22.75])],
    ),
    row(
        "8 bits and zero points",
        BLOCKS,
        &[Eight(2, &[5, 16]), Whole(7, &[2, 2], &[1, 4, 0, 3]), Steps(&[5, 1]), Eight(2, &[5, 1])],
        &[("bits", Int(8)), ("block_size", Int(16)), ("quantize_axis", Int(1)), ("gather_axis", Int(0))],
        &[(&[2, 2, 16], [-10.0, -28.5, -47.0, -65.5, -17.0, -26.25, 27.25, 18.0, -1989.25])],
    ),
    row(
        "4 bits and zero points",
        BLOCKS,
        &[Eight(2, &[5, 8]), Whole(7, &[2, 2], &[1, 4, 0, 3]), Steps(&[5, 1]), Eight(2, &[5, 1])],
        &[("bits", Int(4)), ("block_size", Int(16)), ("quantize_axis", Int(1)), ("gather_axis", Int(0))],
        &[(&[2, 2, 16], [-3.5, 2.0, 2.0, 0.5, -2.5, -1.5, -3.75, -2.0, 426.25])],
    ),
    row(
        "4 bits, two blocks",
        BLOCKS,
        &[Eight(2, &[5, 16]), Whole(7, &[2, 2], &[1, 4, 0, 3]), Steps(&[5, 2])],
        &[("bits", Int(4)), ("block_size", Int(16)), ("quantize_axis", Int(1)), ("gather_axis", Int(0))],
        &[(&[2, 2, 32], [2.5, -3.75, 8.75, -1.25, -1.25, -1.5, 0.0, -1.0, 142.5])],
    ),
    row(
        "4 bits, two blocks and zero points",
        BLOCKS,
        &[Eight(2, &[5, 16]), Whole(7, &[2, 2], &[1, 4, 0, 3]), Steps(&[5, 2]), Eight(2, &[5, 1])],
        &[("bits", Int(4)), ("block_size", Int(16)), ("quantize_axis", Int(1)), ("gather_axis", Int(0))],
        &[(&[2, 2, 32], [5.0, -1.25, 11.25, 1.25, -1.5, -1.75, -0.25, -1.25, -407.0])],
    ),
];

#[test]
fn nodes_give_what_onnx_runtime_gives() {
    let wrong: Vec<String> =
        ROWS.iter().filter_map(|row| row.fault().map(|fault| format!("{}: {fault}", row.name))).collect();
    report(&wrong);
}

#[test]
fn what_is_not_mapped_is_named() {
    let heads = || vec![int("num_heads", 2)];
    let and = |more: Vec<u8>| [heads(), vec![more]].concat();
    let three = [Steps(&[2, 3, 4]), Steps(&[4, 12]), Steps(&[12])];
    let with = |more: &[Given<'static>]| [&three[..], more].concat();
    let bytes = [Eight(2, &[2, 3, 4]), Eight(3, &[4, 12]), Steps(&[12]), One(0.5)];
    let quantized = |more: &[Given<'static>]| [&bytes[..], more].concat();
    let words = [Whole(6, &[2, 3], &[0; 6]), Nothing, Steps(&[5, 4]), Steps(&[2, 4]), Nothing];
    let embedded = |more: &[Given<'static>]| [&words[..], more].concat();
    let norm = [Steps(&[4]), Steps(&[4])];
    let rows = [Eight(2, &[5, 8]), Whole(7, &[2], &[0, 1]), Steps(&[5, 1])];
    let blocks = |more: Vec<u8>| vec![int("block_size", 16), more];
    let table: Vec<Refused<'_>> = vec![
        (PACKED, three.to_vec(), vec![], "attribute `num_heads` is missing"),
        (PACKED, three.to_vec(), vec![int("num_heads", 3)], "attribute `num_heads`"),
        (PACKED, three.to_vec(), and(int("do_rotary", 1)), "attribute `do_rotary`"),
        (PACKED, three.to_vec(), and(ints("qkv_hidden_sizes", &[4, 4])), "attribute `qkv_hidden_sizes`"),
        (PACKED, three.to_vec(), and(ints("qkv_hidden_sizes", &[6, 2, 4])), "attribute `qkv_hidden_sizes`"),
        (PACKED, vec![Steps(&[2, 3, 2, 2]), three[1]], heads(), "`input`"),
        (PACKED, with(&[Whole(6, &[2, 1, 5, 5], &[0; 50])]), heads(), "`mask_index`"),
        (PACKED, with(&[Nothing, Steps(&[2, 2, 4, 2])]), heads(), "`past`"),
        (PACKED, with(&[Nothing, Steps(&[2, 2, 2, 2, 3])]), heads(), "`past`"),
        (PACKED, with(&[Nothing, Nothing, Steps(&[2, 3])]), heads(), "`attention_bias`"),
        (PACKED, with(&[Nothing, Nothing, Nothing, Whole(6, &[1], &[1])]), heads(), "`past_sequence_length`"),
        (OF_EIGHT_BITS, quantized(&[Steps(&[2])]), heads(), "`weight_scale`"),
        (OF_EIGHT_BITS, [&[Steps(&[2, 3, 4])], &quantized(&[One(0.5)])[1..]].concat(), heads(), "`input`"),
        (OF_EIGHT_BITS, quantized(&[One(0.5), Nothing, Eight(3, &[])]), heads(), "`input_zero_point`"),
        (EMBEDDINGS, embedded(&norm), vec![], "`position_embedding`"),
        (EMBEDDINGS, [&[Whole(6, &[6], &[0; 6])], &embedded(&norm)[1..]].concat(), vec![], "`input_ids`"),
        (BLOCKS, rows.to_vec(), blocks(int("bits", 2)), "attribute `bits`"),
        (BLOCKS, rows.to_vec(), blocks(int("gather_axis", 1)), "attribute `gather_axis`"),
        (BLOCKS, rows.to_vec(), blocks(int("quantize_axis", 0)), "attribute `quantize_axis`"),
        (BLOCKS, rows.to_vec(), vec![int("block_size", 0)], "attribute `block_size`"),
        (BLOCKS, rows.to_vec(), vec![int("block_size", 8)], "`scales`"),
        (BLOCKS, [&rows[..], &[Eight(2, &[5, 2])]].concat(), blocks(int("bits", 4)), "`zero_points`"),
        (BLOCKS, [&rows[..], &[Eight(3, &[5, 1])]].concat(), blocks(int("bits", 4)), "`zero_points`"),
    ];
    check_refused(table);
}
