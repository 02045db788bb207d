//! The facts of a node that becomes an op `Wildcard`.

use sterna::{DataType, TensorId};

use crate::builder::Builder;
use crate::dims::UNKNOWN_DIM;
use crate::onnx::proto::{Attribute, NodeText};
use crate::weights::{floats, integers};

/// A node, and what is known of its inputs.
pub(super) struct Facts<'a, 'b> {
    pub(super) node: &'a NodeText,
    pub(super) inputs: &'a [Option<TensorId>],
    pub(super) builder: &'a Builder<'b>,
}

impl Facts<'_, '_> {
    pub(super) fn input(&self, index: usize) -> Option<TensorId> {
        self.inputs.get(index).copied().flatten()
    }

    pub(super) fn dims_of(&self, index: usize) -> Option<Vec<i64>> {
        self.builder.dims(self.input(index)?).map(<[i64]>::to_vec)
    }

    /// A dim of an input, counted from the end; open if it is not known.
    pub(super) fn dim_from_end(&self, index: usize, from_end: usize) -> i64 {
        let dims = self.dims_of(index).unwrap_or_default();
        dims.iter().rev().nth(from_end).copied().unwrap_or(UNKNOWN_DIM)
    }

    pub(super) fn data_type(&self, index: usize) -> DataType {
        self.input(index).map_or(DataType::Undef, |input| self.builder.data_type(input))
    }

    /// The value of an input of whole numbers.
    pub(super) fn numbers(&self, index: usize) -> Option<Vec<i64>> {
        integers(self.builder.value(self.input(index)?)?)
    }

    /// The value of an input of floats.
    pub(super) fn floats(&self, index: usize) -> Option<Vec<f64>> {
        floats(self.builder.value(self.input(index)?)?)
    }

    pub(super) fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.node.attributes.iter().find(|attribute| attribute.name == name)
    }

    pub(super) fn int(&self, name: &str, default: i64) -> i64 {
        self.attribute(name).map_or(default, |attribute| attribute.int)
    }

    /// A list of so many whole numbers, or else so many times a default; `None` for one of another length.
    pub(super) fn ints(&self, name: &str, count: usize, default: i64) -> Option<Vec<i64>> {
        match self.attribute(name) {
            Some(attribute) if !attribute.ints.is_empty() => {
                (attribute.ints.len() == count).then(|| attribute.ints.clone())
            }
            _ => Some(vec![default; count]),
        }
    }

    /// The word of an attribute; empty if there is none.
    pub(super) fn word(&self, name: &str) -> &[u8] {
        self.attribute(name).map_or(&[], |attribute| &attribute.string)
    }
}
