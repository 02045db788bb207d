//! Promise: what the numbers of a row have in common does not show in its norm. A row of equal numbers
//! becomes 0, and the error of any other row is measured by its deviation, however far from 0 the row lies.

use crate::common::{Random, engines, report};
use crate::rows::{Case, half_a_unit, numbers, value};
use sterna::reference;
use sterna::{Attr, DataType, OpKind};

use DataType as D;
use OpKind as K;

/// Channels of a group that lie beside each other.
const BESIDE: usize = 3;

/// The norms of some rows of one length in every layout that has kernels of its own; without parameters
/// the results are the normalised numbers alone.
fn norms(
    t: DataType,
    rows: &[Vec<f32>],
    epsilon: f32,
    parameters: Option<&mut Random>,
) -> Vec<(String, Case)> {
    let (count, length) = (rows.len() as i64, rows[0].len());
    let one_by_one = rows.concat();
    let columns: Vec<f32> = (0..length).flat_map(|i| rows.iter().map(move |row| row[i])).collect();
    let numbers = |random: &mut Random, count: i64| -> Vec<f32> {
        (0..count).map(|_| random.below(4001) as f32 / 1000.0 + 0.5).collect()
    };
    let affine = parameters.map(|random| {
        let mut of = |count: i64| [(); 2].map(|()| value(D::F32, &[count], &numbers(random, count)));
        (of(length as i64), of(count), of(count * BESIDE as i64))
    });
    let [along, of_rows, beside] = match &affine {
        Some((along, of_rows, beside)) => [along, of_rows, beside].map(|pair| pair.to_vec()),
        None => [(); 3].map(|()| Vec::new()),
    };
    let case = |kind, source, parameters: Vec<_>| {
        let inputs = [vec![source], parameters].concat();
        let case = Case::new(kind, inputs, &[t, D::F32, D::F32]).attr(Attr::Epsilon, epsilon);
        case.attr(Attr::UseAffine, affine.is_some())
    };
    let groups = |dims: &[i64], numbers: &[f32], format: &str, parameters| {
        let case = case(K::GroupNorm, value(t, dims, numbers), parameters);
        case.attr(Attr::Groups, count).attr(Attr::DataFormat, format)
    };
    let mut cases = vec![
        ("LayerNorm", case(K::LayerNorm, value(t, &[count, length as i64], &one_by_one), along.clone())),
        (
            "LayerNorm of columns",
            case(K::LayerNorm, value(t, &[count, length as i64], &one_by_one), along).strides(0, &[1, count]),
        ),
        ("InstanceNorm", groups(&[1, count, length as i64], &one_by_one, "NCX", of_rows.clone())),
        ("InstanceNorm of columns", groups(&[1, length as i64, count], &columns, "NXC", of_rows)),
    ];
    if length % BESIDE == 0 {
        let places = (length / BESIDE) as i64;
        let channels: Vec<f32> = (0..length / BESIDE)
            .flat_map(|place| rows.iter().flat_map(move |row| &row[place * BESIDE..][..BESIDE]))
            .copied()
            .collect();
        let dims = [1, places, count * BESIDE as i64];
        cases.push(("GroupNorm of columns", groups(&dims, &channels, "NXC", beside)));
    }
    let name = |name| format!("{name} of {count} rows of {length} {t}, epsilon {epsilon:e}");
    cases.into_iter().map(|(kind, case)| (name(kind), case)).collect()
}

/// The results of the cases at every level, beside those of the reference, as a rule judges them.
fn judge(
    cases: &[(String, Case)],
    fault: impl Fn(DataType, &[Vec<f64>; 3], &[Vec<f64>; 3]) -> Option<String>,
) {
    let mut wrong = Vec::new();
    for engine in engines() {
        for (name, case) in cases {
            let of = |values: Vec<_>| [0, 1, 2].map(|output: usize| numbers(&values[output]));
            let expected = of(reference::run(&case.op, &case.inputs).unwrap());
            let found = case.run(&engine).map(of);
            let fault = match &found {
                Ok(found) => fault(case.inputs[0].data_type(), found, &expected),
                Err(error) => Some(error.clone()),
            };
            if let Some(fault) = fault {
                wrong.push(format!("{name} at {:?}: {fault}", engine.level()));
            }
        }
    }
    report(&wrong);
}

#[test]
fn a_row_of_equal_numbers_is_zero_whatever_it_holds() {
    let mut random = Random::new(41);
    let mut cases = Vec::new();
    for t in [D::F32, D::Bf16, D::F16] {
        for length in [1, 2, 3, 5, 15, 16, 17, 48, 63, 64, 65, 100, 129, 768, 1000, 1023, 1025, 4097, 40_002]
        {
            let largest = if t == D::F16 { 6e4 } else { 3e38 };
            let mut given = vec![1234.567, 0.1, -3.3e-5, 1e-40, 16_777_215.0, -999.9, largest, 8191.0];
            while given.len() < 14 {
                let number = f32::from_bits(random.next() as u32);
                given.extend(Some(number).filter(|x| x.abs() <= largest));
            }
            // No more than t holds.
            given.iter_mut().for_each(|x| *x = x.clamp(-largest, largest));
            given.truncate(if length > 4000 { 3 } else { 14 });
            let rows: Vec<Vec<f32>> = given.iter().map(|&x| vec![x; length]).collect();
            for epsilon in [1e-5, 1e-12] {
                cases.extend(norms(t, &rows, epsilon, Some(&mut random)));
            }
        }
    }
    judge(&cases, |_, found, expected| {
        let outputs = ["result", "mean", "variance"].into_iter().zip(found.iter().zip(expected));
        let differ = outputs.filter_map(|(output, (found, expected))| {
            let at = found.iter().zip(expected).position(|(x, y)| x != y)?;
            Some(format!("{output} {at} is {:e}, not {:e}", found[at], expected[at]))
        });
        differ.reduce(|a, b| format!("{a}; {b}"))
    });
}

/// By Box and Muller.
fn normal(random: &mut Random) -> f64 {
    let mut uniform = || (random.below(1 << 24) as f64 + 0.5) / f64::from(1 << 24);
    (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()
}

#[test]
fn errors_are_measured_by_the_deviation() {
    let mut random = Random::new(42);
    let mut cases = Vec::new();
    for (t, means) in [
        (D::F32, &[0.0, 0.035, 0.35, 3.5, 10.0, 100.0, 1000.0, 10_000.0, -3333.3][..]),
        (D::Bf16, &[0.0, 10.0, 100.0]),
        (D::F16, &[0.0, 10.0, 100.0, 1000.0]),
    ] {
        for length in [3, 15, 17, 48, 64, 100, 768, 1000, 1025, 4096, 70_002] {
            let mut rows: Vec<Vec<f32>> = Vec::new();
            for &mean in means {
                for deviation in [0.01, 0.1, 1.0] {
                    let row = |_| (mean + deviation * normal(&mut random)) as f32;
                    rows.push((0..length).map(row).collect());
                    // The first number lies far from the others.
                    let mut row = rows[rows.len() - 1].clone();
                    row[0] = (mean + 1000.0 * deviation) as f32;
                    rows.push(row);
                }
            }
            rows.truncate(if length > 4000 { 8 } else { rows.len() });
            cases.extend(norms(t, &rows, 1e-12, None));
        }
    }
    judge(&cases, |t, found, expected| {
        let unit = half_a_unit(D::F32);
        let worst = |output: usize, most: &dyn Fn(usize) -> f64| {
            let pairs = found[output].iter().zip(&expected[output]).enumerate();
            let shares = pairs.map(|(i, (x, y))| if x == y { 0.0 } else { (x - y).abs() / most(i) });
            let (i, share) =
                shares.enumerate().fold((0, 0.0), |a: (usize, f64), b| if a.1 >= b.1 { a } else { b });
            let (x, y) = (found[output][i], expected[output][i]);
            (share > 1.0 || x.is_nan())
                .then(|| format!("output {output} at {i} is {x}, not {y}, {share} times the bound"))
        };
        // The results of both sides are rounded to their type.
        let rounded = if t == D::F32 { 0.0 } else { 2.0 * half_a_unit(t) };
        let y = worst(0, &|i| (16.0 * unit + rounded) * expected[0][i].abs() + 16.0 * unit);
        let mean = worst(1, &|i| unit * (1.001 * expected[1][i].abs() + 16.0 * expected[2][i].sqrt()));
        let variance = worst(2, &|i| unit * 32.0 * expected[2][i]);
        [y, mean, variance].into_iter().flatten().reduce(|a, b| format!("{a}; {b}"))
    });
}
