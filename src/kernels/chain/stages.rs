//! The stages of chains: bodies for any level, and the shells that pass the state on in registers.

#![allow(improper_ctypes_definitions, reason = "the C ABI passes vectors in registers; both sides are Rust")]
#![allow(clippy::too_many_arguments, reason = "arguments are the registers that a stage hands on")]

use std::marker::PhantomData;

use super::vectors::Vectors;
use super::{BLOCK, Call, Cell, Ending, Entry, ROW_CELLS, Reads, Stage, Stages};
use crate::kernels::pointwise::{Function1, Function2, Isa, Params, Plain, read_part};
use crate::kernels::{ByLevel, Lane, Stores, Width, bring, is_line};
use crate::types::function::Logic;

/// What stages hand on: a block of elements, the first bytes of `A`, a truth value for each, and others that wait.
struct State<A> {
    mask: u64,
    waiting: u64,
    block: A,
}

/// Where in memory a block is.
#[derive(Clone, Copy)]
struct Place {
    at: *mut u8,
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
    unsafe fn read<I: Isa, T: Plain>(self) -> [T; BLOCK] {
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
    unsafe fn write<I: Vectors, T: Plain, const STREAMED: bool>(self, block: [T; BLOCK]) {
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
    fn elements<T: Copy>(&self) -> [T; BLOCK] {
        const { assert!(size_of::<[T; BLOCK]>() <= size_of::<A>(), "a block is within the registers") };
        // SAFETY: the registers hold at least so many bytes, all of them initialised; `T` is a number.
        unsafe { (&raw const self.block).cast::<[T; BLOCK]>().read_unaligned() }
    }

    /// The state with another block.
    #[inline(always)]
    fn with<T: Copy>(mut self, elements: [T; BLOCK]) -> Self {
        const { assert!(size_of::<[T; BLOCK]>() <= size_of::<A>(), "a block is within the registers") };
        // SAFETY: the registers have room for so many bytes, and any bytes are vectors.
        unsafe { (&raw mut self.block).cast::<[T; BLOCK]>().write_unaligned(elements) };
        self
    }
}

/// The body of a stage.
trait Body {
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

/// The truth values that `f` gives for 16 elements at a time, of which the compiler makes comparisons of vectors.
///
/// # Safety
///
/// The machine runs the level.
#[inline(always)]
unsafe fn asked<I: Vectors>(f: impl Fn(usize) -> [u8; 16]) -> u64 {
    const { assert!(BLOCK == 4 * 16) };
    // Not a loop, as the compiler may leave one, and the block then goes through the stack.
    // SAFETY: as the caller promises.
    let [a, b, c, d] =
        unsafe { [I::truths(&f(0)), I::truths(&f(16)), I::truths(&f(32)), I::truths(&f(48))] }.map(u64::from);
    a | b << 16 | c << 32 | d << 48
}

/// 16 elements of a block, from `first` on.
#[inline(always)]
fn part<T: Plain>(block: &[T; BLOCK], first: usize) -> [T; 16] {
    let mut part = [T::default(); 16];
    part.copy_from_slice(&block[first..first + 16]);
    part
}

/// The truth values in memory, as bytes.
///
/// # Safety
///
/// The bytes can be read, and the machine runs the level.
#[inline(always)]
unsafe fn mask_at<I: Isa + Vectors>(at: Place) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { I::mask(&at.read::<I, u8>()) }
}

const fn larger(x: usize, y: usize) -> usize {
    if x > y { x } else { y }
}

struct Map1<F>(PhantomData<F>);
struct Map2<F>(PhantomData<F>);
struct Asked1<F>(PhantomData<F>);
struct Asked2<F>(PhantomData<F>);

impl<F: Function1> Body for Map1<F> {
    const BYTES: usize = larger(size_of::<F::X>(), size_of::<F::To>());

    #[inline(always)]
    unsafe fn run<I: Isa + Vectors, A: Copy>(state: State<A>, _: Place, params: &Params) -> State<A> {
        let to = F::of_block::<I, BLOCK>(&state.elements(), *params);
        state.with(to)
    }
}

impl<F: Function2> Body for Map2<F> {
    const READS: bool = true;
    const BYTES: usize = larger(size_of::<F::X>(), size_of::<F::To>());

    #[inline(always)]
    unsafe fn run<I: Isa + Vectors, A: Copy>(state: State<A>, at: Place, params: &Params) -> State<A> {
        // SAFETY: as the caller promises.
        let y = unsafe { at.read::<I, _>() };
        let to = F::of_block::<I, BLOCK>(&state.elements(), &y, *params);
        state.with(to)
    }
}

impl<F: Function1<To = u8>> Body for Asked1<F> {
    const BYTES: usize = size_of::<F::X>();

    #[inline(always)]
    unsafe fn run<I: Isa + Vectors, A: Copy>(state: State<A>, _: Place, params: &Params) -> State<A> {
        let x = state.elements();
        // SAFETY: as the caller promises.
        let mask = unsafe {
            asked::<I>(
                #[inline(always)]
                |i| F::of_block::<I, 16>(&part(&x, i), *params),
            )
        };
        State { mask, ..state }
    }
}

impl<F: Function2<To = u8>> Body for Asked2<F> {
    const READS: bool = true;
    const BYTES: usize = size_of::<F::X>();

    #[inline(always)]
    unsafe fn run<I: Isa + Vectors, A: Copy>(state: State<A>, at: Place, params: &Params) -> State<A> {
        let x = state.elements();
        // SAFETY: as the caller promises.
        let mask = unsafe {
            let y = at.read::<I, _>();
            asked::<I>(
                #[inline(always)]
                |i| F::of_block::<I, 16>(&part(&x, i), &part(&y, i), *params),
            )
        };
        State { mask, ..state }
    }
}

/// Makes any NaN of a block of f32 the one NaN.
struct Canonical;

impl Body for Canonical {
    const BYTES: usize = size_of::<f32>();

    #[inline(always)]
    unsafe fn run<I: Isa + Vectors, A: Copy>(state: State<A>, _: Place, _: &Params) -> State<A> {
        let block = I::canonical(state.elements::<f32>());
        state.with(block)
    }
}

/// Takes the block from memory.
struct Load<U>(PhantomData<U>);
/// Puts the block aside.
struct Keep<U>(PhantomData<U>);
/// Writes the block to memory, and ends.
struct Store<U>(PhantomData<U>);
/// Writes the block past the caches, where it starts at a cache line, and ends.
struct Stream<U>(PhantomData<U>);

/// Asks for a block that lies so many bytes ahead as its first parameter says, and may be beyond the end.
struct Ask<U>(PhantomData<U>);

impl<U: Lane> Body for Ask<U> {
    const LOADS: bool = true;
    const BYTES: usize = size_of::<U>();

    #[inline(always)]
    unsafe fn run<I: Isa + Vectors, A: Copy>(state: State<A>, at: Place, params: &Params) -> State<A> {
        bring(at.at.wrapping_offset(params[0] as isize), size_of::<[U; BLOCK]>());
        state
    }
}

impl<U: Lane> Body for Load<U> {
    const READS: bool = true;
    const LOADS: bool = true;
    const BYTES: usize = size_of::<U>();

    #[inline(always)]
    unsafe fn run<I: Isa + Vectors, A: Copy>(state: State<A>, at: Place, _: &Params) -> State<A> {
        // SAFETY: as the caller promises.
        let block = unsafe { at.read::<I, U>() };
        state.with(block)
    }
}

impl<U: Lane> Body for Keep<U> {
    const BYTES: usize = size_of::<U>();

    #[inline(always)]
    unsafe fn run<I: Isa + Vectors, A: Copy>(state: State<A>, at: Place, _: &Params) -> State<A> {
        // SAFETY: as the caller promises; what is put aside has room for a whole block.
        unsafe { at.at.cast::<[U; BLOCK]>().write_unaligned(state.elements()) };
        state
    }
}

impl<U: Lane> Body for Store<U> {
    const BYTES: usize = size_of::<U>();
    const ENDS: bool = true;

    #[inline(always)]
    unsafe fn run<I: Isa + Vectors, A: Copy>(state: State<A>, at: Place, _: &Params) -> State<A> {
        // SAFETY: as the caller promises.
        unsafe { at.write::<I, U, false>(state.elements()) };
        state
    }
}

impl<U: Lane> Body for Stream<U> {
    const BYTES: usize = size_of::<U>();
    const ENDS: bool = true;

    #[inline(always)]
    unsafe fn run<I: Isa + Vectors, A: Copy>(state: State<A>, at: Place, _: &Params) -> State<A> {
        // SAFETY: as the caller promises; the address is that of a cache line where it says so.
        unsafe {
            match is_line(at.at) {
                true => at.write::<I, U, true>(state.elements()),
                false => at.write::<I, U, false>(state.elements()),
            }
        }
        state
    }
}

/// Takes the truth values from bytes in memory.
struct LoadMask;
/// Puts the truth values aside, as bytes that are 0 or 1.
struct KeepMask;
/// Writes the truth values to memory, and ends.
struct StoreMask;
/// Has the truth values wait.
struct Wait;
/// Exchanges the truth values and those that wait.
struct Swap;
struct Not;
/// Joins the truth values with others: with those that wait, or those in memory.
struct And<const WAITING: bool>;
struct Or<const WAITING: bool>;
struct Xor<const WAITING: bool>;

impl Body for LoadMask {
    const READS: bool = true;
    const LOADS: bool = true;

    #[inline(always)]
    unsafe fn run<I: Isa + Vectors, A: Copy>(state: State<A>, at: Place, _: &Params) -> State<A> {
        // SAFETY: as the caller promises.
        State { mask: unsafe { mask_at::<I>(at) }, ..state }
    }
}

impl Body for KeepMask {
    #[inline(always)]
    unsafe fn run<I: Isa + Vectors, A: Copy>(state: State<A>, at: Place, _: &Params) -> State<A> {
        // SAFETY: as the caller promises; what is put aside has room for a whole block.
        unsafe { at.at.cast::<[u8; BLOCK]>().write_unaligned(I::bytes(state.mask)) };
        state
    }
}

impl Body for StoreMask {
    const ENDS: bool = true;

    #[inline(always)]
    unsafe fn run<I: Isa + Vectors, A: Copy>(state: State<A>, at: Place, _: &Params) -> State<A> {
        // SAFETY: as the caller promises.
        unsafe { at.write::<I, u8, false>(I::bytes(state.mask)) };
        state
    }
}

impl Body for Wait {
    #[inline(always)]
    unsafe fn run<I: Isa + Vectors, A: Copy>(state: State<A>, _: Place, _: &Params) -> State<A> {
        State { waiting: state.mask, ..state }
    }
}

impl Body for Swap {
    #[inline(always)]
    unsafe fn run<I: Isa + Vectors, A: Copy>(state: State<A>, _: Place, _: &Params) -> State<A> {
        State { mask: state.waiting, waiting: state.mask, ..state }
    }
}

impl Body for Not {
    #[inline(always)]
    unsafe fn run<I: Isa + Vectors, A: Copy>(state: State<A>, _: Place, _: &Params) -> State<A> {
        State { mask: !state.mask, ..state }
    }
}

macro_rules! connectives {
    ($($Name:ident: |$x:ident, $y:ident| $value:expr;)*) => {
        $(impl<const WAITING: bool> Body for $Name<WAITING> {
            const READS: bool = !WAITING;

            #[inline(always)]
            unsafe fn run<I: Isa + Vectors, A: Copy>(state: State<A>, at: Place, _: &Params) -> State<A> {
                // SAFETY: as the caller promises.
                let ($x, $y) = (state.mask, if WAITING { state.waiting } else { unsafe { mask_at::<I>(at) } });
                State { mask: $value, ..state }
            }
        })*
    };
}

connectives! {
    And: |x, y| x & y;
    Or: |x, y| x | y;
    Xor: |x, y| x ^ y;
}

/// The block where the truth values are as `TAKEN`, else what lies in memory.
struct Choose<U, const TAKEN: bool>(PhantomData<U>);

impl<U: Lane, const TAKEN: bool> Body for Choose<U, TAKEN> {
    const READS: bool = true;
    const BYTES: usize = size_of::<U>();

    #[inline(always)]
    unsafe fn run<I: Isa + Vectors, A: Copy>(state: State<A>, at: Place, _: &Params) -> State<A> {
        // SAFETY: as the caller promises.
        let chosen = unsafe {
            let (own, other) = (state.elements::<U>(), at.read::<I, U>());
            let (then, else_) = if TAKEN { (own, other) } else { (other, own) };
            I::choose(state.mask, &then, &else_)
        };
        state.with(chosen)
    }
}

/// Marks the number of a block at the end of a row, of which some elements are missing. What comes before a block, a multiple
/// of 64 for each, is the same with the mark and without.
#[cfg(target_arch = "x86_64")]
const PART: usize = 1 << (usize::BITS - 1);

/// Runs a program on a row of elements.
///
/// # Safety
///
/// The calls are stages of one level, the last of them an [`ending`]; every cell that they name holds so many elements that
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
const NONE: Stages = [None; 3];

#[cfg(target_arch = "x86_64")]
pub(super) const ROW: ByLevel<Row> = [nothing, avx2::row, avx512::row];

#[cfg(not(target_arch = "x86_64"))]
pub(super) const ROW: ByLevel<Row> = [nothing; 3];

/// Runs the programs of a level that has none.
unsafe fn nothing(_: *const Call, _: *mut Cell, _: usize) {}

/// The stages of a body, at the levels whose registers hold a block of its elements.
const fn stages<B: Body>() -> Stages {
    #[cfg(target_arch = "x86_64")]
    return [
        None,
        if B::BYTES <= avx2::WIDEST { Some(avx2::stage::<B>()) } else { None },
        if B::BYTES <= avx512::WIDEST { Some(avx512::stage::<B>()) } else { None },
    ];
    #[cfg(not(target_arch = "x86_64"))]
    return NONE;
}

/// Whether a function that is computed in blocks of `N` is cheap enough to be worth a stage: those that take long gain nothing
/// from a chain.
const fn is_cheap<const N: usize>() -> bool {
    N >= BLOCK
}

/// The block through a function that is computed in blocks of `N`. Results of one byte are left to steps, as the code of
/// all that can become so small would be much and is seldom needed.
pub(in crate::kernels) const fn map1<F: Function1, const N: usize>() -> Stages {
    let is_narrow = size_of::<F::To>() == 1 || (size_of::<F::X>() == 1 && size_of::<F::To>() == 2);
    if is_cheap::<N>() && !is_narrow { stages::<Map1<F>>() } else { NONE }
}

/// The block, and one in memory, through a function that is computed in blocks of `N`.
pub(in crate::kernels) const fn map2<F: Function2, const N: usize>() -> Stages {
    if is_cheap::<N>() { stages::<Map2<F>>() } else { NONE }
}

/// The truth values of a question to the block.
pub(in crate::kernels) const fn asked1<F: Function1<To = u8>, const N: usize>() -> Stages {
    if is_cheap::<N>() { stages::<Asked1<F>>() } else { NONE }
}

/// The truth values of a question to the block and one in memory.
pub(in crate::kernels) const fn asked2<F: Function2<To = u8>, const N: usize>() -> Stages {
    if is_cheap::<N>() { stages::<Asked2<F>>() } else { NONE }
}

/// One stage for each width that a state holds.
macro_rules! by_width {
    ($width:expr, $U:ident => $Body:ty) => {
        match $width {
            Width::W1 => {
                type $U = u8;
                const { stages::<$Body>() }
            }
            Width::W2 => {
                type $U = u16;
                const { stages::<$Body>() }
            }
            Width::W4 => {
                type $U = u32;
                const { stages::<$Body>() }
            }
            Width::W8 => {
                type $U = u64;
                const { stages::<$Body>() }
            }
        }
    };
}

/// Takes a block of a width from memory.
pub(crate) fn load(width: Width) -> Stages {
    by_width!(width, U => Load<U>)
}

/// Asks for a block of a width that lies some bytes ahead in memory, the first parameter.
pub(crate) fn ask(width: Width) -> Stages {
    by_width!(width, U => Ask<U>)
}

/// Puts a block of a width aside.
pub(crate) fn keep(width: Width) -> Stages {
    by_width!(width, U => Keep<U>)
}

/// Stores what a program gives, and ends it.
pub(super) fn ending(ending: Ending) -> Stages {
    match ending {
        Ending::Block(width, Stores::Ordinary) => by_width!(width, U => Store<U>),
        Ending::Block(width, Stores::Streaming) => by_width!(width, U => Stream<U>),
        Ending::Truths => const { stages::<StoreMask>() },
    }
}

/// Makes any NaN of a block of f32 the one NaN.
pub(crate) fn canonical() -> Stages {
    const { stages::<Canonical>() }
}

/// Takes truth values from memory.
pub(crate) fn load_mask() -> Stages {
    const { stages::<LoadMask>() }
}

/// Puts the truth values aside.
pub(crate) fn keep_mask() -> Stages {
    const { stages::<KeepMask>() }
}

/// The truth values turned around.
pub(in crate::kernels) const fn not() -> Stages {
    stages::<Not>()
}

/// The truth values wait, and stay.
pub(crate) fn wait() -> Stages {
    const { stages::<Wait>() }
}

/// The truth values, and those that wait, in each other's place.
pub(crate) fn swap() -> Stages {
    const { stages::<Swap>() }
}

/// The truth values joined with those in memory.
pub(in crate::kernels) const fn logic(logic: Logic) -> Stages {
    match logic {
        Logic::And => stages::<And<false>>(),
        Logic::Or => stages::<Or<false>>(),
        Logic::Xor => stages::<Xor<false>>(),
    }
}

/// The truth values joined with those that wait.
pub(crate) fn logic_of_both(logic: Logic) -> Stages {
    match logic {
        Logic::And => const { stages::<And<true>>() },
        Logic::Or => const { stages::<Or<true>>() },
        Logic::Xor => const { stages::<Xor<true>>() },
    }
}

/// The block where the truth values are as `taken`, else the one in memory.
pub(crate) fn choose(width: Width, taken: bool) -> Stages {
    match taken {
        true => by_width!(width, U => Choose<U, true>),
        false => by_width!(width, U => Choose<U, false>),
    }
}
