//! `--expect`: results held against those of another program, within tolerances.

use std::fmt::{self, Display, Formatter};

use anyhow::{Context, Result, bail};
use half::{bf16, f16};
use serde::Serialize;
use sterna::reference::Value;
use sterna::{DataType, LogicalTensor, TensorId};

use crate::given::Given;
use crate::named::Named;
use crate::names::PortScope;
use crate::source::Loaded;

/// How far results may be from what is expected: by so much, and by this part of what is expected.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Tolerance {
    pub(crate) absolute: f64,
    pub(crate) relative: f64,
}

impl Tolerance {
    /// True if a number is as near as `numpy.testing.assert_allclose` wants it.
    fn allows(self, computed: f64, expected: f64) -> bool {
        match computed.is_finite() && expected.is_finite() {
            true => (computed - expected).abs() <= self.absolute + self.relative * expected.abs(),
            false => computed == expected || computed.is_nan() && expected.is_nan(),
        }
    }
}

/// Reads a tolerance: a number that is not negative.
pub(crate) fn tolerance(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => Ok(number),
        _ => Err("write a number of 0 or more, such as 1e-5".into()),
    }
}

/// A tensor and what it is expected to be.
#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) tensor: TensorId,
    given: Given,
}

impl Expected {
    /// The tensors that options expect. A file alone names the outputs.
    pub(crate) fn all(named: &[Named<Given>], loaded: &Loaded) -> Result<Vec<Self>> {
        let given = named.iter().map(|named| loaded.names.split(named));
        let mut all = Vec::new();
        for input in crate::given::expanded_for("--expect", given)? {
            let tensor = loaded.names.find("--expect", &input.key, PortScope::Outputs)?;
            all.push(Self { tensor, given: input.given });
        }
        loaded.names.once("--expect", all.iter().map(|expected| expected.tensor))?;
        Ok(all)
    }

    /// Compares a value with what is expected of a tensor, which messages call `shown`.
    pub(crate) fn compare(&self, computed: &Value, shown: &str, within: Tolerance) -> Result<ExpectReport> {
        let expected = self.value(computed, shown)?;
        let (computed_numbers, numbers) = (numbers(computed)?, numbers(&expected)?);
        let mut report = ExpectReport {
            tensor: self.tensor,
            name: None,
            elements: numbers.len(),
            atol: within.absolute,
            rtol: within.relative,
            equal: true,
            beyond: 0,
            absolute: None,
            relative: None,
        };
        for (at, (&computed_number, &number)) in computed_numbers.iter().zip(&numbers).enumerate() {
            if !within.allows(computed_number, number) {
                report.beyond += 1;
            }
            let absolute = match computed_number == number || computed_number.is_nan() && number.is_nan() {
                true => continue,
                // One of two that only one of is NaN is as far off as can be.
                false if computed_number.is_nan() || number.is_nan() => f64::INFINITY,
                false => (computed_number - number).abs(),
            };
            let relative = if absolute.is_finite() { absolute / number.abs() } else { absolute };
            let deviation = |error| Deviation {
                error,
                index: index_of(at, computed.dims()),
                computed: computed_number,
                expected: number,
            };
            if report.absolute.as_ref().is_none_or(|most| absolute > most.error) {
                report.absolute = Some(deviation(absolute));
            }
            if report.relative.as_ref().is_none_or(|most| relative > most.error) {
                report.relative = Some(deviation(relative));
            }
        }
        report.equal = report.beyond == 0;
        Ok(report)
    }

    /// The expected value: of the type of the tensor, or of another type of numbers.
    fn value(&self, computed: &Value, shown: &str) -> Result<Value> {
        let desc = |data_type| LogicalTensor::strided(self.tensor, data_type, computed.dims());
        let own = self.given.value(&desc(computed.data_type())?, shown);
        let Err(error) = own else { return own };
        match self.given.description() {
            Ok((Some(data_type), dims)) if dims == computed.dims() && data_type != computed.data_type() => {
                self.given.value(&desc(data_type)?, shown)
            }
            _ => Err(error),
        }
    }
}

/// The comparison of one tensor with what is expected.
#[derive(Debug, Serialize)]
pub(crate) struct ExpectReport {
    pub(crate) tensor: TensorId,
    /// Of an output of the graph.
    pub(crate) name: Option<String>,
    pub(crate) elements: usize,
    pub(crate) atol: f64,
    pub(crate) rtol: f64,
    /// True if all elements are within the tolerances.
    pub(crate) equal: bool,
    /// The elements that are not.
    pub(crate) beyond: usize,
    /// The element that is furthest off, if any is off.
    pub(crate) absolute: Option<Deviation>,
    /// The element that is furthest off as a part of what is expected.
    pub(crate) relative: Option<Deviation>,
}

/// How far an element is from what is expected.
#[derive(Debug, Serialize)]
pub(crate) struct Deviation {
    pub(crate) error: f64,
    pub(crate) index: Vec<i64>,
    pub(crate) computed: f64,
    pub(crate) expected: f64,
}

impl Display for Deviation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { error, index, computed, expected } = self;
        write!(f, "{error:.3e} at {index:?}, computed {computed}, expected {expected}")
    }
}

impl Display for ExpectReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { tensor, elements, atol, rtol, beyond, .. } = self;
        let name = self.name.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
        match self.equal {
            true => write!(f, "tensor {tensor}{name}: all {elements} elements are as expected")?,
            false => write!(f, "tensor {tensor}{name}: {beyond} of {elements} elements are not as expected")?,
        }
        write!(f, ", atol {atol:e}, rtol {rtol:e}")?;
        let errors = [("absolute", &self.absolute), ("relative", &self.relative)];
        errors.iter().try_for_each(|(what, error)| match error {
            Some(error) => write!(f, "; largest {what} error {error}"),
            None => Ok(()),
        })
    }
}

/// The index of an element by its number in row-major order.
fn index_of(at: usize, dims: &[i64]) -> Vec<i64> {
    let mut index = vec![0; dims.len()];
    let mut rest = at as i64;
    for (index, dim) in index.iter_mut().zip(dims).rev() {
        *index = rest % dim;
        rest /= dim;
    }
    index
}

/// The elements as numbers.
fn numbers(value: &Value) -> Result<Vec<f64>> {
    let data_type = value.data_type();
    macro_rules! of {
        ($Type:ty) => {
            value.elements::<$Type>().map(|elements| elements.into_iter().map(|x| x as f64).collect())
        };
    }
    let numbers = match data_type {
        DataType::F64 => value.elements::<f64>(),
        DataType::F32 => of!(f32),
        DataType::F16 => value.elements::<f16>().map(|of| of.into_iter().map(f16::to_f64).collect()),
        DataType::Bf16 => value.elements::<bf16>().map(|of| of.into_iter().map(bf16::to_f64).collect()),
        DataType::S64 => of!(i64),
        DataType::S32 => of!(i32),
        DataType::S16 => of!(i16),
        DataType::S8 => of!(i8),
        DataType::U64 => of!(u64),
        DataType::U32 => of!(u32),
        DataType::U16 => of!(u16),
        DataType::U8 => of!(u8),
        DataType::Boolean => Some(value.bytes().iter().map(|&byte| f64::from(u8::from(byte != 0))).collect()),
        _ => bail!("--expect compares no elements of type {data_type}"),
    };
    numbers.with_context(|| format!("the elements of type {data_type} cannot be read"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerances_are_those_of_numpy() {
        let within = Tolerance { absolute: 0.5, relative: 0.25 };
        let rows = [
            (1.0, 1.0, true),
            // 0.5 + 0.25 · 4.
            (5.5, 4.0, true),
            (5.5001, 4.0, false),
            (-0.5, 0.0, true),
            (f64::NAN, f64::NAN, true),
            (f64::NAN, 1.0, false),
            (f64::INFINITY, f64::INFINITY, true),
            (f64::INFINITY, f64::NEG_INFINITY, false),
            (1e308, f64::INFINITY, false),
        ];
        let wrong: Vec<_> = rows
            .iter()
            .filter(|(computed, expected, fine)| within.allows(*computed, *expected) != *fine)
            .collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
