//! The element types of OpenVINO.

use sterna::DataType;

use DataType as D;

/// An element type: its name in attributes, its name at ports, and its data type.
struct ElementRow {
    name: &'static str,
    precision: &'static str,
    data_type: Option<DataType>,
}

const fn row(name: &'static str, precision: &'static str, data_type: Option<DataType>) -> ElementRow {
    ElementRow { name, precision, data_type }
}

const TYPES: &[ElementRow] = &[
    row("f32", "FP32", Some(D::F32)),
    row("f16", "FP16", Some(D::F16)),
    row("bf16", "BF16", Some(D::Bf16)),
    row("f64", "FP64", Some(D::F64)),
    row("i8", "I8", Some(D::S8)),
    row("i16", "I16", Some(D::S16)),
    row("i32", "I32", Some(D::S32)),
    row("i64", "I64", Some(D::S64)),
    row("u8", "U8", Some(D::U8)),
    row("u16", "U16", Some(D::U16)),
    row("u32", "U32", Some(D::U32)),
    row("u64", "U64", Some(D::U64)),
    row("boolean", "BOOL", Some(D::Boolean)),
    row("f8e4m3", "F8E4M3", Some(D::F8E4m3)),
    row("f8e5m2", "F8E5M2", Some(D::F8E5m2)),
    row("f8e8m0", "F8E8M0", None),
    row("f4e2m1", "F4E2M1", None),
    row("nf4", "NF4", None),
    row("i4", "I4", None),
    row("u1", "BIN", None),
    row("u2", "U2", None),
    row("u3", "U3", None),
    row("u4", "U4", None),
    row("u6", "U6", None),
    row("string", "STRING", None),
    row("dynamic", "UNSPECIFIED", None),
];

/// An element type as a file gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Element {
    /// One that tensors here have.
    Known(DataType),
    /// One that tensors here do not have, by its name.
    Other(&'static str),
    /// No name of a type.
    Unknown,
}

impl Element {
    /// The type of a name, as attributes or ports write it.
    pub(super) fn named(text: &str) -> Self {
        let same = |row: &&ElementRow| row.name == text || row.precision.eq_ignore_ascii_case(text);
        match TYPES.iter().find(same) {
            Some(ElementRow { data_type: Some(data_type), .. }) => Self::Known(*data_type),
            Some(ElementRow { name, .. }) => Self::Other(name),
            None => Self::Unknown,
        }
    }

    /// The type, where tensors here have it.
    pub(super) fn data_type(self) -> Option<DataType> {
        match self {
            Self::Known(data_type) => Some(data_type),
            Self::Other(_) | Self::Unknown => None,
        }
    }

    /// The type in words.
    pub(super) fn words(self) -> String {
        match self {
            Self::Known(data_type) => data_type.to_string(),
            Self::Other(name) => name.into(),
            Self::Unknown => "of an unknown type".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_whole_type_has_a_row() {
        let missing: Vec<_> =
            D::WHOLE.iter().filter(|t| !TYPES.iter().any(|row| row.data_type == Some(**t))).collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert_eq!(Element::named("FP16"), Element::Known(D::F16));
        assert_eq!(Element::named("i4"), Element::Other("i4"));
        assert_eq!(Element::named("f33"), Element::Unknown);
    }
}
