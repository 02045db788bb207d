//! The stages of chains: their bodies, for any level, and which there are.

use std::marker::PhantomData;

use super::shells::{Body, NONE, Place, State, stages};
use super::vectors::Vectors;
use super::{BLOCK, Ending, Stages};
use crate::kernels::pointwise::{Function1, Function2, Isa, Params, Plain};
use crate::kernels::{Lane, Stores, Width, bring, is_line};
use crate::types::function::Logic;

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
