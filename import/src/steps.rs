//! Ops that the mapping of one layer adds, whatever the format that the layer comes from.

mod convolutions;
mod einsum;
mod inverse;
mod lookups;
mod moves;
mod numbers;
mod overlaid;
mod pools;
mod recurrent;
mod resized;
mod rows;
mod sampled;
mod whole;

use sterna::{Attr, AttrValue, AutoBroadcast, DataType, Dims, Direction, OpKind, TensorId};

use crate::builder::Builder;
use crate::compose;
use crate::dims::{UNKNOWN_DIM, is_known};
use crate::error::{Fault, PortRef};

pub(crate) use convolutions::{WindowPadding, Windows};
pub(crate) use einsum::EQUATION;
pub(crate) use moves::{Around, MAX_SLICES, Padding, Ranges};
pub(crate) use pools::{Pool, Rounding};
pub(crate) use recurrent::{
    Activation, Cell, CellWeights, Lengths, MAX_STEPS, Network, Sequence, activation,
};
pub(crate) use resized::{Blend, Coordinates, Nearest, Resized};
pub(crate) use rows::Reduction;
pub(crate) use sampled::{Between, Beyond, Sampling};

use DataType as D;
use OpKind as K;

/// A function that adds the ops of a formula on one tensor.
pub(crate) type Formula = fn(&mut Steps<'_, '_>, TensorId) -> Result<TensorId, Fault>;

/// Where the mapping of a layer adds its ops.
pub(crate) struct Steps<'s, 'b> {
    pub(crate) builder: &'s mut Builder<'b>,
    /// The name of the layer, which its ops get.
    pub(crate) name: &'s str,
    /// The dims of the result that the file declares.
    pub(crate) declared: Option<Dims>,
}

impl Steps<'_, '_> {
    /// Adds an op, or works it out.
    pub(crate) fn emit(
        &mut self,
        kind: OpKind,
        attrs: &[(Attr, AttrValue)],
        inputs: &[TensorId],
        data_type: DataType,
    ) -> Result<TensorId, Fault> {
        self.builder.op(self.name, kind, attrs, inputs, data_type, None)
    }

    /// Adds an op whose result has the dims that the file declares, if they do not follow.
    pub(crate) fn emit_declared(
        &mut self,
        kind: OpKind,
        attrs: &[(Attr, AttrValue)],
        inputs: &[TensorId],
        data_type: DataType,
    ) -> Result<TensorId, Fault> {
        self.builder.op(self.name, kind, attrs, inputs, data_type, self.declared.as_deref())
    }

    /// Adds an op of the type of its first input, whose result has these dims even if some of them are
    /// unknown.
    pub(crate) fn of_dims(
        &mut self,
        kind: OpKind,
        attrs: &[(Attr, AttrValue)],
        inputs: &[TensorId],
        dims: &[i64],
    ) -> Result<TensorId, Fault> {
        let data_type = self.builder.data_type(inputs[0]);
        self.builder.op(self.name, kind, attrs, inputs, data_type, Some(dims))
    }

    /// A sum so far, if there is one, and one more part.
    pub(crate) fn added(&mut self, sum: Option<TensorId>, part: TensorId) -> Result<TensorId, Fault> {
        match sum {
            None => Ok(part),
            Some(sum) => self.both(K::Add, sum, part),
        }
    }

    /// Adds an op of one input and its type.
    pub(crate) fn same(&mut self, kind: OpKind, input: TensorId) -> Result<TensorId, Fault> {
        self.emit(kind, &[], &[input], self.builder.data_type(input))
    }

    /// Adds an op of two inputs and the type of the first.
    pub(crate) fn both(&mut self, kind: OpKind, a: TensorId, b: TensorId) -> Result<TensorId, Fault> {
        self.emit(kind, &[], &[a, b], self.builder.data_type(a))
    }

    /// Adds a predicate of two inputs.
    pub(crate) fn predicate(&mut self, kind: OpKind, a: TensorId, b: TensorId) -> Result<TensorId, Fault> {
        self.emit(kind, &[], &[a, b], D::Boolean)
    }

    /// Adds a choice, whose three operands broadcast to each other.
    pub(crate) fn select(
        &mut self,
        cond: TensorId,
        then: TensorId,
        other: TensorId,
    ) -> Result<TensorId, Fault> {
        let mode = [(Attr::AutoBroadcast, AutoBroadcast::Multidirectional.into())];
        self.emit(K::Select, &mode, &[cond, then, other], self.builder.data_type(then))
    }

    /// A tensor in another numeric type.
    pub(crate) fn cast(&mut self, tensor: TensorId, to: DataType) -> Result<TensorId, Fault> {
        compose::cast(self.builder, self.name, tensor, to)
    }

    /// A tensor in another shape of as many elements.
    pub(crate) fn in_shape(&mut self, tensor: TensorId, dims: &[i64]) -> Result<TensorId, Fault> {
        compose::in_shape(self.builder, self.name, tensor, dims)
    }

    /// A tensor in another shape, of which one dim may be unknown.
    pub(crate) fn laid_out(&mut self, x: TensorId, dims: &[i64]) -> Result<TensorId, Fault> {
        if is_known(dims) {
            return self.in_shape(x, dims);
        }
        if self.builder.dims(x) == Some(dims) {
            return Ok(x);
        }
        let pattern: Vec<i64> = dims.iter().map(|&dim| if dim == UNKNOWN_DIM { -1 } else { dim }).collect();
        let attrs: [(Attr, AttrValue); 2] =
            [(Attr::Shape, pattern.into()), (Attr::SpecialZero, false.into())];
        self.of_dims(K::StaticReshape, &attrs, &[x], dims)
    }

    /// A tensor repeated to a shape.
    pub(crate) fn enlarged(&mut self, tensor: TensorId, dims: &[i64]) -> Result<TensorId, Fault> {
        compose::enlarged(self.builder, self.name, tensor, dims)
    }

    /// A number of rank 0.
    pub(crate) fn number(&mut self, data_type: DataType, number: f64) -> Result<TensorId, Fault> {
        let port = PortRef { direction: Direction::Input, id: 0, name: "" };
        let tensor = compose::number(self.builder, data_type, number)?;
        tensor.ok_or_else(|| Fault::of_type(port, data_type, "a type that holds the number"))
    }

    /// A number of a layer in f32.
    pub(crate) fn float(&mut self, number: f32) -> Result<TensorId, Fault> {
        self.number(D::F32, number.into())
    }

    /// The dims of a tensor, all of which the caller has found known.
    pub(crate) fn dims(&self, tensor: TensorId) -> Result<Vec<i64>, Fault> {
        let dims = self.builder.known_dims(tensor).map(<[i64]>::to_vec);
        let port = PortRef { direction: Direction::Input, id: 0, name: "" };
        dims.ok_or_else(|| Fault::UnknownShape { port, needed: "known dims".into() })
    }
}
