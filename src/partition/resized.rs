//! The cut of a graph that differs from another in sizes alone.
//!
//! Of dims, rewrites and fusions see which of them are equal, which are 0 or 1, how reshapes divide and join
//! them, and how the dims before the last two of attention's operands multiply. If the sizes of one graph
//! stand in another for sizes of their own, one for one, and all that is the same, then so is the cut.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::moves;
use super::rewriting::RewrittenOps;
use super::{Partition, PartitionInner};
use crate::graph::Graph;
use crate::graph::infer;
use crate::graph::logical_tensor::{Layout, LogicalTensor};
use crate::graph::op::{AttrValue, Op};
use crate::types::id::{OpId, TensorId};
use crate::types::kind::{Attr, OpKind};
use crate::types::shape::{self, Dims};

/// The attributes that hold sizes.
const SIZES: [Attr; 3] = [Attr::Shape, Attr::Starts, Attr::Ends];

/// Sizes that are kept in one word of bits each.
const SMALL: usize = 1 << 12;

/// The sizes of a graph, and those that stand in their place in another one.
struct Exchange {
    /// Sizes that are others now.
    pairs: SmallVec<[(i64, i64); 8]>,
    /// Sizes that are the same: a bit for each small one, and a list of the others.
    is_fixed: Vec<u64>,
    fixed: Vec<i64>,
}

impl Exchange {
    fn new() -> Self {
        let mut exchange = Self { pairs: SmallVec::new(), is_fixed: vec![0; SMALL / 64], fixed: Vec::new() };
        [0, 1].into_iter().for_each(|size| exchange.fix(size));
        exchange
    }

    fn fix(&mut self, size: i64) {
        match usize::try_from(size).ok().filter(|&size| size < SMALL) {
            Some(size) => self.is_fixed[size / 64] |= 1 << (size % 64),
            None if self.fixed.last() == Some(&size) => {}
            None => self.fixed.push(size),
        }
    }

    fn is_fixed(&self, size: i64) -> bool {
        match usize::try_from(size).ok().filter(|&size| size < SMALL) {
            Some(size) => self.is_fixed[size / 64] & 1 << (size % 64) != 0,
            None => self.fixed.contains(&size),
        }
    }

    fn fix_all(&mut self, op: &Op) {
        for tensor in op.inputs().iter().chain(op.outputs()) {
            tensor.raw_dims().unwrap_or_default().iter().for_each(|&dim| self.fix(dim));
        }
        // The other kinds have no sizes among their attributes.
        if let OpKind::StaticReshape | OpKind::Fill | OpKind::Slice = op.kind() {
            SIZES.iter().flat_map(|&attr| op.s64s_attr(attr)).for_each(|&size| self.fix(size));
        }
    }

    /// Notes sizes and those in their place; false if they are not as many.
    fn add(&mut self, before: &[i64], after: &[i64]) -> bool {
        for (&was, &is) in before.iter().zip(after) {
            match was == is {
                true => self.fix(was),
                // A negative number counts from the end, or says that a dim is open.
                false if was < 0 || is < 0 => return false,
                false if self.pairs.contains(&(was, is)) => {}
                false => self.pairs.push((was, is)),
            }
        }
        before.len() == after.len()
    }

    /// True if each size has one in its place, and no two have the same.
    fn is_one_for_one(&self) -> bool {
        let is_single = |(at, &(was, is)): (usize, &(i64, i64))| {
            let others = &self.pairs[at + 1..];
            !self.is_fixed(was)
                && !self.is_fixed(is)
                && others.iter().all(|pair| pair.0 != was && pair.1 != is)
        };
        self.pairs.iter().enumerate().all(is_single)
    }

    /// The size in the place of another; `None` for one that neither graph has.
    fn of(&self, size: i64) -> Option<i64> {
        let found = self.pairs.iter().find(|pair| pair.0 == size).map(|pair| pair.1);
        found.or_else(|| self.is_fixed(size).then_some(size))
    }

    fn all_of(&self, sizes: &[i64]) -> Option<Dims> {
        sizes.iter().map(|&size| self.of(size)).collect()
    }

    /// A tensor that a rewrite has made.
    fn tensor(&self, tensor: &LogicalTensor) -> Option<LogicalTensor> {
        let Some(before) = tensor.dims() else { return tensor.raw_dims().is_none().then(|| tensor.clone()) };
        let dims = self.all_of(before)?;
        if dims[..] == *before {
            return Some(tensor.clone());
        }
        let (id, data_type) = (tensor.id(), tensor.data_type());
        let made = match tensor.layout() {
            Layout::Any => LogicalTensor::any(id, data_type, &dims),
            Layout::Strided(_) if tensor.strides() == shape::row_major_strides(before).as_deref() => {
                LogicalTensor::strided(id, data_type, &dims)
            }
            _ => return None,
        };
        made.and_then(|made| made.with_property(tensor.property())).ok()
    }

    /// An op that a rewrite has made, on tensors of which the user's are known.
    fn op(&self, op: &Op, known: &FxHashMap<TensorId, LogicalTensor>) -> Option<Op> {
        let tensor = |tensor: &LogicalTensor| match known.get(&tensor.id()) {
            Some(known) => Some(known.clone()),
            None => self.tensor(tensor),
        };
        let inputs = op.inputs().iter().map(tensor).collect::<Option<Vec<_>>>()?;
        let outputs = op.outputs().iter().map(tensor).collect::<Option<Vec<_>>>()?;
        let mut made = op.with_tensors(inputs, outputs);
        for attr in SIZES {
            let before = op.s64s_attr(attr);
            let after: Vec<i64> = before
                .iter()
                .map(|&size| if size < 0 { Some(size) } else { self.of(size) })
                .collect::<Option<_>>()?;
            if after != before {
                made = made.attr(attr, after);
            }
        }
        if made.is_same(op) {
            return Some(made);
        }
        // A rewrite may have added to a size, which is no exchange.
        let dims = made.inputs().iter().map(LogicalTensor::dims);
        let follows = infer::output_shapes(&made, &dims.collect::<Option<Vec<_>>>()?).ok()??;
        let fits = |(output, dims): (&LogicalTensor, &Dims)| output.dims() == Some(&dims[..]);
        made.outputs().iter().zip(&follows).all(fits).then_some(made)
    }
}

/// True if ops have the attributes of those in whose place they are.
fn keep_attrs(was: &[Op], is: &[Op]) -> bool {
    let keeps = |(was, is): (&Op, &Op)| {
        was.is_same(is) || SIZES.iter().all(|&attr| was.get_attr(attr) == is.get_attr(attr))
    };
    was.iter().zip(is).all(keeps)
}

/// True if two ops differ in sizes alone, which are noted.
fn is_alike(was: &Op, is: &Op, exchange: &mut Exchange) -> bool {
    let is_same_kind = (was.id(), was.kind(), was.name()) == (is.id(), is.kind(), is.name());
    let [of_was, of_is] = [was, is].map(|op| op.inputs().iter().chain(op.outputs()));
    let counts = |op: &Op| (op.inputs().len(), op.outputs().len(), op.attrs().len());
    if !is_same_kind || counts(was) != counts(is) {
        return false;
    }
    // The batch dims of what may be attention: a move alone computes nothing of it.
    let is_move = moves::moves(was) && matches!(was.kind(), OpKind::StaticReshape | OpKind::StaticTranspose);
    let mut tensors = of_was.zip(of_is);
    let are_tensors_alike = tensors.all(|(was, is)| {
        let facts = |tensor: &LogicalTensor| {
            (tensor.id(), tensor.data_type(), tensor.property(), tensor.rank(), tensor.layout().code())
        };
        let (before, after) = (was.raw_dims().unwrap_or_default(), is.raw_dims().unwrap_or_default());
        let outer = before.len().saturating_sub(2);
        facts(was) == facts(is)
            && was.strides().is_some() == is.strides().is_some()
            && (is_move || before.get(..outer) == after.get(..outer))
            && exchange.add(before, after)
    });
    let are_attrs_alike = was.attrs().zip(is.attrs()).all(|((attr, was), (of_is, is))| match (was, is) {
        _ if attr != of_is => false,
        (AttrValue::S64s(was), AttrValue::S64s(is)) if SIZES.contains(&attr) => exchange.add(was, is),
        _ => was == is,
    });
    are_tensors_alike && are_attrs_alike && moves::division(was) == moves::division(is)
}

/// The partitions of a graph that has the ops of another one, whose partitions are known, on tensors of other
/// sizes. `None` if more may differ: the graph then has to be cut.
pub(crate) fn partitions(graph: &Graph, other: &Graph, cut: &[Partition]) -> Option<Vec<Partition>> {
    if !graph.has_setting_of(other) || graph.ops().len() != other.ops().len() {
        return None;
    }
    let (mut exchange, mut changed) = (Exchange::new(), FxHashMap::default());
    for (was, is) in other.ops().iter().zip(graph.ops()) {
        match was.is_same(is) || was == is {
            true => exchange.fix_all(is),
            false if is_alike(was, is, &mut exchange) => _ = changed.insert(is.id(), is),
            false => return None,
        }
    }
    if !exchange.is_one_for_one() {
        return None;
    }
    cut.iter().map(|partition| partition.resized(&changed, &exchange)).collect()
}

impl Partition {
    /// The partition with other ops in the place of those that have changed.
    fn resized(&self, changed: &FxHashMap<OpId, &Op>, exchange: &Exchange) -> Option<Self> {
        let PartitionInner { id, ops, inputs, outputs, fused, fpmath, rewrites, rewritten, .. } =
            &*self.inner;
        if !ops.iter().any(|op| changed.contains_key(&op.id())) {
            return Some(self.clone());
        }
        let now = |op: &Op| changed.get(&op.id()).map_or_else(|| op.clone(), |&op| op.clone());
        let new: Vec<Op> = ops.iter().map(now).collect();
        let tensors = new.iter().flat_map(|op| op.inputs().iter().chain(op.outputs()));
        let known: FxHashMap<TensorId, LogicalTensor> =
            tensors.map(|tensor| (tensor.id(), tensor.clone())).collect();
        let port = |port: &LogicalTensor| known.get(&port.id()).cloned();
        let ports = |ports: &[LogicalTensor]| ports.iter().map(port).collect::<Option<Vec<_>>>();
        let (inputs, outputs) = (ports(inputs)?, ports(outputs)?);
        let made = PartitionInner::new(*id, new, [inputs, outputs], fused.clone(), *fpmath);
        let made = made.said_as(&self.inner);
        let rewritten = match rewritten {
            Some(form) => {
                let new: Vec<Op> =
                    form.ops().iter().map(|op| exchange.op(op, &known)).collect::<Option<_>>()?;
                let PartitionInner { fused, rewrites, .. } = &*form.inner;
                let (fused, rewrites) = (fused.clone(), rewrites.clone());
                let now = made.rewritten(RewrittenOps { ops: new, fused, rewrites }).said_as(&form.inner);
                Some(Self { inner: Arc::new(now) })
            }
            None => None,
        };
        let inner = PartitionInner { rewrites: rewrites.clone(), rewritten, ..made };
        Some(Self { inner: Arc::new(inner) })
    }
}

impl PartitionInner {
    /// The partition with what is known of another one, from which it differs in sizes alone.
    pub(super) fn said_as(self, other: &Self) -> Self {
        // Neither sees dims.
        let labels = other.labels.clone();
        match keep_attrs(&other.ops, &self.ops) {
            true => Self { labels, signature: other.signature.clone(), ..self },
            false => Self { labels, ..self },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Result;
    use crate::graph::builder::{GraphBuilder, OpOptions};
    use crate::types::dtype::DataType;
    use crate::types::kind::Policy;
    use crate::types::rewrite::Rewrite;

    /// Attention of one query on keys of eight heads in pairs, with rewrites, and a product behind it.
    fn graph([batch, keys, depth]: [i64; 3]) -> Result<Graph> {
        let g = GraphBuilder::new();
        let input = |name: &str, dims: &[i64]| {
            g.input(name, DataType::F32, &dims.iter().map(|&dim| Some(dim)).collect::<Vec<_>>())
        };
        let queries = input("q", &[batch, 8, 1, depth])?;
        let grouped = |name: &str| {
            let rows = input(name, &[batch, 4, 1, keys, depth])?;
            let ones = g.constant(format!("{name} ones"), &[1, 1, 2, 1, 1], &[1.0f32; 2])?;
            g.reshape((rows * ones)?, &[batch, 8, keys, depth])
        };
        let scores = g.matmul(queries, g.transpose(grouped("k")?, &[0, 1, 3, 2])?)?;
        let scores = ((scores * 0.5)? + input("mask", &[1, 1, 1, keys])?)?;
        let seen = g.matmul(g.softmax(scores, 3)?, grouped("v")?)?;
        let h = g.reshape(g.transpose(seen, &[0, 2, 1, 3])?, &[batch, 1, 8 * depth])?;
        let w = g.constant("w", &[1, 1], &[1.0f32])?;
        g.output("y", g.relu((h * w)?)?)?;
        let model = g.build()?;
        Ok(model.into_graph())
    }

    /// Attention whose softmax stands beside one and is written out, on some keys, and a row that has nothing
    /// to do with it.
    fn beside_one(keys: i64, other: i64) -> Result<Graph> {
        let g = GraphBuilder::new();
        let input = |name: &str, rows: i64| g.input(name, DataType::F32, &[Some(1), Some(rows), Some(4)]);
        let (queries, values) = (input("q", 2)?, input("v", keys)?);
        let x = g.matmul(queries, g.transpose(input("k", keys)?, &[0, 2, 1])?)?;
        let keeping = || OpOptions::new().keep_dims(true);
        let max = g.reduce_max_with(x, &[2], &[], keeping())?;
        let e = g.exp((x - max)?)?;
        let added = g.exp(g.negative(max)?)?;
        let weights = (e / (g.reduce_sum_with(e, &[2], &[], keeping())? + added)?)?;
        g.output("y", g.matmul(weights, values)?)?;
        g.output("z", g.exp(g.input("other", DataType::F32, &[Some(other)])?)?)?;
        Ok(g.build()?.into_graph())
    }

    #[test]
    fn a_size_that_a_rewrite_adds_to_is_no_other_size() -> Result<()> {
        let rows = [((5, 9), (6, 9)), ((5, 6), (8, 7)), ((5, 6), (8, 6)), ((7, 20), (9, 20))];
        let mut wrong = Vec::new();
        for (from, to) in rows {
            let (before, after) = (beside_one(from.0, from.1)?, beside_one(to.0, to.1)?);
            let (cut, anew) = (before.partitions(Policy::Fusion)?, after.partitions(Policy::Fusion)?);
            assert!(cut.iter().any(|partition| partition.rewrites().contains(&Rewrite::WrittenSoftmax)));
            let taken = partitions(&after, &before, &cut);
            let is_right =
                |taken: &Vec<Partition>| taken.iter().zip(&anew).all(|(taken, anew)| taken.is_as(anew));
            if !taken.as_ref().is_none_or(is_right) {
                wrong.push(format!("{from:?} to {to:?}"));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        Ok(())
    }

    #[test]
    fn a_cut_is_taken_over_where_sizes_stand_for_sizes() -> Result<()> {
        let rows = [
            ("one key more", [1, 40, 64], [1, 41, 64], true),
            ("as many keys as a head is deep", [1, 63, 64], [1, 64, 64], false),
            ("no more as many", [1, 64, 64], [1, 65, 64], false),
            ("one key", [1, 2, 64], [1, 1, 64], false),
            ("no key", [1, 3, 64], [1, 0, 64], false),
            ("as many keys as heads", [1, 7, 64], [1, 8, 64], false),
            ("another batch", [3, 40, 64], [5, 40, 64], false),
            ("the same", [3, 40, 64], [3, 40, 64], true),
        ];
        let mut wrong = Vec::new();
        for (what, from, to, is_taken) in rows {
            let (before, after) = (graph(from)?, graph(to)?);
            let (cut, anew) = (before.partitions(Policy::Fusion)?, after.partitions(Policy::Fusion)?);
            let taken = partitions(&after, &before, &cut);
            let is_right = taken.as_ref().is_none_or(|taken| {
                taken.len() == anew.len() && taken.iter().zip(&anew).all(|(taken, anew)| taken.is_as(anew))
            });
            if taken.is_some() != is_taken || !is_right {
                wrong.push(format!("{what}: {}, {is_right}", taken.is_some()));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        Ok(())
    }
}
