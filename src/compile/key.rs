//! The key of the compiled-partition cache: everything on which a plan depends, and nothing else.

use std::hash::{Hash, Hasher};

use smallvec::SmallVec;

use super::machine::Machine;
use crate::graph::logical_tensor::{Layout, LogicalTensor};
use crate::partition::Partition;
use crate::types::kind::Property;

/// Ops, floating-point mode, types, shapes, layouts, constant inputs, and the machine: kernel level, CPU
/// features and threads. Ids of ops and tensors are not part of it.
///
/// The numbers of a Select of rank 6 need no allocation.
#[derive(Clone)]
pub(super) struct Key {
    partition: Partition,
    /// Types, shapes and layouts of the ports, in order, and whether they are constant.
    ports: SmallVec<[i64; 64]>,
    machine: Machine,
}

impl Key {
    pub(super) fn new<'a>(
        partition: &Partition,
        ports: impl Iterator<Item = &'a LogicalTensor>,
        machine: Machine,
    ) -> Self {
        let mut key = Self { partition: partition.clone(), ports: SmallVec::new(), machine };
        let words = &mut key.ports;
        for port in ports {
            let rank = port.rank().map_or(-1, |rank| rank as i64);
            let (data_type, layout) = (i64::from(port.data_type().code()), i64::from(port.layout().code()));
            // Phases that read constant inputs alone run once for many executions.
            let is_constant = i64::from(port.property() == Property::Constant);
            // The lists are so short that a call to copy memory takes longer than copying one by one.
            words.extend([data_type << 32 | is_constant << 31 | layout, rank]);
            words.extend(port.raw_dims().unwrap_or(&[]).iter().copied());
            if let Layout::Strided(strides) = port.layout() {
                words.extend(strides.raw().iter().copied());
            }
        }
        key
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.machine == other.machine
            && self.ports == other.ports
            && self.partition.signature() == other.partition.signature()
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.partition.signature().hash(state);
        self.ports.iter().for_each(|&word| state.write_i64(word));
    }
}
