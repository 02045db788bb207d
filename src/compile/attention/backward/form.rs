//! The values and the axes of gradients of attention.

use smallvec::SmallVec;

use crate::compile::elementwise::ShapedGroup;
use crate::compile::phases::PlanBuilder;
use crate::graph::infer;
use crate::kernels::Extent;
use crate::kernels::attention::QUERIES;
use crate::partition::matches::GradientRoles;
use crate::plan::{KEYS, ValueId};
use crate::types::fallback::{FallbackReason, FallbackReason as R};
use crate::types::function::computes_in_f32;
use crate::types::kind::Attr;
use crate::types::shape::{Dims, SaturatingProduct};

/// The values and the axes of the gradients. Axes count those of the scores.
pub(super) struct BackwardShape {
    pub(super) roles: RoleValues,
    /// P as dV = Pᵀ·dO takes it, and dS as dQ = dS·K and dK = dSᵀ·Q take it.
    pub(super) p: Option<ValueId>,
    pub(super) ds: Option<ValueId>,
    /// True if ops behind a SoftMax need the scores again.
    pub(super) needs_scores: bool,
    /// The sums over heads behind the gradients of keys and values, by their anchors, and the axes.
    pub(super) sums: [Option<usize>; 3],
    pub(super) summed: SmallVec<[usize; 6]>,
    pub(super) dims: Dims,
    pub(super) depth: usize,
    pub(super) value_columns: usize,
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
    fn new(plan: &PlanBuilder<'_>, op: usize) -> Result<Self, FallbackReason> {
        let group = plan.group();
        let anchor = group.anchor(op).ok_or(R::OtherOps)?;
        let of = &group.anchors[anchor];
        let &[left, right] = &of.inputs[..] else { return Err(R::BiasOfProduct) };
        Ok(Self {
            anchor,
            left,
            right,
            result: of.outputs[0],
            transposes_left: plan.op(op).bool_attr(Attr::TransposeA),
            transposes_right: plan.op(op).bool_attr(Attr::TransposeB),
        })
    }
}

/// The values that ops of the roles take and give.
pub(super) struct RoleValues {
    pub(super) weights: ValueId,
    pub(super) logits: ValueId,
    pub(super) scores: ProductValues,
    /// dP = dO·Vᵀ.
    pub(super) dp: Option<ProductValues>,
    /// The anchor of a SoftMax.
    pub(super) softmax: Option<usize>,
    /// The SoftMaxBackward, with the gradients that enter and leave it.
    pub(super) backward: Option<(usize, [ValueId; 2])>,
    /// The products that give dQ, dK and dV.
    pub(super) results: [Option<ProductValues>; 3],
    /// The value behind the gradients of the weights that is needed as a whole.
    pub(super) mask: Option<ValueId>,
}

/// The values that tile programs make.
struct GradientValues {
    p: Option<ValueId>,
    ds: Option<ValueId>,
    needs_scores: bool,
}

impl RoleValues {
    fn new(plan: &PlanBuilder<'_>, roles: &GradientRoles) -> Result<Self, FallbackReason> {
        let group = plan.group();
        let product = |op: Option<usize>| op.map(|op| ProductValues::new(plan, op)).transpose();
        let weights = group.results[roles.weights];
        let backward = roles.backward.and_then(|op| group.anchor(op)).map(|anchor| {
            let of = &group.anchors[anchor];
            (anchor, [of.inputs[0], of.outputs[0]])
        });
        let [dq, dk, dv] = roles.results.map(product);
        Ok(Self {
            weights,
            logits: *group.operands(weights).first().ok_or(R::OtherOps)?,
            scores: ProductValues::new(plan, roles.scores)?,
            dp: product(roles.dp)?,
            softmax: group.anchor(roles.weights),
            backward,
            results: [dq?, dk?, dv?],
            mask: roles.mask.map(|op| group.results[op]),
        })
    }

    /// The operands of all products.
    fn operands(&self) -> Vec<ValueId> {
        let products = [Some(self.scores), self.dp].into_iter().flatten();
        let products = products.flat_map(|product| [product.left, product.right]);
        products.chain(self.results.iter().flatten().map(|end| end.right)).collect()
    }

    /// The elements of a query and of a value, if all dims are those of gradients of scores of such dims.
    fn sizes(&self, plan: &PlanBuilder<'_>, dims: &Dims) -> Result<[usize; 2], FallbackReason> {
        let Self { weights, logits, scores, dp, softmax, backward, results, mask: _ } = self;
        let group = plan.group();
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
            let op = plan.op(group.anchors[anchor].op);
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
    fn made(&self, plan: &PlanBuilder<'_>, dims: &Dims) -> Result<GradientValues, FallbackReason> {
        let Self { weights, logits, scores, dp, backward, mask, .. } = self;
        let group = plan.group();
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
        if self.softmax.is_none() {
            let made = [Some(*weights), p, ds, *mask];
            let are_made = made.iter().flatten().all(|&value| plan.is_tile_program(dims, &raw, value));
            R::ComputedWeights.unless(are_made)?;
            return Ok(GradientValues { p, ds, needs_scores: false });
        }
        let before = [Some(*logits), backward.map(|(_, [given, _])| given)];
        R::ComputedLogits.unless(before.iter().flatten().all(|&value| makes(&raw, value)))?;
        let last = backward.map(|(_, [_, result])| result).or(of_dp);
        let mut supplied: SmallVec<[ValueId; 3]> = [Some(*weights), last].into_iter().flatten().collect();
        let all_made =
            |supplied: &[ValueId]| [p, ds, *mask].iter().flatten().all(|&value| makes(supplied, value));
        let needs_scores = !all_made(&supplied);
        supplied.push(scores.result);
        // The SoftMax works in the tile of the scores if nothing stands between them.
        R::ComputedWeights.unless(!needs_scores || *logits != scores.result && all_made(&supplied))?;
        Ok(GradientValues { p, ds, needs_scores })
    }
}

impl BackwardShape {
    /// The values of ops that have these roles, if the phase runs their shapes.
    pub(super) fn new(plan: &PlanBuilder<'_>, roles: GradientRoles) -> Result<Self, FallbackReason> {
        let values = RoleValues::new(plan, &roles)?;
        let dims = plan.group().values[values.scores.result].dims.clone();
        let [depth, value_columns] = values.sizes(plan, &dims)?;
        let GradientValues { p, ds, needs_scores } = values.made(plan, &dims)?;
        let summed = summed_axes(plan, &roles, &dims);
        let sum = |op: Option<usize>| op.filter(|_| summed.is_some()).and_then(|op| plan.group().anchor(op));
        Ok(Self {
            roles: values,
            p,
            ds,
            needs_scores,
            sums: roles.sums.map(sum),
            summed: summed.unwrap_or_default(),
            dims,
            depth,
            value_columns,
        })
    }

    /// The anchors that the phase computes.
    pub(super) fn anchors(&self) -> impl Iterator<Item = usize> {
        let RoleValues { scores, dp, softmax, backward, results, .. } = &self.roles;
        let products = [Some(*scores), *dp].into_iter().chain(*results);
        let products = products.map(|product| product.map(|product| product.anchor));
        let softmax = [*softmax, backward.map(|(anchor, _)| anchor)];
        products.chain(softmax).chain(self.sums).flatten()
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
        let RoleValues { dp, softmax, backward, results, .. } = &self.roles;
        let deep = 1 + results[..2].iter().flatten().count();
        let wide = usize::from(dp.is_some()) + results[2].iter().count();
        let again = match (softmax, backward) {
            (Some(_), Some(_)) => self.depth + self.value_columns,
            (Some(_), None) => self.depth,
            (None, _) => 0,
        };
        pairs.saturating_mul(2 * (deep * self.depth + wide * self.value_columns + again))
    }

    /// Queries of a block, and keys.
    pub(super) fn tile(&self) -> Extent {
        Extent { rows: self.keys().min(KEYS), columns: self.queries().min(QUERIES) }
    }
}

/// The axes of the sums over heads behind dK and dV, if both have the same: the phase makes these sums.
fn summed_axes(plan: &PlanBuilder<'_>, roles: &GradientRoles, dims: &Dims) -> Option<SmallVec<[usize; 6]>> {
    let axes = |&op: &usize| infer::reduced_axes(plan.op(op), dims).ok();
    let mut of_sums = roles.sums.iter().flatten().map(axes);
    let first = of_sums.next()??;
    let is_alike = of_sums.all(|axes| axes.as_ref() == Some(&first));
    (is_alike && first.iter().all(|&axis| axis + 2 < dims.len())).then_some(first)
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
