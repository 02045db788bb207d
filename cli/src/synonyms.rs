//! Names that people bring along from elsewhere, and the ones they have here.

use sterna::{DataType, OpKind};

use OpKind as K;

/// The meaning of a name of an op elsewhere.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Synonym {
    /// An op of one kind.
    Kind(OpKind),
    /// Several ops, in words.
    Ops(&'static str),
}

/// Names of ops of ONNX, OpenVINO and torch, without case and separators, by what they are here. A name that
/// differs from that of a kind by these alone needs no row.
#[rustfmt::skip]
const OPS: &[(&[&str], Synonym)] = &[
    (&["where", "masked_fill"], Synonym::Kind(K::Select)),
    (&["sub"], Synonym::Kind(K::Subtract)),
    (&["mul"], Synonym::Kind(K::Multiply)),
    (&["div", "true_divide"], Synonym::Kind(K::Divide)),
    (&["neg"], Synonym::Kind(K::Negative)),
    (&["max", "fmax"], Synonym::Kind(K::Maximum)),
    (&["min", "fmin"], Synonym::Kind(K::Minimum)),
    (&["mod", "floor_mod", "remainder", "fmod"], Synonym::Kind(K::Modulo)),
    (&["eq"], Synonym::Kind(K::Equal)),
    (&["ne", "neq"], Synonym::Kind(K::NotEqual)),
    (&["lt"], Synonym::Kind(K::Less)),
    (&["le", "less_or_equal"], Synonym::Kind(K::LessEqual)),
    (&["gt"], Synonym::Kind(K::Greater)),
    (&["ge", "greater_or_equal"], Synonym::Kind(K::GreaterEqual)),
    (&["and"], Synonym::Kind(K::LogicalAnd)),
    (&["or"], Synonym::Kind(K::LogicalOr)),
    (&["xor"], Synonym::Kind(K::LogicalXor)),
    (&["not"], Synonym::Kind(K::LogicalNot)),
    (&["ceiling"], Synonym::Kind(K::Ceil)),
    (&["hswish"], Synonym::Kind(K::HardSwish)),
    (&["hsigmoid"], Synonym::Kind(K::HardSigmoid)),
    (&["clip", "hardtanh"], Synonym::Kind(K::Clamp)),
    (&["convert", "to", "type", "astype"], Synonym::Kind(K::Cast)),
    (&["full", "constant_of_shape"], Synonym::Kind(K::Fill)),
    (&["matmul_integer", "mm", "bmm", "linear", "fully_connected", "gemm"], Synonym::Kind(K::MatMul)),
    (&["layer_normalization", "native_layer_norm", "mvn"], Synonym::Kind(K::LayerNorm)),
    (&["rms_normalization", "simplified_layer_normalization"], Synonym::Kind(K::RMSNorm)),
    (&["group_normalization"], Synonym::Kind(K::GroupNorm)),
    (&["batch_norm", "batch_normalization"], Synonym::Kind(K::BatchNormInference)),
    (&["conv", "conv1d", "conv2d", "conv3d"], Synonym::Kind(K::Convolution)),
    (&["conv_transpose2d", "convolution_backprop_data"], Synonym::Kind(K::ConvTranspose)),
    (&["average_pool", "avg_pool2d"], Synonym::Kind(K::AvgPool)),
    (&["max_pool2d"], Synonym::Kind(K::MaxPool)),
    (&["resize", "upsample"], Synonym::Kind(K::Interpolate)),
    (&["quantize_linear"], Synonym::Kind(K::Quantize)),
    (&["dequantize_linear"], Synonym::Kind(K::Dequantize)),
    (&["dynamic_quantize_linear"], Synonym::Kind(K::DynamicQuantize)),
    (&["reshape", "view", "flatten", "squeeze", "unsqueeze"], Synonym::Kind(K::StaticReshape)),
    (&["transpose", "permute"], Synonym::Kind(K::StaticTranspose)),
    (&["cat", "concatenate"], Synonym::Kind(K::Concat)),
    (&["strided_slice", "narrow"], Synonym::Kind(K::Slice)),
    (&["sum"], Synonym::Kind(K::ReduceSum)),
    (&["mean"], Synonym::Kind(K::ReduceMean)),
    (&["prod"], Synonym::Kind(K::ReduceProd)),
    (&["amax"], Synonym::Kind(K::ReduceMax)),
    (&["amin"], Synonym::Kind(K::ReduceMin)),
    (&["silu", "swish"], Synonym::Ops("Sigmoid, and Multiply of the result with what went in")),
    (&["nan_to_num"], Synonym::Ops("IsNaN, and Select between a constant and what went in")),
    (&["scaled_dot_product_attention", "sdpa", "attention", "multi_head_attention"],
        Synonym::Ops("MatMul, Multiply, Add or Select, SoftMax and MatMul; one partition runs them")),
    (&["glu", "swiglu"], Synonym::Ops("Sigmoid and Multiply, behind two MatMul")),
    (&["rsqrt"], Synonym::Ops("Sqrt and Reciprocal")),
    (&["triu", "tril"], Synonym::Ops("GenIndex twice, a comparison, and Select")),
    (&["expand", "broadcast", "broadcast_to"], Synonym::Ops("no op: an operand broadcasts where it is used")),
];

/// The name of an op without what styles of writing differ in: the module before it, case and separators.
fn bare(name: &str) -> String {
    let last = name.trim().rsplit(['.', ':']).next().unwrap_or_default();
    last.chars().filter(|c| !"_- ".contains(*c)).flat_map(char::to_lowercase).collect()
}

/// The sense of an op's name here, as people write it: exactly, in another case or with separators, or as
/// other frameworks call it.
pub(crate) fn op(name: &str) -> Option<Synonym> {
    let given = bare(name);
    let own = OpKind::ALL.iter().find(|kind| bare(kind.name()) == given).map(|kind| Synonym::Kind(*kind));
    let of_others = || OPS.iter().find(|(names, _)| names.iter().any(|name| bare(name) == given));
    own.or_else(|| of_others().map(|(_, synonym)| *synonym))
}

/// Names of data types of NumPy, torch, ONNX and OpenVINO, in small letters, by the type.
const TYPES: &[(&[&str], DataType)] = &[
    (&["float", "float32", "fp32", "single"], DataType::F32),
    (&["half", "float16", "fp16"], DataType::F16),
    (&["bfloat16", "bfloat"], DataType::Bf16),
    (&["double", "float64", "fp64"], DataType::F64),
    (&["int8", "i8"], DataType::S8),
    (&["int16", "i16", "short"], DataType::S16),
    (&["int32", "i32", "int"], DataType::S32),
    (&["int64", "i64", "long"], DataType::S64),
    (&["uint8"], DataType::U8),
    (&["uint16"], DataType::U16),
    (&["uint32"], DataType::U32),
    (&["uint64"], DataType::U64),
    (&["int4", "i4"], DataType::S4),
    (&["uint4"], DataType::U4),
    (&["bool"], DataType::Boolean),
    (&["float8_e5m2", "f8e5m2", "float8e5m2"], DataType::F8E5m2),
    (&["float8_e4m3", "float8_e4m3fn", "f8e4m3", "float8e4m3fn"], DataType::F8E4m3),
];

/// A type by its name here or elsewhere, in any case.
pub(crate) fn data_type(name: &str) -> Option<DataType> {
    let given = name.trim().to_lowercase();
    let own = DataType::ALL.iter().find(|data_type| data_type.name() == given);
    let of_others = || TYPES.iter().find(|(names, _)| names.contains(&&*given)).map(|(_, of)| of);
    own.or_else(of_others).copied()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_name_stands_once_and_hides_no_kind_or_type() {
        let mut wrong: Vec<&str> = Vec::new();
        let mut seen: BTreeSet<String> = OpKind::ALL.iter().map(|kind| bare(kind.name())).collect();
        assert_eq!(seen.len(), OpKind::ALL.len(), "two kinds differ in case or separators alone");
        let names = OPS.iter().flat_map(|(names, _)| *names);
        wrong.extend(names.filter(|name| !seen.insert(bare(name))));
        let mut seen: BTreeSet<&str> = DataType::ALL.iter().map(|data_type| data_type.name()).collect();
        wrong.extend(TYPES.iter().flat_map(|(names, _)| *names).filter(|name| !seen.insert(name)));
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn ops_go_by_the_names_of_other_frameworks() {
        let rows = [
            ("softmax", Some(K::SoftMax)),
            ("Softmax", Some(K::SoftMax)),
            ("torch.nn.functional.softmax", Some(K::SoftMax)),
            ("aten::log_softmax", Some(K::LogSoftmax)),
            ("LayerNormalization", Some(K::LayerNorm)),
            ("layer_norm", Some(K::LayerNorm)),
            ("gelu", Some(K::GELU)),
            ("where", Some(K::Select)),
            ("Where", Some(K::Select)),
            ("isnan", Some(K::IsNaN)),
            ("Not", Some(K::LogicalNot)),
            ("silu", None),
            ("selct", None),
            ("", None),
        ];
        let found = |name: &str| match op(name) {
            Some(Synonym::Kind(kind)) => Some(kind),
            _ => None,
        };
        let wrong: Vec<_> = rows.iter().filter(|(name, kind)| found(name) != *kind).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        assert!(matches!(op("SiLU"), Some(Synonym::Ops(ops)) if ops.contains("Sigmoid")));
    }

    #[test]
    fn types_go_by_the_names_of_other_frameworks() {
        let rows = [
            ("f32", Some(DataType::F32)),
            ("F32", Some(DataType::F32)),
            ("float32", Some(DataType::F32)),
            ("Float", Some(DataType::F32)),
            ("half", Some(DataType::F16)),
            ("bfloat16", Some(DataType::Bf16)),
            ("double", Some(DataType::F64)),
            ("int8", Some(DataType::S8)),
            ("uint8", Some(DataType::U8)),
            ("int64", Some(DataType::S64)),
            ("bool", Some(DataType::Boolean)),
            ("float33", None),
            ("", None),
        ];
        let wrong: Vec<_> = rows.iter().filter(|(name, of)| data_type(name) != *of).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
