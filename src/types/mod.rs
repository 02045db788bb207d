//! Plain values that every layer may name: data types, shapes, op kinds, attributes.

pub(crate) mod codes;
pub(crate) mod constant_data;
pub(crate) mod dtype;
pub mod environment;
pub(crate) mod fallback;
pub(crate) mod features;
pub(crate) mod function;
pub(crate) mod function_row;
pub(crate) mod id;
pub(crate) mod kind;
pub(crate) mod labels;
pub(crate) mod nearest;
mod op_docs;
pub(crate) mod rewrite;
pub(crate) mod shape;
pub(crate) mod trace;

use std::fmt;

/// A name that is not in a closed list.
///
/// ```
/// use sterna::OpKind;
/// let unknown = "Selct".parse::<OpKind>().unwrap_err();
/// assert_eq!(unknown.to_string(), "no op kind is called \"Selct\"; did you mean \"Select\"?");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no {what} is called {name:?}{}", DidYouMean(*nearest))]
#[non_exhaustive]
pub struct UnknownName {
    /// The kind of name: "op kind", "attribute", "data type", …
    pub what: &'static str,
    /// The name given.
    pub name: String,
    /// The name of the list that may be meant.
    pub nearest: Option<&'static str>,
}

impl UnknownName {
    pub(crate) fn new(what: &'static str, name: &str, names: impl Iterator<Item = &'static str>) -> Self {
        Self { what, name: name.into(), nearest: nearest::nearest(name, names) }
    }
}

/// Writes the end of a message about an unknown name.
pub(crate) struct DidYouMean(pub(crate) Option<&'static str>);

impl fmt::Display for DidYouMean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |name| write!(f, "; did you mean {name:?}?"))
    }
}
