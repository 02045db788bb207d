//! The order in which nodes run, and those that need not run.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::proto::{GraphText, NodeText};
use crate::error::Fault;
use crate::run_order::run_order;

/// The part of a list of nodes on which the outputs depend.
pub(super) struct Wanted<'a> {
    /// The places of the nodes, each behind those that make what it uses; in the order of the file otherwise.
    /// The nodes of a cycle, and those behind it, come last.
    pub(super) nodes: Vec<usize>,
    /// The names of all tensors on which something hangs.
    pub(super) names: BTreeSet<&'a str>,
}

/// As [`Wanted`], for the outputs of a graph, with names of its own.
#[derive(Debug)]
pub(super) struct WantedNodes {
    pub(super) nodes: Vec<usize>,
    pub(super) names: BTreeSet<String>,
    /// The names of the constants.
    pub(super) constants: BTreeSet<String>,
    /// For each node, the place of its first result among the tensors that the graph describes.
    pub(super) described: Vec<Option<usize>>,
}

impl WantedNodes {
    pub(super) fn of(graph: &GraphText) -> Self {
        let Wanted { nodes, names } = wanted(&graph.nodes, graph.outputs.iter().map(|output| &*output.name));
        let constants = graph.initializers.iter().map(|text| text.name.clone()).collect();
        // Of several descriptions the last one counts.
        let places: HashMap<&str, usize> =
            graph.described().enumerate().map(|(place, info)| (&*info.name, place)).collect();
        let first = |node: &NodeText| places.get(&**node.outputs.first()?).copied();
        let described = graph.nodes.iter().map(first).collect();
        Self { nodes, names: names.into_iter().map(str::to_owned).collect(), constants, described }
    }
}

/// The nodes on which some tensors hang, and their order.
pub(super) fn wanted<'a>(nodes: &'a [NodeText], outputs: impl Iterator<Item = &'a str>) -> Wanted<'a> {
    let mut makers: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, node) in nodes.iter().enumerate() {
        for output in node.outputs.iter().filter(|output| !output.is_empty()) {
            makers.entry(output).or_default().push(index);
        }
    }
    let mut names: BTreeSet<&str> = outputs.collect();
    let mut open: Vec<&str> = names.iter().copied().collect();
    // The names that each node uses, for those on which something hangs.
    let mut used: Vec<Option<BTreeSet<&str>>> = vec![None; nodes.len()];
    while let Some(name) = open.pop() {
        for &index in makers.get(name).into_iter().flatten() {
            if used[index].is_some() {
                continue;
            }
            let mut of_node = BTreeSet::new();
            mentioned(&nodes[index], &mut of_node);
            open.extend(of_node.iter().copied().filter(|name| names.insert(name)));
            used[index] = Some(of_node);
        }
    }
    let makers_of = |of_node: &BTreeSet<&str>| -> BTreeSet<usize> {
        of_node.iter().filter_map(|name| makers.get(name)).flatten().copied().collect()
    };
    let needs: Vec<Option<BTreeSet<usize>>> =
        used.iter().map(|of_node| of_node.as_ref().map(makers_of)).collect();
    let mut order = run_order(&needs);
    let ordered: BTreeSet<usize> = order.iter().copied().collect();
    order.extend((0..nodes.len()).filter(|index| needs[*index].is_some() && !ordered.contains(index)));
    Wanted { nodes: order, names }
}

/// Adds the names of the tensors that a node and the graphs in its attributes use.
fn mentioned<'a>(node: &'a NodeText, names: &mut BTreeSet<&'a str>) {
    names.extend(node.inputs.iter().map(|name| &**name).filter(|name| !name.is_empty()));
    for graph in node.attributes.iter().filter_map(|attribute| attribute.graph.as_ref()) {
        names.extend(graph.outputs.iter().map(|output| &*output.name));
        graph.nodes.iter().for_each(|node| mentioned(node, names));
    }
}

/// A tensor of which no node before has the name, and the node among these that makes it behind, or by, the
/// one that uses it.
pub(super) fn unmade(tensor: &str, nodes: &[NodeText]) -> Fault {
    let makes = |node: &&NodeText| node.outputs.iter().any(|output| output == tensor);
    let made_by = nodes.iter().find(makes).and_then(NodeText::shown_name).map(String::from);
    Fault::Unmade { tensor: tensor.into(), made_by }
}
