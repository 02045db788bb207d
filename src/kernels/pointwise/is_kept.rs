//! Which elements Dropout keeps, by random numbers of their indices: Philox4x32-10.

use crate::kernels::isa::{ByLevel, by_level, shells};
use crate::kernels::{Extent, Target};
use crate::types::kind::Level;

/// Writes 1 for each element that is kept, and 0 for each that is dropped.
///
/// # Safety
///
/// The parameters can be read, every element of the tile can be written, and the machine runs the kernel's
/// level.
pub(crate) type IsKept =
    unsafe fn(extent: Extent, index: LinearIndex, parameters: KeepParameters, to: Target);

/// The row-major index of the elements of a tile. Sums wrap around.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinearIndex {
    pub(crate) first: u64,
    pub(crate) row_step: u64,
    pub(crate) column_step: u64,
}

/// Addresses of one element each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeepParameters {
    /// An s64.
    pub(crate) seed: *const u8,
    /// An s64.
    pub(crate) offset: *const u8,
    /// The probability of being dropped, an f32.
    pub(crate) probability: *const u8,
}

/// The kernel.
pub(crate) fn is_kept(level: Level) -> IsKept {
    IS_KEPT[level.row()]
}

/// By level.
static IS_KEPT: ByLevel<IsKept> = {
    shells! {
        I:
        fn kernel[](extent: Extent, index: LinearIndex, parameters: KeepParameters, to: Target) {
            tile(extent, index, parameters, to)
        }
    }

    by_level!(kernel)
};

/// Counters that are worked on at once: more than the compiler unrolls before it vectorises the loop.
const LANES: usize = 64;

/// Random words of one counter.
const WORDS: usize = 4;

/// Elements that neighbouring counters decide on at once.
const BLOCK: usize = LANES * WORDS;

/// # Safety
///
/// As [`IsKept`].
#[inline(always)]
unsafe fn tile(extent: Extent, index: LinearIndex, parameters: KeepParameters, to: Target) {
    let KeepParameters { seed, offset, probability } = parameters;
    // SAFETY: the caller promises that the parameters can be read.
    let generator = unsafe {
        Generator::new(
            seed.cast::<u64>().read_unaligned(),
            offset.cast::<u64>().read_unaligned(),
            probability.cast::<f32>().read_unaligned(),
        )
    };
    let is_dense = index.column_step == 1;
    // Elements from one counter to the next.
    let step = if is_dense { WORDS as u64 } else { index.column_step };
    for row in 0..extent.rows {
        let to = to.row::<u8>(row);
        let first = index.first.wrapping_add(index.row_step.wrapping_mul(row as u64));
        let mut column = 0;
        while column < extent.columns {
            let at = first.wrapping_add(index.column_step.wrapping_mul(column as u64));
            // SAFETY: the caller promises that every element of the tile can be written.
            let target = unsafe { to.add(column) };
            // The first words of the first counter may belong to elements before the row.
            let skipped = if is_dense { at as usize % WORDS } else { 0 };
            let mut indices = [0; LANES];
            for (lane, index) in indices.iter_mut().enumerate() {
                *index = at.wrapping_sub(skipped as u64).wrapping_add(step.wrapping_mul(lane as u64));
            }
            let kept = generator.kept(&indices);
            column += if is_dense {
                let count = (BLOCK - skipped).min(extent.columns - column);
                // SAFETY: as above; the counters have as many elements behind those that are skipped.
                unsafe { target.copy_from_nonoverlapping(kept.as_ptr().cast::<u8>().add(skipped), count) };
                count
            } else {
                let count = LANES.min(extent.columns - column);
                for (lane, (index, kept)) in indices.iter().zip(kept).enumerate().take(count) {
                    // SAFETY: as above.
                    unsafe { target.add(lane).write(kept[*index as usize % WORDS]) };
                }
                count
            };
        }
    }
}

/// The generator's constants, the same for all elements.
struct Generator {
    /// The largest word whose element is dropped.
    bound: u32,
    key: [u32; 2],
    /// The low words of a counter; `None` if the counter is an index in 32 bits alone.
    offset: Option<[u32; 2]>,
}

impl Generator {
    #[inline(always)]
    fn new(seed: u64, offset: u64, probability: f32) -> Self {
        let halves = |number: u64| [number as u32, (number >> 32) as u32];
        // No word is above the bound if the probability is 1 or NaN.
        let bound = f64::from(u32::MAX) * f64::from(probability).clamp(0.0, 1.0);
        let bound = if bound.is_nan() { u32::MAX } else { bound as u32 };
        match offset {
            0 => Self { bound, key: [seed as u32; 2], offset: None },
            _ => Self { bound, key: halves(seed), offset: Some(halves(offset)) },
        }
    }

    /// Which elements of counters are kept, given an index of each counter.
    #[inline(always)]
    fn kept(&self, indices: &[u64; LANES]) -> [[u8; WORDS]; LANES] {
        let words = self.words(&indices.map(|index| index & !(WORDS as u64 - 1)));
        // The four elements of a counter; the first is in the lowest byte.
        let mut kept = [0u32; LANES];
        for lane in 0..LANES {
            let byte = |word: usize| u32::from(words[word][lane] > self.bound) << (8 * word);
            kept[lane] = byte(0) | byte(1) | byte(2) | byte(3);
        }
        kept.map(u32::to_le_bytes)
    }

    /// The words of counters, given the indices of their first elements.
    #[inline(always)]
    fn words(&self, indices: &[u64; LANES]) -> [[u32; LANES]; WORDS] {
        let low = indices.map(|index| index as u32);
        let counters = match self.offset {
            Some([offset_low, offset_high]) => {
                let high = indices.map(|index| (index >> 32) as u32);
                [[offset_low; LANES], [offset_high; LANES], low, high]
            }
            None => [low, low.map(|x| x + 1), low, low.map(|x| x + 3)],
        };
        // The code of the rounds is there once for both.
        let words = philox(counters, self.key);
        match self.offset {
            Some(_) => words,
            // The third word decides for all elements of a counter.
            None => [words[2]; WORDS],
        }
    }
}

/// Philox4x32 with ten rounds, of several counters.
#[inline(always)]
fn philox(mut counters: [[u32; LANES]; WORDS], mut key: [u32; 2]) -> [[u32; LANES]; WORDS] {
    let product = |a: u32, b: u32| {
        let product = u64::from(a) * u64::from(b);
        (product as u32, (product >> 32) as u32)
    };
    for _ in 0..10 {
        let [a, b, c, d] = counters;
        for lane in 0..LANES {
            let (low_a, high_a) = product(0xd251_1f53, a[lane]);
            let (low_c, high_c) = product(0xcd9e_8d57, c[lane]);
            counters[0][lane] = high_c ^ b[lane] ^ key[0];
            counters[1][lane] = low_c;
            counters[2][lane] = high_a ^ d[lane] ^ key[1];
            counters[3][lane] = low_a;
        }
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    counters
}
