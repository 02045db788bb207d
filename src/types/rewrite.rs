//! The rewrites: forms that exporters write, and the forms that fuse.

use super::codes::coded_enum;

coded_enum! {
    /// A form of several ops that [`Graph::partitions`](crate::Graph::partitions) replaces with another one,
    /// which a fusion runs faster. [`Graph::set_rewrite`](crate::Graph::set_rewrite) turns one off.
    ///
    /// A row applies if no value inside of its pattern is an output or is used by another op, and if all its
    /// ops then run in one partition of attention. [`Partition::ops`](crate::Partition::ops) and the ports of
    /// the partition stay those of the graph; [`Partition::rewrites`](crate::Partition::rewrites) names the
    /// rows.
    ///
    /// ```
    /// use sterna::Rewrite;
    /// let row: Rewrite = "scale-to-queries".parse()?;
    /// assert_eq!(row, Rewrite::ScaleToQueries);
    /// println!("{}: {} if {}; accuracy: {}", row, row.pattern(), row.condition(), row.accuracy());
    /// # Ok::<(), sterna::UnknownName>(())
    /// ```
    pub enum Rewrite: "rewrite" {
        /// A factor of all keys becomes one of the queries or of the scores.
        ScaleToQueries = 1 => "scale-to-queries",
    }
}

/// The words on a rewrite.
struct Words {
    pattern: &'static str,
    condition: &'static str,
    accuracy: &'static str,
}

impl Rewrite {
    const fn words(self) -> &'static Words {
        match self {
            Self::ScaleToQueries => &Words {
                pattern: "a product whose right operand, transposed or reshaped, is multiplied with or \
                          divided by one number",
                condition: "f32 or bf16; the result leads to a SoftMax; the queries are an input or the \
                            scores are f32",
                accuracy: "one rounding moves from the keys to the queries or the scores; a product that \
                           leaves the range of the type may do so elsewhere",
            },
        }
    }

    /// The ops that the row looks for.
    #[must_use]
    pub const fn pattern(self) -> &'static str {
        self.words().pattern
    }

    /// When the row applies.
    #[must_use]
    pub const fn condition(self) -> &'static str {
        self.words().condition
    }

    /// The change in accuracy; "none" if all bits stay.
    #[must_use]
    pub const fn accuracy(self) -> &'static str {
        self.words().accuracy
    }
}
