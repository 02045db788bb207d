//! Nodes with graphs in their attributes: what the graphs become, in the surroundings of the node.

use std::collections::HashMap;

use sterna::{DataType, Direction, TensorId};

use super::order::{unmade, wanted};
use super::proto::{Attribute, GraphText, NodeText, ValueInfo};
use super::reader::{DEEPEST_CALL, ModelReader, Scope, opset};
use super::{ops, tensors};
use crate::compose::resolved_axes;
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
            self.count_turn(names)?;
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
        for parts in scans {
            let is_wanted = node.outputs.get(outputs.len()).is_some_and(|name| !name.is_empty());
            if !is_wanted {
                outputs.extend(spare);
                continue;
            }
            outputs.push(stacked(&mut call, parts, Scanned { axis: 0, is_backward: false })?);
        }
        Ok(outputs)
    }

    /// A scan: its body, once for each slice along an axis of its inputs.
    pub(super) fn scanned(
        &mut self,
        node: &'a NodeText,
        inputs: &[Option<TensorId>],
        scope: &Scope<'a, '_>,
    ) -> Result<Vec<TensorId>, Fault> {
        let needed = |needed: &str| Fault::Unsupported { needed: needed.into() };
        let body = graph(node, "body").ok_or(Fault::MissingAttribute { attribute: "body" })?;
        if opset(scope).is_none_or(|opset| opset < 9) {
            return Err(needed("opset 9 or later, whose scans have no batch"));
        }
        let given: Option<Vec<TensorId>> = inputs.iter().copied().collect();
        let given = given.ok_or_else(|| needed("no gap among the inputs"))?;
        let count = attribute(node, "num_scan_inputs").and_then(|count| usize::try_from(count.int).ok());
        let states = count.filter(|&count| count > 0).and_then(|count| given.len().checked_sub(count));
        let states = states.ok_or_else(|| needed("`num_scan_inputs` from 1 to the number of inputs"))?;
        if body.inputs.len() != given.len()
            || body.outputs.len() < states
            || node.outputs.len() > body.outputs.len()
        {
            return Err(needed("a body with an input for each of the node, and an output for each state"));
        }
        let (mut carried, scanned) = (given[..states].to_vec(), &given[states..]);
        let ranks: Option<Vec<usize>> =
            scanned.iter().map(|&input| Some(self.builder.dims(input)?.len())).collect();
        let ranks = ranks.ok_or_else(|| needed("known dims of the inputs that are scanned"))?;
        let from = Scanned::of(node, ["scan_input_axes", "scan_input_directions"], &ranks)?;
        let mut turns = Vec::new();
        for (&input, along) in scanned.iter().zip(&from) {
            let dims = self.builder.known_dims(input);
            turns.push(dims.ok_or_else(|| needed("known dims of the inputs that are scanned"))?[along.axis]);
        }
        if turns.iter().any(|&length| length != turns[0]) || turns[0] == 0 {
            return Err(needed("inputs of one length, from 1 on, along the axes that are scanned"));
        }
        let names = wanted(&body.nodes, body.outputs.iter().map(|output| &*output.name)).names.len();
        let mut parts: Vec<Vec<TensorId>> = vec![Vec::new(); body.outputs.len() - states];
        for turn in 0..turns[0] {
            self.count_turn(names)?;
            let mut call = self.called(node, inputs, scope)?;
            let slices = scanned.iter().zip(&from);
            let slices = slices.map(|(&input, along)| along.slice(&mut call, input, turn));
            let slices = slices.collect::<Result<Vec<TensorId>, Fault>>()?;
            let results = self.body(body, &[&carried[..], &slices].concat(), scope)?;
            let (next, of_turn) = results.split_at(states);
            parts.iter_mut().zip(of_turn).for_each(|(of_turns, result)| of_turns.push(*result));
            carried = next.to_vec();
        }
        let rank = |parts: &Vec<TensorId>| self.builder.dims(parts[0]).map_or(0, <[i64]>::len) + 1;
        let ranks: Vec<usize> = parts.iter().map(rank).collect();
        let to = Scanned::of(node, ["scan_output_axes", "scan_output_directions"], &ranks)?;
        let mut call = self.called(node, inputs, scope)?;
        let mut outputs = carried;
        for (parts, along) in parts.into_iter().zip(to) {
            outputs.push(stacked(&mut call, parts, along)?);
        }
        Ok(outputs)
    }

    /// Counts a turn of a body, which looks up its names; they may be many more than its nodes.
    fn count_turn(&mut self, names: usize) -> Result<(), Fault> {
        self.calls = self.calls.saturating_add(1 + names);
        let (given, most) = (self.calls as u64, self.options.limits.layers as u64);
        if given > most { Err(Fault::Limit { what: Limited::Layers, given, most }) } else { Ok(()) }
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

/// The axis along which a scan takes a tensor apart or puts one together, and the direction.
#[derive(Clone, Copy)]
struct Scanned {
    axis: usize,
    is_backward: bool,
}

impl Scanned {
    /// Those of tensors of some ranks, by the attributes of axes and of directions.
    fn of(
        node: &NodeText,
        [axes, directions]: [&'static str; 2],
        ranks: &[usize],
    ) -> Result<Vec<Self>, Fault> {
        let list =
            |name: &'static str| match attribute(node, name).map_or(&[][..], |attribute| &attribute.ints) {
                [] => Ok(vec![0; ranks.len()]),
                list if list.len() == ranks.len() => Ok(list.to_vec()),
                _ => Err(Fault::of_attribute(name, "a number for each tensor")),
            };
        let directed = list(axes)?.into_iter().zip(list(directions)?).zip(ranks);
        let along = |((axis, direction), &rank)| {
            let axis = resolved_axes(&[axis], rank).map(|axes| axes[0]);
            match axis {
                None => Err(Fault::of_attribute(axes, "an axis of each tensor")),
                Some(axis) if (0..=1).contains(&direction) => Ok(Self { axis, is_backward: direction == 1 }),
                Some(_) => Err(Fault::of_attribute(directions, "0 or 1 for each tensor")),
            }
        };
        directed.map(along).collect()
    }

    /// The slice of a turn, without the axis.
    fn slice(self, call: &mut ops::Call<'_, '_>, input: TensorId, turn: i64) -> Result<TensorId, Fault> {
        let length = call.steps.dims(input)?[self.axis];
        let place = if self.is_backward { length - 1 - turn } else { turn };
        call.steps.slice(input, self.axis, place)
    }
}

/// The results of turns, side by side along a new axis.
fn stacked(
    call: &mut ops::Call<'_, '_>,
    mut parts: Vec<TensorId>,
    along: Scanned,
) -> Result<TensorId, Fault> {
    if parts.is_empty() {
        return Err(Fault::Unsupported { needed: "a turn, whose results have a shape".into() });
    }
    for part in &mut parts {
        let mut dims = call.steps.dims(*part)?;
        dims.insert(along.axis, 1);
        *part = call.steps.in_shape(*part, &dims)?;
    }
    if along.is_backward {
        parts.reverse();
    }
    call.steps.joined(parts, along.axis)
}

fn attribute<'a>(node: &'a NodeText, name: &str) -> Option<&'a Attribute> {
    node.attributes.iter().find(|attribute| attribute.name == name)
}

fn graph<'a>(node: &'a NodeText, name: &str) -> Option<&'a GraphText> {
    attribute(node, name)?.graph.as_ref()
}
