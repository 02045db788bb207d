//! Small values as text: those that an option gives, such as `[[1, 2], [3, 4]]`, and results.

use std::fmt::Write as _;
use std::iter::Peekable;
use std::str::Chars;

use anyhow::{Result, ensure};
use half::{bf16, f16};
use sterna::reference::Value;
use sterna::{Bool8, DataType, LogicalTensor, MAX_RANK};

use crate::fill::element;

/// The most elements of a result that is printed.
pub(crate) const MAX_PRINTED: usize = 64;

/// A value as an option gives it: its elements in row-major order, which are read when the type is known.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Inline {
    pub(crate) dims: Vec<i64>,
    elements: Vec<String>,
}

impl Inline {
    /// Reads a value in brackets, or a single number or truth value; `None` if the text is neither.
    pub(crate) fn parse(text: &str) -> Option<Result<Self, String>> {
        let text = text.trim();
        if !text.starts_with('[') {
            let is_element = text.parse::<f64>().is_ok() || ["true", "false"].contains(&text);
            return is_element.then(|| Ok(Self { dims: Vec::new(), elements: vec![text.into()] }));
        }
        let (mut chars, mut elements) = (text.chars().peekable(), Vec::new());
        let dims = list(&mut chars, 1, &mut elements);
        Some(dims.and_then(|dims| match chars.next() {
            None => Ok(Self { dims, elements }),
            Some(c) => Err(format!("{c:?} stands behind the last bracket")),
        }))
    }

    /// The value of a tensor of this shape.
    pub(crate) fn value(&self, desc: &LogicalTensor) -> Result<Value> {
        let dims = desc.dims().unwrap_or(&[]);
        ensure!(
            dims == self.dims,
            "its value has shape {:?}, but the tensor has {dims:?}; write it in the shape of the tensor, or \
             give the tensor another with --shape",
            self.dims
        );
        let mut bytes = Vec::new();
        for text in &self.elements {
            bytes.extend(element(text, desc.data_type())?);
        }
        Ok(Value::new(desc.data_type(), dims, bytes)?)
    }
}

/// Reads a list, whose items are lists of one shape, or elements; answers with its dims.
fn list(
    chars: &mut Peekable<Chars<'_>>,
    depth: usize,
    elements: &mut Vec<String>,
) -> Result<Vec<i64>, String> {
    if depth > MAX_RANK {
        return Err(format!("it has more than {MAX_RANK} dims"));
    }
    chars.next();
    let (mut count, mut inner) = (0, None);
    loop {
        skip_space(chars);
        let item = match chars.peek() {
            Some(']') if count == 0 => {
                chars.next();
                return Ok(vec![0]);
            }
            Some('[') => list(chars, depth + 1, elements)?,
            Some(_) => {
                elements.push(word(chars)?);
                Vec::new()
            }
            None => return Err("a bracket is not closed".into()),
        };
        match &inner {
            None => inner = Some(item),
            Some(first) if *first != item => {
                return Err(format!("item {count} of a list is not as long as item 0"));
            }
            Some(_) => {}
        }
        count += 1;
        skip_space(chars);
        match chars.next() {
            Some(',') => {}
            Some(']') => return Ok([vec![count], inner.unwrap_or_default()].concat()),
            Some(c) => return Err(format!("{c:?} stands where a comma or a bracket is needed")),
            None => return Err("a bracket is not closed".into()),
        }
    }
}

fn word(chars: &mut Peekable<Chars<'_>>) -> Result<String, String> {
    let mut word = String::new();
    while let Some(c) = chars.next_if(|c| !"[],".contains(*c) && !c.is_whitespace()) {
        word.push(c);
    }
    match word.is_empty() {
        true => Err("an element is missing".into()),
        false => Ok(word),
    }
}

fn skip_space(chars: &mut Peekable<Chars<'_>>) {
    while chars.next_if(|c| c.is_whitespace()).is_some() {}
}

/// A small value in brackets; `None` for one that is too large, or whose type has no numbers to print.
pub(crate) fn shown(value: &Value) -> Option<String> {
    macro_rules! printed {
        ($Type:ty) => {
            value.elements::<$Type>()?.iter().map(ToString::to_string).collect()
        };
    }
    let size = value.data_type().size()?;
    if value.bytes().len() / size > MAX_PRINTED {
        return None;
    }
    let elements: Vec<String> = match value.data_type() {
        DataType::F64 => printed!(f64),
        DataType::F32 => printed!(f32),
        DataType::F16 => value.elements::<f16>()?.iter().map(|x| x.to_f32().to_string()).collect(),
        DataType::Bf16 => value.elements::<bf16>()?.iter().map(|x| x.to_f32().to_string()).collect(),
        DataType::S8 => printed!(i8),
        DataType::S16 => printed!(i16),
        DataType::S32 => printed!(i32),
        DataType::S64 => printed!(i64),
        DataType::U8 => printed!(u8),
        DataType::U16 => printed!(u16),
        DataType::U32 => printed!(u32),
        DataType::U64 => printed!(u64),
        DataType::Boolean => value.elements::<Bool8>()?.iter().map(|x| x.get().to_string()).collect(),
        _ => return None,
    };
    let mut text = String::new();
    nest(&mut text, value.dims(), &mut elements.iter());
    Some(text)
}

fn nest<'a>(text: &mut String, dims: &[i64], elements: &mut impl Iterator<Item = &'a String>) {
    let Some((&count, inner)) = dims.split_first() else {
        let _ = write!(text, "{}", elements.next().map_or("", String::as_str));
        return;
    };
    text.push('[');
    for item in 0..count {
        text.push_str(if item == 0 { "" } else { ", " });
        nest(text, inner, elements);
    }
    text.push(']');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_lists_of_one_shape() {
        let dims = |text: &str| Inline::parse(text).map(|read| read.map(|value| value.dims));
        assert_eq!(dims("[[0,0], [1 , 0],[1,1]]"), Some(Ok(vec![3, 2])));
        assert_eq!(dims("-1.5e3"), Some(Ok(vec![])));
        assert_eq!(dims("true"), Some(Ok(vec![])));
        assert_eq!(dims("[]"), Some(Ok(vec![0])));
        assert_eq!(dims("[[],[]]"), Some(Ok(vec![2, 0])));
        assert_eq!(dims("file.npy"), None);
        let wrong = ["[", "[1", "[1,", "[1,]", "[1]]", "[1]2", "[[1],[1,2]]", "[[1],2]", "[,1]", "[1 2]"];
        let read: Vec<_> = wrong.iter().filter(|text| !matches!(dims(text), Some(Err(_)))).collect();
        assert!(read.is_empty(), "{read:?}");
        assert!(matches!(dims(&"[".repeat(100_000)), Some(Err(_))));
    }

    #[test]
    fn small_results_are_printed_in_brackets() {
        let value = Value::from_slice(&[2, 2], &[11.0f32, -0.5, f32::NAN, f32::INFINITY]).unwrap();
        assert_eq!(shown(&value).as_deref(), Some("[[11, -0.5], [NaN, inf]]"));
        assert_eq!(shown(&Value::from_slice(&[], &[true]).unwrap()).as_deref(), Some("true"));
        assert_eq!(shown(&Value::from_slice(&[2, 0], &[0u8; 0]).unwrap()).as_deref(), Some("[[], []]"));
        assert_eq!(shown(&Value::from_slice(&[65], &[0u8; 65]).unwrap()), None);
    }
}
