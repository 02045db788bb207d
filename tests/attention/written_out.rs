//! Promise: norms and GELU that are written out run as the op, in one partition with what fuses with the op,
//! and a form whose inner values are needed elsewhere, or that is another function, stays.

use crate::attention::{Builder, Port, Row, Setup, check_all, numbers};
use crate::common::{Random, engines, report};
use crate::rewrites::{Case, check, fill};
use sterna::{Attr, AttrValue, DataType, OpKind, Policy, Rewrite};

use DataType as D;
use OpKind as K;

const DIMS: [i64; 3] = [2, 5, 33];

fn input(builder: &mut Builder, data_type: DataType, dims: &[i64], seed: u64) -> Port {
    let numbers = numbers(&mut Random::new(seed), dims, 1.5);
    builder.input(data_type, dims, None, &numbers)
}

fn mean(builder: &mut Builder, of: &Port, axes: &[i64]) -> Port {
    let attrs: [(Attr, AttrValue); 2] = [(Attr::Axes, axes.into()), (Attr::KeepDims, true.into())];
    builder.op_with(K::ReduceMean, &[of], &[of.data_type()], &attrs).remove(0)
}

fn power(builder: &mut Builder, of: &Port, exponent: f32) -> Port {
    let attrs = [(Attr::Beta, exponent.into())];
    builder.op_with(K::Pow, &[of], &[of.data_type()], &attrs).remove(0)
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Squared {
    Square,
    Product,
    Power,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Rooted {
    /// x / √v
    Quotient,
    /// x · (1 / √v)
    Inverse,
    /// (1 / √v) · x, by a reciprocal.
    Reciprocal,
    /// x · v^-½
    Power,
}

const SQUARES: [Squared; 3] = [Squared::Square, Squared::Product, Squared::Power];
const ROOTS: [Rooted; 4] = [Rooted::Quotient, Rooted::Inverse, Rooted::Reciprocal, Rooted::Power];

/// Inner values of a norm: squares, their mean, the quotients.
type Inner = [Port; 3];

/// `x` by the root of the mean of the squares of `squared`.
fn by_root(
    builder: &mut Builder,
    [x, squared]: [&Port; 2],
    (square, root): (Squared, Rooted),
    axes: &[i64],
) -> Inner {
    let of = x.data_type();
    let squares = match square {
        Squared::Square => builder.op(K::Square, &[squared], of),
        Squared::Product => builder.op(K::Multiply, &[squared, squared], of),
        Squared::Power => power(builder, squared, 2.0),
    };
    let mean = mean(builder, &squares, axes);
    let epsilon = fill(builder, D::F32, &[], 1e-5);
    let sum = builder.op(K::Add, &[&mean, &epsilon], of);
    let result = match root {
        Rooted::Power => {
            let factor = power(builder, &sum, -0.5);
            builder.op(K::Multiply, &[x, &factor], of)
        }
        _ => {
            let size = builder.op(K::Sqrt, &[&sum], of);
            match root {
                Rooted::Quotient => builder.op(K::Divide, &[x, &size], of),
                Rooted::Inverse => {
                    let one = fill(builder, of, &[1], 1.0);
                    let factor = builder.op(K::Divide, &[&one, &size], of);
                    builder.op(K::Multiply, &[x, &factor], of)
                }
                _ => {
                    let factor = builder.op(K::Reciprocal, &[&size], of);
                    builder.op(K::Multiply, &[&factor, x], of)
                }
            }
        }
    };
    [squares, mean, result]
}

/// The quotients by a factor of each column.
fn weighted(builder: &mut Builder, of: &Port, last: &[i64]) -> Port {
    let gamma = input(builder, of.data_type(), last, 3);
    builder.op(K::Multiply, &[of, &gamma], of.data_type())
}

fn rms(data_type: DataType, form: (Squared, Rooted), behind: impl Fn(&mut Builder, &Port, Inner)) -> Setup {
    let mut builder = Builder::new(true);
    let x = input(&mut builder, data_type, &DIMS, 1);
    let inner = by_root(&mut builder, [&x, &x], form, &[-1]);
    behind(&mut builder, &x, inner);
    builder.finish()
}

fn project(builder: &mut Builder, x: &Port) {
    let weights = input(builder, x.data_type(), &[33, 20], 4);
    builder.matmul(x, &weights, false, x.data_type());
}

#[test]
fn an_rms_norm_that_is_written_out_is_the_op() {
    let (mut cases, applied) = (Vec::new(), &[Rewrite::RmsNorm][..]);
    for square in SQUARES {
        for root in ROOTS {
            let plain = rms(D::F32, (square, root), |_, _, _| {});
            cases.push(Case::new(format!("{square:?} {root:?}"), plain, applied, 1));
            let scaled = rms(D::F32, (square, root), |builder, _, [.., result]| {
                let scaled = weighted(builder, &result, &[33]);
                project(builder, &scaled);
            });
            cases.push(Case::new(format!("{square:?} {root:?} before a product"), scaled, applied, 1));
        }
    }
    let form = (Squared::Power, Rooted::Reciprocal);
    for data_type in [D::Bf16, D::F16] {
        let narrow = rms(data_type, form, |builder, _, [.., result]| drop(weighted(builder, &result, &[33])));
        cases.push(Case::new(format!("all in {data_type}"), narrow, applied, 1));
        for (name, is_before) in [("before", true), ("behind", false)] {
            let mut builder = Builder::new(true);
            let x = input(&mut builder, data_type, &DIMS, 1);
            let wide = builder.op(K::TypeCast, &[&x], D::F32);
            let [.., result] = by_root(&mut builder, [&wide, &wide], form, &[-1]);
            let result = if is_before { result } else { weighted(&mut builder, &result, &[33]) };
            let mut result = builder.op(K::TypeCast, &[&result], data_type);
            if is_before {
                result = weighted(&mut builder, &result, &[33]);
            }
            project(&mut builder, &result);
            let name = format!("{data_type} that is f32 between, back {name} the factor");
            cases.push(Case::new(name, builder.finish(), applied, 1));
        }
    }
    let mut builder = Builder::new(true);
    let x = input(&mut builder, D::F32, &DIMS, 1);
    let [.., result] = by_root(&mut builder, [&x, &x], form, &[1, 2]);
    weighted(&mut builder, &result, &[5, 33]);
    cases.push(Case::new("rows of two dims", builder.finish(), applied, 1));
    let other = rms(D::F32, form, |builder, _, [.., result]| drop(weighted(builder, &result, &[1])));
    cases.push(Case::new("a factor of other dims", other, applied, 1));
    let mut builder = Builder::new(true);
    let x = input(&mut builder, D::Bf16, &DIMS, 1);
    let wide = builder.op(K::TypeCast, &[&x], D::F32);
    let [.., result] = by_root(&mut builder, [&wide, &wide], form, &[-1]);
    builder.op(K::Add, &[&result, &wide], D::F32);
    let setup = builder.finish();
    let count = setup.partitions(Policy::Fusion).len();
    cases.push(Case::new("a conversion that another op uses", setup, applied, count));
    check(cases);
}

/// LayerNorm whose distances stand there once or twice.
fn layer(
    data_type: DataType,
    form: (Squared, Rooted),
    is_twice: bool,
    behind: impl Fn(&mut Builder, &Port, Inner),
) -> Setup {
    let mut builder = Builder::new(true);
    let x = input(&mut builder, data_type, &DIMS, 1);
    let mean = mean(&mut builder, &x, &[2]);
    let distance = builder.op(K::Subtract, &[&x, &mean], data_type);
    let again = if is_twice { builder.op(K::Subtract, &[&x, &mean], data_type) } else { distance.clone() };
    let [squares, variance, result] = by_root(&mut builder, [&distance, &again], form, &[2]);
    behind(&mut builder, &mean, [squares, variance, result]);
    builder.finish()
}

#[test]
fn a_layer_norm_that_is_written_out_is_the_op() {
    let (mut cases, applied) = (Vec::new(), &[Rewrite::LayerNorm][..]);
    let affine = |builder: &mut Builder, result: &Port| {
        let scaled = weighted(builder, result, &[33]);
        let beta = input(builder, result.data_type(), &[33], 5);
        builder.op(K::Add, &[&beta, &scaled], result.data_type())
    };
    for (at, root) in ROOTS.into_iter().enumerate() {
        for is_twice in [false, true] {
            let form = (SQUARES[at % 3], root);
            let name = format!("{form:?}, distances twice: {is_twice}");
            let plain = layer(D::F32, form, is_twice, |_, _, _| {});
            cases.push(Case::new(name.clone(), plain, applied, 1));
            let scaled = layer(D::F32, form, is_twice, |builder, _, [.., result]| {
                let result = affine(builder, &result);
                project(builder, &result);
            });
            cases.push(Case::new(format!("{name}, before a product"), scaled, applied, 1));
        }
    }
    let form = (Squared::Power, Rooted::Quotient);
    let scaled =
        layer(D::F32, form, false, |builder, _, [.., result]| drop(weighted(builder, &result, &[33])));
    cases.push(Case::new("a factor alone", scaled, applied, 1));
    for data_type in [D::Bf16, D::F16] {
        let narrow = layer(data_type, form, false, |builder, _, [.., result]| drop(affine(builder, &result)));
        cases.push(Case::new(format!("all in {data_type}"), narrow, applied, 1));
    }
    // The mean is needed, so that only what stands behind it is a norm.
    let wanted = layer(D::F32, form, false, |builder, mean, _| builder.hand_out(mean));
    let count = wanted.partitions(Policy::Fusion).len();
    cases.push(Case::new("the mean is handed out", wanted, &[Rewrite::RmsNorm], count));
    check(cases);
}

#[test]
fn a_norm_whose_inner_values_are_needed_stays() {
    let form = (Squared::Power, Rooted::Reciprocal);
    let mut cases = Vec::new();
    for wanted in 0..2 {
        let setup = rms(D::F32, form, |builder, _, inner| builder.hand_out(&inner[wanted]));
        let count = setup.partitions(Policy::Fusion).len();
        cases.push(Case::new(format!("inner value {wanted}"), setup, &[], count));
    }
    let mut builder = Builder::new(true);
    let (x, y) = (input(&mut builder, D::F32, &DIMS, 1), input(&mut builder, D::F32, &DIMS, 2));
    by_root(&mut builder, [&x, &y], form, &[-1]);
    let setup = builder.finish();
    let count = setup.partitions(Policy::Fusion).len();
    cases.push(Case::new("squares of other data", setup, &[], count));
    let mut builder = Builder::new(true);
    let x = input(&mut builder, D::F32, &DIMS, 1);
    by_root(&mut builder, [&x, &x], form, &[1]);
    let setup = builder.finish();
    let count = setup.partitions(Policy::Fusion).len();
    cases.push(Case::new("means of columns", setup, &[], count));
    check(cases);
}

#[test]
fn other_dims_than_those_of_the_graph_run_as_they_are_written() {
    let mut setup = rms(D::F32, (Squared::Power, Rooted::Reciprocal), |builder, _, [.., result]| {
        let scaled = weighted(builder, &result, &[33]);
        project(builder, &scaled);
    });
    assert_eq!(setup.partitions(Policy::Fusion)[0].rewrites(), [Rewrite::RmsNorm]);
    let mut other = Builder::new(true);
    input(&mut other, D::F32, &[1], 9);
    let mut given = other.inputs.remove(0);
    let place = setup.inputs.iter().position(|input| input.value.dims() == [33]).unwrap();
    given.desc = given.desc.with_id(setup.inputs[place].desc.id());
    setup.inputs[place] = given;
    let rows: [Row; 1] = [("one factor for all columns".into(), setup)];
    report(&check_all(&rows, &engines()));
}

/// The argument of the tanh of GELU, in the way of a library.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Argument {
    /// β · (x + κ · (x · (x · x)))
    Products,
    /// β · (x + κ · x³)
    Power,
    /// x · β · (1 + κ · x · x)
    Factors,
}

/// The order of the products of ½, the data and the sum.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Halved {
    Data,
    Sum,
    Result,
}

struct Gelu {
    data_type: DataType,
    argument: Argument,
    halved: Halved,
    numbers: [f32; 2],
    /// The tanh is handed out.
    is_wanted: bool,
}

const NUMBERS: [f32; 2] = [0.797_884_6, 0.044_715];

impl Gelu {
    fn setup(&self) -> Setup {
        let of = self.data_type;
        let mut builder = Builder::new(true);
        let spread: Vec<f32> = (0..330u16).map(|at| f32::from(at) / 30.0 - 5.5).collect();
        let x = builder.input(of, &[10, 33], None, &spread);
        let b = &mut builder;
        let both = |b: &mut Builder, kind: OpKind, x: &Port, y: &Port| b.op(kind, &[x, y], of);
        let [beta, kappa] = self.numbers.map(|number| fill(b, of, &[1], number));
        let half = fill(b, of, &[], 0.5);
        let argument = match self.argument {
            Argument::Factors => {
                let one = fill(b, of, &[], 1.0);
                let first = both(b, K::Multiply, &x, &beta);
                let scaled = both(b, K::Multiply, &kappa, &x);
                let square = both(b, K::Multiply, &scaled, &x);
                let sum = both(b, K::Add, &one, &square);
                both(b, K::Multiply, &first, &sum)
            }
            form => {
                let cube = if form == Argument::Power {
                    power(b, &x, 3.0)
                } else {
                    let square = both(b, K::Multiply, &x, &x);
                    both(b, K::Multiply, &x, &square)
                };
                let cube = both(b, K::Multiply, &cube, &kappa);
                let sum = both(b, K::Add, &x, &cube);
                both(b, K::Multiply, &beta, &sum)
            }
        };
        let tanh = b.op(K::Tanh, &[&argument], of);
        let again = fill(b, of, &[], 1.0);
        let sum = both(b, K::Add, &tanh, &again);
        match self.halved {
            Halved::Data => {
                let halved = both(b, K::Multiply, &half, &x);
                both(b, K::Multiply, &halved, &sum)
            }
            Halved::Sum => {
                let halved = both(b, K::Multiply, &sum, &half);
                both(b, K::Multiply, &x, &halved)
            }
            Halved::Result => {
                let product = both(b, K::Multiply, &x, &sum);
                both(b, K::Multiply, &product, &half)
            }
        };
        if self.is_wanted {
            b.hand_out(&tanh);
        }
        builder.finish()
    }
}

#[test]
fn a_gelu_that_is_written_out_is_the_op() {
    let (mut cases, applied) = (Vec::new(), &[Rewrite::GeluTanh][..]);
    for data_type in [D::F32, D::Bf16, D::F16] {
        for argument in [Argument::Products, Argument::Power, Argument::Factors] {
            for halved in [Halved::Data, Halved::Sum, Halved::Result] {
                let gelu = Gelu { data_type, argument, halved, numbers: NUMBERS, is_wanted: false };
                let name = format!("{data_type} {argument:?} {halved:?}");
                cases.push(Case::new(name, gelu.setup(), applied, 1));
            }
        }
    }
    for (name, numbers, is_wanted) in [
        ("another factor", [0.8, 0.044_715], false),
        ("another cube", [0.797_884_6, 0.05], false),
        ("the tanh is handed out", NUMBERS, true),
    ] {
        let (argument, halved) = (Argument::Products, Halved::Data);
        let setup = Gelu { data_type: D::F32, argument, halved, numbers, is_wanted }.setup();
        let count = setup.partitions(Policy::Fusion).len();
        cases.push(Case::new(name, setup, &[], count));
    }
    check(cases);
}
