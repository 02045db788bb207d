//! GELU as exporters write it out, `x · ½ · (1 + erf(x / √2))`: one op in place of many.

use std::collections::BTreeMap;
use std::f64::consts::{FRAC_1_SQRT_2, SQRT_2};

use sterna::{Attr, DataType, LogicalTensor, Op, OpKind, TensorId};

/// Puts an op `GELU` in place of each product that is one; what led to the product stays. `erfs` has the
/// results of error functions with their operands, `number` gives the value of a constant of one element.
pub(super) fn merge(
    ops: &mut [Op],
    erfs: &BTreeMap<TensorId, TensorId>,
    number: impl Fn(TensorId) -> Option<f64>,
) {
    if erfs.is_empty() {
        return;
    }
    let outputs = ops.iter().enumerate().filter_map(|(index, op)| Some((op.outputs().first()?.id(), index)));
    let finder = GeluFinder { makers: outputs.collect(), ops, erfs, number };
    let found: Vec<(usize, LogicalTensor)> =
        finder.ops.iter().enumerate().filter_map(|(index, op)| Some((index, finder.operand(op)?))).collect();
    for (index, x) in found {
        let op = &ops[index];
        let gelu = Op::new(op.id(), OpKind::GELU).named(op.name()).attr(Attr::Mode, "gelu_erf");
        ops[index] = gelu.input(x).output(op.outputs()[0].clone());
    }
}

struct GeluFinder<'a, F> {
    ops: &'a [Op],
    /// The ops by their results.
    makers: BTreeMap<TensorId, usize>,
    erfs: &'a BTreeMap<TensorId, TensorId>,
    number: F,
}

impl<'a, F: Fn(TensorId) -> Option<f64>> GeluFinder<'a, F> {
    /// The operand of a GELU whose last product an op is.
    fn operand(&self, op: &'a Op) -> Option<LogicalTensor> {
        let [a, b] = both(op, OpKind::Multiply)?;
        let x = [(a, b), (b, a)].into_iter().find_map(|(factor, product)| {
            let [c, d] = both(self.maker(product.id())?, OpKind::Multiply)?;
            let factors = [factor, c, d];
            let places = (0..3).flat_map(|half| (0..3).map(move |sum| (half, sum)));
            places.filter(|(half, sum)| half != sum).find_map(|(half, sum)| {
                let x = factors[3 - half - sum];
                (self.is(factors[half], 0.5) && self.is_sum(factors[sum], x)).then_some(x)
            })
        })?;
        let result = &op.outputs()[0];
        (x.dims() == result.dims() && x.data_type() == result.data_type()).then(|| x.clone())
    }

    /// True if a tensor is `1 + erf(x / √2)`.
    fn is_sum(&self, sum: &LogicalTensor, x: &LogicalTensor) -> bool {
        let Some([a, b]) = self.maker(sum.id()).and_then(|op| both(op, OpKind::Add)) else { return false };
        [(a, b), (b, a)].into_iter().any(|(one, erf)| {
            let scaled = self.erfs.get(&erf.id()).and_then(|operand| self.maker(*operand));
            self.is(one, 1.0) && scaled.is_some_and(|op| self.is_scaled(op, x))
        })
    }

    /// True if an op computes `x / √2`.
    fn is_scaled(&self, op: &Op, x: &LogicalTensor) -> bool {
        match (both(op, OpKind::Divide), both(op, OpKind::Multiply)) {
            (Some([a, root]), _) => a.id() == x.id() && self.is(root, SQRT_2),
            (_, Some([a, b])) => {
                let pairs = [(a, b), (b, a)];
                pairs.iter().any(|(a, factor)| a.id() == x.id() && self.is(factor, FRAC_1_SQRT_2))
            }
            _ => false,
        }
    }

    /// True if a tensor is a constant number, as near to it as its type allows.
    fn is(&self, tensor: &LogicalTensor, number: f64) -> bool {
        let near = match tensor.data_type() {
            DataType::F32 => 1e-6,
            DataType::F16 => 1e-3,
            DataType::Bf16 => 1e-2,
            _ => return false,
        };
        (self.number)(tensor.id()).is_some_and(|held| (held - number).abs() <= near * number)
    }

    fn maker(&self, tensor: TensorId) -> Option<&'a Op> {
        self.makers.get(&tensor).map(|&index| &self.ops[index])
    }
}

/// The operands of an op of a kind that has two.
fn both(op: &Op, kind: OpKind) -> Option<[&LogicalTensor; 2]> {
    let [a, b] = op.inputs() else { return None };
    (op.kind() == kind).then_some([a, b])
}
