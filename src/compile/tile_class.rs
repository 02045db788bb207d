//! Lowers the value that enters SoftMax to a mask expression, from which the classes of tiles are found. An
//! expression keeps the operations whose bounds can be computed: arithmetic, comparisons, logic, selects and
//! conversions of indices, numbers and elements in memory. Any other operation becomes [`MaskOp::Any`], any
//! value of the type, so that the bounds are never wrong.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::elementwise::{Moved, NestBox, ShapedGroup, Stored, View};
use crate::graph::function::Function;
use crate::kernels::mask_scan::ScanKernels;
use crate::plan::{
    Base, ClassifyPhase, MaskElement, MaskExpr, MaskNode, MaskOp, OfValues, TileClassUses, ValueId,
};
use crate::types::dtype::DataType;
use crate::types::function::Binary;
use crate::types::kind::Level;
use crate::types::shape::{self, Dims};

/// Largest depth of an expression: evaluation is recursive, and stacks of threads are small.
const MAX_DEPTH: usize = 64;

/// Most operations of an expression.
const MAX_NODES: usize = 256;

/// Scores whose tiles are classified, and the use of the classes.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClassifiedScores<'a> {
    /// The value that the driver supplies.
    pub(super) scores: ValueId,
    /// The value that enters the SoftMax, whose dims are the space of scores.
    pub(super) logits: ValueId,
    pub(super) query_axis: usize,
    pub(super) key_axis: usize,
    /// True if an Exp takes the place of the SoftMax.
    pub(super) is_exponent: bool,
    /// True if the masked parts of partial tiles are left out.
    pub(super) divides: bool,
    /// The sums with masks that the program for unmasked tiles leaves out.
    pub(super) sums_left_out: &'a [ValueId],
}

/// The phase that finds the classes of tiles; `None` if nothing masks the logits.
pub(super) fn classify_phase(
    group: &ShapedGroup,
    stored: &OfValues<Option<Stored<'_>>>,
    of: ClassifiedScores<'_>,
    table: Base,
    level: Level,
) -> Option<ClassifyPhase> {
    let ClassifiedScores { logits, query_axis, key_axis, is_exponent, divides, .. } = of;
    let expr = mask_expr(group, stored, of);
    let dims = &group.values[logits].dims;
    let uses = TileClassUses { is_exponent, divides };
    (!expr.is_unmasked())
        .then(|| ClassifyPhase::new(expr, dims, (query_axis, key_axis), uses, table, ScanKernels::of(level)))
}

/// The value that enters SoftMax, over the space of its own dims.
pub(super) fn mask_expr(
    group: &ShapedGroup,
    stored: &OfValues<Option<Stored<'_>>>,
    ClassifiedScores { scores: score, logits: root, sums_left_out, .. }: ClassifiedScores<'_>,
) -> MaskExpr {
    let mut reads_score = OfValues::new(group.values.len(), false);
    for value in group.values.ids() {
        reads_score[value] =
            value == score || group.operands(value).into_iter().any(|operand| reads_score[operand]);
    }
    let dims = &group.values[root].dims;
    let mut lowering = MaskLowering {
        group,
        stored,
        dims,
        score,
        sums_left_out,
        reads_score,
        nodes: Vec::new(),
        known: FxHashMap::default(),
    };
    let view = NestBox::of_dims(dims).view();
    lowering.node(root, &view, 0);
    MaskExpr { nodes: lowering.nodes }
}

struct MaskLowering<'a> {
    group: &'a ShapedGroup,
    stored: &'a OfValues<Option<Stored<'a>>>,
    /// The space of scores.
    dims: &'a Dims,
    score: ValueId,
    sums_left_out: &'a [ValueId],
    /// True if a value depends on the raw score.
    reads_score: OfValues<bool>,
    nodes: Vec<MaskNode>,
    /// The nodes of a value, each with the view that it has of the value.
    known: FxHashMap<ValueId, SmallVec<[(View, usize); 1]>>,
}

impl MaskLowering<'_> {
    /// The node of a view of a value.
    fn node(&mut self, value: ValueId, view: &View, depth: usize) -> usize {
        let known = self.known.get(&value).and_then(|nodes| nodes.iter().find(|(known, _)| known == view));
        if let Some(&(_, node)) = known {
            return node;
        }
        let node = match depth < MAX_DEPTH && self.nodes.len() < MAX_NODES {
            true => self.lowered(value, view, depth).unwrap_or_else(|| self.any(value)),
            false => self.any(value),
        };
        self.known.entry(value).or_default().push((view.clone(), node));
        node
    }

    /// The node of a view of a value, if the expression can say anything about it.
    fn lowered(&mut self, value: ValueId, view: &View, depth: usize) -> Option<usize> {
        let group = self.group;
        let of_type = group.values[value].data_type;
        if value == self.score {
            return Some(self.push(MaskOp::Score, of_type, SmallVec::new(), 0, true));
        }
        if let (Some(stored), false) = (self.stored[value], self.reads_score[value]) {
            return self.element(stored, value, view);
        }
        let def = group.values[value].def.as_ref()?;
        let op = match def.pointwise.function {
            Function::Identity | Function::Move(_) => {
                let (operand, view) = self.operand(value, 0, view)?;
                return Some(self.node(operand, &view, depth + 1));
            }
            Function::Index => return self.index(value, def.axis, view),
            Function::Fill(_) => {
                let &[number] = &def.constants[..] else { return None };
                let number = number_of_type(number, of_type)?;
                return Some(self.push(MaskOp::Number(number), of_type, SmallVec::new(), 0, false));
            }
            Function::IsKept => return None,
            Function::Unary(unary, params) => MaskOp::Unary(unary, params),
            Function::Binary(Binary::Add, _) if self.sums_left_out.contains(&value) => MaskOp::LeftOutSum,
            Function::Binary(binary, _) => MaskOp::Binary(binary),
            Function::Compare(comparison) => MaskOp::Compare(comparison),
            Function::Logic(logic) => MaskOp::Logic(logic),
            Function::Not => MaskOp::Not,
            Function::Sign(sign) => MaskOp::Sign(sign),
            Function::Classify(class) => MaskOp::Classify(class),
            Function::Select => MaskOp::Select,
            Function::Convert => MaskOp::Convert,
        };
        let mut operands = SmallVec::new();
        for index in 0..def.operands.len() {
            operands.push(match self.operand(value, index, view) {
                Some((operand, view)) => self.node(operand, &view, depth + 1),
                None => self.any(def.operands[index].0),
            });
        }
        let varies = operands.iter().fold(0, |varies, &operand: &usize| varies | self.nodes[operand].varies);
        Some(self.push(op, of_type, operands, varies, self.reads_score[value]))
    }

    /// An operand of a value, and the view of it; `None` if no strides along the axes of the space lead to
    /// its elements.
    fn operand(&self, value: ValueId, index: usize, view: &View) -> Option<(ValueId, View)> {
        let group = self.group;
        let (of_value, def) = (&group.values[value], group.values[value].def.as_ref()?);
        if let Some(Moved::Concatenated { axis, firsts }) = &def.moved {
            let (index, view) = view.concatenated(&of_value.dims, *axis, firsts, self.dims).ok()?;
            return Some((def.operands[index].0, view));
        }
        let (operand, start) = def.operands[index];
        let view = match def.moved.is_none() && group.values[operand].dims == of_value.dims {
            true => view.clone(),
            false => group.operand_view(value, operand, start, view, self.dims).ok()?,
        };
        Some((operand, view))
    }

    /// The elements of a value in memory.
    fn element(&mut self, stored: Stored<'_>, value: ValueId, view: &View) -> Option<usize> {
        let of_value = &self.group.values[value];
        if matches!(stored.base, Base::Driver(_) | Base::Index) {
            return None;
        }
        let bytes = of_value.data_type.size()? as i64;
        let dense;
        let strides = match stored.strides {
            Some(strides) => strides,
            None => {
                dense = shape::own_strides(&of_value.dims);
                &dense[..]
            }
        };
        let (offset, along) = view.strides(&of_value.dims, strides, self.dims).ok()?;
        let in_bytes = |(&stride, &dim): (&i64, &i64)| if dim == 1 { 0 } else { (stride * bytes) as isize };
        let strides: SmallVec<[isize; 6]> = along.iter().zip(self.dims).map(in_bytes).collect();
        let varies = axes_of(strides.iter().map(|&stride| stride != 0));
        let element = MaskElement { base: stored.base, offset: (offset * bytes) as isize, strides };
        Some(self.push(MaskOp::Element(element), of_value.data_type, SmallVec::new(), varies, false))
    }

    /// The indices along a dim of a value.
    fn index(&mut self, value: ValueId, dim: usize, view: &View) -> Option<usize> {
        let of_value = &self.group.values[value];
        let of_dims = view.by_dims(&of_value.dims, self.dims).ok()?;
        let run = &of_dims.runs[dim];
        let mut steps = SmallVec::from_elem(0, self.dims.len());
        let (mut least, mut most) = (run.offset, run.offset);
        for term in &run.terms {
            let growth = term.step.checked_mul(self.dims[term.axis] - 1)?;
            (least, most) = (least.checked_add(growth.min(0))?, most.checked_add(growth.max(0))?);
            if self.dims[term.axis] != 1 {
                steps[term.axis] += term.step;
            }
        }
        let fits = match of_value.data_type {
            DataType::S32 => i32::try_from(least).is_ok() && i32::try_from(most).is_ok(),
            DataType::S64 => true,
            _ => false,
        };
        let varies = axes_of(steps.iter().map(|&step: &i64| step != 0));
        let op = MaskOp::Index { first: run.offset, steps };
        fits.then(|| self.push(op, of_value.data_type, SmallVec::new(), varies, false))
    }

    /// Any value of the type of a value.
    fn any(&mut self, value: ValueId) -> usize {
        let reads_score = self.reads_score[value];
        self.push(MaskOp::Any, self.group.values[value].data_type, SmallVec::new(), 0, reads_score)
    }

    fn push(
        &mut self,
        op: MaskOp,
        data_type: DataType,
        operands: SmallVec<[usize; 3]>,
        varies: u16,
        reads_score: bool,
    ) -> usize {
        self.nodes.push(MaskNode { op, data_type, operands, reads_score, varies });
        self.nodes.len() - 1
    }
}

/// The set of axes that vary, one bit each.
fn axes_of(varies: impl Iterator<Item = bool>) -> u16 {
    varies.enumerate().filter(|&(_, varies)| varies).fold(0, |axes, (axis, _)| axes | 1 << axis)
}

/// The number that a fill with `number` holds in a type; `None` for types that are not followed.
fn number_of_type(number: f32, of: DataType) -> Option<f64> {
    Some(match of {
        DataType::F32 | DataType::F64 => number.into(),
        DataType::F16 => half::f16::from_f32(number).to_f64(),
        DataType::Bf16 => half::bf16::from_f32(number).to_f64(),
        DataType::Boolean => f64::from(number != 0.0),
        _ if of.size().is_some() => f64::from(number.trunc()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
