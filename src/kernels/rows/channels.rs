//! Normalisation of groups of channels whose numbers lie beside each other: positions are rows, and
//! columns are the channels of all groups.
//!
//! A row of a group would be pieces of memory at a stride. Kernels go along the columns instead: first for
//! the sums of each channel over some positions, of which the moments of each group are made, then for the
//! results.
//!
//! Numbers are added up in f64, as distances from the channel's number at the first position: the variance is
//! a difference of sums, and the distances keep both small.

use super::norm::{NormScale, parameter, scaled};
use super::steps::{load_end, store_end};
use crate::kernels::isa::{ByLevel, by_level, shells};
use crate::kernels::vector::{LANES, Lanes, RowType, load_at};
use crate::kernels::{Extent, Source, Target};
use crate::types::kind::Level;

/// Positions that are worked on at once: their numbers and results stay in the first level
/// (decision: channels-block).
const POSITIONS: usize = 8;

/// The operands of [`MeasureChannels`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChannelMoments {
    /// Positions, and the channels of all groups.
    pub(crate) extent: Extent,
    pub(crate) source: Source,
    pub(crate) source_type: RowType,
    /// Channels of a group.
    pub(crate) channels: usize,
    /// Room for two statistics of each channel, and as many more as fill a vector.
    pub(crate) room: *mut f64,
    /// Where the mean and the variance of each group go.
    pub(crate) means: *mut f64,
    pub(crate) variances: *mut f64,
}

/// Measures the groups of a tile.
///
/// # Safety
///
/// There is a position. Every element of the tile can be read, the statistics and the room can be written,
/// and the machine runs the kernel's level.
pub(crate) type MeasureChannels = unsafe fn(operands: &ChannelMoments);

/// The operands of [`NormChannels`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChannelNorm {
    /// Positions, and the channels of all groups.
    pub(crate) extent: Extent,
    pub(crate) source: Source,
    pub(crate) source_type: RowType,
    pub(crate) to: Target,
    pub(crate) to_type: RowType,
    /// Channels of a group.
    pub(crate) channels: usize,
    pub(crate) epsilon: f64,
    /// The mean and the variance of each group.
    pub(crate) means: *const f64,
    pub(crate) variances: *const f64,
    /// The f32 by which the results of each channel are multiplied, and which are then added.
    pub(crate) gamma: Option<*const u8>,
    pub(crate) beta: Option<*const u8>,
    /// Room for three statistics of each channel, and as many more as fill a vector.
    pub(crate) room: *mut f32,
}

/// Normalises the groups of a tile.
///
/// # Safety
///
/// As for [`MeasureChannels`], and every result can be written; the target is at the very address and row
/// stride of a source of the same type or overlaps it nowhere.
pub(crate) type NormChannels = unsafe fn(operands: &ChannelNorm);

/// The kernels of groups of channels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChannelKernels {
    pub(crate) measure: MeasureChannels,
    pub(crate) norm: NormChannels,
}

/// Bytes of room for either kernel.
pub(crate) fn room_of_channels(columns: usize) -> usize {
    columns.next_multiple_of(LANES).saturating_mul(2 * size_of::<f64>())
}

/// The kernels for a level.
pub(crate) fn channels(level: Level) -> ChannelKernels {
    macro_rules! of {
        ($level:ident) => {
            ChannelKernels { measure: $level::measure, norm: $level::norm }
        };
    }
    const TABLE: ByLevel<ChannelKernels> = by_level!(of!);
    TABLE[level.row()]
}

shells! {
    I:
    fn measure[](operands: &ChannelMoments) {
        measure_channels::<I>(operands)
    }

    fn norm[](operands: &ChannelNorm) {
        norm_channels::<I>(operands)
    }
}

/// The numbers of a vector in f64, as many as there are.
///
/// # Safety
///
/// They can be read, and the machine runs the level.
#[inline(always)]
unsafe fn load_wide<I: Lanes>(row: *const u8, float: RowType, column: usize, count: usize) -> I::D {
    // SAFETY: as the caller promises.
    unsafe {
        match float {
            _ if count < LANES => I::widen(load_end::<I>(row, float, column, count, 0.0)),
            RowType::F32 => I::load_wide(row.cast::<f32>().add(column)),
            _ => I::widen(load_at::<I>(row, float, column)),
        }
    }
}

/// The numbers from which distances of channels are taken: those of a position, 0 for what is not finite.
///
/// # Safety
///
/// As [`load_wide`].
#[inline(always)]
unsafe fn origin<I: Lanes>(row: *const u8, float: RowType, column: usize, count: usize) -> I::F {
    // SAFETY: as the caller promises.
    unsafe {
        let (x, zero) = (load_end::<I>(row, float, column, count, 0.0), I::splat(0.0));
        I::if_positive(I::add(I::sub(x, x), I::splat(1.0)), x, zero)
    }
}

/// # Safety
///
/// As [`MeasureChannels`].
#[inline(always)]
unsafe fn measure_channels<I: Lanes>(operands: &ChannelMoments) {
    let ChannelMoments { extent, source, source_type, channels, room, means, variances } = *operands;
    let Extent { rows, columns } = extent;
    let (sums, squares) = (room, room.wrapping_add(columns.next_multiple_of(LANES)));
    // SAFETY: as the caller promises.
    unsafe {
        for first in (0..rows).step_by(POSITIONS) {
            let end = rows.min(first + POSITIONS);
            for column in (0..columns).step_by(LANES) {
                let count = columns - column;
                let from = I::widen(origin::<I>(source.at, source_type, column, count));
                let (sum_at, square_at) = (sums.add(column), squares.add(column));
                let (mut sum, mut square) = match first {
                    0 => (I::splat_64(0.0), I::splat_64(0.0)),
                    _ => (I::load_64(sum_at), I::load_64(square_at)),
                };
                for row in first..end {
                    let x = load_wide::<I>(source.row(row), source_type, column, count);
                    let distance = I::sub_64(x, from);
                    sum = I::add_64(sum, distance);
                    square = I::add_64(square, I::mul_64(distance, distance));
                }
                I::store_64(sum_at, sum);
                I::store_64(square_at, square);
            }
        }
        // The sums become means, and the sums of squares variances.
        let share = 1.0 / rows as f64;
        for column in (0..columns).step_by(LANES) {
            let mut from = [0.0f32; LANES];
            I::store(from.as_mut_ptr(), origin::<I>(source.at, source_type, column, columns - column));
            for (i, &from) in from.iter().enumerate() {
                let (sum_at, square_at) = (sums.add(column + i), squares.add(column + i));
                let distance = sum_at.read() * share;
                square_at.write(square_at.read() * share - distance * distance);
                sum_at.write(f64::from(from) + distance);
            }
        }
        let share = 1.0 / channels as f64;
        for group in 0..columns / channels {
            let (of_means, of_variances) = (sums.add(group * channels), squares.add(group * channels));
            let (first, mut lost, mut variance) = (of_means.read(), 0.0, 0.0);
            // Channels of one mean have it together, whatever their shares add up to.
            let origin = if first.is_finite() { first } else { 0.0 };
            for i in 0..channels {
                lost += (of_means.add(i).read() - origin) * share;
            }
            let mean = origin + lost;
            for i in 0..channels {
                let distance = of_means.add(i).read() - mean;
                variance += (of_variances.add(i).read() + distance * distance) * share;
            }
            means.add(group).write(mean);
            // A difference may be below 0 by its rounding; NaN stays.
            variances.add(group).write(if variance < 0.0 { 0.0 } else { variance });
        }
    }
}

/// # Safety
///
/// As [`NormChannels`].
#[inline(always)]
unsafe fn norm_channels<I: Lanes>(operands: &ChannelNorm) {
    let ChannelNorm { extent, source, source_type, to, to_type, channels, gamma, beta, room, .. } = *operands;
    let Extent { rows, columns } = extent;
    let [near, factor, lost] = [0, 1, 2].map(|n| room.wrapping_add(n * columns.next_multiple_of(LANES)));
    // SAFETY: as the caller promises.
    unsafe {
        for group in 0..columns / channels {
            let (mean, variance) = (operands.means.add(group).read(), operands.variances.add(group).read());
            let scale = NormScale::of(mean, variance, operands.epsilon);
            for column in group * channels..(group + 1) * channels {
                near.add(column).write(scale.near);
                factor.add(column).write(scale.factor);
                lost.add(column).write(scale.lost);
            }
        }
        for first in (0..rows).step_by(POSITIONS) {
            let end = rows.min(first + POSITIONS);
            for column in (0..columns).step_by(LANES) {
                let count = columns - column;
                let scale = [
                    load_end::<I>(near.cast(), RowType::F32, column, count, 0.0),
                    load_end::<I>(factor.cast(), RowType::F32, column, count, 0.0),
                    load_end::<I>(lost.cast(), RowType::F32, column, count, 0.0),
                ];
                let gamma = parameter::<I>(gamma, column, count);
                let beta = parameter::<I>(beta, column, count);
                for row in first..end {
                    let x = load_end::<I>(source.row(row), source_type, column, count, 0.0);
                    let y = scaled::<I>(x, scale, gamma, beta);
                    store_end::<I>(to.row(row), to_type, column, count, y);
                }
            }
        }
    }
}
