//! The arguments and results of the bodies of every level.

/// Prefetch distance of each branch in bytes; 0 for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PrefetchDistance {
    pub(crate) then: isize,
    pub(crate) else_: isize,
}

/// The class of a mask: uniform, or mixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MaskClass {
    AllTrue,
    AllFalse,
    Mixed,
}

impl MaskClass {
    /// From whether some condition is true, and whether some is false.
    pub(super) fn of(some_true: bool, some_false: bool) -> Self {
        match (some_true, some_false) {
            (true, true) => Self::Mixed,
            (false, true) => Self::AllFalse,
            (_, false) => Self::AllTrue,
        }
    }
}
