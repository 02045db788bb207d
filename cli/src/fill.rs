//! The contents of tensors that no file gives and nothing computes.

use std::collections::BTreeMap;
use std::str::FromStr;

use anyhow::{Result, anyhow, bail, ensure};
use fastrand::Rng;
use half::{bf16, f16};
use sterna::{DataType, Graph, LogicalTensor, TensorId};
use sterna_import::Constant;

use crate::roles::{Range, is_integer, is_signed};
use crate::room::room_for;

/// The fill of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fill {
    /// Elements that suit the ops that use the tensor.
    Random,
    /// 1 if the column is not beyond the row, else 0, in the last two dims.
    Causal,
    /// 1 in the first elements of each row of the last dim, a random number of them, else 0.
    Padding,
    /// One value everywhere; its text is read when the type is known.
    Value(String),
}

impl FromStr for Fill {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "random" => Self::Random,
            "causal" => Self::Causal,
            "padding" => Self::Padding,
            "zeros" => Self::Value("0".into()),
            "ones" => Self::Value("1".into()),
            "true" | "false" => Self::Value(text.into()),
            // Every number that some type can hold reads as a float, if not exactly.
            _ if text.parse::<f64>().is_ok() => Self::Value(text.into()),
            _ => {
                return Err(format!(
                    "{text:?} is no fill; write random, zeros, ones, causal, padding or a value (a number, \
                     inf, -inf, nan, true, false)"
                ));
            }
        })
    }
}

impl Fill {
    /// The elements of a tensor of known dims in row-major order; of 4 bits, two to a byte.
    fn elements(&self, desc: &LogicalTensor, range: &Range, seed: u64) -> Result<Vec<u8>> {
        let (data_type, count) = (desc.data_type(), desc.element_count().unwrap_or(0));
        let dims = desc.dims().unwrap_or(&[]);
        match self {
            Self::Random => random(data_type, count, range, seed_of(desc.id(), seed)),
            Self::Causal => causal(data_type, count, dims),
            Self::Padding => padding(data_type, count, dims, seed_of(desc.id(), seed)),
            Self::Value(text) => element(text, data_type).and_then(|element| repeated(&element, count)),
        }
        .map(|elements| if data_type.bits() == 4 { packed(&elements) } else { elements })
    }
}

/// The fills of the tensors of a graph that nothing computes.
pub(crate) struct Fills {
    given: BTreeMap<TensorId, Fill>,
    /// The values of constants; only a fill that an option names replaces one.
    constants: BTreeMap<TensorId, Constant>,
    ranges: BTreeMap<TensorId, Range>,
    seed: u64,
}

impl Fills {
    /// The constants of a graph and the fills that options name; any other tensor gets random elements that
    /// suit the ops that use it.
    pub(crate) fn new(
        graph: &Graph,
        constants: BTreeMap<TensorId, Constant>,
        given: Vec<(TensorId, Fill)>,
        seed: u64,
    ) -> Self {
        Self { given: given.into_iter().collect(), constants, ranges: Range::all(graph), seed }
    }

    /// The values of constants that no fill replaces.
    pub(crate) fn constants(&self) -> BTreeMap<TensorId, Constant> {
        let kept = self.constants.iter().filter(|(id, _)| !self.asks_for(**id));
        kept.map(|(id, value)| (*id, value.clone())).collect()
    }

    /// True if the tensor gets random elements.
    pub(crate) fn is_random(&self, id: TensorId) -> bool {
        !self.asks_for(id) && !self.constants.contains_key(&id)
    }

    /// True if an option names a fill for the tensor.
    pub(crate) fn asks_for(&self, id: TensorId) -> bool {
        self.given.contains_key(&id)
    }

    /// The elements for a tensor of known dims in row-major order; of 4 bits, two to a byte.
    pub(crate) fn elements(&self, desc: &LogicalTensor) -> Result<Vec<u8>> {
        let given = self.given.get(&desc.id());
        if let (None, Some(value)) = (given, self.constants.get(&desc.id())) {
            return Ok(value.bytes().to_vec());
        }
        let range = self.ranges.get(&desc.id()).unwrap_or(&Range::Any);
        given.unwrap_or(&Fill::Random).elements(desc, range, self.seed)
    }
}

/// Two elements of 4 bits to a byte, the first in the low half.
fn packed(elements: &[u8]) -> Vec<u8> {
    elements.chunks(2).map(|pair| pair[0] & 0xf | pair.get(1).map_or(0, |second| second << 4)).collect()
}

fn repeated(element: &[u8], count: usize) -> Result<Vec<u8>> {
    let mut filled = room_for(count, element.len())?;
    filled.resize(count * element.len(), element[0]);
    if element.iter().any(|&byte| byte != element[0]) {
        filled.chunks_exact_mut(element.len()).for_each(|chunk| chunk.copy_from_slice(element));
    }
    Ok(filled)
}

/// Each tensor has its seed, so that its values do not depend on the rest of the graph.
fn seed_of(id: TensorId, seed: u64) -> u64 {
    Rng::with_seed(seed).u64(..) ^ Rng::with_seed(!(id.get() as u64)).u64(..)
}

fn random(data_type: DataType, count: usize, range: &Range, seed: u64) -> Result<Vec<u8>> {
    let mut rng = Rng::with_seed(seed);
    let drawn = |rng: &mut Rng, least: f64, most: f64| match is_integer(data_type) {
        true => (least.ceil() + rng.f64() * (most - least.ceil() + 1.0)).floor().min(most).to_string(),
        false => (least + rng.f64() * (most - least)).to_string(),
    };
    let numbers: Vec<String> = match range {
        Range::Any => return anything(data_type, count, 1.0, &mut rng),
        Range::Normal(size) => return anything(data_type, count, *size, &mut rng),
        &Range::Between(least, most) => (0..DRAWN).map(|_| drawn(&mut rng, least, most)).collect(),
        Range::Positive => (0..DRAWN).map(|_| drawn(&mut rng, 0.5, 2.0)).collect(),
        Range::Probability => (0..DRAWN).map(|_| drawn(&mut rng, 0.1, 0.9)).collect(),
        Range::ZeroPoint if is_signed(data_type) => (0..DRAWN).map(|_| drawn(&mut rng, -4.0, 4.0)).collect(),
        Range::ZeroPoint => (0..DRAWN).map(|_| drawn(&mut rng, 0.0, 8.0)).collect(),
        Range::Given(numbers) => numbers.iter().map(i64::to_string).collect(),
    };
    let elements =
        numbers.iter().map(|number| element(number, data_type)).collect::<Result<Vec<Vec<u8>>>>()?;
    let mut filled = room_for(count, elements[0].len())?;
    for index in 0..count {
        let chosen = match range {
            Range::Given(_) => index % elements.len(),
            _ => rng.usize(..elements.len()),
        };
        filled.extend_from_slice(&elements[chosen]);
    }
    Ok(filled)
}

/// Number of values drawn from a range; elements are chosen among these.
const DRAWN: usize = 256;

/// Floats of about normal distribution and a size, powers of two around 1, integers of any bits, truth values
/// at 50 %.
fn anything(data_type: DataType, count: usize, size: f64, rng: &mut Rng) -> Result<Vec<u8>> {
    use DataType as D;
    let normal = |rng: &mut Rng| size * normal(rng);
    match data_type {
        D::F64 => bytes(count, || normal(rng).to_ne_bytes()),
        D::F32 => bytes(count, || (normal(rng) as f32).to_ne_bytes()),
        D::F16 => bytes(count, || f16::from_f64(normal(rng)).to_ne_bytes()),
        D::Bf16 => bytes(count, || bf16::from_f64(normal(rng)).to_ne_bytes()),
        D::F8E5m2 | D::F8E4m3 => {
            let finite = small_floats(data_type);
            bytes(count, || [finite[rng.usize(..finite.len())].0])
        }
        D::E8m0 => bytes(count, || [rng.u8(E8M0_ONE - 4..=E8M0_ONE + 4)]),
        D::S4 | D::U4 | D::F4E2m1 | D::F4E3m0 => bytes(count, || [rng.u8(..16)]),
        D::Boolean => bytes(count, || [u8::from(rng.bool())]),
        D::S8 | D::U8 | D::S16 | D::U16 | D::S32 | D::U32 | D::S64 | D::U64 => {
            let mut any = repeated(&vec![0; data_type.bits() / 8], count)?;
            rng.fill(&mut any);
            Ok(any)
        }
        _ => bail!("elements of type {data_type} are not known here"),
    }
}

/// The bits of 1 as an exponent without sign and mantissa.
const E8M0_ONE: u8 = 127;

fn bytes<const N: usize>(count: usize, mut element: impl FnMut() -> [u8; N]) -> Result<Vec<u8>> {
    let mut filled = room_for(count, N)?;
    (0..count).for_each(|_| filled.extend_from_slice(&element()));
    Ok(filled)
}

/// The sum of four uniform numbers, scaled to variance 1: a bell that ends at ±3.5.
fn normal(rng: &mut Rng) -> f64 {
    let bits = rng.u64(..);
    let sum: u64 = (0..4).map(|lane| (bits >> (16 * lane)) & 0xffff).sum();
    (sum as f64 / 65535.0 - 2.0) * 3f64.sqrt()
}

fn causal(data_type: DataType, count: usize, dims: &[i64]) -> Result<Vec<u8>> {
    let &[.., rows, columns] = dims else {
        bail!("causal needs at least two dims, and it has {}", dims.len());
    };
    let (zero, one) = (element("0", data_type)?, element("1", data_type)?);
    let mut filled = room_for(count, zero.len())?;
    for index in 0..count as i64 {
        let (row, column) = (index / columns % rows, index % columns);
        filled.extend_from_slice(if column <= row { &one } else { &zero });
    }
    Ok(filled)
}

fn padding(data_type: DataType, count: usize, dims: &[i64], seed: u64) -> Result<Vec<u8>> {
    let &[.., columns] = dims else { bail!("padding needs at least one dim, and it has none") };
    let (zero, one) = (element("0", data_type)?, element("1", data_type)?);
    let (mut rng, mut length) = (Rng::with_seed(seed), 0);
    let mut filled = room_for(count, zero.len())?;
    for index in 0..count as i64 {
        let column = index % columns;
        if column == 0 {
            length = rng.i64(1..=columns);
        }
        filled.extend_from_slice(if column < length { &one } else { &zero });
    }
    Ok(filled)
}

/// The bytes of one element whose value is written out; of 4 bits, in the low half of a byte.
pub(crate) fn element(text: &str, data_type: DataType) -> Result<Vec<u8>> {
    use DataType as D;
    Ok(match data_type {
        D::Boolean => vec![truth(text)?],
        D::U8 => integer::<u8>(text, data_type)?.to_ne_bytes().into(),
        D::S8 => integer::<i8>(text, data_type)?.to_ne_bytes().into(),
        D::U16 => integer::<u16>(text, data_type)?.to_ne_bytes().into(),
        D::S16 => integer::<i16>(text, data_type)?.to_ne_bytes().into(),
        D::U32 => integer::<u32>(text, data_type)?.to_ne_bytes().into(),
        D::S32 => integer::<i32>(text, data_type)?.to_ne_bytes().into(),
        D::U64 => integer::<u64>(text, data_type)?.to_ne_bytes().into(),
        D::S64 => integer::<i64>(text, data_type)?.to_ne_bytes().into(),
        D::F64 => float(text, data_type, |x| x)?.to_ne_bytes().into(),
        D::F32 => float(text, data_type, |x| f64::from(x as f32)).map(|x| x as f32)?.to_ne_bytes().into(),
        D::F16 => f16::from_f64(float(text, data_type, |x| f16::from_f64(x).to_f64())?).to_ne_bytes().into(),
        D::Bf16 => {
            bf16::from_f64(float(text, data_type, |x| bf16::from_f64(x).to_f64())?).to_ne_bytes().into()
        }
        D::F8E5m2 | D::F8E4m3 | D::F4E2m1 | D::F4E3m0 => vec![small_float(text, data_type)?],
        D::E8m0 => vec![exponent(text)?],
        D::S4 | D::U4 => vec![half_byte(text, data_type)?],
        _ => bail!("elements of type {data_type} are not known here"),
    })
}

fn truth(text: &str) -> Result<u8> {
    match text {
        "0" | "false" => Ok(0),
        "1" | "true" => Ok(1),
        _ => bail!("boolean cannot hold {text}; write true or false"),
    }
}

fn integer<T: FromStr>(text: &str, data_type: DataType) -> Result<T> {
    text.parse().map_err(|_| anyhow!("{data_type} cannot hold {text}; write a whole number in its range"))
}

/// A number, rounded; a finite one that rounds to an infinite one is refused.
fn float(text: &str, data_type: DataType, round: fn(f64) -> f64) -> Result<f64> {
    let number: f64 = text.parse().map_err(|_| anyhow!("{data_type} cannot hold {text}; write a number"))?;
    let infinite_in_words = text.trim_start_matches(['+', '-']).to_ascii_lowercase().starts_with("inf");
    let rounded = round(number);
    ensure!(
        !rounded.is_infinite() || infinite_in_words,
        "{data_type} cannot hold {text}; write a number in its range"
    );
    Ok(rounded)
}

/// The exponent nearest to a positive number.
fn exponent(text: &str) -> Result<u8> {
    let number = float(text, DataType::E8m0, |x| x)?;
    let code = number.log2().round() + f64::from(E8M0_ONE);
    ensure!(
        (0.0..=254.0).contains(&code),
        "e8m0 cannot hold {text}; write a positive number from 2^-127 to 2^127"
    );
    Ok(code as u8)
}

/// The float of 8 or 4 bits nearest to a number, of two equally near ones the even one.
fn small_float(text: &str, data_type: DataType) -> Result<u8> {
    let number = float(text, data_type, |x| x)?;
    let sign_bit = 1 << (data_type.bits() - 1);
    let sign = if number.is_sign_negative() { sign_bit } else { 0 };
    match data_type {
        DataType::F8E5m2 | DataType::F8E4m3 if number.is_nan() => return Ok(0x7f),
        DataType::F8E5m2 if number.is_infinite() => return Ok(sign | 0x7c),
        _ => {}
    }
    let finite = small_floats(data_type);
    let largest = finite.iter().map(|&(_, value)| value).fold(0.0, f64::max);
    ensure!(number.abs() <= largest, "{data_type} cannot hold {text}; its largest number is {largest}");
    let distance = |&(code, value): &(u8, f64)| ((value - number).abs(), code & 1);
    let same_sign = finite.iter().filter(|(code, _)| code & sign_bit == sign);
    let nearest = same_sign.min_by(|a, b| distance(a).partial_cmp(&distance(b)).expect("both are finite"));
    nearest.map(|&(code, _)| code).ok_or_else(|| anyhow!("{data_type} holds no number"))
}

/// Every finite float of 8 or 4 bits: its bits and its value.
fn small_floats(data_type: DataType) -> Vec<(u8, f64)> {
    let (mantissa_bits, bias) = match data_type {
        DataType::F8E5m2 => (2, 15),
        DataType::F8E4m3 => (3, 7),
        DataType::F4E2m1 => (1, 1),
        _ => (0, 3),
    };
    let sign_bit = 1u8 << (data_type.bits() - 1);
    let is_finite = |code: u8| match data_type {
        // All ones in the exponent: an infinity or a NaN.
        DataType::F8E5m2 => code & 0x7c != 0x7c,
        // All ones: the one NaN; there are no infinities.
        DataType::F8E4m3 => code & 0x7f != 0x7f,
        _ => true,
    };
    let value = |code: u8| {
        let magnitude = code & (sign_bit - 1);
        let exponent = i32::from(magnitude >> mantissa_bits);
        let mantissa = f64::from(magnitude & ((1 << mantissa_bits) - 1)) / f64::from(1 << mantissa_bits);
        let magnitude = match exponent {
            0 => mantissa * 2f64.powi(1 - bias),
            _ => (1.0 + mantissa) * 2f64.powi(exponent - bias),
        };
        if code & sign_bit == 0 { magnitude } else { -magnitude }
    };
    let codes = 0..=u8::MAX >> (8 - data_type.bits());
    codes.filter(|&code| is_finite(code)).map(|code| (code, value(code))).collect()
}

/// An integer of 4 bits.
fn half_byte(text: &str, data_type: DataType) -> Result<u8> {
    let range = if data_type == DataType::S4 { -8..=7 } else { 0..=15 };
    let number = integer::<i8>(text, data_type)?;
    ensure!(range.contains(&number), "{data_type} cannot hold {text}; write a whole number in its range");
    Ok(number as u8 & 0xf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_4_bits_and_exponents_are_rounded_to_what_the_type_holds() {
        use DataType as D;
        let rows: &[(DataType, &str, Option<u8>)] = &[
            (D::S4, "-8", Some(0x8)),
            (D::S4, "7", Some(0x7)),
            (D::S4, "8", None),
            (D::U4, "15", Some(0xf)),
            (D::U4, "-1", None),
            (D::F4E2m1, "1.5", Some(0x3)),
            (D::F4E2m1, "-6", Some(0xf)),
            (D::F4E2m1, "7", None),
            (D::F4E2m1, "nan", None),
            (D::F4E3m0, "1", Some(0x3)),
            (D::F4E3m0, "-16", Some(0xf)),
            (D::E8m0, "1", Some(127)),
            (D::E8m0, "0.5", Some(126)),
            (D::E8m0, "0", None),
            (D::E8m0, "-1", None),
            (D::E8m0, "nan", None),
        ];
        let wrong: Vec<_> = rows
            .iter()
            .filter(|(data_type, text, expected)| element(text, *data_type).ok() != expected.map(|e| vec![e]))
            .collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn ranges_hold_for_every_type() {
        use DataType as D;
        let mut wrong = Vec::new();
        for data_type in
            [D::F32, D::Bf16, D::F8E4m3, D::F8E5m2, D::F4E2m1, D::S8, D::U8, D::S32, D::U4, D::S4]
        {
            for range in [Range::Positive, Range::ZeroPoint, Range::Given(vec![1, 2])] {
                if let Err(error) = random(data_type, 100, &range, 7) {
                    wrong.push(format!("{data_type} {range:?}: {error}"));
                }
            }
        }
        let positive = random(D::F32, 1000, &Range::Positive, 7).unwrap();
        let floats = |bytes: &[u8]| -> Vec<f32> {
            bytes.chunks(4).map(|float| f32::from_ne_bytes(float.try_into().unwrap())).collect()
        };
        wrong.extend(floats(&positive).iter().filter(|x| !(0.5..=2.0).contains(*x)).map(f32::to_string));
        let probability = random(D::F32, 1000, &Range::Probability, 7).unwrap();
        wrong.extend(floats(&probability).iter().filter(|x| !(0.1..=0.9).contains(*x)).map(f32::to_string));
        assert_eq!(random(D::S8, 5, &Range::Given(vec![3, 9]), 7).unwrap(), [3, 9, 3, 9, 3]);
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
