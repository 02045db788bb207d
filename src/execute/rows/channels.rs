//! GroupNorm of channels that lie beside each other.

use super::Worker;
use super::runs::RowPart;
use crate::kernels::rows::{ChannelKernels, ChannelMoments, ChannelNorm, RowPass};
use crate::kernels::{Extent, Source, Target};
use crate::plan::PlacedRows;

impl Worker<'_> {
    /// Measures some positions of all groups, or normalises them.
    pub(super) fn norm_channels(
        &mut self,
        part: RowPart,
        kernels: &ChannelKernels,
        channels: usize,
        epsilon: f64,
    ) {
        let phase = self.phase;
        let (operand, Some(measured)) = (&phase.operands[0], phase.measured) else { return };
        let columns = part.rows * channels;
        let extent = Extent { rows: part.count / channels, columns };
        // Positions lie at the stride of the outer loop along a row.
        let stride = |operand: &PlacedRows| operand.along.first().map_or(0, |&(_, stride)| stride);
        let first = |operand: &PlacedRows| stride(operand) * (part.first / channels) as isize;
        let source = Source {
            at: self.memory(operand.place).at.wrapping_offset(first(operand)),
            row_stride: stride(operand),
        };
        let source_type = operand.float;
        let [means, variances] = measured.scratch.map(|scratch| self.scratch_at::<f64>(scratch));
        if measured.pass == RowPass::Measure {
            let room = self.scratch_at(phase.room);
            // SAFETY: the part has a position; the access stays within its memory for every place and
            // element, and the scratch has room for the statistics of all channels and groups.
            unsafe {
                (kernels.measure)(&ChannelMoments {
                    extent,
                    source,
                    source_type,
                    channels,
                    room,
                    means,
                    variances,
                });
            }
            return self.write_measured(part);
        }
        let Some(result) = &phase.result else { return };
        let to = Target {
            at: self.destination(result.place).at.wrapping_offset(first(result)),
            row_stride: stride(result),
        };
        let all = RowPart { rows: 1, first: 0, count: columns };
        let parameter =
            |index: usize| phase.parameters.get(index).map(|parameter| self.parameter(parameter, all).at);
        let (gamma, beta) = (parameter(0), parameter(1));
        // SAFETY: as for the measure; a result in place of the source has the source's strides.
        unsafe {
            (kernels.norm)(&ChannelNorm {
                extent,
                source,
                source_type,
                to,
                to_type: result.float,
                channels,
                epsilon,
                means,
                variances,
                gamma,
                beta,
                room: self.scratch_at(phase.room),
            });
        }
        self.parameters_of = Some(0);
        // All parts have the same statistics.
        if part.first == 0 {
            for (index, numbers) in [means, variances].into_iter().enumerate() {
                let to = self.numbers(index);
                if !to.is_null() {
                    // SAFETY: there is room for a statistic of each row of a tile.
                    unsafe { to.copy_from_nonoverlapping(numbers, part.rows) };
                }
            }
            self.write_numbers(part.rows);
        }
    }
}
