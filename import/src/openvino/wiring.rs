//! The way in which the layers of a model hang together, which no shape changes.

use super::constants::Weights;
use super::edges::{Source, order, sources};
use super::signatures::signatures;
use super::variables::{Variable, variables};
use super::xml::Net;
use crate::error::Error;
use crate::signature::{Dim, Signature};

/// The edges, the variables and the order of a model.
#[derive(Debug, Default)]
pub(super) struct Wiring {
    /// For each input of each layer, the output to which its edge leads back.
    pub(super) sources: Vec<Vec<Option<Source>>>,
    pub(super) variables: Vec<Variable>,
    /// The variable that a layer reads or writes, if runs hand it to each other; for each layer.
    pub(super) of_layers: Vec<Option<usize>>,
    /// The layers that are mapped, each behind those that it uses.
    pub(super) order: Vec<usize>,
    /// The inputs whose open dims have names.
    pub(super) named_dims: Vec<NamedDims>,
}

/// An input some of whose open dims have names.
#[derive(Debug)]
pub(super) struct NamedDims {
    /// The names of the input, its own first.
    pub(super) names: Vec<String>,
    /// The axes of the dims, and their names.
    pub(super) axes: Vec<(usize, String)>,
}

impl Wiring {
    /// Of a text that is one layer, there is nothing to say.
    pub(super) fn of(net: &Net, weights: Weights<'_>) -> Result<Self, Error> {
        if net.is_lone {
            return Ok(Self::default());
        }
        let sources = sources(net)?;
        let (variables, mut of_layers) = variables(net, &sources, weights)?;
        of_layers.iter_mut().for_each(|of| *of = of.filter(|&at| !variables[at].stays));
        let is_input = |index: usize| of_layers[index].is_some() && net.layers[index].kind == "ReadValue";
        let order = order(net, &sources, &is_input)?;
        // The reading of an input says what is wrong with it.
        let [inputs, _] = signatures(net, &sources, &variables).unwrap_or_default();
        let named_dims = inputs.into_iter().filter_map(NamedDims::of).collect();
        Ok(Self { sources, variables, of_layers, order, named_dims })
    }
}

impl NamedDims {
    /// The named dims of an input, if it has any.
    fn of(input: Signature) -> Option<Self> {
        let named = |(axis, dim): (usize, Dim)| match dim {
            Dim::Named(name) => Some((axis, name)),
            Dim::Known(_) | Dim::Open => None,
        };
        let axes: Vec<(usize, String)> =
            input.dims.into_iter().flatten().enumerate().filter_map(named).collect();
        (!axes.is_empty()).then_some(Self { names: input.names, axes })
    }
}
