//! The first elements of a line in order of size.
//!
//! An element becomes an integer, its key, whose order is that of the elements, with the place of the element
//! in its low bits. So no two are equal, and any way of sorting gives the same.

use super::isa::Portable;
use super::pointwise::conversion::To;
use super::pointwise::half::{Bf16, F16};
use crate::types::dtype::DataType;

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

/// A line of elements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SourceLine {
    pub(crate) at: *const u8,
    /// Bytes from one element to the next.
    pub(crate) stride: isize,
    pub(crate) length: usize,
}

/// Calls a function with the places of the first elements of a line, as many as asked for, in their order.
/// The scratch has room for the [keys](key_bytes) of the line unless one element is asked for.
///
/// # Safety
///
/// Each element of the line can be read; it has fewer than 2³² elements, and as many as are asked for. The
/// scratch is aligned to 16 bytes, and nothing else uses it.
pub(crate) type FirstOfLine = unsafe fn(
    line: SourceLine,
    count: usize,
    order: LineOrder,
    scratch: *mut u8,
    take: &mut dyn FnMut(usize),
);

/// Bytes of a key of an element of a type.
pub(crate) fn key_bytes(data_type: DataType) -> usize {
    match data_type.size() {
        Some(8) => size_of::<u128>(),
        _ => size_of::<u64>(),
    }
}

/// The kernel for a type; `None` if the type has no order.
pub(crate) fn first_of_line(data_type: DataType) -> Option<FirstOfLine> {
    Some(match data_type {
        DataType::F32 => first::<f32>,
        DataType::F64 => first::<f64>,
        DataType::Bf16 => first::<Bf16>,
        DataType::F16 => first::<F16>,
        DataType::S8 => first::<i8>,
        DataType::S16 => first::<i16>,
        DataType::S32 => first::<i32>,
        DataType::S64 => first::<i64>,
        DataType::U8 => first::<u8>,
        DataType::U16 => first::<u16>,
        DataType::U32 => first::<u32>,
        DataType::U64 => first::<u64>,
        _ => return None,
    })
}

/// An element with an order.
trait Ordered: Copy {
    /// The size and the place of an element in one number.
    type Key: Ord + Copy;

    /// The key of an element, so that of two keys the larger one comes first.
    fn key(self, place: u32, order: LineOrder) -> Self::Key;

    /// The place in a key.
    fn place(key: Self::Key, order: LineOrder) -> usize;
}

/// The bits of a place in a key: of larger ones comes the first, or the last.
#[inline(always)]
fn rank_of(place: u32, order: LineOrder) -> u32 {
    if order.last_of_equal { place } else { !place }
}

/// A number whose order is that of the sizes that come first; `None` stands for a NaN.
#[inline(always)]
fn ranked(ascending: Option<u64>, bits: u32, by_size: SizeOrder) -> u64 {
    let most = u64::MAX >> (64 - bits);
    match (ascending, by_size) {
        (Some(size), SizeOrder::Largest) => size,
        (Some(size), _) => most - size,
        (None, SizeOrder::Smallest) => 0,
        (None, _) => most,
    }
}

macro_rules! ordered {
    ($($T:ty: $bits:literal as $Key:ty, $ascending:expr;)*) => {
        $(impl Ordered for $T {
            type Key = $Key;

            #[inline(always)]
            fn key(self, place: u32, order: LineOrder) -> $Key {
                let ascending: fn($T) -> Option<u64> = $ascending;
                let size = ranked(ascending(self), $bits, order.by_size);
                (size as $Key) << 32 | rank_of(place, order) as $Key
            }

            #[inline(always)]
            fn place(key: $Key, order: LineOrder) -> usize {
                rank_of(key as u32, order) as usize
            }
        })*
    };
}

ordered! {
    f32: 32 as u64, of_f32;
    Bf16: 32 as u64, |x| of_f32(<Bf16 as To<f32>>::to::<Portable>(x));
    F16: 32 as u64, |x| of_f32(<F16 as To<f32>>::to::<Portable>(x));
    f64: 64 as u128, of_f64;
    i8: 8 as u64, |x| Some((x as u8 ^ 1 << 7).into());
    i16: 16 as u64, |x| Some((x as u16 ^ 1 << 15).into());
    i32: 32 as u64, |x| Some((x as u32 ^ 1 << 31).into());
    i64: 64 as u128, |x| Some(x as u64 ^ 1 << 63);
    u8: 8 as u64, |x| Some(x.into());
    u16: 16 as u64, |x| Some(x.into());
    u32: 32 as u64, |x| Some(x.into());
    u64: 64 as u128, Some;
}

/// The bits of a number in ascending order, with one place for both zeros.
#[inline(always)]
fn of_f32(x: f32) -> Option<u64> {
    let bits = (x + 0.0).to_bits();
    let ascending = if bits >> 31 == 0 { bits | 1 << 31 } else { !bits };
    (!x.is_nan()).then_some(ascending.into())
}

#[inline(always)]
fn of_f64(x: f64) -> Option<u64> {
    let bits = (x + 0.0).to_bits();
    (!x.is_nan()).then_some(if bits >> 63 == 0 { bits | 1 << 63 } else { !bits })
}

/// # Safety
///
/// As for [`FirstOfLine`].
unsafe fn first<T: Ordered>(
    line: SourceLine,
    count: usize,
    order: LineOrder,
    scratch: *mut u8,
    take: &mut dyn FnMut(usize),
) {
    // SAFETY: the caller promises that each element can be read.
    let key = |place: usize| unsafe {
        let at = line.at.offset(line.stride * place as isize);
        at.cast::<T>().read_unaligned().key(place as u32, order)
    };
    if count == 1 {
        if let Some(most) = (0..line.length).map(key).max() {
            take(T::place(most, order));
        }
        return;
    }
    // SAFETY: the scratch has room for the keys, each of which is written before it is read.
    let keys = unsafe {
        for place in 0..line.length {
            scratch.cast::<T::Key>().add(place).write(key(place));
        }
        std::slice::from_raw_parts_mut(scratch.cast::<T::Key>(), line.length)
    };
    sort_first(keys, count);
    keys[..count].iter().for_each(|&key| take(T::place(key, order)));
}

/// Puts the largest keys in front, the largest of all first. It is compiled for each type of keys alone, of
/// which there are fewer than types of elements.
#[inline(never)]
fn sort_first<K: Ord>(keys: &mut [K], count: usize) {
    if count < keys.len() {
        keys.select_nth_unstable_by(count, |x, y| y.cmp(x));
    }
    keys[..count].sort_unstable_by(|x, y| y.cmp(x));
}
