//! The cases that are built in, as tables.

use std::collections::BTreeMap;

use anyhow::Result;
use sterna::reference::Value;
use sterna::{
    Attention, Attr, AutoBroadcast, Causal, DataType, Graph, LogicalTensor, MaskTrue, Op, OpKind, Property,
    TensorId,
};
use sterna_import::Constant;

use super::args::Suite;
use super::limit::Arithmetic;
use crate::command_error::CommandError;
use crate::fill::Fill;
use crate::shapes::settle;

/// A finalized graph, and what its inputs are filled with, if not at random.
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) graph: Graph,
    /// The values of a model's constants.
    pub(crate) constants: BTreeMap<TensorId, Constant>,
    /// The values that options give for inputs.
    pub(crate) given: BTreeMap<TensorId, Constant>,
    pub(crate) fills: Vec<(TensorId, Fill)>,
    /// The arithmetic of the graph as a whole, if the suite knows it: products and attention have the longer
    /// of their arithmetic and their bytes as limit.
    pub(crate) work: Option<Arithmetic>,
}

/// A select: its name, the type of its branches, the dims of `cond`, `then` and `else`, and the fill of
/// `cond`.
type Select = (&'static str, DataType, [&'static [i64]; 3], &'static str);

const SQUARE: [&[i64]; 3] = [&[4096, 4096]; 3];
const HEADS: [&[i64]; 3] = [&[8, 1, 512, 512], &[8, 12, 512, 512], &[]];

/// Named by the shape, the type and the condition.
const SELECTS: &[Select] = &[
    ("all-4096x4096/f32/random", DataType::F32, SQUARE, "random"),
    ("all-4096x4096/f32/true", DataType::F32, SQUARE, "true"),
    ("all-4096x4096/u8/random", DataType::U8, SQUARE, "random"),
    ("all-2048x2048/s64/random", DataType::S64, [&[2048, 2048]; 3], "random"),
    ("all-256x256/f32/random", DataType::F32, [&[256, 256]; 3], "random"),
    ("all-16/f32/random", DataType::F32, [&[16]; 3], "random"),
    ("heads-8x12x512x512/f32/random", DataType::F32, HEADS, "random"),
    ("heads-8x12x512x512/f16/random", DataType::F16, HEADS, "random"),
    (
        "mask-1x32x1024x1024/f32/causal",
        DataType::F32,
        [&[1, 1, 1024, 1024], &[1, 32, 1024, 1024], &[1]],
        "causal",
    ),
    ("mask-64x12x64x512/f32/padding", DataType::F32, [&[64, 1, 1, 512], &[64, 12, 64, 512], &[1]], "padding"),
    ("cond-column-4096x1024/f32/random", DataType::F32, [&[4096, 1], &[4096, 1024], &[4096, 1024]], "random"),
    (
        "mixed-64x256x32x256/f32/random",
        DataType::F32,
        [&[1, 256, 1, 256], &[64, 1, 32, 256], &[1, 256, 32, 1]],
        "random",
    ),
    ("cond-alone-2x1x512x512/f32/random", DataType::F32, [&[2, 1, 512, 512], &[1], &[1]], "random"),
];

/// A graph: its file's name, its JSON, and the dims of its inputs at each size; the name of a size is the
/// number of elements of its outputs.
type Fusion = (&'static str, &'static str, &'static [Size]);

type Size = (&'static str, &'static [(usize, &'static [i64])]);

macro_rules! graph {
    ($name:literal) => {
        include_str!(concat!("../../graphs/", $name, ".json"))
    };
}

const FUSIONS: &[Fusion] = &[
    (
        "causal_scale_select",
        graph!("causal_scale_select"),
        &[
            ("16", &[(0, &[1, 1, 4, 4])]),
            ("98304", &[(0, &[2, 12, 64, 64])]),
            ("6291456", &[(0, &[2, 12, 512, 512])]),
        ],
    ),
    (
        "implicit_causal_mask",
        graph!("implicit_causal_mask"),
        &[
            ("16", &[(0, &[1, 1, 4, 4])]),
            ("65536", &[(0, &[1, 16, 64, 64])]),
            ("2359296", &[(0, &[1, 16, 384, 384])]),
        ],
    ),
    (
        "padding_bias_select",
        graph!("padding_bias_select"),
        &[
            ("16", &[(0, &[1, 1, 4, 4]), (1, &[1, 1, 4, 4]), (2, &[1, 1, 1, 4])]),
            ("131072", &[(0, &[4, 8, 64, 64]), (1, &[1, 8, 64, 64]), (2, &[4, 1, 1, 64])]),
            ("8388608", &[(0, &[4, 8, 512, 512]), (1, &[1, 8, 512, 512]), (2, &[4, 1, 1, 512])]),
        ],
    ),
    (
        "safe_softmax_guard",
        graph!("safe_softmax_guard"),
        &[
            ("16", &[(0, &[16])]),
            ("98304", &[(0, &[2, 12, 64, 64])]),
            ("6291456", &[(0, &[2, 12, 512, 512])]),
        ],
    ),
    (
        "gelu_gated_select",
        graph!("gelu_gated_select"),
        &[
            ("16", &[(0, &[1, 1, 16]), (1, &[1, 1, 16]), (2, &[1, 1, 1])]),
            ("65536", &[(0, &[2, 32, 1024]), (1, &[2, 32, 1024]), (2, &[2, 32, 1])]),
            ("16777216", &[(0, &[4, 1024, 4096]), (1, &[4, 1024, 4096]), (2, &[4, 1024, 1])]),
        ],
    ),
    (
        "nan_to_num",
        graph!("nan_to_num"),
        &[("16", &[(0, &[16])]), ("49152", &[(0, &[2, 32, 768])]), ("6291456", &[(0, &[8, 1024, 768])])],
    ),
    (
        "swin_selects",
        graph!("swin_selects"),
        &[
            ("16", &[(0, &[1, 1, 4, 1]), (1, &[1, 1, 1, 4]), (2, &[1, 1, 4, 4])]),
            ("230496", &[(0, &[16, 1, 49, 1]), (1, &[16, 1, 1, 49]), (2, &[16, 6, 49, 49])]),
            ("7375872", &[(0, &[256, 1, 49, 1]), (1, &[256, 1, 1, 49]), (2, &[256, 12, 49, 49])]),
        ],
    ),
    (
        "clamp_backward",
        graph!("clamp_backward"),
        &[
            ("16", &[(0, &[16]), (1, &[16])]),
            ("49152", &[(0, &[2, 32, 768]), (1, &[2, 32, 768])]),
            ("6291456", &[(0, &[8, 1024, 768]), (1, &[8, 1024, 768])]),
        ],
    ),
    (
        "t5_bucket",
        graph!("t5_bucket"),
        &[("16", &[(0, &[4, 4])]), ("16384", &[(0, &[128, 128])]), ("4194304", &[(0, &[2048, 2048])])],
    ),
    (
        "chain_of_12",
        graph!("chain_of_12"),
        &[
            ("16", &[(0, &[1, 1, 16]), (1, &[16]), (2, &[16]), (5, &[1, 1, 16]), (6, &[1, 1, 1])]),
            ("49152", &[(0, &[2, 32, 768]), (5, &[2, 32, 768]), (6, &[2, 32, 1])]),
            ("6291456", &[(0, &[8, 1024, 768]), (5, &[8, 1024, 768]), (6, &[8, 1024, 1])]),
        ],
    ),
];

/// Which keys a query of attention sees.
#[derive(Debug, Clone, Copy)]
enum Seen {
    All,
    /// Those up to its own position, by ops over indices.
    Causal,
    /// The same, by booleans.
    CausalTensor,
    /// That many up to its own position, by ops over indices.
    Window(i64),
    /// The same, by booleans.
    WindowTensor(i64),
    /// That many from the first on, by booleans for all queries alike.
    PaddingTensor(i64),
}

impl Seen {
    fn has(self, query: i64, key: i64) -> bool {
        match self {
            Self::All => true,
            Self::Causal | Self::CausalTensor => key <= query,
            Self::Window(width) | Self::WindowTensor(width) => key <= query && query - key < width,
            Self::PaddingTensor(length) => key < length,
        }
    }

    /// The dims of the booleans.
    fn mask_dims(self, queries: i64, keys: i64) -> Option<[i64; 4]> {
        match self {
            Self::All | Self::Causal | Self::Window(_) => None,
            Self::CausalTensor | Self::WindowTensor(_) => Some([1, 1, queries, keys]),
            Self::PaddingTensor(_) => Some([1, 1, 1, keys]),
        }
    }
}

/// Attention: its name, the type, heads of queries and of keys, queries, keys and depth, and what is seen.
type Attended = (&'static str, DataType, [i64; 5], Seen);

/// Named by the mask, the type and the shape; all masks are shared by the heads.
const ATTENTIONS: &[Attended] = &[
    ("full/f32/8x2048x64", DataType::F32, [8, 8, 2048, 2048, 64], Seen::All),
    ("full/f32/8x2048x128", DataType::F32, [8, 8, 2048, 2048, 128], Seen::All),
    ("full/bf16/8x2048x64", DataType::Bf16, [8, 8, 2048, 2048, 64], Seen::All),
    ("full/f16/8x2048x64", DataType::F16, [8, 8, 2048, 2048, 64], Seen::All),
    ("causal/f32/8x2048x64", DataType::F32, [8, 8, 2048, 2048, 64], Seen::Causal),
    ("causal-tensor/f32/8x2048x64", DataType::F32, [8, 8, 2048, 2048, 64], Seen::CausalTensor),
    ("causal/bf16/8x2048x64", DataType::Bf16, [8, 8, 2048, 2048, 64], Seen::Causal),
    ("window-128/f32/8x2048x64", DataType::F32, [8, 8, 2048, 2048, 64], Seen::Window(128)),
    ("window-128-tensor/f32/8x2048x64", DataType::F32, [8, 8, 2048, 2048, 64], Seen::WindowTensor(128)),
    ("padding-tensor/f32/8x2048x64", DataType::F32, [8, 8, 2048, 2048, 64], Seen::PaddingTensor(1229)),
    ("grouped-causal/f32/8of2x1024x64", DataType::F32, [8, 2, 1024, 1024, 64], Seen::Causal),
    ("decode/f32/8x1of4096x128", DataType::F32, [8, 8, 1, 4096, 128], Seen::All),
    ("decode-grouped/bf16/8of2x1of4096x128", DataType::Bf16, [8, 2, 1, 4096, 128], Seen::All),
    ("small/f32/4x32x64", DataType::F32, [4, 4, 32, 32, 64], Seen::All),
];

/// A product: its name, the types of the operands and of the result, products of a batch, rows, depth and
/// columns, and what follows it.
type Product = (&'static str, [DataType; 2], [i64; 4], Epilogue);

/// The ops behind a product.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Epilogue {
    Nothing,
    /// A scale, a select by a condition for each column, and GELU.
    ScaleSelectGelu,
}

const F32S: [DataType; 2] = [DataType::F32; 2];
const BF16S: [DataType; 2] = [DataType::Bf16; 2];
/// u8 and constant weights of s8 behind a dequantisation, with a scale for each column.
const INTEGERS: [DataType; 2] = [DataType::S8, DataType::F32];

/// Named by rows, depth and columns.
const PRODUCTS: &[Product] = &[
    ("16x16x16/f32", F32S, [1, 16, 16, 16], Epilogue::Nothing),
    ("64x64x64/f32", F32S, [1, 64, 64, 64], Epilogue::Nothing),
    ("256x256x256/f32", F32S, [1, 256, 256, 256], Epilogue::Nothing),
    ("512x512x512/f32", F32S, [1, 512, 512, 512], Epilogue::Nothing),
    ("1024x1024x1024/f32", F32S, [1, 1024, 1024, 1024], Epilogue::Nothing),
    ("2048x2048x2048/f32", F32S, [1, 2048, 2048, 2048], Epilogue::Nothing),
    ("77x1000x1025/f32", F32S, [1, 77, 1000, 1025], Epilogue::Nothing),
    ("1025x1025x1025/f32", F32S, [1, 1025, 1025, 1025], Epilogue::Nothing),
    ("1024x1024x1024/f32/scale-select-gelu", F32S, [1, 1024, 1024, 1024], Epilogue::ScaleSelectGelu),
    ("12x384x64x384/f32", F32S, [12, 384, 64, 384], Epilogue::Nothing),
    ("1x4096x4096/f32", F32S, [1, 1, 4096, 4096], Epilogue::Nothing),
    ("16x4096x4096/f32", F32S, [1, 16, 4096, 4096], Epilogue::Nothing),
    ("512x512x512/bf16", BF16S, [1, 512, 512, 512], Epilogue::Nothing),
    ("1024x1024x1024/bf16", BF16S, [1, 1024, 1024, 1024], Epilogue::Nothing),
    ("1x4096x4096/bf16", BF16S, [1, 1, 4096, 4096], Epilogue::Nothing),
    ("512x512x512/u8s8", INTEGERS, [1, 512, 512, 512], Epilogue::Nothing),
    ("1024x1024x1024/u8s8", INTEGERS, [1, 1024, 1024, 1024], Epilogue::Nothing),
    ("1024x1024x1024/u8s8/scale-select-gelu", INTEGERS, [1, 1024, 1024, 1024], Epilogue::ScaleSelectGelu),
    ("1x4096x4096/u8s8", INTEGERS, [1, 1, 4096, 4096], Epilogue::Nothing),
    ("16x4096x4096/u8s8", INTEGERS, [1, 16, 4096, 4096], Epilogue::Nothing),
];

/// An op on rows: its kind, the type, and the dims.
type RowOp = (OpKind, DataType, &'static [i64]);

const LONG: &[i64] = &[4096, 1024];
const HEADS_OF_64: &[i64] = &[64, 12, 64, 64];

/// Along the last axis.
const ROW_OPS: &[RowOp] = &[
    (OpKind::SoftMax, DataType::F32, LONG),
    (OpKind::SoftMax, DataType::Bf16, LONG),
    (OpKind::SoftMax, DataType::F32, HEADS_OF_64),
    (OpKind::SoftMax, DataType::Bf16, HEADS_OF_64),
    (OpKind::LayerNorm, DataType::F32, LONG),
    (OpKind::LayerNorm, DataType::Bf16, LONG),
    (OpKind::LayerNorm, DataType::F32, HEADS_OF_64),
    (OpKind::LayerNorm, DataType::Bf16, HEADS_OF_64),
    (OpKind::RMSNorm, DataType::F32, LONG),
    (OpKind::RMSNorm, DataType::Bf16, LONG),
    (OpKind::RMSNorm, DataType::F32, HEADS_OF_64),
    (OpKind::RMSNorm, DataType::Bf16, HEADS_OF_64),
    (OpKind::ReduceSum, DataType::F32, LONG),
    (OpKind::ReduceSum, DataType::Bf16, LONG),
    (OpKind::ReduceSum, DataType::F32, HEADS_OF_64),
    (OpKind::ReduceSum, DataType::Bf16, HEADS_OF_64),
];

impl Suite {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Select => "select",
            Self::Fusion => "fusion",
            Self::Attention => "attention",
            Self::Matmul => "matmul",
            Self::Rows => "rows",
        }
    }

    pub(crate) fn subjects(self) -> Result<Vec<Subject>, CommandError> {
        match self {
            Self::Select => SELECTS.iter().map(|row| select(row).map_err(CommandError::failed)).collect(),
            Self::Fusion => {
                let sizes = |(name, json, sizes): &Fusion| sizes.iter().map(|size| fusion(name, json, size));
                FUSIONS.iter().flat_map(sizes).collect()
            }
            Self::Attention => {
                ATTENTIONS.iter().map(|row| attention(row).map_err(CommandError::failed)).collect()
            }
            Self::Matmul => PRODUCTS.iter().map(|row| product(row).map_err(CommandError::failed)).collect(),
            Self::Rows => ROW_OPS.iter().map(|row| row_op(row).map_err(CommandError::failed)).collect(),
        }
    }
}

fn select((name, data_type, [cond, then, other], fill): &Select) -> Result<Subject> {
    let op = Op::select(
        0,
        LogicalTensor::strided(0, DataType::Boolean, cond)?,
        LogicalTensor::strided(1, *data_type, then)?,
        LogicalTensor::strided(2, *data_type, other)?,
        LogicalTensor::unknown(3, *data_type),
    );
    let mut graph = Graph::new();
    graph.add_op(op.auto_broadcast(AutoBroadcast::Multidirectional))?;
    graph.finalize()?;
    let fill = fill.parse().map_err(anyhow::Error::msg::<String>)?;
    Ok(Subject {
        name: (*name).into(),
        graph,
        constants: BTreeMap::new(),
        given: BTreeMap::new(),
        fills: vec![(0.into(), fill)],
        work: None,
    })
}

fn fusion(name: &str, json: &str, (size, dims): &Size) -> Result<Subject, CommandError> {
    let shapes: Vec<(TensorId, Vec<i64>)> =
        dims.iter().map(|&(id, dims)| (id.into(), dims.to_vec())).collect();
    let graph = settle(Graph::from_json(json).map_err(CommandError::failed)?, &shapes)?;
    Ok(Subject {
        name: format!("{name}/{size}"),
        graph,
        constants: BTreeMap::new(),
        given: BTreeMap::new(),
        fills: Vec::new(),
        work: None,
    })
}

fn product(&(name, [t, to], [batch, rows, depth, columns], epilogue): &Product) -> Result<Subject> {
    let tensor = |id, dims: &[i64]| LogicalTensor::strided(id, t, dims);
    let result = |id| LogicalTensor::strided(id, to, &[batch, rows, columns]);
    let mut graph = Graph::new();
    let (left, right) = ([batch, rows, depth], [batch, depth, columns]);
    let operands = match t {
        DataType::S8 => {
            let float = |id, dims: &[i64]| LogicalTensor::strided(id, to, dims);
            let u8s = LogicalTensor::strided(0, DataType::U8, &left)?;
            let s8s = tensor(1, &right)?.with_property(Property::Constant)?;
            let op = |id| Op::new(id, OpKind::Dequantize);
            let of_left = op(10).attr(Attr::Scales, vec![0.001f32]).attr(Attr::Zps, vec![128i64]);
            let of_right = (op(11).attr(Attr::Qtype, "per_channel").axis(2))
                .attr(Attr::Scales, vec![0.01f32; columns as usize])
                .attr(Attr::Zps, vec![0i64; columns as usize]);
            graph.add_op(of_left.input(u8s).output(float(10, &left)?))?;
            graph.add_op(of_right.input(s8s).output(float(11, &right)?))?;
            [float(10, &left)?, float(11, &right)?]
        }
        _ => [tensor(0, &left)?, tensor(1, &right)?],
    };
    graph.add_op(Op::new(0, OpKind::MatMul).inputs_from(operands).output(result(2)?))?;
    if epilogue == Epilogue::ScaleSelectGelu {
        let one = |id| LogicalTensor::strided(id, to, &[]);
        let cond = LogicalTensor::strided(5, DataType::Boolean, &[1, 1, columns])?;
        let scale = Op::new(1, OpKind::Multiply).input(result(2)?).input(one(3)?);
        graph.add_op(scale.output(result(4)?))?;
        graph.add_op(Op::select(2, cond, result(4)?, one(6)?, result(7)?))?;
        graph.add_op(Op::new(3, OpKind::GELU).input(result(7)?).output(result(8)?))?;
    }
    graph.finalize()?;
    let operations = 2.0 * [batch, rows, depth, columns].map(|dim| dim as f64).iter().product::<f64>();
    Ok(Subject {
        name: name.into(),
        graph,
        constants: BTreeMap::new(),
        given: BTreeMap::new(),
        fills: Vec::new(),
        work: Some(Arithmetic { operations, data_type: t }),
    })
}

fn row_op(&(kind, t, dims): &RowOp) -> Result<Subject> {
    let length = &dims[dims.len() - 1..];
    let parameter = |id| LogicalTensor::strided(id, t, length);
    let op = Op::new(0, kind).input(LogicalTensor::strided(0, t, dims)?);
    let op = match kind {
        OpKind::LayerNorm => op.input(parameter(1)?).input(parameter(2)?).attr(Attr::KeepStats, false),
        OpKind::RMSNorm => op.input(parameter(1)?),
        OpKind::ReduceSum => op.attr(Attr::Axes, vec![-1i64]),
        _ => op.axis(-1),
    };
    let mut graph = Graph::new();
    graph.add_op(op.output(LogicalTensor::unknown(3, t)))?;
    graph.finalize()?;
    let dims = dims.iter().map(ToString::to_string).collect::<Vec<_>>().join("x");
    let name = format!("{kind}-{dims}/{t}");
    Ok(Subject {
        name,
        graph,
        constants: BTreeMap::new(),
        given: BTreeMap::new(),
        fills: Vec::new(),
        work: None,
    })
}

/// Heads of keys that queries share are a dim of their own.
fn attention(&(name, t, [heads, shared, queries, keys, depth], seen): &Attended) -> Result<Subject> {
    const MASK: TensorId = TensorId::new(4);
    let tensor = |id, dims: &[i64]| LogicalTensor::strided(id, t, dims);
    let groups = heads / shared;
    let mut options = Attention::new(
        tensor(0, &[1, shared, groups, queries, depth])?,
        tensor(1, &[1, shared, 1, keys, depth])?,
        tensor(2, &[1, shared, 1, keys, depth])?,
        tensor(3, &[1, shared, groups, queries, depth])?,
    )
    .causal(matches!(seen, Seen::Causal | Seen::Window(_)).then_some(Causal::TopLeft));
    if let Seen::Window(width) = seen {
        options = options.window(width);
    }
    let mut constants = BTreeMap::new();
    if let Some(dims) = seen.mask_dims(queries, keys) {
        let rows = dims[2];
        let pairs = (0..rows).flat_map(|query| (0..keys).map(move |key| (query, key)));
        let bits: Vec<bool> = pairs.map(|(query, key)| seen.has(query, key)).collect();
        constants.insert(MASK, Value::from_slice(&dims, &bits)?.into());
        let mask = LogicalTensor::strided(MASK, DataType::Boolean, &dims)?;
        options = options.mask(mask, MaskTrue::Keeps);
    }
    let mut graph = Graph::new();
    graph.attention(&options)?;
    graph.finalize()?;
    let pairs = (0..queries).map(|query| (0..keys).filter(|&key| seen.has(query, key)).count());
    let pairs = pairs.sum::<usize>() as f64;
    // A product and a sum for each pair and number of the depth, in either product.
    let work = Arithmetic { operations: 4.0 * heads as f64 * depth as f64 * pairs, data_type: t };
    let given = BTreeMap::new();
    Ok(Subject { name: name.into(), graph, constants, given, fills: Vec::new(), work: Some(work) })
}
