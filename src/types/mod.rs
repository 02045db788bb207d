//! Plain values that every room may name: data types, shapes, op kinds, attributes.

mod codes;
pub(crate) mod dtype;
pub(crate) mod function;
pub(crate) mod kind;
pub(crate) mod shape;

/// A name that none of a closed list is.
///
/// ```
/// use sterna::OpKind;
/// let unknown = "Selct".parse::<OpKind>().unwrap_err();
/// assert_eq!(unknown.to_string(), "no op kind is called \"Selct\"");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no {what} is called {name:?}")]
pub struct UnknownName {
    /// What was looked for: "op kind", "attribute", "data type", …
    pub what: &'static str,
    /// The name given.
    pub name: String,
}
