//! Plain values that every layer may name: data types, shapes, op kinds, attributes.

pub(crate) mod codes;
pub(crate) mod dtype;
pub(crate) mod features;
pub(crate) mod function;
pub(crate) mod function_row;
pub(crate) mod kind;
pub(crate) mod shape;

/// A name that is not in a closed list.
///
/// ```
/// use sterna::OpKind;
/// let unknown = "Selct".parse::<OpKind>().unwrap_err();
/// assert_eq!(unknown.to_string(), "no op kind is called \"Selct\"");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no {what} is called {name:?}")]
pub struct UnknownName {
    /// The kind of name: "op kind", "attribute", "data type", …
    pub what: &'static str,
    /// The name given.
    pub name: String,
}
