//! Copies a tile whose elements follow each other in memory down its columns to one whose elements follow
//! each other along its rows.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::__m256i;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
use std::arch::x86_64::__m512i;

use super::by_width::{ByWidth, PackTile};
use super::isa::{Isa, at_level, by_level, shells};
use super::simd::LaneBits;
use super::{Extent, LINE, Source, StorePolicy, Target, Width};
use crate::types::kind::Level;

/// The kernel that transposes; the row stride of its source is one element. Non-temporal stores are used for
/// whole cache lines alone, and need a fence.
pub(crate) fn transpose_tile(level: Level, width: Width, stores: StorePolicy) -> PackTile {
    match stores {
        StorePolicy::Temporal => TEMPORAL.get(level, width),
        StorePolicy::NonTemporal => NON_TEMPORAL.get(level, width),
    }
}

/// A kernel for each level and width.
macro_rules! table {
    ($non_temporal:literal) => {
        ByWidth::of(
            by_level!(transposed::<u8, $non_temporal>),
            by_level!(transposed::<u16, $non_temporal>),
            by_level!(transposed::<u32, $non_temporal>),
            by_level!(transposed::<u64, $non_temporal>),
        )
    };
}

static TEMPORAL: ByWidth<PackTile> = table!(false);
static NON_TEMPORAL: ByWidth<PackTile> = table!(true);

shells! {
    I:
    fn transposed[U: LaneBits, const NON_TEMPORAL: bool](
        extent: Extent,
        from: Source,
        col_stride: isize,
        distance: isize,
        to: Target,
    ) {
        of_level::<I, U, NON_TEMPORAL>(extent, from, col_stride, distance, to)
    }

    fn narrow[U: LaneBits](extent: Extent, from: *const u8, col_stride: isize, to: Target) {
        // The counts are those of `fills`.
        match extent {
            Extent { rows, columns } if fills::<I, U>(rows, col_stride) => match rows {
                2 => few_rows::<U, 2>(columns, from.cast(), to),
                3 => few_rows::<U, 3>(columns, from.cast(), to),
                _ => few_rows::<U, 4>(columns, from.cast(), to),
            },
            Extent { rows, columns } if fills::<I, U>(columns, to.row_stride) => match columns {
                2 => few_columns::<U, 2>(rows, from, col_stride, to.at.cast()),
                3 => few_columns::<U, 3>(rows, from, col_stride, to.at.cast()),
                _ => few_columns::<U, 4>(rows, from, col_stride, to.at.cast()),
            },
            _ => match I::LEVEL {
                #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
                Level::Avx512 => blocks::narrow::<U, __m512i>(extent, from, col_stride, to),
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => blocks::narrow::<U, __m256i>(extent, from, col_stride, to),
                _ => elements::<U>(extent, from, col_stride, to),
            },
        }
    }
}

/// True if the elements of few rows or columns leave no gap, given the distance of neighbours, and vectors of
/// the level hold many.
#[inline(always)]
fn fills<I: Isa, U>(count: usize, stride: isize) -> bool {
    let has_many = !matches!(I::LEVEL, Level::Portable) && size_of::<U>() < size_of::<u64>();
    has_many && matches!(count, 2..=4) && stride == (count * size_of::<U>()) as isize
}

/// # Safety
///
/// As for [`PackTile`], the row stride of the source is one element, and the machine runs the level.
#[inline(always)]
unsafe fn of_level<I: Isa, U: LaneBits, const NON_TEMPORAL: bool>(
    extent: Extent,
    from: Source,
    col_stride: isize,
    _: isize,
    to: Target,
) {
    // SAFETY: as the caller promises.
    unsafe {
        if extent.columns * size_of::<U>() < LINE || fills::<I, U>(extent.rows, col_stride) {
            return at_level!(I::LEVEL, narrow::<U>(extent, from.at, col_stride, to));
        }
        match I::LEVEL {
            #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
            Level::Avx512 => blocks::tile::<U, __m512i, NON_TEMPORAL>(extent, from, col_stride, to),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => blocks::tile::<U, __m256i, NON_TEMPORAL>(extent, from, col_stride, to),
            _ => elements::<U>(extent, from.at, col_stride, to),
        }
    }
}

/// Columns of `ROWS` elements without a gap, such as pixels whose channels become planes. Compilers turn such
/// a loop into shuffles of vectors.
///
/// # Safety
///
/// As for [`PackTile`], and the row stride of the source is one element.
#[inline(always)]
unsafe fn few_rows<U: LaneBits, const ROWS: usize>(columns: usize, from: *const U, to: Target) {
    let rows: [*mut U; ROWS] = std::array::from_fn(|row| to.row(row));
    for column in 0..columns {
        for (row, to) in rows.iter().enumerate() {
            // SAFETY: as the caller promises.
            unsafe {
                let x = from.wrapping_add(ROWS * column + row).read_unaligned();
                to.wrapping_add(column).write_unaligned(x);
            }
        }
    }
}

/// Rows of `COLUMNS` elements without a gap, such as planes that become the channels of pixels.
///
/// # Safety
///
/// As for [`few_rows`].
#[inline(always)]
unsafe fn few_columns<U: LaneBits, const COLUMNS: usize>(
    rows: usize,
    from: *const u8,
    col_stride: isize,
    to: *mut U,
) {
    let columns: [*const U; COLUMNS] =
        std::array::from_fn(|column| from.wrapping_offset(col_stride * column as isize).cast());
    for row in 0..rows {
        for (column, from) in columns.iter().enumerate() {
            // SAFETY: as the caller promises.
            unsafe {
                let x = from.wrapping_add(row).read_unaligned();
                to.wrapping_add(COLUMNS * row + column).write_unaligned(x);
            }
        }
    }
}

/// Element by element: blocks of as many rows as a line has elements, so that lines are read once.
///
/// # Safety
///
/// As for [`PackTile`], and the row stride of the source is one element.
#[inline(always)]
unsafe fn elements<U: LaneBits>(extent: Extent, from: *const u8, col_stride: isize, to: Target) {
    for first in (0..extent.rows).step_by(BLOCK) {
        let rows = first..extent.rows.min(first + BLOCK);
        for column in 0..extent.columns {
            let from = from.cast::<U>().wrapping_byte_offset(col_stride * column as isize);
            for row in rows.clone() {
                // SAFETY: the caller promises that every element of the tile can be read and written.
                unsafe {
                    to.row::<U>(row)
                        .wrapping_add(column)
                        .write_unaligned(from.wrapping_add(row).read_unaligned());
                }
            }
        }
    }
}

/// Rows that are written alternately.
const BLOCK: usize = 16;

/// Blocks of vectors: parts of 16 bytes of a vector are read from rows of memory of their own, and elements
/// change places within their parts, before whole parts do.
#[cfg(target_arch = "x86_64")]
mod blocks {
    use std::arch::x86_64::*;
    use std::mem::MaybeUninit;
    use std::ops::Range;

    use super::{Extent, LaneBits, Source, Target, elements};
    use crate::kernels::{LINE, prefetch_l1};

    /// Bytes of a part of a vector.
    const PART: usize = 16;

    /// A vector of several parts. A caller promises a machine that has its instructions.
    pub(super) trait PartedVector: Copy {
        /// Number of parts.
        const COUNT: usize;

        /// Reads each piece of `PARTS` parts from its own address.
        unsafe fn load<const PARTS: usize>(at: impl Fn(usize) -> *const u8) -> Self;

        /// The elements of the lower and of the upper halves of all parts of two vectors, interleaved, for
        /// the bytes of an element.
        unsafe fn interleave(a: Self, b: Self, bytes: usize) -> (Self, Self);

        /// The lower and the upper halves of two vectors, joined.
        unsafe fn halves(a: Self, b: Self) -> (Self, Self);

        /// The even and the odd parts of two vectors, joined.
        unsafe fn even_and_odd(a: Self, b: Self) -> (Self, Self);

        unsafe fn store(self, to: *mut u8);

        /// Stores non-temporally, to an address that is a multiple of the vector's size.
        unsafe fn stream(self, to: *mut u8);
    }

    macro_rules! parts {
        (
            $Vector:ident, $count:literal, $load:ident,
            $($bytes:literal: $low:ident $high:ident,)*
            $choose:ident: $low_half:literal $high_half:literal, $even:literal $odd:literal,
            $store:ident $stream:ident
        ) => {
            impl PartedVector for $Vector {
                const COUNT: usize = $count;

                #[inline(always)]
                unsafe fn load<const PARTS: usize>(at: impl Fn(usize) -> *const u8) -> Self {
                    // SAFETY: as the caller promises.
                    unsafe { $load::<PARTS>(at) }
                }

                #[inline(always)]
                unsafe fn interleave(a: Self, b: Self, bytes: usize) -> (Self, Self) {
                    // SAFETY: as the caller promises.
                    unsafe {
                        match bytes {
                            $($bytes => ($low(a, b), $high(a, b)),)*
                            _ => unreachable!("elements have 1, 2, 4 or 8 bytes"),
                        }
                    }
                }

                #[inline(always)]
                unsafe fn halves(a: Self, b: Self) -> (Self, Self) {
                    // SAFETY: as the caller promises.
                    unsafe { ($choose::<$low_half>(a, b), $choose::<$high_half>(a, b)) }
                }

                #[inline(always)]
                unsafe fn even_and_odd(a: Self, b: Self) -> (Self, Self) {
                    // SAFETY: as the caller promises.
                    unsafe { ($choose::<$even>(a, b), $choose::<$odd>(a, b)) }
                }

                #[inline(always)]
                unsafe fn store(self, to: *mut u8) {
                    // SAFETY: as the caller promises.
                    unsafe { $store(to.cast(), self) }
                }

                #[inline(always)]
                unsafe fn stream(self, to: *mut u8) {
                    // SAFETY: as the caller promises.
                    unsafe { $stream(to.cast(), self) }
                }
            }
        };
    }

    parts! {
        __m256i, 2, load_256,
        1: _mm256_unpacklo_epi8 _mm256_unpackhi_epi8,
        2: _mm256_unpacklo_epi16 _mm256_unpackhi_epi16,
        4: _mm256_unpacklo_epi32 _mm256_unpackhi_epi32,
        8: _mm256_unpacklo_epi64 _mm256_unpackhi_epi64,
        _mm256_permute2x128_si256: 0x20 0x31, 0x20 0x31,
        _mm256_storeu_si256 _mm256_stream_si256
    }

    #[cfg(feature = "avx512")]
    parts! {
        __m512i, 4, load_512,
        1: _mm512_unpacklo_epi8 _mm512_unpackhi_epi8,
        2: _mm512_unpacklo_epi16 _mm512_unpackhi_epi16,
        4: _mm512_unpacklo_epi32 _mm512_unpackhi_epi32,
        8: _mm512_unpacklo_epi64 _mm512_unpackhi_epi64,
        _mm512_shuffle_i32x4: 0x44 0xee, 0x88 0xdd,
        _mm512_storeu_si512 _mm512_stream_si512
    }

    #[inline(always)]
    unsafe fn load_256<const PARTS: usize>(at: impl Fn(usize) -> *const u8) -> __m256i {
        // SAFETY: as the caller promises.
        unsafe {
            if PARTS == 2 {
                return _mm256_loadu_si256(at(0).cast());
            }
            let first = _mm256_castsi128_si256(_mm_loadu_si128(at(0).cast()));
            _mm256_inserti128_si256::<1>(first, _mm_loadu_si128(at(1).cast()))
        }
    }

    #[cfg(feature = "avx512")]
    #[inline(always)]
    unsafe fn load_512<const PARTS: usize>(at: impl Fn(usize) -> *const u8) -> __m512i {
        // SAFETY: as the caller promises.
        unsafe {
            match PARTS {
                4 => _mm512_loadu_si512(at(0).cast()),
                2 => {
                    let lower = _mm512_castsi256_si512(_mm256_loadu_si256(at(0).cast()));
                    _mm512_inserti64x4::<1>(lower, _mm256_loadu_si256(at(1).cast()))
                }
                _ => {
                    let vector = _mm512_castsi128_si512(_mm_loadu_si128(at(0).cast()));
                    let vector = _mm512_inserti32x4::<1>(vector, _mm_loadu_si128(at(1).cast()));
                    let vector = _mm512_inserti32x4::<2>(vector, _mm_loadu_si128(at(2).cast()));
                    _mm512_inserti32x4::<3>(vector, _mm_loadu_si128(at(3).cast()))
                }
            }
        }
    }

    /// Reads as many vectors as a part has elements, given where each column begins, and transposes within
    /// parts.
    ///
    /// # Safety
    ///
    /// As for [`block`].
    #[inline(always)]
    unsafe fn group<U: LaneBits, V: PartedVector, const PARTS: usize>(
        at: impl Fn(usize) -> *const u8,
    ) -> [V; PART] {
        let count = PART / size_of::<U>();
        // SAFETY: as the caller promises.
        unsafe {
            let mut vectors = [V::load::<PARTS>(|piece| at(piece * count)); PART];
            for (i, vector) in vectors[..count].iter_mut().enumerate() {
                *vector = V::load::<PARTS>(|piece| at(piece * count + i));
            }
            for _ in 0..count.ilog2() {
                vectors = interleaved::<U, V>(vectors);
            }
            vectors
        }
    }

    /// One round of a transposition: interleaves the first half of the vectors with the second.
    ///
    /// # Safety
    ///
    /// The machine has the vector's instructions.
    #[inline(always)]
    unsafe fn interleaved<U: LaneBits, V: PartedVector>(before: [V; PART]) -> [V; PART] {
        let (half, mut vectors) = (PART / size_of::<U>() / 2, before);
        // A loop would keep the vectors of bytes in memory.
        macro_rules! pairs {
            ($($pair:literal)*) => {$(
                if $pair < half {
                    let (first, second) = (before[$pair], before[$pair + half]);
                    // SAFETY: as the caller promises.
                    let (low, high) = unsafe { V::interleave(first, second, size_of::<U>()) };
                    (vectors[2 * $pair], vectors[2 * $pair + 1]) = (low, high);
                }
            )*};
        }
        pairs!(0 1 2 3 4 5 6 7);
        vectors
    }

    /// Writes a vector to each of as many rows as `PARTS` parts have elements.
    ///
    /// # Safety
    ///
    /// The block can be read and written, and the machine has the vector's instructions.
    #[inline(always)]
    unsafe fn block<U: LaneBits, V: PartedVector, const PARTS: usize, const STREAM: bool>(
        from: *const u8,
        col_stride: isize,
        to: Target,
    ) {
        let count = PART / size_of::<U>();
        let columns = V::COUNT / PARTS * count;
        // SAFETY: as the caller promises.
        unsafe {
            let put = |vector: V, row: usize| {
                if STREAM { vector.stream(to.row(row)) } else { vector.store(to.row(row)) }
            };
            let at = |column: usize| from.wrapping_byte_offset(col_stride * column as isize);
            let a = group::<U, V, PARTS>(at);
            if PARTS == 1 {
                for (i, &vector) in a[..count].iter().enumerate() {
                    put(vector, i);
                }
                return;
            }
            let b = group::<U, V, PARTS>(|column| at(columns + column));
            if PARTS == 2 {
                for i in 0..count {
                    let (first, second) = V::even_and_odd(a[i], b[i]);
                    put(first, i);
                    put(second, count + i);
                }
                return;
            }
            let c = group::<U, V, PARTS>(|column| at(2 * columns + column));
            let d = group::<U, V, PARTS>(|column| at(3 * columns + column));
            for i in 0..count {
                let (lower, upper) = (V::halves(a[i], b[i]), V::halves(c[i], d[i]));
                let (first, second) = V::even_and_odd(lower.0, upper.0);
                let (third, fourth) = V::even_and_odd(lower.1, upper.1);
                put(first, i);
                put(second, count + i);
                put(third, 2 * count + i);
                put(fourth, 3 * count + i);
            }
        }
    }

    /// Fewer columns than a line has elements. If rows follow each other without a gap, a line is written for
    /// each, of which the next row overwrites what is too much.
    ///
    /// # Safety
    ///
    /// As for [`elements`], and the machine has the vector's instructions.
    #[inline(always)]
    pub(super) unsafe fn narrow<U: LaneBits, V: PartedVector>(
        extent: Extent,
        from: *const u8,
        col_stride: isize,
        to: Target,
    ) {
        let Extent { rows, columns } = extent;
        let (count, row_bytes) = (PART / size_of::<U>(), columns * size_of::<U>());
        // Lines of these rows end with the last row at most.
        let inside = (rows + 1).saturating_sub(LINE.div_ceil(row_bytes.max(1)));
        let whole = match columns > 0 && to.row_stride == row_bytes as isize {
            true => inside / count * count,
            false => 0,
        };
        let of_vector = V::COUNT * count;
        // SAFETY: as the caller promises; columns behind the last one are the last one.
        unsafe {
            for row in (0..whole).step_by(count) {
                let from = from.cast::<U>().wrapping_add(row).cast::<u8>();
                let at =
                    |column: usize| from.wrapping_byte_offset(col_stride * column.min(columns - 1) as isize);
                let first = group::<U, V, 1>(at);
                if columns <= of_vector {
                    for (i, vector) in first[..count].iter().enumerate() {
                        vector.store(to.row(row + i));
                    }
                } else {
                    let second = group::<U, V, 1>(|column| at(of_vector + column));
                    for i in 0..count {
                        let to = to.row::<u8>(row + i);
                        first[i].store(to);
                        second[i].store(to.wrapping_add(LINE / 2));
                    }
                }
            }
            let from = from.cast::<U>().wrapping_add(whole).cast();
            elements::<U>(Extent { rows: rows - whole, columns }, from, col_stride, to.at_row(whole));
        }
    }

    /// Columns of a strip: a line of the source of each stays in the first level.
    const STRIP: usize = 128;

    /// The order of the blocks of a tile: strips of some columns one after the other, in a strip groups of
    /// some rows, in a group one block of columns after the other.
    #[derive(Clone, Copy)]
    struct BlockOrder {
        columns: usize,
        rows: usize,
    }

    /// Blocks of a size that cover an extent: the last one ends with it, and overlaps the one before.
    #[derive(Clone, Copy)]
    struct Blocks {
        extent: usize,
        size: usize,
    }

    impl Blocks {
        #[inline(always)]
        fn start(self, index: usize) -> usize {
            (index * self.size).min(self.extent - self.size)
        }

        /// Ranges of the indices of blocks of `most` elements, or of one block.
        #[inline(always)]
        fn groups(self, most: usize) -> impl Iterator<Item = Range<usize>> {
            let (count, step) = (self.extent.div_ceil(self.size), (most / self.size).max(1));
            (0..count).step_by(step).map(move |first| first..count.min(first + step))
        }
    }

    /// Prefetch distance of columns in pages of their own: more than the hardware follows
    /// (decision: transposed-streams).
    const DISTANCE: isize = 256;

    /// Bytes of a row of a panel: lines that the hardware writes back and prefetches as one run.
    const PANEL: usize = 512;

    /// Rows of a panel: its source fits the first level beside the rows that are written.
    const PANEL_ROWS: usize = 64;

    /// Bytes between addresses that share a set of the first-level cache.
    const WAY: usize = 4096;

    /// Lines that a set of the first level keeps, at least.
    const WAYS: usize = 8;

    /// True if the lines at the beginnings of rows are more than their sets of the first level keep.
    #[inline(always)]
    fn crowd_sets(rows: usize, row_stride: isize) -> bool {
        let apart = 1 << row_stride.trailing_zeros().min(WAY.ilog2());
        rows * apart > WAYS * WAY
    }

    /// Blocks read whole lines of the source if these fit the registers. A source of one or two lines a
    /// column, or whose columns share lines, is read in the order of memory instead of in strips
    /// (decision: transposed-lines). If the rows of a block crowd the sets of the first level, panels are
    /// written (decision: transposed-panels).
    ///
    /// # Safety
    ///
    /// As for [`elements`], and the machine has the vector's instructions.
    #[inline(always)]
    pub(super) unsafe fn tile<U: LaneBits, V: PartedVector, const NON_TEMPORAL: bool>(
        extent: Extent,
        from: Source,
        col_stride: isize,
        to: Target,
    ) {
        let line = LINE / size_of::<U>();
        let from = from.at;
        let is_tall = size_of::<U>() > 1 && extent.rows >= line;
        let begin_lines = col_stride.unsigned_abs().is_multiple_of(LINE);
        let is_strip = begin_lines && extent.rows > 2 * line;
        let order = BlockOrder { columns: if is_strip { STRIP } else { line }, rows: line };
        // SAFETY: as the caller promises.
        unsafe {
            if !NON_TEMPORAL && is_tall && crowd_sets(line, to.row_stride) {
                panels::<U, V>(extent, from, col_stride, to);
            } else if V::COUNT == 4 && is_tall && begin_lines {
                in_order::<U, V, 4, NON_TEMPORAL>(order, extent, from, col_stride, to);
            } else if V::COUNT == 4 && is_tall {
                in_order::<U, V, 2, NON_TEMPORAL>(order, extent, from, col_stride, to);
            } else {
                in_order::<U, V, 1, NON_TEMPORAL>(order, extent, from, col_stride, to);
            }
        }
    }

    /// Copies the source of each panel, whose lines are thus read whole although blocks have few rows.
    ///
    /// # Safety
    ///
    /// As for [`tile`], with elements of two bytes or more.
    #[inline(always)]
    unsafe fn panels<U: LaneBits, V: PartedVector>(
        extent: Extent,
        from: *const u8,
        col_stride: isize,
        to: Target,
    ) {
        #[repr(align(64))]
        struct Copied(MaybeUninit<[u8; PANEL / 2 * (PANEL_ROWS * 2 + LINE)]>);

        let mut copied = Copied(MaybeUninit::uninit());
        let copied: *mut u8 = copied.0.as_mut_ptr().cast();
        // An odd number of lines, so that columns spread over the sets.
        let copied_stride = PANEL_ROWS * size_of::<U>() + LINE;
        let panel = Extent {
            rows: PANEL_ROWS.min(extent.rows),
            columns: (PANEL / size_of::<U>()).min(extent.columns),
        };
        let (rows, columns) = (
            Blocks { extent: extent.rows, size: panel.rows },
            Blocks { extent: extent.columns, size: panel.columns },
        );
        for column in columns.groups(1).map(|panel| columns.start(panel.start)) {
            for row in rows.groups(1).map(|panel| rows.start(panel.start)) {
                let from = from.cast::<U>().wrapping_add(row);
                let from = from.wrapping_byte_offset(col_stride * column as isize);
                let to = Target { at: to.row::<U>(row).wrapping_add(column).cast(), ..to };
                // SAFETY: the panel lies within the tile, and its source fits the copy.
                unsafe {
                    for column in 0..panel.columns {
                        let from = from.wrapping_byte_offset(col_stride * column as isize).cast::<u8>();
                        let to = copied.add(copied_stride * column);
                        // A size that is known is copied without a call.
                        match panel.rows {
                            PANEL_ROWS => from.copy_to_nonoverlapping(to, PANEL_ROWS * size_of::<U>()),
                            rows => from.copy_to_nonoverlapping(to, rows * size_of::<U>()),
                        }
                    }
                    let stride = copied_stride as isize;
                    let order = BlockOrder { columns: panel.columns, rows: 1 };
                    match size_of::<U>() {
                        2 => in_order::<U, V, 1, false>(order, panel, copied, stride, to),
                        _ => in_order::<U, V, 2, false>(order, panel, copied, stride, to),
                    }
                }
            }
        }
    }

    /// Writes the blocks of a tile in an order.
    ///
    /// # Safety
    ///
    /// As for [`tile`].
    #[inline(always)]
    unsafe fn in_order<U: LaneBits, V: PartedVector, const PARTS: usize, const NON_TEMPORAL: bool>(
        order: BlockOrder,
        extent: Extent,
        from: *const u8,
        col_stride: isize,
        to: Target,
    ) {
        let (part, line) = (PART / size_of::<U>(), LINE / size_of::<U>());
        let rows = Blocks { extent: extent.rows, size: PARTS * part };
        let columns = Blocks { extent: extent.columns, size: line };
        if rows.extent < rows.size || columns.extent < columns.size {
            // SAFETY: as the caller promises.
            return unsafe { elements::<U>(extent, from, col_stride, to) };
        }
        let are_far = col_stride.unsigned_abs() >= WAY && columns.extent > line;
        let is_aligned = (to.at.addr() | to.row_stride as usize).is_multiple_of(LINE);
        for strip in columns.groups(order.columns) {
            for group in rows.groups(order.rows) {
                for column in strip.clone().map(|block| columns.start(block)) {
                    if are_far {
                        let at = from.cast::<U>().wrapping_add(rows.start(group.start)).cast::<u8>();
                        let at = at.wrapping_offset(col_stride * column as isize + DISTANCE);
                        for i in 0..line as isize {
                            prefetch_l1(at.wrapping_offset(col_stride * i), 1);
                        }
                    }
                    let streams = NON_TEMPORAL && is_aligned && column.is_multiple_of(line);
                    for row in group.clone().map(|block| rows.start(block)) {
                        // The vectors of a line follow each other, so that it is stored at once.
                        for piece in 0..4 / V::COUNT {
                            let column = column + piece * V::COUNT * part;
                            let from = from.cast::<U>().wrapping_add(row);
                            let from = from.wrapping_byte_offset(col_stride * column as isize).cast();
                            let to = Target { at: to.row::<U>(row).wrapping_add(column).cast(), ..to };
                            // SAFETY: the block lies within the tile.
                            unsafe {
                                match streams {
                                    true => block::<U, V, PARTS, true>(from, col_stride, to),
                                    false => block::<U, V, PARTS, false>(from, col_stride, to),
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
