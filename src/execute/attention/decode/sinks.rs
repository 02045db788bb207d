//! The sinks of a group of few queries.
#![allow(unsafe_code, reason = "sinks are read from raw memory that was checked before")]

use super::QueryGroup;
use crate::execute::attention::sink::{read_float, sink_weight};
use crate::plan::AttentionOperand;

impl QueryGroup<'_> {
    /// Reads the sinks of the group.
    pub(super) fn read_sinks(&mut self) {
        let phase = self.phase;
        let Some(data_type) = phase.sinks else { return };
        let access = phase.access(AttentionOperand::Sinks);
        let step = phase.nest.program.accesses[access].row_stride;
        for repeat in 0..phase.repeats {
            self.logits.go_to(self.tile(repeat, 0));
            let at = self.logits.operands.cursor.at(access);
            for query in 0..phase.queries {
                // SAFETY: there is a sink for each query, as far apart as the access says.
                let sink = unsafe { read_float(at.wrapping_offset(step * query as isize), data_type) };
                self.sinks[repeat * phase.queries + query] = sink;
            }
        }
    }

    /// Sets the sums of exponentials to those of the sinks under the maxima.
    pub(super) fn count_sinks(&mut self) {
        for ((sum, max), sink) in self.sum.iter_mut().zip(self.max).zip(self.sinks) {
            *sum = sink_weight(sink, max);
        }
    }
}
