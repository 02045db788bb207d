//! Functions of one or two elements, as types. Kernels over tiles and stages of fused programs are made of
//! them.

use super::isa::Isa;
use super::simd::Pod;
use crate::types::function::Params;

/// A function of one element.
pub(in crate::kernels) trait Function1: 'static {
    type X: Pod;
    type To: Pod;

    fn of<I: Isa>(x: Self::X, params: Params) -> Self::To;

    /// The function of each element of a block.
    #[inline(always)]
    fn of_block<I: Isa, const N: usize>(x: &[Self::X; N], params: Params) -> [Self::To; N] {
        map_scalar::<Self, I, N>(x, params)
    }

    /// True if a result may be a NaN other than the canonical one, so that it must be canonicalised.
    const PRODUCES_NONCANONICAL_NAN: bool = false;

    /// A block of results, with any NaN replaced by the canonical NaN.
    #[inline(always)]
    fn canonicalise<I: Isa, const N: usize>(block: [Self::To; N]) -> [Self::To; N] {
        block
    }
}

/// Applies the function to each element; the compiler vectorises the loop.
#[inline(always)]
pub(in crate::kernels) fn map_scalar<F: Function1 + ?Sized, I: Isa, const N: usize>(
    x: &[F::X; N],
    params: Params,
) -> [F::To; N] {
    let mut to = [F::To::default(); N];
    for i in 0..N {
        to[i] = F::of::<I>(x[i], params);
    }
    to
}

/// A function of two elements of one type.
pub(in crate::kernels) trait Function2: 'static {
    type X: Pod;
    type To: Pod;

    fn of<I: Isa>(x: Self::X, y: Self::X, params: Params) -> Self::To;

    /// The function of each pair of elements of two blocks.
    #[inline(always)]
    fn of_block<I: Isa, const N: usize>(x: &[Self::X; N], y: &[Self::X; N], params: Params) -> [Self::To; N] {
        let mut to = [Self::To::default(); N];
        for i in 0..N {
            to[i] = Self::of::<I>(x[i], y[i], params);
        }
        to
    }

    /// As [`Function1::PRODUCES_NONCANONICAL_NAN`].
    const PRODUCES_NONCANONICAL_NAN: bool = false;

    /// As [`Function1::canonicalise`].
    #[inline(always)]
    fn canonicalise<I: Isa, const N: usize>(block: [Self::To; N]) -> [Self::To; N] {
        block
    }
}
