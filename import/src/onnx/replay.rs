//! The walk through the nodes of a graph for another set of shapes, as it went for the last one.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sterna::Dims;

use super::ops;
use super::order::WantedNodes;
use super::proto::{GraphText, ValueInfo};
use super::reader::{ModelReader, Scope};
use crate::builder::Imported;
use crate::builder::finished::FinishedGraph;
use crate::builder::kept::KeptNodes;
use crate::builder::walk::{KeptWalk, Replay, WalkStep};
use crate::error::Error;

/// The parts of a reading that the next set of shapes takes over.
#[derive(Debug, Default)]
pub(super) struct KeptReading {
    pub(super) nodes: KeptNodes,
    /// The walk through all nodes, if each was mapped on its own, and the graph that came of it.
    pub(super) walk: Option<(KeptWalk, FinishedGraph)>,
}

/// The graph of what was read node by node.
pub(super) fn finished(reader: ModelReader<'_>) -> Result<(Imported, KeptReading), Error> {
    let ModelReader { builder, kept: mut nodes, ended, .. } = reader;
    let graph = builder.finish(&mut nodes.ops)?;
    Ok(match ended {
        Some(walk) => (graph.imported().clone(), KeptReading { nodes, walk: Some((walk, graph)) }),
        None => (graph.into_imported(), KeptReading { nodes, walk: None }),
    })
}

/// A walk that has gone all its way again.
pub(super) struct Replayed {
    replay: Replay,
    steps: Vec<WalkStep>,
    holds: bool,
}

impl Replayed {
    /// The graph of what was read, of which the last one is known.
    pub(super) fn finished(
        self,
        reader: ModelReader<'_>,
        before: FinishedGraph,
    ) -> Result<(Imported, KeptReading), Error> {
        let (Self { replay, steps, holds }, ModelReader { builder, kept: mut nodes, .. }) = (self, reader);
        let (walk, graph) = match before.again(&builder, &replay) {
            Some(graph) => (replay.end(steps, builder.into_parts(), holds), graph),
            None => {
                let walk = replay.end(steps, builder.parts(), holds);
                (walk, builder.finish(&mut nodes.ops)?)
            }
        };
        Ok((graph.imported().clone(), KeptReading { nodes, walk: Some((walk, graph)) }))
    }
}

impl<'a> ModelReader<'a> {
    /// Adds what a walk has added, with the nodes mapped anew that are given something else. `None` if that
    /// is not all: the nodes then have to be mapped one by one, which also says what is wrong with them.
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
        let (mut replay, mut steps) = Replay::new(walk, &mut self.builder)?;
        let (none, absent) = (BTreeMap::new(), BTreeSet::new());
        let (tensors, declared, opsets) = (HashMap::new(), HashMap::new(), &*self.model.opsets);
        // A node that is mapped on its own asks for no names.
        let scope = Scope { tensors, absent, opsets, attributes: &none, declared, holds, depth: 0 };
        let described: Vec<&ValueInfo> = graph.described().collect();
        for step in &mut steps {
            let info = wanted.described[step.node].map(|place| described[place]);
            let declared: Option<Dims> = info.and_then(|info| self.declared_dims(info, holds));
            if replay.again(step, &declared, &mut self.builder) {
                continue;
            }
            let from = self.builder.mark();
            let call = self.called_as(&graph.nodes[step.node], &step.inputs, &scope, declared.clone());
            let outputs = call.and_then(ops::map).ok()?;
            self.kept.mapped += 1;
            if !replay.anew(step, declared, (from, &outputs), &self.builder) {
                return None;
            }
        }
        Some(Replayed { replay, steps, holds })
    }
}
