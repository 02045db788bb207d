//! The graph of a builder that has all ops, and one that differs from the last in what a walk has changed.

use std::collections::{BTreeMap, BTreeSet};

use sterna::{Graph, LogicalTensor, Op, OpId, OpKind, TensorId};

use super::walk::Replay;
use super::{Builder, Imported, Origin, Port, Tensor, fills, gelu, renumbered};
use crate::constant::Constant;
use crate::error::Error;
use crate::skipped::SkippedLayer;
use crate::weights;

/// A graph, and where its ops come from.
#[derive(Debug)]
pub(crate) struct FinishedGraph {
    imported: Imported,
    /// For each op, the place among those of the builder from which it was made, if it was.
    sources: Vec<Option<usize>>,
    /// The number of tensors that the builder had.
    tensors: usize,
    /// True if no op was added that gives a tensor of its own, but for numbers.
    is_plain: bool,
}

impl Builder<'_> {
    /// The graph without the ops that no output needs, with the ops of the last graph for those that are the
    /// same. Each stands behind the one from which it was made, which had another number.
    pub(crate) fn finish(mut self, kept: &mut Vec<(Op, Op)>) -> Result<FinishedGraph, Error> {
        let (count, places) = (self.tensors.len(), self.ops.len());
        let tensors = &self.tensors;
        gelu::merge(&mut self.ops, &self.erfs, |id| {
            let value = tensors[id.get()].value()?;
            weights::one_float(value).filter(|_| Some(value.bytes().len()) == value.data_type().size())
        });
        self.fold_norms()?;
        let with_constants = self.tensors.len();
        self.give_outputs_ops()?;
        let ops = self.live_ops();
        let mut ops = self.dequantised_apart(ops)?;
        let is_plain = self.tensors.len() == with_constants;
        self.numbers_apart(&mut ops)?;
        let used = self.marked(ops.iter().flat_map(Op::inputs).map(LogicalTensor::id));
        let given: BTreeSet<TensorId> = self.outputs.iter().map(|(_, id)| *id).collect();

        let mut graph = Graph::new();
        let mut next = ops.len();
        for id in (0..used.len()).filter(|&id| used[id]).map(TensorId::new) {
            if let Origin::Number(number, _) = &self.tensors[id.get()].origin {
                let name = self.constant_names.get(&id).map_or("", String::as_str);
                graph.add_op(fills::fill(next, *number, self.describe(id)?).named(name))?;
                next += 1;
            }
        }
        let mut skipped_layers = BTreeMap::new();
        let (fills, mut made_of) = (graph.ops().len(), Vec::with_capacity(ops.len()));
        for (index, op) in ops.into_iter().enumerate() {
            let id = OpId::new(index);
            skipped_layers.extend(self.skipped_layers.remove(&op.id()).map(|layer| (id, layer)));
            let again = kept.get(index).filter(|(from, made)| made.id() == id && *from == op);
            let made = match again {
                Some((_, made)) => made.clone(),
                None => renumbered(&op, id, op.inputs().to_vec()),
            };
            graph.add_op(made)?;
            made_of.push(op);
        }
        let source = |op: &Op| Some(op.id().get()).filter(|&place| place < places);
        let mut sources: Vec<Option<usize>> = vec![None; fills];
        sources.extend(made_of.iter().map(source));
        *kept = made_of.into_iter().zip(graph.ops()[fills..].iter().cloned()).collect();
        // Of a tensor that ops use, only an op of this kind says that it is wanted outside as well.
        for &id in given.iter().filter(|id| used[id.get()]) {
            graph.add_op(Op::new(next, OpKind::End).input(self.describe(id)?))?;
            next += 1;
        }
        graph.finalize()?;
        sources.resize(graph.ops().len(), None);
        let port = |(names, id): &(Vec<String>, TensorId)| -> Result<Port, Error> {
            Ok(Port { names: names.clone(), tensor: self.describe(*id)? })
        };
        let inputs = self.inputs.iter().map(port).collect::<Result<_, _>>()?;
        let default = |(id, name): (&TensorId, &String)| Ok((name.clone(), self.describe(*id)?));
        let defaults = self.defaults.iter().map(default).collect::<Result<_, Error>>()?;
        let outputs = self.outputs.iter().map(port).collect::<Result<_, _>>()?;
        let weight = |(index, tensor): (usize, Tensor)| match (TensorId::new(index), tensor.origin) {
            (id, Origin::Constant(value)) if used[index] => Some((id, value)),
            _ => None,
        };
        let weights: BTreeMap<TensorId, Constant> =
            self.tensors.into_iter().enumerate().filter_map(weight).collect();
        let mut weight_names = self.constant_names;
        weight_names.retain(|id, _| weights.contains_key(id));
        let kind = |(id, layer): (&OpId, &SkippedLayer)| (*id, layer.kind.clone());
        let skipped_kinds = skipped_layers.iter().map(kind).collect();
        let imported = Imported {
            graph,
            inputs,
            defaults,
            outputs,
            weights,
            weight_names,
            skipped_kinds,
            skipped_layers,
            skipped: self.skipped,
        };
        Ok(FinishedGraph { imported, sources, tensors: count, is_plain })
    }
}

impl FinishedGraph {
    /// The graph of a walk that went the same way. `None` if other ops may come of it.
    pub(crate) fn again(self, builder: &Builder<'_>, replay: &Replay) -> Option<Self> {
        let Self { imported, sources, tensors, is_plain } = self;
        if !is_plain || !replay.keeps_structure() || tensors != builder.tensors.len() {
            return None;
        }
        let is_changed = |id: TensorId| replay.is_tensor_changed(id);
        let made = |index: usize, op: &Op| -> Option<Op> {
            let source = sources[index];
            let is_op = source.is_some_and(|source| replay.is_op_changed(source));
            let mut ports = op.inputs().iter().chain(op.outputs());
            if !is_op && !ports.any(|tensor| is_changed(tensor.id())) {
                return None;
            }
            let tensor = |tensor: &LogicalTensor| match builder.tensors.get(tensor.id().get()) {
                Some(_) => builder.describe(tensor.id()).unwrap_or_else(|_| tensor.clone()),
                // A number that the op has of its own.
                None => tensor.clone(),
            };
            let said = source.map(|source| &builder.ops[source]).filter(|said| said.kind() == op.kind());
            let attrs = said.unwrap_or(op).attrs();
            let same = Op::new(op.id(), op.kind()).named(op.name());
            let same = attrs.fold(same, |same, (attr, value)| same.attr(attr, value.clone()));
            Some(
                same.inputs_from(op.inputs().iter().map(tensor))
                    .with_outputs(op.outputs().iter().map(tensor)),
            )
        };
        let graph = imported.graph.exchanged(made).ok()?;
        let mut again = Imported { graph, ..imported };
        let describe =
            |port: &mut Port| builder.describe(port.tensor.id()).map(|tensor| port.tensor = tensor);
        again.inputs.iter_mut().chain(&mut again.outputs).try_for_each(describe).ok()?;
        for (id, value) in &mut again.weights {
            match builder.tensors.get(id.get()) {
                Some(Tensor { origin: Origin::Constant(now), .. }) if is_changed(*id) => *value = now.clone(),
                _ => {}
            }
        }
        Some(Self { imported: again, sources, tensors, is_plain })
    }

    pub(crate) fn imported(&self) -> &Imported {
        &self.imported
    }

    pub(crate) fn into_imported(self) -> Imported {
        self.imported
    }
}
