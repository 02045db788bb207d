//! How stages are called: the state that they pass on, and the shells that pass it in registers.

#![allow(improper_ctypes_definitions, reason = "the C ABI passes vectors in registers; both sides are Rust")]
#![allow(clippy::too_many_arguments, reason = "arguments are the registers that a stage hands on")]

use super::stage::{EntryPoint, OperandEntries, OperandSlot, ROW_SLOTS, Stage, StageCall, Stages};
use crate::kernels::isa::{ByLevel, Isa, LEVELS, by_level};
use crate::kernels::simd::{Pod, Vectors, read_part};
use crate::kernels::{BLOCK, Extent};
use crate::types::function::Params;
use crate::types::kind::Level;

/// The state that stages pass on: a block of elements in the first bytes of `A`, a mask for it, and a saved
/// mask.
pub(super) struct BlockState<A> {
    pub(super) mask: u64,
    pub(super) saved_mask: u64,
    pub(super) block: A,
}

/// Address of a stage's operand.
#[derive(Clone, Copy)]
pub(super) struct OperandPtr {
    pub(super) at: *mut u8,
    /// Number of elements in a partial block at the end of a row; `None` for a whole block.
    part: Option<usize>,
    /// One element is repeated.
    is_broadcast: bool,
}

impl OperandPtr {
    /// Reads the elements of the block; elements beyond a partial block have any value.
    ///
    /// # Safety
    ///
    /// They can be read, and the machine runs the level.
    #[inline(always)]
    pub(super) unsafe fn read<I: Isa, T: Pod, const N: usize>(self) -> [T; N] {
        // SAFETY: as the caller promises.
        unsafe {
            if self.is_broadcast {
                return [self.at.cast::<T>().read_unaligned(); N];
            }
            match self.part {
                None => self.at.cast::<[T; N]>().read_unaligned(),
                Some(count) => read_part::<I, T, N>(self.at.cast(), count),
            }
        }
    }

    /// Writes the elements of the block; see [`Vectors::write`].
    ///
    /// # Safety
    ///
    /// They can be written, and the machine runs the level.
    #[inline(always)]
    pub(super) unsafe fn write<I: Vectors<N>, T: Pod, const N: usize, const NON_TEMPORAL: bool>(
        self,
        block: [T; N],
    ) {
        // SAFETY: as the caller promises.
        unsafe {
            match self.part {
                None => I::write::<T, NON_TEMPORAL>(self.at, &block, N),
                Some(count) => I::write::<T, NON_TEMPORAL>(self.at, &block, count),
            }
        }
    }
}

impl<A: Copy> BlockState<A> {
    /// The block, as elements of a type.
    #[inline(always)]
    pub(super) fn elements<T: Copy, const N: usize>(&self) -> [T; N] {
        const { assert!(size_of::<[T; N]>() <= size_of::<A>(), "a block is within the registers") };
        // SAFETY: the registers hold at least this many bytes, all initialised; `T` is a number.
        unsafe { (&raw const self.block).cast::<[T; N]>().read_unaligned() }
    }

    /// The state with another block.
    #[inline(always)]
    pub(super) fn with<T: Copy, const N: usize>(mut self, elements: [T; N]) -> Self {
        const { assert!(size_of::<[T; N]>() <= size_of::<A>(), "a block is within the registers") };
        // SAFETY: the registers have room for this many bytes, and any bytes are valid vectors.
        unsafe { (&raw mut self.block).cast::<[T; N]>().write_unaligned(elements) };
        self
    }
}

/// The body of a stage.
pub(super) trait StageBody {
    /// The body reads an operand in memory.
    const READS: bool = false;

    /// Bytes of the widest element that the stage takes or gives; 0 if it works on masks alone.
    const BYTES: usize = 0;

    /// The stage ends the program.
    const ENDS: bool = false;

    /// The stage only loads or prefetches an operand, so that its code is short.
    const LOADS: bool = false;

    /// # Safety
    ///
    /// The elements of the operand, if the body has one, can be read or written, and the machine runs the
    /// level.
    unsafe fn run<I: Isa + Vectors<N>, A: Copy, const N: usize>(
        state: BlockState<A>,
        at: OperandPtr,
        params: &Params,
    ) -> BlockState<A>;
}

/// Top bit of a block's index: a partial block, the last of its row. The bit vanishes in `index * advance`,
/// because `advance` is even.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const PART: usize = 1 << (usize::BITS - 1);

/// Runs a program on the blocks of one row.
///
/// # Safety
///
/// The calls are stages of one level, and the last is a [`store`](super::stages::store). Every slot that they
/// name addresses at least `columns` elements that can be read or written as the stage does, or one spill
/// block. The slot before the first is the driver's own. The machine runs the level.
pub(super) type RowFn = unsafe fn(stage_calls: *const StageCall, slots: *mut OperandSlot, columns: usize);

/// Runs a program on rows of one block each, whole or partial. The slots go from row to row; if the blocks
/// are partial, by an even number of bytes.
///
/// # Safety
///
/// As for [`RowFn`], for the `columns` elements of every row.
pub(super) type ColumnFn = unsafe fn(stage_calls: *const StageCall, slots: *mut OperandSlot, extent: Extent);

/// The shells of one level, with the elements of a block and the vector registers that hold it.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! shells {
    ($level:ident $Isa:ident $abi:literal, $BLOCK:expr, $architecture:ident::$Vector:ident: $($v:ident)*) => {
        mod $level {
            use std::arch::asm;
            use std::arch::$architecture::$Vector;
            use std::marker::PhantomData;

            use super::*;
            use crate::kernels::isa::{$Isa, with_features};

            const BLOCK: usize = $BLOCK;

            macro_rules! vector {
                ($_:ident) => {
                    $Vector
                };
            }

            /// Signature of a stage of the level. The mask comes in two halves, because joining them from
            /// vectors and splitting them again is cheaper than one 64-bit mask (decision: mask-halves).
            type StageFn = unsafe extern $abi fn(
                *const StageCall,
                *const OperandSlot,
                usize,
                u64,
                u32,
                u32,
                $(vector!($v)),*
            );

            with_features! {
                $level
                unsafe extern $abi fn shell<B: StageBody, const BROADCAST: bool, const CLONE: usize>(
                    stage_call: *const StageCall,
                    slots: *const OperandSlot,
                    block: usize,
                    saved_mask: u64,
                    low: u32,
                    high: u32,
                    $($v: $Vector),*
                ) {
                    if CLONE > 0 {
                        // SAFETY: an assembler comment. It differs for each clone, so the compiler does not
                        // merge clones.
                        unsafe { asm!("/* {} */", const CLONE, options(nomem, nostack, preserves_flags)) };
                    }
                    let mask = u64::from(high) << 32 | u64::from(low);
                    let state = BlockState { mask, saved_mask, block: [$($v),*] };
                    // SAFETY: the caller of a program promises that its calls and slots are as the stages
                    // need them.
                    unsafe {
                        let OperandSlot { at, advance } = *slots.byte_add((*stage_call).slot);
                        let at = at.wrapping_add(advance.wrapping_mul(block));
                        let part = (block & PART != 0).then(|| (*slots.sub(ROW_SLOTS)).advance);
                        let at = OperandPtr { at, part, is_broadcast: BROADCAST };
                        let state = B::run::<$Isa, _, BLOCK>(state, at, &(*stage_call).params);
                        let BlockState { mask, saved_mask, block: [$($v),*] } = state;
                        if !B::ENDS {
                            let (low, high) = (mask as u32, (mask >> 32) as u32);
                            next(stage_call.add(1), slots, block, saved_mask, low, high, $($v),*);
                        }
                    }
                }
            }

            with_features! {
                $level
                /// Calls a stage. As the last operation of a function it is a jump.
                ///
                /// # Safety
                ///
                /// As for [`RowFn`].
                #[inline]
                unsafe fn next(
                    stage_call: *const StageCall,
                    slots: *const OperandSlot,
                    block: usize,
                    saved_mask: u64,
                    low: u32,
                    high: u32,
                    $($v: $Vector),*
                ) {
                    // SAFETY: all stages of the level have its signature.
                    unsafe {
                        let EntryPoint(stage) = (*stage_call).entry_point;
                        let stage = std::mem::transmute::<unsafe extern "C" fn(), StageFn>(stage);
                        stage(stage_call, slots, block, saved_mask, low, high, $($v),*);
                    }
                }
            }

            with_features! {
                $level
                unsafe fn run_row(
                    stage_calls: *const StageCall,
                    slots: *mut OperandSlot,
                    columns: usize,
                ) {
                    let (blocks, rest) = (columns / BLOCK, columns % BLOCK);
                    // SAFETY: zeros are valid vectors; the rest as the caller promises.
                    unsafe {
                        let [$($v),*] = std::mem::zeroed();
                        (*slots.sub(ROW_SLOTS)).advance = rest;
                        // A row of at most one block skips the set-up of the loop
                        // (decision: single-block-row).
                        if columns <= BLOCK {
                            let block = if columns < BLOCK { PART } else { 0 };
                            return next(stage_calls, slots, block, 0, 0, 0, $($v),*);
                        }
                        for block in 0..blocks {
                            next(stage_calls, slots, block, 0, 0, 0, $($v),*);
                        }
                        if rest > 0 {
                            next(stage_calls, slots, blocks | PART, 0, 0, 0, $($v),*);
                        }
                    }
                }
            }

            with_features! {
                $level
                unsafe fn run_column(
                    stage_calls: *const StageCall,
                    slots: *mut OperandSlot,
                    Extent { rows, columns }: Extent,
                ) {
                    let part = if columns < BLOCK { PART } else { 0 };
                    // SAFETY: zeros are valid vectors; the rest as the caller promises.
                    unsafe {
                        let [$($v),*] = std::mem::zeroed();
                        (*slots.sub(ROW_SLOTS)).advance = columns;
                        for row in 0..rows {
                            next(stage_calls, slots, row | part, 0, 0, 0, $($v),*);
                        }
                    }
                }
            }

            pub(super) const DRIVERS: (RowFn, ColumnFn) = (run_row, run_column);

            /// Bytes of the widest elements whose block fits into the registers.
            const WIDEST: usize = size_of::<($(vector!($v),)*)>() / BLOCK;

            const fn erased(stage: StageFn) -> EntryPoint {
                // SAFETY: function pointers have one size, and the pointer is called by its true type only.
                EntryPoint(unsafe { std::mem::transmute::<StageFn, unsafe extern "C" fn()>(stage) })
            }

            /// The stage of a body, if the registers hold a block of its elements.
            pub(super) const fn stage<B: StageBody>() -> Option<Stage> {
                if B::BYTES > WIDEST {
                    return None;
                }
                let reads = if B::READS || B::LOADS { Some(Reading::<B>::READS) } else { None };
                Some(Stage { contiguous: erased(shell::<B, false, 0>), reads })
            }

            struct Reading<B>(PhantomData<B>);

            impl<B: StageBody> Reading<B> {
                const READS: &'static OperandEntries = &OperandEntries {
                    broadcast: if B::READS { Some(erased(shell::<B, true, 0>)) } else { None },
                    clones: if B::LOADS {
                        &[
                            erased(shell::<B, false, 1>),
                            erased(shell::<B, false, 2>),
                            erased(shell::<B, false, 3>),
                        ]
                    } else if B::BYTES < WIDEST {
                        &[erased(shell::<B, false, 1>)]
                    } else {
                        // Stages of the widest elements have no clones: their code is long, and a clone of
                        // each would add 40 KB.
                        &[]
                    },
                };
            }
        }
    };
}

// The convention of Unix passes vectors in registers; that of C on Windows passes them by address.
#[cfg(target_arch = "x86_64")]
shells!(avx2 Avx2 "sysv64", block_len(Level::Avx2), x86_64::__m256i: a b c d e f g h);
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
shells!(avx512 Avx512 "sysv64", block_len(Level::Avx512), x86_64::__m512i: a b c d e f g h);
#[cfg(target_arch = "aarch64")]
shells!(neon Neon "C", block_len(Level::Neon), aarch64::uint8x16_t: a b c d e f g h);

/// Elements of a block of a level: as many of 4 bytes as eight of its vectors hold, and at most as many as a
/// mask has bits.
pub(crate) const fn block_len(level: Level) -> usize {
    match level {
        Level::Neon => 32,
        Level::Portable | Level::Avx2 | Level::Avx512 => BLOCK,
    }
}

/// A stage that no level has.
pub(super) const NONE: Stages = [None; LEVELS.len()];

/// Level Portable, which has no vectors to pass.
mod portable {
    use crate::kernels::fused::shells::{ColumnFn, RowFn, StageBody};
    use crate::kernels::fused::stage::{OperandSlot, Stage, StageCall};

    /// Runs the programs of the level: there are none.
    unsafe fn nothing<E>(_: *const StageCall, _: *mut OperandSlot, _: E) {}

    pub(super) const DRIVERS: (RowFn, ColumnFn) = (nothing, nothing);

    pub(super) const fn stage<B: StageBody>() -> Option<Stage> {
        None
    }
}

pub(super) const DRIVERS: ByLevel<(RowFn, ColumnFn)> = by_level!(DRIVERS);

/// The stages of a body, at each level whose registers hold a block of its elements.
pub(super) const fn stages<B: StageBody>() -> Stages {
    macro_rules! of {
        ($level:ident) => {
            $level::stage::<B>()
        };
    }
    by_level!(of!)
}
