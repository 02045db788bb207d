//! Classes of the tiles of masked scores, before any tile is computed: the data of the phase that finds them.
//!
//! The value that enters SoftMax is a [`MaskExpr`] over the space of scores. `execute::attention::tile_class`
//! bounds the expression on boxes of indices and writes the class of each 64 × 64 tile to a table, which
//! lives as long as the execution. No form of a mask is a special case: a class follows from bounds alone.

use std::fmt::{self, Write as _};
use std::ops::Range;

use smallvec::SmallVec;

use super::score_bound::ScoreBound;
use crate::kernels::attention::QUERIES;
use crate::kernels::mask_scan::ScanKernels;
use crate::plan::access::Base;
use crate::types::dtype::DataType;
use crate::types::function::{Binary, Class, Comparison, Logic, Params, Sign, Unary};
use crate::types::shape::Dims;

/// Queries, and keys, of a tile that has a class.
pub(crate) const CLASS_TILE: usize = QUERIES;

/// Queries, and keys, of a part of a tile that products may leave out alone.
pub(crate) const CLASS_PART: usize = 16;

/// Parts along each side of a tile.
const PARTS: usize = CLASS_TILE / CLASS_PART;

/// Partial tiles of a row of a table whose parts are told apart: the first ones. Edges of masks cross few
/// tiles of a row, and a mask without structure has no parts to leave out (decision: masked-parts).
pub(crate) const DIVIDED_TILES: usize = 8;

/// A fact about all values of a tile that enter SoftMax.
///
/// ```
/// use sterna::{MaskTiles, TileClass};
/// /// The share of tiles for which an execution computes products.
/// fn computed(tiles: &MaskTiles) -> f64 {
///     let kept = tiles.count(TileClass::Full) + tiles.count(TileClass::Partial);
///     kept as f64 / tiles.tiles().max(1) as f64
/// }
/// assert_eq!(TileClass::ALL.len(), 4);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TileClass {
    /// Anything else: the tile is computed, and each value may be masked or not.
    Partial = 0,
    /// Each value is computed from its score, and no condition or mask decides between the elements.
    Full = 1,
    /// Each value is the same finite number, whatever the scores are; or each is a score to which so low a
    /// number is added that it hardly weighs beside other scores. The tile is left out if it has no weight.
    Constant = 2,
    /// Each value is −∞, whatever the scores are, or, where statistics have been taken off, so low that its
    /// exponential is 0 in f32: no key of the tile contributes to a query of the tile.
    Masked = 3,
}

impl TileClass {
    /// All classes, by their numbers.
    pub const ALL: [Self; 4] = [Self::Partial, Self::Full, Self::Constant, Self::Masked];
}

/// A value over the space of scores: operations on indices, constants, elements of tensors, and the raw
/// score.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MaskExpr {
    /// The operations, each after its operands; the last one is the value that enters SoftMax.
    pub(crate) nodes: Vec<MaskNode>,
}

/// An operation of a mask expression.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MaskNode {
    pub(crate) op: MaskOp,
    /// The type of its result.
    pub(crate) data_type: DataType,
    /// The operands, by index.
    pub(crate) operands: SmallVec<[usize; 3]>,
    /// True if the result may depend on the raw score.
    pub(crate) reads_score: bool,
    /// The axes of the space along which the result varies by anything but the raw score, one bit each.
    pub(crate) varies: u16,
}

/// The computation of a node of a mask expression.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum MaskOp {
    /// The raw score: any number, an infinity or NaN.
    Score,
    /// A number, rounded to the type.
    Number(f64),
    /// A number that grows with the indices: its first value, and its growth along each axis.
    Index {
        first: i64,
        steps: SmallVec<[i64; 6]>,
    },
    /// An element of a tensor in memory.
    Element(MaskElement),
    Unary(Unary, Params),
    Binary(Binary),
    /// The sum of a score and of a mask, which the program for unmasked tiles leaves out.
    LeftOutSum,
    Compare(Comparison),
    Logic(Logic),
    Not,
    Sign(Sign),
    Classify(Class),
    Select,
    Convert,
    /// Any number of the type.
    Any,
}

/// Elements in memory, one for each place of the space.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MaskElement {
    pub(crate) base: Base,
    /// Bytes from the base to the first element.
    pub(crate) offset: isize,
    /// Bytes along each axis of the space; 0 along those that share an element.
    pub(crate) strides: SmallVec<[isize; 6]>,
}

impl MaskExpr {
    /// True if no value is masked: nothing but the raw score and numbers goes into the value, without a
    /// choice between them.
    pub(crate) fn is_unmasked(&self) -> bool {
        let is_choice = |node: &MaskNode| matches!(node.op, MaskOp::Select);
        let is_varying = |node: &MaskNode| matches!(node.op, MaskOp::Index { .. } | MaskOp::Element(_));
        match self.nodes.iter().any(is_choice) {
            true => false,
            // A scalar in memory, such as a scale, masks nothing on its own.
            false => !self.nodes.iter().any(|node| is_varying(node) && node.varies != 0),
        }
    }

    /// True if numbers that differ along an axis are added to scores, which may mask them if scores are small
    /// beside such numbers.
    pub(crate) fn adds_along(&self, axis: usize) -> bool {
        let is_mask = |&operand: &usize| {
            let node = &self.nodes[operand];
            !node.reads_score && node.varies & 1 << axis != 0
        };
        self.nodes.iter().any(|node| {
            let adds = matches!(node.op, MaskOp::LeftOutSum | MaskOp::Binary(Binary::Add | Binary::Subtract));
            adds && node.reads_score && node.operands.iter().any(is_mask)
        })
    }
}

/// Finds the class of each tile of scores, and writes it to a table in an internal buffer.
///
/// The table has a row for each mask plane and block of queries: an f32, the largest constant of the row's
/// constant tiles and parts or −∞, then four bits a block of keys, padded to whole words of 4 bytes, then the
/// [`MaskedParts`] of the first [`DIVIDED_TILES`] partial tiles.
#[derive(Debug)]
pub(crate) struct ClassifyPhase {
    pub(crate) expr: MaskExpr,
    /// The space of scores.
    pub(crate) dims: Dims,
    pub(crate) query_axis: usize,
    pub(crate) key_axis: usize,
    /// Mask planes from one index of an axis to the next; 0 along axes that share a plane, and along those
    /// of queries and keys.
    pub(crate) plane_strides: SmallVec<[usize; 6]>,
    /// Number of mask planes.
    pub(crate) planes: usize,
    /// True if classes are found for many blocks of keys at once first, because no element has to be read
    /// for each block.
    pub(crate) halves: bool,
    pub(crate) uses: TileClassUses,
    /// The bound of the scores, if it may decide a class.
    pub(crate) scores: Option<ScoreBound>,
    /// The buffer of the table.
    pub(crate) table: Base,
    pub(crate) scan: ScanKernels,
}

/// The use of classes of tiles.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TileClassUses {
    /// True if the exponential of the value is the weight, so that a low number is as good as −∞.
    pub(crate) is_exponent: bool,
    /// True if the masked parts of partial tiles are found too.
    pub(crate) divides: bool,
}

impl ClassifyPhase {
    /// The phase for a value over a space. Axes along which the value does not vary share mask planes.
    pub(crate) fn new(
        expr: MaskExpr,
        dims: &[i64],
        (query_axis, key_axis): (usize, usize),
        uses: TileClassUses,
        table: Base,
        scan: ScanKernels,
    ) -> Self {
        let varies = expr.nodes.last().map_or(0, |root| root.varies);
        let mut planes = 1usize;
        let mut plane_strides = SmallVec::from_elem(0, dims.len());
        for axis in (0..dims.len()).rev().filter(|axis| ![query_axis, key_axis].contains(axis)) {
            match dims[axis] {
                0 => planes = 0,
                1 => {}
                extent if varies & 1 << axis != 0 => {
                    plane_strides[axis] = planes;
                    planes = planes.saturating_mul(extent as usize);
                }
                _ => {}
            }
        }
        let reads_keys =
            |node: &MaskNode| matches!(node.op, MaskOp::Element(_)) && node.varies & 1 << key_axis != 0;
        let halves = !expr.nodes.iter().any(reads_keys);
        let dims = dims.into();
        let scores = None;
        Self { expr, dims, query_axis, key_axis, plane_strides, planes, halves, uses, scores, table, scan }
    }

    /// Blocks of queries.
    pub(crate) fn query_blocks(&self) -> usize {
        (self.dims[self.query_axis] as usize).div_ceil(CLASS_TILE)
    }

    /// Blocks of keys.
    pub(crate) fn key_blocks(&self) -> usize {
        (self.dims[self.key_axis] as usize).div_ceil(CLASS_TILE)
    }

    /// Number of tasks: one for each row of the table.
    pub(crate) fn tasks(&self) -> usize {
        self.planes * self.query_blocks()
    }

    /// Bytes of a row of the table.
    pub(crate) fn row_bytes(&self) -> usize {
        row_bytes(self.key_blocks())
    }

    /// Bytes of the table; `usize::MAX` if there are more.
    pub(crate) fn table_bytes(&self) -> usize {
        self.planes.saturating_mul(self.query_blocks()).saturating_mul(self.row_bytes())
    }

    /// Bytes from the start of the table to the row of a mask plane and a block of queries.
    pub(crate) fn row_offset(&self, plane: usize, query_block: usize) -> usize {
        (plane * self.query_blocks() + query_block) * self.row_bytes()
    }

    /// The table, for the driver that reads it.
    pub(crate) fn table(&self) -> ClassTable {
        let outer =
            (0..self.dims.len()).rev().filter(|axis| ![self.query_axis, self.key_axis].contains(axis));
        ClassTable {
            base: self.table,
            query_blocks: self.query_blocks().max(1),
            row_bytes: self.row_bytes(),
            outer: outer.map(|axis| ((self.dims[axis] as usize).max(1), self.plane_strides[axis])).collect(),
        }
    }

    /// The same with bounds of scores that decide classes, if they may.
    pub(crate) fn bounded_by(self, scores: Option<ScoreBound>) -> Self {
        let may_decide = self.key_blocks() > 1 && self.expr.adds_along(self.key_axis);
        Self { scores: scores.filter(|_| may_decide), ..self }
    }

    /// The bases of the mask, which it needs.
    pub(crate) fn reads(&self) -> impl Iterator<Item = Base> {
        self.expr.nodes.iter().filter_map(|node| match &node.op {
            MaskOp::Element(element) => Some(element.base),
            _ => None,
        })
    }

    /// The bases of queries and keys, without which it takes scores for small.
    pub(crate) fn reads_of_scores(&self) -> impl Iterator<Item = Base> {
        self.scores.iter().flat_map(|scores| scores.operands.each_ref().map(|operand| operand.base))
    }
}

/// A table of classes, for the driver that reads it.
#[derive(Debug, Clone)]
pub(crate) struct ClassTable {
    pub(crate) base: Base,
    query_blocks: usize,
    row_bytes: usize,
    /// The axes but those of queries and keys, the innermost first: extents, and mask planes from one index
    /// to the next.
    outer: SmallVec<[(usize, usize); 6]>,
}

impl ClassTable {
    /// The bytes of the row for a block of queries, by its number among the blocks of all iterations over the
    /// outer axes.
    pub(crate) fn row(&self, block: usize) -> Range<usize> {
        let (mut rest, mut plane) = (block / self.query_blocks, 0);
        for &(extent, stride) in &self.outer {
            plane += rest % extent * stride;
            rest /= extent;
        }
        let start = (plane * self.query_blocks + block % self.query_blocks) * self.row_bytes;
        start..start + self.row_bytes
    }
}

/// Bytes before the classes of a row of a table.
const ROW_HEAD: usize = 4;

/// Classes in a byte, and the bits of each: those of its number, and [`UNCHANGED`].
const PER_BYTE: usize = 2;
const BITS: usize = 4;

/// The bit of a full tile whose values are what they are without masks.
const UNCHANGED: u8 = 4;

/// Bytes of a row of a table of classes.
pub(crate) fn row_bytes(key_blocks: usize) -> usize {
    ROW_HEAD + key_blocks.div_ceil(PER_BYTE).next_multiple_of(4) + size_of::<MaskedParts>() * DIVIDED_TILES
}

/// The parts of a tile that are masked, or that hold nothing but low numbers, which the largest constant of
/// the row counts: a bit for each, the queries of the first keys first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct MaskedParts(u16);

impl MaskedParts {
    /// Adds the parts of some keys and queries, which begin and end with parts.
    pub(crate) fn add(&mut self, keys: &Range<usize>, queries: &Range<usize>) {
        for key in keys.clone().step_by(CLASS_PART) {
            for query in queries.clone().step_by(CLASS_PART) {
                self.0 |= 1 << (key / CLASS_PART * PARTS + query / CLASS_PART);
            }
        }
    }

    /// True if no part is masked.
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if the part of a key and a query of the tile is masked.
    #[cfg(test)]
    pub(crate) fn contains(self, key: usize, query: usize) -> bool {
        self.0 >> (key / CLASS_PART * PARTS + query / CLASS_PART) & 1 == 1
    }

    /// The spans of keys of a tile, and for each the queries outside of which all its parts are masked.
    pub(crate) fn spans(self) -> SmallVec<[(Range<usize>, Range<usize>); PARTS]> {
        let mut spans: SmallVec<[(Range<usize>, Range<usize>); PARTS]> = SmallVec::new();
        for row in 0..PARTS {
            let kept = !(self.0 >> (row * PARTS)) & ((1 << PARTS) - 1);
            let queries = match kept {
                0 => 0..0,
                _ => kept.trailing_zeros() as usize..(u16::BITS - kept.leading_zeros()) as usize,
            };
            let queries = queries.start * CLASS_PART..queries.end * CLASS_PART;
            let keys = row * CLASS_PART..(row + 1) * CLASS_PART;
            match spans.last_mut() {
                Some((above, of_above)) if *of_above == queries => above.end = keys.end,
                _ => spans.push((keys, queries)),
            }
        }
        spans
    }
}

/// The masked parts of a partial tile, by its number among the partial tiles of a row of a table; none from
/// [`DIVIDED_TILES`] on.
pub(crate) fn masked_parts(table_row: &[u8], partial_tile: usize) -> MaskedParts {
    let bytes = parts_at(table_row.len(), partial_tile).and_then(|at| table_row[at..].first_chunk());
    bytes.map_or(MaskedParts::default(), |bytes| MaskedParts(u16::from_ne_bytes(*bytes)))
}

/// Sets the masked parts of a partial tile.
pub(crate) fn set_masked_parts(table_row: &mut [u8], partial_tile: usize, parts: MaskedParts) {
    if let Some(at) = parts_at(table_row.len(), partial_tile) {
        table_row[at..at + size_of::<MaskedParts>()].copy_from_slice(&parts.0.to_ne_bytes());
    }
}

/// Where a row of so many bytes holds the masked parts of a partial tile.
fn parts_at(row_bytes: usize, partial_tile: usize) -> Option<usize> {
    let from_end = size_of::<MaskedParts>() * DIVIDED_TILES.checked_sub(partial_tile)?;
    (from_end > 0).then(|| row_bytes - from_end)
}

/// The class of a block of keys in a row of a table.
#[inline(always)]
pub(crate) fn class(table_row: &[u8], key_block: usize) -> TileClass {
    TileClass::ALL[usize::from(bits(table_row, key_block) & 3)]
}

/// True if a block of keys is full, and its values are what they are without masks.
#[inline(always)]
pub(crate) fn is_unchanged(table_row: &[u8], key_block: usize) -> bool {
    bits(table_row, key_block) & UNCHANGED != 0
}

/// The bits of a block of keys in a row of a table.
#[inline(always)]
fn bits(table_row: &[u8], key_block: usize) -> u8 {
    table_row[ROW_HEAD + key_block / PER_BYTE] >> (key_block % PER_BYTE * BITS)
}

/// The largest constant of a row's constant tiles and parts; −∞ if it has none.
#[inline(always)]
pub(crate) fn largest_constant(table_row: &[u8]) -> f32 {
    table_row.first_chunk().map_or(f32::NEG_INFINITY, |head| f32::from_ne_bytes(*head))
}

/// Starts a row of a table: all tiles are partial.
pub(crate) fn clear_row(table_row: &mut [u8]) {
    table_row.fill(0);
    table_row[..ROW_HEAD].copy_from_slice(&f32::NEG_INFINITY.to_ne_bytes());
}

/// Sets the class of a block of keys, which is partial so far.
pub(crate) fn set_class(table_row: &mut [u8], key_block: usize, class: TileClass, is_unchanged: bool) {
    let bits = class as u8 | if is_unchanged { UNCHANGED } else { 0 };
    table_row[ROW_HEAD + key_block / PER_BYTE] |= bits << (key_block % PER_BYTE * BITS);
}

/// Notes the constant of a constant tile, or the largest number of low parts.
pub(crate) fn note_constant(table_row: &mut [u8], constant: f32) {
    let largest = largest_constant(table_row).max(constant);
    table_row[..ROW_HEAD].copy_from_slice(&largest.to_ne_bytes());
}

/// The classes of the tiles of masked scores, for one set of inputs.
///
/// Tiles are of 64 queries × 64 keys. A mask plane is the mask of all batches and heads that share it.
/// [`CompiledPartition::mask_tiles`](crate::CompiledPartition::mask_tiles) finds them.
/// [`Display`](fmt::Display) draws the planes: `#` is full, `+` partial, `-` constant and `.` masked.
///
/// ```
/// use sterna::{Attention, Causal, DataType, Engine, Graph, LogicalTensor, Policy, TileClass};
/// let head = |id| LogicalTensor::strided(id, DataType::F32, &[2, 128, 16]);
/// let attention = Attention::new(head(0)?, head(1)?, head(2)?, head(3)?).causal(Causal::TopLeft);
/// let mut graph = Graph::new();
/// graph.attention(&attention)?;
/// graph.finalize()?;
/// let partition = &graph.partitions(Policy::Fusion)?[0];
/// let compiled = partition.compile(&Engine::new())?;
/// let tiles = compiled.mask_tiles(&[])?.expect("the scores are masked");
/// assert_eq!((tiles.planes(), tiles.query_blocks(), tiles.key_blocks()), (1, 2, 2));
/// assert_eq!(tiles.class(0, 0, 1), Some(TileClass::Masked), "keys from 64 on come after queries up to 63");
/// assert_eq!(tiles.class(0, 2, 0), None);
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct MaskTiles {
    planes: usize,
    query_blocks: usize,
    key_blocks: usize,
    /// The bytes as the phase writes them.
    table: Vec<u8>,
}

impl MaskTiles {
    /// The classes in the table of a phase.
    pub(crate) fn new(phase: &ClassifyPhase, table: Vec<u8>) -> Self {
        let (query_blocks, key_blocks) = (phase.query_blocks(), phase.key_blocks());
        Self { planes: phase.planes, query_blocks, key_blocks, table }
    }

    /// Number of mask planes.
    #[must_use]
    pub fn planes(&self) -> usize {
        self.planes
    }

    /// Number of blocks of 64 queries; the last one may be smaller.
    #[must_use]
    pub fn query_blocks(&self) -> usize {
        self.query_blocks
    }

    /// Number of blocks of 64 keys; the last one may be smaller.
    #[must_use]
    pub fn key_blocks(&self) -> usize {
        self.key_blocks
    }

    /// Number of tiles of all planes.
    #[must_use]
    pub fn tiles(&self) -> usize {
        self.planes * self.query_blocks * self.key_blocks
    }

    /// The class of a tile; `None` if there is no such tile.
    #[must_use]
    pub fn class(&self, plane: usize, query_block: usize, key_block: usize) -> Option<TileClass> {
        let is_tile = plane < self.planes && query_block < self.query_blocks && key_block < self.key_blocks;
        is_tile.then(|| {
            let bytes = row_bytes(self.key_blocks);
            let row = (plane * self.query_blocks + query_block) * bytes;
            class(&self.table[row..row + bytes], key_block)
        })
    }

    #[cfg(test)]
    fn row(&self, plane: usize, query_block: usize) -> &[u8] {
        let bytes = row_bytes(self.key_blocks);
        let row = (plane * self.query_blocks + query_block) * bytes;
        &self.table[row..row + bytes]
    }

    /// True if the values of a tile are what they are without masks.
    #[cfg(test)]
    pub(crate) fn is_unchanged(&self, plane: usize, query_block: usize, key_block: usize) -> bool {
        is_unchanged(self.row(plane, query_block), key_block)
    }

    /// The largest constant of the tiles and parts of a block of queries.
    #[cfg(test)]
    pub(crate) fn largest_constant(&self, plane: usize, query_block: usize) -> f32 {
        largest_constant(self.row(plane, query_block))
    }

    /// The masked and low parts of a tile, which are none unless it is partial.
    #[cfg(test)]
    pub(crate) fn masked_parts(&self, plane: usize, query_block: usize, key_block: usize) -> MaskedParts {
        let row = self.row(plane, query_block);
        let is_partial = |&block: &usize| class(row, block) == TileClass::Partial;
        match is_partial(&key_block) {
            true => masked_parts(row, (0..key_block).filter(is_partial).count()),
            false => MaskedParts::default(),
        }
    }

    /// Number of tiles of a class.
    #[must_use]
    pub fn count(&self, class: TileClass) -> usize {
        let tiles = (0..self.planes).flat_map(|plane| {
            (0..self.query_blocks)
                .flat_map(move |query| (0..self.key_blocks).map(move |key| (plane, query, key)))
        });
        tiles.filter(|&(plane, query, key)| self.class(plane, query, key) == Some(class)).count()
    }
}

impl fmt::Debug for MaskTiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MaskTiles")
            .field("planes", &self.planes)
            .field("query_blocks", &self.query_blocks)
            .field("key_blocks", &self.key_blocks)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for MaskTiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for plane in 0..self.planes {
            if self.planes > 1 {
                writeln!(f, "plane {plane}")?;
            }
            for query in 0..self.query_blocks {
                for key in 0..self.key_blocks {
                    f.write_char(match self.class(plane, query, key) {
                        Some(TileClass::Full) => '#',
                        Some(TileClass::Partial) => '+',
                        Some(TileClass::Constant) => '-',
                        Some(TileClass::Masked) | None => '.',
                    })?;
                }
                f.write_char('\n')?;
            }
        }
        Ok(())
    }
}
