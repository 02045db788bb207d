//! The forms in which operands of products are read, and the tiles of each.

use crate::types::dtype::DataType;
use crate::types::features::CpuFeatures;
use crate::types::kind::{CpuFeature, Level};

/// Fewest rows of a product of integers that gains from tiles (decision: amx-tiles).
const MIN_TILE_ROWS: usize = 6;

/// The form in which a micro-kernel reads both operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Both operands are f32.
    F32,
    /// Both are f32, and nothing is added where the right element is 0, so that a left element that is not
    /// finite does not reach the sum. NaN is not 0.
    Holes,
    /// Both are bf16, and two neighbours along the depth are one element of 4 bytes; the last pair of an odd
    /// depth ends with 0 in the right operand, and is half read in the left one.
    Bf16Pairs,
    /// Both operands are f64, as are the sums.
    F64,
    /// The left operand is f32, the right one is bf16 and is widened when read.
    Bf16,
    /// The left operand is f32, the right one is f16 and is widened when read.
    F16,
    /// The left operand is u8, the right one s8, and four neighbours along the depth are one element of 4
    /// bytes. Sums are s32.
    S8Quads,
    /// As [`Bf16Pairs`](Self::Bf16Pairs), in the tile registers of AMX.
    Bf16Tiles,
    /// As [`S8Quads`](Self::S8Quads), in the tile registers of AMX.
    S8Tiles,
    /// As [`S8Quads`](Self::S8Quads), but each number is widened to 16 bits, and two neighbours are one
    /// element.
    S16Pairs,
}

impl Form {
    /// The form for operands of a type, if the right one is packed before.
    ///
    /// Tiles of AMX are several times as fast as anything else (decision: amx-tiles). Without them, Intel's
    /// cores from Sapphire Rapids on multiply pairs in vectors so slowly that f32 is faster. These
    /// cores alone have f16 arithmetic, which a hypervisor that hides AMX shows (decision: bf16-pairs).
    pub(crate) fn packed(data_type: DataType, level: Level, features: CpuFeatures) -> Self {
        let has = |feature| features.contains(feature);
        let has_pairs = data_type == DataType::Bf16 && level == Level::Avx512 && has(CpuFeature::Avx512Bf16);
        match has_pairs {
            _ if data_type == DataType::F64 => Self::F64,
            true if has(CpuFeature::AmxBf16) => Self::Bf16Tiles,
            true if !has(CpuFeature::Avx512Fp16) => Self::Bf16Pairs,
            _ => Self::F32,
        }
    }

    /// The form for a right operand of a type that is read where it is.
    pub(crate) fn in_place(data_type: DataType) -> Self {
        match data_type {
            DataType::Bf16 => Self::Bf16,
            DataType::F16 => Self::F16,
            DataType::F64 => Self::F64,
            _ => Self::F32,
        }
    }

    /// The form for operands of 8-bit integers with `rows` rows on the left. Few rows would leave tiles
    /// nearly empty, so they take another form with the same sums.
    pub(crate) fn integers(level: Level, features: CpuFeatures, rows: usize) -> Self {
        match level == Level::Avx512 && features.contains(CpuFeature::Avx512Vnni) {
            true if features.contains(CpuFeature::AmxInt8) && rows >= MIN_TILE_ROWS => Self::S8Tiles,
            true => Self::S8Quads,
            false => Self::S16Pairs,
        }
    }

    /// True if sums are s32.
    pub(crate) fn is_integer(self) -> bool {
        matches!(self, Self::S8Quads | Self::S8Tiles | Self::S16Pairs)
    }

    /// True if kernels add a bias of rows to sums in registers.
    pub(crate) fn adds_bias(self) -> bool {
        self == Self::F32
    }

    /// True if products are computed in the tile registers of AMX.
    pub(crate) const fn uses_tiles(self) -> bool {
        matches!(self, Self::Bf16Tiles | Self::S8Tiles)
    }

    /// Rows that the rows of a tile of a product should be a multiple of: those of a block of accumulators.
    pub(crate) const fn row_block(self) -> usize {
        if self.uses_tiles() { 32 } else { 2 }
    }

    /// True if both operands are read in pairs of bf16.
    pub(crate) fn is_in_pairs(self) -> bool {
        matches!(self, Self::Bf16Pairs | Self::Bf16Tiles)
    }

    /// The type in which the left operand is read.
    pub(crate) fn left_type(self) -> DataType {
        match self {
            Self::F32 | Self::Holes | Self::Bf16 | Self::F16 => DataType::F32,
            Self::F64 => DataType::F64,
            Self::Bf16Pairs | Self::Bf16Tiles => DataType::Bf16,
            Self::S8Quads | Self::S8Tiles => DataType::U8,
            Self::S16Pairs => DataType::S16,
        }
    }

    /// Steps of the depth that one multiplication takes.
    pub(crate) fn depth_step(self) -> usize {
        match self {
            Self::F32 | Self::F64 | Self::Holes | Self::Bf16 | Self::F16 => 1,
            Self::Bf16Pairs | Self::Bf16Tiles | Self::S16Pairs => 2,
            Self::S8Quads | Self::S8Tiles => 4,
        }
    }

    /// The unit of blocks of the depth: the order of additions does not depend on blocks of whole units.
    pub(crate) fn depth_unit(self) -> usize {
        match self {
            Self::F32 | Self::F64 | Self::Holes | Self::Bf16 | Self::F16 | Self::Bf16Pairs => 2,
            Self::S8Quads | Self::S16Pairs => 2 * self.depth_step(),
            Self::Bf16Tiles | Self::S8Tiles => 16 * self.depth_step(),
        }
    }

    /// Bytes of an element of the right operand: of all steps that one multiplication takes.
    pub(crate) fn right_width(self) -> usize {
        match self {
            Self::Bf16 | Self::F16 => 2,
            Self::F64 => 8,
            _ => 4,
        }
    }

    /// Bytes of a sum.
    pub(crate) fn sum_width(self) -> usize {
        if self == Self::F64 { 8 } else { 4 }
    }

    /// Rows and vectors of the largest tile of each width, and so the columns of a panel.
    pub(super) fn geometry(self, level: Level) -> Geometry {
        match (level, self) {
            // A panel is as wide as a block, so that its rows share no sets of the first level with holes
            // between them.
            (Level::Avx512, Self::Bf16Tiles | Self::S8Tiles) => Geometry { lanes: 16, rows: &[32, 32] },
            (Level::Avx512, Self::Holes | Self::Bf16 | Self::F16 | Self::S16Pairs) => {
                Geometry { lanes: 16, rows: &[4, 4, 4, 4] }
            }
            // Blocks of four rows leave no rest of most products (decision: pairs-by-four).
            (Level::Avx512, Self::Bf16Pairs) => Geometry { lanes: 16, rows: &[8, 8, 4, 4] },
            (Level::Avx512, Self::F64) => Geometry { lanes: 8, rows: &[8, 6, 6, 4] },
            (Level::Avx512, _) => Geometry { lanes: 16, rows: &[8, 8, 8, 6] },
            (Level::Avx2, Self::F64) => Geometry { lanes: 4, rows: &[4, 4] },
            (Level::Avx2, Self::F32 | Self::Bf16Pairs | Self::S16Pairs) => {
                Geometry { lanes: 8, rows: &[6, 6] }
            }
            (Level::Avx2, _) => Geometry { lanes: 8, rows: &[4, 4] },
            (Level::Neon, Self::F32) => Geometry { lanes: 4, rows: &[8, 8, 8, 6] },
            (Level::Neon, Self::F64) => Geometry { lanes: 2, rows: &[4, 4, 4, 4] },
            (Level::Neon, _) => Geometry { lanes: 4, rows: &[4, 4, 4, 4] },
            (Level::Portable, Self::F64) => Geometry { lanes: 2, rows: &[4] },
            (Level::Portable, _) => Geometry { lanes: 4, rows: &[4, 4] },
        }
    }
}

/// The sizes of the tiles of micro-kernels.
#[derive(Clone, Copy)]
pub(super) struct Geometry {
    /// Elements of a vector.
    pub(super) lanes: usize,
    /// By the number of vectors, less one: the most rows of a tile.
    pub(super) rows: &'static [usize],
}

impl Geometry {
    /// Vectors of the tiles of a product of so many rows: those of a panel, or half of them where all rows
    /// fit only such a tile, which then reads the right operand once (decision: skinny-columns).
    pub(super) fn vectors(self, rows: usize) -> usize {
        let most = self.rows.len();
        match most.is_multiple_of(2) && rows > self.rows[most - 1] && rows <= self.rows[most / 2 - 1] {
            true => most / 2,
            false => most,
        }
    }
}
