//! Copies and fills of short runs of bytes.

/// Copies bytes: blocks, and a last one that may overlap the one before it. The call of a function would take
/// longer than most of the runs.
///
/// # Safety
///
/// All bytes can be read and written, and nothing overlaps.
#[inline(always)]
pub(super) unsafe fn copy_bytes(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        match bytes {
            64.. => copy_blocks::<64>(from, to, bytes),
            32.. => copy_blocks::<32>(from, to, bytes),
            16.. => copy_blocks::<16>(from, to, bytes),
            8.. => copy_blocks::<8>(from, to, bytes),
            4.. => copy_blocks::<4>(from, to, bytes),
            2.. => copy_blocks::<2>(from, to, bytes),
            1 => to.write(from.read()),
            0 => {}
        }
    }
}

/// # Safety
///
/// As [`copy_bytes`]; there are at least `N` bytes.
#[inline(always)]
pub(super) unsafe fn copy_blocks<const N: usize>(from: *const u8, to: *mut u8, bytes: usize) {
    let copy = |at: usize| {
        // SAFETY: as the caller promises; the block lies within the bytes.
        unsafe {
            let block = from.wrapping_add(at).cast::<[u8; N]>().read_unaligned();
            to.wrapping_add(at).cast::<[u8; N]>().write_unaligned(block);
        }
    };
    let mut at = 0;
    while at + N <= bytes {
        copy(at);
        at += N;
    }
    if at < bytes {
        copy(bytes - N);
    }
}

/// # Safety
///
/// All bytes can be written.
#[inline(always)]
pub(super) unsafe fn fill_bytes(to: *mut u8, fill: u8, bytes: usize) {
    if bytes > 0 {
        // SAFETY: as the caller promises.
        unsafe { to.write_bytes(fill, bytes) };
    }
}
