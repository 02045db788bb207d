//! The memory from which the size of scores is bounded before any of them is computed.

use smallvec::SmallVec;

use crate::kernels::Extent;
use crate::kernels::mask_scan::Scanned;
use crate::plan::access::Base;
use crate::types::dtype::DataType;
use crate::types::shape::SaturatingProduct;

/// Queries and keys, whose largest elements bound the size of all scores.
#[derive(Debug, Clone)]
pub(crate) struct ScoreBound {
    pub(crate) operands: [ScoreOperand; 2],
    /// Products that are added up to a score.
    pub(crate) depth: usize,
}

/// An operand of the product that makes the scores.
#[derive(Debug, Clone)]
pub(crate) struct ScoreOperand {
    pub(crate) base: Base,
    /// Bytes from the base to the first element.
    pub(crate) offset: isize,
    pub(crate) data_type: DataType,
    /// The axes around tokens, without those that share their elements: extents, and bytes from one index to
    /// the next.
    pub(crate) outer: SmallVec<[(usize, isize); 6]>,
    /// Tokens, and the elements of one, with the bytes from one to the next.
    pub(crate) tokens: (usize, isize),
    pub(crate) elements: (usize, isize),
}

impl ScoreOperand {
    /// Tokens of a task.
    const TOKENS: usize = 256;

    fn blocks(&self) -> usize {
        self.tokens.0.div_ceil(Self::TOKENS)
    }

    /// Number of blocks of tokens that hold all elements.
    pub(crate) fn tasks(&self) -> usize {
        self.outer.iter().map(|&(extent, _)| extent).saturating_product().saturating_mul(self.blocks())
    }

    /// The elements of a task, for an operand whose first element is at an address.
    pub(crate) fn scanned(&self, start: *const u8, task: usize) -> Scanned {
        let (mut place, first) = (task / self.blocks(), task % self.blocks() * Self::TOKENS);
        let mut at = start.wrapping_offset(self.tokens.1 * first as isize);
        for &(extent, stride) in &self.outer {
            at = at.wrapping_offset(stride * (place % extent) as isize);
            place /= extent;
        }
        let extent = Extent { rows: Self::TOKENS.min(self.tokens.0 - first), columns: self.elements.0 };
        Scanned { at, row_stride: self.tokens.1, col_stride: self.elements.1, extent }
    }
}
