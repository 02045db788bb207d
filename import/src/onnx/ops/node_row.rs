//! A row of the tables of op types.

use sterna::{OpKind, TensorId};

use super::call::Call;
use crate::error::Fault;
use crate::steps::{Formula, Reduction};

/// The mapping of an op type, from an opset on.
pub(super) struct NodeRow {
    pub(super) name: &'static str,
    /// The first opset whose op of this name the row describes; 7 stands for all before, too.
    pub(super) since: i64,
    /// The names of the inputs, in order; the last ones may be missing if there are more than `least`.
    pub(super) inputs: &'static [&'static str],
    /// The least number of inputs.
    pub(super) least: usize,
    /// The inputs among these that may be left out all the same.
    pub(super) gaps: &'static [usize],
    /// The last input stands for any number of them.
    pub(super) variadic: bool,
    /// The most outputs.
    pub(super) outputs: usize,
    pub(super) attributes: &'static [(&'static str, Contents)],
    pub(super) map: NodeMap,
}

/// The type of an attribute, by its number in files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contents {
    Float = 1,
    Int = 2,
    Text = 3,
    Tensor = 4,
    Floats = 6,
    Ints = 7,
    Texts = 8,
}

pub(super) type Mapping = fn(&mut Call<'_, '_>) -> Result<TensorId, Fault>;
pub(super) type Mappings = fn(&mut Call<'_, '_>) -> Result<Vec<TensorId>, Fault>;

/// The way from a node to ops.
pub(super) enum NodeMap {
    /// An op of one input and its type, without attributes.
    Unary(OpKind),
    /// As `Unary`; integers that the op lacks are computed as wider ones.
    Signed(OpKind),
    /// A predicate of a floating-point number.
    Predicate(OpKind),
    /// Arithmetic on two inputs of one type; integers that the op lacks are computed as wider ones, and wrap.
    Arithmetic(OpKind),
    /// The larger or the smaller one of any number of inputs.
    Extreme(OpKind),
    /// An op of two inputs of one type with a truth value.
    Comparison(OpKind),
    /// An op of truth values.
    Logic(OpKind),
    /// One number for the elements along some axes.
    Reduction(Reduction),
    /// Several ops on floating point.
    Formula(Formula),
    /// Several ops on any number.
    OfNumber(Formula),
    /// Anything else with one output.
    By(Mapping),
    /// Anything else.
    Several(Mappings),
}

pub(super) const fn row(
    name: &'static str,
    inputs: &'static [&'static str],
    attributes: &'static [(&'static str, Contents)],
    map: NodeMap,
) -> NodeRow {
    let least = inputs.len();
    NodeRow { name, since: 7, inputs, least, gaps: &[], variadic: false, outputs: 1, attributes, map }
}

impl NodeRow {
    pub(super) const fn since(self, since: i64) -> Self {
        Self { since, ..self }
    }

    pub(super) const fn least(self, least: usize) -> Self {
        Self { least, ..self }
    }

    pub(super) const fn gaps(self, gaps: &'static [usize]) -> Self {
        Self { gaps, ..self }
    }

    pub(super) const fn variadic(self) -> Self {
        Self { variadic: true, ..self }
    }

    pub(super) const fn outputs(self, outputs: usize) -> Self {
        Self { outputs, ..self }
    }
}
