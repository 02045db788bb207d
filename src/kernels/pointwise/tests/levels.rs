//! Which functions have a stage of register fusion at which level, and why the others have none: their row at
//! a level with vectors is a step over a tile, as at level Portable.

use crate::kernels::InnerStride;
use crate::kernels::pointwise::{binary, compare, unary};
use crate::types::dtype::DataType;
use crate::types::function::{Binary, Comparison, Unary};
use crate::types::function_row::CostClass;
use crate::types::kind::Level;

/// Why a function has no stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// No vectors are passed from stage to stage.
    Portable,
    /// It takes longer than a step over a tile costs.
    Heavy,
    /// Eight vector registers do not hold a block of elements of 8 bytes.
    EightBytes,
}

/// Why a function of a type has no stage at a level, if it has none.
fn reason(level: Level, cost: Option<CostClass>, of: DataType) -> Option<Reason> {
    let is_wide = matches!(of, DataType::S64 | DataType::U64 | DataType::F64);
    match (level, cost) {
        (Level::Portable, _) => Some(Reason::Portable),
        (_, Some(CostClass::Heavy)) => Some(Reason::Heavy),
        (Level::Avx2 | Level::Neon, _) if is_wide => Some(Reason::EightBytes),
        _ => None,
    }
}

#[test]
fn functions_have_stages_at_levels_with_vectors_unless_there_is_a_reason() {
    const ALONG: InnerStride = InnerStride::Contiguous;
    let mut faults = Vec::new();
    let mut check = |what: String, level, has_stage: bool, reason: Option<Reason>| {
        if has_stage == reason.is_some() {
            faults.push(format!("{what} at {level}: has a stage: {has_stage}, reason against: {reason:?}"));
        }
    };
    for level in Level::all_available() {
        for (&function, &of) in Unary::ALL.iter().flat_map(|f| DataType::WHOLE.iter().map(move |of| (f, of)))
        {
            let Some(kernels) = unary(level, function, of) else { continue };
            let reason = reason(level, function.cost_on(of), of);
            check(format!("{function:?} of {of}"), level, kernels.stage.is_some(), reason);
        }
        for (&function, &of) in Binary::ALL.iter().flat_map(|f| DataType::WHOLE.iter().map(move |of| (f, of)))
        {
            let Some(kernels) = binary(level, function, of, ALONG, ALONG) else { continue };
            let reason = reason(level, function.cost_on(of), of);
            check(format!("{function:?} of {of}"), level, kernels.stage.is_some(), reason);
        }
        for &of in DataType::WHOLE {
            let Some((kernels, _)) = compare(level, Comparison::Less, of, ALONG, ALONG) else { continue };
            let reason = reason(level, None, of);
            check(format!("Less of {of}"), level, kernels.stage.is_some(), reason);
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
