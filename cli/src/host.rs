//! Tensors with memory, as a run has them by id.

use anyhow::{Context, Result, ensure};
use sterna::reference::Value;
use sterna::{AsDynView, DataType, Engine, LogicalTensor, Property, Tensor, TensorBuf, TensorId};

use crate::fill::Fills;
use crate::room::room_for;
use crate::shapes::in_memory;

/// A tensor in the memory of this process: an input of the graph, or what a partition computed.
pub(crate) struct HostTensor {
    desc: LogicalTensor,
    elements: Elements,
}

enum Elements {
    /// A tensor that an execution takes; also the bytes of a host scalar, which has no memory of an engine.
    Whole(TensorBuf),
    /// Elements of 4 bits that no execution takes, the first of two in the low half of its byte.
    Packed(Vec<u8>),
}

impl HostTensor {
    /// Memory of zeros for a tensor of known dims; it lies row by row if its strides are not known.
    pub(crate) fn zeroed(desc: &LogicalTensor, engine: &Engine) -> Result<Self> {
        let desc = in_memory(desc)?;
        let elements = match (desc.data_type().bits(), desc.is_host_scalar()) {
            (4, _) if ![DataType::S4, DataType::U4].contains(&desc.data_type()) => {
                let span = desc.span().context("its strides are not known")?;
                let mut bytes = room_for(span.div_ceil(2), 1)?;
                bytes.resize(span.div_ceil(2), 0);
                Elements::Packed(bytes)
            }
            (_, true) => {
                let with_memory = desc.clone().with_property(Property::Undef)?;
                Elements::Whole(TensorBuf::zeroed(with_memory, engine)?)
            }
            (_, false) => Elements::Whole(TensorBuf::zeroed(desc.clone(), engine)?),
        };
        Ok(Self { desc, elements })
    }

    /// The output of a session for a tensor of the graph.
    pub(crate) fn of(buffer: TensorBuf, id: TensorId) -> Self {
        Self { desc: buffer.desc().clone().with_id(id), elements: Elements::Whole(buffer) }
    }

    /// Sets every bit of the memory: NaN in floating point, −1 or the largest number as an integer.
    pub(crate) fn spoil(&mut self) {
        match &mut self.elements {
            Elements::Whole(buffer) => buffer.as_mut_bytes().fill(0xff),
            Elements::Packed(bytes) => bytes.fill(0xff),
        }
    }

    /// A copy for another engine.
    pub(crate) fn copied(&self, engine: &Engine) -> Result<Self> {
        let mut copy = Self::zeroed(&self.desc, engine)?;
        match (&mut copy.elements, &self.elements) {
            (Elements::Whole(to), Elements::Whole(from)) => {
                to.as_mut_bytes().copy_from_slice(from.as_bytes())
            }
            (to, Elements::Packed(from)) => *to = Elements::Packed(from.clone()),
            (Elements::Packed(_), Elements::Whole(_)) => unreachable!("both are of one type"),
        }
        Ok(copy)
    }

    /// The description, with known dims and strides.
    pub(crate) fn desc(&self) -> &LogicalTensor {
        &self.desc
    }

    /// The memory, to be written by an execution.
    pub(crate) fn buffer_mut(&mut self) -> Result<&mut TensorBuf> {
        match &mut self.elements {
            Elements::Whole(buffer) => Ok(buffer),
            Elements::Packed(_) => Err(no_elements(&self.desc)),
        }
    }

    /// Writes a value of the same dims.
    pub(crate) fn write(&mut self, value: &Value) -> Result<()> {
        let is_dense = self.is_dense();
        let buffer = self.buffer_mut()?;
        match buffer.as_mut_bytes() {
            // As they lie in the value, which saves finding the place of each.
            bytes if is_dense && bytes.len() == value.bytes().len() => bytes.copy_from_slice(value.bytes()),
            _ => value.write(buffer)?,
        }
        Ok(())
    }

    /// Fills the tensor.
    pub(crate) fn fill(&mut self, fills: &Fills) -> Result<()> {
        fills
            .elements(&self.desc)
            .and_then(|elements| self.write_elements(elements))
            .with_context(|| format!("tensor {} cannot be filled", self.desc.id()))
    }

    /// Writes elements given in row-major order; of 4 bits, two to a byte.
    fn write_elements(&mut self, elements: Vec<u8>) -> Result<()> {
        let Elements::Packed(bytes) = &mut self.elements else {
            let value = Value::new(self.desc.data_type(), self.desc.dims().unwrap_or(&[]), elements)?;
            return self.write(&value);
        };
        let (given, count) = (elements.len(), self.desc.element_count().unwrap_or(0));
        ensure!(given == count.div_ceil(2), "{given} bytes are given for {count} elements of 4 bits");
        for (index, place) in places(&self.desc).enumerate() {
            let half = elements[index / 2] >> (4 * (index % 2)) & 0xf;
            let shift = 4 * (place % 2);
            bytes[place / 2] = bytes[place / 2] & !(0xf << shift) | half << shift;
        }
        Ok(())
    }

    /// The elements, to be given to a session.
    pub(crate) fn view(&self) -> Result<&dyn AsDynView> {
        match &self.elements {
            Elements::Whole(buffer) => Ok(buffer),
            Elements::Packed(_) => Err(no_elements(&self.desc)),
        }
    }

    /// The tensor, to be given to an execution.
    pub(crate) fn tensor(&self) -> Result<Tensor<'_>> {
        let Elements::Whole(buffer) = &self.elements else { return Err(no_elements(&self.desc)) };
        if !self.desc.is_host_scalar() {
            return Ok(buffer.as_tensor());
        }
        Ok(match self.desc.data_type() {
            DataType::F32 => Tensor::scalar(&self.desc, buffer.as_slice::<f32>()?[0])?,
            DataType::S32 => Tensor::scalar(&self.desc, buffer.as_slice::<i32>()?[0])?,
            _ => Tensor::scalar(&self.desc, buffer.as_slice::<i64>()?[0])?,
        })
    }

    /// The elements in row-major order.
    pub(crate) fn value(&self) -> Result<Value> {
        match &self.elements {
            Elements::Whole(buffer) => Ok(Value::read(&buffer.as_tensor())?),
            Elements::Packed(bytes) => {
                let count = self.desc.element_count().unwrap_or(0);
                let mut packed = vec![0; count.div_ceil(2)];
                for (index, place) in places(&self.desc).enumerate() {
                    let half = bytes[place / 2] >> (4 * (place % 2)) & 0xf;
                    packed[index / 2] |= half << (4 * (index % 2));
                }
                Ok(Value::new(self.desc.data_type(), self.desc.dims().unwrap_or(&[]), packed)?)
            }
        }
    }

    fn is_dense(&self) -> bool {
        let dense = self.desc.dims().map(|dims| LogicalTensor::strided(0, self.desc.data_type(), dims));
        matches!(dense, Some(Ok(dense)) if dense.strides() == self.desc.strides())
    }
}

fn no_elements(desc: &LogicalTensor) -> anyhow::Error {
    anyhow::anyhow!("tensor {}: no execution takes elements of type {}", desc.id(), desc.data_type())
}

/// For each element in row-major order, how many elements lie before it in memory.
fn places(desc: &LogicalTensor) -> impl Iterator<Item = usize> {
    let dims: Vec<usize> = desc.dims().unwrap_or(&[]).iter().map(|&dim| dim as usize).collect();
    let strides: Vec<usize> = desc.strides().unwrap_or(&[]).iter().map(|&stride| stride as usize).collect();
    (0..desc.element_count().unwrap_or(0)).map(move |mut index| {
        let mut place = 0;
        for (dim, stride) in dims.iter().zip(&strides).rev() {
            place += index % dim * stride;
            index /= dim;
        }
        place
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_4_bits_keep_their_order_whatever_the_strides() {
        let mut wrong = Vec::new();
        let all_strides = [[3, 1], [1, 2], [4, 1], [5, 2]];
        let types = [DataType::U4, DataType::F4E2m1];
        for (strides, data_type) in all_strides.iter().flat_map(|strides| types.map(|of| (strides, of))) {
            let desc = LogicalTensor::with_strides(0, data_type, &[2, 3], strides).unwrap();
            let mut tensor = HostTensor::zeroed(&desc, &Engine::new()).unwrap();
            tensor.write_elements(vec![0x21, 0x43, 0x65]).unwrap();
            let bytes = match &tensor.elements {
                Elements::Packed(bytes) => bytes,
                Elements::Whole(buffer) => buffer.as_bytes(),
            };
            for (index, expected) in (1..=6u8).enumerate() {
                let place = index / 3 * strides[0] as usize + index % 3 * strides[1] as usize;
                let found = bytes[place / 2] >> (4 * (place % 2)) & 0xf;
                if found != expected {
                    wrong.push(format!("{data_type}, strides {strides:?}, element {index}: {found}"));
                }
            }
            if bytes.len() != desc.span().unwrap().div_ceil(2) {
                wrong.push(format!("{data_type}, strides {strides:?}: {} bytes", bytes.len()));
            }
        }
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
