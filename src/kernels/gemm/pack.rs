//! Operands of products in the form that micro-kernels read: rows of contiguous elements of another type,
//! and panels of columns.

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
use std::arch::x86_64::*;

use super::integers::{self, IntegerPanels};
use super::{Form, Matrix, panel_columns};
use crate::kernels::by_width::PackTile;
use crate::kernels::isa::with_features;
use crate::kernels::pack::pack_tile;
use crate::kernels::pointwise::{Impls, Kernel1, convert};
use crate::kernels::prefetch::PrefetchQueue;
use crate::kernels::{Extent, LINE, Source, Target, Width};
use crate::types::dtype::DataType;
use crate::types::kind::Level;

/// Rows and columns of a block that is packed to scratch before it is converted.
const BLOCK_ROWS: usize = 16;
const BLOCK_COLUMNS: usize = 256;

/// Columns of a panel are a multiple of this.
const NARROW: usize = 16;

/// Bytes of scratch for [`RowPack::run`] and [`PackPanel::run`].
pub(crate) const SCRATCH: usize = BLOCK_ROWS * BLOCK_COLUMNS * 4;

const _: () = assert!(integers::SCRATCH <= SCRATCH);

/// Copies a matrix of any strides to rows of contiguous elements, converted to another type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowPack {
    width: usize,
    to_width: usize,
    pack: PackTile,
    /// The conversion of contiguous elements, if the types differ.
    convert: Option<Kernel1>,
    /// The copy of contiguous elements.
    copy: Kernel1,
}

impl RowPack {
    /// `None` if a type is not one of f32, bf16 and f16, and if not both are f64.
    pub(crate) fn new(level: Level, from: DataType, to: DataType) -> Option<Self> {
        let width = |data_type: DataType| match data_type {
            DataType::F32 => Some(Width::W4),
            DataType::F64 => Some(Width::W8),
            DataType::Bf16 | DataType::F16 => Some(Width::W2),
            _ => None,
        };
        if from != to && [from, to].contains(&DataType::F64) {
            return None;
        }
        let kernel = |to: DataType| convert(level, from, to).map(|kernels: Impls<Kernel1>| kernels.kernel);
        Some(Self {
            width: width(from)?.bytes(),
            to_width: width(to)?.bytes(),
            pack: pack_tile(level, width(from)?),
            convert: if from == to { None } else { Some(kernel(to)?) },
            copy: kernel(from)?,
        })
    }

    /// Bytes of an element that it writes.
    pub(crate) fn written_width(&self) -> usize {
        self.to_width
    }

    /// Copies a part of a matrix.
    ///
    /// # Safety
    ///
    /// The part can be read and the target written, which overlaps nothing else; `scratch` has [`SCRATCH`]
    /// bytes; the machine runs the level.
    pub(crate) unsafe fn run(&self, extent: Extent, from: Matrix, to: Target, scratch: *mut u8) {
        let source = Source { at: from.at, row_stride: from.row_stride };
        let queue = &mut PrefetchQueue::default();
        let is_contiguous = from.col_stride == self.width as isize || extent.columns == 1;
        let gather = |extent: Extent, from: Source, col_stride: isize, to: Target| {
            // SAFETY: the caller promises that the elements can be read; each target has room for them.
            unsafe {
                match is_contiguous {
                    true => copy_rows(extent, self.width, from, to),
                    false => (self.pack)(extent, from, col_stride, 0, to),
                }
            }
        };
        // Kernels of elements fill narrow rows up to one of their blocks, unless rows follow each other
        // (decision: narrow-panels).
        let follow = |row_stride: isize, width: usize| row_stride == (extent.columns * width) as isize;
        let gains = self.convert.is_none() || follow(to.row_stride, self.to_width);
        let is_narrow = extent.columns <= NARROW && gains && !follow(from.row_stride, self.width);
        // SAFETY: as the caller promises; blocks are within the part and within the scratch.
        unsafe {
            match self.convert {
                convert if is_contiguous && !is_narrow => {
                    convert.unwrap_or(self.copy)(extent, source, to, &[0.0; 2], queue);
                }
                None => gather(extent, source, from.col_stride, to),
                Some(convert) => {
                    for row in (0..extent.rows).step_by(BLOCK_ROWS) {
                        for column in (0..extent.columns).step_by(BLOCK_COLUMNS) {
                            let block = Extent {
                                rows: BLOCK_ROWS.min(extent.rows - row),
                                columns: BLOCK_COLUMNS.min(extent.columns - column),
                            };
                            let at = source.at_row(row).at.wrapping_offset(from.col_stride * column as isize);
                            let row_stride = (block.columns * self.width) as isize;
                            let gathered = Target { at: scratch, row_stride };
                            gather(block, Source { at, ..source }, from.col_stride, gathered);
                            let to =
                                Target { at: to.at_row(row).at.wrapping_add(column * self.to_width), ..to };
                            convert(block, Source { at: scratch, row_stride }, to, &[0.0; 2], queue);
                        }
                    }
                }
            }
        }
    }
}

/// Copies rows of a panel.
///
/// # Safety
///
/// The rows can be read and written, and nothing overlaps.
unsafe fn copy_rows(extent: Extent, width: usize, from: Source, to: Target) {
    let bytes = extent.columns * width;
    for row in 0..extent.rows {
        let (from, to) = (from.row::<u8>(row), to.row::<u8>(row));
        // SAFETY: as the caller promises.
        unsafe {
            match bytes {
                LINE => to.cast::<[u8; LINE]>().write_unaligned(from.cast::<[u8; LINE]>().read_unaligned()),
                _ => from.copy_to_nonoverlapping(to, bytes),
            }
        }
    }
}

/// Packs panels of the right operand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PackPanel {
    elements: Elements,
    form: Form,
    columns: usize,
}

/// How the elements of a panel are packed.
#[derive(Debug, Clone, Copy)]
enum Elements {
    Floats {
        row_pack: RowPack,
        /// Copies pairs along the depth, if these are neighbours in memory.
        pairs: RowPack,
    },
    Integers(IntegerPanels),
}

impl PackPanel {
    /// `None` if the type is not one of f32, bf16 and f16, or of u8 and s8 for a form of integers.
    ///
    /// The panels are those of a matrix of this number of columns: a narrow matrix has narrow panels.
    pub(crate) fn new(level: Level, data_type: DataType, form: Form, columns: usize) -> Option<Self> {
        let elements = match (form.is_integer(), data_type) {
            (true, DataType::U8 | DataType::S8) => {
                Elements::Integers(IntegerPanels::new(level, data_type, form))
            }
            (true, _) => return None,
            (false, _) => Elements::Floats {
                row_pack: RowPack::new(level, data_type, form.left_type())?,
                pairs: RowPack::new(level, DataType::F32, DataType::F32)?,
            },
        };
        let columns = panel_columns(level, form).min(columns.next_multiple_of(NARROW));
        Some(Self { elements, form, columns })
    }

    /// Columns of a panel.
    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// True if it writes elements as they are, row by row.
    pub(crate) fn copies(&self) -> bool {
        let is_copied = |row_pack: &RowPack| row_pack.convert.is_none() && !self.form.is_in_pairs();
        matches!(&self.elements, Elements::Floats { row_pack, .. } if is_copied(row_pack))
    }

    /// True if it writes the sums of columns, in s32.
    pub(crate) fn writes_sums(&self) -> bool {
        matches!(self.elements, Elements::Integers(_))
    }

    /// Rows of the operand in a row of a panel.
    pub(crate) fn depth_step(&self) -> usize {
        self.form.depth_step()
    }

    /// Bytes of a row of a panel.
    pub(crate) fn row_bytes(&self) -> usize {
        self.columns * self.form.right_width()
    }

    /// Bytes of a panel.
    pub(crate) fn panel_bytes(&self, depth: usize) -> usize {
        depth.div_ceil(self.form.depth_step()).saturating_mul(self.row_bytes())
    }

    /// Packs some rows of one panel, starting at a whole step of the depth. The columns that the panel lacks
    /// are 0. Panels of integers have no other use than [`run_with_sums`](Self::run_with_sums).
    ///
    /// # Safety
    ///
    /// `from` has `depth` rows of `columns` elements that can be read, at most as many as a panel has; `to`
    /// has room for these rows of a panel, `scratch` has [`SCRATCH`] bytes, nothing overlaps, and the machine
    /// runs the level and form.
    pub(crate) unsafe fn run(
        &self,
        depth: usize,
        columns: usize,
        from: Matrix,
        to: *mut u8,
        scratch: *mut u8,
    ) {
        let row_stride = self.row_bytes();
        let Elements::Floats { row_pack, pairs: pack_pairs } = &self.elements else { return };
        let packed_rows = depth.div_ceil(self.form.depth_step());
        if columns < self.columns {
            // SAFETY: the caller promises room for all columns of the rows.
            unsafe { to.write_bytes(0, packed_rows * row_stride) };
        }
        let target = Target { at: to, row_stride: row_stride as isize };
        if !self.form.is_in_pairs() {
            // SAFETY: as the caller promises.
            return unsafe { row_pack.run(Extent { rows: depth, columns }, from, target, scratch) };
        }
        #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
        if row_pack.width == 4 && from.col_stride == 4 {
            let row = |row: usize| from.at.wrapping_offset(from.row_stride * row as isize).cast();
            for low in (0..depth).step_by(2) {
                let high = if low + 1 < depth { Some(row(low + 1)) } else { None };
                // SAFETY: as the caller promises; a machine that runs the form has the instructions.
                unsafe { round_to_pairs(columns, row(low), high, target.at_row(low / 2).at.cast()) };
            }
            return;
        }
        // Pairs that are neighbours in memory are elements of 4 bytes.
        let whole = match from.row_stride {
            2 => depth / 2,
            _ => 0,
        };
        let pairs = Matrix { row_stride: 4, ..from };
        let gap = (self.columns * 2) as isize;
        let target_at = |row: usize| target.at_row(row / 2);
        // SAFETY: as the caller promises; a block of rows of a panel is within the scratch.
        unsafe {
            pack_pairs.run(Extent { rows: whole, columns }, pairs, target, scratch);
            if row_pack.convert.is_none() && from.col_stride == 2 {
                let from = Source { at: from.at, row_stride: from.row_stride }.at_row(2 * whole);
                return interleave(Extent { rows: depth - 2 * whole, columns }, from, target_at(2 * whole));
            }
            let (rows, gather_scratch) = (scratch, scratch.wrapping_add(SCRATCH / 2));
            for row in (2 * whole..depth).step_by(BLOCK_ROWS) {
                let from = Matrix { at: from.at.wrapping_offset(from.row_stride * row as isize), ..from };
                let extent = Extent { rows: BLOCK_ROWS.min(depth - row), columns };
                row_pack.run(extent, from, Target { at: rows, row_stride: gap }, gather_scratch);
                interleave(extent, Source { at: rows, row_stride: gap }, target_at(row));
            }
        }
    }

    /// As [`run`](Self::run) for panels of integers; the sums of the columns are written to `sums`.
    ///
    /// # Safety
    ///
    /// As [`run`](Self::run); `sums` has room for an s32 for each column of a panel.
    pub(crate) unsafe fn run_with_sums(
        &self,
        extent: Extent,
        from: Matrix,
        to: *mut u8,
        sums: *mut i32,
        scratch: *mut u8,
    ) {
        let Elements::Integers(integers) = &self.elements else { return };
        let to = Target { at: to, row_stride: self.row_bytes() as isize };
        // SAFETY: as the caller promises.
        unsafe { integers.run(extent, from, to, sums, scratch) };
    }
}

/// Rounds two vectors to bf16, and puts numbers of the same lane side by side, the first in the low half.
///
/// # Safety
///
/// The machine has the instructions.
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
#[inline(always)]
pub(in crate::kernels) unsafe fn paired(low: __m512, high: __m512) -> __m512i {
    const ORDER: [u16; 32] = {
        let mut order = [0; 32];
        let mut at = 0;
        while at < 32 {
            order[at] = (at / 2 + at % 2 * 16) as u16;
            at += 1;
        }
        order
    };
    // SAFETY: as the caller promises; the vectors are of one size.
    unsafe {
        let order = _mm512_loadu_si512(ORDER.as_ptr().cast());
        let both = std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low));
        _mm512_permutexvar_epi16(order, both)
    }
}

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
with_features! {
    avx512_bf16
    /// Rounds two rows to bf16 and interleaves them; without a second row, 0 stands in its place.
    ///
    /// # Safety
    ///
    /// `count` elements of each row can be read, as many pairs can be written, and the machine has the
    /// instructions.
    unsafe fn round_to_pairs(count: usize, low: *const f32, high: Option<*const f32>, to: *mut u32) {
        for at in (0..count).step_by(16) {
            let mask = u16::MAX >> 16usize.saturating_sub(count - at);
            // SAFETY: as the caller promises; elements outside of the mask are neither read nor written.
            unsafe {
                let low = _mm512_maskz_loadu_ps(mask, low.wrapping_add(at));
                let high = high.map_or_else(
                    || _mm512_setzero_ps(),
                    |high| _mm512_maskz_loadu_ps(mask, high.wrapping_add(at)),
                );
                _mm512_mask_storeu_epi32(to.wrapping_add(at).cast(), mask, paired(low, high));
            }
        }
    }
}

with_features! {
    avx512
    /// Interleaves each two rows of elements of 16 bits; behind the last of an odd number, 0 stands in the
    /// place of a row. Only level Avx512 has pairs, so no other runs this.
    ///
    /// # Safety
    ///
    /// The elements, no more than [`ZEROS`] has, can be read, as many pairs can be written, and the machine
    /// runs the level.
    unsafe fn interleave(Extent { rows, columns }: Extent, from: Source, to: Target) {
        let whole = columns / 16 * 16;
        for row in (0..rows).step_by(2) {
            let low = from.row::<u16>(row);
            let high = if row + 1 < rows { from.row(row + 1) } else { ZEROS.as_ptr() };
            let to = to.row::<u32>(row / 2);
            let pair = |low: u16, high: u16| u32::from(low) | u32::from(high) << 16;
            // SAFETY: as the caller promises.
            unsafe {
                for at in (0..whole).step_by(16) {
                    let low: [u16; 16] = low.add(at).cast::<[u16; 16]>().read_unaligned();
                    let high: [u16; 16] = high.add(at).cast::<[u16; 16]>().read_unaligned();
                    let pairs: [u32; 16] = std::array::from_fn(|i| pair(low[i], high[i]));
                    to.add(at).cast::<[u32; 16]>().write_unaligned(pairs);
                }
                for at in whole..columns {
                    let pair = pair(low.add(at).read_unaligned(), high.add(at).read_unaligned());
                    to.add(at).write_unaligned(pair);
                }
            }
        }
    }
}

/// A row of zeros, as wide as the widest panel.
static ZEROS: [u16; 64] = [0; 64];
