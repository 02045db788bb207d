//! The trait of conversions, and the number between two of them.

use crate::kernels::isa::Isa;
use crate::kernels::simd::Pod;

/// A conversion to a type.
pub(in crate::kernels) trait To<T: Pod>: Pod {
    fn to<I: Isa>(self) -> T;

    /// Converts a block, if the level has instructions for blocks.
    #[inline(always)]
    fn block_to<I: Isa, const N: usize>(block: &[Self; N]) -> [T; N] {
        let mut to = [T::default(); N];
        for i in 0..N {
            to[i] = block[i].to::<I>();
        }
        to
    }
}

/// An f32 that was rounded to odd: of the two f32 around a value, the one with an odd last bit. Rounding it
/// again, to a type of at least two bits less, gives the same as rounding the value itself.
#[derive(Clone, Copy, Default)]
pub(in crate::kernels) struct RoundedToOdd(pub(super) f32);
