//! Kernels: leaves that know raw pointers and strides, and no graph.
//!
//! A kernel works on a 2-D tile. The row stride of an operand is any number of bytes; along a row its
//! elements are contiguous, or one element is repeated. The caller expresses all broadcasting and layouts in
//! these strides; other inner strides go through [`pack`]. Operands may be unaligned. An output may have the
//! address and row stride of an input, and overlaps no other.
//!
//! Kernels that move elements are chosen by element width, not by type, from tables that look-up, tests and
//! benches share: one entry for each level and [`Width`].
#![allow(unsafe_code, reason = "kernels work on raw memory")]

pub(crate) mod attention;
pub(crate) mod by_width;
pub(crate) mod caches;
pub(crate) mod floats;
mod function;
#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    allow(dead_code, unused_imports, reason = "other machines have level Portable alone")
)]
pub(crate) mod fused;
pub(crate) mod gemm;
mod isa;
pub(crate) mod lookup;
pub(crate) mod mask_scan;
mod math;
pub(crate) mod pack;
pub(crate) mod peak;
pub(crate) mod pointwise;
pub(crate) mod prefetch;
pub(crate) mod rows;
pub(crate) mod select;
pub(crate) mod simd;
#[cfg(test)]
mod tests;
pub(crate) mod top_k;
pub(crate) mod transpose;
pub(crate) mod unpack;
pub(crate) mod vector;
pub(crate) mod wide;

/// Rows of a tile, and elements of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

impl Extent {
    pub(crate) fn transposed(self) -> Self {
        Self { rows: self.columns, columns: self.rows }
    }
}

/// An operand that a kernel reads: address of the first element, and row stride in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source {
    pub(crate) at: *const u8,
    pub(crate) row_stride: isize,
}

/// An operand that a kernel writes: address of the first element, and row stride in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) at: *mut u8,
    pub(crate) row_stride: isize,
}

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// Elements of a block: as many as a mask of 64 bits has bits, and a vector of 512 bits has conditions.
pub(crate) const BLOCK: usize = 64;

/// Prefetches a range of bytes into the first-level cache. The bytes are not read, and any address is fine.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn prefetch_l1(at: *const u8, bytes: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    for line in (0..bytes).step_by(LINE) {
        // SAFETY: a prefetch may be of any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(line).cast()) };
    }
}

/// Prefetches a range of bytes into the second-level cache, as [`prefetch_l1`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn prefetch_l2(at: *const u8, bytes: usize) {
    use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
    for line in (0..bytes).step_by(LINE) {
        // SAFETY: a prefetch may be of any address.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.wrapping_add(line).cast()) };
    }
}

/// Other machines do not prefetch.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn prefetch_l2(_: *const u8, _: usize) {}

/// Other machines do not prefetch.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn prefetch_l1(_: *const u8, _: usize) {}

/// True if an address is that of a cache line.
#[inline(always)]
fn is_line<U>(at: *const U) -> bool {
    at.addr().is_multiple_of(LINE)
}

/// Number of elements before the first cache line of a row, if it is worth peeling them: non-temporal stores
/// write whole lines, and a temporal store that touches two lines takes twice as long.
#[inline(always)]
fn peel<U>(row: *const U, width: usize, columns: usize) -> Option<usize> {
    let bytes = row.addr().wrapping_neg() % LINE;
    (bytes.is_multiple_of(width) && columns >= 128).then_some(bytes / width)
}

/// Prefetches the line that the end of a row shares with what follows. All other lines use non-temporal
/// stores; the partial last line must be read first, and without this prefetch it stalls the store buffer
/// (decision: last-line-of-row).
#[inline(always)]
fn prefetch_tail_line<U>(end: *const U) {
    // Not for a whole line: a line that is stored non-temporally should not be in the caches.
    if !is_line(end) {
        prefetch_l1(end.cast(), 1);
    }
}

impl Source {
    /// Address of a row's first element.
    fn row<U>(self, row: usize) -> *const U {
        self.at.wrapping_offset(self.row_stride * row as isize).cast()
    }

    /// The operand from a later row on.
    pub(crate) fn at_row(self, row: usize) -> Self {
        Self { at: self.row(row), ..self }
    }

    /// The condition of a row.
    ///
    /// # Safety
    ///
    /// The first byte of the row can be read.
    #[inline(always)]
    pub(crate) unsafe fn is_true(self, row: usize) -> bool {
        // SAFETY: as the caller promises.
        unsafe { *self.row::<u8>(row) != 0 }
    }
}

impl Target {
    /// Address of a row's first element.
    fn row<U>(self, row: usize) -> *mut U {
        self.at.wrapping_offset(self.row_stride * row as isize).cast()
    }

    /// The operand from a later row on.
    pub(crate) fn at_row(self, row: usize) -> Self {
        Self { at: self.row(row), ..self }
    }

    /// The operand, to be read.
    pub(crate) fn as_source(self) -> Source {
        Source { at: self.at, row_stride: self.row_stride }
    }
}

/// Stride of an operand along a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InnerStride {
    /// 0: one element is repeated.
    Broadcast,
    /// One element.
    Contiguous,
}

/// How a kernel stores results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StorePolicy {
    /// Ordinary stores, which leave results in the caches.
    Temporal,
    /// Non-temporal stores, if the level has them: for results so large that they would only evict what is
    /// needed.
    NonTemporal,
}

/// Bytes of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    W1,
    W2,
    W4,
    W8,
}

impl Width {
    /// The width of elements of this many bytes, if it has kernels.
    pub(crate) fn of(bytes: usize) -> Option<Self> {
        match bytes {
            1 => Some(Self::W1),
            2 => Some(Self::W2),
            4 => Some(Self::W4),
            8 => Some(Self::W8),
            _ => None,
        }
    }

    /// The number of bytes.
    pub(crate) fn bytes(self) -> usize {
        1 << self as usize
    }
}
