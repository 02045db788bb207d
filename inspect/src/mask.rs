//! The tiles of masked scores, as far as they are known before a run.

use anyhow::Result;
use half::{bf16, f16};
use sterna::reference::Value;
use sterna::{
    CompiledPartition, DataType, Engine, Error, ExecuteFault, LogicalTensor, MaskTiles, OpKind, Partition,
    Property, Tensor, TensorBuf, TensorId,
};

use crate::subject::Subject;
use crate::words::plain;

/// The tiles of masked scores.
pub(crate) enum Mask {
    Tiles {
        tiles: MaskTiles,
        /// The inputs of one element that nobody gives, with what they are taken for.
        assumed: Vec<String>,
    },
    /// The input without which nobody knows them, and what to do for it.
    Needs { input: String, remedy: Option<String> },
}

/// The tiles of a partition that masks scores. An input of one element that nobody gives is taken for what
/// such inputs are in a mask: the branch of a choice masks, and a scale changes nothing.
pub(crate) fn of(
    subject: &dyn Subject,
    partition: &Partition,
    compiled: &CompiledPartition,
    engine: &Engine,
) -> Result<Option<Mask>> {
    let names = subject.names();
    let named = |id: TensorId| plain(&names.get(&id).cloned().unwrap_or_else(|| id.to_string()));
    let mut known = Vec::new();
    for port in compiled.inputs() {
        if let Some(value) = subject.given(port)? {
            known.push(KnownTensor::new(port, &value, engine)?);
        }
    }
    let mut assumed = Vec::new();
    loop {
        let tensors = known.iter().map(KnownTensor::tensor).collect::<Result<Vec<Tensor<'_>>>>()?;
        let missing = match compiled.mask_tiles(&tensors) {
            Ok(tiles) => return Ok(tiles.map(|tiles| Mask::Tiles { tiles, assumed })),
            Err(Error::Execute(ExecuteFault::Missing { tensor, .. })) => tensor,
            Err(error) => return Err(error.into()),
        };
        let needs = || Ok(Some(Mask::Needs { input: named(missing), remedy: subject.remedy(missing) }));
        let is_branch = is_branch(partition, missing);
        let is_new = known.iter().all(|tensor| tensor.desc.id() != missing);
        let port = compiled.inputs().iter().find(|port| port.id() == missing && is_new);
        if let Some(port) = port
            && let Some(value) = subject.constant(port)?
        {
            known.push(KnownTensor::new(port, &value, engine)?);
            continue;
        }
        let assumption = port.filter(|port| port.element_count() == Some(1));
        match assumption.and_then(|port| Some((port, assumption_of(port.data_type(), is_branch)?))) {
            None => return needs(),
            Some((port, bytes)) => {
                let value = Value::new(port.data_type(), port.dims().unwrap_or(&[]), bytes)?;
                known.push(KnownTensor::new(port, &value, engine)?);
                let text = if is_branch { "-inf" } else { "1" };
                assumed.push(format!("{} = {text}", named(missing)));
            }
        }
    }
}

/// The bytes of −∞ for a branch, else of 1; none of a type that masks do not have.
fn assumption_of(data_type: DataType, is_branch: bool) -> Option<Vec<u8>> {
    let number = if is_branch { f32::NEG_INFINITY } else { 1.0 };
    match data_type {
        DataType::F32 => Some(number.to_ne_bytes().into()),
        DataType::F16 => Some(f16::from_f32(number).to_ne_bytes().into()),
        DataType::Bf16 => Some(bf16::from_f32(number).to_ne_bytes().into()),
        _ => None,
    }
}

/// True for a branch of a choice.
fn is_branch(partition: &Partition, tensor: TensorId) -> bool {
    let mut choices = partition.ops().iter().filter(|op| op.kind() == OpKind::Select);
    choices.any(|op| op.inputs().iter().skip(1).any(|input| input.id() == tensor))
}

/// A tensor whose value is known.
struct KnownTensor {
    desc: LogicalTensor,
    /// Also the bytes of a host scalar, which has no memory of an engine.
    buffer: TensorBuf,
}

impl KnownTensor {
    fn new(desc: &LogicalTensor, value: &Value, engine: &Engine) -> Result<Self> {
        let held = match desc.is_host_scalar() {
            true => desc.clone().with_property(Property::Undef)?,
            false => desc.clone(),
        };
        let mut buffer = TensorBuf::zeroed(held, engine)?;
        value.write(&mut buffer)?;
        Ok(Self { desc: desc.clone(), buffer })
    }

    fn tensor(&self) -> Result<Tensor<'_>> {
        if !self.desc.is_host_scalar() {
            return Ok(self.buffer.as_tensor());
        }
        Ok(match self.desc.data_type() {
            DataType::F32 => Tensor::scalar(&self.desc, self.buffer.as_slice::<f32>()?[0])?,
            DataType::S32 => Tensor::scalar(&self.desc, self.buffer.as_slice::<i32>()?[0])?,
            _ => Tensor::scalar(&self.desc, self.buffer.as_slice::<i64>()?[0])?,
        })
    }
}
