//! Bodies for level Avx512. One byte compare makes a mask of 64 conditions, and masked loads and stores take
//! the ends of a row, so a row of any length runs without a scalar loop (decision: avx512-select).
//!
//! All functions between a shell and an intrinsic are `inline(always)`, closures too. An intrinsic is inlined
//! only into a function with its target features, so one function without them would leave a call for each
//! vector.

use std::arch::asm;
use std::arch::x86_64::*;
use std::hint::{black_box, select_unpredictable};

use super::mask::{MaskClass, PrefetchDistance};
use crate::kernels::simd::{LaneBits, Vector512, mask_of_first};
use crate::kernels::{
    BLOCK, Extent, Source, StorePolicy, Target, is_line, peel, prefetch_l1, prefetch_tail_line,
};

/// Blocks whose conditions are tested together: if all agree, only the chosen side is read. That skips at
/// least 1 KiB of a branch (decision: select-group).
const fn chunk_blocks<U: LaneBits>() -> usize {
    let blocks = 1024 / size_of::<[U; BLOCK]>();
    if blocks > PROBE_BLOCKS { blocks } else { PROBE_BLOCKS }
}

/// Blocks of a chunk that are tested first: enough that conditions seldom agree by chance, and the branch is
/// predicted (decision: select-probe).
const PROBE_BLOCKS: usize = 4;

/// Which conditions of a mask are true, starting at an element of a row.
///
/// # Safety
///
/// The conditions of the mask can be read, and the machine runs level Avx512.
#[inline(always)]
unsafe fn lane_mask(cond: *const u8, at: usize, mask: u64) -> u64 {
    // SAFETY: as the caller promises.
    unsafe {
        let bytes = u8::load(cond.add(at), mask);
        _mm512_test_epi8_mask(bytes, bytes)
    }
}

/// Class of the conditions of some blocks.
///
/// # Safety
///
/// The conditions can be read, and the machine runs level Avx512.
#[inline(always)]
unsafe fn class_of(cond: *const u8, at: usize, blocks: usize) -> MaskClass {
    // SAFETY: as the caller promises.
    unsafe {
        let (mut least, mut any) = (_mm512_set1_epi8(-1), _mm512_setzero_si512());
        for block in 0..blocks {
            let bytes = u8::load(cond.add(at + block * BLOCK), u64::MAX);
            (least, any) = (_mm512_min_epu8(least, bytes), _mm512_or_si512(any, bytes));
        }
        let (all, some) = (_mm512_test_epi8_mask(least, least), _mm512_test_epi8_mask(any, any));
        MaskClass::of(some != 0, all != u64::MAX)
    }
}

/// One side of a select: gives the lanes of a mask, starting at an element of the row.
trait SelectOperand {
    /// # Safety
    ///
    /// The lanes lie within the row, and the machine runs level Avx512.
    unsafe fn lanes(&self, at: usize, mask: u64) -> __m512i;

    /// Prefetches the line ahead of the vector that starts at an element of the row. Called only if results
    /// are stored non-temporally, because then operands come from beyond the caches too
    /// (decision: prefetch-each-vector).
    fn prefetch(&self, at: usize);

    /// True if the target holds this side already, so that a chunk that chooses it needs no work.
    fn is_in_place(&self) -> bool;
}

/// A row of elements, or one repeated element.
struct RowOperand<U, const CONTIGUOUS: bool> {
    elements: *const U,
    value: __m512i,
    /// Prefetch distance in bytes; 0 for none.
    distance: isize,
}

impl<U: LaneBits, const CONTIGUOUS: bool> RowOperand<U, CONTIGUOUS> {
    /// # Safety
    ///
    /// The first element can be read, and the machine runs level Avx512.
    #[inline(always)]
    unsafe fn new(elements: *const U, distance: isize) -> Self {
        // SAFETY: as the caller promises.
        let value =
            unsafe { if CONTIGUOUS { _mm512_setzero_si512() } else { elements.read_unaligned().splat() } };
        Self { elements, value, distance }
    }
}

impl<U: LaneBits, const CONTIGUOUS: bool> SelectOperand for RowOperand<U, CONTIGUOUS> {
    #[inline(always)]
    unsafe fn lanes(&self, at: usize, mask: u64) -> __m512i {
        // SAFETY: as the caller promises.
        if CONTIGUOUS { unsafe { U::load(self.elements.add(at), mask) } } else { self.value }
    }

    #[inline(always)]
    fn prefetch(&self, at: usize) {
        if CONTIGUOUS && self.distance != 0 {
            let at = self.elements.wrapping_add(at).wrapping_byte_offset(self.distance);
            prefetch_l1(at.cast(), 1);
        }
    }

    #[inline(always)]
    fn is_in_place(&self) -> bool {
        false
    }
}

/// A row of the target, which holds this side already.
struct InPlaceOperand<U>(*const U);

impl<U: LaneBits> SelectOperand for InPlaceOperand<U> {
    #[inline(always)]
    unsafe fn lanes(&self, at: usize, mask: u64) -> __m512i {
        // SAFETY: as the caller promises.
        unsafe {
            let at = self.0.add(at);
            let is_whole = mask == mask_of_first(U::LANES);
            if is_whole && size_of::<U>() > 1 { load_as_is(at.cast()) } else { U::load(at, mask) }
        }
    }

    #[inline(always)]
    fn prefetch(&self, _: usize) {}

    #[inline(always)]
    fn is_in_place(&self) -> bool {
        true
    }
}

/// Loads a vector in a way that the compiler cannot see through. Otherwise the compiler turns a select
/// between the loaded vector and another into a store of the changed lanes, which takes longer than a store
/// of all lanes (decision: in-place-whole-vectors).
///
/// # Safety
///
/// The vector can be read, and the machine runs level Avx512.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load_as_is(at: *const u8) -> __m512i {
    let value;
    // SAFETY: as the caller promises.
    unsafe {
        asm!(
            "vmovdqu64 {}, [{}]",
            out(zmm_reg) value,
            in(reg) at,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    value
}

/// Writes lanes of a row. With `NON_TEMPORAL`, it writes whole vectors at aligned addresses only.
///
/// # Safety
///
/// The lanes lie within the row, and the machine runs level Avx512.
#[inline(always)]
unsafe fn store<U: LaneBits, const NON_TEMPORAL: bool>(to: *mut U, at: usize, mask: u64, value: __m512i) {
    // SAFETY: as the caller promises.
    unsafe {
        if NON_TEMPORAL {
            _mm512_stream_si512(to.add(at).cast(), value);
        } else {
            U::store(to.add(at), mask, value);
        }
    }
}

/// Writes the first lanes of a vector, as many as are left of a row; with `NON_TEMPORAL`, non-temporally if
/// they fill a line.
///
/// # Safety
///
/// As [`store`].
#[inline(always)]
unsafe fn store_first<U: LaneBits, const NON_TEMPORAL: bool>(
    to: *mut U,
    at: usize,
    left: usize,
    value: __m512i,
) {
    // SAFETY: as the caller promises.
    unsafe {
        match NON_TEMPORAL && left >= U::LANES && is_line(to.wrapping_add(at)) {
            true => store::<U, true>(to, at, mask_of_first(U::LANES), value),
            false => store::<U, false>(to, at, mask_of_first(left.min(U::LANES)), value),
        }
    }
}

/// Writes a block of one side.
///
/// # Safety
///
/// As [`store`].
#[inline(always)]
unsafe fn copy_block<U: LaneBits, const NON_TEMPORAL: bool>(
    to: *mut U,
    at: usize,
    operand: &impl SelectOperand,
) {
    let mask = mask_of_first(U::LANES);
    for vector in 0..BLOCK / U::LANES {
        let at = at + vector * U::LANES;
        if NON_TEMPORAL {
            operand.prefetch(at);
        }
        // SAFETY: as the caller promises.
        unsafe { store::<U, NON_TEMPORAL>(to, at, mask, operand.lanes(at, mask)) };
    }
}

/// Writes a chunk of one side, unless the target holds it already.
///
/// # Safety
///
/// As [`store`].
#[inline(always)]
unsafe fn copy_chunk<U: LaneBits>(to: *mut U, at: usize, stores: StorePolicy, operand: &impl SelectOperand) {
    if operand.is_in_place() {
        return;
    }
    for block in 0..chunk_blocks::<U>() {
        let at = at + block * BLOCK;
        // SAFETY: as the caller promises.
        unsafe {
            match stores {
                StorePolicy::Temporal => copy_block::<U, false>(to, at, operand),
                StorePolicy::NonTemporal => copy_block::<U, true>(to, at, operand),
            }
        }
    }
}

/// Selects a block. Vectors of few lanes that keep what the target holds are not stored
/// (decision: in-place-unchanged).
///
/// # Safety
///
/// As [`store`].
#[inline(always)]
unsafe fn select_block<U: LaneBits, const NON_TEMPORAL: bool>(
    to: *mut U,
    at: usize,
    lane_mask: u64,
    then: &impl SelectOperand,
    else_: &impl SelectOperand,
) {
    let mask = mask_of_first(U::LANES);
    for vector in 0..BLOCK / U::LANES {
        let (at, lane_mask) = (at + vector * U::LANES, lane_mask >> (vector * U::LANES));
        if NON_TEMPORAL {
            then.prefetch(at);
            else_.prefetch(at);
        }
        let changed = match (then.is_in_place(), else_.is_in_place()) {
            (true, _) if U::LANES <= 16 => !lane_mask & mask,
            (_, true) if U::LANES <= 16 => lane_mask & mask,
            _ => mask,
        };
        if changed == 0 {
            continue;
        }
        // SAFETY: as the caller promises.
        unsafe {
            let selected = U::select(lane_mask, then.lanes(at, mask), else_.lanes(at, mask));
            store::<U, NON_TEMPORAL>(to, at, mask, selected);
        }
    }
}

/// Selects less than a block; with `NON_TEMPORAL`, whole lines are stored non-temporally.
///
/// # Safety
///
/// As [`store`]; the conditions can be read.
#[inline(always)]
unsafe fn select_tail<U: LaneBits, const NON_TEMPORAL: bool>(
    cond: *const u8,
    to: *mut U,
    mut at: usize,
    mut left: usize,
    then: &impl SelectOperand,
    else_: &impl SelectOperand,
) {
    if left == 0 {
        return;
    }
    // SAFETY: as the caller promises.
    let mut lane_mask = unsafe { lane_mask(cond, at, mask_of_first(left)) };
    while left > 0 {
        let mask = mask_of_first(left.min(U::LANES));
        // SAFETY: as the caller promises.
        unsafe {
            let selected = U::select(lane_mask, then.lanes(at, mask), else_.lanes(at, mask));
            store_first::<U, NON_TEMPORAL>(to, at, left, selected);
        };
        lane_mask = lane_mask.unbounded_shr(U::LANES as u32);
        at += U::LANES;
        left = left.saturating_sub(U::LANES);
    }
}

/// Selects the whole blocks of a row from an element on, each by itself, and returns the first element behind
/// them.
///
/// # Safety
///
/// As [`store`]; the conditions can be read.
#[inline(always)]
unsafe fn select_each_block<U: LaneBits, const NON_TEMPORAL: bool>(
    cond: *const u8,
    to: *mut U,
    mut at: usize,
    columns: usize,
    then: &impl SelectOperand,
    else_: &impl SelectOperand,
) -> usize {
    while at + BLOCK <= columns {
        // SAFETY: as the caller promises.
        unsafe { select_block::<U, NON_TEMPORAL>(to, at, lane_mask(cond, at, u64::MAX), then, else_) };
        at += BLOCK;
    }
    at
}

/// Selects the whole blocks of a row from an element on, chunk by chunk, and returns the first element behind
/// them.
///
/// `chunk_stores` is the store policy of uniform chunks. It may be non-temporal even in place, because the
/// overwritten data was never loaded.
///
/// # Safety
///
/// As [`store`]; the conditions can be read.
#[inline(always)]
unsafe fn select_blocks<U: LaneBits, const NON_TEMPORAL: bool>(
    cond: *const u8,
    to: *mut U,
    mut at: usize,
    columns: usize,
    chunk_stores: StorePolicy,
    then: &impl SelectOperand,
    else_: &impl SelectOperand,
) -> usize {
    let elements = chunk_blocks::<U>() * BLOCK;
    // SAFETY: as the caller promises.
    unsafe {
        while at + elements <= columns {
            let rest = chunk_blocks::<U>() - PROBE_BLOCKS;
            // As masks, which the select of mixed blocks uses again (decision: select-probe-masks).
            let mut known = [0; PROBE_BLOCKS];
            let (mut all, mut any) = (u64::MAX, 0);
            for (block, known) in known.iter_mut().enumerate() {
                *known = lane_mask(cond, at + block * BLOCK, u64::MAX);
                (all, any) = (all & *known, any | *known);
            }
            let common = match MaskClass::of(any != 0, all != u64::MAX) {
                MaskClass::Mixed => MaskClass::Mixed,
                first if rest == 0 || class_of(cond, at + PROBE_BLOCKS * BLOCK, rest) == first => first,
                _ => MaskClass::Mixed,
            };
            match common {
                MaskClass::AllTrue => copy_chunk::<U>(to, at, chunk_stores, then),
                MaskClass::AllFalse => copy_chunk::<U>(to, at, chunk_stores, else_),
                MaskClass::Mixed => {
                    // An opaque trip count keeps the compiler from unrolling the loop over 8-byte elements
                    // (decision: select-loop-of-blocks).
                    let blocks = match size_of::<U>() == 8 && !then.is_in_place() && !else_.is_in_place() {
                        true => black_box(chunk_blocks::<U>()),
                        false => chunk_blocks::<U>(),
                    };
                    for block in 0..blocks {
                        let at = at + block * BLOCK;
                        let lane_mask = match known.get(block) {
                            Some(&known) => known,
                            None => lane_mask(cond, at, u64::MAX),
                        };
                        select_block::<U, NON_TEMPORAL>(to, at, lane_mask, then, else_);
                    }
                }
            }
            at += elements;
        }
        select_each_block::<U, NON_TEMPORAL>(cond, to, at, columns, then, else_)
    }
}

/// Selects a row: elements before the first whole line of the target, then whole blocks, then the tail.
///
/// # Safety
///
/// As [`store`]; the conditions can be read.
#[inline(always)]
unsafe fn select_row<U: LaneBits, const NON_TEMPORAL: bool>(
    cond: *const u8,
    to: *mut U,
    columns: usize,
    chunk_stores: StorePolicy,
    then: &impl SelectOperand,
    else_: &impl SelectOperand,
) {
    // SAFETY: as the caller promises; non-temporal stores start at an aligned address.
    unsafe {
        let at = match peel(to, size_of::<U>(), columns) {
            Some(peel) => {
                if NON_TEMPORAL {
                    prefetch_tail_line(to.wrapping_add(columns));
                }
                select_tail::<U, false>(cond, to, 0, peel, then, else_);
                select_blocks::<U, NON_TEMPORAL>(cond, to, peel, columns, chunk_stores, then, else_)
            }
            // Such a row is too short for a chunk, or, which is rare, starts at no multiple of the element's
            // width.
            None => select_each_block::<U, false>(cond, to, 0, columns, then, else_),
        };
        select_tail::<U, NON_TEMPORAL>(cond, to, at, columns - at, then, else_);
    }
}

/// # Safety
///
/// As [`Blend`](super::Blend).
#[inline(always)]
pub(super) unsafe fn blend<U: LaneBits, const THEN: bool, const ELSE: bool, const NON_TEMPORAL: bool>(
    extent: Extent,
    cond: Source,
    then: Source,
    else_: Source,
    to: Target,
    distance: PrefetchDistance,
) {
    let columns = extent.columns;
    let chunk_stores = if NON_TEMPORAL { StorePolicy::NonTemporal } else { StorePolicy::Temporal };
    for r in 0..extent.rows {
        let (cond, to) = (cond.row::<u8>(r), to.row::<U>(r));
        // SAFETY: the caller promises that every element of the tile can be read and written.
        unsafe {
            let then = RowOperand::<U, THEN>::new(then.row(r), distance.then);
            let else_ = RowOperand::<U, ELSE>::new(else_.row(r), distance.else_);
            select_row::<U, NON_TEMPORAL>(cond, to, columns, chunk_stores, &then, &else_);
        }
    }
}

/// # Safety
///
/// As [`SelectInPlace`](super::SelectInPlace).
#[inline(always)]
pub(super) unsafe fn select_in_place<U: LaneBits, const REPLACED: bool, const OTHER: bool>(
    extent: Extent,
    cond: Source,
    other: Source,
    to: Target,
    chunk_stores: StorePolicy,
) {
    let columns = extent.columns;
    for r in 0..extent.rows {
        let (cond, to) = (cond.row::<u8>(r), to.row::<U>(r));
        // SAFETY: the caller promises that every element of the tile can be read and written.
        unsafe {
            let (other, in_place) =
                (RowOperand::<U, OTHER>::new(other.row(r), 0), InPlaceOperand(to.cast_const()));
            if REPLACED {
                select_row::<U, false>(cond, to, columns, chunk_stores, &other, &in_place);
            } else {
                select_row::<U, false>(cond, to, columns, chunk_stores, &in_place, &other);
            }
        }
    }
}

/// Repeats the first element of each row.
///
/// # Safety
///
/// As [`Move`](super::Move).
#[inline(always)]
pub(super) unsafe fn fill<U: LaneBits, const NON_TEMPORAL: bool>(extent: Extent, from: Source, to: Target) {
    for r in 0..extent.rows {
        // SAFETY: the caller promises that every element of the tile can be read and written.
        unsafe { move_row::<U, false, NON_TEMPORAL>(extent.columns, from.row(r), to.row(r)) };
    }
}

/// # Safety
///
/// As [`Move`](super::Move), of bytes.
#[inline(always)]
pub(super) unsafe fn copy<const NON_TEMPORAL: bool>(extent: Extent, from: Source, to: Target) {
    for r in 0..extent.rows {
        // SAFETY: the caller promises that every element of the tile can be read and written.
        unsafe { copy_row::<NON_TEMPORAL>(extent.columns, from.row(r), to.row(r)) };
    }
}

/// # Safety
///
/// As [`Blend`](super::Blend), of bytes, with one condition a row.
#[inline(always)]
pub(super) unsafe fn blend_rows<const NON_TEMPORAL: bool>(
    extent: Extent,
    cond: Source,
    then: Source,
    else_: Source,
    to: Target,
) {
    for r in 0..extent.rows {
        // SAFETY: the caller promises that every element of the tile can be read and written.
        unsafe {
            let from = select_unpredictable(cond.is_true(r), then.row::<u8>(r), else_.row(r));
            copy_row::<NON_TEMPORAL>(extent.columns, from, to.row(r));
        }
    }
}

/// Copies a row of bytes, a long one by the C library, which knows the fastest way of the machine
/// (decision: long-copies).
///
/// # Safety
///
/// As [`store`]; the row has the address of the target, or does not overlap it.
#[inline(always)]
unsafe fn copy_row<const NON_TEMPORAL: bool>(bytes: usize, from: *const u8, to: *mut u8) {
    const LONG: usize = 16 << 10;
    // SAFETY: as the caller promises.
    unsafe {
        match !NON_TEMPORAL && bytes >= LONG {
            true => from.copy_to(to, bytes),
            false => move_row::<u8, true, NON_TEMPORAL>(bytes, from, to),
        }
    }
}

/// Copies a row, or fills it with one element.
///
/// # Safety
///
/// As [`store`].
#[inline(always)]
unsafe fn move_row<U: LaneBits, const CONTIGUOUS: bool, const NON_TEMPORAL: bool>(
    columns: usize,
    from: *const U,
    to: *mut U,
) {
    // SAFETY: as the caller promises.
    unsafe {
        let from = RowOperand::<U, CONTIGUOUS>::new(from, 0);
        let mut at = 0;
        // Of copied rows, bytes are counted.
        let worth = if CONTIGUOUS { columns / 4 } else { columns };
        if let Some(peel) = peel(to, size_of::<U>(), worth) {
            if NON_TEMPORAL {
                prefetch_tail_line(to.wrapping_add(columns));
            }
            copy_tail::<U, false>(to, 0, peel, &from);
            at = peel + (columns - peel) / BLOCK * BLOCK;
            for block in (peel..at).step_by(BLOCK) {
                copy_block::<U, NON_TEMPORAL>(to, block, &from);
            }
        }
        while at + BLOCK <= columns {
            copy_block::<U, false>(to, at, &from);
            at += BLOCK;
        }
        copy_tail::<U, NON_TEMPORAL>(to, at, columns - at, &from);
    }
}

/// Writes less than a block of one side; with `NON_TEMPORAL`, whole lines are stored non-temporally.
///
/// # Safety
///
/// As [`store`].
#[inline(always)]
unsafe fn copy_tail<U: LaneBits, const NON_TEMPORAL: bool>(
    to: *mut U,
    mut at: usize,
    mut left: usize,
    operand: &impl SelectOperand,
) {
    while left > 0 {
        let mask = mask_of_first(left.min(U::LANES));
        // SAFETY: as the caller promises.
        unsafe { store_first::<U, NON_TEMPORAL>(to, at, left, operand.lanes(at, mask)) };
        at += U::LANES;
        left = left.saturating_sub(U::LANES);
    }
}

/// # Safety
///
/// As [`MaskTest`](super::MaskTest).
#[inline(always)]
pub(super) unsafe fn classify_mask(extent: Extent, cond: Source) -> MaskClass {
    let (mut some_true, mut some_false) = (false, false);
    for r in 0..extent.rows {
        let cond = cond.row::<u8>(r);
        let mut at = 0;
        while at < extent.columns {
            let mask = mask_of_first(extent.columns - at);
            // SAFETY: the caller promises that the conditions of the row can be read.
            let lane_mask = unsafe { lane_mask(cond, at, mask) };
            some_true |= lane_mask != 0;
            some_false |= lane_mask != mask;
            if some_true && some_false {
                return MaskClass::Mixed;
            }
            at += BLOCK;
        }
    }
    MaskClass::of(some_true, some_false)
}
