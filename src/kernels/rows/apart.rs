//! Rows that are taken apart: each `step`-th element from each of the first ones on, so that what lies a step
//! apart becomes neighbours.

/// Copies elements of any alignment to an array.
///
/// # Safety
///
/// So many elements can be read, and are at most those of the array.
#[inline(always)]
pub(super) unsafe fn copy_to<T: Copy, const N: usize>(from: *const T, to: &mut [T; N], count: usize) {
    // SAFETY: as the caller promises; the bytes of elements have any alignment.
    unsafe { to.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(from.cast(), count * size_of::<T>()) };
}

/// Takes a row apart: each `step`-th element from each of the first ones on.
///
/// # Safety
///
/// So many elements can be read, and `step` parts be written.
#[inline(always)]
pub(super) unsafe fn take_apart<T: Copy + Default>(
    row: *const T,
    length: usize,
    part: usize,
    step: usize,
    to: *mut T,
) {
    // SAFETY: as the caller promises.
    unsafe {
        match step {
            2 => pairs_apart(row, length, part, to),
            _ => {
                for first in 0..step.min(length) {
                    for i in 0..(length - first).div_ceil(step) {
                        to.add(first * part + i).write(*row.add(i * step + first));
                    }
                }
            }
        }
    }
}

/// Takes a row of pairs apart. By blocks, so that the compiler exchanges lanes of registers.
///
/// # Safety
///
/// As [`take_apart`].
#[inline(always)]
unsafe fn pairs_apart<T: Copy + Default>(row: *const T, length: usize, part: usize, to: *mut T) {
    const PAIRS: usize = 16;
    let (pairs, mut done) = (length / 2, 0);
    // SAFETY: as the caller promises.
    unsafe {
        while done + PAIRS <= pairs {
            let mut both = [[T::default(); 2]; PAIRS];
            let (mut first, mut second) = ([T::default(); PAIRS], [T::default(); PAIRS]);
            copy_to(row.add(2 * done).cast(), &mut both, PAIRS);
            for i in 0..PAIRS {
                first[i] = both[i][0];
                second[i] = both[i][1];
            }
            to.add(done).copy_from_nonoverlapping(first.as_ptr(), PAIRS);
            to.add(part + done).copy_from_nonoverlapping(second.as_ptr(), PAIRS);
            done += PAIRS;
        }
        for i in 2 * done..length {
            to.add(i % 2 * part + i / 2).write(row.add(i).read());
        }
    }
}
