//! The functions of pointwise ops: the one table from op kinds to functions of elements.
//!
//! The interpreter and the partitions both follow it. `types/function.rs` defines the functions; `infer.rs`
//! has the shape rules.

use super::op::Op;
pub(crate) use crate::types::function::Params;
use crate::types::function::{Binary, Class, Comparison, Logic, Sign, Unary};
use crate::types::kind::{Attr, OpKind};

use Function as F;
use OpKind as K;

/// The function that an op computes for one element of its result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Function {
    /// Of one number.
    Unary(Unary, Params),
    /// Of two numbers.
    Binary(Binary, Params),
    /// A boolean from two numbers.
    Compare(Comparison),
    /// A boolean from two booleans.
    Logic(Logic),
    /// The negation of a boolean.
    Not,
    /// A boolean from one number.
    Classify(Class),
    /// The same number with another sign.
    Sign(Sign),
    /// The second operand if the first is not 0, else the third, bit for bit.
    Select,
    /// The same number in another type. Integer to integer wraps around. Floating point to integer truncates
    /// and saturates; NaN becomes 0. A conversion to floating point rounds once; true is 1. To its own type a
    /// number keeps every bit.
    Convert,
    /// The same element, bit for bit.
    Identity,
    /// The element's index along the dim that `axis` names; the input is shape-only.
    Index,
    /// The same element as at another place of an operand.
    Move(Movement),
    /// The same number everywhere, converted from f32; as a boolean, whether it is not 0.
    Fill(f32),
    /// 1 if Dropout keeps an element, else 0: a function of the element's row-major index, and of seed,
    /// offset and probability. A part of [`Composite::Dropout`]; no op is this function alone.
    IsKept,
}

/// An op that is several functions of elements, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Composite {
    /// From numbers to integers or small floats, by scales and zero points.
    Quantize,
    /// From integers or small floats to numbers, by scales and zero points.
    Dequantize,
    /// Drops random elements and scales the others.
    Dropout,
    /// Normalises channels by given statistics.
    BatchNorm,
}

impl Composite {
    /// The composite that an op is; `None` if its kind is none.
    pub(crate) fn of(op: &Op) -> Option<Self> {
        match op.kind() {
            K::Quantize | K::DynamicQuantize => Some(Self::Quantize),
            K::Dequantize | K::DynamicDequantize => Some(Self::Dequantize),
            K::Dropout => Some(Self::Dropout),
            K::BatchNormInference => Some(Self::BatchNorm),
            _ => None,
        }
    }

    /// True if an op is the composite.
    pub(crate) fn is_of(self, op: &Op) -> bool {
        Self::of(op) == Some(self)
    }
}

/// How an op moves elements, whose bits stay as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Movement {
    /// Permutes the dims.
    Transpose,
    /// Keeps the elements in row-major order and changes the dims.
    Reshape,
    /// Takes a range of each dim.
    Slice,
    /// Puts the operands one after the other along a dim.
    Concat,
}

impl Function {
    /// Largest error of a kernel in units in the last place of f32, counted from the correctly rounded
    /// result.
    pub(crate) const fn ulps(self) -> u32 {
        match self {
            F::Unary(function, _) => function.ulps(),
            F::Binary(function, _) => function.ulps(),
            _ => 0,
        }
    }

    /// The function of an op; `None` if its kind is not in the table.
    pub(crate) fn of(op: &Op) -> Option<Self> {
        let attr = |attr| op.f32_attr(attr).unwrap_or(0.0);
        let unary = |function| F::Unary(function, [0.0; 2]);
        let binary = |function| F::Binary(function, [0.0; 2]);
        let with = |p, q| [attr(p), attr(q)];
        let with_one = |p| [attr(p), 0.0];
        let by_tanh = op.str_attr(Attr::Mode) == Some("gelu_tanh");
        Some(match op.kind() {
            K::Abs => F::Sign(Sign::Clear),
            K::Add => binary(Binary::Add),
            K::BiasAdd => binary(Binary::Add),
            K::Cast => F::Convert,
            K::Ceil => unary(Unary::Ceil),
            K::Clamp => F::Unary(Unary::Clamp, with(Attr::Min, Attr::Max)),
            K::Concat => F::Move(Movement::Concat),
            K::Cos => unary(Unary::Cos),
            K::Divide => binary(Binary::Divide),
            K::Elu => F::Unary(Unary::Elu, with_one(Attr::Alpha)),
            K::Equal => F::Compare(Comparison::Equal),
            K::Exp => unary(Unary::Exp),
            K::Fill => F::Fill(attr(Attr::Value)),
            K::Floor => unary(Unary::Floor),
            K::GELU if by_tanh => unary(Unary::GeluTanh),
            K::GELU => unary(Unary::GeluErf),
            K::GenIndex => F::Index,
            K::Greater => F::Compare(Comparison::Greater),
            K::GreaterEqual => F::Compare(Comparison::GreaterEqual),
            K::HardSigmoid => F::Unary(Unary::HardSigmoid, with(Attr::Alpha, Attr::Beta)),
            K::HardSwish => unary(Unary::HardSwish),
            K::Identity => F::Identity,
            K::IsFinite => F::Classify(Class::Finite),
            K::IsInf => F::Classify(Class::Infinite),
            K::IsNaN => F::Classify(Class::Nan),
            K::LeakyReLU => F::Unary(Unary::LeakyRelu, with_one(Attr::Alpha)),
            K::Less => F::Compare(Comparison::Less),
            K::LessEqual => F::Compare(Comparison::LessEqual),
            K::Log => unary(Unary::Log),
            K::LogicalAnd => F::Logic(Logic::And),
            K::LogicalNot => F::Not,
            K::LogicalOr => F::Logic(Logic::Or),
            K::LogicalXor => F::Logic(Logic::Xor),
            K::Maximum => binary(Binary::Maximum),
            K::Minimum => binary(Binary::Minimum),
            K::Modulo => binary(Binary::Modulo),
            K::Mish => unary(Unary::Mish),
            K::Multiply => binary(Binary::Multiply),
            K::Negative => F::Sign(Sign::Flip),
            K::NotEqual => F::Compare(Comparison::NotEqual),
            K::Power => binary(Binary::Power),
            K::Pow => F::Unary(Unary::Pow, with_one(Attr::Beta)),
            K::PReLU => binary(Binary::Prelu),
            K::Reciprocal => unary(Unary::Reciprocal),
            K::ReLU => unary(Unary::Relu),
            K::Reorder => F::Identity,
            K::Round => unary(Unary::Round),
            K::Select => F::Select,
            K::Sigmoid => unary(Unary::Sigmoid),
            K::Sin => unary(Unary::Sin),
            K::Slice => F::Move(Movement::Slice),
            K::SoftPlus => F::Unary(Unary::SoftPlus, with_one(Attr::Beta)),
            K::Sqrt => unary(Unary::Sqrt),
            K::Square => unary(Unary::Square),
            K::SquaredDifference => binary(Binary::SquaredDifference),
            K::StaticReshape => F::Move(Movement::Reshape),
            K::StaticTranspose => F::Move(Movement::Transpose),
            K::Subtract => binary(Binary::Subtract),
            K::Tanh => unary(Unary::Tanh),
            K::TypeCast => F::Convert,
            _ => return Self::of_gradient(op),
        })
    }

    /// The function of an op that computes a gradient.
    fn of_gradient(op: &Op) -> Option<Self> {
        let attr = |attr| op.f32_attr(attr).unwrap_or(0.0);
        let binary = |function| F::Binary(function, [0.0; 2]);
        let with = |p, q| [attr(p), attr(q)];
        let with_one = |p| [attr(p), 0.0];
        let by_tanh = op.str_attr(Attr::Mode) == Some("gelu_tanh");
        let of_result = op.bool_attr(Attr::UseDst);
        Some(match op.kind() {
            K::AbsBackward => binary(Binary::AbsBackward),
            K::ClampBackward => F::Binary(Binary::ClampBackward, with(Attr::Min, Attr::Max)),
            K::EluBackward if of_result => F::Binary(Binary::EluBackwardOfResult, with_one(Attr::Alpha)),
            K::EluBackward => F::Binary(Binary::EluBackward, with_one(Attr::Alpha)),
            K::GELUBackward if by_tanh => binary(Binary::GeluTanhBackward),
            K::GELUBackward => binary(Binary::GeluErfBackward),
            K::HardSigmoidBackward => F::Binary(Binary::HardSigmoidBackward, with(Attr::Alpha, Attr::Beta)),
            K::HardSwishBackward => binary(Binary::HardSwishBackward),
            K::MishBackward => binary(Binary::MishBackward),
            K::ReLUBackward => binary(Binary::ReluBackward),
            K::SigmoidBackward if of_result => binary(Binary::SigmoidBackwardOfResult),
            K::SigmoidBackward => binary(Binary::SigmoidBackward),
            K::SoftPlusBackward => F::Binary(Binary::SoftPlusBackward, with_one(Attr::Beta)),
            K::SqrtBackward if of_result => binary(Binary::SqrtBackwardOfResult),
            K::SqrtBackward => binary(Binary::SqrtBackward),
            K::TanhBackward if of_result => binary(Binary::TanhBackwardOfResult),
            K::TanhBackward => binary(Binary::TanhBackward),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_is_that_of_some_op() {
        // Values of a thousand bits, by kind.
        let values = include_str!("../../tests/data/functions.txt");
        let has_values =
            |kind: OpKind| values.lines().any(|line| line.split(' ').next() == Some(kind.name()));
        let (mut known, mut faults) = (Vec::new(), Vec::new());
        for &kind in OpKind::ALL {
            for (mode, of_result) in [("gelu_tanh", true), ("gelu_erf", false)] {
                let op = Op::new(0, kind).attr(Attr::Mode, mode).attr(Attr::UseDst, of_result);
                known.push(match Function::of(&op) {
                    Some(F::Unary(function, _)) => {
                        if !has_values(kind) {
                            faults.push(format!("tests/data/functions.py has no row for {kind}"));
                        }
                        format!("Unary::{function:?}")
                    }
                    Some(F::Binary(function, _)) => format!("Binary::{function:?}"),
                    _ => continue,
                });
            }
        }
        let unary = Unary::ALL.iter().map(|function| format!("Unary::{function:?}"));
        let all = unary.chain(Binary::ALL.iter().map(|function| format!("Binary::{function:?}")));
        let missing = all.filter(|function| !known.contains(function));
        faults.extend(missing.map(|function| format!("Function::of gives {function} for no kind of op")));
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}
