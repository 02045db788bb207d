//! The outcome of register fusion for each step, as data.

use std::fmt::{self, Display, Formatter};

/// The outcome of register fusion for a step of a plan, and why it did no more.
///
/// A fused step is several operations, whose intermediate values stay in registers. [`Display`] gives the
/// reason in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RegisterFusionVerdict {
    /// The step is several fused operations.
    Fused,
    /// The step could be fused, but with no step beside it.
    NoPartner,
    /// The nest has two steps, and the caches hold its data: a second pass costs less than fusion saves.
    PairInCaches,
    /// The operation has no fused form for its types at the CPU level of the plan.
    NoStage,
    /// The result is the same along the rows or the columns of a tile, so it is computed less often than that
    /// of the steps around it.
    Repeated,
    /// The rows are so short that blocks of registers would be half empty.
    ShortRows,
    /// The mask test of the step may skip operations that have no fused form.
    SkipsWork,
    /// The result is written to an output.
    Stored,
    /// The step that uses the result varies along other loops.
    OtherLoops,
    /// Steps outside of the fused kernel use the result too.
    UsedElsewhere,
    /// The fused kernel has the most operations that one may have.
    TooLong,
    /// The fused kernel was given up, because its values or operands have no stage at the CPU level of the
    /// plan.
    NoProgram,
}

impl RegisterFusionVerdict {
    /// True if a step stands alone although another step is beside it.
    pub(super) fn is_refusal(self) -> bool {
        !matches!(self, Self::Fused | Self::NoPartner)
    }
}

impl Display for RegisterFusionVerdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fused => "fused in registers",
            Self::NoPartner => "no step beside it to fuse with",
            Self::PairInCaches => "two steps whose data the caches hold",
            Self::NoStage => "no fused form of the operation",
            Self::Repeated => "computed less often than the steps around it",
            Self::ShortRows => "rows too short for blocks",
            Self::SkipsWork => "may skip operations that have no fused form",
            Self::Stored => "its result is an output",
            Self::OtherLoops => "its user varies along other loops",
            Self::UsedElsewhere => "other steps use its result",
            Self::TooLong => "the fused kernel is full",
            Self::NoProgram => "no fused form of its values",
        })
    }
}
