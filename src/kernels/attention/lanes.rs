//! Traversal of the columns of a tile by vectors.

use crate::kernels::vector::{LANES, Lanes};

/// Consecutive vectors of a row; the last has `count` numbers if they are a `PART`; the others are
/// `pad`.
///
/// # Safety
///
/// The numbers can be read, and the machine runs the level.
#[inline(always)]
pub(super) unsafe fn read<I: Lanes, const N: usize, const PART: bool>(
    row: *const f32,
    count: usize,
    pad: f32,
) -> [I::F; N] {
    // SAFETY: as the caller promises.
    unsafe {
        let mut x = [I::splat(pad); N];
        for (i, x) in x.iter_mut().enumerate() {
            let at = row.add(i * LANES);
            *x = if PART && i == N - 1 { I::load_first(at, count, pad) } else { I::load(at) };
        }
        x
    }
}

/// Writes what [`read`] reads.
///
/// # Safety
///
/// The numbers can be written, and the machine runs the level.
#[inline(always)]
pub(super) unsafe fn write<I: Lanes, const N: usize, const PART: bool>(
    row: *mut f32,
    count: usize,
    x: [I::F; N],
) {
    // SAFETY: as the caller promises.
    unsafe {
        for (i, &x) in x.iter().enumerate() {
            let at = row.add(i * LANES);
            if PART && i == N - 1 { I::store_first(at, count, x) } else { I::store(at, x) }
        }
    }
}

/// Calls a function for groups of columns of a tile, with the column of the first vector and the numbers of
/// the last vector as its last arguments. Its generics are the level, the vectors of a group, and whether the
/// last one may be a part.
macro_rules! by_columns {
    ($I:ident, $queries:expr, $function:ident($($argument:expr),*)) => {{
        let queries: usize = $queries;
        if $I::HAS_MANY_REGISTERS && queries == QUERIES {
            $function::<$I, { QUERIES / LANES }, false>($($argument,)* 0, LANES);
        } else {
            for first in (0..queries).step_by(LANES) {
                match queries - first {
                    LANES.. if !$I::HAS_MANY_REGISTERS => {
                        $function::<$I, 1, false>($($argument,)* first, LANES)
                    }
                    count => $function::<$I, 1, true>($($argument,)* first, count.min(LANES)),
                }
            }
        }
    }};
}

pub(super) use by_columns;
