//! Tensors with memory, as a run holds them by id.

use anyhow::{Context, Result};
use sterna::reference::Value;
use sterna::{DataType, Engine, LogicalTensor, Property, Tensor, TensorBuf};

/// A tensor that a run holds: an input of the graph, or what a partition computed.
pub(crate) struct Held {
    desc: LogicalTensor,
    /// The elements; those of a host scalar too, which has no memory of its own.
    elements: TensorBuf,
}

impl Held {
    /// Memory of zeros for a tensor of known dims; it lies row by row where its strides are not known.
    pub(crate) fn zeroed(desc: &LogicalTensor, engine: &Engine) -> Result<Self> {
        let property = desc.property();
        let desc = match (desc.dims(), desc.strides()) {
            (Some(dims), None) => {
                LogicalTensor::strided(desc.id(), desc.data_type(), dims)?.with_property(property)?
            }
            _ => desc.clone(),
        };
        let in_memory = match desc.is_host_scalar() {
            true => desc.clone().with_property(Property::Undef)?,
            false => desc.clone(),
        };
        Ok(Self { desc, elements: TensorBuf::zeroed(in_memory, engine)? })
    }

    /// The description, with known dims and strides.
    pub(crate) fn desc(&self) -> &LogicalTensor {
        &self.desc
    }

    /// The memory, to be written.
    pub(crate) fn elements_mut(&mut self) -> &mut TensorBuf {
        &mut self.elements
    }

    /// The memory, to be read.
    pub(crate) fn elements(&self) -> &TensorBuf {
        &self.elements
    }

    /// Writes the elements.
    pub(crate) fn put(&mut self, value: &Value) -> Result<()> {
        let dense = LogicalTensor::strided(self.desc.id(), self.desc.data_type(), value.dims())?;
        let is_dense = self.desc.strides() == dense.strides() && self.desc.dims() == dense.dims();
        match self.elements.as_mut_bytes() {
            // As they lie in the value, which saves finding the place of each.
            bytes if is_dense && bytes.len() == value.bytes().len() => bytes.copy_from_slice(value.bytes()),
            _ => value.write(&mut self.elements)?,
        }
        Ok(())
    }

    /// The tensor, to be given to an execution.
    pub(crate) fn tensor(&self) -> Result<Tensor<'_>> {
        if !self.desc.is_host_scalar() {
            return Ok(self.elements.as_tensor());
        }
        Ok(match self.desc.data_type() {
            DataType::F32 => Tensor::scalar(&self.desc, self.elements.as_slice::<f32>()?[0])?,
            DataType::S32 => Tensor::scalar(&self.desc, self.elements.as_slice::<i32>()?[0])?,
            _ => Tensor::scalar(&self.desc, self.elements.as_slice::<i64>()?[0])?,
        })
    }

    /// The elements in row-major order.
    pub(crate) fn value(&self) -> Result<Value> {
        Ok(Value::read(&self.elements.as_tensor())?)
    }
}

/// An empty list with room for so many elements of so many bytes.
pub(crate) fn room_for(count: usize, size: usize) -> Result<Vec<u8>> {
    let mut list = Vec::new();
    let bytes = count.checked_mul(size).context("it has more elements than memory can hold")?;
    list.try_reserve_exact(bytes).with_context(|| format!("there is no memory for its {bytes} bytes"))?;
    Ok(list)
}
