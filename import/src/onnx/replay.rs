//! The walk through the nodes of a graph for another set of shapes, as it went for the last one.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sterna::{Dims, TensorId};

use super::ops;
use super::order::WantedNodes;
use super::proto::{GraphText, ValueInfo};
use super::reader::{ModelReader, Scope};
use crate::builder::Builder;
use crate::builder::reading::{NodeReader, Replayed};
use crate::builder::walk::{KeptWalk, WalkStep};
use crate::error::Fault;

/// The nodes of a graph that are mapped on their own.
struct GraphNodes<'r, 'a> {
    reader: &'r mut ModelReader<'a>,
    graph: &'a GraphText,
    wanted: &'r WantedNodes,
    /// The tensors that the graph describes.
    described: Vec<&'a ValueInfo>,
    /// True if the dims that the file declares hold.
    holds: bool,
}

impl<'a> NodeReader<'a> for GraphNodes<'_, 'a> {
    fn builder(&mut self) -> &mut Builder<'a> {
        &mut self.reader.builder
    }

    fn declared_dims_of(&self, node: usize) -> Option<Dims> {
        let info = self.wanted.described[node].map(|place| self.described[place]);
        info.and_then(|info| self.reader.declared_dims(info, self.holds))
    }

    fn map_anew(&mut self, step: &WalkStep, declared: Option<Dims>) -> Result<Vec<TensorId>, Fault> {
        let (none, opsets, holds) = (BTreeMap::new(), &*self.reader.model.opsets, self.holds);
        let (tensors, of_file, absent) = (HashMap::new(), HashMap::new(), BTreeSet::new());
        // A node that is mapped on its own asks for no names.
        let scope = Scope { tensors, absent, opsets, attributes: &none, declared: of_file, holds, depth: 0 };
        self.reader.kept.mapped += 1;
        let node = &self.graph.nodes[step.node];
        self.reader.called_as(node, &step.inputs, &scope, declared).and_then(ops::map)
    }
}

impl<'a> ModelReader<'a> {
    /// Adds what a walk has added; `None` if that is not all.
    pub(super) fn replayed(
        &mut self,
        graph: &'a GraphText,
        wanted: &WantedNodes,
        walk: KeptWalk,
    ) -> Option<Replayed> {
        self.note_lengths(graph).ok()?;
        let holds = self.shapes_agree(graph);
        if holds != walk.holds {
            return None;
        }
        for info in &graph.inputs {
            if !self.is_constant(info, wanted) {
                self.input(info, wanted.names.contains(&*info.name)).ok()?;
            }
        }
        self.builder.check_used(self.options, |name| self.used.contains(name)).ok()?;
        let described = graph.described().collect();
        Replayed::walked(walk, &mut GraphNodes { reader: self, graph, wanted, described, holds })
    }
}
