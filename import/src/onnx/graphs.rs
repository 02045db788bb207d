//! Nodes with graphs in their attributes: what the graphs become, in the surroundings of the node.

use std::collections::HashMap;

use sterna::{DataType, Direction, TensorId};

use super::order::{unmade, wanted};
use super::proto::{GraphText, NodeText, ValueInfo};
use super::reader::{DEEPEST_CALL, ModelReader, Scope};
use super::{ops, tensors};
use crate::constant::Constant;
use crate::error::{Error, Fault, Limited, PortRef};
use crate::weights::{element_count, integers};

impl<'a> ModelReader<'a> {
    /// Attention with graphs that change its scores and its shares.
    pub(super) fn flex_attention(
        &mut self,
        node: &'a NodeText,
        inputs: &[Option<TensorId>],
        scope: &Scope<'a, '_>,
    ) -> Result<Vec<TensorId>, Fault> {
        let (of_scores, of_shares) = (graph(node, "score_mod"), graph(node, "prob_mod"));
        let whole = of_scores.is_some() || of_shares.is_some();
        let mut flex = ops::FlexAttention::new(&mut self.called(node, inputs, scope)?, whole)?;
        if let Some(graph) = of_scores {
            flex.scores = self.changed(graph, flex.scores, scope)?;
        }
        flex.softmax(&mut self.called(node, inputs, scope)?)?;
        if let Some(graph) = of_shares {
            flex.scores = self.changed(graph, flex.scores, scope)?;
        }
        flex.result(&mut self.called(node, inputs, scope)?).map(|result| vec![result])
    }

    /// The result of a graph of one input on a tensor.
    fn changed(
        &mut self,
        graph: &'a GraphText,
        tensor: TensorId,
        outer: &Scope<'a, '_>,
    ) -> Result<TensorId, Fault> {
        let one = |what: &'static str| Fault::Unsupported { needed: format!("a graph with one {what}") };
        if graph.inputs.len() != 1 {
            return Err(one("input"));
        }
        let [result] = self.body(graph, &[tensor], outer)?[..] else { return Err(one("output")) };
        let (given, needed) = (self.builder.known_dims(result), self.builder.known_dims(tensor));
        if given != needed || self.builder.data_type(result) != self.builder.data_type(tensor) {
            return Err(Fault::Unsupported { needed: "a graph that keeps shape and type".into() });
        }
        Ok(result)
    }

    /// The outputs of a graph, of tensors at its inputs. The names around the node are known within as well.
    fn body(
        &mut self,
        graph: &'a GraphText,
        inputs: &[TensorId],
        outer: &Scope<'a, '_>,
    ) -> Result<Vec<TensorId>, Fault> {
        if outer.depth == DEEPEST_CALL {
            let (given, most) = (DEEPEST_CALL as u64 + 1, DEEPEST_CALL as u64);
            return Err(Fault::Limit { what: Limited::Depth, given, most });
        }
        let wanted = wanted(&graph.nodes, graph.outputs.iter().map(|output| &*output.name));
        let known = |name: &&'a str| Some((*name, *outer.tensors.get(name)?));
        let mut tensors: HashMap<&str, TensorId> = wanted.names.iter().filter_map(known).collect();
        tensors.extend(graph.inputs.iter().zip(inputs).map(|(info, tensor)| (&*info.name, *tensor)));
        for text in graph.initializers.iter().filter(|text| wanted.names.contains(&*text.name)) {
            let value = tensors::value(text, self.files, &mut self.builder)?;
            let tensor = self.builder.constant(value)?;
            self.builder.name_constant(tensor, &text.name);
            tensors.insert(&text.name, tensor);
        }
        let (absent, declared) = (outer.absent.clone(), HashMap::new());
        let (opsets, attributes, depth) = (outer.opsets, outer.attributes, outer.depth + 1);
        let mut scope = Scope { tensors, absent, opsets, attributes, declared, holds: true, depth };
        self.nodes(&graph.nodes, &wanted.nodes, &mut scope).map_err(|error| match error {
            Error::Layer { fault, .. } => *fault,
            Error::Limit { what, given, most } => Fault::Limit { what, given, most },
            _ => Fault::Unsupported { needed: "a well-formed graph in the attribute".into() },
        })?;
        let result = |info: &'a ValueInfo| {
            scope.tensors.get(&*info.name).copied().ok_or_else(|| unmade(&info.name, &[]))
        };
        graph.outputs.iter().map(result).collect()
    }

    /// The results of one of two branches: of the one that a condition chooses if it is known when the model
    /// is read, else of an op that chooses between the results of both.
    pub(super) fn branched(
        &mut self,
        node: &'a NodeText,
        inputs: &[Option<TensorId>],
        scope: &Scope<'a, '_>,
    ) -> Result<Vec<TensorId>, Fault> {
        let port = PortRef { direction: Direction::Input, id: 0, name: "cond" };
        let &[Some(cond)] = inputs else {
            let (direction, given) = (Direction::Input, inputs.len());
            return Err(Fault::PortCount { direction, given, needed: "1".into() });
        };
        let is_known = self.builder.value(cond).is_some();
        let takes_then = is_known && self.known(port, cond)? != 0;
        let mut results: Vec<Vec<TensorId>> = Vec::new();
        for (attribute, is_taken) in [("then_branch", takes_then), ("else_branch", !takes_then)] {
            if is_known && !is_taken {
                continue;
            }
            let branch = graph(node, attribute).ok_or(Fault::MissingAttribute { attribute })?;
            if branch.outputs.len() < node.outputs.len() {
                let needed = "branches with an output for each of the node".into();
                return Err(Fault::Unsupported { needed });
            }
            // A branch that does not fit is one that the condition is to leave out.
            let not_chosen = |fault: Fault| match fault {
                Fault::Limit { .. } => fault,
                _ if is_known => fault,
                _ => Fault::NotConstant {
                    port,
                    needed: format!("a constant, since `{attribute}` cannot be computed: {fault}"),
                },
            };
            results.push(self.body(branch, &[], scope).map_err(not_chosen)?);
        }
        let [then, other] = &results[..] else { return Ok(results.pop().unwrap_or_default()) };
        let unfit = || {
            let needed = "a constant, or branches whose results have one type and one known shape";
            Fault::NotConstant { port, needed: needed.into() }
        };
        let describe =
            |tensor: TensorId| Some((self.builder.data_type(tensor), self.builder.known_dims(tensor)?));
        let mut pairs = then.iter().zip(other);
        if self.builder.data_type(cond) != DataType::Boolean
            || self.builder.known_dims(cond).and_then(element_count) != Some(1)
            || pairs.any(|(then, other)| describe(*then).is_none() || describe(*then) != describe(*other))
        {
            return Err(unfit());
        }
        let mut call = self.called(node, inputs, scope)?;
        let cond = call.steps.in_shape(cond, &[])?;
        then.iter().zip(other).map(|(then, other)| call.steps.select(cond, *then, *other)).collect()
    }

    /// A loop whose number of turns, if it has one, and whose condition are known when the model is read: its
    /// body, one turn after the other.
    pub(super) fn unrolled(
        &mut self,
        node: &'a NodeText,
        inputs: &[Option<TensorId>],
        scope: &Scope<'a, '_>,
    ) -> Result<Vec<TensorId>, Fault> {
        let needed = |needed: &str| Fault::Unsupported { needed: needed.into() };
        let body = graph(node, "body").ok_or(Fault::MissingAttribute { attribute: "body" })?;
        let carried: Option<Vec<TensorId>> = inputs.iter().skip(2).copied().collect();
        let mut carried = carried.ok_or_else(|| needed("no gap among the inputs"))?;
        let fits = body.inputs.len() == carried.len() + 2 && body.outputs.len() > carried.len();
        if !fits || node.outputs.len() >= body.outputs.len() {
            return Err(needed("a body with an input and an output for each tensor that is carried along"));
        }
        let turns = match inputs.first().copied().flatten() {
            Some(count) => self.known(TURNS, count)?,
            // The condition ends it, or the limit of layers does.
            None => i64::MAX,
        };
        let mut goes_on = match inputs.get(1).copied().flatten() {
            None => true,
            Some(cond) => self.known(CONDITION, cond)? != 0,
        };
        // Any tensor, in the place of a result that nobody asks for.
        let mut spare = inputs.iter().flatten().next().copied();
        let names = wanted(&body.nodes, body.outputs.iter().map(|output| &*output.name)).names.len();
        let mut scans: Vec<Vec<TensorId>> = vec![Vec::new(); body.outputs.len() - carried.len() - 1];
        let mut turn = 0i64;
        while turn < turns && goes_on {
            // A turn looks up the names of the body, which may be many more than its nodes.
            self.calls = self.calls.saturating_add(1 + names);
            let (given, most) = (self.calls as u64, self.options.limits.layers as u64);
            if given > most {
                return Err(Fault::Limit { what: Limited::Layers, given, most });
            }
            let number = self.builder.constant(Constant::from_slice(&[], &[turn])?)?;
            let truth = self.builder.constant(Constant::new(DataType::Boolean, &[], vec![1])?)?;
            let results = self.body(body, &[&[number, truth], &carried[..]].concat(), scope)?;
            goes_on = self.known(CONDITION, results[0])? != 0;
            spare = Some(results[0]);
            let (next, scanned) = results[1..].split_at(carried.len());
            scans.iter_mut().zip(scanned).for_each(|(of_turns, result)| of_turns.push(*result));
            carried = next.to_vec();
            turn += 1;
        }
        let mut call = self.called(node, inputs, scope)?;
        let mut outputs = carried;
        for mut parts in scans {
            let is_wanted = node.outputs.get(outputs.len()).is_some_and(|name| !name.is_empty());
            if !is_wanted {
                outputs.extend(spare);
                continue;
            }
            if parts.is_empty() {
                return Err(needed("a turn, whose results have a shape"));
            }
            for part in &mut parts {
                let dims = [&[1], &call.steps.dims(*part)?[..]].concat();
                *part = call.steps.in_shape(*part, &dims)?;
            }
            outputs.push(call.steps.joined(parts, 0)?);
        }
        Ok(outputs)
    }

    /// A whole number, or a truth value as 0 or 1, that is known when the model is read.
    fn known(&self, port: PortRef, tensor: TensorId) -> Result<i64, Fault> {
        let needed = "a constant; an op that counts or decides when it runs";
        let value = self.builder.value(tensor);
        let value = value.ok_or_else(|| Fault::NotConstant { port, needed: needed.into() })?;
        let number = match value.data_type() {
            DataType::Boolean => value.bytes().first().map(|byte| i64::from(*byte != 0)),
            _ => integers(value).filter(|list| list.len() == 1).map(|list| list[0]),
        };
        number.ok_or_else(|| Fault::Value { port, needed: "a whole number or a truth value".into() })
    }
}

const TURNS: PortRef = PortRef { direction: Direction::Input, id: 0, name: "M" };
const CONDITION: PortRef = PortRef { direction: Direction::Input, id: 1, name: "cond" };

fn graph<'a>(node: &'a NodeText, name: &str) -> Option<&'a GraphText> {
    let attribute = node.attributes.iter().find(|attribute| attribute.name == name);
    attribute.and_then(|attribute| attribute.graph.as_ref())
}
