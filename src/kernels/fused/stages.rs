//! The stages of fused programs: bodies for any level, and the list of stages.

use std::marker::PhantomData;

use super::shells::{BlockState, NONE, OperandPtr, StageBody, stages};
use super::stage::{Stages, StoreKind};
use crate::kernels::function::{Function1, Function2};
use crate::kernels::isa::Isa;
use crate::kernels::simd::{LaneBits, Pod, Vectors};
use crate::kernels::{BLOCK, StorePolicy, Width, is_line, prefetch_l1};
use crate::types::function::{Logic, Params};

/// The mask of a predicate, computed for 16 elements at a time so that the compiler emits vector comparisons.
///
/// # Safety
///
/// The machine runs the level.
#[inline(always)]
unsafe fn predicate_mask<I: Vectors<N>, const N: usize>(f: impl Fn(usize) -> [u8; 16]) -> u64 {
    const { assert!(N == 4 * 16 || N == 2 * 16) };
    // Written out, because the compiler may keep a loop, which would pass the block through the stack.
    // SAFETY: as the caller promises.
    unsafe {
        let low = u64::from(I::mask_16(&f(0))) | u64::from(I::mask_16(&f(16))) << 16;
        if N == 2 * 16 {
            return low;
        }
        low | u64::from(I::mask_16(&f(32))) << 32 | u64::from(I::mask_16(&f(48))) << 48
    }
}

/// 16 elements of a block, starting at `first`.
#[inline(always)]
fn part<T: Pod, const N: usize>(block: &[T; N], first: usize) -> [T; 16] {
    let mut part = [T::default(); 16];
    part.copy_from_slice(&block[first..first + 16]);
    part
}

/// Loads a mask from bytes in memory.
///
/// # Safety
///
/// The bytes can be read, and the machine runs the level.
#[inline(always)]
unsafe fn mask_at<I: Isa + Vectors<N>, const N: usize>(at: OperandPtr) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { I::mask(&at.read::<I, u8, N>()) }
}

const fn larger(x: usize, y: usize) -> usize {
    if x > y { x } else { y }
}

struct Map1<F>(PhantomData<F>);
struct Map2<F>(PhantomData<F>);
struct Predicate1<F>(PhantomData<F>);
struct Predicate2<F>(PhantomData<F>);

impl<F: Function1> StageBody for Map1<F> {
    const BYTES: usize = larger(size_of::<F::X>(), size_of::<F::To>());

    #[inline(always)]
    unsafe fn run<I: Isa + Vectors<N>, A: Copy, const N: usize>(
        state: BlockState<A>,
        _: OperandPtr,
        params: &Params,
    ) -> BlockState<A> {
        let to = F::of_block::<I, N>(&state.elements(), *params);
        state.with(to)
    }
}

impl<F: Function2> StageBody for Map2<F> {
    const READS: bool = true;
    const BYTES: usize = larger(size_of::<F::X>(), size_of::<F::To>());

    #[inline(always)]
    unsafe fn run<I: Isa + Vectors<N>, A: Copy, const N: usize>(
        state: BlockState<A>,
        at: OperandPtr,
        params: &Params,
    ) -> BlockState<A> {
        // SAFETY: as the caller promises.
        let y = unsafe { at.read::<I, _, N>() };
        let to = F::of_block::<I, N>(&state.elements(), &y, *params);
        state.with(to)
    }
}

impl<F: Function1<To = u8>> StageBody for Predicate1<F> {
    const BYTES: usize = size_of::<F::X>();

    #[inline(always)]
    unsafe fn run<I: Isa + Vectors<N>, A: Copy, const N: usize>(
        state: BlockState<A>,
        _: OperandPtr,
        params: &Params,
    ) -> BlockState<A> {
        let x = state.elements::<_, N>();
        // SAFETY: as the caller promises.
        let mask = unsafe {
            predicate_mask::<I, N>(
                #[inline(always)]
                |i| F::of_block::<I, 16>(&part(&x, i), *params),
            )
        };
        BlockState { mask, ..state }
    }
}

impl<F: Function2<To = u8>> StageBody for Predicate2<F> {
    const READS: bool = true;
    const BYTES: usize = size_of::<F::X>();

    #[inline(always)]
    unsafe fn run<I: Isa + Vectors<N>, A: Copy, const N: usize>(
        state: BlockState<A>,
        at: OperandPtr,
        params: &Params,
    ) -> BlockState<A> {
        let x = state.elements::<_, N>();
        // SAFETY: as the caller promises.
        let mask = unsafe {
            let y = at.read::<I, _, N>();
            predicate_mask::<I, N>(
                #[inline(always)]
                |i| F::of_block::<I, 16>(&part(&x, i), &part(&y, i), *params),
            )
        };
        BlockState { mask, ..state }
    }
}

/// Replaces any NaN of a block of f32 by the canonical NaN.
struct Canonicalise;

impl StageBody for Canonicalise {
    const BYTES: usize = size_of::<f32>();

    #[inline(always)]
    unsafe fn run<I: Isa + Vectors<N>, A: Copy, const N: usize>(
        state: BlockState<A>,
        _: OperandPtr,
        _: &Params,
    ) -> BlockState<A> {
        let block = I::canonical(state.elements::<f32, N>());
        state.with(block)
    }
}

/// Loads the block from memory.
struct Load<U>(PhantomData<U>);
/// Spills the block.
struct Spill<U>(PhantomData<U>);
/// Stores the block and ends the program.
struct Store<U>(PhantomData<U>);
/// Stores the block non-temporally if it starts at a cache line, and ends the program.
struct StoreNonTemporal<U>(PhantomData<U>);

/// Prefetches the block whose distance in bytes is the first parameter; it may be beyond the end.
struct Prefetch<U>(PhantomData<U>);

impl<U: LaneBits> StageBody for Prefetch<U> {
    const LOADS: bool = true;
    const BYTES: usize = size_of::<U>();

    #[inline(always)]
    unsafe fn run<I: Isa + Vectors<N>, A: Copy, const N: usize>(
        state: BlockState<A>,
        at: OperandPtr,
        params: &Params,
    ) -> BlockState<A> {
        prefetch_l1(at.at.wrapping_offset(params[0] as isize), size_of::<[U; N]>());
        state
    }
}

impl<U: LaneBits> StageBody for Load<U> {
    const READS: bool = true;
    const LOADS: bool = true;
    const BYTES: usize = size_of::<U>();

    #[inline(always)]
    unsafe fn run<I: Isa + Vectors<N>, A: Copy, const N: usize>(
        state: BlockState<A>,
        at: OperandPtr,
        _: &Params,
    ) -> BlockState<A> {
        // SAFETY: as the caller promises.
        let block = unsafe { at.read::<I, U, N>() };
        state.with(block)
    }
}

impl<U: LaneBits> StageBody for Spill<U> {
    const BYTES: usize = size_of::<U>();

    #[inline(always)]
    unsafe fn run<I: Isa + Vectors<N>, A: Copy, const N: usize>(
        state: BlockState<A>,
        at: OperandPtr,
        _: &Params,
    ) -> BlockState<A> {
        // SAFETY: as the caller promises; a spill slot has room for a whole block.
        unsafe { at.at.cast::<[U; N]>().write_unaligned(state.elements()) };
        state
    }
}

impl<U: LaneBits> StageBody for Store<U> {
    const BYTES: usize = size_of::<U>();
    const ENDS: bool = true;

    #[inline(always)]
    unsafe fn run<I: Isa + Vectors<N>, A: Copy, const N: usize>(
        state: BlockState<A>,
        at: OperandPtr,
        _: &Params,
    ) -> BlockState<A> {
        // SAFETY: as the caller promises.
        unsafe { at.write::<I, U, N, false>(state.elements()) };
        state
    }
}

impl<U: LaneBits> StageBody for StoreNonTemporal<U> {
    const BYTES: usize = size_of::<U>();
    const ENDS: bool = true;

    #[inline(always)]
    unsafe fn run<I: Isa + Vectors<N>, A: Copy, const N: usize>(
        state: BlockState<A>,
        at: OperandPtr,
        _: &Params,
    ) -> BlockState<A> {
        // SAFETY: as the caller promises; `NON_TEMPORAL` is passed only for addresses of a cache line.
        unsafe {
            match is_line(at.at) {
                true => at.write::<I, U, N, true>(state.elements()),
                false => at.write::<I, U, N, false>(state.elements()),
            }
        }
        state
    }
}

/// Loads the mask from bytes in memory.
struct LoadMask;
/// Spills the mask as bytes that are 0 or 1.
struct SpillMask;
/// Stores the mask and ends the program.
struct StoreMask;
/// Copies the mask to the saved mask.
struct SaveMask;
/// Swaps the mask and the saved mask.
struct SwapMasks;
struct MaskNot;
/// Combines the mask with the saved mask, or with a mask in memory.
struct MaskAnd<const SAVED: bool>;
struct MaskOr<const SAVED: bool>;
struct MaskXor<const SAVED: bool>;

impl StageBody for LoadMask {
    const READS: bool = true;
    const LOADS: bool = true;

    #[inline(always)]
    unsafe fn run<I: Isa + Vectors<N>, A: Copy, const N: usize>(
        state: BlockState<A>,
        at: OperandPtr,
        _: &Params,
    ) -> BlockState<A> {
        // SAFETY: as the caller promises.
        BlockState { mask: unsafe { mask_at::<I, N>(at) }, ..state }
    }
}

impl StageBody for SpillMask {
    #[inline(always)]
    unsafe fn run<I: Isa + Vectors<N>, A: Copy, const N: usize>(
        state: BlockState<A>,
        at: OperandPtr,
        _: &Params,
    ) -> BlockState<A> {
        // SAFETY: as the caller promises; a spill slot has room for a whole block.
        unsafe { at.at.cast::<[u8; N]>().write_unaligned(I::bytes(state.mask)) };
        state
    }
}

impl StageBody for StoreMask {
    const ENDS: bool = true;

    #[inline(always)]
    unsafe fn run<I: Isa + Vectors<N>, A: Copy, const N: usize>(
        state: BlockState<A>,
        at: OperandPtr,
        _: &Params,
    ) -> BlockState<A> {
        // SAFETY: as the caller promises.
        unsafe { at.write::<I, u8, N, false>(I::bytes(state.mask)) };
        state
    }
}

impl StageBody for SaveMask {
    #[inline(always)]
    unsafe fn run<I: Isa + Vectors<N>, A: Copy, const N: usize>(
        state: BlockState<A>,
        _: OperandPtr,
        _: &Params,
    ) -> BlockState<A> {
        BlockState { saved_mask: state.mask, ..state }
    }
}

impl StageBody for SwapMasks {
    #[inline(always)]
    unsafe fn run<I: Isa + Vectors<N>, A: Copy, const N: usize>(
        state: BlockState<A>,
        _: OperandPtr,
        _: &Params,
    ) -> BlockState<A> {
        BlockState { mask: state.saved_mask, saved_mask: state.mask, ..state }
    }
}

impl StageBody for MaskNot {
    #[inline(always)]
    unsafe fn run<I: Isa + Vectors<N>, A: Copy, const N: usize>(
        state: BlockState<A>,
        _: OperandPtr,
        _: &Params,
    ) -> BlockState<A> {
        BlockState { mask: !state.mask, ..state }
    }
}

macro_rules! connectives {
    ($($Name:ident: |$x:ident, $y:ident| $value:expr;)*) => {
        $(impl<const SAVED: bool> StageBody for $Name<SAVED> {
            const READS: bool = !SAVED;

            #[inline(always)]
            unsafe fn run<I: Isa + Vectors<N>, A: Copy, const N: usize>(
                state: BlockState<A>,
                at: OperandPtr,
                _: &Params,
            ) -> BlockState<A> {
                // SAFETY: as the caller promises.
                let other = if SAVED { state.saved_mask } else { unsafe { mask_at::<I, N>(at) } };
                let ($x, $y) = (state.mask, other);
                BlockState { mask: $value, ..state }
            }
        })*
    };
}

connectives! {
    MaskAnd: |x, y| x & y;
    MaskOr: |x, y| x | y;
    MaskXor: |x, y| x ^ y;
}

/// Keeps the block where the mask is `TAKEN`, and loads the other elements from memory.
struct SelectBlock<U, const TAKEN: bool>(PhantomData<U>);

impl<U: LaneBits, const TAKEN: bool> StageBody for SelectBlock<U, TAKEN> {
    const READS: bool = true;
    const BYTES: usize = size_of::<U>();

    #[inline(always)]
    unsafe fn run<I: Isa + Vectors<N>, A: Copy, const N: usize>(
        state: BlockState<A>,
        at: OperandPtr,
        _: &Params,
    ) -> BlockState<A> {
        // SAFETY: as the caller promises.
        let selected = unsafe {
            let (own, other) = (state.elements::<U, N>(), at.read::<I, U, N>());
            let (then, else_) = if TAKEN { (own, other) } else { (other, own) };
            I::select(state.mask, &then, &else_)
        };
        state.with(selected)
    }
}

/// True if a function computed in blocks of `N` is light. Heavy functions gain nothing from register fusion.
const fn is_light<const N: usize>() -> bool {
    N >= BLOCK
}

/// Applies a function computed in blocks of `N`. Functions with results of one byte stay steps, but for
/// [those that chains have use of](narrowing1), because stages for all narrowing conversions would be much
/// code for little use.
pub(in crate::kernels) const fn map1<F: Function1, const N: usize>() -> Stages {
    let is_narrow = size_of::<F::To>() == 1 || (size_of::<F::X>() == 1 && size_of::<F::To>() == 2);
    if is_light::<N>() && !is_narrow { stages::<Map1<F>>() } else { NONE }
}

/// Applies a function whose results are bytes, of which chains have use.
pub(in crate::kernels) const fn narrowing1<F: Function1>() -> Stages {
    stages::<Map1<F>>()
}

/// Applies a function of two operands, the block and one in memory, computed in blocks of `N`.
pub(in crate::kernels) const fn map2<F: Function2, const N: usize>() -> Stages {
    if is_light::<N>() { stages::<Map2<F>>() } else { NONE }
}

/// Sets the mask to a predicate of the block.
pub(in crate::kernels) const fn predicate1<F: Function1<To = u8>, const N: usize>() -> Stages {
    if is_light::<N>() { stages::<Predicate1<F>>() } else { NONE }
}

/// Sets the mask to a predicate of the block and an operand in memory.
pub(in crate::kernels) const fn predicate2<F: Function2<To = u8>, const N: usize>() -> Stages {
    if is_light::<N>() { stages::<Predicate2<F>>() } else { NONE }
}

/// One stage for each width of elements.
macro_rules! by_width {
    ($width:expr, $U:ident => $StageBody:ty) => {
        match $width {
            Width::W1 => {
                type $U = u8;
                const { stages::<$StageBody>() }
            }
            Width::W2 => {
                type $U = u16;
                const { stages::<$StageBody>() }
            }
            Width::W4 => {
                type $U = u32;
                const { stages::<$StageBody>() }
            }
            Width::W8 => {
                type $U = u64;
                const { stages::<$StageBody>() }
            }
        }
    };
}

/// Loads a block of a width from memory.
pub(crate) fn load(width: Width) -> Stages {
    by_width!(width, U => Load<U>)
}

/// Prefetches a block of a width; the first parameter is the distance in bytes.
pub(crate) fn prefetch(width: Width) -> Stages {
    by_width!(width, U => Prefetch<U>)
}

/// Spills a block of a width.
pub(crate) fn spill(width: Width) -> Stages {
    by_width!(width, U => Spill<U>)
}

/// Stores the result of a program and ends it.
pub(super) fn store(store: StoreKind) -> Stages {
    match store {
        StoreKind::Block(width, StorePolicy::Temporal) => by_width!(width, U => Store<U>),
        StoreKind::Block(width, StorePolicy::NonTemporal) => by_width!(width, U => StoreNonTemporal<U>),
        StoreKind::Mask => const { stages::<StoreMask>() },
    }
}

/// Replaces any NaN of a block of f32 by the canonical NaN.
pub(crate) fn canonicalise() -> Stages {
    const { stages::<Canonicalise>() }
}

/// Loads the mask from memory.
pub(crate) fn load_mask() -> Stages {
    const { stages::<LoadMask>() }
}

/// Spills the mask.
pub(crate) fn spill_mask() -> Stages {
    const { stages::<SpillMask>() }
}

/// Inverts the mask.
pub(in crate::kernels) const fn not() -> Stages {
    stages::<MaskNot>()
}

/// Copies the mask to the saved mask.
pub(crate) fn save_mask() -> Stages {
    const { stages::<SaveMask>() }
}

/// Swaps the mask and the saved mask.
pub(crate) fn swap_masks() -> Stages {
    const { stages::<SwapMasks>() }
}

/// Combines the mask with one in memory.
pub(in crate::kernels) const fn logic(logic: Logic) -> Stages {
    match logic {
        Logic::And => stages::<MaskAnd<false>>(),
        Logic::Or => stages::<MaskOr<false>>(),
        Logic::Xor => stages::<MaskXor<false>>(),
    }
}

/// Combines the mask with the saved mask.
pub(crate) fn logic_masks(logic: Logic) -> Stages {
    match logic {
        Logic::And => const { stages::<MaskAnd<true>>() },
        Logic::Or => const { stages::<MaskOr<true>>() },
        Logic::Xor => const { stages::<MaskXor<true>>() },
    }
}

/// Keeps the block where the mask is `taken`, and loads the other elements from memory.
pub(crate) fn select(width: Width, taken: bool) -> Stages {
    match taken {
        true => by_width!(width, U => SelectBlock<U, true>),
        false => by_width!(width, U => SelectBlock<U, false>),
    }
}
