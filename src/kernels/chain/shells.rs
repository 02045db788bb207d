//! How stages are called: what they hand on, and the shells that pass it in registers.

#![allow(improper_ctypes_definitions, reason = "the C ABI passes vectors in registers; both sides are Rust")]
#![allow(clippy::too_many_arguments, reason = "arguments are the registers that a stage hands on")]

use super::vectors::Vectors;
use super::{BLOCK, Call, Cell, Entry, ROW_CELLS, Reads, Stage, Stages};
use crate::kernels::ByLevel;
use crate::kernels::pointwise::{Isa, Params, Plain, read_part};

/// What stages hand on: a block of elements, the first bytes of `A`, a truth value for each, and others that wait.
pub(super) struct State<A> {
    pub(super) mask: u64,
    pub(super) waiting: u64,
    pub(super) block: A,
}

/// Where in memory a block is.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) at: *mut u8,
    /// How many elements of the block there are at the end of a row; nothing where all are there.
    part: Option<usize>,
    /// Whether there is one element, which stands for all.
    is_repeated: bool,
}

impl Place {
    /// The elements there; what is beyond them is anything.
    ///
    /// # Safety
    ///
    /// They can be read, and the machine runs the level.
    #[inline(always)]
    pub(super) unsafe fn read<I: Isa, T: Plain>(self) -> [T; BLOCK] {
        // SAFETY: as the caller promises.
        unsafe {
            if self.is_repeated {
                return [self.at.cast::<T>().read_unaligned(); BLOCK];
            }
            match self.part {
                None => self.at.cast::<[T; BLOCK]>().read_unaligned(),
                Some(count) => read_part::<I, T, BLOCK>(self.at.cast(), count),
            }
        }
    }

    /// Writes the elements there; see [`Vectors::write`].
    ///
    /// # Safety
    ///
    /// They can be written, and the machine runs the level.
    #[inline(always)]
    pub(super) unsafe fn write<I: Vectors, T: Plain, const STREAMED: bool>(self, block: [T; BLOCK]) {
        // SAFETY: as the caller promises.
        unsafe {
            match self.part {
                None => I::write::<T, STREAMED>(self.at, &block, BLOCK),
                Some(count) => I::write::<T, STREAMED>(self.at, &block, count),
            }
        }
    }
}

impl<A: Copy> State<A> {
    /// The block, as elements of a type.
    #[inline(always)]
    pub(super) fn elements<T: Copy>(&self) -> [T; BLOCK] {
        const { assert!(size_of::<[T; BLOCK]>() <= size_of::<A>(), "a block is within the registers") };
        // SAFETY: the registers hold at least so many bytes, all of them initialised; `T` is a number.
        unsafe { (&raw const self.block).cast::<[T; BLOCK]>().read_unaligned() }
    }

    /// The state with another block.
    #[inline(always)]
    pub(super) fn with<T: Copy>(mut self, elements: [T; BLOCK]) -> Self {
        const { assert!(size_of::<[T; BLOCK]>() <= size_of::<A>(), "a block is within the registers") };
        // SAFETY: the registers have room for so many bytes, and any bytes are vectors.
        unsafe { (&raw mut self.block).cast::<[T; BLOCK]>().write_unaligned(elements) };
        self
    }
}

/// The body of a stage.
pub(super) trait Body {
    /// Whether it reads an operand in memory.
    const READS: bool = false;

    /// Bytes of the widest element that it takes or gives; 0 where it is about truth values alone.
    const BYTES: usize = 0;

    /// Whether nothing follows.
    const ENDS: bool = false;

    /// Whether all that it does is to load or to ask for an operand: its code is short.
    const LOADS: bool = false;

    /// # Safety
    ///
    /// The elements of the operand, if the body has one, can be read or written, and the machine runs the level.
    unsafe fn run<I: Isa + Vectors, A: Copy>(state: State<A>, at: Place, params: &Params) -> State<A>;
}

/// Marks the number of a block at the end of a row, of which some elements are missing. What comes before a block, a multiple
/// of 64 for each, is the same with the mark and without.
#[cfg(target_arch = "x86_64")]
const PART: usize = 1 << (usize::BITS - 1);

/// Runs a program on a row of elements.
///
/// # Safety
///
/// The calls are stages of one level, the last of them an [`ending`](super::stages::ending); every cell that they name holds so many elements that
/// can be read or written as they do, or one block that stays; the cell before the first is the row's own; the machine runs
/// the level.
pub(super) type Row = unsafe fn(calls: *const Call, cells: *mut Cell, columns: usize);

/// The shells of one level, which take the state in so many vectors.
#[cfg(target_arch = "x86_64")]
macro_rules! shells {
    ($level:ident $Isa:ident: $features:literal, $Vector:ident: $($v:ident)*) => {
        mod $level {
            use std::arch::asm;
            use std::arch::x86_64::$Vector;
            use std::marker::PhantomData;

            use super::*;
            use crate::kernels::pointwise::$Isa;

            macro_rules! vector {
                ($_:ident) => {
                    $Vector
                };
            }

            /// How stages of the level are called. The truth values come in two halves: to put them together from vectors
            /// and to take them apart again takes half as long, of a chain of three questions and selects a tenth.
            type Signature =
                unsafe extern "C" fn(*const Call, *const Cell, usize, u64, u32, u32, $(vector!($v)),*);

            #[target_feature(enable = $features)]
            unsafe extern "C" fn shell<B: Body, const REPEATED: bool, const PLACE: usize>(
                call: *const Call,
                cells: *const Cell,
                block: usize,
                waiting: u64,
                low: u32,
                high: u32,
                $($v: $Vector),*
            ) {
                if PLACE > 0 {
                    // SAFETY: this is a comment, by which the compiler takes what is alike for different.
                    unsafe { asm!("# {}", const PLACE, options(nomem, nostack, preserves_flags)) };
                }
                let state = State { mask: u64::from(high) << 32 | u64::from(low), waiting, block: [$($v),*] };
                // SAFETY: whoever runs a program promises that its calls and cells are as the stages need them.
                unsafe {
                    let Cell { at, advance } = *cells.byte_add((*call).cell);
                    let at = if REPEATED { at } else { at.wrapping_add(advance.wrapping_mul(block)) };
                    let part = (block & PART != 0).then(|| (*cells.sub(ROW_CELLS)).advance);
                    let at = Place { at, part, is_repeated: REPEATED };
                    let State { mask, waiting, block: [$($v),*] } = B::run::<$Isa, _>(state, at, &(*call).params);
                    if !B::ENDS {
                        next(call.add(1), cells, block, waiting, mask as u32, (mask >> 32) as u32, $($v),*);
                    }
                }
            }

            /// Calls a stage; where that is the last thing that is done, it is a jump.
            ///
            /// # Safety
            ///
            /// As for [`Row`].
            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn next(
                call: *const Call,
                cells: *const Cell,
                block: usize,
                waiting: u64,
                low: u32,
                high: u32,
                $($v: $Vector),*
            ) {
                // SAFETY: all stages of the level have its signature.
                unsafe {
                    let stage = std::mem::transmute::<unsafe extern "C" fn(), Signature>((*call).entry.0);
                    stage(call, cells, block, waiting, low, high, $($v),*);
                }
            }

            #[target_feature(enable = $features)]
            pub(super) unsafe fn row(calls: *const Call, cells: *mut Cell, columns: usize) {
                let (blocks, rest) = (columns / BLOCK, columns % BLOCK);
                // SAFETY: zeros are vectors; as the caller promises.
                unsafe {
                    let [$($v),*] = std::mem::zeroed();
                    (*cells.sub(ROW_CELLS)).advance = rest;
                    // What loops take to be set up is a tenth of the time of such a row.
                    if columns <= BLOCK {
                        let block = if columns < BLOCK { PART } else { 0 };
                        return next(calls, cells, block, 0, 0, 0, $($v),*);
                    }
                    for block in 0..blocks {
                        next(calls, cells, block, 0, 0, 0, $($v),*);
                    }
                    if rest > 0 {
                        next(calls, cells, blocks | PART, 0, 0, 0, $($v),*);
                    }
                }
            }

            /// Bytes of the widest elements of which the registers hold a block.
            pub(super) const WIDEST: usize = size_of::<($(vector!($v),)*)>() / BLOCK;

            const fn erased(stage: Signature) -> Entry {
                // SAFETY: functions are pointers of one size, and this one is called by its true type alone.
                Entry(unsafe { std::mem::transmute::<Signature, unsafe extern "C" fn()>(stage) })
            }

            pub(super) const fn stage<B: Body>() -> Stage {
                let reads = if B::READS || B::LOADS { Some(Reading::<B>::READS) } else { None };
                Stage { dense: erased(shell::<B, false, 0>), reads }
            }

            struct Reading<B>(PhantomData<B>);

            impl<B: Body> Reading<B> {
                const READS: &'static Reads = &Reads {
                    repeated: if B::READS { Some(erased(shell::<B, true, 0>)) } else { None },
                    elsewhere: if B::LOADS {
                        &[
                            erased(shell::<B, false, 1>),
                            erased(shell::<B, false, 2>),
                            erased(shell::<B, false, 3>),
                        ]
                    } else if B::BYTES < WIDEST {
                        &[erased(shell::<B, false, 1>)]
                    } else {
                        // The code for the widest elements is long: all of it twice would be another 40 KB.
                        &[]
                    },
                };
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
shells!(avx2 Avx2: "avx2,bmi1,bmi2,popcnt,fma,f16c", __m256i: a b c d e f g h);
#[cfg(target_arch = "x86_64")]
shells!(avx512 Avx512: "avx2,bmi1,bmi2,popcnt,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl", __m512i: a b c d e f g h);

/// No level of the machine has chains.
pub(super) const NONE: Stages = [None; 3];

#[cfg(target_arch = "x86_64")]
pub(super) const ROW: ByLevel<Row> = [nothing, avx2::row, avx512::row];

#[cfg(not(target_arch = "x86_64"))]
pub(super) const ROW: ByLevel<Row> = [nothing; 3];

/// Runs the programs of a level that has none.
unsafe fn nothing(_: *const Call, _: *mut Cell, _: usize) {}

/// The stages of a body, at the levels whose registers hold a block of its elements.
pub(super) const fn stages<B: Body>() -> Stages {
    #[cfg(target_arch = "x86_64")]
    return [
        None,
        if B::BYTES <= avx2::WIDEST { Some(avx2::stage::<B>()) } else { None },
        if B::BYTES <= avx512::WIDEST { Some(avx512::stage::<B>()) } else { None },
    ];
    #[cfg(not(target_arch = "x86_64"))]
    return NONE;
}
