//! A node that is being mapped: its inputs, its attributes, and what is refused of them.

use std::collections::BTreeMap;

use sterna::{DataType, Direction, TensorId};

use crate::compose::{self, is_integer};
use crate::constant::Constant;
use crate::error::{Fault, PortRef};
use crate::onnx::element_files::ElementFiles;
use crate::onnx::proto::{Attribute, TensorText};
use crate::steps::Steps;
use crate::weights::integers;

/// The table of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::onnx) enum OpTable {
    /// ONNX.
    Standard,
    /// `com.microsoft`.
    Microsoft,
}

/// A node that is being mapped.
pub(in crate::onnx) struct Call<'a, 'b> {
    pub(in crate::onnx) kind: &'a str,
    /// The table of its domain.
    pub(in crate::onnx) table: OpTable,
    pub(in crate::onnx) attributes: BTreeMap<&'a str, &'a Attribute>,
    /// Where the node adds its ops.
    pub(in crate::onnx) steps: Steps<'a, 'b>,
    /// The tensors at its inputs; `None` for one that is left out.
    pub(in crate::onnx) inputs: Vec<Option<TensorId>>,
    /// The number of outputs up to the last that has a name.
    pub(in crate::onnx) outputs: usize,
    /// Where the elements of constants stand.
    pub(in crate::onnx) files: &'a ElementFiles,
    pub(in crate::onnx) opset: i64,
    /// The name of the exporter.
    pub(in crate::onnx) producer: &'a [u8],
    /// The names of the inputs in the row of the table; none if the table has no row.
    pub(in crate::onnx) ports: &'static [&'static str],
    /// The input of the node at which each input of the call stands, where the call is a part of a node.
    pub(in crate::onnx) places: Vec<usize>,
}

impl<'a, 'b> Call<'a, 'b> {
    /// The same node with other inputs, some of its own or computed from them, each with the input of the
    /// node that messages name for it.
    pub(super) fn with_inputs(&mut self, inputs: &[(usize, Option<TensorId>)]) -> Call<'_, 'b> {
        Call { attributes: self.attributes.clone(), ..self.part(inputs) }
    }

    /// An op within the node, without attributes; the inputs are as in [`with_inputs`](Self::with_inputs).
    pub(super) fn part(&mut self, inputs: &[(usize, Option<TensorId>)]) -> Call<'_, 'b> {
        let (places, inputs) = inputs.iter().copied().unzip();
        Call {
            kind: self.kind,
            table: self.table,
            attributes: BTreeMap::new(),
            steps: Steps { builder: &mut *self.steps.builder, name: self.steps.name, declared: None },
            inputs,
            outputs: 1,
            files: self.files,
            opset: self.opset,
            producer: self.producer,
            ports: self.ports,
            places,
        }
    }

    /// An input that the row asks for.
    pub(super) fn input(&self, input: usize) -> TensorId {
        self.inputs[input].expect("the row asks for the input")
    }

    /// An input that may be left out.
    pub(super) fn optional(&self, input: usize) -> Option<TensorId> {
        self.inputs.get(input).copied().flatten()
    }

    /// The type of an input that the row asks for.
    pub(super) fn data_type(&self, input: usize) -> DataType {
        self.steps.builder.data_type(self.input(input))
    }

    /// An input, for messages.
    pub(super) fn port(&self, input: usize) -> PortRef {
        let input = self.places.get(input).copied().unwrap_or(input);
        let name = self.ports.get(input).copied().unwrap_or("");
        PortRef { direction: Direction::Input, id: input as u64, name }
    }

    /// Refuses two inputs of different types.
    pub(super) fn one_type(&self, first: usize, second: usize) -> Result<(), Fault> {
        let (a, b) = (self.data_type(first), self.data_type(second));
        if a == b {
            return Ok(());
        }
        Err(Fault::of_type(self.port(second), b, format!("{a}, the type of the other input")))
    }

    /// An attribute that is there, whose contents [`map`] has checked.
    pub(super) fn attribute(&self, name: &str) -> Option<&'a Attribute> {
        self.attributes.get(name).copied()
    }

    pub(super) fn int(&self, name: &str, default: i64) -> i64 {
        self.attribute(name).map_or(default, |attribute| attribute.int)
    }

    pub(super) fn flag(&self, name: &str, default: bool) -> bool {
        self.int(name, default.into()) != 0
    }

    pub(super) fn float(&self, name: &str, default: f32) -> f32 {
        self.attribute(name).map_or(default, |attribute| attribute.float)
    }

    pub(super) fn ints(&self, name: &str) -> Option<&'a [i64]> {
        self.attribute(name).map(|attribute| &*attribute.ints)
    }

    pub(super) fn tensor(&self, name: &str) -> Option<&'a TensorText> {
        self.attribute(name).and_then(|attribute| attribute.tensor.as_ref())
    }

    /// An attribute that is one of some words.
    pub(super) fn word<T: Copy>(&self, name: &str, words: &[(&str, T)], default: T) -> Result<T, Fault> {
        let Some(attribute) = self.attribute(name) else { return Ok(default) };
        match words.iter().find(|(word, _)| word.as_bytes() == attribute.string) {
            Some((_, value)) => Ok(*value),
            None => {
                let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                Err(Fault::of_attribute(name, words.join(", ")))
            }
        }
    }

    /// The value of an input.
    pub(super) fn value(&self, input: usize, needed: &str) -> Result<&Constant, Fault> {
        let value = self.steps.builder.value(self.input(input));
        value.ok_or_else(|| Fault::NotConstant { port: self.port(input), needed: needed.into() })
    }

    /// The whole shape of an input.
    pub(super) fn known_dims(&self, input: usize, needed: &str) -> Result<Vec<i64>, Fault> {
        let dims = self.steps.builder.known_dims(self.input(input));
        let fault = || Fault::UnknownShape { port: self.port(input), needed: needed.into() };
        dims.map(<[i64]>::to_vec).ok_or_else(fault)
    }

    /// The rank of an input.
    pub(super) fn rank(&self, input: usize) -> Result<usize, Fault> {
        let rank = self.steps.builder.dims(self.input(input)).map(<[i64]>::len);
        rank.ok_or_else(|| Fault::UnknownShape { port: self.port(input), needed: "a known rank".into() })
    }

    /// A constant list of whole numbers; one of rank 0 is a list of one.
    pub(super) fn numbers(&self, input: usize) -> Result<Vec<i64>, Fault> {
        let value = self.value(input, "a constant of whole numbers")?;
        if !is_integer(value.data_type()) {
            return Err(Fault::of_type(self.port(input), value.data_type(), "a type of whole numbers"));
        }
        let list = integers(value).filter(|_| value.dims().len() <= 1);
        list.ok_or_else(|| self.bad_value(input, "a list of whole numbers"))
    }

    /// The list at an input, or the attribute that it was in earlier opsets.
    pub(super) fn list(&self, input: usize, attribute: &str) -> Result<Option<Vec<i64>>, Fault> {
        match self.optional(input) {
            Some(_) => self.numbers(input).map(Some),
            None => Ok(self.ints(attribute).map(<[i64]>::to_vec)),
        }
    }

    /// An attribute `axis`, as the index of a dim.
    pub(super) fn axis(&self, default: i64, rank: usize) -> Result<usize, Fault> {
        let axes = compose::resolved_axes(&[self.int("axis", default)], rank);
        let axis = axes.and_then(|axes| axes.first().copied());
        axis.ok_or_else(|| Fault::of_attribute("axis", format!("one of the {rank} dims")))
    }

    /// An input whose shape does not suit.
    pub(super) fn unfit(&self, input: usize, needed: impl Into<String>) -> Fault {
        let given = self.steps.builder.dims(self.input(input)).unwrap_or(&[]).into();
        Fault::Shape { port: self.port(input), given, needed: needed.into() }
    }

    /// A constant whose value does not suit.
    pub(super) fn bad_value(&self, input: usize, needed: impl Into<String>) -> Fault {
        Fault::Value { port: self.port(input), needed: needed.into() }
    }

    /// An input whose type does not suit.
    pub(super) fn bad_type(&self, input: usize, needed: impl Into<String>) -> Fault {
        Fault::of_type(self.port(input), self.data_type(input), needed)
    }

    /// Names the input of the node, where the op that it becomes is refused for the type of one.
    pub(super) fn named(&self, fault: Fault) -> Fault {
        let Some((tensor, needed)) = fault.refused_type() else { return fault };
        match self.inputs.iter().position(|input| *input == Some(tensor)) {
            Some(input) => self.bad_type(input, needed),
            None => fault,
        }
    }
}
