//! Finds the form of gradients of attention in a partition.

use smallvec::SmallVec;

use crate::compile::attention::shape::is_conversion_of;
use crate::compile::elementwise::ShapedGroup;
use crate::compile::phases::PlanBuilder;
use crate::compile::shaped_partition::ShapedPartition;
use crate::graph::function::Function;
use crate::graph::infer;
use crate::kernels::Extent;
use crate::kernels::attention::QUERIES;
use crate::plan::{KEYS, ValueId};
use crate::types::fallback::{FallbackReason, FallbackReason as R};
use crate::types::function::{Unary, computes_in_f32};
use crate::types::kind::{Attr, OpKind};
use crate::types::shape::{Dims, SaturatingProduct};

/// The values and the axes of the gradients. Axes count those of the scores.
pub(super) struct BackwardShape {
    pub(super) scores: ProductValues,
    /// dP = dO·Vᵀ.
    pub(super) dp: Option<ProductValues>,
    /// The logits, and the weights.
    pub(super) logits: ValueId,
    pub(super) weights: ValueId,
    pub(super) softmax: Option<Softmax>,
    /// P as dV = Pᵀ·dO takes it, and dS as dQ = dS·K and dK = dSᵀ·Q take it.
    pub(super) p: Option<ValueId>,
    pub(super) ds: Option<ValueId>,
    /// The products that give dQ, dK and dV.
    pub(super) results: [Option<ProductValues>; 3],
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
    /// True if ops behind it need the scores again.
    pub(super) needs_scores: bool,
}

/// A product by its values.
#[derive(Clone, Copy)]
pub(super) struct ProductValues {
    pub(super) anchor: usize,
    pub(super) left: ValueId,
    pub(super) right: ValueId,
    pub(super) result: ValueId,
    pub(super) transposes_left: bool,
    pub(super) transposes_right: bool,
}

impl ProductValues {
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

/// The products and the SoftMax of gradients by what they are for.
struct GradientRoles {
    weights: ValueId,
    logits: ValueId,
    scores: ProductValues,
    dp: Option<ProductValues>,
    softmax: Option<usize>,
    /// The SoftMaxBackward, with the gradients that enter and leave it.
    backward: Option<(usize, [ValueId; 2])>,
    results: [Option<ProductValues>; 3],
}

/// The values that tile programs make.
struct GradientValues {
    p: Option<ValueId>,
    ds: Option<ValueId>,
    softmax: Option<Softmax>,
}

impl GradientRoles {
    /// `softmax` are the anchors of a SoftMax and of its gradient.
    fn new(
        shaped: &ShapedPartition<'_>,
        plan: &PlanBuilder<'_>,
        (weights, logits): (ValueId, ValueId),
        softmax: Option<(usize, Option<usize>)>,
        products: &[ProductValues],
    ) -> Result<Self, FallbackReason> {
        let group = &shaped.group;
        let depends = |value: ValueId, from: ValueId| plan.depends(value, from, &[]);
        let backward = match softmax {
            Some((_, Some(backward))) => {
                let (inputs, outputs) = (&group.anchors[backward].inputs, &group.anchors[backward].outputs);
                R::OtherOps.unless(is_conversion_of(group, inputs[1], weights))?;
                Some((backward, [inputs[0], outputs[0]]))
            }
            _ => None,
        };
        let behind = |value: ValueId| {
            depends(value, weights) || backward.is_some_and(|(_, [_, result])| depends(value, result))
        };
        let (results_of, rest): (Vec<ProductValues>, Vec<ProductValues>) =
            products.iter().partition(|product| behind(product.left));
        let (scores, rest): (Vec<ProductValues>, Vec<ProductValues>) =
            rest.into_iter().partition(|product| depends(logits, product.result));
        let ([scores], [] | [_]) = (&scores[..], &rest[..]) else { return Err(R::SeveralProducts) };
        let (scores, dp) = (*scores, rest.first().copied());
        let of_dp = |value: ValueId| match (backward, dp) {
            (Some((_, [_, result])), _) => depends(value, result),
            (None, Some(dp)) => depends(value, dp.result),
            (None, None) => false,
        };
        let mut results = [None; 3];
        for end in results_of {
            let place = match (end.transposes_left, of_dp(end.left)) {
                (false, true) => 0,
                (true, true) => 1,
                (true, false) => 2,
                (false, false) => return Err(R::OtherOps),
            };
            R::SeveralProducts.unless(results[place].replace(end).is_none())?;
        }
        Ok(Self { weights, logits, scores, dp, softmax: softmax.map(|(of, _)| of), backward, results })
    }

    /// The operands of all products.
    fn operands(&self) -> Vec<ValueId> {
        let products = [Some(self.scores), self.dp].into_iter().flatten();
        let products = products.flat_map(|product| [product.left, product.right]);
        products.chain(self.results.iter().flatten().map(|end| end.right)).collect()
    }

    /// The elements of a query and of a value, if all dims are those of gradients of scores of such dims.
    fn sizes(
        &self,
        shaped: &ShapedPartition<'_>,
        plan: &PlanBuilder<'_>,
        dims: &Dims,
    ) -> Result<[usize; 2], FallbackReason> {
        let Self { weights, logits, scores, dp, softmax, backward, results } = self;
        let group = &shaped.group;
        let rank = dims.len();
        R::OperandForm.unless(rank >= 2)?;
        let [queries, keys] = [dims[rank - 2], dims[rank - 1]];
        let of_dims = |value: ValueId| &group.values[value].dims;
        let are_alike = [*weights, *logits].into_iter().all(|value| of_dims(value) == dims)
            && dp.is_none_or(|product| of_dims(product.result) == dims)
            && backward.is_none_or(|(_, values)| values.iter().all(|&value| of_dims(value) == dims));
        R::ShapeOfScores.unless(are_alike)?;
        let operands = self.operands();
        let is_empty = operands.iter().any(|&value| of_dims(value).contains(&0)) || dims.contains(&0);
        R::NoElements.unless(!is_empty)?;
        let are_operands = operands.iter().all(|&value| {
            of_dims(value).len() >= 2
                && computes_in_f32(group.values[value].data_type)
                && plan.is_computable(value, &[])
        });
        R::OperandForm.unless(are_operands)?;
        let is_along_keys = |anchor: usize| {
            let op = &shaped.partition.ops()[group.anchors[anchor].op];
            infer::resolved_axis(op, dims).is_ok_and(|axis| axis == rank - 1)
        };
        let mut on_rows = softmax.iter().copied().chain(backward.map(|(backward, _)| backward));
        R::SoftmaxAxis.unless(on_rows.all(is_along_keys))?;
        // Both products have the same depth, so that one tile of each kind is enough.
        let depth_of = |product: &ProductValues| {
            let dims = of_dims(product.left);
            dims[dims.len().saturating_sub(if product.transposes_left { 2 } else { 1 })]
        };
        let depth = depth_of(scores);
        let columns_of = |end: &ProductValues| of_dims(end.result).last().copied();
        let value_columns = dp.as_ref().map(depth_of).or_else(|| results[2].as_ref().and_then(columns_of));
        let value_columns = value_columns.unwrap_or_default();
        let is_result = |end: &Option<ProductValues>, tokens: i64, columns: i64| {
            end.as_ref().is_none_or(|end| {
                let result = of_dims(end.result);
                result.len() == rank
                    && result[..rank - 2] == dims[..rank - 2]
                    && result[rank - 2..] == [tokens, columns]
            })
        };
        let fits = is_result(&results[0], queries, depth)
            && is_result(&results[1], keys, depth)
            && is_result(&results[2], keys, value_columns);
        R::ShapeOfResult.unless(fits && value_columns != 0)?;
        Ok([depth as usize, value_columns as usize])
    }

    /// The values that stop at the tiles: weights and gradients of them.
    fn stops(&self) -> SmallVec<[ValueId; 8]> {
        [Some(self.weights), self.dp.map(|product| product.result)]
            .into_iter()
            .chain([self.backward.map(|(_, [_, result])| result)])
            .flatten()
            .collect()
    }

    /// The values that tile programs make of the products, if they can.
    fn made(
        &self,
        group: &ShapedGroup,
        plan: &PlanBuilder<'_>,
        dims: &Dims,
    ) -> Result<GradientValues, FallbackReason> {
        let Self { weights, logits, scores, dp, backward, .. } = self;
        let stops = self.stops();
        let [of_queries, of_keys, p] =
            self.results.map(|end| end.map(|end| unconverted(group, end.left, &stops)));
        let ds = match (of_queries, of_keys) {
            (Some(a), Some(b)) if a != b => return Err(R::SeveralGradients),
            (a, b) => a.or(b),
        };
        let of_dp = dp.map(|product| product.result);
        let raw: SmallVec<[ValueId; 2]> = [Some(scores.result), of_dp].into_iter().flatten().collect();
        let makes = |supplied: &[ValueId], value: ValueId| {
            supplied.contains(&value) || plan.is_tile_program(dims, supplied, value)
        };
        let Some(anchor) = self.softmax else {
            let made = [Some(*weights), p, ds];
            let are_made = made.iter().flatten().all(|&value| plan.is_tile_program(dims, &raw, value));
            R::ComputedWeights.unless(are_made)?;
            return Ok(GradientValues { p, ds, softmax: None });
        };
        let before = [Some(*logits), backward.map(|(_, [given, _])| given)];
        R::ComputedLogits.unless(before.iter().flatten().all(|&value| makes(&raw, value)))?;
        let last = backward.map(|(_, [_, result])| result).or(of_dp);
        let mut supplied: SmallVec<[ValueId; 3]> = [Some(*weights), last].into_iter().flatten().collect();
        let all_made = |supplied: &[ValueId]| [p, ds].iter().flatten().all(|&value| makes(supplied, value));
        let needs_scores = !all_made(&supplied);
        supplied.push(scores.result);
        // The SoftMax works in the tile of the scores if nothing stands between them.
        R::ComputedWeights.unless(!needs_scores || *logits != scores.result && all_made(&supplied))?;
        Ok(GradientValues { p, ds, softmax: Some(Softmax { anchor, backward: *backward, needs_scores }) })
    }
}

impl BackwardShape {
    /// The form of a partition, if the phase runs it. `is_done` tells the anchors that have phases already.
    pub(super) fn new(
        shaped: &ShapedPartition<'_>,
        plan: &PlanBuilder<'_>,
        is_done: &[bool],
    ) -> Result<Self, FallbackReason> {
        let (group, ops) = (&shaped.group, shaped.partition.ops());
        let op = |anchor: usize| &ops[group.anchors[anchor].op];
        let of_kind = |kind: OpKind| -> Vec<usize> {
            (0..group.anchors.len()).filter(|&anchor| op(anchor).kind() == kind).collect()
        };
        let (softmaxes, backwards) = (of_kind(OpKind::SoftMax), of_kind(OpKind::SoftMaxBackward));
        R::OtherOps.unless(softmaxes.len() <= 1 && backwards.len() <= softmaxes.len())?;
        let products: Option<Vec<ProductValues>> =
            of_kind(OpKind::MatMul).into_iter().map(|anchor| ProductValues::new(shaped, anchor)).collect();
        let products = products.ok_or(R::BiasOfProduct)?;
        let candidates: Vec<(ValueId, ValueId)> = match softmaxes.first() {
            Some(&softmax) => {
                let of = &group.anchors[softmax];
                vec![(of.outputs[0], of.inputs[0])]
            }
            None => exponentials(group).collect(),
        };
        let softmax = softmaxes.first().map(|&softmax| (softmax, backwards.first().copied()));
        let mut refusal = R::OtherOps;
        for weights in candidates {
            let roles = GradientRoles::new(shaped, plan, weights, softmax, &products);
            match roles.and_then(|roles| Self::with_roles(shaped, plan, roles, is_done)) {
                Ok(found) => return Ok(found),
                Err(reason) => refusal = reason,
            }
        }
        Err(refusal)
    }

    fn with_roles(
        shaped: &ShapedPartition<'_>,
        plan: &PlanBuilder<'_>,
        roles: GradientRoles,
        is_done: &[bool],
    ) -> Result<Self, FallbackReason> {
        let group = &shaped.group;
        let dims = group.values[roles.scores.result].dims.clone();
        let [depth, value_columns] = roles.sizes(shaped, plan, &dims)?;
        let GradientValues { p, ds, softmax } = roles.made(group, plan, &dims)?;
        let (sums, summed) = head_sums(shaped, plan, &roles.results, &dims).unwrap_or_default();
        let (mut inner, operands) = (roles.stops(), roles.operands());
        let GradientRoles { scores, dp, logits, weights, results, .. } = roles;
        inner.push(scores.result);
        let shape = Self {
            scores,
            dp,
            logits,
            weights,
            softmax,
            p,
            ds,
            results,
            sums,
            summed,
            dims,
            depth,
            value_columns,
        };
        // No output and no other op needs values that are in tiles alone.
        let own: Vec<usize> = shape.anchors().collect();
        let others = (0..group.anchors.len()).filter(|anchor| !own.contains(anchor) && !is_done[*anchor]);
        let others = others.flat_map(|other| group.anchors[other].inputs.iter().copied());
        let mut needed = group.outputs.iter().copied().chain(operands).chain(others);
        R::InnerUses.unless(needed.all(|value| inner.iter().all(|&of| !plan.depends(value, of, &[]))))?;
        let stats = shape.softmax.as_ref().and_then(|softmax| group.anchors[softmax.anchor].outputs.get(1));
        let has_stats = stats.is_some_and(|&stats| {
            group.outputs.contains(&stats)
                || group.values.ids().any(|value| group.operands(value).contains(&stats))
        });
        R::InnerUses.unless(!has_stats)?;
        Ok(shape)
    }

    /// The anchors that the phase computes.
    pub(super) fn anchors(&self) -> impl Iterator<Item = usize> {
        let products = [Some(self.scores), self.dp].into_iter().chain(self.results);
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
        let deep = 1 + self.results[..2].iter().flatten().count();
        let wide = usize::from(self.dp.is_some()) + self.results[2].iter().count();
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

/// The sums over heads behind the gradients of queries, keys and values, by their anchors, and the axes.
type HeadSums = ([Option<usize>; 3], SmallVec<[usize; 6]>);

/// The sums over heads of the gradients of keys and values, if both have the same: the phase makes them.
fn head_sums(
    shaped: &ShapedPartition<'_>,
    plan: &PlanBuilder<'_>,
    results: &[Option<ProductValues>; 3],
    dims: &Dims,
) -> Option<HeadSums> {
    let group = &shaped.group;
    let mut axes: Option<SmallVec<[usize; 6]>> = None;
    let mut sums = [None; 3];
    for place in [1, 2] {
        let Some(end) = &results[place] else { continue };
        let is_sum = |anchor: &usize| {
            let of = &group.anchors[*anchor];
            shaped.partition.ops()[of.op].kind() == OpKind::ReduceSum
                && is_conversion_of(group, of.inputs[0], end.result)
        };
        let sum = (0..group.anchors.len()).find(is_sum)?;
        let is_only_use = group.outputs.iter().all(|&output| !plan.depends(output, end.result, &[]))
            && (0..group.anchors.len()).filter(|&other| other != sum).all(|other| {
                group.anchors[other].inputs.iter().all(|&input| !plan.depends(input, end.result, &[]))
            });
        let summed = infer::reduced_axes(&shaped.partition.ops()[group.anchors[sum].op], dims).ok()?;
        let is_outer = summed.iter().all(|&axis| axis + 2 < dims.len());
        if !is_only_use || !is_outer || axes.as_ref().is_some_and(|axes| *axes != summed) {
            return None;
        }
        axes = Some(summed);
        sums[place] = Some(sum);
    }
    axes.map(|axes| (sums, axes))
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
