//! The rewrites: forms that exporters write, and the forms that fuse.

use super::codes::coded_enum;

coded_enum! {
    /// A form of several ops that [`Graph::partitions`](crate::Graph::partitions) replaces with another one,
    /// which a fusion runs faster. [`Graph::set_rewrite`](crate::Graph::set_rewrite) turns one off.
    ///
    /// A row applies if no value inside of its pattern is an output or is used by another op, and if all its
    /// ops then run in one partition, which of a form of attention is one of attention.
    /// [`Partition::ops`](crate::Partition::ops) and the ports of the partition stay those of the graph;
    /// [`Partition::rewrites`](crate::Partition::rewrites) names the rows.
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
        /// Heads of keys and values that are repeated become groups of queries.
        RepeatedHeads = 2 => "repeated-heads",
        /// A guard of the SoftMax of rows without keys becomes the mode of the SoftMax.
        GuardedSoftmax = 3 => "guarded-softmax",
        /// A reshape between the products of attention moves to their operands and their result.
        ReshapeInsideAttention = 4 => "reshape-inside-attention",
        /// `x · rsqrt(mean(x²) + ε)`, written out, becomes `RMSNorm`.
        RmsNorm = 5 => "rms-norm",
        /// `(x − mean(x)) · rsqrt(mean((x − mean(x))²) + ε)`, written out, becomes `LayerNorm`.
        LayerNorm = 6 => "layer-norm",
        /// `½ · x · (1 + tanh(√(2/π) · (x + 0.044715 · x³)))`, written out, becomes `GELU`.
        GeluTanh = 7 => "gelu-tanh",
        /// The maximum along the axis of a SoftMax is not taken off before it, as the SoftMax does so.
        SoftmaxShift = 8 => "softmax-shift",
        /// `exp(x − max(x)) / Σ`, written out, becomes `SoftMax`, of a column more if there is an addend.
        WrittenSoftmax = 9 => "written-softmax",
        /// The product of values with weights becomes that of the weights with the values.
        TransposedWeights = 10 => "transposed-weights",
    }
}

/// The words on a rewrite.
struct Words {
    pattern: &'static str,
    condition: &'static str,
    accuracy: &'static str,
}

impl Rewrite {
    /// True for the forms of attention, which apply in partitions of attention alone.
    pub(crate) const fn is_of_attention(self) -> bool {
        !matches!(
            self,
            Self::RmsNorm | Self::LayerNorm | Self::GeluTanh | Self::SoftmaxShift | Self::WrittenSoftmax
        )
    }

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
            Self::RepeatedHeads => &Words {
                pattern: "keys and values [b, h, 1, s, d] that a Select of equals, a Multiply by ones or a \
                          Concat of copies makes [b, h, g, s, d], reshaped to [b, h·g, s, d], in attention",
                condition: "all dims are known; both are repeated alike",
                accuracy: "none beyond that of attention",
            },
            Self::GuardedSoftmax => &Words {
                pattern: "a SoftMax and a Select that puts 0 where a weight is NaN",
                condition: "the test is IsNaN, or NotEqual or Equal of the weights with themselves; an op \
                            Fill gives the 0",
                accuracy: "a row whose scores have a NaN or +∞ is NaN, not 0; none for other rows",
            },
            Self::ReshapeInsideAttention => &Words {
                pattern: "a StaticReshape of the dims before queries and keys, between the products of \
                          attention, or one with a StaticTranspose that makes heads of columns of a \
                          product, or columns of heads",
                condition: "all dims are known",
                accuracy: "none beyond that of attention",
            },
            Self::RmsNorm => &Words {
                pattern: "a ReduceMean of squares along the last dims, plus a number, its Sqrt and \
                          Reciprocal, Divide or Pow, the product with the data, and perhaps a Multiply by a \
                          number for each column, and conversions from bf16 or f16 and back",
                condition: "an op Fill gives the f32 that is added; the last dims are known; the factor has \
                            them",
                accuracy: "the roundings between, and that before the factor, become those of RMSNorm; a \
                           row whose squares leave f32 is normalised, not 0",
            },
            Self::LayerNorm => &Words {
                pattern: "as rms-norm, of the data less their mean, and with an Add behind the Multiply",
                condition: "as rms-norm; factor and addend are both there, or stay",
                accuracy: "the roundings between, and that before the factor, become those of LayerNorm, \
                           which takes distances from a more exact mean; a row whose squares leave f32 is \
                           normalised, not 0",
            },
            Self::GeluTanh => &Words {
                pattern: "½ · x · (1 + tanh(p)) by products of any order, where p is the polynomial in x \
                          that GELU has, by any sums and products of numbers and powers",
                condition: "ops Fill give the numbers, as exact as the type of the data allows",
                accuracy: "one rounding in place of those between; where the sum of 1 and tanh cancels, \
                           below about -3, the digits that it loses stay",
            },
            Self::SoftmaxShift => &Words {
                pattern: "a SoftMax of a tensor less its maximum, which a ReduceMax finds",
                condition: "the maximum is that along the axis of the SoftMax, whose mode is none and whose \
                            statistics are not wanted",
                accuracy: "the rounding of the difference goes; a row that has a NaN or +∞, or no other \
                           number than −∞, is NaN in both",
            },
            Self::WrittenSoftmax => &Words {
                pattern: "exp(x − m) / (Σ + n · exp(−m)) by Divide, or by Reciprocal and Multiply, where m \
                          is the maximum, or 0, and Σ the sum of the exponentials; n may be 0",
                condition: "the sum and the maximum keep their dims; with an n, an op Fill gives it, all \
                            dims are known, and the axis is the last",
                accuracy: "the roundings between become those of SoftMax; a row whose exponentials leave \
                           the type is normalised; with an n and a maximum a row of −∞ is 0, not NaN",
            },
            Self::TransposedWeights => &Words {
                pattern: "a MatMul whose right operand is the result of a SoftMax, transposed or not",
                condition: "all dims are known",
                accuracy: "none beyond that of attention",
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
