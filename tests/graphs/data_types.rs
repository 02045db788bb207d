//! Data types: codes, names and sizes, and the Rust types that stand for them.

use sterna::{Bool8, DataType, Element, F8E4m3, F8E5m2, InputElement};

use DataType as D;

/// Code, name, and bits of an element.
const TABLE: &[(DataType, u32, &str, usize)] = &[
    (D::Undef, 0, "undef", 0),
    (D::F16, 1, "f16", 16),
    (D::Bf16, 2, "bf16", 16),
    (D::F32, 3, "f32", 32),
    (D::S32, 4, "s32", 32),
    (D::S8, 5, "s8", 8),
    (D::U8, 6, "u8", 8),
    (D::F64, 7, "f64", 64),
    (D::Boolean, 8, "boolean", 8),
    (D::F8E5m2, 9, "f8_e5m2", 8),
    (D::F8E4m3, 10, "f8_e4m3", 8),
    (D::S4, 11, "s4", 4),
    (D::U4, 12, "u4", 4),
    (D::E8m0, 13, "e8m0", 8),
    (D::F4E2m1, 14, "f4_e2m1", 4),
    (D::F4E3m0, 15, "f4_e3m0", 4),
    (D::S64, 16, "s64", 64),
    (D::S16, 0x101, "s16", 16),
    (D::U16, 0x102, "u16", 16),
    (D::U32, 0x103, "u32", 32),
    (D::U64, 0x104, "u64", 64),
];

/// The types that no op moves.
const NOT_WHOLE: [DataType; 6] = [D::Undef, D::S4, D::U4, D::E8m0, D::F4E2m1, D::F4E3m0];

#[test]
fn codes_names_and_sizes_are_those_of_the_table() {
    let mut wrong = Vec::new();
    for &(data_type, code, name, bits) in TABLE {
        let size = (bits >= 8).then_some(bits / 8);
        let facts = (data_type.code(), data_type.name(), data_type.bits(), data_type.size());
        let back = (DataType::from_code(code), name.parse::<DataType>().ok());
        if facts != (code, name, bits, size) || back != (Some(data_type), Some(data_type)) {
            wrong.push((data_type, facts, back));
        }
        if data_type.is_whole() == NOT_WHOLE.contains(&data_type) {
            wrong.push((data_type, facts, back));
        }
        assert_eq!(data_type.to_string(), name);
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(DataType::ALL.iter().eq(TABLE.iter().map(|(data_type, ..)| data_type)));
    assert_eq!(DataType::WHOLE.len(), TABLE.len() - NOT_WHOLE.len());
}

#[test]
fn other_codes_and_names_mean_nothing() {
    for code in [17, 0x100, 0x105, 255, u32::MAX] {
        assert_eq!(DataType::from_code(code), None, "{code}");
    }
    for name in ["", "F32", "float", "bool", "bf61", "s128"] {
        let error = name.parse::<DataType>().unwrap_err();
        let meant = match name {
            "F32" => "; did you mean \"f32\"?",
            "bool" => "; did you mean \"boolean\"?",
            "bf61" => "; did you mean \"bf16\"?",
            _ => "",
        };
        assert_eq!(error.to_string(), format!("no data type is called {name:?}{meant}"));
    }
}

#[test]
fn rust_types_stand_for_data_types_of_their_size() {
    fn facts<T: Element>() -> (DataType, usize) {
        // Every element can be read as an input too.
        assert_eq!(<T as Element>::DATA_TYPE, <T as InputElement>::DATA_TYPE);
        (<T as Element>::DATA_TYPE, size_of::<T>())
    }
    let rows = [
        (facts::<half::f16>(), D::F16),
        (facts::<half::bf16>(), D::Bf16),
        (facts::<f32>(), D::F32),
        (facts::<f64>(), D::F64),
        (facts::<i8>(), D::S8),
        (facts::<i16>(), D::S16),
        (facts::<i32>(), D::S32),
        (facts::<i64>(), D::S64),
        (facts::<u8>(), D::U8),
        (facts::<u16>(), D::U16),
        (facts::<u32>(), D::U32),
        (facts::<u64>(), D::U64),
        (facts::<Bool8>(), D::Boolean),
        (facts::<F8E5m2>(), D::F8E5m2),
        (facts::<F8E4m3>(), D::F8E4m3),
    ];
    let wrong: Vec<_> = rows
        .iter()
        .filter(|((found, size), data_type)| found != data_type || Some(*size) != data_type.size())
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(DataType::WHOLE.iter().all(|data_type| rows.iter().any(|(_, row)| row == data_type)));
    assert_eq!(<bool as InputElement>::DATA_TYPE, D::Boolean);
}

#[test]
fn a_boolean_is_true_where_its_byte_is_not_zero() {
    let wrong: Vec<u8> = (0..=u8::MAX).filter(|&byte| Bool8(byte).get() == (byte == 0)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_eq!([Bool8::from(false), Bool8::from(true), Bool8::default()], [Bool8(0), Bool8(1), Bool8(0)]);
}
