//! The engine behind every fusion: grows convex groups of ops from seeds. It knows graphs, and no particular
//! op.

use rustc_hash::FxHashSet;

use super::fusions::Fusion;
use crate::error::{OpRef, Result};
use crate::graph::Graph;
use crate::graph::op::Op;
use crate::graph::row::Schema;

/// What a fusion says of an op, or of a group of ops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It takes it.
    Matched,
    /// It is not for it.
    NoMatch,
    /// It would be for it, but for a reason that the text gives.
    Rejected(&'static str),
}

/// One verdict of a fusion: the answer to "why was this not fused?".
///
/// `Graph::explain` lists them.
///
/// ```
/// use sterna::{DataType, Graph, LogicalTensor, Op, OpKind, Verdict};
/// let tensor = |id| LogicalTensor::strided(id, DataType::F32, &[8]);
/// let mut graph = Graph::new();
/// graph.add_op(Op::new(0, OpKind::Exp).input(tensor(0)?).output(tensor(1)?))?;
/// graph.add_op(Op::new(1, OpKind::SoftMax).input(tensor(1)?).output(tensor(2)?))?;
/// graph.finalize()?;
/// for line in graph.explain()? {
///     if let Verdict::Rejected(why) = line.verdict {
///         println!("{} at {}: {why}", line.fusion, line.seed);
///     }
/// }
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The fusion.
    pub fusion: &'static str,
    /// The op at which the group started.
    pub seed: OpRef,
    /// The neighbour that was held against the group; `None` where the verdict is on the seed or the whole
    /// group.
    pub neighbour: Option<OpRef>,
    /// What was decided.
    pub verdict: Verdict,
}

/// Ops that share a partition, as positions in the run order, ascending; and whether some fusion took them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) ops: Vec<usize>,
    pub(super) fusion: Option<&'static str>,
}

/// A finalized graph as the engine sees it: ops by their position in the run order, and the edges between
/// them.
///
/// A port that lends only its shape is no edge along which a group grows. Who uses it still runs later than
/// who makes it, as long as they are not in one group.
pub(super) struct Wiring<'g> {
    pub(super) ops: Vec<&'g Op>,
    producers: Vec<Vec<usize>>,
    consumers: Vec<Vec<usize>>,
    /// For each op the ones with which it shares data.
    neighbours: Vec<Vec<usize>>,
}

impl<'g> Wiring<'g> {
    pub(super) fn new(graph: &'g Graph) -> Result<Self> {
        let links = graph.links()?;
        let ops: Vec<&Op> = links.order.iter().map(|&index| &graph.ops()[index]).collect();
        let mut position = vec![0; ops.len()];
        for (at, &index) in links.order.iter().enumerate() {
            position[index] = at;
        }
        let none = || vec![Vec::new(); ops.len()];
        let (mut producers, mut consumers, mut neighbours) = (none(), none(), none());
        let link = |of: &mut Vec<Vec<usize>>, op: usize, other: usize| {
            if !of[op].contains(&other) {
                of[op].push(other);
            }
        };
        for (at, op) in ops.iter().enumerate() {
            let schema = Schema::of(op.kind());
            for (index, input) in op.inputs().iter().enumerate() {
                let Some(&producer) = links.producer.get(&input.id()) else { continue };
                let producer = position[producer];
                link(&mut producers, at, producer);
                link(&mut consumers, producer, at);
                if !schema.input(index).shape_only {
                    link(&mut neighbours, at, producer);
                    link(&mut neighbours, producer, at);
                }
            }
        }
        Ok(Self { ops, producers, consumers, neighbours })
    }

    /// Whether no path leaves the group and comes back into it, when each of the groups formed so far runs as
    /// one: a path that enters such a group leaves it from any of its ops.
    fn is_convex(&self, group: &[usize], formed: &Formed) -> bool {
        let inside: FxHashSet<usize> = group.iter().copied().collect();
        let last = formed.last_that_matters(group.iter().copied().max().unwrap_or(0));
        let leaving = group.iter().flat_map(|&op| &self.consumers[op]).filter(|op| !inside.contains(op));
        let mut outside: Vec<usize> = leaving.copied().collect();
        let mut seen = FxHashSet::default();
        while let Some(op) = outside.pop() {
            if op > last || !seen.insert(op) {
                continue;
            }
            let together = formed.group_of[op].map_or(&[][..], |group| &formed.groups[group].ops);
            outside.extend(together.iter().copied());
            for &next in &self.consumers[op] {
                if inside.contains(&next) {
                    return false;
                }
                outside.push(next);
            }
        }
        true
    }

    /// Puts the groups in an order in which they can run: the first that can, by its first op.
    pub(super) fn in_run_order(&self, mut groups: Vec<Group>) -> Vec<Group> {
        groups.sort_unstable_by_key(|group| group.ops[0]);
        let mut group_of = vec![0; self.ops.len()];
        for (index, group) in groups.iter().enumerate() {
            group.ops.iter().for_each(|&op| group_of[op] = index);
        }
        let mut waiting_for = vec![0usize; groups.len()];
        let mut next = vec![Vec::new(); groups.len()];
        for (op, producers) in self.producers.iter().enumerate() {
            for &producer in producers.iter().filter(|&&producer| group_of[producer] != group_of[op]) {
                waiting_for[group_of[op]] += 1;
                next[group_of[producer]].push(group_of[op]);
            }
        }
        let ready = (0..groups.len()).filter(|&group| waiting_for[group] == 0).map(std::cmp::Reverse);
        let mut ready: std::collections::BinaryHeap<_> = ready.collect();
        let mut order = Vec::with_capacity(groups.len());
        while let Some(std::cmp::Reverse(group)) = ready.pop() {
            order.push(group);
            for &follower in &next[group] {
                waiting_for[follower] -= 1;
                if waiting_for[follower] == 0 {
                    ready.push(std::cmp::Reverse(follower));
                }
            }
        }
        let mut groups: Vec<Option<Group>> = groups.into_iter().map(Some).collect();
        order.into_iter().filter_map(|group| groups[group].take()).collect()
    }
}

/// The groups that fusions have formed so far.
struct Formed {
    groups: Vec<Group>,
    group_of: Vec<Option<usize>>,
    /// For each place in the run order: the last op of the groups that span it.
    spanned_to: Vec<usize>,
}

impl Formed {
    fn add(&mut self, ops: Vec<usize>, fusion: Option<&'static str>) {
        ops.iter().for_each(|&op| self.group_of[op] = Some(self.groups.len()));
        if let (Some(&first), Some(&last)) = (ops.iter().min(), ops.iter().max()) {
            self.spanned_to[first..last].iter_mut().for_each(|to| *to = last.max(*to));
        }
        self.groups.push(Group { ops, fusion });
    }

    /// The last op from which a path can lead to one at or before a place: each edge leads on in the run
    /// order, but who enters a group may leave it at an earlier op.
    fn last_that_matters(&self, mut place: usize) -> usize {
        while self.spanned_to[place] > place {
            place = self.spanned_to[place];
        }
        place
    }

    fn is_taken(&self, op: usize) -> bool {
        self.group_of[op].is_some()
    }
}

/// Applies fusions in the order of the table; ops that none takes are groups of their own. Where `grow` is
/// false, no group has more than its seed.
pub(super) fn group(
    wiring: &Wiring<'_>,
    fusions: &[Fusion],
    grow: bool,
    mut explain: impl FnMut(Explanation),
) -> Vec<Group> {
    let mut formed = Formed {
        groups: Vec::new(),
        group_of: vec![None; wiring.ops.len()],
        spanned_to: vec![0; wiring.ops.len()],
    };
    for fusion in fusions {
        for (seed, &op) in wiring.ops.iter().enumerate() {
            if formed.is_taken(seed) || !(fusion.seed)(op) {
                continue;
            }
            let ops = if grow { grown(wiring, fusion, seed, &formed, &mut explain) } else { vec![seed] };
            let members: Vec<&Op> = ops.iter().map(|&op| wiring.ops[op]).collect();
            let verdict = (fusion.accept)(&members);
            if verdict == Verdict::Matched {
                formed.add(ops, Some(fusion.name));
            }
            explain(Explanation { fusion: fusion.name, seed: op.op_ref(), neighbour: None, verdict });
        }
    }
    for op in 0..wiring.ops.len() {
        if !formed.is_taken(op) {
            formed.add(vec![op], None);
        }
    }
    wiring.in_run_order(formed.groups)
}

/// Takes in neighbours, nearest first, for as long as the fusion wants one and the group stays convex.
fn grown(
    wiring: &Wiring<'_>,
    fusion: &Fusion,
    seed: usize,
    formed: &Formed,
    explain: &mut impl FnMut(Explanation),
) -> Vec<usize> {
    let mut group = vec![seed];
    // A neighbour that was refused may fit once others have joined, so each joining starts the round anew.
    let refused = loop {
        let members: Vec<&Op> = group.iter().map(|&op| wiring.ops[op]).collect();
        let mut seen: FxHashSet<usize> = group.iter().copied().collect();
        let mut refused = Vec::new();
        let mut neighbours = group.iter().flat_map(|&op| wiring.neighbours[op].iter().copied());
        let joining = neighbours.find(|&neighbour| {
            if formed.is_taken(neighbour) || !seen.insert(neighbour) {
                return false;
            }
            let verdict = match (fusion.grow)(&members, wiring.ops[neighbour]) {
                Verdict::Matched if !wiring.is_convex(&[&group[..], &[neighbour]].concat(), formed) => {
                    Verdict::Rejected("a path would leave the group and come back into it")
                }
                verdict => verdict,
            };
            let joins = verdict == Verdict::Matched;
            if !joins {
                refused.push((neighbour, verdict));
            }
            joins
        });
        match joining {
            Some(neighbour) => group.push(neighbour),
            None => break refused,
        }
    };
    for (neighbour, verdict) in refused {
        let (seed, neighbour) = (wiring.ops[seed].op_ref(), Some(wiring.ops[neighbour].op_ref()));
        explain(Explanation { fusion: fusion.name, seed, neighbour, verdict });
    }
    group.sort_unstable();
    group
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::logical_tensor::LogicalTensor;
    use crate::types::dtype::DataType;
    use crate::types::kind::OpKind;

    /// A fusion that takes every op but `Exp`, up to four of them.
    const ALL_BUT_EXP: Fusion = Fusion {
        name: "all_but_exp",
        seed: |op| op.kind() != OpKind::Exp,
        grow: |group, op| match op.kind() {
            OpKind::Exp => Verdict::NoMatch,
            _ if group.len() == 4 => Verdict::Rejected("four ops are enough"),
            _ => Verdict::Matched,
        },
        accept: |_| Verdict::Matched,
    };

    fn tensor(id: usize) -> LogicalTensor {
        LogicalTensor::strided(id, DataType::F32, &[4]).unwrap()
    }

    /// Ops as (kind, inputs, output), with their index as id.
    fn graph(ops: &[(OpKind, &[usize], usize)]) -> Graph {
        let mut graph = Graph::new();
        for (id, (kind, inputs, output)) in ops.iter().enumerate() {
            let data_type = if *kind == OpKind::GenIndex { DataType::S32 } else { DataType::F32 };
            let output = LogicalTensor::strided(*output, data_type, &[4]).unwrap();
            let mut op = Op::new(id, *kind).inputs_from(inputs.iter().map(|&id| tensor(id))).output(output);
            if *kind == OpKind::GenIndex {
                op = op.axis(0);
            }
            graph.add_op(op).unwrap();
        }
        graph.finalize().unwrap();
        graph
    }

    fn groups(graph: &Graph) -> (Vec<Vec<usize>>, Vec<Explanation>) {
        let wiring = Wiring::new(graph).unwrap();
        let mut explanations = Vec::new();
        let groups = group(&wiring, &[ALL_BUT_EXP], true, |explanation| explanations.push(explanation));
        let ids = |group: &Group| group.ops.iter().map(|&op| wiring.ops[op].id()).collect();
        (groups.iter().map(ids).collect(), explanations)
    }

    #[test]
    fn a_group_grows_along_edges_of_data() {
        use OpKind::{Abs, Add, Exp, ReLU};
        let (groups, _) =
            groups(&graph(&[(Abs, &[0], 1), (ReLU, &[1], 2), (Exp, &[2], 3), (Add, &[3, 4], 5)]));
        assert_eq!(groups, [vec![0, 1], vec![2], vec![3]]);
    }

    #[test]
    fn a_path_through_an_op_outside_keeps_two_ops_apart() {
        use OpKind::{Abs, Add, Exp};
        // Abs feeds Add both directly and through Exp: Abs and Add in one group would wait for themselves.
        let (groups, explanations) = groups(&graph(&[(Abs, &[0], 1), (Exp, &[1], 2), (Add, &[1, 2], 3)]));
        assert_eq!(groups, [vec![0], vec![1], vec![2]]);
        let rejected = explanations.iter().any(|explanation| {
            matches!(explanation.verdict, Verdict::Rejected(why) if why.contains("come back"))
                && explanation.neighbour == Some(OpRef { kind: Add, id: 2 })
        });
        assert!(rejected, "{explanations:?}");
    }

    #[test]
    fn an_op_refused_at_first_joins_once_the_path_runs_inside() {
        use OpKind::{Abs, Add, ReLU};
        let (groups, _) = groups(&graph(&[(Abs, &[0], 1), (ReLU, &[1], 2), (Add, &[1, 2], 3)]));
        assert_eq!(groups, [vec![0, 1, 2]]);
    }

    #[test]
    fn two_groups_never_wait_for_each_other() {
        use OpKind::{Abs, Add};
        // Ids 0, 1, 4 come from one place, 2, 3, 5 from another; each side uses a result of the other, and no
        // path runs through both. Grown without regard for the first group, the second would close a ring.
        let graph = graph(&[
            (Abs, &[0], 10),
            (Abs, &[10], 11),
            (Abs, &[1], 20),
            (Abs, &[20], 21),
            (Add, &[11, 20], 12),
            (Add, &[21, 10], 22),
        ]);
        let (groups, _) = groups(&graph);
        let mut ids: Vec<usize> = groups.concat();
        ids.sort_unstable();
        assert_eq!(ids, [0, 1, 2, 3, 4, 5], "{groups:?}");
    }

    #[test]
    fn a_port_that_lends_only_its_shape_is_no_edge_of_data() {
        use OpKind::{Abs, GenIndex};
        let (groups, _) = groups(&graph(&[(Abs, &[0], 1), (GenIndex, &[1], 2)]));
        assert_eq!(groups, [vec![0], vec![1]]);
    }

    #[test]
    fn a_refusal_of_the_fusion_is_listed_with_its_reason() {
        use OpKind::Abs;
        let chain: Vec<(OpKind, Vec<usize>, usize)> = (0..6).map(|i| (Abs, vec![i], i + 1)).collect();
        let chain: Vec<(OpKind, &[usize], usize)> = chain.iter().map(|(k, i, o)| (*k, &i[..], *o)).collect();
        let (groups, explanations) = groups(&graph(&chain));
        assert_eq!(groups, [vec![0, 1, 2, 3], vec![4, 5]]);
        let refusal = Verdict::Rejected("four ops are enough");
        assert!(
            explanations.iter().any(|e| e.verdict == refusal && e.neighbour.is_some()),
            "{explanations:?}"
        );
    }

    #[test]
    fn groups_do_not_depend_on_the_order_of_add_op() {
        use OpKind::{Abs, Add, Exp, ReLU};
        let ops: [(OpKind, &[usize], usize); 4] =
            [(Abs, &[0], 1), (ReLU, &[1], 2), (Exp, &[2], 3), (Add, &[3, 1], 4)];
        let build = |order: [usize; 4]| {
            let mut graph = Graph::new();
            for id in order {
                let (kind, inputs, output) = ops[id];
                let op = Op::new(id, kind).inputs_from(inputs.iter().map(|&id| tensor(id)));
                graph.add_op(op.output(tensor(output))).unwrap();
            }
            graph.finalize().unwrap();
            groups(&graph).0
        };
        let expected = build([0, 1, 2, 3]);
        assert_eq!(build([3, 2, 1, 0]), expected);
        assert_eq!(build([2, 0, 3, 1]), expected);
    }
}
