//! The element types of OpenVINO.

use sterna::DataType;

use crate::elements::{NO_SCALE, NO_TEXT, RefusedType, WHOLE_BYTES};

use DataType as D;

/// An element type: its name in attributes, its name at ports, and its data type, or what is needed in its
/// place.
struct ElementRow {
    name: &'static str,
    precision: &'static str,
    data_type: Result<DataType, &'static str>,
}

const fn row(
    name: &'static str,
    precision: &'static str,
    data_type: Result<DataType, &'static str>,
) -> ElementRow {
    ElementRow { name, precision, data_type }
}

const TYPES: &[ElementRow] = &[
    row("f32", "FP32", Ok(D::F32)),
    row("f16", "FP16", Ok(D::F16)),
    row("bf16", "BF16", Ok(D::Bf16)),
    row("f64", "FP64", Ok(D::F64)),
    row("i8", "I8", Ok(D::S8)),
    row("i16", "I16", Ok(D::S16)),
    row("i32", "I32", Ok(D::S32)),
    row("i64", "I64", Ok(D::S64)),
    row("u8", "U8", Ok(D::U8)),
    row("u16", "U16", Ok(D::U16)),
    row("u32", "U32", Ok(D::U32)),
    row("u64", "U64", Ok(D::U64)),
    row("boolean", "BOOL", Ok(D::Boolean)),
    row("f8e4m3", "F8E4M3", Ok(D::F8E4m3)),
    row("f8e5m2", "F8E5M2", Ok(D::F8E5m2)),
    row("f8e8m0", "F8E8M0", Err(NO_SCALE)),
    row("f4e2m1", "F4E2M1", Err(WHOLE_BYTES)),
    row("nf4", "NF4", Err(WHOLE_BYTES)),
    row("i4", "I4", Err(WHOLE_BYTES)),
    row("u1", "BIN", Err(WHOLE_BYTES)),
    row("u2", "U2", Err(WHOLE_BYTES)),
    row("u3", "U3", Err(WHOLE_BYTES)),
    row("u4", "U4", Err(WHOLE_BYTES)),
    row("u6", "U6", Err(WHOLE_BYTES)),
    row("string", "STRING", Err(NO_TEXT)),
    row("dynamic", "UNSPECIFIED", Err(RefusedType::UNKNOWN.needed)),
];

/// An element type as a file gives it.
pub(super) type Element = Result<DataType, RefusedType>;

/// The type of a name, as attributes or ports write it.
pub(super) fn named(text: &str) -> Element {
    let same = |row: &&ElementRow| row.name == text || row.precision.eq_ignore_ascii_case(text);
    let row = TYPES.iter().find(same).ok_or(RefusedType::UNKNOWN)?;
    row.data_type.map_err(|needed| RefusedType { given: row.name, needed })
}

/// An element type in words.
pub(super) fn words(element: Element) -> String {
    element.map_or_else(|refused| refused.given.into(), |data_type| data_type.to_string())
}

/// The names of the types, in attributes and at ports.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = [&'static str; 2]> {
    TYPES.iter().map(|row| [row.name, row.precision])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_whole_type_has_a_row() {
        let missing: Vec<_> =
            D::WHOLE.iter().filter(|t| !TYPES.iter().any(|row| row.data_type == Ok(**t))).collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert_eq!(named("FP16"), Ok(D::F16));
        assert_eq!(named("i4"), Err(RefusedType { given: "i4", needed: WHOLE_BYTES }));
        assert_eq!(named("f33"), Err(RefusedType::UNKNOWN));
    }
}
