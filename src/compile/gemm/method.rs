//! The choice of how a matrix product is computed: kernels, tiles, and packing.

use std::ops::RangeInclusive;

use crate::compile::machine::Machine;
use crate::compile::memory;
use crate::compile::phases::PlacedTensor;
use crate::compile::product_shape::{ProductShape, UNPACKED_ROWS, width_of};
use crate::kernels::Extent;
use crate::kernels::gemm::pack::PackPanel;
use crate::kernels::gemm::{Form, GemmKernel, StoredKernels};
use crate::kernels::vector::LANES;
use crate::plan::DequantizedRight;
use crate::types::dtype::DataType;
use crate::types::fallback::{FallbackReason, FallbackReason as R};

/// Most rows of a skinny product. It reads the right operand in the order of memory, whatever its layout,
/// because packing would move more bytes than the product itself.
const MAX_SKINNY_ROWS: usize = 16;

/// Rows of the right operand that a skinny product multiplies while the sums of some columns are in
/// registers, and columns: the longer the rows, the less of them is waited for (decision: skinny-columns).
const SKINNY_DEPTH: usize = 32;
const SKINNY_COLUMNS: RangeInclusive<usize> = 512..=4096;

/// The same if the right operand comes from memory: rows are streams that the hardware prefetcher follows,
/// fewer of them if few rows multiply them (decision: skinny-streams).
const STREAMS: usize = 16;
const MIN_STREAMS: usize = 8;
const ROWS_OF_MIN_STREAMS: usize = 2;

/// Most sums of a tile of a skinny product: they stay in the second-level cache.
const MAX_SKINNY_SUMS: usize = 1 << 15;

/// Most columns of a product of many rows that is computed as dot products: a panel would be mostly padding.
const MAX_DOT_COLUMNS: usize = 4;

/// Rows and columns of a tile of dot products, which outweighs the cost of going to it.
const DOT_TILE: Extent = Extent { rows: 64, columns: 128 };

/// Most channels of a tile of convolutions of one channel each, and most sums: the places of taps are found
/// once for all channels of the tile, and sums stay in the first-level cache until the bias is added.
const DEPTHWISE_CHANNELS: usize = 256;
const DEPTHWISE_SUMS: usize = 1 << 12;

/// Most windows of a tile of a convolution in planes: those of a channel stay in the first-level cache. If
/// channels of the result see the same planes, most rows, and most sums, which stay in the second level.
const PLANE_COLUMNS: usize = 1 << 11;
const PLANE_ROWS: usize = 64;
const PLANE_SUMS: usize = 1 << 15;

/// Most elements of planes of all channels of such a tile: they stay in the second level beside sums and
/// weights.
const PLANE_ELEMENTS: usize = 1 << 16;

/// Most channels of such a tile if those of the result lie apart: its rows are windows then, of which the ops
/// behind and the stores take long runs.
const CHANNELS_APART: usize = 64;

/// Most weights of a tile of convolutions of groups of channels: they stay in the first-level cache.
const GROUPED_WEIGHTS: usize = 1 << 12;

/// Rows of the right operand that a tile packs at once, if tiles pack: the panels stay in the second-level
/// cache.
const TILE_DEPTH: usize = 512;

/// Most elements of a right operand that many rows read in place, and most rows that read any
/// (decision: packed-in-tiles).
const MAX_IN_PLACE: usize = 1 << 18;
const MAX_IN_PLACE_ROWS: usize = 32;

/// Most rows that read so small an operand in place, and most bytes from one row of it to the next if they
/// are more than [`UNPACKED_ROWS`]: rows that lie farther apart share few sets of the caches
/// (decision: product-in-place).
const MANY_IN_PLACE_ROWS: usize = 256;
const MAX_IN_PLACE_STRIDE: usize = 2 << 10;

/// Bytes of which rows that begin at multiples lie in few sets of the caches (decision: elements-in-place).
const SHARED_SETS: isize = 4 << 10;

/// Most rows and columns of a tile that packs pairs of bf16: their products take so little time that packing
/// is most of the work unless all rows share it (decision: panels-of-tiles).
const PAIRS_TILE: Extent = Extent { rows: 512, columns: 64 };

/// Elements of the depth in a panel of f32 that a tile packs. If its rows lie far apart, they share few sets
/// of the second level, to which they are prefetched (decision: panels-of-tiles).
const PANEL_DEPTH: usize = 256;

/// Fewest bytes between columns of a left operand that tiles copy next to each other, and fewest columns of
/// the result that outweigh the copy (decision: left-columns).
const MIN_COPIED_STRIDE: usize = 512;
const MIN_COPYING_COLUMNS: usize = 64;

/// Fewest rows of a product that reads a constant right operand in panels which are packed once, unless there
/// is room for all constants: panels are one stream, which few rows read faster than rows side by side, but
/// to pack them in each execution takes several times as long (decision: kept-panels).
const MIN_KEPT_ROWS: usize = 12;

/// Most rows of a product whose right operand becomes f32 in registers (decision: stored-weights).
const MAX_REGISTER_ROWS: usize = 16;

const _: () = assert!(MAX_REGISTER_ROWS <= DequantizedRight::DOT_COLUMNS);

/// Columns of a tile of such a product.
const REGISTER_COLUMNS: usize = 1024;

/// A right operand that is stored in 8 or 4 bits, in rows.
pub(super) struct RightRows {
    pub(super) kernels: StoredKernels,
    /// True if rows go along the depth, not along columns.
    pub(super) is_along_depth: bool,
    /// Rows, and elements of one, that share a scale.
    pub(super) group: Extent,
}

/// The algorithm and the tiles of a product; no dim of the result is 0.
pub(super) struct Method {
    pub(super) algorithm: Algorithm,
    pub(super) tile: Extent,
    /// Tiles copy the columns of the left operand next to each other.
    pub(super) copies_left: bool,
}

pub(super) enum Algorithm {
    /// As dot products of rows in memory.
    Dots,
    /// As convolutions of groups of so many channels each, which are columns. Each sees all channels of its
    /// group, or the first one.
    Depthwise { group: usize, seen: usize },
    /// As convolutions in planes of the image. Rows are channels of the result, each of which sees one
    /// channel of its own, or all of a group.
    Planes { is_depthwise: bool },
    /// By micro-kernels.
    Tiles { form: Form, right: Right, depth_block: usize },
}

/// How micro-kernels read the right operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Right {
    InPlace,
    /// In place, some rows side by side, as streams from memory.
    Streams,
    Packed,
    /// Tiles pack their columns, which no other tile reads, or few others.
    PackedInTile,
    /// Tiles dequantise their columns: far less work than the products of many rows, and no copy in f32.
    Dequantized,
}

/// The order in which the products of an element are added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// One after the other.
    OneByOne,
    /// Pair after pair.
    Pairs,
    /// Block after block of 32.
    Blocks,
    /// In lanes, which are added up as a tree.
    Lanes,
}

impl Method {
    fn new(algorithm: Algorithm, tile: Extent) -> Self {
        Self { algorithm, tile, copies_left: false }
    }

    /// The same, whose tiles copy the columns of the left operand next to each other if they lie far apart.
    /// Columns that lie close share lines, and pages.
    pub(super) fn copying_left(self, shape: &ProductShape, left: &PlacedTensor) -> Self {
        let is_f32 = matches!(self.algorithm, Algorithm::Tiles { form: Form::F32, .. });
        let is_far = shape.left_depth.unsigned_abs() >= MIN_COPIED_STRIDE;
        let has_columns = shape.row(&shape.left) == width_of(left);
        let copies_left = is_f32 && is_far && has_columns && shape.columns >= MIN_COPYING_COLUMNS;
        Self { copies_left, ..self }
    }

    /// The same, whose kernels read windows that are elements where they are, if their rows do not all begin
    /// in few sets of the caches (decision: elements-in-place).
    pub(super) fn reading_elements(mut self, shape: &ProductShape, right: &PlacedTensor) -> Self {
        let are_neighbours = right.data_type == DataType::F32 && shape.right_column == width_of(right);
        let share_sets = shape.right_depth % SHARED_SETS == 0;
        if let Algorithm::Tiles { form: Form::F32, right: form @ Right::PackedInTile, .. } =
            &mut self.algorithm
            && are_neighbours
            && !share_sets
        {
            *form = Right::InPlace;
        }
        self
    }

    pub(super) fn order(&self) -> Order {
        match self.algorithm {
            Algorithm::Dots => Order::Lanes,
            Algorithm::Depthwise { .. } | Algorithm::Planes { .. } => Order::OneByOne,
            Algorithm::Tiles { form: Form::Bf16Pairs, .. } => Order::Pairs,
            Algorithm::Tiles { form: Form::Bf16Tiles, .. } => Order::Blocks,
            Algorithm::Tiles { .. } => Order::OneByOne,
        }
    }

    /// For 8-bit integers. Few rows are one row of tiles, so that panels have one reader, which packs them if
    /// the right operand is an input that varies; those of a constant one are kept for later executions.
    pub(super) fn of_integers(shape: &ProductShape, machine: Machine, varies: bool) -> Self {
        let form = Form::integers(machine.level, machine.features, shape.rows);
        let (tile, depth_block) = tile_and_depth(shape, product_tile(form), form, machine);
        let (right, depth_block) = match shape.rows <= MAX_SKINNY_ROWS && varies {
            true => (Right::PackedInTile, TILE_DEPTH.min(depth_block)),
            false => (Right::Packed, depth_block),
        };
        Self::new(Algorithm::Tiles { form, right, depth_block }, tile)
    }

    /// For an operand of windows; `is_matrix` is true if the right operand is a matrix in memory. The kernels
    /// read panels whatever the sizes, so the order of additions depends on the type alone.
    pub(super) fn of_windows(
        shape: &ProductShape,
        form: Form,
        is_matrix: bool,
        is_kept: bool,
        machine: Machine,
    ) -> Self {
        let packing_tile = if form.is_in_pairs() { PAIRS_TILE } else { product_tile(form) };
        let right = match is_matrix && (is_kept || shape.rows_of_right() > packing_tile.rows) {
            true => Right::Packed,
            false => Right::PackedInTile,
        };
        let most = if right == Right::PackedInTile { packing_tile } else { product_tile(form) };
        let (tile, mut depth_block) = tile_and_depth(shape, most, form, machine);
        if right == Right::PackedInTile && !form.is_in_pairs() {
            let most = if form == Form::F32 { PANEL_DEPTH } else { TILE_DEPTH };
            depth_block = most.min(depth_block);
        }
        Self::new(Algorithm::Tiles { form, right, depth_block }, tile)
    }

    /// For convolutions of one channel each, or of groups of a few, of which each result sees some;
    /// `are_apart` if channels of the result are no neighbours.
    pub(super) fn of_channels(
        shape: &ProductShape,
        group: usize,
        seen: usize,
        are_apart: bool,
        machine: Machine,
    ) -> Self {
        let unit = Extent { rows: 1, columns: LANES };
        let most = if are_apart { CHANNELS_APART } else { DEPTHWISE_CHANNELS };
        // All windows read the weights of a tile.
        let most = match seen {
            1 => most,
            _ => (GROUPED_WEIGHTS / shape.depth.max(1)).clamp(LANES, most),
        };
        let channels = most.min(shape.columns.next_multiple_of(LANES)) / LANES * LANES;
        let most = Extent { rows: DEPTHWISE_SUMS / channels.max(1), columns: channels };
        let tile = tile_of(shape, most, unit, machine);
        Self::new(Algorithm::Depthwise { group, seen }, tile)
    }

    /// For convolutions in planes, whose rows are channels of the result and whose columns are windows, so
    /// many of which are a row of the image: what tiles read again of it are the rows between them. Each
    /// element of the result sees some channels.
    pub(super) fn of_planes(
        shape: &ProductShape,
        [of_row, channels]: [usize; 2],
        is_depthwise: bool,
        machine: Machine,
    ) -> Self {
        let (rows, sums) = match is_depthwise {
            true => (1, DEPTHWISE_SUMS),
            false => {
                let rows = shape.rows.min(PLANE_ROWS);
                (rows, PLANE_SUMS.min(PLANE_ELEMENTS / channels.max(1) * rows))
            }
        };
        let unit = if of_row <= PLANE_COLUMNS { of_row.max(1) } else { LANES };
        let most = PLANE_COLUMNS.min(shape.columns).min(sums / rows);
        let columns = (most / unit).max(1) * unit;
        let most = Extent { rows: (sums / columns).max(rows), columns };
        let tile = tile_of(shape, most, Extent { rows: 1, columns: unit }, machine);
        Self::new(Algorithm::Planes { is_depthwise }, tile)
    }

    /// `right_type` is the type of the right operand in the graph, which may be wider than that in memory;
    /// `is_kept` is true if its panels are packed once for all executions.
    pub(super) fn choose(
        shape: &ProductShape,
        left: &PlacedTensor,
        right: &PlacedTensor,
        right_type: DataType,
        is_kept: bool,
        machine: Machine,
    ) -> Self {
        let &ProductShape { rows, columns, depth, right_depth, right_column, .. } = shape;
        let along_columns = right_column == width_of(right) || columns == 1;
        let along_depth = right_depth == width_of(right) || depth == 1;
        let is_narrow = columns <= MAX_DOT_COLUMNS && rows > columns;
        let left_along_depth = shape.left_depth == width_of(left);
        let packed = Form::packed(right_type, machine.level, machine.features);
        let is_double = packed == Form::F64;
        if !is_double
            && along_depth
            && (rows <= MAX_SKINNY_ROWS && !along_columns || is_narrow && left_along_depth)
        {
            let tile = Extent { rows: rows.min(DOT_TILE.rows), columns: columns.min(DOT_TILE.columns) };
            return Self::new(Algorithm::Dots, tile);
        }
        // Rows that kernels read as they are: their elements are those of panels.
        let is_unpacked = along_columns && (right.data_type == DataType::F32 || is_double);
        let is_kept = is_kept && (!is_unpacked || rows >= MIN_KEPT_ROWS || machine.has_room);
        if along_columns && rows <= MAX_SKINNY_ROWS && !(is_kept && is_unpacked) {
            let form = Form::in_place(right.data_type);
            let panel = GemmKernel::new(machine.level, form).panel_columns();
            let tile = Extent { rows, columns: skinny_columns(shape, machine.threads, panel) };
            let (right, depth_block) = match depth.saturating_mul(columns) <= MAX_IN_PLACE {
                true => (Right::InPlace, SKINNY_DEPTH),
                false => (Right::Streams, if rows <= ROWS_OF_MIN_STREAMS { MIN_STREAMS } else { STREAMS }),
            };
            return Self::new(Algorithm::Tiles { form, right, depth_block }, tile);
        }
        let form = if is_unpacked { Form::in_place(right.data_type) } else { packed };
        let is_small = depth.saturating_mul(columns) <= MAX_IN_PLACE;
        let is_close = right_depth.unsigned_abs() <= MAX_IN_PLACE_STRIDE;
        let (has_few_rows, rows_of_right) = (rows <= UNPACKED_ROWS, shape.rows_of_right());
        let packing_tile = if form.is_in_pairs() { PAIRS_TILE } else { product_tile(form) };
        let right = match is_unpacked {
            _ if is_kept => Right::Packed,
            true if has_few_rows && (is_small || rows <= MAX_IN_PLACE_ROWS) => Right::InPlace,
            true if is_small && is_close && rows_of_right <= MANY_IN_PLACE_ROWS => Right::InPlace,
            // Blocks of rows in place would read each panel anew, whose rows lie in pages of their own.
            _ if rows_of_right <= packing_tile.rows || is_unpacked && has_few_rows => Right::PackedInTile,
            _ => Right::Packed,
        };
        let most = if right == Right::PackedInTile { packing_tile } else { product_tile(form) };
        let (tile, mut depth_block) = tile_and_depth(shape, most, form, machine);
        if right == Right::PackedInTile && !form.is_in_pairs() {
            depth_block = PANEL_DEPTH.min(depth_block);
        }
        Self::new(Algorithm::Tiles { form, right, depth_block }, tile).copying_left(shape, left)
    }

    /// For a right operand of stored rows, which becomes f32 part by part, with the order of additions that
    /// the same operand in f32 has; and the kernels of products in registers, if there are few rows.
    pub(super) fn of_stored(
        shape: &ProductShape,
        order: Order,
        stored: &RightRows,
        machine: Machine,
    ) -> Result<(Self, Option<Result<(), FallbackReason>>), FallbackReason> {
        let &ProductShape { rows, columns, depth, .. } = shape;
        let &RightRows { kernels, is_along_depth, group } = stored;
        let data_type = kernels.data_type();
        let has_few_rows = rows <= MAX_REGISTER_ROWS;
        // Only integers, and few scales, tell soon that no number is NaN.
        let is_float = matches!(data_type, DataType::F8E4m3 | DataType::F8E5m2);
        let can_be_checked = R::ElementType.unless(!is_float);
        match order {
            Order::Lanes if is_along_depth => {
                let tile = Extent { rows: rows.min(DOT_TILE.rows), columns: columns.min(DOT_TILE.columns) };
                let method = Self::new(Algorithm::Dots, tile);
                let in_registers = || can_be_checked.and_then(|()| kernels.has_dots(depth, group));
                return Ok((method, has_few_rows.then(in_registers)));
            }
            Order::OneByOne => {}
            _ => return Err(R::OrderOfSums),
        }
        let (tile, depth_block) = tile_and_depth(shape, memory::product_tile(), Form::F32, machine);
        // The operand that few rows read once stays in the first-level cache until then.
        let most = match rows <= MAX_SKINNY_ROWS && !is_along_depth {
            true => SKINNY_DEPTH,
            false => TILE_DEPTH.min(depth_block),
        };
        // Blocks of whole groups, or of parts of one.
        let whole = if is_along_depth { most / group.columns * group.columns } else { 0 };
        let depth_block = if whole > 0 { whole } else { most };
        let kernel =
            PackPanel::new(machine.level, DataType::F32, Form::F32, columns).ok_or(R::ElementType)?;
        let shares = group.columns;
        let is_fit = match is_along_depth {
            true => whole > 0 || shares.is_multiple_of(depth_block),
            false => {
                let panel = kernel.columns();
                is_aligned(shares, panel, columns)
            }
        };
        // A part of a row begins with a byte.
        let is_even = !is_along_depth || depth_block.is_multiple_of(2);
        R::ScaleGroups.unless(is_fit)?;
        R::HalfBytes.unless(is_even || data_type.size().is_some() || depth_block >= depth)?;
        let is_aligned = is_aligned(group.columns, REGISTER_COLUMNS, columns);
        let in_registers = (has_few_rows && !is_along_depth).then(|| {
            can_be_checked?;
            R::OddLength.unless(is_aligned)?;
            kernels.has_add_rows(columns.min(REGISTER_COLUMNS), group)
        });
        let tile = match in_registers {
            Some(Ok(())) => Extent { rows, columns: columns.min(REGISTER_COLUMNS) },
            _ => tile,
        };
        let algorithm = Algorithm::Tiles { form: Form::F32, right: Right::Dequantized, depth_block };
        Ok((Self::new(algorithm, tile), in_registers))
    }

    /// True if a phase of its own packs the right operand.
    pub(super) fn packs(&self) -> bool {
        matches!(self.algorithm, Algorithm::Tiles { right: Right::Packed, .. })
    }

    /// True if the kernels read the right operand in panels.
    pub(super) fn reads_panels(&self) -> bool {
        matches!(self.algorithm, Algorithm::Tiles { right: Right::Packed | Right::PackedInTile, .. })
    }
}

/// Columns of a tile of a skinny product: as many as leave each thread a tile, in whole panels.
fn skinny_columns(shape: &ProductShape, threads: usize, panel: usize) -> usize {
    let least = *SKINNY_COLUMNS.start();
    let most = (MAX_SKINNY_SUMS / shape.rows.max(1)).clamp(least, *SKINNY_COLUMNS.end());
    let tiles = shape.columns.div_ceil(most).next_multiple_of(threads);
    shape.columns.div_ceil(tiles.max(1)).next_multiple_of(panel).clamp(least, most).min(shape.columns)
}

/// True if parts of so many columns begin with groups of one scale, or lie within one.
fn is_aligned(group: usize, part: usize, columns: usize) -> bool {
    group >= columns || group.is_multiple_of(part) || part.is_multiple_of(group)
}

/// The largest tile of a product in a form.
fn product_tile(form: Form) -> Extent {
    if form.uses_tiles() { memory::amx_tile() } else { memory::product_tile() }
}

/// The tile of a product by micro-kernels, and elements of the depth in a block.
fn tile_and_depth(shape: &ProductShape, most: Extent, form: Form, machine: Machine) -> (Extent, usize) {
    let panel = GemmKernel::new(machine.level, form).panel_columns();
    let tile = tile_of(shape, most, Extent { rows: form.row_block(), columns: panel }, machine);
    // The rows of the left operand and one panel stay in the second-level cache while the panel is used.
    let most = match form.uses_tiles() {
        true => memory::amx_depth() * form.depth_step() / 4,
        false if form.is_integer() => {
            memory::product_depth(tile.rows + panel).saturating_mul(form.depth_step())
        }
        false => memory::product_depth(tile.rows + panel),
    };
    let blocks = shape.depth.div_ceil(most).max(1);
    let unit = form.depth_unit();
    let depth_block = shape.depth.div_ceil(blocks).next_multiple_of(unit).max(unit);
    (tile, depth_block)
}

/// Tiles of nearly equal size, which are multiples of a unit unless the product is smaller.
fn tile_of(shape: &ProductShape, mut most: Extent, unit: Extent, machine: Machine) -> Extent {
    let even = |of: usize, most: usize, unit: usize| {
        let blocks = of.div_ceil(most.max(1)).max(1);
        of.div_ceil(blocks).next_multiple_of(unit).clamp(1, of.max(1))
    };
    loop {
        let tile = Extent {
            rows: even(shape.rows, most.rows, unit.rows),
            columns: even(shape.columns, most.columns, unit.columns),
        };
        let tiles = [shape.rows.div_ceil(tile.rows), shape.columns.div_ceil(tile.columns)];
        let count = tiles.into_iter().fold(shape.products(), usize::saturating_mul);
        let flops = [tile.columns, shape.depth, 2].into_iter().fold(tile.rows, usize::saturating_mul);
        if memory::keeps_product_tiles(count, flops, machine.single_thread()) {
            return tile;
        }
        match most {
            Extent { columns, .. } if columns > unit.columns && columns > 64 => most.columns = columns / 2,
            Extent { rows, .. } if rows > 32 => most.rows = rows / 2,
            _ => return tile,
        }
    }
}
