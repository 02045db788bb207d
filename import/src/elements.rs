//! Element types of the formats that tensors here do not have: what is needed in their place. Each format
//! names its types in a table of its own.

use crate::error::{Fault, PortRef};

/// In place of types whose elements share bytes.
pub(crate) const WHOLE_BYTES: &str = "elements of whole bytes";
/// In place of float8 whose codes are those of FNUZ.
pub(crate) const OCP: &str = "f8_e4m3 or f8_e5m2, with the codes of OCP";
/// In place of powers of 2 without a sign, which other elements are scaled by.
pub(crate) const NO_SCALE: &str = "a type for numbers, not for the scales of blocks";
/// In place of text.
pub(crate) const NO_TEXT: &str = "numbers or truth values";
/// In place of complex numbers.
pub(crate) const REAL: &str = "real numbers";

/// An element type that no tensor here has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RefusedType {
    /// Its name in the format.
    pub(crate) given: &'static str,
    /// The supported form.
    pub(crate) needed: &'static str,
}

impl RefusedType {
    /// A type that a file leaves open, or that the format does not have.
    pub(crate) const UNKNOWN: Self = Self { given: "of an unknown type", needed: "a known type" };

    /// The fault of a tensor of the type.
    pub(crate) fn at(self, port: PortRef) -> Fault {
        Fault::Type { port, given: self.given.into(), needed: self.needed.into() }
    }

    /// The fault of an attribute that names the type.
    pub(crate) fn in_attribute(self, attribute: &str) -> Fault {
        Fault::of_attribute(attribute, format!("{}; it is {}", self.needed, self.given))
    }
}
