//! Reads and writes graph JSON: the format in which oneDNN dumps graphs.
//!
//! Sterna's own kinds and attributes are written by name like any other. oneDNN's reader refuses a graph that
//! has one.

mod node;
mod notes;
mod read;
mod write;

pub use notes::JsonNote;

/// An f32 that JSON cannot write as a number: `inf`, `-inf`, `nan`, and any other NaN by its bits.
pub(super) fn spelled_f32(text: &str) -> Option<f32> {
    match text {
        "inf" => Some(f32::INFINITY),
        "-inf" => Some(f32::NEG_INFINITY),
        "nan" => Some(f32::NAN),
        _ => {
            let bits = text.strip_prefix("nan(0x")?.strip_suffix(')')?;
            let number = f32::from_bits(u32::from_str_radix(bits, 16).ok()?);
            number.is_nan().then_some(number)
        }
    }
}

/// The inverse; `None` for a finite number.
pub(super) fn spelling_of_f32(number: f32) -> Option<String> {
    match number {
        f32::INFINITY => Some("inf".into()),
        f32::NEG_INFINITY => Some("-inf".into()),
        _ if number.to_bits() == f32::NAN.to_bits() => Some("nan".into()),
        _ if number.is_nan() => Some(format!("nan(0x{:08x})", number.to_bits())),
        _ => None,
    }
}
