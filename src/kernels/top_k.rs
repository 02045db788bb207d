//! The first elements of lines in order of size.
//!
//! An element becomes a signed integer, its key, whose order is that of the elements. If more than one
//! element is asked for, the place of the element follows the key in the low bits of a number twice as wide.
//! So no two are equal, and any way of sorting gives the same.
//!
//! Elements of 8 and 16 bits are widened before: the kernels know f32, f64 and integers of 32 and 64 bits.

use super::isa::{ByLevel, by_level, shells};
use super::{Extent, Source};
use crate::types::dtype::DataType;
use crate::types::kind::Level;

/// Which elements of a line come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LineOrder {
    pub(crate) by_size: SizeOrder,
    /// True if of equal elements the last one comes first.
    pub(crate) last_of_equal: bool,
}

/// Which sizes come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SizeOrder {
    /// NaN, then the largest numbers.
    Largest,
    /// The smallest numbers, NaN last.
    Smallest,
    /// NaN, then the smallest numbers.
    NanAndSmallest,
}

/// How keys of a type are made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ranking {
    /// Bits of the ascending order that change.
    flip: i64,
    is_nan_first: bool,
    last_of_equal: bool,
}

/// Lines side by side: rows of the source are steps along the lines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ColumnLines {
    pub(crate) extent: Extent,
    pub(crate) source: Source,
    pub(crate) ranking: Ranking,
    /// The place of the first step.
    pub(crate) first: usize,
    /// True if these steps are the first ones that a kernel sees.
    pub(crate) is_start: bool,
    /// The greatest key of each line so far, in 8 bytes or fewer, and its place.
    pub(crate) keys: *mut u8,
    pub(crate) places: *mut u32,
}

/// Finds the first elements of lines side by side, whose steps come in the order of places, or from the last
/// place on if the last of equal elements comes first.
///
/// # Safety
///
/// Every element can be read, and a key and a place for each line written; a line has fewer than 2³²
/// elements. The machine runs the kernel's level.
pub(crate) type FirstOfColumns = unsafe fn(lines: &ColumnLines);

/// Finds the first element of each row, of which there is at least one.
///
/// # Safety
///
/// As for [`FirstOfColumns`].
pub(crate) type FirstOfRows = unsafe fn(extent: Extent, source: Source, ranking: Ranking, places: *mut u32);

/// Writes the places of the first elements of a contiguous line, in their order, given the length of the line
/// and the count that is asked for. The scratch has room for [`sorted_bytes`].
///
/// # Safety
///
/// As for [`FirstOfColumns`]; the line has as many elements as are asked for. The scratch is aligned to 16
/// bytes, and nothing else uses it.
pub(crate) type FirstSorted =
    unsafe fn(line: *const u8, counts: (usize, usize), ranking: Ranking, scratch: *mut u8, places: *mut u32);

/// The kernels of a type for a level.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LineKernels {
    pub(crate) columns: FirstOfColumns,
    pub(crate) rows: FirstOfRows,
    pub(crate) sorted: FirstSorted,
}

/// The type to which elements are widened, which has kernels; `None` if the type has no order.
pub(crate) fn wide_type(data_type: DataType) -> Option<DataType> {
    Some(match data_type {
        DataType::F32 | DataType::Bf16 | DataType::F16 => DataType::F32,
        DataType::S8 | DataType::U8 | DataType::S16 | DataType::U16 => DataType::S32,
        DataType::S32 | DataType::U32 | DataType::S64 | DataType::U64 | DataType::F64 => data_type,
        _ => return None,
    })
}

/// The kernels of a [wide type](wide_type) for a level.
pub(crate) fn first_of_lines(level: Level, wide: DataType) -> LineKernels {
    let table = match wide {
        DataType::F32 => table::<f32>(),
        DataType::F64 => table::<f64>(),
        DataType::S32 | DataType::U32 => table::<i32>(),
        _ => table::<i64>(),
    };
    table[level.row()]
}

/// Bytes of scratch in which lines are [sorted](FirstSorted), given their length and the count.
pub(crate) fn sorted_bytes(wide: DataType, length: usize, count: usize) -> usize {
    let key = if wide.size() == Some(8) { size_of::<u128>() } else { size_of::<u64>() };
    room_of(length, count).saturating_mul(key)
}

/// Number of keys for which there is room: as many as are asked for, as many that may replace them, and a
/// block that is being looked through.
fn room_of(length: usize, count: usize) -> usize {
    length.min(count.saturating_mul(2).max(BLOCK)).saturating_add(BLOCK)
}

impl Ranking {
    /// The ranking of elements of a wide type.
    pub(crate) fn new(wide: DataType, order: LineOrder) -> Self {
        let ascending = match wide {
            DataType::U32 => i32::MIN.into(),
            DataType::U64 => i64::MIN,
            _ => 0,
        };
        Self {
            flip: if order.by_size == SizeOrder::Largest { ascending } else { !ascending },
            is_nan_first: order.by_size != SizeOrder::Smallest,
            last_of_equal: order.last_of_equal,
        }
    }

    /// True if steps along lines go from the last to the first place.
    pub(crate) fn is_from_last(self) -> bool {
        self.last_of_equal
    }

    /// The low bits of a number with the key of an element: of larger ones comes the first, or the last.
    #[inline(always)]
    fn rank(self, place: u32) -> u32 {
        if self.last_of_equal { place } else { !place }
    }
}

/// Elements that are compared at once.
const BLOCK: usize = 64;

shells! {
    I:
    fn columns[T: Ordered](lines: &ColumnLines) {
        first_of_columns::<T>(lines)
    }

    fn rows[T: Ordered](extent: Extent, source: Source, ranking: Ranking, places: *mut u32) {
        for row in 0..extent.rows {
            let place = first_of_row::<T>(source.row(row), extent.columns, ranking);
            places.add(row).write(place as u32);
        }
    }

    #[allow(dead_code, reason = "one level has the code of another")]
    fn sorted[T: Ordered](
        line: *const u8,
        counts: (usize, usize),
        ranking: Ranking,
        scratch: *mut u8,
        places: *mut u32,
    ) {
        first_sorted::<T>(line.cast(), counts, ranking, scratch.cast(), places)
    }
}

const fn table<T: Ordered>() -> ByLevel<LineKernels> {
    // Wider vectors gain little where most blocks are left out: a level has the code of the one before.
    macro_rules! of {
        (avx512) => {
            of!(avx512, avx2)
        };
        ($level:ident) => {
            of!($level, $level)
        };
        ($level:ident, $sorting:ident) => {
            LineKernels {
                columns: $level::columns::<T>,
                rows: $level::rows::<T>,
                sorted: $sorting::sorted::<T>,
            }
        };
    }
    by_level!(of!)
}

/// An element with an order.
trait Ordered: Copy + 'static {
    type Key: Ord + Copy;
    /// A key and a place.
    type Sorted: Ord + Copy;

    const MIN: Self::Key;

    /// The key after a key, unless that is the greatest.
    fn after(key: Self::Key) -> Option<Self::Key>;
    fn of(ranking: Ranking) -> (Self::Key, Self::Key);
    /// The key of an element, so that of two keys the larger one comes first, given the bits that change and
    /// the key of NaN.
    fn key(self, of: (Self::Key, Self::Key)) -> Self::Key;
    fn sorted(key: Self::Key, rank: u32) -> Self::Sorted;
    fn rank(sorted: Self::Sorted) -> u32;
    fn key_of(sorted: Self::Sorted) -> Self::Key;
}

macro_rules! ordered {
    ($($T:ty as $Key:ident in $Unsigned:ident, $Sorted:ident: |$x:ident, $nan:ident| $key:expr;)*) => {
        $(impl Ordered for $T {
            type Key = $Key;
            type Sorted = $Sorted;

            const MIN: $Key = $Key::MIN;

            #[inline(always)]
            fn after(key: $Key) -> Option<$Key> {
                key.checked_add(1)
            }

            #[inline(always)]
            fn of(ranking: Ranking) -> ($Key, $Key) {
                (ranking.flip as $Key, if ranking.is_nan_first { $Key::MAX } else { $Key::MIN })
            }

            #[inline(always)]
            fn key(self, (flip, $nan): ($Key, $Key)) -> $Key {
                let $x = self;
                let (ascending, is_nan) = $key;
                if is_nan { $nan } else { ascending ^ flip }
            }

            #[inline(always)]
            fn sorted(key: $Key, rank: u32) -> $Sorted {
                ((key ^ $Key::MIN) as $Unsigned as $Sorted) << 32 | rank as $Sorted
            }

            #[inline(always)]
            fn rank(sorted: $Sorted) -> u32 {
                sorted as u32
            }

            #[inline(always)]
            fn key_of(sorted: $Sorted) -> $Key {
                (sorted >> 32) as $Key ^ $Key::MIN
            }
        })*
    };
}

/// The bits of a number in ascending order, with one place for both zeros.
macro_rules! ascending {
    ($x:ident, $Key:ident, $Unsigned:ident) => {{
        let bits = ($x + 0.0).to_bits() as $Key;
        (bits ^ ((bits >> ($Key::BITS - 1)) as $Unsigned >> 1) as $Key, $x.is_nan())
    }};
}

ordered! {
    f32 as i32 in u32, u64: |x, nan| ascending!(x, i32, u32);
    f64 as i64 in u64, u128: |x, nan| ascending!(x, i64, u64);
    i32 as i32 in u32, u64: |x, nan| (x, false);
    i64 as i64 in u64, u128: |x, nan| (x, false);
}

/// # Safety
///
/// As [`FirstOfColumns`].
#[inline(always)]
unsafe fn first_of_columns<T: Ordered>(lines: &ColumnLines) {
    let &ColumnLines { extent: Extent { rows, columns }, source, ranking, first, is_start, .. } = lines;
    let (keys, places, of) = (lines.keys.cast::<T::Key>(), lines.places, T::of(ranking));
    for step in 0..rows {
        let row = if ranking.is_from_last() { rows - 1 - step } else { step };
        let (from, place) = (source.row::<T>(row), (first + row) as u32);
        // SAFETY: as the caller promises.
        unsafe {
            if is_start && step == 0 {
                for column in 0..columns {
                    keys.add(column).write(from.add(column).read_unaligned().key(of));
                    places.add(column).write(place);
                }
                continue;
            }
            for column in 0..columns {
                let key = from.add(column).read_unaligned().key(of);
                let (before, at) = (keys.add(column).read(), places.add(column).read());
                let is_first = key > before;
                keys.add(column).write(if is_first { key } else { before });
                places.add(column).write(if is_first { place } else { at });
            }
        }
    }
}

/// The place of the first element of a row.
///
/// # Safety
///
/// As [`FirstOfRows`].
#[inline(always)]
unsafe fn first_of_row<T: Ordered>(from: *const T, length: usize, ranking: Ranking) -> usize {
    let of = T::of(ranking);
    // SAFETY: as the caller promises.
    unsafe {
        let mut most = from.read_unaligned().key(of);
        for i in 0..length {
            let key = from.add(i).read_unaligned().key(of);
            most = if key > most { key } else { most };
        }
        let mut done = 0;
        while done + BLOCK <= length {
            let start = if ranking.is_from_last() { length - done - BLOCK } else { done };
            let mut hits = 0u32;
            for i in start..start + BLOCK {
                hits += u32::from(from.add(i).read_unaligned().key(of) == most);
            }
            if hits != 0 {
                break;
            }
            done += BLOCK;
        }
        loop {
            let place = if ranking.is_from_last() { length - 1 - done } else { done };
            if done + 1 == length || from.add(place).read_unaligned().key(of) == most {
                return place;
            }
            done += 1;
        }
    }
}

/// # Safety
///
/// As [`FirstSorted`].
#[inline(always)]
unsafe fn first_sorted<T: Ordered>(
    line: *const T,
    (length, count): (usize, usize),
    ranking: Ranking,
    keys: *mut T::Sorted,
    places: *mut u32,
) {
    let (of, room) = (T::of(ranking), room_of(length, count));
    // SAFETY: as the caller promises; a key is written before it is read, and within the room.
    unsafe {
        let mut least = least_of_first(line, (length, count), of, keys);
        let mut held = 0;
        for done in (0..length).step_by(BLOCK) {
            let block = BLOCK.min(length - done);
            let start = if ranking.is_from_last() { length - done - block } else { done };
            if held + BLOCK > room {
                sort_first(std::slice::from_raw_parts_mut(keys, held), count);
                held = count;
                // Of equal elements those that come later are behind.
                let Some(next) = T::after(T::key_of(keys.add(count - 1).read())) else { break };
                least = next;
            }
            if block == BLOCK {
                let mut hits = 0u32;
                for i in start..start + BLOCK {
                    hits += u32::from(line.add(i).read_unaligned().key(of) >= least);
                }
                if hits == 0 {
                    continue;
                }
            }
            for place in start..start + block {
                let key = line.add(place).read_unaligned().key(of);
                keys.add(held).write(T::sorted(key, ranking.rank(place as u32)));
                held += usize::from(key >= least);
            }
        }
        let keys = std::slice::from_raw_parts_mut(keys, held);
        sort_first(keys, count);
        for (i, &key) in keys[..count].iter().enumerate() {
            places.add(i).write(ranking.rank(T::rank(key)));
        }
    }
}

/// A key below which none of the first elements is: of the greatest keys of disjoint parts of the line, the
/// last that is asked for.
///
/// # Safety
///
/// As [`FirstSorted`].
#[inline(always)]
unsafe fn least_of_first<T: Ordered>(
    line: *const T,
    (length, count): (usize, usize),
    of: (T::Key, T::Key),
    keys: *mut T::Sorted,
) -> T::Key {
    // At least twice as many parts as elements that are asked for.
    let groups = count.div_ceil(BLOCK / 2);
    let blocks = length / BLOCK / groups.max(1);
    if blocks < 2 || count == 0 {
        return T::MIN;
    }
    // SAFETY: as the caller promises; the groups have no more parts than there is room for.
    unsafe {
        for group in 0..groups {
            let mut greatest = [T::MIN; BLOCK];
            for block in group * blocks..(group + 1) * blocks {
                let from = line.add(block * BLOCK);
                for (i, most) in greatest.iter_mut().enumerate() {
                    let key = from.add(i).read_unaligned().key(of);
                    *most = if key > *most { key } else { *most };
                }
            }
            for (i, &most) in greatest.iter().enumerate() {
                keys.add(group * BLOCK + i).write(T::sorted(most, i as u32));
            }
        }
        let mut parts = groups * BLOCK;
        while parts.is_multiple_of(2) && parts / 2 >= count * 3 {
            parts /= 2;
            for i in 0..parts {
                keys.add(i).write(keys.add(i).read().max(keys.add(parts + i).read()));
            }
        }
        let keys = std::slice::from_raw_parts_mut(keys, parts);
        select_first(keys, count);
        T::key_of(keys[count - 1])
    }
}

/// Puts the largest keys in front, the smallest of them last. It is compiled for each type of keys alone, of
/// which there are fewer than types of elements.
#[inline(never)]
fn select_first<K: Ord>(keys: &mut [K], count: usize) {
    if (1..keys.len()).contains(&count) {
        keys.select_nth_unstable_by(count - 1, |x, y| y.cmp(x));
    }
}

/// Puts the largest keys in front, the largest of all first.
#[inline(never)]
fn sort_first<K: Ord>(keys: &mut [K], count: usize) {
    select_first(keys, count);
    keys[..count].sort_unstable_by(|x, y| y.cmp(x));
}
