//! Keys or values that a phase of attention reads as they are stored, in 8 or 4 bits, and turns into f32
//! block by block.

use smallvec::SmallVec;

use crate::kernels::Extent;
use crate::kernels::gemm::StoredKernels;
use crate::plan::nest::LoopNest;

/// Tokens whose scales and zero points are converted to f32 together.
pub(crate) const SCALED_TOKENS: usize = 512;

/// The dequantisation of keys or of values.
#[derive(Debug)]
pub(crate) struct QuantizedTokens {
    /// The loops around blocks of parameters. The program takes no slot, and writes slots
    /// [`SCALES`](Self::SCALES) and [`ZEROS`](Self::ZEROS) in f32.
    pub(crate) nest: LoopNest,
    /// For each loop of the phase's nest but that over keys: tiles of this nest from one iteration to the
    /// next.
    pub(crate) tile_strides: SmallVec<[usize; 6]>,
    /// Tokens, and elements of one, that share parameters.
    pub(crate) group: Extent,
    /// All tokens, or those of a sequence.
    pub(crate) tokens: usize,
    /// Tiles of this nest from one sequence to the next, if the tokens of sequences follow each other.
    pub(crate) sequences: Option<usize>,
    /// Groups of tokens in a tile of the nest.
    pub(crate) tile_groups: usize,
    /// Numbers of a slot from one group of tokens to the next, and from one group of elements to the next.
    pub(crate) row_step: usize,
    pub(crate) column_step: usize,
    /// Numbers of a slot.
    pub(crate) numbers: usize,
    pub(crate) kernels: StoredKernels,
}

impl QuantizedTokens {
    /// The slots of the scales and of the zero points.
    pub(crate) const SCALES: usize = 0;
    pub(crate) const ZEROS: usize = 1;

    /// The sequence of a token, and the number of the token in it.
    pub(crate) fn place(&self, token: usize) -> (usize, usize) {
        match self.sequences {
            Some(_) => (token / self.tokens.max(1), token % self.tokens.max(1)),
            None => (0, token),
        }
    }

    /// The tokens from one on whose parameters are converted together with its own, of so many.
    pub(crate) fn run(&self, token: usize, count: usize) -> usize {
        let (_, of_sequence) = self.place(token);
        let of_block = SCALED_TOKENS - of_sequence % SCALED_TOKENS;
        let of_all = if self.sequences.is_some() { self.tokens - of_sequence } else { count };
        count.min(of_block).min(of_all)
    }

    /// The first and the last tile of parameters of a block of [`SCALED_TOKENS`], within one iteration of all
    /// other loops.
    pub(crate) fn tiles(&self, block: usize) -> (usize, usize) {
        let first = block * SCALED_TOKENS;
        let last = (first + SCALED_TOKENS).min(self.tokens).saturating_sub(1).max(first);
        let tile = |token: usize| token / self.group.rows / self.tile_groups;
        (tile(first), tile(last))
    }
}

/// Places in the scratch of a thread, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct QuantizedScratch {
    pub(crate) program: usize,
    pub(crate) slots: [usize; 2],
}
