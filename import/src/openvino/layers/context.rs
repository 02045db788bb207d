//! A layer that is being mapped: its inputs, its attributes, and what is refused of them.

use sterna::{AutoBroadcast, DataType, Direction, TensorId};

use crate::builder::Builder;
use crate::constant::Constant;
use crate::dims::is_known;
use crate::error::{Braced, Fault, PortRef};
use crate::openvino::types;
use crate::openvino::xml::Layer;
use crate::steps::Steps;

pub(super) const FLOATS: &str = "f32, bf16, f16";
/// The name of the attribute `axis` of a broadcast in files that OpenVINO writes.
pub(super) const AXIS: &str = "auto_broadcast.auto_broadcast_axis";

/// An input of a layer.
pub(in crate::openvino) struct Input {
    /// Its name in the specification.
    pub(in crate::openvino) name: &'static str,
    pub(in crate::openvino) class: Class,
}

/// The contents of an input if a lone layer does not tell them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::openvino) enum Class {
    /// Truth values.
    Truth,
    /// Numbers of the type that such inputs share.
    Value,
}

/// The shapes in the file that hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::openvino) enum Trusted {
    /// All.
    Shapes,
    /// All but the lack of dims, as inputs were given values: a rank that the file does not know may follow
    /// from one, and neither it nor a scalar has dims there.
    Dims,
    /// None, as inputs were given shapes.
    Nothing,
}

/// A layer that is being mapped.
pub(super) struct Context<'a, 'b> {
    pub(super) layer: &'a Layer,
    /// Where the layer adds its ops.
    pub(super) steps: Steps<'a, 'b>,
    /// The tensors at its inputs.
    pub(super) inputs: Vec<TensorId>,
    trusted: Trusted,
    /// The inputs in the row of the table.
    ports: &'static [Input],
    /// The operation set in which the version of the op came up, if the file says it.
    pub(super) opset: Option<u32>,
}

/// The dims of an output in the file, if it gives any that hold.
fn declared_dims<'a>(
    layer: &'a Layer,
    output: usize,
    trusted: Trusted,
    inputs: &[TensorId],
    builder: &Builder<'_>,
) -> Option<&'a [i64]> {
    let dims = &*layer.outputs[output].dims;
    let ranks_known = || inputs.iter().all(|&input| builder.dims(input).is_some());
    // A port without dims is a scalar, or of a rank that is not known.
    let holds = match trusted {
        Trusted::Nothing => false,
        _ if !dims.is_empty() => true,
        Trusted::Dims => false,
        Trusted::Shapes => ranks_known(),
    };
    holds.then_some(dims)
}

impl<'a, 'b> Context<'a, 'b> {
    pub(super) fn new(
        layer: &'a Layer,
        builder: &'a mut Builder<'b>,
        inputs: Vec<TensorId>,
        trusted: Trusted,
        ports: &'static [Input],
        opset: Option<u32>,
    ) -> Self {
        let declared = declared_dims(layer, 0, trusted, &inputs, builder).map(Into::into);
        let steps = Steps { builder, name: &layer.name, declared };
        Self { layer, steps, inputs, trusted, ports, opset }
    }

    /// The type of an input.
    pub(super) fn data_type(&self, input: usize) -> DataType {
        self.steps.builder.data_type(self.inputs[input])
    }

    /// An input, for messages.
    pub(super) fn port(&self, input: usize) -> PortRef {
        let id = self.layer.inputs.get(input).map_or(input as u64, |port| port.id);
        PortRef { direction: Direction::Input, id, name: self.ports.get(input).map_or("", |row| row.name) }
    }

    /// An output, for messages.
    fn output(&self, output: usize) -> PortRef {
        PortRef { direction: Direction::Output, id: self.layer.outputs[output].id, name: "" }
    }

    /// The attribute `auto_broadcast`.
    pub(super) fn broadcast_mode(&self) -> Result<AutoBroadcast, Fault> {
        let words =
            [("none", AutoBroadcast::None), ("numpy", AutoBroadcast::Numpy), ("pdpd", AutoBroadcast::Pdpd)];
        self.word("auto_broadcast", &words, AutoBroadcast::Numpy)
    }

    /// The attribute `axis` of `auto_broadcast`.
    pub(super) fn broadcast_axis(&self) -> Result<i64, Fault> {
        let name = if self.layer.attr(AXIS).is_some() { AXIS } else { "axis" };
        match self.layer.attr(name) {
            None => Ok(-1),
            Some(text) => {
                let axis = text.trim().parse().ok();
                axis.ok_or_else(|| Fault::of_attribute(name, "a whole number from −1 on"))
            }
        }
    }

    /// An attribute that is one of some words, in upper or lower case.
    pub(super) fn word<T: Copy>(&self, name: &str, words: &[(&str, T)], default: T) -> Result<T, Fault> {
        let Some(text) = self.layer.attr(name) else { return Ok(default) };
        match words.iter().find(|(word, _)| word.eq_ignore_ascii_case(text)) {
            Some((_, value)) => Ok(*value),
            None => {
                let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                Err(Fault::of_attribute(name, words.join(", ")))
            }
        }
    }

    /// An attribute that is true or false.
    pub(super) fn truth(&self, name: &str, default: bool) -> Result<bool, Fault> {
        self.word(name, &[("true", true), ("false", false), ("1", true), ("0", false)], default)
    }

    /// An attribute that is a number.
    pub(super) fn float(&self, name: &'static str) -> Result<f64, Fault> {
        let text = self.layer.attr(name).ok_or(Fault::MissingAttribute { attribute: name })?;
        text.trim().parse().map_err(|_| Fault::of_attribute(name, "a number"))
    }

    /// An attribute that is a whole number.
    pub(super) fn int(&self, name: &'static str, default: Option<i64>) -> Result<i64, Fault> {
        match (self.layer.attr(name), default) {
            (Some(text), _) => text.trim().parse().map_err(|_| Fault::of_attribute(name, "a whole number")),
            (None, Some(default)) => Ok(default),
            (None, None) => Err(Fault::MissingAttribute { attribute: name }),
        }
    }

    /// An attribute that is a list of whole numbers.
    pub(super) fn ints(&self, name: &'static str) -> Result<Vec<i64>, Fault> {
        let text = self.layer.attr(name).ok_or(Fault::MissingAttribute { attribute: name })?;
        let numbers: Result<Vec<i64>, _> = text.split(',').map(|part| part.trim().parse()).collect();
        numbers.map_err(|_| Fault::of_attribute(name, "whole numbers"))
    }

    /// An attribute that is a list of zeros and ones, as long as `count` or shorter.
    pub(super) fn flags(&self, name: &'static str, count: usize) -> Result<Vec<bool>, Fault> {
        let text = self.layer.attr(name).unwrap_or("").trim();
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let mut flags: Vec<bool> = Vec::new();
        for part in parts {
            flags.push(match part {
                "0" => false,
                "1" => true,
                _ => return Err(Fault::of_attribute(name, "zeros and ones")),
            });
        }
        flags.resize(count.max(flags.len()), false);
        Ok(flags)
    }

    /// An attribute that is a type; `None` if it is missing.
    pub(super) fn element(&self, name: &str) -> Result<Option<DataType>, Fault> {
        let Some(text) = self.layer.attr(name) else { return Ok(None) };
        types::named(text).map(Some).map_err(|refused| refused.in_attribute(name))
    }

    /// The value of an input.
    pub(super) fn constant(&self, input: usize, needed: &str) -> Result<&Constant, Fault> {
        let value = self.steps.builder.value(self.inputs[input]);
        value.ok_or_else(|| Fault::NotConstant { port: self.port(input), needed: needed.into() })
    }

    /// The whole shape of an input.
    pub(super) fn known_dims(&self, input: usize, needed: &str) -> Result<Vec<i64>, Fault> {
        let dims = self.steps.builder.known_dims(self.inputs[input]);
        let fault = || Fault::UnknownShape { port: self.port(input), needed: needed.into() };
        dims.map(<[i64]>::to_vec).ok_or_else(fault)
    }

    /// The rank of an input.
    pub(super) fn rank(&self, input: usize) -> Result<usize, Fault> {
        let rank = self.steps.builder.dims(self.inputs[input]).map(<[i64]>::len);
        rank.ok_or_else(|| Fault::UnknownShape { port: self.port(input), needed: "a known rank".into() })
    }

    /// An input whose shape does not suit.
    pub(super) fn unfit(&self, input: usize, needed: impl Into<String>) -> Fault {
        let given = self.steps.builder.dims(self.inputs[input]).unwrap_or(&[]).into();
        Fault::Shape { port: self.port(input), given, needed: needed.into() }
    }

    /// A constant whose value does not suit.
    pub(super) fn bad_value(&self, input: usize, needed: impl Into<String>) -> Fault {
        Fault::Value { port: self.port(input), needed: needed.into() }
    }

    /// Names the port of the layer, where the op that it becomes is refused for the type of one.
    pub(super) fn named(&self, fault: Fault) -> Fault {
        let Some((tensor, needed)) = fault.refused_type() else { return fault };
        match self.inputs.iter().position(|&input| input == tensor) {
            Some(input) => Fault::of_type(self.port(input), self.data_type(input), needed),
            None => fault,
        }
    }

    /// Compares the file's description of an output with the derived one.
    pub(super) fn check_declared(&self, output: usize, result: TensorId) -> Result<(), Fault> {
        let contradiction =
            |declared, found| Err(Fault::Declared { port: self.output(output), declared, found });
        let found = self.steps.builder.data_type(result);
        match self.layer.outputs[output].element {
            Some(element) if element != Ok(found) => {
                return contradiction(types::words(element), found.to_string());
            }
            _ => {}
        }
        let declared = declared_dims(self.layer, output, self.trusted, &self.inputs, self.steps.builder);
        match (declared, self.steps.builder.known_dims(result)) {
            (Some(declared), Some(dims)) if is_known(declared) && declared != dims => {
                contradiction(Braced(declared).to_string(), Braced(dims).to_string())
            }
            _ => Ok(()),
        }
    }
}
