//! Operands of products of 8-bit integers in the forms that micro-kernels read, and the scaling of the s32
//! sums.
//!
//! Kernels multiply an unsigned left element by a signed right one. An s8 on the left is read as a u8 that is
//! larger by 128, a u8 on the right as an s8 that is smaller by 128; both flip one bit. The same
//! offset is added to zero points. Zero points do not enter the products: the sums of rows
//! and of columns take them out afterwards. All sums wrap around, so a result that fits in s32 is exact.

use super::{Form, Matrix};
use crate::kernels::by_width::PackTile;
use crate::kernels::isa::{Isa, at_level, shells};
use crate::kernels::pack::pack_tile;
use crate::kernels::{Extent, Source, Target, Width};
use crate::types::dtype::DataType;
use crate::types::kind::Level;

/// Elements that are scaled side by side.
pub(crate) const BLOCK: usize = 16;

/// Elements of the left operand that are packed side by side.
const LEFT_BLOCK: usize = 64;

/// Rows and columns of a strided left operand that go to scratch before they are packed.
const GATHERED: Extent = Extent { rows: 16, columns: 1024 };

/// Depth of a strided right operand that goes to scratch before it is packed.
const GATHERED_DEPTH: usize = 256;

/// The most columns of a panel.
const PANEL: usize = 64;

/// Bytes of scratch for [`IntegerRows::run`] and [`IntegerPanels::run`].
pub(super) const SCRATCH: usize = GATHERED.rows * GATHERED.columns;

const _: () = assert!(GATHERED_DEPTH * PANEL <= SCRATCH);

/// The bit that makes a signed element an unsigned one that is larger by 128, and the other way round.
const FLIP: u8 = 0x80;

/// The offset that [`IntegerRows`] adds to elements of a type, and so to their zero points.
pub(crate) fn left_shift(data_type: DataType) -> i32 {
    if data_type == DataType::S8 { 128 } else { 0 }
}

/// The offset that [`IntegerPanels`] adds to elements of a type, and so to their zero points.
pub(crate) fn right_shift(data_type: DataType) -> i32 {
    if data_type == DataType::U8 { -128 } else { 0 }
}

/// Packs rows of the left operand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IntegerRows {
    level: Level,
    form: Form,
    flip: u8,
    pack_tile: PackTile,
}

impl IntegerRows {
    pub(crate) fn new(level: Level, data_type: DataType, form: Form) -> Self {
        let flip = if data_type == DataType::S8 { FLIP } else { 0 };
        Self { level, form, flip, pack_tile: pack_tile(level, Width::W1) }
    }

    /// Bytes of an element that it writes.
    pub(crate) fn written_width(&self) -> usize {
        written_width(self.form)
    }

    /// Packs a part of a matrix. A row ends with zeros up to a whole step of the depth. The sums of the rows
    /// are written to `sums`, or added to the numbers there, unless the pointer is null.
    ///
    /// # Safety
    ///
    /// The part can be read and the target written, which overlaps nothing else; `scratch` has
    /// [`SCRATCH`](super::pack::SCRATCH) bytes, `sums` a number for each row; the machine runs the level.
    pub(crate) unsafe fn run(
        &self,
        extent: Extent,
        from: Matrix,
        to: Target,
        sums: *mut i32,
        accumulate: bool,
        scratch: *mut u8,
    ) {
        let pack = |extent: Extent, from: Source, to: Target, row: usize, accumulate: bool| {
            let sums = if sums.is_null() { sums } else { sums.wrapping_add(row) };
            // SAFETY: as the caller promises.
            unsafe {
                match self.form {
                    Form::S8Quads | Form::S8Tiles => {
                        at_level!(self.level, rows::<true>(extent, from, self.flip, to, sums, accumulate))
                    }
                    _ => at_level!(self.level, rows::<false>(extent, from, self.flip, to, sums, accumulate)),
                }
            }
        };
        let source = Source { at: from.at, row_stride: from.row_stride };
        if from.col_stride == 1 || extent.columns <= 1 {
            return pack(extent, source, to, 0, accumulate);
        }
        for row in (0..extent.rows).step_by(GATHERED.rows) {
            for column in (0..extent.columns).step_by(GATHERED.columns) {
                let part = Extent {
                    rows: GATHERED.rows.min(extent.rows - row),
                    columns: GATHERED.columns.min(extent.columns - column),
                };
                let at = source.at_row(row).at.wrapping_offset(from.col_stride * column as isize);
                let gathered = GATHERED.columns as isize;
                let target = Target { at: scratch, row_stride: gathered };
                // SAFETY: as the caller promises; a part is within the scratch.
                unsafe { (self.pack_tile)(part, Source { at, ..source }, from.col_stride, 0, target) };
                let at = to.at_row(row).at.wrapping_add(column * self.written_width());
                let is_later = accumulate || column > 0;
                pack(part, Source { at: scratch, row_stride: gathered }, Target { at, ..to }, row, is_later);
            }
        }
    }
}

/// Packs panels of the right operand.
#[derive(Debug, Clone, Copy)]
pub(super) struct IntegerPanels {
    level: Level,
    form: Form,
    flip: u8,
    pack_tile: PackTile,
}

impl IntegerPanels {
    pub(super) fn new(level: Level, data_type: DataType, form: Form) -> Self {
        let flip = if data_type == DataType::U8 { FLIP } else { 0 };
        Self { level, form, flip, pack_tile: pack_tile(level, Width::W1) }
    }

    /// Packs some rows of one panel to rows of `to`, starting at a whole step of the depth, and writes the
    /// sums of the columns. Columns that the panel lacks, and rows that the last step lacks, are 0.
    ///
    /// # Safety
    ///
    /// `from` can be read: so many rows, and at most as many columns as `to` has: those of a panel. `to` and
    /// `sums` can be written, `scratch` has [`SCRATCH`] bytes, nothing overlaps, and the machine runs the
    /// level.
    pub(super) unsafe fn run(
        &self,
        extent: Extent,
        from: Matrix,
        to: Target,
        sums: *mut i32,
        scratch: *mut u8,
    ) {
        let pack = |extent: Extent, from: Source, to: Target, accumulate: bool| {
            // SAFETY: as the caller promises.
            unsafe {
                match self.form {
                    Form::S8Quads | Form::S8Tiles => {
                        at_level!(self.level, panel::<true>(extent, from, self.flip, to, sums, accumulate));
                    }
                    _ => at_level!(self.level, panel::<false>(extent, from, self.flip, to, sums, accumulate)),
                }
            }
        };
        let source = Source { at: from.at, row_stride: from.row_stride };
        if from.col_stride == 1 || extent.columns <= 1 {
            return pack(extent, source, to, false);
        }
        for row in (0..extent.rows).step_by(GATHERED_DEPTH) {
            let part = Extent { rows: GATHERED_DEPTH.min(extent.rows - row), ..extent };
            let target = Target { at: scratch, row_stride: PANEL as isize };
            // SAFETY: as the caller promises; a part is within the scratch.
            unsafe { (self.pack_tile)(part, source.at_row(row), from.col_stride, 0, target) };
            let gathered = Source { at: scratch, row_stride: PANEL as isize };
            pack(part, gathered, to.at_row(row / self.form.depth_step()), row > 0);
        }
    }
}

/// Bytes of a packed element.
fn written_width(form: Form) -> usize {
    4 / form.depth_step()
}

/// The tile of sums of a product that [`SumScaling::run`] turns into numbers. Arrays of columns are padded to
/// a multiple of [`BLOCK`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScaledTile {
    pub(crate) extent: Extent,
    /// The sums in s32, which become numbers in f32.
    pub(crate) sums: Target,
    /// The offset of a column, which is subtracted: the left zero point times the column's sum.
    pub(crate) columns: *const i32,
    /// The right zero point of each column; null if all are 0.
    pub(crate) zeros: *const i32,
    /// The sum of each row of the left operand, if there are right zero points.
    pub(crate) rows: *const i32,
    /// The product of both scales, for each column or for each row.
    pub(crate) scales: *const f64,
    pub(crate) scales_rows: bool,
}

/// Turns sums into numbers: subtracts the share of zero points, and multiplies by the scales in f64, so
/// that all bits of the sum and of both scales count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SumScaling {
    level: Level,
    /// Sums are f32 that are integers, not s32.
    are_floats: bool,
}

impl SumScaling {
    pub(crate) fn new(level: Level, are_floats: bool) -> Self {
        Self { level, are_floats }
    }

    /// # Safety
    ///
    /// All arrays can be read and the sums written, nothing overlaps, and the machine runs the level.
    pub(crate) unsafe fn run(&self, tile: &ScaledTile) {
        // SAFETY: as the caller promises.
        unsafe {
            match self.are_floats {
                true => at_level!(self.level, scale::<true>(tile)),
                false => at_level!(self.level, scale::<false>(tile)),
            }
        }
    }
}

shells! {
    I:
    fn rows[const QUADS: bool](
        extent: Extent, from: Source, flip: u8, to: Target, sums: *mut i32, accumulate: bool,
    ) {
        pack_rows::<QUADS>(extent, from, flip, to, sums, accumulate)
    }

    fn panel[const QUADS: bool](
        extent: Extent, from: Source, flip: u8, to: Target, sums: *mut i32, accumulate: bool,
    ) {
        // Columns of a panel are a multiple of 8 at level Portable, and of 16 at any other.
        match I::LEVEL {
            Level::Portable => pack_panel::<QUADS, 8>(extent, from, flip, to, sums, accumulate),
            #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
            Level::Avx512 if QUADS && extent.columns == PANEL => {
                pack_vectors(extent.rows, from, flip, to, sums, accumulate);
            }
            _ => pack_panel::<QUADS, 16>(extent, from, flip, to, sums, accumulate),
        }
    }

    fn scale[const FLOATS: bool](tile: &ScaledTile) {
        scale_tile::<FLOATS>(tile)
    }
}

/// # Safety
///
/// As [`IntegerRows::run`].
#[inline(always)]
unsafe fn pack_rows<const QUADS: bool>(
    extent: Extent,
    from: Source,
    flip: u8,
    to: Target,
    sums: *mut i32,
    accumulate: bool,
) {
    let (step, width) = if QUADS { (4, 1) } else { (2, 2) };
    let whole = extent.columns / LEFT_BLOCK * LEFT_BLOCK;
    for row in 0..extent.rows {
        let (from, to) = (from.at_row(row).at, to.at_row(row).at);
        let mut sum = [0u32; LEFT_BLOCK];
        // SAFETY: as the caller promises; the target has room for whole steps.
        unsafe {
            for column in (0..whole).step_by(LEFT_BLOCK) {
                let block = from.wrapping_add(column).cast::<[u8; LEFT_BLOCK]>().read_unaligned();
                let block = flipped(block, flip, &mut sum);
                let to = to.wrapping_add(column * width);
                match QUADS {
                    true => to.cast::<[u8; LEFT_BLOCK]>().write_unaligned(block),
                    false => to.cast::<[u16; LEFT_BLOCK]>().write_unaligned(block.map(u16::from)),
                }
            }
            if whole < extent.columns {
                let count = extent.columns - whole;
                // The rest of the block is 0.
                let mut block = [flip; LEFT_BLOCK];
                block.as_mut_ptr().copy_from_nonoverlapping(from.wrapping_add(whole), count);
                let block = flipped(block, flip, &mut sum);
                let (to, bytes) = (to.wrapping_add(whole * width), count.next_multiple_of(step) * width);
                match QUADS {
                    true => to.copy_from_nonoverlapping(block.as_ptr(), bytes),
                    false => to.copy_from_nonoverlapping(block.map(u16::from).as_ptr().cast(), bytes),
                }
            }
        }
        if !sums.is_null() {
            let sum = sum.iter().fold(
                0u32,
                #[inline(always)]
                |all, &x| all.wrapping_add(x),
            ) as i32;
            let at = sums.wrapping_add(row);
            // SAFETY: as the caller promises.
            unsafe { at.write(if accumulate { at.read().wrapping_add(sum) } else { sum }) };
        }
    }
}

/// A block of a row with bits flipped, whose numbers are added to sums.
#[inline(always)]
fn flipped(mut block: [u8; LEFT_BLOCK], flip: u8, sum: &mut [u32; LEFT_BLOCK]) -> [u8; LEFT_BLOCK] {
    for i in 0..LEFT_BLOCK {
        block[i] ^= flip;
        sum[i] += u32::from(block[i]);
    }
    block
}

/// # Safety
///
/// As [`IntegerPanels::run`], if neighbours along a row of the source are neighbours in memory.
#[inline(always)]
unsafe fn pack_panel<const QUADS: bool, const N: usize>(
    extent: Extent,
    from: Source,
    flip: u8,
    to: Target,
    sums: *mut i32,
    accumulate: bool,
) {
    let panel = (to.row_stride as usize / 4).min(PANEL);
    let columns = PanelColumns { rows: extent.rows, from, flip, to };
    for column in (0..panel).step_by(N) {
        let count = extent.columns.saturating_sub(column).min(N);
        // SAFETY: as the caller promises.
        unsafe {
            // Columns whose number is known are read as one vector.
            let mut sum = match count == N {
                true => columns.pack::<QUADS, N>(column, N),
                false => columns.pack::<QUADS, N>(column, count),
            };
            let at = sums.wrapping_add(column).cast::<[i32; N]>();
            if accumulate {
                let before = at.read_unaligned();
                (0..N).for_each(
                    #[inline(always)]
                    |i| sum[i] += before[i],
                );
            }
            at.write_unaligned(sum);
        }
    }
}

/// Packs a whole panel: bytes of four rows are brought side by side as vectors.
///
/// # Safety
///
/// As [`IntegerPanels::run`], at level Avx512.
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "the loops run over vectors of several arrays")]
unsafe fn pack_vectors(rows: usize, from: Source, flip: u8, to: Target, sums: *mut i32, accumulate: bool) {
    use std::arch::x86_64::*;
    // SAFETY: as the caller promises; a row of a panel is 64 bytes, and its words are 4 vectors.
    unsafe {
        let (zero, flips) = (_mm512_setzero_si512(), _mm512_set1_epi8(flip as i8));
        let (bytes, pairs) = (_mm512_set1_epi8(1), _mm512_set1_epi16(1));
        let at = |index: usize| sums.wrapping_add(16 * index).cast::<__m512i>();
        let mut sum = [zero; 4];
        if accumulate {
            for i in 0..4 {
                sum[i] = at(i).read_unaligned();
            }
        }
        for index in 0..rows.div_ceil(4) {
            let mut x = [zero; 4];
            for i in 0..4 {
                if 4 * index + i < rows {
                    let row = from.at_row(4 * index + i).at;
                    x[i] = _mm512_xor_si512(row.cast::<__m512i>().read_unaligned(), flips);
                }
            }
            let (low, low_behind) = (_mm512_unpacklo_epi8(x[0], x[1]), _mm512_unpacklo_epi8(x[2], x[3]));
            let (high, high_behind) = (_mm512_unpackhi_epi8(x[0], x[1]), _mm512_unpackhi_epi8(x[2], x[3]));
            // Each quarter of a vector has words of four columns, and those of the next vector follow it.
            let (a, b) = (_mm512_unpacklo_epi16(low, low_behind), _mm512_unpackhi_epi16(low, low_behind));
            let (c, d) = (_mm512_unpacklo_epi16(high, high_behind), _mm512_unpackhi_epi16(high, high_behind));
            let (a, b) = (_mm512_shuffle_i32x4::<0x44>(a, b), _mm512_shuffle_i32x4::<0xee>(a, b));
            let (c, d) = (_mm512_shuffle_i32x4::<0x44>(c, d), _mm512_shuffle_i32x4::<0xee>(c, d));
            let words = [
                _mm512_shuffle_i32x4::<0x88>(a, c),
                _mm512_shuffle_i32x4::<0xdd>(a, c),
                _mm512_shuffle_i32x4::<0x88>(b, d),
                _mm512_shuffle_i32x4::<0xdd>(b, d),
            ];
            let to = to.at_row(index).at.cast::<__m512i>();
            for i in 0..4 {
                to.wrapping_add(i).write_unaligned(words[i]);
                let of_pairs = _mm512_maddubs_epi16(bytes, words[i]);
                sum[i] = _mm512_add_epi32(sum[i], _mm512_madd_epi16(of_pairs, pairs));
            }
        }
        for i in 0..4 {
            at(i).write_unaligned(sum[i]);
        }
    }
}

/// Integers whose columns become those of a panel.
struct PanelColumns {
    rows: usize,
    from: Source,
    flip: u8,
    to: Target,
}

impl PanelColumns {
    /// Packs `count` columns from one on, and gives the sum of each. Columns and rows beyond them are 0.
    ///
    /// # Safety
    ///
    /// As [`IntegerPanels::run`].
    #[inline(always)]
    unsafe fn pack<const QUADS: bool, const N: usize>(&self, column: usize, count: usize) -> [i32; N] {
        let &Self { rows, from, flip, to } = self;
        let step = if QUADS { 4 } else { 2 };
        let mut sum = [0i32; N];
        for index in 0..rows.div_ceil(step) {
            let mut steps = [[flip; N]; 4];
            for (i, block) in steps[..step.min(rows - index * step)].iter_mut().enumerate() {
                let from = from.at_row(index * step + i).at.wrapping_add(column);
                // SAFETY: as the caller promises.
                unsafe { block.as_mut_ptr().copy_from_nonoverlapping(from, count) };
            }
            let mut words = [0u32; N];
            for i in 0..N {
                let x = |step: usize| (steps[step][i] ^ flip) as i8;
                if QUADS {
                    words[i] = u32::from_le_bytes([x(0) as u8, x(1) as u8, x(2) as u8, x(3) as u8]);
                    sum[i] += i32::from(x(0)) + i32::from(x(1)) + i32::from(x(2)) + i32::from(x(3));
                } else {
                    let half = |step: usize| u32::from(i16::from(x(step)) as u16);
                    words[i] = half(0) | half(1) << 16;
                    sum[i] += i32::from(x(0)) + i32::from(x(1));
                }
            }
            let to = to.at_row(index).at.cast::<u32>().wrapping_add(column);
            // SAFETY: as the caller promises; a row has a multiple of such blocks.
            unsafe { to.cast::<[u32; N]>().write_unaligned(words) };
        }
        sum
    }
}

/// # Safety
///
/// As [`SumScaling::run`].
#[inline(always)]
unsafe fn scale_tile<const FLOATS: bool>(tile: &ScaledTile) {
    let Extent { rows, columns } = tile.extent;
    for row in 0..rows {
        // SAFETY: as the caller promises: there is a sum of each row, if there are zero points, and a scale.
        let (of_row, scale) = unsafe {
            (
                if tile.zeros.is_null() { 0 } else { tile.rows.add(row).read() },
                if tile.scales_rows { tile.scales.add(row).read() } else { 0.0 },
            )
        };
        let sums = tile.sums.at_row(row).at.cast::<u32>();
        let block = |column: usize| sums.wrapping_add(column).cast::<[u32; BLOCK]>();
        // SAFETY: as the caller promises.
        unsafe {
            if columns < BLOCK {
                let mut of = [0u32; BLOCK];
                of.as_mut_ptr().copy_from_nonoverlapping(sums, columns);
                let of = scaled::<FLOATS>(tile, (of_row, scale), 0, of);
                sums.copy_from_nonoverlapping(of.as_ptr(), columns);
                continue;
            }
            // The last block shares columns with the one before, so it is read before any is written.
            let last = columns - BLOCK;
            let of_last = scaled::<FLOATS>(tile, (of_row, scale), last, block(last).read_unaligned());
            for column in (0..last).step_by(BLOCK) {
                let of = scaled::<FLOATS>(tile, (of_row, scale), column, block(column).read_unaligned());
                block(column).write_unaligned(of);
            }
            block(last).write_unaligned(of_last);
        }
    }
}

/// The numbers of f32 of a block of sums from a column on, of a row with the sum and the scale of it.
///
/// # Safety
///
/// The arrays of the tile have whole blocks.
#[inline(always)]
unsafe fn scaled<const FLOATS: bool>(
    tile: &ScaledTile,
    (of_row, scale): (i32, f64),
    column: usize,
    mut block: [u32; BLOCK],
) -> [u32; BLOCK] {
    // SAFETY: as the caller promises.
    unsafe {
        let array = |of: *const i32| of.wrapping_add(column).cast::<[i32; BLOCK]>().read_unaligned();
        let mut subtracted = array(tile.columns);
        if !tile.zeros.is_null() {
            let zeros = array(tile.zeros);
            for i in 0..BLOCK {
                subtracted[i] = subtracted[i].wrapping_add(zeros[i].wrapping_mul(of_row));
            }
        }
        let scales = match tile.scales_rows {
            true => [scale; BLOCK],
            false => tile.scales.wrapping_add(column).cast::<[f64; BLOCK]>().read_unaligned(),
        };
        for i in 0..BLOCK {
            if FLOATS {
                let sum = f64::from(f32::from_bits(block[i]));
                block[i] = ((sum * scales[i]) as f32 + 0.0).to_bits();
                continue;
            }
            let sum = (block[i] as i32).wrapping_sub(subtracted[i]);
            // A sum of nothing but 0 is +0, as it is in f32, whatever the sign of the scale.
            block[i] = ((f64::from(sum) * scales[i]) as f32 + 0.0).to_bits();
        }
    }
    block
}
