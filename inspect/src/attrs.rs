//! Attributes of ops in few words.

use sterna::{Attr, AttrDefault, AttrValue, Op, Schema};

use crate::words::harmless;

/// The most numbers of a list that are shown.
const MAX_NUMBERS: usize = 8;

/// The attributes of an op with their values: those of numbers, and words and truth values that are not the
/// default.
pub(crate) fn shown(op: &Op) -> Vec<String> {
    let rows = Schema::of(op.kind()).attributes;
    let default = |attr: Attr| rows.iter().find(|row| row.attr == attr)?.default.as_ref();
    let says_something = |attr: Attr, value: &AttrValue| match (value, default(attr)) {
        (AttrValue::Bool(value), Some(AttrDefault::Bool(default))) => value != default,
        (AttrValue::String(value), Some(AttrDefault::String(default))) => value != default,
        _ => true,
    };
    let attrs = op.attrs().filter(|(attr, value)| says_something(*attr, value));
    attrs.map(|(attr, value)| format!("{attr}={}", short(value))).collect()
}

fn short(value: &AttrValue) -> String {
    match value {
        AttrValue::Bool(value) => value.to_string(),
        AttrValue::S64(value) => value.to_string(),
        AttrValue::F32(value) => value.to_string(),
        AttrValue::String(value) => harmless(value),
        AttrValue::S64s(values) => list(values.iter().map(ToString::to_string)),
        AttrValue::F32s(values) => list(values.iter().map(ToString::to_string)),
        other => harmless(&other.to_string()),
    }
}

/// The first numbers of a list, joined as options take them.
fn list(numbers: impl ExactSizeIterator<Item = String>) -> String {
    let count = numbers.len();
    let first: Vec<String> = numbers.take(MAX_NUMBERS).collect();
    match count {
        0 => "[]".into(),
        count if count > MAX_NUMBERS => format!("{}x… ({count} numbers)", first.join("x")),
        _ => first.join("x"),
    }
}

#[cfg(test)]
mod tests {
    use sterna::OpKind;

    use super::*;

    #[test]
    fn attributes_are_said_unless_they_are_words_by_default() {
        let rows: &[(Op, &[&str])] = &[
            (Op::new(0, OpKind::Select).attr(Attr::AutoBroadcast, "numpy"), &[]),
            (Op::new(0, OpKind::Select).attr(Attr::AutoBroadcast, "none"), &["auto_broadcast=none"]),
            (
                Op::new(0, OpKind::MatMul).attr(Attr::TransposeA, false).attr(Attr::TransposeB, true),
                &["transpose_b=true"],
            ),
            // Numbers are said even if they are the default.
            (Op::new(0, OpKind::SoftMax).attr(Attr::Axis, 1i64), &["axis=1"]),
            (Op::new(0, OpKind::StaticTranspose).attr(Attr::Order, vec![0i64, 2, 1]), &["order=0x2x1"]),
            (
                Op::new(0, OpKind::Dequantize).attr(Attr::Scales, vec![0.5f32; 100]),
                &["scales=0.5x0.5x0.5x0.5x0.5x0.5x0.5x0.5x… (100 numbers)"],
            ),
            (Op::new(0, OpKind::Reorder), &[]),
        ];
        let wrong: Vec<_> = rows.iter().filter(|(op, expected)| shown(op) != *expected).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
