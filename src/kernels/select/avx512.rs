//! The bodies for level Avx512: one byte compare makes a mask of 64 conditions, and masked loads and stores take the
//! ends of a row, so a row of any length runs without a scalar loop. Plain Rust at this level took 1.6 times as long
//! on rows of 16 elements and cannot store past the caches.
//!
//! Everything between a shell and an intrinsic is `inline(always)`, closures too: an intrinsic is inlined only where
//! its caller has the instructions, so one function in between would leave a call for each vector.

use std::arch::x86_64::*;

use super::Verdict;
use crate::kernels::simd::Wide;
use crate::kernels::{Extent, Lane, Source, Target};

/// Elements that one step of a row takes: as many as conditions fit into a vector.
const BLOCK: usize = 64;

/// The mask of the first `count` of 64.
#[inline(always)]
fn first(count: usize) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

/// Which of the conditions of a mask are true, from an element of a row on; none where there are no conditions.
///
/// # Safety
///
/// The conditions of the mask can be read, and the machine runs level Avx512.
#[inline(always)]
unsafe fn truths(cond: Option<*const u8>, at: usize, mask: u64) -> u64 {
    match cond {
        // SAFETY: as the caller promises.
        Some(cond) => unsafe {
            let bytes = u8::load(cond.add(at), mask);
            _mm512_test_epi8_mask(bytes, bytes)
        },
        None => 0,
    }
}

/// One vector of a row: its lanes where it is dense, else the value that stands for all.
///
/// # Safety
///
/// As [`Wide::load`], where the row is dense.
#[inline(always)]
unsafe fn vector<U: Lane, const DENSE: bool>(row: *const U, at: usize, mask: u64, value: __m512i) -> __m512i {
    // SAFETY: as the caller promises.
    if DENSE { unsafe { U::load(row.add(at), mask) } } else { value }
}

/// The value that stands for a row, where one does.
///
/// # Safety
///
/// The first element of the row can be read, and the machine runs level Avx512.
#[inline(always)]
unsafe fn repeated<U: Lane, const DENSE: bool>(row: *const U) -> __m512i {
    // SAFETY: as the caller promises.
    unsafe { if DENSE { _mm512_setzero_si512() } else { row.read_unaligned().splat() } }
}

/// Writes what `make(first element, mask of lanes, truths of these lanes)` gives over a row of a target.
///
/// With `STREAM`, a row that is long enough starts with as many elements as lead to a 64-byte boundary of the target,
/// and is stored past the caches from there on.
///
/// # Safety
///
/// The conditions of the row can be read, the row be written, and the machine runs level Avx512.
#[inline(always)]
unsafe fn row<U: Lane, const STREAM: bool>(
    columns: usize,
    cond: Option<*const u8>,
    to: *mut U,
    make: impl Fn(usize, u64, u64) -> __m512i,
) {
    let whole_mask = first(U::LANES);
    let mut at = 0;
    // SAFETY: every block lies within the row; what is streamed to is aligned.
    unsafe {
        if STREAM {
            let head = to.addr().wrapping_neg() % 64;
            if head.is_multiple_of(size_of::<U>()) && columns >= 2 * BLOCK {
                at = head / size_of::<U>();
                partial(0, at, cond, to, &make);
                while at + BLOCK <= columns {
                    let truths = truths(cond, at, u64::MAX);
                    for vector in 0..BLOCK / U::LANES {
                        let start = at + vector * U::LANES;
                        let value = make(start, whole_mask, truths >> (vector * U::LANES));
                        _mm512_stream_si512(to.add(start).cast(), value);
                    }
                    at += BLOCK;
                }
            }
        }
        while at + BLOCK <= columns {
            let truths = truths(cond, at, u64::MAX);
            for vector in 0..BLOCK / U::LANES {
                let start = at + vector * U::LANES;
                U::store(to.add(start), whole_mask, make(start, whole_mask, truths >> (vector * U::LANES)));
            }
            at += BLOCK;
        }
        partial(at, columns - at, cond, to, &make);
    }
}

/// Writes fewer than a block of elements.
///
/// # Safety
///
/// As [`row`].
#[inline(always)]
unsafe fn partial<U: Lane>(
    mut at: usize,
    mut left: usize,
    cond: Option<*const u8>,
    to: *mut U,
    make: &impl Fn(usize, u64, u64) -> __m512i,
) {
    // SAFETY: as the caller promises.
    let mut truths = unsafe { truths(cond, at, first(left)) };
    while left > 0 {
        let lanes = first(left.min(U::LANES));
        // SAFETY: the lanes lie within the row.
        unsafe { U::store(to.add(at), lanes, make(at, lanes, truths)) };
        truths = truths.unbounded_shr(U::LANES as u32);
        at += U::LANES;
        left = left.saturating_sub(U::LANES);
    }
}

/// # Safety
///
/// As [`Blend`](super::Blend).
#[inline(always)]
pub(super) unsafe fn blend<U: Lane, const THEN: bool, const ELSE: bool, const STREAM: bool>(
    extent: Extent,
    cond: Source,
    then: Source,
    else_: Source,
    to: Target,
) {
    for r in 0..extent.rows {
        let (then, else_) = (then.row::<U>(r), else_.row::<U>(r));
        // SAFETY: the caller promises that every element of the tile can be read and written.
        unsafe {
            let (then_value, else_value) = (repeated::<U, THEN>(then), repeated::<U, ELSE>(else_));
            row::<U, STREAM>(
                extent.columns,
                Some(cond.row(r)),
                to.row(r),
                #[inline(always)]
                |at, lanes, truths| {
                    let then = vector::<U, THEN>(then, at, lanes, then_value);
                    let else_ = vector::<U, ELSE>(else_, at, lanes, else_value);
                    U::choose(truths, then, else_)
                },
            );
        }
    }
}

/// # Safety
///
/// As [`Merge`](super::Merge).
#[inline(always)]
pub(super) unsafe fn merge<U: Lane, const REPLACED: bool, const OTHER: bool>(
    extent: Extent,
    cond: Source,
    other: Source,
    to: Target,
) {
    for r in 0..extent.rows {
        let (other, to) = (other.row::<U>(r), to.row::<U>(r));
        // SAFETY: the caller promises that every element of the tile can be read and written.
        unsafe {
            let value = repeated::<U, OTHER>(other);
            row::<U, false>(
                extent.columns,
                Some(cond.row(r)),
                to,
                #[inline(always)]
                |at, lanes, truths| {
                    let other = vector::<U, OTHER>(other, at, lanes, value);
                    let kept = U::load(to.add(at), lanes);
                    let (then, else_) = if REPLACED { (other, kept) } else { (kept, other) };
                    U::choose(truths, then, else_)
                },
            );
        }
    }
}

/// # Safety
///
/// As [`Move`](super::Move).
#[inline(always)]
pub(super) unsafe fn copy<U: Lane, const DENSE: bool, const STREAM: bool>(
    extent: Extent,
    from: Source,
    to: Target,
) {
    for r in 0..extent.rows {
        let from = from.row::<U>(r);
        // SAFETY: the caller promises that every element of the tile can be read and written.
        unsafe {
            let value = repeated::<U, DENSE>(from);
            row::<U, STREAM>(
                extent.columns,
                None,
                to.row(r),
                #[inline(always)]
                |at, lanes, _| vector::<U, DENSE>(from, at, lanes, value),
            );
        }
    }
}

/// # Safety
///
/// As [`Judge`](super::Judge).
#[inline(always)]
pub(super) unsafe fn judge(extent: Extent, cond: Source) -> Verdict {
    let (mut some_true, mut some_false) = (false, false);
    for r in 0..extent.rows {
        let cond = cond.row::<u8>(r);
        let mut at = 0;
        while at < extent.columns {
            let mask = first(extent.columns - at);
            // SAFETY: the caller promises that the conditions of the row can be read.
            let truths = unsafe { truths(Some(cond), at, mask) };
            some_true |= truths != 0;
            some_false |= truths != mask;
            if some_true && some_false {
                return Verdict::Mixed;
            }
            at += BLOCK;
        }
    }
    Verdict::of(some_true, some_false)
}
