//! Kernels that bound the elements of a tile: which truth values a tile of booleans has, and the least and
//! the greatest number of a tile of numbers.
//!
//! A tile of a mask is a cache line or a few in each row, and rows lie far apart, which hardware prefetchers
//! do not follow; so a scan prefetches the tile after the next one in each row.

use super::isa::{ByLevel, by_level, shells};
use super::{Extent, prefetch_l1};
use crate::types::dtype::DataType;
use crate::types::kind::Level;

/// A tile to scan: rows and columns in bytes apart, in any direction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scanned {
    pub(crate) at: *const u8,
    pub(crate) row_stride: isize,
    pub(crate) col_stride: isize,
    pub(crate) extent: Extent,
}

/// Bounds of floating-point numbers that are not NaN, and whether one is NaN.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FloatBounds {
    pub(crate) least: f64,
    pub(crate) most: f64,
    pub(crate) has_nan: bool,
}

/// The kernels of a level. All of them read every element of a tile at most once; none reads anything else.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScanKernels {
    booleans: unsafe fn(Scanned) -> (bool, bool),
    f32: unsafe fn(Scanned) -> (f32, f32, bool),
    /// Numbers of 16 bits as sign and size; the last parameter is the size of ∞.
    halves: unsafe fn(Scanned, i16) -> (i16, i16, bool),
}

static KERNELS: ByLevel<ScanKernels> = {
    macro_rules! of {
        ($level:ident) => {
            ScanKernels { booleans: $level::booleans, f32: $level::of_f32, halves: $level::halves }
        };
    }
    by_level!(of!)
};

impl ScanKernels {
    pub(crate) fn of(level: Level) -> Self {
        KERNELS[level.row()]
    }

    /// Two truth values of a tile of booleans: it has a false element, and it has a true one.
    ///
    /// # Safety
    ///
    /// Every element of the tile can be read, and the machine runs the level.
    pub(crate) unsafe fn booleans(&self, tile: Scanned) -> (bool, bool) {
        // SAFETY: as the caller promises.
        unsafe { (self.booleans)(tile) }
    }

    /// The bounds of a tile of numbers of a floating-point type; `None` for types that have no kernel. If a
    /// tile has no number but NaN, the least bound is above the greatest.
    ///
    /// # Safety
    ///
    /// Every element of the tile can be read, and the machine runs the level.
    pub(crate) unsafe fn floats(&self, data_type: DataType, tile: Scanned) -> Option<FloatBounds> {
        // SAFETY: as the caller promises.
        unsafe {
            Some(match data_type {
                DataType::F32 => {
                    let (least, most, has_nan) = (self.f32)(tile);
                    FloatBounds { least: least.into(), most: most.into(), has_nan }
                }
                DataType::F16 => {
                    let infinity = half::f16::INFINITY.to_bits() as i16;
                    let (least, most, has_nan) = (self.halves)(tile, infinity);
                    let number = |key: i16| half::f16::from_bits(sortable(key) as u16).to_f64();
                    FloatBounds { least: number(least), most: number(most), has_nan }
                }
                DataType::Bf16 => {
                    let infinity = half::bf16::INFINITY.to_bits() as i16;
                    let (least, most, has_nan) = (self.halves)(tile, infinity);
                    let number = |key: i16| half::bf16::from_bits(sortable(key) as u16).to_f64();
                    FloatBounds { least: number(least), most: number(most), has_nan }
                }
                DataType::F64 => f64s(tile),
                _ => return None,
            })
        }
    }

    /// The least and the greatest of a tile of integers; `None` for types that have no kernel.
    ///
    /// # Safety
    ///
    /// Every element of the tile can be read.
    pub(crate) unsafe fn integers(&self, data_type: DataType, tile: Scanned) -> Option<(i128, i128)> {
        // SAFETY: as the caller promises.
        unsafe {
            Some(match data_type {
                DataType::S8 => integers::<i8>(tile),
                DataType::U8 => integers::<u8>(tile),
                DataType::S16 => integers::<i16>(tile),
                DataType::U16 => integers::<u16>(tile),
                DataType::S32 => integers::<i32>(tile),
                DataType::U32 => integers::<u32>(tile),
                DataType::S64 => integers::<i64>(tile),
                DataType::U64 => integers::<u64>(tile),
                _ => return None,
            })
        }
    }
}

shells! {
    I:
    fn booleans[](tile: Scanned) -> (bool, bool) {
        scan_booleans(tile)
    }

    fn of_f32[](tile: Scanned) -> (f32, f32, bool) {
        scan_f32(tile)
    }

    fn halves[](tile: Scanned, infinity: i16) -> (i16, i16, bool) {
        scan_halves(tile, infinity)
    }
}

/// Elements that are bounded side by side.
const LANES: usize = 16;

/// Words of a row of booleans that are read together: a cache line.
const WORDS: usize = 8;

/// Prefetch distance in tiles: a tile is scanned in less time than memory takes (decision: scan-prefetch).
const PREFETCH_TILES: isize = 2;

impl Scanned {
    /// The first row of the tile.
    pub(crate) fn first_row(self) -> Self {
        Self { extent: Extent { rows: self.extent.rows.min(1), ..self.extent }, ..self }
    }

    /// The tile with the roles of rows and columns exchanged if that makes its rows contiguous.
    fn upright(self, width: isize) -> Self {
        let Self { at, row_stride, col_stride, extent: Extent { rows, columns } } = self;
        let swapped = Extent { rows: columns, columns: rows };
        match (col_stride == width || columns == 1, row_stride == width || rows == 1) {
            (false, true) => Self { at, row_stride: col_stride, col_stride: row_stride, extent: swapped },
            (true, true) if columns == 1 => {
                Self { at, row_stride: col_stride, col_stride: row_stride, extent: swapped }
            }
            _ => self,
        }
    }

    fn row(&self, row: usize) -> *const u8 {
        self.at.wrapping_offset(self.row_stride * row as isize)
    }

    fn is_contiguous(&self, width: isize) -> bool {
        self.col_stride == width || self.extent.columns == 1
    }

    /// Prefetches what is in a row some tiles on.
    #[inline(always)]
    fn prefetch(&self, row: *const u8, width: usize) {
        if self.extent.rows > 1 {
            let bytes = self.extent.columns * width;
            prefetch_l1(row.wrapping_offset(bytes as isize * PREFETCH_TILES), bytes);
        }
    }
}

/// Two truth values of a tile of booleans: it has a false element, and it has a true one. The scan ends when
/// both are found.
///
/// # Safety
///
/// Every element of the tile can be read.
#[inline(always)]
unsafe fn scan_booleans(tile: Scanned) -> (bool, bool) {
    let tile = tile.upright(1);
    let (mut has_false, mut has_true) = (false, false);
    for row in 0..tile.extent.rows {
        let at = tile.row(row);
        if tile.is_contiguous(1) {
            tile.prefetch(at, 1);
            // SAFETY: the caller promises that the row can be read, whose elements are side by side.
            let row = unsafe { std::slice::from_raw_parts(at, tile.extent.columns) };
            let (lines, rest) = row.as_chunks::<{ WORDS * 8 }>();
            for line in lines {
                let (zeros, ones) = line
                    .iter()
                    .fold((0u8, 0u8), |(zeros, ones), &byte| (zeros | u8::from(byte == 0), ones | byte));
                has_false |= zeros != 0;
                has_true |= ones != 0;
            }
            has_false |= rest.contains(&0);
            has_true |= rest.iter().any(|&byte| byte != 0);
        } else {
            for column in 0..tile.extent.columns {
                // SAFETY: the caller promises that every element can be read.
                let byte = unsafe { *at.wrapping_offset(tile.col_stride * column as isize) };
                has_false |= byte == 0;
                has_true |= byte != 0;
            }
        }
        if has_false && has_true {
            break;
        }
    }
    (has_false, has_true)
}

/// Bounds of numbers that are not NaN, and whether one is NaN.
///
/// # Safety
///
/// Every element of the tile can be read.
#[inline(always)]
unsafe fn scan_f32(tile: Scanned) -> (f32, f32, bool) {
    let tile = tile.upright(4);
    let mut least = [f32::INFINITY; LANES];
    let mut most = [f32::NEG_INFINITY; LANES];
    let mut nan = [0u32; LANES];
    let mut note = |lane: usize, x: f32| {
        least[lane] = if x < least[lane] { x } else { least[lane] };
        most[lane] = if x > most[lane] { x } else { most[lane] };
        nan[lane] |= u32::from(x.is_nan());
    };
    for row in 0..tile.extent.rows {
        let at = tile.row(row);
        let mut column = 0;
        if tile.is_contiguous(4) {
            tile.prefetch(at, 4);
            while column + LANES <= tile.extent.columns {
                // SAFETY: the caller promises that the row can be read, whose elements are side by side.
                let block = unsafe { at.cast::<[f32; LANES]>().byte_add(column * 4).read_unaligned() };
                block.into_iter().enumerate().for_each(|(lane, x)| note(lane, x));
                column += LANES;
            }
        }
        for column in column..tile.extent.columns {
            let at = at.wrapping_offset(tile.col_stride * column as isize).cast::<f32>();
            // SAFETY: the caller promises that every element can be read.
            note(column % LANES, unsafe { at.read_unaligned() });
        }
    }
    let least = least.into_iter().fold(f32::INFINITY, f32::min);
    let most = most.into_iter().fold(f32::NEG_INFINITY, f32::max);
    (least, most, nan.into_iter().any(|nan| nan != 0))
}

/// The bits of a number of 16 bits, sign and size, as an integer of the same order; and back.
#[inline(always)]
fn sortable(bits: i16) -> i16 {
    bits ^ (bits >> 15 & i16::MAX)
}

/// As [`scan_f32`], in sortable integers; the size of a NaN is above that of ∞.
///
/// # Safety
///
/// Every element of the tile can be read.
#[inline(always)]
unsafe fn scan_halves(tile: Scanned, infinity: i16) -> (i16, i16, bool) {
    const LANES: usize = 32;
    let tile = tile.upright(2);
    // The bounds of nothing, without a NaN.
    let (above, below) = (infinity, sortable(infinity | i16::MIN));
    let mut least = [above; LANES];
    let mut most = [below; LANES];
    let mut nan = [0i16; LANES];
    let mut note = |lane: usize, bits: i16| {
        let (key, is_nan) = (sortable(bits), bits & i16::MAX > infinity);
        least[lane] = least[lane].min(if is_nan { above } else { key });
        most[lane] = most[lane].max(if is_nan { below } else { key });
        nan[lane] |= i16::from(is_nan);
    };
    for row in 0..tile.extent.rows {
        let at = tile.row(row);
        let mut column = 0;
        if tile.is_contiguous(2) {
            tile.prefetch(at, 2);
            while column + LANES <= tile.extent.columns {
                // SAFETY: the caller promises that the row can be read, whose elements are side by side.
                let block = unsafe { at.cast::<[i16; LANES]>().byte_add(column * 2).read_unaligned() };
                block.into_iter().enumerate().for_each(|(lane, bits)| note(lane, bits));
                column += LANES;
            }
        }
        for column in column..tile.extent.columns {
            let at = at.wrapping_offset(tile.col_stride * column as isize).cast::<i16>();
            // SAFETY: the caller promises that every element can be read.
            note(column % LANES, unsafe { at.read_unaligned() });
        }
    }
    let least = least.into_iter().fold(above, i16::min);
    let most = most.into_iter().fold(below, i16::max);
    (least, most, nan.into_iter().any(|nan| nan != 0))
}

/// Calls a function with each element of a tile.
///
/// # Safety
///
/// Every element of the tile can be read.
#[inline(always)]
unsafe fn each<T: Copy>(tile: Scanned, mut note: impl FnMut(T)) {
    for row in 0..tile.extent.rows {
        for column in 0..tile.extent.columns {
            let at = tile.row(row).wrapping_offset(tile.col_stride * column as isize).cast::<T>();
            // SAFETY: the caller promises that every element can be read.
            note(unsafe { at.read_unaligned() });
        }
    }
}

/// # Safety
///
/// Every element of the tile can be read.
unsafe fn f64s(tile: Scanned) -> FloatBounds {
    let mut bounds = FloatBounds { least: f64::INFINITY, most: f64::NEG_INFINITY, has_nan: false };
    let note = |x: f64| {
        bounds.least = bounds.least.min(x);
        bounds.most = bounds.most.max(x);
        bounds.has_nan |= x.is_nan();
    };
    // SAFETY: as the caller promises.
    unsafe { each(tile, note) };
    bounds
}

/// # Safety
///
/// Every element of the tile can be read, and there is one.
unsafe fn integers<T: Copy + Ord + Into<i128>>(tile: Scanned) -> (i128, i128) {
    // SAFETY: as the caller promises.
    let first = unsafe { tile.at.cast::<T>().read_unaligned() };
    let (mut least, mut most) = (first, first);
    // SAFETY: as the caller promises.
    unsafe { each::<T>(tile, |x| (least, most) = (least.min(x), most.max(x))) };
    (least.into(), most.into())
}
