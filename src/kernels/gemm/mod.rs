//! Matrix products: micro-kernels that compute one small tile of a product, and the loops around them.
//!
//! A micro-kernel keeps a tile of `rows` × `vectors` accumulators in registers. It reads each element of the
//! left operand from that operand's own memory, with any row and column stride, and multiplies it by vectors
//! of a row of the right operand, whose elements are contiguous. Every element of the result is one chain of
//! fused multiplications and additions, in the order of the depth. The chain may be continued through the
//! result in memory. So the bits depend neither on the tiles nor on the threads.
//!
//! Products of 8-bit integers are summed up in s32, whose bits stand where those of the f32 result will
//! stand; see [`integers`].
//!
//! [`StoredKernels`] are for few rows. They read the right operand once, as it is stored: floats, or integers
//! with scales. If it is contiguous along the depth, [`dot`]s have lanes that go along the depth, and a fixed
//! tree adds them up; if it is contiguous along the columns, rows are [added up](outer).

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
pub(super) mod amx;
mod bias;
mod bodies;
pub(crate) mod depthwise;
mod dot;
mod finite;
mod form;
pub(crate) mod integers;
mod operand;
mod outer;
pub(crate) mod pack;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
mod pair_rows;
pub(crate) mod planes;
mod product;
mod stored;
#[cfg(test)]
mod tests;
mod widen;
mod window_bytes;
mod window_rows;
pub(crate) mod windows;

pub(crate) use self::bias::add_to_rows;
use self::bodies::{Micro, micro_kernel};
pub(crate) use self::finite::is_finite;
pub(crate) use self::form::Form;
use self::form::Geometry;
pub(crate) use self::operand::{LaterRows, OperandRows, RowProduct, RowScaling};
pub(crate) use self::outer::rows_ahead;
pub(crate) use self::product::{Matrix, PanelPrefetch, Panels, Product};
pub(crate) use self::stored::{StoredKernels, WIDENED_ROWS, add_rows_with_holes};
pub(crate) use self::window_rows::gather_rows;
use super::LINE;
use crate::types::kind::Level;

/// Columns of a panel of the right operand: the columns of the widest tile.
pub(crate) fn panel_columns(level: Level, form: Form) -> usize {
    let Geometry { lanes, rows } = form.geometry(level);
    lanes * rows.len()
}

/// The micro-kernels of a level and form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GemmKernel {
    level: Level,
    form: Form,
}

/// Prefetch distance in rows of a panel (decision: product-prefetch).
const PREFETCH_ROWS: isize = 8;

/// Prefetch distance in bytes of all rows together that are read side by side from memory
/// (decision: skinny-streams).
const STREAM_BYTES: usize = 8192;

/// Vectors of a tile of the level Avx512 whose rows of the right operand are read side by side from memory,
/// and the most rows of it: fewer calls for as many bytes (decision: skinny-width).
const WIDE_VECTORS: usize = 8;
const WIDE_ROWS: usize = 2;

impl GemmKernel {
    /// `form` must be one that the machine runs at the level: [`Form::packed`] and [`Form::in_place`] give
    /// no other.
    pub(crate) fn new(level: Level, form: Form) -> Self {
        Self { level, form }
    }

    pub(crate) fn form(self) -> Form {
        self.form
    }

    pub(crate) fn panel_columns(self) -> usize {
        panel_columns(self.level, self.form)
    }

    /// Computes a product, panel by panel.
    ///
    /// # Safety
    ///
    /// Operands can be read and the result can be written, which overlaps no operand; the machine runs the
    /// level and form. If several rows are read together, neighbours along the depth of the left operand are
    /// neighbours in memory; integers go on up to a whole step of the depth.
    pub(crate) unsafe fn run(self, product: &Product) {
        // SAFETY: as the caller promises.
        unsafe { self.run_prefetching(product, PanelPrefetch::Nothing) };
    }

    /// As [`run`](Self::run), and calls a function after each tile of the result, so that memory works while
    /// arithmetic does.
    ///
    /// # Safety
    ///
    /// As [`run`](Self::run).
    pub(crate) unsafe fn run_with(self, product: &Product, after_tile: impl FnMut()) {
        // SAFETY: as the caller promises.
        unsafe { self.run_panels(product, PanelPrefetch::Nothing, after_tile) };
    }

    /// As [`run`](Self::run), and prefetches what is read next.
    ///
    /// # Safety
    ///
    /// As [`run`](Self::run). The prefetched memory need not exist.
    pub(crate) unsafe fn run_prefetching(self, product: &Product, prefetch: PanelPrefetch) {
        // SAFETY: as the caller promises.
        unsafe { self.run_panels(product, prefetch, || ()) };
    }

    /// Vectors of a tile of a product of so many rows.
    fn tile_vectors(self, rows: usize, prefetch: PanelPrefetch) -> usize {
        match (self.level, self.form, prefetch) {
            (Level::Avx512, Form::F32, PanelPrefetch::Streams) if rows <= WIDE_ROWS => WIDE_VECTORS,
            // Half of a panel at a time would be half of each of its rows (decision: kept-panels).
            (_, Form::F32, PanelPrefetch::NextPanel) => self.form.geometry(self.level).rows.len(),
            _ => self.form.geometry(self.level).vectors(rows),
        }
    }

    /// Bytes from what a tile reads of rows side by side, from a column on, to what it prefetches of the same
    /// rows; where they end, of those of the next block, which are read next (decision: skinny-streams).
    fn stream_distance(self, first: usize, columns: usize, depth: usize, row_stride: isize) -> isize {
        let [place, row] = [first, columns].map(|columns| columns * self.form.right_width());
        let along = STREAM_BYTES / depth.max(1);
        match place + along < row {
            true => along as isize,
            false => along as isize - row as isize + row_stride * depth as isize,
        }
    }

    /// # Safety
    ///
    /// As [`run`](Self::run).
    #[inline]
    unsafe fn run_panels(self, product: &Product, prefetch: PanelPrefetch, mut after_tile: impl FnMut()) {
        #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
        if self.form.uses_tiles() {
            // SAFETY: as the caller promises.
            unsafe { amx::run(self.form, product, prefetch) };
            return after_tile();
        }
        let geometry = self.form.geometry(self.level);
        let panel = geometry.lanes * geometry.rows.len();
        let step = self.form.depth_step();
        let Product { rows: all_rows, columns: all_columns, depth, left, right, .. } = *product;
        let Product { to, to_row, accumulate, bias, .. } = *product;
        let depth = if self.form.is_integer() { depth.next_multiple_of(step) } else { depth };
        let (steps, sum_width) = (depth / step, self.form.sum_width());
        // A block of rows prefetches at most a line in each step, and rows may begin within a line.
        let lines_of_row = (panel * self.form.right_width()).div_ceil(LINE);
        let width = self.tile_vectors(all_rows, prefetch) * geometry.lanes;
        let prefetches_result =
            !accumulate && !matches!(prefetch, PanelPrefetch::Nothing | PanelPrefetch::Streams);
        for first in (0..all_columns).step_by(width) {
            let columns = width.min(all_columns - first);
            let distance = match prefetch {
                PanelPrefetch::Streams => self.stream_distance(first, all_columns, depth, right.row_stride),
                _ => PREFETCH_ROWS * right.row_stride,
            };
            let vectors = columns.div_ceil(geometry.lanes);
            let blocks = all_rows.div_ceil(*geometry.rows.get(vectors - 1).unwrap_or(&WIDE_ROWS));
            let panel_at = right.at.wrapping_offset(right.panel_stride * (first / panel) as isize);
            let at = panel_at.wrapping_add(first % panel * self.form.right_width());
            // Blocks of rows are of nearly equal height, because a block of one row would wait for the
            // latency of its sums: the first ones have a row more.
            let (height, higher) = (all_rows / blocks.max(1), all_rows % blocks.max(1));
            let kernel = |rows: usize| micro_kernel(self.level, self.form, rows.max(1), vectors);
            let kernels: [Micro; 2] = [kernel(height), kernel(height + usize::from(higher > 0))];
            let mut tile = bodies::Tile {
                steps,
                half_step: depth % step != 0,
                left: left.at,
                left_row: left.row_stride,
                left_step: left.col_stride * step as isize,
                right: at,
                right_row: right.row_stride,
                to: to.wrapping_byte_add(first * sum_width),
                to_row,
                last_lanes: (columns - (vectors - 1) * geometry.lanes) * (sum_width / size_of::<f32>()),
                accumulate,
                bias,
                distance,
                next: std::ptr::null(),
                next_step: 0,
                prefetches_result,
            };
            for block in 0..blocks {
                let number = || first % panel / width * blocks + block;
                (tile.next, tile.next_step) = match prefetch {
                    // All blocks share the next panel, so that no one waits for memory while others leave it
                    // idle (decision: panel-ahead).
                    PanelPrefetch::NextPanel => {
                        let share = (lines_of_row * LINE).div_ceil(panel.div_ceil(width) * blocks).min(LINE);
                        let at = panel_at.wrapping_offset(right.panel_stride);
                        (at.wrapping_add(number() * steps * share), share as isize)
                    }
                    PanelPrefetch::Rows(of) if number() <= lines_of_row => {
                        (of.at.wrapping_add(number() * LINE), of.row_stride * step as isize)
                    }
                    // Tiles of AMX alone prefetch all of it.
                    PanelPrefetch::Block(at) => (at, 0),
                    // There is nothing to prefetch; this line is in the first level.
                    _ => (std::ptr::from_ref(product).cast(), 0),
                };
                // SAFETY: the tile is a part of the product, so the caller's promise holds for it.
                unsafe { kernels[usize::from(block < higher)](&tile) };
                after_tile();
                let rows = height + usize::from(block < higher);
                tile.left = tile.left.wrapping_offset(left.row_stride * rows as isize);
                tile.to = tile.to.wrapping_byte_offset(to_row * rows as isize);
                tile.bias = if bias.is_null() { bias } else { tile.bias.wrapping_add(rows) };
            }
        }
    }
}
