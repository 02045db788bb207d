//! Ops of the domain `com.microsoft`, which ONNX Runtime puts in place of several of ONNX.

mod attention;
mod cache;
mod embeddings;
mod integers;
mod norms;
mod quantized;
mod rotary;

use sterna::{Attr, AttrValue, DataType, OpKind, TensorId};

use super::arithmetic::{floats, leaky_relu};
use super::call::Call;
use super::node_row::{Contents, Mapping, NodeMap, NodeRow, row};
use super::{recurrent, rows};
use crate::compose::stored;
use crate::constant::Constant;
use crate::error::Fault;
use crate::weights::room;

use Contents::{Float, Int, Ints, Text};
use DataType as D;
use OpKind as K;

const EPSILON: &[(&str, Contents)] = &[("epsilon", Float)];

const MULTI_HEAD: &[&str] = &[
    "query",
    "key",
    "value",
    "bias",
    "key_padding_mask",
    "attention_bias",
    "past_key",
    "past_value",
    "past_sequence_length",
    "cache_indirection",
];
const GROUPED: &[&str] = &[
    "query",
    "key",
    "value",
    "past_key",
    "past_value",
    "seqlens_k",
    "total_sequence_length",
    "cos_cache",
    "sin_cache",
    "position_ids",
    "attention_bias",
    "head_sink",
    "k_scale",
    "v_scale",
    "q_norm_weight",
    "k_norm_weight",
    "query_seqlens",
];
const HOW_GROUPED: &[(&str, Contents)] = &[
    ("causal", Int),
    ("do_rotary", Int),
    ("k_norm_epsilon", Float),
    ("k_quant_type", Text),
    ("kv_cache_bit_width", Int),
    ("kv_num_heads", Int),
    ("local_window_size", Int),
    ("num_heads", Int),
    ("q_norm_epsilon", Float),
    ("qk_norm_epsilon", Float),
    ("qk_output", Int),
    ("rotary_interleaved", Int),
    ("scale", Float),
    ("sliding_window_cache", Int),
    ("smooth_softmax", Int),
    ("softcap", Float),
    ("v_quant_type", Text),
];

const PACKED: &[(&str, Contents)] = &[
    ("do_rotary", Int),
    ("mask_filter_value", Float),
    ("num_heads", Int),
    ("past_present_share_buffer", Int),
    ("qkv_hidden_sizes", Ints),
    ("rotary_embedding_dim", Int),
    ("scale", Float),
    ("unidirectional", Int),
];

const HOW_AVERAGED: &[(&str, Contents)] = &[
    ("auto_pad", Text),
    ("ceil_mode", Int),
    ("channels_last", Int),
    ("count_include_pad", Int),
    ("kernel_shape", Ints),
    ("pads", Ints),
    ("strides", Ints),
];

/// Data, result, and what makes numbers of them.
const OF_EIGHT_BITS: &[&str] = &["X", "X_scale", "X_zero_point", "Y_scale", "Y_zero_point"];
const TWO_OF_EIGHT_BITS: &[&str] =
    &["A", "A_scale", "A_zero_point", "B", "B_scale", "B_zero_point", "C_scale", "C_zero_point"];

/// An op on one tensor in 8 bits.
const fn of_eight_bits(
    name: &'static str,
    attributes: &'static [(&'static str, Contents)],
    map: Mapping,
) -> NodeRow {
    row(name, OF_EIGHT_BITS, attributes, NodeMap::By(map)).least(4).gaps(&[2])
}

/// The types that are mapped, by name.
pub(super) const ROWS: &[NodeRow] = &[
    row(
        "Attention",
        &["input", "weights", "bias", "mask_index", "past", "attention_bias", "past_sequence_length"],
        PACKED,
        NodeMap::Several(attention::packed),
    )
    .least(2)
    .outputs(2),
    row("BiasGelu", &["A", "B"], &[], NodeMap::By(|node| gelu(node, "gelu_erf"))),
    row(
        "DynamicQuantizeLSTM",
        recurrent::OF_QUANTIZED_CELLS,
        recurrent::OF_LSTM,
        NodeMap::Several(recurrent::quantized_lstm),
    )
    .gaps(&[3, 4, 5, 6, 7])
    .outputs(3),
    row(
        "DynamicQuantizeMatMul",
        &["A", "B", "b_scale", "b_zero_point", "bias"],
        &[],
        NodeMap::By(integers::of_floats),
    )
    .least(3),
    row(
        "EmbedLayerNormalization",
        &[
            "input_ids",
            "segment_ids",
            "word_embedding",
            "position_embedding",
            "segment_embedding",
            "gamma",
            "beta",
            "mask",
            "position_ids",
        ],
        &[("epsilon", Float), ("mask_index_type", Int)],
        NodeMap::Several(embeddings::normalized),
    )
    .least(7)
    .gaps(&[1, 4, 6])
    .outputs(3),
    row("FastGelu", &["X", "bias"], &[], NodeMap::By(|node| gelu(node, "gelu_tanh"))).least(1),
    row(
        "FusedMatMul",
        &["A", "B"],
        &[("alpha", Float), ("transA", Int), ("transB", Int), ("transBatchA", Int), ("transBatchB", Int)],
        NodeMap::By(fused_matmul),
    ),
    row(
        "GatherBlockQuantized",
        &["data", "indices", "scales", "zero_points"],
        &[("bits", Int), ("block_size", Int), ("gather_axis", Int), ("quantize_axis", Int)],
        NodeMap::By(quantized::gather),
    )
    .least(3),
    row("Gelu", &["X"], &[], NodeMap::By(|node| gelu(node, "gelu_erf"))),
    row("GroupQueryAttention", GROUPED, HOW_GROUPED, NodeMap::Several(attention::grouped))
        .least(1)
        .outputs(3),
    row(
        "MatMulIntegerToFloat",
        &["A", "B", "a_scale", "b_scale", "a_zero_point", "b_zero_point", "bias"],
        &[],
        NodeMap::By(integers::to_float),
    )
    .least(4),
    row(
        "MatMulNBits",
        &["A", "B", "scales", "zero_points", "g_idx", "bias"],
        &[("K", Int), ("N", Int), ("accuracy_level", Int), ("bits", Int), ("block_size", Int)],
        NodeMap::By(matmul_of_few_bits),
    )
    .least(3),
    row(
        "MultiHeadAttention",
        MULTI_HEAD,
        &[("mask_filter_value", Float), ("num_heads", Int), ("scale", Float), ("unidirectional", Int)],
        NodeMap::Several(attention::multi_head),
    )
    .least(1)
    .outputs(3),
    row(
        "QAttention",
        &[
            "input",
            "weight",
            "bias",
            "input_scale",
            "weight_scale",
            "mask_index",
            "input_zero_point",
            "weight_zero_point",
            "past",
        ],
        PACKED,
        NodeMap::Several(attention::quantized),
    )
    .least(5)
    .outputs(2),
    row(
        "QGemm",
        &["A", "a_scale", "a_zero_point", "B", "b_scale", "b_zero_point", "C", "y_scale", "y_zero_point"],
        &[("alpha", Float), ("transA", Int), ("transB", Int)],
        NodeMap::By(quantized::gemm),
    )
    .least(5)
    .gaps(&[2]),
    row("QLinearAdd", TWO_OF_EIGHT_BITS, &[], NodeMap::By(|node| quantized::pair(node, K::Add)))
        .least(7)
        .gaps(&[2, 5]),
    of_eight_bits("QLinearAveragePool", HOW_AVERAGED, quantized::mean_of_windows),
    row(
        "QLinearConcat",
        &["Y_scale", "Y_zero_point", "inputs"],
        &[("axis", Int)],
        NodeMap::By(quantized::concat),
    )
    .variadic(),
    of_eight_bits("QLinearGlobalAveragePool", &[("channels_last", Int)], quantized::mean_of_channels),
    of_eight_bits("QLinearLeakyRelu", &[("alpha", Float)], |node| quantized::unary(node, leaky_relu)),
    row("QLinearMul", TWO_OF_EIGHT_BITS, &[], NodeMap::By(|node| quantized::pair(node, K::Multiply)))
        .least(7)
        .gaps(&[2, 5]),
    of_eight_bits("QLinearReduceMean", &[("axes", Ints), ("keepdims", Int)], quantized::mean),
    of_eight_bits("QLinearSigmoid", &[], |node| {
        quantized::unary(node, |node| node.steps.same(K::Sigmoid, node.input(0)))
    }),
    of_eight_bits("QLinearSoftmax", &[("axis", Int), ("opset", Int)], quantized::softmax),
    row(
        "QLinearWhere",
        &[
            "condition",
            "X",
            "x_scale",
            "x_zero_point",
            "Y",
            "y_scale",
            "y_zero_point",
            "z_scale",
            "z_zero_point",
        ],
        &[],
        NodeMap::By(quantized::choice),
    )
    .least(8)
    .gaps(&[3, 6]),
    row("QuickGelu", &["X"], &[("alpha", Float)], NodeMap::By(quick_gelu)),
    row(
        "RotaryEmbedding",
        &["input", "position_ids", "cos_cache", "sin_cache"],
        &[
            ("interleaved", Int),
            ("is_packed_batching", Int),
            ("num_heads", Int),
            ("rotary_embedding_dim", Int),
            ("scale", Float),
        ],
        NodeMap::By(rotary::embedding),
    ),
    row(
        "SimplifiedLayerNormalization",
        &["X", "scale"],
        &[("axis", Int), ("epsilon", Float), ("stash_type", Int)],
        NodeMap::By(rows::rms_normalization),
    ),
    row(
        "SkipLayerNormalization",
        &["input", "skip", "gamma", "beta", "bias"],
        EPSILON,
        NodeMap::Several(|node| norms::skip_norm(node, Some(3), 4)),
    )
    .least(3)
    .outputs(4),
    row(
        "SkipSimplifiedLayerNormalization",
        &["input", "skip", "gamma", "bias"],
        EPSILON,
        NodeMap::Several(|node| norms::skip_norm(node, None, 3)),
    )
    .least(3)
    .outputs(4),
];

/// GELU of the data, or of its sum with a bias.
fn gelu(node: &mut Call<'_, '_>, mode: &'static str) -> Result<TensorId, Fault> {
    let (mut x, data_type) = (node.input(0), floats(node)?);
    let attrs = [(Attr::Mode, mode.into())];
    let Some(bias) = node.optional(1) else { return node.steps.emit(K::GELU, &attrs, &[x], data_type) };
    node.one_type(0, 1)?;
    x = node.steps.emit(K::Add, &[], &[x, bias], D::F32)?;
    let result = node.steps.emit(K::GELU, &attrs, &[x], D::F32)?;
    node.steps.cast(result, data_type)
}

/// `x · σ(alpha · x)`.
fn quick_gelu(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let (x, data_type) = (node.input(0), floats(node)?);
    let alpha = node.steps.number(D::F32, node.float("alpha", 1.702).into())?;
    let scaled = node.steps.emit(K::Multiply, &[], &[x, alpha], D::F32)?;
    let factor = node.steps.same(K::Sigmoid, scaled)?;
    node.steps.emit(K::Multiply, &[], &[x, factor], data_type)
}

/// `alpha · A · B`, either of them transposed.
fn fused_matmul(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let (data_type, alpha) = (floats(node)?, node.float("alpha", 1.0));
    node.one_type(0, 1)?;
    let mut operands = [node.input(0), node.input(1)];
    for (input, name) in ["transBatchA", "transBatchB"].into_iter().enumerate() {
        let rank = node.rank(input)? as i64;
        if node.flag(name, false) && rank > 2 {
            // The rows stand in front of the batch.
            let order: Vec<i64> = (1..rank - 1).chain([0, rank - 1]).collect();
            operands[input] = node.steps.transposed(operands[input], &order)?;
        }
    }
    let attrs: [(Attr, AttrValue); 2] = [
        (Attr::TransposeA, node.flag("transA", false).into()),
        (Attr::TransposeB, node.flag("transB", false).into()),
    ];
    if alpha == 1.0 {
        return node.steps.emit_declared(K::MatMul, &attrs, &operands, data_type);
    }
    let product = node.steps.emit_declared(K::MatMul, &attrs, &operands, D::F32)?;
    let alpha = node.steps.number(D::F32, alpha.into())?;
    let product = node.steps.both(K::Multiply, product, alpha)?;
    node.steps.cast(product, data_type)
}

/// The product by weights of 4 or 8 bits, a row for each column of the result, in blocks with a scale and a
/// zero point each.
fn matmul_of_few_bits(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let data_type = floats(node)?;
    let (depth, columns) = (node.int("K", 0), node.int("N", 0));
    let (bits, block) = (node.int("bits", 4), node.int("block_size", 0));
    let least = |name: &str, value: i64| match value {
        1..=0x7fff_ffff => Ok(()),
        _ => Err(Fault::of_attribute(name, "a number from 1 on")),
    };
    least("K", depth)?;
    least("N", columns)?;
    least("block_size", block)?;
    if !matches!(bits, 2 | 4 | 8) || block * bits % 8 != 0 {
        return Err(Fault::of_attribute("bits", "2, 4 or 8, and blocks of whole bytes"));
    }
    if node.optional(4).is_some() {
        return Err(node.unfit(4, "no order of groups"));
    }
    let blocks = (depth + block - 1) / block;
    let needed = [columns, blocks, block * bits / 8];
    let own = node.known_dims(1, "known dims, which are those of the weights")?;
    if own != needed || node.data_type(1) != D::U8 {
        return Err(
            node.unfit(1, format!("u8 of {columns} columns, {blocks} blocks and {} bytes", needed[2]))
        );
    }
    let per_block = [columns, blocks];
    if node.known_dims(2, "known dims")?.iter().product::<i64>() != columns * blocks {
        return Err(node.unfit(2, "a scale for each block of each column"));
    }
    let scales = node.steps.in_shape(node.input(2), &per_block)?;
    let apart = node.optional(3).filter(|points| node.steps.builder.data_type(*points) != D::U8);
    let points = match apart {
        Some(_) => each_point(node, per_block, 0)?,
        None => zero_points(node, per_block, bits)?,
    };
    let laid_out = [columns, blocks * block];
    let weights = match bits {
        8 => node.steps.in_shape(node.input(1), &laid_out)?,
        _ => {
            let value = node.value(1, "a constant of several weights in a byte")?;
            let value = match bits {
                4 => value.retyped(D::U4, &laid_out)?,
                _ => Constant::new(D::U4, &laid_out, in_nibbles(value.bytes())?)?,
            };
            stored(node.steps.builder, value)?
        }
    };
    let attrs: [(Attr, AttrValue); 2] =
        [(Attr::Qtype, "per_group".into()), (Attr::GroupShape, vec![1, block].into())];
    let result = node.steps.builder.data_type(scales);
    let operands = [weights, scales, points];
    let mut weights = node.steps.emit(K::DynamicDequantize, &attrs, &operands, result)?;
    if let Some(points) = apart {
        weights = less(node, weights, points, scales, [columns, blocks, block])?;
    }
    if blocks * block != depth {
        weights = node.steps.part(weights, 1, [0, depth])?;
    }
    let mut operands = vec![node.input(0), node.steps.cast(weights, data_type)?];
    operands.extend(node.optional(5));
    let attrs = [(Attr::TransposeB, true.into())];
    node.steps.emit_declared(K::MatMul, &attrs, &operands, data_type)
}

/// Numbers of two bits as numbers of four.
fn in_nibbles(bytes: &[u8]) -> Result<Vec<u8>, Fault> {
    let mut nibbles = room(bytes.len().saturating_mul(2))?;
    let pair = |bits: u8| bits & 3 | (bits >> 2 & 3) << 4;
    nibbles.extend(bytes.iter().flat_map(|&byte| [pair(byte), pair(byte >> 4)]));
    Ok(nibbles)
}

/// Weights {columns, blocks · block} less zero points that are floats, times the scales.
fn less(
    node: &mut Call<'_, '_>,
    weights: TensorId,
    points: TensorId,
    scales: TensorId,
    [columns, blocks, block]: [i64; 3],
) -> Result<TensorId, Fault> {
    node.one_type(2, 3)?;
    if node.known_dims(3, "known dims")?.iter().product::<i64>() != columns * blocks {
        return Err(node.unfit(3, "a zero point for each block of each column"));
    }
    let points = node.steps.in_shape(points, &[columns, blocks, 1])?;
    let scales = node.steps.in_shape(scales, &[columns, blocks, 1])?;
    let shifts = node.steps.both(K::Multiply, points, scales)?;
    let apart = node.steps.in_shape(weights, &[columns, blocks, block])?;
    let moved = node.steps.both(K::Subtract, apart, shifts)?;
    node.steps.in_shape(moved, &[columns, blocks * block])
}

/// One zero point for each block of each column.
fn each_point(node: &mut Call<'_, '_>, dims: [i64; 2], point: u8) -> Result<TensorId, Fault> {
    let count = (dims[0] * dims[1]) as usize;
    stored(node.steps.builder, Constant::from_slice(&dims, &vec![point; count])?)
}

/// The zero point of each block of each column: half of the numbers that the bits make, unless it is given.
fn zero_points(node: &mut Call<'_, '_>, dims: [i64; 2], bits: i64) -> Result<TensorId, Fault> {
    let Some(given) = node.optional(3) else { return each_point(node, dims, 1 << (bits - 1)) };
    let own: i64 = node.known_dims(3, "known dims")?.iter().product();
    let in_row = (dims[1] * bits + 7) / 8;
    if node.data_type(3) != D::U8 || own != dims[0] * in_row {
        return Err(node.unfit(3, "u8 with a zero point for each block of each column"));
    }
    if bits == 8 {
        return node.steps.in_shape(given, &dims);
    }
    let bytes = node.value(3, "a constant of several zero points in a byte")?.bytes();
    let (each, mask) = (8 / bits as usize, (1u8 << bits) - 1);
    let row = |row: &[u8]| -> Vec<u8> {
        (0..dims[1] as usize).map(|at| row[at / each] >> (bits as usize * (at % each)) & mask).collect()
    };
    let points: Vec<u8> = bytes.chunks(in_row as usize).flat_map(row).collect();
    let value = Constant::from_slice(&dims, &points)?;
    stored(node.steps.builder, value)
}
