//! Turns a function of one element into a kernel, which runs it block by block along each row of a tile.
//!
//! A block is read, computed and written whole, whatever its position in the row; the end of a row is padded
//! to a block. So the result for an element depends on the element alone, and a target may have the address
//! of a source. The loop over a block has a fixed length and no branch, so the compiler vectorises it for the
//! level.

use std::hint::black_box;

use super::two::{AnyInner2, Kernel2};
use crate::kernels::function::{Function1, Function2};
use crate::kernels::fused::{self, Stage, Stages};
use crate::kernels::isa::{ByLevel, Isa, LEVELS, Portable, by_level, shells};
use crate::kernels::prefetch::{MemRange, PrefetchQueue};
use crate::kernels::simd::{BlockBuffer, Pod};
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
use crate::kernels::simd::{read_part, write_part};
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

/// True if a level has blocks of its own, in place of those of `N` elements.
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

/// Computes a function of one element for whole blocks, which follow each other in both operands.
///
/// # Safety
///
/// The blocks can be read and written, the machine runs the level, and the target is at the very address of
/// the source, with elements of the same size, or overlaps it nowhere.
type Blocks1 = unsafe fn(
    x: *const u8,
    to: *mut u8,
    blocks: usize,
    params: &Params,
    queue: &mut PrefetchQueue,
    range: &mut MemRange,
);

/// Computes a function of two elements for whole blocks. The distance between blocks of an operand
/// stands beside its address; blocks of the target are contiguous.
///
/// # Safety
///
/// As for [`Blocks1`].
type Blocks2 =
    unsafe fn(x: (*const u8, usize), y: (*const u8, usize), to: *mut u8, blocks: usize, params: &Params);

/// The sizes of a function that the code that goes along rows needs, so that all functions share that code.
#[derive(Clone, Copy)]
struct BlockShape {
    /// Bytes of an element of the sources.
    x_bytes: usize,
    /// Bytes of an element of the target.
    to_bytes: usize,
    block_len: usize,
    /// The function prefetches memory meanwhile.
    prefetches: bool,
}

impl BlockShape {
    const fn new<I: Isa, X: Pod, To: Pod, const N: usize>() -> Self {
        let (x_bytes, to_bytes) = (size_of::<X>(), size_of::<To>());
        let block_len = if has_own_blocks::<I>() { PORTABLE } else { N };
        assert!(block_len.is_power_of_two(), "blocks are counted by shifts");
        BlockBuffer::check(block_len * x_bytes);
        BlockBuffer::check(block_len * to_bytes);
        Self { x_bytes, to_bytes, block_len, prefetches: is_heavy::<I, N>() }
    }

    /// The whole blocks of a row, and the elements after them.
    #[inline(always)]
    fn blocks(&self, columns: usize) -> (usize, usize) {
        (columns >> self.block_len.trailing_zeros(), columns & (self.block_len - 1))
    }
}

/// True if functions with such blocks prefetch memory. Light functions would only grow by it.
const fn is_heavy<I: Isa, const N: usize>() -> bool {
    N == HEAVY && !has_own_blocks::<I>()
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

/// The index of the next block. Where vectors are short it is opaque: the compiler would unroll the loop, and
/// the code would be several times as long.
#[inline(always)]
fn next<I: Isa>(block: usize) -> usize {
    if const { has_own_blocks::<I>() } { black_box(block + 1) } else { block + 1 }
}

/// # Safety
///
/// As [`Blocks1`].
#[inline(always)]
unsafe fn map1<F: Function1, I: Isa, const N: usize>(
    x: *const u8,
    to: *mut u8,
    blocks: usize,
    params: &Params,
    queue: &mut PrefetchQueue,
    range: &mut MemRange,
) {
    let (x, to) = (x.cast::<[F::X; N]>(), to.cast::<[F::To; N]>());
    // In registers meanwhile.
    let mut current = const { is_heavy::<I, N>() }.then_some(*range);
    let mut block = 0;
    while block < blocks {
        // SAFETY: as the caller promises.
        unsafe {
            let of_block = F::of_block::<I, N>(&x.wrapping_add(block).read_unaligned(), *params);
            to.wrapping_add(block).write_unaligned(F::canonicalise::<I, N>(of_block));
        }
        if let Some(current) = &mut current {
            queue.prefetch_step(current);
        }
        block = next::<I>(block);
    }
    if let Some(current) = current {
        *range = current;
    }
}

/// # Safety
///
/// As [`Blocks2`].
#[inline(always)]
unsafe fn map2<F: Function2, I: Isa, const N: usize>(
    x: (*const u8, usize),
    y: (*const u8, usize),
    to: *mut u8,
    blocks: usize,
    params: &Params,
) {
    let to = to.cast::<[F::To; N]>();
    let at = |(at, step): (*const u8, usize), block: usize| at.wrapping_add(block * step).cast::<[F::X; N]>();
    let mut block = 0;
    while block < blocks {
        // SAFETY: as the caller promises.
        unsafe {
            let (x, y) = (at(x, block).read_unaligned(), at(y, block).read_unaligned());
            let of_block = F::of_block::<I, N>(&x, &y, *params);
            to.wrapping_add(block).write_unaligned(F::canonicalise::<I, N>(of_block));
        }
        block = next::<I>(block);
    }
}

/// An operand that is read block by block.
struct Reader<'a> {
    from: Source,
    inner: InnerStride,
    /// Bytes of an element.
    bytes: usize,
    /// The repeated element, or the end of a row.
    block: &'a mut BlockBuffer,
    block_len: usize,
}

impl Reader<'_> {
    /// Goes to a row; the first call is for the first row.
    ///
    /// # Safety
    ///
    /// The first element of the row can be read.
    #[inline(always)]
    unsafe fn begin(&mut self, row: usize) {
        if self.inner == InnerStride::Broadcast && (row == 0 || self.from.row_stride != 0) {
            // SAFETY: as the caller promises.
            unsafe { self.block.repeat(self.from.row(row), self.bytes, self.block_len) };
        }
    }

    /// The whole blocks of a row: the address of the first, and bytes from one to the next.
    #[inline(always)]
    fn blocks(&self, row: usize) -> (*const u8, usize) {
        match self.inner {
            InnerStride::Broadcast => (self.block.at(), 0),
            InnerStride::Contiguous => (self.from.row(row), self.block_len * self.bytes),
        }
    }

    /// The end of a row, as a block, from a column on.
    ///
    /// # Safety
    ///
    /// `count` elements can be read there.
    #[inline(always)]
    unsafe fn end(&mut self, row: usize, column: usize, count: usize) -> *const u8 {
        if self.inner == InnerStride::Contiguous {
            let from = self.from.row::<u8>(row).wrapping_add(column * self.bytes);
            // SAFETY: as the caller promises.
            unsafe { self.block.read(from, count * self.bytes, self.block_len * self.bytes) };
        }
        self.block.at()
    }
}

/// Goes along the rows of a tile.
///
/// # Safety
///
/// As [`Kernel1`]; the shape is that of the function at the level.
#[inline(always)]
unsafe fn along_rows1(
    extent: Extent,
    x: Source,
    to: Target,
    params: &Params,
    queue: &mut PrefetchQueue,
    of_blocks: Blocks1,
    shape: &BlockShape,
) {
    let extent = flattened(extent, [(x.row_stride, shape.x_bytes), (to.row_stride, shape.to_bytes)]);
    let (blocks, count) = shape.blocks(extent.columns);
    let column = extent.columns - count;
    let (mut block, mut result) = (BlockBuffer::new(), BlockBuffer::new());
    let mut x = Reader {
        from: x,
        inner: InnerStride::Contiguous,
        bytes: shape.x_bytes,
        block: &mut block,
        block_len: shape.block_len,
    };
    let mut range = if shape.prefetches { queue.current() } else { MemRange::NONE };
    for row in 0..extent.rows {
        let to = to.row::<u8>(row);
        // SAFETY: the caller promises that every element of the tile can be read and written.
        unsafe {
            if blocks > 0 {
                of_blocks(x.blocks(row).0, to, blocks, params, queue, &mut range);
            }
            if count > 0 {
                let end = x.end(row, column, count);
                of_blocks(end, result.at_mut(), 1, params, queue, &mut range);
                result.write(to.wrapping_add(column * shape.to_bytes), count * shape.to_bytes);
            }
        }
    }
    if shape.prefetches {
        queue.put_back(range);
    }
}

/// Goes along the rows of a tile.
///
/// # Safety
///
/// As [`along_rows1`].
#[inline(always)]
unsafe fn along_rows2(
    extent: Extent,
    x: (Source, InnerStride),
    y: (Source, InnerStride),
    to: Target,
    params: &Params,
    of_blocks: Blocks2,
    shape: &BlockShape,
) {
    if extent.columns == 0 {
        return;
    }
    let size = |inner| if inner == InnerStride::Contiguous { shape.x_bytes } else { 0 };
    let operands =
        [(x.0.row_stride, size(x.1)), (y.0.row_stride, size(y.1)), (to.row_stride, shape.to_bytes)];
    let extent = flattened(extent, operands);
    let (blocks, count) = shape.blocks(extent.columns);
    let column = extent.columns - count;
    let mut buffers = [const { BlockBuffer::new() }; 2];
    let mut result = BlockBuffer::new();
    let [x_block, y_block] = &mut buffers;
    let (bytes, block_len) = (shape.x_bytes, shape.block_len);
    let mut x = Reader { from: x.0, inner: x.1, bytes, block: x_block, block_len };
    let mut y = Reader { from: y.0, inner: y.1, bytes, block: y_block, block_len };
    for row in 0..extent.rows {
        let to = to.row::<u8>(row);
        // SAFETY: the caller promises that every element of the tile can be read and written.
        unsafe {
            x.begin(row);
            y.begin(row);
            if blocks > 0 {
                of_blocks(x.blocks(row), y.blocks(row), to, blocks, params);
            }
            if count > 0 {
                let (x, y) = (x.end(row, column, count), y.end(row, column, count));
                of_blocks((x, 0), (y, 0), result.at_mut(), 1, params);
                result.write(to.wrapping_add(column * shape.to_bytes), count * shape.to_bytes);
            }
        }
    }
}

/// A value aligned to a cache line.
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
#[repr(align(64))]
struct Aligned<B>(B);

/// An operand that is read block by block, whose end of a row is read under a mask.
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
struct BlockReader<T, const N: usize> {
    from: Source,
    inner: InnerStride,
    row: *const T,
    /// A block of the repeated element. It is aligned, because unaligned vectors on the stack may lie across
    /// two pages (decision: aligned-block).
    block: Aligned<[T; N]>,
}

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
impl<T: Pod, const N: usize> BlockReader<T, N> {
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

/// Computes a function of one element at level Avx512, whose masks read and write the ends of rows. Each
/// function has a copy of the code that goes along rows, because a call takes as long as a whole short row
/// (decision: shared-rows).
///
/// # Safety
///
/// As [`Kernel1`].
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
#[inline(always)]
unsafe fn masked1<F: Function1, I: Isa, const N: usize>(
    extent: Extent,
    x: Source,
    to: Target,
    params: &Params,
    queue: &mut PrefetchQueue,
) {
    let extent = flattened(extent, [(x.row_stride, size_of::<F::X>()), (to.row_stride, size_of::<F::To>())]);
    let mut x = BlockReader::<F::X, N>::new(x, InnerStride::Contiguous);
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

/// As [`masked1`], for a function of two elements.
///
/// # Safety
///
/// As [`Kernel1`].
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
#[inline(always)]
unsafe fn masked2<F: Function2, I: Isa, const N: usize>(
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
    let mut x = BlockReader::<F::X, N>::new(x.0, x.1);
    let mut y = BlockReader::<F::X, N>::new(y.0, y.1);
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

// Below level Avx512, all functions share the code that goes along rows (decision: shared-rows).
shells! {
    I:
    #[allow(dead_code, reason = "level Avx512 does without")]
    fn blocks1[F: Function1, const N: usize](
        x: *const u8,
        to: *mut u8,
        blocks: usize,
        params: &Params,
        queue: &mut PrefetchQueue,
        range: &mut MemRange,
    ) {
        match const { has_own_blocks::<I>() } {
            true => map1::<F, Portable, PORTABLE>(x, to, blocks, params, queue, range),
            false => map1::<F, I, N>(x, to, blocks, params, queue, range),
        }
    }

    #[allow(dead_code, reason = "level Avx512 does without")]
    fn blocks2[F: Function2, const N: usize](
        x: (*const u8, usize),
        y: (*const u8, usize),
        to: *mut u8,
        blocks: usize,
        params: &Params,
    ) {
        match const { has_own_blocks::<I>() } {
            true => map2::<F, Portable, PORTABLE>(x, y, to, blocks, params),
            false => map2::<F, I, N>(x, y, to, blocks, params),
        }
    }

    #[allow(dead_code, reason = "level Avx512 does without")]
    #[inline(never)]
    fn rows1[](
        extent: Extent,
        x: Source,
        to: Target,
        params: &Params,
        queue: &mut PrefetchQueue,
        of_blocks: Blocks1,
        shape: &BlockShape,
    ) {
        along_rows1(extent, x, to, params, queue, of_blocks, shape)
    }

    #[allow(dead_code, reason = "level Avx512 does without")]
    #[inline(never)]
    fn rows2[](
        extent: Extent,
        x: (Source, InnerStride),
        y: (Source, InnerStride),
        to: Target,
        params: &Params,
        of_blocks: Blocks2,
        shape: &BlockShape,
    ) {
        along_rows2(extent, x, y, to, params, of_blocks, shape)
    }

    fn kernel1[F: Function1, const N: usize](
        extent: Extent,
        x: Source,
        to: Target,
        params: &Params,
        queue: &mut PrefetchQueue,
    ) {
        rows1(
            extent, x, to, params, queue, blocks1::<F, N>,
            const { &BlockShape::new::<I, F::X, F::To, N>() },
        )
    } or {
        masked1::<F, I, N>(extent, x, to, params, queue)
    }

    fn kernel2[F: Function2, const N: usize](
        extent: Extent,
        x: (Source, InnerStride),
        y: (Source, InnerStride),
        to: Target,
        params: &Params,
    ) {
        rows2(
            extent, x, y, to, params, blocks2::<F, N>,
            const { &BlockShape::new::<I, F::X, F::To, N>() },
        )
    } or {
        masked2::<F, I, N>(extent, x, y, to, params)
    }
}

/// The implementations of a function.
#[derive(Clone, Copy)]
pub(crate) struct Impls<K> {
    /// Over a tile.
    pub(crate) kernel: K,
    /// As a stage of a fused kernel, if it can be one.
    pub(crate) stage: Option<Stage>,
    /// True if the stage may give a NaN other than the canonical one, which the kernel gives.
    pub(crate) produces_noncanonical_nan: bool,
}

/// The implementations of a function of one element.
pub(in crate::kernels) type UnaryTable = ByLevel<Impls<Kernel1>>;

/// The implementations of a function of two elements, for all inner strides.
pub(in crate::kernels) type BinaryTable = ByLevel<Impls<AnyInner2>>;

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

impl Impls<AnyInner2> {
    /// The implementations for operands of these inner strides, with elements of so many bytes of sources and
    /// of the target.
    pub(in crate::kernels) fn at(self, x: InnerStride, y: InnerStride, bytes: [u8; 2]) -> Impls<Kernel2> {
        Impls {
            kernel: Kernel2::new(self.kernel, [x, y], bytes),
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
    let kernels: ByLevel<AnyInner2> = by_level!(kernel2::<F, N>);
    table(kernels, stages, F::PRODUCES_NONCANONICAL_NAN)
}
