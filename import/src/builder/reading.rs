//! The reading of a model for one set of shapes, and what the next one takes over of it.

use sterna::{Dims, TensorId};

use super::finished::FinishedGraph;
use super::kept::KeptNodes;
use super::walk::{KeptWalk, Replay, WalkStep};
use super::{Builder, Imported};
use crate::error::{Error, Fault};

/// The parts of a reading that the next set of shapes takes over.
#[derive(Debug, Default)]
pub(crate) struct KeptReading {
    pub(crate) nodes: KeptNodes,
    /// The walk through all nodes, if each was mapped on its own, and the graph that came of it.
    pub(crate) walk: Option<(KeptWalk, FinishedGraph)>,
}

/// The graph of what was read node by node.
pub(crate) fn finished(
    builder: Builder<'_>,
    mut nodes: KeptNodes,
    ended: Option<KeptWalk>,
) -> Result<(Imported, KeptReading), Error> {
    let graph = builder.finish(&mut nodes.ops)?;
    Ok(match ended {
        Some(walk) => (graph.imported().clone(), KeptReading { nodes, walk: Some((walk, graph)) }),
        None => (graph.into_imported(), KeptReading { nodes, walk: None }),
    })
}

/// A reader of a format, as a walk goes through its nodes once more.
pub(crate) trait NodeReader<'b> {
    fn builder(&mut self) -> &mut Builder<'b>;

    /// The dims that the file declares of the first result of a node, if they hold.
    fn declared_dims_of(&self, node: usize) -> Option<Dims>;

    /// Maps a node on its own: the tensors at its outputs.
    fn map_anew(&mut self, step: &WalkStep, declared: Option<Dims>) -> Result<Vec<TensorId>, Fault>;
}

/// A walk that has gone all its way again.
pub(crate) struct Replayed {
    replay: Replay,
    steps: Vec<WalkStep>,
    holds: bool,
}

impl Replayed {
    /// Adds what a walk has added to a builder that has the inputs, with the nodes mapped anew that are given
    /// something else. `None` if that is not all: the nodes then have to be mapped one by one, which also
    /// says what is wrong with them.
    pub(crate) fn walked<'b>(walk: KeptWalk, reader: &mut impl NodeReader<'b>) -> Option<Self> {
        let holds = walk.holds;
        let (mut replay, mut steps) = Replay::new(walk, reader.builder())?;
        for step in &mut steps {
            let declared = reader.declared_dims_of(step.node);
            if replay.again(step, &declared, reader.builder()) {
                continue;
            }
            let from = reader.builder().mark();
            let outputs = reader.map_anew(step, declared.clone()).ok()?;
            if !replay.anew(step, declared, (from, &outputs), reader.builder()) {
                return None;
            }
        }
        Some(Self { replay, steps, holds })
    }

    /// The graph of what was read, of which the last one is known.
    pub(crate) fn finished(
        self,
        builder: Builder<'_>,
        mut nodes: KeptNodes,
        before: FinishedGraph,
    ) -> Result<(Imported, KeptReading), Error> {
        let Self { replay, steps, holds } = self;
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
