//! Conversions against the same in plain numbers.

use half::{bf16, f16};

use super::{SPECIAL, run1};
use crate::kernels::pointwise::{Impls, convert, round_to};
use crate::types::dtype::DataType;
use crate::types::kind::Level;

/// A value of any type that has conversions.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Value {
    Integer(i128),
    Float(f64),
}

const TYPES: [DataType; 13] = [
    DataType::Boolean,
    DataType::S8,
    DataType::U8,
    DataType::S16,
    DataType::U16,
    DataType::S32,
    DataType::U32,
    DataType::S64,
    DataType::U64,
    DataType::F16,
    DataType::Bf16,
    DataType::F32,
    DataType::F64,
];

/// The element in the low bits.
fn value(of: DataType, bits: u64) -> Value {
    use Value::{Float, Integer};
    match of {
        DataType::Boolean => Integer(i128::from(bits as u8 != 0)),
        DataType::S8 => Integer((bits as i8).into()),
        DataType::U8 => Integer((bits as u8).into()),
        DataType::S16 => Integer((bits as i16).into()),
        DataType::U16 => Integer((bits as u16).into()),
        DataType::S32 => Integer((bits as i32).into()),
        DataType::U32 => Integer((bits as u32).into()),
        DataType::S64 => Integer((bits as i64).into()),
        DataType::U64 => Integer(bits.into()),
        DataType::F16 => Float(f16::from_bits(bits as u16).to_f64()),
        DataType::Bf16 => Float(bf16::from_bits(bits as u16).to_f64()),
        DataType::F32 => Float(f32::from_bits(bits as u32).into()),
        DataType::F64 => Float(f64::from_bits(bits)),
        other => panic!("{other} is not converted"),
    }
}

/// The least and the greatest value of an integer type.
fn bounds(of: DataType) -> (i128, i128) {
    match of {
        DataType::S8 => (i8::MIN.into(), i8::MAX.into()),
        DataType::U8 => (0, u8::MAX.into()),
        DataType::S16 => (i16::MIN.into(), i16::MAX.into()),
        DataType::U16 => (0, u16::MAX.into()),
        DataType::S32 => (i32::MIN.into(), i32::MAX.into()),
        DataType::U32 => (0, u32::MAX.into()),
        DataType::S64 => (i64::MIN.into(), i64::MAX.into()),
        DataType::U64 => (0, u64::MAX.into()),
        other => panic!("{other} is no integer"),
    }
}

/// The bits of the float nearest to a value; those of 16 bits are found among the neighbours of an
/// approximation.
fn nearest(of: DataType, x: Value) -> u64 {
    let (inf, sign, start): (u64, u64, u64) = match (of, x) {
        (DataType::F64, Value::Float(x)) => return if x.is_nan() { 0x7ff8 << 48 } else { x.to_bits() },
        (DataType::F64, Value::Integer(x)) => return (x as f64).to_bits(),
        (DataType::F32, Value::Float(x)) => return canonical32(x as f32).into(),
        (DataType::F32, Value::Integer(x)) => return (x as f32).to_bits().into(),
        (_, Value::Float(x)) if x.is_nan() => return if of == DataType::F16 { 0x7e00 } else { 0x7fc0 },
        (DataType::F16, Value::Float(x)) => (0x7c00, u64::from(x.is_sign_negative()), half_bits(of, x.abs())),
        (DataType::F16, Value::Integer(x)) => {
            (0x7c00, u64::from(x < 0), half_bits(of, x.unsigned_abs() as f64))
        }
        (_, Value::Float(x)) => (0x7f80, u64::from(x.is_sign_negative()), half_bits(of, x.abs())),
        (_, Value::Integer(x)) => (0x7f80, u64::from(x < 0), half_bits(of, x.unsigned_abs() as f64)),
    };
    // Infinity takes the place of the next number.
    let magnitude = |bits: u64| match bits == inf {
        true => 2.0 * finite(of, bits - 1) - finite(of, bits - 2),
        false => finite(of, bits),
    };
    // Exact either way; positive floats have the order of their bits.
    let distance = |bits: u64| match x {
        Value::Float(x) if x.is_infinite() => u128::from(bits != inf),
        Value::Float(x) => (magnitude(bits) - x.abs()).abs().to_bits().into(),
        Value::Integer(x) => (magnitude(bits) as i128 - x.abs()).unsigned_abs(),
    };
    let candidates = start.saturating_sub(1)..=(start + 1).min(inf);
    let best = candidates.min_by_key(|&bits| (distance(bits), bits & 1));
    best.expect("there are candidates") | sign << 15
}

fn half_bits(of: DataType, x: f64) -> u64 {
    match of {
        DataType::F16 => f16::from_f64(x).to_bits().into(),
        _ => bf16::from_f64(x).to_bits().into(),
    }
}

fn finite(of: DataType, bits: u64) -> f64 {
    match of {
        DataType::F16 => f16::from_bits(bits as u16).to_f64(),
        _ => bf16::from_bits(bits as u16).to_f64(),
    }
}

fn canonical32(x: f32) -> u32 {
    if x.is_nan() { 0x7fc0_0000 } else { x.to_bits() }
}

/// The bits of a converted element.
fn converted(bits: u64, from: DataType, to: DataType) -> u64 {
    let all = u64::MAX >> (64 - to.bits());
    match (value(from, bits), to) {
        (_, _) if from == to => bits & all,
        (x, DataType::F16 | DataType::Bf16 | DataType::F32 | DataType::F64) => nearest(to, x),
        (Value::Integer(x), _) => x as u64 & all,
        (Value::Float(x), _) => {
            let (least, greatest) = bounds(to);
            (x as i128).clamp(least, greatest) as u64 & all
        }
    }
}

/// Elements of a type, as bits: all if they are few, else difficult and random ones.
fn samples(of: DataType) -> Vec<u64> {
    let random = (0..4000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(i as u32));
    match of.bits() {
        8 => (0..=u8::MAX.into()).collect(),
        16 => (0..=u16::MAX.into()).collect(),
        32 => {
            let floats = SPECIAL.iter().map(|x| u64::from(x.to_bits()));
            // Halfway between values of the narrower types, and next to that.
            let halfway = (0..4096u64)
                .flat_map(|i| [0x7fff, 0x8000, 0x8001, 0x0fff, 0x1000, 0x1001].map(|low| i << 20 | low));
            let integers = (0..32).flat_map(|i| [(1u64 << i) - 1, 1 << i, (1 << i) + 1, (3 << i) / 2]);
            floats.chain(halfway).chain(integers).chain(random.map(|bits| bits >> 32)).collect()
        }
        _ => {
            let floats = SPECIAL.iter().map(|&x| f64::from(x).to_bits());
            let near = (0..600u64).flat_map(|i| {
                let float = f64::from(f32::from_bits((i * 7_158_279) as u32)).to_bits();
                [float, float + 1, float.wrapping_sub(1), float + (1 << 28), float + (1 << 28) + 1]
            });
            let integers = (0..64).flat_map(|i| {
                let power = 1u64 << i;
                let tie = power | power >> 9 | power >> 8;
                [
                    power - 1,
                    power,
                    power + 1,
                    tie,
                    tie.wrapping_sub(1),
                    tie + 1,
                    power | power >> 12,
                    !power,
                    power | power >> 25,
                ]
            });
            let scaled = random.clone().map(|bits| bits >> (bits & 63));
            floats.chain(near).chain(integers).chain(random).chain(scaled).collect()
        }
    }
}

/// Elements of a number of bytes, one after the other.
fn packed(elements: &[u64], bits: usize) -> Vec<u8> {
    elements.iter().flat_map(|element| element.to_le_bytes()[..bits / 8].to_vec()).collect()
}

#[test]
#[cfg(target_endian = "little")]
fn every_pair_of_types_converts() {
    let mut faults = Vec::new();
    for from in TYPES {
        let elements = samples(from);
        let bytes = packed(&elements, from.bits());
        for to in TYPES.into_iter().filter(|&to| to != DataType::Boolean) {
            let want: Vec<u64> = elements.iter().map(|&bits| converted(bits, from, to)).collect();
            for level in Level::all_available() {
                let Some(Impls { kernel, .. }) = convert(level, from, to) else {
                    faults.push(format!("{from} to {to}: no kernel"));
                    continue;
                };
                let got = match (from.bits(), to.bits()) {
                    (8, to) => by_width(kernel, &bytes, to),
                    (16, to) => by_width(kernel, bytes.as_chunks::<2>().0, to),
                    (32, to) => by_width(kernel, bytes.as_chunks::<4>().0, to),
                    (_, to) => by_width(kernel, bytes.as_chunks::<8>().0, to),
                };
                if let Some(i) = (0..want.len()).find(|&i| got[i] != want[i]) {
                    let x = value(from, elements[i]);
                    faults.push(format!(
                        "{from} to {to} at {level}: {x:?} gives {:#x}, not {:#x}",
                        got[i], want[i]
                    ));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

fn by_width<X>(kernel: crate::kernels::pointwise::Kernel1, x: &[X], bits: usize) -> Vec<u64> {
    match bits {
        8 => run1::<X, u8>(kernel, x, [0.0; 2]).into_iter().map(u64::from).collect(),
        16 => run1::<X, u16>(kernel, x, [0.0; 2]).into_iter().map(u64::from).collect(),
        32 => run1::<X, u32>(kernel, x, [0.0; 2]).into_iter().map(u64::from).collect(),
        _ => run1::<X, u64>(kernel, x, [0.0; 2]),
    }
}

/// The largest number of a float of 8 bits, as bits; what is above it; and its number for bits up to there.
fn small_float(of: DataType) -> (u8, u8, fn(u8) -> f64) {
    fn number(bits: u8, mantissa: u32, least_exponent: i32) -> f64 {
        let (exponent, rest) = (bits >> mantissa, bits & ((1 << mantissa) - 1));
        let whole = f64::from(rest) / f64::from(1 << mantissa) + f64::from(exponent.min(1));
        whole * 2f64.powi(least_exponent + i32::from(exponent.max(1)) - 1)
    }
    match of {
        DataType::F8E5m2 => (0x7b, 0x7c, |bits| number(bits, 2, -14)),
        _ => (0x7e, 0x7f, |bits| number(bits, 3, -6)),
    }
}

#[test]
fn floats_of_8_bits_are_the_nearest() {
    let mut faults = Vec::new();
    for (of, nan) in [(DataType::F8E5m2, 0x7e), (DataType::F8E4m3, 0x7f)] {
        let (largest, above, number) = small_float(of);
        let widened = |bits: u8| match bits & 0x7f {
            size if size <= largest => number(size).copysign(if bits < 0x80 { 1.0 } else { -1.0 }) as f32,
            size if size == above && above != nan => {
                f32::INFINITY.copysign(if bits < 0x80 { 1.0 } else { -1.0 })
            }
            _ => f32::NAN,
        };
        let narrowed = |x: f32| {
            // As if the numbers went on above the largest one.
            let next = 2.0 * number(largest) - number(largest - 1);
            let distance = |bits: u8| {
                let number = if bits > largest { next } else { number(bits) };
                (number - f64::from(x).abs().min(next)).abs()
            };
            let nearest = (0..=largest + 1)
                .min_by(|&a, &b| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1))));
            match nearest {
                _ if x.is_nan() => nan,
                Some(bits) if bits <= largest => bits | (u8::from(x.is_sign_negative()) << 7),
                _ if above == nan => nan,
                _ => above | (u8::from(x.is_sign_negative()) << 7),
            }
        };
        let small: Vec<u8> = (0..=u8::MAX).collect();
        let halfway = (0..=largest).flat_map(|bits| {
            let middle = ((number(bits)
                + if bits == largest { 2.0 * number(bits) - number(bits - 1) } else { number(bits + 1) })
                / 2.0) as f32;
            [middle, middle.next_up(), middle.next_down(), -middle]
        });
        let wide: Vec<f32> = samples(DataType::F32)
            .into_iter()
            .map(|bits| f32::from_bits(bits as u32))
            .chain(halfway)
            .collect();
        for level in Level::all_available() {
            let got: Vec<f32> = run1(convert(level, of, DataType::F32).unwrap().kernel, &small, [0.0; 2]);
            for (&x, got) in small.iter().zip(got) {
                if got.to_bits() != canonical32(widened(x)) {
                    faults.push(format!("{of} {x:#x} at {level}: {got:e}, not {:e}", widened(x)));
                }
            }
            let got: Vec<u8> = run1(convert(level, DataType::F32, of).unwrap().kernel, &wide, [0.0; 2]);
            for (&x, got) in wide.iter().zip(got) {
                if got != narrowed(x) {
                    faults.push(format!("{x:e} to {of} at {level}: {got:#x}, not {:#x}", narrowed(x)));
                }
            }
        }
    }
    faults.truncate(20);
    assert!(faults.is_empty(), "faults:\n{}", faults.join("\n"));
}

#[test]
fn other_types_have_no_conversion() {
    let small = [DataType::F8E5m2, DataType::F8E4m3];
    for &of in DataType::WHOLE.iter().chain(&[DataType::Undef, DataType::S4]) {
        let known = TYPES.contains(&of) || small.contains(&of);
        assert_eq!(convert(Level::Portable, of, DataType::F32).is_some(), known, "from {of}");
        let known = known && of != DataType::Boolean;
        assert_eq!(convert(Level::Portable, DataType::F32, of).is_some(), known, "to {of}");
    }
}

#[test]
fn rounding_keeps_f32() {
    let x: Vec<f32> = samples(DataType::F32).into_iter().map(|bits| f32::from_bits(bits as u32)).collect();
    let mut faults = Vec::new();
    for level in Level::all_available() {
        for to in [DataType::F16, DataType::Bf16] {
            let got: Vec<f32> = run1(round_to(level, to).unwrap().kernel, &x, [0.0; 2]);
            for (&x, got) in x.iter().zip(got) {
                let want = canonical32(finite(to, nearest(to, Value::Float(x.into()))) as f32);
                if got.to_bits() != want {
                    faults.push(format!("{x:e} to {to} at {level}: {got:e}, not {want:#x}"));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults[..9].join("\n"));
}
