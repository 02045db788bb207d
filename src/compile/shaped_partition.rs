//! A partition whose shapes are known, from which phases are made.

use super::elementwise::{Anchor, ShapedGroup, port_strides, resolved_outputs};
use super::shapes::MAX_ELEMENTS;
use crate::error::{CompileFault, Error, Result};
use crate::graph::logical_tensor::LogicalTensor;
use crate::partition::Partition;
use crate::plan::{InPlacePorts, ValueId};
use crate::types::kind::OpKind;
use crate::types::shape::{self, Dims};

/// A partition with the shapes of all its values, and the strides of its ports.
pub(super) struct ShapedPartition<'a> {
    pub(super) partition: &'a Partition,
    pub(super) group: ShapedGroup,
    pub(super) inputs: &'a [&'a LogicalTensor],
    /// Dims and strides of each output.
    pub(super) resolved: Vec<(Dims, Dims)>,
    /// For each output, the strides of the value that is written there instead, if moves lead from that value
    /// to the output.
    written: Vec<Option<Dims>>,
}

impl<'a> ShapedPartition<'a> {
    /// Infers all shapes.
    pub(super) fn new(
        partition: &'a Partition,
        inputs: &'a [&'a LogicalTensor],
        outputs: &[&LogicalTensor],
    ) -> Result<Self> {
        let refuse = |fault| Error::Compile { partition: partition.id(), fault };
        let group = ShapedGroup::new(partition, inputs, outputs)?;
        let resolved = resolved_outputs(&group, inputs, outputs).map_err(refuse)?;
        for (output, (dims, strides)) in outputs.iter().zip(&resolved) {
            if shape::span(dims, strides).is_none_or(|span| span > MAX_ELEMENTS) {
                return Err(refuse(CompileFault::TooLarge { tensor: output.id(), dims: dims.clone() }));
            }
        }
        let written = vec![None; resolved.len()];
        Ok(Self { partition, group, inputs, resolved, written })
    }

    /// As [`new`](Self::new), but a value that only moves separate from an output is written to the output by
    /// strides. The value takes the place of the output in the group.
    pub(super) fn with_moves_as_strides(mut self) -> Self {
        for output in 0..self.written.len() {
            let mut strides = self.resolved[output].1.clone();
            while let Some((from, of_from)) = self.group.written_as(self.group.outputs[output], &strides) {
                self.group.outputs[output] = from;
                strides = of_from;
                self.written[output] = Some(strides.clone());
            }
        }
        self
    }

    /// True if a pair of ports may share memory: the output has the elements where the group computes them.
    pub(super) fn keeps_places(&self, pair: &InPlacePorts) -> bool {
        self.written[pair.output - self.inputs.len()].is_none()
    }

    /// The most bytes that are read of a cache in pages, however large it is: those that the tables of its
    /// loads can name; `usize::MAX` for what no load reads.
    pub(super) fn bytes_of_loads(&self, cache: ValueId) -> usize {
        let ops = self.partition.ops();
        let is_load = |anchor: &&Anchor| {
            ops[anchor.op].kind() == OpKind::PagedLoad && anchor.inputs.first() == Some(&cache)
        };
        let loads = self.group.anchors.iter().filter(is_load);
        let bytes = loads.map(|load| self.group.values[load.outputs[0]].bytes());
        bytes.reduce(usize::saturating_add).unwrap_or(usize::MAX)
    }

    /// The strides of all inputs, then those by which outputs are written.
    pub(super) fn ports(&self) -> Vec<&[i64]> {
        let mut ports = port_strides(self.inputs, &self.resolved);
        let written = ports[self.inputs.len()..].iter_mut().zip(&self.written);
        written.for_each(|(port, written)| *port = written.as_deref().unwrap_or(port));
        ports
    }
}
