//! Right operands of products as they are stored: rows of floats, or of integers with scales and zero points,
//! whose elements become f32 in registers.
//!
//! A [`StoredOperand`] says how a vector of a row is read. The loops of [dot products](super::dot), of
//! [sums of rows](super::outer) and of [widening](super::widen) are generic over it and over the level.
//!
//! A number is its integer less a zero point, times a scale, and each of both steps is rounded to f32. So the
//! bits are the same at every level, and those of the same operand in f32. To scale the sums, or to subtract
//! zero points from the sums, would save a step, but sums of integers overflow where those of numbers do not,
//! and lose digits if zero points are large.

use std::marker::PhantomData;

use crate::kernels::pointwise::conversion::To;
use crate::kernels::pointwise::half::{Bf16, F16};
use crate::kernels::pointwise::small::{E4m3, E5m2};
use crate::kernels::vector::{LANES, Lanes, RowType, load_at};
use crate::kernels::{Extent, Source, Target};

/// Prefetch distance in bytes: a page, within which hardware prefetchers stay (decision: token-prefetch).
const DISTANCE: usize = 4096;

/// Rows whose elements lie next to each other; each row starts at a whole byte.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OperandRows {
    pub(crate) at: *const u8,
    pub(crate) row_stride: isize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// The rows to prefetch at the end of these rows; `None` if these rows are in the caches already.
    pub(crate) later: Option<LaterRows>,
}

/// The rows to prefetch at the end of some rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaterRows {
    /// Rows up to the last one of the run, from the first row on.
    pub(crate) rows: usize,
    /// Address to prefetch behind the run; it need not be valid.
    pub(crate) next: *const u8,
}

impl OperandRows {
    /// The address of a row.
    #[inline(always)]
    pub(crate) fn row(&self, row: usize) -> *const u8 {
        self.at.wrapping_offset(self.row_stride * row as isize)
    }

    /// Prefetch distance in rows of so many bytes.
    #[inline(always)]
    pub(crate) fn distance(bytes: usize) -> usize {
        DISTANCE.div_ceil(bytes.max(1))
    }

    /// Bytes from a row to the one that is read so many rows after it; 0 if nothing is prefetched.
    #[inline(always)]
    pub(super) fn later_offset(&self, row: usize, distance: usize) -> isize {
        let Some(LaterRows { rows, next }) = self.later else { return 0 };
        let later = match (row + distance).checked_sub(rows) {
            None => self.row(row + distance),
            Some(past) => next.wrapping_offset(self.row_stride * past as isize),
        };
        later.addr().wrapping_sub(self.row(row).addr()) as isize
    }
}

/// The scales and the zero points of rows, in f32.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowScaling {
    /// Those of the first row.
    pub(crate) scales: *const f32,
    pub(crate) zeros: *const f32,
    /// Rows, and columns, that share a scale.
    pub(crate) group: Extent,
    /// Rows of the first group that come before the first row.
    pub(crate) before: usize,
    /// Numbers from one group of rows to the next, and from one group of columns to the next; the latter is 1
    /// if each column has a scale of its own.
    pub(crate) row_step: usize,
    pub(crate) column_step: usize,
}

impl RowScaling {
    /// For rows of floats, which have none.
    pub(crate) const NONE: Self = Self {
        scales: std::ptr::null(),
        zeros: std::ptr::null(),
        group: Extent { rows: usize::MAX, columns: usize::MAX },
        before: 0,
        row_step: 0,
        column_step: 0,
    };
}

/// Goes through the scales and zero points of rows. A division for each row, or for each group, would take as
/// long as some vectors.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScalingCursor {
    /// Those of the row.
    pub(super) scales: *const f32,
    pub(super) zeros: *const f32,
    /// Rows of the group behind the row.
    left: usize,
}

impl ScalingCursor {
    /// Before the first row.
    #[inline(always)]
    pub(super) fn new(scaling: &RowScaling) -> Self {
        let left = scaling.group.rows - scaling.before;
        Self { scales: scaling.scales, zeros: scaling.zeros, left }
    }

    /// Goes to the next row.
    #[inline(always)]
    pub(super) fn next(&mut self, scaling: &RowScaling) {
        self.next_rows(scaling, 1);
    }

    /// Goes on by the rows that share the scales of the next row, but by no more than a number of rows above
    /// 0; tells how many they are.
    #[inline(always)]
    pub(super) fn next_rows(&mut self, scaling: &RowScaling, most: usize) -> usize {
        if self.left == 0 {
            self.scales = self.scales.wrapping_add(scaling.row_step);
            self.zeros = self.zeros.wrapping_add(scaling.row_step);
            self.left = scaling.group.rows;
        }
        let rows = self.left.min(most);
        self.left -= rows;
        rows
    }
}

/// A product of few rows in f32 with stored rows, each of which is read from memory once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowProduct {
    /// The left rows: their number, and the rows in f32, whose elements lie next to each other.
    pub(crate) rows: usize,
    pub(crate) left: Source,
    pub(crate) right: OperandRows,
    pub(crate) scaling: RowScaling,
    /// Rows of the result in f32, whose columns lie next to each other.
    pub(crate) to: Target,
}

/// The values of a type of four bits, indexed by their bits. Other types do not read them.
pub(super) type NibbleValues = [f32; LANES];

pub(super) static UNSIGNED: NibbleValues = integers(false);
pub(super) static SIGNED: NibbleValues = integers(true);

const fn integers(is_signed: bool) -> NibbleValues {
    let mut integers = [0.0; LANES];
    let mut bits = 0;
    while bits < LANES {
        integers[bits] = if is_signed && bits > 7 { bits as f32 - 16.0 } else { bits as f32 };
        bits += 1;
    }
    integers
}

/// The bytes of a vector of elements.
type StoredPart = [u8; 4 * LANES];

/// How the elements of stored rows are read.
///
/// # Safety of the methods
///
/// The machine runs the level; the elements can be read, as can the scale and the zero point, or a vector of
/// them if each column has its own.
pub(super) trait StoredOperand<I: Lanes>: 'static {
    /// Bits of an element.
    const BITS: usize;
    /// Elements have scales and zero points.
    const IS_SCALED: bool = true;
    /// Each column has a scale of its own.
    const IS_BY_COLUMN: bool = false;
    /// Vectors are in the order of memory; else in that of [`arranged`](Self::arranged).
    const IS_IN_ORDER: bool = true;
    /// The form in which a kernel holds scale and zero point of a vector.
    type Scaling: Copy;

    unsafe fn scaling(scale: *const f32, zero: *const f32, integers: I::F) -> Self::Scaling;

    /// A vector of numbers.
    unsafe fn load(from: *const u8, scaling: Self::Scaling) -> I::F;

    /// A vector of elements from any column of a row on, of which so many are there.
    #[inline(always)]
    unsafe fn part(row: *const u8, column: usize, count: usize) -> StoredPart {
        let mut part = [0; size_of::<StoredPart>()];
        // SAFETY: as the caller promises; no element is larger than an f32.
        unsafe {
            let from = row.add(column * Self::BITS / 8);
            part.as_mut_ptr().copy_from_nonoverlapping(from, count * Self::BITS / 8);
        }
        part
    }

    /// The vector of numbers from any column of a row on, of which so many are elements; the others are 0.
    unsafe fn load_part(row: *const u8, column: usize, count: usize, scaling: Self::Scaling) -> I::F;

    /// Brings a vector from the order of memory to that of the type, and back.
    #[inline(always)]
    unsafe fn arranged(x: I::F) -> I::F {
        x
    }
    #[inline(always)]
    unsafe fn in_order(x: I::F) -> I::F {
        x
    }
}

/// Bytes of so many elements.
#[inline(always)]
pub(super) fn bytes_of<I: Lanes, O: StoredOperand<I>>(elements: usize) -> usize {
    if O::BITS < 8 { elements.div_ceil(8 / O::BITS) } else { elements * (O::BITS / 8) }
}

/// Rows of floats.
macro_rules! floats {
    ($($Float:ty = $TYPE:ident, $bits:literal;)*) => {
        $(
            impl<I: Lanes> StoredOperand<I> for $Float {
                const BITS: usize = $bits;
                const IS_SCALED: bool = false;
                type Scaling = ();

                #[inline(always)]
                unsafe fn scaling(_: *const f32, _: *const f32, _: I::F) {}

                #[inline(always)]
                unsafe fn load(from: *const u8, (): ()) -> I::F {
                    // SAFETY: as the caller promises.
                    unsafe { load_at::<I>(from, RowType::$TYPE, 0) }
                }

                #[inline(always)]
                unsafe fn load_part(row: *const u8, column: usize, count: usize, (): ()) -> I::F {
                    // SAFETY: as the caller promises.
                    unsafe { I::load_part(row.add(column * $bits / 8), RowType::$TYPE, count, 0.0) }
                }
            }
        )*
    };
}

floats! {
    f32 = F32, 32;
    Bf16 = Bf16, 16;
    F16 = F16, 16;
}

/// An element of a byte.
pub(super) trait ByteElement: Copy + Default + 'static {
    /// A vector of numbers.
    ///
    /// # Safety
    ///
    /// As for the methods of [`StoredOperand`].
    unsafe fn load<I: Lanes>(from: *const u8) -> I::F;
}

impl ByteElement for u8 {
    #[inline(always)]
    unsafe fn load<I: Lanes>(from: *const u8) -> I::F {
        // SAFETY: as the caller promises.
        unsafe { I::load_u8(from) }
    }
}

impl ByteElement for i8 {
    #[inline(always)]
    unsafe fn load<I: Lanes>(from: *const u8) -> I::F {
        // SAFETY: as the caller promises.
        unsafe { I::load_s8(from) }
    }
}

/// Small floats, which the compiler widens by vectors.
macro_rules! small_floats {
    ($($Float:ident)*) => {
        $(
            impl ByteElement for $Float {
                #[inline(always)]
                unsafe fn load<I: Lanes>(from: *const u8) -> I::F {
                    // SAFETY: as the caller promises; every byte is such a float, and an array of 16 numbers
                    // is a vector.
                    unsafe {
                        let elements = from.cast::<[$Float; LANES]>().read_unaligned();
                        let mut numbers = [0.0f32; LANES];
                        for lane in 0..LANES {
                            numbers[lane] = elements[lane].to::<I>();
                        }
                        I::load(numbers.as_ptr())
                    }
                }
            }
        )*
    };
}

small_floats!(E4m3 E5m2);

/// Rows of bytes.
pub(super) struct ByteRows<T, const IS_BY_COLUMN: bool>(PhantomData<T>);

impl<I: Lanes, T: ByteElement, const IS_BY_COLUMN: bool> StoredOperand<I> for ByteRows<T, IS_BY_COLUMN> {
    const BITS: usize = 8;
    const IS_BY_COLUMN: bool = IS_BY_COLUMN;
    type Scaling = [I::F; 2];

    #[inline(always)]
    unsafe fn scaling(scale: *const f32, zero: *const f32, _: I::F) -> [I::F; 2] {
        // SAFETY: as the caller promises.
        unsafe {
            match IS_BY_COLUMN {
                true => [I::load(scale), I::load(zero)],
                false => [I::splat(*scale), I::splat(*zero)],
            }
        }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8, [scale, zero]: [I::F; 2]) -> I::F {
        // SAFETY: as the caller promises.
        unsafe { I::mul(I::sub(T::load::<I>(from), zero), scale) }
    }

    #[inline(always)]
    unsafe fn load_part(row: *const u8, column: usize, count: usize, scaling: [I::F; 2]) -> I::F {
        // SAFETY: as the caller promises; the part is a vector.
        unsafe {
            let part = <Self as StoredOperand<I>>::part(row, column, count);
            first_of::<I>(<Self as StoredOperand<I>>::load(part.as_ptr(), scaling), count)
        }
    }
}

/// Rows of integers of four bits, two in a byte, the first in its low half.
pub(super) struct NibbleRows<const IS_BY_COLUMN: bool>;

/// The scaling of integers of four bits.
#[derive(Clone, Copy)]
pub(super) struct NibbleScaling<F> {
    /// The number of each integer; the integer itself if each column has a scale of its own.
    numbers: F,
    scale: F,
    zero: F,
}

impl<I: Lanes, const IS_BY_COLUMN: bool> StoredOperand<I> for NibbleRows<IS_BY_COLUMN> {
    const BITS: usize = 4;
    const IS_BY_COLUMN: bool = IS_BY_COLUMN;
    const IS_IN_ORDER: bool = I::IS_CHOSEN_IN_ORDER;
    type Scaling = NibbleScaling<I::F>;

    #[inline(always)]
    unsafe fn scaling(scale: *const f32, zero: *const f32, integers: I::F) -> NibbleScaling<I::F> {
        // SAFETY: as the caller promises.
        unsafe {
            match IS_BY_COLUMN {
                true => NibbleScaling {
                    numbers: integers,
                    scale: I::arranged(I::load(scale)),
                    zero: I::arranged(I::load(zero)),
                },
                false => {
                    let (scale, zero) = (I::splat(*scale), I::splat(*zero));
                    NibbleScaling { numbers: I::mul(I::sub(integers, zero), scale), scale, zero }
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8, NibbleScaling { numbers, scale, zero }: NibbleScaling<I::F>) -> I::F {
        // SAFETY: as the caller promises.
        unsafe {
            let x = I::chosen(from, numbers);
            if IS_BY_COLUMN { I::mul(I::sub(x, zero), scale) } else { x }
        }
    }

    #[inline(always)]
    unsafe fn load_part(row: *const u8, column: usize, count: usize, scaling: Self::Scaling) -> I::F {
        // SAFETY: as the caller promises; the part is a vector.
        unsafe {
            let part = <Self as StoredOperand<I>>::part(row, column, count);
            let x = I::in_order(<Self as StoredOperand<I>>::load(part.as_ptr(), scaling));
            I::arranged(first_of::<I>(x, count))
        }
    }

    #[inline(always)]
    unsafe fn part(row: *const u8, column: usize, count: usize) -> StoredPart {
        // SAFETY: as the caller promises.
        unsafe { nibbles(row, column, count) }
    }

    #[inline(always)]
    unsafe fn arranged(x: I::F) -> I::F {
        // SAFETY: as the caller promises.
        unsafe { I::arranged(x) }
    }

    #[inline(always)]
    unsafe fn in_order(x: I::F) -> I::F {
        // SAFETY: as the caller promises.
        unsafe { I::in_order(x) }
    }
}

/// The first numbers of a vector; the others are 0.
///
/// # Safety
///
/// The machine runs the level.
#[inline(always)]
unsafe fn first_of<I: Lanes>(x: I::F, count: usize) -> I::F {
    // SAFETY: as the caller promises.
    unsafe { if count < LANES { I::replaced(x, u16::MAX << count, I::splat(0.0)) } else { x } }
}

/// Integers of four bits from any column of a row on, two in a byte.
///
/// # Safety
///
/// They can be read.
unsafe fn nibbles(row: *const u8, column: usize, count: usize) -> StoredPart {
    let mut part = [0; size_of::<StoredPart>()];
    for index in 0..count {
        let at = column + index;
        // SAFETY: as the caller promises.
        let integer = unsafe { row.add(at / 2).read() } >> (at % 2 * 4) & 0xf;
        part[index / 2] |= integer << (index % 2 * 4);
    }
    part
}
