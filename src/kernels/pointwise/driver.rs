//! Turns a function of one element into a kernel, which runs it block by block along each row of a tile.
//!
//! A block is read, computed and written whole, whatever its position in the row; the end of a row is padded
//! to a block. So the result for an element depends on the element alone, and a target may have the address
//! of a source. The loop over a block has a fixed length and no branch, so the compiler vectorises it for the
//! level.

use crate::kernels::function::{Function1, Function2};
use crate::kernels::fused::{self, Stage, Stages};
use crate::kernels::isa::{ByLevel, Isa, LEVELS, Portable, by_level, shells};
use crate::kernels::prefetch::PrefetchQueue;
use crate::kernels::simd::{Pod, read_part, write_part};
use crate::kernels::{BLOCK, Extent, InnerStride, Source, Target};
use crate::types::function::Params;
use crate::types::function_row::CostClass;
use crate::types::kind::Level;

/// Elements of a block of a heavy function: few, so that padding a short row costs little. Heavy functions of
/// one element prefetch memory meanwhile.
const HEAVY: usize = 16;

/// Elements of a block at the portable level, whose vectors are short: the code for longer blocks is longer
/// (decision: portable-block).
const PORTABLE: usize = 16;

/// Whether a level has blocks of its own, in place of those of `N` elements.
const fn has_own_blocks<I: Isa>() -> bool {
    matches!(I::LEVEL, Level::Portable)
}

/// Elements of a block of a function, by its cost on a type; `None` does not compile.
pub(super) const fn block_len(cost: Option<CostClass>) -> usize {
    match cost {
        Some(CostClass::Light | CostClass::Medium) => BLOCK,
        Some(CostClass::Heavy) => HEAVY,
        None => {
            panic!("a function has a kernel for a type, but its row in types/function.rs has no cost there")
        }
    }
}

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
    let mut range = const { N == HEAVY && !has_own_blocks::<I>() }.then(|| queue.current());
    for row in 0..extent.rows {
        let to = to.row::<F::To>(row);
        // SAFETY: the caller promises that every element of the tile can be read and written.
        unsafe {
            x.begin(row);
            for column in (0..extent.columns).step_by(N) {
                let count = N.min(extent.columns - column);
                let block = F::of_block::<I, N>(&x.at::<I>(column, count), *params);
                write_part::<I, _, N>(to, column, count, F::canonicalise::<I, N>(block));
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
                write_part::<I, _, N>(to, column, count, F::canonicalise::<I, N>(block));
            }
        }
    }
}

// Functions of two elements have one body for each combination of inner strides.
shells! {
    I:
    fn kernel1[F: Function1, const N: usize](
        extent: Extent,
        x: Source,
        to: Target,
        params: &Params,
        queue: &mut PrefetchQueue,
    ) {
        match const { has_own_blocks::<I>() } {
            true => map1::<F, Portable, PORTABLE>(extent, x, to, params, queue),
            false => map1::<F, I, N>(extent, x, to, params, queue),
        }
    }

    #[inline(never)]
    fn any[F: Function2, const N: usize](
        extent: Extent,
        x: (Source, InnerStride),
        y: (Source, InnerStride),
        to: Target,
        params: &Params,
    ) {
        match const { has_own_blocks::<I>() } {
            true => map2::<F, Portable, PORTABLE>(extent, x, y, to, params),
            false => map2::<F, I, N>(extent, x, y, to, params),
        }
    }

    fn kernel2[F: Function2, const N: usize, const X: bool, const Y: bool](
        extent: Extent,
        x: Source,
        y: Source,
        to: Target,
        params: &Params,
    ) {
        any::<F, N>(extent, (x, inner(X)), (y, inner(Y)), to, params)
    }
}

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
    let first = Impls { kernel: kernels[0], stage: stages[0], produces_noncanonical_nan };
    let mut table = [first; LEVELS.len()];
    let mut row = 1;
    while row < table.len() {
        table[row] = Impls { kernel: kernels[row], stage: stages[row], produces_noncanonical_nan };
        row += 1;
    }
    table
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
    let kernels: ByLevel<Kernel1> = by_level!(kernel1::<F, N>);
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
    table(by_level!(by_inner!), stages, F::PRODUCES_NONCANONICAL_NAN)
}
