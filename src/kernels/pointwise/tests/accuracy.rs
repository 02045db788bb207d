//! Every function of f32 against the same function in f64.

use std::collections::BTreeMap;
use std::f64::consts::FRAC_1_SQRT_2;
use std::fs;
use std::ops::RangeInclusive;

use rayon::prelude::*;

use super::{SPECIAL, run1, run2, ulps, unary};
use crate::kernels::InnerStride;
use crate::kernels::pointwise::{Params, binary};
use crate::types::dtype::DataType;
use crate::types::function::{Binary, Unary};
use crate::types::kind::Level;

/// A function, the parameters to try, its stated error, and its counterpart in f64.
struct Row<F> {
    function: F,
    params: &'static [Params],
    limit: f64,
    of: fn(f64, f64, f64) -> f64,
}

/// One row for each function. Correctly rounded means a little above one half, because the reference is
/// rounded as well.
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
    Row { function: Unary::Clamp, params: &[[-1.0, 6.0], [0.5, 0.5]], limit: 0.0,
          of: |x, p, q| x.max(p).min(q) },
    Row { function: Unary::Elu, params: &[[1.0, 0.0], [0.3, 0.0], [-2.5, 0.0]], limit: 2.0,
          of: |x, p, _| if x > 0.0 { x } else { p * x.exp_m1() } },
    Row { function: Unary::Exp, params: NONE, limit: 2.0, of: |x, _, _| x.exp() },
    Row { function: Unary::GeluErf, params: NONE, limit: 4.0, of: |x, _, _| x * mass(x) },
    Row { function: Unary::GeluTanh, params: NONE, limit: 4.0, of: |x, _, _| x * sigmoid(inner(x).0) },
    Row { function: Unary::HardSigmoid, params: &[[0.2, 0.5], [0.16666667, 0.5]], limit: ROUNDED,
          of: |x, p, q| unit(p * x + q) },
    Row { function: Unary::HardSwish, params: NONE, limit: ROUNDED,
          of: |x, _, _| x * (x + 3.0).clamp(0.0, 6.0) / 6.0 },
    Row { function: Unary::LeakyRelu, params: &[[0.01, 0.0], [-3.0, 0.0]], limit: ROUNDED,
          of: |x, p, _| if x >= 0.0 { x } else { p * x } },
    Row { function: Unary::Log, params: NONE, limit: 2.0, of: |x, _, _| x.ln() },
    Row { function: Unary::Mish, params: NONE, limit: 4.0, of: |x, _, _| x * mish_gate(x) },
    Row { function: Unary::Pow,
          params: &[[2.0, 0.0], [0.5, 0.0], [-1.0, 0.0], [3.0, 0.0],
              [2.7, 0.0], [-0.1, 0.0], [17.0, 0.0]], limit: 4.0,
          of: |x, p, _| x.powf(p) },
    Row { function: Unary::Reciprocal, params: NONE, limit: ROUNDED, of: |x, _, _| 1.0 / x },
    Row { function: Unary::Relu, params: NONE, limit: 0.0, of: |x, _, _| if x > 0.0 { x } else { 0.0 } },
    Row { function: Unary::Round, params: NONE, limit: 0.0, of: |x, _, _| x.round_ties_even() },
    Row { function: Unary::Sigmoid, params: NONE, limit: 2.0, of: |x, _, _| sigmoid(x) },
    Row { function: Unary::SoftPlus, params: &[[1.0, 0.0], [20.0, 0.0], [-0.7, 0.0]], limit: 4.0,
          of: |x, p, _| softplus(x, p) },
    Row { function: Unary::Sqrt, params: NONE, limit: ROUNDED, of: |x, _, _| x.sqrt() },
    Row { function: Unary::Square, params: NONE, limit: ROUNDED, of: |x, _, _| x * x },
    Row { function: Unary::Tanh, params: NONE, limit: 2.0, of: |x, _, _| x.tanh() },
    Row { function: Unary::Floor, params: NONE, limit: 0.0, of: |x, _, _| x.floor() },
    Row { function: Unary::Ceil, params: NONE, limit: 0.0, of: |x, _, _| x.ceil() },
    Row { function: Unary::Sin, params: NONE, limit: 2.0, of: |x, _, _| x.sin() },
    Row { function: Unary::Cos, params: NONE, limit: 2.0, of: |x, _, _| x.cos() },
];

/// Factors of the gradient, for the backward forms.
#[rustfmt::skip]
const SLOPES: &[Row<Binary>] = &[
    Row { function: Binary::AbsBackward, params: NONE, limit: ROUNDED,
          of: |x, _, _| if x == 0.0 { 0.0 } else { x.signum() } },
    Row { function: Binary::ClampBackward, params: &[[-1.0, 6.0]], limit: ROUNDED,
          of: |x, p, q| f64::from(x > p && x < q) },
    Row { function: Binary::EluBackward, params: &[[1.0, 0.0], [0.3, 0.0]], limit: 2.0,
          of: |x, p, _| if x > 0.0 { 1.0 } else { p * x.exp() } },
    Row { function: Binary::EluBackwardOfResult, params: &[[1.0, 0.0], [0.3, 0.0]], limit: 2.0,
          of: |x, p, _| if x > 0.0 { 1.0 } else { x + p } },
    Row { function: Binary::GeluErfBackward, params: NONE, limit: 4.0,
          of: |x, _, _| mass(x) + x * density(x) },
    Row { function: Binary::GeluTanhBackward, params: NONE, limit: 4.0, of: |x, _, _| gelu_tanh_slope(x) },
    Row { function: Binary::HardSigmoidBackward, params: &[[0.2, 0.5]], limit: ROUNDED,
          of: |x, p, q| if p * x + q > 0.0 && p * x + q < 1.0 { p } else { 0.0 } },
    Row { function: Binary::HardSwishBackward, params: NONE, limit: 2.0,
          of: |x, _, _| if x >= 3.0 { 1.0 } else if x > -3.0 { x / 3.0 + 0.5 } else { 0.0 } },
    Row { function: Binary::MishBackward, params: NONE, limit: 4.0, of: |x, _, _| mish_slope(x) },
    Row { function: Binary::ReluBackward, params: NONE, limit: ROUNDED, of: |x, _, _| f64::from(x > 0.0) },
    Row { function: Binary::SigmoidBackward, params: NONE, limit: 2.0, of: |x, _, _| sigmoid_slope(x) },
    Row { function: Binary::SigmoidBackwardOfResult, params: NONE, limit: 2.0, of: |x, _, _| x * (1.0 - x) },
    Row { function: Binary::SoftPlusBackward, params: &[[1.0, 0.0], [20.0, 0.0], [-0.7, 0.0]], limit: 4.0,
          of: |x, p, _| sigmoid(p * x) },
    Row { function: Binary::SqrtBackward, params: NONE, limit: 2.0, of: |x, _, _| 0.5 / x.sqrt() },
    Row { function: Binary::SqrtBackwardOfResult, params: NONE, limit: 2.0, of: |x, _, _| 0.5 / x },
    Row { function: Binary::TanhBackward, params: NONE, limit: 2.0,
          of: |x, _, _| 4.0 * sigmoid_slope(2.0 * x.abs()) },
    Row { function: Binary::TanhBackwardOfResult, params: NONE, limit: 2.0,
          of: |x, _, _| (1.0 - x) * (1.0 + x) },
];

/// Exponents of [`Binary::Power`].
const POWERS: [f32; 8] = [2.0, 0.5, 3.0, 2.7, -0.1, 17.0, -1e-20, 4e5];

/// The greatest error found, and its argument.
#[derive(Clone, Copy, Default)]
struct Worst {
    ulps: f64,
    x: f32,
    got: f32,
    want: f64,
}

impl Worst {
    fn see(&mut self, x: f32, got: f32, want: f64) {
        // The nearest number is at most half a unit off; most results are nearest.
        if self.ulps >= 0.5 && got == want as f32 {
            return;
        }
        let ulps = ulps(got, want);
        if ulps > self.ulps {
            *self = Self { ulps, x, got, want };
        }
    }
}

/// The bits of every `step`-th f32 of a range.
struct Numbers {
    bits: RangeInclusive<u32>,
    step: u32,
}

impl Numbers {
    fn every(step: u32) -> Self {
        Self { bits: 0..=u32::MAX, step }
    }

    /// The numbers, in chunks of 4096.
    fn chunks(self) -> impl Iterator<Item = Vec<f32>> {
        let range = u64::from(self.step) << 12;
        let (start, end) = (u64::from(*self.bits.start()), u64::from(*self.bits.end()));
        (start..=end).step_by(range as usize).map(move |start| {
            (start..=end.min(start + range - 1))
                .step_by(self.step as usize)
                .map(|bits| f32::from_bits(bits as u32))
                .collect()
        })
    }
}

/// The numbers on which a function is tried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TestedNumbers {
    /// A sample of all.
    Sample,
    /// All numbers from 2^−13 to 2^7, of both signs, where functions are neither straight nor flat, and many
    /// beyond.
    Curved,
    /// All 2^32.
    All,
}

impl TestedNumbers {
    fn numbers(self) -> Vec<Numbers> {
        let between = |sign: u32| Numbers { bits: (sign | 0x3900_0000)..=(sign | 0x42ff_ffff), step: 1 };
        match self {
            Self::Sample => vec![Numbers::every(9_973)],
            Self::Curved => vec![between(0), between(1 << 31), Numbers::every(61)],
            Self::All => vec![Numbers::every(1)],
        }
    }
}

/// Runs a kernel at a level.
type Run = dyn Fn(Level, &[f32]) -> Vec<f32> + Sync;

/// A measurement: a function with its parameters and, if it is a slope, the gradient that it multiplies.
struct Trial {
    /// Name of the function in the source: `Unary::Exp`.
    function: String,
    /// Its parameters.
    params: String,
    limit: f64,
    /// The error that the documentation states; 0 for correctly rounded.
    stated: u32,
    /// The numbers to try if time does not count.
    thorough: TestedNumbers,
    kernel: Box<Run>,
    /// The true value; `None` if none is defined.
    want: Box<dyn Fn(f32) -> Option<f64> + Sync>,
}

impl Trial {
    fn of_unary(row: &'static Row<Unary>, params: Params) -> Self {
        let [p, q] = params.map(f64::from);
        Self {
            function: format!("Unary::{:?}", row.function),
            params: format!("{params:?}"),
            limit: row.limit,
            stated: row.function.ulps(),
            thorough: if params == row.params[0] { TestedNumbers::All } else { TestedNumbers::Curved },
            kernel: Box::new(move |level, x| run1(unary(level, row.function).kernel, x, params)),
            want: Box::new(move |x| match x.is_nan() && row.function != Unary::Pow {
                true => Some(f64::NAN),
                false => Some((row.of)(x.into(), p, q)),
            }),
        }
    }

    fn of_slope(row: &'static Row<Binary>, params: Params, y: f32) -> Self {
        let [p, q] = params.map(f64::from);
        let kernel = |level| {
            binary(level, row.function, DataType::F32, InnerStride::Contiguous, InnerStride::Broadcast)
        };
        Self {
            function: format!("Binary::{:?}", row.function),
            params: format!("{params:?} of {y:e}"),
            limit: row.limit,
            stated: row.function.ulps(),
            thorough: TestedNumbers::Curved,
            kernel: Box::new(move |level, x| {
                run2(kernel(level).expect("f32 has all").kernel, x, &[y], params)
            }),
            want: Box::new(move |x| {
                let slope = (row.of)(x.into(), p, q);
                // If the slope is 0, its sign means nothing.
                (x.is_finite() && slope != 0.0).then(|| slope * f64::from(y))
            }),
        }
    }

    /// Numbers to one power, which is an operand.
    fn of_power(y: f32) -> Self {
        let kernel = |level| {
            binary(level, Binary::Power, DataType::F32, InnerStride::Contiguous, InnerStride::Broadcast)
        };
        Self {
            function: "Binary::Power".into(),
            params: format!("{y:e}"),
            limit: Binary::Power.ulps().into(),
            stated: Binary::Power.ulps(),
            thorough: TestedNumbers::Curved,
            kernel: Box::new(move |level, x| {
                run2(kernel(level).expect("f32 has all").kernel, x, &[y], [0.0; 2])
            }),
            want: Box::new(move |x| Some(f64::from(x).powf(y.into()))),
        }
    }

    /// The greatest error at each available level.
    fn worst(&self, numbers: TestedNumbers) -> Vec<(Level, Worst)> {
        let mut worst: Vec<_> = Level::all_available().map(|level| (level, Worst::default())).collect();
        for x in numbers.numbers().into_iter().flat_map(Numbers::chunks).chain([SPECIAL.to_vec()]) {
            let want: Vec<Option<f64>> = x.iter().map(|&x| (self.want)(x)).collect();
            for (level, worst) in &mut worst {
                for ((&x, got), &want) in x.iter().zip((self.kernel)(*level, &x)).zip(&want) {
                    if let Some(want) = want {
                        worst.see(x, got, want);
                    }
                }
            }
        }
        worst
    }
}

fn trials() -> Vec<Trial> {
    let unary = UNARY.iter().flat_map(|row| row.params.iter().map(|&params| Trial::of_unary(row, params)));
    let slopes = SLOPES.iter().flat_map(|row| row.params.iter().map(move |&params| (row, params)));
    let slopes = slopes.flat_map(|(row, params)| [1.0, -2.7e30].map(|y| Trial::of_slope(row, params, y)));
    unary.chain(slopes).chain(POWERS.map(Trial::of_power)).collect()
}

#[test]
fn every_function_has_a_row() {
    let mut missing = Vec::new();
    for function in Unary::ALL.iter().filter(|&&function| !UNARY.iter().any(|row| row.function == function)) {
        missing.push(format!("Unary::{function:?} has no row in UNARY of {}", file!()));
    }
    let slopes = Binary::ALL.iter().filter(|function| format!("{function:?}").contains("Backward"));
    for function in slopes.filter(|&&function| !SLOPES.iter().any(|row| row.function == function)) {
        missing.push(format!("Binary::{function:?} has no row in SLOPES of {}", file!()));
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// The limits are those of the documentation.
#[test]
fn limits_are_as_stated() {
    let exceeds = |trial: &Trial| match trial.stated {
        0 => trial.limit > ROUNDED,
        ulps => trial.limit > f64::from(ulps),
    };
    let other = trials().into_iter().filter(exceeds).map(|trial| (trial.function, trial.limit, trial.stated));
    assert_eq!(other.collect::<Vec<_>>(), []);
}

/// If this variable is set, every number that matters is tried instead of some, and the findings are written
/// to `MEASURED`. It takes half an hour in release mode; run it when a function changes. If the value is the
/// name of a function, such as `Unary::Exp`, only that one is tried, and only its lines are written anew.
const EVERY_NUMBER: &str = "STERNA_EVERY_NUMBER";
/// The greatest error found of each function at each level; `docs/ops.md` shows it.
const MEASURED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/accuracy.txt");

#[test]
fn functions_stay_within_their_limits() {
    let value = std::env::var(EVERY_NUMBER).ok();
    let is_thorough = value.is_some();
    let of_one = value.filter(|name| name.contains("::"));
    let is_tried = |function: &str| of_one.as_ref().is_none_or(|name| name == function);
    let mut trials = trials();
    if is_thorough {
        trials.retain(|trial| trial.stated > 0 && is_tried(&trial.function));
        assert!(!trials.is_empty(), "no function is called {of_one:?}");
    }
    let found: Vec<(&Trial, Level, Worst)> = trials
        .par_iter()
        .flat_map_iter(|trial| {
            let worst = trial.worst(if is_thorough { trial.thorough } else { TestedNumbers::Sample });
            worst.into_iter().map(move |(level, worst)| (trial, level, worst))
        })
        .collect();
    let beyond: Vec<String> = found
        .iter()
        .filter(|(trial, _, worst)| worst.ulps > trial.limit)
        .map(|(trial, level, Worst { ulps, x, got, want })| {
            let Trial { function, params, limit, .. } = trial;
            format!("{function} {params} at {level}: {ulps:.4} ulp of {limit} at {x:e}: {got:e}, {want:e}")
        })
        .collect();
    assert!(beyond.is_empty(), "{} beyond their limits:\n{}", beyond.len(), beyond.join("\n"));
    if is_thorough {
        let mut greatest = BTreeMap::<(&str, Level), f64>::new();
        for (trial, level, worst) in &found {
            let greatest = greatest.entry((&trial.function, *level)).or_default();
            *greatest = greatest.max(worst.ulps);
        }
        let line =
            |((function, level), ulps): (&(&str, Level), &f64)| format!("{function} {level} {ulps:.2}");
        let before = fs::read_to_string(MEASURED).expect("the table can be read");
        let is_kept = |line: &&str| !is_tried(line.split(' ').next().unwrap_or_default());
        let mut lines: Vec<String> = before.lines().filter(is_kept).map(str::to_owned).collect();
        let at = lines.partition_point(|line| greatest.keys().next().is_some_and(|(new, _)| &**line < *new));
        lines.splice(at..at, greatest.iter().map(line));
        fs::write(MEASURED, lines.join("\n") + "\n").expect("the table can be written");
    }
}
