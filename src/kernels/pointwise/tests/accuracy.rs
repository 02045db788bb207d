//! Every function of f32 against the same function in f64.

use std::f64::consts::FRAC_1_SQRT_2;

use super::{SPECIAL, run1, run2, ulps};
use crate::kernels::Inner;
use crate::kernels::pointwise::{Params, binary, unary};
use crate::types::dtype::DataType;
use crate::types::function::{Binary, Unary};
use crate::types::kind::Level;

/// A function, the parameters it is tried with, the error that it may have, and its like in f64.
struct Row<F> {
    function: F,
    params: &'static [Params],
    limit: f64,
    of: fn(f64, f64, f64) -> f64,
}

/// One row for each function; correctly rounded is a little above one half, since the reference is rounded as well.
const ROUNDED: f64 = 0.500_001;
const NONE: &[Params] = &[[0.0, 0.0]];

fn mass(x: f64) -> f64 {
    0.5 * libm::erfc(-x * FRAC_1_SQRT_2)
}

fn density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn sigmoid_slope(x: f64) -> f64 {
    sigmoid(x) * sigmoid(-x)
}

/// Twice the argument of the tangent in GELU's approximation, and its slope.
fn inner(x: f64) -> (f64, f64) {
    let scale = 2.0 * (2.0 / std::f64::consts::PI).sqrt();
    (scale * (x + 0.044715 * x * x * x), scale * (1.0 + 3.0 * 0.044715 * x * x))
}

fn gelu_tanh_slope(x: f64) -> f64 {
    let (u, slope) = inner(x.clamp(-20.0, 20.0));
    sigmoid(u) + x.clamp(-20.0, 20.0) * slope * sigmoid_slope(u)
}

/// `tanh(ln(1 + eˣ))`.
fn mish_gate(x: f64) -> f64 {
    let w = x.min(300.0).exp();
    w * (w + 2.0) / (w * (w + 2.0) + 2.0)
}

fn mish_slope(x: f64) -> f64 {
    let w = x.min(40.0).exp();
    let (n, d) = (w * (w + 2.0), w * (w + 2.0) + 2.0);
    (n * d + 4.0 * x.min(40.0) * w * (1.0 + w)) / (d * d)
}

fn softplus(x: f64, p: f64) -> f64 {
    let z = p * x;
    (z.max(0.0) + (-z.abs()).exp().ln_1p()) / p
}

fn unit(x: f64) -> f64 {
    if x <= 0.0 { 0.0 } else { x.min(1.0) }
}

#[rustfmt::skip]
const UNARY: &[Row<Unary>] = &[
    Row { function: Unary::Clamp, params: &[[-1.0, 6.0], [0.5, 0.5]], limit: 0.0, of: |x, p, q| x.max(p).min(q) },
    Row { function: Unary::Elu, params: &[[1.0, 0.0], [0.3, 0.0], [-2.5, 0.0]], limit: 4.0, of: |x, p, _| if x > 0.0 { x } else { p * x.exp_m1() } },
    Row { function: Unary::Exp, params: NONE, limit: 2.0, of: |x, _, _| x.exp() },
    Row { function: Unary::GeluErf, params: NONE, limit: 4.0, of: |x, _, _| x * mass(x) },
    Row { function: Unary::GeluTanh, params: NONE, limit: 4.0, of: |x, _, _| x * sigmoid(inner(x).0) },
    Row { function: Unary::HardSigmoid, params: &[[0.2, 0.5], [0.16666667, 0.5]], limit: ROUNDED, of: |x, p, q| unit(p * x + q) },
    Row { function: Unary::HardSwish, params: NONE, limit: ROUNDED, of: |x, _, _| x * unit(x / 6.0 + 0.5) },
    Row { function: Unary::LeakyRelu, params: &[[0.01, 0.0], [-3.0, 0.0]], limit: ROUNDED, of: |x, p, _| if x >= 0.0 { x } else { p * x } },
    Row { function: Unary::Log, params: NONE, limit: 2.0, of: |x, _, _| x.ln() },
    Row { function: Unary::Mish, params: NONE, limit: 4.0, of: |x, _, _| x * mish_gate(x) },
    Row { function: Unary::Pow, params: &[[2.0, 0.0], [0.5, 0.0], [-1.0, 0.0], [3.0, 0.0], [2.7, 0.0], [-0.1, 0.0], [17.0, 0.0]], limit: 4.0, of: |x, p, _| x.powf(p) },
    Row { function: Unary::Reciprocal, params: NONE, limit: ROUNDED, of: |x, _, _| 1.0 / x },
    Row { function: Unary::Relu, params: NONE, limit: 0.0, of: |x, _, _| if x > 0.0 { x } else { 0.0 } },
    Row { function: Unary::Round, params: NONE, limit: 0.0, of: |x, _, _| x.round_ties_even() },
    Row { function: Unary::Sigmoid, params: NONE, limit: 2.0, of: |x, _, _| sigmoid(x) },
    Row { function: Unary::SoftPlus, params: &[[1.0, 0.0], [20.0, 0.0], [-0.7, 0.0]], limit: 4.0, of: |x, p, _| softplus(x, p) },
    Row { function: Unary::Sqrt, params: NONE, limit: ROUNDED, of: |x, _, _| x.sqrt() },
    Row { function: Unary::Square, params: NONE, limit: ROUNDED, of: |x, _, _| x * x },
    Row { function: Unary::Tanh, params: NONE, limit: 2.0, of: |x, _, _| x.tanh() },
    Row { function: Unary::Floor, params: NONE, limit: 0.0, of: |x, _, _| x.floor() },
    Row { function: Unary::Ceil, params: NONE, limit: 0.0, of: |x, _, _| x.ceil() },
];

/// What the gradient is multiplied with, for the backward forms.
#[rustfmt::skip]
const SLOPES: &[Row<Binary>] = &[
    Row { function: Binary::AbsBackward, params: NONE, limit: ROUNDED, of: |x, _, _| if x == 0.0 { 0.0 } else { x.signum() } },
    Row { function: Binary::ClampBackward, params: &[[-1.0, 6.0]], limit: ROUNDED, of: |x, p, q| f64::from(x > p && x < q) },
    Row { function: Binary::EluBackward, params: &[[1.0, 0.0], [0.3, 0.0]], limit: 4.0, of: |x, p, _| if x > 0.0 { 1.0 } else { p * x.exp() } },
    Row { function: Binary::EluBackwardOfResult, params: &[[1.0, 0.0], [0.3, 0.0]], limit: 4.0, of: |x, p, _| if x > 0.0 { 1.0 } else { x + p } },
    Row { function: Binary::GeluErfBackward, params: NONE, limit: 4.0, of: |x, _, _| mass(x) + x * density(x) },
    Row { function: Binary::GeluTanhBackward, params: NONE, limit: 4.0, of: |x, _, _| gelu_tanh_slope(x) },
    Row { function: Binary::HardSigmoidBackward, params: &[[0.2, 0.5]], limit: ROUNDED, of: |x, p, q| if p * x + q > 0.0 && p * x + q < 1.0 { p } else { 0.0 } },
    Row { function: Binary::HardSwishBackward, params: NONE, limit: 4.0, of: |x, _, _| if x >= 3.0 { 1.0 } else if x > -3.0 { x / 3.0 + 0.5 } else { 0.0 } },
    Row { function: Binary::MishBackward, params: NONE, limit: 4.0, of: |x, _, _| mish_slope(x) },
    Row { function: Binary::ReluBackward, params: NONE, limit: ROUNDED, of: |x, _, _| f64::from(x > 0.0) },
    Row { function: Binary::SigmoidBackward, params: NONE, limit: 4.0, of: |x, _, _| sigmoid_slope(x) },
    Row { function: Binary::SigmoidBackwardOfResult, params: NONE, limit: 4.0, of: |x, _, _| x * (1.0 - x) },
    Row { function: Binary::SoftPlusBackward, params: &[[1.0, 0.0], [20.0, 0.0], [-0.7, 0.0]], limit: 4.0, of: |x, p, _| sigmoid(p * x) },
    Row { function: Binary::SqrtBackward, params: NONE, limit: 4.0, of: |x, _, _| 0.5 / x.sqrt() },
    Row { function: Binary::SqrtBackwardOfResult, params: NONE, limit: 4.0, of: |x, _, _| 0.5 / x },
    Row { function: Binary::TanhBackward, params: NONE, limit: 4.0, of: |x, _, _| 4.0 * sigmoid_slope(2.0 * x.abs()) },
    Row { function: Binary::TanhBackwardOfResult, params: NONE, limit: 4.0, of: |x, _, _| (1.0 - x) * (1.0 + x) },
];

/// The greatest error met, and where.
#[derive(Clone, Copy, Default)]
struct Worst {
    ulps: f64,
    x: f32,
    y: f32,
    got: f32,
    want: f64,
}

impl Worst {
    fn see(&mut self, x: f32, y: f32, got: f32, want: f64) {
        let ulps = ulps(got, want);
        if ulps > self.ulps {
            *self = Self { ulps, x, y, got, want };
        }
    }
}

/// Every `step`-th f32 from the first on, in pieces.
fn every(first: u32, step: usize) -> impl Iterator<Item = Vec<f32>> {
    let piece = 1 << 12;
    let count = (u32::MAX - first) as usize / step + 1;
    (0..count).step_by(piece).map(move |start| {
        let at = |i: usize| f32::from_bits(first + (i * step) as u32);
        (start..count.min(start + piece)).map(at).collect()
    })
}

fn worst_of_unary(
    row: &Row<Unary>,
    params: Params,
    level: Level,
    numbers: impl Iterator<Item = Vec<f32>>,
) -> Worst {
    let (kernel, [p, q]) = (unary(level, row.function), params.map(f64::from));
    let mut worst = Worst::default();
    for x in numbers {
        for (&x, got) in x.iter().zip(run1::<_, f32>(kernel, &x, params)) {
            let of_nan = if row.function == Unary::Pow { x.into() } else { f64::NAN };
            let x64 = if x.is_nan() { of_nan } else { x.into() };
            let want = if x64.is_nan() && row.function != Unary::Pow { x64 } else { (row.of)(x64, p, q) };
            worst.see(x, 0.0, got, want);
        }
    }
    worst
}

fn worst_of_slope(
    row: &Row<Binary>,
    params: Params,
    level: Level,
    y: f32,
    numbers: impl Iterator<Item = Vec<f32>>,
) -> Worst {
    let kernel =
        binary(level, row.function, DataType::F32, Inner::Dense, Inner::Repeated).expect("f32 has them all");
    let [p, q] = params.map(f64::from);
    let mut worst = Worst::default();
    for x in numbers {
        for (&x, got) in x.iter().zip(run2::<_, f32>(kernel, &x, &[y], params)) {
            // What a gradient becomes where the slope is no number, or is none of a number, is asked elsewhere.
            if x.is_finite() {
                let slope = (row.of)(x.into(), p, q);
                worst.see(x, y, got, if slope == 0.0 { f64::from(got) * 0.0 } else { slope * f64::from(y) });
            }
        }
    }
    worst
}

/// Measures every function and compares it with its limit; answers with a line for each.
fn measure(step: usize, params_of: fn(&'static [Params]) -> &'static [Params]) -> Vec<(bool, String)> {
    let mut lines = Vec::new();
    let mut line = |name: String, level: Level, limit: f64, worst: Worst| {
        let Worst { ulps, x, y, got, want } = worst;
        let text = format!(
            "{name} at {level}: {ulps:.4} ulp of {limit}, x {x:e} y {y:e}: got {got:e}, want {want:e}"
        );
        lines.push((ulps <= limit, text));
    };
    for level in Level::all_available() {
        for row in UNARY {
            for &params in params_of(row.params) {
                let numbers = every(0, step).chain([SPECIAL.to_vec()]);
                let worst = worst_of_unary(row, params, level, numbers);
                line(format!("{:?} {params:?}", row.function), level, row.limit, worst);
            }
        }
        for row in SLOPES {
            for &params in params_of(row.params) {
                for y in [1.0, -2.7e30] {
                    let worst = worst_of_slope(row, params, level, y, every(0, step));
                    line(format!("{:?} {params:?}", row.function), level, row.limit, worst);
                }
            }
        }
    }
    lines
}

fn assert_within(lines: Vec<(bool, String)>) {
    let beyond: Vec<String> = lines.into_iter().filter(|(within, _)| !within).map(|(_, line)| line).collect();
    assert!(beyond.is_empty(), "{} beyond their limits:\n{}", beyond.len(), beyond.join("\n"));
}

#[test]
fn every_function_has_a_row() {
    let missing: Vec<String> = crate::kernels::pointwise::unary::ALL
        .iter()
        .filter(|&&function| !UNARY.iter().any(|row| row.function == function))
        .map(|function| format!("{function:?}"))
        .collect();
    assert!(missing.is_empty(), "without a row: {missing:?}");
    let slopes = crate::kernels::pointwise::binary::ALL
        .iter()
        .filter(|function| format!("{function:?}").contains("Backward"))
        .filter(|&&function| !SLOPES.iter().any(|row| row.function == function))
        .map(|function| format!("{function:?}"))
        .collect::<Vec<_>>();
    assert!(slopes.is_empty(), "without a row: {slopes:?}");
}

#[test]
fn functions_stay_within_their_limits() {
    assert_within(measure(50_021, |params| params));
}

/// Some hours of a slow machine: to be run in release mode when a function changes.
#[test]
#[ignore = "all 2^32 numbers through every function"]
fn functions_stay_within_their_limits_everywhere() {
    let lines = measure(1, |params| &params[..1]);
    lines.iter().for_each(|(_, line)| println!("{line}"));
    assert_within(lines);
}
