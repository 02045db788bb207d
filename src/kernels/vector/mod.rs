//! Vectors of 16 numbers at each level: loads from and stores to any type, arithmetic in f32 and f64, and
//! sums and maxima over the numbers of a vector.
//!
//! A sum over a vector adds up halves: number `i` and number `i + 8`, then `i + 4` and so on. So the bits are
//! the same at every level.

use std::cmp::Ordering;
use std::ops::Range;

use crate::kernels::isa::Isa;
use crate::kernels::pointwise::conversion::To;
use crate::kernels::pointwise::half::{Bf16, F16};
use crate::types::dtype::DataType;

/// An array of the values of an expression for all indices below a number. The methods of arrays would do,
/// but they are not compiled for the level, nor are the instructions inside them.
macro_rules! each {
    (2, |$i:ident| $value:expr) => {
        [each!(@ $i = 0, $value), each!(@ $i = 1, $value)]
    };
    (4, |$i:ident| $value:expr) => {
        [each!(@ $i = 0, $value), each!(@ $i = 1, $value), each!(@ $i = 2, $value), each!(@ $i = 3, $value)]
    };
    (8, |$i:ident| $value:expr) => {
        [
            each!(@ $i = 0, $value),
            each!(@ $i = 1, $value),
            each!(@ $i = 2, $value),
            each!(@ $i = 3, $value),
            each!(@ $i = 4, $value),
            each!(@ $i = 5, $value),
            each!(@ $i = 6, $value),
            each!(@ $i = 7, $value),
        ]
    };
    (@ $i:ident = $index:literal, $value:expr) => {{
        let $i: usize = $index;
        $value
    }};
}

pub(in crate::kernels) use each;

/// Applies an instruction to each part of a vector made of several registers.
#[cfg(target_arch = "x86_64")]
macro_rules! of_parts {
    ($($name:ident($($x:ident),*) -> $Ret:ident = $instruction:ident, $n:tt;)*) => {
        $(#[inline(always)]
        unsafe fn $name($($x: Self::$Ret),*) -> Self::$Ret {
            // SAFETY: as the caller promises.
            unsafe { each!($n, |i| $instruction($($x[i]),*)) }
        })*
    };
}

mod arrays;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
mod avx512;
mod score;

/// Numbers of a vector.
pub(crate) const LANES: usize = 16;

/// The type of the elements of rows in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowType {
    F32,
    Bf16,
    F16,
}

impl RowType {
    /// The float type of this name, if kernels of rows read and write it.
    pub(crate) fn of(data_type: DataType) -> Option<Self> {
        match data_type {
            DataType::F32 => Some(Self::F32),
            DataType::Bf16 => Some(Self::Bf16),
            DataType::F16 => Some(Self::F16),
            _ => None,
        }
    }

    /// Bytes of an element.
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }
}

/// Vectors of a level.
///
/// # Safety
///
/// The machine runs the level; loads and stores reach elements that can be read or written.
pub(in crate::kernels) trait Lanes: Isa + Sized {
    /// 16 numbers of f32, and of f64.
    type F: Copy;
    type D: Copy;

    /// The level has registers for the sums of several rows of a product, or for a row of a tile of scores
    /// and the running values of its columns.
    const HAS_MANY_REGISTERS: bool = false;

    /// Registers of a vector. Kernels may use the first of them alone, if the number is known when they are
    /// compiled: arithmetic on the others, whose results are not stored, is left out then.
    const REGISTERS: usize;

    unsafe fn splat(x: f32) -> Self::F;
    unsafe fn load(from: *const f32) -> Self::F;
    unsafe fn load_bf16(from: *const u16) -> Self::F;
    unsafe fn load_f16(from: *const u16) -> Self::F;
    unsafe fn store(to: *mut f32, x: Self::F);
    /// Rounds numbers that are no NaN, or the canonical one.
    unsafe fn store_bf16(to: *mut u16, x: Self::F);
    /// As [`store_bf16`](Self::store_bf16), of two vectors in a row (decision: bf16-store-pairs).
    #[inline(always)]
    unsafe fn store_bf16_pair(to: *mut u16, x: Self::F, y: Self::F) {
        // SAFETY: as the caller promises.
        unsafe {
            Self::store_bf16(to, x);
            Self::store_bf16(to.add(LANES), y);
        }
    }
    unsafe fn store_f16(to: *mut u16, x: Self::F);
    unsafe fn add(x: Self::F, y: Self::F) -> Self::F;
    unsafe fn sub(x: Self::F, y: Self::F) -> Self::F;
    unsafe fn mul(x: Self::F, y: Self::F) -> Self::F;
    unsafe fn div(x: Self::F, y: Self::F) -> Self::F;
    /// `x · y + z`, rounded once if the level has the instruction.
    unsafe fn fma(x: Self::F, y: Self::F, z: Self::F) -> Self::F;
    /// A number of f64 in the bits of each two lanes.
    unsafe fn splat_in_pairs(x: f64) -> Self::F;
    /// As [`fma`](Self::fma), of numbers of f64 in the bits of each two lanes.
    unsafe fn fma_in_pairs(x: Self::F, y: Self::F, z: Self::F) -> Self::F;
    /// `x` where it is larger than `y`, else `y`.
    unsafe fn larger(x: Self::F, y: Self::F) -> Self::F;
    /// The larger number of each pair; NaN if one is NaN, +0 above −0.
    unsafe fn maximum(x: Self::F, y: Self::F) -> Self::F;
    /// The smaller number of each pair; NaN if one is NaN, −0 below +0.
    unsafe fn minimum(x: Self::F, y: Self::F) -> Self::F;
    /// The first where `x` is above 0, else the second.
    unsafe fn if_positive(x: Self::F, then: Self::F, else_: Self::F) -> Self::F;
    unsafe fn exp(x: Self::F) -> Self::F;
    /// exp for inputs ≤ 0, −∞ and NaN; above 0 unspecified.
    #[inline(always)]
    unsafe fn exp_of_distance(x: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { Self::exp(x) }
    }
    /// The numbers, with any NaN replaced by the canonical one.
    unsafe fn canonical_vector(x: Self::F) -> Self::F;
    unsafe fn sum(x: Self::F) -> f32;
    unsafe fn largest(x: Self::F) -> f32;
    /// The sum of each vector, with the bits of [`sum`](Self::sum).
    #[inline(always)]
    unsafe fn sum_of_each(x: [Self::F; 4]) -> [f32; 4] {
        // SAFETY: as the caller promises.
        unsafe { each!(4, |i| Self::sum(x[i])) }
    }
    /// The largest number of each vector.
    #[inline(always)]
    unsafe fn largest_of_each(x: [Self::F; 4]) -> [f32; 4] {
        // SAFETY: as the caller promises.
        unsafe { each!(4, |i| Self::largest(x[i])) }
    }
    unsafe fn first(x: Self::F) -> f32;
    unsafe fn first_64(x: Self::D) -> f64;
    /// The numbers from number `N` on, which is half of those that matter: 8, 4, 2 or 1.
    unsafe fn from_on<const N: usize>(x: Self::F) -> Self::F;
    unsafe fn from_on_64<const N: usize>(x: Self::D) -> Self::D;

    unsafe fn splat_64(x: f64) -> Self::D;
    unsafe fn widen(x: Self::F) -> Self::D;
    unsafe fn narrow(x: Self::D) -> Self::F;
    unsafe fn load_64(from: *const f64) -> Self::D;
    /// 16 numbers of f32 in memory, in f64.
    unsafe fn load_wide(from: *const f32) -> Self::D;
    unsafe fn store_64(to: *mut f64, x: Self::D);
    unsafe fn abs_64(x: Self::D) -> Self::D;
    unsafe fn add_64(x: Self::D, y: Self::D) -> Self::D;
    unsafe fn sub_64(x: Self::D, y: Self::D) -> Self::D;
    unsafe fn mul_64(x: Self::D, y: Self::D) -> Self::D;

    /// The first numbers of a vector of elements of a type; the others are `pad`.
    #[inline(always)]
    unsafe fn load_part(from: *const u8, float: RowType, count: usize, pad: f32) -> Self::F {
        let mut part = [pad; LANES];
        // SAFETY: as the caller promises; the part is a vector.
        unsafe {
            for (i, x) in part.iter_mut().enumerate().take(count) {
                *x = read_one::<Self>(from, float, i);
            }
            Self::load(part.as_ptr())
        }
    }

    /// Stores the first numbers of a vector.
    #[inline(always)]
    unsafe fn store_part(to: *mut u8, float: RowType, count: usize, x: Self::F) {
        let mut part = [0.0; LANES];
        // SAFETY: as the caller promises; the part is a vector.
        unsafe {
            Self::store(part.as_mut_ptr(), x);
            for (i, &x) in part.iter().enumerate().take(count) {
                write_one::<Self>(to, float, i, x);
            }
        }
    }

    /// The first numbers of a vector of elements of a type, which fill all of so many registers but the last;
    /// the others are 0.
    unsafe fn load_registers(from: *const u8, float: RowType, registers: usize, count: usize) -> Self::F;

    /// Stores the first numbers of a vector, as [`load_registers`](Self::load_registers) reads them.
    unsafe fn store_registers(to: *mut f32, registers: usize, count: usize, x: Self::F);

    /// exp for inputs ≤ 40: exact at 0, and 0 for inputs ≤ −104. Multiples of ln 2 are subtracted in one
    /// step, so that the relative error grows with |x|, to 1e-5 at −104.
    ///
    /// Results that would be subnormal numbers, or nearly so, are 0 unless `SUBNORMAL`: products with them
    /// take far longer than others (decision: attention-subnormal).
    unsafe fn exp_of_score<const SUBNORMAL: bool>(x: Self::F) -> Self::F;

    /// `x` with a number in the place of the lanes whose bits are set, the first in the lowest bit.
    #[inline(always)]
    unsafe fn replaced(x: Self::F, bits: u16, with: Self::F) -> Self::F {
        let (mut numbers, mut replaced) = ([0.0f32; LANES], [0.0f32; LANES]);
        // SAFETY: as the caller promises; an array of 16 numbers is a vector.
        unsafe {
            Self::store(numbers.as_mut_ptr(), x);
            Self::store(replaced.as_mut_ptr(), with);
            for lane in 0..LANES {
                let is_replaced = 0u32.wrapping_sub(u32::from(bits) >> lane & 1);
                let (old, new) = (numbers[lane].to_bits(), replaced[lane].to_bits());
                replaced[lane] = f32::from_bits(new & is_replaced | old & !is_replaced);
            }
            Self::load(replaced.as_ptr())
        }
    }

    /// A bit for each of up to 64 bytes, the first in the lowest bit: whether the byte is not 0. The bits of
    /// bytes beyond `count` are 0.
    #[inline(always)]
    unsafe fn lane_mask(from: *const u8, count: usize) -> u64 {
        /// The lowest bit of each byte, and the product with it that moves such bits to the highest byte.
        const LOWEST: u64 = 0x0101_0101_0101_0101;
        const TOGETHER: u64 = 0x0102_0408_1020_4080;
        let mut lane_mask = 0;
        for first in (0..count).step_by(8) {
            let mut bytes = [0; 8];
            // SAFETY: as the caller promises.
            unsafe {
                match count - first {
                    8.. => bytes = from.add(first).cast::<[u8; 8]>().read(),
                    rest => from.add(first).copy_to_nonoverlapping(bytes.as_mut_ptr(), rest),
                }
            }
            let bytes = u64::from_le_bytes(bytes);
            let low = !(LOWEST << 7);
            let is_true = (((bytes & low) + low) | bytes) >> 7 & LOWEST;
            lane_mask |= (is_true.wrapping_mul(TOGETHER) >> 56) << first;
        }
        lane_mask
    }

    /// `x · p + sum` if p is not 0, else the sum.
    unsafe fn add_product(x: Self::F, p: Self::F, sum: Self::F) -> Self::F;

    /// Integers of a byte.
    unsafe fn load_u8(from: *const u8) -> Self::F;
    unsafe fn load_s8(from: *const u8) -> Self::F;

    /// [`chosen`](Self::chosen) gives numbers in the order of memory.
    const IS_CHOSEN_IN_ORDER: bool = true;

    /// Brings a vector from the order of memory to that of [`chosen`](Self::chosen), and back.
    #[inline(always)]
    unsafe fn arranged(x: Self::F) -> Self::F {
        x
    }
    #[inline(always)]
    unsafe fn in_order(x: Self::F) -> Self::F {
        x
    }

    /// The entries of a table for 16 integers of four bits in 8 bytes, two in a byte, the first in the low
    /// half.
    #[inline(always)]
    unsafe fn chosen(from: *const u8, table: Self::F) -> Self::F {
        let (mut numbers, mut chosen) = ([0.0; LANES], [0.0; LANES]);
        // SAFETY: as the caller promises; an array of 16 numbers is a vector.
        unsafe {
            Self::store(numbers.as_mut_ptr(), table);
            let bits = u64::from_le_bytes(from.cast::<[u8; LANES / 2]>().read());
            for (lane, number) in chosen.iter_mut().enumerate() {
                *number = numbers[(bits >> (4 * lane) & 0xf) as usize];
            }
            Self::load(chosen.as_ptr())
        }
    }

    /// For each lane the number of a place in its group: numbers of groups of 4 or 8 lie next to each
    /// other, and no number behind those of the vector is read.
    #[inline(always)]
    unsafe fn load_of_groups<const GROUP: usize>(from: *const f32, place: usize) -> Self::F {
        // SAFETY: as the caller promises; an array of 16 numbers is a vector.
        unsafe {
            let mut numbers = [0.0; LANES];
            for (lane, number) in numbers.iter_mut().enumerate() {
                *number = from.add(lane / GROUP * GROUP + place).read_unaligned();
            }
            Self::load(numbers.as_ptr())
        }
    }

    /// The numbers at some places of a row, at least one; the others are 0.
    #[inline(always)]
    unsafe fn load_places(from: *const f32, places: *const u32, count: usize) -> Self::F {
        let mut numbers = [0.0; LANES];
        // SAFETY: as the caller promises; an array of 16 numbers is a vector.
        unsafe {
            for (lane, number) in numbers.iter_mut().enumerate().take(count) {
                *number = from.add(places.add(lane).read_unaligned() as usize).read_unaligned();
            }
            Self::load(numbers.as_ptr())
        }
    }

    /// Numbers of a vector, of which those that are not inside are 0.
    #[inline(always)]
    unsafe fn load_inside(from: *const f32, inside: Range<usize>) -> Self::F {
        let mut numbers = [0.0; LANES];
        // SAFETY: as the caller promises; an array of 16 numbers is a vector.
        unsafe {
            for place in inside {
                numbers[place] = from.wrapping_add(place).read_unaligned();
            }
            Self::load(numbers.as_ptr())
        }
    }

    /// Stores the numbers of a vector that are inside to their places.
    #[inline(always)]
    unsafe fn store_inside(to: *mut f32, inside: Range<usize>, x: Self::F) {
        let mut numbers = [0.0; LANES];
        // SAFETY: as the caller promises; an array of 16 numbers is a vector.
        unsafe {
            Self::store(numbers.as_mut_ptr(), x);
            for place in inside {
                to.wrapping_add(place).write_unaligned(numbers[place]);
            }
        }
    }

    /// Numbers of two vectors, of which those that are not inside are 0: those at even places, and those at
    /// odd ones.
    #[inline(always)]
    unsafe fn load_apart(from: *const f32, inside: Range<usize>) -> [Self::F; 2] {
        let mut numbers = [[0.0; LANES]; 2];
        // SAFETY: as the caller promises; an array of 16 numbers is a vector.
        unsafe {
            if inside.start == 0 && inside.end == 2 * LANES {
                for (odd, numbers) in numbers.iter_mut().enumerate() {
                    for (lane, number) in numbers.iter_mut().enumerate() {
                        *number = from.add(2 * lane + odd).read_unaligned();
                    }
                }
            } else {
                for place in inside {
                    numbers[place % 2][place / 2] = from.wrapping_add(place).read_unaligned();
                }
            }
            [Self::load(numbers[0].as_ptr()), Self::load(numbers[1].as_ptr())]
        }
    }

    /// The first numbers of a vector; the others are `pad`.
    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize, pad: f32) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { Self::load_part(from.cast(), RowType::F32, count, pad) }
    }

    /// Stores the first numbers of a vector.
    #[inline(always)]
    unsafe fn store_first(to: *mut f32, count: usize, x: Self::F) {
        // SAFETY: as the caller promises.
        unsafe { Self::store_part(to.cast(), RowType::F32, count, x) };
    }
}

/// Numbers of a register that a kernel uses, of `registers` that `count` numbers fill; `None` if it does not
/// use the register.
#[inline(always)]
fn lanes_of<I: Lanes>(register: usize, registers: usize, count: usize) -> Option<usize> {
    let lanes = LANES / I::REGISTERS;
    match registers.cmp(&(register + 1)) {
        Ordering::Greater => Some(lanes),
        Ordering::Equal => Some(count - register * lanes),
        Ordering::Less => None,
    }
}

/// # Safety
///
/// The element can be read.
#[inline(always)]
pub(in crate::kernels) unsafe fn read_one<I: Isa>(row: *const u8, float: RowType, column: usize) -> f32 {
    // SAFETY: as the caller promises; a float of 16 bits is its bits.
    unsafe {
        match float {
            RowType::F32 => row.cast::<f32>().add(column).read_unaligned(),
            RowType::Bf16 => row.cast::<Bf16>().add(column).read_unaligned().to::<I>(),
            RowType::F16 => row.cast::<F16>().add(column).read_unaligned().to::<I>(),
        }
    }
}

/// # Safety
///
/// The element can be written.
#[inline(always)]
unsafe fn write_one<I: Isa>(row: *mut u8, float: RowType, column: usize, x: f32) {
    // SAFETY: as the caller promises.
    unsafe {
        match float {
            RowType::F32 => row.cast::<f32>().add(column).write_unaligned(x),
            RowType::Bf16 => row.cast::<Bf16>().add(column).write_unaligned(x.to::<I>()),
            RowType::F16 => row.cast::<F16>().add(column).write_unaligned(x.to::<I>()),
        }
    }
}

/// The vector that starts at a column.
///
/// # Safety
///
/// Its elements can be read, and the machine runs the level.
#[inline(always)]
pub(in crate::kernels) unsafe fn load_at<I: Lanes>(row: *const u8, float: RowType, column: usize) -> I::F {
    // SAFETY: as the caller promises.
    unsafe {
        match float {
            RowType::F32 => I::load(row.cast::<f32>().add(column)),
            RowType::Bf16 => I::load_bf16(row.cast::<u16>().add(column)),
            RowType::F16 => I::load_f16(row.cast::<u16>().add(column)),
        }
    }
}
