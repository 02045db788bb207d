//! How a function of one element becomes a kernel: block by block along each row of a tile.
//!
//! A block is read whole, computed whole and written whole, whatever its place in the row: the end of a row is padded
//! to a block. So an element's result depends on the element alone, and a target may stand where a source does. The
//! loop over a block has a fixed length and no branch, which the compiler turns into the vectors of the level.

use crate::kernels::{ByLevel, Extent, Inner, Source, Target};
use crate::types::kind::Level;

/// The parameters of a function, `p` and `q`; 0 where it has none.
pub(crate) type Params = [f32; 2];

/// Computes a function of one element over a tile. The source is dense along a row.
///
/// # Safety
///
/// Every element of the tile can be read from the sources and written to the target, the machine runs the kernel's
/// level, and the target is at the very address and pitch of a source of the same element size or overlaps it nowhere.
pub(crate) type Kernel1 = unsafe fn(extent: Extent, x: Source, to: Target, params: &Params);

/// Computes a function of two elements over a tile.
///
/// # Safety
///
/// As for [`Kernel1`].
pub(crate) type Kernel2 = unsafe fn(extent: Extent, x: Source, y: Source, to: Target, params: &Params);

/// A level, as a type that bodies are compiled for.
pub(in crate::kernels) trait Isa: 'static {
    const LEVEL: Level;

    /// `x · y + z`, rounded once where the level has an instruction for that, else twice.
    fn mul_add(x: f32, y: f32, z: f32) -> f32;

    /// As [`mul_add`](Self::mul_add).
    fn mul_add_64(x: f64, y: f64, z: f64) -> f64;
}

pub(in crate::kernels) struct Portable;
pub(in crate::kernels) struct Avx2;
pub(in crate::kernels) struct Avx512;

impl Isa for Portable {
    const LEVEL: Level = Level::Portable;

    #[inline(always)]
    fn mul_add(x: f32, y: f32, z: f32) -> f32 {
        x * y + z
    }

    #[inline(always)]
    fn mul_add_64(x: f64, y: f64, z: f64) -> f64 {
        x * y + z
    }
}

macro_rules! fused {
    ($($Isa:ident)*) => {
        $(impl Isa for $Isa {
            const LEVEL: Level = Level::$Isa;

            #[inline(always)]
            fn mul_add(x: f32, y: f32, z: f32) -> f32 {
                x.mul_add(y, z)
            }

            #[inline(always)]
            fn mul_add_64(x: f64, y: f64, z: f64) -> f64 {
                x.mul_add(y, z)
            }
        })*
    };
}

fused!(Avx2 Avx512);

/// What an element is held in; the default pads the end of a row.
pub(in crate::kernels) trait Plain: Copy + Default + 'static {}

impl<T: Copy + Default + 'static> Plain for T {}

/// A function of one element.
pub(in crate::kernels) trait Function1: 'static {
    type X: Plain;
    type To: Plain;

    fn of<I: Isa>(x: Self::X, params: Params) -> Self::To;

    /// The function of each element of a block.
    #[inline(always)]
    fn of_block<I: Isa, const N: usize>(x: &[Self::X; N], params: Params) -> [Self::To; N] {
        let mut to = [Self::To::default(); N];
        for i in 0..N {
            to[i] = Self::of::<I>(x[i], params);
        }
        to
    }
}

/// A function of two elements of one type.
pub(in crate::kernels) trait Function2: 'static {
    type X: Plain;
    type To: Plain;

    fn of<I: Isa>(x: Self::X, y: Self::X, params: Params) -> Self::To;

    /// The function of each pair of elements of two blocks.
    #[inline(always)]
    fn of_block<I: Isa, const N: usize>(x: &[Self::X; N], y: &[Self::X; N], params: Params) -> [Self::To; N] {
        let mut to = [Self::To::default(); N];
        for i in 0..N {
            to[i] = Self::of::<I>(x[i], y[i], params);
        }
        to
    }
}

/// A row that is read block by block.
struct Reader<T, const N: usize> {
    row: *const T,
    repeated: bool,
    /// The repeated element, or the end of the row.
    block: [T; N],
}

impl<T: Plain, const N: usize> Reader<T, N> {
    /// # Safety
    ///
    /// The first element can be read where it is repeated.
    #[inline(always)]
    unsafe fn new(row: *const T, inner: Inner) -> Self {
        let repeated = inner == Inner::Repeated;
        // SAFETY: as the caller promises.
        let element = if repeated { unsafe { row.read_unaligned() } } else { T::default() };
        Self { row, repeated, block: [element; N] }
    }

    /// The block that starts at a column, of which so many elements are within the row.
    ///
    /// # Safety
    ///
    /// Those elements can be read.
    #[inline(always)]
    unsafe fn at(&mut self, column: usize, count: usize) -> [T; N] {
        let from = self.row.wrapping_add(column);
        let from = match (self.repeated, count == N) {
            (true, _) => self.block.as_ptr(),
            (false, true) => from,
            (false, false) => {
                // SAFETY: as the caller promises; bytes may lie anywhere, and the block is no part of the row.
                unsafe {
                    from.cast::<u8>()
                        .copy_to_nonoverlapping(self.block.as_mut_ptr().cast(), count * size_of::<T>());
                }
                self.block.as_ptr()
            }
        };
        // SAFETY: a whole block can be read from there.
        unsafe { from.cast::<[T; N]>().read_unaligned() }
    }
}

/// Writes the block that starts at a column, of which so many elements are within the row.
///
/// # Safety
///
/// Those elements can be written.
#[inline(always)]
unsafe fn write<T: Plain, const N: usize>(row: *mut T, column: usize, count: usize, block: &[T; N]) {
    let to = row.wrapping_add(column);
    // SAFETY: as the caller promises; bytes may lie anywhere, and the block is no part of the row.
    unsafe {
        match count == N {
            true => to.cast::<[T; N]>().write_unaligned(*block),
            false => {
                block.as_ptr().cast::<u8>().copy_to_nonoverlapping(to.cast(), count * size_of::<T>());
            }
        }
    }
}

/// # Safety
///
/// As [`Kernel1`].
#[inline(always)]
unsafe fn map1<F: Function1, I: Isa, const N: usize>(extent: Extent, x: Source, to: Target, params: &Params) {
    for row in 0..extent.rows {
        let to = to.row::<F::To>(row);
        // SAFETY: the caller promises that every element of the tile can be read and written.
        unsafe {
            let mut x = Reader::<F::X, N>::new(x.row(row), Inner::Dense);
            for column in (0..extent.columns).step_by(N) {
                let count = N.min(extent.columns - column);
                let block = F::of_block::<I, N>(&x.at(column, count), *params);
                write(to, column, count, &block);
            }
        }
    }
}

/// # Safety
///
/// As [`Kernel2`].
#[inline(always)]
unsafe fn map2<F: Function2, I: Isa, const N: usize>(
    extent: Extent,
    x: (Source, Inner),
    y: (Source, Inner),
    to: Target,
    params: &Params,
) {
    for row in 0..extent.rows {
        let to = to.row::<F::To>(row);
        // SAFETY: the caller promises that every element of the tile can be read and written.
        unsafe {
            let mut x = Reader::<F::X, N>::new(x.0.row(row), x.1);
            let mut y = Reader::<F::X, N>::new(y.0.row(row), y.1);
            for column in (0..extent.columns).step_by(N) {
                let count = N.min(extent.columns - column);
                let block = F::of_block::<I, N>(&x.at(column, count), &y.at(column, count), *params);
                write(to, column, count, &block);
            }
        }
    }
}

/// The shells of one level. Those of two elements have one body for every way in which the operands run.
macro_rules! shells {
    ($($level:ident $Isa:ident $(: $features:literal)?;)*) => {
        $(mod $level {
            use super::*;

            $(#[cfg(target_arch = "x86_64")] #[target_feature(enable = $features)])?
            pub(super) unsafe fn kernel1<F: Function1, const N: usize>(
                extent: Extent,
                x: Source,
                to: Target,
                params: &Params,
            ) {
                // SAFETY: as the caller promises.
                unsafe { map1::<F, $Isa, N>(extent, x, to, params) }
            }

            $(#[cfg(target_arch = "x86_64")] #[target_feature(enable = $features)])?
            #[inline(never)]
            unsafe fn any<F: Function2, const N: usize>(
                extent: Extent,
                x: (Source, Inner),
                y: (Source, Inner),
                to: Target,
                params: &Params,
            ) {
                // SAFETY: as the caller promises.
                unsafe { map2::<F, $Isa, N>(extent, x, y, to, params) }
            }

            $(#[cfg(target_arch = "x86_64")] #[target_feature(enable = $features)])?
            pub(super) unsafe fn kernel2<F: Function2, const N: usize, const X: bool, const Y: bool>(
                extent: Extent,
                x: Source,
                y: Source,
                to: Target,
                params: &Params,
            ) {
                // SAFETY: as the caller promises.
                unsafe { any::<F, N>(extent, (x, inner(X)), (y, inner(Y)), to, params) }
            }
        })*
    };
}

#[cfg(target_arch = "x86_64")]
shells! {
    portable Portable;
    avx2 Avx2: "avx2,bmi1,bmi2,popcnt,fma,f16c";
    avx512 Avx512: "avx2,bmi1,bmi2,popcnt,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl";
}

// Levels are chosen among those that the machine runs; on other machines than x86-64 only the first is.
#[cfg(not(target_arch = "x86_64"))]
shells! {
    portable Portable;
}
#[cfg(not(target_arch = "x86_64"))]
use {portable as avx2, portable as avx512};

#[inline(always)]
fn inner(dense: bool) -> Inner {
    if dense { Inner::Dense } else { Inner::Repeated }
}

/// The kernels of a function of one element, computed in blocks of `N`.
pub(in crate::kernels) const fn kernels1<F: Function1, const N: usize>() -> ByLevel<Kernel1> {
    [portable::kernel1::<F, N>, avx2::kernel1::<F, N>, avx512::kernel1::<F, N>]
}

/// By how the first operand runs along a row, then the second.
pub(in crate::kernels) type ByInner<K> = [[K; 2]; 2];

/// The kernels of a function of two elements, computed in blocks of `N`.
pub(in crate::kernels) const fn kernels2<F: Function2, const N: usize>() -> ByLevel<ByInner<Kernel2>> {
    macro_rules! by_inner {
        ($level:ident) => {
            [
                [$level::kernel2::<F, N, false, false>, $level::kernel2::<F, N, false, true>],
                [$level::kernel2::<F, N, true, false>, $level::kernel2::<F, N, true, true>],
            ]
        };
    }
    [by_inner!(portable), by_inner!(avx2), by_inner!(avx512)]
}
