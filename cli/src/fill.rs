//! What is put into inputs that no file gives.

use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail, ensure};
use fastrand::Rng;
use half::{bf16, f16};
use sterna::reference::Value;
use sterna::{DataType, LogicalTensor, TensorId};

use crate::held::room_for;

/// How an input is filled.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fill {
    /// Floats of about normal distribution, integers of any bits, truth values at 50 %.
    Random,
    /// 1 where the column is not beyond the row, else 0, in the last two dims.
    Causal,
    /// 1 in the first elements of each row of the last dim, a random number of them, else 0.
    Padding,
    /// One value everywhere, which is read when the type is known.
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
                    "{text:?} is no fill; write random, zeros, ones, causal, padding or a value (a number, inf, -inf, nan, \
                     true, false)"
                ));
            }
        })
    }
}

impl Fill {
    /// The value of a tensor of known dims.
    pub(crate) fn value(&self, desc: &LogicalTensor, seed: u64) -> Result<Value> {
        let (data_type, count) = (desc.data_type(), desc.element_count().unwrap_or(0));
        let dims = desc.dims().unwrap_or(&[]);
        let elements = match self {
            Self::Random => random(data_type, count, seed_of(desc.id(), seed)),
            Self::Causal => causal(data_type, count, dims),
            Self::Padding => padding(data_type, count, dims, seed_of(desc.id(), seed)),
            Self::Value(text) => element(text, data_type).and_then(|element| repeated(&element, count)),
        };
        elements
            .and_then(|elements| Ok(Value::new(data_type, dims, elements)?))
            .with_context(|| format!("tensor {} cannot be filled", desc.id()))
    }
}

fn repeated(element: &[u8], count: usize) -> Result<Vec<u8>> {
    let mut filled = room_for(count, element.len())?;
    filled.resize(count * element.len(), element[0]);
    if element.iter().any(|&byte| byte != element[0]) {
        filled.chunks_exact_mut(element.len()).for_each(|chunk| chunk.copy_from_slice(element));
    }
    Ok(filled)
}

/// A seed of each tensor's own, so that its values do not depend on what else the graph holds.
fn seed_of(id: TensorId, seed: u64) -> u64 {
    Rng::with_seed(seed).u64(..) ^ Rng::with_seed(!(id as u64)).u64(..)
}

fn random(data_type: DataType, count: usize, seed: u64) -> Result<Vec<u8>> {
    use DataType as D;
    let mut rng = Rng::with_seed(seed);
    match data_type {
        D::F64 => bytes(count, || normal(&mut rng).to_ne_bytes()),
        D::F32 => bytes(count, || (normal(&mut rng) as f32).to_ne_bytes()),
        D::F16 => bytes(count, || f16::from_f64(normal(&mut rng)).to_ne_bytes()),
        D::Bf16 => bytes(count, || bf16::from_f64(normal(&mut rng)).to_ne_bytes()),
        D::F8E5m2 | D::F8E4m3 => {
            let finite = small_floats(data_type);
            bytes(count, || [finite[rng.usize(..finite.len())].0])
        }
        D::Boolean => bytes(count, || [u8::from(rng.bool())]),
        D::S8 | D::U8 | D::S16 | D::U16 | D::S32 | D::U32 | D::S64 | D::U64 => {
            let mut any = repeated(&vec![0; data_type.bits() / 8], count)?;
            rng.fill(&mut any);
            Ok(any)
        }
        _ => bail!("elements of type {data_type} are not known here"),
    }
}

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

/// The bytes of one element whose value is written out.
fn element(text: &str, data_type: DataType) -> Result<Vec<u8>> {
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
        D::F8E5m2 | D::F8E4m3 => vec![small_float(text, data_type)?],
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

/// The 8-bit float nearest to a number, of two equally near ones the even one.
fn small_float(text: &str, data_type: DataType) -> Result<u8> {
    let number = float(text, data_type, |x| x)?;
    let sign = u8::from(number.is_sign_negative()) << 7;
    if number.is_nan() {
        return Ok(0x7f);
    }
    if number.is_infinite() && data_type == DataType::F8E5m2 {
        return Ok(sign | 0x7c);
    }
    let finite = small_floats(data_type);
    let largest = finite.iter().map(|&(_, value)| value).fold(0.0, f64::max);
    ensure!(number.abs() <= largest, "{data_type} cannot hold {text}; its largest number is {largest}");
    let distance = |&(code, value): &(u8, f64)| ((value - number).abs(), code & 1);
    let same_sign = finite.iter().filter(|(code, _)| code & 0x80 == sign);
    let nearest = same_sign.min_by(|a, b| distance(a).partial_cmp(&distance(b)).expect("both are finite"));
    nearest.map(|&(code, _)| code).ok_or_else(|| anyhow!("{data_type} holds no number"))
}

/// Every finite 8-bit float: its bits and its value.
fn small_floats(data_type: DataType) -> Vec<(u8, f64)> {
    let (mantissa_bits, bias) = if data_type == DataType::F8E5m2 { (2, 15) } else { (3, 7) };
    let is_finite = |code: u8| match data_type {
        // All ones in the exponent: an infinity or a NaN.
        DataType::F8E5m2 => code & 0x7c != 0x7c,
        // All ones: the one NaN; there are no infinities.
        _ => code & 0x7f != 0x7f,
    };
    let value = |code: u8| {
        let exponent = i32::from((code & 0x7f) >> mantissa_bits);
        let mantissa = f64::from(code & ((1 << mantissa_bits) - 1)) / f64::from(1 << mantissa_bits);
        let magnitude = match exponent {
            0 => mantissa * 2f64.powi(1 - bias),
            _ => (1.0 + mantissa) * 2f64.powi(exponent - bias),
        };
        if code & 0x80 == 0 { magnitude } else { -magnitude }
    };
    (0..=u8::MAX).filter(|&code| is_finite(code)).map(|code| (code, value(code))).collect()
}
