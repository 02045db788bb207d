//! Ports of compiled partitions, by id or by name.

use crate::error::{Error, PortFault, Result, TensorFault};
use crate::graph::logical_tensor::LogicalTensor;
use crate::types::id::TensorId;
use crate::types::labels::PartitionLabels;
use crate::types::nearest::nearest;

/// Names a port of a compiled partition: by the id of its tensor, or by the name that the port has in the
/// schema of its op, such as `cond`.
///
/// An input has the name of the first port of an op that takes it. A partition of several ops may have
/// several ports of one name; their ids tell them apart.
///
/// ```
/// use sterna::{DataType, Engine, LogicalTensor, Op, Partition, PortKey};
/// # let tensor = |id, data_type| LogicalTensor::strided(id, data_type, &[4]);
/// # let (cond, then) = (tensor(0, DataType::Boolean)?, tensor(1, DataType::F32)?);
/// # let op = Op::select(0, cond, then, tensor(2, DataType::F32)?, LogicalTensor::unknown(3, DataType::F32));
/// let compiled = Partition::from_op(op)?.compile(&Engine::new())?;
/// assert_eq!(compiled.port("else")?, compiled.port(2)?);
/// assert_eq!(PortKey::from("else"), PortKey::Name("else"));
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PortKey<'a> {
    /// The id of the tensor.
    Id(TensorId),
    /// The name of the port.
    Name(&'a str),
}

impl From<TensorId> for PortKey<'_> {
    fn from(id: TensorId) -> Self {
        Self::Id(id)
    }
}

impl From<usize> for PortKey<'_> {
    fn from(number: usize) -> Self {
        Self::Id(number.into())
    }
}

impl<'a> From<&'a str> for PortKey<'a> {
    fn from(name: &'a str) -> Self {
        Self::Name(name)
    }
}

/// The index of a port among all ports, inputs first.
pub(super) fn index_of(key: PortKey<'_>, ports: &[LogicalTensor], labels: &PartitionLabels) -> Result<usize> {
    let name = match key {
        PortKey::Id(id) => {
            let index = ports.iter().position(|port| port.id() == id);
            return index.ok_or(Error::Tensor { id, fault: TensorFault::NoPort });
        }
        PortKey::Name(name) => name,
    };
    let has_name = |&index: &usize| labels.ports.get(index) == Some(&name);
    let mut found = (0..ports.len()).filter(has_name);
    let refuse = |fault| Err(Error::Port { name: name.into(), fault });
    match (found.next(), found.next()) {
        (Some(index), None) => Ok(index),
        (None, _) => {
            let nearest = nearest(name, labels.ports.iter().copied());
            refuse(PortFault::Unknown { names: labels.ports.clone(), nearest })
        }
        (Some(_), Some(_)) => {
            let tensors = (0..ports.len()).filter(has_name).map(|index| ports[index].id());
            refuse(PortFault::Ambiguous { tensors: tensors.collect() })
        }
    }
}
