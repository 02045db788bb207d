//! How terms of an element of a pool become one.

use crate::kernels::vector::Lanes;

/// How terms are combined.
///
/// # Safety
///
/// The machine runs the level.
pub(super) trait JoinTerms: 'static {
    unsafe fn join<I: Lanes>(sum: I::F, x: I::F) -> I::F;
    /// With a term of a share.
    unsafe fn join_share<I: Lanes>(sum: I::F, x: I::F, share: f32) -> I::F;
    /// With terms that have a share each.
    unsafe fn join_shares<I: Lanes>(sum: I::F, x: I::F, shares: I::F) -> I::F;
}

/// Terms are added.
pub(super) struct SumOfTerms;

impl JoinTerms for SumOfTerms {
    #[inline(always)]
    unsafe fn join<I: Lanes>(sum: I::F, x: I::F) -> I::F {
        // SAFETY: as the caller promises.
        unsafe { I::add(sum, x) }
    }
    #[inline(always)]
    unsafe fn join_share<I: Lanes>(sum: I::F, x: I::F, share: f32) -> I::F {
        // SAFETY: as the caller promises.
        unsafe { I::add(sum, I::mul(x, I::splat(share))) }
    }
    #[inline(always)]
    unsafe fn join_shares<I: Lanes>(sum: I::F, x: I::F, shares: I::F) -> I::F {
        // SAFETY: as the caller promises.
        unsafe { I::add(sum, I::mul(x, shares)) }
    }
}

/// The largest term, or NaN.
pub(super) struct LargestTerm;

impl JoinTerms for LargestTerm {
    #[inline(always)]
    unsafe fn join<I: Lanes>(sum: I::F, x: I::F) -> I::F {
        // SAFETY: as the caller promises.
        unsafe { I::maximum(sum, x) }
    }
    #[inline(always)]
    unsafe fn join_share<I: Lanes>(sum: I::F, x: I::F, _: f32) -> I::F {
        // SAFETY: as the caller promises.
        unsafe { I::maximum(sum, x) }
    }
    #[inline(always)]
    unsafe fn join_shares<I: Lanes>(sum: I::F, x: I::F, _: I::F) -> I::F {
        // SAFETY: as the caller promises.
        unsafe { I::maximum(sum, x) }
    }
}
