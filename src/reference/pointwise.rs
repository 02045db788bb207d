//! Ops whose result has a function of one element of each input for each element: one loop over numbers a
//! function, between one that reads each input and one that writes the result.

use std::ops::Range;

use super::element::{elements, elements_mut};
use super::functions;
use super::number::{floats, integers, is_integer, store_arithmetic, store_floats, store_integers};
use super::odometer::Odometer;
use super::value::{Value, copy, one};
use crate::error::Result;
use crate::graph::function::Function;
use crate::graph::infer::Placement;
use crate::types::dtype::DataType;
use crate::types::function::Sign;
use crate::types::shape::Dims;

/// The inputs of an op, in the order of the elements of its result.
struct Inputs<'a> {
    values: Vec<&'a Value>,
    odometers: Vec<Odometer>,
}

impl Inputs<'_> {
    fn floats(&self, port: usize, range: &Range<usize>) -> Vec<f64> {
        let mut numbers = vec![0.0; range.len()];
        floats(self.values[port], &self.odometers[port], range.clone(), &mut numbers);
        numbers
    }

    fn integers(&self, port: usize, range: &Range<usize>) -> Vec<i128> {
        let mut numbers = vec![0; range.len()];
        integers(self.values[port], &self.odometers[port], range.clone(), &mut numbers);
        numbers
    }

    /// Copies elements of `N` bytes as they are.
    fn copy<const N: usize>(&self, port: usize, range: &Range<usize>, into: &mut [u8]) {
        copy::<N>(&self.odometers[port], range.clone(), self.values[port].bytes(), into);
    }

    fn mask(&self, port: usize, range: &Range<usize>) -> Vec<u8> {
        let mut mask = vec![0; range.len()];
        self.copy::<1>(port, range, &mut mask);
        mask
    }
}

/// Each element of the result is a function of the elements that broadcasting brings together.
pub(super) fn pointwise(
    function: Function,
    to: DataType,
    values: &[Value],
    placement: &Placement,
) -> Result<Vec<Value>> {
    let elements = ElementFunction::of(function, to, values.iter().collect(), placement);
    one(Value::compute(to, &placement.result, |range, bytes| elements.write(&range, bytes)))
}

/// The elements of such a result, some at a time.
pub(super) struct ElementFunction<'a> {
    function: Function,
    from: DataType,
    to: DataType,
    inputs: Inputs<'a>,
}

impl<'a> ElementFunction<'a> {
    pub(super) fn of(
        function: Function,
        to: DataType,
        values: Vec<&'a Value>,
        placement: &Placement,
    ) -> Self {
        let placed = values.iter().zip(&placement.starts);
        let odometer =
            |(value, &start): (&&Value, &usize)| Odometer::broadcast(value.dims(), &placement.result, start);
        let odometers = placed.map(odometer).collect();
        let from = values.first().map_or(to, |value| value.data_type());
        Self { function, from, to, inputs: Inputs { values, odometers } }
    }

    /// Writes those of a range.
    pub(super) fn write(&self, range: &Range<usize>, bytes: &mut [u8]) {
        run(self.function, self.from, &self.inputs, range, self.to, bytes);
    }
}

/// Writes the elements of a range.
fn run(
    function: Function,
    from: DataType,
    inputs: &Inputs<'_>,
    range: &Range<usize>,
    to: DataType,
    bytes: &mut [u8],
) {
    match function {
        Function::Unary(function, params) => {
            let mut xs = inputs.floats(0, range);
            functions::unary(function, params, &mut xs);
            store_arithmetic(&mut xs, to, bytes);
        }
        Function::Binary(function, _) if is_integer(from) => {
            let (mut xs, ys) = (inputs.integers(0, range), inputs.integers(1, range));
            functions::of_integers(function, &mut xs, &ys);
            store_integers(&xs, to, bytes);
        }
        Function::Binary(function, params) => {
            let (mut xs, ys) = (inputs.floats(0, range), inputs.floats(1, range));
            functions::binary(function, params, &mut xs, &ys);
            store_arithmetic(&mut xs, to, bytes);
        }
        Function::Compare(comparison) if is_integer(from) => {
            let (xs, ys) = (inputs.integers(0, range), inputs.integers(1, range));
            functions::compare(comparison, &xs, &ys, bytes);
        }
        Function::Compare(comparison) => {
            let (xs, ys) = (inputs.floats(0, range), inputs.floats(1, range));
            functions::compare(comparison, &xs, &ys, bytes);
        }
        Function::Logic(logic) => {
            inputs.copy::<1>(0, range, bytes);
            functions::logic(logic, bytes, &inputs.mask(1, range));
        }
        Function::Not => {
            inputs.copy::<1>(0, range, bytes);
            bytes.iter_mut().for_each(|truth| *truth = u8::from(*truth == 0));
        }
        Function::Classify(class) => functions::classify(class, &inputs.floats(0, range), bytes),
        Function::Convert if from == to => moved(Function::Identity, inputs, range, to, bytes),
        Function::Convert if is_integer(from) => store_integers(&inputs.integers(0, range), to, bytes),
        Function::Convert => store_floats(&inputs.floats(0, range), to, bytes),
        // The very number, the bits of a NaN as well.
        Function::Fill(value) if to == DataType::F32 => {
            elements_mut(bytes).iter_mut().for_each(|element| *element = value.to_ne_bytes());
        }
        Function::Fill(value) => store_floats(&vec![value.into(); range.len()], to, bytes),
        Function::Sign(sign) if is_integer(from) => {
            let mut xs = inputs.integers(0, range);
            functions::sign_of_integers(sign, &mut xs);
            store_integers(&xs, to, bytes);
        }
        Function::Sign(_) | Function::Select | Function::Identity => {
            moved(function, inputs, range, to, bytes)
        }
        Function::Index | Function::Move(_) => unreachable!("an op on whole tensors"),
        Function::IsKept => unreachable!("no op is this function alone"),
    }
}

/// Writes elements that are those of an input but for a bit.
fn moved(function: Function, inputs: &Inputs<'_>, range: &Range<usize>, to: DataType, bytes: &mut [u8]) {
    match to.size() {
        Some(1) => moved_bytes::<1>(function, inputs, range, bytes),
        Some(2) => moved_bytes::<2>(function, inputs, range, bytes),
        Some(4) => moved_bytes::<4>(function, inputs, range, bytes),
        _ => moved_bytes::<8>(function, inputs, range, bytes),
    }
}

fn moved_bytes<const N: usize>(
    function: Function,
    inputs: &Inputs<'_>,
    range: &Range<usize>,
    bytes: &mut [u8],
) {
    match function {
        Function::Select => {
            inputs.copy::<N>(1, range, bytes);
            let mut otherwise = vec![0; bytes.len()];
            inputs.copy::<N>(2, range, &mut otherwise);
            let (places, elements) = (elements_mut::<N>(bytes), elements::<N>(&otherwise));
            let conditions = inputs.mask(0, range);
            for ((place, element), condition) in places.iter_mut().zip(elements).zip(conditions) {
                *place = if condition != 0 { *place } else { *element };
            }
        }
        Function::Sign(sign) => {
            inputs.copy::<N>(0, range, bytes);
            let highest = if cfg!(target_endian = "little") { N - 1 } else { 0 };
            let bytes = elements_mut::<N>(bytes).iter_mut().map(|element| &mut element[highest]);
            match sign {
                Sign::Clear => bytes.for_each(|byte| *byte &= 0x7f),
                Sign::Flip => bytes.for_each(|byte| *byte ^= 0x80),
            }
        }
        _ => inputs.copy::<N>(0, range, bytes),
    }
}

/// Each element is its own index along an axis.
pub(super) fn indices(axis: usize, to: DataType, dims: &[i64]) -> Result<Vec<Value>> {
    let mut strides = Dims::from_elem(0, dims.len());
    strides[axis] = 1;
    let odometer = Odometer::of(dims, &strides);
    one(Value::compute(to, dims, |range, bytes| {
        let mut indices = vec![0; range.len()];
        odometer.read(range, &mut indices, |index| index as i128);
        store_integers(&indices, to, bytes);
    }))
}
