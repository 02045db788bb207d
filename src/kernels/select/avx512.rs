//! The bodies for level Avx512: one byte compare makes a mask of 64 conditions, and masked loads and stores take the
//! ends of a row, so a row of any length runs without a scalar loop. Plain Rust at this level took 1.6 times as long
//! on rows of 16 elements.
//!
//! Everything between a shell and an intrinsic is `inline(always)`, closures too: an intrinsic is inlined only where
//! its caller has the instructions, so one function in between would leave a call for each vector.

use std::arch::asm;
use std::arch::x86_64::*;
use std::hint::{black_box, select_unpredictable};

use super::{Ahead, Verdict};
use crate::kernels::simd::Wide;
use crate::kernels::{Extent, Lane, Source, Stores, Target, bring, bring_end, head, is_line};

/// Elements of a row whose conditions fit into one vector.
const BLOCK: usize = 64;

/// Blocks of a row that are judged together: where all of their conditions agree, only the side that they choose is
/// read. That leaves out 1 KiB or more: beyond the caches of a Zen 4, smaller pieces cost more than they spared.
const fn group<U: Lane>() -> usize {
    let blocks = 1024 / size_of::<[U; BLOCK]>();
    if blocks > FIRST { blocks } else { FIRST }
}

/// Blocks of a group that are judged first. Of 256 conditions of which 1 % are true, all agree too seldom (8 %) for the branch
/// to be mispredicted at a visible cost; of 64 they do every second time.
const FIRST: usize = 4;

/// The mask of the first `count` of 64.
#[inline(always)]
fn first(count: usize) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

/// Which of the conditions of a mask are true, from an element of a row on.
///
/// # Safety
///
/// The conditions of the mask can be read, and the machine runs level Avx512.
#[inline(always)]
unsafe fn truths(cond: *const u8, at: usize, mask: u64) -> u64 {
    // SAFETY: as the caller promises.
    unsafe {
        let bytes = u8::load(cond.add(at), mask);
        _mm512_test_epi8_mask(bytes, bytes)
    }
}

/// What the conditions of some blocks have in common.
///
/// # Safety
///
/// The conditions can be read, and the machine runs level Avx512.
#[inline(always)]
unsafe fn verdict(cond: *const u8, at: usize, blocks: usize) -> Verdict {
    // SAFETY: as the caller promises.
    unsafe {
        let (mut least, mut any) = (_mm512_set1_epi8(-1), _mm512_setzero_si512());
        for block in 0..blocks {
            let bytes = u8::load(cond.add(at + block * BLOCK), u64::MAX);
            (least, any) = (_mm512_min_epu8(least, bytes), _mm512_or_si512(any, bytes));
        }
        let (all, some) = (_mm512_test_epi8_mask(least, least), _mm512_test_epi8_mask(any, any));
        Verdict::of(some != 0, all != u64::MAX)
    }
}

/// One side of a choice: gives the lanes of a mask from an element of the row on.
trait Side {
    /// # Safety
    ///
    /// The lanes lie within the row, and the machine runs level Avx512.
    unsafe fn lanes(&self, at: usize, mask: u64) -> __m512i;

    /// Asks for the line that lies ahead of a vector that starts at an element of the row; to be called where results go past the
    /// caches alone, as operands come from beyond them there. Selects of s64 took 0.85 to 0.93 of the time on a Zen 5, and of f32
    /// 0.9 to 0.96, that they took where a whole block was asked for at once.
    fn ask(&self, at: usize);

    /// Whether the target holds it already, so that nothing is to do where all choose it.
    fn is_held(&self) -> bool;
}

/// A row of elements, or one element that stands for all.
struct Row<U, const DENSE: bool> {
    elements: *const U,
    value: __m512i,
    /// By how many bytes what is asked for lies ahead; 0 where nothing is.
    ahead: isize,
}

impl<U: Lane, const DENSE: bool> Row<U, DENSE> {
    /// # Safety
    ///
    /// The first element can be read, and the machine runs level Avx512.
    #[inline(always)]
    unsafe fn new(elements: *const U, ahead: isize) -> Self {
        // SAFETY: as the caller promises.
        let value = unsafe { if DENSE { _mm512_setzero_si512() } else { elements.read_unaligned().splat() } };
        Self { elements, value, ahead }
    }
}

impl<U: Lane, const DENSE: bool> Side for Row<U, DENSE> {
    #[inline(always)]
    unsafe fn lanes(&self, at: usize, mask: u64) -> __m512i {
        // SAFETY: as the caller promises.
        if DENSE { unsafe { U::load(self.elements.add(at), mask) } } else { self.value }
    }

    #[inline(always)]
    fn ask(&self, at: usize) {
        if DENSE && self.ahead != 0 {
            let at = self.elements.wrapping_add(at).wrapping_byte_offset(self.ahead);
            bring(at.cast(), 1);
        }
    }

    #[inline(always)]
    fn is_held(&self) -> bool {
        false
    }
}

/// A row of the target, which holds it already.
struct Held<U>(*const U);

impl<U: Lane> Side for Held<U> {
    #[inline(always)]
    unsafe fn lanes(&self, at: usize, mask: u64) -> __m512i {
        // SAFETY: as the caller promises.
        unsafe {
            let at = self.0.add(at);
            let is_whole = mask == first(U::LANES);
            if is_whole && size_of::<U>() > 1 { load_as_is(at.cast()) } else { U::load(at, mask) }
        }
    }

    #[inline(always)]
    fn ask(&self, _: usize) {}

    #[inline(always)]
    fn is_held(&self) -> bool {
        true
    }
}

/// Loads a vector in a way that the compiler does not see through. Of a choice between what lies there and something else it
/// makes a store of the lanes that change, which takes longer than to store all: beyond the caches of a Zen 5, in place of
/// `then`, elements of 2 to 8 bytes took 0.83 to 0.88 of their time for this, with a scalar as `else` 0.64, those of one byte
/// 1.25.
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
        asm!("vmovdqu64 {}, [{}]", out(zmm_reg) value, in(reg) at, options(pure, readonly, nostack, preserves_flags));
    }
    value
}

/// Writes lanes of a row: past the caches with `STREAM`, which takes whole vectors at aligned addresses.
///
/// # Safety
///
/// The lanes lie within the row, and the machine runs level Avx512.
#[inline(always)]
unsafe fn put<U: Lane, const STREAM: bool>(to: *mut U, at: usize, mask: u64, value: __m512i) {
    // SAFETY: as the caller promises.
    unsafe {
        if STREAM {
            _mm512_stream_si512(to.add(at).cast(), value);
        } else {
            U::store(to.add(at), mask, value);
        }
    }
}

/// Writes the first lanes of a vector, as many as are left of a row: past the caches, with `STREAM`, where they are a line.
///
/// # Safety
///
/// As [`put`].
#[inline(always)]
unsafe fn put_first<U: Lane, const STREAM: bool>(to: *mut U, at: usize, left: usize, value: __m512i) {
    // SAFETY: as the caller promises.
    unsafe {
        match STREAM && left >= U::LANES && is_line(to.wrapping_add(at)) {
            true => put::<U, true>(to, at, first(U::LANES), value),
            false => put::<U, false>(to, at, first(left.min(U::LANES)), value),
        }
    }
}

/// Writes a block from one side.
///
/// # Safety
///
/// As [`put`].
#[inline(always)]
unsafe fn copy_block<U: Lane, const STREAM: bool>(to: *mut U, at: usize, side: &impl Side) {
    let mask = first(U::LANES);
    for vector in 0..BLOCK / U::LANES {
        let at = at + vector * U::LANES;
        if STREAM {
            side.ask(at);
        }
        // SAFETY: as the caller promises.
        unsafe { put::<U, STREAM>(to, at, mask, side.lanes(at, mask)) };
    }
}

/// Writes a group from one side, unless the target holds that already.
///
/// # Safety
///
/// As [`put`].
#[inline(always)]
unsafe fn copy_group<U: Lane>(to: *mut U, at: usize, stores: Stores, side: &impl Side) {
    if side.is_held() {
        return;
    }
    for block in 0..group::<U>() {
        let at = at + block * BLOCK;
        // SAFETY: as the caller promises.
        unsafe {
            match stores {
                Stores::Ordinary => copy_block::<U, false>(to, at, side),
                Stores::Streaming => copy_block::<U, true>(to, at, side),
            }
        }
    }
}

/// Chooses a block. Vectors of few lanes that all choose what is held are left alone: where one f32 in a hundred
/// changes, that took half the time.
///
/// # Safety
///
/// As [`put`].
#[inline(always)]
unsafe fn choose_block<U: Lane, const STREAM: bool>(
    to: *mut U,
    at: usize,
    truths: u64,
    then: &impl Side,
    else_: &impl Side,
) {
    let mask = first(U::LANES);
    for vector in 0..BLOCK / U::LANES {
        let (at, truths) = (at + vector * U::LANES, truths >> (vector * U::LANES));
        if STREAM {
            then.ask(at);
            else_.ask(at);
        }
        let changed = match (then.is_held(), else_.is_held()) {
            (true, _) if U::LANES <= 16 => !truths & mask,
            (_, true) if U::LANES <= 16 => truths & mask,
            _ => mask,
        };
        if changed == 0 {
            continue;
        }
        // SAFETY: as the caller promises.
        unsafe {
            let chosen = U::choose(truths, then.lanes(at, mask), else_.lanes(at, mask));
            put::<U, STREAM>(to, at, mask, chosen);
        }
    }
}

/// Chooses fewer than a block of elements; with `STREAM`, whole lines of them go past the caches.
///
/// # Safety
///
/// As [`put`]; the conditions can be read.
#[inline(always)]
unsafe fn choose_rest<U: Lane, const STREAM: bool>(
    cond: *const u8,
    to: *mut U,
    mut at: usize,
    mut left: usize,
    then: &impl Side,
    else_: &impl Side,
) {
    if left == 0 {
        return;
    }
    // SAFETY: as the caller promises.
    let mut truths = unsafe { truths(cond, at, first(left)) };
    while left > 0 {
        let mask = first(left.min(U::LANES));
        // SAFETY: as the caller promises.
        unsafe {
            let chosen = U::choose(truths, then.lanes(at, mask), else_.lanes(at, mask));
            put_first::<U, STREAM>(to, at, left, chosen);
        };
        truths = truths.unbounded_shr(U::LANES as u32);
        at += U::LANES;
        left = left.saturating_sub(U::LANES);
    }
}

/// Chooses the whole blocks of a row from an element on, each for itself, and returns the first element behind them.
///
/// # Safety
///
/// As [`put`]; the conditions can be read.
#[inline(always)]
unsafe fn choose_each_block<U: Lane, const STREAM: bool>(
    cond: *const u8,
    to: *mut U,
    mut at: usize,
    columns: usize,
    then: &impl Side,
    else_: &impl Side,
) -> usize {
    while at + BLOCK <= columns {
        // SAFETY: as the caller promises.
        unsafe { choose_block::<U, STREAM>(to, at, truths(cond, at, u64::MAX), then, else_) };
        at += BLOCK;
    }
    at
}

/// Chooses the whole blocks of a row from an element on, and returns the first element behind them.
///
/// `groups` says how those are stored whose conditions all choose one side: past the caches perhaps also where the target holds
/// the other side, which then nobody has read.
///
/// # Safety
///
/// As [`put`]; the conditions can be read.
#[inline(always)]
unsafe fn choose_blocks<U: Lane, const STREAM: bool>(
    cond: *const u8,
    to: *mut U,
    mut at: usize,
    columns: usize,
    groups: Stores,
    then: &impl Side,
    else_: &impl Side,
) -> usize {
    let elements = group::<U>() * BLOCK;
    // SAFETY: as the caller promises.
    unsafe {
        while at + elements <= columns {
            let rest = group::<U>() - FIRST;
            // In masks, which the choice of mixed blocks takes again: to judge them as vectors took selects in the second level
            // 1.06 of the time.
            let mut known = [0; FIRST];
            let (mut all, mut any) = (u64::MAX, 0);
            for (block, known) in known.iter_mut().enumerate() {
                *known = truths(cond, at + block * BLOCK, u64::MAX);
                (all, any) = (all & *known, any | *known);
            }
            let agreed = match Verdict::of(any != 0, all != u64::MAX) {
                Verdict::Mixed => Verdict::Mixed,
                first if rest == 0 || verdict(cond, at + FIRST * BLOCK, rest) == first => first,
                _ => Verdict::Mixed,
            };
            match agreed {
                Verdict::AllTrue => copy_group::<U>(to, at, groups, then),
                Verdict::AllFalse => copy_group::<U>(to, at, groups, else_),
                Verdict::Mixed => {
                    // Counted while it runs: written out, which the compiler did where nothing is asked for, a choice of s64 in the
                    // caches of a Zen 5 took 1.08 of the time; one of f32 in place took 0.83 written out.
                    let blocks = match size_of::<U>() == 8 && !then.is_held() && !else_.is_held() {
                        true => black_box(group::<U>()),
                        false => group::<U>(),
                    };
                    for block in 0..blocks {
                        let at = at + block * BLOCK;
                        let truths = match known.get(block) {
                            Some(&known) => known,
                            None => truths(cond, at, u64::MAX),
                        };
                        choose_block::<U, STREAM>(to, at, truths, then, else_);
                    }
                }
            }
            at += elements;
        }
        choose_each_block::<U, STREAM>(cond, to, at, columns, then, else_)
    }
}

/// Chooses a row: first what leads to a whole line of the target, then whole blocks, then the rest.
///
/// # Safety
///
/// As [`put`]; the conditions can be read.
#[inline(always)]
unsafe fn choose_row<U: Lane, const STREAM: bool>(
    cond: *const u8,
    to: *mut U,
    columns: usize,
    groups: Stores,
    then: &impl Side,
    else_: &impl Side,
) {
    // SAFETY: as the caller promises; past the caches is stored only from an aligned address on.
    unsafe {
        let at = match head(to, size_of::<U>(), columns) {
            Some(head) => {
                if STREAM {
                    bring_end(to.wrapping_add(columns));
                }
                choose_rest::<U, false>(cond, to, 0, head, then, else_);
                choose_blocks::<U, STREAM>(cond, to, head, columns, groups, then, else_)
            }
            // Such rows are too short for a group, or lie at no multiple of an element's width, as few do.
            None => choose_each_block::<U, false>(cond, to, 0, columns, then, else_),
        };
        choose_rest::<U, STREAM>(cond, to, at, columns - at, then, else_);
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
    ahead: Ahead,
) {
    let columns = extent.columns;
    let groups = if STREAM { Stores::Streaming } else { Stores::Ordinary };
    for r in 0..extent.rows {
        let (cond, to) = (cond.row::<u8>(r), to.row::<U>(r));
        // SAFETY: the caller promises that every element of the tile can be read and written.
        unsafe {
            let then = Row::<U, THEN>::new(then.row(r), ahead.then);
            let else_ = Row::<U, ELSE>::new(else_.row(r), ahead.else_);
            choose_row::<U, STREAM>(cond, to, columns, groups, &then, &else_);
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
    groups: Stores,
) {
    let columns = extent.columns;
    for r in 0..extent.rows {
        let (cond, to) = (cond.row::<u8>(r), to.row::<U>(r));
        // SAFETY: the caller promises that every element of the tile can be read and written.
        unsafe {
            let (other, held) = (Row::<U, OTHER>::new(other.row(r), 0), Held(to.cast_const()));
            if REPLACED {
                choose_row::<U, false>(cond, to, columns, groups, &other, &held);
            } else {
                choose_row::<U, false>(cond, to, columns, groups, &held, &other);
            }
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
        // SAFETY: the caller promises that every element of the tile can be read and written.
        unsafe { copy_row::<U, DENSE, STREAM>(extent.columns, from.row(r), to.row(r)) };
    }
}

/// # Safety
///
/// As [`Blend`](super::Blend), with one condition a row.
#[inline(always)]
pub(super) unsafe fn blend_rows<U: Lane, const STREAM: bool>(
    extent: Extent,
    cond: Source,
    then: Source,
    else_: Source,
    to: Target,
) {
    for r in 0..extent.rows {
        // SAFETY: the caller promises that every element of the tile can be read and written.
        unsafe {
            let from = select_unpredictable(cond.is_true(r), then.row::<U>(r), else_.row(r));
            copy_row::<U, true, STREAM>(extent.columns, from, to.row(r));
        }
    }
}

/// Copies a row, or spreads one element over it.
///
/// # Safety
///
/// As [`put`].
#[inline(always)]
unsafe fn copy_row<U: Lane, const DENSE: bool, const STREAM: bool>(
    columns: usize,
    from: *const U,
    to: *mut U,
) {
    // SAFETY: as the caller promises.
    unsafe {
        let from = Row::<U, DENSE>::new(from, 0);
        let mut at = 0;
        if let Some(head) = head(to, size_of::<U>(), columns) {
            if STREAM {
                bring_end(to.wrapping_add(columns));
            }
            copy_rest::<U, false>(to, 0, head, &from);
            at = head + (columns - head) / BLOCK * BLOCK;
            for block in (head..at).step_by(BLOCK) {
                copy_block::<U, STREAM>(to, block, &from);
            }
        }
        while at + BLOCK <= columns {
            copy_block::<U, false>(to, at, &from);
            at += BLOCK;
        }
        copy_rest::<U, STREAM>(to, at, columns - at, &from);
    }
}

/// Writes fewer than a block of elements from one side; with `STREAM`, whole lines of them go past the caches.
///
/// # Safety
///
/// As [`put`].
#[inline(always)]
unsafe fn copy_rest<U: Lane, const STREAM: bool>(
    to: *mut U,
    mut at: usize,
    mut left: usize,
    side: &impl Side,
) {
    while left > 0 {
        let mask = first(left.min(U::LANES));
        // SAFETY: as the caller promises.
        unsafe { put_first::<U, STREAM>(to, at, left, side.lanes(at, mask)) };
        at += U::LANES;
        left = left.saturating_sub(U::LANES);
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
            let truths = unsafe { truths(cond, at, mask) };
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
