//! Selects kernels for steps, and estimates their cost.

use smallvec::SmallVec;

use crate::kernels::fused::Stage;
use crate::kernels::pointwise::{Impls, Kernel1, Kernel2, Params};
use crate::kernels::select::{self, PrefetchDistance};
use crate::kernels::{InnerStride, StorePolicy, Width, fused, pointwise};
use crate::plan::scalar_op::ScalarOp;
use crate::plan::{Branch, Instr, Operand, Select};
use crate::types::kind::Level;

/// The operands of a step with their inner strides.
pub(super) type Operands = SmallVec<[(Operand, InnerStride); 3]>;

/// A step as a part of a fused kernel.
#[derive(Debug)]
pub(super) struct Fusible {
    pub(super) shape: StageShape,
    pub(super) operands: Operands,
}

/// How a step uses the two register classes of a fused kernel: the block of elements and its mask.
#[derive(Debug, Clone, Copy)]
pub(super) enum StageShape {
    /// Nothing: the result is the operand.
    Same,
    /// A number from a number, with any NaN payload.
    Number1 { stage: Stage, params: Params, produces_noncanonical_nan: bool },
    /// A number from the bits of a number.
    Bits(Stage),
    /// A boolean from a number.
    Predicate1(Stage, Params),
    /// A number from two, with any NaN payload.
    Number2 { stage: Stage, params: Params, commutes: bool, produces_noncanonical_nan: bool },
    /// A boolean from two numbers; and the same with swapped operands.
    Predicate2 { stage: Stage, swapped: Stage },
    /// A boolean from a boolean.
    Not(Stage),
    /// A boolean from two, in any order; and the same with the second one in the saved mask.
    Logic { stage: Stage, of_masks: Stage },
    /// One of two numbers by a boolean: with the block as the number for true, and for false.
    Select { if_true: Stage, if_false: Stage },
}

/// Cost of copying an element, and of packing or unpacking a strided one.
pub(super) const COPY_COST: usize = 1;
pub(super) const PACK_COST: usize = 4;

/// No kernel runs an op on its types.
#[derive(Debug, Clone, Copy)]
pub(super) struct NoKernel(pub(super) ScalarOp);

/// Selects the kernel for an instruction and, if it can be fused, its stage. `input` says which input of the
/// partition an operand is, `distance` gives an operand's prefetch distance.
pub(super) fn instr(
    op: ScalarOp,
    width: Width,
    operands: &Operands,
    level: Level,
    stores: StorePolicy,
    input: impl Fn(Operand) -> Option<usize>,
    distance: impl Fn(Operand) -> isize,
) -> Result<(Instr, Option<StageShape>), NoKernel> {
    let none = || NoKernel(op);
    let runs = |operand: usize| operands[operand].1;
    let one = |impls: Impls<Kernel1>, params| Instr::Unary { x: operands[0].0, kernel: impls.kernel, params };
    let two = |impls: Impls<Kernel2>, params| Instr::Binary {
        x: operands[0].0,
        y: operands[1].0,
        kernel: impls.kernel,
        params,
    };
    let number = |impls: Impls<Kernel1>, params: Params| {
        let Impls { produces_noncanonical_nan, .. } = impls;
        (
            one(impls, params),
            impls.stage.map(|stage| StageShape::Number1 { stage, params, produces_noncanonical_nan }),
        )
    };
    Ok(match op {
        ScalarOp::Unary(function, params, of) => {
            number(pointwise::unary(level, function, of).ok_or_else(none)?, params)
        }
        ScalarOp::Binary(function, params, of) => {
            let impls = pointwise::binary(level, function, of, runs(0), runs(1)).ok_or_else(none)?;
            let (commutes, produces_noncanonical_nan) =
                (function.commutes(), impls.produces_noncanonical_nan);
            let shape = |stage| StageShape::Number2 { stage, params, commutes, produces_noncanonical_nan };
            (two(impls, params), impls.stage.map(shape))
        }
        ScalarOp::Compare(comparison, of) => {
            let (impls, swapped) =
                pointwise::compare(level, comparison, of, runs(0), runs(1)).ok_or_else(none)?;
            let shape =
                impls.stage.zip(swapped).map(|(stage, swapped)| StageShape::Predicate2 { stage, swapped });
            (two(impls, NO_PARAMS), shape)
        }
        ScalarOp::Logic(logic) => {
            let impls = pointwise::logic(level, logic, runs(0), runs(1));
            let of_masks = fused::logic_masks(logic)[level.row()];
            let shape =
                impls.stage.zip(of_masks).map(|(stage, of_masks)| StageShape::Logic { stage, of_masks });
            (two(impls, NO_PARAMS), shape)
        }
        ScalarOp::Not => {
            let impls = pointwise::not(level);
            (one(impls, NO_PARAMS), impls.stage.map(StageShape::Not))
        }
        ScalarOp::Classify(class, of) => {
            let impls = pointwise::classify(level, class, of).ok_or_else(none)?;
            (one(impls, NO_PARAMS), impls.stage.map(|stage| StageShape::Predicate1(stage, NO_PARAMS)))
        }
        ScalarOp::Sign(sign, of) => {
            let impls = pointwise::sign(level, of, sign).ok_or_else(none)?;
            (one(impls, NO_PARAMS), impls.stage.map(StageShape::Bits))
        }
        ScalarOp::Convert(from, to) => {
            number(pointwise::convert(level, from, to).ok_or_else(none)?, NO_PARAMS)
        }
        ScalarOp::Round(to) => number(pointwise::round_to(level, to).ok_or_else(none)?, NO_PARAMS),
        ScalarOp::Index => match operands[0].0 {
            Operand::Access(access) => (Instr::Index { access, kernel: pointwise::indices(level) }, None),
            Operand::Step(_) => return Err(none()),
        },
        ScalarOp::Nibbles(of) => match operands[..] {
            [(Operand::Access(index), _), (Operand::Access(from), _)] => {
                let kernel = pointwise::nibbles(level, of).ok_or_else(none)?;
                (Instr::Nibbles { index, from, kernel }, None)
            }
            _ => return Err(none()),
        },
        ScalarOp::IsKept => match operands[..] {
            [(Operand::Access(access), _), (seed, _), (offset, _), (probability, _)] => {
                (Instr::IsKept { access, seed, offset, probability, kernel: pointwise::is_kept(level) }, None)
            }
            _ => return Err(none()),
        },
        ScalarOp::Select => {
            let stages = [true, false].map(|taken| fused::select(width, taken)[level.row()]);
            let shape = match stages {
                [Some(if_true), Some(if_false)] => Some(StageShape::Select { if_true, if_false }),
                _ => None,
            };
            (Instr::Select(select_instr(width, operands, level, stores, input, distance)), shape)
        }
    })
}

/// Parameters of functions that have none.
pub(super) const NO_PARAMS: Params = [0.0; 2];

fn select_instr(
    width: Width,
    operands: &Operands,
    level: Level,
    stores: StorePolicy,
    input: impl Fn(Operand) -> Option<usize>,
    distance: impl Fn(Operand) -> isize,
) -> Select {
    const COND: usize = 0;
    const THEN: usize = 1;
    const ELSE: usize = 2;
    let runs = |operand: usize| operands[operand].1;
    let branch = |own: usize, other: usize| Branch {
        operand: operands[own].0,
        copy: select::copy(level, width, runs(own), stores),
        copy_in_place: select::copy(level, width, runs(own), StorePolicy::Temporal),
        // In place of `then`, elements whose condition is false are replaced; in place of `else`, those whose
        // condition is true.
        select_in_place: select::select_in_place(level, width, own == ELSE, runs(other)),
        in_place_of: input(operands[own].0),
    };
    let is_dense_memory =
        |operand: usize| matches!(operands[operand], (Operand::Access(_), InnerStride::Contiguous));
    let selects_rows = runs(COND) == InnerStride::Broadcast && is_dense_memory(THEN) && is_dense_memory(ELSE);
    let is_computed = |operand: usize| matches!(operands[operand].0, Operand::Step(_));
    Select {
        cond: operands[COND].0,
        cond_inner: runs(COND),
        then: branch(THEN, ELSE),
        else_: branch(ELSE, THEN),
        classify_mask: (is_computed(THEN) || is_computed(ELSE)).then(|| select::classify_mask(level)),
        blend: select::blend(level, width, runs(THEN), runs(ELSE), stores),
        stores,
        distance: PrefetchDistance { then: distance(operands[THEN].0), else_: distance(operands[ELSE].0) },
        blend_rows: selects_rows.then(|| select::blend_rows(level, width, stores)),
    }
}
