//! Elements in bytes: those of whole bytes, and those of four bits.

/// The elements of a type of `N` bytes.
pub(super) fn elements<const N: usize>(bytes: &[u8]) -> &[[u8; N]] {
    bytes.as_chunks().0
}

/// The elements of a type of `N` bytes, to be written.
pub(super) fn elements_mut<const N: usize>(bytes: &mut [u8]) -> &mut [[u8; N]] {
    bytes.as_chunks_mut().0
}

/// The n-th of elements of four bits; a byte holds two, the first in its low half.
pub(super) fn nibble(bytes: &[u8], at: usize) -> u8 {
    bytes[at / 2] >> (4 * (at % 2)) & 0xf
}

/// Replaces the n-th of the elements of four bits.
pub(super) fn set_nibble(bytes: &mut [u8], at: usize, element: u8) {
    let (byte, shift) = (&mut bytes[at / 2], 4 * (at % 2));
    *byte = *byte & !(0xf << shift) | element << shift;
}
