//! Rows that are computed in parts.

/// The pass of a kernel whose results depend on two statistics of the whole row.
/// A row that is computed in parts takes two passes: each part is measured, the statistics of the parts
/// are joined in order, and each part gets its results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowPass {
    /// Measures the row and writes its results.
    Whole,
    /// Writes the two statistics alone.
    Measure,
    /// Reads the two statistics and writes the results.
    Results,
}
