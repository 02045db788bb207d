//! The values of a document, their positions in it, and what is wrong with them.
//!
//! The whole document is checked first, then it is gone through value by value. A value is a slice of the
//! document, so its address gives its position, and lines are counted only for an error message.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::Deserialize as DeriveDeserialize;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::spelled_f32;
use crate::error::{Direction, Error, JsonFault, Result};
use crate::types::UnknownName;
use crate::types::id::OpId;
use crate::types::kind::OpKind;
use crate::types::shape::Dims;

/// Deepest nesting of lists and objects; a graph needs eight levels.
const MAX_DEPTH: usize = 128;

pub(super) const GIVEN_TWICE: &str = "the key is given twice";

/// A JSON value: a slice of the document, and its purpose.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    document: &'a str,
    text: &'a str,
    path: JsonPath<'a>,
}

/// The way from the document to a value: the op, port, attribute and key that it belongs to.
#[derive(Clone, Copy, Default)]
struct JsonPath<'a> {
    /// The index and the text of an op.
    op: Option<(usize, &'a str)>,
    port: Option<(Direction, usize)>,
    attr: Option<&'a str>,
    key: Option<&'static str>,
}

impl<'a> Node<'a> {
    /// The value of a whole text. Everything inside it is known to be well-formed JSON afterwards.
    pub(super) fn document(text: &'a str) -> Result<Self> {
        let whole = Self { document: text, text, path: JsonPath::default() };
        if let Some(offset) = too_deep(text) {
            let deep = Self { text: &text[offset..], ..whole };
            return Err(deep.fault(format!("lists and objects are nested more than {MAX_DEPTH} deep")));
        }
        match serde_json::from_str::<&RawValue>(text) {
            Ok(root) => Ok(Self { text: root.get(), ..whole }),
            Err(error) => {
                if let Some(what) = other_format(text) {
                    return Err(whole.fault(format!("this is {what}, not JSON")));
                }
                let offset = if error.is_eof() { text.len() } else { offset_of(text, &error) };
                let at = Self { text: &text[offset..], ..whole };
                Err(at.fault(format!("{}{}", without_position(&error), hint(text, offset))))
            }
        }
    }

    fn at(self, path: JsonPath<'a>) -> Self {
        Self { path, ..self }
    }

    /// The value as the op of an index.
    pub(super) fn at_op(self, index: usize) -> Self {
        self.at(JsonPath { op: Some((index, self.text)), ..JsonPath::default() })
    }

    /// The value as an attribute of an op.
    pub(super) fn at_attr(self, op: Self, name: &'a str) -> Self {
        self.at(JsonPath { attr: Some(name), key: None, ..op.path })
    }

    pub(super) fn at_port(self, direction: Direction, index: usize) -> Self {
        self.at(JsonPath { port: Some((direction, index)), key: None, ..self.path })
    }

    pub(super) fn at_key(self, key: &'static str) -> Self {
        self.at(JsonPath { key: Some(key), ..self.path })
    }

    /// The values of the given keys. Other keys are ignored.
    pub(super) fn fields<const N: usize>(self, keys: [&'static str; N]) -> Result<[Option<Self>; N]> {
        let mut fields = [None; N];
        for (key, value) in self.entries()? {
            let Some(index) = keys.iter().position(|&known| known == key) else { continue };
            let value = value.at_key(keys[index]);
            if fields[index].replace(value).is_some() {
                return Err(value.fault(GIVEN_TWICE));
            }
        }
        Ok(fields)
    }

    /// The keys and values of an object, in written order.
    pub(super) fn entries(self) -> Result<Vec<(Cow<'a, str>, Self)>> {
        let Entries(entries) = self.read("an object")?;
        Ok(entries.into_iter().map(|(key, value)| (key, Self { text: value.get(), ..self })).collect())
    }

    /// The elements of a list.
    pub(super) fn items(self) -> Result<impl Iterator<Item = Self>> {
        let items: Vec<&RawValue> = self.read("a list")?;
        Ok(items.into_iter().map(move |item| Self { text: item.get(), ..self }))
    }

    pub(super) fn dims(self) -> Result<Dims> {
        self.items()?.map(Self::s64).collect()
    }

    pub(super) fn id(self) -> Result<usize> {
        self.read("an id, a whole number that is not negative")
    }

    pub(super) fn s64(self) -> Result<i64> {
        self.read("a whole number of 64 bits")
    }

    pub(super) fn string(self) -> Result<Cow<'a, str>> {
        let Text(text) = self.read("a string")?;
        Ok(text)
    }

    /// A name from a closed list.
    pub(super) fn named<T: FromStr<Err = UnknownName>>(self) -> Result<T> {
        self.string()?.parse().map_err(|unknown| self.fault(unknown))
    }

    pub(super) fn truth(self) -> Result<bool> {
        match self.text {
            "0" | "false" | "\"false\"" => Ok(false),
            "1" | "true" | "\"true\"" => Ok(true),
            _ => Err(self.unlike("a truth value: 0, 1, false or true")),
        }
    }

    /// A number, rounded once from its digits; a detour through f64 would round twice.
    pub(super) fn f32(self) -> Result<f32> {
        let number = match self.text.as_bytes() {
            [b'"', ..] => spelled_f32(&self.string()?),
            _ => self.text.parse().ok().filter(|number: &f32| number.is_finite()),
        };
        number.ok_or_else(|| self.unlike("a number of type f32"))
    }

    pub(super) fn read<T: Deserialize<'a>>(self, expected: &str) -> Result<T> {
        serde_json::from_str(self.text).map_err(|error| match error.classify() {
            Category::Data => self.unlike(expected),
            // The check of the whole document leaves half a surrogate pair and a number out of range.
            _ => self.fault(without_position(&error)),
        })
    }

    pub(super) fn unlike(self, expected: &str) -> Error {
        match self.text.as_bytes() {
            [b'{', ..] => self.fault(format!("an object is not {expected}")),
            [b'[', ..] => self.fault(format!("a list is not {expected}")),
            _ => self.fault(format!("`{:.40}` is not {expected}", self.text)),
        }
    }

    pub(super) fn missing(self, key: &'static str) -> Error {
        self.at_key(key).fault("the key is missing")
    }

    pub(super) fn refused(self, cause: Error) -> Error {
        self.fault_with(cause.to_string(), Some(cause))
    }

    pub(super) fn fault(self, message: impl fmt::Display) -> Error {
        self.fault_with(message.to_string(), None)
    }

    pub(super) fn fault_with(self, message: String, cause: Option<Error>) -> Error {
        let offset = self.text.as_ptr().addr() - self.document.as_ptr().addr();
        let before = &self.document[..offset];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Error::Json(Box::new(JsonFault {
            line: 1 + before.bytes().filter(|&byte| byte == b'\n').count(),
            column: 1 + before[line_start..].chars().count(),
            place: self.path.to_string(),
            message,
            cause,
        }))
    }
}

impl fmt::Display for JsonPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let op = self.op.map(|(index, text)| match id_and_kind(text) {
            (Some(id), Some(kind)) => format!("op {index} ({kind}, id {id})"),
            (Some(id), None) => format!("op {index} (id {id})"),
            (None, Some(kind)) => format!("op {index} ({kind})"),
            (None, None) => format!("op {index}"),
        });
        let port = self.port.map(|(direction, index)| format!("{direction} {index}"));
        let attr = self.attr.map(|name| format!("attribute `{name}`"));
        let key = self.key.map(|key| format!("key `{key}`"));
        let parts: Vec<String> = [op, port, attr, key].into_iter().flatten().collect();
        match &parts[..] {
            [] => Ok(()),
            parts => write!(f, "{}: ", parts.join(", ")),
        }
    }
}

/// The id and kind of a faulty op, as far as they can be read.
fn id_and_kind(op: &str) -> (Option<OpId>, Option<OpKind>) {
    let entries = serde_json::from_str(op).map_or(Vec::new(), |Entries(entries)| entries);
    let value = |wanted| entries.iter().find(|(key, _)| key == wanted).map(|(_, value)| value.get());
    let kind = value("kind").and_then(|kind| serde_json::from_str(kind).ok());
    let id = value("id").and_then(|id| serde_json::from_str(id).ok());
    (id, kind.and_then(|Text(kind)| kind.parse().ok()))
}

/// The position at which nesting exceeds [`MAX_DEPTH`]. serde_json skips a value without counting its depth.
fn too_deep(text: &str) -> Option<usize> {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    text.bytes().position(|byte| {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => depth += 1,
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > MAX_DEPTH
    })
}

/// The byte of serde_json's error position; serde_json counts columns in bytes, and from 0 at the start of a
/// line.
fn offset_of(text: &str, error: &serde_json::Error) -> usize {
    let line_start: usize =
        text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    let offset = line_start + error.column().saturating_sub(1);
    (0..=offset).rev().find(|&offset| text.is_char_boundary(offset)).unwrap_or(0)
}

/// A format that is taken for JSON at times, by its first byte.
fn other_format(text: &str) -> Option<&'static str> {
    match text.trim_start_matches('\u{feff}').as_bytes().first()? {
        // Field 1 of an ONNX model, a number: the version of the format.
        0x08 => Some("an ONNX file, which `sterna_import::onnx` reads"),
        b'<' => Some("XML, such as an OpenVINO IR, which `sterna_import::openvino` reads"),
        _ => None,
    }
}

/// serde_json's message without the position at its end.
fn without_position(error: &serde_json::Error) -> String {
    let message = error.to_string();
    match message.rsplit_once(" at line ") {
        Some((message, _)) => message.into(),
        None => message,
    }
}

/// Advice on numbers in the form in which C++ prints them.
fn hint(text: &str, offset: usize) -> &'static str {
    let part_of_word = |c: char| c.is_ascii_alphabetic() || c == '-';
    let start = text[..offset].trim_end_matches(part_of_word).len();
    let word = text[start..].split(|c| !part_of_word(c)).next();
    match word {
        Some("inf" | "-inf" | "nan" | "-nan") => "; write \"inf\", \"-inf\" or \"nan\" in quotes",
        _ => "",
    }
}

/// A string, copied only if it has escapes.
#[derive(DeriveDeserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The keys and values of an object in the order of the text, with repeated keys.
struct Entries<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor;

        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some((Text(key), value)) = map.next_entry()? {
                    entries.push((key, value));
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(EntriesVisitor)
    }
}
