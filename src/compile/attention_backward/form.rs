//! Finds the form of gradients of attention in a partition.

use smallvec::SmallVec;

use crate::compile::attention_shape::is_conversion_of;
use crate::compile::elementwise::ShapedGroup;
use crate::compile::phases::PlanBuilder;
use crate::compile::shaped_partition::ShapedPartition;
use crate::error::Result;
use crate::graph::function::Function;
use crate::graph::infer;
use crate::graph::op::Op;
use crate::kernels::Extent;
use crate::kernels::attention::QUERIES;
use crate::plan::{KEYS, ValueId};
use crate::types::function::{Unary, computes_in_f32};
use crate::types::kind::{Attr, OpKind};
use crate::types::shape::{Dims, SaturatingProduct};

/// The values and the axes of the gradients. Axes count those of the scores.
pub(super) struct BackwardShape {
    pub(super) scores: Factors,
    /// The product of the gradients of the weights.
    pub(super) gradients: Option<Factors>,
    /// The logits, and the weights.
    pub(super) logits: ValueId,
    pub(super) weights: ValueId,
    pub(super) softmax: Option<Softmax>,
    /// The factors of the gradients of the result, and those of queries and keys.
    pub(super) factors: Option<ValueId>,
    pub(super) slopes: Option<ValueId>,
    /// The products that give the gradients of queries, keys and values.
    pub(super) ends: [Option<Factors>; 3],
    /// The sums over heads behind the gradients of keys and values, by their anchors, and the axes.
    pub(super) sums: [Option<usize>; 3],
    pub(super) summed: SmallVec<[usize; 6]>,
    pub(super) dims: Dims,
    pub(super) depth: usize,
    pub(super) value_columns: usize,
}

/// A SoftMax of the partition.
pub(super) struct Softmax {
    pub(super) anchor: usize,
    /// The SoftMaxBackward, with the gradients that enter and leave it.
    pub(super) backward: Option<(usize, [ValueId; 2])>,
    /// Whether ops behind it need the scores again.
    pub(super) needs_scores: bool,
}

/// A product by its values.
#[derive(Clone, Copy)]
pub(super) struct Factors {
    pub(super) anchor: usize,
    pub(super) left: ValueId,
    pub(super) right: ValueId,
    pub(super) result: ValueId,
    pub(super) transposes_left: bool,
    pub(super) transposes_right: bool,
}

impl Factors {
    pub(super) fn new(shaped: &ShapedPartition<'_>, anchor: usize) -> Option<Self> {
        let of = &shaped.group.anchors[anchor];
        let op = &shaped.partition.ops()[of.op];
        let &[left, right] = &of.inputs[..] else { return None };
        Some(Self {
            anchor,
            left,
            right,
            result: of.outputs[0],
            transposes_left: op.bool_attr(Attr::TransposeA),
            transposes_right: op.bool_attr(Attr::TransposeB),
        })
    }
}

impl BackwardShape {
    /// `None` if the phase does not run a partition of this form. `is_done` tells the anchors that have
    /// phases already.
    pub(super) fn new(
        shaped: &ShapedPartition<'_>,
        plan: &PlanBuilder<'_>,
        is_done: &[bool],
    ) -> Result<Option<Self>> {
        let (group, ops) = (&shaped.group, shaped.partition.ops());
        let op = |anchor: usize| &ops[group.anchors[anchor].op];
        let of_kind = |kind: OpKind| -> Vec<usize> {
            (0..group.anchors.len()).filter(|&anchor| op(anchor).kind() == kind).collect()
        };
        let (softmaxes, backwards) = (of_kind(OpKind::SoftMax), of_kind(OpKind::SoftMaxBackward));
        if softmaxes.len() > 1 || backwards.len() > softmaxes.len() {
            return Ok(None);
        }
        let Some(products) =
            of_kind(OpKind::MatMul).into_iter().map(|anchor| Factors::new(shaped, anchor)).collect()
        else {
            return Ok(None);
        };
        let products: Vec<Factors> = products;
        let candidates: Vec<(ValueId, ValueId)> = match softmaxes.first() {
            Some(&softmax) => {
                let of = &group.anchors[softmax];
                vec![(of.outputs[0], of.inputs[0])]
            }
            None => exponentials(group).collect(),
        };
        for (weights, logits) in candidates {
            let softmax = softmaxes.first().map(|&softmax| (softmax, backwards.first().copied()));
            let found = Self::with_weights(shaped, plan, (weights, logits), softmax, &products, is_done)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn with_weights(
        shaped: &ShapedPartition<'_>,
        plan: &PlanBuilder<'_>,
        (weights, logits): (ValueId, ValueId),
        softmax: Option<(usize, Option<usize>)>,
        products: &[Factors],
        is_done: &[bool],
    ) -> Result<Option<Self>> {
        let group = &shaped.group;
        let op = |anchor: usize| -> &Op { &shaped.partition.ops()[group.anchors[anchor].op] };
        let depends = |value: ValueId, from: ValueId| plan.depends(value, from, &[]);
        let backward = match softmax {
            Some((_, Some(backward))) => {
                let (inputs, outputs) = (&group.anchors[backward].inputs, &group.anchors[backward].outputs);
                if !is_conversion_of(group, inputs[1], weights) {
                    return Ok(None);
                }
                Some((backward, [inputs[0], outputs[0]]))
            }
            _ => None,
        };
        let behind = |value: ValueId| {
            depends(value, weights) || backward.is_some_and(|(_, [_, result])| depends(value, result))
        };
        let (ends_of, rest): (Vec<Factors>, Vec<Factors>) =
            products.iter().partition(|product| behind(product.left));
        let (scores, rest): (Vec<Factors>, Vec<Factors>) =
            rest.into_iter().partition(|product| depends(logits, product.result));
        let ([scores], [] | [_]) = (&scores[..], &rest[..]) else { return Ok(None) };
        let (scores, gradients) = (*scores, rest.first().copied());
        let of_gradients = |value: ValueId| match (backward, gradients) {
            (Some((_, [_, result])), _) => depends(value, result),
            (None, Some(gradients)) => depends(value, gradients.result),
            (None, None) => false,
        };
        let mut ends = [None; 3];
        for end in ends_of {
            let place = match (end.transposes_left, of_gradients(end.left)) {
                (false, true) => 0,
                (true, true) => 1,
                (true, false) => 2,
                (false, false) => return Ok(None),
            };
            if ends[place].replace(end).is_some() {
                return Ok(None);
            }
        }

        let dims = group.values[scores.result].dims.clone();
        let Some(rank) = Some(dims.len()).filter(|&rank| rank >= 2) else { return Ok(None) };
        let [queries, keys] = [dims[rank - 2], dims[rank - 1]];
        let of_dims = |value: ValueId| &group.values[value].dims;
        let are_alike = [weights, logits].into_iter().all(|value| *of_dims(value) == dims)
            && gradients.is_none_or(|product| *of_dims(product.result) == dims)
            && backward.is_none_or(|(_, values)| values.iter().all(|&value| *of_dims(value) == dims));
        let depth_of = |product: &Factors| {
            let dims = of_dims(product.left);
            dims[dims.len().saturating_sub(if product.transposes_left { 2 } else { 1 })]
        };
        let is_matrix = |value: ValueId| of_dims(value).len() >= 2 && !of_dims(value).contains(&0);
        let operands = [Some(scores), gradients].into_iter().flatten();
        let operands: Vec<ValueId> = operands
            .flat_map(|product| [product.left, product.right])
            .chain(ends.iter().flatten().map(|end| end.right))
            .collect();
        let are_operands = operands.iter().all(|&value| {
            is_matrix(value)
                && computes_in_f32(group.values[value].data_type)
                && plan.is_computable(value, &[])
        });
        if !are_alike || dims.contains(&0) || !are_operands {
            return Ok(None);
        }
        let is_along_keys =
            |anchor: usize| -> Result<bool> { Ok(infer::resolved_axis(op(anchor), &dims)? == rank - 1) };
        if let Some((softmax, backward)) = softmax
            && !(is_along_keys(softmax)? && backward.map_or(Ok(true), is_along_keys)?)
        {
            return Ok(None);
        }
        // Both products have the same depth, so that one tile of each kind is enough.
        let depth = depth_of(&scores);
        let columns_of =
            |end: &Option<Factors>| end.as_ref().and_then(|end| of_dims(end.result).last().copied());
        let value_columns =
            gradients.as_ref().map(depth_of).or_else(|| columns_of(&ends[2])).unwrap_or_default();
        let is_result = |end: &Option<Factors>, tokens: i64, columns: i64| {
            end.as_ref().is_none_or(|end| {
                let result = of_dims(end.result);
                result.len() == rank
                    && result[..rank - 2] == dims[..rank - 2]
                    && result[rank - 2..] == [tokens, columns]
            })
        };
        let fits = is_result(&ends[0], queries, depth)
            && is_result(&ends[1], keys, depth)
            && is_result(&ends[2], keys, value_columns);
        if !fits || value_columns == 0 {
            return Ok(None);
        }

        // What tile programs make.
        let stops: SmallVec<[ValueId; 8]> = [Some(weights), gradients.map(|product| product.result)]
            .into_iter()
            .chain([backward.map(|(_, [_, result])| result)])
            .flatten()
            .collect();
        let kept = |end: &Option<Factors>| end.as_ref().map(|end| unconverted(group, end.left, &stops));
        let (of_queries, of_keys, factors) = (kept(&ends[0]), kept(&ends[1]), kept(&ends[2]));
        let slopes = match (of_queries, of_keys) {
            (Some(a), Some(b)) if a != b => return Ok(None),
            (a, b) => a.or(b),
        };
        let raw: SmallVec<[ValueId; 2]> =
            [Some(scores.result), gradients.map(|product| product.result)].into_iter().flatten().collect();
        let makes = |supplied: &[ValueId], value: ValueId| {
            supplied.contains(&value) || plan.is_tile_program(&dims, supplied, value)
        };
        let softmax = match softmax {
            None => {
                let made = [Some(weights), factors, slopes];
                if !made.iter().flatten().all(|&value| plan.is_tile_program(&dims, &raw, value)) {
                    return Ok(None);
                }
                None
            }
            Some((anchor, _)) => {
                let before = [Some(logits), backward.map(|(_, [given, _])| given)];
                if !before.iter().flatten().all(|&value| makes(&raw, value)) {
                    return Ok(None);
                }
                let last =
                    backward.map(|(_, [_, result])| result).or(gradients.map(|product| product.result));
                let mut supplied: SmallVec<[ValueId; 3]> =
                    [Some(weights), last].into_iter().flatten().collect();
                let behind = [factors, slopes];
                let all_made =
                    |supplied: &[ValueId]| behind.iter().flatten().all(|&value| makes(supplied, value));
                let needs_scores = !all_made(&supplied);
                supplied.push(scores.result);
                // The SoftMax works in the tile of the scores if nothing stands between them.
                if needs_scores && (logits == scores.result || !all_made(&supplied)) {
                    return Ok(None);
                }
                Some(Softmax { anchor, backward, needs_scores })
            }
        };

        let mut shape = Self {
            scores,
            gradients,
            logits,
            weights,
            softmax,
            factors,
            slopes,
            ends,
            sums: [None; 3],
            summed: SmallVec::new(),
            dims,
            depth: depth as usize,
            value_columns: value_columns as usize,
        };
        shape.find_sums(shaped, plan)?;
        // No output and no other op needs values that are in tiles alone.
        let mut inner: SmallVec<[ValueId; 8]> = stops;
        inner.push(scores.result);
        let own: Vec<usize> = shape.anchors().collect();
        let others = (0..group.anchors.len()).filter(|anchor| !own.contains(anchor) && !is_done[*anchor]);
        let mut needed = group.outputs.iter().copied().chain(operands);
        let are_hidden = needed.all(|value| inner.iter().all(|&of| !depends(value, of)))
            && others
                .flat_map(|other| &group.anchors[other].inputs)
                .all(|&input| inner.iter().all(|&of| !depends(input, of)));
        let stats = shape.softmax.as_ref().and_then(|softmax| group.anchors[softmax.anchor].outputs.get(1));
        let has_stats = stats.is_some_and(|&stats| {
            group.outputs.contains(&stats)
                || group.values.ids().any(|value| group.operands(value).contains(&stats))
        });
        Ok(Some(shape).filter(|_| are_hidden && !has_stats))
    }

    /// Finds the sums over heads of the gradients of keys and values: if both have the same, the phase makes
    /// them.
    fn find_sums(&mut self, shaped: &ShapedPartition<'_>, plan: &PlanBuilder<'_>) -> Result<()> {
        let group = &shaped.group;
        let mut axes: Option<SmallVec<[usize; 6]>> = None;
        let mut sums = [None; 3];
        for place in [1, 2] {
            let Some(end) = &self.ends[place] else { continue };
            let is_sum = |anchor: &usize| {
                let of = &group.anchors[*anchor];
                shaped.partition.ops()[of.op].kind() == OpKind::ReduceSum
                    && is_conversion_of(group, of.inputs[0], end.result)
            };
            let Some(sum) = (0..group.anchors.len()).find(is_sum) else { return Ok(()) };
            let of = &group.anchors[sum];
            let is_only_use = group.outputs.iter().all(|&output| !plan.depends(output, end.result, &[]))
                && (0..group.anchors.len()).filter(|&other| other != sum).all(|other| {
                    group.anchors[other].inputs.iter().all(|&input| !plan.depends(input, end.result, &[]))
                });
            let summed = infer::reduced_axes(&shaped.partition.ops()[of.op], &self.dims)?;
            let is_outer = summed.iter().all(|&axis| axis + 2 < self.dims.len());
            if !is_only_use || !is_outer || axes.as_ref().is_some_and(|axes| *axes != summed) {
                return Ok(());
            }
            axes = Some(summed);
            sums[place] = Some(sum);
        }
        if let Some(axes) = axes {
            (self.sums, self.summed) = (sums, axes);
        }
        Ok(())
    }

    /// The anchors that the phase computes.
    pub(super) fn anchors(&self) -> impl Iterator<Item = usize> {
        let products = [Some(self.scores), self.gradients].into_iter().chain(self.ends);
        let products = products.flatten().map(|product| product.anchor);
        let softmax = self.softmax.iter().flat_map(|softmax| {
            [Some(softmax.anchor), softmax.backward.map(|(anchor, _)| anchor)].into_iter().flatten()
        });
        products.chain(softmax).chain(self.sums.iter().flatten().copied())
    }

    pub(super) fn rank(&self) -> usize {
        self.dims.len()
    }

    pub(super) fn queries(&self) -> usize {
        self.dims[self.rank() - 2] as usize
    }

    pub(super) fn keys(&self) -> usize {
        self.dims[self.rank() - 1] as usize
    }

    pub(super) fn flops(&self) -> usize {
        let pairs = self.dims.iter().map(|&dim| dim as usize).saturating_product();
        let deep = 1 + self.ends[..2].iter().flatten().count();
        let wide = usize::from(self.gradients.is_some()) + self.ends[2].iter().count();
        let again = match &self.softmax {
            Some(Softmax { backward: Some(_), .. }) => self.depth + self.value_columns,
            Some(_) => self.depth,
            None => 0,
        };
        pairs.saturating_mul(2 * (deep * self.depth + wide * self.value_columns + again))
    }

    /// Queries of a block, and keys.
    pub(super) fn tile(&self) -> Extent {
        Extent { rows: self.keys().min(KEYS), columns: self.queries().min(QUERIES) }
    }
}

/// The exponentials of a group, each with its operand.
fn exponentials(group: &ShapedGroup) -> impl Iterator<Item = (ValueId, ValueId)> + '_ {
    group.values.ids().rev().filter_map(|value| {
        let def = group.values[value].def.as_ref()?;
        let is_exp = matches!(def.pointwise.function, Function::Unary(Unary::Exp, _));
        is_exp.then(|| (value, def.operands[0].0))
    })
}

/// The value from which another one differs in its type alone: products need no rounding of it.
fn unconverted(group: &ShapedGroup, mut value: ValueId, stops: &[ValueId]) -> ValueId {
    while !stops.contains(&value)
        && let Some(operand) = group.converted(value)
    {
        value = operand;
    }
    value
}
