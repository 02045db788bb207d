//! Reads and writes parts of blocks: the ends of rows.

use std::mem::MaybeUninit;

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
use super::vector512::{load_bytes, mask_of_first, store_bytes};
use crate::kernels::isa::Isa;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
use crate::types::kind::Level;

/// The type of an element in memory; the default value pads the end of a row.
pub(in crate::kernels) trait Pod: Copy + Default + 'static {}

impl<T: Copy + Default + 'static> Pod for T {}

/// Writes the block that starts at a column, with `count` elements within the row.
///
/// # Safety
///
/// Those elements can be written.
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
#[inline(always)]
pub(in crate::kernels) unsafe fn write_part<I: Isa, T: Pod, const N: usize>(
    row: *mut T,
    column: usize,
    count: usize,
    block: [T; N],
) {
    let to = row.wrapping_add(column);
    #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
    if I::LEVEL == Level::Avx512 && count != N {
        for (at, mask) in masks::<I, T, N>(count) {
            // SAFETY: as the caller promises, and the level is Avx512; the block is as large as the masks.
            unsafe {
                store_bytes(to.cast::<u8>().wrapping_add(at), mask, block.as_ptr().cast::<u8>().add(at))
            };
        }
        return;
    }
    // Copying a partial block only leaves whole blocks in registers.
    let mut part = MaybeUninit::<[T; N]>::uninit();
    let whole = if count == N { to.cast() } else { part.as_mut_ptr() };
    // SAFETY: as the caller promises; the copy is not part of the row.
    unsafe {
        whole.write_unaligned(block);
        if count != N {
            copy_short(part.as_ptr().cast(), to.cast(), count * size_of::<T>());
        }
    }
}

/// Bytes of the largest block.
const LARGEST: usize = 1024;

/// Memory for one block. It is aligned, because unaligned vectors on the stack may lie across two pages
/// (decision: aligned-block).
#[repr(align(64))]
pub(in crate::kernels) struct BlockBuffer {
    bytes: [MaybeUninit<u8>; LARGEST],
    /// The bytes of the block have been written.
    is_padded: bool,
}

impl BlockBuffer {
    pub(in crate::kernels) const BYTES: usize = LARGEST;

    #[inline(always)]
    pub(in crate::kernels) const fn new() -> Self {
        Self { bytes: [MaybeUninit::uninit(); LARGEST], is_padded: false }
    }

    /// Does not compile for blocks that a buffer cannot have.
    pub(in crate::kernels) const fn check(bytes: usize) {
        assert!(bytes.is_multiple_of(8) && bytes <= LARGEST, "a buffer has room for a number of words");
    }

    #[inline(always)]
    pub(in crate::kernels) fn at(&self) -> *const u8 {
        self.bytes.as_ptr().cast()
    }

    #[inline(always)]
    pub(in crate::kernels) fn at_mut(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr().cast()
    }

    /// Fills a block with one element.
    ///
    /// # Safety
    ///
    /// An element of `size` bytes, 1, 2, 4 or 8, can be read; [`check`](Self::check) allows the block.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn repeat(&mut self, from: *const u8, size: usize, block_len: usize) {
        // SAFETY: as the caller promises.
        let word = unsafe {
            match size {
                1 => u64::from(from.read()) * 0x0101_0101_0101_0101,
                2 => u64::from(from.cast::<u16>().read_unaligned()) * 0x0001_0001_0001_0001,
                4 => u64::from(from.cast::<u32>().read_unaligned()) * 0x0000_0001_0000_0001,
                _ => from.cast::<u64>().read_unaligned(),
            }
        };
        let words = self.at_mut().cast::<u64>();
        for at in 0..size * block_len / size_of::<u64>() {
            // SAFETY: as the caller promises; the memory is aligned.
            unsafe { words.add(at).write(word) };
        }
    }

    /// Reads the first bytes of a block; the others are 0.
    ///
    /// # Safety
    ///
    /// The bytes can be read; `count` is the same at each call, and below the bytes of the block, which
    /// [`check`](Self::check) allows.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn read(&mut self, from: *const u8, count: usize, block: usize) {
        // SAFETY: as the caller promises; the memory is not part of the row.
        unsafe {
            if !self.is_padded {
                self.at_mut().write_bytes(0, block);
                self.is_padded = true;
            }
            copy_short(from, self.at_mut(), count);
        }
    }

    /// Writes the first bytes of the block to a row.
    ///
    /// # Safety
    ///
    /// They can be written, and the block is initialised, which [`check`](Self::check) allows.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn write(&self, to: *mut u8, count: usize) {
        // SAFETY: as the caller promises; the memory is not part of the row.
        unsafe { copy_short(self.at(), to, count) };
    }
}

/// The first elements of a block; the others have the default value.
///
/// # Safety
///
/// Those elements can be read.
#[inline(always)]
pub(in crate::kernels) unsafe fn read_part<I: Isa, T: Pod, const N: usize>(
    from: *const T,
    count: usize,
) -> [T; N] {
    let mut part = [T::default(); N];
    #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
    if I::LEVEL == Level::Avx512 {
        for (at, mask) in masks::<I, T, N>(count) {
            // SAFETY: as the caller promises, and the level is Avx512; the block is as large as the masks.
            unsafe {
                load_bytes(part.as_mut_ptr().cast::<u8>().add(at), from.cast::<u8>().wrapping_add(at), mask)
            };
        }
        return part;
    }
    // SAFETY: as the caller promises; the copy is not part of the row.
    unsafe { copy_short(from.cast(), part.as_mut_ptr().cast(), count * size_of::<T>()) };
    part
}

/// The vectors of a block by offset, each with the mask of the bytes of the first `count` elements; for level
/// Avx512, whose blocks are a number of vectors.
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
#[inline(always)]
fn masks<I: Isa, T, const N: usize>(count: usize) -> impl Iterator<Item = (usize, u64)> {
    const {
        let is_of_vectors = (N * size_of::<T>()).is_multiple_of(64);
        assert!(is_of_vectors || !matches!(I::LEVEL, Level::Avx512), "a block is a number of vectors");
    }
    let bytes = count * size_of::<T>();
    (0..N * size_of::<T>()).step_by(64).map(
        #[inline(always)]
        move |at| (at, mask_of_first(bytes.saturating_sub(at))),
    )
}

/// Copies less than a block, mostly without a call of `memcpy`, which takes as long as a whole short row. Not
/// inlined, because it would be most of every kernel below level Avx512, which uses masks instead.
///
/// # Safety
///
/// `count` bytes can be read and written, and do not overlap.
#[inline(never)]
unsafe fn copy_short(from: *const u8, to: *mut u8, count: usize) {
    /// Copies two units, which overlap or meet.
    ///
    /// # Safety
    ///
    /// As for [`copy_short`], from one unit to two of them.
    #[inline(always)]
    unsafe fn ends<U: Copy>(from: *const u8, to: *mut u8, count: usize) {
        let last = count - size_of::<U>();
        // SAFETY: as the caller promises.
        unsafe {
            let (head, tail) =
                (from.cast::<U>().read_unaligned(), from.add(last).cast::<U>().read_unaligned());
            to.cast::<U>().write_unaligned(head);
            to.add(last).cast::<U>().write_unaligned(tail);
        }
    }
    // SAFETY: as the caller promises.
    unsafe {
        match count {
            0 => {}
            1 => to.write(from.read()),
            2..4 => ends::<u16>(from, to, count),
            4..8 => ends::<u32>(from, to, count),
            8..16 => ends::<u64>(from, to, count),
            16..32 => ends::<[u64; 2]>(from, to, count),
            32..64 => ends::<[u64; 4]>(from, to, count),
            64..128 => ends::<[u64; 8]>(from, to, count),
            _ => from.copy_to_nonoverlapping(to, count),
        }
    }
}
