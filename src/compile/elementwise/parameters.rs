//! The scales and zero points of a dequantisation, as values of a group.

use smallvec::{SmallVec, smallvec};

use super::group::{GroupValue, Moved, ShapedGroup, ValueDef};
use crate::graph::function::{Function, Movement};
use crate::graph::op::{AttrValue, Op};
use crate::partition::pointwise::TypedFunction;
use crate::plan::ValueId;
use crate::types::dtype::DataType;
use crate::types::kind::Attr;
use crate::types::shape::{self, Dims};

/// The scales and the zero points of a dequantisation.
pub(in crate::compile) struct QuantParameters {
    scales: Numbers,
    zeros: Numbers,
}

enum Numbers {
    /// The elements of a value, which is an input of the op.
    Value(ValueId),
    /// The numbers of an attribute.
    Fixed(Vec<f32>),
}

impl QuantParameters {
    /// The parameters of an op whose inputs are these values.
    pub(in crate::compile) fn of(op: &Op, inputs: &[ValueId]) -> Self {
        let zeros = match op.get_attr(Attr::Zps) {
            Some(AttrValue::S64s(zeros)) => zeros.iter().map(|&zero| zero as f64 as f32).collect(),
            _ => vec![0.0],
        };
        match *inputs {
            [_, scales, zeros, ..] => Self { scales: Numbers::Value(scales), zeros: Numbers::Value(zeros) },
            [_, scales] => Self { scales: Numbers::Value(scales), zeros: Numbers::Fixed(vec![0.0]) },
            _ => Self {
                scales: Numbers::Fixed(op.f32s_attr(Attr::Scales).to_vec()),
                zeros: Numbers::Fixed(zeros),
            },
        }
    }
}

impl ShapedGroup {
    /// The group with the scales and the zero points of a dequantisation as further values, in f32: each dim
    /// of the integers has a number of parameters, and these numbers are the dims of the values, which hold
    /// the parameters in the same order.
    pub(in crate::compile) fn with_parameters(
        &self,
        parameters: &QuantParameters,
        counts: &[i64],
        dims: &Dims,
    ) -> (Self, [ValueId; 2]) {
        let mut group = self.clone();
        let values =
            [&parameters.scales, &parameters.zeros].map(|numbers| group.add_numbers(numbers, counts, dims));
        (group, values)
    }

    fn add_numbers(&mut self, numbers: &Numbers, counts: &[i64], dims: &Dims) -> ValueId {
        let (value, own) = match numbers {
            Numbers::Fixed(numbers) => {
                let own: Dims = if numbers.len() == 1 { Dims::new() } else { dims.clone() };
                (self.add(own.clone(), Function::Fill(0.0), smallvec![], numbers.clone()), own)
            }
            &Numbers::Value(value) => {
                let own = self.values[value].dims.clone();
                (self.add(own.clone(), Function::Convert, smallvec![(value, 0)], Vec::new()), own)
            }
        };
        let function = match shape::element_count(&own) == shape::element_count(counts) {
            _ if own == *dims => return value,
            true => Function::Move(Movement::Reshape),
            false => Function::Identity,
        };
        self.add(dims.clone(), function, smallvec![(value, 0)], Vec::new())
    }

    fn add(
        &mut self,
        dims: Dims,
        function: Function,
        operands: SmallVec<[(ValueId, usize); 3]>,
        constants: Vec<f32>,
    ) -> ValueId {
        let data_type = DataType::F32;
        let pointwise = TypedFunction { function, computes_in: data_type };
        let moved = matches!(function, Function::Move(_)).then_some(Moved::Reshaped);
        let def = Some(ValueDef { pointwise, operands, axis: 0, constants, moved });
        self.values.push(GroupValue { data_type, dims, def })
    }
}
