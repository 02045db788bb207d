//! The part of the chain between its first product and its SoftMax that attention computes without a tile
//! program: a factor on all scores, and a mask of booleans in memory.

use half::bf16;

use super::shape::Shape;
use crate::compile::elementwise::ShapedGroup;
use crate::compile::phases::{AxisStrides, PlanBuilder};
use crate::graph::function::Function;
use crate::kernels::InnerStride;
use crate::kernels::pointwise::{Kernel2, binary};
use crate::plan::{Access, AccessId, Base, LoopNest, ScoreFactor, TensorMask, ValueId};
use crate::types::dtype::DataType;
use crate::types::function::Binary;
use crate::types::shape;

/// The scores times one number, or divided by it.
pub(super) struct ScaledScores {
    /// The product.
    pub(super) value: ValueId,
    divides: bool,
    kernel: Kernel2,
    number: Base,
    data_type: DataType,
    /// Bytes from the base to the number.
    offset: isize,
}

impl ScaledScores {
    /// `None` unless everything that reads the scores reads them scaled, and scores and number have one of
    /// some types. The number of scores that are not in f32 has to be applied before they are rounded.
    pub(super) fn find(plan: &mut PlanBuilder<'_>, scores: ValueId, types: &[DataType]) -> Option<Self> {
        let group = plan.group();
        let mut users = group.values.ids().filter(|&user| group.operands(user).contains(&scores));
        let (value, None) = (users.next()?, users.next()) else { return None };
        let def = group.values[value].def.as_ref()?;
        let Function::Binary(function @ (Binary::Multiply | Binary::Divide), _) = def.pointwise.function
        else {
            return None;
        };
        let factor = match def.operands[..] {
            [(first, _), (factor, _)] if first == scores && factor != scores => factor,
            [(factor, _), (second, _)] if second == scores && function == Binary::Multiply => factor,
            _ => return None,
        };
        let [of_value, of_scores] = [value, scores].map(|value| &group.values[value]);
        let is_alike = of_value.dims == of_scores.dims && of_value.data_type == of_scores.data_type;
        let data_type = group.values[factor].data_type;
        if !is_alike || !types.contains(&of_scores.data_type) || !types.contains(&data_type) {
            return None;
        }
        let (numbers, number) = (InnerStride::Contiguous, InnerStride::Broadcast);
        let kernel = binary(plan.level, function, DataType::F32, numbers, number)?.kernel;
        let (number, offset) = scalar(plan, factor, data_type)?;
        Some(Self { value, divides: function == Binary::Divide, kernel, number, data_type, offset })
    }

    /// The factor, with an access of its own in a nest.
    pub(super) fn attach(self, nest: &mut LoopNest) -> ScoreFactor {
        let Self { divides, kernel, number: base, data_type, offset, .. } = self;
        let access = Access { base, offset, row_stride: 0, col_stride: 0 };
        ScoreFactor { number: add_access(nest, access, |_| 0), data_type, divides, kernel }
    }
}

/// A mask behind all other ops on the scores, whose condition is in memory.
pub(super) struct BooleanMask {
    condition: Access,
    /// Bytes of the condition along the axes of the scores.
    strides: AxisStrides,
    fill: (Base, isize),
    keeps: bool,
}

impl BooleanMask {
    /// The mask of the logits, if it is the only one between `from` and them and its booleans of a query lie
    /// key by key.
    pub(super) fn find(plan: &mut PlanBuilder<'_>, shape: &Shape, from: ValueId) -> Option<Self> {
        let group = plan.group();
        let def = group.values[shape.logits].def.as_ref()?;
        let [(condition, start), (then, _), (else_, _)] = def.operands[..] else { return None };
        let is_select = def.pointwise.function == Function::Select
            && group.values[shape.logits].data_type == DataType::F32
            && group.values[condition].data_type == DataType::Boolean;
        let is_score = |value: ValueId| plan.depends(value, from, &[]);
        let (scores, fill) = match (is_score(then), is_score(else_)) {
            (true, false) => (then, else_),
            (false, true) => (else_, then),
            _ => return None,
        };
        // One path leads from the scores to the logits, as there is an unmasked program; `None` says that no
        // other mask is on it.
        if !is_select || scores != from && group.without_masks(from, scores).is_some() {
            return None;
        }
        let (tensor, offset) = plan.view(condition)?;
        let along = shape::access_strides(&tensor.dims, &tensor.strides, &shape.dims, start);
        let strides: AxisStrides = along.into_iter().map(|stride| stride as isize).collect();
        let [of_keys, of_queries] = [shape.key_axis, shape.query_axis].map(|axis| strides[axis]);
        if of_keys != 1 || of_queries == 0 {
            return None;
        }
        let condition = Access { base: tensor.base, offset, row_stride: of_keys, col_stride: of_queries };
        Some(Self { condition, strides, fill: scalar(plan, fill, DataType::F32)?, keeps: scores == then })
    }

    /// The mask, with accesses of its own in a nest; `tile` are the keys and the queries of a tile.
    pub(super) fn attach(
        self,
        shape: &Shape,
        nest: &mut LoopNest,
        [keys, queries]: [usize; 2],
    ) -> TensorMask {
        let (row_blocks, column_blocks) = (nest.row_blocks, nest.column_blocks);
        let stride = |index: usize| match shape.outer.get(index) {
            Some(&axis) => self.strides[axis],
            None if index == row_blocks => self.condition.row_stride.saturating_mul(keys as isize),
            None => {
                debug_assert_eq!(index, column_blocks);
                self.condition.col_stride.saturating_mul(queries as isize)
            }
        };
        let condition = add_access(nest, self.condition.clone(), stride);
        let (base, offset) = self.fill;
        let fill = Access { base, offset, row_stride: 0, col_stride: 0 };
        TensorMask { condition, fill: add_access(nest, fill, |_| 0), keeps: self.keeps }
    }
}

/// True if a value repeats another one bit for bit.
pub(super) fn is_copy(group: &ShapedGroup, mut value: ValueId, of: ValueId) -> bool {
    while value != of {
        let Some(def) = &group.values[value].def else { return false };
        let &[(operand, _)] = &def.operands[..] else { return false };
        let is_alike = group.values[operand].dims == group.values[value].dims
            && group.values[operand].data_type == group.values[value].data_type;
        if def.pointwise.function != Function::Identity || !is_alike {
            return false;
        }
        value = operand;
    }
    true
}

/// Where the one number of a value of a type lies.
fn scalar(plan: &mut PlanBuilder<'_>, value: ValueId, data_type: DataType) -> Option<(Base, isize)> {
    let of_value = &plan.group().values[value];
    if of_value.data_type != data_type || of_value.dims.iter().any(|&dim| dim != 1) {
        return None;
    }
    if let Some((tensor, offset)) = plan.view(value) {
        return (tensor.data_type == data_type).then_some((tensor.base, offset));
    }
    let def = of_value.def.as_ref()?;
    let (Function::Fill(_), &[number]) = (def.pointwise.function, &def.constants[..]) else { return None };
    let mut word = [0; 8];
    match data_type {
        DataType::F32 => word[..4].copy_from_slice(&number.to_ne_bytes()),
        DataType::Bf16 if !number.is_nan() => {
            word[..2].copy_from_slice(&bf16::from_f32(number).to_ne_bytes())
        }
        _ => return None,
    }
    Some((plan.constant([word]), 0))
}

/// Adds an access to a nest, given its strides along the loops.
fn add_access(nest: &mut LoopNest, access: Access, stride: impl Fn(usize) -> isize) -> AccessId {
    let id = nest.program.next_access();
    nest.program.accesses.push(access);
    nest.loops.iter_mut().enumerate().for_each(|(index, l)| l.strides.push(stride(index)));
    id
}
