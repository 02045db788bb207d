//! Growth on the rewritten graph, and the way back to the ops of the user.

use std::cell::OnceCell;

use rustc_hash::{FxHashMap, FxHashSet};

use super::fusion::{Explanation, FusionVerdict, GroupView};
use super::fusions::{FUSIONS, matched_again};
use super::grow::{self, OpGroup};
use super::matches::Match;
use super::op_graph::OpGraph;
use crate::error::Result;
use crate::graph::op::Op;
use crate::graph::{Graph, OpIndices};
use crate::rewrite::{self, Application, Rewritten};
use crate::types::id::OpId;
use crate::types::rewrite::Rewrite;

/// A group of ops of the user, and the form in which it runs.
pub(super) struct UserGroup {
    /// The ops as positions in the run order of the user's graph.
    pub(super) group: OpGroup,
    pub(super) rewritten: Option<RewrittenOps>,
}

/// The ops that run in place of those of a group.
pub(super) struct RewrittenOps {
    /// In an order in which they can run.
    pub(super) ops: Vec<Op>,
    pub(super) fused: Option<Match>,
    pub(super) rewrites: Vec<Rewrite>,
}

impl AsRef<[usize]> for UserGroup {
    fn as_ref(&self) -> &[usize] {
        &self.group.ops
    }
}

/// How often applications are taken back and the growth starts anew, before it goes on without any.
const MAX_ROUNDS: usize = 8;

const APART: &str = "its ops do not run in one partition of attention";
const ALONE: &str = "its ops do not run in one partition";

/// The groups of a graph under [`Policy::Fusion`](crate::Policy::Fusion).
///
/// An application whose ops do not end in one group is taken back, as no tensor of the rewritten graph may
/// cross a border; so is a form of attention in a group that is none.
pub(super) fn group(
    graph: &Graph,
    of_user: &OpGraph<'_>,
    mut explain: Option<&mut dyn FnMut(Explanation)>,
) -> Result<Vec<UserGroup>> {
    let mut refused = FxHashSet::default();
    for _ in 0..MAX_ROUNDS {
        let Some(rewritten) = rewrite::rewritten(graph, &refused)? else { break };
        let op_graph = OpGraph::new(&rewritten.graph)?;
        let mut said = Vec::new();
        let mut keep = |explanation| said.push(explanation);
        let record: Option<&mut dyn FnMut(Explanation)> = match explain {
            Some(_) => Some(&mut keep),
            None => None,
        };
        let groups = grow::group(&op_graph, FUSIONS, true, record);
        let apart = apart(&rewritten, &op_graph, &groups);
        if apart.is_empty()
            && let Some(groups) = user_groups(&rewritten, &op_graph, groups, of_user)
        {
            if let Some(explain) = explain {
                rewritten.applied.iter().for_each(|of| explain(told(of, FusionVerdict::Matched)));
                said.into_iter().for_each(explain);
            }
            return Ok(groups);
        }
        let taken_back = if apart.is_empty() { rewritten.applied } else { apart };
        for application in taken_back {
            refused.insert((application.rewrite, application.at.id));
            if let Some(explain) = &mut explain {
                let why = if application.rewrite.is_of_attention() { APART } else { ALONE };
                explain(told(&application, FusionVerdict::Rejected(why)));
            }
        }
    }
    let groups = grow::group(of_user, FUSIONS, true, explain);
    Ok(groups.into_iter().map(|group| UserGroup { group, rewritten: None }).collect())
}

fn told(application: &Application, verdict: FusionVerdict) -> Explanation {
    Explanation { fusion: application.rewrite.name(), seed: application.at, neighbour: None, verdict }
}

/// The applications whose ops are not in one group that is fused, and of attention if they are a form of it.
fn apart(rewritten: &Rewritten, op_graph: &OpGraph<'_>, groups: &[OpGroup]) -> Vec<Application> {
    // The group of each op of the user, unless there are several.
    let mut homes: FxHashMap<OpId, Option<usize>> = FxHashMap::default();
    for (index, group) in groups.iter().enumerate() {
        let home = group.fused.is_some().then_some(index);
        for &user in group.ops.iter().flat_map(|&op| &rewritten.origins[&op_graph.ops[op].id()]) {
            homes.entry(user).and_modify(|other| *other = other.filter(|_| *other == home)).or_insert(home);
        }
    }
    let is_of_attention = |home: usize| {
        matches!(groups[home].fused, Some(Match::Attention { .. } | Match::AttentionBackward { .. }))
    };
    let is_apart = |application: &&Application| {
        let mut of_ops = application.ops.iter().map(|user| homes.get(user).copied().flatten());
        let first = of_ops.next().flatten();
        let fits = |home: usize| is_of_attention(home) || !application.rewrite.is_of_attention();
        !first.is_some_and(fits) || of_ops.any(|home| home != first)
    };
    rewritten.applied.iter().filter(is_apart).cloned().collect()
}

/// The groups by ops of the user, in an order in which they can run; `None` if there is none.
fn user_groups(
    rewritten: &Rewritten,
    op_graph: &OpGraph<'_>,
    groups: Vec<OpGroup>,
    of_user: &OpGraph<'_>,
) -> Option<Vec<UserGroup>> {
    let positions: FxHashMap<OpId, usize> =
        of_user.ops.iter().enumerate().map(|(position, op)| (op.id(), position)).collect();
    // The applications of which an op of the user is part, in the order in which they were applied.
    let mut applied: FxHashMap<OpId, OpIndices> = FxHashMap::default();
    for (index, application) in rewritten.applied.iter().enumerate() {
        application.ops.iter().for_each(|op| applied.entry(*op).or_default().push(index));
    }
    let count = groups.len();
    let user_group = |group: OpGroup| {
        let origins = |op: usize| &rewritten.origins[&op_graph.ops[op].id()];
        let users = || group.ops.iter().flat_map(|&op| origins(op));
        let mut ops: Vec<usize> = users().map(|user| positions[user]).collect();
        ops.sort_unstable();
        ops.dedup();
        let mut of_group: Vec<usize> = users().filter_map(|op| applied.get(op)).flatten().copied().collect();
        of_group.sort_unstable();
        let mut rewrites: Vec<Rewrite> =
            of_group.into_iter().map(|index| rewritten.applied[index].rewrite).collect();
        // An application stands here for each of its ops, and several of one rewrite are listed once.
        rewrites.dedup();
        // Roles name ops by their places, and the two graphs have run orders of their own.
        let view = GroupView { graph: of_user, members: &ops, found: &OnceCell::new() };
        let fused = group.fused.as_ref().map(|of| matched_again(of, &view));
        if rewrites.is_empty() {
            return UserGroup { group: OpGroup { ops, fused }, rewritten: None };
        }
        let in_form = group.ops.iter().map(|&op| op_graph.ops[op].clone()).collect();
        let rewritten = Some(RewrittenOps { ops: in_form, fused: group.fused, rewrites });
        UserGroup { group: OpGroup { ops, fused }, rewritten }
    };
    let groups = of_user.in_run_order(groups.into_iter().map(user_group).collect::<Vec<_>>());
    // A circle of groups leaves some out.
    (groups.len() == count).then_some(groups)
}
