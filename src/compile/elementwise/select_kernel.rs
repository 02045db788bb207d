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
    if op == ScalarOp::Select {
        let stages = [true, false].map(|taken| fused::select(width, taken)[level.row()]);
        let shape = match stages {
            [Some(if_true), Some(if_false)] => Some(StageShape::Select { if_true, if_false }),
            _ => None,
        };
        return Ok((Instr::Select(select_instr(width, operands, level, stores, input, distance)), shape));
    }
    let found = match operands[..] {
        [(x, _)] => of_one(op, x, level),
        [x, y] => of_two(op, [x, y], level),
        [(Operand::Access(access), _), (seed, _), (offset, _), (probability, _)]
            if op == ScalarOp::IsKept =>
        {
            let kernel = pointwise::is_kept(level);
            Some((Instr::IsKept { access, seed, offset, probability, kernel }, None))
        }
        _ => None,
    };
    found.ok_or(NoKernel(op))
}

/// The kernel for an instruction of one operand.
fn of_one(op: ScalarOp, x: Operand, level: Level) -> Option<(Instr, Option<StageShape>)> {
    let one = |impls: Impls<Kernel1>, params| Instr::Unary { x, kernel: impls.kernel, params };
    let number = |impls: Impls<Kernel1>, params: Params| {
        let Impls { produces_noncanonical_nan, .. } = impls;
        (
            one(impls, params),
            impls.stage.map(|stage| StageShape::Number1 { stage, params, produces_noncanonical_nan }),
        )
    };
    Some(match op {
        ScalarOp::Unary(function, params, of) => number(pointwise::unary(level, function, of)?, params),
        ScalarOp::Not => {
            let impls = pointwise::not(level);
            (one(impls, NO_PARAMS), impls.stage.map(StageShape::Not))
        }
        ScalarOp::Classify(class, of) => {
            let impls = pointwise::classify(level, class, of)?;
            (one(impls, NO_PARAMS), impls.stage.map(|stage| StageShape::Predicate1(stage, NO_PARAMS)))
        }
        ScalarOp::Sign(sign, of) => {
            let impls = pointwise::sign(level, of, sign)?;
            (one(impls, NO_PARAMS), impls.stage.map(StageShape::Bits))
        }
        ScalarOp::Convert(from, to) => number(pointwise::convert(level, from, to)?, NO_PARAMS),
        ScalarOp::Round(to) => number(pointwise::round_to(level, to)?, NO_PARAMS),
        ScalarOp::Index => match x {
            Operand::Access(access) => (Instr::Index { access, kernel: pointwise::indices(level) }, None),
            Operand::Step(_) => return None,
        },
        _ => return None,
    })
}

/// The kernel for an instruction of two operands.
fn of_two(
    op: ScalarOp,
    [(x, x_runs), (y, y_runs)]: [(Operand, InnerStride); 2],
    level: Level,
) -> Option<(Instr, Option<StageShape>)> {
    let two = |impls: Impls<Kernel2>, params| Instr::Binary { x, y, kernel: impls.kernel, params };
    Some(match op {
        ScalarOp::Binary(function, params, of) => {
            let impls = pointwise::binary(level, function, of, x_runs, y_runs)?;
            let (commutes, produces_noncanonical_nan) =
                (function.commutes(), impls.produces_noncanonical_nan);
            let shape = |stage| StageShape::Number2 { stage, params, commutes, produces_noncanonical_nan };
            (two(impls, params), impls.stage.map(shape))
        }
        ScalarOp::Compare(comparison, of) => {
            let (impls, swapped) = pointwise::compare(level, comparison, of, x_runs, y_runs)?;
            let stages = impls.stage.zip(swapped);
            let shape = stages.map(|(stage, swapped)| StageShape::Predicate2 { stage, swapped });
            (two(impls, NO_PARAMS), shape)
        }
        ScalarOp::Logic(logic) => {
            let impls = pointwise::logic(level, logic, x_runs, y_runs);
            let stages = impls.stage.zip(fused::logic_masks(logic)[level.row()]);
            let shape = stages.map(|(stage, of_masks)| StageShape::Logic { stage, of_masks });
            (two(impls, NO_PARAMS), shape)
        }
        ScalarOp::Nibbles(of) => match (x, y) {
            (Operand::Access(index), Operand::Access(from)) => {
                (Instr::Nibbles { index, from, kernel: pointwise::nibbles(level, of)? }, None)
            }
            _ => return None,
        },
        _ => return None,
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
