//! The schema rows of Sterna's own kinds.
//!
//! They follow the conventions of the op set: ports are called `src`, `src_0`, `src_1` and `dst`, and two
//! inputs broadcast by `auto_broadcast`.

use super::row::{
    AUTO_BROADCAST, AttrDefault, AttrRow, AttrType, BOOLEAN, Check, Count, Port, Schema, ShapeRule, WITH_F64,
    WITH_F64_INTEGERS, comparison, default, op, p, required, word,
};
use crate::types::dtype::DataType;
use crate::types::kind::{Attr, OpKind};

use DataType as D;
use OpKind as K;

/// The floating-point types with a class test. The test looks at bits and needs no arithmetic, so f64 is
/// among them.
const CLASSIFIABLE: &[DataType] = &[D::F32, D::Bf16, D::F16, D::F64];
const NUMERIC_BOOLEAN: &[DataType] = &[
    D::F32,
    D::Bf16,
    D::F16,
    D::F64,
    D::S32,
    D::S64,
    D::S8,
    D::S16,
    D::U8,
    D::U16,
    D::U32,
    D::U64,
    D::Boolean,
];

/// The types with sums along an axis.
const SUMMED: &[DataType] = &[D::F32, D::Bf16, D::F16, D::S32, D::S64];

/// The types of caches in pages.
const CACHED: &[DataType] = &[
    D::F16,
    D::Bf16,
    D::F32,
    D::S32,
    D::S8,
    D::U8,
    D::F64,
    D::Boolean,
    D::F8E5m2,
    D::F8E4m3,
    D::S64,
    D::S16,
    D::U16,
    D::U32,
    D::U64,
    D::S4,
    D::U4,
];

/// The types of places in a dim.
const INDICES: &[DataType] = &[D::S32, D::S64];

/// The rows, by code.
pub(super) const EXTENSIONS: &[Schema] = &[
    comparison(K::Equal),
    comparison(K::NotEqual),
    comparison(K::Less),
    comparison(K::LessEqual),
    comparison(K::Greater),
    logic(K::LogicalAnd),
    logic(K::LogicalOr),
    logic(K::LogicalXor),
    op(K::LogicalNot, &[p("src", "T")], &[p("dst", "T")]).types(&[("T", BOOLEAN)]),
    class(K::IsNaN),
    class(K::IsInf),
    class(K::IsFinite),
    op(K::Identity, &[p("src", "T")], &[p("dst", "T")]).types(&[("T", DataType::WHOLE)]),
    op(K::Negative, &[p("src", "T")], &[p("dst", "T")]).types(&[("T", WITH_F64_INTEGERS)]),
    op(K::Floor, &[p("src", "T")], &[p("dst", "T")]).types(&[("T", WITH_F64)]),
    op(K::Ceil, &[p("src", "T")], &[p("dst", "T")]).types(&[("T", WITH_F64)]),
    op(K::Fill, &[], &[p("dst", "T")])
        .types(&[("T", NUMERIC_BOOLEAN)])
        .attrs(&[required(Attr::Shape, AttrType::S64s), required(Attr::Value, AttrType::F32)])
        .shape(ShapeRule::Fill)
        .checks(&[Check::ShapeOfTensor]),
    op(K::Cast, &[p("src", "T1")], &[p("dst", "T2")])
        .types(&[("T1", NUMERIC_BOOLEAN), ("T2", DataType::NUMERIC)]),
    op(K::Modulo, &[p("src_0", "T"), p("src_1", "T")], &[p("dst", "T")])
        .types(&[("T", WITH_F64_INTEGERS)])
        .attrs(&[AUTO_BROADCAST])
        .shape(ShapeRule::ElemwiseArithmetic),
    op(K::Sin, &[p("src", "T")], &[p("dst", "T")]),
    op(K::Cos, &[p("src", "T")], &[p("dst", "T")]),
    op(K::Slice, &[p("src", "T")], &[p("dst", "T")])
        .types(&[("T", DataType::WHOLE)])
        .attrs(&[
            required(Attr::Starts, AttrType::S64s),
            required(Attr::Ends, AttrType::S64s),
            default(Attr::Steps, AttrDefault::S64s(&[])),
            default(Attr::Axes, AttrDefault::S64s(&[])),
        ])
        .shape(ShapeRule::Slice)
        .checks(&[Check::SliceRanges]),
    op(K::CumSum, &[p("src", "T")], &[p("dst", "T")])
        .types(&[("T", SUMMED)])
        .attrs(&[
            required(Attr::Axis, AttrType::S64),
            default(Attr::Exclusive, AttrDefault::Bool(false)),
            default(Attr::Reverse, AttrDefault::Bool(false)),
        ])
        .shape(ShapeRule::AlongAxis),
    op(K::Gather, &[p("src", "T1"), p("indices", "T2")], &[p("dst", "T1")])
        .types(&[("T1", DataType::WHOLE), ("T2", INDICES)])
        .attrs(&[default(Attr::Axis, AttrDefault::S64(0)), BATCH_DIMS, CLAMP_INDICES])
        .shape(ShapeRule::Gather),
    op(K::GatherElements, &[p("src", "T1"), p("indices", "T2")], &[p("dst", "T1")])
        .types(&[("T1", DataType::WHOLE), ("T2", INDICES)])
        .attrs(&[default(Attr::Axis, AttrDefault::S64(0)), CLAMP_INDICES])
        .shape(ShapeRule::GatherElements),
    op(K::GatherND, &[p("src", "T1"), p("indices", "T2")], &[p("dst", "T1")])
        .types(&[("T1", DataType::WHOLE), ("T2", INDICES)])
        .attrs(&[BATCH_DIMS, CLAMP_INDICES])
        .shape(ShapeRule::GatherNd),
    op(K::GatherBackward, &[p("diff_dst", "T1"), p("indices", "T2")], &[p("diff_src", "T1")])
        .types(&[("T1", WITH_F64), ("T2", INDICES)])
        .attrs(&[
            required(Attr::SrcShape, AttrType::S64s),
            default(Attr::Axis, AttrDefault::S64(0)),
            BATCH_DIMS,
            CLAMP_INDICES,
        ])
        .shape(ShapeRule::GatherBackward)
        .checks(&[Check::SrcShapeOfTensor]),
    op(K::ScatterElements, SCATTERED, &[p("dst", "T1")])
        .types(&[("T1", DataType::WHOLE), ("T2", INDICES)])
        .attrs(&[default(Attr::Axis, AttrDefault::S64(0)), REDUCTION, CLAMP_INDICES])
        .shape(ShapeRule::ScatterElements)
        .checks(&[Check::ReductionTypes]),
    op(K::ScatterND, SCATTERED, &[p("dst", "T1")])
        .types(&[("T1", DataType::WHOLE), ("T2", INDICES)])
        .attrs(&[REDUCTION, CLAMP_INDICES])
        .shape(ShapeRule::ScatterNd)
        .checks(&[Check::ReductionTypes]),
    op(K::TopK, &[p("src", "T1")], &[p("dst", "T1"), p("indices", "T2")])
        .types(&[("T1", DataType::NUMERIC), ("T2", INDICES)])
        .attrs(&[
            required(Attr::K, AttrType::S64),
            default(Attr::Axis, AttrDefault::S64(-1)),
            default(Attr::Largest, AttrDefault::Bool(true)),
        ])
        .shape(ShapeRule::TopK),
    place(K::ArgMax),
    place(K::ArgMin),
    op(K::PagedLoad, &[p("src", "T1"), p("block_table", "T2"), p("lengths", "T3")], &[p("dst", "T1")])
        .input_count(Count::OneOf(&[2, 3]))
        .types(&[("T1", CACHED), ("T2", INDICES), ("T3", INDICES)])
        .shape(ShapeRule::PagedLoad),
    op(K::CacheStore, &[p("src", "T1"), p("rows", "T1"), p("slots", "T2")], &[p("dst", "T1")])
        .types(&[("T1", CACHED), ("T2", INDICES)])
        .shape(ShapeRule::CacheStore),
    op(K::Power, &[p("src_0", "T"), p("src_1", "T")], &[p("dst", "T")])
        .types(&[("T", WITH_F64_INTEGERS)])
        .attrs(&[AUTO_BROADCAST])
        .shape(ShapeRule::ElemwiseArithmetic),
];

const BATCH_DIMS: AttrRow = default(Attr::BatchDims, AttrDefault::S64(0));
const CLAMP_INDICES: AttrRow = default(Attr::ClampIndices, AttrDefault::Bool(false));
const REDUCTION: AttrRow = word(Attr::Reduction, "none", &["none", "add", "mul", "min", "max"]);
const SCATTERED: &[Port] = &[p("src", "T1"), p("indices", "T2"), p("updates", "T1")];

/// A row of the place of an element along an axis.
const fn place(kind: OpKind) -> Schema {
    const SRC: &[Port] = &[p("src", "T1")];
    const DST: &[Port] = &[p("dst", "T2")];
    const ATTRS: &[AttrRow] = &[
        required(Attr::Axis, AttrType::S64),
        default(Attr::KeepDims, AttrDefault::Bool(false)),
        default(Attr::SelectLastIndex, AttrDefault::Bool(false)),
    ];
    op(kind, SRC, DST)
        .types(&[("T1", DataType::NUMERIC), ("T2", INDICES)])
        .attrs(ATTRS)
        .shape(ShapeRule::PlaceAlongAxis)
}

/// A row of a function of two booleans.
const fn logic(kind: OpKind) -> Schema {
    const SRCS: &[Port] = &[p("src_0", "T"), p("src_1", "T")];
    const DST: &[Port] = &[p("dst", "T")];
    op(kind, SRCS, DST).types(&[("T", BOOLEAN)]).attrs(&[AUTO_BROADCAST]).shape(ShapeRule::ElemwiseArithmetic)
}

/// A row of a class test.
const fn class(kind: OpKind) -> Schema {
    const SRC: &[Port] = &[p("src", "T1")];
    const DST: &[Port] = &[p("dst", "T2")];
    op(kind, SRC, DST).types(&[("T1", CLASSIFIABLE), ("T2", BOOLEAN)])
}
