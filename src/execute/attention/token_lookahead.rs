//! Prefetch beside products: of the booleans of a tile, and of what the next block of queries reads and the
//! present one does not: its queries, and the keys and values that masks kept from the present block.
//!
//! Where masks leave few tiles to a block, the tokens of a block take a good part of its time to arrive.

use smallvec::SmallVec;

use crate::kernels::gemm::Matrix;
use crate::kernels::prefetch::MemRange;
use crate::kernels::{Extent, LINE, prefetch_l1, prefetch_l2};
use crate::plan::{AttentionPhase, KEYS, TileClass, class};
use crate::types::dtype::DataType;

/// Bytes that are prefetched beside a tile of a product (decision: token-lookahead).
const STEP: usize = 12 * LINE;

/// Rows of booleans that are prefetched beside a tile of a product: 64 rows beside those of one product
/// (decision: mask-prefetch).
const STEP_ROWS: usize = 6;

/// Most blocks of keys that are prefetched for a block of queries.
const MAX_BLOCKS: usize = 4;

/// A block of queries, and where its tokens lie.
pub(super) struct BlockTokens<'a> {
    /// The classes of its tiles.
    pub(super) classes: &'a [u8],
    pub(super) queries: usize,
    /// The types of the queries, the keys and the values, and where they are; keys and values from the first.
    pub(super) tokens: [(DataType, Matrix); 3],
}

impl BlockTokens<'_> {
    /// True if it reads a block of keys.
    fn reads(&self, key_block: usize) -> bool {
        matches!(class(self.classes, key_block), TileClass::Full | TileClass::Partial)
    }
}

/// Ranges of memory that are yet to be prefetched.
#[derive(Debug)]
pub(super) struct TokenLookahead {
    /// The next range is the last one.
    ranges: SmallVec<[MemRange; 8]>,
    /// The next row of booleans, the bytes from one to the next, and how many are left.
    row: *const u8,
    row_stride: isize,
    rows: usize,
}

impl Default for TokenLookahead {
    fn default() -> Self {
        Self { ranges: SmallVec::new(), row: std::ptr::null(), row_stride: 0, rows: 0 }
    }
}

impl TokenLookahead {
    /// Notes what block `next` reads and block `own` does not.
    pub(super) fn note(&mut self, phase: &AttentionPhase, own: &BlockTokens<'_>, next: &BlockTokens<'_>) {
        self.ranges.clear();
        let [queries, keys, values] = next.tokens;
        let of_other_keys = keys.1.at != own.tokens[1].1.at;
        let is_new = |&block: &usize| next.reads(block) && (of_other_keys || !own.reads(block));
        let is_quantized = phase.quantized.iter().any(Option::is_some);
        let is_paged = phase.pages.iter().any(Option::is_some);
        let blocks = if is_quantized || is_paged { 0 } else { phase.key_blocks() };
        for block in (0..blocks).filter(is_new).take(MAX_BLOCKS) {
            let rows = KEYS.min(phase.nest.space.rows - block * KEYS);
            for ((data_type, tokens), columns) in [(values, phase.value_columns), (keys, phase.depth)] {
                let at = tokens.at.wrapping_offset(tokens.row_stride * (block * KEYS) as isize);
                self.add(Matrix { at, ..tokens }, Extent { rows, columns }, data_type);
            }
        }
        let (data_type, tokens) = queries;
        self.add(tokens, Extent { rows: next.queries, columns: phase.depth }, data_type);
    }

    /// Adds the rows of a matrix.
    fn add(&mut self, of: Matrix, Extent { rows, columns }: Extent, data_type: DataType) {
        let width = data_type.size().unwrap_or(1);
        let (is_by_row, row) = (of.col_stride.unsigned_abs() == width, columns * width);
        if is_by_row && of.row_stride.unsigned_abs() == row {
            self.ranges.push(MemRange { at: of.at, bytes: rows * row });
            return;
        }
        let (count, stride, bytes) = match is_by_row {
            true => (rows, of.row_stride, row),
            false => (columns, of.col_stride, rows * width),
        };
        let range = |index: usize| MemRange { at: of.at.wrapping_offset(stride * index as isize), bytes };
        self.ranges.extend((0..count).map(range));
    }

    /// Notes rows of booleans, which are prefetched before all else. They lie so far apart that the hardware
    /// does not foresee them.
    pub(super) fn note_booleans(&mut self, at: *const u8, row_stride: isize, rows: usize) {
        (self.row, self.row_stride, self.rows) = (at, row_stride, rows);
    }

    /// Prefetches the next lines.
    #[inline(always)]
    pub(super) fn step(&mut self) {
        let rows = self.rows.min(STEP_ROWS);
        for _ in 0..rows {
            prefetch_l1(self.row, LINE);
            self.row = self.row.wrapping_offset(self.row_stride);
        }
        self.rows -= rows;
        if rows > 0 {
            return;
        }
        let Some(range) = self.ranges.last_mut() else { return };
        prefetch_l2(range.at, STEP.min(range.bytes));
        range.at = range.at.wrapping_add(STEP);
        range.bytes = range.bytes.saturating_sub(STEP);
        if range.bytes == 0 {
            self.ranges.pop();
        }
    }
}
