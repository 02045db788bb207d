//! The way in which the layers of a model hang together, which no shape changes.

use super::constants::Weights;
use super::edges::{Source, order, sources};
use super::variables::{Variable, variables};
use super::xml::Net;
use crate::error::Error;

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
        Ok(Self { sources, variables, of_layers, order })
    }
}
