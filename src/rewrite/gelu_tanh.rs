//! GELU by tanh that is written out, `x · ½ · (1 + tanh(β · (x + κ · x³)))`, becomes the op, which one step
//! in registers computes.
//!
//! The argument of the tanh may be any sum and product of numbers and powers of `x` that is this polynomial.

use std::f64::consts::{FRAC_2_SQRT_PI, SQRT_2};

use super::pattern_rewriter::{PatternRewriter, Replacement, aligns_right};
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::Op;
use crate::types::dtype::DataType;
use crate::types::kind::{Attr, OpKind};

/// √(2 / π).
const BETA: f64 = SQRT_2 * FRAC_2_SQRT_PI / 2.0;
const KAPPA: f64 = 0.044715;

/// The most operands in the argument of the tanh.
const MAX_OPERANDS: usize = 32;

pub(super) fn find(rewriter: &PatternRewriter<'_>, place: usize) -> Option<Replacement> {
    let tanh = rewriter.op(place).filter(|op| op.kind() == OpKind::Tanh)?;
    let near = match tanh.outputs()[0].data_type() {
        DataType::F32 => 1e-6,
        DataType::F16 => 2e-3,
        DataType::Bf16 => 2e-2,
        _ => return None,
    };
    let is_near = |number: f64, wanted: f64| (number - wanted).abs() <= near * wanted;
    let mut removed = vec![place];
    let (sum, beside) = with_number(rewriter, &tanh.outputs()[0], OpKind::Add, &mut removed)?;
    if f64::from(beside) != 1.0 {
        return None;
    }
    let (x, result) = halved_products(rewriter, &sum.outputs()[0], &mut removed)?;
    let mut argument = Argument { rewriter, x, removed, operands: 0 };
    let [constant, once, square, cube] = argument.polynomial(&tanh.inputs()[0])?;
    let is_argument = constant == 0.0 && square == 0.0 && is_near(once, BETA) && is_near(cube, BETA * KAPPA);
    let is_alike =
        x.dims().is_some() && x.dims() == result.dims() || x.partial_dims()? == result.partial_dims()?;
    if !is_argument || !is_alike || x.data_type() != result.data_type() {
        return None;
    }
    let gelu = Op::new(tanh.id(), OpKind::GELU).named(tanh.name()).attr(Attr::Mode, "gelu_tanh");
    let gelu = gelu.input(x.clone()).output(result.clone());
    Some(Replacement { removed: argument.removed, added: vec![gelu] })
}

/// The only op that uses a tensor, if it is of a kind and its other operand is a number; and the number.
fn with_number<'a>(
    rewriter: &'a PatternRewriter<'_>,
    tensor: &LogicalTensor,
    kind: OpKind,
    removed: &mut Vec<usize>,
) -> Option<(&'a Op, f32)> {
    let (place, op) = rewriter.only_consumer(tensor).filter(|(_, op)| op.kind() == kind)?;
    let other = other_operand(op, tensor)?;
    let number = rewriter.number(other, tensor)?;
    removed.push(place);
    removed.extend(rewriter.only_producer(other).map(|(number, _)| number));
    Some((op, number))
}

/// The other operand of an op of two.
fn other_operand<'a>(op: &'a Op, tensor: &LogicalTensor) -> Option<&'a LogicalTensor> {
    match op.inputs() {
        [a, b] if a.id() == tensor.id() && aligns_right(op) => Some(b),
        [a, b] if b.id() == tensor.id() && aligns_right(op) => Some(a),
        _ => None,
    }
}

/// The tensor by whose half a sum is multiplied, in two products of any order, and the result of both.
fn halved_products<'a>(
    rewriter: &'a PatternRewriter<'_>,
    sum: &LogicalTensor,
    removed: &mut Vec<usize>,
) -> Option<(&'a LogicalTensor, &'a LogicalTensor)> {
    let is_half = |number: f32| number == 0.5;
    if let Some((half, number)) = with_number(rewriter, sum, OpKind::Multiply, removed) {
        // (sum · ½) · x
        let halved = &half.outputs()[0];
        let (place, op) = rewriter.only_consumer(halved).filter(|(_, op)| op.kind() == OpKind::Multiply)?;
        removed.push(place);
        return is_half(number).then_some((other_operand(op, halved)?, &op.outputs()[0]));
    }
    let (place, op) = rewriter.only_consumer(sum).filter(|(_, op)| op.kind() == OpKind::Multiply)?;
    removed.push(place);
    let (other, product) = (other_operand(op, sum)?, &op.outputs()[0]);
    // sum · (x · ½)
    if let Some((place, half)) = rewriter.only_producer(other).filter(|(_, op)| op.kind() == OpKind::Multiply)
        && let [a, b] = half.inputs()
        && let Some((x, number)) =
            [(a, b), (b, a)].into_iter().find(|(x, number)| rewriter.number(number, x).is_some_and(is_half))
    {
        removed.push(place);
        removed.extend(rewriter.only_producer(number).map(|(number, _)| number));
        return Some((x, product));
    }
    // (sum · x) · ½
    let (half, number) = with_number(rewriter, product, OpKind::Multiply, removed)?;
    is_half(number).then_some((other, &half.outputs()[0]))
}

/// The ops that lead from `x` to the argument of the tanh.
struct Argument<'r, 'g> {
    rewriter: &'r PatternRewriter<'g>,
    x: &'r LogicalTensor,
    removed: Vec<usize>,
    /// The operands so far.
    operands: usize,
}

impl Argument<'_, '_> {
    /// The coefficients of a tensor as a polynomial of third degree in `x`; `None` if it is none.
    fn polynomial(&mut self, tensor: &LogicalTensor) -> Option<[f64; 4]> {
        if tensor.id() == self.x.id() {
            return Some([0.0, 1.0, 0.0, 0.0]);
        }
        self.operands += 1;
        let (place, op) = self.rewriter.producer(tensor).filter(|_| self.operands <= MAX_OPERANDS)?;
        if let Some(number) = self.rewriter.number(tensor, self.x) {
            self.removed.extend(self.rewriter.only_producer(tensor).map(|(number, _)| number));
            return Some([number.into(), 0.0, 0.0, 0.0]);
        }
        // A power may have several users.
        if !self.removed.contains(&place) {
            self.removed.push(place);
        }
        match (op.kind(), op.inputs()) {
            (OpKind::Add | OpKind::Multiply, [a, b]) if aligns_right(op) => {
                let (a, b) = (self.polynomial(a)?, self.polynomial(b)?);
                match op.kind() {
                    OpKind::Add => Some([0, 1, 2, 3].map(|at| a[at] + b[at])),
                    _ => product(a, b),
                }
            }
            (OpKind::Square, [a]) => {
                let a = self.polynomial(a)?;
                product(a, a)
            }
            (OpKind::Pow, [a]) => {
                let a = self.polynomial(a)?;
                match op.f32_attr(Attr::Beta)? {
                    2.0 => product(a, a),
                    3.0 => product(product(a, a)?, a),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

/// The product of two polynomials, unless its degree is above the third.
fn product(a: [f64; 4], b: [f64; 4]) -> Option<[f64; 4]> {
    let mut result = [0.0; 4];
    for (i, x) in a.into_iter().enumerate() {
        for (j, y) in b.into_iter().enumerate().filter(|(_, y)| x * y != 0.0) {
            *result.get_mut(i + j)? += x * y;
        }
    }
    Some(result)
}
