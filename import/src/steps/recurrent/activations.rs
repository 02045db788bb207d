//! The functions that bend gates and states.

use sterna::{Attr, AttrValue, DataType, OpKind, TensorId};

use crate::error::Fault;
use crate::steps::Steps;

use DataType as D;
use OpKind as K;

/// A function of a number in f32, with up to two numbers of its own.
type Bending = fn(&mut Steps<'_, '_>, TensorId, [f32; 2]) -> Result<TensorId, Fault>;

/// A function, by its name.
struct ActivationRow {
    name: &'static str,
    /// The numbers of its own, if they are not given; `None` for one that must be.
    numbers: &'static [Option<f32>],
    bending: Bending,
}

const fn row(name: &'static str, numbers: &'static [Option<f32>], bending: Bending) -> ActivationRow {
    ActivationRow { name, numbers, bending }
}

const ROWS: &[ActivationRow] = &[
    row("Affine", &[None, None], |steps, x, [alpha, beta]| {
        let x = scaled(steps, x, alpha)?;
        let beta = steps.float(beta)?;
        steps.both(K::Add, x, beta)
    }),
    row("Elu", &[Some(1.0)], |steps, x, [alpha, _]| {
        steps.emit(K::Elu, &[(Attr::Alpha, alpha.into())], &[x], D::F32)
    }),
    row("HardSigmoid", &[Some(0.2), Some(0.5)], |steps, x, [alpha, beta]| {
        let attrs: [(Attr, AttrValue); 2] = [(Attr::Alpha, alpha.into()), (Attr::Beta, beta.into())];
        steps.emit(K::HardSigmoid, &attrs, &[x], D::F32)
    }),
    row("LeakyRelu", &[Some(0.01)], |steps, x, [alpha, _]| {
        steps.emit(K::LeakyReLU, &[(Attr::Alpha, alpha.into())], &[x], D::F32)
    }),
    row("Relu", &[], |steps, x, _| steps.same(K::ReLU, x)),
    row("ScaledTanh", &[None, None], |steps, x, [alpha, beta]| {
        let x = scaled(steps, x, beta)?;
        let x = steps.same(K::Tanh, x)?;
        scaled(steps, x, alpha)
    }),
    row("Sigmoid", &[], |steps, x, _| steps.same(K::Sigmoid, x)),
    row("Softplus", &[], |steps, x, _| steps.same(K::SoftPlus, x)),
    row("Softsign", &[], |steps, x, _| steps.softsign(x)),
    row("Tanh", &[], |steps, x, _| steps.same(K::Tanh, x)),
    row("ThresholdedRelu", &[Some(1.0)], |steps, x, [alpha, _]| {
        let (alpha, zero) = (steps.float(alpha)?, steps.float(0.0)?);
        let is_above = steps.predicate(K::Greater, x, alpha)?;
        steps.select(is_above, x, zero)
    }),
];

fn scaled(steps: &mut Steps<'_, '_>, x: TensorId, factor: f32) -> Result<TensorId, Fault> {
    let factor = steps.float(factor)?;
    steps.both(K::Multiply, x, factor)
}

/// A function of a network.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Activation {
    bending: Bending,
    numbers: [f32; 2],
}

impl Activation {
    pub(super) fn applied(&self, steps: &mut Steps<'_, '_>, x: TensorId) -> Result<TensorId, Fault> {
        (self.bending)(steps, x, self.numbers)
    }
}

/// The function of a name, in letters of either case, which takes the numbers of its own from the front of
/// the given ones.
pub(crate) fn activation(name: &[u8], given: &mut [&[f32]; 2]) -> Result<Activation, Fault> {
    let row = ROWS.iter().find(|row| row.name.as_bytes().eq_ignore_ascii_case(name));
    let row = row.ok_or_else(|| {
        let names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        Fault::of_attribute("activations", names.join(", "))
    })?;
    let mut numbers = [0.0; 2];
    for (at, default) in row.numbers.iter().enumerate() {
        numbers[at] = match (given[at].split_first(), default) {
            (Some((first, rest)), _) => {
                given[at] = rest;
                *first
            }
            (None, Some(default)) => *default,
            (None, None) => {
                let attribute = ["activation_alpha", "activation_beta"][at];
                return Err(Fault::of_attribute(attribute, format!("a number for `{}`", row.name)));
            }
        };
    }
    Ok(Activation { bending: row.bending, numbers })
}
