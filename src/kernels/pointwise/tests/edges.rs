//! Infinities, zeros, NaN and integers at their bounds.

use super::{SPECIAL, of_f32, run1, run2, ulps, unary};
use crate::kernels::InnerStride;
use crate::kernels::pointwise::{self, binary, classify, compare, logic, not, sign};
use crate::types::dtype::DataType;
use crate::types::function::{Binary, Class, Comparison, Logic, Sign, Unary};
use crate::types::kind::Level;

/// A predicate, and its expected answer.
type Rule<Q, T> = (Q, fn(T, T) -> bool);

fn canonical(x: f32) -> u32 {
    if x.is_nan() { 0x7fc0_0000 } else { x.to_bits() }
}

fn report(faults: Vec<String>) {
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// Every pair of special numbers.
fn pairs() -> (Vec<f32>, Vec<f32>) {
    SPECIAL.iter().flat_map(|&x| SPECIAL.iter().map(move |&y| (x, y))).unzip()
}

fn maximum(x: f32, y: f32) -> f32 {
    match x.is_nan() || y.is_nan() {
        true => f32::NAN,
        false if x == y => f32::from_bits(x.to_bits() & y.to_bits()),
        false => x.max(y),
    }
}

#[test]
fn arithmetic_is_that_of_f32() {
    type Rule = fn(f32, f32) -> f32;
    let rules: [(Binary, Rule); 15] = [
        (Binary::Add, |x, y| x + y),
        (Binary::Subtract, |x, y| x - y),
        (Binary::Multiply, |x, y| x * y),
        (Binary::Divide, |x, y| x / y),
        (Binary::Modulo, |x, y| {
            let rest = x % y;
            let moved = if rest != 0.0 && (rest < 0.0) != (y < 0.0) { rest + y } else { rest };
            if moved == 0.0 { moved.copysign(y) } else { moved }
        }),
        (Binary::Maximum, maximum),
        (Binary::Minimum, |x, y| -maximum(-x, -y)),
        (Binary::SquaredDifference, |x, y| (x - y) * (x - y)),
        (Binary::Prelu, |x, y| if x >= 0.0 { x } else { y * x }),
        (Binary::AbsBackward, |x, y| match x {
            _ if x > 0.0 => y,
            _ if x < 0.0 => -y,
            _ => 0.0,
        }),
        (Binary::ClampBackward, |x, y| if x > -1.0 && x < 2.0 { y } else { 0.0 }),
        (Binary::ReluBackward, |x, y| if x > 0.0 { y } else { 0.0 }),
        (Binary::HardSwishBackward, |x, y| match x {
            _ if x >= 3.0 => y,
            _ if x > -3.0 => (f64::from(y) * (2.0 * f64::from(x) + 3.0) / 6.0) as f32,
            _ => 0.0,
        }),
        (Binary::SqrtBackwardOfResult, |x, y| (f64::from(y) / (2.0 * f64::from(x))) as f32),
        (Binary::SqrtBackward, |x, y| (f64::from(y) / (2.0 * f64::from(x).sqrt())) as f32),
    ];
    let (x, y) = pairs();
    let mut faults = Vec::new();
    for level in Level::all_available() {
        for (function, rule) in rules {
            let kernel =
                binary(level, function, DataType::F32, InnerStride::Contiguous, InnerStride::Contiguous)
                    .unwrap()
                    .kernel;
            let got: Vec<f32> = run2(kernel, &x, &y, [-1.0, 2.0]);
            for ((&x, &y), got) in x.iter().zip(&y).zip(got) {
                let want = rule(x, y);
                if got.to_bits() != canonical(want) {
                    faults.push(format!("{function:?} of {x:e}, {y:e} at {level}: {got:e}, not {want:e}"));
                }
            }
        }
    }
    report(faults);
}

/// Of zeros, infinities and NaN exactly; of other numbers within what is stated.
#[test]
fn powers_are_those_of_c() {
    let (x, y) = pairs();
    let mut faults = Vec::new();
    for level in Level::all_available() {
        let kernel =
            binary(level, Binary::Power, DataType::F32, InnerStride::Contiguous, InnerStride::Contiguous)
                .unwrap()
                .kernel;
        let got: Vec<f32> = run2(kernel, &x, &y, [0.0; 2]);
        for ((&x, &y), got) in x.iter().zip(&y).zip(got) {
            let power = f64::from(x).powf(y.into());
            let is_near = got.is_normal() && ulps(got, power) <= f64::from(Binary::Power.ulps());
            if !is_near && got.to_bits() != canonical(power as f32) {
                faults.push(format!("{x:e} to the power of {y:e} at {level}: {got:e}, not {power:e}"));
            }
        }
    }
    report(faults);
}

#[test]
fn every_nan_of_every_function_is_the_one() {
    let (x, y) = pairs();
    let wrong = |got: &[f32]| got.iter().any(|got| got.is_nan() && got.to_bits() != 0x7fc0_0000);
    let mut faults = Vec::new();
    for level in Level::all_available() {
        for &function in Unary::ALL {
            if wrong(&run1(unary(level, function).kernel, &x, [0.5, 0.7])) {
                faults.push(format!("{function:?} at {level}"));
            }
        }
        for function in of_f32() {
            let kernel =
                binary(level, function, DataType::F32, InnerStride::Contiguous, InnerStride::Contiguous)
                    .unwrap()
                    .kernel;
            if wrong(&run2(kernel, &x, &y, [0.5, 0.7])) {
                faults.push(format!("{function:?} at {level}"));
            }
        }
    }
    report(faults);
}

#[test]
fn powers_have_the_special_cases_of_c() {
    let mut faults = Vec::new();
    for level in Level::all_available() {
        for p in SPECIAL {
            let got: Vec<f32> = run1(unary(level, Unary::Pow).kernel, &SPECIAL, [p, 0.0]);
            for (x, got) in SPECIAL.into_iter().zip(got) {
                let want = f64::from(x).powf(p.into());
                if super::ulps(got, want) > 1.0 {
                    faults.push(format!("{x:e} to the power of {p:e} at {level}: {got:e}, not {want:e}"));
                }
            }
        }
    }
    report(faults);
}

#[test]
fn limits_are_met() {
    const INF: f32 = f32::INFINITY;
    let rows: [(Unary, f32, f32); 43] = [
        (Unary::Exp, INF, INF),
        (Unary::Exp, -INF, 0.0),
        (Unary::Exp, 88.72284, INF),
        (Unary::Exp, -0.0, 1.0),
        (Unary::Log, 0.0, -INF),
        (Unary::Log, -0.0, -INF),
        (Unary::Log, -1.0, f32::NAN),
        (Unary::Log, INF, INF),
        (Unary::Log, 1.0, 0.0),
        (Unary::Sigmoid, INF, 1.0),
        (Unary::Sigmoid, -INF, 0.0),
        (Unary::Tanh, INF, 1.0),
        (Unary::Tanh, -INF, -1.0),
        (Unary::Tanh, -0.0, -0.0),
        (Unary::GeluErf, INF, INF),
        (Unary::GeluErf, -INF, f32::NAN),
        (Unary::GeluErf, -1e30, -0.0),
        (Unary::GeluTanh, INF, INF),
        (Unary::GeluTanh, -INF, f32::NAN),
        (Unary::GeluTanh, -1e30, -0.0),
        (Unary::Mish, INF, INF),
        (Unary::Mish, -INF, f32::NAN),
        (Unary::Elu, -INF, -0.5),
        (Unary::SoftPlus, INF, INF),
        (Unary::SoftPlus, -INF, 0.0),
        (Unary::Sqrt, -0.0, -0.0),
        (Unary::Ceil, -0.5, -0.0),
        (Unary::Sin, -0.0, -0.0),
        (Unary::Sin, 0.0, 0.0),
        (Unary::Sin, INF, f32::NAN),
        (Unary::Sin, -INF, f32::NAN),
        (Unary::Sin, 1e-45, 1e-45),
        // Of all f32 this is nearest to a multiple of π/2, for its size.
        (Unary::Sin, f32::from_bits(0x6f79_be45), f32::from_bits(0x3f80_0000)),
        (Unary::Cos, f32::from_bits(0x6f79_be45), f32::from_bits(0xb0dd_eea9)),
        // On both sides of the bound between the two reductions, and the greatest number.
        (Unary::Sin, 1048575.94, f32::from_bits(0x3e8a_b32c)),
        (Unary::Sin, 1048576.0, f32::from_bits(0x3ea9_3666)),
        (Unary::Sin, -1048576.1, f32::from_bits(0xbee4_2388)),
        (Unary::Sin, f32::MAX, f32::from_bits(0xbf05_99b3)),
        (Unary::Cos, f32::MAX, f32::from_bits(0x3f5a_5f96)),
        (Unary::Cos, -0.0, 1.0),
        (Unary::Cos, INF, f32::NAN),
        (Unary::Cos, -INF, f32::NAN),
        (Unary::Cos, 1e-45, 1.0),
    ];
    let mut faults = Vec::new();
    for level in Level::all_available() {
        for (function, x, want) in rows {
            let got: Vec<f32> = run1(unary(level, function).kernel, &[x], [0.5, 0.0]);
            if got[0].to_bits() != canonical(want) {
                faults.push(format!("{function:?} of {x:e} at {level}: {:e}, not {want:e}", got[0]));
            }
        }
    }
    report(faults);
}

/// As on f32, with a NaN that has no payload and a positive sign.
#[test]
fn arithmetic_on_f64_is_rounded_once() {
    fn maximum(x: f64, y: f64) -> f64 {
        match x.is_nan() || y.is_nan() {
            true => f64::NAN,
            false if x == y => f64::from_bits(x.to_bits() & y.to_bits()),
            false => x.max(y),
        }
    }
    fn modulo(x: f64, y: f64) -> f64 {
        let rest = x % y;
        let moved = if rest != 0.0 && (rest < 0.0) != (y < 0.0) { rest + y } else { rest };
        if moved == 0.0 { moved.copysign(y) } else { moved }
    }
    type Of1 = fn(f64) -> f64;
    type Of2 = fn(f64, f64) -> f64;
    let ones: [(Unary, Of1); 11] = [
        (Unary::Exp, f64::exp),
        (Unary::Log, f64::ln),
        (Unary::Reciprocal, f64::recip),
        (Unary::Relu, |x| if x <= 0.0 { 0.0 } else { x }),
        (Unary::Round, f64::round_ties_even),
        (Unary::Sigmoid, |x| 1.0 / (1.0 + (-x).exp())),
        (Unary::Sqrt, f64::sqrt),
        (Unary::Square, |x| x * x),
        (Unary::Tanh, f64::tanh),
        (Unary::Floor, f64::floor),
        (Unary::Ceil, f64::ceil),
    ];
    let twos: [(Binary, Of2); 8] = [
        (Binary::Add, |x, y| x + y),
        (Binary::Subtract, |x, y| x - y),
        (Binary::Multiply, |x, y| x * y),
        (Binary::Divide, |x, y| x / y),
        (Binary::Modulo, modulo),
        (Binary::Power, f64::powf),
        (Binary::Maximum, maximum),
        (Binary::Minimum, |x, y| -maximum(-x, -y)),
    ];
    let wide =
        [f64::MAX, f64::MIN_POSITIVE, 5e-324, -5e-324, 709.8, -745.2, 1.0 + f64::EPSILON, 4503599627370497.5];
    let special: Vec<f64> = SPECIAL.into_iter().map(f64::from).chain(wide).collect();
    let (x, y): (Vec<f64>, Vec<f64>) =
        special.iter().flat_map(|&x| special.iter().map(move |&y| (x, y))).unzip();
    let same = |got: f64, want: f64| match want.is_nan() {
        true => got.to_bits() == 0x7ff8_0000_0000_0000,
        false => got.to_bits() == want.to_bits(),
    };
    let mut faults = Vec::new();
    for level in Level::all_available() {
        for (function, rule) in ones {
            let kernel = pointwise::unary(level, function, DataType::F64).unwrap().kernel;
            let got: Vec<f64> = run1(kernel, &special, [0.0; 2]);
            for (&x, got) in special.iter().zip(got) {
                if !same(got, rule(x)) {
                    faults.push(format!("{function:?} of {x:e} at {level}: {got:e}, not {:e}", rule(x)));
                }
            }
        }
        for (function, rule) in twos {
            let kernel =
                binary(level, function, DataType::F64, InnerStride::Contiguous, InnerStride::Contiguous)
                    .unwrap()
                    .kernel;
            let got: Vec<f64> = run2(kernel, &x, &y, [0.0; 2]);
            for ((&x, &y), got) in x.iter().zip(&y).zip(got) {
                if !same(got, rule(x, y)) {
                    let want = rule(x, y);
                    faults.push(format!("{function:?} of {x:e}, {y:e} at {level}: {got:e}, not {want:e}"));
                }
            }
        }
    }
    report(faults);
}

#[test]
fn functions_of_one_have_kernels_for_the_types_of_their_rows() {
    let mut faults = Vec::new();
    for &function in Unary::ALL {
        for &of in DataType::WHOLE {
            let count = Level::all_available()
                .filter(|&level| pointwise::unary(level, function, of).is_some())
                .count();
            if function.cost_on(of).is_some() != (count > 0) {
                faults.push(format!("Unary::{function:?} of {of} has {count} kernels"));
            }
        }
    }
    report(faults);
}

#[test]
fn functions_of_two_have_kernels_for_the_types_of_their_rows() {
    let mut faults = Vec::new();
    for &function in Binary::ALL {
        for &of in DataType::WHOLE {
            let has_kernel = |&level: &Level| {
                binary(level, function, of, InnerStride::Contiguous, InnerStride::Contiguous).is_some()
            };
            match (function.cost_on(of), Level::all_available().filter(has_kernel).count()) {
                (Some(_), 0) => faults.push(format!(
                    "the row of Binary::{function:?} in types/function.rs names {of}, for which \
                     kernels/pointwise/binary.rs has no kernel"
                )),
                (None, 1..) => faults.push(format!(
                    "kernels/pointwise/binary.rs runs Binary::{function:?} on {of}, which its row in \
                     types/function.rs does not name"
                )),
                _ => {}
            }
        }
    }
    report(faults);
}

#[test]
fn integers_wrap_around() {
    fn check<T: Copy + Default + Ord + std::fmt::Debug>(
        of: DataType,
        values: &[T],
        rules: [fn(T, T) -> T; 6],
        faults: &mut Vec<String>,
    ) {
        let (x, y): (Vec<T>, Vec<T>) =
            values.iter().flat_map(|&x| values.iter().map(move |&y| (x, y))).unzip();
        let functions = [
            (Binary::Add, rules[0]),
            (Binary::Subtract, rules[1]),
            (Binary::Multiply, rules[2]),
            (Binary::Divide, rules[3]),
            (Binary::Modulo, rules[4]),
            (Binary::Power, rules[5]),
            (Binary::Maximum, T::max as fn(T, T) -> T),
            (Binary::Minimum, T::min as fn(T, T) -> T),
        ];
        for level in Level::all_available() {
            for (function, rule) in functions {
                let kernel = binary(level, function, of, InnerStride::Contiguous, InnerStride::Contiguous)
                    .unwrap()
                    .kernel;
                let got: Vec<T> = run2(kernel, &x, &y, [0.0; 2]);
                let want: Vec<T> = x.iter().zip(&y).map(|(&x, &y)| rule(x, y)).collect();
                if got != want {
                    faults.push(format!("{function:?} of {of} at {level}: {got:?}, not {want:?}"));
                }
            }
        }
    }
    let mut faults = Vec::new();
    fn quotient(x: i128, y: i128) -> i128 {
        if y == 0 { 0 } else { x.div_euclid(y) - i128::from(y < 0 && x.rem_euclid(y) != 0) }
    }
    fn rest(x: i128, y: i128) -> i128 {
        if y == 0 { 0 } else { x - y * quotient(x, y) }
    }
    fn power(x: i64, y: i64) -> i64 {
        match y {
            0.. => (0..i64::BITS - y.leading_zeros()).rev().fold(1i64, |power, bit| {
                let square = power.wrapping_mul(power);
                if y >> bit & 1 == 1 { square.wrapping_mul(x) } else { square }
            }),
            _ if x.abs_diff(0) == 1 => power(x, y & 1),
            _ => 0,
        }
    }
    let of_s32 = [
        i32::wrapping_add,
        i32::wrapping_sub,
        i32::wrapping_mul,
        |x: i32, y: i32| quotient(x.into(), y.into()) as i32,
        |x: i32, y: i32| rest(x.into(), y.into()) as i32,
        |x: i32, y: i32| power(x.into(), y.into()) as i32,
    ];
    let near = |x: i64| [x - 1, x, x + 1];
    let of_32_bits = [0, 7, -7, 77, i32::MIN.into(), i32::MAX.into(), 65536, -99999, 46341 * 46341];
    let values: Vec<i64> = of_32_bits.into_iter().flat_map(near).collect();
    let narrow: Vec<i32> = values.iter().filter_map(|&x| x.try_into().ok()).collect();
    check(DataType::S32, &narrow, of_s32, &mut faults);
    let of_s64 = [
        i64::wrapping_add,
        i64::wrapping_sub,
        i64::wrapping_mul,
        |x: i64, y: i64| quotient(x.into(), y.into()) as i64,
        |x: i64, y: i64| rest(x.into(), y.into()) as i64,
        power,
    ];
    // All fit into 32 bits, then not all.
    check(DataType::S64, &narrow.iter().map(|&x| x.into()).collect::<Vec<_>>(), of_s64, &mut faults);
    let wide = [i64::MIN, i64::MAX, 1 << 32, 1 << 53, (1 << 53) + 1, -99999999999, -1 << 52];
    check(DataType::S64, &[&values[..], &wide].concat(), of_s64, &mut faults);
    report(faults);
}

#[test]
fn comparisons_compare() {
    fn check<T: Copy + PartialOrd + std::fmt::Debug>(of: DataType, values: &[T], faults: &mut Vec<String>) {
        let (x, y): (Vec<T>, Vec<T>) =
            values.iter().flat_map(|&x| values.iter().map(move |&y| (x, y))).unzip();
        let rules: [Rule<Comparison, &T>; 6] = [
            (Comparison::Equal, T::eq),
            (Comparison::NotEqual, T::ne),
            (Comparison::Less, T::lt),
            (Comparison::LessEqual, T::le),
            (Comparison::Greater, T::gt),
            (Comparison::GreaterEqual, T::ge),
        ];
        for level in Level::all_available() {
            for (comparison, rule) in rules {
                let (way, first, second) = match comparison.as_less() {
                    Some(less) => (less, &y, &x),
                    None => (comparison, &x, &y),
                };
                let (impls, _) =
                    compare(level, way, of, InnerStride::Contiguous, InnerStride::Contiguous).unwrap();
                let got: Vec<u8> = run2(impls.kernel, first, second, [0.0; 2]);
                let want: Vec<u8> = x.iter().zip(&y).map(|(x, y)| u8::from(rule(x, y))).collect();
                if got != want {
                    faults.push(format!("{comparison:?} of {of} at {level}"));
                }
            }
        }
    }
    let mut faults = Vec::new();
    check(DataType::F32, &SPECIAL, &mut faults);
    check(DataType::F64, &SPECIAL.map(f64::from), &mut faults);
    check(DataType::S32, &[0, 1, -1, i32::MIN, i32::MAX], &mut faults);
    check(DataType::U32, &[0, 1, u32::MAX, 1 << 31], &mut faults);
    check(DataType::S64, &[0, 1, -1, i64::MIN, i64::MAX, 1 << 32], &mut faults);
    check(DataType::U64, &[0, 1, u64::MAX, 1 << 63, 1 << 32], &mut faults);
    for &of in DataType::WHOLE {
        let compared = Comparison::computes_in(of);
        let has_kernel = |of| {
            compare(Level::Portable, Comparison::Less, of, InnerStride::Contiguous, InnerStride::Contiguous)
                .is_some()
        };
        if compared.is_some_and(|of| !has_kernel(of)) || compared.is_none() && has_kernel(of) {
            faults.push(format!("{of} is compared in {compared:?}"));
        }
    }
    report(faults);
}

#[test]
fn truth_values_are_what_is_not_zero() {
    let (x, y) = ([0, 1, 0, 2, 0, 255, 128, 0u8].repeat(20), [0, 0, 1, 1, 255, 128, 7, 0u8].repeat(20));
    let rules: [Rule<Logic, bool>; 3] =
        [(Logic::And, |x, y| x && y), (Logic::Or, |x, y| x || y), (Logic::Xor, |x, y| x != y)];
    for level in Level::all_available() {
        for (which, rule) in rules {
            let got: Vec<u8> = run2(
                logic(level, which, InnerStride::Contiguous, InnerStride::Contiguous).kernel,
                &x,
                &y,
                [0.0; 2],
            );
            let want: Vec<u8> = x.iter().zip(&y).map(|(&x, &y)| u8::from(rule(x != 0, y != 0))).collect();
            assert_eq!(got, want, "{which:?} at {level}");
        }
        let got: Vec<u8> = run1(not(level).kernel, &x, [0.0; 2]);
        assert_eq!(got, x.iter().map(|&x| u8::from(x == 0)).collect::<Vec<_>>(), "not at {level}");
    }
}

#[test]
fn classes_and_signs() {
    type Rule = (Class, fn(f64) -> bool);
    let rules: [Rule; 3] =
        [(Class::Nan, f64::is_nan), (Class::Infinite, f64::is_infinite), (Class::Finite, f64::is_finite)];
    let bits: Vec<u64> = (0..130).map(|i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    for level in Level::all_available() {
        for (class, rule) in rules {
            let want: Vec<u8> = SPECIAL.iter().map(|&x| u8::from(rule(x.into()))).collect();
            let got: Vec<u8> =
                run1(classify(level, class, DataType::F32).unwrap().kernel, &SPECIAL, [0.0; 2]);
            assert_eq!(got, want, "{class:?} of f32 at {level}");
            let wide = SPECIAL.map(f64::from);
            let got: Vec<u8> = run1(classify(level, class, DataType::F64).unwrap().kernel, &wide, [0.0; 2]);
            assert_eq!(got, want, "{class:?} of f64 at {level}");
        }
        for (what, rule) in
            [(Sign::Clear, (|x| x & (u64::MAX >> 1)) as fn(u64) -> u64), (Sign::Flip, |x| x ^ (1 << 63))]
        {
            let got: Vec<u64> = run1(sign(level, DataType::F64, what).unwrap().kernel, &bits, [0.0; 2]);
            assert_eq!(
                got,
                bits.iter().map(|&x| rule(x)).collect::<Vec<_>>(),
                "{what:?} of 8 bytes at {level}"
            );
            let narrow: Vec<u16> = bits.iter().map(|&x| (x >> 48) as u16).collect();
            let got: Vec<u16> = run1(sign(level, DataType::F16, what).unwrap().kernel, &narrow, [0.0; 2]);
            let want: Vec<u16> = narrow.iter().map(|&x| (rule(u64::from(x) << 48) >> 48) as u16).collect();
            assert_eq!(got, want, "{what:?} of 2 bytes at {level}");
            let integers: Vec<i64> = bits.iter().map(|&x| x as i64).chain([0, i64::MIN, i64::MAX]).collect();
            let got: Vec<i64> = run1(sign(level, DataType::S64, what).unwrap().kernel, &integers, [0.0; 2]);
            let rule = if what == Sign::Clear { i64::wrapping_abs } else { i64::wrapping_neg };
            let want: Vec<i64> = integers.iter().map(|&x| rule(x)).collect();
            assert_eq!(got, want, "{what:?} of s64 at {level}");
            let narrow: Vec<i32> = integers.iter().map(|&x| x as i32).chain([i32::MIN]).collect();
            let got: Vec<i32> = run1(sign(level, DataType::S32, what).unwrap().kernel, &narrow, [0.0; 2]);
            let rule = if what == Sign::Clear { i32::wrapping_abs } else { i32::wrapping_neg };
            let want: Vec<i32> = narrow.iter().map(|&x| rule(x)).collect();
            assert_eq!(got, want, "{what:?} of s32 at {level}");
        }
    }
}
