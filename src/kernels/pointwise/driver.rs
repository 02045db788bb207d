//! Turns a function of one element into a kernel, which runs it block by block along each row of a tile.
//!
//! A block is read, computed and written whole, whatever its position in the row; the end of a row is padded
//! to a block. So the result for an element depends on the element alone, and a target may have the address
//! of a source. The loop over a block has a fixed length and no branch, so the compiler vectorises it for the
//! level.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    _mm512_fixupimm_ps, _mm512_loadu_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_storeu_ps,
};
use std::mem::MaybeUninit;

use super::canonical;
use crate::kernels::fused::{self, Stage, Stages};
use crate::kernels::prefetch::PrefetchQueue;
use crate::kernels::simd::{self, mask_of_first};
use crate::kernels::{ByLevel, Extent, InnerStride, Source, Target};
pub(crate) use crate::types::function::Params;
use crate::types::kind::Level;

/// Elements of a block of a light function of f32.
pub(super) const LIGHT: usize = 64;

/// Elements of a block of a heavy function: few, so that padding a short row costs little. Heavy functions of
/// one element prefetch memory meanwhile.
pub(super) const HEAVY: usize = 16;

/// Computes a function of one element over a tile, and may prefetch memory meanwhile. The source is
/// contiguous along a row.
///
/// # Safety
///
/// Every element of the tile can be read from the sources and written to the target, the machine runs the
/// kernel's level, and the target is at the very address and row stride of a source of the same element size
/// or overlaps it nowhere.
pub(crate) type Kernel1 =
    unsafe fn(extent: Extent, x: Source, to: Target, params: &Params, queue: &mut PrefetchQueue);

/// Computes a function of two elements over a tile.
///
/// # Safety
///
/// As for [`Kernel1`].
pub(crate) type Kernel2 = unsafe fn(extent: Extent, x: Source, y: Source, to: Target, params: &Params);

/// A level, as a type for which bodies are compiled.
pub(in crate::kernels) trait Isa: 'static {
    const LEVEL: Level;

    /// `x · y + z`, rounded once if the level has the instruction, else twice.
    fn mul_add(x: f32, y: f32, z: f32) -> f32;

    /// As [`mul_add`](Self::mul_add).
    fn mul_add_64(x: f64, y: f64, z: f64) -> f64;

    /// The numbers, with any NaN replaced by the canonical NaN.
    #[inline(always)]
    fn canonical<const N: usize>(block: [f32; N]) -> [f32; N] {
        block.map(canonical)
    }
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
    ($($Isa:ident { $($more:item)* })*) => {
        $(impl Isa for $Isa {
            const LEVEL: Level = Level::$Isa;

            $($more)*

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

fused! {
    Avx2 {}
    Avx512 {
        #[cfg(target_arch = "x86_64")]
        #[inline(always)]
        fn canonical<const N: usize>(mut block: [f32; N]) -> [f32; N] {
            /// By class of a number, starting at quiet and signalling NaN: 0 takes the other operand, 1 the
            /// number itself.
            const KINDS: i32 = 0x1111_1100;
            let (parts, rest) = block.as_chunks_mut::<16>();
            for part in parts {
                // SAFETY: only kernels of the level call this; a part has the size of a vector.
                unsafe {
                    let (x, nan) = (_mm512_loadu_ps(part.as_ptr()), _mm512_set1_ps(super::NAN));
                    let x = _mm512_fixupimm_ps::<0>(nan, x, _mm512_set1_epi32(KINDS));
                    _mm512_storeu_ps(part.as_mut_ptr(), x);
                }
            }
            rest.iter_mut().for_each(#[inline(always)] |x| *x = canonical(*x));
            block
        }
    }
}

/// The type of an element in memory; the default value pads the end of a row.
pub(in crate::kernels) trait Pod: Copy + Default + 'static {}

impl<T: Copy + Default + 'static> Pod for T {}

/// A function of one element.
pub(in crate::kernels) trait Function1: 'static {
    type X: Pod;
    type To: Pod;

    fn of<I: Isa>(x: Self::X, params: Params) -> Self::To;

    /// The function of each element of a block.
    #[inline(always)]
    fn of_block<I: Isa, const N: usize>(x: &[Self::X; N], params: Params) -> [Self::To; N] {
        map_scalar::<Self, I, N>(x, params)
    }

    /// Whether a result may be a NaN other than the canonical one, so that it must be canonicalised.
    const PRODUCES_NONCANONICAL_NAN: bool = false;

    /// A block of results, with any NaN replaced by the canonical NaN.
    #[inline(always)]
    fn canonicalise<I: Isa, const N: usize>(block: [Self::To; N]) -> [Self::To; N] {
        block
    }
}

/// Applies the function to each element; the compiler vectorises the loop.
#[inline(always)]
pub(in crate::kernels) fn map_scalar<F: Function1 + ?Sized, I: Isa, const N: usize>(
    x: &[F::X; N],
    params: Params,
) -> [F::To; N] {
    let mut to = [F::To::default(); N];
    for i in 0..N {
        to[i] = F::of::<I>(x[i], params);
    }
    to
}

/// A function of two elements of one type.
pub(in crate::kernels) trait Function2: 'static {
    type X: Pod;
    type To: Pod;

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

    /// As [`Function1::PRODUCES_NONCANONICAL_NAN`].
    const PRODUCES_NONCANONICAL_NAN: bool = false;

    /// As [`Function1::canonicalise`].
    #[inline(always)]
    fn canonicalise<I: Isa, const N: usize>(block: [Self::To; N]) -> [Self::To; N] {
        block
    }
}

/// A value aligned to a cache line.
#[repr(align(64))]
struct Aligned<B>(B);

/// An operand that is read block by block.
struct Reader<T, const N: usize> {
    from: Source,
    inner: InnerStride,
    row: *const T,
    /// A block of the repeated element. It is aligned, because unaligned vectors on the stack may lie across
    /// two pages (decision: aligned-block).
    block: Aligned<[T; N]>,
}

impl<T: Pod, const N: usize> Reader<T, N> {
    #[inline(always)]
    fn new(from: Source, inner: InnerStride) -> Self {
        Self { from, inner, row: from.at.cast(), block: Aligned([T::default(); N]) }
    }

    /// Goes to a row; the first call is for the first row.
    ///
    /// # Safety
    ///
    /// The first element of the row can be read.
    #[inline(always)]
    unsafe fn begin(&mut self, row: usize) {
        self.row = self.from.row(row);
        if self.inner == InnerStride::Broadcast && (row == 0 || self.from.row_stride != 0) {
            // SAFETY: as the caller promises.
            self.block = Aligned([unsafe { self.row.read_unaligned() }; N]);
        }
    }

    /// The block that starts at a column, with `count` elements within the row.
    ///
    /// # Safety
    ///
    /// Those elements can be read.
    #[inline(always)]
    unsafe fn at<I: Isa>(&self, column: usize, count: usize) -> [T; N] {
        let from = match self.inner {
            InnerStride::Broadcast => self.block.0.as_ptr(),
            InnerStride::Contiguous => self.row.wrapping_add(column),
        };
        // SAFETY: as the caller promises; the block of a repeated element is whole.
        unsafe {
            match count == N || self.inner == InnerStride::Broadcast {
                true => from.cast::<[T; N]>().read_unaligned(),
                false => read_part::<I, T, N>(from, count),
            }
        }
    }
}

/// Writes the block that starts at a column, with `count` elements within the row.
///
/// # Safety
///
/// Those elements can be written.
#[inline(always)]
pub(in crate::kernels) unsafe fn write<I: Isa, T: Pod, const N: usize>(
    row: *mut T,
    column: usize,
    count: usize,
    block: [T; N],
) {
    let to = row.wrapping_add(column);
    if I::LEVEL == Level::Avx512 && count != N {
        for (at, mask) in masks::<T, N>(count) {
            // SAFETY: as the caller promises, and the level is Avx512; the block is as large as the masks.
            unsafe {
                simd::store_bytes(to.cast::<u8>().wrapping_add(at), mask, block.as_ptr().cast::<u8>().add(at))
            };
        }
        return;
    }
    // Copying a partial block only leaves whole blocks in registers.
    let mut part = MaybeUninit::<[T; N]>::uninit();
    let whole = if count == N { to.cast() } else { part.as_mut_ptr() };
    // SAFETY: as the caller promises; the copy is not part of the row.
    unsafe {
        whole.write_unaligned(block);
        if count != N {
            copy_short(part.as_ptr().cast(), to.cast(), count * size_of::<T>());
        }
    }
}

/// The first elements of a block; the others have the default value.
///
/// # Safety
///
/// Those elements can be read.
#[inline(always)]
pub(in crate::kernels) unsafe fn read_part<I: Isa, T: Pod, const N: usize>(
    from: *const T,
    count: usize,
) -> [T; N] {
    let mut part = [T::default(); N];
    if I::LEVEL == Level::Avx512 {
        for (at, mask) in masks::<T, N>(count) {
            // SAFETY: as the caller promises, and the level is Avx512; the block is as large as the masks.
            unsafe {
                simd::load_bytes(
                    part.as_mut_ptr().cast::<u8>().add(at),
                    from.cast::<u8>().wrapping_add(at),
                    mask,
                )
            };
        }
    } else {
        // SAFETY: as the caller promises; the copy is not part of the row.
        unsafe { copy_short(from.cast(), part.as_mut_ptr().cast(), count * size_of::<T>()) };
    }
    part
}

/// The vectors of a block by offset, each with the mask of the bytes of the first `count` elements.
#[inline(always)]
fn masks<T, const N: usize>(count: usize) -> impl Iterator<Item = (usize, u64)> {
    const { assert!((N * size_of::<T>()).is_multiple_of(64), "a block is a number of vectors") };
    let bytes = count * size_of::<T>();
    (0..N * size_of::<T>()).step_by(64).map(
        #[inline(always)]
        move |at| (at, mask_of_first(bytes.saturating_sub(at))),
    )
}

/// Copies less than a block, mostly without a call of `memcpy`, which takes as long as a whole short row. Not
/// inlined, because it would be most of every kernel below level Avx512, which uses masks instead.
///
/// # Safety
///
/// `count` bytes can be read and written, and do not overlap.
#[inline(never)]
unsafe fn copy_short(from: *const u8, to: *mut u8, count: usize) {
    /// Copies two units, which overlap or meet.
    ///
    /// # Safety
    ///
    /// As for [`copy_short`], from one unit to two of them.
    #[inline(always)]
    unsafe fn ends<U: Copy>(from: *const u8, to: *mut u8, count: usize) {
        let last = count - size_of::<U>();
        // SAFETY: as the caller promises.
        unsafe {
            let (head, tail) =
                (from.cast::<U>().read_unaligned(), from.add(last).cast::<U>().read_unaligned());
            to.cast::<U>().write_unaligned(head);
            to.add(last).cast::<U>().write_unaligned(tail);
        }
    }
    // SAFETY: as the caller promises.
    unsafe {
        match count {
            0 => {}
            1 => to.write(from.read()),
            2..4 => ends::<u16>(from, to, count),
            4..8 => ends::<u32>(from, to, count),
            8..16 => ends::<u64>(from, to, count),
            16..32 => ends::<[u64; 2]>(from, to, count),
            32..64 => ends::<[u64; 4]>(from, to, count),
            64..128 => ends::<[u64; 8]>(from, to, count),
            _ => from.copy_to_nonoverlapping(to, count),
        }
    }
}

/// Collapses a tile whose rows follow each other in all operands into one row. Each operand is given by its
/// row stride and the bytes of an element, 0 if it is repeated.
#[inline(always)]
fn flattened<const K: usize>(extent: Extent, operands: [(isize, usize); K]) -> Extent {
    match operands.iter().all(|&(row_stride, size)| row_stride == (extent.columns * size) as isize) {
        true => Extent { rows: 1, columns: extent.rows * extent.columns },
        false => extent,
    }
}

/// # Safety
///
/// As [`Kernel1`].
#[inline(always)]
unsafe fn map1<F: Function1, I: Isa, const N: usize>(
    extent: Extent,
    x: Source,
    to: Target,
    params: &Params,
    queue: &mut PrefetchQueue,
) {
    let extent = flattened(extent, [(x.row_stride, size_of::<F::X>()), (to.row_stride, size_of::<F::To>())]);
    let mut x = Reader::<F::X, N>::new(x, InnerStride::Contiguous);
    // Light functions would only grow by it.
    let mut range = const { N == HEAVY }.then(|| queue.current());
    for row in 0..extent.rows {
        let to = to.row::<F::To>(row);
        // SAFETY: the caller promises that every element of the tile can be read and written.
        unsafe {
            x.begin(row);
            for column in (0..extent.columns).step_by(N) {
                let count = N.min(extent.columns - column);
                let block = F::of_block::<I, N>(&x.at::<I>(column, count), *params);
                write::<I, _, N>(to, column, count, F::canonicalise::<I, N>(block));
                if let Some(range) = &mut range {
                    queue.prefetch_step(range);
                }
            }
        }
    }
    if let Some(left) = range {
        queue.put_back(left);
    }
}

/// # Safety
///
/// As [`Kernel2`].
#[inline(always)]
unsafe fn map2<F: Function2, I: Isa, const N: usize>(
    extent: Extent,
    x: (Source, InnerStride),
    y: (Source, InnerStride),
    to: Target,
    params: &Params,
) {
    if extent.columns == 0 {
        return;
    }
    let size = |inner| if inner == InnerStride::Contiguous { size_of::<F::X>() } else { 0 };
    let operands =
        [(x.0.row_stride, size(x.1)), (y.0.row_stride, size(y.1)), (to.row_stride, size_of::<F::To>())];
    let extent = flattened(extent, operands);
    let mut x = Reader::<F::X, N>::new(x.0, x.1);
    let mut y = Reader::<F::X, N>::new(y.0, y.1);
    for row in 0..extent.rows {
        let to = to.row::<F::To>(row);
        // SAFETY: the caller promises that every element of the tile can be read and written.
        unsafe {
            x.begin(row);
            y.begin(row);
            for column in (0..extent.columns).step_by(N) {
                let count = N.min(extent.columns - column);
                let block =
                    F::of_block::<I, N>(&x.at::<I>(column, count), &y.at::<I>(column, count), *params);
                write::<I, _, N>(to, column, count, F::canonicalise::<I, N>(block));
            }
        }
    }
}

/// The shells of one level. Functions of two elements have one body for each combination of inner strides.
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
                queue: &mut PrefetchQueue,
            ) {
                // SAFETY: as the caller promises.
                unsafe { map1::<F, $Isa, N>(extent, x, to, params, queue) }
            }

            $(#[cfg(target_arch = "x86_64")] #[target_feature(enable = $features)])?
            #[inline(never)]
            unsafe fn any<F: Function2, const N: usize>(
                extent: Extent,
                x: (Source, InnerStride),
                y: (Source, InnerStride),
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

// Only levels that the machine runs are used; machines other than x86-64 have the first alone.
#[cfg(not(target_arch = "x86_64"))]
shells! {
    portable Portable;
}
#[cfg(not(target_arch = "x86_64"))]
use {portable as avx2, portable as avx512};

#[inline(always)]
fn inner(dense: bool) -> InnerStride {
    if dense { InnerStride::Contiguous } else { InnerStride::Broadcast }
}

/// The implementations of a function.
#[derive(Clone, Copy)]
pub(crate) struct Impls<K> {
    /// Over a tile.
    pub(crate) kernel: K,
    /// As a stage of a fused kernel, if it can be one.
    pub(crate) stage: Option<Stage>,
    /// Whether the stage may give a NaN other than the canonical one, which the kernel gives.
    pub(crate) produces_noncanonical_nan: bool,
}

/// The implementations of a function of one element.
pub(in crate::kernels) type UnaryTable = ByLevel<Impls<Kernel1>>;

/// The implementations of a function of two elements.
pub(in crate::kernels) type BinaryTable = ByLevel<Impls<ByInner<Kernel2>>>;

const fn table<K: Copy>(
    kernels: ByLevel<K>,
    stages: Stages,
    produces_noncanonical_nan: bool,
) -> ByLevel<Impls<K>> {
    let [portable, avx2, avx512] = kernels;
    let [by_portable, by_avx2, by_avx512] = stages;
    [
        Impls { kernel: portable, stage: by_portable, produces_noncanonical_nan },
        Impls { kernel: avx2, stage: by_avx2, produces_noncanonical_nan },
        Impls { kernel: avx512, stage: by_avx512, produces_noncanonical_nan },
    ]
}

/// The table of a function of one element whose result is a number, computed in blocks of `N`.
pub(in crate::kernels) const fn numbers1<F: Function1, const N: usize>() -> UnaryTable {
    unary_table::<F, N>(fused::map1::<F, N>())
}

/// The table of a predicate of one element.
pub(in crate::kernels) const fn predicates1<F: Function1<To = u8>, const N: usize>() -> UnaryTable {
    unary_table::<F, N>(fused::predicate1::<F, N>())
}

/// The table of a function of one element with these stages.
pub(in crate::kernels) const fn unary_table<F: Function1, const N: usize>(stages: Stages) -> UnaryTable {
    let kernels: ByLevel<Kernel1> =
        [portable::kernel1::<F, N>, avx2::kernel1::<F, N>, avx512::kernel1::<F, N>];
    table(kernels, stages, F::PRODUCES_NONCANONICAL_NAN)
}

/// By the inner stride of the first operand, then of the second.
pub(in crate::kernels) type ByInner<K> = [[K; 2]; 2];

impl Impls<ByInner<Kernel2>> {
    /// The implementations for operands of these inner strides.
    pub(in crate::kernels) fn at(self, x: InnerStride, y: InnerStride) -> Impls<Kernel2> {
        Impls {
            kernel: self.kernel[x as usize][y as usize],
            stage: self.stage,
            produces_noncanonical_nan: self.produces_noncanonical_nan,
        }
    }
}

/// The table of a function of two elements whose result is a number, computed in blocks of `N`.
pub(in crate::kernels) const fn numbers2<F: Function2, const N: usize>() -> BinaryTable {
    binary_table::<F, N>(fused::map2::<F, N>())
}

/// The table of a predicate of two elements.
pub(in crate::kernels) const fn predicates2<F: Function2<To = u8>, const N: usize>() -> BinaryTable {
    binary_table::<F, N>(fused::predicate2::<F, N>())
}

/// The table of a function of two elements with these stages.
pub(in crate::kernels) const fn binary_table<F: Function2, const N: usize>(stages: Stages) -> BinaryTable {
    macro_rules! by_inner {
        ($level:ident) => {
            [
                [$level::kernel2::<F, N, false, false>, $level::kernel2::<F, N, false, true>],
                [$level::kernel2::<F, N, true, false>, $level::kernel2::<F, N, true, true>],
            ]
        };
    }
    table([by_inner!(portable), by_inner!(avx2), by_inner!(avx512)], stages, F::PRODUCES_NONCANONICAL_NAN)
}
