//! What pointwise ops compute: the one table from op kinds to functions of elements, and on which types they run.

use crate::graph::op::Op;
use crate::types::dtype::DataType;
use crate::types::function::{Binary, Class, Comparison, Logic, Sign, Unary};
use crate::types::kind::{Attr, OpKind};

use DataType as D;
use Function as F;
use OpKind as K;

/// Parameters `p` and `q` of a function; 0 where it has none.
pub(crate) type Params = [f32; 2];

/// What an op computes for one element of its result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Function {
    /// Of one number.
    Unary(Unary, Params),
    /// Of two numbers.
    Binary(Binary, Params),
    /// A truth value from two numbers.
    Compare(Comparison),
    /// A truth value from two.
    Logic(Logic),
    /// The other truth value.
    Not,
    /// A truth value from one number.
    Classify(Class),
    /// The same number but for its sign.
    Sign(Sign),
    /// One of two elements, by a truth value.
    Select,
    /// The same number in another type.
    Convert,
    /// The same element.
    Identity,
    /// The index along the axis that the attribute names.
    Index,
    /// The same number everywhere.
    Fill(f32),
}

/// An op that runs: its function, and the type in which it computes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pointwise {
    pub(crate) function: Function,
    /// Operands are brought to this type and the result is rounded from it: f32 for f32, bf16 and f16. Functions that
    /// only move bits compute in the type of their result.
    pub(crate) computes_in: DataType,
}

impl Pointwise {
    /// What an op computes; `None` where nothing here runs it.
    pub(crate) fn of(op: &Op) -> Option<Self> {
        let function = function(op)?;
        let computes_in = computes_in(function, op)?;
        Some(Self { function, computes_in })
    }
}

/// Whether the kind of an op is in the table, on whatever types.
pub(super) fn is_known(op: &Op) -> bool {
    function(op).is_some()
}

/// The table.
fn function(op: &Op) -> Option<Function> {
    let attr = |attr| op.f32_attr(attr).unwrap_or(0.0);
    let unary = |function| F::Unary(function, [0.0; 2]);
    let binary = |function| F::Binary(function, [0.0; 2]);
    let with = |p, q| [attr(p), attr(q)];
    let with_one = |p| [attr(p), 0.0];
    let by_tanh = op.str_attr(Attr::Mode) == Some("gelu_tanh");
    let of_result = op.bool_attr(Attr::UseDst);
    Some(match op.kind() {
        K::Abs => F::Sign(Sign::Clear),
        K::AbsBackward => binary(Binary::AbsBackward),
        K::Add => binary(Binary::Add),
        K::BiasAdd => binary(Binary::Add),
        K::Cast => F::Convert,
        K::Ceil => unary(Unary::Ceil),
        K::Clamp => F::Unary(Unary::Clamp, with(Attr::Min, Attr::Max)),
        K::ClampBackward => F::Binary(Binary::ClampBackward, with(Attr::Min, Attr::Max)),
        K::Divide => binary(Binary::Divide),
        K::Elu => F::Unary(Unary::Elu, with_one(Attr::Alpha)),
        K::EluBackward if of_result => F::Binary(Binary::EluBackwardOfResult, with_one(Attr::Alpha)),
        K::EluBackward => F::Binary(Binary::EluBackward, with_one(Attr::Alpha)),
        K::Equal => F::Compare(Comparison::Equal),
        K::Exp => unary(Unary::Exp),
        K::Fill => F::Fill(attr(Attr::Value)),
        K::Floor => unary(Unary::Floor),
        K::GELU if by_tanh => unary(Unary::GeluTanh),
        K::GELU => unary(Unary::GeluErf),
        K::GELUBackward if by_tanh => binary(Binary::GeluTanhBackward),
        K::GELUBackward => binary(Binary::GeluErfBackward),
        K::GenIndex => F::Index,
        K::Greater => F::Compare(Comparison::Greater),
        K::GreaterEqual => F::Compare(Comparison::GreaterEqual),
        K::HardSigmoid => F::Unary(Unary::HardSigmoid, with(Attr::Alpha, Attr::Beta)),
        K::HardSigmoidBackward => F::Binary(Binary::HardSigmoidBackward, with(Attr::Alpha, Attr::Beta)),
        K::HardSwish => unary(Unary::HardSwish),
        K::HardSwishBackward => binary(Binary::HardSwishBackward),
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
        K::Mish => unary(Unary::Mish),
        K::MishBackward => binary(Binary::MishBackward),
        K::Multiply => binary(Binary::Multiply),
        K::Negative => F::Sign(Sign::Flip),
        K::NotEqual => F::Compare(Comparison::NotEqual),
        K::Pow => F::Unary(Unary::Pow, with_one(Attr::Beta)),
        K::PReLU => binary(Binary::Prelu),
        K::Reciprocal => unary(Unary::Reciprocal),
        K::ReLU => unary(Unary::Relu),
        K::ReLUBackward => binary(Binary::ReluBackward),
        K::Round => unary(Unary::Round),
        K::Select => F::Select,
        K::Sigmoid => unary(Unary::Sigmoid),
        K::SigmoidBackward if of_result => binary(Binary::SigmoidBackwardOfResult),
        K::SigmoidBackward => binary(Binary::SigmoidBackward),
        K::SoftPlus => F::Unary(Unary::SoftPlus, with_one(Attr::Beta)),
        K::SoftPlusBackward => F::Binary(Binary::SoftPlusBackward, with_one(Attr::Beta)),
        K::Sqrt => unary(Unary::Sqrt),
        K::SqrtBackward if of_result => binary(Binary::SqrtBackwardOfResult),
        K::SqrtBackward => binary(Binary::SqrtBackward),
        K::Square => unary(Unary::Square),
        K::SquaredDifference => binary(Binary::SquaredDifference),
        K::Subtract => binary(Binary::Subtract),
        K::Tanh => unary(Unary::Tanh),
        K::TanhBackward if of_result => binary(Binary::TanhBackwardOfResult),
        K::TanhBackward => binary(Binary::TanhBackward),
        K::TypeCast => F::Convert,
        _ => return None,
    })
}

/// The type rule: f32, bf16 and f16 mix and compute in f32; integers go with themselves; nothing else mixes.
fn computes_in(function: Function, op: &Op) -> Option<DataType> {
    let result = op.outputs()[0].data_type();
    let operands = || op.inputs().iter().map(|input| input.data_type());
    let is_float = |t: DataType| [D::F32, D::Bf16, D::F16].contains(&t);
    let all = |wanted: &dyn Fn(DataType) -> bool| operands().all(wanted) && wanted(result);
    match function {
        F::Unary(..) => all(&is_float).then_some(D::F32),
        F::Binary(binary, _) => {
            let on_integers = matches!(
                binary,
                Binary::Add | Binary::Subtract | Binary::Multiply | Binary::Maximum | Binary::Minimum
            );
            let is_integer = [D::S32, D::S64].contains(&result);
            match () {
                () if all(&is_float) => Some(D::F32),
                () if on_integers && is_integer && all(&|t| t == result) => Some(result),
                () => None,
            }
        }
        F::Compare(_) => {
            let first = operands().next()?;
            match () {
                () if operands().all(is_float) => Some(D::F32),
                () if operands().all(|t| t == first) => compared_in(first),
                () => None,
            }
        }
        F::Sign(_) => all(&is_float).then_some(result),
        F::Classify(_) => operands().next().map(|t| if is_float(t) { D::F32 } else { t }),
        F::Logic(_) | F::Not | F::Select | F::Convert | F::Identity | F::Index | F::Fill(_) => Some(result),
    }
}

/// The type in which numbers that are no bf16, f16 or f32 are compared: one that holds them all.
fn compared_in(data_type: DataType) -> Option<DataType> {
    match data_type {
        D::S8 | D::U8 | D::S16 | D::U16 => Some(D::S32),
        D::S32 | D::U32 | D::S64 | D::U64 | D::F64 => Some(data_type),
        _ => None,
    }
}
